/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SANDBOX_STREAMS_H
#define SANDBOX_STREAMS_H

#include "base/tail.h"
#include "cay/sandbox.h"

/* Shared by all backends: the streams of a command.  `tails` are the kept stdout and
 * stderr. */

/* Reads from the first stream that has bytes or lost some; false: neither has. */
bool streams_read(struct tail tails[2], int *ret_stream, void *data, size_t room,
                  size_t *ret_len, uint64_t *ret_dropped);

/* Moves everything into the result, also on failure. */
int streams_take(struct tail tails[2], struct cay_exec_result *result, const char *op,
                 struct cay_error *err);

int streams_fail_room(struct cay_error *err);
int streams_fail_closed(struct cay_error *err);

#endif
