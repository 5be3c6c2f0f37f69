/* SPDX-License-Identifier: Apache-2.0 */
#include "files/tar-options.h"

#include <errno.h>
#include <fcntl.h>

#include "base/error.h"

int tar_take_options(const struct cay_tar_options *given, const char *op,
                     uint32_t allowed, struct cay_tar_options *ret_options,
                     struct cay_error *err)
{
    int code = cay_take_struct(ret_options, sizeof *ret_options, given, op, err);

    if (!ret_options->max_entries)
        ret_options->max_entries = 1000000;
    if (!ret_options->max_bytes)
        ret_options->max_bytes = (uint64_t)16 << 30;
    if (!ret_options->max_depth)
        ret_options->max_depth = 256;
    if (!code && ret_options->flags & ~allowed)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags",
                        "this flag is not supported here",
                        "CAY_TAR_WHOLE is for exports from a sandbox");
    return code;
}

int tar_check_descriptor(int fd, int access, const char *op, struct cay_error *err)
{
    int flags = fcntl(fd, F_GETFL);
    int mode = flags & O_ACCMODE;

    if (flags >= 0 && !(flags & O_PATH) && (mode == access || mode == O_RDWR))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, EBADF, op, NULL,
                    "the descriptor for the archive is not open for this",
                    "open it for %s", access == O_RDONLY ? "reading" : "writing");
}

locale_t tar_locale_new(void)
{
    return newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

void tar_locale_done(locale_t *locale)
{
    if (*locale)
        freelocale(*locale);
}
