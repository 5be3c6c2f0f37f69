/* SPDX-License-Identifier: Apache-2.0 */
#include "files/libarchive.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"

struct libarchive libarchive;

static bool load(void)
{
    static const struct {
        const char *name;
        size_t place;
    } calls[] = {
#define X(name) {#name, offsetof(struct libarchive, name)},
        LIBARCHIVE_CALLS(X)
#undef X
    };
    void *library = dlopen("libarchive.so.13", RTLD_NOW | RTLD_LOCAL);

    for (size_t i = 0; library && i < sizeof calls / sizeof *calls; i++) {
        void *call = dlsym(library, calls[i].name);
        if (!call)
            return false;
        /* It is a function, whatever its type says. */
        memcpy((char *)&libarchive + calls[i].place, &call, sizeof call);
    }
    return library != NULL;
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
