/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/keepers.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/wire/warn.h"

enum { KEPT_FD = 3 };

/* Zeroes memory that is neither on the stack nor on the heap.  Whole pages are returned
 * to the kernel: writing to them would copy pages that a fork shares. */
static void zero_pages(void *memory, size_t len)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)memory;
    uintptr_t first = (from + page - 1) & ~(page - 1), last = (from + len) & ~(page - 1);

    if (first >= last ||
        madvise((char *)memory + (first - from), last - first, MADV_DONTNEED) != 0) {
        explicit_bzero(memory, len);
        return;
    }
    explicit_bzero(memory, first - from);
    explicit_bzero((char *)memory + (last - from), from + len - last);
}

/* A keeper may reach sandboxes, but keeps nothing else of the broker: no row, no secret,
 * no socket of another keeper. */
static _Noreturn void become_keeper(struct broker *broker, int socket,
                                    const struct keeper_spec *spec)
{
    struct serve_options options = *broker->options;
    sigset_t blocked;

    explicit_bzero(&broker->secrets, sizeof broker->secrets);
    zero_pages(&broker->request, sizeof broker->request);
    if ((socket != KEPT_FD && dup3(socket, KEPT_FD, O_CLOEXEC) != KEPT_FD) ||
        close_range(KEPT_FD + 1, ~0u, 0) != 0)
        _exit(1);
    /* The broker ends its keepers after the drain; PID 1 of a sandbox resets the mask. */
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    (void)prctl(PR_SET_NAME, "cay-keeper");
    keeper_run(KEPT_FD, spec, &options);
}

struct keeper_handle *keepers_start(struct broker *broker, const char *id)
{
    AUTO_FREE struct keeper_handle *keeper = calloc(1, sizeof *keeper);
    AUTO_RECORD row = RECORD_INIT;
    struct keeper_spec spec = {0};
    int ends[2];

    if (*id)
        (void)broker_find_record(broker, id, &row, NULL);
    cay_copy_text(spec.id, sizeof spec.id, id);
    cay_copy_text(spec.template_name, sizeof spec.template_name, row.template_name);
    cay_copy_text(spec.tenant, sizeof spec.tenant, row.tenant);

    if (!keeper ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return NULL;
    pid_t pid = fork(); /* allow: fork one process for each sandbox; no threads here */
    if (pid == 0)
        become_keeper(broker, ends[1], &spec);
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

struct keeper_handle *keepers_find(struct broker *broker, const char *id)
{
    for (struct keeper_handle *keeper = broker->keepers; keeper; keeper = keeper->next)
        if (strcmp(keeper->id, id) == 0)
            return keeper;
    return keepers_start(broker, id);
}

void keepers_drop(struct broker *broker, struct keeper_handle *keeper)
{
    struct keeper_handle **link = &broker->keepers;

    while (*link && *link != keeper)
        link = &(*link)->next;
    if (!*link)
        return;
    *link = keeper->next;
    (void)close(keeper->socket);
    free(keeper);
}

bool keepers_is_behind(const struct broker *broker, pid_t pid)
{
    const struct keeper_handle *keeper = broker->keepers;
    int unread = 0;

    while (keeper && keeper->pid != pid)
        keeper = keeper->next;
    return keeper && ioctl(keeper->socket, SIOCOUTQ, &unread) == 0 && unread > 0;
}

/* Logs exits other than at the end of the sandbox or on request. */
static void report_end(const struct keeper_handle *keeper, bool is_signal, int status)
{
    static struct warn warn;

    if (!is_signal &&
        (status == 0 || status == KEEPER_SANDBOX_GONE || status == KEEPER_OUT_OF_MEMORY))
        return;
    warn_line(&warn, "the keeper of %s%s (process %d) exited with %s %d%s%s",
              *keeper->id ? "sandbox " : "no sandbox yet", keeper->id, (int)keeper->pid,
              is_signal ? "signal" : "status", status, is_signal ? ", " : "",
              is_signal ? strsignal(status) : "");
}

static void note_end(struct broker *broker, struct keeper_handle *keeper, bool is_signal,
                     int status)
{
    report_end(keeper, is_signal, status);
    if (is_signal)
        status = 0;
    if (*keeper->id && (status == KEEPER_SANDBOX_GONE || status == KEEPER_OUT_OF_MEMORY))
        broker_sandbox_ended(broker, keeper->id, status == KEEPER_OUT_OF_MEMORY);
    keepers_drop(broker, keeper);
}

void keepers_lost(struct broker *broker, struct keeper_handle *keeper)
{
    siginfo_t end = {0};

    (void)kill(keeper->pid, SIGKILL); /* it might never exit */
    (void)waitid(P_PID, (id_t)keeper->pid, &end, WEXITED | WNOWAIT);
    note_end(broker, keeper, end.si_code != CLD_EXITED, end.si_status);
}

bool keepers_reaped(struct broker *broker, pid_t pid, int status)
{
    struct keeper_handle *keeper = broker->keepers;

    while (keeper && keeper->pid != pid)
        keeper = keeper->next;
    bool was_pooled = keeper && keeper->is_pooled;
    if (keeper)
        note_end(broker, keeper, WIFSIGNALED(status),
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return was_pooled;
}
