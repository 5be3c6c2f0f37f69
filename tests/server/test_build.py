# SPDX-License-Identifier: Apache-2.0
"""Template.build with both SDKs: builds, their files, logs, tags, and what tenants share."""

import asyncio
import gzip
import io
import json
import os
import subprocess
import tarfile
import urllib.error
import urllib.request

import javascript
import pytest
from e2b import AsyncTemplate, Sandbox, Template, wait_for_file, wait_for_timeout
from e2b.exceptions import BuildException, NotFoundException, SandboxException, TemplateException
from e2b_code_interpreter import Sandbox as Interpreter
from serving import PATIENCE, children, name_of, wait_until
from system import make_system


def make_base(server, folder):
    """The template that builds of E2B's base start from."""
    make_system(folder)
    done = server.cay("template", "create", "e2b-base", "--from-dir", str(folder))
    assert done.returncode == 0, done.stderr
    return server


@pytest.fixture(scope="session", name="base")
def fixture_base(server, tmp_path_factory):
    return make_base(server, tmp_path_factory.mktemp("system") / "root")


@pytest.fixture(name="context")
def fixture_context(tmp_path):
    folder = tmp_path / "context" / "folder"
    folder.mkdir(parents=True)
    (folder / "test.txt").write_text("This is a test file.\n")
    (folder / "relative").symlink_to("test.txt")
    (folder / "absolute").symlink_to("/home/user/folder/test.txt")
    (folder / "broken").symlink_to("no-such-file")
    (folder / "deep").mkdir()
    (folder / "deep" / "other.txt").write_text("deep\n")
    return folder.parent


def from_base(context=None):
    template = Template(file_context_path=str(context)) if context else Template()
    return template.from_base_image()


def output(name, command, **options):
    sandbox = Sandbox.create(name, timeout=PATIENCE, **options)
    try:
        return sandbox.commands.run(command).stdout
    finally:
        sandbox.kill()


def new_build(server, name, **more):
    status, made = server.api("POST", "/v3/templates", {"name": name, **more})
    assert status == 202, made
    return made


def state(server, made, query=""):
    path = f"/templates/{made['templateID']}/builds/{made['buildID']}/status{query}"
    return server.api("GET", path)[1]


def start(server, made, **body):
    path = f"/v2/templates/{made['templateID']}/builds/{made['buildID']}"
    return server.api("POST", path, {"fromImage": "e2bdev/base", "steps": [], **body})


def finished(server, made):
    return wait_until(lambda: (found := state(server, made))["status"] in ("ready", "error")
                      and found, "the build does not end")


# --- Steps ---

def test_files_links_and_directories_are_copied(base, context):
    Template.build(from_base(context).copy("folder/*", "folder").run_cmd("cat folder/test.txt"),
                   "copied")
    assert output("copied", "cd folder; cat relative absolute deep/other.txt; readlink broken; "
                  "stat -c %U:%G . test.txt deep") == (
        "This is a test file.\nThis is a test file.\ndeep\nno-such-file\n"
        "user:user\nuser:user\nuser:user\n")


def test_links_are_resolved_when_asked(base, context):
    (context / "folder" / "broken").unlink()
    (context / "folder" / "absolute").unlink()
    Template.build(from_base(context).copy("folder/*", "there", resolve_symlinks=True), "resolved")
    assert output("resolved", "stat -c %F there/relative") == "regular file\n"


def test_a_file_is_copied_to_its_target_with_owner_and_mode(base, context):
    Template.build(from_base(context).copy("folder/test.txt", "/opt/a", user="root", mode=0o751)
                   .copy("folder/test.txt", "/opt/dir/"), "moded")
    assert output("moded", "stat -c '%n %U:%G %a' /opt/a /opt/dir/test.txt") == (
        "/opt/a root:root 751\n/opt/dir/test.txt user:user 644\n")


def test_an_archive_without_gzip_is_accepted(base, context):
    Template.build(from_base(context).copy("folder/test.txt", "plain", gzip=False), "plain")
    assert output("plain", "cat plain") == "This is a test file.\n"


