# SPDX-License-Identifier: Apache-2.0
"""cay session: sandboxes that belong to somebody and are found again."""

import json
import os
import pwd
import re
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest
from conftest import CAY, PATIENCE, ROOT
from sandboxes import gone, wait_until

ME = pwd.getpwuid(os.geteuid()).pw_name


class Sessions:
    """`cay session` with a home of its own; every sandbox that it names is remembered."""

    def __init__(self, boxes, home):
        self.boxes, self.home = boxes, home
        self.env = {"CAY_HOME": str(home)}

    def cay(self, *words, **more):
        done = self.boxes.cay(*words, env=self.env, **more)
        self.boxes.made += re.findall(r"\bsb-[a-z2-7]{16}\b", done.out.decode())
        return done

    def ok(self, *words, **more):
        done = self.cay("session", *words, **more)
        assert (done.status, done.err) == (0, b""), done
        return done

    def fails(self, status, *words):
        done = self.cay("session", *words)
        assert (done.status, done.out) == (status, b""), done
        return done.line

    def start(self, *words):
        return self.ok("start", *words).text.strip()

    def run(self, sandbox_id, script):
        done = self.cay("exec", sandbox_id, "--", "sh", "-c", script)
        assert (done.status, done.err) == (0, b""), done
        return done.text

    def show(self, *words):
        return self.ok("show", *words, "-o", "json").json

    def list(self, *words):
        return self.ok("ls", *words, "-o", "json").json["sessions"]


@pytest.fixture(name="sessions")
def fixture_sessions(boxes, tmp_path):
    sessions = Sessions(boxes, tmp_path / "home")
    yield sessions
    for one in sessions.list():
        sessions.cay("session", "rm", "--user", one["user_id"], "--", one["session_id"])


def test_a_session_is_started_again_with_all_that_is_in_it(sessions):
    box = sessions.start("work")
    assert re.fullmatch(r"sb-[a-z2-7]{16}", box)
    sessions.run(box, "echo kept > file; setsid sleep 1000 >/dev/null 2>&1 </dev/null &")
    assert sessions.start("work") == box
    assert sessions.run(box, "cat file") == "kept\n"
    sessions.ok("rm", "work")
    assert sessions.list() == [] and gone(box)


def test_pause_resume_and_stop(sessions):
    box = sessions.start("work")
    assert sessions.ok("pause", "work").out == b""
    assert sessions.show("work")["state"] == "paused"
    assert sessions.ok("resume", "work").out == b""
    assert sessions.show("work")["state"] == "running"
    sessions.ok("pause", "work")
    assert sessions.start("work") == box
    assert sessions.run(box, "echo on") == "on\n"
    assert sessions.ok("stop", "work").out == b""
    shown = sessions.show("work")
    assert (shown["state"], shown["sandbox_id"], shown["backend"]) == ("none", None, None)
    assert gone(box)
    assert "has no sandbox" in sessions.fails(4, "resume", "work")
    assert "has no sandbox" in sessions.fails(4, "pause", "work")
    assert "has no sandbox" in sessions.fails(4, "stop", "work")
    assert sessions.start("work") != box


def test_a_sandbox_that_is_gone_is_replaced_by_start_only(sessions):
    box = sessions.start("work")
    assert sessions.cay("kill", box).status == 0
    assert sessions.show("work")["state"] == "gone"
    assert "is gone" in sessions.fails(4, "resume", "work")
    again = sessions.start("work")
    assert again != box and sessions.show("work")["sandbox_id"] == again


def test_a_sandbox_without_isolation_that_is_gone_is_seen_to_be(sessions, tmp_path):
    (tmp_path / "cay.yaml").write_text(f"type: local\nttl: 1\nwork_dir: {tmp_path}\n")
    first = sessions.cay("session", "start", "work", "--config", tmp_path / "cay.yaml").out
    wait_until(lambda: sessions.show("work")["state"] == "gone", "it has ended")
    assert "is gone" in sessions.fails(4, "resume", "work")
    assert sessions.cay("session", "start", "work").out != first


def test_a_configured_sandbox_that_is_gone_does_not_stay_for_ever(sessions, tmp_path):
    box, own = sessions.start("maker"), sessions.start("work")
    (tmp_path / "cay.yaml").write_text(f"sandbox_id: {box}\n")
    assert sessions.start("work", "--config", tmp_path / "cay.yaml") == box
    assert sessions.show("work")["sandbox_id"] == box
    assert sessions.run(own, "echo on") == "on\n"
    assert sessions.cay("kill", box).status == 0
    assert "is gone" in sessions.fails(4, "resume", "work")
    sessions.fails(4, "start", "work", "--config", tmp_path / "cay.yaml")
    assert sessions.start("work") not in (box, own)


