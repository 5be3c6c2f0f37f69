# SPDX-License-Identifier: Apache-2.0
"""E2B's network fields, with the real SDK, in network namespaces of the tests' own."""

import json
import os
import subprocess
import sys
import textwrap
import time

import javascript
import pytest
from serving import PATIENCE, ROOT, Server

sys.path.append(str(ROOT / "tests" / "cli"))
from test_relay import PUBLIC, internet  # noqa: E402, F401 (a fixture)

SCRIPT = """
import json, sys
from e2b import Sandbox
from e2b.exceptions import SandboxException
def reach(box, *hosts):
    code = "import urllib.request, sys\\n" \\
        "for host in sys.argv[1:]:\\n" \\
        "    try: print(urllib.request.urlopen('http://' + host, timeout=60).status)\\n" \\
        "    except OSError as error: print(getattr(error, 'code', None) or 'no')"
    done = box.commands.run("python3 -c \\"%s\\" %s" % (code.replace('"', '\\\\"'), " ".join(hosts)))
    return done.stdout.split()
made = []
def create(**options):
    made.append(Sandbox.create(**options))
    return made[-1]
"""


@pytest.fixture(scope="module", name="sdk")
def fixture_sdk(internet, tmp_path_factory):
    """Servers in the namespace, and the SDK beside them: the JSON that a script prints."""
    servers = {}

    def start(network):
        if network not in servers:
            server = Server(tmp_path_factory.mktemp("home"), "--reserve", "0", "--internet", network)
            server.before = internet.command()
            servers[network] = server.start()
        return servers[network]

    def run(network, code):
        server = start(network)
        script = SCRIPT + textwrap.dedent(code) + "\nfor box in made: box.kill()\n"
        done = subprocess.run(internet.command(sys.executable, "-c", script),
                              env={**os.environ, **server.exports}, capture_output=True, text=True,
                              timeout=4 * PATIENCE, check=False)
        assert done.returncode == 0, done.stderr + server.log.read_text()
        return [json.loads(line) for line in done.stdout.splitlines()]

    run.start = start
    yield run
    for server in servers.values():
        server.clean()


def test_an_open_server_reaches_public_hosts_only(sdk):
    assert sdk("open", """
        box = create()
        print(json.dumps(reach(box, "good.test", "private.test", "meta.test", "127.0.0.1:80")))
        print(json.dumps(box.get_info().allow_internet_access))
        closed = create(allow_internet_access=False)
        print(json.dumps(reach(closed, "good.test")))
        print(json.dumps(closed.get_info().allow_internet_access))
    """) == [["200", "403", "403", "no"], True, ["no"], False]


def test_rules_at_creation_are_those_of_e2b(sdk):
    got = sdk("open", f"""
        every = "0.0.0.0/0"
        box = create(network=dict(deny_out=[every], allow_out=["good.test", "{PUBLIC}"]))
        print(json.dumps(reach(box, "good.test", "other.test", "{PUBLIC}", "93.184.216.11")))
        print(json.dumps(box.get_info().network, default=lambda one: one.__dict__))
        box = create(network=dict(deny_out=["{PUBLIC}/32"]))
        print(json.dumps(reach(box, "good.test", "{PUBLIC}")))
    """)
    # other.test leads to the address that is allowed.
    assert got[0] == ["200", "200", "200", "403"]
    assert got[2] == ["403", "403"]
    shown = got[1]
    assert (shown.get("allow_out") or shown["allowOut"]) == ["good.test", PUBLIC]
    assert (shown.get("deny_out") or shown["denyOut"]) == ["0.0.0.0/0"]


def test_an_update_replaces_all_rules(sdk):
    assert sdk("open", """
        box = create(network=dict(deny_out=["0.0.0.0/0"]))
        print(json.dumps(reach(box, "good.test")))
        box.update_network({"allow_out": ["good.test"], "deny_out": ["0.0.0.0/0"]})
        print(json.dumps(reach(box, "good.test", "other.test")))
        box.update_network({})
        print(json.dumps(reach(box, "good.test", "other.test")))
        box.update_network({"deny_out": ["93.184.216.0/24"]})
        print(json.dumps(reach(box, "good.test")))
    """) == [["no"], ["200", "no"], ["200", "200"], ["403"]]


