# SPDX-License-Identifier: Apache-2.0
"""The backends that the interface of agents is tested on, and what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import CHECKOUT, unavailable
from native import traces

from cay.nexau import (
    BaseSandbox,
    BaseSandboxManager,
    E2BSandboxManager,
    InMemoryDatabaseEngine,
    LocalSandboxManager,
    NativeSandboxManager,
    SandboxError,
    SessionManager,
)
from cay.sandbox import Sandbox

sys.path.insert(0, str(CHECKOUT / "docs" / "examples" / "backend-python"))
sys.path.insert(0, str(CHECKOUT / "tests" / "e2b"))

from folder import FolderSandboxManager  # noqa: E402
from serve import serving  # noqa: E402

PEER = CHECKOUT / "tests" / "e2b" / "peer.py"
KEY = "e2b_5ec2e7"  # that the peer wants
CAY = os.environ.get("CAY_BIN", str(CHECKOUT / "build" / "cay"))


@dataclass
class World:
    """One backend: how its sandboxes are started, and which there were."""

    name: str
    type: str
    make: Callable[..., BaseSandboxManager[Any]]
    config: dict[str, Any] = field(default_factory=lambda: {})
    session_manager: Any = None
    started: list[BaseSandboxManager[Any]] = field(default_factory=lambda: [])
    ids: set[str] = field(default_factory=lambda: set())

    def manager(self, **options: Any) -> BaseSandboxManager[Any]:
        manager = self.make(**options)
        self.started.append(manager)
        return manager

    def start(self, session: str = "s", **config: Any) -> Any:
        """A sandbox of a session of its own."""
        sandbox = self.manager().start(
            self.session_manager, "u", session, {**self.config, **config}
        )
        self.ids.add(str(sandbox.sandbox_id))
        return sandbox

    @property
    def cls(self) -> Any:
        return self.make.sandbox_class  # type: ignore[attr-defined]

    @property
    def can_pause(self) -> bool:
        return self.type in ("native", "e2b")

    def clean(self) -> None:
        for manager in self.started:
            if manager._instance is not None:
                self.ids.add(str(manager._instance.sandbox_id))
            manager.stop()
        for one in self.ids:
            for managers in (NativeSandboxManager, LocalSandboxManager):
                if self.name == managers.sandbox_class.backend:
                    try:
                        managers.sandbox_class.connect(one).remove()
                    except SandboxError:
                        pass


def make_world(name: str, tmp_path: Path) -> World:
    engine = InMemoryDatabaseEngine()
    sessions = SessionManager(engine=engine)
    if name == "custom":
        config = {"type": "pyfolder", "work_dir": str(tmp_path)}
        return World(name, "pyfolder", FolderSandboxManager, config, sessions)
    if os.geteuid() != 0 and name != "e2b":
        unavailable("the tests of sandboxes are run by root")
    if name in ("e2b", "serve"):
        config = {"type": "e2b", "api_key": "${env.CAY_TEST_KEY}", "timeout": 600}
        return World(name, "e2b", E2BSandboxManager, config, sessions)
    if name == "native":
        return World(name, name, NativeSandboxManager, {"type": name}, sessions)
    (tmp_path / "work").mkdir()
    (tmp_path / "tmp").mkdir()
    config = {"type": name, "work_dir": str(tmp_path / "work")}
    return World(name, name, LocalSandboxManager, config, sessions)


@contextmanager
def peer() -> Iterator[str]:
    """The address of a server of the tests that speaks E2B's protocol."""
    process = subprocess.Popen(
        [sys.executable, PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    os.environ["CAY_TEST_KEY"] = KEY
    try:
        yield process.stdout.readline().strip()
    finally:
        del os.environ["CAY_TEST_KEY"]
        process.stdin.close()
        process.wait()
        process.stdout.close()


@contextmanager
def cay_serve() -> Iterator[str]:
    """The address of a server of our own."""
    with serving(CAY) as exports:
        os.environ["CAY_TEST_KEY"] = exports["E2B_API_KEY"]
        try:
            yield exports["E2B_API_URL"]
        finally:
            del os.environ["CAY_TEST_KEY"]


def world_of(name: str, tmp_path: Path) -> Iterator[World]:
    """For fixtures: at the end nothing is left."""
    world = make_world(name, tmp_path)
    if world.type == "e2b":
        with peer() if name == "e2b" else cay_serve() as url:
            world.config.update(api_url=url, sandbox_url=url)
            yield world
            world.clean()
        return
    descriptors = len(os.listdir("/proc/self/fd"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            if name == "local":  # what its commands leave there is removed with it
                patch.setenv("TMPDIR", str(tmp_path / "tmp"))
            yield world
    finally:
        world.clean()
        world.started.clear()
        Sandbox.collect()
    if name in ("native", "local"):
        # One that hung on an object goes by itself, soon.
        deadline = time.monotonic() + 30
        while traces(world.ids) and time.monotonic() < deadline:
            Sandbox.collect()
        assert traces(world.ids) == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 4  # an event loop's


# "serve" is the e2b backend against our own server.
BUILT_IN = ["native", "local", "serve", *(["e2b"] if PEER.exists() else [])]
ALL = [*BUILT_IN, "custom"]


@pytest.fixture
def sandbox_of(world: World) -> BaseSandbox:
    sandbox: BaseSandbox = world.start()
    return sandbox
