# SPDX-License-Identifier: Apache-2.0
"""What a sandbox is to be like: the map below ``sandbox_config:``, with types.

libcay knows which keys each backend has and what they may hold (cay.yaml(5)); here they
are dataclasses, so that editors and type checkers know them too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_void_p, string_at
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cay import _config_lib, _lib
from cay.sandbox import alias, custom
from cay.sandbox.errors import SandboxValueError, error_of
from cay.sandbox.options import text
from cay.sandbox.spelling import AfterRun, Given, Spelled

__all__ = [
    "E2B_DEFAULT_WORK_DIR",
    "BaseSandboxConfig",
    "E2BSandboxConfig",
    "LocalSandboxConfig",
    "NativeSandboxConfig",
    "SandboxConfig",
    "parse_sandbox_config",
    "read_yaml",
]

E2B_DEFAULT_WORK_DIR = "/home/user"

@dataclass(kw_only=True)
class BaseSandboxConfig(Given, metaclass=Spelled):
    """What every backend has."""

    work_dir: str | Path | None = Path(E2B_DEFAULT_WORK_DIR)
    envs: dict[str, str] = field(default_factory=lambda: {})
    sandbox_id: str | None = None
    """use this one, which must be there, rather than make one"""
    status_after_run: AfterRun = "pause"
    """persist_sandbox=True is "pause", False is "stop\""""
    output_char_threshold: int = 10_000
    truncate_head_chars: int = 5_000
    truncate_tail_chars: int = 5_000
    clean_output: bool = True
    raise_errors: bool = False


@dataclass(kw_only=True)
class NativeSandboxConfig(BaseSandboxConfig):
    """A sandbox of this machine, isolated by the kernel."""

    type: Literal["native"] = "native"
    template: str | None = None
    limits: dict[str, Any] = field(default_factory=lambda: {})
    """memory and disk (bytes or "512M"), pids, cpu (percent of one)"""
    network: Literal["none", "host"] = "none"
    storage: Literal["memory", "disk"] = "memory"
    user: str | None = None
    hostname: str | None = None
    ttl: float | None = None
    """seconds after which it ends by itself"""
    mounts: list[str] = field(default_factory=lambda: [])
    """SRC:DST, SRC:DST:ro"""
    policy: dict[str, Any] | None = None
    require: list[str] = field(default_factory=lambda: [])
    rung: Literal["best", "root", "range", "single", "landlock"] = "best"
    ephemeral: bool | None = None
    """whether it ends with this process; None: if nothing else could find it, for there
    is no session or it is in this process's memory"""


def local_work_dir() -> Path:
    return Path(os.environ.get("SANDBOX_WORK_DIR") or Path.cwd())


@dataclass(kw_only=True)
class LocalSandboxConfig(BaseSandboxConfig):
    """Commands on this machine, without isolation: for development."""

    type: Literal["local"] = "local"
    work_dir: str | Path | None = field(default_factory=local_work_dir)
    inherit_env: bool = True
    """commands have this process's environment, too"""
    ttl: float | None = None
    ephemeral: bool | None = None


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes")


@dataclass(kw_only=True)
class E2BSandboxConfig(BaseSandboxConfig):
    """A sandbox of E2B, or of a server that speaks its protocol."""

    type: Literal["e2b"] = "e2b"
    api_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    """None: E2B_API_KEY; "${env.NAME}" is another variable"""
    domain: str | None = None
    sandbox_url: str | None = None
    """where the sandboxes are, if they share one address"""
    template: str = "base"
    timeout: int = 300
    """seconds after which it ends unless it is used"""
    metadata: dict[str, str] = field(default_factory=lambda: {})
    keepalive_interval: int = 60
    """seconds after which one in use lives for its timeout again; 0: never"""
    force_http: bool = field(default_factory=lambda: _is_set("E2B_FORCE_HTTP"))
    max_retries: int = 5
    """of requests that did nothing"""


SandboxConfig = NativeSandboxConfig | LocalSandboxConfig | E2BSandboxConfig

_TYPED: dict[str, type[BaseSandboxConfig]] = {
    "native": NativeSandboxConfig,
    "local": LocalSandboxConfig,
    "e2b": E2BSandboxConfig,
}


# --- Through libcay ---------------------------------------------------------------------


