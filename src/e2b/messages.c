/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/messages.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <nettle/base64.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/error.h"
#include "base/signal.h"

enum { NANOS = 1000000000, YEAR_MAX = 2200 };

/* --- Envelopes --- */

ptrdiff_t e2b_envelope_read(const char *bytes, size_t len,
                            struct e2b_envelope *ret_envelope)
{
    const unsigned char *head = (const unsigned char *)bytes;

    /* Flag 1 means compressed, which no request allows. */
    if (len > 0 && head[0] != 0 && head[0] != E2B_ENVELOPE_END)
        return -1;
    if (len < E2B_ENVELOPE_HEAD)
        return 0;
    size_t body = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 |
                  (size_t)head[4];
    if (body > E2B_ENVELOPE_MAX)
        return -1;
    if (len - E2B_ENVELOPE_HEAD < body)
        return 0;
    *ret_envelope = (struct e2b_envelope){
        .flags = head[0], .data = bytes + E2B_ENVELOPE_HEAD, .len = body};
    return (ptrdiff_t)(E2B_ENVELOPE_HEAD + body);
}

void e2b_envelope_head(size_t len, unsigned char *ret_head)
{
    ret_head[0] = 0;
    for (int i = 1; i < E2B_ENVELOPE_HEAD; i++)
        ret_head[i] = (unsigned char)(len >> (8 * (E2B_ENVELOPE_HEAD - 1 - i)));
}

/* --- Events of a process --- */

void e2b_event_done(struct e2b_event *event)
{
    free(event->data);
    *event = (struct e2b_event){0};
}

static const char *decode(const json_t *text, struct e2b_event *event)
{
    struct base64_decode_ctx context;
    size_t len = json_string_length(text), put = 0;

    event->data = malloc(BASE64_DECODE_LENGTH(len) + 1);
    if (!event->data)
        return "out of memory";
    base64_decode_init(&context);
    if (!base64_decode_update(&context, &put, (uint8_t *)event->data, len,
                              json_string_value(text)) ||
        !base64_decode_final(&context))
        return "output is not base64";
    event->len = put;
    return NULL;
}

static const char *read_data(const json_t *data, struct e2b_event *event)
{
    static const struct {
        const char *name;
        int stream;
    } kinds[] = {{"stdout", 1}, {"stderr", 2}, {"pty", 1}};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const json_t *text = json_object_get(data, kinds[i].name);
        if (!text)
            continue;
        if (!json_is_string(text))
            return "output is not a string";
        event->kind = E2B_EVENT_OUTPUT;
        event->stream = kinds[i].stream;
        event->is_terminal = strcmp(kinds[i].name, "pty") == 0;
        return decode(text, event);
    }
    return NULL; /* no bytes */
}

/* envd is written in Go, whose names of signals are glibc's in lower case. */
static int signal_number(const char *name)
{
    const char *core = strstr(name, " (core dumped)");
    const char *digits = strncmp(name, "signal ", 7) == 0 ? name + 7 : name;
    size_t len = core ? (size_t)(core - name) : strlen(name);

    long number = signal_by_words(name, len);
    if (!number && isdigit((unsigned char)*digits))
        number = strtol(digits, NULL, 10);
    return number > 0 && number < NSIG ? (int)number : 0;
}

static const char *read_end(const json_t *end, struct e2b_event *event)
{
    const char *status = json_string_value(json_object_get(end, "status"));
    int64_t exit_code = e2b_value_int(end, "exitCode");

    if (!json_is_object(end) || exit_code < -1 || exit_code > INT_MAX)
        return "invalid end of a process";
    event->kind = E2B_EVENT_END;
    event->exit_code = (int)exit_code;
    event->is_signalled = status && strncmp(status, "signal: ", 8) == 0;
    if (event->is_signalled)
        event->signal = signal_number(status + 8);
    else if (exit_code < 0)
        event->is_signalled = true;
    return NULL;
}

