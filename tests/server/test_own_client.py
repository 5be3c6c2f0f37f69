# SPDX-License-Identifier: Apache-2.0
"""Our own client, the e2b backend, against our own server: what the SDKs are not asked."""

import signal
import time

import pytest

from cay.sandbox import (
    E2BSandboxManager,
    SandboxNotFoundError,
    SandboxStatus,
    SessionManager,
)


def await_file(sandbox, name):
    deadline = time.monotonic() + 60
    while not sandbox.file_exists(name):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_server_that_is_killed_is_not_missed(own_server, tmp_path, monkeypatch):
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "sessions"))
    server = own_server()
    manager = E2BSandboxManager()
    sandbox = manager.start(SessionManager(), "u", "s", {"type": "e2b"})
    sandbox.write_file("kept", "yes")
    task = sandbox.execute_bash("echo begun; touch begun; until test -e go; do sleep 0.05; "
                                "done; echo over; exit 7", background=True)
    await_file(sandbox, "begun")

    assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    failed = sandbox.execute_bash("true")
    # The front may live a moment longer, and end in the middle of a reply.
    assert failed.status == SandboxStatus.ERROR and "the server" in failed.error
    server.start()

    assert sandbox.read_file("kept").content == "yes"
    running = sandbox.get_background_task_status(task.background_pid)
    assert running.status == SandboxStatus.RUNNING and running.stdout == "begun\n"
    again = E2BSandboxManager().start(SessionManager(), "u", "s", {"type": "e2b"})
    assert again.sandbox_id == sandbox.sandbox_id
    again.write_file("go", "")
    deadline = time.monotonic() + 60
    while True:
        done = again.get_background_task_status(task.background_pid)
        if done.status != SandboxStatus.RUNNING:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (done.exit_code, done.stdout) == (7, "begun\nover\n")
    assert manager.stop() is True
    status, listed = server.api("GET", "/v2/sandboxes")
    assert (status, listed) == (200, [])


def test_a_tenant_does_not_reach_the_sandbox_of_another(own_server):
    server = own_server()
    manager = E2BSandboxManager(api_key=server.key)
    sandbox = manager.start(None, "u", "s", {"type": "e2b"})
    stranger = E2BSandboxManager(api_key=server.new_key("stranger"))
    with pytest.raises(SandboxNotFoundError):
        stranger.start(None, "u", "s", {"type": "e2b", "sandbox_id": sandbox.sandbox_id})
    assert manager.stop() is True
