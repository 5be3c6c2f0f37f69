# SPDX-License-Identifier: Apache-2.0
"""What the checks share: finding C files, reading them roughly, reporting."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A comment, a string or a character; whichever starts first wins.
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def c_files(*folders):
    """The C files below the folders, relative to the root, sorted."""
    found = []
    for folder in folders:
        for path in (ROOT / folder).rglob("*.[ch]"):
            found.append(path.relative_to(ROOT))
    return sorted(found)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def first_bytes(path):
    """The first line's beginning, which names the interpreter of a script."""
    with (ROOT / path).open("rb") as file:
        return file.read(32) if file.peek(2)[:2] == b"#!" else b""


def blank(text, strings=True):
    """The text with comments (and the inside of strings) blanked; positions stay."""

    def cover(match):
        token = match[0]
        if token[0] in "\"'":
            return token if not strings else token[0] + " " * (len(token) - 2) + token[0]
        return re.sub(r"[^\n]", " ", token)

    return TOKEN.sub(cover, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Function:
    """A definition: its name, whether it is static, its first and last line."""

    def __init__(self, name, static, first, last):
        self.name, self.static, self.first, self.last = name, static, first, last

    @property
    def lines(self):
        return self.last - self.first + 1


def functions(text):
    """Every function definition.  Relies on the format: '{' and '}' in the first column."""
    lines = blank(text).split("\n")
    found = []
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            first = number - 1
            while first > 1 and re.match(r"\S", lines[first - 2]) and not re.search(
                r"[;}]\s*$|^#", lines[first - 2]
            ):
                first -= 1
            # a continued signature is indented: step over it to the line it starts on
            while first > 1 and lines[first - 1].startswith(" "):
                first -= 1
            head = " ".join(lines[first - 1 : number - 1])
            name = re.search(r"\bTEST\((\w+)|(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", head))
            start = (name[1] or name[2] if name else "?", bool(re.search(r"\bstatic\b", head)), first)
        elif line == "}" and start:
            found.append(Function(start[0], start[1], start[2], number))
            start = None
    return found


def public_functions():
    """The functions that the public headers declare."""
    found = set()
    for path in c_files("include"):
        code = re.sub(r"^#.*", "", blank(read(path)), flags=re.M)
        for match in re.finditer(r"\bCAY_PUBLIC\b[^;(]*?(\w+)\s*\(", code):
            found.add(match[1])
    return found


class Report:
    """Collects findings; `allow` comments take them back, unless none is there to take.

    /* allow: NAME reason */ on the line of the finding, or alone on the line before it.
    """

    ALLOW = re.compile(r"/\*\s*allow:\s*([\w-]+)\s*(.*?)\s*\*/")

    def __init__(self):
        self.findings = []
        self.allowed = {}  # (path, line) -> [name, reason, used, line of the comment]

    def read_allows(self, path, text):
        for number, line in enumerate(text.split("\n"), 1):
            match = self.ALLOW.search(line)
            if match:
                alone = not line.replace(match[0], "").strip()
                target = number + 1 if alone else number
                self.allowed[(path, target)] = [match[1], match[2], False, number]

    def add(self, path, line, name, message):
        allow = self.allowed.get((path, line))
        if allow and allow[0] == name and allow[1]:
            allow[2] = True
            return
        self.findings.append((str(path), line, f"{message} [{name}]"))

    def finish(self):
        """Prints the findings and exits: 1 if there are any."""
        for (path, _), (name, reason, used, line) in self.allowed.items():
            if not reason:
                self.findings.append((str(path), line, f"'allow: {name}' gives no reason"))
            elif not used:
                self.findings.append((str(path), line, f"'allow: {name}' allows nothing"))
        for path, line, message in sorted(self.findings):
            print(f"{path}:{line}: {message}" if line else f"{path}: {message}")
        sys.exit(1 if self.findings else 0)
