# SPDX-License-Identifier: Apache-2.0
"""Sandboxes for asyncio and trio.

Short calls run in threads.  A running command needs no thread: the event loop waits for
its descriptor.  If a task is cancelled, its command and all descendants are killed before
the cancellation continues.  Code has a thread of its own while it runs.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from cay import _c
from cay.errors import SandboxExecError
from cay.sandbox.checkpoint import Checkpoint
from cay.sandbox.code import Call, CodeOptions, Context, Execution, SavedContexts
from cay.sandbox.event_loop import create_in_thread, in_thread, readable, sleep
from cay.sandbox.files import SandboxFiles
from cay.sandbox.options import Command
from cay.sandbox.process import Process
from cay.sandbox.results import ExecResult, Output, SandboxInfo
from cay.sandbox.sandbox import CommandOptions, ExecOptions, OnOutput, Sandbox

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
R = TypeVar("R")

# How long a thread that starts a command, or reads its output, waits for its end.
_FIRST_MS = 5
_STAY_MS = 20
# Seconds until a full pipe is tried again.
_WRITE_AGAIN = 0.002


def _in_thread(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """A method of the blocking object that runs in a thread."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(method, self._sync, *args, **kwargs)

    return call


class AsyncFiles:
    """As SandboxFiles."""

    def __init__(self, files: SandboxFiles) -> None:
        self._sync = files

    def as_user(self, user: str | int) -> AsyncFiles:
        """The same files, with the rights of another user of the sandbox."""
        return AsyncFiles(self._sync.as_user(user))

    read_bytes = _in_thread(SandboxFiles.read_bytes)
    read_text = _in_thread(SandboxFiles.read_text)
    read = _in_thread(SandboxFiles.read)
    read_lines = _in_thread(SandboxFiles.read_lines)
    read_many = _in_thread(SandboxFiles.read_many)
    write = _in_thread(SandboxFiles.write)
    append = _in_thread(SandboxFiles.append)
    write_many = _in_thread(SandboxFiles.write_many)
    edit = _in_thread(SandboxFiles.edit)
    multi_edit = _in_thread(SandboxFiles.multi_edit)
    delete = _in_thread(SandboxFiles.delete)
    move = _in_thread(SandboxFiles.move)
    copy = _in_thread(SandboxFiles.copy)
    mkdir = _in_thread(SandboxFiles.mkdir)
    exists = _in_thread(SandboxFiles.exists)
    stat = _in_thread(SandboxFiles.stat)
    list = _in_thread(SandboxFiles.list)
    glob = _in_thread(SandboxFiles.glob)
    grep = _in_thread(SandboxFiles.grep)
    export_tar = _in_thread(SandboxFiles.export_tar)
    import_tar = _in_thread(SandboxFiles.import_tar)


class AsyncProcess:
    """As Process; methods that wait have no timeout, since the event loop has its own."""

    def __init__(self, process: Process) -> None:
        self._sync = process

    @property
    def pid(self) -> int:
        """in the sandbox"""
        return self._sync.pid

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"

    async def read(self) -> Output | None:
        """The next output; None when it has ended and all is read."""
        while True:
            output = self._sync.read_now()
            if output is None or output.data:
                return output
            watch = self._sync._readable()
            await readable(watch.fileno())

    async def __aiter__(self) -> AsyncIterator[Output]:
        """All output until it ends."""
        while (output := await self.read()) is not None:
            yield output

    async def write(self, data: bytes | str) -> None:
        """Writes all data to stdin; needs start(keep_input=True)."""
        left = memoryview(data.encode() if isinstance(data, str) else bytes(data))
        while left:
            left = left[self._sync.write_now(left) :]
            if left:
                await sleep(_WRITE_AGAIN)

    async def wait(self) -> ExecResult:
        """Waits until it ends; the result has the output that was not read."""
        edge = self._sync._edge()
        try:
            while (result := await in_thread(self._sync.poll, _STAY_MS)) is None:
                await readable(edge.fileno())
                edge.poll(0)
        finally:
            self._sync._leave(edge)
        return result

    poll = _in_thread(Process.poll)
    close_input = _in_thread(Process.close_input)
    resize = _in_thread(Process.resize)
    signal = _in_thread(Process.signal)
    kill = _in_thread(Process.kill)
    close = _in_thread(Process.close)

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self._sync.close)


def _creating(
    create: Callable[P, Sandbox],
) -> Callable[P, Coroutine[Any, Any, AsyncSandbox]]:
    @functools.wraps(create)
    async def created(*args: P.args, **kwargs: P.kwargs) -> AsyncSandbox:
        call = functools.partial(create, *args, **kwargs)
        return AsyncSandbox(await create_in_thread(call, Sandbox.__exit__))

    return created


