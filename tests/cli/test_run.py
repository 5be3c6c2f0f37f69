# SPDX-License-Identifier: Apache-2.0
"""cay run: a command in a sandbox that is gone afterwards."""

import hashlib
import os
import resource
import signal
import subprocess
import sys
import time

import pytest
from conftest import CAY
from sandboxes import gone, traces, wait_until


@pytest.fixture(name="run")
def fixture_run(boxes):
    return lambda *words, **more: boxes.cay("run", *words, **more)


def test_the_output_and_status_are_the_commands(run):
    done = run("--", "python3", "-c", "import sys; print(6*7); sys.stderr.write('x'); sys.exit(3)")
    assert (done.out, done.err, done.status) == (b"42\n", b"x", 3)


def test_options_end_at_the_command(run):
    assert run("echo", "-m", "--help", "--").out == b"-m --help --\n"
    assert run("--", "echo", "--", "-e").out == b"-- -e\n"


def test_nothing_is_left_whatever_the_command_did(boxes):
    for script in ("true", "exit 3", "kill -9 $$", "sleep 1000 & setsid sleep 1000 &"):
        done = boxes.cay("run", "--", "sh", "-c", f"hostname; {script}")
        assert gone(done.text.strip()), traces(done.text.strip())


def test_standard_input_goes_in_only_when_asked(run):
    assert run("--", "cat", stdin=b"data").out == b""
    assert run("-i", "--", "cat", stdin=b"da\0ta").out == b"da\0ta"
    assert run("-i", "--", "cat", stdin=b"").out == b""


def test_of_a_variable_that_is_given_twice_the_last_counts(run):
    assert run("-e", "A=1", "-e", "A=2", "--", "env").out.count(b"A=") == 1
    assert run("-e", "A=1", "-e", "A=2", "--", "printenv", "A").out == b"2\n"


def test_any_amount_of_input_goes_through(run):
    data = os.urandom(1 << 20) * 64
    assert run("-i", "--", "wc", "-c", stdin=data).out == b"%d\n" % len(data)
    done = run("-i", "--", "sha256sum", stdin=data)
    assert done.out.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_input_and_output_flow_at_the_same_time(run):
    data = os.urandom(1 << 20) * 16
    assert run("-i", "--", "cat", stdin=data).out == data


def test_input_is_passed_on_as_it_comes_and_not_when_it_ends(boxes):
    running = boxes.start("run", "-i", "--", "cat", stdin=subprocess.PIPE)
    for word in (b"one\n", b"two\n"):
        running.stdin.write(word)
        running.stdin.flush()
        assert running.stdout.readline() == word
    running.stdin.close()
    assert running.wait() == 0


def test_a_command_that_reads_no_more_ends_by_itself(run):
    assert run("-i", "--", "head", "-c", "3", stdin=b"x" * (8 << 20)).out == b"xxx"
    assert run("-i", "--", "true", stdin=b"x" * (8 << 20)).status == 0


def test_a_reader_that_leaves_ends_the_command_without_a_word(boxes):
    done = subprocess.run(
        ["bash", "-c", f"{CAY} run -- sh -c 'hostname; exec yes' | head -n 1; "
         "echo ${PIPESTATUS[0]}"],
        capture_output=True, text=True, timeout=120, check=False)
    sandbox_id, status = done.stdout.split()
    assert (int(status), done.stderr) == (128 + signal.SIGPIPE, "")
    assert gone(sandbox_id)


