#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the installation of the wheel, and the first commands after it.

    install.py [--quick] WHEEL DIRECTORY

Each round makes an empty environment and installs the wheel there with pip, without a network:
DIRECTORY gets what the wheel requires.  The floor is a package of one line, installed in the same
way, and for the commands /bin/true.  Prints one result a line, in JSON."""

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

QUICK = "--quick" in sys.argv
ROUNDS = 1 if QUICK else 5
RUNTIME = Path("/run/cay")  # a file system of its own: bench/run
SIZE_MAX, INSTALL_MAX_US = 15 << 20, 5_000_000


def make_floor(directory):
    """A package of one line."""
    about = "Metadata-Version: 2.1\nName: cay-floor\nVersion: 1\n"
    files = {"cay_floor.py": "value = 1\n", "cay_floor-1.dist-info/METADATA": about,
             "cay_floor-1.dist-info/WHEEL":
                 "Wheel-Version: 1.0\nGenerator: cay\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{name},,\n" for name in (*files, "cay_floor-1.dist-info/RECORD"))
    with zipfile.ZipFile(directory / "cay_floor-1-py3-none-any.whl", "w") as archive:
        for name, text in {**files, "cay_floor-1.dist-info/RECORD": record}.items():
            archive.writestr(name, text)


def timed(*command):
    """Microseconds."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - begin) * 1e6


def install(environment, directory, *packages):
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    return timed("unshare", "--net", environment / "bin/pip", "install", "--quiet", "--no-index",
                 "--find-links", directory, "--no-cache-dir", *packages)


def clear(directory):
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def percentiles(values):
    values = sorted(values)
    return [round(values[min(len(values) - 1, int(len(values) * part))], 1)
            for part in (0.5, 0.95, 0.99)]


def report(name, ours, floor, floor_is, **more):
    ours, floor = percentiles(ours), percentiles(floor)
    print(json.dumps({"part": "install", "op": name, "bytes": 0, "ours": ours, "floor": floor,
                      "floor_is": floor_is, "rounds": ROUNDS,
                      "ratio": round(ours[0] / floor[0], 3), **more}), flush=True)


def main():
    wheel, directory = map(Path, sys.argv[-2:])
    os.environ.update(PIP_DISABLE_PIP_VERSION_CHECK="1", CAY_HOME=str(directory / "home"))
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PYTHONPATH"):
        os.environ.pop(name, None)
    index, environment = directory / "index", directory / "venv"
    index.mkdir()
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:",
                    "--dest", index, wheel], check=True, stdout=subprocess.DEVNULL)
    make_floor(index)

    whole, alone, floor, first, second, true = [], [], [], [], [], []
    for _ in range(ROUNDS):
        floor.append(install(environment, index, "cay-floor"))
        alone.append(install(environment, index, "--no-deps", "cay"))
        whole.append(install(environment, index, "cay"))
        clear(RUNTIME)
        command = [environment / "bin/cay", "run", "--", "true"]
        first.append(timed(*command))
        second.append(timed(*command))
        true.append(timed("/bin/true"))
    print(json.dumps({"part": "install", "op": "the wheel", "bytes": wheel.stat().st_size,
                      "most_bytes": SIZE_MAX}), flush=True)
    one_line = "pip install of a package of one line"
    report("pip install, with what it requires", whole, floor, one_line, most_us=INSTALL_MAX_US)
    report("pip install --no-deps", alone, floor, one_line)
    report("the first cay run -- true", first, true, "/bin/true")
    report("the second", second, true, "/bin/true")


if __name__ == "__main__":
    main()
