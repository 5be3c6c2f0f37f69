# SPDX-License-Identifier: Apache-2.0
"""BaseSandbox for libcay's backends: include/cay/agent.h with NexAU's results and
messages."""

from __future__ import annotations

import base64
import logging
import os
import posixpath
import re
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, sizeof
from dataclasses import dataclass, field
from datetime import datetime
from glob import escape
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from cay import _c
from cay.errors import (
    NoMatchError,
    SandboxError,
    SandboxExecutionError,
    SandboxExistsError,
    SandboxFileError,
    SandboxFileNotFoundError,
    SandboxNotFoundError,
    SandboxNotTextError,
    SandboxPermissionError,
    SandboxTimeoutError,
    SandboxUnavailableError,
    SandboxValueError,
    UserNotFoundError,
)
from cay.nexau.config import E2B_DEFAULT_WORK_DIR, local_work_dir
from cay.nexau.connection import ConnectedSandbox
from cay.nexau.results import (
    CodeExecutionResult,
    CodeLanguage,
    CommandResult,
    FileInfo,
    FileOperationResult,
    SandboxStatus,
)
from cay.nexau.shell import smart_truncate_output
from cay.sandbox.code import Call, Result
from cay.sandbox.config import Config
from cay.sandbox.event_loop import interruptibly
from cay.sandbox.options import environment, optional, text

logger = logging.getLogger(__name__)

_STATUS = {number: SandboxStatus(name) for number, name in _c.STATUSES.items()}
_SUCCESS, _ERROR = SandboxStatus.SUCCESS, SandboxStatus.ERROR
_EXECUTION_STATUS = {
    "success": _SUCCESS,
    "error": _ERROR,
    "timeout": SandboxStatus.TIMEOUT,
    "interrupted": _ERROR,
    "lost": _ERROR,
}
_DEFAULT_MS = 120_000
_NOT_STARTED = next(n for n, name in _c.CAUSES.items() if name == "not-started")

R = TypeVar("R", CommandResult, CodeExecutionResult, FileOperationResult)


def _timeout(milliseconds: int | None) -> int:
    """The timeout for C, where 0 is the default."""
    if milliseconds is None:
        return 0
    if milliseconds < 0:
        raise SandboxValueError(
            f"invalid timeout {milliseconds}",
            op="agent.timeout",
            subject="timeout",
            hint="pass milliseconds, 0 or more, or None for two minutes",
        )
    return min(int(milliseconds), _MOST_MS) or _c.TIMEOUT_AT_ONCE


_MOST_MS = 2**62  # larger values overflow in C
_MOST_CHARS = 2**32 - 1


def _path(name: bytes | None) -> str | None:
    return None if name is None else _c.decode(name)


def _command_of(result: Any) -> CommandResult:
    out = _c.data(result.out, result.out_len)
    error = _c.data(result.error, result.error_len)
    command = CommandResult(
        status=_STATUS[result.status],
        stdout=out.decode("utf-8", "replace"),
        stderr=error.decode("utf-8", "replace"),
        exit_code=result.exit_code,
        duration_ms=result.duration_ms,
        error=result.message.decode("utf-8", "replace") or None,
        truncated=result.truncated,
        background_pid=result.background_pid or None,
        output_dir=_path(result.output_dir),
        stdout_file=_path(result.out_file),
        stderr_file=_path(result.error_file),
    )
    if result.truncated:
        command.original_stdout_length = result.original_out_len
        command.original_stderr_length = result.original_error_len
    if "\ufffd" in command.stdout or "\ufffd" in command.stderr:
        command._raw = (out, error)
    return command


def _time_of(seconds: int) -> str | None:
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
    except (OSError, OverflowError, ValueError):
        return None  # a program in the sandbox can set any time


