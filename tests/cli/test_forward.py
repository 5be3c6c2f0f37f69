# SPDX-License-Identifier: Apache-2.0
"""cay forward and -p: ports of a sandbox on this machine."""

import json
import os
import re
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from conftest import CAY, PATIENCE

# Greets, reads until the client has closed its side, and returns the number of bytes.
SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    with listener.accept()[0] as sock:
        try:
            sock.sendall(b"hello ")
            count = 0
            while data := sock.recv(65536):
                count += len(data)
            sock.sendall(str(count).encode())
        except OSError:
            pass
"""


def cay(*words, check=True):
    done = subprocess.run([CAY, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL)
    assert not check or done.returncode == 0, done
    return done


NETWORKS = {"none": [], "rules": ["--allow", "pypi"], "open": ["--network", "open"],
            "joined": ["--join", f"forward{os.getpid()}"]}


@pytest.fixture(name="network", params=NETWORKS)
def fixture_network(request):
    if request.param != "none" and os.geteuid() != 0:
        pytest.skip("tests of network rules are run by root")
    return NETWORKS[request.param]


@pytest.fixture(name="box")
def fixture_box(network):
    box = cay("create", *network, "-q").stdout.strip()
    yield box
    cay("kill", box, check=False)


def start(box, port):
    """A server inside; waits until it listens."""
    cay("exec", "-d", box, "--", "python3", "-c", SERVER, port)
    code = f"import socket; socket.create_connection(('127.0.0.1', {port})).close()"
    until = time.monotonic() + PATIENCE
    while cay("exec", box, "--", "python3", "-c", code, check=False).returncode:
        assert time.monotonic() < until


def talk(port, data=b"", host="127.0.0.1"):
    with socket.create_connection((host, port), PATIENCE) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        reply = b""
        while piece := sock.recv(65536):
            reply += piece
    return reply


@contextmanager
def ended(process):
    """Does not wait for it after a failure."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


def wait_refused(port):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), PATIENCE).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.01)
    pytest.fail("the port is still open")


def forwarders():
    found = set()
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if path.read_text() == "cay-forward\n":
                found.add(path)
    return found


def test_forward_relays_until_the_sandbox_ends(box):
    start(box, 8000)
    with subprocess.Popen([CAY, "forward", "-o", "json", box, "0:8000", "0:8001"],
                          stdout=subprocess.PIPE) as process, ended(process):
        ports = json.loads(process.stdout.readline())["ports"]
        assert [(each["address"], each["inside"]) for each in ports] == [
            ("127.0.0.1", 8000), ("127.0.0.1", 8001)]
        port, unused = (each["port"] for each in ports)
        assert talk(port) == b"hello 0"
        data = os.urandom(3 << 20)
        assert talk(port, data) == f"hello {len(data)}".encode()
        assert talk(unused) == b""  # nothing listens inside
        cay("kill", box)
        assert process.wait(PATIENCE) == 0
    wait_refused(port)


def test_many_connections_are_relayed_at_once(box):
    start(box, 8000)
    line = cay("forward", "-d", box, "0:8000").stdout
    port = int(re.fullmatch(r"127\.0\.0\.1:(\d+) -> 8000\n", line)[1])
    socks = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(20)]
    for sock in socks:
        sock.sendall(b"x" * 1000)
        sock.shutdown(socket.SHUT_WR)
    for sock in socks:
        reply = b""
        while piece := sock.recv(100):
            reply += piece
        assert reply == b"hello 1000"
        sock.close()


def test_create_publishes_ports_until_the_sandbox_ends(network):
    before = forwarders()
    done = cay("create", "-q", "-p", "0:8000", *network)
    box = done.stdout.strip()
    try:
        port = int(re.search(r"cay: 127\.0\.0\.1:(\d+) -> 8000\n", done.stderr)[1])
        start(box, 8000)
        assert talk(port, b"abc") == b"hello 3"
        own = forwarders() - before
    finally:
        cay("kill", box)
    wait_refused(port)
    until = time.monotonic() + PATIENCE
    while own & forwarders() and time.monotonic() < until:
        time.sleep(0.01)
    assert own and not own & forwarders()


