# SPDX-License-Identifier: Apache-2.0
"""resolve, explain, roots, stat, exists and read."""

import os
import stat

import pytest


def test_resolve_prints_the_canonical_path_in_the_policys_spelling(world):
    world.put("notes/real/a", "x")
    os.symlink("real", world.base / "notes" / "link")
    assert world.ok("resolve", "notes/./link/x/../a").out == b"notes/real/a\n"


def test_resolve_host_prints_the_hosts_path(world):
    world.put("notes/a", "x")
    expected = os.path.realpath(world.base / "notes" / "a")
    assert world.ok("resolve", "--host", "notes/a").out.decode() == expected + "\n"
    assert world.ok("resolve", "notes/a", "--host", "-o", "json").json["host"] == expected


def test_resolve_json_has_access_existence_mount_and_approvals(world):
    world.put("docs/a", "x")
    assert world.ok("resolve", "docs/a", "-ojson").json == {
        "path": "docs/a", "mount": "docs", "access": "ro", "exists": True,
        "read_approval": False, "write_approval": True}
    assert world.ok("resolve", "secret/none", "-o", "json").json == {
        "path": "secret/none", "mount": "secret", "access": "rw", "exists": False,
        "read_approval": True, "write_approval": True}


def test_explain_says_one_sentence_about_any_path(world):
    granted = world.ok("explain", "docs/a").out.decode()
    assert "docs" in granted and granted.count("\n") == 1
    refused = world.ok("explain", "elsewhere/a", "-o", "json").json
    assert refused["path"] == "elsewhere/a"
    assert "outside" in refused["explanation"] and "docs" in refused["explanation"]


def test_roots_lists_what_is_shown_and_whether_it_can_be_written(world):
    assert world.ok("roots").out == b"ro docs\nrw notes\nrw asked\nrw secret\nrw small\n"
    assert world.ok("roots", "-o", "json").json == {
        "readable": ["docs", "notes", "asked", "secret", "small"],
        "writable": ["notes", "asked", "secret", "small"]}


def test_stat_tells_type_size_mode_and_time(world):
    path = world.put("docs/a", "12345")
    os.chmod(path, 0o640)
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    assert world.ok("stat", "docs/a", "-o", "json").json == {
        "path": "docs/a", "type": "file", "bytes": 5, "mode": "0640",
        "uid": os.getuid(), "gid": path.stat().st_gid, "links": 1,
        "mtime_ns": 1_700_000_000_123_456_789}
    text = world.ok("stat", "docs/a").out.decode()
    assert "type: file\nbytes: 5\nmode: 0640\n" in text
    assert "modified: 2023-11-14T22:13:20Z\n" in text


def test_stat_follows_a_link_unless_told_not_to(world):
    world.put("docs/a", "x")
    os.symlink("a", world.base / "docs" / "link")
    assert world.ok("stat", "docs/link", "-ojson").json["type"] == "file"
    assert world.ok("stat", "--no-follow", "docs/link", "-ojson").json["type"] == "link"


def test_stat_names_directories_and_special_files(world):
    os.mkfifo(world.base / "docs" / "fifo")
    assert world.ok("stat", "docs", "-ojson").json["type"] == "directory"
    assert world.ok("stat", "docs/fifo", "-ojson").json["type"] == "other"


def test_exists_answers_with_a_word_and_a_status(world):
    world.put("docs/a", "x")
    result = world.cay("exists", "docs/a")
    assert (result.status, result.out, result.err) == (0, b"true\n", b"")
    result = world.cay("exists", "docs/none")
    assert (result.status, result.out, result.err) == (4, b"false\n", b"")
    result = world.cay("exists", "docs/none", "-ojson")
    assert (result.status, result.json) == (4, {"path": "docs/none", "exists": False})
    assert "outside" in world.fails(18, "exists", "elsewhere/a")


@pytest.mark.parametrize("content", [
    b"", b"\n", b"no newline at the end", b"\r\n\r\0\xff\xfe\x80", bytes(range(256)) * 17,
])
def test_read_prints_every_byte(world, content):
    world.put("docs/a", content)
    assert world.ok("read", "docs/a").out == content
    assert world.ok("read", "docs/a", "--bytes").out == content


