/* SPDX-License-Identifier: Apache-2.0 */

/* Files put together.  They are written beside the destination, a piece at a time between
 * what others ask for, and take its name when they are whole; of each no more is read
 * than it had when its turn came.  So the destination is new or as it was, whatever
 * happens to the sources meanwhile. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keep.h"

enum { PIECE = 256 << 10, PIECES_AT_A_TIME = 16, COMPOSING_MAX = 16 };

static const char op[] = "files.compose";

struct compose {
    struct task task;
    char user[USER_MAX];
    char path[PATH_MAX], draft[PATH_MAX];
    struct buf sources; /* their paths */
    size_t next;        /* where that of the next begins */
    int to, from;       /* -1: none is being read */
    uint64_t left;      /* of `from` */
    uint64_t offset;    /* bytes written to `to` */
};

static void compose_done(struct task *task)
{
    struct compose *compose = (struct compose *)task;

    if (compose->to >= 0)
        (void)close(compose->to);
    if (compose->from >= 0)
        (void)close(compose->from);
    buf_done(&compose->sources);
    free(compose);
}

/* --- Beginning --- */

/* What the user cannot read at the destination is none of the sources, which he can. */
static int check_destination(cay_files *files, const char *path, struct stat *ret_st,
                             struct cay_error *err)
{
    AUTO_FD fd = -1;
    int code = cay_files_descriptor(files, path, CAY_DESCRIPTOR_READ, &fd, err);

    if (code == CAY_E_NOT_A_FILE)
        return code;
    if (code || fstat(fd, ret_st) != 0)
        *ret_st = (struct stat){0};
    return CAY_OK;
}

static int open_source(cay_files *files, const char *path, int *ret_fd,
                       struct stat *ret_st, struct cay_error *err)
{
    int code = cay_files_descriptor(files, path, CAY_DESCRIPTOR_READ, ret_fd, err);

    if (!code && fstat(*ret_fd, ret_st) != 0)
        code = cay_fail_errno(err, errno, op, path);
    return code;
}

static int check_source(cay_files *files, const char *path, const struct stat *to,
                        struct cay_error *err)
{
    AUTO_FD fd = -1;
    struct stat st;
    int code = open_source(files, path, &fd, &st, err);

    if (!code && st.st_dev == to->st_dev && st.st_ino == to->st_ino)
        code = cay_fail(err, CAY_E_INVALID, 0, op, path,
                        "the destination is one of the sources",
                        "put them together under another name");
    return code;
}

static int check_paths(struct keep *keep, const struct question *question,
                       struct compose *compose, cay_files *files, struct cay_error *err)
{
    const char *user = question->head.user;
    char path[PATH_MAX];
    struct stat to;
    int code = entry_path(keep, user, question->strings[0], compose->path, err);

    if (!code)
        code = check_destination(files, compose->path, &to, err);
    for (uint32_t i = 1; i < question->head.count && !code; i++) {
        code = entry_path(keep, user, question->strings[i], path, err);
        if (!code)
            code = check_source(files, path, &to, err);
        if (!code)
            strings_add(&compose->sources, path);
    }
    return !code && compose->sources.failed ? cay_fail_memory(err, op) : code;
}

static int open_draft(struct compose *compose, cay_files *files, struct cay_error *err)
{
    size_t dir = (size_t)(strrchr(compose->path, '/') - compose->path);
    uint64_t number = 0;

    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return cay_fail_errno(err, errno, op, "random");
    int len = snprintf(compose->draft, sizeof compose->draft, "%.*s/.compose-%016llx",
                       (int)dir, compose->path, (unsigned long long)number);
    if (len >= (int)sizeof compose->draft)
        return cay_fail_errno(err, ENAMETOOLONG, op, compose->path);
    return cay_files_descriptor(files, compose->draft, CAY_DESCRIPTOR_WRITE, &compose->to,
                                err);
}

/* --- Going on --- */

