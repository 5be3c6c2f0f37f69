# SPDX-License-Identifier: Apache-2.0
"""E2B sandboxes from Python: the document's example, and where the API key goes."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import worlds
from conftest import unavailable

from cay.nexau import (
    AgentConfig,
    E2BSandbox,
    E2BSandboxConfig,
    E2BSandboxManager,
    InMemoryDatabaseEngine,
    SandboxError,
    SandboxNotFoundError,
    SandboxStatus,
    SessionManager,
    parse_sandbox_config,
)
from cay.sandbox import SandboxUnavailableError

pytestmark = pytest.mark.skipif(
    not worlds.PEER.exists(), reason="there is nothing that speaks E2B's protocol here"
)


@pytest.fixture(params=["peer", "serve"])
def service(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of the peer, or of a server of our own; worlds.KEY is its key."""
    if request.param == "serve" and os.geteuid() != 0:
        unavailable("the tests of sandboxes are run by root")
    with worlds.peer() if request.param == "peer" else worlds.cay_serve() as url:
        monkeypatch.setattr(worlds, "KEY", os.environ["CAY_TEST_KEY"])
        monkeypatch.setenv("E2B_API_URL", url)
        monkeypatch.setenv("E2B_SANDBOX_URL", url)
        monkeypatch.delenv("E2B_API_KEY", raising=False)
        yield url


