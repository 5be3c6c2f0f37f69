# SPDX-License-Identifier: Apache-2.0
"""docs/serving.md: names of sandboxes, TLS and nginx (issue 15, sections 3 and 4)."""

import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys

import pytest
from serving import PATIENCE, ROOT, Server, free_port, unavailable, wait_until

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


@pytest.mark.parametrize("by_domain", [False, True])
def test_get_host_works_with_tls_and_a_domain(tmp_path, certificate, by_domain):
    needs_names()
    cert, key = certificate
    with serving(tmp_path / "home", "--domain", "boxes.localhost:PORT", "--tls-cert", str(cert),
                 "--tls-key", str(key)) as server:
        exports = {"E2B_DOMAIN": f"boxes.localhost:{server.port}", "E2B_API_KEY": server.key}
        run_client(exports if by_domain else server.exports, "https://", cert)


def test_the_configuration_of_nginx_works(tmp_path, certificate):
    needs_names()
    if not shutil.which("nginx"):
        unavailable("nginx is not there")
    cert, key = certificate
    port = free_port()
    with serving(tmp_path / "home", "--domain", f"boxes.localhost:{port}") as server:
        block = re.search(r"^```nginx\n(.*?)^```", PAGE, re.M | re.S)[1]
        for old, new in (("/etc/ssl/boxes.crt", str(cert)), ("/etc/ssl/boxes.key", str(key)),
                         ("listen 443", f"listen 127.0.0.1:{port}"),
                         ("boxes.example.com", "boxes.localhost"),
                         ("127.0.0.1:3000", f"127.0.0.1:{server.port}")):
            assert old in block
            block = block.replace(old, new)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        (tmp_path / "nginx.conf").write_text(
            f"pid {tmp_path}/nginx.pid; error_log {tmp_path}/error.log; daemon off;\n"
            f"user root; events {{}}\nhttp {{\naccess_log off;\n" +
            "".join(f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in kinds) + block + "}\n")
        words = ["nginx", "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")]
        checked = subprocess.run([*words, "-t"], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        with subprocess.Popen(words) as nginx:
            try:
                context = ssl.create_default_context(cafile=cert)

                def answers():
                    with contextlib.suppress(OSError), \
                            socket.create_connection(("127.0.0.1", port), 5) as client, \
                            context.wrap_socket(client, server_hostname="boxes.localhost"):
                        return True
                    return False

                wait_until(answers, "nginx does not answer")
                run_client({"E2B_DOMAIN": f"boxes.localhost:{port}", "E2B_API_KEY": server.key},
                           "https://", cert)
            finally:
                nginx.terminate()


def test_the_unit_takes_options_from_a_file():
    text = (ROOT / "build" / "src" / "server" / "cay.service").read_text(encoding="utf-8") \
        if (ROOT / "build" / "src" / "server" / "cay.service").exists() else \
        (ROOT / "data" / "systemd" / "cay.service.in").read_text(encoding="utf-8")
    assert "\nEnvironmentFile=-/etc/default/cay-serve\n" in text
    assert re.search(r"^ExecStart=\S+ serve .* \$CAY_SERVE_OPTIONS$", text, re.M)
