# SPDX-License-Identifier: Apache-2.0
"""What the server does not do is refused in one way: 501 that names the feature, 404 for a
sandbox that is not there, 405 for a method that E2B's route does not have."""

import re
import socket

import pytest
import raw
from serving import PATIENCE, ROOT

SOURCE = (ROOT / "src" / "server" / "front" / "missing.c").read_text(encoding="utf-8")
ROUTES = re.findall(r'ON\("(\w+)", "([^"]+)",[^;]*?(FOR_\w+)\)', SOURCE)
UNKNOWN = "abcdefghij0123456789"


def head(server, request):
    """The status line of the reply to one request, and whether the connection ends."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
        client.sendall(request)
        reply = b""
        while piece := client.recv(65536):
            reply += piece
    return reply.split(b"\r\n")[0].decode(), reply


@pytest.mark.parametrize("method, path, action", ROUTES)
def test_an_unimplemented_route_is_501_and_names_the_feature(server, shared, method, path, action):
    path = path.replace("/sandboxes/{id}", f"/sandboxes/{shared.sandbox_id}")
    path = re.sub(r"\{\w+\}", "team%2Fname%3Atag", path)
    body = None if method == "GET" else {"name": "x"}
    status, answer = server.api(method, path, body)
    assert (status, answer["code"]) == (501, 501)
    assert re.fullmatch(r"\w.{2,}: not supported by this server", answer["message"])
    if action == "FOR_KEY":
        assert server.api(method, path, body, X_API_KEY="e2b_00")[0] == 401


@pytest.mark.parametrize("method, path", [
    ("POST", "fork"), ("POST", "snapshots"), ("PUT", "network"), ("GET", "logs")])
def test_a_missing_feature_of_a_killed_sandbox_is_404(server, create, method, path):
    sandbox = create()
    assert sandbox.kill()
    for name in (sandbox.sandbox_id, UNKNOWN):
        status, answer = server.api(method, f"/sandboxes/{name}/{path}", None)
        assert (status, answer["code"]) == (404, 404), answer


@pytest.mark.parametrize("method, path, wanted", [
    ("PUT", "/sandboxes", 405), ("DELETE", "/v2/sandboxes", 405), ("POST", "/snapshots", 405),
    ("GET", "/v3/templates", 405), ("PUT", "/secrets/x", 405), ("GET", "/no-such-route", 404),
    ("GET", "/v2/volumes", 404), ("POST", "/sandboxes/x/no-such-route", 404)])
def test_405_is_only_for_a_route_that_exists(server, method, path, wanted):
    status, answer = server.api(method, path, {} if method in ("PUT", "POST") else None)
    assert (status, answer["code"]) == (wanted, wanted)


def test_the_status_line_of_a_501_names_the_feature(server):
    """Some SDKs show no more than the status line."""
    line, _ = head(server, "GET /teams HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert line == "HTTP/1.1 501 teams: not supported by this server"


def test_a_template_may_be_named_with_the_tag_of_its_only_version(server, create):
    for name in ("base:latest", "base:default"):
        assert server.api("GET", f"/templates/aliases/{name.replace(':', '%3A')}") == (
            200, {"templateID": "base", "public": True})
    sandbox = create("base:latest", metadata={"tagged": "yes"})
    status, info = server.api("GET", f"/sandboxes/{sandbox.sandbox_id}")
    assert (status, info["templateID"]) == (200, "base")
    for name in ("base", "base:default"):
        found = server.api("GET", f"/v2/sandboxes?template={name}&metadata=tagged%3Dyes")[1]
        assert [item["sandboxID"] for item in found] == [sandbox.sandbox_id]
    status, answer = server.api("POST", "/v2/sandboxes", {"templateID": "base:other"})
    assert status == 404 and 'template "base:other" not found' == answer["message"]
