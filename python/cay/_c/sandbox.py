# SPDX-License-Identifier: Apache-2.0
"""include/cay/sandbox.h in Python."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_int, c_int64, c_size_t,
    c_uint, c_uint16, c_uint32, c_uint64, c_void_p,
)

from cay._c.library import HANDLE, bind, bind_call

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
REQUESTABLE_RUNGS = {number: name for number, name in RUNGS.items() if name != "none"}
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

policy_load = bind_call("cay_policy_load", c_char_p, c_char_p, POINTER(HANDLE))

sandbox_create = bind_call("cay_sandbox_create", POINTER(SandboxOptions), POINTER(HANDLE))
sandbox_open = bind_call("cay_sandbox_open", c_char_p, POINTER(HANDLE))
sandbox_free = bind("cay_sandbox_free", None, HANDLE)
sandbox_id = bind("cay_sandbox_id", c_char_p, HANDLE)
sandbox_layers = bind("cay_sandbox_layers", c_uint, HANDLE)
sandbox_inspect = bind_call("cay_sandbox_inspect", HANDLE, POINTER(SandboxInfo))
sandbox_list = bind_call("cay_sandbox_list", POINTER(POINTER(SandboxInfo)), _COUNT)
sandbox_pause = bind_call("cay_sandbox_pause", HANDLE)
sandbox_resume = bind_call("cay_sandbox_resume", HANDLE)
sandbox_set_ttl = bind_call("cay_sandbox_set_ttl", HANDLE, c_uint64)
sandbox_kill = bind_call("cay_sandbox_kill", HANDLE)
sandbox_start = bind_call("cay_sandbox_start", HANDLE)
sandbox_remove = bind_call("cay_sandbox_remove", HANDLE)
sandbox_collect = bind_call("cay_sandbox_collect", _COUNT)
sandbox_files = bind_call("cay_sandbox_files", HANDLE, c_char_p, POINTER(HANDLE))
exec_done = bind("cay_exec_done", None, POINTER(ExecResult))

process_start = bind_call(
    "cay_process_start", HANDLE, POINTER(ExecOptions), POINTER(HANDLE)
)
process_attach = bind_call("cay_process_attach", HANDLE, c_char_p, POINTER(HANDLE))
process_free = bind("cay_process_free", None, HANDLE)
process_pid = bind("cay_process_pid", c_int, HANDLE)
process_fd = bind("cay_process_fd", c_int, HANDLE)
process_read = bind_call(
    "cay_process_read",
    HANDLE,
    POINTER(c_int),
    c_void_p,
    c_size_t,
    POINTER(c_size_t),
    POINTER(c_uint64),
)
process_write = bind_call(
    "cay_process_write", HANDLE, c_void_p, c_size_t, POINTER(c_size_t)
)
process_close_input = bind_call("cay_process_close_input", HANDLE)
process_resize = bind_call("cay_process_resize", HANDLE, c_uint16, c_uint16)
process_signal = bind_call("cay_process_signal", HANDLE, c_int)
process_kill = bind_call("cay_process_kill", HANDLE)
process_wait = bind_call("cay_process_wait", HANDLE, c_uint64, POINTER(ExecResult))
process_list = bind_call(
    "cay_process_list", HANDLE, POINTER(POINTER(ProcessInfo)), _COUNT
)

template_create = bind_call("cay_template_create", POINTER(TemplateOptions))
template_list = bind_call("cay_template_list", POINTER(POINTER(TemplateInfo)), _COUNT)
template_remove = bind_call("cay_template_remove", c_char_p)

doctor = bind_call("cay_doctor", POINTER(POINTER(Check)), _COUNT)
