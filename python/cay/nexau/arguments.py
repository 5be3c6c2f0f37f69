# SPDX-License-Identifier: Apache-2.0
"""Constructor arguments: old names, and which of them were set.

NexAU's early documents have ``_work_dir`` and ``persist_sandbox`` where later ones have
``work_dir`` and ``status_after_run``.  A configuration and a saved state also have a
``type`` and a ``sandbox_type``, which select the class and are not arguments of it.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from cay.sandbox import config as c_config

AfterRun = Literal["pause", "stop", "none"]

_T = TypeVar("_T")
_AFTER_RUN = ("persist_sandbox", "status_after_run")


def _init_names(cls: type) -> set[str]:
    return {field.name for field in fields(cls) if field.init}


def extract_dataclass_init_kwargs(
    cls: type[_T], m: Mapping[str, Any], *, ignore_extra: bool = True
) -> dict[str, Any]:
    """The items of a mapping that the constructor of a dataclass takes.

    Other items are dropped, or a TypeError without ``ignore_extra``.
    """
    if not is_dataclass(cls):
        raise TypeError(f"{cls!r} is not a dataclass")
    names = _init_names(cls)
    extra = sorted(str(name) for name in m if name not in names)
    if extra and not ignore_extra:
        raise TypeError(f"{cls.__name__} has no field {', '.join(extra)}")
    return {name: value for name, value in m.items() if name in names}


def after_run_of(config: Any) -> str | None:
    """The end of a run in a configuration, under either name; None if not set."""
    if isinstance(config, TracksArguments):
        config = explicit_values(config)
    if not isinstance(config, Mapping):
        config = {name: getattr(config, name, None) for name in _AFTER_RUN}
    given = {name: config[name] for name in _AFTER_RUN if config.get(name) is not None}
    return c_config.after_run({"type": "native", **given}) if given else None


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two configurations; ``over`` wins, also under the other name of a key."""
    below = dict(values)
    if any(name in over for name in _AFTER_RUN):
        below = {name: one for name, one in values.items() if name not in _AFTER_RUN}
    return {**below, **over}


def current_names(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments under the names that the constructor of a dataclass has for them."""
    known = _init_names(cls)
    result = dict(given)
    if "_work_dir" in result and "_work_dir" not in known:
        old = result.pop("_work_dir")
        result.setdefault("work_dir", old)
    if "persist_sandbox" not in known:
        after = after_run_of(result)
        result = {name: one for name, one in result.items() if name not in _AFTER_RUN}
        if after is not None:
            result["status_after_run"] = after
    for name in ("type", "sandbox_type", "status_after_run"):
        if name not in known:
            result.pop(name, None)
    if isinstance(result.get("work_dir"), str):
        result["work_dir"] = Path(result["work_dir"])
    return result


class AcceptsOldNames(ABCMeta):
    """The metaclass of dataclasses whose constructors accept old names, too."""

    if not TYPE_CHECKING:  # a type checker would see only these arguments

        def __call__(cls, *args, **kwargs):
            return super().__call__(*args, **current_names(cls, kwargs))


class TracksArguments:
    """Remembers which arguments its constructor got, which may equal the defaults."""

    _given: frozenset[str]  # not a field: it is not data

    def __new__(cls, *_: Any, **given: Any) -> Any:
        self = super().__new__(cls)
        self._given = frozenset(given)
        return self


def explicit_values(values: Any) -> dict[str, Any]:
    """The fields of such a dataclass that were set; None counts as not set."""
    found = {}
    for one in fields(values):
        if not one.init:
            continue
        default = one.default
        if one.default_factory is not MISSING:
            default = one.default_factory()
        value = getattr(values, one.name)
        is_set = one.name in values._given or value != default or one.name == "type"
        if is_set and value is not None:
            found[one.name] = value
    return found
