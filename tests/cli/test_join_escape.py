# SPDX-License-Identifier: Apache-2.0
"""The network classes of the escape suite for named networks (docs/escape.md).

An attacker in network A tries to reach a victim in network B, as user and as root inside, for
sandboxes of root and of ordinary users. The victim records each connection and datagram that it gets.
The same probes from a member of B are the control: there the victim must be reached.
"""

import os
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import PATIENCE
from test_join import Box
from test_relay import OWN, internet  # noqa: F401 (internet is a fixture)
from test_relay_escape import PLACES, Place, fixture_folder, heard_by_host  # noqa: F401

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces"), pytest.mark.long]

PORT = 7000

# Writes a line for each connection and datagram to /tmp/heard, with the source of a connection.
CANARY = f"""
import selectors, socket
with open("/tmp/heard", "a", buffering=1) as heard:
    found = selectors.DefaultSelector()
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            sock = socket.socket(family, kind)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address, {PORT}))
            found.register(sock, selectors.EVENT_READ)
            if kind == socket.SOCK_STREAM:
                sock.listen(100)
    local = socket.socket(socket.AF_UNIX)
    local.bind("\\0cay-canary")
    local.listen()
    found.register(local, selectors.EVENT_READ)
    open("/tmp/ready", "w").close()
    while True:
        for key, _ in found.select():
            if key.fileobj.type == socket.SOCK_DGRAM:
                heard.write("datagram\\n")
                key.fileobj.recv(100)
            else:
                sock, peer = key.fileobj.accept()
                heard.write(f"{{peer[0] if peer else 'local'}}\\n")
                sock.close()
"""

# Tries TCP and UDP to each host of the list.
REACH = f"""
import errno, socket
def attempt(work):
    try:
        return work()
    except (OSError, UnicodeError) as error:
        return errno.errorcode.get(getattr(error, "errno", 0), type(error).__name__)
def reach(host):
    def send(sock, address):
        with sock:
            sock.settimeout(60)
            sock.connect(address)
            sock.send(b"x")
            return sock.recv(1)
    found = attempt(lambda: socket.getaddrinfo(host, {PORT}))
    if isinstance(found, str):
        return found
    for family, kind, protocol, _, address in found:
        if kind == socket.SOCK_STREAM:
            attempt(lambda: send(socket.socket(family, kind), address))
        elif kind == socket.SOCK_DGRAM:
            attempt(lambda: socket.socket(family, kind).sendto(b"x", address))
    return "found"
"""

ADDRESSES = ["127.0.0.1", "0.0.0.0", "100.64.0.1", "100.64.0.2", "100.64.0.3", "198.18.0.0", "198.18.0.1",
             "198.18.0.2", "198.18.0.3", "198.18.0.4", "198.19.255.255", "169.254.0.1", "172.20.0.1",
             "10.0.0.1", "224.0.0.1", "255.255.255.255", OWN, "::1", "::", "fd00:ca1::1", "fd00:ca1::2",
             "fd00:ca1::3", "fe80::1%lo", "ff02::1%lo", "::ffff:198.18.0.1", "::ffff:198.18.0.2",
             "::ffff:100.64.0.2", "64:ff9b::c612:1", "2002:c612:1::1"]


class Ring(Box):
    """Sandboxes of one place: two in network A, two in network B."""

    def __init__(self, place):
        super().__init__(place.internet.command(*place.cay))
        self.user, self.net = place.user, f"ring-{os.getpid()}-{time.monotonic_ns()}"

    def member(self, network, name, *words):
        sandbox = self.create("-q", "--join", f"{self.net}-{network}:{name}", *words)
        return self.listen(sandbox)

    def listen(self, sandbox):
        self.cay("exec", "-d", sandbox, "--", "python3", "-c", CANARY)
        until = time.monotonic() + PATIENCE
        while self.cay("exec", sandbox, "--", "test", "-e", "/tmp/ready", check=False).returncode:
            assert time.monotonic() < until
            time.sleep(0.05)
        return sandbox

    def run(self, sandbox, code):
        done = self.cay("exec", "-u", self.user, sandbox, "--", "python3", "-c",
                        REACH + textwrap.dedent(code))
        return done.splitlines()

    def heard(self, sandbox):
        """What a sandbox got since the last call."""
        script = "cat /tmp/heard; : >/tmp/heard"
        return self.cay("exec", sandbox, "--", "sh", "-c", script).split()


