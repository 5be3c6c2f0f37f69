# SPDX-License-Identifier: Apache-2.0
"""include/cay/session.h in Python."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_size_t, c_uint64

from cay._c.library import HANDLE, TEXT, bind, bind_call, members


class Session(Structure):
    _fields_ = members("""
        size_t size; char *user_id, *session_id, *backend, *sandbox_id; int state;
        char *config, *data; int64_t created_ms, updated_ms; uint64_t revision;
    """)


class ManagerOptions(Structure):
    _fields_ = members("""
        size_t size; void *store; char *user_id, *session_id; void *config; char *pool;
    """)


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
