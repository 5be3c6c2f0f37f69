/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/streams.h"

#include "base/error.h"

bool streams_read(struct tail tails[2], int *ret_stream, void *data, size_t room,
                  size_t *ret_len, uint64_t *ret_dropped)
{
    for (int i = 0; i < 2; i++) {
        struct tail *tail = &tails[i];
        if (!tail->len && !tail->dropped)
            continue;
        *ret_stream = i + 1;
        *ret_len = tail_read(tail, data, room);
        *ret_dropped = tail->dropped;
        tail->dropped = 0;
        return true;
    }
    return false;
}

int streams_take(struct tail tails[2], struct cay_exec_result *result, const char *op,
                 struct cay_error *err)
{
    char **texts[] = {&result->out, &result->error};
    size_t *lens[] = {&result->out_len, &result->error_len};
    uint64_t *dropped[] = {&result->out_dropped, &result->error_dropped};

    for (int i = 0; i < 2; i++) {
        struct tail *tail = &tails[i];
        *dropped[i] = tail->dropped;
        *texts[i] = tail_take(tail, lens[i]);
        tail_done(tail);
        tail_init(tail, tail->limit);
    }
    return result->out && result->error ? CAY_OK : cay_fail_memory(err, op);
}

int streams_fail_room(struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, "process.read", "room", "the buffer is empty",
                    "pass a buffer of at least one byte");
}

int streams_fail_closed(struct cay_error *err)
{
    return cay_fail(
        err, CAY_E_INVALID, 0, "process.write", NULL, "the command's input is not open",
        "start the command with CAY_EXEC_INPUT; a closed input cannot be reopened");
}
