# SPDX-License-Identifier: Apache-2.0
"""A session's sandbox in libcay's own store, started and ended by libcay: nothing is lost
or left over whenever a process dies, and who races for a session gets the one sandbox."""

from __future__ import annotations

from ctypes import byref, c_void_p, sizeof
from typing import Any

from cay import _config_lib, _lib, _sandbox_lib, _session_lib
from cay.sandbox import configs
from cay.sandbox.errors import error_of
from cay.sandbox.options import text
from cay.sandbox.session import DatabaseEngine

__all__ = ["Kept"]


class Kept:
    """A cay_manager, for one thread at a time."""

    def __init__(
        self,
        engine: DatabaseEngine,
        user_id: str,
        session_id: str,
        values: dict[str, Any],
    ) -> None:
        self._engine = engine
        self._manager, err = c_void_p(), _lib.Error()
        self._config = configs.new(values)
        options = _session_lib.ManagerOptions(
            size=sizeof(_session_lib.ManagerOptions),
            store=engine.handle(),
            user_id=text(user_id, "user_id"),
            session_id=text(session_id, "session_id"),
            config=self._config,
        )
        if _session_lib.manager_new(byref(options), byref(self._manager), byref(err)):
            raise error_of(err)

    def __del__(
        self,
        _free: Any = _session_lib.manager_free,
        _config_free: Any = _config_lib.config_free,
    ) -> None:
        _free(self._manager)
        _config_free(getattr(self, "_config", None))

    def start(self) -> str:
        """The id of the sandbox, which runs then."""
        sandbox, err = c_void_p(), _lib.Error()
        if _session_lib.manager_sandbox(self._manager, byref(sandbox), byref(err)):
            raise error_of(err)
        return str(_sandbox_lib.sandbox_id(sandbox).decode())

    def pause(self) -> None:
        self._call(_session_lib.manager_pause)

    def stop(self) -> None:
        self._call(_session_lib.manager_stop)

    def _call(self, function: Any) -> None:
        err = _lib.Error()
        if function(self._manager, byref(err)):
            raise error_of(err)
