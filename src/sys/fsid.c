/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/fsid.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* For one thread only, which is what the C library's functions would not do. */
void fsid_take(uint32_t id)
{
    /* The whole process would be undumpable by this, for good. */
    int dumpable = prctl(PR_GET_DUMPABLE);

    (void)syscall(SYS_setfsgid, id);
    (void)syscall(SYS_setfsuid, id);
    if (dumpable == 1)
        (void)prctl(PR_SET_DUMPABLE, 1);
}
