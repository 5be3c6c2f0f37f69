/* SPDX-License-Identifier: Apache-2.0 */
#include "base/passwd.h"
#include "harness.h"

TEST(a_line_splits_at_its_colons)
{
    const char *text = "a:x:1:2::/home:/bin/sh:more\n\nb:x:3:c,d";
    struct passwd_line line;

    ASSERT(passwd_next(&text, &line));
    ASSERT_INT(line.count, PASSWD_FIELDS);
    ASSERT(line.fields[5].len == 5 && memcmp(line.fields[5].text, "/home", 5) == 0);
    ASSERT(passwd_next(&text, &line));
    ASSERT(line.count == 1 && line.fields[0].len == 0);
    ASSERT(passwd_next(&text, &line));
    ASSERT(line.count == 4 && line.fields[3].len == 3);
    ASSERT(!passwd_next(&text, &line));
}

TEST(a_name_is_found_as_a_whole)
{
    const char text[] = "user\nusers:x:1:1:\nuser:x:7:8:\n";
    struct passwd_line line;
    uint32_t id;

    ASSERT(passwd_find(text, "user", 4, &line));
    ASSERT(passwd_id(&line, 2, 100, &id) && id == 7);
    ASSERT(passwd_id(&line, 3, 100, &id) && id == 8);
    ASSERT(!passwd_id(&line, 4, 100, &id) && !passwd_id(&line, 5, 100, &id));
    ASSERT(!passwd_find(text, "use", 3, &line) && !passwd_find("", "user", 4, &line));
}

TEST(an_id_is_a_plain_number_within_its_bound)
{
    static const char *const wrong[] = {"",   "01", "+1", "-1",
                                        "1 ", "1a", "66", "4294967361"};
    uint32_t id = 5;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ASSERT(!passwd_parse_id(wrong[i], strlen(wrong[i]), 65, &id));
    ASSERT_INT(id, 5);
    ASSERT(passwd_parse_id("0", 1, 65, &id) && id == 0);
    ASSERT(passwd_parse_id("65", 2, 65, &id) && id == 65);
    ASSERT(passwd_parse_id("4294967295", 10, UINT32_MAX, &id) && id == UINT32_MAX);
}
