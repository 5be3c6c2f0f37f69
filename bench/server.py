#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""server.py [--quick] BUILD: what `cay serve` of a build directory costs its clients.

Each line printed is one figure as a JSON object:

    times   {"part": "server", "op", "ours": [p50, p95, p99] in microseconds, "floor"?: the same,
             "most_us"?}
    lives   {"part": "server life", "op", "ours": times over HTTP, "floor": times by the C API,
             "most_ratio"?}
    rates   {"part": "server rates", "op", "clients", "rate": per second, "floor": the same,
             "least"?, "ours": times of one, "floor_us"?: times of one of the floor}
    bytes   {"part": "server bytes", "op", "bytes", "rate": MB/s, "floor": MB/s, "floor_is",
             "least"?}
    memory  {"part": "server memory", "op", "bytes": how many, "ours": [KiB for each]}

Commands and small calls are asked for by bench-load, which is C, so that it is the server that
is measured; what a program sees that uses the E2B SDK for Python is measured with that.  The
floor of times and rates is bench-bare: a loop that gives the very answers which ours gave, and
that runs /bin/true on this machine where ours makes a sandbox, or runs it in one.
"""

import json
import os
import re
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


def timed(op, seconds, floor=None):
    most = {"most_us": TARGETS_MS[op] * 1000} if op in TARGETS_MS else {}
    if floor:
        most["floor"] = percentiles(floor)
    say(part="server", op=op, bytes=0, ours=percentiles(seconds), **most)


def clock(work, *arguments, **options):
    began = time.perf_counter()
    work(*arguments, **options)
    return time.perf_counter() - began


# --- The floor ----------------------------------------------------------------------------


def reply_to(server, request):
    """The bytes of the answer: what comes before that to the last request."""
    heard = raw.talk(server, request + raw.request("GET /health", "Connection: close"))
    reply = heard[:heard.rindex(b"HTTP/1.1 204")]
    assert reply.startswith(b"HTTP/1.1 20"), heard
    return reply


class Bare:
    """bench-bare with our own answers, as the server that is measured gives them."""

    def __init__(self, server, folder):
        self.folder, self.words = Path(folder), []
        key = f"X-API-KEY: {server.key}"
        created = reply_to(server, raw.sized("POST /v2/sandboxes", b'{"templateID":"base"}', key))
        made = raw.parse(created).json
        sandbox = Sandbox.connect(made["sandboxID"], **server.options_of("default"))
        sandbox.files.write("small", "x" * 1024)
        self.add("!POST /v2/sandboxes", created)
        self.add("!POST /sandboxes", created)
        for prefix, request in requests(sandbox).items():
            self.add(prefix, reply_to(server, request))
        kill = raw.request(f"DELETE /sandboxes/{made['sandboxID']}", key)
        self.add("DELETE /sandboxes/", reply_to(server, kill))
        self.process = subprocess.Popen([BUILD / "bench" / "bench-bare", *self.words], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())
        url = f"http://127.0.0.1:{self.port}"
        self.options = {"api_url": url, "sandbox_url": url, "api_key": server.key}

    def add(self, prefix, reply):
        path = self.folder / f"reply-{len(self.words) // 2}"
        path.write_bytes(reply)
        self.words += [prefix, path]

    def clean(self):
        self.process.communicate()


def requests(sandbox):
    """What is asked of a sandbox's own service, by how it begins; "!": it runs a program."""
    octets = raw.of(sandbox, "Content-Type: application/octet-stream")
    return {
        "GET /health": raw.request("GET /health"),
        "POST /filesystem.Filesystem/Stat": raw.sized("POST /filesystem.Filesystem/Stat",
                                                      b'{"path":"/etc"}', *raw.of(sandbox)),
        "GET /files": raw.request("GET /files?path=small", *raw.of(sandbox)),
        "POST /files": raw.sized("POST /files?path=small", b"x" * 1024, *octets),
        "!POST /process.Process/Start": raw.start(sandbox, "/bin/true"),
    }


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


