# SPDX-License-Identifier: Apache-2.0
"""R13: commands about many sandboxes do not wait for one after another.

How fast that is depends on the machine; that nothing waits in between does not.
"""

import re
import shutil

import pytest
from test_runtime import fixture_disk, inside  # noqa: F401

MANY = 12


def trace(disk, calls, words, check=""):
    """What the command calls, with MANY sandboxes; its output, and what is left of them."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    told = inside(disk, f"""
        export ASAN_OPTIONS=detect_leaks=0
        for i in $(seq {MANY}); do "$CAY" create > /dev/null; done
        strace -f -o "$DISK/log" -e trace={calls} "$CAY" {words}
        {check}
        "$CAY" kill --all; find /run/cay -name 'sb-*'; ls -A /run/cay/ranges
    """)
    log = (disk / "log").read_text()
    return told.splitlines(), re.findall(r"^\d+ +(\w+)\((.*)$", log, re.MULTILINE)


def test_a_list_of_ids_asks_no_sandbox(disk):
    told, calls = trace(disk, "connect,sendmsg", "ls -q")
    assert len(told) == MANY and calls == []


def test_a_list_sends_all_requests_before_it_waits_for_an_answer(disk):
    told, calls = trace(disk, "sendmsg,poll", "ls")
    assert len(told) == MANY + 1
    kinds = [name for name, _ in calls if name in ("sendmsg", "poll")]
    assert kinds == ["sendmsg"] * MANY + ["poll"] * MANY


def test_kill_all_signals_all_sandboxes_before_it_waits_for_one(disk):
    told, calls = trace(disk, "pidfd_send_signal,poll", "kill --all")
    assert told == []
    kinds = [name for name, _ in calls]
    assert kinds[:MANY] == ["pidfd_send_signal"] * MANY and kinds[MANY:].count("poll") == MANY


def test_rm_all_removes_those_in_memory_and_on_disk(disk):
    told, calls = trace(disk, "pidfd_send_signal,poll", "rm --all -o json", """
        export CAY_HOME="$DISK/home"
        one=$("$CAY" create --storage disk --name one); "$CAY" create > /dev/null
        "$CAY" create --storage disk --name two > /dev/null; "$CAY" kill two
        "$CAY" rm --all -o json | grep -o sb- | wc -l
        "$CAY" ls -q; ls -A "$DISK/home/sandboxes"
    """)
    assert told[0].count("sb-") == MANY and told[1:] == ["3"]


def test_many_sandboxes_are_listed_with_few_descriptors(disk):
    told = inside(disk, f"""
        for i in $(seq {MANY}); do "$CAY" create --ttl 1h > /dev/null; done
        prlimit --nofile=12 "$CAY" ls -o json | grep -o '"ttl_left_ms":[0-9]' | wc -l
        "$CAY" ls -q | wc -l
        prlimit --nofile=12 "$CAY" kill --all && "$CAY" ls -q
    """).split()
    assert told == [str(MANY)] * 2
