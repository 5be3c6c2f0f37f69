# SPDX-License-Identifier: Apache-2.0
"""include/cay/volume.h in Python."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_size_t

from cay._c.library import bind_call, members
from cay._c.sandbox import NAME_MAX

VOLUME_PATH = "/volume"


class VolumeOptions(Structure):
    _fields_ = members("size_t size; char *name; uint64_t bytes;")


class VolumeInfo(Structure):
    _fields_ = members(
        f"char name[{NAME_MAX}]; int64_t created_ms; uint64_t bytes; uint32_t sandboxes;"
    )


volume_create = bind_call("cay_volume_create", POINTER(VolumeOptions))
volume_list = bind_call("cay_volume_list", POINTER(POINTER(VolumeInfo)), POINTER(c_size_t))
volume_remove = bind_call("cay_volume_remove", c_char_p)