def test_a_command_has_the_user_the_directory_and_the_variables_of_its_place(base):
    logs = []
    Template.build(
        from_base().set_envs({"A": "one", "B": "$A-two $(id) `id` \"q\""})
        .run_cmd("id -un; pwd; echo $B").run_cmd("id -un", user="root")
        .set_workdir("/app/deep").run_cmd("id -un; pwd; stat -c %U /app .")
        .set_user("root").set_workdir("/srv/new").run_cmd("id -un; pwd; stat -c %U ."),
        "placed", on_build_logs=lambda entry: logs.append(entry.message))
    shown = [line for line in logs if "[builder" not in line]
    assert [line for line in shown if line in (
        "user", "root", "/home/user", "/app/deep", "/srv/new") or line.startswith("one")] == [
        "user", "/home/user", 'one-two $(id) `id` "q"', "root", "user", "/app/deep", "user",
        "user", "root", "/srv/new", "root"]
    assert output("placed", "id -un; pwd; echo ${A:-none}") == "root\n/srv/new\nnone\n"


def test_a_user_is_created_if_it_is_missing(base):
    Template.build(from_base().set_user("worker").run_cmd("id -un > ~/me"), "worker")
    assert output("worker", "id -un; cat ~/me") == "worker\nworker\n"


def test_a_template_starts_from_another_with_its_user_and_directory(base):
    Template.build(Template().from_template("base").set_workdir("/app").run_cmd("echo 1 > x"),
                   "first:a")
    Template.build(Template().from_template("first:a").run_cmd("pwd > y; cat x >> y"), "second")
    assert output("second", "cat y") == "/app\n1\n"


def test_helpers_of_the_sdk_are_commands(base):
    Template.build(from_base().make_dir("d/e", mode=0o700).run_cmd("echo x > d/f")
                   .rename("d/f", "d/g").make_symlink("g", "d/h").remove("d/e", recursive=True),
                   "helped")
    assert output("helped", "ls d; readlink d/h") == "g\nh\ng\n"


def test_a_heredoc_and_quotes_reach_the_shell(base):
    Template.build(from_base().run_cmd("cat > f <<EOF\n$((1 + 1)) \"x\" 'y'\nEOF\n"), "quoted")
    assert output("quoted", "cat f") == "2 \"x\" 'y'\n"


# --- The cache ---

def test_steps_are_cached_until_something_is_forced(base):
    def build(template, **options):
        logs = []
        Template.build(template, "cached", on_build_logs=lambda entry: logs.append(entry.message),
                       **options)
        return [line.partition("[")[0] for line in logs if "RUN" in line]

    def template():
        return from_base().run_cmd("date +%N > one").run_cmd("date +%N > two")

    build(template())
    before = output("cached", "cat one two")
    assert build(template()) == ["CACHED ", "CACHED "]
    assert output("cached", "cat one two") == before
    assert build(template(), skip_cache=True) == ["", ""]
    forced = from_base().run_cmd("date +%N > one").skip_cache().run_cmd("date +%N > two")
    assert build(forced) == ["CACHED ", ""]
    assert output("cached", "cat one") != before.splitlines()[0]


# --- Start and ready commands ---

def test_a_sandbox_begins_with_the_start_command_running_and_ready(base):
    template = from_base().set_envs({"WORD": "hello"}).set_start_cmd(
        "sleep 0.5; echo $WORD > /tmp/up; exec sleep 1000", wait_for_file("/tmp/up"))
    Template.build(template, "started")
    for _ in range(2):
        sandbox = Sandbox.create("started", timeout=PATIENCE)
        assert sandbox.files.read("/tmp/up") == "hello\n"
        assert [process.cmd for process in sandbox.commands.list()] == ["sleep"]
        sandbox.kill()


def test_a_start_command_that_fails_fails_the_build(base):
    template = from_base().run_cmd("true").set_start_cmd("exit 4", wait_for_timeout(500))
    with pytest.raises(BuildException, match="the start command failed: exit code 4"):
        Template.build(template, "unstarted")
    assert not Template.exists("unstarted")
    made = base.api("GET", "/templates/unstarted")[1]["builds"][0]
    path = f"/templates/unstarted/builds/{made['buildID']}/status"
    assert base.api("GET", path)[1]["reason"]["step"] == "finalize"


