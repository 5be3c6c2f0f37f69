# SPDX-License-Identifier: Apache-2.0
"""One of several servers, and several behind HAProxy, without a shared store."""

import os
import re
import signal
import ssl
import subprocess
import urllib.request

import pytest
from cluster import NODES, Node, Proxy
from serving import CAY, PATIENCE, unavailable, wait_until
from system import make_system

KEY = "e2b_" + "5" * 40


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    """Starts servers with a node's name."""
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    started = []

    def start(name="naaa", *options):
        started.append(Node(tmp_path / name, name, "--reserve", "0", *options).start())
        return started[-1]

    yield start
    for one in started:
        one.clean()


@pytest.fixture(scope="module", name="cluster")
def fixture_cluster(tmp_path_factory):
    """Three servers with one key of tokens and one API key, and the proxy."""
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    home = tmp_path_factory.mktemp("cluster")
    for name, text in (("key", "ab" * 32 + "\n"), ("api-key", KEY + "\n")):
        (home / name).touch(mode=0o600)
        (home / name).write_text(text)
    nodes = [Node(home / name, name, "--reserve", "0", "--server-key-file", str(home / "key"),
                  "--api-key-file", str(home / "api-key")).start() for name in NODES]
    proxy = Proxy(home, nodes, "--domain", "localhost").start()
    proxy.nodes = nodes
    wait_until(lambda: all(status_of(proxy.url + path) in (200, 204)
                           for path in ("/health", "/ready")), "no node is up")
    yield proxy
    proxy.stop()
    for one in nodes:
        one.clean()


def status_of(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def of(proxy):
    return {"api_url": proxy.url, "sandbox_url": proxy.url, "api_key": KEY}


def test_an_id_begins_with_the_node(node):
    server = node()
    status, made = server.api("POST", "/sandboxes", {"templateID": "base"})
    assert status == 201
    assert re.fullmatch("naaa[a-z2-7]{12}", made["sandboxID"])


def test_spares_of_a_pool_have_the_prefix_too(node):
    server = node("naab", "--pool", "1")
    wait_until(lambda: server.has_spares(1), "the pool has no spare")
    status, made = server.api("POST", "/sandboxes", {"templateID": "base"})
    assert status == 201
    assert made["sandboxID"].startswith("naab")


def test_a_sandbox_of_another_node_is_503_and_not_404(node):
    server = node()
    foreign = "naab" + "a" * 12
    for method, path, headers in (
            ("GET", f"/sandboxes/{foreign}", {}),
            ("DELETE", f"/sandboxes/{foreign}", {}),
            ("POST", f"/sandboxes/{foreign}/pause", {}),
            ("GET", "/files?path=x", {"E2b-Sandbox-Id": foreign, "X-Access-Token": "x"}),
            ("GET", "/", {"Host": f"8000-{foreign}.localhost"})):
        status, body = server.api(method, path, **headers)
        assert status == 503, (path, body)
        assert "another node" in body["message"]
    assert server.api("GET", "/sandboxes/naaa" + "a" * 12)[0] == 404
    assert server.api("GET", "/sandboxes/nosuchsandbox")[0] == 404


def test_503_has_a_time_to_retry(node):
    server = node()
    request = urllib.request.Request(f"{server.url}/sandboxes/naab{'a' * 12}",
                                     headers={"X-API-KEY": server.key})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=PATIENCE)
    assert error.value.headers["Retry-After"] == "1"
    error.value.close()


def test_a_full_node_says_so_and_creates_nothing(node):
    server = node("naaa", "--max-sandboxes", "1")
    assert server.ready()[0] == 200
    assert re.fullmatch(r"ready up \d+%\n", server.say())
    made = server.api("POST", "/sandboxes", {"templateID": "base"})[1]
    assert server.ready()[0] == 404
    assert '"full"' in server.ready()[1]
    assert server.say() == "ready up 0%\n"
    before = server.ids()
    status, body = server.api("POST", "/sandboxes", {"templateID": "base"})
    assert (status, body["message"]) == (503, "the server is full")
    assert server.ids() == before
    assert server.api("DELETE", f"/sandboxes/{made['sandboxID']}")[0] == 204
    assert server.ready()[0] == 200


