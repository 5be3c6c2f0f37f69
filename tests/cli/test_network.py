# SPDX-License-Identifier: Apache-2.0
"""cay network and cay events, in the namespaces of test_relay.py."""

import json
import os
import subprocess
import textwrap
import threading
import time
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE
from test_relay import INSIDE, PUBLIC, PUBLIC6, internet, sandbox  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")


def run(internet, box, code):
    return internet.cay("exec", box, "--", "python3", "-c",
                        INSIDE + textwrap.dedent(code)).splitlines()


def network(internet, box, *options):
    return json.loads(internet.cay("network", box, *options, "-o", "json"))


def events(internet, box):
    return [json.loads(line) for line in internet.cay("events", box, "-o", "json").splitlines()]


def rules(shown):
    return [rule["rule"] for rule in shown["rules"]]


def test_rules_are_added_and_replaced_while_a_sandbox_runs(internet, sandbox):
    box = sandbox("good.test")
    look = 'print(fetch("good.test")); print(fetch("other.test"))'
    assert run(internet, box, look) == ["200 hello good.test", "gaierror"]
    assert rules(network(internet, box, "--allow", "other.test")) == ["good.test", "other.test"]
    assert run(internet, box, look) == ["200 hello good.test", "200 hello other.test"]
    shown = network(internet, box, "--deny", "good.test")
    assert rules(shown) == ["good.test", "other.test", "!good.test"]
    assert run(internet, box, look) == ["gaierror", "200 hello other.test"]
    assert rules(network(internet, box, "--reset", "--allow", "good.test")) == ["good.test"]
    assert run(internet, box, look) == ["200 hello good.test", "gaierror"]


def test_the_network_is_opened_and_closed_while_a_sandbox_runs(internet, sandbox):
    box = sandbox("good.test")
    shown = network(internet, box, "--network", "open", "--deny", "good.test")
    assert (shown["network"], rules(shown)) == ("open", ["good.test", "!good.test"])
    look = 'print(fetch("good.test")); print(fetch("other.test"))'
    assert run(internet, box, look) == ["gaierror", "200 hello other.test"]
    assert json.loads(internet.cay("inspect", box, "-o", "json"))["network"] == "open"
    shown = network(internet, box, "--reset", "--network", "rules")
    assert (shown["network"], shown["rules"]) == ("rules", [])
    assert run(internet, box, look) == ["gaierror", "gaierror"]


