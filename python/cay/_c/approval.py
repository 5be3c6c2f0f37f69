# SPDX-License-Identifier: Apache-2.0
"""include/cay/approval.h in Python."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char, c_char_p, c_int, c_size_t, c_uint64
from ctypes import c_void_p

from cay._c.files import NOTE_MAX
from cay._c.library import HANDLE, bind_call, members
from cay._c.sandbox import ExecOptions

PENDING_ID_MAX = 65
PENDING_TEXT_MAX = 4096
PENDING_TIMEOUT_MS = 600000
DECISION_NONE, DECISION_YES, DECISION_NO = range(3)


class Request(Structure):
    _fields_ = members("""
        size_t size; char *kind, *scope, *subject, *summary; void *content;
        size_t content_len; uint64_t timeout_ms;
    """)


class Pending(Structure):
    _fields_ = members(f"""
        char id[{PENDING_ID_MAX}]; char kind[32];
        char scope[{PENDING_TEXT_MAX}], subject[{PENDING_TEXT_MAX}],
            summary[{PENDING_TEXT_MAX}];
        int64_t created_ms, expires_ms; size_t content_len; bool is_decided;
    """)


_ID = POINTER(c_char * PENDING_ID_MAX)
_DECISION = POINTER(c_int)

pending_list = bind_call(
    "cay_pending_list", POINTER(POINTER(Pending)), POINTER(c_size_t)
)
pending_find = bind_call(
    "cay_pending_find", c_char_p, POINTER(Pending), POINTER(c_void_p)
)
pending_decide = bind_call("cay_pending_decide", c_char_p, c_int, c_char_p)
pending_rules = bind_call("cay_pending_rules", POINTER(c_char * PENDING_TEXT_MAX))
pending_submit = bind_call("cay_pending_submit", POINTER(Request), _ID, _DECISION)
pending_wait = bind_call(
    "cay_pending_wait", c_char_p, c_uint64, _DECISION, POINTER(c_char * NOTE_MAX)
)
sandbox_request_command = bind_call(
    "cay_sandbox_request_command", HANDLE, POINTER(ExecOptions), _ID, _DECISION
)
process_start_approved = bind_call(
    "cay_process_start_approved",
    HANDLE,
    POINTER(ExecOptions),
    c_char_p,
    POINTER(HANDLE),
)
