# SPDX-License-Identifier: Apache-2.0
"""Results of commands, and descriptions of sandboxes, processes and templates."""

from __future__ import annotations

import errno
from ctypes import byref
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal

from cay import _c
from cay.errors import SandboxExecError

Cause = Literal[
    "exited", "signalled", "timeout", "memory", "output-limit", "gone", "not-started"
]


@dataclass(frozen=True)
class ExecResult:
    """The exit status and the output of a command."""

    exit_code: int
    """its own; 128 + N for signal N, 124 on timeout, 126 or 127 if it was not started"""
    cause: Cause
    """why it ended; "gone": the sandbox ended"""
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    stdout_dropped: int = 0
    """bytes lost before those in stdout_bytes"""
    stderr_dropped: int = 0
    signal: int = 0
    """the signal that ended it, or 0"""
    exec_errno: int = 0
    """the errno of execve(2) if it could not be started, or 0"""
    reason: str = ""
    """the same in words, with the name of the missing file"""
    user_time: float = 0.0
    """seconds, as all times"""
    system_time: float = 0.0
    wall_time: float = 0.0
    peak_memory: int = 0
    """bytes, of the largest process"""
    memory_kills: int = 0
    """processes in the sandbox that the memory limit killed while the command ran"""
    refused_forks: int = 0
    """forks that failed because of the limit of processes"""

    @classmethod
    def not_started(cls, error: SandboxExecError) -> ExecResult:
        """The result of a command that could not be started."""
        number = error.errno or 0
        return cls(
            exit_code=127 if number == errno.ENOENT else 126,
            cause="not-started",
            stdout_bytes=b"",
            stderr_bytes=b"",
            exec_errno=number,
            reason=f"{error.subject}: {error.message}",
        )

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.cause == "exited" and self.exit_code == 0

    @cached_property
    def stdout(self) -> str:
        """As text, with U+FFFD for bytes that are not UTF-8."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @cached_property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    def __repr__(self) -> str:
        why = f"reason={self.reason!r}, " if self.reason else ""
        why += f"signal={self.signal}, " if self.signal else ""
        return (
            f"ExecResult(exit_code={self.exit_code}, cause={self.cause!r}, {why}"
            f"stdout={self.stdout_bytes[-200:]!r}, stderr={self.stderr_bytes[-200:]!r})"
        )

    @classmethod
    def _of(cls, result: Any) -> ExecResult:
        """From a cay_exec_result, which is freed."""
        try:
            return cls(
                exit_code=result.exit_code,
                cause=_c.CAUSES[result.cause],  # type: ignore[arg-type]
                stdout_bytes=_c.data(result.out, result.out_len),
                stderr_bytes=_c.data(result.error, result.error_len),
                stdout_dropped=result.out_dropped,
                stderr_dropped=result.error_dropped,
                signal=result.signal,
                exec_errno=result.exec_errno,
                user_time=result.user_us / 1e6,
                system_time=result.system_us / 1e6,
                wall_time=result.wall_us / 1e6,
                peak_memory=result.peak_memory,
                memory_kills=result.memory_kills,
                refused_forks=result.refused_forks,
            )
        finally:
            _c.exec_done(byref(result))


class Stream(IntEnum):
    """The stream that a process wrote to: equal to its descriptor, printed as its name."""

    STDOUT = 1
    """also a terminal"""
    STDERR = 2

    def __str__(self) -> str:
        return self.name.lower()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


@dataclass(frozen=True)
class Output:
    """A piece of the output of a process."""

    stream: Stream
    data: bytes
    dropped: int = 0
    """bytes lost before these because they were not read in time"""


@dataclass(frozen=True)
class SandboxInfo:
    """The options, state and resource usage of a sandbox."""

    id: str
    state: Literal["running", "paused", "stopped", "damaged", "spare"]
    level: Literal["root", "range", "single", "landlock", "none"]
    network: Literal["none", "host", "rules", "open"]
    storage: Literal["memory", "disk"]
    ephemeral: bool
    template: str
    user: str
    workdir: str
    created: float
    """seconds since 1970"""
    ttl_left: float | None
    """seconds; None: no time to live"""
    memory: int
    disk: int
    pids: int
    cpus: float | None
    """None: no limit"""
    memory_used: int
    disk_used: int
    pids_used: int
    cpu_time: float
    init_pid: int
    """PID 1 of the sandbox, in the host's PID namespace; 0 if it is stopped"""
    id_base: int
    """the first of its user ids on the host"""
    id_count: int
    layers: frozenset[str]
    """the active isolation layers"""
    enforced: dict[str, str]
    """the mechanism of each"""
    type: str = "native"
    """its backend; "local" does not isolate"""
    name: str | None = None
    networks: tuple[str, ...] = ()
    """the named networks that it has joined, as NETWORK:NAME"""
    volumes: tuple[str, ...] = ()
    """the names of its volumes"""

    @classmethod
    def _of(cls, info: Any) -> SandboxInfo:
        return cls(
            id=info.id.decode(),
            state=_c.STATES[info.state],  # type: ignore[arg-type]
            level=_c.LEVELS[info.level],  # type: ignore[arg-type]
            network=_c.NETWORKS[info.network],  # type: ignore[arg-type]
            storage=_c.STORAGES[info.storage],  # type: ignore[arg-type]
            ephemeral=info.ephemeral,
            template=_c.decode(info.template_name),
            user=_c.decode(info.user),
            workdir=_c.decode(info.workdir),
            created=info.created_ms / 1000,
            ttl_left=info.ttl_left_ms / 1000 if info.ttl_left_ms else None,
            memory=info.memory_bytes,
            disk=info.disk_bytes,
            pids=info.pids,
            cpus=info.cpu_percent / 100 if info.cpu_percent else None,
            memory_used=info.memory_used,
            disk_used=info.disk_used,
            pids_used=info.pids_used,
            cpu_time=info.cpu_us / 1e6,
            init_pid=info.init_pid,
            id_base=info.id_base,
            id_count=info.id_count,
            layers=layer_names(info.layers),
            enforced={
                _c.LAYERS[one.layer]: _c.decode(one.by)
                for one in info.enforced[: info.enforced_count]
            },
            type=info.type.decode(),
            name=info.name.decode() or None,
            networks=tuple(info.networks.decode().split()),
            volumes=tuple(info.volumes.decode().split()),
        )


