# SPDX-License-Identifier: Apache-2.0
"""cay run: a command in a sandbox that is gone afterwards."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from conftest import CAY, PATIENCE

RUNTIME = Path("/run/cay")


def left() -> set[str]:
    return {path.name for path in RUNTIME.glob("sb-*")} | {
        path.name for path in RUNTIME.glob("ranges/*")}


@pytest.fixture(name="cay")
def fixture_cay():
    if os.geteuid() != 0:
        pytest.skip("sandboxes for others than root are not there yet")
    before = left()

    def run(*words, stdin=b"", env=None):
        return subprocess.run([CAY, "run", *words], input=stdin, capture_output=True,
                              timeout=PATIENCE, env={**os.environ, **(env or {})}, check=False)

    yield run
    assert left() <= before, "a sandbox was left behind"


def test_the_output_and_status_are_the_commands(cay):
    done = cay("--", "python3", "-c", "import sys; print(6*7); sys.stderr.write('x'); sys.exit(3)")
    assert (done.stdout, done.stderr, done.returncode) == (b"42\n", b"x", 3)


def test_options_end_at_the_command(cay):
    assert cay("echo", "-m", "--help").stdout == b"-m --help\n"


def test_standard_input_goes_in_only_when_asked(cay):
    assert cay("--", "cat", stdin=b"data").stdout == b""
    assert cay("-i", "--", "cat", stdin=b"da\0ta").stdout == b"da\0ta"


def test_a_timeout_is_124_and_says_so(cay):
    done = cay("--timeout", "300ms", "--", "sleep", "1000")
    assert done.returncode == 124
    assert done.stderr == b"cay: killed: timeout of 300 ms (raise it with --timeout)\n"


def test_the_memory_limit_is_told_by_name(cay):
    done = cay("-m", "64M", "--", "tail", "/dev/zero")
    assert done.returncode == 137
    assert done.stderr == b"cay: killed: memory limit 64 MiB (raise it with -m)\n"


def test_what_cannot_be_run_is_126_or_127(cay):
    done = cay("--", "no-such-program")
    assert done.returncode == 127 and done.stderr.startswith(b"cay: no-such-program: ")
    assert cay("--", "/etc/passwd").returncode == 126


def test_only_named_variables_go_inside(cay):
    done = cay("-e", "A=1", "-e", "B", "--", "sh", "-c", "echo $A$B; env | grep -c SECRET",
               env={"B": "2", "SECRET": "token"})
    assert done.stdout == b"12\n0\n"


def test_user_and_directory_can_be_chosen(cay):
    assert cay("-u", "root", "-w", "/tmp", "--", "sh", "-c", "id -u; pwd").stdout == b"0\n/tmp\n"
    done = cay("-u", "nonexistent", "--", "true")
    assert done.returncode == 125 and b"nonexistent" in done.stderr


def test_json_tells_the_outcome(cay):
    outcome = json.loads(cay("-o", "json", "--", "sh", "-c", "echo out; echo err >&2; exit 5").stdout)
    assert outcome["stdout"] == "out\n" and outcome["stderr"] == "err\n"
    assert (outcome["cause"], outcome["exit_code"]) == ("exited", 5)
    assert outcome["peak_memory"] > 0


@pytest.mark.parametrize("words", [
    (), ("--",), ("--memory", "x", "--", "true"), ("--memory", "0", "--", "true"),
    ("--timeout", "-1", "--", "true"), ("--timeout", "5 s", "--", "true"),
    ("--pids", "0", "--", "true"), ("--cpus", "many", "--", "true"),
    ("--network", "bridge", "--", "true"), ("--no-such", "--", "true"), ("-m",),
    ("-e", "=x", "--", "true"), ("-o", "xml", "--", "true"),
    ("-m", "1M", "--disk", "2M", "--", "true")])
def test_wrong_words_are_125_with_a_hint(cay, words):
    done = cay(*words)
    assert done.returncode == 125 and done.stdout == b""
    assert done.stderr.startswith(b"cay: invalid: ") and done.stderr.endswith(b")\n")


def test_help_fits_a_screen(cay):
    lines = cay("--help").stdout.decode().splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80


def test_a_killed_command_line_takes_its_sandbox_with_it(cay):
    before = left()
    with subprocess.Popen([CAY, "run", "--", "sleep", "1000"]) as running:
        try:
            running.wait(1)
        except subprocess.TimeoutExpired:
            pass
        running.kill()
    # What it left is cleaned up by the next one, once its last process is gone.
    for _ in range(100):
        assert cay("--", "true").returncode == 0
        if left() <= before:
            break
        time.sleep(0.1)
