# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for Python, unmodified: the core of it in its asynchronous form."""

import asyncio
import random

import pytest
from e2b import (
    AsyncSandbox,
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    PtySize,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from serving import PATIENCE


@pytest.fixture(name="run")
def fixture_run(server):
    """Runs a coroutine with a sandbox of its own."""

    def run(coroutine, **options):
        async def whole():
            sandbox = await AsyncSandbox.create(**options)
            try:
                await asyncio.wait_for(coroutine(sandbox), 2 * PATIENCE)
            finally:
                await sandbox.kill()

        asyncio.run(whole())

    return run


async def until(condition, what):
    for _ in range(PATIENCE * 50):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(what)


def test_a_life(run):
    async def test(sandbox):
        info = await sandbox.get_info()
        assert (info.metadata, info.state) == ({"is": "async"}, SandboxState.RUNNING)
        found = await AsyncSandbox.list(query=SandboxQuery(metadata={"is": "async"})).next_items()
        assert [item.sandbox_id for item in found] == [sandbox.sandbox_id]
        again = await AsyncSandbox.connect(sandbox.sandbox_id)
        assert await again.is_running()
        await sandbox.set_timeout(1000)
        assert await sandbox.pause() is True
        assert await sandbox.is_running() is False
        await sandbox.connect()
        assert await sandbox.is_running() is True
        assert await sandbox.kill() is True
        assert await sandbox.kill() is False
        with pytest.raises(SandboxNotFoundException):
            await sandbox.get_info()

    run(test, metadata={"is": "async"})


def test_commands(run):
    async def test(sandbox):
        result = await sandbox.commands.run("echo $A; pwd; id -u", envs={"A": "b"}, cwd="/tmp",
                                            user="root")
        assert result.stdout == "b\n/tmp\n0\n"
        with pytest.raises(CommandExitException) as caught:
            await sandbox.commands.run("echo x; exit 3")
        assert (caught.value.exit_code, caught.value.stdout) == (3, "x\n")
        with pytest.raises(TimeoutException):
            await sandbox.commands.run("sleep 1000", timeout=1)
        results = await asyncio.gather(*(sandbox.commands.run(f"sleep 0.1; echo {n}")
                                         for n in range(50)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(50)]

    run(test)


def test_commands_in_the_background(run):
    async def test(sandbox):
        heard, again = [], []
        handle = await sandbox.commands.run("while read w; do echo got $w; done; exit 2",
                                            background=True, stdin=True, on_stdout=heard.append)
        await sandbox.commands.send_stdin(handle.pid, "one\n")
        await until(lambda: "".join(heard) == "got one\n", heard)
        second = await sandbox.commands.connect(handle.pid, on_stdout=again.append)
        await sandbox.commands.send_stdin(handle.pid, "two\n")
        await until(lambda: "".join(again) == "got two\n", again)
        await sandbox.commands.close_stdin(handle.pid)
        for one in (handle, second):
            with pytest.raises(CommandExitException) as caught:
                await one.wait()
            assert caught.value.exit_code == 2
        sleeper = await sandbox.commands.run("sleep 1000", background=True)
        assert sleeper.pid in [process.pid for process in await sandbox.commands.list()]
        assert await sleeper.kill() is True

    run(test)


def test_a_terminal(run):
    async def test(sandbox):
        seen = bytearray()
        handle = await sandbox.pty.create(PtySize(rows=20, cols=90), on_data=seen.extend)
        await sandbox.pty.send_stdin(handle.pid, b"stty size\n")
        await until(lambda: b"20 90" in seen, seen)
        await sandbox.pty.resize(handle.pid, PtySize(rows=21, cols=91))
        await sandbox.pty.send_stdin(handle.pid, b"stty size; exit\n")
        await until(lambda: b"21 91" in seen, seen)
        assert (await handle.wait()).exit_code == 0

    run(test)


def test_files(run):
    async def test(sandbox):
        data = random.Random(1).randbytes(3_000_001)
        await asyncio.gather(*(sandbox.files.write(f"d/ü {n}", data[n:]) for n in range(8)))
        for number in range(8):
            got = await sandbox.files.read(f"d/ü {number}", format="bytes")
            assert got == data[number:]
        pieces = [piece async for piece in await sandbox.files.read("d/ü 0", format="stream")]
        assert b"".join(pieces) == data
        assert {entry.name for entry in await sandbox.files.list("d")} == {
            f"ü {number}" for number in range(8)}
        await sandbox.files.rename("d/ü 0", "d/new")
        assert await sandbox.files.exists("d/new")
        assert not await sandbox.files.exists("d/ü 0")
        await sandbox.files.remove("d")
        with pytest.raises(FileNotFoundException):
            await sandbox.files.read("d/new")

    run(test)


def test_a_watch(run):
    async def test(sandbox):
        events = []
        await sandbox.files.make_dir("w/below")
        handle = await sandbox.files.watch_dir("w", on_event=events.append, recursive=True)
        await sandbox.files.write("w/below/file", "x")
        await sandbox.files.remove("w/below/file")
        await until(lambda: {(FilesystemEventType.CREATE, "below/file"),
                             (FilesystemEventType.WRITE, "below/file"),
                             (FilesystemEventType.REMOVE, "below/file")}
                    <= {(event.type, event.name) for event in events}, events)
        await handle.stop()
        with pytest.raises(FileNotFoundException):
            await sandbox.files.watch_dir("nowhere", on_event=events.append)

    run(test)


def test_a_watch_that_would_go_on_with_a_part_ends_and_says_why(run):
    async def test(sandbox):
        events, ends = [], []
        await sandbox.commands.run(
            "mkdir all none && cd all && mkdir $(seq -f d%.0f 8192)")
        with pytest.raises(SandboxException, match="at most 8192 watched directories"):
            await sandbox.files.watch_dir("all", on_event=events.append, recursive=True)
        await sandbox.files.watch_dir("none", on_event=events.append, on_exit=ends.append,
                                      recursive=True, timeout=0)
        await sandbox.commands.run("mv all none")
        await until(lambda: ends, "it goes on")
        assert "at most 8192 watched directories" in str(ends[0])
        assert "all" in {event.name for event in events}

    run(test)


def test_a_sandbox_killed_under_streams(run):
    async def test(sandbox):
        heard = []
        handles = [await sandbox.commands.run("echo here; sleep 1000", background=True, timeout=0,
                                              on_stdout=heard.append) for _ in range(5)]
        await until(lambda: len(heard) == 5, heard)
        assert await sandbox.kill() is True
        for handle in handles:
            with pytest.raises(SandboxNotRunningException):
                await handle.wait()

    run(test)


def test_many_streams_at_once(run):
    """Fewer than 200, which is what the SDK's own pool of connections takes."""
    count = 150

    async def test(sandbox):
        heard = [[] for _ in range(count)]
        await sandbox.commands.run("touch gate")
        holder = await sandbox.commands.run("exec flock -F gate sleep 1000",
                                            background=True, timeout=0)
        while not (await sandbox.commands.run("flock -n gate true || echo held")).stdout:
            pass  # the gate is still open
        handles = [await sandbox.commands.run(f"echo {n}; exec flock -sF gate echo go",
                                              timeout=0, background=True,
                                              on_stdout=heard[n].append)
                   for n in range(count)]
        await until(lambda: all(heard), "not all have begun")
        assert len(await sandbox.commands.list()) == count + 1
        assert await holder.kill() is True
        for handle in handles:
            assert (await handle.wait()).exit_code == 0
        assert ["".join(words) for words in heard] == [f"{n}\ngo\n" for n in range(count)]

    run(test)
