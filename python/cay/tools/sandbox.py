# SPDX-License-Identifier: Apache-2.0
"""SandboxTools: the tools of one sandbox as functions, and their JSON schemas."""

from __future__ import annotations

import inspect
import json
import math
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cay.errors import (
    CayError,
    SandboxInternalError,
    SandboxNotFoundError,
    SandboxNotTextError,
    SandboxProtocolError,
    SandboxUnavailableError,
    SandboxValueError,
)
from cay.filesystem import tools as _files
from cay.filesystem.results import LinesResult, ReadResult
from cay.sandbox.aio import AsyncSandbox
from cay.sandbox.code import Execution
from cay.sandbox.event_loop import in_thread
from cay.sandbox.results import ExecResult, SandboxInfo
from cay.sandbox.sandbox import Sandbox
from cay.tools.reply import (
    IMAGE_BYTES,
    Reply,
    cut,
    image_of,
    images_of,
    of_command,
    of_execution,
)

_NARROWER = "narrow it with path or pattern"
_LEAST = 500
_UNPINNED = (None, None)


class RunCodeArgs(BaseModel):
    model_config = ConfigDict(extra="forbid")

    code: str = Field(description="The code to run")
    language: str = Field(
        default="python",
        description="python, javascript, typescript and bash keep variables; others that "
        "are installed (sh, perl, ruby, r, java, go, c, c++, rust) run once",
    )
    timeout: float | None = Field(
        default=None, gt=0, description="Seconds; less than the default, which is the limit"
    )


class RunCommandArgs(BaseModel):
    model_config = ConfigDict(extra="forbid")

    command: str = Field(description="A line or a script for sh")
    timeout: float | None = Field(
        default=None, gt=0, description="Seconds; less than the default, which is the limit"
    )


@dataclass(frozen=True)
class Tool:
    """A tool as a model sees it."""

    name: str
    args: type[BaseModel]
    description: str
    file: _files.Tool | None = None


def _in_sandbox(tool: _files.Tool) -> Tool:
    args = _files._NamedListFilesArgs if tool.name == "list_files" else tool.args
    description = tool.description
    if tool.name == "read_file":
        description = (
            "Read a text file, a page at a time, or look at a picture (PNG, JPEG). The "
            "result says whether more text follows; request the next page with offset."
        )
    return Tool(tool.name, args, description, tool)


_TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "run_code",
            RunCodeArgs,
            "Run code in an interpreter of the sandbox. Variables, imports and files stay "
            "for the next call. The value of the last expression is shown, and so are "
            "matplotlib figures.",
        ),
        Tool(
            "run_command",
            RunCommandArgs,
            "Run a shell command in the sandbox, without input. Its output and an exit code "
            "other than 0 are shown.",
        ),
        *map(_in_sandbox, (*_files.TOOLS, *_files.EXTRA_TOOLS)),
    )
}

TOOL_NAMES = tuple(_TOOLS)
"""every tool"""
DEFAULT_TOOLS = (
    "run_code",
    "run_command",
    "read_file",
    "write_file",
    "edit_file",
    "list_files",
    "grep_files",
)


