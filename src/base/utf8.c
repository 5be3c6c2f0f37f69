/* SPDX-License-Identifier: Apache-2.0 */

/* A vector kernel (utf8-kernel.h) validates and counts most bytes.  This file handles the
 * ends, where characters may be cut, and everything on processors without a kernel:
 * counts by generic vectors, validity character by character.  The kernels are tested
 * against it. */
#include "base/utf8.h"

#include <string.h>

#include "base/utf8-kernel.h"

enum { LANES = 16, PIECE = 255 * LANES };

typedef unsigned char lanes __attribute__((vector_size(LANES)));

/* The counts of one piece of at most PIECE bytes, so that no lane overflows. */
struct tally {
    size_t starts, lf, crlf;
    unsigned char highest;
    bool has_cr;
};

static size_t sum(lanes v)
{
    size_t total = 0;

    for (int i = 0; i < LANES; i++)
        total += v[i];
    return total;
}

static bool any(lanes v)
{
    uint64_t halves[2];

    memcpy(halves, &v, sizeof halves);
    return halves[0] | halves[1];
}

/* Most text is ASCII with "\n" alone at the ends of its lines; false if this is not. */
static bool count_plain(const unsigned char *data, size_t len, struct tally *ret_tally)
{
    lanes lf = {0}, odd = {0};
    const unsigned char *at = data, *end = data + len;
    size_t lines = 0;

    for (; end - at >= LANES; at += LANES) {
        lanes now;
        memcpy(&now, at, LANES);
        lf -= (lanes)(now == '\n');
        odd |= (now & 0x80) | (lanes)(now == '\r');
    }
    for (; at < end; at++) {
        lines += *at == '\n';
        odd[0] |= (unsigned char)((*at & 0x80) | (*at == '\r'));
    }
    *ret_tally = (struct tally){.starts = len, .lf = lines + sum(lf)};
    return !any(odd);
}

/* `data` must have a byte before it. */
static struct tally count(const unsigned char *data, size_t len)
{
    struct tally tally;
    lanes lf = {0}, crlf = {0}, tails = {0}, top = {0}, crs = {0};
    const unsigned char *at = data, *end = data + len;

    if (data[-1] != '\r' && count_plain(data, len, &tally))
        return tally;
    for (; end - at >= LANES; at += LANES) {
        lanes now, before;
        memcpy(&now, at, LANES);
        memcpy(&before, at - 1, LANES);
        lanes is_lf = (lanes)(now == '\n');
        lf -= is_lf;
        crlf -= is_lf & (lanes)(before == '\r');
        crs |= (lanes)(now == '\r');
        tails -= (lanes)((now & 0xC0) == 0x80);
        top ^= (top ^ now) & (lanes)(now > top);
    }
    size_t continuation = sum(tails);
    tally = (struct tally){.lf = sum(lf), .crlf = sum(crlf), .has_cr = any(crs)};
    for (int i = 0; i < LANES; i++)
        tally.highest = top[i] > tally.highest ? top[i] : tally.highest;
    for (; at < end; at++) {
        continuation += (*at & 0xC0) == 0x80;
        tally.lf += *at == '\n';
        tally.crlf += *at == '\n' && at[-1] == '\r';
        tally.has_cr = tally.has_cr || *at == '\r';
        tally.highest = *at > tally.highest ? *at : tally.highest;
    }
    tally.starts = len - continuation;
    return tally;
}

/* The length of the character that `lead` begins, or 0 if none can. */
static size_t length_of(unsigned char lead)
{
    return lead < 0x80                    ? 1
           : lead >= 0xC2 && lead <= 0xDF ? 2
           : lead >= 0xE0 && lead <= 0xEF ? 3
           : lead >= 0xF0 && lead <= 0xF4 ? 4
                                          : 0;
}

/* Whether `c` may be the second byte after `lead`: no over-long form, no surrogate,
 * nothing above U+10FFFF. */
static bool second_fits(unsigned char lead, unsigned char c)
{
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;

    return c >= low && c <= high;
}

/* How many of the `have` bytes at `text` form one character or its start; 0 if they are
 * invalid. */
