# SPDX-License-Identifier: Apache-2.0
"""Every sandbox that runs is in the store: whichever process of the server ends, and when."""

import http.client
import itertools
import json
import os
import random
import re
import resource
import signal
import sqlite3
import subprocess
import threading
import time
import urllib.request
from contextlib import closing, suppress
from datetime import datetime, timezone
from pathlib import Path

import pytest
from raw import ask, hear, parse, request, sized
from serving import CAY, PATIENCE, Server, unavailable, wait_until
from test_sdk_broken import Listener, ticking

CLIENTS, MADE_MAX = 15, 12
HEALTH = request("GET /health", "Connection: close")
PENDING_S = 10  # a sandbox without a row lives for so long


@pytest.fixture(name="alone")
def fixture_alone(tmp_path):
    """Starts servers that share a runtime directory with nothing else on this machine."""
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    started = []
    with subprocess.Popen(
            ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o mode=700 cay /run/cay && echo ready "
             "&& exec sleep infinity"], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "ready\n"
        inside = ("nsenter", "-t", str(holder.pid), "-m")
        # Without their records the sandboxes of others seem stopped: not in their state directory.
        remove_all = {"args": [*inside, CAY, "rm", "--all"], "check": False, "timeout": PATIENCE,
                      "capture_output": True,
                      "env": {**os.environ, "CAY_HOME": str(tmp_path / "home")}}

        def start(*options):
            server = Server(tmp_path / f"home{len(started)}", "--reserve", "0", *options)
            server.before = inside
            started.append(server)
            return server.start()

        try:
            yield start
            subprocess.run(**remove_all)
            for server in started:
                server.clean()
        finally:
            for server in started:
                if server.process.poll() is None:
                    server.kill()
            subprocess.run(**remove_all)
            holder.kill()


def running(server):
    """The sandboxes in this server's runtime directory, as clients name them."""
    done = subprocess.run([*server.before, CAY, "ls", "-o", "json"], env=server.env, check=True,
                          capture_output=True, text=True, timeout=PATIENCE)
    return {one["id"].removeprefix("sb-") for one in json.loads(done.stdout)["sandboxes"]}


def listed(server):
    """What the API knows, page by page."""
    found, token = set(), ""
    while token is not None:
        page = urllib.request.Request(f"{server.url}/v2/sandboxes?limit=100&nextToken={token}",
                                      headers={"X-API-KEY": server.key})
        with urllib.request.urlopen(page, timeout=PATIENCE) as reply:
            found |= {one["sandboxID"] for one in json.load(reply)}
            token = reply.headers["X-Next-Token"]
    return found


class Creator(threading.Thread):
    """A client that creates sandboxes until the server is gone, or the test is over."""

    def __init__(self, server, over):
        super().__init__(daemon=True)
        self.server, self.over = server, over
        self.made, self.statuses = [], []
        self.start()

    def run(self):
        while not self.over.is_set() and len(self.made) < MADE_MAX:
            with suppress(OSError, http.client.HTTPException, ValueError):
                status, body = self.server.api("POST", "/sandboxes",
                                               {"templateID": "base", "timeout": 300})
                self.statuses.append(status)
                if status == 201:
                    self.made.append(body["sandboxID"])
            time.sleep(0.01)


def create_until(server, act):
    """`act` happens while many create.  All sandboxes whose creation was acknowledged, and all
    statuses."""
    over = threading.Event()
    clients = [Creator(server, over) for _ in range(CLIENTS)]
    try:
        wait_until(lambda: sum(len(client.made) for client in clients) >= CLIENTS,
                   "no sandboxes are created")
        act()
    finally:
        over.set()
        for client in clients:
            client.join(PATIENCE)
    return ({one for client in clients for one in client.made},
            {status for client in clients for status in client.statuses})


def kill_front(server):
    for _ in range(2):
        os.kill(server.front(), signal.SIGKILL)
        time.sleep(random.random() / 5)
    server.first_front = server.front()  # its death is no crash


