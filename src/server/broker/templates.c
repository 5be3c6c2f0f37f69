/* SPDX-License-Identifier: Apache-2.0 */

/* Requests about the templates of a tenant and their tags.  builds.c makes them. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/shared.h"

static const char op[] = "server.template";

enum {
    TEMPLATES_MAX = 1000, /* of a tenant */
    TAGS_MAX = 300        /* of a template; a request may add 255 more */
};

#define CODE_TEMPLATE     "code" /* of cay template create code */
#define E2B_CODE_TEMPLATE "code-interpreter-v1"

/* --- Names --- */

static bool is_stored(const char *name)
{
    struct cay_template_info *infos = NULL;
    size_t count = 0;
    bool found = false;

    if (cay_template_list(&infos, &count, NULL) == CAY_OK)
        for (size_t i = 0; i < count; i++)
            found |= strcmp(infos[i].name, name) == 0;
    cay_free(infos);
    return found;
}

static int fail_unknown(const char *name, struct cay_error *err)
{
    char message[TEMPLATE_MAX + 32];

    snprintf(message, sizeof message, "template \"%.*s\" not found", TEMPLATE_MAX, name);
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL, message,
                    "base always exists; cay template ls lists the others");
}

/* Those of the machine, for all tenants: "NAME:default" and "NAME:latest" are NAME. */
static int resolve_common(const char *text, struct broker_template *template,
                          struct cay_error *err)
{
    size_t len = strcspn(text, ":");

    if (strcmp(text + len, ":default") != 0 && strcmp(text + len, ":latest") != 0)
        len = strlen(text);
    if (len >= TEMPLATE_MAX || strncmp(text, CATALOG_PREFIX, strlen(CATALOG_PREFIX)) == 0)
        return fail_unknown(text, err);
    snprintf(template->shown, sizeof template->shown, "%.*s", (int)len, text);
    snprintf(template->source, sizeof template->source, "%s", template->shown);
    if (strcmp(template->shown, E2B_CODE_TEMPLATE) == 0 && !is_stored(E2B_CODE_TEMPLATE))
        snprintf(template->source, sizeof template->source, "%s",
                 is_stored(CODE_TEMPLATE) ? CODE_TEMPLATE : KEEPER_TEMPLATE);
    if (strcmp(template->source, KEEPER_TEMPLATE) == 0 || is_stored(template->source))
        return CAY_OK;
    return fail_unknown(text, err);
}

int broker_resolve_template(struct broker *broker, const char *tenant, const char *text,
                            struct broker_template *ret_template, struct cay_error *err)
{
    struct catalog_build *build = &ret_template->build;
    int code = catalog_find_tagged(broker->registry, tenant, text, build, err);

    if (code == CAY_E_NOT_FOUND)
        return resolve_common(text, ret_template, err);
    if (code)
        return code;
    ret_template->is_own = true;
    cay_copy_text(ret_template->shown, sizeof ret_template->shown, build->template.id);
    catalog_source(build->id, ret_template->source);
    return CAY_OK;
}

uint32_t broker_add_start(struct broker *broker, const struct record_row *row,
                          struct buf *strings)
{
    AUTO_CATALOG_BUILD build = CATALOG_BUILD_INIT;
    const char *id = broker_find_metadata(row, RECORD_BUILD);
    char source[CATALOG_SOURCE_MAX];

    if (!id || catalog_find_commands(broker->registry, id, &build, NULL) != CAY_OK ||
        !*build.id)
        return 0;
    catalog_source(build.id, source);
    strings_add(strings, source);
    strings_add(strings, build.start.len ? build.start.data : "");
    strings_add(strings, build.ready.len ? build.ready.data : "");
    return 3;
}

/* --- Replies --- */

static uint32_t add_tags(struct buf *strings, const struct buf *tags)
{
    uint32_t count = 0;

    for (const char *at = tags->len ? tags->data : ""; *at; count++) {
        size_t len = strcspn(at, " ");
        (void)buf_append(strings, at, len);
        (void)buf_append(strings, "", 1);
        at += len + (at[len] == ' ');
    }
    return count;
}

