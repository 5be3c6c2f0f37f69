#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""interpreter.py [--quick]: code in contexts from Python, beside ipykernel on the bare machine.

Prints a JSON object a line, as bench-code does.  Ours, the floor and ipykernel take turns.  The
interpreters are the same: /usr/bin/python3 in the sandbox and as the floor; ipykernel runs in
this program's own, as pip installs it.
"""

import json
import subprocess
import sys
import time

from jupyter_client.manager import KernelManager

import cay

QUICK = "--quick" in sys.argv
PYTHON = "/usr/bin/python3"
LOOP = "import os\nwhile code := os.read(0, 4096): exec(code); os.write(1, b'.')"


def percentiles(seconds):
    ordered = sorted(seconds)
    ranks = (-(-len(ordered) * percent // 100) for percent in (50, 95, 99))
    return [round(ordered[max(rank, 1) - 1] * 1e6, 1) for rank in ranks]


def compare(what, floor_is, floor, ours, theirs, rounds, most_us=None):
    """Each is a function without arguments; they take turns."""
    took = {floor: [], ours: [], theirs: []}
    for _ in range(rounds + 1):
        for entrant, times in took.items():
            start = time.perf_counter()
            entrant()
            times.append(time.perf_counter() - start)
    floor_us = percentiles(took[floor][1:])
    for op, entrant, most in ((what, ours, most_us), (f"*{what}, ipykernel*", theirs, None)):
        times = percentiles(took[entrant][1:])
        print(json.dumps({"part": "code from python", "op": op, "bytes": 0, "ours": times,
                          "floor": floor_us, "floor_is": floor_is, "rounds": rounds,
                          "ratio": round(times[0] / floor_us[0], 3),
                          **({"most_us": most} if most else {})}), flush=True)


def run_bare():
    subprocess.run([PYTHON, "-c", "print(1)"], check=True, stdout=subprocess.DEVNULL)


def run_in_sandbox():
    with cay.Sandbox.create(ephemeral=True) as sandbox:
        if sandbox.execute_code("print(1)").stdout != "1\n":
            raise SystemExit("bench: the code printed something else")


def start_kernel():
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    return manager, client


def call_kernel(client, code):
    reply = client.execute_interactive(code, timeout=60, output_hook=lambda message: None)
    if reply["content"]["status"] != "ok":
        raise SystemExit("bench: ipykernel failed")


def run_kernel():
    manager, client = start_kernel()
    call_kernel(client, "print(1)")
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def compare_calls(rounds):
    manager, client = start_kernel()
    with (cay.Sandbox.create(ephemeral=True) as sandbox,
          subprocess.Popen([PYTHON, "-c", LOOP], bufsize=0, stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE) as bare):

        def call_bare():
            bare.stdin.write(b"x = 1\n")
            bare.stdout.read(1)

        compare("a call in a live context", "a bare loop: read, evaluate, write", call_bare,
                lambda: sandbox.execute_code("x = 1"), lambda: call_kernel(client, "x = 1"),
                rounds, 300)
        bare.stdin.close()
    client.stop_channels()
    manager.shutdown_kernel(now=True)


compare("create, first result, destroy", "python3 -c 'print(1)'", run_bare, run_in_sandbox,
        run_kernel, 2 if QUICK else 15)
compare_calls(20 if QUICK else 500)
