# SPDX-License-Identifier: Apache-2.0
"""Plays the code service for one driver of data/code."""

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CODE = Path(__file__).resolve().parents[2] / "data" / "code"
PATIENCE = 60  # seconds, on a busy machine


def text(*path):
    return (CODE.joinpath(*path)).read_text(encoding="utf-8")


def skip(reason):
    if os.environ.get("CAY_MUST_WORK") == "1":
        pytest.fail(f"would be skipped, but CAY_MUST_WORK=1: {reason}")
    pytest.skip(reason)


def python_parts():
    return {name: text("python", f"{name}.py") for name in ("show", "trace", "magic", "charts")}


PYTHON = os.environ.get("CAY_TEST_PYTHON", "/usr/bin/python3")  # another version's path
LANGUAGES = {
    "python": ([PYTHON, "-c", text("python", "loader.py")],
               {"source": text("python", "core.py"), "parts": python_parts()}),
    "node": (["node", "-e", text("node", "loader.js")],
             {"source": text("node", "core.js"), "parts": {}}),
    "bash": (["bash", "--noprofile", "--norc", "-c", text("bash", "core.sh"), "bash"], None),
}


@dataclass
class Execution:
    """What one execution reported."""

    lines: list = field(default_factory=list)
    raw: dict = field(default_factory=lambda: {1: b"", 2: b""})  # descriptors 1 and 2

    def all(self, kind):
        return [line for line in self.lines if line["type"] == kind]

    def texts(self, kind):
        return [line["text"] for line in self.all(kind)]

    @property
    def out(self):
        return "".join(self.texts("stdout")) + self.raw[1].decode("utf-8", "replace")

    @property
    def err(self):
        return "".join(self.texts("stderr")) + self.raw[2].decode("utf-8", "replace")

    @property
    def error(self):
        errors = self.all("error")
        assert len(errors) <= 1
        return errors[0] if errors else None

    @property
    def results(self):
        return self.all("result")

    @property
    def main(self):
        """The data of the main result, None if there is none."""
        found = [line["data"] for line in self.results if line["main"]]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def value(self):
        return self.main["text/plain"] if self.main else None

    @property
    def shown(self):
        return [line["data"] for line in self.results if not line["main"]]

    @property
    def count(self):
        counts = self.all("count")
        return counts[0]["count"] if counts else None


class Driver:
    """A driver as a child process, with a socket at 3 and pipes at 1 and 2."""

    def __init__(self, language, cwd=None, env=None, argv=None):
        command, start = LANGUAGES[language]
        ours, theirs = socket.socketpair()
        pipes = {1: os.pipe(), 2: os.pipe()}
        high = fcntl.fcntl(theirs, fcntl.F_DUPFD, 20)
        os.set_inheritable(high, True)
        # The shell moves the socket to 3, for the number may be in use here.
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$@" 3<&{high} {high}<&-', "sh", *(argv or command)],
            stdin=subprocess.DEVNULL, stdout=pipes[1][1], stderr=pipes[2][1], cwd=cwd,
            pass_fds=[high], process_group=0,
            env={**{key: value for key, value in os.environ.items()
                    if key in ("PATH", "HOME", "LD_LIBRARY_PATH")},
                 "LANG": "C.UTF-8", "MPLCONFIGDIR": "/tmp/cay-tests-matplotlib", **(env or {})})
        os.close(high)
        theirs.close()
        self.socket, self.pipes, self.pending, self.id = ours, {}, b"", 0
        self.repeat = False
        for number, (reading, writing) in pipes.items():
            os.close(writing)
            os.set_blocking(reading, False)
            self.pipes[number] = reading
        if start:
            self.send({"type": "start", **start})
        self.ready = self.read_line(Execution())
        assert self.ready["type"] == "ready"

    def send(self, message):
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        self.socket.sendall(line.encode() + b"\n")

    def drain(self, execution):
        for number, descriptor in self.pipes.items():
            try:
                while block := os.read(descriptor, 65536):
                    execution.raw[number] += block
            except BlockingIOError:
                pass

    def read_line(self, execution):
        """The next line; None if the driver has ended."""
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self.pending:
            left = deadline - time.monotonic()
            assert left > 0, f"no line from the driver; so far: {execution}"
            ready, _, _ = select.select([self.socket, *self.pipes.values()], [], [],
                                        min(left, 0.25))
            if self.repeat and not ready:
                self.interrupt()
            self.drain(execution)
            if self.socket in ready:
                block = self.socket.recv(1 << 20)
                if not block:
                    return None
                self.pending += block
            elif self.process.poll() is not None:
                return None
        line, _, self.pending = self.pending.partition(b"\n")
        self.drain(execution)
        return json.loads(line, parse_constant=lambda name: 1 / 0)

    def begin(self, code, **more):
        self.id += 1
        self.send({"type": "execute", "id": self.id, "code": code, "env": {}, **more})
        return Execution()

    def finish(self, execution):
        """Reads to the end of the execution; adds a line "died" if the driver ends."""
        while True:
            line = self.read_line(execution)
            if line is None:
                execution.lines.append({"type": "died", "status": self.process.wait(PATIENCE)})
                return execution
            if line["type"] == "done":
                assert line == {"type": "done", "id": self.id}
                return execution
            execution.lines.append(line)

    def until(self, execution, marker):
        """Reads until the output has the marker."""
        while marker not in execution.out:
            line = self.read_line(execution) if marker not in execution.out else None
            if line:
                execution.lines.append(line)

    def wait_for_raw(self, execution, marker):
        """Reads descriptor 1 until it has the marker."""
        deadline = time.monotonic() + PATIENCE
        while marker not in execution.raw[1]:
            assert time.monotonic() < deadline
            select.select([self.pipes[1]], [], [], 1)
            self.drain(execution)

    def run(self, code, **more):
        return self.finish(self.begin(code, **more))

    def interrupt(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def finish_interrupted(self, execution):
        """Interrupts until the execution ends: a child that bash has just forked, and waits
        for before it runs its trap, misses the first signal."""
        self.repeat = True
        self.interrupt()
        self.finish(execution)
        self.repeat = False
        return execution

    def close(self):
        self.socket.close()
        for descriptor in self.pipes.values():
            os.close(descriptor)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
