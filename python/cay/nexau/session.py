# SPDX-License-Identifier: Apache-2.0
"""Sessions: the state of a sandbox between runs, by user and session.

Both engines are libcay's store (include/cay/session.h): a SQLite database below $CAY_HOME
for any number of processes, or one in memory.  `cay session` uses the same database.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_size_t, c_void_p, sizeof
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeVar

from cay import _c
from cay.errors import (
    SandboxChangedError,
    SandboxNotFoundError,
    SandboxTimeoutError,
    SandboxValueError,
)
from cay.nexau.registry import SandboxAlias
from cay.sandbox import config as c_config
from cay.sandbox.event_loop import in_thread, interruptibly
from cay.sandbox.options import Spares, choice, text

R = TypeVar("R")


@dataclass(kw_only=True)
class Session:
    """A session and the state of its sandbox."""

    user_id: str
    session_id: str
    sandbox_state: dict[str, Any] | None = None
    """saved by manager.persist_sandbox_state()"""
    status: str | None = None
    """the last known state of the sandbox: running, paused, stopped"""
    created_at: datetime | None = None
    updated_at: datetime | None = None


# --- The store ----------------------------------------------------------------------------


class DatabaseEngine(_c.Owner):
    """A store of sessions, for any number of threads.  A forked child opens its own
    handle."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = None if path is None else text(path, "path")
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._pid = 0
        self._retained: dict[tuple[str, str], tuple[Any, list[Any]]] = {}
        self.handle()

    @property
    def outlives_process(self) -> bool:
        return self._path != b":memory:"

    def retain(self, names: tuple[str, str], life: Any, handle: Any, is_new: bool) -> None:
        """Keeps a reference to the handle of an ephemeral sandbox, which ends with it.

        ``life`` identifies the sandbox and its PID 1.  The manager that created it may be
        garbage when another manager uses the session.
        """
        with self._lock:
            known, retained = self._retained.get(names, (None, []))
            if known != life:
                self._retained[names] = (life, [handle])
            elif is_new:  # one of several concurrent managers created it: keep them all
                retained.append(handle)

    def release(self, names: tuple[str, str]) -> None:
        """Drops the references."""
        with self._lock:
            self._retained.pop(names, None)

    def handle(self) -> int | None:
        """A cay_store."""
        with self._lock:
            if self._pid != os.getpid():
                handle = c_void_p()
                _c.call(_c.store_open, self._path, byref(handle))
                # The parent's handle is not freed: that would release its file locks.
                self._handle, self._pid = handle.value, os.getpid()
            return self._handle

    def __del__(
        self, _free: Any = _c.store_free, _pid: Any = os.getpid
    ) -> None:
        if getattr(self, "_pid", None) == _pid():
            _free(self._handle)

    @contextmanager
    def _record(self, user_id: bytes, session_id: bytes) -> Iterator[Any]:
        found = POINTER(_c.Session)()
        try:
            _c.call(_c.store_get, self.handle(), user_id, session_id, byref(found))
        except SandboxNotFoundError:
            pass
        if not found:
            yield None
            return
        try:
            yield found[0]
        finally:
            _c.free(found)

    def get(self, user_id: str, session_id: str) -> Session | None:
        names = text(user_id, "user_id"), text(session_id, "session_id")
        with self._record(*names) as record:
            return None if record is None else _session_of(record)

    def put(self, session: Session) -> None:
        """Saves a session; it is on the disk when this returns."""
        state = session.sandbox_state or {}
        config = dict(state.get("config") or {})
        number = choice(session.status or "running", _c.STATES, "status")
        record = _c.Session(
            size=sizeof(_c.Session),
            user_id=text(session.user_id, "user_id"),
            session_id=text(session.session_id, "session_id"),
            backend=text(_backend_of(state), "backend"),
            sandbox_id=text(str(state.get("sandbox_id") or ""), "sandbox_id"),
            state=number if state.get("sandbox_id") else 0,
            config=json.dumps(config).encode() if config else None,
            data=json.dumps(state).encode() if state else None,
        )
        _c.call(_c.store_put, self.handle(), byref(record))

    def describe(self, session: Session) -> None:
        """Adds the state to libcay's record of the sandbox, unless the session has another
        sandbox by now."""
        state = session.sandbox_state or {}
        names = text(session.user_id, "user_id"), text(session.session_id, "session_id")
        while True:
            with self._record(*names) as record:
                if record is None or record.sandbox_id.decode() != state.get(
                    "sandbox_id"
                ):
                    return
                record.data = json.dumps(state).encode()
                try:
                    _c.call(_c.store_put, self.handle(), byref(record))
                    return
                except SandboxChangedError:
                    continue

    def collect(self) -> int:
        """Removes sandboxes that crashed managers have left; returns how many."""
        count = c_size_t()
        _c.call(_c.store_collect, self.handle(), byref(count))
        return count.value

    def list(self, user_id: str | None = None) -> list[Session]:
        """All sessions, or those of one user; the last changed first."""
        found, count = POINTER(_c.Session)(), c_size_t()
        name = None if user_id is None else text(user_id, "user_id")
        _c.call(_c.store_list, self.handle(), name, byref(found), byref(count))
        try:
            return [_session_of(found[at]) for at in range(count.value)]
        finally:
            _c.free(found)

    def remove(self, user_id: str, session_id: str) -> bool:
        """Removes a session, but not its sandbox; False if there is no such session."""
        names = text(user_id, "user_id"), text(session_id, "session_id")
        try:
            _c.call(_c.store_remove, self.handle(), *names)
        except SandboxNotFoundError:
            return False
        return True

    @contextmanager
    def session_lock(self, user_id: str, session_id: str) -> Iterator[None]:
        """Locks a session for all processes."""
        lock = self._take(text(user_id, "user_id"), text(session_id, "session_id"))
        try:
            yield
        finally:
            _c.session_lock_free(lock)

    def _take(self, user_id: bytes, session_id: bytes) -> int | None:
        handle, names = c_void_p(), (user_id, session_id)
        while True:  # a second at a time: Python handles signals in between
            try:
                _c.call(
                    _c.session_lock_take, self.handle(), *names, 1000, byref(handle)
                )
                return handle.value
            except SandboxTimeoutError:
                continue


