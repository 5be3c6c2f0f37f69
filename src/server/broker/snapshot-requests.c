/* SPDX-License-Identifier: Apache-2.0 */

/* Requests about snapshots.  The keeper of a sandbox creates them; a keeper without a
 * sandbox removes them, since that may wait for the disk. */
#include "cay/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/return.h"
#include "server/broker/shared.h"

enum {
    PAGE_MAX = 100,
    SNAPSHOTS_MAX = 1000, /* of a tenant */
    /* Another server of this store may be about to write the row. */
    ORPHAN_MS = 60000
};

static int reply_snapshot(int channel, const struct snapshot_row *row)
{
    struct reply reply = {.kind = REPLY_SNAPSHOT, .count = 3};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    char shown[SNAPSHOT_SHOWN_MAX];

    snapshot_show(row, shown);
    reply.numbers[SNAPSHOT_CREATED_MS] = row->created_ms;
    strings_add(&strings, shown);
    strings_add(&strings, *row->name ? shown : "");
    strings_add(&strings, row->id);
    return reply_send(channel, &reply, &strings, -1);
}

/* --- Removing --- */

static void send_source(struct broker *broker, struct broker_request *pending,
                        const struct snapshot_row *row)
{
    struct request request = {.count = 1};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    char source[SNAPSHOT_SOURCE_MAX];

    snapshot_source(broker->registry, row->id, source);
    strings_add(&strings, source);
    if (pending->op == OP_SNAPSHOT_REMOVE)
        request.count += shared_add_record(broker, row, &strings);
    broker_request_send_to(broker, pending, &request, &strings);
}

static int removed(struct broker *broker, struct broker_request *pending,
                   const struct reply_packet *reply, struct cay_error *err)
{
    (void)reply;
    TRY(snapshot_remove(broker->registry, pending->snapshot->id, err));
    shared_forget_snapshot(broker, pending->snapshot->id);
    if (pending->client >= 0)
        (void)reply_send_done(pending->client);
    return CAY_OK;
}

/* Without a client a snapshot in use stays, until the server is started again. */
static void start_remove(struct broker *broker, const struct snapshot_row *row,
                         struct request_packet *request)
{
    struct broker_request *pending =
        broker_request_new(broker, OP_SNAPSHOT_REMOVE, NULL, request);
    struct snapshot_row *copy = pending ? calloc(1, sizeof *copy) : NULL;

    if (!copy) {
        if (pending)
            broker_request_free(broker, pending);
        return;
    }
    *copy = *row;
    pending->snapshot = copy;
    pending->done = removed;
    send_source(broker, pending, row);
}

void broker_drop_snapshot(struct broker *broker, const struct snapshot_row *row)
{
    start_remove(broker, row, NULL);
}

int broker_remove_snapshot(struct broker *broker, struct request_packet *request,
                           const char *tenant, const char *text, struct cay_error *err)
{
    struct snapshot_row row;

    TRY(snapshot_find(broker->registry, tenant, text, &row, err));
    start_remove(broker, &row, request);
    return CAY_OK;
}

/* --- Creating --- */

static int add_row(struct broker *broker, struct broker_request *pending,
                   struct cay_error *err)
{
    struct snapshot_row old = {0};
    int code = snapshot_add(broker->registry, pending->snapshot, old.id, err);

    if (code) {
        start_remove(broker, pending->snapshot, NULL);
        return code;
    }
    if (*old.id && strcmp(old.id, pending->snapshot->id) != 0) {
        cay_copy_text(old.tenant, sizeof old.tenant, pending->snapshot->tenant);
        start_remove(broker, &old, NULL);
    }
    if (pending->client >= 0)
        (void)reply_snapshot(pending->client, pending->snapshot);
    return CAY_OK;
}

