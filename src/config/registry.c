/* SPDX-License-Identifier: Apache-2.0 */

/* The registry of backends: built in (src/builtins.c), registered by the program, or
 * loaded from a shared object.  The list of registered ones only grows, so readers need
 * no lock, not even after a fork; writers take one.
 *
 * The table of a foreign backend may be shorter than ours if it was compiled with an
 * older header (missing functions become NULL) or longer with a newer one (the rest is
 * never called).  The registry keeps a copy of our own size, so that a call is one lookup
 * and one jump. */
#include "config/registry.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/error.h"

/* --- Tables --- */

enum { SIZE_MAX_SANE = 64 << 10, NAME_MAX_LEN = 63, FIELD_MAX_LEN = 127 };

/* The complete form of a table of any `size`. */
struct backend_copy {
    struct cay_backend backend;
    struct cay_file_backend files;
    struct cay_process_backend processes;
};

static int refuse(const char *op, const char *subject, const char *message,
                  const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, subject, message, "%s", hint);
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_name(const char *name)
{
    size_t len = 0;

    if (!name || !is_letter(name[0]))
        return false;
    for (; len <= NAME_MAX_LEN && name[len]; len++)
        if (!is_letter(name[len]) && !(name[len] >= '0' && name[len] <= '9') &&
            name[len] != '-' && name[len] != '_')
            return false;
    return len <= NAME_MAX_LEN;
}

/* `size` is the first member of all of them. */
static bool take_table(void *known, size_t known_size, const void *given)
{
    size_t size;

    memcpy(&size, given, sizeof size);
    if (size <= sizeof size || size > SIZE_MAX_SANE || size % sizeof(void *))
        return false; /* half a pointer leads anywhere */
    memset(known, 0, known_size);
    memcpy(known, given, size < known_size ? size : known_size);
    memcpy(known, &known_size, sizeof known_size);
    return true;
}

struct function {
    const char *name;
    bool is_there;
};

/* The first that is missing, or NULL. */
static const char *find_missing(const struct function *functions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!functions[i].is_there)
            return functions[i].name;
    return NULL;
}

static const char *missing_of(const struct cay_backend *backend)
{
    const struct function needed[] = {
        {"create", backend->create},
        {"connect", backend->connect},
        {"free", backend->free},
        {"id", backend->id},
        {"state", backend->state},
        {"exec", backend->exec},
        {"kill", backend->kill},
        {"open_files or files", backend->open_files || backend->files},
        {"create_marked and find_marked",
         !backend->create_marked == !backend->find_marked},
    };

    return find_missing(needed, sizeof needed / sizeof *needed);
}

static const char *missing_of_files(const struct cay_file_backend *files)
{
    const struct function needed[] = {
        {"files.stat", files->stat},   {"files.read", files->read},
        {"files.write", files->write}, {"files.list", files->list},
        {"files.mkdir", files->mkdir}, {"files.remove", files->remove},
        {"files.move", files->move},
    };

    return find_missing(needed, sizeof needed / sizeof *needed);
}

static const char *missing_of_processes(const struct cay_process_backend *processes)
{
    const struct function needed[] = {
        {"processes.start", processes->start}, {"processes.free", processes->free},
        {"processes.pid", processes->pid},     {"processes.fd", processes->fd},
        {"processes.read", processes->read},   {"processes.kill", processes->kill},
        {"processes.wait", processes->wait},
    };

    return find_missing(needed, sizeof needed / sizeof *needed);
}

static bool is_field(const struct cay_field *field)
{
    if (!field->name || !is_letter(field->name[0]) || !field->about ||
        strnlen(field->name, FIELD_MAX_LEN + 1) > FIELD_MAX_LEN)
        return false;
    if (field->type < CAY_FIELD_TEXT || field->type > CAY_FIELD_PATH)
        return false;
    return field->type != CAY_FIELD_CHOICE || (field->choices && field->choices[0]);
}

static int check_fields(const struct cay_backend *backend, const char *op,
                        struct cay_error *err)
{
    if (backend->field_count && !backend->fields)
        return refuse(op, backend->name, "field_count is set but fields is NULL",
                      "set `fields` and `field_count` together", err);
    for (size_t i = 0; i < backend->field_count; i++) {
        const struct cay_field *field = &backend->fields[i];
        if (!is_field(field))
            return refuse(op, field->name ? field->name : backend->name,
                          "invalid configuration field",
                          "a field needs a name of up to 127 bytes, a type of enum "
                          "cay_field_type, `about`, and for a choice its choices",
                          err);
        for (size_t k = 0; k < i; k++)
            if (strcmp(backend->fields[k].name, field->name) == 0)
                return refuse(op, field->name, "duplicate field name",
                              "give each field a unique name", err);
    }
    return CAY_OK;
}

static int complete(const struct cay_backend *given, const char *op,
                    struct backend_copy *ret_copy, struct cay_error *err)
{
    static const char size_hint[] = "set `size` to the sizeof of the table";
    struct cay_backend *backend = &ret_copy->backend;

