# SPDX-License-Identifier: Apache-2.0
"""--shared s3://: what an S3 store has that a directory has not.  test_shared.py runs on both."""

import os
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from cluster import Node
from s3 import BUCKET, KEY, S3, SECRET, TOKEN
from serving import CAY, PATIENCE, free_port, unavailable, wait_until
from test_shared import TENANTS, call, listed, make, metric, read, remove, snapshot_of

DAY = 24 * 3600
RECORDS, FILES = "some/prefix/tenant-alice/records/", "some/prefix/tenant-alice/files/"


def credentials(home, key=KEY, secret=SECRET):
    """A file with them."""
    home.mkdir(exist_ok=True)
    path = home / "credentials"
    path.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    path.chmod(0o600)
    return path


def in_environment(key=KEY, secret=SECRET):
    return {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}


@pytest.fixture(name="store")
def fixture_store():
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    store = S3()
    yield store
    store.stop()


@pytest.fixture(scope="module", name="pair")
def fixture_pair(tmp_path_factory):
    """Two servers that start at the same time with an empty bucket: one has the credentials in
    a file, the other one in the environment."""
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    home, store = tmp_path_factory.mktemp("s3"), S3()
    one = Node(home / "naaa", "naaa", "--reserve", "0", *store.options(),
               "--shared-credentials-file", str(credentials(home)))
    two = Node(home / "naab", "naab", "--reserve", "0", *store.options())
    two.env.update(in_environment())
    with ThreadPoolExecutor(2) as pool:
        nodes = list(pool.map(lambda node: node.start(), (one, two)))
    for node in nodes:
        node.store = store
        for tenant in TENANTS:
            node.options_of(tenant)
    yield nodes
    for node in nodes:
        node.clean()
    store.stop()


