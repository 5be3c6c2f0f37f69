/* SPDX-License-Identifier: Apache-2.0 */

/* Templates that tenants build, in the shared directory: a record with an archive for
 * each build that is ready, and records without one for tags that were set or removed
 * later. The newest record of a tag counts. */
#include <ctype.h>
#include <errno.h>
#include <nettle/sha2.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/shared.h"

static const char op[] = "serve.shared";

enum {
    BUILD_HEX = 32,
    TAG_LETTERS = 20,
    /* The record of a build has at most 16 KiB, 4 KiB of them for tags. */
    COMMANDS_MAX = 11 << 10,
    TAG_KEY_MAX = CATALOG_ID_MAX + CATALOG_TAG_MAX
};

/* The end of the year 9999: later times are none, and one more would overflow. */
#define TIME_MAX_MS INT64_C(253402300799999)

/* The lines of both between the format and the digest. */
enum { LINE_FORMAT, LINE_NAME, LINE_TAGS, LINE_NUMBERS, LINE_START, LINE_READY };
enum { LINE_TAG = LINE_TAGS, LINE_BUILD = LINE_NUMBERS, LINE_TIME = LINE_START };

#define NO_ARCHIVE "-" /* in place of the digest */

/* --- Names --- */

void shared_template_id(const struct broker *broker, const char *tenant, const char *name,
                        char ret_id[CATALOG_ID_MAX])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx hash;

    sha256_init(&hash);
    sha256_update(&hash, strlen(broker->shared.id) + 1,
                  (const uint8_t *)broker->shared.id);
    sha256_update(&hash, strlen(tenant) + 1, (const uint8_t *)tenant);
    sha256_update(&hash, strlen(name), (const uint8_t *)name);
    sha256_digest(&hash, sizeof digest, digest);
    for (size_t i = 0; i < 20; i++)
        ret_id[i] = digits[digest[i] % 32];
    ret_id[20] = '\0';
}

void shared_build_name(const char *build, char ret_name[SHARED_NAME_MAX])
{
    size_t len = 0;

    ret_name[len++] = 't';
    ret_name[len++] = '.';
    for (; *build && len + 1 < SHARED_NAME_MAX; build++)
        if (*build != '-')
            ret_name[len++] = *build;
    ret_name[len] = '\0';
}

/* "t.HEX" to the id of a build. */
static bool take_build_name(const char *name, char ret_id[CATALOG_BUILD_MAX])
{
    const char *hex = name + 2;

    if (strncmp(name, "t.", 2) != 0 || !shared_is_hex(hex, BUILD_HEX))
        return false;
    snprintf(ret_id, CATALOG_BUILD_MAX, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8,
             hex + 12, hex + 16, hex + 20);
    return true;
}

static bool is_build_id(const char *id)
{
    char name[SHARED_NAME_MAX], again[CATALOG_BUILD_MAX];

    shared_build_name(id, name);
    return take_build_name(name, again) && strcmp(again, id) == 0;
}

/* The template that has this name here, or would have it. */
static void find_template_id(struct broker *broker, const char *tenant, const char *name,
                             char ret_id[CATALOG_ID_MAX])
{
    struct catalog_template known;

    if (catalog_find_template(broker->registry, tenant, name, &known, NULL) == CAY_OK &&
        strcmp(known.name, name) == 0)
        memcpy(ret_id, known.id, CATALOG_ID_MAX);
    else
        shared_template_id(broker, tenant, name, ret_id);
}

/* What the row of a tag's record has instead of a digest. */
static void fill_tag_key(const char *template_id, const char *tag,
                         char ret_key[TAG_KEY_MAX])
{
    snprintf(ret_key, TAG_KEY_MAX, "%s/%s", template_id, tag);
}

/* --- Reading records --- */

/* Decimal numbers with one blank between them. */
static bool take_numbers(const char *text, int64_t *ret_numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *end;
        if (!isdigit((unsigned char)*text))
            return false;
        errno = 0;
        ret_numbers[i] = strtoll(text, &end, 10);
        if (errno || *end != (i + 1 < count ? ' ' : '\0'))
            return false;
        text = end + 1;
    }
    return true;
}

static bool is_time(int64_t ms)
{
    return ms > 0 && ms <= TIME_MAX_MS;
}

