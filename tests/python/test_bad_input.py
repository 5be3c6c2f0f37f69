# SPDX-License-Identifier: Apache-2.0
"""What is wrong in itself is told as that, and hurts nothing beside it."""

from __future__ import annotations

import array
from pathlib import Path
from typing import Any

import pytest
from conftest import World, make_world

from cay.filesystem import Files, PathConfig, PathNotInSandboxError, Sandbox
from cay.errors import SandboxValueError


def test_a_size_that_cannot_be_told_is_none(world: World) -> None:
    world.files.write(world.path("file"), "text")
    config = PathConfig(root=str(world.host), max_file_bytes=1)
    for host in (world.host / "file" / "below", world.host / ("x" * 300)):
        world.sandbox.check_size(Path(host), config)


def test_a_suffix_of_other_letters_matches_itself(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "data", mode="rw", suffixes=[".ÄÖ", ".TXT"])
    for name in ("a.ÄÖ", "a.txt", "a.Txt"):
        world.files.write(world.path(name), "text")
        config = world.sandbox.get_path_config(world.path(name))[2]
        world.sandbox.check_suffix(world.host / name, config)


def test_one_bad_item_does_not_stop_the_others(world: World) -> None:
    good, bad = world.path("good"), world.path("a\0b")
    written = world.files.write_many({bad: "x", good: "text", world.path("c"): "\ud800"})
    assert isinstance(written[0], PathNotInSandboxError) and written[1] is None
    assert isinstance(written[2], SandboxValueError)
    read = world.files.read_many([bad, good])
    assert isinstance(read[0], PathNotInSandboxError) and read[1] == b"text"


def test_what_means_nothing_is_a_value_error_with_a_hint(world: World) -> None:
    path, files, sandbox = world.path("a"), world.files, world.sandbox
    files.write(path, "text")
    nobody: Any = None
    host: Any = Path("a")
    edits: Any = [{"old": "a", "new": "b"}]
    op: Any = "x"
    for call in (
        lambda: files.read(nobody),
        lambda: files.read(host),
        lambda: sandbox.can_read(nobody),
        lambda: files.multi_edit(path, edits),
        lambda: sandbox.get_path_config(path, op=op),
        lambda: files.grep("x", timeout=float("nan")),
        lambda: files.grep("\ud800"),
        lambda: files.write(path, "\ud800"),
        lambda: files.read(path, offset=-1),
        lambda: files.read_lines(path, max_lines=0),
    ):
        with pytest.raises(SandboxValueError) as caught:
            call()
        assert caught.value.hint and caught.value.hint in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        bytearray(b"abcdefgh"),
        memoryview(b"abcdefgh"),
        memoryview(b"abcdefgh").cast("I"),
        memoryview(b"a.b.c.d.e.f.g.h.")[::2],
        array.array("H", b"abcdefgh"),
    ],
)
def test_all_bytes_of_a_buffer_are_written(world: World, data: Any) -> None:
    said = world.files.write_bytes(world.path("a"), data)
    assert said == f"Written 8 bytes to {world.path('a')}"
    assert world.files.write_many({world.path("b"): data}) == [None]
    for name in ("a", "b"):
        assert (world.host / name).read_bytes() == b"abcdefgh"


@pytest.mark.parametrize("data", [5, True, None, [1, 2], 1.5, {}])
def test_what_is_no_buffer_is_not_written(world: World, data: Any) -> None:
    assert isinstance(
        world.files.write_many({world.path("a"): data})[0], SandboxValueError
    )
    for wrong in (data, "text"):
        with pytest.raises(SandboxValueError, match=type(wrong).__name__):
            world.files.write_bytes(world.path("a"), wrong)
    assert list(world.host.iterdir()) == []


@pytest.mark.parametrize(
    "edit",
    [
        "xy",
        b"xy",
        ("x",),
        ("x", "y", True),
        ("x", 5),
        {"x", "y"},
        {"old_text": "x"},
        {"old_text": "x", "new_text": "y", "replace_al": True},
        {"old_text": "x", "new_text": "y", "replace_all": "no"},
        5,
        None,
    ],
)
def test_what_is_no_edit_is_refused(world: World, edit: Any) -> None:
    world.files.write(world.path("a"), "x")
    with pytest.raises(SandboxValueError, match="Invalid edit"):
        world.files.multi_edit(world.path("a"), [("x", "z"), edit])
    assert (world.host / "a").read_text() == "x"


def test_edits_may_replace_all(world: World) -> None:
    world.files.write(world.path("a"), "x x")
    all_x: dict[str, str | bool] = {"old_text": "x", "new_text": "y"}
    all_x["replace_all"] = True
    world.files.multi_edit(world.path("a"), [all_x, ("y y", "z")])
    assert (world.host / "a").read_text() == "z"


WRONG: list[Any] = [5, 1.5, b"a", object(), [], ["a", 5], {"a": 1}, lambda: None]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_type_is_told_as_one(world: World, wrong: Any) -> None:
    """As TypeError, or as ValueError with a hint, whatever the argument."""
    path, files, sandbox = world.path("a"), world.files, world.sandbox
    files.write(path, "text")
    for call in (
        lambda: sandbox.derive(allow_read=[wrong]),
        lambda: sandbox.derive(allow_read=5),  # type: ignore[arg-type]
        lambda: sandbox.derive(allow_write=b"a"),  # type: ignore[arg-type]
        lambda: sandbox.derive(readonly=wrong),
        lambda: sandbox.derive(inherit=wrong),
        lambda: sandbox.resolve(wrong),
        lambda: sandbox.get_path_config(path, op=wrong),
        lambda: Sandbox(wrong),
        lambda: Sandbox(sandbox.config, approver=5),  # type: ignore[arg-type]
        lambda: Files(wrong),
        lambda: files.read(wrong),
        lambda: files.read(path, max_chars="5"),  # type: ignore[arg-type]
        lambda: files.read(path, pin=wrong),
        lambda: files.write(path, wrong),
        lambda: files.append(path, wrong),
        lambda: files.edit(path, wrong, "x"),
        lambda: files.edit(path, "t", wrong),
        lambda: files.multi_edit(path, [wrong]),
        lambda: files.delete(wrong),
        lambda: files.move(path, wrong),
        lambda: files.list_files(wrong),
        lambda: files.list_files(world.top, wrong),
        lambda: files.glob("*", world.top, exclude=[wrong]),
        lambda: files.glob("*", world.top, exclude="*"),
        lambda: files.grep(wrong),
        lambda: files.grep("x", world.top, wrong),
        lambda: files.grep("x", exclude=5),  # type: ignore[arg-type]
        lambda: files.grep("x", timeout="x"),  # type: ignore[arg-type]
        lambda: files.export_tar(world.top, wrong if wrong != 5 else "x"),
        lambda: files.export_tar(world.top, "x"),  # type: ignore[arg-type]
        lambda: files.import_tar(world.top, "x"),  # type: ignore[arg-type]
    ):
        with pytest.raises((TypeError, SandboxValueError)) as caught:
            call()
        assert str(caught.value)
    assert (world.host / "a").read_text() == "text"


def test_a_search_may_take_for_ever(world: World) -> None:
    world.files.write(world.path("a"), "text")
    assert len(world.files.grep("text", timeout=float("inf")).matches) == 1
