/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "openat2.h"

int main(void)
{
    struct openat2_request request;
    int fds[FDS_MOST];

    while (receive_fds(SERVER_FD, &request, sizeof request, fds, 2) == sizeof request) {
        struct openat2_answer answer = {0};
        umask(request.mask);
        int fd = (int)syscall(SYS_openat2, fds[0], request.path, &request.how,
                              sizeof request.how);
        if (fd < 0)
            answer.error = errno;
        send_fds(fds[1], &answer, sizeof answer, &fd, fd < 0 ? 0 : 1);
        for (int i = 0; i < 2; i++)
            close(fds[i]);
        if (fd >= 0)
            close(fd);
    }
    return 0;
}
