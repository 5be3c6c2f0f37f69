# SPDX-License-Identifier: Apache-2.0
"""GET /metrics: what it counts, and that readers of OpenMetrics and Prometheus take it."""

import os
import signal
import sqlite3
import time
import urllib.request
from contextlib import closing
from datetime import datetime, timedelta, timezone

import pytest
from serving import PATIENCE, name_of, wait_until

OPEN = "application/openmetrics-text; version=1.0.0"


def read(server, accept=OPEN):
    request = urllib.request.Request(f"{server.url}/metrics",
                                     headers={"X-API-KEY": server.key, "Accept": accept})
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def samples(server):
    """{(name, labels): value}, by the parser of OpenMetrics, which refuses what is no such text."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    kind, text = read(server)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    return {(one.name, *sorted(one.labels.items())): one.value
            for family in parser.text_string_to_metric_families(text) for one in family.samples}


def value(server, name, **labels):
    return samples(server)[(name, *sorted(labels.items()))]


def test_both_formats_have_the_same_samples(server):
    classic = pytest.importorskip("prometheus_client.parser")
    kind, text = read(server, "text/plain")
    assert kind.startswith("text/plain; version=0.0.4") and "# EOF" not in text
    families = list(classic.text_string_to_metric_families(text))
    assert all(family.type != "unknown" and family.documentation for family in families)
    names = {one.name for family in families for one in family.samples}
    assert names == {key[0] for key in samples(server)}


def test_sandboxes_are_counted_by_state_template_and_class(own_server):
    from e2b import Sandbox

    server = own_server()
    before = samples(server)
    assert {key for key in before if key[0] == "cay_sandboxes"} == {
        ("cay_sandboxes", ("state", state), ("template", "(other)"), ("tenant_class", kind))
        for state in ("running", "paused") for kind in ("default", "other")}
    first = Sandbox.create("base", timeout=300)
    second = Sandbox.create("base", timeout=300, **server.options_of("team"))
    first.commands.run("true")
    first.files.write("/home/user/a", "b")
    second.pause()
    now = samples(server)
    for state, kind, count in (("running", "default", 1), ("paused", "other", 1),
                               ("paused", "default", 0)):
        assert now[("cay_sandboxes", ("state", state), ("template", "base"),
                    ("tenant_class", kind))] == count
    assert now[("cay_creates_total",)] - before[("cay_creates_total",)] == 2
    for name in ("create", "exec_start", "file", "request"):
        assert now[(f"cay_{name}_seconds_count",)] > 0 and now[(f"cay_{name}_seconds_sum",)] > 0
        assert now[(f"cay_{name}_seconds_bucket", ("le", "+Inf"))] == now[(f"cay_{name}_seconds_count",)]
    first.kill()
    second.kill()
    assert value(server, "cay_sandboxes_ended_total", reason="killed") == 2


def test_failed_creates_are_counted_by_their_reason(own_server):
    server = own_server()
    for template, expected in (("no-such-template", 404), ("base", 501)):
        body = {"templateID": template, "timeout": 60, "allow_internet_access": template == "base"}
        assert server.api("POST", "/v2/sandboxes", body)[0] == expected
    assert value(server, "cay_create_failures_total", reason="template") == 1
    assert value(server, "cay_create_failures_total", reason="unsupported") == 1
    assert value(server, "cay_creates_total") == 0


def test_lost_processes_are_counted(own_server):
    from e2b import Sandbox

    server = own_server()
    with Sandbox.create(timeout=300) as sandbox:
        sandbox.commands.run("true")
        for keeper in server.keepers():
            os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: value(server, "cay_restarts_total", process="keeper") >= 1, "no count")
        front = server.front()
        os.kill(front, signal.SIGKILL)
        wait_until(lambda: server.front() != front, "no new front")
        server.first_front = server.front()
        assert value(server, "cay_restarts_total", process="front") == 1
        assert value(server, "cay_open_files", process="broker") > 5
        assert value(server, "cay_unwritten_rows") == 0
        sandbox.kill()


def test_a_server_that_was_killed_is_counted_and_one_that_was_stopped_is_not(own_server):
    server = own_server()
    for number in range(3):
        assert value(server, "cay_restarts_total", process="broker") == number
        server.stop()
        server.start()
        assert value(server, "cay_restarts_total", process="broker") == number
        server.restart()


def test_clients_cannot_add_series(server):
    before = set(samples(server))
    for number in range(20):
        server.api("GET", f"/sandboxes/x{number}")
        server.api("POST", "/v2/sandboxes", {"templateID": f"none{number}", "timeout": 60})
        server.api("GET", f"/no/{number}")
    assert set(samples(server)) == before


def test_a_key_is_needed(server):
    assert server.api("GET", "/metrics", X_API_KEY="wrong")[0] == 401


# --- What sandboxes use ---


def history(server, sandbox, query=""):
    status, found = server.api("GET", f"/sandboxes/{sandbox.sandbox_id}/metrics{query}")
    assert status == 200
    return found


def test_the_history_of_a_sandbox_is_read_with_the_sdk(own_server):
    from e2b import Sandbox

    server = own_server()
    with Sandbox.create(timeout=300) as sandbox:
        born = datetime.now(timezone.utc)
        sandbox.commands.run("while :; do :; done", background=True)
        found = wait_until(lambda: (many := sandbox.get_metrics())[2:] and many, "no history")
        assert [one.timestamp for one in found] == sorted({one.timestamp for one in found})
        assert all(born - timedelta(seconds=10) < one.timestamp < born + timedelta(seconds=PATIENCE)
                   for one in found)
        assert max(one.cpu_used_pct for one in found) > 10
        assert all(0 < one.mem_used < one.mem_total for one in found)
        assert sandbox.get_metrics(end=born - timedelta(seconds=60)) == []
        period = sandbox.get_metrics(start=born - timedelta(seconds=10), end=found[0].timestamp)
        assert [one.timestamp for one in period][0] == found[0].timestamp
        assert sandbox.get_metrics(start=born + timedelta(days=1)) == []
        server.restart()  # and outlives the server
        assert history(server, sandbox)[0]["timestampUnix"] == int(found[0].timestamp.timestamp())
        sandbox.kill()


def test_the_metrics_of_several_sandboxes_are_of_their_tenant(own_server):
    from e2b import Sandbox

    server = own_server()
    mine = [Sandbox.create(timeout=300) for _ in range(2)]
    foreign = Sandbox.create(timeout=300, **server.options_of("team"))
    ids = ",".join(one.sandbox_id for one in (*mine, foreign)) + ",none,../x"

    def both():
        status, found = server.api("GET", f"/sandboxes/metrics?sandbox_ids={ids}")
        assert status == 200
        return found["sandboxes"] if len(found["sandboxes"]) > 1 else None

    found = wait_until(both, "no samples")
    assert set(found) == {one.sandbox_id for one in mine}
    assert all(0 < one["memUsed"] < one["memTotal"] for one in found.values())
    for query in ("", "?sandbox_ids=", "?sandbox_ids=" + "a," * 101):
        assert server.api("GET", f"/sandboxes/metrics{query}")[0] == 400
    used = samples(server)
    label = ("template", "base")
    assert used[("cay_sandbox_memory_bytes", label, ("tenant_class", "default"))] > \
        used[("cay_sandbox_memory_bytes", label, ("tenant_class", "other"))] > 0
    largest = [used[("cay_sandbox_top", ("rank", str(rank)), ("resource", "memory"))] for rank in range(1, 6)]
    assert largest == sorted(largest, reverse=True) and largest[2] > 0 and largest[3] == 0
    for one in (*mine, foreign):
        one.kill()


def test_a_sampler_that_ends_is_replaced(own_server):
    server = own_server()
    first = wait_until(lambda: sampler(server), "no sampler")
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: sampler(server) != first and sampler(server), "no new one")
    assert value(server, "cay_sampler_restarts_total") == 1
    assert value(server, "cay_history_failures_total") == 0


def sampler(server):
    return next((pid for pid in server.children() if name_of(pid) == "cay-sampler"), None)


def test_samples_become_fewer_with_age(own_server):
    """Those of the last quarter of an hour stay, of older ones one in a minute, for a day."""
    from e2b import Sandbox

    server = own_server()
    with Sandbox.create(timeout=300) as sandbox:
        wait_until(lambda: len(history(server, sandbox)) > 1, "no sample")
        minute, now = 60000, int(time.time() * 1000)
        ages = {"recent": 14 * minute, "fine": 16 * minute, "hours": 600 * minute, "days": 1500 * minute}
        times = {name: (now - age) // minute * minute for name, age in ages.items()}
        times["fine"] += 5000
        with closing(sqlite3.connect(server.home / "serve.db-history", timeout=PATIENCE)) as store, store:
            (columns,) = store.execute("SELECT count(*) FROM pragma_table_info('samples')").fetchone()
            for at in times.values():
                store.execute(f"INSERT INTO samples VALUES (?, ?, ?{', 1' * (columns - 3)})",
                              (sandbox.sandbox_id, at, at % minute != 0))
        server.restart()  # which prunes with the first round
        known = {at // 1000: name for name, at in times.items()}

        def kept():
            return {known.get(one["timestampUnix"]) for one in history(server, sandbox)} - {None}

        wait_until(lambda: kept() == {"recent", "hours"}, kept)
        sandbox.kill()


def test_a_history_that_is_damaged_is_replaced(own_server):
    server = own_server()
    server.stop()
    (server.home / "serve.db-history").write_bytes(b"no database, but a text that is long enough" * 200)
    server.start()
    assert value(server, "cay_history_failures_total") == 0
    with closing(sqlite3.connect(server.home / "serve.db-history", timeout=PATIENCE)) as store:
        assert store.execute("SELECT count(*) FROM samples").fetchone() == (0,)
