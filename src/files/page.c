/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/big.h"
#include "base/error.h"
#include "base/utf8-widen.h"
#include "base/utf8.h"
#include "cay/files.h"

void cay_page_done(struct cay_page *page)
{
    if (!page)
        return;
    free(page->text);
    *page = (struct cay_page){0};
}

static uint32_t most_in(unsigned width)
{
    return width == 1 ? 0xFF : width == 2 ? 0xFFFF : width == 4 ? 0x10FFFF : 0;
}

/* In pieces, so that the memory of the next one can be asked for at once. */
static void widen(const struct cay_page *page, unsigned width, char *to)
{
    enum { PIECE = 64 << 10 };
    size_t room = (size_t)page->count * width, done = 0;
    bool untouched = big_expect(to, room);

    for (size_t at = 0; at < page->len;) {
        size_t end = page->len - at > PIECE ? at + PIECE : page->len;
        while (end < page->len && utf8_is_tail(page->text[end]))
            end--;
        size_t most = (end - at) * width;
        if (untouched)
            big_touch(to + done, room - done < most ? room - done : most);
        done += width * utf8_widen(page->text + at, end - at, width, to + done);
        at = end;
    }
}

int cay_page_widen(const struct cay_page *page, unsigned width, void *to,
                   struct cay_error *err)
{
    static const char op[] = "page.widen";

    if (page->highest == 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "this is no page of characters",
                        "widen what cay_files_read() or cay_reader_page() returned");
    if (page->highest > most_in(width))
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL,
                        "the characters do not fit the width",
                        "up to U+%X a width of %d does", (unsigned)page->highest,
                        page->highest <= 0xFF     ? 1
                        : page->highest <= 0xFFFF ? 2
                                                  : 4);
    widen(page, width, to);
    return CAY_OK;
}
