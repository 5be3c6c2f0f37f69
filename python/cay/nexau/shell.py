# SPDX-License-Identifier: Apache-2.0
"""Shell commands and their output: cleaning and truncating, and here-documents.

``clean_output`` does the former in libcay; these are its steps.  Commands are passed to
bash unchanged; the functions for here-documents are for programs that look for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cay import _c

# --- Output -------------------------------------------------------------------------------


def strip_ansi(text: str) -> str:
    """Removes the escape sequences of terminals."""
    return _c.clean(_c.text_strip_ansi, text)


def resolve_cr(text: str) -> str:
    """Keeps the part of each line after its last carriage return, as a terminal shows."""
    return _c.clean(_c.text_resolve_cr, text)


def collapse_repetitive(text: str, min_run: int = 4) -> str:
    """Replaces runs of equal lines by the first, a count and the last; not blank ones."""
    return _c.clean(_c.text_collapse, text, min_run)


def clean_shell_output(text: str) -> str:
    """strip_ansi(), resolve_cr() and collapse_repetitive()."""
    return _c.clean(_c.text_clean, text)


def smart_truncate_output(
    stdout: str,
    stderr: str,
    output_dir: str | None,
    threshold: int = _c.THRESHOLD_CHARS,
    head_chars: int = _c.HEAD_CHARS,
    tail_chars: int = _c.TAIL_CHARS,
) -> tuple[str, str, bool, int | None, int | None]:
    """Cleans both streams and, if they have ``threshold`` characters or more, removes the
    middle of each.  Returns both, whether they are truncated, and the lengths before."""
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


# --- Here-documents -----------------------------------------------------------------------

HEREDOC_PATTERN = re.compile(r"<<-?\s*['\"]?\w+['\"]?")
"""Finds possible here-documents; also `$((1<<3))`."""

_OPENER = re.compile(r"<<(?P<dash>-?)[ \t]*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)")


@dataclass(frozen=True)
class BashHeredocBlock:
    """The parts of a command with one here-document."""

    opener: str
    """<<'EOF'"""
    body: str
    delimiter: str
    quoted: bool
    """the shell does not expand variables in the body"""
    strip_tabs: bool
    """<<-: the shell removes tabs at the beginning of lines"""
    command_prefix: str
    command_suffix: str
    """the rest of the line after the opener"""


def contains_heredoc(command: str) -> bool:
    """Whether the command may contain a here-document."""
    return HEREDOC_PATTERN.search(command) is not None


def parse_single_bash_heredoc(command: str) -> BashHeredocBlock | None:
    """The parts of a command that ends with its only here-document; else None."""
    first, newline, rest = command.partition("\n")
    openers = list(_OPENER.finditer(first))
    if len(openers) != 1 or not newline:
        return None
    (opener,) = openers
    strip_tabs = opener["dash"] == "-"
    lines = rest.split("\n")
    if strip_tabs:
        lines = [line.lstrip("\t") for line in lines]
    if opener["word"] not in lines:
        return None
    end = lines.index(opener["word"])
    if any(line.strip() for line in lines[end + 1 :]):
        return None
    return BashHeredocBlock(
        opener=opener[0],
        body="".join(line + "\n" for line in lines[:end]),
        delimiter=opener["word"],
        quoted=bool(opener["quote"]),
        strip_tabs=strip_tabs,
        command_prefix=first[: opener.start()].rstrip(),
        command_suffix=first[opener.end() :],
    )
