# SPDX-License-Identifier: Apache-2.0
"""Templates that tenants build reach every server through a directory or an S3 store: --shared."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import Sandbox, Template, wait_for_file
from serving import PATIENCE, unavailable, wait_until
from system import make_system
from test_shared import TENANTS, Bucket, Directory, call, files, make, metric, read, start


@pytest.fixture(scope="module", name="nodes", params=["directory", "s3"])
def fixture_nodes(request, tmp_path_factory):
    """Two servers; only the first one has the template that builds start from."""
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    home = tmp_path_factory.mktemp("shared")
    shared = Directory(home / "all") if request.param == "directory" else Bucket()
    started = [start(home, name, shared) for name in ("naaa", "naab")]
    make_system(home / "root")
    done = started[0].cay("template", "create", "e2b-base", "--from-dir", str(home / "root"))
    assert done.returncode == 0, done.stderr
    yield started
    for one in started:
        one.clean()
    shared.clean()


@pytest.fixture(autouse=True)
def fixture_no_templates(request):
    yield
    if "nodes" in request.fixturenames:
        for tenant in TENANTS:
            for node in request.getfixturevalue("nodes"):
                for template in listed(node, tenant):
                    assert remove(node, template, tenant) == 204
                assert listed(node, tenant) == {}


def listed(node, tenant="alice"):
    """{name: id}"""
    status, rows = call(node, "GET", "/templates", tenant=tenant)
    assert status == 200, rows
    return {row["aliases"][0].split("/")[-1]: row["templateID"] for row in rows}


def remove(node, template, tenant="alice"):
    """The status; a sandbox that was just killed may use it for a moment."""
    replies = []

    def asked():
        replies.append(call(node, "DELETE", f"/templates/{template}", tenant=tenant))
        return "sandbox uses" not in str(replies[-1][1])

    wait_until(asked, lambda: replies[-1])
    return replies[-1][0]


def build(node, name, text, tenant="alice", source=None, **more):
    """A template with this text in a file; what the SDK returns."""
    template = source or Template().from_base_image()
    return Template.build(template.run_cmd(f"echo '{text}' > file"), name, **more,
                          **node.options_of(tenant))


def content(node, template, tenant="alice"):
    return read(node, template, tenant).strip()


def stored(node):
    """The builds whose files it has."""
    return [path.name for path in (node.home / "templates").glob("e2b.*")]


def tags(node, template, tenant="alice"):
    return {one.tag: one.build_id for one in Template.get_tags(template, **node.options_of(tenant))}


def create(node, template, tenant="alice"):
    """The reply to a create that is expected to fail."""
    status, reply = call(node, "POST", "/sandboxes", {"templateID": template}, tenant)
    assert status != 201, reply
    return status, reply["message"]


def test_a_template_is_ready_on_every_node(nodes):
    one, two = nodes
    template = (Template().from_base_image().set_envs({"COLOR": "a \"b\" \\n c"})
                .run_cmd("useradd -m worker", user="root").set_workdir("/app/deep")
                .set_user("worker").run_cmd("id -un > /tmp/me").set_start_cmd(
                    "printf '%s|' \"$COLOR\" $(id -un) $(pwd) > /tmp/started\nsleep 1000",
                    wait_for_file("/tmp/started")))
    made = Template.build(template, "wide", cpu_count=1, memory_mb=512, **one.options_of("alice"))
    assert listed(two) == listed(one) == {"wide": made.template_id}
    fetches = metric(two, "cay_shared_fetches_total")
    found = []
    for node in nodes:
        with Sandbox.create("wide", timeout=PATIENCE, **node.options_of("alice")) as sandbox:
            assert sandbox.get_info().template_id == made.template_id
            found.append(sandbox.commands.run(
                "cat /tmp/started /tmp/me; id -un; pwd; echo ${COLOR:-none}; "
                "pgrep -f 'sleep 1000' | wc -l").stdout)
    assert found[0] == found[1]
    assert found[1].startswith('a "b" \\n c|worker|/app/deep|worker\nworker\n/app/deep\nnone\n')
    assert metric(two, "cay_shared_fetches_total") == fetches + 1
    rows = [call(node, "GET", "/templates")[1][0] for node in nodes]
    for key in ("templateID", "buildID", "cpuCount", "memoryMB", "names", "buildStatus"):
        assert rows[0][key] == rows[1][key], key


def test_many_creates_at_once_fetch_it_once(nodes):
    one, two = nodes
    build(one, "once", "the text")
    before = metric(two, "cay_shared_fetches_total")
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: content(two, "once"), range(4))) == ["the text"] * 4
    assert metric(two, "cay_shared_fetches_total") == before + 1
    assert metric(one, "cay_shared_fetches_total") == 0 and content(one, "once") == "the text"


def test_a_build_starts_from_a_template_of_another_node(nodes):
    one, two = nodes
    build(one, "first", "lower", source=Template().from_base_image().set_workdir("/app"))
    build(two, "second", "upper", source=Template().from_template("first").run_cmd("cp file kept"))
    with make(one, "second") as sandbox:
        assert sandbox.commands.run("pwd; cat kept file").stdout == "/app\nlower\nupper\n"


def test_what_is_removed_on_one_node_is_gone_on_all(nodes):
    one, two = nodes
    build(one, "gone", "x")
    assert content(two, "gone") == "x"
    assert remove(two, "gone") == 204
    assert files(one) == files(one, folder="records") == []
    assert listed(one) == listed(two) == {}
    assert create(one, "gone")[0] == 404
    wait_until(lambda: not stored(one) and not stored(two), lambda: stored(one) + stored(two))
    assert remove(one, "gone") == 404


@pytest.mark.parametrize("nodes", ["s3"], indirect=True)
def test_what_is_removed_while_it_comes_leaves_no_files(nodes):
    one, two = nodes
    store, held = one.shared.s3, threading.Event()
    build(one, "late", "x")
    assert set(listed(two)) == {"late"}
    waiting = store.waiting
    with ThreadPoolExecutor(1) as pool, store.failing(held, method="GET", path="/files/"):
        try:
            reply = pool.submit(create, two, "late")
            wait_until(lambda: store.waiting > waiting, "the fetch has not begun")
            assert remove(one, "late") == 204 and listed(two) == {}
        finally:
            held.set()
        assert reply.result(PATIENCE)[0] == 404
    wait_until(lambda: not stored(two), lambda: stored(two))


@pytest.mark.parametrize("nodes", ["s3"], indirect=True)
def test_a_build_whose_reply_was_lost_does_not_become_ready(nodes):
    one, two = nodes
    with one.shared.s3.failing("lost", method="PUT", path="/records/"), pytest.raises(Exception, match="shared S3 store"):
        build(one, "lost", "x")
    assert files(one, folder="records") == [] and create(two, "lost")[0] == 404
    wait_until(lambda: not stored(one), lambda: stored(one))


def test_a_template_in_use_stays_usable(nodes):
    one, two = nodes
    build(one, "used", "text")
    sandbox = make(one, "used")
    status, reply = call(one, "DELETE", "/templates/used")
    assert (status, reply["message"]) == (400, "a sandbox uses the template")
    assert content(two, "used") == "text"
    assert remove(two, "used") == 204
    assert listed(one) == {} and create(one, "used")[0] == 404
    assert sandbox.files.read("file") == "text\n"
    assert sandbox.commands.run("cat file").stdout == "text\n"
    sandbox.kill()
    one.restart()
    wait_until(lambda: not stored(one), lambda: stored(one))


def test_other_tenants_do_not_see_it(nodes):
    one, two = nodes
    made = build(one, "secret-work", "of alice")
    for name in ("secret-work", "alice/secret-work", made.template_id):
        assert create(two, name, "bob")[0] == 404
        assert remove(two, name.replace("/", "%2F"), "bob") == 404
        assert call(two, "GET", f"/templates/{name.replace('/', '%2F')}", tenant="bob")[0] == 404
    assert call(two, "GET", "/templates/aliases/secret-work", tenant="bob")[0] == 404
    assert listed(two, "bob") == {} and content(two, "secret-work") == "of alice"
    other = build(one, "secret-work", "of bob", "bob")
    assert other.template_id != made.template_id
    assert content(two, "secret-work", "bob") == "of bob"
    assert content(two, "secret-work") == "of alice"
    assert remove(two, "secret-work", "bob") == 204 and content(one, "secret-work") == "of alice"


def test_a_damaged_archive_is_refused_and_the_builder_has_its_own(nodes):
    one, two = nodes
    build(one, "whole", "text")
    (name,) = files(one)
    whole, before = one.shared.read("files", name), stored(two)
    for damage in (whole[:-1], whole[:600] + bytes([whole[600] ^ 1]) + whole[601:], b""):
        one.shared.write("files", name, damage)
        status, message = create(two, "whole")
        assert status == 503 and "the template does not match its digest" in message
        assert stored(two) == before
    assert content(one, "whole") == "text"
    one.shared.write("files", name, whole)
    assert content(two, "whole") == "text"
    one.shared.write("files", name, b"")
    assert content(two, "whole") == "text"


INVALID = (
    lambda lines: lines[:-1], lambda lines: ["cay 2", *lines[1:]],
    lambda lines: [*lines[:1], "../name", *lines[2:]], lambda lines: [*lines[:1], "bob/x", *lines[2:]],
    lambda lines: [*lines[:2], "UPPER", *lines[3:]], lambda lines: [*lines[:3], "1 2 3", *lines[4:]],
    lambda lines: [*lines[:3], "1 2 3 -4", *lines[4:]],
    lambda lines: [*lines[:3], f"1 2 3 {1 << 62}", *lines[4:]],
    lambda lines: [*lines[:4], "a\\tb", *lines[5:]], lambda lines: [*lines[:6], "0" * 63])


def test_an_invalid_record_is_no_template(nodes):
    one, two = nodes
    build(one, "record", "x")
    (name,) = files(one, folder="records")
    record = one.shared.read("records", name)
    for number, change in enumerate(INVALID):
        changed = change(record.decode().splitlines())
        one.shared.write("records", name, "".join(line + "\n" for line in changed).encode())
        assert listed(two) == {}, number
        assert create(two, "record")[0] == 404, number
    one.shared.write("records", name, record)
    assert set(listed(two)) == {"record"}


def test_a_new_build_replaces_the_one_before_on_every_node(nodes):
    one, two = nodes
    build(one, "again", "1")
    assert content(two, "again") == "1"
    build(one, "again", "2")
    assert content(one, "again") == content(two, "again") == "2"
    wait_until(lambda: len(files(one)) == len(files(one, folder="records")) == 1,
               lambda: files(one, folder="records"))
    listed(two)
    wait_until(lambda: len(stored(one)) == len(stored(two)) == 1, lambda: stored(two))


def test_tags_are_the_same_on_every_node(nodes):
    one, two = nodes
    build(one, "tagged:v1", "1")
    build(one, "tagged:v2", "2", tags=["default"])
    options = two.options_of("alice")
    assert tags(two, "tagged") == tags(one, "tagged") and set(tags(two, "tagged")) == {
        "v1", "v2", "default"}
    assert Template.assign_tags("tagged:v1", ["default", "stable"], **options).tags == [
        "default", "stable"]
    assert [content(one, name) for name in ("tagged", "tagged:stable", "tagged:v2")] == [
        "1", "1", "2"]
    Template.assign_tags("tagged:v2", "default", **one.options_of("alice"))
    assert content(two, "tagged") == "2"
    for node, gone, left in ((one, "stable", {"v1", "v2", "default"}), (two, "v1", {"v2", "default"})):
        Template.remove_tags("tagged", gone, **node.options_of("alice"))
        for each in nodes:
            assert set(tags(each, "tagged")) == left
            assert create(each, f"tagged:{gone}")[0] == 404
        assert call(two, "DELETE", "/templates/tags", {"name": "tagged", "tags": [gone]})[0] == 404
    assert call(two, "DELETE", "/templates/tags", {"name": "tagged", "tags": ["default"]})[0] == 400
    # Two builds, the tag "default" that was set later, and "v1", which the first build had.
    records = files(one, folder="records")
    assert sorted(name[0] for name in records) == ["g", "g", "t", "t"], records
    for node in nodes:
        node.restart()
        assert set(tags(node, "tagged")) == {"v2", "default"}
    assert content(one, "tagged") == "2"


def test_the_end_of_a_build_knows_the_tags_of_other_nodes(nodes):
    one, two = nodes
    build(one, "busy:old", "1", tags=["v1"])
    _, made = call(one, "POST", "/v3/templates", {"name": "busy:v1"})
    path = f"/templates/{made['templateID']}/builds/{made['buildID']}"
    steps = [{"type": "RUN", "args": ["sleep 5"]}]
    assert call(one, "POST", f"/v2{path}", {"fromImage": "e2bdev/base", "steps": steps})[0] == 202
    Template.assign_tags("busy:old", ["stable"], **two.options_of("alice"))
    Template.remove_tags("busy", "old", **two.options_of("alice"))
    wait_until(lambda: call(one, "GET", f"{path}/status")[1]["status"] == "ready",
               "the build does not end")
    for node in nodes:
        assert set(tags(node, "busy")) == {"stable", "v1"}
    assert content(one, "busy:stable") == content(two, "busy:stable") == "1"


def test_without_the_directory_a_node_serves_what_it_has(nodes):
    one, two = nodes
    build(one, "here", "1")
    build(one, "there", "2", "bob")
    options = one.options_of("alice")
    with one.shared.away():
        assert content(one, "here") == "1" and set(listed(one)) == {"here"}
        for status, message in (create(two, "here"), create(one, "unknown")):
            assert status == 503 and "the shared" in message
        for method, path, body in (
                ("POST", "/v3/templates", {"name": "new"}), ("DELETE", "/templates/here", None),
                ("GET", "/templates/unknown", None),
                ("POST", "/templates/tags", {"target": "here", "tags": ["x"]})):
            status, reply = call(one, method, path, body)
            assert status == 503 and "the shared" in reply["message"], (path, reply)
        with pytest.raises(Exception, match="the shared"):
            Template.build(Template().from_base_image(), "new", **options)
        assert content(one, "here") == "1" and set(tags(one, "here")) == {"default"}
    assert content(two, "here") == "1"


@pytest.mark.parametrize("nodes", ["directory"], indirect=True)
def test_a_build_that_cannot_be_shared_fails_as_a_whole(nodes):
    one, two = nodes
    build(one, "before", "x")
    status, made = call(one, "POST", "/v3/templates", {"name": "half"})
    assert status == 202, made
    path = f"/templates/{made['templateID']}/builds/{made['buildID']}"
    folder = one.shared.file("files", "")
    kept = folder.with_name("kept")
    folder.rename(kept)
    folder.symlink_to(kept)
    try:
        assert call(one, "POST", f"/v2{path}", {"fromImage": "e2bdev/base", "steps": []})[0] == 202
        ended = wait_until(lambda: (found := call(one, "GET", f"{path}/status")[1])["status"] in (
            "ready", "error") and found, "the build does not end")
        assert ended["status"] == "error" and ended["reason"]["step"] == "finalize", ended
        assert "shared directory cannot be used: try again later" in ended["reason"]["message"]
    finally:
        folder.unlink()
        kept.rename(folder)
    assert create(one, "half")[0] == create(two, "half")[0] == 404
    assert set(listed(two)) == {"before"} and len(files(one)) == 1
    wait_until(lambda: len(stored(one)) == 1, lambda: stored(one))
    assert remove(one, "half") == 204


def test_commands_that_no_record_can_have_are_refused(nodes):
    with pytest.raises(Exception, match="too long"):
        Template.build(Template().from_base_image().set_start_cmd(
            "true " + "x" * 12000, wait_for_file("/etc/passwd")), "long",
            **nodes[0].options_of("alice"))
    assert remove(nodes[0], "long") == 204
