# SPDX-License-Identifier: Apache-2.0
"""Snapshots that reach every server through a directory or an S3 store: --shared."""

import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from cluster import Node
from e2b import Sandbox
from s3 import KEY, S3, SECRET, TOKEN
from serving import CAY, PATIENCE, unavailable, wait_until

TENANTS = ("alice", "bob")


class Directory:
    """What the servers share, as files."""

    def __init__(self, path):
        self.path, self.env = path, {}
        path.mkdir(mode=0o700)
        self.options = ["--shared", str(path)]

    def file(self, folder, name, tenant="alice"):
        return self.path / f"tenant-{tenant}" / folder / name

    def names(self, folder, tenant="alice"):
        return sorted(os.listdir(self.file(folder, "", tenant)))

    def read(self, folder, name):
        return self.file(folder, name).read_bytes()

    def write(self, folder, name, data):
        self.file(folder, name).write_bytes(data)

    @contextmanager
    def away(self):
        """A mount point without its mount."""
        elsewhere = self.path.with_name("away")
        self.path.rename(elsewhere)
        self.path.mkdir(mode=0o700)
        try:
            yield
            assert os.listdir(self.path) == []
        finally:
            self.path.rmdir()
            elsewhere.rename(self.path)

    def clean(self):
        pass


class Bucket:
    """The same as objects of a store, with the credentials in the environment."""

    def __init__(self):
        self.s3 = S3(token=TOKEN)
        self.options = self.s3.options()
        self.env = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}

    @staticmethod
    def key(folder, name, tenant="alice"):
        return f"some/prefix/tenant-{tenant}/{folder}/{name}"

    def names(self, folder, tenant="alice"):
        start = self.key(folder, "", tenant)
        return sorted(name[len(start):] for name in list(self.s3.objects) if name.startswith(start))

    def read(self, folder, name):
        return self.s3.objects[self.key(folder, name)][0]

    def write(self, folder, name, data):
        self.s3.objects[self.key(folder, name)] = (data, time.time())

    @contextmanager
    def away(self):
        """Another bucket, which is empty."""
        objects, self.s3.objects = self.s3.objects, {}
        try:
            yield
            assert self.s3.objects == {}
        finally:
            self.s3.objects = objects

    def clean(self):
        self.s3.stop()


def start(home, name, shared, *options):
    node = Node(home / name, name, "--reserve", "0", *shared.options, *options)
    node.shared = shared
    node.env.update(shared.env)
    node.start()
    for tenant in TENANTS:
        node.options_of(tenant)
    return node


@pytest.fixture(scope="module", name="nodes", params=["directory", "s3"])
def fixture_nodes(request, tmp_path_factory):
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    home = tmp_path_factory.mktemp("shared")
    shared = Directory(home / "all") if request.param == "directory" else Bucket()
    started = [start(home, name, shared) for name in ("naaa", "naab")]
    yield started
    for one in started:
        one.clean()
    shared.clean()


@pytest.fixture(autouse=True)
def fixture_no_snapshots(request):
    yield
    if "nodes" in request.fixturenames:
        for tenant in TENANTS:
            for node in request.getfixturevalue("nodes"):
                for snapshot in listed(node, tenant):
                    assert remove(node, snapshot, tenant) == 204


def call(node, method, path, body=None, tenant="alice"):
    return node.api(method, path, body, X_API_KEY=node.options_of(tenant)["api_key"])


def make(node, template, tenant="alice"):
    return Sandbox.create(template, **node.options_of(tenant))


def snapshot_of(node, text, name=None, tenant="alice"):
    """A snapshot of a new sandbox, which is gone afterwards."""
    sandbox = make(node, "base", tenant)
    sandbox.files.write("file", text)
    status, made = call(node, "POST", f"/sandboxes/{sandbox.sandbox_id}/snapshots",
                        {"name": name} if name else {}, tenant)
    sandbox.kill()
    assert status == 201, made
    return made["snapshotID"]


def read(node, template, tenant="alice"):
    sandbox = make(node, template, tenant)
    try:
        return sandbox.files.read("file")
    finally:
        sandbox.kill()


def listed(node, tenant="alice"):
    status, rows = call(node, "GET", "/snapshots?limit=100", tenant=tenant)
    assert status == 200, rows
    return [row["snapshotID"] for row in rows]


def remove(node, snapshot, tenant="alice"):
    """The status; a sandbox that was just killed may use it for a moment."""
    replies = []

    def asked():
        replies.append(call(node, "DELETE", f"/templates/{snapshot.replace('/', '%2F')}",
                            tenant=tenant))
        return "sandbox uses" not in str(replies[-1][1])

    wait_until(asked, lambda: replies[-1])
    return replies[-1][0]


