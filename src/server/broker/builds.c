/* SPDX-License-Identifier: Apache-2.0 */

/* Builds of templates, and the files that clients upload for them.  A keeper without a
 * sandbox runs a build; the broker records what it reports. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "server/broker/broker.h"
#include "server/broker/shared.h"
#include "sys/state-home.h"

static const char op[] = "server.build";

enum {
    BUILDS_RUNNING = 4, /* of a tenant */
    LINK_S = 3600,      /* how long a link for an upload is valid */
    HASH_MAX = 64       /* of 128 bytes that a token covers */
};

/* --- Uploads --- */

/* The directory of a tenant's uploads, in HOME/uploads. */
static void fill_directory(const char *tenant, char ret_name[32])
{
    snprintf(ret_name, 32, "%016llx",
             (unsigned long long)hash_stable(HASH_STABLE, tenant, strlen(tenant)));
}

static bool is_hash(const char *hash)
{
    size_t len = strspn(hash, "0123456789abcdefghijklmnopqrstuvwxyz");

    return len > 0 && len <= HASH_MAX && !hash[len];
}

enum { UPLOAD_MAX_ID = HASH_MAX + 64 };

static void fill_upload(const char *directory, const char *hash,
                        char ret_id[UPLOAD_MAX_ID])
{
    snprintf(ret_id, UPLOAD_MAX_ID, "%.16s/%.64s", directory, hash);
}

static int link_upload(struct broker *broker, const struct request_packet *request,
                       const char *tenant, const char *const *strings,
                       struct cay_error *err)
{
    struct catalog_template template;
    struct reply reply = {.kind = REPLY_TEXT, .count = 3};
    AUTO_BUF text = {.max = CHANNEL_PACKET};
    char directory[32], token[TOKEN_MAX], path[PATH_MAX + HASH_MAX + 64];
    char id[UPLOAD_MAX_ID];
    int64_t expires = clock_since_1970_ms() / 1000 + LINK_S;

    TRY(catalog_find_template(broker->registry, tenant, strings[0], &template, err));
    if (!is_hash(strings[1]))
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "invalid hash of files",
                        "use up to 64 lower-case letters and digits");
    fill_directory(tenant, directory);
    snprintf(path, sizeof path, "%s/" KEEPER_UPLOADS "/%s/%s", broker->options->home,
             directory, strings[1]);
    fill_upload(directory, strings[1], id);
    secrets_token(&broker->secrets, TOKEN_UPLOAD, id, (uint32_t)expires, token);
    reply.numbers[UPLOAD_PRESENT] = access(path, F_OK) == 0;
    reply.numbers[UPLOAD_LINK_EXPIRES] = expires;
    strings_add(&text, directory);
    strings_add(&text, token);
    strings_add(&text, broker->options->node);
    (void)reply_send(request->channel, &reply, &text, -1);
    return CAY_OK;
}

/* To a keeper of its own, which receives the file. */
void broker_upload(struct broker *broker, struct request_packet *request)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    int64_t expires = request->head.numbers[UPLOAD_EXPIRES];
    char id[UPLOAD_MAX_ID];

    if (!strings || !is_hash(strings[0]) || strlen(strings[0]) != 16 ||
        !is_hash(strings[1])) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    fill_upload(strings[0], strings[1], id);
    if (!secrets_is_token(&broker->secrets, TOKEN_UPLOAD, id, (uint32_t)expires,
                          request->head.credential) ||
        expires < clock_since_1970_ms() / 1000) {
        broker_refuse(request, 403, CAY_E_DENIED, "the link is invalid or has expired",
                      "request another link for the upload");
        return;
    }
    struct keeper_handle *keeper = keepers_start(broker, "");
    int error = keeper ? keepers_forward(keeper, request) : -EAGAIN;
    if (error && keeper)
        keepers_drop(broker, keeper);
    if (error)
        broker_refuse(request, 503, CAY_E_BUSY, "the server is overloaded",
                      "try again in a moment");
    else
        request_packet_done(request);
}

/* --- Removal --- */

