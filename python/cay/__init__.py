# SPDX-License-Identifier: Apache-2.0
"""Cay: fast, isolated sandboxes for AI agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cay.errors import CayError

if TYPE_CHECKING:
    from cay.sandbox import AsyncCodeInterpreter as AsyncCodeInterpreter
    from cay.sandbox import AsyncSandbox as AsyncSandbox
    from cay.sandbox import CodeInterpreter as CodeInterpreter
    from cay.sandbox import Pool as Pool
    from cay.sandbox import Sandbox as Sandbox
    from cay.sandbox import Secret as Secret
    from cay.sandbox import Snapshot as Snapshot
    from cay.sandbox import Template as Template
    from cay.sandbox import Try as Try
    from cay.sandbox import Volume as Volume
    from cay.sandbox import WarmInterpreter as WarmInterpreter
    from cay.sandbox import build as build
    from cay.sandbox import create_template as create_template
    from cay.sandbox import doctor as doctor
    from cay.sandbox import explain_network as explain_network
    from cay.sandbox import remove_template as remove_template
    from cay.sandbox import run_code as run_code
    from cay.sandbox import templates as templates

    __version__: str

_OF_SANDBOX = (
    "AsyncCodeInterpreter",
    "AsyncSandbox",
    "CodeInterpreter",
    "Pool",
    "Sandbox",
    "Secret",
    "Snapshot",
    "Template",
    "Try",
    "Volume",
    "WarmInterpreter",
    "build",
    "create_template",
    "doctor",
    "explain_network",
    "remove_template",
    "run_code",
    "templates",
)

__all__ = [
    "AsyncCodeInterpreter",
    "AsyncSandbox",
    "CayError",
    "CodeInterpreter",
    "Pool",
    "Sandbox",
    "Secret",
    "Snapshot",
    "Template",
    "Try",
    "Volume",
    "WarmInterpreter",
    "__version__",
    "build",
    "create_template",
    "doctor",
    "explain_network",
    "remove_template",
    "run_code",
    "templates",
]


def __getattr__(name: str) -> Any:
    # libcay.so is loaded on first use.
    if name == "__version__":
        from cay._c import version

        return version()
    if name in _OF_SANDBOX:
        import cay.sandbox

        return getattr(cay.sandbox, name)
    raise AttributeError(f"module 'cay' has no attribute {name!r}")
