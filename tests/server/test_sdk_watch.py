# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for Python, unmodified: what happens in directories is told."""

import itertools

import pytest
from e2b import (
    FileNotFoundException,
    FilesystemEventType,
    InvalidArgumentException,
    SandboxException,
)
from serving import wait_until

CREATE, WRITE, REMOVE, RENAME, CHMOD = (
    FilesystemEventType.CREATE, FilesystemEventType.WRITE, FilesystemEventType.REMOVE,
    FilesystemEventType.RENAME, FilesystemEventType.CHMOD)
numbers = itertools.count()


class Watch:
    """A directory of its own, watched."""

    def __init__(self, sandbox, **options):
        self.sandbox, self.folder = sandbox, f"/home/user/watched{next(numbers)}"
        sandbox.files.make_dir(self.folder)
        sandbox.commands.run(f"cd {self.folder} && echo 1 > old && mkdir below")
        self.handle = sandbox.files.watch_dir(self.folder, **options)
        self.events = []

    def run(self, command):
        self.sandbox.commands.run(command, cwd=self.folder)

    def told(self):
        self.events += self.handle.get_new_events()
        return {(event.type, event.name) for event in self.events}

    def wait_for(self, *expected):
        wait_until(lambda: set(expected) <= self.told(),
                   lambda: f"{set(expected) - self.told()} is not in {self.told()}")
        return [event for event in self.events if (event.type, event.name) in expected]


@pytest.mark.parametrize("command, expected", [
    ("touch new", [(CREATE, "new")]),
    ("echo 2 >> old", [(WRITE, "old")]),
    ("chmod 700 old", [(CHMOD, "old")]),
    ("rm old", [(REMOVE, "old")]),
    ("mv old other", [(RENAME, "old"), (CREATE, "other")]),
    ("mkdir deeper", [(CREATE, "deeper")]),
    ("ln -s /etc link", [(CREATE, "link")]),
    ("touch 'with space' 'ü😀' \"it's\"", [(CREATE, "with space"), (CREATE, "ü😀"),
                                         (CREATE, "it's")]),
])
def test_a_change_is_told(shared, command, expected):
    watch = Watch(shared)
    watch.run(command)
    watch.wait_for(*expected)
    watch.handle.stop()


def test_only_the_directory_itself_is_watched_unless_told_otherwise(shared):
    watch = Watch(shared)
    watch.run("touch below/hidden; touch seen")
    watch.wait_for((CREATE, "seen"))
    assert all("hidden" not in name for _, name in watch.told())


def test_directories_below_are_watched_if_asked_also_new_ones(shared):
    watch = Watch(shared, recursive=True)
    watch.run("touch below/inner")
    watch.wait_for((CREATE, "below/inner"))
    watch.run("mkdir below/new")
    watch.wait_for((CREATE, "below/new"))
    watch.run("echo 1 > below/new/file; mkdir -p below/new/a/b")
    watch.wait_for((CREATE, "below/new/file"), (WRITE, "below/new/file"))

    def sees_depth():
        watch.run("touch below/new/a/b/c; rm below/new/a/b/c")
        return (CREATE, "below/new/a/b/c") in watch.told()

    wait_until(sees_depth, "what is made quickly below is not watched")


def test_what_changed_is_described_if_asked(shared):
    watch = Watch(shared, include_entry=True)
    watch.run("printf 12345 > new; chmod 640 new")
    for event in watch.wait_for((CHMOD, "new")):
        assert event.entry.size == 5
        assert event.entry.mode == 0o640
        assert event.entry.path == f"{watch.folder}/new"
    watch.run("rm old")
    for event in watch.wait_for((REMOVE, "old")):
        assert event.entry is None


def test_what_cannot_be_watched_is_refused(shared):
    with pytest.raises(FileNotFoundException):
        shared.files.watch_dir("/home/user/nowhere")
    shared.files.write("/home/user/file", "x")
    with pytest.raises(InvalidArgumentException):
        shared.files.watch_dir("/home/user/file")


