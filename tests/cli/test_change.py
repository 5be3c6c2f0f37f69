# SPDX-License-Identifier: Apache-2.0
"""write, append, edit, delete, move, copy, mkdir, export and import."""

import io
import json
import os
import tarfile

import pytest


@pytest.mark.parametrize("content", [b"", b"x", b"a\r\nb\0\xff", os.urandom(70_000)])
def test_write_takes_every_byte_of_standard_input(world, content):
    world.ok("write", "notes/new/deep/a", stdin=content)
    assert world.get("notes/new/deep/a") == content


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (5 << 20) + 3])
def test_a_large_input_arrives_whole(world, size):
    content = os.urandom(size)
    assert world.ok("write", "notes/a", "-ojson", stdin=content).json == {
        "path": "notes/a", "bytes": size}
    assert world.get("notes/a") == content


def test_a_large_input_needs_no_directory_for_temporary_files(world):
    world.environ["TMPDIR"] = str(world.base / "none")
    content = os.urandom(2 << 20)
    world.ok("write", "notes/a", stdin=content)
    assert world.get("notes/a") == content


def test_write_prints_nothing_unless_asked_for_json(world):
    assert world.ok("write", "notes/a", stdin="x").out == b""
    assert world.ok("write", "notes/a", "-ojson", stdin="xyz").json == {
        "path": "notes/a", "bytes": 3}


def test_content_can_be_given_as_an_option(world):
    world.ok("write", "notes/a", "--content", "hello\n", stdin="not this")
    assert world.get("notes/a") == b"hello\n"
    world.ok("append", "--content=-- more", "notes/a")
    assert world.get("notes/a") == b"hello\n-- more"


def test_write_replaces_and_in_place_overwrites(world):
    path = world.put("notes/a", "old content")
    os.chmod(path, 0o604)
    inode = path.stat().st_ino
    world.ok("write", "notes/a", "--in-place", stdin="in place")
    assert (world.get("notes/a"), path.stat().st_ino) == (b"in place", inode)
    world.ok("write", "notes/a", "--durable", stdin="replaced")
    assert (world.get("notes/a"), path.stat().st_mode & 0o777) == (b"replaced", 0o604)
    assert path.stat().st_ino != inode


def test_append_adds_to_the_end(world):
    world.ok("append", "notes/a", stdin="one\n")
    world.ok("write", "--append", "notes/a", stdin="two\n")
    assert world.get("notes/a") == b"one\ntwo\n"


def test_new_refuses_a_name_that_is_taken(world):
    world.ok("write", "--new", "notes/a", stdin="1")
    assert world.fails(6, "write", "--new", "notes/a", stdin="2").startswith("cay: exists: ")
    assert world.get("notes/a") == b"1"


def test_no_parents_refuses_a_missing_directory(world):
    assert world.fails(4, "write", "--no-parents", "notes/x/a", stdin="1")
    assert world.fails(4, "mkdir", "--no-parents", "notes/x/y")


def test_edit_replaces_the_only_occurrence(world):
    world.put("notes/a", "one two three")
    assert world.ok("edit", "notes/a", "--old", "two", "--new", "2").out == b""
    assert world.get("notes/a") == b"one 2 three"
    assert world.ok("edit", "notes/a", "--old", "2", "--new", "zwei", "-ojson").json == {
        "path": "notes/a", "replaced": 1, "bytes": 14}


def test_edit_all_replaces_every_occurrence(world):
    world.put("notes/a", "aXbXc")
    assert "2 times" in world.fails(23, "edit", "notes/a", "--old", "X", "--new", "-")
    assert world.ok("edit", "notes/a", "--old", "X", "--new", "--", "--all",
                    "-ojson").json["replaced"] == 2
    assert world.get("notes/a") == b"a--b--c"


def test_edit_keeps_line_ends_unless_exact(world):
    world.put("notes/a", "one\r\ntwo\r\n")
    world.ok("edit", "notes/a", "--old", "one\ntwo", "--new", "1\n2")
    assert world.get("notes/a") == b"1\r\n2\r\n"
    world.fails(23, "edit", "--exact", "notes/a", "--old", "1\n2", "--new", "x")


def test_many_edits_are_made_all_or_none(world):
    world.put("notes/a", "a b c c")
    edits = [{"old": "a", "new": "A"}, {"old": "c", "new": "C", "all": True},
             {"old": "A b", "new": "é\n", "exact": False}]
    world.ok("edit", "notes/a", "--edits", "-", stdin=json.dumps(edits))
    assert world.get("notes/a").decode() == "é\n C C"
    file = world.put("edits.json", json.dumps([{"old": "é", "new": "e"},
                                               {"old": "none", "new": ""}]))
    world.fails(23, "edit", "notes/a", "--edits", str(file))


