/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "openat2.h"

/* What stands in for things valgrind cannot do: openat2(2), see openat2.h, and following
 * the code that PCRE2 makes of an expression, which is therefore not made. */
__attribute__((visibility("default"))) int pcre2_jit_compile_8(void *code,
                                                               uint32_t options);
int pcre2_jit_compile_8(void *code, uint32_t options)
{
    (void)code;
    (void)options;
    return -1;
}

static int server = -1;

/* Valgrind preloads a library of its own into what it runs, and only there. */
static bool is_under_valgrind(void)
{
    const char *preloaded = getenv("LD_PRELOAD");

    return preloaded && strstr(preloaded, "vgpreload");
}

/* The server is a grandchild: no test must find a child it did not start.  It ends when
 * the last of us closes the socket. */
__attribute__((constructor)) static void start_server(void)
{
    const char *program = getenv("CAY_OPENAT2_SERVER");
    int pair[2];

    if (!is_under_valgrind() || !program ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() != 0)
            _exit(0);
        unsetenv("LD_PRELOAD");
        if (dup2(pair[1], SERVER_FD) == SERVER_FD && fcntl(SERVER_FD, F_SETFD, 0) == 0)
            execl(program, program, (char *)NULL);
        _exit(127);
    }
    close(pair[1]);
    waitpid(pid, NULL, 0);
    server = pair[0];
}

/* Each call has a socket of its own for the answer, so that threads and forked children
 * cannot take each other's. */
static long ask_server(int dir, const char *path, const struct open_how *how)
{
    struct openat2_request request = {.how = *how};
    struct openat2_answer answer = {.error = EIO};
    int pair[2], fd;

    if (strlen(path) >= sizeof request.path)
        return errno = ENAMETOOLONG, -1;
    memcpy(request.path, path, strlen(path) + 1);
    request.mask = umask(0);
    umask(request.mask);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    int from = dir == AT_FDCWD ? open(".", O_PATH | O_CLOEXEC) : dir;
    int fds[] = {from, pair[1]};
    if (send_fds(server, &request, sizeof request, fds, 2) < 0)
        answer.error = errno;
    close(pair[1]);
    receive_fds(pair[0], &answer, sizeof answer, &fd, 1);
    close(pair[0]);
    if (from != dir)
        close(from);
    if (answer.error)
        return errno = answer.error, -1;
    return fd;
}

__attribute__((visibility("default"))) long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long argument[6];
    va_list args;

    va_start(args, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_openat2 && server >= 0)
        return ask_server((int)argument[0], (const char *)argument[1],
                          (const struct open_how *)argument[2]);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                argument[5]);
}
