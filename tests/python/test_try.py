# SPDX-License-Identifier: Apache-2.0
"""cay.Try: a view of a directory, what changed in it, and applying that."""

from __future__ import annotations

from pathlib import Path

import pytest
from cay import Sandbox, Try
from cay.errors import CayError, NotFoundError, SandboxBusyError


@pytest.fixture(name="project")
def fixture_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "a").write_text("base\n")
    (project / "b").write_text("base\n")
    return project


def run(one: Try, script: str) -> None:
    with Sandbox.create(volumes=[one.bind("/project")]) as sandbox:
        with pytest.raises(SandboxBusyError, match="a sandbox shows this try"):
            one.discard()
        with pytest.raises(SandboxBusyError, match="a sandbox shows this try"):
            Sandbox.create(volumes=[one.bind("/project")])
        assert sandbox.shell(f"cd /project && {script}").exit_code == 0


def test_a_try_is_shown_compared_applied_and_discarded(project: Path) -> None:
    one = Try.create(project, note="make it better")
    assert Try.list() == [one] == [Try.find(one.id[:8])] == [Try.find(dir=project)]
    assert (one.note, one.dir, one.race) == ("make it better", str(project), one.id)
    run(one, "echo theirs > a; rm b; mkdir .git; echo x > .git/config")
    assert (project / "a").read_text() == "base\n"
    assert one.diff("names") == "A\t.git/\nA\t.git/config\nM\ta\nD\tb\n"
    assert "-base\n+theirs\n" in one.diff() and "files changed" in one.diff("stat")
    changes = {change["path"]: change["change"] for change in one.changes()}
    assert changes == {".git": "added", ".git/config": "added", "a": "modified", "b": "deleted"}
    assert one.apply([]) == []
    looked = {done.path: done.verdict for done in one.apply(dry_run=True)}
    assert looked == {".git": "held", ".git/config": "held", "a": "done", "b": "done"}
    assert [done.path for done in one.apply(["b"])] == ["b"] and not (project / "b").exists()
    with pytest.raises(NotFoundError, match="no change of this path"):
        one.apply(["a", "b"])
    (project / "a").write_text("mine\n")
    with pytest.raises(CayError, match="changed on both sides"):
        one.apply()
    (done,) = one.apply(["a"], skip_conflicts=True)
    assert (done.change, done.verdict) == ("modified", "conflict") and done.reason
    assert (project / "a").read_text() == "mine\n"
    with pytest.raises(CayError, match="format"):
        one.diff("html")
    one.discard()
    assert Try.list() == []
    with pytest.raises(CayError, match="there is no such try"):
        one.diff()


def test_a_try_goes_back_and_races(project: Path) -> None:
    one = Try.create(project)
    other = Try.create(project, race=one)
    assert other.race == one.id
    with pytest.raises(CayError, match="one of a race"):
        Try.find(dir=project)
    other.discard()
    run(one, "echo 1 > a")
    saved = one.checkpoint("first")
    assert (saved.id, saved.name, saved.files) == (1, "first", 1)
    run(one, "echo 2 > a")
    undone = one.rollback(saved)
    assert undone and undone.id == 2 and "+1\n" in one.diff()
    assert one.rollback("first") is None
    assert [(kept.id, kept.current) for kept in one.checkpoints()] == [(1, True), (2, False)]
    one.rollback(2)
    assert "+2\n" in one.diff()
    one.remove_checkpoint(1)
    with pytest.raises(CayError, match="no such checkpoint"):
        one.rollback("first")
    one.discard()
