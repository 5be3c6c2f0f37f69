# SPDX-License-Identifier: Apache-2.0
"""Waiting for a descriptor that somebody else may close meanwhile.

The kernel forgets a descriptor that is closed, and whoever waits for it waits for ever.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable

__all__ = ["Watch"]


class Watch:
    """Readable when a descriptor is, and for good once it has rung."""

    def __init__(self, fd: int, events: int = select.EPOLLIN) -> None:
        self._bell: int | None = None
        self._epoll = select.epoll()
        self._epoll.register(fd, events)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def poll(self, timeout: float | None) -> None:
        """Until it is readable; takes note of an edge."""
        self._epoll.poll(timeout)

    def ring(self) -> None:
        """Wakes whoever waits."""
        self._bell = os.eventfd(1)
        self._epoll.register(self._bell, select.EPOLLIN)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        # And not before: as long as somebody waits, it is there.
        if self._bell is not None:
            _close(self._bell)
