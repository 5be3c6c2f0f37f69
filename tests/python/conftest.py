# SPDX-License-Identifier: Apache-2.0
"""One directory in each of the three styles, and what to do without a registry."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("native")

from cay.filesystem import (
    Files,
    Mount,
    PathConfig,
    RootSandboxConfig,
    Sandbox,
    SandboxConfig,
)

os.environ.setdefault("CAY_WARM", "off")  # no processes of their own behind a test
MUST_WORK = os.environ.get("CAY_MUST_WORK") == "1"
CHECKOUT = Path(__file__).resolve().parents[2]


def unavailable(reason: str) -> None:
    """Skips, or fails where nothing may be skipped."""
    if MUST_WORK:
        pytest.fail(f"would be skipped, but CAY_MUST_WORK=1: {reason}")
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def _no_pools_of_tasks():
    """Ends the pools of Inspect's tasks that a test has begun and not cleaned up."""
    yield
    pools = sys.modules.get("cay.inspect.pools")
    for task in list(pools._tasks) if pools else ():
        pools.end(task)


def pip(*arguments: str | Path) -> None:
    """Runs pip, or skips with what it said."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if "Failed to build" in done.stderr:
        pytest.fail(done.stderr)
    if done.returncode:
        unavailable(f"pip {arguments[0]}: {done.stderr.strip().splitlines()[-1:]}")


@dataclass
class World:
    """A sandbox with one directory, and how its paths are spelled."""

    style: str
    host: Path
    sandbox: Sandbox

    @property
    def top(self) -> str:
        return {"mounts": "/data", "paths": "data", "root": "/"}[self.style]

    def path(self, rest: str) -> str:
        return {"mounts": "/data/", "paths": "data/", "root": "/"}[self.style] + rest

    @property
    def files(self) -> Files:
        return Files(self.sandbox)


def make_config(style: str, host: Path, **rules: Any) -> SandboxConfig:
    if style == "mounts":
        return SandboxConfig(mounts=[Mount(host_path=host, mount_point="/data", **rules)])
    if style == "paths":
        return SandboxConfig(paths={"data": PathConfig(root=str(host), **rules)})
    rules["readonly"] = rules.pop("mode", "ro") == "ro"
    return SandboxConfig(root=RootSandboxConfig(root=host, **rules))


def make_world(style: str, host: Path, **rules: Any) -> World:
    host.mkdir(parents=True, exist_ok=True)
    return World(style, host.resolve(), Sandbox(make_config(style, host, **rules)))


@pytest.fixture(params=["mounts", "paths", "root"])
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(style: str, tmp_path: Path) -> World:
    """Writable, without limits."""
    return make_world(style, tmp_path / "data", mode="rw")


@pytest.fixture
def readonly(style: str, tmp_path: Path) -> World:
    return make_world(style, tmp_path / "data", mode="ro")


@pytest.fixture
def mounts(tmp_path: Path) -> World:
    """Writable at a mount point, for what only mounts have."""
    return make_world("mounts", tmp_path / "data", mode="rw")


@pytest.fixture
def paths(tmp_path: Path) -> World:
    """Writable under a name, for what only named paths have."""
    return make_world("paths", tmp_path / "data", mode="rw")
