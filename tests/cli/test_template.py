# SPDX-License-Identifier: Apache-2.0
"""cay template: what sandboxes start from."""

import io
import os
import shutil
import subprocess
import tarfile
import uuid

import pytest


@pytest.fixture(name="root")
def fixture_root(tmp_path):
    """A small root that can run something: sh, cat and their libraries."""
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    for name in ("etc", "tmp", "proc", "dev"):
        (root / name).mkdir()
    (root / "etc" / "motd").write_text("a small root\n")
    programs = ["/bin/sh", "/bin/cat"]
    for program in programs:
        shutil.copy(program, root / "bin")
        for line in subprocess.run(["ldd", program], capture_output=True, text=True,
                                   check=True).stdout.splitlines():
            library = next((word for word in line.split() if word.startswith("/")), None)
            if library:
                target = root / library.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(os.path.realpath(library), target)
    return root


@pytest.fixture(name="name")
def fixture_name(boxes):
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    boxes.cay("template", "rm", name)
    assert name not in boxes.ok("template", "ls", "-q").text.split()


def test_host_is_always_there(boxes):
    assert "host" in boxes.ok("template", "ls", "-q").text.split()
    (host,) = [one for one in boxes.ok("template", "ls", "-o", "json").json["templates"]
               if one["name"] == "host"]
    assert host["source"] == "builtin"


def test_packages_are_for_debian_only(boxes, name, root):
    told = boxes.fails(2, "template", "create", name, "--from-dir", root, "--packages", "git")
    assert "use --packages with --debootstrap SUITE" in told
    told = boxes.fails(2, "template", "create", name, "--packages", "git")
    assert "no source given" in told
    told = boxes.fails(2, "template", "create", name, "--debootstrap", "bookworm", "--packages", "-y")
    assert "invalid list of packages" in told


def test_templates_of_the_servers_tenants_are_in_no_hint(boxes, name, root):
    hidden = f"e2b.{name}"
    boxes.ok("template", "create", name, "--from-dir", root)
    boxes.ok("template", "create", hidden, "--from-dir", root)
    try:
        told = boxes.fails(125, "run", "--template", "no-such", "--", "true")
        assert name in told and hidden not in told
    finally:
        boxes.ok("template", "rm", hidden)


def test_a_directory_becomes_a_template(boxes, name, root):
    boxes.ok("template", "create", name, "--from-dir", root)
    (one,) = [one for one in boxes.ok("template", "ls", "-o", "json").json["templates"]
              if one["name"] == name]
    assert one["source"] == "dir" and one["bytes"] > 0 and one["created_ms"] > 0
    assert boxes.ok("run", "--template", name, "--", "cat", "/etc/motd").out == b"a small root\n"
    rows = boxes.ok("template", "ls").text.splitlines()
    assert rows[0].split() == ["NAME", "SOURCE", "AGE", "SIZE", "FROM"]
    assert any(row.startswith(name) for row in rows)
    boxes.ok("template", "rm", name)
    assert boxes.fails(125, "run", "--template", name, "--", "true").startswith("cay: not-found: ")


def test_the_name_of_a_source_cannot_drive_the_terminal(boxes, name, root):
    root.rename(root.with_name("ev\x1b[2Jil"))
    boxes.ok("template", "create", name, "--from-dir", root.with_name("ev\x1b[2Jil"))
    out = boxes.ok("template", "ls").out
    assert b"\x1b" not in out and b"ev\\x1b[2Jil" in out


def test_a_tar_becomes_a_template(boxes, name, root):
    subprocess.run(["tar", "czf", boxes.folder / "root.tar.gz", "-C", root, "."], check=True)
    boxes.ok("template", "create", name, "--from-tar", "root.tar.gz")
    assert boxes.ok("run", "--template", name, "--", "cat", "/etc/motd").out == b"a small root\n"


def test_the_tar_of_a_sandbox_becomes_a_template_that_runs(boxes, name, root):
    """Section 4 of the findings: absolute links and FIFOs were lost."""
    (root / "bin" / "dog").symlink_to("/bin/cat")
    (root / "bin" / "gone").symlink_to("/nowhere")
    os.mkfifo(root / "tmp" / "fifo")
    os.chown(root / "tmp", 1000, 1000)
    (root / "tmp").chmod(0o1777)
    box = boxes.create("--template", "./root")
    done = boxes.cay("cp", "-u", "root", f"{box}:/", "-")
    assert done.status == 0 and done.err.endswith(b"sockets and devices were skipped\n")  # /dev
    with tarfile.open(fileobj=io.BytesIO(done.out)) as archive:
        found = {one.name.removeprefix("./").rstrip("/"): one for one in archive}
    assert (found["bin/dog"].linkname, found["bin/gone"].linkname) == ("/bin/cat", "/nowhere")
    assert found["tmp/fifo"].isfifo()
    assert (found["tmp"].uid, found["tmp"].gid, found["tmp"].mode) == (1000, 1000, 0o1777)
    (boxes.folder / "root.tar").write_bytes(done.out)
    boxes.ok("template", "create", name, "--from-tar", "root.tar")
    assert boxes.ok("run", "--template", name, "--", "dog", "/etc/motd").out == b"a small root\n"


def test_a_directory_can_be_used_as_it_is(boxes, root):
    assert boxes.ok("run", "--template", "./root", "--", "cat", "/etc/motd").out == \
        b"a small root\n"


def test_a_program_that_is_not_in_the_template_is_told_so(boxes, root):
    done = boxes.cay("run", "--template", "./root", "--", "ls", env={"PATH": "/usr/bin:/bin"})
    assert done.status == 127 and b"but this template does not" in done.err


@pytest.mark.parametrize("words", [
    ("create",), ("create", "x"), ("create", "x", "--from-dir", "a", "--from-tar", "b"),
    ("create", "x", "y", "--from-dir", "a"), ("creat",), (), ("rm",), ("ls", "x"),
    ("ls", "--from-dir", "a"), ("create", "host", "--from-dir", "/"),
    ("create", "a/b", "--from-dir", "/")])
def test_wrong_words_are_refused(boxes, words):
    assert boxes.fails(2, "template", *words).startswith("cay: invalid: ")


@pytest.mark.parametrize("source", ["--from-tar", "--from-oci"])
def test_what_is_no_archive_is_told_by_its_name(boxes, source):
    (boxes.folder / "notes.txt").write_text("no archive\n" * 100)
    assert boxes.fails(2, "template", "create", "x", source, "notes.txt").startswith(
        "cay: invalid: notes.txt: this is not a tar archive")


def test_what_is_not_there_is_told(boxes):
    assert boxes.fails(4, "template", "rm", "no-such").startswith("cay: not-found: ")
    assert boxes.fails(4, "template", "create", "x", "--from-dir", "no-such").startswith(
        "cay: not-found: ")
