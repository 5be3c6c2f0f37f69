# SPDX-License-Identifier: Apache-2.0
"""The network classes of the escape suite for sandboxes with network rules (docs/escape.md).

Each probe runs inside as user and as root, for a sandbox of root and for one of an ordinary user. It
must be refused there, and its control must succeed where a rule allows it or nothing isolates it.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE, copy_command
from test_relay import INSIDE, OWN, PUBLIC, confined_status, internet, relay_of  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

UID, RANGE_UID = 54322, 54323  # the second has a range of ids


class Place:
    """A user of the host, and one inside."""

    def __init__(self, internet, folder, uid, user):
        self.internet, self.user = internet, user
        self.cay = [CAY] if not uid else [
            "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "env",
            f"HOME={folder}/{uid}", f"XDG_RUNTIME_DIR={folder}/{uid}", f"{folder}/cay"]

    def run(self, rules, code):
        allow = [word for rule in rules for word in ("--allow", rule)]
        done = subprocess.run(
            self.internet.command(*self.cay, "run", "-q", "-u", self.user, *allow, "--", "python3", "-c",
                                  INSIDE + textwrap.dedent(code)),
            capture_output=True, timeout=PATIENCE, cwd="/")
        assert done.returncode == 0, done
        return done.stdout.decode().splitlines()


@pytest.fixture(scope="module", name="folder")
def fixture_folder(internet):  # noqa: F811
    """The command for ordinary users, and ids for one of them, in the tests' mount namespace."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    copy_command(folder)
    for uid in (UID, RANGE_UID):
        (folder / str(uid)).mkdir(0o700)
        os.chown(folder / str(uid), uid, uid)
    # All of /etc: programs that rename a file there would detach a mount on the file.
    subprocess.run(internet.command("cp", "-a", "/etc", folder), check=True)
    for name, line in (("passwd", f"ranged:x:{RANGE_UID}:{RANGE_UID}::/:/bin/sh"),
                       ("subuid", "ranged:2100000000:65536"), ("subgid", "ranged:2100000000:65536")):
        with (folder / "etc" / name).open("a") as file:
            file.write(line + "\n")
    subprocess.run(internet.command("mount", "--bind", folder / "etc", "/etc"), check=True)
    yield folder
    subprocess.run(internet.command("umount", "/etc"), check=True)
    shutil.rmtree(folder)


PLACES = {"root-user": (0, "user"), "root-root": (0, "root"), "single-user": (UID, "user"),
          "range-user": (RANGE_UID, "user"), "range-root": (RANGE_UID, "root")}


@pytest.fixture(params=PLACES, name="place")
def fixture_place(request, internet, folder):  # noqa: F811
    return Place(internet, folder, *PLACES[request.param])


def test_w01_metadata_services_get_no_packet(internet, place):  # noqa: F811
    code = """
        for host in ("169.254.169.254", "100.100.100.200", "meta.test"):
            print(fetch(host)[:4])
    """
    before = len(internet.connections())
    assert place.run(["meta.test", "0.0.0.0/0:80"], code) == ["403 "] * 3
    assert internet.connections()[before:] == []
    control = place.run(["169.254.169.254/32:80"], 'print(fetch("169.254.169.254"))')
    assert control == ["200 hello 169.254.169.254"]
    assert internet.connections()[before:] == ["169.254.169.254:80"]


CANARY = """
import os, socket, sys
server = socket.create_server(("0.0.0.0", 8000))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("0.0.0.0", 8000))
local = socket.socket(socket.AF_UNIX)
local.bind("\\0cay-canary")
local.listen()
print("ready", flush=True)
sys.stdin.readline()
for sock in (server, datagrams, local):
    sock.setblocking(False)
count = 0
for sock in (server, local):
    try:
        while True:
            sock.accept()
            count += 1
    except BlockingIOError:
        pass
try:
    while datagrams.recv(10):
        count += 1
except BlockingIOError:
    pass
print(count)
"""


