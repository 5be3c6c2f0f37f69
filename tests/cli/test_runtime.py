# SPDX-License-Identifier: Apache-2.0
"""Where records of sandboxes are, and what sandboxes share there."""

import os
import shutil
import subprocess

import pytest
from conftest import CAY, PATIENCE

BEGIN = """
set -e
mount -t tmpfs -o mode=755 none /run
"""


@pytest.fixture(name="disk")
def fixture_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can have another /run")
    return tmp_path


def inside(disk, script):
    """Runs a script in a mount namespace of its own, whose /run is new.

    Its records vanish with it, so its sandboxes must, too, if it fails or is killed: they are
    in a PID namespace of its own.  With the state directory of others it would remove the disks
    of their sandboxes, which seem stopped without their records.
    """
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child",
                           "--mount-proc", "sh", "-c", BEGIN + script],
                          env={**os.environ, "DISK": str(disk), "CAY": CAY,
                               "CAY_HOME": f"{disk}-home"}, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_ordinary_users_place_that_is_somebody_elses_is_not_touched(disk):
    told = inside(disk, """
        cp "$CAY" /run/command; cp "$CAY-full" /run/cay-full 2>/dev/null || true
        mount -t tmpfs -o mode=1777 none /tmp
        mkdir -p /tmp/cay-12345/sb-aaaaaaaaaaaaaaaa /tmp/home
        touch /tmp/home/file
        ln -s /tmp/home /tmp/cay-12345/etc-0.1
        touch -h -d '1 hour ago' /tmp/cay-12345/etc-0.1; touch -d '1 hour ago' /tmp/home
        chown -R 54321 /tmp/cay-12345; chmod 777 /tmp/cay-12345; chown -R 12345 /tmp/home
        before=$(find /tmp/cay-12345 /tmp/home/file -ls)
        for words in gc ls 'run -- true'; do
            env -u XDG_RUNTIME_DIR HOME=/tmp/home setpriv --reuid=12345 --regid=12345 \\
                --clear-groups /run/command $words 2>&1 | grep -c "does not belong to this user alone"
        done
        test "$before" = "$(find /tmp/cay-12345 /tmp/home/file -ls)" && echo untouched
    """)
    assert told == "1\n1\n1\nuntouched\n"


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
    assert [line for line in told if "leftover" not in line] == ["0", "1", "2", "changed 1", "1", "fine"]


def test_scripts_do_not_see_the_disks_of_others(disk, boxes):
    box = boxes.create("--storage", "disk")
    assert inside(disk, '"$CAY" ls -q; "$CAY" rm --all') == ""
    boxes.ok("rm", box)


def test_gc_removes_files_without_a_record(disk):
    told = inside(disk, """
        id=$("$CAY" create); old=sb-aaaaaaaaaaaaaaaa; new=sb-bbbbbbbbbbbbbbbb; cd /run/cay
        touch -d '1 hour ago' "$id.note" "$old.note" "$old.note.new" "$old.noted" other.note \
              "$old.net" "$old.events" "$old.rules" "$old.rules.new"
        touch "$new.note" "$new.net"
        "$CAY" gc
        ls -d *.note* *.net *.events *.rules* 2> /dev/null | sed "s/$id/ID/"
        "$CAY" rm "$id"
    """).splitlines()
    assert told[0] == "removed 6 leftovers"
    assert set(told[1:]) == {"ID.note", "other.note", "sb-aaaaaaaaaaaaaaaa.noted",
                             "sb-bbbbbbbbbbbbbbbb.note", "sb-bbbbbbbbbbbbbbbb.net"}


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


def test_many_that_come_first_make_one_directory(disk):
    for _ in range(5):
        told = inside(disk, """
            for i in 1 2 3 4 5 6 7 8; do "$CAY" run -- echo ok & done
            wait
            stat -c '%a %u %F' /run/cay; ls -A /run/cay/ranges | wc -l
        """).splitlines()
        assert told == ["ok"] * 8 + ["700 0 directory", "0"]


def test_what_is_no_directory_of_ours_is_not_touched(disk):
    told = inside(disk, """
        mkdir -p "$DISK/place/sb-aaaaaaaaaaaaaaaa" "$DISK/victim"
        touch "$DISK/victim/file"; touch -d '1 hour ago' "$DISK/victim"
        ln -s "$DISK/victim" "$DISK/place/etc-0.1"; touch -h -d '1 hour ago' "$DISK/place/etc-0.1"
        chmod 700 "$DISK/place"
        before=$(find "$DISK" -ls)
        for make in 'ln -s $DISK/place /run/cay' 'ln -s $DISK/none /run/cay' \\
                    'mkdir -m 755 /run/cay' 'mkdir -m 700 /run/cay; chown 1 /run/cay'; do
            eval "$make"
            for words in gc ls 'run -- true'; do
                "$CAY" $words 2>&1 | grep -c "the runtime directory does not belong to this user alone"
            done
            rm -rf /run/cay
        done
        test "$before" = "$(find "$DISK" -ls)" && echo untouched
    """)
    assert told == "1\n" * 12 + "untouched\n"


def test_it_is_never_shown_inside(disk):
    for when in ("", '"$CAY" run -- true'):
        told = inside(disk, f"""
            {when}
            for dir in /run / /run/cay; do
                "$CAY" run -v "$dir:/shown" -- ls /shown/cay 2>&1 || echo "$?"
            done
        """)
        assert "sb-" not in told and "ranges" not in told
        assert told.count("would expose the control sockets") >= 1 or told.count("Permission denied") >= 1


