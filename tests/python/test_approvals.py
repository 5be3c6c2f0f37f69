# SPDX-License-Identifier: Apache-2.0
"""Commands that need approval, and the queue, from Python."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from native import make_sandbox

from cay import approvals
from cay.errors import ApprovalError, SandboxExistsError, SandboxValueError

PATIENCE = 120


@pytest.fixture(autouse=True)
def fixture_queue() -> Iterator[None]:
    before = os.environ.get("CAY_HOME")
    with tempfile.TemporaryDirectory() as home:
        os.environ["CAY_HOME"] = f"{home}/state"
        yield
        if before is None:
            del os.environ["CAY_HOME"]
        else:
            os.environ["CAY_HOME"] = before


def answer(reply: Callable[[approvals.Pending], None]) -> threading.Thread:
    """A thread that replies to the next request."""

    def look() -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            waiting = [one for one in approvals.pending() if not one.is_decided]
            if waiting:
                reply(waiting[0])
                return
            time.sleep(0.05)

    thread = threading.Thread(target=look)
    thread.start()
    return thread


def test_a_command_waits_for_approval() -> None:
    seen = []

    def allow(request: approvals.Pending) -> None:
        seen.append((request.kind, request.subject, request.content))
        request.allow()
        with pytest.raises(SandboxExistsError):
            request.deny()

    with make_sandbox(approve=["git push*"], approve_timeout=PATIENCE) as box:
        assert box.exec(["echo", "plain"]).stdout == "plain\n"
        thread = answer(allow)
        assert box.shell("git push origin >/dev/null 2>&1; echo done", env={"NAME": "secret"}).stdout == "done\n"
        thread.join()
        thread = answer(lambda request: request.deny("not today"))
        with pytest.raises(ApprovalError, match="not today"):
            box.exec(["git", "push"])
        thread.join()
    (kind, subject, content), = seen
    assert kind == "command" and "git push origin" in subject
    assert b"git push origin" in content and b"variable, 4 bytes: NAME (" in content and b"secret" not in content
    assert approvals.pending() == []


def test_without_a_reply_the_answer_is_no() -> None:
    with make_sandbox(approve=["*"], approve_timeout=0.2) as box:
        with pytest.raises(ApprovalError, match="no reply in time"):
            box.exec(["true"])


def test_a_program_asks_the_queue() -> None:
    thread = answer(lambda request: request.remember())
    approvals.ask("deploy", "web", content=b"v2\n")
    thread.join()
    approvals.ask("deploy", "web", content=b"v3\n")
    with open(approvals.rules_path(), encoding="utf-8") as rules:
        assert rules.read() == "allow\tdeploy\t\tweb\n"
    with pytest.raises(ApprovalError):
        approvals.ask("deploy", "other", timeout=0.1)


def test_connections_wait_for_approval() -> None:
    seen = []

    def deny(request: approvals.Pending) -> None:
        seen.append((request.kind, request.subject))
        request.deny()

    with make_sandbox(approve_egress=True, approve_timeout=PATIENCE) as box:
        with subprocess.Popen([os.environ.get("CAY_BIN", "cay"), "approve", "watch", box.id]) as watch:
            thread = answer(deny)
            code = "import socket; socket.create_connection(('93.184.216.34', 443), 100).recv(1)"
            assert box.exec(["python3", "-c", code]).exit_code == 1
            thread.join()
            watch.terminate()
    assert seen == [("egress", "93.184.216.34:443")]
    for network in ("host", "open"):
        with pytest.raises(SandboxValueError, match="no hosts that wait"):
            make_sandbox(approve_egress=True, network=network)
