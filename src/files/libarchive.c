/* SPDX-License-Identifier: Apache-2.0 */
#include "files/libarchive.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"

struct libarchive libarchive;

/* What dlsym(3) returns is a function, whatever its type says. */
static bool find(void *library, const char *name, void *ret_call, size_t size)
{
    void *call = dlsym(library, name);

    memcpy(ret_call, &call, size);
    return call != NULL;
}

static bool load(void)
{
    void *library = dlopen("libarchive.so.13", RTLD_NOW | RTLD_LOCAL);
    struct libarchive found;

    if (!library)
        return false;
#define X(name)                                                                          \
    if (!find(library, #name, &found.name, sizeof found.name))                           \
        return false;
    LIBARCHIVE_CALLS(X)
#undef X
    libarchive = found;
    return true;
}

int libarchive_load(const char *op, struct cay_error *err)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool is_loaded;

    pthread_mutex_lock(&mutex);
    if (!is_loaded)
        is_loaded = load();
    bool fine = is_loaded;
    pthread_mutex_unlock(&mutex);
    return fine ? CAY_OK
                : cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "libarchive",
                           "the library that reads and writes archives is not there",
                           "install it: apt-get install libarchive13");
}