/* The other nodes find it now. */
static int published(struct broker *broker, struct broker_request *pending,
                     const struct reply_packet *reply, struct cay_error *err)
{
    const char *digest = reply_next(reply, NULL);
    int code =
        shared_note_snapshot(broker, pending->snapshot, digest ? digest : "", true, err);

    if (code) {
        start_remove(broker, pending->snapshot, NULL);
        return code;
    }
    return add_row(broker, pending, err);
}

static void publish_failed(struct broker *broker, struct broker_request *pending,
                           const struct cay_error *error)
{
    struct snapshot_row local = *pending->snapshot;

    if (broker->log_error)
        broker->log_error("a snapshot cannot be shared", error);
    local.tenant[0] = '\0'; /* it has no record */
    start_remove(broker, &local, NULL);
}

static int created(struct broker *broker, struct broker_request *pending,
                   const struct reply_packet *reply, struct cay_error *err)
{
    (void)reply;
    pending->snapshot->created_ms = clock_since_1970_ms();
    return shared_is_on(broker)
               ? shared_publish(broker, pending, published, publish_failed, err)
               : add_row(broker, pending, err);
}

/* A sandbox is created from the snapshot of a name, or else from its template. */
static int parse_name(struct broker *broker, const char *tenant, const char *text,
                      struct snapshot_row *snapshot, struct cay_error *err)
{
    struct catalog_template template;

    TRY(snapshot_parse(tenant, text, snapshot, err));
    if (shared_is_on(broker) && strcmp(snapshot->name, KEEPER_TEMPLATE) == 0)
        return cay_fail(err, CAY_E_INVALID, 0, "server.snapshot", NULL,
                        "\"" KEEPER_TEMPLATE "\" is the built-in template of all servers",
                        "use another name");
    int code =
        catalog_find_template(broker->registry, tenant, snapshot->name, &template, err);
    if (code)
        return code == CAY_E_NOT_FOUND ? CAY_OK : code;
    return cay_fail(err, CAY_E_INVALID, 0, "server.snapshot", NULL,
                    "a template has this name",
                    "use another name, or delete the template first");
}

static bool count_one(const struct snapshot_row *row, void *cookie)
{
    (void)row;
    return ++*(unsigned *)cookie < SNAPSHOTS_MAX;
}

/* One that replaces another needs no room. */
static int check_number(struct broker *broker, const struct snapshot_row *snapshot,
                        struct cay_error *err)
{
    struct snapshot_filter filter = {
        .tenant = snapshot->tenant, .sandbox = "", .name = "", .tag = "", .after_id = ""};
    unsigned count = 0, same = 0;

    TRY(snapshot_visit(broker->registry, &filter, count_one, &count, err));
    if (count < SNAPSHOTS_MAX)
        return CAY_OK;
    filter.name = snapshot->name;
    filter.tag = snapshot->tag;
    if (*snapshot->name)
        TRY(snapshot_visit(broker->registry, &filter, count_one, &same, err));
    return same ? CAY_OK
                : cay_fail(err, CAY_E_LIMIT, 0, "server.snapshot", NULL,
                           "too many snapshots", "the limit is %d: delete some",
                           SNAPSHOTS_MAX);
}

void broker_create_snapshot(struct broker *broker, struct request_packet *request,
                            const struct record_row *row)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    AUTO_FREE struct snapshot_row *snapshot = calloc(1, sizeof *snapshot);
    struct cay_error error = {0};

    if (!strings || !snapshot || control_is_paused(broker, row)) {
        broker_refuse(request, 404, CAY_E_NOT_FOUND, "the sandbox is paused",
                      "connect to it first");
        return;
    }
    int code = *strings[0] ? parse_name(broker, row->tenant, strings[0], snapshot, &error)
                           : CAY_OK;
    if (!code)
        code = snapshot_draw_id(snapshot->id, &error);
    if (code) {
        broker_refuse(request, code == CAY_E_INVALID ? 400 : 500, code, error.message,
                      error.hint);
        return;
    }
    if (!*snapshot->tag)
        cay_copy_text(snapshot->tag, sizeof snapshot->tag, "default");
    cay_copy_text(snapshot->tenant, sizeof snapshot->tenant, row->tenant);
    cay_copy_text(snapshot->sandbox, sizeof snapshot->sandbox, row->id);
    snapshot->flags = return_flags(row);
    code = check_number(broker, snapshot, &error);
    if (code) {
        broker_refuse(request, code == CAY_E_LIMIT ? 429 : 503, code, error.message,
                      error.hint);
        return;
    }
    if (!create_has_room(broker, request, 503))
        return;
    struct broker_request *pending =
        broker_request_new(broker, OP_SNAPSHOT, row, request);
    if (!pending)
        return;
    pending->done = created;
    pending->snapshot = TAKE_PTR(snapshot);
    send_source(broker, pending, pending->snapshot);
}

