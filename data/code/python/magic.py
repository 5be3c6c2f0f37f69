# SPDX-License-Identifier: Apache-2.0
"""Lines for a shell (!command) and the few magics (%name) that users paste from notebooks."""

import importlib
import re
import subprocess

LINE = re.compile(r"(\s*)(?:([\w\s,.*]*?\S)\s*=\s*)?(!!?|%%?)\s*(.*)", re.S)
NAME = re.compile(r"(\w+)[ \t]*(.*)", re.S)
SHOWN = {"html": "text/html", "markdown": "text/markdown", "latex": "text/latex",
         "javascript": "application/javascript", "js": "application/javascript",
         "svg": "image/svg+xml"}
IGNORED = ("matplotlib", "load_ext", "reload_ext", "autoreload", "config", "precision", "pylab")


class UsageError(Exception):
    """A magic that does not exist, or a wrong argument of one."""


UsageError.__module__ = "builtins"


# --- Translation -----------------------------------------------------------------------------


def translate(lines, number):
    """The code with the magic of one line replaced; None if the line has none."""
    while number and lines[number - 1].endswith("\\"):
        number -= 1
    last = number
    while lines[last].endswith("\\") and last + 1 < len(lines):
        last += 1
    text = "\n".join(lines[number:last + 1])
    found = LINE.fullmatch(text)
    if not found or (found[2] and found[3] not in ("!", "%")) or found[3] == "%%":
        return None
    indent, target, mark, rest = found.groups()
    if mark[0] == "!":
        name = "list" if target or mark == "!!" else "system"
        call = f"__cay_magic__({name!r}, {rest!r})"
    else:
        named = NAME.fullmatch(rest)
        if not named:
            return None
        call = f"__cay_magic__({named[1]!r}, {named[2]!r})"
    lines = list(lines)
    lines[number] = indent + (f"{target} = " if target else "") + call
    for blank in range(number + 1, last + 1):
        lines[blank] = ""
    return "\n".join(lines) + "\n"


def translate_cell(code):
    """The code for a cell that begins with %%name; its lines keep their numbers."""
    blank = code[:len(code) - len(code.lstrip())]
    first, _, body = code.lstrip().partition("\n")
    named = NAME.fullmatch(first[2:].strip())
    if not named:
        return code
    newlines = "\n" * blank.count("\n")
    return f"{newlines}__cay_magic__({named[1]!r}, {named[2]!r}, {body!r})\n"


def expand(line):
    """Replaces {expression} and $name by values of the code."""
    def value(match):
        text = match[1] or match[2]
        if match[2]:
            return str(main[text]) if text in main else match[0]
        try:
            return str(eval(text, main))
        except Exception:
            return match[0]
    return re.sub(r"(?<!\$)\{([^{}\n]+)\}|(?<![\\$])\$([A-Za-z_]\w*)", value, line)


# --- Magics ----------------------------------------------------------------------------------


def shell():
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def start(argv, **options):
    """Runs a program on the descriptors; it may install modules."""
    flush()
    main["_exit_code"] = subprocess.run(argv, **options).returncode
    importlib.invalidate_caches()
    find_user_site()


def magic_system(line, cell):
    return start([shell(), "-c", expand(line)])


def magic_list(line, cell):
    flush()
    done = subprocess.run([shell(), "-c", expand(line)], stdout=subprocess.PIPE)
    main["_exit_code"] = done.returncode
    return done.stdout.decode("utf-8", "replace").splitlines()


def magic_bash(line, cell):
    start([shell(), *(["-c", line] if cell is None else ["-s"])],
          input=None if cell is None else cell.encode())
    if main["_exit_code"]:
        raise subprocess.CalledProcessError(main["_exit_code"], "bash")


def magic_sh(line, cell):
    return magic_bash(line, cell)


def magic_pip(line, cell):
    import shlex
    start([sys.executable, "-m", "pip", *shlex.split(expand(line))])


def magic_cd(line, cell):
    os.chdir(os.path.expanduser(expand(line).strip().strip("'\"") or "~"))
    print(os.getcwd())


def magic_pwd(line, cell):
    return os.getcwd()


def magic_ls(line, cell):
    return start([shell(), "-c", f"ls {expand(line)}"])


def magic_env(line, cell):
    line = line.strip()
    name, separator, value = line.partition("=" if "=" in line else " ")
    if not name:
        return dict(os.environ)
    if not separator:
        return os.environ.get(name)
    os.environ[name.strip()] = expand(value.strip())
    print(f"env: {name.strip()}={os.environ[name.strip()]}")
    return None


def magic_time(line, cell):
    import time
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        return evaluate_text(line if cell is None else cell, cell is not None)
    finally:
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print(f"CPU times: total: {cpu * 1000:.3g} ms\nWall time: {wall * 1000:.3g} ms")


def magic_timeit(line, cell):
    import timeit
    options = re.match(r"(?:-[nr]\s*\d+\s+)*", line + " ")[0]
    given = {name: int(value) for name, value in re.findall(r"-(\w)\s*(\d+)", options)}
    timer = timeit.Timer(line[len(options):] if cell is None else cell, globals=main)
    number, repeat = given.get("n") or timer.autorange()[0], given.get("r") or 3
    best = min(timer.repeat(repeat, number)) / number
    print(f"{best * 1e6:.3g} us per loop (best of {repeat}, {number} loops each)")


def magic_writefile(line, cell):
    words = line.split()
    if cell is None or not words:
        raise UsageError("%%writefile needs a path, and the text below it")
    with open(words[-1], "a" if "-a" in words[:-1] else "w", encoding="utf-8") as file:
        file.write(cell)
    print(f"Writing {words[-1]}")


def magic_capture(line, cell):
    import contextlib
    import types
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        evaluate_text(cell or "", True)
    for name in line.split()[:1]:
        main[name] = types.SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())


def evaluate_text(code, is_cell):
    """Runs code of a magic in __main__ and returns the value of its last expression."""
    name = f"<cell {State.count}>" if is_cell else "<magic>"
    if is_cell:  # its lines have the numbers of the whole cell
        code = "\n" * (cells[name].count("\n") - code.count("\n")) + code
    tree, code = parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    if tree.body:
        evaluate(tree, name, "exec")
    if not last:
        return None
    value = evaluate(_ast.Expression(last.value), name, "eval")
    return None if is_quiet(code, last) else value


def run(name, line, cell):
    if name in IGNORED:
        return None
    if cell is not None and name in SHOWN:
        return display({SHOWN[name]: cell}, raw=True)
    found = globals().get(f"magic_{name}")
    if found is None:
        mark = "%" if cell is None else "%%"
        names = sorted(key[6:] for key in globals() if key.startswith("magic_"))
        raise UsageError(f"{mark}{name} is not available here; there are %{', %'.join(names)}")
    return found(line, cell)
