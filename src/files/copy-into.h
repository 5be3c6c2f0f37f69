/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_COPY_INTO_H
#define FILES_COPY_INTO_H

#include "sys/fs.h"

/* copy_bytes() into a file of `fs`, with room taken for each piece.  What was taken
 * beyond the end of the copy is given back, unless the file is only added to. */
int copy_into(const struct fs *fs, int from, int to, uint64_t max, uint64_t *ret_copied);

#endif
