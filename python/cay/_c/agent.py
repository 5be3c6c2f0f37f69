# SPDX-License-Identifier: Apache-2.0
"""include/cay/agent.h in Python."""

from __future__ import annotations

from ctypes import POINTER, Structure, byref, c_bool, c_int, c_size_t, c_uint, c_uint32
from ctypes import c_uint64, c_void_p
from typing import Any

from cay._c.files import Stat, Strings
from cay._c.library import HANDLE, TEXT, U64_MAX, address, bind, bind_call, free, members
from cay._c.library import text

STATUSES = {1: "success", 2: "error", 3: "timeout", 4: "running", 5: "stopped"}
COMMAND_BACKGROUND, COMMAND_CLEAN, COMMAND_KEEP = 1, 2, 4
TIMEOUT_NONE, TIMEOUT_AT_ONCE = U64_MAX, U64_MAX - 1
THRESHOLD_CHARS, HEAD_CHARS, TAIL_CHARS = 10000, 5000, 5000


class CommandOptions(Structure):
    _fields_ = members("""
        size_t size; unsigned flags; uint64_t timeout_ms; char *cwd, *user, **env;
        uint32_t threshold_chars, head_chars, tail_chars; char *tag;
    """)


class CommandResult(Structure):
    _fields_ = members("""
        int status, cause, exit_code, background_pid; uint64_t duration_ms;
        void *out, *error; size_t out_len, error_len; bool truncated;
        uint64_t original_out_len, original_error_len;
        char *output_dir, *out_file, *error_file, message[512];
    """)


class CodeResult(Structure):
    _fields_ = members("""
        int status; char language[32]; CommandResult command;
        char error_type[64], error_value[512];
    """, CommandResult=CommandResult)


class Content(Structure):
    _fields_ = [("data", c_void_p), ("len", c_size_t)]


class FileInfo(Structure):
    _fields_ = members("""
        char *path; bool exists; Stat stat; char *link_target; bool readable, writable;
        char encoding[16];
    """, Stat=Stat)


class FileInfos(Structure):
    _fields_ = [("items", POINTER(FileInfo)), ("count", c_size_t)]


class Transfer(Structure):
    _fields_ = [("files", c_uint64), ("bytes", c_uint64), ("skipped", c_uint64)]


command_done = bind("cay_command_done", None, POINTER(CommandResult))
_COMMAND = (POINTER(CommandOptions), POINTER(CommandResult))
execute_bash = bind_call("cay_bash_run", HANDLE, TEXT, *_COMMAND)
background_status = bind_call("cay_background_poll", HANDLE, c_int, *_COMMAND)
background_kill = bind_call("cay_background_kill", HANDLE, c_int, POINTER(CommandResult))
code_done = bind("cay_code_done", None, POINTER(CodeResult))
execute_code = bind_call(
    "cay_code_run",
    HANDLE,
    c_void_p,
    c_size_t,
    TEXT,
    POINTER(CommandOptions),
    POINTER(CodeResult),
)
code_language = bind("cay_code_language", TEXT, c_size_t)

read_file = bind_call("cay_file_read", HANDLE, TEXT, TEXT, POINTER(Content))
write_file = bind_call("cay_file_write", HANDLE, TEXT, TEXT, c_void_p, c_size_t, c_uint)
delete_file = bind_call("cay_file_delete", HANDLE, TEXT, TEXT)
file_info_done = bind("cay_file_info_done", None, POINTER(FileInfo))
file_infos_done = bind("cay_file_infos_done", None, POINTER(FileInfos))
get_file_info = bind_call("cay_file_inspect", HANDLE, TEXT, TEXT, POINTER(FileInfo))
file_exists = bind_call("cay_file_exists", HANDLE, TEXT, TEXT)
list_files = bind_call(
    "cay_file_list", HANDLE, TEXT, TEXT, c_bool, TEXT, POINTER(FileInfos)
)
create_directory = bind_call("cay_directory_create", HANDLE, TEXT, TEXT, c_bool)
edit_file = bind_call(
    "cay_file_edit",
    HANDLE,
    TEXT,
    TEXT,
    c_void_p,
    c_size_t,
    c_void_p,
    c_size_t,
    POINTER(c_int),
)
glob = bind_call("cay_file_glob", HANDLE, TEXT, TEXT, c_bool, POINTER(Strings))

_TRANSFER = (HANDLE, TEXT, TEXT, TEXT, POINTER(Transfer))
upload_file = bind_call("cay_file_upload", *_TRANSFER)
download_file = bind_call("cay_file_download", *_TRANSFER)
upload_directory = bind_call("cay_directory_upload", *_TRANSFER)
download_directory = bind_call("cay_directory_download", *_TRANSFER)

_CLEAN = (c_void_p, c_void_p, c_size_t)
text_strip_ansi = bind("cay_text_strip_ansi", *_CLEAN, POINTER(c_size_t))
text_resolve_cr = bind("cay_text_resolve_cr", *_CLEAN, POINTER(c_size_t))
text_collapse = bind("cay_text_collapse", *_CLEAN, c_uint32, POINTER(c_size_t))
text_clean = bind("cay_text_clean", *_CLEAN, POINTER(c_size_t))


def clean(function: Any, content: str, *more: int) -> str:
    """Applies one of these functions."""
    data, length = content.encode("utf-8", "replace"), c_size_t()
    result = function(address(data), len(data), *more, byref(length))
    if result is None:
        raise MemoryError
    try:
        return text(result, length.value)
    finally:
        free(result)
