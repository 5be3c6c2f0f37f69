# SPDX-License-Identifier: Apache-2.0
"""Variables in compose files and in the files that env_file names."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_inspect_compose import one

from cay.inspect.variables import interpolate, read_env_file
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


# --- Files of variables --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("V=VAL", "VAL"),
        ("V = VAL  ", "VAL"),
        ("V: VAL", "VAL"),
        ("export V=VAL", "VAL"),
        ("  export\tV=VAL", "VAL"),
        ("V=", ""),
        ("V=a=b 'c' \"d\"", "a=b 'c' \"d\""),
        ("V=VAL # comment", "VAL"),
        ("V=VAL# none", "VAL# none"),
        ("V= # comment", ""),
        ('V="VAL # none" # comment', "VAL # none"),
        ("V='VAL # none'# comment", "VAL # none"),
        ("V=\"say 'hi'\"", "say 'hi'"),
        ("V=''", ""),
        ("V='$A ${A}'", "$A ${A}"),
        ("V=\"$A\"", "a"),
        ("V=${NONE:-$A}", "a"),
        ("V='Let\\'s go!'", "Let's go!"),
        ('V="{\\"hello\\": \\"json\\"}"', '{"hello": "json"}'),
        ('V="some\\tvalue\\\\n\\n\\x"', "some\tvalue\\n\n\\x"),
        ("V='some\\tvalue'", "some\\tvalue"),
        ("V=some\\tvalue", "some\\tvalue"),
        ('V="\\$A $$A"', "$A $A"),
        ("V='two\nlines'", "two\nlines"),
        ('V="two\n# lines"', "two\n# lines"),
        ("F=f\nV=$F", "f"),
        ("A=f\nV=$A", "a"),
        ("\n# V=comment\n \nV=VAL\n#", "VAL"),
        ("V=1\r\n", "1"),
        ("V=1\nV=2", "2"),
    ],
)
def test_a_file_of_variables_is_read_as_compose_says(
    tmp_path: Path, line: str, expected: str
) -> None:
    file = tmp_path / "vars"
    file.write_bytes(line.encode())
    assert read_env_file(file, SET)["V"] == expected
    file.write_bytes(b"\xef\xbb\xbf" + line.encode() + b"\nLAST=1\n")
    assert read_env_file(file, SET)["LAST"] == "1"


def test_a_name_without_a_value_is_passed_on(tmp_path: Path) -> None:
    file = tmp_path / "vars"
    file.write_text("A\nexport EMPTY # comment\nNONE\n")
    assert read_env_file(file, SET) == {"A": "a", "EMPTY": ""}


@pytest.mark.parametrize(
    "line",
    ["=bad", "1A=b", "A B=c", 'V="open', "V='a' b", "V=$NONE", "V=${}", "V A"],
)
def test_a_line_that_is_no_variable_is_told_with_its_number(
    tmp_path: Path, line: str
) -> None:
    file = tmp_path / "vars"
    file.write_text(f"X='two\nlines'\n{line}\n")
    with pytest.raises(SandboxValueError, match=f"line 3 of {file}"):
        read_env_file(file, SET)


def test_the_service_has_its_variables_before_those_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("A=1\nB=1\nC=$GIVEN\n")
    (tmp_path / "two").write_text("B=2\nW=2\nGIVEN=file\n")
    given = {"W": "key", "GIVEN": "key"}
    service = one(tmp_path, env_file=["one", "two"], environment=given)
    assert service.config.env == {"A": "1", "B": "2", "C": "key", **given}


def test_a_file_of_variables_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"A=\xff\n")
    for file in ("none", "bytes"):
        with pytest.raises(SandboxValueError, match="'default'.*env_file"):
            one(tmp_path, env_file=file)
