# SPDX-License-Identifier: Apache-2.0
"""What `make run` does: a command in a sandbox, or a show of what one is."""

import os
import subprocess

import pages
import pytest


@pytest.fixture(autouse=True)
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("the show is for root")


def show(**environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(pages.ROOT / "tools" / "show"), str(pages.BUILD)], text=True,
                          env={**pages.environment(), **environ}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def test_a_command_of_ones_own_is_run() -> None:
    done = show(CMD="""python3 -c 'print(6*7)'; exit 3""")
    assert (done.returncode, done.stdout) == (3, "42\n")


def test_everything_that_is_tried_is_refused_and_limits_say_their_name() -> None:
    done = show(CMD="")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) <= 30
    assert sum(line.endswith(" refused") for line in lines) == 5 and "NOT" not in done.stdout
    assert "memory limit 64 MiB" in done.stdout and "timeout of 300 ms" in done.stdout
    assert sum(line.endswith(" ms") for line in lines) == 3
