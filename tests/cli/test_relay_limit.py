# SPDX-License-Identifier: Apache-2.0
"""Limits of a sandbox's network: connections at a time, bytes, bytes a second."""

import json
import os
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE
from test_relay import INSIDE, internet, relay_of, sandbox  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

# Sends bytes to the server that counts them.
COUNTED = """
def count(size):
    def work():
        with dial("good.test", 7777) as sock:
            sock.recv(7, socket.MSG_WAITALL)
            sock.sendall(b"x" * size)
            sock.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: sock.recv(100), b"")).decode().strip() or "closed"
    return attempt(work)
"""


@pytest.fixture
def limited(internet):  # noqa: F811
    """Creates sandboxes with a limit that are killed at the end."""
    ids = []

    def create(limit, *rules):
        allow = [word for rule in rules for word in ("--allow", rule)]
        ids.append(internet.cay("create", *allow, "--network-limit", limit).strip())
        return ids[-1]

    yield create
    for each in ids:
        internet.cay("kill", each, check=False)


def run(internet, created, code):  # noqa: F811
    return internet.cay("exec", created, "--", "python3", "-c",
                        INSIDE + COUNTED + textwrap.dedent(code)).splitlines()


def events(internet, created):  # noqa: F811
    return [json.loads(line) for line in
            internet.cay("events", created, "--output", "json").splitlines()]


def counts_of(internet, created):  # noqa: F811
    return json.loads(internet.cay("network", created, "--output", "json"))["counts"]


def ticks(created):
    """The CPU time of a sandbox's cay-net, in hundredths of a second."""
    fields = Path(f"/proc/{relay_of(created)}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_connections_above_the_limit_are_refused(internet, limited):  # noqa: F811
    created = limited("connections=2", "good.test", "good.test:7777")
    assert run(internet, created, """
        one, two = dial("good.test", 7777), dial("good.test", 7777)
        print(one.recv(7, socket.MSG_WAITALL), two.recv(7, socket.MSG_WAITALL))
        print(banner("good.test"))
        print(fetch("good.test"))
        one.close()
        two.sendall(b"abc")
        two.shutdown(socket.SHUT_WR)
        print(two.recv(7))
        two.close()
        while (last := banner("good.test")) == "ECONNRESET":
            time.sleep(0.01)
        print(last)
    """) == ["b'banner\\n' b'banner\\n'", "ECONNRESET",
             "403 cay: the sandbox's network is at its limit (connections=2 at a time)", "b'3\\n'",
             "banner"]
    refused = [event for event in events(internet, created) if event["verdict"] == "deny"]
    assert refused and {event["rule"] for event in refused} == {"limit connections=2"}


def test_bytes_above_the_limit_are_cut(internet, limited):  # noqa: F811
    created = limited("bytes=1M", "good.test", "good.test:7777")
    assert run(internet, created, """
        print(count(500000))
        print(count(600000) in ("ECONNRESET", "EPIPE", "ENOTCONN"))
        print(fetch("good.test"))
        print(banner("good.test"))
    """) == ["500000", "True",
             "403 cay: the sandbox's network is at its limit (bytes=1048576 in all)", "ECONNRESET"]
    counts = counts_of(internet, created)
    assert counts["up_bytes"] + counts["down_bytes"] <= 1 << 20
    ends = [event for event in events(internet, created) if event["event"] == "close"]
    assert [(event["verdict"], event["rule"]) for event in ends] == [
        ("allow", "good.test:7777"), ("deny", "limit bytes=1048576")]
    internet.cay("network", created, "--network-limit", "bytes=none")
    assert run(internet, created, "print(count(600000))") == ["600000"]


def test_the_last_byte_of_the_limit_passes(internet, limited):  # noqa: F811
    created = limited("bytes=1012", "good.test:7777")  # "banner\n", 1000 bytes, "1000\n"
    assert run(internet, created, "print(count(1000))") == ["1000"]
    assert run(internet, created, "print(banner('good.test'))") == ["ECONNRESET"]


def test_the_rate_is_held_without_busy_waiting(internet, limited):  # noqa: F811
    created = limited("rate=256K", "good.test:7777")
    seconds, *counted = run(internet, created, """
        import threading
        began, counted = time.monotonic(), []
        threads = [threading.Thread(target=lambda: counted.append(count(256 << 10))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(time.monotonic() - began)
        print(*counted, sep="\\n")
    """)
    assert counted == [str(256 << 10)] * 4
    assert float(seconds) > 3.7  # 4 seconds without the burst of 26 KiB


def test_cay_net_sleeps_while_the_rate_is_used_up(internet, limited):  # noqa: F811
    created = limited("rate=1K", "good.test:7777")
    process = subprocess.Popen(
        internet.command(CAY, "exec", created, "--", "python3", "-c", INSIDE + COUNTED + "count(30000)"),
        stdout=subprocess.DEVNULL)
    try:
        while counts_of(internet, created)["up_bytes"] < 17000:  # the burst is 16 KiB
            time.sleep(0.1)
        before = ticks(created)
        time.sleep(2)
        assert ticks(created) - before <= 20  # of 200
    finally:
        internet.cay("kill", created)
        process.wait(PATIENCE)


def test_a_sandbox_is_shown_with_its_counts(internet, sandbox):  # noqa: F811
    created = sandbox("good.test:7777")
    run(internet, created, "print(count(1000), banner('good.test'), fetch('good.test'))")
    counts = json.loads(internet.cay("inspect", created, "--output", "json"))["network_counts"]
    assert (counts["allowed"], counts["refused"], counts["up_bytes"]) == (2, 1, 1000)
    assert "traffic:   2 connections, 1 refused, " in internet.cay("inspect", created)
    internet.cay("pause", created)
    assert "traffic:" not in internet.cay("inspect", created)
    internet.cay("resume", created)


@pytest.mark.parametrize("limit, words", [
    ("connections=0", b"write connections=64"), ("connections=257", b"from 1 to 256"),
    ("speed=1", b"write connections=64"), ("rate=10", b"at least 1K"), ("bytes", b"write connections=64"),
    ("", b"write connections=64"),
])
def test_an_invalid_limit_is_refused(internet, limit, words):  # noqa: F811
    done = internet.cay("run", "--allow", "good.test", "--network-limit", limit, "true", check=False)
    assert done.returncode != 0 and words in done.stderr, done


def test_limits_need_a_network(internet):  # noqa: F811
    done = internet.cay("run", "--network-limit", "bytes=1M", "true", check=False)
    assert done.returncode != 0 and b"no network that could be limited" in done.stderr, done


def test_limits_of_a_policy_survive_a_change_of_the_rules(internet, tmp_path):  # noqa: F811
    policy = tmp_path / "policy.yaml"
    policy.write_text("network:\n  allow: [good.test]\n  limits: {connections: 3, rate: 2M}\n")
    created = internet.cay("create", "--config", policy).strip()
    try:
        internet.cay("network", created, "--reset", "--allow", "other.test")
        internet.cay("network", created, "--network-limit", "rate=none,bytes=5G")
        shown = json.loads(internet.cay("network", created, "--output", "json"))
        assert shown["limits"] == {"connections": 3, "bytes": 5 << 30}
        assert [rule["rule"] for rule in shown["rules"]] == ["other.test"]
        assert "limit: 3 connections at a time\nlimit: 5" in internet.cay("network", created)
    finally:
        internet.cay("kill", created)