def run(home, *options, **env):
    """`cay serve`, which is not to start: its status and what it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run([CAY, "serve", "--listen", "127.0.0.1:0", "--node", "naaa", *options],
                          env={**kept, "CAY_HOME": str(home), **env}, capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout + done.stderr


def stored(node):
    """The templates and snapshots that it has."""
    return {path.name for path in (node.home / "templates").glob("*")}


def logged(node, text):
    return node.log.read_text().count(text)


def test_a_store_that_cannot_be_used_is_refused(store, tmp_path):
    good, home = in_environment(), tmp_path / "home"
    store.page = 1000
    cases = [
        (store.options(), in_environment(secret="another-secret"),
         "refuses the credentials", "SignatureDoesNotMatch"),
        (store.options(), in_environment(key="ANOTHER"), "refuses the credentials", "InvalidAccessKeyId"),
        (store.options("no-such-bucket"), good, "no such bucket", "status 404"),
        ([*store.options(), "--shared-endpoint", f"http://127.0.0.1:{free_port()}"], good,
         "cannot be reached", "connect"),
        (store.options(), {}, "no credentials", "AWS_ACCESS_KEY_ID")]
    for options, env, *words in cases:
        for more in ([], ["--check"]):
            status, text = run(home, *options, *more, **env)
            assert status != 0 and all(word in text for word in words), text
            assert SECRET not in text and "another-secret" not in text
    assert store.objects == {}
    for options, words in [
            (["--shared", "s3://x"], "s3://BUCKET/PREFIX"),
            ([*store.options(), "--shared-region", "a/b"], "eu-west-1"),
            ([*store.options(), "--shared-endpoint", "127.0.0.1:9000"], "https://HOST"),
            (["--shared-endpoint", store.endpoint], "--shared s3://BUCKET"),
            (["--shared", str(tmp_path), "--shared-credentials-file", "x"], "--shared s3://BUCKET")]:
        status, text = run(home, *options, **good)
        assert status != 0 and words in text, text
    path = credentials(tmp_path)
    path.chmod(0o644)
    status, text = run(home, *store.options(), "--shared-credentials-file", str(path))
    assert status != 0 and "chmod 0600" in text and SECRET not in text
    path.write_text("aws_access_key_id = only")
    path.chmod(0o600)
    status, text = run(home, *store.options(), "--shared-credentials-file", str(path))
    assert status != 0 and "aws_secret_access_key = ..." in text


def test_check_looks_into_the_store_and_changes_nothing(tmp_path):
    store = S3(host="127.0.0.2")  # which is no name of this machine for the server
    try:
        status, text = run(tmp_path / "home", *store.options(), "--check", **in_environment(),
                           no_proxy="*")
        assert re.search(rf"^ok +--shared: s3://{BUCKET}/some/prefix at \S+ is empty$", text, re.M), text
        assert re.search(r"^warning +--shared-endpoint: without TLS", text, re.M), text
        assert store.objects == {}
    finally:
        store.stop()


def test_a_certificate_is_verified(tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out", tmp_path / "crt",
                    "-keyout", tmp_path / "key"], check=True, capture_output=True, timeout=PATIENCE)
    store = S3(certificate=(tmp_path / "crt", tmp_path / "key"))
    try:
        status, text = run(tmp_path / "home", *store.options(), "--check", **in_environment())
        assert status != 0 and "cannot be reached" in text and "certificate" in text, text
        assert store.seen == []
        _, text = run(tmp_path / "home", *store.options(), "--check", **in_environment(),
                      SSL_CERT_FILE=str(tmp_path / "crt"))
        assert "is empty" in text and "without TLS" not in text.split("--shared")[1], text
    finally:
        store.stop()


def test_a_store_without_conditional_writes_gets_its_mark(store, tmp_path):
    store.is_conditional = False
    node = Node(tmp_path / "naaa", "naaa", "--reserve", "0", *store.options())
    node.env.update(in_environment())
    node.start()
    try:
        assert re.fullmatch(rb"[0-9a-f]{32}", store.objects["some/prefix/cay-shared"][0])
        node.stop()
        for place in (f"{BUCKET}/other", BUCKET):
            status, text = run(node.home, *store.options(place), **in_environment())
            assert status != 0 and "before" in text, text
    finally:
        node.clean()


def test_two_servers_share_snapshots_and_their_bucket_has_one_mark(pair):
    one, two = pair
    assert [key for key in one.store.objects if key.endswith("cay-shared")] == ["some/prefix/cay-shared"]
    snapshots = [snapshot_of(one, f"text {number}") for number in range(3)]  # two pages
    assert sorted(listed(two)) == sorted(snapshots)
    assert [read(two, snapshot) for snapshot in snapshots] == [f"text {number}" for number in range(3)]
    assert {remove(two, snapshot) for snapshot in snapshots} == {204}
    assert listed(one) == [] and list(one.store.objects) == ["some/prefix/cay-shared"]


def test_a_failure_that_passes_is_not_noticed(pair):
    one, two = pair
    store = one.store
    failures = [metric(node, "cay_shared_failures_total") for node in pair]
    for method, path in (("PUT", FILES), ("PUT", RECORDS), ("GET", "list-type"), ("GET", "cay-shared")):
        store.fail((500, "InternalError"), 1, method, path)
        store.fail((503, "SlowDown"), 1, method, path)
    store.fail("drop", 1, "GET", RECORDS)
    store.fail("cut", 2, "GET", FILES)
    store.fail("drop", 1, "DELETE", RECORDS)
    snapshot = snapshot_of(one, "patience")
    assert read(two, snapshot) == "patience"
    assert remove(one, snapshot) == 204
    assert all(next(times, None) is None for _, times, *_ in store.faults)
    store.faults.clear()
    assert failures == [metric(node, "cay_shared_failures_total") for node in pair]


def test_a_failure_that_stays_is_503_and_the_log_names_it(pair):
    one, two = pair
    snapshot = snapshot_of(one, "in the end")
    for fault, word in (("cut", "cannot be reached"), ((500, "InternalError"), "fails"),
                        ((403, "AccessDenied"), "refuses the credentials"),
                        ((404, "NoSuchBucket"), "no such bucket"), ((301, "PermanentRedirect"), "region")):
        before = logged(two, word)
        with one.store.failing(fault, method="GET", path=FILES):
            status, reply = call(two, "POST", "/sandboxes", {"templateID": snapshot})
        assert status == 503 and "store" in reply["message"], reply
        assert logged(two, word) > before, two.log.read_text()
    sandbox = make(one, "base")
    with one.store.failing((403, "AccessDenied"), method="PUT"):
        status, reply = call(one, "POST", f"/sandboxes/{sandbox.sandbox_id}/snapshots", {})
        assert status == 503, reply
    sandbox.kill()
    assert listed(one) == listed(two) == [snapshot]
    assert read(two, snapshot) == "in the end"
    assert remove(two, snapshot) == 204


def test_a_malformed_list_removes_nothing(pair):
    one, two = pair
    snapshot = snapshot_of(one, "stays")
    assert listed(two) == [snapshot]
    for text in (b"", b"<ListBucketResult>", b"<html/>", b"<ListBucketResult/>",
                 b"<Error><Code>InternalError</Code></Error>",
                 b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
                 b"<ListBucketResult><IsTruncated>no</IsTruncated></ListBucketResult>",
                 b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><LastModified>0"
                 b"</LastModified></Contents></ListBucketResult>"):
        one.store.list_reply = text
        assert listed(two) == [snapshot]
    one.store.list_reply = None
    assert remove(two, snapshot) == 204


def test_a_store_that_was_away_is_used_again(pair):
    one, two = pair
    snapshot, other = snapshot_of(one, "here"), snapshot_of(two, "there")
    assert {snapshot, other} == set(listed(one))
    one.store.stop()
    try:
        one.restart()
        assert read(one, snapshot) == "here" and set(listed(one)) == {snapshot, other}
        status, reply = call(one, "POST", "/sandboxes", {"templateID": other})
        assert status == 503, reply
        assert logged(one, "cannot be reached")
    finally:
        one.store.start()
    assert read(one, other) == "there"
    assert remove(one, snapshot) == remove(one, other) == 204


def test_archives_without_a_record_are_removed_after_a_day(pair):
    one, _ = pair
    objects, now = one.store.objects, time.time()
    snapshot = snapshot_of(one, "old")
    name = snapshot.rpartition("/")[2].partition(":")[0]
    (key,) = [key for key in objects if key.startswith(FILES)]
    objects[key] = (objects[key][0], now - 2 * DAY)
    for orphan, age in (("s.old", 2 * DAY), ("s.new", DAY / 2)):
        objects[FILES + orphan] = (b"x", now - age)
    objects[FILES + "Other"] = objects[FILES + "s.x/y"] = (b"x", now - 2 * DAY)
    other = snapshot_of(one, "more")
    left = {each[len(FILES):] for each in objects if each.startswith(FILES)}
    assert key[len(FILES):] in left and {"s.new", "Other", "s.x/y"} <= left and "s.old" not in left, name
    for each in ("s.new", "Other", "s.x/y"):
        del objects[FILES + each]
    assert remove(one, snapshot) == remove(one, other) == 204


def test_what_is_removed_while_it_comes_leaves_no_files(pair):
    one, two = pair
    store, held, before = one.store, threading.Event(), stored(two)
    snapshot = snapshot_of(one, "too late")
    assert listed(two) == [snapshot]
    waiting = store.waiting
    with ThreadPoolExecutor(1) as pool, store.failing(held, method="GET", path=FILES):
        try:
            reply = pool.submit(call, two, "POST", "/sandboxes", {"templateID": snapshot})
            wait_until(lambda: store.waiting > waiting, "the fetch has not begun")
            assert remove(one, snapshot) == 204 and listed(two) == []
        finally:
            held.set()
        assert reply.result(PATIENCE)[0] == 404
    wait_until(lambda: stored(two) <= before, lambda: stored(two) - before)


def test_a_record_whose_reply_was_lost_does_not_stay(pair):
    one, two = pair
    sandbox = make(one, "base")
    with one.store.failing("lost", method="PUT", path=RECORDS):
        status, reply = call(one, "POST", f"/sandboxes/{sandbox.sandbox_id}/snapshots", {})
    sandbox.kill()
    assert status == 503, reply
    assert listed(one) == listed(two) == [] and list(one.store.objects) == ["some/prefix/cay-shared"]


def has_bytes(pid, secret):
    """Whether a process has them in its memory."""
    with suppress(OSError), open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if not found or "[v" in line:
                continue
            first, last = (int(word, 16) for word in found.groups())
            if last - first > 1 << 28:  # of a sanitizer
                continue
            with suppress(OSError):
                memory.seek(first)
                if secret.encode() in memory.read(last - first):
                    return True
    return False


def test_the_secret_is_nowhere_but_where_it_is_needed(pair):
    for node in pair:
        sandbox = make(node, "base")
        snapshot = call(node, "POST", f"/sandboxes/{sandbox.sandbox_id}/snapshots", {})[1]["snapshotID"]
        with node.store.failing((403, "AccessDenied")):
            assert call(node, "POST", "/sandboxes", {"templateID": "unknown"})[0] == 503
        inside = sandbox.commands.run("env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
        assert SECRET not in inside.stdout and KEY not in inside.stdout
        sandbox.commands.run("sleep 600", background=True)  # its keeper stays
        keepers = wait_until(node.keepers, "the sandbox has no keeper")
        for pid in (node.broker, *node.children()):
            for part in ("environ", "cmdline"):
                with suppress(OSError):  # one that has just ended
                    text = Path(f"/proc/{pid}/{part}").read_bytes().decode(errors="replace")
                    assert SECRET not in text, (pid, part)
        for pid in (node.front(), *keepers):
            assert not has_bytes(pid, SECRET), pid
        assert has_bytes(node.broker, "cay-shared"), "the search finds nothing at all"
        sandbox.kill()
        assert remove(node, snapshot) == 204
        for path in (node.log, node.home / "access.log"):
            assert SECRET not in path.read_text()
        for path in node.home.rglob("*"):
            with suppress(OSError):  # one that was just removed
                if path.is_file() and not path.is_symlink():
                    assert SECRET.encode() not in path.read_bytes(), path


def test_a_token_is_sent_and_a_changed_file_is_read_again(store, tmp_path):
    path = credentials(tmp_path)
    node = Node(tmp_path / "naaa", "naaa", "--reserve", "0", *store.options(),
                "--shared-credentials-file", str(path)).start()
    try:
        node.options_of("alice")
        snapshot = snapshot_of(node, "before")
        store.secret, store.token = "a-new-secret", TOKEN
        assert remove(node, snapshot) == 503
        path.write_text(f"aws_access_key_id={KEY}\naws_secret_access_key={store.secret}\n"
                        f"aws_session_token={TOKEN}\n")
        assert remove(node, snapshot) == 204
    finally:
        node.clean()
