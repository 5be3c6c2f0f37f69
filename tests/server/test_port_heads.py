# SPDX-License-Identifier: Apache-2.0
"""What listens in a sandbox may answer with headers of a sensible size."""

import time

from serving import PATIENCE

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
