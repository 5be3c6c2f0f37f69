/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SANDBOX_STREAMS_H
#define SANDBOX_STREAMS_H

#include "base/tail.h"
#include "cay/sandbox.h"

/* What is alike for the streams of a command, whoever runs it.  `tails` are what is kept
 * of its output and its errors. */

/* From the first stream of which something is kept or was lost; false: there is none. */
bool streams_read(struct tail tails[2], int *ret_stream, void *data, size_t room,
                  size_t *ret_len, uint64_t *ret_dropped);

/* All that is kept becomes the result's, also on failure. */
int streams_take(struct tail tails[2], struct cay_exec_result *result, const char *op,
                 struct cay_error *err);

int streams_fail_room(struct cay_error *err);
int streams_fail_closed(struct cay_error *err);

#endif