@pytest.fixture(scope="module", params=PLACES, name="ring")
def fixture_ring(request, internet, folder):  # noqa: F811
    made = Ring(Place(internet, folder, *PLACES[request.param]))
    yield made
    made.done()


@pytest.fixture(scope="module", name="members")
def fixture_members(ring):
    return [ring.member("a", "attacker"), ring.member("a", "peer"), ring.member("b", "insider"),
            ring.member("b", "victim")]


@pytest.fixture(name="four")
def fixture_four(ring, members):
    """attacker and peer in A, insider and victim in B; none has heard anything."""
    for each in members:
        ring.heard(each)
    return members


def reach_all(hosts):
    return f"""
        for host in {hosts!r}:
            print(host, reach(host))
    """


def test_w06_names_of_another_network_do_not_resolve(ring, four):
    attacker, peer, insider, victim = four
    network = f"{ring.net}-b"
    names = ["victim", "VICTIM", "victim.", victim, f"victim.{network}", f"{network}.victim",
             f"{network}:victim", "insider", network, "victim.local", "victim@peer"]
    lines = ring.run(attacker, reach_all(names))
    assert all(line.endswith(("gaierror", "UnicodeError")) for line in lines), lines
    assert ring.heard(victim) == [] and ring.heard(insider) == []
    # A connection for each spelling; a member has no other name than that of its network.
    lines = ring.run(insider, reach_all(names[:3]))
    assert all(line.endswith("found") for line in lines), lines
    assert ring.heard(victim) == ["100.64.0.2"] * 3


DNS = """
    import struct
    def ask(name, kind, by):
        labels = b"".join(bytes([len(one)]) + one.encode() for one in name.split("."))
        query = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\\0" + struct.pack("!HH", kind, 1)
        with socket.socket(socket.AF_INET, by) as sock:
            sock.settimeout(60)
            sock.connect(("100.64.0.1", 53))
            if by == socket.SOCK_STREAM:
                sock.sendall(struct.pack("!H", len(query)) + query)
                reply = sock.recv(4096)[2:]
            else:
                sock.send(query)
                reply = sock.recv(4096)
        return struct.unpack("!H", reply[6:8])[0], b"victim" in reply[len(query):]
    for by in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        for name, kind in (("victim", 1), ("victim", 28), ("victim", 255), ("victim", 16), ("victim", 33),
                           ("1.0.18.198.in-addr.arpa", 12), ("2.0.18.198.in-addr.arpa", 12)):
            print(*ask(name, kind, by))
"""


def test_w06_queries_reveal_no_member_of_another_network(ring, four):
    attacker, _, insider, _ = four
    assert set(ring.run(attacker, DNS)) == {"0 False"}
    lines = ring.run(insider, DNS)
    assert lines[0] == lines[7] == "1 False", lines  # an address, by UDP and by TCP


def test_w07_no_address_leads_to_another_network(ring, four):
    attacker, peer, insider, victim = four
    ring.run(attacker, reach_all(["peer", *ADDRESSES]))
    assert ring.heard(victim) == [] and ring.heard(insider) == []
    # By the name, as 198.18.0.1, and as that address in IPv6.
    assert ring.heard(peer) == ["100.64.0.2"] * 3
    ring.heard(attacker)  # its own addresses
    ring.run(insider, reach_all(["victim", *ADDRESSES]))
    assert ring.heard(victim) == ["100.64.0.2"] * 3
    assert ring.heard(peer) == [] and ring.heard(attacker) == []


def test_w07_sandboxes_of_no_network_reach_no_member(ring, four):
    _, _, _, victim = four
    names = ["victim", victim, "peer"]
    for words in ((), ("--allow", "0.0.0.0/0:*"), ("--network", "open", "--allow", "198.18.0.0/15:*")):
        outsider = ring.create("-q", *words)
        ring.run(outsider, reach_all(names + ADDRESSES))
        for each in four:
            assert ring.heard(each) == [], words
        ring.cay("rm", outsider)


def test_w07_a_member_of_both_networks_does_not_connect_them(ring, four):
    attacker, _, insider, victim = four
    hub = ring.create("-q", "--join", f"{ring.net}-a:hub", "--join", f"{ring.net}-b:hub")
    ring.listen(hub)
    ring.run(attacker, reach_all(["victim", "hub", "insider", *ADDRESSES]))
    assert ring.heard(victim) == [] and ring.heard(insider) == []
    assert "100.64.0.2" in ring.heard(hub)
    ring.run(hub, reach_all(["victim"]))
    assert ring.heard(victim) == ["100.64.0.2"]


