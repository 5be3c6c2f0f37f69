# SPDX-License-Identifier: Apache-2.0
"""A command that runs: read from it, write to it, wait for it, kill it.

C's handle is for one thread at a time.  Here each call into C is short and under a lock,
and all waiting is for the handle's descriptor, so that one thread may write while another
reads, and a signal handler of Python's (Ctrl-C) runs at once.
"""

from __future__ import annotations

import ctypes
import select
import threading
import time
from collections.abc import Iterator
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

from cay import _lib, _sandbox_lib, errors
from cay._owner import Owner
from cay.sandbox import forks
from cay.sandbox.errors import (
    SandboxError,
    SandboxTimeoutError,
    SandboxValueError,
    error_of,
)
from cay.sandbox.handles import Handles
from cay.sandbox.options import Command, terminal, within
from cay.sandbox.results import ExecResult, Output, Stream
from cay.sandbox.watch import Watch

__all__ = ["Process"]

_PIECE = 64 << 10
_SIGNAL_MAX = 64
# When a full pipe is tried again; nothing tells that there is room.
_WRITE_AGAIN = 0.002


class Process(Owner):
    """What Sandbox.start() and Sandbox.attach() give; for several threads at once.

    Closing the handle of a foreground process kills it and all it started; a background
    one goes on without it.  In a forked child it is closed, and the process goes on.
    """

    _instead = (
        "pickle its pid and the sandbox's id: Sandbox.open(id).attach(pid) finds one in "
        "the background again"
    )

    def __init__(self, handles: Handles) -> None:
        self._lock = threading.Lock()
        self._handles = handles
        self._pointer: int | None = None
        self._result: ExecResult | None = None
        self._buffer: Any = None
        self._news: Watch | None = None
        self._watches: list[Watch] = []
        self.pid = 0
        """inside"""

    def _start(self, command: Command) -> Process:
        return self._take(_sandbox_lib.process_start, byref(command.options))

    def _run(self, command: Command, wait_ms: int) -> ExecResult | None:
        """Starts it, and gives its result if it has one soon."""
        return self._start(command).poll(wait_ms)

    def _end(self) -> None:
        """Dead with all it started, if it was started."""
        try:
            if self._pointer is not None:
                self.kill()
        except SandboxError:
            pass  # the sandbox is gone, and it with it
        self.close()

    def _attach(self, which: bytes) -> Process:
        return self._take(_sandbox_lib.process_attach, which)

    def _take(self, function: Any, argument: Any) -> Process:
        pointer, err = c_void_p(), _lib.Error()
        with self._handles.borrow() as sandbox:
            if function(sandbox, argument, byref(pointer), byref(err)):
                raise error_of(err)
        self._pointer = pointer.value
        forks.held.add(self)
        self.pid = _sandbox_lib.process_pid(self._pointer)
        return self

    def __repr__(self) -> str:
        return f"Process(pid={self.pid}, sandbox={self._handles.id!r})"

    # --- Output ------------------------------------------------------------------------

    def read(self, timeout: float | None = None) -> Output | None:
        """What it wrote next, waiting for it; None when it has ended and all is read."""
        deadline = _deadline(timeout)
        while True:
            output = self.read_now()
            if output is None or output.data:
                return output
            self._wait_for_news(deadline)

    def read_now(self) -> Output | None:
        """As read(), without waiting: no data if there is none."""
        stream, length, dropped = c_int(), c_size_t(), c_uint64()
        with self._lock:
            if self._buffer is None:
                self._buffer = ctypes.create_string_buffer(_PIECE)
            self._call(
                _sandbox_lib.process_read,
                byref(stream),
                self._buffer,
                _PIECE,
                byref(length),
                byref(dropped),
            )
            data = ctypes.string_at(self._buffer, length.value)
        if stream.value < 0:
            return None
        return Output(Stream(stream.value or 1), data, dropped.value)

    def __iter__(self) -> Iterator[Output]:
        """All it writes until it ends."""
        while (output := self.read()) is not None:
            yield output

    # --- Input -------------------------------------------------------------------------

    def write(self, data: bytes | str, timeout: float | None = None) -> None:
        """All of it to stdin, which start() must have been asked to keep open."""
        left = memoryview(data.encode() if isinstance(data, str) else bytes(data))
        deadline = _deadline(timeout)
        while left:
            left = left[self.write_now(left) :]
            if left:
                self._check(deadline)
                time.sleep(_WRITE_AGAIN)

    def write_now(self, data: bytes | memoryview) -> int:
        """As much as fits now; how much that was."""
        whole = bytes(data[: 1 << 20])
        written = c_size_t()
        with self._lock:
            self._call(_sandbox_lib.process_write, whole, len(whole), byref(written))
        return written.value

    def close_input(self) -> None:
        """It reads an end of file when it has read what was written."""
        with self._lock:
            self._call(_sandbox_lib.process_close_input)

    def resize(self, rows: int, columns: int) -> None:
        """Of its terminal."""
        rows, columns = terminal(rows, columns)
        with self._lock:
            self._call(_sandbox_lib.process_resize, rows, columns)

    # --- Its end -----------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> ExecResult:
        """How it ended, with the output that nobody has read.

        SandboxTimeoutError if it still runs when the time is over; it goes on then.
        """
        result = self.poll()
        if result is not None:
            return result
        deadline = _deadline(timeout)
        edge = self._edge()
        try:
            while result is None:
                edge.poll(_left(deadline))
                self._check(deadline)
                result = self.poll()
        finally:
            self._leave(edge)
        return result

    def poll(self, wait_ms: int = 0) -> ExecResult | None:
        """As wait(), but None if it still runs."""
        with self._lock:
            if self._result is None:
                result, err = _sandbox_lib.ExecResult(), _lib.Error()
                code = _sandbox_lib.process_wait(
                    self._held(), wait_ms, byref(result), byref(err)
                )
                if code == errors.Timeout.code:
                    return None
                if code:
                    raise error_of(err)
                self._result = ExecResult._of(result)
            return self._result

    def signal(self, number: int) -> None:
        """To its first process."""
        number = within(int(number), "signal", _SIGNAL_MAX)
        with self._lock:
            self._call(_sandbox_lib.process_signal, number)

    def kill(self) -> None:
        """It and all it started: they are dead when this returns."""
        with self._lock:
            self._call(_sandbox_lib.process_kill)

    def close(self, _free: Any = _sandbox_lib.process_free) -> None:
        """Lets go of it; kills one that is not in the background.  Again is fine.

        Whoever waits for it is told that it is closed.
        """
        with self._lock:
            pointer, self._pointer = self._pointer, None
            watches, self._watches = self._watches, []
            self._news = None
        try:
            for watch in watches:
                watch.ring()
        finally:
            _free(pointer)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._watches = []  # nobody waits
        self.close()

    def _forked(self) -> None:
        is_busy, self._lock = self._lock.locked(), threading.Lock()
        pointer, self._pointer = self._pointer, None
        self._news, self._watches = None, []
        if not is_busy:  # else half a change may be in it
            _sandbox_lib.process_free(pointer)

    # --- Inside ------------------------------------------------------------------------

    def fileno(self) -> int:
        """For poll(2): readable when there is something to read, or the end."""
        with self._lock:
            return int(_sandbox_lib.process_fd(self._held()))

    def _held(self) -> int:
        if self._pointer is None:
            raise SandboxValueError(
                "the process's handle is closed",
                subject=str(self.pid),
                hint="Sandbox.attach() gives another of a background process",
            )
        return self._pointer

    def _call(self, function: Any, *arguments: Any) -> None:
        err = _lib.Error()
        if function(self._held(), *arguments, byref(err)):
            raise error_of(err)

    def _wait_for_news(self, deadline: float | None) -> None:
        left = _left(deadline)
        news = self._readable()
        poll = select.poll()
        poll.register(news, select.POLLIN)
        poll.poll(None if left is None else left * 1000)
        self._check(deadline)

    def _readable(self) -> Watch:
        """Wakes whoever waits for output, or the end."""
        with self._lock:
            if self._news is None:
                self._news = Watch(_sandbox_lib.process_fd(self._held()))
                self._watches.append(self._news)
            return self._news

    def _edge(self) -> Watch:
        """Wakes whoever waits for the end when something happens, until _leave().

        Output that C has taken in meanwhile is news for readers, and so keeps the
        descriptor itself readable.
        """
        with self._lock:
            fd = _sandbox_lib.process_fd(self._held())
            edge = Watch(fd, select.EPOLLIN | select.EPOLLET)
            self._watches.append(edge)
        return edge

    def _leave(self, edge: Watch) -> None:
        with self._lock:
            if edge in self._watches:
                self._watches.remove(edge)

    def _check(self, deadline: float | None) -> None:
        if deadline is not None and time.monotonic() >= deadline:
            raise SandboxTimeoutError(
                "it still runs",
                subject=f"process {self.pid}",
                hint="wait longer, or kill it",
            )


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0)


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout
