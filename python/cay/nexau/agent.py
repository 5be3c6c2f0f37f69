# SPDX-License-Identifier: Apache-2.0
"""The part of an agent that concerns its sandbox: configuration, session, end of a run.
There is no model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import uuid4

from cay.errors import SandboxValueError
from cay.nexau.arguments import current_names, extract_dataclass_init_kwargs
from cay.nexau.backends import BackendSandbox
from cay.nexau.base import BaseSandbox, BaseSandboxManager, SessionStore
from cay.nexau.config import (
    BaseSandboxConfig,
    NativeSandboxConfig,
    parse_sandbox_config,
    read_yaml,
)
from cay.nexau.managers import BackendSandboxManager
from cay.nexau.registry import check_type, manager_class, sandbox_class
from cay.nexau.session import InMemoryDatabaseEngine, SessionManager

R = TypeVar("R")


@dataclass(kw_only=True)
class AgentState:
    """The state that a tool gets."""

    agent_name: str = ""
    user_id: str = ""
    session_id: str = ""
    context: dict[str, Any] = field(default_factory=lambda: {})
    sandbox_manager: BaseSandboxManager[Any] | None = None
    sandbox: BaseSandbox | None = None

    def get_sandbox(self) -> BaseSandbox | None:
        """The agent's sandbox; starts or resumes it if it does not run."""
        if self.sandbox_manager is not None:
            return self.sandbox_manager.instance
        return self.sandbox


@dataclass(kw_only=True)
class AgentConfig:
    """A name, the configuration of a model, which is not used, and of the sandbox."""

    name: str | None = None
    llm_config: Any = None
    sandbox_config: BaseSandboxConfig | dict[str, Any] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "sandbox_config":
            value = parse_sandbox_config(value)
        super().__setattr__(name, value)

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> AgentConfig:
        """Reads ``name``, ``llm_config`` and ``sandbox_config``, each optional; other keys
        are ignored.  A file with none of the three is the configuration of a sandbox."""
        agent = _agent_of(path)
        name, config = agent.get("name"), agent.get("sandbox_config")
        if isinstance(config, Mapping):
            check_type(config.get("type"))
        return cls(
            name=None if name is None else str(name),
            llm_config=agent.get("llm_config"),
            sandbox_config=None if agent and config is None else read_yaml(path),
        )


def _agent_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The keys of an agent in a file; none if it cannot be read."""
    import yaml

    try:
        document = yaml.safe_load(Path(path).read_bytes())
    except OSError:
        return {}  # libcay reports the error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SandboxValueError(
            f"invalid YAML: {error}", op="config.load", subject=os.fspath(path)
        ) from None
    keys = ("name", "llm_config", "sandbox_config")
    is_map = isinstance(document, dict)
    return {key: document[key] for key in keys if key in document} if is_map else {}


def make_manager(
    config: BaseSandboxConfig | Mapping[str, Any] | None,
) -> tuple[BaseSandboxManager[Any], Any]:
    """The manager for a configuration (None: a native sandbox), and the configuration for
    its start(), without the keys that are fields of a manager of your own."""
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
    manager = cls(**extract_dataclass_init_kwargs(cls, current_names(cls, config)))
    return manager, {name: one for name, one in config.items() if name not in own}


class Agent:
    """A session and its sandbox, which is started on first use.

    By default the session is in this process's memory, and its sandbox ends with the
    process; with ``session_manager=None`` there is no session.
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
        """Creates an agent from a YAML file."""
        return cls(config=AgentConfig.from_yaml(path), **options)

    @property
    def state(self) -> AgentState:
        """The state for tools."""
        return AgentState(
            agent_name=self.config.name or "",
            user_id=self._user_id,
            session_id=self._session_id,
            sandbox_manager=self.sandbox_manager,
        )

    def run(self, task: Callable[[AgentState], R]) -> R:
        """Calls ``task``, then pauses or stops the sandbox, or leaves it running, as
        configured."""
        if not callable(task):
            raise SandboxValueError(
                f"expected a function, not a {type(task).__name__}",
                op="agent.run",
                subject="task",
                hint="this Agent has no model for a prompt: pass a function that takes the "
                "AgentState, or use NexAU's Agent with CaySandboxManager",
            )
        try:
            return task(self.state)
        finally:
            self.sandbox_manager.run_done()
