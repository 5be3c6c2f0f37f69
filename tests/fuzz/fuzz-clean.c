/* SPDX-License-Identifier: Apache-2.0 */

/* Output of any program made fit to read, against the same rules written down as plainly
 * as they are said, without a thought for speed; and what holds for every text: it is
 * UTF-8, no pass makes it longer or has anything left to do, but for two that may: what
 * is left of one escape sequence can be another, and the words about lines left out can
 * be longer than the lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/text.h"
#include "base/auto.h"
#include "base/utf8.h"
#include "cay/agent.h"

static void demand(bool truth)
{
    if (!truth)
        abort();
}

static bool is_in(char c, int least, int most)
{
    return (unsigned char)c >= least && (unsigned char)c <= most;
}

/* How long the first sequence of one kind is that begins at `at`; 0 if there is none. */
static size_t sequence(int kind, const char *text, size_t len, size_t at)
{
    size_t i = at + 2;

    if (text[at] != 27 || at + 1 >= len)
        return 0;
    if (kind == 0 && text[at + 1] == '[') {
        for (; i < len && is_in(text[i], 0x30, 0x3F); i++)
            continue;
        for (; i < len && is_in(text[i], 0x20, 0x2F); i++)
            continue;
        return i < len && is_in(text[i], 0x40, 0x7E) ? i + 1 - at : 0;
    }
    if (kind == 1 && text[at + 1] == ']') {
        for (; i < len && text[i] != '\n'; i++)
            if (text[i] == 7 || (text[i] == 27 && i + 1 < len && text[i + 1] == '\\'))
                return i + 1 + (text[i] == 27) - at;
        return 0;
    }
    if (kind == 2 && text[at + 1] != '[' && text[at + 1] != ']') {
        while (i < len && is_in(text[i], 0x80, 0xBF))
            i++;
        return i - at;
    }
    return 0;
}

static void plain_strip(int kind, struct buf *text)
{
    AUTO_BUF out;

    buf_init(&out, SIZE_MAX / 2);
    for (size_t at = 0; at < text->len;) {
        size_t goes = sequence(kind, text->data, text->len, at);
        if (!goes)
            buf_append(&out, text->data + at, 1);
        at += goes ? goes : 1;
    }
    text->len = 0;
    buf_append(text, out.len ? out.data : "", out.len);
}

static void plain_resolve(struct buf *text)
{
    AUTO_BUF lines, out;

    buf_init(&lines, SIZE_MAX / 2);
    buf_init(&out, SIZE_MAX / 2);
    for (size_t i = 0; i < text->len; i++)
        if (!(text->data[i] == '\r' && i + 1 < text->len && text->data[i + 1] == '\n'))
            buf_append(&lines, text->data + i, 1);
    size_t line = 0;
    for (size_t i = 0; i < lines.len; i++) {
        if (lines.data[i] == '\r') {
            out.len = line;
            continue;
        }
        buf_append(&out, lines.data + i, 1);
        if (lines.data[i] == '\n')
            line = out.len;
    }
    text->len = 0;
    buf_append(text, out.len ? out.data : "", out.len);
}

static size_t count_lines(const char *text, size_t len)
{
    size_t lines = 1;

    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    return lines;
}

static void expect(const struct buf *want, const char *have, size_t len)
{
    demand(have && have[len] == '\0' && utf8_is_valid(have, len));
    demand(want->len == len && (!len || memcmp(want->data, have, len) == 0));
}

/* The same once more, which must leave it as it is. */
static void expect_again(char *(*change)(const char *, size_t, size_t *),
                         const char *have, size_t len)
{
    size_t again;
    AUTO_FREE char *out = change(have, len, &again);

    demand(out && again == len && memcmp(out, have, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t decoded, len, clean;
    bool missing;
    AUTO_BUF want;

    buf_init(&want, SIZE_MAX / 2);
    AUTO_FREE char *plain = text_decode(text, size, &decoded);
    demand(plain && utf8_is_valid(plain, decoded));
    demand(!utf8_is_valid(text, size) || decoded == size);
    buf_append(&want, plain, decoded);

    for (int kind = 0; kind < 3; kind++)
        plain_strip(kind, &want);
    AUTO_FREE char *stripped = cay_text_strip_ansi(text, size, &len);
    expect(&want, stripped, len);
    demand(len <= decoded);

    plain_resolve(&want);
    AUTO_FREE char *resolved = cay_text_resolve_cr(stripped, len, &len);
    expect(&want, resolved, len);
    expect_again(cay_text_resolve_cr, resolved, len);

    AUTO_FREE char *collapsed = text_collapse(resolved, len, 4, &clean, &missing);
    demand(collapsed && utf8_is_valid(collapsed, clean));
    demand(missing ? count_lines(collapsed, clean) < count_lines(resolved, len)
                   : clean == len && memcmp(collapsed, resolved, len) == 0);
    size_t again;
    AUTO_FREE char *twice = text_collapse(collapsed, clean, 4, &again, &missing);
    demand(twice && !missing && again == clean);

    AUTO_FREE char *all = cay_text_clean(text, size, &again);
    demand(all && again == clean && memcmp(all, collapsed, clean) == 0);
    return 0;
}
