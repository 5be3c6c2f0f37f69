/* SPDX-License-Identifier: Apache-2.0 */
#include <cay/diff.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "field.h"
#include "plain.h"

/* A layer with changed files above one with their old content.  PLAIN lists the upper
 * layer, and looks at each file and reads it; in both layers, or in the upper one. */
struct layers {
    const struct field *field;
    unsigned count;
    uint64_t file_bytes;
    enum cay_diff_format format;
};

static int ignore(void *cookie, enum cay_diff_line line, const char *text, size_t len)
{
    (void)cookie;
    (void)line;
    (void)text;
    (void)len;
    return 0;
}

static bool ours(void *cookie)
{
    const struct layers *layers = cookie;
    int upper = openat(layers->field->dir, "upper", O_RDONLY | O_CLOEXEC);
    int lower = openat(layers->field->dir, "lower", O_RDONLY | O_CLOEXEC);
    const struct cay_diff_layer stack[] = {{.fd = upper, .marks = CAY_DIFF_MARKS_USER},
                                           {.fd = lower, .marks = CAY_DIFF_MARKS_USER}};
    cay_diff *diff = NULL;
    struct cay_error err;
    size_t count = 0;

    bool ok =
        field_ok(cay_diff_compare(&(struct cay_diff_tree){stack + 1, 1},
                                  &(struct cay_diff_tree){stack, 2}, NULL, &diff, &err),
                 &err);
    ok = ok && field_ok(cay_diff_print(diff, layers->format, ignore, NULL, &err), &err);
    if (ok)
        (void)cay_diff_changes(diff, &count);
    cay_diff_free(diff);
    (void)close(upper);
    (void)close(lower);
    return ok && count == layers->count;
}

static bool read_file(int dir, const char *name)
{
    static char data[128 << 10];
    struct stat st;
    ssize_t got = -1;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    while (fd >= 0 && (got = read(fd, data, sizeof data)) > 0)
        continue;
    (void)close(fd);
    return got == 0;
}

static bool walk(const struct layers *layers, bool both)
{
    int upper = openat(layers->field->dir, "upper", O_RDONLY | O_CLOEXEC);
    int lower = openat(layers->field->dir, "lower", O_RDONLY | O_CLOEXEC);
    DIR *list = fdopendir(upper);
    struct dirent *entry;
    unsigned count = 0;

    while (list && (entry = readdir(list)))
        if (entry->d_name[0] != '.' && read_file(upper, entry->d_name) &&
            (!both || read_file(lower, entry->d_name)))
            count++;
    (void)close(lower);
    if (list)
        (void)closedir(list);
    return count == layers->count;
}

static bool plain_upper(void *cookie)
{
    return walk(cookie, false);
}

static bool plain_both(void *cookie)
{
    return walk(cookie, true);
}

static void make_layer(const struct layers *layers, const char *name, const char *text)
{
    char path[64];

    if (mkdirat(layers->field->dir, name, 0755) != 0)
        contest_die(name);
    for (unsigned i = 0; i < layers->count; i++) {
        snprintf(path, sizeof path, "%s/%06u.txt", name, i);
        if (!plain_write_atomic(layers->field->dir, path, text, layers->file_bytes))
            contest_die(path);
    }
}

static void run(struct layers *layers, const char *op, const char *floor,
                bool (*plain)(void *cookie), double most_ratio)
{
    contest_run(&(struct contest){.part = "diffs",
                                  .op = op,
                                  .floor = floor,
                                  .bytes = layers->count * layers->file_bytes,
                                  .rounds = layers->field->quick ? 5 : 50,
                                  .most_ratio = most_ratio,
                                  .run = {ours, plain},
                                  .cookie = layers});
}

void diff_contests(struct field *field, uint64_t bytes)
{
    struct layers names = {field, 1000, bytes, CAY_DIFF_NAMES};
    struct layers unified = {field, 1000, bytes, CAY_DIFF_UNIFIED};
    char *text = field_lines(bytes, false);

    make_layer(&names, "lower", text);
    /* The same size, so that both files are read to their end. */
    text[bytes - 2] ^= 1;
    make_layer(&names, "upper", text);
    free(text);
    run(&names, "diff of 1,000 files, names", "stat, read of both layers", plain_both,
        1.5);
    run(&names, "diff of 1,000 files, names", "stat, read of the upper layer",
        plain_upper, 0);
    run(&unified, "diff of 1,000 files, unified", "stat, read of both layers", plain_both,
        0);
}
