# SPDX-License-Identifier: Apache-2.0
"""Saves this interpreter to a file, and wakes up copies of it: docs/design/warm.md.

save() does it for contexts that begin, fork() for those of a fork of the sandbox."""

import binascii
import ctypes
import gc
import time

import _ctypes

STALE = 121  # exit status of a copy that does not fit; the service then starts Python anew
FOLLOWED = (b"PYTHONDONTWRITEBYTECODE", b"PYTHONIOENCODING", b"PYTHONUNBUFFERED", b"TZ")


def modules(names):
    """Imports what most code imports; what is missing is left out."""
    for name in names:
        try:
            __import__(name)
        except Exception:
            pass


def settings(environment):
    """The variables that Python, the loader and libraries read when they start, except those
    that a copy follows."""
    return {key: value for key, value in environment.items()
            if key not in FOLLOWED and key.startswith((
                b"PYTHON", b"LD_", b"GLIBC", b"MALLOC", b"OPENBLAS", b"OMP_", b"MKL_", b"MPL",
                b"LC_", b"LANG", b"HOME", b"TZ"))}


def stamps():
    """Where modules come from: an installed package changes the time of a directory.  The
    inode is not compared: directories of an overlay get another one in each sandbox."""
    found = []
    for path in sys.path:
        try:
            status = os.stat(path or ".")
            found.append((path, status.st_mtime_ns) if path else None)
        except OSError:
            found.append((path, None))
    return found


