# SPDX-License-Identifier: Apache-2.0
"""Connections of sandboxes with network rules.

Two network namespaces stand for the host and the internet (internet.py); commands of the tests run
in the first, so that nothing here depends on the machine's own network.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

PUBLIC, PUBLIC_TOO, OWN = "93.184.216.10", "93.184.216.11", "93.184.216.99"
PUBLIC6, OWN6 = "2600:1234::10", "2600:1234::99"
HERE = Path(__file__).parent

# For commands inside: attempts, each of which prints one line.
INSIDE = """
import errno, socket, ssl, sys, time
def attempt(work):
    try:
        return work()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
def dial(host, port):
    return socket.create_connection((host, port), timeout=60)
def fetch(host, port=80, name=None, path="/"):
    def work():
        with dial(host, port) as sock:
            sock.sendall(f"GET {path} HTTP/1.1\\r\\nHost: {name or host}\\r\\n\\r\\n".encode())
            data = b""
            while piece := sock.recv(65536):
                data += piece
        if not data:
            return "closed"
        return data.split(b" ", 2)[1].decode() + " " + data.split(b"\\r\\n\\r\\n", 1)[1].decode().strip()
    return attempt(work)
def tls(host, port=443, name=None):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    def work():
        try:
            with context.wrap_socket(dial(host, port), server_hostname=name) as sock:
                sock.sendall(b"GET / HTTP/1.1\\r\\nHost: tls\\r\\n\\r\\n")
                return "answer" if sock.recv(4096).startswith(b"HTTP/1.1 200") else "no answer"
        except ssl.SSLError as error:
            return error.reason
    return attempt(work)
def banner(host, port=7777):
    def work():
        with dial(host, port) as sock:
            return sock.recv(100).decode().strip() or "closed"
    return attempt(work)
"""


class Internet:
    def __init__(self, base):
        self.base = base
        self.log = base / "questions"
        self.log.write_text("")
        Path(f"{self.log}.connections").write_text("")
        key = base / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", base / "cert.pem",
                        "-days", "2", "-subj", "/CN=good.test"], check=True, capture_output=True)
        key.write_text(key.read_text() + (base / "cert.pem").read_text())
        (base / "resolv.conf").write_text("nameserver 172.20.0.2\n")
        self.host = self.start(["unshare", "-n", "-m", "--propagation", "private", "sh", "-c",
                                f"mount --bind {base}/resolv.conf /etc/resolv.conf && echo ready; cat"])
        world = self.start(["unshare", "-n", "sh", "-c", "echo ready; cat"])
        self.helpers = [self.host, world]
        for pid, commands in (
            (self.host.pid, (f"link add h0 type veth peer name w0 netns {world.pid}",
                             "link set lo up", "addr add 172.20.0.1/24 dev h0",
                             f"addr add {OWN}/32 dev lo", "addr add fd10::1/64 dev h0 nodad",
                             f"addr add {OWN6}/128 dev lo", "link set h0 up")),
            (world.pid, ("link set lo up", "addr add 172.20.0.2/24 dev w0", "link set w0 up",
                         f"addr add {PUBLIC}/32 dev lo", f"addr add {PUBLIC_TOO}/32 dev lo",
                         "addr add 169.254.169.254/32 dev lo",
                         "addr add 10.0.0.5/32 dev lo", "addr add fd10::2/64 dev w0 nodad",
                         f"addr add {PUBLIC6}/128 dev lo", "addr add fd00:ec2::254/128 dev lo")),
            (self.host.pid, ("route add default via 172.20.0.2", "route add default via fd10::2",
                             "route add unreachable 203.0.113.0/24")),
        ):
            for command in commands:
                subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", *command.split()], check=True)
        self.helpers.append(self.start(["nsenter", "-t", str(world.pid), "-n", sys.executable,
                                        HERE / "internet.py", PUBLIC, self.log, key]))

    def start(self, command):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        return process

    def stop(self):
        for process in reversed(self.helpers):
            process.stdin.close()
            process.wait()
            process.stdout.close()

    def command(self, *words):
        return ["nsenter", "-t", str(self.host.pid), "-n", "-m", *map(str, words)]

    def cay(self, *words, check=True):
        done = subprocess.run(self.command(CAY, *words), capture_output=True, timeout=PATIENCE)
        assert not check or done.returncode == 0, done
        return done.stdout.decode() if check else done

    def run(self, rules, code):
        """The lines that Python code prints in a sandbox with these rules."""
        allow = [word for rule in rules for word in ("--allow", rule)]
        return self.cay("run", *allow, "--", "python3", "-c",
                        INSIDE + textwrap.dedent(code)).splitlines()

    def questions(self):
        return self.log.read_text().splitlines()

    def connections(self):
        return Path(f"{self.log}.connections").read_text().splitlines()


@pytest.fixture(scope="module")
def internet(tmp_path_factory):
    made = Internet(tmp_path_factory.mktemp("internet"))
    yield made
    made.stop()


@pytest.fixture
def sandbox(internet):
    """Creates sandboxes that are killed at the end."""
    ids = []

    def create(*rules):
        allow = [word for rule in rules for word in ("--allow", rule)]
        ids.append(internet.cay("create", *allow).strip())
        return ids[-1]

    yield create
    for each in ids:
        internet.cay("kill", each, check=False)


def processes(name):
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "comm").read_text() == f"{name}\n":
                yield path, int(path.name)
        except OSError:
            continue


def relay_of(sandbox):
    """The pid of a sandbox's cay-net: the one that has its events open."""
    for path, pid in processes("cay-net"):
        try:
            if any(os.readlink(fd).endswith(f"/{sandbox}.events") for fd in (path / "fd").iterdir()):
                return pid
        except OSError:
            continue
    pytest.fail("the sandbox has no cay-net")


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for_end(pid):
    until = time.monotonic() + PATIENCE
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not lives(pid)


