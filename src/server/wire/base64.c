/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/base64.h"

#include <nettle/base64.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t words __attribute__((vector_size(16)));
typedef int8_t characters __attribute__((vector_size(16)));

enum { TAKEN = 12, LOOKED_AT = 13, PUT = sizeof(words) };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words begin with their end");

/* Twelve bytes at a time, three in each word: aaaaaabb bbbbcccc ccdddddd are moved to
 * 00aaaaaa 00bbbbbb 00cccccc 00dddddd, and these to what stands for them. */
static void encode_twelve(char *to, const unsigned char *from)
{
    uint32_t three[4];

    for (int i = 0; i < 4; i++)
        memcpy(&three[i], from + 3 * i, sizeof *three);
    const words in = {three[0], three[1], three[2], three[3]};
    const words sixes = (in >> 2 & 0x3f) | (in << 12 & 0x3000) | (in >> 4 & 0x0f00) |
                        (in << 10 & 0x3c0000) | (in >> 6 & 0x030000) |
                        (in << 8 & 0x3f000000);
    const characters at = (characters)sixes;
    const characters out = at + 'A' + ((at > 25) & ('a' - 'A' - 26)) -
                           ((at > 51) & ('a' - '0' + 26)) - ((at > 61) & 15) +
                           ((at > 62) & 3);
    memcpy(to, &out, sizeof out);
}

void base64_encode(char *to, const void *from, size_t len)
{
    const unsigned char *at = from;

    for (; len >= LOOKED_AT; len -= TAKEN, at += TAKEN, to += PUT)
        encode_twelve(to, at);
    base64_encode_raw(to, len, at);
}
