# SPDX-License-Identifier: Apache-2.0
"""A policy, some files, and the real command acting on them: what the fault tests share."""

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CAY_BUILD", ROOT / "build"))
CAY = os.environ.get("CAY_BIN", str(BUILD / "cay"))
LONG_AGO = 1_000_000_000
PATIENCE = 120  # seconds: for a machine that is very slow, not for waiting

POLICY = """\
paths:
  data: {root: data, mode: rw}
  other: {root: other, mode: rw}
"""

# "no-space": 11, as the command's exit status for it.
STATUS = {
    slug: 1 + int(number)
    for number, slug in re.findall(r'X\(\w+, -(\d+), "([a-z-]+)"',
                                   (ROOT / "include/cay/error.h").read_text())
}


def lacking(reason):
    """Skips the test for want of something, or fails it where everything must work."""
    if os.environ.get("CAY_MUST_WORK") == "1":
        pytest.fail(f"CAY_MUST_WORK=1, but {reason}")
    pytest.skip(reason)


def attributes(path):
    return {name: os.getxattr(path, name, follow_symlinks=False)
            for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user.")}


def tree(top):
    """All that is below a directory: path to mode, content and attributes."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            content = None
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isfile(path):
                content = Path(path).read_bytes()
            found[os.path.relpath(path, top)] = (mode, content, attributes(path))
    return found


def is_directory(state):
    return state[1] is None


class World:
    """A directory with policy.yaml beside the two that it shows, data and other."""

    def __init__(self, base, files):
        self.base = Path(base)
        self.files = files
        self.config = self.base / "policy.yaml"
        self.top = self.base / "top"
        self.reset()

    def reset(self):
        shutil.rmtree(self.top, ignore_errors=True)
        for name in ("data", "other"):  # a mount point is still there
            (self.top / name).mkdir(parents=True, exist_ok=True)
        self.config.write_text(POLICY)
        for name, content in self.files.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.symlink_to(content)
            else:
                path.write_bytes(content)
                with contextlib.suppress(OSError):  # not every file system has them
                    os.setxattr(path, "user.note", b"kept")
        for folder, folders, files in os.walk(self.top):
            for name in folders + files:
                os.utime(os.path.join(folder, name), (LONG_AGO, LONG_AGO),
                         follow_symlinks=False)

    def tree(self):
        return tree(self.top)

    def argv(self, words):
        return [CAY, "files", "--config", str(self.config), "--base", str(self.top), "--yes",
                *words]

    def run(self, words, stdin=b"", before=()):
        """`cay files ... WORDS...` to its end, run by the command `before` if given."""
        source = self.base / "stdin"  # not a pipe: every run is to make the same reads
        source.write_bytes(stdin)
        with source.open("rb") as file:
            return subprocess.run([*before, *self.argv(words)], stdin=file,
                                  capture_output=True, cwd=self.base, timeout=PATIENCE,
                                  check=False)


def check_error(done):
    """What a failed command leaves: its status, and one line of that error after any notes."""
    *notes, line = done.stderr.decode().splitlines()
    assert all(note.startswith("cay: note: ") for note in notes), done
    told = re.fullmatch(r"cay: ([a-z-]+): .+ \(.+\)", line)
    assert told and STATUS.get(told[1]) == done.returncode, done
    return told[1]