struct sources {
    struct buf *names, *builds; /* a line for each build */
    uint32_t count;
    bool is_building;
    const char *keep; /* tags of the template, a line for each build; NULL: none */
};

static bool add_source(const struct catalog_build *build, void *cookie)
{
    struct sources *sources = cookie;
    char name[CATALOG_SOURCE_MAX];

    sources->is_building |= build->state == BUILD_BUILDING;
    if (build->state == BUILD_READY &&
        !(sources->keep && strstr(sources->keep, build->id))) {
        catalog_source(build->id, name);
        strings_add(sources->names, name);
        (void)buf_format(sources->builds, "%s\n", build->id);
        sources->count++;
    }
    return true;
}

static int removed(struct broker *broker, struct broker_request *pending,
                   const struct reply_packet *reply, struct cay_error *err)
{
    (void)reply;
    if (pending->client < 0) /* only builds without tags */
        return CAY_OK;
    shared_forget_template(broker, pending->template_id);
    TRY(catalog_remove(broker->registry, pending->template_id, err));
    (void)reply_send_done(pending->client);
    return CAY_OK;
}

/* Some of the files may be gone. */
static void removal_failed(struct broker *broker, struct broker_request *pending,
                           const struct cay_error *error)
{
    (void)pending;
    (void)error;
    shared_find_lost(broker);
}

static enum op removal_op(const struct broker *broker)
{
    return shared_is_on(broker) ? OP_SHARED_RECORDS : OP_TEMPLATE_REMOVE;
}

static void send_removal(struct broker *broker, struct sources *sources,
                         const char *tenant, const char *template_id,
                         struct broker_request *pending)
{
    struct request request = {.count = sources->count};

    pending->done = removed;
    cay_copy_text(pending->row.tenant, TENANT_MAX, tenant);
    cay_copy_text(pending->template_id, sizeof pending->template_id, template_id);
    if (pending->op == OP_SHARED_RECORDS) {
        pending->failed = removal_failed;
        shared_send_removal(broker, pending, pending->client >= 0, sources->names,
                            sources->count,
                            sources->builds->len ? sources->builds->data : "");
        return;
    }
    broker_request_send_to(broker, pending, &request, sources->names);
}

static bool stop(const struct record_row *row, void *cookie)
{
    (void)row;
    *(bool *)cookie = true;
    return false;
}

static int remove_template(struct broker *broker, struct request_packet *request,
                           const char *tenant, const char *text, struct cay_error *err)
{
    struct catalog_template template;
    AUTO_BUF names = {.max = CHANNEL_STRINGS}, builds = {.max = CHANNEL_STRINGS};
    struct sources sources = {.names = &names, .builds = &builds};
    bool is_used = false;

    int code = broker_remove_snapshot(broker, request, tenant, text, err);
    if (code != CAY_E_NOT_FOUND)
        return code;
    TRY(catalog_find_template(broker->registry, tenant, text, &template, err));
    const struct registry_filter filter = {
        .tenant = tenant, .states = RECORD_LIVING, .template_name = template.id};
    TRY(registry_visit(broker->registry, &filter, stop, &is_used, err));
    TRY(catalog_visit_builds(broker->registry, template.id, add_source, &sources, err));
    if (is_used || sources.is_building)
        return cay_fail(err, CAY_E_BUSY, 0, op, NULL,
                        is_used ? "a sandbox uses the template"
                                : "a build of the template is running",
                        "try again when it has ended");
    struct broker_request *pending =
        broker_request_new(broker, removal_op(broker), NULL, request);
    if (!pending)
        return cay_fail_memory(err, op);
    if (sources.count || shared_is_on(broker)) {
        send_removal(broker, &sources, tenant, template.id, pending);
        return CAY_OK;
    }
    cay_copy_text(pending->template_id, sizeof pending->template_id, template.id);
    struct cay_error error = {0};
    if (removed(broker, pending, NULL, &error) != CAY_OK)
        broker_request_fail(pending, 503, &error);
    broker_request_free(broker, pending);
    return CAY_OK;
}

