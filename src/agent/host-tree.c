/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/host-tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/modes.h"
#include "base/auto.h"
#include "base/error.h"

/* In this style every byte of a name is itself. */
int host_tree_open(const char *local, bool writable, cay_files **ret_files,
                   struct cay_error *err)
{
    const struct cay_mount mount = {.size = sizeof mount,
                                    .name = HOST_TREE_TOP,
                                    .host = local,
                                    .writable = writable,
                                    .max_file_bytes = CAY_NO_LIMIT};
    const struct cay_policy_config config = {.size = sizeof config,
                                             .style = CAY_STYLE_PATHS,
                                             .mounts = &mount,
                                             .mount_count = 1};
    cay_policy *policy = NULL;

    int code = cay_policy_new(&config, &policy, err);
    if (!code)
        code = cay_files_open(policy, NULL, ret_files, err);
    cay_policy_free(policy);
    return code;
}

int host_tree_spool(const char *local)
{
    int fd = open(local, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd < 0 ? memfd_create("spool", MFD_CLOEXEC) : fd;
}

static int open_spool(const char *local, int *ret_fd, struct cay_error *err)
{
    *ret_fd = host_tree_spool(local);
    return *ret_fd < 0 ? cay_fail_errno(err, errno, "directory.copy", "spool") : CAY_OK;
}

/* --- As an archive --------------------------------------------------------------------
 */

static int upload_archive(struct place *place, const char *local, const char *path,
                          struct cay_transfer *ret_transfer, struct cay_error *err)
{
    struct cay_tar_result out, in;
    cay_files *host = NULL;
    AUTO_FD spool = -1;

    int code = host_tree_open(local, false, &host, err);
    if (!code)
        code = open_spool(local, &spool, err);
    if (!code)
        code = cay_files_export(host, HOST_TREE_TOP, spool, NULL, &out, err);
    cay_files_free(host);
    if (!code && lseek(spool, 0, SEEK_SET) < 0)
        code = cay_fail_errno(err, errno, "directory.copy", "spool");
    if (!code)
        code =
            place->backend->import_tar(place->cookie, place->user, path, spool, &in, err);
    if (!code)
        *ret_transfer = (struct cay_transfer){
            .files = out.files, .bytes = in.bytes, .skipped = out.skipped + in.skipped};
    return code;
}

static int download_archive(struct place *place, const char *path, const char *local,
                            struct cay_transfer *ret_transfer, struct cay_error *err)
{
    struct cay_tar_result out = {0}, in;
    cay_files *host = NULL;
    AUTO_FD spool = -1;

    int code = open_spool("/tmp", &spool, err);
    if (!code)
        code = place->backend->export_tar(place->cookie, place->user, path, spool, &out,
                                          err);
    if (!code && lseek(spool, 0, SEEK_SET) < 0)
        code = cay_fail_errno(err, errno, "directory.copy", "spool");
    if (!code)
        code = host_tree_open(local, true, &host, err);
    if (!code)
        code = cay_files_import(host, HOST_TREE_TOP, spool, NULL, &in, err);
    cay_files_free(host);
    if (!code)
        *ret_transfer = (struct cay_transfer){
            .files = in.files, .bytes = in.bytes, .skipped = out.skipped + in.skipped};
    return code;
}

/* --- File by file ---------------------------------------------------------------------
 */

/* One directory tree on its way. */
struct journey {
    struct place *from, *to;
    const char *source, *destination;
    struct cay_transfer *transfer;
};

/* A copy of the file: of the host's, too, since what is below a directory there may be
 * changing, and a path that was looked at may lead through a link by now. */
static int open_copy(const struct journey *journey, const char *path, int *ret_fd,
                     struct cay_error *err)
{
    AUTO_FREE char *source = place_join(journey->source, path);
    struct cay_stat stat;

    if (!source)
        return cay_fail_memory(err, "directory.copy");
    int code = open_spool("/tmp", ret_fd, err);
    if (!code)
        code = journey->from->ops->read_to(journey->from, source, *ret_fd, &stat, err);
    if (!code && lseek(*ret_fd, 0, SEEK_SET) < 0)
        code = cay_fail_errno(err, errno, "directory.copy", path);
    return code;
}

/* The copy gets the mode and time that are to be taken over; one without any rights tells
 * that the modes are not known. */
static bool dress(int fd, const struct cay_stat *stat)
{
    const struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {stat->mtime_ns / 1000000000, stat->mtime_ns % 1000000000}};

    return (stat->mode & 0777) && fchmod(fd, stat->mode & 0777) == 0 &&
           (stat->mtime_ns <= 0 || futimens(fd, times) == 0);
}

