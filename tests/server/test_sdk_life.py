# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for Python, unmodified: sandboxes from their creation to their end."""

import re
from datetime import datetime, timedelta, timezone

import pytest
from e2b import (
    AuthenticationException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
)
from raw import web
from serving import wait_until


def lives(sandbox):
    """Seconds from its start to its end, as it is now."""
    info = sandbox.get_info()
    return (info.end_at - info.started_at).total_seconds()


def is_gone(sandbox):
    try:
        return not sandbox.is_running()
    except SandboxException:
        return True


# --- Creating ---------------------------------------------------------------------------


def test_a_new_sandbox_is_what_was_asked_for(create, server):
    before = datetime.now(timezone.utc)
    sandbox = create(timeout=77, metadata={"who": "me", "empty": ""}, envs={"COLOUR": "blue"})
    assert re.fullmatch("[a-z0-9]+", sandbox.sandbox_id)
    assert sandbox.is_running()
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id
    assert info.template_id == "base"
    assert info.state == SandboxState.RUNNING
    assert info.metadata == {"who": "me", "empty": ""}
    assert info.lifecycle["on_timeout"] == "kill"
    assert (info.end_at - info.started_at).total_seconds() == pytest.approx(77, abs=1)
    assert before - timedelta(seconds=1) < info.started_at < datetime.now(timezone.utc)
    assert info.cpu_count > 0 and info.memory_mb > 0
    assert sandbox.commands.run("echo $COLOUR").stdout == "blue\n"
    assert sandbox.get_host(8080) == f"8080-{sandbox.sandbox_id}.localhost:{server.port}"


def test_a_sandbox_lives_five_minutes_unless_told_otherwise(sandbox):
    assert lives(sandbox) == pytest.approx(300, abs=1)


@pytest.mark.parametrize("template", ["base", "code-interpreter-v1"])
def test_the_names_of_the_default_template_are_known(create, template):
    assert create(template).get_info().template_id == template


def test_an_unknown_template_is_not_found(server):
    with pytest.raises(SandboxException, match="404"):
        Sandbox.create("no-such-template")


@pytest.mark.parametrize("seconds", [-1, 86401 * 400])
def test_a_time_to_live_that_cannot_be_is_refused(server, seconds):
    with pytest.raises(SandboxException, match="400"):
        Sandbox.create(timeout=seconds)


def test_metrics_are_of_this_sandbox(sandbox):
    metrics = sandbox.get_metrics()[-1]
    assert metrics.cpu_count > 0
    assert 0 < metrics.mem_used < metrics.mem_total == 1 << 30
    assert 0 <= metrics.disk_used < metrics.disk_total
    assert abs(datetime.now(timezone.utc) - metrics.timestamp) < timedelta(minutes=5)


@pytest.mark.parametrize("key", ["e2b_00", "e2b_" + "0" * 40, "anything", "e2b_" + "f" * 5000])
def test_a_key_that_is_none_opens_nothing(server, key):
    with pytest.raises(AuthenticationException):
        Sandbox.create(**{**server.options_of("default"), "api_key": key})


# --- Connecting -------------------------------------------------------------------------


def test_a_sandbox_is_found_again_by_its_id(sandbox):
    sandbox.files.write("note", "still here")
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.files.read("note") == "still here"
    assert again.commands.run("echo $E2B_SANDBOX").stdout == "true\n"


def test_connecting_lengthens_a_life_and_never_shortens_it(create):
    sandbox = create(timeout=100)
    Sandbox.connect(sandbox.sandbox_id, timeout=10)
    assert lives(sandbox) >= 99
    Sandbox.connect(sandbox.sandbox_id, timeout=1000)
    assert lives(sandbox) >= 999


def test_what_never_was_is_not_found(server):
    for use in (Sandbox.connect, Sandbox.get_info, Sandbox.pause,
                lambda name: Sandbox.set_timeout(name, 10)):
        with pytest.raises(SandboxNotFoundException):
            use("neverwas")
    assert Sandbox.kill("neverwas") is False


# --- Ending -----------------------------------------------------------------------------


