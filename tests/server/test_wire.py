# SPDX-License-Identifier: Apache-2.0
"""What the SDKs do not use, but others may."""

import base64
import contextlib
import gzip
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import httpx
import pytest
import raw
from e2b import Sandbox, TimeoutException
from raw import Stream, envelope, talk, web
from serving import CAY, PATIENCE, state, wait_until


def frames(data):
    """(flags, message) of each envelope."""
    found = []
    while data:
        size = int.from_bytes(data[1:5], "big")
        found.append((data[0], json.loads(data[5:5 + size])))
        data = data[5 + size:]
    return found


def ask(server, sandbox, method, path, body=None, **headers):
    """One request to a sandbox: status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, path, body, {
            "E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983",
            "X-Access-Token": sandbox._envd_access_token,
            **{name.replace("_", "-"): value for name, value in headers.items()}})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()


def start(server, sandbox, process, **headers):
    status, _, body = ask(server, sandbox, "POST", "/process.Process/Start", envelope(process),
                          Content_Type="application/connect+json", **headers)
    assert status == 200
    return frames(body)


def test_a_stream_is_made_of_envelopes_and_ends_with_one(server, shared):
    events = start(server, shared, {"process": {"cmd": "/bin/sh", "args": ["-c", "echo hi"]}})
    assert [flags for flags, _ in events] == [0, 0, 0, 2]
    assert events[0][1]["event"]["start"]["pid"] > 1
    assert base64.b64decode(events[1][1]["event"]["data"]["stdout"]) == b"hi\n"
    assert events[2][1]["event"]["end"] == {
        "exitCode": 0, "exited": True, "status": "exit status 0"}
    assert events[3][1] == {}


@pytest.mark.parametrize("version", ["", "/v2"])
def test_connect_accepts_the_sandbox_id_in_headers_too(server, sandbox, version):
    """As the SDKs for Python up to 2.26 do; what is a program's own port stays its own."""
    path = f"{version}/sandboxes/{sandbox.sandbox_id}/connect"
    key = {"X_API_KEY": os.environ["E2B_API_KEY"], "Content_Type": "application/json"}
    sandbox.pause()
    status, _, body = ask(server, sandbox, "POST", path, '{"timeout":60}', **key)
    assert status == 201 and json.loads(body)["sandboxID"] == sandbox.sandbox_id
    assert ask(server, sandbox, "POST", path, '{"timeout":60}')[0] == 401
    status, _, body = ask(server, sandbox, "POST", path, "{}", E2b_Sandbox_Port="9102", **key)
    assert status == 502 and b"port is not open" in body
    assert ask(server, sandbox, "GET", f"{version}/sandboxesfoo", **key)[0] == 404


def test_a_token_tells_which_sandbox_is_meant(server, sandbox, shared):
    """As older SDKs have it: for Python once they have connected, for JavaScript /health."""
    token = {"X-Access-Token": sandbox._envd_access_token}

    def ask_by(headers, path, message=None):
        with httpx.Client(base_url=server.url, timeout=PATIENCE, headers=headers) as client:
            return client.get(path) if message is None else client.post(path, json=message)

    sandbox.files.write("whose", "")
    entries = ask_by(token, "/filesystem.Filesystem/ListDir", {"path": "."}).json()["entries"]
    assert "whose" in [entry["name"] for entry in entries]
    assert ask_by(token, "/health").status_code == 204
    assert ask_by(token, f"/sandboxes/{sandbox.sandbox_id}").status_code == 401
    assert "cay_" in ask_by({**token, "X-API-KEY": os.environ["E2B_API_KEY"]}, "/metrics").text
    for nobodys in ("", "x" * 64, "x" * 300):
        answer = ask_by({"X-Access-Token": nobodys}, "/filesystem.Filesystem/ListDir",
                        {"path": "."})
        assert answer.status_code == 502
    sandbox.kill()
    assert ask_by(token, "/health").status_code == 502
    assert ask_by({}, "/health").status_code == 204


