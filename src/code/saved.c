/* SPDX-License-Identifier: Apache-2.0 */

/* Contexts that go on in forks of their sandbox (docs/design/warm.md).  An interpreter
 * writes its memory to a file without a name, which is sealed then, and the services of
 * the forks get a descriptor of it.  Nothing here reads the file: the code inside wrote
 * it, and only a process of a fork, with the rights of that sandbox, uses it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/error.h"
#include "code/client.h"
#include "code/warm.h"
#include "sys/io.h"

static const char save_op[] = "contexts.save", restore_op[] = "contexts.restore";

enum { TIMEOUT_MS = 60000, TEXT_MAX = 4096 };

static const off_t image_max = 4LL << 30; /* without holes; the sandbox's memory, too */

struct one {
    int fd; /* -1: it begins anew */
    char *cwd;
};

struct cay_saved_contexts {
    char *user;
    struct cay_saved_context *items;
    struct one *ones;
    size_t count;
};

void cay_saved_contexts_free(cay_saved_contexts *saved)
{
    if (!saved)
        return;
    for (size_t i = 0; saved->ones && i < saved->count; i++) {
        auto_close(&saved->ones[i].fd);
        free(saved->ones[i].cwd);
    }
    free(saved->ones);
    free(saved->items);
    free(saved->user);
    free(saved);
}

const struct cay_saved_context *cay_saved_contexts_items(const cay_saved_contexts *saved,
                                                         size_t *ret_count)
{
    *ret_count = saved->count;
    return saved->items;
}

/* --- Saving --- */

struct run {
    struct code_collector collector;
    struct code_client client;
};

static bool on_event(void *cookie, const struct code_event *event, const char *payload)
{
    struct run *run = cookie;

    return code_collect_event(&run->collector, event, payload);
}

/* Why the driver could not, in words of code inside. */
static void take_reason(struct cay_saved_context *item, const struct code_end *end,
                        const struct cay_code_execution *execution)
{
    const char *reason = execution->error_value;

    if (end->reason == CODE_BUSY)
        reason = "code runs in it, or waits for it";
    else if (end->reason == CODE_LOST || end->reason == CODE_UNKNOWN)
        reason = "its interpreter ended meanwhile";
    else if (end->timed_out || end->reason == CODE_EXPIRED)
        reason = "saving it took too long";
    else if (!code_is_executed(end))
        reason = "the service of the sandbox could not save it";
    cay_copy_text(item->reason, sizeof item->reason, reason ? reason : "");
}

static int request_save(cay_sandbox *sandbox, const char *user, int fd, const char *body,
                        struct cay_saved_context *item, struct cay_error *err)
{
    const struct cay_code_options options = {.size = sizeof options,
                                             .output_limit = TEXT_MAX};
    const struct code_query query = {.op = CODE_SAVE,
                                     .id = item->id,
                                     .body = body,
                                     .body_len = strlen(body),
                                     .timeout_ms = TIMEOUT_MS,
                                     .image = fd};
    struct cay_code_execution execution = {0};
    struct code_end end = {0};
    struct run run = {0};

    code_collector_init(&run.collector, &options, &execution);
    int code = code_connect(&run.client, sandbox, user, save_op, err);
    if (!code)
        code = code_request(&run.client, &query, on_event, &run, NULL, &end, err);
    code_hang_up(&run.client);
    code_collector_done(&run.collector);
    if (!code)
        take_reason(item, &end, &execution);
    cay_code_execution_done(&execution);
    return code;
}

/* Nothing may write to the file any more: forks share it. */
static bool seal(int fd, uint64_t *ret_bytes)
{
    struct stat info;

    if (io_seal(fd) != 0 || fstat(fd, &info) != 0 || !info.st_blocks)
        return false;
    *ret_bytes = (uint64_t)info.st_blocks * 512;
    return true;
}

/* With room for image_max: its pages are memory of the process that writes them. */
static int open_image(void)
{
    AUTO_FD fd = memfd_create("context", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, image_max) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) != 0)
        return -errno;
    return TAKE_FD(fd);
}

static int save_one(cay_sandbox *sandbox, const char *user, const char *body,
                    struct cay_saved_context *item, struct one *one,
                    struct cay_error *err)
{
    AUTO_FD fd = open_image();

