/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_PROCSTAT_H
#define SYS_PROCSTAT_H

#include <stdint.h>
#include <sys/types.h>

/* Fields of /proc/PID/stat. */
struct procstat {
    char state; /* 'Z': a zombie */
    pid_t parent;
    uint64_t start; /* since boot: differs if the pid was reused */
};

/* 0 or a negative errno: -ENOENT or -ESRCH if there is no such process. */
int procstat_read(pid_t pid, struct procstat *ret_stat);

#endif
