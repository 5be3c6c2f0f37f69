# SPDX-License-Identifier: Apache-2.0
"""One server for all tests of a session, and programs that use it as they would use the
cloud: by what stands in their environment."""

import os

import pytest
from serving import PATIENCE, Server

MUST_WORK = os.environ.get("CAY_MUST_WORK") == "1"


def unavailable(reason):
    """Skips, or fails where nothing may be skipped."""
    if MUST_WORK:
        pytest.fail(f"would be skipped, but CAY_MUST_WORK=1: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session", name="start_server")
def fixture_start_server(tmp_path_factory):
    """Starts servers; at the end of the session they and their sandboxes are gone."""
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    started = []

    def start(*options):
        started.append(Server(tmp_path_factory.mktemp("home"), *options).start())
        return started[-1]

    yield start
    for server in started:
        server.clean()


@pytest.fixture(scope="session", name="server")
def fixture_server(start_server):
    server = start_server("--reserve", "0")
    os.environ.update(server.exports())
    return server


@pytest.fixture(name="own_server")
def fixture_own_server(start_server, monkeypatch):
    """One that the test may kill."""
    server = start_server("--reserve", "0")
    for name, value in server.exports().items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(name="create")
def fixture_create(server):
    """Sandboxes that are killed at the end of the test."""
    from e2b import Sandbox

    made = []

    def create(*arguments, **options):
        made.append(Sandbox.create(*arguments, **options))
        return made[-1]

    yield create
    for sandbox in made:
        sandbox.kill(request_timeout=PATIENCE)


@pytest.fixture(name="sandbox")
def fixture_sandbox(create):
    return create()


@pytest.fixture(scope="module", name="shared")
def fixture_shared(server):
    """One sandbox for the tests of a file that do not disturb one another."""
    from e2b import Sandbox

    sandbox = Sandbox.create(timeout=3600)
    yield sandbox
    sandbox.kill(request_timeout=PATIENCE)
