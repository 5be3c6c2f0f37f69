# SPDX-License-Identifier: Apache-2.0
"""cay approve: programs wait for a reply in the queue, and do exactly what was approved."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE
from test_try import fixture_place  # noqa: F401

POLICY = "paths:\n  docs: {root: docs, mode: rw}\n  asked: {root: asked, read_approval: true}\n"


class Queue:
    def __init__(self, base, program=CAY, prefix=(), env=None):
        self.base, self.program, self.prefix = base, program, prefix
        self.env = env or {**os.environ, "CAY_HOME": str(base / "state")}

    def start(self, *words, stdin=subprocess.DEVNULL):
        return subprocess.Popen([*self.prefix, self.program, *map(str, words)], cwd=self.base, env=self.env,
                                stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words, status=0, stdin=None):
        done = subprocess.run([*self.prefix, self.program, *map(str, words)], cwd=self.base, env=self.env,
                              input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert status is None or done.returncode == status, done
        return done.stdout if status == 0 else done

    def requests(self):
        return json.loads(self.run("approve", "list", "-o", "json"))["requests"]

    def waiting(self, process):
        """The request that the process waits for."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and process.poll() is None:
            found = [each for each in self.requests() if not each["decided"]]
            if found:
                return found[0]
            time.sleep(0.05)
        raise AssertionError(process.communicate())


def ended(process):
    out, error = process.communicate(timeout=PATIENCE)
    return process.returncode, out, error


@pytest.fixture(name="queue")
def fixture_queue():
    base = Path(tempfile.mkdtemp())
    for name in ("docs", "asked"):
        (base / name).mkdir()
    (base / "cay.yaml").write_text(POLICY)
    yield Queue(base)
    shutil.rmtree(base)


FILES = ("files", "--config", "cay.yaml", "--approve", "queue")


def test_a_write_waits_and_happens_as_approved(queue):
    writer = queue.start(*FILES, "write", "docs/a.txt", "--content", "first \x1b[1m\n")
    request = queue.waiting(writer)
    assert (request["kind"], request["subject"], request["scope"]) == \
        ("write", "docs/a.txt", str(queue.base / "cay.yaml"))
    assert not (queue.base / "docs/a.txt").exists()
    shown = queue.run("approve", "show", request["id"][:6])
    assert "\nfirst \\x1b[1m\n" in shown and "\x1b" not in shown
    assert request["id"][:12] in queue.run("approve", "list")
    queue.run("approve", "allow", request["id"][:12])
    code, _, error = ended(writer)
    assert code == 0 and "waits for approval" in error, error
    assert (queue.base / "docs/a.txt").read_text() == "first \x1b[1m\n"
    assert queue.requests() == []
    # Other content is another request.
    writer = queue.start(*FILES, "write", "docs/a.txt", "--content", "second")
    other = queue.waiting(writer)
    assert other["id"] != request["id"]
    queue.run("approve", "deny", "--note", "keep the first", other["id"])
    code, _, error = ended(writer)
    assert code != 0 and "keep the first" in error
    assert (queue.base / "docs/a.txt").read_text().startswith("first")


def test_a_request_survives_the_program_that_asked(queue):
    writer = queue.start(*FILES, "write", "docs/a.txt", "--content", "text")
    request = queue.waiting(writer)
    writer.kill()
    ended(writer)
    queue.run("approve", "allow", request["id"])
    assert "replied" in queue.run("approve", "list")
    queue.run(*FILES, "write", "docs/a.txt", "--content", "text")
    assert (queue.base / "docs/a.txt").read_text() == "text" and queue.requests() == []


def test_a_remembered_request_is_a_rule_that_can_be_read_and_removed(queue):
    (queue.base / "asked/a").write_text("content")
    reader = queue.start(*FILES, "read", "asked/a")
    queue.run("approve", "remember", queue.waiting(reader)["id"])
    assert ended(reader)[:2] == (0, "content")
    rules = queue.run("approve", "rules").splitlines()
    assert rules == [f"# {queue.base}/state/approvals/rules", "\t".join(["allow", "read", f"{queue.base}/cay.yaml", "asked/a"])]
    assert queue.run(*FILES, "read", "asked/a") == "content"
    Path(rules[0][2:]).write_text("\t".join(["deny", "read", f"{queue.base}/*", "*\n"]))
    assert "a rule of cay approve denies it" in queue.run(*FILES, "read", "asked/a", status=None).stderr


def test_any_program_can_ask(queue):
    asker = queue.start("approve", "request", "command", "make install", "-i", "--scope", "here", stdin=subprocess.PIPE)
    asker.stdin.write("as root\n")
    asker.stdin.close()
    asker.stdin = None
    request = queue.waiting(asker)
    assert request["summary"] == "command: make install" and request["content_bytes"] == 8
    assert queue.run("approve", "show", request["id"]).endswith("\nas root\n")
    queue.run("approve", "allow", request["id"])
    assert ended(asker)[0] == 0
    done = queue.run("approve", "request", "command", "rm -rf /", "--timeout", "1ms", status=None)
    assert done.returncode != 0 and "not-approved" in done.stderr and "no reply in time" in done.stderr
    for words in (("request", "No", "x"), ("show", "abc"), ("allow", "abc"), ("request", "a", "")):
        assert queue.run("approve", *words, status=None).returncode != 0


def test_an_apply_waits_and_applies_what_was_shown(place):  # noqa: F811
    place.put("a.txt", "one\n")
    place.sh("echo two >> a.txt; printf '\\0\\1' > binary")
    queue = Queue(place.dir, place.base / "cay", place.prefix, place.env)
    applier = queue.start("apply", "--approve", "queue")
    request = queue.waiting(applier)
    assert (request["kind"], request["subject"], request["scope"]) == ("apply", ".", str(place.dir))
    shown = queue.run("approve", "show", request["id"])
    assert "\n+two\n" in shown and "GIT binary patch" in shown
    # What changes while it waits is not applied.
    place.ok("try", "--use", request["summary"].split()[2], "--", "sh", "-c", "echo three >> a.txt")
    queue.run("approve", "allow", request["id"])
    code, _, error = ended(applier)
    assert code != 0 and "not those that were approved" in error, error
    assert (place.dir / "a.txt").read_text() == "one\n"
    applier = queue.start("apply", "--approve", "queue")
    queue.run("approve", "allow", queue.waiting(applier)["id"])
    assert ended(applier)[0] == 0
    assert (place.dir / "a.txt").read_text() == "one\ntwo\nthree\n"
    # A try that a sandbox still shows could change after the reply.
    try_id = place.sh("echo four >> a.txt")
    running = queue.start("try", "--use", try_id, "-i", "--", "cat", stdin=subprocess.PIPE)
    running.stdin.write("ready\n")
    running.stdin.flush()
    assert running.stdout.readline() == "ready\n"
    assert "a sandbox shows this try" in place.run("apply", "--approve", "queue").stderr
    running.stdin.close()
    running.stdin = None
    ended(running)