FORGE = f"""
    def forge(family, source, options=()):
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(60 if source == "100.64.0.2" else 0.3)
            for level, name in options:
                sock.setsockopt(level, name, 1)
            sock.bind((source, 0))
            sock.connect(("peer" if family == socket.AF_INET else "::ffff:" + socket.gethostbyname("peer"),
                          {PORT}))
            sock.recv(1)
            return "connected"
    for source in ("198.18.0.1", "198.18.0.2", "100.64.0.1", "8.8.8.8", "10.0.0.1", "100.64.0.2"):
        for options in ((), ((socket.SOL_IP, 15),), ((socket.SOL_IP, 19),)): # IP_FREEBIND, IP_TRANSPARENT
            print(attempt(lambda: forge(socket.AF_INET, source, options)))
    for source in ("fd00:ca1::1", "fd00:ca1::3", "2600::1", "::ffff:198.18.0.2"):
        for options in ((), ((41, 78),), ((41, 75),)): # IPV6_FREEBIND, IPV6_TRANSPARENT
            print(attempt(lambda: forge(socket.AF_INET6, source, options)))
"""


def test_w08_a_forged_source_is_not_seen_by_a_member(ring, four):
    attacker, peer, insider, victim = four
    lines = ring.run(attacker, FORGE)
    # 100.64.0.2 is the source of every connection that a member gets.
    assert set(ring.heard(peer)) == {"100.64.0.2"}
    assert lines[15] == "connected", lines
    assert ring.heard(victim) == [] and ring.heard(insider) == []


def test_w08_packets_of_its_own_making_reach_no_member(ring, four):
    attacker, peer, insider, victim = four
    lines = ring.run(attacker, f"""
        def send(family, kind, protocol, address):
            with socket.socket(family, kind, protocol) as sock:
                sock.sendto(b"\\x45" + b"x" * 60, address)
                return "sent"
        print(attempt(lambda: send(socket.AF_INET, socket.SOCK_RAW, 255, ("198.18.0.1", 0))))
        print(attempt(lambda: send(socket.AF_INET6, socket.SOCK_RAW, 58, ("fd00:ca1::1", 0))))
        print(attempt(lambda: send(socket.AF_PACKET, socket.SOCK_RAW, 3, ("lo", 0))))
        print(attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)))
        print(attempt(lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)))
    """)
    assert set(lines) <= {"EPERM", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT"}, lines
    for each in (peer, insider, victim):
        assert ring.heard(each) == []


def test_w04_abstract_sockets_of_members_are_separate(ring, four):
    attacker, peer, insider, victim = four
    assert ring.run(attacker, """
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as sock:
            attempt(lambda: sock.connect("\\0cay-canary")) # at most its own
            server.bind("\\0cay-own")
            server.listen()
            print(attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0cay-own") or "connected"))
    """) == ["connected"]
    for each in (peer, insider, victim):
        assert ring.heard(each) == []


def test_w02_a_member_reaches_no_server_of_the_host(internet, ring, four):  # noqa: F811
    code = f"""
        for host in ("127.0.0.1", "172.20.0.1", "{OWN}", "100.64.0.1", "100.64.0.2", "::1", "peer",
                     "::ffff:127.0.0.1"):
            attempt(lambda: socket.create_connection((host, 8000), timeout=0.3).send(b"x"))
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            attempt(lambda: socket.socket(family, socket.SOCK_DGRAM).sendto(b"x", (host, 8000)))
    """
    assert heard_by_host(internet, lambda: ring.run(four[0], code)) == 0
    control = internet.command(sys.executable, "-c", REACH + textwrap.dedent(code))
    assert heard_by_host(internet, lambda: subprocess.run(control, check=True)) > 3


def test_w09_the_host_reaches_no_member(internet, ring, four):  # noqa: F811
    hosts = ["198.18.0.1", "198.18.0.2", "100.64.0.1", "100.64.0.2", "fd00:ca1::2", "127.0.0.1", OWN]
    code = REACH.replace("timeout(60)", "timeout(0.3)") + textwrap.dedent(reach_all(hosts))
    subprocess.run(internet.command(sys.executable, "-c", code), check=True, stdout=subprocess.DEVNULL)
    for each in four:
        assert ring.heard(each) == []
    ring.run(four[0], reach_all(["peer"]))
    assert ring.heard(four[1]) == ["100.64.0.2"]
