# SPDX-License-Identifier: Apache-2.0
"""include/cay/snapshot.h in Python."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_int, c_size_t

from cay._c.library import HANDLE, bind_call, members
from cay._c.sandbox import NAME_MAX


class SnapshotOptions(Structure):
    _fields_ = members("size_t size; char *name; char *checkpoint; int mode; bool replace;")


class SnapshotInfo(Structure):
    _fields_ = members(
        f"char name[{NAME_MAX}]; char sandbox[32]; char template_name[256]; char user[64];"
        " char workdir[256]; int64_t created_ms; uint64_t bytes; uint32_t sandboxes;"
    )


snapshot_create = bind_call(
    "cay_snapshot_create", HANDLE, POINTER(SnapshotOptions), POINTER(SnapshotInfo)
)
snapshot_list = bind_call(
    "cay_snapshot_list", POINTER(POINTER(SnapshotInfo)), POINTER(c_size_t)
)
snapshot_inspect = bind_call("cay_snapshot_inspect", c_char_p, POINTER(SnapshotInfo))
snapshot_export = bind_call("cay_snapshot_export", c_char_p, c_int)
snapshot_import = bind_call("cay_snapshot_import", c_int, c_char_p, POINTER(SnapshotInfo))
snapshot_remove = bind_call("cay_snapshot_remove", c_char_p)
