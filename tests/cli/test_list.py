# SPDX-License-Identifier: Apache-2.0
"""list, glob and grep."""

import os

import pytest


@pytest.fixture
def tree(world):
    for path in ("docs/a.txt", "docs/b.md", "docs/sub/c.txt", "docs/sub/deep/d.txt", "docs/.dot"):
        world.put(path, "content of " + path + "\n")
    os.symlink("a.txt", world.base / "docs" / "link")
    return world


def lines(result):
    return result.out.decode().splitlines()


def test_list_prints_the_files_at_any_depth_sorted(tree):
    tree.put("notes/n")
    assert lines(tree.ok("list", "docs")) == [
        "docs/.dot", "docs/a.txt", "docs/b.md", "docs/link", "docs/sub/c.txt",
        "docs/sub/deep/d.txt"]
    assert "notes/n" in lines(tree.ok("list", "notes"))


def test_a_pattern_and_a_glob_are_the_same(tree):
    expected = ["docs/a.txt", "docs/sub/c.txt", "docs/sub/deep/d.txt"]
    assert lines(tree.ok("list", "docs", "--pattern", "**/*.txt")) == expected
    assert lines(tree.ok("glob", "**/*.txt", "docs")) == expected
    assert lines(tree.ok("glob", "*.txt", "docs")) == ["docs/a.txt"]


def test_exclude_skips_all_below(tree):
    assert lines(tree.ok("glob", "**/*.txt", "docs", "--exclude", "sub")) == ["docs/a.txt"]
    assert lines(tree.ok("list", "docs", "--exclude", "sub", "--exclude=*.txt",
                         "--exclude", ".*", "--exclude", "link")) == ["docs/b.md"]


def test_dirs_lists_directories_and_all_lists_everything(tree):
    os.mkfifo(tree.base / "docs" / "fifo")
    assert lines(tree.ok("list", "docs", "--dirs")) == ["docs/sub", "docs/sub/deep"]
    entries = tree.ok("list", "docs", "--all", "-ojson").json["entries"]
    types = {entry["path"]: entry["type"] for entry in entries}
    assert types["docs/a.txt"] == "file" and types["docs/sub"] == "directory"
    assert types["docs/link"] == "link" and types["docs/fifo"] == "other"


def test_long_shows_type_mode_size_and_time(world):
    path = world.put("docs/a", "12345")
    os.chmod(path, 0o750)
    os.utime(path, (0, 0))
    assert world.ok("list", "-l", "docs").out == b"-rwxr-x---            5 1970-01-01T00:00:00Z docs/a\n"
    entry = world.ok("list", "-l", "docs", "-ojson").json["entries"][0]
    assert (entry["bytes"], entry["mode"], entry["mtime_ns"]) == (5, "0750", 0)


def test_pages_follow_each_other(tree):
    everything = lines(tree.ok("list", "docs"))
    page = tree.ok("list", "docs", "--max", "4", "-ojson").json
    assert page["truncated"] is True
    first = [entry["path"] for entry in page["entries"]]
    page = tree.ok("list", "docs", "--max", "4", "--after", first[-1], "-ojson").json
    assert page["truncated"] is False
    assert first + [entry["path"] for entry in page["entries"]] == everything
    assert lines(tree.ok("list", "docs", "--max", "2")) == everything[:2]
    assert "--max" in tree.fails(2, "list", "--max", "0")


def test_a_listing_as_json_has_path_and_type(world):
    world.put("docs/a")
    assert world.ok("list", "docs", "-o", "json").json == {
        "entries": [{"path": "docs/a", "type": "file"}], "truncated": False}
    assert world.ok("list", "docs/none", "-o", "json").json == {"entries": [], "truncated": False}


