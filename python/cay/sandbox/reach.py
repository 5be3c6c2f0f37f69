# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of libcay's backends, made and reached by a configuration.

An object in Python has no state of a sandbox but its fields; handles are opened when they
are needed.  So a copy of it, or one made from saved fields, reaches the same sandbox.
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

from cay import _config_lib, _lib, _sandbox_lib
from cay.sandbox import configs
from cay.sandbox.base import BaseSandbox
from cay.sandbox.errors import SandboxError, error_of
from cay.sandbox.handles import Handles, open_handle
from cay.sandbox.options import milliseconds, text

__all__ = ["Reached"]

Self = TypeVar("Self", bound="Reached")


class _Connected:
    """What such an object has beside its fields; a copy has its own."""

    _handles: Handles | None
    _secrets: dict[str, Any]
    """of the configuration, in clear; nobody saves them"""
    _variables: dict[str, str]
    """of its envs, with what they refer to"""
    _is_copy: bool
    """which is nobody's wish to have a paused sandbox go on"""
    _lock: threading.Lock
    _raw: Any
    """what E2BSandbox.sandbox returns"""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        self = super().__new__(cls)
        self._disconnect()
        return self

    def _disconnect(self) -> None:
        self._handles, self._lock = None, threading.Lock()
        self._secrets, self._variables, self._is_copy = {}, {}, False
        self._raw = None
        # The backend's own id; a copy has the same.  No class annotation: not a field.
        self._own_id: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        own = _Connected.__annotations__
        return {name: one for name, one in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._disconnect()
        self._is_copy = True
        self.__dict__.update(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        other = type(self).__new__(type(self))
        other.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        other._secrets = dict(self._secrets)  # which go no further than this process
        return other


def _handle(config: int, id: str | None) -> int:
    """Of a new sandbox, or of that one."""
    handle, err = c_void_p(), _lib.Error()
    if id is None:
        failed = _config_lib.backend_create(config, byref(handle), byref(err))
    else:
        name = text(id, "sandbox_id")
        failed = _config_lib.backend_connect(config, name, byref(handle), byref(err))
    if failed:
        raise error_of(err)
    assert handle.value is not None
    return handle.value


def _another(values: dict[str, Any], id: str) -> int:
    """One more, which leaves a sandbox that is paused as it is where that can be had."""
    if values["type"] == "native":
        return open_handle(id)
    with configs.parsed(values, restored=True) as config:
        return _handle(config, id)


@dataclass(kw_only=True)
class Reached(_Connected, BaseSandbox):
    """A sandbox that one of libcay's backends runs; ``config["type"]`` says which."""

    backend: ClassVar[str] = ""
    work_dir: str | Path | None = None
    """None: where the sandbox has it"""
    config: dict[str, Any] = field(default_factory=lambda: {}, repr=False)
    """by which it is made or reached; secrets only as references to where they are"""

    @classmethod
    def create(cls: type[Self], **values: Any) -> Self:
        """Makes one by the keys of a configuration."""
        return cls._opened(values, None)

    @classmethod
    def connect(cls: type[Self], sandbox_id: str, **values: Any) -> Self:
        """The one of this id, which then runs; SandboxNotFoundError if it is gone."""
        return cls._opened(values, sandbox_id)

    @classmethod
    def _opened(cls: type[Self], values: dict[str, Any], id: str | None) -> Self:
        names = {one.name for one in fields(cls)} - {"config", "sandbox_id"}
        values = {"type": cls.backend, **values}
        with configs.parsed(values, restored=id is not None) as config:
            whole = {**values, **configs.whole(config)}
            given = {name: value for name, value in whole.items() if name in names}
            self = cls(**{"work_dir": None, **given}, config=configs.stored(config))
            self._open(config, id)
        return self

    def _open(self, config: int, id: str | None) -> None:
        whole, self.config = configs.whole(config), configs.stored(config)
        self._secrets = {
            name: value for name, value in whole.items() if name not in self.config
        }
        self._variables = configs.environment(config)
        wakes = id is None or not self._is_copy
        handle = _handle(config, id) if wakes else _another(whole, str(id))
        self._own_id = own_id = _sandbox_lib.sandbox_id(handle).decode()
        if self.sandbox_id is None:  # else it is the same, or a label
            self.sandbox_id = own_id
        again = functools.partial(_another, whole, own_id)
        # Only of backends that run them on this machine.
        ephemeral = whole.get("ephemeral") is True and id is None
        self._handles = Handles(own_id, handle, again, ephemeral)
        if self.work_dir is None or not os.path.isabs(self.work_dir):
            start = self.config.get("work_dir") or self._start_of(handle)
            self.work_dir = None if start is None else Path(start)

    def _start_of(self, handle: int, user: bytes | None = None) -> str | None:
        """Where relative paths of a user start for libcay, if that can be known."""
        files, err = c_void_p(), _lib.Error()
        if _sandbox_lib.sandbox_files(handle, user, byref(files), byref(err)):
            info = _sandbox_lib.SandboxInfo()
            if _sandbox_lib.sandbox_inspect(handle, byref(info), byref(err)):
                return None
            return _lib.decode(info.workdir) or None
        place = _lib.Location(size=sizeof(_lib.Location))
        try:
            if _lib.files_locate(files, b".", _lib.ACCESS_READ, byref(place), byref(err)):
                return None
            return _lib.decode(place.path)
        finally:
            _lib.location_done(byref(place))
            _lib.files_free(files)

    def _alone(self) -> dict[str, Any]:
        """The configuration of one that nobody has started yet."""
        raise SandboxError(
            "Sandbox not started. Please use its manager to start it.",
            op="sandbox.open",
            hint=f"{type(self).__name__}.create(), or its manager's start()",
        )

    def _known_id(self) -> str | None:
        """The id of a sandbox that exists; None: one has to be created."""
        return self._own_id or self.sandbox_id

    def _reach(self) -> Handles:
        with self._lock:
            if self._handles is None:
                values = {"type": self.backend, **self.config, **self._secrets}
                id = self._known_id()
                if id is None:
                    values.update(self._alone())
                with configs.parsed(values, restored=id is not None) as config:
                    self._open(config, id)
            assert self._handles is not None
            return self._handles

    def _merge_envs(self, envs: dict[str, str] | None = None) -> dict[str, str] | None:
        written = self.config.get("envs", {})
        own = {
            name: self._variables.get(name) if written.get(name) == value else value
            for name, value in self.envs.items()
        }
        known = {name: value for name, value in own.items() if value is not None}
        return {**known, **(envs or {})} or None

    @contextmanager
    def _borrow(self) -> Iterator[int]:
        with self._reach().borrow() as handle:
            yield handle

    def _call(self, function: Any, *arguments: Any) -> None:
        err = _lib.Error()
        with self._borrow() as handle:
            if function(handle, *arguments, byref(err)):
                raise error_of(err)

    # --- Its life -----------------------------------------------------------------------

    def state(self) -> str:
        """running, paused or stopped; SandboxNotFoundError if it is gone."""
        number = c_int()
        self._call(_config_lib.sandbox_state, byref(number))
        return _sandbox_lib.STATES[number.value]

    def pause(self) -> None:
        """Stops the clock for everything inside."""
        self._call(_sandbox_lib.sandbox_pause)

    def resume(self) -> None:
        self._call(_sandbox_lib.sandbox_resume)

    def restart(self) -> None:
        """Starts it again after it was stopped, with the files it had."""
        self._call(_sandbox_lib.sandbox_start)

    def set_ttl(self, seconds: float | None) -> None:
        """It ends by itself so many seconds from now; None: it does not."""
        soon = None if seconds is None else max(seconds, 0.001)
        self._call(_sandbox_lib.sandbox_set_ttl, milliseconds(soon, "seconds"))

    def remove(self) -> None:
        """Nothing is left of it."""
        self._call(_sandbox_lib.sandbox_remove)
        self.close()

    def close(self) -> None:
        """Lets go of it; it lives on unless it is ephemeral."""
        with self._lock:
            handles, self._handles = self._handles, None
        if handles is not None:
            handles.close()
