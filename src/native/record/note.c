/* SPDX-License-Identifier: Apache-2.0 */

/* Notes lie beside the record, as "ID.note", and go with it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/runtime.h"
#include "sys/io.h"

static const char op[] = "sandbox.note";

static int find(const char *id, char path[PATH_MAX], struct cay_error *err)
{
    char directory[PATH_MAX];

    if (!runtime_is_id(id))
        return cay_fail(err, CAY_E_INVALID, 0, op, id, "this is not the id of a sandbox",
                        "ids look like sb-abcdefgh234567xy");
    int code = runtime_directory(directory, err);
    if (!code)
        snprintf(path, PATH_MAX, "%.4000s/%.32s", directory, id);
    return code;
}

/* Whole or not at all.  The record may go meanwhile: then the note goes, too. */
int cay_sandbox_set_note(const char *id, const void *data, size_t len,
                         struct cay_error *err)
{
    char record[PATH_MAX], draft[PATH_MAX + 16], path[PATH_MAX + 16];
    int code = len > CAY_SANDBOX_NOTE_MAX
                   ? cay_fail(err, CAY_E_INVALID, 0, op, id, "the note is too long",
                              "notes have at most %d bytes", CAY_SANDBOX_NOTE_MAX)
                   : find(id, record, err);

    if (code)
        return code;
    snprintf(path, sizeof path, "%s.note", record);
    snprintf(draft, sizeof draft, "%s.note.new", record);
    AUTO_FD fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int error = fd < 0 ? -errno : io_write(fd, data, len);
    if (!error && rename(draft, path) != 0)
        error = -errno;
    if (error)
        (void)unlink(draft);
    if (error)
        return runtime_fail(-error, id, err);
    if (access(record, F_OK) == 0)
        return CAY_OK;
    (void)unlink(path);
    return cay_fail(err, CAY_E_NOT_FOUND, ENOENT, op, id, "there is no such sandbox",
                    "it may have ended; make a new one");
}

int cay_sandbox_get_note(const char *id, void **ret_data, size_t *ret_len,
                         struct cay_error *err)
{
    char path[PATH_MAX - 8], whole[PATH_MAX];
    struct stat st;
    int code = find(id, whole, err);

    if (code)
        return code;
    snprintf(path, sizeof path, "%.4080s", whole);
    snprintf(whole, sizeof whole, "%s.note", path);
    AUTO_FD fd = open(whole, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return cay_fail(err, CAY_E_NOT_FOUND, ENOENT, op, id, "the sandbox has no note",
                        "cay_sandbox_set_note() attaches one");
    if (fd < 0 || fstat(fd, &st) != 0)
        return cay_fail_errno(err, errno, op, id);
    size_t len =
        st.st_size > CAY_SANDBOX_NOTE_MAX ? CAY_SANDBOX_NOTE_MAX : (size_t)st.st_size;
    AUTO_FREE char *data = malloc(len + 1);
    if (!data)
        return cay_fail_memory(err, op);
    ssize_t got = io_pread(fd, data, len, 0);
    if (got < 0)
        return cay_fail_errno(err, (int)-got, op, id);
    data[got] = '\0';
    *ret_len = (size_t)got;
    *ret_data = TAKE_PTR(data);
    return CAY_OK;
}