def kill_keepers(server):
    for _ in range(20):
        for pid in random.sample(server.keepers(), min(2, len(server.keepers()))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(random.random() / 20)


@pytest.mark.parametrize("act", [
    pytest.param(lambda server: server.stop(), id="SIGTERM"),
    pytest.param(lambda server: server.process.kill(), id="broker-SIGKILL"),
    pytest.param(kill_front, id="front-SIGKILL"),
    pytest.param(kill_keepers, id="keepers-SIGKILL")])
@pytest.mark.parametrize("pool", ["0", pytest.param("3", marks=pytest.mark.long)])
def test_no_sandbox_runs_that_the_store_does_not_know(alone, act, pool):
    """R1: ten seconds after creates were interrupted, what runs is what the API lists, and every
    create that was acknowledged is among it."""
    server = alone("--pool", pool)
    made, _ = create_until(server, lambda: act(server))
    ended = time.monotonic()
    if act not in (kill_front, kill_keepers):
        server.process.wait(PATIENCE)
        server.process.stdout.close()
        server.start()
    time.sleep(max(0.0, PENDING_S - (time.monotonic() - ended)))
    wait_until(lambda: running(server) <= listed(server),
               lambda: f"unknown to the store: {running(server) - listed(server)}")
    gone = made - listed(server)
    assert gone == set(), "a create was acknowledged, and its sandbox is gone"
    assert listed(server) <= running(server)


def test_acknowledged_creates_keep_their_time(alone):
    """R1: the ten seconds are over once the client knows the sandbox."""
    server = alone()
    _, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 300})
    server.kill()
    done = subprocess.run([*server.before, CAY, "inspect", "-o", "json",
                           f"sb-{made['sandboxID']}"],
                          env=server.env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["ttl_left_ms"] > 200_000


def ttl_left_ms(server, sandbox_id):
    done = server.cay("inspect", "-o", "json", f"sb-{sandbox_id}")
    return json.loads(done.stdout)["ttl_left_ms"]


def test_a_row_that_was_not_confirmed_is_confirmed_by_the_next_server(own_server):
    """R1: the server before had ended between the row and the full time to live."""
    from cay.sandbox import Sandbox

    server = own_server()
    _, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 300})
    server.kill()
    Sandbox.open(f"sb-{made['sandboxID']}").set_ttl(30)
    assert ttl_left_ms(server, made["sandboxID"]) <= 30_000
    server.start()
    wait_until(lambda: ttl_left_ms(server, made["sandboxID"]) > 100_000, "it is not confirmed")


@pytest.mark.parametrize("more", [{}, {"autoPause": True}])
def test_a_sandbox_that_was_resumed_while_the_server_ended_lives_on(own_server, more):
    """H3: the row says paused, with the end from before the pause, which is over."""
    server = own_server()
    _, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 300, **more})
    path = f"/sandboxes/{made['sandboxID']}"
    assert server.api("POST", f"{path}/pause", {})[0] == 204
    server.kill()
    with closing(sqlite3.connect(server.home / "serve.db")) as store, store:
        store.execute("UPDATE sandboxes SET end_ms = end_ms - 600000")
    done = server.cay("resume", f"sb-{made['sandboxID']}")
    assert done.returncode == 0, done.stderr
    server.start()
    status, info = server.api("GET", path)
    assert (status, info["state"]) == (200, "running")
    left = datetime.fromisoformat(info["endAt"]) - datetime.now(timezone.utc)
    assert 200 < left.total_seconds() <= 300
    if not more:
        wait_until(lambda: (ttl_left_ms(server, made["sandboxID"]) or 0) > 100_000,
                   "its own end is not set")
    assert info["sandboxID"] in running(server)
    assert server.api("DELETE", path)[0] == 204


def limit_descriptors(pid, free):
    """Leaves the process as many descriptors as that; the limit before is returned."""
    used = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    unused = (number for number in itertools.count() if number not in used)
    last = next(itertools.islice(unused, free, None))
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (last, before[1]))
    return before


@pytest.mark.parametrize("pool", [0, 1])
def test_a_shortage_of_descriptors_in_the_broker_fails_only_the_request(alone, pool):
    """M2, M7: neither a keeper without a sandbox stays, nor is the front taken for hostile."""
    server = alone("--pool", str(pool))
    wait_until(lambda: server.has_spares(pool), "the pool is not full")
    front, statuses = server.front(), []
    for free in range(7):
        before = limit_descriptors(server.broker, free)
        try:
            status, made = server.api("POST", "/sandboxes", {"templateID": "base"})
        finally:
            resource.prlimit(server.broker, resource.RLIMIT_NOFILE, before)
        statuses.append(status)
        if status == 201:
            assert server.api("DELETE", f"/sandboxes/{made['sandboxID']}")[0] == 204
        wait_until(lambda: not server.keepers() and not running(server),
                   f"{server.keepers()} are left with {free} descriptors: {statuses}")
    assert server.front() == front and 503 in statuses, statuses
    wait_until(lambda: server.has_spares(pool), "the pool is not full")
    assert server.api("POST", "/sandboxes", {"templateID": "base"})[0] == 201


