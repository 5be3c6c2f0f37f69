# SPDX-License-Identifier: Apache-2.0
"""A store that cannot be written, was damaged, or is not there any more."""

import contextlib
import os
import sqlite3
import subprocess

import pytest
from serving import CAY, PATIENCE, Server, runtime, traces, unavailable, wait_until


@pytest.fixture(name="small")
def fixture_small(tmp_path):
    """A server whose store is on a small file system that only it sees, and a way to run commands
    there."""
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    home = tmp_path / "small"
    home.mkdir(mode=0o700)
    with subprocess.Popen(
            ["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=4m,mode=700 small {home} && "
             "echo ready && exec sleep infinity"], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "ready\n"
        server = Server(tmp_path / "outside", "--reserve", "0", "--store", f"{home}/serve.db")
        server.before = ("nsenter", "-t", str(holder.pid), "-m")

        def run(*words, status=0):
            done = subprocess.run([*server.before, *words], env=server.env, timeout=PATIENCE,
                                  capture_output=True, text=True, check=False)
            assert done.returncode == status, done
            return done.stdout

        try:
            yield server.start(), run, home
        finally:
            if server.process.poll() is None:
                server.stop()
            holder.kill()


def fill(run, home):
    run("sh", "-c", f"cat /dev/zero > {home}/fill", status=1)


@pytest.mark.parametrize("stop", [Server.stop, Server.kill])
def test_a_server_starts_on_a_full_disk(small, stop):
    """R4: it serves what the store has, refuses creates with 507, and writes again as soon as
    there is room."""
    server, run, home = small
    _, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 300})
    stop(server)
    fill(run, home)
    server.start()
    assert "full" in server.log.read_text()
    assert [one["sandboxID"] for one in server.api("GET", "/sandboxes")[1]] == [made["sandboxID"]]
    status, reply = server.api("POST", "/sandboxes", {"templateID": "base"})
    assert (status, "full" in reply["message"]) == (507, True)
    assert server.api("DELETE", f"/sandboxes/{made['sandboxID']}")[0] == 204
    assert server.api("GET", "/sandboxes") == (200, [])
    run("rm", f"{home}/fill")
    status, made = wait_until(
        lambda: (reply := server.api("POST", "/sandboxes", {"templateID": "base"}))[0] == 201
        and reply, "creating a sandbox fails though there is room")
    assert [one["sandboxID"] for one in server.api("GET", "/sandboxes")[1]] == [made["sandboxID"]]
    run(CAY, "key", "--store", f"{home}/serve.db", "ls")  # the store is open to others again
    assert server.api("DELETE", f"/sandboxes/{made['sandboxID']}")[0] == 204


def test_a_server_outlives_a_store_that_cannot_be_opened_again(small):
    """M3: on a full disk the server closes its store and opens it again every second."""
    server, run, home = small
    _, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 300})
    server.stop()
    fill(run, home)
    server.start()
    broker, path = server.broker, f"/sandboxes/{made['sandboxID']}"
    assert server.api("GET", path)[0] == 200
    run("mv", f"{home}/serve.db", f"{home}/away.db")
    wait_until(lambda: server.api("GET", path)[0] == 503, "the store is still open")
    assert server.api("POST", "/sandboxes", {"templateID": "base"})[0] == 503
    assert server.api("GET", "/sandboxes")[0] == 503
    run("mv", f"{home}/away.db", f"{home}/serve.db")
    wait_until(lambda: server.api("GET", path)[0] == 200, "the store is not opened again")
    run("rm", f"{home}/fill")
    wait_until(lambda: server.api("DELETE", path)[0] == 204, "the sandbox cannot be killed")
    assert server.process.poll() is None and server.broker == broker


def test_a_disk_that_fills_up_under_the_server_is_507(small):
    """R4: not 500; the sandbox that has no row does not stay."""
    server, run, home = small
    fill(run, home)
    status, reply = server.api("POST", "/sandboxes", {"templateID": "base"})
    assert (status, "full" in reply["message"]) == (507, True)
    assert server.api("GET", "/sandboxes") == (200, [])


# --- Damaged and lost -------------------------------------------------------------------------


def damage_head(path):
    with path.open("r+b") as file:
        file.write(b"no database any more")


