/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_WRITE_H
#define FILES_WRITE_H

#include "files/draft.h"
#include "files/handle.h"

/* Copies the options, refusing unknown flags and ways of writing that exclude each other.
 */
int write_take_options(const struct cay_write_options *options, const char *op,
                       struct cay_write_options *ret_known, struct cay_error *err);

/* What is there, if anything, must be a regular file that may be written. */
int write_check_target(const struct target *target, struct cay_error *err);

/* Finds where `len` bytes are to be written and judges that, in the contract's order. */
int write_find(cay_files *files, const char *op, const char *path, uint64_t len,
               const struct cay_write_options *options, struct target *ret_target,
               struct cay_error *err);

/* Up to `max` bytes of `from` over the target's file, or to its end, as the flags say. */
int write_stream(const struct target *target, int from, uint64_t max, unsigned flags,
                 uint64_t *ret_bytes, struct cay_error *err);

/* Overwrites the target's file with the first `bytes` bytes of `from`. */
int write_in_place(const struct target *target, int from, uint64_t bytes, unsigned flags,
                   struct cay_error *err);

/* The draft takes the target's name. */
int write_commit(struct draft *draft, const char *name, const struct target *target,
                 unsigned flags, struct cay_error *err);

#endif
