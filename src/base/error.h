/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>

#include "cay/error.h"

/* Fills `err` (which may be NULL) and returns `code`, so that a failure is one statement:
 *     return cay_fail(err, CAY_E_NOT_FOUND, ENOENT, "files.read", path, "no such file",
 *                     "list the directory to see what is there");
 * The hint is a format; message and subject are plain text.  A NULL subject is "". */
int cay_fail(struct cay_error *err, int code, int sys_errno, const char *op,
             const char *subject, const char *message, const char *hint, ...)
    __attribute__((format(printf, 7, 8)));

/* Returns the code of `call` from the function it stands in, unless that is 0.  For where
 * nothing has to be released, or AUTO_* does it. */
#define TRY(call)                                                                        \
    ({                                                                                   \
        int try_ = (call);                                                               \
        if (try_)                                                                        \
            return try_;                                                                 \
    })

/* The code and message for an errno; `op` and `subject` as above.  Never contains a host
 * path. */
int cay_fail_errno(struct cay_error *err, int sys_errno, const char *op,
                   const char *subject);

/* Never NULL, and safe in every thread. */
const char *cay_errno_words(int sys_errno);

/* Whether it is a shortage of descriptors or memory, which means nothing about the file
 * itself. */
bool cay_errno_is_shortage(int sys_errno);

int cay_fail_memory(struct cay_error *err, const char *op);

/* Passes on the outcome of a call that filled in `why`: `code`, which may be CAY_OK. */
int cay_fail_as(struct cay_error *err, int code, const struct cay_error *why);

/* Copies text into a field of `room` bytes, cut between characters. */
void cay_copy_text(char *field, size_t room, const char *text);

/* Input structs carry their size.  Copies what the caller knows into `*known` (zeroed
 * first) and fails with CAY_E_UNSUPPORTED if the caller's struct has more that is set.
 * A NULL `given` leaves the defaults: all zero. */
int cay_take_struct(void *known, size_t known_size, const void *given, const char *op,
                    struct cay_error *err);

#endif
