# SPDX-License-Identifier: Apache-2.0
"""FileSystemToolset: the file operations as tools of a PydanticAI agent."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, TypeAdapter

from cay import _c
from cay.filesystem.approver import Approver
from cay.filesystem.config import PathConfig, SandboxConfig
from cay.filesystem.errors import SandboxError
from cay.filesystem.files import DEFAULT_MAX_READ_CHARS, Files
from cay.filesystem.results import ReadResult
from cay.filesystem.sandbox import Sandbox
from cay.filesystem.tools import (
    EXTRA_TOOLS,
    TOOLS,
    CopyFileArgs,
    DeleteFileArgs,
    EditFileArgs,
    ListFilesArgs,
    MoveFileArgs,
    Pins,
    ReadFileArgs,
    Tool,
    WriteFileArgs,
    _NamedListFilesArgs,
)

_INSTALL = ": pip install pydantic-ai-slim "

if TYPE_CHECKING:
    from pydantic_ai.tools import RunContext
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

    _Toolset: TypeAlias = AbstractToolset[Any]
else:
    try:
        from pydantic_ai.toolsets import AbstractToolset

        _Toolset = AbstractToolset[Any]
    except ImportError as error:
        _why = error

        class _Toolset:
            """Replaces PydanticAI's class, so that the names can be imported without it."""

            _without = "cay.filesystem.Files has the same operations without it"

            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                is_there = (_why.name or "").partition(".")[0] != "pydantic_ai"
                raise ImportError(
                    f"{cls.__name__} needs PydanticAI"
                    + (f", which cannot be imported: {_why} " if is_there else _INSTALL)
                    + f"({cls._without})"
                ) from _why


__all__ = [
    "DEFAULT_MAX_READ_CHARS",
    "CopyFileArgs",
    "DeleteFileArgs",
    "EditFileArgs",
    "FileSystemToolset",
    "ListFilesArgs",
    "MoveFileArgs",
    "ReadFileArgs",
    "ReadResult",
    "WriteFileArgs",
]

# Larger operations run in a thread, so that the event loop is not blocked.  For smaller
# ones the switch to a thread and back takes longer than the work.
_LARGE = 4 << 20
_UNPINNED: Pins = (None, None)

_Self = TypeVar("_Self", bound="FileSystemToolset")


class FileSystemToolset(Files, _Toolset):
    """File tools for a PydanticAI agent: read_file, write_file, list_files, edit_file,
    delete_file, move_file, copy_file; with ``extra_tools`` also grep_files and others.

    If the sandbox refuses a call, the model gets a retry whose message says what is
    allowed; with ``raise_errors`` the error ends the run instead.  ``approver`` is called
    before each operation for which the configuration requires approval; without one the
    caller handles approvals, see ApprovableFileSystemToolset.

    The methods work without an agent, too.  Tool calls that may take long (directory
    walks, files over 4 MiB, calls with an approver) run in a thread.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        id: str | None = None,
        max_retries: int = 1,
        *,
        raise_errors: bool = False,
        approver: Approver | None = None,
        extra_tools: bool = False,
    ) -> None:
        super().__init__(sandbox, approver=approver)
        self._toolset_id = id
        self._max_retries = max_retries
        self._raise_errors = raise_errors
        self._blocks = self._handle.bridge is not None
        offered = TOOLS + (EXTRA_TOOLS if extra_tools else ())
        if sandbox._style != _c.STYLE_MOUNTS:
            offered = tuple(_with_named_paths(tool) for tool in offered)
        self._tools = {tool.name: tool for tool in offered}
        self._toolset_tools: dict[str, ToolsetTool[Any]] | None = None

    @classmethod
    def create_default(
        cls: type[_Self],
        root: str | Path,
        mode: Literal["ro", "rw"] = "rw",
        id: str | None = None,
    ) -> _Self:
        """A toolset for one directory, named "data"."""
        paths = {"data": PathConfig(root=str(root), mode=mode)}
        return cls(Sandbox(SandboxConfig(paths=paths)), id=id)

    # --- AbstractToolset ---------------------------------------------------------------

    @property
    def id(self) -> str | None:
        """The id given to the constructor."""
        return self._toolset_id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools, in their order."""
        if self._toolset_tools is None:
            self._toolset_tools = {
                tool.name: self._offer(tool) for tool in self._tools.values()
            }
        return dict(self._toolset_tools)

    def _offer(self, tool: Tool) -> ToolsetTool[Any]:
        from pydantic_ai.tools import ToolDefinition
        from pydantic_ai.toolsets import ToolsetTool

        return ToolsetTool(
            toolset=self,
            tool_def=ToolDefinition(
                name=tool.name,
                description=f"{tool.description} {self._path_example()}",
                parameters_json_schema=tool.args.model_json_schema(),
            ),
            max_retries=self._max_retries,
            args_validator=_validator(tool.args),
        )

    def _path_example(self) -> str:
        """An example of a path of this sandbox."""
        roots = self._sandbox.readable_roots or self._sandbox.writable_roots or ["/"]
        return f"Paths look like '{roots[0].rstrip('/')}/notes/a.txt'."

    async def call_tool(
        self, name: str, tool_args: Any, ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Calls a tool; ``tool_args`` is its argument model or a dict."""
        offered = self._tools.get(name)
        if offered is None:
            raise ValueError(f"Unknown tool: {name}")
        args = tool_args
        if not isinstance(args, BaseModel):
            args = offered.args.model_validate(args)
        pins = self._take_pins(name, args, ctx)
        try:
            if self._takes_long(offered, args):
                result = await asyncio.to_thread(offered.call, self, args, pins)
            else:
                result = offered.call(self, args, pins)
        except SandboxError as error:
            if self._raise_errors:
                raise
            from pydantic_ai import ModelRetry

            raise ModelRetry(_readable(error.message)) from error
        return _readable(result)

    def _take_pins(self, name: str, args: BaseModel, ctx: RunContext[Any]) -> Pins:
        """The files that the call was approved for, if it was."""
        return _UNPINNED

    def _takes_long(self, tool: Tool, args: Any) -> bool:
        if tool.walks or self._blocks:
            return True
        given = vars(args)
        if len(given.get("content", "")) > _LARGE:
            return True
        return self._size(given[tool.touches[0].argument]) > _LARGE


def _validator(args: type[BaseModel]) -> Any:
    """Validates into a dict, as PydanticAI and wrapping toolsets expect."""
    as_dict: Any = Annotated[args, AfterValidator(lambda model: model.model_dump())]
    return TypeAdapter(as_dict).validator


def _with_named_paths(tool: Tool) -> Tool:
    if tool.args is not ListFilesArgs:
        return tool
    return dataclasses.replace(tool, args=_NamedListFilesArgs)


def _readable(result: Any) -> Any:
    """The result for a model: bytes in names that are not UTF-8 become U+FFFD, since they
    cannot be sent."""
    if isinstance(result, str):
        return result if result.isascii() else _c.display(result)
    if isinstance(result, Mapping):
        return {key: _readable(value) for key, value in result.items()}
    if isinstance(result, list):
        return [_readable(item) for item in result]
    return result
