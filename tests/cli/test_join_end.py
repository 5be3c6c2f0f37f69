# SPDX-License-Identifier: Apache-2.0
"""Members of a named network that are killed: nothing of them stays, and the others go on."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE, TRACED
from test_join import CLIENT, Box, fixture_box, fixture_net, links  # noqa: F401 (fixtures)
from test_relay import internet, relay_of  # noqa: F401 (internet is a fixture)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to look into /proc")

HOLD = CLIENT + """
with socket.create_connection(("{}", 7000)) as sock:
    print("open", flush=True)
    print(attempt(lambda: sock.recv(1)) or "closed")
"""


def wait_until(is_done):
    until = time.monotonic() + PATIENCE
    while not is_done():
        assert time.monotonic() < until
        time.sleep(0.02)


def hold(sandbox, name):
    """A connection to a member that stays open."""
    client = subprocess.Popen([CAY, "exec", sandbox, "--", "python3", "-c", HOLD.format(name)],
                              stdout=subprocess.PIPE)
    assert client.stdout.readline() == b"open\n"
    return client


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def namespace_of(pid):
    return os.readlink(f"/proc/{pid}/ns/net")


def users_of(namespace):
    """Processes of a network namespace."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if namespace_of(path.name) == namespace and is_alive(path.name):
                found.append(path.name)
        except OSError:
            continue
    return found


def sockets_of(pid):
    """Of one process; those of another sandbox's namespace keep that namespace."""
    return sorted(name for name in map(os.readlink, Path(f"/proc/{pid}/fd").iterdir())
                  if name.startswith("socket:"))


def files_of(sandbox):
    return sorted(path.name for path in Path("/run/cay").rglob(f"*{sandbox}*"))


class Three:
    """Members one, two and three; each serves its name."""

    def __init__(self, box, net):
        self.box, self.net = box, net
        self.names = ("one", "two", "three")
        self.ids = {name: self.add(name) for name in self.names}

    def add(self, name):
        sandbox = self.box.create("--join", f"{self.net}:{name}")
        self.box.serve(sandbox, name)
        return sandbox

    def greet(self, name, *others):
        return self.box.run(self.ids[name], f"print(*(greet(name) for name in {others!r}))")[0].split()

    def init(self, name):
        return self.box.inspect(self.ids[name])["init_pid"]


@pytest.fixture(name="three")
def fixture_three(box, net):  # noqa: F811
    return Three(box, net)


@pytest.mark.parametrize("how", ["init", "relay first", "cay kill"])
def test_a_killed_member_leaves_nothing_and_the_others_go_on(three, how):
    victim, init, relay = three.ids["one"], three.init("one"), relay_of(three.ids["one"])
    namespace, neighbour = namespace_of(init), relay_of(three.ids["two"])
    three.greet("two", "one", "three")
    wait_until(lambda: three.greet("two", "three") == ["three"])
    before = len(sockets_of(neighbour))
    clients = [hold(three.ids["two"], "one"), hold(three.ids["one"], "two")]
    assert len(sockets_of(neighbour)) > before  # the control: a socket of the victim's namespace
    if how == "relay first":
        os.kill(relay, signal.SIGKILL)
    if how == "cay kill":
        three.box.cay("kill", victim)
    else:
        os.kill(init, signal.SIGKILL)
    assert clients[0].communicate(timeout=PATIENCE)[0] in (b"ECONNRESET\n", b"closed\n")
    clients[1].communicate(timeout=PATIENCE)
    wait_until(lambda: not is_alive(relay) and not users_of(namespace))
    # The connections, and the one to PID 1 of the member, are closed.
    wait_until(lambda: len(sockets_of(neighbour)) < before)
    three.box.cay("gc")
    assert files_of(victim) == [] and victim not in three.box.cay("ls", "-a", "-q")
    assert links(three.net) == [f"{three.net}:three", f"{three.net}:two"]
    assert three.greet("two", "three", "two") == ["three", "two"]
    assert three.greet("three", "two", "one") == ["two", "gaierror"]
    three.ids["one"] = three.add("one")
    assert three.greet("three", "one", "two") == ["one", "two"]


