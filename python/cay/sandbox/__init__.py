# SPDX-License-Identifier: Apache-2.0
"""Sandboxes: run anything on this machine, fast and confined.

    from cay import Sandbox

    with Sandbox.create(memory="512M") as sandbox:
        sandbox.files.write("hello.py", "print(6 * 7)")
        print(sandbox.exec(["python3", "hello.py"], timeout=10).stdout)

``AsyncSandbox`` is the same for asyncio and trio.
"""

from __future__ import annotations

from cay.sandbox.aio import AsyncFiles, AsyncProcess, AsyncSandbox
from cay.sandbox.errors import (
    SandboxBusyError,
    SandboxError,
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
    TemplateInfo,
)
from cay.sandbox.sandbox import Sandbox
from cay.sandbox.host import create_template, doctor, remove_template, templates

__all__ = [
    "AsyncFiles",
    "AsyncProcess",
    "AsyncSandbox",
    "Bind",
    "Check",
    "ExecResult",
    "Output",
    "Process",
    "ProcessInfo",
    "Sandbox",
    "SandboxBusyError",
    "SandboxError",
    "SandboxFiles",
    "SandboxInfo",
    "SandboxNotFoundError",
    "SandboxTimeoutError",
    "SandboxUnavailableError",
    "SandboxUnsupportedError",
    "SandboxValueError",
    "TemplateInfo",
    "TemplateNotFoundError",
    "UserNotFoundError",
    "create_template",
    "doctor",
    "remove_template",
    "templates",
]
