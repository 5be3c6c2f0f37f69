# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for Python, unmodified: commands."""

import hashlib
import shlex
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)
from serving import PATIENCE, wait_until


class Reader(threading.Thread):
    """Waits for a command elsewhere; keeps what it said, and how it ended."""

    def __init__(self, handle):
        super().__init__(daemon=True)
        self.handle, self.out, self.err = handle, "", ""
        self.result = self.error = None
        self.start()

    def run(self):
        try:
            self.result = self.handle.wait(on_stdout=self.take_out, on_stderr=self.take_err)
        except Exception as error:  # whatever it is, the test asks
            self.error = error

    def take_out(self, text):
        self.out += text

    def take_err(self, text):
        self.err += text

    def wait_for(self, text):
        wait_until(lambda: text in self.out or self.error, lambda: f"no {text!r} in {self.out!r}")
        assert self.error is None, self.error

    def end(self):
        self.join(PATIENCE)
        assert not self.is_alive(), "the stream does not end"
        return self


# --- In the foreground ------------------------------------------------------------------


def test_a_command_says_what_it_said(shared):
    result = shared.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert (result.exit_code, result.error) == (0, None)


@pytest.mark.parametrize("status", [1, 3, 127, 255])
def test_a_command_that_fails_says_how(shared, status):
    with pytest.raises(CommandExitException) as caught:
        shared.commands.run(f"echo a; echo b >&2; exit {status}")
    failure = caught.value
    assert (failure.exit_code, failure.stdout, failure.stderr) == (status, "a\n", "b\n")
    assert failure.error == f"exit status {status}"


def test_a_command_that_is_killed_says_by_what(shared):
    with pytest.raises(CommandExitException) as caught:
        shared.commands.run("kill -TERM $$")
    assert caught.value.exit_code == -1
    assert caught.value.error == "signal: terminated"


def test_output_comes_as_it_is_made(shared):
    shared.commands.run("rm -f gate; mkfifo gate")
    heard = Reader(shared.commands.run("echo first; read word < gate; echo $word; echo e >&2",
                                       background=True))
    heard.wait_for("first\n")
    shared.commands.run("echo second > gate")
    heard.end()
    assert (heard.out, heard.err, heard.result.exit_code) == ("first\nsecond\n", "e\n", 0)


def test_output_of_many_bytes_comes_whole(shared):
    size = 24 << 20
    seen = hashlib.sha256()
    count = [0]

    def take(text):
        seen.update(text.encode())
        count[0] += len(text)

    shared.commands.run(f"seq -f %015.0f 0 {size // 16 - 1}", on_stdout=take, timeout=PATIENCE)
    expected = hashlib.sha256()
    for number in range(size // 16):
        expected.update(b"%015d\n" % number)
    assert count[0] == size
    assert seen.digest() == expected.digest()


def test_characters_are_not_torn_where_output_is_cut(shared):
    text = "aé€😀" * 100_000
    shared.files.write("wide", text)
    assert shared.commands.run("cat wide").stdout == text
    result = shared.commands.run("cat wide >&2; cat wide")
    assert (result.stdout, result.stderr) == (text, text)


def test_bytes_that_are_no_text_do_not_break_the_stream(shared):
    result = shared.commands.run(r"printf '\377\000\r\n\n\x02\x00\x00\x00\x02{}\xc3'; echo end")
    assert result.stdout.endswith("end\n")
    assert "\x00\r\n\n\x02\x00\x00\x00\x02{}" in result.stdout


@pytest.mark.parametrize("word", [
    "", " ", "two words", "'", '"', "\\", "$HOME `id`", "*", "a\nb", "\t", "ünï¢ødé 😀", "-n",
    "\x01\x7f", "x" * 100_000])
def test_a_word_arrives_as_it_was_sent(shared, word):
    assert shared.commands.run(f"printf %s {shlex.quote(word)}").stdout == word


def test_many_commands_run_at_once(shared):
    def run(number):
        return shared.commands.run(f"echo {number}; sleep 0.1; echo $(({number} * 2))").stdout

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(run, range(48))) == [f"{n}\n{2 * n}\n" for n in range(48)]


