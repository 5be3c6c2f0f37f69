# SPDX-License-Identifier: Apache-2.0
"""The tests' internet with a web service (api.py) whose certificate the host trusts."""

import json
import subprocess
import sys
from pathlib import Path

from test_relay import Internet

ADDRESS = "93.184.216.20"
HERE = Path(__file__).parent

# For commands inside, after test_relay.INSIDE.
TALK = """
import json
def talk(sock, *requests):
    # Each request's status and body, over one connection.
    results, file = [], sock.makefile("rb")
    for request in requests:
        try:
            sock.sendall(request.encode())
        except OSError:
            break
    for request in requests:
        line = file.readline()
        if not line:
            break
        size = 0
        while (header := file.readline().strip()):
            if header.lower().startswith(b"content-length:"):
                size = 0 if request.startswith("HEAD") else int(header.split(b":")[1])
        results.append((int(line.split()[1]), file.read(size).decode().strip()))
    return results
def secure(host, name=None, protocols=None):
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(protocols)
    return context.wrap_socket(dial(host, 443), server_hostname=name or host)
def get(path, host="api.test", more="", method="GET"):
    return f"{method} {path} HTTP/1.1\\r\\nHost: {host}\\r\\n{more}\\r\\n"
"""


class Service(Internet):
    def __init__(self, base):
        super().__init__(base)
        self.requests_log = base / "requests"
        self.requests_log.write_text("")
        world = self.helpers[1]
        self.make_certificates()
        subprocess.run(["nsenter", "-t", str(world.pid), "-n", "ip", "addr", "add", f"{ADDRESS}/32",
                        "dev", "lo"], check=True)
        subprocess.run(["nsenter", "-t", str(self.host.pid), "-m", "mount", "--bind",
                        base / "roots.pem", "/etc/ssl/certs/ca-certificates.crt"], check=True)
        self.helpers.append(self.start(["nsenter", "-t", str(world.pid), "-n", sys.executable,
                                        HERE / "api.py", ADDRESS, base / "api.pem", self.requests_log]))

    def openssl(self, *words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=self.base)

    def make_certificates(self):
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self.openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
                     "-subj", "/CN=Test roots")
        self.openssl("req", *key, "-keyout", "api.key", "-out", "api.csr", "-subj", "/CN=api.test")
        (self.base / "names").write_text("subjectAltName=DNS:api.test\n")
        self.openssl("x509", "-req", "-in", "api.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                     "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "api.crt")
        parts = [(self.base / name).read_text() for name in ("api.key", "api.crt")]
        (self.base / "api.pem").write_text("".join(parts))
        host = Path("/etc/ssl/certs/ca-certificates.crt").read_text()
        (self.base / "roots.pem").write_text(host + (self.base / "ca.pem").read_text())

    def requests(self):
        return [json.loads(line) for line in self.requests_log.read_text().splitlines()]
