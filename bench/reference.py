#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reference.py [--quick] DIRECTORY: cay.filesystem against pydantic-ai-filesystem-sandbox.

Both toolsets do the same things to files of the same content, in turns in one process, and
so does a floor: the fewest calls of the os module with the same outcome.  The first one
changes from round to round.  Each line printed is one contest as a JSON object, with
[p50, p95, p99] of each in microseconds; speed_up is theirs / ours, and floor_speed_up is
theirs / floor: where that is near 1 the kernel does the work for both.
"""

import asyncio
import gc
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import cay.filesystem
import pydantic_ai_filesystem_sandbox as reference

KIB, MIB = 1 << 10, 1 << 20
OVER_MIB = MIB + KIB  # the first that is over 1 MiB
SIZES = (KIB, 64 * KIB, OVER_MIB, 4 * MIB, 100 * MIB)
PAGE = 20_000
SIDES = ("ours", "theirs", "floor")
LINE = "000000000000 the quick brown fox jumps over the lazy dog\n"
MIXED_LINE = "000000000000 naïve café 日本語 and then 😀 once more\n"
QUICK = "--quick" in sys.argv
if QUICK:
    SIZES = SIZES[:-1]


def lines(size, line=LINE):
    """Numbered lines of `size` bytes in all."""
    count = size // len(line.encode())
    text = "".join(f"{number:012}{line[12:]}" for number in range(count))
    return text + "x" * (size - len(text.encode()))


def rounds_for(size):
    rounds = 1000 if size <= 64 * KIB else 60 if size <= 4 * MIB else 9
    return max(3, rounds // 10) if QUICK else rounds


def percentiles(samples):
    ordered = sorted(samples)
    ranks = (-(-len(ordered) * percent // 100) for percent in (50, 95, 99))
    return [round(ordered[max(rank, 1) - 1] / 1000, 2) for rank in ranks]


def contest(op, size, runs, before=None, rounds=None):
    """Times runs[side](n) in turns, n counting the rounds; before(side, n) is not timed."""
    rounds = rounds or rounds_for(size)
    warm_up = min(5, rounds // 3)
    took = {side: [] for side in runs}
    gc.collect()
    gc.disable()
    for n in range(warm_up + rounds):
        order = list(runs) if n % 2 else list(runs)[::-1]
        for side in order:
            if before:
                before(side, n)
            start = time.perf_counter_ns()
            runs[side](n)
            spent = time.perf_counter_ns() - start
            if n >= warm_up:
                took[side].append(spent)
    gc.enable()
    result = {side: percentiles(samples) for side, samples in took.items()}
    outcome = {"part": "python", "op": op, "bytes": size, "rounds": rounds, **result}
    outcome["speed_up"] = round(result["theirs"][0] / result["ours"][0], 2)
    if "floor" in result:
        outcome["floor_speed_up"] = round(result["theirs"][0] / result["floor"][0], 2)
    outcome["least_speed_up"] = 5 if size > MIB else 1
    print(json.dumps(outcome), flush=True)


def open_toolset(package, root):
    mount = package.Mount(
        host_path=root, mount_point="/", mode="rw", write_approval=False
    )
    return package.FileSystemToolset(
        package.Sandbox(package.SandboxConfig(mounts=[mount]))
    )


class Floor:
    """What the toolsets do, by a program that trusts its paths."""

    def __init__(self, root):
        self.root = str(root)

    def read(self, path, max_chars, offset=0):
        fd = os.open(self.root + path, os.O_RDONLY)
        try:
            return str(os.pread(fd, max_chars, offset), "utf-8")
        finally:
            os.close(fd)

    def write(self, path, content):
        data, temporary = content.encode(), self.root + "/.temporary"
        fd = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            put = 0
            while put < len(data):
                put += os.write(fd, memoryview(data)[put:])
        finally:
            os.close(fd)
        os.replace(temporary, self.root + path)

    def edit(self, path, old_text, new_text):
        size = os.stat(self.root + path).st_size
        self.write(path, self.read(path, size).replace(old_text, new_text))

    def copy(self, source, destination):
        with (
            open(self.root + source, "rb", 0) as from_,
            open(self.root + destination, "xb", 0) as to,
        ):
            left = os.fstat(from_.fileno()).st_size
            while left:
                left -= os.copy_file_range(from_.fileno(), to.fileno(), left)

    def move(self, source, destination):
        os.rename(self.root + source, self.root + destination)

    def delete(self, path):
        os.unlink(self.root + path)

    def list_files(self, path):
        found = []
        for folder, _, names in os.walk(self.root + path):
            inner = folder[len(self.root) :]
            found += [f"{inner}/{name}" for name in names]
        return sorted(found)


class Field:
    """A directory, and the three that work on it; each has files of its own."""

    def __init__(self, root):
        self.root = root
        self.sides = {
            "ours": open_toolset(cay.filesystem, root),
            "theirs": open_toolset(reference, root),
            "floor": Floor(root),
        }

    def make(self, name, text):
        """NAME-SIDE.txt for each, settled on the disk."""
        for side in SIDES:
            (self.root / f"{name}-{side}.txt").write_text(text, "utf-8", newline="")
        os.sync()
        time.sleep(0.2)

    def forget(self, name):
        for side in SIDES:
            (self.root / f"{name}-{side}.txt").unlink(missing_ok=True)

    def each(self, run):
        """run(toolset, side, n) of every side."""
        return {
            side: (lambda n, toolset=toolset, side=side: run(toolset, side, n))
            for side, toolset in self.sides.items()
        }


def reads(field, size, text, kind):
    field.make("read", text)
    chars = len(text)
    contest(
        f"read all, {kind}",
        size,
        field.each(lambda tools, side, n: tools.read(f"/read-{side}.txt", max(size, chars))),
    )
    if size > PAGE:
        contest(
            f"read one page, {kind}",
            size,
            field.each(
                lambda tools, side, n: tools.read(
                    f"/read-{side}.txt", PAGE, n * 7919 * PAGE % (chars - PAGE)
                )
                if kind == "ASCII" or side != "floor"
                else tools.read(f"/read-{side}.txt", PAGE)
            ),
        )
    field.forget("read")


def writes(field, size, text):
    def remove(side, n):
        (field.root / f"write-{side}.txt").unlink(missing_ok=True)

    write = field.each(lambda tools, side, n: tools.write(f"/write-{side}.txt", text))
    contest("write a new file", size, write, before=remove)
    contest("overwrite a file", size, write)
    field.forget("write")


def edits(field, size, text):
    middle = text.index("\n", len(text) // 2) + 1
    versions = (text[middle : middle + 12], "changed line")
    field.make("edit", text)
    contest(
        "edit one line",
        size,
        field.each(
            lambda tools, side, n: tools.edit(
                f"/edit-{side}.txt", versions[n % 2], versions[1 - n % 2]
            )
        ),
    )
    field.forget("edit")


def names(field, size, text):
    field.make("source", text)

    def remove(side, n):
        (field.root / f"target-{side}.txt").unlink(missing_ok=True)

    contest(
        "copy",
        size,
        field.each(
            lambda tools, side, n: tools.copy(f"/source-{side}.txt", f"/target-{side}.txt")
        ),
        before=remove,
    )
    for side in SIDES:
        remove(side, 0)
    ends = ("source", "target")
    contest(
        "move",
        size,
        field.each(
            lambda tools, side, n: tools.move(
                f"/{ends[n % 2]}-{side}.txt", f"/{ends[1 - n % 2]}-{side}.txt"
            )
        ),
    )

    def make(side, n):
        (field.root / f"target-{side}.txt").write_text(text, "utf-8")

    contest(
        "delete",
        size,
        field.each(lambda tools, side, n: tools.delete(f"/target-{side}.txt")),
        before=make,
    )
    field.forget("source")
    field.forget("target")


def tool_calls(field, size, text):
    """As an agent does it, arguments checked and all."""
    loop = asyncio.new_event_loop()
    field.make("tool", text)

    def call(name, **arguments):
        def run(tools, side, n):
            found = {"path": f"/tool-{side}.txt", **arguments}
            return loop.run_until_complete(tools.call_tool(name, found, None, None))

        runs = field.each(run)
        del runs["floor"]
        return runs

    contest("read_file as a tool", size, call("read_file"))
    contest("write_file as a tool", size, call("write_file", content=text))
    field.forget("tool")
    loop.close()


def lists(field, count):
    folder = field.root / "many"
    for number in range(count):
        path = folder / f"{number % 20:02}" / f"{number:06}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    contest(
        f"list_files, {count:,} files",
        0,
        field.each(lambda tools, side, n: tools.list_files("/many")),
        rounds=3 if QUICK else 20,
    )
    shutil.rmtree(folder)


def paging(field, size, text):
    """All of a file, page after page."""
    field.make("pages", text)

    def run(tools, side, n):
        for offset in range(0, size, PAGE):
            tools.read(f"/pages-{side}.txt", PAGE, offset)

    contest("page through", size, field.each(run), rounds=2 if QUICK else 5)
    field.forget("pages")


def main():
    with tempfile.TemporaryDirectory(prefix="cay-bench-", dir=sys.argv[-1]) as folder:
        field = Field(Path(folder))
        for size, kind in itertools.product(SIZES, ("ASCII", "mixed UTF-8")):
            reads(field, size, lines(size, LINE if kind == "ASCII" else MIXED_LINE), kind)
        paging(field, 4 * MIB, lines(4 * MIB))
        for measure in (writes, edits, names):
            for size in SIZES:
                measure(field, size, lines(size))
        for size in (KIB, OVER_MIB):
            tool_calls(field, size, lines(size))
        for count in (200, 2_000):
            lists(field, count)


main()
