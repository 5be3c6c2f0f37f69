#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of E2B's protocol, for tests, that misbehaves on request.

    peer.py                 prints its URL on stdout; ends with its stdin
    peer.py --run COMMAND   runs the command with E2B_API_URL and so on set

Commands run as children of this process, without isolation.  As root they have directories of
their own mounted on /home and /tmp; otherwise only file requests see /home/user.  A pause stops
the processes.  Lines on stdin are JSON requests, with a line of reply each (see Control).
"""

import base64
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty

from boxes import KEPT, Box, Process, Refusal
from boxfiles import FileError

KEY = "e2b_5ec2e7"
STATUS = {"canceled": 499, "unknown": 500, "invalid_argument": 400, "deadline_exceeded": 504,
          "not_found": 404, "already_exists": 409, "permission_denied": 403,
          "resource_exhausted": 429, "failed_precondition": 400, "aborted": 409,
          "unimplemented": 501, "internal": 500, "unavailable": 503, "unauthenticated": 401}


class Cut(Exception):
    """Closes the connection."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    context = None

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.open, self.counting = 0, threading.Condition()

    def process_request(self, request, client_address):
        with self.counting:
            self.open += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.counting:
                self.open -= 1
                self.counting.notify_all()

    def finish_request(self, request, client_address):
        if self.context:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (OSError, ValueError)):
            super().handle_error(request, client_address)


class Peer:
    def __init__(self):
        self.boxes, self.rules, self.log = {}, [], []
        self.can_mount = subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/home"],
            check=False, capture_output=True).returncode == 0
        self.lock = threading.Lock()
        self.settings = {"version": "0.6.13", "old": False, "refreshes": True, "reply": {},
                         "page": 100, "filters": True}
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.peer = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            time.sleep(0.1)
            for box in list(self.boxes.values()):
                if box.state == "running" and time.time() > box.end:
                    if box.body.get("autoPause"):
                        box.pause()
                    else:
                        self.remove(box)

    def remove(self, box):
        with box.ending:  # a second kill waits for the first
            box.kill()
        with self.lock:
            self.boxes.pop(box.id, None)

    def find(self, box_id):
        box = self.boxes.get(box_id)
        return box if box and box.state != "killed" else None

    def stop(self):
        for box in list(self.boxes.values()):
            self.remove(box)
        try:
            os.rmdir(KEPT)
        except OSError:
            pass

    def rule_for(self, what):
        """The first rule that matches and is not used up, or None."""
        with self.lock:
            for rule in self.rules:
                if re.match(rule["on"], what) and rule.get("skip", 0) <= 0:
                    rule["times"] = rule.get("times", 1) - 1
                    if rule["times"] <= 0:
                        self.rules.remove(rule)
                    return rule
                if re.match(rule["on"], what):
                    rule["skip"] -= 1
        return None


# --- HTTP ---------------------------------------------------------------------------

