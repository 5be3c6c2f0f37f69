# SPDX-License-Identifier: Apache-2.0
"""cay checkpoint, rollback, checkpoints and fork."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from conftest import CAY, PATIENCE


def cay(*words, check=True):
    done = subprocess.run([CAY, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL, check=False)
    assert not check or done.returncode == 0, done
    return done


@pytest.fixture
def box():
    name = cay("create").stdout.strip()
    yield name
    cay("rm", "-f", name)


def sh(box, script):
    return cay("exec", "-u", "root", box, "--", "sh", "-c", script).stdout


def test_terminals_can_be_opened_after_a_checkpoint_and_a_rollback(box):
    for change in (["checkpoint", box], ["rollback", box, "1"]):
        sh(box, "date > /a")
        cay(*change)
        main, end = os.openpty()
        try:
            done = subprocess.run([CAY, "exec", "-t", box, "--", "tty"], stdin=end, stdout=end, stderr=end,
                                  timeout=PATIENCE, check=False)
            assert (done.returncode, os.read(main, 1000).split()) == (0, [b"/dev/pts/0"])
        finally:
            os.close(main)
            os.close(end)


def test_a_rollback_restores_the_files_and_can_be_undone(box):
    sh(box, "echo one > /a")
    assert cay("checkpoint", box, "first").stdout == "1\n"
    sh(box, "echo two > /a; touch /b")
    assert cay("rollback", box, "first").stdout == "the files before the rollback are checkpoint 2\n"
    assert sh(box, "cat /a; ls /b 2>/dev/null; true") == "one\n"
    assert cay("rollback", box, "2").stdout == ""
    assert sh(box, "cat /a; ls /b") == "two\n/b\n"


def test_checkpoints_are_listed_as_a_tree(box):
    for name in ("a", "b"):
        sh(box, f"touch /{name}")
        cay("checkpoint", box, name)
    cay("rollback", box, "a")
    sh(box, "touch /c")
    cay("checkpoint", box, "c")
    found = json.loads(cay("checkpoints", box, "-o", "json").stdout)["checkpoints"]
    assert [(one["name"], one["parent"], one["current"]) for one in found] == [
        ("a", None, False), ("b", 1, False), ("c", 1, True)]
    rows = cay("checkpoints", box).stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["CHECKPOINT", "1", "2", str(found[2]["id"])]
    assert rows[1].startswith("1") and rows[2].startswith("  2") and " * " in rows[3]


def test_a_process_runs_on_after_a_checkpoint_unless_it_is_stopped(box):
    cay("exec", "-d", box, "--", "sleep", "1000")
    made = json.loads(cay("checkpoint", "-o", "json", box).stdout)
    assert made["processes"] == 1 and made["current"]
    assert sh(box, "pgrep -c sleep") == "1\n"
    made = json.loads(cay("checkpoint", "-o", "json", "--stop", box).stdout)
    assert made["processes"] == 0
    assert sh(box, "pgrep -c sleep || true") == "0\n"


@pytest.mark.parametrize("words, told", [
    (["checkpoint", "{}", "12"], "not only digits"),
    (["checkpoint", "{}", "a/b"], "invalid name of a checkpoint"),
    (["rollback", "{}", "none"], "cay checkpoints lists them"),
])
def test_invalid_checkpoints_are_refused(box, words, told):
    done = cay(*(word.format(box) for word in words), check=False)
    assert done.returncode != 0 and told in done.stderr


def test_a_rollback_prints_the_processes_that_it_has_ended(box):
    cay("checkpoint", box, "a")
    cay("exec", "-d", box, "--", "sleep", "1000")
    done = json.loads(cay("rollback", "-o", "json", box, "a").stdout)
    assert [one["command"] for one in done["ended"]] == ["sleep 1000"] and done["kept"] == 0
    cay("exec", "-d", box, "--", "sleep", "2000")
    assert ": sleep 2000\n" in cay("rollback", box, "a").stdout
    cay("exec", "-d", box, "--", "sleep", "3000")
    sh(box, "echo x > /x")
    done = json.loads(cay("rollback", "--keep", "-o", "json", box, "a").stdout)
    assert done["ended"] == [] and done["kept"] == 1
    assert sh(box, "ls /x 2>/dev/null; pgrep -c sleep") == "1\n"


def test_a_link_put_in_the_way_of_a_rollback_is_not_followed(box, tmp_path):
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    canary = tmp_path / "canary"
    canary.write_text("")
    canary.chmod(0o600)
    sh(box, "mkdir -p /way/place; chmod 4777 /way/place")
    cay("checkpoint", box, "a")
    sh(box, "rmdir /way/place")
    cay("exec", "-d", box, "--", "sleep", "1000")
    init = json.loads(cay("inspect", box, "-o", "json").stdout)["init_pid"]
    place = f"/proc/{init}/root/way/place"
    with subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=mkdirat", "-e",
                           "inject=mkdirat:delay_exit=700000:when=6+", CAY, "rollback", "--keep", box, "a"],
                          stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as done:
        while done.poll() is None:
            try:
                os.rmdir(place)
                os.symlink(canary, place)
            except OSError:
                pass
    assert canary.stat().st_mode & 0o7777 == 0o600


def test_a_removed_checkpoint_is_not_listed_and_others_stay(box):
    for name in ("a", "b", "c"):
        sh(box, f"head -c 1M /dev/urandom > /{name}")
        cay("checkpoint", box, name)
    assert cay("checkpoint", "--rm", box, "b").stdout == "0 B freed\n"
    found = json.loads(cay("checkpoints", box, "-o", "json").stdout)["checkpoints"]
    assert [(one["name"], one["parent"]) for one in found] == [("a", None), ("c", 1)]
    cay("rollback", box, "a")
    freed = json.loads(cay("checkpoint", "--rm", "-o", "json", box, "c").stdout)["freed_bytes"]
    assert 2 << 20 <= freed < 3 << 20
    assert sh(box, "ls /a /b 2>/dev/null || true") == "/a\n"
    done = cay("checkpoint", "--rm", box, check=False)
    assert done.returncode != 0 and "no checkpoint given" in done.stderr


def test_each_command_begins_with_a_checkpoint_if_requested(tmp_path):
    config = tmp_path / "cay.yaml"
    config.write_text("type: native\ncheckpoint_each: true\n")
    for words in (["--checkpoint-each"], ["--config", config]):
        box = cay("create", *words).stdout.strip()
        try:
            cay("exec", "-d", box, "--", "sleep", "1000")
            for step in range(3):
                sh(box, f"echo {step} > /step")
            found = json.loads(cay("checkpoints", box, "-o", "json").stdout)["checkpoints"]
            assert [(one["cause"], one["processes"]) for one in found] == [
                ("command", 0), ("command", 1), ("command", 1)]
            cay("rollback", box, found[-1]["id"])
            assert sh(box, "cat /step") == "1\n"
        finally:
            cay("rm", "-f", box)


def test_forks_begin_with_the_files_of_a_checkpoint_or_of_now(box):
    sh(box, "echo one > /a")
    cay("checkpoint", box, "first")
    sh(box, "echo two > /a")
    old = cay("create", "--from", f"{box[:8]}:first", "-m", "256M").stdout.strip()
    now = json.loads(cay("fork", "-n", "3", "-o", "json", box).stdout)["ids"]
    try:
        assert len(set(now)) == 3
        assert [sh(made, "cat /a") for made in (old, *now)] == ["one\n"] + ["two\n"] * 3
        assert cay("run", "--from", f"{old}", "--", "cat", "/a").stdout == "one\n"
        assert "256 MiB" in cay("inspect", old).stdout
    finally:
        cay("rm", "-f", old, *now)


def test_forks_go_on_with_the_contexts_if_requested(box):
    cay("code", box, "-c", "x = 40")
    cay("code", box, "-l", "bash", "-c", "y=1")
    done = cay("fork", "--contexts", "-n", "2", box)
    made = done.stdout.split()
    assert re.fullmatch(r"cay: note: context ctx-\w+ \(bash\) begins anew in the fork: "
                        r"only Python can be saved\n", done.stderr)
    try:
        for one in made:
            assert cay("code", one, "-c", "x += 1; print(x)").stdout == "41\n"
        done = json.loads(cay("fork", "--contexts", "-o", "json", box).stdout)
        made += done["ids"]
        assert [(one["language"], one["is_saved"], one["reason"]) for one in done["contexts"]] == [
            ("python", True, None), ("bash", False, "only Python can be saved")]
        assert cay("code", made[2], "-c", "print(x)").stdout == "40\n"
    finally:
        cay("rm", "-f", *made)


def test_a_fork_with_contexts_can_be_interrupted(box):
    cay("code", box, "-c", "import os, time\nx, real_fork = 40, os.fork\n"
        "def slow_fork():\n    child = real_fork()\n    return child or time.sleep(1000)\n"
        "os.fork = slow_fork")
    process = subprocess.Popen([CAY, "fork", "--contexts", box], stdout=subprocess.PIPE)
    sh(box, "while test $(pgrep -c python3) != 2; do sleep 0.01; done")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE) == (b"", None) and process.returncode != 0
    assert cay("code", box, "-c", "print(x)").stdout == "40\n"
    assert sh(box, "pgrep -c python3") == "1\n"


@pytest.mark.parametrize("words, told", [
    (["fork", "--contexts", "{}:1"], "a checkpoint has no contexts"),
    (["fork", "-n", "0", "{}"], "use a number from 1"),
    (["fork", "{}:none"], "cay checkpoints lists them"),
    (["create", "--from", "{}:"], "use ID or ID:CHECKPOINT"),
    (["create", "--from", "{}", "--template", "base"], "leave the template out"),
])
def test_invalid_forks_are_refused(box, words, told):
    done = cay(*(word.format(box) for word in words), check=False)
    assert done.returncode != 0 and told in done.stderr


def test_a_fork_of_now_does_not_have_the_processes(box):
    cay("checkpoint", box)
    cay("exec", "-d", box, "--", "sleep", "1000")
    sh(box, "echo now > /a")
    for source in (box, f"{box}:1"):
        made = cay("fork", source).stdout.strip()
        assert sh(made, "cat /a; pgrep -c sleep || true") == ("now\n0\n" if source == box else "0\n")
        cay("rm", "-f", made)
    assert sh(box, "pgrep -c sleep") == "1\n"


def test_a_diff_shows_what_changed_since_a_checkpoint_and_between_two(box):
    sh(box, "mkdir /w; echo one > /w/a")
    cay("checkpoint", box, "first")
    sh(box, "echo two > /w/a")
    cay("checkpoint", box, "second")
    sh(box, "touch /w/b")
    assert cay("diff", "--names", box, "first").stdout == "M\tw/a\nA\tw/b\n"
    assert cay("diff", "--names", box, "second", "first").stdout == "M\tw/a\n"
    assert "-one\n+two\n" in cay("diff", box, "first", "second").stdout
    done = cay("diff", box, "none", check=False)
    assert done.returncode != 0 and "cay checkpoints lists them" in done.stderr


def test_forks_are_from_and_to_disk():
    made = [cay("create", "--storage", "disk").stdout.strip()]
    try:
        sh(made[0], "echo one > /a")
        made.append(cay("fork", made[0]).stdout.strip())
        made.append(cay("fork", "--storage", "disk", made[1]).stdout.strip())
        cay("rm", made[0])
        assert [sh(box, "cat /a") for box in made[1:]] == ["one\n"] * 2
        cay("kill", made[2])
        cay("start", made[2])
        assert sh(made[2], "cat /a") == "one\n"
        kinds = [json.loads(cay("inspect", "-o", "json", box).stdout)["storage"] for box in made[1:]]
        assert kinds == ["memory", "disk"]
    finally:
        for box in made:
            cay("rm", "-f", box, check=False)


def test_forks_are_all_created_or_with_partial_each_failure_is_printed(box):
    few = f"ulimit -n 90; exec {CAY} fork -n 40 --pids 509 {{}} {box}"  # the limit marks them
    for option in ("", "--partial"):
        done = subprocess.run(["bash", "-c", few.format(option)], capture_output=True, text=True,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False)
        made = done.stdout.split()
        assert done.returncode != 0
        found = json.loads(cay("ls", "-o", "json").stdout)["sandboxes"]
        assert {one["id"] for one in found if one["limits"]["pids"] == 509} == set(made)
        if made:
            cay("rm", "-f", *made)
        if option:
            assert 0 < len(made) < 40
            assert f"{40 - len(made)} of 40 failed" in done.stderr
            assert len(done.stderr.splitlines()) > 40 - len(made)
        else:
            assert not made


@pytest.mark.parametrize("words", [("checkpoint",), ("rollback", "first")])
def test_a_full_disk_at_any_step_leaves_a_working_sandbox(words):
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    step, failed = 1, True
    while failed:
        name = cay("create", "--storage", "disk").stdout.strip()
        sh(name, "echo one > /a")
        cay("checkpoint", name, "first")
        sh(name, "echo two > /b")
        done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat", "-e",
                               f"inject=renameat:error=ENOSPC:when={step}", CAY, words[0], name, *words[1:]],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0 or "no space left" in done.stderr, done
        assert sh(name, "cat /a; echo three > /c; cat /c") == "one\nthree\n", step
        made = cay("checkpoint", name, "third").stdout.strip()
        sh(name, "rm /c")
        cay("kill", name)
        cay("start", name)
        assert sh(name, "ls /a /c 2>&1 | grep -c '^/[ac]$'") == "1\n", step
        cay("rollback", name, made)
        assert sh(name, "cat /c") == "three\n", step
        cay("rollback", name, "first")
        assert sh(name, "cat /a; ls /b /c 2>/dev/null; true") == "one\n", step
        cay("rm", "-f", name)
        failed = done.returncode != 0 or step < 3
        step += 1
