# SPDX-License-Identifier: Apache-2.0
"""Sessions of browsers: the cookie is a credential like its API key, and for nothing else."""

import http.client
import json
import re
import struct

import pytest
from serving import PATIENCE, wait_until

ORIGIN = "http://127.0.0.1:{}"
OTHERS = ("http://evil.example.com", "http://8000-x.localhost", "null", "http://127.0.0.1:1")


def call(server, method, path, body=None, **headers):
    """(status, headers, body as JSON or bytes)"""
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    try:
        client.request(method, path, body, headers)
        reply = client.getresponse()
        data = reply.read()
        if reply.headers.get_content_type() == "application/json":
            data = json.loads(data)
        return reply.status, reply.headers, data
    finally:
        client.close()


class Browser:
    """A client that has a session, and nothing else that the server accepts."""

    def __init__(self, server, key=None, **headers):
        self.server = server
        status, reply, _ = call(server, "POST", "/ui/session",
                                {"apiKey": key or server.keys["default"]}, **headers)
        assert status == 204, reply
        self.set_cookies = reply.get_all("Set-Cookie")
        self.cookies = dict(text.split(";")[0].split("=", 1) for text in self.set_cookies)
        self.csrf = self.cookies["cay_csrf"]

    @property
    def cookie(self):
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    def call(self, method, path, body=None, csrf=True, **headers):
        headers.setdefault("Cookie", self.cookie)
        if csrf and method not in ("GET", "HEAD"):
            headers["X_Cay_Csrf"] = self.csrf
        return call(self.server, method, path, body, **headers)


@pytest.fixture(name="browser")
def fixture_browser(server):
    return Browser(server)


@pytest.fixture(scope="module", name="stranger")
def fixture_stranger(server):
    """A session of another tenant."""
    return Browser(server, server.new_key("stranger"))


def unary(browser, sandbox, route, body, **headers):
    return browser.call("POST", route, body, E2b_Sandbox_Id=sandbox.sandbox_id,
                        E2b_Sandbox_Port="49983", **headers)


# --- What it is for ---

def test_a_login_sets_cookies_that_only_the_dashboard_gets(browser):
    session, csrf = sorted(browser.set_cookies, reverse=True)
    assert re.fullmatch(r"cay_session=s1_[0-9a-f]{120}; HttpOnly; SameSite=Strict; Path=/; "
                        r"Max-Age=43200", session)
    assert re.fullmatch(r"cay_csrf=[0-9a-f]{64}; SameSite=Strict; Path=/; Max-Age=43200", csrf)
    status, headers, answer = browser.call("GET", "/ui/session")
    assert (status, answer["tenant"], answer["csrf"]) == (200, "default", browser.csrf)
    assert headers["Cache-Control"] == "no-store"


def test_the_session_is_a_credential_for_the_whole_api(browser, shared):
    status, _, listed = browser.call("GET", "/v2/sandboxes")
    assert status == 200 and shared.sandbox_id in [item["sandboxID"] for item in listed]
    status, _, made = browser.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60})
    assert status == 201
    assert browser.call("DELETE", f"/sandboxes/{made['sandboxID']}")[0] == 204


def test_the_session_reaches_files_and_processes_of_own_sandboxes(browser, shared):
    status, _, _ = browser.call("POST", "/files?path=/home/user/ui.txt", b"from the page",
                                E2b_Sandbox_Id=shared.sandbox_id,
                                Content_Type="application/octet-stream")
    assert status == 200
    status, _, answer = unary(browser, shared, "/filesystem.Filesystem/ListDir",
                              {"path": "/home/user", "depth": 1})
    assert status == 200 and "ui.txt" in [entry["name"] for entry in answer["entries"]]
    link = f"/files?path=/home/user/ui.txt&sandbox={shared.sandbox_id}"
    status, _, data = browser.call("GET", link)
    assert (status, data) == (200, b"from the page")
    message = json.dumps({"process": {"cmd": "echo", "args": ["hello"]}}).encode()
    status, _, stream = unary(browser, shared, "/process.Process/Start",
                              struct.pack(">BI", 0, len(message)) + message,
                              Content_Type="application/connect+json")
    assert status == 200 and b'"stdout":"aGVsbG8K"' in stream


