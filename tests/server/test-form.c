/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/form.h"

#include <stdlib.h>
#include <string.h>

#include "../unit/harness.h"
#include "base/auto.h"

static const char type[] = "multipart/form-data; charset=x; boundary=\"b b\"";

/* What was heard: "NAME|FILENAME:" before the bytes of each part. */
static bool note_begin(void *cookie, const char *name, const char *filename)
{
    return buf_format(cookie, "{%s|%s:", name, filename ? filename : "-");
}

static bool note_bytes(void *cookie, const char *data, size_t len)
{
    return buf_append(cookie, data, len);
}

/* In pieces of so many bytes, each in memory of its own. */
static bool feed(const char *text, size_t size, struct buf *heard)
{
    struct form form = {.begin = note_begin, .bytes = note_bytes, .cookie = heard};
    bool is_fine = form_init(&form, type);

    for (size_t at = 0, all = strlen(text); is_fine && at < all; at += size) {
        size_t len = all - at < size ? all - at : size;
        AUTO_FREE char *piece = malloc(len);
        ASSERT(piece);
        memcpy(piece, text + at, len);
        is_fine = form_feed(&form, piece, len);
    }
    is_fine = is_fine && form_is_whole(&form);
    form_done(&form);
    return is_fine;
}

TEST(a_form_is_the_same_in_pieces_of_any_size)
{
    static const char text[] =
        "before\r\n--b b \t\r\n"
        "X: y\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n"
        "\r\n--b\r\r\n--b c\r\n\r\n--b b\r\n"
        "Content-Disposition:form-data;filename=\"\\\\ \\\" \\x;\" ; NAME=file\r\n\r\n"
        "\r\n--b b\r\n\r\nno head\r\n\r\n--b b--after\r\n--b b\r\n";

    for (size_t size = 1; size <= sizeof text; size++) {
        AUTO_BUF heard = {0};
        buf_init(&heard, 4096);
        ASSERT(feed(text, size, &heard));
        ASSERT_STR(heard.data,
                   "{a|-:\r\n--b\r\r\n--b c\r\n{file|\\ \" \\x;:{|-:no head\r\n");
    }
}

TEST(what_is_no_form_or_no_whole_one_is_noticed)
{
    static const char *const texts[] = {
        "",
        "x",
        "--b b",
        "--b b-",
        "--b b\r\n",
        "--b b\r\n\r\nx\r\n--b",
        "--b bc\r\n\r\nx\r\n--b b--",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        AUTO_BUF heard = {0};
        buf_init(&heard, 4096);
        ASSERT(!feed(texts[i], 3, &heard));
    }
}

TEST(a_type_without_a_boundary_is_refused)
{
    static const char too_long[] =
        "multipart/form-data; boundary="
        "01234567890123456789012345678901234567890123456789012345678901234567890";
    static const char *const types[] = {
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"x",
        "multipart/form-data; boundary",
        too_long,
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct form form = {0};
        ASSERT(!form_init(&form, types[i]));
        form_done(&form);
    }
}
