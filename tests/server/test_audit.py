# SPDX-License-Identifier: Apache-2.0
"""The logs of a sandbox, for its tenant, and the audit record, for the operator."""

import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest
from serving import CAY, PATIENCE, Server, unavailable, wait_until


def logs(server, sandbox, query="", version="/v2"):
    status, found = server.api("GET", f"{version}/sandboxes/{sandbox.sandbox_id}/logs{query}")
    assert status == 200, found
    return found["logs"]


def audit(server, *words):
    """A line is written after the reply, and before the next request is handled."""
    assert server.api("GET", "/ready")[0] == 200
    return subprocess.run([CAY, "audit", *words], env=server.env, capture_output=True, text=True,
                          timeout=PATIENCE, check=False)


def record(server):
    done = audit(server, "export")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def started(own_server, *options):
    """A server that has replied: it opens its files after it has printed the exports."""
    server = own_server(*options)
    assert server.api("GET", "/ready")[0] == 200
    return server


# --- Logs ---


def test_both_versions_of_logs_have_what_happened(own_server):
    from e2b import Sandbox

    server = own_server()
    with Sandbox.create(timeout=300) as sandbox:
        sandbox.commands.run("echo one")
        sandbox.files.write("/home/user/file", "text")
        sandbox.pause()
        Sandbox.connect(sandbox.sandbox_id)
        found = logs(server, sandbox)
        assert [one["fields"]["action"] for one in found] == [
            "sandbox.create", "process.start", "file.write", "sandbox.pause", "sandbox.paused",
            "sandbox.connect", "sandbox.resumed"]
        assert {(one["level"], one["fields"]["verdict"]) for one in found} == {("info", "allow")}
        assert found[1]["message"] == "process.start: /bin/bash -l -c echo one"
        assert found[2]["fields"]["path"] == "/home/user/file"
        assert all(one["fields"]["request"].startswith("req_") for one in found)
        old = server.api("GET", f"/sandboxes/{sandbox.sandbox_id}/logs")[1]
        assert [json.loads(one["line"])["message"] for one in old["logs"]] == \
            [one["message"] for one in old["logEntries"]] == [one["message"] for one in found]
        assert all(isinstance(json.loads(one["line"])["level"], str) for one in old["logs"])
        sandbox.kill()
        assert server.api("GET", f"/v2/sandboxes/{sandbox.sandbox_id}/logs")[0] == 404


def test_logs_are_chosen_by_time_level_text_and_direction(own_server):
    from e2b import Sandbox

    server = own_server()
    with Sandbox.create(timeout=300) as sandbox:
        for number in range(3):
            sandbox.commands.run(f"echo {number}")
            time.sleep(0.01)
        everything = logs(server, sandbox)
        assert logs(server, sandbox, "?direction=backward") == everything[::-1]
        assert logs(server, sandbox, "?limit=2&direction=forward") == everything[:2]
        assert logs(server, sandbox, "?limit=0") == []
        assert logs(server, sandbox, "?search=echo%201") == [everything[2]]
        assert logs(server, sandbox, "?search=ECHO") == []
        assert logs(server, sandbox, "?level=warn") == []
        now = int(time.time() * 1000)
        assert logs(server, sandbox, f"?cursor={now + 60000}") == []
        assert logs(server, sandbox, f"?direction=backward&cursor={now - 60000}") == []
        assert logs(server, sandbox, f"?start={now + 60000}", "") == []
        for query in ("limit=1001", "limit=x", "direction=up", "level=loud", "cursor=-1", "search=" + "a" * 257):
            assert server.api("GET", f"/v2/sandboxes/{sandbox.sandbox_id}/logs?{query}")[0] == 400, query
        sandbox.kill()


def test_the_id_of_a_request_is_in_its_reply_the_logs_and_the_audit_record(own_server):
    from e2b import Sandbox

    server = own_server()
    with Sandbox.create(timeout=300) as sandbox:
        request = urllib.request.Request(
            f"{server.url}/sandboxes/{sandbox.sandbox_id}/timeout", method="POST",
            data=b'{"timeout": 200}', headers={"X-API-KEY": server.key})
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            name = reply.headers["X-Request-Id"]
        assert logs(server, sandbox)[-1]["fields"] == {
            "action": "sandbox.timeout", "verdict": "allow", "request": name, "seconds": "200"}
        assert [one["action"] for one in record(server) if one.get("request") == name] == ["sandbox.timeout"]
        sandbox.kill()


