# SPDX-License-Identifier: Apache-2.0
"""cay checkpoint, rollback and checkpoints."""

import json
import subprocess

import pytest
from conftest import CAY, PATIENCE


def cay(*words, check=True):
    done = subprocess.run([CAY, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL, check=False)
    assert not check or done.returncode == 0, done
    return done


@pytest.fixture
def box():
    name = cay("create").stdout.strip()
    yield name
    cay("rm", "-f", name)


def sh(box, script):
    return cay("exec", "-u", "root", box, "--", "sh", "-c", script).stdout


def test_a_rollback_restores_the_files_and_can_be_undone(box):
    sh(box, "echo one > /a")
    assert cay("checkpoint", box, "first").stdout == "1\n"
    sh(box, "echo two > /a; touch /b")
    assert cay("rollback", box, "first").stdout == "the files before the rollback are checkpoint 2\n"
    assert sh(box, "cat /a; ls /b 2>/dev/null; true") == "one\n"
    assert cay("rollback", box, "2").stdout == ""
    assert sh(box, "cat /a; ls /b") == "two\n/b\n"


def test_checkpoints_are_listed_as_a_tree(box):
    for name in ("a", "b"):
        sh(box, f"touch /{name}")
        cay("checkpoint", box, name)
    cay("rollback", box, "a")
    sh(box, "touch /c")
    cay("checkpoint", box, "c")
    found = json.loads(cay("checkpoints", box, "-o", "json").stdout)["checkpoints"]
    assert [(one["name"], one["parent"], one["current"]) for one in found] == [
        ("a", None, False), ("b", 1, False), ("c", 1, True)]
    rows = cay("checkpoints", box).stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["CHECKPOINT", "1", "2", str(found[2]["id"])]
    assert rows[1].startswith("1") and rows[2].startswith("  2") and " * " in rows[3]


def test_a_process_makes_a_checkpoint_busy_unless_it_is_stopped(box):
    cay("exec", "-d", box, "--", "sleep", "1000")
    done = cay("checkpoint", box, check=False)
    assert done.returncode != 0 and "a process runs in the sandbox" in done.stderr
    assert cay("checkpoint", "--stop", box).stdout == "1\n"


@pytest.mark.parametrize("words, told", [
    (["checkpoint", "{}", "12"], "not only digits"),
    (["checkpoint", "{}", "a/b"], "invalid name of a checkpoint"),
    (["rollback", "{}", "none"], "cay checkpoints lists them"),
])
def test_invalid_checkpoints_are_refused(box, words, told):
    done = cay(*(word.format(box) for word in words), check=False)
    assert done.returncode != 0 and told in done.stderr