def test_output_to_a_full_disk_is_an_error(boxes):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([CAY, "run", "--", "echo", "x"], stdout=full,
                              stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 125 and done.stderr.startswith(b"cay: no-space: standard output")


def test_a_timeout_is_124_and_says_so(run):
    for ms in (300, 3001, 30001):
        done = run("--timeout", f"{ms}ms", "--", "sh", "-c", "echo partial; sleep 1000")
        assert done.status == 124
        assert done.err == b"cay: killed: timeout of %d ms (raise it with --timeout)\n" % ms
        if done.out:  # else the machine is too slow for that
            break
    assert done.out == b"partial\n"


def test_the_memory_limit_is_told_by_name(run):
    done = run("-m", "64M", "--", "tail", "/dev/zero")
    assert done.status == 137
    assert done.err == b"cay: killed: memory limit 64 MiB (raise it with -m)\n"


def test_a_limit_that_a_child_of_the_command_meets_is_told_by_name(run):
    done = run("-m", "64M", "--", "sh", "-c", "tail /dev/zero 2>/dev/null; exit $?")
    assert done.status == 137
    assert done.err.endswith(b"cay: note: a process inside was killed: memory limit 64 MiB "
                             b"(raise it with -m)\n")
    script = "for i in 1 2 3 4 5 6; do sleep 100 & done"
    done = run("--pids", "5", "--", "sh", "-c", script)
    assert done.err.endswith(b"cay: note: a process inside was not started: limit of 5 "
                             b"processes (raise it with --pids)\n")
    outcome = run("-m", "64M", "-o", "json", "--", "sh", "-c", "tail /dev/zero; true").json
    assert (outcome["cause"], outcome["memory_kills"], outcome["refused_forks"]) == (
        "exited", 1, 0)


def test_json_has_the_reason_and_the_hint_of_what_the_text_tells(run):
    outcome = run("-o", "json", "--", "no-such-program").json
    assert (outcome["cause"], outcome["errno"]) == ("not-started", 2)
    assert (outcome["subject"], outcome["message"]) == ("no-such-program",
                                                        "No such file or directory")
    assert "neither in the sandbox nor on the host" in outcome["hint"]
    outcome = run("-m", "64M", "-o", "json", "--", "tail", "/dev/zero").json
    assert (outcome["cause"], outcome["memory_limit"]) == ("memory", 64 << 20)
    outcome = run("-o", "json", "--", "false").json
    assert not {"hint", "errno", "memory_limit"} & outcome.keys()


def test_json_has_the_hint_for_an_argument_that_is_not_inside(boxes):
    (boxes.folder / "hello.py").write_text("print('hello')")
    outcome = boxes.cay("run", "-o", "json", "--", "python3", "hello.py").json
    assert outcome["subject"] == "hello.py" and "add -v .:/src -w /src" in outcome["hint"]


def test_what_cannot_be_run_is_126_or_127(run):
    done = run("--", "no-such-program")
    assert done.status == 127 and done.err.startswith(
        b"cay: exec-failed: no-such-program: ")
    assert run("--", "/etc/passwd").status == 126


def test_a_signal_that_ends_the_command_is_128_and_its_number(run):
    assert run("--", "sh", "-c", "kill -TERM $$").status == 128 + signal.SIGTERM


def test_only_named_variables_go_inside(run):
    done = run("-e", "A=1", "-e", "B", "-e", "NONE", "--", "sh", "-c",
               "echo $A$B${NONE-unset}; env | grep -c SECRET",
               env={"B": "2", "SECRET": "token"})
    assert done.out == b"12unset\n0\n"


def test_user_and_directory_can_be_chosen(run):
    assert run("-u", "root", "-w", "/tmp", "--", "sh", "-c", "id -u; pwd").out == b"0\n/tmp\n"
    done = run("-u", "nonexistent", "--", "true")
    assert done.status == 125 and b"nonexistent" in done.err


def test_json_tells_the_outcome(run):
    outcome = run("-o", "json", "--", "sh", "-c", "echo out; echo err >&2; exit 5").json
    assert outcome["stdout"] == "out\n" and outcome["stderr"] == "err\n"
    assert (outcome["cause"], outcome["exit_code"]) == ("exited", 5)
    assert outcome["peak_memory"] > 0 and outcome["stdout_dropped"] == 0


def test_json_keeps_the_end_of_long_output_and_counts_the_rest(run):
    outcome = run("-o", "json", "--", "python3", "-c",
                  "import sys; sys.stdout.write('x' * (11 << 20) + 'end')").json
    assert outcome["stdout"].endswith("end")
    assert len(outcome["stdout"]) == 10 << 20
    assert outcome["stdout_dropped"] == (1 << 20) + 3


def test_json_tells_what_could_not_be_started_and_what_was_killed(run):
    done = run("-o", "json", "--", "no-such-program")
    assert (done.json["cause"], done.status) == ("not-started", 127)
    done = run("-o", "json", "--timeout", "200ms", "--", "sleep", "1000")
    assert (done.json["cause"], done.status) == ("timeout", 124)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_sandbox_and_leaves_nothing(boxes, number):
    running = boxes.start("run", "--", "sh", "-c", "hostname; exec sleep 1000")
    sandbox_id = running.stdout.readline().decode().strip()
    running.send_signal(number)
    assert running.wait(60) == -number
    assert gone(sandbox_id), traces(sandbox_id)


def test_the_command_may_end_in_its_own_way_when_asked(boxes):
    script = "trap 'echo bye; exit 7' TERM; hostname; while :; do sleep 0.01; done"
    running = boxes.start("run", "--", "sh", "-c", script)
    running.stdout.readline()
    running.terminate()
    assert running.stdout.read() == b"bye\n"
    assert running.wait(60) == 7


def test_a_command_that_ignores_the_signal_is_killed_a_second_later(boxes):
    running = boxes.start("run", "--", "sh", "-c", "trap '' TERM; hostname; sleep 1000; sleep 1000")
    sandbox_id = running.stdout.readline().decode().strip()
    running.terminate()
    assert running.wait(60) == -signal.SIGTERM
    assert gone(sandbox_id)


def test_a_killed_command_line_takes_its_sandbox_with_it(boxes):
    running = boxes.start("run", "--", "sh", "-c", "hostname; exec sleep 1000")
    sandbox_id = running.stdout.readline().decode().strip()
    running.kill()
    running.wait()
    # What it could not clean up itself is the next one's to do.
    wait_until(lambda: boxes.ok("gc") and traces(sandbox_id) == [], "cay gc left traces")


def test_a_closed_standard_output_is_told(boxes):
    done = subprocess.run([sys.executable, "-c", "import os, sys; os.close(1); "
                           f"os.execv({CAY!r}, ['cay', 'run', '--', 'echo', 'x'])"],
                          stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 125 and done.stderr.startswith(b"cay: ")


def test_a_limit_on_the_size_of_files_is_an_error_and_leaves_nothing(boxes):
    done = subprocess.run([CAY, "create"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=120, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)))
    assert done.returncode > 0 and done.stderr.startswith(b"cay: no-space: sb-")
    assert b"ulimit -f" in done.stderr
    assert traces(done.stderr.decode().split(": ")[2]) == []


TWICE = """
import ctypes, os, sys
words = [os.fsencode(word) for word in sys.argv[1:]]
argv = (ctypes.c_char_p * (len(words) + 1))(*words)
env = (ctypes.c_char_p * 1003)(*[b"TWICE=%d" % i for i in range(1000)],
                               *[b"%s=%s" % pair for pair in os.environb.items()
                                 if pair[0] in (b"CAY_HOME", b"XDG_RUNTIME_DIR")])
ctypes.CDLL(None).execve(words[0], argv, env)
"""


def test_of_a_variable_that_one_has_many_times_the_first_is_passed_on():
    done = subprocess.run([sys.executable, "-c", TWICE, CAY, "run", "-e", "TWICE", "--", "env"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if b"TWICE" in line] == [b"TWICE=0"]


def test_why_a_layer_is_missing_is_told_as_it_is(run):
    done = run("--require", "cpu", "--", "true")
    assert b"disables a required isolation layer" in done.err and b"no CPU limit is set" in done.err
    done = run("--storage", "disk", "--require", "disk", "--", "true")
    assert b"storage on disk has no size limit" in done.err and b"namespaces" not in done.err
    done = run("--network", "host", "--require", "network,cpu", "--", "true")
    assert b"network is set to host" in done.err and b"no CPU limit is set" in done.err
    done = run("--pids", "99999999", "--", "true")
    assert done.status == 125 and b"run as root" not in done.err


def test_layers_can_be_required(run):
    assert run("--require", "seccomp,memory", "--require", "user", "--", "true").status == 0


@pytest.mark.parametrize("words", [
    (), ("--",), ("--memory", "x", "--", "true"), ("--memory", "0", "--", "true"),
    ("--timeout", "-1", "--", "true"), ("--timeout", "5 x", "--", "true"),
    ("--pids", "0", "--", "true"), ("--pids", "1.5", "--", "true"),
    ("--cpus", "many", "--", "true"), ("--cpus", "nan", "--", "true"),
    ("--network", "bridge", "--", "true"), ("--no-such", "--", "true"), ("-m",),
    ("-e", "=x", "--", "true"), ("-o", "xml", "--", "true"),
    ("-m", "1M", "--disk", "2M", "--", "true"), ("--require", "luck", "--", "true"),
    ("--require", "", "--", "true"), ("--storage", "tape", "--", "true"),
    ("-t", "--", "true"), ("-it", "--", "true"),
    ("-v", "/usr", "--", "true"), ("-v", ":/x", "--", "true"), ("-v", "/usr:x", "--", "true"),
    ("-v", "/usr:/x:rx", "--", "true"), ("--tag", "x", "--", "true"), ("-d", "--", "true")])
def test_wrong_words_are_125_with_a_hint(boxes, words):
    assert boxes.fails(125, "run", *words).startswith("cay: invalid: ")


@pytest.mark.parametrize("words, slug", [
    (("-v", "no-such:/x", "--", "true"), "not-found"),
    (("--config", "no-such.yaml", "--", "true"), "not-found"),
    (("--template", "./no-such", "--", "true"), "not-found"),
    (("--template", "no-such", "--", "true"), "not-found")])
def test_what_is_not_there_is_125_and_named(boxes, words, slug):
    line = boxes.fails(125, "run", *words)
    assert line.startswith(f"cay: {slug}: ") and "no-such" in line


def test_an_error_is_json_if_json_was_asked_for(boxes):
    done = boxes.cay("run", "-t", "-o", "json", "--", "true")
    assert done.status == 125 and b"-t cannot be combined with -o json" in done.err
    done = boxes.cay("run", "-o", "json", "-v", "no-such:/x", "--", "true")
    assert done.status == 125 and b'"slug":"not-found"' in done.err


def test_a_signal_that_was_ignored_stays_ignored(boxes):
    running = boxes.start("run", "--", "sh", "-c", "echo on; sleep 0.5; echo end",
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert running.stdout.readline() == b"on\n"
    running.send_signal(signal.SIGHUP)
    assert running.wait(60) == 0 and running.stdout.read() == b"end\n"


LISTEN = """
import fcntl, socket, struct
server = socket.create_server(("127.0.0.1", 80))
print(socket.create_connection(("127.0.0.1", 80)).getpeername()[1])
flags = struct.pack("16sH14x", b"lo", 0)
try:
    fcntl.ioctl(server, 0x8914, flags)  # SIOCSIFFLAGS: down
except PermissionError:
    print("kept")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox has a network of its own")
def test_its_network_is_only_a_loopback_at_any_port_and_nobody_inside_can_change_it(run):
    for user in ("user", "root"):
        done = run("-u", user, "--", "python3", "-c", LISTEN)
        assert (done.out, done.err) == (b"80\nkept\n", b"")
        listed = run("-u", user, "--", "cat", "/proc/net/dev").text.splitlines()[2:]
        assert [line.split(":")[0].strip() for line in listed] == ["lo"]
        status = run("-u", user, "--", "sh", "-c",
                     "echo 1 > /proc/sys/net/ipv4/ip_unprivileged_port_start")
        assert status.status != 0


def test_two_do_not_share_a_loopback(boxes):
    one, two = boxes.create(), boxes.create()
    boxes.ok("exec", "-d", one, "--", "python3", "-c",
             "import socket, time; s = socket.create_server(('127.0.0.1', 8080)); time.sleep(1000)")
    ask = ("python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8080))")
    wait_until(lambda: boxes.cay("exec", one, "--", *ask).status == 0, "it listens")
    assert b"ConnectionRefusedError" in boxes.cay("exec", two, "--", *ask).err
