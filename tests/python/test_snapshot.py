# SPDX-License-Identifier: Apache-2.0
"""cay.Snapshot: files of sandboxes that outlive them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cay import Sandbox, Snapshot
from cay.errors import CayError, SandboxBusyError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))


def test_a_snapshot_outlives_its_sandbox() -> None:
    with Sandbox.create() as sandbox:
        sandbox.files.write("/home/user/file", "one")
        first = sandbox.checkpoint()
        sandbox.files.write("/home/user/file", "two")
        early = Snapshot.create(sandbox, "early:1", first)
        late = Snapshot.create(sandbox, "late")
        with pytest.raises(CayError, match="a snapshot with this name exists"):
            Snapshot.create(sandbox, "late")
        assert Snapshot.create(sandbox, "late", replace=True).name == "late"
    assert [one.name for one in Snapshot.list()] == ["early:1", "late"]
    assert (early.sandbox, early.template, early.user) == (sandbox.id, "host", "user")
    with Sandbox.create(from_="early:1") as one, Sandbox.create(from_="late") as two:
        assert one.files.read("/home/user/file").content == "one"
        assert two.files.read("/home/user/file").content == "two"
        assert Snapshot.get("late").sandboxes == 1
        with pytest.raises(SandboxBusyError):
            late.remove()
    early.remove()
    late.remove()
    assert Snapshot.list() == []
    with pytest.raises(CayError, match="there is no such snapshot"):
        late.remove()


def test_a_pause_to_disk_keeps_the_files() -> None:
    sandbox = Sandbox.create(storage="disk")
    try:
        sandbox.files.write("/home/user/file", "kept")
        sandbox.pause(disk=True)
        assert sandbox.inspect().state == "stopped"
        sandbox.resume()
        assert sandbox.files.read("/home/user/file").content == "kept"
    finally:
        sandbox.remove()


def test_an_exported_snapshot_is_imported_again(tmp_path: Path) -> None:
    path = tmp_path / "s.tar"
    with Sandbox.create() as sandbox:
        sandbox.files.write("/home/user/file", "kept")
        snapshot = Snapshot.create(sandbox, "s:1")
    snapshot.export(path)
    with pytest.raises(FileExistsError):
        snapshot.export(path)
    snapshot.remove()
    with pytest.raises(CayError, match="there is no such snapshot"):
        snapshot.export(tmp_path / "none.tar")
    assert not (tmp_path / "none.tar").exists()
    again = Snapshot.import_(path)
    assert (again.name, again.sandbox) == ("s:1", snapshot.sandbox)
    with path.open("rb") as file:
        assert Snapshot.import_(file.fileno(), "t").name == "t"
    with Sandbox.create(from_="t") as other:
        assert other.files.read("/home/user/file").content == "kept"
    with path.open("r+b") as file:
        file.seek(-2000, 2)
        file.write(b"\1")
    with pytest.raises(CayError, match="does not match its digest"):
        Snapshot.import_(path, "u")
