/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/library.h"

#include <dlfcn.h>
#include <string.h>

static bool load(const struct library *library)
{
    void *handle =
        library->calls->bundled ? NULL : dlopen(library->file, RTLD_NOW | RTLD_LOCAL);

    for (size_t i = 0; i < library->call_count; i++) {
        const struct library_call *call = &library->calls[i];
        void *found = call->bundled ? call->bundled
                      : handle      ? dlsym(handle, call->name)
                                    : NULL;
        if (!found)
            return false;
        /* dlsym(3) returns an object pointer; the symbol is a function. */
        memcpy((char *)library->table + call->place, &found, sizeof found);
    }
    return true;
}

bool library_load(struct library *library)
{
    pthread_mutex_lock(&library->mutex);
    if (!library->is_loaded)
        library->is_loaded = load(library);
    bool fine = library->is_loaded;
    pthread_mutex_unlock(&library->mutex);
    return fine;
}
