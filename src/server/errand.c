/* SPDX-License-Identifier: Apache-2.0 */
#include "server/errand.h"

#include <errno.h>
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
    if (errand->held)
        (void)tell_failed(errand->held->channel, 502, error);
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
    errand->next = broker->errands;
    broker->errands = errand;
    return errand;
}

void errand_go(struct broker *broker, struct errand *errand, struct keeper *keeper,
               const struct ask *ask, const struct buf *strings)
{
    struct cay_error error = {0};
    int ends[2] = {-1, -1};

    if (keeper && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                             ends) == 0) {
        errand->channel = ends[0];
        errand->keeper = keeper->pid;
        int failed = ask_send(keeper->socket, ask, strings, ends[1]);
        (void)close(ends[1]);
        if (!failed && broker_watch(broker, ends[0], &errand->source))
            return;
    }
    cay_fail(&error, CAY_E_BUSY, 0, "server", NULL, "the server has too much to do",
             "try again in a moment");
    errand_fail(errand, 503, &error);
    errand_free(broker, errand);
}

void errand_go_simply(struct broker *broker, struct errand *errand, int64_t number)
{
    struct ask ask = {.version = CHANNEL_VERSION,
                      .op = (uint32_t)errand->op,
                      .numbers = {[TIMEOUT_SECONDS] = number}};
    AUTO_BUF none = {0};

    buf_init(&none, 1);
    errand_go(broker, errand, keeper_of(broker, errand->row.id), &ask, &none);
}

bool errand_is_under_way(const struct broker *broker, const char *id)
{
    const struct errand *errand = broker->errands;

    while (errand && (errand->op == OP_TIMEOUT || strcmp(errand->row.id, id) != 0))
        errand = errand->next;
    return errand != NULL;
}

static int status_of(int code)
{
    return code == CAY_E_NOT_FOUND     ? 404
           : code == CAY_E_BUSY        ? 409
           : code == CAY_E_INVALID     ? 400
           : code == CAY_E_LIMIT       ? 429
           : code == CAY_E_UNSUPPORTED ? 501
                                       : 500;
}

static void note_failure(struct broker *broker, struct errand *errand,
                         const struct told *told)
{
    struct cay_error error;
    const char *message = told ? told_next(told, NULL) : NULL;
    const char *hint = message ? told_next(told, message) : NULL;
    int code = told ? told->head.code : CAY_E_KILLED;

    if (errand->op == OP_KILL && (!told || code == CAY_E_NOT_FOUND)) {
        (void)!errand->done(broker, errand, told, &error); /* it was gone already */
        return;
    }
    cay_fail(&error, code < 0 ? code : CAY_E_INTERNAL, 0, "server", NULL,
             message ? message : "the sandbox's keeper has died", "%s",
             hint ? hint : "try again");
    errand_fail(errand, status_of(error.code), &error);
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
    if (errand->is_spare)
        broker->starting_spares--;
    if (got == 1 && told.fd >= 0)
        (void)close(told.fd);
    if (got != 1 || told.head.kind == TELL_FAILED)
        note_failure(broker, errand, got == 1 ? &told : NULL);
    else if (errand->done && errand->done(broker, errand, &told, &error))
        errand_fail(errand, status_of(error.code), &error);
    errand_free(broker, errand);
}
