# SPDX-License-Identifier: Apache-2.0
"""API keys and tenants over HTTP: what admin keys may do, and other keys may not."""

import json
import re
import subprocess

import pytest
from serving import CAY, PATIENCE

FORM = re.compile("e2b_[0-9a-f]{40}")


def new_admin(server, tenant="default"):
    done = server.cay("key", "new", "--admin", tenant)
    assert done.returncode == 0 and FORM.fullmatch(done.stdout.strip()), done
    return done.stdout.strip()


@pytest.fixture(scope="module", name="admin")
def fixture_admin(server):
    return new_admin(server, "operator")


@pytest.fixture(name="call")
def fixture_call(server, admin):
    """A request with the admin key, or with another one."""
    def call(method, path, body=None, key=admin):
        return server.api(method, path, body, X_API_KEY=key)
    return call


def test_an_admin_key_creates_names_and_revokes_keys_of_a_tenant(server, call):
    keys = "/admin/tenants/acme/keys"
    assert call("GET", keys) == (200, [])
    status, made = call("POST", keys, {"name": "ci"})
    assert status == 201 and FORM.fullmatch(made["key"]) and not made["admin"]
    assert made["mask"] == {"prefix": "e2b_", "valueLength": 40, "maskedValuePrefix": made["key"][4:10],
                            "maskedValueSuffix": ""}
    assert server.api("GET", "/v2/sandboxes", X_API_KEY=made["key"])[0] == 200
    assert call("PATCH", f"{keys}/{made['id']}", {"name": "grüße <b>"})[0] == 204
    (listed,) = call("GET", keys)[1]
    assert listed == {name: value for name, value in made.items() if name != "key"} | {"name": "grüße <b>"}
    assert call("GET", "/api-keys", key=made["key"]) == (200, [listed])
    (tenant,) = [one for one in call("GET", "/admin/tenants")[1] if one["name"] == "acme"]
    assert tenant == {"name": "acme", "keys": 1, "running": 0, "paused": 0}
    assert call("DELETE", f"{keys}/{made['id']}")[0] == 204
    assert server.api("GET", "/v2/sandboxes", X_API_KEY=made["key"])[0] == 401
    assert call("DELETE", f"{keys}/{made['id']}")[0] == 404
    assert "acme" not in {one["name"] for one in call("GET", "/admin/tenants")[1]}


def test_e2bs_route_is_about_the_own_tenant(call):
    status, made = call("POST", "/api-keys", {"name": "second"})
    assert status == 201
    assert {one["name"] for one in call("GET", "/api-keys")[1]} == {"", "second"}
    assert [one["admin"] for one in call("GET", "/api-keys")[1]] == [True, False]
    assert call("PATCH", f"/api-keys/{made['id']}", {"name": "third"})[0] == 204
    assert call("GET", "/admin/tenants/operator/keys")[1] == call("GET", "/api-keys")[1]
    assert call("DELETE", f"/api-keys/{made['id']}")[0] == 204


def test_tenants_have_the_number_of_their_sandboxes(call, shared):
    assert shared.is_running()
    (own,) = [one for one in call("GET", "/admin/tenants")[1] if one["name"] == "default"]
    assert own["running"] >= 1 and own["keys"] >= 1


@pytest.mark.parametrize("method, path, body", [
    ("POST", "/api-keys", {"name": "more"}), ("PATCH", "/api-keys/ID", {"name": "other"}), ("DELETE", "/api-keys/ID", None),
    ("GET", "/admin/tenants", None), ("GET", "/admin/tenants/default/keys", None), ("GET", "/admin/tenants/operator/keys", None),
    ("POST", "/admin/tenants/operator/keys", {"name": "mine"}), ("PATCH", "/admin/tenants/default/keys/ID", {"name": "x"}),
    ("DELETE", "/admin/tenants/default/keys/ID", None)])
def test_a_key_that_is_no_admin_key_only_lists_its_own_tenant(server, call, method, path, body):
    own = call("GET", "/api-keys", key=server.keys["default"])[1]
    path = path.replace("ID", own[0]["id"])
    status, answer = call(method, path, body, key=server.keys["default"])
    assert (status, answer["code"]) == (403, 403) and "admin" in answer["message"]
    assert call(method, path, body, key="e2b_" + "0" * 40)[0] == 401
    assert call("GET", "/api-keys", key=server.keys["default"])[1] == own
    assert all(set(one) == {"id", "name", "mask", "createdAt", "admin"} for one in own)


