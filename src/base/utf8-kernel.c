/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8-kernel.h"

#include <stdint.h>
#include <string.h>

/* Bytes passed over at a time: few enough that no lane of the narrowest vectors counts
 * over 255, and that text with little that is not ASCII is mostly passed over as such. */
enum { PIECE = 2048 };

/* The lowest lead bytes of characters above U+00FF and above U+FFFF. */
enum { ABOVE_LATIN_1 = 0xC4, ABOVE_BMP = 0xF0 };

/* What can be invalid about two consecutive bytes. */
enum {
    TOO_SHORT = 1 << 0,   /* a lead byte, then none that continues it */
    TOO_LONG = 1 << 1,    /* ASCII, then one that continues */
    OVER_LONG_3 = 1 << 2, /* E0 80..9F */
    TOO_LARGE = 1 << 3,   /* F4 90..BF, F5..FF */
    SURROGATE = 1 << 4,   /* ED A0..BF */
    OVER_LONG_2 = 1 << 5, /* C0, C1 */
    OVER_LONG_4 = 1 << 6, /* F0 80..8F; with TOO_LARGE's first byte F5..FF 80..8F */
    TWO_TAILS = 1 << 7,
    ANY_LOW = TOO_SHORT | TOO_LONG | TWO_TAILS /* whatever the first byte's low nibble */
};

#define FOUR(x) x, x, x, x

#define FIRST_HIGH                                                                       \
    FOUR(TOO_LONG), FOUR(TOO_LONG), FOUR(TWO_TAILS), TOO_SHORT | OVER_LONG_2, TOO_SHORT, \
        TOO_SHORT | OVER_LONG_3 | SURROGATE, TOO_SHORT | TOO_LARGE | OVER_LONG_4

#define BEYOND (ANY_LOW | TOO_LARGE | OVER_LONG_4)
#define FIRST_LOW                                                                        \
    ANY_LOW | OVER_LONG_2 | OVER_LONG_3 | OVER_LONG_4, ANY_LOW | OVER_LONG_2, ANY_LOW,   \
        ANY_LOW, ANY_LOW | TOO_LARGE, BEYOND, BEYOND, BEYOND, FOUR(BEYOND), BEYOND,      \
        BEYOND | SURROGATE, BEYOND, BEYOND

#define TAIL (TOO_LONG | OVER_LONG_2 | TWO_TAILS)
#define SECOND_HIGH                                                                      \
    FOUR(TOO_SHORT), FOUR(TOO_SHORT), TAIL | OVER_LONG_3 | OVER_LONG_4,                  \
        TAIL | OVER_LONG_3 | TOO_LARGE, TAIL | SURROGATE | TOO_LARGE,                    \
        TAIL | SURROGATE | TOO_LARGE, FOUR(TOO_SHORT)

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

#define LANES        16
#define TARGET       __attribute__((target("ssse3")))
#define TABLE(t)     t
#define LOOKUP(t, i) ((lanes)_mm_shuffle_epi8((__m128i)(t), (__m128i)(i)))
#define MINUS(a, b)  ((lanes)_mm_subs_epu8((__m128i)(a), (__m128i)(b)))
#define MAX(a, b)    ((lanes)_mm_max_epu8((__m128i)(a), (__m128i)(b)))
#define ANY(a)       any_16((__m128i)(a))
#define SUM(a)       sum_16((__m128i)(a))
#define HOLD(a)      __asm__("" : "+v"(a))

static inline TARGET bool any_16(__m128i v)
{
    return _mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_setzero_si128())) != 0xFFFF;
}

static inline TARGET size_t sum_16(__m128i v)
{
    __m128i sums = _mm_sad_epu8(v, _mm_setzero_si128());

    return (size_t)_mm_cvtsi128_si64(sums) +
           (size_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(sums, sums));
}

#include "base/utf8-lanes.h"

#define LANES        32
#define TARGET       __attribute__((target("avx2")))
#define TABLE(t)     t, t
#define LOOKUP(t, i) ((lanes)_mm256_shuffle_epi8((__m256i)(t), (__m256i)(i)))
#define MINUS(a, b)  ((lanes)_mm256_subs_epu8((__m256i)(a), (__m256i)(b)))
#define MAX(a, b)    ((lanes)_mm256_max_epu8((__m256i)(a), (__m256i)(b)))
#define ANY(a)       (!_mm256_testz_si256((__m256i)(a), (__m256i)(a)))
#define SUM(a)       sum_32((__m256i)(a))
#define HOLD(a)      __asm__("" : "+v"(a))

