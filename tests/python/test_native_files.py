# SPDX-License-Identifier: Apache-2.0
"""The files of a sandbox, from Python."""

from __future__ import annotations

import errno
import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterator

import pytest
from native import ledger, make_sandbox

from cay.sandbox import (
    Sandbox,
    SandboxBusyError,
    SandboxError,
    SandboxFiles,
    SandboxValueError,
    UserNotFoundError,
)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with ledger(), make_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def files(box: Sandbox) -> SandboxFiles:
    box.shell("chmod -R u+rwx . ; rm -rf ./* /tmp/*")
    return box.files


def test_what_is_written_is_read_and_is_the_users(
    box: Sandbox, files: SandboxFiles
) -> None:
    files.write("a/b/text", "é\r\nb\n")
    assert files.read_text("a/b/text") == "é\r\nb\n"
    assert box.exec(["cat", "a/b/text"]).stdout == "é\r\nb\n"
    assert box.exec(["stat", "-c", "%U", "a", "a/b/text"]).stdout == "user\nuser\n"
    files.write("/tmp/bytes", b"\0\xff")
    assert files.read_bytes("/tmp/bytes") == b"\0\xff"
    with pytest.raises(UnicodeDecodeError):
        files.read_text("/tmp/bytes")


def test_large_files_go_both_ways(files: SandboxFiles) -> None:
    data = os.urandom(1 << 20) * 50
    files.write("large", data)
    assert files.read_bytes("large") == data
    assert files.read_bytes("large", 10, 5) == data[5:15]
    assert files.read_bytes("large", 0) == b""
    with pytest.raises(FileNotFoundError):
        files.read_bytes("missing", 0)


def test_writing_in_place_keeps_the_file(box: Sandbox, files: SandboxFiles) -> None:
    files.write("x", "first, longer")
    box.exec(["ln", "x", "y"])
    box.exec(["chmod", "640", "x"])
    files.write("x", "second", in_place=True)
    assert files.read_text("y") == "second"
    assert files.stat("x").mode & 0o777 == 0o640
    with pytest.raises(FileExistsError):
        files.write("x", "third", new=True)


@pytest.mark.parametrize(
    ("prepare", "call", "kind", "number"),
    [
        ("true", "read", FileNotFoundError, errno.ENOENT),
        ("mkdir it", "read", IsADirectoryError, errno.EISDIR),
        ("mkdir it", "write", IsADirectoryError, errno.EISDIR),
        ("echo > it; chmod 0 it", "read", PermissionError, errno.EACCES),
        ("echo > it; chmod 444 it", "write", PermissionError, errno.EACCES),
        ("mkfifo it", "read", OSError, errno.EINVAL),
    ],
)
def test_what_goes_wrong_is_what_python_calls_it(
    box: Sandbox,
    files: SandboxFiles,
    prepare: str,
    call: str,
    kind: type[OSError],
    number: int,
) -> None:
    assert box.shell(prepare).ok
    with pytest.raises(kind) as caught:
        if call == "read":
            files.read_bytes("it")
        else:
            files.write("it", "x", in_place=True)
    error = caught.value
    assert isinstance(error, SandboxError)
    assert (error.errno, error.filename) == (number, "it")
    assert error.strerror and error.hint and "it" in str(error)


def test_another_user_has_other_rights(box: Sandbox, files: SandboxFiles) -> None:
    root = files.as_user("root")
    root.write("/root/secret", "s")
    assert root.read_text("/root/secret") == "s"
    with pytest.raises(PermissionError):
        files.read_text("/root/secret")


def test_a_user_is_one_whole_name(files: SandboxFiles) -> None:
    for name in ("root\0junk", "\ud800"):
        with pytest.raises(SandboxValueError, match="user"):
            files.as_user(name)


def test_links_mean_what_they_mean_inside(box: Sandbox, files: SandboxFiles) -> None:
    box.shell("echo inside > /tmp/passwd; ln -s /tmp/passwd link; ln -s / root")
    assert files.read_text("link") == "inside\n"
    assert "user:" in files.read_text("root/etc/passwd")
    assert files.stat("link", follow=False).type == "link"


def test_names_are_listed_moved_and_deleted(box: Sandbox, files: SandboxFiles) -> None:
    for name in ("d/a.txt", "d/b.txt", "d/e/c.txt"):
        files.write(name, name)
    assert [os.path.basename(entry.path) for entry in files.list("d")] == [
        "a.txt",
        "b.txt",
        "e",
    ]
    assert len(files.glob("**/*.txt", "d")) == 3
    files.copy("d/a.txt", "copy")
    files.move("d/e", "moved")
    assert files.exists("moved/c.txt") and not files.exists("d/e")
    files.mkdir("new/er")
    assert files.stat("new/er").type == "directory"
    files.delete("d", recursive=True)
    assert not files.exists("d")


