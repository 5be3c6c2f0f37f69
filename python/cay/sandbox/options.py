# SPDX-License-Identifier: Apache-2.0
"""From Python arguments to the option structs of sandbox.h."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref, c_void_p, sizeof
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Literal, Protocol

from cay import _c
from cay.errors import SandboxValueError
from cay.filesystem.config import SandboxConfig
from cay.filesystem.sandbox import new_policy

Size = int | str
"""Bytes, or with a unit: "512M", "1.5g", "64KiB"."""

Network = Literal["none", "host", "rules", "open"]
Storage = Literal["memory", "disk"]
Level = Literal["best", "root", "range", "single", "landlock"]
Layer = Literal[
    "user", "pid", "mount", "network", "ipc", "uts", "cgroup",
    "seccomp", "landlock", "memory", "pids", "cpu", "disk",
]  # fmt: skip

_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
CPUS_MAX = 10_000_000
"""The most that C can represent, in hundredths."""
PIDS_MAX = 2**32 - 1
_SIDE_MAX = 2**16 - 1
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True)
class Bind:
    """A host directory or file that is visible in the sandbox, or a volume: a text without
    a slash, other than "." and "..", is the name of a volume."""

    source: str | os.PathLike[str]
    target: str
    writable: bool = False
    changes: str | None = None
    """of Try.bind(): what takes the changes"""


@dataclass(frozen=True)
class Secret:
    """A value that programs inside can use and never read.

    Inside, the variable ``name`` has a placeholder.  In requests to the ``hosts``, over
    verified TLS, it is replaced: "api.example.com" in the header Authorization,
    "api.example.com:header=x-api-key" in another one, ":query" in the query.  Network rules
    must allow the hosts.
    """

    name: str
    value: str = field(repr=False)
    hosts: Sequence[str]


Volumes = Iterable[Bind | str] | Mapping[str, str]
"""Binds, "SOURCE:TARGET[:ro|rw]" as on the command line (writable unless ro), or a
mapping from SOURCE to "TARGET[:ro|rw]"."""


class Spares(Protocol):
    """A cay.Pool."""

    @property
    def _name(self) -> bytes: ...


def parse_size(value: Size, what: str, most: int = _c.U64_MAX) -> int:
    """Bytes of a size; units are powers of 1024."""
    if isinstance(value, int):
        size = value
    else:
        found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            raise SandboxValueError(
                f"invalid size {value!r}",
                subject=what,
                hint='pass bytes, or a number with a unit: "512M", "1.5g"',
            )
        unit = 1 << _UNITS[(found[2] or "").lower()]
        # A float cannot represent every large integer.
        size = int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit
    return _positive(size, what, most)


def size(value: Size | None, what: str, most: int = _c.U64_MAX) -> int:
    """None is 0, which means the default in C."""
    return 0 if value is None else parse_size(value, what, most)


def template_name(template: str | os.PathLike[str] | None) -> bytes | None:
    """A name, or the absolute path of a directory: with a slash, or "." or ".."."""
    if template is None:
        return None
    name = os.fspath(template)
    if "/" in name or name in (".", "..") or not isinstance(template, str):
        name = os.path.abspath(name)
    return text(name, "template")


def _positive(value: int, what: str, most: int) -> int:
    if value <= 0:
        raise SandboxValueError(
            f"{value} is not positive", subject=what, hint="omit it for the default"
        )
    return within(value, what, most)


def within(value: int, what: str, most: int) -> int:
    """The value, if C can represent it; ctypes would truncate it silently."""
    if not 0 <= value <= most:
        raise SandboxValueError(
            f"{value} is out of range", subject=what, hint=f"pass at most {most}"
        )
    return value


def terminal(rows: int, columns: int) -> tuple[int, int]:
    """The size of a terminal; 0 is the default."""
    return within(rows, "rows", _SIDE_MAX), within(columns, "columns", _SIDE_MAX)


def cpu_percent(cpus: float | None) -> int:
    """None is 0, which means no limit in C."""
    if cpus is None:
        return 0
    if not isinstance(cpus, Real) or not 0.01 <= cpus <= CPUS_MAX:  # false for NaN
        raise SandboxValueError(
            f"invalid number of CPUs {cpus!r}",
            subject="cpus",
            hint=f"pass 0.01 to {CPUS_MAX}, or None for no limit",
        )
    return round(cpus * 100)


def milliseconds(seconds: float | None, what: str) -> int:
    """None is 0, which means no limit in C."""
    if seconds is None:
        return 0
    if not isinstance(seconds, Real) or not 0 < seconds < 1e12:
        raise SandboxValueError(
            f"invalid time in seconds {seconds!r}",
            subject=what,
            hint="pass a positive number, or None for no limit",
        )
    return max(int(seconds * 1000), 1)


def text(value: str | os.PathLike[str], what: str) -> bytes:
    """A string for C."""
    try:
        value_text = os.fspath(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{what}: expected str or os.PathLike, not {kind}") from None
    name = _c.encode(value_text)
    if name is None:
        if "\0" in value_text:
            wrong, number = "embedded null byte", 0
        else:
            wrong, number = "lone surrogate", errno.EILSEQ
        raise SandboxValueError(
            f"{wrong} in {value_text[:100]!r}",
            errno=number,
            subject=what,
            hint="remove it",
        )
    return name


def optional(value: str | os.PathLike[str] | None, what: str) -> bytes | None:
    return None if value is None else text(value, what)


def preload(modules: Sequence[str] | None) -> bytes | None:
    """Names of modules, as C takes them."""
    if modules is None:
        return None
    if isinstance(modules, str):
        raise TypeError("preload: expected a sequence of str, not str")
    return text(",".join(modules), "preload")


def choice(value: str, names: dict[int, str], what: str) -> int:
    for number, name in names.items():
        if name == value:
            return number
    raise SandboxValueError(
        f"unknown {what} {value!r}",
        subject=what,
        hint=f"use one of: {', '.join(names.values())}",
    )


def texts(values: Iterable[str], what: str) -> list[str]:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{what}: expected a list, not a string")
    return list(values)


def strings(values: Iterable[str], what: str) -> Any:
    """Strings for C, or None."""
    found = [text(value, what) for value in texts(values, what)]
    return _c.null_terminated(found) if found else None


def environment(env: Mapping[str, str] | None, what: str = "env") -> Any:
    """ "NAME=value" strings for C, or None."""
    if not env:
        return None
    if not isinstance(env, Mapping):
        raise SandboxValueError(
            f"expected a mapping, not {type(env).__name__}",
            subject=what,
            hint='pass {"NAME": "value"}',
        )
    pairs = []
    for name, value in env.items():
        if not name or "=" in name:
            raise SandboxValueError(
                f"invalid variable name {name!r}",
                subject=what,
                hint="a name must not be empty or contain '='",
            )
        if value is None:
            raise SandboxValueError(
                f"the variable {name!r} has no value", subject=what, hint="remove it"
            )
        pairs.append(text(f"{name}={value}", what))
    return _c.null_terminated(pairs)


def layers(names: Iterable[str]) -> int:
    bits = 0
    for name in names:
        bits |= choice(name, _c.LAYERS, "layer")
    return bits


def binds(volumes: Volumes | None) -> list[Bind]:
    if volumes is None:
        return []
    if isinstance(volumes, Mapping):
        return [_parse_volume(f"{source}:{rest}") for source, rest in volumes.items()]
    return [one if isinstance(one, Bind) else _parse_volume(one) for one in volumes]


def _parse_volume(volume: str) -> Bind:
    source, *rest = volume.split(":")
    if not source or not rest or len(rest) > 2 or rest[1:] not in ([], ["ro"], ["rw"]):
        raise SandboxValueError(
            f"invalid volume {volume!r}",
            subject="volumes",
            hint="use SOURCE:TARGET, SOURCE:TARGET:ro or SOURCE:TARGET:rw",
        )
    return Bind(source, rest[0], writable=rest[1:] != ["ro"])


def is_volume(source: str | os.PathLike[str]) -> bool:
    """Whether it is the name of a volume and not a path."""
    return isinstance(source, str) and "/" not in source and source not in ("", ".", "..")


def bind_array(volumes: Volumes | None) -> tuple[Any, int]:
    listed = binds(volumes)
    array = (_c.Bind * max(len(listed), 1))()
    for item, bind in zip(array, listed):
        # Relative to this process, not to PID 1 of the sandbox.
        path = bind.source if is_volume(bind.source) else os.path.abspath(bind.source)
        item.source = text(path, "volumes")
        item.target = text(bind.target, "volumes")
        item.writable = bind.writable
        item.changes = optional(bind.changes, "volumes")
    return array, len(listed)


def network_rules(allow: Iterable[str], deny: Iterable[str]) -> list[bytes]:
    """Rules of both kinds, as C has them."""
    return [text(rule, "allow") for rule in texts(allow, "allow")] + [
        b"!" + text(rule, "deny") for rule in texts(deny, "deny")
    ]


APPROVE_MS = 600_000  # CAY_PENDING_TIMEOUT_MS


def network_config(
    number: int, rules: list[bytes], limits: str | None = None, approve_ms: int = 0
) -> _c.NetworkConfig:
    return _c.NetworkConfig(
        size=sizeof(_c.NetworkConfig),
        network=number,
        rules=_c.string_array(rules),
        rule_count=len(rules),
        limits=optional(limits, "network_limit"),
        approve_ms=approve_ms,
    )


def secret_array(secrets: Iterable[Secret]) -> tuple[Any, int]:
    listed = list(secrets)
    array = (_c.Secret * max(len(listed), 1))()
    for item, secret in zip(array, listed):
        hosts = [text(host, "secrets") for host in texts(secret.hosts, "secrets")]
        item.name = text(secret.name, "secrets")
        item.value = text(secret.value, "secrets")
        item.hosts = _c.string_array(hosts)
        item.host_count = len(hosts)
    return array, len(listed)


class Policy:
    """A cay_policy, for the time a sandbox is created with it."""

    def __init__(self, policy: SandboxConfig | str | os.PathLike[str] | None) -> None:
        self.pointer: int | None = None
        if policy is None:
            return
        if isinstance(policy, SandboxConfig):
            self.pointer = new_policy(policy, Path.cwd())
            return
        pointer = c_void_p()
        _c.call(_c.policy_load, text(policy, "policy"), None, byref(pointer))
        self.pointer = pointer.value

    def add_network(
        self,
        network: Network,
        allow: Iterable[str],
        deny: Iterable[str],
        limits: str | None = None,
        approve_ms: int = 0,
    ) -> int:
        """Adds network rules; returns the network of the sandbox, a number of C.  Other
        connections wait for approval for ``approve_ms``; 0: they are refused."""
        number = choice(network, _c.NETWORKS, "network")
        rules = network_rules(allow, deny)
        if approve_ms and network in ("host", "open"):
            raise SandboxValueError(
                "this network has no hosts that wait for approval",
                subject="approve_egress",
                hint='leave out network=, or use network="rules"',
            )
        only_denies = rules and all(rule.startswith(b"!") for rule in rules)
        if only_denies and not approve_ms and network == "none":
            raise SandboxValueError(
                "nothing is allowed that deny= could deny",
                subject="deny",
                hint='add allow=["pypi"], or network="open"',
            )
        if network == "host" and (rules or limits):
            raise SandboxValueError(
                "allow=, deny= and network_limit= have no effect on the host's network",
                subject="network",
                hint='leave out network="host", or use network="open"',
            )
        has_any = bool(rules or limits or approve_ms)
        if network == "host" or (network == "none" and not has_any):
            return number
        config = network_config(number, rules, limits, approve_ms)
        pointer = c_void_p()
        _c.call(_c.policy_add_network, self.pointer, byref(config), byref(pointer))
        _c.policy_free(self.pointer)
        self.pointer = pointer.value
        return 0

    def __enter__(self) -> Policy:
        return self

    def __exit__(self, *_: object) -> None:
        _c.policy_free(self.pointer)


class Command:
    """A cay_exec_options and the memory it points to."""

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: str | bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
        output_limit: Size | None = None,
        flags: int = 0,
        tag: str | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        if isinstance(argv, (str, bytes)):
            raise TypeError(
                "argv: expected a list of arguments, not a string; "
                'to run a script, use shell() or ["sh", "-c", script]'
            )
        words = [text(word, "argv") for word in argv]
        if not words:
            raise SandboxValueError(
                "the command is empty",
                subject="argv",
                hint="pass at least the name of a program",
            )
        rows, columns = terminal(*(size or (0, 0)))
        self.options = _c.ExecOptions(
            size=sizeof(_c.ExecOptions),
            flags=flags,
            argv=_c.null_terminated(words),
            env=environment(env),
            cwd=optional(cwd, "cwd"),
            user=None if user is None else text(str(user), "user"),
            timeout_ms=milliseconds(timeout, "timeout"),
            output_limit=0
            if output_limit is None
            else parse_size(output_limit, "output_limit"),
            tag=optional(tag, "tag"),
            rows=rows,
            columns=columns,
        )
        self._input = input
        if isinstance(input, str):
            self.options.input, self.options.input_len = _utf8(input)
        elif input is not None:
            self._input = bytes(memoryview(input))  # bytes(5) would be five zeros
            self.options.input = _c.address(self._input)
            self.options.input_len = len(self._input)


def _utf8(content: str) -> tuple[int, int]:
    try:
        return _c.utf8(content)
    except UnicodeEncodeError:
        raise SandboxValueError(
            "the input contains a lone surrogate",
            errno=errno.EILSEQ,
            subject="input",
            hint="pass bytes, or remove characters from U+D800 to U+DFFF",
        ) from None