def damage_middle(path):
    """Every page but the first: what the file is can still be read."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))


def cut_short(path):
    os.truncate(path, 5000)


def create(server, **more):
    status, body = server.api("POST", "/sandboxes",
                              {"templateID": "base", "timeout": 300, **more})
    assert status == 201, body
    return body["sandboxID"]


def known(server):
    """What the API tells of the sandboxes, but for the time."""
    return {one["sandboxID"]: (one["metadata"], one["startedAt"][:18], one["state"])
            for one in server.api("GET", "/v2/sandboxes")[1]}


def store_of(server):
    return server.home / "serve.db"


def drop_store(server):
    for path in server.home.glob("serve.db*"):
        if path.is_file():
            path.unlink()


@pytest.mark.parametrize("damage", [damage_head, damage_middle, cut_short])
def test_a_damaged_store_is_refused_and_can_be_rebuilt(own_server, damage):
    """R6: the refusal names the two options; the rows come from what the sandboxes carry."""
    from e2b import Sandbox

    server = own_server()
    sandbox = Sandbox.create(metadata={"a": "b=c", "": "e\nf"}, timeout=300)
    paused = create(server, autoPause=True)
    assert server.api("POST", f"/sandboxes/{paused}/pause")[0] == 204
    before = known(server)
    server.stop()
    damage(store_of(server))
    for words in ["serve", "--listen", "127.0.0.1:0"], ["serve", "--check-store"]:
        done = server.cay(*words)
        assert done.returncode != 0 and "--check-store" in done.stderr, done
        assert "--rebuild-store" in done.stderr
    done = server.cay("serve", "--rebuild-store")
    assert done.returncode == 0, done
    assert "rows created: 2" in done.stdout
    assert len(list(server.home.glob("serve.db.damaged-*"))) >= 1
    server.start()
    assert known(server) == before
    assert sandbox.commands.run("echo alive").stdout == "alive\n"
    left = (sandbox.get_info().end_at - sandbox.get_info().started_at).total_seconds()
    assert 200 < left <= 301
    assert server.cay("serve", "--check-store").returncode == 0
    assert Sandbox.connect(paused).commands.run("echo awake").stdout == "awake\n"


@pytest.mark.parametrize("lose", [drop_store, lambda server: os.truncate(store_of(server), 0)])
def test_a_lost_store_is_noticed_and_can_be_rebuilt(own_server, lose):
    """R6: a start warns and names the option; nothing runs unknown for longer than it must."""
    server = own_server()
    made = create(server, metadata={"who": "found"})
    before = known(server)
    server.stop()
    lose(server)
    server.start()
    assert known(server) == {}
    assert "1 running sandboxes" in server.log.read_text()
    assert "--rebuild-store" in server.log.read_text()
    done = server.cay("serve", "--check-store")
    assert done.returncode != 0 and f"sandbox {made}: " in done.stdout, done
    done = server.cay("serve", "--rebuild-store")
    assert done.returncode != 0 and "is using this store" in done.stderr, done
    server.stop()
    done = server.cay("serve", "--rebuild-store")
    assert done.returncode == 0 and "rows created: 1" in done.stdout, done
    server.start()
    assert known(server) == before


def change(server, text):
    with contextlib.closing(sqlite3.connect(store_of(server))) as store, store:
        store.execute(text)


def test_a_start_adopts_or_ends_what_is_of_its_store_only(own_server):
    """R1, R6: a sandbox without a row gets it again, one whose row says that it is gone ends;
    those of other stores and of `cay create` stay."""
    other, server = own_server(), own_server()
    foreign, adopted, ended = create(other), create(server), create(server)
    plain = server.cay("create", "--ttl", "300").stdout.strip()
    try:
        before = known(server)
        server.stop()
        change(server, f"DELETE FROM sandboxes WHERE id = '{adopted}'")
        change(server, f"UPDATE sandboxes SET state = 3 WHERE id = '{ended}'")
        server.start()
        assert set(known(server)) == {adopted} and known(server)[adopted] == before[adopted]
        wait_until(lambda: traces(ended) == [], "a sandbox runs that the API does not show")
        assert set(known(other)) == {foreign}
        assert server.cay("inspect", plain).returncode == 0
        assert other.api("POST", f"/sandboxes/{foreign}/timeout", {"timeout": 60})[0] == 204
    finally:
        server.cay("rm", plain)


def test_check_store_reports_rows_and_sandboxes_that_do_not_match(own_server):
    """R6: and its status says whether there is something."""
    server = own_server()
    unknown = create(server)
    done = server.cay("serve", "--check-store")
    assert (done.returncode, done.stdout) == (0, "the store is consistent (version 1)\n"), done
    server.stop()
    change(server, f"UPDATE sandboxes SET id = 'nosuchsandbox' WHERE id = '{unknown}'")
    done = server.cay("serve", "--check-store")
    assert done.returncode != 0
    assert "row nosuchsandbox: no sandbox is running\n" in done.stdout
    assert f"sandbox {unknown}: running for tenant default, without a row\n" in done.stdout
    server.start()
    assert set(known(server)) == {unknown}


def test_what_a_sandbox_carries_has_no_secret(own_server):
    """R6: nothing that opens anything: no key, no token, no environment."""
    server = own_server()
    body = {"templateID": "base", "timeout": 60, "metadata": {"who": "me"},
            "envVars": {"PASSWORD": "hunter2"}}
    status, made = server.api("POST", "/sandboxes", body)
    assert status == 201
    note = (runtime() / f"sb-{made['sandboxID']}.note").read_bytes()
    assert b"me\0" in note and b"default\0" in note
    for secret in ("hunter2", server.key, made["envdAccessToken"]):
        assert secret.encode() not in note
    assert (runtime() / f"sb-{made['sandboxID']}.note").stat().st_mode & 0o777 == 0o600