def test_text_is_searched_and_edited(files: SandboxFiles) -> None:
    files.write("t", "one\ntwo\ntwo\n")
    (match, second) = files.grep("tw.", "t").matches
    assert (match.line, match.text, second.line) == (2, "two", 3)
    assert files.edit("t", "two", "2", replace_all=True) == 2
    files.multi_edit("t", [("one", "1"), ("1", "I")])
    files.append("t", "end\n")
    assert files.read_text("t") == "I\n2\n2\nend\n"
    assert files.read("t", 3).content == "I\n2"
    assert files.read_lines("t", 1, 3).content == "end\n"
    with pytest.raises(SandboxError) as caught:
        files.edit("t", "missing", "x")
    assert caught.value.slug == "no-match"


def test_many_files_at_once(files: SandboxFiles) -> None:
    assert files.write_many({"m/1": "a", "m/2": b"b"}) == [None, None]
    first, second, third = files.read_many(["m/1", "m/2", "m/3"])
    assert (first, second) == (b"a", b"b") and isinstance(third, FileNotFoundError)


def test_directories_travel_as_tar(box: Sandbox, files: SandboxFiles) -> None:
    files.write("tree/a", "A")
    stream = io.BytesIO()
    files.export_tar("tree", stream)
    stream.seek(0)
    assert "a" in [
        name.split("/")[-1] for name in tarfile.open(fileobj=stream).getnames()
    ]
    files.import_tar("back", stream.getvalue())
    assert box.shell("cat $(find back -name a)").stdout == "A"


def test_threads_read_and_write_at_the_same_time(files: SandboxFiles) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(30):
            files.write(f"f{number}", f"{number} {turn}")
            if files.read_text(f"f{number}") != f"{number} {turn}":
                wrong.append(f"{number}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    "again",
    [
        lambda files: files.read_text("a"),
        lambda files: files.read_many(["a"])[0].decode(),
        lambda files: files.write_many(iter([("a", "1")])) == [None] and "1",
        lambda files: files.export_tar(".", io.BytesIO()).entries and "1",
    ],
)
def test_files_are_there_again_when_somebody_else_has_started_the_sandbox_again(
    again: Callable[[SandboxFiles], str],
) -> None:
    with ledger():
        box = Sandbox.create(storage="disk")
        other = Sandbox.open(box.id)
        try:
            box.files.write("a", "1")
            assert other.files.read_text("a") == "1"
            box.kill()
            with pytest.raises(SandboxBusyError):
                other.files.read_text("a")
            box.restart()
            assert again(other.files) == "1"
            box.kill()
            box.restart()
            assert again(other.files) == "1"
        finally:
            other.close()
            box.remove()
            box.close()


def test_what_is_refused_before_the_library_sees_it_is_ours_too(
    files: SandboxFiles,
) -> None:
    for call in (
        lambda: files.read("f", -1),
        lambda: files.read_lines("f", 0),
        lambda: files.read_bytes("f", 1, -1),
        lambda: files.read_bytes("f", -1),
        lambda: files.write("q", "\ud800"),
        lambda: files.append("q", "\ud800"),
        lambda: files.edit("q", "\ud800", "x"),
        lambda: files.multi_edit("q", [("one",)]),  # type: ignore[list-item]
        lambda: files.grep("x\0"),
        lambda: files.glob("x\0"),
        lambda: files.stat("x\0"),
    ):
        with pytest.raises(SandboxValueError) as caught:
            call()  # type: ignore[no-untyped-call]
        error = caught.value
        assert isinstance(error, ValueError)
        assert error.hint and "\n" not in str(error)
        assert error.__context__ is None or error.__suppress_context__


def test_of_many_files_each_is_refused_by_itself(files: SandboxFiles) -> None:
    files.write("a", "1")
    first, second = files.read_many(["a", "a\0b"])
    assert first == b"1" and isinstance(second, SandboxValueError)
    assert "embedded null byte" in str(second)
    wrong = files.write_many({"b": "\ud800", "c\0": "x", "d": "4"})
    assert [type(one) for one in wrong] == [
        SandboxValueError,
        SandboxValueError,
        type(None),
    ]
    assert files.read_text("d") == "4"


def test_a_user_that_is_not_there_is_named_so(files: SandboxFiles) -> None:
    for name in ("zzz", "user:zzz", ""):
        with pytest.raises(UserNotFoundError) as caught:
            files.as_user(name).read_text("a")
        assert caught.value.subject == name and caught.value.hint


def test_a_path_that_is_none_is_a_value_error(files: SandboxFiles) -> None:
    with pytest.raises(ValueError, match="embedded null byte"):
        files.read_bytes("a\0b")


def test_login_shells_read_scripts_in_profile_d(box: Sandbox) -> None:
    """Section 6 of issue 15: /etc/profile of the host template ignored /etc/profile.d."""
    files = box.files.as_user("root")
    files.write("/etc/profile.d/colour.sh", "export PROFILE_COLOUR=green\n")
    files.write("/etc/profile.d/notes.txt", "export PROFILE_COLOUR=red\n")
    for shell in ("bash", "sh"):
        ended = box.exec([shell, "-lc", "echo $PROFILE_COLOUR${script-unset}"])
        assert (ended.stdout, ended.stderr) == ("greenunset\n", "")


def test_login_shells_are_quiet_without_scripts_in_profile_d() -> None:
    with make_sandbox() as box:
        ended = box.exec(["bash", "-lc", "ls /etc/profile.d; exit 0"])
        assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "", "")
