# SPDX-License-Identifier: Apache-2.0
"""What a sandbox knows of itself, and what it uses (issue 15, section 3)."""

import time

import pytest
from e2b import Sandbox
from serving import PATIENCE, wait_until

NAMES = ("E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID", "E2B_TEAM_ID")
SHOW = "for name in " + " ".join(NAMES) + '; do printf "%s=%s\\n" "$name" "${!name}"; done'
FILES = ("cd /run/e2b && stat -c %a:%U .E2B_SANDBOX .E2B_SANDBOX_ID .E2B_TEMPLATE_ID && "
         "cat .E2B_SANDBOX && echo && cat .E2B_SANDBOX_ID && echo && cat .E2B_TEMPLATE_ID")


def shown(sandbox, **options):
    return dict(line.split("=", 1) for line in
                sandbox.commands.run(SHOW, **options).stdout.splitlines())


def expected(sandbox, template="base", tenant="default"):
    return dict(zip(NAMES, ("true", sandbox.sandbox_id, template, tenant), strict=True))


@pytest.mark.parametrize("options", [(), ("--pool", "1")])
def test_commands_know_their_sandbox(own_server, options):
    server = own_server(*options)
    if options:  # a sandbox that was made before anybody asked for it
        wait_until(lambda: server.has_spares(1), "there is no sandbox ready")
    sandbox = Sandbox.create("code-interpreter-v1:latest", timeout=600)
    wanted = expected(sandbox, "code-interpreter-v1")
    assert shown(sandbox) == wanted
    lies = dict.fromkeys(NAMES, "a lie")
    assert shown(sandbox, envs=lies) == wanted
    assert shown(sandbox, user="root") == wanted
    status, envs = server.api("GET", "/envs", E2b_Sandbox_Id=sandbox.sandbox_id,
                              X_Access_Token=sandbox._envd_access_token)
    assert status == 200 and {name: envs[name] for name in NAMES} == wanted
    text = sandbox.commands.run(FILES).stdout.splitlines()
    assert text == ["444:root"] * 3 + ["true", sandbox.sandbox_id, "code-interpreter-v1"]
    server.restart()  # the next keeper was not there when it was created
    assert shown(sandbox) == wanted
    assert sandbox.kill()


def test_a_sandbox_knows_its_tenant_and_not_what_its_creator_calls_it(server):
    sandbox = Sandbox.create(envs={"E2B_SANDBOX_ID": "a lie", "E2B_TEAM_ID": "another"},
                             **server.options_of("team-1"))
    assert shown(sandbox) == expected(sandbox, tenant="team-1")
    assert sandbox.kill()


def test_the_first_metrics_tell_how_busy_the_processor_is(server, create):
    sandbox = create()
    sandbox.commands.run("while :; do :; done", background=True, timeout=0)
    path = f"/sandboxes/{sandbox.sandbox_id}/metrics"
    status, first = server.api("GET", path)
    assert status == 200 and first[-1]["cpuUsedPct"] > 0, first  # one before it began may be there
    assert first[0]["memTotal"] == 1 << 30
    time.sleep(0.2)
    assert server.api("GET", path)[1][-1]["cpuUsedPct"] > 0


def test_metrics_of_an_idle_sandbox_that_are_asked_for_at_once_are_all_answered(server, sandbox):
    path = f"/sandboxes/{sandbox.sandbox_id}/metrics"
    began = time.monotonic()
    for _ in range(5):
        status, answer = server.api("GET", path)
        assert status == 200 and 0 <= answer[0]["cpuUsedPct"] <= 100 * answer[0]["cpuCount"]
    assert time.monotonic() - began < PATIENCE