/* A line to the text that it was: "\n" is the end of a line. */
static bool unescape(const char *line, struct buf *text)
{
    for (; *line; line++) {
        bool is_escaped = *line == '\\';
        line += is_escaped;
        if (is_escaped && *line != '\\' && *line != 'n')
            return false;
        (void)buf_append(text, is_escaped && *line == 'n' ? "\n" : line, 1);
    }
    return buf_append(text, "", 0) && !text->failed;
}

static bool is_name(const char *tenant, const char *text)
{
    char name[CATALOG_NAME_MAX], tag[CATALOG_TAG_MAX];

    return catalog_parse(tenant, text, name, tag, NULL) == CAY_OK && !*tag &&
           strcmp(name, text) == 0;
}

/* The next tag of a list with blanks between them; NULL: invalid, or the end. */
static const char *next_tag(const char *at, char ret_tag[CATALOG_TAG_MAX])
{
    size_t len = strcspn(at, " ");

    if (len == 0 || len >= CATALOG_TAG_MAX)
        return NULL;
    snprintf(ret_tag, CATALOG_TAG_MAX, "%.*s", (int)len, at);
    return at + len + (at[len] == ' ' && at[len + 1]);
}

static bool are_tags(const char *list)
{
    char tag[CATALOG_TAG_MAX];

    while (*list) {
        list = next_tag(list, tag);
        if (!list || !catalog_is_tag(tag))
            return false;
    }
    return true;
}

static bool read_build(const char *tenant, const char *name, const char *const *lines,
                       struct catalog_build *build)
{
    enum { CPUS, MEMORY_MB, CREATED_MS, FINISHED_MS, NUMBERS };
    int64_t numbers[NUMBERS];

    if (!take_build_name(name, build->id) ||
        strcmp(lines[LINE_FORMAT], SHARED_FORMAT) != 0 ||
        !is_name(tenant, lines[LINE_NAME]) || !are_tags(lines[LINE_TAGS]) ||
        !shared_is_hex(lines[SHARED_DIGEST], 64))
        return false;
    if (!take_numbers(lines[LINE_NUMBERS], numbers, NUMBERS) ||
        !is_time(numbers[CREATED_MS]) || !is_time(numbers[FINISHED_MS]))
        return false;
    build->cpus = numbers[CPUS];
    build->memory_mb = numbers[MEMORY_MB];
    build->created_ms = numbers[CREATED_MS];
    build->finished_ms = numbers[FINISHED_MS];
    build->state = BUILD_READY;
    cay_copy_text(build->template.name, sizeof build->template.name, lines[LINE_NAME]);
    return buf_text(&build->tags, lines[LINE_TAGS]) &&
           unescape(lines[LINE_START], &build->start) &&
           unescape(lines[LINE_READY], &build->ready);
}

bool shared_add_build(struct broker *broker, const char *tenant, const char *name,
                      const char *const *lines)
{
    AUTO_CATALOG_BUILD build = CATALOG_BUILD_INIT, known = CATALOG_BUILD_INIT;
    char tag[CATALOG_TAG_MAX];

    if (!read_build(tenant, name, lines, &build))
        return false;
    if (catalog_find_commands(broker->registry, build.id, &known, NULL) != CAY_OK ||
        (*known.id && known.state == BUILD_BUILDING))
        return true; /* this node has written the record, and may remove it again */
    shared_template_id(broker, tenant, build.template.name, build.template.id);
    if (catalog_put_build(broker->registry, tenant, &build, NULL) != CAY_OK ||
        shared_note(broker, name, tenant, lines[SHARED_DIGEST], 0, false, NULL) != CAY_OK)
        return true; /* the next request does it */
    for (const char *at = lines[LINE_TAGS]; at && *at;) {
        at = next_tag(at, tag);
        (void)!catalog_put_tag(broker->registry, build.template.id, tag, build.id,
                               build.finished_ms, NULL);
    }
    return true;
}

