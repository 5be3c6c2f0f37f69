/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "cli/show.h"

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