def test_what_a_sandbox_tried_to_reach_is_in_its_logs(own_server):
    from e2b import Sandbox

    server = own_server("--internet", "pypi")
    with Sandbox.create(timeout=300) as sandbox:
        sandbox.commands.run("""python3 -c "import socket; socket.getaddrinfo('denied.test', 80)" || true""")
        found = wait_until(lambda: logs(server, sandbox, "?search=denied.test&level=warn"), "no event")
        assert found[0]["message"] == "network.lookup: denied.test:53"
        assert (found[0]["fields"]["verdict"], found[0]["fields"]["rule"]) == ("deny", "default")
        count = len(found)
        server.restart()
        sandbox.commands.run("true")
        assert len(logs(server, sandbox, "?search=denied.test&level=warn")) == count
        sandbox.kill()


def test_no_tenant_writes_to_the_logs_of_another(own_server):
    from e2b import Sandbox, SandboxException

    server = own_server()
    with Sandbox.create(timeout=300) as sandbox:
        before = logs(server, sandbox)
        for method in (Sandbox.kill, Sandbox.pause, Sandbox.connect):
            try:
                method(sandbox.sandbox_id, **server.options_of("team"))
            except SandboxException:
                pass
        assert server.api("GET", "/envs", E2b_Sandbox_Id=sandbox.sandbox_id, X_Access_Token="wrong")[0] == 401
        for thing in ("secrets", "volumes", "templates"):  # names that a tenant may choose
            server.api("DELETE", f"/{thing}/{sandbox.sandbox_id}", X_API_KEY=server.keys["team"])
        assert logs(server, sandbox) == before
        team = [one for one in record(server) if one["tenant"] == "team"]
        assert [(one["action"], one["verdict"], one["sandbox"]) for one in team[:3]] == [
            ("sandbox.kill", "fail", None), ("sandbox.pause", "fail", None), ("sandbox.connect", "fail", None)]
        assert {one["action"] for one in team[3:]} >= {"secret.remove", "volume.remove", "template.remove"}
        assert {one["sandbox"] for one in team} == {None}
        assert {one["details"]["named"] for one in team} == {sandbox.sandbox_id}
        sandbox.kill()


# --- The audit record ---


def test_the_record_is_a_chain_of_hashes(own_server):
    from e2b import Sandbox

    server = own_server()
    with Sandbox.create(timeout=300) as sandbox:
        sandbox.commands.run("echo one")
        server.restart()  # a server that was killed: the next one continues
        sandbox.commands.run("echo two")
        sandbox.kill()
    assert server.api("GET", "/v2/sandboxes", X_API_KEY="wrong")[0] == 401
    lines = record(server)
    commands = [one["details"]["command"] for one in lines if one["action"] == "process.start"]
    assert commands == ["/bin/bash -l -c echo one", "/bin/bash -l -c echo two"]
    assert [one["number"] for one in lines] == list(range(1, len(lines) + 1))
    for before, line in zip(lines, lines[1:]):
        assert line["previous"] == before["hash"]
    denied = lines[-1]
    assert (denied["verdict"], denied["status"], denied["tenant"]) == ("deny", 401, None)
    text = audit(server, "export").stdout.splitlines()
    assert all(hashlib.sha256(one.rpartition(',"hash":"')[0].encode()).hexdigest() == line["hash"]
               for one, line in zip(text, lines))
    done = audit(server, "-o", "json", "verify")
    assert json.loads(done.stdout) == {"lines": len(lines), "first": 1, "last_hash": denied["hash"]}
    assert audit(server, "verify", lines[2]["hash"]).returncode == 0
    assert "does not have this hash" in audit(server, "verify", "0" * 64).stderr
    assert server.key not in "".join(text)


def test_requests_that_fail_are_recorded_with_their_status(own_server):
    server = started(own_server)
    body = {"name": "token", "value": "long enough"}
    for method, path, sent, status, action in (
            ("POST", "/secrets", body, 201, "secret.set"),
            ("POST", "/secrets", body, 409, "secret.set"),
            ("POST", "/secrets/none", {"value": "long enough"}, 404, "secret.set"),
            ("DELETE", "/secrets/none", None, 404, "secret.remove"),
            ("DELETE", "/templates/none", None, 404, "template.remove")):
        assert server.api(method, path, sent)[0] == status, path
        last = record(server)[-1]
        assert (last["action"], last["verdict"], last.get("status")) == (
            (action, "fail", status) if status >= 400 else (action, "allow", None))


