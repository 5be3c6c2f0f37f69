# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of libcay's backends, created or opened with a configuration.

The fields of an object are all its state; handles are opened when they are needed.  So a
copy, or an object with the saved fields, uses the same sandbox.
"""

from __future__ import annotations

import copy
import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_void_p, sizeof
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from cay import _c
from cay.errors import SandboxError
from cay.nexau.base import BaseSandbox
from cay.sandbox import config as c_config
from cay.sandbox.config import Config
from cay.sandbox.handles import Handles, open_handle
from cay.sandbox.options import milliseconds, text

Self = TypeVar("Self", bound="ConnectedSandbox")


class _Connection:
    """Attributes that are not fields; a copy has its own."""

    _handles: Handles | None
    _secrets: dict[str, Any]
    """of the configuration, in clear; never saved"""
    _variables: dict[str, str]
    """the values of envs, with references replaced"""
    _is_copy: bool
    """a copy does not resume a paused sandbox when it connects"""
    _lock: threading.Lock
    _raw: Any
    """the value of E2BSandbox.sandbox"""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        self = super().__new__(cls)
        self._disconnect()
        return self

    def _disconnect(self) -> None:
        self._handles, self._lock = None, threading.Lock()
        self._secrets, self._variables, self._is_copy = {}, {}, False
        self._raw = None
        # The backend's id.  Not annotated in the class: a copy has the same.
        self._own_id: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        own = _Connection.__annotations__
        return {name: one for name, one in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._disconnect()
        self._is_copy = True
        self.__dict__.update(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        other = type(self).__new__(type(self))
        other.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        other._secrets = dict(self._secrets)  # the copy is in the same process
        return other


def _handle(config: Config, id: str | None) -> int:
    """Creates a sandbox, or connects to the one with this id."""
    handle = c_void_p()
    if id is None:
        _c.call(_c.backend_create, config.handle, byref(handle))
    else:
        name = text(id, "sandbox_id")
        _c.call(_c.backend_connect, config.handle, name, byref(handle))
    assert handle.value is not None
    return handle.value


def _another(values: dict[str, Any], id: str) -> int:
    """Another handle; a paused native sandbox stays paused."""
    if values["type"] == "native":
        return open_handle(id)
    return _handle(c_config.new(values, restored=True), id)


@dataclass(kw_only=True)
class ConnectedSandbox(_Connection, BaseSandbox):
    """A sandbox of the backend in ``config["type"]``."""

    backend: ClassVar[str] = ""
    work_dir: str | Path | None = None
    """None: that of the sandbox"""
    config: dict[str, Any] = field(default_factory=lambda: {}, repr=False)
    """for creating and connecting; a secret only as a reference to a variable"""

    @classmethod
    def create(cls: type[Self], **values: Any) -> Self:
        """Creates a sandbox with the keys of a configuration."""
        return cls._opened(values, None)

    @classmethod
    def connect(cls: type[Self], sandbox_id: str, **values: Any) -> Self:
        """Connects to a sandbox and resumes it; SandboxNotFoundError if it has ended."""
        return cls._opened(values, sandbox_id)

    @classmethod
    def _opened(cls: type[Self], values: dict[str, Any], id: str | None) -> Self:
        names = {one.name for one in fields(cls)} - {"config", "sandbox_id"}
        values = {"type": cls.backend, **values}
        config = c_config.new(values, restored=id is not None)
        whole = {**values, **config.values()}
        given = {name: value for name, value in whole.items() if name in names}
        self = cls(**{"work_dir": None, **given}, config=config.stored())
        self._open(config, id)
        return self

    def _open(self, config: Config, id: str | None) -> None:
        whole, self.config = config.values(), config.stored()
        self._secrets = {
            name: value for name, value in whole.items() if name not in self.config
        }
        self._variables = config.environment()
        resumes = id is None or not self._is_copy
        handle = _handle(config, id) if resumes else _another(whole, str(id))
        self._own_id = own_id = _c.sandbox_id(handle).decode()
        if self.sandbox_id is None:  # else it is the same, or a label
            self.sandbox_id = own_id
        again = functools.partial(_another, whole, own_id)
        # Only backends on this machine have the key.
        ephemeral = whole.get("ephemeral") is True and id is None
        self._handles = Handles(own_id, handle, again, ephemeral)
        if self.work_dir is None or not os.path.isabs(self.work_dir):
            start = self.config.get("work_dir") or self._start_of(handle)
            self.work_dir = None if start is None else Path(start)

    def _start_of(self, handle: int, user: bytes | None = None) -> str | None:
        """Where the relative paths of a user start in libcay, or None if unknown."""
        files, err = c_void_p(), _c.Error()
        if _c.sandbox_files(handle, user, byref(files), byref(err)):
            info = _c.SandboxInfo()
            if _c.sandbox_inspect(handle, byref(info), byref(err)):
                return None
            return _c.decode(info.workdir) or None
        location = _c.Location(size=sizeof(_c.Location))
        try:
            if _c.files_locate(files, b".", _c.ACCESS_READ, byref(location), byref(err)):
                return None
            return _c.decode(location.path)
        finally:
            _c.location_done(byref(location))
            _c.files_free(files)

    def _values_for_new(self) -> dict[str, Any]:
        """The configuration for a sandbox that no manager has started."""
        raise SandboxError(
            "Sandbox not started. Please use its manager to start it.",
            op="sandbox.open",
            hint=f"call {type(self).__name__}.create(), or start() of its manager",
        )

    def _known_id(self) -> str | None:
        """The id of the existing sandbox; None: there is none yet."""
        return self._own_id or self.sandbox_id

    def _connected(self) -> Handles:
        with self._lock:
            if self._handles is None:
                values = {"type": self.backend, **self.config, **self._secrets}
                id = self._known_id()
                if id is None:
                    values.update(self._values_for_new())
                self._open(c_config.new(values, restored=id is not None), id)
            assert self._handles is not None
            return self._handles

    def _merge_envs(self, envs: dict[str, str] | None = None) -> dict[str, str] | None:
        stored = self.config.get("envs", {})
        own = {
            name: self._variables.get(name) if stored.get(name) == value else value
            for name, value in self.envs.items()
        }
        known = {name: value for name, value in own.items() if value is not None}
        return {**known, **(envs or {})} or None

    @contextmanager
    def _borrow(self) -> Iterator[int]:
        with self._connected().borrow() as handle:
            yield handle

    def _call(self, function: Any, *arguments: Any) -> None:
        with self._borrow() as handle:
            _c.call(function, handle, *arguments)

    # --- State --------------------------------------------------------------------------

    def state(self) -> str:
        """running, paused or stopped; SandboxNotFoundError if it has ended."""
        number = c_int()
        self._call(_c.sandbox_state, byref(number))
        return _c.STATES[number.value]

    def pause(self) -> None:
        """Freezes all processes."""
        self._call(_c.sandbox_pause)

    def resume(self) -> None:
        self._call(_c.sandbox_resume)

    def restart(self) -> None:
        """Starts it again after it was stopped, with its files."""
        self._call(_c.sandbox_start)

    def set_ttl(self, seconds: float | None) -> None:
        """Sets the time to live, in seconds from now; None: no limit."""
        soon = None if seconds is None else max(seconds, 0.001)
        self._call(_c.sandbox_set_ttl, milliseconds(soon, "seconds"))

    def remove(self) -> None:
        """Kills it, and removes its files on disk."""
        self._call(_c.sandbox_remove)
        self.close()

    def close(self) -> None:
        """Closes the handles; the sandbox continues to run unless it is ephemeral."""
        with self._lock:
            handles, self._handles = self._handles, None
        if handles is not None:
            handles.close()
