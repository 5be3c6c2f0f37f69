# SPDX-License-Identifier: Apache-2.0
"""include/cay/sandbox.h in Python."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_int
from ctypes import c_size_t, c_uint, c_uint16, c_uint64, c_void_p

from cay._c.library import HANDLE, bind, bind_call, members

# --- Constants --------------------------------------------------------------------------

_LAYERS = "user pid mount network ipc uts cgroup seccomp landlock memory pids cpu disk"
LAYERS = {1 << bit: name for bit, name in enumerate(_LAYERS.split())}
NETWORKS = {0: "none", 1: "host", 2: "rules", 3: "open"}
NETWORK_EVENTS = {1: "lookup", 2: "connect", 3: "close", 4: "packet", 5: "request"}
REACHES = {0: "deny", 1: "allow", 2: "requests"}
STORAGES = {0: "memory", 1: "disk"}
LEVELS = {0: "best", 1: "root", 2: "range", 3: "single", 4: "landlock", 5: "none"}
REQUESTABLE_LEVELS = {number: name for number, name in LEVELS.items() if name != "none"}
STATES = {1: "running", 2: "paused", 3: "stopped", 4: "damaged", 5: "spare"}
_CAUSES = "exited signalled timeout memory output-limit gone not-started"
CAUSES = dict(enumerate(_CAUSES.split(), 1))
TEMPLATE_SOURCES = {
    1: "dir", 2: "tar", 3: "oci", 4: "debootstrap", 5: "image", 6: "sandbox",
}
BUILD_EVENTS = {1: "step", 2: "cached", 3: "output"}
FINDINGS = {1: "ok", 2: "weaker", 3: "missing"}

EXEC_FAIL_ON_LIMIT, EXEC_TTY, EXEC_BACKGROUND, EXEC_INPUT = 1, 2, 4, 8
ID_MAX = 32
NAME_MAX = 64
NETWORKS_MAX = 256
VOLUMES_MAX = 256
LAYERS_MAX = 16


# --- Structs ----------------------------------------------------------------------------


class Bind(Structure):
    _fields_ = [
        ("source", c_char_p),
        ("target", c_char_p),
        ("writable", c_bool),
        ("changes", c_char_p),
    ]


class Secret(Structure):
    _fields_ = members("""
        char *name, *value, **hosts; size_t host_count;
    """)


class Header(Structure):
    _fields_ = members("char *host, *name, *value, **secrets; size_t secret_count;")


class SandboxOptions(Structure):
    _fields_ = members("""
        size_t size; char *template_name; uint64_t memory_bytes, disk_bytes;
        uint32_t pids, cpu_percent; int network; Bind *binds; size_t bind_count;
        char **env, *hostname; unsigned require; bool ephemeral; void *policy;
        uint64_t ttl_ms; char *user, *workdir; int storage, level; bool make_workdir;
        char *name, *pool, **networks; Secret *secrets; size_t secret_count;
        Header *headers; size_t header_count; char *from; bool checkpoint_each;
        char *id_prefix;
        char **approve, *approve_scope; uint64_t approve_timeout_ms;
    """, Bind=Bind, Secret=Secret, Header=Header)


class NetworkConfig(Structure):
    _fields_ = members("""
        size_t size; int network; bool allow_first; char **rules; size_t rule_count;
        char **groups; size_t group_count; char *limits; Header *headers; size_t header_count;
        uint64_t approve_ms;
    """, Header=Header)


class NetworkLimits(Structure):
    _fields_ = members("""
        uint64_t connections, bytes, rate;
    """)


class NetworkQuery(Structure):
    _fields_ = members("""
        size_t size; char *host; uint16_t port; char *address, *method, *path;
    """)


class NetworkAnswer(Structure):
    _fields_ = members("""
        int verdict; char rule[640], why[768];
    """)


class NetworkRule(Structure):
    _fields_ = [("text", c_char * 640), ("group", c_char * 32)]


class NetworkCounts(Structure):
    _fields_ = members("""
        uint64_t allowed, refused, up_bytes, down_bytes, events, events_lost;
        uint32_t connections, names;
    """)


class NetworkEvent(Structure):
    _fields_ = members("""
        uint64_t number; int64_t time_ms; int kind, verdict;
        char name[256], address[48]; uint16_t port; uint8_t protocol; char rule[192];
        uint64_t up_bytes, down_bytes, duration_ms, lost; uint32_t pid, uid; char program[16];
    """)


class Checkpoint(Structure):
    _fields_ = members("""
        uint32_t id, parent; bool is_current; int64_t created_ms; uint64_t bytes, files;
        char name[64], cause[16]; uint32_t processes, below, flags;
    """)


class CheckpointOptions(Structure):
    _fields_ = members("size_t size; char *name; int mode; char *cause;")


class Ended(Structure):
    _fields_ = members("int pid; char command[256];")


class Rollback(Structure):
    _fields_ = [
        ("undone", Checkpoint),
        ("ended", POINTER(Ended)),
        ("ended_count", c_size_t),
        ("kept_count", c_size_t),
    ]


class RollbackOptions(Structure):
    _fields_ = members("size_t size; bool keep;")


class Enforced(Structure):
    _fields_ = [("layer", c_uint), ("by", c_char * 64)]


class SandboxInfo(Structure):
    _fields_ = members(f"""
        char id[{ID_MAX}]; int state, level, network, storage; bool ephemeral;
        char template_name[256], user[64], workdir[256]; int64_t created_ms;
        uint64_t ttl_left_ms, memory_bytes, disk_bytes; uint32_t pids, cpu_percent;
        uint64_t memory_used, disk_used, cpu_us; uint32_t pids_used; int init_pid;
        uint32_t id_base, id_count; unsigned layers; Enforced enforced[{LAYERS_MAX}];
        size_t enforced_count; char type[32]; uint64_t memory_kills;
        char name[{NAME_MAX}], networks[{NETWORKS_MAX}], volumes[{VOLUMES_MAX}];
    """, Enforced=Enforced)


# cookie, stream, data, len
OnOutput = CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_size_t)


class ExecOptions(Structure):
    _fields_ = members("""
        size_t size; unsigned flags; char **argv, **env, *cwd, *user; void *input;
        size_t input_len; uint64_t timeout_ms, output_limit; OnOutput on_output;
        void *cookie; char *tag; uint16_t rows, columns; char **approve;
    """, OnOutput=OnOutput)


class ExecResult(Structure):
    _fields_ = members("""
        int cause, exit_code, signal, exec_errno; void *out, *error;
        size_t out_len, error_len;
        uint64_t out_dropped, error_dropped, user_us, system_us, wall_us, peak_memory,
            memory_kills, refused_forks;
    """)


class ProcessInfo(Structure):
    _fields_ = members("""
        int pid, parent; uint32_t uid; bool is_command, is_background, has_ended;
        int exit_code; char state, tag[64], command[512]; int64_t started_ms;
        uint64_t cpu_us, memory_bytes; int cause;
    """)


# cookie, step, bytes
OnProgress = CFUNCTYPE(c_int, c_void_p, c_char_p, c_uint64)


class TemplateOptions(Structure):
    _fields_ = members("""
        size_t size; char *name; int source; char *from; OnProgress on_progress;
        void *cookie; char *packages;
    """, OnProgress=OnProgress)


class TemplateInfo(Structure):
    _fields_ = members("""
        char name[64], source[32], from[256]; int64_t created_ms; uint64_t bytes;
        char user[64], workdir[256];
    """)


class BuildProgress(Structure):
    _fields_ = members("""
        int event; unsigned step, step_count; void *text; size_t len;
    """)


OnBuildProgress = CFUNCTYPE(c_int, c_void_p, POINTER(BuildProgress))


class BuildOptions(Structure):
    _fields_ = members("""
        size_t size; char *dir, *file, *name, **args, *target; void *policy;
        uint64_t memory_bytes; bool no_cache; OnBuildProgress on_progress; void *cookie;
        bool pull, hides_env;
    """, OnBuildProgress=OnBuildProgress)


class Check(Structure):
    _fields_ = members("""
        int finding; char facility[48], detail[256], fix[256];
    """)


# --- Functions --------------------------------------------------------------------------

_COUNT = POINTER(c_size_t)

policy_load = bind_call("cay_policy_load", c_char_p, c_char_p, POINTER(HANDLE))
policy_add_network = bind_call(
    "cay_policy_add_network", HANDLE, POINTER(NetworkConfig), POINTER(HANDLE)
)
policy_network = bind("cay_policy_network", c_int, HANDLE)
policy_allows_first = bind("cay_policy_allows_first", c_bool, HANDLE)
policy_network_limits = bind(
    "cay_policy_network_limits", None, HANDLE, POINTER(NetworkLimits)
)
policy_network_rule = bind(
    "cay_policy_network_rule", c_bool, HANDLE, c_size_t, POINTER(NetworkRule)
)
policy_explain_network = bind_call(
    "cay_policy_explain_network", HANDLE, POINTER(NetworkQuery), POINTER(NetworkAnswer)
)

sandbox_create = bind_call("cay_sandbox_create", POINTER(SandboxOptions), POINTER(HANDLE))
sandbox_open = bind_call("cay_sandbox_open", c_char_p, POINTER(HANDLE))
sandbox_free = bind("cay_sandbox_free", None, HANDLE)
sandbox_id = bind("cay_sandbox_id", c_char_p, HANDLE)
sandbox_layers = bind("cay_sandbox_layers", c_uint, HANDLE)
sandbox_inspect = bind_call("cay_sandbox_inspect", HANDLE, POINTER(SandboxInfo))
sandbox_list = bind_call("cay_sandbox_list", POINTER(POINTER(SandboxInfo)), _COUNT)
sandbox_pause = bind_call("cay_sandbox_pause", HANDLE)
sandbox_pause_disk = bind_call("cay_sandbox_pause_disk", HANDLE)
sandbox_resume = bind_call("cay_sandbox_resume", HANDLE)
sandbox_checkpoint = bind_call(
    "cay_sandbox_checkpoint", HANDLE, POINTER(CheckpointOptions), POINTER(Checkpoint)
)
sandbox_rollback_with = bind_call(
    "cay_sandbox_rollback_with",
    HANDLE,
    c_char_p,
    POINTER(RollbackOptions),
    POINTER(Rollback),
)
sandbox_remove_checkpoint = bind_call(
    "cay_sandbox_remove_checkpoint", HANDLE, c_char_p, POINTER(c_uint64)
)
sandbox_checkpoints = bind_call(
    "cay_sandbox_checkpoints", HANDLE, POINTER(POINTER(Checkpoint)), _COUNT
)
sandbox_set_ttl = bind_call("cay_sandbox_set_ttl", HANDLE, c_uint64)
sandbox_kill = bind_call("cay_sandbox_kill", HANDLE)
sandbox_start = bind_call("cay_sandbox_start", HANDLE)
sandbox_remove = bind_call("cay_sandbox_remove", HANDLE)
sandbox_collect = bind_call("cay_sandbox_collect", _COUNT)
sandbox_files = bind_call("cay_sandbox_files", HANDLE, c_char_p, POINTER(HANDLE))
sandbox_get_network = bind_call("cay_sandbox_get_network", HANDLE, POINTER(HANDLE))
sandbox_change_network = bind_call(
    "cay_sandbox_change_network", HANDLE, POINTER(NetworkConfig), c_bool
)
sandbox_count_network = bind_call(
    "cay_sandbox_count_network", HANDLE, POINTER(NetworkCounts)
)
sandbox_network_events = bind_call(
    "cay_sandbox_network_events",
    HANDLE,
    c_uint64,
    POINTER(POINTER(NetworkEvent)),
    _COUNT,
)
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
template_prune = bind_call("cay_template_prune", _COUNT, POINTER(c_uint64))
template_inspect = bind_call(
    "cay_template_inspect", c_char_p, POINTER(TemplateInfo), POINTER(c_void_p)
)
build = bind_call("cay_build", POINTER(BuildOptions))

doctor = bind_call("cay_doctor", POINTER(POINTER(Check)), _COUNT)
