/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/command.h"
#include "e2b/messages.h"

enum { PROCESSES_MAX = 65536, REPLY_MAX = 64 << 20 };

/* Its words, as many as there is room for. */
static void put_command(const json_t *config, struct cay_process_info *info)
{
    size_t at = 0;

    for (size_t i = 0; at + 1 < sizeof info->command; i++) {
        const char *word = e2b_start_word(config, i);
        if (!word)
            return;
        if (i)
            info->command[at++] = ' ';
        cay_copy_text(info->command + at, sizeof info->command - at, word);
        at += strlen(info->command + at);
    }
}

/* A small thing of ours that runs inside. */
static bool is_helper(const json_t *process)
{
    const json_t *words = json_object_get(json_object_get(process, "config"), "args");
    const char *name = json_string_value(json_array_get(words, 2));

    return name && strcmp(name, E2B_HELPER) == 0 && !e2b_start_may_keep(words);
}

static bool read_info(const json_t *process, struct cay_process_info *ret_info)
{
    int64_t pid = e2b_value_int(process, "pid");
    const char *tag = e2b_value_text(process, "tag");

    if (pid <= 0 || pid > INT_MAX)
        return false;
    *ret_info = (struct cay_process_info){
        .pid = (int)pid, .is_command = true, .is_background = true, .state = 'R'};
    cay_copy_text(ret_info->tag, sizeof ret_info->tag, tag ? tag : "");
    put_command(json_object_get(process, "config"), ret_info);
    return true;
}

static int compare(const void *left, const void *right)
{
    const struct cay_process_info *a = left, *b = right;

    return (a->pid > b->pid) - (a->pid < b->pid);
}

/* The JSON array; it is in *ret_reply. */
static int ask(struct e2b *e2b, json_t **ret_reply, const json_t **ret_list,
               struct cay_error *err)
{
    static const char op[] = "process.list";
    const struct e2b_call call = {.op = op,
                                  .subject = e2b->id,
                                  .method = "process.Process/List",
                                  .repeatable = true,
                                  .fallback = CAY_E_UNAVAILABLE,
                                  .reply_max = REPLY_MAX};
    AUTO_BUF body;

    buf_init(&body, 16);
    buf_text(&body, "{}");
    int code = e2b_call(e2b, &call, &body, ret_reply, err);
    if (code)
        return code;
    *ret_list = json_object_get(*ret_reply, "processes");
    if ((*ret_list && !json_is_array(*ret_list)) ||
        json_array_size(*ret_list) > PROCESSES_MAX)
        return e2b_reply_malformed(op, e2b->id, "the processes are not a list", err);
    return CAY_OK;
}

int e2b_process_list(void *cookie, struct cay_process_info **ret_infos, size_t *ret_count,
                     struct cay_error *err)
{
    static const char op[] = "process.list";
    struct e2b *e2b = cookie;
    AUTO_JSON reply = NULL;
    const json_t *list = NULL;

    e2b_keep_alive(e2b, UINT64_MAX);
    int code = ask(e2b, &reply, &list, err);
    if (code)
        return code;
    size_t found = 0, count = json_array_size(list);
    AUTO_FREE struct cay_process_info *infos = calloc(count + 1, sizeof *infos);
    if (!infos)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < count; i++)
        if (!is_helper(json_array_get(list, i)) &&
            !read_info(json_array_get(list, i), &infos[found++]))
            return e2b_reply_malformed(op, e2b->id, "a process has no number", err);
    qsort(infos, found, sizeof *infos, compare);
    *ret_infos = TAKE_PTR(infos);
    *ret_count = found;
    return CAY_OK;
}

bool e2b_process_will_keep(struct e2b *e2b, int pid)
{
    AUTO_JSON reply = NULL;
    const json_t *list = NULL;

    if (ask(e2b, &reply, &list, NULL))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *process = json_array_get(list, i);
        if (e2b_value_int(process, "pid") == pid)
            return e2b_start_may_keep(
                json_object_get(json_object_get(process, "config"), "args"));
    }
    return false;
}
