# SPDX-License-Identifier: Apache-2.0
"""Derived sandboxes: less than their parent, at any depth, never more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import World, make_world

from cay.filesystem import (
    Decision,
    Files,
    Mount,
    PathConfig,
    PathNotInSandboxError,
    PathNotWritableError,
    Request,
    Sandbox,
    SandboxConfig,
    SandboxError,
    SandboxPermissionEscalationError,
)


def test_a_child_may_do_nothing_by_default(world: World) -> None:
    child = world.sandbox.derive()
    assert child.readable_roots == [] == child.writable_roots
    assert not child.can_read(world.path("x")) and not child.can_write(world.path("x"))
    with pytest.raises(PathNotInSandboxError):
        child.resolve(world.path("x"))


def test_allow_read_alone_allows_no_writing(world: World) -> None:
    child = world.sandbox.derive(allow_read=world.path("sub"))
    assert child.can_read(world.path("sub/a"))
    assert not child.can_read(world.path("b")) and not child.can_read(world.top)
    assert not child.can_write(world.path("sub/a"))
    assert child.readable_roots == [world.path("sub")] and child.writable_roots == []
    with pytest.raises(PathNotInSandboxError):
        child.resolve(world.path("b"))
    with pytest.raises(PathNotWritableError):
        Files(child).write(world.path("sub/a"), "x")


def test_allow_write_alone_allows_reading_the_same(world: World) -> None:
    child = world.sandbox.derive(allow_write=world.path("sub"))
    assert child.can_read(world.path("sub/a")) and child.can_write(world.path("sub/a"))
    assert child.readable_roots == [world.path("sub")] == child.writable_roots


def test_both_lists_are_independent(world: World) -> None:
    child = world.sandbox.derive(
        allow_read=[world.path("a")], allow_write=[world.path("b")]
    )
    assert child.can_read(world.path("a/x")) and not child.can_write(world.path("a/x"))
    assert child.can_write(world.path("b/x")) and not child.can_read(world.path("b/x"))
    Files(child).write(world.path("b/x"), "x")
    with pytest.raises(PathNotInSandboxError):
        Files(child).read(world.path("b/x"))


def test_an_empty_list_is_not_a_missing_one(world: World) -> None:
    child = world.sandbox.derive(allow_read=[], inherit=True)
    assert child.readable_roots == [] == child.writable_roots


def test_inherit_keeps_what_the_parent_has(world: World) -> None:
    child = world.sandbox.derive(inherit=True)
    assert child.readable_roots == world.sandbox.readable_roots
    assert child.writable_roots == world.sandbox.writable_roots
    assert child.can_write(world.path("x"))


def test_readonly_takes_the_writing_away(world: World) -> None:
    child = world.sandbox.derive(inherit=True, readonly=True)
    assert child.can_read(world.path("x")) and not child.can_write(world.path("x"))
    listed = world.sandbox.derive(allow_write=world.path("sub"), readonly=True)
    assert listed.can_read(world.path("sub/x")) and listed.writable_roots == []


def test_readonly_false_is_fine_where_the_parent_may_write(world: World) -> None:
    assert world.sandbox.derive(inherit=True, readonly=False).can_write(world.path("x"))


def test_readonly_false_under_a_readonly_parent_is_an_escalation(
    world: World, readonly: World
) -> None:
    for parent in (readonly.sandbox, world.sandbox.derive(allow_read=world.top)):
        with pytest.raises(SandboxPermissionEscalationError) as caught:
            parent.derive(inherit=True, readonly=False)
        assert type(caught.value) is SandboxPermissionEscalationError


def test_writing_where_the_parent_may_not_is_an_escalation(readonly: World) -> None:
    for raised in (SandboxPermissionEscalationError, PathNotWritableError):
        with pytest.raises(raised):
            readonly.sandbox.derive(allow_write=readonly.path("sub"))


def test_reading_where_the_parent_may_not_is_an_escalation(world: World) -> None:
    child = world.sandbox.derive(allow_read=world.path("sub"))
    for raised in (SandboxPermissionEscalationError, PathNotInSandboxError):
        with pytest.raises(raised):
            child.derive(allow_read=world.path("other"))
        with pytest.raises(raised):
            world.sandbox.derive(
                allow_read="/no/such\\place:x" if world.style == "root" else "/nowhere"
            )


def test_grandchildren_narrow_further_and_never_regain(world: World) -> None:
    child = world.sandbox.derive(allow_read=world.path("sub"))
    grandchild = child.derive(allow_read=world.path("sub/deep"))
    assert grandchild.can_read(world.path("sub/deep/x"))
    assert not grandchild.can_read(world.path("sub/x"))
    with pytest.raises(SandboxPermissionEscalationError):
        grandchild.derive(allow_read=world.path("sub"))
    with pytest.raises(SandboxPermissionEscalationError):
        child.derive(allow_write=world.path("sub"))


def test_write_entries_are_checked_even_if_readonly(readonly: World) -> None:
    with pytest.raises(SandboxPermissionEscalationError):
        readonly.sandbox.derive(allow_write=readonly.path("sub"), readonly=True)


def test_climbing_entries_are_refused(world: World) -> None:
    with pytest.raises(ValueError, match="must not contain '..'"):
        world.sandbox.derive(allow_read=world.path("a/../b"))


def test_entries_of_a_root_start_with_a_slash(tmp_path: Path) -> None:
    world = make_world("root", tmp_path / "data")
    with pytest.raises(ValueError, match="start with '/'"):
        world.sandbox.derive(allow_read="sub")


def test_a_file_entry_is_refused_at_mounts(mounts: World) -> None:
    (mounts.host / "sub").mkdir()
    (mounts.host / "sub" / "file").write_text("x")
    with pytest.raises(ValueError, match="parent directory"):
        mounts.sandbox.derive(allow_read="/data/sub/file")


@pytest.mark.parametrize("style", ["paths", "root"])
def test_a_file_entry_means_its_directory_elsewhere(world: World) -> None:
    (world.host / "sub").mkdir()
    (world.host / "sub" / "file").write_text("x")
    child = world.sandbox.derive(allow_read=world.path("sub/file"))
    assert child.can_read(world.path("sub/other"))
    assert not child.can_read(world.path("other"))


def test_missing_directories_are_accepted(world: World) -> None:
    child = world.sandbox.derive(allow_write=world.path("later"))
    Files(child).write(world.path("later/x"), "x")
    assert (world.host / "later" / "x").read_text() == "x"


def test_labels_are_listed_once_without_a_trailing_slash(world: World) -> None:
    child = world.sandbox.derive(
        allow_read=[world.path("b/"), world.path("a"), world.path("b")]
    )
    assert child.readable_roots == [world.path("b"), world.path("a")]


def test_a_prefix_does_not_cover_a_nested_mount(tmp_path: Path) -> None:
    sandbox = Sandbox(
        SandboxConfig(
            mounts=[
                Mount(host_path=tmp_path / "data", mount_point="/data"),
                Mount(host_path=tmp_path / "special", mount_point="/data/special"),
            ]
        )
    )
    child = sandbox.derive(allow_read="/data")
    assert child.can_read("/data/x") and not child.can_read("/data/special/x")


def test_what_an_entry_covers_is_fixed_when_it_is_given(world: World) -> None:
    (world.host / "public").mkdir()
    (world.host / "secret").mkdir()
    (world.host / "secret" / "x").write_text("secret")
    child = world.sandbox.derive(allow_read=world.path("public"))
    (world.host / "public").rmdir()
    (world.host / "public").symlink_to("secret")
    assert not child.can_read(world.path("public/x"))


def yes(request: Request) -> Decision:
    return Decision(True)


# What may happen to the entries of a child, dir/entry and dir/other, once it is derived.
CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda top: None,
    "it becomes a file": lambda top: (top / "entry").write_text("x"),
    "it becomes a directory": lambda top: (top / "entry").mkdir(),
    "it becomes a link": lambda top: (top / "entry").symlink_to("other"),
    "it becomes a link to the top": lambda top: (top / "entry").symlink_to(".."),
    "it becomes a link out": lambda top: (top / "entry").symlink_to("/etc"),
    "what it is in becomes a file": lambda top: (
        top.rename(top.with_name("away")),
        top.write_text("x"),
    ),
    "what it is in becomes a link": lambda top: (
        top.rename(top.with_name("away")),
        top.symlink_to("away"),
    ),
}
DERIVATIONS: dict[str, Callable[[Sandbox, str], Sandbox]] = {
    "read": lambda parent, entry: parent.derive(allow_read=entry),
    "write": lambda parent, entry: parent.derive(allow_write=entry),
    "both": lambda parent, entry: parent.derive(allow_read=[], allow_write=entry),
    "readonly": lambda parent, entry: parent.derive(allow_write=entry, readonly=True),
    "inherited": lambda parent, entry: (
        parent.derive(allow_write=entry).derive(inherit=True)
    ),
    "grandchild": lambda parent, entry: (
        parent.derive(allow_write=entry.rpartition("/")[0]).derive(allow_write=entry)
    ),
    "readonly grandchild": lambda parent, entry: (
        parent.derive(inherit=True, readonly=True).derive(allow_read=entry)
    ),
    "nothing": lambda parent, entry: parent.derive(),
}


@pytest.mark.parametrize("was", ["missing", "directory", "file"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("derivation", DERIVATIONS)
def test_a_child_with_an_approver_may_do_what_the_child_may(
    style: str, tmp_path: Path, was: str, change: str, derivation: str
) -> None:
    world = make_world(style, tmp_path / "data", mode="rw")
    top = world.host / "dir"
    (top / "other").mkdir(parents=True)
    for name in ("secret", "dir/secret", "dir/other/secret"):
        (world.host / name).write_text("TOP")
    if was == "directory":
        (top / "entry").mkdir()
    elif was == "file" and style != "mounts":
        (top / "entry").write_text("x")
    child = DERIVATIONS[derivation](world.sandbox, world.path("dir/entry"))
    for there in top.glob("entry"):
        there.rmdir() if there.is_dir() else there.unlink()
    CHANGES[change](top)

    plain, asking = Files(child), Files(child, approver=yes)
    rests = ("", "secret", "dir", "dir/secret", "dir/new", "dir/other/secret")
    more = ("dir/entry", "dir/entry/secret", "dir/entry/new", "dir/entry/dir/secret")
    for path in (world.path(rest) for rest in (*rests, *more)):
        for ask in (
            lambda files: files.read(path).content,
            lambda files: files.list_files(path),
            lambda files: files.write(path, "x", new=True) and files.delete(path),
        ):
            assert outcome(lambda: ask(asking)) == outcome(lambda: ask(plain))
    assert asking.list_files() == plain.list_files()


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except SandboxError as error:
        return type(error), str(error)


@pytest.mark.parametrize("style", ["paths", "root"])
def test_an_entry_that_becomes_a_file_does_not_bring_its_directory(
    world: World,
) -> None:
    (world.host / "out").mkdir()
    (world.host / "out" / "secret").write_text("TOP")
    child = world.sandbox.derive(allow_write=world.path("out/report"))
    files = Files(child, approver=yes)
    files.write(world.path("out/report"), "x")
    for asking in (files, Files(child, approver=yes)):
        assert asking.read(world.path("out/report")).content == "x"
        with pytest.raises(PathNotInSandboxError):
            asking.read(world.path("out/secret"))
        with pytest.raises(PathNotWritableError):
            asking.write(world.path("out/more"), "x")


def test_an_approver_does_not_move_a_sandbox_to_another_directory(world: World) -> None:
    world.host.rename(world.host.with_name("moved"))
    world.host.mkdir()
    for number, one in enumerate((world.sandbox, world.sandbox.derive(inherit=True))):
        Files(one, approver=yes).write(world.path(f"x{number}"), "x")
    assert sorted(os.listdir(world.host.with_name("moved"))) == ["x0", "x1"]
    assert os.listdir(world.host) == []


def test_each_approver_remembers_for_itself(mounts: World) -> None:
    asked: list[str] = []

    def approve(request: Request) -> Decision:
        asked.append(request.path)
        return Decision(True, remember="session")

    child = mounts.sandbox.derive(allow_write="/data/sub")
    for _ in range(2):
        files = Files(child, approver=approve)
        files.write("/data/sub/x", "x")
        files.write("/data/sub/x", "x")
    assert asked == ["/data/sub/x"] * 2


def test_rules_come_from_the_directory(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "data", mode="rw", suffixes=[".txt"])
    child = world.sandbox.derive(allow_write=world.path("sub"))
    assert child.needs_write_approval(world.path("sub/x.txt"))
    _, _, config = child.get_path_config(world.path("sub/x.txt"), op="write")
    assert config.suffixes == [".txt"]


def test_a_child_outlives_its_parent(tmp_path: Path) -> None:
    config = SandboxConfig(paths={"d": PathConfig(root=str(tmp_path / "d"), mode="rw")})
    child = Sandbox(config).derive(inherit=True)
    Files(child).write("d/x", "x")
    assert Files(child).read("d/x").content == "x"
