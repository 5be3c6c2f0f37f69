# SPDX-License-Identifier: Apache-2.0
"""The managers of libcay's backends."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cay.errors import (
    SandboxError,
    SandboxNotFoundError,
    SandboxUnsupportedError,
    SandboxValueError,
)
from cay.nexau.arguments import explicit_values, merged
from cay.nexau.backends import (
    BackendSandbox,
    E2BSandbox,
    LocalSandbox,
    NativeSandbox,
)
from cay.nexau.base import BaseSandboxManager
from cay.nexau.config import TYPED_CONFIGS, parse_sandbox_config
from cay.nexau.registry import backend_of
from cay.nexau.session import ManagerHandle, Session, SessionManager
from cay.sandbox.config import after_run

logger = logging.getLogger(__name__)

TBackend = TypeVar("TBackend", bound=BackendSandbox)


@dataclass(kw_only=True)
class BackendSandboxManager(BaseSandboxManager[TBackend]):
    """Starts sandboxes of any backend in libcay.

    It uses the sandbox of the configuration's sandbox_id (an error if it has ended), else
    the one saved with the session (if it has ended, a new one), else a new one.  With a
    SessionManager of this package, libcay does all that.
    """

    sandbox_class = BackendSandbox  # no annotation: not a field
    _handle: ManagerHandle | None = field(
        default=None, init=False, repr=False, compare=False
    )
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
            sandbox: Any = self._start_in_store(session_manager, session, values)
        else:
            self._handle = None
            sandbox = self._start_without_store(session_manager, session, values)
        return sandbox  # type: ignore[no-any-return]

    def _values(self, config: Any) -> dict[str, Any]:
        """The keys of a configuration, and those of this manager for the others."""
        backend = self.sandbox_class.backend
        if isinstance(config, Mapping) or config is None:
            default = {"type": backend} if backend else {}
            config = {**default, **(config or {})}
        config = parse_sandbox_config(config)
        given = dict(config) if isinstance(config, Mapping) else explicit_values(config)
        kind = backend_of(given["type"])
        if backend and kind != backend:
            raise SandboxValueError(
                f"{type(self).__name__} takes a {TYPED_CONFIGS[backend].__name__}, not a "
                f"configuration of type {given['type']!r}",
                op="manager.start",
                subject="type",
                hint=f"pass a {TYPED_CONFIGS[backend].__name__}, or type: {backend}",
            )
        return merged(self._own(), {**given, "type": kind})

    def _own(self) -> dict[str, Any]:
        return explicit_values(self)

    def _after_run(self) -> str | None:
        """Includes the saved configuration."""
        sandbox = self._instance
        return super()._after_run() if sandbox is None else after_run(sandbox.config)

    @staticmethod
    def _for_new(values: dict[str, Any], has_session: bool) -> dict[str, Any]:
        """The configuration of a new sandbox: without a session one on this machine is
        ephemeral, since no other process can find it."""
        is_local = values["type"] in (NativeSandbox.backend, LocalSandbox.backend)
        return {"ephemeral": not has_session, **values} if is_local else values

    # --- With libcay's store --------------------------------------------------------------

    def _exclusive(
        self, session_manager: Any, user_id: str, session_id: str
    ) -> AbstractContextManager[None]:
        if isinstance(session_manager, SessionManager):
            return nullcontext()  # libcay does it
        return super()._exclusive(session_manager, user_id, session_id)

    def _start_in_store(
        self, sessions: SessionManager, session: Session, values: dict[str, Any]
    ) -> BackendSandbox:
        names, engine = (session.user_id, session.session_id), sessions.engine
        config = self._for_new(values, engine.outlives_process)
        self._handle = ManagerHandle(engine, *names, config, sessions._pool)
        state = session.sandbox_state or {}
        id = self._handle.start(state.get("sandbox_id"))
        saved = _saved(state) if state.get("sandbox_id") == id else {}
        sandbox = self.sandbox_class.connect(id, **merged(saved, _without_id(values)))
        session.sandbox_state = self._state_of(sandbox)
        engine.describe(session)
        return sandbox

    # --- With another session manager, or none --------------------------------------------

    def _start_without_store(
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
            config = self._for_new(rest, session_manager is not None)
            sandbox = self.sandbox_class.create(**config)
        try:
            self.persist_sandbox_state(session_manager, *names, sandbox)
        except BaseException:
            if is_new:
                sandbox.remove()  # no session refers to it
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
            logger.warning(
                "the session's sandbox is not restored: it is a %s",
                state.get("sandbox_type"),
            )
            return None
        try:
            return cls.connect(id, **merged(saved, values))
        except SandboxError as error:
            logger.warning("the session's sandbox is not restored: %s", error)
            return None

    def _restart(self) -> TBackend:
        sandbox = self._instance
        has_session = self._session()[0] is not None
        if has_session or sandbox is None or not _resumed(sandbox):
            return super()._restart()
        self._upload_assets(sandbox)
        return sandbox

    # --- Stop and pause -------------------------------------------------------------------

    def stop(self) -> bool:
        return self._end(self._stop, "stopped")

    def pause(self) -> bool:
        return self._end(self._pause, "paused")

    def _end(self, act: Callable[[TBackend], None], what: str) -> bool:
        self._join_start()
        with self._lock:
            if self._instance is None:
                return False
            try:
                with self._exclusive(*self._session()):
                    act(self._instance)
            except SandboxError as error:
                logger.warning("the sandbox was not %s: %s", what, error)
                return False
            return True

    def _stop(self, sandbox: TBackend) -> None:
        try:
            if self._handle is not None:
                self._handle.stop()
            else:
                sandbox.remove()
        except SandboxNotFoundError:
            pass  # it has ended already
        sandbox.close()
        self._instance = None
        if self._handle is None and self._session()[0] is not None:
            self._save(*self._session(), {})

    def _session(self) -> tuple[Any, str, str]:
        context = self._session_context
        return context["session_manager"], context["user_id"], context["session_id"]

    def _pause(self, sandbox: TBackend) -> None:
        if self._handle is not None:
            self._handle.pause()
            return
        try:
            sandbox.pause()
        except SandboxUnsupportedError:
            pass  # it continues to run

    def is_running(self) -> bool:
        try:
            return self._instance is not None and self._instance.state() == "running"
        except SandboxError:
            return False


def _saved(state: dict[str, Any]) -> dict[str, Any]:
    """The configuration in a saved state, with the fields that may have changed."""
    names = ("clean_output", "raise_errors")
    changed = {name: state[name] for name in names if name in state}
    return {**(state.get("config") or {}), **changed}


def _without_id(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "sandbox_id"}


def _resumed(sandbox: BackendSandbox) -> bool:
    """Resumes or restarts the sandbox; False if it does not exist."""
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
    """Sandboxes on this machine, isolated by the kernel."""

    sandbox_class = NativeSandbox
    template: str | None = None


@dataclass(kw_only=True)
class LocalSandboxManager(BackendSandboxManager[LocalSandbox]):
    """Without isolation and pause: for development only."""

    sandbox_class = LocalSandbox


def _timeout() -> int:
    return int(os.environ.get("E2B_TIMEOUT") or 300)


@dataclass(kw_only=True)
class E2BSandboxManager(BackendSandboxManager[E2BSandbox]):
    """Sandboxes of E2B, or of a server with its protocol."""

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
