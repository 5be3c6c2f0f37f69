# SPDX-License-Identifier: Apache-2.0
"""create, exec, ls, inspect, ps, logs, pause, resume, start, kill, rm, gc: a sandbox's life."""

import json
import os
import re
import subprocess
import time

import pytest
from conftest import CAY, PATIENCE
from sandboxes import gone, traces, wait_until

LAYERS = {"user", "pid", "mount", "network", "ipc", "uts", "cgroup", "seccomp", "landlock",
          "memory", "pids", "disk"}


# --- create and exec ---


def test_a_sandbox_stays_and_keeps_its_files(boxes, box):
    boxes.ok("exec", box, "--", "sh", "-c", "echo hello > note")
    assert boxes.ok("exec", box, "cat", "note").out == b"hello\n"
    assert boxes.ok("exec", box, "hostname").text.strip() == box


def test_what_a_sandbox_is_made_with_is_for_every_command(boxes):
    box = boxes.create("-e", "A=1", "-u", "root", "-w", "/tmp")
    assert boxes.ok("exec", box, "--", "sh", "-c", "echo $A $(id -u) $PWD").out == b"1 0 /tmp\n"
    assert boxes.ok("exec", "-e", "A=2", "-u", "user", "-w", "/", box, "--", "sh", "-c",
                    "echo $A $(id -u) $PWD").out == b"2 1000 /\n"


def test_options_of_exec_stand_before_and_after_the_id(boxes, box):
    for words in (["-u", "root", box, "id", "-u"], [box, "-u", "root", "id", "-u"],
                  [box, "-u", "root", "--", "id", "-u"]):
        assert boxes.ok("exec", *words).out == b"0\n"


def test_the_status_of_exec_is_the_commands(boxes, box):
    assert boxes.cay("exec", box, "--", "sh", "-c", "exit 9").status == 9
    assert boxes.cay("exec", box, "--", "no-such-program").status == 127
    assert boxes.cay("exec", "--timeout", "200ms", box, "--", "sleep", "1000").status == 124


def test_what_a_command_leaves_running_lives_on_after_exec(boxes, box):
    boxes.ok("exec", box, "--", "sh", "-c", "sleep 1000 &")
    assert b"sleep" in boxes.ok("ps", box).out


def test_a_timeout_kills_though_nobody_reads(boxes, box):
    running = boxes.start("exec", "--timeout", "1", box, "--", "yes")
    running.stdout.read(1)  # no more: it has begun, and may even have ended
    wait_until(lambda: b"yes" not in boxes.ok("ps", box).out, "the timeout is not kept")
    running.stdout.read()
    assert running.wait() == 124


def test_a_signal_to_exec_ends_the_command_and_not_the_sandbox(boxes, box):
    running = boxes.start("exec", box, "--", "sh", "-c", "echo on; sleep 1000 & sleep 1000")
    assert running.stdout.readline() == b"on\n"
    running.terminate()
    assert running.wait(60) == -15
    wait_until(lambda: b"sleep" not in boxes.ok("ps", box).out, "something lives on")
    boxes.ok("exec", box, "true")


def test_the_end_of_the_sandbox_is_told_as_what_ended_the_command(boxes, box):
    running = boxes.start("exec", box, "--", "sh", "-c", "echo on; exec sleep 1000")
    assert running.stdout.readline() == b"on\n"
    boxes.ok("kill", box)
    assert running.wait(60) == 137
    assert running.stderr.read().startswith(b"cay: killed: the sandbox ended (")


def test_a_background_command_keeps_to_its_timeout(boxes, box):
    boxes.ok("exec", "-d", "--timeout", "200ms", box, "--", "sleep", "1000")
    wait_until(lambda: boxes.ok("ps", "-o", "json", box).json["processes"][0]["exit_code"] == 124,
               "it runs on")


def test_a_memory_kill_in_exec_names_the_sandboxes_limit(boxes):
    box = boxes.create("-m", "64M")
    done = boxes.cay("exec", box, "--", "tail", "/dev/zero")
    assert (done.status, done.err) == (
        137, b"cay: killed: memory limit 64 MiB (create the sandbox with a larger -m)\n")


