# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and rollbacks, from Python."""

from __future__ import annotations

import asyncio

import pytest
from native import ledger, make_sandbox

from cay.sandbox import AsyncSandbox, SandboxNotFoundError, SandboxValueError


def test_a_rollback_restores_the_files_of_a_checkpoint() -> None:
    with ledger(), make_sandbox() as box:
        box.shell("echo one > a")
        first = box.checkpoint("first")
        assert (first.id, first.parent, first.name, first.current) == (1, None, "first", True)
        box.shell("echo two > a")
        undone = box.rollback("first").undone
        assert undone is not None and (undone.cause, undone.parent) == ("rollback", 1)
        assert box.shell("cat a").stdout == "one\n"
        assert box.rollback(undone).undone is None
        assert box.shell("cat a").stdout == "two\n"
        assert [(one.id, one.current) for one in box.checkpoints()] == [(1, False), (2, True)]


def test_a_process_runs_on_after_a_checkpoint_unless_it_is_stopped() -> None:
    with ledger(), make_sandbox() as box, box.start(["sleep", "1000"]) as process:
        assert box.checkpoint().processes == 1
        assert box.shell("pgrep -c sleep").stdout == "1\n"
        assert box.checkpoint(stop=True).processes == 0
        assert process.wait().exit_code != 0


def test_a_rollback_reports_the_processes_that_it_has_ended() -> None:
    with ledger(), make_sandbox() as box:
        box.checkpoint("first")
        with box.start(["sleep", "1000"]) as process:
            done = box.rollback("first")
            assert [(one.pid, one.command) for one in done.ended] == [(process.pid, "sleep 1000")]
            assert done.kept == 0 and process.wait().exit_code != 0


def test_a_removed_checkpoint_gives_its_space_back() -> None:
    with ledger(), make_sandbox() as box:
        first = box.checkpoint("first")
        box.shell("head -c 1M /dev/urandom > big")
        big = box.checkpoint("big")
        box.rollback(first)
        assert box.remove_checkpoint(big) >= 1 << 20
        assert box.remove_checkpoint("first") == 0
        assert box.checkpoints() == []
        with pytest.raises(SandboxNotFoundError):
            box.remove_checkpoint("big")


def test_each_command_begins_with_a_checkpoint_if_requested() -> None:
    with ledger(), make_sandbox(checkpoint_each=True) as box:
        box.shell("echo one > a")
        box.shell("true")
        box.shell("echo two > a")
        found = box.checkpoints()
        assert [one.cause for one in found] == ["command"] * 2
        box.rollback(found[1])
        assert box.files.read_text("a") == "one\n"
        assert box.checkpoint(cause="call-7").cause == "command"
        box.files.write("b", "")
        assert box.checkpoint(cause="call-7").cause == "call-7"
        with pytest.raises(SandboxValueError):
            box.checkpoint(cause="a/b")


def test_an_invalid_name_is_refused() -> None:
    with ledger(), make_sandbox() as box, pytest.raises(SandboxValueError):
        box.checkpoint("12")


def test_an_asynchronous_sandbox_has_checkpoints() -> None:
    async def scenario() -> None:
        async with await AsyncSandbox.create(ephemeral=True) as box:
            await box.checkpoint("a")
            await box.shell("touch b")
            await box.rollback("a")
            assert (await box.shell("ls b")).exit_code != 0
            assert len(await box.checkpoints()) == 2

    with ledger():
        asyncio.run(scenario())


def test_a_fork_has_the_files_of_a_checkpoint_and_shares_no_change() -> None:
    with ledger(), make_sandbox(memory="256M") as box:
        box.shell("echo one > a")
        first = box.checkpoint("first")
        box.shell("echo two > a")
        with box.fork(first, ephemeral=True) as old, box.fork(ephemeral=True, pids=99) as now:
            assert (old.shell("cat a").stdout, now.shell("cat a").stdout) == ("one\n", "two\n")
            assert old.inspect().memory == 256 << 20 and now.inspect().pids == 99
            old.shell("rm a")
            assert box.shell("cat a").stdout == "two\n"
        with pytest.raises(SandboxNotFoundError):
            box.fork("nothing")


def test_an_asynchronous_sandbox_has_forks() -> None:
    async def scenario() -> None:
        async with await AsyncSandbox.create(ephemeral=True) as box:
            await box.shell("touch b")
            async with await box.fork(ephemeral=True) as made:
                assert (await made.shell("ls")).stdout == "b\n"

    with ledger():
        asyncio.run(scenario())
