# SPDX-License-Identifier: Apache-2.0
"""Cay: a place where AI agents run code and touch files safely."""

from __future__ import annotations

from typing import Any

from cay.errors import CayError

__all__ = ["CayError", "__version__"]


def __getattr__(name: str) -> Any:
    # Asks the library, which is loaded only by what uses it.
    if name == "__version__":
        from cay._lib import version

        return version()
    raise AttributeError(f"module 'cay' has no attribute {name!r}")
