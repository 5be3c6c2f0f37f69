# SPDX-License-Identifier: Apache-2.0
"""A session's sandbox in libcay's own store, started and ended by libcay: nothing is lost
or left over whenever a process dies, and who races for a session gets the one sandbox."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from ctypes import byref, c_void_p, sizeof
from typing import Any, TypeVar

from cay import _config_lib, _lib, _sandbox_lib, _session_lib
from cay._owner import Owner
from cay.sandbox import configs
from cay.sandbox.errors import error_of
from cay.sandbox.options import text
from cay.sandbox.session import DatabaseEngine
from cay.sandbox.waiting import interruptibly

__all__ = ["Kept"]

R = TypeVar("R")


class Kept(Owner):
    """A cay_manager.  Its calls wait for whoever else has the session, so Ctrl-C leaves
    them, and the next one waits for one that was left."""

    def __init__(
        self,
        engine: DatabaseEngine,
        user_id: str,
        session_id: str,
        values: dict[str, Any],
    ) -> None:
        self._engine, self._names = engine, (user_id, session_id)
        self._is_ephemeral = bool(values.get("ephemeral"))
        self._manager = c_void_p()
        self._config = configs.new(values)
        self._open()

    def _open(self) -> None:
        """A forked child has its own, as it has of the store."""
        user_id, session_id = self._names
        manager, err = c_void_p(), _lib.Error()
        options = _session_lib.ManagerOptions(
            size=sizeof(_session_lib.ManagerOptions),
            store=self._engine.handle(),
            user_id=text(user_id, "user_id"),
            session_id=text(session_id, "session_id"),
            config=self._config,
        )
        if _session_lib.manager_new(byref(options), byref(manager), byref(err)):
            raise error_of(err)
        old, self._manager = self._manager, manager
        self._lock, self._pid = threading.Lock(), os.getpid()
        _session_lib.manager_free(old)

    def __del__(
        self,
        _free: Any = _session_lib.manager_free,
        _config_free: Any = _config_lib.config_free,
    ) -> None:
        _free(self._manager)
        _config_free(getattr(self, "_config", None))

    def start(self, known: str | None) -> str:
        """The id of the sandbox, which runs then; ``known`` is the one there was."""
        return self._alone(lambda: self._start(known))

    def _alone(self, call: Callable[[], R]) -> R:
        # Sessions in memory are the parent's, who alone can do anything with them.
        if self._pid != os.getpid() and self._engine.outlives_process:
            self._open()

        def locked() -> R:
            with self._lock:
                return call()

        return interruptibly(locked)

    def _start(self, known: str | None) -> str:
        sandbox, err = c_void_p(), _lib.Error()
        if _session_lib.manager_sandbox(self._manager, byref(sandbox), byref(err)):
            raise error_of(err)
        id = str(_sandbox_lib.sandbox_id(sandbox).decode())
        if self._is_ephemeral:
            info = _sandbox_lib.SandboxInfo()
            if _sandbox_lib.sandbox_inspect(sandbox, byref(info), byref(err)):
                raise error_of(err)
            life = (id, info.init_pid)
            self._engine.hold(self._names, life, self, is_new=id != known)
        return id

    def pause(self) -> None:
        self._call(_session_lib.manager_pause)

    def stop(self) -> None:
        self._call(_session_lib.manager_stop)
        self._engine.release(self._names)

    def _call(self, function: Any) -> None:
        err = _lib.Error()
        if self._alone(lambda: function(self._manager, byref(err))):
            raise error_of(err)
