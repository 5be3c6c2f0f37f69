/* SPDX-License-Identifier: Apache-2.0 */
#include "base/big.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Up to 32 MiB malloc hands out memory again that was touched before, which is better
 * still. */
enum { HUGE_PAGE = 2 << 20, WORTH_IT = 32 << 20, LINE = 64, WORTH_LINES = 4 << 10 };

void big_expect(void *memory, size_t len)
{
    uintptr_t start = ((uintptr_t)memory + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)memory + len) & ~(uintptr_t)(HUGE_PAGE - 1);

    /* Only advice: a kernel without huge pages does as well, just not as fast. */
    if (len >= WORTH_IT && start < end)
        (void)madvise((char *)memory + (start - (uintptr_t)memory), end - start,
                      MADV_HUGEPAGE);
}

void *big_alloc(size_t len)
{
    void *memory;

    if (len < WORTH_LINES)
        return malloc(len);
    if (posix_memalign(&memory, len < WORTH_IT ? LINE : HUGE_PAGE, len) != 0)
        return NULL;
    big_expect(memory, len);
    return memory;
}
