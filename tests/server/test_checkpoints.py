# SPDX-License-Identifier: Apache-2.0
"""Checkpoints over HTTP: Cay's own routes."""

import json
import subprocess
import urllib.request

import pytest
from e2b import Sandbox
from serving import CAY, PATIENCE


def call(server, sandbox, method, path, body=None, **headers):
    return server.api(method, f"/sandboxes/{sandbox.sandbox_id}/{path}", body, **headers)


@pytest.fixture(name="seal")
def fixture_seal(server, sandbox):
    """Writes a file, and creates a checkpoint."""
    def seal(path, content, **body):
        sandbox.files.write(path, content)
        status, made = call(server, sandbox, "POST", "checkpoints", body)
        assert status == 201, made
        return made
    return seal


def test_a_checkpoint_is_created_listed_and_restored(server, sandbox, seal):
    first = seal("file", "one", name="first")
    assert (first["id"], first["parent"], first["name"], first["cause"], first["current"]) == (
        1, None, "first", "checkpoint", True)
    second = seal("file", "two")
    assert (second["parent"], second["name"]) == (1, None)
    sandbox.files.write("file", "three")
    status, reply = call(server, sandbox, "POST", "rollback", {"checkpoint": "first"})
    assert status == 200 and reply["undone"]["cause"] == "rollback"
    assert sandbox.files.read("file") == "one"
    assert call(server, sandbox, "POST", "rollback", {"checkpoint": second["id"]}) == (200, {"undone": None})
    assert sandbox.files.read("file") == "two"
    assert call(server, sandbox, "POST", "rollback", {"checkpoint": reply["undone"]["id"]})[0] == 200
    assert sandbox.files.read("file") == "three"


def test_the_list_is_a_tree(server, sandbox, seal):
    assert call(server, sandbox, "GET", "checkpoints") == (200, [])
    seal("file", "one")
    seal("file", "two")
    assert call(server, sandbox, "POST", "rollback", {"checkpoint": 1})[0] == 200
    other = seal("file", "other")["id"]
    status, found = call(server, sandbox, "GET", "checkpoints")
    assert status == 200
    assert [(one["id"], one["parent"], one["current"]) for one in found] == [
        (1, None, False), (2, 1, False), (other, 1, True)]
    assert all(one["files"] >= 1 and one["bytes"] >= 1 and one["createdAt"][-1] == "Z"
               for one in found)


def test_a_rollback_ends_processes_and_commands_work_afterwards(server, sandbox, seal):
    seal("file", "one")
    sandbox.commands.run("sleep 3600", background=True)
    assert call(server, sandbox, "POST", "rollback", {"checkpoint": 1})[0] == 200
    assert sandbox.commands.list() == []
    assert sandbox.commands.run("cat file").stdout == "one"


def test_a_checkpoint_that_stops_kills_the_processes(server, sandbox, seal):
    sandbox.commands.run("sleep 3600", background=True)
    seal("file", "one", stop=True)
    assert sandbox.commands.list() == []


def test_a_checkpoint_of_unchanged_files_is_the_last_one(seal, server, sandbox):
    """Also right after an upload, whose file the keeper closes when it hears of its end."""
    for content in range(30):
        made = seal("file", str(content))
        assert call(server, sandbox, "POST", "checkpoints")[1]["id"] == made["id"]


# --- Differences ----------------------------------------------------------------------


