# SPDX-License-Identifier: Apache-2.0
"""From the ``type`` of a configuration to its classes, and Python backends in libcay.

libcay reads and checks configurations, so it has to know the keys of each type: for a
backend written in Python the fields of its sandbox and of its manager, and for an alias
those of the backend behind it.  libcay never creates such a sandbox itself.
"""

from __future__ import annotations

import dataclasses
import difflib
import threading
from collections.abc import Iterator
from ctypes import byref, sizeof
from typing import Any, get_args

from cay import _c
from cay.errors import SandboxUnsupportedError, SandboxValueError
from cay.nexau.base import BaseSandbox, BaseSandboxManager

SandboxAlias: dict[str, str] = {
    "native": "NativeSandbox",
    "local": "LocalSandbox",
    "e2b": "E2BSandbox",
}
"""The name of a subclass of BaseSandbox for each type; add your own."""


def _subclasses(cls: Any) -> Iterator[Any]:
    for one in cls.__subclasses__():
        yield one
        yield from _subclasses(one)


def sandbox_class(kind: str) -> type[BaseSandbox]:
    """The class of a type; of several with the same name, the last one.  A type that only
    libcay knows has the class BackendSandbox."""
    name = SandboxAlias.get(kind)
    if name is None and _c.backend_find(kind.encode()):
        name = "BackendSandbox"
    if name is None:
        near = difflib.get_close_matches(kind, SandboxAlias, 1)
        listed = ", ".join(sorted(SandboxAlias))
        raise SandboxValueError(
            f"Unsupported sandbox type: {kind!r}",
            op="config.type",
            subject="type",
            hint=f"did you mean {near[0]!r}?"
            if near
            else f'use {listed}, or add one: SandboxAlias["yours"] = "YourSandbox"',
        )
    found: list[type[BaseSandbox]] = [
        cls for cls in _subclasses(BaseSandbox) if cls.__name__ == name
    ]
    if not found:
        raise SandboxValueError(
            f"the class {name!r} of the type {kind!r} does not exist",
            op="config.type",
            subject="type",
            hint="import the module with this subclass of BaseSandbox first",
        )
    return found[-1]


def check_type(kind: Any) -> None:
    """SandboxValueError if a type in SandboxAlias has no class."""
    if isinstance(kind, str) and kind in SandboxAlias:
        sandbox_class(kind)


def backend_of(kind: str) -> str:
    """The backend of a type in libcay."""
    cls = sandbox_class(kind) if kind in SandboxAlias else None
    return getattr(cls, "backend", "") or kind


def manager_class(sandbox: type[BaseSandbox]) -> type[BaseSandboxManager[Any]]:
    """The BaseSandboxManager[Sandbox] of a class, the manager with that sandbox_class, or
    the manager of the nearest base class; of several, the last one."""
    found: dict[Any, type[BaseSandboxManager[Any]]] = {}
    for manager in _subclasses(BaseSandboxManager):
        if "sandbox_class" in vars(manager):
            found[manager.sandbox_class] = manager
        for base in vars(manager).get("__orig_bases__", ()):
            for argument in get_args(base):
                found[argument] = manager
    for cls in sandbox.__mro__:
        if cls in found:
            return found[cls]
    raise SandboxValueError(
        f"{sandbox.__name__} has no manager",
        op="config.type",
        subject="type",
        hint=f"subclass BaseSandboxManager[{sandbox.__name__}]",
    )


# --- Types that libcay does not know yet ----------------------------------------------

_FIELD_TYPES = {
    "str": "text",
    "Path": "text",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list[str]": "texts",
    "dict[str, str]": "map",
}
_NUMBERS = {name: number for number, name in _c.FIELD_TYPES.items()}

_registered: dict[str, Any] = {}
"""the memory that libcay points to, by type"""
_lock = threading.Lock()


def register_types() -> None:
    """Registers the types in SandboxAlias whose classes exist."""
    with _lock:
        for name in SandboxAlias:
            if name not in _registered and not _c.backend_find(name.encode()):
                try:
                    _register(name, sandbox_class(name))
                except SandboxValueError:
                    continue  # raised again when the type is used


def _register(name: str, sandbox: type[BaseSandbox]) -> None:
    backend = getattr(sandbox, "backend", None)
    if backend is None:
        fields = list(_fields(sandbox, manager_class(sandbox)))
    else:
        known = _c.backend_find(backend.encode())
        if not known:
            return
        fields = known.contents.fields[: known.contents.field_count]
    array = (_c.Field * max(len(fields), 1))(*fields)
    table = _c.Backend(
        size=sizeof(_c.Backend),
        name=name.encode(),
        about=f"{sandbox.__module__}.{sandbox.__qualname__}".encode(),
        fields=array,
        field_count=len(fields),
        **_CALLBACKS,
    )
    _c.call(_c.backend_register, byref(table))
    _registered[name] = (table, array, fields)


def _fields(sandbox: type, manager: type) -> Iterator[Any]:
    """A key for each constructor argument whose type a configuration can have."""
    skipped = {one.name for one in dataclasses.fields(BaseSandbox)}
    skipped |= {one.name for one in dataclasses.fields(BaseSandboxManager)}
    for cls in (sandbox, manager):
        for one in dataclasses.fields(cls):
            kind = _FIELD_TYPES.get(_type_name(one.type))
            if one.init and one.name not in skipped and kind is not None:
                skipped.add(one.name)
                about = f"{cls.__name__}.{one.name}"
                yield _c.Field(
                    name=one.name.encode(), type=_NUMBERS[kind], about=about.encode()
                )


def _type_name(annotation: Any) -> str:
    """The annotation as text, without "| None"."""
    if type(annotation) is type:
        annotation = annotation.__name__
    parts = [part.strip() for part in str(annotation).split("|")]
    return " | ".join(part for part in parts if part != "None")


def _refuse(*arguments: Any) -> int:
    err = arguments[-1]
    if err:
        err.contents.code = SandboxUnsupportedError.code
        err.contents.op = b"backend.python"
        err.contents.message = b"this backend is written in Python"
        err.contents.hint = b"use it from the Python program that defines it"
    return SandboxUnsupportedError.code


_CALLBACKS = {
    "create": _c.BackendCreate(_refuse),
    "connect": _c.BackendConnect(_refuse),
    "free": _c.BackendFree(lambda _: None),
    "id": _c.BackendId(lambda _: None),
    "state": _c.BackendState(_refuse),
    "kill": _c.BackendAct(_refuse),
    "exec": _c.BackendExec(_refuse),
    "open_files": _c.BackendOpenFiles(_refuse),
}
