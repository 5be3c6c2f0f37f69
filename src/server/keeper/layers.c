/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints of the sandbox, and what is made of them. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/diff.h"
#include "cay/snapshot.h"
#include "server/keeper/keeper.h"

/* --- Checkpoints --- */

/* Waits a moment for a command that is just starting or ending. */
static int seal(struct keeper *keeper, const struct cay_checkpoint_options *options,
                struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    int code = CAY_E_BUSY;

    for (int i = 0; i < KEEPER_BUSY_TRIES && code == CAY_E_BUSY; i++) {
        code = cay_sandbox_checkpoint(keeper->sandbox, options, ret_checkpoint, err);
        if (code == CAY_E_BUSY)
            (void)poll(NULL, 0, TICK_MS);
    }
    return code;
}

/* Seals the files for forks of the sandbox. */
int keeper_op_fork(struct keeper *keeper, struct keeper_request *request,
                   struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_DONE};
    struct cay_checkpoint checkpoint;

    TRY(seal(keeper, NULL, &checkpoint, err));
    reply.numbers[CHECKPOINT_ID] = checkpoint.id;
    (void)reply_send(request->channel, &reply, NULL, -1);
    return CAY_OK;
}

static int send_checkpoint(int channel, const struct cay_checkpoint *checkpoint,
                           struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_CHECKPOINT, .count = 2};
    AUTO_BUF strings = {.max = sizeof *checkpoint};

    reply.numbers[CHECKPOINT_ID] = checkpoint->id;
    reply.numbers[CHECKPOINT_PARENT] = checkpoint->parent;
    reply.numbers[CHECKPOINT_IS_CURRENT] = checkpoint->is_current;
    reply.numbers[CHECKPOINT_CREATED_MS] = checkpoint->created_ms;
    reply.numbers[CHECKPOINT_BYTES] = (int64_t)checkpoint->bytes;
    reply.numbers[CHECKPOINT_FILES] = (int64_t)checkpoint->files;
    strings_add(&strings, checkpoint->name);
    strings_add(&strings, checkpoint->cause);
    TRY(keeper_wait_writable(channel, err));
    (void)reply_send(channel, &reply, &strings, -1);
    return CAY_OK;
}

int keeper_op_checkpoints(struct keeper *keeper, struct keeper_request *request,
                          struct cay_error *err)
{
    AUTO_FREE struct cay_checkpoint *list = NULL;
    size_t count = 0;

    TRY(cay_sandbox_checkpoints(keeper->sandbox, &list, &count, err));
    for (size_t i = 0; i < count; i++)
        TRY(send_checkpoint(request->channel, &list[i], err));
    return KEEPER_DONE;
}

int keeper_op_checkpoint(struct keeper *keeper, struct keeper_request *request,
                         struct cay_error *err)
{
    struct cay_checkpoint_options options = {.size = sizeof options};
    struct cay_checkpoint checkpoint;

    if (*request->strings[0])
        options.name = request->strings[0];
    if (request->head.numbers[CHECKPOINT_STOPS])
        options.mode = CAY_CHECKPOINT_STOP;
    TRY(seal(keeper, &options, &checkpoint, err));
    TRY(send_checkpoint(request->channel, &checkpoint, err));
    return KEEPER_DONE;
}

int keeper_op_rollback(struct keeper *keeper, struct keeper_request *request,
                       struct cay_error *err)
{
    struct cay_checkpoint undone = {0};

    TRY(cay_sandbox_rollback(keeper->sandbox, request->strings[0], &undone, err));
    names_close(); /* of the files before */
    if (undone.id)
        TRY(send_checkpoint(request->channel, &undone, err));
    return KEEPER_DONE;
}

/* --- Snapshots --- */

int keeper_op_snapshot(struct keeper *keeper, struct keeper_request *request,
                       struct cay_error *err)
{
    const struct cay_snapshot_options options = {.size = sizeof options,
                                                 .name = request->strings[0]};
    int code = CAY_E_BUSY;

    for (int i = 0; i < KEEPER_BUSY_TRIES && code == CAY_E_BUSY; i++) {
        code = cay_snapshot_create(keeper->sandbox, &options, NULL, err);
        if (code == CAY_E_BUSY)
            (void)poll(NULL, 0, TICK_MS);
    }
    return code ? code : KEEPER_DONE;
}

