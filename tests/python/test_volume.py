# SPDX-License-Identifier: Apache-2.0
"""cay.Volume: directories that outlive sandboxes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cay import Sandbox, Volume
from cay.errors import CayError, SandboxBusyError, SandboxValueError
from cay.sandbox import Bind


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))


def test_a_volume_is_created_listed_and_removed() -> None:
    volume = Volume.create("data")
    assert Volume.list() == [volume] and (volume.name, volume.sandboxes) == ("data", 0)
    with pytest.raises(CayError, match="data: a volume with this name exists"):
        Volume.create("data")
    volume.remove()
    assert Volume.list() == []
    with pytest.raises(CayError, match="there is no such volume"):
        volume.remove()
    with pytest.raises(SandboxValueError, match="invalid volume name"):
        Volume.create("a/b")


def test_sandboxes_share_a_volume() -> None:
    volume = Volume.create("data")
    with (
        Sandbox.create(volumes=["data:/data"]) as one,
        Sandbox.create(volumes=[Bind("data", "/d")]) as other,
    ):
        one.files.write("/data/file", "shared")
        assert other.files.read("/d/file").content == "shared"
        assert other.shell("echo x > /d/file").exit_code != 0
        assert Volume.list()[0].sandboxes == 2
        with pytest.raises(SandboxBusyError, match=f"{one.id}|{other.id}"):
            volume.remove()
    with volume.open() as sandbox:
        assert sandbox.shell("pwd; cat file").stdout == "/volume\nshared"


def test_a_path_without_a_slash_is_a_path_if_it_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CayError, match="there is no such volume"):
        Sandbox.create(volumes=["here:/d"])
    for volumes in (["./here:/d"], [Bind(Path("here"), "/d")], {"./here": "/d:ro"}):
        with Sandbox.create(volumes=volumes) as sandbox:
            assert sandbox.files.read("/d/file").content == "mine"
