# SPDX-License-Identifier: Apache-2.0
"""Pauses that meet something else: who comes while a sandbox is being paused, who
leaves then, and a pause that fails."""

import contextlib
import json
import os
import select
import signal
import threading
from datetime import datetime, timezone

import pytest
from e2b import Sandbox
from raw import Answers, Stream, ask, connect, request, sized, start
from serving import Server, unavailable, wait_until


@pytest.fixture(name="own")
def fixture_own(own_server):
    """A server with one sandbox and so with one keeper; and the path of that sandbox."""
    server = own_server()

    def create(**more):
        status, sandbox = server.api("POST", "/v2/sandboxes", {"templateID": "base", **more})
        assert status == 201
        return server, sandbox, f"/sandboxes/{sandbox['sandboxID']}"

    return create


@contextlib.contextmanager
def held_up(server):
    """The keeper does nothing meanwhile; what is sent to it waits."""
    keeper, = server.keepers()
    os.kill(keeper, signal.SIGSTOP)
    try:
        yield keeper
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may be dead by now
            os.kill(keeper, signal.SIGCONT)


def state(server, path):
    return server.api("GET", path)[1]["state"]


def send(server, path, body, *headers):
    """Asks, and returns when the broker has heard of it; the answer is to be read then."""
    client = connect(server)
    client.sendall(sized(f"POST {path}", json.dumps(body).encode(),
                         f"X-API-KEY: {server.key}", *headers))
    assert server.api("GET", "/v2/sandboxes")[0] == 200
    return Answers(client)


def test_a_connect_during_a_pause_resumes_the_sandbox(own):
    server, _, path = own()
    with held_up(server):
        paused = send(server, f"{path}/pause", {})
        connected = send(server, f"{path}/connect", {"timeout": 600})
        assert server.api("POST", f"{path}/timeout", {"timeout": 600})[0] == 409
    assert paused.next().status == 204
    assert connected.next().status == 201
    assert state(server, path) == "running"


def test_a_request_during_a_pause_resumes_the_sandbox(own):
    server, sandbox, path = own(autoPause=True, autoResume={"enabled": True})
    with held_up(server):
        paused = send(server, f"{path}/pause", {})
        used = send(server, "/filesystem.Filesystem/Stat", {"path": "/"},
                    f"E2b-Sandbox-Id: {sandbox['sandboxID']}", "E2b-Sandbox-Port: 49983",
                    f"X-Access-Token: {sandbox['envdAccessToken']}")
    assert paused.next().status == 204
    answer = used.next()
    assert answer.status == 200 and answer.json["entry"]["path"] == "/", answer
    assert state(server, path) == "running"


def test_a_pause_at_the_end_of_its_time_that_fails_is_tried_again(own):
    server, _, path = own(autoPause=True)
    with held_up(server) as keeper:
        assert server.api("POST", f"{path}/timeout", {"timeout": 0})[0] == 204
        wait_until(lambda: server.api("POST", f"{path}/refreshes", {"duration": 0})[0] == 409,
                   "the broker does not pause it")
        os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: state(server, path) == "paused", "it goes on though its time is over")


def test_streams_may_be_left_while_it_is_being_paused(own_server, monkeypatch):
    """What the keeper has let go of is of no use to it then: here it would crash."""
    monkeypatch.setenv("MALLOC_PERTURB_", "165")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")
    server = own_server()
    sandbox = Sandbox.create()
    keeper, = server.keepers()
    clients = [connect(server) for _ in range(5)]
    for client in clients:
        client.sendall(start(sandbox, "/bin/sleep", "1000"))
        next(Stream(client).events())
    before = server.held()
    with held_up(server):
        paused = send(server, f"/sandboxes/{sandbox.sandbox_id}/pause", {})
        for client in clients:
            client.close()
        wait_until(lambda: server.held() < before, "the front did not see them leave")
    assert paused.next().status == 204
    assert sandbox.connect().commands.run("echo fine").stdout == "fine\n"
    assert server.keepers() == [keeper], "the keeper has crashed"


def end_of(server, path):
    return server.api("GET", path)[1]["endAt"]


def own_clock(server, sandbox):
    """Seconds until it ends by itself, whatever its record says."""
    listed = json.loads(server.cay("ls", "-o", "json").stdout)["sandboxes"]
    (left,) = [one["ttl_left_ms"] for one in listed if one["id"] == f"sb-{sandbox['sandboxID']}"]
    return left / 1000


def test_a_short_timeout_of_a_concurrent_connect_does_not_shorten_the_longer_one(own):
    """Both ask for a sandbox that is paused; the second to be answered has it running."""
    server, sandbox, path = own(autoResume={"enabled": True})
    assert server.api("POST", f"{path}/pause", {})[0] == 204
    with held_up(server):
        long = send(server, f"{path}/connect", {"timeout": 5000})
        used = send(server, "/filesystem.Filesystem/Stat", {"path": "/"},
                    f"E2b-Sandbox-Id: {sandbox['sandboxID']}", "E2b-Sandbox-Port: 49983",
                    f"X-Access-Token: {sandbox['envdAccessToken']}")
        short = send(server, f"{path}/connect", {"timeout": 60})
    assert long.next().status == 201 and used.next().status == 200
    assert short.next().status in (200, 201)
    left = datetime.fromisoformat(end_of(server, path)) - datetime.now(timezone.utc)
    assert left.total_seconds() > 4000
    wait_until(lambda: own_clock(server, sandbox) > 4000, "it ends itself before that")
    assert state(server, path) == "running"


