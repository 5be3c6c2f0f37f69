# SPDX-License-Identifier: Apache-2.0
"""Connections that no rule allows or denies wait for approval, outside of the sandbox."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE
from mcp_client import Client
from test_approve import Queue, ended
from test_relay import INSIDE, PUBLIC, PUBLIC_TOO, internet, processes  # noqa: F401

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")


class EgressQueue(Queue):
    """Its commands run in the network of the tests."""

    def __init__(self, base, net):
        super().__init__(base, prefix=net.command())
        self.net = net
        self.ids = []

    def inside(self, code, *options):
        return self.start("run", "--approve-egress", *options, "--", "python3", "-c",
                          INSIDE + textwrap.dedent(code))

    def create(self, *options):
        self.ids.append(self.run("create", "--approve-egress", *options).strip())
        return self.ids[-1]

    def attempt(self, box, code):
        return self.start("exec", box, "--", "python3", "-c", INSIDE + textwrap.dedent(code))


@pytest.fixture(name="queue")
def fixture_queue(internet):  # noqa: F811
    base = Path(tempfile.mkdtemp())
    queue = EgressQueue(base, internet)
    queue.prefix = [*queue.prefix, "env", "-C", base]
    yield queue
    for box in queue.ids:
        queue.run("rm", "-f", box, status=None)
    shutil.rmtree(base)


FETCH = 'print(fetch("good.test"))'


def test_an_unnamed_host_waits_and_nothing_leaves_before_the_reply(queue):
    before = len(queue.net.questions()), len(queue.net.connections())
    runner = queue.inside(FETCH)
    request = queue.waiting(runner)
    assert (request["kind"], request["subject"], request["scope"]) == \
        ("egress", "good.test:80", str(queue.base))
    assert (len(queue.net.questions()), len(queue.net.connections())) == before
    queue.run("approve", "allow", request["id"])
    code, out, error = ended(runner)
    assert (code, out) == (0, "200 hello good.test\n"), error
    assert queue.requests() == []


def test_a_yes_is_for_the_connections_that_wait_and_not_for_later_ones(queue):
    box = queue.create("--allow", "other.test")
    first = queue.attempt(box, FETCH)
    queue.run("approve", "allow", queue.waiting(first)["id"])
    assert ended(first)[1] == "200 hello good.test\n"
    assert "good.test" not in queue.run("network", box)
    second = queue.attempt(box, FETCH)
    queue.run("approve", "deny", queue.waiting(second)["id"])
    assert ended(second)[1] == "403 cay: good.test:80 was not approved\n"
    assert ended(queue.attempt(box, 'print(fetch("other.test"))'))[1] == "200 hello other.test\n"


def test_a_remembered_host_is_a_rule_of_the_queue_and_of_the_network(queue):
    box = queue.create("--name", f"egress-{os.getpid()}")
    first = queue.attempt(box, f'print(banner("{PUBLIC}"))')
    request = queue.waiting(first)
    assert (request["subject"], request["scope"]) == (f"{PUBLIC}:7777", f"egress-{os.getpid()}")
    queue.run("approve", "remember", request["id"])
    greeting = ended(first)[1]
    assert ended(queue.attempt(box, f'print(banner("{PUBLIC}"))'))[1] == greeting != ""
    assert f"  {PUBLIC}:7777\n" in queue.run("network", box)
    assert queue.run("approve", "rules").splitlines()[1] == \
        "\t".join(["allow", "egress", f"egress-{os.getpid()}", f"{PUBLIC}:7777"])
    assert queue.requests() == []


def test_a_configuration_lets_hosts_wait(queue):
    config = queue.base / "box.yaml"
    config.write_text("type: native\nallow: [other.test]\napprove_egress: true\napprove_timeout: 300\n")
    runner = queue.start("run", "--config", "box.yaml", "--", "python3", "-c",
                         INSIDE + 'print(fetch("other.test"), fetch("good.test"))')
    request = queue.waiting(runner)
    assert (request["kind"], request["subject"], request["scope"]) == ("egress", "good.test:80", str(queue.base))
    assert 290_000 < request["expires_ms"] - request["created_ms"] <= 300_000
    queue.run("approve", "allow", request["id"])
    assert ended(runner)[1] == "200 hello other.test 200 hello good.test\n"
    for network in ("host", "open"):
        config.write_text(f"type: native\nnetwork: {network}\napprove_egress: true\n")
        done = queue.run("run", "--config", "box.yaml", "--", "true", status=None)
        assert done.returncode == 125 and "no hosts that wait for approval" in done.stderr, done


def test_denied_and_private_hosts_are_refused_at_once(queue):
    box = queue.create("--deny", "good.test", "--deny", f"{PUBLIC_TOO}/32")
    out = ended(queue.attempt(box, f"""
        print(fetch("good.test"))
        print(fetch("{PUBLIC_TOO}").split()[0], fetch("10.0.0.5").split()[0], fetch("169.254.169.254").split()[0])
    """))[1]
    assert out.splitlines()[1] == "403 403 403" and "200" not in out
    assert queue.requests() == []
    # A name that is approved does not open the private address that it has.
    waiter = queue.attempt(box, 'print(fetch("private.test"))')
    queue.run("approve", "allow", queue.waiting(waiter)["id"])
    assert ended(waiter)[1].startswith("403 cay: private.test:80 at 10.0.0.5 is not allowed")


def test_without_a_reply_in_time_the_answer_is_no(queue):
    runner = queue.inside(FETCH, "--approve-timeout", "1s")
    assert ended(runner)[1].startswith("403 cay: good.test:80 was not approved")


def test_so_many_destinations_wait_and_the_others_are_refused(queue):
    box = queue.create()
    runner = queue.attempt(box, """
        socks = []
        for number in range(32):
            socks.append(dial(f"a{number}.wild.test", 80))
        for _ in range(100):
            line = fetch("one-more.test")
            if "too many" in line:
                break
            time.sleep(0.05)
        print(line)
    """)
    assert ended(runner)[1] == \
        "403 cay: too many connections wait for approval (the limits are 64, and 32 destinations)\n"


def test_a_sandbox_cannot_fill_the_queue(queue):
    box = queue.create()
    runner = queue.attempt(box, """
        for turn in range(3):
            socks = [dial(f"t{turn}-{number}.wild.test", 80) for number in range(30)]
            time.sleep(1.5)
            for sock in socks:
                sock.close()
            time.sleep(0.3)
        print("done")
    """)
    assert ended(runner)[1] == "done\n"
    assert 30 <= len(queue.requests()) <= 32


def test_another_process_continues_after_the_one_that_asked_was_killed(queue):
    box = queue.create()
    watcher, = watchers(queue)
    runner = queue.attempt(box, FETCH)
    request = queue.waiting(runner)
    os.kill(watcher, signal.SIGKILL)
    queue.run("approve", "allow", request["id"])
    watcher = queue.start("approve", "watch", box)
    assert ended(runner)[1] == "200 hello good.test\n"
    queue.run("rm", "-f", queue.ids.pop())
    assert ended(watcher)[0] == 0


def test_the_process_that_asks_does_not_show_arguments_to_other_users(queue):
    queue.create("-e", "TOKEN=of-the-sandbox")
    watcher, = watchers(queue)
    assert b"of-the-sandbox" not in Path(f"/proc/{watcher}/cmdline").read_bytes()


def watchers(queue):
    """They get their name a moment after `cay create` has ended."""
    end = time.monotonic() + PATIENCE
    found = []
    while not found and time.monotonic() < end:
        found = [pid for _, pid in processes("cay-approve") if has_home(pid, queue.base)]
    return found


def has_home(pid, base):
    try:
        return f"CAY_HOME={base}/state".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_new_rules_decide_about_connections_that_wait(queue):
    box = queue.create()
    runner = queue.attempt(box, FETCH)
    queue.waiting(runner)
    queue.run("network", box, "--allow", "good.test")
    assert ended(runner)[1] == "200 hello good.test\n"


def test_a_network_that_has_no_unnamed_hosts_is_an_error():
    for network in ("host", "none", "open"):
        done = subprocess.run([CAY, "run", "--approve-egress", "--network", network, "--", "true"],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 125 and "--approve-egress" in done.stderr


def test_the_user_of_an_mcp_client_with_forms_approves_connections(queue):
    words = ["--approve-egress", "--name", f"mcp-{os.getpid()}"]
    command = "python3 -c " + shlex.quote(INSIDE + 'print(fetch("good.test"), fetch("other.test"), fetch("good.test"))')
    env = {"CAY_HOME": queue.env["CAY_HOME"]}
    with Client(*words, before=queue.prefix, env=env) as client:
        client.initialize(elicitation={})
        number = client.start("tools/call", {"name": "run_command", "arguments": {"command": command}})
        seen = []
        for reply in ({"action": "accept", "content": {"decision": "always"}}, {"action": "decline"}):
            form = client.receive()
            assert form["method"] == "elicitation/create", form
            seen.append(form["params"]["message"])
            client.send({"jsonrpc": "2.0", "id": form["id"], "result": reply})
        result = client.reply(number)["result"]
        assert seen == [f"Allow this connection of the sandbox?\n\n{host}:80" for host in ("good.test", "other.test")]
        assert result["structuredContent"]["stdout"].split("\n")[0] == \
            "200 hello good.test 403 cay: other.test:80 was not approved 200 hello good.test", result
        assert queue.requests() == []
