#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""network.py [--quick] BUILD: what network rules cost, against a veth between the same namespaces.

Two network namespaces stand for the host and the internet, as in the tests.  A client connects to a
server there, in turns from the host's namespace and from a sandbox whose rules allow it.  Sandboxes are
created in turns with a network and without: by the command, by the library and by a server.  Each line
printed is one figure as a JSON object, with times in microseconds:

    {"part": "network", "op", "bytes", "ours": [p50, p95, p99], "floor": the same, "ratio",
     "floor_is", "most_ratio"? or "most_us"?}
    {"part": "memory of cay-net", "op", "bytes": sandboxes, "ours": [KiB for each]}
"""

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(sys.argv[-1]).resolve()
os.environ["CAY_BIN"] = str(BUILD / "cay")
os.environ["CAY_LIBRARY"] = str(BUILD / "libcay.so")
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/cli", "tests/server", "python")]

from cay.sandbox import Sandbox  # noqa: E402
from serving import Server  # noqa: E402
from test_relay import PUBLIC, Internet, processes  # noqa: E402

MIB = 1 << 20
QUICK = "--quick" in sys.argv
TURNS = 2 if QUICK else 5
RULE = f"{PUBLIC}/32:9000"
TTL = "20m"  # ends the sandboxes of a run that was killed: their runtime directory is gone with it

# Requests are two numbers: the bytes that the server sends, and those that it receives before.
SERVER = """
import socket, struct, threading
def serve(sock):
    room, zeros = bytearray(1 << 20), bytes(1 << 20)
    down, up = struct.unpack("<QQ", sock.recv(16, socket.MSG_WAITALL))
    while up:
        up -= sock.recv_into(room, min(up, len(room)))
    while down:
        down -= sock.send(zeros[:down])
    sock.shutdown(socket.SHUT_WR)
    sock.recv(1)
    sock.close()
listener = socket.create_server(("0.0.0.0", 9000), backlog=256)
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""

CLIENT = """
import socket, struct, sys, time
host, count, down, up = sys.argv[1], *map(int, sys.argv[2:])
room, zeros = bytearray(1 << 20), bytes(1 << 20)
for number in range(count):
    begin, got, left = time.perf_counter(), 0, up
    with socket.create_connection((host, 9000)) as sock:
        sock.sendall(struct.pack("<QQ", down, up))
        while left:
            left -= sock.send(zeros[:left])
        while got < down:
            got += sock.recv_into(room)
        print(time.perf_counter() - begin)
"""


