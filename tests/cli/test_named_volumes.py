# SPDX-License-Identifier: Apache-2.0
"""cay volume, and -v NAME:/path."""

import os

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="volumes of root; tests/sandbox has the others")


@pytest.fixture(autouse=True)
def fixture_home(tmp_path, monkeypatch):
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))


@pytest.fixture(name="data")
def fixture_data(boxes):
    boxes.ok("volume", "create", "data")
    return "data"


def test_a_volume_is_created_listed_and_removed(boxes, data):
    assert boxes.ok("volume", "ls", "-q").text == "data\n"
    [row] = boxes.ok("volume", "ls", "-o", "json").json["volumes"]
    assert (row["name"], row["sandboxes"]) == ("data", 0) and row["created_ms"] > 0
    boxes.fails(6, "volume", "create", data)
    boxes.ok("volume", "rm", data)
    assert boxes.ok("volume", "ls").text.split() == ["NAME", "AGE", "SIZE", "SANDBOXES"]
    assert "cay volume ls" in boxes.fails(4, "volume", "rm", data)


def test_sandboxes_share_a_volume_that_outlives_them(boxes, data):
    boxes.ok("run", "-v", "data:/d", "--", "sh", "-c", "echo x > /d/file")
    one, other = boxes.create("-v", "data:/d"), boxes.create("-v", "data:/e:ro")
    boxes.ok("exec", one, "--", "sh", "-c", "echo y >> /d/file")
    assert boxes.ok("exec", other, "--", "cat", "/e/file").text == "x\ny\n"
    assert b"Read-only" in boxes.cay("exec", other, "--", "touch", "/e/file2").err
    [row] = boxes.ok("volume", "ls", "-o", "json").json["volumes"]
    assert row["sandboxes"] == 2
    assert boxes.ok("inspect", one, "-o", "json").json["volumes"] == ["data"]
    assert "volumes:   data\n" in boxes.ok("inspect", other).text
    line = boxes.fails(7, "volume", "rm", data)
    assert line.startswith("cay: busy: data: ") and (one in line or other in line)


def test_a_name_without_a_slash_is_a_volume_and_not_a_directory(boxes):
    (boxes.folder / "here").mkdir()
    line = boxes.fails(125, "run", "-v", "here:/d", "--", "true")
    assert line.startswith("cay: not-found: here: there is no such volume")
    assert "cay volume create here" in line and "./here" in line
    boxes.ok("run", "-v", "./here:/d", "--", "touch", "/d/x")
    assert (boxes.folder / "here" / "x").exists()
    assert boxes.fails(125, "run", "-v", "a b:/d", "--", "true").startswith("cay: invalid: a b: ")


def test_files_are_copied_into_a_volume_and_out(boxes, data):
    tree = boxes.folder / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "file").write_text("deep\n")
    (boxes.folder / "one").write_text("1\n")
    boxes.ok("volume", "cp", "one", "data:")
    boxes.ok("volume", "cp", "one", "data:/two")
    boxes.ok("volume", "cp", "-u", "root", "tree", "data:tree")
    assert boxes.ok("run", "-v", "data:/d", "-w", "/d", "--", "sh", "-c",
                    "stat -c '%n %u' one two tree/sub/file; cat tree/sub/file").text == (
        "one 1000\ntwo 1000\ntree/sub/file 0\ndeep\n")
    boxes.ok("volume", "cp", "data:tree", "copy")
    assert (boxes.folder / "copy" / "sub" / "file").read_text() == "deep\n"
    assert boxes.ok("volume", "cp", "data:two", "-").text == "1\n"
    boxes.ok("volume", "cp", "-", "data:piped", stdin=b"piped")
    assert boxes.ok("volume", "cp", "data:piped", "-").text == "piped"


@pytest.mark.parametrize("words, start", [
    (("a", "b"), "cay: invalid: a: neither"), (("data:a", "data:b"), "cay: invalid: data:a: source and"),
    (("data:../etc/passwd", "-"), "cay: outside: data:../etc/passwd: "),
    (("none:a", "-"), "cay: not-found: none: "), (("data:none", "-"), "cay: not-found: ")])
def test_a_copy_that_cannot_be_is_refused(boxes, data, words, start):
    done = boxes.cay("volume", "cp", *words)
    assert done.status != 0 and done.line.startswith(start), done


def test_a_link_in_a_volume_shows_nothing_of_the_host(boxes, data):
    (boxes.folder / "secret").write_text("canary")
    boxes.ok("run", "-v", "data:/d", "--", "ln", "-s", str(boxes.folder / "secret"), "/d/link")
    done = boxes.cay("volume", "cp", "data:link", "-")
    assert done.status != 0 and done.out == b""


def test_a_configuration_has_volumes_among_its_mounts(boxes, data):
    (boxes.folder / "cay.yaml").write_text("mounts: ['data:/d', 'data:/r:ro']\n")
    boxes.ok("run", "--config", "cay.yaml", "--", "sh", "-c", "echo x > /d/file; cat /r/file")
    assert b"Read-only" in boxes.cay("run", "--config", "cay.yaml", "--", "touch", "/r/y").err
    (boxes.folder / "cay.yaml").write_text("mounts: ['none:/d']\n")
    assert "cay volume create none" in boxes.fails(125, "run", "--config", "cay.yaml", "--", "true")


@pytest.mark.skipif(not os.path.exists("/dev/loop-control"), reason="there are no loop devices")
def test_a_volume_has_a_size(boxes):
    boxes.ok("volume", "create", "--size", "16M", "small")
    [row] = boxes.ok("volume", "ls", "-o", "json").json["volumes"]
    assert row["bytes"] == 16 << 20 and "16 MiB" in boxes.ok("volume", "ls").text
    done = boxes.cay("run", "-v", "small:/d", "--", "dd", "if=/dev/zero", "of=/d/x", "bs=1M", "count=20")
    assert b"No space left" in done.err
    boxes.ok("volume", "rm", "small")
    assert "16 MiB" in boxes.fails(2, "volume", "create", "--size", "1M", "tiny")
