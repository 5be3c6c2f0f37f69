# SPDX-License-Identifier: Apache-2.0
"""A disk that is full: the command says so, nothing has changed, and what could not be done
works once there is room.

other/ is a small tmpfs, data/ an ordinary directory.  A file of our own fills the disk but
for some pages, so that content does not fit at all, or only in part.
"""

import io
import os
import subprocess
import tarfile

import pytest

from world import World, check_error, lacking

DISK = 4 << 20
INODES = 64
CONTENT = b"0123456789abcde\n" * (256 << 6)  # 256 KiB
OLD = b"the old text\n" * 1000
FILLER = "other/filler"

FILES = {
    "data/large.txt": CONTENT,
    "other/a.txt": OLD,
    "other/dir/b.txt": b"bravo\n",
}


def archive(count):
    """A file that replaces other/a.txt, and many more."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ["a.txt", *(f"sub/{number}.txt" for number in range(count))]:
            entry = tarfile.TarInfo(name)
            entry.size = len(CONTENT)
            tar.addfile(entry, io.BytesIO(CONTENT))
    return out.getvalue()


class Disk:
    """The world with its small disk."""

    def __init__(self, base):
        self.base = base
        self.other = base / "top" / "other"
        self.other.mkdir(parents=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o",
                               f"size={DISK},nr_inodes={INODES},mode=755", "tmpfs", self.other],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lacking(f"a tmpfs cannot be mounted: {done.stderr}")
        self.world = World(base, FILES)

    def umount(self):
        subprocess.run(["umount", self.other], check=True)

    def fill(self, left):
        """Fills the disk but for `left` bytes."""
        room = os.statvfs(self.other)
        with (self.world.top / FILLER).open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, room.f_bavail * room.f_frsize - left)

    def fill_names(self):
        """Takes the inodes."""
        (self.world.top / FILLER).mkdir()
        for number in range(os.statvfs(self.other).f_ffree):
            (self.world.top / FILLER / str(number)).touch()

    def free(self):
        filler = self.world.top / FILLER
        if filler.is_dir():
            for file in filler.iterdir():
                file.unlink()
            filler.rmdir()
        else:
            filler.unlink()

    def room(self):
        state = os.statvfs(self.other)
        return state.f_bfree, state.f_ffree

    def tree(self):
        return {path: state for path, state in self.world.tree().items()
                if not path.startswith(FILLER)}


@pytest.fixture
def disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = Disk(tmp_path)
    yield disk
    disk.umount()


def check_full(disk, fill, words, stdin=b""):
    """The operation fails on a disk so filled, changing nothing, and then works."""
    done = disk.world.run(words, stdin)
    assert (done.returncode, done.stderr) == (0, b""), done
    new = disk.tree()
    disk.world.reset()
    old = disk.tree()
    assert new != old
    fill()
    room = disk.room()
    done = disk.world.run(words, stdin)
    assert check_error(done) == "no-space", done
    assert disk.tree() == old
    assert disk.room() == room, "something is left that has no name"
    disk.free()
    done = disk.world.run(words, stdin)
    assert (done.returncode, done.stderr) == (0, b""), done
    assert disk.tree() == new


WRITES = {
    "replace": (("write", "other/a.txt"), CONTENT),
    "replace durably": (("write", "other/a.txt", "--durable"), CONTENT),
    "new file": (("write", "other/new.txt", "--new"), CONTENT),
    "new file and parents": (("write", "other/x/y/z.txt"), CONTENT),
    "in place": (("write", "other/a.txt", "--in-place"), CONTENT),
    "append": (("append", "other/a.txt"), CONTENT),
    "edit": (("edit", "other/a.txt", "--all", "--old", "old", "--new", "0123456789" * 40), b""),
    "edit in place": (("edit", "other/a.txt", "--in-place", "--all", "--old", "old", "--new",
                       "0123456789" * 40), b""),
    "copy": (("copy", "data/large.txt", "other/x/large.txt"), b""),
    "move to another file system": (("move", "data/large.txt", "other/x/large.txt"), b""),
}


@pytest.mark.parametrize("left", [0, 8 << 10, 64 << 10])
@pytest.mark.parametrize("operation", WRITES.values(), ids=WRITES.keys())
def test_what_does_not_fit_on_a_full_disk_changes_nothing(disk, operation, left):
    check_full(disk, lambda: disk.fill(left), *operation)


def test_holes_in_a_file_are_not_half_filled_on_a_full_disk(disk):
    sparse = disk.world.top / "other/sparse.txt"
    sparse.touch()
    os.truncate(sparse, len(CONTENT))
    disk.fill(64 << 10)
    before = disk.tree()
    done = disk.world.run(("write", "other/sparse.txt", "--in-place"), CONTENT)
    assert check_error(done) == "no-space", done
    assert disk.tree() == before
    disk.free()
    done = disk.world.run(("write", "other/sparse.txt", "--in-place"), CONTENT)
    assert (done.returncode, sparse.read_bytes()) == (0, CONTENT)


NAMES = {
    "replace": (("write", "other/a.txt", "--content", "new"), b""),
    "new file and parents": (("write", "other/x/y/z.txt", "--content", "new"), b""),
    "edit": (("edit", "other/dir/b.txt", "--old", "bravo", "--new", "new"), b""),
    "copy": (("copy", "other/a.txt", "other/x.txt"), b""),
    "move into a new directory": (("move", "other/a.txt", "other/x/a.txt"), b""),
    "move to another file system": (("move", "data/large.txt", "other/large.txt"), b""),
    "mkdir": (("mkdir", "other/x/y"), b""),
}


@pytest.mark.parametrize("operation", NAMES.values(), ids=NAMES.keys())
def test_what_needs_a_new_inode_changes_nothing_when_there_is_none(disk, operation):
    check_full(disk, disk.fill_names, *operation)


@pytest.mark.parametrize("words", [("delete", "other/a.txt"), ("delete", "-r", "other/dir"),
                                   ("move", "other/a.txt", "other/dir/moved.txt")],
                         ids=lambda words: words[0])
def test_what_needs_no_room_works_on_a_full_disk(disk, words):
    disk.fill(0)
    done = disk.world.run(words)
    assert (done.returncode, done.stderr) == (0, b""), done


def test_an_archive_larger_than_the_disk_leaves_whole_files_and_says_so(disk):
    words, stdin = ("import", "other"), archive(10)
    old = disk.tree()
    disk.fill(1 << 20)
    done = disk.world.run(words, stdin)
    assert check_error(done) == "no-space", done
    unpacked = disk.tree()
    assert {path: unpacked[path] for path in old if path != "other/a.txt"} == \
        {path: old[path] for path in old if path != "other/a.txt"}
    added = unpacked.keys() - old.keys()
    files = [path for path in (*added, "other/a.txt") if unpacked[path][1] is not None]
    assert all(unpacked[path][1] == CONTENT for path in files), files
    assert all(path.startswith("other/sub") for path in added), added
    told = int(done.stderr.split(b"cay: note: ")[1].split()[0])
    assert told == len(files) > 1
    disk.free()
    done = disk.world.run(words, stdin)
    assert (done.returncode, done.stderr) == (0, b""), done
    assert len(disk.tree()) == len(old) + 11
