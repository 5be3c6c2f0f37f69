# SPDX-License-Identifier: Apache-2.0
"""cay code and cay context: code in interpreters that keep their variables."""

import base64
import os
import re
import shutil
import signal
import subprocess

import pytest
from conftest import CAY, PATIENCE, ROOT
from sandboxes import wait_until


@pytest.fixture(name="box")
def fixture_box(boxes):
    return boxes.create()


def test_code_keeps_its_variables_in_the_default_context(boxes, box):
    assert boxes.ok("code", box, "-c", "x = 40").out == b""
    assert boxes.ok("code", box, "-c", "print('hello')\nx + 2").text == "hello\n42\n"
    assert boxes.ok("code", "-l", "bash", box, "-c", "y=5; echo $y").text == "5\n"
    assert boxes.ok("code", "-l", "bash", box, "-c", "echo $y").text == "5\n"


def test_code_comes_from_a_file_or_standard_input(boxes, box, tmp_path):
    (tmp_path / "script.py").write_text("6 * 7\n")
    assert boxes.ok("code", box, str(tmp_path / "script.py")).text == "42\n"
    done = subprocess.run([CAY, "code", box, "-"], input=b"1 + 1", capture_output=True,
                          timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"2\n", b"")


def test_an_error_has_its_traceback_on_standard_error_and_exit_status_1(boxes, box):
    done = boxes.cay("code", box, "-c", "print('before')\n1 / 0")
    assert (done.status, done.out) == (1, b"before\n")
    assert done.err.decode().startswith("Traceback") and "line 2" in done.err.decode()
    assert done.err.decode().endswith("ZeroDivisionError: division by zero\n")


def test_new_creates_a_sandbox_for_the_code_alone(boxes):
    done = boxes.ok("code", "--new", "-e", "COLOR=blue", "-c",
                    "import os, socket; print(os.environ['COLOR'], socket.gethostname())")
    color, sandbox = done.text.split()
    assert color == "blue" and sandbox.startswith("sb-")
    assert sandbox not in boxes.ok("ls", "-q").text


def test_a_timeout_interrupts_and_keeps_the_variables(boxes, box):
    done = boxes.cay("code", box, "--timeout", "300ms", "-c", "x = 7\nwhile True: pass")
    assert done.status == 124 and b"KeyboardInterrupt" in done.err and b"--timeout" in done.err
    assert boxes.ok("code", box, "-c", "x").text == "7\n"


@pytest.mark.parametrize("language, begin, loop, read, kept", [
    ("bash", "x=7", "while :; do sleep 0.01; done", "echo $x", "7\n"),
    ("javascript", "var x = 7", "for (;;) {}", "x", "7\n"),
])
def test_every_language_can_be_interrupted(boxes, box, language, begin, loop, read, kept):
    if language == "javascript" and not shutil.which("node"):
        pytest.skip("needs node")
    words = ["code", "-l", language, box]
    boxes.ok(*words, "-c", begin)
    done = boxes.cay(*words, "--timeout", "500ms", "-c", loop)
    assert done.status == 124 and b"ContextRestarting" not in done.err
    assert boxes.ok(*words, "-c", read).text == kept


def test_the_end_of_the_command_interrupts_the_code(boxes, box):
    with subprocess.Popen([CAY, "code", box, "-c", "x = 1\nprint('started')\nwhile True: pass"],
                          stdout=subprocess.PIPE) as command:
        assert command.stdout.readline() == b"started\n"
        command.send_signal(signal.SIGINT)
        assert command.wait(PATIENCE) == -signal.SIGINT
    assert boxes.ok("code", box, "-c", "x").text == "1\n"


def test_a_crash_is_an_error_and_the_next_call_has_a_note(boxes, box):
    done = boxes.cay("code", box, "-c", "import os; os._exit(3)")
    assert done.status == 1
    assert done.err.decode().startswith("ContextRestarting: the interpreter exited with status 3")
    done = boxes.cay("code", box, "-c", "1")
    assert (done.status, done.out) == (0, b"1\n")
    assert b"cay: note: new interpreter: the interpreter exited with status 3" in done.err


PICTURE = """
import base64
import os
class Picture:
    def _repr_png_(self): return base64.b64decode('aGVsbG8=')
    def __repr__(self): return 'a picture'
Picture()
"""


def test_a_picture_is_named_or_saved(boxes, box, tmp_path):
    assert boxes.ok("code", box, "-c", PICTURE).text == "[image/png, 5 B]\n"
    path = tmp_path / "1.png"
    assert boxes.ok("code", box, "--save", str(tmp_path), "-c", PICTURE).text == f"[image/png: {path}]\n"
    assert path.read_bytes() == b"hello"
    done = boxes.cay("code", box, "--save", str(tmp_path / "none"), "-c", PICTURE)
    assert done.status == 4 and b"not-found" in done.err


def test_json_has_everything_of_an_execution(boxes, box):
    done = boxes.ok("code", box, "-o", "json", "-c", "print('out')\nimport sys\n"
                    "print('err', file=sys.stderr)\n" + PICTURE).json
    assert done["status"] == "success" and done["language"] == "python" and done["count"] == 1
    assert (done["stdout"], done["stderr"]) == ("out\n", "err\n")
    assert done["results"][0]["is_main"] is True
    assert base64.b64decode(done["results"][0]["data"]["image/png"]) == b"hello"
    assert done["results"][0]["data"]["text/plain"] == "a picture"
    assert done["error"] is None and done["restarted"] is None
    failed = boxes.cay("code", box, "-o", "json", "-c", "nothing")
    assert failed.status == 1 and failed.json["error"]["name"] == "NameError"


