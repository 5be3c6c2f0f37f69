# SPDX-License-Identifier: Apache-2.0
"""Where one thing ends and another begins: requests that race, that are too large, that name
a server or a sandbox in an odd way, and what is said when there is no more sandbox."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import quote

import pytest
from serving import Server

ROOT = Path(__file__).resolve().parents[2]
CAY = os.environ.get("CAY_BIN", str(ROOT / "build" / "cay"))
PATIENCE = 60  # seconds: for a machine that is very slow, not for waiting
HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def hear(client):
    heard = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            heard += piece
    return heard


def talk(server, data):
    """Sends, and returns all that comes until the server closes."""
    with server.connect() as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
        return hear(client)


def request(line, *headers, body=b"", host="127.0.0.1"):
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {host}", *headers]).encode() + b"\r\n\r\n" + body


def status_of(heard):
    """Of the one reply that came; there is to be no second."""
    found = HEAD.findall(heard)
    assert len(found) == 1, heard[:400]
    return int(found[0])


def body_of(heard):
    return json.loads(heard.partition(b"\r\n\r\n")[2])


def create(server, path="/v2/sandboxes", timeout=120, **more):
    status, body = server.api("POST", path, {"templateID": "base", "timeout": timeout, **more})
    assert status == 201, body
    return body


def of(sandbox, *headers):
    return (f"E2b-Sandbox-Id: {sandbox['sandboxID']}", "E2b-Sandbox-Port: 49983",
            f"X-Access-Token: {sandbox['envdAccessToken']}", "Connection: close", *headers)


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# --- The end of a sandbox ---


def test_of_many_who_kill_one_did(server):
    for _ in range(3):
        path = f"/sandboxes/{create(server)['sandboxID']}"
        with ThreadPoolExecutor(16) as pool:
            seen = list(pool.map(lambda _, path=path: server.api("DELETE", path), range(16)))
        assert sorted(status for status, _ in seen) == [204] + [404] * 15
        assert {body["message"].rpartition('"')[2] for _, body in seen if body} == {" was killed"}


def test_what_is_asked_while_it_is_killed_is_answered_truly(server):
    key = f"X-API-KEY: {server.key}"
    for _ in range(3):
        sandbox = create(server)
        path = f"/sandboxes/{sandbox['sandboxID']}"
        asks = [request(f"POST {path}/pause", key, "Connection: close", "Content-Length: 2", body=b"{}"),
                request(f"POST {path}/connect", key, "Connection: close", "Content-Length: 14",
                        body=b'{"timeout":60}'),
                request(f"GET {path}", key, "Connection: close"),
                request(f"GET {path}/metrics", key, "Connection: close"),
                request(f"DELETE {path}", key, "Connection: close"),
                request("GET /health", *of(sandbox)),
                request("GET /files?path=/etc/hostname", *of(sandbox)),
                request("POST /process.Process/List", *of(sandbox), "Content-Length: 2", body=b"{}")]
        with ThreadPoolExecutor(16) as pool:
            heard = list(pool.map(lambda data: talk(server, data), asks * 6))
        seen = [status_of(one) for one in heard]
        assert set(seen) <= {200, 201, 204, 404, 409, 502, 503}, seen
        assert seen.count(204) >= 1
        assert server.api("GET", path)[0] == 404


def test_a_dead_sandbox_says_why_to_those_who_had_it(server):
    killed, expired = create(server), create(server)
    server.api("DELETE", f"/sandboxes/{killed['sandboxID']}")
    server.api("POST", f"/sandboxes/{expired['sandboxID']}/timeout", {"timeout": 0})
    wait_until(lambda: server.api("GET", f"/sandboxes/{expired['sandboxID']}")[0] == 404)
    for sandbox, reason in ((killed, "was killed"), (expired, "reached its end of life")):
        name = sandbox["sandboxID"]
        assert server.api("GET", f"/sandboxes/{name}")[1]["message"] == f'sandbox "{name}" {reason}'
        told = body_of(talk(server, request("POST /process.Process/List", *of(sandbox),
                                            "Content-Length: 2", body=b"{}")))
        assert told == {"sandboxId": name, "message": "The sandbox was not found",
                        "reason": reason, "code": 502}
        stranger = body_of(talk(server, request("POST /process.Process/List", *of(
            {**sandbox, "envdAccessToken": "0" * 64}), "Content-Length: 2", body=b"{}")))
        assert "reason" not in stranger and stranger["code"] == 502


def test_a_sandbox_that_ended_unseen_is_told_as_gone(server):
    """Somebody ended it past us: nobody is told that he did, and nothing is an accident."""
    for ask in (("DELETE", "", None), ("POST", "/pause", {}), ("GET", "/metrics", None)):
        name = create(server)["sandboxID"]
        assert server.cay("rm", f"sb-{name}").returncode == 0
        status, body = server.api(ask[0], f"/sandboxes/{name}{ask[1]}", ask[2])
        assert (status, body["code"]) == (404, 404), body
        wait_until(lambda name=name: "ended by itself" in
                   server.api("GET", f"/sandboxes/{name}")[1].get("message", ""))


def test_a_keeper_that_is_killed_costs_no_sandbox(own_server):
    server = own_server()
    sandbox = create(server)
    path = f"/sandboxes/{sandbox['sandboxID']}"
    for _ in range(3):
        for pid in keepers(server):
            os.kill(pid, signal.SIGKILL)
        assert server.api("POST", f"{path}/pause", {})[0] in (204, 503)
        wait_until(lambda: server.api("POST", f"{path}/connect", {"timeout": 60})[0] in (200, 201))
    assert server.api("DELETE", path)[0] == 204


def records(server):
    return sqlite3.connect(f"file:{server.home}/serve.db", uri=True, isolation_level=None,
                           timeout=PATIENCE)


def test_what_cannot_be_written_is_true_all_the_same(own_server):
    """Somebody holds the database for longer than anybody waits."""
    server = own_server()
    killed, paused = create(server)["sandboxID"], create(server)["sandboxID"]

    def states():
        with contextlib.closing(records(server)) as database:
            return dict(database.execute("SELECT id, state FROM sandboxes"))

    with contextlib.closing(records(server)) as database:
        database.execute("BEGIN IMMEDIATE")
        assert server.api("DELETE", f"/sandboxes/{killed}") == (204, None)
        assert server.api("POST", f"/sandboxes/{paused}/pause", {})[0] == 204
        assert server.api("GET", f"/sandboxes/{killed}")[0] == 404
        assert server.api("GET", f"/sandboxes/{paused}")[1]["state"] == "paused"
        listed = server.api("GET", "/v2/sandboxes")[1]
        assert [(one["sandboxID"], one["state"]) for one in listed] == [(paused, "paused")]
        assert states() == {killed: 1, paused: 1}
        database.execute("ROLLBACK")
    wait_until(lambda: states() == {killed: 3, paused: 2})
    assert server.api("DELETE", f"/sandboxes/{paused}")[0] == 204


def test_what_cannot_be_read_is_not_gone(own_server):
    server = own_server()
    sandbox = create(server)
    asks = ("GET", f"/sandboxes/{sandbox['sandboxID']}"), ("POST", "/filesystem.Filesystem/Stat")

    def statuses():
        return [server.api(*ask, {"path": "/"}, E2b_Sandbox_Id=sandbox["sandboxID"],
                           X_Access_Token=sandbox["envdAccessToken"])[0] for ask in asks]

    with contextlib.closing(records(server)) as database:
        database.execute("ALTER TABLE sandboxes RENAME TO elsewhere")
        assert statuses() == [503, 503]
        database.execute("ALTER TABLE elsewhere RENAME TO sandboxes")
        assert statuses() == [200, 200]


def test_records_that_are_behind_are_put_right_at_the_start(own_server):
    server = own_server()
    paused, gone = create(server)["sandboxID"], create(server)["sandboxID"]
    assert server.api("POST", f"/sandboxes/{paused}/pause", {})[0] == 204
    server.kill()
    assert server.cay("rm", f"sb-{gone}").returncode == 0
    with contextlib.closing(records(server)) as database:
        database.execute("UPDATE sandboxes SET state = 1")
    server.start()
    assert server.api("GET", f"/sandboxes/{paused}")[1]["state"] == "paused"
    assert server.api("GET", f"/sandboxes/{gone}")[0] == 404
    assert server.api("DELETE", f"/sandboxes/{paused}")[0] == 204


# --- Lists ---


def listed(server, query, key=None):
    status, body = server.api("GET", f"/v2/sandboxes?{query}", X_API_KEY=key or server.key)
    assert status == 200, body
    return [one["sandboxID"] for one in body]


def test_lists_are_filtered_by_when_a_sandbox_was_started(server):
    key = server.new_key("times")
    made = []
    for _ in range(3):
        status, body = server.api("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60},
                                  X_API_KEY=key)
        assert status == 201
        made.append(body["sandboxID"])
        time.sleep(0.002)
    middle = server.api("GET", f"/sandboxes/{made[1]}", X_API_KEY=key)[1]["startedAt"]
    start = datetime.fromisoformat(middle.replace("Z", "+00:00"))
    zone = timezone(timedelta(hours=-3, minutes=-30))
    for text in (middle, start.isoformat(), start.astimezone(zone).isoformat(),
                 start.isoformat().replace("T", " ")):
        assert listed(server, "startedAfter=" + quote(text), key) == [made[2], made[1]], text
    # "+" as it is
    assert listed(server, "startedAfter=" + start.isoformat(), key) == [made[2], made[1]]
    later = quote((start + timedelta(microseconds=1)).isoformat())
    assert listed(server, f"startedAfter={later}", key) == [made[2]]
    earlier = quote((start - timedelta(milliseconds=1)).isoformat())
    assert listed(server, f"startedAfter={earlier}&order=asc", key) == made[1:]
    assert listed(server, f"startedAfter={earlier}&limit=1", key) == made[2:]
    assert listed(server, "startedAfter=2100-01-01T00:00:00Z", key) == []
    assert len(listed(server, "startedAfter=1970-01-01T00:00:01Z", key)) == 3
    for name in made:
        assert server.api("DELETE", f"/sandboxes/{name}", X_API_KEY=key)[0] == 204


@pytest.mark.parametrize("query", [
    "startedAfter=x", "startedAfter=2026-01-01", "startedAfter=2026-13-01T00:00:00Z",
    "startedAfter=2026-02-30T00:00:00Z", "startedAfter=2026-01-01T24:00:00Z",
    "startedAfter=2026-01-01T00:00:00", "startedAfter=2026-01-01T00:00:00.Z",
    "startedAfter=2026-01-01T00:00:00Zx", "startedAfter=2026-01-01T00:00:00%2B25:00",
    "limit=0", "limit=101", "limit=-1", "limit=1x", "limit=", "limit=%2B1", "order=up", "state=dead",
    "state=running,", "nextToken=%25", "nextToken=-abc", "nextToken=1", "nextToken=1-" + "a" * 40])
def test_a_filter_that_is_none_is_refused(server, query):
    status, body = server.api("GET", f"/v2/sandboxes?{query}")
    assert (status == 400 and body["code"] == 400) or query == "state=running,"


def test_how_many_run_is_told(server):
    key = server.new_key("counted")

    def total():
        heard = talk(server, request("GET /v2/sandboxes?limit=1", f"X-API-KEY: {key}",
                                     "Connection: close"))
        return int(re.search(rb"X-Total-Running: (\d+)", heard)[1])

    assert total() == 0
    made = [server.api("POST", "/v2/sandboxes", {"templateID": "base"}, X_API_KEY=key)[1]
            for _ in range(2)]
    assert total() == 2
    server.api("POST", f"/sandboxes/{made[0]['sandboxID']}/pause", {}, X_API_KEY=key)
    assert total() == 1
    for one in made:
        assert server.api("DELETE", f"/sandboxes/{one['sandboxID']}", X_API_KEY=key)[0] == 204


def test_metrics_are_of_the_time_that_is_asked_for(server):
    sandbox = create(server)
    path = f"/sandboxes/{sandbox['sandboxID']}/metrics"
    now = int(time.time())
    for query, count in (("", 1), (f"?start={now - 60}&end={now}", 1), (f"?start={now + 3600}", 0),
                         (f"?end={now - 3600}", 0)):
        status, body = server.api("GET", path + query)
        assert (status, len(body)) == (200, count), query
    for query in ("?start=x", "?end=-1", f"?start={now}&end={now - 1}", "?start="):
        assert server.api("GET", path + query)[0] == 400, query
    server.api("DELETE", f"/sandboxes/{sandbox['sandboxID']}")


# --- Too much ---


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


SMALL = "POST /sandboxes/abc/timeout"  # takes 64 KiB


def test_a_body_that_says_it_is_too_large_is_refused_unread(server):
    for line, length in ((SMALL, 1 << 30), ("POST /v2/sandboxes", 1 << 30),
                         ("GET /health", (4 << 10) + 1),
                         ("DELETE /sandboxes/abc", 1 << 40), (SMALL, (64 << 10) + 1)):
        began = time.monotonic()
        heard = talk(server, request(line, f"Content-Length: {length}"))
        assert status_of(heard) == 413, heard
        assert b"connection: close" in heard.lower()
        assert time.monotonic() - began < 5


def test_expect_100_continue_with_a_large_body_gets_413(server):
    expect = "Expect: 100-continue"
    heard = talk(server, request(SMALL, expect, f"Content-Length: {1 << 30}"))
    assert status_of(heard) == 413 and b" 100 " not in heard
    with server.connect() as client:  # a body within the limit gets it
        client.sendall(request(SMALL, f"X-API-KEY: {server.key}", expect, "Content-Length: 13",
                               "Connection: close"))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        client.sendall(b'{"timeout":1}')
        assert status_of(hear(client)) == 404


def test_a_body_that_grows_too_large_is_refused_while_it_comes(server):
    piece = b"%x\r\n%s\r\n" % (32 << 10, b"x" * (32 << 10))
    front = server.front()
    before = resident(front)
    with server.connect() as client:  # says nothing more, and does not close
        client.sendall(request(SMALL, "Transfer-Encoding: chunked", body=piece * 3))
        began = time.monotonic()
        heard = hear(client)
        assert status_of(heard) == 413 and body_of(heard)["code"] == 413
        assert time.monotonic() - began < 5
    with server.connect() as client:  # does not stop: is cut
        client.sendall(request(SMALL, "Transfer-Encoding: chunked"))
        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                client.sendall(piece)
        assert status_of(hear(client)) == 413
    ended = talk(server, request(SMALL, "Transfer-Encoding: chunked", body=piece * 3 + b"0\r\n\r\n"))
    assert status_of(ended) == 413
    assert resident(front) - before < 2048
    assert server.front() == front and server.api("GET", "/health")[0] == 204


# --- Names ---

PATHS = ("GET /v2/sandboxes", "GET /health", "GET /metrics")


@pytest.mark.parametrize("label", [
    "x", "abc", "49983", "49983-", "-abc", "0-abc", "00080-abc", "65536-abc", "99999999999-abc",
    "+80-abc", "80-ABC", "80-a.b", "80-a-b", "80-a_b", "80.abc", "a.80-abc", "80--abc", "www", "*",
    "80-" + "a" * 29, "80-" + "a" * 200, "api.x", "..", "80-abc.", "%38%30-abc"])
def test_a_name_below_ours_that_is_no_sandbox_never_means_the_server(server, label):
    for line in PATHS:
        heard = talk(server, request(line, f"X-API-KEY: {server.key}", "Connection: close",
                                     host=f"{label}.localhost:{server.port}"))
        status = status_of(heard)
        assert status in (400, 421) or (status == 502 and label == "80-ABC"), heard
        assert body_of(heard)["code"] == status


@pytest.mark.parametrize("host", ["localhost:x", "localhost:", "localhost:999999", "[::1", "[::1]x",
                                  "127.0.0.1:80:80", "localhost.", ".localhost", "a" * 300, "localhost/"])
def test_a_host_that_is_none_is_nobodys(server, host):
    heard = talk(server, request("GET /health", "Connection: close", host=host))
    assert status_of(heard) in (400, 421), heard


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:80", "api.localhost",
                                  "sandbox.localhost:3000"])
def test_the_servers_own_names_are_its_own(server, host):
    assert status_of(talk(server, request("GET /health", "Connection: close", host=host))) == 204


def test_a_domain_of_its_own(own_server):
    server = own_server("--domain", "box.example:8443")
    sandbox = create(server)
    name = sandbox["sandboxID"]
    for host, status in (("box.example", 204), ("api.box.example:8443", 204), ("example", 421),
                         ("x.box.example", 400), ("xbox.example", 421), (f"49983-{name}.box.example", 204),
                         (f"49983-{name}.localhost", 204), ("49983-nobody.box.example", 502),
                         (f"49983-{name}.x.box.example", 400)):
        heard = talk(server, request("GET /health", "Connection: close", host=host))
        assert status_of(heard) == status, (host, heard)
    assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204


def test_which_sandbox_is_said_once(server):
    sandbox = create(server)
    name = sandbox["sandboxID"]
    heard = talk(server, request("GET /health", *of(sandbox), "E2b-Sandbox-Id: other"))
    assert status_of(heard) == 400
    heard = talk(server, request("GET /health", *of({**sandbox, "sandboxID": "other"}),
                                 host=f"49983-{name}.localhost"))
    assert status_of(heard) == 204  # the name is what counts
    server.api("DELETE", f"/sandboxes/{name}")


@pytest.mark.parametrize("origin", ["null", "http://localhost:1", "http://3000-abc.localhost:{port}",
                                    "https://evil.example", "file://", "127.0.0.1:{port}", "", "://"])
def test_pages_that_are_not_from_here_are_refused(server, origin):
    origin = origin.format(port=server.port)
    for line in PATHS + ("GET /files?path=/etc/passwd",):
        heard = talk(server, request(line, f"X-API-KEY: {server.key}", f"Origin: {origin}",
                                     "Connection: close", host=f"127.0.0.1:{server.port}"))
        assert status_of(heard) == 403, heard
        assert b"access-control" not in heard.lower()


def test_a_page_from_here_may_ask(server):
    host = f"127.0.0.1:{server.port}"
    heard = talk(server, request("GET /v2/sandboxes", f"X-API-KEY: {server.key}", "Connection: close",
                                 f"Origin: http://{host}", host=host))
    assert status_of(heard) == 200


# --- The internet ---


def test_whether_there_is_an_internet_is_said(server):
    made = create(server)  # as the newer SDKs do
    old = create(server, "/sandboxes", allow_internet_access=True)  # as the older always do
    shut = create(server, allow_internet_access=False)
    for sandbox in (made, old, shut):
        name = sandbox["sandboxID"]
        assert server.api("GET", f"/sandboxes/{name}")[1]["allowInternetAccess"] is False
        assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204
    status, body = server.api("POST", "/v2/sandboxes",
                              {"templateID": "base", "allow_internet_access": True})
    assert (status, body["code"]) == (501, 501) and "internet" in body["message"]


def test_a_sandbox_has_internet_access_unless_the_request_denies_it(own_server):
    server = own_server("--internet", "host")
    for more, wanted in (({}, True), ({"allow_internet_access": True}, True),
                         ({"allow_internet_access": False}, False)):
        name = create(server, **more)["sandboxID"]
        assert server.api("GET", f"/sandboxes/{name}")[1]["allowInternetAccess"] is wanted
        assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204


@pytest.mark.parametrize("network", [
    {"allowOut": ["1.1.1.1"]}, {"rules": {"a.example": [{"transform": {"headers": {"X-A": "b"}}}]}},
    {"egressProxy": {"address": "127.0.0.1:1"}}, {"httpsPorts": [443]}])
def test_a_network_that_cannot_be_had_is_refused(server, network):
    status, body = server.api("POST", "/v2/sandboxes", {"templateID": "base", "network": network})
    assert (status, body["code"]) == (501, 501), body


# --- Sandboxes in reserve ---


def keepers(server):
    found = set()
    for pid in server.children():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "cay-keeper\n":
                found.add(pid)
    return found


def first_process(keeper):
    """Of the sandbox that a keeper looks after, outside; 0: it has none, or is gone."""
    with contextlib.suppress(OSError):
        for info in Path(f"/proc/{keeper}/fdinfo").iterdir():
            found = re.search(r"^Pid:\t([1-9]\d*)$", info.read_text(), re.M)
            if found:
                return int(found[1])
    return 0


def is_alive(pid):
    with contextlib.suppress(OSError):
        return not re.search(r"^State:\t[ZX]", Path(f"/proc/{pid}/status").read_text(), re.M)
    return False


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_a_reserve_goes_with_the_server_and_leaves_no_trace(own_server, end):
    def recorded():
        return {path.name for path in Path("/run/cay").glob("sb-*") if not path.suffix}

    others = recorded()
    server = own_server("--pool", "2")
    wait_until(lambda: len(recorded() - others) == 2)
    spares = recorded() - others
    end(server)
    wait_until(lambda: not spares & recorded())


def test_a_reserve_is_filled_again_when_its_sandboxes_end(own_server):
    memory = 335 << 20  # tells them from others on this machine
    server = own_server("--pool", "2", "--memory", "335M")

    def spares():
        listed = json.loads(server.cay("ls", "--all", "-o", "json").stdout)["sandboxes"]
        return {one["id"]: one["init_pid"] for one in listed
                if one["limits"]["memory_bytes"] == memory and one["state"] == "spare"}

    wait_until(lambda: len(spares()) == 2)
    before = spares()
    for init in before.values():
        os.kill(init, signal.SIGKILL)
    name = create(server)["sandboxID"]
    assert server.api("GET", f"/sandboxes/{name}")[0] == 200
    wait_until(lambda: server.has_spares(2) and len(set(spares()) - set(before)) == 2)
    before, (pool, _) = spares(), server.pool()
    os.kill(pool, signal.SIGKILL)
    wait_until(lambda: not any(is_alive(init) for init in before.values()))
    wait_until(lambda: server.pool()[0] not in (None, pool) and server.has_spares(2))
    used = create(server)["sandboxID"]
    assert server.api("DELETE", f"/sandboxes/{used}")[0] == 204
    assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204


def test_a_spare_that_was_killed_just_before_its_claim_fails_no_create(own_server):
    """PID 1 is stopped: its socket takes the claim, and the first request waits until it is killed."""
    memory = 336 << 20
    server = own_server("--pool", "1", "--memory", "336M")

    def spares():
        listed = json.loads(server.cay("ls", "--all", "-o", "json").stdout)["sandboxes"]
        return {one["id"]: one["init_pid"] for one in listed
                if one["limits"]["memory_bytes"] == memory and one["state"] == "spare"}

    wait_until(lambda: server.has_spares(1) and len(spares()) == 1)
    [(spare, init)] = spares().items()
    record = Path("/run/cay") / spare  # written with the claim, just before it is sent
    offered = record.read_bytes()
    os.kill(init, signal.SIGSTOP)
    with ThreadPoolExecutor() as pool:
        made = pool.submit(create, server)
        wait_until(lambda: record.read_bytes() != offered)
        time.sleep(0.2)
        os.kill(init, signal.SIGKILL)
        name = made.result()["sandboxID"]
    assert f"sb-{name}" != spare
    assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204


def test_a_reserve_serves_clients_that_set_an_environment_and_metadata(own_server):
    server = own_server("--pool", "1")
    wait_until(lambda: server.has_spares(1))
    offered = {path.name.partition("-")[2] for path in Path("/run/cay/spares").iterdir()}
    status, made = server.api("POST", "/v2/sandboxes", {
        "templateID": "base", "envVars": {"COLOR": "blue"}, "metadata": {"a": "b"}})
    assert status == 201 and f"sb-{made['sandboxID']}" in offered
    status, envs = server.api("GET", "/envs", E2b_Sandbox_Id=made["sandboxID"],
                              X_Access_Token=made["envdAccessToken"])
    assert status == 200 and envs["COLOR"] == "blue"
    assert server.api("GET", f"/sandboxes/{made['sandboxID']}")[1]["metadata"] == {"a": "b"}


def test_a_reserve_of_sandboxes_on_disk_is_refused(tmp_path):
    done = subprocess.run([CAY, "serve", "--pool", "1", "--storage", "disk"], text=True,
                          env={**os.environ, "CAY_HOME": str(tmp_path)}, capture_output=True,
                          timeout=PATIENCE, check=False)
    assert done.returncode == 2 and "--pool" in done.stderr and "omit --pool" in done.stderr


def test_a_keeper_that_is_killed_while_it_makes_a_sandbox_leaves_none_for_ever(own_server):
    """One that is to be paused at the end of its time has no time of its own, once it is known."""
    memory = 334 << 20  # tells them from others on this machine
    server = own_server("--pool", "1", "--memory", "334M")

    def clocks():
        listed = json.loads(server.cay("ls", "-o", "json").stdout)["sandboxes"]
        return {one["id"]: one["ttl_left_ms"] for one in listed
                if one["limits"]["memory_bytes"] == memory}

    dice, key = random.Random(1), {"templateID": "base", "autoPause": True}
    try:
        with ThreadPoolExecutor(1) as pool:
            for _ in range(40):
                wait_until(lambda: server.has_spares(1))
                made = pool.submit(server.api, "POST", "/v2/sandboxes", key)
                time.sleep(dice.random() * 0.006)
                for keeper in keepers(server):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(keeper, signal.SIGKILL)
                assert made.result()[0] in (201, 503)
        known = {f"sb-{name}" for name in server.ids()}
        wait_until(lambda: all((clock is None) == (name in known) for name, clock in clocks().items()))
    finally:
        for name in clocks():
            server.cay("rm", name)


# --- Memory ---


def test_a_sandbox_that_ends_unasked_is_noticed(own_server):
    server = own_server("--memory", "64M", "--disk", "32M", "--reserve", "0")

    def end(kills):
        known = keepers(server)
        sandbox = create(server)
        (keeper,) = keepers(server) - known
        if kills:
            body = json.dumps({"process": {"cmd": "/bin/bash", "args": [
                "-c", "x=$(head -c 200M /dev/zero | tr '\\0' x)"]}}).encode()
            heard = talk(server, request(
                "POST /process.Process/Start", *of(sandbox), f"Content-Length: {len(body) + 5}",
                "Content-Type: application/connect+json",
                body=b"\0" + len(body).to_bytes(4, "big") + body))
            assert b"out of memory" in heard, heard
        wait_until(lambda: first_process(keeper))
        os.kill(first_process(keeper), signal.SIGKILL)
        path = f"/sandboxes/{sandbox['sandboxID']}"
        wait_until(lambda: server.api("GET", path)[0] == 404)
        assert f"sb-{sandbox['sandboxID']}" not in server.cay("ls", "-q").stdout  # nothing is left
        return server.api("GET", path)[1]["message"].rpartition('" ')[2]

    assert end(kills=False) == "ended by itself"
    assert end(kills=True) == "ran out of memory"


# --- The system starts it ---


def test_a_socket_from_systemd_is_served(server, tmp_path):
    """As systemd does it: the socket is descriptor 3, and two variables say so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with subprocess.Popen(
                ["bash", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve --listen 127.0.0.1:1'
                 f" 3<&{listener.fileno()}", CAY], pass_fds=[listener.fileno()],
                env={**os.environ, "CAY_HOME": str(tmp_path / "home")}, stdout=subprocess.PIPE,
                text=True) as process:
            try:
                assert f"=http://127.0.0.1:{port}\n" in process.stdout.readline()
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE) as reply:
                    assert reply.status == 204
            finally:
                process.terminate()
        assert process.returncode == 0


@pytest.mark.parametrize("ask", [
    ("POST", "/templates"), ("POST", "/v2/templates")])
def test_what_there_is_not_yet_is_said(server, ask):
    status, body = server.api(*ask, {} if ask[0] in ("POST", "PUT") else None)
    assert (status, body["code"]) == (501, 501)
    assert server.api(*ask, {} if ask[0] in ("POST", "PUT") else None, X_API_KEY="no")[0] == 401


def test_a_user_who_cannot_be_read_is_refused_at_once(server):
    """The front once looped on these without a response."""
    sandbox = create(server)
    for value in ("Bearer x", "Basic", "Basic =", "Basic " + "A" * 300):
        heard = talk(server, request("GET /files?path=/etc/hostname", *of(sandbox),
                                     f"Authorization: {value}"))
        assert status_of(heard) in (400, 401), (value, heard)
    server.api("DELETE", f"/sandboxes/{sandbox['sandboxID']}")
