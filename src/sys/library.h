/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_LIBRARY_H
#define SYS_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* A shared library that is loaded on first use: loading it takes longer than most
 * programs run.  A build with -Dbundle=true is linked with the library instead. */
struct library_call {
    const char *name;
    size_t place;  /* of its pointer in the table */
    void *bundled; /* the function, if it is linked */
};

/* clang-format off */
#ifdef CAY_BUNDLE
#define LIBRARY_CALL(table, name) {#name, offsetof(table, name), (void *)name}
#else
#define LIBRARY_CALL(table, name) {#name, offsetof(table, name), NULL}
#endif
/* clang-format on */

struct library {
    const char *file; /* "libarchive.so.13" */
    const struct library_call *calls;
    size_t call_count;
    void *table; /* filled in once library_load() has succeeded, for good */
    bool is_loaded;
    pthread_mutex_t mutex;
};

/* False if the library, or one of its calls, is not there. */
bool library_load(struct library *library);

#endif
