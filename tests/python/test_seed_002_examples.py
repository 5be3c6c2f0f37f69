# SPDX-License-Identifier: Apache-2.0
"""Seed 002's examples, as the document has them but for the import lines, on every backend
that can.  (Some of them forget to import SandboxStatus; here it is imported once.)"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import worlds
from worlds import World

from cay.nexau import (
    Agent,
    AgentConfig,
    AgentState,
    CodeLanguage,
    InMemoryDatabaseEngine,
    NativeSandboxConfig,
    NativeSandboxManager,
    SandboxNotFoundError,
    SandboxStatus,
    SessionManager,
)


@pytest.fixture(params=worlds.ALL)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield from worlds.world_of(request.param, tmp_path)


@pytest.fixture(params=worlds.BUILT_IN)
def built_in(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield from worlds.world_of(request.param, tmp_path)


# --- "Using Sandbox with Sessions" ------------------------------------------------------------


def test_a_sandbox_with_a_session_is_restored(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    # Initialize session manager
    session_manager = SessionManager(engine=InMemoryDatabaseEngine.get_shared_instance())

    # Create sandbox manager
    sandbox_manager = world.manager()

    # Start sandbox with session integration
    user_id = "user_123"
    session_id = f"session_456_{world.name}"
    sandbox_config = world.config

    sandbox = sandbox_manager.start(
        session_manager=session_manager,
        user_id=user_id,
        session_id=session_id,
        sandbox_config=sandbox_config,
    )
    first_id = sandbox.sandbox_id
    sandbox.write_file("kept.txt", "kept")

    # Use the sandbox
    result = sandbox.execute_bash("echo 'Hello from sandbox'")
    print(result.stdout)
    assert capsys.readouterr().out == "Hello from sandbox\n\n"

    # Pause to save state
    assert sandbox_manager.pause() is True

    # Later, restart with same session - state will be restored
    sandbox = sandbox_manager.start(
        session_manager=session_manager,
        user_id=user_id,
        session_id=session_id,
        sandbox_config=sandbox_config,
    )
    # Sandbox reconnected to existing instance
    assert sandbox.sandbox_id == first_id
    assert sandbox.read_file("kept.txt").content == "kept"


# --- "Using Sandbox without Sessions" -----------------------------------------------------------


def test_a_sandbox_without_a_session_is_fresh_each_time(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    # Create sandbox manager
    sandbox_manager = world.manager()

    # Start sandbox without session manager (no state persistence)
    sandbox = sandbox_manager.start(
        session_manager=None,  # Disables state persistence
        user_id="user_123",
        session_id="session_456",
        sandbox_config=world.config,
    )
    first = sandbox
    world.ids.add(first.sandbox_id)

    # Use sandbox operations
    result = sandbox.execute_bash("ls -la")
    print(result.stdout)
    assert ".." in capsys.readouterr().out

    # Pause the sandbox
    sandbox_manager.pause()

    # Start again - creates a NEW sandbox (state not persisted)
    sandbox = sandbox_manager.start(
        session_manager=None,
        user_id="user_123",
        session_id="session_456",
        sandbox_config=world.config,
    )
    # This is a fresh sandbox, not restored from previous state
    assert sandbox.sandbox_id != first.sandbox_id


# --- "How to Connect to an Existing E2B Sandbox" --------------------------------------------------


def test_a_sandbox_is_reached_by_its_id(built_in: World) -> None:
    existing = built_in.start("another")
    existing.write_file("here.txt", "here")
    pid = existing.execute_bash("sleep 1000", background=True).background_pid

    # Initialize session manager
    session_manager = SessionManager(engine=InMemoryDatabaseEngine.get_shared_instance())

    # Create sandbox manager
    sandbox_manager = built_in.manager()

    # Start with existing sandbox_id - will reconnect instead of creating new
    sandbox_config = {
        **built_in.config,
        "sandbox_id": existing.sandbox_id,  # Existing sandbox ID
    }

    sandbox = sandbox_manager.start(
        session_manager=session_manager,
        user_id="user_123",
        session_id=f"by_id_{built_in.name}",
        sandbox_config=sandbox_config,
    )
    # Sandbox manager detects sandbox_id and reconnects to existing instance
    assert sandbox.sandbox_id == existing.sandbox_id
    assert sandbox.read_file("here.txt").content == "here"
    assert sandbox.get_background_task_status(pid).status == SandboxStatus.RUNNING
    assert sandbox.kill_background_task(pid).status == SandboxStatus.SUCCESS


def test_an_id_that_is_gone_raises(built_in: World) -> None:
    existing = built_in.start("another")
    built_in.started[0].stop()
    for session_manager in (None, built_in.session_manager):
        with pytest.raises(SandboxNotFoundError, match=existing.sandbox_id):
            built_in.manager().start(
                session_manager,
                "user_123",
                "session_456",
                {**built_in.config, "sandbox_id": existing.sandbox_id},
            )


# --- "Using Sandbox in Custom Tools": the four tools ------------------------------------------------


def file_analyzer(file_path: str, agent_state: AgentState) -> dict[str, Any]:
    """Analyze a file in the sandbox."""

    # Get sandbox instance from agent_state
    sandbox: Any = agent_state.get_sandbox()

    # Check if file exists
    if not sandbox.file_exists(file_path):
        return {"error": f"File not found: {file_path}"}

    # Read file content
    result = sandbox.read_file(file_path)
    if result.status != SandboxStatus.SUCCESS:
        return {"error": result.error}

    # Get file info
    info = sandbox.get_file_info(file_path)

    return {
        "path": file_path,
        "size": info.size,
        "encoding": info.encoding,
        "lines": len(result.content.split("\n")) if result.content else 0,
    }


def process_data(input_file: str, output_file: str, agent_state: AgentState) -> str:
    """Process data file in sandbox."""

    # Get sandbox instance from agent_state
    sandbox: Any = agent_state.get_sandbox()

    # Read input file
    read_result = sandbox.read_file(input_file)
    if read_result.status != SandboxStatus.SUCCESS:
        return f"Error reading file: {read_result.error}"

    # Process content
    content = read_result.content
    processed = content.upper()  # Example processing

    # Write output file
    write_result = sandbox.write_file(output_file, processed, create_directories=True)

    if write_result.status != SandboxStatus.SUCCESS:
        return f"Error writing file: {write_result.error}"

    return f"Processed {input_file} -> {output_file}"


def run_analysis(data: dict[str, Any], agent_state: AgentState) -> Any:
    """Run Python analysis in sandbox."""

    # Get sandbox instance from agent_state
    sandbox: Any = agent_state.get_sandbox()

    # Generate Python code
    code = f"""
