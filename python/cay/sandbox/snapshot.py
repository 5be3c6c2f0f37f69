# SPDX-License-Identifier: Apache-2.0
"""Snapshots: files of sandboxes that outlive them."""

from __future__ import annotations

import os
from ctypes import byref, c_char_p, sizeof
from dataclasses import dataclass
from datetime import datetime, timezone
from os import PathLike
from typing import Any

from cay import _c
from cay.sandbox import options as _options
from cay.sandbox.checkpoint import Checkpoint
from cay.sandbox.sandbox import Sandbox


@dataclass(frozen=True)
class Snapshot:
    """The files of a sandbox under a name, on disk.

        Snapshot.create(sandbox, "prepared")
        Sandbox.create(from_="prepared")

    Processes, environment, mounts and network are not part of it.
    """

    name: str
    sandbox: str
    """the ID of the sandbox it was created from"""
    template: str
    user: str
    workdir: str
    created: datetime
    size: int
    """of the files that differ from the template, in bytes"""
    sandboxes: int
    """that used it when it was looked up, running or stopped"""

    @classmethod
    def create(
        cls,
        sandbox: Sandbox,
        name: str,
        which: int | str | Checkpoint | None = None,
        *,
        stop: bool = False,
        replace: bool = False,
    ) -> Snapshot:
        """``name`` may have a tag: "name:tag".  ``which`` is a checkpoint; without it the
        files are those of now: SandboxBusyError if a process runs inside, unless ``stop``
        ends it first.  ``replace`` replaces a snapshot that no sandbox uses."""
        word = which.id if isinstance(which, Checkpoint) else which
        options, info = _c.SnapshotOptions(), _c.SnapshotInfo()
        options.size = sizeof(options)
        options.name = _options.text(name, "name")
        options.checkpoint = _options.optional(None if word is None else str(word), "which")
        options.mode = int(stop)
        options.replace = replace
        sandbox._call(_c.snapshot_create, byref(options), byref(info))
        return cls._of(info)

    @classmethod
    def list(cls) -> list[Snapshot]:
        """All of this user, by name."""
        return [cls._of(info) for info in _c.listed(_c.snapshot_list, _c.SnapshotInfo)]

    @classmethod
    def get(cls, name: str) -> Snapshot:
        info = _c.SnapshotInfo()
        _c.call(_c.snapshot_inspect, c_char_p(_options.text(name, "name")), byref(info))
        return cls._of(info)

    def export(self, file: str | PathLike[str] | int) -> None:
        """Writes it to a new file, or to a descriptor, as an OCI image layout in a tar archive,
        with the layers of its template.  Above "host" and "base" the archive has only the
        files that differ from those."""
        name = c_char_p(_options.text(self.name, "name"))
        if isinstance(file, int):
            _c.call(_c.snapshot_export, name, file)
            return
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _c.call(_c.snapshot_export, name, fd)
        except BaseException:
            os.unlink(file)
            raise
        finally:
            os.close(fd)

    @classmethod
    def import_(cls, file: str | PathLike[str] | int, name: str | None = None) -> Snapshot:
        """From such an archive, a file or a descriptor; without ``name`` under the name
        that it has there.  CayError if a part does not match its digest."""
        info = _c.SnapshotInfo()
        word = c_char_p(_options.optional(name, "name"))
        if isinstance(file, int):
            _c.call(_c.snapshot_import, file, word, byref(info))
            return cls._of(info)
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _c.call(_c.snapshot_import, fd, word, byref(info))
        finally:
            os.close(fd)
        return cls._of(info)

    def remove(self) -> None:
        """SandboxBusyError while a sandbox uses it."""
        _c.call(_c.snapshot_remove, c_char_p(_options.text(self.name, "name")))

    @classmethod
    def _of(cls, info: Any) -> Snapshot:
        return cls(
            info.name.decode(),
            info.sandbox.decode(),
            info.template_name.decode(),
            info.user.decode(),
            info.workdir.decode(),
            datetime.fromtimestamp(info.created_ms / 1000, timezone.utc),
            info.bytes,
            info.sandboxes,
        )