/* --- Lists --- */

struct listing {
    int channel;
    int64_t left;
    bool more;
};

static bool list_one(const struct snapshot_row *row, void *cookie)
{
    struct listing *listing = cookie;

    listing->more = listing->left-- == 0;
    return !listing->more && reply_snapshot(listing->channel, row) == 0;
}

/* Strings: sandbox, name and the last id of the previous page. */
void broker_list_snapshots(struct broker *broker, struct request_packet *request,
                           const char *tenant)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    const int64_t *numbers = request->head.numbers;
    struct listing listing = {.channel = request->channel, .left = numbers[LIST_LIMIT]};
    struct reply last = {.kind = REPLY_DONE};
    struct snapshot_row wanted = {0};
    struct cay_error error = {0};

    if (!strings || numbers[LIST_LIMIT] < 1 || numbers[LIST_LIMIT] > PAGE_MAX) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    bool is_known =
        !*strings[1] || snapshot_parse(tenant, strings[1], &wanted, NULL) == CAY_OK;
    const struct snapshot_filter filter = {.tenant = tenant,
                                           .sandbox = strings[0],
                                           .name = wanted.name,
                                           .tag = wanted.tag,
                                           .after_ms = numbers[LIST_AFTER_MS],
                                           .after_id = strings[2]};
    if (is_known &&
        snapshot_visit(broker->registry, &filter, list_one, &listing, &error) != CAY_OK) {
        (void)reply_send_error(request->channel, 503, &error);
    } else {
        last.numbers[LISTED_HAS_MORE] = listing.more;
        (void)reply_send(request->channel, &last, NULL, -1);
    }
    request_packet_done(request);
}

/* --- After a restart --- */

struct comparison {
    struct broker *broker;
    const struct cay_snapshot_info *infos;
    size_t count;
};

static bool compare_row(const struct snapshot_row *row, void *cookie)
{
    struct comparison *all = cookie;
    char source[SNAPSHOT_SOURCE_MAX];

    snapshot_source(all->broker->registry, row->id, source);
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->infos[i].name, source) == 0)
            return true;
    if (!shared_lost(all->broker, row->id))
        start_remove(all->broker, row, NULL); /* its files are gone */
    return true;
}

void broker_reconcile_snapshots(struct broker *broker)
{
    AUTO_FREE struct cay_snapshot_info *infos = NULL;
    const struct snapshot_filter all = {
        .sandbox = "", .name = "", .tag = "", .after_id = ""};
    struct comparison comparison = {.broker = broker};

    if (cay_snapshot_list(&infos, &comparison.count, NULL) != CAY_OK)
        return;
    comparison.infos = infos;
    (void)snapshot_visit(broker->registry, &all, compare_row, &comparison, NULL);
    for (size_t i = 0; i < comparison.count; i++) {
        const char *id = snapshot_source_id(broker->registry, infos[i].name);
        struct snapshot_row orphan = {0};
        if (!id || clock_since_1970_ms() - infos[i].created_ms < ORPHAN_MS ||
            snapshot_has(broker->registry, NULL, id))
            continue;
        cay_copy_text(orphan.id, sizeof orphan.id, id);
        start_remove(broker, &orphan, NULL);
    }
}
