/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_AUTO_H
#define BASE_AUTO_H

#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"

/* Releases what a scope owns when the scope is left; TAKE_* passes ownership on. */
#define AUTO_FD    __attribute__((cleanup(auto_close))) int
#define AUTO_FREE  __attribute__((cleanup(auto_free)))
#define AUTO_BUF   __attribute__((cleanup(buf_done))) struct buf
#define AUTO(type) __attribute__((cleanup(auto_##type))) type *

#define TAKE_FD(fd)                                                                      \
    ({                                                                                   \
        int taken_ = (fd);                                                               \
        (fd) = -1;                                                                       \
        taken_;                                                                          \
    })
#define TAKE_PTR(pointer)                                                                \
    ({                                                                                   \
        typeof(pointer) taken_ = (pointer);                                              \
        (pointer) = NULL;                                                                \
        taken_;                                                                          \
    })

static inline void auto_close(const int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

/* Takes the address of any pointer. */
static inline void auto_free(void *pointer)
{
    free(*(void **)pointer);
}

#endif
