# SPDX-License-Identifier: Apache-2.0
"""Variables as the compose specification has them: where they stand, and what they are.

A variable that is not set and has no default is an error here, where Docker would put an
empty text and a warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cay.sandbox.errors import SandboxValueError

__all__ = ["interpolate", "metadata_variables"]

_DOLLAR = re.compile(r"\$(?:(\$)|([A-Za-z_]\w*)|\{)", re.ASCII)
_BRACE = re.compile(r"\$\{|\}")
_BRACED = re.compile(r"([A-Za-z_]\w*)(?:(:?)([-?+])(.*))?", re.ASCII | re.DOTALL)


def metadata_variables(metadata: Mapping[str, Any]) -> dict[str, str]:
    """A sample's metadata, named as Inspect's docker provider does."""
    return {
        f"SAMPLE_METADATA_{str(key).replace(' ', '_').upper()}": str(value)
        for key, value in metadata.items()
    }


def interpolate(
    value: Any, environment: Mapping[str, str], where: str = "the compose file"
) -> Any:
    """$NAME, ${NAME}, ${NAME:-default}, ${NAME:?why}, ${NAME:+instead} and $$ in every
    string; what is after an operator may have variables too."""
    if isinstance(value, str):
        return _replaced(value, environment, where)
    if isinstance(value, dict):
        return {key: interpolate(one, environment, where) for key, one in value.items()}
    if isinstance(value, list):
        return [interpolate(one, environment, where) for one in value]
    return value


def _replaced(text: str, environment: Mapping[str, str], where: str) -> str:
    parts, done = [], 0
    while found := _DOLLAR.search(text, done):
        parts.append(text[done : found.start()])
        done = found.end()
        dollar, name = found.groups()
        if dollar:
            parts.append("$")
            continue
        if name is None:
            end = _closing(text, done)
            name, done = text[done:end], end + 1
            if end < 0 or not _BRACED.fullmatch(name):
                raise SandboxValueError(
                    f"{text[found.start() :]!r} is no variable as compose has them",
                    subject=where,
                    hint="write ${NAME}, with :-, :? or :+ and a text after the name if "
                    "need be, and $$ for a dollar sign",
                )
        parts.append(_value(name, environment, where))
    return "".join(parts) + text[done:]


def _closing(text: str, start: int) -> int:
    """Where the brace ends that was opened before `start`, or -1."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "${" else -1
        if depth == 0:
            return brace.start()
    return -1


def _value(braced: str, environment: Mapping[str, str], where: str) -> str:
    """Of what is between the braces."""
    found = _BRACED.fullmatch(braced)
    assert found
    name, colon, operator, rest = found.groups()
    value = environment.get(name)
    is_there = value is not None and not (colon and not value)
    if operator == "+":
        return _replaced(rest, environment, where) if is_there else ""
    if is_there:
        assert value is not None
        return value
    if operator == "-":
        return _replaced(rest, environment, where)
    why = f": {_replaced(rest, environment, where)}" if rest else ""
    raise SandboxValueError(
        f"the variable {name} is not set{why}",
        subject=where,
        hint=f"set {name}, or write ${{{name}:-default}}",
    )
