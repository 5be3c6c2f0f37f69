# SPDX-License-Identifier: Apache-2.0
"""Which rule decides about a connection."""

from __future__ import annotations

import os
from collections.abc import Iterable
from ctypes import byref, sizeof
from dataclasses import dataclass
from typing import Literal

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