static bool add_build(const struct catalog_build *build, void *cookie)
{
    (void)buf_format(cookie, "%s\n", build->id);
    return true;
}

/* No name leads to a build without tags any more. */
static void remove_untagged(struct broker *broker, const char *tenant,
                            const char *template_id)
{
    AUTO_BUF names = {.max = CHANNEL_STRINGS}, builds = {.max = CHANNEL_STRINGS};
    AUTO_BUF tagged = {.max = 1 << 20};
    struct sources sources = {.names = &names, .builds = &builds};

    (void)buf_text(&tagged, "\n");
    if (catalog_visit_tags(broker->registry, template_id, add_build, &tagged, NULL) ||
        tagged.failed)
        return;
    sources.keep = tagged.data;
    (void)!catalog_visit_builds(broker->registry, template_id, add_source, &sources,
                                NULL);
    struct broker_request *pending =
        sources.count || shared_is_on(broker)
            ? broker_request_new(broker, removal_op(broker), NULL, NULL)
            : NULL;
    if (pending)
        send_removal(broker, &sources, tenant, template_id, pending);
}

/* --- The end of a build --- */

static void finish(struct broker *broker, struct broker_request *pending,
                   enum build_state state, const char *step, const char *reason)
{
    AUTO_CATALOG_BUILD build = CATALOG_BUILD_INIT;
    struct cay_error error = {0};

    int code = catalog_find_build(broker->registry, pending->row.tenant,
                                  pending->template_id, pending->build, &build, &error);
    if (!code) {
        build.state = state;
        build.updated_ms = build.finished_ms =
            pending->op == OP_SHARED_PUT ? pending->number : clock_since_1970_ms();
        cay_copy_text(build.step, sizeof build.step, step);
        cay_copy_text(build.reason, sizeof build.reason, reason);
        code = catalog_update(broker->registry, &build, &error);
    }
    if (code && broker->log_error)
        broker->log_error("the result of a build cannot be recorded", &error);
    if (!code && state == BUILD_READY)
        remove_untagged(broker, pending->row.tenant, pending->template_id);
}

/* --- The shared directory --- */

/* Nothing of it stays; an archive without a record is removed by the next one. */
static void fail_publish(struct broker *broker, struct broker_request *pending,
                         const struct cay_error *error)
{
    AUTO_BUF name = {.max = CATALOG_SOURCE_MAX}, builds = {.max = 1};
    struct sources sources = {.names = &name, .builds = &builds, .count = 1};
    struct broker_request *next =
        broker_request_new(broker, OP_TEMPLATE_REMOVE, NULL, NULL);
    char source[CATALOG_SOURCE_MAX], reason[2 * CATALOG_REASON_MAX];

    if (broker->log_error)
        broker->log_error("a template cannot be shared", error);
    snprintf(reason, sizeof reason, "%s: %s", error->message, error->hint);
    finish(broker, pending, BUILD_ERROR, "finalize", reason);
    catalog_source(pending->build, source);
    strings_add(&name, source);
    if (next)
        send_removal(broker, &sources, pending->row.tenant, pending->template_id, next);
}

/* The other nodes find it now. */
static int published(struct broker *broker, struct broker_request *pending,
                     const struct reply_packet *reply, struct cay_error *err)
{
    const char *digest = reply_next(reply, NULL);
    char name[SHARED_NAME_MAX];

    shared_build_name(pending->build, name);
    int code = shared_note(broker, name, pending->row.tenant, digest ? digest : "", 0,
                           true, err);
    if (code)
        fail_publish(broker, pending, err);
    else
        finish(broker, pending, BUILD_READY, "", "");
    return CAY_OK;
}

/* The build is ready when other nodes can have it. */
static int publish(struct broker *broker, struct broker_request *pending,
                   struct cay_error *err)
{
    AUTO_CATALOG_BUILD build = CATALOG_BUILD_INIT;
    char tag[CATALOG_TAG_MAX];

