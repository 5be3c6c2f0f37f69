# SPDX-License-Identifier: Apache-2.0
"""Each class of error has its exit status and says what is allowed, without host paths."""

import json
import os
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import PATIENCE, World, copy_command


def as_nobody(base):
    """How to start a process that is not root and can yet reach all below `base`."""
    if os.getuid() != 0:
        return {}
    for path in (base, *base.iterdir()):
        if path.is_dir():
            os.chmod(path, 0o755)
    return {"user": 65534}


@pytest.fixture
def errors(world):
    """Words of a command, by the slug of the error that they end with."""
    world.put("docs/a", "x")
    world.put("notes/taken", "x")
    world.put("notes/twice", "x x")
    world.put("notes/dir/x", "x")
    world.put("notes/binary", b"\xff\xfe")
    world.put("small/large.txt", "01234567890")
    os.mkfifo(world.base / "docs" / "fifo")
    return {
        "invalid": (2, ["glob", "../*", "docs"]),
        "not-found": (4, ["read", "docs/none"]),
        "exists": (6, ["mkdir", "notes/taken"]),
        "outside": (18, ["read", "docs/../../x"]),
        "read-only": (19, ["write", "docs/a"]),
        "suffix": (21, ["write", "small/a.exe"]),
        "too-large": (22, ["read", "small/large.txt"]),
        "no-match": (23, ["edit", "notes/twice", "--old", "x", "--new", "y"]),
        "not-a-file": (24, ["read", "docs/fifo"]),
        "not-a-directory": (25, ["write", "notes/taken/x"]),
        "not-text": (26, ["read", "--lines", "notes/binary"]),
        "not-approved": (27, ["write", "asked/a"]),
    }


SLUGS = ("invalid not-found exists outside read-only suffix too-large no-match not-a-file "
         "not-a-directory not-text not-approved").split()


@pytest.mark.parametrize("slug", SLUGS)
def test_an_error_has_a_status_a_slug_and_a_hint(world, errors, slug):
    status, words = errors[slug]
    line = world.fails(status, *words, stdin="new")
    assert line.startswith(f"cay: {slug}: ")
    result = world.cay(*words, "-o", "json", stdin="new")
    assert (result.status, result.out) == (status, b"")
    error = result.error
    assert sorted(error) == ["code", "errno", "hint", "message", "op", "slug", "subject"]
    assert (error["slug"], error["code"]) == (slug, 1 - status)
    assert error["hint"] and error["message"] and error["op"]
    assert line == f"cay: {slug}: {error['subject']}: {error['message']} ({error['hint']})"


@pytest.mark.parametrize("slug", SLUGS)
def test_no_error_names_a_path_of_the_host(world, errors, slug):
    status, words = errors[slug]
    virtual = world.base / "mounts.yaml"
    virtual.write_text(
        "mounts:\n"
        "  - {host_path: docs, mount_point: /docs}\n"
        "  - {host_path: notes, mount_point: /notes, mode: rw, write_approval: false}\n"
        "  - {host_path: asked, mount_point: /asked, mode: rw}\n"
        "  - {host_path: small, mount_point: /small, mode: rw, write_approval: false,\n"
        "     max_file_bytes: 10, suffixes: [.txt]}\n")
    for config in (world.config, virtual):
        result = world.cay(*words, stdin="new", config=os.path.relpath(config, world.base))
        assert result.status == status, result
        assert os.fsencode(world.base) not in result.err
        assert os.fsencode(world.base.name) not in result.err


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside/x", "/", "../.."])
def test_a_link_that_leads_out_is_outside_and_not_said_where_to(world, target):
    world.put("outside/x", "treasure")
    os.symlink(target, world.base / "notes" / "link")
    line = world.fails(18, "read", "notes/link")
    assert "treasure" not in line and "passwd" not in line and str(world.base) not in line
    world.fails(18, "write", "notes/link/x", stdin="x")


def test_a_socket_and_a_device_are_never_opened(world):
    with socket.socket(socket.AF_UNIX) as listener:
        previous = os.getcwd()
        os.chdir(world.base / "notes")  # for the short limit on socket names
        listener.bind("socket")
        os.chdir(previous)
        world.fails(24, "read", "notes/socket")
        world.fails(24, "write", "notes/socket", stdin="x")


def test_what_the_system_refuses_is_denied():
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        world = World(base)
        os.chmod(world.put("docs/locked", "x"), 0)
        command = copy_command(base)
        done = subprocess.run([command, *world.argv(["read", "docs/locked"])[1:]], cwd=base,
                              capture_output=True, timeout=PATIENCE, check=False,
                              **as_nobody(base))
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.startswith(b"cay: denied: docs/locked: ")


@pytest.mark.parametrize("text, line, key", [
    ("paths:\n  docs:\n    root: docs\n    mode: xx\n", 4, "paths.docs.mode"),
    ("paths:\n  docs:\n    rot: docs\n", 3, "paths.docs.rot"),
    ("paths:\n  docs: {root: docs}\n  docs: {root: notes}\n", 3, "paths.docs"),
    ("root:\n  root: docs\n  readonly: maybe\n", 3, "root.readonly"),
    ("mounts:\n  - {host_path: docs, mount_point: docs}\n", 2, "mounts[0].mount_point"),
    ("paths:\n  docs: {root: docs, max_file_bytes: -1}\n", 2, "paths.docs.max_file_bytes"),
    ('{"paths": {"docs": {"root": "docs",\n "suffixes": "txt"}}}', 2, "paths.docs.suffixes"),
])
def test_a_wrong_policy_is_told_by_line_and_key(world, text, line, key):
    world.put("wrong.yaml", text)
    told = world.fails(2, "roots", config="wrong.yaml")
    assert told.startswith("cay: invalid: wrong.yaml: ")
    assert f"line {line}" in told and key in told