def test_a_session_whose_library_is_gone_keeps_its_sandbox(sessions, tmp_path):
    library, away, folders = tmp_path / "folder.so", tmp_path / "away.so", tmp_path / "folders"
    library.symlink_to(Path(CAY).resolve().parent / "docs" / "examples" / "folder.so")
    folders.mkdir()
    (tmp_path / "cay.yaml").write_text(f"library: {library}\nprefix: {folders}\n")
    box = sessions.start("fold", "--config", tmp_path / "cay.yaml")
    library.rename(away)
    for step in ("pause", "resume", "start", "stop"):
        assert "shared object not found" in sessions.fails(13, step, "fold")
    assert sessions.show("fold")["sandbox_id"] == box and (folders / box).exists()
    away.rename(library)
    sessions.ok("stop", "fold")
    assert sessions.show("fold")["state"] == "none" and not (folders / box).exists()

    box = sessions.start("fold")
    library.rename(away)
    done = sessions.cay("session", "rm", "fold")
    assert (done.status, sessions.list()) == (0, []) and (folders / box).exists()
    assert f"the sandbox {box} was not removed: the backend folder" in done.err.decode()


def test_json_has_everything(sessions, tmp_path):
    (tmp_path / "cay.yaml").write_text("limits: {memory: 128M}\nenvs: {MOOD: calm}\n")
    done = sessions.ok("start", "work", "--config", tmp_path / "cay.yaml", "-o", "json").json
    assert done == sessions.show("work") == sessions.list()[0]
    assert set(done) == {"session_id", "user_id", "state", "backend", "sandbox_id", "config",
                         "data", "created_ms", "updated_ms", "revision"}
    assert (done["session_id"], done["user_id"], done["state"]) == ("work", ME, "running")
    assert done["config"]["limits"] == {"memory": 128 << 20}
    assert done["data"] is None and done["revision"] == 1
    assert sessions.run(done["sandbox_id"], "echo $MOOD") == "calm\n"
    (paused,) = sessions.ok("pause", "work", "-o", "json").json["sessions"]
    assert paused["state"] == "paused" and paused["revision"] == 2
    (removed,) = sessions.ok("rm", "work", "-o", "json").json["sessions"]
    assert removed["state"] == "removed"


def test_text_for_people(sessions):
    assert sessions.ok("ls").text.split() == ["SESSION", "USER", "STATE", "CHANGED", "BACKEND",
                                              "SANDBOX"]
    box = sessions.start("work")
    _, row = sessions.ok("ls").text.splitlines()
    assert row.split()[:3] == ["work", ME, "running"] and row.split()[-2:] == ["native", box]
    assert sessions.ok("ls", "-q").text == "work\n"
    shown = dict(line.split(":", 1) for line in sessions.ok("show", "work").text.splitlines())
    assert shown["session"].strip() == "work" and shown["sandbox"].strip() == box
    assert shown["state"].strip() == "running" and shown["data"].strip() == "none"


def test_names_may_be_anything(sessions):
    names = ["with space", "new\nline", "-dash", "\x1b[31mred", "é", "x" * 256]
    for name in names:
        sessions.start("--", name)
    assert {one["session_id"] for one in sessions.list()} == set(names)
    assert b"\x1b" not in sessions.ok("ls").out
    for name in names:
        sessions.ok("rm", "--", name)
    assert sessions.list() == []
    assert "256 bytes" in sessions.fails(2, "start", "x" * 257)
    assert "256 bytes" in sessions.fails(2, "start", "")


def test_users_have_sessions_of_their_own(sessions):
    first = sessions.start("--user", "ann", "work")
    assert sessions.start("work") == first  # there is only one of that name
    second = sessions.start("--user", "bob", "work")
    assert second != first
    line = sessions.fails(2, "show", "work")
    assert "several users" in line and "ann" in line and "bob" in line
    own = sessions.start("--user", ME, "work")
    assert sessions.show("work")["sandbox_id"] == own
    assert [one["user_id"] for one in sessions.list()] == [ME, "bob", "ann"]
    assert [one["user_id"] for one in sessions.list("--user", "bob")] == ["bob"]
    sessions.ok("rm", "--user", "bob", "work")
    assert {one["user_id"] for one in sessions.list()} == {ME, "ann"}


def test_one_that_fails_does_not_keep_the_others_from_their_turn(sessions):
    for name in "abc":
        sessions.start(name)
    done = sessions.cay("session", "pause", "a", "nothing", "b", "neither", "c")
    assert done.status == 4
    lines = done.err.decode().splitlines()
    assert len(lines) == 2 and "nothing" in lines[0] and "neither" in lines[1]
    assert {one["state"] for one in sessions.list()} == {"paused"}
    sessions.ok("rm", "a", "b", "c")


