# SPDX-License-Identifier: Apache-2.0
"""Old and new spellings of the same arguments, and what constructors are not given.

NexAU's early documents say ``_work_dir`` and ``persist_sandbox`` where later ones say
``work_dir`` and ``status_after_run``; a configuration and a saved state also have a
``type`` and a ``sandbox_type``, which name the class and are not for it.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

__all__ = [
    "AfterRun",
    "Given",
    "Spelled",
    "after_run_of",
    "extract_dataclass_init_kwargs",
    "overlaid",
    "respelled",
    "written",
]

AfterRun = Literal["pause", "stop", "none"]

_T = TypeVar("_T")


def _init_names(cls: type) -> set[str]:
    return {field.name for field in fields(cls) if field.init}


def extract_dataclass_init_kwargs(
    cls: type[_T], m: Mapping[str, Any], *, ignore_extra: bool = True
) -> dict[str, Any]:
    """Of a mapping, what the constructor of a dataclass takes.

    What it does not take is left out, or a TypeError without ``ignore_extra``.
    """
    if not is_dataclass(cls):
        raise TypeError(f"{cls!r} is no dataclass")
    names = _init_names(cls)
    extra = sorted(str(name) for name in m if name not in names)
    if extra and not ignore_extra:
        raise TypeError(f"{cls.__name__} takes no {', '.join(extra)}")
    return {name: value for name, value in m.items() if name in names}


_AFTER_RUN = ("persist_sandbox", "status_after_run")


def after_run_of(config: Any) -> str | None:
    """What a configuration says is to happen after a run, as libcay reads it."""
    if isinstance(config, Given):
        config = written(config)
    if not isinstance(config, Mapping):
        config = {name: getattr(config, name, None) for name in _AFTER_RUN}
    said = {name: config[name] for name in _AFTER_RUN if config.get(name) is not None}
    if not said:
        return None
    from cay.sandbox.configs import after_run  # made of what is here

    return after_run({"type": "native", **said})


def overlaid(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a configuration with others over them; two of them are spellings of
    one."""
    below = dict(values)
    if any(name in over for name in _AFTER_RUN):
        below = {name: one for name, one in values.items() if name not in _AFTER_RUN}
    return {**below, **over}


def respelled(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the constructor of a dataclass wants them."""
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


class Spelled(ABCMeta):
    """The class of dataclasses whose constructors take every spelling."""

    if not TYPE_CHECKING:  # which would see the arguments of this one only

        def __call__(cls, *args, **kwargs):
            return super().__call__(*args, **respelled(cls, kwargs))


class Given:
    """What a constructor was given is remembered, for it may be what would be there
    anyway; no field, for it is no data."""

    _given: frozenset[str]

    def __new__(cls, *_: Any, **given: Any) -> Any:
        self = super().__new__(cls)
        self._given = frozenset(given)
        return self


def written(values: Any) -> dict[str, Any]:
    """Of such a dataclass, the fields that somebody has set; None is as if nobody had."""
    found = {}
    for one in fields(values):
        if not one.init:
            continue
        usual = one.default
        if one.default_factory is not MISSING:
            usual = one.default_factory()
        value = getattr(values, one.name)
        is_set = one.name in values._given or value != usual or one.name == "type"
        if is_set and value is not None:
            found[one.name] = value
    return found
