/* SPDX-License-Identifier: Apache-2.0 */

/* The control plane: what is asked with an API key about a sandbox that exists. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/errand.h"

enum {
    REMEMBERED_MS = 24 * 3600 * 1000,
    KILL_PATIENCE_MS = 2000 /* with a keeper that does something else */
};

static void answer(struct asked *asked, int code, const struct cay_error *error)
{
    if (code)
        (void)tell_failed(asked->channel, 0, error);
    else
        (void)tell_done(asked->channel);
    asked_done(asked);
}

bool control_timeout_is_fine(struct broker *broker, struct asked *asked, int64_t seconds)
{
    char message[96];

    if (seconds <= (int64_t)broker->options->max_timeout_s && seconds >= -1)
        return true;
    snprintf(message, sizeof message, "Timeout cannot be greater than %u hours",
             broker->options->max_timeout_s / 3600);
    broker_refuse(asked, 400, CAY_E_INVALID,
                  seconds < -1 ? "Timeout is negative" : message,
                  "give a timeout between 0 and the limit of this server");
    return false;
}

void control_set_clock(struct broker *broker, struct record_row *row, int64_t seconds)
{
    row->end_ms = broker_now_ms() + seconds * 1000;
    broker_note_end(broker, row->end_ms);
}

/* --- The outcome of errands --- */

static int killed(struct broker *broker, struct errand *errand, const struct told *told,
                  struct cay_error *err)
{
    (void)told;
    (void)err;
    errand->row.state = RECORD_GONE;
    errand->row.end_ms = broker_now_ms();
    broker_write(broker, &errand->row);
    if (errand->client >= 0)
        (void)tell_done(errand->client);
    (void)registry_forget(broker->registry, broker_now_ms() - REMEMBERED_MS, NULL);
    return CAY_OK;
}

static int paused(struct broker *broker, struct errand *errand, const struct told *told,
                  struct cay_error *err)
{
    (void)told;
    (void)err;
    errand->row.state = RECORD_PAUSED;
    broker_write(broker, &errand->row);
    if (errand->client >= 0)
        (void)tell_done(errand->client);
    return CAY_OK;
}

static int64_t seconds_until(int64_t end_ms)
{
    int64_t left_ms = end_ms - broker_now_ms();

    return left_ms > 0 ? (left_ms + 999) / 1000 : 1;
}

/* Somebody else may have woken it meanwhile, for longer: then it has that time, also by
 * its own clock, which was just set to ours. */
static void set_clock_awake(struct broker *broker, struct record_row *row,
                            int64_t seconds)
{
    AUTO_RECORD now = {0};

    record_init(&now);
    bool is_awake =
        broker_find(broker, row->id, &now, NULL) == CAY_OK && now.state == RECORD_RUNNING;
    row->state = RECORD_RUNNING;
    if (!is_awake || now.end_ms <= broker_now_ms() + seconds * 1000) {
        control_set_clock(broker, row, seconds);
        return;
    }
    row->end_ms = now.end_ms;
    control_start(broker, OP_TIMEOUT, row, NULL, "", seconds_until(row->end_ms));
}

static int resumed(struct broker *broker, struct errand *errand, const struct told *told,
                   struct cay_error *err)
{
    (void)told;
    (void)err;
    set_clock_awake(broker, &errand->row, errand->timeout_s);
    broker_write(broker, &errand->row);
    if (errand->client >= 0)
        (void)broker_tell_sandbox(broker, errand->client, &errand->row, true);
    if (errand->held)
        broker_hand_on(broker, errand->held, errand->row.id);
    return CAY_OK;
}

/* --- Those that exist --- */

static bool find(struct broker *broker, struct asked *asked, const char *tenant,
                 struct record_row *row)
{
    char message[160] =
        "this can be no sandbox's id: those are lower-case letters and digits";
    struct cay_error error;
    bool is_id = record_is_id(asked->head.sandbox);
    int code =
        is_id ? broker_find(broker, asked->head.sandbox, row, &error) : CAY_E_NOT_FOUND;
    bool known = !code && strcmp(row->tenant, tenant) == 0;
    const char *fate = known ? broker_fate(broker, row) : "does not exist";

    if (!fate)
        return true;
    if (code && code != CAY_E_NOT_FOUND) {
        broker_refuse(asked, 503, code, error.message, error.hint);
        return false;
    }
    if (is_id)
        snprintf(message, sizeof message, "sandbox \"%s\" %s", asked->head.sandbox, fate);
    broker_refuse(asked, 404, CAY_E_NOT_FOUND, message,
                  "list the sandboxes to see which there are");
    return false;
}

/* What its record says by now. */
static void set_time_again(struct broker *broker, struct errand *errand)
{
    AUTO_RECORD row = {0};

    record_init(&row);
    if (broker_find(broker, errand->row.id, &row, NULL) == CAY_OK &&
        row.state == RECORD_RUNNING)
        errand_go_simply(broker, errand,
                         row.flags & CREATE_AUTO_PAUSE ? 0 : seconds_until(row.end_ms));
    else
        errand_free(broker, errand);
}

void control_start(struct broker *broker, enum op op, struct record_row *row,
                   struct asked *asked, const char *reason, int64_t seconds)
{
    struct errand *errand = errand_new(broker, op, row, asked);

