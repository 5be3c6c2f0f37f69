# SPDX-License-Identifier: Apache-2.0
"""cay setup: what it changes in a system, what it refuses, and that undo takes it back."""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import CAY, PATIENCE, TRACED, copy_command
from sandboxes import Done

USERNS = "proc/sys/kernel/unprivileged_userns_clone"
MAXIMUM = "proc/sys/user/max_user_namespaces"
APPARMOR = "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
DROP_IN = "etc/systemd/system/user@.service.d/50-cay.conf"
UNIT = "usr/lib/systemd/system/user@.service"
RECORD = "var/lib/cay/setup"
NAMES = "renameat,renameat2,unlinkat,mkdirat,linkat"  # the calls that change a name


class System:
    """A system in a directory, as --root takes it."""

    def __init__(self, root):
        self.root = root
        for path in ("etc/systemd/system", "var/lib", "usr/bin", "usr/lib/systemd/system"):
            (root / path).mkdir(parents=True)
        self.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n"
                               "bob:x:1001:1001::/:/bin/sh\n")
        self.put("etc/group", "alice:x:1000:\n")
        self.put("etc/subuid", "old:100000:65536\n")
        self.put("etc/subgid", "old:100000:65536\n")
        self.put("etc/.pwd.lock")
        self.put(UNIT, "[Service]\nDelegate=pids memory cpu\n")
        for path in ("usr/bin/newuidmap", "usr/bin/newgidmap", "usr/lib/systemd/systemd"):
            self.put(path)

    def put(self, path, text=""):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def get(self, path):
        return (self.root / path).read_text()

    def has(self, path):
        return os.path.lexists(self.root / path)

    def tree(self):
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_symlink():
                found[name] = os.readlink(path)
            elif path.is_file():
                found[name] = (path.read_bytes(), path.stat().st_mode, path.stat().st_uid)
            else:
                found[name] = path.stat().st_mode
        return found

    def setup(self, *words, yes=True, user="alice", cay=(CAY,), **more):
        users = ["--user", user] if user else []
        done = subprocess.run(
            [*cay, "setup", "--root", self.root, *users, *(["--yes"] if yes else []), *words],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False, **more)
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *words, **more):
        done = self.setup(*words, **more)
        assert (done.status, done.err) == (0, b""), done
        return done.text

    def undo(self, *words):
        return self.ok("--undo", *words, user=None)

    def refused(self, status, *words, **more):
        """An error, and nothing was changed."""
        before = self.tree()
        done = self.setup(*words, **more)
        assert done.status == status, done
        assert self.tree() == before
        return done.err.decode()


@pytest.fixture(name="system")
def fixture_system(tmp_path):
    return System(tmp_path)


# --- Ranges ---


def test_a_user_gets_the_lowest_free_range_of_both_files(system):
    system.ok()
    line = "old:100000:65536\nalice:165536:65536\n"
    assert (system.get("etc/subuid"), system.get("etc/subgid")) == (line, line)


def test_ranges_of_several_users_do_not_overlap(system):
    system.ok("--user", "bob", "--user", "alice")
    assert system.get("etc/subuid").splitlines()[1:] == ["alice:165536:65536",
                                                         "bob:231072:65536"]


def test_a_range_avoids_the_ids_of_users_and_groups(system):
    system.put("etc/group", "huge:x:165600:\n")
    system.put("etc/passwd", system.get("etc/passwd") + "far:x:165700:1::/:/bin/sh\n")
    system.ok()
    assert "alice:165701:65536" in system.get("etc/subgid")


def test_a_range_is_within_the_bounds_of_login_defs(system):
    system.put("etc/login.defs", "SUB_UID_MIN 500000\nSUB_GID_MIN\t600000\nSUB_UID_MAX 900000\n")
    system.ok()
    assert "alice:600000:65536" in system.get("etc/subuid")


def test_a_range_that_ends_above_the_last_id_is_in_use(system):
    system.put("etc/subuid", "bob:300000:4294967295\n")
    system.put("etc/subgid", "bob:100000:65536\n")
    system.ok()
    assert "alice:165536:65536" in system.get("etc/subuid")
    system.put("etc/subuid", "bob:100000:4294967295\n")
    assert "no 65536 subordinate ids are free" in system.refused(10, user="bob")


