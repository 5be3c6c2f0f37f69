/* SPDX-License-Identifier: Apache-2.0 */

/* A place that has a cay_files handle. */
#include <stdlib.h>
#include <string.h>

#include "agent/host-tree.h"
#include "agent/place.h"
#include "base/auto.h"
#include "base/error.h"

enum { ENTRIES_MAX = 1000000 };

static int read_part(struct place *place, const char *path, uint64_t offset, uint64_t max,
                     struct cay_content *ret_content, uint64_t *ret_total,
                     struct cay_error *err)
{
    const struct cay_read_options options = {
        .size = sizeof options, .offset = offset, .max = max};
    struct cay_page page;

    int code = cay_files_read_bytes(place->files, path, &options, &page, err);
    if (code)
        return code;
    *ret_content = (struct cay_content){page.text, page.len};
    *ret_total = page.total;
    return CAY_OK;
}

static int write_all(struct place *place, const char *path, const void *data, size_t len,
                     unsigned flags, const struct cay_pin *pin, struct cay_error *err)
{
    const struct cay_write_options options = {
        .size = sizeof options, .flags = flags, .pin = pin};

    return cay_files_write(place->files, path, data, len, &options, err);
}

static bool pin(struct place *place, const char *path, struct cay_pin *ret_pin)
{
    return cay_files_pin(place->files, path, ret_pin, NULL) == CAY_OK;
}

static int read_to(struct place *place, const char *path, int fd,
                   struct cay_stat *ret_stat, struct cay_error *err)
{
    return cay_files_read_to(place->files, path, fd, ret_stat, err);
}

static int write_from(struct place *place, const char *path, int fd, unsigned flags,
                      uint64_t *ret_bytes, struct cay_error *err)
{
    const struct cay_write_options options = {.size = sizeof options, .flags = flags};

    return cay_files_write_from(place->files, path, fd, &options, ret_bytes, err);
}

static int get_stat(struct place *place, const char *path, bool no_follow,
                    struct cay_stat *ret_stat, struct cay_error *err)
{
    return cay_files_stat(place->files, path, no_follow, ret_stat, err);
}

/* --- Lists ----------------------------------------------------------------------------
 */

static int add_page(struct cay_listing *listing, struct cay_listing *page,
                    const char *path, struct cay_error *err)
{
    size_t count = listing->count + page->count;

    if (count > ENTRIES_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, "file.list", path,
                        "the directory has more than a million entries",
                        "list the directories in it one by one");
    struct cay_entry *grown =
        reallocarray(listing->entries, count + !count, sizeof *listing->entries);
    if (!grown)
        return cay_fail_memory(err, "file.list");
    listing->entries = grown;
    for (size_t i = 0; i < page->count; i++)
        grown[listing->count + i] = page->entries[i];
    listing->count = count;
    page->count = 0;
    return CAY_OK;
}

/* Page by page, so that memory grows with what there is. */
static int list_all(const struct place *place, const char *path,
                    struct cay_list_options *options, struct cay_listing *ret_listing,
                    struct cay_error *err)
{
    bool more = true;

    while (more) {
        struct cay_listing page = {0};
        if (ret_listing->count)
            options->after = ret_listing->entries[ret_listing->count - 1].path;
        int code = cay_files_list(place->files, path, options, &page, err);
        more = page.truncated && page.count;
        if (!code)
            code = add_page(ret_listing, &page, path, err);
        cay_listing_done(&page);
        if (code)
            return code;
    }
    return CAY_OK;
}

/* Paths come in the spelling of the handle; what is wanted is the part below `top`. */
static void make_relative(struct cay_listing *listing, const char *top)
{
    size_t len = strlen(top);

    while (len && top[len - 1] == '/')
        len--;
    for (size_t i = 0; i < listing->count; i++) {
        char *path = listing->entries[i].path;
        if (strncmp(path, top, len) == 0 && path[len] == '/')
            memmove(path, path + len + 1, strlen(path + len + 1) + 1);
    }
}

static int list(struct place *place, const char *path, bool recursive, bool with_stat,
                struct cay_listing *ret_listing, struct cay_error *err)
{
    struct cay_list_options options = {.size = sizeof options,
                                       .flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES |
                                                CAY_LIST_LINKS | CAY_LIST_OTHER |
                                                (with_stat ? (unsigned)CAY_LIST_STAT : 0),
                                       .pattern = recursive ? NULL : "*"};
    struct cay_listing listing = {0};
    struct cay_location top;
    struct cay_stat stat;

