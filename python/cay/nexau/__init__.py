# SPDX-License-Identifier: Apache-2.0
"""NexAU's sandbox interface: commands, code and files on sandboxes of every backend.

    from cay.nexau import NativeSandboxManager, SessionManager

    manager = NativeSandboxManager()
    sandbox = manager.start(SessionManager(), "user", "session")
    print(sandbox.execute_bash("echo hello").stdout)

Programs written for NexAU run with these names (docs/nexau.md); the package nexau is not
needed, except for CaySandbox and CaySandboxManager, which plug into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cay.errors import (
    SandboxError,
    SandboxExecutionError,
    SandboxFileError,
    SandboxNotFoundError,
    SandboxTimeoutError,
    SandboxValueError,
    UserNotFoundError,
)
from cay.nexau.agent import Agent, AgentConfig, AgentState, make_manager
from cay.nexau.arguments import extract_dataclass_init_kwargs
from cay.nexau.backends import BackendSandbox, E2BSandbox, LocalSandbox, NativeSandbox
from cay.nexau.base import BASH_TOOL_RESULTS_BASE_PATH, BaseSandbox, BaseSandboxManager
from cay.nexau.config import (
    E2B_DEFAULT_WORK_DIR,
    BaseSandboxConfig,
    E2BSandboxConfig,
    LocalSandboxConfig,
    NativeSandboxConfig,
    SandboxConfig,
    parse_sandbox_config,
)
from cay.nexau.managers import (
    BackendSandboxManager,
    E2BSandboxManager,
    LocalSandboxManager,
    NativeSandboxManager,
)
from cay.nexau.registry import SandboxAlias
from cay.nexau.results import (
    CodeExecutionResult,
    CodeLanguage,
    CommandResult,
    FileInfo,
    FileOperationResult,
    SandboxStatus,
)
from cay.nexau.session import (
    DatabaseEngine,
    InMemoryDatabaseEngine,
    Session,
    SessionManager,
    SQLiteDatabaseEngine,
)
from cay.nexau.shell import (
    HEREDOC_PATTERN,
    BashHeredocBlock,
    clean_shell_output,
    collapse_repetitive,
    contains_heredoc,
    parse_single_bash_heredoc,
    resolve_cr,
    smart_truncate_output,
    strip_ansi,
)

if TYPE_CHECKING:
    from cay.nexau.adapter import CaySandbox as CaySandbox
    from cay.nexau.adapter import CaySandboxManager as CaySandboxManager

# CaySandbox and CaySandboxManager are not in the list: they need the package nexau.
__all__ = [
    "BASH_TOOL_RESULTS_BASE_PATH",
    "E2B_DEFAULT_WORK_DIR",
    "HEREDOC_PATTERN",
    "Agent",
    "AgentConfig",
    "AgentState",
    "BackendSandbox",
    "BackendSandboxManager",
    "BaseSandbox",
    "BaseSandboxConfig",
    "BaseSandboxManager",
    "BashHeredocBlock",
    "CodeExecutionResult",
    "CodeLanguage",
    "CommandResult",
    "DatabaseEngine",
    "E2BSandbox",
    "E2BSandboxConfig",
    "E2BSandboxManager",
    "FileInfo",
    "FileOperationResult",
    "InMemoryDatabaseEngine",
    "LocalSandbox",
    "LocalSandboxConfig",
    "LocalSandboxManager",
    "NativeSandbox",
    "NativeSandboxConfig",
    "NativeSandboxManager",
    "SQLiteDatabaseEngine",
    "SandboxAlias",
    "SandboxConfig",
    "SandboxError",
    "SandboxExecutionError",
    "SandboxFileError",
    "SandboxNotFoundError",
    "SandboxStatus",
    "SandboxTimeoutError",
    "SandboxValueError",
    "Session",
    "SessionManager",
    "UserNotFoundError",
    "clean_shell_output",
    "collapse_repetitive",
    "contains_heredoc",
    "extract_dataclass_init_kwargs",
    "make_manager",
    "parse_sandbox_config",
    "parse_single_bash_heredoc",
    "resolve_cr",
    "smart_truncate_output",
    "strip_ansi",
]


def __getattr__(name: str) -> Any:
    if name in ("CaySandbox", "CaySandboxManager"):
        from cay.nexau import adapter

        return getattr(adapter, name)
    raise AttributeError(f"module 'cay.nexau' has no attribute {name!r}")
