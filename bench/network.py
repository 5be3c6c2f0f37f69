#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""network.py [--quick] BUILD: what network rules cost, against a veth between the same namespaces.

Two network namespaces stand for the host and the internet, as in the tests.  A client connects to a
server there, in turns from the host's namespace and from a sandbox whose rules allow it.  Each line
printed is one figure as a JSON object, with times in microseconds:

    {"part": "network", "op", "bytes", "ours": [p50, p95, p99], "floor": the same, "ratio",
     "floor_is", "most_ratio"? or "most_us"?}
    {"part": "memory of cay-net", "op", "bytes": sandboxes, "ours": [KiB for each]}
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(sys.argv[-1]).resolve()
os.environ["CAY_BIN"] = str(BUILD / "cay")
sys.path.insert(0, str(ROOT / "tests" / "cli"))

from test_relay import PUBLIC, Internet, relay_of  # noqa: E402

MIB = 1 << 20
QUICK = "--quick" in sys.argv
TURNS = 2 if QUICK else 5
RULE = f"{PUBLIC}/32:9000"

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


def measure_create(internet):
    def run(*rules):
        begin = time.perf_counter()
        subprocess.run([*map(str, internet.command(BUILD / "cay", "run", "-q", *rules, "--", "/bin/true"))],
                       check=True)
        return time.perf_counter() - begin

    ours, floor = [], []
    for _ in range(10 if QUICK else 150):
        ours.append(run("--allow", RULE))
        floor.append(run())
    say("cay run -- /bin/true with a rule", 0, ours, floor, "the same without", most_ratio=1.3)


def private_kib(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(size) for size in re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE))


def measure_memory(internet):
    count = 5 if QUICK else 100
    ids = [internet.cay("create", "--allow", RULE).strip() for _ in range(count)]
    try:
        pids = [relay_of(each) for each in ids]
        idle = sum(map(private_kib, pids)) / count
        for each in ids:
            numbers(internet.command(BUILD / "cay", "exec", each, "--", "python3", "-c", CLIENT, PUBLIC, 10, 1, 1))
        used = sum(map(private_kib, pids)) / count
    finally:
        for each in ids:
            internet.cay("kill", each)
    for op, size in (("private memory, idle", idle), ("private memory after ten connections", used)):
        print(json.dumps({"part": "memory of cay-net", "op": op, "bytes": count,
                          "ours": [round(size, 1)]}), flush=True)


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
            measure_create(internet)
            measure_memory(internet)
        finally:
            server.kill()
            server.wait()
            internet.stop()


if __name__ == "__main__":
    main()
