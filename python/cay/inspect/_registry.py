# SPDX-License-Identifier: Apache-2.0
"""The module of the entry point `inspect_ai`, which Inspect imports to find sandboxes."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, NoReturn

from inspect_ai.util import SandboxEnvironment, sandboxenv

OLDEST = "0.3.275"


def _too_old_provider() -> type[SandboxEnvironment]:
    """A provider that only reports the old version: Inspect ignores an entry point that
    cannot be imported, and would report an unknown sandbox."""
    message = (
        f"sandbox 'cay' needs inspect-ai {OLDEST} or newer; "
        f"{version('inspect-ai')} is installed.\n"
        "Upgrade with: pip install --upgrade inspect-ai"
    )

    def fail(*_: Any, **__: Any) -> NoReturn:
        try:
            from inspect_ai._util.error import PrerequisiteError
        except ImportError:
            raise RuntimeError(message) from None
        raise PrerequisiteError(message)

    names = ("task_init", "sample_init", "sample_cleanup", "cli_cleanup", "config_files")
    methods = {name: classmethod(fail) for name in names}
    return type("CaySandboxEnvironment", (SandboxEnvironment,), methods)


@sandboxenv(name="cay")  # type: ignore[untyped-decorator]
def cay() -> type[SandboxEnvironment]:
    try:
        from cay.inspect.environment import CaySandboxEnvironment
    except ImportError as error:
        if not (error.name or "").startswith("inspect_ai"):
            raise
        return _too_old_provider()
    return CaySandboxEnvironment
