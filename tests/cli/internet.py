# SPDX-License-Identifier: Apache-2.0
"""An internet of the tests' own: a process in a network namespace.

    internet.py ADDRESS LOG KEY

It answers questions of DNS on port 53 and writes each name to LOG: slow.test late, big.test by TCP
only, old.test only without extensions. It serves HTTP (80), TLS (443)
and a protocol in which the server speaks first (7777) on every address, and writes the address and
port of each connection to LOG.connections.  It prints "ready".
"""

import socket
import socketserver
import ssl
import struct
import sys
import threading
import time

ADDRESS, LOG, KEY = sys.argv[1:4]
PUBLIC, PUBLIC6 = ADDRESS, "2600:1234::10"
NAMES = {
    "good.test": [PUBLIC],
    "other.test": [PUBLIC],
    "private.test": ["10.0.0.5"],
    "loop.test": ["127.0.0.1"],
    "meta.test": ["169.254.169.254"],
    "own.test": ["93.184.216.99"],
    "mapped.test": ["0.0.0.0"],
    "slow.test": [PUBLIC],
    "big.test": [PUBLIC],
    "old.test": [PUBLIC],
    "six.test": [PUBLIC6],
    "both.test": ["203.0.113.7", PUBLIC6],
    "loop6.test": ["::1"],
    "api.test": ["93.184.216.20"],  # api.py
    "bad.test": ["93.184.216.20"],
}
ASKED = {}


def addresses(name):
    ASKED[name] = ASKED.get(name, 0) + 1
    if name == "rebind.test":
        return [PUBLIC if ASKED[name] == 1 else "127.0.0.1"]
    if name.endswith(".wild.test"):
        return [PUBLIC]
    return NAMES.get(name)


def answer_dns(packet, is_stream=False):
    at, labels = 12, []
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    name, kind = ".".join(labels).lower(), struct.unpack("!H", packet[at + 1:at + 3])[0]
    with open(LOG, "a") as log:
        log.write(f"{kind} {name}\n")
    if name == "slow.test":
        time.sleep(1)
    found = addresses(name)
    has_extensions = packet[11] == 1
    if name == "old.test" and has_extensions:
        return packet[:2] + struct.pack("!HHHHH", 0x8181, 1, 0, 0, 0) + packet[12:at + 5]
    if name == "big.test" and not is_stream:
        return packet[:2] + struct.pack("!HHHHH", 0x8380, 1, 0, 0, 0) + packet[12:at + 5]
    is_six = kind == 28
    packed = [socket.inet_pton(socket.AF_INET6 if is_six else socket.AF_INET, each)
              for each in found or [] if (":" in each) == is_six and kind in (1, 28)]
    records = b"".join(struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(each)) + each for each in packed)
    count = len(packed)
    flags = 0x8180 if found else 0x8183
    return packet[:2] + struct.pack("!HHHHH", flags, 1, count, 0, 0) + packet[12:at + 5] + records


def serve_dns():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("0.0.0.0", 53))
    while True:
        packet, peer = sock.recvfrom(4096)
        threading.Thread(target=lambda packet=packet, peer=peer:
                         sock.sendto(answer_dns(packet), peer), daemon=True).start()


class DnsStream(socketserver.StreamRequestHandler):
    def handle(self):
        (size,) = struct.unpack("!H", self.rfile.read(2))
        reply = answer_dns(self.rfile.read(size), True)
        # In two pieces: a reply need not arrive at once.
        self.wfile.write(struct.pack("!H", len(reply)) + reply[:9])
        time.sleep(0.1)
        self.wfile.write(reply[9:])


class Http(socketserver.StreamRequestHandler):
    def handle(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline()
            if not line:
                return
            head += line
        path = head.split()[1].decode()
        lines = [line for line in head.decode().split("\r\n") if line.lower().startswith("host:")]
        if path.startswith("/bytes/"):
            body = bytes(range(256)) * (int(path[7:]) // 256)
        else:
            body = f"hello {lines[0][5:].strip() if lines else 'nobody'}".encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                         % len(body) + body)


class Banner(socketserver.StreamRequestHandler):
    """Speaks first; then counts bytes until the client has closed its side."""

    def handle(self):
        self.wfile.write(b"banner\n")
        count = 0
        while data := self.request.recv(65536):
            count += len(data)
        self.wfile.write(b"%d\n" % count)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512
    allow_reuse_port = True  # api.py serves on one address

    def verify_request(self, request, client_address):
        with open(f"{LOG}.connections", "a") as log:
            log.write("{}:{}\n".format(*request.getsockname()[:2]))
        return True


class Server6(Server):
    address_family = socket.AF_INET6

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()


class TlsServer(Server):
    def get_request(self):
        sock, peer = super().get_request()
        return CONTEXT.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), peer


CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CONTEXT.load_cert_chain(KEY)
for kind, port, handler in ((Server, 80, Http), (TlsServer, 443, Http), (Server, 7777, Banner),
                            (Server, 53, DnsStream), (Server6, 80, Http), (Server6, 7777, Banner)):
    threading.Thread(target=kind(("::" if kind is Server6 else "0.0.0.0", port), handler).serve_forever, daemon=True).start()
threading.Thread(target=serve_dns, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