def test_a_session_survives_a_restart_of_the_server(own_server):
    server = own_server()
    browser = Browser(server)
    server.stop()
    server.start()
    assert browser.call("GET", "/ui/session")[0] == 200


def test_a_server_with_tls_in_front_sets_secure_cookies(server):
    browser = Browser(server, X_Forwarded_Proto="https")
    assert all("; Secure" in text for text in browser.set_cookies)
    assert "__Host-cay_session" in browser.cookies
    assert browser.call("GET", "/ui/session", X_Forwarded_Proto="https")[0] == 200
    assert browser.call("GET", "/ui/session")[0] == 401
    own = f"http://127.0.0.1:{server.port}"
    assert browser.call("DELETE", "/ui/session", X_Forwarded_Proto="https", Origin=own)[0] == 403


# --- What it is not for ---

@pytest.mark.parametrize("method, path, body", [
    ("POST", "/v2/sandboxes", {"templateID": "base"}), ("DELETE", "/ui/session", None),
    ("POST", "/sandboxes/{}/timeout", {"timeout": 60}), ("DELETE", "/sandboxes/{}", None),
    ("PUT", "/sandboxes/{}/network", {}), ("POST", "/secrets", {"name": "x", "value": "12345678"})])
def test_a_request_that_changes_something_needs_the_header(browser, shared, method, path, body):
    path = path.replace("{}", shared.sandbox_id)
    for value in (None, "", "0" * 64, browser.csrf[:-1], browser.csrf + "0", "é" * 64):
        headers = {} if value is None else {"X_Cay_Csrf": value.encode("utf-8").decode("latin-1")}
        status, _, answer = browser.call(method, path, body, csrf=False, **headers)
        assert (status, "X-Cay-Csrf" in answer["message"]) == (403, True)
    assert browser.call("GET", "/ui/session")[0] == 200


def test_requests_to_a_sandbox_need_the_header_as_well(browser, shared):
    for route in ("/filesystem.Filesystem/MakeDir", "/filesystem.Filesystem/Stat"):
        assert unary(browser, shared, route, {"path": "/tmp/x"}, csrf=False)[0] == 403
    assert browser.call("POST", "/files?path=/tmp/x", b"x", csrf=False,
                        E2b_Sandbox_Id=shared.sandbox_id)[0] == 403


@pytest.mark.parametrize("origin", OTHERS)
def test_pages_of_other_origins_cannot_use_it(browser, server, shared, origin):
    for method, path in (("GET", "/v2/sandboxes"), ("DELETE", "/ui/session"), ("POST", "/ui/session")):
        assert browser.call(method, path, Origin=origin)[0] == 403
    assert browser.call("GET", "/v2/sandboxes", Origin=ORIGIN.format(server.port))[0] == 200


def test_a_page_of_a_sandbox_is_the_same_site_and_cannot_use_it(browser):
    """SameSite=Strict allows it, since a sandbox is below the domain of the server."""
    for site, wanted in (("same-site", 401), ("cross-site", 401), ("same-origin", 200), ("none", 200)):
        assert browser.call("GET", "/v2/sandboxes", Sec_Fetch_Site=site)[0] == wanted
        status = browser.call("DELETE", "/sandboxes/abc", Sec_Fetch_Site=site)[0]
        assert status == (403 if wanted == 401 else 404)


def test_it_is_nothing_on_the_host_of_a_sandbox(browser, server, shared):
    host = f"49983-{shared.sandbox_id}.localhost:{server.port}"
    status, _, _ = browser.call("POST", "/filesystem.Filesystem/Stat", {"path": "/"}, Host=host)
    assert status == 401
    assert browser.call("GET", "/files?path=/etc/hosts", Host=host)[0] == 401


