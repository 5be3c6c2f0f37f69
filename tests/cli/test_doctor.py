# SPDX-License-Identifier: Apache-2.0
"""cay doctor: what this machine offers, and what would help."""


def test_every_facility_has_a_line(boxes):
    done = boxes.cay("doctor", "-o", "json")
    checks = done.json["checks"]
    assert len(checks) >= 5
    assert {"facility", "finding", "detail", "fix"} == set(checks[0])
    assert {check["finding"] for check in checks} <= {"ok", "weaker", "missing"}
    (sandboxes,) = [check for check in checks if check["facility"] == "sandboxes"]
    assert done.status == (1 if sandboxes["finding"] == "missing" else 0)


def test_the_text_has_the_same_and_the_commands_that_help(boxes):
    checks = boxes.cay("doctor", "-o", "json").json["checks"]
    text = boxes.cay("doctor").text
    assert text.splitlines()[0].split() == ["FOUND", "FACILITY", "DETAIL"]
    for check in checks:
        assert check["facility"] in text
        assert not check["fix"] or check["fix"] in text
