# SPDX-License-Identifier: Apache-2.0
"""What Inspect imports, by the entry point `inspect_ai`, when it looks for sandboxes."""

from __future__ import annotations

from inspect_ai.util import SandboxEnvironment, sandboxenv


@sandboxenv(name="cay")  # type: ignore[untyped-decorator]
def cay() -> type[SandboxEnvironment]:
    from cay.inspect.environment import CaySandboxEnvironment

    return CaySandboxEnvironment
