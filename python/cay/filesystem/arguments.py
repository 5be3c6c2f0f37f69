# SPDX-License-Identifier: Apache-2.0
"""What callers give, as C takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cay import _lib
from cay.filesystem.errors import invalid

EditPair = tuple[str, str] | Mapping[str, str | bool]
"""(old_text, new_text), or a mapping with those keys and perhaps replace_all."""

_EDIT = {"old_text": str, "new_text": str, "replace_all": bool}


def take_edit(edit: EditPair) -> tuple[str, str, int]:
    """The texts, and the flags."""
    given: Any = edit
    if isinstance(edit, (tuple, list)) and len(edit) == 2:
        given = {"old_text": edit[0], "new_text": edit[1]}
    if not isinstance(given, Mapping) or not (
        {"old_text", "new_text"} <= given.keys() <= _EDIT.keys()
        and all(isinstance(value, _EDIT[key]) for key, value in given.items())
    ):
        raise invalid(
            f"{edit!r} is no edit",
            "Give old_text and new_text, in a pair or in a mapping, which may say "
            "replace_all, too",
        )
    flags = _lib.EDIT_ALL if given.get("replace_all") else 0
    return given["old_text"], given["new_text"], flags


def need_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise invalid(f"{what} is text, not {type(value).__name__}", "Give it as a str")


def lend_text(content: str, what: str) -> tuple[int, int]:
    need_text(content, what)
    try:
        return _lib.utf8(content)
    except UnicodeEncodeError:
        raise invalid(
            f"{what} holds half a surrogate pair, which is no text",
            "Leave out characters from U+D800 to U+DFFF",
        ) from None


def to_bytes(data: bytes) -> bytes:
    """All the bytes, whatever the buffer's items are."""
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise invalid(
            f"bytes are needed, not {type(data).__name__}", "Give bytes, or encode text"
        ) from None


def content_bytes(content: str | bytes) -> bytes:
    if not isinstance(content, str):
        return to_bytes(content)
    lend_text(content, "content")
    return content.encode()


def milliseconds(timeout: float) -> int:
    if timeout != timeout:
        raise invalid("timeout is not a number", "Give it in seconds")
    return int(min(max(timeout * 1000, 1), 2**32 - 1))


def write_flags(in_place: bool, new: bool, durable: bool) -> int:
    return (
        (_lib.WRITE_IN_PLACE if in_place else 0)
        | (_lib.WRITE_NEW if new else 0)
        | (_lib.WRITE_DURABLE if durable else 0)
    )


def plain_text(value: str, what: str) -> bytes:
    need_text(value, what)
    name = _lib.encode(value)
    if name is None:
        raise invalid(
            f"{what} must not contain a NUL byte or half a surrogate pair: {value!r}",
            "Leave them out",
        )
    return name


def pattern_text(pattern: str) -> bytes:
    need_text(pattern, "pattern")
    return plain_text(pattern.replace("\\", "/").strip(), "pattern")


def pattern_texts(patterns: Sequence[str]) -> list[bytes]:
    # A str is a sequence, too, of patterns that nobody means.
    if isinstance(patterns, (str, bytes)):
        raise invalid("exclude is a list of patterns", f"Write [{patterns!r}]")
    return [pattern_text(pattern) for pattern in patterns]
