/* SPDX-License-Identifier: Apache-2.0 */
/* cay approve notify: sends the requests that wait to a webhook. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/approve.h"
#include "cli/signals.h"

static const char op[] = "cli.notify";

enum { LOOK_MS = 500, TRIES = 8, FIRST_MS = 1000, SECRET_ROOM = 4096 + 2 };

/* A request that was sent, or that failed so often. */
struct sent {
    char id[CAY_PENDING_ID_MAX];
    unsigned tries;
    uint64_t again_ms; /* not before; 0: it is sent */
    bool is_listed;
};

struct notify {
    struct cay_webhook hook;
    struct sent at[CAY_PENDING_MAX];
    size_t count;
    int signal; /* that ends it */
};

/* The first line of the file. */
static int read_secret(const char *path, char secret[SECRET_ROOM], struct cay_error *err)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, secret, SECRET_ROOM - 1);

    if (len < 0)
        return cay_fail_errno(err, errno, op, path);
    secret[len] = '\0';
    secret[strcspn(secret, "\r\n")] = '\0';
    return CAY_OK;
}

static struct sent *find(struct notify *notify, const char *id)
{
    for (size_t i = 0; i < notify->count; i++)
        if (strcmp(notify->at[i].id, id) == 0)
            return &notify->at[i];
    if (notify->count == CAY_PENDING_MAX)
        return NULL;
    struct sent *sent = &notify->at[notify->count++];
    *sent = (struct sent){.again_ms = 1};
    cay_copy_text(sent->id, sizeof sent->id, id);
    return sent;
}

static void report(const struct sent *sent, const struct cay_error *error, bool is_last)
{
    fprintf(stderr, "cay: request %.12s: %s%s\n", sent->id, error->message,
            is_last ? "; it is not sent again" : "");
}

static void send_one(struct notify *notify, struct sent *sent)
{
    struct cay_error error = {0};
    enum cay_decision decision;

    int code = cay_pending_notify(&notify->hook, sent->id, &decision, &error);
    if (!code || code == CAY_E_NOT_FOUND || code == CAY_E_EXISTS) {
        sent->again_ms = 0; /* the user was faster, or it has expired */
        return;
    }
    sent->tries++;
    bool is_last = sent->tries == TRIES || code == CAY_E_INVALID;
    report(sent, &error, is_last);
    sent->again_ms = is_last ? 0 : clock_ms() + ((uint64_t)FIRST_MS << (sent->tries - 1));
}

/* Those that are no longer in the queue are forgotten: the same request may return. */
static void forget(struct notify *notify)
{
    size_t kept = 0;

    for (size_t i = 0; i < notify->count; i++)
        if (notify->at[i].is_listed)
            notify->at[kept++] = notify->at[i];
    notify->count = kept;
}

static int send_all(struct notify *notify, struct cay_error *err)
{
    AUTO_FREE struct cay_pending *all = NULL;
    size_t count = 0;

    TRY(cay_pending_list(&all, &count, err));
    for (size_t i = 0; i < notify->count; i++)
        notify->at[i].is_listed = false;
    for (size_t i = 0; i < count; i++) {
        struct sent *sent = all[i].is_decided ? NULL : find(notify, all[i].id);
        if (sent)
            sent->is_listed = true;
    }
    forget(notify);
    for (size_t i = 0; i < notify->count && !notify->signal; i++)
        if (notify->at[i].again_ms && notify->at[i].again_ms <= clock_ms()) {
            send_one(notify, &notify->at[i]);
            notify->signal = signals_take();
        }
    return CAY_OK;
}

int notify_serve(const char *url, const char *secret_file, uint64_t timeout_ms,
                 struct cay_error *err)
{
    const struct timespec step = {.tv_nsec = LOOK_MS * 1000000L};
    AUTO_FREE struct notify *notify = calloc(1, sizeof *notify);
    char secret[SECRET_ROOM];
    enum cay_decision decision;
    struct cay_error error = {0};

    if (!notify)
        return cay_fail_memory(err, op);
    TRY(read_secret(secret_file, secret, err));
    notify->hook = (struct cay_webhook){.size = sizeof notify->hook,
                                        .url = url,
                                        .secret = secret,
                                        .timeout_ms = timeout_ms};
    /* An address or a secret that cannot be right is an error at once. */
    int code = cay_pending_notify(&notify->hook, "none", &decision, &error);
    if (code && code != CAY_E_NOT_FOUND)
        return cay_fail_as(err, code, &error);
    signals_catch();
    for (code = CAY_OK; !code && !notify->signal;) {
        code = send_all(notify, err);
        if (code || notify->signal)
            break;
        (void)ppoll(NULL, 0, &step, signals_mask());
        notify->signal = signals_take();
    }
    explicit_bzero(secret, sizeof secret);
    return code;
}
