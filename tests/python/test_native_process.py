# SPDX-License-Identifier: Apache-2.0
"""Commands that are not waited for, from Python."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from native import ledger, make_sandbox
from test_native_exec import MARK, sleepers, wait_for

from cay.sandbox import (
    Process,
    Sandbox,
    SandboxError,
    SandboxTimeoutError,
    SandboxValueError,
)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with ledger(), make_sandbox() as sandbox:
        yield sandbox


def test_output_can_be_read_piece_by_piece(box: Sandbox) -> None:
    with box.start(["sh", "-c", "echo a; sleep 0.2; echo b >&2; exit 3"]) as process:
        assert process.pid > 0
        pieces = [(one.stream, one.data) for one in process]
        assert pieces == [(1, b"a\n"), (2, b"b\n")]
        assert process.wait().exit_code == 3
        assert process.wait().exit_code == 3


def test_the_descriptor_says_when_there_is_something(box: Sandbox) -> None:
    with box.start(["sh", "-c", "read x; echo a"], keep_input=True) as process:
        output = process.read_now()
        assert output is not None and not output.data
        assert select.select([process], [], [], 0) == ([], [], [])
        process.write("x\n")
        assert select.select([process], [], [], 120)[0] == [process]


def test_reading_and_waiting_have_time_limits(box: Sandbox) -> None:
    with box.start(MARK.split()) as process:
        assert process.poll() is None
        for call in (process.read, process.wait):
            with pytest.raises(SandboxTimeoutError) as caught:
                call(timeout=0.1)
            assert isinstance(caught.value, TimeoutError)
        process.kill()
        assert process.wait(timeout=10).signal == 9


def test_a_conversation(box: Sandbox) -> None:
    with box.start(["cat"], input=b"first ", keep_input=True) as process:
        process.write("second")
        got = b""
        while b"second" not in got:
            output = process.read(timeout=10)
            assert output is not None
            got += output.data
        assert got == b"first second"
        process.close_input()
        assert process.wait(timeout=10).exit_code == 0


def test_one_thread_writes_while_another_reads(box: Sandbox) -> None:
    data = bytes(range(256)) * 8192
    with box.start(["cat"], keep_input=True) as process:

        def write() -> None:
            process.write(data)
            process.close_input()

        writer = threading.Thread(target=write)
        writer.start()
        got = b"".join(output.data for output in process)
        writer.join()
        assert got == data


def test_a_signal_goes_to_the_first_process(box: Sandbox) -> None:
    with box.start(
        ["sh", "-c", "trap 'echo got; exit 4' USR1; echo; while :; do sleep 0.05; done"]
    ) as process:
        process.read(timeout=10)
        process.signal(signal.SIGUSR1)
        result = process.wait(timeout=10)
        assert (result.exit_code, result.stdout) == (4, "got\n")


def test_closing_kills_the_tree_of_a_foreground_process(box: Sandbox) -> None:
    process = box.start(["sh", "-c", f"setsid {MARK} & exec {MARK}"])
    assert wait_for(lambda: len(sleepers(box)) == 2)
    process.close()
    process.close()
    assert wait_for(lambda: sleepers(box) == [])
    with pytest.raises(SandboxError, match="closed"):
        process.wait()


@pytest.mark.parametrize("background", [False, True])
def test_closing_wakes_those_who_wait(box: Sandbox, background: bool) -> None:
    process = box.start(MARK.split(), background=background)
    told: list[str] = []

    def wait(call: Callable[[], object]) -> None:
        try:
            call()
        except SandboxValueError as error:
            told.append(error.message)

    threads = [
        threading.Thread(target=wait, args=(call,), daemon=True)
        for call in (process.read, process.read, process.wait, process.wait)
    ]
    for thread in threads:
        thread.start()
    assert wait_for(lambda: len(process._watches) == 3)
    time.sleep(0.1)
    process.close()
    for thread in threads:
        thread.join(10)
    assert told == ["the process's handle is closed"] * 4
    if background:
        with box.attach(process.pid) as again:
            again.kill()
            again.wait(timeout=10)  # or it stays in the list


def test_a_forked_child_holds_no_process_of_its_parent(box: Sandbox) -> None:
    process = box.start(MARK.split())
    child = os.fork()
    if child == 0:
        closed = 3
        try:
            process.wait(timeout=0.1)
        except SandboxValueError:
            closed = 4
        time.sleep(30 if closed == 4 else 0)
        os._exit(closed)
    try:
        assert process.poll() is None
        process.close()
        assert wait_for(lambda: sleepers(box) == [])
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("keep_input", [True, False])
def test_a_process_goes_on_when_its_starter_forks(box: Sandbox, keep_input: bool) -> None:
    script = "read x; echo got $x" if keep_input else "sleep 0.5; echo got it"
    with box.start(["sh", "-c", script], keep_input=keep_input) as process:
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        if keep_input:
            process.write("it\n")
        assert process.wait(timeout=20).stdout == "got it\n"


def test_a_terminal_has_a_size_that_can_change(box: Sandbox) -> None:
    with box.start(
        ["sh", "-c", "stty size; read x; stty size"],
        tty=True,
        size=(30, 100),
        keep_input=True,
    ) as process:
        first = process.read(timeout=10)
        assert first is not None and first.data.strip() == b"30 100" and first.stream == 1
        process.resize(40, 120)
        process.write(b"\n")
        rest = b"".join(output.data for output in process)
        assert rest.split() == [b"40", b"120"]


def test_a_number_that_c_has_no_room_for_is_refused(box: Sandbox) -> None:
    for size in ((70000, 80), (24, 65617), (-1, 80)):
        with pytest.raises(SandboxValueError, match="out of range"):
            box.start(["true"], tty=True, size=size)
    with pytest.raises(SandboxValueError, match="out of range"):
        box.exec(["true"], output_limit=2**64 + 5)
    with box.start(MARK.split(), tty=True) as process:
        with pytest.raises(SandboxValueError, match="65535"):
            process.resize(24, 65617)
        with pytest.raises(SandboxValueError, match="out of range"):
            process.signal(2**32 + signal.SIGKILL)
        assert process.poll() is None


def test_a_background_process_is_found_again_with_its_output(box: Sandbox) -> None:
    process = box.start(
        ["sh", "-c", "echo begun; sleep 0.3; echo done; exit 6"],
        background=True,
        tag="job",
    )
    pid = process.pid
    process.close()
    listed = {one.tag: one for one in box.processes() if one.is_background}
    assert listed["job"].pid == pid
    with box.attach("job") as again:
        assert "".join(one.data.decode() for one in again) == "begun\ndone\n"
        assert again.wait(timeout=10).exit_code == 6


def test_another_process_of_the_host_attaches_too(box: Sandbox) -> None:
    with box.start(["sh", "-c", "echo here; exec sleep 60"], background=True) as process:
        script = (
            "import sys; from cay import Sandbox\n"
            "process = Sandbox.open(sys.argv[1]).attach(sys.argv[2])\n"
            "print(process.read(timeout=10).data); process.kill()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, box.id, str(process.pid)],
            capture_output=True,
            text=True,
        )
        assert done.stdout == "b'here\\n'\n", done.stderr
        assert process.wait(timeout=10).signal == 9


def test_what_is_not_there_cannot_be_attached(box: Sandbox) -> None:
    with pytest.raises(SandboxError) as caught:
        box.attach("never-started")
    assert caught.value.hint


def test_processes_are_listed_with_what_they_are(box: Sandbox) -> None:
    with box.start(MARK.split(), user="root") as process:
        assert wait_for(lambda: sleepers(box) == [MARK])  # the words come with execve
        (found,) = [one for one in box.processes() if one.pid == process.pid]
        assert (found.command, found.uid, found.is_command) == (MARK, 0, True)
        assert not found.is_background and found.exit_code is None


def test_what_cannot_be_started_is_an_error_here(box: Sandbox) -> None:
    with pytest.raises(SandboxError, match="no-such-program"):
        box.start(["no-such-program"])


def test_a_handle_that_is_forgotten_leaves_nothing(box: Sandbox) -> None:
    process: Process | None = box.start(MARK.split())
    del process
    assert wait_for(lambda: sleepers(box) == [])


def test_waiting_costs_nothing_while_a_command_is_quiet(box: Sandbox) -> None:
    with box.start(["sh", "-c", "echo early; sleep 1"]) as process:
        before = time.process_time()
        assert process.wait().stdout == "early\n"
        assert time.process_time() - before < 0.2
