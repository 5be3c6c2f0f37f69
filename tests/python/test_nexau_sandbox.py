# SPDX-License-Identifier: Apache-2.0
"""What agents do with a sandbox of libcay's backends: commands, code, files, transfers."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import worlds
from conftest import unavailable
from worlds import World

from cay.nexau import (
    BASH_TOOL_RESULTS_BASE_PATH,
    AgentConfig,
    CodeLanguage,
    CommandResult,
    E2BSandbox,
    LocalSandbox,
    NativeSandbox,
    SandboxError,
    SandboxExecutionError,
    SandboxFileError,
    SandboxNotFoundError,
    SandboxStatus,
    SandboxTimeoutError,
    UserNotFoundError,
)
from cay.sandbox import SandboxBusyError

SUCCESS, ERROR = SandboxStatus.SUCCESS, SandboxStatus.ERROR
TIMEOUT, RUNNING = SandboxStatus.TIMEOUT, SandboxStatus.RUNNING

HARD_NAMES = ["a b", "it's", 'say "hi"', "-rf", "--help", "new\nline", "$(id)", "ü", "*"]


@pytest.fixture(params=worlds.BUILT_IN)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield from worlds.world_of(request.param, tmp_path)


@pytest.fixture
def native(tmp_path: Path) -> Iterator[World]:
    yield from worlds.world_of("native", tmp_path)


@pytest.fixture
def sandbox(world: World) -> Any:
    return world.start()


def test_whether_something_exists_is_not_known_without_the_sandbox(world: World) -> None:
    sandbox = world.start()
    sandbox.write_file("file", "x")
    for path in ("none", "none/below", "file/below"):
        assert sandbox.file_exists(path) is False
    if world.name in ("native", "serve"):
        sandbox.execute_bash("mkdir closed; chmod 0 closed; ln -s round round")
        for path in ("closed/x", "/root/x", "round", "x" * 300):
            assert sandbox.file_exists(path) is False
    if world.type == "e2b":
        sandbox.pause()
        with pytest.raises(SandboxBusyError):
            sandbox.file_exists("file")
        told = sandbox.download_file("file", "/nowhere/x")
        assert "paused" in str(told.error)
        sandbox.resume()
    other = world.cls.connect(sandbox.sandbox_id, **world.config)
    other.remove()
    with pytest.raises(SandboxError):
        sandbox.file_exists("file")


def test_a_paused_sandbox_stays_so_however_many_look_at_it() -> None:
    sandbox = NativeSandbox.create(ephemeral=True)
    sandbox.pause()
    with sandbox._borrow(), sandbox._borrow():  # as other threads do
        assert sandbox.state() == "paused"
        assert "paused" in str(sandbox.execute_bash("true").error)
    assert sandbox.state() == "paused"
    sandbox.remove()


# --- Commands -----------------------------------------------------------------------------------


def test_a_command_that_works(sandbox: Any) -> None:
    result = sandbox.execute_bash("echo out; echo err >&2")
    assert isinstance(result, CommandResult)
    assert (result.status, result.exit_code, result.error) == (SUCCESS, 0, None)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert result.duration_ms >= 0 and not result.truncated
    assert result.original_stdout_length is None and result.background_pid is None


def test_a_command_that_fails_says_how(sandbox: Any) -> None:
    result = sandbox.execute_bash("echo so far; exit 3")
    assert (result.status, result.exit_code, result.stdout) == (ERROR, 3, "so far\n")
    assert result.error == "Command failed with exit code 3"
    killed = sandbox.execute_bash("kill -9 $$")
    assert (killed.status, killed.exit_code) == (ERROR, -9)


def test_a_command_is_one_for_bash(sandbox: Any) -> None:
    assert sandbox.execute_bash("echo {1..3} $((1<<3))").stdout == "1 2 3 8\n"
    assert sandbox.execute_bash("cat <<'EOF'\n$x\nEOF").stdout == "$x\n"
    assert sandbox.execute_bash("cat").stdout == ""  # there is no input


def test_times_are_milliseconds(sandbox: Any) -> None:
    for limit in (500, 5000, 50000):
        late = sandbox.execute_bash("echo so far; sleep 1000", timeout=limit)
        assert late.status == TIMEOUT and late.exit_code != 0
        assert str(limit) in str(late.error) and "ms" in str(late.error)
        if late.stdout:  # else the machine is too slow for that
            break
    assert late.stdout == "so far\n"


def test_a_timeout_of_nothing_is_over_at_once(sandbox: Any) -> None:
    started = time.monotonic()
    assert sandbox.execute_bash("sleep 1000", timeout=0).status == TIMEOUT
    assert time.monotonic() - started < 60
    assert sandbox.execute_code("while True: pass", "python", timeout=0).status == TIMEOUT


def test_a_negative_timeout_is_refused(sandbox: Any) -> None:
    result = sandbox.execute_bash("true", timeout=-1)
    assert result.status == ERROR and "-1" in str(result.error)


def test_a_timeout_ends_the_whole_tree(sandbox: Any) -> None:
    sandbox.execute_bash("setsid sleep 76543210 & sleep 1000", timeout=500)
    assert sandbox.execute_bash("pgrep -f '^sleep 76543210'").stdout == ""


def test_it_waits_for_the_shell_and_no_more(sandbox: Any) -> None:
    started = time.monotonic()
    assert sandbox.execute_bash("sleep 300 & echo x").stdout == "x\n"
    assert time.monotonic() - started < 200


def test_the_directory_and_the_variables_of_a_call(sandbox: Any) -> None:
    sandbox.create_directory("sub dir")
    # What stands in for E2B shows its real directories.
    assert sandbox.execute_bash("pwd").stdout.endswith(f"{sandbox.work_dir}\n")
    told = sandbox.execute_bash("pwd", cwd="sub dir")
    assert told.stdout.endswith(f"{sandbox.work_dir}/sub dir\n")
    assert sandbox.execute_bash("pwd", cwd="/usr").stdout == "/usr\n"
    sandbox.envs = {"A": "1", "B": "two words"}
    told = sandbox.execute_bash('echo "$A,$B,$C"', envs={"A": "0", "C": "$x"})
    assert told.stdout == "0,two words,$x\n"


def test_what_cannot_be_run_is_a_result(sandbox: Any) -> None:
    result = sandbox.execute_bash("true", cwd="/no/such/directory")
    assert (result.status, result.exit_code, result.stdout) == (ERROR, -1, "")
    assert result.error.startswith("Execution failed: ")
    assert result.output_dir is None
    assert sandbox.execute_bash("true\0").status == ERROR
    assert sandbox.execute_bash("true", envs={"A=B": "x"}).status == ERROR


def test_an_unknown_user_is_a_value_error(sandbox: Any) -> None:
    """Section 6 of issue 15, as NexAU's E2BSandbox."""
    user = "nobody-of-that-name"
    with pytest.raises(ValueError, match=user) as caught:
        sandbox.execute_bash("true", user=user)
    assert isinstance(caught.value, UserNotFoundError)
    with pytest.raises(ValueError, match=user):
        sandbox.execute_shell("true", user=user, background=True)
    assert sandbox.execute_bash("exit 3", user="root").exit_code == 3


