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


@pytest.mark.parametrize("user", ["root", "1234", "1234:0", "user"])
def test_what_is_shown_belongs_to_who_runs_the_command(boxes, shared, user):
    owner = shared.stat().st_uid, shared.stat().st_gid
    boxes.ok("run", "-u", user, "-v", f"{shared}:/d", "--", "sh", "-c", "mkdir /d/x; echo > /d/x/y")
    made = (shared / "x" / "y").stat()
    assert (made.st_uid, made.st_gid) == owner
    box = boxes.create("-u", user, "-v", f"{shared}:/d")
    boxes.ok("exec", box, "--", "sh", "-c", "echo > /d/x/z")
    assert b"Value too large" in boxes.cay("exec", "-u", "4711", box, "--", "touch", "/d/w").err


def test_a_relative_source_starts_here(boxes, shared):
    for source, where in ((".", shared), ("./shared", boxes.folder), ("../shared", shared)):
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


# Every way to give a file set-user-id or set-group-id bits; prints those that work.
SET_IDS = r"""
import ctypes, os
libc, place = ctypes.CDLL(None, use_errno=True), os.environ["PLACE"] + "/"
os.umask(0)
os.close(os.open(place + "there", os.O_CREAT | os.O_RDWR, 0o755))
fd = os.open(place + "there", os.O_RDWR)
class How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]
how = How(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
ways = {
    "chmod": lambda: os.chmod(place + "there", 0o4755),
    "chmod of a group": lambda: os.chmod(place + "there", 0o2755),
    "fchmod": lambda: os.fchmod(fd, 0o4755),
    "fchmodat2": lambda: libc.syscall(452, -100, (place + "there").encode(), 0o4755, 0),
    "open": lambda: os.open(place + "opened", os.O_CREAT | os.O_WRONLY, 0o4755),
    "tmpfile": lambda: os.open(place, os.O_TMPFILE | os.O_WRONLY, 0o4755),
    "mknod": lambda: os.mknod(place + "made", 0o104755),
    "openat2": lambda: libc.syscall(437, -100, (place + "two").encode(), ctypes.byref(how), 24),
}
if os.uname().machine == "x86_64":
    ways["old open"] = lambda: libc.syscall(2, (place + "old").encode(), 0o101, 0o4755)
    ways["creat"] = lambda: libc.syscall(85, (place + "created").encode(), 0o4755)
    ways["old chmod"] = lambda: libc.syscall(90, (place + "there").encode(), 0o4755)
    ways["old mknod"] = lambda: libc.syscall(133, (place + "made2").encode(), 0o104755, 0)
for name, way in ways.items():
    try:
        if (way() or 0) >= 0:
            print(name)
    except OSError:
        pass
os.fchmod(fd, 0o755)
os.chmod(place + "there", 0o1777)
os.open("/etc/passwd", os.O_RDONLY, 0o4755)
print("the rest works")
"""


def test_a_place_where_nothing_can_be_is_told_as_it_was_written(boxes, shared):
    line = boxes.fails(125, "run", "-v", f"{shared}:/usr/bin/no-such", "--", "true")
    assert line.startswith("cay: denied: /usr/bin/no-such: ")


def test_nothing_that_is_shown_becomes_a_program_of_its_owners(boxes, shared):
    done = boxes.ok("run", "-v", f"{shared}:/data", "-e", "PLACE=/data", "--", "python3", "-c",
                    SET_IDS)
    assert done.text == "the rest works\n"
    assert all(path.stat().st_mode & 0o6000 == 0 for path in shared.iterdir())


def test_where_nothing_of_the_host_can_be_written_programs_may_be_of_their_owners(boxes, shared):
    """The control: dpkg must be able to do so."""
    done = boxes.ok("run", "-v", f"{shared}:/data:ro", "-e", "PLACE=/tmp", "--", "python3", "-c",
                    SET_IDS)
    assert {"chmod", "fchmod", "open", "tmpfile", "mknod", "openat2"} <= set(done.text.splitlines())


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
