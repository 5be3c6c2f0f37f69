/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "files/find.h"
#include "files/regex.h"
#include "files/walk.h"

#define OP "files.grep"

enum {
    MATCHES = 1000,
    LINE_BYTES = 500,
    FILE_BYTES = 100 << 20,
    TIMEOUT_MS = 10000,
    WINDOW = 1 << 20,   /* a longer line is searched in pieces of this size... */
    OVERLAP = 64 << 10, /* ...that overlap by this */
    LEAD = 4 << 10,     /* ...with this much text before them, for lookbehinds and "\b" */
    BINARY_LOOK = 8 << 10,
    WORKER_MIN = 8 << 10, /* a longer text may take unbounded time */
    CLOCK_BYTES = 8 << 10 /* between two reads of the clock... */,
    LINE_COST = 64 /* ...to which each line adds this */
};

struct search {
    struct cay_grep_options options;
    struct regex regex;
    struct regex_worker worker;
    struct find_filter filter;
    struct cay_matches matches;
    size_t room;
    size_t limit;     /* stop once there are so many */
    char *window;     /* shared with the worker process */
    size_t unclocked; /* bytes searched since the clock was read */
};

/* The position of the search in a file. */
struct scan {
    const char *path;
    int fd;
    uint64_t left;     /* bytes that may still be read */
    size_t begin, end; /* the part of the window that is not searched yet */
    size_t lead;       /* bytes of that line before begin still in the window */
    bool at_end;       /* of the file */
    uint64_t line;     /* number of the line at begin */
    uint64_t column;   /* bytes of that line that came before begin */
    bool has_match;    /* that line has matched already */
};

static void drop(struct cay_matches *matches, size_t from)
{
    while (matches->count > from) {
        const struct cay_match *last = &matches->items[--matches->count];
        free(last->path);
        free(last->text);
    }
}

void cay_matches_done(struct cay_matches *matches)
{
    if (!matches)
        return;
    drop(matches, 0);
    free(matches->items);
    *matches = (struct cay_matches){0};
}

static void search_done(struct search *search)
{
    cay_matches_done(&search->matches);
    find_filter_done(&search->filter);
    regex_worker_done(&search->worker);
    regex_done(&search->regex);
    if (search->window)
        (void)munmap(search->window, WINDOW);
}

/* --- One line ------------------------------------------------------------------------
 */

/* The part of a line to report: all of it, or as much as allowed around the match, cut
 * between characters. */
static struct regex_span shown_part(const char *line, size_t len, struct regex_span match,
                                    size_t max)
{
    size_t match_len = match.end - match.start;
    struct regex_span part = {0, len};

    if (len <= max)
        return part;
    size_t before = match_len < max ? (max - match_len) / 2 : 0;
    part.start = match.start > before ? match.start - before : 0;
    if (part.start > len - max)
        part.start = len - max;
    part.end = part.start + max;
    for (int i = 0; i < 3 && part.start < part.end && utf8_is_tail(line[part.start]); i++)
        part.start++;
    for (int i = 0;
         i < 3 && part.end < len && part.end > part.start && utf8_is_tail(line[part.end]);
         i++)
        part.end--;
    return part;
}

static int add_match(struct search *search, const struct scan *scan, const char *line,
                     size_t len, struct regex_span span, struct cay_error *err)
{
    struct cay_matches *matches = &search->matches;
    struct regex_span part = shown_part(line, len, span, search->options.max_line_bytes);

    if (!array_reserve(&matches->items, &search->room, matches->count + 1,
                       sizeof *matches->items))
        return cay_fail_memory(err, OP);
    AUTO_FREE char *path = strdup(scan->path);
    char *text = malloc(part.end - part.start + 1);
    if (!path || !text) {
        free(text);
        return cay_fail_memory(err, OP);
    }
    memcpy(text, line + part.start, part.end - part.start);
    text[part.end - part.start] = '\0';
    matches->items[matches->count++] =
        (struct cay_match){.path = TAKE_PTR(path),
                           .line = scan->line,
                           .column = scan->column + span.start + 1,
                           .text = text};
    return CAY_OK;
}

/* Searches the line at scan->begin, or as much of it as the window has. */
static int search_line(struct search *search, struct scan *scan, size_t len,
                       bool is_whole, struct cay_error *err)
{
    const char *line = search->window + scan->begin;
    struct regex_span span;

    uint64_t deadline_ns = search->filter.deadline_ns;
    search->unclocked += LINE_COST + len;
    if (search->unclocked >= CLOCK_BYTES) {
        TRY(walk_check_deadline(OP, deadline_ns, err));
        search->unclocked = 0;
    }
    if (scan->has_match)
        return CAY_OK;
    if (is_whole && len && line[len - 1] == '\r')
        len--;
    const struct regex_text text = {line - scan->lead, scan->lead + len, scan->lead,
                                    !is_whole};
    int found = text.len < WORKER_MIN
                    ? regex_match(&search->regex, OP, &text, &span, err)
                    : regex_worker_match(&search->worker, &search->regex, OP, &text,
                                         deadline_ns, &span, err);
    if (found <= 0)
        return found;
    span.start -= scan->lead;
    span.end -= scan->lead;
    scan->has_match = true;
    return add_match(search, scan, line, len, span, err);
}

