# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of one named network reach each other by name, and no others."""

import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE, TRACED, copy_command

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for other users")

# Attempts of a client inside, each of which prints one line.
CLIENT = """
import errno, socket
def attempt(work):
    try:
        return work()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
def greet(host, port=7000):
    def work():
        with socket.create_connection((host, port), timeout=100) as sock:
            sock.sendall(b"hi")
            try:
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # reset already: so says recv()
            got = b""
            while piece := sock.recv(65536):
                got += piece
            return got.decode() or "closed"
    return attempt(work)
def find(host):
    return attempt(lambda: socket.gethostbyname(host))
"""

# Greets each client by the name of the server.
SERVER = """
import socket, socketserver, sys
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        while self.request.recv(4096):
            pass
        self.request.sendall(sys.argv[1].encode())
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, request_queue_size = True, 256
Server((sys.argv[2], int(sys.argv[3])), Handler).serve_forever()
"""


class Box:
    """Sandboxes of one user, which are removed at the end."""

    def __init__(self, command=(CAY,), env=None):
        self.command, self.env, self.ids = [str(word) for word in command], env, []

    def cay(self, *words, check=True):
        done = subprocess.run([*self.command, *words], capture_output=True, timeout=PATIENCE,
                              env=self.env)
        assert not check or done.returncode == 0, done
        return done.stdout.decode() if check else done

    def create(self, *words):
        self.ids.append(self.cay("create", *words).strip())
        return self.ids[-1]

    def serve(self, sandbox, greeting, address="0.0.0.0", port=7000):
        self.cay("exec", "-d", sandbox, "--", "python3", "-c", SERVER, greeting, address, str(port))
        until = time.monotonic() + PATIENCE
        listens = f":{port:04X} 00000000:0000 0A"
        while listens not in self.cay("exec", sandbox, "--", "cat", "/proc/net/tcp"):
            assert time.monotonic() < until
            time.sleep(0.05)

    def run(self, sandbox, code):
        return self.cay("exec", sandbox, "--", "python3", "-c", CLIENT + code).splitlines()

    def inspect(self, sandbox):
        return json.loads(self.cay("inspect", sandbox, "-o", "json"))

    def done(self):
        for each in self.ids:
            self.cay("rm", each, check=False)


@pytest.fixture(name="box")
def fixture_box():
    made = Box()
    yield made
    made.done()


@pytest.fixture(name="net")
def fixture_net():
    return f"net-{os.getpid()}-{time.monotonic_ns()}"


def links(net, runtime="/run/cay"):
    folder = Path(runtime) / "networks"
    return sorted(path.name for path in folder.glob(f"{net}:*")) if folder.is_dir() else []


def test_members_reach_each_other_by_name(box, net):
    one, two, three = (box.create("--join", f"{net}:{name}") for name in ("one", "two", "Three"))
    for each, name in ((one, "one"), (two, "two"), (three, "three")):
        box.serve(each, f"from {name}")
    for each in (one, two, three):
        assert box.run(each, """
for name in ("one", "two", "three", "ONE."):
    print(greet(name))
""") == ["from one", "from two", "from three", "from one"]
    info = box.inspect(one)
    assert info["networks"] == [f"{net}:one"] and info["network"] == "rules"


def test_ls_and_inspect_print_the_networks_of_a_sandbox(box, net):
    one, alone = box.create("--join", f"{net}:one", "--join", f"{net}:two"), box.create()
    lines = box.cay("ls").splitlines()
    assert lines[0].split()[-1] == "NETWORKS"
    (line,) = [each for each in lines if each.startswith(one)]
    assert line.endswith(f" {net}:one {net}:two")
    assert f"\nnetworks:  {net}:one {net}:two\n" in box.cay("inspect", one)
    assert "networks" not in box.cay("inspect", alone)


def test_the_default_name_is_that_of_the_sandbox_or_its_id(box, net):
    named = f"n{time.monotonic_ns()}"
    one, two = box.create("--join", net, "--name", named), box.create("--join", net)
    box.serve(one, "named")
    box.serve(two, "by id")
    assert box.run(one, f"print(greet('{two}'), greet('{named}'), find('{named}'))") == [
        "by id named 100.64.0.2"]
    assert box.run(two, f"print(greet('{named}'))") == ["named"]


