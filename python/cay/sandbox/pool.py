# SPDX-License-Identifier: Apache-2.0
"""Pools: sandboxes that are created before they are requested."""

from __future__ import annotations

import os
import threading
import time
from ctypes import byref, c_void_p, pointer, sizeof
from dataclasses import dataclass
from typing import Any, TypeVar

from cay import _c
from cay.errors import SandboxTimeoutError, SandboxValueError
from cay.sandbox import options as _options
from cay.sandbox.options import Level, Network, Size, Volumes
from cay.sandbox.sandbox import Sandbox

_Self = TypeVar("_Self", bound="Pool")
_FOREVER_MS = 10**12
_SLICE_MS = 100


@dataclass(frozen=True)
class PoolStats:
    """The state of a pool, and counts since its start."""

    count: int
    """the requested number of spares"""
    ready: int
    created: int
    claimed: int
    failed: int
    memory_used: int
    """bytes of all spares, as far as the kernel counts them"""
    is_full: bool
    """the memory limit allows no more spares"""
    is_yielding: bool
    """there are no spares at present: the machine is short of memory"""


class Pool(_c.Owner):
    """Creates sandboxes ahead, so that create() takes a fraction of the time.

        with Pool(8, template="base") as pool:
            with pool.create(env={"SEED": "1"}) as sandbox:
                ...

    The options of the pool are those that cannot be changed later: template, ``from_`` (a
    checkpoint "ID:CHECKPOINT": a pool of its forks), volumes, network, host name, the limits of disk and CPU, the isolation level.  All other options
    of Sandbox.create() go to create(); a request that does not fit gets a new sandbox as
    usual.  The spares end with the pool, or with this process; sandboxes of create() live
    on.
    """

    _instead = "create one in each process"

    def __init__(
        self,
        count: int = 4,
        *,
        limit: Size | None = None,
        template: str | os.PathLike[str] | None = None,
        disk: Size | None = None,
        cpus: float | None = None,
        network: Network = "none",
        volumes: Volumes | None = None,
        hostname: str | None = None,
        level: Level = "best",
        from_: str | None = None,
    ) -> None:
        """Returns when the first spare is ready; ``limit`` is the memory of all spares."""
        self._lock = threading.Lock()
        self._unused = threading.Condition(self._lock)
        self._waiting = 0
        self._handle: Any = None
        self._shape: dict[str, Any] = {
            "template": template,
            "disk": disk,
            "cpus": cpus,
            "network": network,
            "volumes": volumes,
            "hostname": hostname,
            "level": level,
            "from_": from_,
        }
        array, bind_count = _options.bind_array(volumes)
        options = _c.SandboxOptions(
            size=sizeof(_c.SandboxOptions),
            template_name=_options.template_name(template),
            disk_bytes=_options.size(disk, "disk"),
            cpu_percent=_options.cpu_percent(cpus),
            network=_options.choice(network, _c.NETWORKS, "network"),
            binds=array,
            bind_count=bind_count,
            hostname=_options.optional(hostname, "hostname"),
            level=_options.choice(level, _c.REQUESTABLE_LEVELS, "level"),
            **{"from": _options.optional(from_, "from_")},
        )
        pool_options = _c.PoolOptions(
            size=sizeof(_c.PoolOptions),
            sandbox=pointer(options),
            count=_options.parse_size(count, "count", _c.POOL_COUNT_MAX),
            memory_bytes=_options.size(limit, "limit"),
        )
        handle = c_void_p()
        _c.call(_c.pool_create, byref(pool_options), byref(handle))
        self._handle = handle.value

    @property
    def _name(self) -> bytes:
        """For Sandbox.create(); the pool may be closed meanwhile."""
        with self._lock:
            if self._handle is None:
                raise SandboxValueError(
                    "the pool is closed", subject="pool", hint="create a new one"
                )
            return bytes(_c.pool_name(self._handle))

    def create(self, **options: Any) -> Sandbox:
        """A sandbox with the pool's options and those of Sandbox.create() given here."""
        return Sandbox.create(**{**self._shape, **options, "pool": self})

    def stats(self) -> PoolStats:
        stats = _c.PoolStats()
        with self._lock:
            if self._handle is not None:
                _c.pool_get_stats(self._handle, byref(stats))
        return PoolStats(
            count=stats.count,
            ready=stats.ready,
            created=stats.created,
            claimed=stats.claimed,
            failed=stats.failed,
            memory_used=stats.memory_used,
            is_full=stats.is_full,
            is_yielding=stats.is_yielding,
        )

    def wait(self, count: int | None = None, timeout: float | None = None) -> None:
        """Waits until so many spares are ready, or all; SandboxTimeoutError after
        ``timeout`` seconds."""
        wanted = 0 if count is None else _options.parse_size(count, "count", 2**32 - 1)
        ms = _options.milliseconds(timeout, "timeout") or _FOREVER_MS
        end = time.monotonic() + ms / 1000
        while True:
            left = max(0, round((end - time.monotonic()) * 1000))
            try:
                self._wait_once(wanted, min(left, _SLICE_MS))
                return
            except SandboxTimeoutError:
                if left <= _SLICE_MS:
                    raise

    def _wait_once(self, wanted: int, ms: int) -> None:
        """Short, because close() in another thread waits for it before it frees the pool."""
        with self._lock:
            handle = self._handle
            if handle is None:
                raise SandboxValueError(
                    "the pool is closed", subject="pool", hint="create a new one"
                )
            self._waiting += 1
        try:
            _c.call(_c.pool_wait, handle, wanted, ms)
        finally:
            with self._lock:
                self._waiting -= 1
                self._unused.notify_all()

    def close(self) -> None:
        """Ends the spares.  Sandboxes that were created live on."""
        with self._lock:
            handle, self._handle = self._handle, None
            while handle is not None and self._waiting:
                self._unused.wait()
        if handle is not None:
            _c.pool_free(handle)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()