def test_other_destinations_wait_for_approval(sdk):
    got = sdk("open", f"""
        import os, threading, time, urllib.request
        def api(method, path, body=None):
            request = urllib.request.Request(
                os.environ["E2B_API_URL"] + path, method=method, data=json.dumps(body).encode() if body else None,
                headers={{"X-API-KEY": os.environ["E2B_API_KEY"]}})
            text = urllib.request.urlopen(request, timeout=60).read()
            return json.loads(text) if text else None
        def waiting():
            deadline = time.monotonic() + {PATIENCE}
            while time.monotonic() < deadline:
                found = [one for one in api("GET", "/approvals") if not one["decided"]]
                if found:
                    return found[0]
                time.sleep(0.05)
        def ask(*hosts, verdict):
            result = []
            thread = threading.Thread(target=lambda: result.extend(reach(box, *hosts)))
            thread.start()
            one = waiting()
            api("POST", "/approvals/" + one["approvalID"], {{"verdict": verdict}})
            thread.join()
            return [one["kind"], one["subject"], one["sandboxID"] == box.sandbox_id, *result]
        approvals = {{"egress": True}}
        new = api("POST", "/v2/sandboxes", {{
            "templateID": "base", "timeout": 600, "approvals": approvals,
            "network": {{"allowOut": ["good.test"], "denyOut": ["0.0.0.0/0", "93.184.216.11"]}}}})
        box = Sandbox.connect(new["sandboxID"])
        made.append(box)
        print(json.dumps(reach(box, "good.test", "93.184.216.11", "10.0.0.1")))
        print(json.dumps(ask("other.test", verdict="deny")))
        print(json.dumps(ask("other.test", verdict="allow")))
        box.update_network({{"allow_out": ["good.test"], "deny_out": ["0.0.0.0/0"]}})
        print(json.dumps(ask("other.test", verdict="remember") + reach(box, "other.test")))
        print(json.dumps([one["subject"] for one in api("GET", "/approval-rules")]))
        print(json.dumps(api("GET", "/sandboxes/" + box.sandbox_id)["approvals"]))
    """)
    assert got == [["200", "403", "403"], ["egress", "other.test:80", True, "403"],
                   ["egress", "other.test:80", True, "200"], ["egress", "other.test:80", True, "200", "200"],
                   ["other.test:80"], {"commands": [], "egress": True, "timeout": 600}]


def test_approval_of_connections_needs_an_open_server(sdk):
    assert sdk("good.test", """
        import os, urllib.error, urllib.request
        request = urllib.request.Request(
            os.environ["E2B_API_URL"] + "/v2/sandboxes", headers={"X-API-KEY": os.environ["E2B_API_KEY"]},
            data=json.dumps({"templateID": "base", "approvals": {"egress": True}}).encode())
        try:
            urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as error:
            print(json.dumps([error.code, "server decides" in json.load(error)["message"]]))
    """) == [[501, True]]


def test_an_update_changes_the_access_to_the_internet(sdk):
    assert sdk("open", """
        from e2b.exceptions import NotFoundException
        box = create()
        box.update_network({"allow_internet_access": False})
        print(json.dumps([reach(box, "good.test"), box.get_info().allow_internet_access]))
        Sandbox.update_network(box.sandbox_id, {"allow_internet_access": True})
        print(json.dumps([reach(box, "good.test"), box.get_info().allow_internet_access]))
        box.kill()
        try:
            box.update_network({})
        except NotFoundException:
            print(json.dumps("not found"))
    """) == [[["no"], False], [["200"], True], "not found"]


# Connections to port 80 of two hosts; after a line of input, whether each has ended.
HOLD = """
import socket, sys
socks = [socket.create_connection((host, 80)) for host in sys.argv[1:]]
for sock in socks:
    sock.sendall(b"GET")
print("held", flush=True)
input()
for sock in socks:
    sock.settimeout(1)
    try:
        print("ended" if sock.recv(1) == b"" else "data")
    except TimeoutError:
        print("open")
    except OSError:
        print("cut")
"""


def test_an_update_cuts_connections_that_it_denies(sdk):
    assert sdk("open", f"""
        box, held = create(), ""
        box.files.write("hold.py", {HOLD!r})
        process = box.commands.run("python3 hold.py {PUBLIC} 93.184.216.11", background=True, stdin=True,
                                   timeout=0)
        for out, _, _ in process:
            held += out or ""
            if out and "held" in out:
                box.update_network({{"deny_out": ["{PUBLIC}"]}})
                box.commands.send_stdin(process.pid, "go\\n")
        print(json.dumps(held.split()))
    """) == [["held", "cut", "open"]]


