/* SPDX-License-Identifier: Apache-2.0 */

/* Watches that are asked now and then. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "server/keeper/watch.h"

/* "KEEPER.NUMBER.FLAGS.USER/PATH": a keeper that comes after this one, when the server
 * was started again, can make the watcher anew. */
static bool name_watcher(struct watching *watching, struct watch *watch)
{
    bool is_text = utf8_is_valid(watch->path, strlen(watch->path));

    if (asprintf(&watch->id, "%d.%u.%u.%s%s", getpid(), ++watching->numbers, watch->flags,
                 watch->user, is_text ? watch->path : "") < 0)
        watch->id = NULL;
    return watch->id;
}

int keep_watcher_new(struct keep *keep, struct question *question, struct cay_error *err)
{
    struct tell tell = {.kind = TELL_TEXT, .count = 1};
    struct watch *watch = NULL;
    AUTO_BUF strings = {0};
    int code = watch_new(keep, question, &watch, err);

    if (code)
        return code;
    if (!name_watcher(keep->watching, watch)) {
        watch_free(keep->watching, watch);
        return cay_fail_memory(err, "files.watcher");
    }
    buf_init(&strings, CHANNEL_PACKET);
    strings_add(&strings, watch->id);
    (void)tell_send(question->channel, &tell, &strings, -1);
    (void)tell_done(question->channel);
    return CAY_OK;
}

/* One that an earlier keeper had.  What happened since is not told. */
static int find_again(struct keep *keep, const char *id, struct watch **ret_watch,
                      struct cay_error *err)
{
    const char *path = strchr(id, '/');
    struct question question = {.strings = &path};
    char *end;
    long keeper = strtol(id, &end, 10);
    (void)strtoul(*end == '.' ? end + 1 : "", &end, 10);
    question.head.flags = (uint32_t)strtoul(*end == '.' ? end + 1 : "", &end, 10);

    if (*end != '.' || !path || keeper == getpid() || path - end > USER_MAX ||
        question.head.flags & ~(uint32_t)(WATCH_RECURSIVE | WATCH_ENTRIES))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "files.watcher", id,
                        "there is no such watcher", "make one with CreateWatcher");
    memcpy(question.head.user, end + 1, (size_t)(path - end) - 1);
    AUTO_FREE char *kept = strdup(id);
    if (!kept)
        return cay_fail_memory(err, "files.watcher");
    int code = watch_new(keep, &question, ret_watch, err);
    if (!code)
        (*ret_watch)->id = TAKE_PTR(kept);
    return code;
}

static int find_watcher(struct keep *keep, const char *id, struct watch **ret_watch,
                        struct cay_error *err)
{
    struct watch *watch = keep->watching ? keep->watching->watches : NULL;

    for (; watch; watch = watch->next)
        if (watch->id && strcmp(watch->id, id) == 0) {
            *ret_watch = watch;
            return CAY_OK;
        }
    return find_again(keep, id, ret_watch, err);
}

/* What has happened until now is among them. */
int keep_watcher_events(struct keep *keep, struct question *question,
                        struct cay_error *err)
{
    struct watch *watch = NULL;
    int code = find_watcher(keep, question->strings[0], &watch, err);

    if (code)
        return code;
    /* All of a full queue (16,384 events), but no more of what goes on meanwhile. */
    for (int i = 0; i < 64 && watching_hear(keep); i++)
        ;
    if (watch->has_lost) {
        watch->has_lost = false;
        return watch_fail_lost(watch, err);
    }
    if (watch->missed) {
        code = watch_fail(watch, watch->missed, err);
        watch->missed = 0;
        return code;
    }
    while (watch->events) {
        code = keep_wait(question->channel, err);
        if (code)
            return code;
        int error = watch_tell(keep, question->channel, watch);
        if (error == -EAGAIN || error == -ENOBUFS)
            continue;
        if (error)
            return cay_fail_errno(err, -error, "files.watcher", question->strings[0]);
        watch_drop_event(keep->watching, watch);
    }
    (void)tell_done(question->channel);
    return CAY_OK;
}

int keep_watcher_remove(struct keep *keep, struct question *question,
                        struct cay_error *err)
{
    struct watch *watch = NULL;
    int code = find_watcher(keep, question->strings[0], &watch, err);

    if (code)
        return code;
    watch_free(keep->watching, watch);
    (void)tell_done(question->channel);
    return CAY_OK;
}