def test_a_connection_that_is_no_longer_allowed_is_cut(internet, sandbox):
    box = sandbox("good.test:7777", "other.test:7777")
    with subprocess.Popen(internet.command(
            CAY, "exec", box, "--", "python3", "-uc", INSIDE + textwrap.dedent("""
                socks = [dial(name, 7777) for name in ("good.test", "other.test")]
                print([sock.recv(100) for sock in socks])
                print(attempt(lambda: socks[0].recv(1)))
                socks[1].shutdown(socket.SHUT_WR)
                print(socks[1].recv(100))
            """)), stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"[b'banner\\n', b'banner\\n']\n"
        network(internet, box, "--deny", "good.test")
        assert process.stdout.readline() == b"ECONNRESET\n"
        assert process.stdout.readline() == b"b'0\\n'\n"


def test_concurrent_changes_are_all_applied(internet, sandbox):
    box = sandbox("good.test")
    names = [f"n{i}.test" for i in range(8)]
    threads = [threading.Thread(target=internet.cay, args=("network", box, "--allow", name))
               for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(rules(network(internet, box))) == ["good.test", *names]


def test_an_invalid_rule_changes_nothing(internet, sandbox):
    box = sandbox("good.test")
    done = internet.cay("network", box, "--allow", "other.test", "--allow", "a..test", check=False)
    assert done.returncode != 0 and b"a..test" in done.stderr
    assert rules(network(internet, box)) == ["good.test"]
    assert run(internet, box, 'print(fetch("other.test"))') == ["gaierror"]


def test_a_sandbox_without_a_network_has_no_rules_to_change(internet):
    for given, shows in (((), True), (("--network", "host"), False)):
        box = internet.cay("create", *given).strip()
        try:
            done = internet.cay("network", box, "--allow", "good.test", check=False)
            assert done.returncode != 0 and b"create it with network rules" in done.stderr
            done = internet.cay("network", box, "-o", "json", check=False)
            assert (done.returncode == 0) == shows
            if shows:
                assert json.loads(done.stdout)["network"] == "none"
            assert internet.cay("events", box, check=False).returncode != 0
        finally:
            internet.cay("kill", box)


def test_rules_are_shown_by_ls_and_explain(internet, sandbox):
    box = sandbox("pypi", "good.test")
    network(internet, box, "--deny", "other.test")
    listed = {each["id"]: each for each in json.loads(internet.cay("ls", "-o", "json"))["sandboxes"]}
    assert {"rule": "pypi.org", "group": "pypi"} in listed[box]["rules"]
    assert {"rule": "!other.test:*", "group": None} in listed[box]["rules"] or \
        {"rule": "!other.test", "group": None} in listed[box]["rules"]
    for host, verdict in (("good.test", "allow"), ("other.test", "deny"), ("x.test", "deny")):
        answer = json.loads(internet.cay("explain", "network", "--sandbox", box, "-o", "json", host))
        assert answer["verdict"] == verdict
    done = internet.cay("explain", "network", "--sandbox", box, "--allow", "pypi", "x.test", check=False)
    assert done.returncode != 0 and b"--sandbox" in done.stderr


def test_every_attempt_is_an_event(internet, sandbox):
    box = sandbox("good.test")
    run(internet, box, f"""
        fetch("good.test"); fetch("good.test", 8080); fetch("evil.test"); fetch("{PUBLIC}")
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.connect(("8.8.8.8", 443)); attempt(lambda: sock.send(b"x"))
    """)
    found = events(internet, box)
    assert [event["number"] for event in found] == list(range(1, len(found) + 1))
    short = {(event["event"], event["verdict"], event["name"], event["address"], event["port"],
              event["protocol"], event["rule"]) for event in found}
    assert {("connect", "allow", "good.test", PUBLIC, 80, "tcp", "good.test"),
            ("close", "allow", "good.test", PUBLIC, 80, "tcp", "good.test"),
            ("connect", "deny", "good.test", None, 8080, "tcp", "default"),
            ("connect", "deny", None, PUBLIC, 80, "tcp", "default"),
            ("lookup", "deny", "evil.test", None, 53, "udp", "default"),
            ("packet", "deny", None, "8.8.8.8", 443, "udp", "default")} <= short
    closed = next(event for event in found if event["event"] == "close")
    assert closed["up_bytes"] > 20 and closed["down_bytes"] > 20
    counts = network(internet, box)["counts"]
    assert counts["allowed"] == 1 and counts["refused"] >= 4 and counts["events"] == len(found)
    assert counts["down_bytes"] == closed["down_bytes"]
    text = internet.cay("events", box)
    assert "lookup   deny   evil.test: rule default" in text
    # Each names the process, unless PID 1 was too busy to find it.
    assert {event["program"] for event in found} <= {"python3", None}
    assert f"connect  allow  good.test tcp 80 at {PUBLIC}: rule good.test" in text


@pytest.mark.parametrize("user, uid", [("user", 1000), ("root", 0)])
def test_events_name_the_process(internet, sandbox, user, uid):
    box = sandbox("good.test")
    work = f"""
        print(os.getpid(), os.getuid())
        open("/proc/self/comm", "w").write("my\\x1b[1m agent")
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.connect(("8.8.8.8", 443)); attempt(lambda: sock.send(b"x"))
        fetch("good.test"); fetch("{PUBLIC}"); fetch("{PUBLIC6}"); fetch("evil.test")
    """
    kinds = set()
    end = time.monotonic() + PATIENCE
    # PID 1 finds a process if it is not too busy, and the process still lives.
    while len(kinds) < 6 and time.monotonic() < end:
        pid, own = map(int, internet.cay("exec", "-u", user, box, "--", "python3", "-c", "import os\n" +
                                         INSIDE + textwrap.dedent(work)).split())
        assert own == uid
        mine = [event for event in events(internet, box) if event["pid"] == pid]
        assert all(event["uid"] == uid and event["program"].startswith("my") and
                   "\x1b" not in event["program"] for event in mine)
        kinds |= {(event["event"], event["verdict"], ":" in (event["address"] or "")) for event in mine}
    assert kinds == {("packet", "deny", False), ("connect", "allow", False), ("close", "allow", False),
                     ("connect", "deny", False), ("connect", "deny", True), ("lookup", "deny", False)}
    assert ", by my" in internet.cay("events", box)


def test_a_sandbox_that_hides_its_sockets_among_many_is_still_served(internet, sandbox):
    box = sandbox("good.test")
    run(internet, box, """
        import os
        for i in range(20):
            if os.fork() == 0:
                for _ in range(800):
                    os.dup(0)
                time.sleep(3600)
        for i in range(40):
            fetch("good.test", 8080)
        print(fetch("good.test"))
    """)
    found = [event for event in events(internet, box) if event["port"] in (80, 8080)]
    assert len(found) == 42
    assert {event["program"] for event in found} <= {"python3", None}


def relay_of(box):
    """The pid of its cay-net, which has the file of events open."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text() == "cay-net\n" and any(
                    str(fd.readlink()).endswith(f"/{box}.events") for fd in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:  # it has ended
            pass
    raise AssertionError(f"{box} has no cay-net")


def test_cay_net_sleeps_when_its_connections_have_ended(internet, sandbox):
    box = sandbox("good.test")
    assert run(internet, box, f'print(fetch("{PUBLIC}"))')[0].startswith("403")
    call = Path(f"/proc/{relay_of(box)}/syscall")
    deadline = time.monotonic() + PATIENCE

    def timeout():
        words = call.read_text().split()  # NUMBER and arguments, or "running"
        return int(words[4], 16) & 0xffffffff if len(words) > 4 else 0

    while timeout() != 0xffffffff:  # waits without a limit
        assert time.monotonic() < deadline, call.read_text()
        time.sleep(0.1)


def test_events_over_the_rate_limit_are_counted(internet, sandbox):
    box = sandbox("good.test")
    run(internet, box, """
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for i in range(2000):
            sock.sendto(b"x", ("8.8.8.8", 1000 + i))
            if i % 20 == 0:
                time.sleep(0.001)
    """)
    counts = network(internet, box)["counts"]
    assert counts["events_lost"] > 0
    assert counts["events"] + counts["events_lost"] == counts["refused"]


def test_events_are_followed_until_the_sandbox_ends(internet, sandbox):
    box = sandbox("good.test")
    with subprocess.Popen(internet.command(CAY, "events", "-f", "-o", "json", box),
                          stdout=subprocess.PIPE) as process:
        for name in ("a.test", "b.test"):
            run(internet, box, f'fetch("{name}")')
            # Programs ask for several types of record.
            while json.loads(process.stdout.readline())["name"] != name:
                continue
        internet.cay("kill", box)
        process.stdout.read()
        assert process.wait(PATIENCE) == 0


def test_a_sandbox_that_has_ended_leaves_no_rules(internet, sandbox):
    box = sandbox("good.test")
    directory = os.environ.get("XDG_RUNTIME_DIR", "/run") if os.geteuid() else "/run"
    network(internet, box, "--allow", "other.test")
    left = [name for name in os.listdir(f"{directory}/cay") if name.startswith(box)]
    assert f"{box}.rules" in left
    internet.cay("kill", box)
    assert [name for name in os.listdir(f"{directory}/cay") if name.startswith(box)] == []


def test_a_sandbox_on_disk_keeps_its_rules(internet):
    box = internet.cay("create", "--storage", "disk", "--allow", "good.test").strip()
    look = 'print(fetch("good.test")); print(fetch("other.test"))'
    try:
        assert run(internet, box, look) == ["200 hello good.test", "gaierror"]
        internet.cay("kill", box)
        internet.cay("start", box)
        assert run(internet, box, look) == ["200 hello good.test", "gaierror"]
        network(internet, box, "--network", "open", "--deny", "good.test")
        internet.cay("kill", box)
        assert internet.cay("network", box, check=False).returncode != 0
        internet.cay("start", box)
        assert run(internet, box, look) == ["gaierror", "200 hello other.test"]
        shown = network(internet, box)
        assert (shown["network"], rules(shown)) == ("open", ["good.test", "!good.test"])
        assert json.loads(internet.cay("inspect", box, "-o", "json"))["network"] == "open"
        assert events(internet, box)[0]["number"] == 1
    finally:
        internet.cay("rm", "-f", box)


def test_a_session_on_disk_keeps_its_rules(internet, tmp_path):
    config = tmp_path / "cay.yaml"
    config.write_text("type: native\nstorage: disk\nallow: [good.test]\n")
    name = f"rules-{os.getpid()}"
    look = 'print(fetch("good.test")); print(fetch("other.test"))'
    try:
        for _ in range(2):
            box = internet.cay("session", "start", "--config", config, name).strip()
            assert run(internet, box, look) == ["200 hello good.test", "gaierror"]
            internet.cay("kill", box)
    finally:
        internet.cay("session", "rm", name, check=False)


def test_a_spare_of_a_pool_gets_the_rules_of_the_request(internet):
    pool = internet.cay("pool", "start", "--network", "rules", "-n", "2").strip()
    look = 'print(fetch("good.test")); print(fetch("other.test"))'
    boxes = []
    try:
        for given, seen in (
            (("--allow", "good.test"), ["200 hello good.test", "gaierror"]),
            (("--network", "open", "--deny", "good.test"), ["gaierror", "200 hello other.test"]),
            (("--network", "rules"), ["gaierror", "gaierror"]),
        ):
            boxes.append(internet.cay("create", *given).strip())
            assert run(internet, boxes[-1], look) == seen
        listed = json.loads(internet.cay("pool", "ls", "-o", "json"))["pools"]
        assert [each["claimed"] for each in listed if each["id"] == pool] == [3]
        assert [network(internet, box)["network"] for box in boxes] == ["rules", "open", "rules"]
        plain = internet.cay("create").strip()  # of another network: it does not fit
        boxes.append(plain)
        assert network(internet, plain)["network"] == "none"
        before = len(events(internet, boxes[0]))
        network(internet, boxes[0], "--allow", "other.test")
        assert run(internet, boxes[0], look)[1] == "200 hello other.test"
        assert before < len(events(internet, boxes[0]))
    finally:
        for box in boxes:
            internet.cay("kill", box)
        internet.cay("pool", "stop", pool)
