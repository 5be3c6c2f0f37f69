# SPDX-License-Identifier: Apache-2.0
"""Header rules of E2B (network.rules), with the real SDK, in network namespaces of the tests' own."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from serving import PATIENCE, ROOT, Server

sys.path.append(str(ROOT / "tests" / "cli"))
from service import Service  # noqa: E402

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

VALUE = "s3cr3t-value/of+the-tests=9f8e7d"
SCRIPT = """
import json, sys
from e2b import Sandbox, Secret
from e2b.exceptions import SandboxException
def ask(box, url, *more):
    # The headers that the server of a URL gets, or the status and text of an error.
    code = "import json, sys, urllib.request, urllib.error\\n" \\
        "request = urllib.request.Request(sys.argv[1], headers=dict(one.split('=', 1) for one in sys.argv[2:]))\\n" \\
        "try: print(json.dumps(json.load(urllib.request.urlopen(request, timeout=60))['headers']))\\n" \\
        "except urllib.error.HTTPError as error: print(json.dumps([error.code, error.read().decode()]))\\n" \\
        "except OSError as error: print(json.dumps(str(error)))\\n" \\
        "except ValueError: print(json.dumps('no JSON'))"
    box.files.write("/tmp/ask.py", code)
    return json.loads(box.commands.run(" ".join(["python3", "/tmp/ask.py", url, *more])).stdout)
def rules(**headers):
    return {"api.test": [{"transform": {"headers": {name.replace("_", "-"): value for name, value in headers.items()}}}]}
made = []
def create(**network):
    made.append(Sandbox.create(network=network))
    return made[-1]
def show(value):
    print(json.dumps(value), flush=True)
