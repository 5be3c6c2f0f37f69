# SPDX-License-Identifier: Apache-2.0
"""What listens in a sandbox may answer with headers of a sensible size, and with no end of them
to nobody's harm."""

import time

import pytest
from raw import request, talk
from serving import PATIENCE, wait_until

# Answers GET /N with N headers of a kilobyte each.
SERVER = r"""
import socket
listener = socket.create_server(("127.0.0.1", 8000))
while True:
    client = listener.accept()[0]
    asked = b""
    while b"\r\n\r\n" not in asked:
        asked += client.recv(65536)
    count = int(asked.split()[1][1:])
    head = b"".join(b"X-%d: %s\r\n" % (i, b"a" * 1000) for i in range(count))
    client.sendall(b"HTTP/1.1 200 OK\r\n" + head + b'Content-Length: 4\r\n\r\n"hi"')
    client.close()
"""


def test_heads_that_are_too_large_are_a_bad_gateway(server, sandbox):
    sandbox.files.write("server.py", SERVER)
    sandbox.commands.run("python3 server.py", background=True)

    def ask(count, **more):
        return server.api("GET", f"/{count}", E2b_Sandbox_Id=sandbox.sandbox_id,
                          E2b_Sandbox_Port="8000", **more)

    deadline = time.monotonic() + PATIENCE
    while ask(0)[0] == 502 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ask(15) == (200, "hi")
    assert ask(15, Y="y" * 8000) == (200, "hi")
    for count in (17, 40, 70):
        status, answer = ask(count)
        assert status == 502 and "too many headers" in answer["message"]
    assert ask(1) == (200, "hi")


# Says first what it was started with, then for ever the rest of it.
ENDLESS = r"""
import socket, sys
first, again = (word.encode().decode("unicode_escape").encode() for word in sys.argv[1:])
listener = socket.create_server(("127.0.0.1", 8001))
while True:
    client = listener.accept()[0]
    client.recv(65536)
    try:
        client.sendall(first)
        while True:
            client.sendall(again * 10000)
    except OSError:
        client.close()
"""
CHUNKED = r"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("first, again", [
    ("", r"HTTP/1.1 100 Continue\r\n\r\n"),
    (CHUNKED + r"1\r\na\r\n0\r\n", r"A: b\r\n"),
    (CHUNKED + r"1\r\na\r\n1", ";ab"),
], ids=["interim heads", "trailers", "an extension of a chunk"])
def test_what_has_no_end_and_no_content_is_not_read_for_ever(server, sandbox, first, again):
    sandbox.files.write("server.py", ENDLESS)
    sandbox.commands.run(f"python3 server.py '{first}' '{again}'", background=True)
    asked = request("GET /", f"E2b-Sandbox-Id: {sandbox.sandbox_id}", "E2b-Sandbox-Port: 8001",
                    "Connection: close")
    deadline = time.monotonic() + PATIENCE
    while b"port is not open" in (heard := talk(server, asked)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert heard.startswith(b"HTTP/1.1 200 OK" if first else b"HTTP/1.1 502 ")
    assert not heard.endswith(b"0\r\n\r\n"), "it was cut, and looks whole"
    assert server.api("GET", "/health") == (204, None)


# Wants the browser to forget everything of the domain.
CLEARING = r"""
import socket
listener = socket.create_server(("127.0.0.1", 8002))
while True:
    client = listener.accept()[0]
    client.recv(65536)
    client.sendall(b'HTTP/1.1 200 OK\r\nclear-site-data: "cookies"\r\nX-Own: yes\r\n'
                   b'Clear-Site-Data: "*"\r\nContent-Length: 2\r\n\r\nhi')
    client.close()
"""


def test_a_page_of_a_sandbox_cannot_clear_cookies_of_the_domain(server, sandbox):
    sandbox.files.write("server.py", CLEARING)
    sandbox.commands.run("python3 server.py", background=True)
    asked = request("GET /", f"E2b-Sandbox-Id: {sandbox.sandbox_id}", "E2b-Sandbox-Port: 8002",
                    "Connection: close")
    answer = wait_until(lambda: (got := talk(server, asked)).startswith(b"HTTP/1.1 200") and got,
                        "the program does not listen")
    assert b"\r\nX-Own: yes\r\n" in answer and answer.endswith(b"\r\n\r\nhi")
    assert b"clear-site-data" not in answer.lower()
