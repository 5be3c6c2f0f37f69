/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/event.h"

#include <ctype.h>
#include <jansson.h>
#include <limits.h>
#include <nettle/base64.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "e2b/value.h"

void e2b_event_done(struct e2b_event *event)
{
    free(event->data);
    *event = (struct e2b_event){0};
}

static const char *read_start(const json_t *start, struct e2b_event *event)
{
    int64_t pid = e2b_value_int(start, "pid", NULL);

    if (pid <= 0 || pid > INT_MAX)
        return "a process has no number";
    event->kind = E2B_EVENT_START;
    event->pid = (int)pid;
    return NULL;
}

static const char *decode(const json_t *text, struct e2b_event *event)
{
    struct base64_decode_ctx context;
    size_t len = json_string_length(text), put = 0;

    event->data = malloc(BASE64_DECODE_LENGTH(len) + 1);
    if (!event->data)
        return "memory is exhausted";
    base64_decode_init(&context);
    if (!base64_decode_update(&context, &put, (uint8_t *)event->data, len,
                              json_string_value(text)) ||
        !base64_decode_final(&context))
        return "output is not in base64";
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
            return "output is not a text";
        event->kind = E2B_EVENT_OUTPUT;
        event->stream = kinds[i].stream;
        event->is_terminal = strcmp(kinds[i].name, "pty") == 0;
        return decode(text, event);
    }
    return NULL; /* no bytes */
}

/* As Go names them, in which the real server is written. */
static int signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } names[] = {
        {"aborted", SIGABRT},
        {"alarm clock", SIGALRM},
        {"bad system call", SIGSYS},
        {"broken pipe", SIGPIPE},
        {"bus error", SIGBUS},
        {"CPU time limit exceeded", SIGXCPU},
        {"file size limit exceeded", SIGXFSZ},
        {"floating point exception", SIGFPE},
        {"hangup", SIGHUP},
        {"I/O possible", SIGIO},
        {"illegal instruction", SIGILL},
        {"interrupt", SIGINT},
        {"killed", SIGKILL},
        {"power failure", SIGPWR},
        {"profiling timer expired", SIGPROF},
        {"quit", SIGQUIT},
        {"segmentation fault", SIGSEGV},
        {"stack fault", SIGSTKFLT},
        {"terminated", SIGTERM},
        {"trace/breakpoint trap", SIGTRAP},
        {"user defined signal 1", SIGUSR1},
        {"user defined signal 2", SIGUSR2},
        {"virtual timer expired", SIGVTALRM},
    };
    size_t len = strlen(name);
    const char *core = strstr(name, " (core dumped)");
    const char *digits = strncmp(name, "signal ", 7) == 0 ? name + 7 : name;

    if (core)
        len = (size_t)(core - name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == len && strncmp(name, names[i].name, len) == 0)
            return names[i].number;
    long number = isdigit((unsigned char)*digits) ? strtol(digits, NULL, 10) : 0;
    return number > 0 && number < NSIG ? (int)number : 0;
}

/* A zero and a false are left out. */
static const char *read_end(const json_t *end, struct e2b_event *event)
{
    const char *status = json_string_value(json_object_get(end, "status"));
    int64_t exit_code = e2b_value_int(end, "exitCode", "exit_code");

    if (!json_is_object(end) || exit_code < -1 || exit_code > INT_MAX)
        return "the end of a process is not one";
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
    if ((part = json_object_get(all, "start")))
        return read_start(part, event);
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
    const char *words = json_string_value(json_object_get(error, "message"));
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
                      words ? words : "");
    }
    json_decref(message);
    return wrong;
}