    if (!errand)
        return;
    errand->done = op == OP_KILL     ? killed
                   : op == OP_PAUSE  ? paused
                   : op == OP_RESUME ? resumed
                                     : NULL;
    errand->again = op == OP_TIMEOUT ? set_time_again : errand_go_again;
    errand->timeout_s = seconds;
    cay_copy_text(errand->row.reason, REASON_MAX, reason);
    if (op == OP_KILL) {
        errand->force_ms = broker_now_ms() + KILL_PATIENCE_MS;
        broker_note_end(broker, errand->force_ms);
    }
    /* A sandbox that is to be paused at the end of its time is not to end itself. */
    bool sets_ttl = op == OP_TIMEOUT || op == OP_RESUME;
    errand_go_simply(broker, errand,
                     sets_ttl && !(row->flags & CREATE_AUTO_PAUSE) ? seconds : 0);
}

static void set_timeout(struct broker *broker, struct record_row *row, int64_t seconds)
{
    control_set_clock(broker, row, seconds);
    broker_write(broker, row);
    control_start(broker, OP_TIMEOUT, row, NULL, "", seconds);
}

bool control_is_paused(const struct broker *broker, const struct record_row *row)
{
    return row->state == RECORD_PAUSED || errand_of(broker, OP_PAUSE, row->id);
}

/* A running one is only ever given more time. */
static void connect_to(struct broker *broker, struct asked *asked, struct record_row *row)
{
    int64_t seconds = asked->head.numbers[TIMEOUT_SECONDS];

    if (!control_timeout_is_fine(broker, asked, seconds))
        return;
    if (seconds < 0)
        seconds = DEFAULT_LONG_TIMEOUT_S;
    if (control_is_paused(broker, row)) {
        control_start(broker, OP_RESUME, row, asked, "", seconds);
        return;
    }
    if (broker_now_ms() + seconds * 1000 > row->end_ms)
        set_timeout(broker, row, seconds);
    (void)broker_tell_sandbox(broker, asked->channel, row, false);
    asked_done(asked);
}

static void change_timeout(struct broker *broker, struct asked *asked,
                           struct record_row *row)
{
    int64_t seconds = asked->head.numbers[TIMEOUT_SECONDS];

    if (!control_timeout_is_fine(broker, asked, seconds))
        return;
    bool only_more = asked->head.op == OP_REFRESH;
    if (seconds < 0)
        seconds = DEFAULT_TIMEOUT_S;
    if (control_is_paused(broker, row)) {
        broker_refuse(asked, 409, CAY_E_BUSY, "the sandbox is paused",
                      "connect to it first");
        return;
    }
    if (!only_more || broker_now_ms() + seconds * 1000 > row->end_ms)
        set_timeout(broker, row, seconds);
    answer(asked, CAY_OK, NULL);
}

static void pause_or_resume(struct broker *broker, struct asked *asked,
                            struct record_row *row)
{
    bool pauses = asked->head.op == OP_PAUSE;
    int64_t seconds = asked->head.numbers[TIMEOUT_SECONDS];

    if (control_is_paused(broker, row) == pauses) {
        char message[96];
        snprintf(message, sizeof message, "Sandbox '%s' is %s", row->id,
                 pauses ? "already paused" : "already running");
        broker_refuse(asked, 409, CAY_E_BUSY, message, "");
    } else if (pauses) {
        control_start(broker, OP_PAUSE, row, asked, "", 0);
    } else if (control_timeout_is_fine(broker, asked, seconds)) {
        control_start(broker, OP_RESUME, row, asked, "",
                      seconds < 0 ? DEFAULT_TIMEOUT_S : seconds);
    }
}

void control_wake(struct broker *broker, struct asked *asked,
                  const struct record_row *row)
{
    struct errand *errand = errand_new(broker, OP_RESUME, row, NULL);
    struct asked *held = malloc(sizeof *held);

    if (!errand || !held) {
        free(held);
        if (errand)
            errand_free(broker, errand);
        asked_done(asked);
        return;
    }
    memcpy(held, asked, sizeof *held);
    asked->channel = asked->memfd = -1;
    errand->held = held;
    errand->done = resumed;
    errand->again = errand_go_again;
    errand->timeout_s = DEFAULT_LONG_TIMEOUT_S;
    errand_go_simply(broker, errand,
                     row->flags & CREATE_AUTO_PAUSE ? 0 : DEFAULT_LONG_TIMEOUT_S);
}

/* --- Dispatch --- */

static void answer_about(struct broker *broker, struct asked *asked, const char *tenant)
{
    AUTO_RECORD row = {0};

    record_init(&row);
    if (!find(broker, asked, tenant, &row))
        return;
    switch (asked->head.op) {
    case OP_CONNECT:
        connect_to(broker, asked, &row);
        break;
    case OP_INFO:
        (void)broker_tell_sandbox(broker, asked->channel, &row, false);
        asked_done(asked);
        break;
    case OP_KILL:
        control_start(broker, OP_KILL, &row, asked, "was killed", 0);
        break;
    case OP_TIMEOUT:
    case OP_REFRESH:
        change_timeout(broker, asked, &row);
        break;
    case OP_PAUSE:
    case OP_RESUME:
        pause_or_resume(broker, asked, &row);
        break;
    default: /* what only its keeper knows */
        broker_hand_on(broker, asked, row.id);
        break;
    }
}

void control_answer(struct broker *broker, struct asked *asked, const char *tenant)
{
    switch (asked->head.op) {
    case OP_CREATE:
        broker_create(broker, asked, tenant);
        break;
    case OP_LIST:
        broker_list(broker, asked, tenant);
        break;
    case OP_TEMPLATE:
        broker_find_template(asked);
        break;
    case OP_CHECK:
        answer(asked, CAY_OK, NULL);
        break;
    default:
        answer_about(broker, asked, tenant);
        break;
    }
}
