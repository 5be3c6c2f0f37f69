/* SPDX-License-Identifier: Apache-2.0 */

/* The parsers of the e2b backend, without a connection. */
#include <signal.h>
#include <stdio.h>

#include "e2b/messages.h"
#include "e2b/origin.h"
#include "harness.h"

/* --- Envelopes --- */

TEST(envelope_is_read_when_it_is_complete)
{
    char bytes[] = "\0\0\0\0\3abcd";
    struct e2b_envelope envelope;

    for (size_t len = 0; len < 8; len++)
        ASSERT_INT(e2b_envelope_read(bytes, len, &envelope), 0);
    ASSERT_INT(e2b_envelope_read(bytes, 9, &envelope), 8);
    ASSERT_INT(envelope.flags, 0);
    ASSERT_MEM(envelope.data, envelope.len, "abc", 3);
    bytes[0] = 2;
    ASSERT_INT(e2b_envelope_read(bytes, 9, &envelope), 8);
    ASSERT_INT(envelope.flags, E2B_ENVELOPE_END);
}

TEST(invalid_envelope_is_refused_at_once)
{
    struct e2b_envelope envelope;

    ASSERT_INT(e2b_envelope_read("\1", 1, &envelope), -1);
    ASSERT_INT(e2b_envelope_read("\xff", 1, &envelope), -1);
    ASSERT_INT(e2b_envelope_read("\0\0\x40\0\1", 5, &envelope), -1);
    ASSERT_INT(e2b_envelope_read("\0\xff\xff\xff\xff", 5, &envelope), -1);
    ASSERT_INT(e2b_envelope_read("\0\0\x40\0\0", 5, &envelope), 0); /* the largest */
}

TEST(envelope_head_survives_a_round_trip)
{
    static const size_t lens[] = {0, 1, 255, 256, 65536, E2B_ENVELOPE_MAX};
    static char bytes[E2B_ENVELOPE_HEAD + E2B_ENVELOPE_MAX];
    struct e2b_envelope envelope;

    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        e2b_envelope_head(lens[i], (unsigned char *)bytes);
        ASSERT_INT(e2b_envelope_read(bytes, sizeof bytes, &envelope), lens[i] + 5);
        ASSERT_INT(envelope.len, lens[i]);
    }
}

/* --- Events --- */

static const char *read_event(const char *json, struct e2b_event *ret_event)
{
    *ret_event = (struct e2b_event){0};
    return e2b_event_read(json, strlen(json), ret_event);
}

TEST(output_is_decoded)
{
    struct e2b_event event;

    ASSERT(!read_event("{\"event\":{\"data\":{\"stderr\":\"AP8K\"}}}", &event));
    ASSERT_INT(event.kind, E2B_EVENT_OUTPUT);
    ASSERT_INT(event.stream, 2);
    ASSERT_MEM(event.data, event.len, "\0\xff\n", 3);
    e2b_event_done(&event);
    ASSERT(!read_event("{\"event\":{\"data\":{\"pty\":\"eA==\"}}}", &event));
    ASSERT(event.stream == 1 && event.is_terminal);
    e2b_event_done(&event);
}

TEST(end_event_has_exit_code_or_signal)
{
    static const struct {
        const char *json;
        int exit_code, signal;
        bool is_signalled;
    } all[] = {
        {"{}", 0, 0, false},
        {"{\"exited\":true,\"status\":\"exit status 0\"}", 0, 0, false},
        {"{\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\"}", 3, 0, false},
        {"{\"exit_code\":3}", 3, 0, false},
        {"{\"exitCode\":\"255\"}", 255, 0, false},
        {"{\"exitCode\":-1,\"status\":\"signal: killed\"}", -1, SIGKILL, true},
        {"{\"exitCode\":-1,\"status\":\"signal: segmentation fault (core dumped)\"}", -1,
         SIGSEGV, true},
        {"{\"exitCode\":-1,\"status\":\"signal: signal 34\"}", -1, 34, true},
        {"{\"exitCode\":-1,\"status\":\"signal: hiccup\"}", -1, 0, true},
        {"{\"exitCode\":-1,\"status\":\"signal: signal 99999\"}", -1, 0, true},
        {"{\"exitCode\":-1}", -1, 0, true},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct e2b_event event;
        char json[256];
        snprintf(json, sizeof json, "{\"event\":{\"end\":%s}}", all[i].json);
        ASSERT(!read_event(json, &event));
        ASSERT_INT(event.kind, E2B_EVENT_END);
        ASSERT_INT(event.exit_code, all[i].exit_code);
        ASSERT_INT(event.signal, all[i].signal);
        ASSERT_INT(event.is_signalled, all[i].is_signalled);
    }
}

