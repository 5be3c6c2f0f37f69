# SPDX-License-Identifier: Apache-2.0
"""HTTP by hand: clients that say exactly what a test wants them to say."""

import base64
import json
import re
import socket
from contextlib import suppress
from dataclasses import dataclass

import httpx
from serving import PATIENCE


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


def request(line, *headers, body=b"", host="127.0.0.1"):
    """The bytes of a request: `line` without its version."""
    head = [f"{line} HTTP/1.1", *([f"Host: {host}"] if host else []), *headers]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def sized(line, body, *headers, **more):
    return request(line, *headers, f"Content-Length: {len(body)}", body=body, **more)


def of(sandbox, *headers):
    """The headers of a request to a sandbox's own service."""
    return (f"E2b-Sandbox-Id: {sandbox.sandbox_id}", "E2b-Sandbox-Port: 49983",
            f"X-Access-Token: {sandbox._envd_access_token}", *headers)


def hear(client):
    """All that comes until the other side closes; a reset is an end, too."""
    heard = b""
    with suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            heard += piece
    return heard


def talk(server, data):
    """Sends, and returns all that comes until the server closes."""
    with server.connect() as client:
        with suppress(ConnectionError):
            client.sendall(data)
        return hear(client)


def web(method, url, **options):
    """One request by httpx, which by itself waits for five seconds."""
    return httpx.request(method, url, timeout=PATIENCE, **options)


def answers(data):
    """How often a reply begins."""
    return len(re.findall(rb"(?:^|[\r\n}])HTTP/1\.[01] \d{3} ", data))


def parse(data):
    """The first answer of what was heard; its body as it came."""
    assert data.startswith(b"HTTP/1.1 "), f"no answer: {data[:200]!r}"
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    if "content-length" in headers:
        body = body[:int(headers["content-length"])]
    return Answer(int(lines[0].split()[1]), headers, body)


def ask(server, data):
    """One request, and the first answer to it; the server is to close."""
    return parse(talk(server, data))


class Answers:
    """Reads one answer after the other from a connection that stays open; lengths are told."""

    def __init__(self, client):
        self.client, self.heard = client, b""

    def more(self):
        piece = self.client.recv(1 << 16)
        assert piece, f"closed after {self.heard!r}"
        self.heard += piece

    def next(self):
        while b"\r\n\r\n" not in self.heard:
            self.more()
        head = self.heard.partition(b"\r\n\r\n")[0]
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        size = len(head) + 4 + (int(length[1]) if length else 0)
        while len(self.heard) < size:
            self.more()
        answer, self.heard = parse(self.heard[:size]), self.heard[size:]
        return answer


# --- Connect ----------------------------------------------------------------------------


def envelope(message):
    text = json.dumps(message).encode()
    return b"\0" + len(text).to_bytes(4, "big") + text


def start(sandbox, *words, more=(), **options):
    """The bytes that start a command and ask for its stream."""
    body = envelope({"process": {"cmd": words[0], "args": words[1:]}, "stdin": False, **options})
    return sized("POST /process.Process/Start", body, *of(sandbox), *more,
                 "Content-Type: application/connect+json")


class Stream:
    """Reads a reply in chunks, and envelopes in it, as they come."""

    def __init__(self, client):
        self.client, self.raw, self.data = client, b"", b""
        self.status = self.head = None

    def more(self):
        piece = self.client.recv(1 << 16)
        self.raw += piece
        if self.status is None and b"\r\n\r\n" in self.raw:
            head, _, self.raw = self.raw.partition(b"\r\n\r\n")
            assert b"transfer-encoding: chunked" in head.lower(), head
            self.status, self.head = int(head.split()[1]), head.decode().lower()
        while self.status is not None and self.take_chunk():
            pass
        return bool(piece)

    def take_chunk(self):
        line, end, rest = self.raw.partition(b"\r\n")
        size = int(line, 16) if end else -1
        if size < 0 or len(rest) < size + 2:
            return False
        assert rest[size:size + 2] == b"\r\n"
        self.data += rest[:size]
        self.raw = rest[size + 2:]
        return size > 0

    def events(self):
        """(flags, message) as long as there are any."""
        while True:
            while len(self.data) < 5 or len(self.data) < 5 + int.from_bytes(self.data[1:5], "big"):
                if not self.more():
                    return
            size = int.from_bytes(self.data[1:5], "big")
            flags, message = self.data[0], json.loads(self.data[5:5 + size])
            self.data = self.data[5 + size:]
            yield flags, message
            if flags & 2:
                return


def output_of(server, data):
    """What a command that is started so writes, and how it ends."""
    out, ends = b"", []
    with server.connect() as client:
        client.sendall(data)
        for _, message in Stream(client).events():
            event = message.get("event", {})
            out += base64.b64decode(event.get("data", {}).get("stdout", ""))
            ends += [event["end"]] if "end" in event else []
    assert len(ends) == 1, ends
    return out, ends[0]


def connect(server):
    client = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def reset(client):
    """Leaves without a word: the other side gets a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