def test_failures_of_streams_come_in_the_last_envelope(server, shared):
    ((flags, message),) = start(server, shared, {"process": {"cmd": "/no/such/program"}})
    assert flags == 2 and message["error"]["code"] == "invalid_argument"
    ((flags, message),) = start(server, shared, {"process": {}})
    assert flags == 2 and message["error"]["code"] == "invalid_argument"
    status, _, body = ask(server, shared, "POST", "/process.Process/Connect",
                          envelope({"process": {"pid": 99999}}))
    assert status == 200 and frames(body)[0][1]["error"]["code"] == "not_found"


def test_a_command_whose_time_is_over_says_so(server, shared):
    events = start(server, shared, {"process": {"cmd": "sleep", "args": ["1000"]}},
                   Connect_Timeout_Ms="300")
    assert events[-1][1]["error"]["code"] == "deadline_exceeded"


def test_a_command_whose_time_is_over_is_not_listed(shared):
    """The SDK counts the time as well, and does so from before its request came here."""
    for command in ("sleep 1000", "trap '' TERM; sleep 1000", "sleep 1000 & sleep 1000"):
        for _ in range(5):
            with pytest.raises(TimeoutException):
                shared.commands.run(command, timeout=0.3)
            assert not [item for item in shared.commands.list() if "sleep 1000" in str(item.args)]


@pytest.mark.parametrize("path, request_body", [
    ("/process.Process/Start", {"process": {"cmd": "sleep", "args": ["1000"]}, "stdin": False}),
    ("/filesystem.Filesystem/WatchDir", {"path": "/tmp"})])
def test_streams_of_a_killed_sandbox_end_in_order_and_say_why(server, create, path, request_body):
    sandbox = create()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request("POST", path, envelope(request_body), {
        "Content-Type": "application/connect+json", "E2b-Sandbox-Id": sandbox.sandbox_id,
        "E2b-Sandbox-Port": "49983", "X-Access-Token": sandbox._envd_access_token})
    reply = connection.getresponse()
    head = reply.read(5)  # the first message: it has begun
    reply.read(int.from_bytes(head[1:], "big"))
    assert sandbox.kill()
    *_, (flags, message) = frames(reply.read())  # all chunks, and the last one
    assert flags == 2 and message == {"error": {
        "code": "unavailable", "message": "The sandbox was not found"}}
    connection.close()


def test_a_silent_stream_is_kept_alive(server, shared):
    events = start(server, shared, {"process": {"cmd": "sleep", "args": ["2.5"]}},
                   Keepalive_Ping_Interval="1")
    assert {"event": {"keepalive": {}}} in [message for _, message in events]


def test_how_a_command_died(server, shared):
    events = start(server, shared, {"process": {"cmd": "sh", "args": ["-c", "kill -TERM $$"]}})
    assert events[-2][1]["event"]["end"] == {
        "exitCode": -1, "exited": False, "status": "signal: terminated",
        "error": "signal: terminated"}
    events = start(server, shared, {"process": {
        "cmd": "python3", "args": ["-c", "x = bytearray(3 << 30)"]}})
    end = events[-2][1]["event"]["end"]
    assert end["exitCode"] != 0


def test_hundreds_of_commands_run_and_are_heard_at_once(server, create):
    """Each is one process that waits for a lock; all that the sandbox may have, but a few."""
    count, sandbox = 450, create()
    sandbox.files.write("/tmp/gate", "")
    holder = sandbox.commands.run("exec flock -F /tmp/gate sleep 1000", background=True, timeout=0)
    wait_until(lambda: sandbox.commands.run("flock -n /tmp/gate true || echo held").stdout,
               "the gate stays open")
    with contextlib.ExitStack() as stack:
        streams = []
        for number in range(count):
            client = stack.enter_context(server.connect())
            client.sendall(raw.start(sandbox, "/usr/bin/flock", "-sF", "/tmp/gate", "echo",
                                     str(number)))
            streams.append(Stream(client).events())
            assert "start" in next(streams[-1])[1]["event"]
        assert len(sandbox.commands.list()) == count + 1
        assert holder.kill() is True
        for number, events in enumerate(streams):
            heard = [message.get("event", {}) for _, message in events]
            assert base64.b64decode(heard[0]["data"]["stdout"]) == b"%d\n" % number
            assert heard[1]["end"]["exitCode"] == 0


