/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/show.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

static bool is_harmless(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7F && code < 0xA0))
        return code == '\t';
    return code != 0x061C && !(code >= 0x200E && code <= 0x200F) &&
           !(code >= 0x2028 && code <= 0x202E) && !(code >= 0x2066 && code <= 0x2069);
}

void show_text(FILE *file, const char *text, size_t len, size_t limit)
{
    for (size_t i = 0; i < len; limit--) {
        uint32_t code;
        size_t size = utf8_next(text + i, len - i, &code);

        if (limit == 0) {
            fputs("...", file);
            return;
        }
        if (code == UTF8_INVALID) {
            fprintf(file, "\\x%02x", (unsigned char)text[i]);
            size = 1;
        } else if (is_harmless(code))
            fwrite(text + i, 1, size, file);
        else if (code == '\n' || code == '\r')
            fputs(code == '\n' ? "\\n" : "\\r", file);
        else
            fprintf(file, code < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)code);
        i += size;
    }
}

void show_name(FILE *file, const char *name)
{
    show_text(file, name, strlen(name), SIZE_MAX);
}

const char *show_state(enum cay_state state)
{
    static const char *const words[] = {
        "none",
        [CAY_STATE_RUNNING] = "running",
        [CAY_STATE_PAUSED] = "paused",
        [CAY_STATE_STOPPED] = "stopped",
        [CAY_STATE_DAMAGED] = "damaged",
    };

    return (unsigned)state < sizeof words / sizeof *words ? words[state] : "unknown";
}

const char *show_cause(enum cay_cause cause)
{
    static const char *const words[] = {
        [CAY_CAUSE_EXITED] = "exited",
        [CAY_CAUSE_SIGNALLED] = "signalled",
        [CAY_CAUSE_TIMEOUT] = "timeout",
        [CAY_CAUSE_MEMORY] = "memory",
        [CAY_CAUSE_OUTPUT_LIMIT] = "output-limit",
        [CAY_CAUSE_GONE] = "sandbox-gone",
        [CAY_CAUSE_NOT_STARTED] = "not-started",
    };

    return (size_t)cause < sizeof words / sizeof *words && words[cause] ? words[cause]
                                                                        : "unknown";
}
