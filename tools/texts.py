# SPDX-License-Identifier: Apache-2.0
"""Finds the text in our files: strings, comments, docstrings and documents.

Every function yields (line, kind, text), with the text on one line."""

import ast
import io
import re
import subprocess
import tokenize

import csource

LITERAL = r'"(?:\\.|[^"\\\n])*"'
# Literals that stand side by side are one string; PRIu64 and its like may stand between them.
STRING = re.compile(rf'{LITERAL}(?:\s*(?:(?:PRI[a-zX]\w+|[A-Z]+_S)\s*)?{LITERAL})*')
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
# What no user reads: conditions of the compiler, assembler, SQL, what is compared with.
SILENT = re.compile(r"_Static_assert|static_assert|volatile|asm|str\w*cmp|strstr|query_\w+|"
                    r"sqlite3_\w+|\w*_of|ask_number|run")
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|BEGIN|COMMIT|ALTER|DROP|"
                 r"ROLLBACK|ATTACH|SAVEPOINT|RELEASE|VACUUM)\b.*", re.S)
SCRIPT = re.compile(r'"\$[\w@#]|; do\b|; then\b|\besac\b|HTTP/1\.1|^import sys|^#!')
KINDS = (("error", re.compile(r"fail|refuse|complain|malformed|throw")),
         ("log", re.compile(r"^warn_|_log$|^log_|^note_")),
         ("doctor", re.compile(r"^doctor_|^check_")))
HINT_ARGUMENT = 6  # of cay_fail()


def files(*patterns):
    """The files that git knows and that match, relative to the root, sorted."""
    output = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard",
                             "--deduplicate", "--", *patterns], cwd=csource.ROOT, check=True,
                            capture_output=True, text=True).stdout
    return [path for path in output.splitlines() if (csource.ROOT / path).is_file()]


def is_script(path):
    return csource.first_bytes(path).startswith(b"#!")


def is_python(path):
    return path.endswith(".py") or b"python" in csource.first_bytes(path)


def one_line(text):
    return re.sub(r"\s+", " ", text).strip()


def words(text):
    return re.findall(r"[A-Za-z]{2,}", re.sub(r"%[-+ #0-9.*]*[a-z]+|\\.", " ", text))


def is_prose(text):
    """Words for a reader, and neither SQL nor a script."""
    return (" " in text.strip() and len(words(text)) >= 2 and not SQL.fullmatch(text)
            and not SCRIPT.search(text))


def caller(code, position):
    """The name of the call around a position, and the number of the argument; "" for none."""
    depth = argument = 0
    for index in range(position - 1, -1, -1):
        char = code[index]
        if char in ")]}":
            depth += 1
        elif char in "([{" and depth > 0:
            depth -= 1
        elif char == "(":
            name = re.search(r"(\w+)\s*$", code[max(0, index - 80):index])
            if name:
                return name[1], argument
            argument = 0  # a parenthesis inside an expression
        elif char in "[{;" and depth == 0:
            return "", argument
        elif char == "," and depth == 0:
            argument += 1
    return "", argument


def kind_of(name, argument):
    if name == "cay_fail" and argument >= HINT_ARGUMENT:
        return "hint"
    return next((kind for kind, pattern in KINDS if pattern.search(name)), "text")


def c_strings(path):
    """The strings of a C file that a user can see."""
    text = csource.read(path)
    blank = csource.blank(text)
    for match in STRING.finditer(csource.blank(text, strings=False)):
        string = "".join(part[1:-1] for part in re.findall(LITERAL, match[0]))
        if not is_prose(string) or blank[match.start()] != '"':
            continue
        name, argument = caller(blank, match.start())
        if not SILENT.fullmatch(name):
            yield csource.line_of(text, match.start()), kind_of(name, argument), one_line(
                string.replace("\\n", " ").replace("\\t", " ").replace('\\"', '"'))


def c_comments(path):
    text = csource.read(path)
    for match in csource.TOKEN.finditer(text):
        if COMMENT.fullmatch(match[0]):
            body = re.sub(r"^/\*+|\*/$|^//|^[ \t]*\*(?!/)", "", match[0], flags=re.M)
            yield csource.line_of(text, match.start()), "comment", one_line(body)


def python_text(node):
    """The text of a string or an f-string, its values as {}; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}"
                       for part in node.values)
    return None


def python_strings(path):
    """The strings of a Python file; those that are statements are docstrings."""
    nodes = list(ast.walk(ast.parse(csource.read(path))))
    docs = {node.value for node in nodes if isinstance(node, ast.Expr)}
    inner = {part for node in nodes if isinstance(node, ast.JoinedStr)
             for part in ast.walk(node) if part is not node}
    errors = {part for node in nodes if isinstance(node, ast.Raise) for part in ast.walk(node)}
    for node in nodes:
        text = python_text(node) if node not in inner else None
        if text is None or not is_prose(text):
            continue
        if node in docs:
            for line, paragraph in paragraphs(text, node.lineno):
                yield line, "docstring", paragraph
        else:
            yield node.lineno, "error" if node in errors else "text", one_line(text)


def hash_comments(path):
    """The comments of a Python or shell file, consecutive lines as one."""
    text = csource.read(path)
    found = []
    if is_python(path):
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        found = [(token.start[0], token.string) for token in tokens
                 if token.type == tokenize.COMMENT]
    else:
        found = [(number, match[1]) for number, line in enumerate(text.splitlines(), 1)
                 if (match := re.search(r"(?:^|\s)(#(?: .*|$))", line))]
    block = []
    for number, comment in found:
        if block and number != block[-1][0] + 1:
            yield block[0][0], "comment", one_line(" ".join(part for _, part in block))
            block = []
        block.append((number, comment.lstrip("#! ")))
    if block:
        yield block[0][0], "comment", one_line(" ".join(part for _, part in block))


def paragraphs(text, first=1):
    """(line, paragraph): blank lines, list items, table cells, terms and headings part them."""
    block = []
    start = first
    for number, line in enumerate([*text.splitlines(), ""], first):
        item = re.match(r"\s*([-*+]|\d+\.|#+|\|)\s+", line)
        explains = line.startswith("\t") and block and not block[-1].startswith("\t")
        if block and (not line.strip() or item or explains):
            for part in re.split(r"\s\|\s", " ".join(block)):
                yield start, one_line(part)
            block = []
        if line.strip():
            start = start if block else number
            block.append(line[item.end():] if item else line)


def document(path):
    """The paragraphs of a Markdown file or a manual page, without their code."""
    text = csource.read(path)
    text = re.sub(r"^```.*?^```", lambda match: re.sub(r"[^\n]", "", match[0]), text,
                  flags=re.M | re.S)
    if path.endswith(".md"):
        text = re.sub(r"^(    |\t).*", "", text, flags=re.M)
    text = re.sub(r"^;.*", "", text, flags=re.M)  # a comment of scdoc
    for line, paragraph in paragraphs(text):
        yield line, "document", paragraph


def messages():
    """(path, line, kind, text) of every string that a user can see."""
    for path in files("src/**.c", "src/**.h", "include/**.h"):
        for line, kind, text in c_strings(path):
            yield path, line, kind, text
    for path in files("python/cay/**.py"):
        for line, kind, text in python_strings(path):
            if kind != "docstring":
                yield path, line, kind, text