def metric(node, name):
    with node.get("/metrics") as reply:
        return int(re.search(rf"^{name} (\d+)$", reply.read().decode(), re.M)[1])


def stored(node):
    """The snapshots whose files it has."""
    folder = node.home / "templates"
    return [path.name for path in folder.glob("e2b.*")] if folder.exists() else []


def files(node, tenant="alice", folder="files"):
    return node.shared.names(folder, tenant)


def test_a_snapshot_is_there_on_every_node(nodes):
    one, two = nodes
    snapshot = snapshot_of(one, "from one")
    assert snapshot in listed(two)
    assert read(two, snapshot) == "from one"
    again = make(two, snapshot)
    again.files.write("file", "from two")
    _, other = call(two, "POST", f"/sandboxes/{again.sandbox_id}/snapshots", {})
    again.kill()
    assert read(one, other["snapshotID"]) == "from two"
    assert read(one, snapshot) == read(two, snapshot) == "from one"
    for each in (snapshot, other["snapshotID"]):
        assert remove(two, each) == 204
    for node in nodes:
        assert not {snapshot, other["snapshotID"]} & set(listed(node))


def test_many_creates_at_once_fetch_it_once(nodes):
    one, two = nodes
    snapshot = snapshot_of(one, "once")
    before = metric(two, "cay_shared_fetches_total")
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda _: read(two, snapshot), range(6))) == ["once"] * 6
    assert metric(two, "cay_shared_fetches_total") == before + 1
    assert remove(one, snapshot) == 204


def test_a_name_means_the_newest_on_every_node(nodes):
    one, two = nodes
    assert snapshot_of(one, "first", "work") == "alice/work:default"
    assert read(two, "work") == "first"
    snapshot_of(two, "second", "work")
    assert read(one, "work") == read(two, "work") == "second"
    assert listed(one).count("alice/work:default") == 1
    wait_until(lambda: len(files(one)) == len(files(one, folder="records")) == 1,
               lambda: files(one))
    assert remove(one, "work") == 204
    assert call(two, "POST", "/sandboxes", {"templateID": "work"})[0] == 404


def test_what_is_removed_on_one_node_is_gone_on_all(nodes):
    one, two = nodes
    snapshot = snapshot_of(one, "gone")
    assert read(two, snapshot) == "gone"
    assert remove(one, snapshot) == 204
    assert files(one) == files(one, folder="records") == []
    assert call(two, "POST", "/sandboxes", {"templateID": snapshot})[0] == 404
    wait_until(lambda: not stored(two), lambda: stored(two))
    assert remove(two, snapshot) == 404


def test_a_snapshot_in_use_stays(nodes):
    one, two = nodes
    snapshot = snapshot_of(one, "used")
    sandbox = make(two, snapshot)
    status, reply = call(two, "DELETE", f"/templates/{snapshot}")
    assert (status, reply["message"]) == (400, "a sandbox uses the snapshot")
    assert read(one, snapshot) == "used"
    sandbox.kill()
    assert remove(two, snapshot) == 204


def test_other_tenants_do_not_see_it(nodes):
    one, two = nodes
    snapshot = snapshot_of(one, "of alice", "secret-work")
    for name in (snapshot, "secret-work", snapshot.split("/")[1]):
        assert call(two, "POST", "/sandboxes", {"templateID": name}, "bob")[0] in (400, 404)
        assert remove(two, name, "bob") in (400, 404)
    assert listed(two, "bob") == []
    other = snapshot_of(two, "of bob", "secret-work", "bob")
    assert other == "bob/secret-work:default"
    assert read(one, "secret-work", "bob") == "of bob" and read(two, "secret-work") == "of alice"
    assert remove(one, "secret-work", "bob") == remove(one, "secret-work") == 204


def test_a_damaged_archive_is_refused_and_the_next_try_may_succeed(nodes):
    one, two = nodes
    snapshot, shared = snapshot_of(one, "whole"), one.shared
    (name,) = files(one)
    whole, before = shared.read("files", name), stored(two)
    for damage in (whole[:-1], whole[:600] + bytes([whole[600] ^ 1]) + whole[601:], b"", whole + b"\0"):
        shared.write("files", name, damage)
        status, reply = call(two, "POST", "/sandboxes", {"templateID": snapshot})
        assert status == 503 and "digest" in reply["message"], reply
        assert stored(two) == before
    if isinstance(shared, Directory):
        path = shared.file("files", name)
        path.unlink()
        path.symlink_to("/etc/passwd")
        assert call(two, "POST", "/sandboxes", {"templateID": snapshot})[0] == 503
        path.unlink()
    shared.write("files", name, whole)
    assert read(two, snapshot) == "whole"
    assert remove(two, snapshot) == 204