def layer_names(layers: int) -> frozenset[str]:
    return frozenset(
        name for layer, name in _c.LAYERS.items() if layers & layer
    )


@dataclass(frozen=True)
class ProcessInfo:
    """A process in a sandbox."""

    pid: int
    parent: int
    """0 if it was started from the host"""
    uid: int
    is_command: bool
    """started by exec() or start(), rather than by another process"""
    is_background: bool
    has_ended: bool
    """a background command that has ended and whose result was not fetched yet"""
    exit_code: int | None
    state: str
    """the letter in ps(1)"""
    tag: str
    command: str
    started: float
    """seconds since 1970"""
    cpu_time: float
    memory: int

    @classmethod
    def _of(cls, info: Any) -> ProcessInfo:
        return cls(
            pid=info.pid,
            parent=info.parent,
            uid=info.uid,
            is_command=info.is_command,
            is_background=info.is_background,
            has_ended=info.has_ended,
            exit_code=info.exit_code if info.has_ended else None,
            state=info.state.decode("ascii", "replace"),
            tag=_c.decode(info.tag),
            command=_c.decode(info.command),
            started=info.started_ms / 1000,
            cpu_time=info.cpu_us / 1e6,
            memory=info.memory_bytes,
        )


@dataclass(frozen=True)
class TemplateInfo:
    """A root file system for sandboxes."""

    name: str
    source: str
    """dir, tar, oci, image, debootstrap, sandbox, build or builtin"""
    origin: str
    """the directory, file or suite it was created from"""
    created: float
    bytes: int
    user: str | None
    """the user that the image names for its commands"""
    workdir: str | None

    @classmethod
    def _of(cls, info: Any) -> TemplateInfo:
        return cls(
            name=_c.decode(info.name),
            source=_c.decode(info.source),
            origin=_c.decode(getattr(info, "from")),
            created=info.created_ms / 1000,
            bytes=info.bytes,
            user=_c.decode(info.user) or None,
            workdir=_c.decode(info.workdir) or None,
        )


@dataclass(frozen=True)
class Check:
    """Whether the host has one facility."""

    facility: str
    finding: Literal["ok", "weaker", "missing"]
    detail: str
    fix: str | None
    """the command that fixes it"""

    @classmethod
    def _of(cls, check: Any) -> Check:
        return cls(
            facility=_c.decode(check.facility),
            finding=_c.FINDINGS[check.finding],  # type: ignore[arg-type]
            detail=_c.decode(check.detail),
            fix=_c.decode(check.fix) or None,
        )