def test_input_as_a_stream(server, shared):
    handle = shared.commands.run("read a; read b; echo $b $a", background=True, stdin=True)
    body = b"".join(map(envelope, [
        {"start": {"process": {"pid": handle.pid}}},
        {"data": {"input": {"stdin": base64.b64encode(b"one\n").decode()}}},
        {"keepalive": {}},
        {"data": {"input": {"stdin": base64.b64encode(b"two\n").decode()}}}]))
    status, _, reply = ask(server, shared, "POST", "/process.Process/StreamInput", body)
    assert status == 200 and frames(reply) == [(0, {}), (2, {})]
    assert handle.wait().stdout == "two one\n"
    status, _, reply = ask(server, shared, "POST", "/process.Process/StreamInput", body[:-3])
    assert frames(reply)[0][1]["error"]["code"] in ("invalid_argument", "not_found")


def test_input_that_has_to_wait_is_read_in_the_order_in_which_it_came(server, shared):
    handle = shared.commands.run("until [ -e go ]; do sleep 0.05; done; cat > read",
                                 background=True, stdin=True)
    whole = [letter * 100_000 for letter in "ABCDEF"]  # a pipe takes 64 KiB
    with contextlib.ExitStack() as stack:
        senders = []
        for text in whole:
            client = stack.enter_context(server.connect())
            client.sendall(raw.sized("POST /process.Process/SendInput", json.dumps({
                "process": {"pid": handle.pid},
                "input": {"stdin": base64.b64encode(text.encode()).decode()}}).encode(),
                *raw.of(shared)))
            senders.append(raw.Answers(client))
            assert shared.files.exists("go") is False  # requests are served in order
        shared.files.write("go", "")
        assert [sender.next().status for sender in senders] == [200] * len(whole)
    shared.commands.close_stdin(handle.pid)
    assert handle.wait().exit_code == 0
    assert shared.files.read("read") == "".join(whole)


def test_parts_of_files(server, shared):
    shared.files.write("f", "0123456789")
    for wanted, content, place in (("bytes=2-4", b"234", "bytes 2-4/10"),
                                   ("bytes=7-", b"789", "bytes 7-9/10"),
                                   ("bytes=-2", b"89", "bytes 8-9/10"),
                                   ("bytes=5-99", b"56789", "bytes 5-9/10")):
        status, headers, body = ask(server, shared, "GET", "/files?path=f", Range=wanted)
        assert (status, body, headers["Content-Range"]) == (206, content, place)
    assert ask(server, shared, "GET", "/files?path=f", Range="bytes=10-")[0] == 416
    for other in ("bytes=x", "lines=1-2"):
        status, _, body = ask(server, shared, "GET", "/files?path=f", Range=other)
        assert (status, body) == (200, b"0123456789")
    status, headers, body = ask(server, shared, "HEAD", "/files?path=f")
    assert (status, headers["Content-Length"], body) == (200, "10", b"")
    when = headers["Last-Modified"]
    assert ask(server, shared, "GET", "/files?path=f", If_Modified_Since=when)[0] == 304


