/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroups of a sandbox without its record, and the processes in them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/cgroup-look.h"

/* A cgroup may contain others, as deep as its delegate likes. */
enum { DEPTH_MAX = 16 };

/* The path of an entry of a directory that is a cgroup; false for anything else. */
static bool name_child(const char *path, const struct dirent *entry,
                       char ret_child[GROUPS_PATH])
{
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
        return false;
    int len = snprintf(ret_child, GROUPS_PATH, "%s/%s", path, entry->d_name);
    return len > 0 && len < GROUPS_PATH;
}

/* Another user can make one of the same name where cgroups were delegated to it. */
static bool is_ours(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && st.st_uid == geteuid();
}

/* 1, 0, or negative if it may be there all the same. */
static int find_below(const char *path, const char *name, int depth,
                      char ret_path[GROUPS_PATH])
{
    char child[GROUPS_PATH];
    DIR *directory = depth < DEPTH_MAX ? opendir(path) : NULL;
    int found = !directory && cay_errno_is_shortage(errno) ? -errno : 0;

    for (struct dirent *entry; directory && !found && (entry = readdir(directory));) {
        if (!name_child(path, entry, child))
            continue;
        found = strcmp(entry->d_name, name) == 0 && is_ours(child);
        if (found)
            memcpy(ret_path, child, sizeof child);
        else if (strncmp(entry->d_name, "cay-sb-", 7) != 0) /* another sandbox's */
            found = find_below(child, name, depth + 1, ret_path);
    }
    if (directory)
        closedir(directory);
    return found;
}

int groups_find(const char *id, struct groups *ret_groups)
{
    char mount[GROUPS_PATH], name[64];
    int error = 0;

    memset(ret_groups, 0, sizeof *ret_groups);
    snprintf(name, sizeof name, "cay-%.32s", id);
    for (size_t i = 0; i <= GROUPS_V1 && error >= 0; i++) {
        int found = groups_mount(i, mount);
        error = found > 0
                    ? find_below(mount, name, 0,
                                 i == GROUPS_V1 ? ret_groups->unified : ret_groups->v1[i])
                    : found;
    }
    return error < 0 ? error : 0;
}

static int visit_below(const char *path, int depth,
                       void (*visit)(pid_t pid, void *cookie), void *cookie)
{
    char child[GROUPS_PATH], file[GROUPS_PATH + 16], line[32];
    DIR *directory = depth < DEPTH_MAX ? opendir(path) : NULL;
    int error = directory || errno == ENOENT ? 0 : -errno;

    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (name_child(path, entry, child)) {
            int below = visit_below(child, depth + 1, visit, cookie);
            error = error ? error : below;
        }
    if (directory)
        closedir(directory);
    snprintf(file, sizeof file, "%s/cgroup.procs", path);
    FILE *procs = fopen(file, "re");
    if (!procs)
        return error || errno == ENOENT ? error : -errno;
    while (fgets(line, sizeof line, procs))
        visit((pid_t)strtol(line, NULL, 10), cookie);
    fclose(procs);
    return error;
}

int groups_visit(const struct groups *groups, void (*visit)(pid_t pid, void *cookie),
                 void *cookie)
{
    int error = groups->unified[0] ? visit_below(groups->unified, 0, visit, cookie) : 0;

    for (size_t i = 0; i < GROUPS_V1; i++)
        if (groups->v1[i][0]) {
            int other = visit_below(groups->v1[i], 0, visit, cookie);
            error = error ? error : other;
        }
    return error;
}
