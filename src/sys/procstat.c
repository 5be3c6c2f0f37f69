/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/procstat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"

enum { NAME_FIELD = 2, START_FIELD = 22 };

int procstat_read(pid_t pid, struct procstat *ret_stat)
{
    char path[32], text[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    AUTO_FD fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (len < 0)
        return -errno;
    text[len] = '\0';
    /* "12 (name) S 1 ...": the name may contain any byte, so the last ")" ends it. */
    const char *at = strrchr(text, ')');
    if (!at || strlen(at) < sizeof ") S 1" - 1)
        return -EIO;
    ret_stat->state = at[2];
    ret_stat->parent = (pid_t)strtol(at + 4, NULL, 10);
    for (int field = NAME_FIELD; at && field < START_FIELD; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return -EIO;
    ret_stat->start = strtoull(at, NULL, 10);
    return 0;
}
