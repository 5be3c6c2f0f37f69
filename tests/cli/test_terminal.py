# SPDX-License-Identifier: Apache-2.0
"""What a person at a terminal sees and is asked."""

import os
import subprocess
import time

import pytest
from conftest import PATIENCE

QUESTION = b"[y]es, [n]o, [s]ession, no with a [r]eason: "


@pytest.fixture
def pipe_with():
    """The reading end of a pipe that holds the bytes and then ends."""
    fds = []

    def make(content):
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        fds.append(reader)
        return reader

    yield make
    for fd in fds:
        os.close(fd)


def test_yes_writes_exactly_what_was_shown(world, terminal, pipe_with):
    session = terminal("write", "asked/a", stdin=pipe_with(b"first\nsecond\n"))
    session.wait_for(QUESTION)
    assert b"asked/a" in session.seen
    assert b"  + first\r\n  + second\r\n" in session.seen
    assert not (world.base / "asked" / "a").exists()
    session.type(b"y\n")
    assert session.end() == 0
    assert world.get("asked/a") == b"first\nsecond\n"


@pytest.mark.parametrize("answer", [b"n\n", b"no\n", b"NO\n", b" n \n", b"\x04"])
def test_no_leaves_everything_as_it_was(world, terminal, answer):
    session = terminal("write", "asked/a", "--content", "x")
    session.wait_for(QUESTION)
    session.type(answer)
    assert session.end() == 27
    assert b"cay: not-approved: asked/a: " in session.seen
    assert not (world.base / "asked" / "a").exists()


def test_what_is_no_answer_is_asked_again(world, terminal):
    session = terminal("write", "asked/a", "--content", "x")
    session.wait_for(QUESTION)
    session.seen = b""
    session.type(b"maybe\n")
    session.wait_for(QUESTION)
    session.type(b"yes\n")
    assert session.end() == 0
    assert world.get("asked/a") == b"x"


def test_the_reason_for_a_no_reaches_the_error(world, terminal):
    world.put("asked/a", "x")
    session = terminal("delete", "asked/a")
    session.wait_for(QUESTION)
    session.type(b"r\n")
    session.wait_for(b"Reason: ")
    session.type(b"  we still need it \n")
    assert session.end() == 27
    assert b"we still need it)" in session.seen
    assert world.get("asked/a") == b"x"


def test_an_edit_is_shown_as_what_goes_and_what_comes(world, terminal):
    world.put("asked/a", "1\n2\n3\n4\n5\n")
    session = terminal("edit", "asked/a", "--old", "3\n", "--new", "three\n3.5\n")
    session.wait_for(QUESTION)
    assert b"  line 3:\r\n  - 3\r\n  + three\r\n  + 3.5\r\n" in session.seen
    assert b"  - 2" not in session.seen and b"  - 4" not in session.seen
    session.type(b"y\n")
    assert session.end() == 0
    assert world.get("asked/a") == b"1\n2\nthree\n3.5\n4\n5\n"


def test_a_preview_is_short_and_cannot_write_to_the_terminal(world, terminal, pipe_with):
    content = b"\x1b]0;evil\x07\xff\n" + b"x" * 500 + b"\n" + b"line\n" * 100
    session = terminal("write", "asked/a", stdin=pipe_with(content))
    session.wait_for(QUESTION)
    assert b"\x1b" not in session.seen and b"\x07" not in session.seen
    assert b"  + \\x1b]0;evil\\x07\\xff\r\n" in session.seen
    assert b"x" * 74 + b"..." in session.seen and b"x" * 75 not in session.seen
    assert b"  + (92 more lines)\r\n" in session.seen
    assert session.seen.count(b"\n") <= 24
    session.type(b"n\n")
    session.end()


def test_a_change_after_the_question_is_noticed(world, terminal):
    path = world.put("asked/a", "one")
    session = terminal("edit", "asked/a", "--old", "one", "--new", "two")
    session.wait_for(QUESTION)
    path.write_text("one, but other")
    session.before = world.tree()
    session.type(b"y\n")
    assert session.end() == 28
    assert b"cay: changed: asked/a: " in session.seen
    assert world.get("asked/a") == b"one, but other"


def test_a_large_file_that_needs_approval_is_asked_for_once(world, terminal):
    content = os.urandom(9 << 20)
    world.put("secret/big", content)
    with open(world.base / "outside" / "copy", "wb") as copy:
        session = terminal("read", "secret/big", stdout=copy.fileno())
    session.wait_for(QUESTION)
    session.type(b"y\n")
    assert session.end() == 0
    assert world.get("outside/copy") == content
    assert session.seen.count(QUESTION) == 1


def test_session_is_a_yes_that_is_remembered(world, terminal):
    world.put("secret/a", "text")
    session = terminal("read", "secret/a", "--max", "4")
    session.wait_for(QUESTION)
    session.type(b"s\n")
    assert session.end() == 0
    assert session.seen.endswith(b"text") and session.seen.count(QUESTION) == 1


