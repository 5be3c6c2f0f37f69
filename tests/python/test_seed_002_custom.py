# SPDX-License-Identifier: Apache-2.0
"""Seed 002, "Integrating New Sandbox Backends": the four steps, as the document has them
but for the import lines.  What it leaves out of step 1 comes from the example backend."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import CHECKOUT

EXAMPLE = CHECKOUT / "docs" / "examples" / "backend-python"
sys.path.insert(0, str(EXAMPLE))

from folder import FolderOperations, FolderSandbox, FolderSandboxManager  # noqa: E402

from cay.nexau import (
    Agent,
    AgentConfig,
    BaseSandbox,
    BaseSandboxManager,
    CodeExecutionResult,
    CodeLanguage,
    CommandResult,
    InMemoryDatabaseEngine,
    SandboxAlias,
    SandboxError,
    SandboxStatus,
    SandboxValueError,
    SessionManager,
)

# --- Step 1 -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class CustomSandbox(FolderOperations):
    """Custom sandbox implementation."""

    # Add custom configuration fields
    custom_param: str = "default"

    def execute_bash(  # type: ignore[override]  # as the document has it
        self,
        command: str,
        timeout: int | None = None,
    ) -> CommandResult:
        """Execute bash command in custom environment."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.work_dir,
            env={"CUSTOM_PARAM": self.custom_param, **self.envs},
            capture_output=True,
            text=True,
            check=False,
        )
        status = SandboxStatus.ERROR if done.returncode else SandboxStatus.SUCCESS
        return CommandResult(status, done.stdout, done.stderr, done.returncode)

    def execute_code(  # type: ignore[override]
        self,
        code: str,
        language: CodeLanguage | str,
        timeout: int | None = None,
    ) -> CodeExecutionResult:
        """Execute code in custom environment."""
        return super().execute_code(code, language, timeout)


# --- Step 2 -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class CustomSandboxManager(BaseSandboxManager[CustomSandbox]):
    """Manager for custom sandbox lifecycle."""

    # Configuration fields
    custom_param: str = "default"

    def start(
        self,
        session_manager: SessionManager | None,
        user_id: str,
        session_id: str,
        sandbox_config: dict[str, Any],
    ) -> CustomSandbox:
        """Start a custom sandbox."""

        # Try to restore from saved state
        sandbox_state = self.load_sandbox_state(session_manager, user_id, session_id)

        if sandbox_state and sandbox_state.get("sandbox_id"):
            # Restore existing sandbox
            sandbox = CustomSandbox(**sandbox_state)
            # Reconnect to existing instance if needed
            return sandbox

        # Create new sandbox
        sandbox = CustomSandbox(
            sandbox_id=f"custom_{session_id}",
            custom_param=self.custom_param,
            **sandbox_config,
        )

        # Initialize sandbox resources
        # ...

        # Persist state
        self.persist_sandbox_state(session_manager, user_id, session_id, sandbox)

        return sandbox

    def stop(self) -> bool:
        """Stop the sandbox."""
        if self._instance:
            # Cleanup resources
            return True
        return False

    def pause(self) -> bool:
        """Pause the sandbox."""
        # Implement pause logic
        return True

    def is_running(self) -> bool:
        """Check if sandbox is running."""
        return self._instance is not None


# --- Step 3 -------------------------------------------------------------------------------

SandboxAlias["custom"] = "CustomSandbox"


@pytest.fixture
def session_manager() -> SessionManager:
    return SessionManager(engine=InMemoryDatabaseEngine())


def saved(session_manager: SessionManager, user: str, session: str) -> Any:
    found = asyncio.run(session_manager.get_session(user, session))
    return found.sandbox_state if found else None


# --- Step 4 -------------------------------------------------------------------------------


def test_a_file_chooses_the_custom_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "name: my_agent\n"
        "sandbox_config:\n"
        "  type: custom\n"
        "  custom_param: my_value\n"
        f"  _work_dir: {tmp_path}\n"
    )
    agent = Agent.from_config(file, session_id="by_file")
    sandbox = agent.state.get_sandbox()
    assert isinstance(sandbox, CustomSandbox)
    assert (sandbox.custom_param, sandbox.work_dir) == ("my_value", tmp_path)
    assert (
        sandbox.execute_bash("pwd; echo $CUSTOM_PARAM").stdout
        == f"{tmp_path}\nmy_value\n"
    )


