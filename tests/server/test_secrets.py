# SPDX-License-Identifier: Apache-2.0
"""Stored secrets of tenants, with the real SDK."""

import pytest
from e2b import Secret
from e2b.exceptions import SecretException, SecretNotFoundException

VALUE = "value-of-the-tests/9f8e7d6c"


@pytest.fixture(name="tenant")
def fixture_tenant(server):
    """Arguments for the SDK; all secrets of the tenant are removed."""
    options = server.options_of("vault")
    yield options
    for one in every(options):
        assert Secret.destroy(one.secret_id, **options)


def every(options, limit=None):
    pages, found = Secret.list(limit=limit, **options), []
    while pages.has_next:
        found += pages.next_items()
    return found


def test_a_secret_is_created_changed_listed_and_removed(server, tenant):
    made = Secret.create("Api-Key", VALUE, {"team": "red"}, **tenant)
    assert (made.name, made.version, made.metadata) == ("api-key", 1, {"team": "red"})
    assert made.secret_id.startswith("sec_") and made.created_at == made.updated_at
    changed = Secret.update("api-key", VALUE + "2", **tenant)
    assert (changed.secret_id, changed.version, changed.metadata) == (made.secret_id, 2, {"team": "red"})
    changed = Secret.update(made.secret_id, VALUE + "3", {}, **tenant)
    assert (changed.version, changed.metadata) == (3, {})
    assert changed.updated_at > changed.created_at == made.created_at
    assert Secret.get_info("API-KEY", **tenant) == changed == Secret.get_info(made.secret_id, **tenant)
    assert every(tenant) == [changed]
    assert Secret.destroy("api-key", **tenant) and not Secret.destroy("api-key", **tenant)
    with pytest.raises(SecretNotFoundException):
        Secret.get_info("api-key", **tenant)
    with pytest.raises(SecretNotFoundException):
        Secret.update("api-key", VALUE, **tenant)


def test_a_list_has_pages(tenant):
    names = [f"secret-{number}" for number in range(5)]
    for name in reversed(names):
        Secret.create(name, VALUE, **tenant)
    assert [one.name for one in every(tenant, limit=2)] == names


def test_tenants_do_not_see_each_others_secrets(server, tenant):
    made = Secret.create("api-key", VALUE, **tenant)
    other = server.options_of("other")
    assert every(other) == [] and not Secret.destroy(made.secret_id, **other)
    for which in ("api-key", made.secret_id):
        with pytest.raises(SecretNotFoundException):
            Secret.get_info(which, **other)
        with pytest.raises(SecretNotFoundException):
            Secret.update(which, VALUE, **other)
    own = Secret.create("api-key", VALUE, **other)
    assert own.secret_id != made.secret_id and Secret.destroy("api-key", **other)


@pytest.mark.parametrize("body, status", [
    ({"name": "a b", "value": VALUE}, 400), ({"name": "sec_x", "value": VALUE}, 400),
    ({"name": "x" * 129, "value": VALUE}, 400), ({"name": "", "value": VALUE}, 400),
    ({"name": "x", "value": "tiny"}, 400), ({"name": "x", "value": "y" * 4097}, 400),
    ({"name": "x", "value": "two\nlines-of-text"}, 400), ({"name": "x"}, 400), ({"value": VALUE}, 400),
    ({"name": "x", "value": 12345678}, 400), ({"name": "x", "value": VALUE, "metadata": []}, 400),
    ({"name": "x", "value": VALUE, "metadata": {str(i): "" for i in range(33)}}, 400),
    ({"name": "x", "value": VALUE, "metadata": {"k" * 129: ""}}, 400),
    ({"name": "x", "value": VALUE, "metadata": {"k": "v" * 1025}}, 400),
    ({"name": "x", "value": VALUE, "metadata": {str(i): "v" * 1000 for i in range(9)}}, 400)])
def test_invalid_secrets_are_refused_without_the_value(server, tenant, body, status):
    got, answer = server.api("POST", "/secrets", body, X_API_KEY=tenant["api_key"])
    assert (got, answer["code"]) == (status, status), answer
    assert str(body.get("value", VALUE)) not in answer["message"] and every(tenant) == []


def test_a_name_is_used_once(tenant):
    Secret.create("api-key", VALUE, **tenant)
    with pytest.raises(SecretException, match="409"):
        Secret.create("API-key", VALUE, **tenant)


def test_no_file_of_the_server_has_the_value(server, tenant):
    Secret.create("api-key", VALUE, **tenant)
    Secret.update("api-key", VALUE + "2", **tenant)
    for path in server.home.rglob("*"):
        if path.is_file():
            assert VALUE.encode() not in path.read_bytes(), path
    assert "api-key\tvault\t2" in server.cay("secret", "ls").stdout
