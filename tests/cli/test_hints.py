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
    """The options in a hint: -v, -w, -e and -u with their values."""
    return shlex.split(" ".join(re.findall(r"(-[vweu] \S+?)(?=[\s,;)]|$)", done.err.decode(), re.M)))


def test_a_script_of_the_current_directory(boxes):
    folder = work(boxes)
    script(folder / "hello.py", "print('hello')\n")
    done = boxes.cay("run", "--", "python3", "hello.py", cwd=folder)
    assert done.status == 2 and advice(done) == ["-v", ".:/src", "-w", "/src"]
    assert boxes.ok("run", *advice(done), "--", "python3", "hello.py", cwd=folder).out == b"hello\n"


def test_a_script_with_a_blank_in_its_name(boxes):
    folder = work(boxes, "my work")
    script(folder / "say hello.py", "print('hello')\n")
    done = boxes.cay("run", "--", "python3", "say hello.py", cwd=folder)
    assert done.status == 2 and advice(done) == ["-v", ".:/src", "-w", "/src"]
    words = ["--", "python3", "say hello.py"]
    assert boxes.ok("run", *advice(done), *words, cwd=folder).out == b"hello\n"


def test_a_path_that_is_too_long_inside_is_missing(boxes):
    """The working directory and the path have 4,095 bytes each at most, but not together."""
    folder, deep = work(boxes), work(boxes, "deep")
    name = "/".join(["n" * 250] * 8) + "/hello.py"
    below = "/".join(["d" * 250] * 12)
    for base, path in (folder, os.path.dirname(name)), (deep, below):
        handle = os.open(base, os.O_RDONLY)
        for one in path.split("/"):
            os.mkdir(one, dir_fd=handle)
            handle = os.open(one, os.O_RDONLY, dir_fd=handle)
    script(folder / name, "print('hello')\n")
    done = boxes.cay("run", "-v", f"{deep}:/deep", "-w", f"/deep/{below}", "--",
                     "python3", name, cwd=folder)
    assert done.status == 2 and advice(done) == ["-v", ".:/src", "-w", "/src"], done.err


def test_a_script_of_the_current_directory_as_if_it_were_in_path(boxes, box):
    folder = work(boxes)
    script(folder / "hello.py", "#!/usr/bin/python3\nprint('hello')\n")
    done = boxes.cay("run", "hello.py", cwd=folder)
    assert done.status == 127 and advice(done) == ["-v", ".:/src", "-w", "/src"]
    assert b"name it /src/hello.py" in done.err
    assert boxes.ok("run", *advice(done), "/src/hello.py", cwd=folder).out == b"hello\n"
    done = boxes.cay("run", *advice(done), "hello.py", cwd=folder)
    assert done.status == 127 and b"the sandbox has ./hello.py" in done.err
    done = boxes.cay("exec", box, "hello.py", cwd=folder)
    assert f"cay cp hello.py {box}:hello.py and name it ./hello.py" in done.err.decode()


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
    assert done.status == 127 and f"its interpreter {home}/.pyenv/bin/python3 is missing inside" in \
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
    assert b"neither in the sandbox nor on the host" in done.err


def test_what_may_not_be_executed(boxes):
    folder = work(boxes)
    script(folder / "plain.sh", "echo x\n", 0o644)
    done = boxes.cay("run", "-v", ".:/src", "-w", "/src", "--", "./plain.sh", cwd=folder)
    assert done.status == 126 and b"chmod +x" in done.err and b"like sh or python3" in done.err


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


def test_what_is_inside_is_not_said_to_be_nowhere(boxes):
    folder = work(boxes)
    shown = ("-v", ".:/src", "-w", "/src", "--")
    script(folder / "dos.sh", "#!/bin/sh\r\necho x\r\n")
    line = boxes.fails(127, "run", *shown, "./dos.sh", cwd=folder)
    assert "its interpreter /bin/sh\\r is missing inside" in line and "carriage return" in line
    binary = bytearray(Path("/bin/true").read_bytes())
    loader = binary.index(b"/ld-linux")
    binary[loader:loader + 3] = b"/no"
    (folder / "foreign").write_bytes(binary)
    (folder / "foreign").chmod(0o755)
    line = boxes.fails(127, "run", *shown, "./foreign", cwd=folder)
    assert "the file exists, but its interpreter" in line
    line = boxes.fails(127, "run", "-e", "PATH=/x", "--", "env")
    assert "the sandbox has /usr/bin/env," in line and "use that path" in line


