# SPDX-License-Identifier: Apache-2.0
"""The interface that agents see of any sandbox: commands, code and files.

Subclass BaseSandbox to bring a backend of your own (docs/nexau.md); cay.sandbox.backends
has those that are built in.
"""

from __future__ import annotations

import os
import posixpath
from abc import abstractmethod
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cay.sandbox.errors import SandboxError
from cay.sandbox.outcomes import (
    CodeExecutionResult,
    CodeLanguage,
    CommandResult,
    FileInfo,
    FileOperationResult,
    SandboxStatus,
)
from cay.sandbox.spelling import Spelled

__all__ = ["BASH_TOOL_RESULTS_BASE_PATH", "BaseSandbox"]

BASH_TOOL_RESULTS_BASE_PATH = "/tmp/cay-results"
"""how the path of every output_dir begins in a sandbox that has its own /tmp"""


@dataclass(kw_only=True)
class BaseSandbox(metaclass=Spelled):
    """A sandbox of any kind.

    Times are milliseconds: ``timeout=None`` is two minutes, 0 is over at once.  What goes
    wrong as things do is a result with a status other than SUCCESS; ``raise_errors``
    makes it an exception.  Output is cleaned and, if it is long, cut in its middle;
    ``clean_output=False`` returns all of it as it was written.

    Fields are data: they are what is saved of a sandbox, and dataclasses.asdict() copies
    them.
    """

    sandbox_id: str | None = None
    envs: dict[str, str] = field(default_factory=lambda: {})
    """for every command"""
    work_dir: str | Path | None = field(default_factory=Path.cwd)
    """where commands and relative paths start; a Path, however it was given"""
    clean_output: bool = True
    """take out escape sequences and what was overwritten or repeated, and cut the middle
    of what is over output_char_threshold"""
    output_char_threshold: int = 10_000
    truncate_head_chars: int = 5_000
    truncate_tail_chars: int = 5_000
    raise_errors: bool = False
    """ValueError, SandboxFileError and other SandboxErrors rather than results"""
    _background_tasks: dict[int, Any] = field(
        default_factory=lambda: {}, init=False, repr=False
    )

    @property
    def _work_dir(self) -> str:
        return str(self.work_dir)

    @_work_dir.setter
    def _work_dir(self, path: str) -> None:
        self.work_dir = Path(path)

    # --- Commands and code --------------------------------------------------------------

    @abstractmethod
    def execute_bash(
        self,
        command: str,
        timeout: int | None = None,
        cwd: str | None = None,
        user: str | None = None,
        envs: dict[str, str] | None = None,
        background: bool = False,
    ) -> CommandResult:
        """Runs a command for bash.  One in the background is known by its pid."""

    def execute_shell(
        self,
        command: str,
        timeout: int | None = None,
        cwd: str | None = None,
        user: str | None = None,
        envs: dict[str, str] | None = None,
        background: bool = False,
    ) -> CommandResult:
        """The same; a subclass need only have the parameters that it is called with."""
        more: dict[str, Any] = {"cwd": cwd, "user": user, "envs": envs}
        if background:
            more["background"] = True
        given = {name: value for name, value in more.items() if value is not None}
        return self.execute_bash(command, timeout=timeout, **given)

    def get_background_task_status(self, pid: int) -> CommandResult:
        """Whether it runs or how it ended, and what it has written so far."""
        return self._no_task(pid)

    def kill_background_task(self, pid: int) -> CommandResult:
        """Ends it, with all it started."""
        return self._no_task(pid)

    def list_background_tasks(self) -> dict[int, Any]:
        """By pid, what is known of each: at least its "command"."""
        return self._background_tasks

    @abstractmethod
    def execute_code(
        self,
        code: str,
        language: CodeLanguage | str,
        timeout: int | None = None,
        user: str | None = None,
        envs: dict[str, str] | None = None,
    ) -> CodeExecutionResult:
        """Runs code in a fresh interpreter.  One that is not known is an error_type of
        "ValueError"."""

    # --- Files --------------------------------------------------------------------------

    @abstractmethod
    def read_file(
        self, file_path: str, encoding: str = "utf-8", binary: bool = False
    ) -> FileOperationResult:
        """Its content, as text or as bytes."""

    @abstractmethod
    def write_file(
        self,
        file_path: str,
        content: str | bytes,
        encoding: str = "utf-8",
        binary: bool = False,
        create_directories: bool = True,
        user: str | None = None,
    ) -> FileOperationResult:
        """Makes the content that of the file."""

    @abstractmethod
    def delete_file(self, file_path: str) -> FileOperationResult:
        """Also a directory, with all in it; of a link the link."""

    @abstractmethod
    def list_files(
        self, directory_path: str, recursive: bool = False, pattern: str | None = None
    ) -> list[FileInfo]:
        """What is in a directory; SandboxFileError if there is none."""

    @abstractmethod
    def file_exists(self, file_path: str) -> bool:
        """Whether something is there; SandboxError if that cannot be known, for the
        sandbox does not answer."""

    @abstractmethod
    def get_file_info(self, file_path: str) -> FileInfo:
        """What is known about it; not existing is no error."""

    @abstractmethod
    def create_directory(
        self, directory_path: str, parents: bool = True, user: str | None = None
    ) -> bool:
        """True, also if it was there already; else SandboxFileError."""

    @abstractmethod
    def edit_file(
        self, file_path: str, old_string: str, new_string: str
    ) -> FileOperationResult:
        """Replaces text that is there once; old "" makes a new file, new "" takes the old
        text out."""

    @abstractmethod
    def glob(
        self, pattern: str, recursive: bool = True, user: str | None = None
    ) -> list[str]:
        """Names that match, as glob.glob() finds them, below work_dir relative to it."""

    @abstractmethod
    def upload_file(
        self, local_path: str, sandbox_path: str, create_directories: bool = True
    ) -> FileOperationResult:
        """From this machine into the sandbox."""

    @abstractmethod
    def download_file(
        self, sandbox_path: str, local_path: str, create_directories: bool = True
    ) -> FileOperationResult:
        """From the sandbox to this machine."""

    @abstractmethod
    def upload_directory(self, local_path: str, sandbox_path: str) -> bool:
        """All that is in it; True, or SandboxFileError."""

    @abstractmethod
    def download_directory(self, sandbox_path: str, local_path: str) -> bool:
        """All that is in it; True, or SandboxFileError."""

    # --- For programs that build on these -------------------------------------------------

    def get_temp_dir(self) -> str:
        return "/tmp"

    def get_bash_tool_results_base_path(self) -> str:
        """Where the directories that results name as output_dir begin."""
        return self.join_path(self.get_temp_dir(), "cay-results")

    def get_tool_output_dir(self) -> str:
        """For what tools have to put somewhere."""
        return self.join_path(self.get_temp_dir(), "cay_tool_outputs")

    def join_path(self, base: str | Path, *parts: str) -> str:
        return posixpath.join(str(base), *parts)

    def to_shell_path(self, path: str) -> str:
        """As the sandbox's shell spells it."""
        return path

    def get_python_command(self) -> str:
        return "python3"

    def prepare_shell_command(self, command: str) -> str:
        """What execute_bash() gives to bash, which reads here-documents itself."""
        return command

    def scriptify_heredoc(self, command: str) -> str:
        return self.prepare_shell_command(command)

    def upload_skill(self, skill: Any) -> str:
        """Puts the folder of a skill below work_dir; where it is then."""
        if self.work_dir is None:
            raise SandboxError("a skill needs a work_dir", op="sandbox.upload_skill")
        name = os.path.basename(os.path.normpath(skill.folder))
        folder = self.join_path(self.work_dir, ".skills", name)
        self.create_directory(folder)
        self.upload_directory(str(skill.folder), folder)
        return folder

    def _merge_envs(self, envs: dict[str, str] | None = None) -> dict[str, str] | None:
        """Those of a call over those of the sandbox; None if there are none."""
        return {**self.envs, **(envs or {})} or None

    def _no_task(self, pid: int) -> CommandResult:
        message = f"Background task not found: pid={pid}"
        return CommandResult(
            SandboxStatus.ERROR, stderr=message, exit_code=-1, error=message
        )

    @staticmethod
    def _detect_file_encoding(raw_data: bytes) -> str:
        """A guess, with chardet where that is installed and sure of itself."""
        try:
            import chardet  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            return "utf-8"
        try:
            guess = chardet.detect(raw_data)
            if guess["encoding"] and guess["confidence"] > 0.7:
                return str(guess["encoding"])
        except Exception:
            pass  # whatever it stumbles over, it is a guess
        return "utf-8"

    def __str__(self) -> str:
        return f"{type(self).__name__}: {self.sandbox_id} ({self.work_dir})"

    # Last, for it hides the type of the same name.
    def dict(self) -> dict[str, Any]:
        """Every field that the constructor takes, paths as text."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in values.items()
        }
