/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/errand.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

void errand_free(struct broker *broker, struct errand *errand)
{
    struct errand **link = &broker->errands;

    while (*link && *link != errand)
        link = &(*link)->next;
    if (*link)
        *link = errand->next;
    if (errand->is_spare) {
        broker->starting_spares--;
        broker_note_end(broker, broker_now_ms() + POOL_AGAIN_MS); /* should it fail */
    }
    const int fds[] = {errand->channel, errand->client};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    if (errand->held)
        asked_done(errand->held);
    free(errand->held);
    record_done(&errand->row);
    free(errand);
}

void errand_fail(struct errand *errand, int status, const struct cay_error *error)
{
    if (errand->client >= 0)
        (void)tell_failed(errand->client, status, error);
    if (errand->held) /* to whom 502 is a sandbox that is gone */
        (void)tell_failed(errand->held->channel, status == 404 ? 502 : status, error);
}

static void hear_keeper(struct broker *broker, struct source *source);

struct errand *errand_new(struct broker *broker, enum op op, const struct record_row *row,
                          struct asked *asked)
{
    struct errand *errand = calloc(1, sizeof *errand);

    if (!errand)
        return NULL;
    errand->source.ready = hear_keeper;
    errand->op = op;
    errand->channel = errand->client = -1;
    record_init(&errand->row);
    if (row) {
        struct buf metadata = errand->row.metadata;
        errand->row = *row;
        errand->row.metadata = metadata;
        (void)buf_append(&errand->row.metadata, row->metadata.data, row->metadata.len);
    }
    if (asked) {
        errand->client = asked->channel;
        asked->channel = -1;
        asked_done(asked);
    }
    struct errand **link = &broker->errands;
    while (*link) /* the oldest is first */
        link = &(*link)->next;
    *link = errand;
    return errand;
}

/* 0, or a negative errno. */
static int send_to(struct broker *broker, struct errand *errand,
                   const struct keeper *keeper, const struct ask *ask,
                   const struct buf *strings)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -errno;
    int error = ask_send(keeper->socket, ask, strings, ends[1]);
    (void)close(ends[1]);
    if (!error && !broker_watch(broker, ends[0], &errand->source))
        error = -EMFILE;
    if (error) {
        (void)close(ends[0]);
        return error;
    }
    errand->channel = ends[0];
    errand->keeper = keeper->pid;
    return 0;
}

static void give_up(struct broker *broker, struct errand *errand)
{
    struct cay_error error;

    cay_fail(&error, CAY_E_BUSY, 0, "server", NULL, "the server has too much to do",
             "try again in a moment");
    errand_fail(errand, 503, &error);
    errand_free(broker, errand);
}

void errand_go(struct broker *broker, struct errand *errand, struct keeper *keeper,
               const struct ask *ask, const struct buf *strings)
{
    int error = keeper ? send_to(broker, errand, keeper, ask, strings) : -EAGAIN;

    if (error == -EPIPE) { /* one that was ready, and has died since */
        keeper_lost(broker, keeper);
        keeper = keeper_start(broker, "");
        error = keeper ? send_to(broker, errand, keeper, ask, strings) : -EAGAIN;
    }
    if (error && keeper) /* it ends, and removes the sandbox that it had ready */
        keeper_drop(broker, keeper);
    if (error)
        give_up(broker, errand);
}

void errand_go_with(struct broker *broker, struct errand *errand, struct ask *ask,
                    const struct buf *strings)
{
    int error = -EPIPE;

    ask->version = CHANNEL_VERSION;
    ask->op = (uint32_t)errand->op;
    ask->strings_len = (uint32_t)strings->len;
    for (int i = 0; i < 2 && error == -EPIPE; i++) {
        struct keeper *keeper = keeper_of(broker, errand->row.id);
        error = keeper ? send_to(broker, errand, keeper, ask, strings) : -EAGAIN;
        if (keeper && error == -EPIPE)
            keeper_lost(broker, keeper); /* a new one will find out what is wrong */
    }
    if (error)
        give_up(broker, errand);
}

void errand_go_simply(struct broker *broker, struct errand *errand, int64_t number)
{
    struct ask ask = {.numbers = {[TIMEOUT_SECONDS] = number}};
    AUTO_BUF none = {0};

    errand->number = number;
    buf_init(&none, 1);
    errand_go_with(broker, errand, &ask, &none);
}

void errand_go_again(struct broker *broker, struct errand *errand)
{
    errand_go_simply(broker, errand, errand->number);
}

bool errand_is_under_way(const struct broker *broker, const char *id)
{
    const struct errand *errand = broker->errands;

    while (errand && (errand->op == OP_TIMEOUT || strcmp(errand->row.id, id) != 0))
        errand = errand->next;
    return errand != NULL;
}

const struct errand *errand_of(const struct broker *broker, enum op op, const char *id)
{
    const struct errand *errand = broker->errands;

    while (errand && (errand->op != op || strcmp(errand->row.id, id) != 0))
        errand = errand->next;
    return errand;
}

/* --- What became of them --- */