def heard_by_host(internet, work):  # noqa: F811
    """How many connections and datagrams a process of the host gets meanwhile."""
    canary = subprocess.Popen(internet.command(sys.executable, "-c", CANARY), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    try:
        assert canary.stdout.readline() == b"ready\n"
        work()
        return int(canary.communicate(b"\n", timeout=PATIENCE)[0])
    finally:
        canary.kill()
        canary.wait()


REACH_HOST = f"""
    hosts = ["127.0.0.1", "0.0.0.0", "172.20.0.1", "{OWN}", "100.64.0.1", "100.64.0.2",
             "2130706433", "0x7f.1", "127.1"]
    for host in hosts + ["loop.test", "own.test", "mapped.test"]:
        print(host, attempt(lambda: dial(host, 8000).recv(7) or "closed"))
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        attempt(lambda: sock.sendto(b"x", (host, 8000)))
    local = socket.socket(socket.AF_UNIX)
    print(attempt(lambda: local.connect("\\0cay-canary") or "connected"))
"""


def test_w02_w04_sockets_of_the_host_are_not_reached(internet, place):  # noqa: F811
    rules = ["loop.test:8000", "own.test:8000", "mapped.test:8000", "0.0.0.0/0:8000"]
    lines = []
    assert heard_by_host(internet, lambda: lines.extend(place.run(rules, REACH_HOST))) == 0
    assert {line.split()[-1] for line in lines} <= {"ECONNREFUSED", "ECONNRESET", "closed",
                                                    "EACCES", "gaierror"}, lines
    assert lines[-1] == "ECONNREFUSED"
    # The same code on the host.
    control = internet.command(sys.executable, "-c", INSIDE.replace("timeout=60", "timeout=0.2")
                               + textwrap.dedent(REACH_HOST))
    assert heard_by_host(internet, lambda: subprocess.run(control, check=True,
                                                          stdout=subprocess.DEVNULL)) > 3
    # A rule that has the address.
    assert heard_by_host(internet, lambda: place.run(
        [f"{OWN}/32:8000"], f'dial("{OWN}", 8000).sendall(b"x")')) == 1


def test_w03_w05_control_sockets_are_not_in_the_tree(internet, place):  # noqa: F811
    assert place.run(["good.test"], """
        import os, stat
        for top, folders, names in os.walk("/"):
            folders[:] = [name for name in folders if not (top == "/" and name == "proc")]
            for name in names:
                try:
                    if stat.S_ISSOCK(os.lstat(os.path.join(top, name)).st_mode):
                        print(os.path.join(top, name))
                except OSError:
                    pass
        print("all")
    """)[-1:] == ["all"]
    created = internet.cay("create", "--allow", "good.test").strip()
    try:
        path = Path(f"/run/cay/{created}.net")
        assert path.is_socket() and path.stat().st_mode & 0o077 == 0
        assert subprocess.run(internet.command(CAY, "exec", created, "--", "test", "-e", path),
                              timeout=PATIENCE).returncode == 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(path))
    finally:
        internet.cay("kill", created)


def test_w06_questions_carry_nothing_out(internet, place):  # noqa: F811
    before = len(internet.questions())
    assert place.run(["*.wild.test", "good.test"], """
        def resolve(name):
            try:
                return str(bool(socket.getaddrinfo(name, 80, socket.AF_INET)))
            except socket.gaierror:
                return "refused"
        print(resolve("stolen.evil.test"), resolve("stolen.wild.test"))
        for server in ("8.8.8.8", "172.20.0.2", "100.64.0.1"):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.settimeout(60)
            sock.sendto(b"\\1\\2\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\6stolen\\4evil\\4test\\0\\0\\1\\0\\1", (server, 53))
            print(sock.recv(512)[3] & 15)
        print(attempt(lambda: dial("172.20.0.2", 53).recv(7) or "closed"))
    """) == ["refused True", "3", "3", "3", "ECONNRESET"]
    assert internet.questions()[before:] == []
    assert place.run(["*.wild.test"], 'print(fetch("stolen.wild.test"))') == ["200 hello stolen.wild.test"]
    assert internet.questions()[before:] == ["1 stolen.wild.test"]


