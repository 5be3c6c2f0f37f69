# SPDX-License-Identifier: Apache-2.0
"""Subclasses of the BaseSandbox and BaseSandboxManager of the package nexau.

    from cay.nexau import CaySandboxManager

    manager = CaySandboxManager(config={"type": "native", "limits": {"memory": "1G"}})
    sandbox = manager.start(session_manager, user_id, session_id, None)

The manager works wherever NexAU takes one.  Results and exceptions are NexAU's own.
Programs that only use NexAU's interface do not need it: docs/nexau.md.
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

from cay import errors
from cay.nexau.agent import make_manager
from cay.nexau.base import BaseSandbox

R = TypeVar("R")

_RESULTS = ("CommandResult", "CodeExecutionResult", "FileInfo", "FileOperationResult")
_ERRORS = (
    "SandboxTimeoutError",
    "SandboxExecutionError",
    "SandboxFileError",
    "SandboxError",
)


def _translated(value: Any) -> Any:
    """The result as NexAU's class, whose fields depend on its version."""
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
    values = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    wanted = {one.name for one in dataclasses.fields(cls) if one.init}
    return cls(**{key: _translated(one) for key, one in values.items() if key in wanted})


def _plain(value: Any) -> Any:
    """The value of a member of NexAU's enumerations."""
    return value.value if isinstance(value, Enum) else value


def _error_of(error: errors.SandboxError) -> Exception:
    for name in _ERRORS:
        if isinstance(error, getattr(errors, name)):
            translated: Exception = getattr(theirs, name)(str(error))
            return translated
    return error


def _delegate(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that calls ours and translates the result."""
    known = set(inspect.signature(method).parameters)

    @functools.wraps(method)
    def called(self: CaySandbox, *args: Any, **kwargs: Any) -> Any:
        given = {name: _plain(one) for name, one in kwargs.items() if name in known}
        ours = getattr(self.cay, method.__name__)
        try:
            return _translated(ours(*map(_plain, args), **given))
        except errors.SandboxError as error:
            if isinstance(error, ValueError):
                raise
            raise _error_of(error) from error

    return called


def _with_our_methods(cls: type[R]) -> type[R]:
    """Adds the methods of BaseSandbox, each done by the sandbox behind it."""
    for name in sorted((BaseSandbox.__abstractmethods__ | _MORE) - set(vars(cls))):
        setattr(cls, name, _delegate(getattr(BaseSandbox, name)))
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
    """A sandbox for NexAU; ``cay`` is the one behind it."""

    cay: BaseSandbox = field(repr=False)

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
        """NexAU's older name of execute_shell()."""
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

    # Last in the class: it hides the type of the same name.
    def dict(self) -> dict[str, Any]:
        """The state to save, as in cay.nexau.BaseSandbox."""
        return {**self.cay.dict(), "sandbox_type": type(self.cay).__name__}


@dataclass(kw_only=True)
class CaySandboxManager(theirs.BaseSandboxManager[CaySandbox]):
    """A manager for NexAU with a configuration of Cay."""

    config: Any = None
    """as for cay.nexau.make_manager(); None: a native sandbox"""
    _instance: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        inherited = getattr(super(), "__post_init__", None)
        if inherited is not None:
            inherited()
        self.manager, self._rest = make_manager(self.config)

    def start(
        self,
        session_manager: Any,
        user_id: str,
        session_id: str,
        sandbox_config: Any = None,
    ) -> CaySandbox:
        """Uses only ``envs`` of NexAU's configuration, which is for its own backends."""
        sandbox = self.manager.start(session_manager, user_id, session_id, self._rest)
        if not isinstance(sandbox_config, dict):
            sandbox_config = {"envs": getattr(sandbox_config, "envs", None)}
        sandbox.envs.update(sandbox_config.get("envs") or {})
        adapted = CaySandbox(cay=sandbox, sandbox_id=sandbox.sandbox_id, envs=sandbox.envs)
        names = {one.name for one in dataclasses.fields(adapted)}
        setattr(
            adapted,
            "_work_dir" if "_work_dir" in names else "work_dir",
            str(sandbox.work_dir) if "_work_dir" in names else sandbox.work_dir,
        )
        self._instance = adapted
        return adapted

    def stop(self) -> bool:
        self._instance = None
        return self.manager.stop()

    def pause(self) -> bool:
        return self.manager.pause()

    def is_running(self) -> bool:
        return self.manager.is_running()

    def on_run_complete(self) -> None:
        self.manager.on_run_complete()
