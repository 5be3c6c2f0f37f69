/* SPDX-License-Identifier: Apache-2.0 */
#include "init/leaf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/hold.h"
#include "init/plan.h"

static bool are_held;

void leaf_prepare(bool has_cgroup)
{
    are_held = !has_cgroup;
}

static void name_of(unsigned number, char name[16])
{
    snprintf(name, 16, "e%u", number);
}

int leaf_open(unsigned number, struct leaf *ret_leaf)
{
    char name[16];

    if (are_held)
        return hold_open(ret_leaf);
    *ret_leaf = (struct leaf){.fd = -1, .events = -1, .number = number};
    name_of(number, name);
    if (mkdirat(CGROUP_FD, name, 0755) != 0 && errno != EEXIST)
        return -errno;
    ret_leaf->fd = openat(CGROUP_FD, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ret_leaf->fd >= 0)
        ret_leaf->events = openat(ret_leaf->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    if (ret_leaf->events >= 0)
        return 0;
    int error = errno;
    leaf_close(ret_leaf);
    return -error;
}

int leaf_kill(const struct leaf *leaf)
{
    if (leaf->is_held)
        return hold_kill(leaf);
    AUTO_FD fd = openat(leaf->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, "1", 1) == 1 ? 0 : -errno;
}

bool leaf_is_empty(const struct leaf *leaf)
{
    char text[128];

    if (leaf->is_held)
        return hold_is_empty(leaf);
    ssize_t len = pread(leaf->events, text, sizeof text - 1, 0);

    if (len <= 0)
        return false;
    text[len] = '\0';
    return strstr(text, "populated 0") != NULL;
}

void leaf_close(struct leaf *leaf)
{
    char name[16];

    if (leaf->is_held) {
        hold_close(leaf);
        return;
    }
    if (leaf->events >= 0)
        (void)close(leaf->events);
    if (leaf->fd >= 0) {
        (void)close(leaf->fd);
        name_of(leaf->number, name);
        (void)unlinkat(CGROUP_FD, name, AT_REMOVEDIR);
    }
    leaf->fd = leaf->events = -1;
}
