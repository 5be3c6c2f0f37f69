#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""agents.py [--quick] BUILD: what agents wait for.

The first command of `cay try` on a repository of 100,000 files is compared with that of `cay run`, and
tools of `cay mcp` with the calls of the library that do the same in the same sandbox. Both take turns.
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

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(sys.argv[-1]).resolve()
os.environ["CAY_BIN"] = str(BUILD / "cay")
os.environ["CAY_LIBRARY"] = str(BUILD / "libcay.so")
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/cli", "python")]

from cay.sandbox import Sandbox  # noqa: E402
from mcp_client import Client  # noqa: E402

QUICK = "--quick" in sys.argv
FILES = 1000 if QUICK else 100_000
PER_FOLDER = 100
TEXT = "one line of text\n" * 256


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


def measure_tools():
    name = f"bench-{os.getpid()}"
    with Client("--name", name) as client:
        client.initialize()

        def call(tool, **arguments):
            result = client.request("tools/call", {"name": tool, "arguments": arguments})["result"]
            assert not result.get("isError"), result

        call("write_file", path="/tmp/text", content=TEXT)
        sandbox = Sandbox.open(name)
        measure("MCP read_file", len(TEXT), lambda: call("read_file", path="/tmp/text"),
                lambda: sandbox.files.read("/tmp/text"), 400, "cay_files_read() from Python")
        measure("MCP run_command", 0, lambda: call("run_command", command="true"),
                lambda: sandbox.exec(["/bin/sh", "-c", "true"]), 200, "exec from Python")


measure_tools()
measure_try()
