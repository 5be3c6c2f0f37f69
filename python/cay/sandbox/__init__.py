# SPDX-License-Identifier: Apache-2.0
"""Sandboxes: run anything on this machine, fast and confined.

    from cay import Sandbox

    with Sandbox.create(memory="512M") as sandbox:
        sandbox.files.write("hello.py", "print(6 * 7)")
        print(sandbox.exec(["python3", "hello.py"], timeout=10).stdout)

``AsyncSandbox`` is the same for asyncio and trio.

``BaseSandbox`` is what agents see of a sandbox of any kind, with managers and sessions
around it: NexAU's interface (docs/nexau.md).  It is loaded when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cay.sandbox.aio import AsyncFiles, AsyncProcess, AsyncSandbox
from cay.sandbox.errors import (
    SandboxBusyError,
    SandboxError,
    SandboxExecutionError,
    SandboxFileError,
    SandboxNotFoundError,
    SandboxTimeoutError,
    SandboxUnavailableError,
    SandboxUnsupportedError,
    SandboxValueError,
    TemplateNotFoundError,
    UserNotFoundError,
)
from cay.sandbox.files import SandboxFiles
from cay.sandbox.options import Bind
from cay.sandbox.process import Process
from cay.sandbox.results import (
    Check,
    ExecResult,
    Output,
    ProcessInfo,
    SandboxInfo,
    Stream,
    TemplateInfo,
)
from cay.sandbox.sandbox import Sandbox
from cay.sandbox.host import create_template, doctor, remove_template, templates

if TYPE_CHECKING:
    from cay.sandbox.agent import (
        Agent as Agent,
        AgentConfig as AgentConfig,
        AgentState as AgentState,
        make_manager as make_manager,
    )
    from cay.sandbox.alias import (
        SandboxAlias as SandboxAlias,
    )
    from cay.sandbox.backends import (
        BackendSandbox as BackendSandbox,
        E2BSandbox as E2BSandbox,
        LocalSandbox as LocalSandbox,
        NativeSandbox as NativeSandbox,
    )
    from cay.sandbox.base import (
        BASH_TOOL_RESULTS_BASE_PATH as BASH_TOOL_RESULTS_BASE_PATH,
        BaseSandbox as BaseSandbox,
    )
    from cay.sandbox.configs import (
        BaseSandboxConfig as BaseSandboxConfig,
        E2BSandboxConfig as E2BSandboxConfig,
        E2B_DEFAULT_WORK_DIR as E2B_DEFAULT_WORK_DIR,
        LocalSandboxConfig as LocalSandboxConfig,
        NativeSandboxConfig as NativeSandboxConfig,
        SandboxConfig as SandboxConfig,
        parse_sandbox_config as parse_sandbox_config,
    )
    from cay.sandbox.heredoc import (
        BashHeredocBlock as BashHeredocBlock,
        HEREDOC_PATTERN as HEREDOC_PATTERN,
        contains_heredoc as contains_heredoc,
        parse_single_bash_heredoc as parse_single_bash_heredoc,
    )
    from cay.sandbox.manager import (
        BaseSandboxManager as BaseSandboxManager,
    )
    from cay.sandbox.managers import (
        BackendSandboxManager as BackendSandboxManager,
        E2BSandboxManager as E2BSandboxManager,
        LocalSandboxManager as LocalSandboxManager,
        NativeSandboxManager as NativeSandboxManager,
    )
    from cay.sandbox.outcomes import (
        CodeExecutionResult as CodeExecutionResult,
        CodeLanguage as CodeLanguage,
        CommandResult as CommandResult,
        FileInfo as FileInfo,
        FileOperationResult as FileOperationResult,
        SandboxStatus as SandboxStatus,
    )
    from cay.sandbox.output import (
        clean_shell_output as clean_shell_output,
        collapse_repetitive as collapse_repetitive,
        resolve_cr as resolve_cr,
        smart_truncate_output as smart_truncate_output,
        strip_ansi as strip_ansi,
    )
    from cay.sandbox.session import (
        DatabaseEngine as DatabaseEngine,
        InMemoryDatabaseEngine as InMemoryDatabaseEngine,
        SQLiteDatabaseEngine as SQLiteDatabaseEngine,
        Session as Session,
        SessionManager as SessionManager,
    )
    from cay.sandbox.spelling import (
        extract_dataclass_init_kwargs as extract_dataclass_init_kwargs,
    )

_LAZY = {
    "Agent": "agent",
    "AgentConfig": "agent",
    "AgentState": "agent",
    "make_manager": "agent",
    "SandboxAlias": "alias",
    "BackendSandbox": "backends",
    "E2BSandbox": "backends",
    "LocalSandbox": "backends",
    "NativeSandbox": "backends",
    "BASH_TOOL_RESULTS_BASE_PATH": "base",
    "BaseSandbox": "base",
    "BaseSandboxConfig": "configs",
    "E2BSandboxConfig": "configs",
    "E2B_DEFAULT_WORK_DIR": "configs",
    "LocalSandboxConfig": "configs",
    "NativeSandboxConfig": "configs",
    "SandboxConfig": "configs",
    "parse_sandbox_config": "configs",
    "BashHeredocBlock": "heredoc",
    "HEREDOC_PATTERN": "heredoc",
    "contains_heredoc": "heredoc",
    "parse_single_bash_heredoc": "heredoc",
    "BaseSandboxManager": "manager",
    "BackendSandboxManager": "managers",
    "E2BSandboxManager": "managers",
    "LocalSandboxManager": "managers",
    "NativeSandboxManager": "managers",
    "CodeExecutionResult": "outcomes",
    "CodeLanguage": "outcomes",
    "CommandResult": "outcomes",
    "FileInfo": "outcomes",
    "FileOperationResult": "outcomes",
    "SandboxStatus": "outcomes",
    "clean_shell_output": "output",
    "collapse_repetitive": "output",
    "resolve_cr": "output",
    "smart_truncate_output": "output",
    "strip_ansi": "output",
    "DatabaseEngine": "session",
    "InMemoryDatabaseEngine": "session",
    "SQLiteDatabaseEngine": "session",
    "Session": "session",
    "SessionManager": "session",
    "extract_dataclass_init_kwargs": "spelling",
}

__all__ = [
    "E2B_DEFAULT_WORK_DIR",
    "HEREDOC_PATTERN",
    "Agent",
    "AgentConfig",
    "AgentState",
    "AsyncFiles",
    "AsyncProcess",
    "AsyncSandbox",
    "BASH_TOOL_RESULTS_BASE_PATH",
    "BackendSandbox",
    "BackendSandboxManager",
    "BaseSandbox",
    "BaseSandboxConfig",
    "BaseSandboxManager",
    "BashHeredocBlock",
    "Bind",
    "Check",
    "CodeExecutionResult",
    "CodeLanguage",
    "CommandResult",
    "DatabaseEngine",
    "E2BSandbox",
    "E2BSandboxConfig",
    "E2BSandboxManager",
    "ExecResult",
    "FileInfo",
    "FileOperationResult",
    "InMemoryDatabaseEngine",
    "LocalSandbox",
    "LocalSandboxConfig",
    "LocalSandboxManager",
    "NativeSandbox",
    "NativeSandboxConfig",
    "NativeSandboxManager",
    "Output",
    "Process",
    "ProcessInfo",
    "SQLiteDatabaseEngine",
    "Sandbox",
    "SandboxAlias",
    "SandboxBusyError",
    "SandboxConfig",
    "SandboxError",
    "SandboxExecutionError",
    "SandboxFileError",
    "SandboxFiles",
    "SandboxInfo",
    "SandboxNotFoundError",
    "SandboxStatus",
    "SandboxTimeoutError",
    "SandboxUnavailableError",
    "SandboxUnsupportedError",
    "SandboxValueError",
    "Session",
    "SessionManager",
    "Stream",
    "TemplateInfo",
    "TemplateNotFoundError",
    "UserNotFoundError",
    "clean_shell_output",
    "collapse_repetitive",
    "contains_heredoc",
    "create_template",
    "doctor",
    "extract_dataclass_init_kwargs",
    "make_manager",
    "parse_sandbox_config",
    "parse_single_bash_heredoc",
    "remove_template",
    "resolve_cr",
    "smart_truncate_output",
    "strip_ansi",
    "templates",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cay.sandbox' has no attribute {name!r}")
    value = getattr(import_module(f"cay.sandbox.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
