# SPDX-License-Identifier: Apache-2.0
"""Warm interpreters: a process that becomes a copy of another (src/init/warm.h)."""

import os
import random
import struct
import subprocess
import sys

import pytest

BUILD = os.environ.get("CAY_BUILD", "build")
SAVE = os.path.join(BUILD, "src", "init", "warm-save.so")
RUN = os.path.join(BUILD, "tests", "sandbox", "warm-run")

# Forks, so that it has one thread, and saves the child; a copy executes what it reads.
SAVED = r"""
import ctypes, gc, os, sys
MODULES
kept = ["from before"]
library, image = sys.argv[1:]
saver = ctypes.PyDLL(library)
program = ctypes.CDLL(None)
try:
    offset = ctypes.c_ssize_t.in_dll(program, "__rseq_offset").value
except ValueError:
    offset = 0
PREPARATION
gc.collect()
gc.freeze()
descriptor = os.open(image, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
if os.fork() == 0:
    result = saver.warm_save(descriptor, ctypes.c_int64(offset))
    if result == 1:
        exec(sys.stdin.read())
        sys.stdout.flush()
    os._exit(0 if result == 1 else -result)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""

PYTHONS = sorted({"/usr/bin/python3", os.path.realpath(sys.executable)})


def save(image, python="/usr/bin/python3", modules="", preparation=""):
    code = SAVED.replace("MODULES", modules).replace("PREPARATION", preparation)
    return subprocess.run([python, "-c", code, SAVE, str(image)], timeout=120).returncode


def start(image, code):
    return subprocess.run([RUN, str(image)], input=code, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("warm") / "image"
    assert save(path) == 0
    return path


@pytest.mark.parametrize("python", PYTHONS)
def test_a_copy_continues_with_the_variables(tmp_path, python):
    assert save(tmp_path / "image", python) == 0
    done = start(tmp_path / "image", "print(kept, os.getppid())")
    assert (done.stdout, done.returncode) == (f"['from before'] {os.getpid()}\n", 0)


def test_copies_do_not_share_changes(image):
    assert start(image, "kept.append(1); print(kept)").stdout == "['from before', 1]\n"
    assert start(image, "print(kept)").stdout == "['from before']\n"


def test_a_copy_can_do_what_a_process_can(image):
    code = """
