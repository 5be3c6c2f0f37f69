# SPDX-License-Identifier: Apache-2.0
"""Three servers, HAProxy and PostgreSQL: what clients were told is true afterwards,
whatever was killed meanwhile."""

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import NODES, Node, Postgres, Proxy
from serving import CAY, PATIENCE, unavailable, wait_until

KEY = "e2b_" + "6" * 40
AWAY = (502, 503, 504)


def private(path, text):
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


@pytest.fixture(scope="module", name="database")
def fixture_database():
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    if not (Path(CAY).parent / "cay-store").exists():
        unavailable("Cay was built without libpq")
    database = Postgres()
    yield database.start()
    database.clean()


@pytest.fixture(scope="module", name="cluster")
def fixture_cluster(tmp_path_factory, database):
    home = tmp_path_factory.mktemp("shared")
    options = ("--reserve", "0", "--server-key-file", private(home / "key", "cd" * 32 + "\n"),
               "--api-key-file", private(home / "api-key", KEY + "\n"), "--store", database.url,
               "--store-password-file", private(home / "password", database.PASSWORD))
    nodes = [Node(home / name, name, *options).start() for name in NODES]
    proxy = Proxy(home, nodes, "--domain", "localhost").start()
    proxy.nodes, proxy.database, proxy.home = nodes, database, home
    for one in nodes:
        one.keys["default"] = KEY
    wait_until(lambda: all(up(one) for one in nodes), "a node has no database")
    wait_until(lambda: ask(proxy, "GET", "/ready")[0] == 200, "no node is up")
    yield proxy
    proxy.stop()
    for one in nodes:
        one.clean()


def up(node):
    with node.get("/metrics") as reply:
        return b"\ncay_store_up 1\n" in reply.read()