def test_bytes_that_are_no_text_are_not_lost(sandbox: Any) -> None:
    sandbox.clean_output = False
    result = sandbox.execute_bash(r"printf 'a\xffb'; printf '\xfe' >&2")
    assert result.stdout == "a\ufffdb"
    assert (result.stdout_bytes, result.stderr_bytes) == (b"a\xffb", b"\xfe")


def test_more_than_fits_is_kept_inside(sandbox: Any) -> None:
    sandbox.clean_output = False
    result = sandbox.execute_bash("head -c 11000000 /dev/zero | tr '\\0' x; echo end")
    assert result.truncated and result.original_stdout_length == 11000004
    assert result.stdout.endswith("xend\n") and len(result.stdout) < 11000004
    whole = sandbox.get_file_info(result.stdout_file)
    assert whole.size == 11000004 and result.stdout_file.startswith(result.output_dir)


def test_output_is_cleaned_and_all_of_it_is_an_option(sandbox: Any) -> None:
    written = "\x1b[31mred\x1b[0m\r\nold\rnew\n" + "same\n" * 6
    sandbox.write_file("noise", written)
    clean = sandbox.execute_bash("cat noise")
    assert clean.stdout == ("red\nnew\nsame\n... [4 similar lines collapsed]\nsame\n")
    raw = sandbox.read_file(clean.stdout_file, binary=True)
    assert raw.content == written.encode()
    sandbox.clean_output = False
    assert sandbox.execute_bash("cat noise").stdout == written


def test_long_output_is_cut_by_default(sandbox: Any) -> None:
    """Section 6 of issue 15: 10,000 characters, as in NexAU."""
    result = sandbox.execute_bash("seq -s ' ' 1 10000")
    assert result.truncated and result.original_stdout_length == 48894
    assert "38,894 characters omitted" in result.stdout
    assert result.stdout_file in result.stdout and len(result.stdout) < 10_300
    sandbox.clean_output = False
    result = sandbox.execute_bash("seq -s ' ' 1 10000")
    assert len(result.stdout) == 48894 and not result.truncated


def test_files_of_a_command_are_named_in_its_result(sandbox: Any) -> None:
    """Section 6 of issue 15: they were None for commands in the foreground."""
    command = "echo out; echo error >&2; exit 3"
    result = sandbox.execute_bash(command)
    assert result.stdout_file == f"{result.output_dir}/stdout.txt"
    assert sandbox.read_file(result.stdout_file).content == "out\n"
    assert sandbox.read_file(result.stderr_file).content == "error\n"
    assert sandbox.read_file(f"{result.output_dir}/command.txt").content == command
    task = sandbox.execute_bash(command, background=True)
    assert sandbox.read_file(f"{task.output_dir}/command.txt").content == command
    late = sandbox.execute_bash("echo soon; sleep 60", timeout=1500)
    assert late.status == SandboxStatus.TIMEOUT
    assert sandbox.read_file(late.stdout_file).content == "soon\n"


def test_the_base_of_the_files_is_exported(native: World) -> None:
    assert BASH_TOOL_RESULTS_BASE_PATH == "/tmp/cay-results"
    sandbox = native.start()
    path = sandbox.execute_bash("true").output_dir
    assert path.startswith(BASH_TOOL_RESULTS_BASE_PATH)
    assert sandbox.get_bash_tool_results_base_path() == BASH_TOOL_RESULTS_BASE_PATH


def test_long_output_is_cut_in_its_middle_if_asked(sandbox: Any) -> None:
    sandbox.clean_output = True
    sandbox.truncate_head_chars, sandbox.truncate_tail_chars = 10, 10
    sandbox.output_char_threshold = 100
    result = sandbox.execute_bash("seq -s ' ' 1 1000")
    assert result.truncated and result.original_stdout_length == 3893
    assert result.stdout.startswith("1 2 3 4 5 ") and result.stdout.endswith("1000\n")
    assert "3,873 characters omitted" in result.stdout
    assert result.stdout_file in result.stdout
    assert sandbox.execute_bash("seq 1 3").truncated is False