@pytest.mark.parametrize("change", ["edit", "remove", "insert", "cut"])
def test_a_changed_record_is_found(own_server, change):
    server = own_server()
    for _ in range(4):
        server.api("POST", "/v2/sandboxes", {"templateID": "none"})
    assert audit(server, "verify").returncode == 0
    (path,) = (server.home / "serve.db-audit").glob("*.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 5
    if change == "edit":
        lines[2] = lines[2].replace('"template":"none"', '"template":"base"')
    elif change == "remove":
        del lines[2]
    elif change == "insert":
        lines.insert(2, lines[2])
    else:
        lines[4] = lines[4][:-20]
    kept = path.read_text()
    path.write_text("".join(lines))
    done = audit(server, "verify")
    assert done.returncode != 0 and f"{path.stem} line {5 if change == 'cut' else 4 if change == 'insert' else 3}" in done.stderr
    path.write_text(kept)


def test_lines_that_are_missing_at_the_end_are_found_by_an_earlier_hash(own_server):
    """Without that hash a record that was cut after a line is whole."""
    server = own_server()
    for _ in range(4):
        server.api("POST", "/v2/sandboxes", {"templateID": "none"})
    known = json.loads(audit(server, "-o", "json", "verify").stdout)
    assert audit(server, "verify", known["last_hash"]).returncode == 0
    (path,) = (server.home / "serve.db-audit").glob("*.jsonl")
    kept = path.read_text()
    path.write_text("".join(kept.splitlines(keepends=True)[:-1]))
    assert json.loads(audit(server, "-o", "json", "verify").stdout)["lines"] == known["lines"] - 1
    done = audit(server, "verify", known["last_hash"])
    assert done.returncode != 0 and "does not have this hash" in done.stderr
    server.api("POST", "/v2/sandboxes", {"templateID": "none"})  # the chain goes on, not over the gap
    assert audit(server, "verify").returncode == 0
    assert audit(server, "verify", known["last_hash"]).returncode != 0
    path.write_text(kept)


def test_a_line_that_was_cut_off_does_not_end_the_record(own_server):
    server = started(own_server)
    server.kill()
    (path,) = (server.home / "serve.db-audit").glob("*.jsonl")
    with path.open("a") as file:
        file.write('{"number":9,"previous":"00')
    server.start()
    assert server.api("GET", "/ready")[0] == 200
    assert [one["action"] for one in record(server)] == ["server.start", "server.start"]


def test_files_of_the_record_are_removed_after_their_days(own_server):
    server = started(own_server, "--audit-days", "7")
    folder = server.home / "serve.db-audit"
    for name in ("2001-01-01.jsonl", "note.jsonl"):
        (folder / name).write_text("")
    server.restart()
    assert server.api("GET", "/ready")[0] == 200
    assert not (folder / "2001-01-01.jsonl").exists() and (folder / "note.jsonl").exists()
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir() if path.name != "note.jsonl"} == {0o600}


def test_no_client_can_keep_a_command_out_of_the_record(own_server):
    """The longest and worst texts are cut, not left out."""
    from e2b import Sandbox

    server = own_server()
    with Sandbox.create(timeout=300) as sandbox:
        worst = "\x01\x02" * 2000
        sandbox.commands.run(f"true {worst}", cwd="/tmp")
        sandbox.files.write("/tmp/" + "\x7f" * 200, "text")
        assert [one["action"] for one in record(server)][-2:] == ["process.start", "file.write"]
        assert logs(server, sandbox)[-2]["fields"]["directory"] == "/tmp"
        sandbox.kill()


def test_unknown_clients_cannot_fill_the_record(own_server):
    server = own_server()
    for _ in range(200):
        assert server.api("GET", "/v2/sandboxes", X_API_KEY="wrong")[0] == 401
    text = read(server)
    count = len([one for one in record(server) if one["verdict"] == "deny"])
    assert 10 <= count < 200
    assert f"cay_audit_left_out_total {200 - count}\n" in text
    assert "cay_audit_failures_total 0\n" in text


def test_unknown_clients_write_little(own_server):
    server = own_server()
    for _ in range(3):
        assert server.api("POST", "/v2/sandboxes", {"templateID": "\x01" * 500}, X_API_KEY="wrong")[0] == 401
    assert max(len(json.dumps(one)) for one in record(server)) < 600


