# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: who imports pydantic_ai_filesystem_sandbox gets cay.filesystem."""

from __future__ import annotations

import importlib
import sys

NAME = "pydantic_ai_filesystem_sandbox"

sys.modules[NAME] = importlib.import_module("cay.filesystem")
for part in ("sandbox", "toolset", "approval_toolset"):
    sys.modules[f"{NAME}.{part}"] = importlib.import_module(f"cay.filesystem.{part}")
