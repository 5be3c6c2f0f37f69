# SPDX-License-Identifier: Apache-2.0
"""Several services of one compose file: their network, their order, their health."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.util import SandboxEnvironment
from native import ledger, traces
from test_inspect_compose import BASE, write
from test_inspect_provider import clean, make, run

from cay.errors import SandboxUnavailableError
from cay.inspect import CaySandboxEnvironment, health, pools
from cay.inspect.compose import start_order
from cay.inspect.environment import _services
from cay.sandbox import SandboxValueError

SERVER = "python3 -m http.server --directory /etc 8000"
FETCH = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=100).status)
"""
CHECK = {"test": "cat /tmp/up", "interval": "1s", "retries": 100}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts the services of a compose file, and ends them."""
    made: list[dict[str, SandboxEnvironment]] = []

    def start(services: dict[str, Any], **top: Any) -> dict[str, SandboxEnvironment]:
        made.append(make(write(tmp_path, services, **top)))
        return made[-1]

    with ledger() as ids:
        yield start
        for each in made:
            clean(each)
        assert traces(ids) == []
    assert not [name for name in member_links() if os.readlink(name) in ids]


def member_links() -> list[Path]:
    return [*Path("/run/cay/networks").glob("*")]


def info(environment: SandboxEnvironment) -> Any:
    return environment.as_type(CaySandboxEnvironment).sandbox.sync.inspect()


def finds(environment: SandboxEnvironment, *names: str) -> list[bool]:
    return [run(environment.exec, ["getent", "hosts", name]).success for name in names]


# --- Networks ------------------------------------------------------------------------------


def test_services_reach_each_other_by_name(started: Any) -> None:
    check = {"test": ["CMD", "python3", "-c", FETCH, "http://127.0.0.1:8000/passwd"]}
    made = started(
        {
            "default": {**BASE, "depends_on": {"web": {"condition": "service_healthy"}}},
            "web": {**BASE, "command": SERVER, "healthcheck": check, "ports": ["8000"]},
        }
    )
    result = run(made["default"].exec, ["python3", "-c", FETCH, "http://web:8000/passwd"])
    assert result.stdout == "200\n"
    assert finds(made["web"], "default", "web", "other", "example.com") == [
        *(True, True, False, False)
    ]


def test_samples_of_one_file_do_not_see_each_other(started: Any) -> None:
    services = {"default": BASE, "db": {**BASE, "command": SERVER}}
    one, two = started(services), started(services)
    run(one["db"].write_file, "/tmp/up", "one")
    networks = {name for each in (one, two) for name in info(each["db"]).networks}
    assert len(networks) == 2 and all(name.endswith("-default:db") for name in networks)
    run(CaySandboxEnvironment.sample_cleanup, "t", None, {"db": two["db"]}, False)
    while finds(two["default"], "db") != [False]:
        time.sleep(0.01)
    assert finds(one["default"], "db") == [True]


def test_services_are_in_the_networks_that_they_name(started: Any) -> None:
    made = started(
        {
            "default": {**BASE, "networks": ["front", "back"]},
            "web": {**BASE, "networks": {"front": {"aliases": ["www", "Site.test"]}}},
            "db": {**BASE, "networks": {"back": None}},
            "alone": {**BASE, "network_mode": "none"},
        },
        networks={"front": None, "back": {"internal": True, "driver": "bridge"}},
    )
    assert finds(made["default"], "web", "www", "site.test", "db", "alone") == [
        *(True, True, True, True, False)
    ]
    assert finds(made["web"], "default", "db") == [True, False]
    assert finds(made["db"], "default", "web", "www") == [True, False, False]
    assert finds(made["alone"], "default", "web", "db") == [False, False, False]
    assert info(made["alone"]).network == "none"


def test_the_only_service_of_a_file_has_no_network_unless_it_names_one(
    tmp_path: Path,
) -> None:
    (alone,) = _services(write(tmp_path, {"default": BASE}), {})
    assert (alone.networks, alone.config.network) == ((), "none")
    (named,) = _services(write(tmp_path, {"a": {**BASE, "networks": ["default"]}}), {})
    assert (named.networks, named.config.network) == (("default:a",), "rules")


def test_network_rules_of_a_service_go_with_its_network(started: Any) -> None:
    made = started({"default": {**BASE, "x-cay-allow": ["example.com"]}, "db": BASE})
    assert finds(made["default"], "db", "example.com") == [True, True]
    assert finds(made["db"], "default", "example.com") == [True, False]


def test_services_use_sandboxes_that_are_created_ahead(tmp_path: Path) -> None:
    services = {"default": {**BASE, "x-cay-allow": ["example.com"]}, "db": BASE}
    file = write(tmp_path, services)
    run(CaySandboxEnvironment.task_init, "ahead", file)
    try:
        (pool,) = {pools.find(one.config) for one in _services(file, {})}
        assert pool is not None
        pool.wait(timeout=120)
        made = make(file)
        assert finds(made["default"], "db", "example.com") == [True, True]
        assert finds(made["db"], "default", "example.com") == [True, False]
        clean(made)
        while pool.stats().claimed < 2:
            time.sleep(0.01)
    finally:
        run(CaySandboxEnvironment.task_cleanup, "ahead", file, True)


# --- Order and health ----------------------------------------------------------------------


def test_a_service_starts_after_those_that_it_depends_on(tmp_path: Path) -> None:
    services = {
        "default": {**BASE, "depends_on": ["web", "db"]},
        "web": {**BASE, "depends_on": {"db": {"condition": "service_started"}}},
        "db": {**BASE, "depends_on": {"no": {"required": False}}},
    }
    found = _services(write(tmp_path, services), {})
    assert found[0].name == "default"
    assert [one.name for one in start_order(found)] == ["db", "web", "default"]


def test_a_command_starts_when_the_service_before_it_is_healthy(started: Any) -> None:
    made = started(
        {
            "db": {**BASE, "command": "sh -c 'sleep 1; date +%s%N >/tmp/up'"}
            | {"healthcheck": CHECK},
            "default": {
                **BASE,
                "command": "sh -c 'date +%s%N >/tmp/started'",
                "depends_on": {"db": {"condition": "service_healthy"}},
            },
        }
    )
    up = int(run(made["db"].read_file, "/tmp/up"))
    while not (found := run(made["default"].exec, ["cat", "/tmp/started"]).stdout):
        time.sleep(0.01)
    assert int(found) > up


def test_a_sample_starts_when_every_service_is_healthy(started: Any) -> None:
    made = started(
        {
            "default": BASE,
            "db": {**BASE, "command": "sh -c 'sleep 1; echo x >/tmp/up'"}
            | {"healthcheck": CHECK},
        }
    )
    assert run(made["db"].read_file, "/tmp/up") == "x\n"


def test_a_command_starts_when_the_one_before_it_has_succeeded(started: Any) -> None:
    made = started(
        {
            "first": {**BASE, "command": "sh -c 'sleep 1; date +%s%N >/tmp/done'"},
            "default": {
                **BASE,
                "command": "sh -c 'date +%s%N >/tmp/started'",
                "depends_on": {"first": {"condition": "service_completed_successfully"}},
            },
        }
    )
    done = int(run(made["first"].read_file, "/tmp/done"))
    while not (found := run(made["default"].exec, ["cat", "/tmp/started"]).stdout):
        time.sleep(0.01)
    assert int(found) > done


@pytest.mark.parametrize("condition", ["service_healthy", "service_completed_successfully"])
def test_a_command_that_fails_fails_the_sample_at_once(
    tmp_path: Path, condition: str
) -> None:
    failing = {"command": "sh -c 'echo no disk >&2; exit 3'", "healthcheck": {"test": "false"}}
    services = {
        "default": {**BASE, "depends_on": {"db": {"condition": condition}}},
        "db": {**BASE, **failing},  # its check would fail after 90 seconds
    }
    begin = time.monotonic()
    with ledger(), pytest.raises(SandboxUnavailableError, match="'db': its command.*no disk"):
        make(write(tmp_path, services))
    assert time.monotonic() - begin < 60


def test_a_service_that_is_not_healthy_fails_the_sample(tmp_path: Path) -> None:
    check = {"test": "echo no luck; exit 7", "interval": "10ms", "retries": 2}
    services = {"default": BASE, "db": {**BASE, "healthcheck": check}}
    with ledger() as ids:
        with pytest.raises(SandboxUnavailableError, match="'db': not healthy: 2 .*no luck"):
            make(write(tmp_path, services))
        assert len(ids) == 2 and traces(ids) == []


def test_failures_count_after_the_start_period_and_the_interval(tmp_path: Path) -> None:
    check = {"test": "cat /tmp/none", "interval": "200ms", "retries": 2}
    for start_period, least in (("0s", 0.4), ("600ms", 1.0)):
        check["start_period"] = start_period
        begin = time.monotonic()
        with ledger(), pytest.raises(SandboxUnavailableError, match="No such file"):
            make(write(tmp_path, {"default": {**BASE, "healthcheck": check}}))
        assert time.monotonic() - begin >= least


def test_a_check_that_takes_too_long_is_a_failure(tmp_path: Path) -> None:
    check = {"test": ["CMD", "sleep", "100"], "timeout": "10ms", "interval": "10ms"}
    with ledger(), pytest.raises(SandboxUnavailableError, match="3 checks failed"):
        make(write(tmp_path, {"default": {**BASE, "healthcheck": check}}))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("1m30s", 90), ("1h", 3600), ("500ms", 0.5), ("1.5s", 1.5), ("0", 0)],
)
def test_durations_are_those_of_compose(text: str, seconds: float) -> None:
    assert health._seconds("interval", text) == pytest.approx(seconds)


@pytest.mark.parametrize("test", [["NONE"], None])
def test_a_check_may_be_none(tmp_path: Path, test: Any) -> None:
    (service,) = _services(write(tmp_path, {"a": {**BASE, "healthcheck": {"test": test}}}), {})
    assert service.health is None


# --- What is refused -----------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"networks": ["none"]}, {}, "networks: there is no network 'none'"),
    ({"networks": {"n": {"ipv4_address": "10.0.0.1"}}}, {"n": {}}, "n: ipv4_address: not"),
    ({"networks": {"n": {"aliases": ["a b"]}}}, {"n": {}}, "invalid host name 'a b'"),
    ({"networks": {"n": {"aliases": ["10.0.0.1"]}}}, {"n": {}}, "invalid host name"),
    ({"networks": {"n": {"aliases": ["db"]}}}, {"n": {}}, "'db' is a name of 'a' in the network 'n', too"),
    ({"networks": {"n": {"aliases": ["x" * 60] * 4}}}, {"n": {}}, "too long"),
    ({"networks": ["n"], "network_mode": "none"}, {"n": {}}, "network_mode is in no network"),
    ({"x-cay-network": "host"}, {}, "set network_mode: host"),
    ({}, {"n": {"external": True}}, "networks: n: external: not supported"),
    ({}, {"n": {"ipam": {}}}, "networks: n: ipam: not supported"),
    ({}, {"n": {"driver": "overlay"}}, "networks: n: driver: 'overlay'"),
    ({}, {"n n": {}}, "networks: n n: invalid name"),
    ({"depends_on": ["no"]}, {}, "depends_on: there is no service 'no'"),
    ({"depends_on": ["db"]}, {}, "depends_on: 'db' on 'a' on 'db'|'a' on 'db' on 'a'"),
    (
        {"depends_on": {"c": {"condition": "service_healthy"}}},
        {},
        "service_healthy of 'c', which has no healthcheck",
    ),
    (
        {"depends_on": {"c": {"condition": "service_completed_successfully"}}},
        {},
        "service_completed_successfully of 'c', which has no command",
    ),
    ({"depends_on": {"c": {"condition": "soon"}}}, {}, "'soon'.*or service_healthy or"),
    ({"healthcheck": {"test": ["curl", "x"]}}, {}, "healthcheck: test: invalid.*CMD-SHELL"),
    ({"healthcheck": {"test": []}}, {}, "healthcheck: test: invalid"),
    ({"healthcheck": {"test": "x", "interval": "soon"}}, {}, "healthcheck: interval: .*'soon'"),
    ({"healthcheck": {"test": "x", "timeout": "5"}}, {}, "healthcheck: timeout: .*'5'"),
    ({"healthcheck": {"test": "x", "retries": -1}}, {}, "healthcheck: retries: .*-1"),
]


def refused(tmp_path: Path, keys: dict[str, Any], networks: dict[str, Any]) -> str:
    services = {
        "a": {**BASE, "x-default": True, **keys},
        "db": {**BASE, "depends_on": ["a"], "networks": ["default", *networks]},
        "c": BASE,
    }
    with pytest.raises(SandboxValueError) as caught:
        _services(write(tmp_path, services, networks=networks), {})
    return str(caught.value)


@pytest.mark.parametrize(("keys", "networks", "said"), REFUSED)
def test_what_services_cannot_have_is_refused(
    tmp_path: Path, keys: dict[str, Any], networks: dict[str, Any], said: str
) -> None:
    assert re.search(said, refused(tmp_path, keys, networks))


def test_problems_between_services_are_reported_with_all_others(tmp_path: Path) -> None:
    keys = {
        "networks": ["none"],
        "depends_on": ["no"],
        "healthcheck": {"test": []},
        "devices": ["/dev/kvm"],
    }
    said = refused(tmp_path, keys, {"n": {"ipam": {}}})
    assert said.startswith("the compose file: 5 problems:")


# --- An eval -------------------------------------------------------------------------------

TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

@solver
def attack():
    async def solve(state, generate):
        fetch = ["python3", "-c", "import urllib.request as r; "
                 "print(r.urlopen('http://victim:8000/flag').read().decode())"]
        state.output.completion = (await sandbox().exec(fetch)).stdout
        log = (await sandbox("victim").exec(["cat", "log"])).stdout
        assert "GET /flag" in log, log
        return state
    return solve

@task
def capture():
    samples = [Sample("go", target=flag, files={"victim:www/flag": flag}) for flag in "abc"]
    return Task(dataset=samples, solver=attack(), scorer=includes(),
                sandbox=("cay", "compose.yaml"))
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_services_of_a_sample_work_together_in_an_eval(tmp_path: Path, backend: str) -> None:
    victim = f"victim{os.getpid()}"
    server = "sh -c 'mkdir www; python3 -u -m http.server -d www 8000 >log 2>&1'"
    check = {"test": "cat log | grep Serving", "interval": "1s", "retries": 600}
    write(
        tmp_path,
        {
            "attacker": {
                **BASE,
                "x-default": True,
                "depends_on": {victim: {"condition": "service_healthy"}},
            },
            victim: {**BASE, "command": server, "healthcheck": check},
        },
    )
    (tmp_path / "task.py").write_text(TASK.replace("victim", victim))
    program = Path(sys.executable).with_name("inspect")
    done = subprocess.run(
        [program, "eval", "task.py", "--model=mockllm/model", "--display=none"]
        + ["--log-format=json", "--log-dir=logs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "INSPECT_ASYNC_BACKEND": backend, "HOME": str(tmp_path)},
        timeout=500,
    )
    (log,) = (tmp_path / "logs").glob("*.json")
    text = log.read_text()
    assert '"status": "success"' in text, done.stdout + done.stderr + text
    assert re.search(r'"accuracy",\s+"value": 1.0', text), text
    assert not [one for one in member_links() if victim in one.name]
