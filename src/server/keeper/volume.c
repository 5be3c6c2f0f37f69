/* SPDX-License-Identifier: Apache-2.0 */

/* Requests about volumes, to a keeper without a sandbox.  It exits after the reply. */
#include "cay/volume.h"

#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"

/* Of a tenant: a list of them fits a packet. */
enum { PREFIX = sizeof "e2b.0123456789abcdef." - 1, VOLUMES_MAX = 500 };

static const char op[] = "server.volume";

static int fail_unknown(struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL, "there is no such volume",
                    "list the volumes");
}

/* The names that begin with `prefix`, or are it. */
static int add_names(const char *prefix, bool is_whole, struct buf *strings,
                     uint32_t *ret_count, struct cay_error *err)
{
    AUTO_FREE struct cay_volume_info *infos = NULL;
    size_t count = 0;

    TRY(cay_volume_list(&infos, &count, err));
    for (size_t i = 0; i < count; i++)
        if (is_whole ? strcmp(infos[i].name, prefix) == 0
                     : strncmp(infos[i].name, prefix, strlen(prefix)) == 0) {
            strings_add(strings, infos[i].name);
            ++*ret_count;
        }
    return strings->failed ? cay_fail(err, CAY_E_LIMIT, 0, op, NULL, "too many volumes",
                                      "remove some of them")
                           : CAY_OK;
}

static int check_room(const char *name, struct cay_error *err)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    char prefix[PREFIX + 1];
    uint32_t count = 0;

    cay_copy_text(prefix, sizeof prefix, name);
    TRY(add_names(prefix, false, &strings, &count, err));
    return count < VOLUMES_MAX
               ? CAY_OK
               : cay_fail(err, CAY_E_LIMIT, 0, op, NULL, "too many volumes",
                          "the limit is %d: remove some", VOLUMES_MAX);
}

static int run(struct keeper *keeper, const struct keeper_request *request,
               struct cay_error *err)
{
    const struct cay_volume_options options = {.size = sizeof options,
                                               .name = request->strings[0]};
    struct reply reply = {.kind = REPLY_TEXT};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    bool is_list = request->head.op == OP_VOLUMES;

    if (request->head.op == OP_VOLUME_REMOVE) {
        keeper_content_close(keeper);
        int code = cay_volume_remove(request->strings[0], err);
        if (!code)
            (void)reply_send_done(request->channel);
        return code == CAY_E_NOT_FOUND ? fail_unknown(err) : code;
    }
    if (request->head.op == OP_VOLUME_CREATE) {
        TRY(check_room(request->strings[0], err));
        TRY(cay_volume_create(&options, err));
    }
    TRY(add_names(request->strings[0], !is_list, &strings, &reply.count, err));
    if (!is_list && !reply.count)
        return fail_unknown(err);
    (void)reply_send(request->channel, &reply, &strings, -1);
    return CAY_OK;
}

int keeper_op_volume(struct keeper *keeper, struct keeper_request *request,
                     struct cay_error *err)
{
    if (keeper->tasks) /* uploads, which only the keeper of the volume has */
        return cay_fail(err, CAY_E_BUSY, 0, op, NULL, "files of the volume are uploaded",
                        "wait until the uploads end");
    if (run(keeper, request, err) != CAY_OK)
        (void)reply_send_error(request->channel, 0, err);
    _exit(0);
}