def test_no_tenant_can_use_up_the_record_of_the_others(own_server):
    server = started(own_server)
    server.kill()
    (path,) = (server.home / "serve.db-audit").glob("*.jsonl")
    text = path.read_bytes()
    room = 100_000
    with path.open("r+b") as file:  # a day on which much has happened: a file with a hole
        file.truncate((1 << 30) - room - len(text) - 1)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + text)
        file.seek(0)
        file.write(b"\0" * len(text))
    server.start()
    team = server.options_of("team")["api_key"]
    for _ in range(300):
        server.api("POST", "/v2/sandboxes", {"templateID": "n" * 500}, X_API_KEY=team)
    assert server.api("POST", "/v2/sandboxes", {"templateID": "none"})[0] == 404
    assert server.api("GET", "/ready")[0] == 200
    with path.open("rb") as file:
        file.seek(-room, os.SEEK_END)
        lines = [json.loads(line) for line in file.read().splitlines() if line.startswith(b'{"number"')]
    of_team = [line for line in lines if line["tenant"] == "team"]
    assert 20 < len(of_team) < 290 and lines[-1]["tenant"] == "default"
    gap, = [line for line in lines if line["action"] == "audit.gap"]  # the record says so once
    assert gap["details"] == {"of": "team", "lines": "requests"} and gap["actor"] == "server"
    assert gap["number"] > of_team[20]["number"]
    found = read(server)
    assert f"cay_audit_left_out_total {300 - len(of_team)}\n" in found
    assert "cay_audit_failures_total 0\n" in found


def test_the_chain_goes_on_when_all_earlier_files_are_too_old(own_server):
    server = started(own_server, "--audit-days", "7")
    server.kill()
    (path,) = (server.home / "serve.db-audit").glob("*.jsonl")
    last = json.loads(path.read_text().splitlines()[-1])
    path.rename(path.with_name("2001-01-01.jsonl"))
    server.start()
    assert server.api("GET", "/ready")[0] == 200
    first = record(server)[0]
    assert (first["number"], first["previous"]) == (last["number"] + 1, last["hash"])
    assert not path.with_name("2001-01-01.jsonl").exists()


def read(server):
    request = urllib.request.Request(f"{server.url}/metrics", headers={"X-API-KEY": server.key})
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return reply.read().decode()


def test_the_record_is_optional(own_server):
    server = started(own_server, "--audit-days", "0")
    assert not (server.home / "serve.db-audit").exists()
    assert audit(server, "verify").returncode != 0
    assert (server.home / "serve.db").exists()


# --- Webhooks ---

SECRET = b"0123456789abcdef0123456789abcdef"


