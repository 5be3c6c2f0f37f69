# SPDX-License-Identifier: Apache-2.0
"""The front under shortage, stuck, and when replies are lost: R2, R3, R7, H1, M1, M6, L12."""

import json
import os
import resource
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack

import pytest
from raw import Answers, ask, of, request, sized, web
from serving import PATIENCE, Server, state, unavailable, wait_until


@pytest.fixture(name="limited_server")
def fixture_limited_server(tmp_path_factory):
    """Starts servers that may have so many descriptors open."""
    started = []

    def start(files):
        if os.geteuid() != 0:
            unavailable("the tests of the server are run by root")
        server = Server(tmp_path_factory.mktemp("home"), "--reserve", "0")
        server.before = ("prlimit", f"--nofile={files}")
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.before = ()
        server.clean()


def is_healthy(server):
    return web("GET", f"{server.url}/health").status_code in (200, 204)


def open_idle(server, count):
    """That many clients that say nothing."""
    clients = []
    for _ in range(count):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", server.port))
        clients.append(client)
    return clients


@pytest.mark.parametrize("files", [64, 128, 900, 1024])
def test_front_accepts_again_after_running_out_of_descriptors(limited_server, files):
    """R2: more idle clients than descriptors; then none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = limited_server(files)
    try:
        for _ in range(2):
            clients = open_idle(server, files + 80)
            wait_until(lambda: "connections, the maximum" in server.log.read_text(),
                       "a front that is full is not logged")
            for client in clients:
                client.close()
            assert is_healthy(server)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert server.front() == server.first_front


def test_front_drops_idle_clients_when_others_wait(limited_server):
    """R2: idle clients cannot keep others out."""
    server = limited_server(64)
    clients = open_idle(server, 40)
    assert is_healthy(server)
    for client in clients:
        client.close()


def limit_files(pid, count=""):
    """As the front's own user, which needs no right for it; "": as many as at first."""
    limit = count or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={limit}:"], user=65534, group=65534,
                   extra_groups=[], check=True)


def test_front_survives_emfile(own_server):
    """R2: accept4() itself fails, with and without other connections."""
    server = own_server()
    for others in (0, 3):
        clients = [server.connect() for _ in range(others)]
        wait_until(lambda count=others: server.connections() >= count, "they are not accepted")
        limit_files(server.first_front, 10)
        waiting = server.connect()
        waiting.sendall(request("GET /health", "Connection: close"))
        wait_until(lambda: "cannot accept connections" in server.log.read_text(),
                   "EMFILE is not logged")
        for client in clients:
            client.close()
        limit_files(server.first_front)
        assert Answers(waiting).next().status in (200, 204)
        waiting.close()
    wait_until(lambda: "accepts connections again" in server.log.read_text(),
               "the end of EMFILE is not logged")
    assert server.front() == server.first_front


def test_front_that_accepts_nothing_is_replaced(own_server):
    """R2: as if it had leaked its descriptors."""
    server = own_server()
    limit_files(server.first_front, 10)
    with server.connect() as waiting:
        waiting.settimeout(2 * PATIENCE)
        waiting.sendall(request("GET /health", "Connection: close"))
        assert Answers(waiting).next().status in (200, 204)
    assert server.front() != server.first_front
    assert "does not accept connections" in server.log.read_text()
    server.first_front = server.front()


def test_stuck_front_is_replaced(own_server):
    """R2: SIGSTOP."""
    server = own_server()
    os.kill(server.first_front, signal.SIGSTOP)
    wait_until(lambda: state(server.first_front) in ("", "Z"), "the stuck front is still there")
    assert is_healthy(server)
    assert "does not respond" in server.log.read_text()
    server.first_front = server.front()


def test_slow_front_is_not_replaced(own_server):
    """R2: a front that stands still for some seconds."""
    server = own_server()
    os.kill(server.first_front, signal.SIGSTOP)
    time.sleep(6)
    os.kill(server.first_front, signal.SIGCONT)
    assert is_healthy(server)
    assert server.front() == server.first_front