def test_what_is_refused(sessions, tmp_path):
    assert "session not found" in sessions.fails(4, "show", "work")
    assert "session not found" in sessions.fails(4, "rm", "work")
    assert sessions.fails(4, "start", "work", "--config", tmp_path / "no.yaml")
    (tmp_path / "cay.yaml").write_text("limtis: {}\n")
    line = sessions.fails(2, "start", "work", "--config", tmp_path / "cay.yaml")
    assert "limits" in line
    assert "usage" in sessions.fails(2, "show")
    assert "did you mean start?" in sessions.fails(2, "strat", "x")
    assert sessions.list() == []
    done = sessions.cay("session", "show", "work", "-o", "json")
    assert json.loads(done.err)["error"]["slug"] == "not-found"


def test_that_nothing_is_isolated_is_said_once(sessions, tmp_path):
    (tmp_path / "cay.yaml").write_text(f"sandbox_config: {{work_dir: {tmp_path}}}\n")
    words = ("session", "start", "work", "--config", tmp_path / "cay.yaml")
    done = sessions.cay(*words, "-o", "json")
    assert done.status == 0 and done.json["backend"] == "local"
    assert done.line == ("cay: warning: commands of this session run on this machine without "
                         "isolation (type: native isolates them)")
    done = sessions.cay("session", "pause", "work")
    assert done.err == (b"cay: note: work: this sandbox cannot be paused and keeps "
                        b"running\n")
    sessions.ok("rm", "work")


def test_a_session_has_no_ephemeral_sandbox(sessions, tmp_path):
    (tmp_path / "cay.yaml").write_text("ephemeral: true\n")
    line = sessions.fails(2, "start", "work", "--config", tmp_path / "cay.yaml")
    assert "an ephemeral sandbox would end with this command" in line
    assert sessions.list() == []


def test_a_configuration_with_a_secret_keeps_where_it_came_from(sessions, tmp_path):
    (tmp_path / "cay.yaml").write_text("envs: {TOKEN: '${env.SECRET_TOKEN}'}\n")
    sessions.env["SECRET_TOKEN"] = "hunter2hunter2"
    box = sessions.start("work", "--config", str(tmp_path / "cay.yaml"))
    assert sessions.run(box, "echo $TOKEN") == "hunter2hunter2\n"
    assert sessions.show("work")["config"]["envs"] == {"TOKEN": "${env.SECRET_TOKEN}"}
    for path in sessions.home.iterdir():
        assert b"hunter2" not in path.read_bytes(), path


def test_what_a_crash_left_is_collected(sessions):
    """A start that was killed after it had made the sandbox and before it had said so."""
    box = sessions.start("work")
    with sqlite3.connect(sessions.home / "cay.db") as database:
        database.execute("DELETE FROM sessions")
        database.execute("INSERT INTO starts VALUES (?, ?, 'work', '{}', 0)", (box[3:], ME))
    done = sessions.cay("gc", "-o", "json")
    assert done.status == 0 and done.json["collected"] >= 1
    assert gone(box) and sessions.list() == []


def test_a_program_that_is_killed_leaves_its_session(sessions):
    box = sessions.start("work")
    process = sessions.boxes.start("exec", box, "--", "sh", "-c",
                                   "echo up > up; exec sleep 1000", env={**os.environ,
                                                                         **sessions.env})
    wait_until(lambda: sessions.cay("exec", box, "--", "cat", "up").out == b"up\n", "not up")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert sessions.start("work") == box
    assert sessions.run(box, "cat up") == "up\n"


def test_a_damaged_database_is_told(sessions):
    sessions.list()
    (sessions.home / "cay.db").write_bytes(b"x" * 8192)
    line = sessions.fails(29, "ls")
    assert line.startswith("cay: io: ") and "move it away" in line
    for path in sessions.home.glob("cay.db*"):
        path.unlink()


def test_the_examples_of_the_manual_do_what_it_says(sessions, tmp_path):
    from test_manual import blocks, transcripts

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cay").symlink_to(os.path.abspath(CAY))
    environ = {**os.environ, **sessions.env, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    text = (ROOT / "docs" / "cay-session.1.scd").read_text().split("# EXAMPLES")[1]
    (block,) = blocks(text)
    shown = transcripts(block)
    assert len(shown) >= 6
    for command, expected in shown:
        done = subprocess.run(["bash", "-c", command], env=environ, text=True, cwd=tmp_path,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=PATIENCE, check=False)
        assert done.stdout == expected, command
