/* SPDX-License-Identifier: Apache-2.0 */

/* Requests about API keys and tenants.  Each key may list the keys of its tenant, which
 * shows the first characters of each; an admin key may list, create, rename and remove
 * those of all tenants. */
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "server/broker/broker.h"
#include "server/broker/index.h"
#include "server/broker/keys.h"
#include "server/wire/options.h"

enum { LISTED_MOST = 2000 };

static int reply_row(int channel, const struct key_row *row, const char *key)
{
    struct reply reply = {
        .kind = REPLY_KEY,
        .count = key ? 4 : 3,
        .numbers = {[KEY_CREATED_MS] = row->created_ms, [KEY_IS_ADMIN] = row->is_admin}};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    char id[KEY_ID_MAX];

    keys_id(row->hash, id);
    strings_add(&strings, id);
    strings_add(&strings, row->name);
    strings_add(&strings, row->shown);
    if (key)
        strings_add(&strings, key);
    int error = reply_send(channel, &reply, &strings, -1);
    if (key && strings.data)
        explicit_bzero(strings.data, strings.len);
    return error;
}

/* --- Lists --- */

struct listing {
    const char *tenant; /* of keys */
    int channel, error;
    size_t count;
};

static void list_key(const struct key_row *row, void *cookie)
{
    struct listing *listing = cookie;

    if (strcmp(row->tenant, listing->tenant) == 0 && !listing->error &&
        listing->count++ < LISTED_MOST)
        listing->error = reply_row(listing->channel, row, NULL);
}

static bool list_tenant(const struct tenant_row *row, void *cookie)
{
    struct listing *listing = cookie;
    struct reply reply = {.kind = REPLY_TENANT,
                          .count = 1,
                          .numbers = {[TENANT_KEYS] = row->keys,
                                      [TENANT_RUNNING] = row->running,
                                      [TENANT_PAUSED] = row->paused}};
    AUTO_BUF strings = {.max = TENANT_MAX};

    strings_add(&strings, row->name);
    listing->error = reply_send(listing->channel, &reply, &strings, -1);
    return !listing->error && ++listing->count < LISTED_MOST;
}

static int list(struct broker *broker, const struct request_packet *request,
                const char *tenant, struct cay_error *err)
{
    enum { BUFFER = 8 << 20 };
    struct listing listing = {.tenant = tenant, .channel = request->channel};
    const int buffer = BUFFER;

    (void)setsockopt(request->channel, SOL_SOCKET, SO_SNDBUFFORCE, &buffer,
                     sizeof buffer);
    TRY(request->head.op == OP_KEYS
            ? registry_visit_keys(broker->registry, list_key, &listing, err)
            : keys_visit_tenants(broker->registry, list_tenant, &listing, err));
    return listing.error ? cay_fail_errno(err, -listing.error, "server.keys", "the reply")
                         : CAY_OK;
}

/* --- One key --- */

static int check_name(const char *name, struct cay_error *err)
{
    size_t len = strlen(name);
    bool is_plain = len && len < KEY_NAME_MAX && utf8_is_valid(name, len);

    for (size_t i = 0; is_plain && i < len; i++)
        is_plain = (unsigned char)name[i] >= ' ' && name[i] != 0x7f;
    return is_plain ? CAY_OK
                    : cay_fail(err, CAY_E_INVALID, 0, "server.key", NULL,
                               "invalid name of a key", "use 1 to %d bytes of text",
                               KEY_NAME_MAX - 1);
}

static int create(struct broker *broker, const struct request_packet *request,
                  const char *tenant, const char *name, struct cay_error *err)
{
    char key[API_KEY_MAX], id[KEY_ID_MAX];
    unsigned char hash[KEY_HASH];
    struct key_row row;

    TRY(check_name(name, err));
    TRY(secrets_new_key(broker->registry, tenant, key, err));
    secrets_hash_key(key, hash);
    keys_id(hash, id);
    int code = keys_describe(broker->registry, hash, name, false, err);
    if (!code)
        code = keys_find(broker->registry, tenant, id, &row, err);
    if (!code)
        (void)reply_row(request->channel, &row, key);
    else
        (void)keys_remove(broker->registry, hash, NULL); /* no client has it */
    explicit_bzero(key, sizeof key);
    return code;
}

static int change(struct broker *broker, const struct request_packet *request,
                  const char *tenant, const char *const *strings, struct cay_error *err)
{
    struct key_row row;

    TRY(keys_find(broker->registry, tenant, strings[0], &row, err));
    if (request->head.op == OP_KEY_REMOVE)
        return keys_remove(broker->registry, row.hash, err);
    TRY(check_name(strings[1], err));
    return keys_describe(broker->registry, row.hash, strings[1], row.is_admin, err);
}

/* --- All of them --- */

static int handle(struct broker *broker, const struct request_packet *request,
                  const char *tenant, const char *const *strings, struct cay_error *err)
{
    if (!options_is_tenant(tenant))
        return cay_fail(err, CAY_E_INVALID, 0, "server.keys", NULL, "invalid tenant name",
                        "use letters, digits, \"-\", \"_\" and \".\"");
    if (!strings || request->head.op == OP_KEYS || request->head.op == OP_TENANTS)
        return list(broker, request, tenant, err);
    return request->head.op == OP_KEY_NEW
               ? create(broker, request, tenant, strings[0], err)
               : change(broker, request, tenant, strings, err);
}

static int status_of(const struct cay_error *err)
{
    return err->code == CAY_E_INVALID     ? 400
           : err->code == CAY_E_NOT_FOUND ? 404
           : err->code == CAY_E_NO_SPACE  ? 507
                                          : 503;
}

void broker_handle_keys(struct broker *broker, struct request_packet *request,
                        const char *tenant)
{
    enum op op = (enum op)request->head.op;
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    const char *named = strings && request->head.count && op != OP_TENANTS
                            ? strings[request->head.count - 1]
                            : "";
    struct cay_error error = {0};

    if (!strings && op != OP_TENANTS)
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
    else if (index_is_on(broker))
        broker_refuse(request, 501, CAY_E_UNSUPPORTED,
                      "API keys over HTTP: not supported by servers with one database",
                      "use cay key --store");
    else if ((op != OP_KEYS || *named) && !broker_is_admin(broker, request))
        broker_refuse(request, 403, CAY_E_DENIED, "only an admin key may do this",
                      "cay key new --admin creates one");
    else if (handle(broker, request, *named ? named : tenant, strings, &error))
        broker_refuse(request, status_of(&error), error.code, error.message, error.hint);
    else
        broker_reply_done(request);
}
