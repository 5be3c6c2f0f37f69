# SPDX-License-Identifier: Apache-2.0
"""A backend of a shared object (docs/examples/backend-shared), used from Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import CHECKOUT, unavailable

from cay.nexau import (
    Agent,
    AgentConfig,
    BackendSandbox,
    BackendSandboxManager,
    InMemoryDatabaseEngine,
    SandboxStatus,
    SandboxValueError,
    SessionManager,
)

BUILD = Path(os.environ.get("CAY_BUILD", CHECKOUT / "build"))
LIBRARY = BUILD / "docs" / "examples" / "folder.so"


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    if os.geteuid() != 0:
        unavailable("the tests of sandboxes are run by root")
    if not LIBRARY.exists():
        unavailable("the example backend is not built")
    (tmp_path / "folders").mkdir()
    return {
        "type": "folder",
        "library": str(LIBRARY),
        "prefix": str(tmp_path / "folders"),
        "envs": {"A": "b"},
    }


def test_a_sandbox_of_a_shared_object_is_one_like_any_other(
    config: dict[str, Any], tmp_path: Path
) -> None:
    sessions = SessionManager(engine=InMemoryDatabaseEngine())
    manager = BackendSandboxManager[BackendSandbox]()
    sandbox = manager.start(sessions, "u", "s", config)
    assert sandbox.execute_bash("echo $A > f; cat f").stdout == "b\n"
    assert sandbox.read_file("f").content == "b\n"
    assert (tmp_path / "folders" / str(sandbox.sandbox_id) / "f").read_text() == "b\n"
    assert manager.pause() is True  # it cannot be, and that is fine
    unknown = sandbox.get_background_task_status(7)
    assert unknown.status == SandboxStatus.ERROR

    again = BackendSandboxManager[BackendSandbox]().start(sessions, "u", "s", config)
    assert again.sandbox_id == sandbox.sandbox_id
    assert again.read_file("f").content == "b\n"
    assert manager.stop() is True


def test_an_agent_uses_it_by_its_configuration(config: dict[str, Any]) -> None:
    agent = Agent(config=AgentConfig(sandbox_config={**config, "persist_sandbox": False}))
    assert isinstance(agent.sandbox_manager, BackendSandboxManager)

    def task(state: Any) -> str:
        return str(state.get_sandbox().execute_bash("pwd").stdout)

    assert agent.run(task) == "/home/user\n"


def test_its_keys_are_checked(config: dict[str, Any]) -> None:
    with pytest.raises(SandboxValueError, match="did you mean prefix"):
        AgentConfig(sandbox_config={**config, "prefx": "/x"})
    with pytest.raises(FileNotFoundError, match="/no/such.so"):
        AgentConfig(sandbox_config={**config, "library": "/no/such.so"})
