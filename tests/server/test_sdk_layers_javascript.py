# SPDX-License-Identifier: Apache-2.0
"""Forks, snapshots and pauses without memory, with the E2B SDK for JavaScript, a new and an
old one: js/layers.mjs and js/cold.mjs, test by test."""

import javascript
import pytest
from conftest import start_server

PACKAGES = pytest.mark.parametrize("package", ["e2b-2.45", "e2b"])


@pytest.fixture(scope="module", name="on_disk")
def fixture_on_disk(tmp_path_factory):
    """A server whose sandboxes are on disk."""
    server = start_server(tmp_path_factory, "--storage", "disk")
    yield server
    server.clean()


@pytest.fixture(scope="module", name="outcome")
def fixture_outcome():
    """What a script printed, once for each of the packages."""
    known = {}

    def outcome(script, package, server):
        if (script, package) not in known:
            known[script, package] = javascript.run(script, package, server.exports)
        return known[script, package]

    return outcome


@pytest.mark.parametrize("name", javascript.names("layers.mjs"))
@PACKAGES
def test_forks_and_snapshots(outcome, server, package, name):
    javascript.check(outcome("layers.mjs", package, server), name)


@pytest.mark.parametrize("name", javascript.names("cold.mjs"))
@PACKAGES
def test_pauses_without_memory(outcome, on_disk, package, name):
    javascript.check(outcome("cold.mjs", package, on_disk), name)
