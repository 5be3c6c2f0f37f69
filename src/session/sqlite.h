/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_SQLITE_H
#define SESSION_SQLITE_H

#include <sqlite3.h>

#include "cay/error.h"

/* Loaded when the first store is opened: most programs have none. */

#define SQLITE_CALLS(X)                                                                  \
    X(sqlite3_bind_int64)                                                                \
    X(sqlite3_bind_text)                                                                 \
    X(sqlite3_busy_timeout)                                                              \
    X(sqlite3_changes)                                                                   \
    X(sqlite3_close_v2)                                                                  \
    X(sqlite3_column_int64)                                                              \
    X(sqlite3_column_text)                                                               \
    X(sqlite3_errmsg)                                                                    \
    X(sqlite3_exec)                                                                      \
    X(sqlite3_extended_result_codes)                                                     \
    X(sqlite3_finalize)                                                                  \
    X(sqlite3_libversion_number)                                                         \
    X(sqlite3_open_v2)                                                                   \
    X(sqlite3_prepare_v2)                                                                \
    X(sqlite3_step)                                                                      \
    X(sqlite3_system_errno)

struct sqlite {
#define X(name) typeof(&name) name;
    SQLITE_CALLS(X)
#undef X
};

/* Filled in once sqlite_load() has succeeded, for good. */
extern struct sqlite sqlite;

int sqlite_load(const char *op, struct cay_error *err);

#endif