def percentiles(seconds):
    ordered = sorted(seconds)
    ranks = (-(-len(ordered) * percent // 100) for percent in (50, 95, 99))
    return [round(ordered[max(rank, 1) - 1] * 1e6, 1) for rank in ranks]


def say(op, size, ours, floor, floor_is, **targets):
    ours, floor = percentiles(ours), percentiles(floor)
    if targets.pop("adds_us", None):
        targets["most_us"] = floor[0] + 300
    print(json.dumps({"part": "network", "op": op, "bytes": size, "ours": ours, "floor": floor,
                      "ratio": ours[0] / floor[0], "floor_is": floor_is, **targets}), flush=True)


def numbers(command):
    out = subprocess.run([*map(str, command)], check=True, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, text=True).stdout
    return [float(line) for line in out.splitlines()]


def measure_connections(internet, sandbox):
    """The same client in turns, from the sandbox and from the host's namespace."""
    for op, size, count, words, targets in (
            ("connect, one byte each way", 1, 20 if QUICK else 150, (1, 1), {"adds_us": True}),
            ("receive", MIB, 10 if QUICK else 50, (MIB, 1), {}),
            ("send", MIB, 10 if QUICK else 50, (1, MIB), {}),
            ("receive", 1 << 30, 1, (16 * MIB if QUICK else 1 << 30, 1), {"most_ratio": 2}),
            ("send", 1 << 30, 1, (1, 16 * MIB if QUICK else 1 << 30), {"most_ratio": 2})):
        ours, floor = [], []
        for _ in range(TURNS):
            client = ["python3", "-c", CLIENT, PUBLIC, count, *words]
            ours += numbers(internet.command(BUILD / "cay", "exec", sandbox, "--", *client))
            floor += numbers(internet.command(*client))
        say(op, max(words) if size > 1 else 0, ours, floor, "the same over veth", **targets)


def say_create(op, create, count):
    """In turns, so that both see the same machine."""
    ours, floor = [], []
    for _ in range(10 if QUICK else count):
        ours.append(create(True))
        floor.append(create(False))
    say(op, 0, ours, floor, "the same without", most_ratio=1.3)


def measure_command(internet):
    def run(has_network):
        rules = ["--allow", RULE] if has_network else []
        command = internet.command(BUILD / "cay", "run", "-q", *rules, "--", "/bin/true")
        begin = time.perf_counter()
        subprocess.run([*map(str, command)], check=True)
        return time.perf_counter() - begin

    say_create("cay run -- /bin/true with a rule", run, 150)


def measure_library():
    def create(has_network):
        begin = time.perf_counter()
        sandbox = Sandbox.create(network="open" if has_network else "none")
        took = time.perf_counter() - begin
        sandbox.kill()
        return took

    say_create("create by the library, with the network open", create, 300)


def measure_server(directory):
    servers = [Server(directory / kind, "--reserve", "0", "--internet", kind).start()
               for kind in ("none", "open")]
    connections = [http.client.HTTPConnection("127.0.0.1", server.port) for server in servers]

    def request(which, method, path, body=None):
        connections[which].request(method, path, body, {
            "X-API-KEY": servers[which].key, "Content-Type": "application/json"})
        reply = connections[which].getresponse()
        text = reply.read()
        assert reply.status in (201, 204), text
        return text

    def create(has_network):
        begin = time.perf_counter()
        sandbox = request(has_network, "POST", "/v2/sandboxes", '{"templateID":"base"}')
        took = time.perf_counter() - begin
        request(has_network, "DELETE", f"/sandboxes/{json.loads(sandbox)['sandboxID']}")
        return took

    try:
        say_create("create over HTTP, --internet open", create, 300)
    finally:
        for server in servers:
            server.clean()


def private_kib(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(size) for size in re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE))


def relays(ids):
    """The pids of the cay-nets of sandboxes: each has the events of its sandbox open."""
    found = {}
    for path, pid in processes("cay-net"):
        with suppress(OSError):
            for descriptor in (path / "fd").iterdir():
                name = os.readlink(descriptor).rpartition("/")[2]
                if name.endswith(".events"):
                    found[name.removesuffix(".events")] = pid
    return [found[each] for each in ids]


def charged_kib(internet, ids):
    """What the cgroup of a sandbox is charged with, on average."""
    listed = json.loads(internet.cay("ls", "-o", "json"))["sandboxes"]
    used = [each["used"]["memory_bytes"] for each in listed if each["id"] in ids]
    return sum(used) / len(used) / 1024


def say_memory(op, count, kib):
    print(json.dumps({"part": "memory of cay-net", "op": op, "bytes": count, "ours": [round(kib, 1)]}),
          flush=True)


def measure_memory(internet):
    count, busy = (5, 5) if QUICK else (1000, 100)
    ids = []
    try:
        for _ in range(count):
            ids.append(internet.cay("create", "-q", "--ttl", TTL, "--allow", RULE).strip())
        pids = relays(ids)
        say_memory("private memory, idle", count, sum(map(private_kib, pids)) / count)
        with_network = charged_kib(internet, set(ids))
        for each in ids[:busy]:
            numbers(internet.command(BUILD / "cay", "exec", each, "--", "python3", "-c", CLIENT, PUBLIC, 10, 1, 1))
        say_memory("private memory after ten connections", busy, sum(map(private_kib, pids[:busy])) / busy)
        plain = [internet.cay("create", "-q", "--ttl", TTL).strip() for _ in range(busy)]
        ids += plain
        say_memory("memory of the sandbox's cgroup, with a rule", count, with_network)
        say_memory("memory of the sandbox's cgroup, without a network", busy, charged_kib(internet, set(plain)))
    finally:
        if ids:
            internet.cay("kill", *ids)


def main():
    with tempfile.TemporaryDirectory(prefix="cay-bench-") as directory:
        internet = Internet(Path(directory))
        world = internet.helpers[1].pid
        server = subprocess.Popen(["nsenter", "-t", str(world), "-n", sys.executable, "-c", SERVER],
                                  stdout=subprocess.PIPE)
        try:
            assert server.stdout.readline() == b"ready\n"
            sandbox = internet.cay("create", "--allow", RULE).strip()
            try:
                measure_connections(internet, sandbox)
            finally:
                internet.cay("kill", sandbox)
            measure_command(internet)
            measure_library()
            measure_server(Path(directory))
            measure_memory(internet)
        finally:
            server.kill()
            server.wait()
            internet.stop()


if __name__ == "__main__":
    main()
