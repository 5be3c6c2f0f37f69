/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/kvfile.h"
#include "native/record/state.h"
#include "native/template/template.h"

enum { INFO_MAX = 1 << 20, ENV_MAX = 512 };

static const char op[] = "template.info";

void template_info_done(struct template_info *info)
{
    for (char **env = info->env; env && *env; env++)
        free(*env);
    free(info->env);
    *info = (struct template_info){0};
}

int template_info_save(int dir, const struct template_info *info, struct cay_error *err)
{
    const struct cay_template_info *shown = &info->shown;
    struct buf file;

    facts_begin(&file, INFO_MAX);
    facts_add(&file, "source", shown->source);
    facts_add(&file, "from", shown->from);
    facts_add_number(&file, "created_ms", (uint64_t)shown->created_ms);
    facts_add_number(&file, "bytes", shown->bytes);
    facts_add(&file, "user", shown->user);
    facts_add(&file, "workdir", shown->workdir);
    for (char **env = info->env; env && *env; env++)
        facts_add(&file, "env", *env);
    int code = file.failed ? cay_fail(err, CAY_E_LIMIT, 0, op, shown->from,
                                      "what the template says about itself is too much",
                                      "use a source with a smaller environment")
                           : state_write(dir, "info", file.data, file.len, err);
    buf_done(&file);
    return code;
}

static void copy_fact(const struct facts *facts, const char *key, char *field,
                      size_t room)
{
    const char *text = facts_text(facts, key);

    cay_copy_text(field, room, text ? text : "");
}

static int take_env(const struct facts *facts, struct template_info *info,
                    struct cay_error *err)
{
    size_t count = facts_count(facts, "env");
    const char *last = NULL;

    if (count > ENV_MAX)
        count = ENV_MAX;
    info->env = calloc(count + 1, sizeof *info->env);
    if (!info->env)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < count; i++) {
        last = facts_next(facts, "env", last);
        info->env[i] = strdup(last);
        if (!info->env[i])
            return cay_fail_memory(err, op);
    }
    return CAY_OK;
}

int template_info_load(int dir, struct template_info *ret_info, struct cay_error *err)
{
    struct facts facts = {0};
    AUTO_FREE char *data = state_read(dir, "info", INFO_MAX, &facts.len);
    struct cay_template_info *shown = &ret_info->shown;

    *ret_info = (struct template_info){0};
    facts.data = data;
    if (!data || !facts_are_sound(&facts))
        return cay_fail(err, CAY_E_IO, data ? 0 : errno, op, "info",
                        "the template is damaged, or of another version of cay",
                        "remove it and make it again");
    copy_fact(&facts, "source", shown->source, sizeof shown->source);
    copy_fact(&facts, "from", shown->from, sizeof shown->from);
    copy_fact(&facts, "user", shown->user, sizeof shown->user);
    copy_fact(&facts, "workdir", shown->workdir, sizeof shown->workdir);
    shown->created_ms = (int64_t)facts_number(&facts, "created_ms");
    shown->bytes = facts_number(&facts, "bytes");
    int code = take_env(&facts, ret_info, err);
    if (code)
        template_info_done(ret_info);
    return code;
}
