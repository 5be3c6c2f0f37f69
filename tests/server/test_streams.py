# SPDX-License-Identifier: Apache-2.0
"""How streams and the calls beside them fail, as Connect has it."""

import json
from pathlib import Path

import pytest
import raw
from e2b import RateLimitException
from raw import envelope, of, sized
from serving import wait_until
from test_wire import ask, frames

NOBODY = "Basic bm8tc3VjaC11c2VyOg=="  # no-such-user:
STREAMS = {"/process.Process/Start": {"process": {"cmd": "true"}},
           "/filesystem.Filesystem/WatchDir": {"path": "/tmp"}}


def stream(server, sandbox, path, message, **headers):
    """The envelopes of a reply, which is always one of success."""
    status, _, body = ask(server, sandbox, "POST", path, envelope(message), **headers)
    assert status == 200
    return frames(body)


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("user", [NOBODY, "Bearer x"])
def test_a_user_whom_nobody_knows_is_told_in_the_last_envelope(server, shared, path, user):
    ((flags, message),) = stream(server, shared, path, STREAMS[path], Authorization=user)
    assert flags == 2 and message["error"]["code"] == "unauthenticated"


def test_a_call_has_a_name_for_it(server, shared):
    for path, message in (("/filesystem.Filesystem/Stat", {"path": "/tmp"}),
                          ("/filesystem.Filesystem/CreateWatcher", {"path": "/tmp"})):
        status, _, body = ask(server, shared, "POST", path, json.dumps(message),
                              Authorization=NOBODY)
        assert (status, json.loads(body)["code"]) == (401, "unauthenticated")


def test_a_watch_that_is_no_message_fails_as_a_stream(server, shared):
    ((flags, message),) = stream(server, shared, "/filesystem.Filesystem/WatchDir", {"path": 1})
    assert flags == 2 and message["error"]["code"] == "invalid_argument"


@pytest.mark.parametrize("path", ["/process.Process/Connect", "/filesystem.Filesystem/WatchDir"])
def test_a_stream_ends_when_its_time_is_over(server, shared, path):
    handle = shared.commands.run("exec sleep 1000", background=True, timeout=0)
    events = stream(server, shared, path, {"process": {"pid": handle.pid}, "path": "/tmp"},
                    Connect_Timeout_Ms="100")
    assert events[-1][0] == 2 and events[-1][1]["error"]["code"] == "deadline_exceeded"
    assert handle.kill() is True


def test_the_input_of_a_terminal_cannot_be_closed(server, shared):
    with server.connect() as client:
        client.sendall(raw.start(shared, "sleep", "1000", pty={"size": {"cols": 80, "rows": 24}}))
        pid = next(raw.Stream(client).events())[1]["event"]["start"]["pid"]
        answer = raw.ask(server, sized("POST /process.Process/CloseStdin",
                                       json.dumps({"process": {"pid": pid}}).encode(),
                                       *of(shared, "Connection: close")))
        assert (answer.status, answer.json["code"]) == (500, "unknown")


def test_a_watcher_reports_lost_events_once(sandbox):
    sandbox.files.make_dir("/tmp/w")
    watcher = sandbox.files.watch_dir("/tmp/w")
    sandbox.commands.run("cd /tmp/w && seq 6000 | xargs touch && rm -r /tmp/w")

    def is_told():
        try:
            watcher.get_new_events()
        except RateLimitException:
            return True
        return False

    wait_until(is_told, "no error was reported")
    assert len(watcher.get_new_events()) > 1000


def test_a_stream_that_has_lost_changes_ends_and_says_so(server, sandbox):
    sandbox.files.make_dir("/tmp/w")
    with server.connect() as client:
        client.sendall(sized("POST /filesystem.Filesystem/WatchDir",
                             envelope({"path": "/tmp/w"}),
                             *of(sandbox, "Content-Type: application/connect+json")))
        events = raw.Stream(client).events()
        assert "start" in next(events)[1]
        sandbox.commands.run("cd /tmp/w; for i in 1 2; do seq -f %0200.0f 50000 | xargs touch; done")
        *told, (flags, message) = events
    assert flags == 2 and message["error"]["code"] == "resource_exhausted"
    created = [event["filesystem"]["name"] for _, event in told
               if event["filesystem"]["type"] == "EVENT_TYPE_CREATE"]
    # The writer may outrun the keeper: then the queue of the kernel is the one that overflows, which
    # takes at most four events of a file, one of them its creation.
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    assert len(told) > min(60_000, queue // 4)
    assert created == [f"{number:0200}" for number in range(1, len(created) + 1)]