static inline TARGET size_t sum_32(__m256i v)
{
    __m256i sums = _mm256_sad_epu8(v, _mm256_setzero_si256());
    __m128i half =
        _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));

    return (size_t)_mm_cvtsi128_si64(half) +
           (size_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(half, half));
}

#include "base/utf8-lanes.h"

#define LANES        64
#define TARGET       __attribute__((target("avx512f,avx512bw")))
#define TABLE(t)     t, t, t, t
#define LOOKUP(t, i) ((lanes)_mm512_shuffle_epi8((__m512i)(t), (__m512i)(i)))
#define MINUS(a, b)  ((lanes)_mm512_subs_epu8((__m512i)(a), (__m512i)(b)))
#define MAX(a, b)    ((lanes)_mm512_max_epu8((__m512i)(a), (__m512i)(b)))
#define ANY(a)       (_mm512_test_epi64_mask((__m512i)(a), (__m512i)(a)) != 0)
#define SUM(a)       sum_64((__m512i)(a))
#define HOLD(a)      __asm__("" : "+v"(a))

static inline TARGET size_t sum_64(__m512i v)
{
    return (size_t)_mm512_reduce_add_epi64(_mm512_sad_epu8(v, _mm512_setzero_si512()));
}

#include "base/utf8-lanes.h"

static const struct utf8_kernel kernels[] = {
    {"avx512", look_64}, {"avx2", look_32}, {"ssse3", look_16}};

/* XCR0: the registers that the kernel saves, so that programs may use them. */
enum { SAVES_AVX = 0x6, SAVES_AVX512 = 0xE6 };

static unsigned query_lanes(void)
{
    unsigned a, b, c, d, basic, saved = 0;

    __cpuid(1, a, b, basic, d);
    if (basic & bit_OSXSAVE)
        __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        b = c = 0;
    /* AVX-512 only with VBMI: older processors lower their clock for it. */
    return (saved & SAVES_AVX512) == SAVES_AVX512 && b & bit_AVX512BW &&
                   c & bit_AVX512VBMI
               ? 64
           : (saved & SAVES_AVX) == SAVES_AVX && b & bit_AVX2 ? 32
           : basic & bit_SSSE3                                ? 16
                                                              : 1;
}

/* CPUID is slow in a virtual machine: a program that scans no text does not run it, as it
 * would for __builtin_cpu_supports(). */
unsigned utf8_lanes(void)
{
    static _Atomic(unsigned) known;
    unsigned lanes = atomic_load_explicit(&known, memory_order_relaxed);

    if (!lanes) {
        lanes = query_lanes();
        atomic_store_explicit(&known, lanes, memory_order_relaxed);
    }
    return lanes;
}

static bool is_here(size_t i)
{
    return utf8_lanes() >= 64u >> i;
}

#elif defined(__aarch64__)
#include <arm_neon.h>

#define LANES 16
#define TARGET
#define TABLE(t)     t
#define LOOKUP(t, i) ((lanes)vqtbl1q_u8((uint8x16_t)(t), (uint8x16_t)(i)))
#define MINUS(a, b)  ((lanes)vqsubq_u8((uint8x16_t)(a), (uint8x16_t)(b)))
#define MAX(a, b)    ((lanes)vmaxq_u8((uint8x16_t)(a), (uint8x16_t)(b)))
#define ANY(a)       (vmaxvq_u8((uint8x16_t)(a)) != 0)
#define SUM(a)       ((size_t)vaddlvq_u8((uint8x16_t)(a)))
#define HOLD(a)      __asm__("" : "+w"(a))

#include "base/utf8-lanes.h"

static const struct utf8_kernel kernels[] = {{"neon", look_16}};

static bool is_here(size_t i)
{
    return i == 0;
}

#else
static const struct utf8_kernel kernels[1];

static bool is_here(size_t i)
{
    (void)i;
    return false;
}
#endif

const struct utf8_kernel *utf8_kernel_at(size_t i)
{
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
        if (is_here(k) && i-- == 0)
            return &kernels[k];
    return NULL;
}

const struct utf8_kernel *utf8_kernel(void)
{
    return utf8_kernel_at(0);
}
