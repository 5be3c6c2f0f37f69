# SPDX-License-Identifier: Apache-2.0
"""Every system call of every operation fails once, and every operation is killed before
every one of its system calls.

strace does both to the real command.  A run without faults tells which calls the operation
makes once it has read its policy; then each of them is made to fail with each errno, and a
run that ends well must have done all its work, one that fails must have changed nothing.
A run that is killed leaves each file as it was or as it is to be.
"""

import os
import re
import shutil
import signal
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import operations
from operations import OPERATIONS, READINGS
from world import World, check_error, is_directory, lacking

# Calls whose failure is not about files, or that strace would have to fail for good.
HARMLESS = {"brk", "mmap", "munmap", "mprotect", "mremap", "madvise", "close", "exit",
            "exit_group", "futex", "getpid", "gettid", "getppid", "rt_sigaction",
            "rt_sigprocmask", "prlimit64"}
MAKES_DESCRIPTOR = {"openat", "openat2", "fcntl", "socketpair", "pidfd_open"}
TEMPORARY = re.compile(r"\.cay-[0-9a-f]{16}")


def strace(*words):
    return ["strace", "-f", "-qq", *words]


@pytest.fixture(scope="module", autouse=True)
def needs_strace():
    if not shutil.which("strace"):
        lacking("strace is not installed")
    done = subprocess.run(strace("-e", "inject=exit_group:signal=KILL", "true"),
                          capture_output=True, check=False)
    if done.returncode != -signal.SIGKILL:
        lacking(f"strace cannot tamper with a process: {done.stderr.decode()}")


class Calls:
    """The system calls of one operation, as a run without faults makes them.

    self.points are those after the policy has been read: (call, its number among the calls
    of that name), which is how strace names one.  self.elsewhere are those among them that
    another process makes.
    """

    def __init__(self, world, operation):
        log = world.base / "log"
        self.always = [rule for rule in operation.always if rule != operations.NO_TMPFILE]
        if operations.NO_TMPFILE in operation.always:
            self.record(world, operation, log)
            self.always.append(f"openat:error=EOPNOTSUPP:when={self.tmpfile}")
        world.reset()
        self.old = world.tree()
        self.done = self.record(world, operation, log)
        assert self.done.returncode == 0, self.done
        self.new = world.tree()
        fixed = {rule.split(":")[0] for rule in self.always}
        self.points = [point for point in dict.fromkeys(self.points)
                       if point[0] not in fixed]

    def record(self, world, operation, log):
        done = world.run(operation.words, operation.stdin,
                         strace("-o", str(log), *rules(self.always)))
        self.points, self.elsewhere, self.tmpfile = [], set(), None
        numbers, has_begun, started = {}, False, None
        for line in log.read_text(errors="replace").splitlines():
            called = re.match(r"(\d+) +(\w+)\((.*)", line)
            if not called:
                continue
            pid, name, rest = called.groups()
            started = started or pid
            numbers.setdefault(pid, Counter())[name] += 1
            number = numbers[pid][name]
            has_begun = has_begun or (name == "openat" and str(world.config) in rest)
            if "O_TMPFILE" in rest:
                self.tmpfile = number
            # The same number in another process must not mean a call at the very start.
            if has_begun and (pid == started or numbers[started][name] < number):
                self.points.append((name, number))
                if pid != started:
                    self.elsewhere.add((name, number))
        return done


def rules(faults):
    return [word for fault in faults for word in ("-e", f"inject={fault}")]


class Crew:
    """Runs a function over many points, each worker in a world of its own."""

    def __init__(self, base):
        self.base = base
        self.local = threading.local()

    def world(self):
        if not hasattr(self.local, "world"):
            place = self.base / str(threading.get_ident())
            place.mkdir()
            self.local.world = World(place, operations.FILES)
        self.local.world.reset()
        return self.local.world

    def map(self, function, points):
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda point: function(self.world(), point), points))


@pytest.fixture
def crew(tmp_path):
    return Crew(tmp_path)


def named(table):
    return pytest.mark.parametrize("operation", table.values(), ids=table.keys())


def differences(tree, other):
    return {path: (tree.get(path), other.get(path)) for path in tree.keys() | other.keys()
            if tree.get(path) != other.get(path)}


def check_tree(tree, calls, operation, fault, allowed):
    """Every file is one of the old or the new ones, whole."""
    for path, state in tree.items():
        torn, call = operation.torn.get(path, (b"", ""))
        if state[1] == torn and fault.startswith(f"{call}:"):
            return
        if state not in (calls.old.get(path), calls.new.get(path)):
            raise AssertionError(f"{fault}: {path} is neither old nor new: {state}")
    if not operation.parts and tree not in allowed:
        raise AssertionError(f"{fault}: changed: {differences(tree, calls.old)}")


def errors_of(call):
    return ("EIO", "ENOSPC", "EMFILE") if call in MAKES_DESCRIPTOR else ("EIO", "ENOSPC")


