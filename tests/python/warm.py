# SPDX-License-Identifier: Apache-2.0
"""Saved interpreters for tests, in a state directory of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import unavailable

from cay import Sandbox, WarmInterpreter
from cay.sandbox import Context


def need_libraries() -> None:
    """That the template "host" has what most code imports."""
    code = "import numpy, pandas, matplotlib"
    if subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True).returncode:
        unavailable("/usr/bin/python3 has no numpy, pandas or matplotlib")


@contextmanager
def warm_home(home: Path, template: str | None = None) -> Iterator[Path]:
    """Saves an interpreter of the template; sandboxes that are created inside start copies
    of it.  Yields the file."""
    if os.geteuid() != 0:
        unavailable("only root can let sandboxes share a saved interpreter")
    before = os.environ.get("CAY_HOME")
    os.environ["CAY_HOME"] = str(home)
    try:
        WarmInterpreter.create(template)
        yield max((home / "warm").iterdir(), key=lambda file: file.stat().st_size)
    finally:
        del os.environ["CAY_HOME"]
        if before is not None:
            os.environ["CAY_HOME"] = before


def is_warm(sandbox: Sandbox, context: Context | None = None) -> bool:
    """Only a copy has frozen objects."""
    return run(sandbox, "import gc; gc.get_freeze_count()", context=context) != "0"


def cold_context(sandbox: Sandbox) -> Context:
    """A context that starts Python: its settings are not those of the saved one."""
    return sandbox.create_context(env={"PYTHONCOLD": "1"})


def run(sandbox: Sandbox, code: str, **options: object) -> str | None:
    """Code that must not fail; its value as text."""
    execution = sandbox.execute_code(code, **options)  # type: ignore[arg-type]
    assert execution.error is None, execution.error
    return execution.text
