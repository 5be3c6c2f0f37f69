# SPDX-License-Identifier: Apache-2.0
"""`cay serve` for tests: in a home of its own, to be killed and started again, and with a
look at what its processes hold and at what its sandboxes leave behind."""

import json
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CAY = os.environ.get("CAY_BIN", str(ROOT / "build" / "cay"))
PATIENCE = int(os.environ.get("CAY_PATIENCE", 60))  # seconds: for a slow machine, not for waiting


def wait_until(condition, what):
    """Waits for what must come, looking often; the last value is returned."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.01)
    return value


def unavailable(reason):
    """Skips, or fails where nothing may be skipped."""
    if os.environ.get("CAY_MUST_WORK") == "1":
        pytest.fail(f"would be skipped, but CAY_MUST_WORK=1: {reason}")
    pytest.skip(reason)


def runtime():
    if os.geteuid() == 0:
        return Path("/run/cay")
    return Path(os.environ["XDG_RUNTIME_DIR"]) / "cay"


def traces(sandbox_id):
    """What is left on this machine of a sandbox, as clients name it."""
    name = f"sb-{sandbox_id}"
    found = [str(path) for path in runtime().glob(f"{name}*")]
    for path in runtime().glob("ranges/*"):
        try:
            if os.readlink(path) == name:
                found.append(str(path))
        except OSError:
            pass
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            found += [str(path) for path in Path(point).glob(f"*/cay-{name}")]
            found += [str(path) for path in Path(point).glob(f"cay-{name}")]
        elif name in line:
            found.append(line)
    return found


def children(pid):
    """The processes that a process has started and that are not dead."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            pass
    return [child for child in found if state(child) not in ("", "Z")]


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def rss_kib(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1])


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def free_port():
    """One that nobody is given by chance while the server is down; 0 if there are no such."""
    first, least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]), 10000
    while first - least > 1000:
        port = random.randrange(least, first)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    return 0


