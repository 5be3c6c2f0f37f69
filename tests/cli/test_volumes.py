# SPDX-License-Identifier: Apache-2.0
"""-v, --config and --template: what of this machine is inside."""

import os

import pytest


@pytest.fixture(name="shared")
def fixture_shared(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "file").write_text("from outside\n")
    return folder


def test_a_directory_is_shown_and_can_be_written(boxes, shared):
    boxes.ok("run", "-v", f"{shared}:/data", "--", "sh", "-c", "cat /data/file > /data/copy")
    assert (shared / "copy").read_text() == "from outside\n"
    assert os.stat(shared / "copy").st_uid == os.stat(shared).st_uid


def test_a_relative_source_starts_here(boxes, shared):
    for source, where in ((".", shared), ("shared", boxes.folder), ("../shared", shared)):
        assert boxes.ok("run", "-v", f"{source}:/src", "-w", "/src", "--", "cat", "file",
                        cwd=where).out == b"from outside\n"


def test_read_only_is_read_only_also_for_root(boxes, shared):
    done = boxes.cay("run", "-u", "root", "-v", f"{shared}:/data:ro", "--", "sh", "-c",
                     "cat /data/file; echo x > /data/file")
    assert done.status != 0 and done.out == b"from outside\n"
    assert (shared / "file").read_text() == "from outside\n"


def test_a_single_file_can_be_shown(boxes, shared):
    assert boxes.ok("run", "-v", f"{shared}/file:/etc/thing:ro", "--", "cat",
                    "/etc/thing").out == b"from outside\n"


def test_a_sandbox_that_stays_has_volumes_too(boxes, shared):
    box = boxes.create("-v", f"{shared}:/data")
    assert boxes.ok("exec", box, "cat", "/data/file").out == b"from outside\n"


def test_the_paths_of_a_policy_are_inside_with_their_modes(boxes, shared):
    (boxes.folder / "notes").mkdir()
    (boxes.folder / "policy.yaml").write_text(
        "paths:\n"
        "  docs: {root: shared}\n"
        "  notes: {root: notes, mode: rw, write_approval: false}\n")
    done = boxes.cay("run", "--config", "policy.yaml", "--", "sh", "-c",
                     "cat /docs/file > /notes/copy; echo x > /docs/file")
    assert done.status != 0
    assert (boxes.folder / "notes" / "copy").read_text() == "from outside\n"
    assert (shared / "file").read_text() == "from outside\n"


def test_a_single_root_is_the_workspace(boxes, shared):
    (boxes.folder / "policy.yaml").write_text("root: {root: shared}\n")
    done = boxes.cay("run", "--config", "policy.yaml", "--", "cat", "/workspace/file")
    assert done.out == b"from outside\n", done


def test_a_policy_that_is_wrong_is_told_with_its_line(boxes):
    (boxes.folder / "policy.yaml").write_text("paths:\n  docs: {root: x, mode: wrong}\n")
    line = boxes.fails(125, "run", "--config", "policy.yaml", "--", "true")
    assert line.startswith("cay: invalid: ") and "policy.yaml: line 2: " in line