def test_setup_refuses_if_no_range_is_free(system):
    system.put("etc/login.defs", "SUB_UID_MIN 100000\nSUB_UID_MAX 200000\n")
    assert "100000 to 200000" in system.refused(10)


def test_a_range_that_is_there_is_used_by_name_or_number(system):
    system.put("etc/subuid", "alice:300000:65536\n")
    system.put("etc/subgid", "1000:300000:70000\n")
    before = system.tree()
    assert "nothing to change" in system.ok() and system.tree() == before


def test_a_range_of_one_file_is_used_in_the_other_if_it_is_free_there(system):
    system.put("etc/subuid", "alice:300000:65536\n")
    system.ok()
    assert system.get("etc/subgid") == "old:100000:65536\nalice:300000:65536\n"
    system.put("etc/subgid", "bob:400000:65536\nalice:300000:65536\n")
    system.put("etc/subuid", "carol:430000:65536\nalice:300000:65536\n")
    system.ok(user="bob")
    assert system.get("etc/subuid").endswith("\nbob:100000:65536\n")


def test_a_range_that_is_too_small_gets_company(system):
    system.put("etc/subuid", "alice:300000:1000\n")
    system.ok()
    assert system.get("etc/subuid") == "alice:300000:1000\nalice:165536:65536\n"


def test_a_last_line_without_a_newline_stays_whole(system):
    system.put("etc/subuid", "old:100000:65536")
    system.ok()
    assert system.get("etc/subuid") == "old:100000:65536\nalice:165536:65536\n"


def test_missing_files_are_created_and_removed_again(system):
    (system.root / "etc/subuid").unlink()
    (system.root / "etc/subgid").unlink()
    before = system.tree()
    assert "create the file /etc/subuid" in system.ok()
    assert system.get("etc/subgid") == "alice:100000:65536\n"
    assert (system.root / "etc/subgid").stat().st_mode & 0o777 == 0o644
    system.undo()
    assert system.tree() == before


def test_owner_and_mode_of_the_files_stay(system):
    if os.geteuid() != 0:
        pytest.skip("only root can change an owner")
    os.chown(system.root / "etc/subuid", 12, 34)
    os.chmod(system.root / "etc/subuid", 0o640)
    system.ok()
    state = (system.root / "etc/subuid").stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o7777) == (12, 34, 0o640)


def test_ids_from_another_source_are_left_to_it(system):
    system.put("etc/nsswitch.conf", "passwd: files\nsubid: sss\n")
    before = system.tree()
    assert "nsswitch.conf" in system.ok() and system.tree() == before


# --- Namespaces, AppArmor, cgroups ---


def test_sysctls_that_forbid_user_namespaces_are_set_now_and_at_boot(system):
    system.put(USERNS, "0\n")
    system.put(MAXIMUM, "0\n")
    before = system.tree()
    system.ok()
    assert (system.get(USERNS), system.get(MAXIMUM)) == ("1\n", "15000\n")
    conf = "".join(path.read_text() for path in (system.root / "etc/sysctl.d").iterdir())
    assert "\nkernel.unprivileged_userns_clone = 1\n" in conf
    assert "\nuser.max_user_namespaces = 15000\n" in conf
    system.undo()
    assert system.tree() == before


def test_sysctls_that_allow_them_are_not_touched(system):
    system.put(USERNS, "1\n")
    system.put(MAXIMUM, "5\n")
    assert "sysctl" not in system.ok()
    assert system.get(MAXIMUM) == "5\n"


@pytest.fixture(name="cay_of_root")
def fixture_cay_of_root():
    """A copy of cay that only root can replace."""
    if os.geteuid() != 0:
        pytest.skip("only root can own it")
    folder = Path(tempfile.mkdtemp(dir="/opt" if os.path.isdir("/opt") else "/usr/local"))
    folder.chmod(0o755)
    yield copy_command(folder)
    shutil.rmtree(folder)


def parse_profile(root):
    """What apparmor_parser says about it; the rule and the ABI are unknown before 4.0."""
    version = subprocess.run(["apparmor_parser", "--version"], capture_output=True, text=True,
                             check=True).stdout
    path = root / "etc/apparmor.d/cay"
    text = path.read_text()
    if int(re.search(r"version (\d+)", version)[1]) < 4:
        text = text.replace("abi <abi/4.0>,\n", "").replace("  userns,\n", "")
    return subprocess.run(["apparmor_parser", "-Q", "-K"], input=text, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)


