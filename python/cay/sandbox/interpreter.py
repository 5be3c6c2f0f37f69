# SPDX-License-Identifier: Apache-2.0
"""The short way to run code: a function, and an object that keeps the variables."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from cay.sandbox.code import Execution, OnError, OnResult, OnText
from cay.sandbox.files import SandboxFiles
from cay.sandbox.sandbox import Sandbox


class CodeInterpreter:
    """A sandbox for code, with variables that are kept from run to run.

        with CodeInterpreter() as interpreter:
            interpreter.run("x = 40")
            print(interpreter.run("x + 2").text)

    ``options`` are those of Sandbox.create(), for example ``template``, ``memory``,
    ``volumes`` and ``network``.  The sandbox ends with this object, and with the program.
    """

    def __init__(self, language: str = "python", **options: Any) -> None:
        self.language = language
        self.sandbox = Sandbox.create(**{"ephemeral": True, **options})

    @property
    def files(self) -> SandboxFiles:
        """The files of the sandbox."""
        return self.sandbox.files

    def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
        on_error: OnError | None = None,
    ) -> Execution:
        """As Sandbox.execute_code()."""
        return self.sandbox.execute_code(
            code,
            self.language,
            timeout=timeout,
            env=env,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
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

    def __enter__(self) -> CodeInterpreter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def run_code(
    code: str,
    language: str = "python",
    *,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> Execution:
    """Runs code in a sandbox of its own; ``options`` are those of Sandbox.create()."""
    with CodeInterpreter(language, **options) as interpreter:
        return interpreter.run(code, timeout=timeout, env=env)
