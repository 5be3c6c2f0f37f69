/* SPDX-License-Identifier: Apache-2.0 */
#include "server/keeper/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../unit/harness.h"
#include "base/auto.h"

/* --- Signatures --- */

/* The keys and requests of Amazon's documentation of Signature Version 4. */
static const struct bucket_access example = {
    .key = "AKIAIOSFODNN7EXAMPLE", .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};

TEST(a_signature_is_that_of_amazons_example)
{
    char digest[S3_HEX + 1], value[S3_AUTHORIZATION_MAX];

    s3_digest("", 0, digest);
    ASSERT_STR(digest,
               "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    const struct s3_head list = {.method = "GET",
                                 .host = "examplebucket.s3.amazonaws.com",
                                 .path = "/",
                                 .query = "max-keys=2&prefix=J",
                                 .time = "20130524T000000Z",
                                 .region = "us-east-1",
                                 .digest = digest};
    s3_sign(&list, &example, value);
    ASSERT_STR(value, "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-"
                      "1/s3/aws4_request,SignedHeaders=host;x-amz-content-sha256;x-amz-"
                      "date,Signature="
                      "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    struct s3_head lifecycle = list;
    lifecycle.query = "lifecycle=";
    s3_sign(&lifecycle, &example, value);
    ASSERT_HAS(value, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(a_query_has_only_plain_characters)
{
    AUTO_BUF query = {.max = 64};

    s3_encode(&query, "a-._~Z9/+ &=\xc3\xa9");
    ASSERT_STR(query.data, "a-._~Z9%2F%2B%20%26%3D%C3%A9");
}

/* --- XML --- */

static bool note(void *cookie, const char *path, const char *value)
{
    return buf_format(cookie, "%s=%s\n", path, value);
}

static bool reads(const char *text, struct buf *heard)
{
    size_t len = strlen(text);
    AUTO_FREE char *copy = malloc(len + 1); /* without the NUL, for sanitizers */

    ASSERT(copy);
    memcpy(copy, text, len);
    heard->len = 0;
    return s3_read_xml(copy, len, note, heard);
}

TEST(a_list_is_read)
{
    AUTO_BUF heard = {.max = 4096};

    ASSERT(reads("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns='a>b'>\r\n"
                 "<IsTruncated>true</IsTruncated><Prefix/><Contents  >\n"
                 "<Key>a&amp;b&lt;c&gt;&quot;&apos;&#34;&#39;</Key ><Owner><ID>x</ID>"
                 "</Owner></Contents></ListBucketResult>\n",
                 &heard));
    ASSERT_STR(heard.data, "ListBucketResult/IsTruncated=true\n"
                           "ListBucketResult/Prefix=\n"
                           "ListBucketResult/Contents/Key=a&b<c>\"'\"'\n"
                           "ListBucketResult/Contents/Owner/ID=x\n");
}

TEST(what_s3_never_sends_is_no_xml)
{
    static const char *const texts[] = {
        "",
        " ",
        "text",
        "<a>",
        "<a",
        "<a/",
        "<",
        "</a>",
        "<a></b>",
        "<a><b></a></b>",
        "<a/><b/>",
        "<a/>text",
        "text<a/>",
        "<a>&unknown;</a>",
        "<a>&amp</a>",
        "<a>&</a>",
        "<a>&#38;</a>",
        "<!DOCTYPE a [<!ENTITY b SYSTEM \"file:///etc/passwd\">]><a/>",
        "<a><!-- b --></a>",
        "<a><![CDATA[b]]></a>",
        "<a><?b?></a>",
        "<?xml ><a/>",
        "<?xml",
        "<a b='></a>",
        "<a b=\"<\"></a>",
        "<1/>",
        "< a/>",
        "<a><b><c><d><e><f><g/></f></e></d></c></b></a>",
    };
    AUTO_BUF heard = {.max = 4096};
    char name[300], text[700];

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (reads(texts[i], &heard))
            ASSERT_STR(texts[i], "refused");
    ASSERT(reads("<a><b><c><d><e><f/></e></d></c></b></a>", &heard));
    memset(name, 'n', sizeof name);
    snprintf(text, sizeof text, "<%.*s/>", 63, name);
    ASSERT(reads(text, &heard));
    snprintf(text, sizeof text, "<%.*s/>", 64, name);
    ASSERT(!reads(text, &heard));
}

TEST(a_value_has_a_limit)
{
    enum { MAX = 4096 };
    static char text[MAX + 64];
    AUTO_BUF heard = {.max = 2 * MAX};

    for (int more = 0; more < 2; more++) {
        int len = snprintf(text, sizeof text, "<a>%0*d</a>", MAX + more, 0);
        ASSERT_INT(len, MAX + more + 7);
        ASSERT(reads(text, &heard) == !more);
    }
}

/* --- Places and credentials --- */

static int parse(const char *shared, const char *endpoint, struct bucket *bucket)
{
    const struct serve_options options = {.shared = shared, .shared_endpoint = endpoint};

    return bucket_parse(&options, bucket, NULL);
}

TEST(a_place_is_read)
{
    struct bucket bucket;

    ASSERT_OK(parse("s3://name.of-it", NULL, &bucket));
    ASSERT_STR(bucket.endpoint, "https://s3.us-east-1.amazonaws.com");
    ASSERT_STR(bucket.path, "/name.of-it");
    ASSERT_STR(bucket.prefix, "");
    ASSERT_OK(parse("s3://abc/a/B_c.d/", "http://[::1]:9000/", &bucket));
    ASSERT_STR(bucket.prefix, "a/B_c.d/");
    ASSERT_STR(bucket.host, "[::1]:9000");
    ASSERT(bucket.is_plain && !bucket.is_remote);
    ASSERT_OK(parse("s3://abc/", "http://localhost.example", &bucket));
    ASSERT(bucket.is_plain && bucket.is_remote);
    ASSERT_STR(bucket.prefix, "");
}

TEST(an_invalid_place_is_refused)
{
    static const char *const places[] = {
        "s3://",        "s3://ab",     "s3:///abc",     "s3://ABC",      "s3://a_bc",
        "s3://.abc",    "s3://abc//x", "s3://abc/a//b", "s3://abc/../x", "s3://abc/a/.",
        "s3://abc/a b", "s3://abc/?x", "s3://abc/%41",  "s3://abc/x\n"};
    static const char *const endpoints[] = {"",
                                            "host",
                                            "ftp://host",
                                            "https://",
                                            "https:///",
                                            "https://h/path",
                                            "https://h?x",
                                            "https://user@h",
                                            "https://h:",
                                            "https://h:x",
                                            "https://h:123456",
                                            "https://h o",
                                            "https://[::1",
                                            "HTTPS://h",
                                            "https://h#"};
    struct bucket bucket;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!parse(places[i], NULL, &bucket))
            ASSERT_STR(places[i], "refused");
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++)
        if (!parse("s3://abc", endpoints[i], &bucket))
            ASSERT_STR(endpoints[i], "refused");
}

static int find_in(const char *text, unsigned mode, struct bucket_access *access)
{
    const char *path = scratch_path("credentials");
    const struct serve_options options = {.shared_credentials_file = path};
    FILE *file = fopen(path, "we");

    ASSERT(file && fputs(text, file) >= 0 && fchmod(fileno(file), mode) == 0);
    ASSERT(fclose(file) == 0);
    return bucket_find_access(&options, access, NULL);
}

TEST(credentials_are_those_of_the_default_profile)
{
    struct bucket_access access;

    ASSERT_OK(find_in("# a comment\n[other]\naws_access_key_id = NO\n[default]\r\n"
                      "aws_access_key_id = ID\r\n  AWS_SECRET_ACCESS_KEY=a+b/c=\n"
                      "region = x\naws_session_token =  T== \n[more]\n"
                      "aws_secret_access_key = no",
                      0600, &access));
    ASSERT_STR(access.key, "ID");
    ASSERT_STR(access.secret, "a+b/c=");
    ASSERT_STR(access.token, "T==");
    ASSERT_OK(find_in("aws_access_key_id=ID\naws_secret_access_key=S", 0640, &access));
    ASSERT_STR(access.token, "");
}

TEST(a_file_without_whole_credentials_is_refused)
{
    struct bucket_access access;

    ASSERT_CODE(find_in("", 0600, &access), CAY_E_INVALID);
    ASSERT_CODE(find_in("aws_access_key_id=ID\n", 0600, &access), CAY_E_INVALID);
    ASSERT_CODE(find_in("aws_secret_access_key=S\n", 0600, &access), CAY_E_INVALID);
    ASSERT_CODE(
        find_in("aws_access_key_id=I/D\naws_secret_access_key=S\n", 0600, &access),
        CAY_E_INVALID);
    ASSERT_CODE(
        find_in("aws_access_key_id=ID\naws_secret_access_key=S\x7f\n", 0600, &access),
        CAY_E_INVALID);
    ASSERT_CODE(find_in("aws_access_key_id=ID\naws_secret_access_key=S\n", 0644, &access),
                CAY_E_DENIED);
}
