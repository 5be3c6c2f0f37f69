# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for Python, unmodified: tenants who cannot see each other, and keys."""

import pytest
from e2b import Sandbox, SandboxException, SandboxNotFoundException, SandboxQuery
from raw import web


def ids(**options):
    return {info.sandbox_id for info in Sandbox.list(**options).next_items()}


def test_tenants_do_not_see_each_others_sandboxes(create, server):
    anna, berta = server.options_of("anna"), server.options_of("berta")
    of_anna = create(metadata={"shared": "word"}, **anna)
    of_berta = create(metadata={"shared": "word"}, **berta)
    assert ids(**anna) == {of_anna.sandbox_id}
    assert ids(**berta) == {of_berta.sandbox_id}
    assert ids(query=SandboxQuery(metadata={"shared": "word"}), **anna) == {of_anna.sandbox_id}


def test_a_tenant_can_do_nothing_with_anothers_sandbox(create, server):
    anna, berta = server.options_of("anna"), server.options_of("berta")
    sandbox = create(**anna)
    name = sandbox.sandbox_id
    assert Sandbox.kill(name, **berta) is False
    for use in (Sandbox.connect, Sandbox.get_info, Sandbox.pause,
                lambda name, **options: Sandbox.set_timeout(name, 1, **options)):
        with pytest.raises(SandboxNotFoundException):
            use(name, **berta)
    for method in (Sandbox.get_metrics, Sandbox.create_snapshot, Sandbox.fork,
                   lambda name, **options: Sandbox.update_network(name, {}, **options)):
        with pytest.raises(SandboxException):
            method(name, **berta)
    assert sandbox.is_running()
    assert sandbox.commands.run("echo fine").stdout == "fine\n"


def test_a_foreign_sandbox_and_none_are_refused_in_the_same_words(create, server):
    """An error does not reveal which ids exist."""
    name = create(**server.options_of("anna")).sandbox_id
    headers = {"X-API-KEY": server.options_of("berta")["api_key"]}
    for method, path, body in (("GET", "", None), ("DELETE", "", None), ("GET", "/metrics", None),
                               ("POST", "/timeout", {"timeout": 10}), ("POST", "/pause", {}),
                               ("POST", "/connect", {"timeout": 10}), ("POST", "/resume", {}),
                               ("POST", "/refreshes", {"duration": 10}), ("POST", "/fork", {}),
                               ("PUT", "/network", {}), ("POST", "/snapshots", {}),
                               ("GET", "/logs", None)):
        answers = [web(method, f"{server.url}/sandboxes/{one}{path}", headers=headers, json=body)
                   for one in (name, "x" * len(name))]
        foreign, none = ((a.status_code, a.text.replace(one, "ID"))
                         for a, one in zip(answers, (name, "x" * len(name))))
        assert foreign == none, (method, path)
        assert foreign[0] >= 400, (method, path)


def test_the_token_of_one_sandbox_opens_no_other(create, server):
    mine, other = create(**server.options_of("anna")), create(**server.options_of("anna"))
    foreign = create(**server.options_of("berta"))
    for victim in (other, foreign):
        for token in (mine._envd_access_token, "", None, "0" * 64, mine._envd_access_token + "0"):
            headers = {"E2b-Sandbox-Id": victim.sandbox_id, "E2b-Sandbox-Port": "49983"}
            if token is not None:
                headers["X-Access-Token"] = token
            for method, path in (("GET", "/files?path=/etc/passwd"), ("POST", "/files?path=/tmp/x"),
                                 ("POST", "/process.Process/List"), ("GET", "/envs"),
                                 ("POST", "/filesystem.Filesystem/ListDir"), ("GET", "/metrics")):
                kind = "application/json" if "." in path else "application/octet-stream"
                answer = web(method, server.url + path, content=b"{}" * (method != "GET"),
                             headers={**headers, "Content-Type": kind})
                assert answer.status_code == 401, (method, path, token)
        assert not victim.files.exists("/tmp/x")


def test_a_key_is_no_token_and_a_token_no_key(create, server):
    sandbox = create(**server.options_of("anna"))
    token = sandbox._envd_access_token
    assert web("GET", f"{server.url}/v2/sandboxes", headers={"X-API-KEY": token}).status_code == 401
    key = server.options_of("anna")["api_key"]
    answer = web("GET", f"{server.url}/files?path=/etc/passwd", headers={
        "E2b-Sandbox-Id": sandbox.sandbox_id, "X-Access-Token": key})
    assert answer.status_code == 401


# --- Keys -------------------------------------------------------------------------------


def test_keys_made_while_it_runs_are_valid_at_once(server):
    for number in range(4):
        assert ids(**server.options_of(f"late{number}")) == set()


def test_two_keys_of_a_tenant_see_the_same_sandboxes(create, server):
    second = {**server.options_of("anna"), "api_key": server.new_key("anna")}
    sandbox = create(**server.options_of("anna"))
    assert sandbox.sandbox_id in ids(**second)
    assert Sandbox.kill(sandbox.sandbox_id, **second) is True


def test_what_was_made_after_a_new_key_survives_a_crash(own_server):
    """A process that writes a key leaves the records of the running server intact."""
    server = own_server()
    server.new_key("somebody")
    sandbox = Sandbox.create()
    another = server.options_of("another")
    server.restart()
    assert ids() == {sandbox.sandbox_id}
    assert ids(**another) == set()
    assert sandbox.commands.run("echo fine").stdout == "fine\n"
    assert sandbox.kill() is True


def test_what_keys_are_kept_as_is_of_no_use_to_a_reader(server):
    paths = [*server.home.glob("serve.db*"), *server.home.glob("serve.db-audit/*")]
    kept = b"".join(path.read_bytes() for path in paths if path.is_file())
    for tenant in ("anna", "berta"):
        assert server.options_of(tenant)["api_key"].encode() not in kept
        assert server.options_of(tenant)["api_key"][4:].encode() not in kept
        assert bytes.fromhex(server.options_of(tenant)["api_key"][4:]) not in kept
    for path in server.home.glob("serve.*"):
        assert path.stat().st_mode & 0o077 == 0, path
