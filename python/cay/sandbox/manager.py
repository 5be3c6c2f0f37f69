# SPDX-License-Identifier: Apache-2.0
"""Managers: one session's sandbox, started, paused, restored and stopped.

A subclass says how in start(), stop(), pause() and is_running().  Whoever calls start(),
BaseSandboxManager is around it: it holds off everybody else who starts the same session,
uploads the assets, and remembers the sandbox and what it was started with, so that
``instance`` can start it again.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from cay.sandbox.base import BaseSandbox
from cay.sandbox.errors import SandboxError, SandboxValueError
from cay.sandbox.spelling import AfterRun, Given, Spelled, after_run_of

__all__ = [
    "BaseSandboxManager",
    "SessionStore",
    "TSandbox",
    "upload",
]

logger = logging.getLogger(__name__)

TSandbox = TypeVar("TSandbox", bound=BaseSandbox)
R = TypeVar("R")

Asset = tuple[str, str]
"""A directory or file here, and where it goes inside."""


class SessionStore(Protocol):
    """What a manager wants of a session manager; cay.sandbox.SessionManager is one."""

    async def get_session(self, *, user_id: str, session_id: str) -> Any:
        """Something with a ``sandbox_state``, or None."""

    async def update_session_sandbox(
        self, *, user_id: str, session_id: str, sandbox_state: dict[str, Any]
    ) -> Any: ...


# --- Async functions from code that is not --------------------------------------------------


def run_async_function_sync(function: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Its result; in a thread of its own if a loop runs in this one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(function())
    future: Future[R] = Future()
    _thread_for(future, lambda: asyncio.run(function())).join()
    return future.result()


def _thread_for(future: Future[R], call: Callable[[], R]) -> threading.Thread:
    """A thread that the interpreter waits for at its end."""

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="cay-manager")
    thread.start()
    return thread


_LOOPS = (
    "bound to a different event loop",
    "Event loop is closed",
    "cannot be called from within a running event loop",
    "attached to a different loop",
)


def _run_sync(function: Callable[[], Coroutine[Any, Any, R]], what: str) -> R | None:
    """Stores of others may be bound to a loop that is not ours to run."""
    try:
        return run_async_function_sync(function)
    except RuntimeError as error:
        if not any(sentence in str(error) for sentence in _LOOPS):
            raise
        logger.warning("the state of the sandbox is not %s: %s", what, error)
        return None


# --- One start at a time ----------------------------------------------------------------

_locks: WeakValueDictionary[tuple[str, str], _Lock] = WeakValueDictionary()
_locks_lock = threading.Lock()


class _Lock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@contextmanager
def _alone(session_manager: Any, user_id: str, session_id: str) -> Iterator[None]:
    """While nobody else starts the sandbox of this session.

    A store may have a lock that reaches further than this process.
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


# --- The manager ------------------------------------------------------------------------


class _Live(Given):
    """What a manager has beside its fields: no data, so neither copied nor shown."""

    start_future: Future[Any] | None
    _start_thread: threading.Thread | None
    pause_thread: threading.Thread | None
    _session_context: dict[str, Any]
    _assets: list[Asset]
    _lacks_assets: bool
    """the sandbox runs, but to upload them has failed"""
    _lock: Any  # threading.RLock(), whose type has no name
    _starting: bool

    def __new__(cls, *_: Any, **given: Any) -> Any:
        self = super().__new__(cls, **given)
        self.start_future = self._start_thread = self.pause_thread = None
        self._session_context = {}
        self._assets = []
        self._lacks_assets = False
        self._lock = threading.RLock()
        self._starting = False
        return self


def _around(start: Callable[..., Any]) -> Callable[..., Any]:
    """A subclass's start() with all that belongs to every start."""

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
                return call()  # by super()
            self._starting = True
            try:
                with self._alone(session_manager, user_id, session_id):
                    sandbox = call()
            finally:
                self._starting = False
            self.prepare_session_context(
                session_manager, user_id, session_id, sandbox_config
            )
            self._instance = sandbox
            self._supply(sandbox)
            return sandbox

    return started


def upload(sandbox: BaseSandbox, assets: list[Asset]) -> None:
    for local, inside in assets:
        if os.path.isdir(local):
            sandbox.upload_directory(local, inside)
        else:
            result = sandbox.upload_file(local, inside)
            if result.error:
                raise SandboxError(result.error, op="manager.upload", subject=local)


