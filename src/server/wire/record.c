/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/record.h"

#include <string.h>

bool record_is_id(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789");

    return len > 0 && len < SANDBOX_ID_MAX - 3 && text[len] == '\0';
}
