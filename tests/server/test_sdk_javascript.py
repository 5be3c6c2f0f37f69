# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for JavaScript, unmodified, a new and an old one: js/run.mjs, line by line."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from serving import PATIENCE, ROOT, unavailable

FOLDER = Path(__file__).parent / "js"
NAMES = re.findall(r"^test\('([^']+)'", (FOLDER / "run.mjs").read_text(), re.M)
PACKAGES = json.loads((FOLDER / "package.json").read_text())["dependencies"]
INSTALLED = ROOT / "build" / "js"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def program(name):
    """One of Node's; that of .venv before that of the system, which may be old."""
    return shutil.which(name, path=PATH)


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
    for name in ("package.json", "run.mjs"):
        shutil.copy(FOLDER / name, INSTALLED)
    if is_installed():
        return
    done = subprocess.run(
        [program("npm"), "install", "--no-audit", "--no-fund", "--no-package-lock",
         "--loglevel=error"], cwd=INSTALLED, env={**os.environ, "PATH": PATH},
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=10 * PATIENCE,
        check=False)
    if done.returncode:
        unavailable(f"npm install: {done.stderr.strip().splitlines()[:1]}")


@pytest.fixture(scope="module", name="outcomes")
def fixture_outcomes(server):
    """What the script said, once for each of the packages."""
    install()
    known = {}

    def outcomes(package):
        if package not in known:
            done = subprocess.run([program("node"), "run.mjs", package], cwd=INSTALLED,
                                  env={**os.environ, **server.exports,
                                       "CAY_OTHER_KEY": server.options_of("javascript")["api_key"]},
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  timeout=10 * PATIENCE, check=False)
            known[package] = done
        return known[package]

    return outcomes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("package", PACKAGES)
def test_javascript(outcomes, package, name):
    done = outcomes(package)
    found = re.search(rf"^((?:not )?ok) \d+ - {re.escape(name)}\n((?:# .*\n)*)", done.stdout, re.M)
    assert found, f"it was not run: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert found[1] == "ok", found[2]
