/* SPDX-License-Identifier: Apache-2.0 */

/* Which backends there are.  Those that were registered are in a list that only grows, so
 * whoever looks needs no lock, not even after a fork; whoever adds takes one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sandbox/backend.h"

/* One line for each that is built in. */
static const struct cay_backend *const builtins[] = {
    &backend_native,
    &backend_local,
    &backend_e2b,
};

enum { BUILTINS = sizeof builtins / sizeof *builtins };

struct entry {
    _Atomic(struct entry *) next;
    const struct cay_backend *source; /* that `copy` was made from */
    struct backend_copy copy;
};

static _Atomic(struct entry *) first;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

static struct entry *next_of(_Atomic(struct entry *) *link)
{
    return atomic_load_explicit(link, memory_order_acquire);
}

static struct entry *find_entry(const char *name)
{
    struct entry *entry = next_of(&first);

    while (entry && strcmp(entry->copy.backend.name, name) != 0)
        entry = next_of(&entry->next);
    return entry;
}

const struct cay_backend *cay_backend_find(const char *name)
{
    for (size_t i = 0; i < BUILTINS; i++)
        if (strcmp(builtins[i]->name, name) == 0)
            return builtins[i];
    struct entry *entry = find_entry(name);
    return entry ? &entry->copy.backend : NULL;
}

const struct cay_backend *cay_backend_at(size_t index)
{
    if (index < BUILTINS)
        return builtins[index];
    struct entry *entry = next_of(&first);
    for (index -= BUILTINS; entry && index; index--)
        entry = next_of(&entry->next);
    return entry ? &entry->copy.backend : NULL;
}

static void append(struct entry *entry)
{
    _Atomic(struct entry *) *link = &first;

    for (struct entry *last; (last = next_of(link));)
        link = &last->next;
    atomic_store_explicit(link, entry, memory_order_release);
}

/* With the lock held: the entry that has the name now, NULL if it is another table's. */
static struct entry *add(struct entry *entry, bool again)
{
    const char *name = entry->copy.backend.name;
    struct entry *known = find_entry(name);

    if (again && known && known->source == entry->source)
        return known;
    if (cay_backend_find(name))
        return NULL;
    append(entry);
    return entry;
}

int backend_add(const struct cay_backend *backend, bool again, const char *op,
                const struct cay_backend **ret_backend, struct cay_error *err)
{
    struct entry *entry = calloc(1, sizeof *entry);

    if (!entry)
        return cay_fail_memory(err, op);
    entry->source = backend;
    int code = backend_complete(backend, op, &entry->copy, err);
    if (code) {
        free(entry);
        return code;
    }
    (void)pthread_mutex_lock(&adding);
    struct entry *added = add(entry, again);
    (void)pthread_mutex_unlock(&adding);
    if (added != entry)
        free(entry);
    if (!added)
        return cay_fail(err, CAY_E_EXISTS, 0, op, backend->name,
                        "there is a backend of this name already",
                        "give yours another name");
    *ret_backend = &added->copy.backend;
    return CAY_OK;
}

int cay_backend_register(const struct cay_backend *backend, struct cay_error *err)
{
    const struct cay_backend *added;

    return backend_add(backend, false, "backend.register", &added, err);
}

/* --- Sandboxes of a configuration --- */

/* A configuration that was read has one. */
static int find_for(const cay_config *config, const char *op,
                    const struct cay_backend **ret_backend, struct cay_error *err)
{
    const char *type = cay_config_type(config);

    *ret_backend = cay_backend_find(type);
    if (*ret_backend)
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, type, "there is no such backend",
                    "register it, or say `library:`");
}

/* A handle for a sandbox of the configuration, to be filled in by its backend. */
static int begin(const cay_config *config, const char *op, cay_sandbox **ret_sandbox,
                 struct cay_error *err)
{
    const struct cay_backend *backend;
    int code = find_for(config, op, &backend, err);

    if (code)
        return code;
    *ret_sandbox = sandbox_new(backend, err);
    return *ret_sandbox ? CAY_OK : CAY_E_NO_MEMORY;
}

int sandbox_create_marked(const cay_config *config, const char *mark,
                          cay_sandbox **ret_sandbox, struct cay_error *err)
{
    cay_sandbox *sandbox = NULL;
    int code = begin(config, "backend.create", &sandbox, err);

    if (code)
        return code;
    const struct cay_backend *backend = sandbox->backend;
    code =
        mark && backend->create_marked
            ? backend->create_marked(backend->data, config, mark, &sandbox->cookie, err)
            : backend->create(backend->data, config, &sandbox->cookie, err);
    return sandbox_finish(sandbox, code, ret_sandbox);
}

int sandbox_find_marked(const cay_config *config, const char *mark,
                        cay_sandbox **ret_sandbox, struct cay_error *err)
{
    static const char op[] = "backend.find";
    cay_sandbox *sandbox = NULL;
    int code = begin(config, op, &sandbox, err);

    if (code)
        return code;
    const struct cay_backend *backend = sandbox->backend;
    code = backend->find_marked
               ? backend->find_marked(backend->data, config, mark, &sandbox->cookie, err)
               : backend_lacks(backend, op, err);
    return sandbox_finish(sandbox, code, ret_sandbox);
}

int cay_backend_create(const cay_config *config, cay_sandbox **ret_sandbox,
                       struct cay_error *err)
{
    return sandbox_create_marked(config, NULL, ret_sandbox, err);
}

int cay_backend_check(const cay_config *config, struct cay_error *err)
{
    const struct cay_backend *backend;
    int code = find_for(config, "backend.check", &backend, err);

    return code || !backend->check ? code : backend->check(backend->data, config, err);
}

int cay_backend_connect(const cay_config *config, const char *id,
                        cay_sandbox **ret_sandbox, struct cay_error *err)
{
    cay_sandbox *sandbox = NULL;
    int code = begin(config, "backend.connect", &sandbox, err);

    if (code)
        return code;
    const struct cay_backend *backend = sandbox->backend;
    code = backend->connect(backend->data, config, id, &sandbox->cookie, err);
    return sandbox_finish(sandbox, code, ret_sandbox);
}
