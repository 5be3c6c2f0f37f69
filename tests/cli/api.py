# SPDX-License-Identifier: Apache-2.0
"""A web service of the tests' internet, for HTTP (80) and TLS (443).

    api.py ADDRESS CERTIFICATE LOG

It replies with the request as JSON, keeps connections, and appends each request to LOG.  Some paths
have a meaning: /redirect/HOST/PATH redirects, /split/N sends the header
Authorization in two pieces.  It prints "ready".
"""

import json
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS, CERTIFICATE, LOG = sys.argv[1:4]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def reply(self):
        seen = {"method": self.command, "path": self.path, "body": self.body().decode("latin-1"),
                "headers": {name.lower(): value for name, value in self.headers.items()}}
        with open(LOG, "a") as log:
            log.write(json.dumps(seen) + "\n")
        if self.path.startswith("/redirect/"):
            self.send_response(302)
            self.send_header("Location", "https://" + self.path.split("/", 2)[2])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path.startswith("/split/"):
            return self.split(int(self.path.split("/")[2]), seen["headers"]["authorization"].encode())
        data = json.dumps(seen).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Echo", seen["headers"].get("authorization", ""))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def split(self, size, value):
        """The value between 15,000 bytes, in two pieces with a pause between them."""
        data = b"x" * 15000 + value + b"y" * 15000
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:15000 + size])
        time.sleep(0.5)
        self.wfile.write(data[15000 + size:])

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = reply

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = True  # internet.py serves on every address


class TlsServer(Server):
    def get_request(self):
        sock, peer = super().get_request()
        return CONTEXT.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), peer

    def handle_error(self, request, client_address):
        pass


CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CONTEXT.load_cert_chain(CERTIFICATE)
CONTEXT.set_alpn_protocols(["h2", "http/1.1"])
for kind, port in ((Server, 80), (TlsServer, 443)):
    threading.Thread(target=kind((ADDRESS, port), Handler).serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
