# SPDX-License-Identifier: Apache-2.0
"""The real command in a world of its own: a policy, some directories, and a watch on them.

Whatever a test does, a command that fails must leave every file as it was, one that
succeeds may add only what its arguments name, and no temporary file may stay behind.
"""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CAY = os.environ.get("CAY_BIN", str(ROOT / "build" / "cay"))
TRACED = {**os.environ, "LSAN_OPTIONS": "detect_leaks=0"}  # which strace prevents
os.environ.setdefault("CAY_WARM", "off")  # no processes of their own behind a test
PATIENCE = 120  # seconds: for a machine that is very slow, not for waiting

POLICY = """\
paths:
  docs: {root: docs}
  notes: {root: notes, mode: rw, write_approval: false}
  asked: {root: asked, mode: rw}
  secret: {root: secret, mode: rw, read_approval: true}
  small: {root: small, mode: rw, write_approval: false, max_file_bytes: 10, suffixes: [.txt]}
"""
NAMES = ("docs", "notes", "asked", "secret", "small")
PARTS = ("cay", "cay-full")  # the second is not there where the command is one program


def copy_command(folder):
    """The command for somebody who may not reach this one; its parts lie beside it."""
    for part in PARTS:
        program = Path(CAY).with_name(part)
        if program.exists():
            shutil.copy(program, folder / part)
    return folder / "cay"


@dataclass
class Result:
    status: int
    out: bytes
    err: bytes

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def error(self):
        """The error object on standard error."""
        lines = self.err.decode().splitlines()
        assert len(lines) == 1, self.err
        return json.loads(lines[0])["error"]

    @property
    def line(self):
        """The one line on standard error."""
        text = self.err.decode()
        assert text.startswith("cay: ") and text.count("\n") == 1 and text.endswith(")\n"), text
        return text[:-1]


class World:
    def __init__(self, base):
        self.base = base
        self.config = base / "policy.yaml"
        self.config.write_text(POLICY)
        self.temporary = base / "temporary"
        for name in (*NAMES, "temporary", "outside"):
            (base / name).mkdir()
        self.environ = {**os.environ, "TMPDIR": str(self.temporary)}

    def put(self, path, content=b""):
        """A file below the base, with its parents."""
        full = os.path.join(os.fsencode(self.base), os.fsencode(path))
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return Path(os.fsdecode(full))

    def get(self, path):
        with open(os.path.join(os.fsencode(self.base), os.fsencode(path)), "rb") as file:
            return file.read()

    def tree(self):
        """Everything in the world: path to type and content."""
        found = {}
        base = os.fsencode(self.base)
        for folder, folders, files in os.walk(base):
            for name in folders + files:
                path = os.path.join(folder, name)
                if os.path.islink(path):
                    state = ("link", os.readlink(path))
                elif os.path.isfile(path):
                    with open(path, "rb") as file:
                        state = ("file", file.read())
                else:
                    state = ("other", os.stat(path).st_mode)
                found[os.path.relpath(path, base)] = state
        return found

    def check(self, before, words, status):
        after = self.tree()
        assert not any(path.startswith(b"temporary/") for path in after)
        if status not in (0, 1) and b"import" not in words:
            assert after == before, "a command that failed has changed something"
        for path in after.keys() - before.keys():
            assert any(
                path == word or path.startswith(word + b"/") or word.startswith(path + b"/")
                for word in words
            ), f"{path} is left over"

    def argv(self, words, config=None):
        config = self.config if config is None else config
        return [CAY, "files", "--config", str(config), *words]

    def cay(self, *words, stdin=b"", config=None, **popen):
        """`cay files --config POLICY WORDS...` to its end."""
        before = self.tree()
        done = subprocess.run(
            self.argv(words, config),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True, cwd=self.base, env=self.environ, timeout=PATIENCE, check=False,
            **popen,
        )
        self.check(before, [os.fsencode(word).lstrip(b"/") for word in words], done.returncode)
        return Result(done.returncode, done.stdout, done.stderr)

    def ok(self, *words, **more):
        result = self.cay(*words, **more)
        assert (result.status, result.err) == (0, b""), result
        return result

    def fails(self, status, *words, **more):
        """One line on standard error, nothing on standard output."""
        result = self.cay(*words, **more)
        assert result.status == status, result
        assert result.out == b""
        return result.line


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


class Terminal:
    """A command whose controlling terminal is ours.  `out` and `stdin` are pipes or files
    if given; else they are the terminal, too."""

    def __init__(self, world, argv, stdin=None, stdout=None):
        self.seen = b""
        self.world, self.argv, self.before = world, argv, world.tree()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                if stdin is not None:
                    os.dup2(stdin, 0)
                if stdout is not None:
                    os.dup2(stdout, 1)
                os.chdir(world.base)
                os.execve(argv[0], argv, world.environ)
            finally:
                os._exit(99)

    def wait_for(self, text):
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen!r}"
            if not self.read_some():
                raise AssertionError(f"ended without {text!r}: {self.seen!r}")

    def read_some(self):
        if not select.select([self.fd], [], [], 1)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # EIO: the other side is closed
            return False
        self.seen += data
        return bool(data)

    def type(self, text):
        os.write(self.fd, text)

    def end(self):
        """Waits for the end; returns the status."""
        deadline = time.monotonic() + PATIENCE
        while self.read_some():
            assert time.monotonic() < deadline, self.seen
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = None
        words = [os.fsencode(word) for word in self.argv]
        self.world.check(self.before, words, status)
        return status

    def close(self):
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(world):
    opened = []

    def start(*words, **more):
        opened.append(Terminal(world, world.argv(words), **more))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture(name="boxes")
def fixture_boxes(tmp_path):
    """Real sandboxes; what a test makes is gone at its end, or the test fails."""
    from sandboxes import Sandboxes

    if os.geteuid() != 0:
        pytest.skip("these tests are for root")
    boxes = Sandboxes(tmp_path)
    yield boxes
    boxes.clean()


@pytest.fixture(name="box")
def fixture_box(boxes):
    """The id of one that runs."""
    return boxes.create()


@pytest.fixture(name="screen")
def fixture_screen(boxes):
    """Starts `cay WORDS...` on a terminal."""
    from sandboxes import Screen

    opened = []

    def start(*words, **more):
        opened.append(Screen([CAY, *words], boxes.folder, **more))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
