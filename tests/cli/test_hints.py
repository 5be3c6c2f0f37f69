# SPDX-License-Identifier: Apache-2.0
"""A command that fails because something is not inside is told what would make it work,
and then it works."""

import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(name="home")
def fixture_home(tmp_path):
    home = tmp_path / "home" / "me"
    home.mkdir(parents=True)
    return home


def script(path, text, mode=0o755):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def work(boxes, name="work"):
    folder = boxes.folder / name
    folder.mkdir(exist_ok=True)
    return folder


def advice(done):
    """The options in a hint: -v, -w and -u with their values."""
    return shlex.split(" ".join(re.findall(r"(-[vwu] \S+?)(?=[\s,;)]|$)", done.err.decode(), re.M)))


def test_a_script_of_the_current_directory(boxes):
    folder = work(boxes)
    script(folder / "hello.py", "print('hello')\n")
    done = boxes.cay("run", "--", "python3", "hello.py", cwd=folder)
    assert done.status == 2 and advice(done) == ["-v", ".:/src", "-w", "/src"]
    assert boxes.ok("run", *advice(done), "--", "python3", "hello.py", cwd=folder).out == b"hello\n"


def test_a_program_of_the_current_directory(boxes):
    folder = work(boxes)
    script(folder / "bin" / "hello", "#!/bin/sh\necho hello\n")
    done = boxes.cay("run", "--", "bin/hello", cwd=folder)
    assert done.status == 127 and advice(done) == ["-v", ".:/src", "-w", "/src"]
    assert boxes.ok("run", *advice(done), "--", "bin/hello", cwd=folder).out == b"hello\n"


def test_a_program_in_a_home_directory(boxes, home):
    script(home / ".tool" / "bin" / "mytool", "#!/bin/sh\necho from home\n")
    env = {"HOME": str(home), "PATH": f"{home}/.tool/bin:{os.environ['PATH']}"}
    folder = work(boxes)
    done = boxes.cay("run", "--", "mytool", cwd=folder, env=env)
    assert done.status == 127
    assert advice(done) == ["-v", f"{home}/.tool:{home}/.tool:ro"]
    assert (b"cay template create NAME" in done.err) == (os.geteuid() == 0)
    name = re.search(r"name it (\S+?)[,)]", done.err.decode())[1]
    assert boxes.ok("run", *advice(done), "--", name, cwd=folder, env=env).out == b"from home\n"


def test_a_script_whose_interpreter_is_in_a_home_directory(boxes, home):
    (home / ".pyenv" / "bin").mkdir(parents=True)
    (home / ".pyenv" / "bin" / "python3").symlink_to("/usr/bin/python3")
    folder = work(boxes)
    script(folder / "app", f"#!{home}/.pyenv/bin/python3\nprint('app')\n")
    env = {"HOME": str(home)}
    words = ["-v", ".:/src", "-w", "/src"]
    done = boxes.cay("run", *words, "--", "./app", cwd=folder, env=env)
    assert done.status == 127 and f"its interpreter {home}/.pyenv/bin/python3 is not inside" in \
        done.err.decode()
    assert ("cay template create NAME" in done.err.decode()) == (os.geteuid() == 0)
    assert boxes.ok("run", *words, *advice(done), "--", "./app", cwd=folder, env=env).out == b"app\n"


def test_a_program_elsewhere_on_this_machine(boxes):
    script(boxes.folder / "elsewhere" / "bin" / "prog", "#!/bin/sh\necho prog\n")
    path = boxes.folder / "elsewhere" / "bin" / "prog"
    done = boxes.cay("run", "--", path, cwd=work(boxes))
    assert done.status == 127
    assert boxes.ok("run", *advice(done), "--", path, cwd=work(boxes)).out == b"prog\n"


def test_a_whole_home_is_never_proposed(boxes, home):
    script(home / "x.sh", "#!/bin/sh\necho x\n")
    env = {"HOME": str(home)}
    done = boxes.cay("run", "--", "./x.sh", cwd=home, env=env)
    assert advice(done) == ["-v", f"{home}/x.sh:{home}/x.sh:ro"]


