#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""agents.py [--quick] BUILD: what agents wait for.

The first command of `cay try` on a repository of 100,000 files is compared with that of `cay run`, tools of
`cay mcp` with the functions of the library that do the same in the same sandbox (bench-mcp), and a diff with
walking the files that changed (bench-files). Both take turns.
Each line printed is one figure as a JSON object, with times in microseconds:

    {"part": "agents", "op", "bytes", "ours": [p50, p95, p99], "floor": the same, "ratio",
     "floor_is", "most_ratio"?}
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUILD = Path(sys.argv[-1]).resolve()
QUICK = "--quick" in sys.argv
FILES = 1000 if QUICK else 100_000
PER_FOLDER = 100


def percentiles(seconds):
    ordered = sorted(seconds)
    ranks = (-(-len(ordered) * percent // 100) for percent in (50, 95, 99))
    return [round(ordered[max(rank, 1) - 1] * 1e6, 1) for rank in ranks]


def timed(work):
    """In seconds; work may say itself when it was done, in nanoseconds since 1970."""
    began, begin = time.time_ns(), time.perf_counter()
    done = work()
    return (done - began) / 1e9 if isinstance(done, int) else time.perf_counter() - begin


def measure(op, size, ours, floor, count, floor_is, **targets):
    """In turns, so that both see the same machine; the first turn is not counted."""
    pairs = [(timed(ours), timed(floor)) for _ in range(1 + (5 if QUICK else count))][1:]
    mine, theirs = (percentiles(column) for column in zip(*pairs))
    print(json.dumps({"part": "agents", "op": op, "bytes": size, "ours": mine, "floor": theirs,
                      "ratio": mine[0] / theirs[0], "floor_is": floor_is, **targets}), flush=True)


def make_repository(top):
    for folder in range(FILES // PER_FOLDER):
        place = top / f"folder-{folder // 30}" / f"{folder}"
        place.mkdir(parents=True)
        for number in range(PER_FOLDER):
            (place / f"file-{number}.py").write_text(f"value = {number}\n")
    for words in (["init", "-q"], ["add", "."],
                  ["-c", "user.name=bench", "-c", "user.email=bench@example.com", "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=top, check=True)


def measure_try():
    with tempfile.TemporaryDirectory(prefix="cay-bench-", dir=BUILD) as directory:
        top = Path(directory, "repository")
        top.mkdir()
        make_repository(top)
        env = {**os.environ, "CAY_HOME": str(Path(directory, "state"))}

        def cay(*words):
            return subprocess.run([BUILD / "cay", *words], cwd=top, env=env, check=True, text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True).stdout

        def begin_command(which):
            return int(cay(which, "-q", "--", "date", "+%s%N"))

        try:
            measure(f"first command of cay try, {FILES:,} files", 0,
                    lambda: begin_command("try"), lambda: begin_command("run"), 40,
                    "that of cay run", most_ratio=2)
        finally:
            cay("discard", "--all")


def run_programs():
    """Those in C, which print such lines."""
    options = ["--quick"] if QUICK else []
    subprocess.run([BUILD / "bench" / "bench-mcp", *options, BUILD / "cay"], check=True, stdin=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="cay-bench-", dir=BUILD) as directory:
        done = subprocess.run([BUILD / "bench" / "bench-files", *options, directory, "diffs"], check=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        print(json.dumps({**json.loads(line), "part": "agents"}), flush=True)


run_programs()
measure_try()
