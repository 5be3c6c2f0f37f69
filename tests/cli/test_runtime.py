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


def test_a_link_that_leads_to_nothing_is_made_anew(disk):
    told = inside(disk, """
        "$CAY" run -- true
        before=$(readlink /run/cay)
        rm -r "$before"
        "$CAY" ls -q | wc -l
        "$CAY" exec sb-aaaaaaaaaaaaaaaa true 2>&1 | grep -c 'no such sandbox'
        "$CAY" run -- echo again
        after=$(readlink /run/cay)
        test "$before" != "$after" && test ! -e "$before" && stat -c %a "$after"
    """)
    assert told == "0\n1\nagain\n700\n"


def test_who_has_its_name_after_a_restart_has_nothing(disk):
    """What the link says everybody can read, and make in a /dev/shm that is new."""
    told = inside(disk, """
        "$CAY" run -- true
        place=$(readlink /run/cay)
        rm -r "$place"
        mkdir -p "$place/sb-aaaaaaaaaaaaaaaa" "$place/ranges" "$DISK/victim"
        touch "$DISK/victim/file"
        ln -s "$DISK/victim" "$place/etc-0.1"
        touch -h -d '1 hour ago' "$place/etc-0.1"; touch -d '1 hour ago' "$DISK/victim"
        chmod 777 "$place"; chown -R 12345 "$place"
        before=$(find "$place" "$DISK/victim" -ls)
        "$CAY" ls -q | wc -l
        "$CAY" gc
        "$CAY" run -- echo fine
        "$CAY" gc
        test "$before" = "$(find "$place" "$DISK/victim" -ls)" && echo untouched
        test "$place" != "$(readlink /run/cay)" && stat -c '%a %u' "$(readlink /run/cay)"
    """)
    nothing = "cleaned up after 0 sandboxes\n"
    assert told == f"0\n{nothing}fine\n{nothing}untouched\n700 0\n"


def test_an_ordinary_users_place_that_is_somebody_elses_is_not_touched(disk):
    told = inside(disk, """
        mount -t tmpfs -o mode=1777 none /tmp
        cp "$CAY" /tmp/cay; cp "$CAY-full" /tmp/cay-full 2>/dev/null || true
        mkdir -p /tmp/cay-12345/sb-aaaaaaaaaaaaaaaa /tmp/home
        touch /tmp/home/file
        ln -s /tmp/home /tmp/cay-12345/etc-0.1
        touch -h -d '1 hour ago' /tmp/cay-12345/etc-0.1; touch -d '1 hour ago' /tmp/home
        chown -R 54321 /tmp/cay-12345; chmod 777 /tmp/cay-12345; chown -R 12345 /tmp/home
        before=$(find /tmp/cay-12345 /tmp/home/file -ls)
        for words in gc ls 'run -- true'; do
            env -u XDG_RUNTIME_DIR HOME=/tmp/home setpriv --reuid=12345 --regid=12345 \\
                --clear-groups /tmp/cay $words 2>&1 | grep -c "not this user's own"
        done
        test "$before" = "$(find /tmp/cay-12345 /tmp/home/file -ls)" && echo untouched
    """)
    assert told == "1\n1\n1\nuntouched\n"


def test_it_is_never_shown_inside(disk):
    for when in ("", '"$CAY" run -- true'):
        told = inside(disk, f"""
            rm -f /run/cay
            {when}
            for dir in /dev/shm /dev "$(readlink /run/cay || echo /dev/shm)"; do
                "$CAY" run -v "$dir:/shm" -- sh -c 'ls /shm/cay-*' 2>&1 || echo "$?"
            done
        """).splitlines()
        assert [line for line in told if not line.startswith("cay: ")] == ["125"] * 3
        assert sum("would be seen inside" in line for line in told) >= 2


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
        mkdir /dev/shm/cay-aaaaaaaaaaaaaaaa
        for i in 1 2 3 4 5 6 7 8; do "$CAY" run -- echo ok & done
        wait
        ls -d /dev/shm/cay-* | wc -l
        rm -r /dev/shm/cay-*
        for i in 1 2 3 4 5 6 7 8; do "$CAY" run -- echo ok & done
        wait
        ls -d /dev/shm/cay-* | wc -l
    """).split()
    assert told == (["ok"] * 8 + ["1"]) * 2


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
