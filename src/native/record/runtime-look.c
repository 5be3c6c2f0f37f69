/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/runtime.h"

uint64_t runtime_pid_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

int runtime_start_time(pid_t pid, uint64_t *ret_start)
{
    char path[64], text[1024];

    *ret_start = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (len <= 0)
        return len < 0 && cay_errno_is_shortage(errno) ? -errno : 0;
    text[len] = '\0';
    /* The name may contain anything; what follows its last ")" is fields 3 onwards. */
    const char *at = strrchr(text, ')');
    if (!at || strncmp(at, ") Z", 3) == 0 || strncmp(at, ") X", 3) == 0)
        return 0;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    *ret_start = at ? strtoull(at + 1, NULL, 10) : 0;
    return 0;
}

/* PID 1 listens there, and once that is gone no process does. */
int runtime_is_heard(const char *id)
{
    struct sockaddr_un address;
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    if (runtime_address(id, &address, NULL) != CAY_OK)
        return 0;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ||
        errno == EAGAIN)
        return 1;
    return cay_errno_is_shortage(errno) ? -errno : 0;
}

/* In another PID namespace than its maker's the number says nothing. */
int runtime_look(const struct record *record)
{
    uint64_t start;

    if (record->init <= 0 || !record->init_start)
        return 0;
    int error = runtime_start_time(record->init, &start);
    if (error || start == record->init_start)
        return error ? error : 1;
    return record->pid_namespace == runtime_pid_namespace()
               ? 0
               : runtime_is_heard(record->id);
}