def test_an_allowed_name_is_reached_by_http_tls_and_other_protocols(internet):
    assert internet.run(["good.test", "good.test:7777"], """
        print(fetch("good.test"))
        print(tls("good.test", name="good.test"))
        print(banner("good.test"))
    """) == ["200 hello good.test", "answer", "banner"]


def test_an_unlisted_name_is_refused_without_a_question(internet):
    before = len(internet.questions())
    assert internet.run(["good.test"], """
        for name in ("secret.other.test", "other.test", "good.test.evil.test"):
            print(fetch(name))
    """) == ["gaierror"] * 3
    lines = internet.run(["good.test"], """
        try:
            socket.getaddrinfo("other.test", 80)
        except socket.gaierror as error:
            print(error.errno == socket.EAI_NONAME)
    """)
    assert lines == ["True"]
    assert internet.questions()[before:] == []
    # The same name, allowed.
    assert internet.run(["other.test"], 'print(fetch("other.test"))') == ["200 hello other.test"]
    assert internet.questions()[before:] == ["1 other.test"]


def test_an_address_is_refused_unless_a_rule_has_its_range(internet):
    code = f"""
        print(fetch("{PUBLIC}"))
        print(tls("{PUBLIC}", name="good.test"))
        print(banner("{PUBLIC}"))
    """
    http, handshake, other = internet.run(["good.test", "good.test:7777"], code)
    assert http.startswith(f"403 cay: {PUBLIC}:80 is not allowed") and "good.test" in http
    assert "ACCESS_DENIED" in handshake and other == "ECONNRESET"
    assert internet.run([f"{PUBLIC}/32:80-7777"], code) == [
        f"200 hello {PUBLIC}", "answer", "banner"]


def test_another_port_of_an_allowed_name_is_refused(internet):
    assert internet.run(["good.test:80"], """
        print(banner("good.test"))
        print(fetch("good.test", 443)[:4])
    """) == ["ECONNRESET", "403 "]


def test_a_server_name_of_another_host_is_refused(internet):
    rules = ["good.test", "other.test"]
    assert internet.run(rules, """
        print(tls("good.test", name="other.test"))
        print(tls("good.test", name="good.test"))
        print(tls("other.test", name="other.test"))
        print(tls("good.test"))
    """) == ["TLSV1_ALERT_ACCESS_DENIED", "answer", "answer", "answer"]


