#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""server.py [--quick] BUILD: what `cay serve` of a build directory costs its clients.

Each line printed is one figure as a JSON object:

    times   {"part": "server", "op", "ours": [p50, p95, p99] in microseconds, "most_us"?}
    rates   {"part": "server rates", "op", "clients", "rate": per second, "least"?, "ours": ...}
    bytes   {"part": "server bytes", "op", "bytes", "rate": MB/s, "floor": MB/s, "floor_is",
             "least"?}
    memory  {"part": "server memory", "op", "bytes": how many, "ours": [KiB for each]}

Commands and small calls are asked for by bench-load, which is C, so that it is the server that
is measured; what a program sees that uses the E2B SDK for Python is measured with that.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(sys.argv[-1]).resolve()
os.environ["CAY_BIN"] = str(BUILD / "cay")
sys.path.insert(0, str(ROOT / "tests" / "server"))

import raw  # noqa: E402
from e2b import Sandbox  # noqa: E402
from serving import Server, rss_kib, wait_until  # noqa: E402

MIB = 1 << 20
QUICK = "--quick" in sys.argv
ROUNDS = 5 if QUICK else 60
LARGE = (32 if QUICK else 384) * MIB
TARGETS_MS = {"start to first reply": 100, "SDK: create, run true": 15}


def say(**figure):
    print(json.dumps(figure), flush=True)


