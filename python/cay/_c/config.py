# SPDX-License-Identifier: Apache-2.0
"""include/cay/config.h and backend.h in Python."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_int, c_size_t
from ctypes import c_void_p

from cay._c.library import ERR, HANDLE, TEXT, bind, bind_call, members

_FIELD_TYPES = "text secret integer number boolean bytes choice texts map policy path"
FIELD_TYPES = dict(enumerate(_FIELD_TYPES.split(), 1))


class Field(Structure):
    _fields_ = members("""
        char *name, *alias; int type; char *fallback, *about, **choices;
        int64_t least, most;
    """)


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
    _fields_ = members("""
        size_t size; char *name, *about; Field *fields; size_t field_count; void *data;
        BackendCreate create; BackendConnect connect; BackendFree free; BackendId id;
        void *layers; BackendState state; void *inspect, *pause, *resume, *set_ttl;
        BackendAct kill; void *start, *remove; BackendExec exec;
        BackendOpenFiles open_files;
        void *files, *processes, *create_marked, *find_marked, *dial, *check;
        uint64_t late_ms; void *create_pooled, *code, *get_network, *change_network,
            *count_network, *network_events, *checkpoint, *rollback, *checkpoints,
            *remove_checkpoint, *checkpoint_each, *approve;
    """,
        BackendAct=BackendAct, BackendConnect=BackendConnect,
        BackendCreate=BackendCreate, BackendExec=BackendExec, BackendFree=BackendFree,
        BackendId=BackendId, BackendOpenFiles=BackendOpenFiles,
        BackendState=BackendState, Field=Field
    )


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