def test_a_command_that_takes_too_long_is_ended(shared):
    with pytest.raises(TimeoutException):  # be it before it is known to have begun
        shared.commands.run("exec sleep 1000.5", timeout=1)
    wait_until(lambda: shared.commands.run("pgrep -fx 'sleep 1000.5' || echo gone").stdout == "gone\n",
               "it runs on")


# --- Its surroundings -------------------------------------------------------------------


def test_variables_of_the_sandbox_and_of_the_command_are_there(create):
    sandbox = create(envs={"A": "of the sandbox", "B": "of the sandbox"})
    result = sandbox.commands.run('echo "$A, $B, $C"', envs={"B": "of the command", "C": "ü '\"\n"})
    assert result.stdout == "of the sandbox, of the command, ü '\"\n\n"
    assert sandbox.commands.run('echo "$B$C"').stdout == "of the sandbox\n"


def test_what_every_program_expects_is_set(shared):
    result = shared.commands.run('echo "$HOME $USER $LOGNAME $E2B_SANDBOX"; command -v ls')
    assert result.stdout.splitlines()[0] == "/home/user user user true"
    assert result.stdout.splitlines()[1].endswith("/ls")


@pytest.mark.parametrize("cwd, expected", [
    (None, "/home/user"), ("/tmp", "/tmp"), ("below", "/home/user/below"),
    ("~/below", "/home/user/below"), ("~", "/home/user"), ("/home/../tmp/.", "/tmp")])
def test_a_command_is_run_where_it_is_to_be(shared, cwd, expected):
    shared.files.make_dir("/home/user/below")
    assert shared.commands.run("pwd", cwd=cwd).stdout == expected + "\n"


@pytest.mark.parametrize("cwd", ["/no/such/place", "/etc/passwd"])
def test_a_place_that_is_none_is_refused(shared, cwd):
    with pytest.raises(InvalidArgumentException):
        shared.commands.run("pwd", cwd=cwd)


def test_a_command_is_run_as_who_is_named(shared):
    assert shared.commands.run("id -u; id -un").stdout == "1000\nuser\n"
    assert shared.commands.run("id -u; echo $HOME", user="root").stdout == "0\n/root\n"
    assert shared.commands.run("id -un", user="user").stdout == "user\n"


@pytest.mark.parametrize("user", ["nosuchuser", "../root", "r oot"])
def test_a_user_whom_nobody_knows_is_refused(shared, user):
    with pytest.raises((AuthenticationException, InvalidArgumentException)):
        shared.commands.run("id", user=user)


# --- In the background ------------------------------------------------------------------


def test_a_command_in_the_background_is_listed_until_it_ends(shared):
    handle = shared.commands.run("sleep 1000", background=True, envs={"K": "v"}, cwd="/tmp")
    listed = {process.pid: process for process in shared.commands.list()}
    assert listed[handle.pid].cmd == "/bin/bash"
    assert listed[handle.pid].args == ["-l", "-c", "sleep 1000"]
    assert listed[handle.pid].envs == {"K": "v"}
    assert listed[handle.pid].cwd == "/tmp"
    assert handle.kill() is True
    with pytest.raises(CommandExitException) as caught:
        handle.wait()
    assert (caught.value.exit_code, caught.value.error) == (-1, "signal: killed")
    assert handle.pid not in {process.pid for process in shared.commands.list()}
    assert handle.kill() is False
    assert shared.commands.kill(handle.pid) is False


def test_a_command_outlives_who_started_it(shared):
    handle = shared.commands.run("read word; echo $word > heard; sleep 1000", background=True,
                                 stdin=True)
    handle.disconnect()
    shared.commands.send_stdin(handle.pid, "alone\n")
    wait_until(lambda: shared.files.exists("heard") and shared.files.read("heard") == "alone\n",
               "it did not go on")
    assert shared.commands.kill(handle.pid) is True