def test_compression_on_demand(server, shared):
    shared.files.write("z", "x" * 1_000_000)
    status, headers, body = ask(server, shared, "GET", "/files?path=z", Accept_Encoding="gzip")
    assert status == 200 and headers["Content-Encoding"] == "gzip" and len(body) < 20_000
    assert gzip.decompress(body) == b"x" * 1_000_000
    status, headers, body = ask(server, shared, "GET", "/files?path=z",
                                Accept_Encoding="gzip, deflate")
    assert "Content-Encoding" not in headers and len(body) == 1_000_000


def test_small_things(server, shared):
    status, _, body = ask(server, shared, "GET", "/metrics")
    assert status == 200 and json.loads(body)["mem_total"] == 1 << 30
    status, _, body = ask(server, shared, "GET", "/envs")
    assert status == 200 and json.loads(body)["E2B_SANDBOX"] == "true"
    assert ask(server, shared, "GET", "/nothing")[0] == 404
    assert ask(server, shared, "DELETE", "/files")[0] == 405


def test_a_variable_that_is_too_large_to_be_told_hides_no_others(server, create):
    sandbox = create(envs={"LARGE": "x=y" * 30000, "SMALL": "z"})
    told = json.loads(ask(server, sandbox, "GET", "/envs")[2])
    assert (told["E2B_SANDBOX"], told["SMALL"]) == ("true", "z")
    assert not [name for name in told if "y" in name], "a part of a value is no variable"
    assert sandbox.commands.run("echo ${#LARGE}").stdout == "90000\n"


def test_old_routes(server):
    status, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 60})
    assert status == 201
    name = made["sandboxID"]
    assert any(item["sandboxID"] == name for item in server.api("GET", "/sandboxes")[1])
    assert server.api("POST", f"/sandboxes/{name}/refreshes", {"duration": 100})[0] == 204
    assert server.api("POST", f"/sandboxes/{name}/resume", {})[0] == 409
    assert server.api("POST", f"/sandboxes/{name}/pause", {})[0] == 204
    assert server.api("POST", f"/sandboxes/{name}/pause", {})[0] == 409
    assert server.api("POST", f"/sandboxes/{name}/resume", {"timeout": 60})[0] == 201
    for version in ("", "/v2"):
        status, answer = server.api("GET", f"{version}/sandboxes/{name}/logs")
        assert status == 200
        assert len(answer["logs"]) > 5
    assert server.api("POST", f"/sandboxes/{name}/timeout", {"timeout": 10 ** 8})[0] == 400
    assert server.api("PUT", f"/sandboxes/{name}/network", {})[0] == 501
    assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204
    assert server.api("DELETE", f"/sandboxes/{name}")[0] == 404


def test_ports_are_reached_by_name_and_by_header(server, shared):
    shared.commands.run("mkdir /tmp/www; echo served > /tmp/www/f")
    shared.commands.run("cd /tmp/www; exec python3 -m http.server 8000", background=True,
                         timeout=0)

    def get(**headers):
        request = urllib.request.Request(f"{server.url}/f", headers={
            name.replace("_", "-"): value for name, value in headers.items()})
        for _ in range(1000):
            try:
                return urllib.request.urlopen(request, timeout=PATIENCE).read()
            except urllib.error.HTTPError as error:
                assert error.code == 502, error  # it has not started yet
        raise AssertionError("nothing listens")

    assert get(Host=shared.get_host(8000)) == b"served\n"
    assert get(E2b_Sandbox_Id=shared.sandbox_id, E2b_Sandbox_Port="8000") == b"served\n"


ECHO = r"""
import socket
listener = socket.create_server(("127.0.0.1", 9000))
while True:
    client, _ = listener.accept()
    head = client.recv(65536)
    if b"x-api-key" in head.lower():
        client.sendall(b"HTTP/1.1 500 Leak\r\n\r\n")
    elif b"/nonsense" in head:
        client.sendall(b"SSH-2.0\r\n\r\n")
    elif b"/both" in head:
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"
                       b"Transfer-Encoding: chunked\r\n\r\n")
    elif b"upgrade: websocket" in head.lower():
        client.sendall(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n"
                       b"Connection: Upgrade\r\n\r\n+")
        while data := client.recv(100):
            client.sendall(data.upper())
    else:
        client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                       b"5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nT: 1\r\n\r\n")
    client.close()
"""