def test_w07_a_name_leads_only_where_its_rule_says(internet, place):  # noqa: F811
    before = len(internet.connections())
    lines = place.run(["good.test", "private.test", "loop.test"], f"""
        print(tls("{PUBLIC}", name="good.test"))
        print(fetch("private.test")[:4], fetch("loop.test")[:4])
        for host in ("good.test@other.test", "1572395018", "0x5db8d80a", "0135.0270.0330.012"):
            print(fetch(host)[:4])
    """)
    assert "ACCESS_DENIED" in lines[0] and lines[1] == "403  403 "
    assert set(lines[2:]) <= {"403 ", "gaie", "Unic"}, lines
    assert internet.connections()[before:] == []
    assert place.run(["good.test", "10.0.0.5/32:80", f"{PUBLIC}/32:80"], f"""
        print(tls("good.test", name="good.test"))
        print(fetch("10.0.0.5"))
        print(fetch("1572395018", name="good.test"))
    """) == ["answer", "200 hello 10.0.0.5", "200 hello good.test"]


def test_w08_the_rules_that_collect_packets_do_not_change(internet, place):  # noqa: F811
    lines = place.run(["good.test"], f"""
        def option(level, name):
            return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).setsockopt(level, name, 1)
        for family, kind, protocol in ((2, 3, 1), (17, 3, 3), (16, 3, 12)): # raw, packet, nf_tables
            print(attempt(lambda: socket.socket(family, kind, protocol)))
        print(attempt(lambda: option(socket.SOL_IP, 19))) # IP_TRANSPARENT
        print(attempt(lambda: socket.create_server(("127.0.0.1", 1))))
        # An address of others is this namespace's own.
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.settimeout(2)
        sock.bind(("8.8.8.8", 0))
        print(attempt(lambda: sock.connect(("{PUBLIC}", 80)) or "connected"))
    """)
    assert set(lines[:4]) <= {"EPERM", "EAFNOSUPPORT", "EACCES", "EPROTONOSUPPORT"}, lines
    assert lines[4] in ("EADDRINUSE", "EACCES") and lines[5] != "connected", lines


def test_w09_servers_inside_are_not_reached(internet):  # noqa: F811
    created = internet.cay("create", "--allow", "good.test").strip()
    try:
        internet.cay("exec", "-d", created, "--", "python3", "-m", "http.server", "80")
        reach = "until curl -s -o /dev/null http://127.0.0.1/; do sleep 0.1; done; " \
                "curl -s -o /dev/null http://100.64.0.2/ && echo control"
        assert internet.cay("exec", created, "--", "sh", "-c", reach) == "control\n"
        for host in ("127.0.0.1", "172.20.0.1", OWN):
            with pytest.raises(subprocess.CalledProcessError):
                subprocess.run(internet.command("curl", "-s", "-m", "60", f"http://{host}/"), check=True)
        for host in ("100.64.0.2", "198.18.0.1"):  # by the default route, to the world's own servers
            out = subprocess.run(internet.command("curl", "-s", "-m", "2", f"http://{host}/"),
                                 capture_output=True).stdout
            assert b"Directory listing" not in out
    finally:
        internet.cay("kill", created)


def test_w10_a_flood_leaves_other_sandboxes_their_ports(internet, place):  # noqa: F811
    """Connections at a time and a second are limited (test_relay.py); a neighbour connects meanwhile."""
    flood = subprocess.Popen(
        internet.command(*place.cay, "run", "-q", "-u", place.user, "--allow", "good.test:7777", "--",
                         "python3", "-c", INSIDE + textwrap.dedent("""
            print("ready", flush=True)
            while True:
                attempt(lambda: dial("good.test", 7777).close())
        """)), stdout=subprocess.PIPE, cwd="/")
    try:
        assert flood.stdout.readline() == b"ready\n"
        assert internet.run(["good.test"], 'print({fetch("good.test") for each in range(20)})') == [
            "{'200 hello good.test'}"]
    finally:
        flood.terminate()
        flood.wait(PATIENCE)
        flood.stdout.close()


def test_cay_net_of_root_without_other_ids_has_no_capabilities(internet, folder):  # noqa: F811
    home = folder / str(UID)
    script = f'id=$({folder}/cay create --allow good.test); echo $id; read line; exec {folder}/cay kill $id'
    process = subprocess.Popen(
        internet.command("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "env",
                         f"HOME={home}", f"XDG_RUNTIME_DIR={home}", "unshare", "-Ur", "sh", "-ec", script),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        created = process.stdout.readline().decode().strip()
        assert set(confined_status(relay_of(created))["Uid"].split()) == {str(UID)}
    finally:
        process.communicate(b"\n", timeout=PATIENCE)
    assert process.returncode == 0