def run_in_small_steps(pid, seconds):
    """As at a tiny share of the CPU: some tenths of a millisecond, five times a second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.2)
    os.kill(pid, signal.SIGCONT)


@pytest.mark.long
def test_front_that_is_slow_with_its_requests_is_not_replaced(own_server):
    """H1: bodies of JSON that take long to read, at a tiny share of the CPU."""
    server = own_server()
    text = b'{"a":[' + b"{}," * 100_000 + b"{}]}"
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(20)]
        for client in clients:
            client.sendall(sized("POST /sandboxes", text)[:-1])
        time.sleep(1)  # for the front to have read most of them
        os.kill(server.first_front, signal.SIGSTOP)
        for client in clients:
            client.sendall(b"}")
        run_in_small_steps(server.first_front, 32)
        for client in clients:
            assert Answers(client).next().status in (400, 401)
    assert server.front() == server.first_front
    assert "does not respond" not in server.log.read_text()


def test_bodies_of_json_are_limited(own_server):
    """H1: before the credentials are checked."""
    server = own_server()
    for path in ("/sandboxes", "/v2/sandboxes"):
        assert ask(server, sized(f"POST {path}", b" " * ((1 << 20) + 1))).status == 413
    many = json.dumps({"a": [{}] * 300_000}, separators=(",", ":")).encode()
    assert ask(server, sized("POST /sandboxes", many, "Connection: close")).status == 400
    large = {"templateID": "base", "metadata": {"text": "x" * 100}, "timeout": 60,
             "envVars": {f"NAME_{n}": "x" * 100 for n in range(100)}}
    status, made = server.api("POST", "/sandboxes", large)
    assert status == 201, made
    envd = (f"E2b-Sandbox-Id: {made['sandboxID']}", "E2b-Sandbox-Port: 49983")
    for call in ("Connect", "List", "CloseStdin", "SendSignal", "Update"):
        body = b" " * ((64 << 10) + 1)
        assert ask(server, sized(f"POST /process.Process/{call}", body, *envd)).status == 413


def kill_keeper(server, number=signal.SIGKILL):
    keeper = server.keepers()[0]
    os.kill(keeper, number)
    return keeper


def test_keeper_deaths_are_logged(own_server):
    """R7: one line each, with the sandbox and the signal."""
    from e2b import Sandbox

    server = own_server()
    sandbox = Sandbox.create()
    for number in (signal.SIGKILL, signal.SIGSEGV):
        keeper = kill_keeper(server, number)
        line = (f"the keeper of sandbox {sandbox.sandbox_id} (process {keeper}) exited with "
                f"signal {int(number)}")
        wait_until(lambda text=line: text in server.log.read_text(), "a death is not logged")
        assert sandbox.files.exists("/etc/passwd")  # by the next one
    sandbox.kill()
    assert server.log.read_text().count("the keeper of") == 2


def test_lost_reads_are_made_again(own_server):
    """R3: the keeper dies before it replies; the client does not notice."""
    from e2b import Sandbox

    server = own_server()
    sandbox = Sandbox.create()
    sandbox.files.write("/tmp/text", "content")
    sandbox.files.list("/tmp")
    stat = b'{"path": "/tmp/text"}'
    for data in (request("GET /files?path=/tmp/text", *of(sandbox)),
                 request("GET /envs", *of(sandbox)),
                 request("POST /filesystem.Filesystem/Stat", *of(sandbox),
                         "Content-Type: application/json", f"Content-Length: {len(stat)}",
                         body=stat)):
        keeper = server.keepers()[0]
        os.kill(keeper, signal.SIGSTOP)
        with server.connect() as client:
            client.sendall(data)
            time.sleep(0.5)  # for it to be with the keeper; if not, nothing is lost
            os.kill(keeper, signal.SIGKILL)
            assert Answers(client).next().status == 200
    metrics = web("GET", f"{server.url}/metrics", headers={"X-API-KEY": server.key}).text
    assert 'cay_requests_lost_total{reason="closed"} 3' in metrics
    assert "cay_requests_retried_total 3" in metrics
    assert server.log.read_text().count("a request was lost: ") == 3
    sandbox.kill()


def test_lists_are_not_lost(own_server):
    """R3: lists by four clients, each of several packets and an end."""
    server = own_server()
    made = [server.api("POST", "/sandboxes", {"templateID": "base"})[1] for _ in range(3)]
    deadline, wrong = time.monotonic() + 6, []

    def client():
        with ExitStack() as stack:
            answers = Answers(stack.enter_context(server.connect()))
            while time.monotonic() < deadline:
                answers.client.sendall(request("GET /v2/sandboxes", f"X-API-KEY: {server.key}"))
                answer = answers.next()
                if answer.status != 200 or len(answer.json) != len(made):
                    wrong.append(answer)

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert "a request was lost" not in server.log.read_text()


def test_lost_request_does_not_write_control_characters_into_the_log(own_server):
    """M6: the URL is percent-decoded."""
    from e2b import Sandbox

    server = own_server()
    sandbox = Sandbox.create()
    sandbox.files.list("/")
    keeper = server.keepers()[0]
    os.kill(keeper, signal.SIGSTOP)
    with server.connect() as client:
        client.sendall(request("GET /x%1b%5b2J%0acay:%20forged%c2%9b",
                               f"E2b-Sandbox-Id: {sandbox.sandbox_id}", "E2b-Sandbox-Port: 8000"))
        time.sleep(0.5)  # for it to be with the keeper
        os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: "a request was lost" in server.log.read_text("latin-1"),
                   "the loss is not logged")
    text = server.log.read_bytes()
    assert b"GET /x?[2J?cay: forged??" in text
    assert not any(byte != 0x0a and not 0x20 <= byte <= 0x7e for byte in text)
    sandbox.kill()


def test_front_serves_while_its_access_log_is_not_read(own_server, tmp_path):
    """L12: a pipe that is full; the lines that fit are whole."""
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        server = own_server("--access-log", str(pipe))
        for _ in range(400):
            assert ask(server, request("GET /" + "x" * 1000)).status == 404
        text = b""
        while text.count(b"\n") < 100:
            try:
                text += os.read(reader, 1 << 16)
            except BlockingIOError:
                assert is_healthy(server)
        for line in text.splitlines()[:100]:
            assert json.loads(line)["status"] == 404
    finally:
        os.close(reader)