def test_the_documents_example(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_API_KEY", worlds.KEY)
    # Initialize session manager
    session_manager = SessionManager(engine=InMemoryDatabaseEngine.get_shared_instance())

    # Create sandbox manager
    sandbox_manager = E2BSandboxManager(template="base", timeout=300)

    # Start sandbox with session integration
    sandbox_config = {"type": "e2b"}
    sandbox = sandbox_manager.start(
        session_manager=session_manager,
        user_id="user_123",
        session_id="e2b_456",
        sandbox_config=sandbox_config,
    )
    assert (
        sandbox.execute_bash("echo 'Hello from sandbox'").stdout == "Hello from sandbox\n"
    )
    assert sandbox_manager.pause() is True

    # Start with existing sandbox_id - will reconnect instead of creating new
    again = E2BSandboxManager(template="base", timeout=300).start(
        session_manager=session_manager,
        user_id="user_123",
        session_id="another_456",
        sandbox_config={"type": "e2b", "sandbox_id": sandbox.sandbox_id},
    )
    assert again.sandbox_id == sandbox.sandbox_id
    assert sandbox_manager.stop() is True
    with pytest.raises(SandboxNotFoundError):
        sandbox_manager.start(
            session_manager,
            "user_123",
            "session_789",
            {"type": "e2b", "sandbox_id": sandbox.sandbox_id},
        )


def everything_in(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "where", ["manager", "configuration", "environment", "reference"]
)
def test_a_key_is_never_stored(
    where: str, service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAY_HOME", str(tmp_path))
    options: dict[str, Any] = {}
    config: dict[str, Any] = {"type": "e2b"}
    if where == "manager":
        options["api_key"] = worlds.KEY
    elif where == "configuration":
        config["api_key"] = worlds.KEY
    elif where == "environment":
        monkeypatch.setenv("E2B_API_KEY", worlds.KEY)
    else:
        config["api_key"] = "${env.CAY_TEST_KEY}"
    manager = E2BSandboxManager(**options)
    sandbox = manager.start(SessionManager(), "u", "s", config)
    assert sandbox.execute_bash("echo hi").stdout == "hi\n"

    assert worlds.KEY.encode() not in everything_in(tmp_path)
    session = asyncio.run(SessionManager().get_session("u", "s"))
    assert session is not None and session.sandbox_state is not None
    stored = session.sandbox_state["config"].get("api_key")
    assert stored == ("${env.CAY_TEST_KEY}" if where == "reference" else None)
    for told in (repr(sandbox), repr(manager), str(sandbox), json.dumps(sandbox.dict())):
        assert worlds.KEY not in told

    again = E2BSandboxManager(**options).start(SessionManager(), "u", "s", config)
    assert again.sandbox_id == sandbox.sandbox_id
    if where == "reference":
        assert E2BSandbox(**session.sandbox_state).execute_bash("echo hi").exit_code == 0
    elif where != "environment":
        with pytest.raises(SandboxError, match="no API key given"):
            E2BSandbox(**session.sandbox_state).execute_bash("true")
    assert manager.stop() is True


def test_a_wrong_key_is_told_without_the_key(service: str) -> None:
    with pytest.raises(SandboxError) as refused:
        E2BSandboxManager(api_key="e2b_secret0").start(None, "u", "s", {})
    assert "e2b_secret0" not in str(refused.value)


def test_keys_are_not_shown() -> None:
    for made in (E2BSandboxConfig(api_key="x1y2"), E2BSandboxManager(api_key="x1y2")):
        assert "x1y2" not in repr(made)


def test_the_documents_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("E2B_API_KEY", "e2b_0123")
    file = tmp_path / "agent.yaml"
    file.write_text(
        """
sandbox_config:
  type: e2b
  _work_dir: /home/user # Optional, default to `/home/user` in E2B
  template: base  # E2B template name, default to "base"
  timeout: 300    # Timeout in seconds, default to 300
  api_key: ${env.E2B_API_KEY}  # Use environment variable
  persist_sandbox: true  # Optional, default to true.
  metadata:
    project: my_project
    environment: production
  envs:
    CUSTOM_VAR: value
"""
    )
    config = AgentConfig.from_yaml(file).sandbox_config
    assert isinstance(config, E2BSandboxConfig)
    assert config == E2BSandboxConfig(
        work_dir="/home/user",
        api_key="${env.E2B_API_KEY}",
        metadata={"project": "my_project", "environment": "production"},
        envs={"CUSTOM_VAR": "value"},
    )
    assert (config.template, config.timeout, config.status_after_run) == (
        "base",
        300,
        "pause",
    )


def test_what_is_said_reaches_the_service(service: str) -> None:
    manager = E2BSandboxManager(api_key=worlds.KEY, metadata={"who": "manager"})
    sandbox = manager.start(
        None, "u", "s", {"envs": {"A": "b"}, "work_dir": "/home/user/w"}
    )
    assert sandbox.execute_bash("echo $A").stdout == "b\n"
    assert sandbox.envs == {"A": "b"} and str(sandbox.work_dir) == "/home/user/w"
    assert sandbox.config["metadata"] == {"who": "manager"}
    assert manager.stop() is True


def test_what_is_written_goes_before_the_manager_and_the_environment(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("E2B_TIMEOUT", "7")
    monkeypatch.setenv("E2B_TEMPLATE", "other")
    for options in ({}, {"timeout": 20, "template": "mine"}):
        manager = E2BSandboxManager(api_key=worlds.KEY, **options)
        sandbox = manager.start(None, "u", "s", {"timeout": 300, "template": "base"})
        told = (sandbox.config["timeout"], sandbox.config["template"])
        assert told == (300, "base") and manager.stop() is True


def test_whether_something_exists_is_not_known_without_the_server() -> None:
    with worlds.peer() as url:
        keys = {"api_key": worlds.KEY, "api_url": url, "sandbox_url": url}
        sandbox = E2BSandbox.create(**keys, max_retries=0)
        assert sandbox.file_exists("none") is False
    with pytest.raises(SandboxUnavailableError):
        sandbox.file_exists("none")


def ask(url: str, method: str = "GET", body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"X-API-KEY": worlds.KEY, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        text = reply.read()
    return json.loads(text) if text else None


def test_use_prolongs_a_life_and_never_shortens_it(service: str) -> None:
    manager = E2BSandboxManager(api_key=worlds.KEY, timeout=600)
    sandbox = manager.start(None, "u", "s", {"keepalive_interval": 1})
    address = f"{service}/sandboxes/{sandbox.sandbox_id}"

    def end_after_use() -> str:
        time.sleep(1.1)  # for it to be due
        assert sandbox.execute_bash("true").exit_code == 0
        return str(ask(address)["endAt"])

    first = str(ask(address)["endAt"])
    assert end_after_use() > first
    ask(f"{address}/timeout", "POST", {"timeout": 1800})  # the user's own
    longer = str(ask(address)["endAt"])
    assert end_after_use() == longer
    assert manager.stop() is True


def test_what_the_service_refuses_is_told_as_what_it_is(service: str) -> None:
    with pytest.raises(SandboxError, match="template"):
        E2BSandboxManager(api_key=worlds.KEY, template="no-such-template").start(
            None, "u", "s", {}
        )
    manager = E2BSandboxManager(api_key=worlds.KEY)
    sandbox = manager.start(None, "u", "s", {})
    ask(f"{service}/sandboxes/{sandbox.sandbox_id}", "DELETE")
    gone = sandbox.execute_bash("true")
    assert gone.status == SandboxStatus.ERROR and "ended" in str(gone.error)


def test_a_domain_with_plain_http_is_enough(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("E2B_API_URL", "E2B_SANDBOX_URL"):
        monkeypatch.delenv(name)
    config = {"domain": f"localhost:{service.rsplit(':', 1)[1]}", "force_http": True}
    manager = E2BSandboxManager(api_key=worlds.KEY)
    sandbox = manager.start(None, "u", "s", config)
    assert sandbox.execute_bash("echo hi").stdout == "hi\n"
    assert sandbox.write_file("f", "x").status == SandboxStatus.SUCCESS
    assert sandbox.read_file("f").content == "x"
    assert manager.stop() is True


def test_the_usual_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (E2BSandboxManager().template, E2BSandboxManager().timeout) == ("base", 300)
    monkeypatch.setenv("E2B_TEMPLATE", "mine")
    monkeypatch.setenv("E2B_TIMEOUT", "77")
    monkeypatch.setenv("E2B_FORCE_HTTP", "Yes")
    assert (E2BSandboxManager().template, E2BSandboxManager().timeout) == ("mine", 77)
    assert E2BSandboxConfig().force_http is True
    values = E2BSandboxManager()._values({"type": "e2b", "timeout": "88"})
    assert (values["template"], values["timeout"]) == ("mine", 88)
    config = parse_sandbox_config({"type": "e2b", "max_retries": 0})
    assert isinstance(config, E2BSandboxConfig) and config.max_retries == 0


def test_the_object_of_e2bs_own_package_is_the_same_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Section 6 of issue 15: E2BSandbox.sandbox was missing."""
    pytest.importorskip("e2b")
    if os.geteuid() != 0:
        unavailable("the tests of sandboxes are run by root")
    assert E2BSandbox().sandbox is None
    with worlds.cay_serve() as url:
        monkeypatch.setenv("E2B_API_KEY", os.environ["CAY_TEST_KEY"])
        ours = E2BSandbox.create(api_url=url, sandbox_url=url)
        raw = ours.sandbox
        assert raw.sandbox_id == ours.sandbox_id and ours.sandbox is raw
        raw.files.write("/home/user/f", "from the package")
        assert ours.read_file("f").content == "from the package"
        copied = copy.deepcopy(ours)
        assert copied._raw is None and copied.dict() == ours.dict()
        other = E2BSandbox(config=dict(ours.config))
        other.sandbox = raw
        assert other.sandbox_id == ours.sandbox_id
        assert other.read_file("f").content == "from the package"
        ours.remove()
