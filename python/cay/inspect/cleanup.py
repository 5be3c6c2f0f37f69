# SPDX-License-Identifier: Apache-2.0
"""Removing the sandboxes that evals created.

This module tracks those of this process until they are removed, or until an eval without
cleanup ends.  A sandbox with ``ephemeral: false`` outlives the process; a file with its id
lets ``inspect sandbox cleanup cay`` find it later.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from cay.errors import SandboxNotFoundError, SandboxUnavailableError
from cay.sandbox import Sandbox

_tracked: dict[str, tuple[Sandbox, bool]] = {}
_untracked: list[Sandbox] = []
"""ephemeral sandboxes that no eval removes: each would end with its handle"""
_lock = threading.Lock()


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


def track(sandbox: Sandbox, ephemeral: bool) -> None:
    """Tracks a sandbox."""
    with _lock:
        _tracked[sandbox.id] = (sandbox, ephemeral)
    if not ephemeral:
        directory = _directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / sandbox.id).touch()


def remove_one(sandbox: Sandbox) -> None:
    """Removes a sandbox; may be called again."""
    with _lock:
        _, ephemeral = _tracked.pop(sandbox.id, (None, None))
    if ephemeral is None:
        return
    try:
        sandbox.remove()
    except SandboxNotFoundError:
        pass  # it has ended already
    finally:
        sandbox.close()
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
    return lines


def remove(id: str | None) -> None:
    """Removes the sandbox with this id, or all that have a file, of any process."""
    directory = _directory()
    ids = sorted(path.name for path in directory.glob("sb-*"))
    for one in ids if id is None else [id]:
        try:
            Sandbox.open(one).remove()
        except SandboxNotFoundError:
            if id is not None and id not in ids:
                raise
        (directory / one).unlink(missing_ok=True)
    Sandbox.collect()
