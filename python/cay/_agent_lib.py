# SPDX-License-Identifier: Apache-2.0
"""libcay's calls for agents through ctypes: include/cay/agent.h in Python, and nothing more.

As in _lib, members have the names and the order they have in C.
"""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_int,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)

from cay._lib import _ERR, _HANDLE, U64_MAX, Stat, Strings, _bind

STATUSES = {1: "success", 2: "error", 3: "timeout", 4: "running", 5: "stopped"}
COMMAND_BACKGROUND, COMMAND_CLEAN, COMMAND_KEEP = 1, 2, 4
TIMEOUT_AT_ONCE = U64_MAX - 1
THRESHOLD_CHARS, HEAD_CHARS, TAIL_CHARS = 10000, 5000, 5000


class CommandOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("timeout_ms", c_uint64),
        ("cwd", c_char_p),
        ("user", c_char_p),
        ("env", POINTER(c_char_p)),
        ("threshold_chars", c_uint32),
        ("head_chars", c_uint32),
        ("tail_chars", c_uint32),
        ("tag", c_char_p),
    ]


class CommandResult(Structure):
    _fields_ = [
        ("status", c_int),
        ("cause", c_int),
        ("exit_code", c_int),
        ("background_pid", c_int),
        ("duration_ms", c_uint64),
        ("out", c_void_p),
        ("error", c_void_p),
        ("out_len", c_size_t),
        ("error_len", c_size_t),
        ("truncated", c_bool),
        ("original_out_len", c_uint64),
        ("original_error_len", c_uint64),
        ("output_dir", c_char_p),
        ("out_file", c_char_p),
        ("error_file", c_char_p),
        ("message", c_char * 512),
    ]


class CodeResult(Structure):
    _fields_ = [
        ("status", c_int),
        ("language", c_char * 32),
        ("command", CommandResult),
        ("error_type", c_char * 64),
        ("error_value", c_char * 512),
    ]


class Content(Structure):
    _fields_ = [("data", c_void_p), ("len", c_size_t)]


class FileInfo(Structure):
    _fields_ = [
        ("path", c_char_p),
        ("exists", c_bool),
        ("stat", Stat),
        ("link_target", c_char_p),
        ("readable", c_bool),
        ("writable", c_bool),
        ("encoding", c_char * 16),
    ]


class FileInfos(Structure):
    _fields_ = [("items", POINTER(FileInfo)), ("count", c_size_t)]


class Transfer(Structure):
    _fields_ = [("files", c_uint64), ("bytes", c_uint64), ("skipped", c_uint64)]


_TEXT = c_char_p

command_done = _bind("cay_command_done", None, POINTER(CommandResult))
_COMMAND = (POINTER(CommandOptions), POINTER(CommandResult), _ERR)
execute_bash = _bind("cay_execute_bash", c_int, _HANDLE, _TEXT, *_COMMAND)
background_status = _bind("cay_background_status", c_int, _HANDLE, c_int, *_COMMAND)
background_kill = _bind(
    "cay_background_kill", c_int, _HANDLE, c_int, POINTER(CommandResult), _ERR
)
code_done = _bind("cay_code_done", None, POINTER(CodeResult))
execute_code = _bind(
    "cay_execute_code",
    c_int,
    _HANDLE,
    c_void_p,
    c_size_t,
    _TEXT,
    POINTER(CommandOptions),
    POINTER(CodeResult),
    _ERR,
)
code_language = _bind("cay_code_language", _TEXT, c_size_t)

read_file = _bind("cay_read_file", c_int, _HANDLE, _TEXT, _TEXT, POINTER(Content), _ERR)
write_file = _bind(
    "cay_write_file", c_int, _HANDLE, _TEXT, _TEXT, c_void_p, c_size_t, c_uint, _ERR
)
delete_file = _bind("cay_delete_file", c_int, _HANDLE, _TEXT, _TEXT, _ERR)
file_info_done = _bind("cay_file_info_done", None, POINTER(FileInfo))
file_infos_done = _bind("cay_file_infos_done", None, POINTER(FileInfos))
get_file_info = _bind(
    "cay_get_file_info", c_int, _HANDLE, _TEXT, _TEXT, POINTER(FileInfo), _ERR
)
file_exists = _bind("cay_file_exists", c_int, _HANDLE, _TEXT, _TEXT, _ERR)
list_files = _bind(
    "cay_list_files",
    c_int,
    _HANDLE,
    _TEXT,
    _TEXT,
    c_bool,
    _TEXT,
    POINTER(FileInfos),
    _ERR,
)
create_directory = _bind(
    "cay_create_directory", c_int, _HANDLE, _TEXT, _TEXT, c_bool, _ERR
)
edit_file = _bind(
    "cay_edit_file",
    c_int,
    _HANDLE,
    _TEXT,
    _TEXT,
    c_void_p,
    c_size_t,
    c_void_p,
    c_size_t,
    POINTER(c_int),
    _ERR,
)
glob = _bind("cay_glob", c_int, _HANDLE, _TEXT, _TEXT, c_bool, POINTER(Strings), _ERR)

_TRANSFER = (c_int, _HANDLE, _TEXT, _TEXT, _TEXT, POINTER(Transfer), _ERR)
upload_file = _bind("cay_upload_file", *_TRANSFER)
download_file = _bind("cay_download_file", *_TRANSFER)
upload_directory = _bind("cay_upload_directory", *_TRANSFER)
download_directory = _bind("cay_download_directory", *_TRANSFER)

_CLEAN = (c_void_p, c_void_p, c_size_t)
text_strip_ansi = _bind("cay_text_strip_ansi", *_CLEAN, POINTER(c_size_t))
text_resolve_cr = _bind("cay_text_resolve_cr", *_CLEAN, POINTER(c_size_t))
text_collapse = _bind("cay_text_collapse", *_CLEAN, c_uint32, POINTER(c_size_t))
text_clean = _bind("cay_text_clean", *_CLEAN, POINTER(c_size_t))