    TRY(catalog_find_build(broker->registry, pending->row.tenant, pending->template_id,
                           pending->build, &build, err));
    build.finished_ms = clock_since_1970_ms();
    for (const char *at = build.tags.len ? build.tags.data : ""; *at;) {
        size_t len = strcspn(at, " ");
        snprintf(tag, sizeof tag, "%.*s", (int)len, at);
        TRY(shared_tag_time(broker, build.template.id, tag, &build.finished_ms, err));
        at += len + (at[len] == ' ');
    }
    return shared_publish_build(broker, pending->row.tenant, &build, published,
                                fail_publish, err);
}

static int built(struct broker *broker, struct broker_request *pending,
                 const struct reply_packet *reply, struct cay_error *err)
{
    const char *step = reply_next(reply, NULL);
    const char *reason = step ? reply_next(reply, step) : NULL;

    if (reply->head.kind == REPLY_TEXT && reason) {
        finish(broker, pending, BUILD_ERROR, step, reason);
    } else if (shared_is_on(broker)) {
        if (publish(broker, pending, err) != CAY_OK)
            fail_publish(broker, pending, err);
    } else

        finish(broker, pending, BUILD_READY, "", "");
    return CAY_OK;
}

static void failed(struct broker *broker, struct broker_request *pending,
                   const struct cay_error *error)
{
    (void)error;
    finish(broker, pending, BUILD_ERROR, "finalize",
           "the process of the build was killed; build the template again");
}

/* --- The start --- */

/* "[HOST[:PORT]/]NAME[:TAG][@DIGEST]", and not a file or another tenant's build. */
static bool is_image(const char *image)
{
    size_t len = strlen(image);

    return len > 0 && len < 256 && strchr("/@:.-", image[0]) == NULL &&
           strspn(image, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                         "._/:@-") == len &&
           !strstr(image, ":/") && !strstr(image, "..") &&
           strncmp(image, CATALOG_PREFIX, strlen(CATALOG_PREFIX)) != 0;
}

/* The source as the keeper gets it. */
static int find_source(struct broker *broker, struct request_packet *request,
                       const char *tenant, uint32_t *flags, const char *text,
                       struct buf *source, struct cay_error *err)
{
    AUTO_BROKER_TEMPLATE template = BROKER_TEMPLATE_INIT;

    if (!(*flags & BUILD_FROM_TEMPLATE)) {
        bool is_base = strcmp(text, "e2bdev/base") == 0 ||
                       strncmp(text, "e2bdev/base:", strlen("e2bdev/base:")) == 0;
        strings_add(source, is_base ? BROKER_BASE : text);
        return is_image(text)
                   ? CAY_OK
                   : cay_fail(err, CAY_E_INVALID, 0, op, NULL, "invalid name of an image",
                              "use [HOST/]NAME[:TAG]");
    }
    TRY(broker_resolve_template(broker, tenant, text, &template, err));
    if (template.is_own && shared_fetch_build(broker, request, tenant, &template.build))
        return CAY_OK; /* the request waits, or was refused */
    *flags |= template.is_own ? BUILD_IS_OWN : 0;
    strings_add(source, strcmp(template.source, KEEPER_TEMPLATE) == 0 ? BROKER_BASE
                                                                      : template.source);
    return CAY_OK;
}

static int check_build(struct broker *broker, const char *tenant,
                       const struct catalog_build *build, struct cay_error *err)
{
    int64_t templates, builds;

    if (build->state != BUILD_WAITING)
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL,
                        "the build has been started before",
                        "request another build: POST /v3/templates");
    TRY(catalog_count(broker->registry, tenant, &templates, &builds, err));
    if (builds >= BUILDS_RUNNING)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL, "too many builds are running",
                        "the limit is %d: try again when one has ended", BUILDS_RUNNING);
    return CAY_OK;
}

/* The log exists before the client is told that the build runs. */
static int make_log(const struct broker *broker, const char *build, struct cay_error *err)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/" KEEPER_BUILDS, broker->options->home);
    int make = state_home_make(AT_FDCWD, path);
    if (make && make != -EEXIST)
        return cay_fail_errno(err, -make, op, "builds");
    snprintf(path, sizeof path, "%s/" KEEPER_BUILDS "/%s.log", broker->options->home,
             build);
    AUTO_FD log = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return log < 0 ? cay_fail_errno(err, errno, op, "the log") : CAY_OK;
}

