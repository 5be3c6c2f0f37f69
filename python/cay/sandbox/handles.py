# SPDX-License-Identifier: Apache-2.0
"""The handles of one sandbox: C's are for one thread at a time, Python's for any number.

A call borrows a handle that is idle, or opens one more, which is cheap.  The handle that
made an ephemeral sandbox holds the line the sandbox hangs on, so it is kept to the end,
and a forked child lets go of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p
from typing import Any

from cay import _lib, _sandbox_lib
from cay._owner import Owner
from cay.sandbox import forks
from cay.sandbox.errors import SandboxValueError, error_of

_KEPT = 4


class Handles(Owner):
    """Borrowed and given back, from any thread."""

    def __init__(
        self,
        id: str,
        first: int,
        open: Callable[[], int] | None = None,
        ephemeral: bool = False,
    ) -> None:
        """``open`` gives one more, if it is not a native sandbox."""
        self.id = id
        self._open = open
        self.life = 0
        """how often it was started again: what was connected before is no more"""
        self._first: int | None = first
        self._idle = [first]
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.is_closed = False
        self._is_line = ephemeral
        """whether a sandbox hangs on the first"""
        self._borrower = 0
        """the thread that has the first, or had it last"""
        forks.held.add(self)

    @contextmanager
    def borrow(self) -> Iterator[int]:
        handle = self.take()
        try:
            yield handle
        finally:
            self.give_back(handle)

    def take(self) -> int:
        """A handle of one's own until give_back()."""
        with self._lock:
            if self.is_closed:
                raise SandboxValueError(
                    "the sandbox's handle is closed",
                    subject=self.id,
                    hint="Sandbox.open() gives another",
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
            mine = handle == self._first
            if not self.is_closed and (mine or len(self._idle) < _KEPT):
                self._idle.append(handle)
                return
            if mine:
                self._first = None
        _sandbox_lib.sandbox_free(handle)

    def _forget(self) -> None:
        """In a forked child the parent's connections are not ours to speak on."""
        for handle in self._idle:
            _sandbox_lib.sandbox_free(handle)
        self._idle, self._first, self._pid = [], None, os.getpid()

    def _forked(self) -> None:
        self._lock = threading.Lock()  # nobody here would release the other
        if not self._is_line:
            return  # there is time until somebody needs it
        line, here = self._first, threading.get_ident()
        if line is not None and line not in self._idle and self._borrower != here:
            self._idle.append(line)  # nobody here gives it back
        self._forget()

    def close(self, _free: Any = _sandbox_lib.sandbox_free) -> None:
        """Frees them; those that are lent follow when they come back."""
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
    handle, err = c_void_p(), _lib.Error()
    name = _lib.encode(id)
    if name is None:
        raise SandboxValueError(f"an id has no NUL byte: {id!r}", subject="id")
    if _sandbox_lib.sandbox_open(name, byref(handle), byref(err)):
        raise error_of(err)
    assert handle.value is not None
    return handle.value