def test_a_host_header_of_another_host_is_refused(internet):
    lines = internet.run(["good.test", "other.test"], """
        print(fetch("good.test", name="other.test"))
        print(fetch("good.test", path="http://other.test/"))
        print(fetch("good.test", name="GOOD.test:80"))
    """)
    assert lines[0].startswith("403 cay: a connection to good.test names another host, other.test")
    assert lines[1].startswith("403 ")
    assert lines[2] == "200 hello GOOD.test:80"


def test_bytes_cannot_change_after_their_check(internet):
    """Pages of a file that are in the socket can change: the check must be of the bytes sent."""
    lines = internet.run(["slow.test"], """
        import mmap, os
        good = b"GET / HTTP/1.1\\r\\nHost: slow.test\\r\\n\\r\\n"
        evil = b"GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"
        def send(after):
            file = os.memfd_create("request")
            os.write(file, good)
            with dial("slow.test", 80) as sock, mmap.mmap(file, len(good)) as pages:
                os.sendfile(sock.fileno(), file, 0, len(good))
                time.sleep(0.5) # the check is over, and the lookup takes a second
                pages[:] = after
                data = sock.recv(65536)
                return data.rsplit(b"\\n", 1)[1].decode()
        print(attempt(lambda: send(evil)))
        time.sleep(1.2)
        print(attempt(lambda: send(good)))
    """)
    assert lines == ["hello slow.test", "hello slow.test"]


def test_a_request_with_an_unknown_method_is_checked(internet):
    lines = internet.run(["good.test", "other.test"], """
        def ask(text):
            with dial("good.test", 80) as sock:
                sock.sendall(text)
                return sock.recv(65536).split(b" ")[1].decode()
        for start in (b"PURGE", b"\\r\\nGET"):
            print(attempt(lambda: ask(start + b" / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n")))
        print(attempt(lambda: ask(b"PURGE / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n")))
    """)
    assert lines == ["403", "403", "200"]


def test_a_client_hello_behind_an_alert_is_refused(internet):
    lines = internet.run(["good.test", "other.test"], """
        def shake(name, before):
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(into, out, server_hostname=name)
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            with dial("good.test", 443) as sock:
                sock.sendall(before + out.read())
                return sock.recv(4096)[0]
        print(shake("good.test", b""))
        print(attempt(lambda: shake("other.test", b"\\x15\\3\\1\\0\\2\\1\\x5a")))
    """)
    assert lines == ["22", "21"]


def test_names_are_found_with_nameservers_of_every_kind(internet):
    before = len(internet.questions())
    assert internet.run(["big.test", "old.test", "slow.test"], """
        print(fetch("big.test"))
        print(fetch("old.test"))
        print(fetch("slow.test"))
    """) == ["200 hello big.test", "200 hello old.test", "200 hello slow.test"]
    assert internet.questions()[before:] == ["1 big.test"] * 2 + ["1 old.test"] * 2 + ["1 slow.test"]


def test_names_with_addresses_of_ipv6_are_reached(internet):
    assert internet.run(["six.test", "six.test:7777", "both.test"], """
        print(fetch("six.test"))
        print(banner("six.test"))
        print(fetch("both.test")) # its first address has no route
    """) == ["200 hello six.test", "banner", "200 hello both.test"]


def test_addresses_of_ipv6_need_a_rule(internet):
    code = f"""
        for host in ("{PUBLIC6}", "{OWN6}", "fd00:ec2::254", "fd00:ca1::1", "::1", "::ffff:{PUBLIC}"):
            print(fetch(host, name="x")[:4])
    """
    before = len(internet.connections())
    assert internet.run(["good.test"], code) == ["403 "] * 4 + ["ECON", "403 "]
    # Everything public: neither the host nor metadata services.
    assert internet.run(["[::/0]:80"], code) == ["200 "] + ["403 "] * 3 + ["ECON", "403 "]
    assert internet.run(["loop6.test"], 'print(fetch("loop6.test")[:4])') == ["403 "]
    assert internet.connections()[before:] == [f"{PUBLIC6}:80"]
    assert internet.run(["[fd00:ec2::254]:80"], 'print(fetch("fd00:ec2::254", name="x"))') == ["200 hello x"]


