/* SPDX-License-Identifier: Apache-2.0 */

/* Reading.  A small file, or one that is wanted whole, is read at once and counted in
 * memory.  A large one gets an index in one pass (index.h); each page then takes two
 * lookups and one read.  Nothing is mapped: a file that shrinks would kill its reader by
 * SIGBUS. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/big.h"
#include "base/error.h"
#include "base/utf8-widen.h"
#include "base/utf8.h"
#include "files/handle.h"
#include "files/index.h"
#include "sys/io.h"

enum {
    SMALL = 64 << 10,
    PIECE = 256 << 10,
    PLACED = 1 << 20,
    WIDEN_PIECE = 64 << 10,
    DEFAULT_LINES = 2000
};

#define KNOWN_FLAGS ((unsigned)(CAY_READ_UNIVERSAL_NEWLINES | CAY_READ_LARGE))

struct cay_reader {
    int fd;
    char *path;
    uint64_t max_bytes;
    struct session *session;
    struct text_index *index;
};

/* One open file and the request. */
struct job {
    const char *op, *path;
    int fd;
    struct stat st;
    uint64_t max_bytes; /* the policy's limit, or UINT64_MAX */
    enum text_unit unit;
    struct cay_read_options options;
    struct session *session;
};

static int fail_not_text(const struct job *job, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_TEXT, EILSEQ, job->op, job->path,
                    "the file is not UTF-8 text",
                    "read it as bytes, or pass it on as an attachment");
}

static int fail_grown(const struct job *job, struct cay_error *err)
{
    return cay_fail(err, CAY_E_TOO_LARGE, EFBIG, job->op, job->path,
                    "the file grew over the limit while it was read",
                    "read a file of at most %llu bytes",
                    (unsigned long long)job->max_bytes);
}

static int fail_page_size(const struct job *job, struct cay_error *err)
{
    return cay_fail(err, CAY_E_LIMIT, 0, job->op, job->path,
                    "more than 100 MiB would be returned at once",
                    "read it page by page, with offset and a smaller maximum");
}