class SandboxTools:
    """Tools for a model, all of them for one sandbox.

    ``functions()`` and ``async_functions()`` are for frameworks that take functions;
    ``openai()`` and ``anthropic()`` are the schemas for a loop of your own, with ``call()``
    for the calls that the model requests:

        tools = SandboxTools(sandbox)
        response = client.messages.create(tools=tools.anthropic(), ...)
        reply = tools.call(block.name, block.input)

    A call returns a Reply: text of about ``limit`` characters, in which the middle of a
    long output is cut and saved in a file of the sandbox, and ``images``.  What the model
    can correct is text that starts with "Error: ".  An exception means that the sandbox has
    ended or is unavailable.  ``timeout`` is the limit of a command and of code, in seconds.
    """

    def __init__(
        self,
        sandbox: Sandbox | AsyncSandbox,
        *,
        tools: Iterable[str] = DEFAULT_TOOLS,
        timeout: float = 120,
        limit: int = 20_000,
        images: bool = True,
    ) -> None:
        if not isinstance(sandbox, Sandbox | AsyncSandbox):
            raise TypeError(
                f"sandbox: expected Sandbox or AsyncSandbox, not {type(sandbox).__name__}"
            )
        names = [tools] if isinstance(tools, str) else list(tools)
        for name in names:
            if name not in _TOOLS:
                raise SandboxValueError(
                    "unknown tool", subject=str(name), hint=f"tools: {', '.join(TOOL_NAMES)}"
                )
        if not timeout > 0 or math.isinf(timeout):
            raise SandboxValueError(
                f"invalid timeout {timeout}", subject="timeout", hint="pass seconds, above 0"
            )
        if limit < _LEAST:
            raise SandboxValueError(
                f"invalid limit {limit}", subject="limit", hint=f"at least {_LEAST} characters"
            )
        self._sandbox = sandbox.sync if isinstance(sandbox, AsyncSandbox) else sandbox
        self._async = AsyncSandbox(self._sandbox)
        self._timeout = timeout
        self._limit = limit
        self._images = images
        info = self._sandbox.inspect()
        self.tools = {name: self._described(_TOOLS[name], info) for name in names}
        """by name"""

    def _described(self, tool: Tool, info: SandboxInfo) -> Tool:
        """What a model should know of this sandbox before it tries."""
        workdir = info.workdir or "the working directory"
        about = f"Relative paths start at {workdir}."
        if tool.file is None:
            about = f"It starts in {workdir} and may take {self._timeout:g} seconds."
            about += " There is no network." if info.network == "none" else ""
        return replace(tool, description=f"{tool.description} {about}")

    def __repr__(self) -> str:
        return f"SandboxTools({self._sandbox!r}, tools={list(self.tools)})"

    # --- Schemas ----------------------------------------------------------------------------

    def openai(self) -> list[dict[str, Any]]:
        """For ``tools=`` of OpenAI's chat completions, and services with that interface."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.args.model_json_schema(),
                },
            }
            for tool in self.tools.values()
        ]

    def anthropic(self) -> list[dict[str, Any]]:
        """For ``tools=`` of Anthropic's messages."""
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.args.model_json_schema(),
            }
            for tool in self.tools.values()
        ]

    # --- Functions --------------------------------------------------------------------------

    def functions(self) -> list[Callable[..., Reply]]:
        """Functions with names, types and docstrings."""
        return [self._function(tool) for tool in self.tools.values()]

    def async_functions(self) -> list[Callable[..., Coroutine[Any, Any, Reply]]]:
        """The same as coroutine functions."""
        return [self._async_function(tool) for tool in self.tools.values()]

    def _function(self, tool: Tool) -> Callable[..., Reply]:
        signature = _signature(tool)

        def function(*args: Any, **kwargs: Any) -> Reply:
            given = signature.bind_partial(*args).arguments
            return self.call(tool.name, {**given, **kwargs})

        _dress(function, tool, signature)
        return function

    def _async_function(self, tool: Tool) -> Callable[..., Coroutine[Any, Any, Reply]]:
        signature = _signature(tool)

        async def function(*args: Any, **kwargs: Any) -> Reply:
            given = signature.bind_partial(*args).arguments
            return await self.call_async(tool.name, {**given, **kwargs})

        _dress(function, tool, signature)
        return function

    # --- Calls ------------------------------------------------------------------------------

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Reply:
        """Calls a tool; ``arguments`` is a map, or its JSON text."""
        try:
            tool, args = self._parse(name, arguments)
            if tool.file is not None:
                return self._use_file(tool.file, args)
            if tool.name == "run_command":
                return self._of_command(
                    self._sandbox.shell(args.command, timeout=self._seconds(args)), args
                )
            return self._of_execution(
                self._sandbox.execute_code(
                    args.code, args.language, timeout=self._seconds(args)
                ),
                args,
            )
        except (CayError, ValueError) as error:
            return self._of_error(error)

    async def call_async(
        self, name: str, arguments: Mapping[str, Any] | str | None = None
    ) -> Reply:
        """As call(), for asyncio and trio.  If the task is cancelled, the command is
        killed, and code is interrupted and keeps its variables."""
        try:
            tool, args = self._parse(name, arguments)
            if tool.file is not None:
                return await in_thread(self._use_file, tool.file, args)
            if tool.name == "run_command":
                result = await self._async.shell(args.command, timeout=self._seconds(args))
                return await in_thread(self._of_command, result, args)
            execution = await self._async.execute_code(
                args.code, args.language, timeout=self._seconds(args)
            )
            return await in_thread(self._of_execution, execution, args)
        except (CayError, ValueError) as error:
            return self._of_error(error)

    def _parse(
        self, name: str, arguments: Mapping[str, Any] | str | None
    ) -> tuple[Tool, Any]:
        tool = self.tools.get(name)
        if tool is None:
            raise SandboxValueError(
                "there is no such tool", subject=name, hint=f"tools: {', '.join(self.tools)}"
            )
        if isinstance(arguments, str):
            return tool, tool.args.model_validate_json(arguments or "{}")
        return tool, tool.args.model_validate(dict(arguments or {}))

    def _seconds(self, args: Any) -> float:
        return min(args.timeout or self._timeout, self._timeout)

    def _of_error(self, error: CayError | ValueError) -> Reply:
        """Text for the model; an error that it cannot do anything about is raised."""
        if isinstance(error, ValidationError):
            wrong = [
                f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}"
                for one in error.errors()
            ]
            return Reply(f"Error: invalid arguments: {'; '.join(wrong)}", is_error=True)
        if self._sandbox._handles.is_closed or isinstance(
            error,
            SandboxInternalError
            | SandboxNotFoundError
            | SandboxProtocolError
            | SandboxUnavailableError,
        ):
            raise error
        return Reply(cut(f"Error: {error}", self._limit, "the rest is lost"), is_error=True)

    # --- Replies ----------------------------------------------------------------------------

    def _of_command(self, result: ExecResult, args: RunCommandArgs) -> Reply:
        if result.cause == "gone":
            raise SandboxNotFoundError(
                "the sandbox has ended", subject=self._sandbox.id, hint="create a new one"
            )
        return Reply(self._cut(of_command(result, self._seconds(args))))

    def _of_execution(self, execution: Execution, args: RunCodeArgs) -> Reply:
        text = self._cut(of_execution(execution, self._seconds(args)))
        if not self._images:
            return Reply(text)
        images, note = images_of(execution)
        return Reply(f"{text}\n{note}" if note else text, images)

    def _cut(self, text: str) -> str:
        """Saves a text that is too long in the sandbox, so that the model can read on."""
        if len(text) <= self._limit:
            return text
        path = f"/tmp/output-{secrets.token_hex(4)}.txt"
        try:
            self._sandbox.files.write(path, text, new=True)
        except (CayError, UnicodeEncodeError):
            return cut(text, self._limit, "write the output to a file to see all of it")
        readers = [name for name in ("read_file", "grep_files") if name in self.tools]
        how = " or ".join(readers or ["a command"])
        return cut(text, self._limit, f"all of it is in {path}: see it with {how}")

    def _use_file(self, tool: _files.Tool, args: Any) -> Reply:
        if tool.name == "read_file":
            args = args.model_copy(update={"max_chars": min(args.max_chars, self._limit)})
        try:
            result = self._sandbox.files._call(
                lambda files: tool.call(files, args, _UNPINNED)
            )
        except SandboxNotTextError:
            image = None
            if tool.name == "read_file" and self._images:
                image = image_of(self._sandbox.files.read_bytes(args.path, IMAGE_BYTES + 1))
            if image is None:
                raise
            return Reply(f"[picture: {args.path}]", [image])
        if isinstance(result, ReadResult | LinesResult):
            return Reply(_of_page(result, self._limit))
        return Reply(cut(_of_file(result), self._limit, _NARROWER))


