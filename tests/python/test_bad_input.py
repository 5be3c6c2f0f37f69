# SPDX-License-Identifier: Apache-2.0
"""What is wrong in itself is told as that, and hurts nothing beside it."""

from __future__ import annotations

from pathlib import Path

from conftest import World, make_world

from cay.filesystem import PathConfig


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
