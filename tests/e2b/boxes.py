# SPDX-License-Identifier: Apache-2.0
"""The sandboxes of peer.py, and the commands in them."""

import base64
import contextlib
import fcntl
import os
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time
import uuid
from datetime import datetime, timezone
from queue import Full, Queue

from boxfiles import Files

KEPT = "/tmp/.cay-output"
RUN = 'exec /usr/bin/nice -n 0 "${@}"'
RUN_APART = """box=$1 cwd=$2; shift 2
mount -t tmpfs none /home && mkdir /home/user && mount --bind "$box/home/user" /home/user &&
mount --bind "$box/tmp" /tmp && cd "$cwd" && """ + RUN
SIGNAL_WORDS = {signal.SIGKILL: "killed", signal.SIGTERM: "terminated", signal.SIGINT: "interrupt",
                signal.SIGSEGV: "segmentation fault", signal.SIGABRT: "aborted",
                signal.SIGHUP: "hangup", signal.SIGUSR1: "user defined signal 1",
                signal.SIGPIPE: "broken pipe"}


class Refusal(Exception):
    """An error of the Connect protocol."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.message = code, message


def stamp(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")


# --- Processes ----------------------------------------------------------------------

class Process:
    """A command, its subscribers, and its end event."""

    def __init__(self, box, request, user):
        config = request.get("process") or {}
        self.box, self.tag, self.config = box, request.get("tag"), config
        self.subscribers, self.end = [], None
        self.lock = threading.Lock()
        cwd = box.files.real(config.get("cwd") or box.files.HOME)
        if not os.path.isdir(cwd):
            raise Refusal("invalid_argument", f"cwd '{config.get('cwd')}' does not exist")
        argv = ["/bin/sh", "-c", RUN, "--", config.get("cmd", ""), *config.get("args", [])]
        if box.files.is_apart:
            argv = ["unshare", "--mount", "/bin/sh", "-c", RUN_APART, "--", box.folder,
                    box.files.tidy(config.get("cwd") or box.files.HOME), *argv[4:]]
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": box.files.home_inside(),
               "USER": user, "LOGNAME": user, **box.envs, **config.get("envs", {}),
               "E2B_SANDBOX": "true", "PEER_BOX": box.mark}
        self.cancel_read, self.cancel_write = os.pipe()
        self.pty = None
        try:
            self.spawn(argv, cwd, env, request)
        except (OSError, ValueError) as error:
            os.close(self.cancel_read)
            os.close(self.cancel_write)
            raise Refusal("unknown", f"error starting process: {error}") from error
        self.pid = self.child.pid

    def begin(self):
        threading.Thread(target=self.pump, daemon=True).start()

    def end_at(self, deadline):
        """Kills the command at the deadline, also without subscribers; a moment later, so that
        a subscriber gets the reason."""
        timer = threading.Timer(deadline + 0.3 - time.monotonic(), self.expire)
        timer.daemon = True
        timer.start()

    def expire(self):
        with contextlib.suppress(Refusal):
            self.send(signal.SIGKILL)

    def spawn(self, argv, cwd, env, request):
        if request.get("pty"):
            self.pty, slave = os.openpty()
            self.resize(request["pty"])
            try:
                self.child = subprocess.Popen(["setsid", "-c", *argv], cwd=cwd, env=env,
                                              stdin=slave, stdout=slave, stderr=slave)
            finally:
                os.close(slave)
            self.streams = {self.pty: "pty"}
            return
        self.child = subprocess.Popen(
            argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            stdin=subprocess.PIPE if request.get("stdin", True) else subprocess.DEVNULL,
            bufsize=0)
        self.streams = {self.child.stdout.fileno(): "stdout", self.child.stderr.fileno(): "stderr"}

    def resize(self, pty):
        if self.pty is None:
            raise Refusal("internal", "tty not assigned to process")
        size = pty.get("size", {})
        fcntl.ioctl(self.pty, termios.TIOCSWINSZ,
                    struct.pack("HHHH", size.get("rows", 24), size.get("cols", 80), 0, 0))

    def pump(self):
        """Waits until no process has the output open, or a signal ended the command."""
        is_cancelled = False
        while self.streams and not is_cancelled:
            ready, _, _ = select.select([*self.streams, self.cancel_read], [], [])
            is_cancelled = self.cancel_read in ready
            self.read_some([fd for fd in ready if fd != self.cancel_read])
        self.child.wait()
        while self.streams and (ready := select.select(list(self.streams), [], [], 0)[0]):
            if not self.read_some(ready):
                break
        with self.lock:
            self.end = self.ending()
            for fd in (self.cancel_read, self.cancel_write, *([self.pty] if self.pty else [])):
                os.close(fd)
            for file in (self.child.stdin, self.child.stdout, self.child.stderr):
                if file:
                    file.close()
        self.tell(self.end)

    def read_some(self, fds):
        some = False
        for fd in fds:
            try:
                data = os.read(fd, 32768)
            except OSError:  # no process has the terminal open
                data = b""
            if data:
                some = True
                self.tell({"data": {self.streams[fd]: base64.b64encode(data).decode()}})
            else:
                del self.streams[fd]
        return some

    def ending(self):
        code = self.child.returncode
        if code == 0:
            return {"end": {"exited": True, "status": "exit status 0"}}
        if code > 0:
            return {"end": {"exitCode": code, "exited": True, "status": f"exit status {code}",
                            "error": f"exit status {code}"}}
        word = SIGNAL_WORDS.get(-code, f"signal {-code}")
        return {"end": {"exitCode": -1, "status": f"signal: {word}", "error": f"signal: {word}"}}

    def tell(self, event):
        with self.lock:
            listeners = list(self.subscribers)
        for queue in listeners:
            while queue in self.subscribers:
                try:
                    queue.put(event, timeout=0.2)  # a slow reader pauses the command
                    break
                except Full:
                    continue

    def subscribe(self):
        queue = Queue(maxsize=64)
        with self.lock:
            queue.put({"start": {"pid": self.pid}})
            if self.end:
                queue.put(self.end)
            else:
                self.subscribers.append(queue)
        return queue

    def unsubscribe(self, queue):
        with self.lock:
            if queue in self.subscribers:
                self.subscribers.remove(queue)

    def send(self, number):
        with self.lock:
            if self.end:
                raise Refusal("not_found", f"process with pid {self.pid} not found")
            if number in (signal.SIGTERM, signal.SIGKILL):
                os.write(self.cancel_write, b"x")
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def write(self, given):
        kind = "pty" if self.pty is not None else "stdin"
        if kind not in given:
            raise Refusal("internal", f"error writing to {'/'.join(given)}")
        data = base64.b64decode(given[kind])
        target = self.pty if kind == "pty" else self.child.stdin and self.child.stdin.fileno()
        try:
            while data:
                data = data[os.write(target, data):]
        except (OSError, TypeError, ValueError) as error:
            raise Refusal("internal", f"error writing to {kind}: {error}") from error

    def close_stdin(self):
        if self.pty is not None or not self.child.stdin:
            raise Refusal("unknown", "stdin is not open")
        self.child.stdin.close()


# --- Sandboxes ----------------------------------------------------------------------

class Box:
    def __init__(self, peer, body, is_old):
        self.id = "i" + uuid.uuid4().hex[:19]
        self.mark = uuid.uuid4().hex
        self.token = uuid.uuid4().hex
        self.body = body
        self.envs = body.get("envVars") or {}
        self.folder = tempfile.mkdtemp(prefix="e2b-peer-")
        self.files = Files(self.folder, peer.can_mount)
        self.processes = {}
        self.ending = threading.Lock()
        self.state, self.started = "running", time.time()
        self.end = self.started + body.get("timeout", 15 if is_old else 300)
        self.peer = peer

    def reply(self):
        return {"templateID": self.body["templateID"], "sandboxID": self.id, "clientID": "peer",
                "envdVersion": self.peer.settings["version"], "envdAccessToken": self.token,
                "domain": None, **self.peer.settings["reply"]}

    def detail(self):
        return {**self.reply(), "startedAt": stamp(self.started), "endAt": stamp(self.end),
                "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024, "state": self.state,
                "metadata": self.body.get("metadata", {}),
                "lifecycle": {"onTimeout": "pause" if self.body.get("autoPause") else "kill",
                              "autoResume": False}}

    def pids(self):
        found, mark = [], ("PEER_BOX=" + self.mark).encode()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        if mark in file.read():
                            found.append(int(name))
                except OSError:
                    continue
        return found

    def signal(self, number):
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def pause(self):
        self.state = "paused"
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)
        self.state = "running"

    def kill(self):
        self.state = "killed"
        for _ in range(200):  # a process may fork meanwhile
            if not self.pids():
                break
            self.signal(signal.SIGKILL)
            time.sleep(0.01)
        for pid in self.processes:
            shutil.rmtree(f"{KEPT}/{pid}", ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def find(self, selector):
        if "tag" in selector:
            for process in self.processes.values():
                if process.tag == selector["tag"] and not process.end:
                    return process
        process = self.processes.get(selector.get("pid"))
        if not process:
            raise Refusal("not_found", f"process {selector} not found")
        return process
