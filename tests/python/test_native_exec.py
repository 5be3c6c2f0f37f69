# SPDX-License-Identifier: Apache-2.0
"""Commands in a sandbox, from Python."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from native import ledger, make_sandbox, run_async

from cay.sandbox import (
    AsyncSandbox,
    Output,
    Sandbox,
    SandboxError,
    SandboxNotFoundError,
    SandboxValueError,
    Stream,
    UserNotFoundError,
)
from cay.errors import SandboxExistsError

MARK = "sleep 1234"
# A child that has left its parent's session and process group, and its parent.
ESCAPED = f"setsid sh -c '{MARK}' & setsid sh -c '({MARK} &) ; exec {MARK}' & "


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with ledger(), make_sandbox(env={"COLOUR": "blue"}) as sandbox:
        yield sandbox


def sleepers(box: Sandbox) -> list[str]:
    return [one.command for one in box.processes() if one.command == MARK]


def test_a_command_gives_its_exit_code_and_both_streams(box: Sandbox) -> None:
    result = box.exec(["sh", "-c", "printf 'a\\n\\377'; printf b >&2; exit 7"])
    assert (result.exit_code, result.cause, result.ok) == (7, "exited", False)
    assert (result.stdout_bytes, result.stderr_bytes) == (b"a\n\xff", b"b")
    assert (result.stdout, result.stderr) == ("a\n�", "b")
    assert result.wall_time > 0 and result.peak_memory > 0
    assert box.exec(["true"]).ok


def test_a_script_is_for_shell_and_a_string_is_no_command(box: Sandbox) -> None:
    assert box.shell("echo $((6 * 7)) | tr 4 5").stdout == "52\n"
    with pytest.raises(TypeError, match="shell"):
        box.exec("echo 42")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [b"\0\xff\n", "é\r\n", "", b""])
def test_input_arrives_as_it_is(box: Sandbox, given: str | bytes) -> None:
    expected = given.encode() if isinstance(given, str) else given
    assert box.exec(["cat"], input=given).stdout_bytes == expected


def test_without_input_there_is_an_end_at_once(box: Sandbox) -> None:
    assert box.exec(["cat"], timeout=10).stdout == ""


def test_more_than_any_pipe_holds_goes_in_and_out(box: Sandbox) -> None:
    data = os.urandom(1 << 20) * 30
    result = box.exec(["cat"], input=data, output_limit="32M")
    assert result.stdout_bytes == data


def test_a_command_that_does_not_read_its_input_still_ends(box: Sandbox) -> None:
    assert box.exec(["true"], input=b"x" * (1 << 20)).ok


def test_a_mebibyte_of_arguments_passes(box: Sandbox) -> None:
    words = ["x" * (64 << 10)] * 16
    assert box.exec(["printf", "%s", *words]).stdout == "".join(words)


def test_the_environment_is_the_sandboxes_and_the_commands(box: Sandbox) -> None:
    script = "echo $COLOUR,$SHAPE"
    assert box.shell(script, env={"SHAPE": "a b"}).stdout == "blue,a b\n"
    assert box.shell(script, env={"COLOUR": "red"}).stdout == "red,\n"
    with pytest.raises(SandboxValueError, match="'COLOUR' has no value"):
        box.shell(script, env={"COLOUR": None})  # type: ignore[dict-item]
    again = Sandbox.open(box.id)
    assert again.shell(script).stdout == "blue,\n"
    again.close()


def test_a_sandbox_is_opened_by_its_name() -> None:
    name = f"python-{os.getpid()}"
    with Sandbox.create(name=name) as named:
        assert named.inspect().name == name
        with pytest.raises(SandboxExistsError, match=f"in use by {named.id}"):
            Sandbox.create(name=name)
        again = Sandbox.open(name)
        assert again.id == named.id
        assert again.exec(["echo", "reached"]).stdout == "reached\n"
        again.close()
    with pytest.raises(SandboxNotFoundError, match="no sandbox has this name"):
        Sandbox.open(name)
    with pytest.raises(SandboxValueError, match="invalid sandbox name"):
        Sandbox.create(name="sb-a")


def test_the_directory_is_the_home_or_below_it_or_where_it_is_said(box: Sandbox) -> None:
    assert box.exec(["pwd"]).stdout == "/home/user\n"
    box.exec(["mkdir", "-p", "below"])
    assert box.exec(["pwd"], cwd="below").stdout == "/home/user/below\n"
    assert box.exec(["pwd"], cwd="/usr/bin").stdout == "/usr/bin\n"


def test_a_directory_that_is_missing_or_closed_is_an_error(box: Sandbox) -> None:
    with pytest.raises(FileNotFoundError, match="/no/where") as missing:
        box.exec(["true"], cwd="/no/where")
    with pytest.raises(PermissionError, match="/root") as closed:
        box.exec(["true"], cwd="/root")
    for caught in (missing, closed):
        assert isinstance(caught.value, SandboxError) and caught.value.hint


def test_commands_run_as_whom_they_are_told_to(box: Sandbox) -> None:
    assert box.exec(["id", "-un"]).stdout == "user\n"
    assert box.exec(["id", "-u"], user="root").stdout == "0\n"
    assert box.exec(["id", "-u"], user=4321).stdout == "4321\n"
    with pytest.raises(UserNotFoundError, match="nobody-knows") as caught:
        box.exec(["id"], user="nobody-knows")
    assert caught.value.hint


def test_what_cannot_be_started_is_a_result_with_its_reason(box: Sandbox) -> None:
    missing = box.exec(["no-such-program"])
    assert (missing.exit_code, missing.exec_errno) == (127, errno.ENOENT)
    assert "no-such-program" in missing.reason
    refused = box.exec(["/etc/passwd"])
    assert (refused.exit_code, refused.exec_errno) == (126, errno.EACCES)
    assert refused.cause == "not-started" and not refused.ok


def test_a_signal_is_told_as_shells_do(box: Sandbox) -> None:
    result = box.shell("kill -TERM $$")
    assert (result.exit_code, result.cause, result.signal) == (143, "signalled", 15)


def test_after_a_timeout_the_whole_tree_is_dead(box: Sandbox) -> None:
    script = f"echo out; echo err >&2; trap '' TERM; {ESCAPED} sleep 0.3; {MARK}"
    for seconds in (1, 10, 60):
        started = time.monotonic()
        result = box.shell(script, timeout=seconds)
        assert time.monotonic() - started > 0.9 * seconds
        assert (result.exit_code, result.cause) == (124, "timeout")
        assert sleepers(box) == []
        if result.stderr:  # else the machine is too slow for that
            break
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


def test_background_children_live_on_and_hold_nobody(box: Sandbox) -> None:
    result = box.shell(f"{MARK} & echo started", timeout=20)
    assert result.stdout == "started\n" and result.wall_time < 10
    try:
        assert wait_for(lambda: len(sleepers(box)) == 1)
    finally:
        box.exec(["pkill", "-f", MARK], user="root")


def test_of_too_much_output_the_end_is_kept_and_the_rest_counted(box: Sandbox) -> None:
    result = box.shell("seq 1 100000; echo e >&2", output_limit=1000)
    whole = "".join(f"{n}\n" for n in range(1, 100001))
    assert result.stdout == whole[-1000:]
    assert (result.stdout_dropped, result.stderr_dropped) == (len(whole) - 1000, 0)
    killed = box.shell("yes", output_limit="64K", fail_on_limit=True, timeout=30)
    assert killed.cause == "output-limit"


def test_output_is_given_as_it_comes(box: Sandbox) -> None:
    pieces: list[Output] = []
    result = box.shell("echo a; sleep 0.2; echo b >&2", on_output=pieces.append)
    assert [(one.stream, one.data) for one in pieces] == [(1, b"a\n"), (2, b"b\n")]
    assert result.stdout_bytes == result.stderr_bytes == b""


def test_what_the_listener_raises_ends_the_command(box: Sandbox) -> None:
    def listen(_: Output) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        box.shell(f"echo; {MARK}", on_output=listen)
    assert wait_for(lambda: sleepers(box) == [])


def wait_for(condition: object, seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def test_ctrl_c_ends_the_command_at_once(box: Sandbox) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            box.exec(MARK.split())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert wait_for(lambda: sleepers(box) == [])


def test_threads_run_commands_at_the_same_time(box: Sandbox) -> None:
    results: list[str] = []
    meet = "mkdir -p $1; : > $1/$0; until [ $(ls $1 | wc -l) = 12 ]; do sleep 0.05; done; "

    def work(number: int) -> None:
        for turn in range(5):  # none of which ends before the others have begun
            command = ["sh", "-c", meet + "echo $0", str(number), f"turn-{turn}"]
            results.append(box.exec(command, timeout=120).stdout)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(f"{n}\n" for n in range(12) for _ in range(5))


def test_a_forked_child_uses_the_sandbox_by_itself(box: Sandbox) -> None:
    box.files.write("number", "5")
    child = os.fork()
    if child == 0:
        number = box.files.read_text("number")
        os._exit(box.shell(f"exit {number}").exit_code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert box.exec(["true"]).ok and box.files.read_text("number") == "5"


def test_a_memory_limit_is_named_as_the_cause() -> None:
    with ledger(), make_sandbox(memory="64M", disk="16M") as sandbox:
        result = sandbox.exec(["python3", "-c", "b'x' * (1 << 30)"])
        assert (result.cause, result.exit_code) == ("memory", 137)


@pytest.mark.parametrize(
    "options",
    [
        {"argv": []},
        {"argv": ["a\0b"]},
        {"argv": ["\ud800"]},
        {"argv": ["true"], "env": {"A=B": "c"}},
        {"argv": ["true"], "timeout": 0},
        {"argv": ["true"], "timeout": -1},
        {"argv": ["true"], "timeout": "5"},
        {"argv": ["true"], "env": ["A=B"]},
        {"argv": ["true"], "output_limit": "many"},
        {"argv": ["true"], "input": "\ud800"},
    ],
)
def test_a_wrong_request_is_refused_with_a_hint(
    box: Sandbox, options: dict[str, object]
) -> None:
    with pytest.raises(SandboxValueError) as caught:
        box.exec(**options)  # type: ignore[arg-type]
    assert caught.value.hint and isinstance(caught.value, (SandboxError, ValueError))


@pytest.mark.parametrize("options", [{"cwd": 5}, {"input": 5}, {"argv": ["echo", 5]}])
def test_a_type_that_is_wrong_is_a_type_error(box: Sandbox, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        box.exec(**{"argv": ["cat"], **options})


def test_a_sandbox_that_has_ended_is_not_found() -> None:
    with ledger():
        sandbox = make_sandbox()
        other = Sandbox.open(sandbox.id)
        sandbox.kill()
        for one in (sandbox, other):
            with pytest.raises(SandboxNotFoundError):
                one.exec(["true"])
        with pytest.raises(SandboxNotFoundError):
            Sandbox.open(sandbox.id)
        sandbox.close()
        other.close()
        with pytest.raises(SandboxValueError, match="closed"):
            sandbox.exec(["true"])


def test_a_command_whose_sandbox_ends_is_told_so() -> None:
    with ledger():
        sandbox = make_sandbox()

        def kill() -> None:
            wait_for(lambda: len(sleepers(sandbox)) == 1)
            sandbox.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        result = sandbox.exec(MARK.split())
        assert result.cause == "gone" and not result.ok
        killer.join()
        sandbox.close()


# --- Section 4 of issue 15: what Python shows ------------------------------------------------


def test_the_stream_of_output_is_readable_and_equal_to_its_number(box: Sandbox) -> None:
    pieces: list[Output] = []
    box.shell("echo a; sleep 0.2; echo b >&2", on_output=pieces.append)
    out, error = pieces
    assert (out.stream, error.stream) == (Stream.STDOUT, Stream.STDERR) == (1, 2)
    assert f"{out.stream} {error.stream:>7}" == "stdout  stderr"
    assert str(error.stream) == "stderr" and "STDERR" in repr(error)
    assert {1: "by number"}[out.stream] == "by number"


def test_the_text_of_a_result_has_the_reason_and_the_signal(box: Sandbox) -> None:
    missing = box.exec(["no-such-program"])
    assert missing.reason and f"reason={missing.reason!r}" in repr(missing)
    assert "signal=9" in repr(box.shell("kill -9 $$"))
    fine = repr(box.shell("true"))
    assert "reason" not in fine and "signal" not in fine


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("timeout", "ttl= .*exec\\(timeout=\\)"),
        ("image", "template="),
        ("envs", "env="),
        ("cpu", "cpus="),
        ("memories", "memory="),
        ("xyzzy", "template, memory, disk"),
    ],
)
def test_an_unknown_argument_of_create_is_answered_with_the_right_one(
    name: str, instead: str
) -> None:
    for create in (Sandbox.create, AsyncSandbox.create):
        with pytest.raises(TypeError, match=f"'{name}'; .*{instead}"):
            made: Any = create(**{name: 1})  # type: ignore[operator]
            if not isinstance(made, Sandbox):
                run_async("asyncio", lambda: made)
