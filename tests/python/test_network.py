# SPDX-License-Identifier: Apache-2.0
"""Network rules in Python."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

import cay
from cay.errors import CayError, SandboxExistsError, SandboxValueError
from cay.sandbox import NetworkLimits


@pytest.mark.parametrize(
    "host, arguments, verdict, rule",
    [
        ("pypi.org", {}, "deny", "default"),
        ("pypi.org", {"network": "host"}, "allow", "default"),
        ("pypi.org", {"network": "rules"}, "deny", "default"),
        ("pypi.org", {"network": "open"}, "allow", "default"),
        ("pypi.org", {"allow": ["pypi"]}, "allow", "pypi.org (pypi)"),
        ("pypi.org", {"allow": ["pypi"], "deny": ["*.org"]}, "deny", "!*.org"),
        ("pypi.org", {"allow": ["pypi"], "port": 22}, "deny", "default"),
        ("pypi.org", {"allow": ["pypi"], "address": "10.0.0.1"}, "deny", "default"),
        ("a.test", {"allow": ["GET a.test/v1/*"]}, "requests", "GET a.test/v1/*"),
        ("a.test", {"allow": ["GET a.test/v1/*"], "path": "/v1/x"}, "allow", "GET a.test/v1/*"),
        ("a.test", {"allow": ["GET a.test"], "method": "PUT"}, "deny", "default"),
    ],
)
def test_an_explanation_names_the_rule(
    host: str, arguments: dict[str, Any], verdict: str, rule: str
) -> None:
    answer = cay.explain_network(host, **arguments)
    assert (answer.verdict, answer.rule) == (verdict, rule)
    assert answer.why


def test_rules_are_added_to_those_of_a_policy_file(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("network: {allow: [a.test], groups: {pypi: m.test}}\n")
    rules = {
        host: cay.explain_network(host, policy=policy, allow=["pypi"]).rule
        for host in ("a.test", "m.test", "b.test")
    }
    assert rules == {"a.test": "a.test", "m.test": "m.test (pypi)", "b.test": "default"}
    assert cay.explain_network("a.test", policy=policy).verdict == "allow"


@pytest.mark.parametrize(
    "arguments, hint",
    [
        ({"allow": ["pypy"]}, "did you mean pypi?"),
        ({"allow": ["a..test"]}, "a label is empty"),
        ({"deny": ["pypi"]}, 'add allow=["pypi"]'),
        ({"network": "host", "allow": ["pypi"]}, 'use network="open"'),
        ({"network": "bridge"}, "none, host, rules, open"),
        ({"network": "open", "port": 70000}, "at most 65535"),
        ({"network": "open", "address": "x"}, "192.0.2.1"),
    ],
)
def test_a_mistake_is_answered_with_what_is_allowed(
    arguments: dict[str, Any], hint: str
) -> None:
    with pytest.raises(CayError) as raised:
        cay.explain_network("a.test", **arguments)
    assert isinstance(raised.value, SandboxValueError)
    assert hint in raised.value.hint


def test_a_string_is_not_a_list_of_rules() -> None:
    with pytest.raises(TypeError, match="allow: expected a list, not a string"):
        cay.explain_network("a.test", allow="pypi")


@pytest.mark.parametrize(
    ("arguments", "resolves"),
    [
        ({}, [False, False]),
        ({"allow": ["pypi"]}, [True, False]),
        ({"network": "open"}, [True, True]),
    ],
)
def test_names_that_the_rules_allow_have_addresses_inside(
    arguments: dict[str, Any], resolves: list[bool]
) -> None:
    with cay.Sandbox.create(**arguments) as sandbox:
        lookups = [
            sandbox.exec(["getent", "ahostsv4", name])
            for name in ("pypi.org", "unlisted.test")
        ]
    assert [lookup.exit_code == 0 for lookup in lookups] == resolves


def test_rules_of_a_running_sandbox_are_changed() -> None:
    with cay.Sandbox.create(allow=["pypi"], network_limit="connections=9") as sandbox:
        assert sandbox.network().limits == NetworkLimits(9, None, None)
        lookup = ["getent", "ahostsv4", "unlisted.test"]
        assert sandbox.exec(lookup).exit_code != 0
        sandbox.change_network(allow=["unlisted.test"])
        assert sandbox.exec(lookup).exit_code == 0
        shown = sandbox.network()
        assert (shown.network, shown.rules[-1].rule) == ("rules", "unlisted.test")
        assert shown.rules[0].group == "pypi" and shown.refused > 0
        sandbox.change_network(deny=["a.test"], replace=True)
        assert [rule.rule for rule in sandbox.network().rules] == ["!a.test"]
        assert sandbox.exec(lookup).exit_code != 0
        sandbox.change_network(network_limit="bytes=2M,connections=none")
        assert sandbox.network().limits == NetworkLimits(None, 2 << 20, None)
        with pytest.raises(SandboxValueError, match="connections=64"):
            sandbox.change_network(network_limit="speed=1")
        sandbox.change_network("open", replace=True)
        assert sandbox.exec(lookup).exit_code == 0
        assert sandbox.network().network == sandbox.inspect().network == "open"
        with pytest.raises(SandboxValueError, match="rules, open"):
            sandbox.change_network("host")  # type: ignore[arg-type]
        with pytest.raises(SandboxValueError):
            sandbox.change_network(allow=["a..test"])
        assert sandbox.network().rules == []


def test_attempts_are_events() -> None:
    with cay.Sandbox.create(network="rules") as sandbox:
        assert sandbox.network_events() == []
        sandbox.exec(["getent", "ahostsv4", "unlisted.test"])
        first = sandbox.network_events()
        assert {(each.event, each.verdict, each.name, each.rule) for each in first} == {
            ("lookup", "deny", "unlisted.test", "default")
        }
        assert sandbox.network_events(after=first[-1].number) == []
        sandbox.exec(["getent", "ahostsv4", "other.test"])
        later = sandbox.network_events(after=first[-1].number)
        assert {each.name for each in later} == {"other.test"}
        assert sandbox.network().events == later[-1].number


def test_an_asynchronous_sandbox_changes_its_rules() -> None:
    async def work() -> list[str]:
        async with await cay.AsyncSandbox.create(network="rules") as sandbox:
            await sandbox.change_network(allow=["a.test"])
            await sandbox.exec(["getent", "ahostsv4", "b.test"])
            names = {str(each.name) for each in await sandbox.network_events()}
            return [rule.rule for rule in (await sandbox.network()).rules] + sorted(names)

    assert asyncio.run(work()) == ["a.test", "b.test"]


def test_a_sandbox_without_a_network_cannot_get_rules() -> None:
    with cay.Sandbox.create() as sandbox:
        assert (sandbox.network().network, sandbox.network().rules) == ("none", [])
        with pytest.raises(CayError, match="created without a network"):
            sandbox.change_network(allow=["pypi"])


def test_sandboxes_of_one_network_find_each_other_by_name() -> None:
    network = f"python-{os.getpid()}"
    with cay.Sandbox.create(networks=[f"{network}:one"]) as one, cay.Sandbox.create(
        networks=[f"{network}:two", f"{network}:alias"]
    ) as two, cay.Sandbox.create() as other:
        assert two.inspect().networks == (f"{network}:two", f"{network}:alias")
        assert other.inspect().networks == ()
        for name in ("two", "alias"):
            assert one.exec(["getent", "hosts", name]).exit_code == 0
            assert other.exec(["getent", "hosts", name]).exit_code == 2
        with pytest.raises(SandboxExistsError):
            cay.Sandbox.create(networks=[f"{network}:one"])


def test_a_spare_of_a_pool_joins_networks_when_it_is_claimed() -> None:
    network = f"pool-{os.getpid()}"
    with cay.Pool(2, network="rules") as pool, cay.Sandbox.create(
        networks=[f"{network}:first"]
    ) as first:
        pool.wait(timeout=100)
        with cay.Sandbox.create(networks=[f"{network}:claimed", network], pool=pool) as one:
            while pool.stats().claimed != 1:
                time.sleep(0.01)
            assert one.inspect().networks == (f"{network}:claimed", f"{network}:{one.id}")
            assert one.exec(["getent", "hosts", "first"]).exit_code == 0
            for name in ("claimed", one.id):
                assert first.exec(["getent", "hosts", name]).exit_code == 0
            with pytest.raises(SandboxExistsError, match=f"{one.id} has this name"):
                cay.Sandbox.create(networks=[f"{network}:claimed"], pool=pool)
            with cay.Sandbox.create(allow=["example.com"], pool=pool) as alone:
                assert alone.inspect().networks == ()
                assert alone.exec(["getent", "hosts", "claimed"]).exit_code == 2


def test_networks_is_a_list_of_names() -> None:
    with pytest.raises(TypeError, match="networks: expected a list, not a string"):
        cay.Sandbox.create(networks="net")
    with pytest.raises(SandboxValueError, match="invalid name of a network"):
        cay.Sandbox.create(networks=["a b"])
