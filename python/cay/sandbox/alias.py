# SPDX-License-Identifier: Apache-2.0
"""From the ``type`` of a configuration to the classes that do it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, get_args

from cay import _config_lib
from cay.sandbox.base import BaseSandbox
from cay.sandbox.errors import SandboxValueError
from cay.sandbox.manager import BaseSandboxManager

__all__ = [
    "SandboxAlias",
    "backend_of",
    "check_alias",
    "manager_class",
    "sandbox_class",
]

SandboxAlias: dict[str, str] = {
    "native": "NativeSandbox",
    "local": "LocalSandbox",
    "e2b": "E2BSandbox",
}
"""The name of a subclass of BaseSandbox for each type; add yours."""


def _subclasses(cls: Any) -> Iterator[Any]:
    for one in cls.__subclasses__():
        yield one
        yield from _subclasses(one)


def sandbox_class(kind: str) -> type[BaseSandbox]:
    """The class of that type; of several with one name, the last.  A type that only libcay
    knows is a BackendSandbox."""
    from cay.sandbox.backends import BackendSandbox  # and the others are there, too

    name = SandboxAlias.get(kind)
    if name is None and _config_lib.backend_find(kind.encode()):
        return BackendSandbox
    if name is None:
        near = difflib.get_close_matches(kind, SandboxAlias, 1)
        raise SandboxValueError(
            f"Unsupported sandbox type: {kind!r}",
            op="config.type",
            subject="type",
            hint=f"did you mean {near[0]!r}?" if near else _known(),
        )
    found: list[type[BaseSandbox]] = [
        cls for cls in _subclasses(BaseSandbox) if cls.__name__ == name
    ]
    if not found:
        raise SandboxValueError(
            f"there is no class {name!r} for the type {kind!r}",
            op="config.type",
            subject="type",
            hint="import the module with this subclass of BaseSandbox first",
        )
    return found[-1]


def check_alias(kind: Any) -> None:
    """That there is a class, if it is a type of the table."""
    if isinstance(kind, str) and kind in SandboxAlias:
        sandbox_class(kind)


def backend_of(kind: str) -> str:
    """The type as libcay knows it: that of the class, if it is one of libcay's."""
    cls = sandbox_class(kind) if kind in SandboxAlias else None
    return getattr(cls, "backend", "") or kind


def _known() -> str:
    listed = ", ".join(sorted(SandboxAlias))
    return f'there are {listed}; SandboxAlias["yours"] = "YourSandbox" adds one'


def manager_class(sandbox: type[BaseSandbox]) -> type[BaseSandboxManager[Any]]:
    """The BaseSandboxManager[Sandbox] of a class, or the one with that sandbox_class, or
    that of the nearest class it is made of; of several, the last."""
    from cay.sandbox.managers import BackendSandboxManager  # and the others, too

    found: dict[Any, type[BaseSandboxManager[Any]]] = {}
    found[BackendSandboxManager.sandbox_class] = BackendSandboxManager
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
        f"there is no manager for {sandbox.__name__}",
        op="config.type",
        subject="type",
        hint=f"subclass BaseSandboxManager[{sandbox.__name__}]",
    )
