/* SPDX-License-Identifier: Apache-2.0 */
/* The process that requests approval of connections, until their sandbox ends. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/approve.h"
#include "cli/cmd-sandbox.h"
#include "cli/signals.h"

static const char op[] = "cli.egress";

enum { LOOK_MS = 250 };

/* A pidfd of PID 1. */
static int open_life(cay_sandbox *sandbox, struct cay_error *err)
{
    struct cay_sandbox_info info;

    TRY(cay_sandbox_inspect(sandbox, &info, err));
    if (!info.init_pid)
        return cay_fail(err, CAY_E_BUSY, 0, op, info.id, "the sandbox is stopped",
                        "start it first");
    int life = (int)syscall(SYS_pidfd_open, info.init_pid, 0);
    return life < 0 ? cay_fail_errno(err, errno, op, info.id) : life;
}

/* An error is of one moment: a paused sandbox, a full queue.  The connections wait. */
static void pass(cay_sandbox *sandbox)
{
    size_t waiting;

    (void)!cay_sandbox_pass_egress(sandbox, &waiting, NULL);
}

int egress_serve(cay_sandbox *sandbox, struct cay_error *err)
{
    const struct timespec step = {.tv_nsec = LOOK_MS * 1000000L};
    size_t waiting;
    AUTO_FD life = open_life(sandbox, err);

    if (life < 0)
        return life;
    TRY(cay_sandbox_pass_egress(sandbox, &waiting, err));
    for (int signal = 0; !signal; signal = signals_take()) {
        struct pollfd end = {.fd = life, .events = POLLIN};
        if (ppoll(&end, 1, &step, signals_mask()) > 0)
            return CAY_OK;
        pass(sandbox);
    }
    return CAY_OK;
}

static char **arguments;

void egress_keep_arguments(char **argv)
{
    arguments = argv;
}

/* All users of the machine can read them as long as the process lives, and "-e" may have
 * given a secret to the sandbox. */
static void hide_arguments(void)
{
    for (size_t i = 0; arguments && arguments[i]; i++)
        explicit_bzero(arguments[i], strlen(arguments[i]));
}

/* Without the leash of an ephemeral sandbox, and with a handle of its own, since one does
 * not survive fork(2). */
static _Noreturn void serve_alone(const char *id, int life)
{
    cay_sandbox *sandbox = NULL;
    sigset_t none;

    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setsid();
    if (life > 0)
        (void)syscall(SYS_close_range, 0, life - 1, 0);
    (void)syscall(SYS_close_range, life + 1, ~0u, 0);
    while (open("/dev/null", O_RDWR | O_CLOEXEC) < STDERR_FILENO)
        continue;
    (void)!chdir("/");
    hide_arguments();
    (void)prctl(PR_SET_NAME, "cay-approve");
    struct pollfd end = {.fd = life, .events = POLLIN};
    if (cay_sandbox_open(id, &sandbox, NULL) == CAY_OK)
        while (poll(&end, 1, LOOK_MS) <= 0)
            pass(sandbox);
    _exit(0);
}

int egress_watch(cay_sandbox *sandbox, struct cay_error *err)
{
    AUTO_FD life = open_life(sandbox, err);

    if (life < 0)
        return life;
    pid_t pid = fork(); /* allow: fork one thread; the child only passes requests on */
    if (pid == 0)
        serve_alone(cay_sandbox_id(sandbox), life);
    return pid < 0 ? cay_fail_errno(err, errno, op, "fork") : CAY_OK;
}