def test_a_node_that_drains_ends_after_its_last_sandbox(node):
    server = node()
    made = server.api("POST", "/sandboxes", {"templateID": "base"})[1]
    path = f"/sandboxes/{made['sandboxID']}"
    server.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: server.say() == "drain\n", "the agent does not drain")
    assert server.ready()[0] == 404
    assert '"draining"' in server.ready()[1]
    assert server.api("POST", "/sandboxes", {"templateID": "base"})[0] == 503
    assert server.api("GET", path)[0] == 200
    server.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: server.ready()[0] == 200, "the server does not stay")
    server.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: server.ready()[0] == 404, "the server does not drain")
    assert server.process.poll() is None
    assert server.api("DELETE", path)[0] == 204
    assert server.process.wait(PATIENCE) == 0


def test_tokens_hold_while_the_server_key_is_replaced(node, tmp_path):
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    old, new = "1" * 64, "2" * 64
    keys.write_text(old + "\n")
    server = node("naaa", "--server-key-file", str(keys))
    made = server.api("POST", "/sandboxes", {"templateID": "base"})[1]
    named = {"E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983"}

    def works(token):
        return server.api("GET", "/envs", **named, **{"X-Access-Token": token})[0] == 200

    assert works(made["envdAccessToken"])
    keys.write_text(f"{new}\n{old}\n")
    server.restart()
    now = server.api("GET", f"/sandboxes/{made['sandboxID']}")[1]["envdAccessToken"]
    assert now != made["envdAccessToken"]
    assert works(now)
    assert works(made["envdAccessToken"])
    keys.write_text(new + "\n")
    server.restart()
    assert works(now)
    assert not works(made["envdAccessToken"])


@pytest.mark.parametrize("options, says", [
    (("--node", "abc"), "4 of the letters"),
    (("--node", "AAAA"), "4 of the letters"),
    (("--node", "abc1"), "4 of the letters"),
    (("--agent", "3001"), "add --node NAME"),
    (("--node", "naaa", "--agent", "70000"), "whole number"),
    (("--require-level", "perfect"), "root, range, single or landlock"),
    (("--server-key-file", "/nonexistent"), "not found"),
    (("--haproxy",), "NODE=HOST:PORT"),
    (("--haproxy", "naaa=host"), "NODE=HOST:PORT"),
    (("--haproxy", "nope=h:1 x"), "NODE=HOST:PORT"),
    (("--haproxy", "na=10.0.0.1:3000"), "NODE=HOST:PORT"),
])
def test_options_of_nodes_are_checked(tmp_path, options, says):
    done = subprocess.run([CAY, "serve", *options], capture_output=True, text=True, check=False,
                          timeout=PATIENCE, env={**os.environ, "CAY_HOME": str(tmp_path / "h")})
    assert done.returncode != 0
    assert says.lower() in done.stderr.lower()


@pytest.mark.parametrize("text, mode, says", [
    ("ab" * 31, 0o600, "no server key"), ("xy" * 32, 0o600, "no server key"),
    ("ab" * 32 + "\nabc", 0o600, "no server key"), ("", 0o600, "no server key"),
    ("ab" * 32, 0o644, "other users")])
def test_a_wrong_server_key_file_is_refused(tmp_path, text, mode, says):
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(mode)
    done = subprocess.run([CAY, "serve", "--server-key-file", str(path)], capture_output=True,
                          text=True, check=False, timeout=PATIENCE,
                          env={**os.environ, "CAY_HOME": str(tmp_path / "h")})
    assert done.returncode != 0
    assert says in done.stderr
    assert "ababab" not in done.stderr


def test_the_required_level_is_checked_before_the_start(node, tmp_path):
    server = node("naaa", "--require-level", "landlock")
    assert server.ready()[0] == 200
    done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", CAY,
                           "serve", "--require-level", "root"], capture_output=True, text=True,
                          check=False, timeout=PATIENCE, env={**os.environ, "CAY_HOME": "/tmp/none",
                                                              "XDG_RUNTIME_DIR": "/nonexistent"})
    assert done.returncode != 0


