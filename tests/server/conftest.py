# SPDX-License-Identifier: Apache-2.0
"""One server for all tests of a session, and programs that use it as they would use the
cloud: by what stands in their environment."""

import os

import pytest
from described import undescribed
from serving import CAY, PATIENCE, Server, unavailable  # noqa: F401

os.environ.setdefault("CAY_WARM", "off")  # no processes of their own behind a test


def start_server(factory, *options):
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    return Server(factory.mktemp("home"), "--reserve", "0", *options).start()


@pytest.fixture(scope="session", name="server")
def fixture_server(tmp_path_factory):
    """The one of the session; nothing of it and its sandboxes is left at the end."""
    server = start_server(tmp_path_factory)
    os.environ.update(server.exports)
    yield server
    server.clean()
    assert undescribed(server.home / "access.log") == set(), "docs/openapi.yaml does not tell"


@pytest.fixture(name="own_server")
def fixture_own_server(tmp_path_factory, monkeypatch):
    """Starts servers that the test may kill; the SDK uses the last of them."""
    started = []

    def start(*options):
        started.append(start_server(tmp_path_factory, *options))
        for name, value in started[-1].exports.items():
            monkeypatch.setenv(name, value)
        return started[-1]

    yield start
    for server in started:
        server.clean()


@pytest.fixture(scope="session", name="e2b")
def fixture_e2b(server):
    """The SDK, set up to use the server."""
    import e2b

    return e2b


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
