# SPDX-License-Identifier: Apache-2.0
"""Cay's sandboxes for NexAU: subclasses of its own BaseSandbox and BaseSandboxManager.

    from cay.nexau import CaySandboxManager

    manager = CaySandboxManager(config={"type": "native", "limits": {"memory": "1G"}})
    sandbox = manager.start(session_manager, user_id, session_id, None)

Give the manager to whatever in NexAU takes one.  Results and exceptions are NexAU's own.
Programs that have only the interface from there do without it: docs/nexau.md.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from nexau.archs.sandbox import base_sandbox as theirs

from cay import sandbox as ours

__all__ = ["CaySandbox", "CaySandboxManager"]

R = TypeVar("R")

_RESULTS = ("CommandResult", "CodeExecutionResult", "FileInfo", "FileOperationResult")
_ERRORS = (
    "SandboxTimeoutError",
    "SandboxExecutionError",
    "SandboxFileError",
    "SandboxError",
)


def _translated(value: Any) -> Any:
    """NexAU's own of what is ours; versions of it differ in the fields they have."""
    if isinstance(value, list):
        return [_translated(one) for one in value]
    if isinstance(value, Enum):
        known = getattr(theirs, type(value).__name__)
        values = {one.value: one for one in known}
        return values.get(value.value, next(iter(known)))
    name = type(value).__name__
    if name not in _RESULTS:
        return value
    cls = getattr(theirs, name)
    told = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    wanted = {one.name for one in dataclasses.fields(cls) if one.init}
    return cls(**{key: _translated(one) for key, one in told.items() if key in wanted})


def _plain(value: Any) -> Any:
    """A word for what NexAU has an enumeration of."""
    return value.value if isinstance(value, Enum) else value


def _error_of(error: ours.SandboxError) -> Exception:
    for name in _ERRORS:
        if isinstance(error, getattr(ours, name)):
            made: Exception = getattr(theirs, name)(str(error))
            return made
    return error


def _theirs(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of ours as one of theirs."""
    known = set(inspect.signature(method).parameters)

    @functools.wraps(method)
    def called(self: CaySandbox, *args: Any, **kwargs: Any) -> Any:
        given = {name: _plain(one) for name, one in kwargs.items() if name in known}
        ours_of_it = getattr(self.cay, method.__name__)
        try:
            return _translated(ours_of_it(*map(_plain, args), **given))
        except ours.SandboxError as error:
            if isinstance(error, ValueError):
                raise
            raise _error_of(error) from error

    return called


def _with_our_methods(cls: type[R]) -> type[R]:
    """All that BaseSandbox asks for, done by the sandbox behind it."""
    for name in sorted((ours.BaseSandbox.__abstractmethods__ | _MORE) - set(vars(cls))):
        setattr(cls, name, _theirs(getattr(ours.BaseSandbox, name)))
    cls.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    return cls


_MORE = {
    "execute_shell",
    "get_background_task_status",
    "get_temp_dir",
    "kill_background_task",
    "list_background_tasks",
}


@_with_our_methods
@dataclass(kw_only=True)
class CaySandbox(theirs.BaseSandbox):
    """NexAU's view of a sandbox of ours, which is ``cay``."""

    cay: ours.BaseSandbox = field(repr=False)

    def execute_bash(  # type: ignore[no-redef,unused-ignore]
        self,
        command: str,
        timeout: int | None = None,
        cwd: str | None = None,
        user: str | None = None,
        envs: Mapping[str, str] | None = None,
        background: bool = False,
        **_: Any,
    ) -> Any:
        """NexAU's older name of execute_shell(), which a subclass may override."""
        return self.execute_shell(
            command,
            timeout=timeout,
            cwd=cwd,
            user=user,
            envs=envs,
            background=background,
        )

    def __str__(self) -> str:
        return f"Cay{self.cay}"

    # Last, for it hides the type of the same name.
    def dict(self) -> dict[str, Any]:
        """What is saved is what we save."""
        return {**self.cay.dict(), "sandbox_type": type(self.cay).__name__}


@dataclass(kw_only=True)
class CaySandboxManager(theirs.BaseSandboxManager[CaySandbox]):
    """NexAU's view of a manager of ours, by a configuration of ours."""

    config: Any = None
    """as cay.sandbox.make_manager() takes it; None: a native sandbox"""
    _instance: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        inherited = getattr(super(), "__post_init__", None)
        if inherited is not None:
            inherited()
        self.manager, self._rest = ours.make_manager(self.config)

    def start(
        self,
        session_manager: Any,
        user_id: str,
        session_id: str,
        sandbox_config: Any = None,
    ) -> CaySandbox:
        """What NexAU's configuration says is about its own backends, but for ``envs``."""
        sandbox = self.manager.start(session_manager, user_id, session_id, self._rest)
        if not isinstance(sandbox_config, dict):
            sandbox_config = {"envs": getattr(sandbox_config, "envs", None)}
        sandbox.envs.update(sandbox_config.get("envs") or {})
        made = CaySandbox(cay=sandbox, sandbox_id=sandbox.sandbox_id, envs=sandbox.envs)
        spelled = {one.name for one in dataclasses.fields(made)}
        setattr(
            made,
            "_work_dir" if "_work_dir" in spelled else "work_dir",
            str(sandbox.work_dir) if "_work_dir" in spelled else sandbox.work_dir,
        )
        self._instance = made
        return made

    def stop(self) -> bool:
        self._instance = None
        return self.manager.stop()

    def pause(self) -> bool:
        return self.manager.pause()

    def is_running(self) -> bool:
        return self.manager.is_running()

    def on_run_complete(self) -> None:
        self.manager.on_run_complete()