def test_the_first_command_knows_every_member(box, net):
    box.serve(box.create("--join", f"{net}:db"), "ready")
    for _ in range(10):
        assert box.cay("run", "--join", net, "--", "python3", "-c",
                       CLIENT + "print(greet('db'))") == "ready\n"


def test_others_have_no_way_to_a_member(box, net):
    member, peer = box.create("--join", f"{net}:member"), box.create("--join", f"{net}:peer")
    box.serve(member, "secret")
    other = box.create("--join", f"{net}-other:other")
    ruled, opened, alone = (box.create(*words) for words in (
        ("--allow", "example.com"), ("--network", "open"), ()))
    code = f"""
for name in ("member", "{member}", "peer"):
    print(find(name) == "gaierror")
for address in ("198.18.0.1", "198.18.0.2", "100.64.0.2", "100.64.0.1", "127.0.0.1"):
    print("secret" in greet(address))
"""
    for each in (other, ruled, opened, alone):  # an open network has an address for each name
        assert box.run(each, code) == [str(each != opened)] * 3 + ["False"] * 5
    # The same probes find the way where there is one.
    assert box.run(peer, "print(find('member'), greet('member'), greet('198.18.0.1'))") == [
        "198.18.0.1 secret secret"]
    assert box.run(member, "print(greet('127.0.0.1'))") == ["secret"]


def test_a_member_reaches_servers_on_all_addresses_only(box, net):
    client, server = box.create("--join", f"{net}:client"), box.create("--join", f"{net}:server")
    box.serve(server, "all", "0.0.0.0", 7000)
    box.serve(server, "own", "100.64.0.2", 7001)
    box.serve(server, "loopback", "127.0.0.1", 7002)
    assert box.run(client, """
for port in (7000, 7001):
    print(greet("server", port))
for port in (7002, 1, 53, 9):
    print(greet("server", port))
""") == ["all", "own"] + ["ECONNRESET"] * 4
    assert box.run(server, "print(greet('127.0.0.1', 7002))") == ["loopback"]
    # Nothing of the host, and no UDP.
    assert box.run(client, """
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.connect((find("server"), 7000))
sock.send(b"x")
print(attempt(lambda: sock.recv(1)))
""") == ["ECONNREFUSED"]
    assert "502" in box.cay("exec", client, "--", "python3", "-c", """
import socket
sock = socket.create_connection(("server", 9))
sock.sendall(b"GET / HTTP/1.1\\r\\nHost: server\\r\\n\\r\\n")
print(sock.recv(4096))
""")


def test_a_member_without_rules_reaches_no_host(box, net):
    one = box.create("--join", f"{net}:one")
    assert box.run(one, """
print(find("example.com"))
print("HTTP/1.1 403" in attempt(lambda: (lambda sock: (sock.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n"),
      sock.recv(100).decode())[1])(socket.create_connection(("93.184.216.34", 80)))))
""") == ["gaierror", "True"]


def test_the_end_of_a_member_removes_its_name_and_its_connections(box, net):
    one, two = box.create("--join", f"{net}:one"), box.create("--join", f"{net}:two")
    box.serve(two, "first")
    waiting = subprocess.Popen([CAY, "exec", one, "--", "python3", "-c", CLIENT + """
with socket.create_connection(("two", 7000)) as sock:
    print("open", flush=True)
    print(attempt(lambda: sock.recv(1)) or "closed")
"""], stdout=subprocess.PIPE)
    assert waiting.stdout.readline() == b"open\n"
    box.cay("kill", two)
    out, _ = waiting.communicate(timeout=PATIENCE)
    assert out in (b"ECONNRESET\n", b"closed\n")
    until = time.monotonic() + PATIENCE
    while box.run(one, "print(find('two'))") != ["gaierror"]:
        assert time.monotonic() < until
    assert links(net) == [f"{net}:one"]
    # Another sandbox takes the name over.
    box.serve(box.create("--join", f"{net}:two"), "second")
    assert box.run(one, "print(greet('two'))") == ["second"]
    assert box.run(one, "print(greet('198.18.0.1'))") == ["second"]