static int finish(struct compose *compose, cay_files *files, struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_REPLACE};
    struct names names;
    int code = cay_files_move(files, compose->draft, compose->path, &options, err);

    if (code)
        return code;
    names_read(files, &names);
    const struct entry entry = {compose->path, compose->path, NULL};
    return entry_tell(files, &names, &entry, compose->task.channel, err);
}

static int open_next(struct compose *compose, cay_files *files, struct cay_error *err)
{
    const char *path = compose->sources.data + compose->next;
    struct stat st;
    int code = open_source(files, path, &compose->from, &st, err);

    if (code)
        return code;
    compose->left = (uint64_t)st.st_size;
    compose->next += strlen(path) + 1;
    return CAY_OK;
}

/* PID 1 allocates the pages, so that the sandbox's memory limit counts them. */
static int copy_piece(struct compose *compose, cay_files *files, struct cay_error *err)
{
    static char piece[PIECE];
    size_t wanted = compose->left < PIECE ? (size_t)compose->left : PIECE;
    ssize_t got = wanted ? read(compose->from, piece, wanted) : 0;

    if (got <= 0) {
        (void)close(TAKE_FD(compose->from));
        return got == 0 ? CAY_OK : cay_fail_errno(err, errno, op, compose->path);
    }
    int code = cay_files_reserve(files, compose->to, compose->offset, (uint64_t)got, err);
    if (code)
        return code;
    compose->left -= (uint64_t)got;
    compose->offset += (uint64_t)got;
    for (ssize_t done = 0; done < got;) {
        ssize_t put = write(compose->to, piece + done, (size_t)(got - done));
        if (put < 0)
            return cay_fail_errno(err, errno, op, compose->path);
        done += put;
    }
    return CAY_OK;
}

static void go_on(struct keep *keep, struct task *task)
{
    struct compose *compose = (struct compose *)task;
    struct cay_error error = {0};
    cay_files *files = keep_files(keep, compose->user, &error);
    int code = files ? CAY_OK : error.code;

    for (int i = 0; i < PIECES_AT_A_TIME && !code && !task->is_over; i++) {
        if (compose->from >= 0) {
            code = copy_piece(compose, files, &error);
        } else if (compose->next < compose->sources.len) {
            code = open_next(compose, files, &error);
        } else {
            code = finish(compose, files, &error);
            task->is_over = true;
        }
    }
    if (!code)
        return;
    if (keep_is_gone(keep, code))
        keep_end();
    if (files)
        (void)!cay_files_delete(files, compose->draft, NULL, NULL);
    (void)tell_failed(task->channel, 0, &error);
    task->is_over = true;
}

static int check_room(const struct keep *keep, struct cay_error *err)
{
    int count = 0;

    for (const struct task *task = keep->tasks; task; task = task->next)
        count += task->done == compose_done;
    if (count < COMPOSING_MAX)
        return CAY_OK;
    return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                    "too many files are being put together", "wait for some of them");
}

/* Strings: the destination, then the sources in order. */
int keep_compose(struct keep *keep, struct question *question, struct cay_error *err)
{
    cay_files *files = keep_files(keep, question->head.user, err);
    int code = files ? check_room(keep, err) : err->code;

    if (code)
        return code;
    struct compose *compose = calloc(1, sizeof *compose);
    if (!compose)
        return cay_fail_memory(err, op);
    compose->to = compose->from = compose->task.channel = -1;
    buf_init(&compose->sources, (size_t)question->head.count * PATH_MAX);
    code = check_paths(keep, question, compose, files, err);
    if (!code)
        code = open_draft(compose, files, err);
    if (code) {
        compose_done(&compose->task);
        return code;
    }
    cay_copy_text(compose->user, sizeof compose->user, question->head.user);
    compose->task.channel = question->channel;
    question->channel = -1;
    compose->task.done = compose_done;
    compose->task.tick = go_on;
    keep_add(keep, &compose->task);
    return CAY_OK;
}
