# SPDX-License-Identifier: Apache-2.0
"""What BaseSandbox's methods return.

A failure that was to be expected (a command that fails, a file that is not there) is a
result with a status, not an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = [
    "CodeExecutionResult",
    "CodeLanguage",
    "CommandResult",
    "FileInfo",
    "FileOperationResult",
    "SandboxStatus",
]


class SandboxStatus(Enum):
    """How an operation ended, or that it has not."""

    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    TIMEOUT = "timeout"
    SUCCESS = "success"


class CodeLanguage(Enum):
    """What execute_code() knows; whether it is installed is up to the sandbox."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"
    BASH = "bash"
    SH = "sh"
    PERL = "perl"
    RUBY = "ruby"
    PHP = "php"
    LUA = "lua"
    R = "r"


class _Raw:
    """The bytes behind text that does not tell them; no field, for it is said already."""

    _raw: tuple[bytes, bytes] | None = None


@dataclass
class CommandResult(_Raw):
    """How a command ended, and what it wrote.

    ``exit_code`` is -N for signal N, and -1 while it runs or if nothing ran.  With
    ``clean_output`` the text is made fit to read; ``truncated`` says that some of it is
    missing, the original lengths how much there was, and ``stdout_file`` and
    ``stderr_file``, which are inside the sandbox, have all of it.
    """

    status: SandboxStatus
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    duration_ms: int = 0
    error: str | None = None
    truncated: bool = False
    original_stdout_length: int | None = None
    original_stderr_length: int | None = None
    background_pid: int | None = None
    output_dir: str | None = None
    stdout_file: str | None = None
    stderr_file: str | None = None

    @property
    def stdout_bytes(self) -> bytes:
        """The same with what is no UTF-8, for which ``stdout`` has U+FFFD."""
        return self.stdout.encode() if self._raw is None else self._raw[0]

    @property
    def stderr_bytes(self) -> bytes:
        return self.stderr.encode() if self._raw is None else self._raw[1]


@dataclass
class CodeExecutionResult(_Raw):
    """How a piece of code ended; ``outputs`` are {"type": "stdout", "text": ...} and the
    same of stderr, each if there was any.  What is ``truncated`` is whole in the files, as
    that of a command."""

    status: SandboxStatus
    language: CodeLanguage
    outputs: list[dict[str, Any]] | None = None
    error_type: str | None = None
    error_value: str | None = None
    traceback: list[str] | None = None
    duration_ms: int = 0
    truncated: bool = False
    output_dir: str | None = None
    stdout_file: str | None = None
    stderr_file: str | None = None

    def __post_init__(self) -> None:
        if self.outputs is None:
            self.outputs = []

    def _text(self, type: str) -> str:
        found = (one["text"] for one in self.outputs or () if one["type"] == type)
        return "".join(found)

    @property
    def stdout_bytes(self) -> bytes:
        """What it wrote, with what is no UTF-8, for which ``outputs`` has U+FFFD."""
        return self._text("stdout").encode() if self._raw is None else self._raw[0]

    @property
    def stderr_bytes(self) -> bytes:
        return self._text("stderr").encode() if self._raw is None else self._raw[1]


@dataclass
class FileInfo:
    """What is known about a name inside; one that does not exist is neither readable nor
    writable."""

    path: str
    exists: bool = False
    is_file: bool = False
    is_directory: bool = False
    size: int = 0
    mode: int | None = None
    """as stat(2) has it, with the type"""
    permissions: str | None = None
    """rwxr-xr-x"""
    modified_time: str | None = None
    """2026-01-31 23:59:59, local time"""
    symlink_target: str | None = None
    readable: bool = True
    writable: bool = True
    encoding: str | None = None
    """of a file: utf-8, utf-16, latin-1 or binary"""


@dataclass
class FileOperationResult:
    """How an operation on a file ended; ``size`` is in bytes."""

    status: SandboxStatus
    file_path: str
    content: str | bytes | bytearray | None = None
    size: int = 0
    error: str | None = None
    truncated: bool = False