def processes(sandbox):
    return [process.cmd for process in sandbox.commands.list()]


def test_only_a_start_without_memory_runs_the_start_command_again(own_server, tmp_path):
    server = make_base(own_server("--storage", "disk"), tmp_path / "system")
    Template.build(from_base().set_start_cmd("echo up >> /home/user/up; exec sleep 1000",
                                             wait_for_file("/home/user/up")), "server:v1")
    sandbox = Sandbox.create("server:v1", timeout=PATIENCE)
    fork = sandbox.fork(timeout=PATIENCE)[0]
    assert processes(fork) == [] and fork.files.read("up") == "up\n"
    snapshot = Sandbox.create(sandbox.create_snapshot().snapshot_id, timeout=PATIENCE)
    assert processes(snapshot) == []
    assert snapshot.pause(keep_memory=False)
    assert processes(snapshot.connect()) == []
    assert sandbox.pause() and processes(sandbox.connect()) == ["sleep"]
    for count, each in ((2, sandbox), (2, fork), (3, sandbox)):
        assert each.pause(keep_memory=False)
        server.restart()
        each.connect(timeout=PATIENCE)
        wait_until(lambda each=each: processes(each) == ["sleep"], "the shell does not execute it")
        assert each.files.read("up") == "up\n" * count


def test_a_start_command_that_fails_at_a_start_without_memory_leaves_the_files(
        own_server, tmp_path):
    server = make_base(own_server("--storage", "disk"), tmp_path / "system")
    Template.build(from_base().set_start_cmd("test ! -e /home/user/stop && exec sleep 1000",
                                             wait_for_timeout(100)), "stopping")
    sandbox = Sandbox.create("stopping", timeout=PATIENCE)
    sandbox.files.write("stop", "x")
    assert sandbox.pause(keep_memory=False)
    sandbox.connect(timeout=PATIENCE)
    assert processes(sandbox) == [] and sandbox.files.read("stop") == "x"
    assert server.api("GET", f"/sandboxes/{sandbox.sandbox_id}")[1]["state"] == "running"


def test_a_snapshot_and_a_template_do_not_share_a_name(base):
    Template.build(from_base().run_cmd("true"), "shared-name")
    sandbox = Sandbox.create("shared-name", timeout=PATIENCE)
    with pytest.raises(SandboxException, match="a template has this name"):
        sandbox.create_snapshot(name="shared-name:v1")
    snapshot = sandbox.create_snapshot(name="other-name:v1")
    sandbox.kill()
    status, reply = base.api("POST", "/v3/templates", {"name": "other-name"})
    assert (status, reply["message"]) == (400, "a snapshot has this name")
    assert Sandbox.delete_snapshot(snapshot.snapshot_id)
    new_build(base, "other-name")


def test_a_snapshot_outlives_the_template_of_its_sandbox(base):
    Template.build(from_base().run_cmd("echo built > built"), "short-lived")
    sandbox = Sandbox.create("short-lived", timeout=PATIENCE)
    sandbox.files.write("written", "x\n")
    snapshot = sandbox.create_snapshot()
    sandbox.kill()
    assert base.api("DELETE", "/templates/short-lived") == (204, None)
    assert output(snapshot.snapshot_id, "cat built written") == "built\nx\n"
    assert Sandbox.delete_snapshot(snapshot.snapshot_id)


# --- Failures ---

def test_a_user_that_does_not_exist_fails_the_build(base):
    with pytest.raises(BuildException) as caught:
        Template.build(from_base().run_cmd("true").run_cmd("whoami", user="root123"), "nobody")
    assert ("failed to run command 'whoami': command failed: unauthenticated: invalid username: "
            "'root123'") in str(caught.value)


@pytest.mark.parametrize("steps, step, message", [
    ([["RUN", ["true"]], ["RUN", ["echo x; exit 3"]]], "2", "exit code 3"),
    ([["COPY", ["a", "b", "", ""]]], "1", "COPY needs"),
    ([["RUN", []]], "1", "RUN has no command"), ([["RUN", ["true", "-x"]]], "1", "invalid user"),
    ([["ENV", ["A"]]], "1", "pairs"), ([["ENV", ["A-", "x"]]], "1", "name of a variable"),
    ([["ENV", ["A", "x\ny"]]], "1", "control characters"), ([["USER", ["a b"]]], "1", "user"),
    ([["WORKDIR", [""]]], "1", "WORKDIR"), ([["ADD", ["x", "y"]]], "1", "unknown type of a step"),
    ([["WORKDIR", ["/etc/passwd/x"]]], "1", "")])
