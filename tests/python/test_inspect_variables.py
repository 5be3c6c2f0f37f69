# SPDX-License-Identifier: Apache-2.0
"""Variables in compose files and in the files that env_file names."""

from __future__ import annotations

import pytest

from cay.inspect.variables import interpolate
from cay.sandbox import SandboxValueError

SET = {"A": "a", "EMPTY": "", "_b1": "b"}

# --- Interpolation -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$A ${A} $_b1 ${EMPTY}|$EMPTY", "a a b |"),
        ("$$A $${A} $1 $ a$", "$A ${A} $1 $ a$"),
        ("${NONE:-d} ${EMPTY:-d} ${A:-d}", "d d a"),
        ("${NONE-d} ${EMPTY-d}|${A-d} ${NONE-}|${NONE:-}", "d |a |"),
        ("${NONE:+x}|${EMPTY:+x}|${A:+x}", "||x"),
        ("${NONE+x}|${EMPTY+x}|${A+x}", "|x|x"),
        ("${A:?why} ${EMPTY?why}|", "a |"),
        ("${NONE:-${NONE2:-bar}}", "bar"),
        ("${NONE:-<${A}$A>}/${A:+${NONE:-deep}}}", "<aa>/deep}"),
        ("${A:-${NONE}} ${NONE:+${NONE}}", "a "),
        ("${NONE:-$${A}}${NONE:-$$}", "${A}$"),
        ("${NONE:-two\nlines} ${NONE:-a:-b}", "two\nlines a:-b"),
        ("äöü ${NONE:-ß} €", "äöü ß €"),
    ],
)
def test_a_variable_is_replaced_as_compose_says(text: str, expected: str) -> None:
    given = {"key": [text, 1, None]}
    assert interpolate(given, SET) == {"key": [expected, 1, None]}


@pytest.mark.parametrize(
    "text",
    ["${}", "${1a}", "${A", "${ A}", "${A/b/c}", "${A:b}", "${NONE:-${}}", "${NONE:-${A}"],
)
def test_what_compose_has_no_meaning_for_is_an_error(text: str) -> None:
    with pytest.raises(SandboxValueError) as caught:
        interpolate(f"x {text}", SET)
    assert repr(text)[1:3] in str(caught.value) and "$$" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("$NONE", "NONE is not set"),
        ("${NONE:?give $A}", "NONE is not set: give a"),
        ("${EMPTY:?why}", "EMPTY is not set: why"),
        ("${NONE?}", "NONE is not set"),
        ("${NONE:-$NONE2}", "NONE2 is not set"),
    ],
)
def test_a_variable_that_is_not_set_is_told(text: str, said: str) -> None:
    with pytest.raises(SandboxValueError, match=said):
        interpolate(text, SET)
