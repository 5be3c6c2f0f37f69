/* SPDX-License-Identifier: Apache-2.0 */

/* Changes of templates in the shared directory, for a keeper without a sandbox, which
 * exits after the reply: records of tags, and removals.  shared.c writes the archives. */
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"

static const char op[] = "server.shared";

/* `record` is its name and its lines. */
static int put_one(const struct keeper *keeper, const char *const *place,
                   const char *const *record, struct cay_error *err)
{
    const char *const strings[] = {place[SHARED_ID], place[SHARED_TENANT], record[0]};
    AUTO_BUF text = {.max = CHANNEL_PACKET};

    for (int i = 0; i < SHARED_RECORD_LINES; i++)
        (void)buf_format(&text, "%s\n", record[1 + i]);
    return text.failed ? cay_fail_memory(err, op)
                       : keeper_put_record(keeper, strings, &text, err);
}

static int remove_one(const struct keeper *keeper, const char *const *place,
                      const char *name, bool removes, struct cay_error *err)
{
    const char *const strings[] = {place[SHARED_ID], place[SHARED_TENANT], name};

    return keeper_remove_shared(keeper, strings, removes, err);
}

/* The directory is tried before anything is removed: what is in use stays as a whole. */
static int change(const struct keeper *keeper, const struct keeper_request *request,
                  struct cay_error *err)
{
    enum { RECORD = 1 + SHARED_RECORD_LINES };
    const char *const *place = request->strings, *const *at = place + 2;
    const char *const *end = place + request->head.count;
    int64_t records = request->head.numbers[SHARED_NEW];
    int64_t sources = request->head.numbers[SHARED_SOURCES];

    if (records < 0 || sources < 0 || records > end - at ||
        sources > end - at - records * RECORD)
        return cay_fail(err, CAY_E_PROTOCOL, 0, op, NULL, "the request is malformed",
                        "restart the server; report a bug if it happens again");
    TRY(remove_one(keeper, place, "", false, err));
    for (int64_t i = 0; i < records; i++, at += RECORD)
        TRY(put_one(keeper, place, at, err));
    TRY(keeper_remove_templates(at, (size_t)sources, err));
    for (at += sources; at < end; at++)
        TRY(remove_one(keeper, place, *at, true, err));
    return CAY_OK;
}

int keeper_op_shared_records(struct keeper *keeper, struct keeper_request *request,
                             struct cay_error *err)
{
    int code = change(keeper, request, err);

    if (code)
        (void)reply_send_error(request->channel, code == CAY_E_BUSY ? 400 : 0, err);
    else
        (void)reply_send_done(request->channel);
    _exit(0);
}