def test_a_watch_that_is_stopped_tells_no_more(shared):
    watch = Watch(shared)
    watch.handle.stop()
    with pytest.raises(SandboxException):
        watch.handle.get_new_events()


def test_a_flood_of_changes_does_not_break_a_watch(shared):
    watch = Watch(shared)
    watch.run("i=0; while [ $i -lt 3000 ]; do : > f$i; i=$((i+1)); done")
    watch.wait_for((CREATE, "f2999"))
    created = [event.name for event in watch.events if event.type == CREATE]
    assert created == [f"f{number}" for number in range(3000)]


def test_what_is_attached_to_a_file_does_not_break_a_watch_or_a_list(sandbox):
    watch = Watch(sandbox, include_entry=True)
    watch.run("python3 -c \"import os\nfor n in range(20): "
              "os.setxattr('old', f'user.e2b.n{n}', b'x' * 3000)\"")
    watch.wait_for((CHMOD, "old"))
    assert {entry.name for entry in sandbox.files.list(watch.folder)} == {"old", "below"}
    assert len(sandbox.files.get_info(f"{watch.folder}/old").metadata) == 1


DEPTH = 1000
# Goes down as far as there are directories, or makes them; and writes a file there.
DOWN = f"""
import os, sys
for name in ["deep", *["d"] * {DEPTH}]:
    if not os.path.exists(name):
        os.mkdir(name)
    os.chdir(name)
open(sys.argv[1], "w")
"""


def test_a_tree_may_be_deeper_than_most(shared):
    """Other requests go on, whether the tree exists before the watch or is moved into it."""
    shared.files.write("down.py", DOWN)
    shared.commands.run("mkdir trees come && cd trees && python3 ../down.py old")
    other = shared.commands.run("cat", background=True, stdin=True)
    bottom = "/".join(["deep", *["d"] * DEPTH])

    def look(folder, found, command):
        watch, told = shared.files.watch_dir(folder, recursive=True), set()
        shared.commands.run(command)
        wait_until(lambda: told.update(event.name for event in watch.get_new_events())
                   or found in told, lambda: f"{found[-20:]} is not among {len(told)}")
        watch.stop()

    look("trees", f"{bottom}/new", "cd trees && python3 ../down.py new")
    look("come", f"trees/{bottom}/new", "mv trees come")
    shared.commands.send_stdin(other.pid, "still here\n")
    assert next(iter(other))[0] == "still here\n"
    assert other.kill() is True


MANY = 8192
MORE = f"mkdir $(seq -f d%.0f {MANY})"


@pytest.mark.long
def test_more_directories_than_can_be_watched_are_not_watched_in_part(sandbox):
    """The client gets an error, from the request or when the directories are created later."""
    sandbox.commands.run(f"mkdir all none && cd all && {MORE}")
    with pytest.raises(SandboxException, match=f"at most {MANY} watched directories"):
        sandbox.files.watch_dir("all", recursive=True)
    assert sandbox.files.watch_dir("all").get_new_events() == []

    watch = sandbox.files.watch_dir("none", recursive=True)
    sandbox.commands.run("mv all none")

    def is_told():
        try:
            watch.get_new_events()
        except SandboxException as error:
            return f"at most {MANY} watched directories" in str(error)
        return False

    wait_until(is_told, "no error is reported")
    wait_until(lambda: not look(watch), "it never ends")
    sandbox.commands.run("touch none/new")
    assert {event.name for event in watch.get_new_events()} == {"new"}


def look(watch):
    try:
        return watch.get_new_events()
    except SandboxException as error:  # there was more than it remembers
        return [error]


def test_equal_changes_in_a_row_are_all_told(sandbox):
    """The kernel merges an event with the one before it if both are equal and unread: not
    those of files that are opened and closed between them (issue 15, section 3)."""
    sandbox.files.write("/tmp/equal/file", "x")
    watcher = sandbox.files.watch_dir("/tmp/equal")
    sandbox.commands.run("cd /tmp/equal && for i in $(seq 200); do echo $i >> file; done")
    events = watcher.get_new_events()
    assert [event.type.name for event in events] == ["WRITE"] * 200
    watcher.stop()
