# SPDX-License-Identifier: Apache-2.0
"""Evals with the real Inspect: its tools in our sandboxes, many at once, nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import CHECKOUT
from native import ledger, traces
from test_native_exec import wait_for

from cay import Sandbox

TASK = Path(__file__).with_name("inspect_task.py")


def command(tmp_path: Path, *options: str) -> list[str]:
    program = Path(sys.executable).with_name("inspect")
    return [
        str(program),
        "eval",
        TASK.name,
        "--display=none",
        f"--log-dir={tmp_path / 'logs'}",
        "--log-format=json",
        "--max-samples=20",
        *options,
    ]


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    paths = [str(CHECKOUT / "python"), str(TASK.parent), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "CAY_TEST_IDS": str(tmp_path / "ids"),
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(paths) if "CAY_LIBRARY" in os.environ else paths[1],
        **more,
    }


def ids(tmp_path: Path) -> set[str]:
    file = tmp_path / "ids"
    return set(file.read_text().split()) if file.exists() else set()


# Most of the time goes into Inspect's tools, which start a Python of their own each time.
@pytest.mark.parametrize(
    ("backend", "samples"),
    [pytest.param("asyncio", 20, marks=pytest.mark.long), ("trio", 4)],
)
def test_the_samples_of_an_eval_use_the_tools_at_once(
    tmp_path: Path, backend: str, samples: int
) -> None:
    done = subprocess.run(
        command(tmp_path, f"--limit={samples}"),
        cwd=TASK.parent,
        env=environment(tmp_path, INSPECT_ASYNC_BACKEND=backend),
        capture_output=True,
        text=True,
        timeout=500,
    )
    (log,) = (tmp_path / "logs").glob("*.json")
    result: dict[str, Any] = json.loads(log.read_text())
    assert result["status"] == "success", done.stdout + done.stderr
    said = [
        sample["output"]["choices"][0]["message"]["content"]
        for sample in result["samples"]
    ]
    assert said == ["all is well"] * samples
    assert result["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 1.0
    made = ids(tmp_path)
    assert len(made) == samples
    assert traces(made) == []


@contextmanager
def waiting_eval(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One whose samples are all in the middle of a command."""
    running = subprocess.Popen(
        command(tmp_path),
        cwd=TASK.parent,
        env=environment(tmp_path, CAY_TEST_STEP="wait"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with running:
        try:
            assert wait_for(
                lambda: running.poll() is not None or busy(ids(tmp_path)) == 20, 600
            )
            assert running.poll() is None
            yield running
        finally:
            running.kill()


def busy(ids: set[str]) -> int:
    """How many of the sandboxes run the command that never ends."""
    count = 0
    for id in ids:
        box = Sandbox.open(id)
        count += any("sleep 1000" in one.command for one in box.processes())
        box.close()
    return count


def test_an_eval_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    with ledger() as made:
        with waiting_eval(tmp_path) as running:
            made |= ids(tmp_path)
            assert len(traces(made)) > 20
            running.send_signal(signal.SIGKILL)
        assert wait_for(lambda: Sandbox.collect() + 1 and traces(made) == [], 30)


def test_an_eval_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    with waiting_eval(tmp_path) as running:
        running.send_signal(signal.SIGINT)
        running.wait(timeout=60)
    assert traces(ids(tmp_path)) == []
