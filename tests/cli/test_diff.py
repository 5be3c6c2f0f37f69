# SPDX-License-Identifier: Apache-2.0
"""cay diff: what changed in the files of a sandbox."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import CAY
from sandboxes import Screen

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can read the layers of a sandbox")

CHANGES = """
echo second >> /etc/motd
rm /etc/old
mv /etc/name /etc/renamed
mkdir /etc/dir && echo new > '/etc/dir/a b'
ln -s motd /etc/link
chmod 755 /etc/run
printf '\\0\\1' > /etc/zero
printf 'a\\033[31mb\\n' > /etc/escape
"""


@pytest.fixture(name="root")
def fixture_root(tmp_path):
    root = tmp_path / "root"
    for name in ("bin", "etc", "tmp", "proc", "dev", "lib", "usr"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    for name in ("sh", "rm", "mv", "mkdir", "ln", "chmod", "printf", "echo"):
        (root / "bin" / name).symlink_to("busybox")
    for name, text in {"motd": "first\n", "old": "old\n", "name": "1\n2\n3\n", "run": "#!/bin/sh\n"}.items():
        (root / "etc" / name).write_text(text)
        (root / "etc" / name).chmod(0o644)
    return root


@pytest.fixture(name="box")
def fixture_box(boxes, root):
    box = boxes.create("--template", root, "--storage", "disk")
    boxes.ok("exec", "-u", "root", box, "--", "sh", "-c", CHANGES)
    return box


def test_names_are_those_that_a_command_changed(boxes, box, root):
    fresh = boxes.create("--template", root, "--storage", "disk")
    own = boxes.ok("diff", "--names", fresh).text.splitlines()  # such as etc/passwd
    assert [line for line in boxes.ok("diff", "--names", box).text.splitlines() if line not in own] == [
        "A\tetc/dir/", "A\tetc/dir/a b", "A\tetc/escape", "A\tetc/link", "M\tetc/motd", "D\tetc/old",
        "R100\tetc/name\tetc/renamed", "M\tetc/run", "A\tetc/zero"]
    assert "D\tetc/name" in boxes.ok("diff", "--names", "--no-renames", box).text.splitlines()


def test_a_killed_sandbox_has_the_same_diff(boxes, box):
    before = boxes.ok("diff", box).out
    boxes.ok("kill", box)
    assert boxes.ok("diff", box).out == before


def test_git_applies_the_patch_to_the_template(boxes, box, root, tmp_path):
    patch = tmp_path / "patch"
    patch.write_bytes(boxes.ok("diff", "--binary", box).out)
    subprocess.run(["git", "apply", patch], cwd=root, check=True)
    assert (root / "etc" / "motd").read_text() == "first\nsecond\n"
    assert (root / "etc" / "renamed").read_text() == "1\n2\n3\n"
    assert (root / "etc" / "dir" / "a b").read_text() == "new\n"
    assert os.readlink(root / "etc" / "link") == "motd"
    assert os.access(root / "etc" / "run", os.X_OK)
    assert (root / "etc" / "zero").read_bytes() == b"\0\1"
    assert not (root / "etc" / "old").exists() and not (root / "etc" / "name").exists()


def test_stat_and_json_count_lines(boxes, box):
    assert re.search(r"^ etc/motd +\|   1 \+$", boxes.ok("diff", "--stat", box).text, re.M)
    found = boxes.ok("diff", "-o", "json", box).json
    changes = {change["path"]: change for change in found["changes"]}
    assert (changes["etc/motd"]["insertions"], changes["etc/motd"]["deletions"]) == (1, 0)
    assert changes["etc/zero"]["binary"] and changes["etc/renamed"]["old_path"] == "etc/name"
    assert changes["etc/run"]["changed"] == ["mode"] and found["cut"] == 0


def test_two_formats_at_once_are_refused(boxes, box):
    assert "pass one of --names, --stat and -o json" in boxes.fails(2, "diff", "--names", "--stat", box)


def test_a_sandbox_in_memory_is_refused(boxes):
    box = boxes.create()
    assert boxes.fails(4, "diff", box).startswith("cay: not-found: ")


def show(boxes, box, **env):
    screen = Screen([CAY, "diff", box], boxes.folder, env={**os.environ, "TERM": "xterm", "PAGER": "cat", **env})
    status = screen.end()
    screen.close()
    assert status == 0
    return screen.seen


def test_a_terminal_gets_colours_and_no_control_characters_of_files(boxes, box):
    seen = show(boxes, box)
    assert b"\x1b[32m+second\x1b[m" in seen and b"\x1b[36m@@" in seen
    assert b"+a\\x1b[31mb" in seen and b"a\x1b[31mb" not in seen
    assert b"\x1b" not in show(boxes, box, NO_COLOR="1")


def test_a_terminal_gets_the_output_through_the_pager(boxes, box):
    assert b"> \x1b[32m+second" in show(boxes, box, PAGER="sed 's/^/> /'")
    assert show(boxes, box, PAGER="head -n 1").count(b"\n") == 1