def test_the_list_says_why_a_background_command_ended(boxes):
    box = boxes.create("-m", "64M")

    def cause_of(*command):
        boxes.ok("exec", "-d", "--tag", "x", *command)
        of = lambda: boxes.ok("ps", "-o", "json", box).json["processes"][-1]
        wait_until(lambda: of()["state"] == "ended", "it runs on")
        return of()["cause"]

    assert cause_of(box, "true") == "exited"
    assert cause_of(box, "--", "sh", "-c", "kill -9 $$") == "signalled"
    assert cause_of("--timeout", "100ms", box, "sleep", "1000") == "timeout"
    assert cause_of(box, "tail", "/dev/zero") == "memory"
    assert b"ended 137 memory" in boxes.ok("ps", box).out


def test_input_goes_to_exec(boxes, box):
    assert boxes.ok("exec", "-i", box, "--", "cat", stdin=b"da\0ta").out == b"da\0ta"


# --- ids ---


def test_the_beginning_of_an_id_will_do(boxes, box):
    for length in (18, 12, 8):
        assert boxes.ok("exec", box[:length], "hostname").text.strip() == box


def test_a_beginning_that_two_ids_share_is_refused_and_both_are_named(boxes):
    made = {}
    for _ in range(33):  # 32 letters
        box = boxes.create()
        if box[:4] in made:
            break
        made[box[:4]] = box
    line = boxes.fails(2, "inspect", box[:4])
    assert made[box[:4]] in line and box in line


@pytest.mark.parametrize("word", ["x/y", "sb-", "sb-ABC", "../sb-a", "sb-a/b", ""])
def test_what_is_no_id_is_refused(boxes, word):
    assert boxes.fails(2, "inspect", word).startswith("cay: invalid: ")
    assert boxes.fails(125, "exec", word, "true").startswith("cay: invalid: ")


def test_an_id_that_no_sandbox_has_is_not_found(boxes):
    line = boxes.fails(4, "inspect", "sb-aaaaaaaaaaaaaaaa")
    assert line.startswith("cay: not-found: ")
    line = boxes.fails(4, "inspect", "sb-aaaaaaaaaaa")
    assert line.startswith("cay: not-found: ") and "cay ls" in line


# --- ls and inspect ---


def test_ls_lists_a_sandbox_while_it_lives(boxes, box):
    assert box in boxes.ok("ls", "-q").text.split()
    rows = boxes.ok("ls").text.splitlines()
    assert rows[0].split() == ["ID", "NAME", "TYPE", "STATE", "AGE", "TTL", "MEMORY", "PROCESSES", "TEMPLATE"]
    (row,) = [row for row in rows if row.startswith(box)]
    assert "running" in row and "1 GiB" in row and row.endswith("host")
    (one,) = [one for one in boxes.ok("ls", "-o", "json").json["sandboxes"] if one["id"] == box]
    assert one["state"] == "running"
    boxes.ok("kill", box)
    assert box not in boxes.ok("ls", "-q").text.split()


def test_inspect_tells_what_holds_a_sandbox(boxes):
    box = boxes.create("-m", "256M", "--pids", "99", "--cpus", "0.5", "--ttl", "1h")
    info = boxes.ok("inspect", "-o", "json", box).json
    assert (info["id"], info["state"], info["level"]) == (box, "running", "root")
    assert info["limits"] == {"memory_bytes": 256 << 20, "disk_bytes": info["limits"]["disk_bytes"],
                              "pids": 99, "cpu_percent": 50}
    assert LAYERS <= set(info["layers"])
    assert {one["layer"] for one in info["enforced"]} == set(info["layers"])
    assert all(one["by"] for one in info["enforced"])
    assert 0 < info["ttl_left_ms"] <= 3600_000 and not info["ephemeral"]
    assert (info["template"], info["user"], info["network"], info["storage"]) == (
        "host", "user", "none", "memory")
    text = boxes.ok("inspect", box).text
    assert re.search(r"^memory: .* of 256 MiB$", text, re.M) and "seccomp" in text


