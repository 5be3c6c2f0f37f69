# SPDX-License-Identifier: Apache-2.0
"""R5: a sandbox whose runtime record cannot be read is listed, killed and collected, and one
of the previous version of cay is used as ever."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import CAY, ROOT
from test_runtime import fixture_disk, inside  # noqa: F401

# The last version whose records have no checksum.
PREVIOUS = "e87e5c0392b81dc6f8deca35eb5560270cd47107"

DAMAGES = {
    "flipped": r"""printf '\377' | dd of="$record" bs=1 seek=60 conv=notrunc status=none""",
    "empty": 'truncate -s 0 "$record"',
    "truncated": 'truncate -s 700 "$record"',
    "another version": r"""printf '\011' | dd of="$record" bs=1 conv=notrunc status=none""",
    "random": 'head -c 3000 /dev/urandom > "$record"',
}

# make: creates a sandbox whose record is then damaged, as $id, with PID 1 $init.
TOOLS = """
    lives() { grep -q '^State:.[^ZX]' "/proc/$init/status" 2> /dev/null; }
    groups() { find /sys/fs/cgroup -name "cay-$id" 2> /dev/null | wc -l; }
    make() {
        id=$($CAY create "$@"); record=$(find "$PLACE" -name "$id")
        init=$($CAY inspect -o json "$id" | sed 's/.*"init_pid":\\([0-9]*\\).*/\\1/')
        DAMAGE
        touch -d '1 hour ago' "$record"
    }
"""
AS_ROOT = "PLACE=/run/cay; export CAY_HOME=\"$DISK/home\""
# It has no range of its own in the runtime directory, and usually no cgroup.
AS_USER = """
    cp "$CAY" /run/command; cp "$CAY-full" /run/cay-full 2>/dev/null || true
    mkdir -m 700 /run/user.12345; chown 12345 /run/user.12345; PLACE=/run/user.12345
    as="env XDG_RUNTIME_DIR=$PLACE CAY_HOME=$PLACE/home setpriv --reuid=12345 --regid=12345"
    as="$as --clear-groups --no-new-privs"; CAY="$as /run/command"
