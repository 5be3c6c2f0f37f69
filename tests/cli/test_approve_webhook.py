# SPDX-License-Identifier: Apache-2.0
"""cay approve notify sends requests to a webhook; signed replies decide about them."""

import hashlib
import hmac
import http.server
import json
import signal
import threading
import time

import pytest

from conftest import PATIENCE
from test_approve import Queue, ended, fixture_place, fixture_queue  # noqa: F401

SECRET = "correct horse battery staple"


def signed(before, body, secret=SECRET):
    return "sha256=" + hmac.new(secret.encode(), before.encode() + b"." + body, hashlib.sha256).hexdigest()


class Hook:
    """A server whose replies a test decides: reply(message) is a status, a body and a secret."""

    def __init__(self):
        hook = self
        self.messages, self.faults = [], []
        self.reply = lambda message: (204, b"", SECRET)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                signature = signed(self.headers["Cay-Timestamp"], body)
                if self.headers["Cay-Signature"] != signature or \
                        abs(time.time() - int(self.headers["Cay-Timestamp"])) > PATIENCE:
                    hook.faults.append(dict(self.headers))
                message = json.loads(body)
                hook.messages.append(message)
                status, reply, secret = hook.reply(message)
                self.send_response(status)
                self.send_header("Content-Length", str(len(reply)))
                if secret:
                    self.send_header("Cay-Signature",
                                     signed(signature.removeprefix("sha256="), reply, secret))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def wait(self, count):
        end = time.monotonic() + PATIENCE
        while len(self.messages) < count and time.monotonic() < end:
            time.sleep(0.02)
        assert len(self.messages) >= count and not self.faults, (self.messages, self.faults)


@pytest.fixture(name="hook")
def fixture_hook(queue):  # noqa: F811
    (queue.base / "secret").write_text(SECRET + "\n")
    hook = Hook()
    hook.notifier = queue.start("approve", "notify", "--secret-file", "secret", hook.url)
    yield hook
    if hook.notifier.poll() is None:
        hook.notifier.send_signal(signal.SIGTERM)
    hook.notifier.communicate(timeout=PATIENCE)
    hook.stop()


def ask(queue, subject, *options):  # noqa: F811
    return queue.start("approve", "request", *options, "deploy", subject)


@pytest.mark.parametrize("verdict, status", [("allow", 0), ("remember", 0), ("deny", 125)])
def test_a_signed_reply_decides(queue, hook, verdict, status):  # noqa: F811
    hook.reply = lambda message: (200, json.dumps({"verdict": verdict, "note": "by hook"}).encode(), SECRET)
    code, _, error = ended(ask(queue, "site", "--scope", "here"))
    assert (code == 0) == (status == 0) and ("by hook" in error) == (verdict == "deny"), error
    message = hook.messages[0]
    assert (message["kind"], message["scope"], message["subject"]) == ("deploy", "here", "site")
    assert set(message) == {"id", "kind", "scope", "subject", "summary", "created_ms", "expires_ms", "content"}
    assert ("\t".join(["allow", "deploy", "here", "site"]) in queue.run("approve", "rules")) == \
        (verdict == "remember")
    assert not hook.faults and queue.requests() == []


def test_without_a_reply_the_user_decides_and_the_message_is_sent_once(queue, hook):  # noqa: F811
    first = ask(queue, "one")
    hook.wait(1)
    second = ask(queue, "two")
    hook.wait(2)
    for message in hook.messages[:2]:
        queue.run("approve", "allow", message["id"])
    assert ended(first)[0] == ended(second)[0] == 0
    assert [message["subject"] for message in hook.messages] == ["one", "two"]


@pytest.mark.parametrize("secret", [None, "another secret of that length"])
def test_an_unsigned_reply_has_no_effect(queue, hook, secret):  # noqa: F811
    hook.reply = lambda message: (200, b'{"verdict": "allow"}', secret)
    asker = ask(queue, "site")
    hook.wait(2)  # it is sent again
    (request,) = queue.requests()
    assert not request["decided"] and asker.poll() is None
    queue.run("approve", "deny", request["id"])
    assert ended(asker)[0] != 0
    hook.notifier.send_signal(signal.SIGTERM)
    assert "not signed" in hook.notifier.communicate(timeout=PATIENCE)[1]


def test_a_message_that_fails_is_sent_again(queue, hook):  # noqa: F811
    hook.reply = lambda message: (200, b'{"verdict": "allow"}', SECRET) if len(hook.messages) > 1 \
        else (500, b"", None)
    assert ended(ask(queue, "site"))[0] == 0
    assert len(hook.messages) == 2


def test_an_address_or_a_secret_that_is_not_safe_is_an_error(queue):  # noqa: F811
    (queue.base / "secret").write_text(SECRET)
    (queue.base / "short").write_text("short\n")
    for url in ("http://example.com/", "http://127.0.0.1@example.com/", "http://127.0.0.1.example.com/",
                "ftp://127.0.0.1/", "https://user@example.com/", "file:///etc/passwd", "https://"):
        done = queue.run("approve", "notify", "--secret-file", "secret", url, status=None)
        assert done.returncode == 2 and "https://HOST/PATH" in done.stderr, done
    done = queue.run("approve", "notify", "--secret-file", "short", "https://example.com/", status=None)
    assert done.returncode == 2 and "secret" in done.stderr
    done = queue.run("approve", "notify", "https://example.com/", status=None)
    assert done.returncode != 0 and "--secret-file" in done.stderr