def test_a_profile_allows_namespaces_where_apparmor_restricts_them(system, cay_of_root):
    system.put(APPARMOR, "1\n")
    system.put("etc/apparmor.d/abi/4.0")
    before = system.tree()
    system.ok(cay=(cay_of_root,))
    profile = system.get("etc/apparmor.d/cay")
    assert f'profile cay "{cay_of_root}" flags=(unconfined) {{\n  userns,\n' in profile
    parsed = parse_profile(system.root)
    assert parsed.returncode == 0, parsed.stderr
    system.undo()
    assert system.tree() == before


def test_a_newer_profile_replaces_the_one_of_setup(system, cay_of_root):
    system.put(APPARMOR, "1\n")
    system.put("etc/apparmor.d/abi/4.0")
    before = system.tree()
    system.ok(cay=(cay_of_root,))
    first = system.get("etc/apparmor.d/cay")
    moved = cay_of_root.parent / "moved"
    moved.mkdir()
    assert "replace /etc/apparmor.d/cay" in system.ok(cay=(copy_command(moved),))
    assert system.get("etc/apparmor.d/cay") != first
    # As after a crash between the record and the file.
    system.put("etc/apparmor.d/cay", first)
    system.undo()
    assert system.tree() == before


def test_no_profile_is_written_for_a_program_of_an_ordinary_user(system, cay_of_root):
    system.put(APPARMOR, "1\n")
    system.put("etc/apparmor.d/abi/4.0")
    os.chmod(cay_of_root.parent, 0o777)
    assert "can be replaced by ordinary users" in system.ok(cay=(cay_of_root,))
    assert not system.has("etc/apparmor.d/cay")


def test_an_old_apparmor_is_reported(system):
    system.put(APPARMOR, "1\n")
    assert "version 4 or newer" in system.ok()


def test_a_profile_of_the_administrator_stays(system, cay_of_root):
    system.put(APPARMOR, "1\n")
    system.put("etc/apparmor.d/abi/4.0")
    system.put("etc/apparmor.d/cay", "# ours\n")
    assert "did not write it" in system.ok(cay=(cay_of_root,))
    system.undo()
    assert system.get("etc/apparmor.d/cay") == "# ours\n"


@pytest.mark.parametrize("unit", ["Delegate=pids memory\n", "", "Delegate=cpu memory pids\nDelegate=\n"])
def test_missing_controllers_are_delegated_by_a_drop_in(system, unit):
    system.put(UNIT, "[Service]\n" + unit)
    before = system.tree()
    system.ok()
    assert system.get(DROP_IN).endswith("[Service]\nDelegate=cpu memory pids\n")
    assert "nothing to change" in system.ok()
    system.undo()
    assert system.tree() == before


@pytest.mark.parametrize("unit", ["Delegate=yes\n", "Delegate=cpu cpuset io memory pids\n",
                                  "Delegate=pids\nDelegate=cpu memory\n"])
def test_delegated_controllers_need_no_drop_in(system, unit):
    system.put(UNIT, "[Service]\n" + unit)
    system.ok()
    assert not system.has(DROP_IN)


def test_systemd_accepts_the_drop_in(system):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd is not installed")
    system.put(UNIT, "[Service]\nExecStart=/bin/true\nDelegate=pids\n")
    system.ok()
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--root", system.root,
                           "user@1000.service"], capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    assert "50-cay.conf" not in done.stderr and "Delegate" not in done.stderr, done


def test_what_setup_cannot_provide_is_named_and_the_rest_is_done(system):
    for path in ("usr/bin/newuidmap", "usr/lib/systemd/systemd"):
        (system.root / path).unlink()
    text = system.ok()
    assert "package uidmap" in text and "systemd is not installed" in text
    assert "alice:" in system.get("etc/subuid")


# --- Consent ---


def test_a_dry_run_prints_everything_and_changes_nothing(system):
    system.put(UNIT, "")
    before = system.tree()
    text = system.ok("--dry-run", yes=False)
    assert "add to /etc/subuid: alice:165536:65536" in text and "Delegate=cpu memory pids" in text
    assert system.tree() == before
    system.ok()
    before = system.tree()
    assert "remove from /etc/subuid: alice:165536:65536" in system.undo("--dry-run")
    assert system.tree() == before


def test_without_a_terminal_only_yes_changes_something(system):
    assert "pass --yes" in system.refused(27, yes=False)
    system.ok()
    assert "pass --yes" in system.refused(27, "--undo", yes=False, user=None)


