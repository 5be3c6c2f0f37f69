/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/handle.h"
#include "files/tar-filter.h"
#include "files/tar-options.h"
#include "files/tar-receive.h"
#include "files/tar-unpack.h"

/* Three parts that trust each other as little as possible: the archive is read in a
 * confined process (tar-receive.c, tar-reader.c), what that says is checked
 * (tar-filter.c), and only then acted on (tar-unpack.c). */

#define OP "files.import"

enum { DRAIN_MAX = 1 << 20, DRAIN_MS = 50 };

/* The padding behind the archive is taken too, or its sender would see a broken pipe; but
 * not waited for long: who sends by a connection may keep that open. */
static void drain(int fd)
{
    struct pollfd input = {.fd = fd, .events = POLLIN};
    char padding[4096];
    size_t left = DRAIN_MAX / sizeof padding;

    while (left-- && poll(&input, 1, DRAIN_MS) == 1 && input.revents & POLLIN &&
           read(fd, padding, sizeof padding) > 0)
        continue;
}

static uint32_t depth_of(const char *rel)
{
    uint32_t depth = *rel != '\0';

    for (; *rel; rel++)
        depth += *rel == '/';
    return depth;
}

static int take_item(void *cookie, const struct tar_item *item, struct cay_error *err)
{
    return unpack_item(cookie, item, err);
}

static int import(const cay_files *files, const struct target *target, int fd,
                  const struct cay_tar_options *options,
                  struct cay_tar_result *ret_result, struct cay_error *err)
{
    AUTO_FREE struct tar_filter *filter = calloc(1, sizeof *filter);
    AUTO_FREE struct unpack *unpack = malloc(sizeof *unpack);
    const struct tar_input input = {
        .op = OP, .fd = fd, .take = take_item, .cookie = unpack};

    if (!filter || !unpack)
        return cay_fail_memory(err, OP);
    filter->max_entries = options->max_entries;
    filter->max_bytes = options->max_bytes;
    filter->max_depth = options->max_depth;
    filter->base_depth = depth_of(target->rel);
    unpack_init(unpack, files, target, options->max_entries);
    int code = tar_receive(&input, filter, err);
    if (!code)
        drain(fd);
    unpack_done(unpack);
    *ret_result = unpack->result;
    return code;
}

int cay_files_import(cay_files *files, const char *path, int fd,
                     const struct cay_tar_options *options,
                     struct cay_tar_result *ret_result, struct cay_error *err)
{
    struct cay_tar_options known;
    struct cay_approval shown = {.op = CAY_OP_IMPORT};
    AUTO_TARGET target = TARGET_NONE;
    AUTO_PARENT parent = PARENT_NONE;

    *ret_result = (struct cay_tar_result){0};
    int code = tar_take_options(options, OP, 0, &known, err);
    if (!code)
        code = tar_check_descriptor(fd, O_RDONLY, OP, err);
    if (!code)
        code =
            target_find(files, OP, path, CAY_ACCESS_WRITE, TARGET_FOLLOW, &target, err);
    if (!code && target.fd >= 0)
        code = target_must_be_directory(&target, err);
    if (!code)
        code = unpack_check_directory(files, &target, err);
    if (!code)
        code = approve(files, &shown, &target, CAY_ACCESS_WRITE, NULL, 0, err);
    if (!code)
        code = unpack_open_directory(files, &target, &parent, err);
    if (code)
        return code;
    code = import(files, &target, fd, &known, ret_result, err);
    if (code && !ret_result->entries)
        parent_undo(&parent);
    return code;
}
