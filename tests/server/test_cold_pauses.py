# SPDX-License-Identifier: Apache-2.0
"""Pausing without memory, with the real SDK: files are kept, processes are not."""

import threading
import time

import pytest
from conftest import start_server
from e2b import Sandbox
from e2b.exceptions import SandboxException
from serving import traces, wait_until

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@pytest.fixture(scope="module", name="cold")
def fixture_cold(tmp_path_factory):
    """A server of this file."""
    server = start_server(tmp_path_factory, "--storage", "disk")
    yield server
    server.clean()




@pytest.fixture(name="make")
def fixture_make(cold):
    """Sandboxes of that server, killed at the end of the test."""
    made = []

    def make(**options):
        made.append(Sandbox.create(**{"timeout": 600, **cold.options_of("default"), **options}))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.kill()


def state(cold, sandbox):
    return cold.api("GET", f"/sandboxes/{sandbox.sandbox_id}")[1]["state"]


def connect(cold, sandbox, **body):
    """The reply to a connect."""
    return cold.api("POST", f"/sandboxes/{sandbox.sandbox_id}/connect", {"timeout": 300, **body})


def test_a_pause_without_memory_keeps_files_and_drops_processes(cold, make):
    sandbox = make(envs={"A": "b"}, metadata={"who": "me"})
    token = connect(cold, sandbox)[1]["envdAccessToken"]
    sandbox.files.write("file", "kept")
    boot = sandbox.files.read(BOOT_ID)
    assert sandbox.commands.run(f"cat {BOOT_ID}").stdout == boot
    sandbox.commands.run("sleep 3600", background=True)
    assert len(sandbox.commands.list()) == 1
    assert sandbox.pause(keep_memory=False)
    assert not sandbox.is_running() and state(cold, sandbox) == "paused"
    status, again = connect(cold, sandbox)
    assert (status, again["sandboxID"], again["envdAccessToken"]) == (201, sandbox.sandbox_id, token)
    assert sandbox.is_running() and state(cold, sandbox) == "running"
    assert sandbox.commands.list() == []
    assert sandbox.files.read("file") == "kept"
    assert sandbox.commands.run("echo $A $E2B_SANDBOX_ID; cat /run/e2b/.E2B_SANDBOX_ID").stdout == (
        f"b {sandbox.sandbox_id}\n{sandbox.sandbox_id}")
    assert sandbox.files.read(BOOT_ID) not in ("", boot)
    assert sandbox.get_info().metadata == {"who": "me"}


def test_a_pause_with_memory_keeps_the_boot(cold, make):
    sandbox = make()
    boot = sandbox.files.read(BOOT_ID)
    process = sandbox.commands.run("sleep 3600", background=True)
    for pause in (sandbox.pause, lambda: sandbox.pause(keep_memory=None)):
        assert pause() and connect(cold, sandbox)[0] == 201
        assert sandbox.files.read(BOOT_ID) == boot
        assert [one.pid for one in sandbox.commands.list()] == [process.pid]


def test_the_second_pause_is_409(cold, make):
    sandbox = make()
    assert sandbox.pause(keep_memory=False)
    assert not sandbox.pause(keep_memory=False) and not sandbox.pause()
    status, reply = cold.api("POST", f"/sandboxes/{sandbox.sandbox_id}/pause", {"memory": False})
    assert (status, reply["code"]) == (409, 409)


def test_a_connect_without_memory_boots_a_sandbox_that_was_paused_with_it(cold, make):
    sandbox = make()
    sandbox.files.write("file", "kept")
    boot = sandbox.files.read(BOOT_ID)
    sandbox.commands.run("sleep 3600", background=True)
    assert sandbox.pause()
    assert connect(cold, sandbox, memory=False)[0] == 201
    assert sandbox.commands.list() == [] and sandbox.files.read(BOOT_ID) != boot
    assert sandbox.files.read("file") == "kept"


def test_a_connect_without_memory_does_not_boot_a_running_sandbox(cold, make):
    sandbox = make()
    boot = sandbox.files.read(BOOT_ID)
    assert connect(cold, sandbox, memory=False)[0] == 200
    assert sandbox.files.read(BOOT_ID) == boot


def test_a_sandbox_is_paused_without_memory_at_its_end_and_traffic_does_not_wake_it(cold, make):
    status, made = cold.api("POST", "/sandboxes", {
        "templateID": "base", "timeout": 2, "autoPause": True, "autoPauseMemory": False,
        "autoResume": {"enabled": True}})
    assert status == 201
    name = made["sandboxID"]
    try:
        wait_until(lambda: cold.api("GET", f"/sandboxes/{name}")[1]["state"] == "paused", "it runs on")
        envd = {"E2b_Sandbox_Id": name, "E2b_Sandbox_Port": "49983",
                "X_Access_Token": made["envdAccessToken"]}
        assert cold.api("GET", "/envs", **envd)[0] == 502
        assert cold.api("GET", "/", E2b_Sandbox_Id=name, E2b_Sandbox_Port="8000")[0] == 502
        assert cold.api("GET", f"/sandboxes/{name}")[1]["state"] == "paused"
        assert cold.api("POST", f"/sandboxes/{name}/connect", {"timeout": 100})[0] == 201
        assert cold.api("GET", "/envs", **envd)[0] == 200
    finally:
        assert cold.api("DELETE", f"/sandboxes/{name}")[0] == 204