@pytest.mark.parametrize("answer, done", [(b"y\n", True), (b"Y\n", True), (b"yes\n", True),
                                          (b"n\n", False), (b"\n", False), (b"yet\n", False), (b"\x04", False)])
def test_on_a_terminal_setup_prompts(system, answer, done):
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(CAY, [CAY, "setup", "--root", str(system.root), "--user", "alice"])
    seen = b""
    while b"[y/N]" not in seen:
        seen += os.read(fd, 4096)
    assert b"alice:165536:65536" in seen
    os.write(fd, answer)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(fd)
    assert (status == 0, "alice:" in system.get("etc/subuid")) == (done, done)


def test_a_second_setup_changes_nothing(system):
    system.put(UNIT, "")
    system.ok()
    before = system.tree()
    assert "nothing to change" in system.ok() and system.tree() == before


# --- Undo ---


def test_undo_leaves_what_was_there_and_what_was_added_since(system):
    system.put(UNIT, "")
    system.put(USERNS, "0\n")
    system.ok()
    system.put("etc/subuid", system.get("etc/subuid") + "carol:500000:65536\n")
    system.put("etc/subgid", system.get("etc/subgid").replace("alice:165536:65536",
                                                              "alice:165536:131072"))
    system.put(DROP_IN, "[Service]\nDelegate=pids\n")
    system.put(USERNS, "2\n")
    text = system.undo()
    assert f"leave /{DROP_IN}: it was changed since" in text
    assert system.get("etc/subuid") == "old:100000:65536\ncarol:500000:65536\n"
    assert system.get("etc/subgid") == "old:100000:65536\nalice:165536:131072\n"
    assert system.get(DROP_IN) == "[Service]\nDelegate=pids\n"
    assert system.get(USERNS) == "2\n" and not system.has(RECORD)


def test_undo_leaves_what_follows_a_zero_byte(system):
    system.ok()
    (system.root / "etc/subuid").write_bytes(b"alice:165536:65536\nold:1:2\n\0later:3:4\n")
    system.undo()
    assert (system.root / "etc/subuid").read_bytes() == b"old:1:2\n\0later:3:4\n"


def test_undo_takes_back_the_changes_of_all_setups(system):
    before = system.tree()
    system.ok()
    system.put(UNIT, "")
    system.ok(user="bob")
    system.put(UNIT, "[Service]\nDelegate=pids memory cpu\n")
    system.undo()
    assert system.tree() == before
    assert "changed nothing" in system.undo()


def test_undo_is_for_all_users(system):
    system.ok()
    assert "leave --user out" in system.refused(2, "--undo")


# --- Refusals ---


def test_a_name_that_is_the_id_of_another_user_is_refused(system):
    system.put("etc/passwd", system.get("etc/passwd") + "1001:x:1002:1002::/:/bin/sh\n")
    assert "is a number" in system.refused(2, user="1001")


def test_unknown_users_and_root_are_refused(system):
    assert "no such user" in system.refused(4, user="nobody-here")
    assert "no such user" in system.refused(4, "--user", "carol")
    assert "no such user" in system.refused(4, "--user", "")
    assert "root has all" in system.refused(2, user="root")
    assert "no user given" in system.refused(2, user=None)