int broker_reply_build(int channel, const struct catalog_build *build, int log)
{
    const struct catalog_template *template = &build->template;
    struct reply reply = {.kind = REPLY_BUILD,
                          .count = 5,
                          .numbers = {[BUILD_STATE] = build->state,
                                      [BUILD_CPUS] = build->cpus,
                                      [BUILD_MEMORY_MB] = build->memory_mb,
                                      [BUILD_CREATED_MS] = build->created_ms,
                                      [BUILD_UPDATED_MS] = build->updated_ms,
                                      [BUILD_FINISHED_MS] = build->finished_ms,
                                      [BUILD_TEMPLATE_CREATED_MS] = template->created_ms,
                                      [BUILD_TEMPLATE_UPDATED_MS] = template->updated_ms,
                                      [BUILD_SPAWNED_MS] = template->spawned_ms,
                                      [BUILD_SPAWNS] = template->spawn_count,
                                      [BUILD_COUNT] = template->build_count}};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};

    strings_add(&strings, template->id);
    strings_add(&strings, build->id);
    strings_add(&strings, template->name);
    strings_add(&strings, build->step);
    strings_add(&strings, build->reason);
    reply.count += add_tags(&strings, &build->tags);
    return reply_send(channel, &reply, &strings, log);
}

struct listing {
    int channel, error;
    int64_t left;
    bool has_more;
};

static bool list_row(const struct catalog_build *build, void *cookie)
{
    struct listing *listing = cookie;

    listing->has_more = listing->left == 0;
    if (listing->left-- > 0)
        listing->error = broker_reply_build(listing->channel, build, -1);
    return !listing->has_more && !listing->error;
}

static int list(struct broker *broker, const struct request_packet *request,
                const char *tenant, const char *const *strings, struct cay_error *err)
{
    enum { BUFFER = 8 << 20, ALL = CATALOG_LISTED };
    struct listing listing = {.channel = request->channel,
                              .left = request->head.op == OP_TEMPLATES
                                          ? request->head.numbers[LIST_LIMIT]
                                          : ALL};
    struct reply last = {.kind = REPLY_DONE};
    struct catalog_template template;
    const int buffer = BUFFER;

    (void)setsockopt(request->channel, SOL_SOCKET, SO_SNDBUFFORCE, &buffer,
                     sizeof buffer);
    if (request->head.op == OP_TEMPLATES) {
        TRY(catalog_visit_templates(broker->registry, tenant, strings[0], list_row,
                                    &listing, err));
    } else {
        TRY(catalog_find_template(broker->registry, tenant, strings[0], &template, err));
        TRY((request->head.op == OP_TAGS ? catalog_visit_tags : catalog_visit_builds)(
            broker->registry, template.id, list_row, &listing, err));
    }
    if (listing.error)
        return cay_fail_errno(err, -listing.error, op, "the reply");
    last.numbers[LISTED_HAS_MORE] = listing.has_more;
    (void)reply_send(request->channel, &last, NULL, -1);
    return CAY_OK;
}

static int find(struct broker *broker, const struct request_packet *request,
                const char *tenant, const char *text, struct cay_error *err)
{
    AUTO_BROKER_TEMPLATE template = BROKER_TEMPLATE_INIT;
    struct reply reply = {.kind = REPLY_TEXT, .count = 1};
    AUTO_BUF strings = {.max = TEMPLATE_MAX};

    TRY(broker_resolve_template(broker, tenant, text, &template, err));
    reply.numbers[0] = !template.is_own; /* for all */
    strings_add(&strings, template.shown);
    (void)reply_send(request->channel, &reply, &strings, -1);
    return CAY_OK;
}

/* --- Tags --- */

