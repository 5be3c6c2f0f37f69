# SPDX-License-Identifier: Apache-2.0
"""include/cay/config.h and backend.h in Python."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_int, c_int64, c_size_t, c_uint64,
    c_void_p,
)

from cay._c.library import ERR, HANDLE, TEXT, bind, bind_call

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
BackendCreate = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_void_p), ERR)
BackendConnect = CFUNCTYPE(c_int, c_void_p, c_void_p, c_char_p, POINTER(c_void_p), ERR)
BackendFree = CFUNCTYPE(None, c_void_p)
BackendId = CFUNCTYPE(c_void_p, c_void_p)
BackendState = CFUNCTYPE(c_int, c_void_p, POINTER(c_int), ERR)
BackendAct = CFUNCTYPE(c_int, c_void_p, ERR)
BackendExec = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, ERR)
BackendOpenFiles = CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(c_void_p), ERR)


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


config_parse = bind_call("cay_config_parse", TEXT, c_size_t, TEXT, TEXT, POINTER(HANDLE))
config_load = bind_call("cay_config_load", TEXT, POINTER(HANDLE))
config_free = bind("cay_config_free", None, HANDLE)
config_type = bind("cay_config_type", TEXT, HANDLE)
config_has = bind("cay_config_has", c_bool, HANDLE, TEXT)
config_text = bind("cay_config_text", TEXT, HANDLE, TEXT)
config_restore = bind_call("cay_config_restore", TEXT, POINTER(HANDLE))
config_count = bind("cay_config_count", c_size_t, HANDLE, TEXT)
config_item = bind(
    "cay_config_item",
    c_bool,
    HANDLE,
    TEXT,
    c_size_t,
    POINTER(c_char_p),
    POINTER(c_char_p),
)
config_json = bind_call("cay_config_json", HANDLE, POINTER(c_void_p))

backend_register = bind_call("cay_backend_register", POINTER(Backend))
backend_find = bind("cay_backend_find", POINTER(Backend), TEXT)
backend_create = bind_call("cay_backend_create", HANDLE, POINTER(HANDLE))
backend_connect = bind_call("cay_backend_connect", HANDLE, TEXT, POINTER(HANDLE))
sandbox_state = bind_call("cay_sandbox_state", HANDLE, POINTER(c_int))
