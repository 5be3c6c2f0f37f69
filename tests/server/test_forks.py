# SPDX-License-Identifier: Apache-2.0
"""POST /sandboxes/{id}/fork, with the real SDK."""

import os
import signal
import sqlite3
import threading
from contextlib import closing, suppress

import pytest
from e2b import Sandbox, Volume
from e2b.exceptions import SandboxException, SandboxNotFoundException
from serving import PATIENCE, wait_until


@pytest.fixture(name="fork")
def fixture_fork(server):
    """Forks a sandbox; all forks are killed at the end of the test."""
    made = []

    def fork(sandbox, **options):
        forks = sandbox.fork(**options)
        made.extend(one for one in forks if not isinstance(one, Exception))
        return forks

    yield fork
    for one in made:
        one.kill(request_timeout=PATIENCE)


def test_a_fork_has_the_files_and_a_life_of_its_own(sandbox, fork):
    sandbox.files.write("file", "first")
    [one] = fork(sandbox)
    assert one.sandbox_id != sandbox.sandbox_id
    assert sandbox.is_running() and one.is_running()
    assert one.files.read("file") == "first"
    one.files.write("file", "changed")
    sandbox.files.write("later", "x")
    assert sandbox.files.read("file") == "first" and not one.files.exists("later")
    assert one.commands.run("cat /run/e2b/.E2B_SANDBOX_ID; echo -n :$E2B_SANDBOX_ID").stdout == (
        f"{one.sandbox_id}:{one.sandbox_id}")
    sandbox.kill()
    assert one.files.read("file") == "changed"


def test_a_fork_has_a_token_of_its_own(server, sandbox):
    status, [entry] = server.api("POST", f"/sandboxes/{sandbox.sandbox_id}/fork")
    assert status == 201 and list(entry) == ["sandbox"]
    made = entry["sandbox"]
    try:
        own = {"E2b_Sandbox_Id": made["sandboxID"], "E2b_Sandbox_Port": "49983"}
        theirs = {**own, "E2b_Sandbox_Id": sandbox.sandbox_id}
        token = made["envdAccessToken"]
        assert server.api("GET", "/envs", X_Access_Token=token, **own)[0] == 200
        assert server.api("GET", "/envs", X_Access_Token=token, **theirs)[0] == 401
    finally:
        assert server.api("DELETE", f"/sandboxes/{made['sandboxID']}")[0] == 204


def test_several_forks_are_created_at_once(sandbox, fork):
    sandbox.files.write("file", "x")
    forks = fork(sandbox, count=3)
    assert len({one.sandbox_id for one in forks}) == 3
    assert [one.files.read("file") for one in forks] == ["x"] * 3
    assert all(one.is_running() for one in forks)


def test_a_fork_by_id(sandbox):
    [one] = Sandbox.fork(sandbox.sandbox_id, timeout=100)
    try:
        info = one.get_info()
        assert 90 < (info.end_at - info.started_at).total_seconds() <= 100
    finally:
        one.kill()


def test_a_fork_inherits_metadata_environment_and_lifecycle(create, fork):
    sandbox = create(metadata={"who": "me"}, envs={"A": "b\nc", "SECRET": "x" * 1000}, timeout=3600,
                     lifecycle={"on_timeout": "pause", "auto_resume": True})
    [one] = fork(sandbox)
    [two] = fork(one)
    for copy in (one, two):
        info = copy.get_info()
        assert info.metadata == {"who": "me"} and info.template_id == sandbox.get_info().template_id
        assert info.lifecycle == sandbox.get_info().lifecycle
        assert copy.commands.run('printf "$A ${#SECRET}"').stdout == "b\nc 1000"


def test_the_time_of_a_fork_is_fifteen_seconds_unless_given(server, sandbox):
    _, [entry] = server.api("POST", f"/sandboxes/{sandbox.sandbox_id}/fork", {})
    one = entry["sandbox"]["sandboxID"]
    _, info = server.api("GET", f"/sandboxes/{one}")
    assert server.api("DELETE", f"/sandboxes/{one}")[0] == 204
    start, end = (float(info[key][17:23]) for key in ("startedAt", "endAt"))
    assert (end - start) % 60 == pytest.approx(15, abs=0.1)


