# SPDX-License-Identifier: Apache-2.0
"""The command as an ordinary user: less is enforced, and each difference is told."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import PATIENCE, copy_command
from sandboxes import Done

UID = 54321  # nobody's, and without a range in /etc/subuid


@pytest.fixture(name="cay")
def fixture_cay():
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if Path("/proc/sys/user/max_user_namespaces").read_text().strip() == "0":
        pytest.skip("this machine has no user namespaces")
    folder = Path(tempfile.mkdtemp())
    (folder / "run").mkdir()
    (folder / "shared").mkdir()
    copy_command(folder)
    for path in (folder, *folder.iterdir()):
        os.chown(path, UID, UID)
    os.chmod(folder / "run", 0o700)

    def run(*words, stdin=b""):
        done = subprocess.run(
            ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups",
             folder / "cay", *words],
            input=stdin, capture_output=True, timeout=PATIENCE, cwd=folder, check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(folder),
                 "XDG_RUNTIME_DIR": str(folder / "run"),
                 **{name: value for name, value in os.environ.items() if "SAN_" in name}})
        return Done(done.returncode, done.stdout, done.stderr)

    yield run
    run("rm", "--all")
    left = [path.name for path in (folder / "run").rglob("sb-*")]
    assert left == [], "a sandbox was left behind"
    shutil.rmtree(folder)  # not before: without records its sandboxes are lost


def test_a_command_runs_as_user_inside(cay):
    done = cay("run", "--", "sh", "-c", "id -un; pwd; ls -A /root; ls /home")
    assert (done.status, done.text) == (0, "user\n/home/user\nuser\n")


def test_nothing_that_is_shown_becomes_a_program_of_its_owners(cay):
    script = "touch x; chmod 755 x; chmod 4755 x 2>/dev/null; chmod g+s x 2>/dev/null; stat -c %a x"
    assert cay("run", "-v", "./shared:/src", "-w", "/src", "--", "sh", "-c", script).text == "755\n"
    assert cay("run", "-w", "/tmp", "--", "sh", "-c", script).text == "6755\n"


def test_files_processes_and_shells_work_as_they_do_for_root(cay):
    box = cay("create").text.strip()
    assert cay("put", box, "note", stdin=b"data").status == 0
    assert cay("cat", box, "note").out == b"data"
    assert cay("exec", box, "--", "cat", "note").out == b"data"
    pid = cay("exec", "-d", "--tag", "idle", box, "--", "sleep", "1000").text.strip()
    assert any(row.startswith(f"{pid} ") for row in cay("ps", box).text.splitlines())
    assert cay("kill", box).status == 0
    assert cay("ls", "-q").out == b""


def test_inspect_prints_the_level_and_missing_limits(cay):
    box = cay("create").text.strip()
    info = cay("inspect", "-o", "json", box).json
    assert info["level"] == "single" and {"user", "pid", "mount", "seccomp"} <= set(info["layers"])
    text = cay("inspect", box).text
    assert "isolation: level single" in text
    if "memory" not in info["layers"]:
        assert "memory:    no limit" in text and "no limit" in cay("ls").text


def test_what_needs_more_than_there_is_is_refused(cay):
    done = cay("run", "-u", "root", "--", "true")
    assert done.status == 125 and b"only one user" in done.err
    box = cay("create").text.strip()
    missing = {"user", "pid", "memory", "cgroup"} - set(
        cay("inspect", "-o", "json", box).json["layers"])
    for layer in missing:
        done = cay("run", "--require", layer, "--", "true")
        assert done.status == 125 and layer.encode() in done.err


def test_a_disk_is_held_against_a_memory_limit_only_where_one_is_kept(cay, boxes, box):
    larger = ["run", "--disk", "1100M", "--", "df", "-m", "--output=size", "/"]
    own = cay("create").text.strip()
    for run, some in ((cay, own), (boxes.cay, box)):
        done = run(*larger)
        if "memory" in run("inspect", "-o", "json", some).json["layers"]:
            assert done.status == 125 and b"larger than the memory limit" in done.err
        else:
            assert done.status == 0 and done.text.split() == ["1M-blocks", "1100"]


def test_a_session_that_cannot_be_paused_says_so(cay):
    layers = cay("inspect", "-o", "json", cay("session", "start", "work").text.strip()).json["layers"]
    done = cay("session", "pause", "work")
    (told,) = cay("session", "pause", "work", "-o", "json").json["sessions"]
    assert done.status == 0 and told["state"] == ("paused" if "cgroup" in layers else "running")
    assert (b"work: this sandbox cannot be paused" in done.err) == ("cgroup" not in layers)
    assert cay("session", "rm", "work").status == 0


def test_others_sandboxes_are_not_listed_and_not_reached(cay, boxes, box):
    assert box not in cay("ls", "-q").text
    assert cay("exec", box, "true").status == 125
    assert boxes.ok("exec", box, "true").status == 0


def test_the_doctor_says_once_what_would_help(cay):
    text = cay("doctor").text
    helps = text.split("To fix:\n")[1].splitlines()
    fixes = helps[1::2]
    assert fixes and len(fixes) == len(set(fixes))


def test_the_hint_for_an_ordinary_user_suggests_no_template(cay):
    done = cay("run", "--", "./cay", "--version")
    assert done.status == 127 and b"; add -v " in done.err and b"template" not in done.err


# S7
def test_a_level_without_namespaces_is_noted_once(cay, tmp_path_factory):
    weak = tmp_path_factory.mktemp("weak") / "weak.yaml"
    weak.write_text("type: native\nlevel: landlock\n")
    for path in (weak, *list(weak.parents)[:-2]):
        path.chmod(0o755)
    strict = weak.with_name("strict.yaml")
    strict.write_text("type: native\nlevel: landlock\nrequire: [seccomp]\n")
    strict.chmod(0o644)
    done = cay("run", "--config", weak, "--", "true")
    if b"landlock, ABI" in done.err:
        pytest.skip("this machine has no landlock")
    assert done.status == 0 and done.text == ""
    (line,) = done.err.decode().splitlines()
    assert line.startswith("cay: note: isolation level landlock") and "--quiet" in line
    made = cay("create", "--config", weak)
    assert made.text.startswith("sb-") and made.err.decode().splitlines() == [line]
    assert cay("run", "-q", "--config", weak, "--", "true").err == b""
    made = cay("create", "--quiet", "--config", weak)
    assert made.text.startswith("sb-") and made.err == b""
    assert cay("run", "--config", strict, "--", "true").err == b""
    assert cay("run", "--require", "landlock", "--config", weak, "--", "true").err == b""
    done = cay("run", "--require", "user", "--config", weak, "--", "true")
    assert done.status == 125 and b"note" not in done.err
    assert cay("run", "--", "true").err == b"", "the level single needs no note"
