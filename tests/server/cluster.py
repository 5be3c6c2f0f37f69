# SPDX-License-Identifier: Apache-2.0
"""Several `cay serve` on loopback, HAProxy in front of them with the configuration that
`cay serve --haproxy` prints, and PostgreSQL behind them."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from serving import CAY, PATIENCE, Server, free_port, unavailable, wait_until

NODES = ("naaa", "naab", "naac")


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Postgres:
    """A database of its own, run by the user postgres, with a password."""

    PASSWORD = "a secret of the tests"

    def __init__(self):
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not found:
            unavailable("PostgreSQL is not installed")
        self.bin = found[-1].parent
        # Not below pytest's own directory, which each run of pytest closes for other users.
        self.home = Path(tempfile.mkdtemp(prefix="cay-postgres-"))
        self.data = self.home / "data"
        self.user = pwd.getpwnam("postgres")
        os.chown(self.home, self.user.pw_uid, self.user.pw_gid)
        self.port = free_port()
        self.process = None
        secret = self.home / "password"
        secret.write_text(self.PASSWORD)
        os.chown(secret, self.user.pw_uid, self.user.pw_gid)
        self.run("initdb", "-D", str(self.data), "-A", "scram-sha-256", "-U", "cay",
                 f"--pwfile={secret}", "--no-sync", "--locale=C.UTF-8")

    def as_postgres(self, words):
        return ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}",
                "--clear-groups", *words]

    def run(self, program, *words):
        done = subprocess.run(self.as_postgres([str(self.bin / program), *words]), check=False,
                              capture_output=True, text=True, timeout=PATIENCE, cwd="/")
        assert done.returncode == 0, done.stderr + done.stdout

    @property
    def url(self):
        return f"postgresql://cay@127.0.0.1:{self.port}/postgres"

    def start(self):
        log = (self.home / "log").open("ab")
        self.process = subprocess.Popen(
            self.as_postgres([str(self.bin / "postgres"), "-D", str(self.data), "-p",
                              str(self.port), "-c", "listen_addresses=127.0.0.1", "-c",
                              "unix_socket_directories=", "-c", "fsync=off", "-c",
                              "shared_buffers=16MB", "-c", "max_connections=30"]),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        log.close()
        wait_until(lambda: answers(self.port), lambda: (self.home / "log").read_text())
        return self

    def kill(self):
        """At once: as if its machine had gone (SIGQUIT is an immediate shutdown)."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(3)
            self.process.wait(PATIENCE)

    def clean(self):
        self.kill()
        shutil.rmtree(self.home)

    def ask(self, text):
        done = subprocess.run(
            ["psql", "-X", "-A", "-t", "-q", "-F", "|", self.url, "-c", text], check=False,
            env={**os.environ, "PGPASSWORD": self.PASSWORD}, capture_output=True, text=True,
            timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return [line.split("|") for line in done.stdout.splitlines()]


class Proxy:
    """HAProxy, with what `cay serve --haproxy` prints for these servers."""

    def __init__(self, home, servers, *options):
        if not shutil.which("haproxy"):
            unavailable("HAProxy is not installed")
        self.port = free_port()
        self.file = Path(home) / "haproxy.cfg"
        words = [f"{one.node}=127.0.0.1:{one.port}/{one.agent}" for one in servers]
        done = subprocess.run([CAY, "serve", "--listen", f"127.0.0.1:{self.port}", *options,
                               "--haproxy", *words], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        self.file.write_text(done.stdout)
        self.process = None

    def start(self):
        subprocess.run(["haproxy", "-c", "-q", "-f", str(self.file)], check=True, timeout=PATIENCE)
        self.process = subprocess.Popen(["haproxy", "-db", "-f", str(self.file)],
                                        stdin=subprocess.DEVNULL)
        wait_until(lambda: answers(self.port), "HAProxy does not listen")
        return self

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(PATIENCE)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


class Node(Server):
    """One of several servers."""

    def __init__(self, home, node, *options):
        self.node, self.agent = node, free_port()
        super().__init__(home, "--node", node, "--agent", str(self.agent), "--domain",
                         "localhost", *options)

    def ready(self):
        """The status and the state of /ready."""
        try:
            with urllib.request.urlopen(self.url + "/ready", timeout=PATIENCE) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def say(self):
        """What the port of --agent says."""
        with socket.create_connection(("127.0.0.1", self.agent), PATIENCE) as agent:
            return agent.makefile().read()