class Limited:
    """The output of a handler; closes the connection after `limit` bytes."""

    def __init__(self, file, limit):
        self.file, self.left = file, limit

    def write(self, data):
        data = bytes(data)
        self.file.write(data[:self.left])
        self.left -= len(data)
        if self.left <= 0:
            self.file.flush()
            raise Cut
        return len(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "peer", ""
    wbufsize = -1

    def log_message(self, *_):
        pass

    def version_string(self):
        return "peer"

    def date_time_string(self, timestamp=None):
        return formatdate(timestamp or time.time(), usegmt=True)

    # Requests

    def body(self):
        if hasattr(self, "cached"):
            return self.cached
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            data = bytearray()
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            length = int(self.headers.get("Content-Length") or 0)
            data = self.rfile.read(length)
            if len(data) < length:  # the client has died
                raise Cut
        self.cached = bytes(data)
        return self.cached

    def json(self):
        data = self.body()
        if self.headers.get("Content-Type", "").startswith("application/connect+"):
            flags, length = struct.unpack(">BI", data[:5])
            if flags or length != len(data) - 5:
                raise Refusal("invalid_argument", "bad envelope")
            data = data[5:]
        return json.loads(data or b"{}")

    # Replies

    def answer(self, status, data=b"", content_type="application/json", **headers):
        if not isinstance(data, bytes):
            try:
                data = json.dumps(data, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                raise Refusal("internal", "marshal message: string field contains invalid "
                                          "UTF-8") from error
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if status != 204:
            self.wfile.write(data)

    def fail(self, status, message):
        self.answer(status, {"code": status, "message": message})

    def refuse(self, refusal):
        self.answer(STATUS[refusal.code], {"code": refusal.code, "message": refusal.message})

    # Dispatch

    def handle_any(self):
        peer = self.server.peer
        self.path_only, _, query = self.path.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True,
                                                 encoding="utf-8", errors="surrogateescape"))
        self.__dict__.pop("cached", None)
        rule = peer.rule_for(f"{self.command} {self.path_only}")
        peer.log.append({"method": self.command, "path": self.path, "headers": dict(self.headers),
                         "port": self.client_address[1], "faulted": bool(rule)})
        plain = self.wfile
        try:
            if not (rule and self.misbehave(rule)):
                self.route()
        except (Cut, ConnectionError):
            self.close_connection = True
            try:
                plain.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        finally:
            self.wfile = plain

    do_GET = do_POST = do_DELETE = handle_any

    def misbehave(self, rule):
        """True if the reply is complete."""
        if "delay" in rule:
            time.sleep(rule["delay"])
        if rule.get("read", True):
            self.body()
        if "status" in rule:
            self.answer(rule["status"], rule.get("body", "").encode(), **rule.get("headers", {}))
            return True
        if "raw" in rule:
            self.wfile.write(base64.b64decode(rule["raw"]))
            raise Cut
        if rule.get("close"):
            raise Cut
        if "envelopes" in rule:
            data = b"".join(struct.pack(">BI", flags, len(text.encode())) + text.encode()
                            for flags, text in rule["envelopes"])
            self.answer(200, data, "application/connect+json")
            return True
        if "large" in rule:
            self.answer(200, b" " * rule["large"])
            return True
        if "cut" in rule:
            self.wfile = Limited(self.wfile, rule["cut"])
        if rule.get("lose"):  # the request has its effect, but no reply
            self.wfile = Limited(open(os.devnull, "wb"), 1 << 60)
            self.route()
            raise Cut
        return False

    def route(self):
        self.body()
        box_id = self.headers.get("E2b-Sandbox-Id")
        try:
            if box_id:
                self.inside(box_id)
            else:
                self.service()
        except Refusal as refusal:
            self.refuse(refusal)
        except FileError as error:
            self.fail(error.status, error.message)

    # The service

    def service(self):
        if self.path_only == "/health":
            return self.answer(204)
        if self.headers.get("X-API-KEY") != KEY:
            return self.fail(401, f"invalid API key {self.headers.get('X-API-KEY')}")
        peer, path = self.server.peer, self.path_only
        is_new = path.startswith("/v2/")
        if is_new:
            path = path[3:]
            if peer.settings["old"]:
                return self.fail(404, "no matching operation was found")
        if path == "/sandboxes":
            return self.create(is_new) if self.command == "POST" else self.list(is_new)
        match = re.fullmatch(r"/sandboxes/([\w-]+)(?:/(\w+))?", path)
        box = match and peer.find(match[1])
        if not box:
            return self.fail(404, "sandbox not found" if match else "no such operation")
        action = getattr(self, f"{self.command.lower()}_{match[2] or 'box'}", None)
        if not action:
            return self.fail(405, "method not allowed")
        return action(box)

    def create(self, is_new):
        peer, body = self.server.peer, self.json()
        if body.get("templateID") == "no-such-template":
            return self.fail(404, "template 'no-such-template' not found")
        box = Box(peer, body, not is_new)
        with peer.lock:
            peer.boxes[box.id] = box
        return self.answer(201, box.reply())

    def list(self, is_new):
        """Pages of settings["page"]; the filter in the query is escaped three times."""
        peer = self.server.peer
        states = self.query.get("state", "running,paused") if is_new else "running"
        wanted = {urllib.parse.unquote(key): urllib.parse.unquote(value) for key, value
                  in urllib.parse.parse_qsl(self.query.get("metadata", ""))}
        found = [box.detail() for box in list(peer.boxes.values())
                 if box.state in states.split(",") and (
                     not peer.settings["filters"] or
                     wanted.items() <= (box.body.get("metadata") or {}).items())]
        first, size = int(self.query.get("nextToken") or 0), peer.settings["page"]
        more = {"X_Next_Token": str(first + size)} if first + size < len(found) else {}
        return self.answer(200, found[first:first + size], **more)

    def get_box(self, box):
        self.answer(200, box.detail())

    def delete_box(self, box):
        self.server.peer.remove(box)
        self.answer(204)

    def post_connect(self, box):
        end = time.time() + self.json().get("timeout", 300)
        was_paused = box.state == "paused"
        if was_paused:
            box.resume()
            box.end = end
        box.end = max(box.end, end)
        self.answer(201 if was_paused else 200, box.reply())

    def post_timeout(self, box):
        box.end = time.time() + self.json()["timeout"]
        self.answer(204)

    def post_refreshes(self, box):
        if not self.server.peer.settings["refreshes"]:
            return self.fail(404, "no such operation")
        box.end = max(box.end, time.time() + self.json()["duration"])
        return self.answer(204)

    def post_pause(self, box):
        if box.state == "paused":
            return self.fail(409, "sandbox is already paused")
        box.pause()
        return self.answer(204)

    # The daemon

    def inside(self, box_id):
        box = self.server.peer.find(box_id)
        if not box or box.state != "running":
            return self.answer(502, {"sandboxId": box_id, "code": 502,
                                     "message": "The sandbox was not found"})
        if self.path_only == "/health":
            return self.answer(204)
        if self.headers.get("X-Access-Token") != box.token:
            return self.fail(401, f"unauthorized: {self.headers.get('X-Access-Token')}")
        self.user = self.who(box)
        if self.path_only == "/files":
            return (self.upload if self.command == "POST" else self.download)(box)
        service, _, method = self.path_only[1:].partition("/")
        call = getattr(self, f"rpc_{method}", None) if service in (
            "process.Process", "filesystem.Filesystem") else None
        if not call:
            raise Refusal("unimplemented", "no such method")
        if method in ("Start", "Connect"):
            return self.stream(box, call)
        return self.answer(200, call(box, self.json()))

    def who(self, box):
        import pwd
        user = self.query.get("username")
        given = self.headers.get("Authorization", "")
        if given.startswith("Basic "):
            user = base64.b64decode(given[6:]).decode().partition(":")[0]
        if user in (None, "", "user"):
            return "user"
        try:
            pwd.getpwnam(user)
        except KeyError:
            raise Refusal("unauthenticated", f"invalid username: '{user}'") from None
        return user

    def download(self, box):
        data = box.files.read(self.query.get("path", ""))
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            return self.answer(200, data, "application/octet-stream")
        first = int(wanted[1])
        if first >= len(data):
            return self.answer(416, b"", Content_Range=f"bytes */{len(data)}")
        part = data[first:int(wanted[2]) + 1 if wanted[2] else None]
        return self.answer(206, part, "application/octet-stream",
                           Content_Range=f"bytes {first}-{first + len(part) - 1}/{len(data)}")

    def upload(self, box):
        kind = self.headers.get("Content-Type", "")
        parts = [(self.query.get("path"), self.body())]
        if kind.startswith("multipart/form-data"):
            parts = [(self.query.get("path") or name, data)
                     for name, data in split_multipart(kind, self.body())]
        elif kind != "application/octet-stream":
            raise FileError(400, f"unsupported content type {kind}")
        self.answer(200, [box.files.write(path, data) for path, data in parts])

    # Streams

    def stream(self, box, call):
        self.send_response(200)
        self.send_header("Content-Type", "application/connect+json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        end = {}
        try:
            limit = self.headers.get("Connect-Timeout-Ms")
            self.follow(box, call(box, self.json()),
                        time.monotonic() + int(limit) / 1000 if limit else None)
        except Refusal as refusal:
            end = {"error": {"code": refusal.code, "message": refusal.message}}
        self.envelope(2, end)
        self.wfile.write(b"0\r\n\r\n")

    def envelope(self, flags, message):
        data = json.dumps(message).encode()
        data = struct.pack(">BI", flags, len(data)) + data
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def follow(self, box, process, deadline):
        queue = process.subscribe()
        if self.path_only.endswith("/Start"):
            process.begin()  # after subscribe(), so that no event is lost
            if deadline:
                process.end_at(deadline)
        ping = float(self.headers.get("Keepalive-Ping-Interval") or 90)
        spoken = time.monotonic()
        try:
            while True:
                try:
                    event = queue.get(timeout=0.05)
                    if box.state != "running":
                        raise Cut
                    self.envelope(0, {"event": event})
                    spoken = time.monotonic()
                    if "end" in event:
                        return
                except Empty:
                    pass
                if box.state != "running" or self.is_deserted():
                    raise Cut
                if deadline and time.monotonic() > deadline:
                    process.send(signal.SIGKILL)
                    raise Refusal("deadline_exceeded", "context deadline exceeded")
                if time.monotonic() - spoken > ping:
                    self.envelope(0, {"event": {"keepalive": {}}})
                    spoken = time.monotonic()
        finally:
            process.unsubscribe(queue)

    def is_deserted(self):
        readable, _, _ = select.select([self.connection], [], [], 0)
        if self.server.context:
            return False
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    # Calls about processes

    def rpc_Start(self, box, request):
        process = Process(box, request, self.user)
        box.processes[process.pid] = process
        return process

    def rpc_Connect(self, box, request):
        return box.find(request.get("process", {}))

    def rpc_List(self, box, _):
        return {"processes": [
            {"pid": process.pid, "config": process.config,
             **({"tag": process.tag} if process.tag else {})}
            for process in list(box.processes.values()) if not process.end]}

    def rpc_SendInput(self, box, request):
        box.find(request.get("process", {})).write(request.get("input", {}))
        return {}

    def rpc_CloseStdin(self, box, request):
        box.find(request.get("process", {})).close_stdin()
        return {}

    def rpc_SendSignal(self, box, request):
        wanted = request.get("signal")
        number = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9}.get(wanted, wanted)
        box.find(request.get("process", {})).send(number)
        return {}

    def rpc_Update(self, box, request):
        box.find(request.get("process", {})).resize(request.get("pty", {}))
        return {}

    # Calls about files

    def rpc_Stat(self, box, request):
        return self.files(lambda: {"entry": box.files.stat(request.get("path", ""))})

    def rpc_MakeDir(self, box, request):
        return self.files(lambda: {"entry": box.files.make_dir(request.get("path", ""))})

    def rpc_Move(self, box, request):
        return self.files(lambda: {"entry": box.files.move(request.get("source", ""),
                                                           request.get("destination", ""))})

    def rpc_ListDir(self, box, request):
        return self.files(lambda: {"entries": box.files.list_dir(request.get("path", ""),
                                                                 request.get("depth", 0) or 1)})

    def rpc_Remove(self, box, request):
        return self.files(lambda: box.files.remove(request.get("path", "")) or {})

    def files(self, call):
        try:
            return call()
        except FileNotFoundError as error:
            raise Refusal("not_found", f"path not found: {error.filename}") from error
        except FileExistsError as error:
            raise Refusal("already_exists", "directory already exists") from error
        except NotADirectoryError as error:
            raise Refusal("invalid_argument", "path is not a directory") from error
        except OSError as error:
            raise Refusal("internal", f"error: {error.strerror.lower()}") from error


