# SPDX-License-Identifier: Apache-2.0
"""Starting the services of a sample in the order of ``depends_on``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from cay.inspect.compose import Service, start_order
from cay.sandbox import AsyncSandbox


async def start_all(
    services: Sequence[Service], sandboxes: Mapping[str, AsyncSandbox]
) -> None:
    """Starts the commands, and returns when every service with a check is healthy."""
    waiting: dict[str, tuple[Service, float]] = {}

    async def wait(name: str) -> None:
        if name in waiting:
            service, started = waiting.pop(name)
            assert service.health is not None
            await service.health.wait(name, sandboxes[name], started)

    for service in start_order(services):
        for name, is_healthy in service.needs:
            if is_healthy:
                await wait(name)
        await _start(sandboxes[service.name], service)
        if service.health is not None:
            waiting[service.name] = service, time.monotonic()
    for name in [*waiting]:
        await wait(name)


async def _start(sandbox: AsyncSandbox, service: Service) -> None:
    if service.command:
        process = await sandbox.start(service.command, background=True, tag="command")
        await process.close()