bool shared_add_tag(struct broker *broker, const char *tenant, const char *name,
                    const char *const *lines)
{
    char id[CATALOG_ID_MAX], key[TAG_KEY_MAX];
    const char *build = lines[LINE_BUILD];
    int64_t ms;

    if (strlen(name) != 2 + TAG_LETTERS ||
        strcmp(lines[LINE_FORMAT], SHARED_FORMAT) != 0 ||
        !is_name(tenant, lines[LINE_NAME]) || !catalog_is_tag(lines[LINE_TAG]) ||
        (*build && !is_build_id(build)) || !take_numbers(lines[LINE_TIME], &ms, 1) ||
        !is_time(ms) || *lines[LINE_READY] ||
        strcmp(lines[SHARED_DIGEST], NO_ARCHIVE) != 0)
        return false;
    find_template_id(broker, tenant, lines[LINE_NAME], id);
    fill_tag_key(id, lines[LINE_TAG], key);
    if (catalog_put_tag(broker->registry, id, lines[LINE_TAG], build, ms, NULL) == CAY_OK)
        (void)!shared_note(broker, name, tenant, key, ms, false, NULL);
    return true;
}

/* --- Records that are gone --- */

static int buried_removed(struct broker *broker, struct broker_request *pending,
                          const struct reply_packet *reply, struct cay_error *err)
{
    (void)reply;
    return catalog_forget_buried(broker->registry, pending->build, err);
}

/* The files of a build that is in use stay until the server is started again. */
static void remove_buried(struct broker *broker, const char *build)
{
    struct broker_request *pending =
        broker_request_new(broker, OP_TEMPLATE_REMOVE, NULL, NULL);
    struct request request = {.count = 1};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    char source[CATALOG_SOURCE_MAX];

    if (!pending)
        return;
    pending->done = buried_removed;
    cay_copy_text(pending->build, sizeof pending->build, build);
    catalog_source(build, source);
    strings_add(&strings, source);
    broker_request_send_to(broker, pending, &request, &strings);
}

void shared_drop_files(struct broker *broker, const char *name)
{
    char id[CATALOG_BUILD_MAX];

    if (take_build_name(name, id))
        remove_buried(broker, id);
}

/* One number of a row; -1: there is no row. */
static int64_t find_number(struct broker *broker, const char *text, const char *name)
{
    sqlite3_stmt *statement = shared_prepare(broker, text, name, NULL, NULL, NULL);
    int64_t number = -1;

    if (statement && sqlite3_step(statement) == SQLITE_ROW)
        number = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    return number;
}

void shared_drop_build(struct broker *broker, const char *name)
{
    char id[CATALOG_BUILD_MAX];
    int64_t is_here =
        find_number(broker, "SELECT is_here FROM shared WHERE name = ?1", name);

    if (!take_build_name(name, id) || catalog_bury(broker->registry, id, NULL) != CAY_OK)
        return;
    shared_forget(broker, name);
    if (is_here == 1)
        remove_buried(broker, id);
    else
        (void)!catalog_forget_buried(broker->registry, id, NULL);
}

/* A newer record has changed the row of the tag before. */
void shared_drop_tag(struct broker *broker, const char *name)
{
    sqlite3_stmt *statement =
        shared_prepare(broker, "SELECT digest, flags FROM shared WHERE name = ?1", name,
                       NULL, NULL, NULL);
    char key[TAG_KEY_MAX] = "";
    int64_t ms = 0;

    if (statement && sqlite3_step(statement) == SQLITE_ROW) {
        cay_copy_text(key, sizeof key, (const char *)sqlite3_column_text(statement, 0));
        ms = sqlite3_column_int64(statement, 1);
    }
    (void)sqlite3_finalize(statement);
    char *slash = strchr(key, '/');
    if (slash) {
        *slash = '\0';
        (void)!catalog_drop_tag(broker->registry, key, slash + 1, ms, NULL);
    }
    shared_forget(broker, name);
}

/* --- Builds --- */

bool shared_fetch_build(struct broker *broker, struct request_packet *request,
                        const char *tenant, const struct catalog_build *build)
{
    char name[SHARED_NAME_MAX], source[CATALOG_SOURCE_MAX];

    shared_build_name(build->id, name);
    catalog_source(build->id, source);
    return shared_fetch(broker, request, tenant, name, source);
}

static void escape(const struct buf *text, struct buf *line)
{
    for (size_t i = 0; i < text->len; i++) {
        char byte = text->data[i];
        if (byte == '\n' || byte == '\\')
            (void)buf_append(line, "\\", 1);
        (void)buf_append(line, byte == '\n' ? "n" : &byte, 1);
    }
    (void)buf_append(line, "", 1);
}

