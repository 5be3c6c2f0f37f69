# SPDX-License-Identifier: Apache-2.0
"""The file operations, called as Python methods."""

from __future__ import annotations

import io
import os
import stat
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import World, make_world

from cay import _c
from cay.filesystem import (
    DEFAULT_MAX_READ_CHARS,
    EditError,
    Files,
    FileTooLargeError,
    Mount,
    PathNotInSandboxError,
    PathNotWritableError,
    ReadResult,
    Sandbox,
    SandboxConfig,
    SandboxError,
    SuffixNotAllowedError,
)
from cay.errors import SandboxChangedError, SandboxLimitError

# --- Reading ----------------------------------------------------------------------------


def put(world: World, name: str, content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    (world.host / name).parent.mkdir(parents=True, exist_ok=True)
    (world.host / name).write_bytes(data)
    return world.path(name)


def test_read_gives_the_five_fields(world: World) -> None:
    path = put(world, "a.txt", "Hello, World!")
    assert world.files.read(path) == ReadResult(
        content="Hello, World!", truncated=False, total_chars=13, offset=0, chars_read=13
    )


@pytest.mark.parametrize(
    ("max_chars", "offset", "content", "truncated"),
    [
        (30, 0, "0123456789ABCDEF", False),
        (16, 0, "0123456789ABCDEF", False),
        (4, 10, "ABCD", True),
        (6, 10, "ABCDEF", False),
        (4, 16, "", False),
        (4, 99, "", False),
        (0, 3, "", True),
        (0, 16, "", False),
        (10**30, 10**30, "", False),
    ],
)
def test_a_page_is_cut_like_a_slice(
    world: World, max_chars: int, offset: int, content: str, truncated: bool
) -> None:
    path = put(world, "a.txt", "0123456789ABCDEF")
    result = world.files.read(path, max_chars, offset)
    assert (result.content, result.truncated) == (content, truncated)
    assert (result.total_chars, result.offset) == (16, offset)
    assert result.chars_read == len(content)


def test_characters_are_code_points(world: World) -> None:
    text = "aé€😀" * 50_000
    path = put(world, "a.txt", text)
    result = world.files.read(path, 7, 100_001)
    assert result.content == text[100_001:100_008]
    assert result.total_chars == len(text)
    assert world.files.read(path).chars_read == DEFAULT_MAX_READ_CHARS == 20_000
    assert world.files.read(path, 10**9).content == text


def test_line_ends_read_as_newlines_and_a_bom_stays(world: World) -> None:
    path = put(world, "a.txt", b"\xef\xbb\xbfa\r\nb\rc\nx\r\n")
    result = world.files.read(path)
    assert result.content == "\ufeffa\nb\nc\nx\n" and result.total_chars == 9


def test_a_binary_file_is_no_text(world: World) -> None:
    path = put(world, "a.txt", b"abc\xff\xfe")
    with pytest.raises(SandboxError, match="UTF-8") as caught:
        world.files.read(path)
    assert caught.value.slug == "not-text"
    with pytest.raises(SandboxError, match="UTF-8"):
        world.files.edit(path, "a", "b")


def test_fifos_and_sockets_are_never_opened(world: World) -> None:
    os.mkfifo(world.host / "fifo")
    path = world.path("fifo")
    for call in (
        lambda: world.files.read(path),
        lambda: world.files.write(path, "x"),
        lambda: world.files.edit(path, "a", "b"),
        lambda: world.files.copy(path, world.path("c")),
    ):
        with pytest.raises(IsADirectoryError):
            call()


KINDS = {
    "ascii": "plain text, plain text\n",
    "latin-1": "déjà vu, naïve, ÿ\x80\n",
    "bmp": "日本語, Привет and \uffff\n",
    "astral": "once 😀 and \U0010ffff, then café\n",
}


@pytest.mark.parametrize("widened", [True, False])
@pytest.mark.parametrize("size", [100, 5_000, 70_000, (1 << 20) + 1, 2 << 20])
@pytest.mark.parametrize("kind", KINDS)
def test_text_of_every_kind_and_size_is_an_ordinary_str(
    kind: str, size: int, widened: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if widened:
        assert set(_c.files._HEADERS) == {0xFF, 0xFFFF, 0x10FFFF}
    else:
        monkeypatch.setattr(_c.files, "_HEADERS", {})
    text = KINDS[kind] * (size // len(KINDS[kind].encode()) + 1)
    path = put(world, "a.txt", text)
    read = world.files.read(path, len(text))
    # None of them was asked for its UTF-8 yet, which would be kept and counted.
    ordinary = "".join([text[:10], text[10:]])
    assert sys.getsizeof(read.content) == sys.getsizeof(ordinary)
    assert read.content == text and hash(read.content) == hash(text)
    assert {read.content: 1}[text] and read.content.encode() == text.encode()
    assert (read.total_chars, read.chars_read) == (len(text), len(text))

    page = world.files.read(path, len(text) // 2, 7)
    assert page.content == text[7 : 7 + len(text) // 2]
    crlf = put(world, "b.txt", text.replace("\n", "\r\n"))
    assert world.files.read(crlf, len(text) * 2).content == text
    assert world.files.read(crlf, len(text) // 2, 7).content == page.content


def test_a_page_is_no_wider_than_its_own_characters_are(world: World) -> None:
    path = put(world, "a.txt", "é" * 5_000 + "日" * 5_000 + "😀" * 5_000 + "a" * 5_000)
    for offset, character in ((0, "é"), (5_000, "日"), (10_000, "😀"), (15_000, "a")):
        content = world.files.read(path, 5_000, offset).content
        assert content == character * 5_000
        assert sys.getsizeof(content) == sys.getsizeof(character * 5_000)
        assert content.isascii() == (character == "a")


def test_the_order_of_checks_in_read(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "data", suffixes=[".txt"], max_file_bytes=3)
    with pytest.raises(FileNotFoundError):
        world.files.read(world.path("missing.png"))
    (world.host / "dir.png").mkdir()
    with pytest.raises(IsADirectoryError):
        world.files.read(world.path("dir.png"))
    with pytest.raises(SuffixNotAllowedError, match="suffix '.png' not allowed"):
        world.files.read(put(world, "large.png", "1234"))
    with pytest.raises(FileTooLargeError) as caught:
        world.files.read(put(world, "large.txt", b"\xff234"))
    assert (caught.value.size, caught.value.limit) == (4, 3)
    assert world.files.read(put(world, "fits.TXT", "123")).content == "123"


def test_the_suffix_is_that_of_what_a_link_leads_to(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "data", suffixes=[".txt"])
    put(world, "real.bin", "x")
    (world.host / "link.txt").symlink_to("real.bin")
    with pytest.raises(SuffixNotAllowedError) as caught:
        world.files.read(world.path("link.txt"))
    assert caught.value.path == world.path("link.txt")
    assert caught.value.allowed == [".txt"]


def test_a_reader_pages_one_open_file(world: World) -> None:
    path = put(world, "a.txt", "é" * 300_000 + "end")
    with world.files.open(path) as reader:
        os.unlink(world.host / "a.txt")
        assert reader.page(3, 300_000).content == "end"
        assert reader.page(2, 299_999).content == "ée"
    with pytest.raises(ValueError, match="closed"):
        reader.page()
    reader.close()


def test_text_of_any_length_is_read_in_one_call_if_asked_for(world: World) -> None:
    line = "0123456789abcdé\n"
    with open(world.host / "large.txt", "w", encoding="utf-8") as file:
        for _ in range(110):
            file.write(line * 65_536)
    result = world.files.read(world.path("large.txt"), max_chars=10**12)
    assert result.total_chars == 110 * 65_536 * 16 == result.chars_read
    assert len(result.content) == result.chars_read and not result.truncated
    assert result.content[-48:] == line * 3
    with pytest.raises(SandboxLimitError):
        world.files.read_bytes(world.path("large.txt"))


def test_lines_and_bytes_can_be_read(world: World) -> None:
    path = put(world, "a.txt", b"one\r\ntwo\nthree")
    lines = world.files.read_lines(path, 1, 1)
    assert (lines.content, lines.truncated, lines.total_lines) == ("two\n", True, 3)
    assert (lines.offset, lines.lines_read) == (1, 1)
    assert world.files.read_lines(path).content == "one\ntwo\nthree"
    assert world.files.read_bytes(path) == b"one\r\ntwo\nthree"
    assert world.files.read_bytes(path, 4, 5) == b"two\n"
    assert world.files.read_bytes(path, 0) == b""
    binary = put(world, "b.bin", bytes(range(256)))
    assert world.files.read_bytes(binary) == bytes(range(256))
    for wrong in (0, -1):
        with pytest.raises(ValueError):
            world.files.read_lines(path, wrong)


def test_many_files_are_read_and_written_in_one_call(world: World) -> None:
    written = world.files.write_many(
        {world.path("a"): "text é", world.path("d/b"): b"\0\xff", "\\nowhere:": "x"}
    )
    assert written[:2] == [None, None]
    assert isinstance(written[2], PathNotInSandboxError)
    results = world.files.read_many(
        [world.path("a"), world.path("missing"), world.path("d/b")]
    )
    assert (results[0], results[2]) == ("text é".encode(), b"\0\xff")
    assert isinstance(results[1], FileNotFoundError)
    assert results[1].filename == world.path("missing")
    assert world.files.read_many([]) == [] == world.files.write_many([])


# --- Writing ----------------------------------------------------------------------------


def test_write_creates_directories_and_counts_characters(world: World) -> None:
    said = world.files.write(world.path("a/b/c.txt"), "héllo")
    assert said == f"Written 5 characters to {world.path('a/b/c.txt')}"
    assert (world.host / "a/b/c.txt").read_bytes() == "héllo".encode()


def test_write_keeps_bytes_and_modes(world: World) -> None:
    path = put(world, "a.txt", "old")
    os.chmod(world.host / "a.txt", 0o640)
    world.files.write(path, "a\r\nb\0\n")
    assert (world.host / "a.txt").read_bytes() == b"a\r\nb\0\n"
    assert stat.S_IMODE((world.host / "a.txt").stat().st_mode) == 0o640


def test_a_new_file_respects_the_umask(world: World) -> None:
    before = os.umask(0o027)
    try:
        world.files.write(world.path("a.txt"), "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((world.host / "a.txt").stat().st_mode) == 0o640


def test_write_replaces_the_file_unless_in_place(world: World) -> None:
    path = put(world, "a.txt", "old")
    inode = (world.host / "a.txt").stat().st_ino
    world.files.write(path, "in place", in_place=True)
    assert (world.host / "a.txt").stat().st_ino == inode
    with open(world.host / "a.txt", encoding="utf-8") as held:
        world.files.write(path, "replaced")
        assert held.read() == "in place"
    assert (world.host / "a.txt").read_text() == "replaced"
    with pytest.raises(FileExistsError):
        world.files.write(path, "x", new=True)
    world.files.write(path, "durable", durable=True)
    assert (world.host / "a.txt").read_text() == "durable"


def test_the_order_of_checks_in_write(style: str, tmp_path: Path) -> None:
    readonly = make_world(style, tmp_path / "ro", suffixes=[".txt"])
    with pytest.raises(PathNotWritableError, match="read-only") as caught:
        readonly.files.write(readonly.path("x.png"), "x")
    assert caught.value.writable_roots == []
    world = make_world(
        style, tmp_path / "rw", mode="rw", suffixes=[".txt"], max_file_bytes=3
    )
    with pytest.raises(SuffixNotAllowedError):
        world.files.write(world.path("x.png"), "1234")
    with pytest.raises(FileTooLargeError) as too_large:
        world.files.write(world.path("x.txt"), "éé")
    assert (too_large.value.size, too_large.value.limit) == (4, 3)
    assert os.listdir(world.host) == []


def test_half_a_surrogate_pair_is_no_content(world: World) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        world.files.write(world.path("x"), "a\ud800b")
    assert os.listdir(world.host) == []


def test_bytes_can_be_written_and_text_appended(world: World) -> None:
    said = world.files.write_bytes(world.path("b"), bytearray(b"\0\xff"))
    assert said == f"Written 2 bytes to {world.path('b')}"
    assert (world.host / "b").read_bytes() == b"\0\xff"
    assert world.files.append(world.path("log"), "one\n") == (
        f"Appended 4 characters to {world.path('log')}"
    )
    world.files.append(world.path("log"), "two\n")
    assert (world.host / "log").read_text() == "one\ntwo\n"


# --- Editing ----------------------------------------------------------------------------


def test_edit_replaces_what_is_there_once(world: World) -> None:
    path = put(world, "a.txt", "Hello World!")
    said = world.files.edit(path, "World", "Wörld, dear")
    assert said == f"Edited {path}: replaced 5 chars with 11 chars"
    assert (world.host / "a.txt").read_text() == "Hello Wörld, dear!"


def test_an_edit_that_does_not_match_once_changes_nothing(world: World) -> None:
    path = put(world, "a.txt", "foo bar foo baz foo aaa")
    with pytest.raises(EditError, match="text not found") as missing:
        world.files.edit(path, "qux", "x")
    assert (missing.value.path, missing.value.old_text) == (path, "qux")
    assert missing.value.reason == "text not found in file"
    with pytest.raises(EditError, match="found 3 times") as many:
        world.files.edit(path, "foo", "x")
    assert many.value.reason == "text found 3 times (must be unique)"
    world.files.edit(path, "aa", "b")  # counted without overlap
    assert (world.host / "a.txt").read_text() == "foo bar foo baz foo ba"


def test_an_edit_keeps_the_kind_of_line_end_and_the_bom(world: World) -> None:
    path = put(world, "a.txt", b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    world.files.edit(path, "one\ntwo\n", "1\n2\n")
    assert (world.host / "a.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\nthree\r\n"


def test_the_empty_text_is_found_in_an_empty_file_only(world: World) -> None:
    path = put(world, "a.txt", "")
    world.files.edit(path, "", "now full")
    assert (world.host / "a.txt").read_text() == "now full"
    with pytest.raises(EditError, match="found 9 times"):
        world.files.edit(path, "", "x")


def test_replace_all_replaces_all(world: World) -> None:
    path = put(world, "a.txt", "foo bar foo")
    assert "2 times" in world.files.edit(path, "foo", "x", replace_all=True)
    assert (world.host / "a.txt").read_text() == "x bar x"
    with pytest.raises(EditError, match="not found"):
        world.files.edit(path, "foo", "x", replace_all=True)


def test_many_edits_are_made_all_or_none(world: World) -> None:
    path = put(world, "a.txt", "one two three")
    with pytest.raises(EditError, match="edit 2 of 2") as caught:
        world.files.multi_edit(path, [("one", "1"), ("one", "uno")])
    assert caught.value.old_text == "one"
    assert (world.host / "a.txt").read_text() == "one two three"
    said = world.files.multi_edit(
        path, [("one", "two"), {"old_text": "two two", "new_text": "2"}]
    )
    assert said == f"Edited {path}: applied 2 edits"
    assert (world.host / "a.txt").read_text() == "2 three"
    with pytest.raises(ValueError):
        world.files.multi_edit(path, [])


def test_the_order_of_checks_in_edit(style: str, tmp_path: Path) -> None:
    world = make_world(
        style, tmp_path / "rw", mode="rw", suffixes=[".txt"], max_file_bytes=4
    )
    with pytest.raises(SuffixNotAllowedError):
        world.files.edit(world.path("missing.png"), "a", "b")
    with pytest.raises(FileNotFoundError, match="not found"):
        world.files.edit(world.path("missing.txt"), "a", "b")
    with pytest.raises(FileTooLargeError):
        world.files.edit(put(world, "large.txt", "12345"), "1", "")
    with pytest.raises(FileTooLargeError) as caught:
        world.files.edit(put(world, "grows.txt", "1234"), "1", "abc")
    assert caught.value.size == 6
    assert (world.host / "grows.txt").read_text() == "1234"


# --- Names ------------------------------------------------------------------------------


def test_delete_removes_files_only(world: World) -> None:
    path = put(world, "d/a.txt", "x")
    assert world.files.delete(path) == f"Deleted {path}"
    assert not (world.host / "d/a.txt").exists()
    with pytest.raises(FileNotFoundError, match="not found"):
        world.files.delete(path)
    with pytest.raises(IsADirectoryError):
        world.files.delete(world.path("d"))
    put(world, "d/e/f", "x")
    world.files.delete(world.path("d"), recursive=True)
    assert os.listdir(world.host) == []


def test_delete_removes_the_link_and_not_what_it_points_to(world: World) -> None:
    put(world, "real.txt", "x")
    (world.host / "link.txt").symlink_to("real.txt")
    world.files.delete(world.path("link.txt"))
    assert os.listdir(world.host) == ["real.txt"]


def test_deleting_follows_mode_and_suffix(style: str, tmp_path: Path) -> None:
    readonly = make_world(style, tmp_path / "ro")
    with pytest.raises(PathNotWritableError, match="read-only"):
        readonly.files.delete(put(readonly, "a.txt", "x"))
    world = make_world(style, tmp_path / "rw", mode="rw", suffixes=[".txt"])
    with pytest.raises(SuffixNotAllowedError, match="suffix '.bin' not allowed"):
        world.files.delete(put(world, "a.bin", "x"))


def test_move_renames_and_creates_directories(world: World) -> None:
    path = put(world, "old.txt", "x")
    said = world.files.move(path, world.path("new.txt"))
    assert said == f"Moved {path} to {world.path('new.txt')}"
    world.files.move(world.path("new.txt"), world.path("a/b/c.txt"))
    assert (world.host / "a/b/c.txt").read_text() == "x"
    assert os.listdir(world.host) == ["a"]


def test_copy_copies_and_creates_directories(world: World) -> None:
    path = put(world, "one.txt", "x")
    os.chmod(world.host / "one.txt", 0o600)
    os.utime(world.host / "one.txt", ns=(10**18, 10**18))
    said = world.files.copy(path, world.path("two.txt"))
    assert said == f"Copied {path} to {world.path('two.txt')}"
    world.files.copy(path, world.path("a/b/three.txt"))
    for name in ("one.txt", "two.txt", "a/b/three.txt"):
        found = (world.host / name).stat()
        assert (world.host / name).read_text() == "x"
        assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o600, 10**18)


def test_moves_and_copies_name_whole_paths(world: World) -> None:
    """Section 6 of issue 15: the texts dropped the directories of the destination."""
    path, copy = put(world, "deep/old.txt", "x"), world.path("a/b/c.txt")
    assert world.files.copy(path, copy) == f"Copied {path} to {copy}"
    moved = world.path("x/y.txt")
    assert world.files.move(path, moved) == f"Moved {path} to {moved}"


def test_moves_and_copies_name_tidied_paths(paths: World) -> None:
    path = put(paths, "deep/old.txt", "x")
    said = paths.files.move(path, "data:x//y.txt")
    assert said == "Moved data/deep/old.txt to data/x/y.txt"


def test_an_existing_destination_is_never_replaced(world: World) -> None:
    source, taken = put(world, "a.txt", "a"), put(world, "b.txt", "b")
    for call in (world.files.move, world.files.copy):
        with pytest.raises(FileExistsError, match="already exists") as caught:
            call(source, taken)
        assert caught.value.filename == taken
    assert (world.host / "b.txt").read_text() == "b"


def two_mounts(tmp_path: Path, **rules: object) -> tuple[Files, Path, Path]:
    one, two = tmp_path / "one", tmp_path / "two"
    sandbox = Sandbox(
        SandboxConfig(
            mounts=[
                Mount(host_path=one, mount_point="/one", mode="ro"),
                Mount(host_path=two, mount_point="/two", mode="rw", **rules),  # type: ignore[arg-type]
                Mount(host_path=tmp_path / "rw", mount_point="/rw", mode="rw"),
            ]
        )
    )
    return Files(sandbox), one, two


def test_a_copy_may_come_from_a_read_only_directory_and_a_move_not(
    tmp_path: Path,
) -> None:
    files, one, two = two_mounts(tmp_path)
    (one / "x").write_text("x")
    with pytest.raises(PathNotWritableError, match="read-only") as caught:
        files.move("/one/x", "/two/x")
    assert caught.value.path == "/one/x"
    files.copy("/one/x", "/two/x")
    assert (two / "x").read_text() == "x"
    with pytest.raises(PathNotWritableError, match="read-only"):
        files.copy("/two/x", "/one/y")
    files.move("/two/x", "/rw/x")
    assert (tmp_path / "rw" / "x").read_text() == "x" and os.listdir(two) == []


def test_the_destination_has_its_own_limits(tmp_path: Path) -> None:
    files, one, two = two_mounts(tmp_path, suffixes=[".txt"], max_file_bytes=3)
    (one / "x").write_text("1234")
    (tmp_path / "rw" / "x").write_text("1234")
    for call, source in ((files.copy, "/one/x"), (files.move, "/rw/x")):
        with pytest.raises(SuffixNotAllowedError):
            call(source, "/two/x.png")
        with pytest.raises(FileTooLargeError) as caught:
            call(source, "/two/x.txt")
        assert (caught.value.path, caught.value.size) == ("/two/x.txt", 4)
    assert os.listdir(two) == []


def test_directories_are_moved_only_on_request(world: World) -> None:
    put(world, "d/x", "x")
    with pytest.raises(IsADirectoryError):
        world.files.move(world.path("d"), world.path("e"))
    world.files.move(world.path("d"), world.path("e"), directory=True)
    assert (world.host / "e/x").read_text() == "x"


def test_directories_can_be_created(world: World) -> None:
    said = world.files.create_directory(world.path("a/b"))
    assert said == f"Created directory {world.path('a/b')}"
    assert (world.host / "a/b").is_dir()
    with pytest.raises(FileExistsError):
        world.files.create_directory(world.path("a/b"))
    world.files.create_directory(world.path("a/b"), exist_ok=True)


def test_stat_and_exists(world: World) -> None:
    path = put(world, "a.txt", "12345")
    os.chmod(world.host / "a.txt", 0o640)
    (world.host / "link").symlink_to("a.txt")
    found = world.files.stat(path)
    assert (found.type, found.bytes, found.mode, found.links) == ("file", 5, 0o640, 1)
    assert found.mtime_ns == (world.host / "a.txt").stat().st_mtime_ns
    assert world.files.stat(world.top).type == "directory"
    assert world.files.stat(world.path("link")).type == "file"
    assert world.files.stat(world.path("link"), follow=False).type == "link"
    assert world.files.exists(path) and not world.files.exists(world.path("no"))
    with pytest.raises(PathNotInSandboxError):
        world.files.exists("\\nowhere:")
    with pytest.raises(FileNotFoundError):
        world.files.stat(world.path("no"))


# --- Listing and searching --------------------------------------------------------------


def plant(world: World) -> None:
    for name in ("a.txt", "b.md", ".hidden", "sub/c.txt", "sub/deep/d.txt", "é.txt"):
        put(world, name, f"in {name}\n")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**/*", [".hidden", "a.txt", "b.md", "sub/c.txt", "sub/deep/d.txt", "é.txt"]),
        ("", [".hidden", "a.txt", "b.md", "sub/c.txt", "sub/deep/d.txt", "é.txt"]),
        ("*.txt", ["a.txt", "é.txt"]),
        ("**/*.txt", ["a.txt", "sub/c.txt", "sub/deep/d.txt", "é.txt"]),
        ("sub/*", ["sub/c.txt"]),
        ("sub/**/*.txt", ["sub/c.txt", "sub/deep/d.txt"]),
        ("[ab].*", ["a.txt", "b.md"]),
        ("?.md", ["b.md"]),
        ("*", [".hidden", "a.txt", "b.md", "é.txt"]),
        ("nothing", []),
    ],
)
def test_list_files_matches_sorted(world: World, pattern: str, names: list[str]) -> None:
    plant(world)
    expected = [world.path(name) for name in names]
    assert world.files.list_files(world.top, pattern) == expected == sorted(expected)


def test_everything_readable_is_listed(world: World) -> None:
    plant(world)
    everything = world.files.list_files()
    assert everything == world.files.list_files(world.top) and len(everything) == 6
    assert world.files.list_files("") == everything
    assert world.files.list_files(world.path("sub")) == [
        world.path("sub/c.txt"),
        world.path("sub/deep/d.txt"),
    ]


def test_slash_means_everything_at_mounts_and_roots_only(world: World) -> None:
    plant(world)
    if world.style == "paths":
        with pytest.raises(PathNotInSandboxError):
            world.files.list_files("/")
    else:
        assert world.files.list_files("/") == world.files.list_files(".")


def test_a_missing_directory_or_a_file_has_no_files(world: World) -> None:
    plant(world)
    assert world.files.list_files(world.path("none")) == []
    assert world.files.list_files(world.path("a.txt")) == []


@pytest.mark.parametrize("pattern", ["../*", "a/../b", "/etc/*", "~/*", "c:/x", "a\0b"])
def test_patterns_that_lead_away_are_refused(mounts: World, pattern: str) -> None:
    with pytest.raises(ValueError):
        mounts.files.list_files("/data", pattern)


def test_a_climbing_pattern_is_told_so(world: World) -> None:
    with pytest.raises(ValueError, match="must not contain '..'"):
        world.files.list_files(world.top, "../*")


def test_a_nested_mount_hides_what_lies_under_it(tmp_path: Path) -> None:
    (tmp_path / "data" / "special").mkdir(parents=True)
    (tmp_path / "data" / "special" / "phantom").write_text("x")
    (tmp_path / "data" / "x").write_text("x")
    sandbox = Sandbox(
        SandboxConfig(
            mounts=[
                Mount(host_path=tmp_path / "data", mount_point="/data"),
                Mount(host_path=tmp_path / "special", mount_point="/data/special"),
            ]
        )
    )
    (tmp_path / "special" / "y").write_text("y")
    files = Files(sandbox)
    assert files.list_files("/") == ["/data/special/y", "/data/x"]
    assert files.list_files("/data") == ["/data/x"]
    assert all(files.read(path).content for path in files.list_files())


def test_a_child_lists_what_it_may_read(world: World) -> None:
    plant(world)
    child = Files(world.sandbox.derive(allow_read=world.path("sub")))
    listed = [world.path("sub/c.txt"), world.path("sub/deep/d.txt")]
    assert child.list_files() == listed == child.list_files(world.path("sub"))
    if world.style != "root":  # where the top is "everything"
        with pytest.raises(PathNotInSandboxError):
            child.list_files(world.top)


def test_links_to_directories_are_not_walked(world: World, tmp_path: Path) -> None:
    plant(world)
    (world.host / "again").symlink_to("sub")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("x")
    (world.host / "out").symlink_to(tmp_path / "outside")
    assert len(world.files.list_files()) == 6
    assert world.files.list_files(world.top, "again/*") == [world.path("again/c.txt")]
    assert world.files.list_files(world.top, "out/*") == []


def test_directories_are_listed_with_types_and_sizes(world: World) -> None:
    plant(world)
    os.mkfifo(world.host / "fifo")
    (world.host / "link").symlink_to("/nowhere")
    found = {entry.path: entry.stat for entry in world.files.list_dir(world.top)}
    assert {path: stat.type for path, stat in found.items()} == {
        world.path(".hidden"): "file",
        world.path("a.txt"): "file",
        world.path("b.md"): "file",
        world.path("fifo"): "other",
        world.path("link"): "link",
        world.path("sub"): "directory",
        world.path("é.txt"): "file",
    }
    assert found[world.path("a.txt")].bytes == len("in a.txt\n")


def test_glob_finds_directories_and_skips_what_is_excluded(world: World) -> None:
    plant(world)
    assert world.files.glob("s*", world.top) == [world.path("sub")]
    assert world.files.glob("s*", world.top, directories=False) == []
    everything = world.files.glob("**/*", world.top, exclude=["sub", "*.md"])
    assert everything == [world.path(n) for n in (".hidden", "a.txt", "é.txt")]


def test_grep_finds_lines(world: World) -> None:
    plant(world)
    put(world, "poem.txt", "roses\nare Red\nviolets")
    result = world.files.grep("r.d", world.top, ignore_case=True)
    assert [(m.path, m.line, m.column, m.text) for m in result.matches] == [
        (world.path("poem.txt"), 2, 5, "are Red")
    ]
    assert not result.truncated and result.files_searched == 7
    assert world.files.grep("r.d", world.top, fixed=True).matches == []
    some = world.files.grep("in", ".", "**/*.txt", max_matches=2)
    assert len(some.matches) == 2 and some.truncated
    one_file = world.files.grep("are", world.path("poem.txt"))
    assert [match.line for match in one_file.matches] == [2]
    with pytest.raises(ValueError):
        world.files.grep("(unclosed", world.top)
    with pytest.raises(ValueError):
        world.files.grep("a\0b", world.top)


# --- Tar --------------------------------------------------------------------------------


def test_a_directory_goes_out_and_in_as_tar(world: World) -> None:
    plant(world)
    stream = io.BytesIO()
    out = world.files.export_tar(world.path("sub"), stream)
    assert out.entries >= 3 and out.bytes == len("in sub/c.txt\n" + "in sub/deep/d.txt\n")
    names = tarfile.open(fileobj=io.BytesIO(stream.getvalue())).getnames()
    assert any(name.endswith("deep/d.txt") for name in names)
    back = world.files.import_tar(world.path("copy"), stream.getvalue())
    assert back.bytes == out.bytes
    copies = world.files.list_files(world.path("copy"))
    assert [Path(path).name for path in copies] == ["c.txt", "d.txt"]


def test_tar_streams_may_be_files_and_descriptors(world: World, tmp_path: Path) -> None:
    plant(world)
    with open(tmp_path / "x.tar", "w+b") as file:
        world.files.export_tar(world.path("sub"), file)
    with open(tmp_path / "x.tar", "rb") as file:
        file.read(1)
        file.seek(0)
        world.files.import_tar(world.path("one"), file)
    fd = os.open(tmp_path / "x.tar", os.O_RDONLY)
    try:
        world.files.import_tar(world.path("two"), fd)
    finally:
        os.close(fd)
    with open(tmp_path / "x.tar", "rb") as file:
        world.files.import_tar(world.path("three"), io.BytesIO(file.read()))
    for name in ("one", "two", "three"):
        assert len(world.files.list_files(world.path(name))) == 2


def test_an_archive_cannot_climb_out(world: World, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        entry = tarfile.TarInfo("../escaped.txt")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(SandboxError):
        world.files.import_tar(world.path("in"), stream.getvalue())
    assert not (tmp_path / "escaped.txt").exists()
    assert world.files.list_files() == []


def test_what_is_no_archive_is_refused(world: World) -> None:
    with pytest.raises(SandboxError):
        world.files.import_tar(world.path("in"), b"this is no tar archive" * 100)


# --- Pins -------------------------------------------------------------------------------


def test_a_pinned_operation_acts_on_what_was_pinned(world: World) -> None:
    path = put(world, "a.txt", "old")
    pin = world.files.pin(path)
    world.files.edit(path, "old", "new", pin=pin)
    with pytest.raises(SandboxChangedError):
        world.files.edit(path, "new", "newer", pin=pin)
    with pytest.raises(SandboxChangedError):
        world.files.write(path, "x", pin=pin)
    with pytest.raises(SandboxChangedError):
        world.files.delete(path, pin=pin)
    with pytest.raises(SandboxChangedError):
        world.files.read(path, pin=pin)
    assert (world.host / "a.txt").read_text() == "new"


def test_a_name_pinned_as_free_must_still_be_free(world: World) -> None:
    pin = world.files.pin(world.path("new.txt"))
    put(world, "new.txt", "somebody else's")
    with pytest.raises(SandboxChangedError):
        world.files.write(world.path("new.txt"), "mine", pin=pin)
    assert (world.host / "new.txt").read_text() == "somebody else's"
