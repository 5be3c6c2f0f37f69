# SPDX-License-Identifier: Apache-2.0
"""`cay` as two programs: the small one has the commands about native sandboxes, and becomes
the whole one for everything else."""

import json
import os
import re
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CAY, PATIENCE

WHOLE = Path(CAY).with_name("cay-full")
UNAVAILABLE = 13

if not WHOLE.exists():
    pytest.skip("here the command is one program", allow_module_level=True)


def call(program, *words, stdin=b"", **more):
    return subprocess.run([program, *words], input=stdin, capture_output=True,
                          timeout=PATIENCE, check=False, **more)


@pytest.fixture(name="alone")
def fixture_alone(tmp_path):
    return Path(shutil.copy(CAY, tmp_path / "cay"))


def test_a_run_needs_nothing_but_the_small_program(alone):
    done = call(alone, "run", "-i", "--", "sh", "-c", "cat; exit 7", stdin=b"text")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"text", b"")


def test_small_program_does_the_daily_commands_alone(alone, tmp_path):
    def output(*words, stdin=b""):
        done = call(alone, *words, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b""), words
        return done.stdout.decode()

    box = output("create").strip()
    try:
        assert output("exec", box, "--", "echo", "inside") == "inside\n"
        assert box in output("ls", "-q").split()
        assert json.loads(output("inspect", box, "-o", "json"))["id"] == box
        output("put", box, "/tmp/file", stdin=b"text")
        assert output("cat", box, "/tmp/file") == "text"
        (tmp_path / "script").write_text("#!/bin/sh\n", encoding="ascii")
        (tmp_path / "script").chmod(0o750)
        output("cp", str(tmp_path / "script"), f"{box}:/tmp/")
        assert output("exec", box, "--", "stat", "-c", "%a", "/tmp/script") == "750\n"
        output("cp", f"{box}:/tmp/file", str(tmp_path / "copy"))
        assert (tmp_path / "copy").read_text(encoding="ascii") == "text"
        output("exec", "-d", "--tag", "slow", box, "--", "sh", "-c", "echo begun; sleep 1000")
        assert "slow" in output("ps", box)
        output("kill", "-s", "KILL", box, "slow")
        assert output("logs", box, "slow") == "begun\n"
        output("pause", box)
        output("resume", box)
    finally:
        output("kill", box)


def test_small_program_becomes_the_whole_one_for_directories_and_local_sandboxes(alone, tmp_path):
    (tmp_path / "dir").mkdir()
    box = call(CAY, "create").stdout.decode().strip()
    try:
        for words in (["cp", str(tmp_path / "dir"), f"{box}:/tmp/"],
                      ["cp", f"{box}:/tmp", str(tmp_path / "dir")],
                      ["cp", "-", f"{box}:/tmp/"]):
            assert call(alone, *words).returncode == UNAVAILABLE
            assert call(CAY, *words[:2], f"{box}:/tmp/no/such" if words[1] == "-" else words[2],
                        stdin=b"").returncode == 0
    finally:
        call(CAY, "kill", box)


@pytest.mark.parametrize("words", [
    [], ["--version"], ["gc"], ["run"], ["run", "--help"], ["run", "--config", "x", "--", "true"],
    ["run", "--no-such", "--", "true"], ["no-such"],
])
def test_for_all_else_the_missing_one_is_told(alone, words):
    done = call(alone, *words)
    assert (done.returncode, done.stdout) == (UNAVAILABLE, b"")
    assert done.stderr.startswith(b"cay: unavailable: cay-full: this part of cay is not installed (")


def test_a_cay_full_that_cannot_be_executed_is_reported(alone):
    alone.with_name("cay-full").write_text("no program", encoding="ascii")
    done = call(alone, "--version")
    assert done.stderr.startswith(b"cay: exec-failed: cay-full: Permission denied (")
    alone.with_name("cay-full").chmod(0o755)
    assert b": Exec format error (" in call(alone, "--version").stderr


def test_cay_full_starts_without_the_timer_of_the_progress_display(alone, tmp_path):
    """The alarm would kill it if it took more than a second to set a handler."""
    alone.with_name("cay-full").write_text(
        f"#!{sys.executable}\nimport signal\nprint(signal.getitimer(signal.ITIMER_REAL))\n",
        encoding="utf-8")
    alone.with_name("cay-full").chmod(0o755)
    (tmp_path / "dir").mkdir()
    box = call(CAY, "create").stdout.decode().strip()
    terminal, follower = pty.openpty()  # progress is displayed on a terminal only
    try:
        done = subprocess.run([alone, "cp", tmp_path / "dir", f"{box}:/tmp/"], stderr=follower,
                              stdout=subprocess.PIPE, timeout=PATIENCE, check=True)
        assert done.stdout == b"(0.0, 0.0)\n"
    finally:
        os.close(terminal)
        os.close(follower)
        call(CAY, "kill", box)