def test_control_c_is_not_kept_waiting(world: World) -> None:
    program = (
        "import sys, cay.nexau\n"
        "cls = getattr(cay.nexau, sys.argv[1])\n"
        "sandbox = cls.connect(sys.argv[2], **eval(sys.argv[3]))\n"
        "sandbox.execute_bash('touch started; sleep 76543210', timeout=3_600_000)\n"
    )
    sandbox = world.start()
    arguments = [world.cls.__name__, sandbox.sandbox_id, str(world.config)]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not sandbox.file_exists("started"):
        assert time.monotonic() < deadline and process.poll() is None
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode != 0 and "KeyboardInterrupt" in said
    # What an E2B service does with a command whose client is gone is up to that.
    find = "pgrep -f '^sleep 76543210'"
    while world.type != "e2b" and sandbox.execute_bash(find).stdout:
        assert time.monotonic() < deadline


# --- Commands in the background -------------------------------------------------------------------


def wait_for(sandbox: Any, pid: int, what: str) -> Any:
    """Until the task has written that, or has ended."""
    deadline = time.monotonic() + 60
    while True:
        result = sandbox.get_background_task_status(pid)
        if what in result.stdout or result.status != RUNNING:
            return result
        assert time.monotonic() < deadline


def test_a_command_in_the_background_is_known_by_its_pid(sandbox: Any) -> None:
    started = sandbox.execute_bash("echo on; sleep 1000", background=True)
    pid = started.background_pid
    assert (started.status, started.exit_code) == (SUCCESS, 0)
    assert f"Background task started (pid: {pid})" in started.stdout
    running = wait_for(sandbox, pid, "on\n")
    assert (running.status, running.exit_code, running.stdout) == (RUNNING, -1, "on\n")
    assert sandbox.list_background_tasks()[pid]["command"] == "echo on; sleep 1000"

    killed = sandbox.kill_background_task(pid)
    assert (killed.status, killed.exit_code) == (SUCCESS, 0)
    assert killed.stdout == f"Background task (pid={pid}) killed successfully"
    assert sandbox.get_background_task_status(pid).status != RUNNING


def test_a_command_in_the_background_that_ended_is_still_known(sandbox: Any) -> None:
    good = sandbox.execute_bash("echo good", background=True).background_pid
    bad = sandbox.execute_bash("echo bad >&2; exit 4", background=True).background_pid
    told = wait_for(sandbox, good, "nothing of that")
    assert (told.status, told.exit_code, told.stdout) == (SUCCESS, 0, "good\n")
    again = sandbox.get_background_task_status(good)
    assert (again.status, again.stdout) == (SUCCESS, "good\n")
    told = wait_for(sandbox, bad, "nothing of that")
    assert (told.status, told.exit_code, told.stderr) == (ERROR, 4, "bad\n")


def test_a_task_that_nobody_knows_is_an_error(sandbox: Any) -> None:
    for call in (sandbox.get_background_task_status, sandbox.kill_background_task):
        result = call(999999)
        assert (result.status, result.exit_code) == (ERROR, -1)
        assert result.error == result.stderr == "Background task not found: pid=999999"


def test_a_task_outlives_the_program_that_started_it(
    world: World, tmp_path: Path
) -> None:
    program = (
        "import sys, cay.nexau\n"
        "cls = getattr(cay.nexau, sys.argv[1])\n"
        "sandbox = cls.create(**eval(sys.argv[2]))\n"
        "sandbox.write_file('a', 'b')\n"
        "done = sandbox.execute_bash('echo on; sleep 1000', background=True)\n"
        "print(sandbox.sandbox_id, done.background_pid, flush=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run(
        [sys.executable, "-c", program, world.cls.__name__, str(world.config)],
        stdout=subprocess.PIPE,
        text=True,
    )
    id, pid = died.stdout.split()
    world.ids.add(id)
    sandbox = world.cls.connect(id, **world.config)
    assert sandbox.read_file("a").content == "b"
    assert int(pid) in sandbox.list_background_tasks()
    assert wait_for(sandbox, int(pid), "on").status == RUNNING
    assert sandbox.kill_background_task(int(pid)).status == SUCCESS


# --- Code -----------------------------------------------------------------------------------------


def test_code_is_run_by_a_fresh_interpreter(sandbox: Any) -> None:
    result = sandbox.execute_code(
        "import sys; print(6*7); print(1, file=sys.stderr)", CodeLanguage.PYTHON
    )
    assert (result.status, result.language) == (SUCCESS, CodeLanguage.PYTHON)
    assert result.outputs == [
        {"type": "stdout", "text": "42\n"},
        {"type": "stderr", "text": "1\n"},
    ]
    assert sandbox.execute_code("x = 1", "Python").outputs == []
    assert sandbox.execute_code("print(x)", "python").status == ERROR
    assert sandbox.execute_code("echo $((6*7))", "bash").outputs[0]["text"] == "42\n"


def test_code_that_fails_says_how(sandbox: Any) -> None:
    result = sandbox.execute_code("raise KeyError('k')", "python")
    assert (result.status, result.error_type) == (ERROR, "ExecutionError")
    assert "KeyError: 'k'" in result.traceback[0] and result.error_value


def test_a_language_that_is_not_known_is_a_value_error(sandbox: Any) -> None:
    result = sandbox.execute_code("x", "cobol")
    assert (result.status, result.error_type) == (ERROR, "ValueError")
    assert "Unsupported language: cobol" in result.error_value
    sandbox.raise_errors = True
    with pytest.raises(ValueError, match="cobol") as caught:
        sandbox.execute_code("x", "cobol")
    assert caught.value.result.error_type == "ValueError"  # type: ignore[attr-defined]
    assert isinstance(caught.value, SandboxError)


def test_the_language_is_told_by_its_own_name(sandbox: Any) -> None:
    for name, language in (
        ("shell", CodeLanguage.SH),
        ("Py", CodeLanguage.PYTHON),
        ("js", CodeLanguage.JAVASCRIPT),
        ("cobol", CodeLanguage.PYTHON),
    ):
        assert sandbox.execute_code("", name).language == language