def new(values: Mapping[str, Any], restored: bool = False) -> int | None:
    """A cay_config of the map below ``sandbox_config:``; config_free() it.

    One that is ``restored`` may refer to variables that are not set here.
    """
    handle, err = c_void_p(), _lib.Error()
    if restored:
        document = json.dumps(dict(values), default=_plain).encode()
        failed = _config_lib.config_restore(document, byref(handle), byref(err))
    else:
        document = json.dumps({"sandbox_config": dict(values)}, default=_plain).encode()
        failed = _config_lib.config_parse(
            document, len(document), b"sandbox_config", None, byref(handle), byref(err)
        )
    if failed:
        raise error_of(err)
    return handle.value


@contextmanager
def parsed(values: Mapping[str, Any], restored: bool = False) -> Iterator[int]:
    """The same for a while."""
    handle = new(values, restored)
    try:
        yield handle or 0
    finally:
        _config_lib.config_free(handle)


def _plain(value: Any) -> Any:
    """What JSON has for what it has not."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise SandboxValueError(
        f"a configuration has no {type(value).__name__}: {value!r}",
        op="config.parse",
        hint="write texts, numbers, lists and maps",
    )


def stored(config: int) -> dict[str, Any]:
    """What was written, with secrets only as references to where they are."""
    written, err = c_void_p(), _lib.Error()
    if _config_lib.config_json(config, byref(written), byref(err)):
        raise error_of(err)
    try:
        return dict(json.loads(string_at(written.value or 0)))
    finally:
        _lib.free(written)


def whole(config: int) -> dict[str, Any]:
    """What was written, secrets too."""
    values = stored(config)
    backend = _config_lib.backend_find(_config_lib.config_type(config))
    for at in range(backend.contents.field_count):
        one = backend.contents.fields[at]
        if _config_lib.FIELD_TYPES[one.type] == "secret":
            secret = _config_lib.config_text(config, one.name)
            if secret is not None and _config_lib.config_has(config, one.name):
                values.setdefault(one.name.decode(), secret.decode())
    return values


def environment(config: int) -> dict[str, str]:
    """The variables of every command, with what they refer to."""
    found = {}
    name, value = c_char_p(), c_char_p()
    for at in range(_config_lib.config_count(config, b"envs")):
        _config_lib.config_item(config, b"envs", at, byref(name), byref(value))
        if name.value is not None and value.value is not None:
            found[_lib.decode(name.value)] = _lib.decode(value.value)
    return found


def after_run(values: Mapping[str, Any]) -> str | None:
    """What is to happen after a run, if somebody wrote that."""
    with parsed(values, restored=True) as config:
        names = (b"status_after_run", b"persist_sandbox")
        if not any(_config_lib.config_has(config, name) for name in names):
            return None
        after: bytes | None = _config_lib.config_text(config, names[0])
        return None if after is None else after.decode()


def _typed(config: int) -> BaseSandboxConfig | dict[str, Any]:
    values, kind = whole(config), _config_lib.config_type(config).decode()
    cls = _TYPED.get(kind) or _TYPED.get(alias.backend_of(kind))
    return values if cls is None else cls(**values)


def parse_sandbox_config(
    raw: Mapping[str, Any] | BaseSandboxConfig | None,
) -> BaseSandboxConfig | dict[str, Any] | None:
    """A map as the dataclass of its ``type`` (without one: "local"); for a type of your
    own, a checked map.  What is a dataclass already is given back.

    SandboxValueError for a key that the type does not have, for a value that its key does
    not take, and for what is neither.
    """
    if raw is None or isinstance(raw, BaseSandboxConfig):
        return raw
    if not isinstance(raw, Mapping):
        raise SandboxValueError(
            f"Invalid sandbox_config type: {type(raw).__name__}",
            op="config.parse",
            subject="sandbox_config",
            hint="give a dict, or a NativeSandboxConfig, LocalSandboxConfig, ...",
        )
    custom.register_all()
    alias.check_alias(raw.get("type"))
    with parsed(raw) as config:
        return _typed(config)


def read_yaml(path: str | os.PathLike[str]) -> BaseSandboxConfig | dict[str, Any]:
    """The map below ``sandbox_config:`` of a file, or the whole of it."""
    custom.register_all()
    handle, err = c_void_p(), _lib.Error()
    if _config_lib.config_load(text(path, "path"), byref(handle), byref(err)):
        raise error_of(err)
    try:
        return _typed(handle.value or 0)
    finally:
        _config_lib.config_free(handle)