def test_an_environment_is_sealed_in_the_store_and_removed_with_its_sandbox(server, create):
    sandbox = create(envs={"SECRET": "hunter2-in-the-store"})
    store = (server.home / "serve.db").read_bytes() + (server.home / "serve.db-wal").read_bytes()
    assert b"hunter2" not in store
    with closing(sqlite3.connect(server.home / "serve.db")) as db:
        query = ("SELECT count(*) FROM environments WHERE id = ?", (sandbox.sandbox_id,))
        assert db.execute(*query).fetchone() == (1,)
        sandbox.kill()
        assert db.execute(*query).fetchone() == (0,)


@pytest.mark.parametrize("body", [{"count": 0}, {"count": 101}, {"count": "x"}, {"timeout": -1},
                                  {"timeout": 10**9}, {"count": 1.5}])
def test_an_invalid_fork_is_refused(server, shared, body):
    before = len(server.api("GET", "/v2/sandboxes")[1])
    status, reply = server.api("POST", f"/sandboxes/{shared.sandbox_id}/fork", body)
    assert (status, reply["code"]) == (400, 400)
    assert len(server.api("GET", "/v2/sandboxes")[1]) == before


def test_a_sandbox_that_ended_or_never_was_cannot_be_forked(server, create):
    sandbox = create()
    sandbox.kill()
    with pytest.raises(SandboxNotFoundException):
        sandbox.fork()
    assert server.api("POST", "/sandboxes/neverwas/fork")[0] == 404


def test_a_paused_sandbox_cannot_be_forked(server, sandbox):
    sandbox.pause()
    with pytest.raises(SandboxException, match="409"):
        sandbox.fork()
    status, reply = server.api("POST", f"/sandboxes/{sandbox.sandbox_id}/fork")
    assert (status, reply["code"]) == (409, 409)


def test_another_tenant_cannot_fork_a_sandbox(server, sandbox):
    with pytest.raises(SandboxNotFoundException):
        Sandbox.fork(sandbox.sandbox_id, **server.options_of("others"))


def test_a_fork_that_fails_is_an_entry_and_not_an_error_of_the_call(own_server):
    server = own_server()
    sandbox = Sandbox.create()
    stop = threading.Event()

    def kill_new_keepers(known):
        while not stop.is_set():
            for pid in set(server.children()) - known:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def failed():
        forks = sandbox.fork(count=4)
        assert len(forks) == 4
        return [one for one in forks if isinstance(one, Exception)]

    killer = threading.Thread(target=kill_new_keepers, args=[set(server.children())])
    killer.start()
    try:
        forks = wait_until(failed, "all forks succeed")
    finally:
        stop.set()
        killer.join()
    assert all("creating the sandbox failed" in str(one) for one in forks)
    assert sandbox.is_running()


def test_forks_that_were_acknowledged_survive_the_server(own_server):
    server = own_server()
    sandbox = Sandbox.create(envs={"A": "1"})
    sandbox.files.write("file", "kept")
    forks = sandbox.fork(count=2)
    server.restart()
    for one in forks:
        again = Sandbox.connect(one.sandbox_id)
        assert again.files.read("file") == "kept"
        [copy] = again.fork()
        assert copy.commands.run("echo $A; cat file").stdout == "1\nkept"
        copy.kill()


def test_a_fork_has_the_volumes_of_its_sandbox(server):
    options = server.options_of("forks")
    volume = Volume.create("data", **options)
    with Sandbox.create(volume_mounts={"/mnt/data": volume}, **options) as sandbox:
        sandbox.files.write("/mnt/data/file", "shared")
        [fork] = sandbox.fork()
        with fork:
            assert fork.files.read("/mnt/data/file") == "shared"
            assert fork.get_info().volume_mounts == [{"name": "data", "path": "/mnt/data"}]
    assert Volume.destroy(volume.volume_id, **options)