def test_a_link_in_the_way_is_not_followed(system, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "subuid"
    outside.write_text("")
    (system.root / "etc/subgid").unlink()
    (system.root / "etc/subgid").symlink_to(outside)
    assert "is a symbolic link" in system.refused(12)
    assert outside.read_text() == ""


def test_directories_that_are_links_stay_inside_the_root(system, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (system.root / "etc/systemd/system/user@.service.d").symlink_to(outside)
    system.put(UNIT, "")
    system.refused(4)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("path", ["etc/.pwd.lock", "etc/subuid", USERNS])
def test_a_fifo_in_the_way_does_not_block(system, path):
    if system.has(path):
        (system.root / path).unlink()
    (system.root / path).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(system.root / path)
    assert (system.setup().status == 0) == (path == USERNS)


def test_a_directory_in_the_way_is_reported(system):
    (system.root / "etc/subuid").unlink()
    (system.root / "etc/subuid").mkdir()
    assert "not a regular file" in system.refused(24)


@pytest.fixture(name="read_only")
def fixture_read_only(system):
    """Puts a directory of the system on a read-only file system, for one command."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")

    def prefix(path):
        return ("unshare", "--mount", "sh", "-ec",
                f'mount --bind "{path}" "{path}"; mount -o remount,bind,ro "{path}"; exec "$0" "$@"',
                CAY)

    return prefix


def test_a_read_only_etc_changes_nothing(system, read_only):
    system.put(USERNS, "0\n")
    assert "read-only" in system.refused(3, cay=read_only(system.root / "etc"))


def test_a_failure_in_the_middle_takes_back_the_steps_before(system, read_only):
    system.put(UNIT, "")
    system.put(USERNS, "0\n")
    assert "read-only" in system.refused(3, cay=read_only(system.root / "etc/systemd"))
    system.ok()
    system.put("etc/subuid", system.get("etc/subuid"))
    (system.root / DROP_IN).unlink()
    # The record of the first setup is as before, too.
    system.refused(3, user="bob", cay=read_only(system.root / "etc/systemd"))


def test_an_undo_that_fails_can_be_repeated(system, read_only):
    system.put(UNIT, "")
    before = system.tree()
    system.ok()
    done = system.setup("--undo", user=None, cay=read_only(system.root / "etc"))
    assert done.status == 3 and system.has(RECORD)
    system.undo()
    assert system.tree() == before


def test_a_lock_of_usermod_is_respected(system):
    hold = ("import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
            "print(flush=True); sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", hold, system.root / "etc/.pwd.lock"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        assert "has locked" in system.refused(7)
        holder.stdin.close()
    system.put("etc/subuid.lock", f"{os.getpid()}\0")
    assert "has locked" in system.refused(7)
    os.unlink(system.root / "etc/subuid.lock")
    system.ok()


def test_a_lock_of_a_dead_process_is_removed(system):
    dead = subprocess.Popen(["true"])
    dead.wait()
    system.put("etc/subgid.lock", f"{dead.pid}\0")
    system.ok()
    assert not system.has("etc/subgid.lock")


def test_setup_takes_the_locks_that_usermod_takes(system):
    log = system.root / "log"
    subprocess.run(["strace", "-f", "-o", log, "-e", "trace=openat,linkat", CAY,
                    "setup", "--root", system.root, "--user", "alice", "--yes"],
                   stdout=subprocess.DEVNULL, timeout=PATIENCE, check=True, env=TRACED)
    text = log.read_text()
    for name in ("subuid", "subgid"):
        assert re.search(rf'link.*"{name}\.\d+".*"{name}\.lock"', text)
    assert '".pwd.lock"' in text


@pytest.mark.parametrize("line", [
    "range",
    "whatever",
    "sysctl proc/sys/kernel/core_pattern |/bin/evil |x",
    f"sysctl {USERNS} {'0' * 5000} 1",
    f"sysctl {USERNS} 0 one",
    "sysctl a 0 1",
    "file etc/passwd 0",
    "empty etc/hostname",
    "range etc/passwd alice:x:1000:1000::/:/bin/sh",
    "directory var",
    "directory etc/../../var",
])
def test_a_record_of_changes_that_setup_does_not_make_is_refused(system, line):
    for path in ("proc/sys/kernel/core_pattern", "etc/hostname"):
        system.put(path)
    system.put(RECORD, line + "\n")
    for words in ([], ["--undo"]):
        assert "invalid line" in system.refused(14, *words, user=None if words else "alice")


def test_a_proc_that_is_mounted_in_an_image_is_not_changed(system):
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    (system.root / "proc").mkdir()
    done = subprocess.run(  # the value belongs to the user namespace
        ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-euc", f"""
mount -t proc none "$1/proc"
echo 15000 >"$1/{MAXIMUM}"
mkdir "$1/var/lib/cay"
echo sysctl {MAXIMUM} 7 15000 >"$1/{RECORD}"
"$0" setup --root "$1" --undo --yes
echo 0 >"$1/{MAXIMUM}"
"$0" setup --root "$1" --user alice --dry-run
cat "$1/{MAXIMUM}"
""", CAY, system.root], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "max_user_namespaces" not in done.stdout and done.stdout.endswith("\n0\n")


def test_programs_of_the_callers_path_are_not_run(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "systemctl").chmod(0o755)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-euc", f"""
mkdir -p /var/lib/cay
mount -t tmpfs none /var/lib/cay
echo file {DROP_IN} 0 >/{RECORD}
PATH={tmp_path}:$PATH "$0" setup --undo --yes
""", CAY], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done
    assert not (tmp_path / "ran").exists()


# --- Crashes ---


def killed_at(system, number):
    """Runs setup until its Nth change of a name; false if it came to its end."""
    log = system.root.parent / f"{system.root.name}.log"
    done = subprocess.run(
        ["strace", "-f", "-o", log, "-e", f"trace={NAMES}",
         "-e", f"inject={NAMES}:signal=SIGKILL:when={number}",
         CAY, "setup", "--root", system.root, "--user", "alice", "--yes"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False,
        env=TRACED)
    log.unlink()
    assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL)
    return done.returncode != 0


@pytest.mark.parametrize("then", ["undo", "setup"])
def test_a_crash_at_any_step_is_mended(tmp_path, then):
    crashes, number = 0, 0
    while True:
        number += 1
        system = System(tmp_path / str(number))
        system.put(UNIT, "")
        system.put(USERNS, "0\n")
        before = system.tree()
        if not killed_at(system, number):
            break
        crashes += 1
        if then == "setup":
            system.ok()
            assert system.get("etc/subuid") == "old:100000:65536\nalice:165536:65536\n"
            assert system.get("etc/subgid") == system.get("etc/subuid")
            assert system.has(DROP_IN) and system.get(USERNS) == "1\n"
        system.undo()
        left = {path: state for path, state in system.tree().items()
                if not re.search(r"etc/sub[ug]id\.(lock|\d+)$|var/lib/cay$", path)}
        assert left == {path: state for path, state in before.items() if path in left}
        assert left.keys() == before.keys()
    assert crashes >= 10


# --- As an ordinary user ---

UID = 54322
# A machine whose /etc and records are copies; `user` runs a command as an ordinary user of it.
OWN_MACHINE = f"""
work=$1 cay=$2
mount -t tmpfs none "$work"
mkdir "$work/upper" "$work/work" "$work/run"
mount -t overlay -o "lowerdir=/etc,upperdir=$work/upper,workdir=$work/work" none /etc
mkdir -p /var/lib/cay
mount -t tmpfs -o mode=700 none /var/lib/cay
echo "cayuser:x:{UID}:{UID}::/:/bin/sh" >>/etc/passwd
: >/etc/subuid
: >/etc/subgid
chown {UID}:{UID} "$work/run"
chmod 700 "$work/run"
user() {{
    setpriv --reuid={UID} --regid={UID} --clear-groups env -u CAY_HOME -u XDG_STATE_HOME \\
        XDG_RUNTIME_DIR="$work/run" HOME="$work/run" "$@" 2>&1
}}
level() {{
    id=$(user "$cay" create)
    user "$cay" inspect "$id" | sed -n 's/^isolation: level \\([a-z]*\\).*/\\1/p'
    user "$cay" kill "$id" >/dev/null
}}
level
user "$cay" run -u root -- id -u || echo "status $?"
user "$cay" setup </dev/null || echo "status $?"
SUDO_UID=0 "$cay" setup --yes 2>&1 || echo "status $?"
SUDO_UID={UID} "$cay" setup --yes
level
user "$cay" run -u root -- id -u
user "$cay" run -- id -un
user "$cay" setup
"$cay" setup --undo --yes
level
cat /etc/subuid /etc/subgid
ls -A /var/lib/cay
"""


def test_an_ordinary_user_gets_the_level_range_until_undo():
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "work").mkdir()
    done = subprocess.run(["unshare", "--mount", "sh", "-euc", OWN_MACHINE, "sh", folder / "work",
                           copy_command(folder)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    shutil.rmtree(folder)
    assert (done.returncode, done.stderr) == (0, ""), done
    refused, setup = done.stdout.split("cay setup changes:\n", 1)
    assert refused.startswith("single\n") and "only one user" in refused
    assert refused.endswith("status 125\n")
    missing, changed = setup.split("cay setup changes:\n", 1)
    assert "add to /etc/subuid: cayuser:100000:65536" in missing
    assert f"(sudo {folder}/cay setup)" in missing and "status 3\n" in missing
    assert "no user given" in missing and missing.endswith("status 2\n")
    after, undone = changed.split("cay setup --undo changes:\n")
    assert "takes it back.\nrange\n0\nuser\ncay setup has nothing to change.\n" in after
    assert undone.endswith("\nsingle\n")