def test_a_killed_sandbox_is_gone(create):
    sandbox = create()
    assert Sandbox.kill(sandbox.sandbox_id) is True
    assert sandbox.is_running() is False
    assert sandbox.kill() is False
    with pytest.raises(SandboxNotFoundException):
        Sandbox.get_info(sandbox.sandbox_id)
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id)
    for use in (lambda: sandbox.commands.run("true"), lambda: sandbox.files.read("x"),
                lambda: sandbox.files.list("/"), lambda: sandbox.commands.list()):
        with pytest.raises(SandboxException):
            use()


def test_a_sandbox_ends_by_itself_when_its_time_is_over(create):
    sandbox = create()
    sandbox.set_timeout(1)
    wait_until(lambda: is_gone(sandbox), "it lives on")
    with pytest.raises(SandboxNotFoundException):
        sandbox.get_info()


def test_a_time_to_live_can_be_set_shorter_and_longer(create):
    sandbox = create(timeout=500)
    for seconds in (50, 5000):
        before = datetime.now(timezone.utc)
        sandbox.set_timeout(seconds)
        left = (sandbox.get_info().end_at - before).total_seconds()
        assert seconds - 1 <= left <= seconds + 60


def test_why_a_sandbox_is_gone_is_said(create):
    killed, expired = create(), create()
    killed.kill()
    expired.set_timeout(1)
    wait_until(lambda: is_gone(expired), "it lives on")

    def told(name):
        answer = web("GET", f"{killed.connection_config.api_url}/sandboxes/{name}",
                     headers={"X-API-KEY": killed.connection_config.api_key})
        assert answer.status_code == 404
        assert answer.json()["code"] == 404
        return answer.json()["message"]

    assert "was killed" in told(killed.sandbox_id)
    assert "reached its end of life" in told(expired.sandbox_id)
    assert told("neverwas") == 'sandbox "neverwas" does not exist'
    assert "invalid sandbox id" in told("sb-abcdefgh234567xy")


# --- Listing ----------------------------------------------------------------------------


def listed(query=None, limit=None, **options):
    pages = Sandbox.list(query=query, limit=limit, **options)
    found = []
    while pages.has_next:
        page = pages.next_items()
        assert limit is None or len(page) <= limit
        found += page
    return [info.sandbox_id for info in found]


def test_the_list_has_the_newest_first_and_can_be_paged(create, server):
    options = server.options_of("pages")
    made = [create(**options).sandbox_id for _ in range(5)][::-1]
    assert listed(**options) == made
    for limit in (1, 2, 5, 100):
        assert listed(limit=limit, **options) == made


def test_a_page_token_that_is_none_is_refused(server):
    with pytest.raises(SandboxException, match="400"):
        Sandbox.list(next_token="%%%", limit=1).next_items()


@pytest.mark.parametrize("value", [
    "plain", "two words", "a=b&c=d", "100%", "%20", "a+b", "ünï¢ødé 😀", "'\"\\;,/?#[]", "",
    "line\nbreak"])
def test_sandboxes_are_found_by_their_metadata(create, value):
    sandbox, _ = create(metadata={"k y&=%": value, "other": "x"}), create(metadata={"k y&=%": "no"})
    assert sandbox.get_info().metadata == {"k y&=%": value, "other": "x"}
    assert listed(SandboxQuery(metadata={"k y&=%": value})) == [sandbox.sandbox_id]
    assert listed(SandboxQuery(metadata={"k y&=%": value, "other": "y"})) == []


def test_sandboxes_are_found_by_state_template_and_start(create, server):
    options = server.options_of("states")
    runs, waits = create(**options), create("code-interpreter-v1", **options)
    waits.pause()

    def found(**query):
        return set(listed(SandboxQuery(**query), **options))

    both = {runs.sandbox_id, waits.sandbox_id}
    assert found() == both
    assert found(state=[SandboxState.RUNNING]) == {runs.sandbox_id}
    assert found(state=[SandboxState.PAUSED]) == {waits.sandbox_id}
    assert found(state=[SandboxState.RUNNING, SandboxState.PAUSED]) == both
    assert found(template="base") == {runs.sandbox_id}
    assert found(template="code-interpreter-v1") == {waits.sandbox_id}
    assert found(started_after=waits.get_info().started_at + timedelta(days=1)) == set()
    assert found(started_after=runs.get_info().started_at - timedelta(seconds=1)) == both


