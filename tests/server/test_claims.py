# SPDX-License-Identifier: Apache-2.0
"""What is answered is so: nothing is claimed that is not there, and nothing denied that is."""

import contextlib
import json
import os
import signal
import subprocess

import pytest
import raw
from e2b import Template
from serving import CAY, PATIENCE, Server, wait_until


def test_a_template_exists_if_sandboxes_can_be_made_of_it(server):
    assert Template.exists("base") and Template.exists("code-interpreter-v1")
    assert not Template.exists("no-such-template")
    assert server.api("GET", "/templates/aliases/base") == (
        200, {"templateID": "base", "public": True})
    assert server.api("GET", "/templates/aliases/base", X_API_KEY="e2b_00")[0] == 401


@pytest.mark.parametrize("path", [
    "/templates", "/templates/base", "/v2/templates", "/templates/base/builds/b1"])
def test_what_is_not_there_yet_says_so(server, path):
    assert server.api("POST", path, {"name": "base", "tags": ["x"]})[0] == 501


def test_a_timeout_that_is_not_given_changes_nothing(server, sandbox):
    path = f"/sandboxes/{sandbox.sandbox_id}"
    before = server.api("GET", path)[1]["endAt"]
    for body in ({}, {"timeout": None}):
        status, answer = server.api("POST", f"{path}/timeout", body)
        assert status == 400 and answer["message"].startswith("timeout is missing")
    assert server.api("GET", path)[1]["endAt"] == before


def test_a_small_body_that_nobody_needs_is_no_reason_to_refuse(server, create):
    path = f"/sandboxes/{create(timeout=PATIENCE).sandbox_id}"
    assert server.api("GET", path, {})[0] == 200
    assert server.api("DELETE", path, {})[0] == 204
    assert server.api("DELETE", path, {"x": "y" * 5000})[0] == 413


def test_a_server_starts_without_the_default_key(own_server):
    server = own_server()
    other = server.new_key("default")
    number = server.cay("key", "ls").stdout.split("\t")[0]
    assert server.cay("key", "rm", number).returncode == 0
    server.stop()
    server.start(exports=3)
    assert "default API key was removed" in server.log.read_text()
    assert server.api("GET", "/v2/sandboxes", X_API_KEY=other)[0] == 200
    done = server.cay("env")
    assert done.returncode != 0 and "was removed" in done.stderr and not done.stdout


def test_a_word_too_many_is_refused(server):
    keys = server.cay("key", "ls").stdout
    for words in (["new", "t1", "t2"], ["ls", "extra"], ["rm", "999", "1"], ["rm"]):
        done = server.cay("key", *words)
        assert done.returncode != 0 and "cay key rm NUMBER" in done.stderr
    assert server.cay("key", "ls").stdout == keys


def pair(directory, name):
    """A key and its own certificate."""
    files = [str(directory / f"{name}.{kind}") for kind in ("crt", "key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-days",
                    "1", "-out", files[0], "-keyout", files[1]],
                   check=True, capture_output=True, timeout=PATIENCE)
    return files


def test_env_knows_that_a_server_speaks_tls(own_server, tmp_path):
    cert, key = pair(tmp_path, "a")
    server = own_server("--tls-cert", cert, "--tls-key", key)
    assert server.url.startswith("https://")
    printed = server.cay("env", "--listen", f"127.0.0.1:{server.port}").stdout
    assert dict(line.removeprefix("export ").split("=", 1)
                for line in printed.splitlines()) == server.exports
    assert "=http://" in server.cay("env", "--listen", "127.0.0.1:1").stdout


def test_a_pair_that_is_none_is_told_before_the_start(tmp_path):
    (cert, key), (_, other) = pair(tmp_path, "a"), pair(tmp_path, "b")
    for files, named in (((key, key), key), ((cert, cert), cert), ((cert, other), other),
                         (("/dev/null", key), "/dev/null")):
        done = subprocess.run([CAY, "serve", "--listen", "127.0.0.1:0", "--tls-cert", files[0],
                               "--tls-key", files[1]], capture_output=True, text=True,
                              timeout=PATIENCE, check=False,
                              env={**os.environ, "CAY_HOME": str(tmp_path)})
        assert done.returncode != 0 and done.stderr.startswith(f"cay: invalid: {named}: ")
        assert not done.stdout


def test_a_server_that_cannot_speak_gives_up_and_says_so(tmp_path):
    server = Server(tmp_path / "home").start()
    while server.process.poll() is None:
        for pid in server.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert server.stop() != 0
    assert "the front keeps exiting" in server.log.read_text()


def test_a_name_that_is_not_utf8_does_not_break_lists_and_watches(sandbox):
    sandbox.files.make_dir("/tmp/n")
    watcher = sandbox.files.watch_dir("/tmp/n", include_entry=True)
    sandbox.commands.run(r'touch "/tmp/n/$(printf "a\377b")" /tmp/n/ok')
    assert sorted(entry.name for entry in sandbox.files.list("/tmp/n")) == ["a\ufffdb", "ok"]
    assert "a\ufffdb" in {event.name for event in watcher.get_new_events()}


