# SPDX-License-Identifier: Apache-2.0
"""include/cay/try.h in Python, and what it needs of include/cay/diff.h."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_int, c_size_t
from ctypes import c_uint64, c_void_p

from cay._c.library import HANDLE, bind, bind_call, members
from cay._c.sandbox import ID_MAX, Checkpoint

DIFF_FORMATS = {0: "names", 1: "stat", 2: "unified", 3: "json"}
CHANGES = ("added", "deleted", "modified", "mode", "type", "renamed")
APPLY_VERDICTS = ("done", "merged", "conflict", "held")
TRY_PATH = 4096

DiffWriter = CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_size_t)


class DiffOptions(Structure):
    _fields_ = members(
        "size_t size; unsigned flags; uint32_t timeout_ms; uint64_t max_changes, max_text;"
    )


class TryOptions(Structure):
    _fields_ = members("size_t size; char *dir, *note, *race;")


class TryInfo(Structure):
    _fields_ = members(
        f"char id[{ID_MAX}], dir[{TRY_PATH}], note[256]; int64_t created_ms;"
        f"char race[{ID_MAX}];"
    )


class ApplyOptions(Structure):
    _fields_ = members(
        "size_t size; unsigned flags; char **paths; size_t path_count; char **only; size_t only_count;"
    )


class Applied(Structure):
    _fields_ = members("char *path; int kind, verdict; char *reason;")


diff_cut = bind("cay_diff_cut", c_uint64, HANDLE)
diff_free = bind("cay_diff_free", None, HANDLE)
diff_print = bind_call("cay_diff_print", HANDLE, c_int, DiffWriter, c_void_p)
try_create = bind_call("cay_try_create", POINTER(TryOptions), POINTER(TryInfo))
try_changes = bind_call("cay_try_changes", c_char_p, POINTER(c_char * TRY_PATH))
try_list = bind_call("cay_try_list", POINTER(POINTER(TryInfo)), POINTER(c_size_t))
try_find = bind_call("cay_try_find", c_char_p, c_char_p, POINTER(TryInfo))
try_diff = bind_call("cay_try_diff", c_char_p, POINTER(DiffOptions), POINTER(HANDLE))
try_discard = bind_call("cay_try_discard", c_char_p)
try_apply = bind_call("cay_try_apply", c_char_p, POINTER(ApplyOptions), POINTER(HANDLE))
apply_entries = bind("cay_apply_entries", POINTER(Applied), HANDLE, POINTER(c_size_t))
apply_free = bind("cay_apply_free", None, HANDLE)
try_checkpoint = bind_call("cay_try_checkpoint", c_char_p, c_char_p, POINTER(Checkpoint))
try_rollback = bind_call("cay_try_rollback", c_char_p, c_char_p, POINTER(Checkpoint))
try_checkpoints = bind_call(
    "cay_try_checkpoints", c_char_p, POINTER(POINTER(Checkpoint)), POINTER(c_size_t)
)
try_remove_checkpoint = bind_call("cay_try_remove_checkpoint", c_char_p, c_char_p)
