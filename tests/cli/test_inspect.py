# SPDX-License-Identifier: Apache-2.0
"""Requests of sandboxes whose network rules have methods and paths."""

import os
import subprocess
import textwrap

import pytest

from conftest import CAY, PATIENCE
from service import TALK, Service
from test_relay import INSIDE, change

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

RULES = ["GET api.test/v1/*", "POST api.test/v1/items", "HEAD api.test"]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = Service(tmp_path_factory.mktemp("service"))
    yield made
    made.stop()


def run(service, rules, code, *words):
    allow = [word for rule in rules for word in ("--allow", rule)]
    out = service.cay("run", *allow, *words, "--", "python3", "-c",
                      INSIDE + TALK + textwrap.dedent(code))
    return out.splitlines()


@pytest.mark.parametrize("sock", ['dial("api.test", 80)', 'secure("api.test")'], ids=["http", "tls"])
class TestBoth:
    def test_only_requests_that_a_rule_allows_reach_the_server(self, service, sock):
        before = len(service.requests())
        lines = run(service, RULES, f"""
            for method, path in (("GET", "/v1/a"), ("POST", "/v1/items"), ("HEAD", "/x"),
                                 ("GET", "/v2"), ("DELETE", "/v1/items"), ("GET", "/v1/../v2"),
                                 ("GET", "/v1/%2e%2e/v2")):
                more = "Content-Length: 0\\r\\n" if method == "POST" else ""
                reply = talk({sock}, get(path, method=method, more=more))
                print(method, path, reply[0][0] if method == "HEAD" else reply[0])
        """)
        allowed = [(each["method"], each["path"]) for each in service.requests()[before:]]
        assert allowed == [("GET", "/v1/a"), ("POST", "/v1/items"), ("HEAD", "/x")]
        assert [line.split("(")[-1][:3] for line in lines[:2]] == ["200", "200"]
        assert lines[2] == "HEAD /x 200"
        assert all("(403, 'cay: " in line for line in lines[3:])
        assert "/v2 is not allowed: no rule names it. Allowed: GET api.test/v1/*" in lines[3]

    def test_every_request_of_a_kept_connection_is_checked(self, service, sock):
        before = len(service.requests())
        lines = run(service, RULES, f"""
            for status, text in talk({sock}, get("/v1/a"), get("/v1/b"), get("/v2"), get("/v1/c")):
                print(status, text)
            sock = {sock}
            print(talk(sock, get("/v1/d"))[0][0])
            print(talk(sock, get("/v2"))[0][0])
        """)
        assert [line[:3] for line in lines] == ["200", "200", "403", "200", "403"]
        assert [each["path"] for each in service.requests()[before:]] == ["/v1/a", "/v1/b", "/v1/d"]

    def test_bodies_arrive_whole(self, service, sock):
        before = len(service.requests())
        lines = run(service, RULES, f"""
            data = "0123456789abcdef" * 20000
            sock = {sock}
            more = f"Content-Length: {{len(data)}}\\r\\n"
            status, text = talk(sock, get("/v1/items", method="POST", more=more) + data)[0]
            print(status, json.loads(text)["body"] == data)
            chunks = "".join(f"{{len(part):x}}\\r\\n{{part}}\\r\\n" for part in (data, "x", data)) + "0\\r\\n\\r\\n"
            more = "Transfer-Encoding: chunked\\r\\n"
            status, text = talk(sock, get("/v1/items", method="POST", more=more) + chunks)[0]
            print(status, json.loads(text)["body"] == data + "x" + data)
            print(talk(sock, get("/v1/end"))[0][0])
        """)
        assert lines == ["200 True", "200 True", "200"]
        assert len(service.requests()) - before == 3

    def test_requests_that_servers_may_read_in_two_ways_never_arrive(self, service, sock):
        before = len(service.requests())
        lines = run(service, RULES, f"""
            hidden = "GET /v2/hidden HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n"
            post = "POST /v1/items HTTP/1.1\\r\\nHost: api.test\\r\\n"
            for text in (
                post + f"Content-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + hidden,
                post + f"Content-Length: 0\\r\\nContent-Length: {{len(hidden)}}\\r\\n\\r\\n" + hidden,
                post + f"Content-Length: {{len(hidden)}}\\n\\r\\n" + hidden,
                post + "X: y\\r\\n Content-Length: 0\\r\\n\\r\\n" + hidden,
                post + "Transfer-Encoding : chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + hidden,
                "TRACE /v1/a HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n",
                "GET /v1/a HTTP/1.0\\r\\nHost: api.test\\r\\n\\r\\n",
                "GET /v1/a HTTP/1.1\\r\\nHost: api.test\\r\\nHost: other.test\\r\\n\\r\\n",
                "GET http://api.test/v2 HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n",
            ):
                print(attempt(lambda: [status for status, _ in talk({sock}, text)]))
            later = talk({sock}, post + "Content-Length: 0\\r\\n\\r\\n" + hidden, "")
            print([status for status, _ in later])
        """)
        assert lines[:-1] == ["[400]"] * 9 or set(lines[:-1]) <= {"[400]", "[403]", "ECONNRESET", "[]"}, lines
        assert not [line for line in lines[:-1] if "200" in line]
        assert lines[-1].startswith("[200")
        paths = [each["path"] for each in service.requests()[before:]]
        assert paths == ["/v1/items"]

    def test_a_host_header_of_another_host_is_refused_in_later_requests_too(self, service, sock):
        before = len(service.requests())
        lines = run(service, RULES + ["other.test"], f"""
            for status, text in talk({sock}, get("/v1/a"), get("/v1/a", host="other.test")):
                print(status, text)
        """)
        assert lines[0][:3] == "200"
        assert lines[1].startswith("421 cay: a request to api.test names another host, other.test")
        assert len(service.requests()) - before == 1

    def test_an_upgrade_does_not_lead_out_of_inspection(self, service, sock):
        before = len(service.requests())
        lines = run(service, RULES, f"""
            more = "Connection: Upgrade, HTTP2-Settings\\r\\nUpgrade: h2c\\r\\nHTTP2-Settings: AAMAAABkAAQAAP__\\r\\n"
            print([status for status, _ in talk({sock}, get("/v1/a", more=more))])
            print(attempt(lambda: [status for status, _ in
                                   talk({sock}, "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n")]))
        """)
        assert lines[0] == "[200]" and "200" not in lines[1]
        (seen,) = service.requests()[before:]
        assert "upgrade" not in seen["headers"] and "http2-settings" not in seen["headers"]


