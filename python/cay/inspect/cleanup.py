# SPDX-License-Identifier: Apache-2.0
"""Removing the sandboxes that evals created.

This module tracks those of this process until they are removed, or until an eval without
cleanup ends.  A sandbox with ``ephemeral: false`` outlives the process; a file with its id
lets ``inspect sandbox cleanup cay`` find it later.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cay.errors import (
    SandboxBusyError,
    SandboxExistsError,
    SandboxNotFoundError,
    SandboxUnavailableError,
)
from cay.inspect.compose import SAMPLE_VOLUME
from cay.sandbox import Sandbox, Volume

_tracked: dict[str, tuple[Sandbox, bool]] = {}
_untracked: list[Sandbox] = []
"""ephemeral sandboxes that no eval removes: each would end with its handle"""
_volumes: dict[str, tuple[str, ...]] = {}
"""those of samples that a tracked sandbox has"""
_lock = threading.Lock()
_OLD = timedelta(hours=1)


def _home() -> str:
    """The state directory, as in src/sys/state-home.c."""
    environ = os.environ
    if environ.get("CAY_HOME"):
        return environ["CAY_HOME"]
    if os.geteuid() == 0:
        return "/var/lib/cay"
    if environ.get("XDG_STATE_HOME", "").startswith("/"):
        return environ["XDG_STATE_HOME"] + "/cay"
    return environ["HOME"] + "/.local/state/cay" if environ.get("HOME") else ""


def _directory() -> Path:
    home = _home()
    if not home.startswith("/"):
        raise SandboxUnavailableError(
            "there is no directory for the ids of sandboxes",
            subject="CAY_HOME",
            hint="set CAY_HOME to the absolute path of a directory",
        )
    return Path(home) / "inspect"


def track(sandbox: Sandbox, ephemeral: bool, volumes: Iterable[str] = ()) -> None:
    """Tracks a sandbox, with its mounts of volumes that end with it."""
    with _lock:
        _tracked[sandbox.id] = (sandbox, ephemeral)
        _volumes[sandbox.id] = tuple(_names(volumes))
    if not ephemeral:
        directory = _directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / sandbox.id).touch()


def remove_one(sandbox: Sandbox) -> None:
    """Removes a sandbox; may be called again."""
    with _lock:
        _, ephemeral = _tracked.pop(sandbox.id, (None, None))
        volumes = _volumes.pop(sandbox.id, ())
    if ephemeral is None:
        return
    try:
        sandbox.remove()
    except SandboxNotFoundError:
        pass  # it has ended already
    finally:
        sandbox.close()
    _remove_unused(volumes)
    if not ephemeral:
        (_directory() / sandbox.id).unlink(missing_ok=True)


def remove_all() -> None:
    """Removes the sandboxes of this process."""
    with _lock:
        tracked = [sandbox for sandbox, _ in _tracked.values()]
    for sandbox in tracked:
        remove_one(sandbox)


def untrack_all() -> list[str]:
    """Stops tracking; returns a line for the user about each sandbox."""
    lines = []
    with _lock:
        for id, (sandbox, ephemeral) in _tracked.items():
            if ephemeral:
                _untracked.append(sandbox)
            lines.append(
                f"cay: {id} ends with this process; to keep it, set 'ephemeral: false'"
                if ephemeral
                else f"cay: {id} still runs: cay shell {id}; "
                f"inspect sandbox cleanup cay {id}"
            )
        _tracked.clear()
        _volumes.clear()
    return lines


def remove(id: str | None) -> None:
    """Removes the sandbox with this id, or all that have a file, of any process."""
    directory = _directory()
    ids = sorted(path.name for path in directory.glob("sb-*"))
    for one in ids if id is None else [id]:
        volumes: Iterable[str] = ()
        try:
            sandbox = Sandbox.open(one)
            volumes = _volumes_of(sandbox)
            sandbox.remove()
        except SandboxNotFoundError:
            if id is not None and id not in ids:
                raise
        _remove_unused(volumes)
        (directory / one).unlink(missing_ok=True)
    Sandbox.collect()
    if id is None:
        _remove_unused(_left_behind())


# --- Volumes of samples -------------------------------------------------------------------


def make_volumes(binds: Iterable[str]) -> None:
    """Creates the volumes of a sample that these mounts name."""
    for name in _names(binds):
        with suppress(SandboxExistsError):  # another service has it, too
            Volume.create(name)


def _names(binds: Iterable[str]) -> list[str]:
    names = [bind.partition(":")[0] for bind in binds]
    return [name for name in names if name.startswith(SAMPLE_VOLUME)]


def remove_volumes(sample: str) -> None:
    """Removes those of a sample that no sandbox uses."""
    start = f"{SAMPLE_VOLUME}{sample}."
    _remove_unused(one.name for one in Volume.list() if one.name.startswith(start))


def _volumes_of(sandbox: Sandbox) -> list[str]:
    volumes = sandbox.inspect().volumes
    return [name for name in volumes if name.startswith(SAMPLE_VOLUME)]


def _left_behind() -> list[str]:
    """Of processes that were killed; a new one may be without its sandbox."""
    before = datetime.now(timezone.utc) - _OLD
    return [
        one.name
        for one in Volume.list()
        if one.name.startswith(SAMPLE_VOLUME) and one.created < before
    ]


def _remove_unused(names: Iterable[str]) -> None:
    """The last sandbox of a sample that uses a volume removes it."""
    wanted = list(names)
    known = {one.name: one for one in Volume.list()} if wanted else {}
    for name in wanted:
        if name in known:
            with suppress(SandboxBusyError, SandboxNotFoundError):
                known[name].remove()
