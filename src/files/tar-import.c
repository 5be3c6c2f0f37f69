/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/handle.h"
#include "files/tar-filter.h"
#include "files/tar-options.h"
#include "files/tar-reader.h"
#include "files/tar-unpack.h"
#include "sys/worker.h"

/* Three parts that trust each other as little as possible: the archive is read in a
 * confined process (tar-reader.c), what that says is checked (tar-filter.c), and only
 * then acted on (tar-unpack.c). */

#define OP "files.import"

enum {
    WORKER_MEMORY = 256 << 20,
    WORKER_SECONDS = 3600,
    DRAIN_MAX = 1 << 20,
    DRAIN_MS = 50
};

/* --- In the confined process ---------------------------------------------------------
 */

static ssize_t read_input(void *cookie, void *data, size_t len)
{
    struct pollfd input = {.fd = WORKER_INPUT, .events = POLLIN};

    (void)cookie;
    for (;;) {
        ssize_t got = read(WORKER_INPUT, data, len);
        if (got >= 0 || (errno != EINTR && errno != EAGAIN))
            return got;
        if (errno == EAGAIN)
            (void)poll(&input, 1, -1);
    }
}

static bool send_message(void *cookie, const void *message, size_t len)
{
    ssize_t sent;

    (void)cookie;
    do
        sent = write(WORKER_CHANNEL, message, len);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)len;
}

static void read_archive(void *locale)
{
    const struct tar_reader reader = {.read = read_input, .send = send_message};

    if (locale)
        uselocale(locale);
    tar_read(&reader);
}

/* --- In ours -------------------------------------------------------------------------
 */

static int fail_dead(struct cay_error *err)
{
    return cay_fail(err, CAY_E_KILLED, 0, OP, NULL,
                    "the process that reads the archive died before its end",
                    "the archive may need more than %d MiB of memory to read: split it",
                    WORKER_MEMORY >> 20);
}

static int unpack_all(const struct worker *worker, struct tar_filter *filter,
                      struct unpack *unpack, struct cay_error *err)
{
    AUTO_FREE char *message = malloc(TAR_MESSAGE_MAX + 1);
    struct tar_item item;

    if (!message)
        return cay_fail_memory(err, OP);
    for (;;) {
        ssize_t len = read(worker->channel, message, TAR_MESSAGE_MAX + 1);
        if (len < 0 && errno == EINTR)
            continue;
        if (len <= 0)
            return fail_dead(err);
        int code = tar_filter_take(filter, OP, message, (size_t)len, &item, err);
        if (!code)
            code = unpack_item(unpack, &item, err);
        if (code || item.kind == TAR_END)
            return code;
    }
}

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

static int import(const cay_files *files, const struct target *target, int fd,
                  const struct cay_tar_options *options,
                  struct cay_tar_result *ret_result, struct cay_error *err)
{
    AUTO_LOCALE locale = tar_locale_new();
    AUTO_FREE struct tar_filter *filter = calloc(1, sizeof *filter);
    AUTO_FREE struct unpack *unpack = malloc(sizeof *unpack);
    struct worker_job job = {.run = read_archive,
                             .cookie = locale,
                             .input = fd,
                             .memory = WORKER_MEMORY,
                             .cpu_seconds = WORKER_SECONDS};
    AUTO_WORKER worker = WORKER_NONE;

    if (!filter || !unpack)
        return cay_fail_memory(err, OP);
    filter->max_entries = options->max_entries;
    filter->max_bytes = options->max_bytes;
    filter->max_depth = options->max_depth;
    filter->base_depth = depth_of(target->rel);
    int code = worker_start(OP, &job, &worker, err);
    if (code)
        return code;
    unpack_init(unpack, files, target, options->max_entries);
    code = unpack_all(&worker, filter, unpack, err);
    if (!code)
        drain(fd);
    unpack_done(unpack);
    *ret_result = unpack->result;
    return code;
}

/* Makes the directory if nothing is there; after that the target holds it. */
static int open_directory(cay_files *files, struct target *target, struct cay_error *err)
{
    AUTO_PARENT parent = PARENT_NONE;
    const char *path = target->path;

    if (target->fd < 0) {
        int code = parent_open(files, target, true, &parent, err);
        if (code)
            return code;
        int error = files->fs->make_directory(files->fs, parent.fd, parent.name, 0777);
        if (error && error != -EEXIST) {
            parent_undo(&parent);
            return target_fail(target, -error, err);
        }
        target_done(target);
        code = target_find(files, OP, path, CAY_ACCESS_WRITE, TARGET_FOLLOW, target, err);
        if (code)
            return code;
    }
    return target_must_be_directory(target, err);
}

int cay_files_import(cay_files *files, const char *path, int fd,
                     const struct cay_tar_options *options,
                     struct cay_tar_result *ret_result, struct cay_error *err)
{
    struct cay_tar_options known;
    struct cay_approval shown = {.op = CAY_OP_IMPORT};
    AUTO_TARGET target = TARGET_NONE;

    *ret_result = (struct cay_tar_result){0};
    int code = tar_take_options(options, OP, &known, err);
    if (!code)
        code = tar_check_descriptor(fd, O_RDONLY, OP, err);
    if (!code)
        code =
            target_find(files, OP, path, CAY_ACCESS_WRITE, TARGET_FOLLOW, &target, err);
    if (!code && target.fd >= 0)
        code = target_must_be_directory(&target, err);
    if (!code)
        code = approve(files, &shown, &target, CAY_ACCESS_WRITE, NULL, 0, err);
    if (!code)
        code = open_directory(files, &target, err);
    return code ? code : import(files, &target, fd, &known, ret_result, err);
}
