# SPDX-License-Identifier: Apache-2.0
"""The files of the dashboard at /ui, and what keeps other content off its origin."""

import http.client
import os
import shutil

import pytest
import serving
from serving import CAY, PATIENCE, ROOT

FILES = ROOT / "data" / "ui"
POLICY = {"default-src": "'none'", "script-src": "'self'", "connect-src": "'self'",
          "frame-ancestors": "'none'", "base-uri": "'none'", "form-action": "'self'"}


def get(server, target, method="GET", **headers):
    """(status, headers, body) of one request, whose target is sent as it is."""
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        client.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers.items():
            client.putheader(name.replace("_", "-"), value)
        client.endheaders()
        reply = client.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        client.close()


def test_the_server_serves_each_file_with_its_type_and_strict_headers(server):
    page = (FILES / "index.html").read_bytes()
    status, headers, body = get(server, "/ui/")
    assert (status, body) == (200, page)
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-cache", "no-referrer")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert POLICY.items() <= policy.items()
    assert "unsafe" not in policy["script-src"] + policy["connect-src"]
    assert get(server, "/ui/index.html?v=1")[2] == page
    status, headers, body = get(server, "/ui")
    assert (status, headers["Location"], body) == (301, "/ui/", b"")


def test_every_file_of_the_folder_that_has_a_known_type_is_served(server):
    types = {".html", ".css", ".js", ".svg", ".json", ".woff2", ".map", ".png", ".txt"}
    for path in FILES.rglob("*"):
        name = path.relative_to(FILES)
        if path.is_file() and len(name.parts) <= 2:
            status, _, body = get(server, f"/ui/{name}")
            if path.suffix in types:
                assert (status, body) == (200, path.read_bytes()), name
            else:
                assert status == 404, name


def test_a_client_with_the_current_file_gets_304_and_head_has_no_body(server):
    _, headers, body = get(server, "/ui/")
    tag = headers["ETag"]
    for tags in (tag, f'W/{tag}, "x"', "*"):
        status, headers, rest = get(server, "/ui/", If_None_Match=tags)
        assert (status, headers["ETag"], rest) == (304, tag, b"")
    assert get(server, "/ui/", If_None_Match='"x"')[0] == 200
    status, headers, rest = get(server, "/ui/", "HEAD")
    assert (status, int(headers["Content-Length"]), rest) == (200, len(body), b"")
    assert get(server, "/ui/", "POST", Content_Length="0")[0] == 405


@pytest.mark.parametrize("target, wanted", [
    ("/ui/../serve.db", 404), ("/ui/..%2f..%2fetc%2fpasswd", 404), ("/ui/%2e%2e/%2e%2e/etc/passwd", 404),
    ("/ui//etc/passwd", 404), ("/ui/%2fetc%2fpasswd", 404), ("/ui/index.html%00.js", 400),
    ("/ui/.", 404), ("/ui/..", 404), ("/ui/index%2ehtml", 404), ("/ui/index.html/", 404),
    ("/ui/a/b/c.js", 404), ("/ui/\\..\\x", 404), ("/ui/" + "a" * 4000, 404), ("/uix", 404)])
def test_no_name_reaches_the_file_system(server, target, wanted):
    status, _, body = get(server, target)
    assert status == wanted
    assert b"root:" not in body and b"SQLite" not in body


def test_the_dashboard_is_not_on_the_host_of_a_sandbox(server, shared):
    status, _, _ = get(server, "/ui/", E2b_Sandbox_Id=shared.sandbox_id)
    assert status == 404
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    client.request("GET", "/ui/", headers={"Host": f"49983-{shared.sandbox_id}.localhost"})
    assert client.getresponse().status == 404
    client.close()


def test_a_file_of_a_sandbox_cannot_run_as_a_page_of_the_server(server, shared):
    shared.files.write("/home/user/page.html", "<script>alert(1)</script>")
    status, headers, _ = get(
        server, "/files?path=/home/user/page.html", E2b_Sandbox_Id=shared.sandbox_id,
        X_Access_Token=shared._envd_access_token)
    assert status == 200
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "default-src 'none'; sandbox"


def test_no_ui_turns_the_dashboard_off(own_server):
    server = own_server("--no-ui")
    status, headers, body = get(server, "/ui/")
    assert (status, b"--no-ui" in body) == (404, True)
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_a_server_without_the_files_reports_what_is_missing(own_server, tmp_path, monkeypatch):
    """A copy of the programs, beside which there are no files."""
    for name in ("cay", "cay-full", "cay-serve"):
        if os.path.exists(source := os.path.join(os.path.dirname(CAY), name)):
            shutil.copy(source, tmp_path / name)
    monkeypatch.setattr(serving, "CAY", str(tmp_path / "cay"))
    status, _, body = get(own_server(), "/ui/")
    assert (status, b"share/cay/ui" in body) == (404, True)
    assert str(tmp_path).encode() not in body