def test_datagrams_of_ipv6_are_refused_and_reported(internet, sandbox):
    created = sandbox("good.test")
    assert internet.cay("exec", created, "--", "python3", "-c", INSIDE + textwrap.dedent(f"""
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.settimeout(60)
        sock.connect(("{PUBLIC6}", 443))
        print(attempt(lambda: sock.send(b"x") and sock.recv(10)))
    """)) == "ECONNREFUSED\n"
    event = Path(f"/run/cay/{created}.events").read_bytes()[512:]
    port, kind, verdict, protocol, size = struct.unpack_from("<HBBBB", event, 40)
    assert (port, kind, verdict, protocol, size) == (443, 4, 0, 17, 16)
    assert socket.inet_ntop(socket.AF_INET6, event[46:62]) == PUBLIC6


def test_datagrams_are_refused_at_once(internet):
    assert internet.run(["good.test"], f"""
        def quic(host):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.settimeout(60)
            sock.connect((host, 443))
            sock.send(b"x" * 1200)
            return sock.recv(100)
        print(attempt(lambda: quic("good.test")))
        print(attempt(lambda: quic("{PUBLIC}")))
    """) == ["ECONNREFUSED"] * 2


def test_private_addresses_and_those_of_the_host_are_never_reached(internet):
    canary = subprocess.Popen(internet.command(sys.executable, "-c", """
import socket, sys
server = socket.create_server(("0.0.0.0", 80))
print("ready", flush=True)
server.settimeout(600)
while True:
    server.accept()[0].close()
    print("connected", flush=True)
"""), stdout=subprocess.PIPE)
    assert canary.stdout.readline() == b"ready\n"
    try:
        names = ["private.test", "loop.test", "meta.test", "own.test", "mapped.test"]
        hosts = ["169.254.169.254", "172.20.0.1", OWN, "10.0.0.5", "100.100.100.200", "100.64.0.1"]
        lines = internet.run(names, f"""
            for host in {names + hosts!r}:
                print(fetch(host)[:4])
        """)
        assert lines == ["403 "] * len(names + hosts)
        # The canary hears a connection that comes from the host.
        subprocess.run(internet.command("curl", "-s", "-m", "60", f"http://{OWN}/"), check=False)
        assert canary.stdout.readline() == b"connected\n"
        assert internet.run([f"{OWN}/32:80"], f'print(fetch("{OWN}")[:4])') != ["403 "]
        assert canary.stdout.readline() == b"connected\n"
    finally:
        canary.kill()
        rest = canary.communicate()[0]
    assert rest == b""


def test_a_name_that_is_rebound_to_a_private_address_is_refused(internet):
    lines = internet.run(["rebind.test"], """
        print(fetch("rebind.test"))
        time.sleep(1.2)
        print(fetch("rebind.test")[:4])
    """)
    assert lines == ["200 hello rebind.test", "403 "]


def test_other_types_of_questions_leave_no_trace_outside(internet):
    before = len(internet.questions())
    lines = internet.run(["good.test", "*.wild.test"], """
        import struct
        def ask(name, kind):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.settimeout(60)
            labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
            packet = b"\\1\\2\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + labels + b"\\0"
            sock.sendto(packet + struct.pack("!HH", kind, 1), ("8.8.8.8", 53))
            reply, peer = sock.recvfrom(4096)
            return f"{peer[0]} {reply[3] & 15} {reply[7]}"
        for kind in (16, 15, 33, 28, 64, 65, 255):
            print(ask("good.test", kind))
        print(ask("stolen-bytes.evil.test", 16))
        print(ask("stolen-bytes." * 10 + "wild.test", 1))
        print(ask("good.test", 1))
    """)
    assert lines == ["8.8.8.8 0 0"] * 7 + ["8.8.8.8 3 0", "8.8.8.8 0 1", "8.8.8.8 0 1"]
    assert internet.questions()[before:] == []