/* As E2B: a snapshot that is in use is an invalid request. */
int keeper_op_snapshot_remove(struct keeper *keeper, struct keeper_request *request,
                              struct cay_error *err)
{
    bool is_shared = request->head.count > 1;
    int code = is_shared ? keeper_remove_shared(keeper, request->strings + 1, false, err)
                         : CAY_OK;

    if (!code)
        code = cay_snapshot_remove(request->strings[0], err);
    if (code == CAY_E_BUSY)
        code = cay_fail(err, CAY_E_INVALID, 0, "server.snapshot", NULL,
                        "a sandbox uses the snapshot", "kill the sandbox first");
    if (code == CAY_E_NOT_FOUND)
        code = CAY_OK;
    if (!code && is_shared)
        code = keeper_remove_shared(keeper, request->strings + 1, true, err);
    if (code)
        (void)reply_send_error(request->channel, 0, err);
    else
        (void)reply_send_done(request->channel);
    _exit(0);
}

/* --- Differences --- */

enum { DIFF_TIMEOUT_MS = 30000, DIFF_CHANGES_MAX = 100000 };

struct output {
    int channel;
    struct buf piece;
    struct cay_error *err;
};

static int send_piece(struct output *output)
{
    struct reply reply = {.kind = REPLY_OUTPUT};

    if (keeper_wait_writable(output->channel, output->err) != CAY_OK ||
        reply_send(output->channel, &reply, &output->piece, -1) != 0)
        return EPIPE;
    output->piece.len = 0;
    return 0;
}

static int write_piece(void *cookie, enum cay_diff_line line, const char *text,
                       size_t len)
{
    struct output *output = cookie;

    (void)line;
    while (len > 0) {
        size_t room = output->piece.max - output->piece.len;
        size_t part = len < room ? len : room;
        if (!buf_append(&output->piece, text, part))
            return ENOMEM;
        text += part;
        len -= part;
        if (output->piece.len == output->piece.max && send_piece(output) != 0)
            return EPIPE;
    }
    return 0;
}

int keeper_op_diff(struct keeper *keeper, struct keeper_request *request,
                   struct cay_error *err)
{
    const struct cay_diff_options options = {.size = sizeof options,
                                             .timeout_ms = DIFF_TIMEOUT_MS,
                                             .max_changes = DIFF_CHANGES_MAX};
    const char *after = request->strings[1];
    struct output output = {request->channel, {.max = CHANNEL_PACKET}, err};
    cay_diff *diff = NULL;

    TRY(cay_sandbox_diff_checkpoints(cay_sandbox_id(keeper->sandbox), request->strings[0],
                                     *after ? after : NULL, &options, &diff, err));
    int code =
        cay_diff_print(diff, (enum cay_diff_format)request->head.numbers[DIFF_FORMAT],
                       write_piece, &output, err);
    cay_diff_free(diff);
    if (!code && output.piece.len && send_piece(&output) != 0)
        code = cay_fail(err, CAY_E_TIMEOUT, 0, "server.diff", NULL,
                        "the client does not read the reply", "try again");
    buf_done(&output.piece);
    return code ? code : KEEPER_DONE;
}

/* --- Pausing without memory --- */

int keeper_stop(struct keeper *keeper, struct cay_error *err)
{
    int life = keeper->life;

    if (life > 0) { /* its end is expected */
        keeper_poll_remove(keeper, life);
        (void)close(life);
    }
    keeper->life = 0;
    TRY(cay_sandbox_pause_disk(keeper->sandbox, err));
    keeper->is_stopped = true;
    keeper_forget_commands(keeper);
    for (int i = 0; i < KEEPER_USERS; i++) {
        cay_files_free(keeper->users[i].files);
        keeper->users[i].files = NULL;
    }
    return CAY_OK;
}

int keeper_start(struct keeper *keeper, struct cay_error *err)
{
    TRY(cay_sandbox_resume(keeper->sandbox, err));
    keeper->is_stopped = false;
    return CAY_OK;
}
