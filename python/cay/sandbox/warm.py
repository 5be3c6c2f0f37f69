# SPDX-License-Identifier: Apache-2.0
"""Saved interpreters, of which contexts in later sandboxes start as copies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import c_char_p
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from cay import _c
from cay.sandbox import options as _options


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


@dataclass(frozen=True)
class WarmInterpreter:
    """A Python that was saved after it had started and imported modules.

    The first execution in a template saves one in the background, unless the variable
    ``CAY_WARM`` is ``off``.  It is removed ten minutes after its last use.
    """

    id: str
    template: str
    language: str
    preload: tuple[str, ...]
    """the modules that were requested; those that the template lacks are left out"""
    size: int
    """bytes on disk"""
    created: datetime
    used: datetime
    failure: str | None = None
    """why it could not be saved"""

    @classmethod
    def create(
        cls,
        template: str | os.PathLike[str] | None = None,
        *,
        preload: Sequence[str] | None = None,
    ) -> None:
        """Saves one now and waits for it.  Does nothing if there is one.

        ``preload`` are the modules; the default is numpy, pandas and matplotlib.pyplot.
        """
        _c.call(
            _c.warm_create,
            c_char_p(_options.template_name(template)),
            c_char_p(_options.preload(preload)),
        )

    @classmethod
    def list(cls) -> list[WarmInterpreter]:
        """All of this user, oldest first."""
        return [cls._of(info) for info in _c.listed(_c.warm_list, _c.WarmInfo)]

    def remove(self) -> None:
        """Removes the file; copies that run are not affected."""
        _c.call(_c.warm_remove, c_char_p(self.id.encode()))

    @classmethod
    def _of(cls, info: Any) -> WarmInterpreter:
        return cls(
            info.id.decode(),
            _c.decode(info.template_name),
            info.language.decode(),
            tuple(info.preload.decode().split(",")) if info.preload else (),
            info.bytes,
            _time(info.created_ms),
            _time(info.used_ms),
            _c.decode(info.failure) or None,
        )
