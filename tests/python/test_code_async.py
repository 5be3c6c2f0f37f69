# SPDX-License-Identifier: Apache-2.0
"""Code in contexts for asyncio and trio: AsyncSandbox.execute_code(), AsyncCodeInterpreter."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from native import BACKENDS, ledger, run_async

from cay import AsyncCodeInterpreter, AsyncSandbox, Sandbox
from cay.errors import (
    SandboxNotFoundError,
    SandboxUnsupportedError,
    SandboxValueError,
)

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

FOREVER = "print('on', flush=True)\nwhile True: pass"


async def cancelled(
    backend: str, call: Callable[[], Coroutine[Any, Any, Any]], after: list[str]
) -> None:
    """Cancels the call when it has put something into the list."""
    if backend == "trio":
        import trio

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            while not after:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        return
    task = asyncio.create_task(call())
    while not after:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_interpreter_keeps_variables_and_ends_with_its_block(backend: str) -> None:
    async def main() -> str:
        async with AsyncCodeInterpreter(memory="256M") as interpreter:
            await interpreter.run("x = 40; open('note', 'w').write('kept')")
            assert (await interpreter.run("x + 2")).text == "42"
            assert await interpreter.files.read_text("note") == "kept"
            await interpreter.restart()
            assert (await interpreter.run("x")).error.name == "NameError"
            return interpreter.sandbox.id

    with ledger():
        id = run_async(backend, main)
    with pytest.raises(SandboxNotFoundError):
        Sandbox.open(id)


def test_an_interpreter_without_a_block_says_what_to_do(backend: str) -> None:
    async def main() -> None:
        await AsyncCodeInterpreter().run("1")

    with pytest.raises(SandboxValueError, match="async with"):
        run_async(backend, main)


def test_callbacks_run_in_the_task_as_things_happen(backend: str) -> None:
    async def main() -> None:
        seen: list[Any] = []
        async with await AsyncSandbox.create(ephemeral=True) as sandbox:
            execution = await sandbox.execute_code(
                "import sys; print('a'); print('b', file=sys.stderr); 1 / 0",
                on_stdout=seen.append,
                on_stderr=seen.append,
                on_error=lambda error: seen.append(error.name),
            )
            assert seen == ["a\n", "b\n", "ZeroDivisionError"]
            assert execution.stdout == "a\n" and execution.status == "error"

            def fail(text: str) -> None:
                raise LookupError(text)

            with pytest.raises(LookupError):
                await sandbox.execute_code(FOREVER, on_stdout=fail)
            assert (await sandbox.execute_code("1", timeout=60)).text == "1"

    with ledger():
        run_async(backend, main)


def test_a_cancelled_task_interrupts_its_code_and_keeps_the_context(backend: str) -> None:
    async def main() -> None:
        async with await AsyncSandbox.create(ephemeral=True) as sandbox:
            before = await sandbox.execute_code("x = 3; import os; os.getpid()")
            said: list[str] = []
            run = functools.partial(sandbox.execute_code, FOREVER, on_stdout=said.append)
            await cancelled(backend, run, said)
            after = await sandbox.execute_code("os.getpid()")
            assert after.text == before.text and after.restarted is None
            assert (await sandbox.execute_code("x")).text == "3"

    with ledger():
        run_async(backend, main)


def test_executions_in_several_contexts_run_at_once(backend: str) -> None:
    async def main() -> None:
        async with await AsyncSandbox.create(ephemeral=True) as sandbox:
            one = await sandbox.create_context(env={"A": "1"})
            two = await sandbox.create_context("bash")
            said: list[str] = []
            # The first ends only when the second has run.
            wait = "import os, time\nprint('on')\nwhile not os.path.exists('go'): time.sleep(0.01)"

            async def second() -> None:
                while not said:
                    await pause()
                await sandbox.execute_code("touch go", context=two)

            await together(
                lambda: sandbox.execute_code(wait, context=one, on_stdout=said.append), second
            )
            await sandbox.restart_context(one)
            await sandbox.interrupt_context(one)
            await sandbox.remove_context(two)
            assert [context.id for context in await sandbox.contexts()] == [one.id]

    async def pause() -> None:
        if backend == "trio":
            import trio

            await trio.sleep(0.01)
        else:
            await asyncio.sleep(0.01)

    async def together(*calls: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        if backend == "trio":
            import trio

            async with trio.open_nursery() as nursery:
                for call in calls:
                    nursery.start_soon(call)
        else:
            await asyncio.gather(*(call() for call in calls))

    run_async(backend, main)


def test_languages_without_contexts_and_unknown_ones(backend: str) -> None:
    async def main() -> None:
        async with await AsyncSandbox.create(ephemeral=True) as sandbox:
            assert (await sandbox.execute_code("echo 1", "sh")).stdout == "1\n"
            with pytest.raises(SandboxUnsupportedError, match="this sandbox has: "):
                await sandbox.execute_code("1", "cobol")
            with pytest.raises(TypeError):
                await sandbox.execute_code(b"1")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="'timout'; use timeout="):
                await sandbox.execute_code("1", timout=1)  # type: ignore[call-arg]

    run_async(backend, main)


def test_executions_leave_no_descriptors(backend: str) -> None:
    async def main() -> None:
        async with await AsyncSandbox.create(ephemeral=True) as sandbox:
            await sandbox.execute_code("1")
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(20):
                await sandbox.execute_code("1")
            assert len(os.listdir("/proc/self/fd")) == before

    run_async(backend, main)
