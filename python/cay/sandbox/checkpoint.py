# SPDX-License-Identifier: Apache-2.0
"""Saved states of a sandbox's files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any


@dataclass(frozen=True)
class Checkpoint:
    """The state of a sandbox's files at one moment."""

    id: int
    """from 1"""
    parent: int | None
    name: str | None
    created: datetime
    cause: str
    """checkpoint; fork: what was forked; rollback: what a rollback has undone"""
    current: bool
    """the sandbox's files are this one's and what changed since"""
    bytes: int
    """that differ from the parent; only of Sandbox.checkpoints()"""
    files: int
    processes: int
    """that ran inside, and were frozen while the files were copied"""

    @classmethod
    def _of(cls, found: Any) -> Checkpoint:
        return cls(
            id=found.id,
            parent=found.parent or None,
            name=found.name.decode() or None,
            created=datetime.fromtimestamp(found.created_ms / 1000, timezone.utc),
            cause=found.cause.decode(),
            current=found.is_current,
            bytes=found.bytes,
            files=found.files,
            processes=found.processes,
        )


@dataclass(frozen=True)
class EndedProcess:
    """A process that a rollback has ended."""

    pid: int
    """inside the sandbox"""
    command: str


@dataclass(frozen=True)
class Rollback:
    """What a rollback has done."""

    undone: Checkpoint | None
    """a new checkpoint of what it has undone; None if nothing had changed"""
    ended: list[EndedProcess]
    kept: int
    """how many processes run on"""

    @classmethod
    def _of(cls, found: Any) -> Rollback:
        return cls(
            undone=Checkpoint._of(found.undone) if found.undone.id else None,
            ended=[
                EndedProcess(one.pid, one.command.decode())
                for one in found.ended[: found.ended_count]
            ],
            kept=found.kept_count,
        )