static int take_tags(const char *first, const char *const *tags, size_t count,
                     struct buf *to, struct cay_error *err)
{
    (void)buf_text(to, first);
    for (size_t i = 0; i < count; i++) {
        if (!catalog_is_tag(tags[i]))
            return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "invalid tag",
                            "use up to 128 lower-case letters, digits, \"_\", \"-\" and "
                            "\".\", without the name");
        (void)buf_format(to, "%s%s", to->len ? " " : "", tags[i]);
    }
    if (!to->len)
        (void)buf_text(to, CATALOG_DEFAULT);
    return to->failed ? cay_fail(err, CAY_E_LIMIT, 0, op, NULL, "too many tags",
                                 "all tags together have at most 4096 bytes")
                      : CAY_OK;
}

static int check_tags(struct broker *broker, const char *template_id,
                      struct cay_error *err)
{
    int64_t tags = 0;

    TRY(catalog_count_tags(broker->registry, template_id, &tags, err));
    return tags < TAGS_MAX
               ? CAY_OK
               : cay_fail(err, CAY_E_LIMIT, 0, op, NULL, "the template has too many tags",
                          "the limit is %d: remove some", TAGS_MAX);
}

static int fail_away(struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, NULL,
                    "the shared store with the templates and snapshots is away",
                    "try again later");
}

static int add(struct broker *broker, const struct request_packet *request,
               const char *tenant, const char *const *strings, struct cay_error *err)
{
    AUTO_CATALOG_BUILD build = CATALOG_BUILD_INIT;
    char name[CATALOG_NAME_MAX], tag[CATALOG_TAG_MAX];
    struct catalog_template known;
    int64_t templates, builds;

    if (shared_is_away(broker)) /* before a build that would be in vain */
        return fail_away(err);
    build.cpus = request->head.numbers[TEMPLATE_CPUS];
    build.memory_mb = request->head.numbers[TEMPLATE_MEMORY_MB];
    TRY(catalog_parse(tenant, strings[0], name, tag, err));
    TRY(take_tags(tag, strings + 1, request->head.count - 1, &build.tags, err));
    TRY(catalog_count(broker->registry, tenant, &templates, &builds, err));
    if (snapshot_has(broker->registry, tenant, name))
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "a snapshot has this name",
                        "use another name, or delete the snapshot first");
    if (templates >= TEMPLATES_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL, "too many templates",
                        "the limit is %d: delete some", TEMPLATES_MAX);
    if (catalog_find_template(broker->registry, tenant, name, &known, NULL) == CAY_OK)
        TRY(check_tags(broker, known.id, err));
    if (shared_is_on(broker))
        shared_template_id(broker, tenant, name, build.template.id);
    TRY(catalog_add(broker->registry, tenant, name, &build, err));
    (void)broker_reply_build(request->channel, &build, -1);
    return CAY_OK;
}

/* The other nodes find them now. */
static int shared_set(struct broker *broker, struct broker_request *pending,
                      const struct reply_packet *reply, struct cay_error *err)
{
    AUTO_CATALOG_BUILD build = CATALOG_BUILD_INIT;
    AUTO_BUF tags = {.max = CATALOG_TAGS_MAX};

    (void)reply;
    TRY(shared_apply_tags(broker, pending, &tags, err));
    if (!*pending->build) {
        (void)reply_send_done(pending->client);
        return CAY_OK;
    }
    TRY(catalog_find_build(broker->registry, pending->row.tenant, pending->template_id,
                           pending->build, &build, err));
    buf_done(&build.tags);
    build.tags = tags;
    tags = (struct buf){.max = CATALOG_TAGS_MAX};
    (void)broker_reply_build(pending->client, &build, -1);
    return CAY_OK;
}

