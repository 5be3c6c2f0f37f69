# SPDX-License-Identifier: Apache-2.0
"""Network rules: which one decides, those of a sandbox, and what it tried to reach."""

from __future__ import annotations

import os
from collections.abc import Iterable
from ctypes import byref, c_void_p, sizeof
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from cay import _c
from cay.filesystem.config import SandboxConfig
from cay.sandbox import options as _options
from cay.sandbox.options import Network, Policy


@dataclass(frozen=True)
class NetworkAnswer:
    """What the rules say about a connection or a request."""

    verdict: Literal["allow", "deny", "requests"]
    """requests: some HTTP requests are allowed"""
    rule: str
    """the rule that decides, or "default\""""
    why: str
    """one or two sentences"""


@dataclass(frozen=True)
class NetworkRule:
    """One rule of a sandbox."""

    rule: str
    """in its one spelling; "!" before it denies"""
    group: str | None
    """the group that it comes from"""


@dataclass(frozen=True)
class NetworkLimits:
    """What all connections of a sandbox may use together; None: no limit."""

    connections: int | None
    """at a time"""
    bytes: int | None
    """in all"""
    rate: int | None
    """bytes a second"""


@dataclass(frozen=True)
class NetworkInfo:
    """The network of a sandbox: its rules, and what was counted."""

    network: Literal["none", "rules", "open"]
    rules: list[NetworkRule]
    allow_first: bool
    """rules that allow come before rules that deny, as in E2B's API"""
    allowed: int
    """connections"""
    refused: int
    """connections, lookups and packets"""
    up_bytes: int
    down_bytes: int
    events: int
    events_lost: int
    """events that were too many to be reported"""
    connections: int
    """open now"""
    limits: NetworkLimits


@dataclass(frozen=True)
class NetworkEvent:
    """Something that a sandbox tried to reach."""

    number: int
    """from 1"""
    time: datetime
    event: Literal["lookup", "connect", "close", "packet", "request"]
    """lookup: a refused question of DNS; close: the end of an allowed connection; request:
    one of HTTP that was refused, or got a secret"""
    verdict: Literal["allow", "deny"]
    name: str | None
    address: str | None
    port: int
    protocol: int
    """6: TCP, 17: UDP, 1: ICMP"""
    rule: str
    """the rule that decided, or "default\""""
    up_bytes: int
    down_bytes: int
    duration_ms: int
    lost: int
    """events before this one that were too many to be reported"""
    pid: int | None
    """the process, as it is inside; None if it was not found in time"""
    uid: int | None
    program: str | None
    """its name, which it chooses"""

    @classmethod
    def _of(cls, event: Any) -> NetworkEvent:
        return cls(
            number=event.number,
            time=datetime.fromtimestamp(event.time_ms / 1000, timezone.utc),
            event=_c.NETWORK_EVENTS[event.kind],  # type: ignore[arg-type]
            verdict=_c.REACHES[event.verdict],  # type: ignore[arg-type]
            name=event.name.decode() or None,
            address=event.address.decode() or None,
            port=event.port,
            protocol=event.protocol,
            rule=event.rule.decode(),
            up_bytes=event.up_bytes,
            down_bytes=event.down_bytes,
            duration_ms=event.duration_ms,
            lost=event.lost,
            pid=event.pid or None,
            uid=event.uid if event.pid else None,
            program=event.program.decode() if event.pid else None,
        )


def network_of(handle: Any) -> NetworkInfo:
    """The network of the sandbox with this handle of C."""
    policy, rule, counts = c_void_p(), _c.NetworkRule(), _c.NetworkCounts()
    limits = _c.NetworkLimits()
    _c.call(_c.sandbox_get_network, handle, byref(policy))
    rules: list[NetworkRule] = []
    try:
        while _c.policy_network_rule(policy, len(rules), byref(rule)):
            rules.append(NetworkRule(rule.text.decode(), rule.group.decode() or None))
        network = _c.NETWORKS[_c.policy_network(policy)]
        allow_first = _c.policy_allows_first(policy)
        _c.policy_network_limits(policy, byref(limits))
    finally:
        _c.policy_free(policy)
    if network != "none":
        _c.call(_c.sandbox_count_network, handle, byref(counts))
    return NetworkInfo(
        network=network,  # type: ignore[arg-type]
        rules=rules,
        allow_first=allow_first,
        allowed=counts.allowed,
        refused=counts.refused,
        up_bytes=counts.up_bytes,
        down_bytes=counts.down_bytes,
        events=counts.events,
        events_lost=counts.events_lost,
        connections=counts.connections,
        limits=NetworkLimits(
            limits.connections or None, limits.bytes or None, limits.rate or None
        ),
    )


def explain_network(
    host: str,
    port: int | None = None,
    *,
    network: Network = "none",
    allow: Iterable[str] = (),
    deny: Iterable[str] = (),
    policy: SandboxConfig | str | os.PathLike[str] | None = None,
    address: str | None = None,
    method: str | None = None,
    path: str | None = None,
) -> NetworkAnswer:
    """Whether a sandbox with these arguments of Sandbox.create() may reach a host.

    Without a ``port``: whether any port may be reached.  ``address`` is one that the name
    leads to; ``method`` and ``path`` are those of an HTTP request.  Nothing is looked up.
    """
    query = _c.NetworkQuery(
        size=sizeof(_c.NetworkQuery),
        host=_options.text(host, "host"),
        port=0 if port is None else _options.parse_size(port, "port", 2**16 - 1),
        address=_options.optional(address, "address"),
        method=_options.optional(method, "method"),
        path=_options.optional(path, "path"),
    )
    answer = _c.NetworkAnswer()
    with Policy(policy) as c_policy:
        if c_policy.add_network(network, allow, deny):
            return NetworkAnswer("allow", "default", "It uses the network of the host.")
        if c_policy.pointer is None:
            return NetworkAnswer("deny", "default", "The sandbox has no network.")
        _c.call(
            _c.policy_explain_network, c_policy.pointer, byref(query), byref(answer)
        )
    verdict = _c.REACHES[answer.verdict]
    return NetworkAnswer(verdict, answer.rule.decode(), answer.why.decode())  # type: ignore[arg-type]
