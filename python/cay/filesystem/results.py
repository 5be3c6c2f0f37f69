# SPDX-License-Identifier: Apache-2.0
"""The results of the file operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import BaseModel, Field

from cay import _c


class ReadResult(BaseModel):
    """A page of a text file."""

    content: str = Field(description="The text that was read")
    truncated: bool = Field(description="Whether more text follows")
    total_chars: int = Field(description="Characters in the whole file")
    offset: int = Field(description="Where the text starts, in characters")
    chars_read: int = Field(description="Characters in content")


class LinesResult(BaseModel):
    """Some lines of a text file."""

    content: str = Field(description="The lines, with their line ends")
    truncated: bool = Field(description="Whether more lines follow")
    total_lines: int = Field(description="Lines in the whole file")
    offset: int = Field(description="The first line's number, counted from 0")
    lines_read: int = Field(description="Lines in content")


@dataclass(frozen=True)
class FileStat:
    """Type, size, mode, owner and time of a path."""

    type: Literal["file", "directory", "link", "other"]
    bytes: int
    mode: int
    """permission bits"""
    uid: int
    gid: int
    links: int
    mtime_ns: int

    @classmethod
    def _of(cls, stat: Any) -> FileStat:
        return cls(
            type=cast(
                Literal["file", "directory", "link", "other"], _c.TYPES[stat.type]
            ),
            bytes=stat.bytes,
            mode=stat.mode,
            uid=stat.uid,
            gid=stat.gid,
            links=stat.links,
            mtime_ns=stat.mtime_ns,
        )


@dataclass(frozen=True)
class Entry:
    """A name in a listing."""

    path: str
    stat: FileStat


@dataclass(frozen=True)
class GrepMatch:
    """A line that matched."""

    path: str
    line: int
    """from 1"""
    column: int
    """byte in the line, from 1"""
    text: str


@dataclass(frozen=True)
class GrepResult:
    """The lines that matched, by path and then line."""

    matches: list[GrepMatch]
    files_searched: int
    files_skipped: int
    """binary, too large, suffix not allowed, unreadable; also unreadable directories"""
    truncated: bool
    """whether there are more than max_matches"""


@dataclass(frozen=True)
class TarResult:
    """How much a tar stream contained."""

    entries: int
    bytes: int
    skipped: int
    """special files, links that lead out, and files refused for suffix or size"""
