# SPDX-License-Identifier: Apache-2.0
"""Sandboxes: run commands on this machine, fast and isolated.

    from cay import Sandbox

    with Sandbox.create(memory="512M") as sandbox:
        sandbox.files.write("hello.py", "print(6 * 7)")
        print(sandbox.exec(["python3", "hello.py"], timeout=10).stdout)

``AsyncSandbox`` is the same for asyncio and trio.  cay.nexau has another interface to
sandboxes of every backend, with managers and sessions.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from cay.errors import (
    SandboxBusyError,
    SandboxError,
    SandboxExistsError,
    SandboxFileError,
    SandboxNotFoundError,
    SandboxTimeoutError,
    SandboxUnavailableError,
    SandboxUnsupportedError,
    SandboxValueError,
    TemplateNotFoundError,
    UserNotFoundError,
)
from cay.sandbox.aio import AsyncFiles, AsyncProcess, AsyncSandbox
from cay.sandbox.checkpoint import Checkpoint, EndedProcess, Rollback
from cay.sandbox.code import (
    CodeError,
    Context,
    Execution,
    Logs,
    Result,
    SavedContext,
    SavedContexts,
)
from cay.sandbox.files import SandboxFiles
from cay.sandbox.host import create_template, doctor, remove_template, templates
from cay.sandbox.interpreter import AsyncCodeInterpreter, CodeInterpreter, run_code
from cay.sandbox.network import (
    NetworkAnswer,
    NetworkEvent,
    NetworkInfo,
    NetworkLimits,
    NetworkRule,
    explain_network,
)
from cay.sandbox.options import Bind, Secret
from cay.sandbox.pool import Pool, PoolStats
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
from cay.sandbox.template import BuildProgress, Template, build
from cay.sandbox.snapshot import Snapshot
from cay.sandbox.trial import Applied, Try
from cay.sandbox.volume import Volume
from cay.sandbox.warm import WarmInterpreter

__all__ = [
    "Applied",
    "AsyncCodeInterpreter",
    "AsyncFiles",
    "AsyncProcess",
    "AsyncSandbox",
    "Bind",
    "BuildProgress",
    "Check",
    "Checkpoint",
    "CodeError",
    "CodeInterpreter",
    "Context",
    "EndedProcess",
    "ExecResult",
    "Execution",
    "Logs",
    "NetworkAnswer",
    "NetworkEvent",
    "NetworkInfo",
    "NetworkLimits",
    "NetworkRule",
    "Output",
    "Pool",
    "PoolStats",
    "Process",
    "ProcessInfo",
    "Result",
    "Rollback",
    "Sandbox",
    "SandboxBusyError",
    "SandboxError",
    "SandboxExistsError",
    "SandboxFileError",
    "SandboxFiles",
    "SandboxInfo",
    "SandboxNotFoundError",
    "SandboxTimeoutError",
    "SandboxUnavailableError",
    "SandboxUnsupportedError",
    "SandboxValueError",
    "SavedContext",
    "SavedContexts",
    "Secret",
    "Snapshot",
    "Stream",
    "Template",
    "Try",
    "TemplateInfo",
    "TemplateNotFoundError",
    "UserNotFoundError",
    "Volume",
    "WarmInterpreter",
    "build",
    "create_template",
    "doctor",
    "explain_network",
    "remove_template",
    "run_code",
    "templates",
]


def __getattr__(name: str) -> Any:
    # Programs for 0.1.0 import NexAU's interface from here.
    if not name.startswith("_") and name in import_module("cay.nexau").__all__:
        warnings.warn(
            f"cay.sandbox.{name} has moved to cay.nexau", DeprecationWarning, stacklevel=2
        )
        return getattr(import_module("cay.nexau"), name)
    raise AttributeError(f"module 'cay.sandbox' has no attribute {name!r}")
