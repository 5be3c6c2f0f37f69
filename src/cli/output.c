/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/output.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/utf8.h"
#include "json/json.h"

/* --- Text for people --- */

static bool is_printable(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7F && code < 0xA0))
        return code == '\t';
    return code != 0x061C && !(code >= 0x200E && code <= 0x200F) &&
           !(code >= 0x2028 && code <= 0x202E) && !(code >= 0x2066 && code <= 0x2069);
}

void show_text(FILE *file, const char *text, size_t len, size_t limit)
{
    for (size_t i = 0; i < len; limit--) {
        uint32_t code;
        size_t size = utf8_next(text + i, len - i, &code);

        if (limit == 0) {
            fputs("...", file);
            return;
        }
        if (code == UTF8_INVALID) {
            fprintf(file, "\\x%02x", (unsigned char)text[i]);
            size = 1;
        } else if (is_printable(code))
            fwrite(text + i, 1, size, file);
        else if (code == '\n' || code == '\r')
            fputs(code == '\n' ? "\\n" : "\\r", file);
        else
            fprintf(file, code < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)code);
        i += size;
    }
}

void show_name(FILE *file, const char *name)
{
    show_text(file, name, strlen(name), SIZE_MAX);
}

size_t drop_spares(struct cay_sandbox_info *infos, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (infos[i].state != CAY_STATE_SPARE)
            infos[kept++] = infos[i];
    return kept;
}

const char *show_state(enum cay_state state)
{
    static const char *const words[] = {
        "none",
        [CAY_STATE_RUNNING] = "running",
        [CAY_STATE_PAUSED] = "paused",
        [CAY_STATE_STOPPED] = "stopped",
        [CAY_STATE_DAMAGED] = "damaged",
        [CAY_STATE_SPARE] = "spare",
    };

    return (unsigned)state < sizeof words / sizeof *words ? words[state] : "unknown";
}

const char *show_cause(enum cay_cause cause)
{
    static const char *const words[] = {
        [CAY_CAUSE_EXITED] = "exited",
        [CAY_CAUSE_SIGNALLED] = "signalled",
        [CAY_CAUSE_TIMEOUT] = "timeout",
        [CAY_CAUSE_MEMORY] = "memory",
        [CAY_CAUSE_OUTPUT_LIMIT] = "output-limit",
        [CAY_CAUSE_GONE] = "sandbox-gone",
        [CAY_CAUSE_NOT_STARTED] = "not-started",
    };

    return (size_t)cause < sizeof words / sizeof *words && words[cause] ? words[cause]
                                                                        : "unknown";
}

/* --- Standard output and errors --- */

int output_write(int fd, const void *data, size_t len)
{
    const char *next = data;

    while (len > 0) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        ssize_t written = write(fd, next, len);
        /* Another process may have set O_NONBLOCK on it. */
        if (written < 0 && errno == EAGAIN)
            (void)poll(&ready, 1, -1);
        else if (written < 0 && errno != EINTR)
            return errno;
        if (written > 0) {
            next += written;
            len -= (size_t)written;
        }
    }
    return 0;
}

/* stdio loses the errno of a failed write; this remembers it. */
static ssize_t write_out(void *cookie, const char *data, size_t len)
{
    struct output *output = cookie;

    if (!output->sys_errno)
        output->sys_errno = output_write(STDOUT_FILENO, data, len);
    return output->sys_errno ? 0 : (ssize_t)len;
}

int output_open(struct output *output, struct cay_error *err)
{
    *output = (struct output){.is_terminal = isatty(STDOUT_FILENO)};
    output->file = fopencookie(output, "w", (cookie_io_functions_t){.write = write_out});
    if (!output->file)
        return cay_fail_memory(err, "cli.output");
    setvbuf(output->file, NULL, output->is_terminal ? _IOLBF : _IOFBF, 65536);
    return CAY_OK;
}

void output_name(struct output *output, const char *name)
{
    if (output->is_terminal)
        show_name(output->file, name);
    else
        fputs(name, output->file);
}

struct json *output_json(struct output *output)
{
    json_to_file(&output->json, output->file);
    json_put_object(&output->json);
    return &output->json;
}

struct json *output_list(struct output *output, const char *key)
{
    struct json *json = output_json(output);

    json_put_key(json, key);
    json_put_array(json);
    return json;
}

int output_finish(struct output *output, struct cay_error *err)
{
    if (output->json.depth > 0) {
        while (output->json.depth > 0)
            json_put_end(&output->json);
        fputc('\n', output->file);
    }
    fflush(output->file);
    if (output->sys_errno)
        return cay_fail_errno(err, output->sys_errno, "cli.output", "standard output");
    return CAY_OK;
}

void output_close(struct output *output)
{
    if (output->file)
        fclose(output->file);
    output->file = NULL;
}

