/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/native.h"
#include "native/record/remove.h"

/* That end at a time: each needs two descriptors. */
enum { BATCH = 64 };

struct victim {
    struct record record;
    int lock, pidfd;
    bool has_begun;
};

static void begin(const char *id, struct victim *victim)
{
    victim->lock = runtime_lock(id);
    victim->pidfd = -1;
    victim->has_begun = victim->lock >= 0 &&
                        runtime_load(id, &victim->record, NULL) == CAY_OK &&
                        runtime_look(&victim->record) > 0 &&
                        record_begin_end(&victim->record, &victim->pidfd, NULL) == CAY_OK;
    if (!victim->has_begun)
        auto_close(&victim->lock);
}

/* One that is just being removed, does not run, or has no record to read. */
static int kill_alone(const char *id, struct cay_error *err)
{
    void *native = NULL;
    int code = native_open(id, false, &native, err);

    if (code == CAY_E_INVALID) /* it is a local one, or still invalid */
        code = native_open(id, true, &native, err);
    if (!code)
        code = native_kill(native, err);
    native_free(native);
    return code;
}

static int finish(const char *id, struct victim *victim, struct cay_error *err)
{
    if (!victim->has_begun)
        return kill_alone(id, err);
    int code = record_remove(&victim->record, victim->pidfd, err);
    auto_close(&victim->pidfd);
    auto_close(&victim->lock);
    return code;
}

int cay_sandbox_kill_many(const char *const *ids, size_t count,
                          struct cay_error *ret_errors)
{
    AUTO_FREE struct victim *victims = calloc(BATCH, sizeof *victims);
    int first = CAY_OK;

    for (size_t i = 0; i < count; i += BATCH) {
        size_t end = i + BATCH < count ? i + BATCH : count;
        for (size_t j = i; victims && j < end; j++)
            begin(ids[j], &victims[j - i]);
        for (size_t j = i; j < end; j++) {
            ret_errors[j] = (struct cay_error){0};
            int code = victims ? finish(ids[j], &victims[j - i], &ret_errors[j])
                               : kill_alone(ids[j], &ret_errors[j]);
            if (!code)
                ret_errors[j] = (struct cay_error){0};
            first = first ? first : code;
        }
    }
    return first;
}
