/* SPDX-License-Identifier: Apache-2.0 */
#include "tls/secret.h"

#include <stdio.h>

#include "harness.h"

#define PLACEHOLDER "CAY_PLACEHOLDER_0123"
#define TABLE                                                                            \
    "TOKEN\t" PLACEHOLDER "\tvalue+of/token\n\tapi.example\n"                            \
    "\tq.example:query,header=X-Api-Key\n"

static struct secret_mask mask;
static struct cay_error error;

static struct secrets *read_text(const char *text)
{
    struct secrets *secrets = NULL;

    ASSERT_OK(secrets_read(text, strlen(text), &secrets, &error));
    return secrets;
}

/* The header's value as it leaves; "!..." if it is refused. */
static const char *edit_header(const char *host, bool is_tls, const char *name,
                               const char *value)
{
    static char text[1024];
    struct secrets *secrets = read_text(TABLE);
    struct secret_edit edit = {
        .secrets = secrets, .host = host, .is_tls = is_tls, .mask = &mask};
    const struct http_header header = {{name, strlen(name)}, {value, strlen(value)}};
    struct buf out;

    buf_init(&out, sizeof text - 1);
    if (secret_put_value(&edit, &header, &out))
        snprintf(text, sizeof text, "%.*s", (int)out.len, out.data);
    else
        snprintf(text, sizeof text, "!%s", edit.fault);
    buf_done(&out);
    secrets_free(secrets);
    secret_mask_done(&mask);
    return text;
}

TEST(a_placeholder_is_replaced_in_the_places_that_the_secret_names)
{
    ASSERT_STR(edit_header("api.example", true, "Authorization", "Bearer " PLACEHOLDER),
               "Bearer value+of/token");
    ASSERT_STR(edit_header("api.example", true, "AUTHORIZATION", "token " PLACEHOLDER),
               "token value+of/token");
    /* user:PLACEHOLDER */
    ASSERT_STR(edit_header("api.example", true, "authorization",
                           "Basic dXNlcjpDQVlfUExBQ0VIT0xERVJfMDEyMw=="),
               "Basic dXNlcjp2YWx1ZStvZi90b2tlbg==");
    ASSERT_STR(edit_header("q.example", true, "x-api-key", PLACEHOLDER),
               "value+of/token");
    ASSERT_STR(edit_header("api.example", true, "Authorization", "Basic dXNlcjpub25l"),
               "Basic dXNlcjpub25l");
    ASSERT_STR(edit_header("api.example", true, "Accept", "*/*"), "*/*");
}

TEST(a_placeholder_anywhere_else_is_refused)
{
    ASSERT_HAS(edit_header("other.example", true, "Authorization", "Bearer " PLACEHOLDER),
               "!the secret TOKEN is not for this host");
    ASSERT_HAS(edit_header("other.example", true, "Authorization",
                           "Basic dXNlcjpDQVlfUExBQ0VIT0xERVJfMDEyMw=="),
               "!the secret TOKEN is not for this host");
    ASSERT_HAS(edit_header("api.example", false, "Authorization", "Bearer " PLACEHOLDER),
               "!the secret TOKEN is sent over TLS only");
    ASSERT_HAS(edit_header("api.example", true, "X-Api-Key", PLACEHOLDER),
               "!the secret TOKEN is not allowed in this part");
    ASSERT_HAS(edit_header("q.example", true, "Authorization", "Bearer " PLACEHOLDER),
               "!the secret TOKEN is not allowed in this part");
    ASSERT_HAS(edit_header("api.example", true, "Cookie", "a=" PLACEHOLDER),
               "!the secret TOKEN is not allowed in this part");
}

TEST(a_query_gets_the_value_percent_encoded)
{
    struct secrets *secrets = read_text(TABLE);
    struct secret_edit edit = {
        .secrets = secrets, .host = "q.example", .is_tls = true, .mask = &mask};
    static const char target[] = "/x?key=" PLACEHOLDER "&y=1",
                      path[] = "/" PLACEHOLDER "?y=1";
    struct buf out;

    buf_init(&out, 1000);
    ASSERT(
        secret_put_target(&edit, &(struct http_text){target, sizeof target - 1}, &out));
    ASSERT_STR(out.data, "/x?key=value%2Bof%2Ftoken&y=1");
    ASSERT(!secret_put_target(&edit, &(struct http_text){path, sizeof path - 1}, &out));
    buf_done(&out);
    secrets_free(secrets);
    secret_mask_done(&mask);
}

/* The reply in pieces of `size`; "<" where its end waits too long. */
static const char *mask_pieces(const char *reply, size_t size)
{
    static struct buf out;
    struct secret_tail tail;

    out.len = 0;
    out.max = 1000;
    secret_tail_init(&tail);
    for (const char *at = reply; *at;) {
        size_t len = strcspn(at, "<");
        len = len < size ? len : size;
        if (len)
            ASSERT(secret_mask_feed(&mask, at, len, &tail, &out));
        at += len;
        if (*at == '<') {
            secret_tail_release(&tail, false, &out);
            at++;
        }
    }
    secret_tail_release(&tail, true, &out);
    secret_tail_done(&tail);
    ASSERT(buf_append(&out, "", 1));
    return out.data;
}

