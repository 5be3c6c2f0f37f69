/* SPDX-License-Identifier: Apache-2.0 */
#include "native/template/digest.h"

#include <errno.h>
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "sys/io.h"

/* By nettle, which libarchive brings along anyway. */

enum { PIECE = 256 << 10 };

_Static_assert((int)DIGEST_HEX == 2 * SHA256_DIGEST_SIZE, "two digits a byte");

const char *digest_hex(const char *digest)
{
    static const char prefix[] = "sha256:";

    if (strncmp(digest, prefix, strlen(prefix)) != 0)
        return NULL;
    digest += strlen(prefix);
    return strlen(digest) == DIGEST_HEX &&
                   strspn(digest, "0123456789abcdef") == DIGEST_HEX
               ? digest
               : NULL;
}

int digest_stream(int from, int to, uint64_t max, char ret_hex[DIGEST_HEX + 1])
{
    struct sha256_ctx context;
    uint8_t digest[SHA256_DIGEST_SIZE];
    AUTO_FREE uint8_t *piece = malloc(PIECE);

    if (!piece)
        return -ENOMEM;
    sha256_init(&context);
    for (;;) {
        ssize_t len = read(from, piece, PIECE);
        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return -errno;
        if (len == 0)
            break;
        if ((uint64_t)len > max)
            return -EFBIG;
        max -= (uint64_t)len;
        sha256_update(&context, (size_t)len, piece);
        int error = to < 0 ? 0 : io_write(to, piece, (size_t)len);
        if (error)
            return error;
    }
    sha256_digest(&context, sizeof digest, digest);
    base16_encode_update(ret_hex, sizeof digest, digest);
    ret_hex[DIGEST_HEX] = '\0';
    return 0;
}
