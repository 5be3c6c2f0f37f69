/* SPDX-License-Identifier: Apache-2.0 */

/* StreamInput of process.Process: a stream from the client, of which each message is
 * passed on before the next is looked at. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "server/front/process.h"
#include "server/wire/fields.h"

enum { MESSAGE_MAX = 8 << 20, ENVELOPE = 5 };

struct input {
    struct buf waiting; /* bytes of the stream that were not looked at yet */
    char which[64];     /* the process, once it was named */
};

static void input_done(struct exchange *exchange)
{
    struct input *input = exchange->state;

    buf_done(&input->waiting);
    free(input);
}

static bool begin(struct exchange *exchange)
{
    struct input *input = calloc(1, sizeof *input);

    if (!input)
        return false;
    buf_init(&input->waiting, MESSAGE_MAX + ENVELOPE);
    exchange->state = input;
    exchange->state_done = input_done;
    return true;
}

static void refuse(struct exchange *exchange)
{
    connect_reply_stream(exchange, "invalid_argument",
                         "the message is not what this call takes");
}

/* It may wait as long as the process does not read. */
static void pass_on(struct exchange *exchange, struct ask *ask, const struct buf *strings)
{
    exchange_watch_client(exchange);
    exchange_ask(exchange, ask, strings);
}

static void send_data(struct exchange *exchange, struct fields *data)
{
    struct input *input = exchange->state;
    AUTO_BUF strings = {0};
    struct ask ask;

    exchange_begin_ask(exchange, OP_INPUT, &ask);
    buf_init(&strings, CHANNEL_STRINGS);
    strings_add(&strings, input->which);
    ask.count = 2;
    if (!*input->which || !process_fill_input(data, &ask, &strings) ||
        !connect_user(exchange, ask.user))
        refuse(exchange);
    else
        pass_on(exchange, &ask, &strings);
}

static void note_start(struct exchange *exchange, struct fields *start)
{
    struct input *input = exchange->state;
    AUTO_BUF which = {0};

    buf_init(&which, sizeof input->which);
    if (process_add_selector(start, &which) && !which.failed)
        memcpy(input->which, which.data, which.len);
    else
        refuse(exchange);
}

/* {"start": ...}, {"data": ...} or {"keepalive": {}} */
static void take_message(struct exchange *exchange, const char *text, size_t len)
{
    json_t *root = connect_parse(text, len);
    struct fields fields = {.object = root};
    struct fields start = field_object(&fields, "start");
    struct fields data = field_object(&fields, "data");

    if (!root || fields.wrong)
        refuse(exchange);
    else if (start.object)
        note_start(exchange, &start);
    else if (data.object)
        send_data(exchange, &data);
    json_decref(root);
}

/* As long as nothing is under way and a whole message is there. */
static void pump(struct exchange *exchange)
{
    struct input *input = exchange->state;
    struct buf *waiting = &input->waiting;

    while (!exchange->response && exchange->channel < 0 && waiting->len >= ENVELOPE) {
        const unsigned char *head = (const unsigned char *)waiting->data;
        size_t len = (size_t)head[1] << 24 | (size_t)head[2] << 16 |
                     (size_t)head[3] << 8 | head[4];
        if (head[0] != 0 || len > MESSAGE_MAX) {
            refuse(exchange);
            return;
        }
        if (waiting->len - ENVELOPE < len)
            return;
        take_message(exchange, waiting->data + ENVELOPE, len);
        memmove(waiting->data, waiting->data + ENVELOPE + len,
                waiting->len - ENVELOPE - len);
        waiting->len -= ENVELOPE + len;
    }
}

static bool feed(struct exchange *exchange, const char *data, size_t len)
{
    struct input *input = exchange->state;

    if (!exchange_hold(exchange, input->waiting.len + len))
        exchange_refuse_and_close(exchange, 503, "the server has too much to do");
    else if (buf_append(&input->waiting, data, len))
        pump(exchange);
    else
        exchange_refuse_and_close(exchange, 413, "a message is too large");
    (void)exchange_hold(exchange, input->waiting.len);
    return !exchange->response;
}

static void finish(struct exchange *exchange)
{
    struct input *input = exchange->state;

    pump(exchange);
    if (exchange->response || exchange->channel >= 0)
        return;
    if (input->waiting.len > 0)
        refuse(exchange);
    else
        connect_reply_stream(exchange, NULL, NULL);
}

static void told(struct exchange *exchange, struct told *answer)
{
    exchange_hang_up(exchange);
    if (answer->head.kind == TELL_FAILED && answer->head.status)
        exchange_refuse_told(exchange, answer);
    else if (answer->head.kind == TELL_FAILED)
        connect_reply_stream(exchange, connect_code(answer, &(unsigned){0}),
                             told_next(answer, NULL));
    else if (exchange->has_body)
        finish(exchange);
    else
        pump(exchange);
    if (exchange->channel < 0)
        exchange_resume(exchange);
}

const struct handler input_handlers[] = {
    {.method = "POST",
     .path = "/process.Process/StreamInput",
     .begin = begin,
     .feed = feed,
     .act = finish,
     .told = told},
    {0},
};
