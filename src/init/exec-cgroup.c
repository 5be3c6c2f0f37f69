/* SPDX-License-Identifier: Apache-2.0 */
#include "init/exec-cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/plan.h"
#include "init/subreaper.h"

static bool use_subreapers;

void exec_cgroup_prepare(bool has_cgroup)
{
    use_subreapers = !has_cgroup;
}

static void name_of(unsigned number, char name[16])
{
    snprintf(name, 16, "e%u", number);
}

int exec_cgroup_open(unsigned number, struct exec_cgroup *ret_cgroup)
{
    char name[16];

    if (use_subreapers)
        return subreaper_open(ret_cgroup);
    *ret_cgroup = (struct exec_cgroup){.fd = -1, .events = -1, .number = number};
    name_of(number, name);
    if (mkdirat(CGROUP_FD, name, 0755) != 0 && errno != EEXIST)
        return -errno;
    ret_cgroup->fd = openat(CGROUP_FD, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ret_cgroup->fd >= 0)
        ret_cgroup->events =
            openat(ret_cgroup->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    if (ret_cgroup->events >= 0)
        return 0;
    int error = errno;
    exec_cgroup_close(ret_cgroup);
    return -error;
}

int exec_cgroup_kill(const struct exec_cgroup *cgroup)
{
    if (cgroup->has_subreaper)
        return subreaper_kill(cgroup);
    AUTO_FD fd = openat(cgroup->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, "1", 1) == 1 ? 0 : -errno;
}

bool exec_cgroup_is_empty(const struct exec_cgroup *cgroup)
{
    char text[128];

    if (cgroup->has_subreaper)
        return subreaper_is_empty(cgroup);
    ssize_t len = pread(cgroup->events, text, sizeof text - 1, 0);

    if (len <= 0)
        return false;
    text[len] = '\0';
    return strstr(text, "populated 0") != NULL;
}

void exec_cgroup_close(struct exec_cgroup *cgroup)
{
    char name[16];

    if (cgroup->has_subreaper) {
        subreaper_close(cgroup);
        return;
    }
    if (cgroup->events >= 0)
        (void)close(cgroup->events);
    if (cgroup->fd >= 0) {
        (void)close(cgroup->fd);
        name_of(cgroup->number, name);
        (void)unlinkat(CGROUP_FD, name, AT_REMOVEDIR);
    }
    cgroup->fd = cgroup->events = -1;
}
