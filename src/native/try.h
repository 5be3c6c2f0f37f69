/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_TRY_H
#define NATIVE_TRY_H

#include <stdint.h>
#include <time.h>

#include "cay/try.h"

struct try_base {
    struct timespec time;
    int64_t offset_ns; /* of CLOCK_REALTIME to CLOCK_BOOTTIME: a step shows */
    char boot[40];
};

/* A try that is in use: its directories and what is known of it. */
struct
try {
    struct cay_try_info info;
    int dir;    /* of the try */
    int target; /* the directory of the host, locked */
    int upper;
    enum cay_diff_marks marks;
    struct try_base base;
};
#define TRY_NONE                                                                         \
    {                                                                                    \
        .dir = -1, .target = -1, .upper = -1                                             \
    }

/* Only its own directory and its info. */
int try_open_dir(const char *id, struct try *ret_try, struct cay_error *err);

/* All of it, after what a killed apply left has been undone. */
int try_open(const char *id, struct try *ret_try, struct cay_error *err);

/* After either, also if it failed. */
void try_done(struct try *try);

/* Copies what the directory `from` is and holds, with the marks of an overlay, into the
 * empty directory `to`.  The files may be hostile: names only, no link is followed.  0 or
 * a negative errno; -ELOOP: it is too deep.  Adds to the numbers. */
int try_copy(int from, int to, uint64_t *files, uint64_t *bytes);

#endif
