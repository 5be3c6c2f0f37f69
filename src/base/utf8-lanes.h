/* SPDX-License-Identifier: Apache-2.0 */

/* A kernel for vectors of one width, included once for each (utf8-kernel.c), which
 * defines before: LANES, the bytes of a vector; TARGET, what the processor must have;
 * TABLE(t), 16 entries as often as they fit; and on vectors of bytes LOOKUP(table,
 * index), MINUS(a, b) that stops at 0, MAX(a, b), ANY(a) if a bit is set, SUM(a) of all
 * bytes; HOLD(a) keeps the compiler from loading it twice.
 *
 * Validation is the method of Keiser and Lemire ("Validating UTF-8 In Less Than One
 * Instruction Per Byte", 2021).  Whatever can be wrong with two bytes in a row shows in
 * three of their nibbles: both of the first byte, the upper one of the second.  Each
 * nibble is looked up in a table of what it may be part of, one bit per mistake, and a
 * bit that is set in all three is one.  TWO_TAILS stands for two continuation bytes in a
 * row, which is right exactly after a lead byte of three or four. */

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define lanes        PASTE(lanes_, LANES)
#define signed_lanes PASTE(signed_lanes_, LANES)
#define seen         PASTE(seen_, LANES)
#define load         PASTE(load_, LANES)
#define judge        PASTE(judge_, LANES)
#define pass_ascii   PASTE(pass_ascii_, LANES)
#define pass_any     PASTE(pass_any_, LANES)
#define look_for     PASTE(look_for_, LANES)
#define look         PASTE(look_, LANES)
#define INLINE       inline __attribute__((always_inline)) TARGET

typedef unsigned char lanes __attribute__((vector_size(LANES)));
typedef signed char signed_lanes __attribute__((vector_size(LANES)));

struct seen {
    lanes wrong, crs, top;
    size_t tails, lf;
};

static INLINE lanes load(const unsigned char *at)
{
    lanes v;

    memcpy(&v, at, sizeof v);
    return v;
}

/* Bits where the bytes at `at` are wrong after those before them. */
static INLINE lanes judge(const unsigned char *at, lanes now)
{
    const lanes first_high = {TABLE(FIRST_HIGH)}, first_low = {TABLE(FIRST_LOW)},
                second_high = {TABLE(SECOND_HIGH)};
    const lanes three = (lanes){0} + (0xE0 - 0x80), four = (lanes){0} + (0xF0 - 0x80);
    lanes before = load(at - 1);

    HOLD(before);
    lanes mistakes = LOOKUP(first_high, before >> 4) & LOOKUP(first_low, before & 15) &
                     LOOKUP(second_high, now >> 4);
    lanes second_tail = MINUS(load(at - 2), three) | MINUS(load(at - 3), four);
    return mistakes ^ (second_tail & TWO_TAILS);
}

/* Passes over ASCII, as far as there is and at most PIECE bytes.  Returns where that
 * ends. */
static INLINE const unsigned char *pass_ascii(const unsigned char *at,
                                              const unsigned char *stop,
                                              enum utf8_count count, struct seen *seen)
{
    lanes lfs = {0};

    for (; stop - at >= 4 * LANES; at += 4 * LANES) {
        lanes a = load(at), b = load(at + LANES), c = load(at + 2 * LANES),
              d = load(at + 3 * LANES);
        if (ANY(((a | b) | (c | d)) & 0x80))
            break;
        if (count != UTF8_CHARS)
            seen->crs |= ((lanes)(a == '\r') | (lanes)(b == '\r')) |
                         ((lanes)(c == '\r') | (lanes)(d == '\r'));
        if (count == UTF8_ALL)
            lfs -= ((lanes)(a == '\n') + (lanes)(b == '\n')) +
                   ((lanes)(c == '\n') + (lanes)(d == '\n'));
    }
    if (count == UTF8_ALL)
        seen->lf += SUM(lfs);
    return at;
}

/* Passes over any text. */
static INLINE const unsigned char *pass_any(const unsigned char *at,
                                            const unsigned char *stop,
                                            enum utf8_count count, struct seen *seen)
{
    const signed_lanes border = (signed_lanes){0} - 64;
    lanes tails = {0}, lfs = {0};

    for (; at < stop; at += 2 * LANES) {
        lanes a = load(at), b = load(at + LANES);
        seen->wrong |= judge(at, a) | judge(at + LANES, b);
        tails -= (lanes)((signed_lanes)a < border);
        tails -= (lanes)((signed_lanes)b < border);
        seen->top = MAX(seen->top, MAX(a, b));
        if (count != UTF8_CHARS)
            seen->crs |= (lanes)(a == '\r') | (lanes)(b == '\r');
        if (count == UTF8_ALL)
            lfs -= (lanes)(a == '\n') + (lanes)(b == '\n');
    }
    seen->tails += SUM(tails);
    if (count == UTF8_ALL)
        seen->lf += SUM(lfs);
    return at;
}

static INLINE void look_for(const unsigned char *text, size_t len, enum utf8_count count,
                            struct utf8_tally *ret_tally)
{
    const lanes two = (lanes){0} + 0x7F, three = (lanes){0} + (ABOVE_LATIN_1 - 1),
                four = (lanes){0} + (ABOVE_BMP - 1);
    const unsigned char *at = text, *end = text + len;
    struct seen seen = {0};

    while (at < end) {
        const unsigned char *stop = end - at > PIECE ? at + PIECE : end;
        /* A character that is not finished before ASCII is seen by judge() alone. */
        if (!((at[-1] | at[-2] | at[-3]) & 0x80))
            at = pass_ascii(at, stop, count, &seen);
        if (at < stop) {
            at = pass_any(at, stop, count, &seen);
            if (ANY(seen.wrong))
                break;
        }
    }
    *ret_tally = (struct utf8_tally){
        .tails = seen.tails,
        .lf = seen.lf,
        .highest = ANY(MINUS(seen.top, four))    ? ABOVE_BMP
                   : ANY(MINUS(seen.top, three)) ? ABOVE_LATIN_1
                   : ANY(MINUS(seen.top, two))   ? 0x80
                                                 : 0,
        .has_cr = ANY(seen.crs),
        .wrong = ANY(seen.wrong),
    };
}

static TARGET void look(const unsigned char *text, size_t len, enum utf8_count count,
                        struct utf8_tally *ret_tally)
{
    if (count == UTF8_ALL)
        look_for(text, len, UTF8_ALL, ret_tally);
    else if (count == UTF8_CHARS_AND_CRLF)
        look_for(text, len, UTF8_CHARS_AND_CRLF, ret_tally);
    else
        look_for(text, len, UTF8_CHARS, ret_tally);
}

#undef PASTE_
#undef PASTE
#undef lanes
#undef signed_lanes
#undef seen
#undef load
#undef judge
#undef pass_ascii
#undef pass_any
#undef look_for
#undef look
#undef INLINE
#undef LANES
#undef TARGET
#undef TABLE
#undef LOOKUP
#undef MINUS
#undef MAX
#undef ANY
#undef SUM
#undef HOLD
