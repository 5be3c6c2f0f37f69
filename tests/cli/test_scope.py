# SPDX-License-Identifier: Apache-2.0
"""In a login session cay moves itself into a delegated scope, by the user's systemd.

The manager is this test's own: it checks the message of D-Bus and does what systemd does.
tools/vm shows the same with the real one."""

import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from conftest import PATIENCE, copy_command
from sandboxes import Done, wait_until

UID = 54323
ERROR = struct.pack("<BBBBIII", ord("l"), 3, 1, 1, 0, 1, 0)
SIGNAL = struct.pack("<BBBBIII", ord("l"), 4, 1, 1, 3, 1, 8) + b"\1\1o\0\0\0\0\0" + b"abc"
RETURN = struct.pack("<BBBBIII", ord("l"), 2, 1, 1, 0, 2, 0)


class Reader:
    """Values of D-Bus, by their signature."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def align(self, boundary):
        skipped = self.data[self.at:(self.at + boundary - 1) // boundary * boundary]
        assert not any(skipped)
        self.at += len(skipped)

    def take(self, count):
        assert self.at + count <= len(self.data)
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self):
        self.align(4)
        return struct.unpack("<I", self.take(4))[0]

    def text(self, size):
        text = self.take(size)
        assert self.take(1) == b"\0" and b"\0" not in text
        return text.decode()

    def value(self, signature):
        if signature == "g":
            return self.text(self.take(1)[0])
        if signature in "so":
            return self.text(self.number())
        if signature in "ub":
            return self.number()
        if signature == "v":
            return self.value(self.value("g"))
        assert signature[0] == "a"
        size, found = self.number(), []
        if signature[1] == "(":
            self.align(8)
        end = self.at + size
        while self.at < end:
            if signature[1] != "(":
                found.append(self.value(signature[1:]))
                continue
            self.align(8)
            found.append([self.value(part) for part in {"a(sv)": "sv"}[signature]])
        assert self.at == end
        return found


def parse_call(data):
    """The member and the arguments of a method call."""
    reader = Reader(data)
    assert reader.take(4) == b"l\1\0\1"
    size, serial, fields = reader.number(), reader.number(), {}
    end = reader.number() + reader.at
    while reader.at < end:
        reader.align(8)
        code = reader.take(1)[0]
        fields[code] = reader.value("v")
    assert reader.at == end and serial == 1
    reader.align(8)
    assert len(data) - reader.at == size
    body = Reader(data[reader.at:])
    assert fields.pop(8) == "ssa(sv)a(sa(sv))"
    call = [body.value("s"), body.value("s"), dict(body.value("a(sv)")), body.number()]
    body.align(8)
    assert body.at == size
    return fields, call


def find_cgroup2():
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return Path(line.split()[1])
    return None


class Manager:
    """The socket of systemd --user and its cgroups."""

    def __init__(self):
        self.top = find_cgroup2() / f"user.slice/user-{UID}.slice"
        self.session = self.top / "session-c1.scope"
        self.apps = self.top / f"user@{UID}.service/app.slice"
        self.session.mkdir(parents=True)
        self.apps.mkdir(parents=True)
        self.give(self.apps.parent)
        self.give(self.apps)
        self.calls, self.errors, self.replies, self.is_slow = [], [], [SIGNAL, RETURN], False
        self.path = Path(f"/run/user/{UID}/systemd/private")
        self.path.parent.mkdir(parents=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        os.chmod(self.path, 0o666)
        self.socket.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def give(self, cgroup):
        for path in (cgroup, cgroup / "cgroup.procs", cgroup / "cgroup.subtree_control"):
            os.chown(path, UID, UID)

    def serve(self):
        while True:
            client = self.socket.accept()[0]
            with client:
                client.settimeout(PATIENCE)
                if not self.answer(client):
                    return

    def answer(self, client):
        stream = client.makefile("rb")
        line = stream.readline()
        if line == b"end\n":
            return False
        try:
            assert line == b"\0AUTH EXTERNAL " + str(UID).encode().hex().encode() + b"\r\n"
            client.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
            assert stream.readline() == b"BEGIN\r\n"
            start = stream.read(16)
            body, fields = struct.unpack("<4xI4xI", start)
            rest = stream.read((fields + 7) // 8 * 8 + body)
            call = parse_call(start + rest)
            self.calls.append(call)
            if RETURN in self.replies:
                self.move(call[1][0], call[1][2]["PIDs"])
            client.sendall(b"".join(self.replies))
            while self.is_slow:
                client.sendall(SIGNAL)
                time.sleep(0.1)
        except BrokenPipeError:  # the client does not wait any longer
            assert self.is_slow
        except Exception as error:  # the test reports it
            self.errors.append(error)
        return True

    def move(self, name, pids):
        scope = self.apps / name
        scope.mkdir()
        self.give(scope)
        for pid in pids:
            (scope / "cgroup.procs").write_text(str(pid))

    def close(self):
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.path))
            last.sendall(b"end\n")
        self.thread.join()
        self.socket.close()
        shutil.rmtree(f"/run/user/{UID}")
        wait_until(self.remove, "a cgroup of the user is in use")

    def remove(self):
        for folder, _, _ in os.walk(self.top, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                return False
        try:
            os.rmdir(self.top.parent)
        except OSError:  # it is the machine's own
            pass
        return True


@pytest.fixture(name="manager")
def fixture_manager():
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not find_cgroup2():
        pytest.skip("this machine has no cgroup2")
    manager = Manager()
    yield manager
    manager.close()
    assert manager.errors == []


@pytest.fixture(name="cay")
def fixture_cay(manager):
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    program = copy_command(folder)
    (folder / "run").mkdir(mode=0o700)
    os.chown(folder / "run", UID, UID)

    def run(*words, cgroup=manager.session):
        done = subprocess.run(
            ["sh", "-ec", 'echo 0 >"$0/cgroup.procs"; exec "$@"', cgroup, "setpriv",
             f"--reuid={UID}", f"--regid={UID}", "--clear-groups", program, *words],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(folder / "run"),
                 "XDG_RUNTIME_DIR": str(folder / "run")})
        return Done(done.returncode, done.stdout, done.stderr)

    yield run
    run("kill", "--all")
    shutil.rmtree(folder)


def test_in_a_session_cay_asks_for_a_scope_of_its_own(cay, manager):
    done = cay("create")
    assert (done.status, done.err) == (0, b"")
    ((fields, (name, mode, properties, others)),) = manager.calls
    assert fields == {1: "/org/freedesktop/systemd1", 2: "org.freedesktop.systemd1.Manager",
                      3: "StartTransientUnit", 6: "org.freedesktop.systemd1"}
    assert name.startswith("cay-") and name.endswith(".scope")
    assert (mode, others) == ("fail", 0)
    (pid,) = properties.pop("PIDs")
    assert name.startswith(f"cay-{pid}-")
    assert properties == {"Description": "cay", "Delegate": 1, "CollectMode": "inactive-or-failed"}
    box = done.text.strip()
    assert "cgroup" in cay("inspect", "-o", "json", box).json["layers"]
    assert cay("pause", box).status == 0 and cay("resume", box).status == 0
    assert cay("exec", box, "--", "true").status == 0


def test_only_commands_that_create_sandboxes_move(cay, manager):
    for words in (["ls"], ["version"], ["setup", "--dry-run", "--root", "/"]):
        cay(*words)
    assert manager.calls == []
    assert cay("run", "--require", "cgroup", "--", "true").status == 0
    assert cay("session", "start", "work").status == 0
    assert cay("session", "rm", "work").status == 0
    assert len(manager.calls) >= 2


def test_cay_does_not_leave_the_cgroup_of_a_service(cay, manager):
    service = manager.top / "any.service"
    service.mkdir()
    assert cay("run", "--", "true", cgroup=service).status == 0
    assert manager.calls == []


@pytest.mark.parametrize("replies", [[ERROR], [SIGNAL, ERROR], [b"?" * 16], []])
def test_without_a_scope_a_sandbox_runs_as_before(cay, manager, replies):
    manager.replies = replies
    assert cay("run", "--", "true").status == 0
    assert len(manager.calls) == 1
    assert cay("run", "--require", "cgroup", "--", "true").status == 125


def test_a_manager_that_never_replies_is_not_waited_for_without_end(cay, manager):
    manager.replies, manager.is_slow = [], True
    assert cay("run", "--", "true").status == 0
    assert len(manager.calls) == 1