def test_a_member_without_its_cay_net_serves_the_others(three):
    """It reaches no other member itself, and a new member finds it."""
    relay, client = relay_of(three.ids["one"]), hold(three.ids["one"], "two")
    os.kill(relay, signal.SIGKILL)
    assert client.communicate(timeout=PATIENCE)[0] in (b"ECONNRESET\n", b"closed\n")
    assert "two" not in three.greet("one", "two", "198.18.0.1")
    assert three.greet("two", "one", "three") == ["one", "three"]
    three.ids["four"] = three.add("four")
    assert three.greet("four", "one", "two", "three") == ["one", "two", "three"]
    assert three.greet("three", "four") == ["four"]
    three.box.cay("kill", three.ids["one"])
    assert files_of(three.ids["one"]) == []
    assert three.greet("two", "three", "four") == ["three", "four"]


def test_a_killed_run_frees_its_name_at_once(three):
    """Its sandbox is ephemeral: it ends with the process that created it."""
    for _ in range(5):
        creator = subprocess.Popen(
            [CAY, "run", "--join", f"{three.net}:job", "--", "sh", "-c", "echo up; exec sleep 1000"],
            stdout=subprocess.PIPE)
        assert creator.stdout.readline() == b"up\n"
        job = os.readlink(f"/run/cay/networks/{three.net}:job")
        relay = relay_of(job)
        assert three.box.run(three.ids["one"], "print(find('job') != 'gaierror')") == ["True"]
        creator.kill()
        creator.communicate(timeout=PATIENCE)
        wait_until(lambda relay=relay: not is_alive(relay))
        wait_until(lambda: three.box.run(three.ids["one"], "print(find('job'))") == ["gaierror"])
    three.ids["job"] = three.add("job")
    assert three.greet("one", "job") == ["job"]
    three.box.cay("gc")
    assert files_of(job) == []


def test_a_network_ends_with_its_last_member(three):
    relays = [relay_of(each) for each in three.ids.values()]
    namespaces = [namespace_of(three.init(name)) for name in three.names]
    clients = [hold(three.ids["one"], "two"), hold(three.ids["two"], "three"), hold(three.ids["three"], "one")]
    for name in three.names:
        os.kill(three.init(name), signal.SIGKILL)
    for client in clients:
        client.communicate(timeout=PATIENCE)
    wait_until(lambda: not any(map(is_alive, relays)) and not any(map(users_of, namespaces)))
    three.box.cay("gc")
    assert links(three.net) == [] and [files_of(each) for each in three.ids.values()] == [[], [], []]


@pytest.fixture(name="pooled")
def fixture_pooled(internet):  # noqa: F811
    """Sandboxes of a pool that serves only the mount namespace of these tests."""
    box = Box(internet.command(CAY))  # noqa: F811
    pool = box.cay("pool", "start", "--network", "rules", "-n", "2").strip()

    def claimed():
        (found,) = [one for one in json.loads(box.cay("pool", "ls", "-o", "json"))["pools"]
                    if one["id"] == pool]
        return found["claimed"], found["ready"]

    wait_until(lambda: claimed()[1] == 2)
    box.claimed = claimed
    yield box
    box.done()
    box.cay("pool", "stop", pool)


@pytest.mark.long
@pytest.mark.parametrize("call", ["connect", "sendmsg", "symlinkat", "renameat", "unlinkat"])
def test_a_claim_that_is_killed_leaves_the_network_whole(pooled, net, call):  # noqa: F811
    """Killed at its first such call, its second, ... until it needs no more."""
    one = pooled.create("--join", f"{net}:one")
    pooled.serve(one, "one")
    wait_until(lambda: pooled.claimed() == (1, 2))
    for step in range(1, 100):
        command = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                   f"inject={call}:signal=KILL:when={step}", CAY, "create", "--join", f"{net}:killed"]
        done = subprocess.run([*pooled.command[:-1], *command], capture_output=True, timeout=PATIENCE,
                              env=TRACED)
        last = pooled.create("--join", f"{net}:last")
        pooled.serve(last, "last")
        assert pooled.run(last, "print(greet('one'))") == ["one"]
        assert pooled.run(one, "print(greet('last'))") == ["last"]
        pooled.cay("kill", last)
        if done.returncode == 0:
            pooled.ids.append(done.stdout.decode().strip())
            break
        # A spare that was not claimed ends with its leash, one that was claimed is a member.
        for link in [each for each in links(net) if each.endswith(":killed")]:
            killed = os.readlink(f"/run/cay/networks/{link}").rstrip("+")
            pooled.cay("kill", killed, check=False)
        pooled.cay("gc")
        assert links(net) == [f"{net}:one"]
    assert step > 1 and pooled.claimed()[0] >= step
