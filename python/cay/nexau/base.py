# SPDX-License-Identifier: Apache-2.0
"""The base classes of sandboxes and managers.

BaseSandbox is the interface that agents use: commands, code and files.  A subclass adds a
backend (docs/nexau.md).  BaseSandboxManager starts, pauses, restores and stops the sandbox
of a session.  A subclass implements start(), stop(), pause() and is_running().  Each call
of start() is wrapped: it excludes other starts of the same session, uploads the assets,
and stores the sandbox and its arguments, so that ``instance`` can start it again.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import posixpath
import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from cay.errors import SandboxError, SandboxValueError
from cay.nexau.arguments import (
    AcceptsOldNames,
    AfterRun,
    TracksArguments,
    after_run_of,
)
from cay.nexau.results import (
    CodeExecutionResult,
    CodeLanguage,
    CommandResult,
    FileInfo,
    FileOperationResult,
    SandboxStatus,
)

logger = logging.getLogger(__name__)

BASH_TOOL_RESULTS_BASE_PATH = "/tmp/cay-results"
"""The parent of every output_dir, in a sandbox with a /tmp of its own."""


@dataclass(kw_only=True)
class BaseSandbox(metaclass=AcceptsOldNames):
    """A sandbox of any backend.

    Times are milliseconds: ``timeout=None`` is two minutes, 0 expires at once.  A failure
    is a result with a status other than SUCCESS; with ``raise_errors`` it is an
    exception.  Output is cleaned, and truncated in the middle if it is long;
    ``clean_output=False`` returns it unchanged.

    The fields are the state that is saved, and dataclasses.asdict() copies them.
    """

    sandbox_id: str | None = None
    envs: dict[str, str] = field(default_factory=lambda: {})
    """variables of every command"""
    work_dir: str | Path | None = field(default_factory=Path.cwd)
    """where commands and relative paths start; a str becomes a Path"""
    clean_output: bool = True
    """remove escape sequences, overwritten and repeated lines, and the middle of output
    longer than output_char_threshold"""
    output_char_threshold: int = 10_000
    truncate_head_chars: int = 5_000
    truncate_tail_chars: int = 5_000
    raise_errors: bool = False
    """raise ValueError, SandboxFileError and other SandboxErrors instead of results"""
    _background_tasks: dict[int, Any] = field(
        default_factory=lambda: {}, init=False, repr=False
    )

    @property
    def _work_dir(self) -> str:
        return str(self.work_dir)

    @_work_dir.setter
    def _work_dir(self, path: str) -> None:
        self.work_dir = Path(path)

    # --- Commands and code -------------------------------------------------------------

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
        """Runs a command with bash.  A background task is identified by its pid."""

    def execute_shell(
        self,
        command: str,
        timeout: int | None = None,
        cwd: str | None = None,
        user: str | None = None,
        envs: dict[str, str] | None = None,
        background: bool = False,
    ) -> CommandResult:
        """As execute_bash(), which gets only the arguments that were passed."""
        more: dict[str, Any] = {"cwd": cwd, "user": user, "envs": envs}
        if background:
            more["background"] = True
        given = {name: value for name, value in more.items() if value is not None}
        return self.execute_bash(command, timeout=timeout, **given)

    def get_background_task_status(self, pid: int) -> CommandResult:
        """Whether it runs, or its exit status, and its output so far."""
        return self._no_task(pid)

    def kill_background_task(self, pid: int) -> CommandResult:
        """Kills it with its descendants."""
        return self._no_task(pid)

    def list_background_tasks(self) -> dict[int, Any]:
        """The tasks by pid; each has at least a "command"."""
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
        """Runs code in a new interpreter.  An unknown language gives a result with the
        error_type "ValueError"."""

    # --- Files -------------------------------------------------------------------------

    @abstractmethod
    def read_file(
        self, file_path: str, encoding: str = "utf-8", binary: bool = False
    ) -> FileOperationResult:
        """The content of a file, as text or as bytes."""

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
        """Writes a file."""

    @abstractmethod
    def delete_file(self, file_path: str) -> FileOperationResult:
        """Deletes a file, a directory tree, or a link itself."""

    @abstractmethod
    def list_files(
        self, directory_path: str, recursive: bool = False, pattern: str | None = None
    ) -> list[FileInfo]:
        """The entries of a directory; SandboxFileError if it does not exist."""

    @abstractmethod
    def file_exists(self, file_path: str) -> bool:
        """Whether the path exists; SandboxError if the sandbox does not answer."""

    @abstractmethod
    def get_file_info(self, file_path: str) -> FileInfo:
        """Describes a path; a missing one is no error."""

    @abstractmethod
    def create_directory(
        self, directory_path: str, parents: bool = True, user: str | None = None
    ) -> bool:
        """Creates a directory; True, also if it exists, or SandboxFileError."""

    @abstractmethod
    def edit_file(
        self, file_path: str, old_string: str, new_string: str
    ) -> FileOperationResult:
        """Replaces text that occurs once.  An empty old_string creates a file, an empty
        new_string removes the text."""

    @abstractmethod
    def glob(
        self, pattern: str, recursive: bool = True, user: str | None = None
    ) -> list[str]:
        """Paths that match, as glob.glob(); those below work_dir are relative to it."""

    @abstractmethod
    def upload_file(
        self, local_path: str, sandbox_path: str, create_directories: bool = True
    ) -> FileOperationResult:
        """Copies a file from this machine to the sandbox."""

    @abstractmethod
    def download_file(
        self, sandbox_path: str, local_path: str, create_directories: bool = True
    ) -> FileOperationResult:
        """Copies a file from the sandbox to this machine."""

    @abstractmethod
    def upload_directory(self, local_path: str, sandbox_path: str) -> bool:
        """Copies the content of a directory; True, or SandboxFileError."""

    @abstractmethod
    def download_directory(self, sandbox_path: str, local_path: str) -> bool:
        """Copies the content of a directory; True, or SandboxFileError."""

    # --- Helpers for tools -------------------------------------------------------------

    def get_temp_dir(self) -> str:
        return "/tmp"

    def get_bash_tool_results_base_path(self) -> str:
        """The parent of the directories in output_dir."""
        return self.join_path(self.get_temp_dir(), "cay-results")

    def get_tool_output_dir(self) -> str:
        """A directory for the files of tools."""
        return self.join_path(self.get_temp_dir(), "cay_tool_outputs")

    def join_path(self, base: str | Path, *parts: str) -> str:
        return posixpath.join(str(base), *parts)

    def to_shell_path(self, path: str) -> str:
        """The path for the sandbox's shell."""
        return path

    def get_python_command(self) -> str:
        return "python3"

    def prepare_shell_command(self, command: str) -> str:
        """The command for bash: unchanged, since bash reads here-documents itself."""
        return command

    def scriptify_heredoc(self, command: str) -> str:
        return self.prepare_shell_command(command)

    def upload_skill(self, skill: Any) -> str:
        """Uploads the folder of a skill below work_dir; returns its path."""
        if self.work_dir is None:
            raise SandboxError("upload_skill() needs a work_dir", op="sandbox.upload_skill")
        name = os.path.basename(os.path.normpath(skill.folder))
        folder = self.join_path(self.work_dir, ".skills", name)
        self.create_directory(folder)
        self.upload_directory(str(skill.folder), folder)
        return folder

    def _merge_envs(self, envs: dict[str, str] | None = None) -> dict[str, str] | None:
        """The variables of the sandbox and of a call, which win; None if there are none."""
        return {**self.envs, **(envs or {})} or None

    def _no_task(self, pid: int) -> CommandResult:
        message = f"Background task not found: pid={pid}"
        return CommandResult(
            SandboxStatus.ERROR, stderr=message, exit_code=-1, error=message
        )

    @staticmethod
    def _detect_file_encoding(raw_data: bytes) -> str:
        """A guess by chardet, if it is installed and confident; else utf-8."""
        try:
            import chardet  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            return "utf-8"
        try:
            guess = chardet.detect(raw_data)
            if guess["encoding"] and guess["confidence"] > 0.7:
                return str(guess["encoding"])
        except Exception:
            pass  # only a guess
        return "utf-8"

    def __str__(self) -> str:
        return f"{type(self).__name__}: {self.sandbox_id} ({self.work_dir})"

    # Last in the class: it hides the type of the same name.
    def dict(self) -> dict[str, Any]:
        """The fields that the constructor takes, paths as str."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in values.items()
        }


# --- Managers -------------------------------------------------------------------------

TSandbox = TypeVar("TSandbox", bound=BaseSandbox)
R = TypeVar("R")

Asset = tuple[str, str]
"""A local directory or file, and its path in the sandbox."""


class SessionStore(Protocol):
    """The methods of a session manager that a manager uses."""

    async def get_session(self, *, user_id: str, session_id: str) -> Any:
        """An object with a ``sandbox_state``, or None."""

    async def update_session_sandbox(
        self, *, user_id: str, session_id: str, sandbox_state: dict[str, Any]
    ) -> Any: ...


# --- Coroutines in blocking code ------------------------------------------------------


def run_async_function_sync(function: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Runs a coroutine; in another thread if this one has a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(function())
    future: Future[R] = Future()
    _run_in_thread(future, lambda: asyncio.run(function())).join()
    return future.result()


def _run_in_thread(future: Future[R], call: Callable[[], R]) -> threading.Thread:
    """Runs a call in a thread that the interpreter waits for at exit."""

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="cay-manager")
    thread.start()
    return thread


_LOOP_ERRORS = (
    "bound to a different event loop",
    "Event loop is closed",
    "cannot be called from within a running event loop",
    "attached to a different loop",
)


def _run_sync(function: Callable[[], Coroutine[Any, Any, R]], what: str) -> R | None:
    """None if the session manager is bound to another event loop."""
    try:
        return run_async_function_sync(function)
    except RuntimeError as error:
        if not any(one in str(error) for one in _LOOP_ERRORS):
            raise
        logger.warning("the state of the sandbox was not %s: %s", what, error)
        return None


# --- One start at a time --------------------------------------------------------------

_locks: WeakValueDictionary[tuple[str, str], _Lock] = WeakValueDictionary()
_locks_lock = threading.Lock()


class _Lock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@contextmanager
def _session_lock(session_manager: Any, user_id: str, session_id: str) -> Iterator[None]:
    """Excludes other starts of the sandbox of this session.

    A session manager may have a lock for several processes.
    """
    lock = getattr(session_manager, "session_lock", None)
    if session_manager is None:
        yield
    elif lock is not None:
        with lock(user_id=user_id, session_id=session_id):
            yield
    else:
        with _locks_lock:
            own = _locks.setdefault((user_id, session_id), _Lock())
        with own.lock:
            yield


# --- The base class of managers -------------------------------------------------------


class _ManagerState(TracksArguments):
    """Attributes of a manager that are not fields, since they are not data."""

    start_future: Future[Any] | None
    _start_thread: threading.Thread | None
    pause_thread: threading.Thread | None
    _session_context: dict[str, Any]
    _assets: list[Asset]
    _assets_missing: bool
    """the sandbox runs, but the upload of the assets failed"""
    _lock: Any  # threading.RLock(), whose type has no name
    _starting: bool

    def __new__(cls, *_: Any, **given: Any) -> Any:
        self = super().__new__(cls, **given)
        self.start_future = self._start_thread = self.pause_thread = None
        self._session_context = {}
        self._assets = []
        self._assets_missing = False
        self._lock = threading.RLock()
        self._starting = False
        return self


def _wrapped(start: Callable[..., Any]) -> Callable[..., Any]:
    """A subclass's start() with the steps of every start around it."""

    @functools.wraps(start)
    def started(
        self: BaseSandboxManager[Any],
        session_manager: SessionStore | None,
        user_id: str,
        session_id: str,
        sandbox_config: Any = None,
    ) -> Any:
        call = functools.partial(
            start,
            self,
            session_manager=session_manager,
            user_id=user_id,
            session_id=session_id,
            sandbox_config={} if sandbox_config is None else sandbox_config,
        )
        with self._lock:
            if self._starting:
                return call()  # called with super()
            self._starting = True
            try:
                with self._exclusive(session_manager, user_id, session_id):
                    sandbox = call()
            finally:
                self._starting = False
            self.prepare_session_context(
                session_manager, user_id, session_id, sandbox_config
            )
            self._instance = sandbox
            self._upload_assets(sandbox)
            return sandbox

    return started