def test_a_file_of_many_pieces_is_read_whole(world):
    content = os.urandom(9 << 20)
    world.put("docs/big", content)
    assert world.ok("read", "docs/big").out == content
    assert world.ok("read", "--bytes", "--offset", "5000000", "--max", "4194305",
                    "docs/big").out == content[5000000:5000000 + 4194305]


def test_a_page_is_counted_in_characters(world):
    world.put("docs/a", "äöü€😀 end")
    assert world.ok("read", "docs/a", "--offset", "1", "--max", "3").out.decode() == "öü€"
    assert world.ok("read", "docs/a", "--offset", "4").out.decode() == "😀 end"
    assert world.ok("read", "docs/a", "--max-chars", "0").out == b""
    assert world.ok("read", "docs/a", "--offset", "99").out == b""


def test_many_characters_are_read_whole(world):
    text = "äx" * 1_200_000
    world.put("docs/a", text)
    assert world.ok("read", "docs/a", "--offset", "1").out.decode() == text[1:]


def test_a_page_as_json_has_the_five_fields(world):
    world.put("docs/a", "äöü€😀")
    assert world.ok("read", "docs/a", "-o", "json", "--max", "2", "--offset", "1").json == {
        "content": "öü", "truncated": True, "total_chars": 5, "offset": 1, "chars_read": 2}
    assert world.ok("read", "docs/a", "-o", "json").json == {
        "content": "äöü€😀", "truncated": False, "total_chars": 5, "offset": 0, "chars_read": 5}


def test_a_json_page_has_twenty_thousand_characters_unless_told(world):
    world.put("docs/a", "x" * 20_001)
    result = world.ok("read", "docs/a", "-o", "json").json
    assert (result["chars_read"], result["truncated"]) == (20_000, True)
    result = world.ok("read", "docs/a", "-o", "json", "--max", "30000").json
    assert (result["chars_read"], result["truncated"]) == (20_001, False)


def test_lines_are_counted_from_zero_and_keep_their_ends(world):
    world.put("docs/a", "one\r\ntwo\nthree")
    assert world.ok("read", "--lines", "docs/a").out == b"one\r\ntwo\nthree"
    assert world.ok("read", "--lines", "--offset", "1", "--max", "1", "docs/a").out == b"two\n"
    assert world.ok("read", "--lines", "docs/a", "--max", "1", "-ojson").json == {
        "content": "one\r\n", "truncated": True, "total_lines": 3, "offset": 0, "lines_read": 1}


def test_more_lines_than_a_piece_are_read_whole(world):
    text = "".join(f"{i}\n" for i in range(4321)).encode()
    world.put("docs/a", text)
    assert world.ok("read", "--lines", "docs/a").out == text


def test_universal_newlines_are_read_and_counted_as_one(world):
    world.put("docs/a", "a\r\nb\rc\n")
    assert world.ok("read", "--universal-newlines", "docs/a").out == b"a\nb\nc\n"
    result = world.ok("read", "--universal-newlines", "docs/a", "-ojson").json
    assert (result["content"], result["total_chars"]) == ("a\nb\nc\n", 6)


def test_bytes_as_json_round_trip(world):
    content = bytes(range(256))
    world.put("docs/a", content)
    result = world.ok("read", "--bytes", "docs/a", "-ojson").json
    assert result.pop("content").encode("utf-8", "surrogateescape") == content
    assert result == {"truncated": False, "total_bytes": 256, "offset": 0, "bytes_read": 256}


def test_bytes_have_no_lines(world):
    world.put("docs/a", "x")
    assert "--lines" in world.fails(2, "read", "--bytes", "--lines", "docs/a")
    assert "--max N" in world.fails(2, "read", "--lines", "--max", "0", "docs/a")


def test_text_that_is_not_utf8_can_only_be_read_as_bytes(world):
    world.put("docs/a", b"\xff")
    assert world.ok("read", "docs/a").out == b"\xff"
    assert world.fails(26, "read", "docs/a", "--max", "5").startswith("cay: not-text: docs/a: ")


def test_a_fifo_is_never_opened(world):
    os.mkfifo(world.base / "docs" / "fifo")
    assert world.fails(24, "read", "docs/fifo").startswith("cay: not-a-file: docs/fifo: ")
    assert stat.S_ISFIFO(os.stat(world.base / "docs" / "fifo").st_mode)
