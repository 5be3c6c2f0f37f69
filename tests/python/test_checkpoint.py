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


def test_contexts_of_a_fork_go_on_with_their_variables() -> None:
    with ledger(), make_sandbox() as box:
        box.execute_code("import random, numpy\ndef twice(x): return 2 * x\n"
                         "a = numpy.arange(5)\nrandom.seed(1); numpy.random.seed(1)")
        box.execute_code("y=1", "bash")
        with box.save_contexts() as saved:
            python, bash = saved.contexts
            assert python.reason is None and python.size > 0 and python.is_default
            assert bash.reason == "only Python can be saved"
            with box.fork(contexts=saved) as one, box.fork(contexts=saved) as other:
                drawn = "print(twice(a).sum(), random.random(), numpy.random.random())"
                first, second, third = (
                    "".join(made.execute_code(drawn).logs.stdout).split()
                    for made in (box, one, other)
                )
                assert first[0] == second[0] == third[0] == "20"
                assert len({*first[1:], *second[1:], *third[1:]}) == 6
                done = one.execute_code("echo $y", "bash")
                assert done.restarted and "did not come along" in done.restarted
        with pytest.raises(SandboxValueError):
            box.fork(contexts=saved)
        with pytest.raises(SandboxValueError):
            box.fork("none", contexts=True)


def test_contexts_of_a_fork_have_their_ids_and_directories_and_are_restarted_anew() -> None:
    with ledger(), make_sandbox() as box:
        own = box.create_context(cwd="/tmp", env={"OWN": "one"})
        box.execute_code("import os; x = 5", context=own)
        with box.fork(contexts=True) as made:
            assert [one.id for one in made.contexts()] == [own.id]
            done = made.execute_code("x, os.getcwd(), os.environ['OWN']", context=own.id)
            assert (done.text, done.restarted) == ("(5, '/tmp', 'one')", None)
            made.restart_context(own.id)
            done = made.execute_code("x", context=own.id)
            assert done.error and (done.error.name, done.restarted) == ("NameError", None)


# The layer is copied while processes run, so the library of a fork is another file.
def test_a_context_goes_on_with_a_library_of_the_sandbox_unless_that_has_changed() -> None:
    with ledger(), make_sandbox() as box:
        box.shell("cp $(/usr/bin/python3 -c 'import _json; print(_json.__file__)') /tmp/_json.so")
        imported = box.execute_code(
            "import sys, importlib.util\n"
            "spec = importlib.util.spec_from_file_location('_json', '/tmp/_json.so')\n"
            "own = importlib.util.module_from_spec(spec); spec.loader.exec_module(own)"
        )
        assert imported.error is None, imported
        with box.save_contexts() as saved:
            with box.fork(contexts=saved) as made:
                done = made.execute_code("own.encode_basestring('x')")
                assert (done.text, done.restarted) == ("'\"x\"'", None)
            box.shell("touch /tmp/_json.so")
            with box.fork(contexts=saved) as made:
                done = made.execute_code("own")
                assert done.error and done.restarted and "did not come" in done.restarted


def test_an_asynchronous_fork_goes_on_with_its_contexts() -> None:
    async def scenario() -> None:
        async with await AsyncSandbox.create(ephemeral=True) as box:
            await box.execute_code("x = 40")
            async with await box.fork(contexts=True, ephemeral=True) as made:
                assert (await made.execute_code("x + 2")).text == "42"

    with ledger():
        asyncio.run(scenario())