    if (fd < 0)
        return cay_fail_errno(err, -fd, save_op, item->id);
    TRY(request_save(sandbox, user, fd, body, item, err));
    if (*item->reason)
        return CAY_OK;
    item->is_saved = seal(fd, &item->bytes);
    if (item->is_saved)
        one->fd = TAKE_FD(fd);
    else
        cay_copy_text(item->reason, sizeof item->reason,
                      "its driver is of another version, or code has changed it");
    return CAY_OK;
}

/* "": it may be saved. */
static const char *find_reason(const struct cay_context_info *info)
{
    if (strcmp(info->language, "python") != 0)
        return "only Python can be saved";
    if (info->is_busy || info->waiting)
        return "code runs in it, or waits for it";
    return info->pid ? "" : "it has no interpreter";
}

static int save_all(cay_sandbox *sandbox, cay_saved_contexts *saved,
                    const struct cay_context_infos *infos, struct cay_error *err)
{
    AUTO_FREE char *body = warm_save_body();

    if (!body)
        return cay_fail_memory(err, save_op);
    for (size_t i = 0; i < infos->count; i++) {
        const struct cay_context_info *info = &infos->items[i];
        struct cay_saved_context *item = &saved->items[i];
        memcpy(item->id, info->id, sizeof item->id);
        memcpy(item->language, info->language, sizeof item->language);
        item->is_default = info->is_default;
        saved->ones[i].fd = -1;
        saved->ones[i].cwd = strdup(info->cwd);
        saved->count++;
        if (!saved->ones[i].cwd)
            return cay_fail_memory(err, save_op);
        cay_copy_text(item->reason, sizeof item->reason, find_reason(info));
        if (!*item->reason)
            TRY(save_one(sandbox, saved->user, body, item, &saved->ones[i], err));
    }
    return CAY_OK;
}

int cay_contexts_save(cay_sandbox *sandbox, const char *user,
                      cay_saved_contexts **ret_saved, struct cay_error *err)
{
    struct cay_context_infos infos = {0};
    cay_saved_contexts *saved = calloc(1, sizeof *saved);

    if (!saved)
        return cay_fail_memory(err, save_op);
    int code = cay_context_list(sandbox, user, &infos, err);
    saved->user = user ? strdup(user) : NULL;
    saved->items = calloc(infos.count + 1, sizeof *saved->items);
    saved->ones = calloc(infos.count + 1, sizeof *saved->ones);
    if (!code && (!saved->items || !saved->ones || (user && !saved->user)))
        code = cay_fail_memory(err, save_op);
    if (!code)
        code = save_all(sandbox, saved, &infos, err);
    cay_context_infos_done(&infos);
    if (code)
        cay_saved_contexts_free(saved);
    else
        *ret_saved = saved;
    return code;
}

/* --- In a fork --- */

static bool ignore_event(void *cookie, const struct code_event *event,
                         const char *payload)
{
    (void)cookie;
    (void)event;
    (void)payload;
    return false;
}

static int adopt(struct code_client *client, const struct cay_saved_context *item,
                 const struct one *one, struct cay_error *err)
{
    const struct code_language *language = code_language_find(item->language);
    const struct code_query query = {.op = CODE_ADOPT,
                                     .id = item->id,
                                     .language = item->language,
                                     .cwd = one->cwd,
                                     .is_default = item->is_default,
                                     .image = one->fd > 0 ? one->fd : 0,
                                     .driver = language};
    struct code_end end = {0};

    if (!language) /* the name came from inside */
        return code_fail_protocol(restore_op, err);
    TRY(code_request(client, &query, ignore_event, NULL, NULL, &end, err));
    return end.reason == CODE_DONE ? CAY_OK
                                   : code_fail_end(&query, restore_op, &end, err);
}

int cay_contexts_restore(cay_sandbox *fork, const cay_saved_contexts *saved,
                         struct cay_error *err)
{
    struct code_client client;

    if (!saved->count)
        return CAY_OK;
    int code = code_connect(&client, fork, saved->user, restore_op, err);
    for (size_t i = 0; !code && i < saved->count; i++)
        code = adopt(&client, &saved->items[i], &saved->ones[i], err);
    code_hang_up(&client);
    return code;
}