def live(options):
    """When a sandbox was there, had run a command, and was gone."""
    began = time.perf_counter()
    sandbox = Sandbox.create(**options)
    created = time.perf_counter()
    sandbox.commands.run("true")
    done = time.perf_counter()
    sandbox.kill()
    return created - began, done - began, time.perf_counter() - began


def measure_sdk(name, server, bare):
    ours, floor = [], []
    for _ in range(ROUNDS + 2):
        ours.append(live(server.options_of("default")))
        floor.append(live(bare.options))
    for at, op in enumerate(("create", "create, run true", "create, run true, kill")):
        timed(f"{name}: {op}", [one[at] for one in ours[2:]],  # the first ones make connections
              [one[at] for one in floor[2:]])


def measure_sdk_calls(sandbox, bare):
    calls = {"SDK: run true": lambda one: one.commands.run("true"),
             "SDK: write 1 KiB": lambda one: one.files.write("small", "x" * 1024),
             "SDK: read 1 KiB": lambda one: one.files.read("small")}
    other = Sandbox.create(**bare.options)
    for op, call in calls.items():
        took = [(clock(call, sandbox), clock(call, other)) for _ in range(ROUNDS + 2)][2:]
        timed(op, [ours for ours, _ in took], [floor for _, floor in took])


def create_and_kill(client, replies, key):
    began = time.perf_counter()
    client.sendall(raw.sized("POST /v2/sandboxes", b'{"templateID":"base"}', key))
    answer = replies.next()
    created = time.perf_counter()
    assert answer.status == 201
    client.sendall(raw.request(f"DELETE /sandboxes/{answer.json['sandboxID']}", key))
    assert replies.next().status == 204
    return created - began, time.perf_counter() - created


def measure_http(server, bare):
    """Without an SDK: create and kill, on one connection that is kept."""
    key = f"X-API-KEY: {server.key}"
    with raw.connect(server) as client, raw.connect(bare) as other:
        replies, others = raw.Answers(client), raw.Answers(other)
        took = [create_and_kill(client, replies, key) + create_and_kill(other, others, key)
                for _ in range(ROUNDS)]
    timed("HTTP: create", [one[0] for one in took], [one[2] for one in took])
    timed("HTTP: kill", [one[1] for one in took], [one[3] for one in took])


# --- Lives --------------------------------------------------------------------------------


def measure_lives(name, server, spares=0, most_ratio=None):
    """Create, run, kill over HTTP, and by the C API in turns with it: bench-life."""
    rounds, warm = (10, 2) if QUICK else (200, 10)
    done = subprocess.run([BUILD / "bench" / "bench-life", str(server.port), server.key,
                           str(rounds + warm), str(spares)], stdout=subprocess.PIPE, check=True)
    lives = json.loads(done.stdout)

    def took(side, part):
        return percentiles([part(life) / 1e6 for life in lives[side][warm:]])

    for at, op in enumerate(("create", "run true", "kill")):
        say(part="server life", op=f"{name}: {op}", bytes=0,
            ours=took("http", lambda life, at=at: life[at]),
            floor=took("c", lambda life, at=at: life[at]))
    say(part="server life", op=f"{name}: all three", bytes=0, ours=took("http", sum),
        floor=took("c", sum), **({"most_ratio": most_ratio} if most_ratio else {}))


# --- Rates --------------------------------------------------------------------------------


def load(server, request, clients, times):
    done = subprocess.run([BUILD / "bench" / "bench-load", str(server.port), str(clients),
                           str(times)], input=request, stdout=subprocess.PIPE, check=True)
    outcome = json.loads(done.stdout)
    assert outcome["failed"] == 0, outcome
    return outcome


