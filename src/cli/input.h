/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "base/buf.h"
#include "cay/error.h"

#define INPUT_MAX (UINT64_C(1) << 30)

/* The whole input of a descriptor: a short one in memory, a longer one in an unnamed
 * temporary file, which needs no clean-up. */
struct input {
    const char *data;
    size_t len;
    struct buf small;
    void *map; /* of the spool file, or NULL */
};

/* `name` is what errors call it.  CAY_E_LIMIT if there is more than `max` bytes. */
int input_read(int fd, const char *name, uint64_t max, struct input *ret_input,
               struct cay_error *err);
void input_done(struct input *input);

#endif
