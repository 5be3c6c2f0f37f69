/* SPDX-License-Identifier: Apache-2.0 */

/* Tables of foreign backends.  One that was built with an older header is shorter, and
 * what it does not have is NULL; one that was built with a newer header is longer, and
 * nobody here calls what it has beyond ours.  Both become tables of our own size, so that
 * a call is one look and one jump, whoever made the backend. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "sandbox/backend.h"

enum { SIZE_MAX_SANE = 64 << 10, NAME_MAX_LEN = 63 };

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
    if (size <= sizeof size || size > SIZE_MAX_SANE)
        return false;
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
    if (!field->name || !is_letter(field->name[0]) || !field->about)
        return false;
    if (field->type < CAY_FIELD_TEXT || field->type > CAY_FIELD_PATH)
        return false;
    return field->type != CAY_FIELD_CHOICE || (field->choices && field->choices[0]);
}

static int check_fields(const struct cay_backend *backend, const char *op,
                        struct cay_error *err)
{
    if (backend->field_count && !backend->fields)
        return refuse(op, backend->name, "it counts fields and has none",
                      "set `fields` and `field_count` together", err);
    for (size_t i = 0; i < backend->field_count; i++) {
        const struct cay_field *field = &backend->fields[i];
        if (!is_field(field))
            return refuse(op, field->name ? field->name : backend->name,
                          "this is no field of a configuration",
                          "a field has a name, a type of enum cay_field_type, `about`, "
                          "and a choice its choices",
                          err);
        for (size_t k = 0; k < i; k++)
            if (strcmp(backend->fields[k].name, field->name) == 0)
                return refuse(op, field->name, "there are two fields of this name",
                              "give each a name of its own", err);
    }
    return CAY_OK;
}

int backend_complete(const struct cay_backend *given, const char *op,
                     struct backend_copy *ret_copy, struct cay_error *err)
{
    static const char size_hint[] = "set `size` to the sizeof of the table";
    struct cay_backend *backend = &ret_copy->backend;

    if (!take_table(backend, sizeof *backend, given))
        return refuse(op, "size", "this is no table of a backend", size_hint, err);
    if (!is_name(backend->name))
        return refuse(op, backend->name, "this cannot be the name of a backend",
                      "a letter, then up to 62 letters, digits, \"-\" and \"_\"", err);
    if ((backend->files &&
         !take_table(&ret_copy->files, sizeof ret_copy->files, backend->files)) ||
        (backend->processes &&
         !take_table(&ret_copy->processes, sizeof ret_copy->processes,
                     backend->processes)))
        return refuse(op, backend->name, "its table of files or processes has no size",
                      size_hint, err);
    const char *missing = missing_of(backend);
    if (!missing && backend->files)
        missing = missing_of_files(&ret_copy->files);
    if (!missing && backend->processes)
        missing = missing_of_processes(&ret_copy->processes);
    if (missing)
        return cay_fail(err, CAY_E_INVALID, 0, op, backend->name,
                        "a function that every backend needs is missing",
                        "set `%s`; what may be NULL is said in cay/backend.h", missing);
    if (backend->files)
        backend->files = &ret_copy->files;
    if (backend->processes)
        backend->processes = &ret_copy->processes;
    return check_fields(backend, op, err);
}
