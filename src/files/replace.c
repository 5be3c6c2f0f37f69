/* SPDX-License-Identifier: Apache-2.0 */

/* The text is looked for in a window that slides over the file.  Unless an edit is exact,
 * "\r\n" and "\r" of the file count as "\n": a window that has a "\r" is translated into
 * a second buffer, the search runs there, and the places found are counted back to the
 * original bytes.  So what is outside a match is copied untouched, and the search itself
 * is memmem(3), linear whatever the text.
 *
 * A match is never split: the window keeps the last bytes that could begin one, and never
 * ends between "\r" and "\n". */
#include "files/replace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/big.h"
#include "base/error.h"
#include "base/utf8.h"

#ifndef REPLACE_STEP /* the fuzzer makes it small, to have many windows */
#define REPLACE_STEP (256 << 10)
#endif

enum { STEP = REPLACE_STEP, LINE = 64 };

struct needle {
    char *text; /* newlines translated unless exact */
    size_t len;
    bool exact;
};

struct window {
    char *memory;
    size_t lead; /* of the memory, for what a window keeps of the one before */
    size_t step; /* bytes read at a time: no fewer than the needle has, or most of the
                    time would go into looking again at what is kept */
    char *bytes;
    size_t len;
    char *translated; /* as large as the memory; from the first "\r" on */
    uint64_t offset;  /* in the source, of the end of the window */
    bool at_end;
};

struct stream {
    const struct replace_source *source;
    const struct replace_sink *sink;
    const struct cay_edit *edit;
    struct needle needle;
    struct window window;
    const char *put_text; /* the replacement, with the file's line ends */
    size_t put_len;
    struct utf8_scan scan;
    uint64_t found;
    bool spoiled; /* too many matches: go on counting, write no more */
};

bool replace_fits(const struct cay_edit *edit, uint64_t found)
{
    return edit->flags & CAY_EDIT_ALL && edit->old_len ? found > 0 : found == 1;
}

/* Copies with "\r\n" and "\r" as "\n"; the length of the copy. */
static size_t translate(char *to, const char *from, size_t len)
{
    char *start = to;

    for (size_t i = 0; i < len; i++) {
        if (from[i] == '\r' && i + 1 < len && from[i + 1] == '\n')
            continue;
        *to++ = from[i] == '\r' ? '\n' : from[i];
    }
    return (size_t)(to - start);
}

/* Text that was read with universal newlines has no "\r": it means the byte. */
static bool has_lone_cr(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\r' && (i + 1 == len || text[i + 1] != '\n'))
            return true;
    return false;
}

static int prepare_needle(const struct cay_edit *edit, struct needle *ret_needle)
{
    *ret_needle = (struct needle){.text = malloc(edit->old_len + 1),
                                  .exact = edit->flags & CAY_EDIT_EXACT ||
                                           has_lone_cr(edit->old_text, edit->old_len)};
    if (!ret_needle->text)
        return -ENOMEM;
    ret_needle->len = edit->old_len;
    if (ret_needle->exact)
        memcpy(ret_needle->text, edit->old_text, edit->old_len);
    else
        ret_needle->len = translate(ret_needle->text, edit->old_text, edit->old_len);
    return 0;
}

/* The line ends of the source: those of its first line. */
static int line_end_of(const struct replace_source *source, char *buffer,
                       const char **ret_end)
{
    uint64_t offset = 0;

    *ret_end = "\n";
    for (;;) {
        ssize_t got = source->get(source->cookie, buffer, STEP, offset);
        if (got <= 0)
            return (int)got;
        const char *cr = memchr(buffer, '\r', (size_t)got);
        const char *lf = memchr(buffer, '\n', cr ? (size_t)(cr - buffer) : (size_t)got);
        if (lf)
            return 0;
        if (cr) {
            char next = cr + 1 < buffer + got ? cr[1] : '\0';
            if (cr + 1 == buffer + got) {
                uint64_t after = offset + (uint64_t)got;
                got = source->get(source->cookie, &next, 1, after);
                if (got < 0)
                    return (int)got;
            }
            *ret_end = next == '\n' ? "\r\n" : "\r";
            return 0;
        }
        offset += (uint64_t)got;
    }
}

/* The replacement with the line ends of the file; NULL if out of memory. */
static char *with_line_ends(const struct cay_edit *edit, const char *end, size_t *ret_len)
{
    AUTO_BUF text;
    const char *from = edit->new_text, *stop = from + edit->new_len;

    buf_init(&text, edit->new_len * 2 + 1);
    while (from < stop) {
        const char *lf = memchr(from, '\n', (size_t)(stop - from));
        const char *until = lf ? lf : stop;
        buf_append(&text, from, (size_t)(until - from));
        if (lf) {
            bool paired = lf > edit->new_text && lf[-1] == '\r';
            buf_text(&text, paired ? "\n" : end);
            until++;
        }
        from = until;
    }
    *ret_len = text.len;
    return buf_take(&text);
}

/* Reads another step after what the window still holds, always to the same address, which
 * is fastest (base/big.h). */
static int refill(struct stream *stream)
{
    struct window *window = &stream->window;
    char *fresh = window->memory + window->lead;

    memmove(fresh - window->len, window->bytes, window->len);
    window->bytes = fresh - window->len;
    ssize_t got =
        stream->source->get(stream->source->cookie, fresh, window->step, window->offset);
    if (got < 0)
        return (int)got;
    if (!utf8_scan(&stream->scan, fresh, (size_t)got))
        return -EILSEQ;
    if (stream->scan.has_cr && !stream->needle.exact && !window->translated) {
        window->translated = malloc(window->lead + window->step);
        if (!window->translated)
            return -ENOMEM;
    }
    window->at_end = (size_t)got < window->step;
    window->offset += (uint64_t)got;
    window->len += (size_t)got;
    return 0;
}