def pss_kib(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])


def test_a_keeper_takes_as_much_memory_as_the_design_says(own_server):
    """R10: about 950 KiB; the limit leaves room for other versions of the libraries."""
    server = own_server()
    for _ in range(8):
        assert server.api("POST", "/sandboxes", {"templateID": "base"})[0] == 201
    *others, largest = sorted(pss_kib(pid) for pid in server.keepers())
    assert others[-1] < 1300 and largest < 1600  # it has looked for remains of sandboxes


def test_idle_sandboxes_take_no_memory_of_the_server(own_server):
    """Keeper and front took 473 KiB for each sandbox; now none of the processes is there."""
    server, count = own_server(), 20
    for _ in range(2):  # what the first one takes stays: pages of libraries, caches
        assert server.api("POST", "/sandboxes", {"templateID": "base"})[0] == 201

    def used():
        wait_until(lambda: not server.keepers(), "keepers of idle sandboxes stay")
        return sum(map(pss_kib, (server.broker, *server.children())))

    before = used()
    for _ in range(count):
        assert server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 300})[0] == 201
    assert (used() - before) / count < 100


# --- SIGTERM drains ---------------------------------------------------------------------------


def slow_port(sandbox, seconds):
    """A service inside that answers one request, late."""
    sandbox.commands.run(
        "cat > /tmp/late.py <<'P'\n"
        "import http.server, time\n"
        "class Late(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        open('/tmp/asked', 'w').close()\n"
        f"        time.sleep({seconds})\n"
        "        self.send_response(200)\n"
        "        self.send_header('Content-Length', '4')\n"
        "        self.end_headers()\n"
        "        self.wfile.write(b'late')\n"
        "http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Late).serve_forever()\n"
        "P\n"
        "python3 /tmp/late.py", background=True, timeout=0)
    sandbox.commands.run("until python3 -c 'import socket; "
                         "socket.create_connection((\"127.0.0.1\", 8000))'; do sleep 0.05; done")


def ask_late(server, sandbox):
    """A request that is in flight when this returns; its connection."""
    client = server.connect()
    client.sendall(request("GET / ", host=f"8000-{sandbox.sandbox_id}.localhost:{server.port}")
                   .replace(b"GET /  ", b"GET / "))
    sandbox.commands.run("until test -e /tmp/asked; do sleep 0.02; done")
    return client


def test_sigterm_finishes_requests_in_flight_and_refuses_new_ones(own_server):
    """R1: 503 with Retry-After and Connection: close for what comes after the signal."""
    from e2b import Sandbox

    server = own_server()
    sandbox = Sandbox.create(timeout=300)
    slow_port(sandbox, 3)
    idle = server.connect()  # a connection that has served a request before
    idle.sendall(request("GET /health"))
    assert b"HTTP/1.1 20" in idle.recv(4096)
    with ask_late(server, sandbox) as late, idle:
        server.process.send_signal(signal.SIGTERM)
        refused = wait_until(lambda: (reply := ask(server, HEALTH)).status == 503
                             and reply, "new requests are taken")
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["connection"] == "close"
        refused = ask(server, sized("POST /sandboxes", b'{"templateID": "base"}',
                                    f"X-API-KEY: {server.key}"))
        assert (refused.status, refused.headers["connection"]) == (503, "close")
        assert "shutting down" in refused.json["message"]
        idle.sendall(request("GET /health"))
        assert idle.recv(4096).startswith(b"HTTP/1.1 503 ")
        assert parse(hear(late)).body == b"late"
    assert server.process.wait(PATIENCE) == 0
    server.process.stdout.close()
    server.start()
    assert sandbox.is_running()
    sandbox.kill()


