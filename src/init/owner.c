/* SPDX-License-Identifier: Apache-2.0 */

/* The process that has a socket, found by the links in /proc/PID/fd.  Processes inside
 * decide how many of those there are, so the search ends after a fixed processor time
 * without a result.  A socket may have several processes: the first in /proc is named. */
#include "init/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "relay/relay.h"
#include "sys/rights.h"

enum { MOST_NS = 3000000 };

static uint64_t used_ns(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static DIR *open_directory(int at, const char *name)
{
    AUTO_FD fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);

    if (directory)
        (void)TAKE_FD(fd);
    return directory;
}

static bool has_link(int process, const char *link, uint64_t end_ns)
{
    DIR *directory = open_directory(process, "fd");
    bool is_found = false;
    char text[64];

    for (struct dirent *entry;
         directory && !is_found && used_ns() < end_ns && (entry = readdir(directory));) {
        ssize_t len = readlinkat(dirfd(directory), entry->d_name, text, sizeof text - 1);
        text[len > 0 ? len : 0] = '\0';
        is_found = strcmp(text, link) == 0;
    }
    if (directory)
        (void)closedir(directory);
    return is_found;
}

static void read_program(int process, struct relay_owner *owner)
{
    AUTO_FD fd = openat(process, "comm", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, owner->program, sizeof owner->program - 1);

    owner->program[len > 0 ? len : 0] = '\0';
    owner->program[strcspn(owner->program, "\n")] = '\0';
}

/* The kernel shows the links of a process to its own user, and to no other without
 * CAP_SYS_PTRACE, which PID 1 does not have. */
static bool check_process(int proc, const char *name, const char *link, uint64_t end_ns,
                          struct relay_owner *owner)
{
    AUTO_FD process = openat(proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (process < 0 || fstat(process, &st) != 0)
        return false;
    gid_t group = (gid_t)setfsgid(st.st_gid);
    uid_t user = (uid_t)setfsuid(st.st_uid);
    bool is_found = has_link(process, link, end_ns);
    (void)setfsuid(user);
    (void)setfsgid(group);
    if (!is_found)
        return false;
    owner->pid = (uint32_t)strtoul(name, NULL, 10);
    owner->uid = st.st_uid;
    read_program(process, owner);
    return true;
}

static void find(int proc, uint64_t inode, struct relay_owner *owner)
{
    const uint64_t end_ns = used_ns() + MOST_NS;
    DIR *directory = open_directory(proc, ".");
    char link[64];

    snprintf(link, sizeof link, "socket:[%llu]", (unsigned long long)inode);
    for (struct dirent *entry;
         directory && !owner->pid && used_ns() < end_ns && (entry = readdir(directory));)
        if (entry->d_name[0] > '0' && entry->d_name[0] <= '9' &&
            strcmp(entry->d_name, "1") != 0)
            (void)check_process(proc, entry->d_name, link, end_ns, owner);
    if (directory)
        (void)closedir(directory);
}

bool owner_reply(int socket, int proc)
{
    struct relay_owner_request request;
    struct relay_owner owner = {0};
    struct iovec in = {&request, sizeof request}, out = {&owner, sizeof owner};
    size_t count;
    ssize_t got = rights_receive(socket, &in, 1, NULL, 0, &count, MSG_DONTWAIT);

    if (got == -EAGAIN)
        return true;
    if (got != sizeof request)
        return false;
    find(proc, request.inode, &owner);
    return rights_send(socket, &out, 1, NULL, 0, MSG_DONTWAIT) == 0;
}