/* --- One file ------------------------------------------------------------------------
 */

/* Moves the rest to the front and reads on after it; a negative errno on failure. */
static int refill(struct search *search, struct scan *scan)
{
    size_t from = scan->begin - scan->lead, kept = scan->end - from;
    ssize_t got;

    memmove(search->window, search->window + from, kept);
    scan->begin = scan->lead;
    scan->end = kept;
    size_t wanted = WINDOW - kept < scan->left ? WINDOW - kept : (size_t)scan->left;
    do
        got = read(scan->fd, search->window + kept, wanted);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    scan->end += (size_t)got;
    scan->left -= (uint64_t)got;
    scan->at_end = got == 0;
    return 0;
}

/* Searches a line that fills the window in pieces.  The end of one stays for the next,
 * for a match across the border. */
static int search_piece(struct search *search, struct scan *scan, struct cay_error *err)
{
    int code = search_line(search, scan, scan->end - scan->begin, false, err);
    size_t next = scan->end - OVERLAP;

    for (int i = 0; i < 3 && utf8_is_tail(search->window[next]); i++)
        next++;
    scan->column += next - scan->begin;
    scan->begin = next;
    scan->lead = LEAD;
    return code;
}

/* Searches every line the window has the end of. */
static int search_window(struct search *search, struct scan *scan, struct cay_error *err)
{
    while (scan->begin < scan->end && search->matches.count < search->limit) {
        const char *start = search->window + scan->begin;
        const char *newline = memchr(start, '\n', scan->end - scan->begin);
        if (!newline && !scan->at_end)
            return scan->end - scan->begin + scan->lead == WINDOW
                       ? search_piece(search, scan, err)
                       : CAY_OK;
        size_t len = newline ? (size_t)(newline - start) : scan->end - scan->begin;
        TRY(search_line(search, scan, len, true, err));
        scan->begin += len + (newline != NULL);
        scan->line++;
        scan->column = 0;
        scan->lead = 0;
        scan->has_match = false;
    }
    return CAY_OK;
}

/* 1 if the file was searched, 0 if it is to be skipped, or a code. */
static int search_file(struct search *search, const char *path, int fd,
                       struct cay_error *err)
{
    struct scan scan = {
        .path = path, .fd = fd, .left = search->options.max_file_bytes, .line = 1};

    int error = refill(search, &scan);
    if (error)
        return cay_fail_errno(err, -error, OP, path);
    if (memchr(search->window, '\0', scan.end < BINARY_LOOK ? scan.end : BINARY_LOOK))
        return 0;
    for (;;) {
        int code = search_window(search, &scan, err);
        if (code) {
            if (err && code == CAY_E_LIMIT)
                cay_copy_text(err->subject, sizeof err->subject, path);
            return code;
        }
        if (scan.at_end || search->matches.count == search->limit)
            return 1;
        error = refill(search, &scan);
        if (error)
            return cay_fail_errno(err, -error, OP, path);
    }
}

static bool is_allowed(const cay_files *files, const struct search *search,
                       const struct target *target)
{
    uint64_t bytes = (uint64_t)target->st.st_size;

    return S_ISREG(target->st.st_mode) && bytes <= search->options.max_file_bytes &&
           target_check_suffix(files, target, NULL) == CAY_OK &&
           target_check_size(files, target, bytes, NULL) == CAY_OK;
}

static int search_target(const cay_files *files, struct search *search, const char *path,
                         const struct target *target, bool must_open,
                         struct cay_error *err)
{
    AUTO_FD fd = -1;
    int searched = 0;

    if (target && is_allowed(files, search, target)) {
        struct cay_error why;
        int code = target_open(target, O_RDONLY, &fd, &why);
        if (code && (must_open || find_is_serious(code))) {
            if (err)
                *err = why;
            return code;
        }
        if (!code)
            searched = search_file(search, path, fd, err);
    }
    if (searched < 0)
        return searched;
    search->matches.files_searched += searched == 1;
    search->matches.files_skipped += searched == 0;
    return CAY_OK;
}

/* --- All files -----------------------------------------------------------------------
 */