def _starting(
    start: Callable[Concatenate[Sandbox, P], Process],
) -> Callable[Concatenate[AsyncSandbox, P], Coroutine[Any, Any, AsyncProcess]]:
    @functools.wraps(start)
    async def call(
        self: AsyncSandbox, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncProcess:
        begin = functools.partial(start, self._sync, *args, **kwargs)
        return AsyncProcess(await create_in_thread(begin, Process._end))

    return call


class AsyncSandbox:
    """As Sandbox; as an asynchronous context manager it is removed at the end."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sync = sandbox

    create = staticmethod(_creating(Sandbox.create))

    @staticmethod
    async def open(id: str) -> AsyncSandbox:
        """Opens a sandbox by id or name; SandboxNotFoundError if it does not exist."""
        return AsyncSandbox(await in_thread(Sandbox.open, id))

    @property
    def sync(self) -> Sandbox:
        """The same sandbox, with blocking calls."""
        return self._sync

    @property
    def id(self) -> str:
        return self._sync.id

    @property
    def layers(self) -> frozenset[str]:
        """The active isolation layers."""
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
        """Closes the handle; the sandbox continues to run unless it is ephemeral."""
        self._sync.close()

    async def exec(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        fail_on_limit: bool = False,
        on_output: OnOutput | None = None,
        **options: Unpack[CommandOptions],
    ) -> ExecResult:
        """As Sandbox.exec()."""
        flags = _c.EXEC_FAIL_ON_LIMIT if fail_on_limit else 0
        command = Command(argv, flags=flags, **options)
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
        """Runs a script with the sandbox's /bin/sh; options as for exec()."""
        return await self.exec(["/bin/sh", "-c", script], **options)

    async def execute_code(
        self, code: str, language: str | None = None, **options: Unpack[CodeOptions]
    ) -> Execution:
        """As Sandbox.execute_code(); callbacks run in the task.  If the task is cancelled,
        the code is interrupted and keeps its variables; code in a language without contexts
        runs until it ends or its timeout is over."""
        call = Call(self._sync._handles, code, language, options, is_async=True)
        try:
            call.start()
            while await call.take_async():
                pass
            execution = call.end()
        except BaseException:
            await in_thread(call.interrupt)
            raise
        finally:
            call.close()
        if execution is None:
            execution = await in_thread(call.run_once)
        return call.report(execution)

    async def create_context(
        self,
        language: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
        preload: Sequence[str] | None = None,
    ) -> Context:
        """As Sandbox.create_context()."""
        create = functools.partial(
            self._sync.create_context,
            language,
            cwd=cwd,
            env=env,
            user=user,
            timeout=timeout,
            preload=preload,
        )
        remove = functools.partial(self._sync.remove_context, user=user)
        return await create_in_thread(create, remove)

    contexts = _in_thread(Sandbox.contexts)
    restart_context = _in_thread(Sandbox.restart_context)
    remove_context = _in_thread(Sandbox.remove_context)
    interrupt_context = _in_thread(Sandbox.interrupt_context)
    save_contexts = _in_thread(Sandbox.save_contexts)

    start = _starting(Sandbox.start)
    processes = _in_thread(Sandbox.processes)
    inspect = _in_thread(Sandbox.inspect)
    network = _in_thread(Sandbox.network)
    change_network = _in_thread(Sandbox.change_network)
    network_events = _in_thread(Sandbox.network_events)
    checkpoint = _in_thread(Sandbox.checkpoint)
    rollback = _in_thread(Sandbox.rollback)
    checkpoints = _in_thread(Sandbox.checkpoints)
    remove_checkpoint = _in_thread(Sandbox.remove_checkpoint)

    async def fork(
        self,
        which: int | str | Checkpoint | None = None,
        *,
        contexts: bool | SavedContexts = False,
        **options: Any,
    ) -> AsyncSandbox:
        """As Sandbox.fork()."""
        call = functools.partial(self._sync.fork, which, contexts=contexts, **options)
        return AsyncSandbox(await create_in_thread(call, Sandbox.__exit__))

    pause = _in_thread(Sandbox.pause)
    resume = _in_thread(Sandbox.resume)
    set_ttl = _in_thread(Sandbox.set_ttl)
    kill = _in_thread(Sandbox.kill)
    restart = _in_thread(Sandbox.restart)
    remove = _in_thread(Sandbox.remove)

    @staticmethod
    async def collect() -> int:
        """Removes the remains of sandboxes that have ended; returns how many."""
        return await in_thread(Sandbox.collect)

    async def attach(self, which: int | str) -> AsyncProcess:
        """A background process by its pid or tag, running or ended recently."""
        attach = functools.partial(self._sync.attach, which)
        return AsyncProcess(await create_in_thread(attach, Process.close))

    # Last in the class: it hides the type of the same name.
    @staticmethod
    async def list() -> list[SandboxInfo]:
        """Every sandbox of this user, oldest first."""
        return await in_thread(Sandbox.list)