def load(text):
    """The library that saves, from a file without a name."""
    descriptor = os.memfd_create("warm-save")
    try:
        os.write(descriptor, binascii.a2b_base64(text))
        return ctypes.PyDLL(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def rseq():
    """Where the C library's struct rseq is, from the thread pointer; 0 if it has none."""
    try:
        return ctypes.c_ssize_t.in_dll(ctypes.CDLL(None), "__rseq_offset").value
    except ValueError:
        return 0


def numpy_state():
    """Where numpy keeps the state of its global generator: 624 words and a position; None if
    it is not like that.  numpy.random.seed() takes 1.3 ms in a copy, since it is the first
    to touch 200 pages."""
    try:
        sys.modules["numpy.random"].seed()  # forgets a second normal number
        generator = sys.modules["numpy.random"].mtrand._rand._bit_generator
        state, address = generator.state["state"], generator.ctypes.state_address
        data = state["key"].tobytes() + state["pos"].to_bytes(4, sys.byteorder)
        return address if ctypes.string_at(address, 625 * 4) == data else None
    except Exception:  # another numpy
        return None


def renew_random_state(numpy_at):
    """Copies must not draw the same numbers or have the same keys.  The seed of hash() is
    the same in all: it is part of every dictionary.  What uses the kernel (os.urandom,
    secrets, uuid4) has no state; the C library's is in memory that no copy gets
    (warm-save.c)."""
    loaded = sys.modules
    if "random" in loaded:
        loaded["random"].seed()
    if numpy_at:
        end = (624).to_bytes(4, sys.byteorder)  # all words are used
        ctypes.memmove(numpy_at, os.urandom(624 * 4) + end, 625 * 4)
    elif "numpy.random" in loaded:
        loaded["numpy.random"].seed()
    if "ssl" in loaded:
        loaded["ssl"].RAND_add(os.urandom(64), 64.0)
    if "tempfile" in loaded:  # its generator is renewed only in a process with another number
        loaded["tempfile"]._name_sequence = None
    if "uuid" in loaded:
        loaded["uuid"]._node = loaded["uuid"]._last_timestamp = None
    if "multiprocessing.process" in loaded:
        loaded["multiprocessing.process"].current_process().authkey = os.urandom(32)


def read_environment():
    data = b""
    os.lseek(4, 0, os.SEEK_SET)
    while block := os.read(4, 1 << 16):
        data += block
    os.close(4)
    return dict(line.partition(b"=")[::2] for line in data.split(b"\0") if b"=" in line)


def follow(environment):
    """The driver's streams have one encoding and no buffer that matters."""
    sys.dont_write_bytecode = bool(environment.get(b"PYTHONDONTWRITEBYTECODE"))
    if b"TZ" in environment:
        time.tzset()


def take_over(environment, saver, numpy_at):
    """In a copy: its own channel, environment and random numbers."""
    _ctypes.dlclose(saver._handle)  # a later save loads another one
    State.environment = environment
    State.lock = _thread.RLock()
    State.thread = _thread.get_ident()
    State.running = State.interruptible = State.interrupted = False
    State.sending = 0
    State.unread = b""
    take_channel()
    renew_random_state(numpy_at)


def report_ready():
    send(f'{{"type":"ready","warm":1,"version":"{sys.version.partition(" ")[0]}"}}')


def wake(saver, before, places, numpy_at):
    """In a copy that begins."""
    environment = read_environment()
    if stamps() != places:
        os._exit(STALE)
    if environment != before:
        if settings(environment) != settings(before):
            os._exit(STALE)
        os.environb.clear()
        os.environb.update(environment)
        follow(environment)
    State.count = 0
    take_over(environment, saver, numpy_at)
    report_ready()


def save(options):
    """Writes the file.  True in each copy, which has been woken up."""
    modules(options["modules"])
    for name in "show", "trace", "magic":  # copies need not compile them
        part(name)
    saver, offset = load(options["library"]), rseq()
    saved = dict(os.environb), stamps(), numpy_state()
    image = os.open(options["file"], os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    gc.collect()
    gc.freeze()
    child = os.fork()
    if child == 0:  # one thread, without the channel
        result = saver.warm_save(image, ctypes.c_int64(offset), 0)
        if result != 1:
            os._exit(-result & 0xff)
        wake(saver, *saved)
        return True
    os.close(image)
    status = os.waitpid(child, 0)[1]
    if status:
        raise OSError(status >> 8, os.strerror(status >> 8))
    return False


# --- With the variables of the code: for a fork of the sandbox ---------------------------------

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
DONE_ONCE = os.O_CREAT | os.O_EXCL | os.O_TRUNC
THREADS_END_S = 0.1  # of a library that ends its threads before a fork
REASONS = {1: "its memory is larger than 4 GiB", 7: "its memory is too large or has too many "
           "parts", 13: "it has memory that it may not read", 16: "it shares memory that can be "
           "written to", 95: "its C library is not glibc"}


class Unsaved(Exception):
    """Why the context begins anew in the fork."""


def has_children():
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def place_of(number):
    """The path of an open file that a copy can open again."""
    status = os.fstat(number)
    path = os.readlink(f"/proc/self/fd/{number}")
    kind = status.st_mode >> 12
    if kind in (4, 8) or path in DEVICES:  # a directory, a file
        try:
            if os.path.samestat(os.stat(path), status):
                return path
        except OSError:
            pass  # removed since
    raise Unsaved(f"descriptor {number} is open: {path}")


def open_files():
    """Number, path, flags and position of each."""
    found = []
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        if number < 3 or number == State.channel:
            continue
        try:
            os.fstat(number)
        except OSError:  # it was that of the list
            continue
        with open(f"/proc/self/fdinfo/{number}") as lines:
            info = dict(line.split(":", 1) for line in lines)
        found.append((number, place_of(number), int(info["flags"], 8), int(info["pos"])))
    return found


def open_again(files):
    for number, path, flags, position in files:
        descriptor = os.open(path, flags & ~DONE_ONCE | os.O_NOCTTY)
        if descriptor != number:
            os.dup2(descriptor, number, not flags & os.O_CLOEXEC)
            os.close(descriptor)
        elif not flags & os.O_CLOEXEC:
            os.set_inheritable(number, True)
        if position:
            os.lseek(number, position, os.SEEK_SET)


def first_environment():
    """What this process began with."""
    if State.environment is not None:
        return State.environment
    with open("/proc/self/environ", "rb") as file:
        data = file.read()
    return dict(line.partition(b"=")[::2] for line in data.split(b"\0") if b"=" in line)


def change_environment(before, now):
    """Variables stay as they are, except those that have another value in the fork."""
    for key, value in now.items():
        if before.get(key) != value:
            os.environb[key] = value


def check_fork():
    if _thread._count():
        raise Unsaved("it has threads")
    if has_children():
        raise Unsaved("it has child processes")
    if any(_signal.getitimer(which)[0] for which in range(3)):
        raise Unsaved("it has a timer")


def has_threads():
    """Those of libraries.  Some end theirs before a fork, and start them again when needed."""
    end = time.monotonic() + THREADS_END_S
    while len(os.listdir("/proc/self/task")) > 1:
        if time.monotonic() > end:
            return True
        time.sleep(0.001)
    return False


def wait_for_child(child):
    """Nothing of it stays if this is interrupted."""
    try:
        if has_threads():
            raise Unsaved("a library has threads")
        status = os.waitpid(child, 0)[1]
        child = 0
    finally:
        if child:
            os.kill(child, 9)
            os.waitpid(child, 0)
    if status & 0x7f:
        raise Unsaved("the process that saves it was killed; the sandbox may lack memory")
    if status:
        number = status >> 8
        raise Unsaved(REASONS.get(number, os.strerror(number)))


def write_fork(options):
    """In the child, which the kernel kills first if memory does not suffice.  Returns in each
    copy of it."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    image = os.open(options["image"], os.O_RDWR)
    saver, offset = load(options["library"]), rseq()
    numpy_at = numpy_state() if "numpy.random" in sys.modules else None
    result = saver.warm_save(image, ctypes.c_int64(offset), 1)
    if result != 1:
        os._exit(-result & 0xff)
    return saver, numpy_at


def wake_fork(saved, saver, numpy_at):
    files, directory, mask, before = saved
    now = read_environment()
    take_over(now, saver, numpy_at)
    os.chdir(directory)
    os.umask(mask)
    change_environment(before, now)
    open_again(files)
    if "threading" in sys.modules:
        thread = sys.modules["threading"].main_thread()
        getattr(thread, "_set_native_id", int)()
    report_ready()


def read_mask():
    mask = os.umask(0o77)
    os.umask(mask)
    return mask


def save_for_fork(options):
    """True in each copy."""
    check_fork()
    saved = open_files(), os.getcwd(), read_mask(), first_environment()
    flush()
    child = os.fork()
    if child:
        wait_for_child(child)
        return False
    try:
        wake_fork(saved, *write_fork(options))
    except BaseException:
        os._exit(STALE)
    return True


def fork(message):
    """Saves this interpreter, and reports why it cannot be."""
    error = None
    try:
        State.interruptible = True
        if save_for_fork(message):
            return
        State.interruptible = False
    except BaseException as raised:
        State.interruptible = False
        error = raised
    if error is not None:
        text = str(error) if isinstance(error, Unsaved) else f"{type(error).__name__}: {error}"
        send(f'{{"type":"error","name":"Unsaved","value":{quote(text[:200])},"traceback":""}}')
    send(f'{{"type":"done","id":{message["id"]}}}')