static void send_build(struct broker *broker, const struct request *head,
                       const char *tenant, const struct catalog_build *build,
                       const char *source, const char *const *strings)
{
    struct broker_request *pending = broker_request_new(broker, OP_BUILD, NULL, NULL);
    struct request request = {.flags = head->flags, .count = head->count + 1};
    AUTO_BUF sent = {.max = CHANNEL_STRINGS};
    char name[CATALOG_SOURCE_MAX], directory[32];

    if (!pending)
        return;
    pending->done = built;
    pending->failed = failed;
    cay_copy_text(pending->row.tenant, TENANT_MAX, tenant);
    cay_copy_text(pending->template_id, sizeof pending->template_id, build->template.id);
    cay_copy_text(pending->build, sizeof pending->build, build->id);
    catalog_source(build->id, name);
    fill_directory(tenant, directory);
    strings_add(&sent, name);
    strings_add(&sent, build->id);
    strings_add(&sent, source);
    for (uint32_t i = BUILD_START; i < head->count; i++)
        strings_add(&sent, strings[i]);
    strings_add(&sent, directory);
    broker_request_send_to(broker, pending, &request, &sent);
}

static int start(struct broker *broker, struct request_packet *request,
                 const char *tenant, const char *const *strings, struct cay_error *err)
{
    AUTO_CATALOG_BUILD build = CATALOG_BUILD_INIT;
    AUTO_BUF source = {.max = 512};
    struct request head = request->head;

    if (head.count < BUILD_STEPS)
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "the request is malformed",
                        "restart the server; report a bug if it happens again");
    TRY(catalog_find_build(broker->registry, tenant, strings[BUILD_TEMPLATE],
                           strings[BUILD_ID], &build, err));
    TRY(check_build(broker, tenant, &build, err));
    head.flags &= BUILD_FORCED | BUILD_FROM_TEMPLATE;
    TRY(find_source(broker, request, tenant, &head.flags, strings[BUILD_SOURCE], &source,
                    err));
    if (request->channel < 0)
        return CAY_OK;
    build.start.len = build.ready.len = 0;
    if (!buf_text(&build.start, strings[BUILD_START]) ||
        !buf_text(&build.ready, strings[BUILD_READY_COMMAND]))
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "the start or ready command is too long", "the limit is %d bytes",
                        CATALOG_COMMAND_MAX);
    TRY(shared_check_commands(broker, &build, err));
    TRY(make_log(broker, build.id, err));
    build.state = BUILD_BUILDING;
    build.updated_ms = clock_since_1970_ms();
    TRY(catalog_update(broker->registry, &build, err));
    (void)reply_send_done(request->channel);
    send_build(broker, &head, tenant, &build, source.data, strings);
    return CAY_OK;
}

static int report(struct broker *broker, const struct request_packet *request,
                  const char *tenant, const char *const *strings, struct cay_error *err)
{
    AUTO_CATALOG_BUILD build = CATALOG_BUILD_INIT;
    char path[PATH_MAX + 64];

    TRY(catalog_find_build(broker->registry, tenant, strings[0], strings[1], &build,
                           err));
    snprintf(path, sizeof path, "%s/" KEEPER_BUILDS "/%s.log", broker->options->home,
             build.id);
    AUTO_FD log = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    (void)broker_reply_build(request->channel, &build, log);
    return CAY_OK;
}

int broker_handle_build(struct broker *broker, struct request_packet *request,
                        const char *tenant, const char *const *strings,
                        struct cay_error *err)
{
    switch (request->head.op) {
    case OP_BUILD:
        return start(broker, request, tenant, strings, err);
    case OP_BUILD_STATUS:
        return report(broker, request, tenant, strings, err);
    case OP_UPLOAD_LINK:
        return link_upload(broker, request, tenant, strings, err);
    default:
        return remove_template(broker, request, tenant, strings[0], err);
    }
}