def _info_of(info: Any, path: str) -> FileInfo:
    if not info.exists:
        return FileInfo(path, readable=False, writable=False)
    kind = _c.TYPES.get(info.stat.type)
    mode = info.stat.mode | _MODES.get(kind or "", 0)
    return FileInfo(
        path,
        exists=True,
        is_file=kind == "file",
        is_directory=kind == "directory",
        size=info.stat.bytes,
        mode=mode,
        permissions=stat.filemode(mode)[1:],
        modified_time=_time_of(info.stat.mtime_ns // 10**9),
        symlink_target=_path(info.link_target),
        readable=info.readable,
        writable=info.writable,
        encoding=info.encoding.decode() or None,
    )


_MODES = {"file": stat.S_IFREG, "directory": stat.S_IFDIR, "link": stat.S_IFLNK}


def _output_of(value: Result) -> dict[str, Any]:
    """A value as JSON has it: pictures are base64."""
    parts = {
        mime: base64.b64encode(part).decode() if isinstance(part, bytes) else part
        for mime, part in value.parts.items()
    }
    return {"type": "result", "text": value.text or "", "parts": parts}


@dataclass(kw_only=True)
class BackendSandbox(ConnectedSandbox):
    """A sandbox of any backend in libcay, including those in a shared object (the key
    ``library``)."""

    # --- Results and exceptions --------------------------------------------------------

    def _checked(self, result: R, error: SandboxError | None = None) -> R:
        """The result; with raise_errors, a failure raises its exception."""
        if not self.raise_errors or result.status in (
            SandboxStatus.SUCCESS,
            SandboxStatus.RUNNING,
            SandboxStatus.STOPPED,
        ):
            return result
        if error is None:
            error = _exception_of(result)
        error.result = result
        raise error

    def _try_command(self, call: Callable[[], CommandResult]) -> CommandResult:
        try:
            result = call()
        except UserNotFoundError:
            raise  # a ValueError: an error of the caller
        except SandboxError as error:
            failed = CommandResult(
                _ERROR, exit_code=-1, error=f"Execution failed: {error}"
            )
            return self._checked(failed, error)
        return self._checked(result)

    def _try_file(
        self,
        what: str,
        path: str,
        call: Callable[[], FileOperationResult],
        names: dict[str, str] | None = None,
    ) -> FileOperationResult:
        """``what`` is the operation for the message: "read file"."""
        self._connected()
        try:
            return call()
        except UserNotFoundError:
            raise
        except SandboxError as error:
            _restate(error, what, path, names)
            failed = FileOperationResult(_ERROR, path, error=error.message)
            return self._checked(failed, error)

    # --- Commands and code -------------------------------------------------------------

    def _options(
        self,
        timeout: int | None = None,
        cwd: str | None = None,
        user: str | None = None,
        envs: dict[str, str] | None = None,
        background: bool = False,
        keep: bool = False,
    ) -> Any:
        flags = _c.COMMAND_BACKGROUND if background else 0
        flags |= _c.COMMAND_KEEP if keep else 0
        if self.clean_output:
            flags |= _c.COMMAND_CLEAN
        merged = self._merge_envs(envs)
        return _c.CommandOptions(
            size=sizeof(_c.CommandOptions),
            flags=flags,
            timeout_ms=_timeout(timeout),
            cwd=optional(self._absolute(cwd or ""), "cwd"),
            user=optional(user, "user"),
            env=environment(merged, "envs"),
            threshold_chars=min(self.output_char_threshold, _MOST_CHARS),
            head_chars=min(self.truncate_head_chars, _MOST_CHARS),
            tail_chars=min(self.truncate_tail_chars, _MOST_CHARS),
        )

    def _run(
        self, function: Any, *arguments: Any, user: str | None = None
    ) -> CommandResult:
        result = _c.CommandResult()
        self._call(function, *arguments, byref(result))
        try:
            if user is not None and result.cause == _NOT_STARTED:
                self._need_user(user)
            return _command_of(result)
        finally:
            _c.command_done(byref(result))

    def execute_bash(
        self,
        command: str,
        timeout: int | None = None,
        cwd: str | None = None,
        user: str | None = None,
        envs: dict[str, str] | None = None,
        background: bool = False,
    ) -> CommandResult:
        return self.execute_shell(
            command,
            timeout=timeout,
            cwd=cwd,
            user=user,
            envs=envs,
            background=background,
        )

    def execute_shell(
        self,
        command: str,
        timeout: int | None = None,
        cwd: str | None = None,
        user: str | None = None,
        envs: dict[str, str] | None = None,
        background: bool = False,
    ) -> CommandResult:
        """Runs a command with bash; its text and output are stored in files in output_dir,
        in the sandbox.  A background task outlives this process; any object of this
        sandbox can pass its pid to get_background_task_status().  An unknown user raises
        UserNotFoundError, which is a ValueError."""
        self._connected()

        def call() -> CommandResult:
            options = self._options(timeout, cwd, user, envs, background, keep=True)
            what = text(command, "command")
            try:
                return interruptibly(
                    lambda: self._run(
                        _c.execute_bash, what, byref(options), user=user
                    )
                )
            except SandboxPermissionError:
                if user is not None:  # some servers report an unknown user so
                    self._need_user(user)
                raise

        result = self._try_command(call)
        if background and result.background_pid is not None:
            result.stdout = f"Background task started (pid: {result.background_pid})"
            if result.output_dir:
                result.stdout += f"\nOutput will be saved to {result.output_dir}/"
            self._background_tasks[result.background_pid] = {
                "command": command,
                "start_time": time.time(),
                "finished": False,
                "exit_code": -1,
                "std_output_dir": result.output_dir,
            }
        return result

    def get_background_task_status(self, pid: int) -> CommandResult:
        return self._task(pid, _c.background_status, byref(self._options()))

    def kill_background_task(self, pid: int) -> CommandResult:
        result = self._task(pid, _c.background_kill)
        if result.status != _ERROR:
            self._background_tasks.pop(pid, None)
            result.status, result.exit_code, result.error = _SUCCESS, 0, None
            result.stdout = f"Background task (pid={pid}) killed successfully"
        return result

    def _task(self, pid: int, function: Any, *arguments: Any) -> CommandResult:
        self._connected()

        def call() -> CommandResult:
            try:
                return self._run(function, pid, *arguments)
            except (SandboxNotFoundError, SandboxFileNotFoundError):
                self.state()  # raises if it is the sandbox that does not exist
                return self._no_task(pid)

        return self._try_command(call)

    def list_background_tasks(self) -> dict[int, Any]:
        with self._borrow() as handle:
            infos = _c.listed(_c.process_list, _c.ProcessInfo, handle)
        tasks = self._background_tasks
        for task in tasks.values():
            task["finished"] = True  # unless it is in the list
        for info in infos:
            if info.is_background:
                task = tasks.setdefault(info.pid, {"command": _c.decode(info.command)})
                task.update(
                    start_time=info.started_ms / 1000,
                    finished=info.has_ended,
                    exit_code=info.exit_code if info.has_ended else -1,
                )
        return tasks

    def execute_code(
        self,
        code: str,
        language: CodeLanguage | str,
        timeout: int | None = None,
        user: str | None = None,
        envs: dict[str, str] | None = None,
        *,
        keep_state: bool = False,
    ) -> CodeExecutionResult:
        """Runs code in a new interpreter, as in NexAU.  With ``keep_state`` the interpreter
        and its variables stay for the next such call, of any object of this sandbox;
        ``outputs`` then also has values, as {"type": "result", "text": ..., "parts": ...},
        and the exception is in ``error_type``, ``error_value`` and ``traceback``."""
        self._connected()
        name = language.value if isinstance(language, CodeLanguage) else language
        try:
            if keep_state:
                result = self._code_in_context(code, name.lower(), timeout, user, envs)
            else:
                options = self._options(timeout, None, user, envs)
                result = interruptibly(lambda: self._code(code, name.lower(), options))
        except SandboxError as error:
            failed = CodeExecutionResult(
                _ERROR,
                _language(name),
                error_type="ExecutionError",
                error_value=str(error),
            )
            return self._checked(failed, error)
        return self._checked(result)

    def _code(self, code: str, name: str, options: Any) -> CodeExecutionResult:
        result = _c.CodeResult()
        content = code.encode("utf-8", "surrogateescape")
        self._call(
            _c.execute_code,
            _c.address(content),
            len(content),
            text(name, "language"),
            byref(options),
            byref(result),
        )
        try:
            command = _command_of(result.command)
            outputs = [("stdout", command.stdout), ("stderr", command.stderr)]
            execution = CodeExecutionResult(
                _STATUS[result.status],
                _language(result.language.decode("utf-8", "replace")),
                outputs=[{"type": one, "text": output} for one, output in outputs if output],
                error_type=result.error_type.decode() or None,
                error_value=result.error_value.decode("utf-8", "replace") or None,
                traceback=[command.stderr] if command.stderr else None,
                duration_ms=command.duration_ms,
                truncated=command.truncated,
                output_dir=command.output_dir,
                stdout_file=command.stdout_file,
                stderr_file=command.stderr_file,
            )
            execution._raw = command._raw
            return execution
        finally:
            _c.code_done(byref(result))

    def _code_in_context(
        self,
        code: str,
        name: str,
        timeout: int | None,
        user: str | None,
        envs: dict[str, str] | None,
    ) -> CodeExecutionResult:
        _timeout(timeout)  # checks it
        milliseconds = _DEFAULT_MS if timeout is None else max(timeout, 1)
        begun = time.monotonic()
        call = Call(
            self._connected(),
            code,
            name,
            {"timeout": milliseconds / 1000, "env": self._merge_envs(envs), "user": user},
        )
        execution = call.run()
        if execution is None:
            assert call.failure is not None
            raise call.failure
        out, error, truncated = execution.stdout, execution.stderr, execution.dropped > 0
        if self.clean_output:
            out, error, was_cut, _, _ = smart_truncate_output(
                out,
                error,
                None,
                self.output_char_threshold,
                self.truncate_head_chars,
                self.truncate_tail_chars,
            )
            truncated = truncated or was_cut
        streams = [("stdout", out), ("stderr", error)]
        result = CodeExecutionResult(
            _EXECUTION_STATUS[execution.status],
            _language(execution.language),
            outputs=[{"type": one, "text": output} for one, output in streams if output],
            duration_ms=int((time.monotonic() - begun) * 1000),
            truncated=truncated,
        )
        assert result.outputs is not None
        result.outputs += [_output_of(value) for value in execution.results]
        if execution.error is not None:
            result.error_type = execution.error.name
            result.error_value = execution.error.value
            result.traceback = [execution.error.traceback or str(execution.error)]
        return result

    # --- Files -------------------------------------------------------------------------

    def _absolute(self, path: str) -> str | None:
        """The absolute path, if the start of relative paths is known."""
        if self.work_dir is None:
            return path or None
        return posixpath.join(str(self.work_dir), path) if path else str(self.work_dir)

    def _name(self, path: str) -> bytes:
        return text(self._absolute(path) or ".", "path")

    def read_file(
        self, file_path: str, encoding: str = "utf-8", binary: bool = False
    ) -> FileOperationResult:
        def call() -> FileOperationResult:
            data = self._read(file_path)
            content = data if binary else _decoded(data, encoding)
            return FileOperationResult(_SUCCESS, file_path, content, len(data))

        return self._try_file("read file", file_path, call)

    def _read(self, path: str) -> bytes:
        content = _c.Content()
        self._call(_c.read_file, None, self._name(path), byref(content))
        try:
            return _c.data(content.data, content.len)
        finally:
            _c.free(content.data)

    def write_file(
        self,
        file_path: str,
        content: str | bytes,
        encoding: str = "utf-8",
        binary: bool = False,
        create_directories: bool = True,
        user: str | None = None,
    ) -> FileOperationResult:
        def call() -> FileOperationResult:
            data = _content(content, encoding)
            self._need_parent(file_path, create_directories, user)
            name, c_user = self._name(file_path), optional(user, "user")
            self._call(_c.write_file, c_user, name, _c.address(data), len(data), 0)
            return FileOperationResult(_SUCCESS, file_path, size=len(data))

        return self._try_file("write file", file_path, call)

    def _need_parent(self, path: str, make: bool, user: str | None = None) -> None:
        parent = posixpath.dirname(path) or "."
        _need("Directory", make or self._exists(parent, user) != 0, parent)

    def delete_file(self, file_path: str) -> FileOperationResult:
        def call() -> FileOperationResult:
            self._call(_c.delete_file, None, self._name(file_path))
            return FileOperationResult(_SUCCESS, file_path)

        return self._try_file("delete file", file_path, call)

    def list_files(
        self, directory_path: str, recursive: bool = False, pattern: str | None = None
    ) -> list[FileInfo]:
        infos = _c.FileInfos()
        with _restated("list files", directory_path):
            self._call(
                _c.list_files,
                None,
                self._name(directory_path),
                recursive,
                optional(pattern, "pattern"),
                byref(infos),
            )
        try:
            listed = (infos.items[at] for at in range(infos.count))
            return [_info_of(info, _c.decode(info.path)) for info in listed]
        finally:
            _c.file_infos_done(byref(infos))

    def file_exists(self, file_path: str) -> bool:
        return self._exists(file_path) > 0

    def _exists(self, path: str, user: str | None = None) -> int:
        """1 if it exists, 0 if not, negative if the user may not see the path."""
        err, c_user = _c.Error(), optional(user, "user")
        with self._borrow() as handle:
            found = _c.file_exists(handle, c_user, self._name(path), byref(err))
        if found < 0:
            error = _c.error_of(err)
            if not isinstance(error, (SandboxPermissionError, SandboxValueError)):
                raise error  # a failure of the sandbox
        return int(found)

    def _need_user(self, user: str) -> None:
        """Raises UserNotFoundError: every existing user can see the root directory."""
        if self._exists("/", user) < 0:
            raise UserNotFoundError(
                "the sandbox has no such user",
                op="exec.user",
                subject=user,
                hint="use one of its /etc/passwd: root, user",
            )

    def get_file_info(self, file_path: str) -> FileInfo:
        info = _c.FileInfo()
        with _restated("get file info", file_path):
            self._call(_c.get_file_info, None, self._name(file_path), byref(info))
        try:
            return _info_of(info, file_path)
        finally:
            _c.file_info_done(byref(info))

    def create_directory(
        self, directory_path: str, parents: bool = True, user: str | None = None
    ) -> bool:
        with _restated("create directory", directory_path):
            self._need_parent(str(directory_path).rstrip("/"), parents, user)
            c_user, name = optional(user, "user"), self._name(directory_path)
            self._call(_c.create_directory, c_user, name, parents)
        return True

    def edit_file(
        self, file_path: str, old_string: str, new_string: str
    ) -> FileOperationResult:
        def call() -> FileOperationResult:
            self._edit(file_path, old_string, new_string)
            size = self.get_file_info(file_path).size
            return FileOperationResult(_SUCCESS, file_path, size=size)

        return self._try_file("edit file", file_path, call)

    def _edit(self, path: str, old_string: str, new_string: str) -> None:
        kind, name = c_int(), self._name(path)
        old, new = _encoded(old_string, "utf-8"), _encoded(new_string, "utf-8")
        self._call(
            _c.edit_file,
            None,
            name,
            _c.address(old),
            len(old),
            _c.address(new),
            len(new),
            byref(kind),
        )

    def glob(
        self, pattern: str, recursive: bool = True, user: str | None = None
    ) -> list[str]:
        found = _c.Strings()
        start = "" if self.work_dir is None else escape(str(self.work_dir))
        with _restated("glob", pattern):
            whole = text(posixpath.join(start, pattern), "pattern")
            c_user = optional(user, "user")
            self._call(_c.glob, c_user, whole, recursive, byref(found))
        try:
            paths = [_c.decode(found.items[at]) for at in range(found.count)]
        finally:
            _c.strings_done(byref(found))
        return sorted(self._from_work_dir(paths, c_user))

    def _from_work_dir(self, paths: list[str], user: bytes | None) -> list[str]:
        """Makes paths relative to work_dir; libcay's are relative to its own start."""
        if self.work_dir is None:
            return paths
        top = str(self.work_dir).rstrip("/") + "/"
        if not all(path.startswith("/") for path in paths):
            with self._borrow() as handle:
                start = self._start_of(handle, user) or top
            paths = [posixpath.normpath(posixpath.join(start, path)) for path in paths]
        return [path.removeprefix(top) if path + "/" != top else "." for path in paths]

    # --- Transfers ---------------------------------------------------------------------

    def _transfer(self, function: Any, source: bytes, target: bytes) -> int:
        moved = _c.Transfer()
        self._call(function, None, source, target, byref(moved))
        if moved.skipped:
            logger.warning(
                "skipped %d files below %s: special files, links that lead out, and "
                "files that cannot be read",
                moved.skipped,
                _c.decode(source),
            )
        return int(moved.bytes)

    def _names(self, local: str, remote: str) -> dict[str, str]:
        """From the paths in libcay's messages to the caller's spelling; libcay calls the
        local directory "d"."""
        local, remote = os.fspath(local), os.fspath(remote)
        return {"d": local, local: local, self._absolute(remote) or remote: remote}

    def upload_file(
        self, local_path: str, sandbox_path: str, create_directories: bool = True
    ) -> FileOperationResult:
        def call() -> FileOperationResult:
            _need("Source file", os.path.exists(local_path), local_path)
            self._need_parent(sandbox_path, create_directories)
            source, target = text(local_path, "local_path"), self._name(sandbox_path)
            size = self._transfer(_c.upload_file, source, target)
            return FileOperationResult(_SUCCESS, sandbox_path, size=size)

        names = self._names(local_path, sandbox_path)
        return self._try_file("upload file", sandbox_path, call, names)

    def download_file(
        self, sandbox_path: str, local_path: str, create_directories: bool = True
    ) -> FileOperationResult:
        def call() -> FileOperationResult:
            _need("Source file", self._exists(sandbox_path) != 0, sandbox_path)
            parent = os.path.dirname(local_path) or "."
            _need("Directory", create_directories or os.path.exists(parent), parent)
            source, target = self._name(sandbox_path), text(local_path, "local_path")
            size = self._transfer(_c.download_file, source, target)
            return FileOperationResult(_SUCCESS, local_path, size=size)

        names = self._names(local_path, sandbox_path)
        return self._try_file("download file", local_path, call, names)

    def upload_directory(self, local_path: str, sandbox_path: str) -> bool:
        """Copies the content into a directory and keeps the other files there."""
        names = self._names(local_path, sandbox_path)
        with _restated("upload directory", local_path, names):
            source, target = text(local_path, "local_path"), self._name(sandbox_path)
            self._transfer(_c.upload_directory, source, target)
        return True

    def download_directory(self, sandbox_path: str, local_path: str) -> bool:
        names = self._names(local_path, sandbox_path)
        with _restated("download directory", sandbox_path, names):
            source, target = self._name(sandbox_path), text(local_path, "local_path")
            self._transfer(_c.download_directory, source, target)
        return True


# --- Messages -------------------------------------------------------------------------


def _exception_of(result: Any) -> SandboxError:
    """The exception for a failed command or code."""
    if isinstance(result, CodeExecutionResult):
        message, kind = result.error_value, result.error_type
    else:
        message, kind = result.error, None
    cls: type[SandboxError] = SandboxExecutionError
    if result.status == SandboxStatus.TIMEOUT:
        cls = SandboxTimeoutError
    elif kind == "ValueError":
        cls = SandboxValueError
    return cls(message or "")


def _caller_path(subject: str, names: dict[str, str], path: str) -> str:
    """The path of a failure in the caller's spelling, if it is below one of these."""
    for known, spelled in names.items():
        if subject == known or subject.startswith(f"{known}/"):
            return spelled + subject[len(known) :]
    return path


def _restate(
    error: SandboxError, what: str, path: str, names: dict[str, str] | None = None
) -> None:
    """Gives the error NexAU's message, with the path in the caller's spelling."""
    hint = f" ({error.hint})" if error.hint else ""
    path = _caller_path(error.subject or "", names or {}, path)
    if error.op == "files.need":
        message = error.message
    elif isinstance(error, SandboxFileNotFoundError):
        message = f"File does not exist: {path}"
        if what == "edit file":
            message += ". Use CREATE to make it."
    elif what == "edit file" and isinstance(error, SandboxExistsError):
        message = f"File already exists: {path}. Use UPDATE to change it."
    elif isinstance(error, NoMatchError):
        message = f"{error.message}: {path}{hint}"
    else:
        message = f"Failed to {what}: {path}: {error.message}{hint}"
    error.restate(message)


@contextmanager
def _restated(what: str, path: str, names: dict[str, str] | None = None) -> Iterator[None]:
    """Restates errors of methods that return no result object."""
    try:
        yield
    except UserNotFoundError:
        raise
    except SandboxFileNotFoundError as error:
        missing = _caller_path(error.subject or "", names or {}, path)
        message = f"Directory does not exist: {missing}"
        error.restate(f"Failed to {what}: {error if error.op == 'files.need' else message}")
        raise
    except SandboxFileError as error:
        _restate(error, what, path, names)
        raise
    except SandboxError as error:
        raise SandboxFileError(f"Failed to {what}: {error}") from error


def _need(what: str, exists: bool, path: str) -> None:
    if not exists:
        raise SandboxFileNotFoundError(f"{what} does not exist: {path}", op="files.need")


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError) as error:
        raise SandboxNotTextError(str(error), op="files.read") from None


