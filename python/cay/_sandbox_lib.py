# SPDX-License-Identifier: Apache-2.0
"""libcay's sandboxes through ctypes: include/cay/sandbox.h in Python, and nothing more.

As in _lib, members have the names and the order they have in C.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, TypeVar

from cay._lib import _ERR, _HANDLE, _bind, free

# --- Constants --------------------------------------------------------------------------

LAYERS = {
    1 << 0: "user",
    1 << 1: "pid",
    1 << 2: "mount",
    1 << 3: "network",
    1 << 4: "ipc",
    1 << 5: "uts",
    1 << 6: "cgroup",
    1 << 7: "seccomp",
    1 << 8: "landlock",
    1 << 9: "memory",
    1 << 10: "pids",
    1 << 11: "cpu",
    1 << 12: "disk",
}
NETWORKS = {0: "none", 1: "host"}
STORAGES = {0: "memory", 1: "disk"}
RUNGS = {0: "best", 1: "root", 2: "range", 3: "single", 4: "landlock", 5: "none"}
RUNGS_ASKED_FOR = {number: name for number, name in RUNGS.items() if name != "none"}
STATES = {1: "running", 2: "paused", 3: "stopped", 4: "damaged"}
CAUSES = {
    1: "exited",
    2: "signalled",
    3: "timeout",
    4: "memory",
    5: "output-limit",
    6: "gone",
    7: "not-started",
}
TEMPLATE_SOURCES = {1: "dir", 2: "tar", 3: "oci", 4: "debootstrap"}
FINDINGS = {1: "ok", 2: "weaker", 3: "missing"}

EXEC_FAIL_ON_LIMIT, EXEC_TTY, EXEC_BACKGROUND, EXEC_INPUT = 1, 2, 4, 8
ID_MAX = 32
NAME_MAX = 64
LAYERS_MAX = 16


# --- Structs ----------------------------------------------------------------------------


class Bind(Structure):
    _fields_ = [("source", c_char_p), ("target", c_char_p), ("writable", c_bool)]


class SandboxOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("template_name", c_char_p),
        ("memory_bytes", c_uint64),
        ("disk_bytes", c_uint64),
        ("pids", c_uint32),
        ("cpu_percent", c_uint32),
        ("network", c_int),
        ("binds", POINTER(Bind)),
        ("bind_count", c_size_t),
        ("env", POINTER(c_char_p)),
        ("hostname", c_char_p),
        ("require", c_uint),
        ("ephemeral", c_bool),
        ("policy", c_void_p),
        ("ttl_ms", c_uint64),
        ("user", c_char_p),
        ("workdir", c_char_p),
        ("storage", c_int),
        ("rung", c_int),
        ("make_workdir", c_bool),
        ("name", c_char_p),
    ]


class Enforced(Structure):
    _fields_ = [("layer", c_uint), ("by", c_char * 64)]


class SandboxInfo(Structure):
    _fields_ = [
        ("id", c_char * ID_MAX),
        ("state", c_int),
        ("rung", c_int),
        ("network", c_int),
        ("storage", c_int),
        ("ephemeral", c_bool),
        ("template_name", c_char * 256),
        ("user", c_char * 64),
        ("workdir", c_char * 256),
        ("created_ms", c_int64),
        ("ttl_left_ms", c_uint64),
        ("memory_bytes", c_uint64),
        ("disk_bytes", c_uint64),
        ("pids", c_uint32),
        ("cpu_percent", c_uint32),
        ("memory_used", c_uint64),
        ("disk_used", c_uint64),
        ("cpu_us", c_uint64),
        ("pids_used", c_uint32),
        ("init_pid", c_int),
        ("id_base", c_uint32),
        ("id_count", c_uint32),
        ("layers", c_uint),
        ("enforced", Enforced * LAYERS_MAX),
        ("enforced_count", c_size_t),
        ("type", c_char * 32),
        ("memory_kills", c_uint64),
        ("name", c_char * NAME_MAX),
    ]


# cookie, stream, data, len
OnOutput = CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_size_t)


class ExecOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("argv", POINTER(c_char_p)),
        ("env", POINTER(c_char_p)),
        ("cwd", c_char_p),
        ("user", c_char_p),
        ("input", c_void_p),
        ("input_len", c_size_t),
        ("timeout_ms", c_uint64),
        ("output_limit", c_uint64),
        ("on_output", OnOutput),
        ("cookie", c_void_p),
        ("tag", c_char_p),
        ("rows", c_uint16),
        ("columns", c_uint16),
    ]


class ExecResult(Structure):
    _fields_ = [
        ("cause", c_int),
        ("exit_code", c_int),
        ("signal", c_int),
        ("exec_errno", c_int),
        ("out", c_void_p),
        ("error", c_void_p),
        ("out_len", c_size_t),
        ("error_len", c_size_t),
        ("out_dropped", c_uint64),
        ("error_dropped", c_uint64),
        ("user_us", c_uint64),
        ("system_us", c_uint64),
        ("wall_us", c_uint64),
        ("peak_memory", c_uint64),
        ("memory_kills", c_uint64),
        ("refused_forks", c_uint64),
    ]


class ProcessInfo(Structure):
    _fields_ = [
        ("pid", c_int),
        ("parent", c_int),
        ("uid", c_uint32),
        ("is_command", c_bool),
        ("is_background", c_bool),
        ("has_ended", c_bool),
        ("exit_code", c_int),
        ("state", c_char),
        ("tag", c_char * 64),
        ("command", c_char * 512),
        ("started_ms", c_int64),
        ("cpu_us", c_uint64),
        ("memory_bytes", c_uint64),
        ("cause", c_int),
    ]


# cookie, step, bytes
OnProgress = CFUNCTYPE(c_int, c_void_p, c_char_p, c_uint64)


class TemplateOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("source", c_int),
        ("from", c_char_p),
        ("on_progress", OnProgress),
        ("cookie", c_void_p),
    ]


class TemplateInfo(Structure):
    _fields_ = [
        ("name", c_char * 64),
        ("source", c_char * 32),
        ("from", c_char * 256),
        ("created_ms", c_int64),
        ("bytes", c_uint64),
        ("user", c_char * 64),
        ("workdir", c_char * 256),
    ]


class Check(Structure):
    _fields_ = [
        ("finding", c_int),
        ("facility", c_char * 48),
        ("detail", c_char * 256),
        ("fix", c_char * 256),
    ]


# --- Functions --------------------------------------------------------------------------

_COUNT = POINTER(c_size_t)

policy_load = _bind("cay_policy_load", c_int, c_char_p, c_char_p, POINTER(_HANDLE), _ERR)

sandbox_create = _bind(
    "cay_sandbox_create", c_int, POINTER(SandboxOptions), POINTER(_HANDLE), _ERR
)
sandbox_open = _bind("cay_sandbox_open", c_int, c_char_p, POINTER(_HANDLE), _ERR)
sandbox_free = _bind("cay_sandbox_free", None, _HANDLE)
sandbox_id = _bind("cay_sandbox_id", c_char_p, _HANDLE)
sandbox_layers = _bind("cay_sandbox_layers", c_uint, _HANDLE)
sandbox_inspect = _bind("cay_sandbox_inspect", c_int, _HANDLE, POINTER(SandboxInfo), _ERR)
sandbox_list = _bind(
    "cay_sandbox_list", c_int, POINTER(POINTER(SandboxInfo)), _COUNT, _ERR
)
_ACT = (c_int, _HANDLE, _ERR)
sandbox_pause = _bind("cay_sandbox_pause", *_ACT)
sandbox_resume = _bind("cay_sandbox_resume", *_ACT)
sandbox_set_ttl = _bind("cay_sandbox_set_ttl", c_int, _HANDLE, c_uint64, _ERR)
sandbox_kill = _bind("cay_sandbox_kill", *_ACT)
sandbox_start = _bind("cay_sandbox_start", *_ACT)
sandbox_remove = _bind("cay_sandbox_remove", *_ACT)
sandbox_collect = _bind("cay_sandbox_collect", c_int, _COUNT, _ERR)
sandbox_files = _bind(
    "cay_sandbox_files", c_int, _HANDLE, c_char_p, POINTER(_HANDLE), _ERR
)
exec_done = _bind("cay_exec_done", None, POINTER(ExecResult))

process_start = _bind(
    "cay_process_start", c_int, _HANDLE, POINTER(ExecOptions), POINTER(_HANDLE), _ERR
)
process_attach = _bind(
    "cay_process_attach", c_int, _HANDLE, c_char_p, POINTER(_HANDLE), _ERR
)
process_free = _bind("cay_process_free", None, _HANDLE)
process_pid = _bind("cay_process_pid", c_int, _HANDLE)
process_fd = _bind("cay_process_fd", c_int, _HANDLE)
process_read = _bind(
    "cay_process_read",
    c_int,
    _HANDLE,
    POINTER(c_int),
    c_void_p,
    c_size_t,
    POINTER(c_size_t),
    POINTER(c_uint64),
    _ERR,
)
process_write = _bind(
    "cay_process_write", c_int, _HANDLE, c_void_p, c_size_t, POINTER(c_size_t), _ERR
)
process_close_input = _bind("cay_process_close_input", *_ACT)
process_resize = _bind("cay_process_resize", c_int, _HANDLE, c_uint16, c_uint16, _ERR)
process_signal = _bind("cay_process_signal", c_int, _HANDLE, c_int, _ERR)
process_kill = _bind("cay_process_kill", *_ACT)
process_wait = _bind(
    "cay_process_wait", c_int, _HANDLE, c_uint64, POINTER(ExecResult), _ERR
)
process_list = _bind(
    "cay_process_list", c_int, _HANDLE, POINTER(POINTER(ProcessInfo)), _COUNT, _ERR
)

template_create = _bind("cay_template_create", c_int, POINTER(TemplateOptions), _ERR)
template_list = _bind(
    "cay_template_list", c_int, POINTER(POINTER(TemplateInfo)), _COUNT, _ERR
)
template_remove = _bind("cay_template_remove", c_int, c_char_p, _ERR)

doctor = _bind("cay_doctor", c_int, POINTER(POINTER(Check)), _COUNT, _ERR)


def null_terminated(items: list[bytes]) -> Any:
    """A `const char *const *` with a NULL after the last."""
    return (c_char_p * (len(items) + 1))(*items, None)


_Item = TypeVar("_Item", bound=Structure)


def copied(items: Any, kind: type[_Item], count: int) -> list[_Item]:
    """Copies of the structs in an array that C allocated, which is freed."""
    try:
        size = ctypes.sizeof(kind)
        whole = ctypes.string_at(items, count * size) if count else b""
        return [kind.from_buffer_copy(whole, at * size) for at in range(count)]
    finally:
        free(items)
