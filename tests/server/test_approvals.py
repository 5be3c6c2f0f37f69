# SPDX-License-Identifier: Apache-2.0
"""Commands and connections of sandboxes of the server that wait for approval."""

import json
import threading

import pytest
import raw
from serving import PATIENCE, wait_until


class Asker:
    """A tenant, with requests as its client sends them."""

    def __init__(self, server, tenant):
        self.server, self.options, self.made = server, server.options_of(tenant), []

    def api(self, method, path, body=None):
        return self.server.api(method, path, body, X_API_KEY=self.options["api_key"])

    def create(self, **approvals):
        from e2b import Sandbox

        status, made = self.api("POST", "/v2/sandboxes", {
            "templateID": "base", "timeout": 600, "approvals": approvals})
        assert status == 201, made
        self.made.append(made["sandboxID"])
        return Sandbox.connect(made["sandboxID"], **self.options)

    def waiting(self, count=1):
        return wait_until(lambda: len(found := self.api("GET", "/approvals")[1]) == count and found,
                          lambda: self.api("GET", "/approvals"))

    def reply(self, one, verdict, **more):
        return self.api("POST", f"/approvals/{one['approvalID']}", {"verdict": verdict, **more})

    def close(self):
        for one in self.made:
            self.api("DELETE", f"/sandboxes/{one}")
        for rule in self.api("GET", "/approval-rules")[1]:
            self.api("DELETE", f"/approval-rules/{rule['ruleID']}")
        for one in self.api("GET", "/approvals")[1]:
            if not one["decided"]:
                self.reply(one, "deny")


@pytest.fixture(name="asker")
def fixture_asker(server, request):
    asker = Asker(server, f"asker-{abs(hash(request.node.name)) % 10**9}")
    yield asker
    asker.close()