int shared_check_commands(const struct broker *broker, const struct catalog_build *build,
                          struct cay_error *err)
{
    AUTO_BUF lines = {.max = 4 * CATALOG_COMMAND_MAX + 8};

    if (!shared_is_on(broker))
        return CAY_OK;
    escape(&build->start, &lines);
    escape(&build->ready, &lines);
    return lines.len <= COMMANDS_MAX && !lines.failed
               ? CAY_OK
               : cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                          "the start and ready commands are too long for --shared",
                          "the limit is %d bytes for both: copy a script into the "
                          "template and run that",
                          COMMANDS_MAX);
}

static void add_build_lines(const struct catalog_build *build, struct buf *strings)
{
    char numbers[128];

    snprintf(numbers, sizeof numbers, "%lld %lld %lld %lld", (long long)build->cpus,
             (long long)build->memory_mb, (long long)build->created_ms,
             (long long)build->finished_ms);
    strings_add(strings, SHARED_FORMAT);
    strings_add(strings, build->template.name);
    strings_add(strings, build->tags.len ? build->tags.data : "");
    strings_add(strings, numbers);
    escape(&build->start, strings);
    escape(&build->ready, strings);
}

int shared_publish_build(
    struct broker *broker, const char *tenant, const struct catalog_build *build,
    int (*done)(struct broker *broker, struct broker_request *pending,
                const struct reply_packet *reply, struct cay_error *err),
    void (*failed)(struct broker *broker, struct broker_request *pending,
                   const struct cay_error *error),
    struct cay_error *err)
{
    struct broker_request *next = broker_request_new(broker, OP_SHARED_PUT, NULL, NULL);
    struct request put = {.count = SHARED_LINES + SHARED_RECORD_LINES - 1};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    char name[SHARED_NAME_MAX], source[CATALOG_SOURCE_MAX];

    if (!next)
        return cay_fail_memory(err, op);
    shared_build_name(build->id, name);
    catalog_source(build->id, source);
    strings_add(&strings, broker->shared.id);
    strings_add(&strings, tenant);
    strings_add(&strings, name);
    strings_add(&strings, source);
    add_build_lines(build, &strings);
    next->done = done;
    next->failed = failed;
    next->number = build->finished_ms;
    cay_copy_text(next->row.tenant, TENANT_MAX, tenant);
    cay_copy_text(next->template_id, sizeof next->template_id, build->template.id);
    cay_copy_text(next->build, sizeof next->build, build->id);
    broker_request_send_to(broker, next, &put, &strings);
    return CAY_OK;
}

/* --- Tags --- */

int shared_tag_time(struct broker *broker, const char *template_id, const char *tag,
                    int64_t *ms, struct cay_error *err)
{
    AUTO_CATALOG_BUILD known = CATALOG_BUILD_INIT;
    int64_t now_ms = clock_since_1970_ms();

    TRY(catalog_find_tag(broker->registry, template_id, tag, &known, err));
    *ms = *ms > now_ms ? *ms : now_ms;
    *ms = *ms > known.created_ms ? *ms : known.created_ms + 1;
    return CAY_OK;
}

/* Adds the first text of each row that is found, and counts them. */
static uint32_t add_names(struct broker *broker, const char *text, const char *one,
                          const char *two, struct buf *strings)
{
    sqlite3_stmt *statement = shared_prepare(broker, text, one, two, NULL, NULL);
    uint32_t count = 0;

    while (statement && sqlite3_step(statement) == SQLITE_ROW) {
        strings_add(strings, (const char *)sqlite3_column_text(statement, 0));
        count++;
    }
    (void)sqlite3_finalize(statement);
    return count;
}

/* A name and the lines; the name is "" if a tag needs no record, since no build had it
 * from its start. */
static int add_tag_record(struct broker *broker, const struct catalog_template *template,
                          const char *build, const char *tag, int64_t ms,
                          struct buf *records, struct cay_error *err)
{
    char name[SHARED_NAME_MAX] = "", random[SNAPSHOT_ID_MAX], time[32];
    bool is_needed = true;