def test_every_byte_that_code_writes_can_be_had(sandbox: Any) -> None:
    code = "import sys; sys.stdout.buffer.write(b'\\xff'); sys.stderr.write('err')"
    sandbox.clean_output = False
    result = sandbox.execute_code(code, "python")
    assert result.outputs[0] == {"type": "stdout", "text": "\ufffd"}
    assert (result.stdout_bytes, result.stderr_bytes) == (b"\xff", b"err")
    sandbox.clean_output, sandbox.output_char_threshold = True, 100
    sandbox.truncate_head_chars = sandbox.truncate_tail_chars = 10
    result = sandbox.execute_code("print(*range(1000))", "python")
    assert result.truncated and result.stdout_file.startswith(result.output_dir)
    whole = sandbox.read_file(result.stdout_file).content
    assert whole == " ".join(map(str, range(1000))) + "\n"
    assert len(result.stdout_bytes) < len(whole) and result.stderr_file


def test_code_leaves_nothing_in_the_working_directory(sandbox: Any) -> None:
    assert sandbox.execute_code("print(1)", "python").status == SUCCESS
    assert sandbox.glob("*") == []


def test_code_has_variables_and_a_time(sandbox: Any) -> None:
    code = "import os; print(os.environ['A'])"
    assert (
        sandbox.execute_code(code, "python", envs={"A": "b"}).outputs[0]["text"] == "b\n"
    )
    late = sandbox.execute_code("import time; time.sleep(1000)", "python", timeout=700)
    assert late.status == TIMEOUT


STATEFUL = ["native", "local"]


