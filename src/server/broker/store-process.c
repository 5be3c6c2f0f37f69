/* SPDX-License-Identifier: Apache-2.0 */

/* Starts cay-store, which is beside this program. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/index.h"
#include "sys/io.h"

static const char op[] = "serve.store";

static bool find_program(char path[PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", path, PATH_MAX - 1);

    if (len <= 0)
        return false;
    path[len] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) + sizeof "/cay-store" >= PATH_MAX)
        return false;
    memcpy(slash, "/cay-store", sizeof "/cay-store");
    return access(path, X_OK) == 0;
}

int store_plan(const struct serve_options *options, const char *node,
               const char *instance, int *ret_plan, struct cay_error *err)
{
    const char *const strings[PLAN_STRINGS] = {
        [PLAN_URL] = options->store_url,
        [PLAN_PASSWORD_FILE] =
            options->store_password_file ? options->store_password_file : "",
        [PLAN_NODE] = node,
        [PLAN_INSTANCE] = instance};
    char path[PATH_MAX];

    if (!find_program(path))
        return cay_fail(
            err, CAY_E_UNSUPPORTED, 0, op, "--store",
            "cay-store is missing: this installation of Cay has no PostgreSQL",
            "install the Debian package cay-store, or build Cay with libpq "
            "(Debian: libpq-dev), or give a path");
    AUTO_BUF text = {.max = STORE_PLAN_MAX};
    for (int i = 0; i < PLAN_STRINGS; i++)
        (void)buf_append(&text, strings[i], strlen(strings[i]) + 1);
    int plan = text.failed ? -ENAMETOOLONG
                           : io_memfd("cay-store", MFD_CLOEXEC, text.data, text.len);
    if (text.data)
        explicit_bzero(text.data, text.len);
    if (plan < 0)
        return cay_fail_errno(err, -plan, op, "--store");
    *ret_plan = plan;
    return CAY_OK;
}

static _Noreturn void become_store(int plan, int socket)
{
    enum { ABOVE = 10 };
    char path[PATH_MAX];
    char name[] = "cay-store";
    char *const argv[] = {name, NULL};
    sigset_t none;
    int high_plan = fcntl(plan, F_DUPFD_CLOEXEC, ABOVE);
    int high_socket = fcntl(socket, F_DUPFD_CLOEXEC, ABOVE);

    if (!find_program(path) || high_plan < 0 || high_socket < 0 ||
        dup3(high_socket, STORE_SOCKET, O_CLOEXEC) != STORE_SOCKET ||
        dup3(high_plan, STORE_PLAN, O_CLOEXEC) != STORE_PLAN ||
        fcntl(STORE_SOCKET, F_SETFD, 0) != 0 || fcntl(STORE_PLAN, F_SETFD, 0) != 0 ||
        syscall(SYS_close_range, STORE_PLAN + 1, ~0u, 0) != 0)
        _exit(1);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execv(path, argv);
    _exit(1);
}

pid_t store_start(int plan, int *ret_socket)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -1;
    pid_t pid = fork(); /* allow: fork cay-store; there are no threads */
    if (pid == 0)
        become_store(plan, ends[1]);
    (void)close(ends[1]);
    if (pid < 0)
        (void)close(ends[0]);
    else
        *ret_socket = ends[0];
    return pid;
}
