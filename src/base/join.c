/* SPDX-License-Identifier: Apache-2.0 */
#include "base/join.h"

#include <stdarg.h>
#include <string.h>

bool join_text(char *ret_text, size_t room, ...)
{
    size_t used = 0;
    bool fits = true;
    va_list texts;

    va_start(texts, room);
    for (const char *text; fits && (text = va_arg(texts, const char *));) {
        size_t len = strlen(text);
        fits = len < room - used;
        if (fits)
            memcpy(ret_text + used, text, len);
        used += fits ? len : 0;
    }
    va_end(texts);
    ret_text[fits ? used : 0] = '\0';
    return fits;
}
