# SPDX-License-Identifier: Apache-2.0
"""A filesystem policy for agents, and file tools that obey it.

    from cay.filesystem import FileSystemToolset, PathConfig, Sandbox, SandboxConfig

    config = SandboxConfig(paths={"notes": PathConfig(root="./notes", mode="rw")})
    toolset = FileSystemToolset(Sandbox(config))
    agent = Agent(..., toolsets=[toolset])

``Files`` has the same operations without PydanticAI, which is imported when a toolset is
used for the first time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cay.filesystem.approver import Decision, Request
from cay.filesystem.config import Mount, PathConfig, RootSandboxConfig, SandboxConfig
from cay.filesystem.errors import (
    EditError,
    FileTooLargeError,
    PathNotInSandboxError,
    PathNotWritableError,
    SandboxError,
    SandboxPermissionEscalationError,
    SuffixNotAllowedError,
)
from cay.filesystem.files import DEFAULT_MAX_READ_CHARS, Files
from cay.filesystem.results import ReadResult
from cay.filesystem.sandbox import Sandbox

if TYPE_CHECKING:
    from cay.filesystem.approval_toolset import ApprovableFileSystemToolset
    from cay.filesystem.toolset import FileSystemToolset

__all__ = [
    "DEFAULT_MAX_READ_CHARS",
    "ApprovableFileSystemToolset",
    "Decision",
    "EditError",
    "FileSystemToolset",
    "FileTooLargeError",
    "Files",
    "Mount",
    "PathConfig",
    "PathNotInSandboxError",
    "PathNotWritableError",
    "ReadResult",
    "Request",
    "RootSandboxConfig",
    "Sandbox",
    "SandboxConfig",
    "SandboxError",
    "SandboxPermissionEscalationError",
    "SuffixNotAllowedError",
]


def __getattr__(name: str) -> Any:
    if name == "FileSystemToolset":
        from cay.filesystem.toolset import FileSystemToolset

        return FileSystemToolset
    if name == "ApprovableFileSystemToolset":
        from cay.filesystem.approval_toolset import ApprovableFileSystemToolset

        return ApprovableFileSystemToolset
    raise AttributeError(f"module 'cay.filesystem' has no attribute {name!r}")