def test_headers_that_replace_the_method_or_the_path_are_checked_as_well(service):
    before = len(service.requests())
    lines = run(service, RULES, """
        for more in ("X-HTTP-Method-Override: DELETE", "X_Http_Method: delete", "X-Original-URL: /v2",
                     "X-Rewrite-Url: http://api.test/v1/a", "X-HTTP-Method-Override: GET",
                     "X-Method-Override: get\\r\\nX-Original-URL: /v1/b"):
            print(talk(dial("api.test", 80), get("/v1/a", more=more + "\\r\\n"))[0][0])
    """)
    assert lines == ["403", "403", "403", "403", "200", "200"]
    assert len(service.requests()) == before + 2


def test_a_server_whose_certificate_is_not_valid_is_not_reached(service):
    before = len(service.requests())
    lines = run(service, ["GET bad.test"], """
        print(talk(secure("bad.test"), get("/", host="bad.test"))[0])
        print(talk(dial("bad.test", 80), get("/", host="bad.test"))[0][0])
    """)
    assert lines[0].startswith("(502, 'cay: no verified connection to bad.test: ")
    assert lines[1] == "200"
    assert len(service.requests()) - before == 1


def test_connections_without_a_server_name_or_for_http_2_only_are_refused(service):
    lines = run(service, RULES, """
        print(tls("api.test"))
        try:
            secure("api.test", protocols=["h2"])
        except ssl.SSLError as error:
            print("refused")
        print(secure("api.test", protocols=["h2", "http/1.1"]).selected_alpn_protocol())
    """)
    assert lines == ["TLSV1_ALERT_ACCESS_DENIED", "refused", "http/1.1"]


def test_other_protocols_are_refused_where_requests_are_inspected(service):
    assert run(service, ["GET api.test:80", "GET good.test:7777"], """
        def speak():
            with dial("api.test", 80) as sock:
                sock.sendall(b"SSH-2.0-x\\r\\n")
                return sock.recv(100)
        print(attempt(speak))
        print(attempt(lambda: dial("good.test", 7777).sendall(b"x" * 100) or "sent"))
    """)[0] == "ECONNRESET"


