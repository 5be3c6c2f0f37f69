# SPDX-License-Identifier: Apache-2.0
"""A client of `cay mcp` that can also say what no client would."""

import json
import os
import select
import subprocess
import time

from conftest import CAY, PATIENCE

INFO = {"name": "test", "version": "1"}


class Client:
    def __init__(self, *words, cwd=None, env=None, before=()):
        self.process = subprocess.Popen(
            [*before, CAY, "mcp", *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=cwd, env={**os.environ, **(env or {})})
        self.waiting = b""
        self.last = 0
        self.notifications = []
        self.replies = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Closes the input, as a client does that leaves; the exit status."""
        for pipe in (self.process.stdin, self.process.stdout):
            if not pipe.closed:
                pipe.close()
        status = self.process.wait(PATIENCE)
        self.process.stderr.close()
        return status

    def send_raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        self.send_raw(json.dumps(message).encode() + b"\n")

    def receive(self):
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self.waiting:
            assert time.monotonic() < deadline, "no message"
            if select.select([self.process.stdout], [], [], 1)[0]:
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                assert data, "the server has ended"
                self.waiting += data
        line, _, self.waiting = self.waiting.partition(b"\n")
        return json.loads(line)

    def start(self, method, params=None, **more):
        self.last += 1
        self.send({"jsonrpc": "2.0", "id": self.last, "method": method,
                   **({} if params is None else {"params": params}), **more})
        return self.last

    def reply(self, number):
        while number not in self.replies:
            message = self.receive()
            if "method" in message:
                self.notifications.append(message)
            else:
                self.replies[message["id"]] = message
        return self.replies.pop(number)

    def request(self, method, params=None):
        return self.reply(self.start(method, params))

    def notify(self, method, params=None):
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def initialize(self, version="2025-11-25", **capabilities):
        result = self.request("initialize", {
            "protocolVersion": version, "capabilities": capabilities, "clientInfo": INFO})
        self.notify("notifications/initialized")
        return result["result"]

    def call(self, tool, **arguments):
        return self.request("tools/call", {"name": tool, "arguments": arguments})["result"]

    def data(self, tool, **arguments):
        result = self.call(tool, **arguments)
        assert not result["isError"], result
        return result["structuredContent"]

    def tools(self):
        return {tool["name"]: tool for tool in self.request("tools/list")["result"]["tools"]}