def test_run_publishes_ports_while_the_command_runs(network):
    with subprocess.Popen([CAY, "run", "-q", "-p", "0:8000", *network, "--", "python3", "-c", SERVER, "8000"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process, \
            ended(process):
        port = int(re.search(r"127\.0\.0\.1:(\d+) -> 8000", process.stderr.readline())[1])
        assert process.stdout.readline() == "ready\n"
        assert talk(port, b"abcd") == b"hello 4"
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.read()
    wait_refused(port)


def test_a_port_in_use_is_an_error_and_leaves_no_sandbox():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        name = f"port-{port}"
        done = cay("create", "-p", port, "--name", name, check=False)
        assert done.returncode != 0 and "in use" in done.stderr and done.stdout == ""
        assert cay("inspect", name, check=False).returncode != 0


@pytest.mark.parametrize("text", ["x", "70000", "0", "80:0", "80:80:80", "1.2.3.4.5:80", "[::1]80", ""])
def test_an_invalid_port_is_refused(box, text):
    done = cay("forward", box, text, check=False)
    assert done.returncode != 0 and "invalid port" in done.stderr


def test_a_sandbox_with_the_network_of_the_host_has_no_ports_to_forward():
    box = cay("create", "-q", "--network", "host").stdout.strip()
    try:
        for words in (["forward", box, "8000"], ["port", box]):
            done = cay(*words, check=False)
            assert done.returncode != 0 and "network of this machine" in done.stderr
    finally:
        cay("kill", box)


# --- cay port ---


def ports(box):
    rows = json.loads(cay("port", "-o", "json", box).stdout)["ports"]
    return [(row["inside"], row["listens"], row["address"], row["port"]) for row in rows]


def test_port_lists_what_listens_inside_and_where_it_is_published(box):
    assert ports(box) == []
    start(box, 8000)
    assert ports(box) == [(8000, "127.0.0.1", None, None)]
    line = cay("forward", "-d", box, "0:8000", "0:9000").stdout
    first, second = map(int, re.findall(r":(\d+) ->", line))
    with subprocess.Popen([CAY, "forward", box, "[::1]:0:8000"], stdout=subprocess.PIPE) as process, \
            ended(process):
        third = int(re.fullmatch(rb"\[::1\]:(\d+) -> 8000\n", process.stdout.readline())[1])
        wanted = [(8000, "127.0.0.1", "127.0.0.1", first), (8000, "127.0.0.1", "::1", third),
                  (9000, None, "127.0.0.1", second)]
        assert ports(box) == wanted
        assert cay("port", box).stdout.split("\n")[0].split("  ")[0] == "PORT"
        assert f"[::1]:{third}" in cay("port", box).stdout
        process.kill()
        process.wait()
    assert ports(box) == [wanted[0], wanted[2]]  # the line of the killed process is left out


def test_port_lists_the_ports_of_create(network):
    done = cay("create", "-q", "-p", "0:8000", *network)
    box = done.stdout.strip()
    try:
        port = int(re.search(r"cay: 127\.0\.0\.1:(\d+) -> 8000\n", done.stderr)[1])
        assert ports(box) == [(8000, None, "127.0.0.1", port)]
    finally:
        cay("kill", box)
    done = cay("port", box, check=False)
    assert done.returncode != 0 and box in done.stderr


SIX = """
import socket, time
sockets = [socket.create_server(("::", 8002), family=socket.AF_INET6),
           socket.create_server(("::1", 8001), family=socket.AF_INET6), socket.create_server(("", 8001))]
client = socket.create_connection(("127.0.0.1", 8001))
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="tests of network rules are run by root")
def test_port_lists_listeners_of_ipv6_and_no_connections():
    box = cay("create", "-q", "--network", "open").stdout.strip()
    try:
        with subprocess.Popen([CAY, "exec", box, "--", "python3", "-c", SIX],
                              stdout=subprocess.PIPE) as process, ended(process):
            assert process.stdout.readline() == b"ready\n"
            assert ports(box) == [(8001, "0.0.0.0", None, None), (8001, "::1", None, None),
                                  (8002, "::", None, None)]
            cay("kill", box)
    finally:
        cay("kill", box, check=False)


def test_port_leaves_no_file_behind(network):
    if os.geteuid() != 0:
        pytest.skip("the runtime directory is that of root")
    box = cay("create", "-q", "-p", "0:8000", *network).stdout.strip()
    assert Path(f"/run/cay/{box}.ports").exists()
    cay("kill", box)
    assert not list(Path("/run/cay").glob(f"{box}*"))
