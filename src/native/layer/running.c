/* SPDX-License-Identifier: Apache-2.0 */
#include "native/layer/running.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "sys/io.h"
#include "sys/path.h"

enum { KILL_MS = 10000 };

/* If the kernel cannot tell, the process counts. */
static bool is_prefork(const struct record *record, pid_t pid)
{
    return syscall(SYS_kcmp, record->init, pid, KCMP_VM, 0, 0) == 0;
}

/* Sends the signal to each process of the cgroup, unless it is 0. */
static int visit_cgroup(const struct record *record, int group, int signal)
{
    char line[32];
    int count = 0;
    int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");

    if (!file) {
        int error = -errno;
        auto_close(&fd);
        return error == -ENOENT || error == -ENODEV ? 0 : error;
    }
    while (fgets(line, sizeof line, file)) {
        pid_t pid = (pid_t)strtol(line, NULL, 10);
        if (pid <= 0 || is_prefork(record, pid))
            continue;
        count++;
        if (signal)
            (void)kill(pid, signal);
    }
    (void)fclose(file);
    return count;
}

static int visit_all(const struct record *record, int signal)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/work", record->cgroup.unified);
    AUTO_FD work = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (work < 0)
        return -errno;
    int count = visit_cgroup(record, work, signal);
    AUTO_DIR list = path_list(work);
    for (struct dirent *entry; count >= 0 && (entry = path_next(list));) {
        if (entry->d_type != DT_DIR)
            continue;
        AUTO_FD group = openat(work, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int more = group < 0 ? 0 : visit_cgroup(record, group, signal);
        count = more < 0 ? more : count + more;
    }
    return count;
}

int running_count(const struct record *record)
{
    return visit_all(record, 0);
}

static int read_frozen(const char *path, char *ret_value)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    return read(fd, ret_value, 1) == 1 ? 0 : -EIO;
}

/* Frozen, so that none forks while the others are killed; a frozen process dies of
 * SIGKILL. */
int running_kill(const struct record *record)
{
    char path[PATH_MAX], before = '0';
    uint64_t end = clock_ms() + KILL_MS;
    int count = visit_all(record, 0);

    if (count <= 0)
        return count;
    snprintf(path, sizeof path, "%s/work/cgroup.freeze", record->cgroup.unified);
    int error = read_frozen(path, &before);
    if (!error)
        error = io_write_text(path, "1");
    if (error)
        return error;
    while ((count = visit_all(record, SIGKILL)) > 0 && clock_ms() < end)
        clock_sleep_ms(1);
    if (before != '1')
        (void)io_write_text(path, "0");
    return count;
}
