# SPDX-License-Identifier: Apache-2.0
"""Packages in clean systems: Debian and nothing else, made by debootstrap.

CAY_PACKAGES is the directory of packages, dist/ if it is not set; CAY_ROOTS is where the
systems stay between runs."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(os.environ.get("CAY_PACKAGES", ROOT / "dist"))
ROOTS = Path(os.environ.get("CAY_ROOTS", ROOT / "build-roots"))
MIRROR = os.environ.get("CAY_DEBIAN_MIRROR", "http://deb.debian.org/debian")


def debian(suite, *packages):
    """A system with its essential packages, apt and these."""
    root = ROOTS / "-".join((suite, *packages))
    if not root.exists():
        ROOTS.mkdir(exist_ok=True)
        unfinished = root.with_name(f"{root.name}.part")
        subprocess.run(["rm", "-rf", "--one-file-system", unfinished], check=True)
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={','.join(packages)}",
                        suite, unfinished, MIRROR], check=True, stdout=subprocess.PIPE)
        unfinished.rename(root)
    return root


class System:
    """A clean system; each run starts from it anew."""

    def __init__(self, root):
        self.root = root

    def run(self, script, share=PACKAGES):
        """Runs a shell script in it, with the directory `share` as /share."""
        return subprocess.run(
            [ROOT / "tests/packages/in-root", self.root, "bash", "-euo", "pipefail", "-c", script],
            env={**os.environ, "SHARE": str(share)}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False)


@pytest.fixture(scope="session", autouse=True)
def as_root():
    if os.geteuid() != 0:
        pytest.skip("only root can make a clean system")


@pytest.fixture(scope="session")
def bookworm():
    return System(debian("bookworm"))


@pytest.fixture(scope="session")
def trixie():
    return System(debian("trixie"))


@pytest.fixture(scope="session")
def python():
    """Debian 12 with Python and pip, without a compiler."""
    return System(debian("bookworm", "python3-venv"))
