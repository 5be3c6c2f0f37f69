# SPDX-License-Identifier: Apache-2.0
"""cay warm, and what cay code and cay ls --all do with saved interpreters."""

import os
import time

import pytest
from conftest import PATIENCE

CODE = ("code", "--new", "-o", "json", "--preload", "fractions", "-c")


@pytest.fixture(name="home")
def fixture_home(tmp_path):
    return {"CAY_HOME": str(tmp_path / "home"), "CAY_WARM": "on"}


def interpreters(boxes, home):
    return boxes.ok("ls", "--all", "-o", "json", env=home).json["interpreters"]


def wait_for_one(boxes, home):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := interpreters(boxes, home):
            return found
        time.sleep(0.05)
    raise AssertionError("no interpreter was saved")


def test_the_first_code_saves_an_interpreter_for_the_next_sandbox(boxes, home):
    first = boxes.ok(*CODE, "print(1)", env=home).json
    assert (first["stdout"], first["is_warm"]) == ("1\n", False)
    found, = wait_for_one(boxes, home)
    assert (found["template"], found["language"], found["preload"], found["failure"]) == (
        "host", "python", "fractions", None)
    assert found["bytes"] > 1 << 20 and found["used_ms"] >= found["created_ms"]
    second = boxes.ok(*CODE, "import sys; print('fractions' in sys.modules)", env=home).json
    assert (second["stdout"], second["is_warm"]) == ("True\n", True)
    assert boxes.ok("code", "--new", "-o", "json", "-c", "1",
                    env={**home, "CAY_PRELOAD": "fractions"}).json["is_warm"]
    assert [one["id"] for one in interpreters(boxes, home)] == [found["id"]]


def test_nothing_is_saved_where_that_is_switched_off(boxes, home):
    home["CAY_WARM"] = "off"
    boxes.ok(*CODE, "print(1)", env=home)
    assert not os.path.exists(os.path.join(home["CAY_HOME"], "warm"))


def test_a_saved_interpreter_is_listed_and_removed_by_hand(boxes, home):
    boxes.ok("warm", "create", "--preload", "fractions", env=home)
    boxes.ok("warm", "create", "--preload", "", env=home)
    boxes.ok("warm", "create", "--preload", "", env=home)
    table = boxes.ok("ls", "-a", env=home).text.split("\n\n")[1].splitlines()
    assert table[0].split() == ["INTERPRETER", "LANGUAGE", "PRELOAD", "SIZE", "AGE", "LAST", "USE",
                                "TEMPLATE", "STATE"]
    assert [row.split()[1:3] for row in table[1:]] == [["python", "fractions"], ["python", "-"]]
    first, second = interpreters(boxes, home)
    boxes.ok("warm", "rm", first["id"], env=home)
    assert interpreters(boxes, home) == [second]
    boxes.ok("warm", "rm", "--all", env=home)
    assert interpreters(boxes, home) == []
    assert "INTERPRETER" not in boxes.ok("ls", "--all", env=home).text


def test_an_interpreter_unused_for_ten_minutes_is_removed_by_any_command(boxes, home):
    boxes.ok("warm", "create", "--preload", "", env=home)
    folder = os.path.join(home["CAY_HOME"], "warm")
    names = os.listdir(folder)
    assert len(names) == 2
    for name in names:
        os.utime(os.path.join(folder, name), (time.time() - 601,) * 2)
    boxes.ok("gc", env=home)
    assert os.listdir(folder) == []


def test_a_failure_is_listed_with_its_reason_and_not_repeated(boxes, home):
    done = boxes.cay("warm", "create", "--template", "nothing", env=home)
    assert done.status != 0
    found, = interpreters(boxes, home)
    assert found["bytes"] == 0 and "template" in found["failure"]
    assert found["failure"] in boxes.ok("ls", "--all", env=home).text


@pytest.mark.parametrize("words, told", [
    (("code", "--new", "--preload", "a b", "-c", "1"), b"preload: invalid list of modules"),
    (("warm", "create", "--preload", "numpy,"), b"preload: invalid list of modules"),
    (("warm", "rm"), b"no interpreter given"),
    (("warm", "rm", "--all", "x"), b"both --all and an interpreter given"),
])
def test_mistakes_are_explained(boxes, home, words, told):
    done = boxes.cay(*words, env=home)
    assert done.status == 2 and told in done.err
    assert boxes.cay("warm", "rm", "0123", env=home).status == 4


def test_a_variable_with_an_unknown_value_is_explained(boxes, home):
    done = boxes.cay(*CODE, "1", env={**home, "CAY_WARM": "yes"})
    assert done.status == 2 and b"CAY_WARM" in done.err
    done = boxes.cay("code", "--new", "-c", "1", env={**home, "CAY_PRELOAD": "a;b"})
    assert done.status == 2 and b"CAY_PRELOAD" in done.err
