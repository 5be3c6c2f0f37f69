# SPDX-License-Identifier: Apache-2.0
"""Here-documents in shell commands.

Commands are given to bash as they are, here-documents and all; these are for programs
that look for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "HEREDOC_PATTERN",
    "BashHeredocBlock",
    "contains_heredoc",
    "parse_single_bash_heredoc",
]

HEREDOC_PATTERN = re.compile(r"<<-?\s*['\"]?\w+['\"]?")
"""Finds whatever might be one; `$((1<<3))` too."""

_OPENER = re.compile(r"<<(?P<dash>-?)[ \t]*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)")


@dataclass(frozen=True)
class BashHeredocBlock:
    """A command with one here-document, in parts."""

    opener: str
    """<<'EOF'"""
    body: str
    delimiter: str
    quoted: bool
    """nothing in the body is expanded"""
    strip_tabs: bool
    """<<-: tabs at the beginning of lines do not count"""
    command_prefix: str
    command_suffix: str
    """what follows the opener on its line"""


def contains_heredoc(command: str) -> bool:
    """Whether there may be a here-document in the command."""
    return HEREDOC_PATTERN.search(command) is not None


def parse_single_bash_heredoc(command: str) -> BashHeredocBlock | None:
    """The parts of a command with exactly one here-document, which ends it."""
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
