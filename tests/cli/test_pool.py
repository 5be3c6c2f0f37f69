# SPDX-License-Identifier: Apache-2.0
"""cay pool: sandboxes that are ready before they are requested."""

import json
import os
import signal
import subprocess
import time

import pytest

PATIENCE = 120


@pytest.fixture(name="pools")
def fixture_pools(boxes):
    if os.geteuid() != 0:
        pytest.skip("as root; tests/sandbox/test-pool.c runs at every isolation level")
    yield boxes
    boxes.ok("pool", "stop", "--all")
    assert not find(boxes, lambda pool: pool["shared"])


def find(boxes, is_wanted):
    pools = json.loads(boxes.ok("pool", "ls", "-o", "json").text)["pools"]
    return [pool for pool in pools if is_wanted(pool)]


def start(boxes, *options):
    return boxes.ok("pool", "start", *options).text.strip()


def wait(boxes, pool, is_done):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        now = find(boxes, lambda one: one["id"] == pool)
        if now and is_done(now[0]):
            return now[0]
        time.sleep(0.01)
    raise AssertionError(f"pool {pool}: {now}")


def test_run_uses_a_spare_of_a_running_pool(pools):
    pool = start(pools, "-n", "2")
    wait(pools, pool, lambda one: one["ready"] == 2)
    assert pools.ok("run", "-e", "COLOR=blue", "--", "sh", "-c", "echo $COLOR").text == "blue\n"
    after = wait(pools, pool, lambda one: one["claimed"] == 1 and one["ready"] == 2)
    assert after["created"] == 3


def test_forks_take_the_spares_of_a_pool_of_their_checkpoint(pools):
    source = pools.ok("create").text.strip()
    pools.ok("exec", source, "--", "sh", "-c", "echo one > /tmp/one")
    pools.ok("checkpoint", source, "ready")
    assert "ID:CHECKPOINT" in pools.fails(2, "pool", "start", "--from", source)
    pool = start(pools, "-n", "3", "--from", f"{source}:ready")
    wait(pools, pool, lambda one: one["ready"] == 3)
    forks = pools.ok("fork", "-n", "2", f"{source}:ready").text.split()
    forks.append(pools.ok("create", "--from", f"{source}:1").text.strip())
    for fork in forks:
        assert pools.ok("exec", fork, "--", "cat", "/tmp/one").text == "one\n"
    wait(pools, pool, lambda one: one["claimed"] == 3)
    pools.ok("kill", source, *forks)


def test_session_uses_a_spare_and_is_found_again(pools, tmp_path):
    env = {"CAY_HOME": str(tmp_path / "home")}
    pool = start(pools, "-n", "1")
    sandbox = pools.ok("session", "start", "of-a-pool", env=env).text.strip()
    try:
        wait(pools, pool, lambda one: one["claimed"] == 1)
        assert pools.ok("session", "start", "of-a-pool", env=env).text.strip() == sandbox
        assert pools.ok("exec", sandbox, "--", "echo", "up").text == "up\n"
    finally:
        pools.ok("session", "rm", "of-a-pool", env=env)


def test_create_uses_a_spare_with_its_own_limits_and_name(pools):
    pool = start(pools, "-n", "1")
    sandbox = pools.ok("create", "-m", "700M", "--name", "of-a-pool").text.strip()
    try:
        wait(pools, pool, lambda one: one["claimed"] == 1)
        shown = json.loads(pools.ok("inspect", "of-a-pool", "-o", "json").text)
        assert shown["id"] == sandbox
        assert "700 MiB" in pools.ok("inspect", sandbox).text
    finally:
        pools.ok("rm", sandbox)


def test_run_with_other_volumes_or_limits_of_the_shell_does_not_fit(pools, tmp_path):
    pool = start(pools, "-n", "1")
    (tmp_path / "file").write_text("here")
    assert pools.ok("run", "-v", f"{tmp_path}:/data:ro", "--", "cat", "/data/file").text == "here"
    limited = subprocess.run(
        ["sh", "-c", "ulimit -s 4096; exec cay run -- sh -c 'ulimit -s'"],
        capture_output=True, text=True, check=True)
    assert limited.stdout == "4096\n"
    assert find(pools, lambda one: one["id"] == pool)[0]["claimed"] == 0


def test_pool_with_a_volume_serves_run_with_the_same_volume(pools, tmp_path):
    (tmp_path / "file").write_text("here")
    volume = f"{tmp_path}:/data:ro"
    pool = start(pools, "-n", "1", "-v", volume)
    assert pools.ok("run", "-v", volume, "--", "cat", "/data/file").text == "here"
    wait(pools, pool, lambda one: one["claimed"] == 1)


def test_spares_are_listed_with_all_only_and_accept_no_command(pools):
    pool = start(pools, "-n", "1")
    wait(pools, pool, lambda one: one["ready"] == 1)
    listed = json.loads(pools.ok("ls", "-a", "-o", "json").text)["sandboxes"]
    spares = [one["id"] for one in listed if one["state"] == "spare"]
    assert spares
    assert not set(spares) & set(pools.ok("ls", "-q").text.split())
    refused = pools.cay("exec", spares[0], "--", "true")
    assert refused.status != 0
    assert b"spare of a pool" in refused.err


def test_stop_ends_the_spares_and_not_the_sandboxes_in_use(pools):
    pool = start(pools, "-n", "2")
    sandbox = pools.ok("create").text.strip()
    try:
        wait(pools, pool, lambda one: one["claimed"] == 1)
        pools.ok("pool", "stop", pool)
        assert not find(pools, lambda one: one["id"] == pool)
        assert pools.ok("exec", sandbox, "--", "echo", "here").text == "here\n"
        again = pools.cay("pool", "stop", pool)
        assert again.status != 0 and b"no such pool" in again.err
    finally:
        pools.ok("rm", sandbox)


def test_pool_in_the_foreground_ends_with_sigterm(pools):
    with subprocess.Popen(["cay", "pool", "start", "--foreground", "-n", "1"],
                          stdout=subprocess.PIPE, text=True) as process:
        pool = process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert not find(pools, lambda one: one["id"] == pool)


@pytest.mark.parametrize("arguments", [
    ("start", "-n", "0"), ("start", "-n", "1025"), ("start", "--limit", "-5"), ("stop",),
    ("stop", "--all", "p-0000000000000000"), ("stop", "p-0000000000000000")])
def test_pool_refuses_invalid_arguments(pools, arguments):
    refused = pools.cay("pool", *arguments)
    assert refused.status != 0
    assert refused.err.startswith(b"cay: ")