def test_it_is_nothing_for_sandboxes_of_other_tenants(stranger, shared):
    name = shared.sandbox_id
    assert stranger.call("GET", f"/sandboxes/{name}")[0] == 404
    assert stranger.call("DELETE", f"/sandboxes/{name}")[0] == 404
    assert unary(stranger, shared, "/process.Process/List", {})[0] == 401
    assert unary(stranger, shared, "/filesystem.Filesystem/Stat", {"path": "/"})[0] == 401
    for path in (f"/files?path=/etc/hosts&sandbox={name}", "/files?path=/etc/hosts"):
        assert stranger.call("GET", path)[0] == 401


def test_a_session_does_not_choose_a_sandbox(browser, shared):
    """A token without a sandbox selects its own; a session has many."""
    assert browser.call("GET", "/files?path=/etc/hosts")[0] == 401
    assert browser.call("GET", "/files?path=/etc/hosts&sandbox=")[0] == 401
    assert browser.call("GET", "/files?path=/etc/hosts&sandbox=" + "a" * 200)[0] in (401, 502)


def test_other_credentials_come_before_the_cookie(browser, stranger, server, shared):
    """Also wrong ones: a program that sends its own credential never acts by a cookie."""
    assert browser.call("GET", "/v2/sandboxes", X_API_KEY="e2b_00")[0] == 401
    assert browser.call("GET", "/v2/sandboxes", Authorization="Bearer e2b_00")[0] == 401
    assert unary(browser, shared, "/process.Process/List", {}, X_Access_Token="0" * 64)[0] == 401
    key = server.keys["default"]
    assert stranger.call("GET", f"/sandboxes/{shared.sandbox_id}", X_API_KEY=key)[0] == 200


SHOW = """
import socket
listener = socket.create_server(("127.0.0.1", 8123))
while True:
    client = listener.accept()[0]
    asked = b""
    while b"\\r\\n\\r\\n" not in asked:
        asked += client.recv(65536)
    found = [line[8:] for line in asked.split(b"\\r\\n") if line.lower().startswith(b"cookie: ")]
    text = b"".join(found)
    client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(text) + text)
    client.close()
"""


def test_a_program_in_a_sandbox_never_sees_it(browser, server, shared):
    shared.files.write("show.py", SHOW)
    shared.commands.run("python3 show.py", background=True)
    wait_until(lambda: browser.call("GET", "/", E2b_Sandbox_Id=shared.sandbox_id,
                                    E2b_Sandbox_Port="8123")[0] == 200, "nothing listens")
    cookie = f"a=1; {browser.cookie}; __Host-cay_session=x; theme=dark"
    for headers in ({"E2b_Sandbox_Id": shared.sandbox_id, "E2b_Sandbox_Port": "8123"},
                    {"Host": f"8123-{shared.sandbox_id}.localhost:{server.port}"}):
        status, _, seen = browser.call("GET", "/", Cookie=cookie, **headers)
        assert (status, seen) == (200, b"a=1; theme=dark")


# --- Cookies that the server has not made, or that are over ---

def test_tampered_cookies_are_refused(browser):
    text = browser.cookies["cay_session"]
    for at in (0, 3, 11, 27, 60, 91, len(text) - 1):
        changed = text[:at] + ("1" if text[at] == "0" else "0") + text[at + 1:]
        assert browser.call("GET", "/ui/session", Cookie=f"cay_session={changed}")[0] == 401
    later = f"s1_ffffffff{text[11:]}"
    for other in (later, text[:-1], text + "0", text.upper(), "", "x" * 5000, browser.csrf, text[3:],
                  text.replace("s1_", "s2_"), "%00" + text, "\"" + text + "\""):
        assert browser.call("GET", "/ui/session", Cookie=f"cay_session={other}")[0] == 401
    assert browser.call("GET", "/ui/session", Cookie=f"  cay_session={text} ;;; a")[0] == 200


