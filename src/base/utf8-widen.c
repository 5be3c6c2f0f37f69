/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8-widen.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8-kernel.h"

#define INLINE inline __attribute__((always_inline))

/* Bytes that hold at least this many characters are at hand where that many are written
 * at once. */
enum { LONGEST = 4, AT_ONCE = 8 };

/* The read and write positions.  The functions are inlined with a constant width. */
struct place {
    const unsigned char *at, *end;
    void *to;
    size_t count;
};

static INLINE void put(struct place *place, unsigned width, uint32_t value)
{
    size_t i = place->count++;

    if (width == 1)
        ((uint8_t *)place->to)[i] = (uint8_t)value;
    else if (width == 2)
        ((uint16_t *)place->to)[i] = (uint16_t)value;
    else
        ((uint32_t *)place->to)[i] = value;
}

/* Writes eight bytes as if they were ASCII, without going on. */
static INLINE void put_ascii(const struct place *place, unsigned width)
{
    typedef uint8_t eight __attribute__((vector_size(8)));
    typedef uint16_t eight_2 __attribute__((vector_size(16)));
    typedef uint32_t eight_4 __attribute__((vector_size(32)));
    char *to = (char *)place->to + place->count * width;
    eight bytes;

    memcpy(&bytes, place->at, sizeof bytes);
    if (width == 1) {
        memcpy(to, &bytes, sizeof bytes);
    } else if (width == 2) {
        eight_2 wide = __builtin_convertvector(bytes, eight_2);
        memcpy(to, &wide, sizeof wide);
    } else {
        eight_4 wide = __builtin_convertvector(bytes, eight_4);
        memcpy(to, &wide, sizeof wide);
    }
}

static INLINE void take_character(struct place *place, unsigned width)
{
    const unsigned char *at = place->at;
    uint32_t value;

    if (at[0] < 0x80) {
        value = at[0];
        place->at += 1;
    } else if (at[0] < 0xE0) {
        value = (at[0] & 0x1Fu) << 6 | (at[1] & 0x3Fu);
        place->at += 2;
    } else if (at[0] < 0xF0) {
        value = (at[0] & 0x0Fu) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
        place->at += 3;
    } else {
        value = (at[0] & 0x07u) << 18 | (at[1] & 0x3Fu) << 12 | (at[2] & 0x3Fu) << 6 |
                (at[3] & 0x3Fu);
        place->at += 4;
    }
    put(place, width, value);
}

static INLINE size_t widen(struct place place, unsigned width)
{
    while (place.end - place.at >= AT_ONCE * LONGEST) {
        uint64_t high;
        memcpy(&high, place.at, sizeof high);
        high &= 0x8080808080808080u;
        put_ascii(&place, width);
        int plain = high ? __builtin_ctzll(high) / 8 : AT_ONCE;
        place.at += plain;
        place.count += (size_t)plain;
        while (place.at[0] >= 0x80 && place.end - place.at >= AT_ONCE * LONGEST)
            take_character(&place, width);
    }
    while (place.at < place.end)
        take_character(&place, width);
    return place.count;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte is the lowest");

static size_t widen_rest(struct place place, unsigned width)
{
    return width == 1 ? widen(place, 1) : width == 2 ? widen(place, 2) : widen(place, 4);
}

size_t utf8_widen_plainly(const void *text, size_t len, unsigned width, void *to)
{
    const unsigned char *bytes = text;

    return widen_rest((struct place){bytes, bytes + len, to, 0}, width);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,popcnt")))

/* Each byte has a lane, in which the character that would start there is assembled; then
 * the lanes of real starts are compacted. */
enum { LANES = 16 };

/* The excess in the sum of all bytes, each shifted to its position. */
enum {
    EXCESS_2 = (0xC0 << 6) + 0x80,
    EXCESS_3 = (0xE0 << 12) + (0x80 << 6) + 0x80,
    EXCESS_4 = (0xF0 << 18) + (0x80 << 12) + (0x80 << 6) + 0x80
};

static INLINE TARGET __m512i lanes_of(const unsigned char *at)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)at));
}

static INLINE TARGET void put_lanes(const struct place *place, unsigned width,
                                    __m512i values)
{
    char *to = (char *)place->to + place->count * width;

    if (width == 1)
        _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(values));
    else if (width == 2)
        _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtepi32_epi16(values));
    else
        _mm512_storeu_si512(to, values);
}

/* One more byte in the lanes of longer characters. */
static INLINE TARGET __m512i add_byte(__m512i values, __mmask16 longer,
                                      const unsigned char *at, int excess)
{
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(values, 6), lanes_of(at));

    return _mm512_mask_sub_epi32(values, longer, sum, _mm512_set1_epi32(excess));
}

static INLINE TARGET struct place widen_lanes(struct place place, unsigned width)
{
    const __m128i tail = _mm_set1_epi8((char)0xBF), two = _mm_set1_epi8((char)0xC0),
                  three = _mm_set1_epi8((char)0xE0), four = _mm_set1_epi8((char)0xF0);

    for (; place.end - place.at >= LANES * LONGEST; place.at += LANES) {
        const unsigned char *at = place.at;
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m512i values = _mm512_cvtepu8_epi32(bytes);
        if (_mm_movemask_epi8(bytes) == 0) {
            put_lanes(&place, width, values);
            place.count += LANES;
            continue;
        }
        __mmask16 begins = _mm_cmpgt_epi8_mask(bytes, tail);
        values = add_byte(values, _mm_cmpge_epu8_mask(bytes, two), at + 1, EXCESS_2);
        __mmask16 longer = _mm_cmpge_epu8_mask(bytes, three);
        if (longer) {
            values = add_byte(values, longer, at + 2, EXCESS_3 - (EXCESS_2 << 6));
            values = add_byte(values, _mm_cmpge_epu8_mask(bytes, four), at + 3,
                              EXCESS_4 - (EXCESS_3 << 6));
        }
        put_lanes(&place, width, _mm512_maskz_compress_epi32(begins, values));
        place.count += (size_t)__builtin_popcount(begins);
    }
    return place;
}

static TARGET struct place widen_most(struct place place, unsigned width)
{
    place = width == 1   ? widen_lanes(place, 1)
            : width == 2 ? widen_lanes(place, 2)
                         : widen_lanes(place, 4);
    /* The last lanes may have ended in a character that is written already. */
    while (place.at < place.end && (place.at[0] & 0xC0) == 0x80)
        place.at++;
    return place;
}

/* Whatever has VBMI has VL, too. */
static bool has_lanes(void)
{
    return utf8_lanes() == 64;
}

#else
static struct place widen_most(struct place place, unsigned width)
{
    (void)width;
    return place;
}

static bool has_lanes(void)
{
    return false;
}
#endif

size_t utf8_widen(const void *text, size_t len, unsigned width, void *to)
{
    const unsigned char *bytes = text;
    struct place place = {bytes, bytes + len, to, 0};

    return widen_rest(has_lanes() ? widen_most(place, width) : place, width);
}
