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
    """checkpoint, or rollback: what a rollback has undone"""
    current: bool
    """the sandbox's files are this one's and what changed since"""
    bytes: int
    """that differ from the parent; only of Sandbox.checkpoints()"""
    files: int

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
        )
