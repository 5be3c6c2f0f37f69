# SPDX-License-Identifier: Apache-2.0
"""A backend of one's own, in Python: a folder of this machine, and commands that run in
it.  Nothing is isolated; it is here to show what there is to write.

    from cay.nexau import Agent, AgentConfig
    import folder

    agent = Agent(config=AgentConfig.from_yaml("folder.yaml"))
"""

from __future__ import annotations

import fnmatch
import glob
import os
import shutil
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cay.nexau import (
    BaseSandbox,
    BaseSandboxManager,
    CodeExecutionResult,
    CodeLanguage,
    CommandResult,
    FileInfo,
    FileOperationResult,
    SandboxAlias,
    SandboxFileError,
    SandboxStatus,
)

SUCCESS, ERROR = SandboxStatus.SUCCESS, SandboxStatus.ERROR


class FolderOperations(BaseSandbox):
    """The methods that BaseSandbox requires; sandbox_id is the folder."""

    def _host(self, path: str) -> Path:
        return Path(str(self.sandbox_id), path)

    def execute_bash(
        self,
        command: str,
        timeout: int | None = None,
        cwd: str | None = None,
        user: str | None = None,
        envs: dict[str, str] | None = None,
        background: bool = False,
    ) -> CommandResult:
        if user is not None or background:
            return CommandResult(ERROR, exit_code=-1, error="not supported")
        started = time.monotonic()
        try:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self._host(cwd or ""),
                env={**os.environ, **(self._merge_envs(envs) or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=120 if timeout is None else timeout / 1000,
                check=False,
            )
        except subprocess.TimeoutExpired:
            late = f"Command timed out after {timeout}ms"
            return CommandResult(SandboxStatus.TIMEOUT, exit_code=-1, error=late)
        failed = f"Command failed with exit code {done.returncode}"
        return CommandResult(
            ERROR if done.returncode else SUCCESS,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
            done.returncode,
            int((time.monotonic() - started) * 1000),
            error=failed if done.returncode else None,
        )

    def execute_code(
        self,
        code: str,
        language: CodeLanguage | str,
        timeout: int | None = None,
        user: str | None = None,
        envs: dict[str, str] | None = None,
    ) -> CodeExecutionResult:
        if language not in (CodeLanguage.PYTHON, "python"):
            return CodeExecutionResult(
                ERROR,
                CodeLanguage.PYTHON,
                error_type="ValueError",
                error_value=f"Unsupported language: {language}.",
            )
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(code)
            file.flush()
            result = self.execute_bash(f"python3 {file.name}", timeout, envs=envs)
        outputs = [("stdout", result.stdout), ("stderr", result.stderr)]
        return CodeExecutionResult(
            result.status,
            CodeLanguage.PYTHON,
            outputs=[{"type": name, "text": text} for name, text in outputs if text],
            error_type=None if result.status == SUCCESS else "ExecutionError",
            error_value=result.error,
        )

    def read_file(
        self, file_path: str, encoding: str = "utf-8", binary: bool = False
    ) -> FileOperationResult:
        try:
            data = self._host(file_path).read_bytes()
            content = data if binary else data.decode(encoding)
        except (OSError, UnicodeError) as error:
            return FileOperationResult(ERROR, file_path, error=str(error))
        return FileOperationResult(SUCCESS, file_path, content, len(data))

    def write_file(
        self,
        file_path: str,
        content: str | bytes,
        encoding: str = "utf-8",
        binary: bool = False,
        create_directories: bool = True,
        user: str | None = None,
    ) -> FileOperationResult:
        path = self._host(file_path)
        data = content.encode(encoding) if isinstance(content, str) else content
        try:
            if create_directories:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            return FileOperationResult(ERROR, file_path, error=str(error))
        return FileOperationResult(SUCCESS, file_path, size=len(data))

    def delete_file(self, file_path: str) -> FileOperationResult:
        path = self._host(file_path)
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except OSError as error:
            return FileOperationResult(ERROR, file_path, error=str(error))
        return FileOperationResult(SUCCESS, file_path)

    def list_files(
        self, directory_path: str, recursive: bool = False, pattern: str | None = None
    ) -> list[FileInfo]:
        top = self._host(directory_path)
        if not top.is_dir():
            raise SandboxFileError(f"Failed to list files: no directory {directory_path}")
        found = top.rglob("*") if recursive else top.iterdir()
        names = [path for path in found if fnmatch.fnmatch(path.name, pattern or "*")]
        return [self.get_file_info(str(path)) for path in sorted(names)]

    def file_exists(self, file_path: str) -> bool:
        return self._host(file_path).exists()

    def get_file_info(self, file_path: str) -> FileInfo:
        path = self._host(file_path)
        if not path.exists():
            return FileInfo(file_path)
        found = path.stat()
        return FileInfo(
            file_path,
            exists=True,
            is_file=path.is_file(),
            is_directory=path.is_dir(),
            size=found.st_size,
            mode=found.st_mode,
            permissions=stat.filemode(found.st_mode)[1:],
            modified_time=f"{datetime.fromtimestamp(found.st_mtime):%Y-%m-%d %H:%M:%S}",
            symlink_target=os.readlink(path) if path.is_symlink() else None,
            readable=os.access(path, os.R_OK),
            writable=os.access(path, os.W_OK),
            encoding="utf-8" if path.is_file() else None,
        )

    def create_directory(
        self, directory_path: str, parents: bool = True, user: str | None = None
    ) -> bool:
        try:
            self._host(directory_path).mkdir(parents=parents, exist_ok=True)
        except OSError as error:
            raise SandboxFileError(f"Failed to create directory: {error}") from None
        return True

    def edit_file(
        self, file_path: str, old_string: str, new_string: str
    ) -> FileOperationResult:
        before = self.read_file(file_path)
        if not old_string:
            if before.status == SUCCESS:
                return FileOperationResult(ERROR, file_path, error="File already exists")
            return self.write_file(file_path, new_string)
        if not isinstance(before.content, str) or before.content.count(old_string) != 1:
            missing = before.error or "String to replace is not there exactly once"
            return FileOperationResult(ERROR, file_path, error=missing)
        return self.write_file(file_path, before.content.replace(old_string, new_string))

    def glob(
        self, pattern: str, recursive: bool = True, user: str | None = None
    ) -> list[str]:
        return sorted(
            glob.glob(pattern, root_dir=str(self.sandbox_id), recursive=recursive)
        )

    def upload_file(
        self, local_path: str, sandbox_path: str, create_directories: bool = True
    ) -> FileOperationResult:
        return self.write_file(sandbox_path, Path(local_path).read_bytes())

    def download_file(
        self, sandbox_path: str, local_path: str, create_directories: bool = True
    ) -> FileOperationResult:
        shutil.copy2(self._host(sandbox_path), local_path)
        return FileOperationResult(SUCCESS, local_path)

    def upload_directory(self, local_path: str, sandbox_path: str) -> bool:
        shutil.copytree(local_path, self._host(sandbox_path), dirs_exist_ok=True)
        return True

    def download_directory(self, sandbox_path: str, local_path: str) -> bool:
        shutil.copytree(self._host(sandbox_path), local_path, dirs_exist_ok=True)
        return True


@dataclass(kw_only=True)
class FolderSandbox(FolderOperations):
    """The fields of a class, and of its manager, are the keys of its configuration."""

    greeting: str = "hello"


@dataclass(kw_only=True)
class FolderSandboxManager(BaseSandboxManager[FolderSandbox]):
    """A folder lives until it is stopped; there is nothing to pause."""

    parent: str | None = None

    def start(
        self,
        session_manager: Any,
        user_id: str,
        session_id: str,
        sandbox_config: Any = None,
    ) -> FolderSandbox:
        state = self.load_sandbox_state(session_manager, user_id, session_id)
        if state and os.path.isdir(state["sandbox_id"]):
            return FolderSandbox(**state)
        folder = tempfile.mkdtemp(prefix="folder-", dir=self.parent)
        sandbox = FolderSandbox(sandbox_id=folder, **sandbox_config)
        self.persist_sandbox_state(session_manager, user_id, session_id, sandbox)
        return sandbox

    def stop(self) -> bool:
        if self._instance is None:
            return False
        shutil.rmtree(str(self._instance.sandbox_id))
        self._instance = None
        return True

    def pause(self) -> bool:
        return self.is_running()

    def is_running(self) -> bool:
        return self._instance is not None and self._instance.file_exists("")


SandboxAlias["pyfolder"] = "FolderSandbox"
