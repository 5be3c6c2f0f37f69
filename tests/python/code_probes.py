# SPDX-License-Identifier: Apache-2.0
"""Runs inside contexts: probes that look for what belongs to another process, sandbox or to
the host.  Each returns FOUND, NOTHING or BLOCKED(errno); test_code_probes.py says which of
them is right, and where the same probe must return FOUND."""

import ctypes
import errno
import os
import re
import select
import signal
import socket
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
VM_READV = {"x86_64": 310, "aarch64": 270}[os.uname().machine]
PROT_READ, PROT_WRITE, MAP_SHARED, PAGE = 1, 2, 1, 4096


def verdict(action, *arguments):
    try:
        return "FOUND" if action(*arguments) else "NOTHING"
    except OSError as error:
        return f"BLOCKED({errno.errorcode[error.errno]})"


def checked(result):
    if result in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "refused")
    return result


def read(path):
    with open(path, "rb", buffering=0) as file:
        return file.read(1 << 16)


# --- Another process -------------------------------------------------------------------------


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def vm_read(pid):
    """EFAULT: the kernel allows it, but that address is not mapped."""
    here = ctypes.create_string_buffer(16)
    mine, theirs = Part(ctypes.addressof(here), 16), Part(PAGE, 16)
    words = [ctypes.c_long(word) for word in
             (VM_READV, pid, ctypes.addressof(mine), 1, ctypes.addressof(theirs), 1, 0)]
    return LIBC.syscall(*words) > 0 or ctypes.get_errno() == errno.EFAULT or checked(-1)


def trace(pid):
    attach, detach, all_threads = 16, 17, 0x40000000
    checked(LIBC.ptrace(attach, pid, None, None))
    os.waitpid(pid, all_threads)
    LIBC.ptrace(detach, pid, None, None)
    return True


def open_descriptors(pid):
    """Opens one of its descriptors again."""
    failure = None
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            os.close(os.open(f"/proc/{pid}/fd/{name}", os.O_RDONLY | os.O_NONBLOCK))
            return True
        except OSError as error:
            failure = error
    if failure:
        raise failure
    return False


PROBES = {
    "environment": lambda pid: read(f"/proc/{pid}/environ"),
    "memory": lambda pid: os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY)) is None,
    "write_memory": lambda pid: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)) is None,
    "maps": lambda pid: read(f"/proc/{pid}/maps"),
    "map_files": lambda pid: os.listdir(f"/proc/{pid}/map_files"),
    "descriptors": open_descriptors,
    "directory": lambda pid: os.readlink(f"/proc/{pid}/cwd"),
    "root": lambda pid: os.listdir(f"/proc/{pid}/root/"),
    "program": lambda pid: os.readlink(f"/proc/{pid}/exe"),
    "auxv": lambda pid: read(f"/proc/{pid}/auxv"),
    "trace": trace,
    "vm_readv": vm_read,
    "priority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 5) is None,
    "affinity": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(0)) is None,
}


def of_process(pid):
    return {name: verdict(probe, pid) for name, probe in PROBES.items()}