@pytest.mark.parametrize("change", [
    lambda lines: lines[:-1], lambda lines: lines + ["more"], lambda lines: ["cay 2", *lines[1:]],
    lambda lines: [*lines[:1], "../name", *lines[2:]], lambda lines: [*lines[:2], "", *lines[3:]],
    lambda lines: [*lines[:3], "UPPER", *lines[4:]],
    lambda lines: [*lines[:4], "-1", *lines[5:]],
    lambda lines: [*lines[:5], "512", lines[6]], lambda lines: [*lines[:6], "0" * 63]])
@pytest.mark.parametrize("nodes", ["directory"], indirect=True)
def test_an_invalid_record_is_no_snapshot(nodes, change):
    one, two = nodes
    snapshot = snapshot_of(one, "x")
    (name,) = files(one, folder="records")
    record = one.shared.read("records", name)
    changed = change(record.decode().splitlines())
    one.shared.write("records", name, "".join(line + "\n" for line in changed).encode())
    assert listed(two) == []
    one.shared.write("records", name, record)
    assert listed(two) == [snapshot]
    assert remove(two, snapshot) == 204


def test_the_built_in_template_has_its_name_alone(nodes):
    sandbox = make(nodes[0], "base")
    status, reply = call(nodes[0], "POST", f"/sandboxes/{sandbox.sandbox_id}/snapshots",
                         {"name": "base"})
    sandbox.kill()
    assert (status, listed(nodes[1])) == (400, []), reply


def test_without_the_store_a_node_serves_what_it_has(nodes):
    one, two = nodes
    snapshot, other = snapshot_of(one, "here"), snapshot_of(two, "there")
    assert {snapshot, other} <= set(listed(one))
    with one.shared.away():
        assert read(one, snapshot) == "here"
        assert {snapshot, other} <= set(listed(one))
        for name in (other, "unknown"):
            assert call(one, "POST", "/sandboxes", {"templateID": name})[0] == 503
        sandbox = make(one, "base")
        status, reply = call(one, "POST", f"/sandboxes/{sandbox.sandbox_id}/snapshots", {})
        sandbox.kill()
        assert status == 503, reply
        assert remove(one, snapshot) == 503 and read(one, snapshot) == "here"
        assert metric(one, "cay_shared_failures_total") > 0
    assert read(one, other) == "there"
    assert remove(one, snapshot) == remove(one, other) == 204


def test_a_snapshot_that_was_acknowledged_survives_its_node(tmp_path):
    shared = Directory(tmp_path / "all")
    one = start(tmp_path, "naaa", shared)
    snapshot = snapshot_of(one, "outlives")
    one.kill()
    one.clean()
    shutil.rmtree(tmp_path / "naaa", ignore_errors=True)
    two = start(tmp_path, "naab", shared)
    try:
        assert read(two, snapshot) == "outlives"
        two.restart()
        assert read(two, snapshot) == "outlives"
    finally:
        two.clean()


def refusal(home, *options):
    done = subprocess.run([CAY, "serve", "--listen", "127.0.0.1:0", *options],
                          env={**os.environ, "CAY_HOME": str(home)}, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0
    return done.stderr


def test_a_directory_that_cannot_be_the_right_one_is_refused(tmp_path):
    shared = tmp_path / "all"
    shared.mkdir(mode=0o700)
    assert "--node" in refusal(tmp_path / "home", "--shared", str(shared))
    assert "No such file" in refusal(tmp_path / "home", "--node", "naaa", "--shared",
                                     str(tmp_path / "none"))
    shared.chmod(0o777)
    assert "0700" in refusal(tmp_path / "home", "--node", "naaa", "--shared", str(shared))
    shared.chmod(0o700)
    node = Node(tmp_path / "naaa", "naaa", "--reserve", "0", "--shared", str(shared)).start()
    try:
        node.stop()
        for name in ("empty", "other"):
            (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / "other" / "cay-shared").write_text("0" * 32)
        for name in ("empty", "other"):
            assert "before" in refusal(tmp_path / "naaa", "--node", "naaa", "--shared",
                                       str(tmp_path / name))
    finally:
        node.clean()