def test_sigterm_ends_streams_with_a_reason(own_server):
    """R1: a stream is not cut: its last envelope is an error that says why, and the process can
    be connected to later."""
    from e2b import Sandbox

    server = own_server("--drain", "50")
    sandbox = Sandbox.create(timeout=300)
    listener = ticking(sandbox)
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 40, "the streams were waited for"
    assert "shutting down" in str(listener.end().error)
    server.start()
    again = Listener(sandbox.commands.connect(listener.handle.pid, timeout=0))
    again.wait_for("tick")
    sandbox.kill()
    again.end()


def test_a_second_sigterm_ends_the_server_at_once(own_server):
    """R1: as does the end of --drain."""
    from e2b import Sandbox

    server = own_server("--drain", "1000")
    sandbox = Sandbox.create(timeout=300)
    slow_port(sandbox, 1000)
    with ask_late(server, sandbox):
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: ask(server, HEALTH).status == 503, "no drain")
        assert server.process.poll() is None
        assert server.stop() == 0
    server.options = ("--drain", "1", "--reserve", "0")
    server.start()
    sandbox.commands.run("rm /tmp/asked")
    with ask_late(server, sandbox):
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began > 0.9
    server.start()
    sandbox.kill()


# --- The system's clock -----------------------------------------------------------------------

STEP = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *step_s;

__attribute__((constructor)) static void begin(void)
{
    int fd = open(getenv("CLOCK_STEP"), O_RDONLY | O_CLOEXEC);
    void *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    step_s = shared == MAP_FAILED ? NULL : shared;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    long result = syscall(SYS_clock_gettime, id, now);
    if (result == 0 && step_s && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += *step_s;
    return (int)result;
}
"""


def test_a_create_collects_the_record_that_a_killed_keeper_left(alone):
    server = alone()
    records = Path(f"/proc/{server.broker}/root/run/cay")
    body = {"templateID": "base", "timeout": 300}
    lost = server.api("POST", "/sandboxes", body)[1]["sandboxID"]
    done = subprocess.run([*server.before, CAY, "inspect", "-o", "json", f"sb-{lost}"],
                          env=server.env, check=True, capture_output=True, timeout=PATIENCE)
    (keeper,) = server.keepers()
    os.kill(keeper, signal.SIGKILL)
    os.kill(json.loads(done.stdout)["init_pid"], signal.SIGKILL)

    def is_collected():
        made = server.api("POST", "/sandboxes", body)[1]["sandboxID"]
        assert server.api("DELETE", f"/sandboxes/{made}")[0] == 204
        return not (records / f"sb-{lost}").exists()

    wait_until(is_collected, "its record stays")


@pytest.fixture(name="step")
def fixture_step(tmp_path):
    """Sets the clock on the wall, as the server sees it: this machine has others on it."""
    source, library, shared = (tmp_path / name for name in ("step.c", "step.so", "step"))
    source.write_text(STEP)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=PATIENCE)
    shared.write_bytes(bytes(4096))

    def by(server, seconds):
        with shared.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))
        server.env |= {"LD_PRELOAD": str(library), "CLOCK_STEP": str(shared)}

    return by


def seconds_left(server, sandbox_id, step):
    """By the API, whose times are those of the clock on the wall."""
    status, info = server.api("GET", f"/sandboxes/{sandbox_id}")
    assert status == 200, info
    end = datetime.fromisoformat(info["endAt"].replace("Z", "+00:00"))
    return end.timestamp() - time.time() - step


@pytest.mark.parametrize("step_s", [7200, pytest.param(-7200, marks=pytest.mark.long)])
def test_setting_the_clock_changes_no_time_to_live(own_server, step, step_s):
    """R8: neither between two servers nor under one; what the API shows follows the clock."""
    server = own_server()
    step(server, 0)
    _, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 300})
    _, short = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 30})
    step(server, step_s)
    server.restart()
    assert 100 < seconds_left(server, made["sandboxID"], step_s) <= 301
    step(server, 2 * step_s)  # under the server that runs now
    assert 100 < seconds_left(server, made["sandboxID"], 2 * step_s) <= 301
    status, reply = server.api("GET", "/v2/sandboxes?limit=1")
    assert status == 200 and len(reply) == 1
    wait_until(lambda: server.api("GET", f"/sandboxes/{short['sandboxID']}")[0] == 404,
               "the short one outlives its time")
    assert 100 < seconds_left(server, made["sandboxID"], 2 * step_s) <= 301
    server.env = {name: value for name, value in server.env.items() if name != "LD_PRELOAD"}