def test_a_step_that_fails_is_named_with_the_reason(base, steps, step, message):
    made = new_build(base, "failing")
    assert start(base, made, steps=[{"type": kind, "args": args} for kind, args in steps])[0] == 202
    found = finished(base, made)
    assert found["status"] == "error"
    assert found["reason"]["step"] == step and message in found["reason"]["message"]
    assert found["logEntries"][-1]["level"] == "error"
    assert not Template.exists("failing")


def test_an_image_that_is_not_on_this_machine_fails_the_step_base(base):
    made = new_build(base, "unknown-image")
    assert start(base, made, fromImage="ubuntu:22.04")[0] == 202
    reason = finished(base, made)["reason"]
    assert reason["step"] == "base" and "ubuntu:22.04" in reason["message"]


def test_a_snapshot_of_the_operator_is_no_image(base):
    box = base.cay("create", "--template", "e2b-base").stdout.strip()
    done = base.cay("snapshot", "create", box, "of-the-operator")
    assert done.returncode == 0, done
    try:
        for image in ("of-the-operator", "of-the-operator:latest"):
            made = new_build(base, "of-a-snapshot")
            start(base, made, fromImage=image)
            assert finished(base, made).get("reason", {}).get("step") == "base", image
    finally:
        base.cay("snapshot", "rm", "of-the-operator")
        base.cay("rm", "-f", box)


def test_old_builds_without_a_tag_are_forgotten(base):
    first = new_build(base, "often")
    for _ in range(301):
        new_build(base, "often")
    builds = base.api("GET", f"/templates/{first['templateID']}")[1]["builds"]
    assert len(builds) == 301 and first["buildID"] not in [build["buildID"] for build in builds]
    assert base.api("DELETE", "/templates/often") == (204, None)


def test_files_that_were_not_uploaded_fail_their_step(base):
    made = new_build(base, "no-files")
    start(base, made, steps=[{"type": "COPY", "args": ["a", "b"], "filesHash": "0" * 64}])
    assert finished(base, made)["reason"] == {
        "step": "1", "message": "the files of COPY were not uploaded: upload them, and build the "
        "template again"}


@pytest.mark.parametrize("body, status", [
    ({"fromImage": None}, 400), ({"fromTemplate": "base"}, 400), ({"steps": 1}, 400),
    ({"steps": [1]}, 400), ({"steps": [{"args": []}]}, 400), ({"fromImage": "oci:/etc"}, 400),
    ({"fromImage": "/etc"}, 400), ({"fromImage": "@" + "0" * 64}, 400),
    ({"fromImage": "e2b." + "0" * 32}, 400), ({"fromImage": "a b"}, 400),
    ({"fromImage": None, "fromTemplate": "no-such"}, 404), ({"force": "x"}, 400),
    ({"fromImageRegistry": {"type": "registry", "username": "a", "password": "b"}}, 501)])
def test_a_build_that_cannot_be_started_is_refused_and_waits(base, body, status):
    made = new_build(base, "refused")
    assert start(base, made, **body)[0] == status
    assert state(base, made)["status"] == "waiting"


# --- The flow ---

def test_a_build_waits_then_builds_then_is_ready(base):
    made = new_build(base, "flow", tags=["x"], cpuCount=1, memoryMB=256)
    assert set(made) == {"templateID", "buildID", "public", "names", "tags", "aliases"}
    assert state(base, made) == {"templateID": made["templateID"], "buildID": made["buildID"],
                                 "status": "waiting", "logs": [], "logEntries": []}
    steps = [{"type": "RUN", "args": ["sleep 5"], "force": True}]
    assert start(base, made, steps=steps) == (202, None)
    assert state(base, made)["status"] == "building"
    assert start(base, made)[0] == 400
    assert finished(base, made)["status"] == "ready"
    again = new_build(base, "flow")
    assert again["templateID"] == made["templateID"] and again["buildID"] != made["buildID"]
    assert again["tags"] == ["default"]


