# SPDX-License-Identifier: Apache-2.0
"""`cay mcp --approve-writes`: what is approved is what the tools write."""

import base64
import json
import os
import subprocess
import time

import pytest

from conftest import CAY, PATIENCE
from mcp_client import INFO, Client

FORMS = {"elicitation": {}}
MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientCapabilities": FORMS,
          "io.modelcontextprotocol/clientInfo": INFO}


class Asked(Client):
    """A client whose user replies to forms, in this order, after `meanwhile`."""

    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        self.decisions, self.seen, self.meanwhile = [], [], None

    def receive(self):
        message = super().receive()
        if message.get("method") != "elicitation/create":
            return message
        self.seen.append(message["params"]["message"])
        if self.meanwhile:
            self.meanwhile()
        reply = {"action": "accept", "content": {"decision": self.decisions.pop(0)}}
        self.send({"jsonrpc": "2.0", "id": message["id"], "result": reply})
        return message

    def error(self, tool, **arguments):
        result = self.call(tool, **arguments)
        assert result["isError"], result
        return result["content"][0]["text"]

    def text(self, path):
        return self.data("read_file", path=path)["content"]


@pytest.fixture(name="home")
def fixture_home(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return {"CAY_HOME": str(home)}


@pytest.fixture(name="client")
def fixture_client(home):
    with Asked("-m", "256M", "--approve-writes", "*.py", "--approve-writes", "/tmp/kept/*",
               env=home) as client:
        client.initialize(**FORMS)
        yield client


def test_a_write_waits_for_the_user_of_the_client(client):
    client.data("write_file", path="a.txt", content="free")
    assert not client.seen
    client.decisions = ["allow", "deny", "allow", "allow", "allow"]
    client.data("write_file", path="a.py", content="one\u202e\n")
    assert "/a.py\n\nwrite 7 bytes to a.py:\none\\u{202e}\n" in client.seen[0]
    assert client.error("write_file", path="a.py", content="two\n").startswith("not-approved: ")
    assert client.text("a.py") == "one\u202e\n"
    client.data("write_file", path="a.py", content=base64.b64encode(b"\xff\n").decode(),
                encoding="base64")
    assert "\\u{ff}" in client.seen[2]
    client.data("write_file", path="./a.py", content="3", append=True)
    assert "append 1 bytes to ./a.py" in client.seen[3]
    client.data("write_file", path="/tmp/kept/deep/x", content="")
    assert "/tmp/kept/deep/x" in client.seen[4] and not client.decisions
    assert client.data("read_file", path="a.py", encoding="base64")["content"] == \
        base64.b64encode(b"\xff\n3").decode()


def test_an_edit_waits_and_a_rule_is_for_its_file(client):
    client.decisions = ["always", "deny"]
    client.data("write_file", path="a.py", content="x = 1\ny = 1\n")
    edits = [{"old_text": "x = 1", "new_text": "x = 2"}, {"old_text": "1", "new_text": "3", "all": True}]
    client.data("edit_file", path="a.py", edits=edits)
    assert client.text("a.py") == "x = 2\ny = 3\n" and len(client.seen) == 1
    client.data("run_command", command="cp a.py b.py")
    assert client.error("edit_file", path="b.py", edits=[
        {"old_text": "2", "new_text": "4"}, {"old_text": "y", "new_text": "z", "all": True}])
    assert "a file of 12 bytes, SHA-256 " in client.seen[1]
    assert "--- the only, 1 bytes:\n2\n--- becomes, 1 bytes:\n4\n--- each of, 1 " in client.seen[1]
    assert client.text("b.py") == "x = 2\ny = 3\n"


def test_a_link_is_the_file_that_it_leads_to(client):
    client.decisions = ["allow", "deny"]
    client.data("write_file", path="a.py", content="one\n")
    client.data("run_command", command="ln -s a.py plain")
    assert client.error("write_file", path="plain", content="two\n").startswith("not-approved: ")
    assert "/a.py\n\nwrite 4 bytes to plain:\n" in client.seen[1]
    assert client.text("a.py") == "one\n"


@pytest.mark.parametrize("tool, how", [
    ("write_file", {"content": "two\n"}),
    ("edit_file", {"edits": [{"old_text": "one", "new_text": "two"}]})])
def test_a_file_that_changes_before_the_reply_is_left_as_it_is(client, tool, how):
    client.decisions = ["allow", "allow"]
    client.data("write_file", path="a.py", content="one\n")
    client.meanwhile = lambda: client.reply(client.start("tools/call", {
        "name": "run_command", "arguments": {"command": "echo one more >> a.py"}}))
    assert client.error(tool, path="a.py", **how).startswith("changed: ")
    assert client.text("a.py") == "one\none more\n"


def test_two_calls_with_the_same_content_have_their_own_forms(client):
    client.decisions = ["allow", "allow"]
    numbers = [client.start("tools/call", {"name": "write_file", "arguments": {
        "path": path, "content": "same\n"}}) for path in ("a.py", "b.py")]
    for number in numbers:
        assert not client.reply(number)["result"]["isError"]
    assert sorted("a.py" in seen for seen in client.seen) == [False, True]


def test_what_cannot_be_shown_is_refused(client):
    assert "too large" in client.error("write_file", path="a.py", content="x" * (1 << 20) + "x")
    client.data("write_file", path="big.txt", content="x" * (1 << 20) + "y")
    client.data("run_command", command="mv big.txt big.py")
    assert "too large" in client.error("edit_file", path="big.py", edits=[
        {"old_text": "y", "new_text": "x" * (1 << 20)}])
    assert not client.seen


def call_again(client, first, decision, **arguments):
    """As clients of the newest revision do; the result."""
    return client.request("tools/call", {
        "name": "write_file", "arguments": arguments, "_meta": MODERN,
        "requestState": first["requestState"],
        "inputResponses": {"approval": {"action": "accept", "content": {"decision": decision}}},
    })["result"]


def test_the_newest_revision_calls_again_with_the_reply(home):
    with Asked("-m", "256M", "--approve-writes", "*.py", env=home) as client:
        wanted = {"path": "a.py", "content": "one\n"}
        first = client.request("tools/call", {"name": "write_file", "arguments": wanted,
                                              "_meta": MODERN})["result"]
        assert first["resultType"] == "input_required"
        assert "one\n" in first["inputRequests"]["approval"]["params"]["message"]
        other = call_again(client, first, "allow", path="a.py", content="two\n")
        assert other["resultType"] == "input_required"  # the reply is for other content
        assert other["requestState"] != first["requestState"]
        assert not call_again(client, first, "allow", **wanted)["isError"]
        found = client.request("tools/call", {"name": "read_file", "arguments": {"path": "a.py"},
                                              "_meta": MODERN})["result"]
        assert found["structuredContent"]["content"] == "one\n"


def test_a_write_waits_in_the_queue_if_the_client_has_no_forms(home):
    def cay(*words):
        return subprocess.run([CAY, *words], env={**os.environ, **home}, capture_output=True,
                              text=True, timeout=PATIENCE, check=True).stdout

    with Client("-m", "256M", "--approve-writes", "*.py", env=home) as client:
        client.initialize()
        number = client.start("tools/call", {"name": "write_file", "arguments": {
            "path": "a.py", "content": "one\n"}})
        deadline = time.monotonic() + PATIENCE
        while not (listed := json.loads(cay("approve", "list", "-o", "json"))["requests"]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert (listed[0]["kind"], listed[0]["subject"][-5:]) == ("write", "/a.py")
        cay("approve", "allow", listed[0]["id"])
        assert not client.reply(number)["result"]["isError"]
        assert client.data("read_file", path="a.py")["content"] == "one\n"


def test_tools_that_copy_directories_are_not_there(tmp_path):
    with Client("-v", f"{tmp_path}:/shown", "--approve-writes", "*.py") as client:
        client.initialize()
        assert "write_file" in client.tools() and not {"upload", "download"} & set(client.tools())
    done = subprocess.run([CAY, "mcp", "wrap", "--approve-writes", "*.py", "--", "true"],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 125 and "--approve-writes" in done.stderr
