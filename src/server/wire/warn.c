/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/warn.h"

#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

enum { LINE_MAX_LEN = 2048 };

/* A writable pipe takes a line of this length without blocking; one without a reader
 * (POLLERR) would raise SIGPIPE. */
static void write_line(const char *line, size_t len)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

    if (poll(&out, 1, 0) == 1 && out.revents == POLLOUT)
        (void)!write(STDERR_FILENO, line, len);
}

void warn_line(struct warn *warn, const char *format, ...)
{
    char line[LINE_MAX_LEN] = "cay: ";
    uint64_t now_ms = clock_ms();
    va_list arguments;

    if (!warn->since_ms || now_ms - warn->since_ms >= WARN_MS) {
        char note[80];
        if (warn->left_out)
            write_line(note, (size_t)snprintf(
                                 note, sizeof note,
                                 "cay: %u more lines like the next one were dropped\n",
                                 warn->left_out));
        *warn = (struct warn){.since_ms = now_ms};
    }
    if (warn->count >= WARN_LINES) {
        warn->left_out++;
        return;
    }
    warn->count++;
    va_start(arguments, format);
    int len = vsnprintf(line + 5, sizeof line - 6, format, arguments);
    va_end(arguments);
    if (len < 0)
        return;
    size_t end = 5 + (size_t)len;
    if (end > sizeof line - 2)
        end = sizeof line - 2;
    for (size_t i = 0; i < end; i++) /* a URL may contain escape sequences */
        if (line[i] < 0x20 || line[i] > 0x7e)
            line[i] = '?';
    line[end] = '\n';
    write_line(line, end + 1);
}
