# SPDX-License-Identifier: Apache-2.0
"""The C handles of one sandbox: each is for one thread at a time, so there are several.

A call borrows an idle handle or opens another one, which is cheap.  An ephemeral sandbox
ends when the connection of the handle that created it is closed, so that handle stays open
until close(), and a forked child closes its copy at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p
from typing import Any, Protocol
from weakref import WeakSet

from cay import _c
from cay.errors import SandboxValueError

_IDLE_MAX = 4


# --- Forks --------------------------------------------------------------------------------


class Inherited(Protocol):
    def _after_fork(self) -> None:
        """Called in the child, which has only the thread that called fork()."""


inherited: WeakSet[Inherited] = WeakSet()
"""Objects with descriptors that a forked child must close: a peer sees the end of a
connection only when every copy is closed."""


def _after_fork() -> None:
    for one in list(inherited):
        one._after_fork()


os.register_at_fork(after_in_child=_after_fork)


# --- Handles ------------------------------------------------------------------------------


class Handles(_c.Owner):
    """Handles that any thread can borrow."""

    def __init__(
        self,
        id: str,
        first: int,
        open: Callable[[], int] | None = None,
        ephemeral: bool = False,
    ) -> None:
        """``open`` opens another handle; None: of a native sandbox."""
        self.id = id
        self._open = open
        self.generation = 0
        """how often the sandbox was restarted, which breaks all connections"""
        self._first: int | None = first
        self._idle = [first]
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.is_closed = False
        self._is_ephemeral = ephemeral
        self._borrower = 0
        """the thread that has the first handle, or had it last"""
        inherited.add(self)

    @contextmanager
    def borrow(self) -> Iterator[int]:
        handle = self.take()
        try:
            yield handle
        finally:
            self.give_back(handle)

    def take(self) -> int:
        """A handle for the caller alone, until give_back()."""
        with self._lock:
            if self.is_closed:
                raise SandboxValueError(
                    "the sandbox's handle is closed",
                    subject=self.id,
                    hint="it has ended; create a new one"
                    if self._is_ephemeral
                    else "open it again with Sandbox.open()",
                )
            if self._pid != os.getpid():
                self._forget()
            if self._idle:
                handle = self._idle.pop()
                if handle == self._first:
                    self._borrower = threading.get_ident()
                return handle
        return open_handle(self.id) if self._open is None else self._open()

    def give_back(self, handle: int) -> None:
        with self._lock:
            is_first = handle == self._first
            if not self.is_closed and (is_first or len(self._idle) < _IDLE_MAX):
                self._idle.append(handle)
                return
            if is_first:
                self._first = None
        _c.sandbox_free(handle)

    def _forget(self) -> None:
        """In a forked child: the connections belong to the parent."""
        for handle in self._idle:
            _c.sandbox_free(handle)
        self._idle, self._first, self._pid = [], None, os.getpid()

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # a thread of the parent may have it locked
        if not self._is_ephemeral:
            return  # take() does it
        first, this_thread = self._first, threading.get_ident()
        if first is not None and first not in self._idle and self._borrower != this_thread:
            self._idle.append(first)  # its borrower does not exist in the child
        self._forget()

    def close(self, _free: Any = _c.sandbox_free) -> None:
        """Frees the handles; borrowed ones are freed when they are given back."""
        with self._lock:
            self.is_closed = True
            idle, self._idle = self._idle, []
            if self._first in idle:
                self._first = None
        for handle in idle:
            _free(handle)

    def __del__(self) -> None:
        self.close()


def open_handle(id: str) -> int:
    handle = c_void_p()
    name = _c.encode(id)
    if name is None:
        raise SandboxValueError(f"invalid id {id!r}: it contains a NUL byte", subject="id")
    _c.call(_c.sandbox_open, name, byref(handle))
    assert handle.value is not None
    return handle.value