@pytest.fixture(scope="module", name="changed")
def fixture_changed(server, tmp_path_factory):
    """A sandbox of a template of its own, with two checkpoints."""
    root = tmp_path_factory.mktemp("root")
    for name in ("bin", "etc", "home/user"):
        (root / name).mkdir(parents=True)
    (root / "etc" / "old").write_text("of the template\n")
    made = subprocess.run([CAY, "template", "create", "tiny", "--from-dir", str(root)], env=server.env,
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert made.returncode == 0, made.stderr
    sandbox = Sandbox.create("tiny", timeout=3600, **server.options_of("default"))
    sandbox.files.write("/home/user/text", "one\ntwo\n")
    assert call(server, sandbox, "POST", "checkpoints", {"name": "first"})[0] == 201
    sandbox.files.write("/home/user/text", "one\n2\n")
    sandbox.files.remove("/etc/old")
    assert call(server, sandbox, "POST", "checkpoints")[0] == 201
    sandbox.files.write("/home/user/new", "n\n")
    yield sandbox
    sandbox.kill()
    assert server.cay("template", "rm", "tiny").returncode == 0


def read(server, sandbox, query):
    request = urllib.request.Request(f"{server.url}/sandboxes/{sandbox.sandbox_id}/diff?{query}",
                                     headers={"X-API-KEY": server.key})
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def test_the_differences_of_two_checkpoints(server, changed):
    kind, text = read(server, changed, "from=first&to=2&format=names")
    assert kind.startswith("text/plain")
    assert sorted(text.splitlines()) == ["D\tetc/old", "M\thome/user/text"]
    kind, text = read(server, changed, "from=1&to=2&format=unified")
    assert kind.startswith("text/x-diff") and "-two\n+2\n" in text
    _, text = read(server, changed, "from=1&to=2&format=stat")
    assert "2 files changed" in text
    kind, text = read(server, changed, "from=1&to=2")
    assert kind == "application/json"
    assert {one["path"]: one["change"] for one in json.loads(text)["changes"]} == {
        "etc/old": "deleted", "home/user/text": "modified"}


def test_the_differences_to_now(server, changed):
    assert read(server, changed, "from=2&format=names")[1] == "A\thome/user/new\n"
    assert read(server, changed, "from=2&to=2&format=names")[1] == ""


@pytest.mark.parametrize("query, status", [
    ("", 400), ("from=", 400), ("from=1&format=xml", 400), ("from=9", 404), ("from=1&to=no-such", 404)])
def test_an_invalid_difference_is_refused(server, changed, query, status):
    found, reply = call(server, changed, "GET", f"diff?{query}")
    assert (found, reply["code"]) == (status, status)


def test_a_large_difference_is_read_whole(server, changed):
    text = "".join(f"line {number}\n" for number in range(60000))
    changed.files.write("/home/user/large", text)
    try:
        found = read(server, changed, "from=2&format=unified")[1]
        assert sum(line.startswith("+line ") for line in found.splitlines()) == 60000
    finally:
        changed.files.remove("/home/user/large")


# --- Refusals -------------------------------------------------------------------------


@pytest.mark.parametrize("path, body, status", [
    ("checkpoints", {"name": 1}, 400), ("checkpoints", {"name": "a/b"}, 400), ("checkpoints", {"stop": "x"}, 400),
    ("rollback", {}, 400), ("rollback", None, 400), ("rollback", {"checkpoint": ""}, 400),
    ("rollback", {"checkpoint": [1]}, 400), ("rollback", {"checkpoint": 7}, 404),
    ("rollback", {"checkpoint": "no-such"}, 404)])
def test_an_invalid_request_is_refused(server, shared, path, body, status):
    found, reply = call(server, shared, "POST", path, body)
    assert (found, reply["code"]) == (status, status)


ROUTES = [("POST", "checkpoints", {}), ("GET", "checkpoints", None),
          ("POST", "rollback", {"checkpoint": 1}), ("GET", "diff?from=1", None)]


@pytest.mark.parametrize("method, path, body", ROUTES)
def test_another_tenant_does_not_find_the_sandbox(server, sandbox, seal, method, path, body):
    seal("file", "one")
    key = server.options_of("others")["api_key"]
    status, reply = call(server, sandbox, method, path, body, X_API_KEY=key)
    assert (status, reply["code"]) == (404, 404)
    assert call(server, sandbox, method, path, body, X_API_KEY="e2b_00")[0] == 401
    assert sandbox.files.read("file") == "one"


@pytest.mark.parametrize("method, path, body", ROUTES)
def test_an_ended_or_paused_sandbox_has_no_checkpoints(server, sandbox, method, path, body):
    sandbox.pause()
    assert call(server, sandbox, method, path, body)[0] == 409
    sandbox.kill()
    assert call(server, sandbox, method, path, body)[0] == 404


def test_checkpoints_that_were_acknowledged_survive_the_server(own_server):
    server = own_server()
    sandbox = Sandbox.create()
    sandbox.files.write("file", "one")
    assert call(server, sandbox, "POST", "checkpoints", {"name": "first"})[0] == 201
    sandbox.files.write("file", "two")
    server.restart()
    assert [one["name"] for one in call(server, sandbox, "GET", "checkpoints")[1]] == ["first"]
    assert call(server, sandbox, "POST", "rollback", {"checkpoint": "first"})[0] == 200
    server.restart()
    assert sandbox.files.read("file") == "one"