def test_the_async_sdk_sets_and_updates_rules(sdk):
    assert sdk("open", f"""
        import asyncio
        from e2b import AsyncSandbox
        async def show(box, *hosts):
            codes = []
            for host in hosts:
                done = await box.commands.run("curl -s -o /dev/null -w '%{{http_code}}' " + host + " || true")
                codes.append(done.stdout)
            print(json.dumps(codes))
        async def main():
            box = await AsyncSandbox.create(network=dict(
                deny_out=lambda context: [context.all_traffic], allow_out=["{PUBLIC}", "93.184.216.11"]))
            await show(box, "{PUBLIC}", "93.184.216.11")
            await box.update_network({{"deny_out": ["{PUBLIC}"]}})
            await show(box, "{PUBLIC}", "93.184.216.11")
            await box.update_network({{}})
            await show(box, "{PUBLIC}")
            await box.kill()
            closed = await AsyncSandbox.create(allow_internet_access=False)
            await show(closed, "good.test")
            await closed.kill()
        asyncio.run(main())
    """) == [["200", "200"], ["403", "200"], ["200"], ["000"]]


def test_dns_servers_need_no_rule(sdk):
    """Queries to any nameserver are answered for the allowed names only."""
    assert sdk("open", """
        box = create(network=dict(deny_out=["0.0.0.0/0"], allow_out=["good.test"], dns_servers=["9.9.9.9"]))
        print(json.dumps(reach(box, "good.test", "other.test")))
    """) == [["200", "no"]]


def test_a_server_with_rules_lets_clients_only_deny(sdk):
    assert sdk("good.test,93.184.216.10:80", f"""
        box = create()
        print(json.dumps(reach(box, "good.test", "other.test", "{PUBLIC}")))
        box.update_network({{"deny_out": ["{PUBLIC}"]}})
        print(json.dumps(reach(box, "good.test", "{PUBLIC}")))
        try:
            create(network=dict(allow_out=["other.test"], deny_out=["0.0.0.0/0"]))
        except SandboxException as error:
            print(json.dumps("allowOut is not allowed" in str(error)))
        closed = create(allow_internet_access=False)
        print(json.dumps(reach(closed, "good.test")))
    """) == [["200", "no", "200"], ["403", "403"], True, ["no"]]


@pytest.fixture(scope="module", name="outcomes")
def fixture_outcomes(sdk, internet):
    known = {}

    def outcomes(package):
        if package not in known:
            env = {**sdk.start("open").exports, "CAY_PUBLIC": PUBLIC}
            known[package] = javascript.run("network.mjs", package, env, internet.command())
        return known[package]

    return outcomes


@pytest.mark.parametrize("name", javascript.names("network.mjs"))
@pytest.mark.parametrize("package", ["e2b-2.45", "e2b"])
def test_javascript(outcomes, package, name):
    javascript.check(outcomes(package), name)


def test_spares_of_the_server_get_the_rules_of_the_request(internet, tmp_path):
    server = Server(tmp_path / "home", "--reserve", "0", "--internet", "open", "--pool", "2",
                    "--network-limit", "connections=7,rate=1G")
    server.before = internet.command()
    server.start()
    try:
        script = SCRIPT + textwrap.dedent("""
            import os, subprocess, time
            from urllib.parse import urlparse
            def pools():
                return json.loads(subprocess.run([sys.argv[1], "pool", "ls", "-o", "json"],
                                                 capture_output=True).stdout)["pools"]
            while not any(pool["ready"] == 2 for pool in pools()):
                time.sleep(0.05)
            before = sum(pool["claimed"] for pool in pools())
            box = create(network=dict(deny_out=["0.0.0.0/0"], allow_out=["good.test"]))
            print(json.dumps(reach(box, "good.test", "other.test")))
            shown = subprocess.run([sys.argv[1], "network", "sb-" + box.sandbox_id, "-o", "json"],
                                   capture_output=True)
            print(json.dumps(json.loads(shown.stdout)["limits"]))
            from urllib.request import Request, urlopen
            with urlopen(Request(f"{os.environ['E2B_API_URL']}/sandboxes/{box.sandbox_id}/metrics",
                                 headers={"X-API-Key": os.environ["E2B_API_KEY"]})) as reply:
                (sample,) = json.load(reply)
            print(sample["networkConnections"], sample["networkRefused"] > 0, sample["networkDown"] > 0)
            while sum(pool["claimed"] for pool in pools()) == before:
                time.sleep(0.05)
            box.kill()
        """)
        done = subprocess.run(internet.command(sys.executable, "-c", script, os.environ["CAY_BIN"]),
                              env={**os.environ, **server.exports}, capture_output=True, text=True,
                              timeout=4 * PATIENCE, check=False)
        limits = '{"connections": 7, "rate": 1073741824}'
        assert (done.returncode, done.stdout) == (
            0, f'["200", "no"]\n{limits}\n1 True True\n'), done.stderr
    finally:
        server.clean()


