# SPDX-License-Identifier: Apache-2.0
"""Snapshots of E2B's API, with the real SDK."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from e2b import Sandbox
from e2b.exceptions import SandboxException, SandboxNotFoundException
from serving import PATIENCE, wait_until


@pytest.fixture(name="tenant")
def fixture_tenant(server):
    """Arguments for the SDK; all snapshots of the tenant are removed."""
    options = server.options_of("snapshots")
    yield options
    for found in listed(options):
        assert Sandbox.delete_snapshot(found.snapshot_id, **options)


@pytest.fixture(name="make")
def fixture_make(tenant):
    """Sandboxes of the tenant, killed at the end of the test."""
    made = []

    def make(*arguments, **options):
        made.append(Sandbox.create(*arguments, **{**tenant, **options}))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.kill(request_timeout=PATIENCE)


def listed(options, **query):
    """All pages of the list."""
    pages, found = Sandbox.list_snapshots(**query, **options), []
    while pages.has_next:
        found += pages.next_items()
    return found


def post(server, tenant, sandbox, body=None):
    return server.api("POST", f"/sandboxes/{sandbox.sandbox_id}/snapshots", body,
                      X_API_KEY=tenant["api_key"])


def test_sandboxes_of_a_snapshot_have_its_files_and_are_isolated(tenant, make):
    sandbox = make(envs={"A": "1"}, metadata={"a": "b"})
    sandbox.files.write("dir/file", "kept")
    end = sandbox.get_info().end_at
    snapshot = sandbox.create_snapshot()
    assert sandbox.is_running() and sandbox.get_info().end_at == end
    sandbox.files.write("dir/file", "later")
    one, two = make(snapshot.snapshot_id, envs={"B": "2"}), make(snapshot.snapshot_id, timeout=77)
    assert one.files.read("dir/file") == two.files.read("dir/file") == "kept"
    one.files.write("dir/file", "changed")
    assert two.files.read("dir/file") == "kept" and sandbox.files.read("dir/file") == "later"
    assert one.commands.run("echo $A:$B").stdout == ":2\n" and one.get_info().metadata == {}
    info = two.get_info()
    assert (info.end_at - info.started_at).total_seconds() == pytest.approx(77, abs=1)
    sandbox.kill()
    assert make(snapshot.snapshot_id).files.read("dir/file") == "kept"


def test_a_snapshot_without_a_name_has_the_id_of_its_template(server, tenant, make):
    sandbox = make()
    status, made = post(server, tenant, sandbox)
    assert status == 201 and made["names"] == []
    name, tag = made["snapshotID"].split(":")
    assert tag == "default" and name.isalnum()
    copy = make(made["snapshotID"])
    assert copy.get_info().template_id == name
    assert copy.commands.run("echo $E2B_TEMPLATE_ID").stdout == f"{name}\n"


def test_a_snapshot_with_a_name(server, tenant, make):
    sandbox = make()
    sandbox.files.write("file", "one")
    _, made = post(server, tenant, sandbox, {"name": "My-Snap_1"})
    assert made == {"snapshotID": "snapshots/my-snap_1:default", "names": ["snapshots/my-snap_1:default"]}
    _, tagged = post(server, tenant, sandbox, {"name": "snapshots/my-snap_1:v1.0"})
    assert tagged["snapshotID"] == "snapshots/my-snap_1:v1.0"
    for name in ("my-snap_1", "my-snap_1:default", "snapshots/my-snap_1", "snapshots/my-snap_1:v1.0"):
        assert make(name).files.read("file") == "one"


def test_a_name_that_is_used_again_names_the_new_files(server, tenant, make):
    sandbox = make()
    sandbox.files.write("file", "one")
    first = sandbox.create_snapshot(name="again")
    copy = make("again")
    sandbox.files.write("file", "two")
    assert sandbox.create_snapshot(name="again").snapshot_id == first.snapshot_id
    assert make("again").files.read("file") == "two" and copy.files.read("file") == "one"
    assert [one.snapshot_id for one in listed(tenant)] == [first.snapshot_id]


def test_the_list_is_filtered(tenant, make):
    one, two = make(), make()
    first = one.create_snapshot(name="first")
    second = two.create_snapshot()
    third = two.create_snapshot(name="first:v2")
    ids = [third.snapshot_id, second.snapshot_id, first.snapshot_id]
    assert [found.snapshot_id for found in listed(tenant)] == ids
    assert [found.snapshot_id for found in listed(tenant, sandbox_id=two.sandbox_id)] == ids[:2]
    pages = two.list_snapshots()
    assert [found.snapshot_id for found in pages.next_items()] == ids[:2]
    assert any("first" in name for name in first.names)
    for name, wanted in [("first", [ids[0], ids[2]]), ("snapshots/first", [ids[0], ids[2]]), ("first:v2", ids[:1]),
                         ("first:default", ids[2:]), (second.snapshot_id, ids[1:2]),
                         (second.snapshot_id.partition(":")[0], ids[1:2]), ("no-such", []),
                         ("others/first", []), ("first:no-such", []), ("!", [])]:
        assert [found.snapshot_id for found in listed(tenant, name=name)] == wanted, name


def test_the_list_has_pages(server, tenant, make):
    sandbox = make()
    ids = [sandbox.create_snapshot().snapshot_id for _ in range(5)]
    assert [one.snapshot_id for one in listed(tenant, limit=2)] == ids[::-1]
    for query in ("limit=0", "limit=101", "limit=x", "nextToken=x"):
        assert server.api("GET", f"/snapshots?{query}")[0] == 400


def test_a_snapshot_is_removed_once(server, tenant, make):
    before = server.cay("snapshot", "ls").stdout.count("e2b.")
    snapshot = make().create_snapshot(name="gone")
    assert server.cay("snapshot", "ls").stdout.count("e2b.") == before + 1
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **tenant)
    assert not Sandbox.delete_snapshot(snapshot.snapshot_id, **tenant)
    status, reply = server.api("DELETE", "/templates/snapshots%2Fgone%3Adefault",
                               X_API_KEY=tenant["api_key"])
    assert (status, reply["code"]) == (404, 404)
    assert listed(tenant) == []
    with pytest.raises(SandboxException, match="404"):
        make(snapshot.snapshot_id)
    assert server.cay("snapshot", "ls").stdout.count("e2b.") == before


def test_snapshots_are_removed_at_the_same_time(tenant, make):
    sandbox = make()
    made = [sandbox.create_snapshot(name=f"one-{i}").snapshot_id for i in range(6)]
    with ThreadPoolExecutor(len(made)) as threads:
        removed = threads.map(lambda one: Sandbox.delete_snapshot(one, **tenant), made)
        assert list(removed) == [True] * len(made)
    assert listed(tenant) == []


def test_a_snapshot_that_a_sandbox_uses_is_not_removed(tenant, make):
    snapshot = make().create_snapshot()
    copy = make(snapshot.snapshot_id)
    with pytest.raises(SandboxException, match="400"):
        Sandbox.delete_snapshot(snapshot.snapshot_id, **tenant)
    copy.pause()
    with pytest.raises(SandboxException, match="400"):
        Sandbox.delete_snapshot(snapshot.snapshot_id, **tenant)
    assert [one.snapshot_id for one in listed(tenant)] == [snapshot.snapshot_id]
    copy.kill()


@pytest.mark.parametrize("name", ["", "a b", "others/a", "a/b/c", "a:", ":a", "a:b:c", "a.b", "ä", "x" * 129, 1])
def test_an_invalid_name_is_refused(server, tenant, make, name):
    status, reply = post(server, tenant, make(), {"name": name})
    assert (status, reply["code"]) == (400, 400)
    assert listed(tenant) == []


def test_a_paused_or_ended_sandbox_has_no_snapshot(server, tenant, make):
    sandbox = make()
    sandbox.pause()
    for _ in range(2):
        status, reply = post(server, tenant, sandbox)
        assert (status, reply["code"]) == (404, 404)
        sandbox.kill()
    with pytest.raises(SandboxNotFoundException):
        sandbox.create_snapshot()


def test_another_tenant_does_not_find_a_snapshot(server, tenant, make):
    sandbox = make()
    other = server.options_of("others")
    named, plain = sandbox.create_snapshot(name="mine"), sandbox.create_snapshot()
    with pytest.raises(SandboxNotFoundException):
        Sandbox.create_snapshot(sandbox.sandbox_id, **other)
    assert listed(other) == [] and listed(other, name="mine") == []
    source = json.loads(server.cay("snapshot", "ls", "-o", "json").stdout)
    names = [one["name"] for one in (source["snapshots"] if isinstance(source, dict) else source)]
    assert names
    for snapshot in (named.snapshot_id, plain.snapshot_id, "mine", *names):
        assert not Sandbox.delete_snapshot(snapshot, **other)
        with pytest.raises(SandboxException, match="404"):
            Sandbox.create(snapshot, **other)
    assert len(listed(tenant)) == 2


def test_snapshots_that_were_acknowledged_survive_the_server(own_server):
    server = own_server()
    sandbox = Sandbox.create()
    sandbox.files.write("file", "kept")
    snapshot = sandbox.create_snapshot(name="kept")
    server.restart()
    with Sandbox.create("kept") as copy:
        assert copy.files.read("file") == "kept"
    sandbox.kill()
    assert Sandbox.delete_snapshot(snapshot.snapshot_id)
    server.restart()
    assert listed({}) == []


def test_a_row_without_files_is_removed_at_a_start(own_server):
    server = own_server()
    with Sandbox.create() as sandbox:
        sandbox.create_snapshot(name="lost")
    [source] = [word for word in server.cay("snapshot", "ls").stdout.split() if word.startswith("e2b.")]
    assert server.cay("snapshot", "rm", source).returncode == 0
    server.restart()
    wait_until(lambda: listed({}) == [], "the row stays")


def test_a_tenant_has_a_limit_of_snapshots(own_server):
    server = own_server()
    with Sandbox.create() as sandbox:
        path = f"/sandboxes/{sandbox.sandbox_id}/snapshots"
        sandbox.create_snapshot(name="first")
        with closing(sqlite3.connect(server.home / "serve.db")) as store, store:
            store.executemany("INSERT INTO snapshots SELECT ?1, tenant, ?1, tag, sandbox, created_ms "
                              "FROM snapshots WHERE name = 'first'", [(f"made{i}",) for i in range(999)])
        status, reply = server.api("POST", path, {"name": "more"})
        assert status == 429 and "too many snapshots" in reply["message"]
        assert server.api("POST", path, {})[0] == 429
        assert server.api("POST", path, {"name": "first"})[0] == 201
        assert Sandbox.delete_snapshot("first")
        assert server.api("POST", path, {"name": "more"})[0] == 201
