/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CGROUPS_H
#define TESTS_CGROUPS_H

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>

/* cgroups with a text in their name, below a directory. */
static inline size_t count_groups_below(int parent, const char *name, const char *part)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    size_t count = 0;

    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            count += (strstr(entry->d_name, part) != NULL) +
                     count_groups_below(fd, entry->d_name, part);
    if (directory)
        closedir(directory);
    return count;
}

/* Wherever they are: with cgroup v1 in each hierarchy, with cgroup2 alone in a place that
 * depends on who made them. */
static inline size_t count_groups(const char *part)
{
    return count_groups_below(AT_FDCWD, "/sys/fs/cgroup", part);
}

#endif
