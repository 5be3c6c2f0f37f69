/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "files/libarchive.h"
#include "files/tar.h"

/* An archive goes through the reader and the filter as in an import, in one process and
 * into a sink that only looks.  An input that starts with "FRAMES" is instead what a
 * reader says that has been taken over: lengths (two bytes) and messages, straight to the
 * filter. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ENTRIES = 1000, MAX_BYTES = 1 << 20, MAX_DEPTH = 16, BASE_DEPTH = 2 };

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition))                                                                \
            abort();                                                                     \
    } while (0)

struct run {
    const uint8_t *data;
    size_t size, at;
    struct tar_filter filter;
    uint64_t entries, announced, received;
    uint64_t file_size;
    int ended;
};

static void check_plain(const char *path)
{
    size_t depth = 0;

    CHECK(*path != '/');
    while (*path) {
        size_t len = strcspn(path, "/");
        CHECK(len > 0 && len <= 255);
        CHECK(!(len == 1 && path[0] == '.'));
        CHECK(!(len == 2 && path[0] == '.' && path[1] == '.'));
        path += len;
        if (*path == '/')
            CHECK(*++path);
        depth++;
    }
    CHECK(depth <= PATH_MAX / 2);
}

/* Where a link's text leads, step by step from its directory: never above the top. */
static void check_link(const char *path, const char *target)
{
    int depth = BASE_DEPTH;

    for (const char *at = path; *at; at++)
        depth += *at == '/';
    CHECK(*target && *target != '/');
    while (*target) {
        size_t len = strcspn(target, "/");
        if (len == 2 && memcmp(target, "..", 2) == 0)
            depth--;
        else if (len && !(len == 1 && *target == '.'))
            depth++;
        CHECK(depth >= 0);
        target += len + (target[len] == '/');
    }
}

static void look_at(struct run *run, const struct tar_item *item)
{
    int is_entry = item->kind >= TAR_FILE && item->kind <= TAR_SPECIAL;

    if (is_entry && item->kind != TAR_SPECIAL) {
        check_plain(item->path);
        CHECK(item->mode <= (run->filter.is_root ? 07777 : 0777));
        CHECK(item->mtime.tv_nsec >= 0 && item->mtime.tv_nsec < 1000000000);
    }
    run->entries += (uint64_t)is_entry;
    CHECK(run->entries <= MAX_ENTRIES);
    if (item->kind == TAR_FILE) {
        run->file_size = item->size;
        run->announced += item->size;
        CHECK(run->announced <= MAX_BYTES);
    } else if (item->kind == TAR_DATA) {
        run->received += item->len;
        CHECK(item->size + item->len <= run->file_size && item->len <= TAR_DATA_MAX);
        CHECK(run->received <= MAX_BYTES);
    } else if (item->kind == TAR_LINK) {
        CHECK(*item->link);
        if (!run->filter.is_root)
            check_link(item->path, item->link);
    } else if (item->kind == TAR_HARD_LINK) {
        CHECK(*item->link);
        check_plain(item->link);
    } else if (item->kind == TAR_END) {
        run->ended = 1;
    }
}

static bool take(void *cookie, const void *message, size_t len)
{
    struct run *run = cookie;
    struct tar_item item;
    struct cay_error err = {0};

    CHECK(!run->ended);
    int code = tar_filter_take(&run->filter, "fuzz", message, len, &item, &err);
    if (code) {
        CHECK(err.code == code && err.message[0] && err.hint[0]);
        return false;
    }
    look_at(run, &item);
    return !run->ended;
}

/* What comes from our own reader may be refused, but is never malformed. */
static bool take_from_reader(void *cookie, const void *message, size_t len)
{
    struct run *run = cookie;
    struct tar_filter before = run->filter;
    struct tar_item item;

    CHECK(tar_filter_take(&before, "fuzz", message, len, &item, NULL) != CAY_E_PROTOCOL);
    return take(cookie, message, len);
}

static ssize_t give(void *cookie, void *data, size_t len)
{
    struct run *run = cookie;
    size_t left = run->size - run->at;

    len = len < left ? len : left;
    memcpy(data, run->data + run->at, len);
    run->at += len;
    return (ssize_t)len;
}

static void read_as(bool is_root, const uint8_t *data, size_t size)
{
    struct run *run = calloc(1, sizeof *run);

    if (!run)
        return;
    run->filter.is_root = is_root;
    run->data = data;
    run->size = size;
    run->filter.max_entries = MAX_ENTRIES;
    run->filter.max_bytes = MAX_BYTES;
    run->filter.max_depth = MAX_DEPTH;
    run->filter.base_depth = BASE_DEPTH;
    if (size < 6 || memcmp(data, "FRAMES", 6) != 0) {
        const struct tar_reader reader = {.read = give,
                                          .send = take_from_reader,
                                          .cookie = run,
                                          .any_compression = is_root};
        tar_read(&reader);
    } else {
        for (run->at = 6; run->at + 2 <= size;) {
            size_t len = (size_t)data[run->at] | (size_t)data[run->at + 1] << 8;
            run->at += 2;
            len = len < size - run->at ? len : size - run->at;
            /* A copy of its own, so that reading past its end is seen. */
            void *message = malloc(len + !len);
            CHECK(message);
            memcpy(message, data + run->at, len);
            bool goes_on = take(run, message, len);
            free(message);
            if (!goes_on)
                break;
            run->at += len;
        }
    }
    free(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CHECK(libarchive_load("fuzz", NULL) == CAY_OK);
    read_as(false, data, size);
    read_as(true, data, size);
    return 0;
}