def test_what_env_is_asked_for_and_is_only_on_this_machine(boxes, roots):
    script(roots / "bin" / "mynode", "#!/bin/sh\necho run by mynode\n")
    env = {"PATH": f"{roots}/bin:{os.environ['PATH']}"}
    folder = work(boxes)
    for first in ("#!/usr/bin/env mynode", "#!/usr/bin/env -S mynode --flag"):
        script(folder / "app", f"{first}\n")
        for given in ((), ("-v", ".:/src", "-w", "/src")):
            done = boxes.cay("run", *given, "--", "./app", cwd=folder, env=env)
            assert done.status == 127
            assert boxes.ok("run", *given, *advice(done), "--", "./app", cwd=folder).out == \
                b"run by mynode\n"
    script(folder / "found", "#!/usr/bin/env sh\nexit 127\n")
    done = boxes.cay("run", "-v", ".:/src", "--", "/src/found", cwd=folder, env=env)
    assert (done.status, done.err) == (127, b"")


@pytest.mark.parametrize("options", [(), ("-w", "/tmp"), ("-u", "root")])
def test_a_copy_goes_where_the_command_looks(boxes, box, options):
    folder = work(boxes)
    script(folder / "d" / "f", "content\n", 0o644)
    (folder / "link").symlink_to("d/f")
    for word in ("d/f", "./link", folder / "d" / "f"):
        done = boxes.cay("exec", *options, box, "--", "cat", word, cwd=folder)
        copy = re.search(r"cay (cp .*?)( and name it (\S+))?\n", done.err.decode())
        boxes.ok(*copy[1].split(), cwd=folder)
        assert boxes.ok("exec", *options, box, "--", "cat", copy[3] or word,
                        cwd=folder).out == b"content\n"


def test_no_copy_is_proposed_where_none_can_be_put(boxes, box):
    folder = work(boxes)
    script(folder / "d" / "f", "content\n", 0o644)
    assert b"cay cp" not in boxes.cay("exec", "-w", "/etc", box, "--", "cat", "d/f", cwd=folder).err


def test_a_place_that_is_taken_is_not_proposed(boxes):
    folder = work(boxes)
    (folder / "d").mkdir()
    script(folder / "hello.py", "print('hello')\n")
    given = ("-v", "./d:/src", "-w", "/src")
    done = boxes.cay("run", *given, "--", "python3", "hello.py", cwd=folder)
    assert advice(done) == ["-v", f"{folder}:{folder}", "-w", str(folder)]
    assert boxes.ok("run", *given, *advice(done), "--", "python3", "hello.py",
                    cwd=folder).out == b"hello\n"
    assert list((folder / "d").iterdir()) == []


def test_what_a_volume_shows_is_named_as_it_is_inside(boxes):
    folder = work(boxes)
    script(folder / "hello.py", "print('hello')\n")
    for word in ("hello.py", folder / "hello.py"):
        done = boxes.cay("run", "-v", ".:/src", "--", "python3", word, cwd=folder)
        assert b"inside the sandbox it is /src/hello.py; use that path" in done.err


def test_a_link_that_is_shown_needs_only_what_it_leads_to(boxes, home):
    script(home / ".tool" / "bin" / "prog", "#!/bin/sh\necho prog\n")
    folder = work(boxes)
    (folder / "prog").symlink_to(home / ".tool" / "bin" / "prog")
    given = ("-v", ".:/src", "-w", "/src")
    env = {"HOME": str(home)}
    done = boxes.cay("run", *given, "--", "./prog", cwd=folder, env=env)
    assert advice(done) == ["-v", f"{home}/.tool:{home}/.tool:ro"]
    assert boxes.ok("run", *given, *advice(done), "--", "./prog", cwd=folder).out == b"prog\n"


@pytest.fixture(name="in_place")
def fixture_in_place(boxes):
    """A directory that everybody may enter, and the level that shows things where they are."""
    folder = Path(tempfile.mkdtemp(prefix="cay-test-"))
    folder.chmod(0o755)
    (boxes.folder / "landlock.yaml").write_text("type: native\nlevel: landlock\n")
    words = ("run", "-q", "--config", boxes.folder / "landlock.yaml")
    if boxes.cay(*words, "--", "true").status != 0:
        pytest.skip("this machine has no landlock")
    yield folder, words
    shutil.rmtree(folder)


def test_where_there_are_no_mounts_things_are_shown_where_they_are(boxes, in_place):
    folder, words = in_place
    script(folder / "hello", "#!/bin/sh\necho hello\n")
    for command in (("./hello",), ("sh", "hello"), ("sh", folder / "hello")):
        done = boxes.cay(*words, "--", *command, cwd=folder)
        assert advice(done) == ["-v", f"{folder}:{folder}", "-w", str(folder)]
        assert boxes.ok(*words, *advice(done), "--", *command, cwd=folder).out == b"hello\n"
    done = boxes.cay(*words, "--", "./hello", cwd=folder, env={"HOME": str(folder)})
    assert advice(done) == ["-v", f"{folder}/hello:{folder}/hello:ro"]
    assert boxes.ok(*words, *advice(done), "--", folder / "hello").out == b"hello\n"