static int set_tags(struct broker *broker, struct request_packet *request,
                    const char *tenant, const char *const *strings, struct cay_error *err)
{
    AUTO_CATALOG_BUILD build = CATALOG_BUILD_INIT;
    AUTO_BUF tags = {.max = CATALOG_TAGS_MAX};
    char name[CATALOG_NAME_MAX], tag[CATALOG_TAG_MAX];

    TRY(catalog_parse(tenant, strings[0], name, tag, err));
    TRY(take_tags("", strings + 1, request->head.count - 1, &tags, err));
    TRY(catalog_find_tagged(broker->registry, tenant, strings[0], &build, err));
    TRY(check_tags(broker, build.template.id, err));
    if (shared_is_on(broker))
        return shared_change_tags(broker, request, tenant, &build.template, build.id,
                                  strings + 1, request->head.count - 1, shared_set, err);
    for (uint32_t i = 1; i < request->head.count; i++)
        TRY(catalog_set_tag(broker->registry, build.template.id, strings[i], build.id,
                            clock_since_1970_ms(), err));
    buf_done(&build.tags);
    build.tags = tags;
    tags = (struct buf){.max = CATALOG_TAGS_MAX};
    (void)broker_reply_build(request->channel, &build, -1);
    return CAY_OK;
}

/* Those that are there: the others are CAY_E_NOT_FOUND. */
static int check_are_set(struct broker *broker, const char *template_id,
                         const char *const *tags, size_t count, struct cay_error *err)
{
    AUTO_CATALOG_BUILD found = CATALOG_BUILD_INIT;

    for (size_t i = 0; i < count; i++) {
        found.id[0] = '\0';
        TRY(catalog_find_tag(broker->registry, template_id, tags[i], &found, err));
        if (!*found.id)
            return catalog_remove_tag(broker->registry, template_id, "", err);
    }
    return CAY_OK;
}

static int remove_tags(struct broker *broker, struct request_packet *request,
                       const char *tenant, const char *const *strings,
                       struct cay_error *err)
{
    struct catalog_template template;
    size_t count = request->head.count - 1;

    if (strchr(strings[0], ':'))
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "the name contains a tag",
                        "give the name of the template alone");
    for (uint32_t i = 1; i < request->head.count; i++)
        if (strcmp(strings[i], CATALOG_DEFAULT) == 0)
            return cay_fail(err, CAY_E_INVALID, 0, op, NULL,
                            "the tag \"default\" cannot be removed",
                            "assign it to another build, or delete the template");
    TRY(catalog_find_template(broker->registry, tenant, strings[0], &template, err));
    if (shared_is_on(broker)) {
        TRY(check_are_set(broker, template.id, strings + 1, count, err));
        return shared_change_tags(broker, request, tenant, &template, "", strings + 1,
                                  count, shared_set, err);
    }
    for (uint32_t i = 1; i < request->head.count; i++)
        TRY(catalog_remove_tag(broker->registry, template.id, strings[i], err));
    (void)reply_send_done(request->channel);
    return CAY_OK;
}

static int handle(struct broker *broker, struct request_packet *request,
                  const char *tenant, const char *const *strings, struct cay_error *err)
{
    switch (request->head.op) {
    case OP_TEMPLATE:
        return find(broker, request, tenant, strings[0], err);
    case OP_TEMPLATE_NEW:
        return add(broker, request, tenant, strings, err);
    case OP_TAGS_SET:
        return set_tags(broker, request, tenant, strings, err);
    case OP_TAGS_REMOVE:
        return remove_tags(broker, request, tenant, strings, err);
    case OP_TEMPLATES:
    case OP_TEMPLATE_INFO:
    case OP_TAGS:
        return list(broker, request, tenant, strings, err);
    default:
        return broker_handle_build(broker, request, tenant, strings, err);
    }
}

void broker_handle_template(struct broker *broker, struct request_packet *request,
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
    if (code == CAY_E_NOT_FOUND && shared_is_away(broker))
        code = fail_away(&error);
    if (code && request->channel >= 0)
        broker_refuse_with(request,
                           code == CAY_E_BUSY          ? 400
                           : code == CAY_E_UNAVAILABLE ? 503
                                                       : 0,
                           &error);
    else
        request_packet_done(request);
}
