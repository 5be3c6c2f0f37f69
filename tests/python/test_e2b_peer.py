# SPDX-License-Identifier: Apache-2.0
"""The server that the e2b backend is tested against is good enough for E2B's own client.

If it were not, passing tests against it would say nothing.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from conftest import CHECKOUT, unavailable

try:
    import e2b
except ImportError:
    e2b = None

PEER = CHECKOUT / "tests" / "e2b" / "peer.py"


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[e2b.Sandbox]:
    if e2b is None:
        unavailable("the package e2b is not installed")
    with subprocess.Popen([sys.executable, PEER], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as peer:
        url = peer.stdout.readline().strip()
        monkeypatch.setenv("E2B_API_URL", url)
        monkeypatch.setenv("E2B_SANDBOX_URL", url)
        monkeypatch.setenv("E2B_API_KEY", "e2b_5ec2e7")
        yield e2b.Sandbox.create(timeout=60, metadata={"who": "a b"}, envs={"FROM": "create"})
        peer.stdin.close()


def test_commands(box: e2b.Sandbox) -> None:
    done = box.commands.run("echo $FROM; echo there >&2")
    assert (done.stdout, done.stderr, done.exit_code) == ("create\n", "there\n", 0)
    with pytest.raises(e2b.CommandExitException) as caught:
        box.commands.run("exit 3")
    assert caught.value.exit_code == 3
    with pytest.raises(e2b.TimeoutException):
        box.commands.run("sleep 60", timeout=0.5)


def test_commands_in_the_background(box: e2b.Sandbox) -> None:
    handle = box.commands.run("cat; echo end", background=True, stdin=True)
    assert [process.pid for process in box.commands.list()] == [handle.pid]
    box.commands.send_stdin(handle.pid, "in\n")
    box.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "in\nend\n"
    assert box.commands.kill(handle.pid) is False


def test_files(box: e2b.Sandbox) -> None:
    written = box.files.write("d/a 'b'.txt", "h\u00e9llo")
    assert written.path == "/home/user/d/a 'b'.txt"
    assert box.files.read("d/a 'b'.txt") == "h\u00e9llo"
    box.files.write("large", bytes(range(256)) * 4000)
    assert bytes(box.files.read("large", format="bytes")) == bytes(range(256)) * 4000
    assert [entry.path for entry in box.files.list("/home/user/d")] == [written.path]
    assert box.files.make_dir("d") is False
    box.files.rename("large", "moved/large")
    assert box.files.exists("moved/large") and not box.files.exists("large")
    box.files.remove("d")
    with pytest.raises(e2b.NotFoundException):
        box.files.read("d/a 'b'.txt")


def test_its_life(box: e2b.Sandbox) -> None:
    box.files.write("kept", "yes")
    info = box.get_info()
    assert info.metadata == {"who": "a b"}
    box.set_timeout(500)
    assert box.get_info().end_at > info.end_at
    box.pause()
    again = e2b.Sandbox.connect(box.sandbox_id)
    assert again.files.read("kept") == "yes"
    assert again.kill() is True
    assert again.is_running() is False
    assert again.kill() is False
