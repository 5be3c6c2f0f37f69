/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_TAR_OPTIONS_H
#define FILES_TAR_OPTIONS_H

#include <locale.h>

#include "cay/files.h"

/* The caller's options with the defaults filled in.  CAY_E_UNSUPPORTED for a flag that is
 * not in `allowed`. */
int tar_take_options(const struct cay_tar_options *given, const char *op,
                     uint32_t allowed, struct cay_tar_options *ret_options,
                     struct cay_error *err);

/* CAY_E_INVALID unless the descriptor is open for that, O_RDONLY or O_WRONLY. */
int tar_check_descriptor(int fd, int access, const char *op, struct cay_error *err);

/* libarchive converts names by the locale of the thread; in this one UTF-8 stays as it
 * is. (locale_t)0 if the system lacks it: names that are not ASCII may then be lost. */
locale_t tar_locale_new(void);
void tar_locale_done(locale_t *locale);
#define AUTO_LOCALE __attribute__((cleanup(tar_locale_done))) locale_t

#endif