def test_a_sandbox_can_be_paused_and_connected_again_and_again(cold, make):
    sandbox = make()
    for number in range(3):
        sandbox.files.write(f"file{number}", "x")
        assert sandbox.pause(keep_memory=number % 2 == 1)
        assert connect(cold, sandbox)[0] == 201
    assert sandbox.commands.run("echo file*").stdout == "file0 file1 file2\n"


def test_requests_during_a_pause_do_not_end_the_sandbox(cold, make):
    stop = threading.Event()

    def probe(name):
        while not stop.is_set():
            cold.api("GET", "/health", E2b_Sandbox_Id=name, E2b_Sandbox_Port="49983")

    sandbox = make()
    sandbox.files.write("file", "kept")
    threads = [threading.Thread(target=probe, args=[sandbox.sandbox_id]) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert sandbox.pause(keep_memory=False)
            assert connect(cold, sandbox)[0] == 201
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert sandbox.files.read("file") == "kept"


def test_a_sandbox_without_memory_is_killed(cold, make):
    sandbox = make()
    assert sandbox.pause(keep_memory=False)
    assert sandbox.kill() and not sandbox.kill()
    assert connect(cold, sandbox)[0] == 404 and traces(sandbox.sandbox_id) == []


def test_a_sandbox_without_memory_stays_when_its_keeper_has_left(cold, make):
    sandbox = make()
    sandbox.files.write("file", "kept")
    assert sandbox.pause(keep_memory=False)
    assert cold.api("GET", f"/sandboxes/{sandbox.sandbox_id}/metrics")[0] == 200
    time.sleep(4)  # longer than an idle keeper stays
    assert connect(cold, sandbox)[0] == 201 and sandbox.files.read("file") == "kept"


def test_a_pause_that_was_acknowledged_survives_the_server(own_server):
    server = own_server("--storage", "disk")
    sandboxes = [Sandbox.create(timeout=600) for _ in range(2)]
    for sandbox in sandboxes:
        sandbox.files.write("file", "kept")
    assert sandboxes[0].pause(keep_memory=False)
    server.restart()
    assert [state(server, one) for one in sandboxes] == ["paused", "running"]
    assert connect(server, sandboxes[0])[0] == 201
    server.restart()
    assert [state(server, one) for one in sandboxes] == ["running", "running"]
    for sandbox in sandboxes:
        assert sandbox.files.read("file") == "kept"


@pytest.mark.parametrize("delay_ms", range(0, 40, 5))
def test_a_pause_keeps_the_files_whenever_the_server_is_killed(cold, delay_ms):
    """The client has no reply then: the sandbox runs or is paused, and its files are there."""
    made = Sandbox.create(timeout=600, **cold.options_of("default"))
    made.files.write("file", "kept")
    with cold.connect() as raw:
        raw.sendall(f"POST /sandboxes/{made.sandbox_id}/pause HTTP/1.1\r\nHost: localhost\r\n"
                    f"X-API-KEY: {cold.key}\r\nContent-Length: 16\r\n\r\n"
                    '{"memory":false}'.encode())
        time.sleep(delay_ms / 1000)
        cold.restart()
    assert state(cold, made) in ("paused", "running")
    assert connect(cold, made)[0] in (200, 201)
    assert made.files.read("file") == "kept"
    made.kill()


def test_an_invalid_pause_is_refused(cold, make):
    sandbox = make()
    assert cold.api("POST", f"/sandboxes/{sandbox.sandbox_id}/pause", {"memory": 1})[0] == 400
    with pytest.raises(SandboxException):
        Sandbox.pause("neverwas", **cold.options_of("default"))
    assert sandbox.is_running()


def test_a_sandbox_in_memory_cannot_be_paused_without_it_and_runs_on(own_server):
    server = own_server()
    sandbox = Sandbox.create(timeout=600)
    body = {"templateID": "base", "autoPause": True, "autoPauseMemory": False}
    assert server.api("POST", "/sandboxes", body)[0] == 501
    sandbox.commands.run("sleep 3600", background=True)
    with pytest.raises(SandboxException, match="501"):
        sandbox.pause(keep_memory=False)
    assert sandbox.is_running() and len(sandbox.commands.list()) == 1
    assert sandbox.pause() and connect(server, sandbox)[0] == 201
    server.restart()
    assert state(server, sandbox) == "running" and len(sandbox.commands.list()) == 1
