/* SPDX-License-Identifier: Apache-2.0 */

/* Volumes of tenants.  The volume NAME of a tenant is Cay's volume "e2b.HASH.NAME" with
 * the hash of the tenant, and its id is "HASH.NAME", so that the server need not store
 * anything about it.  Creating
 * and removing one may wait for the disk: a keeper without a sandbox does it, and exits.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/hash.h"
#include "server/broker/broker.h"

enum { ID_AT = 4, PREFIX = 21, NAME_MAX_LEN = CAY_NAME_MAX - 1 - PREFIX };

/* With the name "" the prefix of all volumes of the tenant. */
static void fill_name(const char *tenant, const char *name, char ret_name[CAY_NAME_MAX])
{
    uint64_t hash = hash_stable(HASH_STABLE, tenant, strlen(tenant));

    snprintf(ret_name, CAY_NAME_MAX, "e2b.%016llx.%.*s", (unsigned long long)hash,
             NAME_MAX_LEN, name);
}

static bool is_name(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789_-");

    return len > 0 && len <= NAME_MAX_LEN && !name[len];
}

/* The volume of this id, if it can be one of the tenant's. */
static bool find_name(const char *tenant, const char *id, char ret_name[CAY_NAME_MAX])
{
    enum { SKIPPED = PREFIX - ID_AT };
    bool is_whole = strlen(id) > SKIPPED && is_name(id + SKIPPED);

    if (is_whole)
        fill_name(tenant, id + SKIPPED, ret_name);
    return is_whole && strcmp(ret_name + ID_AT, id) == 0;
}

static void refuse_name(struct request_packet *request)
{
    char hint[64];

    snprintf(hint, sizeof hint, "use 1 to %d letters, digits, \"_\" and \"-\"",
             NAME_MAX_LEN);
    broker_refuse(request, 400, CAY_E_INVALID, "invalid volume name", hint);
}

bool broker_add_volumes(struct request_packet *request, const char *tenant,
                        const char *const *mounts, int64_t count, struct buf *strings)
{
    char name[CAY_NAME_MAX];

    for (int64_t i = 0; i + 1 < count; i += 2) {
        if (!is_name(mounts[i])) {
            refuse_name(request);
            return false;
        }
        fill_name(tenant, mounts[i], name);
        strings_add(strings, name);
        strings_add(strings, mounts[i + 1]);
    }
    return true;
}

/* The keeper returns the names of Cay; a client sees the ids and its own names. */
static int done(struct broker *broker, struct broker_request *pending,
                const struct reply_packet *reply, struct cay_error *err)
{
    struct reply text = {.kind = REPLY_TEXT};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    char token[TOKEN_MAX];

    (void)err;
    if (reply->head.kind != REPLY_TEXT) {
        (void)reply_send_done(pending->client);
        return CAY_OK;
    }
    for (const char *name = NULL; (name = reply_next(reply, name));) {
        if (strlen(name) <= PREFIX)
            continue;
        strings_add(&strings, name + ID_AT);
        strings_add(&strings, name + PREFIX);
        text.count += 2;
        if (pending->op == OP_VOLUMES)
            continue;
        secrets_token(&broker->secrets, TOKEN_VOLUME, name, 1, token);
        strings_add(&strings, token);
        text.count++;
    }
    (void)reply_send(pending->client, &text, &strings, -1);
    return CAY_OK;
}

void broker_handle_volume(struct broker *broker, struct request_packet *request,
                          const char *tenant)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    enum op op = (enum op)request->head.op;
    struct request sent = {.count = 1};
    AUTO_BUF names = {.max = CAY_NAME_MAX};
    char name[CAY_NAME_MAX];

    if (!strings) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    if (op == OP_VOLUME_CREATE && !is_name(strings[0])) {
        refuse_name(request);
        return;
    }
    if (op == OP_VOLUMES || op == OP_VOLUME_CREATE)
        fill_name(tenant, op == OP_VOLUMES ? "" : strings[0], name);
    else if (!find_name(tenant, strings[0], name)) {
        broker_refuse(request, 404, CAY_E_NOT_FOUND, "there is no such volume",
                      "list the volumes");
        return;
    }
    strings_add(&names, name);
    struct broker_request *pending = broker_request_new(broker, op, NULL, request);
    if (!pending)
        return;
    pending->done = done;
    if (op == OP_VOLUME_REMOVE) /* a keeper that serves its files would be in the way */
        cay_copy_text(pending->volume, sizeof pending->volume, name);
    broker_request_send_to(broker, pending, &sent, &names);
}

/* --- Files of volumes --- */

static bool is_authorized(struct broker *broker, const struct request_packet *request,
                          const char *name)
{
    return secrets_is_token(&broker->secrets, TOKEN_VOLUME, name, 1,
                            request->head.credential);
}

static void forward(struct broker *broker, struct request_packet *request,
                    const char *name)
{
    int error = -EPIPE;

    for (int i = 0; i < 2 && error == -EPIPE; i++) {
        struct keeper_handle *keeper = keepers_find_volume(broker, name);
        error = keeper ? keepers_forward(keeper, request) : -EAGAIN;
        if (keeper && error == -EPIPE)
            keepers_lost(broker, keeper);
    }
    if (error)
        broker_refuse(request, 503, CAY_E_BUSY,
                      "the volume has too many pending requests",
                      "try again in a moment");
    else
        request_packet_done(request);
}

void broker_handle_content(struct broker *broker, struct request_packet *request)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    char name[CAY_NAME_MAX] = "e2b.";

    if (!strings || strlen(strings[0]) + ID_AT >= sizeof name) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    cay_copy_text(name + ID_AT, sizeof name - ID_AT, strings[0]);
    if (!is_authorized(broker, request, name))
        broker_refuse(request, 401, CAY_E_DENIED, "invalid token of the volume",
                      "send the token of the volume as Authorization: Bearer");
    else if (broker_check_memory(broker, request, 429))
        forward(broker, request, name);
}
