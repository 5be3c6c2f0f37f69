# SPDX-License-Identifier: Apache-2.0
"""FileSystemToolset under a real PydanticAI agent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from conftest import World
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import AbstractToolset

from cay.filesystem import (
    FileSystemToolset,
    PathNotInSandboxError,
    ReadResult,
    SandboxError,
)
from cay.filesystem.toolset import ReadFileArgs

CONTEXT = MagicMock(spec=RunContext)
NAMES = [
    "read_file",
    "write_file",
    "list_files",
    "edit_file",
    "delete_file",
    "move_file",
    "copy_file",
]


def call(toolset: AbstractToolset[Any], name: str, args: Any) -> Any:
    return asyncio.run(toolset.call_tool(name, args, CONTEXT, MagicMock()))


def scripted(*calls: tuple[str, dict[str, Any]]) -> FunctionModel:
    """A model that makes these calls one after the other, then says what it got."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = sum(isinstance(message, ModelResponse) for message in messages)
        if asked < len(calls):
            name, args = calls[asked]
            return ModelResponse(parts=[ToolCallPart(name, args)])
        return ModelResponse(parts=[TextPart("done")])

    return FunctionModel(answer)


def told(messages: list[ModelMessage]) -> list[Any]:
    """What went back to the model: results, and texts of retries."""
    back: list[Any] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturnPart | RetryPromptPart):
                back.append(part.content)
    return back


