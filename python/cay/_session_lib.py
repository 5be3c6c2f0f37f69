# SPDX-License-Identifier: Apache-2.0
"""libcay's store of sessions through ctypes: include/cay/session.h in Python.

As in _lib, members have the names and the order they have in C.
"""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)

from cay._lib import _ERR, _HANDLE, _bind


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


_TEXT = c_char_p

store_open = _bind("cay_store_open", c_int, _TEXT, POINTER(_HANDLE), _ERR)
store_free = _bind("cay_store_free", None, _HANDLE)
store_put = _bind("cay_store_put", c_int, _HANDLE, POINTER(Session), _ERR)
store_get = _bind(
    "cay_store_get", c_int, _HANDLE, _TEXT, _TEXT, POINTER(POINTER(Session)), _ERR
)
store_list = _bind(
    "cay_store_list",
    c_int,
    _HANDLE,
    _TEXT,
    POINTER(POINTER(Session)),
    POINTER(c_size_t),
    _ERR,
)
store_remove = _bind("cay_store_remove", c_int, _HANDLE, _TEXT, _TEXT, _ERR)
session_lock_take = _bind(
    "cay_session_lock_take",
    c_int,
    _HANDLE,
    _TEXT,
    _TEXT,
    c_uint64,
    POINTER(_HANDLE),
    _ERR,
)
session_lock_free = _bind("cay_session_lock_free", None, _HANDLE)
store_collect = _bind("cay_store_collect", c_int, _HANDLE, POINTER(c_size_t), _ERR)

manager_new = _bind(
    "cay_manager_new", c_int, POINTER(ManagerOptions), POINTER(_HANDLE), _ERR
)
manager_free = _bind("cay_manager_free", None, _HANDLE)
manager_sandbox = _bind("cay_manager_sandbox", c_int, _HANDLE, POINTER(_HANDLE), _ERR)
_ACT = (c_int, _HANDLE, _ERR)
manager_pause = _bind("cay_manager_pause", *_ACT)
manager_stop = _bind("cay_manager_stop", *_ACT)
