# SPDX-License-Identifier: Apache-2.0
"""Saves this interpreter to a file, and wakes up copies of it: docs/design/warm.md."""

import binascii
import ctypes
import gc

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
        import time
        time.tzset()


def wake(before, places, numpy_at):
    """In a copy: takes over its own channel and environment."""
    environment = read_environment()
    if stamps() != places:
        os._exit(STALE)
    if environment != before:
        if settings(environment) != settings(before):
            os._exit(STALE)
        os.environb.clear()
        os.environb.update(environment)
        follow(environment)
    State.lock = _thread.RLock()
    State.thread = _thread.get_ident()
    State.running = State.interruptible = State.interrupted = False
    State.sending = State.count = 0
    State.unread = b""
    take_channel()
    renew_random_state(numpy_at)
    send(f'{{"type":"ready","warm":1,"version":"{sys.version.partition(" ")[0]}"}}')


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
        result = saver.warm_save(image, ctypes.c_int64(offset))
        if result != 1:
            os._exit(-result & 0xff)
        wake(*saved)
        return True
    os.close(image)
    status = os.waitpid(child, 0)[1]
    if status:
        raise OSError(status >> 8, os.strerror(status >> 8))
    return False
