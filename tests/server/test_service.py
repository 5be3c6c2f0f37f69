# SPDX-License-Identifier: Apache-2.0
"""The server as a service: readiness, watchdog, --check, and its logs."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess

import pytest
from serving import CAY, PATIENCE, ROOT, unavailable, wait_until


def check(home, *options):
    done = subprocess.run([CAY, "serve", "--check", *options], capture_output=True, text=True,
                          env={**os.environ, "CAY_HOME": str(home)}, timeout=PATIENCE, check=False)
    kinds = [line.split()[0] for line in done.stdout.splitlines()[:-1]]
    return done.returncode, kinds, done.stdout


def test_a_check_creates_nothing(tmp_path):
    status, kinds, text = check(tmp_path / "home", "--listen", "127.0.0.1:0")
    assert status == 0 and "error" not in kinds and "will be created" in text
    assert not (tmp_path / "home").exists()


def test_a_check_finds_what_is_wrong(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "serve.db").write_text("no database, but a text that is long enough for a header\n" * 20)
    (home / "serve.db").chmod(0o600)
    (tmp_path / "key").write_text("no key")
    status, _, text = check(home, "--listen", "127.0.0.1:0", "--tls-cert", str(tmp_path / "key"),
                            "--tls-key", str(tmp_path / "key"), "--api-key-file",
                            str(tmp_path / "none"), "--access-log", str(tmp_path / "no" / "log"))
    assert status == 2
    for part in ("not a PEM certificate", "--store: ", "--api-key-file: ", "--access-log: "):
        assert re.search(f"^error .*{part}", text, re.M), text
    assert check(home, "--memory", "no")[0] == 2


def test_a_check_warns_of_plain_http_and_of_a_used_port(tmp_path):
    _, _, text = check(tmp_path, "--listen", "0.0.0.0:0")
    assert re.search("^warning  TLS: ", text, re.M)
    with socket.create_server(("127.0.0.1", 0)) as used:
        status, _, text = check(tmp_path, "--listen", f"127.0.0.1:{used.getsockname()[1]}")
    assert status == 0 and re.search("^warning  --listen: .* in use", text, re.M)


def test_a_check_compares_the_certificate_with_the_domain(tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
                    "-subj", "/CN=x", "-addext", "subjectAltName=DNS:boxes.example.com",
                    "-out", "cert", "-keyout", "key"], cwd=tmp_path, check=True, capture_output=True)
    options = ("--listen", "127.0.0.1:0", "--tls-cert", f"{tmp_path}/cert", "--tls-key",
               f"{tmp_path}/key")
    assert "ok       TLS: " in check(tmp_path / "home", *options)[2]
    for domain, doubt in (("other.example.com", "not for --domain"),
                          ("boxes.example.com", "names of sandboxes")):
        assert doubt in check(tmp_path / "home", *options, "--domain", domain)[2]


@contextlib.contextmanager
def manager(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(path))
        end.settimeout(PATIENCE)
        yield lambda: end.recv(4096).decode()


def test_the_service_manager_is_told_of_start_life_and_end(tmp_path):
    path = tmp_path / "notify"
    with manager(path) as heard:
        server = subprocess.Popen(
            [CAY, "serve", "--listen", "127.0.0.1:0", "--quiet", "--drain", "7"],
            stderr=subprocess.DEVNULL, env={**os.environ, "CAY_HOME": str(tmp_path / "home"),
                                            "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "4000000"})
        try:
            assert heard() == "READY=1"
            assert [heard(), heard()] == ["WATCHDOG=1"] * 2
            # Its environment is that of the start: what it has removed is not seen there.
            server.send_signal(signal.SIGTERM)
            wait_until(lambda: heard() == "STOPPING=1\nEXTEND_TIMEOUT_USEC=17000000", "no STOPPING")
        finally:
            server.terminate()
            assert server.wait(PATIENCE) == 0


def test_an_abstract_socket_of_the_service_manager(tmp_path):
    name = f"cay-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind("\0" + name)
        end.settimeout(PATIENCE)
        with subprocess.Popen(
                [CAY, "serve", "--listen", "127.0.0.1:0", "--quiet"], stderr=subprocess.DEVNULL,
                env={**os.environ, "CAY_HOME": str(tmp_path), "NOTIFY_SOCKET": "@" + name}) as server:
            assert end.recv(4096) == b"READY=1"
            server.terminate()


def test_the_units_are_valid(tmp_path):
    if not shutil.which("systemd-analyze"):
        unavailable("systemd-analyze is not installed")
    text = (ROOT / "data/systemd/cay.service.in").read_text(encoding="ascii")
    (tmp_path / "cay.service").write_text(text.replace("@CAY@", shutil.which("true")))
    shutil.copy(ROOT / "data/systemd/cay.socket", tmp_path)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", "cay.service", "cay.socket"],
                          cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_sandboxes_work_with_the_capabilities_of_the_unit(own_server):
    if not shutil.which("setpriv"):
        unavailable("setpriv is not installed")
    from e2b import Sandbox

    text = (ROOT / "data/systemd/cay.service.in").read_text(encoding="ascii")
    dropped = [name for line in re.findall("^CapabilityBoundingSet=~(.*)", text, re.M)
               for name in line.split()]
    assert len(dropped) > 10
    server = own_server()
    server.stop()
    server.before = ("setpriv", "--bounding-set",
                     ",".join(f"-{name.removeprefix('CAP_').lower()}" for name in dropped))
    server.start()
    os.environ.update(server.exports)
    with Sandbox.create(timeout=60) as sandbox:
        assert sandbox.commands.run("sudo -n id -u || id -u").stdout.strip() in ("0", "1000")
        sandbox.files.write("a", "b")
        sandbox.pause()
        sandbox = Sandbox.connect(sandbox.sandbox_id)
        assert sandbox.files.read("a") == "b"
        sandbox.kill()


def head_of(server, path, **headers):
    with server.connect() as client:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n"
                       .encode())
        reply = b""
        while piece := client.recv(65536):
            reply += piece
    return reply.decode().partition("\r\n\r\n")[0]


def id_of(head):
    (name,) = re.findall(r"^X-Request-Id: (req_[0-9a-f]{16})\r?$", head, re.M)
    return name


def test_a_reply_has_the_id_of_its_line_in_the_log(own_server):
    from e2b import Sandbox

    server = own_server()
    with Sandbox.create(timeout=60) as sandbox:
        names = {
            "found": id_of(head_of(server, f"/sandboxes/{sandbox.sandbox_id}", X_API_KEY=server.key)),
            "denied": id_of(head_of(server, "/v2/sandboxes", X_API_KEY="e2b_wrong")),
            "missing": id_of(head_of(server, "/sandboxes/a?signature=secret", X_API_KEY=server.key,
                                     X_Request_Id="mine")),
        }
        sandbox.files.write("/home/user/a", "x" * 1000)
        assert len(sandbox.files.read("/home/user/a")) == 1000
        sandbox.kill()
    server.stop()
    text = (server.home / "access.log").read_text()
    assert server.key not in text and "e2b_wrong" not in text and "secret" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert len({line["request"] for line in lines}) == len(lines)
    by_name = {line["request"]: line for line in lines}
    found, denied, missing = (by_name[names[kind]] for kind in ("found", "denied", "missing"))
    assert (found["level"], found["tenant"], found["status"]) == ("info", "default", 200)
    assert found["bytes_out"] > 100 and "reason" not in found
    assert (denied["level"], denied["status"], denied["reason"]) == ("warn", 401, "Invalid API key")
    assert "tenant" not in denied
    assert (missing["status"], missing["tenant"]) == (404, "default")
    files = [line for line in lines if line["path"] == "/files"]
    assert [line["tenant"] for line in files] == ["default"] * len(files)
    assert any(line["bytes_out"] == 1000 for line in files)
    assert any(line["bytes_in"] >= 1000 for line in files)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)


def test_a_log_of_text_has_one_line_for_each_request_whatever_clients_send(own_server):
    server = own_server("--log-format", "text")
    head_of(server, "/v2/%0a2026-01-01T00:00:00.000Z%20info%1b[31m", X_API_KEY=server.key)
    server.stop()
    (line,) = (server.home / "access.log").read_text().splitlines()
    assert re.fullmatch(r"\S+Z warn req_[0-9a-f]{16} 404 GET \S+ \d+ms in=0 out=\d+.* reason=not found", line)
    assert line.isascii() and line.isprintable()
    server.start()
    head_of(server, "/health", X_API_KEY=server.key, E2b_Sandbox_Id="x tenant=a\x1b[31m\x7f")
    server.stop()
    line = (server.home / "access.log").read_text().splitlines()[-1]
    assert line.isascii() and line.isprintable()
    assert " sandbox=x?tenant=a?[31m?" in line and " tenant=" not in line
    (server.home / "access.log").write_text("")


def test_warnings_are_objects_with_log_format_json(own_server):
    server = own_server("--log-format", "json")
    server.stop()
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert lines and all(set(line) == {"time", "level", "message"} for line in lines)
    assert any("internet" in line["message"] for line in lines)


@pytest.mark.parametrize("value", ["xml", ""])
def test_an_unknown_log_format_is_refused(tmp_path, value):
    done = subprocess.run([CAY, "serve", "--log-format", value], capture_output=True, text=True,
                          env={**os.environ, "CAY_HOME": str(tmp_path)}, timeout=PATIENCE, check=False)
    assert done.returncode == 2 and "--log-format" in done.stderr