# --- The fields, without a network ---


@pytest.fixture(scope="module", name="open_server")
def fixture_open_server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("home"), "--reserve", "0", "--internet", "open").start()
    yield server
    server.clean()


def create(server, **more):
    status, box = server.api("POST", "/v2/sandboxes", {"templateID": "base", **more})
    assert status == 201, box
    return box["sandboxID"]


@pytest.mark.parametrize("network, words", [
    ({"denyOut": ["example.com"]}, "denyOut takes addresses"),
    ({"denyOut": ["10.0.0.0/33"]}, "denyOut takes addresses"),
    ({"allowOut": ["example.com"]}, "need 0.0.0.0/0 in denyOut"),
    ({"allowOut": ["a..b"], "denyOut": ["0.0.0.0/0"]}, "a..b"),
    ({"allowOut": "example.com"}, "allowOut"),
    ({"allowOut": [7]}, "allowOut"),
    ({"allowOut": ["!example.com"]}, "allowOut"),
    ({"denyOut": [f"10.0.{i // 250}.{i % 250}" for i in range(600)]}, "too many"),
])
def test_invalid_rules_are_refused(open_server, network, words):
    box = create(open_server)
    for status, body in (
        open_server.api("POST", "/v2/sandboxes", {"templateID": "base", "network": network}),
        open_server.api("PUT", f"/sandboxes/{box}/network", network),
    ):
        assert status == body["code"] == 400 and words in body["message"], body
    assert open_server.api("GET", f"/sandboxes/{box}")[1]["network"]["denyOut"] == []
    open_server.api("DELETE", f"/sandboxes/{box}")


@pytest.mark.parametrize("mask", ["", "a b", "a\r\nX: y", "${HOST}", "${PORT}${PORT}", "a/b"])
def test_an_invalid_mask_is_refused(open_server, mask):
    status, body = open_server.api("POST", "/v2/sandboxes", {
        "templateID": "base", "network": {"maskRequestHost": mask}})
    assert status == 400 and "maskRequestHost" in body["message"]


def test_what_is_not_supported_is_refused(open_server):
    for network in ({"rules": {"*.test": [{"transform": {"headers": {"a": "b"}}}]}},
                    {"egressProxy": {"address": "a.test:1080"}}):
        assert open_server.api("POST", "/v2/sandboxes",
                               {"templateID": "base", "network": network})[0] == 501


def test_an_update_replaces_what_get_info_shows(open_server):
    box = create(open_server, metadata={"a": "b"}, network={
        "allowOut": ["*.Example.com", "2001:db8::/32"], "denyOut": ["0.0.0.0/0"],
        "allowPublicTraffic": False, "maskRequestHost": "app.test:${PORT}"})

    def info():
        return open_server.api("GET", f"/sandboxes/{box}")[1]

    shown = info()
    assert shown["metadata"] == {"a": "b"} and shown["allowInternetAccess"] is True
    assert shown["network"] == {
        "allowOut": ["*.Example.com", "2001:db8::/32"], "denyOut": ["0.0.0.0/0"],
        "allowPublicTraffic": False, "maskRequestHost": "app.test:${PORT}"}
    open_server.restart()
    assert info()["network"] == shown["network"]
    assert open_server.api("PUT", f"/sandboxes/{box}/network",
                           {"allow_internet_access": False}) == (204, None)
    shown = info()
    assert shown["allowInternetAccess"] is False and shown["metadata"] == {"a": "b"}
    assert shown["network"] == {"allowOut": [], "denyOut": [], "allowPublicTraffic": False,
                                "maskRequestHost": "app.test:${PORT}"}
    assert "!0.0.0.0/0" in open_server.cay("network", f"sb-{box}").stdout
    assert open_server.api("PUT", f"/sandboxes/{box}/network", {})[0] == 204
    assert info()["allowInternetAccess"] is True
    assert open_server.api("POST", f"/sandboxes/{box}/pause")[0] == 204
    status, body = open_server.api("PUT", f"/sandboxes/{box}/network", {})
    assert (status, body["code"]) == (409, 409)
    open_server.api("DELETE", f"/sandboxes/{box}")
    assert open_server.api("PUT", f"/sandboxes/{box}/network", {})[0] == 404


