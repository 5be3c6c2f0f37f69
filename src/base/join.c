/* SPDX-License-Identifier: Apache-2.0 */
#include "base/join.h"

#include <string.h>

bool join_texts(char *ret_text, size_t room, const char *const *texts)
{
    size_t used = 0;

    for (; *texts; texts++) {
        size_t len = strlen(*texts);
        if (len >= room - used) {
            *ret_text = '\0';
            return false;
        }
        memcpy(ret_text + used, *texts, len);
        used += len;
    }
    ret_text[used] = '\0';
    return true;
}
