# SPDX-License-Identifier: Apache-2.0
"""Ports of sandboxes from outside, with the real SDKs: getHost, public traffic and its tokens, masks.

A server has a certificate for a wildcard name below localhost; its sandboxes have no network, an
open one, or rules.
"""

import json
import os
import subprocess
import sys
import textwrap

import javascript
import pytest
from serving import PATIENCE
from test_serving import fixture_certificate, needs_names, serving  # noqa: F401 (a fixture)

SCRIPT = """
import json, urllib.error, urllib.request
from e2b import AsyncSandbox, Sandbox
SITE = '''
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["Host"].encode())
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
'''
made = []
def create(**options):
    made.append(Sandbox.create(**options))
    return made[-1]
def serve(box):
    box.files.write("site.py", SITE)
    box.commands.run("python3 site.py", background=True)
    box.commands.run("until (: < /dev/tcp/127.0.0.1/8000); do sleep 0.05; done 2>/dev/null")
    return f"https://{box.get_host(8000)}/"
def get(url, token=None):
    request = urllib.request.Request(url, headers={"e2b-traffic-access-token": token} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, json.load(error).get("code")
def show(*values):
    print(json.dumps(values))
"""
NETWORKS = ["none", "open", "pypi"]


@pytest.fixture(scope="module", name="start", params=NETWORKS)
def fixture_start(request, tmp_path_factory, certificate):
    """What programs export to use a server with TLS."""
    needs_names()
    if request.param != "none" and os.geteuid() != 0:
        pytest.skip("tests of network rules are run by root")
    cert, key = map(str, certificate)
    with serving(tmp_path_factory.mktemp("home"), "--domain", "boxes.localhost:PORT", "--tls-cert", cert,
                 "--tls-key", key, "--internet", request.param) as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
        yield {**env, "E2B_DOMAIN": f"boxes.localhost:{server.port}", "E2B_API_KEY": server.key,
               "SSL_CERT_FILE": cert, "NODE_EXTRA_CA_CERTS": cert}


def run(env, code):
    script = SCRIPT + textwrap.dedent(code) + "\nfor box in made: box.kill()\n"
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True,
                          timeout=4 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_port_is_reached_by_its_name(start):
    assert run(start, """
        for options in ({}, {"network": {"allow_public_traffic": True}}):
            box = create(**options)
            status, host = get(serve(box))
            show(status, host == box.get_host(8000), box.traffic_access_token)
    """) == [[200, True, None]] * 2


def test_a_port_without_public_traffic_needs_the_token_of_its_sandbox(start):
    assert run(start, """
        box, other = (create(network={"allow_public_traffic": False}) for _ in "ab")
        url = serve(box)
        show(get(url), get(url, "wrong"), get(url, other.traffic_access_token))
        show(get(url, box.traffic_access_token)[0])
        again = Sandbox.connect(box.sandbox_id)
        show(again.traffic_access_token == box.traffic_access_token)
        show(get(f"https://{box.get_host(49999)}/contexts")[0])
    """) == [[[403, 403]] * 3, [200], [True], [403]]


def test_a_mask_replaces_the_host_that_a_port_sees(start):
    assert run(start, """
        box = create(network={"mask_request_host": "custom-host.example.com:${PORT}"})
        show(get(serve(box)))
        print(json.dumps(box.get_info().sandbox_id == box.sandbox_id))
    """) == [[[200, "custom-host.example.com:8000"]], True]


def test_an_update_of_the_rules_leaves_tokens_and_masks(start):
    got = run(start, """
        box = create(network={"allow_public_traffic": False, "mask_request_host": "a.test"})
        url = serve(box)
        try:
            box.update_network({"deny_out": ["0.0.0.0/0"]})
        except Exception as error:
            show(type(error).__name__)
        show(get(url), get(url, box.traffic_access_token))
    """)
    assert got[-1] == [[403, 403], [200, "a.test"]]


def test_the_async_sdk_reaches_ports(start):
    assert run(start, """
        import asyncio, os, sys
        async def main():
            box = await AsyncSandbox.create(network={"allow_public_traffic": False})
            await box.files.write("site.py", SITE)
            await box.commands.run("python3 site.py", background=True)
            await box.commands.run(
                "until (: < /dev/tcp/127.0.0.1/8000); do sleep 0.05; done 2>/dev/null")
            url = f"https://{box.get_host(8000)}/"
            show(get(url), get(url, box.traffic_access_token)[0])
            await box.kill()
        asyncio.run(main())
        sys.stdout.flush()
        os._exit(0)  # pyqwest 0.12 aborts at the exit of an interpreter whose streams are open
    """) == [[[403, 403], 200]]


@pytest.fixture(scope="module", name="outcomes")
def fixture_outcomes(start):
    known = {}

    def outcomes(package):
        if package not in known:
            known[package] = javascript.run("public.mjs", package, start)
        return known[package]

    return outcomes


@pytest.mark.parametrize("name", javascript.names("public.mjs"))
@pytest.mark.parametrize("package", ["e2b-2.45", "e2b"])
def test_javascript(outcomes, package, name):
    javascript.check(outcomes(package), name)
