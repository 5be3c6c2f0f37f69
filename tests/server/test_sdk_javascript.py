# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for JavaScript, unmodified, a new and an old one: js/run.mjs, line by line."""

import javascript
import pytest


@pytest.fixture(scope="module", name="outcomes")
def fixture_outcomes(server):
    """What the script printed, once for each of the packages."""
    known = {}
    env = {**server.exports, "CAY_OTHER_KEY": server.options_of("javascript")["api_key"]}

    def outcomes(package):
        if package not in known:
            known[package] = javascript.run("run.mjs", package, env)
        return known[package]

    return outcomes


@pytest.mark.parametrize("name", javascript.names("run.mjs"))
@pytest.mark.parametrize("package", ["e2b-2.45", "e2b"])
def test_javascript(outcomes, package, name):
    javascript.check(outcomes(package), name)
