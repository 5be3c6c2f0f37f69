# SPDX-License-Identifier: Apache-2.0
"""The results of BaseSandbox's methods.

An ordinary failure (a command that fails, a missing file) is a result with a status, not
an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class SandboxStatus(Enum):
    """The state of an operation."""

    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    TIMEOUT = "timeout"
    SUCCESS = "success"


class CodeLanguage(Enum):
    """The languages of execute_code(); the sandbox may lack an interpreter."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"
    BASH = "bash"
    SH = "sh"
    PERL = "perl"
    RUBY = "ruby"
    PHP = "php"
    LUA = "lua"
    R = "r"
    TYPESCRIPT = "typescript"
    JAVA = "java"
    GO = "go"
    C = "c"
    CPP = "c++"
    RUST = "rust"


class _Raw:
    """The bytes of output that is not UTF-8; no field, since the text is one."""

    _raw: tuple[bytes, bytes] | None = None


@dataclass
class CommandResult(_Raw):
    """The status and output of a command.

    ``exit_code`` is -N for signal N, and -1 while the command runs or if it did not start.
    With ``clean_output`` the text is cleaned; if it is ``truncated``, the original lengths
    are set, and ``stdout_file`` and ``stderr_file`` in the sandbox have the whole output.
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
        """With the bytes that are not UTF-8, for which ``stdout`` has U+FFFD."""
        return self.stdout.encode() if self._raw is None else self._raw[0]

    @property
    def stderr_bytes(self) -> bytes:
        return self.stderr.encode() if self._raw is None else self._raw[1]


@dataclass
class CodeExecutionResult(_Raw):
    """The status and output of code; ``outputs`` has {"type": "stdout", "text": ...} and
    the same for stderr, unless empty.  If it is ``truncated``, the files have the whole
    output, as for a command."""

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
        """With the bytes that are not UTF-8, for which ``outputs`` has U+FFFD."""
        return self._text("stdout").encode() if self._raw is None else self._raw[0]

    @property
    def stderr_bytes(self) -> bytes:
        return self._text("stderr").encode() if self._raw is None else self._raw[1]


@dataclass
class FileInfo:
    """A path in the sandbox; one that does not exist is neither readable nor writable."""

    path: str
    exists: bool = False
    is_file: bool = False
    is_directory: bool = False
    size: int = 0
    mode: int | None = None
    """st_mode of stat(2), with the type"""
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
    """The status of an operation on a file; ``size`` is in bytes."""

    status: SandboxStatus
    file_path: str
    content: str | bytes | bytearray | None = None
    size: int = 0
    error: str | None = None
    truncated: bool = False