def _encoded(content: str, encoding: str) -> bytes:
    try:
        return content.encode(encoding)
    except (UnicodeError, LookupError) as error:
        raise SandboxNotTextError(str(error), op="files.write") from None


def _content(content: Any, encoding: str) -> bytes:
    if isinstance(content, str):
        return _encoded(content, encoding)
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    raise SandboxValueError(
        f"content must be str or bytes, not {type(content).__name__}",
        op="files.write",
        hint="pass str or bytes",
    )


def _language(name: str) -> CodeLanguage:
    try:
        return CodeLanguage(name.lower())
    except ValueError:
        return CodeLanguage.PYTHON


# --- The built-in backends ------------------------------------------------------------


@dataclass(kw_only=True)
class NativeSandbox(BackendSandbox):
    """A sandbox on this machine, isolated by the kernel.  Without a manager it is created
    on first use, and ends with this object."""

    backend: ClassVar[str] = "native"

    def _known_id(self) -> str | None:
        return _id_or_label(self)

    def _values_for_new(self) -> dict[str, Any]:
        return _ephemeral_values(self)


@dataclass(kw_only=True)
class LocalSandbox(BackendSandbox):
    """Commands and files on this machine, without isolation: for development only.
    Without a manager it is created on first use, and ends with this object."""

    backend: ClassVar[str] = "local"
    work_dir: str | Path | None = field(default_factory=local_work_dir)

    _warned: ClassVar[bool] = False

    def _open(self, config: Config, id: str | None) -> None:
        if not LocalSandbox._warned:
            LocalSandbox._warned = True
            warnings.warn(
                "LocalSandbox runs commands on this machine without isolation; "
                "NativeSandbox isolates them",
                stacklevel=2,
            )
        super()._open(config, id)

    def _known_id(self) -> str | None:
        return _id_or_label(self)

    def _values_for_new(self) -> dict[str, Any]:
        return _ephemeral_values(self)


