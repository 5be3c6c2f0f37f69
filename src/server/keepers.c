/* SPDX-License-Identifier: Apache-2.0 */
#include "server/keepers.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker.h"

enum { KEPT_FD = 3 };

/* A keeper has the rights to reach sandboxes, and nothing else of the broker's: no
 * record, no secret, no other keeper's socket. */
static _Noreturn void become_keeper(struct broker *broker, int socket, const char *id)
{
    struct serve_options options = *broker->options;
    char name[SANDBOX_ID_MAX];
    sigset_t none;

    cay_copy_text(name, sizeof name, id);
    explicit_bzero(&broker->secrets, sizeof broker->secrets);
    explicit_bzero(&broker->asked, sizeof broker->asked);
    if ((socket != KEPT_FD && dup3(socket, KEPT_FD, O_CLOEXEC) != KEPT_FD) ||
        close_range(KEPT_FD + 1, ~0u, 0) != 0)
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)prctl(PR_SET_NAME, "cay-keeper");
    keeper_run(KEPT_FD, name, &options);
}

struct keeper *keeper_start(struct broker *broker, const char *id)
{
    AUTO_FREE struct keeper *keeper = calloc(1, sizeof *keeper);
    int ends[2];

    if (!keeper ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return NULL;
    pid_t pid = fork(); /* allow: fork one process for each sandbox; no threads here */
    if (pid == 0)
        become_keeper(broker, ends[1], id);
    (void)close(ends[1]);
    if (pid < 0) {
        (void)close(ends[0]);
        return NULL;
    }
    keeper->pid = pid;
    keeper->socket = ends[0];
    cay_copy_text(keeper->id, sizeof keeper->id, id);
    keeper->next = broker->keepers;
    broker->keepers = keeper;
    return TAKE_PTR(keeper);
}

struct keeper *keeper_of(struct broker *broker, const char *id)
{
    for (struct keeper *keeper = broker->keepers; keeper; keeper = keeper->next)
        if (strcmp(keeper->id, id) == 0)
            return keeper;
    return keeper_start(broker, id);
}

void keeper_drop(struct broker *broker, struct keeper *keeper)
{
    struct keeper **link = &broker->keepers;

    while (*link && *link != keeper)
        link = &(*link)->next;
    if (!*link)
        return;
    *link = keeper->next;
    (void)close(keeper->socket);
    free(keeper);
}

bool keeper_is_behind(const struct broker *broker, pid_t pid)
{
    const struct keeper *keeper = broker->keepers;
    int unread = 0;

    while (keeper && keeper->pid != pid)
        keeper = keeper->next;
    return keeper && ioctl(keeper->socket, SIOCOUTQ, &unread) == 0 && unread > 0;
}

static void note_end(struct broker *broker, struct keeper *keeper, int status)
{
    if (*keeper->id && (status == KEEPER_SANDBOX_GONE || status == KEEPER_OUT_OF_MEMORY))
        broker_gone(broker, keeper->id, status == KEEPER_OUT_OF_MEMORY);
    keeper_drop(broker, keeper);
}

void keeper_lost(struct broker *broker, struct keeper *keeper)
{
    siginfo_t end = {0};

    (void)kill(keeper->pid, SIGKILL); /* or it might be waited for for ever */
    (void)waitid(P_PID, (id_t)keeper->pid, &end, WEXITED | WNOWAIT);
    note_end(broker, keeper, end.si_code == CLD_EXITED ? end.si_status : 0);
}

bool keeper_reaped(struct broker *broker, pid_t pid, int status)
{
    struct keeper *keeper = broker->keepers;

    while (keeper && keeper->pid != pid)
        keeper = keeper->next;
    bool was_spare = keeper && keeper->is_spare;
    if (keeper)
        note_end(broker, keeper, status);
    return was_spare;
}