@pytest.fixture(params=STATEFUL)
def stateful(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Backends that have code contexts."""
    yield from worlds.world_of(request.param, tmp_path)


def test_code_keeps_its_variables_where_that_is_requested(stateful: World) -> None:
    sandbox = stateful.start()
    set_x = sandbox.execute_code("x = 40; print('set')", "python", keep_state=True)
    assert (set_x.status, set_x.outputs) == (SUCCESS, [{"type": "stdout", "text": "set\n"}])
    again = copy.deepcopy(sandbox)
    result = again.execute_code("x + 2", CodeLanguage.PYTHON, keep_state=True)
    assert result.outputs[0]["text"] == "42" and result.outputs[0]["type"] == "result"
    assert (result.language, result.error_type) == (CodeLanguage.PYTHON, None)
    assert sandbox.execute_code("print(x)", "python").status == ERROR
    code = "class P:\n    def _repr_png_(self): return b'png'\nP()"
    picture = sandbox.execute_code(code, "python", keep_state=True).outputs[0]
    assert picture["parts"]["image/png"] == "cG5n" and json.dumps(picture)


def test_code_in_a_kept_interpreter_fails_with_its_own_exception(stateful: World) -> None:
    sandbox = stateful.start()
    result = sandbox.execute_code("raise KeyError('k')", "python", keep_state=True)
    assert (result.status, result.error_type, result.error_value) == (ERROR, "KeyError", "'k'")
    assert "line 1" in result.traceback[0]
    late = sandbox.execute_code("y = 1\nwhile True: pass", "python", 300, keep_state=True)
    assert (late.status, late.error_type) == (TIMEOUT, "KeyboardInterrupt")
    once = {"keep_state": True, "envs": {"A": "b"}}
    assert sandbox.execute_code("y", "python", **once).outputs[0]["text"] == "1"
    code = "import os; print(os.environ['A'])"
    assert sandbox.execute_code(code, "python", **once).outputs[0]["text"] == "b\n"
    long = sandbox.execute_code("print(*range(10_000))", "python", keep_state=True)
    assert long.truncated and "characters omitted" in long.outputs[0]["text"]
    perl = sandbox.execute_code("1", "perl", keep_state=True)
    assert perl.status == ERROR and "languages with contexts: python" in perl.error_value
    sandbox.raise_errors = True
    with pytest.raises(SandboxError, match="division by zero"):
        sandbox.execute_code("1 / 0", "python", keep_state=True)


@pytest.mark.parametrize(
    "world", [name for name in worlds.BUILT_IN if name not in STATEFUL], indirect=True
)
def test_a_backend_without_contexts_keeps_no_state(world: World) -> None:
    result = world.start().execute_code("1", "python", keep_state=True)
    assert result.status == ERROR and "no code contexts" in result.error_value


# --- Files ----------------------------------------------------------------------------------------


def test_what_is_missing_is_the_directory(sandbox: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    sandbox.write_file("a", "a")
    missing, local = "Directory does not exist: no", f"{tmp_path}/no"
    options = {"create_directories": False}
    assert sandbox.write_file("no/x", "x", **options).error == missing
    assert sandbox.upload_file(f"{tmp_path}/a", "no/x", **options).error == missing
    told = sandbox.download_file("a", f"{local}/x", **options)
    assert told.error == f"Directory does not exist: {local}"
    for path in ("no/x", "no/x/", Path("no/x")):
        with pytest.raises(
            SandboxFileError, match=f"^Failed to create directory: {missing}$"
        ):
            sandbox.create_directory(path, parents=False)
    # Section 6 of issue 15: exceptions with these texts, as NexAU's own.
    with pytest.raises(SandboxFileError, match=f"^Failed to list files: {missing}$"):
        sandbox.list_files("no")
    with pytest.raises(
        SandboxFileError, match=f"^Failed to upload directory: .*not exist: {local}$"
    ):
        sandbox.upload_directory(local, "x")
    info = sandbox.get_file_info("no")
    assert (info.exists, info.readable, info.writable) == (False, False, False)
    assert sandbox.create_directory("yes", parents=False)
    for path in ("yes/x", "x", f"{sandbox.work_dir}/y"):
        assert sandbox.write_file(path, "x", **options).status == SUCCESS


def test_what_a_user_may_not_see_is_not_told_as_missing(
    native: World, tmp_path: Path
) -> None:
    sandbox, options = native.start(), {"create_directories": False}
    sandbox.execute_bash("mkdir -p /root/d; echo a > /root/d/a", user="root")
    assert sandbox.write_file("/root/d/b", "x", **options, user="root").size == 1
    assert sandbox.create_directory("/root/d/e", parents=False, user="root") is True
    assert "denied" in str(sandbox.write_file("/root/d/b", "x", **options).error)
    told = sandbox.download_file("/root/d/a", str(tmp_path / "a"))
    assert "denied" in str(told.error)
    with pytest.raises(SandboxFileError, match="denied"):
        sandbox.create_directory("/root/d/f", parents=False)


def test_a_transfer_that_fails_names_what_is_wrong(sandbox: Any, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_text("a")
    (tmp_path / "dangling").symlink_to("nowhere")
    sandbox.write_file("f", "x")
    sandbox.write_file("in/f", "x")
    told = sandbox.upload_file(f"{tmp_path}/dangling", "x")
    assert told.error == f"Source file does not exist: {tmp_path}/dangling"
    told = sandbox.upload_file(f"{tmp_path}/d", "x")
    assert f": {tmp_path}/d: " in told.error and told.file_path == "x"
    told = sandbox.download_file("in", f"{tmp_path}/x")
    assert ": in: " in told.error and told.file_path == f"{tmp_path}/x"
    with pytest.raises(SandboxFileError, match=r"upload directory: f: "):
        sandbox.upload_directory(f"{tmp_path}/d", "f")
    with pytest.raises(SandboxFileError, match=rf"download directory: {tmp_path}/d/a: "):
        sandbox.download_directory("in", f"{tmp_path}/d/a")
    with pytest.raises(SandboxFileError, match=f"{tmp_path}/none"):
        sandbox.upload_directory(f"{tmp_path}/none", "x")
    with pytest.raises(SandboxFileError, match="not exist: none"):
        sandbox.download_directory("none", f"{tmp_path}/x")


@pytest.mark.parametrize("world", ["native", "local"], indirect=True)
def test_what_is_not_downloaded_is_told(
    sandbox: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.execute_bash("mkdir -p s; mkfifo s/p; ln -s ../../../etc/passwd s/l; echo > s/a")
    assert sandbox.download_directory("s", str(tmp_path / "s")) is True
    assert os.listdir(tmp_path / "s") == ["a"]
    assert f"skipped 2 files below {sandbox.work_dir}/s" in caplog.text
    caplog.clear()
    sandbox.execute_bash("rm s/p s/l")
    assert sandbox.download_directory("s", str(tmp_path / "s")) is True
    assert caplog.text == ""


def test_the_content_of_a_file_is_text_or_bytes(sandbox: Any) -> None:
    for content in ("a\n", b"a\n", bytearray(b"a\n"), memoryview(b"a\n")):
        assert sandbox.write_file("f", content).size == 2
        assert sandbox.read_file("f").content == "a\n"
    for wrong in (7, None, [1, 2], {"a": 1}):
        result = sandbox.write_file("g", wrong)
        assert result.status == ERROR and type(wrong).__name__ in result.error
    assert not sandbox.file_exists("g")
    sandbox.raise_errors = True
    with pytest.raises(ValueError, match="must be str or bytes, not int") as caught:
        sandbox.write_file("g", 7)
    assert isinstance(caught.value, SandboxError)


@pytest.mark.parametrize("name", HARD_NAMES)
def test_every_name_is_a_name(sandbox: Any, name: str, tmp_path: Path) -> None:
    path = f"{name}/{name}"
    assert sandbox.write_file(path, "x").status == SUCCESS
    assert sandbox.read_file(path).content == "x" and sandbox.file_exists(path)
    assert sandbox.get_file_info(path).size == 1
    assert [info.path for info in sandbox.list_files(name)] == [
        f"{sandbox.work_dir}/{path}"
    ]
    assert sandbox.edit_file(path, "x", "y").status == SUCCESS
    assert sandbox.create_directory(f"{name}/{name} 2") is True
    told = sandbox.execute_bash("pwd", cwd=name)
    assert told.stdout.endswith(f"{sandbox.work_dir}/{name}\n")
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / name).write_text("up")
    assert (
        sandbox.upload_file(str(tmp_path / "up" / name), f"{name}/up").status == SUCCESS
    )
    assert sandbox.upload_directory(str(tmp_path / "up"), f"{name}/all") is True
    assert sandbox.read_file(f"{name}/all/{name}").content == "up"
    assert sandbox.download_directory(name, str(tmp_path / name)) is True
    assert (tmp_path / name / name).read_text() == "y"
    assert sandbox.delete_file(name).status == SUCCESS
    assert sandbox.glob("*") == []


def test_bytes_and_encodings(sandbox: Any) -> None:
    assert sandbox.write_file("b", b"\xff\0\n").size == 3
    result = sandbox.read_file("b", binary=True)
    assert (result.content, result.size) == (b"\xff\0\n", 3)
    wrong = sandbox.read_file("b")
    assert (wrong.status, wrong.content) == (ERROR, None) and wrong.error
    assert sandbox.write_file("l", "grün\r\n", encoding="latin-1").size == 6
    assert sandbox.read_file("l", encoding="latin-1").content == "grün\r\n"
    assert sandbox.read_file("l", encoding="no-such").status == ERROR
    assert sandbox.write_file("l", "→", encoding="latin-1").status == ERROR


def test_a_file_that_is_not_there(sandbox: Any) -> None:
    result = sandbox.read_file("none")
    assert (result.status, result.file_path) == (ERROR, "none")
    assert result.error == "File does not exist: none"
    assert sandbox.delete_file("none").error == "File does not exist: none"
    assert sandbox.file_exists("none") is False
    info = sandbox.get_file_info("none")
    assert (info.path, info.exists) == ("none", False)


def test_directories_above_are_made_if_wanted(sandbox: Any) -> None:
    assert sandbox.write_file("a/b/c", "x").status == SUCCESS
    refused = sandbox.write_file("d/e", "x", create_directories=False)
    assert refused.status == ERROR and not sandbox.file_exists("d")
    assert sandbox.create_directory("a/b") is True
    assert sandbox.create_directory("f/g/h") is True
    with pytest.raises(
        SandboxFileError, match="Failed to create directory|does not exist"
    ):
        sandbox.create_directory("i/j", parents=False)
    with pytest.raises(SandboxFileError):
        sandbox.create_directory("a/b/c")


def test_a_directory_is_deleted_with_all_in_it_and_of_a_link_the_link(
    sandbox: Any,
) -> None:
    sandbox.write_file("d/e/f", "x")
    sandbox.execute_bash("ln -s d link; ln -s nowhere dangling")
    assert sandbox.delete_file("link").status == SUCCESS
    assert sandbox.delete_file("dangling").status == SUCCESS
    assert sandbox.file_exists("d/e/f")
    assert sandbox.delete_file("d").status == SUCCESS
    assert not sandbox.file_exists("d")


def test_what_is_known_about_a_file(sandbox: Any) -> None:
    sandbox.write_file("f", "grün\n")
    sandbox.execute_bash("chmod 640 f; touch -d '2026-01-31 23:59:59' f; ln -s f link")
    info = sandbox.get_file_info("f")
    assert dataclasses.replace(info, mode=None, modified_time=None) == type(info)(
        "f",
        exists=True,
        is_file=True,
        size=6,
        permissions="rw-r-----",
        encoding="utf-8",
    )
    assert info.mode == stat.S_IFREG | 0o640
    assert info.modified_time is not None and info.modified_time[10] == " "
    link = sandbox.get_file_info("link")
    assert (link.is_file, link.size) == (True, 6)
    assert link.symlink_target in ("f", "/home/user/f")  # E2B tells where it leads
    sandbox.create_directory("d")
    folder = sandbox.get_file_info("d")
    assert folder.is_directory and not folder.is_file and folder.encoding is None
    assert stat.S_ISDIR(folder.mode)
    sandbox.write_file("bin", b"\0\xff")
    assert sandbox.get_file_info("bin").encoding == "binary"


def test_what_is_in_a_directory(sandbox: Any) -> None:
    for name in ("d/b.py", "d/a.txt", "d/.dot", "d/sub/c.py"):
        sandbox.write_file(name, "x")
    top = f"{sandbox.work_dir}/d"

    def names(**options: Any) -> list[str]:
        return [info.path for info in sandbox.list_files("d", **options)]

    assert names() == [f"{top}/.dot", f"{top}/a.txt", f"{top}/b.py", f"{top}/sub"]
    assert names(recursive=True)[-1] == f"{top}/sub/c.py"
    assert names(pattern="*.py") == [f"{top}/b.py"]
    assert names(recursive=True, pattern="*.py") == [f"{top}/b.py", f"{top}/sub/c.py"]
    info = sandbox.list_files("d", pattern="a.txt")[0]
    assert info.is_file and info.exists and info.size == 1


def test_a_directory_that_cannot_be_listed_raises(sandbox: Any) -> None:
    sandbox.write_file("f", "x")
    for path in ("none", "f"):
        with pytest.raises(SandboxFileError):
            sandbox.list_files(path)


def test_names_are_found_by_patterns(sandbox: Any) -> None:
    for name in ("a.py", "b.txt", "d/c.py", "d/e/f.py", ".hidden.py"):
        sandbox.write_file(name, "x")
    assert sandbox.glob("*.py") == ["a.py"]
    assert sandbox.glob("**/*.py") == ["a.py", "d/c.py", "d/e/f.py"]
    assert sandbox.glob("**/*.py", recursive=False) == ["d/c.py"]
    assert sandbox.glob(f"{sandbox.work_dir}/d/*") == ["d/c.py", "d/e"]
    assert sandbox.glob("none*") == []
    assert "/usr/bin/env" in sandbox.glob("/usr/bin/en?")


def test_an_edit_makes_changes_and_takes_out(sandbox: Any) -> None:
    made = sandbox.edit_file("f", "", "one two\r\nthree\n")
    assert (made.status, made.size) == (SUCCESS, 15)
    assert sandbox.edit_file("f", "two", "2").status == SUCCESS
    assert sandbox.edit_file("f", " 2", "").status == SUCCESS
    assert sandbox.read_file("f").content == "one\r\nthree\n"


def test_an_edit_that_cannot_be_made_says_why(sandbox: Any) -> None:
    sandbox.write_file("f", "one one\n")
    exists = sandbox.edit_file("f", "", "x")
    assert "already exists" in exists.error and "UPDATE" in exists.error
    missing = sandbox.edit_file("none", "a", "b")
    assert "does not exist" in missing.error and "CREATE" in missing.error
    absent = sandbox.edit_file("f", "two", "x")
    assert "String to replace not found in file" in absent.error
    many = sandbox.edit_file("f", "one", "x")
    assert "Found 2 matches" in many.error
    assert sandbox.edit_file("f", "", "").status == ERROR
    for result in (exists, missing, absent, many):
        assert result.status == ERROR
    assert sandbox.read_file("f").content == "one one\n"


def test_an_edit_forgives_escapes_that_were_doubled(sandbox: Any) -> None:
    sandbox.write_file("f", 'print("a\\n")\n')
    assert sandbox.edit_file("f", 'print("a\\\\n")', 'print("b\\\\n")').status == SUCCESS
    assert sandbox.read_file("f").content == 'print("b\\n")\n'


# --- Between here and there -------------------------------------------------------------------------


def test_files_go_in_and_out(sandbox: Any, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"\0" * 3_000_000)
    result = sandbox.upload_file(str(tmp_path / "in"), "x/in")
    assert (result.status, result.file_path, result.size) == (SUCCESS, "x/in", 3_000_000)
    back = sandbox.download_file("x/in", str(tmp_path / "y" / "out"))
    assert (back.status, back.size) == (SUCCESS, 3_000_000)
    assert back.file_path == str(tmp_path / "y" / "out")
    assert (tmp_path / "y" / "out").read_bytes() == b"\0" * 3_000_000


def test_transfers_that_cannot_be_made_say_why(sandbox: Any, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("x")
    missing = sandbox.upload_file(str(tmp_path / "none"), "x")
    assert missing.status == ERROR and "Source file does not exist" in missing.error
    missing = sandbox.download_file("none", str(tmp_path / "x"))
    assert missing.status == ERROR and "Source file does not exist" in missing.error
    for refused in (
        sandbox.upload_file(str(tmp_path / "in"), "d/x", create_directories=False),
        sandbox.download_file("in", str(tmp_path / "d" / "x"), create_directories=False),
    ):
        assert refused.status == ERROR
    assert not (tmp_path / "d").exists()
    with pytest.raises(SandboxFileError):
        sandbox.upload_directory(str(tmp_path / "none"), "x")
    with pytest.raises(SandboxFileError):
        sandbox.download_directory("none", str(tmp_path / "x"))


def test_directories_go_in_and_out_beside_what_is_there(
    world: World, sandbox: Any, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "run.sh").write_text("#!/bin/sh\necho hi\n")
    (source / "sub" / "run.sh").chmod(0o755)
    sandbox.write_file("target/mine", "mine")
    assert sandbox.upload_directory(str(source), "target") is True
    assert sandbox.read_file("target/mine").content == "mine"
    assert sandbox.execute_bash("target/sub/run.sh").stdout == "hi\n"
    assert sandbox.download_directory("target", str(tmp_path / "back")) is True
    assert sorted(path.name for path in (tmp_path / "back").rglob("*")) == [
        "mine",
        "run.sh",
        "sub",
    ]
    assert os.access(tmp_path / "back" / "sub" / "run.sh", os.X_OK)


# --- Asked for by a file -----------------------------------------------------------------------------


def test_a_file_asks_for_clean_output_and_for_exceptions(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "agent.yaml"
    asked = {**world.config, "clean_output": "yes", "raise_errors": True}
    file.write_text(json.dumps({"name": "agent", "sandbox_config": asked}))
    config: Any = AgentConfig.from_yaml(file).sandbox_config
    assert (config.clean_output, config.raise_errors) == (True, True)
    sandbox = world.manager().start(world.session_manager, "u", "s", config)
    world.ids.add(str(sandbox.sandbox_id))
    assert sandbox.execute_bash(r"printf '\033[31mred\033[0m'").stdout == "red"
    with pytest.raises(SandboxExecutionError):
        sandbox.execute_bash("false")
    assert sandbox.config["clean_output"] is True
    sandbox.clean_output = False  # which is what is saved then
    again = type(sandbox)(**sandbox.dict())
    assert (again.clean_output, again.raise_errors) == (False, True)
    assert again.execute_bash(r"printf '\033[31m'").stdout == "\033[31m"


# --- Exceptions instead of results --------------------------------------------------------------------


def test_failures_are_exceptions_if_asked(world: World, tmp_path: Path) -> None:
    sandbox = world.start(raise_errors=True)
    with pytest.raises(SandboxExecutionError, match="exit code 3") as failed:
        sandbox.execute_bash("echo out; exit 3")
    assert failed.value.result.stdout == "out\n"
    with pytest.raises(SandboxTimeoutError) as late:
        sandbox.execute_bash("sleep 1000", timeout=1)
    assert late.value.result.status == TIMEOUT
    with pytest.raises(SandboxError):
        sandbox.execute_bash("true", cwd="/no/such/directory")
    with pytest.raises(ValueError):
        sandbox.execute_bash("true", timeout=-1)
    with pytest.raises(SandboxExecutionError):
        sandbox.execute_code("raise KeyError", "python")
    with pytest.raises(SandboxError):
        sandbox.get_background_task_status(999999)
    for call in (
        lambda: sandbox.read_file("none"),
        lambda: sandbox.delete_file("none"),
        lambda: sandbox.edit_file("none", "a", "b"),
        lambda: sandbox.write_file("/proc/none/x", "x"),
        lambda: sandbox.upload_file(str(tmp_path / "none"), "x"),
        lambda: sandbox.download_file("none", str(tmp_path / "x")),
    ):
        with pytest.raises(SandboxFileError) as error:
            call()
        assert error.value.result.status == ERROR
    assert sandbox.execute_bash("true").status == SUCCESS
    assert sandbox.write_file("f", "x").status == SUCCESS


# --- The object ---------------------------------------------------------------------------------------


def test_a_copy_reaches_the_same_sandbox(sandbox: Any) -> None:
    sandbox.write_file("f", "x")
    other = copy.deepcopy(sandbox)
    assert dataclasses.asdict(other) == dataclasses.asdict(sandbox)
    assert other.read_file("f").content == "x"
    restored = type(sandbox)(**sandbox.dict())
    assert restored == sandbox and restored.read_file("f").content == "x"


def test_a_copy_leaves_a_paused_sandbox_as_it_is() -> None:
    sandbox = NativeSandbox.create(ephemeral=True)
    try:
        sandbox.pause()
        for other in (copy.deepcopy(sandbox), pickle.loads(pickle.dumps(sandbox))):
            assert other.state() == "paused" == sandbox.state()
            other.resume()
            assert other.execute_bash("echo on").stdout == "on\n"
            sandbox.pause()
            other.close()
    finally:
        sandbox.remove()


def test_one_that_is_gone_says_so(world: World, sandbox: Any) -> None:
    world.started[-1].stop()
    with pytest.raises(SandboxError):
        sandbox.execute_bash("true")
    with pytest.raises(SandboxError):
        sandbox.read_file("f")


def test_one_that_nobody_started_is_made_and_gone_with_its_object(
    world: World, tmp_path: Path
) -> None:
    if world.type == "e2b":
        return  # the next test
    cls = world.cls
    options = {"work_dir": tmp_path} if world.name == "local" else {}
    sandbox = cls(**options, envs={"A": "b"})
    assert sandbox.sandbox_id is None
    assert sandbox.execute_bash("echo $A").stdout == "b\n"
    world.ids.add(str(sandbox.sandbox_id))
    id = str(sandbox.sandbox_id)
    del sandbox
    deadline = time.monotonic() + 60
    with pytest.raises(SandboxError):
        while time.monotonic() < deadline:
            cls.connect(id).close()


def test_a_sandbox_knows_where_it_works(world: World, tmp_path: Path) -> None:
    path = f"{world.config.get('work_dir', '/home/user')}/else where"
    sandbox = world.start("moved", work_dir=path)
    config = {key: one for key, one in world.config.items() if key != "work_dir"}
    reached = world.cls.connect(sandbox.sandbox_id, **config)
    assert str(sandbox.work_dir) == path
    if world.type != "e2b":  # whose service does not know
        assert reached.work_dir == sandbox.work_dir
    reached.work_dir = sandbox.work_dir
    assert reached.write_file("f", "x").status == SUCCESS
    assert sandbox.glob("*") == ["f"]
    sandbox.work_dir = Path(path).parent
    assert sandbox.glob("else*/*") == ["else where/f"]
    assert sandbox.read_file("else where/f").content == "x"
    assert sandbox.execute_bash("cat 'else where/f'").stdout == "x"


def test_a_relative_directory_of_this_machine_starts_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sandbox = LocalSandbox(work_dir="sub")
    assert sandbox.write_file("f", "x").status == SUCCESS
    assert (tmp_path / "sub" / "f").read_text() == "x"
    assert sandbox.work_dir == tmp_path / "sub"


def test_any_time_a_file_may_have_is_told_or_not(sandbox: Any) -> None:
    sandbox.write_file("f", "x")
    for stamp in ("@-9999999999", "@9999999999"):
        if sandbox.execute_bash(f"touch -d {stamp} f").exit_code == 0:
            time_of = sandbox.get_file_info("f").modified_time
            assert time_of is None or len(time_of) == 19


def test_an_e2b_sandbox_is_started_by_its_manager() -> None:
    with pytest.raises(SandboxError, match="Sandbox not started"):
        E2BSandbox().execute_bash("true")


def test_execute_bash_is_another_name_for_execute_shell() -> None:
    calls: list[Any] = []

    class Noting(NativeSandbox):
        def execute_shell(self, *args: Any, **kwargs: Any) -> CommandResult:
            calls.append((args, kwargs))
            return CommandResult(SUCCESS)

    Noting().execute_bash("ls", 5, "/", "root", {"A": "b"}, True)
    options = {"timeout": 5, "cwd": "/", "user": "root", "envs": {"A": "b"}}
    assert calls == [(("ls",), {**options, "background": True})]


def test_a_user_of_the_sandbox_is_chosen(tmp_path: Path) -> None:
    for world in worlds.world_of("native", tmp_path):
        sandbox = world.start()
        assert sandbox.execute_bash("id -un").stdout == "user\n"
        assert sandbox.execute_bash("id -un", user="root").stdout == "root\n"
        assert (
            sandbox.execute_code("whoami", "bash", user="root").outputs[0]["text"]
            == "root\n"
        )
        assert sandbox.write_file("/root/f", "x").status == ERROR
        assert sandbox.write_file("/root/f", "x", user="root").status == SUCCESS
        assert sandbox.create_directory("/root/d", user="root") is True
        assert sandbox.glob("/root/*", user="root") == ["/root/d", "/root/f"]


def test_the_sandbox_on_this_machine_warns_once(tmp_path: Path) -> None:
    program = (
        "import warnings; warnings.simplefilter('always')\n"
        "from cay.nexau import LocalSandbox\n"
        "for _ in range(2): LocalSandbox().execute_bash('true')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr.count("without isolation") == 1, done.stderr


@pytest.mark.parametrize("cls", [LocalSandbox, NativeSandbox])
def test_an_object_made_directly_takes_any_id(cls: Any, tmp_path: Path) -> None:
    """Section 6 of issue 15: programs for NexAU begin with LocalSandbox(sandbox_id=...)."""
    if cls is NativeSandbox and os.geteuid() != 0:
        unavailable("the tests of sandboxes are run by root")
    work_dir = tmp_path if cls is LocalSandbox else "/home/user"
    sandbox = cls(sandbox_id="anything at all", work_dir=work_dir)
    assert sandbox.execute_bash("echo here > f; cat f").stdout == "here\n"
    assert sandbox.sandbox_id == "anything at all" in str(sandbox)
    assert sandbox.dict()["sandbox_id"] == "anything at all"
    other = copy.deepcopy(sandbox)
    assert other.read_file("f").content == "here\n"
    assert other.sandbox_id == "anything at all"
    dataclasses.asdict(sandbox)
    task = sandbox.execute_bash("sleep 60", background=True)
    assert other.get_background_task_status(task.background_pid).status == RUNNING
    sandbox.remove()


def test_an_id_of_this_machine_must_exist() -> None:
    for cls in (LocalSandbox, NativeSandbox):
        with pytest.raises(SandboxNotFoundError):
            cls(sandbox_id="sb-abcdefgh234567xy").execute_bash("true")
        with pytest.raises(SandboxError):
            cls.connect("anything")