def test_time_that_was_given_is_not_lost_with_a_keeper(own):
    server, sandbox, path = own(timeout=300)
    with held_up(server) as keeper:
        assert server.api("POST", f"{path}/timeout", {"timeout": 600})[0] == 204
        os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: own_clock(server, sandbox) > 500, "it ends itself before that")
    assert server.api("DELETE", path)[0] == 204


@pytest.mark.parametrize("what, status, then", [("pause", 204, "paused"), ("resume", 201, "running")])
def test_a_keeper_that_is_lost_meanwhile_is_not_the_end_of_it(own, what, status, then):
    server, _, path = own()
    if what == "resume":
        assert server.api("POST", f"{path}/pause", {})[0] == 204
    with held_up(server) as keeper:
        asked = send(server, f"{path}/{what}", {})
        os.kill(keeper, signal.SIGKILL)
    assert asked.next().status == status
    assert state(server, path) == then


def of_sandbox(sandbox):
    return (f"E2b-Sandbox-Id: {sandbox['sandboxID']}", "E2b-Sandbox-Port: 49983",
            f"X-Access-Token: {sandbox['envdAccessToken']}")


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_sandbox_is_not_said_to_be_gone_with_its_keeper(own, is_gone):
    server, sandbox, path = own()
    lines = ("/filesystem.Filesystem/Stat", "/process.Process/List")
    change = "/filesystem.Filesystem/MakeDir"  # which only the client may make again
    with held_up(server) as keeper:
        asked = [send(server, line, {"path": "/"}, *of_sandbox(sandbox))
                 for line in (*lines, change)]
        if is_gone:
            assert server.cay("rm", f"sb-{sandbox['sandboxID']}").returncode == 0
        os.kill(keeper, signal.SIGKILL)
    for one, unless_gone in zip(asked, (200, 200, 503), strict=True):
        answer = one.next()
        assert answer.status == (502 if is_gone else unless_gone), answer
        assert (b"The sandbox was not found" in answer.body) == is_gone
    again = send(server, lines[0], {"path": "/"}, *of_sandbox(sandbox)).next()
    assert again.status == (502 if is_gone else 200)
    assert server.api("GET", path)[0] == (404 if is_gone else 200)


def test_a_sandbox_is_not_said_to_be_gone_with_several_keepers(own):
    """Neither are those who ask why nobody has answered."""
    server, sandbox, path = own()
    is_over = threading.Event()

    def kill_them():
        while not is_over.is_set():
            for keeper in server.keepers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(keeper, signal.SIGKILL)

    killer = threading.Thread(target=kill_them)
    killer.start()
    try:
        asks = [sized("POST /filesystem.Filesystem/Stat", b'{"path":"/"}',
                      *of_sandbox(sandbox), "Connection: close"),
                request(f"GET {path}/metrics", f"X-API-KEY: {server.key}", "Connection: close")]
        seen = {ask(server, one).status for one in asks * 100}
    finally:
        is_over.set()
        killer.join()
    assert seen <= {200, 503}
    assert state(server, path) == "running"


def test_a_signed_url_works_after_the_keeper_is_killed(own_server):
    server = own_server()
    sandbox = Sandbox.create()
    sandbox.files.write("f", "x")
    url = sandbox.download_url("f").removeprefix(server.url)
    with held_up(server) as keeper, connect(server) as client:
        client.sendall(request(f"GET {url}"))
        assert server.api("GET", "/v2/sandboxes")[0] == 200
        os.kill(keeper, signal.SIGKILL)
        assert Answers(client).next().status == 200
    assert ask(server, request(f"GET {url}", "Connection: close")).body == b"x"


def test_requests_that_cannot_resume_the_sandbox_now_get_503(own):
    server, sandbox, path = own(autoResume={"enabled": True})
    assert server.api("POST", f"{path}/pause", {})[0] == 204
    data = sized("POST /filesystem.Filesystem/Stat", b'{"path":"/"}', *of_sandbox(sandbox))
    with contextlib.ExitStack() as stack:
        clients, refused = [], []
        with held_up(server):
            while not refused and len(clients) < 600:
                clients.append(stack.enter_context(connect(server)))
                clients[-1].sendall(data)
                assert server.api("GET", path)[0] == 200  # so the broker has heard of it
                refused = select.select(clients, [], [], 0)[0]
            assert {Answers(client).next().status for client in refused} == {503}
        assert Answers(clients[0]).next().status == 200
    assert state(server, path) == "running"


def test_a_request_during_a_failing_pause_finds_the_sandbox_running(tmp_path):
    """Here no pause can be: there is nothing to be woken, either."""
    if os.geteuid() != 0:
        unavailable("only root can take the cgroups away")
    server = Server(tmp_path / "home", "--reserve", "0")
    server.before = ("unshare", "-m", "sh", "-c",
                     'umount -lR /sys/fs/cgroup && exec "$0" "$@"')
    server.start()
    with contextlib.ExitStack() as stack:
        stack.callback(server.clean)
        status, sandbox = server.api("POST", "/v2/sandboxes", {
            "templateID": "base", "autoResume": {"enabled": True}})
        assert status == 201
        path = f"/sandboxes/{sandbox['sandboxID']}"
        with held_up(server):
            paused = send(server, f"{path}/pause", {})
            connected = send(server, f"{path}/connect", {"timeout": 600})
            used = send(server, "/filesystem.Filesystem/Stat", {"path": "/"}, *of_sandbox(sandbox))
        assert paused.next().status == 501
        assert connected.next().status in (200, 201)
        assert used.next().status == 200
        assert state(server, path) == "running"
