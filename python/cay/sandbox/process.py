# SPDX-License-Identifier: Apache-2.0
"""A running command: read its output, write its input, wait for it, kill it.

The C handle is for one thread at a time.  Here each call into C is short and under a lock,
and every wait is for the handle's descriptor: one thread can write while another reads,
and Ctrl-C takes effect at once.
"""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from ctypes import byref, c_char, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

from cay import _c
from cay.errors import SandboxError, SandboxTimeoutError, SandboxValueError
from cay.sandbox.handles import Handles, inherited
from cay.sandbox.options import Command, terminal, within
from cay.sandbox.results import ExecResult, Output, Stream

_PIECE = 64 << 10
_SIGNAL_MAX = 64
# Seconds until a full pipe is tried again: there is no event for space in it.
_WRITE_AGAIN = 0.002
# Seconds until the queue of approvals is looked at again.
_LOOK_AGAIN = 0.1


class _Watch:
    """Becomes readable with a descriptor, and for good after wake().

    The kernel drops a closed descriptor from an epoll set without an event, so a thread
    that waits for it would wait for ever.
    """

    def __init__(self, fd: int, events: int = select.EPOLLIN) -> None:
        self._event: int | None = None
        self._epoll = select.epoll()
        self._epoll.register(fd, events)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def poll(self, timeout: float | None) -> None:
        """Waits until it is readable, and consumes an edge."""
        self._epoll.poll(timeout)

    def wake(self) -> None:
        self._event = os.eventfd(1)
        self._epoll.register(self._event, select.EPOLLIN)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        # Only now: while another thread waits, the event must stay.
        if self._event is not None:
            _close(self._event)


