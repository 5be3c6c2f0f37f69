/* SPDX-License-Identifier: Apache-2.0 */
#include "files/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "sys/path.h"

/* Order in bounded memory: each directory on the way keeps its smallest names that are
 * not reported yet, sorted, as many as fit its share of the memory.  When they are used
 * up, the directory is read again for the names after the last one.
 *
 * A name that may be a directory is kept twice, as "a" and as "a/": the second sorts
 * where the paths below it do. */

enum {
    OPEN_MAX_FRAMES = 64,  /* directories open at a time */
    READ_SIZE = 32 << 10,  /* bytes for one getdents64() */
    NAMES_MAX = 16 << 20,  /* bytes of names, all directories together... */
    NAMES_MIN = 256 << 10, /* ...but at least so many for each */
    STEPS_PER_CLOCK = 64   /* steps between two reads of the clock */
};

struct frame {
    int fd; /* -1: closed to save descriptors */
    dev_t dev;
    ino_t ino;
    char *real;
    size_t rel_len;
    uint64_t mark;
    char *names; /* type byte, key, NUL; and so on */
    size_t names_len, names_room;
    uint32_t *items; /* where each starts in names; sorted once filled */
    size_t count, room, next;
    size_t counted;          /* this frame's part of walk->names_total */
    bool more;               /* keys after the kept ones may exist */
    char last[NAME_MAX + 2]; /* keys up to this one have been reported */
    char most[NAME_MAX + 2]; /* while filling: keys after this one are not kept */
};

struct walk {
    const struct fs *fs;
    const char *op;
    int root;
    uint32_t max_depth;
    uint64_t deadline_ns;
    char *after;
    struct frame *frames;
    size_t count, room;
    size_t names_total;
    unsigned steps;
    bool was_denied;
    char rel[PATH_MAX];
    char buffer[READ_SIZE] __attribute__((aligned(8)));
};

/* --- Deadlines -----------------------------------------------------------------------
 */

uint64_t walk_deadline(uint32_t timeout_ms)
{
    return timeout_ms ? clock_ns() + timeout_ms * (uint64_t)1000000 : 0;
}

int walk_check_deadline(const char *op, uint64_t deadline_ns, struct cay_error *err)
{
    if (!deadline_ns || clock_ns() < deadline_ns)
        return CAY_OK;
    return cay_fail(err, CAY_E_TIMEOUT, ETIMEDOUT, op, NULL, "the timeout expired",
                    "name a smaller directory or a narrower pattern, or allow more time");
}

/* --- The names of one directory ------------------------------------------------------
 */

static const char *key_of(const struct frame *frame, size_t item)
{
    return frame->names + frame->items[item] + 1;
}

static int compare_items(const void *left, const void *right, void *names)
{
    return strcmp((char *)names + *(const uint32_t *)left + 1,
                  (char *)names + *(const uint32_t *)right + 1);
}

static void sort_names(struct frame *frame)
{
    if (frame->count)
        qsort_r(frame->items, frame->count, sizeof *frame->items, compare_items,
                frame->names);
}

/* Adds name and ending as one key, unless it was reported already. */
static bool add_key(struct frame *frame, unsigned char type, const char *name, size_t len,
                    const char *ending)
{
    char key[NAME_MAX + 2];
    size_t end = strlen(ending);

    memcpy(key, name, len);
    memcpy(key + len, ending, end + 1);
    len += end;
    if (strcmp(key, frame->last) <= 0)
        return true;
    if (*frame->most && strcmp(key, frame->most) > 0)
        return true;
    if (!array_reserve(&frame->names, &frame->names_room, frame->names_len + len + 2,
                       1) ||
        !array_reserve(&frame->items, &frame->room, frame->count + 1,
                       sizeof *frame->items))
        return false;
    frame->items[frame->count++] = (uint32_t)frame->names_len;
    frame->names[frame->names_len] = (char)type;
    memcpy(frame->names + frame->names_len + 1, key, len + 1);
    frame->names_len += len + 2;
    return true;
}