static int put(struct stream *stream, const void *data, size_t len)
{
    if (stream->spoiled || len == 0)
        return 0;
    return stream->sink->put(stream->sink->cookie, data, len);
}

/* A position in a window: in its bytes and in its translation. */
struct position {
    size_t original, translated;
};

/* What is searched: the first bytes of the window, or their translation. */
struct haystack {
    const struct window *window;
    size_t window_len;
    const char *text;
    size_t len;
};

static struct haystack look_at(const struct window *window, size_t len)
{
    struct haystack hay = {window, len, window->bytes, len};

    if (window->translated && memchr(window->bytes, '\r', len)) {
        hay.len = translate(window->translated, window->bytes, len);
        hay.text = window->translated;
    }
    return hay;
}

/* Moves to a later position, given in the searched text. */
static void advance(const struct haystack *hay, struct position *position,
                    size_t translated)
{
    const char *bytes = hay->window->bytes;

    if (hay->text == bytes) {
        position->original = position->translated = translated;
        return;
    }
    while (position->translated < translated) {
        bool pair = bytes[position->original] == '\r' &&
                    position->original + 1 < hay->window_len &&
                    bytes[position->original + 1] == '\n';
        position->original += pair ? 2 : 1;
        position->translated++;
    }
}

static int put_match(struct stream *stream)
{
    stream->found++;
    if (stream->found > 1 && !(stream->edit->flags & CAY_EDIT_ALL))
        stream->spoiled = true;
    return put(stream, stream->put_text, stream->put_len);
}

/* Replaces the matches in the first `len` bytes; *ret_done of them are written. */
static int replace_window(struct stream *stream, size_t len, size_t *ret_done)
{
    const struct needle *needle = &stream->needle;
    const struct window *window = &stream->window;
    const struct haystack hay = look_at(window, len);
    struct position here = {0};
    int error = 0;

    *ret_done = 0;
    for (size_t at = 0; !error;) {
        const char *match =
            memmem(hay.text + at, hay.len - at, needle->text, needle->len);
        /* Without one, a match may still begin in the last needle->len - 1 characters. */
        size_t keep = window->at_end ? 0 : needle->len - 1;
        size_t start = match                 ? (size_t)(match - hay.text)
                       : hay.len - at > keep ? hay.len - keep
                                             : at;
        advance(&hay, &here, start);
        error = put(stream, window->bytes + *ret_done, here.original - *ret_done);
        *ret_done = here.original;
        if (!match)
            break;
        if (!error)
            error = put_match(stream);
        at = start + needle->len;
        advance(&hay, &here, at);
        *ret_done = here.original;
    }
    return error;
}

static int slide(struct stream *stream)
{
    struct window *window = &stream->window;

    for (;;) {
        size_t done;
        TRY(refill(stream));
        /* A "\r" at the end may be half of a pair. */
        bool held =
            !window->at_end && window->len > 0 && window->bytes[window->len - 1] == '\r';
        TRY(replace_window(stream, window->len - held, &done));
        window->bytes += done;
        window->len -= done;
        if (window->at_end)
            return utf8_scan_complete(&stream->scan) ? 0 : -EILSEQ;
    }
}

/* The empty text occurs between any two characters: once only in an empty file. */
static int count_gaps(struct stream *stream)
{
    struct window *window = &stream->window;

    do {
        TRY(refill(stream));
        window->len = 0;
    } while (!window->at_end);
    if (!utf8_scan_complete(&stream->scan))
        return -EILSEQ;
    stream->found =
        stream->scan.chars - (stream->needle.exact ? 0 : stream->scan.crlf) + 1;
    return stream->found == 1 ? put(stream, stream->put_text, stream->put_len) : 0;
}

static int run(struct stream *stream)
{
    const struct cay_edit *edit = stream->edit;
    AUTO_FREE char *text = NULL;
    const char *line_end = "\n";

    if (!stream->needle.exact && memchr(edit->new_text, '\n', edit->new_len))
        TRY(line_end_of(stream->source, stream->window.memory, &line_end));
    stream->put_text = edit->new_text;
    stream->put_len = edit->new_len;
    if (strcmp(line_end, "\n") != 0) {
        stream->put_text = text = with_line_ends(edit, line_end, &stream->put_len);
        if (!text)
            return -ENOMEM;
    }
    return stream->needle.len ? slide(stream) : count_gaps(stream);
}

int replace_stream(const struct replace_source *source, const struct cay_edit *edit,
                   const struct replace_sink *sink, uint64_t *ret_found)
{
    struct stream stream = {.source = source, .sink = sink, .edit = edit};
    struct window *window = &stream.window;
    bool untouched;

    stream.scan.count = UTF8_CHARS_AND_CRLF;
    int error = prepare_needle(edit, &stream.needle);
    if (!error) {
        /* What is kept of a window may be "\r\n" where the needle has "\n". */
        window->lead = (2 * stream.needle.len + 2 + LINE - 1) / LINE * LINE;
        window->step = stream.needle.len > STEP ? window->lead / 2 : STEP;
        window->memory = big_alloc(window->lead + window->step, &untouched);
        window->bytes = window->memory;
        error = window->memory ? run(&stream) : -ENOMEM;
    }
    free(stream.needle.text);
    free(window->memory);
    free(window->translated);
    *ret_found = stream.found;
    return error;
}