def test_with_two_sessions_the_header_selects_one(browser, stranger):
    """A page of a sandbox may have set a cookie of the same name for the whole domain."""
    for order in ((browser, stranger), (stranger, browser)):
        cookie = "; ".join(f"cay_session={one.cookies['cay_session']}" for one in order)
        assert browser.call("GET", "/ui/session", Cookie=cookie)[0] == 401
        status, _, answer = browser.call("GET", "/ui/session", Cookie=cookie, X_Cay_Csrf=browser.csrf)
        assert (status, answer["tenant"]) == (200, "default")


def test_a_logout_ends_the_session_also_for_who_has_copied_the_cookie(server):
    browser, other = Browser(server), Browser(server)
    status, headers, _ = browser.call("DELETE", "/ui/session")
    assert status == 204
    assert all("Max-Age=0" in text for text in headers.get_all("Set-Cookie"))
    assert browser.call("GET", "/v2/sandboxes")[0] == 401
    status, headers, _ = browser.call("GET", "/ui/session")
    assert (status, len(headers.get_all("Set-Cookie"))) == (401, 2)
    assert other.call("GET", "/v2/sandboxes")[0] == 200


def test_a_revoked_key_ends_its_sessions(server, shared):
    key = server.new_key("leaver")
    browser, other = Browser(server, key), Browser(server)
    assert browser.call("GET", "/v2/sandboxes")[0] == 200
    (number,) = [line.split("\t")[0] for line in server.cay("key", "ls").stdout.splitlines()
                 if line.split("\t")[2].startswith(key[:10])]
    server.cay("key", "rm", number)
    assert browser.call("GET", "/v2/sandboxes")[0] == 401
    assert other.call("GET", "/v2/sandboxes")[0] == 200


@pytest.mark.parametrize("body", [
    None, b"", b"{", [], {}, {"apiKey": 1}, {"apiKey": None}, {"apikey": "e2b_00"}])
def test_a_login_without_a_key_is_400(server, body):
    assert call(server, "POST", "/ui/session", body, X_Forwarded_For="198.51.100.7")[0] == 400


def test_a_wrong_key_is_401_and_sets_nothing(server, browser):
    for key in ("e2b_" + "0" * 40, "", "x" * 3000, browser.cookies["cay_session"]):
        status, headers, answer = call(server, "POST", "/ui/session", {"apiKey": key},
                                       X_Forwarded_For="198.51.100.8")
        assert (status, answer["code"]) == (401, 401)
        assert headers.get_all("Set-Cookie") is None


def test_logins_of_an_address_are_limited_and_others_are_not(server):
    def sign_in(address):
        return call(server, "POST", "/ui/session", {"apiKey": "e2b_" + "0" * 40},
                    X_Forwarded_For=f"10.0.0.1, {address}")

    statuses = [sign_in("203.0.113.9")[0] for _ in range(80)]
    assert set(statuses) == {401, 429} and statuses[:25] == [401] * 25
    replies = [sign_in("203.0.113.9") for _ in range(5)]
    assert any(status == 429 and headers["Retry-After"] for status, headers, _ in replies)
    assert sign_in("203.0.113.10")[0] == 401
    assert sign_in("2001:db8::1")[0] == 401
    assert call(server, "GET", "/v2/sandboxes", X_API_KEY=server.keys["default"])[0] == 200


def test_servers_with_one_key_file_share_sessions(own_server, tmp_path):
    shared_key = tmp_path / "key"
    shared_key.write_text("5a" * 32 + "\n")
    shared_key.chmod(0o600)
    api_key = tmp_path / "api"
    api_key.write_text("e2b_" + "7c" * 20)
    options = ("--server-key-file", str(shared_key), "--api-key-file", str(api_key))
    first, second, third = own_server(*options), own_server(*options), own_server()
    browser = Browser(first, api_key.read_text())
    for server, wanted in ((second, 200), (third, 401)):
        browser.server = server
        assert browser.call("GET", "/ui/session")[0] == wanted
