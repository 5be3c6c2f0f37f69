# SPDX-License-Identifier: Apache-2.0
"""Sandboxes for asyncio and trio.

Calls that are over soon run in threads.  A command that runs holds none: its descriptor
is waited for in the event loop.  A task that is cancelled leaves no thread and no process
behind: its command and all that started are dead before the cancellation goes on.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from cay import _sandbox_lib
from cay.sandbox.errors import SandboxExecError
from cay.sandbox.files import SandboxFiles
from cay.sandbox.options import Command, Size
from cay.sandbox.process import Process
from cay.sandbox.results import ExecResult, Output, SandboxInfo
from cay.sandbox.sandbox import ExecOptions, OnOutput, Sandbox
from cay.sandbox.waiting import in_thread, make_in_thread, readable, sleep

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["AsyncFiles", "AsyncProcess", "AsyncSandbox"]

P = ParamSpec("P")
R = TypeVar("R")

# How long a thread that starts a command, or takes what it wrote, stays with it.
_FIRST_MS = 5
_STAY_MS = 20
# When a full pipe is tried again.
_WRITE_AGAIN = 0.002


def _twin(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The method of the blocking object, in a thread."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(method, self._sync, *args, **kwargs)

    return call


class AsyncFiles:
    """As SandboxFiles."""

    def __init__(self, files: SandboxFiles) -> None:
        self._sync = files

    def as_user(self, user: str | int) -> AsyncFiles:
        """The same files, with the rights of another user inside."""
        return AsyncFiles(self._sync.as_user(user))

    read_bytes = _twin(SandboxFiles.read_bytes)
    read_text = _twin(SandboxFiles.read_text)
    read = _twin(SandboxFiles.read)
    read_lines = _twin(SandboxFiles.read_lines)
    read_many = _twin(SandboxFiles.read_many)
    write = _twin(SandboxFiles.write)
    append = _twin(SandboxFiles.append)
    write_many = _twin(SandboxFiles.write_many)
    edit = _twin(SandboxFiles.edit)
    multi_edit = _twin(SandboxFiles.multi_edit)
    delete = _twin(SandboxFiles.delete)
    move = _twin(SandboxFiles.move)
    copy = _twin(SandboxFiles.copy)
    mkdir = _twin(SandboxFiles.mkdir)
    exists = _twin(SandboxFiles.exists)
    stat = _twin(SandboxFiles.stat)
    list = _twin(SandboxFiles.list)
    glob = _twin(SandboxFiles.glob)
    grep = _twin(SandboxFiles.grep)
    export_tar = _twin(SandboxFiles.export_tar)
    import_tar = _twin(SandboxFiles.import_tar)


class AsyncProcess:
    """As Process; what waits takes no time limit, the event loop has its own."""

    def __init__(self, process: Process) -> None:
        self._sync = process

    @property
    def pid(self) -> int:
        """inside"""
        return self._sync.pid

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"

    async def read(self) -> Output | None:
        """What it wrote next; None when it has ended and all is read."""
        while True:
            output = self._sync.read_now()
            if output is None or output.data:
                return output
            news = self._sync._readable()
            await readable(news.fileno())

    async def __aiter__(self) -> AsyncIterator[Output]:
        """All it writes until it ends."""
        while (output := await self.read()) is not None:
            yield output

    async def write(self, data: bytes | str) -> None:
        """All of it to stdin, which start() must have been asked to keep open."""
        left = memoryview(data.encode() if isinstance(data, str) else bytes(data))
        while left:
            left = left[self._sync.write_now(left) :]
            if left:
                await sleep(_WRITE_AGAIN)

    async def wait(self) -> ExecResult:
        """How it ended, with the output that nobody has read."""
        edge = self._sync._edge()
        try:
            while (result := await in_thread(self._sync.poll, _STAY_MS)) is None:
                await readable(edge.fileno())
                edge.poll(0)
        finally:
            self._sync._leave(edge)
        return result

    close_input = _twin(Process.close_input)
    resize = _twin(Process.resize)
    signal = _twin(Process.signal)
    kill = _twin(Process.kill)
    close = _twin(Process.close)

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self._sync.close)


def _creating(
    create: Callable[P, Sandbox],
) -> Callable[P, Coroutine[Any, Any, AsyncSandbox]]:
    @functools.wraps(create)
    async def call(*args: P.args, **kwargs: P.kwargs) -> AsyncSandbox:
        make = functools.partial(create, *args, **kwargs)
        return AsyncSandbox(await make_in_thread(make, Sandbox.__exit__))

    return call


def _starting(
    start: Callable[Concatenate[Sandbox, P], Process],
) -> Callable[Concatenate[AsyncSandbox, P], Coroutine[Any, Any, AsyncProcess]]:
    @functools.wraps(start)
    async def call(
        self: AsyncSandbox, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncProcess:
        begin = functools.partial(start, self._sync, *args, **kwargs)
        return AsyncProcess(await make_in_thread(begin, Process._end))

    return call


class AsyncSandbox:
    """As Sandbox; as an asynchronous context manager it is killed at the end."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sync = sandbox

    create = staticmethod(_creating(Sandbox.create))

    @staticmethod
    async def open(id: str) -> AsyncSandbox:
        """One that exists; SandboxNotFoundError if there is none of that id."""
        return AsyncSandbox(await in_thread(Sandbox.open, id))

    @property
    def sync(self) -> Sandbox:
        """The same sandbox, for calls that wait."""
        return self._sync

    @property
    def id(self) -> str:
        return self._sync.id

    @property
    def layers(self) -> frozenset[str]:
        """What keeps it in."""
        return self._sync.layers

    @cached_property
    def files(self) -> AsyncFiles:
        """Its files, with the rights of its default user."""
        return AsyncFiles(self._sync.files)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self._sync.__exit__)

    def close(self) -> None:
        """Lets go of it; it lives on unless it is ephemeral."""
        self._sync.close()

    async def exec(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: str | bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
        output_limit: Size | None = None,
        fail_on_limit: bool = False,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """As Sandbox.exec()."""
        command = Command(
            argv,
            input=input,
            cwd=cwd,
            env=env,
            user=user,
            timeout=timeout,
            output_limit=output_limit,
            flags=_sandbox_lib.EXEC_FAIL_ON_LIMIT if fail_on_limit else 0,
        )
        process = Process(self._sync._handles)
        result: ExecResult | None = None
        try:
            try:
                if on_output is None:
                    result = await in_thread(process._run, command, _FIRST_MS)
                else:
                    await in_thread(process._start, command)
            except SandboxExecError as error:
                result = ExecResult.not_started(error)
            if result is None and on_output is not None:
                async for output in AsyncProcess(process):
                    on_output(output)
            if result is None:
                result = await AsyncProcess(process).wait()
            return result
        finally:
            if result is None:
                await in_thread(process._end)
            else:
                process.close()

    async def shell(self, script: str, **options: Unpack[ExecOptions]) -> ExecResult:
        """exec() of a script for the sandbox's /bin/sh."""
        return await self.exec(["/bin/sh", "-c", script], **options)

    start = _starting(Sandbox.start)
    processes = _twin(Sandbox.processes)
    inspect = _twin(Sandbox.inspect)
    pause = _twin(Sandbox.pause)
    resume = _twin(Sandbox.resume)
    set_ttl = _twin(Sandbox.set_ttl)
    kill = _twin(Sandbox.kill)
    restart = _twin(Sandbox.restart)
    remove = _twin(Sandbox.remove)

    @staticmethod
    async def collect() -> int:
        """Cleans up after sandboxes and makers that ended by themselves; how many."""
        return await in_thread(Sandbox.collect)

    async def attach(self, which: int | str) -> AsyncProcess:
        """A background process by its pid or tag, running or not long ended."""
        attach = functools.partial(self._sync.attach, which)
        return AsyncProcess(await make_in_thread(attach, Process.close))

    # Last, for it hides the type of the same name.
    @staticmethod
    async def list() -> list[SandboxInfo]:
        """Every sandbox of this user, oldest first."""
        return await in_thread(Sandbox.list)