    if (!*build)
        TRY(catalog_lists_tag(broker->registry, template->id, tag, &is_needed, err));
    TRY(snapshot_draw_id(random, err));
    if (is_needed)
        snprintf(name, sizeof name, "g.%.*s", TAG_LETTERS, random);
    snprintf(time, sizeof time, "%lld", (long long)ms);
    strings_add(records, name);
    strings_add(records, SHARED_FORMAT);
    strings_add(records, template->name);
    strings_add(records, tag);
    strings_add(records, build);
    strings_add(records, time);
    strings_add(records, "");
    strings_add(records, NO_ARCHIVE);
    return CAY_OK;
}

static const char *next_string(const char *at)
{
    return at + strlen(at) + 1;
}

/* The records to write, and the names of those that they replace. */
static void send_tags(struct broker *broker, struct broker_request *pending)
{
    static const char same[] =
        "SELECT name FROM shared WHERE tenant = ?1 AND digest = ?2";
    struct request request = {.count = 2};
    const struct buf *records = &pending->env;
    AUTO_BUF strings = {.max = CHANNEL_STRINGS};
    char key[TAG_KEY_MAX];

    strings_add(&strings, broker->shared.id);
    strings_add(&strings, pending->row.tenant);
    for (int is_old = 0; is_old < 2; is_old++)
        for (const char *at = records->data; at < records->data + records->len;) {
            bool is_written = *at && !is_old;
            const char *tag = NULL;
            for (int i = -1; i < SHARED_RECORD_LINES; i++, at = next_string(at)) {
                tag = i == LINE_TAG ? at : tag;
                if (is_written)
                    strings_add(&strings, at);
            }
            request.numbers[SHARED_NEW] += is_written;
            request.count += is_written ? 1 + SHARED_RECORD_LINES : 0;
            fill_tag_key(pending->template_id, tag, key);
            if (is_old)
                request.count +=
                    add_names(broker, same, pending->row.tenant, key, &strings);
        }
    broker_request_send_to(broker, pending, &request, &strings);
}

int shared_change_tags(struct broker *broker, struct request_packet *request,
                       const char *tenant, const struct catalog_template *template,
                       const char *build, const char *const *tags, size_t count,
                       int (*done)(struct broker *broker, struct broker_request *pending,
                                   const struct reply_packet *reply,
                                   struct cay_error *err),
                       struct cay_error *err)
{
    AUTO_BUF records = {.max = CHANNEL_STRINGS};
    int64_t ms = 0;

    for (size_t i = 0; i < count; i++)
        TRY(shared_tag_time(broker, template->id, tags[i], &ms, err));
    for (size_t i = 0; i < count; i++)
        TRY(add_tag_record(broker, template, build, tags[i], ms, &records, err));
    if (records.failed)
        return cay_fail_memory(err, op);
    struct broker_request *pending =
        broker_request_new(broker, OP_SHARED_RECORDS, NULL, request);
    if (!pending)
        return CAY_OK; /* the client was refused */
    buf_done(&pending->env);
    pending->env = records;
    records = (struct buf){.max = CHANNEL_STRINGS};
    pending->done = done;
    cay_copy_text(pending->row.tenant, TENANT_MAX, tenant);
    cay_copy_text(pending->template_id, sizeof pending->template_id, template->id);
    cay_copy_text(pending->build, sizeof pending->build, build);
    send_tags(broker, pending);
    return CAY_OK;
}

int shared_apply_tags(struct broker *broker, const struct broker_request *pending,
                      struct buf *ret_tags, struct cay_error *err)
{
    const struct buf *records = &pending->env;
    const char *lines[SHARED_RECORD_LINES];
    char key[TAG_KEY_MAX];

    for (const char *at = records->data; at < records->data + records->len;) {
        const char *name = at;
        at = next_string(at);
        for (int i = 0; i < SHARED_RECORD_LINES; i++, at = next_string(at))
            lines[i] = at;
        fill_tag_key(pending->template_id, lines[LINE_TAG], key);
        TRY(shared_run(broker, "DELETE FROM shared WHERE tenant = ?1 AND digest = ?2",
                       pending->row.tenant, key, NULL, err));
        (void)buf_format(ret_tags, "%s%s", ret_tags->len ? " " : "", lines[LINE_TAG]);
        if (*name)
            (void)shared_add_tag(broker, pending->row.tenant, name, lines);
        else
            (void)!catalog_remove_tag(broker->registry, pending->template_id,
                                      lines[LINE_TAG], NULL);
    }
    return CAY_OK;
}