def test_the_log_is_append_only_and_paged(base):
    made = new_build(base, "logged")
    start(base, made, steps=[{"type": "RUN", "args": ["seq 150; printf '\\033[1mx\\377'"]}])
    finished(base, made)
    first = state(base, made)["logEntries"]
    assert len(first) == 100
    rest = state(base, made, "?logsOffset=100")["logEntries"]
    messages = [entry["message"] for entry in first + rest]
    assert messages[1:151] == [str(number) for number in range(1, 151)]
    assert messages[151].startswith(" [1mx") and messages[-1] == "the template is ready"
    assert state(base, made, "?logsOffset=1000")["logEntries"] == []
    assert len(state(base, made, "?limit=5")["logs"]) == 5
    assert state(base, made, "?level=error")["logEntries"] == []
    path = f"/templates/{made['templateID']}/builds/{made['buildID']}/logs"
    logs = base.api("GET", path + "?direction=backward&limit=2")[1]["logs"]
    assert [entry["message"] for entry in logs] == messages[:-3:-1]
    for query in ("limit=101", "limit=x", "cursor=x", "level=loud", "direction=up"):
        assert base.api("GET", f"{path}?{query}")[0] == 400


@pytest.mark.parametrize("body", [
    {}, {"name": ""}, {"name": "a b"}, {"name": "other/name"}, {"name": "a:"}, {"name": "a:b:c"},
    {"name": "x" * 129}, {"name": "a", "tags": ["A B"]}, {"name": "a", "tags": "x"},
    {"name": "a", "cpuCount": 0}, {"name": "a", "memoryMB": 1}])
def test_a_name_or_tag_that_is_invalid_is_refused(base, body):
    assert base.api("POST", "/v3/templates", body)[0] == 400


def test_builds_of_the_async_sdk_work(base):
    async def build():
        await AsyncTemplate.build(AsyncTemplate().from_base_image().run_cmd("echo a > a"), "async")
        return await AsyncTemplate.exists("async")

    assert asyncio.run(build())
    assert output("async", "cat a") == "a\n"


def test_a_build_in_the_background_is_followed(base):
    info = Template.build_in_background(from_base().skip_cache().run_cmd("sleep 5"), "background")
    assert Template.get_build_status(info).status.value == "building"
    wait_until(lambda: Template.get_build_status(info).status.value == "ready", "it is not ready")


@pytest.mark.parametrize("package", ["e2b", "e2b-2.45"])
def test_the_javascript_sdk_builds_templates(base, package):
    done = javascript.run("build.mjs", package, base.exports)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("ok", "not ok"))]
    assert [line.partition(" - ")[2] for line in lines if line.startswith("ok")] == (
        javascript.names("build.mjs")), done.stdout + done.stderr


# --- Uploads ---

def archive(name, content, mode="w:gz"):
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode=mode) as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return to.getvalue()


def put(url, data):
    request = urllib.request.Request(url, method="PUT", data=data)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_files_are_uploaded_by_a_link_that_needs_no_key(base):
    made = new_build(base, "linked")
    path = f"/templates/{made['templateID']}/files/{'ab' * 32}"
    status, link = base.api("GET", path)
    assert status == 201 and link["present"] is False
    assert put(link["url"], archive("x", b"1")) == 200
    assert base.api("GET", path)[1]["present"] is True
    assert put(link["url"], archive("x", b"2" * 3_000_000, "w")) == 200  # again
    start(base, made, steps=[{"type": "COPY", "args": ["x", "/x"], "filesHash": "ab" * 32}])
    assert finished(base, made)["status"] == "ready"
    assert output("linked", "wc -c < /x") == "3000000\n"


def test_a_link_is_for_one_file_and_an_hour(base):
    made = new_build(base, "links")
    url = base.api("GET", f"/templates/{made['templateID']}/files/{'cd' * 32}")[1]["url"]
    assert put(url.replace("cd" * 32, "ce" * 32), b"x") == 403
    assert put(url.replace("expires=", "expires=1"), b"x") == 403
    assert put(url.partition("?")[0], b"x") == 403
    assert put(url[:-1] + ("0" if url[-1] != "0" else "1"), b"x") == 403
    assert put(url, b"") == 411
    for name in ("%2e%2e", "A" * 64, "a" * 65, "..%2Fx"):
        assert base.api("GET", f"/templates/{made['templateID']}/files/{name}")[0] in (400, 404)


