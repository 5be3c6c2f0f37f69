/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/sticky.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool owns_everything(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

    return syscall(SYS_capget, &header, data) == 0 &&
           data[CAP_TO_INDEX(CAP_FOWNER)].effective & CAP_TO_MASK(CAP_FOWNER);
}

int sticky_may_remove(const struct stat *dir, const struct stat *st)
{
    uid_t user = geteuid();

    if (!(dir->st_mode & S_ISVTX) || user == dir->st_uid || user == st->st_uid)
        return 0;
    return owns_everything() ? 0 : -EPERM;
}
