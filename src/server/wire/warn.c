/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/warn.h"

#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "json/json.h"

enum { LINE_MAX_LEN = 2048 };

/* A writable pipe takes a line of this length without blocking; one without a reader
 * (POLLERR) would raise SIGPIPE. */
static void write_line(const char *line, size_t len)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

    if (poll(&out, 1, 0) == 1 && out.revents == POLLOUT)
        (void)!write(STDERR_FILENO, line, len);
}

static bool writes_json;

void warn_set_json(bool is_json)
{
    writes_json = is_json;
}

void warn_put_time(int64_t since_1970_ms, char ret_text[WARN_TIME])
{
    time_t seconds = (time_t)(since_1970_ms / 1000);
    struct tm tm = {0};

    (void)gmtime_r(&seconds, &tm);
    snprintf(ret_text, WARN_TIME, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
             (tm.tm_year + 1900) % 10000, (tm.tm_mon + 1) % 100, tm.tm_mday % 100,
             tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100,
             (int)(since_1970_ms % 1000) % 1000);
}

static void write_json(const char *message)
{
    AUTO_BUF text = {.max = 4 * LINE_MAX_LEN};
    char time_text[WARN_TIME];
    struct json json;

    warn_put_time(clock_since_1970_ms(), time_text);
    json_to_buf(&json, &text);
    json_put_object(&json);
    json_set_text(&json, "time", time_text);
    json_set_text(&json, "level", "warn");
    json_set_text(&json, "message", message);
    json_put_end(&json);
    if (json_finish(&json) && buf_text(&text, "\n"))
        write_line(text.data, text.len);
}

/* `line` begins with "cay: " and has room for a newline. */
static void write_message(char *line, size_t end)
{
    line[end] = '\0';
    if (writes_json) {
        write_json(line + 5);
        return;
    }
    line[end] = '\n';
    write_line(line, end + 1);
}

void warn_line(struct warn *warn, const char *format, ...)
{
    char line[LINE_MAX_LEN] = "cay: ";
    uint64_t now_ms = clock_ms();
    va_list arguments;

    if (!warn->since_ms || now_ms - warn->since_ms >= WARN_MS) {
        char note[80];
        if (warn->left_out)
            write_message(note, (size_t)snprintf(
                                    note, sizeof note,
                                    "cay: %u more lines like the next one were dropped",
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
    write_message(line, end);
}
