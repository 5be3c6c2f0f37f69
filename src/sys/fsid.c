/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/fsid.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex;
    unsigned holders;
    bool was_dumpable; /* when the first of them came */
} held = {.mutex = PTHREAD_MUTEX_INITIALIZER};

bool fsid_begin(void)
{
    pthread_mutex_lock(&held.mutex);
    if (held.holders++ == 0)
        held.was_dumpable = prctl(PR_GET_DUMPABLE) == 1;
    bool was_dumpable = held.was_dumpable;
    pthread_mutex_unlock(&held.mutex);
    return was_dumpable;
}

static void restore(void)
{
    if (held.was_dumpable)
        (void)prctl(PR_SET_DUMPABLE, 1);
}

void fsid_end(void)
{
    pthread_mutex_lock(&held.mutex);
    held.holders--;
    restore();
    pthread_mutex_unlock(&held.mutex);
}

/* Raw calls: the C library's would change every thread.  They report no failure: an
 * invalid id changes nothing and returns the current one. */
bool fsid_take(uint32_t id)
{
    const uint32_t none = UINT32_MAX;

    (void)syscall(SYS_setfsgid, id);
    (void)syscall(SYS_setfsuid, id);
    bool is_taken = (uint32_t)syscall(SYS_setfsgid, none) == id &&
                    (uint32_t)syscall(SYS_setfsuid, none) == id;
    restore();
    return is_taken;
}