@pytest.fixture(scope="module", name="echo")
def fixture_echo(shared):
    shared.files.write("echo.py", ECHO)
    shared.commands.run("exec python3 echo.py", background=True, timeout=0)
    shared.commands.run("until python3 -c 'import socket; socket.create_connection("
                         "(\"127.0.0.1\", 9000))'; do sleep 0.05; done 2>/dev/null")
    return shared.get_host(9000)


def test_what_comes_through_a_port(server, echo):
    def get(path):
        return talk(server, f"GET {path} HTTP/1.1\r\nHost: {echo}\r\nX-API-KEY: {server.key}\r\n"
                            "Connection: close\r\n\r\n".encode())

    assert b" 200 OK" in get("/") and b"hello" in get("/") and b"T: 1" not in get("/")
    assert b" 502 " in get("/nonsense")
    assert b" 502 " in get("/both")


BODIES = r"""
import hashlib, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        return data
    def do_POST(self):
        early = self.path == "/early"
        data = b"" if early else self.body()
        answer = f"{len(data)} {hashlib.md5(data).hexdigest()}".encode()
        self.send_response(413 if early else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        self.close_connection = early
http.server.ThreadingHTTPServer(("127.0.0.1", 9100), Handler).serve_forever()
"""


def test_bodies_go_through_a_port(server, shared):
    shared.files.write("bodies.py", BODIES)
    shared.commands.run("exec python3 bodies.py", background=True, timeout=0)
    shared.commands.run("until python3 -c 'import socket; socket.create_connection("
                         "(\"127.0.0.1\", 9100))'; do sleep 0.05; done 2>/dev/null")
    headers = {"E2b-Sandbox-Id": shared.sandbox_id, "E2b-Sandbox-Port": "9100"}
    for size in (0, 1, 5, 1000, 70_000, 3 << 20):
        data = os.urandom(size)
        answer = f"{size} {hashlib.md5(data).hexdigest()}"
        assert web("POST", f"{server.url}/", content=data, headers=headers).text == answer
        pieces = (data[at:at + 5000] for at in range(0, size, 5000))
        assert web("POST", f"{server.url}/", content=pieces, headers=headers).text == answer
        by_name = {"Host": shared.get_host(9100)}
        assert web("POST", f"{server.url}/", content=data, headers=by_name).text == answer
    late = server.connect()
    with late:
        late.sendall(f"POST / HTTP/1.1\r\nHost: {by_name['Host']}\r\nContent-Length: 4\r\n"
                     "Connection: close\r\n\r\n".encode())
        time.sleep(0.3)
        late.sendall(b"late")
        assert b"\r\n\r\n4 " in b"".join(iter(lambda: late.recv(4096), b""))
    early = web("POST", f"{server.url}/early", content=bytes(8 << 20), headers=headers)
    assert early.status_code == 413


def test_websockets_are_passed_through(server, echo):
    with server.connect() as client:
        client.sendall(f"GET /ws HTTP/1.1\r\nHost: {echo}\r\nConnection: keep-alive, Upgrade\r\n"
                       "Upgrade: websocket\r\n\r\nfirst".encode())
        seen = b""
        while not seen.endswith(b"+FIRST"):
            piece = client.recv(1000)
            assert piece, seen
            seen += piece
        assert seen.startswith(b"HTTP/1.1 101 ")
        data = os.urandom(50_000).hex().encode()
        threading.Thread(target=client.sendall, args=(data,)).start()
        back = b""
        while len(back) < len(data):
            back += client.recv(65536)
        assert back == data.upper()
        client.shutdown(socket.SHUT_WR)
        assert client.recv(10) == b""


