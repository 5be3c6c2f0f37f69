# SPDX-License-Identifier: Apache-2.0
"""Races and checkpoints of tries, and tries whose command is hostile, as root and as an ordinary
user."""

import json
import os
import pty
import select
import shutil
import signal
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import PATIENCE
from test_try import Place, fixture_place, tree  # noqa: F401 (the fixture)


def race(place, script, count, *words):
    place.own()
    done = place.run("try", "-j", count, *words, "-o", "json", "--", "sh", "-c", script)
    return done, json.loads(done.stdout)["tries"] if done.stdout else None


# --- Races ---


def test_a_race_keeps_its_tries_apart_and_its_winner_is_taken(place):
    place.put("a", "base\n")
    done, racers = race(place, "echo out $CAY_TRY_INDEX; echo error $CAY_TRY_INDEX >&2;"
                               "echo $CAY_TRY_INDEX > a; i=0; while [ $i -lt $CAY_TRY_INDEX ]; do echo x >> new;"
                               "i=$((i+1)); done; [ $CAY_TRY_INDEX != 2 ]", 3)
    assert done.returncode == 0, done
    assert [(one["index"], one["status"], one["files"], one["insertions"], one["deletions"]) for one in racers] == \
        [(1, 0, 2, 2, 1), (2, 1, 2, 3, 1), (3, 0, 2, 4, 1)]
    assert [(one["stdout"], one["stderr"]) for one in racers] == \
        [(f"out {number}\n", f"error {number}\n") for number in (1, 2, 3)]
    assert tree(place.dir) == {"a": ("file", "0o644", b"base\n")}
    tries = json.loads(place.ok("try", "--list", "-o", "json"))["tries"]
    assert {one["race"] for one in tries} == {racers[0]["id"]} and len(tries) == 3
    for command in ("diff", "apply", "discard", "checkpoint"):
        refused = place.run(command)
        assert refused.returncode != 0 and "one of a race" in refused.stderr, refused
    place.ok("apply", "--use", racers[2]["id"])
    assert (place.dir / "new").read_text() == "x\n" * 3
    refused = place.run("discard", "--race")
    assert refused.returncode != 0 and "no try given" in refused.stderr
    other = place.sh("echo y > y")
    place.ok("discard", "--race", racers[1]["id"])
    left = json.loads(place.ok("try", "--list", "-o", "json"))["tries"]
    assert [one["id"] for one in left] == [other] and left[0]["race"] == other


def test_a_race_prints_a_table_and_keeps_no_try_without_changes(place):
    done = place.run("try", "-j", "2", "--", "sh", "-c", r"printf 'hi\n'; exit $((CAY_TRY_INDEX + 4))")
    assert done.returncode == 5, done
    lines = done.stdout.splitlines()
    assert lines.count("hi") == 2 and len([line for line in lines if line.startswith("==> ")]) == 2
    assert [line.split()[:3] for line in lines[-3:]] == [["RACER", "TRY", "STATUS"], ["1", "-", "5"], ["2", "-", "6"]]
    assert json.loads(place.ok("try", "--list", "-o", "json"))["tries"] == []
    for words in (["-j", "0"], ["-j", "65"], ["-j", "2", "-i"]):
        done = place.run("try", *words, "--", "true")
        assert done.returncode == 125 and "-j" in done.stderr, done
    done = place.run("try", "-j", "2", "-C", "/nowhere", "--", "true")
    assert done.returncode == 125 and "cannot open the directory" in done.stderr


