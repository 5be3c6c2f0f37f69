/* SPDX-License-Identifier: Apache-2.0 */

/* Three-way merge of lines.  The common version is the one that git has committed: both
 * sides come from it, and what the user had changed before the try is on both sides, so
 * it is no conflict. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apply/apply.h"
#include "base/auto.h"
#include "base/error.h"
#include "diff/content.h"
#include "diff/lines.h"
#include "sys/io.h"
#include "sys/spawn.h"

enum { TEXT_MAX = 4 << 20 };
#define STEPS_MAX (UINT64_C(1) << 28)

/* --- The common version --- */

static bool read_all(int fd, struct buf *text)
{
    for (;;) {
        if (text->len >= TEXT_MAX || !buf_reserve(text, 64 << 10))
            return false;
        ssize_t got = io_read_some(fd, text->data + text->len, 64 << 10);
        if (got <= 0)
            return got == 0;
        text->len += (size_t)got;
    }
}

/* Whether git has the file.  cat-file runs no hook; the repository is the user's, not the
 * one that the sandbox changed. */
static bool load_base(int dir, const char *path, struct buf *text)
{
    static const char *const places[] = {"/usr/bin/git", "/usr/local/bin/git"};
    char object[PATH_MAX + 16], words[][24] = {"git", "cat-file", "blob"};
    char *argv[] = {words[0], words[1], words[2], object, NULL};
    char variables[][40] = {"PATH=/usr/local/bin:/usr/bin:/bin", "GIT_NO_LAZY_FETCH=1",
                            "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent"};
    char *env[] = {variables[0], variables[1], variables[2], variables[3], NULL};
    int ends[2], status = -1, error = -ENOENT;
    pid_t pid;

    snprintf(object, sizeof object, "HEAD:./%s", path);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    struct spawn spawn = {
        .argv = argv, .env = env, .dir = dir, .streams = {-1, ends[1], -1}};
    for (size_t i = 0; i < sizeof places / sizeof *places && error == -ENOENT; i++) {
        spawn.program = places[i];
        error = spawn_program(&spawn, &pid);
    }
    (void)close(ends[1]);
    bool is_whole = !error && read_all(ends[0], text);
    (void)close(ends[0]);
    while (!error && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return is_whole && status == 0;
}

/* --- Three texts --- */

/* Lines [from, to) of the common version became lines [own_from, own_to). */
struct hunk {
    size_t from, to, own_from, own_to;
};

static bool next_hunk(const struct lines *lines, struct hunk *hunk)
{
    const struct lines_text *base = &lines->sides[0], *own = &lines->sides[1];
    size_t a = hunk->to, b = hunk->own_to;

    while (a < base->count && b < own->count && !base->changed[a] && !own->changed[b])
        a++, b++;
    *hunk = (struct hunk){a, a, b, b};
    while (hunk->to < base->count && base->changed[hunk->to])
        hunk->to++;
    while (hunk->own_to < own->count && own->changed[hunk->own_to])
        hunk->own_to++;
    return hunk->to > hunk->from || hunk->own_to > hunk->own_from;
}

static bool add_lines(struct buf *text, const struct lines_text *side, size_t from,
                      size_t to)
{
    return buf_append(text, side->text + side->starts[from],
                      side->starts[to] - side->starts[from]);
}

static bool are_same(const struct lines lines[2], const struct hunk hunks[2])
{
    const struct lines_text *one = &lines[0].sides[1], *other = &lines[1].sides[1];
    size_t a = one->starts[hunks[0].own_from], b = other->starts[hunks[1].own_from];
    size_t len = one->starts[hunks[0].own_to] - a;

    return hunks[0].from == hunks[1].from && hunks[0].to == hunks[1].to &&
           other->starts[hunks[1].own_to] - b == len &&
           memcmp(one->text + a, other->text + b, len) == 0;
}

/* False if changes of both sides touch, or there is no memory. */
static bool merge_lines(const struct lines lines[2], struct buf *ret_text)
{
    const struct lines_text *base = &lines[0].sides[0];
    struct hunk hunks[2] = {{0}, {0}};
    bool has[2] = {next_hunk(&lines[0], &hunks[0]), next_hunk(&lines[1], &hunks[1])};
    size_t at = 0;

    while (has[0] || has[1]) {
        int side = !has[0] || (has[1] && hunks[1].from < hunks[0].from);
        bool both = has[0] && has[1] && are_same(lines, hunks);
        if (has[0] && has[1] && !both && hunks[!side].from <= hunks[side].to)
            return false;
        if (!add_lines(ret_text, base, at, hunks[side].from) ||
            !add_lines(ret_text, &lines[side].sides[1], hunks[side].own_from,
                       hunks[side].own_to))
            return false;
        at = hunks[side].to;
        for (int i = 0; i < 2; i++)
            if (both || i == side)
                has[i] = next_hunk(&lines[i], &hunks[i]);
    }
    return add_lines(ret_text, base, at, base->count);
}

static bool merge_texts(const struct buf *base, const struct content sides[2],
                        struct buf *ret_text)
{
    struct lines lines[2] = {0};
    bool is_merged = true;

    for (int i = 0; i < 2 && is_merged; i++) {
        uint64_t steps = STEPS_MAX;
        is_merged =
            lines_compare(base->data ? base->data : "", base->len, sides[i].bytes.data,
                          sides[i].bytes.len, &steps, &lines[i]) == 0;
    }
    is_merged = is_merged && merge_lines(lines, ret_text);
    for (int i = 0; i < 2; i++)
        lines_done(&lines[i]);
    return is_merged;
}

int apply_merge(const struct apply *apply, const struct cay_change *change, int to,
                struct cay_error *err)
{
    struct buf base, merged;
    struct content sides[2] = {0};
    int result = 0;

    if (!S_ISREG(change->before.mode) || !S_ISREG(change->after.mode))
        return 0;
    buf_init(&base, TEXT_MAX + (128 << 10));
    buf_init(&merged, 2 * (size_t)TEXT_MAX);
    for (int i = 0; i < 2 && !result; i++)
        result = content_load(apply->diff, change, (enum diff_side)i, &sides[i], err);
    bool is_text = !result && !sides[0].is_binary && !sides[1].is_binary &&
                   sides[0].bytes.len <= TEXT_MAX && sides[1].bytes.len <= TEXT_MAX;
    if (is_text && load_base(apply->dir, change->path, &base) &&
        merge_texts(&base, sides, &merged)) {
        int error = to < 0 ? 0 : io_write(to, merged.data ? merged.data : "", merged.len);
        result = error ? cay_fail_errno(err, -error, APPLY_OP, change->path) : 1;
    }
    for (int i = 0; i < 2; i++)
        content_done(&sides[i]);
    buf_done(&base);
    buf_done(&merged);
    return result;
}
