# SPDX-License-Identifier: Apache-2.0
"""docs/serving.md: names of sandboxes, TLS, nginx, Caddy and HAProxy (issue 15, sections 3 and 4)."""

import contextlib
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys

import pytest
from serving import CAY, PATIENCE, ROOT, Server, free_port, unavailable, wait_until

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
CLIENT = """
import subprocess, sys, urllib.request
from e2b import Sandbox
with Sandbox.create(timeout=300) as sandbox:
    sandbox.files.write("/home/user/www/index.html", "hello " * 700_000)
    sandbox.commands.run("cd www && python3 -m http.server 8000", background=True, timeout=0)
    sandbox.commands.run("until (: < /dev/tcp/127.0.0.1/8000); do sleep 0.05; done 2>/dev/null")
    url = sys.argv[1] + sandbox.get_host(8000)
    with urllib.request.urlopen(url, timeout=60) as reply:
        print("python", len(reply.read()))
    for program in sys.argv[2:]:
        done = subprocess.run([program, "-e", "fetch(process.argv[1]).then(r => r.text()).then("
                               "t => console.log('node', t.length))", url], text=True,
                              capture_output=True, timeout=60)
        print(done.stdout.strip() or done.stderr)
    seen = []
    sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.2; done", on_stdout=seen.append)
    print("pieces", len(seen) >= 2, "".join(seen).split())
    sandbox.kill()
"""


@pytest.fixture(scope="module", name="certificate")
def fixture_certificate(tmp_path_factory):
    """That of the page."""
    place = tmp_path_factory.mktemp("tls")
    command = re.search(r"^openssl req .*?\n(?=cay serve)", PAGE, re.M | re.S)[0]
    subprocess.run(["sh", "-euc", command], cwd=place, check=True, capture_output=True)
    return place / "boxes.crt", place / "boxes.key"


