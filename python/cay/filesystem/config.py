# SPDX-License-Identifier: Apache-2.0
"""The directories of a sandbox: one root, named paths, or mounts."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, field_validator, model_validator


class _Rules(BaseModel):
    suffixes: list[str] | None = Field(
        default=None,
        description="Allowed suffixes of files, each with its dot; None allows all",
    )
    max_file_bytes: int | None = Field(
        default=None, ge=0, description="Size limit of files, in bytes; None for no limit"
    )


class _Directory(_Rules):
    mode: Literal["ro", "rw"] = Field(
        default="ro", description="'ro' to read only, 'rw' to write too"
    )
    write_approval: bool = Field(
        default=True, description="Whether writing needs approval"
    )
    read_approval: bool = Field(
        default=False, description="Whether reading needs approval"
    )


class Mount(_Directory):
    """A host directory at a point of the virtual tree."""

    host_path: Path = Field(description="Host directory")
    mount_point: str = Field(description="Where it appears, e.g. '/docs'")

    @field_validator("mount_point")
    @classmethod
    def _normalise(cls, value: str) -> str:
        point = value.replace("\\", "/").strip()
        if "\0" in point:
            raise ValueError("mount_point must not contain a NUL byte")
        if point and not point.startswith("/"):
            raise ValueError(f"mount_point must start with '/': {value!r}")
        # normpath() keeps two leading slashes, which have no meaning here.
        return posixpath.normpath("/" + point.lstrip("/"))


class PathConfig(_Directory):
    """A host directory under a name."""

    root: str = Field(description="Host directory")


class RootSandboxConfig(_Rules):
    """A host directory that is '/'."""

    root: Path = Field(description="Host directory")
    readonly: bool = Field(default=False, description="Whether writing is forbidden")


class SandboxConfig(BaseModel):
    """The directories of a sandbox: exactly one of ``mounts``, ``root`` and ``paths``."""

    mounts: list[Mount] | None = Field(
        default=None, description="Directories at mount points: '/docs/a.txt'"
    )
    root: RootSandboxConfig | None = Field(
        default=None, description="One directory that is '/': '/a.txt'"
    )
    paths: dict[str, PathConfig] | None = Field(
        default=None, description="Directories by name: 'docs/a.txt'"
    )

    @model_validator(mode="after")
    def _one_style(self) -> SandboxConfig:
        given = [
            name
            for name in ("mounts", "root", "paths")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ValueError(
                "SandboxConfig takes exactly one of 'mounts', 'root' and 'paths', "
                f"not {' and '.join(given) if given else 'none'}"
            )
        if self.mounts is not None and not self.mounts:
            raise ValueError("SandboxConfig needs at least one mount")
        return self
