# SPDX-License-Identifier: Apache-2.0
"""Faults at random under load: fifteen clients create sandboxes, write files and kill, while the
server's processes and sandboxes are killed, its descriptors and its disk run out, its clock is set
and a record is damaged.  Afterwards every acknowledged operation is there, and nothing unknown runs.

The seed of a run is printed; CAY_CHAOS_SEED repeats it, CAY_CHAOS_SECONDS sets how long it takes.
"""

import http.client
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from serving import CAY, PATIENCE, Server, name_of, state, unavailable, wait_until
from test_life import fixture_step, running  # noqa: F401 (the fixture "step")

SECONDS = int(os.environ.get("CAY_CHAOS_SECONDS", 45))
CLIENTS = 15
DISK = 8 << 20
NOFILE = 512


class Ledger:
    """What was acknowledged, and what the test itself destroyed."""

    def __init__(self):
        self.lock = threading.Lock()
        self.files = {}  # by sandbox: path -> content
        self.tokens = {}
        self.killed, self.doubtful, self.destroyed = set(), set(), set()
        self.refusals = {}

    def count(self, act, status):
        with self.lock:
            self.refusals[act, status] = self.refusals.get((act, status), 0) + 1


class Client(threading.Thread):
    """Creates, writes and kills until it is told to stop; keeps its books in the ledger."""

    def __init__(self, chaos, seed):
        super().__init__(daemon=True)
        self.chaos, self.ledger, self.random = chaos, chaos.ledger, random.Random(seed)
        self.own = []

    def run(self):
        while not self.chaos.is_over.is_set():
            act = self.random.choice((self.create, self.write, self.write, self.write, self.kill))
            act()
            time.sleep(self.random.uniform(0, 0.1))

    def create(self):
        if len(self.own) >= 3:
            return
        status, reply = self.chaos.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 600})
        if status != 201:
            self.ledger.count("create", status)
            return
        with self.ledger.lock:
            self.ledger.files[reply["sandboxID"]] = {}
            self.ledger.tokens[reply["sandboxID"]] = reply.get("envdAccessToken")
        self.own.append(reply["sandboxID"])

    def write(self):
        if not self.own:
            return
        sandbox = self.random.choice(self.own)
        name, content = f"f{self.random.randrange(6)}", os.urandom(self.random.randrange(1, 4096))
        with self.ledger.lock:  # a write that fails removes the file
            self.ledger.files[sandbox].pop(name, None)
        status = self.chaos.write(sandbox, name, content)
        if status == 200:
            with self.ledger.lock:
                self.ledger.files[sandbox][name] = content
            return
        self.ledger.count("write", status)

    def kill(self):
        if len(self.own) < 2 or self.random.random() < 0.5:
            return
        sandbox = self.own.pop()
        status, _ = self.chaos.ask("DELETE", f"/sandboxes/{sandbox}")
        with self.ledger.lock:
            (self.ledger.killed if status == 204 else self.ledger.doubtful).add(sandbox)