def test_unknown_sandboxes_and_closed_ports_are_told_as_a_proxy_does(server, shared):
    headers = {"E2b_Sandbox_Port": "49983"}
    status, body = server.api("GET", "/health", E2b_Sandbox_Id="abcdefghijklmnop", **headers)
    assert (status, body) == (502, {"sandboxId": "abcdefghijklmnop", "code": 502,
                                    "message": "The sandbox was not found"})
    status, body = server.api("GET", "/", E2b_Sandbox_Id=shared.sandbox_id,
                              E2b_Sandbox_Port="12345")
    assert (status, body["message"]) == (502, "The sandbox is running but port is not open")


def test_traffic_needs_its_token_where_that_is_wished(server):
    box = Sandbox.create(network={"allow_public_traffic": False}, timeout=60)
    headers = {"E2b_Sandbox_Id": box.sandbox_id, "E2b_Sandbox_Port": "12345"}
    assert server.api("GET", "/", **headers)[0] == 403
    assert server.api("GET", "/", E2B_Traffic_Access_Token=box.traffic_access_token,
                      **headers)[0] == 502  # nothing listens, but it was let in
    box.kill()


def test_metrics_for_prometheus(server):
    request = urllib.request.Request(f"{server.url}/metrics",
                                     headers={"Authorization": f"Bearer {server.key}"})
    text = urllib.request.urlopen(request, timeout=PATIENCE).read().decode()
    assert "cay_requests_total " in text and 'cay_replies_total{status="2xx"}' in text
    assert server.api("GET", "/metrics", X_API_KEY="wrong")[0] == 401


def test_an_access_log(own_server, tmp_path):
    log = tmp_path / "access"
    server = own_server("--access-log", str(log))
    assert server.api("GET", "/v2/sandboxes?metadata=secret")[0] == 200
    assert server.api("GET", "/sandboxes/nope")[0] == 404
    server.stop()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("GET", "/v2/sandboxes", 200), ("GET", "/sandboxes/nope", 404)]
    assert "secret" not in log.read_text() and log.stat().st_mode & 0o777 == 0o600


def test_a_full_machine_says_when_to_come_again(own_server):
    server = own_server("--reserve", "900T")
    request = urllib.request.Request(f"{server.url}/v2/sandboxes", method="POST",
                                     data=b'{"templateID":"base"}',
                                     headers={"X-API-KEY": server.key})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=PATIENCE)
    assert refused.value.code == 429 and int(refused.value.headers["Retry-After"]) > 0


def test_tls(own_server, tmp_path):
    import ssl
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-out", cert, "-keyout", key], check=True, capture_output=True)
    server = own_server("--tls-cert", str(cert), "--tls-key", str(key))
    assert server.url.startswith("https://")
    context = ssl.create_default_context(cafile=cert)
    reply = urllib.request.urlopen(f"{server.url}/health", timeout=PATIENCE, context=context)
    assert reply.status == 204


def test_a_server_that_has_printed_its_exports_stops_with_status_0(own_server):
    server = own_server()
    for _ in range(10):
        assert server.stop() == 0
        server.start()


def test_the_port_is_free_when_the_server_has_ended(own_server):
    """However slow the half is that has it: here it does nothing at all."""
    server = own_server()
    front = server.front()
    os.kill(front, signal.SIGSTOP)
    assert server.stop() == 0
    assert state(front) == ""
    server.start()
    assert server.api("GET", "/health")[0] == 204


def test_keys_are_managed(server):
    key = server.new_key("team")
    assert server.api("GET", "/v2/sandboxes", X_API_KEY=key) == (200, [])
    lines = server.cay("key", "ls").stdout.splitlines()
    (line,) = [line for line in lines if "\tteam\t" in line]
    assert key not in line and key[:10] in line
    assert server.cay("key", "rm", line.split("\t")[0]).returncode == 0
    assert server.api("GET", "/v2/sandboxes", X_API_KEY=key)[0] == 401
    assert server.cay("key", "rm", "999").returncode != 0
    assert server.cay("key", "new", "a b").returncode != 0