class Process(_c.Owner):
    """The result of Sandbox.start() and Sandbox.attach(); for several threads at once.

    Closing the handle of a foreground process kills it and all its descendants; a
    background process continues.  fork() closes the handle in the child, and the process
    continues.
    """

    _instead = (
        "pickle the pid and the sandbox's id: Sandbox.open(id).attach(pid) returns a "
        "background process"
    )

    def __init__(self, handles: Handles) -> None:
        self._lock = threading.Lock()
        self._handles = handles
        self._pointer: int | None = None
        self._result: ExecResult | None = None
        self._buffer: Any = None
        self._output_watch: _Watch | None = None
        self._watches: list[_Watch] = []
        self.pid = 0
        """in the sandbox"""

    def _start(self, command: Command) -> Process:
        options = byref(command.options)
        request = (c_char * _c.PENDING_ID_MAX)()
        decision = c_int()
        with self._handles.borrow() as sandbox:
            _c.call(
                _c.sandbox_request_command, sandbox, options, request, byref(decision)
            )
        if not request.value:
            return self._take(_c.process_start, options)
        # Not one call that waits: Ctrl-C takes effect, and other threads use the sandbox.
        while not self._take_approved(options, request):
            time.sleep(_LOOK_AGAIN)
        return self

    def _run(self, command: Command, wait_ms: int) -> ExecResult | None:
        """Starts it, and returns the result if it ends within ``wait_ms``."""
        return self._start(command).poll(wait_ms)

    def _end(self) -> None:
        """Kills it and its descendants, if it was started, and closes the handle."""
        try:
            if self._pointer is not None:
                self.kill()
        except SandboxError:
            pass  # the sandbox has ended, and the process with it
        self.close()

    def _attach(self, which: bytes) -> Process:
        return self._take(_c.process_attach, which)

    def _take(self, function: Any, argument: Any) -> Process:
        pointer = c_void_p()
        with self._handles.borrow() as sandbox:
            _c.call(function, sandbox, argument, byref(pointer))
        self._pointer = pointer.value
        inherited.add(self)
        self.pid = _c.process_pid(self._pointer)
        return self

    def _take_approved(self, options: Any, request: Any) -> bool:
        """Starts a command that needs approval; False: there is no reply yet."""
        pointer = c_void_p()
        with self._handles.borrow() as sandbox:
            _c.call(
                _c.process_start_approved, sandbox, options, request, byref(pointer)
            )
        if pointer.value is None:
            return False
        self._pointer = pointer.value
        inherited.add(self)
        self.pid = _c.process_pid(self._pointer)
        return True

    def __repr__(self) -> str:
        return f"Process(pid={self.pid}, sandbox={self._handles.id!r})"

    # --- Output ------------------------------------------------------------------------

    def read(self, timeout: float | None = None) -> Output | None:
        """The next output, waiting for it; None when it has ended and all is read."""
        deadline = _deadline(timeout)
        while True:
            output = self.read_now()
            if output is None or output.data:
                return output
            self._wait_for_output(deadline)

    def read_now(self) -> Output | None:
        """As read(), without waiting: the data may be empty."""
        stream, length, dropped = c_int(), c_size_t(), c_uint64()
        with self._lock:
            if self._buffer is None:
                self._buffer = ctypes.create_string_buffer(_PIECE)
            self._call(
                _c.process_read,
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
        """All output until it ends."""
        while (output := self.read()) is not None:
            yield output

    # --- Input -------------------------------------------------------------------------

    def write(self, data: bytes | str, timeout: float | None = None) -> None:
        """Writes all data to stdin; needs start(keep_input=True)."""
        left = memoryview(data.encode() if isinstance(data, str) else bytes(data))
        deadline = _deadline(timeout)
        while left:
            left = left[self.write_now(left) :]
            if left:
                self._check(deadline)
                time.sleep(_WRITE_AGAIN)

    def write_now(self, data: bytes | memoryview) -> int:
        """Writes as much as the pipe takes now; returns the number of bytes."""
        whole = bytes(data[: 1 << 20])
        written = c_size_t()
        with self._lock:
            self._call(_c.process_write, whole, len(whole), byref(written))
        return written.value

    def close_input(self) -> None:
        """Closes stdin: after the data written, the process reads an end of file."""
        with self._lock:
            self._call(_c.process_close_input)

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of its terminal."""
        rows, columns = terminal(rows, columns)
        with self._lock:
            self._call(_c.process_resize, rows, columns)

    # --- End ---------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> ExecResult:
        """Waits until it ends; the result has the output that was not read.

        SandboxTimeoutError if it still runs after ``timeout``; it continues to run.
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
                result, err = _c.ExecResult(), _c.Error()
                code = _c.process_wait(
                    self._open_pointer(), wait_ms, byref(result), byref(err)
                )
                if code == SandboxTimeoutError.code:
                    return None
                if code:
                    raise _c.error_of(err)
                self._result = ExecResult._of(result)
            return self._result

    def signal(self, number: int) -> None:
        """Sends a signal to its first process."""
        number = within(int(number), "signal", _SIGNAL_MAX)
        with self._lock:
            self._call(_c.process_signal, number)

    def kill(self) -> None:
        """Kills it and its descendants; they are dead when this returns."""
        with self._lock:
            self._call(_c.process_kill)

    def close(self, _free: Any = _c.process_free) -> None:
        """Closes the handle; kills the process unless it is in the background.

        A thread that waits for it gets a SandboxValueError.  May be called again.
        """
        with self._lock:
            pointer, self._pointer = self._pointer, None
            watches, self._watches = self._watches, []
            self._output_watch = None
        try:
            for watch in watches:
                watch.wake()
        finally:
            _free(pointer)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._watches = []  # no thread waits
        self.close()

    def _after_fork(self) -> None:
        is_busy, self._lock = self._lock.locked(), threading.Lock()
        pointer, self._pointer = self._pointer, None
        self._output_watch, self._watches = None, []
        if not is_busy:  # else a thread of the parent was changing it
            _c.process_free(pointer)

    # --- Internals ---------------------------------------------------------------------

    def fileno(self) -> int:
        """A descriptor for poll(2), readable when there is output, or at the end."""
        with self._lock:
            return int(_c.process_fd(self._open_pointer()))

    def _open_pointer(self) -> int:
        if self._pointer is None:
            raise SandboxValueError(
                "the process's handle is closed",
                subject=str(self.pid),
                hint="attach to a background process again with Sandbox.attach()",
            )
        return self._pointer

    def _call(self, function: Any, *arguments: Any) -> None:
        _c.call(function, self._open_pointer(), *arguments)

    def _wait_for_output(self, deadline: float | None) -> None:
        left = _left(deadline)
        watch = self._readable()
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        poll.poll(None if left is None else left * 1000)
        self._check(deadline)

    def _readable(self) -> _Watch:
        """Readable when there is output, or at the end."""
        with self._lock:
            if self._output_watch is None:
                self._output_watch = _Watch(_c.process_fd(self._open_pointer()))
                self._watches.append(self._output_watch)
            return self._output_watch

    def _edge(self) -> _Watch:
        """Readable when something happens, for a wait for the end, until _leave().

        Edge-triggered, since unread output keeps the descriptor itself readable.
        """
        with self._lock:
            fd = _c.process_fd(self._open_pointer())
            edge = _Watch(fd, select.EPOLLIN | select.EPOLLET)
            self._watches.append(edge)
        return edge

    def _leave(self, edge: _Watch) -> None:
        with self._lock:
            if edge in self._watches:
                self._watches.remove(edge)

    def _check(self, deadline: float | None) -> None:
        if deadline is not None and time.monotonic() >= deadline:
            raise SandboxTimeoutError(
                "the process still runs",
                subject=f"process {self.pid}",
                hint="wait longer, or kill it",
            )


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0)


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout
