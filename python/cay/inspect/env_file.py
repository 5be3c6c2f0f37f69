# SPDX-License-Identifier: Apache-2.0
"""What `env_file` names: a file of variables in the compose specification's syntax."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from cay.inspect.variables import interpolate
from cay.sandbox.errors import SandboxValueError

__all__ = ["read_env_file"]

_NOTHING = re.compile(r"(?:\s|#[^\n]*)*")
_VARIABLE = re.compile(
    r"""(?:export[ \t]+)? (?P<name>[A-Za-z_][\w.\[\]-]*) [ \t]*
        (?: [=:] [ \t]* (?: "(?P<double>(?:[^"\\]|\\[\s\S])*)"
                          | '(?P<single>(?:[^'\\]|\\[\s\S])*)' ) [ \t]*(?:\#.*)?
          | [=:] (?![ \t]*["']) (?P<plain>.*)
          | (?:\#.*)? ) $""",
    re.ASCII | re.MULTILINE | re.VERBOSE,
)
_ESCAPED = re.compile(r"\\([\s\S])")
# \$ becomes what interpolation makes a dollar sign of.
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "$": "$$"}


def read_env_file(file: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Its variables; a name without a value is passed on, if `environment` has it."""
    text = file.read_text(encoding="utf-8-sig")
    variables: dict[str, str] = {}
    for line, found in _statements(text, file):
        name, where = found["name"], f"line {line} of {file}"
        known = {**variables, **environment}
        if found["single"] is not None:
            variables[name] = _ESCAPED.sub(_unquoted, found["single"])
        elif found["double"] is not None:
            unescaped = _ESCAPED.sub(_unescaped, found["double"])
            variables[name] = interpolate(unescaped, known, where)
        elif found["plain"] is not None:
            bare = re.sub(r"\s#.*", "", found["plain"]).strip()
            variables[name] = interpolate(bare, known, where)
        elif name in environment:
            variables[name] = environment[name]
    return variables


def _statements(text: str, file: Path) -> Iterator[tuple[int, re.Match[str]]]:
    """Each with the number of its line."""
    at = 0
    while True:
        blank = _NOTHING.match(text, at)
        at = blank.end() if blank else at
        if at == len(text):
            return
        line = text.count("\n", 0, at) + 1
        found = _VARIABLE.match(text, at)
        if found is None:
            raise SandboxValueError(
                f"{text[at:].splitlines()[0]!r} is no variable",
                subject=f"line {line} of {file}",
                hint="write NAME=value; quotes end where they began, and only a comment "
                "may follow",
            )
        yield line, found
        at = found.end()


def _unquoted(escaped: re.Match[str]) -> str:
    return "'" if escaped[1] == "'" else escaped[0]


def _unescaped(escaped: re.Match[str]) -> str:
    return _ESCAPES.get(escaped[1], escaped[0])
