# SPDX-License-Identifier: Apache-2.0
"""The Python SDK of E2B, unmodified."""

import asyncio
import hashlib
import os
import threading
import time
import urllib.error
import urllib.request

import pytest


def until(what, seconds=60):
    """Waits for something to become true; says what it was."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("it never came true")


# --- Sandboxes ---


def test_a_sandbox_is_created_listed_and_killed(e2b):
    box = e2b.Sandbox.create(metadata={"name": "a b/ü&=%", "other": ""}, timeout=60)
    info = box.get_info()
    assert info.sandbox_id == box.sandbox_id and info.template_id == "base"
    assert info.metadata == {"name": "a b/ü&=%", "other": ""}
    assert 50 < (info.end_at - info.started_at).total_seconds() < 70
    assert box.is_running()
    found = e2b.Sandbox.list(
        query=e2b.SandboxQuery(metadata={"name": "a b/ü&=%"})).next_items()
    assert [item.sandbox_id for item in found] == [box.sandbox_id]
    assert not e2b.Sandbox.list(query=e2b.SandboxQuery(metadata={"name": "a"})).next_items()
    assert box.kill() is True
    assert box.kill() is False
    assert not box.is_running()


def test_lists_come_in_pages(e2b):
    boxes = [e2b.Sandbox.create(metadata={"page": "yes"}, timeout=60) for _ in range(3)]
    pages = e2b.Sandbox.list(query=e2b.SandboxQuery(metadata={"page": "yes"}), limit=2)
    first = pages.next_items()
    assert pages.has_next
    second = pages.next_items()
    assert not pages.has_next
    assert [item.sandbox_id for item in first + second] == [
        box.sandbox_id for box in reversed(boxes)]
    for box in boxes:
        box.kill()


def test_its_time_can_be_changed_and_connecting_only_adds_to_it(e2b, sandbox):
    sandbox.set_timeout(30)
    before = sandbox.get_info().end_at
    e2b.Sandbox.connect(sandbox.sandbox_id, timeout=10)
    assert sandbox.get_info().end_at == before
    e2b.Sandbox.connect(sandbox.sandbox_id, timeout=300)
    assert (sandbox.get_info().end_at - before).total_seconds() > 200


def test_it_ends_when_its_time_is_over_and_says_why(e2b, server):
    box = e2b.Sandbox.create(timeout=1)
    until(lambda: not box.is_running())
    with pytest.raises(e2b.SandboxNotFoundException):
        box.get_info()
    status, body = server.api("GET", f"/sandboxes/{box.sandbox_id}")
    assert status == body["code"] == 404 and "reached its end of life" in body["message"]


def test_a_killed_one_says_that_it_was_killed_and_an_unknown_one_that_it_never_was(
        e2b, server):
    box = e2b.Sandbox.create(timeout=60)
    box.kill()
    assert "was killed" in server.api("GET", f"/sandboxes/{box.sandbox_id}")[1]["message"]
    unknown = server.api("GET", "/sandboxes/abcdefghijklmnop")
    assert unknown == (404, {"code": 404,
                             "message": 'sandbox "abcdefghijklmnop" does not exist'})


def test_an_unknown_template_is_not_found(e2b):
    with pytest.raises(e2b.SandboxException, match="404"):
        e2b.Sandbox.create("no-such-template")


def test_a_wrong_key_is_refused(e2b):
    with pytest.raises(e2b.AuthenticationException):
        e2b.Sandbox.create(api_key="e2b_" + "0" * 40)


def test_tenants_do_not_see_each_other(e2b, server, sandbox):
    other = server.new_key("other")
    assert sandbox.sandbox_id not in [
        item.sandbox_id for item in e2b.Sandbox.list(api_key=other).next_items()]
    with pytest.raises(e2b.SandboxNotFoundException):
        e2b.Sandbox.get_info(sandbox.sandbox_id, api_key=other)
    assert e2b.Sandbox.kill(sandbox.sandbox_id, api_key=other) is False
    with pytest.raises(e2b.SandboxException):
        e2b.Sandbox.connect(sandbox.sandbox_id, api_key=other)
    assert sandbox.commands.run("echo alive").stdout == "alive\n"


def test_what_runs_goes_on_after_a_pause(e2b, sandbox):
    handle = sandbox.commands.run(
        "i=0; while true; do i=$((i+1)); echo $i > /tmp/count; sleep 0.01; done",
        background=True, timeout=0)
    until(lambda: sandbox.files.exists("/tmp/count"))
    sandbox.pause()
    states = [item.state for item in e2b.Sandbox.list(
        query=e2b.SandboxQuery(state=[e2b.SandboxState.PAUSED])).next_items()
        if item.sandbox_id == sandbox.sandbox_id]
    assert states == [e2b.SandboxState.PAUSED]
    assert not sandbox.is_running()
    again = e2b.Sandbox.connect(sandbox.sandbox_id, timeout=60)
    count = int(again.files.read("/tmp/count") or 0)
    until(lambda: int(again.files.read("/tmp/count") or 0) > count)
    assert again.commands.kill(handle.pid)


def test_a_sandbox_that_pauses_at_its_end_wakes_when_it_is_touched(e2b):
    box = e2b.Sandbox.create(
        timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True})
    box.files.write("kept", "yes")
    until(lambda: box.get_info().state == e2b.SandboxState.PAUSED)
    assert box.files.read("kept") == "yes"
    assert box.get_info().state == e2b.SandboxState.RUNNING
    box.kill()


def test_metrics_tell_what_is_used(sandbox):
    (metrics,) = sandbox.get_metrics()
    assert metrics.mem_total == 1 << 30 and metrics.cpu_count >= 1


def test_what_cannot_be_done_is_said(e2b, sandbox):
    with pytest.raises(e2b.SandboxException, match="501"):
        sandbox.create_snapshot()
    with pytest.raises(e2b.SandboxException, match="501"):
        e2b.Sandbox.create(network={"deny_out": ["0.0.0.0/0"]})


# --- Commands ---


def test_a_command_gives_its_output_and_status(e2b, sandbox):
    result = sandbox.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 0)
    with pytest.raises(e2b.CommandExitException) as failed:
        sandbox.commands.run("echo partly; exit 3")
    assert failed.value.exit_code == 3 and failed.value.stdout == "partly\n"


def test_commands_have_their_environment_directory_and_user(e2b):
    box = e2b.Sandbox.create(envs={"GLOBAL": "one", "BOTH": "global"}, timeout=60)
    run = box.commands.run
    assert run("echo $GLOBAL $BOTH $OWN $E2B_SANDBOX $USER $HOME",
               envs={"BOTH": "own", "OWN": "two"}).stdout == (
        "one own two true user /home/user\n")
    assert run("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert run("pwd", cwd="~").stdout == "/home/user\n"
    assert run("id -un; pwd", user="root").stdout == "root\n/root\n"
    with pytest.raises(e2b.InvalidArgumentException):
        run("pwd", cwd="/no/such/place")
    with pytest.raises(e2b.AuthenticationException):
        run("id", user="nosuchuser")
    with pytest.raises(e2b.AuthenticationException):
        box.files.read("x", user="nosuchuser")
    box.kill()


def test_big_output_is_complete(sandbox):
    size = 30_000_000
    result = sandbox.commands.run(
        f"head -c {size} /dev/zero | tr '\\0' x; head -c 100000 /dev/zero | tr '\\0' y >&2")
    assert len(result.stdout) == size and set(result.stdout) == {"x"}
    assert len(result.stderr) == 100000


def test_output_comes_while_the_command_runs(sandbox):
    pieces = []
    handle = sandbox.commands.run("echo first; read line; echo second $line",
                                  background=True, stdin=True)
    for out, _, _ in handle:
        pieces.append(out)
        if len(pieces) == 1:
            sandbox.commands.send_stdin(handle.pid, "given\n")
    assert "".join(piece or "" for piece in pieces) == "first\nsecond given\n"


def test_input_ends_when_it_is_closed(sandbox):
    handle = sandbox.commands.run("cat; echo over", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "a" * 300_000)
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "a" * 300_000 + "over\n"


def test_background_commands_are_listed_reached_again_and_killed(e2b, sandbox):
    handle = sandbox.commands.run("echo early; sleep 1000; true", background=True,
                                  envs={"A": "b"}, cwd="/tmp", timeout=0)
    (listed,) = sandbox.commands.list()
    assert listed.pid == handle.pid and listed.cmd == "/bin/bash"
    assert listed.args == ["-l", "-c", "echo early; sleep 1000; true"]
    assert listed.envs == {"A": "b"} and listed.cwd == "/tmp"
    handle.disconnect()
    again = sandbox.commands.connect(handle.pid)
    assert sandbox.commands.kill(handle.pid) is True
    with pytest.raises(e2b.CommandExitException) as ended:
        again.wait()
    assert ended.value.exit_code == -1 and ended.value.error == "signal: killed"
    assert ended.value.stdout == ""  # only what came after it had connected
    assert sandbox.commands.kill(handle.pid) is False
    assert sandbox.commands.kill(999999) is False


def test_a_command_ends_when_its_time_is_over(e2b, sandbox):
    with pytest.raises(e2b.TimeoutException):
        sandbox.commands.run("sleep 1000", timeout=1)
    until(lambda: not sandbox.commands.list())


def test_a_stream_ends_with_the_last_writer(sandbox):
    assert sandbox.commands.run("(sleep 0.2; echo late) & echo soon").stdout == (
        "soon\nlate\n")


def test_a_sandbox_that_is_killed_cuts_its_streams(e2b):
    box = e2b.Sandbox.create(timeout=60)
    handle = box.commands.run("echo here; sleep 1000", background=True, timeout=0)
    threading.Timer(0.3, box.kill).start()
    with pytest.raises(e2b.SandboxException):
        handle.wait()
    assert not box.is_running()


def test_a_terminal(sandbox):
    seen = []
    from e2b import PtySize
    handle = sandbox.pty.create(PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(handle.pid, b"stty size; tty; exit\n")
    handle.wait(on_pty=lambda data: seen.append(data))
    text = b"".join(seen).decode()
    assert "30 100" in text and "/dev/pts/" in text


def test_a_terminal_is_resized(sandbox):
    from e2b import PtySize
    seen = []
    handle = sandbox.pty.create(PtySize(rows=30, cols=100))
    sandbox.pty.resize(handle.pid, PtySize(rows=40, cols=120))
    sandbox.pty.send_stdin(handle.pid, b"stty size; exit\n")
    handle.wait(on_pty=lambda data: seen.append(data))
    assert "40 120" in b"".join(seen).decode()


# --- Files ---


def test_files_of_every_size_come_back_as_they_went(sandbox):
    for size in (0, 1, 4095, 65536, 5_000_001):
        data = os.urandom(size)
        sandbox.files.write("file", data)
        assert bytes(sandbox.files.read("file", format="bytes")) == data


NAMES = ["a b", "ü-ß-漢字", "quote'\"", "percent%41", "plus+and&amp", "semi;colon", "#hash",
         "question?", "back\\slash", "-dash", "dots..", "$HOME", "new\nline", "tab\t"]


@pytest.mark.parametrize("name", NAMES)
def test_names_with_every_awkward_character(sandbox, name):
    info = sandbox.files.write(f"d/{name}", "x")
    assert info.path == f"/home/user/d/{name}"
    assert sandbox.files.read(f"d/{name}") == "x"
    assert [entry.name for entry in sandbox.files.list("d")] == [name]
    sandbox.files.rename(f"d/{name}", f"d/{name}2")
    assert sandbox.files.exists(f"d/{name}2") and not sandbox.files.exists(f"d/{name}")
    sandbox.files.remove(f"d/{name}2")
    assert sandbox.files.list("d") == []


def test_many_files_in_one_call(sandbox):
    infos = sandbox.files.write_files(
        [{"path": f"many/{i}", "data": str(i) * i} for i in range(20)])
    assert [info.path for info in infos] == [f"/home/user/many/{i}" for i in range(20)]
    assert sandbox.files.read("many/19") == "19" * 19
    assert sandbox.files.read("many/0") == ""


def test_what_is_known_about_a_file(e2b, sandbox):
    sandbox.files.write("dir/file", "12345")
    sandbox.commands.run("chmod 640 dir/file; ln -s dir/file link; ln -s nowhere broken")
    info = sandbox.files.get_info("dir/file")
    assert (info.name, info.path, info.size, info.permissions) == (
        "file", "/home/user/dir/file", 5, "-rw-r-----")
    assert info.owner == info.group == "user" and info.mode == 0o640
    assert sandbox.files.get_info("link").symlink_target == "/home/user/dir/file"
    names = [entry.path for entry in sandbox.files.list(".", depth=2)]
    assert "/home/user/dir" in names and "/home/user/dir/file" in names


def test_directories(e2b, sandbox):
    assert sandbox.files.make_dir("x/y") is True
    assert sandbox.files.make_dir("x/y") is False
    sandbox.files.write("x/f", "")
    with pytest.raises(e2b.InvalidArgumentException):
        sandbox.files.list("x/f")
    with pytest.raises(e2b.NotFoundException):
        sandbox.files.list("nope")
    with pytest.raises(e2b.NotFoundException):
        sandbox.files.read("nope")
    with pytest.raises(e2b.SandboxException):
        sandbox.files.read("x")
    sandbox.files.remove("x")
    assert not sandbox.files.exists("x")


def test_other_users_files_are_theirs(e2b, sandbox):
    sandbox.files.write("/root/secret", "s", user="root")
    assert sandbox.files.read("/root/secret", user="root") == "s"
    with pytest.raises(e2b.SandboxException):
        sandbox.files.read("/root/secret")
    assert sandbox.files.write("own", "x", user="root").path == "/root/own"


def test_metadata_of_files(e2b, sandbox):
    sandbox.files.write("m", "x", metadata={"Origin": "test", "n": "1"})
    assert sandbox.files.get_info("m").metadata == {"origin": "test", "n": "1"}
    sandbox.files.write("m", "y", metadata={"n": "2"})
    assert sandbox.files.get_info("m").metadata == {"n": "2"}


def test_compressed_uploads(sandbox):
    data = b"abc" * 100_000
    sandbox.files.write("z", data, gzip=True)
    assert sandbox.files.get_info("z").size == len(data)
    assert bytes(sandbox.files.read("z", format="bytes", gzip=True)) == data


def test_signed_urls(sandbox):
    sandbox.files.write("signed file", "content")
    url = sandbox.download_url("signed file", use_signature_expiration=60)
    assert urllib.request.urlopen(url, timeout=30).read() == b"content"
    for wrong in (url.replace("signature=v1_", "signature=v1_A"),
                  url.replace("path=signed", "path=resigned"),
                  url.replace("signature_expiration=", "signature_expiration=9")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(wrong, timeout=30)
        assert refused.value.code == 401
    old = sandbox.download_url("signed file", use_signature_expiration=-60)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(old, timeout=30)
    assert refused.value.code == 401 and b"already expired" in refused.value.read()


def test_a_signed_upload(sandbox):
    url = sandbox.upload_url("up.txt")
    body = (b"--BOUNDARY\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n"
            b"Content-Type: application/octet-stream\r\n\r\nsent\r\n--BOUNDARY--\r\n")
    request = urllib.request.Request(
        url, data=body, headers={"Content-Type": "multipart/form-data; boundary=BOUNDARY"})
    assert urllib.request.urlopen(request, timeout=30).status == 200
    assert sandbox.files.read("up.txt") == "sent"


def test_a_watch_tells_of_changes(sandbox):
    sandbox.files.make_dir("w/sub")
    with_events = sandbox.files.watch_dir("w", recursive=True)
    sandbox.files.write("w/sub/f", "x")
    sandbox.commands.run("mkdir w/new; touch w/new/g; rm w/sub/f")
    seen = []

    def collect():
        seen.extend((event.type.value, event.name) for event in
                    with_events.get_new_events())
        return ("remove", "sub/f") in seen
    until(collect)
    for wanted in (("create", "sub/f"), ("write", "sub/f"), ("create", "new"),
                   ("create", "new/g")):
        assert wanted in seen, (wanted, seen)
    with_events.stop()


def test_a_full_disk_is_told(e2b, sandbox):
    with pytest.raises(e2b.NotEnoughSpaceException):
        sandbox.files.write("huge", b"\0" * (600 << 20))


# --- Async ---


def test_the_async_client(e2b):
    async def work():
        box = await e2b.AsyncSandbox.create(timeout=60)
        results = await asyncio.gather(*(box.commands.run(f"echo {i}") for i in range(20)))
        assert [result.stdout for result in results] == [f"{i}\n" for i in range(20)]
        events = []
        await box.files.make_dir("w")
        watch = await box.files.watch_dir("w", on_event=events.append)
        await box.files.write("w/f", "x")
        for _ in range(500):
            if any(event.type.value == "write" for event in events):
                break
            await asyncio.sleep(0.02)
        assert any(event.name == "f" for event in events)
        await watch.stop()
        await box.kill()
    asyncio.run(work())


# --- Restarts ---


def test_a_server_that_dies_loses_no_sandbox(e2b, own_server):
    server = own_server()
    box = e2b.Sandbox.create(timeout=120)
    box.files.write("kept", "yes")
    handle = box.commands.run("while ! test -e /tmp/go; do sleep 0.05; done; echo went",
                              background=True, timeout=0)
    server.process.kill()
    server.process.wait()
    with pytest.raises(Exception):
        handle.wait()
    server.process.stdout.close()
    server.start()
    assert box.files.read("kept") == "yes"  # with the token it had
    assert [item.pid for item in box.commands.list()] == [handle.pid]
    again = box.commands.connect(handle.pid)
    box.files.write("/tmp/go", "")
    assert again.wait().stdout == "went\n"
    assert box.kill() is True


def test_a_warm_pool_is_used_and_gone_with_the_server(e2b, own_server):
    server = own_server("--pool", "2", "--memory", "301M")

    def ready():
        # nobody else's sandboxes have this limit
        return [line.split()[0] for line in server.cay("ls").stdout.splitlines()
                if "301 MiB" in line]

    before = until(lambda: ready() if len(ready()) == 2 else None)
    box = e2b.Sandbox.create(timeout=60)
    assert f"sb-{box.sandbox_id}" in before
    assert box.commands.run("echo warm").stdout == "warm\n"
    until(lambda: len(ready()) == 3)  # it is filled up again
    assert len(e2b.Sandbox.list().next_items()) == 1
    own = e2b.Sandbox.create(timeout=60, envs={"A": "b"})
    assert own.commands.run("echo $A").stdout == "b\n"
    assert f"sb-{own.sandbox_id}" not in before
    server.stop()
    until(lambda: not ready())


def test_another_tenants_digest_is_right_under_load(e2b, server, sandbox):
    expected = hashlib.sha256(b"x" * 100_000).hexdigest()
    for _ in range(20):
        out = sandbox.commands.run("head -c 100000 /dev/zero | tr '\\0' x | sha256sum")
        assert out.stdout.split()[0] == expected