# --- Pausing ----------------------------------------------------------------------------

COUNT = "n=0; while :; do n=$((n+1)); echo $n > n.new; mv n.new n; sleep 0.01; done"


def test_a_process_sleeps_with_its_sandbox_and_goes_on_where_it_was(create):
    sandbox = create()
    counter = sandbox.commands.run(COUNT, background=True, timeout=0)
    counter.disconnect()
    wait_until(lambda: sandbox.files.exists("n"), "it does not count")
    assert sandbox.pause() is True
    assert sandbox.get_info().state == SandboxState.PAUSED
    assert sandbox.is_running() is False
    with pytest.raises(SandboxException):
        sandbox.commands.run("true")
    assert sandbox.pause() is False
    again = Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert again.get_info().state == SandboxState.RUNNING
    seen = int(again.files.read("n"))
    assert seen > 0
    assert [process.pid for process in again.commands.list()] == [counter.pid]
    wait_until(lambda: int(again.files.read("n")) > seen, "it no longer counts")
    assert lives(again) > 0


def test_a_paused_sandbox_can_be_killed(create):
    sandbox = create()
    sandbox.pause()
    assert Sandbox.kill(sandbox.sandbox_id) is True
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id)


def test_a_sandbox_can_be_paused_when_its_time_is_over(create):
    sandbox = create(timeout=1, lifecycle={"on_timeout": "pause"})
    sandbox_id = sandbox.sandbox_id
    wait_until(lambda: Sandbox.get_info(sandbox_id).state == SandboxState.PAUSED, "it runs on")
    assert Sandbox.get_info(sandbox_id).lifecycle["on_timeout"] == "pause"
    again = Sandbox.connect(sandbox_id, timeout=300)
    assert again.commands.run("echo awake").stdout == "awake\n"


def test_a_sandbox_can_be_woken_by_using_it(create):
    sandbox = create(timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True})
    wait_until(lambda: sandbox.get_info().state == SandboxState.PAUSED, "it runs on")
    assert sandbox.commands.run("echo awake").stdout == "awake\n"


# --- What there is not ------------------------------------------------------------------


def outcome(call):
    """What a call gives, or the SDK's exception with the status of the server's refusal."""
    try:
        return call()
    except SandboxException as error:
        assert re.search(r"\b501\b", str(error)), f"neither done nor refused: {error!r}"
        return error


def test_snapshots_and_forks_are_made_or_refused_and_never_pretended(create):
    sandbox = create()
    sandbox.files.write("mark", "of the first")
    snapshot = outcome(sandbox.create_snapshot)
    if not isinstance(snapshot, Exception):
        copy = create(snapshot.snapshot_id)
        assert copy.files.read("mark") == "of the first"
        copy.kill()
        assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
    forks = outcome(lambda: sandbox.fork())
    if not isinstance(forks, Exception):
        for fork in forks if isinstance(forks, list) else [forks]:
            assert fork.files.read("mark") == "of the first"
            fork.kill()


def test_a_network_that_cannot_be_had_is_refused_and_never_pretended(create):
    closed = create(allow_internet_access=False)
    assert closed.get_info().allow_internet_access is False
    assert closed.commands.run("cat /proc/net/dev").stdout.count(":") <= 2  # lo, and perhaps ours
    outcome(lambda: create(network={"deny_out": ["8.8.8.8/32"]}))
    outcome(lambda: closed.update_network({"deny_out": ["8.8.8.8/32"]}))


def test_a_template_cannot_be_deleted_by_mistake(server):
    with pytest.raises((SandboxException, NotFoundException)):
        if Sandbox.delete_snapshot("base") is False:
            raise NotFoundException("not found")
