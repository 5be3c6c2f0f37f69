#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nodes.py [--quick] BUILD: what HAProxy and PostgreSQL cost, and what 1, 2 and 3 nodes do.

Everything runs on this machine, clients too, so more nodes share its processors: the rates show
what is lost to the proxy and the database, not what more machines would add.  For that the
processor time of each part is measured, and "nodes model" computes from it what 50 and 1,000
nodes need, each with SANDBOXES sandboxes that live LIFE_S seconds and get REQUESTS requests a
second each.

    rates  {"part": "nodes", "op", "clients", "rate": per second, "floor": of one server alone,
            "ours", "floor_us": times of one}
    model  {"part": "nodes model", "op", "each": [measured input and its unit], "fifty", "thousand"}
"""

import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(sys.argv[-1]).resolve()
os.environ["CAY_BIN"] = str(BUILD / "cay")
sys.path.insert(0, str(ROOT / "tests" / "server"))

import raw  # noqa: E402
from cluster import NODES, Node, Postgres, Proxy  # noqa: E402
from serving import Server, children, wait_until  # noqa: E402

QUICK = "--quick" in sys.argv
REQUESTS_OF_ONE = 100 if QUICK else 4000
LIVES = 16 if QUICK else 160
CLIENTS = (1, 8)
KEY = "e2b_" + "7" * 40
SANDBOXES, LIFE_S, REQUESTS = 500, 300, 0.5
TICK = os.sysconf("SC_CLK_TCK")


def say(**figure):
    print(json.dumps(figure), flush=True)


def percentiles(seconds):
    ordered = sorted(seconds)
    return [round(ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] * 1e6, 1)
            for percent in (50, 95, 99)]


def cpu_s(pids):
    """Processor time so far of processes and those that they have waited for."""
    total = 0
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, words[11:15]))
    return total / TICK


class Target:
    """Where requests go, with what raw.connect() wants to know."""

    def __init__(self, port, key):
        self.port, self.key = port, f"X-API-KEY: {key}"

    def connect(self):
        return raw.connect(self)


def ask_many(target, sandbox, count):
    request = raw.request(f"GET /sandboxes/{sandbox}", target.key)
    took = []
    with raw.connect(target) as client:
        replies = raw.Answers(client)
        for _ in range(count):
            began = time.perf_counter()
            client.sendall(request)
            assert replies.next().status == 200
            took.append(time.perf_counter() - began)
    return took


def live_many(target, count):
    """Creates and kills; each has its own connection, as clients of different programs."""
    took = []
    for _ in range(count):
        with raw.connect(target) as client:
            replies = raw.Answers(client)
            began = time.perf_counter()
            client.sendall(raw.sized("POST /v2/sandboxes", b'{"templateID":"base"}', target.key))
            made = replies.next()
            assert made.status == 201, made
            client.sendall(raw.request(f"DELETE /sandboxes/{made.json['sandboxID']}", target.key))
            assert replies.next().status == 204
            took.append(time.perf_counter() - began)
    return took


def measured(work, clients, count):
    """Per second, and the times of one."""
    with ThreadPoolExecutor(clients) as pool:
        began = time.perf_counter()
        took = [one for part in pool.map(lambda _: work(count // clients), range(clients))
                for one in part]
        return len(took) / (time.perf_counter() - began), percentiles(took)


def figures(target):
    made = raw.ask(target, raw.sized("POST /v2/sandboxes", b'{"templateID":"base","timeout":3600}',
                                     target.key, "Connection: close"))
    assert made.status == 201, made
    found = {}
    for clients in CLIENTS:
        found["info", clients] = measured(
            lambda count: ask_many(target, made.json["sandboxID"], count), clients, REQUESTS_OF_ONE)
        found["create and kill", clients] = measured(
            lambda count: live_many(target, count), clients, LIVES)
    return found


def say_figures(name, found, floor):
    for (op, clients), (rate, took) in found.items():
        say(part="nodes", op=f"{op}, {name}", bytes=0, clients=clients, rate=round(rate),
            floor=round(floor[op, clients][0]), ours=took, floor_us=floor[op, clients][1])


def is_up(node):
    with node.get("/metrics") as reply:
        return b"\ncay_store_up 1\n" in reply.read()


def private(path, text):
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


def measure_model(nodes, proxy, database):
    """Processor time of each part for one request and one life, and what many nodes need."""
    postgres = [database.process.pid, *children(database.process.pid)]
    target = Target(proxy.port, KEY)
    made = raw.ask(target, raw.sized("POST /v2/sandboxes", b'{"templateID":"base","timeout":3600}',
                                     target.key, "Connection: close"))

    def cost(pids, work, count):
        before = cpu_s(pids)
        work(count)
        return (cpu_s(pids) - before) / count

    count = REQUESTS_OF_ONE * 4
    request = cost([proxy.process.pid], lambda many: ask_many(
        target, made.json["sandboxID"], many), count)
    life = cost(postgres, lambda many: live_many(target, many), LIVES)
    idle_s = 5 if QUICK else 30
    before = cpu_s(postgres)
    time.sleep(idle_s)
    beat = (cpu_s(postgres) - before) / idle_s / len(nodes)

    def model(op, each, unit, per_node):
        say(part="nodes model", op=op, each=[each, unit], fifty=50 * per_node,
            thousand=1000 * per_node)

    creates, calls = SANDBOXES / LIFE_S, SANDBOXES * REQUESTS
    model("creates per second", creates, "a node", creates)
    model("processors for HAProxy", request * 1e6, "µs a request", request * calls)
    model("processors for PostgreSQL, lives", life * 1e6, "µs a life", life * creates)
    model("processors for PostgreSQL, nodes", beat * 1e6, "µs a node and second", beat)


def main():
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cay-bench-")))
        alone = Server(folder / "alone", "--reserve", "0").start()
        stack.callback(alone.clean)
        floor = figures(Target(alone.port, alone.key))
        database = Postgres()
        stack.callback(database.clean)
        database.start()
        options = ("--reserve", "0", "--server-key-file", private(folder / "key", "ab" * 32),
                   "--api-key-file", private(folder / "api-key", KEY), "--store", database.url,
                   "--store-password-file", private(folder / "password", database.PASSWORD))
        nodes = []
        for name in NODES:
            nodes.append(Node(folder / name, name, *options).start())
            stack.callback(nodes[-1].clean)
            nodes[-1].keys["default"] = KEY
            nodes[-1].exports["E2B_API_KEY"] = KEY
            wait_until(lambda: is_up(nodes[-1]), "a node has no database")
            proxy = Proxy(folder, nodes, "--domain", "localhost").start()
            stack.callback(proxy.stop)
            target = Target(proxy.port, KEY)
            ready = raw.request("GET /ready", "Connection: close")
            wait_until(lambda: raw.ask(target, ready).status == 200, "no node is ready")
            if len(nodes) == 1:
                say_figures("PostgreSQL", figures(Target(nodes[0].port, KEY)), floor)
            say_figures(f"PostgreSQL and HAProxy, {len(nodes)} of 3 nodes", figures(target), floor)
        measure_model(nodes, proxy, database)


main()
