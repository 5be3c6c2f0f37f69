# SPDX-License-Identifier: Apache-2.0
"""The exceptions: what they carry, what they say, what catches them."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from typing import Any

import pytest
from conftest import World, make_world

import cay
from cay import errors
from cay.filesystem import (
    EditError,
    Files,
    FileTooLargeError,
    PathNotInSandboxError,
    PathNotWritableError,
    RootSandboxConfig,
    Sandbox,
    SandboxConfig,
    SandboxError,
    SandboxPermissionEscalationError,
    SuffixNotAllowedError,
)


def test_every_code_has_a_class_and_a_slug() -> None:
    assert sorted(errors.BY_CODE) == list(range(-28, 0))
    assert len({cls.slug for cls in errors.BY_CODE.values()}) == 28
    assert errors.BY_CODE[-3] is errors.NotFoundError
    assert errors.NotFoundError.slug == "not-found"
    assert all(issubclass(cls, cay.CayError) for cls in errors.BY_CODE.values())


def test_a_cay_error_tells_everything() -> None:
    error = errors.SandboxPermissionError("refused", errno=13, op="files.read", subject="a", hint="ask")
    assert (error.code, error.slug, error.errno, error.op) == (
        -2,
        "denied",
        13,
        "files.read",
    )
    assert (error.subject, error.message, error.hint) == ("a", "refused", "ask")
    assert str(error) == "a: refused (ask)"
    assert str(cay.CayError("plain")) == "plain"


def test_the_errors_of_the_policy_are_subclasses_of_their_code_class() -> None:
    special = {
        errors.OutsideError: PathNotInSandboxError,
        errors.ReadOnlyError: PathNotWritableError,
        errors.SuffixError: SuffixNotAllowedError,
        errors.TooLargeError: FileTooLargeError,
        errors.NoMatchError: EditError,
    }
    for cls, ours in special.items():
        assert issubclass(ours, SandboxError) and issubclass(ours, cls)
        assert (ours.code, ours.slug) == (cls.code, cls.slug)


def test_there_is_one_tree_of_errors() -> None:
    import cay.nexau
    import cay.sandbox

    packages = (cay.sandbox, cay.nexau, cay.filesystem)
    for package in packages:
        assert package.SandboxError is cay.CayError is errors.SandboxError
        for name in set(package.__all__) & set(errors.__all__):
            assert getattr(package, name) is getattr(errors, name)
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    assert all(issubclass(cls, cay.CayError) for cls in classes)


@pytest.mark.parametrize(
    ("error", "attributes", "words"),
    [
        (
            PathNotInSandboxError("p", ["a", "b"]),
            {"path": "p", "readable_roots": ["a", "b"]},
            ["'p'", "outside sandbox", "\n", "a, b"],
        ),
        (
            PathNotWritableError("p", []),
            {"path": "p", "writable_roots": []},
            ["'p'", "read-only", "\n", "none"],
        ),
        (
            SuffixNotAllowedError("p", ".png", [".txt", ".md"]),
            {"path": "p", "suffix": ".png", "allowed": [".txt", ".md"]},
            ["'p'", "suffix '.png' not allowed", "\n", ".txt, .md"],
        ),
        (
            FileTooLargeError("p", 1234567, 1000),
            {"path": "p", "size": 1234567, "limit": 1000},
            ["'p'", "1,234,567", "\n", "1,000"],
        ),
        (
            EditError("p", "text not found in file", "a\nb"),
            {"path": "p", "reason": "text not found in file", "old_text": "a\nb"},
            ["'p'", "text not found", "\n", "'a\\nb'"],
        ),
        (
            EditError("p", "text found 3 times (must be unique)", "x" * 200),
            {"old_text": "x" * 200},
            ["found 3 times", "x" * 100 + "'..."],
        ),
    ],
)
def test_what_a_model_is_told(
    error: SandboxError, attributes: dict[str, Any], words: list[str]
) -> None:
    for name, value in attributes.items():
        assert getattr(error, name) == value
    for word in words:
        assert word in error.message
    assert str(error) == error.message
    assert isinstance(error, SandboxError) and isinstance(error, cay.CayError)


def test_long_texts_are_cut_in_an_edit_error() -> None:
    assert "x" * 101 not in EditError("p", "r", "x" * 200).message


def test_an_escalation_is_a_sandbox_error_with_its_message() -> None:
    error = SandboxPermissionEscalationError("no")
    assert error.message == "no" == str(error) and error.slug == "escalation"


def test_a_missing_file_is_also_a_file_not_found_error(world: World) -> None:
    with pytest.raises(FileNotFoundError, match="not found") as caught:
        world.files.read(world.path("x"))
    error = caught.value
    assert isinstance(error, SandboxError) and isinstance(error, errors.NotFoundError)
    assert (error.errno, error.filename) == (errno.ENOENT, world.path("x"))
    assert error.strerror and str(error) == error.message


def test_python_names_for_what_goes_wrong(world: World) -> None:
    files = world.files
    (world.host / "dir").mkdir()
    (world.host / "file").write_text("x")
    with pytest.raises(IsADirectoryError) as is_a_directory:
        files.read(world.path("dir"))
    assert is_a_directory.value.errno == errno.EISDIR
    with pytest.raises(FileExistsError, match="already exists") as exists:
        files.copy(world.path("file"), world.path("dir"))
    assert exists.value.filename == world.path("dir")
    with pytest.raises(NotADirectoryError):
        files.write(world.path("file/below"), "x")
    with pytest.raises(ValueError):
        files.read(world.path("file"), offset=-1)
    with pytest.raises(ValueError):
        files.read(world.path("file"), max_chars=-1)


def test_an_error_names_the_path_it_is_about(world: World) -> None:
    (world.host / "file").write_text("x")
    with pytest.raises(FileNotFoundError) as source:
        world.files.move(world.path("nope"), world.path("to"))
    assert source.value.filename == world.path("nope")
    with pytest.raises(PathNotInSandboxError) as destination:
        world.files.move(world.path("file"), "/nowhere:\\x")
    assert destination.value.path == "/nowhere:\\x"
    assert destination.value.readable_roots == [world.top]


def test_a_long_path_is_named_whole(world: World) -> None:
    path = world.path("d/" * 150 + "missing")
    with pytest.raises(FileNotFoundError) as caught:
        world.files.read(path)
    assert caught.value.filename == path


def test_errors_can_be_pickled(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "data", mode="rw", suffixes=[".txt"])
    for name in ("missing.txt", "bad.png"):
        with pytest.raises(SandboxError) as caught:
            world.files.read(world.path(name))
        copy = pickle.loads(pickle.dumps(caught.value))
        assert type(copy) is type(caught.value)
        assert str(copy) == str(caught.value) and copy.__dict__ == caught.value.__dict__
        assert copy.errno == caught.value.errno


def test_what_is_said_of_an_empty_path_is_a_sentence_too(tmp_path: Path) -> None:
    files = Files(Sandbox(SandboxConfig(root=RootSandboxConfig(root=tmp_path))))
    with pytest.raises(IsADirectoryError, match="^Is a directory, not a file"):
        files.read("")
