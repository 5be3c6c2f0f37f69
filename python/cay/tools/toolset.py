# SPDX-License-Identifier: Apache-2.0
"""SandboxToolset: the tools of one sandbox for a PydanticAI agent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cay.filesystem.toolset import _Toolset, _validator
from cay.sandbox.aio import AsyncSandbox
from cay.sandbox.sandbox import Sandbox
from cay.tools.sandbox import DEFAULT_TOOLS, SandboxTools, Tool

if TYPE_CHECKING:
    from pydantic_ai.tools import RunContext
    from pydantic_ai.toolsets import ToolsetTool


class SandboxToolset(_Toolset):
    """Tools of a sandbox for a PydanticAI agent: run_code, run_command, read_file,
    write_file, edit_file, list_files and grep_files; ``tools`` names others.

    The options and the replies are those of SandboxTools.  Pictures are BinaryContent.
    Calls that a model requests at the same time run one after the other, in their order.
    The sandbox is the caller's: it does not end with the agent.
    """

    _without = "cay.tools.SandboxTools has the same tools without it"

    def __init__(
        self,
        sandbox: Sandbox | AsyncSandbox,
        id: str | None = None,
        max_retries: int = 1,
        *,
        tools: Iterable[str] = DEFAULT_TOOLS,
        timeout: float = 120,
        limit: int = 20_000,
        images: bool = True,
    ) -> None:
        self._id = id
        self._max_retries = max_retries
        self._tools = SandboxTools(
            sandbox, tools=tools, timeout=timeout, limit=limit, images=images
        )

    @property
    def id(self) -> str | None:
        """The id given to the constructor."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools, in their order."""
        return {name: self._offer(tool) for name, tool in self._tools.tools.items()}

    def _offer(self, tool: Tool) -> ToolsetTool[Any]:
        from pydantic_ai.tools import ToolDefinition
        from pydantic_ai.toolsets import ToolsetTool

        definition = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.args.model_json_schema(),
        )
        if hasattr(definition, "sequential"):  # PydanticAI 1.0 does not have it
            definition.sequential = True
        return ToolsetTool(
            toolset=self,
            tool_def=definition,
            max_retries=self._max_retries,
            args_validator=_validator(tool.args),
        )

    async def call_tool(
        self, name: str, tool_args: Any, ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Text, or a list of text and pictures."""
        reply = await self._tools.call_async(name, tool_args)
        if not reply.images:
            return str(reply)
        from pydantic_ai.messages import BinaryContent

        pictures = [BinaryContent(one.data, media_type=one.media_type) for one in reply.images]
        return [str(reply), *pictures]