def test_pid_1_killed_from_outside_leaves_the_network(box, net):
    one, two = box.create("--join", f"{net}:one"), box.create("--join", f"{net}:two")
    os.kill(box.inspect(two)["init_pid"], signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while box.run(one, "print(find('two'))") != ["gaierror"]:
        assert time.monotonic() < until
    box.create("--join", f"{net}:two")  # the name is free


def test_a_name_in_use_is_refused(box, net):
    box.create("--join", f"{net}:db")
    done = box.cay("create", "--join", f"{net}:DB", "-o", "json", check=False)
    assert json.loads(done.stderr)["error"]["slug"] == "exists"
    box.create("--join", f"{net}-2:db")
    assert links(net) == [f"{net}:db"]


@pytest.mark.parametrize("value", ["", ":", "a b", "net:", "net:a b", "net:1", "net:10.0.0.1", "n/t",
                                   "../x", "net:localhost", "n" * 64, "net:" + "n" * 64, "net:é",
                                   "net:a:b"])
def test_an_invalid_name_is_refused(box, value):
    done = box.cay("create", "--join", value, "-o", "json", check=False)
    assert done.returncode and json.loads(done.stderr)["error"]["slug"] in ("invalid", "limit")


def test_other_networks_do_not_join(box, net, tmp_path):
    config = tmp_path / "cay.yaml"
    config.write_text("level: landlock\n")
    for words, slug in ((("--network", "host"), "invalid"), (("--config", str(config)), "unsupported")):
        done = box.cay("create", "--join", net, *words, "-o", "json", check=False)
        assert done.returncode and json.loads(done.stderr)["error"]["slug"] == slug, done
    assert links(net) == []


def test_a_sandbox_on_disk_joins_its_networks_again_when_it_starts(box, net):
    one = box.create("--join", f"{net}:one")
    disk = box.create("--storage", "disk", "--join", f"{net}:db", "--join", net)
    names = [f"{net}:db", f"{net}:{disk}"]
    assert box.inspect(disk)["networks"] == names
    for greeting in ("first", "second"):
        box.serve(disk, greeting)
        assert box.run(one, f"print(greet('db'), greet('{disk}'))") == [f"{greeting} {greeting}"]
        box.cay("kill", disk)
        assert links(net) == [f"{net}:one"]
        stopped = box.inspect(disk)
        assert (stopped["state"], stopped["networks"]) == ("stopped", names)
        box.cay("start", disk)
        assert box.inspect(disk)["networks"] == names
        assert box.run(disk, "print(find('one') != 'gaierror')") == ["True"]


def test_a_stopped_sandbox_does_not_reserve_its_name_in_a_network(box, net):
    disk = box.create("--storage", "disk", "--join", f"{net}:db")
    box.cay("kill", disk)
    other = box.create("--join", f"{net}:db")
    done = box.cay("start", disk, "-o", "json", check=False)
    error = json.loads(done.stderr)["error"]
    assert error["slug"] == "exists" and other in error["message"], error
    assert box.inspect(disk)["state"] == "stopped" and links(net) == [f"{net}:db"]
    box.cay("kill", other)
    box.cay("start", disk)
    assert os.readlink(f"/run/cay/networks/{net}:db") == disk


def test_a_sandbox_joins_several_networks_by_several_names(box, net):
    hub = box.create("--join", f"{net}-a:hub", "--join", f"{net}-a:alias", "--join", f"{net}-b:hub")
    one, two = box.create("--join", f"{net}-a:leaf"), box.create("--join", f"{net}-b:leaf")
    for each, greeting in ((hub, "hub"), (one, "one"), (two, "two")):
        box.serve(each, greeting)
    assert box.run(one, "print(greet('hub'), greet('alias'))") == ["hub hub"]
    assert box.run(two, "print(greet('hub'), find('alias'))") == ["hub gaierror"]
    assert box.run(hub, "print(greet('leaf'))") == ["one"]  # the first network
    box.cay("kill", one)
    until = time.monotonic() + PATIENCE
    while box.run(hub, "print(greet('leaf'))") != ["two"]:
        assert time.monotonic() < until


def test_another_user_is_not_in_the_network(box, net, tmp_path_factory):
    box.serve(box.create("--join", f"{net}:db"), "of root")
    base = tmp_path_factory.mktemp("user")
    for each in (base, *base.parents):
        if str(each).startswith("/tmp/"):
            each.chmod(0o755)
    program, runtime = copy_command(base), base / "run"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, 1234, 1234)
    other = Box(("setpriv", "--reuid", "1234", "--regid", "1234", "--clear-groups", program),
                {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "CAY_HOME": str(runtime / "home"),
                 "HOME": str(runtime)})
    try:
        one = other.create("--join", f"{net}:one")
        two = other.create("--join", f"{net}:db")  # no collision: another network
        other.serve(two, "of 1234")
        assert other.run(one, "print(greet('db'))") == ["of 1234"]
        assert links(net) == [f"{net}:db"]
        assert other.inspect(one)["level"] in ("range", "single")
    finally:
        other.done()


