# SPDX-License-Identifier: Apache-2.0
"""The sandboxes that evals have made.

Those of this process are remembered here until they are removed, or left at the end of
an eval that was told not to clean up.  One that is meant to outlive the process
(``ephemeral: false``) has a file of its id too, so that ``inspect sandbox cleanup cay``
finds it later.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from cay.sandbox import Sandbox, SandboxNotFoundError
from cay.sandbox.errors import SandboxUnavailableError

_own: dict[str, tuple[Sandbox, bool]] = {}
_left: list[Sandbox] = []
"""ephemeral ones that are not removed: with its handle each of them would end"""
_lock = threading.Lock()


def _home() -> str:
    """As src/sys/state-home.c finds it."""
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
            "there is no directory to keep the ids of sandboxes in",
            subject="CAY_HOME",
            hint="set CAY_HOME to the absolute path of a directory of your own",
        )
    return Path(home) / "inspect"


def add(sandbox: Sandbox, ephemeral: bool) -> None:
    """From now on it is among those to be removed."""
    with _lock:
        _own[sandbox.id] = (sandbox, ephemeral)
    if not ephemeral:
        directory = _directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / sandbox.id).touch()


def remove_one(sandbox: Sandbox) -> None:
    """Nothing is left of it; again is fine."""
    with _lock:
        _, ephemeral = _own.pop(sandbox.id, (None, None))
    if ephemeral is None:
        return
    try:
        sandbox.remove()
    except SandboxNotFoundError:
        pass  # it has ended by itself
    finally:
        sandbox.close()
    if not ephemeral:
        (_directory() / sandbox.id).unlink(missing_ok=True)


def remove_own() -> None:
    """What samples of this process left behind."""
    with _lock:
        left = [sandbox for sandbox, _ in _own.values()]
    for sandbox in left:
        remove_one(sandbox)


def leave_own() -> list[str]:
    """No eval removes them any more; what there is to know about each."""
    lines = []
    with _lock:
        for id, (sandbox, ephemeral) in _own.items():
            if ephemeral:
                _left.append(sandbox)
            lines.append(
                f"cay: {id} ends with this process; 'ephemeral: false' keeps it"
                if ephemeral
                else f"cay: {id} is kept: cay shell {id}; "
                f"inspect sandbox cleanup cay {id}"
            )
        _own.clear()
    return lines


def remove(id: str | None) -> None:
    """The sandbox of an id, or all that were kept, from any process."""
    directory = _directory()
    kept = sorted(path.name for path in directory.glob("sb-*"))
    for one in kept if id is None else [id]:
        try:
            Sandbox.open(one).remove()
        except SandboxNotFoundError:
            if id is not None and id not in kept:
                raise
        (directory / one).unlink(missing_ok=True)
    Sandbox.collect()
