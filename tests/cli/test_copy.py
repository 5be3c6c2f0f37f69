# SPDX-License-Identifier: Apache-2.0
"""cp, cat and put: files into a sandbox and out of it."""

import io
import os
import pty
import select
import socket
import stat
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from conftest import CAY, PATIENCE


def tree(path):
    return {str(one.relative_to(path)): one.read_bytes() if one.is_file() else None
            for one in path.rglob("*")}


@pytest.fixture(name="project")
def fixture_project(tmp_path):
    base = tmp_path / "project"
    (base / "src" / "deep").mkdir(parents=True)
    (base / "src" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (base / "src" / "run.sh").chmod(0o755)
    (base / "src" / "deep" / "data.bin").write_bytes(bytes(range(256)) * 1000)
    (base / "empty").mkdir()
    return base


def test_put_and_cat_are_byte_exact(boxes, box):
    data = os.urandom(100_000)
    boxes.ok("put", box, "notes/a.bin", stdin=data)
    assert boxes.ok("cat", box, "notes/a.bin").out == data
    assert boxes.ok("cat", box, "/home/user/notes/a.bin").out == data
    boxes.ok("put", box, "notes/a.bin", stdin=b"")
    assert boxes.ok("cat", box, "notes/a.bin").out == b""


def test_pipes_that_do_not_wait_are_waited_for(boxes, box):
    data = os.urandom(1 << 20)
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    putting = boxes.start("put", box, "slow", stdin=theirs)
    os.close(theirs)
    time.sleep(0.2)
    with os.fdopen(ours, "wb") as pipe:
        pipe.write(data)
    assert putting.wait(PATIENCE) == 0, putting.stderr.read()
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    getting = boxes.start("cat", box, "slow", stdout=theirs)
    os.close(theirs)
    time.sleep(0.2)
    with os.fdopen(ours, "rb") as pipe:
        assert pipe.read() == data
    assert getting.wait(PATIENCE) == 0, getting.stderr.read()


def test_large_files_go_both_ways(boxes):
    box = boxes.create("-m", "1G")
    data = os.urandom(1 << 20) * 120  # more than one read of the library returns
    boxes.ok("put", box, "big", stdin=data)
    assert boxes.ok("cat", box, "big").out == data


def test_a_file_keeps_its_mode(boxes, box, project):
    boxes.ok("cp", project / "src" / "run.sh", f"{box}:")
    assert boxes.ok("exec", box, "./run.sh").out == b"ran\n"
    boxes.ok("cp", f"{box}:run.sh", "back.sh")
    assert stat.S_IMODE(os.stat(boxes.folder / "back.sh").st_mode) & 0o111
    assert (boxes.folder / "back.sh").read_bytes() == (project / "src" / "run.sh").read_bytes()


def test_names_of_files_are_chosen_as_cp_does(boxes, box, project):
    source = project / "src" / "run.sh"
    boxes.ok("exec", box, "mkdir", "there")
    for target, name in (("there", "there/run.sh"), ("there/new", "there/new"),
                         ("/tmp/", "/tmp/run.sh"), ("a/b/c", "a/b/c")):
        boxes.ok("cp", source, f"{box}:{target}")
        assert boxes.ok("cat", box, name).out == source.read_bytes()
    (boxes.folder / "out").mkdir()
    for target, name in (("out", "out/run.sh"), ("new", "new"), ("out/other", "out/other")):
        boxes.ok("cp", f"{box}:/tmp/run.sh", target)
        assert (boxes.folder / name).read_bytes() == source.read_bytes()


def test_directories_go_both_ways(boxes, box, project):
    boxes.ok("cp", project, f"{box}:copy")
    assert boxes.ok("exec", box, "copy/src/run.sh").out == b"ran\n"
    boxes.ok("cp", f"{box}:copy", "back")
    assert tree(boxes.folder / "back") == tree(project)


def test_into_a_directory_a_directory_goes_under_its_name_or_only_its_content(boxes, box, project):
    boxes.ok("cp", project, f"{box}:")
    assert boxes.ok("exec", box, "project/src/run.sh").out == b"ran\n"
    boxes.ok("cp", f"{project}/.", f"{box}:/tmp")
    assert boxes.ok("exec", box, "/tmp/src/run.sh").out == b"ran\n"
    (boxes.folder / "in").mkdir()
    boxes.ok("cp", f"{box}:project", "in")
    assert tree(boxes.folder / "in" / "project") == tree(project)


def test_what_is_copied_in_belongs_to_the_user_inside(boxes, box, project):
    boxes.ok("cp", project, f"{box}:p")
    assert boxes.ok("exec", box, "stat", "-c", "%U", "p", "p/src/run.sh").out == b"user\nuser\n"
    boxes.ok("cp", "-u", "root", project / "src" / "run.sh", f"{box}:/root/x")
    assert boxes.ok("exec", "-u", "root", box, "stat", "-c", "%U", "/root/x").out == b"root\n"
    assert boxes.cay("cat", box, "/root/x").status == 3
    assert boxes.ok("cat", "-u", "root", box, "/root/x").out.endswith(b"ran\n")


def test_a_dash_is_standard_input_or_output(boxes, box, project):
    boxes.ok("cp", "-", f"{box}:from-pipe", stdin=b"data")
    assert boxes.ok("cp", f"{box}:from-pipe", "-").out == b"data"
    boxes.ok("cp", project, f"{box}:p")
    archive = tarfile.open(fileobj=io.BytesIO(boxes.ok("cp", f"{box}:p", "-").out))
    assert "src/run.sh" in [name.removeprefix("./") for name in archive.getnames()]
    packed = subprocess.run(["tar", "c", "-C", project, "."], capture_output=True, check=True)
    boxes.ok("cp", "-", f"{box}:unpacked/", stdin=packed.stdout)
    assert boxes.ok("exec", box, "unpacked/src/run.sh").out == b"ran\n"


def test_long_names_and_large_files_survive(boxes, box):
    name = "n" * 200
    (boxes.folder / name).write_bytes(b"long")
    boxes.ok("cp", name, f"{box}:")
    assert boxes.ok("cat", box, name).out == b"long"
    data = os.urandom(1 << 20) * 40
    (boxes.folder / "large").write_bytes(data)
    boxes.ok("cp", "large", f"{box}:")
    boxes.ok("cp", f"{box}:large", "back")
    assert (boxes.folder / "back").read_bytes() == data


def test_what_is_nothing_but_holes_does_not_fill_the_disk(boxes, box, tmp_path):
    boxes.ok("exec", box, "--", "sh", "-c",
             "mkdir d; truncate -s 300M d/big; echo end >> d/big; cp d/big big")
    boxes.ok("cp", f"{box}:d", tmp_path / "tree")
    boxes.ok("cp", f"{box}:big", tmp_path / "big")
    for copy in (tmp_path / "tree" / "big", tmp_path / "big"):
        assert copy.stat().st_size == (300 << 20) + 4
        assert copy.stat().st_blocks * 512 < 1 << 20
        with copy.open("rb") as file:
            file.seek(-8, 2)
            assert file.read() == b"\0\0\0\0end\n"


@pytest.mark.parametrize("path", ["/proc/version", "/proc/kallsyms", "/sys/kernel/fscaps"])
def test_a_file_that_does_not_tell_its_size_is_copied_whole(boxes, box, path):
    boxes.ok("cp", path, f"{box}:f")
    assert boxes.ok("cat", box, "f").out == Path(path).read_bytes() != b""


@pytest.mark.parametrize("path", ["/proc/sys/kernel/random/poolsize",
                                  "/sys/kernel/mm/transparent_hugepage/enabled"])
def test_and_so_is_a_directory_of_such_files(boxes, box, path):
    if not os.path.exists(path):
        pytest.skip(f"there is no {path}")
    folder, name = os.path.split(path)
    boxes.ok("cp", folder, f"{box}:there")
    assert boxes.ok("cat", box, f"there/{name}").out == Path(path).read_bytes() != b""


def test_a_pipe_can_be_copied(boxes, box):
    done = subprocess.run(["bash", "-c", f"{CAY} cp <(echo hi) {box}:f"], capture_output=True,
                          timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert boxes.ok("cat", box, "f").out == b"hi\n"


def test_a_named_link_is_followed_and_links_in_a_directory_stay_links(boxes, box, project):
    (boxes.folder / "link").symlink_to("project/src/run.sh")
    (boxes.folder / "folder").symlink_to("project")
    (project / "src" / "same").symlink_to("run.sh")
    for name in ("link", "folder"):
        boxes.ok("cp", name, f"{box}:{name}")
    kinds = boxes.ok("exec", box, "stat", "-c", "%F", "link", "folder", "folder/src/same").out
    assert kinds == b"regular file\ndirectory\nsymbolic link\n"
    boxes.ok("exec", box, "--", "sh", "-c", "mkdir l; ln -s ../link l/file; ln -s ../folder l/dir")
    for name in ("file", "dir"):
        boxes.ok("cp", f"{box}:l/{name}", f"back-{name}")
        assert not (boxes.folder / f"back-{name}").is_symlink()
    assert (boxes.folder / "back-file").read_bytes() == (project / "src/run.sh").read_bytes()
    assert os.readlink(boxes.folder / "back-dir" / "src" / "same") == "run.sh"
    (boxes.folder / "dangling").symlink_to("nowhere")
    boxes.ok("exec", box, "ln", "-s", "nowhere", "dangling")
    for words in (("dangling", f"{box}:new"), (f"{box}:dangling", "new")):
        assert boxes.fails(4, "cp", *words).startswith("cay: not-found: dangling: ")


def test_links_of_a_tar_stream_may_lead_anywhere_in_the_sandbox(boxes, box):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, target in (("up", "../x"), ("root", "../../../etc"), ("here", "up"),
                             ("out", "../../../../x"), ("absolute", "/etc")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    done = boxes.cay("cp", "-", f"{box}:d/", stdin=stream.getvalue())
    assert done.status == 0 and b"2 " in done.err
    assert sorted(boxes.ok("exec", box, "ls", "d").text.split()) == ["here", "root", "up"]
    back = tarfile.open(fileobj=io.BytesIO(boxes.ok("cp", f"{box}:d", "-").out))
    assert {one.name.removeprefix("./"): one.linkname for one in back if one.issym()} == {
        "here": "up", "root": "../../../etc", "up": "../x"}


def test_links_inside_cannot_lead_a_copy_out_of_the_sandbox(boxes, box):
    (boxes.folder / "secret").write_text("host")
    boxes.ok("exec", box, "--", "sh", "-c",
             f"ln -s {boxes.folder}/secret link; mkdir d; ln -s {boxes.folder}/secret d/link; "
             f"ln -s {boxes.folder} d/dir; echo fine > d/file")
    assert boxes.cay("cat", box, "link").status != 0
    done = boxes.cay("cp", f"{box}:d", "copy")
    assert done.status == 0 and (boxes.folder / "copy" / "file").read_text() == "fine\n"
    assert not (boxes.folder / "copy" / "link").exists() or \
        (boxes.folder / "copy" / "link").is_symlink()
    assert (boxes.folder / "secret").read_text() == "host"


def test_a_failed_copy_changes_nothing_here(boxes, box):
    boxes.ok("put", "-u", "root", box, "/root/closed", stdin=b"x")
    boxes.ok("exec", box, "mkfifo", "fifo")
    (boxes.folder / "keep").write_text("precious")
    for source, status in (("/root/closed", 3), ("fifo", 24)):
        for target in ("out", "keep"):
            assert boxes.cay("cp", f"{box}:{source}", target).status == status
    assert [one.name for one in boxes.folder.iterdir()] == ["keep"]
    assert (boxes.folder / "keep").read_text() == "precious"


def test_a_file_that_is_written_over_gets_the_mode_too(boxes, box):
    boxes.ok("exec", box, "--", "sh", "-c", "echo new > f; chmod 755 f")
    (boxes.folder / "real").write_text("old")
    (boxes.folder / "real").chmod(0o600)
    (boxes.folder / "link").symlink_to("real")
    boxes.ok("cp", f"{box}:f", "link")
    assert (boxes.folder / "link").is_symlink()  # what it leads to is what is meant
    assert (boxes.folder / "real").read_text() == "new\n"
    assert stat.S_IMODE((boxes.folder / "real").stat().st_mode) == 0o755
    assert sorted(one.name for one in boxes.folder.iterdir()) == ["link", "real"]


@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_only_files_and_directories_of_this_machine_are_opened(boxes, box, kind):
    path = boxes.folder / kind
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "FIFO":
            os.mkfifo(path)
        elif kind == "socket":
            listener.bind(str(path))
        else:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
        boxes.ok("put", box, "f", stdin=b"x")
        for words in ((kind, f"{box}:z"), (f"{box}:f", kind)):
            line = boxes.fails(24, "cp", *words)
            assert line.startswith(f"cay: not-a-file: {kind}: is a {kind}, ")
    assert stat.S_IFMT(path.stat().st_mode) != stat.S_IFREG


def test_standard_input_and_output_can_be_named_as_devices(boxes, box):
    boxes.ok("cp", "/dev/stdin", f"{box}:f", stdin=b"data")
    assert boxes.ok("cp", f"{box}:f", "/dev/stdout").out == b"data"
    boxes.ok("cp", f"{box}:f", "/dev/null")
    boxes.ok("cp", "/dev/null", f"{box}:empty")
    assert boxes.ok("cat", box, "empty").out == b""
    with open(boxes.folder / "log", "wb") as log:  # where it stands, not over it
        log.write(b"before ")
        log.flush()
        subprocess.run([CAY, "cp", f"{box}:f", "/dev/stdout"], stdout=log, check=True)
        log.seek(0, io.SEEK_END)
        log.write(b" after")
    assert (boxes.folder / "log").read_bytes() == b"before data after"


@pytest.mark.parametrize("words, slug", [
    (("a", "b"), "invalid"), (("{box}:a", "{box}:b"), "invalid"), (("-", "-"), "invalid"),
    (("missing", "{box}:"), "not-found"), (("{box}:missing", "."), "not-found"),
    (("sb-aaaaaaaaaaaaaaaa:x", "."), "not-found"), (("sb-A:x", "."), "invalid"),
    (("folder", "{box}:/etc/passwd"), "not-a-directory"),
    (("folder/file", "{box}:/usr/file"), "denied")])
def test_refusals_name_what_is_wrong(boxes, box, words, slug):
    (boxes.folder / "folder").mkdir()
    (boxes.folder / "folder" / "file").write_text("x")
    line = boxes.fails({"invalid": 2, "denied": 3, "not-found": 4, "not-a-directory": 25}[slug],
                       "cp", *(word.format(box=box) for word in words))
    assert line.startswith(f"cay: {slug}: ")


def test_an_empty_destination_is_not_the_root_directory(boxes, box, tmp_path):
    boxes.ok("put", box, tmp_path.name)
    try:
        line = boxes.fails(2, "cp", f"{box}:{tmp_path.name}", "")
        assert line.startswith("cay: invalid: the destination is empty (")
    finally:
        Path("/", tmp_path.name).unlink(missing_ok=True)


def test_errors_of_a_directory_name_it_as_the_caller_did(boxes, box):
    boxes.ok("exec", box, "--", "sh", "-c", "mkdir dir; echo x > dir/f")
    (boxes.folder / "file").write_text("x")
    (boxes.folder / "in" / "f").mkdir(parents=True)
    (boxes.folder / "dir").write_text("x")
    for target, subject in (("file", "file"), (".", "./dir"), ("file/x", "file/x")):
        line = boxes.fails(25, "cp", f"{box}:dir", target)
        assert line.startswith(f"cay: not-a-directory: {subject}: "), line
        assert str(boxes.folder) not in line
    line = boxes.cay("cp", f"{box}:dir/.", "in").line
    assert " in/f: " in line and str(boxes.folder) not in line


def test_the_side_that_failed_first_is_the_one_that_is_told_of(boxes, box):
    boxes.ok("exec", box, "--", "sh", "-c", "mkdir large; truncate -s 20G large/f")
    line = boxes.fails(10, "cp", f"{box}:large", "here")
    assert line.startswith("cay: limit: /home/user/large/f: ")


def test_cat_and_put_say_what_is_wrong(boxes, box):
    assert boxes.fails(4, "cat", box, "missing").startswith("cay: not-found: missing: ")
    assert boxes.fails(24, "cat", box, "/tmp").startswith("cay: not-a-file: ")
    assert boxes.cay("put", box, "/usr/x", stdin=b"x").status != 0


def test_a_tar_does_not_go_to_a_terminal(boxes, box, screen):
    session = screen("cp", f"{box}:/home/user", "-")
    assert session.end() == 2 and b"tar stream to a terminal" in session.seen


@pytest.mark.parametrize("target", ["slow/", "slow.tar"])
def test_a_long_copy_shows_how_far_it_is_on_a_terminal(boxes, box, target):
    (boxes.folder / "data").write_bytes(os.urandom(24 << 20))
    packed = subprocess.run(["tar", "c", "-C", boxes.folder, "data"], capture_output=True,
                            check=True).stdout
    master, terminal = pty.openpty()
    try:
        copying = boxes.start("cp", "-", f"{box}:{target}", stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, stderr=terminal)
        for start in range(0, len(packed), 1 << 20):
            copying.stdin.write(packed[start:start + (1 << 20)])
            time.sleep(0.08)
        copying.stdin.close()
        assert copying.wait(PATIENCE) == 0
        seen = b""
        while not seen.endswith(b"\r\x1b[K") and select.select([master], [], [], PATIENCE)[0]:
            seen += os.read(master, 65536)
    finally:
        os.close(master)
        os.close(terminal)
    assert b"\rCopying: " in seen and b" MiB/s" in seen and seen.endswith(b"\r\x1b[K")
    if target == "slow/":
        assert boxes.ok("cat", box, "slow/data").out == (boxes.folder / "data").read_bytes()
    else:
        assert boxes.ok("cat", box, "slow.tar").out == packed


def test_a_long_copy_of_a_file_shows_the_total_and_the_rate(boxes, box):
    """Slow since the sandbox's end is read through a pipe that is drained step by step."""
    boxes.ok("exec", box, "truncate", "-s", "24M", "data")
    master, terminal = pty.openpty()
    try:
        copying = boxes.start("cp", f"{box}:data", "-", stdout=subprocess.PIPE, stderr=terminal)
        size, seen = 0, b""
        while b" MiB/s" not in seen and size < 24 << 20:
            size += len(os.read(copying.stdout.fileno(), 1 << 16))
            time.sleep(0.02)
            if select.select([master], [], [], 0)[0]:
                seen += os.read(master, 65536)
        size += len(copying.stdout.read())
        assert copying.wait(PATIENCE) == 0 and size == 24 << 20
    finally:
        os.close(master)
        os.close(terminal)
    assert b" of 24 MiB, " in seen


def test_file_contents_are_passed_raw(boxes, box):
    boxes.ok("put", box, "raw", stdin=b"\x1b[2J\n")
    assert boxes.ok("cat", box, "raw").out == b"\x1b[2J\n"


def test_a_file_of_sysfs_is_copied_although_its_size_is_wrong(boxes, box):
    source = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not source.exists():
        pytest.skip("this kernel has no transparent huge pages")
    boxes.ok("cp", source, f"{box}:enabled")
    assert boxes.ok("cat", box, "enabled").out == source.read_bytes()


def test_a_target_that_must_be_overwritten_in_place_has_its_own_mode_and_a_new_time(boxes, box):
    """Only root can create a file of root: user overwrites it, and may not change its mode."""
    source = boxes.folder / "source"
    source.write_text("new\n")
    source.chmod(0o755)
    os.utime(source, (1_000_000_000, 1_000_000_000))
    boxes.ok("exec", "-u", "root", box, "--", "sh", "-c",
             "cd /home/user; echo old > theirs; chmod 666 theirs; touch -d @5 theirs")
    boxes.ok("cp", source, f"{box}:theirs")
    boxes.ok("cp", source, f"{box}:ours")
    found = boxes.ok("exec", box, "--", "stat", "-c", "%U %a %Y", "theirs", "ours").out
    theirs, ours = found.decode().split("\n")[:2]
    assert ours == "user 755 1000000000"
    assert theirs.startswith("root 666 ") and int(theirs.split()[2]) > 1_000_000_000
    assert boxes.ok("cat", box, "theirs").out == b"new\n"
