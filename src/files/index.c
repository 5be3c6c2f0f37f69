/* SPDX-License-Identifier: Apache-2.0 */
#include "files/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "sys/io.h"

enum { BLOCK = 64 << 10, BLOCKS_A_READ = 4, TAIL = 4, QUIET_MS = 100 };

/* Two changes within the granularity of the clock leave the same times, so an index built
 * right after a change must not be found again by them. */
static bool is_quiet(const struct stat *st)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age_ms = (int64_t)(now.tv_sec - st->st_ctim.tv_sec) * 1000 +
                     (now.tv_nsec - st->st_ctim.tv_nsec) / 1000000;
    return age_ms > QUIET_MS;
}

static bool add_mark(struct text_index **index, size_t *room,
                     const struct utf8_scan *scan)
{
    if ((*index)->count == *room) {
        size_t more = *room * 2;
        struct text_index *grown =
            realloc(*index, sizeof **index + more * sizeof *grown->marks);
        if (!grown)
            return false;
        *index = grown;
        *room = more;
    }
    (*index)->marks[(*index)->count++] =
        (struct text_mark){scan->chars, scan->lf, scan->crlf};
    return true;
}

static int scan_all(int fd, uint64_t max_bytes, struct text_index **index, size_t room,
                    char *buffer)
{
    struct utf8_scan scan = {0};
    uint64_t offset = 0;

    for (;;) {
        ssize_t got = io_pread(fd, buffer, BLOCKS_A_READ * BLOCK, offset);
        if (got < 0)
            return (int)got;
        for (size_t at = 0; at < (size_t)got; at += BLOCK) {
            size_t len = (size_t)got - at < BLOCK ? (size_t)got - at : BLOCK;
            if (!add_mark(index, &room, &scan))
                return -ENOMEM;
            if (!utf8_scan(&scan, buffer + at, len))
                return -EILSEQ;
        }
        offset += (uint64_t)got;
        if (offset > max_bytes)
            return -EFBIG;
        if (got < BLOCKS_A_READ * BLOCK)
            break;
    }
    if (!utf8_scan_complete(&scan))
        return -EILSEQ;
    (*index)->bytes = offset;
    (*index)->total = (struct text_mark){scan.chars, scan.lf, scan.crlf};
    (*index)->ends_open = offset > 0 && scan.last != '\n';
    return 0;
}

int text_index_build(int fd, const struct stat *st, uint64_t max_bytes,
                     struct text_index **ret_index)
{
    size_t room = (size_t)st->st_size / BLOCK + 2;
    struct text_index *index = malloc(sizeof *index + room * sizeof *index->marks);
    AUTO_FREE char *buffer = malloc(BLOCKS_A_READ * BLOCK);

    if (!index || !buffer) {
        free(index);
        return -ENOMEM;
    }
    *index = (struct text_index){.st = *st, .settled = is_quiet(st)};
    atomic_init(&index->references, 1);
    int error = scan_all(fd, max_bytes, &index, room, buffer);
    if (error) {
        free(index);
        return error;
    }
    *ret_index = index;
    return 0;
}

struct text_index *text_index_ref(struct text_index *index)
{
    atomic_fetch_add(&index->references, 1);
    return index;
}

void text_index_unref(struct text_index *index)
{
    if (index && atomic_fetch_sub(&index->references, 1) == 1)
        free(index);
}

bool text_index_fits(const struct text_index *index, const struct stat *st)
{
    const struct stat *was = &index->st;

    return index->settled && was->st_dev == st->st_dev && was->st_ino == st->st_ino &&
           was->st_size == st->st_size && was->st_mtim.tv_sec == st->st_mtim.tv_sec &&
           was->st_mtim.tv_nsec == st->st_mtim.tv_nsec &&
           was->st_ctim.tv_sec == st->st_ctim.tv_sec &&
           was->st_ctim.tv_nsec == st->st_ctim.tv_nsec;
}

