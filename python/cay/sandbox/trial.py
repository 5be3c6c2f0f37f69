# SPDX-License-Identifier: Apache-2.0
"""Tries: copy-on-write views of a directory of this machine."""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Iterable
from ctypes import byref, c_char, c_size_t, sizeof, string_at
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from cay import _c
from cay.sandbox import options as _options
from cay.sandbox.checkpoint import Checkpoint

_CHECK, _SKIP_CONFLICTS, _MERGE = 1, 2, 4


@dataclass(frozen=True)
class Applied:
    """What an apply did with one path."""

    path: str
    change: str
    """added, deleted, modified, mode or type"""
    verdict: str
    """done, merged, conflict, or held: see Try.apply()"""
    reason: str | None


@dataclass(frozen=True)
class Try:
    """A copy-on-write view of a directory, which does not change until apply().

        change = Try.create("project")
        with Sandbox.create(volumes=[change.bind("/project")]) as sandbox:
            sandbox.shell("make -C /project")
        print(change.diff())
        change.apply()
        change.discard()

    One sandbox at a time can show it.
    """

    id: str
    dir: str
    note: str
    created: datetime
    race: str
    """the id of the first of the tries that compete with each other"""

    @classmethod
    def create(
        cls, dir: str | os.PathLike[str], *, note: str = "", race: Try | None = None
    ) -> Try:
        """``note`` says what it is for; ``race`` is another try with which it competes."""
        options = _c.TryOptions(
            size=sizeof(_c.TryOptions),
            dir=_options.text(dir, "dir"),
            note=_options.text(note, "note"),
            race=_options.optional(race.race if race else None, "race"),
        )
        info = _c.TryInfo()
        _c.call(_c.try_create, byref(options), byref(info))
        return cls._of(info)

    @classmethod
    def list(cls) -> list[Try]:
        """All of this user, the newest first."""
        return [cls._of(info) for info in _c.listed(_c.try_list, _c.TryInfo)]

    @classmethod
    def find(
        cls, id: str | None = None, *, dir: str | os.PathLike[str] = "."
    ) -> Try:
        """By the id or its beginning, or the newest of a directory, or of one above it."""
        info = _c.TryInfo()
        name, where = _options.optional(id, "id"), _options.text(dir, "dir")
        _c.call(_c.try_find, name, where, byref(info))
        return cls._of(info)

    def bind(self, target: str | None = None) -> _options.Bind:
        """For ``volumes`` of Sandbox.create(); the target is by default the same path."""
        path = (c_char * _c.TRY_PATH)()
        _c.call(_c.try_changes, self._id, byref(path))
        return _options.Bind(
            self.dir, target or self.dir, writable=True, changes=os.fsdecode(path.value)
        )

    def diff(self, format: str = "unified") -> str:
        """The changes as text: unified, names, stat or json."""
        return self._print(format).decode(errors="surrogateescape")

    def changes(self) -> builtins.list[dict[str, Any]]:
        """The changes: each has change, path, before, after and more, as in <cay/diff.h>."""
        found: builtins.list[dict[str, Any]] = json.loads(self._print("json"))["changes"]
        return found

    def apply(
        self,
        paths: Iterable[str] | None = None,
        *,
        dry_run: bool = False,
        merge: bool = False,
        skip_conflicts: bool = False,
    ) -> builtins.list[Applied]:
        """Changes the directory: all of it, or what is named or below that; or nothing.

        A path that was changed in the directory, too, is a conflict and raises
        SandboxChangedError, unless ``merge`` can merge its lines or ``skip_conflicts``
        applies the others.  What could run on the host, such as .git/hooks, is held back
        unless ``paths`` names it.  A path that the try has not changed raises NotFoundError.
        """
        if paths is None:
            named = []
        else:
            named = [_options.text(path, "paths") for path in paths]
            if not named:
                return []
        flags = (_CHECK | _SKIP_CONFLICTS) * dry_run
        flags |= _MERGE * merge | _SKIP_CONFLICTS * skip_conflicts
        options = _c.ApplyOptions(
            size=sizeof(_c.ApplyOptions),
            flags=flags,
            paths=_c.string_array(named),
            path_count=len(named),
        )
        report = _c.HANDLE()
        count = c_size_t()
        try:
            _c.call(_c.try_apply, self._id, byref(options), byref(report))
            entries = _c.apply_entries(report, byref(count))
            return [
                Applied(
                    os.fsdecode(one.path),
                    _c.CHANGES[one.kind],
                    _c.APPLY_VERDICTS[one.verdict],
                    one.reason.decode() if one.reason else None,
                )
                for one in entries[: count.value]
            ]
        finally:
            _c.apply_free(report)

    def discard(self) -> None:
        """Forgets the changes; SandboxBusyError while a sandbox shows the try."""
        _c.call(_c.try_discard, self._id)

    def checkpoint(self, name: str | None = None) -> Checkpoint:
        """Saves what the try has changed so far; not while a sandbox shows it."""
        found = _c.Checkpoint()
        text = _options.optional(name, "name")
        _c.call(_c.try_checkpoint, self._id, text, byref(found))
        return Checkpoint._of(found)

    def rollback(self, which: int | str | Checkpoint | None = None) -> Checkpoint | None:
        """Goes back to a checkpoint, or the newest; returns one of what that has undone."""
        found = _c.Checkpoint()
        _c.call(_c.try_rollback, self._id, self._word(which), byref(found))
        return Checkpoint._of(found) if found.id else None

    def checkpoints(self) -> builtins.list[Checkpoint]:
        """By number."""
        found = _c.listed(_c.try_checkpoints, _c.Checkpoint, self._id)
        return [Checkpoint._of(one) for one in found]

    def remove_checkpoint(self, which: int | str | Checkpoint) -> None:
        """Frees its space."""
        _c.call(_c.try_remove_checkpoint, self._id, self._word(which))

    @property
    def _id(self) -> bytes:
        return _options.text(self.id, "id")

    @staticmethod
    def _word(which: int | str | Checkpoint | None) -> bytes | None:
        if which is None:
            return None
        word = which.id if isinstance(which, Checkpoint) else which
        return _options.text(str(word), "checkpoint")

    def _print(self, format: str) -> bytes:
        number = _options.choice(format, _c.DIFF_FORMATS, "format")
        options, diff = _c.DiffOptions(size=sizeof(_c.DiffOptions)), _c.HANDLE()
        pieces: builtins.list[bytes] = []

        def write(cookie: Any, line: int, text: int, length: int) -> int:
            pieces.append(string_at(text, length))
            return 0

        _c.call(_c.try_diff, self._id, byref(options), byref(diff))
        try:
            _c.call(_c.diff_print, diff, number, _c.DiffWriter(write), None)
        finally:
            _c.diff_free(diff)
        return b"".join(pieces)

    @classmethod
    def _of(cls, info: Any) -> Try:
        created = datetime.fromtimestamp(info.created_ms / 1000, timezone.utc)
        return cls(
            info.id.decode(),
            os.fsdecode(info.dir),
            info.note.decode(errors="replace"),
            created,
            info.race.decode(),
        )
