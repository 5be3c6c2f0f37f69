/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/library.h"

#include <dlfcn.h>
#include <string.h>

static bool load(const struct library *library)
{
    void *handle = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);

    for (size_t i = 0; handle && i < library->call_count; i++) {
        void *call = dlsym(handle, library->calls[i].name);
        if (!call)
            return false;
        /* dlsym(3) returns an object pointer; the symbol is a function. */
        memcpy((char *)library->table + library->calls[i].place, &call, sizeof call);
    }
    return handle != NULL;
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
