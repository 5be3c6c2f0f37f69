/* SPDX-License-Identifier: Apache-2.0 */

/* Backends from shared objects.  Loading one runs its code as whoever loads it: a file
 * that is named here is trusted as much as the program itself. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/error.h"
#include "sandbox/backend.h"

static const char op[] = "backend.load";

static int locate(const char *file, char **ret_path, struct cay_error *err)
{
    struct stat st;
    AUTO_FREE char *path = realpath(file, NULL);

    if (!path && errno == ENOMEM)
        return cay_fail_memory(err, op);
    if (!path || stat(path, &st) != 0)
        return errno == ENOENT
                   ? cay_fail(err, CAY_E_NOT_FOUND, ENOENT, op, file,
                              "there is no such shared object",
                              "name its file; one without a slash is in the current "
                              "directory")
                   : cay_fail_errno(err, errno, op, file);
    if (!S_ISREG(st.st_mode)) /* opening a FIFO would wait for ever */
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, file, "this is not a regular file",
                        "name the file of a shared object: backend.so");
    *ret_path = TAKE_PTR(path);
    return CAY_OK;
}

/* The loader starts its message with the path, which may not be as the caller wrote it.
 */
static int fail_loading(const char *file, const char *path, struct cay_error *err)
{
    const char *reason = dlerror();
    size_t len = strlen(path);
    char message[256];

    if (!reason)
        reason = "unknown";
    if (strncmp(reason, path, len) == 0 && strncmp(reason + len, ": ", 2) == 0)
        reason += len + 2;
    snprintf(message, sizeof message, "it cannot be loaded: %s", reason);
    return cay_fail(err, CAY_E_INVALID, 0, op, file, message,
                    "build it for this machine with cc -shared -fPIC, and link it with "
                    "all that it needs");
}

static int enter(void *object, const char *file, const struct cay_backend **ret_backend,
                 struct cay_error *err)
{
    const struct cay_backend *(*entry)(void) = NULL;
    void *symbol = dlsym(object, CAY_BACKEND_ENTRY);

    memcpy(&entry, &symbol, sizeof entry); /* ISO C knows no cast between the two */
    if (!entry)
        return cay_fail(err, CAY_E_INVALID, 0, op, file,
                        "it has no function " CAY_BACKEND_ENTRY,
                        "export: const struct cay_backend *" CAY_BACKEND_ENTRY "(void)");
    const struct cay_backend *table = entry();
    if (!table)
        return cay_fail(err, CAY_E_INVALID, 0, op, file,
                        CAY_BACKEND_ENTRY " gives no backend",
                        "return the address of a table that stays");
    return backend_add(table, true, op, ret_backend, err);
}

int cay_backend_load(const char *file, const struct cay_backend **ret_backend,
                     struct cay_error *err)
{
    const struct cay_backend *backend = NULL;
    AUTO_FREE char *path = NULL;

    int code = locate(file, &path, err);
    if (code)
        return code;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return fail_loading(file, path, err);
    code = enter(object, file, &backend, err);
    if (code) /* otherwise it stays: handles may outlive whoever loaded it */
        (void)dlclose(object);
    if (!code && ret_backend)
        *ret_backend = backend;
    return code;
}