def percentiles(seconds):
    ordered = sorted(seconds)
    ranks = (-(-len(ordered) * percent // 100) for percent in (50, 95, 99))
    return [round(ordered[max(rank, 1) - 1] * 1e6, 1) for rank in ranks]


def timed(op, seconds):
    most = {"most_us": TARGETS_MS[op] * 1000} if op in TARGETS_MS else {}
    say(part="server", op=op, bytes=0, ours=percentiles(seconds), **most)


# --- Times --------------------------------------------------------------------------------


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def measure_start(folder):
    """From the start of the command to the first answer of a server that has records."""
    server = Server(Path(folder) / "start").start()
    took = []
    for _ in range(max(3, ROUNDS // 4)):
        server.stop()
        server.port = free_port()
        began = time.perf_counter()
        server.start()
        assert raw.ask(server, raw.request("GET /health", "Connection: close")).status == 204
        took.append(time.perf_counter() - began)
    server.clean()
    timed("start to first reply", took)


def measure_sdk(name):
    whole, ready, run = [], [], []
    for number in range(ROUNDS + 2):
        began = time.perf_counter()
        sandbox = Sandbox.create()
        created = time.perf_counter()
        sandbox.commands.run("true")
        done = time.perf_counter()
        sandbox.kill()
        if number >= 2:  # the first ones make connections
            ready.append(created - began)
            run.append(done - began)
            whole.append(time.perf_counter() - began)
    timed(f"{name}: create", ready)
    timed(f"{name}: create, run true", run)
    timed(f"{name}: create, run true, kill", whole)


def measure_sdk_calls(sandbox):
    for op, call in {"SDK: run true": lambda: sandbox.commands.run("true"),
                     "SDK: write 1 KiB": lambda: sandbox.files.write("small", "x" * 1024),
                     "SDK: read 1 KiB": lambda: sandbox.files.read("small")}.items():
        took = []
        for _ in range(ROUNDS + 2):
            began = time.perf_counter()
            call()
            took.append(time.perf_counter() - began)
        timed(op, took[2:])


def measure_http(server):
    """Without an SDK: create and kill, on one connection that is kept."""
    key, made, killed = f"X-API-KEY: {server.key}", [], []
    with raw.connect(server) as client:
        replies = raw.Answers(client)
        for _ in range(ROUNDS):
            began = time.perf_counter()
            client.sendall(raw.sized("POST /v2/sandboxes", b'{"templateID":"base"}', key))
            answer = replies.next()
            created = time.perf_counter()
            assert answer.status == 201
            client.sendall(raw.request(f"DELETE /sandboxes/{answer.json['sandboxID']}", key))
            assert replies.next().status == 204
            made.append(created - began)
            killed.append(time.perf_counter() - created)
    timed("HTTP: create", made)
    timed("HTTP: kill", killed)


# --- Rates --------------------------------------------------------------------------------


def load(server, request, clients, times):
    done = subprocess.run([BUILD / "bench" / "bench-load", str(server.port), str(clients),
                           str(times)], input=request, stdout=subprocess.PIPE, check=True)
    outcome = json.loads(done.stdout)
    assert outcome["failed"] == 0, outcome
    return outcome


def measure_rates(server, sandbox):
    calls = {
        "GET /health": (raw.request("GET /health"), 50_000, 40_000),
        "Filesystem/Stat": (raw.sized("POST /filesystem.Filesystem/Stat", b'{"path":"/etc"}',
                                      *raw.of(sandbox)), 10_000, 10_000),
        "read 1 KiB": (raw.request("GET /files?path=small", *raw.of(sandbox)), None, 10_000),
        "command /bin/true": (raw.start(sandbox, "/bin/true"), None, 1500),
    }
    for op, (request, least, times) in calls.items():
        for clients in (1, 8, 64):
            outcome = load(server, request, clients, times // 50 if QUICK else times)
            size = outcome["bytes"] / outcome["requests"]
            alone = size if clients == 1 else alone
            assert abs(size - alone) < 16, f"{op}: other answers with {clients} clients"
            say(part="server rates", op=op, bytes=0, clients=clients, ours=outcome["us"],
                rate=round(outcome["requests"] / outcome["seconds"]),
                **({"least": least} if least else {}))


# --- Bytes --------------------------------------------------------------------------------


def best(measure, times=3):
    """The shortest of a few, in seconds."""
    return min(measure() for _ in range(times))


def clock(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def copy(source, target):
    with open(source, "rb", buffering=0) as read, open(target, "wb", buffering=0) as write:
        while piece := read.read(MIB):
            write.write(piece)


def bytes_figure(op, seconds, floor, floor_is, **more):
    say(part="server bytes", op=op, bytes=LARGE, rate=round(LARGE / 1e6 / seconds),
        floor=round(LARGE / 1e6 / floor), floor_is=floor_is, **more)


def measure_bytes(server, sandbox):
    data = os.urandom(MIB) * (LARGE // MIB)
    plain = Path("/dev/shm") / f"cay-bench-{os.getpid()}"
    plain.write_bytes(data)
    try:
        floor = best(lambda: clock(lambda: copy(plain, f"{plain}.copy")))
    finally:
        plain.unlink()
        Path(f"{plain}.copy").unlink(missing_ok=True)
    upload = raw.sized("POST /files?path=large", data, *raw.of(
        sandbox, "Content-Type: application/octet-stream"))
    bytes_figure("upload", best(lambda: load(server, upload, 1, 1)["seconds"]), floor,
                 "read and write in memory")
    download = raw.request("GET /files?path=large", *raw.of(sandbox))
    bytes_figure("download", best(lambda: load(server, download, 1, 1)["seconds"]), floor,
                 "read and write in memory")
    sandbox.files.remove("large")
    command = ["/usr/bin/head", "-c", str(LARGE), "/dev/zero"]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
        floor = best(lambda: clock(lambda: subprocess.run(command, stdout=cat.stdin, check=True)))
        cat.stdin.close()
    stream = raw.start(sandbox, *command)
    bytes_figure("output of a command", best(lambda: load(server, stream, 1, 1)["seconds"]), floor,
                 "head into cat", least=300)


# --- Memory -------------------------------------------------------------------------------


def measure_memory(server):
    sandboxes = [Sandbox.create() for _ in range(2 if QUICK else 8)]
    for sandbox in sandboxes:
        sandbox.commands.run("true")

    def resident():
        return sum(map(rss_kib, [server.broker, server.front(), *server.keepers()]))

    each = 10 if QUICK else 40
    before = resident()
    with ExitStack() as stack:
        for sandbox in sandboxes:
            for _ in range(each):
                client = stack.enter_context(raw.connect(server))
                client.sendall(raw.start(sandbox, "/bin/sleep", "1000"))
                next(raw.Stream(client).events())
        count = each * len(sandboxes)
        say(part="server memory", op="an open stream", bytes=count,
            ours=[(resident() - before) / count])
        idle = [stack.enter_context(raw.connect(server)) for _ in range(500)]
        time.sleep(0.2)
        before = rss_kib(server.front())
        for client in idle:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: 127")
        time.sleep(0.2)
        say(part="server memory", op="a connection", bytes=len(idle),
            ours=[(rss_kib(server.front()) - before) / len(idle)])
    for sandbox in sandboxes:
        sandbox.kill()


def main():
    folder = tempfile.mkdtemp(prefix="cay-bench-")
    servers = []
    try:
        measure_start(folder)
        servers.append(Server(Path(folder) / "plain", "--reserve", "0", "--disk", "1G").start())
        server = servers[-1]
        os.environ.update(server.exports)
        measure_sdk("SDK")
        measure_http(server)
        sandbox = Sandbox.create(timeout=3600)
        measure_sdk_calls(sandbox)
        measure_rates(server, sandbox)
        measure_bytes(server, sandbox)
        measure_memory(server)
        servers.append(Server(Path(folder) / "pool", "--reserve", "0", "--pool", "8").start())
        os.environ.update(servers[-1].exports)
        wait_until(lambda: len(servers[-1].keepers()) >= 8, "there is no reserve")
        measure_sdk("SDK, 8 in reserve")
    finally:
        for server in servers:
            server.clean()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