static int status_of(int code)
{
    static const struct {
        int code, status;
    } statuses[] = {
        {CAY_E_NOT_FOUND, 404}, {CAY_E_BUSY, 409},        {CAY_E_INVALID, 400},
        {CAY_E_LIMIT, 429},     {CAY_E_UNSUPPORTED, 501}, {CAY_E_UNAVAILABLE, 503},
        {CAY_E_NO_SPACE, 507},
    };

    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].code == code)
            return statuses[i].status;
    return 500;
}

static void note_failure(const struct broker *broker, struct errand *errand,
                         const struct told *told)
{
    struct cay_error error;
    const char *message = told_next(told, NULL);
    const char *hint = message ? told_next(told, message) : NULL;
    int code = told->head.code < 0 ? told->head.code : CAY_E_INTERNAL;

    cay_fail(&error, code, 0, "server", NULL,
             message ? message : "the sandbox does not answer", "%s",
             hint ? hint : "try again");
    /* What is wrong with this machine is for those to read who run it. */
    if (errand->op == OP_CREATE && status_of(code) >= 500 && !told->head.status) {
        if (broker->complain)
            broker->complain("no sandbox could be made", &error);
        cay_fail(&error, code, 0, "server", NULL, "the sandbox could not be made",
                 "the server's standard error says why");
    }
    errand_fail(errand, status_of(code), &error);
}

static void try_again(struct broker *broker, struct errand *errand)
{
    void (*again)(struct broker * broker, struct errand * errand) = errand->again;

    (void)close(errand->channel);
    errand->channel = -1;
    errand->is_orphan = errand->is_lost = false;
    errand->keeper = 0;
    errand->again = NULL;
    again(broker, errand);
}

/* Either the sandbox has ended meanwhile, and then its record says so, or its keeper was
 * killed. */
static void finish_orphan(struct broker *broker, struct errand *errand)
{
    char message[160];
    struct cay_error error;
    AUTO_RECORD row = {0};
    const char *fate = NULL;
    enum op op = errand->op;

    record_init(&row);
    if (op == OP_KILL)
        errand->op = OP_NONE; /* this one is no reason any more */
    if (*errand->row.id && broker_find(broker, errand->row.id, &row, NULL) == CAY_OK)
        fate = broker_fate(broker, &row);
    if (!fate && errand->again) {
        errand->op = op;
        try_again(broker, errand);
        return;
    }
    snprintf(message, sizeof message, "sandbox \"%s\" %s", errand->row.id,
             fate ? fate : "does not answer");
    if (fate)
        cay_fail(&error, CAY_E_NOT_FOUND, 0, "server", NULL, message,
                 "list the sandboxes to see which there are");
    else
        cay_fail(&error, CAY_E_UNAVAILABLE, 0, "server", NULL,
                 *errand->row.id ? message : "the sandbox could not be made",
                 "try again in a moment");
    errand_fail(errand, status_of(error.code), &error);
    errand_free(broker, errand);
}

void errand_force_late(struct broker *broker)
{
    int64_t now_ms = broker_now_ms();

    for (struct errand *errand = broker->errands; errand; errand = errand->next) {
        if (!errand->force_ms || errand->is_lost)
            continue;
        if (errand->force_ms > now_ms) {
            broker_note_end(broker, errand->force_ms);
            continue;
        }
        errand->force_ms = 0;
        if (!keeper_is_behind(broker, errand->keeper))
            continue;
        errand->again = errand_go_again;
        (void)kill(errand->keeper, SIGKILL);
    }
}

/* In the order in which they came, since a pause and the end of it are not the same the
 * other way round; so it is known first of all of them that there is no answer. */
static void finish_orphans(struct broker *broker, pid_t keeper)
{
    struct errand *next;

    for (const struct errand *errand = broker->errands; errand; errand = errand->next)
        if (errand->keeper == keeper && !errand->is_orphan)
            return;
    for (struct errand *errand = broker->errands; errand; errand = next) {
        next = errand->next;
        if (errand->keeper == keeper)
            finish_orphan(broker, errand);
    }
}

void errand_keeper_ended(struct broker *broker, pid_t keeper)
{
    for (struct errand *errand = broker->errands; errand; errand = errand->next)
        errand->is_lost |= errand->keeper == keeper;
    finish_orphans(broker, keeper);
}

static void hear_keeper(struct broker *broker, struct source *source)
{
    static struct told told;
    struct errand *errand = (struct errand *)source;
    struct cay_error error = {0};
    int got = tell_receive(errand->channel, &told);

    if (got == -EAGAIN)
        return;
    broker_forget(broker, errand->channel);
    if (got == 1 && told.fd >= 0)
        (void)close(told.fd);
    pid_t lost = errand->is_lost ? errand->keeper : 0;
    if (got != 1) { /* why is known when the keeper was reaped */
        errand->is_orphan = true;
        if (lost)
            finish_orphans(broker, lost);
        return;
    }
    if (told.head.kind == TELL_FAILED)
        note_failure(broker, errand, &told);
    else if (errand->done && errand->done(broker, errand, &told, &error))
        errand_fail(errand, status_of(error.code), &error);
    errand_free(broker, errand);
    if (lost)
        finish_orphans(broker, lost);
}
