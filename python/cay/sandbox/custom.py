# SPDX-License-Identifier: Apache-2.0
"""Sandboxes written in Python, made known to libcay.

libcay reads and checks configurations, so it has to know which keys a type has: the fields
of the sandbox and of its manager, or those of the backend that another name stands for.  It
never makes a sandbox of such a type itself.
"""

from __future__ import annotations

import dataclasses
import threading
from ctypes import byref, sizeof
from typing import Any

from cay import _config_lib, _lib, errors
from cay.sandbox import alias
from cay.sandbox.base import BaseSandbox
from cay.sandbox.errors import SandboxValueError, error_of
from cay.sandbox.manager import BaseSandboxManager

__all__ = ["register_all"]

_TYPES = {
    "str": "text",
    "Path": "text",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list[str]": "texts",
    "dict[str, str]": "map",
}
_NUMBERS = {name: number for number, name in _config_lib.FIELD_TYPES.items()}

_known: dict[str, Any] = {}
"""by type, what libcay keeps pointers to"""
_lock = threading.Lock()


def register_all() -> None:
    """Those of SandboxAlias whose classes are there."""
    with _lock:
        for name in alias.SandboxAlias:
            if name not in _known and not _config_lib.backend_find(name.encode()):
                try:
                    _register(name, alias.sandbox_class(name))
                except SandboxValueError:
                    continue  # told when somebody wants it


def _register(name: str, sandbox: type[BaseSandbox]) -> None:
    backend = getattr(sandbox, "backend", None)
    if backend is None:
        fields = list(_fields(sandbox, alias.manager_class(sandbox)))
    else:
        known = _config_lib.backend_find(backend.encode())
        if not known:
            return
        fields = known.contents.fields[: known.contents.field_count]
    array = (_config_lib.Field * max(len(fields), 1))(*fields)
    table = _config_lib.Backend(
        size=sizeof(_config_lib.Backend),
        name=name.encode(),
        about=f"{sandbox.__module__}.{sandbox.__qualname__}".encode(),
        fields=array,
        field_count=len(fields),
        **_REFUSALS,
    )
    err = _lib.Error()
    if _config_lib.backend_register(byref(table), byref(err)):
        raise error_of(err)
    _known[name] = (table, array, fields)


def _fields(sandbox: type, manager: type) -> Any:
    """A field of the configuration for each that a constructor takes and that can be
    written there."""
    usual = {one.name for one in dataclasses.fields(BaseSandbox)}
    usual |= {one.name for one in dataclasses.fields(BaseSandboxManager)}
    for cls in (sandbox, manager):
        for one in dataclasses.fields(cls):
            kind = _TYPES.get(_plain_type(one.type))
            if one.init and one.name not in usual and kind is not None:
                usual.add(one.name)
                about = f"{cls.__name__}.{one.name}"
                yield _config_lib.Field(
                    name=one.name.encode(), type=_NUMBERS[kind], about=about.encode()
                )


def _plain_type(annotation: Any) -> str:
    """As it is written, without "or None"."""
    spelled = annotation if isinstance(annotation, str) else _spelled(annotation)
    parts = [part.strip() for part in spelled.split("|")]
    return " | ".join(part for part in parts if part != "None")


def _spelled(annotation: Any) -> str:
    return annotation.__name__ if type(annotation) is type else str(annotation)


# --- What libcay is told if it tries --------------------------------------------------------


def _refuse(*arguments: Any) -> int:
    err = arguments[-1]
    if err:
        err.contents.code = errors.Unsupported.code
        err.contents.op = b"backend.python"
        err.contents.message = b"this backend is written in Python"
        err.contents.hint = b"use it from the Python program that has it"
    return errors.Unsupported.code


_REFUSALS = {
    "create": _config_lib.BackendCreate(_refuse),
    "connect": _config_lib.BackendConnect(_refuse),
    "free": _config_lib.BackendFree(lambda _: None),
    "id": _config_lib.BackendId(lambda _: None),
    "state": _config_lib.BackendState(_refuse),
    "kill": _config_lib.BackendAct(_refuse),
    "exec": _config_lib.BackendExec(_refuse),
    "open_files": _config_lib.BackendOpenFiles(_refuse),
}
