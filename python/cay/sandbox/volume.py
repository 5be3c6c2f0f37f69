# SPDX-License-Identifier: Apache-2.0
"""Volumes: directories with a name that outlive sandboxes."""

from __future__ import annotations

from ctypes import byref, c_char_p, sizeof
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from cay import _c
from cay.sandbox import options as _options
from cay.sandbox.sandbox import Sandbox


@dataclass(frozen=True)
class Volume:
    """A directory that several sandboxes can share, and that outlives them.

        Volume.create("data")
        Sandbox.create(volumes=["data:/data"])

    A file has the same owner in every sandbox: the user inside that created it.
    """

    name: str
    created: datetime
    sandboxes: int
    """that used it when it was listed, running or stopped"""
    size: int | None
    """the limit in bytes; None: none"""

    @classmethod
    def create(cls, name: str, size: _options.Size | None = None) -> Volume:
        """``size`` limits its files, as bytes or "1G"; the space is reserved, and root is
        needed."""
        options = _c.VolumeOptions(
            size=sizeof(_c.VolumeOptions),
            name=_options.text(name, "name"),
            bytes=_options.size(size, "size"),
        )
        _c.call(_c.volume_create, byref(options))
        return next(volume for volume in cls.list() if volume.name == name)

    @classmethod
    def list(cls) -> list[Volume]:
        """All of this user, by name."""
        return [cls._of(info) for info in _c.listed(_c.volume_list, _c.VolumeInfo)]

    def remove(self) -> None:
        """Removes it with its files; SandboxBusyError while a sandbox uses it."""
        _c.call(_c.volume_remove, c_char_p(_options.text(self.name, "name")))

    def open(self) -> Sandbox:
        """A new ephemeral sandbox for the volume's files, which are its working directory.

            with volume.open() as sandbox:
                sandbox.files.write("hello.txt", "hello")
        """
        return Sandbox.create(
            volumes=[f"{self.name}:{_c.VOLUME_PATH}"],
            workdir=_c.VOLUME_PATH,
            ephemeral=True,
        )

    @classmethod
    def _of(cls, info: Any) -> Volume:
        created = datetime.fromtimestamp(info.created_ms / 1000, timezone.utc)
        return cls(info.name.decode(), created, info.sandboxes, info.bytes or None)
