/* SPDX-License-Identifier: Apache-2.0 */

/* Requests about the stored secrets of a tenant. */
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/stored.h"

static int reply_row(int channel, const struct stored_row *row)
{
    struct reply reply = {.kind = REPLY_SECRET,
                          .count = 2,
                          .numbers = {[SECRET_VERSION] = row->version,
                                      [SECRET_CREATED_MS] = row->created_ms,
                                      [SECRET_UPDATED_MS] = row->updated_ms}};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};

    strings_add(&strings, row->id);
    strings_add(&strings, row->name);
    (void)buf_append(&strings, row->metadata.data, row->metadata.len);
    for (size_t i = 0; i < row->metadata.len; i++)
        reply.count += row->metadata.data[i] == '\0';
    return reply_send(channel, &reply, &strings, -1);
}

/* --- A list --- */

struct listing {
    int channel, error;
    int64_t left;
    bool has_more;
};

static bool list_row(const struct stored_row *row, void *cookie)
{
    struct listing *listing = cookie;

    listing->has_more = listing->left == 0;
    if (listing->left-- > 0)
        listing->error = reply_row(listing->channel, row);
    return !listing->has_more && !listing->error;
}

static int list(struct broker *broker, const struct request_packet *request,
                const char *tenant, const char *after, struct cay_error *err)
{
    enum { BUFFER = 4 << 20 };
    struct listing listing = {.channel = request->channel,
                              .left = request->head.numbers[LIST_LIMIT]};
    struct reply last = {.kind = REPLY_DONE};
    const int buffer = BUFFER;

    (void)setsockopt(request->channel, SOL_SOCKET, SO_SNDBUFFORCE, &buffer,
                     sizeof buffer);
    TRY(registry_visit_stored(broker->registry, tenant, after, list_row, &listing, err));
    if (listing.error)
        return cay_fail_errno(err, -listing.error, "server.secrets", "the reply");
    last.numbers[LISTED_HAS_MORE] = listing.has_more;
    (void)reply_send(request->channel, &last, NULL, -1);
    return CAY_OK;
}

/* --- One --- */

static int set(struct broker *broker, const struct request_packet *request,
               const char *tenant, const char *const *strings, struct cay_error *err)
{
    uint32_t flags = request->head.flags;
    AUTO_STORED row = STORED_INIT;
    AUTO_BUF metadata = {.max = STORED_METADATA_MAX};
    const struct stored_change change = {
        .tenant = tenant,
        .name = strings[0],
        .value = strings[1],
        .metadata = flags & SECRET_METADATA ? &metadata : NULL,
        .mode = flags & SECRET_NEW ? STORED_NEW : STORED_CHANGE};

    for (uint32_t i = 2; i < request->head.count; i++)
        strings_add(&metadata, strings[i]);
    if (metadata.failed || request->head.count % 2)
        return cay_fail(err, CAY_E_INVALID, 0, "server.secret", strings[0],
                        "too much metadata for a secret", "the limit is 8192 bytes");
    TRY(stored_set(broker->registry, &broker->secrets, &change, &row, err));
    (void)reply_row(request->channel, &row);
    return CAY_OK;
}

static int find(struct broker *broker, const struct request_packet *request,
                const char *tenant, const char *which, struct cay_error *err)
{
    AUTO_STORED row = STORED_INIT;

    TRY(registry_find_stored(broker->registry, tenant, which, &row, err));
    (void)reply_row(request->channel, &row);
    return CAY_OK;
}

static int handle(struct broker *broker, const struct request_packet *request,
                  const char *tenant, const char *const *strings, struct cay_error *err)
{
    switch (request->head.op) {
    case OP_SECRETS:
        return list(broker, request, tenant, strings[0], err);
    case OP_SECRET:
        return find(broker, request, tenant, strings[0], err);
    case OP_SECRET_SET:
        return set(broker, request, tenant, strings, err);
    default:
        TRY(registry_remove_stored(broker->registry, tenant, strings[0], err));
        (void)reply_send_done(request->channel);
        return CAY_OK;
    }
}

/* --- Headers --- */

#define REFERENCE "${e2b.secrets."

struct resolved {
    struct buf value, parts;
};

static int put_secret(struct broker *broker, const char *tenant, const char *name,
                      size_t len, struct resolved *resolved, struct cay_error *err)
{
    char which[STORED_NAME_MAX] = "", value[STORED_OPEN_MAX];

    if (len < sizeof which)
        memcpy(which, name, len);
    TRY(stored_open(broker->registry, &broker->secrets, tenant, which, value, err));
    buf_text(&resolved->value, value);
    buf_format(&resolved->parts, "%s\n", value);
    explicit_bzero(value, sizeof value);
    return CAY_OK;
}

/* A value with its references replaced. */
static int resolve(struct broker *broker, const char *tenant, const char *text,
                   struct resolved *resolved, struct cay_error *err)
{
    for (const char *at; (at = strstr(text, REFERENCE));) {
        const char *name = at + strlen(REFERENCE), *end = strchr(name, '}');
        if (!end)
            break;
        buf_append(&resolved->value, text, (size_t)(at - text));
        TRY(put_secret(broker, tenant, name, (size_t)(end - name), resolved, err));
        text = end + 1;
    }
    buf_text(&resolved->value, text);
    return resolved->value.failed || resolved->parts.failed
               ? cay_fail(err, CAY_E_INVALID, 0, "server.headers", NULL,
                          "a header of network.rules is too long with its secrets",
                          "the limit is 8 KiB")
               : CAY_OK;
}

static void wipe(struct buf *bytes)
{
    if (bytes->data)
        explicit_bzero(bytes->data, bytes->len);
    buf_done(bytes);
}

bool broker_add_headers(struct broker *broker, struct request_packet *request,
                        const char *tenant, const char *const *headers, int64_t count,
                        struct buf *strings)
{
    enum { VALUE_MAX = 8 << 10 };
    struct cay_error error = {0};
    int code = CAY_OK;

    for (int64_t i = 0; !code && i + 2 < count; i += 3) {
        struct resolved resolved = {.value = {.max = VALUE_MAX},
                                    .parts = {.max = VALUE_MAX}};
        code = resolve(broker, tenant, headers[i + 2], &resolved, &error);
        strings_add(strings, headers[i]);
        strings_add(strings, headers[i + 1]);
        strings_add(strings, resolved.value.data ? resolved.value.data : "");
        strings_add(strings, resolved.parts.data ? resolved.parts.data : "");
        wipe(&resolved.value);
        wipe(&resolved.parts);
    }
    if (code)
        broker_refuse_with(request, 400, &error);
    return !code;
}

void broker_handle_secret(struct broker *broker, struct request_packet *request,
                          const char *tenant)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    struct cay_error error = {0};

    if (!strings) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    int code = handle(broker, request, tenant, strings, &error);
    for (uint32_t i = 0; i < request->head.count; i++) /* a value */
        explicit_bzero((char *)(uintptr_t)strings[i], strlen(strings[i]));
    if (code)
        broker_refuse_with(request, 0, &error);
    else
        request_packet_done(request);
}