static int carry_file(const struct journey *journey, const struct cay_entry *entry,
                      const char *destination, struct cay_error *err)
{
    unsigned flags = 0;
    uint64_t bytes = 0;
    AUTO_FD fd = -1;

    int code = open_copy(journey, entry->path, &fd, err);
    if (!code && journey->to->files && dress(fd, &entry->stat))
        flags = CAY_WRITE_KEEP;
    if (!code)
        code = journey->to->ops->write_from(journey->to, destination, fd, flags, &bytes,
                                            err);
    if (!code) {
        journey->transfer->files++;
        journey->transfer->bytes += bytes;
    }
    return code;
}

/* One that is there already stays as it is. */
static int carry_directory(const struct journey *journey, const struct cay_entry *entry,
                           const char *destination, bool *ret_is_new,
                           struct cay_error *err)
{
    struct place *to = journey->to;
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_EXIST_OK,
                                             .mode = (entry->stat.mode & 0777) | 0700};
    struct cay_stat stat;

    if (to->files)
        return cay_files_mkdir(to->files, destination, &options, err);
    *ret_is_new = to->ops->stat(to, destination, false, &stat, NULL) == CAY_E_NOT_FOUND;
    return to->ops->mkdir(to, destination, CAY_NAME_EXIST_OK, err);
}

/* There is no way to make a link, so what a link leads to stays behind. */
static int carry(const struct journey *journey, const struct cay_entry *entry,
                 bool *ret_is_new, struct cay_error *err)
{
    AUTO_FREE char *destination = place_join(journey->destination, entry->path);

    if (!destination)
        return cay_fail_memory(err, "directory.copy");
    *ret_is_new = entry->stat.type == CAY_TYPE_FILE;
    if (entry->stat.type == CAY_TYPE_FILE)
        return carry_file(journey, entry, destination, err);
    if (entry->stat.type == CAY_TYPE_DIRECTORY)
        return carry_directory(journey, entry, destination, ret_is_new, err);
    journey->transfer->skipped++;
    return CAY_OK;
}

static int travel(const struct journey *journey, struct cay_error *err)
{
    struct cay_listing listing = {0};
    int code = journey->from->ops->list(journey->from, journey->source, true, true,
                                        &listing, err);

    if (!code)
        code = journey->to->ops->mkdir(journey->to, journey->destination,
                                       CAY_NAME_EXIST_OK, err);
    AUTO_FREE bool *is_new = calloc(listing.count + 1, sizeof *is_new);
    if (!code && !is_new)
        code = cay_fail_memory(err, "directory.copy");
    for (size_t i = 0; !code && i < listing.count; i++)
        code = carry(journey, &listing.entries[i], &is_new[i], err);
    if (!code && journey->to->backend)
        code = modes_set_all(journey->to, journey->destination, &listing, is_new, err);
    cay_listing_done(&listing);
    return code;
}

int host_tree_upload(struct place *place, const char *local, const char *path,
                     struct cay_transfer *ret_transfer, struct cay_error *err)
{
    struct cay_error why = {0};
    cay_files *files = NULL;

    if (place->backend->import_tar) {
        int code = upload_archive(place, local, path, ret_transfer, &why);
        if (code != CAY_E_UNSUPPORTED) {
            if (code && err)
                *err = why;
            return code;
        }
    }
    int code = host_tree_open(local, false, &files, err);
    if (code)
        return code;
    AUTO_PLACE host = {0};
    place_of_files(files, &host);
    const struct journey journey = {.from = &host,
                                    .to = place,
                                    .source = HOST_TREE_TOP,
                                    .destination = path,
                                    .transfer = ret_transfer};
    return travel(&journey, err);
}

int host_tree_download(struct place *place, const char *path, const char *local,
                       struct cay_transfer *ret_transfer, struct cay_error *err)
{
    struct cay_error why = {0};
    cay_files *files = NULL;
    struct cay_stat stat;

    int code = place->ops->stat(place, path, false, &stat, err);
    if (!code && stat.type != CAY_TYPE_DIRECTORY)
        code = cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, "directory.download", path,
                        "is not a directory", "download a file by itself");
    if (code)
        return code;
    if (place->backend->export_tar) {
        code = download_archive(place, path, local, ret_transfer, &why);
        if (code != CAY_E_UNSUPPORTED) {
            if (code && err)
                *err = why;
            return code;
        }
    }
    code = host_tree_open(local, true, &files, err);
    if (code)
        return code;
    AUTO_PLACE host = {0};
    place_of_files(files, &host);
    const struct journey journey = {.from = place,
                                    .to = &host,
                                    .source = path,
                                    .destination = HOST_TREE_TOP,
                                    .transfer = ret_transfer};
    return travel(&journey, err);
}
