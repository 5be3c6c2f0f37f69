# SPDX-License-Identifier: Apache-2.0
"""include/cay/session.h in Python."""

from __future__ import annotations

from ctypes import (
    POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p,
)

from cay._c.library import HANDLE, TEXT, bind, bind_call


class Session(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("user_id", c_char_p),
        ("session_id", c_char_p),
        ("backend", c_char_p),
        ("sandbox_id", c_char_p),
        ("state", c_int),
        ("config", c_char_p),
        ("data", c_char_p),
        ("created_ms", c_int64),
        ("updated_ms", c_int64),
        ("revision", c_uint64),
    ]


class ManagerOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("store", c_void_p),
        ("user_id", c_char_p),
        ("session_id", c_char_p),
        ("config", c_void_p),
    ]


store_open = bind_call("cay_store_open", TEXT, POINTER(HANDLE))
store_free = bind("cay_store_free", None, HANDLE)
store_put = bind_call("cay_store_put", HANDLE, POINTER(Session))
store_get = bind_call("cay_store_get", HANDLE, TEXT, TEXT, POINTER(POINTER(Session)))
store_list = bind_call(
    "cay_store_list", HANDLE, TEXT, POINTER(POINTER(Session)), POINTER(c_size_t)
)
store_remove = bind_call("cay_store_remove", HANDLE, TEXT, TEXT)
session_lock_take = bind_call(
    "cay_session_lock_take", HANDLE, TEXT, TEXT, c_uint64, POINTER(HANDLE)
)
session_lock_free = bind("cay_session_lock_free", None, HANDLE)
store_collect = bind_call("cay_store_collect", HANDLE, POINTER(c_size_t))

manager_new = bind_call("cay_manager_new", POINTER(ManagerOptions), POINTER(HANDLE))
manager_free = bind("cay_manager_free", None, HANDLE)
manager_sandbox = bind_call("cay_manager_sandbox", HANDLE, POINTER(HANDLE))
manager_pause = bind_call("cay_manager_pause", HANDLE)
manager_stop = bind_call("cay_manager_stop", HANDLE)
