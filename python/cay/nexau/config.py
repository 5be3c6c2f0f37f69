# SPDX-License-Identifier: Apache-2.0
"""The map below ``sandbox_config:`` as dataclasses, for editors and type checkers.

libcay has the keys of each backend and checks their values: cay.yaml(5).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cay.errors import SandboxValueError
from cay.nexau.arguments import AcceptsOldNames, AfterRun, TracksArguments
from cay.nexau.registry import backend_of, check_type, register_types
from cay.sandbox import config as c_config
from cay.sandbox.config import Config

E2B_DEFAULT_WORK_DIR = "/home/user"


@dataclass(kw_only=True)
class BaseSandboxConfig(TracksArguments, metaclass=AcceptsOldNames):
    """The keys of every backend."""

    work_dir: str | Path | None = Path(E2B_DEFAULT_WORK_DIR)
    envs: dict[str, str] = field(default_factory=lambda: {})
    sandbox_id: str | None = None
    """use this sandbox, which must exist, instead of a new one"""
    status_after_run: AfterRun = "pause"
    """persist_sandbox=True is "pause", False is "stop\""""
    output_char_threshold: int = 10_000
    truncate_head_chars: int = 5_000
    truncate_tail_chars: int = 5_000
    clean_output: bool = True
    raise_errors: bool = False


@dataclass(kw_only=True)
class NativeSandboxConfig(BaseSandboxConfig):
    """A sandbox on this machine, isolated by the kernel."""

    type: Literal["native"] = "native"
    template: str | None = None
    limits: dict[str, Any] = field(default_factory=lambda: {})
    """memory and disk (bytes or "512M"), pids, cpu (percent of one)"""
    network: Literal["none", "host", "rules", "open"] = "none"
    allow: list[str] = field(default_factory=lambda: [])
    """network rules: pypi, api.example.com:443, *.example.com, 192.0.2.0/24:5432"""
    deny: list[str] = field(default_factory=lambda: [])
    network_groups: dict[str, str] = field(default_factory=lambda: {})
    """hosts added to groups of network rules: {"pypi": "mirror.example.com"}"""
    networks: list[str] = field(default_factory=lambda: [])
    """named networks to join: NETWORK, NETWORK:NAME"""
    secrets: dict[str, str] = field(default_factory=lambda: {})
    """values that programs inside use and never read: {"TOKEN": "env:API_TOKEN"}, file:/PATH"""
    secrets_for: list[str] = field(default_factory=lambda: [])
    """hosts that they are sent to: TOKEN=api.example.com"""
    storage: Literal["memory", "disk"] = "memory"
    checkpoint_each: bool = False
    """a checkpoint of the files before each command"""
    approve: list[str] = field(default_factory=lambda: [])
    """patterns of commands that wait for approval: git push*"""
    approve_timeout: float | None = None
    """seconds, after which the answer is no"""
    approve_egress: bool = False
    """connections to hosts that no network rule names wait for approval: cay approve watch"""
    user: str | None = None
    hostname: str | None = None
    ttl: float | None = None
    """time to live in seconds"""
    mounts: list[str] = field(default_factory=lambda: [])
    """SRC:DST, SRC:DST:ro"""
    policy: dict[str, Any] | None = None
    require: list[str] = field(default_factory=lambda: [])
    level: Literal["best", "root", "range", "single", "landlock"] = "best"
    ephemeral: bool | None = None
    """whether it ends with this process; None: if there is no session, or the session is
    in this process's memory"""


def local_work_dir() -> Path:
    return Path(os.environ.get("SANDBOX_WORK_DIR") or Path.cwd())


@dataclass(kw_only=True)
class LocalSandboxConfig(BaseSandboxConfig):
    """Commands on this machine, without isolation: for development."""

    type: Literal["local"] = "local"
    work_dir: str | Path | None = field(default_factory=local_work_dir)
    inherit_env: bool = True
    """commands inherit this process's environment"""
    ttl: float | None = None
    ephemeral: bool | None = None


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes")


@dataclass(kw_only=True)
class E2BSandboxConfig(BaseSandboxConfig):
    """A sandbox of E2B, or of a server with its protocol."""

    type: Literal["e2b"] = "e2b"
    api_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    """None: E2B_API_KEY; "${env.NAME}" is another variable"""
    domain: str | None = None
    sandbox_url: str | None = None
    """the address of the sandboxes, if they share one"""
    template: str = "base"
    timeout: int = 300
    """seconds after which an unused sandbox ends"""
    metadata: dict[str, str] = field(default_factory=lambda: {})
    keepalive_interval: int = 60
    """seconds between extensions of the timeout while it is in use; 0: never"""
    force_http: bool = field(default_factory=lambda: _is_set("E2B_FORCE_HTTP"))
    max_retries: int = 5
    """retries of requests that had no effect"""


SandboxConfig = NativeSandboxConfig | LocalSandboxConfig | E2BSandboxConfig

TYPED_CONFIGS: dict[str, type[BaseSandboxConfig]] = {
    "native": NativeSandboxConfig,
    "local": LocalSandboxConfig,
    "e2b": E2BSandboxConfig,
}


def _typed(config: Config) -> BaseSandboxConfig | dict[str, Any]:
    values, kind = config.values(), config.type
    cls = TYPED_CONFIGS.get(kind) or TYPED_CONFIGS.get(backend_of(kind))
    return values if cls is None else cls(**values)


def parse_sandbox_config(
    raw: Mapping[str, Any] | BaseSandboxConfig | None,
) -> BaseSandboxConfig | dict[str, Any] | None:
    """A map as the dataclass of its ``type`` (default "local"); for a type of your own, a
    checked map.  A dataclass is returned unchanged.

    SandboxValueError for a key or a value that the type does not have, and for an object
    that is neither a map nor such a dataclass.
    """
    if raw is None or isinstance(raw, BaseSandboxConfig):
        return raw
    if not isinstance(raw, Mapping):
        raise SandboxValueError(
            f"Invalid sandbox_config type: {type(raw).__name__}",
            op="config.parse",
            subject="sandbox_config",
            hint="pass a dict, or a NativeSandboxConfig, LocalSandboxConfig, ...",
        )
    register_types()
    check_type(raw.get("type"))
    return _typed(c_config.new(raw))


def read_yaml(path: str | os.PathLike[str]) -> BaseSandboxConfig | dict[str, Any]:
    """The map below ``sandbox_config:`` of a file, or the whole file."""
    register_types()
    return _typed(c_config.load(path))
