# SPDX-License-Identifier: Apache-2.0
"""Random operations on files, checkpoints, rollbacks and forks, against a model of them.

CAY_MODEL_SEED repeats a run, CAY_MODEL_SECONDS is the time of each test.
"""

import copy
import json
import os
import random
import time

import pytest

SECONDS = float(os.environ.get("CAY_MODEL_SECONDS", "8"))
TOP = "/w"

# Runs inside: operations from standard input, their errors and all files to standard output.
AGENT = r"""
import errno, json, os, stat, sys
def write(p, text):
    with open(p, "a") as f: f.write(text)
def swap(p, text):
    os.rmdir(p) if os.path.isdir(p) and not os.path.islink(p) else os.unlink(p)
    os.mkdir(p) if text is None else write(p, text)
KINDS = {"write": write, "mkdir": os.mkdir, "unlink": os.unlink, "rmdir": os.rmdir,
         "rename": os.rename, "link": lambda p, q: os.link(p, q, follow_symlinks=False),
         "symlink": os.symlink, "chmod": os.chmod, "swap": swap}
def show(p):
    s = os.lstat(p)
    if stat.S_ISLNK(s.st_mode): return ["link", 0o777, os.readlink(p)]
    if stat.S_ISDIR(s.st_mode): return ["directory", s.st_mode & 0o7777, ""]
    return ["file", s.st_mode & 0o7777, open(p).read()]
os.umask(0o022)
errors, tree = [], {}
for kind, *words in json.load(sys.stdin):
    try: KINDS[kind](*words); errors.append("")
    except OSError as e: errors.append(errno.errorcode[e.errno])
for d, ds, fs in os.walk("/w"):
    for name in ds + fs: tree[os.path.join(d, name)] = show(os.path.join(d, name))
print(json.dumps([errors, tree]))
"""


class Node:
    """A file, directory or link.  Overlayfs copies a sealed one for each name that changes."""

    def __init__(self, kind, mode, text=""):
        self.kind, self.mode, self.text = kind, mode, text
        self.is_sealed = False

    def shown(self):
        return [self.kind, self.mode, self.text]


class Model:
    """The files below TOP, by path; names of one file share a node."""

    def __init__(self):
        self.files = {TOP: Node("directory", 0o755)}

    def shown(self):
        return {path: node.shown() for path, node in self.files.items() if path != TOP}

    def seal(self):
        for node in self.files.values():
            node.is_sealed = True

    def copied(self):
        model = copy.deepcopy(self)
        model.seal()
        return model

    def change(self, path):
        """The node to change at this path: not the other names of a sealed file."""
        node = self.files[path]
        if node.is_sealed and node.kind != "directory":
            node = self.files[path] = Node(node.kind, node.mode, node.text)
        return node

    def below(self, path):
        return [name for name in self.files if name.startswith(path + "/")]

    def paths(self, *kinds):
        return sorted(p for p, node in self.files.items() if node.kind in kinds and p != TOP)

    # The operations: each changes the model and returns the error that the kernel reports.

    def write(self, path, text):
        if path not in self.files:
            self.files[path] = Node("file", 0o644)
        self.change(path).text += text
        return ""

    def mkdir(self, path):
        self.files[path] = Node("directory", 0o755)
        return ""

    def unlink(self, path):
        del self.files[path]
        return ""

    def rmdir(self, path):
        if self.below(path):
            return "ENOTEMPTY"
        return self.unlink(path)

    def rename(self, path, to):
        node = self.files[path]
        if to == path or to.startswith(path + "/"):
            return "" if to == path else "EINVAL"
        if node.kind == "directory":
            if node.is_sealed:  # redirects are disabled
                return "EXDEV"
            for name in self.below(path):
                self.files[to + name[len(path):]] = self.files.pop(name)
        elif self.files.get(to) is self.change(path):
            return ""  # two names of one file: nothing happens
        self.files[to] = self.files.pop(path)
        return ""

    def link(self, path, to):
        self.files[to] = self.change(path)
        return ""

    def symlink(self, target, path):
        self.files[path] = Node("link", 0o777, target)
        return ""

    def chmod(self, path, mode):
        self.change(path).mode = mode
        return ""

    def swap(self, path, text):
        if self.below(path):
            return "ENOTEMPTY"
        self.files[path] = Node("directory", 0o755) if text is None else Node("file", 0o644, text)
        return ""


