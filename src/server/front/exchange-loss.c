/* SPDX-License-Identifier: Apache-2.0 */

/* Requests whose channel was closed without a reply. */
#include <errno.h>
#include <string.h>

#include "base/auto.h"
#include "server/front/front.h"

enum { LOSSES_MAX = 5, RETRIES_MAX = 3 };

bool exchange_is_read(const struct exchange *exchange)
{
    return exchange->handler->is_read || (exchange->route.plane != PLANE_PORT &&
                                          (strcmp(exchange->method, "GET") == 0 ||
                                           strcmp(exchange->method, "HEAD") == 0));
}

/* Requests that change nothing are made again, all others are refused: only the client
 * knows whether to repeat them. */
static void end_loss(struct exchange *exchange)
{
    if (!exchange_is_read(exchange) || exchange->retries >= RETRIES_MAX) {
        exchange_refuse_and_close(exchange, 503, "the request was lost; try again");
        return;
    }
    exchange->retries++;
    exchange->losses = 0;
    exchange->kept = 0;
    exchange->front->retried++;
    if (exchange->state_done)
        exchange->state_done(exchange);
    exchange->state = NULL;
    exchange->state_done = NULL;
    exchange->handler->act(exchange);
    if (!exchange->response && !exchange->is_refused && exchange->channel < 0)
        exchange_refuse_and_close(exchange, 503, "the request was lost; try again");
}

static void count_loss(const struct exchange *exchange, int got)
{
    static const char *const reasons[] = {"its channel was closed before the reply",
                                          "the reply was malformed",
                                          "its channel could not be read"};
    enum loss loss = got == 0         ? LOSS_CLOSED
                     : got == -EPROTO ? LOSS_MALFORMED
                                      : LOSS_ERROR;
    struct front *front = exchange->front;

    front->lost[loss]++;
    warn_line(&front->loss_warn, "a request was lost: %s %.64s%s%s: %s%s%s",
              exchange->method, exchange->url, *exchange->route.sandbox ? " of " : "",
              exchange->route.sandbox, reasons[loss], loss == LOSS_ERROR ? ": " : "",
              loss == LOSS_ERROR ? strerrorname_np(-got) : "");
}

/* If only the keeper was lost the stream is cut, and the client looks for itself. */
static void ask_for_stream(struct exchange *exchange, struct ask *ask, int got)
{
    AUTO_BUF none = {0};

    buf_init(&none, 1);
    if (exchange->losses > 1 || exchange_send_ask(exchange, ask, &none) != 0) {
        count_loss(exchange, got);
        exchange_end(exchange, true);
    }
}

void exchange_end_lost_stream(struct exchange *exchange, const struct told *told)
{
    if (told->head.kind == TELL_FAILED && told->head.status == 502) {
        connect_end_gone(exchange, told_next(told, NULL));
        return;
    }
    count_loss(exchange, 0);
    exchange_end(exchange, true);
}

/* The channel was closed without an answer: either the sandbox is gone, which its record
 * says when its keeper was reaped, or only its keeper, of which there will be another.
 * A client that has only a signature looks for itself. */
void exchange_note_loss(struct exchange *exchange, int got)
{
    AUTO_BUF none = {0};
    struct ask ask;

    if (!exchange->is_stream)
        count_loss(exchange, got);
    exchange_hang_up(exchange);
    exchange->losses++;
    exchange_begin_ask(exchange, OP_HEALTH, &ask);
    if (exchange->is_stream) {
        ask_for_stream(exchange, &ask, got);
    } else if (exchange->losses > LOSSES_MAX || !(*ask.sandbox || *ask.credential)) {
        end_loss(exchange);
    } else {
        buf_init(&none, 1);
        exchange_ask(exchange, &ask, &none);
    }
}

void exchange_tell_loss(struct exchange *exchange, const struct told *told)
{
    if (told->head.kind != TELL_FAILED)
        end_loss(exchange);
    else if (exchange->route.plane == PLANE_CONTROL && told->head.status == 502)
        exchange_refuse(exchange, 404, "the sandbox has ended");
    else
        exchange_refuse_told(exchange, told);
}
