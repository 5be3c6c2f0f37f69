# SPDX-License-Identifier: Apache-2.0
"""Sandboxes in asyncio and trio, with and without anyio."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import anyio
import pytest
import trio
from native import BACKENDS, ledger, make_async, run_async
from test_native_exec import ESCAPED, MARK, sleepers, wait_for

from cay import AsyncSandbox
from cay.sandbox import (
    Output,
    SandboxNotFoundError,
    SandboxValueError,
    UserNotFoundError,
)
from cay.errors import SandboxExecError


@pytest.mark.parametrize("backend", BACKENDS)
def test_everything_has_its_twin(backend: str) -> None:
    async def work() -> None:
        async with await make_async() as sandbox:
            result = await sandbox.exec(["cat"], input="text")
            assert (result.stdout, result.ok) == ("text", True)
            assert (await sandbox.exec(["nothing-like-it"])).exit_code == 127
            assert (await sandbox.shell("sleep 0.3; echo late")).stdout == "late\n"
            with pytest.raises(UserNotFoundError):
                await sandbox.exec(["id"], user="stranger")
            await sandbox.files.write("a", "b")
            assert await sandbox.files.read_text("a") == "b"
            assert [entry.path for entry in await sandbox.files.list()]
            pieces: list[Output] = []
            await sandbox.shell("echo a; echo b >&2", on_output=pieces.append)
            assert {one.stream for one in pieces} == {1, 2}
            assert (await sandbox.inspect()).state == "running"
            await sandbox.pause()
            await sandbox.resume()
            async with await sandbox.start(["cat"], keep_input=True) as process:
                await process.write("hello")
                await process.close_input()
                assert [one.data async for one in process] == [b"hello"]
                assert (await process.wait()).ok
            assert sandbox.id in [one.id for one in await AsyncSandbox.list()]
            assert await AsyncSandbox.collect() >= 0
            again = await AsyncSandbox.open(sandbox.id)
            assert await again.processes() == await sandbox.processes()
            again.close()
        with pytest.raises(SandboxNotFoundError):
            await AsyncSandbox.open(sandbox.id)

    with ledger():
        run_async(backend, work)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_listener_raises_is_its_own(backend: str) -> None:
    def listen(output: Output) -> None:
        raise SandboxExecError("another command could not be started")

    async def work() -> None:
        async with await make_async() as sandbox:
            with pytest.raises(SandboxExecError, match="another command"):
                await sandbox.shell("echo a; exec sleep 1000", on_output=listen)
            assert await sandbox.processes() == []

    with ledger():
        run_async(backend, work)


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_commands_run_at_once_and_hold_no_thread(backend: str) -> None:
    async def one(sandbox: AsyncSandbox, done: list[str], number: int) -> None:
        script = f": > at/{number}; : < gate; echo {number}"
        done.append((await sandbox.shell(script, timeout=600)).stdout)

    async def work() -> None:
        async with await make_async(pids=2000) as sandbox:
            done: list[str] = []
            await sandbox.shell("mkdir at; mkfifo gate")
            async with anyio.create_task_group() as group:
                for number in range(100):
                    group.start_soon(one, sandbox, done, number)
                while len(await sandbox.files.list("at")) < 100:
                    await anyio.sleep(0.02)
                busy = [t for t in threading.enumerate() if t.name.startswith("cay")]
                assert len(busy) <= 64 and not done
                opens = await sandbox.start(["sh", "-c", "exec sleep 1000 > gate"])
            await opens.kill()
            await opens.close()
            assert sorted(done) == sorted(f"{n}\n" for n in range(100))

    with ledger():
        run_async(backend, work)


async def cancelled(sandbox: AsyncSandbox, delay: float) -> None:
    """Runs a command whose children hide, and cancels it."""
    with anyio.move_on_after(delay) as scope:
        await sandbox.shell(f"trap '' TERM; {ESCAPED} {MARK}")
    assert scope.cancelled_caught


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("delay", [0, 0.001, 0.004, 0.5])
def test_a_cancelled_command_is_dead_with_all_it_started(
    backend: str, delay: float
) -> None:
    async def work() -> None:
        async with await make_async() as sandbox:
            await cancelled(sandbox, delay)
            assert sleepers(sandbox.sync) == []
            assert (await sandbox.exec(["true"])).ok

    before = threading.active_count()
    with ledger():
        run_async(backend, work)
    assert wait_for(lambda: threading.active_count() <= before + 64)


def test_asyncios_own_cancellation_works_too() -> None:
    async def work() -> None:
        async with await make_async() as sandbox:
            task = asyncio.create_task(sandbox.exec(MARK.split()))
            while not sleepers(sandbox.sync):
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sleepers(sandbox.sync) == []
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sandbox.exec(MARK.split()), 0.002)
            assert sleepers(sandbox.sync) == []

    with ledger():
        asyncio.run(work())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cancelled_creation_leaves_no_sandbox(backend: str) -> None:
    async def work() -> None:
        with anyio.move_on_after(0.001):
            await make_async()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await make_async()

    with ledger():
        run_async(backend, work)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_loop_goes_on_while_much_is_written(backend: str) -> None:
    async def work() -> None:
        async with await make_async() as sandbox:
            longest, began = 0.0, time.monotonic()

            async def beat(scope: Any) -> None:
                nonlocal longest
                while True:
                    before = time.monotonic()
                    await anyio.sleep(0.01)
                    longest = max(longest, time.monotonic() - before)

            async with anyio.create_task_group() as group:
                group.start_soon(beat, None)
                result = await sandbox.shell("head -c 200000000 /dev/zero")
                group.cancel_scope.cancel()
            assert result.stdout_dropped == 200000000 - (10 << 20)
            assert longest < max(1, (time.monotonic() - began) / 2)

    with ledger():
        run_async(backend, work)


def test_neither_anyio_nor_trio_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "anyio")
    monkeypatch.delitem(sys.modules, "trio")

    async def work() -> None:
        async with await make_async() as sandbox:
            task = asyncio.create_task(sandbox.exec(MARK.split()))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sleepers(sandbox.sync) == []

    with ledger():
        asyncio.run(work())
    assert trio is not None


@pytest.mark.parametrize("backend", BACKENDS)
def test_waiting_costs_nothing_while_a_command_is_quiet(backend: str) -> None:
    async def work() -> None:
        async with await make_async() as sandbox:
            before = time.process_time()
            result = await sandbox.shell("echo early; sleep 1; echo late")
            assert result.stdout == "early\nlate\n"
            assert time.process_time() - before < 0.2

    with ledger():
        run_async(backend, work)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_task_reads_while_another_waits(backend: str) -> None:
    async def work() -> None:
        async with await make_async() as sandbox:
            script = "for n in 1 2 3; do echo $n; sleep 0.1; done; sleep 0.2"
            async with await sandbox.start(["sh", "-c", script]) as process:
                seen: list[bytes] = []

                async def read() -> None:
                    async for output in process:
                        seen.append(output.data)

                async with anyio.create_task_group() as group:
                    group.start_soon(read)
                    result = await process.wait()
                assert b"".join(seen) + result.stdout_bytes == b"1\n2\n3\n"

    with ledger():
        run_async(backend, work)


@pytest.mark.parametrize("backend", BACKENDS)
def test_closing_wakes_the_tasks_that_wait(backend: str) -> None:
    async def work() -> None:
        async with await make_async() as sandbox:
            process = await sandbox.start(MARK.split())
            told: list[str] = []

            async def wait(call: Any) -> None:
                try:
                    await call()
                except SandboxValueError as error:
                    told.append(error.message)

            with anyio.fail_after(20):
                async with anyio.create_task_group() as group:
                    for call in (process.read, process.read, process.wait, process.wait):
                        group.start_soon(wait, call)
                    await anyio.sleep(0.2)
                    await process.close()
            assert told == ["the process's handle is closed"] * 4

    with ledger():
        run_async(backend, work)