def test_many_sandboxes_join_at_the_same_time(box, net):
    count, threads = 50, []

    def join(numbers):
        for number in numbers:
            box.create("--join", f"{net}:m{number}", "--memory", "64M")

    for start in range(4):
        threads.append(threading.Thread(target=join, args=(range(start, count, 4),)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(box.ids) == count and len(links(net)) == count
    names = " ".join(f"m{number}" for number in range(count))
    for each in box.ids[:3] + box.ids[-3:]:
        assert box.run(each, f"print([name for name in '{names}'.split() if find(name) == 'gaierror'])"
                       ) == ["[]"]
    box.serve(box.ids[0], "first")
    (first,) = {name.split(":")[1] for name in links(net)
                if os.readlink(f"/run/cay/networks/{name}") == box.ids[0]}
    assert box.run(box.ids[-1], f"print(greet('{first}'))") == ["first"]


def kill_at(call, step, *words):
    """Runs cay, killed at its call number `step`; whether that was reached."""
    command = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
               f"inject={call}:signal=KILL:when={step}", CAY, *words]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, env=TRACED)
    assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done
    return done.returncode != 0


@pytest.mark.parametrize("call", ["connect", "sendmsg", "symlinkat", "renameat"])
def test_a_creator_that_is_killed_leaves_the_network_whole(box, net, call):
    """Killed at its first such call, its second, ... until it needs no more."""
    one = box.create("--join", f"{net}:one")
    box.serve(one, "one")
    step = 1
    while kill_at(call, step, "create", "--name", f"{net}-killed", "--join", f"{net}:killed"):
        last = box.create("--join", f"{net}:last")
        box.serve(last, "last")
        assert box.run(last, "print(greet('one'))") == ["one"]
        assert box.run(one, "print(greet('last'))") == ["last"]
        # If the sandbox has outlived its creator, it is a whole member by now.
        for killed in [os.readlink(f"/run/cay/networks/{link}") for link in links(net)
                       if link.endswith(":killed")]:
            if box.cay("exec", killed, "--", "true", check=False).returncode == 0:
                assert box.run(killed, "print(greet('last'), greet('one'))") == ["last one"]
                for each in (one, last):
                    assert box.run(each, "print(find('killed') != 'gaierror')") == ["True"]
        box.cay("kill", f"{net}-killed", check=False)
        box.cay("gc")
        box.cay("kill", last)
        assert links(net) == [f"{net}:one"]
        step += 1
        assert step < 100
    assert step > 1
    box.cay("kill", f"{net}-killed")
    box.cay("gc")


def test_the_next_join_completes_one_whose_creator_has_died(box, net):
    one, half = box.create("--join", f"{net}:one"), box.create("--join", f"{net}-x:half")
    for each, greeting in ((one, "one"), (half, "half")):
        box.serve(each, greeting)
    # As a creator leaves it that dies right after it has claimed the name.
    pending = Path(f"/run/cay/networks/{net}:half")
    pending.symlink_to(f"{half}+")
    try:
        assert box.run(one, "print(find('half'))") == ["gaierror"]
        last = box.create("--join", f"{net}:last")
        assert os.readlink(pending) == half
        assert box.run(one, "print(greet('half'))") == ["half"]
        assert box.run(half, "print(greet('one'), find('last') != 'gaierror')") == ["one True"]
        assert box.run(last, "print(greet('one'), greet('half'))") == ["one half"]
    finally:
        pending.unlink()


