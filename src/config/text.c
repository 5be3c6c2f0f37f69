/* SPDX-License-Identifier: Apache-2.0 */
#include "config/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"

#define STEP 65536

static int read_all(int fd, const char *file, const char *op, struct buf *text,
                    struct cay_error *err)
{
    while (text->len <= TEXT_MAX) {
        if (!buf_reserve(text, STEP))
            return cay_fail_memory(err, op);
        ssize_t got = read(fd, text->data + text->len, STEP);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cay_fail_errno(err, errno, op, file);
        if (got == 0)
            break;
        text->len += (size_t)got;
    }
    return CAY_OK;
}

int text_load(const char *file, const char *op, struct buf *text, char **ret_directory,
              struct cay_error *err)
{
    /* O_NONBLOCK: a FIFO must not make us wait before we see that it is one. */
    AUTO_FD fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const char *slash = strrchr(file, '/');
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0)
        return cay_fail_errno(err, errno, op, file);
    if (!S_ISREG(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, file, "is not a regular file",
                        "name a YAML or JSON file");
    text->max = TEXT_MAX + 2 * STEP;
    int code = read_all(fd, file, op, text, err);
    if (code || !slash)
        return code;
    *ret_directory = strndup(file, slash > file ? (size_t)(slash - file) : 1);
    return *ret_directory ? CAY_OK : cay_fail_memory(err, op);
}
