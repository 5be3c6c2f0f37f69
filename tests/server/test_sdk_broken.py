# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for Python, unmodified: what clients see when something dies under them."""

import json
import os
import signal
import subprocess
import threading

import pytest
from e2b import (
    CommandExitException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxNotRunningException,
    SandboxState,
    TimeoutException,
)
from raw import web
from serving import CAY, PATIENCE, state, wait_until

TICK = "n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.02; done"


class Listener(threading.Thread):
    """Hears a command elsewhere, to its end."""

    def __init__(self, handle):
        super().__init__(daemon=True)
        self.handle, self.out, self.error = handle, "", None
        self.start()

    def run(self):
        try:
            self.handle.wait(on_stdout=self.take)
        except Exception as error:  # whatever it is, the test asks
            self.error = error

    def take(self, text):
        self.out += text

    def wait_for(self, text):
        wait_until(lambda: text in self.out, lambda: f"no {text!r} in {self.out!r} {self.error!r}")

    def end(self):
        self.join(PATIENCE)
        assert not self.is_alive(), "the stream does not end"
        return self


def ticking(sandbox):
    listener = Listener(sandbox.commands.run(TICK, background=True, timeout=0))
    listener.wait_for("tick 3\n")
    return listener


# --- The sandbox ------------------------------------------------------------------------


def test_a_sandbox_killed_under_a_stream_is_said_to_be_gone(create):
    sandbox = create()
    listeners = [ticking(sandbox) for _ in range(3)]
    assert sandbox.kill() is True
    for listener in listeners:
        assert isinstance(listener.end().error, SandboxNotRunningException), listener.error


def test_a_sandbox_whose_time_ends_under_a_stream_is_said_to_be_gone(create):
    sandbox = create()
    listener = ticking(sandbox)
    sandbox.set_timeout(1)
    assert isinstance(listener.end().error, SandboxNotRunningException), listener.error


def test_a_sandbox_killed_under_a_download_breaks_it_off(create):
    sandbox = create()
    sandbox.commands.run("head -c 200M /dev/zero > large")
    with sandbox.files.read("large", format="stream") as stream:
        got = len(next(stream))
        assert sandbox.kill() is True
        try:
            got += sum(len(piece) for piece in stream)
            assert got == 200 << 20, "a part was given for the whole"
        except Exception as error:  # of the SDK's transport
            assert not isinstance(error, AssertionError), error


def test_a_sandbox_killed_under_an_upload_breaks_it_off(create):
    sandbox = create()

    def pieces():
        for number in range(100):
            yield b"x" * 100_000
            if number == 50:
                Sandbox.kill(sandbox.sandbox_id)

    with pytest.raises((SandboxException, TimeoutException)):
        sandbox.files.write("large", pieces())


def test_a_sandbox_killed_under_a_signed_upload_is_said_to_be_gone(create):
    """No header names the sandbox there."""
    sandbox = create()

    def form():
        yield b'--bb\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        for number in range(20):
            yield b"x" * 100_000
            if number == 10:
                Sandbox.kill(sandbox.sandbox_id)
        yield b"\r\n--bb--\r\n"

    answer = web("POST", sandbox.upload_url("large"), content=form(),
                 headers={"Content-Type": "multipart/form-data; boundary=bb"})
    assert (answer.status_code, answer.json()["message"]) == (502, "The sandbox was not found")


def test_a_sandbox_paused_under_a_stream_goes_on_where_it_was(create):
    sandbox = create()
    listener = ticking(sandbox)
    assert sandbox.pause() is True
    Sandbox.connect(sandbox.sandbox_id)
    again = Listener(sandbox.commands.connect(listener.handle.pid, timeout=0))
    again.wait_for("tick")
    assert sandbox.commands.kill(listener.handle.pid) is True
    assert isinstance(again.end().error, CommandExitException), again.error
    listener.end()


# --- The server -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_ends_takes_nothing_with_it_but_streams(own_server, number):
    server = own_server()
    sandbox = Sandbox.create(metadata={"who": "survivor"})
    token = sandbox._envd_access_token
    sandbox.files.write("note", "still here")
    signed = sandbox.download_url("note")
    listener = ticking(sandbox)
    if number == signal.SIGKILL:
        server.kill()
    else:
        server.stop()
    assert listener.end().error is not None
    assert not isinstance(listener.error, CommandExitException), "the command did not end"
    server.start()

    info = sandbox.get_info()
    assert (info.state, info.metadata) == (SandboxState.RUNNING, {"who": "survivor"})
    assert sandbox.files.read("note") == "still here"
    assert [process.pid for process in sandbox.commands.list()] == [listener.handle.pid]
    again = Listener(sandbox.commands.connect(listener.handle.pid, timeout=0))
    again.wait_for("tick")
    first = int(again.out.split()[1])
    assert first > 3, "the command was started again"
    assert Sandbox.connect(sandbox.sandbox_id)._envd_access_token == token
    assert web("GET", signed).text == "still here"
    assert sandbox.commands.kill(listener.handle.pid) is True
    assert isinstance(again.end().error, CommandExitException), again.error
    assert sandbox.kill() is True