/* --- Removal --- */

static uint32_t add_build_records(struct broker *broker, const char *builds,
                                  struct buf *strings)
{
    static const char known[] = "SELECT name FROM shared WHERE name = ?1";
    char id[CATALOG_BUILD_MAX], name[SHARED_NAME_MAX];
    uint32_t count = 0;

    for (; *builds; builds += strcspn(builds, "\n"), builds += *builds == '\n') {
        snprintf(id, sizeof id, "%.*s", (int)strcspn(builds, "\n"), builds);
        shared_build_name(id, name);
        count += add_names(broker, known, name, NULL, strings);
    }
    return count;
}

void shared_send_removal(struct broker *broker, struct broker_request *pending,
                         bool with_tags, const struct buf *sources, uint32_t source_count,
                         const char *builds)
{
    static const char all[] =
        "SELECT name FROM shared WHERE substr(digest, 1, length(?1) + 1) = ?1 || '/'";
    static const char replaced[] =
        "SELECT name FROM shared s WHERE substr(digest, 1, length(?1) + 1) = ?1 || '/' "
        "AND NOT EXISTS (SELECT 1 FROM tags WHERE template = ?1 AND "
        "tag = substr(s.digest, length(?1) + 2) AND created_ms = s.flags)";
    struct request request = {.count = 2 + source_count,
                              .numbers = {[SHARED_SOURCES] = source_count}};
    const char *template_id = pending->template_id;
    AUTO_BUF strings = {.max = CHANNEL_STRINGS};

    strings_add(&strings, broker->shared.id);
    strings_add(&strings, pending->row.tenant);
    (void)buf_append(&strings, sources->data, sources->len);
    request.count += add_build_records(broker, builds, &strings);
    request.count +=
        add_names(broker, with_tags ? all : replaced, template_id, NULL, &strings);
    broker_request_send_to(broker, pending, &request, &strings);
}

void shared_forget_template(struct broker *broker, const char *template_id)
{
    (void)!shared_run(broker,
                      "DELETE FROM shared WHERE name IN (SELECT " SHARED_BUILD_RECORD
                      " FROM builds WHERE template = ?1) OR "
                      "substr(digest, 1, length(?1) + 1) = ?1 || '/'",
                      template_id, NULL, NULL, NULL);
}

/* --- Files that are gone --- */

static bool add_id(const struct catalog_build *build, void *cookie)
{
    strings_add(cookie, build->id);
    return true;
}

static const char *first(const struct buf *strings)
{
    return strings->len ? strings->data : NULL;
}

static const char *next(const struct buf *strings, const char *at)
{
    at = next_string(at);
    return at < strings->data + strings->len ? at : NULL;
}

void shared_find_lost(struct broker *broker)
{
    static const char here[] =
        "SELECT name FROM shared WHERE is_here = 1 AND substr(name, 1, 2) = 't.'";
    AUTO_BUF names = {.max = CHANNEL_STRINGS};
    char id[CATALOG_BUILD_MAX], source[CATALOG_SOURCE_MAX];
    struct cay_template_info info;

    (void)add_names(broker, here, NULL, NULL, &names);
    for (const char *at = first(&names); at; at = next(&names, at)) {
        if (!take_build_name(at, id))
            continue;
        char *config = NULL;
        catalog_source(id, source);
        int code = cay_template_inspect(source, &info, &config, NULL);
        cay_free(config);
        if (code == CAY_E_NOT_FOUND)
            (void)!shared_run(broker, "UPDATE shared SET is_here = 0 WHERE name = ?1", at,
                              NULL, NULL, NULL);
    }
}

void shared_reconcile_templates(struct broker *broker)
{
    AUTO_BUF ids = {.max = CHANNEL_STRINGS};

    if (catalog_visit_buried(broker->registry, add_id, &ids, NULL) == CAY_OK)
        for (const char *at = first(&ids); at; at = next(&ids, at))
            remove_buried(broker, at);
    shared_find_lost(broker);
}
