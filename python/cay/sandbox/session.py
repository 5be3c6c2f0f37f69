# SPDX-License-Identifier: Apache-2.0
"""Sessions: what is kept of a sandbox between runs, by user and session.

Both engines are libcay's store (include/cay/session.h): a SQLite database below $CAY_HOME
for any number of processes, or one in memory.  `cay session ls` shows what is in the
first, and what it starts there is found here.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_size_t, c_void_p, sizeof
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from cay import _session_lib, _lib, _sandbox_lib
from cay._owner import Owner
from cay.sandbox.alias import SandboxAlias
from cay.sandbox.errors import (
    SandboxChangedError,
    SandboxNotFoundError,
    SandboxTimeoutError,
    error_of,
)
from cay.sandbox.options import choice, text
from cay.sandbox.waiting import in_thread

__all__ = [
    "DatabaseEngine",
    "InMemoryDatabaseEngine",
    "SQLiteDatabaseEngine",
    "Session",
    "SessionManager",
]


@dataclass(kw_only=True)
class Session:
    """What is known of one."""

    user_id: str
    session_id: str
    sandbox_state: dict[str, Any] | None = None
    """what manager.persist_sandbox_state() saved"""
    status: str | None = None
    """of the sandbox when it was last seen: running, paused, stopped"""
    created_at: datetime | None = None
    updated_at: datetime | None = None


# --- The store ----------------------------------------------------------------------------


class DatabaseEngine(Owner):
    """A store of sessions, for any number of threads.  A forked child has its own handle
    to it."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = None if path is None else text(path, "path")
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._pid = 0
        self._held: dict[tuple[str, str], tuple[Any, list[Any]]] = {}
        self.handle()

    @property
    def outlives_process(self) -> bool:
        return self._path != b":memory:"

    def hold(self, names: tuple[str, str], life: Any, what: Any, is_new: bool) -> None:
        """Keeps what a sandbox that ends with this process may hang on, through this life
        of it: whoever started it may be gone when the next one wants it."""
        with self._lock:
            known, held = self._held.get(names, (None, []))
            if known != life:
                self._held[names] = (life, [what])
            elif is_new:  # who was faster does not know who has made it
                held.append(what)

    def release(self, names: tuple[str, str]) -> None:
        """What was held is let go."""
        with self._lock:
            self._held.pop(names, None)

    def handle(self) -> int | None:
        """A cay_store."""
        with self._lock:
            if self._pid != os.getpid():
                handle, err = c_void_p(), _lib.Error()
                if _session_lib.store_open(self._path, byref(handle), byref(err)):
                    raise error_of(err)
                # One of the parent is left alone: what is freed here is its file locks.
                self._handle, self._pid = handle.value, os.getpid()
            return self._handle

    def __del__(
        self, _free: Any = _session_lib.store_free, _pid: Any = os.getpid
    ) -> None:
        if getattr(self, "_pid", None) == _pid():
            _free(self._handle)

    @contextmanager
    def _record(self, user_id: bytes, session_id: bytes) -> Iterator[Any]:
        found, err = POINTER(_session_lib.Session)(), _lib.Error()
        names = (user_id, session_id)
        if _session_lib.store_get(self.handle(), *names, byref(found), byref(err)):
            error = error_of(err)
            if not isinstance(error, SandboxNotFoundError):
                raise error
            yield None
            return
        try:
            yield found[0]
        finally:
            _lib.free(found)

    def get(self, user_id: str, session_id: str) -> Session | None:
        names = text(user_id, "user_id"), text(session_id, "session_id")
        with self._record(*names) as record:
            return None if record is None else _session_of(record)

    def put(self, session: Session) -> None:
        """Durable when it returns."""
        state = session.sandbox_state or {}
        config = dict(state.get("config") or {})
        number = choice(session.status or "running", _sandbox_lib.STATES, "status")
        record = _session_lib.Session(
            size=sizeof(_session_lib.Session),
            user_id=text(session.user_id, "user_id"),
            session_id=text(session.session_id, "session_id"),
            backend=text(_backend_of(state), "backend"),
            sandbox_id=text(str(state.get("sandbox_id") or ""), "sandbox_id"),
            state=number if state.get("sandbox_id") else 0,
            config=json.dumps(config).encode() if config else None,
            data=json.dumps(state).encode() if state else None,
        )
        err = _lib.Error()
        if _session_lib.store_put(self.handle(), byref(record), byref(err)):
            raise error_of(err)

    def describe(self, session: Session) -> None:
        """Adds what else is to be known of the sandbox that libcay has recorded, unless it
        is another one by now."""
        state = session.sandbox_state or {}
        names = text(session.user_id, "user_id"), text(session.session_id, "session_id")
        while True:
            with self._record(*names) as record:
                if record is None or record.sandbox_id.decode() != state.get(
                    "sandbox_id"
                ):
                    return
                record.data, err = json.dumps(state).encode(), _lib.Error()
                if not _session_lib.store_put(self.handle(), byref(record), byref(err)):
                    return
            error = error_of(err)
            if not isinstance(error, SandboxChangedError):
                raise error

    def collect(self) -> int:
        """Removes sandboxes that managers which crashed have left; how many."""
        count, err = c_size_t(), _lib.Error()
        if _session_lib.store_collect(self.handle(), byref(count), byref(err)):
            raise error_of(err)
        return count.value

    def list(self, user_id: str | None = None) -> list[Session]:
        """All, or those of one user; the one that was changed last is first."""
        found, count, err = POINTER(_session_lib.Session)(), c_size_t(), _lib.Error()
        name = None if user_id is None else text(user_id, "user_id")
        if _session_lib.store_list(
            self.handle(), name, byref(found), byref(count), byref(err)
        ):
            raise error_of(err)
        try:
            return [_session_of(found[at]) for at in range(count.value)]
        finally:
            _lib.free(found)

    def remove(self, user_id: str, session_id: str) -> bool:
        """Forgets it; its sandbox, if there is one, lives on.  False if it is unknown."""
        err = _lib.Error()
        names = text(user_id, "user_id"), text(session_id, "session_id")
        if _session_lib.store_remove(self.handle(), *names, byref(err)):
            error = error_of(err)
            if isinstance(error, SandboxNotFoundError):
                return False
            raise error
        return True

    @contextmanager
    def session_lock(self, user_id: str, session_id: str) -> Iterator[None]:
        """While nobody else has it, in this process or in another."""
        lock = self._take(text(user_id, "user_id"), text(session_id, "session_id"))
        try:
            yield
        finally:
            _session_lib.session_lock_free(lock)

    def _take(self, user_id: bytes, session_id: bytes) -> int | None:
        store, handle, err = self.handle(), c_void_p(), _lib.Error()
        # A second at a time, for in between Python hears of signals.
        while _session_lib.session_lock_take(
            store, user_id, session_id, 1000, byref(handle), byref(err)
        ):
            error = error_of(err)
            if not isinstance(error, SandboxTimeoutError):
                raise error
        return handle.value