static void error_as_json(const struct cay_error *err)
{
    struct json json;

    json_to_file(&json, stderr);
    json_put_object(&json);
    json_put_key(&json, "error");
    json_put_object(&json);
    json_set_int(&json, "code", err->code);
    json_set_text(&json, "slug", cay_code_slug(err->code));
    json_set_int(&json, "errno", err->sys_errno);
    json_set_text(&json, "op", err->op);
    json_set_text(&json, "subject", err->subject);
    json_set_text(&json, "message", err->message);
    json_set_text(&json, "hint", err->hint);
    json_put_end(&json);
    json_put_end(&json);
    fputc('\n', stderr);
}

static void error_as_line(const struct cay_error *err)
{
    fprintf(stderr, "cay: %s: ", cay_code_slug(err->code));
    if (err->subject[0]) {
        show_name(stderr, err->subject);
        fputs(": ", stderr);
    }
    show_name(stderr, err->message);
    fputs(" (", stderr);
    show_name(stderr, err->hint);
    fputs(")\n", stderr);
}

int output_error(const struct cay_error *err, bool as_json)
{
    if (as_json)
        error_as_json(err);
    else
        error_as_line(err);
    return cay_code_exit(err->code);
}

/* --- Tables --- */

#define COLUMNS_MAX 16
#define CELL_MAX    1024

int table_open(struct table *table, const char *headings, struct cay_error *err)
{
    *table = (struct table){.columns = 1};
    table->file = open_memstream(&table->text, &table->len);
    if (!table->file)
        return cay_fail_memory(err, "cli.table");
    for (; *headings; headings++) {
        fputc(*headings == '|' ? '\0' : *headings, table->file);
        table->columns += *headings == '|';
    }
    fputc('\0', table->file);
    return CAY_OK;
}

void table_cell(struct table *table, const char *format, ...)
{
    char cell[CELL_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(cell, sizeof cell, format, arguments);
    va_end(arguments);
    show_name(table->file, *cell ? cell : "-");
    fputc('\0', table->file);
}

/* Characters, not bytes. */
static size_t width(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += !utf8_is_tail(*text);
    return count;
}

static size_t screen_width(const struct output *output)
{
    struct winsize size;

    if (!output->is_terminal || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
        size.ws_col == 0)
        return SIZE_MAX;
    return size.ws_col;
}

static void print(const struct table *table, const size_t *widths, size_t screen,
                  FILE *file)
{
    unsigned column = 0;
    size_t used = 0;

    for (const char *cell = table->text; cell < table->text + table->len;
         cell += strlen(cell) + 1) {
        if (++column < table->columns) {
            fprintf(file, "%s%*s", cell, (int)(widths[column - 1] - width(cell) + 2), "");
            used += widths[column - 1] + 2;
            continue;
        }
        size_t room = screen > used ? screen - used : 1, shown = 0;
        for (const char *c = cell; *c; c++) {
            shown += !utf8_is_tail(*c);
            if (shown > room)
                break;
            fputc(*c, file);
        }
        fputc('\n', file);
        column = 0;
        used = 0;
    }
}

int table_print(struct table *table, struct output *output, struct cay_error *err)
{
    size_t widths[COLUMNS_MAX] = {0};
    unsigned column = 0;
    bool failed = ferror(table->file) || table->columns > COLUMNS_MAX;

    failed = fclose(table->file) != 0 || failed;
    AUTO_FREE char *text = table->text;
    if (failed || !text)
        return cay_fail_memory(err, "cli.table");
    for (const char *cell = text; cell < text + table->len; cell += strlen(cell) + 1) {
        size_t wide = width(cell);
        if (wide > widths[column])
            widths[column] = wide;
        column = (column + 1) % table->columns;
    }
    print(table, widths, screen_width(output), output->file);
    return output_finish(output, err);
}

/* --- Quantities --- */

const char *quantity_bytes(uint64_t bytes, char room[QUANTITY_ROOM])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;

    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    bool is_whole = value >= 100 || value == (double)(uint64_t)value;
    snprintf(room, QUANTITY_ROOM, is_whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return room;
}

const char *quantity_time(uint64_t ms, char room[QUANTITY_ROOM])
{
    static const struct {
        uint64_t ms;
        const char *name;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "min"}, {1000, "s"}, {1, "ms"}};
    size_t unit = 0;

    /* "90 min" is more exact than "1 h". */
    while (unit < 4 && ms < 2 * units[unit].ms)
        unit++;
    uint64_t count = (ms + units[unit].ms / 2) / units[unit].ms;
    snprintf(room, QUANTITY_ROOM, "%llu %s", (unsigned long long)count, units[unit].name);
    return room;
}

const char *quantity_age(int64_t since_ms, char room[QUANTITY_ROOM])
{
    int64_t ms = clock_since_1970_ms() - since_ms;

    return quantity_time(ms > 0 ? (uint64_t)ms : 0, room);
}