def test_a_sandbox_that_is_there_gets_a_copy(boxes, box):
    folder = work(boxes)
    script(folder / "hello.py", "print('hello')\n")
    done = boxes.cay("exec", box, "--", "python3", "hello.py", cwd=folder)
    copy = re.search(r"cay (cp \S+ \S+)", done.err.decode())[1].split()
    boxes.ok(*copy, cwd=folder)
    assert boxes.ok("exec", box, "--", "python3", "hello.py", cwd=folder).out == b"hello\n"


def test_what_is_nowhere_is_said_to_be_nowhere(boxes):
    done = boxes.cay("run", "--", "no-such-program")
    assert b"neither inside nor on this machine" in done.err


def test_what_may_not_be_executed(boxes):
    folder = work(boxes)
    script(folder / "plain.sh", "echo x\n", 0o644)
    done = boxes.cay("run", "-v", ".:/src", "-w", "/src", "--", "./plain.sh", cwd=folder)
    assert done.status == 126 and b"chmod +x" in done.err


def test_a_failure_that_has_another_cause_gets_no_advice(boxes):
    folder = work(boxes)
    script(folder / "hello.py", "import sys; sys.exit(1)\n")
    words = ["-v", ".:/src", "-w", "/src", "--", "python3", "hello.py"]
    done = boxes.cay("run", *words, cwd=folder)
    assert (done.status, done.err) == (1, b"")
    done = boxes.cay("run", "--", "sh", "-c", "exit 3", cwd=folder)
    assert (done.status, done.err) == (3, b"")
    assert sys.executable


@pytest.fixture(name="roots")
def fixture_roots():
    if os.geteuid() != 0:
        pytest.skip("only root can put something into /root")
    folder = Path(tempfile.mkdtemp(prefix="cay-test-", dir="/root"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def works_with_its_advice(boxes, *command, given=()):
    """Once: what is told is all that is needed."""
    done = boxes.cay("run", *given, "--", *command, cwd=work(boxes))
    assert done.status != 0
    return boxes.ok("run", *given, *advice(done), "--", *command, cwd=work(boxes)).out


def test_a_program_below_the_home_of_root(boxes, roots):
    prog = script(roots / "bin" / "prog", "#!/bin/sh\necho prog\n")
    assert works_with_its_advice(boxes, prog) == b"prog\n"
    shown = ("-v", f"{roots}:{roots}:ro")
    assert works_with_its_advice(boxes, prog, given=shown) == b"prog\n"
    env = {"PATH": f"{roots}/bin:{os.environ['PATH']}"}
    done = boxes.cay("run", "--", "prog", cwd=work(boxes), env=env)
    assert done.status == 127 and f"name it {prog}," in done.err.decode()
    assert boxes.ok("run", *advice(done), "--", prog, cwd=work(boxes)).out == b"prog\n"


def test_a_script_whose_interpreter_is_below_the_home_of_root(boxes, roots):
    prog = script(roots / "prog", "#!/bin/sh\necho run by prog\n")
    app = script(boxes.folder / "apps" / "app", f"#!{prog}\n")
    assert works_with_its_advice(boxes, app) == b"run by prog\n"
    shown = ("-v", f"{app}:{app}:ro")
    assert works_with_its_advice(boxes, app, given=shown) == b"run by prog\n"


def test_a_link_to_below_the_home_of_root(boxes, roots):
    script(roots / "prog", "#!/bin/sh\necho prog\n")
    for link in (boxes.folder / "venv" / "bin" / "prog", work(boxes) / "venv" / "prog"):
        link.parent.mkdir(parents=True)
        link.symlink_to(roots / "prog")
    assert works_with_its_advice(boxes, boxes.folder / "venv" / "bin" / "prog") == b"prog\n"
    assert works_with_its_advice(boxes, "venv/prog") == b"prog\n"


def test_an_argument_below_the_home_of_root(boxes, roots):
    path = script(roots / "hello.py", "print('hello')\n", 0o644)
    assert works_with_its_advice(boxes, "python3", path) == b"hello\n"
    shown = ("-v", f"{roots}:{roots}:ro")
    assert works_with_its_advice(boxes, "python3", path, given=shown) == b"hello\n"


def test_a_command_without_a_name_is_nowhere(boxes):
    assert b"neither inside nor on this machine" in boxes.cay("run", "--", "").err
