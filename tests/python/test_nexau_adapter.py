# SPDX-License-Identifier: Apache-2.0
"""cay.nexau: Cay's sandboxes as subclasses of NexAU's classes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import unavailable

STANDIN = Path(__file__).parent / "standin"

PROGRAM = """
import dataclasses
from nexau.archs.sandbox import base_sandbox as theirs
from cay.nexau import (
    CaySandbox,
    CaySandboxManager,
    InMemoryDatabaseEngine,
    SessionManager,
)

sessions = SessionManager(engine=InMemoryDatabaseEngine())
manager = CaySandboxManager(config={"type": "native"})
assert isinstance(manager, theirs.BaseSandboxManager) and not manager.is_running()

class Config:
    envs = {"A": "b"}

sandbox = manager.start(sessions, "u", "s", Config())
try:
    assert isinstance(sandbox, CaySandbox) and isinstance(sandbox, theirs.BaseSandbox)
    assert str(sandbox.work_dir) == "/home/user" and manager.is_running()
    assert dataclasses.asdict(sandbox)["sandbox_id"] == sandbox.sandbox_id

    result = sandbox.execute_bash("echo $A; exit 3", timeout=30000)
    assert type(result) is theirs.CommandResult
    assert result.status is theirs.SandboxStatus.ERROR
    assert (result.exit_code, result.stdout) == (3, "b\\n")
    late = sandbox.execute_bash(command="sleep 1000", timeout=0, save_output_to_temp_file=True)
    assert late.status is theirs.SandboxStatus.TIMEOUT

    code = sandbox.execute_code("print(1)", theirs.CodeLanguage.PYTHON)
    assert type(code) is theirs.CodeExecutionResult
    assert code.language is theirs.CodeLanguage.PYTHON
    assert code.outputs == [{"type": "stdout", "text": "1\\n"}]
    assert sandbox.execute_code("1", "cobol").error_type == "ValueError"

    assert sandbox.write_file("d/f", "x").status is theirs.SandboxStatus.SUCCESS
    assert sandbox.read_file("d/f").content == "x"
    (info,) = sandbox.list_files("d")
    assert type(info) is theirs.FileInfo and info.is_file
    assert sandbox.glob("d/*") == ["d/f"] and sandbox.file_exists("d/f") is True
    try:
        sandbox.list_files("none")
        raise AssertionError("it lists what is not there")
    except theirs.SandboxFileError as error:
        assert "none" in str(error)

    pid = sandbox.execute_bash("sleep 1000", background=True)
    if hasattr(pid, "background_pid"):
        status = sandbox.get_background_task_status(pid.background_pid)
        assert status.status is theirs.SandboxStatus.RUNNING
        assert pid.background_pid in sandbox.list_background_tasks()
        sandbox.kill_background_task(pid.background_pid)

    class Logged(type(sandbox)):  # section 6 of issue 15
        def execute_shell(self, *args, **kwargs):
            calls.append((args, kwargs))
            return super().execute_shell(*args, **kwargs)

    calls = []
    logged = Logged(cay=sandbox.cay, sandbox_id=sandbox.sandbox_id)
    assert logged.execute_bash("echo x", 5000, cwd="/tmp").stdout == "x\\n"
    (called,) = calls
    assert called == (("echo x",), {
        "timeout": 5000, "cwd": "/tmp", "user": None, "envs": None, "background": False
    }), called

    assert manager.pause() is True and not manager.is_running()
    again = CaySandboxManager(config={"type": "native"}).start(sessions, "u", "s", None)
    assert again.sandbox_id == sandbox.sandbox_id
    assert again.read_file("d/f").content == "x"
finally:
    assert manager.stop() is True
print("done")
"""


def run(path: str, **env: str) -> subprocess.CompletedProcess[str]:
    whole = os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": whole, **env},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("version", ["old", "new"])
def test_the_adapter_works_with_both_interfaces(version: str) -> None:
    if os.geteuid() != 0:
        unavailable("the tests of sandboxes are run by root")
    done = run(str(STANDIN), NEXAU_STANDIN=version)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.skipif(
    find_spec("nexau") is None,
    reason="NexAU is not installed: it is on no package index, and wants Python 3.12",
)
def test_the_adapter_works_in_nexau_itself() -> None:
    done = run("")
    assert done.stdout == "done\n", done.stderr


@pytest.mark.skipif(find_spec("nexau") is not None, reason="NexAU is installed")
def test_without_nexau_it_is_an_import_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from cay.nexau import CaySandbox"],
        capture_output=True,
        text=True,
    )
    assert done.returncode and "No module named 'nexau'" in done.stderr
