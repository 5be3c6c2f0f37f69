# SPDX-License-Identifier: Apache-2.0
"""Paths: how they may be spelled, where they lead, what is granted there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import World, make_world

from cay.filesystem import (
    FileTooLargeError,
    Mount,
    PathConfig,
    PathNotInSandboxError,
    PathNotWritableError,
    RootSandboxConfig,
    Sandbox,
    SandboxConfig,
    SandboxError,
    SuffixNotAllowedError,
)


def nested(tmp_path: Path) -> Sandbox:
    """/data, with another directory at /data/special."""
    (tmp_path / "data" / "special").mkdir(parents=True)
    (tmp_path / "data" / "special" / "hidden.txt").write_text("hidden")
    return Sandbox(
        SandboxConfig(
            mounts=[
                Mount(host_path=tmp_path / "data", mount_point="/data", mode="rw"),
                Mount(host_path=tmp_path / "special", mount_point="/data/special"),
            ]
        )
    )


# --- Mounts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelled",
    [
        "data/x",
        "/data/x",
        "//data//x",
        "\\data\\x",
        "  /data/x ",
        "/data/./x",
        "/data/a/../x",
        "/./data/x",
        "/data/x/",
    ],
)
def test_a_mounted_path_has_many_spellings(mounts: World, spelled: str) -> None:
    assert mounts.sandbox.resolve(spelled) == mounts.host / "x"


@pytest.mark.parametrize(
    "spelled",
    [
        "/",
        "",
        ".",
        "/database/x",
        "/Data/x",
        "~",
        "~/x",
        "c:/x",
        "C:\\x",
        "/data/../../etc",
        "/data\0",
        "/data/x\0y",
        "..",
        "/other/x",
        "x",
    ],
)
def test_what_lies_in_no_mount_is_outside(mounts: World, spelled: str) -> None:
    assert not mounts.sandbox.can_read(spelled)
    assert not mounts.sandbox.can_write(spelled)
    with pytest.raises(PathNotInSandboxError):
        mounts.sandbox.resolve(spelled)


def test_a_tilde_after_a_slash_is_a_name(mounts: World) -> None:
    assert mounts.sandbox.resolve("/data/~x") == mounts.host / "~x"


def test_the_longest_mount_point_decides(tmp_path: Path) -> None:
    sandbox = nested(tmp_path)
    assert sandbox.resolve("/data/special/x") == tmp_path / "special" / "x"
    assert not sandbox.can_write("/data/special/x")
    assert sandbox.can_write("/data/x")


@pytest.mark.parametrize(
    "spelled", ["/data/./special/x", "/data/y/../special/x", "/data//special/x"]
)
def test_no_spelling_dodges_a_nested_mount(tmp_path: Path, spelled: str) -> None:
    sandbox = nested(tmp_path)
    assert sandbox.resolve(spelled) == tmp_path / "special" / "x"
    assert not sandbox.can_write(spelled)


def test_a_mount_at_the_top_takes_what_is_left(tmp_path: Path) -> None:
    sandbox = Sandbox(
        SandboxConfig(
            mounts=[
                Mount(host_path=tmp_path / "all", mount_point="/"),
                Mount(host_path=tmp_path / "special", mount_point="/special", mode="rw"),
            ]
        )
    )
    assert sandbox.resolve("/") == tmp_path / "all"
    assert sandbox.resolve("") == tmp_path / "all"
    assert sandbox.resolve("/x") == tmp_path / "all" / "x"
    assert sandbox.resolve("//special/x") == tmp_path / "special" / "x"
    assert sandbox.readable_roots == ["/special", "/"]
    assert sandbox.writable_roots == ["/special"]


def test_roots_of_mounts_come_longest_first(tmp_path: Path) -> None:
    points = ["/a", "/long", "/b", "/longer"]
    config = SandboxConfig(
        mounts=[Mount(host_path=tmp_path / p[1:], mount_point=p) for p in points]
    )
    assert Sandbox(config).readable_roots == ["/longer", "/long", "/a", "/b"]


def test_a_mount_point_has_its_host_directory(mounts: World) -> None:
    assert mounts.sandbox.get_mount_root("/data") == mounts.host
    with pytest.raises(PathNotInSandboxError):
        mounts.sandbox.get_mount_root("/other")


def test_get_path_config_of_mounts_checks_the_operation(tmp_path: Path) -> None:
    world = make_world("mounts", tmp_path / "data", mode="ro")
    point, host, mount = world.sandbox.get_path_config("/data/x", op="read")
    assert (point, host) == ("/data", world.host / "x")
    assert world.sandbox.config.mounts is not None
    assert mount is world.sandbox.config.mounts[0]
    with pytest.raises(PathNotWritableError):
        world.sandbox.get_path_config("/data/x", op="write")


# --- Named paths ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelled", ["data/x", "data:x", "data:/x", "data/a/../x", "data/./x"]
)
def test_a_named_path_has_some_spellings(paths: World, spelled: str) -> None:
    assert paths.sandbox.resolve(spelled) == paths.host / "x"


def test_a_name_alone_is_its_directory(paths: World) -> None:
    assert paths.sandbox.resolve("data") == paths.host


def test_a_host_path_inside_is_taken(paths: World) -> None:
    assert paths.sandbox.resolve(str(paths.host / "x")) == paths.host / "x"


@pytest.mark.parametrize(
    "spelled",
    [
        "/data/x",
        "unknown/x",
        "data/../../etc/passwd",
        "data/../x",
        "/etc/passwd",
        " data/x",
        "data\\x",
        "Data/x",
        "",
        ".",
        "~",
        "database/x",
        "data/x\0",
    ],
)
def test_what_has_no_known_name_is_outside(paths: World, spelled: str) -> None:
    assert not paths.sandbox.can_read(spelled)
    with pytest.raises(PathNotInSandboxError):
        paths.sandbox.resolve(spelled)


def test_roots_of_named_paths_are_their_names(tmp_path: Path) -> None:
    sandbox = Sandbox(
        SandboxConfig(
            paths={
                "b": PathConfig(root=str(tmp_path / "b")),
                "a": PathConfig(root=str(tmp_path / "a"), mode="rw"),
            }
        )
    )
    assert sandbox.readable_roots == ["b", "a"]
    assert sandbox.writable_roots == ["a"]


def test_get_path_config_of_named_paths_needs_no_operation(paths: World) -> None:
    name, host, config = paths.sandbox.get_path_config("data/x")
    assert (name, host) == ("data", paths.host / "x")
    assert paths.sandbox.config.paths is not None
    assert config is paths.sandbox.config.paths["data"]


# --- Root -------------------------------------------------------------------------------


@pytest.mark.parametrize("spelled", ["x", "/x", "\\x", " /x ", "//x", "/./x"])
def test_a_rooted_path_has_some_spellings(tmp_path: Path, spelled: str) -> None:
    world = make_world("root", tmp_path / "data")
    assert world.sandbox.resolve(spelled) == world.host / "x"


@pytest.mark.parametrize(
    "spelled", ["../x", "/a/../x", "~x", "a:b", "c:/x", "x\0", "/.."]
)
def test_a_root_refuses_climbing_and_colons_altogether(
    tmp_path: Path, spelled: str
) -> None:
    world = make_world("root", tmp_path / "data")
    assert not world.sandbox.can_read(spelled)
    with pytest.raises(PathNotInSandboxError):
        world.sandbox.resolve(spelled)


def test_the_root_is_slash(tmp_path: Path) -> None:
    world = make_world("root", tmp_path / "data", mode="rw")
    assert world.sandbox.readable_roots == ["/"] == world.sandbox.writable_roots
    assert world.sandbox.resolve("/") == world.host == world.sandbox.resolve("")
    name, host, config = world.sandbox.get_path_config("/x")
    assert (name, host) == ("/", world.host / "x")
    assert isinstance(config, PathConfig)
    assert (config.root, config.mode) == (str(world.host), "rw")
    assert config.write_approval and not config.read_approval


def test_a_readonly_root_has_no_writable_roots(tmp_path: Path) -> None:
    sandbox = Sandbox(SandboxConfig(root=RootSandboxConfig(root=tmp_path, readonly=True)))
    assert sandbox.writable_roots == []
    assert sandbox.can_read("/x") and not sandbox.can_write("/x")


# --- All styles -------------------------------------------------------------------------


def test_can_read_and_write_do_not_need_the_file(world: World) -> None:
    assert world.sandbox.can_read(world.path("no/such/file"))
    assert world.sandbox.can_write(world.path("no/such/file"))


def test_what_is_read_only_can_be_read_only(readonly: World) -> None:
    assert readonly.sandbox.can_read(readonly.path("x"))
    assert not readonly.sandbox.can_write(readonly.path("x"))


def test_links_inside_work_and_links_out_are_outside(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    (world.host / "real").write_text("real")
    (world.host / "inside").symlink_to("real")
    (world.host / "out").symlink_to(tmp_path / "secret")
    (world.host / "dangling").symlink_to(tmp_path / "nothing")
    (world.host / "up").symlink_to("..")
    assert world.sandbox.resolve(world.path("inside")) == world.host / "real"
    for name in ("out", "dangling", "up", "up/secret"):
        assert not world.sandbox.can_read(world.path(name)), name
        with pytest.raises(PathNotInSandboxError):
            world.sandbox.resolve(world.path(name))


def test_a_link_loop_is_a_sandbox_error(world: World) -> None:
    (world.host / "loop").symlink_to("loop")
    assert not world.sandbox.can_read(world.path("loop"))
    with pytest.raises(SandboxError):
        world.sandbox.resolve(world.path("loop"))


def test_a_link_into_another_mount_is_outside(tmp_path: Path) -> None:
    sandbox = Sandbox(
        SandboxConfig(
            mounts=[
                Mount(host_path=tmp_path / "a", mount_point="/a"),
                Mount(host_path=tmp_path / "b", mount_point="/b"),
            ]
        )
    )
    (tmp_path / "a" / "link").symlink_to(tmp_path / "b")
    assert not sandbox.can_read("/a/link/x")


def test_names_that_are_no_utf8_go_there_and_back(world: World) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    (world.host / name).write_text("x")
    assert world.sandbox.resolve(world.path(name)) == world.host / name
    assert world.files.list_files() == [world.path(name)]
    assert world.files.read(world.path(name)).content == "x"


def test_half_a_surrogate_pair_is_no_path(world: World) -> None:
    assert not world.sandbox.can_read(world.path("\ud800"))
    with pytest.raises(PathNotInSandboxError):
        world.files.read(world.path("\ud800"))


def test_over_long_names_are_refused(world: World) -> None:
    for name in ("n" * 256, "d/" * 2100 + "x"):
        assert not world.sandbox.can_read(world.path(name))
        with pytest.raises(ValueError, match="too long"):
            world.files.write(world.path(name), "x")


def test_approval_is_needed_where_access_is(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "data", mode="rw")
    assert world.sandbox.needs_write_approval(world.path("x"))
    assert not world.sandbox.needs_read_approval(world.path("x"))
    assert not world.sandbox.needs_write_approval("/nowhere/x\0")
    readonly = make_world(style, tmp_path / "ro", mode="ro")
    assert not readonly.sandbox.needs_write_approval(readonly.path("x"))


@pytest.mark.parametrize("style", ["mounts", "paths"])
def test_approvals_follow_the_configuration(style: str, tmp_path: Path) -> None:
    world = make_world(
        style, tmp_path / "data", mode="rw", write_approval=False, read_approval=True
    )
    assert not world.sandbox.needs_write_approval(world.path("x"))
    assert world.sandbox.needs_read_approval(world.path("x"))


def test_suffixes_are_compared_without_case(world: World) -> None:
    config = PathConfig(root="x", suffixes=[".TXT", ".md"])
    for name in ("a.txt", "a.Md", "b.tar.md", ".x.md"):
        world.sandbox.check_suffix(Path(name), config)
    for name in ("a", "a.png", "txt", ".txt", "a.txt.gz", "a."):
        with pytest.raises(SuffixNotAllowedError) as caught:
            world.sandbox.check_suffix(world.host / name, config)
        assert caught.value.path == world.path(name)
        assert str(world.host) not in str(caught.value)


def test_a_suffix_needs_its_dot_and_no_suffixes_allow_nothing(world: World) -> None:
    for suffixes in (["md"], []):
        with pytest.raises(SuffixNotAllowedError) as caught:
            world.sandbox.check_suffix(
                Path("a.md"),
                PathConfig(root="x", suffixes=suffixes),
                virtual_path="v/a.md",
            )
        assert caught.value.path == "v/a.md"
        assert caught.value.allowed == suffixes
    assert "none" in caught.value.message


def test_sizes_up_to_the_limit_are_fine(world: World) -> None:
    file = world.host / "x"
    config = PathConfig(root="x", max_file_bytes=3)
    world.sandbox.check_size(file, config)
    file.write_text("abc")
    world.sandbox.check_size(file, config)
    file.write_text("abcd")
    with pytest.raises(FileTooLargeError) as caught:
        world.sandbox.check_size(file, config, virtual_path="v/x")
    assert (caught.value.path, caught.value.size, caught.value.limit) == ("v/x", 4, 3)


def test_explain_says_which_rule_decides(world: World, readonly: World) -> None:
    said = readonly.sandbox.explain(readonly.path("x"))
    assert "readable but not writable" in said and "ro" in said
    assert str(readonly.host) not in said
    assert "outside" in world.sandbox.explain("/no/such\\thing:x")


def test_no_host_path_is_in_any_error(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "data", mode="rw", suffixes=[".txt"])
    (world.host / "dir.txt").mkdir()
    (world.host / "out.txt").symlink_to("/etc/passwd")
    os.mkfifo(world.host / "fifo.txt")
    for name in ("dir.txt", "out.txt", "fifo.txt", "missing.txt", "x.png", "n" * 300):
        for call in (
            world.files.read,
            world.files.delete,
            lambda path: world.files.edit(path, "a", "b"),
            lambda path: world.files.copy(path, world.path("copy.txt")),
            lambda path: world.files.write(path + "/below.txt", "x"),
        ):
            try:
                call(world.path(name))
            except SandboxError as error:
                assert str(world.host) not in f"{error} {error!r} {error.hint}"
