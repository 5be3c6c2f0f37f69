# SPDX-License-Identifier: Apache-2.0
"""Owners are told by the names that the sandbox has for them now."""

import time

import pytest

CHANGES = {
    "in place": "sed 's/^[a-z]*:x:4321:/{name}:x:4321:/' /etc/{file} > /tmp/new"
                " && cat /tmp/new > /etc/{file}",
    "by a file that takes its place": "sed -i 's/^[a-z]*:x:4321:/{name}:x:4321:/' /etc/{file}",
}


@pytest.fixture
def owned(sandbox):
    """A sandbox with a file that belongs to a user and a group that were added to it."""
    sandbox.commands.run("echo anna:x:4321:4321::/:/bin/sh >> /etc/passwd;"
                         "echo anna:x:4321: >> /etc/group; touch /tmp/f; chown 4321:4321 /tmp/f",
                         user="root")
    return sandbox


def owners(sandbox):
    info = sandbox.files.get_info("/tmp/f")
    return info.owner, info.group


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_new_name_is_told_at_once(owned, change):
    assert owners(owned) == ("anna", "anna")
    time.sleep(0.15)  # long enough for what was read to be kept
    assert owners(owned) == ("anna", "anna")
    for name in ("bert", "carl", "dora"):  # as long as each other
        for file in ("passwd", "group"):
            owned.commands.run(change.format(name=name, file=file), user="root")
        assert owners(owned) == (name, name)
        assert owners(owned) == (name, name)


def test_names_that_are_gone_are_told_as_numbers(owned):
    assert owners(owned) == ("anna", "anna")
    owned.commands.run("rm /etc/passwd", user="root")
    assert owners(owned) == ("4321", "anna")


def test_another_etc_is_noticed_within_a_second(owned):
    assert owners(owned) == ("anna", "anna")
    owned.commands.run("mv /etc /etc-before; mkdir /etc;"
                       "echo zora:x:4321:4321::/:/bin/sh > /etc/passwd", user="root")
    time.sleep(1.1)
    assert owners(owned) == ("zora", "4321")