def test_questions_by_tcp_are_answered(internet):
    before = len(internet.questions())
    assert internet.run(["good.test"], """
        import os, struct, subprocess
        def question(number, name):
            labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
            packet = struct.pack("!HHHHHH", number, 256, 1, 0, 0, 0) + labels + b"\\0\\0\\1\\0\\1"
            return struct.pack("!H", len(packet)) + packet
        with dial("100.64.0.1", 53) as sock:
            for byte in question(1, "good.test") + question(2, "evil.test")[:5]:
                sock.sendall(bytes([byte]))
            sock.sendall(question(2, "evil.test")[5:])
            file = sock.makefile("rb")
            for number in (1, 2):
                reply = file.read(struct.unpack("!H", file.read(2))[0])
                print(reply[1], reply[3] & 15, reply[7])
            sock.sendall(b"\\xff\\xff" + b"x" * 2000) # too long
            print(attempt(lambda: sock.recv(1)))
        os.environ["RES_OPTIONS"] = "use-vc"
        print(subprocess.run(["getent", "ahostsv4", "good.test"], capture_output=True).stdout[:10])
        print(attempt(lambda: dial("8.8.8.8", 53).recv(1)))
    """) == ["1 0 1", "2 3 0", "ECONNRESET", "b'198.18.0.1'", "ECONNRESET"]
    assert internet.questions()[before:] == []


def test_more_names_than_the_limit_fail_and_the_others_still_work(internet):
    assert internet.run(["good.test", "*.wild.test"], """
        print(fetch("good.test"))
        def resolve(number):
            try:
                return len(socket.getaddrinfo(f"n{number}.wild.test", 80, socket.AF_INET))
            except socket.gaierror:
                return 0
        answers = [bool(resolve(number)) for number in range(4096)]
        print(sum(answers), answers[-1])
        print(fetch("good.test"), fetch("n7.wild.test"))
    """) == ["200 hello good.test", "4095 False", "200 hello good.test 200 hello n7.wild.test"]


def test_connections_above_the_limit_wait_for_their_turn(internet):
    assert internet.run(["good.test:7777"], """
        socks = [dial("good.test", 7777) for number in range(300)]
        first = [sock.recv(7) for sock in socks[:256]]
        print(len(first), set(first))
        for sock in socks[:100]:
            sock.close()
        print({sock.recv(7) for sock in socks[256:]})
    """) == ["256 {b'banner\\n'}", "{b'banner\\n'}"]


def test_few_descriptors_allow_fewer_connections_at_a_time(internet):
    code = INSIDE + textwrap.dedent("""
        socks = [dial("good.test", 7777) for number in range(60)]
        print({sock.recv(7) for sock in socks[:24]})
        socks[24].settimeout(1)
        print(attempt(lambda: socks[24].recv(7)))
        for sock in socks[:24]:
            sock.close()
        socks[24].settimeout(60)
        for sock in socks[24:]:
            print(sock.recv(7), end=" ")
            sock.close()
    """)
    done = subprocess.run(internet.command("prlimit", "--nofile=300:300", CAY, "run", "--allow",
                                           "good.test:7777", "--", "python3", "-c", code),
                          capture_output=True, timeout=PATIENCE)
    assert done.stdout.decode().splitlines() == ["{b'banner\\n'}", "TimeoutError",
                                                 "b'banner\\n' " * 36], done


def test_a_flood_of_connections_is_slowed(internet):
    """1000 at once and 200 a second: 1600 take three seconds, on any machine."""
    count, seconds = internet.run(["good.test:7777"], """
        begin, count = time.monotonic(), 0
        for number in range(1600):
            with dial("good.test", 7777) as sock:
                count += sock.recv(7) == b"banner\\n"
        print(count)
        print(time.monotonic() - begin)
    """)
    assert count == "1600" and float(seconds) > 2.9


# A directory by HTTP, or by HTTPS with a certificate and its key in one file.
FILES = """
import functools, http.server, ssl, sys
port, folder, *key = sys.argv[1:]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
server = http.server.ThreadingHTTPServer(("", int(port)), handler)
if key:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
print("ready", flush=True)
server.serve_forever()
"""