def test_other_hosts_are_not_opened(service):
    lines = run(service, RULES + ["good.test"], """
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        from hashlib import sha256
        with context.wrap_socket(dial("good.test", 443), server_hostname="good.test") as sock:
            print(sha256(sock.getpeercert(True)).hexdigest())
    """)
    import hashlib
    import ssl
    pem = (service.base / "cert.pem").read_text()
    assert lines == [hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()]


def test_a_sandbox_without_such_rules_has_no_authority(service):
    lines = run(service, ["api.test"], """
        import os
        print(os.path.exists("/etc/cay"), "SSL_CERT_FILE" in os.environ)
        print(tls("api.test", name="api.test"))
    """)
    assert lines == ["False False", "answer"]


CLIENTS = {
    "curl": "curl -s -o /dev/null -w '%{http_code}' https://api.test/v1/a",
    "node": "node -e \"fetch('https://api.test/v1/a').then(r => console.log(r.status))\"",
    "python3": "python3 -c \"import urllib.request as r; print(r.urlopen('https://api.test/v1/a').status)\"",
    "openssl": "echo | openssl s_client -connect api.test:443 -servername api.test -verify_return_error"
               " 2>/dev/null | grep -q 'Verify return code: 0' && echo 1",
    "wget": "wget -qO- https://api.test/v1/a >/dev/null && echo 200",
    "git": "git ls-remote https://api.test/v1/a && echo 200",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_trust_the_authority_of_the_sandbox(service, client):
    done = service.cay("run", "--allow", "GET api.test", "--", "sh", "-c",
                       f"command -v {client} >/dev/null || {{ echo none; exit; }}; {CLIENTS[client]}",
                       check=False)
    if done.stdout == b"none\n":
        pytest.skip(f"no {client}")
    assert done.stdout.decode().strip() in ("200", "1"), done


def test_new_rules_apply_to_the_next_request_of_a_connection(service):
    created = service.cay("create", "--allow", "GET api.test").strip()
    work = INSIDE + TALK + textwrap.dedent("""
        sock = dial("api.test", 80)
        print(talk(sock, get("/v1/a"))[0][0], flush=True)
        sys.stdin.readline()
        print(talk(sock, get("/v1/a"))[0][0], talk(dial("api.test", 80), get("/v2"))[0][0])
    """)
    try:
        process = subprocess.Popen(service.command(CAY, "exec", "-i", created, "--", "python3", "-c", work),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"200\n"
        assert change(created, ["GET api.test/v2"]) == 0
        out, _ = process.communicate(b"\n", timeout=PATIENCE)
        assert out == b"403 200\n"
    finally:
        service.cay("kill", created)


def test_the_proxy_leads_past_no_inspection(service):
    before = len(service.requests())
    lines = run(service, RULES, """
        def tunnel(port):
            sock = dial("100.64.0.1", 3128)
            sock.sendall(f"CONNECT api.test:{port} HTTP/1.1\\r\\n\\r\\n".encode())
            head = b""
            while not head.endswith(b"\\r\\n\\r\\n") and (piece := sock.recv(1)):
                head += piece
            return sock
        for path in ("/v1/a", "/v2"):
            with dial("100.64.0.1", 3128) as sock:
                sock.sendall(f"GET http://api.test{path} HTTP/1.1\\r\\n\\r\\n".encode())
                print(sock.recv(65536).split(b" ")[1].decode())
            print(talk(tunnel(80), get(path))[0][0])
            wrapped = ssl.create_default_context().wrap_socket(tunnel(443), server_hostname="api.test")
            print(talk(wrapped, get(path))[0][0])
    """)
    assert lines == ["403", "200", "200", "403", "403", "403"]
    assert [each["path"] for each in service.requests()[before:]] == ["/v1/a", "/v1/a"]


@pytest.mark.parametrize("limit, count", [([], 40), (["--network-limit", "bytes=8192"], None)])
@pytest.mark.parametrize("sock", ['dial("api.test", 80)', 'secure("api.test")'], ids=["http", "tls"])
def test_limits_count_the_bytes_of_inspected_connections(service, sock, limit, count):
    (done,) = run(service, RULES, f"""
        done = 0
        for each in range(40):
            try:
                done += talk({sock}, get("/v1/a"))[0][0] == 200
            except Exception:
                break
        print(done)
    """, *limit)
    assert int(done) == count if count else 0 < int(done) < 40