def run(toolset: AbstractToolset[Any], *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    agent = Agent(scripted(*calls), toolsets=[toolset])
    return told(asyncio.run(agent.run("go")).all_messages())


# --- The tools that are offered ---------------------------------------------------------


def test_it_is_a_toolset_with_an_id(world: World) -> None:
    toolset = FileSystemToolset(world.sandbox, id="files")
    assert isinstance(toolset, AbstractToolset)
    assert toolset.id == "files" and toolset.sandbox is world.sandbox
    assert FileSystemToolset(world.sandbox).id is None


def test_seven_tools_are_offered_in_order(world: World) -> None:
    toolset = FileSystemToolset(world.sandbox, max_retries=3)
    tools = asyncio.run(toolset.get_tools(CONTEXT))
    assert list(tools) == NAMES
    for name, tool in tools.items():
        assert tool.toolset is toolset and tool.max_retries == 3
        assert tool.tool_def.name == name and tool.tool_def.description


def test_parameters_have_the_contracts_names_and_defaults(world: World) -> None:
    tools = asyncio.run(FileSystemToolset(world.sandbox).get_tools(CONTEXT))
    schemas = {name: tool.tool_def.parameters_json_schema for name, tool in tools.items()}
    everything = "/" if world.style == "mounts" else "."
    expected: dict[str, tuple[str, dict[str, Any], list[str]]] = {
        "read_file": ("ReadFileArgs", {"max_chars": 20000, "offset": 0}, ["path"]),
        "write_file": ("WriteFileArgs", {}, ["path", "content"]),
        "list_files": ("ListFilesArgs", {"path": everything, "pattern": "**/*"}, []),
        "edit_file": (
            "EditFileArgs",
            {"replace_all": False},  # ours, so that a model can do what the hint says
            ["path", "old_text", "new_text"],
        ),
        "delete_file": ("DeleteFileArgs", {}, ["path"]),
        "move_file": ("MoveFileArgs", {}, ["source", "destination"]),
        "copy_file": ("CopyFileArgs", {}, ["source", "destination"]),
    }
    for name, (title, defaults, required) in expected.items():
        schema = schemas[name]
        assert schema["title"] == title and schema["type"] == "object"
        assert schema.get("required", []) == required
        found = {
            key: field["default"]
            for key, field in schema["properties"].items()
            if "default" in field
        }
        assert found == defaults
        assert all(field["description"] for field in schema["properties"].values())


def test_the_description_shows_how_paths_look_here(world: World) -> None:
    tools = asyncio.run(FileSystemToolset(world.sandbox).get_tools(CONTEXT))
    shown = tools["read_file"].tool_def.description or ""
    assert world.path("notes/a.txt") in shown


@pytest.mark.parametrize("name", ["edit_file", "multi_edit_file"])
def test_a_model_can_replace_all_as_the_hint_says(world: World, name: str) -> None:
    toolset = FileSystemToolset(world.sandbox, extra_tools=True)
    (world.host / "a").write_text("x x x")
    edit: dict[str, Any] = {"old_text": "x", "new_text": "y"}
    every = {**edit, "replace_all": True}
    args = [
        {"path": world.path("a"), **one}
        if name == "edit_file"
        else {"path": world.path("a"), "edits": [one]}
        for one in (edit, every)
    ]
    back = run(toolset, (name, args[0]), (name, args[1]))
    assert "found 3 times" in back[0] and "replace all of them" in back[0]
    assert (world.host / "a").read_text() == "y y y"


def test_extra_tools_come_after_the_seven(world: World) -> None:
    toolset = FileSystemToolset(world.sandbox, extra_tools=True)
    tools = list(asyncio.run(toolset.get_tools(CONTEXT)))
    assert tools[:7] == NAMES
    assert tools[7:] == [
        "grep_files",
        "read_file_lines",
        "append_file",
        "multi_edit_file",
        "create_directory",
        "list_directory",
        "stat_file",
    ]


def test_create_default_has_one_path_called_data(tmp_path: Path) -> None:
    toolset = FileSystemToolset.create_default(tmp_path / "d", id="x")
    assert toolset.id == "x" and toolset.sandbox.writable_roots == ["data"]
    assert toolset.write("data/a.txt", "hi") == "Written 2 characters to data/a.txt"
    readonly = FileSystemToolset.create_default(str(tmp_path / "d"), mode="ro")
    assert readonly.sandbox.writable_roots == []
    assert readonly.read("data/a.txt").content == "hi"


# --- Calls ------------------------------------------------------------------------------


def test_arguments_may_be_a_dict_or_a_model(world: World) -> None:
    toolset = FileSystemToolset(world.sandbox)
    toolset.write(world.path("a"), "abc")
    expected = ReadResult(
        content="ab", truncated=True, total_chars=3, offset=0, chars_read=2
    )
    args = {"path": world.path("a"), "max_chars": 2}
    assert call(toolset, "read_file", args) == expected
    assert call(toolset, "read_file", ReadFileArgs(**args)) == expected


def test_an_unknown_tool_is_a_value_error(world: World) -> None:
    with pytest.raises(ValueError, match="Unknown tool"):
        call(FileSystemToolset(world.sandbox), "format_disk", {})


def test_an_agent_uses_all_seven_tools(world: World) -> None:
    p = world.path
    back = run(
        FileSystemToolset(world.sandbox),
        ("write_file", {"path": p("a.txt"), "content": "one two"}),
        ("edit_file", {"path": p("a.txt"), "old_text": "two", "new_text": "2"}),
        ("copy_file", {"source": p("a.txt"), "destination": p("b.txt")}),
        ("move_file", {"source": p("b.txt"), "destination": p("c.txt")}),
        ("list_files", {}),
        ("read_file", {"path": p("c.txt")}),
        ("delete_file", {"path": p("c.txt")}),
    )
    assert back[:5] == [
        f"Written 7 characters to {p('a.txt')}",
        f"Edited {p('a.txt')}: replaced 3 chars with 1 chars",
        f"Copied {p('a.txt')} to {p('b.txt')}",
        f"Moved {p('b.txt')} to {p('c.txt')}",
        [p("a.txt"), p("c.txt")],
    ]
    assert back[5].content == "one 2" and back[6] == f"Deleted {p('c.txt')}"
    assert os.listdir(world.host) == ["a.txt"]


def test_an_agent_uses_the_extra_tools(world: World) -> None:
    p = world.path
    back = run(
        FileSystemToolset(world.sandbox, extra_tools=True),
        ("create_directory", {"path": p("d")}),
        ("append_file", {"path": p("d/a.txt"), "content": "one\ntwo\n"}),
        (
            "multi_edit_file",
            {"path": p("d/a.txt"), "edits": [{"old_text": "two", "new_text": "2"}]},
        ),
        ("read_file_lines", {"path": p("d/a.txt"), "offset": 1}),
        ("grep_files", {"regex": "^o"}),
        ("list_directory", {"path": world.top}),
        ("stat_file", {"path": p("d/a.txt")}),
    )
    assert back[0] == f"Created directory {p('d')}"
    assert back[3].content == "2\n"
    assert back[4]["matches"] == [
        {"path": p("d/a.txt"), "line": 1, "column": 1, "text": "one"}
    ]
    assert back[5][0]["path"] == p("d") and back[5][0]["type"] == "directory"
    assert back[6]["bytes"] == 6


def test_the_test_model_can_call_every_tool(world: World) -> None:
    toolset = FileSystemToolset(world.sandbox, max_retries=5, raise_errors=False)
    agent = Agent(TestModel(call_tools=["list_files"]), toolsets=[toolset])
    assert asyncio.run(agent.run("list")).output


# --- Errors -----------------------------------------------------------------------------


def test_a_refusal_reaches_the_model_and_it_can_go_on(world: World) -> None:
    back = run(
        FileSystemToolset(world.sandbox),
        ("read_file", {"path": "/etc/passwd:"}),
        ("write_file", {"path": world.path("a.txt"), "content": "x"}),
    )
    assert "outside sandbox" in back[0] and world.top in back[0]
    assert back[1] == f"Written 1 characters to {world.path('a.txt')}"


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("read_file", {"path": "missing"}, "not found"),
        ("read_file", {"path": "a.txt", "offset": -1}, "offset"),
        ("read_file", {"path": "dir"}, "directory"),
        ("edit_file", {"path": "a.txt", "old_text": "zz", "new_text": ""}, "not found"),
        ("copy_file", {"source": "a.txt", "destination": "b.txt"}, "already exists"),
        ("list_files", {"path": "", "pattern": "../*"}, "must not contain '..'"),
        ("write_file", {"path": "a.txt/b", "content": ""}, "not a directory"),
    ],
)
def test_every_kind_of_failure_is_a_retry(
    mounts: World, name: str, args: dict[str, Any], words: str
) -> None:
    (mounts.host / "a.txt").write_text("a")
    (mounts.host / "b.txt").write_text("b")
    (mounts.host / "dir").mkdir()
    for key in ("path", "source", "destination"):
        if args.get(key):
            args = {**args, key: mounts.path(args[key])}
    toolset = FileSystemToolset(mounts.sandbox)
    with pytest.raises(ModelRetry, match=words) as caught:
        call(toolset, name, args)
    assert isinstance(caught.value.__cause__, SandboxError)
    assert any(words in str(back) for back in run(toolset, (name, args)))