def test_cgroups_are_found_also_where_nobody_has_them(disk):
    told = inside(disk, """
        usual=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)
        test -n "$usual" || { echo none; exit 0; }
        mkdir "$DISK/groups"
        mount --bind "$usual" "$DISK/groups"
        umount -l "$usual"
        id=$("$CAY" create)
        "$CAY" inspect -o json "$id" | grep -o '"cgroup"' | head -1
        find "$DISK/groups" -maxdepth 3 -name "cay-$id" | wc -l
        "$CAY" rm "$id" > /dev/null
        find "$DISK/groups" -maxdepth 3 -name "cay-$id" | wc -l
    """)
    if told == "none\n":
        pytest.skip("this machine has no cgroup2")
    assert told == '"cgroup"\n1\n0\n'


@pytest.mark.parametrize("room", ["size=16k", "nr_inodes=8", "nr_inodes=9", "nr_inodes=10"])
def test_a_full_runtime_directory_is_told_and_can_be_used_again(disk, room):
    told = inside(disk, f"""
        mkdir -m 700 /run/cay; mount -t tmpfs -o mode=700,{room} none /run/cay
        for i in $(seq 20); do "$CAY" create > "$DISK/id" || break; done 2> "$DISK/told"
        cat "$DISK/told"
        "$CAY" rm --all > /dev/null
        "$CAY" run -- echo again
        find /run/cay -name 'sb-*'; ls -A /run/cay/ranges
    """).splitlines()
    assert told[0].startswith("cay: no-space: ")
    assert "no space left in the runtime directory" in told[0]
    assert told[1:] == ["again"]


def test_a_disk_without_room_for_one_more_name_can_be_freed(disk):
    told = inside(disk, """
        mkdir -p "$DISK/home" "$DISK/root/bin"
        mount -t tmpfs -o mode=700,nr_inodes=300 none "$DISK/home"
        export CAY_HOME="$DISK/home"
        "$CAY" template create small --from-dir "$DISK/root"
        id=$("$CAY" create --storage disk)
        "$CAY" exec "$id" -- sh -c 'for i in $(seq 400); do : > f$i || exit; done' 2>&1 |
            grep -c 'No space'
        "$CAY" create --storage disk 2>&1 | grep -o 'cay: no-space'
        "$CAY" rm "$id"
        i=0; while mkdir "$DISK/home/$i" 2> /dev/null; do i=$((i+1)); done
        "$CAY" template rm small
        rmdir "$DISK"/home/[0-9]*
        find "$DISK/home" -mindepth 2
    """).splitlines()
    assert [line for line in told if not line.startswith("sb-")] == ["1", "cay: no-space"]


def test_a_create_that_lacks_descriptors_leaves_nothing(disk):
    told = inside(disk, """
        for n in $(seq 5 40); do prlimit --nofile=$n "$CAY" create --ttl 60 2>&1 || true; done
        "$CAY" rm --all > /dev/null
        find /run/cay -name 'sb-*'; ls -A /run/cay/ranges
    """).splitlines()
    failed = [line for line in told if not line.startswith("sb-")]
    assert 5 < len(failed) < len(told)
    assert [line for line in failed if "too many files open" not in line] == []


def test_in_another_pid_namespace_a_sandbox_that_runs_is_not_taken_for_dead(disk):
    told = inside(disk, """
        export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # it reads its own entry of /proc
        id=$("$CAY" create)
        for proc in --mount-proc --mount; do
            unshare --pid --fork $proc sh -c '
                "$CAY" gc
                "$CAY" ls -q
                "$CAY" exec "$0" -- echo reached
                "$CAY" kill "$0" 2>&1 || true' "$id" | sed "s/$id/ID/"
        done
        "$CAY" exec "$id" -- echo lives
        init=$("$CAY" inspect -o json "$id" | sed 's/.*"init_pid":\\([0-9]*\\).*/\\1/')
        kill -9 "$init"
        while test -d "/proc/$init"; do sleep 0.02; done
        unshare --pid --fork --mount-proc "$CAY" gc
        ls /run/cay | grep -c "$id" || true
    """).splitlines()
    refusal = [line for line in told if "another PID namespace" in line]
    assert len(refusal) == 2 and all("from that PID namespace" in line for line in refusal)
    there = ["removed 0 leftovers", "ID", "reached"]
    assert [line for line in told if line not in refusal] == [
        *there, *there, "lives", "removed 1 leftover", "0"]


def test_gc_keeps_a_sandbox_if_connect_fails_with_enomem(disk):
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    told = inside(disk, """
        id=$("$CAY" create)
        ASAN_OPTIONS=detect_leaks=0 unshare --pid --fork --mount-proc \\
            strace -f -o "$DISK/log" -e trace=connect -e inject=connect:error=ENOMEM "$CAY" gc
        "$CAY" exec "$id" -- echo lives
        "$CAY" kill "$id"
    """).splitlines()
    assert told == ["removed 0 leftovers", "lives"]


def test_one_whose_disk_is_elsewhere_is_not_ended_by_what_cannot_remove_it(disk):
    told = inside(disk, """
        id=$(CAY_HOME="$DISK/one" "$CAY" create --storage disk)
        CAY_HOME="$DISK/two" "$CAY" rm "$id" 2>&1 | sed "s/$id/ID/"
        CAY_HOME="$DISK/two" "$CAY" exec "$id" -- echo lives
        CAY_HOME="$DISK/one" "$CAY" rm "$id"
        find "$DISK/one" -name "$id" | wc -l
    """).splitlines()
    assert told[0].startswith("cay: not-found: ID: the sandbox's disk is not in this state directory")
    assert told[1] == "lives" and told[-1] == "0"