def of_child():
    """The control: a process of this context's own."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdin.write(b"!")
        child.stdin.flush()
        child.stdout.read(1)  # it is the program now
        return of_process(child.pid)


def search(*halves):
    """The processes whose memory, environment or arguments have a marker.  It comes in two
    halves: so neither this process nor the one that starts it has it by accident."""
    marker = "".join(halves).encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and holds(name, marker):
            found.append(int(name))
    return sorted(found)


def holds(pid, marker):
    try:
        spans = re.findall(r"^(\w+)-(\w+) r", open(f"/proc/{pid}/maps").read(), re.M)
        memory = open(f"/proc/{pid}/mem", "rb", buffering=0)
    except OSError:
        return False
    with memory:
        for start, end in ((int(one, 16), int(other, 16)) for one, other in spans):
            try:
                memory.seek(start)
                if marker in memory.read(end - start):
                    return True
            except (OSError, OverflowError, ValueError):
                continue  # memory of the kernel
    return False


# --- Another sandbox -------------------------------------------------------------------------


def put(marker):
    """Leaves a marker in every place that processes of a sandbox share."""
    global kept, listener, segment, child
    kept = marker
    os.environ["KEPT"] = marker
    for path in ("/tmp/kept", "/dev/shm/kept", os.path.expanduser("~/kept")):
        with open(path, "w") as file:
            file.write(marker)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + marker)
    listener.listen()
    create = 0o1000
    segment = checked(LIBC.shmget(0x636179, PAGE, create | 0o666))
    child = subprocess.Popen(["sh", "-c", "sleep 1000; :", marker])


def clean():
    remove = 0
    child.kill()
    child.wait()
    LIBC.shmctl(segment, remove, None)


def connect(name):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(name)
    return True


def command_lines():
    lines = b""
    for name in os.listdir("/proc"):
        if name.isdigit():
            lines += read(f"/proc/{name}/cmdline")
    return lines


def of_sandbox(*halves):
    marker = "".join(halves)
    return {
        "tmp": verdict(read, "/tmp/kept"),
        "shm": verdict(read, "/dev/shm/kept"),
        "home": verdict(read, os.path.expanduser("~/kept")),
        "socket": verdict(connect, "\0" + marker),
        "segment": verdict(lambda: checked(LIBC.shmget(0x636179, PAGE, 0)) >= 0),
        "processes": verdict(lambda: marker.encode() in command_lines()),
    }


# --- The file of the saved interpreter -------------------------------------------------------


def images():
    """Descriptors of the file that the code service and this process have."""
    found = []
    for pid in (os.getppid(), os.getpid()):
        for name in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{name}"
            try:
                if os.stat(path).st_size > 1 << 20:
                    found.append(path)
            except OSError:
                pass
    return found


def map_shared(path, flags, late):
    """Memory that writes to the file, at once or by a later mprotect()."""
    file = os.open(path, flags)
    try:
        rights = PROT_READ if late else PROT_READ | PROT_WRITE
        memory = checked(LIBC.mmap(None, PAGE, rights, MAP_SHARED, file, ctypes.c_long(0)))
        if late:
            checked(LIBC.mprotect(ctypes.c_void_p(memory), PAGE, PROT_READ | PROT_WRITE))
        return True
    finally:
        os.close(file)


def link(path):
    here, follow = -100, 0x400
    checked(LIBC.linkat(here, path.encode(), here, b"/tmp/linked", follow))
    os.unlink("/tmp/linked")
    return True


def opens(path, flags):
    os.close(os.open(path, flags))
    return True


def map_file(inode):
    """The file by way of memory that is mapped from it."""
    span = re.search(rf"^0*(\w+)-0*(\w+) .* {inode} ", open("/proc/self/maps").read(), re.M)
    return f"/proc/self/map_files/{span[1]}-{span[2]}"


def of_file(path, flags=os.O_RDONLY):
    return {
        "read_write": verdict(opens, path, os.O_RDWR),
        "append": verdict(opens, path, os.O_WRONLY | os.O_APPEND),
        "truncate_open": verdict(opens, path, os.O_WRONLY | os.O_TRUNC),
        "truncate": verdict(lambda: os.truncate(path, 1 << 20) is None),
        "chmod": verdict(lambda: os.chmod(path, 0o777) is None),
        "chown": verdict(lambda: os.chown(path, os.getuid(), os.getgid()) is None),
        "utime": verdict(lambda: os.utime(path) is None),
        "link": verdict(link, path),
        "shared": verdict(map_shared, path, flags, False),
        "shared_later": verdict(map_shared, path, flags, True),
    }


def of_own_file():
    """The control: a file of this user.  Memory is mapped from a new descriptor, which is
    writable there."""
    with open("/tmp/own", "wb") as file:
        file.truncate(2 << 20)
        return of_file(f"/proc/self/fd/{file.fileno()}", os.O_RDWR)


def scribble():
    """A child writes over all memory that comes from the file, first where it is read-only,
    until that ends it or makes it loop.  Returns the number of read-only pages."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        spans = re.findall(r"^(\w+)-(\w+) (r\S+) \S+ \S+ [1-9]\d* +/$",
                           open("/proc/self/maps").read(), re.M)
        memory = os.open("/proc/self/mem", os.O_RDWR)
        for start, end, rights in sorted(spans, key=lambda span: "w" in span[2]):
            if "w" in rights:
                os.close(writing)
            for at in range(int(start, 16), int(end, 16), PAGE):
                os.pwrite(memory, b"scribble" * (PAGE // 8), at)
                if "w" not in rights:
                    os.write(writing, b"x")
        os._exit(0)
    os.close(writing)
    count = 0
    while select.select([reading], [], [], 1)[0] and (block := os.read(reading, 1 << 16)):
        count += len(block)
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return count


# --- The process itself ----------------------------------------------------------------------


def kernel_state():
    """What the kernel knows about this process and its rights."""
    found = {}
    for line in open("/proc/self/status"):
        name, _, value = line.partition(":")
        found[f"status {name}"] = value.strip()
    for line in open("/proc/self/limits"):
        found[f"limit {line[:25].strip()}"] = line[25:].strip()
    for name in os.listdir("/proc/self/ns"):
        found[f"namespace {name}"] = os.readlink(f"/proc/self/ns/{name}")
    for name in ("cgroup", "oom_score_adj", "loginuid", "sessionid", "personality",
                 "coredump_filter", "timerslack_ns", "uid_map", "gid_map", "mountinfo"):
        found[name] = read(f"/proc/self/{name}").decode()
    for name in ("exe", "cwd", "root"):
        found[name] = os.readlink(f"/proc/self/{name}")
    options = {"dumpable": 3, "keep_caps": 7, "seccomp": 21, "securebits": 27, "slack": 30,
               "no_new_privs": 39, "thp": 42, "speculation": 52}
    for name, number in options.items():
        found[f"prctl {name}"] = LIBC.prctl(number, 0, 0, 0, 0)
    for name, number in (("death_signal", 2), ("subreaper", 37)):
        value = ctypes.c_int()
        found[f"prctl {name}"] = LIBC.prctl(number, ctypes.byref(value), 0, 0, 0), value.value
    found["scheduler"] = (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0),
                          sorted(os.sched_getaffinity(0)))
    found["group"] = os.getpgid(0) == os.getpid(), os.getsid(0), os.getppid()
    found["descriptors"] = descriptors()
    found["arguments"] = read("/proc/self/cmdline")
    return found


def descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            flags = re.search(r"flags:\s*(\d+)", read(f"/proc/self/fdinfo/{name}").decode())[1]
            found[int(name)] = re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{name}")), flags
        except OSError:
            pass  # that of the list itself
    return found


if len(sys.argv) > 2:
    print(search(*sys.argv[1:]))