def test_an_id_of_another_tenant_is_unknown(server, call):
    (own, *_) = call("GET", "/api-keys", key=server.keys["default"])[1]
    for method, body in (("PATCH", {"name": "x"}), ("DELETE", None)):
        assert call(method, f"/api-keys/{own['id']}", body)[0] == 404
        assert call(method, f"/admin/tenants/operator/keys/{own['id']}", body)[0] == 404
        assert call(method, "/api-keys/1", body)[0] == 404
    assert own in call("GET", "/api-keys", key=server.keys["default"])[1]


@pytest.mark.parametrize("path, body", [
    ("/api-keys", None), ("/api-keys", []), ("/api-keys", {}), ("/api-keys", {"name": 1}), ("/api-keys", {"name": ""}),
    ("/api-keys", {"name": "a\nb"}), ("/api-keys", {"name": "a\x7f"}), ("/api-keys", {"name": "x" * 129}),
    ("/admin/tenants/a%20b/keys", {"name": "x"}), ("/admin/tenants/..%2F/keys", {"name": "x"}),
    (f"/admin/tenants/{'t' * 64}/keys", {"name": "x"})])
def test_invalid_names_are_refused(call, path, body):
    before = call("GET", "/admin/tenants")
    status, answer = call("POST", path, body)
    assert status == 400 and answer["message"], answer
    assert call("GET", "/admin/tenants") == before


def test_a_session_reports_whether_its_key_is_an_admin_key(server, admin):
    from test_ui_session import Browser

    for key, wanted in ((admin, True), (server.keys["default"], False)):
        browser = Browser(server, key)
        assert browser.call("GET", "/ui/session")[2]["admin"] is wanted
        assert browser.call("GET", "/admin/tenants")[0] == (200 if wanted else 403)


def test_changes_of_keys_are_in_the_audit_record(own_server):
    server = own_server()
    admin = new_admin(server)
    _, made = server.api("POST", "/admin/tenants/acme/keys", {"name": "ci"}, X_API_KEY=admin)
    server.api("PATCH", f"/admin/tenants/acme/keys/{made['id']}", {"name": "two"}, X_API_KEY=admin)
    server.api("DELETE", f"/admin/tenants/acme/keys/{made['id']}", X_API_KEY=admin)
    server.api("POST", "/api-keys", {"name": "none"}, X_API_KEY=server.key)
    assert server.api("GET", "/ready")[0] == 200
    done = subprocess.run([CAY, "audit", "export"], env=server.env, capture_output=True, text=True, timeout=PATIENCE, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(one["action"], one["verdict"], one["details"]) for one in lines if one["action"].startswith("key.")]
    assert found == [("key.create", "allow", {"name": "ci", "of": "acme"}),
                     ("key.rename", "allow", {"key": made["id"], "name": "two"}),
                     ("key.remove", "allow", {"key": made["id"], "of": "acme"}),
                     ("key.create", "deny", {"name": "none", "of": ""})]
    assert made["key"] not in done.stdout


def test_the_command_lists_admin_keys_and_names(own_server):
    server = own_server()
    admin = new_admin(server)
    assert server.api("POST", "/api-keys", {"name": "named"}, X_API_KEY=admin)[0] == 201
    rows = [line.split("\t") for line in server.cay("key", "ls").stdout.splitlines()]
    assert [row[4:] for row in rows[-2:]] == [["admin"], ["", "named"]]
    keys = json.loads(server.cay("key", "-o", "json", "ls").stdout)["keys"]
    assert [(one["admin"], one.get("name")) for one in keys[-2:]] == [(True, None), (False, "named")]
    server.cay("key", "rm", rows[-2][0])
    assert server.api("GET", "/admin/tenants", X_API_KEY=admin)[0] == 401
    for words in (["ls", "--admin"], ["new", "--admin", "a", "b"]):
        done = subprocess.run([CAY, "key", *words], env=server.env, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 2 and "cay key new" in done.stderr
    done = subprocess.run([CAY, "key", "--store", "postgresql://x@127.0.0.1/none", "new", "--admin"], env=server.env,
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0 and "admin keys" in done.stderr