def test_a_program_chooses_the_custom_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("name: my_agent\nsandbox_config: {type: native}\n")

    config = AgentConfig.from_yaml(file)
    config.sandbox_config = {"type": "custom", "custom_param": "my_value"}
    agent = Agent(config=config)

    manager = agent.sandbox_manager
    assert (
        isinstance(manager, CustomSandboxManager) and manager.custom_param == "my_value"
    )
    sandbox = manager.instance
    assert isinstance(sandbox, CustomSandbox) and sandbox.custom_param == "my_value"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"custom_parm": "x"}, "did you mean custom_param"),
        ({"custom_param": ["x"]}, "custom_param"),
        ({"type": "custim"}, "did you mean custom"),
    ],
)
def test_what_the_custom_sandbox_does_not_have_is_refused(
    keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(SandboxValueError, match=said):
        AgentConfig(sandbox_config={"type": "custom", **keys})


def test_a_type_whose_class_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SandboxAlias, "nowhere", "NowhereSandbox")
    with pytest.raises(SandboxValueError):
        Agent(config=AgentConfig(sandbox_config={"type": "nowhere"}))


# --- Its manager ----------------------------------------------------------------------------


def test_the_state_is_saved_and_restored(
    session_manager: SessionManager, tmp_path: Path
) -> None:
    config = {"type": "custom", "_work_dir": str(tmp_path), "persist_sandbox": True}
    first = CustomSandboxManager(custom_param="mine").start(
        session_manager, "user_123", "session_456", config
    )
    assert first.sandbox_id == "custom_session_456"
    state = saved(session_manager, "user_123", "session_456")
    assert state["sandbox_type"] == "CustomSandbox"
    assert (state["custom_param"], state["work_dir"]) == ("mine", str(tmp_path))

    again = CustomSandboxManager().start(session_manager, "user_123", "session_456", {})
    assert again == first
    other = CustomSandboxManager().start(session_manager, "user_123", "another", {})
    assert other.custom_param == "default"


def test_a_bare_start_is_remembered(session_manager: SessionManager) -> None:
    manager = CustomSandboxManager()
    assert not manager.is_running() and manager.stop() is False
    with pytest.raises(SandboxError, match="Sandbox is not running"):
        manager.instance  # noqa: B018
    sandbox = manager.start(
        session_manager=session_manager,
        user_id="u",
        session_id="s",
        sandbox_config={"type": "custom"},
    )
    assert manager.is_running() and manager.instance is sandbox
    assert manager.session_context["session_id"] == "s"
    assert manager.pause() is True and manager.stop() is True


def test_without_a_session_manager_every_start_is_fresh() -> None:
    manager = CustomSandboxManager()
    first = manager.start(None, "u", "s", {})
    second = manager.start(None, "u", "s", {})
    assert first is not second
    assert manager.load_sandbox_state(None, "u", "s") is None
    manager.persist_sandbox_state(None, "u", "s", first)


def test_the_instance_is_started_when_it_is_asked_for(
    session_manager: SessionManager,
) -> None:
    manager = CustomSandboxManager()
    assert manager.start_sync() is None
    manager.prepare_session_context(session_manager, "u", "s", {"custom_param": "x"})
    assert not manager.is_running()
    with pytest.raises(TypeError, match="custom_param"):
        manager.start_sync()  # the document's start() has it twice then
    manager.prepare_session_context(session_manager, "u", "s", {})
    sandbox = manager.start_sync()
    assert sandbox is not None and manager.start_sync() is sandbox is manager.instance

    manager._instance = None
    assert manager.instance == sandbox and manager.instance is not sandbox


def test_start_no_wait_is_waited_for_where_it_is_needed(
    session_manager: SessionManager,
) -> None:
    release = threading.Event()

    @dataclass(kw_only=True)
    class SlowManager(CustomSandboxManager):
        def start(self, *args: Any, **kwargs: Any) -> CustomSandbox:
            assert release.wait(30)
            return super().start(*args, **kwargs)

    manager = SlowManager()
    future = manager.start_no_wait(session_manager, "u", "s", {})
    assert manager.start_future is future and not future.done()
    release.set()
    assert manager.instance is future.result()
    manager.pause_no_wait().join()
    assert manager.pause_thread is not None


