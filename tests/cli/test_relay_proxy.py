# SPDX-License-Identifier: Apache-2.0
"""cay-net as a proxy of HTTP, on 100.64.0.1:3128, for programs that use one."""

import os
import shutil
import textwrap

import pytest

from test_relay import INSIDE, PUBLIC, internet, sandbox  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

PROXY = r"""
def ask(*lines):
    sock = dial("100.64.0.1", 3128)
    sock.sendall("\r\n".join([*lines, "", ""]).encode())
    return sock
def rest(sock):
    data = b""
    with sock:
        while piece := sock.recv(65536):
            data += piece
    head, _, body = data.decode().partition("\r\n\r\n")
    return head.split(" ", 2)[1] + " " + body.strip()
def get(url, *headers):
    return rest(ask(f"GET {url} HTTP/1.1", *headers))
def tunnel(target):
    sock = ask(f"CONNECT {target} HTTP/1.1", f"Host: {target}")
    head = b""
    while not head.endswith(b"\r\n\r\n") and (piece := sock.recv(1)):
        head += piece
    return head.split(b" ")[1].decode(), sock
def refusal(target):
    return rest(ask(f"CONNECT {target} HTTP/1.1"))
def tls_by(target, name):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    status, sock = tunnel(target)
    try:
        with context.wrap_socket(sock, server_hostname=name) as wrapped:
            wrapped.sendall(b"GET / HTTP/1.1\r\nHost: tls\r\n\r\n")
            return status + " " + wrapped.recv(12).decode()
    except ssl.SSLError as error:
        return status + " " + error.reason
"""


def run(internet, rules, code):  # noqa: F811
    return internet.run(rules, PROXY + textwrap.dedent(code))


def test_requests_and_tunnels_reach_what_the_rules_allow(internet):  # noqa: F811
    assert run(internet, ["good.test", "good.test:7777", f"{PUBLIC}:80"], f"""
        print(get("http://good.test/x"))
        print(get("http://GOOD.test:80/x", "Host: evil.test", "Connection: keep-alive"))
        print(get("http://{PUBLIC}/"))
        print(tls_by("good.test:443", "good.test"))
        status, sock = tunnel("good.test:7777")
        print(status, sock.recv(7))
    """) == ["200 hello good.test", "200 hello GOOD.test:80", f"200 hello {PUBLIC}",
             "200 HTTP/1.1 200", "200 b'banner\\n'"]


def test_the_rules_are_those_of_other_connections(internet):  # noqa: F811
    lines = run(internet, ["good.test"], f"""
        print(get("http://evil.test/"))
        print(refusal("evil.test:443"))
        print(refusal("good.test:22"))
        for address in ("{PUBLIC}:80", "127.0.0.1:1", "127.0.0.1:22", "10.0.0.5:80", "169.254.169.254:80",
                        "100.64.0.1:3128", "[::1]:80", "[fd00:ec2::254]:80"):
            print(refusal(address))
        print(tls_by("good.test:443", "evil.test"))
        print(get("/"))
    """)
    assert all(line.startswith("403 cay: ") for line in lines[:11]), lines
    assert "good.test" in lines[0], lines  # what is allowed
    assert lines[11] == "200 TLSV1_ALERT_ACCESS_DENIED"
    assert lines[12].startswith("403 cay: the proxy takes"), lines
    assert "evil.test" not in internet.questions()


def test_a_refusal_and_a_failure_are_events(internet, sandbox):  # noqa: F811
    created = sandbox("good.test", "good.test:9")
    out = internet.cay("exec", created, "--", "python3", "-c", INSIDE + PROXY + textwrap.dedent("""
        print(refusal("evil.test:443"))
        print(refusal("good.test:9"))
    """))
    assert out.splitlines()[1].startswith("502 cay: cannot connect to good.test:9"), out
    events = internet.cay("events", created)
    assert "deny   evil.test tcp 443: rule default" in events, events
    assert "allow  good.test tcp 9 at " in events, events


def test_a_request_in_pieces_and_a_tunnel_with_early_bytes_work(internet):  # noqa: F811
    assert run(internet, ["good.test"], r"""
        sock = dial("100.64.0.1", 3128)
        for piece in (b"GET htt", b"p://good.test/ HTT", b"P/1.1\r\nX: y\r\n", b"\r\n"):
            sock.sendall(piece)
            time.sleep(0.05)
        print(rest(sock))
        sock = dial("100.64.0.1", 3128)
        sock.sendall(b"CONNECT good.test:80 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
        print(rest(sock).splitlines()[-1])
    """) == ["200 hello good.test", "hello good.test"]


def test_clients_use_the_proxy_if_a_variable_names_it(internet, sandbox):  # noqa: F811
    created = sandbox("good.test")
    assert "proxy" not in internet.cay("exec", created, "--", "env").lower()
    code = "import urllib.request; print(urllib.request.urlopen('http://good.test/').read().decode())"
    proxy = "http_proxy=http://100.64.0.1:3128"
    assert internet.cay("exec", "--env", proxy, created, "--", "python3", "-c", code) == "hello good.test\n"
    if shutil.which("curl"):
        assert internet.cay("exec", created, "--", "curl", "-sS", "-k", "-x", "http://100.64.0.1:3128",
                            "https://good.test/") == "hello good.test"
