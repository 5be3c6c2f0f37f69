/* SPDX-License-Identifier: Apache-2.0 */
#include "json/json.h"

#include "harness.h"

/* What json_put_bytes() makes of the bytes; lives until the next call. */
static const char *quoted(const char *bytes, size_t len)
{
    static char text[256];
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, sizeof text - 1);
    json_to_buf(&json, &buf);
    json_put_bytes(&json, bytes, len);
    ASSERT(json_finish(&json));
    memcpy(text, buf.data, buf.len + 1);
    return text;
}

#define QUOTED(literal) quoted(literal, sizeof(literal) - 1)

TEST(commas_and_nesting_come_by_themselves)
{
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, 1000);
    json_to_buf(&json, &buf);
    json_put_object(&json);
    json_put_key(&json, "a");
    json_put_array(&json);
    json_put_int(&json, INT64_MIN);
    json_put_uint(&json, UINT64_MAX);
    json_put_object(&json);
    json_put_end(&json);
    json_put_array(&json);
    json_put_end(&json);
    json_put_null(&json);
    json_put_end(&json);
    json_put_key(&json, "b");
    json_put_bool(&json, true);
    json_put_key(&json, "c");
    json_put_object(&json);
    json_put_key(&json, "d");
    json_put_bool(&json, false);
    json_put_end(&json);
    json_put_key(&json, "e");
    json_put_text(&json, NULL);
    json_put_end(&json);
    ASSERT(json_finish(&json));
    ASSERT_STR(buf.data, "{\"a\":[-9223372036854775808,18446744073709551615,{},[],null],"
                         "\"b\":true,\"c\":{\"d\":false},\"e\":null}");
}

TEST(a_file_gets_the_same_bytes_as_a_buffer)
{
    char *data = NULL;
    size_t len = 0;
    struct json json;
    FILE *file = open_memstream(&data, &len);

    ASSERT(file);
    json_to_file(&json, file);
    json_put_array(&json);
    json_put_text(&json, "");
    json_put_text(&json, "x\n");
    json_put_end(&json);
    ASSERT(json_finish(&json));
    ASSERT_INT(fclose(file), 0);
    ASSERT_MEM(data, len, "[\"\",\"x\\n\"]", 10);
    free(data);
}

TEST(a_file_that_takes_nothing_makes_the_document_fail)
{
    struct json json;
    FILE *file = fopen("/dev/full", "we");

    ASSERT(file);
    setvbuf(file, NULL, _IONBF, 0);
    json_to_file(&json, file);
    json_put_text(&json, "x");
    ASSERT(!json_finish(&json));
    fclose(file);
}

TEST(special_characters_are_escaped)
{
    ASSERT_STR(QUOTED("\"\\/\b\f\n\r\t"), "\"\\\"\\\\/\\b\\f\\n\\r\\t\"");
    ASSERT_STR(QUOTED("\0\x01\x1b"), "\"\\u0000\\u0001\\u001b\"");
}

TEST(what_a_terminal_would_obey_is_escaped_too)
{
    ASSERT_STR(QUOTED("\x7f"), "\"\\u007f\"");
    ASSERT_STR(QUOTED("\xc2\x9b"), "\"\\u009b\"");
    ASSERT_STR(QUOTED("\xc2\xa0"), "\"\xc2\xa0\"");
}

TEST(utf8_is_written_as_it_is)
{
    ASSERT_STR(QUOTED("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"),
               "\"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\"");
    ASSERT_STR(QUOTED("\xf4\x8f\xbf\xbf"), "\"\xf4\x8f\xbf\xbf\"");
}

TEST(a_byte_that_is_not_utf8_becomes_u_fffd_for_readers_who_refuse_surrogates)
{
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, 256);
    json_to_unicode(&json, &buf);
    json_put_object(&json);
    json_put_key(&json, "k\xff");
    json_put_text(&json, "a\xff\x80\xc3\xa9");
    json_put_end(&json);
    ASSERT(json_finish(&json));
    ASSERT_MEM(buf.data, buf.len, "{\"k\\ufffd\":\"a\\ufffd\\ufffd\xc3\xa9\"}", 29);
}

TEST(characters_are_escaped_for_readers_who_decode_pieces)
{
    static const char wanted[] = "{\"\\u00fc\":\"a\\u20ac\\ud83d\\ude00\\ufffd\","
                                 "\"r\":[\"\\u00e9\\udbff\\udfff\"]}";
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, 256);
    json_to_ascii(&json, &buf);
    json_put_object(&json);
    json_put_key(&json, "\xc3\xbc");
    json_put_text(&json, "a\xe2\x82\xac\xf0\x9f\x98\x80\xff");
    json_put_key(&json, "r");
    json_put_raw(&json, "[\"\xc3\xa9\xf4\x8f\xbf\xbf\"]");
    json_put_end(&json);
    ASSERT(json_finish(&json));
    ASSERT_MEM(buf.data, buf.len, wanted, sizeof wanted - 1);
}