import signal, subprocess, threading
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
sys.setrecursionlimit(20000)
print(depth(9000))
print(len(bytearray(300 << 20)), len([str(i) for i in range(1000000)]))
thread = threading.Thread(target=lambda: print("thread")); thread.start(); thread.join()
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout, end="")
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
print(open("/proc/self/comm").read().strip(), program.sched_getcpu() < os.cpu_count())
print(open("/proc/self/cmdline").read().split("\\0")[0])
print(sorted(os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
"""
    assert start(image, code).stdout.splitlines() == [
        "9000",
        "314572800 1000000",
        "thread",
        "child",
        "interrupted",
        "python3 True",
        "/usr/bin/python3",
        "['0', '1', '2'] 4",
    ]


def test_nothing_of_the_old_memory_is_left(image):
    maps = start(image, "print(open('/proc/self/maps').read())").stdout
    assert "warm-run" not in maps
    assert "python3" in maps


def test_abort_and_fault_end_the_copy_as_usual(image):
    assert start(image, "os.abort()").returncode == -6
    assert start(image, "ctypes.string_at(0)").returncode == -11


def test_many_at_once(image):
    code = "print(sum(range(100000)))"
    running = [
        subprocess.Popen([RUN, str(image)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(50)
    ]
    assert {process.communicate(code, timeout=120)[0] for process in running} == {"4999950000\n"}


def test_threads_and_shared_memory_are_refused(tmp_path):
    # A thread that the child starts itself.
    assert (
        save(
            tmp_path / "image",
            preparation="import threading, time\n"
            "os.register_at_fork(after_in_child=lambda: threading.Thread("
            "target=time.sleep, args=(60,), daemon=True).start())",
        )
        == 16
    )
    assert save(tmp_path / "image", preparation="import mmap; shared = mmap.mmap(-1, 4096)") == 16


def test_a_changed_file_is_noticed(tmp_path):
    # A library of its own, which is changed afterwards.
    library = tmp_path / "library.so"
    library.write_bytes(open(SAVE, "rb").read())
    code = f"other = ctypes.CDLL({str(library)!r})"
    assert save(tmp_path / "image", preparation=code) == 0
    assert start(tmp_path / "image", "print(1)").stdout == "1\n"
    os.utime(library, ns=(0, 0))
    done = start(tmp_path / "image", "print(1)")
    assert (done.stdout, done.returncode) == ("not started: Stale file handle\n", 3)
    library.unlink()
    done = start(tmp_path / "image", "print(1)")
    assert (done.stdout, done.returncode) == ("not started: No such file or directory\n", 3)


def test_a_library_that_was_removed_before_is_stored(tmp_path):
    library = tmp_path / "library.so"
    library.write_bytes(open(SAVE, "rb").read())
    code = f"other = ctypes.CDLL({str(library)!r}); os.unlink({str(library)!r})"
    assert save(tmp_path / "image", preparation=code) == 0
    assert start(tmp_path / "image", "print(other._handle != 0)").stdout == "True\n"


def test_what_is_not_an_image_is_refused(tmp_path, image):
    whole = image.read_bytes()
    table = struct.unpack_from("<Q", whole, 32)[0]
    for content in (b"", b"\0" * 8192, whole[:4096], whole[:table], whole[: table + 100], b"x" + whole[1:]):
        (tmp_path / "bad").write_bytes(content)
        done = start(tmp_path / "bad", "print(1)")
        assert (done.stdout, done.returncode) == ("not started: Invalid argument\n", 3)


def test_a_damaged_table_harms_only_the_copy(tmp_path, image):
    whole = bytearray(image.read_bytes())
    table = struct.unpack_from("<Q", whole, 32)[0]
    chance = random.Random(7)
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(4):
            at = chance.choice([chance.randrange(8, 400), chance.randrange(table, len(whole))])
            damaged[at] = chance.randrange(256)
        (tmp_path / "bad").write_bytes(damaged)
        running = subprocess.Popen([RUN, str(tmp_path / "bad")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            running.wait(5)  # in whatever way it ends
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
    assert start(image, "print(1)").stdout == "1\n"


DRIVER = os.path.join(os.path.dirname(__file__), "..", "..", "data", "code", "python", "warm.py")
DRAWS = """
private = ctypes.create_string_buffer(8)
crypto.RAND_priv_bytes(private, 8)
print(random.random())
print(ssl.RAND_bytes(8))
print(private.raw)
print(next(tempfile._get_candidate_names()))
print(uuid.uuid1().node, uuid.uuid4())
print(secrets.token_hex(8))
print(os.urandom(8))
"""


def test_copies_draw_other_numbers_after_their_state_was_renewed(tmp_path):
    modules = "import random, ssl, tempfile, uuid, secrets"
    # Copies have the same process id, as in sandboxes.
    draw = "crypto = ctypes.CDLL('libcrypto.so.3')\nos.getpid = lambda: 7" + DRAWS.replace("print", "repr")
    draw = draw.replace("node, uuid", "node), repr(uuid")
    assert save(tmp_path / "image", modules=modules, preparation=draw) == 0
    renew = f"names = dict(globals())\nexec(open({DRIVER!r}).read(), names)\nnames['renew_random_state'](None)"
    hash_of = "print(hash('text'))"
    draws = [start(tmp_path / "image", f"{renew}\n{DRAWS}{hash_of}").stdout.splitlines() for _ in "12"]
    assert len(draws[0]) == 8
    assert [one == two for one, two in zip(*draws)] == [False] * 7 + [True]
    # Without it some are the same.  OpenSSL notices the fork before the save.
    same = [start(tmp_path / "image", DRAWS).stdout.splitlines() for _ in "12"]
    assert [one == two for one, two in zip(*same)] == [True, False, False, True, False, False, False]


def test_memory_that_is_wiped_on_fork_is_empty_in_copies_and_their_children(tmp_path):
    preparation = (
        "import mmap; state = mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "state.madvise(18, 0, 4096)\n"
        "def fill(): state[0] = state[4096] = 7\n"
        "os.register_at_fork(after_in_child=fill)"
    )
    assert save(tmp_path / "image", preparation=preparation) == 0
    code = """
print(state[0], state[4096])
os.register_at_fork(after_in_child=lambda: None)
read, write = os.pipe()
libc = ctypes.CDLL(None)
state[0] = 9
if libc.fork() == 0:
    os.write(write, b"%d" % state[0])
    os._exit(0)
os.wait()
print(os.read(read, 9), state[0])
"""
    assert start(tmp_path / "image", code).stdout == "0 7\nb'0' 9\n"


def test_numpy_works_in_copies(tmp_path):
    pytest.importorskip("numpy")
    modules = "import numpy"
    if save(tmp_path / "image", modules=modules) != 0:
        pytest.skip("/usr/bin/python3 has no numpy")
    code = "a = numpy.ones((400, 400)); print((a @ a).sum())"
    assert start(tmp_path / "image", code).stdout == "64000000.0\n"