class Chaos:
    """The server in a mount namespace with a /run/cay and a disk for its store of their own, and
    the faults."""

    def __init__(self, home, seed, step):
        self.random, self.ledger, self.step = random.Random(seed), Ledger(), step
        self.is_over = threading.Event()
        self.small = home.with_name("small")
        self.small.mkdir()
        self.holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c",
             f"mount -t tmpfs -o size={DISK},mode=700 none {self.small} && mkdir -p /run/cay && "
             "mount -t tmpfs -o mode=700 none /run/cay && echo ready && exec sleep infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self.holder.stdout.readline() == b"ready\n"
        self.root = Path(f"/proc/{self.holder.pid}/root")
        self.inside = ["nsenter", "-t", str(self.holder.pid), "-m"]
        self.server = Server(home, "--reserve", "0", "--store", str(self.small / "serve.db"))
        self.server.before = ["prlimit", f"--nofile={NOFILE}:{NOFILE}", *self.inside]
        self.server.log = home.with_name("server.log")
        step(self.server, 0)
        self.server.start()
        self.faults = {}

    # --- Requests ---

    def ask(self, method, path, body=None):
        status, text = self.request(method, path, None if body is None else
                                    json.dumps(body).encode(), {"Content-Type": "application/json"})
        return status, json.loads(text) if text else None

    def request(self, method, path, body, headers):
        """Status and body; None as the status if there was no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body,
                               {"X-API-KEY": self.server.keys["default"], **headers})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            return None, None
        finally:
            connection.close()

    def of(self, sandbox):
        token = self.ledger.tokens[sandbox]
        return {"E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "49983",
                **({"X-Access-Token": token} if token else {})}

    def write(self, sandbox, name, content):
        return self.request("POST", f"/files?path={name}&username=user", content,
                            {**self.of(sandbox), "Content-Type": "application/octet-stream"})[0]

    def read(self, sandbox, name):
        return self.request("GET", f"/files?path={name}&username=user", None, self.of(sandbox))

    # --- Faults ---

    def kill_front(self):
        for pid in self.server.children():
            if name_of(pid) == "cay-front":
                os.kill(pid, signal.SIGKILL)

    def kill_keepers(self):
        keepers = self.server.keepers()
        for pid in self.random.sample(keepers, min(3, len(keepers))):
            os.kill(pid, signal.SIGKILL)

    def kill_server(self):
        self.server.kill()
        self.server.start()

    def drain_server(self):
        self.server.stop()
        self.server.start()

    def kill_first_process(self):
        with self.ledger.lock:
            alive = sorted(set(self.ledger.files) - self.ledger.killed - self.ledger.destroyed)
            if not alive:
                return
            sandbox = self.random.choice(alive)
            self.ledger.destroyed.add(sandbox)
        done = subprocess.run([*self.inside, CAY, "inspect", "-o", "json", f"sb-{sandbox}"],
                              capture_output=True, env=self.server.env, check=False)
        if done.returncode == 0:
            os.kill(json.loads(done.stdout)["init_pid"], signal.SIGKILL)

    def use_up_descriptors(self):
        held = []
        for _ in range(NOFILE + 100):
            with suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", self.server.port), 5))
        time.sleep(0.5)
        for one in held:
            one.close()

    def fill_disk(self):
        path = self.root / str(self.small).lstrip("/") / "ballast"
        try:
            with path.open("wb", buffering=0) as ballast:
                with suppress(OSError):
                    while True:
                        ballast.write(bytes(1 << 16))
            time.sleep(0.5)
        finally:
            path.unlink(missing_ok=True)

    def set_clock(self):
        """The clock on the wall, as the server sees it, up to two hours off."""
        self.step(self.server, self.random.randrange(-7200, 7200))

    def damage_record(self):
        """The sandbox is lost to its user, and must still be listed and removable."""
        with self.ledger.lock:
            alive = sorted(set(self.ledger.files) - self.ledger.killed - self.ledger.destroyed)
            if not alive:
                return
            sandbox = self.random.choice(alive)
            self.ledger.destroyed.add(sandbox)
        with suppress(OSError), (self.root / "run/cay" / f"sb-{sandbox}").open("r+b") as record:
            record.write(b"\xff" * 64)

    FAULTS = (kill_front, kill_keepers, kill_server, drain_server, kill_first_process,
              use_up_descriptors, fill_disk, set_clock, damage_record)

    def strike(self):
        """Every fault once, then at random until the time is over."""
        end = time.monotonic() + SECONDS
        pending = list(self.FAULTS)
        self.random.shuffle(pending)
        while pending or time.monotonic() < end:
            fault = pending.pop() if pending else self.random.choice(self.FAULTS)
            self.faults[fault.__name__] = self.faults.get(fault.__name__, 0) + 1
            with suppress(ProcessLookupError):
                fault(self)
            time.sleep(self.random.uniform(0.2, 1.5))

    # --- What there is ---

    def records(self):
        return {path.name[3:] for path in (self.root / "run/cay").glob("sb-*")
                if "." not in path.name}

    def known(self):
        status, listed = self.ask("GET", "/v2/sandboxes?limit=100&state=running,paused")
        assert status == 200, (status, listed)
        return {one["sandboxID"] for one in listed}

    def end(self):
        """Everything that was started ends, whatever has failed."""
        self.is_over.set()
        if self.server.process.poll() is None:
            self.server.stop(signal.SIGKILL)
        for name in self.records():
            subprocess.run([*self.inside, CAY, "kill", f"sb-{name}"], env=self.server.env,
                           capture_output=True, check=False, timeout=PATIENCE)
        left = self.records()
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()
        return left


@pytest.fixture(name="chaos")
def fixture_chaos(tmp_path, step):
    if os.geteuid() != 0 or not shutil.which("nsenter"):
        unavailable("the faults need root, for a mount namespace of the server's own")
    seed = int(os.environ.get("CAY_CHAOS_SEED", random.randrange(1 << 30)))
    print(f"CAY_CHAOS_SEED={seed}")
    home = tmp_path / "home"
    home.mkdir()
    chaos = Chaos(home, seed, step)
    try:
        yield chaos
    finally:
        assert chaos.end() == set(), "sandboxes are left"


def check_acknowledged(chaos):
    """Each sandbox that was acknowledged, and neither killed nor destroyed, has its files."""
    ledger = chaos.ledger
    for sandbox, files in ledger.files.items():
        if sandbox in ledger.destroyed | ledger.doubtful:
            continue
        status, _ = chaos.ask("GET", f"/sandboxes/{sandbox}")
        assert status == (404 if sandbox in ledger.killed else 200), sandbox
        for name, content in files.items() if status == 200 else ():
            assert chaos.read(sandbox, name) == (200, content), (sandbox, name)


@pytest.mark.long
def test_acknowledged_operations_survive_and_nothing_unknown_runs(chaos):
    clients = [Client(chaos, chaos.random.random()) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    chaos.strike()
    chaos.is_over.set()
    for client in clients:
        client.join(2 * PATIENCE)
        assert not client.is_alive(), "a client waits for ever"
    wait_until(lambda: chaos.ask("GET", "/health")[0] in (200, 204), "the server does not answer")
    assert state(chaos.server.broker) not in ("", "Z")
    print(f"faults: {chaos.faults}; refusals: {chaos.ledger.refusals}; "
          f"created {len(chaos.ledger.files)}, killed {len(chaos.ledger.killed)}")
    assert len(chaos.ledger.files) > CLIENTS, "the clients got nothing done"
    check_acknowledged(chaos)
    # What no client was told of is ended within ten seconds, or is known to the server.  The
    # record of one that ended stays if its keeper was killed: running() collects it.
    wait_until(lambda: running(chaos.server) <= chaos.known() | chaos.ledger.destroyed,
               lambda: f"unknown: {running(chaos.server) - chaos.known()}")