def test_one_can_connect_again_to_a_command_and_hears_what_is_new(shared):
    handle = shared.commands.run("echo old; while read w; do echo new $w; done; exit 7",
                                 background=True, stdin=True)
    first = Reader(handle)
    first.wait_for("old\n")
    again = shared.commands.connect(handle.pid)
    assert again.pid == handle.pid
    second = Reader(again)
    shared.commands.send_stdin(handle.pid, "1\n")
    first.wait_for("new 1\n")
    second.wait_for("new 1\n")
    assert "old" not in second.out
    shared.commands.close_stdin(handle.pid)
    for reader in (first.end(), second.end()):
        assert isinstance(reader.error, CommandExitException), reader.error
        assert reader.error.exit_code == 7


def test_one_can_still_ask_how_a_command_has_ended(shared):
    handle = shared.commands.run("exit 5", background=True)
    with pytest.raises(CommandExitException):
        handle.wait()
    with pytest.raises(CommandExitException) as caught:
        shared.commands.connect(handle.pid).wait()
    assert caught.value.exit_code == 5


def test_a_process_that_is_none_is_not_found(shared):
    assert shared.commands.kill(999999) is False
    with pytest.raises(NotFoundException):
        shared.commands.connect(999999)
    with pytest.raises(NotFoundException):
        shared.commands.send_stdin(999999, "x")
    with pytest.raises(NotFoundException):
        shared.commands.close_stdin(999999)


def test_the_first_process_of_a_sandbox_is_nobodys_to_kill(shared):
    assert shared.commands.kill(1) is False
    assert shared.commands.run("echo alive").stdout == "alive\n"


def test_a_stream_lasts_as_long_as_somebody_holds_the_pipe(shared):
    shared.commands.run("rm -f hold; mkfifo hold")
    heard = Reader(shared.commands.run("(read w < hold; echo last) & echo first", background=True))
    heard.wait_for("first\n")
    assert heard.result is None and heard.error is None
    shared.commands.run("echo > hold")
    assert heard.end().result.stdout == "first\nlast\n"


def test_a_command_started_with_nohup_does_not_hold_the_stream(shared):
    result = shared.commands.run("nohup sleep 1000 > /dev/null 2>&1 < /dev/null & echo $!")
    shared.commands.run(f"kill {result.stdout}")


# --- Input ------------------------------------------------------------------------------


def test_a_command_reads_what_it_is_sent(shared):
    handle = shared.commands.run("cat; echo end", background=True, stdin=True)
    for word in ("one\n", "zwei ü\n", b"\x33\n"):
        handle.send_stdin(word)
    handle.close_stdin()
    assert handle.wait().stdout == "one\nzwei ü\n3\nend\n"


def test_a_command_without_input_reads_none(shared):
    assert shared.commands.run("cat; echo end").stdout == "end\n"


def test_much_input_arrives_whole(shared):
    handle = shared.commands.run("sha256sum", background=True, stdin=True)
    expected = hashlib.sha256()
    for number in range(16):
        part = bytes([number]) * (1 << 18)
        expected.update(part)
        handle.send_stdin(part)
    handle.close_stdin()
    assert handle.wait().stdout.split()[0] == expected.hexdigest()


def test_input_that_nobody_reads_does_not_hold_up_others(shared):
    handle = shared.commands.run("sleep 1000", background=True, stdin=True)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(handle.send_stdin, b"x" * (4 << 20), request_timeout=2)
        assert shared.commands.run("echo others").stdout == "others\n"
        try:
            sent.result(PATIENCE)
        except SandboxException:
            pass  # refused, or given up: both are said
    assert handle.kill() is True


def test_input_to_a_command_that_has_none_is_refused(shared):
    handle = shared.commands.run("sleep 1000", background=True)
    with pytest.raises(SandboxException):
        shared.commands.send_stdin(handle.pid, "x")
    handle.kill()


def test_input_is_streamed(shared):
    handle = shared.commands.run("cat", background=True, stdin=True)
    heard = Reader(handle)

    def words():
        yield "first\n"
        heard.wait_for("first\n")  # it comes before the stream ends
        yield b"second\n"

    shared.commands.stream_input(handle.pid, words())
    heard.wait_for("second\n")
    handle.close_stdin()
    assert heard.end().result.exit_code == 0
    with pytest.raises(NotFoundException):
        shared.commands.stream_input(999999, ["x"])
