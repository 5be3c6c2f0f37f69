/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes, fed in pieces: every kernel must say what the way without one says, after
 * each piece, and that must be what a decoder says that looks at values.  Text that is
 * UTF-8 is also widened, by both ways there are.  The first two bytes of the input are
 * the length of the pieces, and how often the rest is repeated and where it is put. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8-kernel.h"
#include "base/utf8-widen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_MAX = 1 << 14, KERNELS_MAX = 4 };

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition))                                                                \
            abort();                                                                     \
    } while (0)

/* The character at `text` and its length; 0 if there is none. */
static size_t decode(const uint8_t *text, size_t len, uint32_t *ret_value)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t lead = text[0];
    size_t need = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t value = need == 1 ? lead : lead & (0xFFu >> (need + 1));

    if ((lead >= 0x80 && lead < 0xC0) || lead > 0xF7 || len < need)
        return 0;
    for (size_t k = 1; k < need; k++) {
        if ((text[k] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (text[k] & 0x3Fu);
    }
    *ret_value = value;
    bool good = value >= least[need] && value <= 0x10FFFF &&
                !(value >= 0xD800 && value <= 0xDFFF);
    return good ? need : 0;
}

static void compare(const struct utf8_scan *a, const struct utf8_scan *b)
{
    CHECK(a->invalid == b->invalid);
    if (a->invalid)
        return;
    CHECK(a->chars == b->chars && a->lf == b->lf && a->crlf == b->crlf);
    CHECK(a->has_cr == b->has_cr && a->last == b->last && a->pending == b->pending);
    CHECK(memcmp(a->held, b->held, a->pending) == 0);
    CHECK(utf8_scan_highest(a) == utf8_scan_highest(b));
}

static struct utf8_scan scan_in_pieces(const uint8_t *text, size_t len, size_t step)
{
    struct utf8_scan slow = {0}, scans[KERNELS_MAX] = {{0}};
    const struct utf8_kernel *kernel;

    for (size_t at = 0; at < len; at += step) {
        size_t piece = len - at < step ? len - at : step;
        (void)utf8_scan_by(NULL, &slow, text + at, piece);
        for (size_t i = 0; (kernel = utf8_kernel_at(i)); i++) {
            (void)utf8_scan_by(kernel, &scans[i], text + at, piece);
            compare(&scans[i], &slow);
        }
    }
    return slow;
}

static void check_widened(const uint8_t *text, size_t len, const struct utf8_scan *scan)
{
    uint32_t highest = utf8_scan_highest(scan);
    unsigned width = highest <= 0xFF ? 1 : highest <= 0xFFFF ? 2 : 4;
    size_t count = (size_t)scan->chars;
    void *one = malloc(count * width + 1), *other = malloc(count * width + 1);

    CHECK(one && other);
    CHECK(utf8_widen(text, len, width, one) == count);
    CHECK(utf8_widen_plainly(text, len, width, other) == count);
    CHECK(memcmp(one, other, count * width) == 0);
    for (size_t at = 0, i = 0; at < len; i++) {
        uint32_t value = 0;
        at += decode(text + at, len - at, &value);
        CHECK(value == (width == 1   ? ((uint8_t *)one)[i]
                        : width == 2 ? ((uint16_t *)one)[i]
                                     : ((uint32_t *)one)[i]));
    }
    free(one);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t value;

    if (size < 3)
        return 0;
    size_t step = 1 + data[0] * (size_t)(1 + data[0] / 16), shift = data[1] % UTF8_ALIGN;
    size_t times = 1 + data[1] / UTF8_ALIGN * 20u, len = (size - 2) * times;
    if (len > TEXT_MAX)
        return 0;
    uint8_t *memory = malloc(shift + len), *text = memory + shift;
    CHECK(memory);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * (size - 2), data + 2, size - 2);
    struct utf8_scan scan = scan_in_pieces(text, len, step);
    size_t good = 0;
    for (size_t next = 1; good < len && next; good += next)
        next = decode(text + good, len - good, &value);
    CHECK(utf8_scan_complete(&scan) == (good == len));
    if (good == len)
        check_widened(text, len, &scan);
    free(memory);
    return 0;
}