def commands(section):
    """The blocks of commands of a section."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)


def needs_names():
    try:
        socket.getaddrinfo("3000-x.boxes.localhost", 1)
    except OSError:
        unavailable("names below localhost are resolved by libnss-myhostname")


def run_client(exports, scheme, certificate=None):
    env = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    env.update(exports)
    if certificate:
        env.update(SSL_CERT_FILE=str(certificate), NODE_EXTRA_CA_CERTS=str(certificate))
    node = shutil.which("node", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    done = subprocess.run([sys.executable, "-c", CLIENT, scheme, *([node] if node else [])], env=env,
                          capture_output=True, text=True, timeout=3 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines == ["python 4200000", *(["node 4200000"] if node else []),
                     "pieces True ['1', '2', '3']"]


@contextlib.contextmanager
def serving(home, *options):
    server = Server(home, "--reserve", "0")
    server.options += tuple(word.replace("PORT", str(server.port)) for word in options)
    server.start()
    try:
        yield server
    finally:
        server.clean()


def test_get_host_works_below_localhost(tmp_path):
    needs_names()
    with serving(tmp_path / "home") as server:
        run_client(server.exports, "http://")


def test_get_host_works_with_tls_below_localhost(tmp_path, certificate):
    needs_names()
    cert, key = certificate
    with serving(tmp_path / "home", "--domain", "boxes.localhost:PORT", "--tls-cert", str(cert),
                 "--tls-key", str(key)) as server:
        run_client(server.exports, "https://", cert)


def test_the_server_needs_no_proxy(tmp_path, certificate):
    needs_names()
    (command,) = commands("Without a proxy")
    cay, serve, listen, address, *options = shlex.split(command.replace("\\\n", ""))
    assert [cay, serve, listen, address] == ["cay", "serve", "--listen", "0.0.0.0:443"]
    for old, new in (("/etc/ssl/boxes.crt", str(certificate[0])),
                     ("/etc/ssl/boxes.key", str(certificate[1])),
                     ("boxes.example.com", "boxes.localhost:PORT")):
        options[options.index(old)] = new
    with serving(tmp_path / "home", *options) as server:
        run_client({"E2B_DOMAIN": f"boxes.localhost:{server.port}", "E2B_API_KEY": server.key},
                   "https://", certificate[0])


def test_the_options_of_the_service_are_accepted(tmp_path):
    service, check, key = commands("As a service")
    done = subprocess.run(["sh", "-c", check.replace("cay ", f"'{CAY}' ", 1)], text=True, check=True,
                          env={**os.environ, "CAY_HOME": str(tmp_path)}, capture_output=True)
    assert "0 errors" in done.stdout
    options = re.search(r"CAY_SERVE_OPTIONS=(.*)' > /etc/default/cay-serve", service)[1]
    with serving(tmp_path / "home", *options.split()) as server:
        done = subprocess.run(["sh", "-c", key.replace("cay ", f"'{CAY}' ", 1)], env=server.env,
                              capture_output=True, text=True, check=True)
        assert server.api("GET", "/v2/sandboxes", X_API_KEY=done.stdout.strip()) == (200, [])


# --- Behind a proxy --------------------------------------------------------------------------


def block(language, changes):
    """The configuration that the page shows, with names and ports of this test."""
    text = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)[1]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def nginx(place, port, server, certificate):
    text = block("nginx", [("/etc/ssl/boxes.crt", str(certificate[0])),
                           ("/etc/ssl/boxes.key", str(certificate[1])),
                           ("listen 443", f"listen 127.0.0.1:{port}"),
                           ("boxes.example.com", "boxes.localhost"),
                           ("127.0.0.1:3000", f"127.0.0.1:{server.port}")])
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    (place / "nginx.conf").write_text(
        f"pid {place}/nginx.pid; error_log {place}/error.log; daemon off;\n"
        f"user root; events {{}}\nhttp {{\naccess_log off;\n" +
        "".join(f"{kind}_temp_path {place}/{kind};\n" for kind in kinds) + text + "}\n")
    return ["nginx", "-c", str(place / "nginx.conf"), "-e", str(place / "error.log")]


def caddy(place, port, server, certificate):
    text = block("caddy", [("/etc/ssl/boxes.crt", str(certificate[0])),
                           ("/etc/ssl/boxes.key", str(certificate[1])),
                           ("boxes.example.com", f"boxes.localhost:{port}"),
                           ("127.0.0.1:3000", f"127.0.0.1:{server.port}")])
    (place / "Caddyfile").write_text(
        "{\nadmin off\nauto_https disable_redirects\ndefault_bind 127.0.0.1\n}\n" + text)
    return ["env", f"XDG_DATA_HOME={place}", f"XDG_CONFIG_HOME={place}", "caddy", "run",
            "--config", str(place / "Caddyfile")]


def haproxy(place, port, server, certificate):
    (place / "boxes.pem").write_text(certificate[0].read_text() + certificate[1].read_text())
    text = block("haproxy", [("/etc/ssl/boxes.pem", str(place / "boxes.pem")),
                             ("bind :443", f"bind 127.0.0.1:{port}"),
                             ("127.0.0.1:3000", f"127.0.0.1:{server.port}")])
    (place / "haproxy.cfg").write_text("global\n    maxconn 100\n" + text)
    return ["haproxy", "-db", "-f", str(place / "haproxy.cfg")]


def answers(port, certificate):
    context = ssl.create_default_context(cafile=certificate)
    with contextlib.suppress(OSError), \
            socket.create_connection(("127.0.0.1", port), 5) as client, \
            context.wrap_socket(client, server_hostname="boxes.localhost"):
        return True
    return False


@pytest.fixture(params=[nginx, caddy, haproxy], ids=lambda proxy: proxy.__name__)
def proxied(request, tmp_path, certificate):
    """What programs export to use a server behind a proxy."""
    needs_names()
    if not shutil.which(request.param.__name__):
        unavailable(f"{request.param.__name__} is not installed")
    port = free_port()
    with serving(tmp_path / "home", "--domain", f"boxes.localhost:{port}") as server:
        words = request.param(tmp_path, port, server, certificate)
        with (tmp_path / "proxy.log").open("wb") as log, \
                subprocess.Popen(words, stderr=log, cwd=tmp_path) as proxy:
            try:
                wait_until(lambda: answers(port, certificate[0]) or proxy.poll() is not None,
                           "the proxy does not answer")
                assert proxy.poll() is None, (tmp_path / "proxy.log").read_text()
                yield {"E2B_DOMAIN": f"boxes.localhost:{port}", "E2B_API_KEY": server.key}
            finally:
                proxy.terminate()


def test_the_configuration_of_the_proxy_works(proxied, certificate):
    run_client(proxied, "https://", certificate[0])


# In the sandbox: prints headers, tries to direct nginx elsewhere, and speaks WebSocket.
SITE = """
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade"):
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\n"
                             b"Connection: Upgrade\\r\\n"
                             b"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\\r\\n\\r\\n")
            self.wfile.write(self.connection.recv(100).upper())
            self.close_connection = True
            return
        body = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        self.send_response(200)
        if self.path == "/elsewhere":
            self.send_header("X-Accel-Redirect", "/redirected")
        self.send_header("X-Path", self.path)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""

