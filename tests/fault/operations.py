# SPDX-License-Identifier: Apache-2.0
"""The operations that are made to fail, and what each may leave behind."""

import io
import json
import tarfile
from dataclasses import dataclass, field

TEXT = b"".join(b"line %d of the old text\n" % number for number in range(200))
LONGER = "new " * 2000
SHORTER = "new"

FILES = {
    "data/a.txt": TEXT,
    "data/b.txt": b"alpha\nbeta\nalpha\n",
    "data/link.txt": "b.txt",
    "data/dir/c.txt": b"charlie\n",
    "data/dir/deep/d.txt": b"delta\n",
    "data/dir/deep/e.txt": b"echo\n",
    "data/edits.json": json.dumps([{"old": "line 7 ", "new": "line seven "},
                                   {"old": "old", "new": "new", "all": True}]).encode(),
    "other/o.txt": b"other\n",
}


def archive():
    """Directories, a link, a new file, and one that replaces data/b.txt."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in (("sub/deep/f.txt", b"foxtrot\n" * 1000), ("b.txt", b"bravo\n")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for name, kind, target in (("empty", tarfile.DIRTYPE, ""),
                                   ("to-b", tarfile.SYMTYPE, "b.txt"),
                                   ("hard", tarfile.LNKTYPE, "b.txt")):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = kind, target, 0o700
            tar.addfile(entry)
    return out.getvalue()


@dataclass(frozen=True)
class Operation:
    words: tuple
    stdin: bytes = b""
    # Made of parts: each of them is there whole or not at all.
    parts: bool = False
    # States of a file beside the old and the new one, and the only call whose failure
    # leads there: {"data/a.txt": (content, "ftruncate")}
    torn: dict = field(default_factory=dict)
    # After an error that comes at these calls the new state may be there.
    late: tuple = ()
    # When it is killed before one of these calls both the old and the new names may be there.
    both: tuple = ()
    # Calls that fail in every run, as strace words them, and whether a draft has a name then.
    always: tuple = ()
    named_draft: bool = False


def operation(*words, **more):
    return Operation(words, **more)


NO_TMPFILE = "the file system has no nameless files"

OPERATIONS = {
    "replace": operation("write", "data/a.txt", "--content", LONGER),
    "replace from stdin": operation("write", "data/a.txt", stdin=LONGER.encode()),
    "replace through a link": operation("write", "data/link.txt", "--content", SHORTER),
    "replace durably": operation("write", "data/a.txt", "--durable", "--content", SHORTER,
                                 late=("openat", "fsync")),
    "replace without O_TMPFILE": operation("write", "data/a.txt", "--content", LONGER,
                                           always=(NO_TMPFILE,), named_draft=True),
    "new file": operation("write", "data/new.txt", "--new", "--content", LONGER),
    "new file and parents": operation("write", "data/x/y/z.txt", "--content", LONGER),
    "new file without O_TMPFILE": operation("write", "data/x/y.txt", "--content", LONGER,
                                            always=(NO_TMPFILE,), named_draft=True),
    "in place, longer": operation("write", "data/a.txt", "--in-place", "--content", LONGER,
                                  late=("ftruncate",)),
    "in place, shorter": operation(
        "write", "data/a.txt", "--in-place", "--content", SHORTER,
        torn={"data/a.txt": (SHORTER.encode() + TEXT[len(SHORTER):], "ftruncate")}),
    "append": operation("append", "data/a.txt", "--content", LONGER),
    "append to nothing": operation("append", "data/x/new.txt", "--content", LONGER),
    "edit": operation("edit", "data/a.txt", "--old", "line 7 ", "--new", "line seven "),
    "edits": operation("edit", "data/a.txt", "--edits", "top/data/edits.json"),
    "edit in place": operation("edit", "data/b.txt", "--old", "beta", "--new", "gamma delta",
                               "--in-place", late=("ftruncate",)),
    "delete": operation("delete", "data/a.txt"),
    "delete a link": operation("delete", "data/link.txt"),
    "delete a directory": operation("delete", "-r", "data/dir", parts=True),
    "move": operation("move", "data/a.txt", "data/moved.txt"),
    "move into a new directory": operation("move", "data/a.txt", "other/x/y/moved.txt"),
    "move a directory": operation("move", "-r", "data/dir", "data/moved"),
    "move to another file system": operation(
        "move", "data/a.txt", "other/x/moved.txt", always=("renameat2:error=EXDEV:when=1",),
        both=("close", "newfstatat", "fstat", "unlinkat")),
    "copy": operation("copy", "data/a.txt", "other/x/copied.txt"),
    "copy to another file system": operation(
        "copy", "data/a.txt", "other/copied.txt",
        always=("copy_file_range:error=EXDEV:when=1",)),
    "mkdir": operation("mkdir", "data/x/y/z"),
    "import": operation("import", "data", stdin=archive(), parts=True),
    "import into a new directory": operation("import", "other/new", stdin=archive(),
                                             parts=True),
}

READINGS = {
    "read": operation("read", "data/a.txt"),
    "stat": operation("stat", "data/a.txt"),
    "list": operation("list", "--all", "--long"),
    "grep": operation("grep", "a$"),
    "export": operation("export", "data"),
}
