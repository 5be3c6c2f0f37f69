# SPDX-License-Identifier: Apache-2.0
"""Sandboxes for tests, and a look at what they leave on the host."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import unavailable

import cay.sandbox.sandbox as module
from cay import AsyncSandbox, Sandbox

BACKENDS = ["asyncio", "trio"]


def runtime() -> Path:
    """Where the records of live sandboxes are."""
    if os.geteuid() == 0:
        return Path("/run/cay")
    return Path(os.environ["XDG_RUNTIME_DIR"]) / "cay"


def traces(ids: set[str]) -> list[str]:
    """What is left on the host of these sandboxes."""
    found = []
    # os.walk() does not mind what others remove meanwhile.
    for top in (runtime(), Path("/sys/fs/cgroup")):
        for folder, directories, files in os.walk(top):
            for name in directories + files:
                found += [f"{folder}/{name}" for id in ids if id in name]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            groups = (process / "cgroup").read_text()
            if (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                continue  # dead; its parent, the machine's first process, is slow
        except OSError:
            continue
        found += [f"{process}: {id}" for id in ids if id in groups]
    return found


@contextmanager
def ledger() -> Iterator[set[str]]:
    """The ids of the sandboxes made meanwhile; at the end nothing of them is left."""
    made: set[str] = set()
    create: Callable[..., Any] = module._create

    def recorded(*arguments: Any) -> Any:
        handles = create(*arguments)
        made.add(handles.id)
        return handles

    descriptors = len(os.listdir("/proc/self/fd"))
    module._create = recorded
    try:
        yield made
    finally:
        module._create = create
    Sandbox.collect()
    assert traces(made) == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 4  # an event loop's


def make_sandbox(**options: Any) -> Sandbox:
    """One that a failing test does not leave behind."""
    if os.geteuid() != 0:
        unavailable("the tests of sandboxes are run by root")
    return Sandbox.create(ephemeral=True, **options)


def run_async(
    backend: str, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any
) -> Any:
    """In asyncio, or in trio."""
    if backend == "trio":
        trio = pytest.importorskip("trio")
        return trio.run(function, *args)
    import asyncio

    return asyncio.run(function(*args))


async def make_async(**options: Any) -> AsyncSandbox:
    if os.geteuid() != 0:
        unavailable("the tests of sandboxes are run by root")
    return await AsyncSandbox.create(ephemeral=True, **options)