static int fail_read(const struct job *job, int error, struct cay_error *err)
{
    return error == -EILSEQ  ? fail_not_text(job, err)
           : error == -EFBIG ? fail_grown(job, err)
                             : cay_fail_errno(err, -error, job->op, job->path);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The most bytes to return.  A request for little does not get much of a file that grows
 * while it is read. */
static uint64_t page_max(const struct job *job)
{
    bool is_large =
        job->options.flags & CAY_READ_LARGE && job->options.max > CAY_READ_MAX / 4;

    return is_large ? SIZE_MAX / 2 : CAY_READ_MAX;
}

/* Reads [from, to), or up to the end of the file, into new NUL-terminated memory. */
static int read_range(const struct job *job, uint64_t from, uint64_t to, char **ret_data,
                      size_t *ret_len, struct cay_error *err)
{
    size_t want = (size_t)(to - from), have = 0;
    bool untouched;

    if (to - from > page_max(job))
        return fail_page_size(job, err);
    AUTO_FREE char *data = big_alloc(want + 1, &untouched);
    if (!data)
        return cay_fail_memory(err, job->op);
    while (have < want) {
        size_t piece = untouched && want - have > PIECE ? PIECE : want - have;
        if (untouched)
            big_touch(data + have, piece);
        ssize_t got = io_pread(job->fd, data + have, piece, from + have);
        if (got < 0)
            return cay_fail_errno(err, (int)-got, job->op, job->path);
        have += (size_t)got;
        if ((size_t)got < piece)
            break;
    }
    data[have] = '\0';
    *ret_len = have;
    *ret_data = TAKE_PTR(data);
    return CAY_OK;
}

/* "\r\n" becomes "\n", and for characters a lone "\r" too.  Returns the new length. */
static size_t translate(char *text, size_t len, bool lone_too)
{
    char *to = memchr(text, '\r', len);
    const char *end = text + len;

    if (!to)
        return len;
    for (const char *from = to; from < end; from++) {
        bool pair = *from == '\r' && from + 1 < end && from[1] == '\n';
        if (pair)
            continue;
        *to++ = *from == '\r' && lone_too ? '\n' : *from;
    }
    *to = '\0';
    return (size_t)(to - text);
}

static bool universal(const struct job *job)
{
    return job->options.flags & CAY_READ_UNIVERSAL_NEWLINES;
}

/* A scan that counts what the request needs, and no more. */
static struct utf8_scan scan_for(const struct job *job)
{
    return (struct utf8_scan){.count = job->unit == TEXT_LINES ? UTF8_ALL
                                       : universal(job)        ? UTF8_CHARS_AND_CRLF
                                                               : UTF8_CHARS};
}

/* `scan` is that of the text. */
static void fill_page(const struct job *job, char *text, size_t len,
                      const struct utf8_scan *scan, uint64_t total,
                      struct cay_page *ret_page)
{
    uint64_t left = total > job->options.offset ? total - job->options.offset : 0;

    if (universal(job) && scan->has_cr)
        len = translate(text, len, job->unit != TEXT_LINES);
    *ret_page = (struct cay_page){
        .text = text,
        .len = len,
        .offset = job->options.offset,
        .count = least(left, job->options.max),
        .total = total,
        .truncated = left > job->options.max,
        .highest = job->unit == TEXT_LINES ? 0 : utf8_scan_highest(scan),
    };
}

/* The byte where unit `n` begins in text that begins with one. */
static size_t find_in_memory(const char *text, size_t len, enum text_unit unit,
                             uint64_t n)
{
    return text_unit_find(text, len, unit, n, &(struct text_mark){0}, 0);
}

static uint64_t units_in(const struct utf8_scan *scan, size_t len, enum text_unit unit)
{
    return unit == TEXT_CHARS             ? scan->chars
           : unit == TEXT_UNIVERSAL_CHARS ? scan->chars - scan->crlf
                                          : scan->lf + (len > 0 && scan->last != '\n');
}

/* Cuts the page out of a whole file in memory, in place. */
static void cut_page(const struct job *job, char *text, size_t len,
                     const struct utf8_scan *scan, struct cay_page *ret_page)
{
    uint64_t total = units_in(scan, len, job->unit);
    uint64_t first = least(job->options.offset, total);
    uint64_t after = first + least(job->options.max, total - first);
    size_t from = 0, to = len;

    if (scan->chars == len && !scan->crlf && job->unit != TEXT_LINES) {
        from = (size_t)first;
        to = (size_t)after;
    } else {
        if (first > 0)
            from = find_in_memory(text, len, job->unit, first);
        if (after < total)
            to = from + find_in_memory(text + from, len - from, job->unit, after - first);
    }
    if (from > 0)
        memmove(text, text + from, to - from);
    text[to - from] = '\0';
    struct utf8_scan part = scan_for(job);
    bool is_part = to - from < len && scan->highest >= 0x80;
    if (is_part)
        (void)utf8_scan(&part, text, to - from);
    fill_page(job, text, to - from, is_part ? &part : scan, total, ret_page);
}

/* Reads to the end of the file, whatever st_size is, and counts each piece while it is in
 * the CPU cache. */
static int read_whole(const struct job *job, struct buf *text, struct utf8_scan *scan,
                      struct cay_error *err)
{
    uint64_t limit = least(job->max_bytes, page_max(job));
    bool untouched;

    buf_init(text, (size_t)limit + PIECE + 2);
    text->room = (size_t)least((uint64_t)job->st.st_size, limit) + 2;
    text->data = big_alloc(text->room, &untouched);
    if (!text->data)
        return cay_fail_memory(err, job->op);
    for (;;) {
        size_t room = (size_t)least(text->room - text->len - 1, PIECE);
        if (untouched)
            big_touch(text->data + text->len, room);
        ssize_t got = read(job->fd, text->data + text->len, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cay_fail_errno(err, errno, job->op, job->path);
        if (got == 0)
            return utf8_scan_complete(scan) ? CAY_OK : fail_not_text(job, err);
        if (!utf8_scan(scan, text->data + text->len, (size_t)got))
            return fail_not_text(job, err);
        text->len += (size_t)got;
        if (text->len > limit)
            return job->max_bytes < page_max(job) ? fail_grown(job, err)
                                                  : fail_page_size(job, err);
        if (text->room - text->len <= 1 && !buf_reserve(text, PIECE))
            return cay_fail_memory(err, job->op);
    }
}

/* The whole file into memory from options.allocate.  False if its length is not st_size,
 * or with *ret_code set. */
static bool read_placed(const struct job *job, struct cay_page *ret_page, int *ret_code,
                        struct cay_error *err)
{
    size_t size = (size_t)job->st.st_size, len = 0;
    struct utf8_scan scan = scan_for(job);
    char more;

    *ret_code = CAY_OK;
    char *text = job->options.allocate(job->options.cookie, size);
    if (!text) {
        *ret_code = cay_fail_memory(err, job->op);
        return false;
    }
    bool untouched = big_expect(text, size);
    while (len < size) {
        size_t want = size - len < PIECE ? size - len : PIECE;
        if (untouched)
            big_touch(text + len, want);
        ssize_t got = io_pread(job->fd, text + len, want, len);
        if (got < 0)
            *ret_code = cay_fail_errno(err, (int)-got, job->op, job->path);
        else if (got > 0 && !utf8_scan(&scan, text + len, (size_t)got))
            *ret_code = fail_not_text(job, err);
        if (got <= 0 || *ret_code)
            return false;
        len += (size_t)got;
    }
    if (io_pread(job->fd, &more, 1, len) != 0)
        return false;
    if (!utf8_scan_complete(&scan)) {
        *ret_code = fail_not_text(job, err);
        return false;
    }
    text[len] = '\0';
    fill_page(job, text, len, &scan, units_in(&scan, len, job->unit), ret_page);
    return true;
}

/* The session keeps the indexes of the last few files, most recently used first. */
static struct text_index *recall(struct session *session, const struct stat *st)
{
    struct text_index *found = NULL;

    pthread_mutex_lock(&session->mutex);
    for (size_t i = 0; i < SESSION_INDEXES && session->indexes[i]; i++)
        if (text_index_fits(session->indexes[i], st)) {
            found = session->indexes[i];
            memmove(session->indexes + 1, session->indexes, i * sizeof found);
            session->indexes[0] = found;
            (void)text_index_ref(found);
            break;
        }
    pthread_mutex_unlock(&session->mutex);
    return found;
}

static void keep(struct session *session, struct text_index *index)
{
    struct text_index *last;

    pthread_mutex_lock(&session->mutex);
    last = session->indexes[SESSION_INDEXES - 1];
    memmove(session->indexes + 1, session->indexes,
            (SESSION_INDEXES - 1) * sizeof *session->indexes);
    session->indexes[0] = text_index_ref(index);
    pthread_mutex_unlock(&session->mutex);
    text_index_unref(last);
}

static int index_of(const struct job *job, struct text_index **ret_index,
                    struct cay_error *err)
{
    *ret_index = recall(job->session, &job->st);
    if (*ret_index)
        return CAY_OK;
    uint64_t max =
        job->max_bytes < UINT64_MAX ? job->max_bytes : target_text_max(&job->st);
    if ((uint64_t)job->st.st_size > max)
        return cay_fail(
            err, CAY_E_LIMIT, EFBIG, job->op, job->path,
            "the file is too long to count its characters",
            "read it as bytes, with an offset and a maximum; the limit is %llu",
            (unsigned long long)max);
    int error = text_index_build(job->fd, &job->st, job->max_bytes, ret_index);
    if (error)
        return fail_read(job, error, err);
    if ((*ret_index)->settled)
        keep(job->session, *ret_index);
    return CAY_OK;
}

static int page_by_index(const struct job *job, const struct text_index *index,
                         struct cay_page *ret_page, struct cay_error *err)
{
    uint64_t total = text_index_total(index, job->unit);
    uint64_t first = least(job->options.offset, total);
    uint64_t after = first + least(job->options.max, total - first);
    uint64_t from = index->bytes, to = index->bytes;
    char *text;
    size_t len;

    int error =
        first < total ? text_index_find(index, job->fd, job->unit, first, &from) : 0;
    if (!error && after < total)
        error = text_index_find(index, job->fd, job->unit, after, &to);
    if (error)
        return fail_read(job, error, err);
    TRY(read_range(job, from, to, &text, &len, err));
    struct utf8_scan scan = scan_for(job);
    if (len != to - from || !utf8_scan(&scan, text, len) ||
        units_in(&scan, len, job->unit) != after - first) {
        free(text);
        return cay_fail(err, CAY_E_BUSY, 0, job->op, job->path,
                        "the file is changing while it is read", "read it again");
    }
    fill_page(job, text, len, &scan, total, ret_page);
    return CAY_OK;
}

static int text_page(const struct job *job, struct cay_page *ret_page,
                     struct cay_error *err)
{
    uint64_t size = (uint64_t)job->st.st_size;

    bool whole = size <= page_max(job) && job->options.max >= size;

    if (whole && job->options.allocate && size >= PLACED && job->options.offset == 0) {
        int code;
        if (read_placed(job, ret_page, &code, err) || code)
            return code;
    }
    if (size <= SMALL || whole) {
        AUTO_BUF text = {0};
        struct utf8_scan scan = scan_for(job);
        int code = read_whole(job, &text, &scan, err);
        if (!code)
            cut_page(job, TAKE_PTR(text.data), text.len, &scan, ret_page);
        return code;
    }
    struct text_index *index;
    TRY(index_of(job, &index, err));
    int code = page_by_index(job, index, ret_page, err);
    text_index_unref(index);
    return code;
}

static int byte_page(const struct job *job, struct cay_page *ret_page,
                     struct cay_error *err)
{
    uint64_t size = (uint64_t)job->st.st_size;
    uint64_t from = least(job->options.offset, size);
    uint64_t want = least(job->options.max, size - from);
    size_t len;
    char *data;

    TRY(read_range(job, from, from + want, &data, &len, err));
    *ret_page = (struct cay_page){
        .text = data,
        .len = len,
        .offset = job->options.offset,
        .count = len,
        .total = size,
        .truncated = from + len < size,
    };
    return CAY_OK;
}

static int take_options(const struct cay_read_options *options, const char *op,
                        uint64_t default_max, struct cay_read_options *ret_known,
                        struct cay_error *err)
{
    TRY(cay_take_struct(ret_known, sizeof *ret_known, options, op, err));
    if (ret_known->flags & ~KNOWN_FLAGS)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unknown flags",
                        "the known ones are 0x%x", KNOWN_FLAGS);
    if (!options)
        ret_known->max = default_max;
    return CAY_OK;
}

static uint64_t limit_of(const cay_files *files, const struct target *target)
{
    int64_t limit = target_mount(files, target)->max_file_bytes;

    return limit >= 0            ? (uint64_t)limit
           : files->policy->base ? TARGET_TEXT_MAX
                                 : UINT64_MAX;
}

static int read_path(cay_files *files, const char *path, struct job *job,
                     int (*page)(const struct job *, struct cay_page *,
                                 struct cay_error *),
                     struct cay_page *ret_page, struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;
    AUTO_FD fd = -1;

    TRY(target_open_for_reading(files, job->op, path, job->options.pin, &target, &fd,
                                &job->st, err));
    job->path = path;
    job->fd = fd;
    job->max_bytes = limit_of(files, &target);
    job->session = files->session;
    return page(job, ret_page, err);
}

int cay_files_read(cay_files *files, const char *path,
                   const struct cay_read_options *options, struct cay_page *ret_page,
                   struct cay_error *err)
{
    struct job job = {.op = "files.read"};

    TRY(take_options(options, job.op, CAY_READ_CHARS, &job.options, err));
    job.unit = universal(&job) ? TEXT_UNIVERSAL_CHARS : TEXT_CHARS;
    return read_path(files, path, &job, text_page, ret_page, err);
}

int cay_files_read_lines(cay_files *files, const char *path,
                         const struct cay_read_options *options,
                         struct cay_page *ret_page, struct cay_error *err)
{
    struct job job = {.op = "files.read_lines", .unit = TEXT_LINES};

    TRY(take_options(options, job.op, DEFAULT_LINES, &job.options, err));
    if (!job.options.max)
        job.options.max = DEFAULT_LINES;
    return read_path(files, path, &job, text_page, ret_page, err);
}

int cay_files_read_bytes(cay_files *files, const char *path,
                         const struct cay_read_options *options,
                         struct cay_page *ret_page, struct cay_error *err)
{
    struct job job = {.op = "files.read_bytes"};

    TRY(take_options(options, job.op, UINT64_MAX, &job.options, err));
    return read_path(files, path, &job, byte_page, ret_page, err);
}

int cay_files_read_many(cay_files *files, struct cay_read_item *items, size_t count,
                        struct cay_error *err)
{
    for (size_t i = 0; i < count; i++) {
        struct cay_read_item *item = &items[i];
        item->page = (struct cay_page){0};
        item->error = (struct cay_error){0};
        if (cay_files_read_bytes(files, item->path, NULL, &item->page, &item->error) ==
            CAY_E_NO_MEMORY) {
            while (i-- > 0)
                cay_page_done(&items[i].page);
            return cay_fail_memory(err, "files.read_many");
        }
    }
    return CAY_OK;
}

int cay_reader_open(cay_files *files, const char *path, cay_reader **ret_reader,
                    struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;
    AUTO_FD fd = -1;
    struct stat st;

    TRY(target_open_for_reading(files, "reader.open", path, NULL, &target, &fd, &st,
                                err));
    cay_reader *reader = calloc(1, sizeof *reader);
    char *name = strdup(path);
    if (!reader || !name) {
        free(reader);
        free(name);
        return cay_fail_memory(err, "reader.open");
    }
    *reader = (cay_reader){
        .fd = TAKE_FD(fd),
        .path = name,
        .max_bytes = limit_of(files, &target),
        .session = session_ref(files->session),
    };
    *ret_reader = reader;
    return CAY_OK;
}

int cay_reader_page(cay_reader *reader, const struct cay_read_options *options,
                    struct cay_page *ret_page, struct cay_error *err)
{
    struct job job = {.op = "reader.page",
                      .path = reader->path,
                      .fd = reader->fd,
                      .max_bytes = reader->max_bytes,
                      .session = reader->session};

    TRY(take_options(options, job.op, CAY_READ_CHARS, &job.options, err));
    if (fstat(reader->fd, &job.st) != 0)
        return cay_fail_errno(err, errno, job.op, job.path);
    job.unit = universal(&job) ? TEXT_UNIVERSAL_CHARS : TEXT_CHARS;
    if (!reader->index || !text_index_fits(reader->index, &job.st)) {
        text_index_unref(TAKE_PTR(reader->index));
        TRY(index_of(&job, &reader->index, err));
    }
    return page_by_index(&job, reader->index, ret_page, err);
}

void cay_reader_free(cay_reader *reader)
{
    if (!reader)
        return;
    text_index_unref(reader->index);
    session_unref(reader->session);
    (void)close(reader->fd);
    free(reader->path);
    free(reader);
}

/* --- Pages -----------------------------------------------------------------------------
 */

void cay_page_done(struct cay_page *page)
{
    if (!page)
        return;
    free(page->text);
    *page = (struct cay_page){0};
}

static uint32_t most_in(unsigned width)
{
    return width == 1 ? 0xFF : width == 2 ? 0xFFFF : width == 4 ? 0x10FFFF : 0;
}

/* In pieces, so that big_touch() can fault in the memory of each at once. */
static void widen(const struct cay_page *page, unsigned width, char *to)
{
    size_t room = (size_t)page->count * width, done = 0;
    bool untouched = big_expect(to, room);

    for (size_t at = 0; at < page->len;) {
        size_t end = page->len - at > WIDEN_PIECE ? at + WIDEN_PIECE : page->len;
        while (end < page->len && utf8_is_tail(page->text[end]))
            end--;
        size_t most = (end - at) * width;
        if (untouched)
            big_touch(to + done, room - done < most ? room - done : most);
        done += width * utf8_widen(page->text + at, end - at, width, to + done);
        at = end;
    }
}

int cay_page_widen(const struct cay_page *page, unsigned width, void *to,
                   struct cay_error *err)
{
    static const char op[] = "page.widen";

    if (page->highest == 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL,
                        "the page does not contain characters",
                        "pass a page of text from cay_files_read() or cay_reader_page()");
    if (page->highest > most_in(width))
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL,
                        "the width is too small for the characters of the page",
                        "the highest character is U+%X; pass a width of %d",
                        (unsigned)page->highest,
                        page->highest <= 0xFF     ? 1
                        : page->highest <= 0xFFFF ? 2
                                                  : 4);
    widen(page, width, to);
    return CAY_OK;
}
