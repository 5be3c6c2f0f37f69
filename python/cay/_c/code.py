# SPDX-License-Identifier: Apache-2.0
"""include/cay/code.h in Python."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_int, c_int64, c_size_t, c_void_p

from cay._c.library import HANDLE, TEXT, bind, bind_call, members

CODE_STATUSES = {1: "success", 2: "error", 3: "timeout", 4: "interrupted", 5: "lost"}
CONTEXT_MAX = 32
PRELOAD_MAX = 256


class CodePart(Structure):
    _fields_ = members("char *mime; void *data; size_t len; bool is_json;")


class CodeValue(Structure):
    _fields_ = members(
        "bool is_main; int64_t time_ns; CodePart *parts; size_t part_count;",
        CodePart=CodePart,
    )


CODE_ON_TEXT = CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_size_t, c_int64)
CODE_ON_VALUE = CFUNCTYPE(c_int, c_void_p, POINTER(CodeValue))


class CodeOptions(Structure):
    _fields_ = [
        *members("""
            size_t size; char *language, *context, *user, **env;
            uint64_t timeout_ms, output_limit;
        """),
        ("on_text", CODE_ON_TEXT),
        ("on_value", CODE_ON_VALUE),
        *members("void *cookie; int cancel_fd; char *preload;"),
    ]


class CodeExecution(Structure):
    _fields_ = members(f"""
        int status; char context[{CONTEXT_MAX}], language[{CONTEXT_MAX}]; uint64_t count;
        void *out, *error; size_t out_len, error_len; uint64_t out_dropped, error_dropped;
        CodeValue *values; size_t value_count; uint64_t values_dropped;
        char *error_name, *error_value, *traceback, *restarted;
        uint64_t background_dropped; bool is_warm;
    """, CodeValue=CodeValue)


class ContextInfo(Structure):
    _fields_ = members(f"""
        char id[{CONTEXT_MAX}], language[{CONTEXT_MAX}], *cwd; bool is_default, is_busy;
        int pid; uint32_t waiting;
    """)


class ContextInfos(Structure):
    _fields_ = [("items", POINTER(ContextInfo)), ("count", c_size_t)]


class ContextOptions(Structure):
    _fields_ = members(
        "size_t size; char *language, *cwd, *user, **env; uint64_t timeout_ms;"
        "char *preload;"
    )


class SavedContext(Structure):
    _fields_ = members(f"""
        char id[{CONTEXT_MAX}], language[{CONTEXT_MAX}]; bool is_default, is_saved;
        uint64_t bytes; char reason[256];
    """)


class WarmInfo(Structure):
    _fields_ = members(f"""
        char id[40], template_name[256], language[{CONTEXT_MAX}], preload[{PRELOAD_MAX}];
        uint64_t bytes; int64_t created_ms, used_ms; char failure[512];
    """)


code_execute = bind_call(
    "cay_code_execute",
    HANDLE,
    c_void_p,
    c_size_t,
    POINTER(CodeOptions),
    POINTER(CodeExecution),
)
code_execution_done = bind("cay_code_execution_done", None, POINTER(CodeExecution))
context_create = bind_call(
    "cay_context_create", HANDLE, POINTER(ContextOptions), POINTER(ContextInfo)
)
context_list = bind_call("cay_context_list", HANDLE, TEXT, POINTER(ContextInfos))
context_info_done = bind("cay_context_info_done", None, POINTER(ContextInfo))
context_infos_done = bind("cay_context_infos_done", None, POINTER(ContextInfos))
context_restart = bind_call("cay_context_restart", HANDLE, TEXT, TEXT)
context_remove = bind_call("cay_context_remove", HANDLE, TEXT, TEXT)
context_interrupt = bind_call("cay_context_interrupt", HANDLE, TEXT, TEXT)
contexts_save = bind_call("cay_contexts_save", HANDLE, TEXT, POINTER(HANDLE))
contexts_restore = bind_call("cay_contexts_restore", HANDLE, HANDLE)
saved_contexts_items = bind(
    "cay_saved_contexts_items", POINTER(SavedContext), HANDLE, POINTER(c_size_t)
)
saved_contexts_free = bind("cay_saved_contexts_free", None, HANDLE)
warm_create = bind_call("cay_warm_create", TEXT, TEXT)
warm_list = bind_call("cay_warm_list", POINTER(POINTER(WarmInfo)), POINTER(c_size_t))
warm_remove = bind_call("cay_warm_remove", TEXT)