@dataclass(kw_only=True)
class BaseSandboxManager(_Live, Generic[TSandbox], metaclass=Spelled):
    """Starts, pauses, restores and stops the sandbox of a session."""

    work_dir: str | Path | None = None
    """for sandboxes whose configuration does not say; None: what is usual"""
    status_after_run: AfterRun = "pause"
    """what run_done() does, if the configuration does not say"""
    _instance: TSandbox | None = field(default=None, init=False, repr=False)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "start" in cls.__dict__:
            setattr(cls, "start", _around(cls.__dict__["start"]))

    @property
    def _work_dir(self) -> str:
        return str(self.work_dir or Path.cwd())

    # --- What a subclass says ----------------------------------------------------------

    @abstractmethod
    def start(
        self,
        session_manager: Any,
        user_id: str,
        session_id: str,
        sandbox_config: Any,
    ) -> TSandbox:
        """The session's sandbox: the one that was saved if it can be reached, else a new
        one.  Without a session manager always a new one."""

    @abstractmethod
    def stop(self) -> bool:
        """Ends the sandbox; False if there is none or it cannot be ended."""

    @abstractmethod
    def pause(self) -> bool:
        """Halts the sandbox until it is started again; False if it cannot be."""

    @abstractmethod
    def is_running(self) -> bool:
        """Whether there is a sandbox, and it is not halted."""

    def on_run_complete(self) -> None:
        """Called at the end of a run, before the sandbox is paused or stopped."""

    def _alone(
        self, session_manager: Any, user_id: str, session_id: str
    ) -> AbstractContextManager[None]:
        """Around a start."""
        return _alone(session_manager, user_id, session_id)

    def _restart(self) -> TSandbox:
        """Brings back the sandbox that ``instance`` found not running."""
        context = dict(self._session_context)
        context.pop("upload_assets")
        return self.start(**context)

    # --- What it does for every one -----------------------------------------------------

    @property
    def session_context(self) -> dict[str, Any]:
        """What the sandbox was, or is to be, started with."""
        return self._session_context

    @property
    def instance(self) -> TSandbox | None:
        """The sandbox, started or resumed if need be."""
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
            elif self._lacks_assets and self._instance is not None:
                self._supply(self._instance)
            return self._instance

    def _supply(self, sandbox: TSandbox) -> None:
        """What cannot be uploaded now is when the sandbox is next asked for."""
        self._lacks_assets = True
        upload(sandbox, self._assets)
        self._lacks_assets = False

    def _wait_for_start(self) -> None:
        """What went wrong is told to all who wait; after that it is tried again."""
        future = self._settle()
        if future is None:
            return
        if self.start_future is future:
            self.start_future = None
        future.result()

    def _settle(self) -> Future[Any] | None:
        """Waits for a start that is under way, if it is not this very one."""
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
        """Remembers what to start, for start_sync() or ``instance``; with
        ``upload_assets``, those instead of what was added before."""
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
        """The sandbox that was prepared, started unless it runs."""
        with self._lock:
            if self._instance is not None and self.is_running():
                if self._lacks_assets:
                    self._supply(self._instance)
                return self._instance
            if not self._session_context:
                logger.warning("no session was prepared, so no sandbox is started")
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
        """Starts in a thread; ``instance`` waits for it, and so can you."""
        self.prepare_session_context(
            session_manager, user_id, session_id, sandbox_config, upload_assets
        )
        future: Future[TSandbox] = Future()
        self.start_future = future

        def start() -> TSandbox:
            self._start_thread = threading.current_thread()
            return self.start(session_manager, user_id, session_id, sandbox_config)

        _thread_for(future, start)
        return future

    def pause_no_wait(self) -> threading.Thread:
        """Pauses in a thread."""
        self.pause_thread = _thread_for(Future(), self.pause)
        return self.pause_thread

    def add_upload_assets(self, assets: list[Asset]) -> None:
        """Directories and files that are uploaded on every start, and now if it runs."""
        with self._lock:
            self._assets.extend(assets)
            if self._instance is not None and self.is_running():
                upload(self._instance, assets)

    def run_done(self) -> bool:
        """What is to happen after a run: the sandbox is paused, stopped or kept."""
        self.on_run_complete()
        after = self._after_run() or self.status_after_run
        if after == "pause":
            return self.pause()
        return self.stop() if after == "stop" else True

    def _after_run(self) -> str | None:
        """What the configuration says of that."""
        return after_run_of(self._session_context.get("sandbox_config"))

    # --- State ----------------------------------------------------------------------------

    def persist_sandbox_state(
        self,
        session_manager: SessionStore | None,
        user_id: str,
        session_id: str,
        sandbox: BaseSandbox,
    ) -> None:
        """Saves what there is to know of the sandbox with the session."""
        if session_manager is not None:
            state = self._state_of(sandbox)
            self._save(session_manager, user_id, session_id, state)

    @staticmethod
    def _state_of(sandbox: BaseSandbox) -> dict[str, Any]:
        """Both spellings of the working directory: NexAU's document has the first."""
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
        """What was saved, or None."""
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
                f"the field cannot be saved: {error}",
                op="manager.persist",
                subject=name,
                hint="fields are what JSON has; mark others with field(init=False)",
            ) from None
