/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "sandbox/backend.h"

int place_open(cay_sandbox *sandbox, const char *user, struct place *ret_place,
               struct cay_error *err)
{
    const struct cay_backend *backend = cay_sandbox_backend(sandbox);
    cay_files *files = NULL;

    *ret_place = (struct place){0};
    if (backend->open_files) {
        int code = cay_sandbox_files(sandbox, user, &files, err);
        if (code)
            return code;
        place_of_files(files, ret_place);
    } else {
        place_of_backend(backend->files, sandbox->cookie, ret_place);
    }
    ret_place->sandbox = sandbox;
    ret_place->user = user;
    return CAY_OK;
}

void place_close(struct place *place)
{
    if (place->ops)
        place->ops->close(place);
    free(place->base);
    free(place->temp);
    *place = (struct place){0};
}

const char *place_base(struct place *place)
{
    if (!place->base)
        place->base = place->ops->base(place);
    if (!place->base)
        place->base = strdup("/");
    return place->base;
}

static char *ask_temp(const struct place *place)
{
    static const char *const argv[] = {"sh", "-c", "printf %s \"$TMPDIR\"", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .user = place->user, .timeout_ms = 60000};
    struct cay_exec_result result = {0};
    char *temp = NULL;

    if (cay_sandbox_exec(place->sandbox, &options, &result, NULL) == CAY_OK &&
        result.out_len && *result.out == '/' && !memchr(result.out, 0, result.out_len))
        temp = strdup(result.out);
    cay_exec_done(&result);
    return temp;
}

static bool is_built_in(const cay_sandbox *sandbox)
{
    const char *name = cay_sandbox_backend(sandbox)->name;

    return strcmp(name, "native") == 0 || strcmp(name, "local") == 0;
}

const char *place_temp(struct place *place)
{
    bool shares_root = place->ops->is_near && place->sandbox &&
                       !(cay_sandbox_layers(place->sandbox) & CAY_LAYER_MOUNT);

    if (place->temp)
        return place->temp;
    if (shares_root && is_built_in(place->sandbox)) {
        if (asprintf(&place->temp, SANDBOX_TEMP, cay_sandbox_id(place->sandbox)) < 0)
            place->temp = NULL;
        return place->temp;
    }
    if (shares_root)
        place->temp = ask_temp(place);
    if (!place->temp)
        place->temp = strdup("/tmp");
    return place->temp;
}

/* Adds the names of a path, each with its slash; "." is none. */
static void add_names(struct buf *text, const char *path)
{
    while (*path) {
        size_t len = strcspn(path, "/");
        if (len > 1 || (len == 1 && *path != '.')) {
            buf_append(text, "/", 1);
            buf_append(text, path, len);
        }
        path += len + (path[len] == '/');
    }
}

char *place_absolute(struct place *place, const char *path)
{
    const char *base = *path == '/' ? "" : place_base(place);
    AUTO_BUF text;

    buf_init(&text, SIZE_MAX / 2);
    if (!base)
        return NULL;
    add_names(&text, base);
    add_names(&text, path);
    if (!text.len)
        buf_append(&text, "/", 1);
    return buf_take(&text);
}

char *place_join(const char *dir, const char *name)
{
    AUTO_BUF text;
    size_t len = strlen(dir);

    buf_init(&text, SIZE_MAX / 2);
    buf_append(&text, dir, len);
    if (len && dir[len - 1] != '/' && *name)
        buf_append(&text, "/", 1);
    buf_text(&text, name);
    return buf_take(&text);
}

int place_read_all(struct place *place, const char *path, struct cay_content *ret_content,
                   struct cay_error *err)
{
    uint64_t total;

    int code = place->ops->read(place, path, 0, CAY_READ_MAX, ret_content, &total, err);
    if (code || ret_content->len == total)
        return code;
    free(ret_content->data);
    *ret_content = (struct cay_content){0};
    return cay_fail(err, CAY_E_LIMIT, 0, "file.read", path,
                    "the file has more than 100 MiB",
                    "download it, or read it in parts with a command");
}
