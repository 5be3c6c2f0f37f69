# SPDX-License-Identifier: Apache-2.0
"""Copies of what holds something of C's."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import World
from native import make_sandbox

from cay import AsyncSandbox
from cay.filesystem import Decision, FileSystemToolset, Request
from cay.nexau import DatabaseEngine

COPIES = [copy.copy, copy.deepcopy]


def yes(_request: Request) -> Decision:
    return Decision(approved=True)


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_a_sandbox_or_toolset_outlives_the_first_and_the_first_it(
    world: World, copied: Callable[[Any], Any]
) -> None:
    path = world.path("a")
    for toolset in (
        FileSystemToolset(world.sandbox),
        FileSystemToolset(world.sandbox, approver=yes),
    ):
        other = copied(toolset)
        assert copied(toolset.sandbox).readable_roots == world.sandbox.readable_roots
        gc.collect()
        toolset.write(path, "text")
        del toolset
        gc.collect()
        assert other.read(path).content == "text"


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_a_reader_is_the_reader(
    world: World, copied: Callable[[Any], Any]
) -> None:
    world.files.write(world.path("a"), "text")
    with world.files.open(world.path("a")) as reader:
        assert copied(reader) is reader


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_a_store_is_the_store(
    tmp_path: Path, copied: Callable[[Any], Any]
) -> None:
    engine = DatabaseEngine(tmp_path / "store")
    assert copied(engine) is engine


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_a_native_sandbox_or_process_is_good_as_long_as_either(
    copied: Callable[[Any], Any],
) -> None:
    with make_sandbox() as box:
        other = copied(box)
        process = box.start(["cat"], keep_input=True)
        assert copied(process) is process
        process.close()
        del other
        gc.collect()
        assert box.exec(["true"]).exit_code == 0


def test_what_holds_open_files_says_that_it_cannot_be_pickled(world: World) -> None:
    for held in (world.sandbox, world.files, FileSystemToolset(world.sandbox)):
        with pytest.raises(TypeError, match="pickle the configuration"):
            pickle.dumps(held)


def test_what_is_pickled_instead_of_a_native_sandbox_is_its_id() -> None:
    with make_sandbox() as box, box.start(["sleep", "100"]) as process:
        box.files.exists("a")
        for held in (box, box.files, AsyncSandbox(box), process):
            with pytest.raises(TypeError, match=r"Sandbox\.open\(id\)"):
                pickle.dumps(held)
        assert copy.deepcopy(box).files.exists("/")
