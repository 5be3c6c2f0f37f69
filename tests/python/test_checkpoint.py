# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and rollbacks, from Python."""

from __future__ import annotations

import asyncio

import pytest
from native import ledger, make_sandbox

from cay.sandbox import AsyncSandbox, SandboxBusyError, SandboxValueError


def test_a_rollback_restores_the_files_of_a_checkpoint() -> None:
    with ledger(), make_sandbox() as box:
        box.shell("echo one > a")
        first = box.checkpoint("first")
        assert (first.id, first.parent, first.name, first.current) == (1, None, "first", True)
        box.shell("echo two > a")
        undone = box.rollback("first")
        assert undone is not None and (undone.cause, undone.parent) == ("rollback", 1)
        assert box.shell("cat a").stdout == "one\n"
        assert box.rollback(undone) is None
        assert box.shell("cat a").stdout == "two\n"
        assert [(one.id, one.current) for one in box.checkpoints()] == [(1, False), (2, True)]


def test_a_process_makes_a_checkpoint_busy_unless_it_is_stopped() -> None:
    with ledger(), make_sandbox() as box, box.start(["sleep", "1000"]) as process:
        with pytest.raises(SandboxBusyError):
            box.checkpoint()
        assert box.checkpoint(stop=True).id == 1
        assert process.wait().exit_code != 0


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