def test_a_suffix_that_no_file_can_have_is_refused(world):
    for suffix, why, right in (("txt", "a suffix starts with a dot", ".txt"),
                               (".tar.gz", "only the last suffix", ".gz"),
                               ('"*.md"', "only the last suffix", ".md")):
        world.put("wrong.yaml", f"paths: {{d: {{root: docs, suffixes: [.a, {suffix}]}}}}\n")
        line = world.fails(2, "roots", config="wrong.yaml")
        assert f"paths.d.suffixes[1]: {why}" in line and f"(write {right})" in line
    world.put("right.yaml", 'paths: {d: {root: docs, suffixes: [.a, ""]}}\n')
    world.put("docs/Makefile", "all:\n")
    assert world.ok("read", "d/Makefile", config="right.yaml").out == b"all:\n"


def test_a_policy_that_is_missing_or_no_text_is_told(world):
    assert world.fails(4, "roots", config="none.yaml").startswith("cay: not-found: none.yaml: ")
    world.put("bad.yaml", b"\xff\xfe\0")
    assert world.fails(2, "roots", config="bad.yaml").startswith("cay: invalid: bad.yaml: ")


def test_a_directory_that_cannot_be_written_must_exist(world):
    world.put("missing.yaml", "paths: {gone: {root: gone}, made: {root: made, mode: rw}}\n")
    line = world.fails(4, "roots", config="missing.yaml")
    assert "missing.yaml:1: paths.gone" in line


def test_relative_directories_start_at_the_policys_own_or_at_base(world):
    world.put("sub/policy.yaml", "paths: {d: {root: docs}}\n")
    world.put("docs/here", "1")
    world.put("sub/docs/there", "2")
    assert world.ok("list", "d", config="sub/policy.yaml").out == b"d/there\n"
    assert world.ok("list", "d", "--base", ".", config="sub/policy.yaml").out == b"d/here\n"


def test_control_characters_in_an_error_are_shown_not_sent(world):
    result = world.cay("read", "docs/\x1b[2J\r\nx\u202ey\x9b")
    assert result.status == 4
    assert "docs/\\x1b[2J\\r\\nx\\u202ey\\x9b: " in result.line
    result = world.cay("read", b"docs/\xff")
    assert "docs/\\xff: " in result.line
    error = world.cay("read", b"docs/\xff\x1b", "-o", "json").error
    assert error["subject"].encode("utf-8", "surrogateescape") == b"docs/\xff\x1b"


def run_to(world, words, stdout, **more):
    return subprocess.run(world.argv(words), stdout=stdout, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, cwd=world.base, env=world.environ,
                          timeout=PATIENCE, check=False, **more)


@pytest.mark.parametrize("words", [
    ["read", "docs/a"], ["list", "docs"], ["list", "docs", "-ojson"], ["grep", "x", "docs"],
    ["roots"], ["stat", "docs/a"], ["exists", "docs/a"], ["--help"], ["read", "--help"],
])
def test_a_full_disk_under_standard_output_is_an_error(world, words):
    world.put("docs/a", "x\n")
    with open("/dev/full", "wb") as full:
        done = run_to(world, words, full)
    assert done.returncode == 11
    assert b"no-space" in done.stderr and b"standard output" in done.stderr


def test_a_large_file_into_a_full_disk_stops_at_once(world):
    world.put("docs/a", os.urandom(20 << 20))
    with open("/dev/full", "wb") as full:
        done = run_to(world, ["read", "docs/a"], full)
    assert done.returncode == 11


def test_a_closed_standard_output_is_an_error_and_nothing_is_written_elsewhere(world):
    world.put("docs/a", "x\n")
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *world.argv(["read", "docs/a"])],
                          stderr=subprocess.PIPE, cwd=world.base, env=world.environ,
                          timeout=PATIENCE, check=False)
    assert done.returncode == 29 and done.stderr.startswith(b"cay: io: standard output: ")


def test_a_closed_standard_input_is_an_error(world):
    before = world.tree()
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *world.argv(["write", "notes/a"])],
                          stderr=subprocess.PIPE, cwd=world.base, env=world.environ,
                          timeout=PATIENCE, check=False)
    assert done.returncode == 29
    assert done.stderr == (b"cay: io: standard input: the descriptor is closed, or not open for "
                           b"this operation "
                           b"(pass an open descriptor)\n")
    assert world.tree() == before


def test_when_nobody_reads_on_it_ends_without_a_word(world):
    world.put("docs/a", os.urandom(4 << 20))
    for restore in (True, False):  # with SIGPIPE as usual, and ignored by the parent
        reader, writer = os.pipe()
        child = subprocess.Popen(world.argv(["read", "docs/a"]), stdout=writer,
                                 stderr=subprocess.PIPE, cwd=world.base, env=world.environ,
                                 restore_signals=restore)
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        assert child.communicate(timeout=PATIENCE)[1] == b""
        assert child.returncode == -13


def test_nothing_is_read_from_standard_input_before_the_path_is_checked(world):
    reader, writer = os.pipe()
    done = subprocess.run(world.argv(["write", "docs/a"]), stdin=reader, capture_output=True,
                          cwd=world.base, env=world.environ, timeout=PATIENCE, check=False)
    os.close(writer)
    os.close(reader)
    assert done.returncode == 19


def test_errors_as_json_are_one_line_each(world):
    result = world.cay("read", "docs/new\nline", "-o", "json")
    assert result.err.count(b"\n") == 1
    assert json.loads(result.err)["error"]["subject"] == "docs/new\nline"
