# SPDX-License-Identifier: Apache-2.0
"""E2B's code interpreter for JavaScript, unmodified: js/code.mjs, line by line."""

import javascript
import pytest


@pytest.fixture(scope="module", name="done")
def fixture_done(server):
    return javascript.run("code.mjs", "@e2b/code-interpreter", server.exports)


@pytest.mark.parametrize("name", javascript.names("code.mjs"))
def test_code_interpreter_for_javascript(done, name):
    javascript.check(done, name)
