/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store-client.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "server/broker/index.h"

enum { PATIENCE_MS = 20000 };

static const char op[] = "store";

static int fail_away(const char *why, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "--store", why,
                    "check the URL, the password, and that the database runs");
}

/* The next message, or an error. */
static int receive(struct store_client *client, uint64_t end_ms, struct cay_error *err)
{
    for (;;) {
        struct pollfd fd = {.fd = client->socket, .events = POLLIN};
        uint64_t now_ms = clock_ms();
        int got = store_receive(client->socket, &client->packet);
        if (got == 1)
            return CAY_OK;
        if (got != -EAGAIN)
            return fail_away("cay-store has ended", err);
        if (now_ms >= end_ms)
            return fail_away("the database does not answer", err);
        (void)poll(&fd, 1, (int)(end_ms - now_ms));
    }
}

void store_client_close(struct store_client *client)
{
    (void)close(client->socket);
    (void)kill(client->pid, SIGKILL);
    (void)waitpid(client->pid, NULL, 0);
}

int store_client_open(const struct serve_options *options, struct store_client *client,
                      struct cay_error *err)
{
    uint64_t end_ms = clock_ms() + PATIENCE_MS;
    int plan, code;

    TRY(store_plan(options, "", "", &plan, err));
    client->pid = store_start(plan, &client->socket);
    (void)close(plan);
    if (client->pid < 0)
        return cay_fail_errno(err, errno, op, "cay-store");
    do
        code = receive(client, end_ms, err);
    while (!code && client->packet.head.kind != STORE_UP &&
           client->packet.head.kind != STORE_DOWN);
    if (!code && client->packet.head.kind == STORE_DOWN)
        code = fail_away(client->packet.strings, err);
    if (code)
        store_client_close(client);
    return code;
}

int store_client_ask(struct store_client *client, struct store_message *message,
                     const struct buf *strings,
                     void (*visit)(const struct store_packet *packet, void *cookie),
                     void *cookie, struct cay_error *err)
{
    uint64_t end_ms = clock_ms() + PATIENCE_MS;
    const struct store_message *head = &client->packet.head;

    message->number = 1;
    int error = store_send(client->socket, message, strings);
    if (error)
        return cay_fail_errno(err, -error, op, "cay-store");
    for (;;) {
        TRY(receive(client, end_ms, err));
        if (head->number == 1 && head->kind == STORE_ROW && visit)
            visit(&client->packet, cookie);
        if (head->number == 1 && head->kind == STORE_DONE)
            break;
        if (head->kind == STORE_DOWN)
            return fail_away(client->packet.strings, err);
    }
    if (!head->code)
        return CAY_OK;
    return cay_fail(err, head->code, 0, op, "--store",
                    head->len ? client->packet.strings : "the request failed",
                    "see the log of the database");
}
