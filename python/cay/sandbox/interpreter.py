# SPDX-License-Identifier: Apache-2.0
"""The short way to run code: a function, and an object that keeps the variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from cay.errors import SandboxValueError
from cay.sandbox.aio import AsyncFiles, AsyncSandbox
from cay.sandbox.code import Execution, OnError, OnResult, OnText
from cay.sandbox.files import SandboxFiles
from cay.sandbox.options import Size
from cay.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from typing_extensions import Unpack


class RunOptions(TypedDict, total=False):
    """The options of run()."""

    timeout: float | None
    env: Mapping[str, str] | None
    output_limit: Size | None
    on_stdout: OnText | None
    on_stderr: OnText | None
    on_result: OnResult | None
    on_error: OnError | None


class CodeInterpreter:
    """A sandbox for code, with variables that are kept from run to run.

        with CodeInterpreter() as interpreter:
            interpreter.run("x = 40")
            print(interpreter.run("x + 2").text)

    ``options`` are those of Sandbox.create(), for example ``template``, ``memory``,
    ``volumes`` and ``network``.  The sandbox ends with this object, and with the program.
    ``preload`` is that of Sandbox.execute_code().
    """

    def __init__(
        self,
        language: str = "python",
        *,
        preload: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        self.language = language
        self.preload = preload
        self.sandbox = Sandbox.create(**{"ephemeral": True, **options})

    @property
    def files(self) -> SandboxFiles:
        """The files of the sandbox."""
        return self.sandbox.files

    def run(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """As Sandbox.execute_code()."""
        return self.sandbox.execute_code(
            code, self.language, preload=self.preload, **options
        )

    def restart(self) -> None:
        """Forgets the variables."""
        for context in self.sandbox.contexts():
            if context.is_default:
                self.sandbox.restart_context(context)

    def close(self) -> None:
        """Removes the sandbox."""
        with self.sandbox:
            pass

    def __repr__(self) -> str:
        return f"CodeInterpreter({self.language!r}, {self.sandbox!r})"

    def __enter__(self) -> CodeInterpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncCodeInterpreter:
    """As CodeInterpreter, for asyncio and trio.

        async with AsyncCodeInterpreter() as interpreter:
            await interpreter.run("x = 40")
            print((await interpreter.run("x + 2")).text)

    If the task of a run is cancelled, the code is interrupted and keeps its variables.
    """

    def __init__(
        self,
        language: str = "python",
        *,
        preload: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        self.language = language
        self.preload = preload
        self._options = {"ephemeral": True, **options}
        self._sandbox: AsyncSandbox | None = None

    @property
    def sandbox(self) -> AsyncSandbox:
        if self._sandbox is None:
            raise SandboxValueError(
                "the interpreter has no sandbox yet",
                hint="use it in an `async with` statement, which creates one",
            )
        return self._sandbox

    @property
    def files(self) -> AsyncFiles:
        """The files of the sandbox."""
        return self.sandbox.files

    async def run(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """As Sandbox.execute_code()."""
        return await self.sandbox.execute_code(
            code, self.language, preload=self.preload, **options
        )

    async def restart(self) -> None:
        """Forgets the variables."""
        for context in await self.sandbox.contexts():
            if context.is_default:
                await self.sandbox.restart_context(context)

    async def __aenter__(self) -> AsyncCodeInterpreter:
        self._sandbox = await AsyncSandbox.create(**self._options)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.sandbox.__aexit__()


def run_code(
    code: str,
    language: str = "python",
    *,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> Execution:
    """Runs code in a sandbox of its own; ``options`` are those of CodeInterpreter."""
    with CodeInterpreter(language, **options) as interpreter:
        return interpreter.run(code, timeout=timeout, env=env)