def test_what_is_wrong_is_named(server, shared):
    def complaint(method, path, body):
        return server.api(method, path, body)[1]["message"]

    def call(path, body):
        return raw.ask(server, raw.sized(f"POST {path}", json.dumps(body).encode(),
                                         *raw.of(shared, "Connection: close"))).json["message"]

    assert complaint("POST", "/v2/sandboxes", {"templateID": "base", "timeout": "x"}).startswith(
        "timeout is ")
    assert complaint("POST", "/v2/sandboxes", {"templateID": "base", "autoResume": {
        "enabled": 1}}).startswith("enabled is ")
    assert complaint("POST", "/v2/sandboxes", {}).startswith("templateID is ")
    assert 'template "mine" not found' == complaint("POST", "/v2/sandboxes", {"templateID": "mine"})
    assert "invalid sandbox id" in complaint("GET", "/sandboxes/A-B", None)
    assert call("/filesystem.Filesystem/Stat", {"path": 1}).startswith("path is ")
    assert call("/filesystem.Filesystem/Move", {"source": "x"}).startswith("destination is ")
    assert call("/process.Process/SendSignal", {"process": {"pid": 1}}).startswith("signal is ")
    assert call("/process.Process/SendSignal", {"process": {"pid": "x"}}).startswith("pid is ")


def test_modes_are_as_go_has_them(shared):
    shared.commands.run("cp /bin/true /tmp/u; chmod 4755 /tmp/u; mkdir -m 3777 /tmp/t;"
                        "ln -s u /tmp/l")

    def told(path):
        info = shared.files.get_info(path)
        return info.mode, info.permissions

    assert told("/tmp/u") == (0o755, "urwxr-xr-x")
    assert told("/tmp/t") == (0o777, "dgtrwxrwxrwx")
    assert told("/tmp/l")[1][0] == "L"


def test_a_disk_without_a_limit_has_no_size(own_server):
    server = own_server("--storage", "disk")
    made = server.api("POST", "/v2/sandboxes", {"templateID": "base"})[1]
    path = f"/sandboxes/{made['sandboxID']}"
    assert server.api("GET", path)[1]["diskSizeMB"] == 0
    (sample,) = server.api("GET", f"{path}/metrics")[1]
    assert (sample["diskUsed"], sample["diskTotal"]) == (0, 0)
    assert server.api("DELETE", path)[0] == 204


def test_a_disk_with_a_limit_has_its_size(own_server):
    server = own_server("--storage", "disk", "--disk", "64M")
    made = server.api("POST", "/v2/sandboxes", {"templateID": "base"})[1]
    path = f"/sandboxes/{made['sandboxID']}"
    assert server.api("GET", path)[1]["diskSizeMB"] == 64
    (sample,) = server.api("GET", f"{path}/metrics")[1]
    assert 0 < sample["diskUsed"] < sample["diskTotal"] == 64 << 20
    assert server.api("DELETE", path)[0] == 204


@pytest.mark.parametrize("spares", [0, 1])
def test_a_pause_that_cannot_be_is_not_promised(tmp_path, spares):
    """It would run on when its time is over, for ever."""
    if os.geteuid() != 0:
        pytest.skip("only root can take the cgroups away")
    server = Server(tmp_path / "home", "--reserve", "0", "--pool", str(spares))
    server.before = ("unshare", "-m", "sh", "-c",
                     'umount -lR /sys/fs/cgroup && exec "$0" "$@"')
    server.start()
    with contextlib.ExitStack() as stack:
        stack.callback(server.clean)
        wait_until(lambda: server.has_spares(spares), "the pool is not filled")
        wanted = {"templateID": "base", "timeout": 1, "autoPause": True}
        status, answer = server.api("POST", "/v2/sandboxes", wanted)
        assert status == 501 and "cannot be paused" in answer["message"]
        status, made = server.api("POST", "/v2/sandboxes", {"templateID": "base"})
        assert status == 201
        assert server.api("POST", f"/sandboxes/{made['sandboxID']}/pause", {})[0] == 501
        (listed,) = server.api("GET", "/v2/sandboxes")[1]
        assert listed["sandboxID"] == made["sandboxID"]


def test_what_a_port_answers_reads_well(server, shared):
    def ask(line, port, *headers):
        return raw.ask(server, raw.request(line, "Connection: close", *headers,
                                           host=shared.get_host(port)))

    shared.commands.run("echo 12345 > /tmp/f; cd /tmp; exec python3 -m http.server 8765",
                        background=True, timeout=0)
    wait_until(lambda: ask("GET /f", 8765).status == 200, "nothing listens")
    assert ask("HEAD /f", 8765).headers["content-length"] == "6"
    assert ask("GET /", 8766).json["port"] == 8766
    page = ask("GET /", 8766, "Accept: text/html,*/*;q=0.8")
    assert page.status == 502 and page.headers["content-type"] == "text/html; charset=utf-8"
    assert b"port is not open" in page.body