class SQLiteDatabaseEngine(DatabaseEngine):
    """A database in a file, for several processes; None: cay.db below $CAY_HOME, or where
    that would be."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(path)


class InMemoryDatabaseEngine(DatabaseEngine):
    """A database that is gone with this process."""

    _shared: ClassVar[InMemoryDatabaseEngine | None] = None
    _shared_lock: ClassVar[Any] = threading.Lock()

    def __init__(self) -> None:
        super().__init__(":memory:")

    @classmethod
    def get_shared_instance(cls) -> InMemoryDatabaseEngine:
        """The same one for everybody in this process."""
        with InMemoryDatabaseEngine._shared_lock:
            if InMemoryDatabaseEngine._shared is None:
                InMemoryDatabaseEngine._shared = InMemoryDatabaseEngine()
            return InMemoryDatabaseEngine._shared


def _backend_of(state: dict[str, Any]) -> str:
    """The type of the sandbox, or the name of a class that is of none."""
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
        status=_sandbox_lib.STATES.get(record.state),
        created_at=datetime.fromtimestamp(record.created_ms / 1000),
        updated_at=datetime.fromtimestamp(record.updated_ms / 1000),
    )


def _state_of(record: Any) -> dict[str, Any] | None:
    """What was saved from Python; which sandbox it is now, C may know better."""
    id = record.sandbox_id.decode()
    state = json.loads(record.data or b"{}")
    if not isinstance(state, dict):
        state = {}  # data of another program's
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


# --- The manager --------------------------------------------------------------------------


class SessionManager:
    """The sessions of an engine; without one, of the database below $CAY_HOME."""

    def __init__(self, *, engine: DatabaseEngine | None = None) -> None:
        self.engine = SQLiteDatabaseEngine() if engine is None else engine

    async def setup_models(self) -> None:
        """Nothing is left to do: the store is ready when it is open."""

    async def get_session(self, user_id: str, session_id: str) -> Session | None:
        return await in_thread(self.engine.get, user_id, session_id)

    async def update_session_sandbox(
        self,
        user_id: str,
        session_id: str,
        sandbox_state: dict[str, Any],
        status: str = "running",
    ) -> Session:
        """Saves what there is to know of the session's sandbox; {}: it has none."""
        session = Session(
            user_id=user_id,
            session_id=session_id,
            sandbox_state=sandbox_state,
            status=status,
        )
        await in_thread(self.engine.put, session)
        return session

    async def list_sessions(self, user_id: str | None = None) -> list[Session]:
        """The one that was changed last is first."""
        return await in_thread(self.engine.list, user_id)

    async def delete_session(self, user_id: str, session_id: str) -> bool:
        """Forgets it; its sandbox, if there is one, lives on."""
        return await in_thread(self.engine.remove, user_id, session_id)

    @contextmanager
    def session_lock(self, user_id: str, session_id: str) -> Iterator[None]:
        """While nobody else starts or ends the sandbox of this session."""
        with self.engine.session_lock(user_id, session_id):
            yield
