# SPDX-License-Identifier: Apache-2.0
"""A sandbox without requests has no keeper, and clients do not notice (issue 17, Density)."""

import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import CommandExitException, NotFoundException, Sandbox
from raw import Stream, connect, start
from serving import descriptors, name_of, traces, wait_until

IDLE_S = 3  # KEEPER_IDLE_MS


def wait_idle(server):
    wait_until(lambda: not server.keepers(), "the keeper of an idle sandbox stays")


def next_keeper(server):
    found = [pid for pid in server.children() if name_of(pid) == "cay-next"]
    return found[0] if len(found) == 1 else None


def first_process(server, sandbox):
    """PID 1 of the sandbox, outside."""
    done = server.cay("inspect", "-o", "json", f"sb-{sandbox.sandbox_id}")
    return json.loads(done.stdout)["init_pid"]


def end(server, sandbox):
    os.kill(first_process(server, sandbox), signal.SIGKILL)
    wait_until(lambda: traces(sandbox.sandbox_id) == [], "the broker has not noticed")


def test_an_idle_sandbox_has_no_keeper_and_serves_the_next_request(own_server):
    server = own_server()
    sandbox = Sandbox.create(timeout=300)
    sandbox.files.write("/tmp/kept", "content")
    assert len(server.keepers()) == 1
    wait_until(lambda: next_keeper(server), "the keeper of the next sandbox is not started")
    before = descriptors(server.broker)
    wait_idle(server)
    assert descriptors(server.broker) == before  # a pidfd instead of a socket
    assert sandbox.files.read("/tmp/kept") == "content"
    assert sandbox.commands.run("echo $E2B_SANDBOX_ID").stdout.strip() == sandbox.sandbox_id
    wait_idle(server)
    assert sandbox.is_running()
    wait_idle(server)
    assert sandbox.kill() is True
    assert traces(sandbox.sandbox_id) == []
    wait_until(lambda: descriptors(server.broker) < before, "a descriptor is left")


def test_a_command_is_listed_in_full_after_its_keeper_has_left(own_server):
    server = own_server()
    sandbox = Sandbox.create(timeout=300)
    handle = sandbox.commands.run("read -r line; echo \"got $line\"; exit 7", background=True,
                                  cwd="/tmp", envs={"NAME": "a value"}, stdin=True, timeout=0)
    handle.disconnect()
    (before,) = sandbox.commands.list()
    wait_idle(server)
    (after,) = sandbox.commands.list()
    assert after == before and after.cwd == "/tmp" and after.envs == {"NAME": "a value"}
    wait_idle(server)
    connected = sandbox.commands.connect(handle.pid, timeout=0)
    sandbox.commands.send_stdin(handle.pid, "it\n")
    with pytest.raises(CommandExitException) as caught:
        connected.wait()
    assert (caught.value.exit_code, caught.value.stdout) == (7, "got it\n")


def test_the_status_of_a_command_that_has_ended_outlives_its_keeper(own_server):
    server = own_server()
    sandbox = Sandbox.create(timeout=300)
    handle = sandbox.commands.run("sleep 0.2; exit 9", background=True, timeout=0)
    with pytest.raises(CommandExitException):
        handle.wait()
    wait_idle(server)
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.connect(handle.pid).wait()
    assert caught.value.exit_code == 9


def test_a_command_that_ends_without_a_keeper_can_be_asked_for(own_server):
    server = own_server()
    sandbox = Sandbox.create(timeout=300)
    handle = sandbox.commands.run(f"sleep {IDLE_S + 2}; touch /tmp/ended; exit 5",
                                  background=True, timeout=0)
    handle.disconnect()
    wait_idle(server)
    time.sleep(IDLE_S)
    wait_until(lambda: sandbox.files.exists("/tmp/ended"), "the command has not run on")
    assert sandbox.commands.list() == []
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.connect(handle.pid).wait()
    assert caught.value.exit_code == 5


def test_a_terminal_outlives_its_keeper(own_server):
    server = own_server()
    sandbox = Sandbox.create(timeout=300)
    seen = []
    from e2b import PtySize

    handle = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
    handle.disconnect()
    wait_idle(server)
    sandbox.pty.resize(handle.pid, PtySize(rows=30, cols=90))
    connected = sandbox.commands.connect(handle.pid, timeout=0)
    sandbox.pty.send_stdin(handle.pid, b"stty size; exit\n")
    connected.wait(on_pty=seen.append)
    assert b"30 90" in b"".join(seen)


def test_a_stream_keeps_its_keeper(own_server):
    server = own_server()
    sandbox = Sandbox.create(timeout=300)
    with connect(server) as client:
        client.sendall(start(sandbox, "/bin/sleep", str(IDLE_S + 2)))
        events = Stream(client).events()
        next(events)
        (keeper,) = server.keepers()
        assert any("end" in message.get("event", {}) for _, message in events)
        assert server.keepers() == [keeper]
    wait_idle(server)


def test_a_watcher_keeps_its_keeper_until_it_is_removed(own_server):
    server = own_server()
    sandbox = Sandbox.create(timeout=300)
    sandbox.files.make_dir("/tmp/watched")
    watch = sandbox.files.watch_dir("/tmp/watched")
    sandbox.files.write("/tmp/watched/one", "1")
    (keeper,) = server.keepers()
    time.sleep(IDLE_S + 1)
    assert server.keepers() == [keeper], "events would be lost"
    assert "one" in {event.name for event in watch.get_new_events()}
    watcher = watch._watcher_id
    watch.stop()
    wait_idle(server)

    def events_of(watcher_id):
        return server.api("POST", "/filesystem.Filesystem/GetWatcherEvents",
                          {"watcherId": watcher_id}, E2b_Sandbox_Id=sandbox.sandbox_id,
                          X_Access_Token=sandbox._envd_access_token,
                          Content_Type="application/json")[0]

    assert events_of(watcher) == 404, "the watcher that was removed is there again"
    wait_idle(server)
    again = sandbox.files.watch_dir("/tmp/watched")
    assert again._watcher_id != watcher and events_of(again._watcher_id) == 200
    again.stop()


