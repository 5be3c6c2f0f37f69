/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/broker.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "server/wire/options.h"

enum { SOCKET = 3 };

/* Its exit status, with so many descriptors besides those that it is given. */
static int keep_what_never_was(unsigned descriptors)
{
    static const struct serve_options options;
    int ends[2], status;

    ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit limit = {SOCKET + 1 + descriptors, SOCKET + 1 + descriptors};
        if (dup2(ends[1], SOCKET) != SOCKET ||
            syscall(SYS_close_range, SOCKET + 1, ~0u, 0) != 0 ||
            setrlimit(RLIMIT_NOFILE, &limit) != 0)
            _exit(99);
        keeper_run(SOCKET, &(struct keeper_spec){.id = "aaaaaaaaaaaaaaaa"}, &options);
    }
    (void)close(ends[1]);
    ASSERT(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    (void)close(ends[0]);
    return WEXITSTATUS(status);
}

TEST(a_sandbox_that_is_not_there_is_gone)
{
    ASSERT_INT(keep_what_never_was(100), KEEPER_SANDBOX_GONE);
}

TEST(a_sandbox_that_cannot_be_looked_at_is_not_gone)
{
    ASSERT_INT(keep_what_never_was(1), 1); /* its epoll instance */
}