class Run:
    """A command in a thread: its result, or the error."""

    def __init__(self, sandbox, command, **options):
        self.result = None
        self.thread = threading.Thread(target=self.run, args=(sandbox, command, options))
        self.thread.start()

    def run(self, sandbox, command, options):
        try:
            self.result = sandbox.commands.run(command, timeout=0, request_timeout=0, **options).stdout
        except Exception as error:  # pylint: disable=broad-except
            self.result = error

    def wait(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.result


def test_a_command_waits_until_it_is_allowed(asker):
    sandbox = asker.create(commands=["*guarded*"], timeout=500, scope="ci")
    assert sandbox.commands.run("echo free").stdout == "free\n"
    assert asker.api("GET", "/approvals") == (200, [])
    run = Run(sandbox, "echo guarded", cwd="/tmp", envs={"KEY": "hidden-value"})
    one, = asker.waiting()
    assert (one["kind"], one["scope"], one["decided"]) == ("command", "ci", False)
    assert one["subject"] == "/bin/bash -l -c 'echo guarded'" and "sandboxID" not in one
    status, shown = asker.api("GET", f"/approvals/{one['approvalID']}")
    assert status == 200 and shown.items() >= one.items()
    assert "directory, 4 bytes: /tmp\n" in shown["content"] and "KEY" in shown["content"]
    assert "hidden-value" not in shown["content"]
    assert asker.reply(one, "allow") == (204, None)
    assert run.wait() == "guarded\n"
    assert asker.api("GET", "/approvals") == (200, [])
    info = asker.api("GET", f"/sandboxes/{asker.made[0]}")[1]
    assert info["approvals"] == {"commands": ["*guarded*"], "egress": False, "timeout": 500, "scope": "ci"}
    assert info["metadata"] == {}


def test_a_denied_command_fails_with_the_note(asker):
    sandbox = asker.create(commands=["*guarded*"])
    run = Run(sandbox, "echo guarded")
    one, = asker.waiting()
    assert one["sandboxID"] == asker.made[0]
    assert asker.reply(one, "deny", note="not before noon") == (204, None)
    assert "not before noon" in str(run.wait())
    # Its time is over: the answer is no, and a reply comes too late.
    sandbox = asker.create(commands=["*guarded*"], timeout=1)
    run = Run(sandbox, "echo guarded")
    one, = asker.waiting()
    assert "no reply in time" in str(run.wait())
    assert asker.reply(one, "allow")[0] == 404


def test_a_remembered_command_runs_again_until_the_rule_is_removed(asker):
    sandbox = asker.create(commands=["*guarded*"], scope="shop")
    run = Run(sandbox, "echo guarded")
    assert asker.reply(asker.waiting()[0], "remember") == (204, None)
    assert run.wait() == "guarded\n"
    other = asker.create(commands=["*"], scope="shop")
    assert other.commands.run("echo guarded").stdout == "guarded\n"
    rule, = asker.api("GET", "/approval-rules")[1]
    assert (rule["verdict"], rule["kind"], rule["scope"]) == ("allow", "command", "shop")
    assert "echo guarded" in rule["subject"]
    assert asker.api("DELETE", f"/approval-rules/{rule['ruleID']}") == (204, None)
    assert asker.api("DELETE", f"/approval-rules/{rule['ruleID']}")[0] == 404
    run = Run(other, "echo guarded")
    assert asker.reply(asker.waiting()[0], "deny") == (204, None)
    assert "denied" in str(run.wait())


def test_no_tenant_sees_or_answers_the_requests_of_another(server, asker):
    sandbox = asker.create(commands=["*guarded*"], scope="same")
    other = Asker(server, "another-tenant")
    run = Run(sandbox, "echo guarded")
    one, = asker.waiting()
    assert other.api("GET", "/approvals") == (200, [])
    assert other.api("GET", f"/approvals/{one['approvalID']}")[0] == 404
    assert other.reply(one, "allow")[0] == 404
    assert server.cay("approve", "list", "-q").stdout == ""  # nor does the server's user
    assert asker.reply(one, "remember")[0] == 204
    assert run.wait() == "guarded\n"
    assert other.api("GET", "/approval-rules") == (200, [])
    rule, = asker.api("GET", "/approval-rules")[1]
    assert other.api("DELETE", f"/approval-rules/{rule['ruleID']}")[0] == 404
    assert len(asker.api("GET", "/approval-rules")[1]) == 1
    assert server.api("GET", "/approvals", X_API_KEY="e2b_" + "0" * 40)[0] == 401


def test_invalid_replies_are_refused(asker):
    run = Run(asker.create(commands=["*guarded*"]), "echo guarded")
    one, = asker.waiting()
    path = f"/approvals/{one['approvalID']}"
    for body in ({}, {"verdict": "yes"}, {"verdict": 1}, {"verdict": "allow", "note": "x" * 5000}, None):
        assert asker.api("POST", path, body)[0] == 400
    for wrong in ("0" * 64, "..%2frules", "rules", "x", "0" * 255):
        assert asker.api("POST", f"/approvals/{wrong}", {"verdict": "allow"})[0] in (400, 404)
        assert asker.api("GET", f"/approvals/{wrong}")[0] == 404
    assert asker.reply(one, "allow") == (204, None) and run.wait() == "guarded\n"


def test_the_first_reply_counts(asker):
    sandbox = asker.create(commands=["*guarded*"])
    run = Run(sandbox, "echo guarded")
    one, = asker.waiting()
    assert asker.api("POST", f"/sandboxes/{asker.made[0]}/pause")[0] == 204  # nothing waits any more
    assert isinstance(run.wait(), Exception)
    assert asker.reply(one, "allow") == (204, None)
    status, error = asker.reply(one, "deny")
    assert status == 409 and "already" in error["message"], error
    assert asker.waiting()[0]["decided"]
    sandbox.connect()
    assert Run(sandbox, "echo guarded").wait() == "guarded\n"  # it uses the reply
    assert asker.reply(one, "deny")[0] == 404
    run = Run(sandbox, "echo guarded")
    assert asker.reply(asker.waiting()[0], "deny") == (204, None) and isinstance(run.wait(), Exception)


def test_what_was_approved_is_what_runs(asker):
    """Each part of a command is part of the request."""
    sandbox = asker.create(commands=["*guarded*"])
    first = Run(sandbox, "echo guarded", cwd="/tmp")
    one, = asker.waiting()
    others = [Run(sandbox, "echo guarded", cwd="/"), Run(sandbox, "echo guarded", user="root"),
              Run(sandbox, "echo guarded", envs={"PATH": "/tmp"}), Run(sandbox, "echo guarded ")]
    assert len({found["approvalID"] for found in asker.waiting(5)}) == 5
    assert asker.reply(one, "allow")[0] == 204 and first.wait() == "guarded\n"
    for found in asker.waiting(4):
        assert asker.reply(found, "deny")[0] == 204
    assert all(isinstance(run.wait(), Exception) for run in others)


def test_the_number_of_requests_is_bounded(asker):
    sandbox = asker.create(commands=["*"])
    # The server's own commands need no approval.
    assert asker.server.api("GET", "/envs", E2b_Sandbox_Id=sandbox.sandbox_id,
                            X_Access_Token=sandbox._envd_access_token)[0] == 200
    assert asker.api("GET", "/approvals") == (200, [])
    clients = [raw.connect(asker.server) for _ in range(70)]
    try:
        for number, client in enumerate(clients):
            client.sendall(raw.start(sandbox, "echo", str(number)))
        heads = []
        for client in clients:
            stream = raw.Stream(client)
            while stream.status is None or not ("cay-approval:" in stream.head or stream.data):
                assert stream.more()
            assert "cay-approval:" in stream.head or b"resource_exhausted" in stream.data, stream.data
            heads.append("cay-approval:" in stream.head)
        assert sum(heads) == 64
        assert len(asker.api("GET", "/approvals")[1]) == 64
    finally:
        for client in clients:
            client.close()


def test_the_memory_of_commands_that_wait_is_bounded(asker):
    """Also if all of them are the same one."""
    sandbox = asker.create(commands=["*"])
    command = raw.start(sandbox, "echo", "x" * 900000)
    waiting, refused, clients = 0, 0, []
    try:
        while not refused and len(clients) < 40:
            clients.append(raw.connect(asker.server))
            clients[-1].sendall(command)
            stream = raw.Stream(clients[-1])
            while stream.status is None or not ("cay-approval:" in stream.head or stream.data):
                assert stream.more()
            waiting += "cay-approval:" in stream.head
            refused += b"resource_exhausted" in stream.data
            assert waiting + refused == len(clients), stream.data
        assert refused and 10 <= waiting <= 19
    finally:
        for client in clients:
            client.close()


def test_a_client_that_asks_for_them_gets_events_while_it_waits(asker):
    sandbox = asker.create(commands=["*guarded*"])
    with raw.connect(asker.server) as client:
        client.sendall(raw.start(sandbox, "echo", "guarded",
                                 more=("Cay-Approval: events", "Keepalive-Ping-Interval: 1")))
        stream = raw.Stream(client)
        while b"keepalive" not in stream.data:
            assert stream.more()
        one, = asker.waiting()
        assert f"cay-approval: {one['approvalID']}" in stream.head
        assert asker.reply(one, "allow")[0] == 204
        while b'"exitCode":0' not in stream.data:
            assert stream.more()


def test_what_waits_survives_a_restart(own_server):
    server = own_server()
    asker = Asker(server, "default")
    sandbox = asker.create(commands=["*guarded*"])
    run = Run(sandbox, "echo guarded")
    one, = asker.waiting()
    server.restart()
    assert isinstance(run.wait(), Exception)
    server.first_front = server.front()
    assert asker.waiting() == [one]
    run = Run(sandbox, "echo guarded")
    wait_until(lambda: asker.waiting()[0]["expiresAt"] > one["expiresAt"], "the command did not join")
    assert asker.waiting()[0]["approvalID"] == one["approvalID"]
    assert asker.reply(one, "allow") == (204, None)
    assert run.wait() == "guarded\n"
    found = [json.loads(line) for path in sorted(server.home.glob("serve.db-audit/*.jsonl"))
             for line in path.read_text().splitlines()]
    decided, = [line for line in found if line["action"] == "approval.decide"]
    assert decided["tenant"] == "default" and decided["details"]["id"] == one["approvalID"]


def test_a_fork_keeps_what_waits(asker):
    asker.create(commands=["*guarded*"], scope="forks")
    status, forks = asker.api("POST", f"/sandboxes/{asker.made[0]}/fork", {"count": 1})
    assert status in (200, 201), forks
    from e2b import Sandbox

    made = forks[0]["sandbox"] if "sandbox" in forks[0] else forks[0]
    asker.made.append(made["sandboxID"])
    run = Run(Sandbox.connect(made["sandboxID"], **asker.options), "echo guarded")
    assert asker.reply(asker.waiting()[0], "allow")[0] == 204
    assert run.wait() == "guarded\n"


@pytest.mark.parametrize("approvals", [
    [], {"command": ["x"]}, {"commands": "x"}, {"commands": [""]}, {"commands": [1]},
    {"commands": ["two\nlines"]}, {"commands": ["x"] * 1000}, {"commands": ["x"], "timeout": 0},
    {"commands": ["x"], "timeout": 604801}, {"commands": ["x"], "scope": ""},
    {"commands": ["x"], "scope": "x" * 300}, {"commands": ["x"], "egress": 1}])
def test_invalid_approvals_are_refused(asker, approvals):
    status, error = asker.api("POST", "/v2/sandboxes", {"templateID": "base", "approvals": approvals})
    assert status == 400 and error["message"], (status, error)
