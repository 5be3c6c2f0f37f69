# SPDX-License-Identifier: Apache-2.0
"""What the kernel ends when memory is short."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from serving import Server, unavailable, wait_until

CREATES_MAX = 300
MEMORY = 48 << 20


@pytest.fixture(name="group")
def fixture_group():
    """A cgroup whose limit is for the server and its sandboxes together."""
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    own = dict(line.split(":", 2)[1:] for line in
               Path("/proc/self/cgroup").read_text().splitlines())
    if "memory" not in own:
        unavailable("with cgroup v2 the sandboxes of root are never in the server's cgroup")
    group = Path("/sys/fs/cgroup/memory") / own["memory"].lstrip("/") / f"cay-test-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(MEMORY))
    yield group
    wait_until(lambda: not (group / "tasks").read_text(), "the cgroup is not empty")
    group.rmdir()


def count_kills(group):
    """Of the cgroup and all below it that is there."""
    kills = 0
    for path in (group, *group.glob("cay-*")):
        with suppress(OSError):
            kills += int((path / "memory.oom_control").read_text().rpartition("oom_kill ")[2] or 0)
    return kills


@pytest.mark.long
def test_r12_server_survives_when_its_cgroup_runs_out_of_memory(group, tmp_path):
    server = Server(tmp_path / "home", "--reserve", "0")
    server.before = ("sh", "-c", f'echo 0 >"{group}/tasks" && exec "$@"', "sh")
    server.start()
    try:
        made = refused = 0
        while made < CREATES_MAX and not count_kills(group) and not refused:
            status, _ = server.api("POST", "/sandboxes", {"templateID": "base"})
            made, refused = made + (status == 201), refused + (status != 201)
        assert made < CREATES_MAX, "that many sandboxes fit into the limit"
        for _ in range(10):
            server.api("POST", "/sandboxes", {"templateID": "base"})
        assert server.process.poll() is None
        assert server.api("GET", "/health")[0] in (200, 204)
        assert server.front() == server.first_front
    finally:
        server.clean()