def ask(proxy, method, path, body=None):
    """Status and JSON; 0: the connection was cut."""
    request = urllib.request.Request(
        proxy.url + path, method=method, headers={"X-API-KEY": KEY},
        data=None if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            text = reply.read()
            return reply.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None
    except OSError:
        return 0, None


def listed(proxy):
    status, rows = ask(proxy, "GET", "/v2/sandboxes?limit=100")
    assert status == 200
    return {row["sandboxID"] for row in rows}


class Load:
    """Clients that create sandboxes and kill half of them."""

    def __init__(self, proxy):
        self.proxy, self.over = proxy, threading.Event()
        self.alive, self.killed, self.unsure, self.failures = set(), set(), set(), []
        self.threads = [threading.Thread(target=self.run) for _ in range(3)]

    def run(self):
        for number in range(40):
            if self.over.is_set():
                return
            status, made = ask(self.proxy, "POST", "/sandboxes", {"templateID": "base"})
            if status != 201:
                self.failures.append(("create", status))
                time.sleep(0.1)
                continue
            one = made["sandboxID"]
            self.alive.add(one)
            if number % 2:
                self.kill(one)
            time.sleep(0.05)

    def kill(self, one):
        status, _ = ask(self.proxy, "DELETE", f"/sandboxes/{one}")
        self.alive.discard(one)
        (self.killed if status == 204 else self.unsure).add(one)
        if status != 204:
            self.failures.append(("kill", status))

    def check(self):
        """Everything that a client was told is true."""
        wait_until(lambda: self.alive <= listed(self.proxy) and not self.killed & listed(self.proxy),
                   lambda: (self.alive - listed(self.proxy), self.killed & listed(self.proxy)))
        for one in self.alive:
            assert ask(self.proxy, "GET", f"/sandboxes/{one}")[0] == 200
        for one in self.killed:
            assert ask(self.proxy, "GET", f"/sandboxes/{one}")[0] == 404
        for one in self.alive | self.unsure:
            assert ask(self.proxy, "DELETE", f"/sandboxes/{one}")[0] in (204, 404)


@contextmanager
def load(proxy):
    one = Load(proxy)
    for thread in one.threads:
        thread.start()
    try:
        wait_until(lambda: len(one.killed) > 2, "the load does not begin")
        yield one
        before = len(one.killed)
        wait_until(lambda: len(one.killed) > before + 1 or not any(
            thread.is_alive() for thread in one.threads), "the load does not go on")
    finally:
        one.over.set()
        for thread in one.threads:
            thread.join(2 * PATIENCE)


def test_the_sdk_sees_all_nodes_as_one(cluster):
    from e2b import AuthenticationException, Sandbox

    done = cluster.nodes[0].cay("key", "--store", cluster.database.url, "--store-password-file",
                                str(cluster.home / "password"), "new", "alice")
    assert done.returncode == 0, done.stderr
    of = {"api_url": cluster.url, "sandbox_url": cluster.url, "api_key": done.stdout.strip()}
    made = []
    while {one.sandbox_id[:4] for one in made} != set(NODES) and len(made) < 40:
        made.append(Sandbox.create(**of, timeout=600))
    assert {one.sandbox_id[:4] for one in made} == set(NODES)
    for _ in range(3):  # whichever node answers
        found = Sandbox.list(**of, limit=100).next_items()
        assert {one.sandbox_id for one in found} == {one.sandbox_id for one in made}
    for one in made:
        assert one.commands.run("echo here").stdout == "here\n"
        assert one.kill()
    assert Sandbox.list(**of).next_items() == []
    [[number]] = cluster.database.ask("SELECT number FROM cay.keys WHERE tenant = 'alice'")
    assert cluster.nodes[1].cay("key", "--store", cluster.database.url, "--store-password-file",
                                str(cluster.home / "password"), "rm", number).returncode == 0
    for node in cluster.nodes:
        wait_until(lambda node=node: node.api(
            "GET", "/v2/sandboxes", X_API_KEY=of["api_key"])[0] == 401, "the key is valid")
    with pytest.raises(AuthenticationException):
        Sandbox.create(**of)


def test_a_database_that_stops_under_load_loses_nothing(cluster):
    with load(cluster) as clients:
        cluster.database.kill()
        before = len(clients.killed)
        wait_until(lambda: len(clients.killed) > before + 2, "the nodes wait for the database")
        cluster.database.start()
    assert clients.failures == []
    wait_until(lambda: all(up(node) for node in cluster.nodes), "a node has no database")
    clients.check()


def test_a_node_that_is_killed_under_load_loses_nothing(cluster):
    with load(cluster) as clients:
        cluster.nodes[1].kill()
        time.sleep(1)
        cluster.nodes[1].start()
    cluster.nodes[1].keys["default"] = KEY
    assert {status for _, status in clients.failures} <= {0, *AWAY}
    wait_until(lambda: up(cluster.nodes[1]), "the node has no database")
    wait_until(lambda: all(ask(cluster, "GET", f"/sandboxes/{one}")[0] not in AWAY
                           for one in clients.alive), "the node is not reached")
    clients.check()


def test_a_drain_fails_no_request(cluster):
    node = cluster.nodes[2]
    with load(cluster) as clients:
        node.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: node.ready()[0] == 404, "the node does not drain")
        before = len(clients.killed)
        wait_until(lambda: len(clients.killed) > before + 3, "the load does not go on")
        node.process.send_signal(signal.SIGUSR2)
    assert clients.failures == []
    clients.check()


def test_servers_are_replaced_one_by_one(cluster):
    with load(cluster) as clients:
        for node in cluster.nodes:
            assert node.stop() == 0
            node.start()
            node.keys["default"] = KEY
            wait_until(lambda node=node: up(node), "the node has no database")
    assert {status for _, status in clients.failures} <= {0, *AWAY}
    wait_until(lambda: all(ask(cluster, "GET", f"/sandboxes/{one}")[0] not in AWAY
                           for one in clients.alive), "a node is not reached")
    clients.check()
