# SPDX-License-Identifier: Apache-2.0
"""A small S3-compatible store on loopback.  It computes every signature itself, and fails as
tests ask it to."""

import datetime
import hashlib
import hmac
import itertools
import re
import ssl
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from serving import free_port

KEY, SECRET, TOKEN = "AKIDOFTHETESTS", "a+secret/of=the.S3.tests", "a-token-of-the-tests=="
BUCKET = "cay-tests"


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(secret, date, region, scope, text):
    key = sign(sign(sign(sign(b"AWS4" + secret.encode(), date), region), "s3"), "aws4_request")
    when = scope[0]
    return hmac.new(key, "\n".join(["AWS4-HMAC-SHA256", when, scope[1], text]).encode(),
                    hashlib.sha256).hexdigest()


class Refused(Exception):
    """Status, code."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *words):
        pass

    @property
    def store(self):
        return self.server.store

    def reply(self, status, body=b"", kind="application/xml", cut=0):
        self.store.seen.append((self.command, self.path, status))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status != 204:
            self.wfile.write(body[:len(body) - cut])
        if cut:
            self.close_connection = True

    def refuse(self, status, code):
        self.reply(status, f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
                   "<Message>as the test asked</Message></Error>".encode())

    def check_signature(self, body):
        header = self.headers.get("Authorization", "")
        found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/,]+)/(\d{8})/([^/,]+)/s3/aws4_request, ?"
                             r"SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})", header)
        if not found:
            raise Refused(403, "AccessDenied")
        key, date, region, names, given = found.groups()
        if key != self.store.key or self.headers.get("X-Amz-Security-Token") != self.store.token:
            raise Refused(403, "InvalidAccessKeyId")
        when = self.headers["X-Amz-Date"]
        clock = datetime.datetime.strptime(when + "+0000", "%Y%m%dT%H%M%SZ%z").timestamp()
        if not when.startswith(date) or abs(time.time() - clock) > 900:
            raise Refused(403, "RequestTimeTooSkewed")
        needed = {"host"} | {name.lower() for name in self.headers if name.lower().startswith("x-amz-")}
        if not needed <= set(names.split(";")) or region != self.store.region:
            raise Refused(403, "AccessDenied")
        digest = hashlib.sha256(body).hexdigest()
        if self.headers["X-Amz-Content-Sha256"] != digest:
            raise Refused(400, "XAmzContentSHA256Mismatch")
        parts = urlsplit(self.path)
        query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
                         for name, value in sorted(parse_qsl(parts.query, keep_blank_values=True)))
        canonical = [self.command, quote(unquote(parts.path), safe="/-_.~"), query]
        canonical += [f"{name}:{self.headers[name].strip()}" for name in names.split(";")]
        canonical += ["", names, digest]
        expected = signature(self.store.secret, date, region,
                             (when, f"{date}/{region}/s3/aws4_request"),
                             hashlib.sha256("\n".join(canonical).encode()).hexdigest())
        if not hmac.compare_digest(expected, given):
            raise Refused(403, "SignatureDoesNotMatch")

    def handle_request(self):
        store = self.store
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = store.next_fault(self)
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
            return
        try:
            self.check_signature(body)
            if isinstance(fault, tuple):
                raise Refused(*fault)
            parts = urlsplit(self.path)
            _, bucket, *key = unquote(parts.path).split("/", 2)
            if bucket != BUCKET:
                raise Refused(404, "NoSuchBucket")
            if isinstance(fault, threading.Event):
                data = store.objects[key[0]][0]
                store.waiting += 1
                fault.wait()
                self.reply(200, data, "application/octet-stream")
                return
            with store.lock:
                if fault == "lost":
                    store.objects[key[0]] = (body, time.time())
                    self.close_connection = True
                    self.connection.close()
                    return
                self.act(key[0] if key else "", dict(parse_qsl(parts.query)), body, fault)
        except Refused as refused:
            self.refuse(*refused.args)

    do_GET = do_PUT = do_DELETE = do_HEAD = handle_request

    def act(self, key, query, body, fault):
        objects = self.store.objects
        if self.command == "PUT":
            if self.headers.get("If-None-Match") == "*":
                if not self.store.is_conditional:
                    raise Refused(501, "NotImplemented")
                if key in objects:
                    raise Refused(412, "PreconditionFailed")
            objects[key] = (body, time.time())
            self.reply(200)
        elif self.command == "DELETE":
            objects.pop(key, None)
            self.reply(204)
        elif not key:
            self.list(query)
        elif key not in objects:
            raise Refused(404, "NoSuchKey")
        else:
            self.reply(200, objects[key][0], "application/octet-stream",
                       cut=1 if fault == "cut" and objects[key][0] else 0)

    def list(self, query):
        if self.store.list_reply is not None:
            self.reply(200, self.store.list_reply)
            return
        if query.get("list-type") != "2":
            raise Refused(400, "InvalidArgument")
        names = sorted(name for name in self.store.objects if name.startswith(query["prefix"]))
        token = query.get("continuation-token")
        if token is not None and not token.startswith(self.store.mark):
            raise Refused(400, "InvalidArgument")
        names = [name for name in names if token is None or name > token[len(self.store.mark):]]
        page = names[:self.store.page]
        more = len(names) > len(page)
        text = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>"
            + time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.store.objects[name][1])) +
            "</LastModified><ETag>&quot;0&quot;</ETag>"
            f"<Size>{len(self.store.objects[name][0])}</Size></Contents>" for name in page)
        token = f"<NextContinuationToken>{escape(self.store.mark + page[-1])}</NextContinuationToken>" \
            if more else ""
        self.reply(200, ('<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="'
                         f'http://s3.amazonaws.com/doc/2006-03-01/"><Name>{BUCKET}</Name>'
                         f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{text}"
                         "</ListBucketResult>").encode())


class S3:
    """The store.  `objects` maps keys to their bytes and the time of the last change."""

    mark = "a token/with+all &<>= "  # of continuation tokens

    def __init__(self, certificate=None, token=None, host="127.0.0.1"):
        self.host = host
        self.key, self.secret, self.token, self.region = KEY, SECRET, token, "eu-test-1"
        self.page, self.is_conditional = 2, True
        self.objects, self.seen, self.faults = {}, [], []
        self.waiting = 0  # replies that have waited for an event
        self.list_reply = None  # bytes instead of lists
        self.lock = threading.RLock()
        self.certificate, self.port, self.server = certificate, free_port(), None
        self.start()

    def start(self):
        """Again on the same port."""
        self.server = ThreadingHTTPServer((self.host, self.port), Handler)
        self.server.daemon_threads = True
        self.server.store = self
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    @property
    def endpoint(self):
        return f"{'https' if self.certificate else 'http'}://{self.host}:{self.port}"

    def options(self, place=f"{BUCKET}/some/prefix"):
        return ["--shared", f"s3://{place}", "--shared-endpoint", self.endpoint,
                "--shared-region", self.region]

    def fail(self, fault, count=None, method=None, path=""):
        """The next `count` requests of this method whose path has `path`, or all, get a status
        and a code, or "cut": a body that ends early, or "drop": no reply, or "lost": no reply to a
        PUT that was done, or an event: the reply to a GET, which comes after it."""
        self.faults.append([fault, itertools.count() if count is None else iter(range(count)),
                            method, path])

    @contextmanager
    def failing(self, *words, **more):
        self.fail(*words, **more)
        try:
            yield
        finally:
            self.faults.clear()

    def next_fault(self, request):
        for fault, times, method, path in self.faults:
            if method in (None, request.command) and path in request.path \
                    and next(times, None) is not None:
                return fault
        return None
