/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "agent/host-file.h"
#include "agent/place.h"
#include "base/auto.h"
#include "base/error.h"

/* --- Files ----------------------------------------------------------------------------
 */

static int upload(struct place *place, const char *local, const char *inside,
                  struct cay_transfer *ret_transfer, struct cay_error *err)
{
    static const char op[] = "file.upload";
    /* Looked at before it is opened: to open a device may do anything. */
    AUTO_FD held = open(local, O_PATH | O_CLOEXEC);
    struct stat st;
    char name[32];
    uint64_t bytes = 0;

    if (held < 0 || fstat(held, &st) != 0)
        return cay_fail_errno(err, errno, op, local);
    if (!S_ISREG(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, S_ISDIR(st.st_mode) ? EISDIR : 0, op,
                        local, "is no regular file",
                        "upload a directory with cay_upload_directory()");
    snprintf(name, sizeof name, "/proc/self/fd/%d", held);
    AUTO_FD fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return cay_fail_errno(err, errno, op, local);
    int code = place->ops->write_from(place, inside, fd, CAY_WRITE_KEEP, &bytes, err);
    if (!code)
        *ret_transfer = (struct cay_transfer){.files = 1, .bytes = bytes};
    return code;
}

static int download(struct place *place, const char *inside, const char *local,
                    struct cay_transfer *ret_transfer, struct cay_error *err)
{
    AUTO_HOST_FILE file = HOST_FILE_NONE;
    struct cay_stat stat;
    struct stat st;

    /* Looked at first: what is not there must not leave directories here. */
    int code = place->ops->stat(place, inside, false, &stat, err);
    if (!code)
        code = host_file_open(local, &file, err);
    if (!code)
        code = place->ops->read_to(place, inside, file.fd, &stat, err);
    if (!code)
        code = host_file_commit(&file, local, &stat, err);
    if (!code && fstat(file.fd, &st) != 0)
        code = cay_fail_errno(err, errno, "file.download", local);
    if (!code) /* of a file of /proc nobody knows the size before it is read */
        *ret_transfer = (struct cay_transfer){.files = 1, .bytes = (uint64_t)st.st_size};
    return code;
}

int cay_upload_file(cay_sandbox *sandbox, const char *user, const char *local,
                    const char *inside, struct cay_transfer *ret_transfer,
                    struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    *ret_transfer = (struct cay_transfer){0};
    return code ? code : upload(&place, local, inside, ret_transfer, err);
}

int cay_download_file(cay_sandbox *sandbox, const char *user, const char *inside,
                      const char *local, struct cay_transfer *ret_transfer,
                      struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    *ret_transfer = (struct cay_transfer){0};
    return code ? code : download(&place, inside, local, ret_transfer, err);
}

/* --- Directories ----------------------------------------------------------------------
 */

int cay_upload_directory(cay_sandbox *sandbox, const char *user, const char *local,
                         const char *inside, struct cay_transfer *ret_transfer,
                         struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    *ret_transfer = (struct cay_transfer){0};
    return code ? code : place.ops->upload(&place, local, inside, ret_transfer, err);
}

int cay_download_directory(cay_sandbox *sandbox, const char *user, const char *inside,
                           const char *local, struct cay_transfer *ret_transfer,
                           struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    *ret_transfer = (struct cay_transfer){0};
    return code ? code : place.ops->download(&place, inside, local, ret_transfer, err);
}
