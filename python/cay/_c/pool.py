# SPDX-License-Identifier: Apache-2.0
"""include/cay/pool.h in Python."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_uint32, c_uint64

from cay._c.library import HANDLE, bind, bind_call, members
from cay._c.sandbox import SandboxOptions

POOL_ID_MAX = 24
POOL_COUNT_MAX = 1024


class PoolOptions(Structure):
    _fields_ = members("""
        size_t size; SandboxOptions *sandbox; uint32_t count; uint64_t memory_bytes;
        bool is_shared, may_stop;
    """, SandboxOptions=SandboxOptions)


class PoolStats(Structure):
    _fields_ = members("""
        uint32_t count, ready; uint64_t created, claimed, failed, memory_used;
        bool is_full, is_yielding, is_stopped;
    """)


class PoolInfo(Structure):
    _fields_ = members(f"""
        char id[{POOL_ID_MAX}]; int pid; bool is_shared, may_stop; int64_t created_ms;
        char template_name[256]; uint64_t memory_bytes; PoolStats stats;
    """, PoolStats=PoolStats)


pool_create = bind_call("cay_pool_create", POINTER(PoolOptions), POINTER(HANDLE))
pool_free = bind("cay_pool_free", None, HANDLE)
pool_name = bind("cay_pool_name", c_char_p, HANDLE)
pool_get_stats = bind("cay_pool_get_stats", None, HANDLE, POINTER(PoolStats))
pool_wait = bind_call("cay_pool_wait", HANDLE, c_uint32, c_uint64)
