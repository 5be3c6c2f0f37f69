# SPDX-License-Identifier: Apache-2.0
"""Waiting for threads and descriptors in an event loop of asyncio or trio.

Neither trio nor anyio is imported; if one of them runs the task, it is loaded already.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# The most calls at a time; running commands do not count.
_THREADS = 64

# Seconds until Ctrl-C takes effect, at most.
_INTERRUPT_SECONDS = 0.2

_executor: ThreadPoolExecutor | None = None


def _forget_executor() -> None:
    global _executor
    _executor = None  # a forked child does not have its threads


os.register_at_fork(after_in_child=_forget_executor)


def _trio() -> Any:
    """The trio module if it runs this task."""
    trio = sys.modules.get("trio")
    return trio if trio is not None and trio.lowlevel.in_trio_task() else None


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs a short call in a thread, to its end even if the task is cancelled.

    The cancellation is raised when the call is done, and its result is lost: the caller
    must have another reference to what the call creates.
    """
    call = functools.partial(function, *args, **kwargs)
    trio = _trio()
    if trio is not None:
        with trio.CancelScope(shield=True):
            done: R = await trio.to_thread.run_sync(call)
        await trio.lowlevel.checkpoint_if_cancelled()
        return done
    future = _threads().submit(call)
    try:
        await _wait_for(future)
    except asyncio.CancelledError:
        await _wait_shielded(future)
        raise
    return future.result()


def _threads() -> ThreadPoolExecutor:
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="cay")
    return _executor


async def _wait_for(future: Future[R]) -> None:
    """Waits until the call is done; a cancellation does not affect the call."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    def notify(_: Future[R]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(notify)
    await done


async def _wait_shielded(future: Future[R]) -> None:
    """The same in a task that is cancelled, and may be cancelled again."""
    anyio = sys.modules.get("anyio")
    # anyio cancels its tasks again and again.
    with nullcontext() if anyio is None else anyio.CancelScope(shield=True):
        while not future.done():
            try:
                await _wait_for(future)
            except asyncio.CancelledError:
                continue


def interruptibly(call: Callable[[], R]) -> R:
    """Runs a call that may take long, so that Ctrl-C interrupts the wait for it.

    Python handles signals in the main thread only, and not while that is in libcay.  An
    interrupted call continues in its thread, at most until the process ends.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="cay-call", daemon=True).start()
    # A signal just before the wait is handled after it.
    while not wait([future], _INTERRUPT_SECONDS).done:
        pass
    return future.result()


async def create_in_thread(create: Callable[[], R], undo: Callable[[R], object]) -> R:
    """Creates an object in a thread; undoes it if the task is cancelled meanwhile."""
    created: list[R] = []
    try:
        await in_thread(lambda: created.append(create()))
    except BaseException:
        if created:
            await in_thread(undo, created[0])
        raise
    return created[0]


async def readable(fd: int) -> None:
    """Waits until the descriptor is readable."""
    own = os.dup(fd)  # several tasks may wait for the same one
    try:
        await _readable(own)
    finally:
        os.close(own)


async def _readable(fd: int) -> None:
    trio = _trio()
    if trio is not None:
        await trio.lowlevel.wait_readable(fd)
        return
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def sleep(seconds: float) -> None:
    trio = _trio()
    await (asyncio if trio is None else trio).sleep(seconds)