@pytest.mark.parametrize("words", [["no-such"], ["-o", "json", "no-such"]], ids=" ".join)
@pytest.mark.parametrize("program", [CAY, WHOLE], ids=["small", "full"])
def test_an_error_is_one_write(program, words):
    """Lines of several programs that share standard error do not mix."""
    reader, writer = os.pipe2(os.O_DIRECT)  # a read returns one write
    with subprocess.Popen([program, "inspect", *words], stderr=writer):
        os.close(writer)
        first = os.read(reader, 4096)
        os.close(reader)
    assert first.endswith(b"\n")


def test_a_tree_may_be_moved_after_it_was_installed(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "libexec/cay").mkdir(parents=True)
    shutil.copy(CAY, tmp_path / "bin/cay")
    shutil.copy(WHOLE, tmp_path / "libexec/cay/cay-full")
    assert call(tmp_path / "bin/cay", "--version").stdout.startswith(b"cay ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_part_that_is_somebody_elses_is_none(alone):
    other = alone.with_name("cay-full")
    other.write_text("#!/bin/sh\necho taken\n", encoding="ascii")
    other.chmod(0o755)
    assert call(alone, "--version").stdout == b"taken\n"  # as it is ours
    os.chown(other, 12345, 12345)
    assert call(alone, "--version").returncode == UNAVAILABLE
    other.unlink()
    other.symlink_to(WHOLE)
    assert call(alone, "--version").returncode == UNAVAILABLE


def test_a_name_in_the_path_or_a_link_does(tmp_path):
    (tmp_path / "other").symlink_to(CAY)
    done = call("other", "--version", env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.stdout.startswith(b"cay ")


@pytest.mark.parametrize("words", [
    ["--", "sh", "-c", "echo out; echo err >&2; exit 3"],
    ["--", "sh", "-c", "kill -9 $$"],
    ["--", "no-such-program"],
    ["--", "/etc"],
    ["--", "sh", "/no/such/script"],
    ["-e", "A=b", "-w", "/tmp", "-u", "root", "--", "sh", "-c", "echo $A; pwd; id -u"],
    ["-m", "32M", "--disk", "16M", "--", "sh", "-c", "tail /dev/zero; exit 3"],
    ["--timeout", "300ms", "--", "sleep", "1000"],
    ["--network", "host", "--", "true"],
    ["-v", "/no/such:/src", "--", "true"],
    ["-v", "/etc/passwd:/srv/file:ro", "--", "sh", "-c", "wc -l < /srv/file; echo > /srv/file"],
    ["-u", "nobody-there", "--", "true"],
    ["-w", "/no/such", "--", "true"],
    ["--template", "no-such", "--", "true"],
    ["--require", "disk", "--storage", "disk", "--", "true"],
    ["-t", "--", "true"],
    ["-m", "lots", "--", "true"],
    ["-o", "json", "--no-such"],
    ["-o", "json", "-u", "nobody-there", "--", "true"],
    ["a", "-e", "b"],
], ids=" ".join)
def test_both_do_the_same(words):
    mine, whole = call(CAY, "run", *words), call(WHOLE, "run", *words)
    assert mine.returncode == whole.returncode
    assert (mine.stdout, mine.stderr) == (whole.stdout, whole.stderr)


def test_both_tell_the_same_as_json():
    def told(program):
        done = call(program, "run", "-o", "json", "--", "sh", "-c", "printf '\\377x'; echo e >&2")
        value = json.loads(done.stdout)
        for key in ("wall_us", "user_us", "system_us", "peak_memory"):
            assert value.pop(key) >= 0
        return value

    assert told(CAY) == told(WHOLE)


def test_what_was_open_is_not_given_on(tmp_path):
    with open(tmp_path / "secret", "w", encoding="ascii") as file:
        os.set_inheritable(file.fileno(), True)
        done = call(CAY, "run", "--", "ls", "/proc/self/fd", pass_fds=[file.fileno()])
    assert done.stdout.split() == [b"0", b"1", b"2", b"3"]  # the last is of ls


def test_it_needs_no_library_and_its_addresses_are_drawn():
    header = subprocess.run(["readelf", "-hlW", CAY], capture_output=True, text=True,
                            timeout=PATIENCE, check=True).stdout
    assert re.search(r"Type:\s+DYN", header)
    assert "INTERP" not in header
    assert re.search(r"GNU_STACK.* RW ", header)
    assert "GNU_RELRO" in header