def test_requests_that_meet_a_keeper_that_leaves_are_answered(own_server):
    """Each is sent about the time at which the keeper leaves."""
    server, dice = own_server(), random.Random(17)
    sandboxes = [Sandbox.create(timeout=300) for _ in range(12)]

    def visit(sandbox):
        for _ in range(4):
            time.sleep(IDLE_S + dice.uniform(-0.02, 0.02))
            assert sandbox.commands.run("echo there").stdout == "there\n"

    with ThreadPoolExecutor(len(sandboxes)) as pool:
        list(pool.map(visit, sandboxes))
    assert server.api("GET", "/v2/sandboxes")[0] == 200
    wait_idle(server)
    for sandbox in sandboxes:
        sandbox.kill()


@pytest.mark.parametrize("is_paused", [False, True])
def test_an_idle_sandbox_is_paused_resumed_and_survives_a_restart(own_server, is_paused):
    server = own_server()
    sandbox = Sandbox.create(timeout=300)
    sandbox.files.write("/tmp/kept", "content")
    wait_idle(server)
    if is_paused:
        sandbox.pause()
        wait_idle(server)
    server.restart()
    assert not server.keepers()
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.files.read("/tmp/kept") == "content"
    wait_idle(server)
    assert again.kill()


def test_a_list_reads_rows_only(own_server):
    """Its answers do not depend on PID 1, on a keeper, or on whether there is a sandbox."""
    server = own_server()
    sandboxes = [Sandbox.create(timeout=300, metadata={"key": "x"}) for _ in range(3)]
    wait_idle(server)
    inits = [first_process(server, sandbox) for sandbox in sandboxes]
    names = [sandbox.sandbox_id for sandbox in sandboxes]
    with server.rows(1000) as rows:
        for init in inits:
            os.kill(init, signal.SIGSTOP)
        try:
            found, token, pages = [], "", 0
            while token is not None:
                with server.get(f"/v2/sandboxes?limit=100&nextToken={token}") as reply:
                    page, token = json.load(reply), reply.headers["X-Next-Token"]
                    assert reply.headers["X-Total-Running"] == "1003"
                assert len(page) <= 100 and all(one["metadata"] == {"key": "x"} for one in page)
                found += [one["sandboxID"] for one in page]
                pages += 1
            assert pages == 11 and sorted(found) == sorted(names + rows)
            with server.get("/v2/sandboxes?limit=10&metadata=key%3Dy") as reply:
                assert json.load(reply) == []
            assert not server.keepers()
        finally:
            for init in inits:
                os.kill(init, signal.SIGCONT)
    for sandbox in sandboxes:
        assert sandbox.kill()


def test_the_time_of_an_idle_sandbox_ends(own_server):
    server = own_server()
    sandbox = Sandbox.create(timeout=IDLE_S + 3)
    wait_idle(server)
    assert sandbox.is_running()
    wait_idle(server)
    path = f"/sandboxes/{sandbox.sandbox_id}"
    wait_until(lambda: server.api("GET", path)[0] == 404, "it lives on")
    assert "end of life" in server.api("GET", path)[1]["message"]
    wait_until(lambda: traces(sandbox.sandbox_id) == [], "something is left of it")


def test_the_end_of_an_idle_sandbox_is_noticed_without_a_request(own_server):
    server = own_server()
    sandbox = Sandbox.create(timeout=300)
    wait_idle(server)
    end(server, sandbox)
    status, answer = server.api("GET", f"/sandboxes/{sandbox.sandbox_id}")
    assert status == 404 and "ended by itself" in answer["message"]
    with pytest.raises(NotFoundException):
        Sandbox.connect(sandbox.sandbox_id)


def test_an_idle_sandbox_that_ran_out_of_memory_is_reported_so(own_server):
    server = own_server("--memory", "64M", "--disk", "32M")
    sandbox = Sandbox.create(timeout=300)
    with pytest.raises(CommandExitException):
        sandbox.commands.run("x=$(head -c 200M /dev/zero | tr '\\0' x)")
    wait_idle(server)
    end(server, sandbox)
    status, answer = server.api("GET", f"/sandboxes/{sandbox.sandbox_id}")
    assert status == 404 and "ran out of memory" in answer["message"]


# --- The keeper of the next sandbox ---


def test_a_create_uses_the_keeper_that_was_started_before(own_server):
    server = own_server()
    before = wait_until(lambda: next_keeper(server), "no keeper is ready")
    sandbox = Sandbox.create(timeout=300)
    assert server.keepers() == [before]
    again = wait_until(lambda: next_keeper(server), "no other keeper is ready")
    assert again != before
    assert sandbox.kill()


def test_a_keeper_that_is_killed_before_it_has_a_sandbox_costs_no_request(own_server):
    server = own_server()
    before = wait_until(lambda: next_keeper(server), "no keeper is ready")
    os.kill(before, signal.SIGKILL)
    sandbox = Sandbox.create(timeout=300)
    assert sandbox.commands.run("echo there").stdout == "there\n"
    wait_until(lambda: next_keeper(server) not in (None, before), "it is not replaced")
    assert sandbox.kill()
