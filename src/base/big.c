/* SPDX-License-Identifier: Apache-2.0 */
#include "base/big.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

enum {
    LINE = 64,
    WORTH_LINES = 4 << 10,
    WORTH_A_LOOK = 512 << 10,
    HUGE_PAGE = 2 << 20,
    WORTH_HUGE_PAGES = 4 << 20,
    NEVER_TOUCHED = 32 << 20 /* malloc gives no more back to be used again */
};

/* Advises about [memory, memory + len), widened to whole pages or narrowed to them.  Only
 * advice: a kernel that does not know it does as well, just not as fast. */
static void advise(void *memory, size_t len, uintptr_t page, bool widen, int advice)
{
    uintptr_t start = (uintptr_t)memory, end = start + len;

    start = (start + (widen ? 0 : page - 1)) & ~(page - 1);
    end = (end + (widen ? page - 1 : 0)) & ~(page - 1);
    if (start < end)
        (void)madvise((char *)memory + (start - (uintptr_t)memory), end - start, advice);
}

static uintptr_t page_size(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* Memory is touched from its start, so a page near its end decides; not the last one,
 * where a NUL may have been written. */
static bool is_untouched(void *memory, size_t len)
{
    uintptr_t page = page_size();
    uintptr_t last = ((uintptr_t)memory + len - 1 - page) & ~(page - 1);
    unsigned char here;

    return mincore((char *)memory + (last - (uintptr_t)memory), 1, &here) == 0 &&
           !(here & 1);
}

bool big_expect(void *memory, size_t len)
{
    if (len < WORTH_A_LOOK || !is_untouched(memory, len))
        return false;
    if (len >= WORTH_HUGE_PAGES)
        advise(memory, len, HUGE_PAGE, false, MADV_HUGEPAGE);
    return true;
}

void big_touch(void *memory, size_t len)
{
    advise(memory, len, page_size(), true, MADV_POPULATE_WRITE);
}

void *big_alloc(size_t len, bool *ret_untouched)
{
    void *memory;

    *ret_untouched = false;
    if (len < WORTH_LINES)
        return malloc(len);
    if (posix_memalign(&memory, len < NEVER_TOUCHED ? LINE : HUGE_PAGE, len) != 0)
        return NULL;
    *ret_untouched = big_expect(memory, len);
    return memory;
}
