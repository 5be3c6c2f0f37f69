# SPDX-License-Identifier: Apache-2.0
"""The managers of libcay's backends."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cay.sandbox.alias import backend_of
from cay.sandbox.backends import (
    BackendSandbox,
    E2BSandbox,
    LocalSandbox,
    NativeSandbox,
)
from cay.sandbox.configs import _TYPED, after_run, parse_sandbox_config
from cay.sandbox.errors import (
    SandboxError,
    SandboxNotFoundError,
    SandboxUnsupportedError,
    SandboxValueError,
)
from cay.sandbox.kept import Kept
from cay.sandbox.manager import BaseSandboxManager
from cay.sandbox.session import DatabaseEngine, Session, SessionManager
from cay.sandbox.spelling import overlaid, written

__all__ = [
    "BackendSandboxManager",
    "E2BSandboxManager",
    "LocalSandboxManager",
    "NativeSandboxManager",
]

logger = logging.getLogger(__name__)

TBackend = TypeVar("TBackend", bound=BackendSandbox)


class _Keeping:
    """No fields, for they are no data."""

    sandbox_class: type[BackendSandbox] = BackendSandbox
    _kept: Kept | None = None


@dataclass(kw_only=True)
class BackendSandboxManager(_Keeping, BaseSandboxManager[TBackend]):
    """Starts sandboxes of any backend that libcay knows.

    Which: that of the configuration's sandbox_id (an error if it is gone), else the one
    saved with the session (if it is gone, a new one), else a new one.  With a session
    manager of ours, libcay does all that.
    """

    envs: dict[str, str] = field(default_factory=lambda: {})

    def start(
        self,
        session_manager: Any,
        user_id: str,
        session_id: str,
        sandbox_config: Any = None,
    ) -> TBackend:
        values = self._values(sandbox_config)
        state = self.load_sandbox_state(session_manager, user_id, session_id) or {}
        session = Session(user_id=user_id, session_id=session_id, sandbox_state=state)
        if isinstance(session_manager, SessionManager):
            sandbox: Any = self._keep(session_manager.engine, session, values)
        else:
            self._kept = None
            sandbox = self._find(session_manager, session, values)
        return sandbox  # type: ignore[no-any-return]

    def _values(self, config: Any) -> dict[str, Any]:
        """The keys of a configuration: those given over those of this manager."""
        backend = self.sandbox_class.backend
        if isinstance(config, Mapping) or config is None:
            usual = {"type": backend} if backend else {}
            config = {**usual, **(config or {})}
        config = parse_sandbox_config(config)
        given = dict(config) if isinstance(config, Mapping) else written(config)
        kind = backend_of(given["type"])
        if backend and kind != backend:
            raise SandboxValueError(
                f"{type(self).__name__} takes a {_TYPED[backend].__name__}, not a "
                f"configuration of type {given['type']!r}",
                op="manager.start",
                subject="type",
                hint=f"give it a {_TYPED[backend].__name__}, or type: {backend}",
            )
        return overlaid(self._own(), {**given, "type": kind})

    def _own(self) -> dict[str, Any]:
        return written(self)

    def _after_run(self) -> str | None:
        """Also what was saved of it."""
        sandbox = self._instance
        return super()._after_run() if sandbox is None else after_run(sandbox.config)

    @staticmethod
    def _for_new(values: dict[str, Any], is_kept: bool) -> dict[str, Any]:
        """By which a new one is made; one of this machine that no session keeps ends with
        this process, for nobody would find it."""
        here = values["type"] in (NativeSandbox.backend, LocalSandbox.backend)
        return {"ephemeral": not is_kept, **values} if here else values

    # --- With libcay's store --------------------------------------------------------------

    def _alone(
        self, session_manager: Any, user_id: str, session_id: str
    ) -> AbstractContextManager[None]:
        if isinstance(session_manager, SessionManager):
            return nullcontext()  # libcay sees to it
        return super()._alone(session_manager, user_id, session_id)

    def _keep(
        self, engine: DatabaseEngine, session: Session, values: dict[str, Any]
    ) -> BackendSandbox:
        names = (session.user_id, session.session_id)
        made = self._for_new(values, engine.outlives_process)
        self._kept = Kept(engine, *names, made)
        state = session.sandbox_state or {}
        id = self._kept.start(state.get("sandbox_id"))
        saved = _saved(state) if state.get("sandbox_id") == id else {}
        sandbox = self.sandbox_class.connect(id, **overlaid(saved, _without_id(values)))
        session.sandbox_state = self._state_of(sandbox)
        engine.describe(session)
        return sandbox

    # --- With another one, or none --------------------------------------------------------

    def _find(
        self, session_manager: Any, session: Session, values: dict[str, Any]
    ) -> BackendSandbox:
        names = (session.user_id, session.session_id)
        id, rest = values.get("sandbox_id"), _without_id(values)
        if id is not None:
            sandbox: BackendSandbox | None = self.sandbox_class.connect(id, **rest)
        else:
            sandbox = self._restored(session.sandbox_state or {}, rest)
        is_new = sandbox is None
        if sandbox is None:
            made = self._for_new(rest, session_manager is not None)
            sandbox = self.sandbox_class.create(**made)
        try:
            self.persist_sandbox_state(session_manager, *names, sandbox)
        except BaseException:
            if is_new:
                sandbox.remove()  # for nobody would find it
            raise
        return sandbox

    def _restored(
        self, state: dict[str, Any], values: dict[str, Any]
    ) -> BackendSandbox | None:
        cls, id = self.sandbox_class, state.get("sandbox_id")
        if not id:
            return None
        saved = _saved(state)
        kinds = (state.get("sandbox_type"), saved.get("type"))
        if kinds != (cls.__name__, values["type"]):
            logger.warning("the session's sandbox is a %s", state.get("sandbox_type"))
            return None
        try:
            return cls.connect(id, **overlaid(saved, values))
        except SandboxError as error:
            logger.warning("the session's sandbox is not restored: %s", error)
            return None

    def _restart(self) -> TBackend:
        sandbox = self._instance
        has_session = self._session()[0] is not None
        if has_session or sandbox is None or not _awake(sandbox):
            return super()._restart()
        self._supply(sandbox)
        return sandbox

    # --- Its end --------------------------------------------------------------------------

    def stop(self) -> bool:
        return self._end(self._stop, "stopped")

    def pause(self) -> bool:
        return self._end(self._pause, "paused")

    def _end(self, act: Callable[[TBackend], None], what: str) -> bool:
        self._settle()
        with self._lock:
            if self._instance is None:
                return False
            try:
                with self._alone(*self._session()):
                    act(self._instance)
            except SandboxError as error:
                logger.warning("the sandbox is not %s: %s", what, error)
                return False
            return True

    def _stop(self, sandbox: TBackend) -> None:
        try:
            if self._kept is not None:
                self._kept.stop()
            else:
                sandbox.remove()
        except SandboxNotFoundError:
            pass  # it has ended by itself
        sandbox.close()
        self._instance = None
        if self._kept is None and self._session()[0] is not None:
            self._save(*self._session(), {})

    def _session(self) -> tuple[Any, str, str]:
        context = self._session_context
        return context["session_manager"], context["user_id"], context["session_id"]

    def _pause(self, sandbox: TBackend) -> None:
        if self._kept is not None:
            self._kept.pause()
            return
        try:
            sandbox.pause()
        except SandboxUnsupportedError:
            pass  # it does no harm that it goes on

    def is_running(self) -> bool:
        try:
            return self._instance is not None and self._instance.state() == "running"
        except SandboxError:
            return False


def _saved(state: dict[str, Any]) -> dict[str, Any]:
    """What a saved state says about the configuration, with what was changed since."""
    names = ("clean_output", "raise_errors")
    changed = {name: state[name] for name in names if name in state}
    return {**(state.get("config") or {}), **changed}


def _without_id(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "sandbox_id"}


def _awake(sandbox: BackendSandbox) -> bool:
    """Whether it is there, and runs now."""
    try:
        state = sandbox.state()
        if state == "paused":
            sandbox.resume()
        elif state == "stopped":
            sandbox.restart()
    except SandboxNotFoundError:
        return False
    return True


@dataclass(kw_only=True)
class NativeSandboxManager(BackendSandboxManager[NativeSandbox]):
    """Sandboxes of this machine, isolated by the kernel."""

    sandbox_class = NativeSandbox
    template: str | None = None


@dataclass(kw_only=True)
class LocalSandboxManager(BackendSandboxManager[LocalSandbox]):
    """For development: nothing is isolated, and nothing is paused."""

    sandbox_class = LocalSandbox


def _timeout() -> int:
    return int(os.environ.get("E2B_TIMEOUT") or 300)


@dataclass(kw_only=True)
class E2BSandboxManager(BackendSandboxManager[E2BSandbox]):
    """Sandboxes of E2B, or of a server that speaks its protocol."""

    sandbox_class = E2BSandbox
    template: str = field(
        default_factory=lambda: os.environ.get("E2B_TEMPLATE") or "base"
    )
    timeout: int = field(default_factory=_timeout)
    """seconds"""
    api_key: str | None = field(default=None, repr=False)
    """None: E2B_API_KEY"""
    api_url: str | None = None
    metadata: dict[str, str] = field(default_factory=lambda: {})

    def _own(self) -> dict[str, Any]:
        return {"template": self.template, "timeout": self.timeout, **super()._own()}
