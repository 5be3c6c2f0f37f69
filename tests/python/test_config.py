# SPDX-License-Identifier: Apache-2.0
"""The configuration models, and what a sandbox makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import make_config
from pydantic import ValidationError

from cay.filesystem import Mount, PathConfig, RootSandboxConfig, Sandbox, SandboxConfig


@pytest.mark.parametrize(
    ("given", "point"),
    [
        ("/a/../b", "/b"),
        ("/..", "/"),
        ("/a/", "/a"),
        (" /s ", "/s"),
        ("", "/"),
        ("//x", "/x"),
        ("/a//b", "/a/b"),
        ("\\a\\b", "/a/b"),
        ("/./a", "/a"),
    ],
)
def test_a_mount_point_is_normalised(given: str, point: str) -> None:
    assert Mount(host_path=Path("x"), mount_point=given).mount_point == point


@pytest.mark.parametrize("given", ["a", "a/b", "/a\0b"])
def test_a_mount_point_must_be_absolute_and_without_nul(given: str) -> None:
    with pytest.raises(ValueError, match="mount_point"):
        Mount(host_path=Path("x"), mount_point=given)


def test_a_mount_is_read_only_and_asks_for_writes_by_default() -> None:
    mount = Mount(host_path="x", mount_point="/x")  # type: ignore[arg-type]
    assert mount.host_path == Path("x")
    assert (mount.mode, mount.suffixes, mount.max_file_bytes) == ("ro", None, None)
    assert (mount.write_approval, mount.read_approval) == (True, False)


def test_a_path_is_read_only_and_asks_for_writes_by_default() -> None:
    path = PathConfig(root="x")
    assert (path.mode, path.suffixes, path.max_file_bytes) == ("ro", None, None)
    assert (path.write_approval, path.read_approval) == (True, False)


def test_a_root_is_writable_by_default() -> None:
    root = RootSandboxConfig(root=Path("x"))
    assert (root.readonly, root.suffixes, root.max_file_bytes) == (False, None, None)


def test_a_configuration_has_exactly_one_style() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        SandboxConfig()
    with pytest.raises(ValueError, match="exactly one"):
        SandboxConfig(paths={}, root=RootSandboxConfig(root=Path("x")))
    with pytest.raises(ValueError, match="exactly one"):
        SandboxConfig(paths={}, mounts=[Mount(host_path=Path("x"), mount_point="/")])


def test_mounts_must_not_be_empty_but_paths_may() -> None:
    with pytest.raises(ValueError, match="at least one"):
        SandboxConfig(mounts=[])
    empty = Sandbox(SandboxConfig(paths={}))
    assert empty.readable_roots == [] and empty.writable_roots == []
    assert not empty.can_read("x")


def test_unknown_keys_are_ignored() -> None:
    assert SandboxConfig.model_validate({"paths": {}, "colour": "red"}).paths == {}


def test_a_negative_size_limit_is_refused() -> None:
    with pytest.raises(ValidationError):
        PathConfig(root="x", max_file_bytes=-1)


def test_the_directories_are_created_also_the_read_only_ones(
    style: str, tmp_path: Path
) -> None:
    Sandbox(make_config(style, tmp_path / "new" / "dir", mode="ro"))
    assert (tmp_path / "new" / "dir").is_dir()


def test_relative_directories_start_at_base_path(style: str, tmp_path: Path) -> None:
    Sandbox(make_config(style, Path("some/dir")), base_path=tmp_path)
    assert (tmp_path / "some" / "dir").is_dir()


def test_relative_directories_start_at_the_current_directory(
    style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Sandbox(make_config(style, Path("here")))
    assert (tmp_path / "here").is_dir()


def test_a_mount_point_twice_is_refused(tmp_path: Path) -> None:
    twice = [Mount(host_path=tmp_path / n, mount_point="/x") for n in "ab"]
    with pytest.raises(ValueError, match="/x"):
        Sandbox(SandboxConfig(mounts=twice))


@pytest.mark.parametrize("inner", ["a", "a/b"])
def test_directories_that_overlap_are_refused(inner: str, tmp_path: Path) -> None:
    mounts = [
        Mount(host_path=tmp_path / "a", mount_point="/x"),
        Mount(host_path=tmp_path / inner, mount_point="/y"),
    ]
    with pytest.raises(ValueError, match="overlap"):
        Sandbox(SandboxConfig(mounts=mounts))


def test_an_overlap_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    mounts = [
        Mount(host_path=tmp_path / "a", mount_point="/x"),
        Mount(host_path=tmp_path / "link", mount_point="/y"),
    ]
    with pytest.raises(ValueError, match="overlap"):
        Sandbox(SandboxConfig(mounts=mounts))


def test_a_file_where_a_directory_should_be_is_refused(
    style: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError):
        Sandbox(make_config(style, tmp_path / "file"))


def test_nul_in_a_host_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="NUL"):
        Sandbox(SandboxConfig(paths={"x": PathConfig(root=f"{tmp_path}/a\0b")}))


def test_the_configuration_is_kept(style: str, tmp_path: Path) -> None:
    config = make_config(style, tmp_path)
    assert Sandbox(config).config is config
