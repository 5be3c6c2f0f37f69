# SPDX-License-Identifier: Apache-2.0
"""-t and cay shell: a terminal inside, ours passed through and given back."""

import signal
import time

import pytest
from sandboxes import gone


def test_a_terminal_of_its_own_is_given_with_our_size(screen):
    session = screen("run", "-t", "--", "sh", "-c", "tty; stty size; echo $TERM", rows=33, columns=77)
    assert session.end() == 0
    assert b"/dev/pts/" in session.seen and b"33 77" in session.seen and b"xterm" in session.seen
    assert session.is_restored()


def test_keys_go_inside_and_the_terminal_comes_back(screen):
    session = screen("run", "-it", "--", "sh")
    session.wait_for(b"$ ")
    assert session.is_raw()
    session.type(b"echo $((6*7)) there\n")
    session.wait_for(b"42 there")
    session.type(b"exit 5\n")
    assert session.end() == 5
    assert session.is_restored()


def test_interrupt_is_a_key_like_any_other(screen):
    session = screen("run", "-it", "--", "sh", "-c",
                     "trap 'echo got it; exit 3' INT; echo ready; while :; do sleep 0.05; done")
    session.wait_for(b"ready")
    session.type(b"\x03")
    session.wait_for(b"got it")
    assert session.end() == 3
    assert session.is_restored()


def test_end_of_input_is_a_key_too(screen):
    session = screen("run", "-it", "--", "cat")
    session.wait_for(b"")
    time.sleep(0.3)
    session.type(b"line\n")
    session.wait_for(b"line\r\nline\r\n")
    session.type(b"\x04")
    assert session.end() == 0


def test_a_new_size_is_passed_on(screen):
    session = screen("run", "-it", "--", "sh", "-c",
                     "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done")
    session.wait_for(b"ready")
    session.resize(41, 123)
    session.wait_for(b"41 123")
    session.type(b"\x03")
    session.end()
    assert session.is_restored()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_terminal_comes_back_whatever_ends_us(screen, number):
    session = screen("run", "-it", "--", "sh", "-c", "hostname; exec sleep 1000")
    session.wait_for(b"\r\n")
    sandbox_id = session.seen.decode().strip()
    assert session.is_raw()
    session.process.send_signal(number)
    assert session.end() == -number
    assert session.is_restored()
    assert gone(sandbox_id)


def test_the_terminal_comes_back_after_a_timeout_and_a_failure(screen):
    session = screen("run", "-it", "--timeout", "500ms", "--", "sleep", "1000")
    assert session.end() == 124 and session.is_restored()
    assert b"killed: timeout" in session.seen
    session = screen("run", "-it", "--", "no-such-program")
    assert session.end() == 127 and session.is_restored()


def test_without_a_terminal_it_is_refused_with_a_hint(boxes, box):
    for words in (["run", "-it", "--", "sh"], ["exec", "-it", box, "sh"]):
        line = boxes.fails(125, *words)
        assert "not a terminal" in line and "-i alone" in line
    line = boxes.fails(125, "shell", box)  # to which nobody gave a -t
    assert "not a terminal" in line and "-t" not in line and "cay exec -i ID -- sh" in line


def test_shell_is_bash_as_the_user_that_is_asked_for(boxes, box, screen):
    session = screen("shell", box)
    session.wait_for(b"$ ")
    session.type(b"echo $0 $(id -un)\n")
    session.wait_for(b"bash user")
    session.type(b"exit 4\n")
    assert session.end() == 4 and session.is_restored()
    session = screen("shell", "-u", "root", "-w", "/tmp", "-e", "A=1", box)
    session.wait_for(b"# ")
    session.type(b"echo $(id -un) $PWD $A\n")
    session.wait_for(b"root /tmp 1")
    session.type(b"exit\n")
    assert session.end() == 0


def test_the_callers_terminal_itself_does_not_go_inside(screen):
    session = screen("run", "-it", "--", "sh", "-c",
                     "for fd in 0 1 2; do readlink /proc/self/fd/$fd; done; ls /proc/self/fd | wc -w")
    assert session.end() == 0
    assert b"/dev/pts/0" in session.seen and b"/dev/pts/1" not in session.seen


def test_progress_is_only_for_a_terminal(boxes, box):
    done = boxes.cay("cp", "-", f"{box}:big", stdin=b"x" * (50 << 20))
    assert done.err == b""
