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
        ls /run/cay/ | grep -v etc- | tr '\\n' ' '; ls -A /run/cay/ranges | wc -l
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


def test_files_of_the_host_are_there_once_for_all_sandboxes(disk):
    told = inside(disk, """
        one=$("$CAY" create); two=$("$CAY" create)
        for id in "$one" "$two"; do "$CAY" exec "$id" -- stat -L -c '%i %a %U' /etc/services; done
        "$CAY" exec -u root "$one" -- sh -c 'echo x >> /etc/services' 2>&1 || echo kept
        "$CAY" exec -u root "$one" -- sh -c 'echo x > /etc/.host/new' 2>&1 || echo kept
        "$CAY" exec -u root "$one" -- sed -i s/./X/ /etc/services
        for id in "$one" "$two"; do "$CAY" exec "$id" -- head -c 1 /etc/services; done; echo
        "$CAY" exec -u root "$two" -- sh -c 'echo more >> /etc/nsswitch.conf && tail -1 /etc/nsswitch.conf'
        "$CAY" rm --all
        ls -d /run/cay/etc-* | wc -l
    """).splitlines()
    assert told[0] == told[1] and told[0].endswith(" 644 nobody")
    assert [line for line in told[2:] if "cannot create" not in line] == [
        "kept", "kept", "X#", "more", "1"]


def test_a_file_that_changes_on_the_host_is_new_for_new_sandboxes_only(disk):
    told = inside(disk, """
        old=$("$CAY" create)
        echo 'changed 1' > "$DISK/other"
        mount --bind "$DISK/other" /etc/protocols
        new=$("$CAY" create)
        "$CAY" exec "$old" -- grep -c changed /etc/protocols || true
        "$CAY" exec "$new" -- grep -c changed /etc/protocols
        umount /etc/protocols
        mkdir /run/cay/etc-0123456789abcdef.1.2 && touch /run/cay/etc-0123456789abcdef.1.2/x
        for dir in /run/cay/etc-*; do touch -d '1 hour ago' "$dir"; done
        "$CAY" gc
        ls -d /run/cay/etc-* | wc -l
        "$CAY" exec "$new" -- cat /etc/protocols
        "$CAY" rm --all > /dev/null
        "$CAY" gc
        ls -d /run/cay/etc-* | wc -l
        "$CAY" run -- sh -c 'test -s /etc/protocols && echo fine'
    """).splitlines()
    assert [line for line in told if "clean" not in line] == ["0", "1", "2", "changed 1", "1", "fine"]


def test_what_only_root_may_read_is_not_shown(disk):
    told = inside(disk, """
        echo secret > "$DISK/other"; chmod 600 "$DISK/other"
        mount --bind "$DISK/other" /etc/protocols
        "$CAY" run -u root -- sh -c 'ls /etc/protocols /etc/.host/protocols 2>&1'  || true
        grep -rc secret /run/cay/etc-* | grep -v :0 || echo none
    """)
    assert told.count("No such file or directory") == 2 and told.endswith("none\n")


def test_many_that_come_first_all_see_whole_files(disk):
    told = inside(disk, """
        size=$(stat -L -c %s /etc/services)
        for i in 1 2 3 4 5 6 7 8; do "$CAY" run -- stat -L -c %s /etc/services & done
        wait
        echo "$size"; ls -d /run/cay/etc-* | wc -l
    """).split()
    assert told == [told[0]] * 9 + ["1"]
