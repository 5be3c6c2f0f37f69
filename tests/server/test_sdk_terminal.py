# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for Python, unmodified: terminals."""

import threading

import pytest
from e2b import CommandExitException, NotFoundException, PtySize, SandboxException
from serving import PATIENCE, wait_until


class Terminal(threading.Thread):
    """A shell on a terminal in a sandbox; what it shows is read all the time."""

    def __init__(self, sandbox, handle=None, **options):
        super().__init__(daemon=True)
        self.sandbox, self.seen, self.error, self.result = sandbox, b"", None, None
        self.handle = handle or sandbox.pty.create(PtySize(rows=30, cols=100), **options)
        self.start()

    def run(self):
        try:
            self.result = self.handle.wait(on_pty=self.take)
        except Exception as error:  # whatever it is, the test asks
            self.error = error

    def take(self, data):
        self.seen += data

    def type(self, text):
        self.sandbox.pty.send_stdin(self.handle.pid, text)

    def wait_for(self, text):
        wait_until(lambda: text in self.seen, lambda: f"no {text!r} in {self.seen!r}")

    def end(self):
        self.join(PATIENCE)
        assert not self.is_alive(), "the stream does not end"
        return self


def test_a_shell_on_a_terminal_answers_and_ends(shared):
    terminal = Terminal(shared)
    terminal.type(b"test -t 0 && test -t 1 && echo is$((1))a$((2))terminal; tty\n")
    terminal.wait_for(b"is1a2terminal")
    terminal.wait_for(b"/dev/")
    terminal.type(b"exit 4\n")
    terminal.end()
    assert isinstance(terminal.error, CommandExitException)
    assert terminal.error.exit_code == 4


def test_a_terminal_has_the_size_it_is_given(shared):
    terminal = Terminal(shared)
    terminal.type(b"stty size\n")
    terminal.wait_for(b"30 100")
    shared.pty.resize(terminal.handle.pid, PtySize(rows=11, cols=222))
    terminal.type(b"stty size\n")
    terminal.wait_for(b"11 222")
    assert shared.pty.kill(terminal.handle.pid) is True
    terminal.end()


def test_a_terminal_is_in_the_surroundings_asked_for(shared):
    terminal = Terminal(shared, user="root", cwd="/tmp", envs={"COLOUR": "blue"})
    terminal.type(b"echo \"<$(id -u) $PWD $COLOUR $TERM>\"\n")
    terminal.wait_for(b"<0 /tmp blue xterm-256color>")
    terminal.handle.kill()
    terminal.end()


def test_control_c_interrupts_what_runs_on_a_terminal(shared):
    terminal = Terminal(shared)
    terminal.type(b"echo re$((0))ady; sleep 1000; echo status $?\n")
    terminal.wait_for(b"re0ady")
    wait_until(lambda: shared.commands.run("pgrep -x sleep || true").stdout, "no sleep")
    terminal.type(b"\x03")
    terminal.type(b"echo wo$((7))ke\n")
    terminal.wait_for(b"wo7ke")
    terminal.type(b"exit\n")
    terminal.end()


def test_one_can_connect_again_to_a_terminal(shared):
    first, seen = shared.pty.create(PtySize(rows=30, cols=100)), b""
    shared.pty.send_stdin(first.pid, b"stty -echo; echo on$((1))e\n")
    for _, _, data in first:
        seen += data
        if b"on1e" in seen:
            break
    first.disconnect()
    again = Terminal(shared, shared.pty.connect(first.pid))
    again.type(b"echo tw$((2))o\n")
    again.wait_for(b"tw2o")
    assert b"on1e" not in again.seen
    again.type(b"exit 0\n")
    assert again.end().error is None


def test_a_terminal_that_is_none_is_not_found(shared):
    assert shared.pty.kill(999999) is False
    with pytest.raises(NotFoundException):
        shared.pty.send_stdin(999999, b"x")
    with pytest.raises(NotFoundException):
        shared.pty.resize(999999, PtySize(rows=10, cols=10))


def test_a_pipe_is_no_terminal_and_a_terminal_no_pipe(shared):
    pipe = shared.commands.run("cat", background=True, stdin=True)
    with pytest.raises(SandboxException):
        shared.pty.send_stdin(pipe.pid, b"x")
    with pytest.raises(SandboxException):
        shared.pty.resize(pipe.pid, PtySize(rows=10, cols=10))
    pipe.kill()
    terminal = Terminal(shared)
    with pytest.raises(SandboxException):
        shared.commands.send_stdin(terminal.handle.pid, "x")
    with pytest.raises(SandboxException):
        shared.commands.close_stdin(terminal.handle.pid)
    terminal.handle.kill()
    terminal.end()


def test_a_terminal_takes_a_stream_of_input(shared):
    terminal = Terminal(shared)
    shared.pty.stream_input(terminal.handle.pid, [b"echo a$((1))b\n", b"exit 3\n"])
    terminal.wait_for(b"a1b")
    assert terminal.end().error.exit_code == 3


def test_much_that_is_shown_comes_whole(shared):
    terminal = Terminal(shared)
    terminal.type(b"stty -echo -onlcr; PS1=; echo st$((0))art; seq 200000; echo st$((0))op\n")
    terminal.wait_for(b"st0op\n")
    shown = terminal.seen.partition(b"st0art\n")[2].partition(b"st0op\n")[0]
    assert shown == b"".join(b"%d\n" % number for number in range(1, 200001))
    terminal.handle.kill()
    terminal.end()