def test_what_went_wrong_with_start_no_wait_is_told_once_and_then_tried_again(
    session_manager: SessionManager,
) -> None:
    fail = [True]

    @dataclass(kw_only=True)
    class Failing(CustomSandboxManager):
        def start(self, *args: Any, **kwargs: Any) -> CustomSandbox:
            if fail.pop() if fail else False:
                raise SandboxError("no luck")
            return super().start(*args, **kwargs)

    manager = Failing()
    manager.start_no_wait(session_manager, "u", "s", {})
    with pytest.raises(SandboxError, match="no luck"):
        manager.instance  # noqa: B018
    assert manager.instance is not None


def test_what_happens_after_a_run_is_what_was_said(
    session_manager: SessionManager,
) -> None:
    done: list[str] = []

    @dataclass(kw_only=True)
    class Noting(CustomSandboxManager):
        def on_run_complete(self) -> None:
            done.append("complete")

        def stop(self) -> bool:
            done.append("stop")
            return True

        def pause(self) -> bool:
            done.append("pause")
            return True

    for said, then in [
        ({}, "pause"),
        ({"persist_sandbox": True}, "pause"),
        ({"persist_sandbox": False}, "stop"),
        ({"status_after_run": "stop"}, "stop"),
        ({"status_after_run": "pause"}, "pause"),
        ({"status_after_run": "none"}, None),
        ({"persist_sandbox": "no"}, "stop"),
        ({"persist_sandbox": None}, "pause"),
        ({"status_after_run": None}, "pause"),
    ]:
        manager, done[:] = Noting(), []
        manager.start(session_manager, "u", str(said), said)
        assert manager.run_done() is True
        assert done == ["complete", *([then] if then else [])]
    manager, done[:] = Noting(persist_sandbox=False), []  # type: ignore[call-arg]
    manager.run_done()
    assert done == ["complete", "stop"]


# --- Any session manager --------------------------------------------------------------------


class Store:
    """The least there is to a session manager."""

    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str], Any] = {}

    async def get_session(self, *, user_id: str, session_id: str) -> Any:
        return self.sessions.get((user_id, session_id))

    async def update_session_sandbox(
        self, *, user_id: str, session_id: str, sandbox_state: dict[str, Any]
    ) -> None:
        class Session:
            pass

        session: Any = Session()
        session.sandbox_state = json.loads(json.dumps(sandbox_state))
        self.sessions[user_id, session_id] = session


def test_any_object_with_two_methods_is_a_session_manager() -> None:
    store: Any = Store()
    first = CustomSandboxManager().start(store, "u", "s", {})
    assert store.sessions["u", "s"].sandbox_state["sandbox_id"] == "custom_s"
    assert CustomSandboxManager().start(store, "u", "s", {}) == first


def test_a_session_manager_is_reached_from_within_an_event_loop() -> None:
    async def main() -> CustomSandbox:
        return CustomSandboxManager().start(store, "u", "s", {})

    store: Any = Store()
    assert asyncio.run(main()).sandbox_id == "custom_s"


