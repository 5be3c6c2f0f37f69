# SPDX-License-Identifier: Apache-2.0
"""Clients that mean no good, or vanish."""

import contextlib
import os
import socket
import time
from pathlib import Path

import pytest

from conftest import PATIENCE


def talk(server, data, half_close=False):
    """Sends bytes, and returns all that comes back until the server closes."""
    with server.connect() as client:
        client.sendall(data)
        if half_close:
            client.shutdown(socket.SHUT_WR)
        reply = b""
        with contextlib.suppress(ConnectionResetError):
            while True:
                piece = client.recv(65536)
                if not piece:
                    break
                reply += piece
        return reply


def request(server, line, *headers, body=b""):
    head = [line, f"Host: 127.0.0.1:{server.port}", *headers]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def status_of(reply):
    assert reply.startswith(b"HTTP/1.1 "), reply[:200]
    return int(reply[9:12])


def resident(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def is_healthy(server):
    return server.api("GET", "/health")[0] == 204


def settle(what, wanted):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if what() <= wanted:
            return
        time.sleep(0.05)
    raise AssertionError(f"{what()} is more than {wanted}")


# --- Framing ---

SECOND = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SMUGGLED = {
    "both": ["Content-Length: 5", "Transfer-Encoding: chunked"],
    "two lengths": ["Content-Length: 5", "Content-Length: 5"],
    "different lengths": ["Content-Length: 5", "Content-Length: 6"],
    "plus": ["Content-Length: +5"],
    "list": ["Content-Length: 5, 5"],
    "hexadecimal": ["Content-Length: 0x5"],
    "negative": ["Content-Length: -5"],
    "other encoding": ["Transfer-Encoding: xchunked"],
    "chunked twice": ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
    "not last": ["Transfer-Encoding: chunked, identity"],
    "two hosts": ["Host: 127.0.0.1"],
    "space before colon": ["Content-Length : 5"],
    "name of no token": ["X(y): 1"],
}


@pytest.mark.parametrize("name", sorted(SMUGGLED))
def test_what_two_readers_could_differ_over_is_refused(server, name):
    reply = talk(server, request(server, "POST /sandboxes HTTP/1.1", *SMUGGLED[name],
                                 body=b"0\r\n\r\n" + SECOND))
    assert status_of(reply) in (400, 413), reply
    assert b"HTTP/1.1 204" not in reply, reply  # nothing answers the second


def test_a_request_without_a_host_is_refused(server):
    assert status_of(talk(server, b"GET /health HTTP/1.1\r\n\r\n")) == 400


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io"])
def test_names_that_are_not_ours_are_refused(server, host):
    reply = talk(server, f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert status_of(reply) == 421


def test_pages_of_others_are_refused(server):
    reply = talk(server, request(server, "POST /sandboxes HTTP/1.1",
                                 "Origin: https://evil.example", "Content-Type: text/plain",
                                 "Content-Length: 2", body=b"{}"))
    assert status_of(reply) == 403


def test_too_much_is_refused(server):
    long_line = talk(server, request(server, f"GET /{'a' * 200_000} HTTP/1.1"))
    assert status_of(long_line) in (414, 431)
    many = talk(server, request(server, "GET /health HTTP/1.1",
                                *(f"X-{i}: y" for i in range(200)), "Connection: close"))
    assert status_of(many) == 431
    body = talk(server, request(server, "POST /sandboxes/abc/timeout HTTP/1.1",
                                "Content-Length: 1000000", body=b"x" * 1000000))
    assert status_of(body) == 413
    assert is_healthy(server)


# --- JSON ---

BAD_JSON = [b"", b"[", b"[" * 100_000, b'{"a":' * 100_000, b'{"templateID":"base"} x',
            b'{"templateID":"base","templateID":"base"}', b'\xef\xbb\xbf{"templateID":"base"}',
            b'{"templateID":"\\ud800"}', b'{"templateID":"a\\u0000b"}', b'{"timeout":1e999}',
            b'[]', b'"base"', b'{"templateID":1}', b'{"templateID":"base","timeout":"x"}',
            b'{"templateID":"base","timeout":-1}', b'{"templateID":"base","metadata":[1]}',
            b'{"templateID":"base","envVars":{"A=B":"c"}}', b'{"templateID":"\xff"}']


@pytest.mark.parametrize("body", BAD_JSON, ids=range(len(BAD_JSON)))
def test_what_is_not_the_right_json_is_refused(server, body):
    reply = talk(server, request(server, "POST /v2/sandboxes HTTP/1.1",
                                 f"X-API-KEY: {server.key}", "Connection: close",
                                 f"Content-Length: {len(body)}", body=body))
    assert status_of(reply) == 400, reply


# --- Identity ---


@pytest.mark.parametrize("key", ["", "x", "e2b_", "e2b_" + "0" * 40, "e2b_" + "f" * 5000])
def test_keys_that_are_none_are_refused(server, key):
    status, body = server.api("GET", "/v2/sandboxes", X_API_KEY=key)
    assert status == body["code"] == 401


@pytest.mark.parametrize("name", ["..", "../x", "%2e%2e", "%2F", "a%00b", "A", "a" * 10_000, "١",
                                  "a.b", "a-b", "sb-abcdefghijklmnop", "'; DROP TABLE keys"])
def test_what_is_no_id_names_no_sandbox(server, name):
    from urllib.parse import quote
    status, body = server.api("GET", f"/sandboxes/{quote(name, safe='%/')}")
    assert status in (400, 404) and "cay" not in str(body)


def test_a_sandbox_needs_its_own_token(e2b, server, sandbox):
    other = e2b.Sandbox.create(timeout=60)
    headers = {"E2b_Sandbox_Id": sandbox.sandbox_id, "E2b_Sandbox_Port": "49983"}
    token = other._envd_access_token
    right = sandbox._envd_access_token
    for wrong in ("", token, right[:-1], right + "0", right[:-1] + "x", "x" * 5000):
        for path in ("/process.Process/List", "/filesystem.Filesystem/ListDir"):
            status, body = server.api("POST", path, {}, X_Access_Token=wrong,
                                      Content_Type="application/json", **headers)
            assert (status, body["code"]) == (401, 401)
        status, _ = server.api("GET", "/files?path=/etc/passwd", X_Access_Token=wrong, **headers)
        assert status == 401
    assert server.api("POST", "/process.Process/List", {}, X_Access_Token=right, **headers)[0] == 200
    assert server.api("GET", "/files?path=/etc/passwd", **headers)[0] == 401
    other.kill()


def test_unknown_sandboxes_and_closed_ports_are_told_as_a_proxy_does(server, sandbox):
    headers = {"E2b_Sandbox_Port": "49983"}
    status, body = server.api("GET", "/health", E2b_Sandbox_Id="abcdefghijklmnop", **headers)
    assert (status, body) == (502, {"sandboxId": "abcdefghijklmnop", "code": 502,
                                    "message": "The sandbox was not found"})
    status, body = server.api("GET", "/", E2b_Sandbox_Id=sandbox.sandbox_id,
                              E2b_Sandbox_Port="12345")
    assert (status, body["message"]) == (502, "The sandbox is running but port is not open")


# --- Those who leave, and those who stay ---


def test_a_client_may_vanish_after_any_byte(server, sandbox):
    front = server.front()
    body = b'{"path":"/home/user"}'
    whole = request(server, "POST /filesystem.Filesystem/ListDir HTTP/1.1",
                    f"E2b-Sandbox-Id: {sandbox.sandbox_id}", "E2b-Sandbox-Port: 49983",
                    f"X-Access-Token: {sandbox._envd_access_token}",
                    f"Content-Length: {len(body)}", body=body)
    assert is_healthy(server)
    before = descriptors(front)
    for cut in range(0, len(whole) + 1, 3):
        with server.connect() as client:
            client.sendall(whole[:cut])
    settle(lambda: descriptors(front), before)
    assert is_healthy(server)


def test_memory_stays_flat(server, sandbox):
    front, (keeper,) = server.front(), [pid for pid in server.children()
                                        if Path(f"/proc/{pid}/comm").read_text() == "cay-keeper\n"][:1]

    def work(times):
        for i in range(times):
            sandbox.commands.run("true")
            sandbox.files.write("f", "x" * 1000)
            sandbox.files.read("f")
        return resident(front), resident(keeper)

    early, before = work(30), (descriptors(front), descriptors(keeper))
    late = work(270)
    assert (descriptors(front), descriptors(keeper)) == before
    assert late[0] - early[0] <= 1 << 20 and late[1] - early[1] <= 1 << 20, (early, late)


def test_a_reader_who_does_not_read_holds_up_only_his_command(e2b, server, sandbox):
    front = server.front()
    body = b'{"process":{"cmd":"/usr/bin/yes","args":[]},"stdin":false}'
    frame = b"\0" + len(body).to_bytes(4, "big") + body
    before = resident(front)
    with server.connect() as client:
        client.sendall(request(server, "POST /process.Process/Start HTTP/1.1",
                               f"E2b-Sandbox-Id: {sandbox.sandbox_id}",
                               "E2b-Sandbox-Port: 49983", "Content-Type: application/connect+json",
                               f"X-Access-Token: {sandbox._envd_access_token}",
                               f"Content-Length: {len(frame)}", body=frame))
        for _ in range(20):
            assert sandbox.commands.run("echo there").stdout == "there\n"
        assert resident(front) - before < 8 << 20
        (info,) = sandbox.commands.list()
        assert info.cmd == "/usr/bin/yes"
    assert sandbox.commands.kill(info.pid)


def test_a_thousand_idle_connections_keep_nobody_out(server):
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(server.connect())
        assert is_healthy(server)


def test_who_dawdles_over_headers_is_cut(server):
    with server.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: 127")
        assert client.recv(100) == b""  # within ten seconds or so


# --- The half that speaks HTTP ---


def test_the_front_has_no_rights(server):
    assert is_healthy(server)
    status = dict(line.split(":\t", 1) for line in
                  Path(f"/proc/{server.front()}/status").read_text().splitlines()
                  if ":\t" in line)
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["Threads"] == "1"
    if os.getuid() == 0:
        assert set(status["Uid"].split()) == {"65534"}
        kinds = {os.readlink(f"/proc/{server.front()}/fd/{fd}").split(":")[0]
                 for fd in os.listdir(f"/proc/{server.front()}/fd") if int(fd) > 2}
        assert kinds <= {"socket", "anon_inode", "pipe"}, kinds


def test_a_front_that_dies_is_replaced(own_server):
    server = own_server()
    assert is_healthy(server)
    first = server.front()
    os.kill(first, 9)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if is_healthy(server):
                break
        time.sleep(0.02)
    assert server.front() != first
    assert server.api("GET", "/v2/sandboxes") == (200, [])
