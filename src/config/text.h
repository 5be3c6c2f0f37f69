/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_TEXT_H
#define CONFIG_TEXT_H

#include "base/buf.h"
#include "base/error.h"

#define TEXT_MAX ((size_t)1 << 20)

/* The content of a file that somebody wrote, or more than TEXT_MAX of it, and the
 * directory it is in, which is NULL for the current one. */
int text_load(const char *file, const char *op, struct buf *text, char **ret_directory,
              struct cay_error *err);

#endif