def test_inspect_tells_what_is_used(boxes, box):
    boxes.ok("exec", box, "--", "sh", "-c", "head -c 8M /dev/zero > file; sleep 1000 &")
    used = boxes.ok("inspect", "-o", "json", box).json["used"]
    assert used["memory_bytes"] > 8 << 20 and used["disk_bytes"] >= 8 << 20
    assert used["pids"] >= 2 and used["cpu_us"] > 0


def test_no_time_to_live_is_null(boxes, box):
    info = boxes.ok("inspect", "-o", "json", box).json
    assert info["ttl_left_ms"] is None and info["limits"]["cpu_percent"] is None


def test_a_sandbox_ends_when_its_time_is_over(boxes):
    box = boxes.create("--ttl", "300ms")
    wait_until(lambda: boxes.cay("inspect", box).status == 4, "it lives on")
    assert gone(box)


def test_create_can_answer_as_json(boxes):
    box = boxes.ok("create", "-o", "json").json["id"]
    boxes.made.append(box)
    assert boxes.ok("exec", box, "true").out == b""


# --- ps and logs ---


def test_ps_lists_what_runs_inside_by_its_numbers_there(boxes, box):
    pid = int(boxes.ok("exec", "-d", "--tag", "idle", box, "sleep", "1000").text)
    listed = lambda: boxes.ok("ps", "-o", "json", box).json["processes"]
    wait_until(lambda: listed()[0]["command"] != "[sleep]", "its words are not there")
    (one,) = [one for one in listed() if one["pid"] == pid]
    assert (one["tag"], one["command"], one["background"], one["uid"]) == (
        "idle", "sleep 1000", True, 1000)
    assert one["parent"] == 0 and one["exit_code"] is None
    rows = boxes.ok("ps", box).text.splitlines()
    assert rows[0].split()[:4] == ["PID", "PARENT", "UID", "STATE"]
    assert any(re.match(rf"{pid} .* idle +sleep 1000$", row) for row in rows)


def test_names_from_inside_cannot_drive_the_terminal(boxes, box):
    boxes.ok("exec", "-d", box, "--", "bash", "-c", "exec -a $'evil\\e[2J\\nrow' sleep 1000")
    wait_until(lambda: b"exec -a" not in boxes.ok("ps", box).out, "it does not run")
    out = boxes.ok("ps", box).out
    assert b"\x1b" not in out and re.search(rb"^2 .* evil.*row", out, re.M)


def test_logs_prints_what_a_background_command_wrote(boxes, box):
    boxes.ok("exec", "-d", "--tag", "talk", box, "--", "sh", "-c", "echo out; echo err >&2; sleep 1000")
    wait_until(lambda: boxes.cay("logs", box).out == b"out\n", "nothing is kept")
    done = boxes.cay("logs", box, "talk")
    assert (done.status, done.out, done.err) == (0, b"out\n", b"err\n")


def test_logs_follow_until_the_end(boxes, box):
    boxes.ok("exec", "-d", "--tag", "count", box, "--", "sh", "-c",
             "for i in 1 2 3; do echo $i; sleep 0.1; done")
    done = boxes.cay("logs", "-f", box, "count")
    assert (done.status, done.out) == (0, b"1\n2\n3\n")


def test_following_ends_with_a_signal_and_the_command_goes_on(boxes, box):
    boxes.ok("exec", "-d", "--tag", "on", box, "--", "sh", "-c", "echo on; exec sleep 1000")
    running = boxes.start("logs", "-f", box, "on")
    assert running.stdout.readline() == b"on\n"
    running.send_signal(2)
    assert running.wait(60) == -2
    assert b"sleep" in boxes.ok("ps", box).out


