# SPDX-License-Identifier: Apache-2.0
"""Variables of the compose specification: their interpolation, and files with them.

A variable that is not set and has no default is an error here; Docker warns and uses an
empty string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cay.errors import SandboxValueError

_DOLLAR = re.compile(r"\$(?:(\$)|([A-Za-z_]\w*)|\{)", re.ASCII)
_BRACE = re.compile(r"\$\{|\}")
_BRACED = re.compile(r"([A-Za-z_]\w*)(?:(:?)([-?+])(.*))?", re.ASCII | re.DOTALL)


def metadata_variables(metadata: Mapping[str, Any]) -> dict[str, str]:
    """A sample's metadata under the names of Inspect's docker provider."""
    return {
        f"SAMPLE_METADATA_{str(key).replace(' ', '_').upper()}": str(value)
        for key, value in metadata.items()
    }


def interpolate(
    value: Any, environment: Mapping[str, str], where: str = "the compose file"
) -> Any:
    """$NAME, ${NAME}, ${NAME:-default}, ${NAME:?why}, ${NAME:+instead} and $$ in every
    string; the text after an operator may contain variables, too."""
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
                    f"invalid variable {text[found.start() :]!r}",
                    subject=where,
                    hint="use ${NAME}, optionally with :-, :? or :+ and a text after the "
                    "name, and $$ for a dollar sign",
                )
        parts.append(_value(name, environment, where))
    return "".join(parts) + text[done:]


def _closing(text: str, start: int) -> int:
    """The index of the brace that closes the one before `start`, or -1."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "${" else -1
        if depth == 0:
            return brace.start()
    return -1


def _value(braced: str, environment: Mapping[str, str], where: str) -> str:
    """The value of the text between the braces."""
    found = _BRACED.fullmatch(braced)
    assert found
    name, colon, operator, rest = found.groups()
    value = environment.get(name)
    is_set = value is not None and not (colon and not value)
    if operator == "+":
        return _replaced(rest, environment, where) if is_set else ""
    if is_set:
        assert value is not None
        return value
    if operator == "-":
        return _replaced(rest, environment, where)
    why = f": {_replaced(rest, environment, where)}" if rest else ""
    raise SandboxValueError(
        f"the variable {name} is not set{why}",
        subject=where,
        hint=f"set {name}, or use ${{{name}:-default}}",
    )


# --- env_file -----------------------------------------------------------------------------

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
# \$ becomes $$, which interpolation makes a dollar sign.
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "$": "$$"}


def read_env_file(file: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in a file; a name without a value has that of `environment`."""
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
    """The statements, each with its line number."""
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
                f"invalid variable {text[at:].splitlines()[0]!r}",
                subject=f"line {line} of {file}",
                hint="use NAME=value; close quotes, with nothing but a comment after them",
            )
        yield line, found
        at = found.end()


def _unquoted(escaped: re.Match[str]) -> str:
    return "'" if escaped[1] == "'" else escaped[0]


def _unescaped(escaped: re.Match[str]) -> str:
    return _ESCAPES.get(escaped[1], escaped[0])