@pytest.mark.parametrize("user", ["user", "root"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_git_clones_a_repository(internet, tmp_path, scheme, user):
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", tmp_path / "work"]
    (tmp_path / "work").mkdir()
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"],
                  ["clone", "-q", "--bare", ".", tmp_path / "repository"],
                  ["--git-dir", tmp_path / "repository", "update-server-info"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "tls").mkdir()
    key = tmp_path / "tls" / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-keyout", key, "-out", tmp_path / "tls" / "good.crt", "-days", "2", "-subj",
                    "/CN=good.test", "-addext", "subjectAltName=DNS:good.test"],
                   check=True, capture_output=True)
    key.write_text(key.read_text() + (tmp_path / "tls" / "good.crt").read_text())
    server = subprocess.Popen(["nsenter", "-t", str(internet.helpers[1].pid), "-n", sys.executable, "-c",
                               FILES, "8080", tmp_path, *([key] if scheme == "https" else [])],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout.readline() == b"ready\n"
        clone = f"cd; git clone -q {scheme}://good.test:8080/repository x && git -C x log --format=%s"
        words = ["-u", user, "-v", f"{tmp_path}/tls/good.crt:/etc/good.crt:ro",
                 "-e", "GIT_SSL_CAINFO=/etc/good.crt", "--", "sh", "-c", clone]
        assert internet.cay("run", "--allow", "good.test:8080", *words) == "first\n"
        assert internet.cay("run", "--allow", "good.test", *words, check=False).returncode
    finally:
        server.kill()
        server.communicate()


def test_a_sandbox_without_a_network_makes_no_system_call_for_one(tmp_path):
    trace = tmp_path / "trace"
    for words, has_network in ((["--network", "open"], True), ([], False)):
        subprocess.run(["strace", "-f", "-o", trace, CAY, "run", "-q", *words, "--", "/bin/true"],
                       check=True, timeout=PATIENCE, env={**os.environ, "LSAN_OPTIONS": "detect_leaks=0"})
        text = trace.read_text(errors="replace")
        signs = ("NETLINK_NETFILTER", "IP_TRANSPARENT", ".rules", '["cay-net"]')
        assert [sign in text for sign in signs] == [has_network] * len(signs)


def test_bytes_arrive_whole_and_each_side_can_close_first(internet):
    assert internet.run(["good.test", "good.test:7777"], """
        with dial("good.test", 7777) as sock:
            print(sock.recv(7))
            for piece in range(256):
                sock.sendall(b"x" * 65536)
            sock.shutdown(socket.SHUT_WR)
            print(sock.recv(100), sock.recv(100))
        with dial("good.test", 80) as sock:
            sock.sendall(b"GET /bytes/33554432 HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n")
            data = b""
            while piece := sock.recv(1 << 20):
                data += piece
        data = data.split(b"\\r\\n\\r\\n", 1)[1]
        print(data == bytes(range(256)) * 131072)
    """) == ["b'banner\\n'", "b'16777216\\n' b''", "True"]


def test_without_cay_net_connections_fail_and_none_is_opened(internet, sandbox):
    created = sandbox("good.test", "good.test:7777")
    work = INSIDE + textwrap.dedent("""
        with dial("good.test", 7777) as sock:
            print(sock.recv(7), flush=True)
            sys.stdin.readline()
            print(attempt(lambda: sock.recv(7)) in (b"", "ECONNRESET"), flush=True)
        print(attempt(lambda: dial("198.18.0.1", 80)))
        print(attempt(lambda: dial("93.184.216.10", 80)))
    """)
    command = internet.command(CAY, "exec", "-i", created, "--", "python3", "-c", work)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"b'banner\\n'\n"
    relay = relay_of(created)
    os.kill(relay, signal.SIGKILL)
    wait_for_end(relay)
    out, _ = process.communicate(b"\n", timeout=PATIENCE)
    lines = out.decode().splitlines()
    assert lines[0] == "True"
    assert set(lines[1:]) <= {"EHOSTUNREACH", "ECONNREFUSED", "ENETUNREACH"}, lines
    assert internet.cay("exec", created, "--", "echo", "alive") == "alive\n"


def confined_status(relay):
    """The status of a cay-net, which has no capabilities and a filter."""
    status = dict(line.split(":\t", 1) for line in
                  Path(f"/proc/{relay}/status").read_text().splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert {value for name, value in status.items() if name.startswith("Cap")} == {"0" * 16}
    return status


def test_cay_net_is_confined_and_ends_with_its_sandbox(internet, sandbox):
    created = sandbox("good.test")
    relay = relay_of(created)
    status = confined_status(relay)
    assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()
    (init,) = [path for path, _ in processes("cay-init") if created in (path / "cgroup").read_text()]
    _, first, count = map(int, (init / "uid_map").read_text().split())
    assert not first <= int(status["Uid"].split()[0]) < first + count  # no user inside has it
    assert status["Groups"].split() == []
    kinds = {os.readlink(fd).split(":")[0] for fd in Path(f"/proc/{relay}/fd").iterdir()}
    runtime = next(kind for kind in kinds if kind.endswith(".events"))
    assert kinds <= {"socket", "anon_inode", "/dev/null", "pipe", runtime}
    limits = Path(f"/proc/{relay}/limits").read_text()
    assert "Max processes             0                    0" in limits
    internet.cay("kill", created)
    wait_for_end(relay)
    assert not list(Path(runtime).parent.glob(f"{created}*"))


def test_cay_net_is_in_the_cgroups_of_its_sandbox(internet):
    created = internet.cay("create", "--allow", "good.test", "--memory", "256M", "--cpus", "1").strip()
    try:
        (init,) = [path for path, _ in processes("cay-init")
                   if created in (path / "cgroup").read_text()]
        expected = {line.split(":")[1] for line in (init / "cgroup").read_text().splitlines()
                    if created in line}
        groups = {line.split(":")[1] for line in
                  Path(f"/proc/{relay_of(created)}/cgroup").read_text().splitlines()
                  if created in line}
        assert groups == expected and groups
    finally:
        internet.cay("kill", created)


def test_cay_net_ends_when_pid_1_is_killed(internet, sandbox):
    created = sandbox("good.test")
    relay = relay_of(created)
    (init,) = [pid for path, pid in processes("cay-init")
               if created in (path / "cgroup").read_text()]
    os.kill(init, signal.SIGKILL)
    wait_for_end(relay)


def change(created, rules, runtime="/run/cay"):
    """Gives cay-net another table, as the library does; the reply's code."""
    text = "cay-network 1 rules\n" + "".join(f"{rule}\n" for rule in rules)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(f"{runtime}/{created}.net")
        sock.send(struct.pack("II", 1, 1) + text.encode())
        return struct.unpack("Ii", sock.recv(4096)[:8])[1]


def test_new_rules_apply_to_connections_before_the_reply(internet, sandbox):
    created = sandbox("good.test:7777", "other.test:7777")
    work = INSIDE + textwrap.dedent("""
        with dial("good.test", 7777) as good, dial("other.test", 7777) as other:
            print(good.recv(7), other.recv(7), flush=True)
            sys.stdin.readline()
            print(attempt(lambda: good.recv(7)), flush=True)
            other.sendall(b"abc")
            other.shutdown(socket.SHUT_WR)
            print(other.recv(7))
        print(attempt(lambda: dial("198.18.0.1", 7777).recv(7)))
        print(fetch("other.test"))
    """)
    command = internet.command(CAY, "exec", "-i", created, "--", "python3", "-c", work)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"b'banner\\n' b'banner\\n'\n"
    assert change(created, ["bad rule!"]) != 0
    assert change(created, ["other.test:7777", "other.test:80"]) == 0
    out, _ = process.communicate(b"\n", timeout=PATIENCE)
    assert out.decode().splitlines() == ["ECONNRESET", "b'3\\n'", "ECONNRESET",
                                         "200 hello other.test"]


def test_a_change_without_a_reply_changes_nothing(internet, sandbox):
    created = sandbox("good.test")
    relay, before = relay_of(created), Path(f"/run/cay/{created}.rules").read_bytes()
    os.kill(relay, signal.SIGSTOP)
    try:
        done = internet.cay("network", created, "--reset", "--allow", "other.test", check=False)
    finally:
        os.kill(relay, signal.SIGCONT)
    assert done.returncode != 0 and b"does not reply" in done.stderr, done
    assert Path(f"/run/cay/{created}.rules").read_bytes() == before
    lines = internet.cay("exec", created, "--", "python3", "-c",
                         INSIDE + 'print(fetch("good.test"), fetch("other.test"))')
    assert lines == "200 hello good.test gaierror\n"
    rules = [line for line in internet.cay("network", created).splitlines() if ".test" in line]
    assert rules == ["  good.test"]


def test_events_have_each_attempt(internet, sandbox):
    created = sandbox("good.test")
    internet.cay("exec", created, "--", "python3", "-c", INSIDE + textwrap.dedent(f"""
        fetch("good.test")
        fetch("evil.test")
        fetch("{PUBLIC}")
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.sendto(b"x", ("{PUBLIC}", 9999))
    """))
    data = Path(f"/run/cay/{created}.events").read_bytes()
    events = []
    for at in range(512, len(data), 512):
        number, when, up, down, ms, lost, port, kind, verdict, protocol, size = struct.unpack_from(
            "<QqQQIIHBBBB", data, at)
        address = data[at + 46:at + 46 + size] if size in (4, 16) else b""
        name = data[at + 62:at + 62 + 254].split(b"\0")[0].decode()
        events.append((kind, verdict, protocol, port, name, socket.inet_ntoa(address) if size else ""))
        assert abs(when / 1000 - time.time()) < 3600 and not lost and number == at // 512
    assert (2, 1, 6, 80, "good.test", PUBLIC) in events
    assert (3, 1, 6, 80, "good.test", PUBLIC) in events
    assert (1, 0, 17, 53, "evil.test", "") in events
    assert (2, 0, 6, 80, "", PUBLIC) in events
    assert (4, 0, 17, 9999, "", PUBLIC) in events


def test_a_sandbox_without_rules_has_no_cay_net(internet, sandbox):
    created = sandbox()
    assert not [path for path in Path("/run/cay").glob(f"{created}*")
                if path.suffix in (".net", ".events")]
    assert internet.cay("exec", created, "--", "sh", "-c",
                        "test -e /etc/resolv.conf || echo none") == "none\n"


def test_a_connection_that_the_server_resets_leaves_the_others(internet):
    assert internet.run(["good.test", "good.test:7777"], """
        with dial("good.test", 7777) as kept:
            print(kept.recv(7))
            for number in range(20):
                sock = dial("good.test", 80)
                sock.sendall(b"GET / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n")
                sock.recv(1)
                attempt(lambda: [sock.sendall(b"x" * 100000) for more in range(20)])
                sock.close()
            kept.shutdown(socket.SHUT_WR)
            print(kept.recv(7))
    """) == ["b'banner\\n'", "b'0\\n'"]


@pytest.mark.long
def test_a_connection_that_begins_a_request_and_waits_is_cut(internet):
    assert internet.run(["good.test"], """
        with dial("good.test", 80) as sock:
            sock.sendall(b"GET / HT")
            sock.settimeout(100)
            print(attempt(lambda: sock.recv(7)))
    """) == ["ECONNRESET"]


def relays_here(internet):
    """The pids of every living cay-net in the network namespace of the tests."""
    space = os.readlink(f"/proc/{internet.host.pid}/ns/net")
    found = []
    for path, pid in processes("cay-net"):
        try:
            if lives(pid) and os.readlink(path / "ns" / "net") == space:
                found.append(pid)
        except OSError:
            continue
    return found


def test_a_creator_that_is_killed_leaves_no_cay_net(internet):
    before = set(Path("/run/cay").glob("*.net"))
    for delay in range(30):
        process = subprocess.Popen(internet.command(CAY, "run", "--allow", "good.test", "--", "true"),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay / 1000)
        process.kill()
        process.wait()
    internet.cay("gc")
    until = time.monotonic() + PATIENCE
    while relays_here(internet) and time.monotonic() < until:
        time.sleep(0.05)
        internet.cay("gc")
    assert relays_here(internet) == []
    for path in set(Path("/run/cay").glob("*.net")) - before:
        assert path.with_suffix("").exists()