def test_the_output_of_an_ended_command_can_still_be_had(boxes, box):
    boxes.ok("exec", "-d", "--tag", "short", box, "--", "echo", "done")
    wait_until(lambda: boxes.cay("logs", box, "short").out == b"done\n", "nothing is kept")


def test_to_look_at_the_output_of_a_command_that_ends_takes_nothing_away(boxes, box):
    for turn in range(5):
        tag = f"t{turn}"
        boxes.ok("exec", "-d", "--tag", tag, box, "--", "seq", "100000")
        wait_until(lambda: boxes.cay("logs", box, tag).out.endswith(b"\n100000\n"), "no end")
        wait_until(lambda: re.search(rb"ended 0 .* %s " % tag.encode(), boxes.ok("ps", box).out),
                   "it is forgotten")
        assert boxes.ok("logs", box, tag).out.endswith(b"\n100000\n")


def test_logs_says_which_there_are(boxes, box):
    assert boxes.fails(4, "logs", box).startswith("cay: not-found: ")
    for tag in ("one", "two"):
        boxes.ok("exec", "-d", "--tag", tag, box, "sleep", "1000")
    line = boxes.fails(2, "logs", box)
    assert "one" in line and "two" in line
    assert boxes.fails(4, "logs", box, "three").startswith("cay: not-found: ")


def test_a_background_command_that_cannot_be_found_is_127(boxes, box):
    done = boxes.cay("exec", "-d", box, "--", "no-such-program")
    assert (done.status, done.out) == (127, b"") and b"no-such-program" in done.err


def test_a_background_command_whose_pid_cannot_be_told_does_not_run_on(boxes, box):
    with open("/dev/full", "wb") as full:
        assert boxes.start("exec", "-d", box, "sleep", "1000", stdout=full).wait(60) == 125
    assert all(one["state"] == "ended" for one in boxes.ok("ps", "-o", "json", box).json["processes"])


def test_two_that_run_cannot_share_a_tag(boxes, box):
    boxes.ok("exec", "-d", "--tag", "x", box, "sleep", "1000")
    done = boxes.cay("exec", "-d", "--tag", "x", box, "sleep", "1000")
    assert done.status == 125 and b"x" in done.err


def test_a_background_command_can_be_signalled_and_killed(boxes, box):
    boxes.ok("exec", "-d", "--tag", "t", box, "--", "sh", "-c",
             "trap 'echo got' USR1; echo up; while :; do sleep 0.05; done")
    wait_until(lambda: boxes.cay("logs", box, "t").out == b"up\n", "it does not run")
    boxes.ok("kill", "-s", "USR1", box, "t")
    wait_until(lambda: boxes.cay("logs", box, "t").out == b"up\ngot\n", "no signal came")
    boxes.ok("kill", "-s", "KILL", box, "t")
    (left,) = boxes.ok("ps", "-o", "json", box).json["processes"]
    assert (left["state"], left["exit_code"]) == ("ended", 137)
    boxes.ok("exec", box, "true")


@pytest.mark.parametrize("words", [("-d", "-i"), ("-d", "-t"), ("-t",)])
def test_what_does_not_go_together_is_refused(boxes, box, words):
    assert boxes.fails(125, "exec", *words, box, "true").startswith("cay: invalid: -")


# --- pause and resume ---


def test_a_paused_sandbox_stands_still(boxes, box):
    boxes.ok("exec", "-d", "--tag", "tick", box, "--", "sh", "-c",
             "while :; do echo x; sleep 0.01; done")
    wait_until(lambda: boxes.cay("logs", box).out, "it does not tick")
    boxes.ok("pause", box)
    assert boxes.ok("inspect", "-o", "json", box).json["state"] == "paused"
    assert boxes.fails(125, "exec", box, "true").startswith(f"cay: busy: {box}: ")
    ticks = lambda: len(boxes.cay("logs", box).out)
    wait_until(lambda: ticks() == ticks(), "it ticks on")  # the last may be on their way
    first = ticks()
    time.sleep(0.3)
    assert ticks() == first
    boxes.ok("resume", box)
    wait_until(lambda: ticks() > first, "it does not go on")
    boxes.ok("exec", box, "true")