def test_a_hostile_pid_1_does_not_harm_the_cay_net_of_a_member(box, net, tmp_path):
    """The test is the PID 1 of a member, which sends what a real one never does."""
    one = box.create("--join", f"{net}:one")
    box.serve(box.create("--join", f"{net}:two"), "two")

    def join(name):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control, theirs:
            control.connect(f"/run/cay/{one}.net")
            text = struct.pack("II32s64s128s", 1, 8, b"sb-0123456789abcdef", net.encode(),
                               name.encode())
            socket.send_fds(control, [text], [theirs.fileno()])
            assert struct.unpack("Ii", control.recv(4096)[:8])[1] == 0
        ours.settimeout(PATIENCE)
        return ours

    def connect(name):
        return subprocess.Popen([CAY, "exec", one, "--", "python3", "-c",
                                 CLIENT + f"print(greet('{name}', 80))"], stdout=subprocess.PIPE)

    def is_cut(sock):
        return sock.recv(4096) == b""

    ok = struct.pack("i", 0)
    with join("unasked") as pid_1:
        pid_1.send(ok)
        assert is_cut(pid_1)
    for number, answer in enumerate([b"", b"x", b"x" * 4096, ok + ok]):
        with join(f"size{number}") as pid_1:
            client = connect(f"size{number}")
            assert pid_1.recv(4096) == struct.pack("I", 80)
            pid_1.send(answer)
            assert is_cut(pid_1)
            assert client.communicate(timeout=PATIENCE)[0] == b"ECONNRESET\n"
    (tmp_path / "file").write_text("file")
    pair = socket.socketpair()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with open(tmp_path / "file") as file, pair[0], pair[1], udp, join("fds") as pid_1:
        for fds in ([], [file.fileno()], [pair[0].fileno()], [udp.fileno()]):
            client = connect("fds")
            assert pid_1.recv(4096) == struct.pack("I", 80)
            socket.send_fds(pid_1, [ok], fds)
            assert client.communicate(timeout=PATIENCE)[0] == b"ECONNRESET\n"
        client = connect("fds")
        assert pid_1.recv(4096) == struct.pack("I", 80)
        socket.send_fds(pid_1, [ok], [file.fileno(), udp.fileno()])
        assert is_cut(pid_1)
        assert client.communicate(timeout=PATIENCE)[0] == b"ECONNRESET\n"
    # A TCP socket is what it may send: the negative control.
    with socket.create_server(("127.0.0.1", 0)) as server, join("good") as pid_1:
        with socket.create_connection(server.getsockname()) as far:
            near, _ = server.accept()
            client = connect("good")
            assert pid_1.recv(4096) == struct.pack("I", 80)
            with near:
                socket.send_fds(pid_1, [ok], [near.fileno()])
            assert far.recv(2) == b"hi"
            far.sendall(b"hello")
            far.shutdown(socket.SHUT_WR)
            assert client.communicate(timeout=PATIENCE)[0] == b"hello\n"
    assert box.run(one, "print(greet('two'))") == ["two"]