/* Drops the greater half of the names, which are read again later. */
static bool halve(struct frame *frame)
{
    size_t keep = frame->count / 2, len = 0;
    char *names = malloc(frame->names_len);

    if (!names)
        return false;
    sort_names(frame);
    for (size_t i = 0; i < keep; i++) {
        const char *from = frame->names + frame->items[i];
        size_t size = strlen(from + 1) + 2;
        memcpy(names + len, from, size);
        frame->items[i] = (uint32_t)len;
        len += size;
    }
    frame->names_room = frame->names_len;
    free(frame->names);
    frame->names = names;
    frame->names_len = len;
    frame->count = keep;
    frame->more = true;
    memcpy(frame->most, key_of(frame, keep - 1), strlen(key_of(frame, keep - 1)) + 1);
    return true;
}

static bool add_entry(struct frame *frame, const struct dirent64 *entry)
{
    size_t len = strlen(entry->d_name);
    bool below =
        entry->d_type == DT_DIR || entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN;

    if (len > NAME_MAX || strcmp(entry->d_name, ".") == 0 ||
        strcmp(entry->d_name, "..") == 0)
        return true;
    return add_key(frame, entry->d_type, entry->d_name, len, "") &&
           (!below || add_key(frame, entry->d_type, entry->d_name, len, "/"));
}

static void empty_names(struct walk *walk, struct frame *frame)
{
    walk->names_total -= frame->counted;
    frame->counted = 0;
    free(frame->names);
    free(frame->items);
    frame->names = NULL;
    frame->items = NULL;
    frame->names_len = frame->names_room = frame->count = frame->room = frame->next = 0;
}

/* Reads the directory for the names after `last`; 0 or a negative errno. */
static int fill(struct walk *walk, struct frame *frame)
{
    empty_names(walk, frame);
    size_t left = walk->names_total < NAMES_MAX ? NAMES_MAX - walk->names_total : 0;
    size_t share = left / 2 > NAMES_MIN ? left / 2 : NAMES_MIN;

    frame->more = false;
    *frame->most = '\0';
    if (lseek(frame->fd, 0, SEEK_SET) != 0)
        return -errno;
    for (;;) {
        ssize_t len = getdents64(frame->fd, (void *)walk->buffer, sizeof walk->buffer);
        if (len < 0)
            return -errno;
        if (len == 0)
            break;
        if (walk->deadline_ns && clock_ns() >= walk->deadline_ns)
            return -ETIMEDOUT;
        for (ssize_t at = 0; at < len;) {
            const struct dirent64 *entry = (const void *)(walk->buffer + at);
            at += entry->d_reclen;
            if (!add_entry(frame, entry))
                return -ENOMEM;
        }
        if (frame->names_len > share && !halve(frame))
            return -ENOMEM;
    }
    sort_names(frame);
    frame->counted = frame->names_room;
    walk->names_total += frame->counted;
    return 0;
}

/* --- The directories on the way ------------------------------------------------------
 */

static struct frame *top(struct walk *walk)
{
    return &walk->frames[walk->count - 1];
}

static void pop(struct walk *walk)
{
    struct frame *frame = top(walk);

    if (frame->fd >= 0)
        (void)close(frame->fd);
    empty_names(walk, frame);
    free(frame->real);
    walk->count--;
}

/* Where to start in a directory so as not to read what comes before walk->after. */
static void set_floor(struct walk *walk, struct frame *frame)
{
    const char *rest = walk->after;
    size_t len = frame->rel_len;

    if (!rest || strncmp(rest, walk->rel, len) != 0 || (len && rest[len] != '/'))
        return;
    rest += len + (len > 0);
    size_t name = strcspn(rest, "/");
    if (name > NAME_MAX)
        name = NAME_MAX;
    memcpy(frame->last, rest, name);
    frame->last[name] = '\0';
}

