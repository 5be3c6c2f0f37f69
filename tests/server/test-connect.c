/* SPDX-License-Identifier: Apache-2.0 */
#include <nettle/base64.h>
#include <stdlib.h>

#include "../unit/harness.h"
#include "base/auto.h"
#include "server/front/front.h"

TEST(known_texts_are_what_the_standard_says)
{
    static const char *const known[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foobar", "Zm9vYmFy"},
        {"\xfb\xef\xff and thirteen", "++//IGFuZCB0aGlydGVlbg=="},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char text[64] = "";
        connect_base64(text, known[i][0], strlen(known[i][0]));
        ASSERT_STR(text, known[i][1]);
    }
}

/* Each in memory of exactly its size, so that a sanitizer sees a byte too many. */
TEST(all_bytes_at_all_lengths_are_encoded_as_nettle_does)
{
    for (size_t len = 0; len < 300; len++) {
        size_t size = BASE64_ENCODE_RAW_LENGTH(len);
        AUTO_FREE unsigned char *from = malloc(len + 1);
        AUTO_FREE char *ours = malloc(size + 1), *theirs = malloc(size + 1);
        ASSERT(from && ours && theirs);
        unsigned char *tight = from + 1; /* ends with the memory, and is not aligned */
        for (size_t i = 0; i < len; i++)
            tight[i] = (unsigned char)(i * 7 + len);
        base64_encode_raw(theirs, len, tight);
        connect_base64(ours, tight, len);
        ASSERT(memcmp(ours, theirs, size) == 0);
    }
}
