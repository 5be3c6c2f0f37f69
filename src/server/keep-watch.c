/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "server/keep.h"

static int lacks(struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, "files.watch", NULL,
                    "watching directories is not supported yet", "list them instead");
}

int keep_watch_dir(struct keep *keep, struct question *question, struct cay_error *err)
{
    (void)keep;
    (void)question;
    return lacks(err);
}

int keep_watcher_new(struct keep *keep, struct question *question, struct cay_error *err)
{
    return keep_watch_dir(keep, question, err);
}

int keep_watcher_events(struct keep *keep, struct question *question,
                        struct cay_error *err)
{
    return keep_watch_dir(keep, question, err);
}

int keep_watcher_remove(struct keep *keep, struct question *question,
                        struct cay_error *err)
{
    return keep_watch_dir(keep, question, err);
}