def test_env_prints_what_works(server):
    printed = dict(line.removeprefix("export ").split("=", 1) for line in
                   server.cay("env", "--listen", f"127.0.0.1:{server.port}").stdout.splitlines())
    assert printed == server.exports


def test_a_key_from_a_file(own_server, tmp_path):
    key = "e2b_" + "ab" * 20
    (tmp_path / "key").write_text(key + "\n")
    server = own_server("--api-key-file", str(tmp_path / "key"))
    assert server.api("GET", "/v2/sandboxes", X_API_KEY=key)[0] == 200


@pytest.mark.parametrize("words", [["--listen", "x"], ["--listen", "127.0.0.1:99999"],
                                   ["--pool", "x"], ["--memory", "1X"], ["--no-such"],
                                   ["--memory", "0"], ["--disk", "0"], ["--reserve", "-1"],
                                   ["--storage", "tape"], ["--memory", "100M", "--disk", "1G"],
                                   ["--tls-cert", "x"], ["word"], ["--listen"]])
def test_wrong_options_are_refused(tmp_path, words):
    result = subprocess.run([CAY, "serve", *words], capture_output=True, text=True,
                            timeout=PATIENCE, check=False,
                            env={**os.environ, "CAY_HOME": str(tmp_path)})
    assert result.returncode != 0 and result.stderr.startswith("cay: ") and not result.stdout


@pytest.mark.parametrize("words", [["--no-such"], ["--no-such", "x"], ["--no-such=x"],
                                   ["--no-" + "such" * 20], ["--listen", ":0", "--no-such"]])
def test_an_option_that_is_none_is_said_to_be_unknown(tmp_path, words):
    result = subprocess.run([CAY, "serve", *words], capture_output=True, text=True,
                            timeout=PATIENCE, check=False,
                            env={**os.environ, "CAY_HOME": str(tmp_path)})
    assert result.returncode == 2
    assert re.match(r"cay: invalid: --no-(such)+: unknown option ", result.stderr), result.stderr


def test_every_option_that_takes_a_value_says_so_without_one(tmp_path):
    env = {**os.environ, "CAY_HOME": str(tmp_path)}

    def serve(*words):
        return subprocess.run([CAY, "serve", *words], capture_output=True, text=True,
                              timeout=PATIENCE, check=False, env=env)

    names = re.findall(r"^  (--[a-z-]+) \S", serve("--help").stdout, re.M)
    assert len(names) >= 24
    for name in set(names) - {"--haproxy"}:  # what follows it is not its value
        assert serve(name).stderr.startswith(f"cay: invalid: {name}: the option needs a value ")


@pytest.mark.parametrize("words", [["--memory", "1.5 GiB"], ["--memory=600m", "--disk=512MiB"],
                                   ["--reserve", "0"], ["--reserve", "1.5G"]])
def test_sizes_are_written_as_for_cay_run(tmp_path, words):
    env = {**os.environ, "CAY_HOME": str(tmp_path)}
    subprocess.run([CAY, "key", "ls"], env=env, timeout=PATIENCE, check=True)  # creates the store
    result = subprocess.run([CAY, "env", *words], capture_output=True, text=True,
                            timeout=PATIENCE, check=False, env=env)
    assert "there is no default API key" in result.stderr, result.stderr


def test_nothing_is_removed_that_was_not_named(server, shared):
    shared.files.write("kept", "x")
    for body in ("{}", '{"path": ""}'):
        status, _, reply = ask(server, shared, "POST", "/filesystem.Filesystem/Remove", body,
                               Content_Type="application/json")
        assert status == 400 and json.loads(reply)["code"] == "invalid_argument"
    assert shared.files.read("kept") == "x"
