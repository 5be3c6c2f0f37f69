# SPDX-License-Identifier: Apache-2.0
"""Inspect's own suite for sandboxes, every check of it, as the default user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox import self_check
from native import ledger, run_async

from cay.inspect import CaySandboxEnvironment

CHECKS = list(self_check.__all__)
# Those that wait for seconds say nothing new in another event loop.
QUICK = [name for name in CHECKS if "timeout" not in name and "large" not in name]


@pytest.fixture(scope="module")
def environment() -> Iterator[SandboxEnvironment]:
    with ledger():
        made = run_async(
            "asyncio", CaySandboxEnvironment.sample_init, "self-check", None, {}
        )
        yield made["default"]
        run_async(
            "asyncio",
            CaySandboxEnvironment.sample_cleanup,
            "self-check",
            None,
            made,
            False,
        )


def test_there_are_as_many_checks_as_there_were() -> None:
    assert len(CHECKS) >= 44


@pytest.mark.parametrize("name", CHECKS)
def test_the_check_passes(environment: SandboxEnvironment, name: str) -> None:
    run_async("asyncio", getattr(self_check, name), environment)


@pytest.mark.parametrize("name", QUICK)
def test_the_check_passes_in_trio(environment: SandboxEnvironment, name: str) -> None:
    run_async("trio", getattr(self_check, name), environment)


def test_the_checks_are_not_made_as_root(environment: SandboxEnvironment) -> None:
    result: Any = run_async("asyncio", environment.exec, ["id", "-u"])
    assert result.stdout == "1000\n"


def test_ps_sees_what_the_checks_look_for(environment: SandboxEnvironment) -> None:
    # Without ps, or with one that sees nothing, the checks of timeouts would pass.
    look = "ps aux | grep -v grep | grep 'sleep 77'"
    script = f"sleep 77 & until {look}; do sleep 0.05; done; kill $!"

    async def work() -> Any:
        return await environment.exec(["sh", "-c", script], timeout=60)

    result = run_async("asyncio", work)
    assert result.success and "sleep 77" in result.stdout


def test_a_timeout_kills_children_that_hide(environment: SandboxEnvironment) -> None:
    # Inspect's check of this has its "&" in a comment.
    script = (
        "trap '' TERM HUP; setsid sleep 7701 & "
        "sh -c 'setsid sh -c \"sleep 7702 & sleep 7703\" &' ; "
        "nohup sleep 7704 >/dev/null 2>&1 & sleep 7705"
    )

    async def work() -> Any:
        with pytest.raises(TimeoutError):
            await environment.exec(["sh", "-c", script], timeout=1)
        return await environment.exec(["sh", "-c", "ps aux | grep '[s]leep 77'"])

    assert run_async("asyncio", work).stdout == ""