def test_a_terminal_survives_the_server(own_server):
    server = own_server()
    sandbox = Sandbox.create()
    handle = sandbox.pty.create(PtySize(rows=30, cols=100), timeout=0)
    server.restart()
    again, seen = sandbox.pty.connect(handle.pid, timeout=0), bytearray()
    listener = threading.Thread(target=lambda: again.wait(on_pty=seen.extend), daemon=True)
    listener.start()
    sandbox.pty.resize(handle.pid, PtySize(rows=11, cols=222))
    sandbox.pty.send_stdin(handle.pid, b"stty size; exit\n")
    wait_until(lambda: b"11 222" in seen, lambda: f"nothing in {bytes(seen)!r}")
    listener.join(PATIENCE)
    assert sandbox.kill() is True


def test_a_watch_that_is_asked_survives_the_server(own_server):
    server = own_server()
    sandbox = Sandbox.create()
    watch = sandbox.files.watch_dir("/home/user")
    stopped = sandbox.files.watch_dir("/home/user")
    server.restart()
    assert watch.get_new_events() == []
    sandbox.files.write("file", "x")
    assert {event.name for event in watch.get_new_events()} == {"file"}
    watch.stop()
    stopped.stop()
    with pytest.raises(SandboxException):
        watch.get_new_events()
    sandbox.kill()


def test_how_a_command_ended_while_there_was_no_server_is_still_known(own_server):
    server = own_server()
    sandbox = Sandbox.create()
    handle = sandbox.commands.run("read word; exit 9", background=True, stdin=True, timeout=0)
    server.kill()
    server.start()
    again = sandbox.commands.connect(handle.pid, timeout=0)
    sandbox.commands.send_stdin(handle.pid, "go\n")
    with pytest.raises(CommandExitException) as caught:
        again.wait()
    assert caught.value.exit_code == 9
    assert sandbox.kill() is True


def test_what_was_said_while_there_was_no_server_does_not_stop_the_command(own_server):
    """The pipe of a command is emptied though nobody listens."""
    server = own_server()
    sandbox = Sandbox.create()
    handle = sandbox.commands.run("sleep 0.3; seq 300000; echo done > done; sleep 1000",
                                  background=True, timeout=0)
    server.kill()
    server.start()
    wait_until(lambda: sandbox.files.exists("done"), "the command hangs")
    assert sandbox.commands.kill(handle.pid) is True
    assert sandbox.kill() is True


def test_a_sandbox_whose_time_ends_while_there_is_no_server_is_gone_afterwards(own_server):
    server = own_server()
    sandbox = Sandbox.create()
    sandbox.set_timeout(1)
    server.kill()
    server.start()
    wait_until(lambda: not sandbox.is_running(), "it lives on")
    assert sandbox.kill() is False


def test_a_paused_sandbox_survives_the_server(own_server):
    server = own_server()
    sandbox = Sandbox.create()
    listener = ticking(sandbox)
    sandbox.pause()
    server.restart()
    listener.end()
    assert sandbox.get_info().state == SandboxState.PAUSED
    again = Sandbox.connect(sandbox.sandbox_id)
    assert [process.pid for process in again.commands.list()] == [listener.handle.pid]
    assert again.kill() is True


def test_a_front_that_dies_is_replaced_and_only_streams_break(own_server):
    server = own_server()
    sandbox = Sandbox.create()
    listener = ticking(sandbox)
    old = server.front()
    os.kill(old, signal.SIGKILL)
    listener.end()
    wait_until(lambda: state(old) in ("", "Z"), "it does not die")
    server.first_front = server.front()
    assert server.front() != old
    assert sandbox.commands.run("echo fine").stdout == "fine\n"
    assert [process.pid for process in sandbox.commands.list()] == [listener.handle.pid]
    assert sandbox.kill() is True


def known_by(memory):
    """The sandboxes on this machine with so much memory."""
    listed = subprocess.run([CAY, "ls", "--all", "-o", "json"], capture_output=True, timeout=PATIENCE,
                            check=True).stdout
    return {item["id"] for item in json.loads(listed)["sandboxes"]
            if item["limits"]["memory_bytes"] == memory}


def test_sandboxes_in_reserve_are_used_and_do_not_outlive_the_server(own_server):
    memory = 333 << 20  # tells them from others on this machine
    server = own_server("--pool", "3", "--memory", "333M")
    ready = wait_until(lambda: len(known_by(memory)) == 3 and known_by(memory), "no reserve")
    sandbox = Sandbox.create(metadata={"a": "b"})
    assert f"sb-{sandbox.sandbox_id}" in ready
    assert sandbox.commands.run("echo warm").stdout == "warm\n"
    assert sandbox.get_info().metadata == {"a": "b"}
    wait_until(lambda: len(known_by(memory)) == 4, "it is not filled again")
    assert sandbox.kill() is True
    ready = known_by(memory)
    server.kill()
    server.start()
    wait_until(lambda: not known_by(memory) & ready, "those in reserve outlive a server that died")
    wait_until(lambda: len(known_by(memory)) == 3, "no reserve")
    server.stop()
    wait_until(lambda: not known_by(memory), "those in reserve outlive the server")
