/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_BYTES_H
#define E2B_BYTES_H

#include "e2b/e2b.h"

/* Names that are bytes.  The daemon's calls carry text; what is not goes by find(1),
 * mkdir(1), rm(1) and mv(1) inside, whose words are bytes.  Paths are absolute. */

bool e2b_bytes_is_text(const char *path);

int e2b_bytes_stat(struct e2b *e2b, const char *op, const char *user, const char *path,
                   bool no_follow, struct cay_stat *ret_stat, struct cay_error *err);

/* Sorted; the paths as they are inside. */
int e2b_bytes_list(struct e2b *e2b, const char *user, const char *path, uint32_t depth,
                   struct cay_listing *ret_listing, struct cay_error *err);

int e2b_bytes_mkdir(struct e2b *e2b, const char *user, const char *path,
                    struct cay_error *err);
int e2b_bytes_remove(struct e2b *e2b, const char *user, const char *path,
                     struct cay_error *err);
int e2b_bytes_move(struct e2b *e2b, const char *user, const char *source,
                   const char *destination, struct cay_error *err);

/* Where a link leads, as it was made; CAY_E_INVALID if it is none. */
int e2b_bytes_read_link(struct e2b *e2b, const char *user, const char *path,
                        char **ret_target, struct cay_error *err);

#endif