class SQLiteDatabaseEngine(DatabaseEngine):
    """A database in a file, for several processes; None: cay.db in $CAY_HOME or its
    default."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(path)


class InMemoryDatabaseEngine(DatabaseEngine):
    """A database in the memory of this process."""

    _shared: ClassVar[InMemoryDatabaseEngine | None] = None
    _shared_lock: ClassVar[Any] = threading.Lock()

    def __init__(self) -> None:
        super().__init__(":memory:")

    @classmethod
    def get_shared_instance(cls) -> InMemoryDatabaseEngine:
        """The shared one of this process."""
        with InMemoryDatabaseEngine._shared_lock:
            if InMemoryDatabaseEngine._shared is None:
                InMemoryDatabaseEngine._shared = InMemoryDatabaseEngine()
            return InMemoryDatabaseEngine._shared


def _backend_of(state: dict[str, Any]) -> str:
    """The type of the sandbox, or the name of a class without a type."""
    if state.get("config"):
        return str(state["config"].get("type") or "")
    name = str(state.get("sandbox_type") or "")
    for type, cls in SandboxAlias.items():
        if cls == name:
            return type
    return name


def _session_of(record: Any) -> Session:
    return Session(
        user_id=record.user_id.decode(),
        session_id=record.session_id.decode(),
        sandbox_state=_state_of(record),
        status=_c.STATES.get(record.state),
        created_at=datetime.fromtimestamp(record.created_ms / 1000),
        updated_at=datetime.fromtimestamp(record.updated_ms / 1000),
    )


def _state_of(record: Any) -> dict[str, Any] | None:
    """The state saved from Python, unless libcay has recorded another sandbox since."""
    id = record.sandbox_id.decode()
    state = json.loads(record.data or b"{}")
    if not isinstance(state, dict):
        state = {}  # the data of another program
    if (state.get("sandbox_id") or "") == id:
        return state or None
    if not id:
        return None
    backend = record.backend.decode()
    return {
        "sandbox_id": id,
        "sandbox_type": SandboxAlias.get(backend, backend),
        "config": json.loads(record.config or b"{}"),
    }


# --- libcay's manager ---------------------------------------------------------------------


class ManagerHandle(_c.Owner):
    """A cay_manager: libcay starts and ends the sandbox of a session in its own store.

    Nothing is lost or left over when a process dies, and concurrent starts of one session
    get the same sandbox.  A call waits for other users of the session, so Ctrl-C leaves
    it; the next call waits for one that was left.
    """

    def __init__(
        self,
        engine: DatabaseEngine,
        user_id: str,
        session_id: str,
        values: dict[str, Any],
        pool: bytes | None = None,
    ) -> None:
        self._pool = pool
        self._engine, self._names = engine, (user_id, session_id)
        self._is_ephemeral = bool(values.get("ephemeral"))
        self._manager = c_void_p()
        self._config = c_config.new(values)
        self._open()

    def _open(self) -> None:
        """Also in a forked child, which has its own handle of the store."""
        user_id, session_id = self._names
        manager = c_void_p()
        options = _c.ManagerOptions(
            size=sizeof(_c.ManagerOptions),
            store=self._engine.handle(),
            user_id=text(user_id, "user_id"),
            session_id=text(session_id, "session_id"),
            config=self._config.handle,
            pool=self._pool,
        )
        _c.call(_c.manager_new, byref(options), byref(manager))
        old, self._manager = self._manager, manager
        self._lock, self._pid = threading.Lock(), os.getpid()
        _c.manager_free(old)

    def __del__(self, _free: Any = _c.manager_free) -> None:
        _free(self._manager)

    def start(self, known: str | None) -> str:
        """Starts the sandbox and returns its id; ``known`` is the id before."""
        return self._locked(lambda: self._start(known))

    def _locked(self, call: Callable[[], R]) -> R:
        # Sessions in memory belong to the parent.
        if self._pid != os.getpid() and self._engine.outlives_process:
            self._open()

        def locked() -> R:
            with self._lock:
                return call()

        return interruptibly(locked)

    def _start(self, known: str | None) -> str:
        sandbox = c_void_p()
        _c.call(_c.manager_sandbox, self._manager, byref(sandbox))
        id = str(_c.sandbox_id(sandbox).decode())
        if self._is_ephemeral:
            info = _c.SandboxInfo()
            _c.call(_c.sandbox_inspect, sandbox, byref(info))
            life = (id, info.init_pid)
            self._engine.retain(self._names, life, self, is_new=id != known)
        return id

    def pause(self) -> None:
        self._locked(lambda: _c.call(_c.manager_pause, self._manager))

    def stop(self) -> None:
        self._locked(lambda: _c.call(_c.manager_stop, self._manager))
        self._engine.release(self._names)


# --- The session manager ------------------------------------------------------------------


class SessionManager:
    """The sessions of an engine; default: SQLiteDatabaseEngine().

    A new sandbox of this machine is a spare of the ``pool`` if one fits: a cay.Pool, or
    "shared" for a pool of `cay pool start`.
    """

    def __init__(
        self,
        *,
        engine: DatabaseEngine | None = None,
        pool: Spares | Literal["shared"] | None = None,
    ) -> None:
        if isinstance(pool, str) and pool != "shared":
            raise SandboxValueError(
                "invalid pool", subject=pool, hint='pass a cay.Pool, or "shared"'
            )
        self.engine = SQLiteDatabaseEngine() if engine is None else engine
        self._pool: bytes | None = None  # as cay_manager_options.pool
        if pool is not None:
            self._pool = b"" if isinstance(pool, str) else pool._name

    async def setup_models(self) -> None:
        """Does nothing: an open store is ready."""

    async def get_session(self, user_id: str, session_id: str) -> Session | None:
        return await in_thread(self.engine.get, user_id, session_id)

    async def update_session_sandbox(
        self,
        user_id: str,
        session_id: str,
        sandbox_state: dict[str, Any],
        status: str = "running",
    ) -> Session:
        """Saves the state of the session's sandbox; {}: it has none."""
        session = Session(
            user_id=user_id,
            session_id=session_id,
            sandbox_state=sandbox_state,
            status=status,
        )
        await in_thread(self.engine.put, session)
        return session

    async def list_sessions(self, user_id: str | None = None) -> list[Session]:
        """The last changed session first."""
        return await in_thread(self.engine.list, user_id)

    async def delete_session(self, user_id: str, session_id: str) -> bool:
        """Removes a session, but not its sandbox."""
        return await in_thread(self.engine.remove, user_id, session_id)

    @contextmanager
    def session_lock(self, user_id: str, session_id: str) -> Iterator[None]:
        """Excludes other starts and stops of the session's sandbox."""
        with self.engine.session_lock(user_id, session_id):
            yield
