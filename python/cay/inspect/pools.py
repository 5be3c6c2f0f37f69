# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that are created ahead, for the time of a task.

Tasks whose sandboxes have the same options share a pool, which ends with the last of them.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

from cay.errors import CayError
from cay.inspect.compose import SAMPLE_VOLUME
from cay.inspect.config import CayConfig
from cay.sandbox import Pool

_SHAPE = ("template", "disk", "cpus", "network", "volumes", "hostname", "level")


class _Shared:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.tasks = 0


_pools: dict[Hashable, _Shared] = {}
_tasks: dict[Hashable, list[Hashable]] = {}
_lock = threading.Lock()


def _shape(config: CayConfig) -> dict[str, Any]:
    shape = {name: getattr(config, name) for name in _SHAPE}
    if config.network == "none" and (config.allow or config.deny):
        shape["network"] = "rules"  # which come with the claim
    return shape


def _key(config: CayConfig) -> Hashable:
    return (config.pool, config.storage, *_shape(config).values())


def begin(task: Hashable, configs: list[CayConfig]) -> None:
    """Starts the pools of a task.  Without one, sandboxes are created as usual."""
    keys = []
    with _lock:
        for config in configs:
            key = _key(config)
            if not config.pool or config.storage != "memory" or _has_own(config):
                continue
            if key not in _pools:
                try:
                    _pools[key] = _Shared(Pool(config.pool, **_shape(config)))
                except CayError:
                    continue  # the first sample reports what is wrong
            _pools[key].tasks += 1
            keys.append(key)
        _tasks.setdefault(task, []).extend(keys)


def _has_own(config: CayConfig) -> bool:
    """Whether it has volumes that are created for each sample."""
    return any(volume.startswith(SAMPLE_VOLUME) for volume in config.volumes)


def find(config: CayConfig) -> Pool | None:
    with _lock:
        shared = _pools.get(_key(config))
        return shared.pool if shared else None


def end(task: Hashable) -> None:
    """Closes the pools that no other task uses; may be called again."""
    unused = []
    with _lock:
        for key in _tasks.pop(task, []):
            _pools[key].tasks -= 1
            if not _pools[key].tasks:
                unused.append(_pools.pop(key).pool)
    for pool in unused:
        pool.close()
