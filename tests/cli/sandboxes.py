# SPDX-License-Identifier: Apache-2.0
"""The real command with real sandboxes, and a ledger of what a test made."""

import json
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from conftest import CAY, PATIENCE


@dataclass
class Done:
    status: int
    out: bytes
    err: bytes

    @property
    def text(self):
        return self.out.decode()

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def line(self):
        """The one line on standard error."""
        text = self.err.decode()
        assert text.startswith("cay: ") and text.count("\n") == 1 and text.endswith(")\n"), text
        return text[:-1]


def runtime():
    if os.geteuid() == 0:
        return Path("/run/cay")
    return Path(os.environ["XDG_RUNTIME_DIR"]) / "cay"


def traces(sandbox_id):
    """What is left on this machine of a sandbox: records, user ids, cgroups, mounts."""
    found = [str(path) for path in runtime().glob(f"{sandbox_id}*")]
    for path in runtime().glob("ranges/*"):
        try:
            if os.readlink(path) == sandbox_id:
                found.append(str(path))
        except OSError:  # released meanwhile
            pass
    for line in Path("/proc/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] in ("cgroup", "cgroup2"):
            found += [str(path) for path in Path(fields[1]).glob(f"*/cay-{sandbox_id}")]
            found += [str(path) for path in Path(fields[1]).glob(f"cay-{sandbox_id}")]
        elif sandbox_id in line:
            found.append(line)
    return found


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def gone(sandbox_id):
    """Some of it is the kernel's to do: a moment later, not never."""
    deadline = time.monotonic() + PATIENCE
    while traces(sandbox_id) and time.monotonic() < deadline:
        time.sleep(0.02)
    return traces(sandbox_id) == []


class Sandboxes:
    def __init__(self, folder):
        self.folder = folder
        self.made = []
        self.started = []

    def cay(self, *words, stdin=b"", env=None, cwd=None, **more):
        done = subprocess.run([CAY, *map(str, words)], input=stdin, capture_output=True,
                              timeout=PATIENCE, env={**os.environ, **(env or {})},
                              cwd=cwd or self.folder, check=False, **more)
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *words, **more):
        done = self.cay(*words, **more)
        assert (done.status, done.err) == (0, b""), done
        return done

    def fails(self, status, *words, **more):
        done = self.cay(*words, **more)
        assert (done.status, done.out) == (status, b""), done
        return done.line

    def create(self, *words):
        sandbox_id = self.ok("create", *words).text.strip()
        assert sandbox_id.startswith("sb-") and len(sandbox_id) == 19
        self.made.append(sandbox_id)
        return sandbox_id

    def start(self, *words, **more):
        """The command, running; it is killed at the end of the test."""
        process = subprocess.Popen([CAY, *map(str, words)], cwd=self.folder, **{
            "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
            **more})
        self.started.append(process)
        return process

    def clean(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()
        for sandbox_id in self.made:
            subprocess.run([CAY, "rm", sandbox_id], capture_output=True, timeout=PATIENCE,
                           check=False)
        left = {one: traces(one) for one in self.made if not gone(one)}
        assert left == {}, "something is left of a sandbox"


class Screen:
    """A command on a terminal of ours."""

    def __init__(self, argv, cwd, rows=30, columns=100, env=None):
        import fcntl
        import pty
        import struct
        import termios

        self.seen = b""
        self.fd, follower = pty.openpty()
        self.follower = follower
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.modes = termios.tcgetattr(follower)
        self.process = subprocess.Popen(
            argv, stdin=follower, stdout=follower, stderr=follower, cwd=cwd,
            env={**os.environ, "TERM": "xterm", **(env or {})}, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, rows, columns):
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self.follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.fd, text)

    def read_some(self, seconds=0.1):
        if select.select([self.fd], [], [], seconds)[0]:
            self.seen += os.read(self.fd, 65536)

    def wait_for(self, text):
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen!r}"
            assert self.process.poll() is None or select.select([self.fd], [], [], 0)[0], \
                f"ended without {text!r}: {self.seen!r}"
            self.read_some()

    def end(self):
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen
            self.read_some()
        while select.select([self.fd], [], [], 0)[0]:
            self.read_some()
        return self.process.returncode

    def is_restored(self):
        import termios

        return termios.tcgetattr(self.follower) == self.modes

    def is_raw(self):
        import termios

        return not termios.tcgetattr(self.follower)[3] & (termios.ICANON | termios.ECHO)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.fd)
        os.close(self.follower)
