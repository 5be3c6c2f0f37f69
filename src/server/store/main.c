/* SPDX-License-Identifier: Apache-2.0 */

/* cay-store: the process of `cay serve` with the password of PostgreSQL.  A program of
 * its own, so that a server without --store postgresql:// needs no libpq. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/store/store.h"

enum { EXIT_USAGE = 2, PACKETS_AT_A_TIME = 16 };

void store_reply(int socket, struct store_message *message, const struct buf *strings)
{
    struct pollfd broker = {.fd = socket, .events = POLLOUT};
    int error;

    while ((error = store_send(socket, message, strings)) == -EAGAIN)
        (void)poll(&broker, 1, -1);
    if (error && error != -EMSGSIZE)
        _exit(0); /* the broker is gone */
}

static bool read_plan(struct plan *plan)
{
    ssize_t len = pread(STORE_PLAN, plan->text, STORE_PLAN_MAX, 0);
    const char *at = plan->text, *end = plan->text + (len > 0 ? len : 0);

    for (int i = 0; i < PLAN_STRINGS; i++) {
        if (at >= end || !memchr(at, '\0', (size_t)(end - at)))
            return false;
        plan->strings[i] = at;
        at += strlen(at) + 1;
    }
    (void)close(STORE_PLAN);
    return at == end;
}

static int read_password(struct plan *plan, struct cay_error *err)
{
    const char *path = plan->strings[PLAN_PASSWORD_FILE];

    if (!*path)
        return CAY_OK;
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t len = fd < 0 ? -1 : read(fd, plan->password, sizeof plan->password - 1);
    if (len < 0)
        return cay_fail_errno(err, errno, "store.password", path);
    plan->password[strcspn(plan->password, "\r\n")] = '\0';
    return CAY_OK;
}

/* Until the broker closes the socket. */
static void take_packets(struct database *database)
{
    static struct store_packet packet;

    for (int i = 0; i < PACKETS_AT_A_TIME && database_has_room(database); i++) {
        int got = store_receive(database->socket, &packet);
        if (got == -EAGAIN)
            return;
        if (got != 1)
            _exit(got == 0 ? 0 : 1);
        database_ask(database, &packet);
    }
}

static _Noreturn void run(struct database *database)
{
    for (;;) {
        struct pollfd fds[] = {
            {.fd = database->socket, .events = database_has_room(database) ? POLLIN : 0},
            {.fd = database_socket(database), .events = database_events(database)}};

        (void)poll(fds, 2, database_wait_ms(database));
        if (fds[0].revents)
            take_packets(database);
        database_run(database, fds[1].fd >= 0 && fds[1].revents);
    }
}

int main(void)
{
    static struct plan plan;
    static struct database database;
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct cay_error error;

    (void)sigaction(SIGPIPE, &ignore, NULL); /* allow: sigaction own program */
    (void)prctl(PR_SET_NAME, "cay-store");
    if (!read_plan(&plan)) {
        static const char text[] = "cay-store: cay serve starts this program\n";
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
        return EXIT_USAGE;
    }
    int code = read_password(&plan, &error);
    if (!code)
        code = store_confine(&error);
    if (code) {
        struct store_message down = {.kind = STORE_DOWN};
        AUTO_BUF why = {.max = sizeof error};
        (void)buf_format(&why, "%s: %s", error.subject, error.message);
        (void)buf_append(&why, "", 1);
        store_reply(STORE_SOCKET, &down, &why);
        return 1;
    }
    database_open(&database, &plan, STORE_SOCKET);
    run(&database);
}
