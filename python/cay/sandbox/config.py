# SPDX-License-Identifier: Apache-2.0
"""Configurations of sandboxes in libcay: the map below ``sandbox_config:``, cay.yaml(5).

libcay has the keys of each backend and checks their values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from ctypes import byref, c_char_p, c_void_p, string_at
from typing import Any

from cay import _c
from cay.errors import SandboxValueError
from cay.sandbox.options import text


class Config(_c.Owner):
    """A cay_config."""

    def __init__(self, handle: int | None) -> None:
        self.handle = handle

    def __del__(self, _free: Any = _c.config_free) -> None:
        _free(self.handle)

    @property
    def type(self) -> str:
        return str(_c.config_type(self.handle).decode())

    def has(self, key: str) -> bool:
        return bool(_c.config_has(self.handle, key.encode()))

    def text(self, key: str) -> str | None:
        value: bytes | None = _c.config_text(self.handle, key.encode())
        return None if value is None else value.decode()

    def stored(self) -> dict[str, Any]:
        """The keys that were set; a secret only as a reference to an environment
        variable, or not at all."""
        document = c_void_p()
        _c.call(_c.config_json, self.handle, byref(document))
        try:
            return dict(json.loads(string_at(document.value or 0)))
        finally:
            _c.free(document)

    def values(self) -> dict[str, Any]:
        """The keys that were set, with secrets."""
        values = self.stored()
        backend = _c.backend_find(self.type.encode()).contents
        for field in backend.fields[: backend.field_count]:
            name = field.name.decode()
            if _c.FIELD_TYPES[field.type] == "secret" and self.has(name):
                secret = self.text(name)
                if secret is not None:
                    values.setdefault(name, secret)
        return values

    def environment(self) -> dict[str, str]:
        """The variables of every command, with references replaced."""
        found = {}
        name, value = c_char_p(), c_char_p()
        for at in range(_c.config_count(self.handle, b"envs")):
            _c.config_item(self.handle, b"envs", at, byref(name), byref(value))
            if name.value is not None and value.value is not None:
                found[_c.decode(name.value)] = _c.decode(value.value)
        return found


def new(values: Mapping[str, Any], restored: bool = False) -> Config:
    """A configuration from a map.

    One that is ``restored`` may refer to environment variables that are not set.
    """
    handle = c_void_p()
    if restored:
        document = json.dumps(dict(values), default=_to_json).encode()
        _c.call(_c.config_restore, document, byref(handle))
    else:
        document = json.dumps({"sandbox_config": dict(values)}, default=_to_json).encode()
        key = b"sandbox_config"
        _c.call(_c.config_parse, document, len(document), key, None, byref(handle))
    return Config(handle.value)


def load(path: str | os.PathLike[str]) -> Config:
    """The map below ``sandbox_config:`` of a YAML file, or the whole file."""
    handle = c_void_p()
    _c.call(_c.config_load, text(path, "path"), byref(handle))
    return Config(handle.value)


def _to_json(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise SandboxValueError(
        f"a configuration cannot contain a {type(value).__name__}: {value!r}",
        op="config.parse",
        hint="use strings, numbers, lists and maps",
    )


def after_run(values: Mapping[str, Any]) -> str | None:
    """The end of a run in a configuration: pause, stop, none, or None if not set."""
    config = new(values, restored=True)
    if config.has("status_after_run") or config.has("persist_sandbox"):
        return config.text("status_after_run")
    return None