static int push(struct walk *walk, int fd, const char *real, uint64_t mark)
{
    struct stat st;
    AUTO_FD own = fd;

    if (fstat(fd, &st) != 0)
        return -errno;
    if (!array_reserve(&walk->frames, &walk->room, walk->count + 1, sizeof *walk->frames))
        return -ENOMEM;
    struct frame *frame = &walk->frames[walk->count];
    *frame = (struct frame){.fd = -1,
                            .dev = st.st_dev,
                            .ino = st.st_ino,
                            .mark = mark,
                            .more = true,
                            .rel_len = strlen(walk->rel)};
    frame->real = strdup(real);
    if (!frame->real)
        return -ENOMEM;
    frame->fd = TAKE_FD(own);
    set_floor(walk, frame);
    walk->count++;
    if (walk->count > OPEN_MAX_FRAMES) {
        struct frame *oldest = &walk->frames[walk->count - 1 - OPEN_MAX_FRAMES];
        if (oldest->fd >= 0)
            (void)close(TAKE_FD(oldest->fd));
    }
    return 0;
}

/* Opens a directory that was closed to save descriptors; 0 or a negative errno. */
static int hold(struct walk *walk, struct frame *frame)
{
    struct stat st;

    if (frame->fd >= 0)
        return 0;
    AUTO_FD fd = walk->fs->open(walk->fs, walk->root, frame->real, O_RDONLY | O_DIRECTORY,
                                0, PATH_PLAIN);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (st.st_dev != frame->dev || st.st_ino != frame->ino)
        return -ENOENT;
    frame->fd = TAKE_FD(fd);
    return 0;
}

bool walk_may_skip(int sys_errno)
{
    switch (sys_errno) {
    case 0:
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case EACCES:
    case EPERM:
    case EXDEV:
    case EAGAIN:
    case ENAMETOOLONG:
        return true;
    default:
        return false;
    }
}

static int fail_if_serious(struct walk *walk, int error, struct cay_error *err)
{
    if (error == -ETIMEDOUT)
        return walk_check_deadline(walk->op, walk->deadline_ns, err);
    if (error == -EACCES || error == -EPERM)
        walk->was_denied = true;
    return error >= 0 || walk_may_skip(-error)
               ? CAY_OK
               : fs_fail(walk->fs, -error, walk->op, NULL, err);
}

/* --- Steps ---------------------------------------------------------------------------
 */

/* Appends the key's name to walk->rel; false if that is too long. */
static bool set_rel(struct walk *walk, const struct frame *frame, const char *key)
{
    size_t len = frame->rel_len, name = strcspn(key, "/");

    if (len + 1 + name >= sizeof walk->rel)
        return false;
    if (len)
        walk->rel[len++] = '/';
    memcpy(walk->rel + len, key, name);
    walk->rel[len + name] = '\0';
    return true;
}

/* Whether nothing at or below walk->rel follows walk->after. */
static bool is_before_page(const struct walk *walk, enum walk_event event)
{
    if (!walk->after)
        return false;
    if (event == WALK_NAME)
        return strcmp(walk->rel, walk->after) <= 0;
    size_t len = strlen(walk->rel);
    int order = strncmp(walk->rel, walk->after, len);
    return order < 0 || (order == 0 && (unsigned char)walk->after[len] > '/');
}

static unsigned char type_of(const struct fs *fs, int dir, const char *name)
{
    struct stat st;

    if (fs->stat(fs, dir, name, &st) != 0)
        return DT_UNKNOWN;
    return (unsigned char)IFTODT(st.st_mode);
}