def test_a_paused_sandbox_can_be_killed(boxes, box):
    boxes.ok("pause", box)
    boxes.ok("kill", box)
    assert gone(box)


# --- kill, rm, start, gc ---


def test_kill_leaves_nothing(boxes, box):
    boxes.ok("exec", box, "--", "sh", "-c", "setsid sleep 1000 & sleep 1000 &")
    boxes.ok("kill", box)
    assert traces(box) == []


def test_several_are_ended_at_once_and_one_that_is_not_there_is_told(boxes):
    one, two = boxes.create(), boxes.create()
    done = boxes.cay("kill", one, "sb-aaaaaaaaaaaaaaaa", two)
    assert done.status == 4 and b"sb-aaaaaaaaaaaaaaaa" in done.err
    assert gone(one) and gone(two)


def test_rm_force_ignores_a_sandbox_that_does_not_exist(boxes, box):
    absent = "sb-aaaaaaaaaaaaaaaa"
    assert boxes.cay("rm", absent).status == 4
    assert boxes.ok("rm", "-f", absent, box, absent).err == b"" and gone(box)
    assert boxes.cay("rm", "-f", "a:b").status == 2


def test_which_sandbox_must_be_said(boxes, box):
    for command in ("kill", "rm"):
        assert "--all" in boxes.fails(2, command)
        assert boxes.fails(2, command, "--all", box).startswith("cay: invalid: ")
    assert boxes.fails(2, "kill", "-s", "TERM", box).startswith("cay: invalid: ")
    assert boxes.fails(2, "kill", "-s", "FOO", box, "1").startswith("cay: invalid: ")