class Walk:
    """A sandbox, its model, and the models of its checkpoints by number."""

    def __init__(self, boxes, seed, options):
        self.boxes, self.random, self.options = boxes, random.Random(seed), options
        self.box = boxes.create(*options)
        boxes.ok("exec", "-u", "root", self.box, "--", "mkdir", TOP)
        self.model, self.saved, self.count = Model(), {}, 0

    def name(self):
        return self.random.choice("abcdef")

    def free(self):
        """A path that does not exist, in a directory that does."""
        for _ in range(8):
            parent = self.random.choice([TOP, *self.model.paths("directory")])
            path = f"{parent}/{self.name()}"
            if path not in self.model.files and path.count("/") < 6:
                return path
        return None

    def operation(self):
        """A random operation that the files allow, or None."""
        pick, model = self.random.choice, self.model
        files, directories = model.paths("file"), model.paths("directory")
        every, free = model.paths("file", "directory", "link"), self.free()
        text = f"{self.random.random()}\n"
        kind = pick(["write"] * 3 + ["mkdir"] * 3 +
                    ["new", "unlink", "rmdir", "rename", "over", "link", "symlink", "chmod", "swap"])
        if kind == "new":
            return free and ["write", free, text]
        if kind == "mkdir":
            return free and ["mkdir", free]
        if kind == "symlink":
            return free and ["symlink", pick(["a", "/nowhere"]), free]
        if kind == "rename":
            return every and free and ["rename", pick(every), free]
        if kind == "over":  # an existing file is replaced
            return files and ["rename", pick(files), pick(files)]
        if kind == "link":
            return files and free and ["link", pick(files), free]
        if kind == "rmdir":
            return directories and ["rmdir", pick(directories)]
        if kind == "swap":
            return every and ["swap", pick(every), pick([None, text])]
        if kind == "chmod":
            return every and self.chmod(pick(every))
        names = model.paths("file", "link") if kind == "unlink" else files
        return names and [kind, pick(names), *([text] if kind == "write" else [])]

    def chmod(self, path):
        node = self.model.files[path]
        return node.kind != "link" and ["chmod", path, self.random.choice([0o700, 0o755, 0o775])]

    def change(self):
        operations, wanted = [], []
        for _ in range(self.random.randint(1, 12)):
            operation = self.operation()
            if operation:
                operations.append(operation)
                wanted.append(getattr(self.model, operation[0])(*operation[1:]))
        self.check(operations, wanted)

    def check(self, operations=(), wanted=()):
        done = self.boxes.ok("exec", "-i", "-u", "root", self.box, "--", "python3", "-c", AGENT,
                             stdin=json.dumps(operations).encode())
        errors, tree = json.loads(done.out)
        assert (errors, tree) == (list(wanted), self.model.shown()), operations

    def checkpoint(self):
        number = int(self.boxes.ok("checkpoint", self.box).text)
        self.saved[number] = self.model.copied()
        self.model.seal()

    def rollback(self):
        if not self.saved:
            return
        number = self.random.choice(sorted(self.saved))
        before = self.model.copied()
        undone = self.boxes.ok("rollback", "-o", "json", self.box, str(number)).json
        if undone.get("undone"):
            self.saved[undone["undone"]] = before
        self.model = copy.deepcopy(self.saved[number])

    def fork(self):
        """Continues with the fork, which has no checkpoints of its own."""
        numbers = [None, *sorted(self.saved)]
        number = self.random.choice(numbers)
        source = self.box if number is None else f"{self.box}:{number}"
        model = self.model.copied() if number is None else copy.deepcopy(self.saved[number])
        made = self.boxes.ok("fork", source).text.strip()
        self.boxes.made.append(made)
        self.check()
        self.boxes.ok("rm", self.box)
        self.box, self.model, self.saved = made, model, {}
        self.check()

    def diff(self):
        if not self.saved:
            return
        one, other = (self.random.choice(sorted(self.saved)) for _ in range(2))
        found = self.boxes.ok("diff", "--no-renames", "-o", "json", self.box, str(one), str(other)).json
        before, after = self.saved[one].shown(), self.saved[other].shown()
        wanted = {path[1:] for path in {*before, *after} if before.get(path) != after.get(path)}
        names = {change["path"] for change in found["changes"] if change["path"].startswith("w/")}
        assert names == wanted, (one, other)
        for change in found["changes"]:
            path = "/" + change["path"]
            if change["change"] in ("added", "deleted"):
                assert (path in before, path in after) == (
                    change["change"] == "deleted", change["change"] == "added"), change
            elif change["change"] == "type":
                assert before[path][0] != after[path][0], change

    def step(self):
        kinds = [self.change] * 6 + [self.checkpoint] * 3 + [self.rollback] * 2 + [self.diff] * 2
        if "disk" not in self.options:
            kinds.append(self.fork)
        act = self.random.choice(kinds)
        act()
        if act in (self.checkpoint, self.rollback):
            self.check()
        self.count += 1


@pytest.mark.parametrize("options", [
    pytest.param((), id="memory"),
    pytest.param(("--storage", "disk"), id="disk"),
    pytest.param(("--storage", "disk", "--disk", "64M"), id="limited"),
])
def test_random_changes_of_layers_are_those_of_a_model(boxes, options):
    if os.geteuid() != 0:
        pytest.skip("checkpoints need root")
    seed = int(os.environ.get("CAY_MODEL_SEED", random.randrange(1 << 32)))
    print(f"CAY_MODEL_SEED={seed}")
    walk = Walk(boxes, seed, options)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or walk.count < 10:
        walk.step()
    print(f"{walk.count} steps")
    if options:  # the files and the checkpoints are there after a start
        boxes.ok("kill", walk.box)
        boxes.ok("start", walk.box)
        walk.check()
        walk.rollback()
        walk.check()
    boxes.ok("rm", walk.box)
