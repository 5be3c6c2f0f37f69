# SPDX-License-Identifier: Apache-2.0
"""Commands that match --approve wait in the queue, and what is approved is what runs."""

import os
import pty
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE
from test_approve import Queue, ended


@pytest.fixture(name="queue")
def fixture_queue():
    base = Path(tempfile.mkdtemp())
    queue = Queue(base)
    queue.ids = []
    yield queue
    for one in queue.ids:
        queue.run("rm", "-f", one)
    shutil.rmtree(base)


def create(queue, *words):
    queue.ids.append(queue.run("create", *words).strip())
    return queue.ids[-1]


def test_a_matching_command_waits_and_others_run(queue):
    runner = queue.start("run", "--approve", "echo*", "--", "echo", "it's", "run")
    request = queue.waiting(runner)
    assert request["kind"] == "command" and request["subject"] == r"echo 'it'\''s' run"
    assert request["scope"] == str(queue.base)
    assert "argument 1, 4 bytes: it's\n" in queue.run("approve", "show", request["id"])
    queue.run("approve", "allow", request["id"])
    code, out, error = ended(runner)
    assert (code, out) == (0, "it's run\n") and f"cay approve allow {request['id'][:12]}" in error
    assert queue.run("run", "--approve", "echo*", "--", "printf", "other") == "other"
    assert queue.requests() == []


def test_a_remembered_command_runs_again_in_the_same_place(queue):
    runner = queue.start("run", "--approve", "*", "--", "echo", "a")
    queue.run("approve", "remember", queue.waiting(runner)["id"])
    assert ended(runner)[:2] == (0, "a\n")
    assert queue.run("run", "--approve", "*", "--", "echo", "a") == "a\n"
    assert queue.requests() == []
    done = queue.run("run", "--approve", "*", "--approve-timeout", "1ms", "--", "echo", "b", status=None)
    assert done.returncode == 125 and "no reply in time" in done.stderr


def test_a_remembered_rule_covers_the_line_and_nothing_else(queue):
    """The manual says so: a line with any directory, user and variables, but no other line."""
    created = create(queue, "--approve", "*", "--approve-timeout", "2m")
    runner = queue.start("exec", "-e", "A=1", created, "--", "env")
    queue.run("approve", "remember", queue.waiting(runner)["id"])
    assert ended(runner)[0] == 0
    assert "A=2\n" in queue.run("exec", "-e", "A=2", "-w", "/", "-u", "root", created, "--", "env")
    assert queue.requests() == []
    for line in (("env", "-0"), ("/usr/bin/env",), ("sh", "-c", "env")):
        runner = queue.start("exec", created, "--", *line)
        queue.run("approve", "deny", queue.waiting(runner)["id"])
        assert ended(runner)[0] == 125
    other = create(queue, "--approve", "*")  # of another scope
    runner = queue.start("exec", other, "--", "env")
    queue.run("approve", "deny", queue.waiting(runner)["id"])
    assert ended(runner)[0] == 125


def test_the_rules_stay_with_the_sandbox(queue):
    created = create(queue, "--approve", "git push*", "--approve-timeout", "2m")
    for command in (("sh", "-c", "git push --force"), ("bash", "-ec", "git push --force"),
                    ("/usr/bin/git", "push", "--force")):
        runner = queue.start("exec", created, "--", *command)
        request = queue.waiting(runner)
        assert request["scope"] == created
        queue.run("approve", "deny", "--note", "never", request["id"])
        code, _, error = ended(runner)
        assert code == 125 and "not-approved" in error and "never" in error
    # A pattern of the whole line, and one for this command only.
    assert queue.run("exec", created, "--", "echo", "git push") == "git push\n"
    runner = queue.start("exec", created, "--approve", "echo*", "--", "echo", "x")
    queue.run("approve", "allow", queue.waiting(runner)["id"])
    assert ended(runner)[:2] == (0, "x\n")


def test_forks_and_started_sandboxes_keep_the_rules(queue):
    created = create(queue, "--approve", "true", "--storage", "disk", "--approve-timeout", "1ms")
    forked = queue.run("fork", created).strip()
    queue.ids.append(forked)
    queue.run("kill", created)
    queue.run("start", created)
    for one in (created, forked):
        assert "no reply in time" in queue.run("exec", one, "--", "true", status=None).stderr
        assert queue.run("exec", one, "--", "echo", "x") == "x\n"


def test_other_variables_are_another_request(queue):
    created = create(queue, "--approve", "true")
    ids = set()
    for words in ((), ("-e", "A=1"), ("-e", "A=2"), ("-w", "/"), ("-u", "root")):
        runner = queue.start("exec", *words, created, "--", "true")
        request = queue.waiting(runner)
        assert "A=1" not in queue.run("approve", "show", request["id"])
        ids.add(request["id"])
        queue.run("approve", "deny", request["id"])
        ended(runner)
    assert len(ids) == 5


def test_the_terminal_asks(queue):
    for answer, status in (("maybe\ny\n", 0), ("s\nn\n", 125), ("r\n", 0)):
        own, other = pty.openpty()
        asker = subprocess.Popen([CAY, "run", "--approve", "true", "--", "true"], cwd=queue.base, env=queue.env,
                                 stdin=other, stdout=other, stderr=other)
        os.close(other)
        seen = b""
        sent = answer.splitlines(keepends=True)
        prompts = 0
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if not select.select([own], [], [], 1)[0]:
                continue
            try:
                seen += os.read(own, 4096)
            except OSError:
                break
            if seen.count(b"[r]emember: ") > prompts and sent:
                prompts += 1
                os.write(own, sent.pop(0).encode())
        os.close(own)
        assert asker.wait(timeout=PATIENCE) == status, seen
        assert answer[0] != "s" or b"argument 0, 4 bytes: true" in seen
    assert queue.run("run", "--approve", "true", "--", "true") == ""


def test_the_terminal_drops_what_was_typed_before_it_asks(queue):
    own, other = pty.openpty()
    os.write(own, b"y\nr\n")  # in the input queue of the terminal before cay starts
    asker = subprocess.Popen([CAY, "run", "--approve", "true", "--", "true"], cwd=queue.base, env=queue.env,
                             stdin=other, stdout=other, stderr=other)
    os.close(other)
    seen = b""
    answered = False
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not select.select([own], [], [], 1)[0]:
            continue
        try:
            seen += os.read(own, 4096)
        except OSError:
            break
        if b"[r]emember: " in seen and not answered:
            answered = True
            os.write(own, b"n\n")
    os.close(own)
    assert asker.wait(timeout=PATIENCE) != 0, seen
    assert b"denied on the terminal" in seen and "allow" not in queue.run("approve", "rules"), seen


@pytest.mark.parametrize("words", [("--approve", ""), ("--approve", "x" * (40 << 10))])
def test_an_invalid_pattern_is_refused(queue, words):
    done = queue.run("create", *words, status=None)
    assert done.returncode not in (0, None) and "pattern" in done.stderr, done