TEST(a_value_is_masked_in_any_pieces_of_a_reply)
{
    ASSERT(secret_mask_add(&mask, "secret-value", 12));
    for (size_t size = 1; size < 60; size++)
        ASSERT_STR(
            mask_pieces("x sesecret-value y secret-valu secret-value z secret-", size),
            "x se************ y secret-valu ************ z secret-");
    ASSERT_STR(mask_pieces("x secret-v", 60), "x ********");
    secret_mask_done(&mask);
}

TEST(the_rest_of_a_value_is_masked_after_its_beginning_has_left)
{
    ASSERT(secret_mask_add(&mask, "secret-value", 12));
    ASSERT_STR(mask_pieces("x se<cret-value y", 60), "x se********** y");
    ASSERT_STR(mask_pieces("x s<ec<ret<-<value y", 1), "x secret-***** y");
    ASSERT_STR(mask_pieces("x se<e secret-value", 60), "x see ************");
    secret_mask_done(&mask);
}

TEST(values_that_overlap_or_begin_another_are_masked_whole)
{
    ASSERT(secret_mask_add(&mask, "secret-a", 8));
    ASSERT(secret_mask_add(&mask, "secret-abcd", 11));
    ASSERT(secret_mask_add(&mask, "cd-others", 9));
    for (size_t size = 1; size < 60; size++)
        ASSERT_STR(mask_pieces("1 secret-abcd 2 secret-ab 3 secret-abcd-others 4", size),
                   "1 *********** 2 ********b 3 ****************** 4");
    secret_mask_done(&mask);
}

TEST(a_value_is_masked_as_urls_and_json_have_it)
{
    ASSERT(secret_mask_add(&mask, "sec/ret\"+x", 10));
    ASSERT_STR(
        mask_pieces("sec/ret\"+x sec%2Fret%22%2Bx sec%2fret%22%2bx sec\\/ret\\\"+x", 60),
        "********** **************** **************** ************");
    secret_mask_done(&mask);
}

TEST(a_table_that_is_not_valid_is_refused_without_its_value)
{
    static const char *const tables[] = {
        "TOKEN\tP\tsecretvalue\n",
        "TOKEN\tP\tshort\n\ta.example\n",
        "1TOKEN\tP\tsecretvalue\n\ta.example\n",
        "TO KEN\tP\tsecretvalue\n\ta.example\n",
        "TOKEN\tP\tsecretvalue\n\t*.example.com\n",
        "TOKEN\tP\tsecretvalue\n\t10.0.0.1\n",
        "TOKEN\tP\tsecretvalue\n\ta.example:\n",
        "TOKEN\tP\tsecretvalue\n\ta.example:body\n",
        "TOKEN\tP\tsecretvalue\n\ta.example:header=\n",
        "TOKEN\tP\tsecretvalue\n\ta.example:header=x y\n",
        "TOKEN\tP\tsecret\001value\n\ta.example\n",
        "TOKEN\tP\tsecretvalue\n\ta.example\nTOKEN\tQ\tsecretvalue\n\ta.example\n",
        "+a.example\n",
        "+a.example\tX-Key\n",
        "+*.example\tX-Key\tsecretvalue\n",
        "+a.example\tContent-Length\tsecretvalue\n",
        "+a.example\thost\tsecretvalue\n",
        "+a.example\tX Key\tsecretvalue\n",
        "+a.example\tX-Key\tsecret\001value\n",
        "+a.example\tX-Key\tsecretvalue\n+a.example\tx-key\tsecretvalue\n",
        "+a.example\tX-Key\tsecretvalue\n*short\n",
        "*secretvalue\n",
    };

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        struct secrets *secrets = NULL;
        ASSERT_CODE(secrets_read(tables[i], strlen(tables[i]), &secrets, &error),
                    CAY_E_INVALID);
        ASSERT(!strstr(error.message, "secretvalue") &&
               !strstr(error.subject, "secretvalue") &&
               !strstr(error.hint, "secretvalue"));
    }
}

TEST(headers_are_set_for_their_host_and_secret_parts_over_tls_only)
{
    struct secrets *headers = read_text("+a.example\tX-Key\tBearer secretvalue\n"
                                        "*secretvalue\n+b.example\tX-Other\tplain\n");
    struct secret_edit edit = {
        .headers = headers, .host = "a.example", .is_tls = true, .mask = &mask};
    const struct http_header own = {{"x-KEY", 5}, {"mine", 4}};
    AUTO_BUF out = {.max = 256};

    ASSERT(secret_begin(&edit) && mask.count == 1);
    ASSERT_STR(mask.at[0], "secretvalue");
    ASSERT(secret_is_replaced(&edit, &own));
    ASSERT(secret_is_replaced(&edit, &(struct http_header){{"x_key", 5}, {"mine", 4}}));
    secret_put_headers(&edit, &out);
    ASSERT_STR(out.data, "X-Key: Bearer secretvalue\r\n");
    edit.is_tls = false;
    ASSERT(!secret_begin(&edit) && strstr(edit.fault, "over TLS only"));
    edit = (struct secret_edit){.headers = headers, .host = "b.example", .mask = &mask};
    ASSERT(secret_begin(&edit) && !secret_is_replaced(&edit, &own));
    secret_mask_done(&mask);
    secrets_free(headers);
}
