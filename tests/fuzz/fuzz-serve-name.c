/* SPDX-License-Identifier: Apache-2.0 */
/* Any text may stand where a host, a path or a query is: what is made of it is what it
 * says, and the server itself is meant only by its own names. */
#include <ctype.h>
#include <strings.h>

#include "base/auto.h"
#include "front.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_host(const char *text)
{
    static const char *const domains[] = {"localhost:3000", "box.example", "x.localhost"};

    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        struct route route = {0};
        char label[64];
        enum host_kind kind = route_host(text, domains[i], &route);
        CHECK((kind == HOST_SANDBOX) == (route.port != 0));
        CHECK((kind == HOST_SANDBOX) == (*route.sandbox != '\0'));
        if (kind != HOST_SANDBOX)
            continue;
        CHECK(record_is_id(route.sandbox));
        int len = snprintf(label, sizeof label, "%u-%s.", route.port, route.sandbox);
        CHECK(strncasecmp(text, label, (size_t)len) == 0);
    }
}

static void check_path(const char *text)
{
    char part[PART_MAX], retry[PART_MAX + 32];

    if (!route_matches("/sandboxes/{id}/timeout", text, part))
        return;
    CHECK(strlen(part) < sizeof part);
    if (strpbrk(text, "%?"))
        return;
    CHECK(*part && !strchr(part, '/'));
    snprintf(retry, sizeof retry, "/sandboxes/%s/timeout", part);
    CHECK(strcmp(retry, text) == 0);
}

static void check_time(const char *text)
{
    int64_t ms = 0, same = 0;
    char retry[64], day[32];
    struct tm tm;

    if (!front_parse_time(text, &ms))
        return;
    time_t seconds = (time_t)(ms / 1000 - (ms % 1000 < 0));
    CHECK(gmtime_r(&seconds, &tm));
    if (tm.tm_year + 1900 < 0 || tm.tm_year + 1900 > 9999)
        return; /* the zone has taken it out of what can be written */
    snprintf(day, sizeof day, "%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    snprintf(retry, sizeof retry, "%s.%03dZ", day,
             (int)(ms % 1000 + (ms % 1000 < 0 ? 1000 : 0)));
    CHECK(front_parse_time(retry, &same) && same == ms);
}

static void check_query(const char *text)
{
    AUTO_BUF strings = {0};
    char id[SANDBOX_ID_MAX], retry[64];
    int64_t number = 0, ms;
    size_t count = 0;

    uint32_t states = front_parse_states(text);
    CHECK((states & ~(uint32_t)(LIST_RUNNING | LIST_PAUSED)) == 0);
    if (front_parse_number(text, 1, 100, &number))
        CHECK(number >= 1 && number <= 100 && strtoll(text, NULL, 10) == number);
    if (front_parse_page(text, &ms, id) && *text) {
        const char *digits = text + strspn(text, "0");
        snprintf(retry, sizeof retry, "%lld-%s", (long long)ms, id);
        CHECK(ms > 0 && strcmp(retry, digits) == 0);
    }
    buf_init(&strings, 1 << 20);
    int64_t pairs = front_parse_metadata(text, &strings);
    for (size_t i = 0; i < strings.len; i++)
        count += strings.data[i] == '\0';
    CHECK(!strings.failed && (int64_t)count == 2 * pairs);
}

/* The same text where the server reads it. */
static void check_request(const char *text)
{
    AUTO_BUF request = {0};
    struct talk heard;
    struct response response;
    struct route route = {0};

    buf_init(&request, 64 << 10);
    buf_format(&request,
               "GET /v2/sandboxes?%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
               text, text);
    if (request.failed)
        return;
    talk(request.data, request.len, NULL, 0, &heard);
    const char *end = response_parse(heard.response.data, heard.response.len, &response);
    CHECK(end == heard.response.data + heard.response.len);
    CHECK(response.status != 500);
    if (heard.request[OP_LIST])
        CHECK(route_host(text, "localhost:3000", &route) == HOST_SERVER);
    response_done(&response);
    talk_done(&heard);
    request.len = 0;
    buf_format(&request,
               "GET /v2/sandboxes?%s HTTP/1.1\r\nHost: localhost\r\nConnection: "
               "close\r\n\r\n",
               text);
    talk(request.data, request.len, NULL, 0, &heard);
    end = response_parse(heard.response.data, heard.response.len, &response);
    CHECK(end == heard.response.data + heard.response.len);
    CHECK(response.status == 200 || response.status == 400);
    CHECK((response.status == 200) == (heard.request[OP_LIST] == 1));
    response_done(&response);
    talk_done(&heard);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[2048];
    size_t len = size < sizeof text ? size : sizeof text - 1;

    memcpy(text, data, len);
    text[len] = '\0';
    check_host(text);
    check_path(text);
    check_time(text);
    check_query(text);
    for (char *at = text; *at; at++) /* what would end the line is another test's */
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            *at = '_';
    if (*text)
        check_request(text);
    return 0;
}