def test_hidden_metadata_cannot_be_set(open_server):
    status, body = open_server.api("POST", "/v2/sandboxes", {
        "templateID": "base", "metadata": {"\x01mask": "evil.test"}})
    assert status == 400 and "metadata" in body["message"]


def test_a_server_without_internet_refuses_rules_that_allow(server):
    status, body = server.api("POST", "/v2/sandboxes", {
        "templateID": "base", "network": {"allowOut": ["a.test"], "denyOut": ["0.0.0.0/0"]}})
    assert status == 501 and "network rules" in body["message"]
    box = create(server, network={"denyOut": ["0.0.0.0/0"]})  # nothing is reached anyway
    assert server.api("PUT", f"/sandboxes/{box}/network", {})[0] == 501
    server.api("DELETE", f"/sandboxes/{box}")


def test_the_host_of_a_request_is_masked(open_server):
    import e2b

    options = open_server.options_of("default")
    box = e2b.Sandbox.create(network={"mask_request_host": "custom.example.com:${PORT}"}, **options)
    plain = e2b.Sandbox.create(**options)
    for each, wanted in ((box, "custom.example.com:8000"), (plain, f"8000-{plain.sandbox_id}")):
        code = "import http.server as s\n" \
            "class H(s.BaseHTTPRequestHandler):\n" \
            "    def do_POST(self):\n" \
            "        body = self.rfile.read(int(self.headers['Content-Length']))\n" \
            "        self.send_response(200); self.end_headers()\n" \
            "        self.wfile.write(self.headers['Host'].encode() + b' ' + body)\n" \
            "s.HTTPServer(('', 8000), H).serve_forever()"
        each.files.write("/home/user/serve.py", code)
        each.commands.run("python3 serve.py", background=True)
        host = each.get_host(8000)
        for _ in range(PATIENCE * 20):
            done = subprocess.run(["curl", "-s", "-H", f"Host: {host}", "-d", "body",
                                   open_server.url], capture_output=True, text=True, check=False)
            if done.stdout.endswith(" body"):
                break
            time.sleep(0.05)
        assert done.stdout.startswith(wanted) and done.stdout.endswith(" body"), done.stdout
        each.kill()


@pytest.mark.parametrize("value, words", [
    ("pypy", "did you mean pypi"), ("a..test", "a..test"), ("", "none, open, host"),
    ("open,pypi", "open"),
])
def test_an_invalid_network_of_the_server_is_refused(tmp_path, value, words):
    done = subprocess.run([os.environ.get("CAY_BIN", "cay"), "serve", "--listen", "127.0.0.1:0",
                           "--internet", value], env={**os.environ, "CAY_HOME": str(tmp_path)},
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0 and words in done.stderr, done.stderr


@pytest.mark.parametrize("words, message", [
    (("--internet", "open", "--network-limit", "speed=1"), "connections=64"),
    (("--network-limit", "bytes=1G"), "no network that could be limited"),
])
def test_an_invalid_limit_of_the_server_is_refused(tmp_path, words, message):
    done = subprocess.run([os.environ.get("CAY_BIN", "cay"), "serve", "--listen", "127.0.0.1:0", *words],
                          env={**os.environ, "CAY_HOME": str(tmp_path)}, capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    assert done.returncode != 0 and message in done.stderr, done.stderr


def test_a_fork_has_the_network_rules_of_its_sandbox(sdk):
    rules, before, after = sdk("open", f"""
        box = create(network=dict(deny_out=["0.0.0.0/0"], allow_out=["good.test"], mask_request_host="a.test"))
        [fork] = box.fork()
        made.append(fork)
        shown = [one.get_info().network for one in (box, fork)]
        print(json.dumps(shown[0] == shown[1] and bool(shown[0])))
        print(json.dumps(reach(box, "good.test", "{PUBLIC}")))
        print(json.dumps(reach(fork, "good.test", "{PUBLIC}")))
        """)
    assert rules is True and before == after == ["200", "403"]
