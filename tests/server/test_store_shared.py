# SPDX-License-Identifier: Apache-2.0
"""Servers that share an index in PostgreSQL: --store postgresql://."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster import Node, Postgres
from e2b import Sandbox
from serving import CAY, PATIENCE, children, name_of, unavailable, wait_until
from test_ui_session import Browser, call

KEYS = ("ab" * 32 + "\n", "e2b_" + "5" * 40 + "\n")


@pytest.fixture(scope="module", name="database")
def fixture_database():
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    if not (Path(CAY).parent / "cay-store").exists():
        unavailable("Cay was built without libpq")
    database = Postgres()
    yield database.start()
    database.clean()


@pytest.fixture(scope="module", name="nodes")
def fixture_nodes(tmp_path_factory, database):
    """Two servers with one key of tokens, and one index."""
    home = tmp_path_factory.mktemp("nodes")
    (home / "all").mkdir(mode=0o700)
    started = [shared_node(home, database, name, "--shared", str(home / "all")).start()
               for name in ("naaa", "naab")]
    for one in started:
        wait_up(one)
    yield started
    for one in started:
        one.clean()


def write_private(path, text):
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


def shared_node(home, database, name, *options):
    return Node(home / name, name, "--reserve", "0", "--server-key-file",
                write_private(home / "server-key", KEYS[0]), "--api-key-file",
                write_private(home / "api-key", KEYS[1]), "--store", database.url,
                "--store-password-file", write_private(home / "password", database.PASSWORD),
                *options)


def metric(node, name):
    with node.get("/metrics") as reply:
        text = reply.read().decode()
    found = re.search(rf"^{name} (\d+)$", text, re.M)
    return int(found[1]) if found else None


def is_up(node):
    return metric(node, "cay_store_up") == 1


def wait_up(node):
    wait_until(lambda: is_up(node), lambda: node.log.read_text())


def create(node, **body):
    status, made = node.api("POST", "/sandboxes", {"templateID": "base", **body})
    assert status == 201, made
    return made["sandboxID"]


def listed(node, query="", **headers):
    status, rows = node.api("GET", f"/v2/sandboxes{query}", **headers)
    assert status == 200, rows
    return [row["sandboxID"] for row in rows]


def store_of(node):
    return [pid for pid in children(node.broker) if name_of(pid) == "cay-store"]


@pytest.fixture(name="both")
def fixture_both(nodes):
    """The same API key for both: the one of --api-key-file."""
    for node in nodes:
        node.keys["default"] = KEYS[1].strip()
    return nodes


def test_every_node_lists_the_sandboxes_of_all(both):
    made = [create(node, metadata={"user": "a=b", "n": str(number)})
            for number, node in enumerate(both)]
    for node in both:
        assert set(made) <= set(listed(node))
        assert listed(node, "?metadata=n%3D1") == [made[1]]
        assert listed(node, "?metadata=user%3Da%253Db%26n%3D0") == [made[0]]
        assert listed(node, "?metadata=n%3D7") == []
    assert both[0].api("POST", f"/sandboxes/{made[0]}/pause")[0] == 204
    assert made[0] in listed(both[1], "?state=paused")
    assert made[0] not in listed(both[1], "?state=running")
    for node, one in zip(both, made):
        assert node.api("DELETE", f"/sandboxes/{one}")[0] == 204
    for node in both:
        assert not set(made) & set(listed(node))


def test_every_node_counts_and_pages_over_all(both):
    made = [create(both[number % 2], metadata={"page": "yes"}) for number in range(5)]
    found, token = [], ""
    for _ in range(9):
        request = urllib.request.Request(
            f"{both[0].url}/v2/sandboxes?metadata=page%3Dyes&limit=2&nextToken={token}",
            headers={"X-API-KEY": both[0].keys["default"]})
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            found += re.findall(r'"sandboxID":\s*"(\w+)"', reply.read().decode())
            assert int(reply.headers["X-Total-Running"]) >= 5
            token = reply.headers["X-Next-Token"]
        if not token:
            break
    assert found == made[::-1]
    for one in made:
        assert both["naab" in one[:4]].api("DELETE", f"/sandboxes/{one}")[0] == 204


def test_the_store_process_is_confined_and_alone_knows_the_password(both, database):
    for node in both:
        [store] = store_of(node)
        status = Path(f"/proc/{store}/status").read_text()
        assert re.search(r"Seccomp:\s+2", status)
        assert re.search(r"Uid:\s+65534\s+65534\s+65534\s+65534", status)
        assert re.search(r"CapEff:\s+0+\n", status)
        assert re.search(r"NoNewPrivs:\s+1", status)
        for pid in (node.broker, *node.children()):
            for name in ("cmdline", "environ"):
                assert database.PASSWORD.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()


def test_a_store_process_that_is_killed_is_replaced(both):
    node = both[0]
    [store] = store_of(node)
    connects = metric(node, "cay_store_connects_total")
    os.kill(store, 9)
    wait_until(lambda: store_of(node) not in ([], [store]), "there is no new process")
    wait_until(lambda: metric(node, "cay_store_connects_total") > connects, "it does not connect")
    one = create(node)
    assert one in listed(both[1])
    assert node.api("DELETE", f"/sandboxes/{one}")[0] == 204


def test_servers_go_on_without_the_database_and_write_rows_later(both, database):
    before = [create(node) for node in both]
    database.kill()
    wait_until(lambda: not any(map(is_up, both)), "the servers do not notice")
    assert both[0].api("DELETE", f"/sandboxes/{before[0]}")[0] == 204
    later = [create(node) for node in both]
    assert both[0].api("POST", f"/sandboxes/{later[0]}/pause")[0] == 204
    assert set(listed(both[0])) == {later[0]}
    assert set(listed(both[1])) == {before[1], later[1]}
    assert metric(both[0], "cay_store_queued_rows") == 2
    database.start()
    for node in both:
        wait_up(node)
        wait_until(lambda: metric(node, "cay_store_queued_rows") == 0, "rows wait")
    for node in both:
        assert set(listed(node)) == {*later, before[1]}
        assert listed(node, "?state=paused") == [later[0]]
    assert both[0].api("DELETE", f"/sandboxes/{later[0]}")[0] == 204
    for one in (before[1], later[1]):
        assert both[1].api("DELETE", f"/sandboxes/{one}")[0] == 204


def test_rows_that_the_database_lost_are_written_again(both, database):
    one, other = create(both[0]), create(both[0])
    database.ask(f"DELETE FROM cay.sandboxes WHERE id = '{one}'")
    database.ask(f"UPDATE cay.sandboxes SET state = 2 WHERE id = '{other}'")
    database.ask("INSERT INTO cay.sandboxes SELECT 'naaaaaaaaaaaaaaa', node, epoch, version, "
                 "tenant, template, 1, started_ms, end_ms, flags, token_version, '', metadata, "
                 f"pairs FROM cay.sandboxes WHERE id = '{other}'")
    [store] = store_of(both[0])
    os.kill(store, 9)
    wait_until(lambda: set(listed(both[1], "?state=running")) == {one, other},
               "the rows are not corrected")
    assert database.ask("SELECT state FROM cay.sandboxes WHERE id = 'naaaaaaaaaaaaaaa'") == [["3"]]
    for each in (one, other):
        assert both[0].api("DELETE", f"/sandboxes/{each}")[0] == 204


def test_rows_of_the_database_are_checked(both, database):
    one = create(both[0])
    for number, (column, value) in enumerate((
            ("id", "'../../etc'"), ("state", "99"), ("metadata", r"'\x6100'"),
            ("template", "repeat('x', 5000)"), ("reason", "repeat('x', 5000)"))):
        database.ask(
            "INSERT INTO cay.sandboxes SELECT * FROM jsonb_populate_record(NULL::cay.sandboxes, "
            f"(SELECT to_jsonb(s) || jsonb_build_object('id', 'naab{'a' * 11}{chr(98 + number)}') "
            f"|| jsonb_build_object('{column}', {value}) FROM cay.sandboxes s WHERE id = '{one}'))")
    assert listed(both[0]) == [one]
    assert listed(both[1]) == [one]
    database.ask("DELETE FROM cay.sandboxes WHERE id <> '" + one + "'")
    assert both[0].api("DELETE", f"/sandboxes/{one}")[0] == 204


@pytest.mark.parametrize("options, environment, says", [
    (("--store", "postgresql://h/d"), "", "add --node"),
    (("--store", "postgresql://u:secret@h/d", "--node", "naaa"), "", "CAY_STORE"),
    (("--store", "postgresql://h/d?password=secret", "--node", "naaa"), "", "CAY_STORE"),
    (("--store-password-file", "/x"), "", "add --store postgresql://"),
    ((), "mysql://u:secret@h/d", "postgresql://USER"),
])
def test_options_of_the_database_are_checked(tmp_path, options, environment, says):
    done = subprocess.run([CAY, "serve", *options], capture_output=True, text=True, check=False,
                          timeout=PATIENCE, env={**os.environ, "CAY_HOME": str(tmp_path / "h"),
                                                 "CAY_STORE": environment})
    assert done.returncode != 0
    assert says in done.stderr
    assert "secret" not in done.stderr


def test_an_installation_without_cay_store_says_what_is_missing(tmp_path):
    for name in ("cay", "cay-full", "cay-serve"):
        path = Path(CAY).parent / name
        if path.exists():
            shutil.copy(path, tmp_path / name)
    done = subprocess.run([tmp_path / "cay-serve", "serve", "--node", "naaa", "--listen",
                           "127.0.0.1:0", "--store", "postgresql://localhost/x"],
                          capture_output=True, text=True, check=False, timeout=PATIENCE,
                          env={**os.environ, "CAY_HOME": str(tmp_path / "h")})
    assert done.returncode != 0
    assert "cay-store is missing" in done.stderr
    assert "the Debian package cay-store" in done.stderr and "libpq-dev" in done.stderr


def test_the_url_with_its_password_comes_from_the_environment(tmp_path, database):
    url = database.url.replace("cay@", f"cay:{database.PASSWORD.replace(' ', '%20')}@")
    node = Node(tmp_path, "naad", "--reserve", "0")
    node.env["CAY_STORE"] = url
    node.start()
    wait_up(node)
    secret = database.PASSWORD.replace(" ", "%20").encode()
    for pid in (node.broker, *node.children()):
        for name in ("cmdline", "environ"):
            assert secret not in Path(f"/proc/{pid}/{name}").read_bytes()
    node.clean()


# --- Keys ---

def cay_key(node, database, *words):
    return node.cay("key", "--store", database.url, "--store-password-file",
                    str(node.home.parent / "password"), *words)


def new_key(node, database, tenant):
    done = cay_key(node, database, "new", tenant)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def number_of(node, database, tenant):
    rows = json.loads(cay_key(node, database, "-o", "json", "ls").stdout)["keys"]
    [found] = [row for row in rows if row["tenant"] == tenant]
    return str(found["number"])


def status_with(node, key):
    return node.api("GET", "/v2/sandboxes", X_API_KEY=key)[0]


def session_on(node, browser):
    return call(node, "GET", "/ui/session", Cookie=browser.cookie)[0]


def log_out(node, browser):
    assert call(node, "DELETE", "/ui/session", Cookie=browser.cookie,
                X_Cay_Csrf=browser.csrf)[0] == 204


def test_a_key_holds_on_all_nodes_until_it_is_removed(both, database):
    key = new_key(both[0], database, "alice")
    assert key[:10] in cay_key(both[0], database, "ls").stdout
    assert [status_with(node, key) for node in both] == [200, 200]
    one = create(both[0])
    assert listed(both[0], X_API_KEY=key) == []
    assert both[0].api("GET", f"/sandboxes/{one}", X_API_KEY=key)[0] == 404
    assert both[0].api("DELETE", f"/sandboxes/{one}")[0] == 204
    number = number_of(both[0], database, "alice")
    assert cay_key(both[0], database, "rm", number).returncode == 0
    for node in both:  # by NOTIFY, long before the 30 s of the cache
        wait_until(lambda: status_with(node, key) == 401, "the key is still valid")
    again = cay_key(both[0], database, "rm", number)
    assert again.returncode != 0
    assert "no such key" in again.stderr


def test_a_key_that_was_unknown_is_valid_once_it_is_added(both, database):
    assert status_with(both[0], "e2b_" + "7" * 40) == 401
    misses = metric(both[0], "cay_store_failed_requests_total")
    for number in range(300):
        assert status_with(both[0], f"e2b_{number:040x}") == 401
    assert metric(both[0], "cay_store_failed_requests_total") == misses
    assert status_with(both[1], new_key(both[0], database, "bob")) == 200


def test_names_of_tenants_from_the_database_are_checked(both, database):
    """A name is part of paths, and of lines of logs."""
    for number, name in enumerate(("mallory/../../escaped", "", "a b", "a\nb", "x" * 64)):
        key = new_key(both[0], database, f"mallory-{number}")
        quoted = name.replace("\n", "' || chr(10) || '")
        database.ask(f"UPDATE cay.keys SET tenant = '{quoted}' WHERE tenant = 'mallory-{number}'")
        assert status_with(both[0], key) == 401, name
    database.ask("DELETE FROM cay.keys WHERE tenant <> 'default' AND tenant !~ '^[a-z-]+$'")


def test_known_keys_hold_while_the_database_is_away_and_others_get_503(both, database):
    known, unseen = new_key(both[0], database, "carol"), new_key(both[0], database, "dora")
    revoked = new_key(both[0], database, "erik")
    assert status_with(both[0], known) == 200
    assert status_with(both[0], revoked) == 200
    assert cay_key(both[0], database, "rm", number_of(both[0], database, "erik")).returncode == 0
    wait_until(lambda: status_with(both[0], revoked) == 401, "the key is still valid")
    database.kill()
    wait_until(lambda: not is_up(both[0]), "the server does not notice")
    assert status_with(both[0], known) == 200
    assert status_with(both[0], unseen) == 503
    assert status_with(both[0], revoked) != 200
    done = cay_key(both[0], database, "ls")
    assert done.returncode != 0
    assert "check the URL" in done.stderr
    database.start()
    for node in both:
        wait_up(node)
    assert [status_with(node, unseen) for node in both] == [200, 200]


def test_a_logout_counts_on_all_nodes(both):
    browser, other = Browser(both[0]), Browser(both[0])
    assert [session_on(node, browser) for node in both] == [200, 200]
    log_out(both[1], browser)
    assert session_on(both[1], browser) == 401
    wait_until(lambda: session_on(both[0], browser) == 401, "the session goes on")
    assert [session_on(node, other) for node in both] == [200, 200]


def test_a_logout_without_the_database_counts_elsewhere_once_it_is_back(both, database):
    browser = Browser(both[0])
    database.kill()
    wait_until(lambda: not any(map(is_up, both)), "the servers do not notice")
    log_out(both[0], browser)
    assert [session_on(node, browser) for node in both] == [401, 200]
    database.start()
    wait_until(lambda: session_on(both[1], browser) == 401, "the session goes on")


def test_tables_without_logouts_are_upgraded(both, database):
    """A server that starts later reads what the others wrote, and adds what it knows."""
    browsers = [Browser(both[0]) for _ in range(3)]
    database.ask("DROP TABLE cay.ended_sessions")
    for node, browser in zip(both, browsers):
        log_out(node, browser)
    for node in both:
        [store] = store_of(node)
        os.kill(store, 9)
    for node in both:
        wait_until(lambda: [session_on(node, one) for one in browsers] == [401, 401, 200],
                   "the session goes on")
    ended = browsers[2].cookies["cay_session"][:-32]
    expires = int(ended[3:11], 16)
    database.ask("INSERT INTO cay.ended_sessions VALUES ('s1_', now()), "
                 f"('{ended}', to_timestamp({expires}))")
    [store] = store_of(both[1])
    os.kill(store, 9)
    wait_until(lambda: session_on(both[1], browsers[2]) == 401, "the session goes on")


def test_unknown_keys_leave_room_for_known_ones_while_the_database_is_slow(both, database):
    one, clients = create(both[0]), []
    frozen = [database.process.pid, *children(database.process.pid)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        for number in range(300):
            clients.append(both[0].connect())
            clients[-1].sendall(f"GET /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: "
                                f"e2b_{number + 9000:040x}\r\nConnection: close\r\n\r\n".encode())
        refused = clients[-1].recv(4096)  # those before it wait, or are refused
        assert refused.startswith(b"HTTP/1.1 503"), refused
        assert one in listed(both[0])
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        for client in clients:
            client.close()
    wait_up(both[0])
    assert both[0].api("DELETE", f"/sandboxes/{one}")[0] == 204


# --- Limits ---

def test_a_limit_holds_for_sandboxes_that_requests_resume(both, database):
    key = {"X_API_KEY": new_key(both[0], database, "resumer")}
    assert cay_key(both[0], database, "limit", "resumer", "1").returncode == 0
    status, paused = both[0].api("POST", "/sandboxes", {
        "templateID": "base", "autoPause": True, "autoResume": {"enabled": True}}, **key)
    assert status == 201, paused
    touch = {"E2b_Sandbox_Id": paused["sandboxID"], "X_Access_Token": paused["envdAccessToken"]}
    assert both[0].api("GET", "/envs", **touch)[0] == 200
    assert both[0].api("POST", f"/sandboxes/{paused['sandboxID']}/pause", **key)[0] == 204
    status, other = both[0].api("POST", "/sandboxes", {"templateID": "base"}, **key)
    assert status == 201, other
    status, body = both[0].api("GET", "/envs", **touch)
    assert status == 429 and "as many running sandboxes" in body["message"], (status, body)
    assert listed(both[0], "?state=running", **key) == [other["sandboxID"]]
    assert both[0].api("DELETE", f"/sandboxes/{other['sandboxID']}", **key)[0] == 204
    with ThreadPoolExecutor(4) as pool:  # the place is the sandbox's, not the request's
        found = list(pool.map(lambda _: both[0].api("GET", "/envs", **touch)[0], range(4)))
    assert found == [200] * 4
    assert listed(both[0], "?state=running", **key) == [paused["sandboxID"]]
    wait_until(lambda: database.ask("SELECT count(*) FROM cay.claims WHERE tenant = 'resumer'")
               == [["0"]], "a claim is left")
    assert both[0].api("DELETE", f"/sandboxes/{paused['sandboxID']}", **key)[0] == 204


def test_a_limit_holds_on_all_nodes_together(both, database):
    key = {"X_API_KEY": new_key(both[0], database, "frank")}
    assert cay_key(both[0], database, "limit", "frank", "3").returncode == 0
    made = []
    for number in range(3):
        status, body = both[number % 2].api("POST", "/sandboxes", {"templateID": "base"}, **key)
        assert status == 201, body
        made.append((both[number % 2], body["sandboxID"]))
    for node in both:
        status, body = node.api("POST", "/sandboxes", {"templateID": "base"}, **key)
        assert status == 429
        assert "as many running sandboxes" in body["message"]
    assert "frank\t3\t3" in cay_key(both[0], database, "limit").stdout
    node, paused = made[0]
    assert node.api("POST", f"/sandboxes/{paused}/pause", **key)[0] == 204
    status, body = both[1].api("POST", "/sandboxes", {"templateID": "base"}, **key)
    assert status == 201
    made.append((both[1], body["sandboxID"]))
    assert node.api("POST", f"/sandboxes/{paused}/connect", {"timeout": 60}, **key)[0] == 429
    for node, one in made:
        assert node.api("DELETE", f"/sandboxes/{one}", **key)[0] == 204
    status, body = both[0].api("POST", "/sandboxes", {"templateID": "base"}, **key)
    assert status == 201
    assert both[0].api("DELETE", f"/sandboxes/{body['sandboxID']}", **key)[0] == 204


def test_creates_at_the_same_time_do_not_pass_the_limit(both, database):
    key = {"X_API_KEY": new_key(both[0], database, "gina")}
    assert cay_key(both[0], database, "limit", "gina", "4").returncode == 0
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda number: both[number % 2].api(
            "POST", "/sandboxes", {"templateID": "base"}, **key), range(10)))
    made = [body["sandboxID"] for status, body in found if status == 201]
    assert len(made) == 4
    assert {status for status, _ in found} == {201, 429}
    for one in made:
        node = both[one.startswith("naab")]
        assert node.api("DELETE", f"/sandboxes/{one}", **key)[0] == 204
    wait_until(lambda: database.ask("SELECT count(*) FROM cay.claims WHERE tenant = 'gina'")
               == [["0"]], "a claim is left")


def test_a_create_that_fails_gives_its_place_back(both, database):
    key = {"X_API_KEY": new_key(both[0], database, "hans")}
    assert cay_key(both[0], database, "limit", "hans", "1").returncode == 0
    for _ in range(3):
        assert both[0].api("POST", "/sandboxes", {"templateID": "nosuch"}, **key)[0] == 404
    status, body = both[0].api("POST", "/sandboxes", {"templateID": "base"}, **key)
    assert status == 201, body
    assert both[0].api("DELETE", f"/sandboxes/{body['sandboxID']}", **key)[0] == 204


def test_limits_need_the_database(both):
    done = both[0].cay("key", "limit", "alice", "3")
    assert done.returncode != 0
    assert "PostgreSQL" in done.stderr


# --- Nodes that are lost ---

def test_sandboxes_of_a_lost_node_are_503_then_404_and_can_be_killed(both, database):
    kept, gone = create(both[1]), create(both[1])
    both[1].kill()
    assert both[0].api("GET", f"/sandboxes/{gone}")[0] == 503
    assert both[0].api("DELETE", f"/sandboxes/{gone}")[0] == 503
    assert {kept, gone} <= set(listed(both[0]))
    # As after the 30 seconds of the lease.
    database.ask("UPDATE cay.nodes SET seen = now() - interval '31 s' WHERE id = 'naab'")
    wait_until(lambda: both[0].api("GET", f"/sandboxes/{gone}")[0] == 404, "it is not lost")
    assert "its machine was lost" in both[0].api("GET", f"/sandboxes/{gone}")[1]["message"]
    assert not {kept, gone} & set(listed(both[0]))
    status, body = both[0].api("GET", "/files?path=x", E2b_Sandbox_Id=gone, X_Access_Token="x")
    assert status == 502
    assert "its machine was lost" in body["message"]
    other = {"X_API_KEY": new_key(both[0], database, "ida")}
    assert both[0].api("DELETE", f"/sandboxes/{gone}", **other)[0] == 404
    assert both[0].api("DELETE", f"/sandboxes/{gone}")[0] == 204
    assert both[0].api("DELETE", f"/sandboxes/{gone}")[0] == 404
    both[1].start()
    wait_up(both[1])
    wait_until(lambda: both[1].api("GET", f"/sandboxes/{gone}")[0] == 404, "it is not killed")
    assert both[1].api("GET", f"/sandboxes/{kept}")[0] == 200
    wait_until(lambda: set(listed(both[0])) == {kept}, "the list is wrong")
    wait_until(lambda: database.ask("SELECT count(*) FROM cay.kills") == [["0"]],
               "a kill is left")
    assert both[1].api("DELETE", f"/sandboxes/{kept}")[0] == 204


def test_a_second_server_with_the_same_name_creates_nothing(both, database):
    home = both[0].home.parent
    second = shared_node(home, database, "naaa")
    second = Node(home / "second", "naaa", *second.options[6:])
    second.start()
    second.keys["default"] = KEYS[1].strip()
    wait_until(lambda: second.ready()[0] == 503, "the second server is ready")
    assert "taken" in second.ready()[1]
    assert second.say() == "drain\n"
    status, body = second.api("POST", "/sandboxes", {"templateID": "base"})
    assert status == 503
    assert "name of this node" in body["message"]
    one = create(both[0])
    assert one in listed(both[1])
    assert both[0].api("DELETE", f"/sandboxes/{one}")[0] == 204
    second.clean()


def test_events_of_sandboxes_are_in_the_database(both, database):
    one = create(both[0])
    assert both[0].api("DELETE", f"/sandboxes/{one}")[0] == 204
    wait_until(lambda: database.ask(
        f"SELECT what, node FROM cay.events WHERE sandbox = '{one}' ORDER BY at_ms")
        == [["sandbox.create", "naaa"], ["sandbox.end", "naaa"]], "there are no events")


# --- Sandboxes that return ---

RETURNS = {"metadata": {"cay-return": "true"}}


def snapshot_with(node, sandbox, text):
    of = {"api_url": node.url, "sandbox_url": node.url, "api_key": node.keys["default"]}
    Sandbox.connect(sandbox, **of).files.write("file", text)
    status, made = node.api("POST", f"/sandboxes/{sandbox}/snapshots", {})
    assert status == 201, made


def connect(node, sandbox, **headers):
    return node.api("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 60}, **headers)


def test_a_sandbox_of_a_lost_node_returns_from_its_last_snapshot(both, database):
    one, two = both
    returns, forgets, ruled = create(two, **RETURNS), create(two), create(
        two, **RETURNS, network={"maskRequestHost": "localhost"})
    for text in ("old", "new"):
        snapshot_with(two, returns, text)
    for each in (forgets, ruled):
        snapshot_with(two, each, "x")
    without = create(two, **RETURNS)
    two.kill()
    assert connect(one, returns)[0] == 503  # the lease is not over
    database.ask("UPDATE cay.nodes SET seen = now() - interval '31 s' WHERE id = 'naab'")
    wait_until(lambda: one.api("GET", f"/sandboxes/{returns}")[0] == 404, "it is not lost")
    for each in (forgets, ruled, without):
        status, body = connect(one, each)
        assert (status, "its machine was lost" in body["message"]) == (404, True), body
    other = {"X_API_KEY": new_key(one, database, "judy")}
    assert connect(one, returns, **other)[0] == 404
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: connect(one, returns), range(4)))
    assert {status for status, _ in replies} <= {200, 503}
    status, made = connect(one, returns)
    assert status == 200, made
    ids = {body["sandboxID"] for status, body in replies if status == 200}
    assert ids == {made["sandboxID"]} and made["sandboxID"].startswith("naaa")
    of = {"api_url": one.url, "sandbox_url": one.url, "api_key": one.keys["default"]}
    again = Sandbox.connect(returns, **of)
    assert (again.sandbox_id, again.files.read("file")) == (made["sandboxID"], "new")
    assert again.get_info().metadata == {"cay-return": "true", "cay-returned-from": returns}
    again.kill()
    two.start()
    wait_up(two)
    assert Sandbox.connect(returns, **of | {"api_url": two.url, "sandbox_url": two.url}).sandbox_id == returns
