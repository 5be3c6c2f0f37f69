/* SPDX-License-Identifier: Apache-2.0 */

/* Forks: the keeper of a sandbox seals its files, and each new sandbox is created over
 * them as any other, by a keeper of its own.  The client gets one reply with a result for
 * each of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"

enum { FORKS_MAX = 100 };

struct forks {
    int client; /* channel of the waiting client */
    int64_t left;
};

struct fork_plan {
    int64_t numbers[REQUEST_NUMBERS];
    struct buf strings; /* rules, headers and volumes */
};

void fork_plan_free(struct fork_plan *plan)
{
    if (plan && plan->strings.data)
        explicit_bzero(plan->strings.data, plan->strings.len);
    if (plan)
        buf_done(&plan->strings);
    free(plan);
}

/* --- Results --- */

static void count_down(struct forks *forks)
{
    if (--forks->left > 0)
        return;
    (void)reply_send_done(forks->client);
    (void)close(forks->client);
    free(forks);
}

void fork_report_created(struct broker *broker, struct forks *forks,
                         const struct record_row *row)
{
    struct record_row brief = *row;

    brief.metadata = (struct buf){0}; /* is not part of this reply */
    (void)broker_reply_sandbox(broker, forks->client, &brief, false);
    count_down(forks);
}

void fork_report_failed(struct forks *forks, int status, const char *message)
{
    struct reply reply = {
        .kind = REPLY_REFUSED, .count = 1, .numbers = {[REFUSED_STATUS] = status}};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};

    strings_add(&strings, message);
    (void)reply_send(forks->client, &reply, &strings, -1);
    count_down(forks);
}

/* --- Requests --- */

static void create_one(struct broker *broker, const struct broker_request *source,
                       const struct buf *env, const char *from, struct forks *forks)
{
    struct record_row row = source->row;

    row.id[0] = '\0';
    struct broker_request *pending = create_new(broker, &row, NULL);
    if (!pending) {
        fork_report_failed(forks, 503, "the server is overloaded");
        return;
    }
    pending->forks = forks;
    pending->claim = source->claim; /* each of them takes one place of it */
    pending->timeout_s = source->timeout_s;
    (void)buf_append(&pending->env, env->data, env->len);
    const struct broker_template none = BROKER_TEMPLATE_INIT; /* that of the source */
    create_send(broker, pending, &none, source->plan->numbers, &source->plan->strings,
                from);
}

/* The files are sealed in a checkpoint. */
static int forked(struct broker *broker, struct broker_request *pending,
                  const struct reply_packet *reply, struct cay_error *err)
{
    int64_t count = pending->plan->numbers[FORK_COUNT];
    AUTO_BUF env = {.max = CHANNEL_STRINGS + CREATE_SEAL_MAX};
    char from[CAY_ID_MAX + 16];

    TRY(create_find_env(broker, pending->row.id, &env, err));
    struct forks *forks = calloc(1, sizeof *forks);
    if (!forks)
        return cay_fail_memory(err, "server.fork");
    forks->client = TAKE_FD(pending->client);
    forks->left = count;
    snprintf(from, sizeof from, "sb-%s:%u", pending->row.id,
             (unsigned)reply->head.numbers[CHECKPOINT_ID]);
    while (count-- > 0) /* the last one frees forks */
        create_one(broker, pending, &env, from, forks);
    pending->claim = 0;
    if (env.data)
        explicit_bzero(env.data, env.len);
    return CAY_OK;
}

static bool may_fork(struct broker *broker, struct request_packet *request,
                     const struct record_row *row, const char *const *rules)
{
    const int64_t *numbers = request->head.numbers;

    if (!create_has_counts(request) || numbers[CREATE_METADATA] || numbers[CREATE_ENV]) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return false;
    }
    if (numbers[FORK_COUNT] < 1 || numbers[FORK_COUNT] > FORKS_MAX) {
        broker_refuse(request, 400, CAY_E_INVALID, "count must be 1 to 100", "");
        return false;
    }
    if (control_is_paused(broker, row)) {
        broker_refuse(request, 409, CAY_E_BUSY, "the sandbox is paused",
                      "connect to it first");
        return false;
    }
    /* --internet may be another one now than when the sandbox was created. */
    return create_check_network(broker, request, rules) &&
           control_check_timeout(broker, request, numbers[CREATE_TIMEOUT]) &&
           create_has_room(broker, request, 503);
}

void broker_fork(struct broker *broker, struct request_packet *request,
                 const struct record_row *row)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    const struct request head = request->head;

    if (!strings) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    struct fork_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return;
    buf_init(&plan->strings, CHANNEL_STRINGS);
    memcpy(plan->numbers, head.numbers, sizeof plan->numbers);
    struct broker_request *pending = NULL;
    if (may_fork(broker, request, row, strings + 1) &&
        create_add_parts(broker, request, row->tenant, strings + 1, &plan->strings))
        pending = broker_request_new(broker, OP_FORK, row, request);
    if (!pending) {
        fork_plan_free(plan);
        return;
    }
    pending->plan = plan;
    pending->claim = broker->claim;
    pending->claim_count = head.numbers[FORK_COUNT];
    broker->claim = 0;
    pending->done = forked;
    pending->retry = broker_request_resend;
    pending->timeout_s = head.numbers[CREATE_TIMEOUT] < 0 ? DEFAULT_TIMEOUT_S
                                                          : head.numbers[CREATE_TIMEOUT];
    broker_request_send(broker, pending, 0);
}