class Server:
    """One server and its sandboxes.  It keeps its port when it is started again."""

    def __init__(self, home, *options):
        self.home, self.options = Path(home), options
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.port = free_port()
        self.process = self.first_front = None
        self.exports, self.keys = {}, {}
        self.log = self.home / "server.log"
        self.env = {**os.environ, "CAY_HOME": str(self.home)}
        self.inherited = ()
        self.before = ()  # words before the command

    # --- Its life ---

    def start(self, exports=4):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.before, CAY, "serve", "--listen", f"127.0.0.1:{self.port}", "--access-log",
                 str(self.home / "access.log"), *self.options],
                env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log, text=True, pass_fds=self.inherited)
        self.exports = dict(re.match(r"export (\w+)=(.*)", line).groups()
                            for line in self.read_exports(exports))
        self.port = int(self.url.rpartition(":")[2])
        self.keys["default"] = self.exports.get("E2B_API_KEY")
        self.first_front = self.front()
        return self

    def read_exports(self, count):
        lines = [self.process.stdout.readline().strip() for _ in range(count)]
        assert all(lines), f"the server did not start: {self.log.read_text()}"
        return lines

    def stop(self, number=signal.SIGTERM):
        """Its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return status

    def kill(self):
        """As if the power had gone: nothing of the server is left when this returns."""
        pids = [self.broker, *self.children()]
        self.stop(signal.SIGKILL)
        wait_until(lambda: all(state(pid) in ("", "Z") for pid in pids),
                   "the server's processes outlive it")

    def restart(self):
        self.kill()
        self.start()

    def clean(self):
        """Ends its sandboxes and itself; nothing of them may be left."""
        if self.process.poll() is not None:
            self.start()
        assert self.front() == self.first_front, "the half that speaks HTTP has crashed"
        for sandbox_id in self.ids():
            subprocess.run([CAY, "rm", f"sb-{sandbox_id}"], env=self.env,
                           capture_output=True, timeout=PATIENCE, check=False)
        assert self.stop() == 0, self.log.read_text()
        deadline = time.monotonic() + PATIENCE
        left = {}
        for sandbox_id in self.ids():
            while traces(sandbox_id) and time.monotonic() < deadline:
                time.sleep(0.02)
            if traces(sandbox_id):
                left[sandbox_id] = traces(sandbox_id)
        assert left == {}, "something is left of a sandbox"

    # --- Address, keys and requests ---

    @property
    def url(self):
        return self.exports["E2B_API_URL"]

    @property
    def key(self):
        """Of the tenant who is there from the start."""
        return self.exports["E2B_API_KEY"]

    def cay(self, *words):
        return subprocess.run([CAY, *words], env=self.env, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def new_key(self, tenant):
        done = self.cay("key", "new", tenant)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def options_of(self, tenant):
        """Arguments for the SDK: it is this server's, and its user this tenant."""
        if tenant not in self.keys:
            self.keys[tenant] = self.new_key(tenant)
        return {"api_url": self.url, "sandbox_url": self.url, "api_key": self.keys[tenant]}

    def api(self, method, path, body=None, **headers):
        """One request, with the key unless another is given: status and JSON."""
        request = urllib.request.Request(
            self.url + path, method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"X-API-KEY": self.keys["default"], **{
                name.replace("_", "-"): value for name, value in headers.items()}})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                status, text = reply.status, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"X-API-KEY": self.key})
        return urllib.request.urlopen(request, timeout=PATIENCE)

    @contextmanager
    def rows(self, count):
        """Adds rows of sandboxes that do not exist; their ids, newest first."""
        now_ms = int(time.time() * 1000)
        ids = [f"row{number:05}" for number in range(count)]
        with closing(sqlite3.connect(self.home / "serve.db")) as store:
            with store:
                store.executemany(
                    "INSERT INTO sandboxes (id, tenant, template, state, started_ms, end_ms, "
                    "flags, token_version, reason, metadata) VALUES "
                    "(?, 'default', 'base', 1, ?, ?, 0, 1, '', x'6b6579007800')",
                    [(name, now_ms - at, now_ms + 3600_000) for at, name in enumerate(ids)])
            try:
                yield ids
            finally:
                with store:
                    store.execute("DELETE FROM sandboxes WHERE id LIKE 'row%'")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def ids(self):
        """All sandboxes that it has known, dead ones too: by its records, and by its log, in
        case that a record was lost."""
        with closing(sqlite3.connect(f"file:{self.home}/serve.db?mode=ro", uri=True)) as records:
            found = {row[0] for row in records.execute("SELECT id FROM sandboxes")}
        path = self.home / "access.log"
        log = path.read_text() if path.exists() else ""
        named = r'(?:"sandbox":\s*"|/sandboxes/)([a-z0-9]{1,31})(?![a-z0-9])'
        return found | set(re.findall(named, log))

    # --- What it is made of ---

    @property
    def broker(self):
        return self.process.pid

    def children(self):
        """The processes of the server: the front, and the keepers."""
        return children(self.broker)

    def keepers(self):
        """Those of the processes that keep a sandbox each."""
        return [pid for pid in self.children() if name_of(pid) == "cay-keeper"]

    def pool(self):
        """The process that has the pool, or None, and how many of its sandboxes are ready."""
        found = [pid for pid in self.children() if name_of(pid) == "cay-pool"]
        done = subprocess.run([*self.before, CAY, "pool", "ls", "-o", "json"], env=self.env,
                              capture_output=True, text=True, timeout=PATIENCE, check=True)
        ready = [one["ready"] for one in json.loads(done.stdout)["pools"] if one["pid"] in found]
        return (found[0] if found else None), sum(ready)

    def has_spares(self, count):
        return self.pool()[1] == count

    def connections(self):
        """How many clients hold a connection and are there."""
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(fields[1].endswith(f":{self.port:04X}") and fields[3] == "01"
                   for fields in lines)

    def held(self):
        """How many descriptors the front has open besides those of clients."""
        return descriptors(self.front()) - self.connections()

    def front(self):
        """The half that speaks HTTP."""
        return wait_until(lambda: [pid for pid in self.children() if name_of(pid) == "cay-front"],
                          "there is no front")[0]