def test_raise_errors_aborts_the_run_instead(world: World) -> None:
    toolset = FileSystemToolset(world.sandbox, raise_errors=True)
    with pytest.raises(PathNotInSandboxError):
        run(toolset, ("read_file", {"path": "/etc/passwd:"}))
    with pytest.raises(FileNotFoundError):
        run(toolset, ("read_file", {"path": world.path("missing")}))


def test_names_that_are_no_utf8_reach_the_model_with_a_sign(world: World) -> None:
    (world.host / os.fsdecode(b"caf\xe9")).write_text("x")
    toolset = FileSystemToolset(world.sandbox)
    listed = call(toolset, "list_files", {})
    assert listed == [world.path("caf\ufffd")]
    json.dumps(listed).encode()
    with pytest.raises(ModelRetry) as caught:
        call(toolset, "read_file", {"path": world.path(os.fsdecode(b"\xff"))})
    assert "\ufffd" in caught.value.message
    caught.value.message.encode()


# --- The event loop ---------------------------------------------------------------------


def threads_used(toolset: FileSystemToolset, name: str, args: dict[str, Any]) -> bool:
    """Whether the call was made in another thread than the event loop's."""
    seen: list[threading.Thread] = []
    tool = toolset._tools[name]
    real = tool.call

    def noting(*arguments: Any) -> Any:
        seen.append(threading.current_thread())
        return real(*arguments)

    object.__setattr__(tool, "call", noting)
    try:
        call(toolset, name, args)
    finally:
        object.__setattr__(tool, "call", real)
    return seen != [threading.current_thread()]


def test_what_takes_long_does_not_hold_up_the_event_loop(world: World) -> None:
    toolset = FileSystemToolset(world.sandbox)
    large, small = world.path("large"), world.path("small")
    (world.host / "large").write_text("x" * (5 << 20))
    (world.host / "small").write_text("x")
    assert threads_used(toolset, "list_files", {})
    assert threads_used(toolset, "read_file", {"path": large})
    assert threads_used(
        toolset, "write_file", {"path": large, "content": "y" * (5 << 20)}
    )
    assert not threads_used(toolset, "read_file", {"path": small})
    assert not threads_used(toolset, "write_file", {"path": small, "content": "y"})


# --- Without PydanticAI -----------------------------------------------------------------


def without(module: str, code: str) -> subprocess.CompletedProcess[str]:
    block = f"import sys; sys.modules['{module}'] = None\n"
    return subprocess.run(
        [sys.executable, "-c", block + code], capture_output=True, text=True
    )


def test_the_names_can_be_imported_without_pydantic_ai(tmp_path: Path) -> None:
    done = without(
        "pydantic_ai",
        "from cay.filesystem import *\n"
        "from cay.filesystem import ApprovableFileSystemToolset, FileSystemToolset\n"
        f"path = PathConfig(root={str(tmp_path)!r})\n"
        "sandbox = Sandbox(SandboxConfig(paths={'d': path}))\n"
        "print(Files(sandbox).list_files())\n"
        "for cls in FileSystemToolset, ApprovableFileSystemToolset:\n"
        "    try:\n"
        "        cls(sandbox)\n"
        "    except ImportError as error:\n"
        "        print(error)\n",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "[]" and len(lines) == 3
    assert all("pip install pydantic-ai-slim" in line for line in lines[1:])


def test_a_pydantic_ai_that_fails_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "pydantic_ai").mkdir()
    (tmp_path / "pydantic_ai" / "__init__.py").write_text("import no_such_telemetry\n")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from cay.filesystem import FileSystemToolset\n"
        f"FileSystemToolset.create_default({str(tmp_path)!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    said = done.stderr.splitlines()[-1]
    assert "No module named 'no_such_telemetry'" in said and "pip install" not in said


def test_pydantic_ai_is_not_imported_until_a_toolset_is_asked_for() -> None:
    code = (
        "import sys, cay.filesystem\n"
        "assert 'pydantic_ai' not in sys.modules\n"
        "cay.filesystem.FileSystemToolset\n"
        "assert 'pydantic_ai' in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