_ID = re.compile(r"sb-[a-z0-9]{16}")


def _id_or_label(sandbox: BackendSandbox) -> str | None:
    """The sandbox_id, if it can be one of this machine; programs for NexAU's LocalSandbox
    choose any as a label of the object."""
    id = sandbox._own_id or sandbox.sandbox_id
    return id if id is not None and _ID.fullmatch(id) else None


def _ephemeral_values(sandbox: BackendSandbox) -> dict[str, Any]:
    values: dict[str, Any] = {"ephemeral": True}
    if sandbox.work_dir is not None:
        values["work_dir"] = str(sandbox.work_dir)
    if sandbox.envs:
        values["envs"] = sandbox.envs
    return values


@dataclass(kw_only=True)
class E2BSandbox(BackendSandbox):
    """A sandbox of E2B, or of a server with its protocol."""

    backend: ClassVar[str] = "e2b"
    work_dir: str | Path | None = Path(E2B_DEFAULT_WORK_DIR)

    @property
    def sandbox(self) -> Any:
        """The sandbox as an object of the package e2b, which only this property needs;
        None before the start."""
        if self._raw is None and self.sandbox_id is not None:
            self._raw = self._connect_raw()
        return self._raw

    @sandbox.setter
    def sandbox(self, raw: Any) -> None:
        self._raw, self.sandbox_id = raw, raw.sandbox_id

    def _connect_raw(self) -> Any:
        try:
            import e2b
        except ImportError as error:
            raise SandboxUnavailableError(
                "the package e2b is not installed",
                op="sandbox.open",
                hint="pip install e2b; only the attribute sandbox needs it",
            ) from error
        self._connected()
        known = {**self.config, **self._secrets}
        names = ("api_key", "api_url", "domain", "sandbox_url")
        given = {name: known[name] for name in names if known.get(name)}
        return e2b.Sandbox.connect(
            str(self.sandbox_id), timeout=known.get("timeout"), **given
        )
