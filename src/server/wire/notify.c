/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/notify.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"

static struct sockaddr_un manager;
static socklen_t manager_len; /* 0: there is none */
static uint64_t interval_ms, sent_ms;

/* "/run/systemd/notify", or "@name" of the abstract namespace. */
static void set_address(const char *path)
{
    size_t len = strlen(path);

    if ((*path != '/' && *path != '@') || len < 2 || len >= sizeof manager.sun_path)
        return;
    manager.sun_family = AF_UNIX;
    memcpy(manager.sun_path, path, len + 1);
    if (*path == '@')
        manager.sun_path[0] = '\0';
    manager_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

void notify_open(void)
{
    const char *path = getenv("NOTIFY_SOCKET"), *interval = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");

    if (path)
        set_address(path);
    if (interval && (!pid || strtol(pid, NULL, 10) == (long)getpid()))
        interval_ms = strtoull(interval, NULL, 10) / 1000;
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
}

void notify_send(const char *lines)
{
    if (!manager_len)
        return;
    AUTO_FD fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)sendto(fd, lines, strlen(lines), MSG_NOSIGNAL | MSG_DONTWAIT,
                     (const struct sockaddr *)&manager, manager_len);
}

void notify_watchdog(void)
{
    uint64_t now_ms = clock_ms();

    if (!interval_ms || now_ms - sent_ms < interval_ms / 4)
        return;
    sent_ms = now_ms;
    notify_send("WATCHDOG=1");
}
