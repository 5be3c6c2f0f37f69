# SPDX-License-Identifier: Apache-2.0
"""Cay for Inspect AI: ``sandbox="cay"``.

    Task(..., sandbox="cay")
    Task(..., sandbox=SandboxEnvironmentSpec("cay", CayConfig(memory="2G")))
    inspect eval task.py --sandbox cay

Inspect finds the provider by its entry point when both packages are installed; importing
this package does not need Inspect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cay.inspect.config import CayConfig

if TYPE_CHECKING:
    from cay.inspect.environment import CaySandboxEnvironment

__all__ = ["CayConfig", "CaySandboxEnvironment"]


def __getattr__(name: str) -> Any:
    if name == "CaySandboxEnvironment":
        try:
            from cay.inspect.environment import CaySandboxEnvironment
        except ModuleNotFoundError as error:
            if error.name != "inspect_ai":
                raise
            raise ModuleNotFoundError(
                "Inspect AI is not installed: pip install inspect-ai",
                name=error.name,
            ) from error
        return CaySandboxEnvironment
    raise AttributeError(f"module 'cay.inspect' has no attribute {name!r}")