static const char *read_kind(const json_t *message, struct e2b_event *event)
{
    const json_t *all = json_object_get(message, "event"), *part;

    if (!json_is_object(all))
        return all ? "an event is not an object" : NULL;
    if ((part = json_object_get(all, "start"))) {
        int64_t pid = e2b_value_int(part, "pid");
        event->kind = E2B_EVENT_START;
        event->pid = (int)pid;
        return pid <= 0 || pid > INT_MAX ? "a process has no valid pid" : NULL;
    }
    if ((part = json_object_get(all, "data")))
        return json_is_object(part) ? read_data(part, event) : "output is not an object";
    if ((part = json_object_get(all, "end")))
        return read_end(part, event);
    return NULL;
}

const char *e2b_event_read(const char *json, size_t len, struct e2b_event *ret_event)
{
    struct e2b_event event = {0};
    json_t *message = json_loadb(json, len, 0, NULL);
    const char *wrong = json_is_object(message) ? read_kind(message, &event)
                                                : "a message is not a JSON object";

    json_decref(message);
    if (wrong)
        e2b_event_done(&event);
    else
        *ret_event = event;
    return wrong;
}

const char *e2b_refusal_read(const char *json, size_t len, bool is_trailer,
                             struct e2b_refusal *ret_refusal)
{
    json_t *message = len ? json_loadb(json, len, 0, NULL) : json_object();
    const json_t *error = is_trailer ? json_object_get(message, "error") : message;
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *text = json_string_value(json_object_get(error, "message"));
    const char *wrong = NULL;

    *ret_refusal = (struct e2b_refusal){0};
    if (!json_is_object(message))
        wrong = "the end of a stream is not a JSON object";
    else if (error && !json_is_object(error))
        wrong = "an error is not an object";
    else if (error) {
        cay_copy_text(ret_refusal->code, sizeof ret_refusal->code,
                      code && *code ? code : "unknown");
        cay_copy_text(ret_refusal->message, sizeof ret_refusal->message,
                      text ? text : "");
    }
    json_decref(message);
    return wrong;
}

/* --- Values --- */

static const json_t *get(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    char other[64];
    size_t len = 0;

    for (; *name && len + 2 < sizeof other; name++) {
        if (isupper((unsigned char)*name))
            other[len++] = '_';
        other[len++] = (char)tolower((unsigned char)*name);
    }
    other[len] = '\0';
    return value ? value : json_object_get(object, other);
}

int64_t e2b_value_int(const json_t *object, const char *name)
{
    const json_t *value = get(object, name);
    const char *text = json_string_value(value);
    char *end;

    if (!text)
        return json_integer_value(value);
    errno = 0;
    long long number = strtoll(text, &end, 10);
    return errno || end == text || *end ? 0 : number;
}

const char *e2b_value_text(const json_t *object, const char *name)
{
    return json_string_value(get(object, name));
}

/* "Z" or "+01:00": strptime(3) of musl has no "%z". */
static bool read_zone(const char *text, int64_t *ret_seconds)
{
    struct tm zone = {0};

    *ret_seconds = 0;
    if (strcmp(text, "Z") == 0)
        return true;
    const char *end =
        *text == '+' || *text == '-' ? strptime(text + 1, "%H:%M", &zone) : NULL;
    *ret_seconds = (*text == '-' ? -60 : 60) * (zone.tm_hour * 60 + zone.tm_min);
    return end && !*end;
}

int64_t e2b_value_time(const json_t *object, const char *name)
{
    const char *text = e2b_value_text(object, name);
    struct tm tm = {0};
    int64_t nanos = 0, unit = NANOS, zone;

    if (!text || !(text = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm)) ||
        tm.tm_year < 1970 - 1900 || tm.tm_year >= YEAR_MAX - 1900)
        return 0;
    if (*text == '.')
        for (text++; isdigit((unsigned char)*text); text++) {
            unit /= 10;
            nanos += (*text - '0') * unit;
        }
    return read_zone(text, &zone) ? ((int64_t)timegm(&tm) - zone) * NANOS + nanos : 0;
}
