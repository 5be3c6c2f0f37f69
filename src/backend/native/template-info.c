/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "backend/native/state.h"
#include "backend/native/template.h"
#include "base/auto.h"
#include "base/error.h"

enum { INFO_MAX = 1 << 20, ENV_MAX = 512 };

static const char op[] = "template.info";

void template_info_done(struct template_info *info)
{
    for (char **env = info->env; env && *env; env++)
        free(*env);
    free(info->env);
    *info = (struct template_info){0};
}

static json_t *make_env(char *const *env)
{
    json_t *list = json_array();

    for (; env && *env; env++)
        if (json_array_append_new(list, json_string(*env)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

int template_info_save(int dir, const struct template_info *info, struct cay_error *err)
{
    const struct cay_template_info *shown = &info->shown;
    json_t *root = json_pack("{s:i, s:s, s:s, s:I, s:I, s:s, s:s, s:o}", "version", 1,
                             "source", shown->source, "from", shown->from, "created_ms",
                             (json_int_t)shown->created_ms, "bytes",
                             (json_int_t)shown->bytes, "user", shown->user, "workdir",
                             shown->workdir, "env", make_env(info->env));
    AUTO_FREE char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;

    json_decref(root);
    if (!text)
        return cay_fail(err, CAY_E_INVALID, 0, op, shown->from,
                        "what the template says about itself is not UTF-8",
                        "use a source whose path and settings are UTF-8 text");
    return state_write(dir, "info", text, strlen(text), err);
}

static void copy_member(json_t *root, const char *key, char *field, size_t room)
{
    const char *text = json_string_value(json_object_get(root, key));

    cay_copy_text(field, room, text ? text : "");
}

static int take_env(json_t *list, struct template_info *info, struct cay_error *err)
{
    size_t count = json_array_size(list);

    if (count > ENV_MAX)
        count = ENV_MAX;
    info->env = calloc(count + 1, sizeof *info->env);
    if (!info->env)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        info->env[i] = strdup(text ? text : "");
        if (!info->env[i])
            return cay_fail_memory(err, op);
    }
    return CAY_OK;
}

int template_info_load(int dir, struct template_info *ret_info, struct cay_error *err)
{
    size_t len = 0;
    AUTO_FREE char *text = state_read(dir, "info", INFO_MAX, &len);
    json_t *root = text ? json_loadb(text, len, 0, NULL) : NULL;
    struct cay_template_info *shown = &ret_info->shown;

    *ret_info = (struct template_info){0};
    if (!json_is_object(root)) {
        json_decref(root);
        return cay_fail(err, CAY_E_IO, text ? 0 : errno, op, "info",
                        "the template is damaged", "remove it and make it again");
    }
    copy_member(root, "source", shown->source, sizeof shown->source);
    copy_member(root, "from", shown->from, sizeof shown->from);
    copy_member(root, "user", shown->user, sizeof shown->user);
    copy_member(root, "workdir", shown->workdir, sizeof shown->workdir);
    shown->created_ms = json_integer_value(json_object_get(root, "created_ms"));
    shown->bytes = (uint64_t)json_integer_value(json_object_get(root, "bytes"));
    int code = take_env(json_object_get(root, "env"), ret_info, err);
    json_decref(root);
    if (code)
        template_info_done(ret_info);
    return code;
}