def _upload(sandbox: BaseSandbox, assets: list[Asset]) -> None:
    for local, remote in assets:
        if os.path.isdir(local):
            sandbox.upload_directory(local, remote)
        else:
            result = sandbox.upload_file(local, remote)
            if result.error:
                raise SandboxError(result.error, op="manager.upload", subject=local)


@dataclass(kw_only=True)
class BaseSandboxManager(_ManagerState, Generic[TSandbox], metaclass=AcceptsOldNames):
    """Starts, pauses, restores and stops the sandbox of a session."""

    work_dir: str | Path | None = None
    """for sandboxes whose configuration does not set it; None: the default"""
    status_after_run: AfterRun = "pause"
    """what run_done() does, if the configuration does not set it"""
    _instance: TSandbox | None = field(default=None, init=False, repr=False)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "start" in cls.__dict__:
            setattr(cls, "start", _wrapped(cls.__dict__["start"]))

    @property
    def _work_dir(self) -> str:
        return str(self.work_dir or Path.cwd())

    # --- Methods of a subclass ---------------------------------------------------------

    @abstractmethod
    def start(
        self,
        session_manager: Any,
        user_id: str,
        session_id: str,
        sandbox_config: Any,
    ) -> TSandbox:
        """Restores the session's sandbox, or creates a new one if there is none or it
        does not answer.  Without a session manager it always creates one."""

    @abstractmethod
    def stop(self) -> bool:
        """Removes the sandbox; False if there is none or it cannot be removed."""

    @abstractmethod
    def pause(self) -> bool:
        """Pauses the sandbox until the next start; False if it cannot be paused."""

    @abstractmethod
    def is_running(self) -> bool:
        """Whether there is a sandbox, and it is not paused."""

    def on_run_complete(self) -> None:
        """Called at the end of a run, before the sandbox is paused or stopped."""

    def _exclusive(
        self, session_manager: Any, user_id: str, session_id: str
    ) -> AbstractContextManager[None]:
        """Excludes other starts of the session, for one start."""
        return _session_lock(session_manager, user_id, session_id)

    def _restart(self) -> TSandbox:
        """Starts the sandbox again after ``instance`` found it not running."""
        context = dict(self._session_context)
        context.pop("upload_assets")
        return self.start(**context)

    # --- The same for every backend ----------------------------------------------------

    @property
    def session_context(self) -> dict[str, Any]:
        """The arguments of the last, or the next, start."""
        return self._session_context

    @property
    def instance(self) -> TSandbox | None:
        """The sandbox; starts or resumes it if it does not run."""
        self._wait_for_start()
        with self._lock:
            if not self.is_running():
                if not self._session_context:
                    raise SandboxError(
                        "Sandbox is not running. Please run `start_no_wait` first.",
                        op="manager.instance",
                    )
                logger.info("the sandbox is not running; starting it")
                self._instance = self._restart()
            elif self._assets_missing and self._instance is not None:
                self._upload_assets(self._instance)
            return self._instance

    def _upload_assets(self, sandbox: TSandbox) -> None:
        """Uploads the assets; after a failure, the next use of ``instance`` retries."""
        self._assets_missing = True
        _upload(sandbox, self._assets)
        self._assets_missing = False

    def _wait_for_start(self) -> None:
        """Raises the error of a failed start, once; then ``instance`` starts again."""
        future = self._join_start()
        if future is None:
            return
        if self.start_future is future:
            self.start_future = None
        future.result()

    def _join_start(self) -> Future[Any] | None:
        """Waits for a start in another thread."""
        future = self.start_future
        if future is None or threading.current_thread() is self._start_thread:
            return None
        wait([future])
        return future

    def prepare_session_context(
        self,
        session_manager: SessionStore | None,
        user_id: str,
        session_id: str,
        sandbox_config: Any = None,
        upload_assets: list[Asset] | None = None,
    ) -> None:
        """Stores the arguments for start_sync() or ``instance``; ``upload_assets``
        replaces all assets."""
        if upload_assets is not None:
            self._assets = list(upload_assets)
        self._session_context = {
            "session_manager": session_manager,
            "user_id": user_id,
            "session_id": session_id,
            "sandbox_config": sandbox_config,
            "upload_assets": self._assets,
        }

    def start_sync(self) -> TSandbox | None:
        """Starts the prepared sandbox, unless it runs."""
        with self._lock:
            if self._instance is not None and self.is_running():
                if self._assets_missing:
                    self._upload_assets(self._instance)
                return self._instance
            if not self._session_context:
                logger.warning("no sandbox is started: call prepare_session_context() first")
                return None
            self._instance = self._restart()
            return self._instance

    def start_no_wait(
        self,
        session_manager: SessionStore | None,
        user_id: str,
        session_id: str,
        sandbox_config: Any = None,
        upload_assets: list[Asset] | None = None,
    ) -> Future[TSandbox]:
        """Starts in a thread; ``instance`` and the future wait for it."""
        self.prepare_session_context(
            session_manager, user_id, session_id, sandbox_config, upload_assets
        )
        future: Future[TSandbox] = Future()
        self.start_future = future

        def start() -> TSandbox:
            self._start_thread = threading.current_thread()
            return self.start(session_manager, user_id, session_id, sandbox_config)

        _run_in_thread(future, start)
        return future

    def pause_no_wait(self) -> threading.Thread:
        """Pauses in a thread."""
        self.pause_thread = _run_in_thread(Future(), self.pause)
        return self.pause_thread

    def add_upload_assets(self, assets: list[Asset]) -> None:
        """Adds directories and files to upload on every start, and now if it runs."""
        with self._lock:
            self._assets.extend(assets)
            if self._instance is not None and self.is_running():
                _upload(self._instance, assets)

    def run_done(self) -> bool:
        """Ends a run: pauses or stops the sandbox, or leaves it running."""
        self.on_run_complete()
        after = self._after_run() or self.status_after_run
        if after == "pause":
            return self.pause()
        return self.stop() if after == "stop" else True

    def _after_run(self) -> str | None:
        """The configured end of a run: pause, stop, none, or None if not set."""
        return after_run_of(self._session_context.get("sandbox_config"))

    # --- State -------------------------------------------------------------------------

    def persist_sandbox_state(
        self,
        session_manager: SessionStore | None,
        user_id: str,
        session_id: str,
        sandbox: BaseSandbox,
    ) -> None:
        """Saves the state of the sandbox with the session."""
        if session_manager is not None:
            state = self._state_of(sandbox)
            self._save(session_manager, user_id, session_id, state)

    @staticmethod
    def _state_of(sandbox: BaseSandbox) -> dict[str, Any]:
        """Has the working directory under both names; NexAU's document has ``_work_dir``."""
        state = {**sandbox.dict(), "sandbox_type": type(sandbox).__name__}
        if state.get("work_dir") is not None:
            state["_work_dir"] = state["work_dir"]
        _check_json(state)
        return state

    @staticmethod
    def _save(
        session_manager: SessionStore,
        user_id: str,
        session_id: str,
        state: dict[str, Any],
    ) -> None:
        _run_sync(
            lambda: session_manager.update_session_sandbox(
                user_id=user_id, session_id=session_id, sandbox_state=state
            ),
            "saved",
        )

    def load_sandbox_state(
        self, session_manager: SessionStore | None, user_id: str, session_id: str
    ) -> dict[str, Any] | None:
        """The saved state, or None."""
        if session_manager is None:
            return None
        session = _run_sync(
            lambda: session_manager.get_session(user_id=user_id, session_id=session_id),
            "loaded",
        )
        state = None if session is None else session.sandbox_state
        return dict(state) if state else None


def _check_json(state: dict[str, Any]) -> None:
    for name, value in state.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise SandboxValueError(
                f"cannot save the field: {error}",
                op="manager.persist",
                subject=name,
                hint="use types that JSON has, or mark the field with field(init=False)",
            ) from None