/* Fills in the step for the frame's next item; false to skip it. */
static bool describe(struct walk *walk, struct frame *frame, struct walk_step *step)
{
    const char *key = key_of(frame, frame->next);
    unsigned char type = (unsigned char)key[-1];

    frame->next++;
    /* A directory that is being changed may list a name twice. */
    if (strcmp(key, frame->last) == 0)
        return false;
    memcpy(frame->last, key, strlen(key) + 1);
    if (!set_rel(walk, frame, key))
        return false;
    size_t skip = frame->rel_len + (frame->rel_len > 0);
    *step = (struct walk_step){.event = strchr(key, '/') ? WALK_BELOW : WALK_NAME,
                               .rel = walk->rel,
                               .name = walk->rel + skip,
                               .dir = frame->fd,
                               .real = frame->real,
                               .depth = (uint32_t)walk->count,
                               .type = type,
                               .mark = frame->mark};
    if (is_before_page(walk, step->event))
        return false;
    if (type == DT_UNKNOWN)
        step->type = type_of(walk->fs, frame->fd, step->name);
    if (step->event == WALK_NAME)
        return step->type != DT_UNKNOWN;
    return (step->type == DT_DIR || step->type == DT_LNK) &&
           step->depth < walk->max_depth;
}

int walk_next(struct walk *walk, struct walk_step *ret_step, struct cay_error *err)
{
    while (walk->count) {
        struct frame *frame = top(walk);
        bool is_used_up = frame->next == frame->count;

        if (walk->steps++ % STEPS_PER_CLOCK == 0)
            TRY(walk_check_deadline(walk->op, walk->deadline_ns, err));
        if (is_used_up && !frame->more) {
            pop(walk);
            continue;
        }
        int error = hold(walk, frame);
        if (!error && is_used_up)
            error = fill(walk, frame);
        if (error) {
            TRY(fail_if_serious(walk, error, err));
            pop(walk);
            continue;
        }
        if (frame->next < frame->count && describe(walk, frame, ret_step))
            return 1;
    }
    return 0;
}

bool walk_join(char out[PATH_MAX], const char *dir, const char *name)
{
    size_t len = strlen(dir), more = strlen(name);

    if (len + 1 + more >= PATH_MAX)
        return false;
    memcpy(out, dir, len);
    if (len)
        out[len++] = '/';
    memcpy(out + len, name, more + 1);
    return true;
}

int walk_enter(struct walk *walk, uint64_t mark, struct cay_error *err)
{
    const struct frame *frame = top(walk);
    const char *name = walk->rel + frame->rel_len + (frame->rel_len > 0);
    char real[PATH_MAX];

    if (!walk_join(real, frame->real, name))
        return CAY_OK;
    int fd =
        walk->fs->open(walk->fs, frame->fd, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    return fail_if_serious(walk, fd < 0 ? fd : push(walk, fd, real, mark), err);
}

bool walk_was_denied(struct walk *walk)
{
    bool was_denied = walk->was_denied;

    walk->was_denied = false;
    return was_denied;
}

int walk_enter_link(struct walk *walk, int dir, const char *real, uint64_t mark,
                    struct cay_error *err)
{
    bool copied;
    /* Opening "." in it would need search permission, not only read permission. */
    int fd = walk->fs->reopen(walk->fs, dir, O_RDONLY | O_DIRECTORY, &copied);

    return fail_if_serious(walk, fd < 0 ? fd : push(walk, fd, real, mark), err);
}

int walk_new(const char *op, int dir, const struct walk_options *options,
             struct walk **ret_walk, struct cay_error *err)
{
    struct walk *walk = malloc(sizeof *walk);

    if (!walk)
        return cay_fail_memory(err, op);
    memset(walk, 0, offsetof(struct walk, buffer));
    walk->fs = options->fs;
    walk->op = op;
    walk->root = options->root;
    walk->max_depth = options->max_depth;
    walk->deadline_ns = options->deadline_ns;
    walk->after = options->after ? strdup(options->after) : NULL;
    int code = options->after && !walk->after ? cay_fail_memory(err, op) : CAY_OK;
    if (!code)
        code = walk_enter_link(walk, dir, options->real, options->mark, err);
    if (code) {
        walk_free(walk);
        return code;
    }
    *ret_walk = walk;
    return CAY_OK;
}

void walk_free(struct walk *walk)
{
    if (!walk)
        return;
    while (walk->count)
        pop(walk);
    free(walk->frames);
    free(walk->after);
    free(walk);
}
