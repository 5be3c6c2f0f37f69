# SPDX-License-Identifier: Apache-2.0
"""Contexts of the server's sandboxes as copies of a saved interpreter: docs/design/warm.md."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import raw
from serving import PATIENCE, Server, state, wait_until
from test_interpreter import Lines, execution, of

LOOK = ("import os, sys\nprint(os.readlink('/proc/self/exe') == '/memfd:cay-code (deleted)',"
        "'this' in sys.modules)")


@pytest.fixture(name="box")
def fixture_box():
    """Creates sandboxes of a server; they are killed at the end."""
    from e2b import Sandbox

    made = []

    def box(server, **options):
        made.append(Sandbox.create(**server.options_of("default"), **options))
        return made[-1]

    yield box
    for sandbox in made:
        sandbox.kill(request_timeout=PATIENCE)


def run(server, sandbox, code, **options):
    """The printed text, or the error."""
    with server.connect() as client:
        client.sendall(execution(sandbox, code, **options))
        lines = list(Lines(client))
    texts = [line["text"] for line in lines if line["type"] == "stdout"]
    return "".join(texts).strip() or [line for line in lines if line["type"] == "error"]


def saved(server):
    """The names of the complete files."""
    return {path.name for path in (server.home / "warm").glob("*") if "." not in path.name}


def savers(server):
    """The processes that save an interpreter for this server: they have no parent of it."""
    home = f"CAY_HOME={server.home}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            pid = int(path.parent.name)
            if home in path.read_bytes().split(b"\0") and os.getsid(pid) != os.getsid(0):
                found.append(pid)
        except OSError:
            pass
    return [pid for pid in found if state(pid) not in ("", "Z")]


def holders(server, name):
    """The processes of the server that have the file open."""
    saved_file = (server.home / "warm" / name).stat()
    found = []
    for pid in (server.broker, *server.children()):
        try:
            found += [pid for path in Path(f"/proc/{pid}/fd").iterdir()
                      if os.path.samestat(path.stat(), saved_file)]
        except OSError:
            pass  # it has just ended, or closed one
    return found


@pytest.fixture(name="warm")
def fixture_warm(own_server, monkeypatch, box):
    """Starts a server whose first execution has saved an interpreter."""
    monkeypatch.setenv("CAY_WARM", "on")
    monkeypatch.setenv("CAY_PRELOAD", "this")

    def warm(*options):
        server = own_server(*options)
        first = box(server)
        assert run(server, first, LOOK) == "False False"
        wait_until(lambda: saved(server), lambda: [
            path.read_text() for path in (server.home / "warm").glob("*.json")])
        assert run(server, first, LOOK) == "False False"  # it keeps its interpreter
        return server

    return warm


@pytest.mark.parametrize("options", [(), ("--pool", "1")])
def test_the_next_sandbox_starts_with_a_copy(warm, box, options):
    server = warm(*options)
    if options:
        wait_until(lambda: server.has_spares(1), "the pool is not full")
    box_one, box_two = (box(server, envs={"OF_SANDBOX": str(number)}) for number in range(2))
    for number, one in enumerate((box_one, box_two)):
        assert run(server, one, LOOK) == "True True"
        assert run(server, one, "print(os.environ['OF_SANDBOX'], os.environ['E2B_SANDBOX_ID'],"
                                "os.environ['HOME'], os.getcwd(), os.getuid())") \
            == f"{number} {one.sandbox_id} /root /home/user 0"
    drawn = {run(server, one, "import random, uuid; print(random.random(), uuid.uuid1())")
             for one in (box_one, box_two)}
    assert len(drawn) == 2
    assert len(saved(server)) == 1


def test_a_new_context_is_a_copy_in_its_directory(warm, box):
    server = warm()
    sandbox = box(server)
    made = raw.ask(server, raw.sized("POST /contexts", json.dumps({"cwd": "/tmp"}).encode(),
                                     *of(sandbox), "Connection: close"))
    context = json.loads(made.body)
    assert (made.status, context["cwd"]) == (200, "/tmp")
    assert run(server, sandbox, LOOK, context_id=context["id"]) == "True True"
    assert run(server, sandbox, "print(os.getcwd())", context_id=context["id"]) == "/tmp"
    assert run(server, sandbox, LOOK) == "True True"


def test_a_copy_that_does_not_fit_is_not_used(warm, box):
    server = warm()
    other = box(server, envs={"PYTHONHASHSEED": "1"})
    assert run(server, other, LOOK) == "False False"
    assert len(saved(server)) == 1  # another sandbox can use it
    assert run(server, box(server), LOOK) == "True True"


def test_a_damaged_one_is_replaced(warm, box):
    server = warm()
    name, = saved(server)
    path = server.home / "warm" / name
    before = path.stat().st_ino
    with path.open("r+b") as file:
        file.write(b"????")
    assert run(server, box(server), LOOK) == "False False"
    wait_until(lambda: path.exists() and path.stat().st_ino != before, "it is not replaced")
    assert run(server, box(server), LOOK) == "True True"


def test_nothing_is_left_when_the_server_stops(warm, box):
    server = warm()
    name, = saved(server)
    assert run(server, box(server), LOOK) == "True True"
    wait_until(lambda: not holders(server, name), "the server keeps the file open")
    wait_until(lambda: not savers(server), "the process that saves does not end")
    assert {path.name for path in (server.home / "warm").iterdir()} == {name, f"{name}.json"}
    server.kill()
    assert savers(server) == []
    server.start()


def test_nothing_is_saved_if_that_is_switched_off(own_server, monkeypatch, box):
    monkeypatch.setenv("CAY_WARM", "off")
    server = own_server()
    assert run(server, box(server), "print(1)") == "1"
    assert savers(server) == [] and not (server.home / "warm").exists()


@pytest.mark.parametrize("name, value", [("CAY_WARM", "maybe"), ("CAY_PRELOAD", "a b")])
def test_the_server_refuses_invalid_variables(tmp_path, name, value):
    server = Server(tmp_path / "home")
    done = subprocess.run(["cay", "serve", "--listen", "127.0.0.1:0"], env={**server.env, name: value}, timeout=PATIENCE,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2 and name in done.stderr
