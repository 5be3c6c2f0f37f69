# SPDX-License-Identifier: Apache-2.0
"""As much of an agent as has to do with its sandbox: which one, whose, and what becomes
of it after a run.  What the agent thinks with is not our business."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import uuid4

from cay.sandbox.alias import check_alias, manager_class, sandbox_class
from cay.sandbox.backends import BackendSandbox
from cay.sandbox.base import BaseSandbox
from cay.sandbox.configs import (
    BaseSandboxConfig,
    NativeSandboxConfig,
    parse_sandbox_config,
    read_yaml,
)
from cay.sandbox.errors import SandboxValueError
from cay.sandbox.manager import BaseSandboxManager, SessionStore
from cay.sandbox.managers import BackendSandboxManager
from cay.sandbox.session import InMemoryDatabaseEngine, SessionManager
from cay.sandbox.spelling import extract_dataclass_init_kwargs, respelled

__all__ = ["Agent", "AgentConfig", "AgentState", "make_manager"]

R = TypeVar("R")


@dataclass(kw_only=True)
class AgentState:
    """What a tool is given."""

    agent_name: str = ""
    user_id: str = ""
    session_id: str = ""
    context: dict[str, Any] = field(default_factory=lambda: {})
    sandbox_manager: BaseSandboxManager[Any] | None = None
    sandbox: BaseSandbox | None = None

    def get_sandbox(self) -> BaseSandbox | None:
        """The agent's sandbox, started or resumed if need be."""
        if self.sandbox_manager is not None:
            return self.sandbox_manager.instance
        return self.sandbox


@dataclass(kw_only=True)
class AgentConfig:
    """A name, a model that is not looked at, and what the sandbox is to be like."""

    name: str | None = None
    llm_config: Any = None
    sandbox_config: BaseSandboxConfig | dict[str, Any] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "sandbox_config":
            value = parse_sandbox_config(value)
        super().__setattr__(name, value)

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> AgentConfig:
        """``name`` and ``llm_config`` as they are written, and ``sandbox_config``, without
        which it is None; other keys are left alone.  A file that has none of the three is
        the configuration of a sandbox."""
        agent = _agent_of(path)
        name, config = agent.get("name"), agent.get("sandbox_config")
        if isinstance(config, Mapping):
            check_alias(config.get("type"))
        return cls(
            name=None if name is None else str(name),
            llm_config=agent.get("llm_config"),
            sandbox_config=None if agent and config is None else read_yaml(path),
        )


def _agent_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file says of an agent; one that cannot be read, nothing."""
    import yaml

    try:
        document = yaml.safe_load(Path(path).read_bytes())
    except OSError:
        return {}  # libcay says why
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SandboxValueError(
            f"it is no YAML: {error}", op="config.load", subject=os.fspath(path)
        ) from None
    keys = ("name", "llm_config", "sandbox_config")
    is_map = isinstance(document, dict)
    return {key: document[key] for key in keys if key in document} if is_map else {}


def make_manager(
    config: BaseSandboxConfig | Mapping[str, Any] | None,
) -> tuple[BaseSandboxManager[Any], Any]:
    """The manager for a configuration (None: a native sandbox), and what is left of it
    for start(): what is a field of a manager of your own is given to that."""
    config = NativeSandboxConfig() if config is None else parse_sandbox_config(config)
    assert config is not None
    given = config if isinstance(config, Mapping) else vars(config)
    sandbox = sandbox_class(given["type"])
    cls = manager_class(sandbox)
    if not isinstance(config, Mapping) or issubclass(sandbox, BackendSandbox):
        manager = cls()
        if isinstance(manager, BackendSandboxManager) and issubclass(
            sandbox, BackendSandbox
        ):
            manager.sandbox_class = sandbox
        return manager, config
    own = {one.name for one in fields(cls)} - {
        one.name for one in fields(BaseSandboxManager)
    }
    manager = cls(**extract_dataclass_init_kwargs(cls, respelled(cls, config)))
    return manager, {name: one for name, one in config.items() if name not in own}


class Agent:
    """A session and its sandbox, which is started when it is first asked for.

    Sessions are kept in this process's memory, and their sandboxes end with it, unless
    there is a ``session_manager``; with None they are not kept.
    """

    def __init__(
        self,
        *,
        config: AgentConfig,
        session_manager: SessionStore | None | Literal["shared"] = "shared",
        user_id: str = "default",
        session_id: str | None = None,
    ) -> None:
        self.config = config
        if session_manager == "shared":
            engine = InMemoryDatabaseEngine.get_shared_instance()
            session_manager = SessionManager(engine=engine)
        self._session_manager = session_manager
        self._user_id = user_id
        self._session_id = uuid4().hex if session_id is None else session_id
        self.sandbox_manager, rest = make_manager(config.sandbox_config)
        self.sandbox_manager.prepare_session_context(
            session_manager, self._user_id, self._session_id, rest
        )

    @classmethod
    def from_config(cls, path: str | os.PathLike[str], **options: Any) -> Agent:
        """By a YAML file."""
        return cls(config=AgentConfig.from_yaml(path), **options)

    @property
    def state(self) -> AgentState:
        """For tools."""
        return AgentState(
            agent_name=self.config.name or "",
            user_id=self._user_id,
            session_id=self._session_id,
            sandbox_manager=self.sandbox_manager,
        )

    def run(self, task: Callable[[AgentState], R]) -> R:
        """Does something with the sandbox; then it is paused, stopped or kept, as the
        configuration says."""
        if not callable(task):
            raise SandboxValueError(
                f"the task is a {type(task).__name__}, not a function",
                op="agent.run",
                subject="task",
                hint="this Agent has no model to give a prompt to: pass a function that "
                "is called with the AgentState, or use NexAU's Agent with cay.nexau",
            )
        try:
            return task(self.state)
        finally:
            self.sandbox_manager.run_done()