def test_a_background_command_ends_if_its_pid_cannot_be_printed(boxes, box):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([CAY, "exec", "-d", "--tag", "unknown", box, "--", "sleep", "1000"],
                              stdout=writer, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    finally:
        os.close(writer)
    assert done.returncode == 125 and b"Broken pipe" in done.stderr
    (process,) = boxes.ok("ps", "-o", "json", box).json["processes"]
    assert (process["tag"], process["state"]) == ("unknown", "ended")


def test_disk_storage_survives_a_kill(boxes):
    box = boxes.create("--storage", "disk", "-e", "A=kept")
    boxes.ok("exec", box, "--", "sh", "-c", "echo data > file")
    boxes.ok("kill", box)
    assert boxes.ok("inspect", "-o", "json", box).json["state"] == "stopped"
    boxes.ok("start", box)
    assert boxes.ok("exec", box, "--", "sh", "-c", "cat file; echo $A").out == b"data\nkept\n"
    boxes.ok("rm", box)
    assert boxes.cay("inspect", box).status == 4 and gone(box)


def test_what_cannot_be_started_is_told(boxes, box):
    assert boxes.cay("start", box).status not in (0, 125)


def test_a_stopped_sandbox_shows_the_limit_it_will_have(boxes):
    box = boxes.create("--storage", "disk", "-m", "700M")
    boxes.ok("kill", box)
    line = next(line for line in boxes.ok("ls").text.splitlines() if line.startswith(box))
    assert "700 MiB" in line and "no limit" not in line
    boxes.ok("rm", box)


def test_a_limit_on_disk_is_enforced_and_shown(boxes):
    box = boxes.create("--storage", "disk", "--disk", "32M")
    full = boxes.cay("exec", box, "--", "sh", "-c", "head -c 64M /dev/zero > ~/big")
    assert full.status == 1 and b"No space left" in full.err
    shown = boxes.ok("inspect", box).text
    assert " of 32 MiB, in files\n" in shown and "ext4 on a loop device" in shown
    data = boxes.ok("inspect", "-o", "json", box).json
    assert data["limits"]["disk_bytes"] == 32 << 20
    assert data["used"]["disk_bytes"] > 16 << 20
    boxes.ok("kill", box)
    assert "disk:      at most 32 MiB, in files\n" in boxes.ok("inspect", box).text
    boxes.ok("start", box)
    boxes.ok("exec", box, "--", "rm", "/home/user/big")
    boxes.ok("rm", box)


def test_a_run_on_disk_whose_cay_was_killed_leaves_nothing(boxes):
    running = boxes.start("run", "--storage", "disk", "--", "sh", "-c", "hostname; sleep 1000")
    box = running.stdout.readline().decode().strip()
    running.kill()
    running.wait()
    wait_until(lambda: boxes.ok("gc") and boxes.cay("inspect", box).status == 4, "it is there")
    assert gone(box)


@pytest.mark.parametrize("step", ["kill", "rm", "pause"])
def test_a_word_that_is_no_id_is_told_before_anything_ends(boxes, box, step):
    failed = boxes.cay(step, box, "web")
    assert failed.status == 4 and b"web" in failed.err
    assert boxes.ok("inspect", "-o", "json", box).json["state"] == "running"


def test_a_life_is_told_to_programs(boxes):
    box, other, absent = boxes.create(), boxes.create(), "sb-aaaaaaaaaaaaaaaa"
    for step in ("pause", "resume"):
        assert boxes.ok(step, box, "-o", "json").json == {"sandboxes": [box]}
    pid = boxes.ok("exec", "-d", "-o", "json", box, "--", "sleep", "1000").json["pid"]
    assert boxes.ok("kill", "-o", "json", "-s", "TERM", box, str(pid)).json == {"pid": pid}
    done = boxes.cay("kill", "-o", "json", other, absent, box, absent)
    assert done.status == 4 and done.json == {"sandboxes": [other, box]}
    errors = [json.loads(line)["error"] for line in done.err.splitlines()]
    assert [error["subject"] for error in errors] == [absent, absent]
    done = boxes.cay("rm", "-o", "json", "web")
    assert done.status == 4 and not done.out and json.loads(done.err)["error"]


def test_gc_answers_as_text_and_json(boxes):
    assert re.fullmatch(r"removed \d+ leftovers?\n", boxes.ok("gc").text)
    assert json.loads(boxes.ok("gc", "-o", "json").out).keys() == {"collected"}


def test_a_sandbox_whose_first_process_was_killed_is_collected(boxes, box):
    pid = boxes.ok("inspect", "-o", "json", box).json["init_pid"]
    subprocess.run(["kill", "-9", str(pid)], check=True)
    wait_until(lambda: boxes.ok("gc") and traces(box) == [], "cay gc left traces")


def test_json_tells_why_a_background_command_was_not_started(boxes, box):
    done = boxes.cay("exec", "-d", "-o", "json", box, "--", "no-such-program")
    assert done.status == 127 and done.json["cause"] == "not-started" and done.json["hint"]


def test_create_checks_the_user_and_the_working_directory(boxes):
    done = boxes.cay("create", "-u", "nosuch")
    assert done.status and not done.out and b"nosuch: no such user" in done.err
    done = boxes.cay("create", "-w", "/nosuch")
    assert done.status and not done.out and b"/nosuch: the working directory does not exist" in done.err
    box = boxes.create("-u", "root", "-w", "/usr")
    assert boxes.ok("exec", box, "--", "sh", "-c", "id -un; pwd").text == "root\n/usr\n"


def test_inspect_omits_limits_that_are_not_enforced(boxes):
    box = boxes.create("--storage", "disk", "-m", "256M")
    info = boxes.ok("inspect", "-o", "json", box).json
    assert info["limits"]["disk_bytes"] is None and info["used"]["disk_bytes"] is None
    assert "in files; no limit" in boxes.ok("inspect", box).text
    boxes.ok("kill", box)
    info = boxes.ok("inspect", "-o", "json", box).json
    assert info["level"] is None and info["limits"]["memory_bytes"] == 256 << 20
    text = boxes.ok("inspect", box).text
    assert "256 MiB of memory and 512 processes, once it is started" in text
    assert "not active" not in text and "isolation:" not in text
    boxes.ok("rm", box)
