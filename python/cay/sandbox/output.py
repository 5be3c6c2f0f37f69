# SPDX-License-Identifier: Apache-2.0
"""Output made fit to read, as ``clean_output`` does it; libcay's, one step at a time."""

from __future__ import annotations

from ctypes import byref, c_size_t
from typing import Any

from cay import _agent_lib, _lib

__all__ = [
    "clean_shell_output",
    "collapse_repetitive",
    "resolve_cr",
    "smart_truncate_output",
    "strip_ansi",
]


def _apply(function: Any, text: str, *more: int) -> str:
    data, length = text.encode("utf-8", "replace"), c_size_t()
    made = function(_lib.address(data), len(data), *more, byref(length))
    if made is None:
        raise MemoryError
    try:
        return _lib.text(made, length.value)
    finally:
        _lib.free(made)


def strip_ansi(text: str) -> str:
    """Without the escape sequences of terminals."""
    return _apply(_agent_lib.text_strip_ansi, text)


def resolve_cr(text: str) -> str:
    """Of each line what a terminal would show: what follows the last carriage return."""
    return _apply(_agent_lib.text_resolve_cr, text)


def collapse_repetitive(text: str, min_run: int = 4) -> str:
    """Runs of lines that are the same, as one, a count and one more; blank ones stay."""
    return _apply(_agent_lib.text_collapse, text, min_run)


def clean_shell_output(text: str) -> str:
    """All of these."""
    return _apply(_agent_lib.text_clean, text)


def smart_truncate_output(
    stdout: str,
    stderr: str,
    output_dir: str | None,
    threshold: int = _agent_lib.THRESHOLD_CHARS,
    head_chars: int = _agent_lib.HEAD_CHARS,
    tail_chars: int = _agent_lib.TAIL_CHARS,
) -> tuple[str, str, bool, int | None, int | None]:
    """Both cleaned and, if they have ``threshold`` characters or more, each cut in its
    middle; whether anything was cut, and then how long they were."""
    streams = [clean_shell_output(stdout), clean_shell_output(stderr)]
    lengths = [len(stream) for stream in streams]
    cuts = list(streams)
    if sum(lengths) >= threshold:
        cuts = [
            _cut(
                stream, output_dir and f"{output_dir}/{name}.txt", head_chars, tail_chars
            )
            for stream, name in zip(streams, ("stdout", "stderr"))
        ]
    if cuts == streams:
        return streams[0], streams[1], False, None, None
    return cuts[0], cuts[1], True, lengths[0], lengths[1]


def _cut(text: str, path: str | None, head: int, tail: int) -> str:
    omitted = len(text) - head - tail
    if omitted <= 0:
        return text
    where = f"[The whole output: {path}]\n" if path else ""
    return (
        f"{text[:head]}\n\n[... {omitted:,} characters omitted ...]\n{where}\n"
        f"{text[len(text) - tail :]}"
    )