def split_multipart(kind, data):
    boundary = b"--" + re.search(r'boundary="?([^";]+)', kind)[1].encode()
    for part in data.split(boundary)[1:-1]:
        head, _, content = part[2:].partition(b"\r\n\r\n")
        name = re.search(rb'filename="([^"]*)"', head)
        yield (name[1].decode() if name else ""), content[:-2]


# --- Control ------------------------------------------------------------------------

class Control:
    """{"rule": {"on": REGEX, ...}}  misbehave once (or "times") on "METHOD /path"; see
                                     Handler.misbehave; "skip": only after so many requests
       {"set": {...}}                change Peer.settings
       {"log": REGEX}                return the requests that match, and clear the log
       {"boxes": null}               the sandboxes
       {"settle": null}              wait until all requests are complete and all
                                     connections are closed
       {"pids": null}                the number of processes in all sandboxes
       {"apart": null}               whether commands have a /home and /tmp of their own
       {"tls": FOLDER}               use TLS as "localhost"; write the authority's
                                     certificate to FOLDER
    """

    def __init__(self, peer):
        self.peer = peer

    def obey(self, line):
        (what, value), = json.loads(line).items()
        return getattr(self, what)(value)

    def rule(self, value):
        self.peer.rules.append(value)
        return True

    def set(self, value):
        self.peer.settings.update(value)
        return True

    def log(self, value):
        found = [entry for entry in self.peer.log
                 if re.match(value, f"{entry['method']} {entry['path']}")]
        self.peer.log.clear()
        return found

    def settle(self, _):
        server = self.peer.server
        # Connections are accepted in order, so this one is the last.
        with socket.create_connection(server.server_address) as last:
            last.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            while last.recv(4096):
                pass
        with server.counting:
            return server.counting.wait_for(lambda: server.open == 0, 20)

    def pids(self, _):
        return sum(len(box.pids()) for box in self.peer.boxes.values())

    def apart(self, _):
        return self.peer.can_mount

    def tls(self, folder):
        import ssl
        files = [f"{folder}/key.pem", f"{folder}/authority.pem"]
        try:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
                            "2", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=DNS:localhost", "-keyout", files[0], "-out",
                            files[1]], check=True, capture_output=True)
        except OSError:
            return False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files[1], files[0])
        self.peer.server.context = context
        return True

    def boxes(self, _):
        return {box.id: {"state": box.state, "left": box.end - time.time(), "body": box.body}
                for box in self.peer.boxes.values() if box.state != "killed"}


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    peer = Peer()
    try:
        if sys.argv[1:2] == ["--run"]:
            env = {**os.environ, "E2B_API_URL": peer.url, "E2B_SANDBOX_URL": peer.url,
                   "E2B_API_KEY": KEY}
            return subprocess.run(sys.argv[2:], env=env, check=False).returncode
        print(peer.url, flush=True)
        control = Control(peer)
        for line in sys.stdin:
            print(json.dumps(control.obey(line)), flush=True)
        return 0
    finally:
        peer.stop()


if __name__ == "__main__":
    sys.exit(main())
