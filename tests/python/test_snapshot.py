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