@pytest.mark.parametrize("text, subject, words", [
    ("[{", "standard input", "line 1"),
    ("{}", "--edits", "list of edits"),
    ("[]", "--edits", "list of edits"),
    ("[1]", "[0]", "not an object"),
    ('[{"old":"a","new":"b"},{"old":"a"}]', "[1].new", "missing"),
    ('[{"old":1,"new":"b"}]', "[0].old", "not a string"),
    ('[{"old":"a","new":"b","al":true}]', "[0].al", "unknown key"),
    ('[{"old":"a","new":"b","all":1}]', "[0].all", "neither true nor false"),
    ('[{"old":"a","old":"b","new":""}]', "standard input", "duplicate"),
])
def test_a_wrong_list_of_edits_is_told_by_place_and_key(world, text, subject, words):
    world.put("notes/a", "a")
    line = world.fails(2, "edit", "notes/a", "--edits", "-", stdin=text)
    assert line.startswith(f"cay: invalid: {subject}: ") and words in line


def test_edit_must_know_what_to_replace(world):
    world.put("notes/a", "a")
    for words in ([], ["--old", "a"], ["--new", "a"], ["--edits", "-", "--old", "a"]):
        assert "--old TEXT --new TEXT" in world.fails(2, "edit", "notes/a", *words)


def test_delete_removes_the_name_and_of_a_link_only_the_link(world):
    world.put("notes/a", "x")
    os.symlink("a", world.base / "notes" / "link")
    world.ok("delete", "notes/link")
    assert world.get("notes/a") == b"x"
    assert world.ok("delete", "notes/a", "-o", "json").json == {"path": "notes/a"}
    assert world.fails(4, "delete", "notes/a").startswith("cay: not-found: notes/a: ")


def test_a_directory_is_deleted_only_with_r(world):
    world.put("notes/d/e/a", "x")
    assert "(pass -r " in world.fails(24, "delete", "notes/d")
    world.ok("delete", "-r", "notes/d")
    assert not (world.base / "notes" / "d").exists()


def test_move_and_copy_do_not_overwrite(world):
    world.put("notes/a", "1")
    assert world.ok("copy", "notes/a", "notes/b/c", "-ojson").json == {
        "source": "notes/a", "destination": "notes/b/c"}
    assert world.ok("move", "notes/a", "notes/d").out == b""
    assert (world.get("notes/b/c"), world.get("notes/d")) == (b"1", b"1")
    world.fails(6, "move", "notes/d", "notes/b/c")
    world.fails(6, "copy", "notes/d", "notes/b/c")
    assert not (world.base / "notes" / "a").exists()


def test_a_directory_is_moved_only_with_r(world):
    world.put("notes/d/a", "x")
    assert "(pass -r " in world.fails(24, "move", "notes/d", "notes/e")
    world.ok("move", "-r", "notes/d", "notes/e")
    assert world.get("notes/e/a") == b"x"


def test_mkdir_makes_parents(world):
    world.ok("mkdir", "notes/a/b")
    assert (world.base / "notes" / "a" / "b").is_dir()
    world.fails(6, "mkdir", "notes/a/b")
    world.ok("mkdir", "--exist-ok", "notes/a/b")


def make_tar(entries, mode="w"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as tar:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def test_export_and_import_carry_a_directory_over(world):
    world.put("docs/a.txt", "first")
    world.put("docs/sub/b", bytes(range(256)))
    tar = world.ok("export", "docs").out
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        files = {entry.name.removeprefix("./") for entry in archive if entry.isfile()}
        assert files == {"a.txt", "sub/b"}
    result = world.ok("import", "notes/copy", "-ojson", stdin=tar).json
    assert (result["path"], result["bytes"], result["skipped"]) == ("notes/copy", 261, 0)
    assert world.get("notes/copy/a.txt") == b"first"
    assert world.get("notes/copy/sub/b") == bytes(range(256))


def test_the_counts_of_an_export_go_to_standard_error(world):
    world.put("docs/a", "12345")
    os.mkfifo(world.base / "docs" / "fifo")
    result = world.cay("export", "docs", "-ojson")
    counts = json.loads(result.err)
    assert (result.status, counts["bytes"], counts["skipped"]) == (0, 5, 1)
    result = world.cay("export", "docs")
    assert result.err.startswith(b"cay: note: 1 entries were skipped: special files") and result.status == 0


def test_a_gzipped_tar_is_imported_too(world):
    world.ok("import", "notes", stdin=make_tar({"notes-a": b"1"}, "w:gz"))
    assert world.get("notes/notes-a") == b"1"


def test_an_entry_that_climbs_is_refused(world):
    tar = make_tar({"good": b"1", "../../outside/evil": b"2"})
    result = world.cay("import", "notes", stdin=tar)
    assert result.status == 18 and b"cay: outside: " in result.err
    assert os.listdir(world.base / "outside") == []


def test_what_is_no_tar_is_refused(world):
    result = world.cay("import", "notes", stdin=b"this is not a tar archive" * 100)
    assert result.status not in (0, 1) and b"cay: " in result.err
    assert os.listdir(world.base / "notes") == []