@named(OPERATIONS | READINGS)
def test_a_failing_system_call_leaves_the_old_or_the_new(crew, operation):
    calls = Calls(crew.world(), operation)

    def fail(world, point):
        call, number, error = point
        log = world.base / "log"
        fault = f"{call}:error={error}:when={number}"
        done = world.run(operation.words, operation.stdin,
                         strace("-o", str(log), *rules([*calls.always, fault])))
        # How two processes take turns is not the same in every run.
        assert "(INJECTED)" in log.read_text(errors="replace") or calls.elsewhere, \
            f"{fault} did not happen"
        tree = world.tree()
        if done.returncode == 0:
            if done.stdout != calls.done.stdout or tree != calls.new:
                raise AssertionError(f"{fault}: not all is done: {done.stdout[:200]} "
                                     f"{differences(tree, calls.new)}")
            return
        # A write that fails in a child fails in the parent too, where it would say so.
        if done.stderr or call != "write" or not calls.elsewhere:
            check_error(done)
        allowed = [calls.old, calls.new] if call in operation.late else [calls.old]
        check_tree(tree, calls, operation, fault, allowed)

    points = [(*point, error) for point in calls.points for error in errors_of(point[0])
              if point[0] not in HARMLESS]
    assert points
    crew.map(fail, points)


def split_temporary(tree):
    """The tree without the names of drafts, and these."""
    names = {path for path in tree if TEMPORARY.fullmatch(os.path.basename(path))}
    return {path: tree[path] for path in tree.keys() - names}, names


@named(OPERATIONS)
def test_a_kill_at_any_system_call_leaves_the_old_or_the_new(crew, operation, capsys):
    calls = Calls(crew.world(), operation)
    changed = {path for path in calls.old.keys() | calls.new.keys()
               if calls.old.get(path) != calls.new.get(path)}
    both = {**calls.old, **calls.new}
    made = {path for path in calls.new.keys() - calls.old.keys()
            if is_directory(calls.new[path])}
    followed = []

    def without_made(tree):
        """Directories made on the way stay, for there is nobody to take them away."""
        return {path: state for path, state in tree.items() if path not in made}

    def kill(world, point):
        call, number = point
        fault = f"{call}:signal=KILL:when={number}"
        done = world.run(operation.words, operation.stdin,
                         strace("-o", "/dev/null", *rules([*calls.always, fault])))
        if point in calls.elsewhere and done.returncode > 0:
            assert check_error(done) == "killed"
        elif done.returncode != 0 or not calls.elsewhere:
            assert done.returncode == -signal.SIGKILL, f"{fault} did not happen: {done}"
        tree, temporary = split_temporary(world.tree())
        if temporary:
            assert len(temporary) == 1, f"{fault}: {temporary}"
            assert operation.named_draft or call in ("renameat", "renameat2"), \
                f"{fault}: {temporary} is left"
        files = without_made(tree)
        allowed = [calls.old, without_made(calls.new)]
        if call in operation.both:
            allowed.append(without_made(both))
        check_tree(files, calls, operation, fault, allowed)
        follow(world, fault)
        return len(temporary)

    def follow(world, fault):
        """What comes next works: the same again if nothing had been done, else another."""
        tree, temporary = split_temporary(world.tree())
        if (tree, len(temporary)) in followed:
            return
        followed.append((tree, len(temporary)))
        if all(tree.get(path) == calls.old.get(path) for path in changed):
            done = world.run(operation.words, operation.stdin,
                             strace("-o", "/dev/null", *rules(calls.always)))
            assert (done.returncode, done.stderr) == (0, b""), f"after {fault}: {done}"
            assert split_temporary(world.tree()) == (calls.new, temporary)
        else:
            done = world.run(("write", "data/next.txt", "--content", "next"))
            assert (done.returncode, done.stderr) == (0, b""), f"after {fault}: {done}"

    left = sum(crew.map(kill, calls.points))
    with capsys.disabled():
        if left:
            print(f" [{len(calls.points)} kills, {left} left a .cay- name]", end="")


def test_the_watch_sees_a_half_written_file(crew):
    """The negative control: what no operation may leave is noticed."""
    operation = OPERATIONS["replace"]
    calls = Calls(crew.world(), operation)
    mode, _, attributes = calls.old["data/a.txt"]
    half = {**calls.old, "data/a.txt": (mode, b"new new", attributes)}
    bare = {**calls.new, "data/a.txt": (mode, calls.new["data/a.txt"][1], {"user.x": b""})}
    stray = {**calls.old, "data/.cay-0123456789abcdef": calls.old["data/a.txt"]}
    for tree in half, bare, stray:
        with pytest.raises(AssertionError):
            check_tree(tree, calls, operation, "write", [calls.old, calls.new])
    check_tree(calls.new, calls, operation, "write", [calls.old, calls.new])
