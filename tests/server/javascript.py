# SPDX-License-Identifier: Apache-2.0
"""Runs the scripts of js/ with the SDKs of js/package.json, and finds each of their tests."""

import fcntl
import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from serving import PATIENCE, ROOT, unavailable

FOLDER = Path(__file__).parent / "js"
PACKAGES = json.loads((FOLDER / "package.json").read_text())["dependencies"]
INSTALLED = ROOT / "build" / "js"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def program(name):
    """One of Node's; that of .venv before that of the system, which may be old."""
    return shutil.which(name, path=PATH)


def names(script):
    """The tests of a script."""
    return re.findall(r"^test\('([^']+)'", (FOLDER / script).read_text(), re.M)


def is_installed():
    try:
        return all(json.loads((INSTALLED / "node_modules" / name / "package.json").read_text())[
            "version"] == wanted.rpartition("@")[2] for name, wanted in PACKAGES.items())
    except OSError:
        return False


def install():
    if not program("node") or not program("npm"):
        unavailable("node and npm are not there; tools/make-venv brings them")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with (INSTALLED / "lock").open("w") as lock:  # files of tests run at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in FOLDER.iterdir():
            copy = INSTALLED / path.name
            if not copy.exists() or not filecmp.cmp(path, copy, shallow=False):
                shutil.copy(path, copy)
        if not is_installed():
            install_packages()


def install_packages():
    done = subprocess.run(
        [program("npm"), "install", "--no-audit", "--no-fund", "--no-package-lock",
         "--loglevel=error"], cwd=INSTALLED, env={**os.environ, "PATH": PATH},
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=10 * PATIENCE,
        check=False)
    if done.returncode:
        unavailable(f"npm install: {done.stderr.strip().splitlines()[:1]}")


def run(script, package, env, before=()):
    """The finished process of a script that uses a package; its output is TAP."""
    install()
    here = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    return subprocess.run([*before, program("node"), INSTALLED / script, package], cwd=INSTALLED,
                          env={**here, **env}, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=10 * PATIENCE, check=False)


def check(done, name):
    """Fails as the test of the script did."""
    found = re.search(rf"^((?:not )?ok) \d+ - {re.escape(name)}\n((?:# .*\n)*)", done.stdout, re.M)
    assert found, f"it was not run: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert found[1] == "ok", found[2]
