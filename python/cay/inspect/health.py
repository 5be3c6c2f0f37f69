# SPDX-License-Identifier: Apache-2.0
"""Health checks of services: the key ``healthcheck`` of a compose file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cay.errors import SandboxValueError

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|us)")
_FORMS = 'use a command as text, or a list that starts with "CMD", "CMD-SHELL" or "NONE"'


@dataclass(frozen=True)
class Health:
    """A check; the defaults are Docker's."""

    command: tuple[str, ...]
    interval: float = 30
    timeout: float = 30
    start_period: float = 0
    retries: int = 3


def health_of(given: Any) -> Health | None:
    """The check of a ComposeHealthcheck; None if there is none."""
    if given is None or given.test is None:
        return None
    command = _command(given.test)
    if command is None:
        return None
    keys = ("interval", "timeout", "start_period", "start_interval")
    seconds = {
        key: _seconds(key, getattr(given, key))
        for key in keys
        if getattr(given, key) is not None
    }
    seconds.pop("start_interval", None)
    if given.retries is not None and given.retries < 0:
        raise SandboxValueError(
            f"retries: invalid number {given.retries}", hint="use 0 or more"
        )
    # For Docker, 0 is the default.
    seconds = {
        key: value for key, value in seconds.items() if value or key == "start_period"
    }
    return Health(command, **seconds, retries=given.retries or Health.retries)


def _command(test: str | list[str]) -> tuple[str, ...] | None:
    if isinstance(test, str):
        return ("/bin/sh", "-c", test)
    kind, *words = test or [""]
    if kind == "NONE" and not words:
        return None
    if kind == "CMD" and words:
        return tuple(words)
    if kind == "CMD-SHELL" and len(words) == 1:
        return ("/bin/sh", "-c", *words)
    raise SandboxValueError(f"test: invalid command {test!r}", hint=_FORMS)


def _seconds(key: str, given: str) -> float:
    """A duration such as 1m30s."""
    found = [*_DURATION.finditer(given)]
    if given != "0" and (not found or "".join(one[0] for one in found) != given):
        raise SandboxValueError(
            f"{key}: invalid duration {given!r}", hint="use for example 500ms or 1m30s"
        )
    return sum(float(one[1]) * _UNITS[one[2]] for one in found)
