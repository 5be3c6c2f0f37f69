# SPDX-License-Identifier: Apache-2.0
"""libcay's configurations and backends through ctypes: include/cay/{config,backend}.h.

As in _lib, members have the names and the order they have in C.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)

from cay._lib import _ERR, _HANDLE, _bind

FIELD_TYPES = {
    1: "text",
    2: "secret",
    3: "integer",
    4: "number",
    5: "boolean",
    6: "bytes",
    7: "choice",
    8: "texts",
    9: "map",
    10: "policy",
    11: "path",
}


class Field(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("alias", c_char_p),
        ("type", c_int),
        ("fallback", c_char_p),
        ("about", c_char_p),
        ("choices", POINTER(c_char_p)),
        ("least", c_int64),
        ("most", c_int64),
    ]


# data, config, ret_cookie; data, config, id, ret_cookie
BackendCreate = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_void_p), _ERR)
BackendConnect = CFUNCTYPE(c_int, c_void_p, c_void_p, c_char_p, POINTER(c_void_p), _ERR)
BackendFree = CFUNCTYPE(None, c_void_p)
BackendId = CFUNCTYPE(c_void_p, c_void_p)
BackendState = CFUNCTYPE(c_int, c_void_p, POINTER(c_int), _ERR)
BackendAct = CFUNCTYPE(c_int, c_void_p, _ERR)
BackendExec = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, _ERR)
BackendOpenFiles = CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(c_void_p), _ERR)


class Backend(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("about", c_char_p),
        ("fields", POINTER(Field)),
        ("field_count", c_size_t),
        ("data", c_void_p),
        ("create", BackendCreate),
        ("connect", BackendConnect),
        ("free", BackendFree),
        ("id", BackendId),
        ("layers", c_void_p),
        ("state", BackendState),
        ("inspect", c_void_p),
        ("pause", c_void_p),
        ("resume", c_void_p),
        ("set_ttl", c_void_p),
        ("kill", BackendAct),
        ("start", c_void_p),
        ("remove", c_void_p),
        ("exec", BackendExec),
        ("open_files", BackendOpenFiles),
        ("files", c_void_p),
        ("processes", c_void_p),
        ("create_marked", c_void_p),
        ("find_marked", c_void_p),
        ("dial", c_void_p),
        ("check", c_void_p),
        ("late_ms", c_uint64),
    ]


_TEXT = c_char_p

config_parse = _bind(
    "cay_config_parse", c_int, _TEXT, c_size_t, _TEXT, _TEXT, POINTER(_HANDLE), _ERR
)
config_load = _bind("cay_config_load", c_int, _TEXT, POINTER(_HANDLE), _ERR)
config_free = _bind("cay_config_free", None, _HANDLE)
config_type = _bind("cay_config_type", _TEXT, _HANDLE)
config_has = _bind("cay_config_has", c_bool, _HANDLE, _TEXT)
config_text = _bind("cay_config_text", _TEXT, _HANDLE, _TEXT)
config_restore = _bind("cay_config_restore", c_int, _TEXT, POINTER(_HANDLE), _ERR)
config_count = _bind("cay_config_count", c_size_t, _HANDLE, _TEXT)
config_item = _bind(
    "cay_config_item",
    c_bool,
    _HANDLE,
    _TEXT,
    c_size_t,
    POINTER(c_char_p),
    POINTER(c_char_p),
)
config_json = _bind("cay_config_json", c_int, _HANDLE, POINTER(c_void_p), _ERR)

backend_register = _bind("cay_backend_register", c_int, POINTER(Backend), _ERR)
backend_find = _bind("cay_backend_find", POINTER(Backend), _TEXT)
backend_create = _bind("cay_backend_create", c_int, _HANDLE, POINTER(_HANDLE), _ERR)
backend_connect = _bind(
    "cay_backend_connect", c_int, _HANDLE, _TEXT, POINTER(_HANDLE), _ERR
)
sandbox_state = _bind("cay_sandbox_state", c_int, _HANDLE, POINTER(c_int), _ERR)
