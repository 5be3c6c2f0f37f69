/* SPDX-License-Identifier: Apache-2.0 */
#include "session/sqlite.h"

#include "base/error.h"
#include "sys/library.h"

enum { WITH_STRICT_TABLES = 3037000 };

struct sqlite sqlite;

int sqlite_load(const char *op, struct cay_error *err)
{
    static const struct library_call calls[] = {
#define X(name) {#name, offsetof(struct sqlite, name)},
        SQLITE_CALLS(X)
#undef X
    };
    static struct library library = {.file = "libsqlite3.so.0",
                                     .calls = calls,
                                     .call_count = sizeof calls / sizeof *calls,
                                     .table = &sqlite,
                                     .mutex = PTHREAD_MUTEX_INITIALIZER};

    if (!library_load(&library))
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "sqlite",
                        "the SQLite library is not installed",
                        "install it: apt-get install libsqlite3-0");
    if (sqlite.sqlite3_libversion_number() < WITH_STRICT_TABLES)
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "sqlite",
                        "the SQLite library is too old", "install SQLite 3.37 or newer");
    return CAY_OK;
}
