# SPDX-License-Identifier: Apache-2.0
"""Starting the services of a sample in the order of ``depends_on``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import anyio

from cay.errors import SandboxUnavailableError
from cay.inspect.compose import Service, start_order
from cay.inspect.health import Health
from cay.sandbox import AsyncProcess, AsyncSandbox, ExecResult

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_OUTPUT_MAX = 1000


async def start_all(
    services: Sequence[Service], sandboxes: Mapping[str, AsyncSandbox]
) -> None:
    """Starts the commands, and returns when every service with a check is healthy."""
    started: dict[str, _Started] = {}
    try:
        for service in start_order(services):
            for name, condition in service.needs:
                await started[name].wait(condition)
            started[service.name] = await _start(service, sandboxes[service.name])
        for one in started.values():
            await one.wait("service_healthy")
    finally:
        with anyio.CancelScope(shield=True):
            for one in started.values():
                if one.process is not None:
                    await one.process.close()


async def _start(service: Service, sandbox: AsyncSandbox) -> _Started:
    process = None
    if service.command:
        process = await sandbox.start(service.command, background=True, tag="command")
    return _Started(service, sandbox, process)


class _Started:
    """A service whose command, if it has one, is started."""

    def __init__(
        self, service: Service, sandbox: AsyncSandbox, process: AsyncProcess | None
    ) -> None:
        self.service, self.sandbox, self.process = service, sandbox, process
        self.since = time.monotonic()
        self.is_healthy = service.health is None

    async def wait(self, condition: str) -> None:
        if condition == "service_completed_successfully" and self.process is not None:
            self._refuse_failure(await self.process.wait())
        if condition == "service_healthy" and not self.is_healthy:
            assert self.service.health is not None
            await self._wait_healthy(self.service.health)
            self.is_healthy = True

    async def _wait_healthy(self, health: Health) -> None:
        """Runs the check until it succeeds.

        It runs more often than ``interval`` says, so that the service is used as soon as
        it is healthy; a failure counts no sooner than it would with Docker.
        """
        failures, pause = 0, _FIRST_PAUSE
        counts_at = self.since + health.start_period + health.interval
        while True:
            result = await self.sandbox.exec(list(health.command), timeout=health.timeout)
            if result.exit_code == 0 and result.cause == "exited":
                return
            if self.process is not None:
                self._refuse_failure(await self.process.poll())
            now = time.monotonic()
            if now >= counts_at:
                failures += 1
                counts_at = now + health.interval
            if failures >= health.retries:
                raise self._error(f"not healthy: {failures} checks failed", result)
            await anyio.sleep(min(pause, health.interval))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _refuse_failure(self, result: ExecResult | None) -> None:
        """A command that has ended well may have started a server."""
        if result is not None and not (result.cause == "exited" and result.exit_code == 0):
            raise self._error("its command has failed", result)

    def _error(self, message: str, result: ExecResult) -> SandboxUnavailableError:
        output = (result.reason or result.stderr or result.stdout).strip()
        return SandboxUnavailableError(
            message,
            subject=f"service {self.service.name!r}",
            hint=f"the last output: {output[-_OUTPUT_MAX:]}"
            if output
            else f"exit status {result.exit_code}, without output",
        )