"""


@pytest.fixture(scope="module", name="service")
def fixture_service(tmp_path_factory):
    made = Service(tmp_path_factory.mktemp("service"))
    yield made
    made.stop()


@pytest.fixture(scope="module", name="server")
def fixture_server(service, tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("home"), "--reserve", "0", "--internet", "open")
    server.before = service.command()
    yield server.start()
    server.clean()


@pytest.fixture(name="sdk")
def fixture_sdk(server, service):
    """The lines of JSON that a script prints."""
    def run(code):
        script = SCRIPT + textwrap.dedent(code) + "\nfor box in made: box.kill()\n"
        done = subprocess.run(service.command(sys.executable, "-c", script),
                              env={**os.environ, **server.exports}, capture_output=True, text=True,
                              timeout=4 * PATIENCE, check=False)
        assert done.returncode == 0, done.stderr + server.log.read_text()
        return [json.loads(line) for line in done.stdout.splitlines()]
    return run


def test_headers_are_added_and_replaced_outside(sdk, service):
    added, plain, other, info = sdk("""
        box = create(rules=rules(X_Injected="value", User_Agent="mine/1"))
        show(ask(box, "https://api.test/", "x-injected=own", "x-kept=yes"))
        show(ask(box, "http://api.test/", "x-injected=own"))
        show(ask(box, "http://good.test/"))
        show(box.get_info().network["rules"])
    """)
    for got in (added, plain):
        assert (got["x-injected"], got["user-agent"]) == ("value", "mine/1"), got
    assert added["x-kept"] == "yes" and other == "no JSON"
    assert info == {"api.test": [{"transform": {"headers": {"X-Injected": "value", "User-Agent": "mine/1"}}}]}
    seen = service.requests()[-2]
    assert seen["headers"]["x-injected"] == "value"


def test_a_stored_secret_is_sent_and_never_seen(sdk, service, server):
    before = len(service.requests())
    shown, plain, info, missing = sdk(f"""
        Secret.create("api-key", {VALUE!r})
        reference = "Bearer ${{e2b.secrets.API-key}}"
        box = create(rules=rules(Authorization=reference))
        show(ask(box, "https://api.test/"))
        show(ask(box, "http://api.test/"))
        show(box.get_info().network["rules"]["api.test"][0]["transform"]["headers"])
        try:
            create(rules=rules(Authorization="${{e2b.secrets.none}}"))
        except SandboxException as error:
            show(str(error))
        Secret.destroy("api-key")
    """)
    assert [one["headers"]["authorization"] for one in service.requests()[before:]] == ["Bearer " + VALUE]
    assert shown["authorization"] == "Bearer " + "*" * len(VALUE)
    assert plain[0] == 403 and "over TLS only" in plain[1]
    assert info == {"Authorization": "Bearer ${e2b.secrets.API-key}"}
    assert "400" in missing and "no stored secret" in missing
    for top in (server.home, Path("/run/cay")):
        for path in top.rglob("*"):
            if path.is_file():
                assert VALUE.encode() not in path.read_bytes(), path


def test_the_value_is_in_no_environment_or_argument(sdk):
    search = textwrap.dedent("""
        import glob
        for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
            try:
                data = open(path, "rb").read()
            except OSError:
                continue
            if NEEDLE[0] + NEEDLE[1] in data:
                print(path)
        """).replace("NEEDLE", repr((VALUE[:9].encode(), VALUE[9:].encode())))
    inside, outside = sdk(f"""
        import subprocess
        Secret.create("hidden", {VALUE[:9]!r} + {VALUE[9:]!r})
        box = create(rules=rules(X_Key="${{e2b.secrets.hidden}}"))
        ask(box, "https://api.test/")
        box.files.write("/tmp/search.py", {search!r})
        show(box.commands.run("python3 /tmp/search.py", user="root").stdout)
        show(subprocess.run([sys.executable, "-c", {search!r}], capture_output=True, text=True).stdout)
        Secret.destroy("hidden")
    """)
    assert (inside, outside) == ("", "")


def test_an_update_replaces_header_rules(sdk):
    got = sdk("""
        box = create(rules=rules(X_One="1"))
        show("x-one" in ask(box, "https://api.test/"))
        box.update_network({"rules": rules(X_Two="2")})
        seen = ask(box, "https://api.test/")
        show(["x-one" in seen, seen.get("x-two")])
        box.update_network({})
        show("x-two" in ask(box, "http://api.test/"))
        without = create()
        try:
            without.update_network({"rules": rules(X_Two="2")})
        except SandboxException as error:
            show("created without headers" in str(error))
    """)
    assert got == [True, [False, "2"], False, True]


@pytest.mark.parametrize("rules, status", [
    ({"api.test": [{"transform": {"headers": {"Content-Length": "1"}}}]}, 400),
    ({"api.test": [{"transform": {"headers": {"a b": "1"}}}]}, 400),
    ({"api.test": [{"transform": {"headers": {"x": "1\r\ny: 2"}}}]}, 400),
    ({"api.test": [{"transform": {"headers": {"x": "v" * 2049}}}]}, 400),
    ({"api.test": [{"transform": {"headers": {f"x{i}": "" for i in range(21)}}}]}, 400),
    ({"api.test": [{"transform": {"headers": {"x": 1}}}]}, 400),
    ({"api.test": [{}, {}]}, 400), ({"api.test": {}}, 400), ({"api_test!": [{"transform": {"headers": {"x": "1"}}}]}, 400),
    ({f"h{i}.test": [] for i in range(11)}, 400), ([], 400),
    ({"*.api.test": [{"transform": {"headers": {"x": "1"}}}]}, 501),
    ({"192.0.2.1": [{"transform": {"headers": {"x": "1"}}}]}, 501),
    ({"api.test": [{"transform": {"headers": {"x": "${e2b.identity.tokens.aws}"}}}]}, 501)])
def test_invalid_rules_are_refused(service, server, rules, status):
    body = json.dumps({"templateID": "base", "network": {"rules": rules}})
    done = subprocess.run(service.command(
        "curl", "-s", "-w", "\n%{http_code}", "-H", f"X-API-KEY: {server.key}", "-d", body,
        server.url + "/sandboxes"), capture_output=True, text=True, timeout=PATIENCE, check=True)
    text, _, got = done.stdout.rpartition("\n")
    assert int(got) == status == json.loads(text)["code"], done.stdout
