# SPDX-License-Identifier: Apache-2.0
"""Threads that are kept for the next call."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

_IDLE_SECONDS = 10.0
_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)  # a child has none of the threads


class _Worker(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="cay-code", daemon=True)
        self.tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            try:
                task = self.tasks.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                try:
                    _idle.remove(self)
                except ValueError:
                    continue  # a task is about to come
                return
            done = task.run()
            del task  # what it refers to may be in use no longer
            _idle.append(self)
            done.release()


class Task:
    """A call in a thread, with the methods of threading.Thread that are needed here."""

    def __init__(self, target: Callable[[], None]) -> None:
        self._target: Callable[[], None] | None = target
        self._done = threading.Lock()
        self.ident: int | None = None

    def start(self) -> None:
        self._done.acquire()
        try:
            worker = _idle.pop()
        except IndexError:
            worker = _Worker()
        self.ident = worker.ident
        worker.tasks.put(self)

    def run(self) -> threading.Lock:
        target, self._target = self._target, None
        if target is not None:
            target()
        return self._done

    def join(self) -> None:
        with self._done:
            pass