def test_contexts_are_created_listed_restarted_and_removed(boxes, box):
    boxes.ok("code", box, "-c", "x = 1")
    context = boxes.ok("context", "create", box, "-w", "/tmp", "-e", "A=7").text.strip()
    assert boxes.ok("code", "--context", context, box, "-c",
                    "import os; print(os.getcwd(), os.environ['A'], 'x' in dir())").text == "/tmp 7 False\n"
    listed = boxes.ok("context", "ls", box, "-o", "json").json["contexts"]
    assert [(one["default"], one["cwd"], one["busy"]) for one in listed] == [
        (True, "", False), (False, "/tmp", False)]
    assert boxes.ok("context", "ls", "-q", box).text.splitlines()[1] == context
    boxes.ok("code", "--context", context, box, "-c", "y = 1")
    boxes.ok("context", "restart", box, context)
    assert b"NameError" in boxes.cay("code", "--context", context, box, "-c", "y").err
    boxes.ok("context", "rm", box, context)
    done = boxes.cay("context", "rm", box, context)
    assert done.status == 4 and "no such context" in done.line


def test_a_context_is_interrupted(boxes, box):
    boxes.ok("code", box, "-c", "x = 5")
    context = boxes.ok("context", "ls", "-q", box).text.strip()
    with subprocess.Popen([CAY, "code", box, "-c", "while True: pass"], stderr=subprocess.PIPE) as command:
        wait_until(lambda: boxes.ok("context", "ls", box, "-o", "json").json["contexts"][0]["busy"],
                   "the code runs")
        boxes.ok("context", "interrupt", box, context)
        assert b"KeyboardInterrupt" in command.stderr.read()
        assert command.wait(PATIENCE) == 1
    assert boxes.ok("code", box, "-c", "x").text == "5\n"


def test_a_language_without_contexts_runs_in_a_fresh_interpreter(boxes, box):
    assert boxes.ok("code", "-l", "perl", box, "-c", 'print "6\\n"').text == "6\n"
    assert boxes.cay("code", "-l", "perl", box, "-c", "exit 3").status == 1


def test_a_language_that_the_sandbox_lacks_is_named(boxes, box):
    programs = {"lua": ("lua", "lua5.4", "lua5.3"), "php": ("php",), "ruby": ("ruby",)}
    lacking = [name for name, some in programs.items() if not any(map(shutil.which, some))]
    for language in lacking:
        told = boxes.fails(12, "code", "-l", language, box, "-c", "1")
        assert f"{language}: the sandbox has no program for this language" in told
        assert "have the programs of this machine: install it here or inside" in told


@pytest.mark.parametrize("words, message", [
    (["code", "--new", "-l", "pyhton", "-c", "1"], "did you mean python? this sandbox has: "),
    (["code", "--new", "-l", "cobol", "-c", "1"], "cobol: unknown language (this sandbox has: "),
    (["code", "--new"], "an argument is missing"),
    (["code", "x", "y", "-c", "1"], "too many arguments"),
    (["code", "--new", "--context", "c", "-c", "1"], "a new sandbox has no contexts"),
    (["code", "x", "--context", "c", "-l", "bash", "-c", "1"], "leave out --language"),
    (["code", "--new", "/no/such/file"], "/no/such/file"),
    (["code", "--new", "/usr"], "this is a directory"),
    (["code", "--new", "-u", "nobody-here", "-c", "1"], "nobody-here"),
    (["code", "sb-aaaaaaaaaaaaaaaa", "-c", "1"], "sb-aaaaaaaaaaaaaaaa"),
    (["context", "create", "BOX", "-w", "/no/where"], "/no/where"),
    (["context", "restart", "BOX", "ctx-none"], "no such context"),
])
def test_a_wrong_call_is_an_error_that_helps(boxes, words, message):
    words = [boxes.create() if word == "BOX" else word for word in words]
    done = boxes.cay(*words)
    assert done.status not in (0, 1) and message in done.line


def test_logs_and_lists_of_commands_leave_the_service_out(boxes, box):
    boxes.ok("code", box, "-c", "1")
    boxes.ok("exec", "-d", box, "--", "echo", "mine")
    wait_until(lambda: boxes.ok("logs", box).text == "mine\n", "the output")
    names = [one["command"] for one in boxes.ok("ps", box, "-o", "json").json["processes"]]
    assert any(name.startswith("cay-code") for name in names)
    assert any(name.startswith("python3") for name in names)


def test_the_examples_of_the_manual_work(tmp_path):
    (tmp_path / "cay").symlink_to(os.path.abspath(CAY))
    text = (ROOT / "docs" / "cay-code.1.scd").read_text()
    blocks = re.findall(r"```\n(.*?)```", text, re.S)
    assert len(blocks) == 4
    for block in blocks:
        script = "".join(line[2:] for line in block.splitlines(True) if line.startswith("$ "))
        done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True,
                              timeout=PATIENCE, check=False,
                              env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin",
                                   "CAY_HOME": str(tmp_path / "home")})
        expected = "".join(line for line in block.splitlines(True) if not line.startswith("$ "))
        assert (done.stdout, done.stderr) == (expected, "")


@pytest.mark.skipif(not os.path.exists("/etc/matplotlibrc"), reason="needs python3-matplotlib")
def test_a_matplotlib_figure_is_a_picture(boxes, box, tmp_path):
    done = boxes.cay("code", box, "--save", str(tmp_path), "-c",
                     "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert done.status == 0 and (tmp_path / "1.png").read_bytes().startswith(b"\x89PNG")
