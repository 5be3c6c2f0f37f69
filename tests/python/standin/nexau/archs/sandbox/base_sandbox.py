# SPDX-License-Identifier: Apache-2.0
"""A stand-in for NexAU's module of this name, which cannot be installed everywhere: the
interface that cay.nexau subclasses, old (NEXAU_STANDIN=old) or new."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

OLD = os.environ.get("NEXAU_STANDIN") == "old"


class SandboxStatus(Enum):
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    TIMEOUT = "timeout"
    SUCCESS = "success"


class CodeLanguage(Enum):
    PYTHON = "python"


@dataclass
class CommandResult:
    status: SandboxStatus
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    duration_ms: int = 0
    error: str | None = None
    truncated: bool = False
    original_stdout_length: int | None = None
    original_stderr_length: int | None = None
    if not OLD:
        background_pid: int | None = None
        output_dir: str | None = None
        stdout_file: str | None = None
        stderr_file: str | None = None


@dataclass
class CodeExecutionResult:
    status: SandboxStatus
    language: CodeLanguage
    outputs: list[dict[str, Any]] | None = None
    error_type: str | None = None
    error_value: str | None = None
    traceback: list[str] | None = None
    duration_ms: int = 0
    truncated: bool = False


@dataclass
class FileInfo:
    path: str
    exists: bool = False
    is_file: bool = False
    is_directory: bool = False
    size: int = 0
    mode: int | None = None
    permissions: str | None = None
    modified_time: str | None = None
    symlink_target: str | None = None
    readable: bool = True
    writable: bool = True
    encoding: str | None = None


@dataclass
class FileOperationResult:
    status: SandboxStatus
    file_path: str
    content: str | bytes | bytearray | None = None
    size: int = 0
    error: str | None = None
    truncated: bool = False


@dataclass(kw_only=True)
class BaseSandbox(ABC):
    sandbox_id: str | None = None
    envs: dict[str, str] = field(default_factory=lambda: {})
    if OLD:
        _work_dir: str = field(default_factory=os.getcwd)

        @property
        def work_dir(self) -> Path:
            return Path(self._work_dir)

    else:
        work_dir: str | Path | None = None
    _background_tasks: dict[int, Any] = field(default_factory=lambda: {}, init=False)

    def dict(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.init}


def _asked_for(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError


for _name in (
    "execute_bash execute_code read_file write_file delete_file list_files file_exists "
    "get_file_info create_directory edit_file glob upload_file download_file "
    "upload_directory download_directory"
    + ("" if OLD else " get_temp_dir get_background_task_status kill_background_task")
).split():
    _method = abstractmethod(lambda self, *args, **kwargs: _asked_for(self))
    setattr(BaseSandbox, _name, _method)
    BaseSandbox.__abstractmethods__ |= {_name}  # type: ignore[attr-defined]

TSandbox = TypeVar("TSandbox", bound=BaseSandbox)


@dataclass(kw_only=True)
class BaseSandboxManager(ABC, Generic[TSandbox]):
    _session_context: dict[str, Any] = field(default_factory=lambda: {}, init=False)
    _instance: TSandbox | None = field(default=None, repr=False, init=False)

    @abstractmethod
    def start(
        self, session_manager: Any, user_id: str, session_id: str, sandbox_config: Any
    ) -> TSandbox: ...

    @abstractmethod
    def stop(self) -> bool: ...

    @abstractmethod
    def pause(self) -> bool: ...

    @abstractmethod
    def is_running(self) -> bool: ...


class SandboxError(Exception):
    pass


class SandboxTimeoutError(SandboxError):
    pass


class SandboxExecutionError(SandboxError):
    pass


class SandboxFileError(SandboxError):
    pass