def test_a_hostile_cay_net_gets_nothing_but_ports_of_a_member(box, net):
    """The test is the cay-net of another member, with its connection to PID 1."""
    one = box.create("--join", f"{net}:one")
    box.serve(one, "all")
    box.serve(one, "loopback", "127.0.0.1", 7002)

    def dialer():
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(PATIENCE)
        sock.connect(f"/run/cay/{one}.control")
        sock.send(struct.pack("IIII", 2, 36, 0, 0))
        return sock

    def dial(sock, port):
        sock.send(struct.pack("I", port))
        data, fds, _, _ = socket.recv_fds(sock, 4096, 4)
        return struct.unpack("i", data)[0], [socket.socket(fileno=fd) for fd in fds]

    def finish(sock):
        sock.setblocking(True)
        with sock:
            sock.sendall(b"x")
            sock.shutdown(socket.SHUT_WR)
            return sock.recv(100)

    with dialer() as sock:
        error, (found,) = dial(sock, 7000)
        assert error == 0 and found.getpeername() == ("100.64.0.2", 7000)
        assert finish(found) == b"all"
        for port in (7002, 1, 53, 0):
            error, found = dial(sock, port)
            assert error < 0 and not found, port
        error, (found,) = dial(sock, 7000)  # it still serves
        assert finish(found) == b"all"
    # PING, STATUS, EXEC, KILL, DIAL, and other sizes end the connection.
    for text in (struct.pack("IIII", 2, 4, 0, 0), struct.pack("IIII", 2, 28, 0, 0), b"x", b"x" * 60000,
                 struct.pack("IIIIH", 2, 33, 2, 0, 7002), struct.pack("I", 65536 + 7000)):
        with dialer() as sock:
            sock.send(text)
            assert sock.recv(4096) == b"", text
    with dialer() as sock, open("/dev/null") as file:
        socket.send_fds(sock, [struct.pack("I", 7000)], [file.fileno()])
        assert sock.recv(4096) == b""
    # The same request before DIAL_ONLY is served: the negative control.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(f"/run/cay/{one}.control")
        sock.send(struct.pack("IIII", 2, 4, 0, 0))
        assert struct.unpack("IIII", sock.recv(4096))[1] == 105
    assert box.cay("exec", one, "--", "echo", "lives") == "lives\n"


def test_more_connections_than_pending_requests_are_carried(box, net):
    one, two = box.create("--join", f"{net}:one"), box.create("--join", f"{net}:two")
    box.serve(two, "two")
    assert box.run(one, """
import threading
found = []
threads = [threading.Thread(target=lambda: found.append(greet("two"))) for _ in range(200)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(found.count("two"))
""") == ["200"]


def test_large_data_passes_unchanged(box, net):
    one, two = box.create("--join", f"{net}:one"), box.create("--join", f"{net}:two")
    box.cay("exec", "-d", two, "--", "python3", "-c", """
import socket
server = socket.create_server(("0.0.0.0", 7000))
while True:
    sock, _ = server.accept()
    data = b""
    while piece := sock.recv(1 << 20):
        sock.sendall(piece)
    sock.close()
""")
    until = time.monotonic() + PATIENCE
    while ":1B58 00000000:0000 0A" not in box.cay("exec", two, "--", "cat", "/proc/net/tcp"):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert box.run(one, """
import os, threading
data = os.urandom(1 << 20) * 32
with socket.create_connection(("two", 7000)) as sock:
    def send():
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
    sender = threading.Thread(target=send)
    sender.start()
    got = bytearray()
    while piece := sock.recv(1 << 20):
        got += piece
    sender.join()
print(bytes(got) == data)
""") == ["True"]


@pytest.mark.parametrize("level", ["root", "single"])
def test_members_of_other_levels_reach_each_other(box, net, level, tmp_path):
    """Root creates a sandbox with one user id, too."""
    (tmp_path / "cay.yaml").write_text(f"level: {level}\nnetworks: ['{net}:configured']\n")
    one = box.create("--config", str(tmp_path / "cay.yaml"), "--join", f"{net}:alias")
    assert box.inspect(one)["level"] == level
    assert box.inspect(one)["networks"] == [f"{net}:configured", f"{net}:alias"]
    two = box.create("--join", f"{net}:two")
    for each in (one, two):
        box.serve(each, "hello")
        assert box.run(each, "print(greet('configured'), greet('alias'), greet('two'))") == [
            "hello hello hello"] or each == one
    assert box.run(one, "print(greet('two'))") == ["hello"]


def test_rules_and_a_network_work_together(box, net):
    one = box.create("--join", f"{net}:one", "--allow", "example.com")
    box.serve(box.create("--join", f"{net}:two"), "two")
    assert box.run(one, "print(greet('two'), find('example.com'), find('example.org'))")[0].split()[::2] \
        == ["two", "gaierror"]