def test_haproxy_follows_names_and_not_addresses(tmp_path):
    done = subprocess.run([CAY, "serve", "--haproxy", "naaa=one.example.com:3000/3001",
                           "naab=10.0.0.1:3000", "naac=[fd00::1]:3000", "naad=fd00.example:3000"],
                          capture_output=True, text=True, check=True, timeout=PATIENCE,
                          env={**os.environ, "CAY_HOME": str(tmp_path / "h")})
    assert done.stdout.count("\nresolvers system\n") == 1
    lines = [line for line in done.stdout.splitlines() if line.startswith("    server ")]
    assert len(lines) == 16
    for line in lines:
        is_name = line.split()[1] in ("naaa", "naad")
        assert line.endswith(" resolvers system init-addr none") == is_name
    done = subprocess.run([CAY, "serve", "--haproxy", "naab=10.0.0.1:3000"], capture_output=True,
                          text=True, check=True, timeout=PATIENCE,
                          env={**os.environ, "CAY_HOME": str(tmp_path / "h")})
    assert "resolvers" not in done.stdout


# --- Behind HAProxy ---

def test_sessions_behind_a_proxy_with_tls_are_for_tls_alone(cluster, tmp_path):
    """A cookie with __Host- cannot be set by the page of a sandbox."""
    pem = tmp_path / "tls.pem"
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                           "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost", "-days",
                           "1", "-keyout", "-", "-out", "-"], check=True, capture_output=True,
                          timeout=PATIENCE)
    pem.write_bytes(made.stdout)
    proxy = Proxy(tmp_path, cluster.nodes, "--domain", "localhost", "--tls-cert", str(pem)).start()
    try:
        context = ssl.create_default_context(cadata=re.search(
            "-----BEGIN CERT.*END CERTIFICATE-----\n", made.stdout.decode(), re.S)[0])

        def sign_in():
            request = urllib.request.Request(
                f"https://localhost:{proxy.port}/ui/session", b'{"apiKey": "%s"}' % KEY.encode(),
                {"Content-Type": "application/json", "X-Forwarded-Proto": "http"})
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as reply:
                    return reply.headers.get_all("Set-Cookie")
            except urllib.error.HTTPError as error:  # until HAProxy has checked a server
                with error:
                    assert error.code == 503
                    return None

        cookies = wait_until(sign_in, "no node is up")
        assert cookies[0].startswith("__Host-cay_session=s1_") and len(cookies) == 2
        assert all("; Secure" in cookie for cookie in cookies)
    finally:
        proxy.stop()


def test_sandboxes_on_all_nodes_work_through_the_proxy(cluster):
    from e2b import Sandbox

    made = [Sandbox.create(**of(cluster), timeout=600) for _ in range(9)]
    assert {one.sandbox_id[:4] for one in made} == set(NODES)
    for number, one in enumerate(made):
        one.files.write("name", f"number {number}")
        assert one.commands.run("cat name").stdout == f"number {number}"
        heard = []
        one.commands.run("for i in 1 2 3; do echo $i; done", on_stdout=heard.append)
        assert "".join(heard).split() == ["1", "2", "3"]
        again = Sandbox.connect(one.sandbox_id, **of(cluster))
        assert again.files.read("name") == f"number {number}"
        assert again.get_info().sandbox_id == one.sandbox_id
    made[0].pause()
    assert Sandbox.connect(made[0].sandbox_id, **of(cluster)).is_running()
    for one in made:
        assert one.kill()
        assert status_of(f"{cluster.url}/sandboxes/{one.sandbox_id}", **{"X-API-KEY": KEY}) == 404


def test_ports_go_to_their_node(cluster):
    from e2b import Sandbox

    for _ in range(3):
        sandbox = Sandbox.create(**of(cluster), timeout=600)
        server = sandbox.commands.run(
            "mkdir -p w && cd w && echo hello >page && exec python3 -m http.server 8000",
            background=True)
        host = f"8000-{sandbox.sandbox_id}.localhost"
        wait_until(lambda: status_of(f"{cluster.url}/page", Host=host) == 200,
                   "the port does not answer")
        server.kill()
        sandbox.kill()


def test_a_link_for_an_upload_names_the_node_that_gave_it(cluster):
    for node in cluster.nodes:
        status, made = node.api("POST", "/v3/templates", {"name": "linked"}, X_API_KEY=KEY)
        assert status == 202, made
        path = f"/templates/{made['templateID']}/files/{'ab' * 32}"
        urls = [node.api("GET", path, X_API_KEY=KEY, Host=f"localhost:{cluster.port}",
                         X_Forwarded_Proto=proto)[1]["url"] for proto in ("http", "https")]
        assert [url.partition(":")[0] for url in urls] == ["http", "https"]
        assert all(url.endswith(f"&node={node.node}") for url in urls)
        request = urllib.request.Request(urls[0], b"whatever the node", method="PUT")
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            assert reply.status == 200
        assert node.api("GET", path, X_API_KEY=KEY)[1]["present"]
        assert node.api("DELETE", "/templates/linked", X_API_KEY=KEY)[0] == 204


