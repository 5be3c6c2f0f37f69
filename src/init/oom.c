/* SPDX-License-Identifier: Apache-2.0 */
#include "init/oom.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"

enum { SCORE_MAX = 1000 };

void oom_raise(int by)
{
    char text[16] = "";
    AUTO_FD fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return;
    long score = strtol(text, NULL, 10) + by;
    int len = snprintf(text, sizeof text, "%ld", score < SCORE_MAX ? score : SCORE_MAX);
    (void)!pwrite(fd, text, (size_t)len, 0);
}
