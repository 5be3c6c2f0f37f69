# SPDX-License-Identifier: Apache-2.0
"""Where root's records of sandboxes are: in memory, also where /run is not."""

import os
import subprocess
from pathlib import Path

import pytest
from conftest import CAY, PATIENCE, ROOT

BEGIN = """
set -e
mount --bind "$DISK" /run
mount -t tmpfs -o mode=1777 none /dev/shm
"""


@pytest.fixture(name="disk")
def fixture_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root has /run/cay")
    for folder in (tmp_path, ROOT / "build"):
        kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True,
                              timeout=PATIENCE, check=True).stdout.strip()
        if kind not in ("tmpfs", "ramfs"):
            path = folder / f"run-{os.getpid()}"
            path.mkdir()
            yield path
            subprocess.run(["rm", "-rf", path], timeout=PATIENCE, check=True)
            return
    pytest.skip("this machine has no disk")


def inside(disk, script):
    """Runs a script in a mount namespace of its own, whose /run is that directory."""
    done = subprocess.run(["unshare", "-m", "sh", "-c", BEGIN + script],
                          env={**os.environ, "DISK": str(disk), "CAY": CAY}, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_they_are_in_memory_where_run_is_on_a_disk(disk):
    told = inside(disk, """
        "$CAY" run -- echo hi
        readlink /run/cay
        stat -c '%a %u %F' "$(readlink /run/cay)"
        stat -f -c %T /run/cay/
        id=$("$CAY" create)
        test -S "/run/cay/$id/control"
        "$CAY" exec "$id" -- echo there
        "$CAY" ls -q | grep -c "$id"
        "$CAY" rm "$id"
        ls /run/cay/ | tr '\\n' ' '; ls -A /run/cay/ranges | wc -l
        "$CAY" doctor | grep -c 'on a disk' || true
    """).splitlines()
    assert told[0] == "hi"
    assert told[1].startswith("/dev/shm/cay-") and len(told[1]) == len("/dev/shm/cay-") + 16
    assert told[2:] == ["700 0 directory", "tmpfs", "there", "1", "ranges 0", "0"]


def test_the_link_outlives_what_it_leads_to(disk):
    told = inside(disk, """
        "$CAY" run -- true
        before=$(readlink /run/cay)
        rm -r "$before"
        "$CAY" run -- echo again
        test "$before" = "$(readlink /run/cay)" && stat -c %a "$before"
    """)
    assert told == "again\n700\n"


def test_a_directory_of_somebody_else_is_not_used(disk):
    told = inside(disk, """
        "$CAY" run -- true
        place=$(readlink /run/cay)
        rm -r "$place"
        mkdir "$place"
        chown 12345 "$place"
        "$CAY" run -- true 2>&1 || echo "$?"
    """)
    assert "the runtime directory is not this user's own" in told
    assert told.endswith("125\n")


def test_where_run_is_in_memory_or_shm_is_not_safe_it_is_a_directory(disk):
    for script in ("mount -t tmpfs none /run", "umount /dev/shm; mount --bind $DISK /dev/shm",
                   "chmod 777 /dev/shm", "chown 1 /dev/shm"):
        told = inside(disk, f"""
            rm -rf /run/cay
            {script}
            "$CAY" run -- echo hi
            stat -c '%a %F' /run/cay
        """)
        assert told == "hi\n700 directory\n", script


def test_many_that_come_first_agree_on_one(disk):
    told = inside(disk, """
        for i in 1 2 3 4 5 6 7 8; do "$CAY" run -- echo ok & done
        wait
        ls -d /dev/shm/cay-* | wc -l
    """).split()
    assert told == ["ok"] * 8 + ["1"]


def test_one_that_is_there_already_is_kept(disk):
    (Path(disk) / "cay").mkdir(mode=0o700)
    assert inside(disk, '"$CAY" run -- echo hi; stat -c %F /run/cay') == "hi\ndirectory\n"