    if (!take_table(backend, sizeof *backend, given))
        return refuse(op, "size", "invalid backend table", size_hint, err);
    if (!is_name(backend->name))
        return refuse(op, backend->name, "invalid backend name",
                      "use a letter followed by up to 62 letters, digits, \"-\" or \"_\"",
                      err);
    if ((backend->files &&
         !take_table(&ret_copy->files, sizeof ret_copy->files, backend->files)) ||
        (backend->processes &&
         !take_table(&ret_copy->processes, sizeof ret_copy->processes,
                     backend->processes)))
        return refuse(op, backend->name,
                      "the size of its files or processes table is not set", size_hint,
                      err);
    const char *missing = missing_of(backend);
    if (!missing && backend->files)
        missing = missing_of_files(&ret_copy->files);
    if (!missing && backend->processes)
        missing = missing_of_processes(&ret_copy->processes);
    if (missing)
        return cay_fail(err, CAY_E_INVALID, 0, op, backend->name,
                        "a required function is missing",
                        "set `%s`; cay/backend.h lists what may be NULL", missing);
    if (backend->files)
        backend->files = &ret_copy->files;
    if (backend->processes)
        backend->processes = &ret_copy->processes;
    return check_fields(backend, op, err);
}

/* --- The list --- */

struct entry {
    _Atomic(struct entry *) next;
    const struct cay_backend *source; /* the table that `copy` was made from */
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
    for (size_t i = 0; registry_builtins[i]; i++)
        if (strcmp(registry_builtins[i]->name, name) == 0)
            return registry_builtins[i];
    struct entry *entry = find_entry(name);
    return entry ? &entry->copy.backend : NULL;
}

const struct cay_backend *cay_backend_at(size_t index)
{
    for (size_t i = 0; registry_builtins[i]; i++, index--)
        if (index == 0)
            return registry_builtins[i];
    struct entry *entry = next_of(&first);
    for (; entry && index; index--)
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

/* With the lock held.  Returns the entry of that name, or NULL if another table has it.
 */
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

static int add_copy(const struct cay_backend *backend, bool again, const char *op,
                    const struct cay_backend **ret_backend, struct cay_error *err)
{
    struct entry *entry = calloc(1, sizeof *entry);

    if (!entry)
        return cay_fail_memory(err, op);
    entry->source = backend;
    int code = complete(backend, op, &entry->copy, err);
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
                        "a backend of this name already exists", "choose another name");
    *ret_backend = &added->copy.backend;
    return CAY_OK;
}

int cay_backend_register(const struct cay_backend *backend, struct cay_error *err)
{
    const struct cay_backend *added;

    return add_copy(backend, false, "backend.register", &added, err);
}

/* --- Shared objects.  Loading one runs its code with the privileges of this process: the
 * file is trusted as much as the program itself. --- */

static const char load_op[] = "backend.load";

static int locate(const char *file, char **ret_path, struct cay_error *err)
{
    struct stat st;
    AUTO_FREE char *path = realpath(file, NULL);

    if (!path && errno == ENOMEM)
        return cay_fail_memory(err, load_op);
    if (!path || stat(path, &st) != 0)
        return errno == ENOENT ? cay_fail(err, CAY_E_NOT_FOUND, ENOENT, load_op, file,
                                          "shared object not found",
                                          "pass the path of the file; a name without a "
                                          "slash is in the current directory")
                               : cay_fail_errno(err, errno, load_op, file);
    if (!S_ISREG(st.st_mode)) /* opening a FIFO would wait for ever */
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, load_op, file, "not a regular file",
                        "pass the path of a shared object: backend.so");
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
    snprintf(message, sizeof message, "cannot be loaded: %s", reason);
    return cay_fail(err, CAY_E_INVALID, 0, load_op, file, message,
                    "build it for this machine with cc -shared -fPIC, and link it with "
                    "all libraries that it needs");
}

static int enter(void *object, const char *file, const struct cay_backend **ret_backend,
                 struct cay_error *err)
{
    const struct cay_backend *(*entry)(void) = NULL;
    void *symbol = dlsym(object, CAY_BACKEND_ENTRY);

    memcpy(&entry, &symbol, sizeof entry); /* ISO C knows no cast between the two */
    if (!entry)
        return cay_fail(err, CAY_E_INVALID, 0, load_op, file,
                        "the shared object has no function " CAY_BACKEND_ENTRY,
                        "export: const struct cay_backend *" CAY_BACKEND_ENTRY "(void)");
    const struct cay_backend *table = entry();
    if (!table)
        return cay_fail(err, CAY_E_INVALID, 0, load_op, file,
                        CAY_BACKEND_ENTRY " returned NULL",
                        "return the address of a static struct cay_backend");
    return add_copy(table, true, load_op, ret_backend, err);
}

int cay_backend_load(const char *file, const struct cay_backend **ret_backend,
                     struct cay_error *err)
{
    const struct cay_backend *backend = NULL;
    AUTO_FREE char *path = NULL;

    TRY(locate(file, &path, err));
    if (!dlopen(NULL, RTLD_NOW)) /* in a static program of musl */
        return cay_fail(
            err, CAY_E_UNSUPPORTED, 0, load_op, file,
            "a static program cannot load a backend",
            "use the cay of a Debian package or of a manylinux wheel, or load "
            "the backend from Python or C with libcay");
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return fail_loading(file, path, err);
    int code = enter(object, file, &backend, err);
    if (code) /* otherwise it stays loaded: handles may outlive the caller */
        (void)dlclose(object);
    if (!code && ret_backend)
        *ret_backend = backend;
    return code;
}
