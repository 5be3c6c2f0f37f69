# SPDX-License-Identifier: Apache-2.0
"""Tools with which a model uses one sandbox: code, commands and files.

    from pydantic_ai import Agent
    from cay import Sandbox
    from cay.tools import SandboxToolset

    with Sandbox.create(memory="512M") as sandbox:
        agent = Agent("openai:gpt-5", toolsets=[SandboxToolset(sandbox)])

``SandboxTools`` has the same tools as plain functions, and their JSON schemas in the forms
of OpenAI and Anthropic.  A tool has no argument that could name another sandbox or user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cay.tools.reply import Image, Reply
from cay.tools.sandbox import DEFAULT_TOOLS, TOOL_NAMES, SandboxTools

if TYPE_CHECKING:
    from cay.tools.toolset import SandboxToolset as SandboxToolset

__all__ = [
    "DEFAULT_TOOLS",
    "TOOL_NAMES",
    "Image",
    "Reply",
    "SandboxToolset",
    "SandboxTools",
]


def __getattr__(name: str) -> Any:
    # PydanticAI is imported on first use.
    if name == "SandboxToolset":
        from cay.tools.toolset import SandboxToolset

        return SandboxToolset
    raise AttributeError(f"module 'cay.tools' has no attribute {name!r}")