def test_all_requests_of_a_build_reach_one_node(cluster, tmp_path):
    from e2b import Sandbox, Template

    def found_on():
        return [node for node in cluster.nodes
                if node.api("GET", "/templates/aliases/built", X_API_KEY=KEY)[0] == 200]

    request = urllib.request.Request(cluster.url + "/v3/templates", b'{"name": "built"}',
                                     {"X-API-KEY": KEY, "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        assert reply.status == 202
    [node] = [node for node in cluster.nodes
              if node.api("GET", "/templates/built", X_API_KEY=KEY)[0] == 200]
    make_system(tmp_path / "system")
    done = node.cay("template", "create", "e2b-base", "--from-dir", str(tmp_path / "system"))
    assert done.returncode == 0, done.stderr
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "file").write_text("copied\n")
    template = (Template(file_context_path=str(tmp_path / "context")).from_base_image()
                .copy("file", "file").run_cmd("for i in 1 2 3; do cat file; sleep 0.2; done"))
    logs = []
    Template.build(template, "built", on_build_logs=lambda entry: logs.append(entry.message),
                   **of(cluster))
    assert logs.count("copied") == 3
    assert found_on() == [node]
    assert all(Template.exists("built", **of(cluster)) for _ in range(2 * len(NODES)))
    sandbox = Sandbox.create("built", **{**of(cluster), "api_url": node.url})
    assert sandbox.sandbox_id.startswith(node.node)
    assert sandbox.files.read("file") == "copied\n"
    sandbox.kill()

    def removed():
        status, reply = node.api("DELETE", "/templates/built", X_API_KEY=KEY)
        return status == 204 or "a sandbox uses" not in reply["message"]

    wait_until(removed, "the template stays")
    assert found_on() == []


def test_errors_of_the_proxy_are_json(cluster):
    text = cluster.file.read_text()
    assert text.count("application/json") >= 6
    status, body = cluster.nodes[0].api("GET", "/sandboxes/naad" + "a" * 12)
    assert status == 503
    assert body["code"] == 503


def test_a_draining_node_gets_no_new_sandboxes_and_keeps_its_own(cluster):
    from e2b import Sandbox

    made = {}
    while len(made) < len(NODES):
        one = Sandbox.create(**of(cluster), timeout=600)
        made.setdefault(one.sandbox_id[:4], one)
    leaving = cluster.nodes[0]
    leaving.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: leaving.say() == "drain\n", "the node does not drain")
    later = [Sandbox.create(**of(cluster), timeout=600) for _ in range(6)]
    assert all(one.sandbox_id[:4] != leaving.node for one in later)
    assert made[leaving.node].commands.run("echo here").stdout == "here\n"
    leaving.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: leaving.ready()[0] == 200, "the node does not stay")

    def comes_back():
        later.append(Sandbox.create(**of(cluster), timeout=600))
        return later[-1].sandbox_id.startswith(leaving.node)

    wait_until(comes_back, "the node gets no sandboxes after the drain")
    for one in [*made.values(), *later]:
        one.kill()


def test_a_sandbox_of_a_node_that_is_down_is_503_and_comes_back(cluster):
    from e2b import Sandbox

    kept = []
    while not kept or not kept[-1].sandbox_id.startswith("naac"):
        kept.append(Sandbox.create(**of(cluster), timeout=600))
    path = f"{cluster.url}/sandboxes/{kept[-1].sandbox_id}"
    down = cluster.nodes[2]
    down.kill()
    seen = {status_of(path, **{"X-API-KEY": KEY}) for _ in range(20)}
    assert seen <= {502, 503}, seen
    made = [Sandbox.create(**of(cluster), timeout=600) for _ in range(6)]
    assert all(not one.sandbox_id.startswith("naac") for one in made)
    down.start()
    wait_until(lambda: status_of(path, **{"X-API-KEY": KEY}) == 200, "the sandbox is not back")
    assert kept[-1].commands.run("echo alive").stdout == "alive\n"
    for one in [*kept, *made]:
        one.kill()