def test_a_race_ends_with_its_signal(place):
    place.own()
    with subprocess.Popen([*place.prefix, place.base / "cay", "try", "-j", "2", "--", "sh", "-c",
                           "echo x > x; sleep 1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          cwd=place.dir, env=place.env) as running:
        seen = threading.Event()
        while not seen.wait(0.05):
            tries = json.loads(place.ok("try", "--list", "-o", "json"))["tries"]
            if len(tries) == 2 and all(place.names(one["id"]) == ["A\tx"] for one in tries):
                seen.set()
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=PATIENCE)
        assert running.returncode == -signal.SIGTERM and out.count(b"\n") >= 3
    place.ok("discard", "--all")  # no sandbox shows them


# --- Checkpoints ---


def test_a_try_goes_back_to_its_checkpoints(place):
    place.put("a", "base\n")
    place.put("gone/deep", "base\n")
    first = place.sh("echo 1 > a; rm -r gone; mkdir d; echo x > d/x; ln -s a l; ln d/x d/y; chmod 600 d/y;"
                     "mkfifo p; truncate -s 32M sparse")
    one = place.names()
    assert place.ok("checkpoint") == "1\n"
    place.ok("try", "--use", first, "--", "sh", "-c", "echo 2 > a; mkdir gone; echo new > gone/new; rm -r d; rm l p")
    two = place.names()
    assert one != two
    assert place.ok("checkpoint", first, "second") == "2\n"
    place.ok("rollback", first, "1")
    assert place.names() == one
    place.ok("try", "--use", first, "--", "sh", "-c",
             "[ $(cat a) = 1 ] && [ ! -e gone ] && [ $(cat d/x) = x ] && [ d/x -ef d/y ] && [ -p p ] &&"
             "[ $(readlink l) = a ] && [ $(stat -c %s sparse) = 33554432 ] && [ $(stat -c %b sparse) -lt 100 ]")
    place.ok("try", "--use", first, "--", "sh", "-c", "echo 3 > a")
    undone = json.loads(place.ok("rollback", first, "second", "-o", "json"))["undone"]
    assert undone == 3 and place.names() == two
    listed = json.loads(place.ok("checkpoints", "-o", "json"))["checkpoints"]
    assert [(one["id"], one["parent"], one["name"], one["cause"], one["current"]) for one in listed] == \
        [(1, None, "", "checkpoint", False), (2, 1, "second", "checkpoint", True), (3, 1, "", "rollback", False)]
    place.ok("rollback")  # the newest: what was undone
    assert "+3\n" in place.ok("diff")
    assert json.loads(place.ok("rollback", first, "1", "-o", "json"))["undone"] is None
    place.ok("checkpoint", "--rm", first, "second")
    done = place.run("rollback", first, "second")
    assert done.returncode != 0 and "no such checkpoint" in done.stderr
    assert [line.split()[0] for line in place.ok("checkpoints").splitlines()] == ["CHECKPOINT", "1", "3"]


def test_files_that_forbid_to_be_read_are_saved_too(place):
    first = place.sh("mkdir d; echo s > d/secret; chmod 000 d/secret; chmod 500 d")
    place.ok("checkpoint")
    place.ok("try", "--use", first, "--", "sh", "-c", "chmod 700 d; rm -rf d")
    place.ok("rollback")
    place.ok("try", "--use", first, "--", "sh", "-c", "chmod 600 d/secret && [ $(cat d/secret) = s ]")


def test_wrong_checkpoints_are_explained(place):
    done = place.run("checkpoint")
    assert done.returncode != 0 and "no try of this directory" in done.stderr
    first = place.sh("echo 1 > a")
    for words, text in ((["rollback"], "has no checkpoint"), (["rollback", first, "7"], "no such checkpoint"),
                        (["checkpoint", first, "7"], "invalid name"), (["checkpoint", first, "a/b"], "invalid name"),
                        (["checkpoint", "--rm", first], "no checkpoint given"),
                        (["checkpoint", "nobody"], "nobody"), (["rollback", "sb-2222222222222222"], "sb-")):
        done = place.run(*words)
        assert done.returncode != 0 and text in done.stderr, (words, done)
    assert json.loads(place.ok("checkpoints", "-o", "json"))["checkpoints"] == []


def test_a_try_in_use_has_one_sandbox_and_no_checkpoint(place):
    place.own()
    first = place.sh("echo x > x")
    place.ok("checkpoint")
    with subprocess.Popen([*place.prefix, place.base / "cay", "try", "-i", "--use", first, "--", "sh", "-c",
                           "echo ready; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          cwd=place.dir, env=place.env) as running:
        assert running.stdout.readline() == b"ready\n"
        for words in (["checkpoint"], ["rollback"], ["checkpoint", "--rm", first, "1"], ["discard", first],
                      ["try", "--use", first, "--", "true"]):
            done = place.run(*words)
            assert done.returncode != 0 and "a sandbox shows this try" in done.stderr, (words, done)
        running.stdin.close()
        assert running.wait(PATIENCE) != 2
    place.ok("rollback")
    assert place.names() == ["A\tx"]


# --- A hostile command ---


def test_directories_that_are_too_deep_are_no_trap(place):
    first = place.sh("i=0; while [ $i -lt 250 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done; echo x > x")
    done = place.run("checkpoint")
    assert done.returncode != 0 and "nested too deeply" in done.stderr, done
    assert len(place.names()) == 251
    place.ok("apply")
    assert (place.dir / Path("/".join(["d"] * 250)) / "x").read_text() == "x\n"
    deeper = "\n".join(["import os", "for i in range(30):", "    os.mkdir('d' * 200); os.chdir('d' * 200)",
                        "open('x', 'w')"])
    place.ok("try", "--use", first, "--", "python3", "-c", deeper)
    done = place.run("apply")
    assert done.returncode != 0 and "too many changes" in done.stderr, done
    assert len(os.listdir(place.dir)) == 1
    shown = place.run("diff", "--names")
    assert shown.returncode == 0 and "not shown" in shown.stderr
    shutil.rmtree(place.dir / "d")


NAMES = (b"new\nline", b"tab\t", b"\x1b[2Jclear", b"\x1b]0;title\x07", b"\xe2\x80\xaertl", b"\xff\xfe", b"-rf",
         b"'quote\"", b"back\\slash", b" ", b"\x9b31m")


def shown_on_terminal(place, *words):
    """What a terminal gets."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(place.dir)
        os.execvpe("env", ["env", "TERM=xterm", "PAGER=cat", "NO_COLOR=1", *place.prefix, str(place.base / "cay"),
                           *words], {**place.env, "PAGER": "cat", "NO_COLOR": "1", "TERM": "xterm"})
    data = b""
    while select.select([fd], [], [], PATIENCE)[0]:
        try:
            piece = os.read(fd, 65536)
        except OSError:
            break
        if not piece:
            break
        data += piece
    os.close(fd)
    os.waitpid(pid, 0)
    return data


def test_names_and_contents_do_not_reach_the_terminal_as_they_are(place):
    script = "\n".join(["import os"] + [f"open({name!r}, 'wb').write({name!r} + b'\\n')" for name in NAMES])
    place.ok("try", "--", "python3", "-c", script)
    for words in (["diff"], ["diff", "--names"], ["diff", "--stat"], ["try", "--list"], ["apply", "--dry-run"]):
        data = shown_on_terminal(place, *words)
        assert len(data) > 50, words
        for bad in (b"\x1b", b"\x07", b"\x9b31", b"\xe2\x80\xae"):
            assert bad not in data, (words, data)
    names = {os.fsdecode(name) for name in NAMES}
    lines = place.run("apply")
    assert lines.returncode == 0 and len(lines.stdout.splitlines()) == len(NAMES), lines
    assert set(os.listdir(place.dir)) == names
    for name in names:
        assert (place.dir / name).read_bytes() == os.fsencode(name) + b"\n"


def test_what_a_race_prints_does_not_pass_for_its_table(place):
    place.own()
    data = shown_on_terminal(place, "try", "-j", "2", "--", "printf", r"\033[2J\033[Hno newline")
    assert b"\x1b" not in data and data.count(b"no newline\r\n") == 2, data


def test_special_files_and_links_stay_out(place):
    outside = place.base / "outside"
    outside.mkdir()
    (outside / "a").write_text("outside\n")
    place.put("dir/a", "a\n")
    place.put("file", "f\n")
    place.own()
    place.sh("mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")';"
             f"! mknod dev c 1 3; rm -r dir; ln -s {outside} dir; rm file; mkfifo file; mkdir -p sub/.git/hooks;"
             "printf '#!/bin/sh\\n' > sub/.git/hooks/post-checkout; chmod 755 sub/.git/hooks/post-checkout;"
             "ln -s ../../outside/a sub/up; truncate -s 8T huge; chmod 6755 huge")
    done = place.run("apply")
    assert done.returncode == 0, done
    verdicts = {line.split(" (")[0].split()[2]: line.split()[0] for line in done.stdout.splitlines()}
    held = {name for name, verdict in verdicts.items() if verdict == "held"}
    assert {"fifo", "sock", "dir", "file", "sub/.git", "sub/.git/hooks/post-checkout", "sub/up"} <= held
    assert "dev" not in verdicts or verdicts["dev"] == "held"
    assert (place.dir / "dir/a").read_text() == "a\n" and (place.dir / "file").read_text() == "f\n"
    assert (outside / "a").read_text() == "outside\n"
    huge = (place.dir / "huge").stat()
    assert huge.st_size == 8 << 40 and huge.st_blocks < 1000 and stat.S_IMODE(huge.st_mode) == 0o755
    assert sorted(os.listdir(place.dir)) == ["dir", "file", "huge", "sub"] and os.listdir(place.dir / "sub") == []


def test_an_apply_beside_somebody_who_writes_is_whole_or_nothing(place):
    """A user edits and swaps directories for links while applies run: nothing outside changes,
    and no edit is lost."""
    outside = place.base / "outside"
    outside.mkdir()
    for number in range(20):
        (outside / f"f{number}").write_text("outside\n")
    stop = threading.Event()

    def disturb():
        number = 0
        while not stop.is_set():
            number += 1
            os.rename(place.dir / "d", place.dir / "moved")
            os.symlink(outside, place.dir / "d")
            os.unlink(place.dir / "d")
            os.rename(place.dir / "moved", place.dir / "d")
            try:
                with open(place.dir / "d" / "f0", "a") as file:
                    file.write(f"{number}\n")
            except FileNotFoundError:
                pass

    for number in range(20):
        place.put(f"d/f{number}", "base\n")
    place.own()
    first = place.sh("for f in d/*; do echo theirs > $f; done")
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        results = [place.run("apply", "--use", first).returncode for _ in range(8)]
    finally:
        stop.set()
        thread.join()
    place.names(first)
    assert {path.read_text() for path in outside.iterdir()} == {"outside\n"}
    texts = [(place.dir / f"d/f{number}").read_text() for number in range(1, 20)]
    assert set(texts) in ({"base\n"}, {"theirs\n"}), texts
    assert set(texts) == {"theirs\n"} or 0 not in results
    assert not list(place.dir.glob("moved"))