static int search_directory(cay_files *files, struct search *search,
                            const struct target *start, struct cay_error *err)
{
    struct find *find = NULL;
    struct find_hit hit;
    size_t before = search->matches.count;

    search->limit = before + search->options.max_matches + 1;
    int code = find_new(files, start, &search->filter, &find, err);
    while (!code && search->matches.count < search->limit) {
        code = find_next(find, &hit, err);
        if (code <= 0)
            break;
        const struct target *target;
        code = find_hold(find, FS_AND_READ, &target, err);
        if (!code)
            code = search_target(files, search, hit.path, target, false, err);
    }
    search->matches.files_skipped += find ? find_denied(find) + find_unnamed(find) : 0;
    find_free(find);
    return code;
}

/* The file that the caller named: a rule or its mode is an error here, not a reason to
 * skip it. */
static int search_named(cay_files *files, struct search *search,
                        const struct target *target, struct cay_error *err)
{
    char label[2 * PATH_MAX];

    TRY(target_must_be_file(target, err));
    TRY(target_check_suffix(files, target, err));
    TRY(target_check_size(files, target, (uint64_t)target->st.st_size, err));
    if (!policy_label(files->policy, target->mount, target->rel, label, sizeof label))
        return target_fail(target, ENAMETOOLONG, err);
    search->limit = search->options.max_matches + (size_t)1;
    return search_target(files, search, label, target, true, err);
}

static int compare(const void *left, const void *right)
{
    const struct cay_match *a = left, *b = right;
    int order = strcmp(a->path, b->path);

    return order ? order : (a->line > b->line) - (a->line < b->line);
}

/* Sorts the matches of several starts; the one beyond the limit shows that there are
 * more.
 */
static void settle(struct search *search)
{
    struct cay_matches *matches = &search->matches;

    if (matches->count)
        qsort(matches->items, matches->count, sizeof *matches->items, compare);
    drop(matches, matches->count > search->options.max_matches
                      ? search->options.max_matches + (size_t)1
                      : matches->count);
}

static int take_options(const char *regex, const struct cay_grep_options *given,
                        struct search *search, struct cay_error *err)
{
    struct cay_grep_options *options = &search->options;

    TRY(cay_take_struct(options, sizeof *options, given, OP, err));
    if (options->flags & ~(unsigned)(CAY_GREP_IGNORE_CASE | CAY_GREP_FIXED))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, OP, "flags", "unknown flags",
                        "use the flags of enum cay_grep_flag");
    options->max_matches = options->max_matches ? options->max_matches : MATCHES;
    options->max_line_bytes =
        options->max_line_bytes ? options->max_line_bytes : LINE_BYTES;
    options->max_file_bytes =
        options->max_file_bytes ? options->max_file_bytes : FILE_BYTES;
    options->timeout_ms = options->timeout_ms ? options->timeout_ms : TIMEOUT_MS;
    TRY(find_filter_init(OP, options->pattern, options->exclude, options->exclude_count,
                         &search->filter, err));
    search->filter.flags = CAY_LIST_FILES;
    search->filter.max_depth = UINT32_MAX;
    return regex_compile(
        OP, regex,
        (options->flags & CAY_GREP_IGNORE_CASE ? REGEX_IGNORE_CASE : 0u) |
            (options->flags & CAY_GREP_FIXED ? REGEX_FIXED : 0u),
        &search->regex, err);
}

int cay_files_grep(cay_files *files, const char *path, const char *regex,
                   const struct cay_grep_options *options,
                   struct cay_matches *ret_matches, struct cay_error *err)
{
    __attribute__((cleanup(search_done))) struct search search = {.worker =
                                                                      REGEX_WORKER_NONE};
    const struct find_request request = {CAY_OP_SEARCH, path, NULL};
    AUTO_SCOPE scope = {0};

    TRY(take_options(regex, options, &search, err));
    TRY(find_scope_open(files, OP, &request, &scope, err));
    search.filter.deadline_ns = walk_deadline(search.options.timeout_ms);
    search.filter.must_read = scope.is_named;
    void *window =
        mmap(NULL, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (window == MAP_FAILED)
        return cay_fail_memory(err, OP);
    search.window = window;
    for (size_t i = 0; i < scope.count; i++) {
        const struct target *target = &scope.targets[i];
        TRY(target->fd >= 0 && S_ISDIR(target->st.st_mode)
                ? search_directory(files, &search, target, err)
                : search_named(files, &search, target, err));
        settle(&search);
    }
    if (search.matches.count > search.options.max_matches) {
        drop(&search.matches, search.options.max_matches);
        search.matches.truncated = true;
    }
    *ret_matches = search.matches;
    search.matches = (struct cay_matches){0};
    return CAY_OK;
}