class Receiver(http.server.ThreadingHTTPServer):
    """Verifies signatures as Standard Webhooks describes them."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.events, self.tries, self.status = [], [], 204
        self.url = f"http://127.0.0.1:{self.server_port}/hook?a=b"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def actions(self):
        return [one["action"] for one in self.events]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name, when = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        expected = hmac.new(SECRET, f"{name}.{when}.".encode() + body, hashlib.sha256).digest()
        assert self.headers["webhook-signature"] == "v1," + base64.b64encode(expected).decode()
        assert abs(int(when) - time.time()) < 300 and self.path == "/hook?a=b"
        event = json.loads(body)
        assert event["hash"] == name
        self.server.tries.append(name)
        if self.server.status == 204:
            self.server.events.append(event)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(name="receiver")
def fixture_receiver():
    with Receiver() as receiver:
        yield receiver


def hooked(own_server, receiver, folder):
    path = folder / "secret"
    path.write_text("whsec_" + base64.b64encode(SECRET).decode() + "\n")
    server = started(own_server, "--webhook", receiver.url, "--webhook-secret-file", str(path))
    wait_until(lambda: (server.home / "serve.db-webhook").exists(), "no place in the record")
    return server


def test_a_webhook_gets_what_happens_to_sandboxes_in_order(own_server, receiver, tmp_path):
    from e2b import Sandbox

    server = hooked(own_server, receiver, tmp_path)
    sandbox = Sandbox.create(timeout=300)
    sandbox.commands.run("""echo '"action":"sandbox.", "verdict":"deny"'""")
    sandbox.kill()
    assert server.api("GET", "/v2/sandboxes", X_API_KEY="wrong")[0] == 401
    wait_until(lambda: len(receiver.events) == 4, receiver.actions)
    assert receiver.actions() == ["sandbox.create", "sandbox.kill", "sandbox.end", "read"]
    assert receiver.events[0]["sandbox"] == sandbox.sandbox_id
    assert receiver.events[2]["details"] == {"reason": "was killed"}


def test_an_event_is_repeated_until_it_is_accepted(own_server, receiver, tmp_path):
    receiver.status = 500
    server = hooked(own_server, receiver, tmp_path)
    assert server.api("GET", "/v2/sandboxes", X_API_KEY="wrong")[0] == 401
    wait_until(lambda: len(receiver.tries) >= 2, "no second try")
    assert len(set(receiver.tries)) == 1
    server.restart()  # and by the next server
    receiver.status = 204
    wait_until(lambda: receiver.events, "no event")
    assert receiver.events[0]["hash"] == receiver.tries[0]
    assert server.api("GET", "/v2/sandboxes", X_API_KEY="wrong")[0] == 401
    wait_until(lambda: len(receiver.events) == 2, receiver.actions)
    assert len({one["hash"] for one in receiver.events}) == 2


@pytest.mark.parametrize("words, message", [
    (["--webhook", "ftp://x"], "invalid URL"),
    (["--webhook", "http://user@host/"], "invalid URL"),
    (["--webhook", "http://host:123456/"], "invalid URL"),
    (["--webhook", "http://host/a b"], "invalid URL"),
    (["--webhook", "http://host/"], "the secret for signatures is missing"),
    (["--webhook", "http://host/", "--webhook-secret-file", "SHORT"], "invalid secret of a webhook"),
    (["--webhook", "http://host/", "--webhook-secret-file", "GOOD", "--store", "memory:"],
     "webhooks need the audit record"),
    (["--webhook", "http://host/", "--webhook-secret-file", "GOOD", "--audit-days", "0"],
     "webhooks need the audit record")])
def test_a_webhook_that_cannot_work_is_refused(tmp_path, words, message):
    (tmp_path / "SHORT").write_text("whsec_YWJj")
    (tmp_path / "GOOD").write_text("whsec_" + base64.b64encode(SECRET).decode())
    for check in ([], ["--check"]):
        done = subprocess.run([CAY, "serve", "--listen", "127.0.0.1:0", *words, *check], cwd=tmp_path,
                              env={**os.environ, "CAY_HOME": str(tmp_path / "home")}, capture_output=True,
                              text=True, timeout=PATIENCE, check=False)
        assert done.returncode != 0 and message in done.stderr + done.stdout, done


def test_a_webhook_with_an_unknown_certificate_gets_nothing(own_server, receiver, tmp_path):
    """It is refused in the handshake: neither the event nor its signature is sent."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out", tmp_path / "crt",
                    "-keyout", tmp_path / "key"], check=True, capture_output=True, timeout=PATIENCE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    refused = []

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.settimeout(PATIENCE)
                    try:
                        with context.wrap_socket(connection, server_side=True) as secure:
                            refused.append(secure.recv(1))
                    except OSError as error:
                        refused.append(type(error).__name__)

        threading.Thread(target=serve, daemon=True).start()
        receiver.url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        server = hooked(own_server, receiver, tmp_path)
        assert server.api("GET", "/v2/sandboxes", X_API_KEY="wrong")[0] == 401
        wait_until(lambda: len(refused) >= 2, lambda: refused)
        listener.shutdown(socket.SHUT_RDWR)
    assert set(refused) <= {b"", "SSLError", "SSLEOFError", "ConnectionResetError", "SSLZeroReturnError"}
    assert "webhook did not accept an event (status 0)" in server.log.read_text()


def test_a_webhook_over_tls_gets_each_event_once(receiver, tmp_path):
    """Its authority is one of the system's, in a mount namespace of the server."""
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    system = next((path for path in ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                     "/etc/ssl/cert.pem") if os.path.exists(path)), None)
    if not system:
        unavailable("the system has no authorities")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", tmp_path / "crt",
                    "-keyout", tmp_path / "key"], check=True, capture_output=True, timeout=PATIENCE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    (tmp_path / "secret").write_text("whsec_" + base64.b64encode(SECRET).decode())
    server = Server(tmp_path / "home", "--reserve", "0", "--webhook",
                    f"https://localhost:{receiver.server_port}/hook?a=b",
                    "--webhook-secret-file", str(tmp_path / "secret"))
    server.before = ("unshare", "-m", "--propagation", "private", "sh", "-c",
                     f'mount --bind {tmp_path}/crt $(realpath {system}) && exec "$0" "$@"')
    server.start()
    assert server.api("GET", "/ready")[0] == 200
    wait_until(lambda: (server.home / "serve.db-webhook").exists(), "no place in the record")
    for _ in range(3):
        assert server.api("GET", "/v2/sandboxes", X_API_KEY="wrong")[0] == 401
    wait_until(lambda: len(set(receiver.tries)) == 3, lambda: receiver.tries)
    assert len(receiver.tries) == len(receiver.events) == 3
    server.clean()