static size_t character(const unsigned char *text, size_t have)
{
    size_t need = length_of(text[0]);

    if (have > need)
        have = need;
    if (have >= 2 && !second_fits(text[0], text[1]))
        return 0;
    for (size_t i = 2; i < have; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    return have;
}

/* Completes the character that the last piece ended in.  Returns the bytes used. */
static size_t finish_pending(struct utf8_scan *scan, const unsigned char *data,
                             size_t len)
{
    size_t used = 0;
    size_t need = length_of(scan->held[0]);

    while (scan->pending < need && used < len)
        scan->held[scan->pending++] = data[used++];
    if (character(scan->held, scan->pending) != scan->pending)
        scan->invalid = true;
    if (scan->pending == need)
        scan->pending = 0;
    return used;
}

/* Skips whole, valid characters while eight bytes can be read at once; the rest is
 * checked character by character.  The masks are for little-endian words: the first byte
 * of a character is the lowest. */
static const unsigned char *pass_over(const unsigned char *at, const unsigned char *end)
{
    uint64_t eight;
    uint32_t word;

    while (end - at >= (ptrdiff_t)sizeof eight) {
        memcpy(&eight, at, sizeof eight);
        eight &= 0x8080808080808080u;
        if (!(eight & 0x80)) {
            at += eight ? __builtin_ctzll(eight) / 8 : (int)sizeof eight;
            continue;
        }
        memcpy(&word, at, sizeof word);
        if ((word & 0xC0E0) == 0x80C0 && (word & 0x1E)) {
            at += 2;
        } else if ((word & 0xC0C0F0) == 0x8080E0 && (word & 0x200F) &&
                   (word & 0x200F) != 0x200D) {
            at += 3;
        } else if ((word & 0xC0C0C0F8) == 0x808080F0 &&
                   ((word & 7) << 2 | (word >> 12 & 3)) - 1 < 16) {
            at += 4;
        } else {
            break;
        }
    }
    return at;
}

static void validate(struct utf8_scan *scan, const unsigned char *data, size_t len)
{
    const unsigned char *at = data, *end = data + len;

    if (scan->pending)
        at += finish_pending(scan, data, len);
    while (at < end && !scan->invalid) {
        at = pass_over(at, end);
        if (at == end)
            return;
        size_t good = character(at, (size_t)(end - at));
        if (good == 0) {
            scan->invalid = true;
        } else if (good < length_of(*at)) {
            memcpy(scan->held, at, good);
            scan->pending = (unsigned char)good;
        }
        at += good;
    }
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pass_over() reads words");

static void scan_piece(struct utf8_scan *scan, const unsigned char *data, size_t len)
{
    struct tally tally = count(data, len);

    scan->chars += tally.starts;
    scan->lf += tally.lf;
    scan->crlf += tally.crlf;
    scan->has_cr = scan->has_cr || tally.has_cr;
    scan->last = data[len - 1];
    if (tally.highest > scan->highest)
        scan->highest = tally.highest;
    if (!scan->trusted && (tally.highest >= 0x80 || scan->pending))
        validate(scan, data, len);
}

static void scan_slowly(struct utf8_scan *scan, const unsigned char *data, size_t len)
{
    if (len && !scan->invalid) {
        /* The vectors read one byte back, so the first byte is handled alone, after the
         * last one. */
        const unsigned char first[2] = {scan->last, data[0]};
        scan_piece(scan, first + 1, 1);
    }
    for (size_t i = 1; i < len && !scan->invalid; i += PIECE)
        scan_piece(scan, data + i, len - i < PIECE ? len - i : PIECE);
}

/* How many of the last bytes before `end` belong to a character that continues after it,
 * if those before are valid. */
static unsigned char unfinished_at(const unsigned char *end)
{
    return end[-1] >= 0xC0 ? 1 : end[-2] >= 0xE0 ? 2 : end[-3] >= 0xF0 ? 3 : 0;
}

/* Counts and validates the bytes, with the 3 bytes before them as context. */
static void run_kernel(const struct utf8_kernel *kernel, struct utf8_scan *scan,
                       const unsigned char *data, size_t len)
{
    struct utf8_tally tally;

    kernel->look(data, len, scan->count, &tally);
    scan->chars += len - tally.tails;
    scan->lf += tally.lf;
    scan->has_cr = scan->has_cr || tally.has_cr;
    if (tally.highest > scan->highest)
        scan->highest = tally.highest;
    scan->invalid = tally.wrong && !scan->trusted;
    if (scan->count == UTF8_CHARS || (!tally.has_cr && data[-1] != '\r'))
        return;
    for (size_t at = 0; at < len; at += PIECE)
        scan->crlf += count(data + at, len - at < PIECE ? len - at : PIECE).crlf;
}

/* Keeps the beginning of a character for the next call. */
static void save_pending(struct utf8_scan *scan, const unsigned char *text,
                         unsigned char len)
{
    if (scan->trusted)
        return;
    scan->pending = len;
    memcpy(scan->held, text, len);
    if (len && character(scan->held, len) == 0)
        scan->invalid = true;
}

/* At most UTF8_STEP bytes without readable bytes around them: zeros replace those, and
 * also a character that continues in the next call. */
static void scan_few(const struct utf8_kernel *kernel, struct utf8_scan *scan,
                     const unsigned char *data, size_t len)
{
    _Alignas(UTF8_ALIGN) unsigned char text[UTF8_ALIGN + UTF8_STEP] = {0};
    unsigned char *start = text + UTF8_ALIGN, *end = start + len, rest[3] = {0};

    if (len == 0 || scan->invalid)
        return;
    if (scan->last < 0x80)
        start[-1] = scan->last;
    memcpy(start - scan->pending, scan->held, scan->pending);
    memcpy(start, data, len);
    scan->last = end[-1];
    unsigned char unfinished = unfinished_at(end);
    memcpy(rest, end - unfinished, unfinished);
    if (rest[0] > scan->highest)
        scan->highest = rest[0];
    memset(end - unfinished, 0, unfinished);
    run_kernel(kernel, scan, start, UTF8_STEP);
    /* Correct the count: the zeros were counted, and a character that continues was not.
     */
    bool begins_here = unfinished && unfinished <= len;
    scan->chars -= UTF8_STEP - len + (unfinished < len ? unfinished : len);
    scan->chars += begins_here;
    save_pending(scan, rest, unfinished);
}

bool utf8_scan_by(const struct utf8_kernel *kernel, struct utf8_scan *scan,
                  const void *data, size_t len)
{
    const unsigned char *bytes = data;
    /* The kernel may read back from the byte after the head. */
    size_t head = 3 + (-((uintptr_t)bytes + 3) & (UTF8_ALIGN - 1));

    if (!kernel) {
        scan_slowly(scan, bytes, len);
        return !scan->invalid;
    }
    if (len > UTF8_STEP) {
        size_t most = (len - head) / UTF8_STEP * UTF8_STEP;
        scan_few(kernel, scan, bytes, head);
        bytes += head + most;
        len -= head + most;
        if (most && !scan->invalid) {
            run_kernel(kernel, scan, bytes - most, most);
            scan->last = bytes[-1];
            save_pending(scan, bytes - unfinished_at(bytes), unfinished_at(bytes));
        }
    }
    scan_few(kernel, scan, bytes, len);
    return !scan->invalid;
}

bool utf8_scan(struct utf8_scan *scan, const void *data, size_t len)
{
    return utf8_scan_by(utf8_kernel(), scan, data, len);
}

bool utf8_scan_complete(const struct utf8_scan *scan)
{
    return !scan->invalid && scan->pending == 0;
}

bool utf8_is_valid(const void *data, size_t len)
{
    struct utf8_scan scan = {.count = UTF8_CHARS};

    return utf8_scan(&scan, data, len) && utf8_scan_complete(&scan);
}

size_t utf8_next(const char *text, size_t len, uint32_t *ret_value)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t need = length_of(bytes[0]), have = 1;
    uint32_t value = need <= 1 ? bytes[0] : bytes[0] & (0x7Fu >> need);

    while (have < need && have < len &&
           (have == 1 ? second_fits(bytes[0], bytes[1]) : utf8_is_tail(text[have])))
        value = value << 6 | (bytes[have++] & 0x3F);
    *ret_value = have == need ? value : UTF8_INVALID;
    return have;
}

uint32_t utf8_scan_highest(const struct utf8_scan *scan)
{
    return scan->highest < 0x80   ? 0x7F
           : scan->highest < 0xC4 ? 0xFF
           : scan->highest < 0xF0 ? 0xFFFF
                                  : 0x10FFFF;
}
