/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/envelope.h"

ptrdiff_t e2b_envelope_read(const char *bytes, size_t len,
                            struct e2b_envelope *ret_envelope)
{
    const unsigned char *head = (const unsigned char *)bytes;

    /* Compressed ones were never asked for. */
    if (len > 0 && head[0] != 0 && head[0] != E2B_ENVELOPE_END)
        return -1;
    if (len < E2B_ENVELOPE_HEAD)
        return 0;
    size_t body = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 |
                  (size_t)head[4];
    if (body > E2B_ENVELOPE_MAX)
        return -1;
    if (len - E2B_ENVELOPE_HEAD < body)
        return 0;
    *ret_envelope = (struct e2b_envelope){
        .flags = head[0], .data = bytes + E2B_ENVELOPE_HEAD, .len = body};
    return (ptrdiff_t)(E2B_ENVELOPE_HEAD + body);
}

void e2b_envelope_head(size_t len, unsigned char *ret_head)
{
    ret_head[0] = 0;
    for (int i = 1; i < E2B_ENVELOPE_HEAD; i++)
        ret_head[i] = (unsigned char)(len >> (8 * (E2B_ENVELOPE_HEAD - 1 - i)));
}