def test_hostile_archives_stay_inside_of_the_template(base, tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, link in (("d", "/"), ("../../etc/cay-escaped", None), ("d/etc/cay-in", None)):
            info = tarfile.TarInfo(name)
            if link:
                info.type, info.linkname = tarfile.SYMTYPE, link
            else:
                info.size = 1
            tar.addfile(info, None if link else io.BytesIO(b"x"))
    made = new_build(base, "hostile")
    url = base.api("GET", f"/templates/{made['templateID']}/files/{'ef' * 32}")[1]["url"]
    assert put(url, gzip.compress(data.getvalue())) == 200
    start(base, made, steps=[{"type": "COPY", "args": [".", "/all"], "filesHash": "ef" * 32}])
    finished(base, made)
    assert not os.path.exists("/etc/cay-escaped") and not os.path.exists("/etc/cay-in")


# --- Tags, names, lists ---

def test_a_build_moves_the_tags_that_it_was_given(base):
    Template.build(from_base().run_cmd("echo 1 > v"), "tagged:v1", tags=["stable"])
    Template.build(from_base().run_cmd("echo 2 > v"), "tagged", tags=["v2", "default"])
    assert [output(f"tagged{tag}", "cat v") for tag in (":v1", ":stable", ":v2", "")] == [
        "1\n", "1\n", "2\n", "2\n"]
    assert output("default/tagged:v2", "cat v") == "2\n"
    tags = {tag.tag: tag.build_id for tag in Template.get_tags("tagged")}
    assert set(tags) == {"v1", "stable", "v2", "default"} and tags["v1"] == tags["stable"]
    with pytest.raises((NotFoundException, SandboxException)):
        Sandbox.create("tagged:v3")


def test_tags_are_assigned_and_removed(base):
    Template.build(from_base().run_cmd("true"), "retagged:v1")
    assigned = Template.assign_tags("retagged:v1", ["a", "b"])
    assert assigned.tags == ["a", "b"] and Template.exists("retagged:a")
    Template.remove_tags("retagged", ["a", "b"])
    assert not Template.exists("retagged:a") and Template.exists("retagged:v1")
    for target, tags in (("retagged:v1", []), ("retagged:v1", [":x"]), ("retagged:v1", ["x:"]),
                         ("retagged:v1", ["a b"])):
        assert base.api("POST", "/templates/tags", {"target": target, "tags": tags})[0] == 400
    for target in ("retagged", "retagged:no", "no-such:v1"):
        assert base.api("POST", "/templates/tags", {"target": target, "tags": ["x"]})[0] == 404
    for name, tags, status in (("retagged:v1", ["v1"], 400), ("retagged", ["default"], 400),
                               ("no-such", ["x"], 404), ("retagged", ["no"], 404)):
        assert base.api("DELETE", "/templates/tags", {"name": name, "tags": tags})[0] == status
    with pytest.raises(TemplateException):
        Template.assign_tags("retagged:v1", "x:")


def test_templates_are_listed_in_pages(base):
    names = [f"listed-{number}" for number in range(3)]
    for name in names:
        new_build(base, name, cpuCount=1, memoryMB=512)
    found = [one for one in base.api("GET", "/templates")[1] if one["names"][0] in names]
    assert [one["names"] for one in found] == [[name] for name in reversed(names)]
    assert set(found[0]) == {
        "templateID", "buildID", "cpuCount", "memoryMB", "diskSizeMB", "public", "aliases", "names",
        "createdAt", "updatedAt", "createdBy", "lastSpawnedAt", "spawnCount", "buildCount",
        "envdVersion", "buildStatus"}
    assert (found[0]["cpuCount"], found[0]["memoryMB"], found[0]["buildStatus"]) == (
        1, 512, "waiting")
    seen, token = [], ""
    while True:
        with base.get(f"/v2/templates?limit=2&nextToken={token}") as reply:
            seen += [one["templateID"] for one in json.load(reply)]
            token = reply.headers.get("X-Next-Token")
        if not token:
            break
    assert seen == [one["templateID"] for one in base.api("GET", "/templates")[1]]
    assert base.api("GET", "/v2/templates?limit=0")[0] == 400


def test_a_template_is_shown_with_its_builds_and_deleted(base):
    Template.build(from_base().run_cmd("echo 1 > v"), "removed")
    found = base.api("GET", "/templates/removed")[1]
    assert found["spawnCount"] == 0 and found["lastSpawnedAt"] is None
    sandbox = Sandbox.create("removed", timeout=PATIENCE)
    assert sandbox.get_info().template_id == found["templateID"]
    assert base.api("GET", "/templates/removed")[1]["spawnCount"] == 1
    assert base.api("DELETE", f"/templates/{found['templateID']}")[0] == 400
    sandbox.kill()
    source = "e2b." + found["builds"][0]["buildID"].replace("-", "")
    assert source in base.cay("template", "ls").stdout
    assert base.api("DELETE", f"/templates/{found['templateID']}") == (204, None)
    assert base.api("DELETE", f"/templates/{found['templateID']}")[0] == 404
    assert source not in base.cay("template", "ls").stdout
    assert base.api("GET", "/templates/removed")[0] == 404


def test_a_build_that_no_tag_names_is_removed(base):
    first = Template.build(from_base().run_cmd("echo 1 > v"), "replaced")
    Template.build(from_base().run_cmd("echo 2 > v"), "replaced")
    source = "e2b." + first.build_id.replace("-", "")
    wait_until(lambda: source not in base.cay("template", "ls").stdout, "it is still there")
    assert output("replaced", "cat v") == "2\n"


def test_templates_are_not_made_public(base):
    new_build(base, "private")
    for path in ("/v2/templates/private", "/templates/private"):
        assert base.api("PATCH", path, {"public": False}) == (200, {"names": ["private"]})
        assert base.api("PATCH", path, {"public": True})[0] == 501
        assert base.api("PATCH", path, {"public": 1})[0] == 400


def test_a_template_of_the_operator_is_the_code_interpreter(own_server, tmp_path):
    server = make_base(own_server(), tmp_path / "system")
    assert server.api("GET", "/templates/aliases/code-interpreter-v1")[0] == 200
    (tmp_path / "Dockerfile").write_text("FROM e2b-base\nRUN echo operator > /made-by\n")
    done = server.cay("build", "-t", "code-interpreter-v1", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert output("code-interpreter-v1", "cat /made-by") == "operator\n"
    Template.build(from_base().run_cmd("true"), "code-interpreter-v1")
    assert output("code-interpreter-v1", "cat /made-by || echo mine") == "mine\n"


def test_builds_take_the_place_of_both_default_templates(own_server, tmp_path):
    make_base(own_server(), tmp_path / "system")
    assert output(None, "cat /made-by || echo nobody") == "nobody\n"
    for name in ("base", "code-interpreter-v1"):
        Template.build(from_base().run_cmd(f"echo {name} > /made-by", user="root"), name)
    assert output(None, "cat /made-by") == "base\n"
    sandbox = Interpreter.create(timeout=PATIENCE)
    try:
        done = sandbox.run_code("cat /made-by", language="bash", timeout=PATIENCE)
        assert done.logs.stdout == ["code-interpreter-v1\n"] and not done.error
    finally:
        sandbox.kill()


# --- Tenants ---

def test_a_template_of_another_tenant_does_not_exist(base):
    made = Template.build(from_base().run_cmd("echo mine > v"), "mine:v1")
    key = base.options_of("other")["api_key"]
    source = "e2b." + made.build_id.replace("-", "")
    for name in ("mine:v1", f"{made.template_id}:v1", "default/mine:v1", source, f"@{source}"):
        status, _ = base.api("POST", "/v2/sandboxes", {"templateID": name}, X_API_KEY=key)
        assert status == 404
    quoted = made.template_id
    for method, path, body in (
            ("GET", "/templates/aliases/mine%3Av1", None), ("GET", f"/templates/{quoted}", None),
            ("GET", f"/templates/{quoted}/tags", None), ("DELETE", f"/templates/{quoted}", None),
            ("GET", f"/templates/{quoted}/files/{'ab' * 32}", None),
            ("GET", f"/templates/{quoted}/builds/{made.build_id}/status", None),
            ("GET", f"/templates/{quoted}/builds/{made.build_id}/logs", None),
            ("POST", f"/v2/templates/{quoted}/builds/{made.build_id}", {"fromImage": "x"}),
            ("PATCH", f"/v2/templates/{quoted}", {"public": False}),
            ("POST", "/templates/tags", {"target": "mine:v1", "tags": ["x"]}),
            ("DELETE", "/templates/tags", {"name": "mine", "tags": ["v1"]})):
        assert base.api(method, path, body, X_API_KEY=key)[0] == 404, path
    assert base.api("GET", "/templates", X_API_KEY=key) == (200, [])
    with pytest.raises(BuildException):
        Template.build(Template().from_template("mine:v1"), "theirs", **base.options_of("other"))
    Template.build(from_base().run_cmd("echo theirs > v"), "mine:v1", **base.options_of("other"))
    assert output("mine:v1", "cat v") == "mine\n"
    assert output("mine:v1", "cat v", **base.options_of("other")) == "theirs\n"


def test_the_number_of_builds_that_run_is_limited(base):
    running = [new_build(base, f"many-{number}") for number in range(5)]
    steps = [{"type": "RUN", "args": ["sleep 5"], "force": True}]
    statuses = [start(base, made, steps=steps)[0] for made in running]
    assert statuses == [202] * 4 + [429]
    assert base.api("DELETE", f"/templates/{running[0]['templateID']}")[0] == 400
    for made in running[:4]:
        assert finished(base, made)["status"] == "ready"
    assert start(base, running[4])[0] == 202
    finished(base, running[4])


# --- Restarts ---

def builders(server):
    return [pid for pid in children(server.broker) if name_of(pid) == "cay-build"]


def runs(command):
    return subprocess.run(["pgrep", "-fx", command], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_a_build_is_reported_as_failed_after_a_restart(own_server, tmp_path):
    server = make_base(own_server(), tmp_path / "system")
    Template.build(from_base().run_cmd("echo 1 > v"), "survivor")
    made = new_build(server, "interrupted")
    start(server, made, steps=[{"type": "RUN", "args": ["sleep 1000.25"]}])
    wait_until(lambda: builders(server) and runs("sleep 1000.25"), "none")
    pid = builders(server)[0]
    server.restart()
    assert state(server, made)["status"] == "error"
    assert "restarted during the build" in state(server, made)["reason"]["message"]
    wait_until(lambda: name_of(pid) != "cay-build", "the build outlives its server")
    assert output("survivor", "cat v") == "1\n"
    wait_until(lambda: not runs("sleep 1000.25"), "a sandbox is left")


def test_a_build_whose_process_is_killed_is_reported_as_failed(own_server, tmp_path):
    server = make_base(own_server(), tmp_path / "system")
    made = new_build(server, "killed")
    start(server, made, steps=[{"type": "RUN", "args": ["sleep 1000"]}])
    wait_until(lambda: "sleep" in str(state(server, made)["logs"]), "none")
    os.kill(builders(server)[0], 9)
    reason = finished(server, made)["reason"]
    assert "was killed" in reason["message"] and reason["step"] == "finalize"
    Template.build(from_base().run_cmd("true"), "next")  # also removes what was left
    assert [path.name for path in (server.home / "builds").iterdir()
            if path.suffix != ".log"] == []


def test_a_server_stops_while_a_build_runs(own_server, tmp_path):
    server = make_base(own_server(), tmp_path / "system")
    made = new_build(server, "stopped")
    start(server, made, steps=[{"type": "RUN", "args": ["sleep 1000"]}])
    wait_until(lambda: "sleep" in str(state(server, made)["logs"]), "none")
    pid = builders(server)[0]
    assert server.stop() == 0
    wait_until(lambda: name_of(pid) != "cay-build", "the build outlives its server")
    server.start()
    assert state(server, made)["status"] == "error"