@pytest.mark.parametrize("name", [
    b"with space", b"new\nline", b"-dash", b"--", b"--yes", b"\xff\xfe", b"tab\there", b"\x1b[31m",
    b"quote\"'`$(x)\\", "ü€😀".encode(), b"*?[", b"trailing ",
])
def test_every_name_works_and_comes_back_as_it_is(world, name):
    path = b"notes/" + name
    world.ok("write", "--content", "x", "--", path)
    assert world.get(path) == b"x"
    assert world.ok("read", "--", path).out == b"x"
    assert world.ok("list", "notes", "-0").out == path + b"\0"
    assert world.ok("list", "notes").out == path + b"\n"
    entry = world.ok("list", "notes", "-o", "json").json["entries"][0]
    assert entry["path"].encode("utf-8", "surrogateescape") == path
    world.ok("delete", path)


def test_a_name_that_starts_with_a_dash_needs_two_dashes(world):
    config = world.base / "root.yaml"
    config.write_text("root: notes\n")
    world.put("notes/-dash", "x")
    assert "-d" in world.fails(2, "read", "-dash", config=config)
    assert world.ok("read", "--", "-dash", config=config).out == b"x"


def test_grep_prints_path_line_and_text(world):
    world.put("docs/a", "one\ntwo\nthree two\n")
    world.put("docs/b", "TWO\n")
    assert lines(world.ok("grep", "two", "docs")) == ["docs/a:2:two", "docs/a:3:three two"]
    assert lines(world.ok("grep", "-i", "^two$", "docs")) == ["docs/a:2:two", "docs/b:1:TWO"]
    assert world.ok("grep", "-0", "one", "docs").out == b"docs/a\x001:one\n"


def test_grep_takes_one_file_or_those_of_a_pattern(world):
    world.put("docs/a.txt", "x\n")
    world.put("docs/b.md", "x\n")
    world.put("docs/c/d.md", "x\n")
    assert lines(world.ok("grep", "x", "docs/a.txt")) == ["docs/a.txt:1:x"]
    assert lines(world.ok("grep", "x", "docs", "--pattern", "**/*.md", "--exclude", "c")) == [
        "docs/b.md:1:x"]


def test_a_fixed_text_is_no_regular_expression(world):
    world.put("docs/a", "a.c\nabc\n")
    assert lines(world.ok("grep", "-F", "a.c", "docs")) == ["docs/a:1:a.c"]
    assert lines(world.ok("grep", "-iF", "A.C", "docs")) == ["docs/a:1:a.c"]


def test_grep_without_a_match_ends_with_one(world):
    world.put("docs/a", "x\n")
    result = world.cay("grep", "none", "docs")
    assert (result.status, result.out, result.err) == (1, b"", b"")
    result = world.cay("grep", "none", "docs", "-ojson")
    assert (result.status, result.json["matches"]) == (1, [])


def test_grep_as_json_has_line_and_column(world):
    world.put("docs/a", "one\nüx two\n")
    result = world.ok("grep", "two", "docs", "-ojson").json
    assert result["matches"] == [{"path": "docs/a", "line": 2, "column": 5, "text": "üx two"}]
    assert (result["files_searched"], result["truncated"]) == (1, False)


def test_grep_says_when_there_is_more(world):
    world.put("docs/a", "x\n" * 1001)
    result = world.cay("grep", "x", "docs")
    assert (result.status, result.out.count(b"\n")) == (0, 1000)
    assert result.err == b"cay: note: more lines match; --max N prints more than 1000\n"
    assert world.ok("grep", "x", "docs", "--max", "2000").out.count(b"\n") == 1001
    result = world.ok("grep", "x", "docs", "--max", "1", "-ojson").json
    assert (len(result["matches"]), result["truncated"]) == (1, True)


def test_a_wrong_expression_or_pattern_is_told(world):
    assert "cay: invalid: " in world.fails(2, "grep", "(", "docs")
    assert "cay: invalid: " in world.fails(2, "glob", "/abs", "docs")
    assert "cay: invalid: " in world.fails(2, "glob", "../x", "docs")