import json
data = {data}
result = {{
    'count': len(data),
    'keys': list(data.keys())
}}
print(json.dumps(result))
"""

    # Execute in sandbox
    result = sandbox.execute_code(
        code=code,
        language=CodeLanguage.PYTHON,
        timeout=30000,  # 30 seconds
    )

    if result.status == SandboxStatus.SUCCESS:
        # Parse output
        import json

        output = result.outputs[0]["text"] if result.outputs else "{}"
        return json.loads(output)
    else:
        return {"error": result.error_value}


def project_builder(
    project_name: str, files: dict[str, str], agent_state: AgentState, home: str
) -> dict[str, Any]:
    """Build a project structure in sandbox."""

    # Get sandbox instance from agent_state
    sandbox: Any = agent_state.get_sandbox()

    project_dir = f"{home}/projects/{project_name}"

    # Create project directory
    try:
        sandbox.create_directory(project_dir, parents=True)
    except Exception as e:
        return {"error": f"Failed to create directory: {e}"}

    # Create all files
    created_files = []
    for file_path, content in files.items():
        full_path = f"{project_dir}/{file_path}"

        result = sandbox.write_file(full_path, content, create_directories=True)

        if result.status == SandboxStatus.SUCCESS:
            created_files.append(file_path)
        else:
            return {
                "error": f"Failed to create {file_path}: {result.error}",
                "created": created_files,
            }

    # List project files
    files_list = sandbox.list_files(project_dir, recursive=True)

    return {
        "project": project_name,
        "location": project_dir,
        "files_created": len(created_files),
        "total_files": len(files_list),
        "structure": [f.path for f in files_list if f.is_file],
    }


@pytest.fixture
def agent_state(world: World) -> AgentState:
    sandbox = world.start()
    return AgentState(sandbox=sandbox)


def test_the_tool_that_analyzes_a_file(agent_state: AgentState) -> None:
    sandbox: Any = agent_state.get_sandbox()
    sandbox.write_file("notes.txt", "one\ntwo\nthree")
    assert file_analyzer("notes.txt", agent_state) == {
        "path": "notes.txt",
        "size": 13,
        "encoding": "utf-8",
        "lines": 3,
    }
    assert file_analyzer("none", agent_state) == {"error": "File not found: none"}


def test_the_tool_that_processes_data(agent_state: AgentState) -> None:
    sandbox: Any = agent_state.get_sandbox()
    sandbox.write_file("in.txt", "grün\n")
    said = process_data("in.txt", "deep/er/out.txt", agent_state)
    assert said == "Processed in.txt -> deep/er/out.txt"
    assert sandbox.read_file("deep/er/out.txt").content == "GRÜN\n"
    assert process_data("none", "x", agent_state).startswith("Error reading file: ")


def test_the_tool_that_runs_code(agent_state: AgentState) -> None:
    data = {"a": 1, "b b": "c'\"\n"}
    assert run_analysis(data, agent_state) == {"count": 2, "keys": ["a", "b b"]}


def test_the_tool_that_builds_a_project(world: World, agent_state: AgentState) -> None:
    home = "/home/user" if world.name == "native" else str(agent_state.sandbox.work_dir)  # type: ignore[union-attr]
    files = {"README.md": "# x\n", "src/a b.py": "print(1)\n"}
    told = project_builder("x", files, agent_state, home)
    assert told["files_created"] == 2 and told["total_files"] == 3
    assert told["structure"] == [
        f"{home}/projects/x/README.md",
        f"{home}/projects/x/src/a b.py",
    ]


# --- "Example: State Lifecycle", and programmatic configuration ---------------------------------------


def test_the_life_of_an_agents_sandbox(built_in: World, tmp_path: Path) -> None:
    config_yaml = tmp_path / "config.yaml"
    keys = "".join(f"  {name}: {value}\n" for name, value in built_in.config.items())
    config_yaml.write_text(
        f"name: my_agent\nllm_config:\n  model: gpt-4\nsandbox_config:\n{keys}"
    )

    # Create agent with sandbox
    agent = Agent.from_config(config_yaml)
    built_in.started.append(agent.sandbox_manager)
    created: Any = agent.sandbox_manager.instance
    created.write_file("here.txt", "here")

    # Pause the sandbox (preserves state in session)
    assert agent.sandbox_manager.pause() is True
    assert agent.sandbox_manager.is_running() is not built_in.can_pause

    # Later, restart the sandbox
    agent.sandbox_manager.start(
        session_manager=agent._session_manager,
        user_id=agent._user_id,
        session_id=agent._session_id,
        sandbox_config=agent.config.sandbox_config or {},
    )
    restarted: Any = agent.sandbox_manager.instance
    assert restarted.sandbox_id == created.sandbox_id
    assert restarted.read_file("here.txt").content == "here"


def test_a_paused_sandbox_is_resumed_when_it_is_asked_for(built_in: World) -> None:
    for session_manager in (built_in.session_manager, None):
        manager = built_in.manager()
        first = manager.start(session_manager, "u", "auto", built_in.config)
        first.write_file("here.txt", "here")
        assert manager.pause() is True
        state = AgentState(sandbox_manager=manager)
        again: Any = state.get_sandbox()
        assert again.sandbox_id == first.sandbox_id and manager.is_running()
        assert again.read_file("here.txt").content == "here"
        assert first.read_file("here.txt").content == "here"


def test_an_agent_is_configured_by_a_program() -> None:
    config = AgentConfig(
        name="my_agent",
        llm_config={"model": "gpt-4"},
        sandbox_config={"type": "native"},
    )
    assert isinstance(Agent(config=config).sandbox_manager, NativeSandboxManager)
    typed = AgentConfig(sandbox_config=NativeSandboxConfig())
    assert isinstance(Agent(config=typed).sandbox_manager, NativeSandboxManager)
    assert isinstance(Agent(config=AgentConfig()).sandbox_manager, NativeSandboxManager)


def test_what_becomes_of_the_sandbox_after_a_run(built_in: World) -> None:
    for persist, lives in ((True, True), (False, False)):
        config = AgentConfig(
            sandbox_config={**built_in.config, "persist_sandbox": persist}
        )
        agent = Agent(config=config, session_manager=built_in.session_manager)
        built_in.started.append(agent.sandbox_manager)
        id = agent.run(lambda state: state.get_sandbox().sandbox_id)  # type: ignore[union-attr]
        built_in.ids.add(str(id))
        again = agent.run(lambda state: state.get_sandbox().sandbox_id)  # type: ignore[union-attr]
        built_in.ids.add(str(again))
        assert (again == id) is lives


def test_get_sandbox_without_any_is_none() -> None:
    assert AgentState().get_sandbox() is None