def _of_file(result: Any) -> str:
    """The result of a file tool as text."""
    if isinstance(result, str):
        return result
    if isinstance(result, dict) and "matches" in result:
        lines = [f"{one['path']}:{one['line']}: {one['text']}" for one in result["matches"]]
        if result["truncated"]:
            lines.append(f"[more lines match; {_NARROWER}]")
        return "\n".join(lines) or f"[no match in {result['files_searched']} files]"
    if isinstance(result, list):
        lines = [one if isinstance(one, str) else _of_entry(one) for one in result]
        return "\n".join(lines) or "[nothing]"
    return json.dumps(result)


def _of_entry(entry: dict[str, Any]) -> str:
    size = f" {entry['bytes']:,} bytes" if entry["type"] == "file" else ""
    return f"{entry['path']} ({entry['type']}{size})"


def _of_page(page: ReadResult | LinesResult, limit: int) -> str:
    if isinstance(page, ReadResult):
        unit, got, total = "characters", page.chars_read, page.total_chars
    else:
        unit, got, total = "lines", page.lines_read, page.total_lines
    content = cut(page.content, limit, "read fewer lines")
    if not page.truncated and page.offset == 0:
        return content or "[the file is empty]"
    note = f"[{unit} {page.offset:,} to {page.offset + got:,} of {total:,}"
    if page.truncated:
        note += f"; read on with offset={page.offset + got}"
    return f"{content}\n{note}]"


# --- Functions ------------------------------------------------------------------------------


def _signature(tool: Tool) -> inspect.Signature:
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if field.is_required() else field.default,
            annotation=field.annotation,
        )
        for name, field in tool.args.model_fields.items()
    ]
    return inspect.Signature(parameters, return_annotation=str)


def _dress(function: Any, tool: Tool, signature: inspect.Signature) -> None:
    """Gives the function the name, the types and the docstring of the tool."""
    about = [
        f"    {name}: {field.description}" for name, field in tool.args.model_fields.items()
    ]
    function.__name__ = function.__qualname__ = tool.name
    function.__doc__ = "\n".join([tool.description, "", "Args:", *about])
    function.__signature__ = signature
    function.__annotations__ = {
        **{one.name: one.annotation for one in signature.parameters.values()},
        "return": str,
    }