    int code = cay_files_stat(place->files, path, false, &stat, err);
    if (code)
        return code;
    if (stat.type != CAY_TYPE_DIRECTORY)
        return cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, "file.list", path,
                        "is not a directory", "name the directory the file is in");
    code = cay_files_locate(place->files, path, CAY_ACCESS_READ, &top, err);
    if (code)
        return code;
    code = list_all(place, path, &options, &listing, err);
    if (!code) {
        make_relative(&listing, top.path);
        *ret_listing = listing;
    } else {
        cay_listing_done(&listing);
    }
    cay_location_done(&top);
    return code;
}

/* --- Names ----------------------------------------------------------------------------
 */

static int read_link(struct place *place, const char *path, char **ret_target,
                     struct cay_error *err)
{
    return cay_files_read_link(place->files, path, ret_target, err);
}

static int get_access(struct place *place, const char *path, const struct cay_stat *stat,
                      struct cay_error *err)
{
    (void)stat;
    return cay_files_access(place->files, path, err);
}

static int make_directory(struct place *place, const char *path, unsigned flags,
                          struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options, .flags = flags};

    return cay_files_mkdir(place->files, path, &options, err);
}

static int make_private(struct place *place, const char *path, struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options, .mode = 0700};

    return cay_files_mkdir(place->files, path, &options, err);
}

static int remove_all(struct place *place, const char *path, struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_RECURSIVE};

    return cay_files_delete(place->files, path, &options, err);
}

/* --- Directories of the host ----------------------------------------------------------
 */

static int copy_tree(cay_files *from, const char *source, cay_files *to,
                     const char *destination, struct cay_transfer *ret_transfer,
                     struct cay_error *err)
{
    struct cay_tree_result result;

    int code = cay_files_copy_tree(from, source, to, destination, NULL, &result, err);
    *ret_transfer = (struct cay_transfer){
        .files = result.files, .bytes = result.bytes, .skipped = result.skipped};
    return code;
}

static int upload(struct place *place, const char *local, const char *path,
                  struct cay_transfer *ret_transfer, struct cay_error *err)
{
    cay_files *host = NULL;

    int code = host_tree_open(local, false, &host, err);
    if (!code)
        code = copy_tree(host, HOST_TREE_TOP, place->files, path, ret_transfer, err);
    cay_files_free(host);
    return code;
}

/* What is to be read is looked at first, or a wrong name would leave a new directory. */
static int download(struct place *place, const char *path, const char *local,
                    struct cay_transfer *ret_transfer, struct cay_error *err)
{
    cay_files *host = NULL;
    struct cay_stat stat;

    int code = cay_files_stat(place->files, path, false, &stat, err);
    if (!code && stat.type != CAY_TYPE_DIRECTORY)
        code = cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, "directory.download", path,
                        "is not a directory", "download a file by itself");
    if (!code)
        code = host_tree_open(local, true, &host, err);
    if (!code)
        code = copy_tree(place->files, path, host, HOST_TREE_TOP, ret_transfer, err);
    cay_files_free(host);
    return code;
}

static char *base_of(struct place *place)
{
    struct cay_location top;

    if (cay_files_locate(place->files, ".", 0, &top, NULL) != CAY_OK)
        return NULL;
    char *base = TAKE_PTR(top.path);
    cay_location_done(&top);
    return base;
}

static void close_files(struct place *place)
{
    cay_files_free(place->files);
}

static const struct place_ops ops = {
    .read = read_part,
    .write = write_all,
    .pin = pin,
    .read_to = read_to,
    .write_from = write_from,
    .stat = get_stat,
    .list = list,
    .read_link = read_link,
    .access = get_access,
    .mkdir = make_directory,
    .mkdir_private = make_private,
    .remove = remove_all,
    .upload = upload,
    .download = download,
    .base = base_of,
    .close = close_files,
    .is_near = true,
};

void place_of_files(cay_files *files, struct place *ret_place)
{
    *ret_place = (struct place){.ops = &ops, .files = files};
}