def test_what_was_typed_before_the_question_does_not_answer_it(world, terminal):
    reader, writer = os.pipe()
    session = terminal("write", "asked/a", stdin=reader)
    os.close(reader)
    session.type(b"y\ny\ny\n")
    session.wait_for(b"y\r\ny\r\ny\r\n")  # the echo: the line discipline has it
    os.write(writer, b"x")
    os.close(writer)
    session.wait_for(QUESTION)
    session.type(b"n\n")
    assert session.end() == 27


def test_without_a_terminal_the_answer_is_no_and_the_hint_is_yes(world):
    line = world.fails(27, "write", "asked/a", "--content", "x", start_new_session=True)
    assert "--yes" in line and "no terminal to prompt" in line
    world.ok("write", "asked/a", "--content", "x", "--yes")
    world.ok("write", "--approve=yes", "asked/a", "--content", "y")
    assert world.get("asked/a") == b"y"


def test_reading_can_need_approval_too(world):
    world.put("secret/a", "x\n")
    for words in (["read", "secret/a"], ["grep", "x", "secret"], ["export", "secret"],
                  ["copy", "secret/a", "notes/a"]):
        assert "--yes" in world.fails(27, *words, start_new_session=True)
        assert world.cay(*words, "--yes").status == 0


def test_approve_no_does_not_ask(world, terminal):
    session = terminal("write", "asked/a", "--content", "x", "--approve", "no")
    assert session.end() == 27
    assert QUESTION not in session.seen and b"--yes" in session.seen


def test_a_terminal_gets_names_and_lines_with_nothing_to_obey(world, terminal):
    world.put(b"docs/\x1b[31m\n\xff\xc2\x9b", b"found \x1b[2J\xff\n")
    session = terminal("list", "docs")
    assert session.end() == 0
    assert session.seen == b"docs/\\x1b[31m\\n\\xff\\x9b\r\n"
    session = terminal("grep", "found", "docs")
    assert session.end() == 0
    assert session.seen == b"docs/\\x1b[31m\\n\\xff\\x9b:1:found \\x1b[2J\\xff\r\n"
    session = terminal("list", "docs", "-ojson")
    assert session.end() == 0
    assert b"\x1b" not in session.seen and b"\xc2\x9b" not in session.seen


def test_read_prints_the_file_as_it_is_on_a_terminal_too(world, terminal):
    world.put("docs/a", b"\x1b[0mplain\n")
    session = terminal("read", "docs/a")
    assert session.end() == 0
    assert session.seen == b"\x1b[0mplain\r\n"


def test_a_tar_stream_is_not_sent_to_a_terminal(world, terminal):
    session = terminal("export", "docs")
    assert session.end() == 2
    assert b"tar stream to a terminal" in session.seen


def test_progress_is_shown_only_after_a_second_and_wiped(world, terminal):
    world.put("docs/a", os.urandom(8 << 20))
    reader, writer = os.pipe()
    session = terminal("export", "docs", stdout=writer)
    os.close(writer)
    session.wait_for(b"Exporting: ")  # it has to wait: nobody reads the pipe
    received = 0
    while piece := os.read(reader, 1 << 20):
        received += len(piece)
    os.close(reader)
    assert session.end() == 0
    assert received > 8 << 20
    assert session.seen.endswith(b"\r\x1b[K")


def test_an_import_shows_progress_and_is_not_hurt_by_it(world, terminal):
    world.put("docs/a", os.urandom(100_000))
    tar = world.ok("export", "docs").out
    reader, writer = os.pipe()
    session = terminal("import", "notes/copy", stdin=reader)
    os.close(reader)
    os.write(writer, tar[:10_000])
    session.wait_for(b"Importing: ")
    with os.fdopen(writer, "wb") as rest:
        rest.write(tar[10_000:])
    assert session.end() == 0
    assert world.get("notes/copy/a") == world.get("docs/a")


def test_reading_slow_input_shows_progress_and_a_question_is_not_disturbed(world, terminal):
    reader, writer = os.pipe()
    session = terminal("write", "asked/a", stdin=reader)
    os.close(reader)
    os.write(writer, b"x")
    session.wait_for(b"Reading standard input: 0 MiB")
    os.write(writer, b"y")
    os.close(writer)
    session.wait_for(QUESTION)
    session.seen = b""
    time.sleep(1.5)  # long enough for a progress line to appear, if it were not held back
    session.type(b"y\n")
    assert session.end() == 0
    assert world.get("asked/a") == b"xy"
    assert b"MiB" not in session.seen.split(b"y\r\n")[0]


def test_no_progress_without_a_terminal(world):
    reader, writer = os.pipe()
    child = subprocess.Popen(world.argv(["write", "notes/a"]), stdin=reader, cwd=world.base,
                             stderr=subprocess.PIPE, env=world.environ)
    os.close(reader)
    time.sleep(1.5)
    os.close(writer)
    assert child.communicate(timeout=PATIENCE)[1] == b"" and child.returncode == 0