"""


@pytest.fixture(name="damage", params=DAMAGES.values(), ids=DAMAGES.keys())
def fixture_damage(request):
    return TOOLS.replace("DAMAGE", request.param)


@pytest.mark.parametrize("user", [AS_ROOT, AS_USER], ids=["root", "user"])
def test_a_sandbox_with_a_damaged_record_is_listed_and_can_be_killed(disk, damage, user):
    told = inside(disk, user + damage + """
        make
        $CAY gc
        $CAY ls | awk -v id="$id" '$1 == id {print $4}'
        $CAY ls -o json | grep -o '"state":"[a-z]*"'
        $CAY inspect "$id" | grep ^state:
        $CAY exec "$id" -- true 2>&1 | grep -o 'cay kill sb-.* to end' | sed "s/$id/ID/"
        lives && echo lives
        $CAY kill "$id" && echo killed
        lives || echo ended
        $CAY ls -q
        find "$PLACE" -name 'sb-*'; ls -A "$PLACE/ranges" 2> /dev/null || true; groups
    """).splitlines()
    assert told == ["removed 0 leftovers", "damaged", '"state":"damaged"', "state:     damaged",
                    "cay kill ID to end", "lives", "killed", "ended", "0"]


def test_the_uid_range_of_a_damaged_sandbox_is_kept_until_its_processes_are_gone(disk, damage):
    told = inside(disk, AS_ROOT + damage + """
        make
        rm "$record.control"
        $CAY gc; ls -A "$PLACE/ranges" | wc -l; groups
        $CAY ls | grep -c damaged
        kill -9 "$init"; while lives; do sleep 0.02; done
        $CAY gc; ls -A "$PLACE/ranges" | wc -l; groups
        find "$PLACE" -name 'sb-*'
    """).splitlines()
    assert told[0] == "removed 0 leftovers" and told[1] == "1" and int(told[2]) >= 1
    assert told[3:] == ["1", "removed 1 leftover", "0", "0"]


# Finding A7: neither a uid of the range nor the name of a cgroup alone makes a process one of
# the sandbox's.
def test_a_kill_of_a_damaged_sandbox_leaves_processes_of_the_host_alone(disk):
    told = inside(disk, AS_ROOT + TOOLS.replace("DAMAGE", DAMAGES["random"]) + """
        make
        base=$((0x$(ls "$PLACE/ranges") << 16))
        setpriv --reuid=$base --regid=$base --clear-groups sleep 600 & one=$!
        top=$(find /sys/fs/cgroup -name "cay-$id" -printf '%h\\n' | head -n 1); others=
        for i in 1 2 3 4 5 6 7 8; do
            mkdir -p "$top/a-user-$i/cay-$id"; chown 12345 "$top/a-user-$i/cay-$id"
            sleep 600 & others="$others $!"
            echo $! > "$top/a-user-$i/cay-$id/cgroup.procs"
        done
        $CAY kill "$id" && echo killed
        lives || echo ended
        kill $one && echo one; kill $others && echo others
        wait $one $others || true
        rmdir "$top"/a-user-*/"cay-$id" "$top"/a-user-*
    """).splitlines()
    assert told == ["killed", "ended", "one", "others"]


def test_a_damaged_sandbox_on_disk_is_stopped_by_a_kill_and_starts_again(disk, damage):
    told = inside(disk, AS_ROOT + damage + """
        make --storage disk
        $CAY ls | grep -c "$id"
        $CAY kill "$id"
        $CAY ls | awk -v id="$id" '$1 == id {print $4}'
        $CAY start "$id"; $CAY exec "$id" -- echo again
        $CAY rm "$id"; $CAY ls -q
    """).splitlines()
    assert told == ["1", "stopped", "again"]


def test_a_damaged_sandbox_keeps_its_template(disk):
    told = inside(disk, AS_ROOT + TOOLS.replace("DAMAGE", DAMAGES["random"]) + """
        mkdir -p "$DISK/root/bin"; cp -a /bin/true "$DISK/root/bin/"
        $CAY template create small --from-dir "$DISK/root"
        make --template small
        $CAY template rm small 2>&1 | grep -c 'a sandbox uses this template' || true
        $CAY kill "$id"
        $CAY template rm small && echo removed
    """).splitlines()
    assert told == ["1", "removed"]


def test_gc_with_another_home_leaves_the_record_of_an_ephemeral_sandbox_on_disk(disk):
    told = inside(disk, TOOLS.replace("DAMAGE", "") + """
        export CAY_HOME="$DISK/one"
        "$CAY" run --storage disk -- sleep 1000 & run=$!
        while ! ls "$DISK"/one/sandboxes/*/options > /dev/null 2>&1; do sleep 0.02; done
        init=$("$CAY" ls -o json | sed 's/.*"init_pid":\\([0-9]*\\).*/\\1/')
        kill -9 "$run"; wait "$run" 2> /dev/null || true
        while lives; do sleep 0.02; done
        CAY_HOME="$DISK/two" "$CAY" gc
        find /run/cay -maxdepth 1 -type f -name 'sb-*' | wc -l
        "$CAY" gc
        find /run/cay "$DISK/one/sandboxes" -name 'sb-*'
    """).splitlines()
    assert told == ["removed 0 leftovers", "1", "removed 1 leftover"]


def skip(reason):
    if os.environ.get("CAY_MUST_WORK") == "1":
        pytest.fail(f"would be skipped, but CAY_MUST_WORK=1: {reason}")
    pytest.skip(reason)


@pytest.fixture(name="previous", scope="module")
def fixture_previous():
    """The command of the previous version, built once for each build directory."""
    folder = Path(os.environ.get("CAY_BUILD", ROOT / "build")) / f"previous-{PREVIOUS[:7]}"
    command = folder / "build" / "cay"
    if command.exists() and command.stat().st_size:
        return command
    archive = subprocess.run(["git", "-C", ROOT, "archive", PREVIOUS], capture_output=True,
                             check=False)
    if archive.returncode != 0:
        skip("the history of this checkout does not have the previous version")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    for words in (["meson", "setup", folder / "build", folder],
                  ["ninja", "-C", folder / "build", "cay"]):
        done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return command


@pytest.mark.long
@pytest.mark.parametrize("user", [AS_ROOT, AS_USER], ids=["root", "user"])
def test_a_sandbox_of_the_previous_version_is_listed_used_and_killed(disk, previous, user):
    (disk / "old").mkdir()
    disk.chmod(0o755)
    for path in disk.parents:
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    for part in ("cay", "cay-full"):
        if previous.with_name(part).exists():
            shutil.copy(previous.with_name(part), disk / "old" / part)
    told = inside(disk, user + """
        OLD="${as-} $DISK/old/cay"
        id=$($OLD create)
        $CAY gc
        $CAY ls | awk -v id="$id" '$1 == id {print $4}'
        $CAY exec "$id" -- echo reached
        echo text > "$DISK/file"; chmod 644 "$DISK/file"
        $CAY cp "$DISK/file" "$id:file" > /dev/null; $CAY exec "$id" -- cat file
        $CAY kill "$id" && echo killed
        test -z "${as-}" || exit 0
        id=$($OLD create --storage disk)
        $CAY exec "$id" -- sh -c 'echo kept > file'
        $CAY kill "$id"; $CAY start "$id"; $CAY exec "$id" -- cat file; $CAY rm "$id"
        find "$PLACE" -name 'sb-*'; ls -A "$PLACE/ranges" 2> /dev/null || true
    """).splitlines()
    assert told[:5] == ["removed 0 leftovers", "running", "reached", "text", "killed"]
    assert told[5:] == (["kept"] if user == AS_ROOT else [])


def test_a_record_of_the_previous_version_with_a_wrong_pid_is_not_taken_for_dead(disk, previous):
    told = inside(disk, AS_ROOT + TOOLS.replace("DAMAGE", r"""
        printf '\377\377\377\177' | dd of="$record" bs=1 seek=48 conv=notrunc status=none
    """) + f"""
        NEW=$CAY; CAY="{previous}"; make; CAY=$NEW
        $CAY gc
        $CAY ls | awk -v id="$id" '$1 == id {{print $4}}'
        ls -A "$PLACE/ranges" | wc -l
        $CAY kill "$id"; lives || echo ended
        ls -A "$PLACE/ranges" | wc -l; groups
    """).splitlines()
    assert told == ["removed 0 leftovers", "damaged", "1", "ended", "0", "0"]
