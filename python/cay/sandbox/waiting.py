# SPDX-License-Identifier: Apache-2.0
"""Waiting in an event loop, asyncio's or trio's, for threads and for descriptors.

Neither trio nor anyio is needed; if one of them runs the task, it is loaded already.
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

__all__ = ["in_thread", "interruptibly", "make_in_thread", "readable", "sleep"]

P = ParamSpec("P")
R = TypeVar("R")

# More than this many calls at a time wait for each other; commands that run do not count.
_THREADS = 64

# Seconds after which Ctrl-C is heard at the latest.
_HEARD = 0.2

_executor: ThreadPoolExecutor | None = None


def _forget_executor() -> None:
    global _executor
    _executor = None  # its threads are not in a forked child


os.register_at_fork(after_in_child=_forget_executor)


def _trio() -> Any:
    """The trio that runs this task, if one does."""
    trio = sys.modules.get("trio")
    return trio if trio is not None and trio.lowlevel.in_trio_task() else None


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs a call that is over soon in a thread, whole even in a task that is cancelled.

    The cancellation comes when the call is done, and its result is lost then: what it
    makes must also be in reach of the caller.
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
        await _ended(future)
    except asyncio.CancelledError:
        await _insist(future)
        raise
    return future.result()


def _threads() -> ThreadPoolExecutor:
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="cay")
    return _executor


async def _ended(future: Future[R]) -> None:
    """Until the call is done; to cancel this leaves the call alone."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not told.done():
            told.set_result(None)

    def tell(_: Future[R]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(tell)
    await told


async def _insist(future: Future[R]) -> None:
    """The same in a task that is cancelled, perhaps not for the last time."""
    anyio = sys.modules.get("anyio")
    # Where it drives the task, it would cancel again and again.
    with nullcontext() if anyio is None else anyio.CancelScope(shield=True):
        while not future.done():
            try:
                await _ended(future)
            except asyncio.CancelledError:
                continue


def interruptibly(call: Callable[[], R]) -> R:
    """Runs a call that may take long so that Ctrl-C is not kept waiting for it.

    Signals are heard by the main thread only, and not while it is in libcay.  A call that
    is left so goes on in its thread, which ends with the process at the latest.
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
    # A signal that comes just before the wait is heard after it.
    while not wait([future], _HEARD).done:
        pass
    return future.result()


async def make_in_thread(make: Callable[[], R], undo: Callable[[R], object]) -> R:
    """Makes something in a thread; if the task is cancelled meanwhile, undoes it."""
    made: list[R] = []
    try:
        await in_thread(lambda: made.append(make()))
    except BaseException:
        if made:
            await in_thread(undo, made[0])
        raise
    return made[0]


async def readable(fd: int) -> None:
    """Until poll(2) would say that the descriptor is readable."""
    own = os.dup(fd)  # so that several tasks may wait for the same
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