VISITOR = '''
import json, socket, ssl, sys, urllib.request
from e2b import Sandbox
with Sandbox.create(timeout=600) as sandbox:
    sandbox.files.write("site.py", sys.argv[1])
    sandbox.commands.run("python3 site.py", background=True, timeout=0)
    sandbox.commands.run("until (: < /dev/tcp/127.0.0.1/8000); do sleep 0.05; done 2>/dev/null")
    host = sandbox.get_host(8000)
    def get(path):
        request = urllib.request.Request(f"https://{host}{path}", headers={
            "X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "gopher"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.headers["X-Path"], json.load(reply)
    path, seen = get("/")
    print(seen["host"] == host, seen["x-forwarded-for"], seen["x-forwarded-proto"])
    print(get("/elsewhere")[0])
    name, port = host.rsplit(":", 1)
    with socket.create_connection((name, int(port)), 60) as plain, \\
            ssl.create_default_context().wrap_socket(plain, server_hostname=name) as client:
        client.sendall(f"GET /ws HTTP/1.1\\r\\nHost: {host}\\r\\nUpgrade: websocket\\r\\n"
                       "Connection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n"
                       "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n\\r\\n".encode())
        head = b""
        while b"\\r\\n\\r\\n" not in head:
            head += client.recv(1)
        client.sendall(b"frames")
        print(head.split()[1].decode(), client.recv(100).decode())
    sandbox.files.write("large", b"x" * (40 << 20))
    print(sandbox.commands.run("wc -c < large").stdout.strip(), len(sandbox.files.read("large")))
    waiting = sandbox.commands.run("echo begun; until test -e go; do sleep 0.05; done; echo end",
                                   background=True, timeout=0)
    def on_output(text):
        if "begun" in text:
            sandbox.files.write("go", "")  # only after the output came
    print(waiting.wait(on_stdout=on_output).stdout.split())
    sandbox.kill()
'''


def visit(proxied, certificate, program, *arguments):
    env = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True,
                          env={**env, **proxied, "SSL_CERT_FILE": str(certificate[0])},
                          text=True, timeout=5 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_proxy_passes_names_addresses_websockets_uploads_and_streams(proxied, certificate):
    assert visit(proxied, certificate, VISITOR, SITE) == [
        "True 127.0.0.1 https", "/elsewhere", "101 FRAMES", f"{40 << 20} {40 << 20}",
        "['begun', 'end']"]


def test_the_proxy_passes_code_on(proxied, certificate):
    pytest.importorskip("e2b_code_interpreter", reason="it needs Python 3.11")
    assert visit(proxied, certificate, """
from e2b_code_interpreter import Sandbox
with Sandbox.create(timeout=600) as sandbox:
    seen = []
    execution = sandbox.run_code("print('out'); 6 * 7", on_stdout=lambda part: seen.append(part.line))
    print(seen, execution.text)
    sandbox.kill()
""") == ["['out\\n'] 42"]


@pytest.mark.long
def test_the_proxy_keeps_a_silent_stream(proxied, certificate):
    """Defaults of proxies end a stream that is silent for 60 seconds."""
    assert visit(proxied, certificate, """
from e2b import Sandbox
with Sandbox.create(timeout=600) as sandbox:
    print(sandbox.commands.run("echo a; sleep 70; echo b", timeout=0).stdout.split())
    sandbox.kill()
""") == ["['a', 'b']"]


def test_the_unit_takes_options_from_a_file():
    text = (ROOT / "build" / "src" / "server" / "cay.service").read_text(encoding="utf-8") \
        if (ROOT / "build" / "src" / "server" / "cay.service").exists() else \
        (ROOT / "data" / "systemd" / "cay.service.in").read_text(encoding="utf-8")
    assert "\nEnvironmentFile=-/etc/default/cay-serve\n" in text
    assert re.search(r"^ExecStart=\S+ serve .* \$CAY_SERVE_OPTIONS$", text, re.M)