def test_what_would_stay_out_of_reach_is_not_proposed(boxes, in_place):
    folder, words = in_place
    script(folder / "private" / "hello", "#!/bin/sh\necho hello\n")
    (folder / "private").chmod(0o700)
    done = boxes.cay(*words, "--", "./hello", cwd=folder / "private")
    assert done.status == 127 and advice(done) == []


def test_a_file_whose_directory_is_inside(boxes):
    log = Path("/var/log/dpkg.log")
    if not log.exists():
        pytest.skip("this machine has no such file")
    done = boxes.cay("run", "--", "test", "-f", log)
    assert advice(done) == ["-v", f"{log}:{log}:ro"]
    boxes.ok("run", *advice(done), "--", "test", "-f", log)


def test_what_no_shell_takes_for_one_word_is_not_proposed(boxes, home):
    prog = script(home / "my tools" / "prog", "#!/bin/sh\necho prog\n")
    done = boxes.cay("run", "--", prog, cwd=work(boxes), env={"HOME": str(home)})
    assert done.status == 127 and b"(the host has it, the sandbox does not)" in done.err


def test_a_template_is_spoken_of_where_there_is_one(boxes):
    folder = work(boxes)
    line = boxes.fails(127, "run", "-v", f"{folder}:/usr", "--", "true")
    assert "the host has it, the sandbox does not" in line and "template" not in line
    for name in ("bin", "etc", "tmp", "proc", "dev"):
        (folder / name).mkdir()
    words = ("run", "--template", folder)
    line = boxes.fails(127, *words, "--", "true")
    assert "add --template host" in line
    boxes.ok(*words, "--template", "host", "--", "true")


def test_a_directory_is_no_program(boxes):
    line = boxes.fails(126, "run", "--", "/tmp")
    assert "it is a directory" in line and "chmod" not in line


def test_a_command_without_a_name_makes_no_sandbox(boxes, box):
    for words in (("run",), ("run", "-m", "1"), ("exec", box)):
        assert "invalid: COMMAND: the command is empty" in boxes.fails(125, *words, "--", "")


def test_a_command_that_is_not_started_is_told_like_any_error(boxes, box):
    for words in (("run",), ("exec", box)):
        assert boxes.fails(127, *words, "--", "no-such").startswith(
            "cay: exec-failed: no-such: No such file or directory (")


def test_a_limit_that_is_too_small_is_named(boxes):
    for option, name in (("-m", "memory"), ("--disk", "disk")):
        assert boxes.fails(125, "run", option, "4K", "--", "true").startswith(
            f"cay: invalid: {name}: the limit is too small for a sandbox")
        boxes.ok("run", option, "1M", "--", "true")


def test_a_signal_for_what_has_ended_names_it(boxes, box):
    boxes.ok("exec", "-d", "--tag", "web", box, "--", "echo", "written")
    assert boxes.ok("logs", "-f", box, "web").out == b"written\n"
    line = boxes.fails(4, "kill", "-s", "TERM", box, "web")
    assert line.startswith("cay: not-found: web: the command has ended") and "wait" not in line
    assert boxes.ok("logs", box, "web").out == b"written\n"


def test_the_help_tells_where_a_command_starts(boxes):
    for command, where in (("run", "home"), ("exec", "the sandbox's"),
                           ("shell", "the sandbox's")):
        assert where in re.search(r"-w, --workdir DIR(.*)", boxes.ok(command, "--help").text)[1]


def test_what_a_script_inside_calls_its_interpreter_is_shown_only_if_it_is_a_program(boxes, box, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s")
    boxes.ok("exec", box, "--", "sh", "-c", f"echo '#!{secret}' > s && chmod +x s")
    told = boxes.cay("exec", box, "--", "./s").err
    assert b"write another interpreter" in told and b"-v" not in told
    secret.chmod(0o755)
    assert b"-v" in boxes.cay("exec", box, "--", "./s").err


@pytest.mark.skipif(os.geteuid() != 0, reason="there is only one user inside")
def test_a_user_who_is_gone_gets_no_hint_and_the_status_is_the_commands(boxes):
    box = boxes.create()
    folder = work(boxes)
    (folder / "data").write_text("x")
    boxes.ok("exec", "-u", "root", box, "--", "sh", "-c",
             "echo worker:x:1001:1001::/tmp:/bin/sh >> /etc/passwd; chmod 666 /etc/passwd")
    done = boxes.cay("exec", "-u", "worker", box, "--", "sh", "-c",
                     "grep -v worker /etc/passwd > /tmp/p; cat /tmp/p > /etc/passwd; exit 3",
                     "sh", folder / "data", cwd=folder)
    assert (done.status, done.out) == (3, b"")
