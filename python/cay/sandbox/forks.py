# SPDX-License-Identifier: Apache-2.0
"""What a forked child does with what its parent holds: it lets go of it at once.

As long as anybody has the parent's end of a line, the other end believes that the parent
lives: what is to die with the parent would outlive it.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Inherited"]


class Inherited(Protocol):
    def _forked(self) -> None:
        """In the child, where the other threads are not, whatever they were doing."""


held: WeakSet[Inherited] = WeakSet()
"""Objects that a child would inherit."""


def _let_go() -> None:
    for one in list(held):
        one._forked()


os.register_at_fork(after_in_child=_let_go)