static uint64_t units_before(const struct text_mark *mark, enum text_unit unit)
{
    return unit == TEXT_CHARS             ? mark->chars
           : unit == TEXT_UNIVERSAL_CHARS ? mark->chars - mark->crlf
                                          : mark->lf;
}

uint64_t text_index_total(const struct text_index *index, enum text_unit unit)
{
    return units_before(&index->total, unit) + (unit == TEXT_LINES && index->ends_open);
}

/* The last block with fewer than `n` units before it, or the first: unit n begins in it
 * or at its end. */
static size_t block_of(const struct text_index *index, enum text_unit unit, uint64_t n)
{
    size_t low = 0, high = index->count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (units_before(&index->marks[middle], unit) < n)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Skips whole steps of the text that do not reach unit `n`. */
static size_t skip_steps(const char *text, size_t len, size_t step, enum text_unit unit,
                         uint64_t n, struct utf8_scan *scan)
{
    size_t at = 0;

    while (len - at > step) {
        struct utf8_scan ahead = *scan;
        (void)utf8_scan(&ahead, text + at, step);
        struct text_mark mark = {ahead.chars, ahead.lf, ahead.crlf};
        if (units_before(&mark, unit) >= n)
            break;
        *scan = ahead;
        at += step;
    }
    return at;
}

static bool begins_unit(enum text_unit unit, unsigned char before, unsigned char byte)
{
    if (unit == TEXT_UNIVERSAL_CHARS && byte == '\n' && before == '\r')
        return false;
    return !utf8_is_tail((char)byte);
}

size_t text_unit_find(const char *text, size_t len, enum text_unit unit, uint64_t n,
                      const struct text_mark *start, unsigned char before)
{
    enum { LONG_STEP = 4096, STEP = 256 };
    struct utf8_scan scan = {
        .chars = start->chars,
        .lf = start->lf,
        .crlf = start->crlf,
        .last = before,
        .trusted = true,
        .count = unit == TEXT_CHARS             ? UTF8_CHARS
                 : unit == TEXT_UNIVERSAL_CHARS ? UTF8_CHARS_AND_CRLF
                                                : UTF8_ALL,
    };

    size_t at = skip_steps(text, len, LONG_STEP, unit, n, &scan);
    at += skip_steps(text + at, len - at, STEP, unit, n, &scan);
    struct text_mark here = {scan.chars, scan.lf, scan.crlf};
    uint64_t units = units_before(&here, unit);
    for (; at < len; at++) {
        unsigned char byte = (unsigned char)text[at];
        before = at > 0 ? (unsigned char)text[at - 1] : before;
        bool begins = unit == TEXT_LINES || begins_unit(unit, before, byte);
        if (begins && units == n)
            break;
        units += unit == TEXT_LINES ? byte == '\n' : begins;
    }
    return at;
}

int text_index_find(const struct text_index *index, int fd, enum text_unit unit,
                    uint64_t n, uint64_t *ret_byte)
{
    AUTO_FREE char *buffer = NULL;

    if (n == 0 || n >= text_index_total(index, unit)) {
        *ret_byte = n == 0 ? 0 : index->bytes;
        return 0;
    }
    buffer = malloc(1 + BLOCK + TAIL);
    if (!buffer)
        return -ENOMEM;
    size_t number = block_of(index, unit, n);
    uint64_t start = (uint64_t)number * BLOCK;
    size_t lead = start > 0;
    /* One byte before, to see a "\r"; a few after, in case a character ends there. */
    ssize_t got = io_pread(fd, buffer, lead + BLOCK + TAIL, start - lead);
    if (got < (ssize_t)lead)
        return got < 0 ? (int)got : -EAGAIN;

    unsigned char before = lead ? (unsigned char)buffer[0] : 0;
    *ret_byte = start + text_unit_find(buffer + lead, (size_t)got - lead, unit, n,
                                       &index->marks[number], before);
    return 0;
}
