# SPDX-License-Identifier: Apache-2.0
"""Where the server is, as `cay serve` and `cay env` print it, and `cay key` (issue 15,
sections 4 and 6)."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request

import pytest
from serving import CAY, PATIENCE, Server, unavailable, wait_until


def exports(text):
    return dict(re.findall(r"^export (\w+)=(.*)$", text, re.M))


def files(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def run(*words, **more):
    return subprocess.run([*words], capture_output=True, text=True, timeout=PATIENCE, check=False,
                          **more)


def test_env_prints_the_address_of_the_server_that_runs(own_server):
    server = own_server()
    assert server.port != 3000
    done = server.cay("env")
    assert (exports(done.stdout), done.stderr) == (server.exports, "")


def test_env_notices_that_the_server_was_killed(own_server):
    server = own_server()
    before = lasting(server)
    server.kill()
    assert f"serve-{server.port}.live" in files(server.home)
    done = server.cay("env")
    assert "no server of this user is running" in done.stderr and "127.0.0.1:3000" in done.stdout
    server.start()
    assert exports(server.cay("env").stdout) == server.exports
    server.stop()
    assert f"serve-{server.port}.live" not in files(server.home)
    server.start()
    assert set(before) <= set(lasting(server))


def test_env_asks_which_of_several_servers_is_meant(own_server):
    server = own_server()
    second = Server(server.home, "--reserve", "0").start()
    try:
        done = server.cay("env")
        assert done.returncode == 2 and "several servers" in done.stderr and not done.stdout
        done = server.cay("env", "--listen", f"127.0.0.1:{second.port}")
        assert exports(done.stdout) == second.exports
    finally:
        second.stop()
    assert exports(server.cay("env").stdout) == server.exports


@pytest.mark.parametrize("home", ["own", "of the server"])
def test_env_of_another_user_creates_nothing_and_says_what_to_do(own_server, tmp_path, home):
    if os.geteuid() != 0:
        unavailable("another user is one that root becomes")
    server = own_server()
    own = tmp_path / "home"
    own.mkdir()
    os.chown(own, 65534, 65534)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and path.name.startswith("pytest"):
            path.chmod(0o755)
    where = own / ".cay" if home == "own" else server.home
    before = files(own), lasting(server)
    done = run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", CAY, "env",
               env={**os.environ, "HOME": str(own), "CAY_HOME": str(where)})
    assert done.returncode != 0 and not done.stdout
    assert "cay key new" in done.stderr and "another user" in done.stderr
    assert (files(own), lasting(server)) == before


def lasting(server):
    """Without the files that the server itself creates while it serves."""
    return [name for name in files(server.home) if not name.startswith("serve.db-")]


def test_env_waits_for_a_server_that_is_being_started(tmp_path):
    env = {**os.environ, "CAY_HOME": str(tmp_path / "home")}
    with subprocess.Popen([CAY, "env"], env=env, stdout=subprocess.PIPE, text=True) as asking:
        time.sleep(0.2)
        server = Server(tmp_path / "home", "--reserve", "0").start()
        printed = asking.communicate(timeout=PATIENCE)[0]
    try:
        assert exports(printed)["E2B_API_KEY"] == server.key
    finally:
        server.clean()


def test_a_server_on_all_addresses_warns_and_prints_one_that_others_reach(tmp_path):
    env = {**os.environ, "CAY_HOME": str(tmp_path / "home")}
    own = re.findall(r"inet (?!127\.)([\d.]+)", run("ip", "-4", "addr").stdout)
    for words, host in (([], own[0] if own else "127.0.0.1"),
                        (["--domain", "boxes.example.com"], "boxes.example.com"),
                        (["--domain", "boxes.example.com:8080"], "boxes.example.com")):
        with (tmp_path / "err").open("w+") as err, subprocess.Popen(
                [CAY, "serve", "--listen", "0.0.0.0:0", *words], env=env, text=True,
                stdout=subprocess.PIPE, stderr=err) as server:
            try:
                printed = exports("".join(server.stdout.readline() for _ in range(4)))
                wait_until(lambda: "without TLS" in (tmp_path / "err").read_text(), "no warning")
                url = printed["E2B_API_URL"]
                assert re.match(rf"http://{re.escape(host)}:\d+$", url), url
                assert exports(run(CAY, "env", env=env).stdout) == printed
                if not words:
                    with urllib.request.urlopen(url + "/health", timeout=PATIENCE) as reply:
                        assert reply.status == 204
                    assert "--domain NAME" in (tmp_path / "err").read_text()
            finally:
                server.send_signal(signal.SIGTERM)


def test_a_server_on_loopback_does_not_warn(own_server):
    assert "without TLS" not in own_server().log.read_text()


def test_keys_as_json(own_server):
    server = own_server()
    for words in (("-o", "json", "new", "team"), ("new", "team", "--output=json")):
        made = json.loads(server.cay("key", *words).stdout)
        assert made["tenant"] == "team" and re.fullmatch(r"e2b_[0-9a-f]{40}", made["key"])
        assert server.api("GET", "/v2/sandboxes", X_API_KEY=made["key"])[0] == 200
    listed = json.loads(server.cay("key", "ls", "-o", "json").stdout)["keys"]
    assert [key["tenant"] for key in listed] == ["default", "team", "team"]
    assert listed[2]["key"] == made["key"][:10] + "..." and listed[2]["number"] == 3
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", listed[2]["created"])


def test_errors_of_keys_look_like_those_of_other_commands(own_server):
    server = own_server()
    done = server.cay("key", "rm", "999")
    assert done.stderr.startswith("cay: not-found: ") and done.returncode == 4
    done = server.cay("key", "-o", "json", "rm", "999")
    error = json.loads(done.stderr)["error"]
    assert (error["slug"], done.returncode, done.stdout) == ("not-found", 4, "")
    other = json.loads(server.cay("inspect", "-o", "json", "sb-none").stderr)["error"]
    assert set(other) == set(error)
    assert server.cay("key", "-o", "xml", "ls").stderr.startswith("cay: invalid: --output: ")
