/* SPDX-License-Identifier: Apache-2.0 */
#include "files/libarchive.h"

#include "base/error.h"
#include "sys/library.h"

struct libarchive libarchive;

int libarchive_load(const char *op, struct cay_error *err)
{
    static const struct library_call calls[] = {
#define X(name) {#name, offsetof(struct libarchive, name)},
        LIBARCHIVE_CALLS(X)
#undef X
    };
    static struct library library = {.file = "libarchive.so.13",
                                     .calls = calls,
                                     .call_count = sizeof calls / sizeof *calls,
                                     .table = &libarchive,
                                     .mutex = PTHREAD_MUTEX_INITIALIZER};

    return library_load(&library)
               ? CAY_OK
               : cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "libarchive",
                          "the library that reads and writes archives is not there",
                          "install it: apt-get install libarchive13");
}
