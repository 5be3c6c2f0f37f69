# SPDX-License-Identifier: Apache-2.0
"""/files by hand: what no SDK asks for, and what is asked wrongly."""

import json
import os
import select
import signal
import time

import pytest
import raw
from serving import traces, wait_until
from test_wire import ask

# --- Compose ----------------------------------------------------------------------------


def compose(server, sandbox, sources, destination):
    status, _, body = ask(server, sandbox, "POST", "/files/compose", json.dumps(
        {"source_paths": sources, "destination": destination}))
    return status, json.loads(body)


@pytest.mark.parametrize("sources", [["x", "comp"], ["comp", "comp"], ["x", "./comp"],
                                     ["x", "linked"], ["x", "hard"]])
def test_a_file_is_not_put_together_of_itself(server, shared, sources):
    shared.files.write("x", "x")
    shared.files.write("comp", "comp")
    shared.commands.run("ln -sf comp linked; ln -f comp hard")
    status, answer = compose(server, shared, sources, "comp")
    assert status == 400 and "destination" in answer["message"]
    assert shared.files.read("comp") == "comp"


def test_what_cannot_be_put_together_leaves_the_destination(server, create):
    sandbox = create()
    sandbox.files.write("here", "here")
    sandbox.files.write("dst", "dst")
    sandbox.files.make_dir("dir")
    for sources, to, expected in ((["here", "nope"], "dst", 404), (["here", "dir"], "dst", 400),
                                  (["here"], "dir", 400),
                                  (["here", "/etc/shadow"], "dst", 403)):
        assert compose(server, sandbox, sources, to)[0] == expected, sources
    sandbox.commands.run("truncate -s 400M large")
    assert compose(server, sandbox, ["large", "large"], "dst")[0] == 507
    assert sandbox.files.read("dst") == "dst"
    names = sandbox.commands.run("ls -A").stdout.split()
    assert not [name for name in names if "compose" in name]


def test_what_is_put_together_replaces_what_was_there(server, shared):
    shared.files.write("a", "one ")
    shared.files.write("b", "two")
    for sources, expected in ((["a", "b"], "one two"), (["b", "a", "b"], "twoone two")):
        status, entry = compose(server, shared, sources, "made/whole")
        assert status == 200 and entry["path"] == "/home/user/made/whole"
        assert shared.files.read("made/whole") == expected


def test_a_sandbox_answers_while_files_are_put_together(server, create):
    sandbox = create()
    sandbox.commands.run("truncate -s 300M large")
    body = json.dumps({"source_paths": ["large"], "destination": "copy"}).encode()
    with server.connect() as client:
        client.sendall(raw.sized("POST /files/compose", body, *raw.of(sandbox)))
        wait_until(lambda: "compose" in str(sandbox.files.list(".")), "nothing is written")
        assert not select.select([client], [], [], 0)[0]
        assert raw.Answers(client).next().status == 200
    assert sandbox.files.get_info("copy").size == 300 << 20


def test_a_sandbox_whose_keeper_is_busy_is_killed(own_server):
    server = own_server()
    status, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 600})
    assert status == 201
    name = made["sandboxID"]
    (keeper,) = server.keepers()
    os.kill(keeper, signal.SIGSTOP)
    begun = time.monotonic()
    assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204
    assert time.monotonic() - begun >= 1  # it had its chance
    assert traces(name) == [] and server.keepers() == []
    status, answer = server.api("GET", f"/sandboxes/{name}")
    assert status == 404 and "was killed" in answer["message"]