TEST(unknown_events_are_ignored)
{
    static const char *const all[] = {
        "{}", "{\"event\":{}}", "{\"event\":{\"keepalive\":{}}}",
        "{\"event\":{\"later\":[1]}}", "{\"event\":{\"data\":{\"later\":1}}}"};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct e2b_event event;
        ASSERT(!read_event(all[i], &event));
        ASSERT_INT(event.kind, E2B_EVENT_NOTHING);
    }
}

TEST(trailer_may_have_an_error)
{
    struct e2b_refusal refusal;
    static const char some[] = "{\"error\":{\"code\":\"not_found\",\"message\":\"m\"}}";

    ASSERT(!e2b_refusal_read("{}", 2, true, &refusal));
    ASSERT_STR(refusal.code, "");
    ASSERT(!e2b_refusal_read("", 0, true, &refusal));
    ASSERT_STR(refusal.code, "");
    ASSERT(!e2b_refusal_read(some, sizeof some - 1, true, &refusal));
    ASSERT_STR(refusal.code, "not_found");
    ASSERT_STR(refusal.message, "m");
    ASSERT(!e2b_refusal_read("{\"error\":{}}", 12, true, &refusal));
    ASSERT_STR(refusal.code, "unknown");
    ASSERT(e2b_refusal_read("[]", 2, true, &refusal));
    ASSERT(e2b_refusal_read("{\"error\":[]}", 12, true, &refusal));
}

/* --- Values --- */

TEST(times_are_read_with_their_zones)
{
    static const struct {
        const char *text;
        int64_t nanos;
    } all[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2020-02-03T04:05:06.5Z", 1580702706500000000},
        {"2020-02-03T04:05:06.123456789123Z", 1580702706123456789},
        {"2020-02-03T06:05:06+02:00", 1580702706000000000},
        {"2020-02-02T23:05:06-05:00", 1580702706000000000},
        {"2020-02-03T04:05:06+24:00", 0},
        {"2020-02-03T04:05:06+05:00x", 0},
        {"2020-02-03T04:05:06*05:00", 0},
        {"2020-02-03 04:05:06Z", 0},
        {"2020-13-03T04:05:06Z", 0},
        {"2020-02-03T04:05:06", 0},
        {"9999-02-03T04:05:06Z", 0},
        {"2020-02-03T04:05:06Zjunk", 0},
        {"", 0},
        {"now", 0},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        json_t *object = json_pack("{s:s}", "at", all[i].text);
        int64_t nanos = e2b_value_time(object, "at");
        json_decref(object);
        ASSERT_INT(nanos, all[i].nanos);
    }
}

/* --- URLs --- */

TEST(url_has_a_host_and_a_port)
{
    struct e2b_origin origin;

    ASSERT_OK(e2b_origin_parse("https://api.e2b.app/", "op", "f", &origin, &err));
    ASSERT_STR(origin.url, "https://api.e2b.app");
    ASSERT_STR(origin.host, "api.e2b.app");
    ASSERT(origin.port == 443 && origin.is_tls && !origin.is_address);
    ASSERT_OK(e2b_origin_parse("http://[::1]:8080/a/b//", "op", "f", &origin, &err));
    ASSERT_STR(origin.url, "http://[::1]:8080/a/b");
    ASSERT_STR(origin.host, "::1");
    ASSERT(origin.port == 8080 && !origin.is_tls && origin.is_address);
    ASSERT_CODE(e2b_origin_parse("http://[evil]/", "op", "f", &origin, &err),
                CAY_E_INVALID);
}

TEST(names_below_localhost_resolve_to_loopback)
{
    struct e2b_origin origin;
    char entry[512];

    ASSERT_OK(e2b_origin_parse("http://49983-x.localhost:80", "op", "f", &origin, &err));
    ASSERT_INT(e2b_origin_resolve(&origin, entry, sizeof entry), 0);
    ASSERT_STR(entry, "49983-x.localhost:80:127.0.0.1,[::1]");
}
