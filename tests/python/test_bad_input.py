# SPDX-License-Identifier: Apache-2.0
"""What is wrong in itself is told as that, and hurts nothing beside it."""

from __future__ import annotations

from pathlib import Path

from conftest import World

from cay.filesystem import PathConfig


def test_a_size_that_cannot_be_told_is_none(world: World) -> None:
    world.files.write(world.path("file"), "text")
    config = PathConfig(root=str(world.host), max_file_bytes=1)
    for host in (world.host / "file" / "below", world.host / ("x" * 300)):
        world.sandbox.check_size(Path(host), config)