TEST(a_byte_that_is_not_utf8_becomes_a_lone_surrogate)
{
    ASSERT_STR(QUOTED("a\xff\x80z"), "\"a\\udcff\\udc80z\"");
    ASSERT_STR(QUOTED("\xc3"), "\"\\udcc3\"");            /* cut off */
    ASSERT_STR(QUOTED("\xe2\x82"), "\"\\udce2\\udc82\""); /* cut off */
    ASSERT_STR(QUOTED("\xc3("), "\"\\udcc3(\"");
    ASSERT_STR(QUOTED("\xc0\xaf"), "\"\\udcc0\\udcaf\""); /* over-long */
    ASSERT_STR(QUOTED("\xe0\x80\xaf"), "\"\\udce0\\udc80\\udcaf\"");
    ASSERT_STR(QUOTED("\xed\xa0\x80"), "\"\\udced\\udca0\\udc80\""); /* a surrogate */
    ASSERT_STR(QUOTED("\xf4\x90\x80\x80"), "\"\\udcf4\\udc90\\udc80\\udc80\"");
    ASSERT_STR(QUOTED("\xf5\x80\x80\x80"), "\"\\udcf5\\udc80\\udc80\\udc80\"");
}

TEST(a_member_is_a_key_and_its_value)
{
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, 100);
    json_to_buf(&json, &buf);
    json_put_object(&json);
    json_set_text(&json, "t", "x");
    json_set_int(&json, "i", -1);
    json_set_uint(&json, "u", 1);
    json_set_bool(&json, "b", false);
    json_put_end(&json);
    ASSERT(json_finish(&json));
    ASSERT_STR(buf.data, "{\"t\":\"x\",\"i\":-1,\"u\":1,\"b\":false}");
}

TEST(a_value_in_an_object_needs_a_key)
{
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, 100);
    json_to_buf(&json, &buf);
    json_put_object(&json);
    json_put_null(&json);
    json_put_end(&json);
    ASSERT(!json_finish(&json));
}

TEST(json_that_is_there_already_is_a_value_like_others)
{
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, 1000);
    json_to_buf(&json, &buf);
    json_put_array(&json);
    json_put_raw(&json, "{\"a\": [1, \"\xc3\xa9\"]}");
    json_put_raw(&json, "\"\x7f\xc2\x9b[31m\"");
    json_put_end(&json);
    ASSERT(json_finish(&json));
    ASSERT_STR(buf.data, "[{\"a\": [1, \"\xc3\xa9\"]},\"\\u007f\\u009b[31m\"]");
}

TEST(a_key_needs_an_object_and_a_value)
{
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, 100);
    json_to_buf(&json, &buf);
    json_put_array(&json);
    json_put_key(&json, "k");
    ASSERT(json.failed);

    json_to_buf(&json, &buf);
    json_put_object(&json);
    json_put_key(&json, "k");
    json_put_end(&json);
    ASSERT(!json_finish(&json));

    json_to_buf(&json, &buf);
    json_put_object(&json);
    json_put_key(&json, "k");
    json_put_key(&json, "l");
    ASSERT(json.failed);
}

TEST(a_document_is_exactly_one_complete_value)
{
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, 100);
    json_to_buf(&json, &buf);
    ASSERT(!json_finish(&json));

    json_to_buf(&json, &buf);
    json_put_array(&json);
    ASSERT(!json_finish(&json));

    json_to_buf(&json, &buf);
    json_put_null(&json);
    json_put_null(&json);
    ASSERT(!json_finish(&json));

    json_to_buf(&json, &buf);
    json_put_end(&json);
    ASSERT(!json_finish(&json));
}

TEST(sixty_four_levels_are_written_and_the_next_fails)
{
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, 1000);
    json_to_buf(&json, &buf);
    for (int i = 0; i < 64; i++)
        json_put_array(&json);
    ASSERT(!json.failed);
    for (int i = 0; i < 64; i++)
        json_put_end(&json);
    ASSERT(json_finish(&json));
    ASSERT_INT(buf.len, 128);

    json_to_buf(&json, &buf);
    for (int i = 0; i < 65; i++)
        json_put_array(&json);
    ASSERT(json.failed);
}

TEST(a_full_buffer_makes_the_document_fail)
{
    AUTO_BUF buf;
    struct json json;

    buf_init(&buf, 10);
    json_to_buf(&json, &buf);
    json_put_text(&json, "0123456789");
    ASSERT(!json_finish(&json));
    ASSERT(buf.len <= 10);
}
