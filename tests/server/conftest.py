# SPDX-License-Identifier: Apache-2.0
"""A server of our own on loopback, and clients of it: E2B's SDKs as they are published."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CAY = os.environ.get("CAY_BIN", str(ROOT / "build" / "cay"))
PATIENCE = 60  # seconds: for a machine that is very slow, not for waiting
NPM = {"2.51": "2.51.0", "2.45": "2.45.0"}  # the newest that was tested, and an old one


class Server:
    """`cay serve` with a home of its own; knows what it printed."""

    def __init__(self, home, *options):
        self.home = home
        self.options = options
        self.env = {**os.environ, "CAY_HOME": str(home)}
        self.process = None
        self.port = 0
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [CAY, "serve", "--listen", f"127.0.0.1:{self.port}", *self.options],
            env=self.env, stdout=subprocess.PIPE, text=True)
        self.exports = {}
        for _ in range(3):
            line = self.process.stdout.readline()
            match = re.fullmatch(r"export (\w+)=(\S+)\n", line)
            assert match, line
            self.exports[match[1]] = match[2]
        self.url = self.exports["E2B_API_URL"]
        self.port = int(self.url.rsplit(":", 1)[1])
        self.key = self.exports["E2B_API_KEY"]

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return status

    def cay(self, *words):
        return subprocess.run([CAY, *words], env=self.env, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def new_key(self, tenant):
        result = self.cay("key", "new", tenant)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def api(self, method, path, body=None, **headers):
        """One request, with the key unless another is given: status and JSON."""
        request = urllib.request.Request(
            self.url + path, method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"X-API-KEY": self.key, **{
                name.replace("_", "-"): value for name, value in headers.items()}})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                status, text = reply.status, reply.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def children(self):
        """The processes of the server: the front, and the keepers."""
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in pids.read_text().split()]

    def front(self):
        for pid in self.children():
            if Path(f"/proc/{pid}/comm").read_text() == "cay-front\n":
                return pid
        raise AssertionError("there is no front")

    def end_sandboxes(self):
        import e2b
        for key in self.all_keys:
            pages = e2b.Sandbox.list(api_key=key)
            while pages.has_next:
                for info in pages.next_items():
                    e2b.Sandbox.kill(info.sandbox_id, api_key=key)

    @property
    def all_keys(self):
        return [self.key]


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("home"))
    os.environ.update(server.exports)
    yield server
    if server.process.poll() is None:
        server.end_sandboxes()
    assert server.stop() == 0


@pytest.fixture
def own_server(tmp_path, monkeypatch):
    """Starts servers for one test, with options; their sandboxes go with them."""
    servers = []

    def start(*options):
        one = Server(tmp_path / f"home{len(servers)}", "--on-exit", "kill", *options)
        servers.append(one)
        for name, value in one.exports.items():
            monkeypatch.setenv(name, value)
        return one

    yield start
    for one in servers:
        one.stop()


@pytest.fixture(scope="session")
def e2b(server):
    return pytest.importorskip("e2b")


@pytest.fixture
def sandbox(e2b):
    made = e2b.Sandbox.create(timeout=120)
    yield made
    made.kill()


@pytest.fixture(scope="session")
def npm(tmp_path_factory):
    """Installs a version of the JavaScript SDK; the directory it is in."""
    if subprocess.run(["which", "node", "npm"], capture_output=True, check=False).returncode:
        if os.environ.get("CAY_MUST_WORK") == "1":
            pytest.fail("node and npm are needed")
        pytest.skip("node and npm are needed")
    places = {}

    def install(version):
        if version not in places:
            place = Path(os.environ.get("CAY_NPM", ROOT / "build" / "npm")) / version
            wanted = place / "node_modules" / "e2b" / "package.json"
            if not wanted.exists():
                place.mkdir(parents=True, exist_ok=True)
                (place / "package.json").write_text('{"private": true}\n')
                subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent",
                                f"e2b@{NPM[version]}"], cwd=place, check=True, timeout=300,
                               stdin=subprocess.DEVNULL)
            places[version] = place
        return places[version]

    return install


@pytest.fixture(params=sorted(NPM))
def node(request, npm, server):
    """Runs a script against the server; it is to print nothing but "ok"."""
    place = npm(request.param)

    def run(script):
        path = place / f"test-{os.getpid()}.mjs"
        path.write_text((Path(__file__).parent / "js" / script).read_text())
        try:
            result = subprocess.run(["node", path.name], cwd=place, capture_output=True,
                                    text=True, timeout=3 * PATIENCE, check=False,
                                    env={**os.environ, **server.exports})
        finally:
            path.unlink()
        assert result.returncode == 0, result.stdout + result.stderr
        assert result.stdout == "ok\n", result.stdout
    return run


assert sys.version_info >= (3, 10)