RATES = {  # what it is called, how many a second there are to be, how often it is asked
    "GET /health": ("GET /health", 50_000, 40_000),
    "POST /filesystem.Filesystem/Stat": ("Filesystem/Stat", 10_000, 10_000),
    "GET /files": ("read 1 KiB", None, 10_000),
    "!POST /process.Process/Start": ("command /bin/true", None, 1500),
}


def measure_rates(server, bare, sandbox):
    for prefix, request in requests(sandbox).items():
        if prefix not in RATES:
            continue
        op, least, count = RATES[prefix]
        count = count // 50 if QUICK else count
        for clients in (1, 8, 32, 64):
            floor, outcome = load(bare, request, clients, count), load(server, request, clients,
                                                                       count)
            assert abs(outcome["bytes"] - floor["bytes"]) < 16 * count, \
                f"{op}: other answers with {clients} clients"
            say(part="server rates", op=op, bytes=0, clients=clients, ours=outcome["us"],
                rate=round(count / outcome["seconds"]), floor=round(count / floor["seconds"]),
                floor_us=floor["us"], **({"least": least} if least else {}))


def measure_list(server):
    """A page of a list of 1,000 rows; the floor is a page of a server that has only that one."""
    count = 50 if QUICK else 1000
    request = raw.request("GET /v2/sandboxes?limit=100", f"X-API-KEY: {server.key}")
    with server.rows(100):
        floor = load(server, request, 1, count)
    with server.rows(1000):
        outcome = load(server, request, 1, count)
    say(part="server rates", op="list, 100 of 1,000", bytes=0, clients=1, ours=outcome["us"],
        rate=round(count / outcome["seconds"]), floor=round(count / floor["seconds"]),
        floor_us=floor["us"])


# --- Bytes --------------------------------------------------------------------------------


def best(measure, times=3):
    """The shortest of a few, in seconds."""
    return min(measure() for _ in range(times))


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


def pss_kib(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])


def measure_idle(server):
    """All processes of the server, for each sandbox: after a command, and when it is idle."""
    options, count = server.options_of("default"), 10 if QUICK else 100
    sandboxes = [Sandbox.create(timeout=600, **options) for _ in range(count)]
    for sandbox in sandboxes:
        sandbox.commands.run("true")

    def used():
        return sum(map(pss_kib, (server.broker, *server.children())))

    say(part="server memory", op="a sandbox in use", bytes=len(server.keepers()),
        ours=[used() / max(1, len(server.keepers()))])
    wait_until(lambda: not server.keepers(), "keepers of idle sandboxes stay")
    say(part="server memory", op="an idle sandbox", bytes=count, ours=[used() / count])
    for sandbox in sandboxes:
        sandbox.kill()


def measure_memory(server):
    """Of one that has done nothing yet: what others have freed would be used again."""
    options = server.options_of("default")
    sandboxes = [Sandbox.create(**options) for _ in range(2 if QUICK else 8)]
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
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cay-bench-")))
        measure_start(folder)

        def serve(name, *options):
            server = Server(folder / name, "--reserve", "0", *options).start()
            stack.callback(server.clean)
            return server

        server = serve("plain", "--disk", "1G")
        bare = Bare(server, folder)
        stack.callback(bare.clean)
        measure_sdk("SDK", server, bare)
        measure_http(server, bare)
        measure_lives("HTTP", server, most_ratio=1.5)
        os.environ.update(server.exports)
        sandbox = Sandbox.create(timeout=3600)
        measure_sdk_calls(sandbox, bare)
        measure_rates(server, bare, sandbox)
        measure_bytes(server, sandbox)
        measure_list(serve("list"))
        measure_idle(serve("idle"))
        measure_memory(serve("memory"))
        pooled = serve("pool", "--pool", "8")
        wait_until(lambda: pooled.has_spares(8), "there is no reserve")
        measure_sdk("SDK, 8 in reserve", pooled, bare)
        measure_lives("HTTP, 8 in reserve", pooled, spares=8, most_ratio=1.5)


if __name__ == "__main__":
    main()
