# SPDX-License-Identifier: Apache-2.0
"""Where the server keeps its records: --store."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from serving import unavailable, wait_until

ROOT = Path(__file__).resolve().parents[2]
CAY = os.environ.get("CAY_BIN", str(ROOT / "build" / "cay"))
PATIENCE = 60  # seconds: for a machine that is very slow, not for waiting


class Serving:
    """A server, its home and its store apart; with what it printed."""

    def __init__(self, home, *options):
        self.env = {**os.environ, "CAY_HOME": str(home)}
        self.process = subprocess.Popen(
            [CAY, "serve", "--listen", "127.0.0.1:0", *options], env=self.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        lines = [self.process.stdout.readline() for _ in range(4)]
        self.exports = dict(re.fullmatch(r"export (\w+)=(\S+)\n", line).groups() for line in lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return status

    def api(self, method, path, body=None, key=None):
        request = urllib.request.Request(
            self.exports["E2B_API_URL"] + path, method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"X-API-KEY": key or self.exports["E2B_API_KEY"]})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                status, text = reply.status, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def create(self):
        status, body = self.api("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 120})
        assert status == 201, body
        return body["sandboxID"]

    def ids(self, key=None):
        status, body = self.api("GET", "/v2/sandboxes", key=key)
        assert status == 200, body
        return [one["sandboxID"] for one in body]


def cay(home, *words):
    return subprocess.run([CAY, *words], env={**os.environ, "CAY_HOME": str(home)},
                          capture_output=True, text=True, timeout=PATIENCE, check=False)


def rows(path, text):
    with contextlib.closing(sqlite3.connect(path)) as database:
        return list(database.execute(text))


@pytest.fixture(name="place")
def fixture_place(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.mark.parametrize("spelled", ["{path}", "sqlite:{path}", "sqlite://{path}"])
def test_records_are_where_they_were_asked_for(place, spelled):
    home, path = place / "home", place / "own.db"
    store = spelled.format(path=path)
    with Serving(home, "--store", store) as server:
        name = server.create()
    assert rows(path, "SELECT id, state FROM sandboxes") == [(name, 1)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert not (home / "serve.db").exists()
    key = cay(home, "key", "--store", store, "new", "others")
    assert key.returncode == 0, key.stderr
    with Serving(home, f"--store={store}") as server:  # the next one has them
        assert server.ids() == [name]
        assert server.ids(key.stdout.strip()) == []
        assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204
    assert rows(path, "SELECT id, state, reason FROM sandboxes") == [(name, 3, "was killed")]


def test_two_stores_know_nothing_of_each_other_but_the_default_key(place):
    home = place / "home"
    with Serving(home, "--store", str(place / "a.db")) as one, \
            Serving(home, "--store", str(place / "b.db")) as other:
        assert one.exports["E2B_API_KEY"] == other.exports["E2B_API_KEY"]
        name = one.create()
        assert (one.ids(), other.ids()) == ([name], [])
        assert other.api("DELETE", f"/sandboxes/{name}")[0] == 404
        assert one.api("DELETE", f"/sandboxes/{name}")[0] == 204
    env = cay(home, "env", "--store", str(place / "b.db"))
    assert one.exports["E2B_API_KEY"] in env.stdout


@pytest.mark.parametrize("words", [["serve", "--listen", "127.0.0.1:0"], ["key", "ls"], ["env"]])
def test_a_home_is_absolute_and_its_owners_own(place, monkeypatch, words):
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place / "user"))
    refused = cay("relative", *words)
    assert refused.returncode != 0
    assert "set CAY_HOME to the absolute path" in refused.stderr
    assert list(place.iterdir()) == []
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    refused = cay(shared, *words)
    assert refused.returncode != 0
    assert "does not belong to this user" in refused.stderr
    assert list(shared.iterdir()) == []


def test_what_a_process_that_was_killed_has_left_is_in_nobodys_way(place):
    """In a container the next one has the same number."""
    if os.geteuid() != 0:
        unavailable("another namespace of processes is made by root")
    home = place / "home"
    home.mkdir(mode=0o700)
    (home / "serve.api-key.1").touch(mode=0o600)
    with subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", CAY, "serve", "--listen",
                           "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, env={**os.environ, "CAY_HOME": str(home)}) as server:
        printed = [server.stdout.readline() for _ in range(4)]
        server.kill()
    key = (home / "serve.api-key").read_text()
    assert f"export E2B_API_KEY={key}\n" in printed
    databases = {f"serve.db{name}{end}" for name in ("", "-history") for end in ("", "-journal", "-shm", "-wal")}
    assert {path.name for path in home.glob("serve.*")} - databases - {"serve.db-audit"} \
        == {"serve.api-key", "serve.api-key.1", "serve.key"}


def test_two_servers_have_one_store(place):
    home, store = place / "home", str(place / "a.db")
    with Serving(home, "--store", store) as one, Serving(home, "--store", store) as other:
        names = {one.create(), other.create()}
        assert set(one.ids()) == set(other.ids()) == names
        first, second = names
        assert one.api("DELETE", f"/sandboxes/{first}")[0] == 204
        assert other.api("GET", f"/sandboxes/{first}")[0] == 404
        assert other.api("DELETE", f"/sandboxes/{second}")[0] == 204


def test_what_is_in_memory_goes_with_the_server(place):
    home = place / "home"
    with Serving(home, "--store", "memory:") as server:
        name = server.create()
        assert server.ids() == [name]
        assert f"sb-{name}" in cay(home, "ls", "-q").stdout
        assert server.stop() == 0
    assert f"sb-{name}" not in cay(home, "ls", "-q").stdout
    left = {path.name for path in home.iterdir()} - {"templates"}  # the template base is kept
    assert left == {"serve.api-key", "serve.key"}
    with Serving(home, "--store", ":memory:") as server:
        assert server.ids() == []


def test_what_the_server_takes_with_it_was_killed(place):
    path = place / "a.db"
    with Serving(place / "home", "--store", str(path), "--on-exit", "kill") as server:
        names = {server.create(), server.create()}
    assert set(rows(path, "SELECT id, state, reason FROM sandboxes")) == {
        (name, 3, "was killed") for name in names}


def test_sessions_lie_in_the_same_file(place):
    home = place / "home"
    path = home / "cay.db"  # that of cay session

    def session(*words):
        done = cay(home, "session", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with Serving(home, "--store", str(path)) as server:
        name = server.create()
        session("ls")  # makes its tables in what a server has made
        assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204
    tables = {row[0] for row in rows(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert {"keys", "sandboxes", "server", "sessions", "starts"} <= tables
    other = place / "other"
    assert cay(other, "session", "ls").returncode == 0
    with Serving(other, "--store", str(other / "cay.db")) as server:  # and the other way round
        assert server.ids() == []
    assert cay(other, "session", "ls").returncode == 0


def test_records_of_the_first_form_are_taken_over(place):
    home = place / "home"
    with Serving(home, "--on-exit", "leave") as server:
        name = server.create()
    with contextlib.closing(sqlite3.connect(home / "serve.db", isolation_level=None)) as database:
        database.executescript("DROP TABLE server; PRAGMA application_id = 0; PRAGMA user_version = 1")
    with Serving(home) as server:
        assert server.ids() == [name]
        assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204
    assert rows(home / "serve.db", "PRAGMA user_version") == [(0,)]


def make_foreign(path):
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE others (x)")
        database.commit()
    path.chmod(0o600)


def make_open(path):
    path.touch(mode=0o644)
    path.chmod(0o644)


def make_garbage(path):
    path.write_bytes(b"no database" * 1000)
    path.chmod(0o600)


def make_link(path):
    (path.parent / "target").touch(mode=0o600)
    path.symlink_to("target")


def make_newer(path):
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE server (version INTEGER); INSERT INTO server VALUES (2)")
    path.chmod(0o600)


@pytest.mark.parametrize("make", [make_foreign, make_open, make_garbage, make_link, make_newer])
def test_what_is_not_ours_is_not_touched(place, make):
    path = place / "x.db"
    make(path)
    before = path.read_bytes()
    done = cay(place / "home", "serve", "--listen", "127.0.0.1:0", "--store", str(path))
    assert done.returncode != 0 and done.stderr.startswith("cay: "), done
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", [
    ("postgres://localhost/x",), ("mysql://x",), ("",), ("/",), ("sqlite:",), ("sqlite://host/x",),
    ("/no/such/place/x.db",), ("memory:", "--on-exit", "leave"), ("x" * 5000,)])
def test_a_store_that_cannot_be_is_refused(place, words):
    done = cay(place / "home", "serve", "--listen", "127.0.0.1:0", "--store", *words)
    assert done.returncode != 0 and done.stderr.startswith("cay: "), done


def test_a_directory_that_others_write_to_is_refused(place):
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    done = cay(place / "home", "serve", "--listen", "127.0.0.1:0", "--store", str(shared / "x.db"))
    assert done.returncode != 0 and "--store" in done.stderr, done
    assert list(shared.iterdir()) == []


def test_keys_in_memory_are_nobodys_to_manage(place):
    done = cay(place / "home", "key", "--store", "memory:", "ls")
    assert done.returncode != 0 and "memory" in done.stderr


@pytest.mark.parametrize("words", [["env"], ["key", "new"], ["key", "ls"], ["serve", "--help"]])
def test_what_cannot_be_printed_is_an_error(place, words):
    with Serving(place / "home"):
        pass
    with open("/dev/full", "wb") as full:
        done = subprocess.run([CAY, *words], env={**os.environ, "CAY_HOME": str(place / "home")},
                              stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    assert done.returncode == 11 and b"standard output" in done.stderr
    assert (b"key rm" in done.stderr) == (words == ["key", "new"])


def read_by(pid):
    """How many bytes a process of one thread has read.  /proc/PID/io would add what children
    have read that it waited for: a keeper reads 1 MB."""
    return int(re.search(r"rchar: (\d+)", Path(f"/proc/{pid}/task/{pid}/io").read_text())[1])


@contextlib.contextmanager
def recorded(server, state, count, metadata=b""):
    """So many sandboxes, as far as the records tell."""
    now_ms = int(time.time() * 1000)
    # A server that has just started compares its records with the sandboxes before it replies.
    assert server.api("GET", "/v2/sandboxes")[0] == 200
    with contextlib.closing(sqlite3.connect(server.home / "serve.db")) as records:
        with records:
            records.executemany(
                "INSERT INTO sandboxes VALUES "
                "(?, 'default', 'base', ?, ?, ?, 0, 1, 'was killed', ?)",
                ((f"only{number}", state, now_ms, now_ms + (state != 3) * 10 ** 6, metadata)
                 for number in range(count)))
        try:
            yield
        finally:
            with records:
                records.execute("DELETE FROM sandboxes WHERE id LIKE 'only%'")


def test_a_day_of_sandboxes_that_are_gone_is_not_read_again_and_again(own_server):
    """Their records tell why; but only to who asks for one."""
    server = own_server()
    with recorded(server, 3, 50000):
        made = server.api("POST", "/sandboxes", {"templateID": "base"})[1]["sandboxID"]
        before = read_by(server.broker)
        for _ in range(3):
            assert [one["sandboxID"] for one in server.api("GET", "/v2/sandboxes")[1]] == [made]
        assert server.api("DELETE", f"/sandboxes/{made}")[0] == 204
        wait_until(lambda: not server.keepers(), "the keeper has not ended")
        assert read_by(server.broker) - before < 1 << 20
        assert "was killed" in server.api("GET", "/sandboxes/only7")[1]["message"]


@pytest.mark.parametrize("size", [10, 2000, 40000])
def test_lists_are_whole_for_who_may_not_have_large_buffers(
        own_server, tmp_path, monkeypatch, size):
    """As most users may not; here it is root without the right to them."""
    program = tmp_path / "cay"
    program.write_text(f"#!/bin/sh\nexec setpriv --bounding-set=-net_admin '{CAY}' \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setattr("serving.CAY", str(program))
    server = own_server()
    monkeypatch.undo()
    seen, token = [], ""
    with recorded(server, 1, 100, b"k\0" + b"v" * size + b"\0"):
        while token is not None and len(seen) < 1000:
            request = urllib.request.Request(f"{server.url}/v2/sandboxes?nextToken={token}",
                                             headers={"X-API-KEY": server.key})
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                seen += [(one["sandboxID"], len(one["metadata"]["k"])) for one in json.load(reply)]
                token = reply.headers["X-Next-Token"]
    assert sorted(seen) == sorted((f"only{number}", size) for number in range(100))
