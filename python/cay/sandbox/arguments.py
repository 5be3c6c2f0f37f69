# SPDX-License-Identifier: Apache-2.0
"""Keyword arguments under the names that other sandboxes have for them."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["helpful"]

P = ParamSpec("P")
R = TypeVar("R")

_CREATE = {
    "cpu": "cpus=",
    "cpu_count": "cpus=",
    "cwd": "workdir=",
    "work_dir": "workdir=",
    "working_dir": "workdir=",
    "environment": "env=",
    "envs": "env=",
    "image": "template=, the name of a template: cay template create NAME --from-oci FILE",
    "lifetime": "ttl=",
    "mem_limit": "memory=",
    "mounts": "volumes=",
    "timeout": "ttl= for the life of the sandbox, or exec(timeout=) for a command",
}


def helpful(function: Callable[P, R]) -> Callable[P, R]:
    """A TypeError about an unknown keyword argument names the right one."""
    known = list(inspect.signature(function).parameters)[1:]

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise TypeError(_message(function.__name__, name, known))
        return function(*args, **kwargs)

    return called


def _message(function: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    instead = _CREATE.get(name) or (f"{near[0]}=" if near else None)
    hint = f"use {instead}" if instead else f"it takes {', '.join(known)}"
    return f"{function}() got an unexpected keyword argument {name!r}; {hint}"