@pytest.mark.parametrize(
    "said", ["is bound to a different event loop", "Event loop is closed"]
)
def test_a_store_of_another_loop_costs_the_state_and_no_more(
    said: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Bound(Store):
        async def get_session(self, *, user_id: str, session_id: str) -> Any:
            raise RuntimeError(said)

    store: Any = Bound()
    assert CustomSandboxManager().start(store, "u", "s", {}).sandbox_id == "custom_s"
    assert "not loaded" in caplog.text


def test_other_errors_of_a_store_are_told() -> None:
    class Broken(Store):
        async def get_session(self, *, user_id: str, session_id: str) -> Any:
            raise RuntimeError("the disk is full")

    store: Any = Broken()
    with pytest.raises(RuntimeError, match="the disk is full"):
        CustomSandboxManager().start(store, "u", "s", {})


def race(store: Any, managers: int = 6) -> set[Any]:
    """The ids that managers get who start one session at the same time."""
    barrier = threading.Barrier(managers)
    another = threading.Event()
    inside: list[Any] = []
    made: list[Any] = []

    @dataclass(kw_only=True)
    class Slow(FolderSandboxManager):
        def load_sandbox_state(self, *args: Any) -> Any:
            state = super().load_sandbox_state(*args)
            inside.append(self)
            if len(inside) == 1:
                another.wait(0.3)  # time for who should not come in
            else:
                another.set()
            return state

    def start() -> None:
        manager = Slow()
        barrier.wait()
        made.append((manager, manager.start(store, "u", "s")))

    threads = [threading.Thread(target=start) for _ in range(managers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == managers
    for manager, sandbox in made:
        if Path(str(sandbox.sandbox_id)).exists():
            manager.stop()
    return {sandbox.sandbox_id for _, sandbox in made}


def test_managers_that_race_for_one_session_get_one_sandbox(
    session_manager: SessionManager,
) -> None:
    assert len(race(session_manager)) == 1
    assert len(race(Store())) == 1


# --- Assets -----------------------------------------------------------------------------------


@pytest.fixture
def assets(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    folder, file = tmp_path / "assets", tmp_path / "one.txt"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    file.write_text("one")
    yield folder, file


def test_assets_are_uploaded_on_every_start(
    session_manager: SessionManager, assets: tuple[Path, Path]
) -> None:
    folder, file = assets
    manager = FolderSandboxManager()
    context = (session_manager, "u", "s", {})
    manager.start_no_wait(*context, upload_assets=[(str(folder), "in")])
    sandbox = manager.instance
    assert sandbox is not None and sandbox.read_file("in/a.txt").content == "a"

    manager.add_upload_assets([(str(file), "in/one.txt")])
    assert sandbox.read_file("in/one.txt").content == "one"
    sandbox.delete_file("in")
    again = manager.start(*context)
    assert again.sandbox_id == sandbox.sandbox_id
    assert again.glob("in/*") == ["in/a.txt", "in/one.txt"]
    assert manager.stop() is True


def test_assets_can_be_added_before_there_is_a_sandbox(
    session_manager: SessionManager, assets: tuple[Path, Path]
) -> None:
    manager = FolderSandboxManager()
    manager.add_upload_assets([(str(assets[1]), "one.txt")])
    with pytest.raises(SandboxError, match="Sandbox is not running"):
        manager.instance  # noqa: B018
    sandbox = manager.start(session_manager, "u", "s", {})
    assert sandbox.read_file("one.txt").content == "one"
    assert manager.stop() is True


# --- Data -------------------------------------------------------------------------------------


def test_the_dataclasses_survive_asdict(session_manager: SessionManager) -> None:
    manager = CustomSandboxManager()
    sandbox = manager.start(session_manager, "u", "s", {})
    assert dataclasses.asdict(sandbox)["custom_param"] == "default"
    assert dataclasses.asdict(manager)["_instance"]["sandbox_id"] == "custom_s"
    assert str(sandbox) == f"CustomSandbox: custom_s ({Path.cwd()})"


def test_a_state_that_is_no_json_is_refused_with_the_name_of_the_field(
    session_manager: SessionManager,
) -> None:
    @dataclass(kw_only=True)
    class WithHandle(CustomSandbox):
        handle: Any = None

    sandbox = WithHandle(sandbox_id="x", handle=object())
    with pytest.raises(SandboxValueError, match="handle.*init=False"):
        CustomSandboxManager().persist_sandbox_state(session_manager, "u", "s", sandbox)
    assert saved(session_manager, "u", "s") is None


def test_a_subclass_with_few_parameters_is_called_with_those(tmp_path: Path) -> None:
    sandbox = CustomSandbox(work_dir=str(tmp_path))
    assert sandbox.execute_shell("echo hi", timeout=1000).stdout == "hi\n"
    with pytest.raises(TypeError, match="cwd"):
        sandbox.execute_shell("echo hi", cwd="/")


def test_what_is_abstract_must_be_there() -> None:
    @dataclass(kw_only=True)
    class Half(BaseSandbox):
        pass

    with pytest.raises(TypeError, match="execute_bash"):
        Half()  # type: ignore[abstract]


# --- The example ------------------------------------------------------------------------------


def test_the_example_backend_is_used_by_its_configuration() -> None:
    agent = Agent(config=AgentConfig.from_yaml(EXAMPLE / "folder.yaml"))

    def task(state: Any) -> str:
        sandbox = state.get_sandbox()
        assert isinstance(sandbox, FolderSandbox)
        assert sandbox.greeting == "good morning"
        assert sandbox.edit_file("a", "", "1\n").status == SandboxStatus.SUCCESS
        assert sandbox.execute_bash("cat a; exit 3").exit_code == 3
        assert sandbox.execute_code("print(6*7)", "python").outputs[0]["text"] == "42\n"
        assert sandbox.execute_code("", "cobol").error_type == "ValueError"
        return str(sandbox.sandbox_id)

    folder = agent.run(task)
    assert not Path(folder).exists()  # persist_sandbox: false
