/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/catalog.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"

static const char op[] = "server.template";

static const char tables[] =
    "CREATE TABLE IF NOT EXISTS templates (id TEXT PRIMARY KEY, tenant TEXT NOT NULL,"
    "  name TEXT NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,"
    "  spawned_ms INTEGER NOT NULL, spawns INTEGER NOT NULL,"
    "  UNIQUE (tenant, name)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS builds (id TEXT PRIMARY KEY, template TEXT NOT NULL,"
    "  state INTEGER NOT NULL, cpus INTEGER NOT NULL, memory_mb INTEGER NOT NULL,"
    "  created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,"
    "  finished_ms INTEGER NOT NULL, step TEXT NOT NULL, reason TEXT NOT NULL,"
    "  tags TEXT NOT NULL, start TEXT NOT NULL, ready TEXT NOT NULL)"
    "  STRICT, WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS builds_by_template ON builds (template, created_ms);"
    "CREATE TABLE IF NOT EXISTS tags (template TEXT NOT NULL, tag TEXT NOT NULL,"
    "  build TEXT NOT NULL, created_ms INTEGER NOT NULL, PRIMARY KEY (template, tag))"
    "  STRICT, WITHOUT ROWID";

#define COLUMNS                                                                          \
    "b.id, b.state, b.cpus, b.memory_mb, b.created_ms, b.updated_ms, b.finished_ms, "    \
    "b.step, b.reason, b.tags, b.start, b.ready, t.id, t.name, t.created_ms, "           \
    "t.updated_ms, t.spawned_ms, t.spawns, "                                             \
    "(SELECT count(*) FROM builds WHERE template = t.id) "
#define NO_TEMPLATE                                                                      \
    "b.id, b.state, b.cpus, b.memory_mb, b.created_ms, b.updated_ms, b.finished_ms, "    \
    "b.step, b.reason, b.tags, b.start, b.ready, '', '', 0, 0, 0, 0, 0 "
#define FROM_BOTH "FROM templates t JOIN builds b ON b.template = t.id "

/* --- Statements --- */

/* Runs a statement; `types` has a letter for each parameter: t(ext) or i(nteger). */
static int run(struct registry *registry, const char *text, catalog_visit *visit,
               void *cookie, struct cay_error *err, const char *types, ...);

static void copy(sqlite3_stmt *statement, int column, char *field, size_t room)
{
    const unsigned char *text = sqlite3_column_text(statement, column);

    cay_copy_text(field, room, text ? (const char *)text : "");
}

static void copy_buf(sqlite3_stmt *statement, int column, struct buf *field)
{
    const unsigned char *text = sqlite3_column_text(statement, column);

    field->len = 0;
    (void)buf_text(field, text ? (const char *)text : "");
}

static void read_row(sqlite3_stmt *statement, struct catalog_build *build)
{
    struct catalog_template *template = &build->template;
    int at = 0;

    copy(statement, at++, build->id, sizeof build->id);
    build->state = (enum build_state)sqlite3_column_int(statement, at++);
    build->cpus = sqlite3_column_int64(statement, at++);
    build->memory_mb = sqlite3_column_int64(statement, at++);
    build->created_ms = sqlite3_column_int64(statement, at++);
    build->updated_ms = sqlite3_column_int64(statement, at++);
    build->finished_ms = sqlite3_column_int64(statement, at++);
    copy(statement, at++, build->step, sizeof build->step);
    copy(statement, at++, build->reason, sizeof build->reason);
    copy_buf(statement, at++, &build->tags);
    copy_buf(statement, at++, &build->start);
    copy_buf(statement, at++, &build->ready);
    copy(statement, at++, template->id, sizeof template->id);
    copy(statement, at++, template->name, sizeof template->name);
    template->created_ms = sqlite3_column_int64(statement, at++);
    template->updated_ms = sqlite3_column_int64(statement, at++);
    template->spawned_ms = sqlite3_column_int64(statement, at++);
    template->spawn_count = sqlite3_column_int64(statement, at++);
    template->build_count = sqlite3_column_int64(statement, at++);
}

static void bind(sqlite3_stmt *statement, const char *types, va_list values)
{
    for (int i = 0; types[i]; i++)
        if (types[i] == 't')
            sqlite3_bind_text(statement, i + 1, va_arg(values, const char *), -1,
                              SQLITE_TRANSIENT);
        else
            sqlite3_bind_int64(statement, i + 1, va_arg(values, int64_t));
}

static int run(struct registry *registry, const char *text, catalog_visit *visit,
               void *cookie, struct cay_error *err, const char *types, ...)
{
    sqlite3_stmt *statement = NULL;
    AUTO_CATALOG_BUILD row = CATALOG_BUILD_INIT;
    sqlite3 *db = registry_db(registry);
    int result = db ? sqlite3_prepare_v2(db, text, -1, &statement, NULL) : SQLITE_ERROR;
    va_list values;

    va_start(values, types);
    if (result == SQLITE_OK)
        bind(statement, types, values);
    va_end(values);
    while (result == SQLITE_OK && (result = sqlite3_step(statement)) == SQLITE_ROW) {
        read_row(statement, &row);
        result = visit && visit(&row, cookie) ? SQLITE_OK : SQLITE_DONE;
    }
    int code = result == SQLITE_DONE ? CAY_OK : registry_fail(registry, "templates", err);
    sqlite3_finalize(statement);
    return code;
}

int catalog_open(struct registry *registry, struct cay_error *err)
{
    sqlite3 *db = registry_db(registry);

    if (!db || sqlite3_exec(db, tables, NULL, NULL, NULL) != SQLITE_OK)
        return registry_fail(registry, "templates", err);
    return run(registry,
               "UPDATE builds SET state = ?1, updated_ms = ?2, finished_ms = ?2, "
               "step = 'finalize', reason = 'the server was restarted during the build; "
               "build the template again' WHERE state = ?3",
               NULL, NULL, err, "iii", (int64_t)BUILD_ERROR, clock_since_1970_ms(),
               (int64_t)BUILD_BUILDING);
}

/* --- Names --- */

void catalog_source(const char *build, char ret_name[CATALOG_SOURCE_MAX])
{
    size_t len = (size_t)snprintf(ret_name, CATALOG_SOURCE_MAX, CATALOG_PREFIX);

    for (; *build && len + 1 < CATALOG_SOURCE_MAX; build++)
        if (*build != '-')
            ret_name[len++] = *build;
    ret_name[len] = '\0';
}

#define LETTERS "abcdefghijklmnopqrstuvwxyz0123456789_-"

bool catalog_is_tag(const char *tag)
{
    size_t len = strlen(tag);

    return len > 0 && len < CATALOG_TAG_MAX && strspn(tag, LETTERS ".") == len;
}

int catalog_parse(const char *tenant, const char *text, char ret_name[CATALOG_NAME_MAX],
                  char ret_tag[CATALOG_TAG_MAX], struct cay_error *err)
{
    char lower[TENANT_MAX + CATALOG_NAME_MAX + CATALOG_TAG_MAX];
    size_t len = strlen(text), own = strlen(tenant);
    const char *name = lower;

    for (size_t i = 0; i <= len && i < sizeof lower; i++)
        lower[i] = (char)tolower((unsigned char)text[i]);
    bool is_fine = len < sizeof lower;
    if (is_fine && strncasecmp(text, tenant, own) == 0 && text[own] == '/')
        name += own + 1;
    char *colon = is_fine ? strchr(lower, ':') : NULL;
    if (colon)
        *colon = '\0';
    is_fine = is_fine && *name && strlen(name) < CATALOG_NAME_MAX &&
              strspn(name, LETTERS) == strlen(name) &&
              (!colon || catalog_is_tag(colon + 1));
    if (!is_fine)
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "invalid template name or tag",
                        "use NAME or NAME:TAG; a name has up to 128 letters, digits, "
                        "\"_\" and \"-\", a tag also \".\"");
    cay_copy_text(ret_name, CATALOG_NAME_MAX, name);
    cay_copy_text(ret_tag, CATALOG_TAG_MAX, colon ? colon + 1 : "");
    return CAY_OK;
}

static int fail_unknown(struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL, "template not found",
                    "list the templates; the names of other tenants do not count");
}

/* --- New rows --- */

/* 20 letters and digits. */
static bool draw_id(char ret_id[CATALOG_ID_MAX])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
    unsigned char bytes[20];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        ret_id[i] = digits[bytes[i] % 32];
    ret_id[sizeof bytes] = '\0';
    return true;
}

static bool draw_uuid(char ret_id[CATALOG_BUILD_MAX])
{
    unsigned char b[16];

    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return false;
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(ret_id, CATALOG_BUILD_MAX,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
             b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
             b[13], b[14], b[15]);
    return true;
}

/* Of builds that no tag names only the newest stay: their files are removed anyway. */
static int forget_old(struct registry *registry, const char *template_id,
                      struct cay_error *err)
{
    return run(registry,
               "DELETE FROM builds WHERE template = ?1 AND state <> ?2 AND "
               "id NOT IN (SELECT build FROM tags WHERE template = ?1) AND "
               "id NOT IN (SELECT id FROM builds WHERE template = ?1 "
               "ORDER BY created_ms DESC, id LIMIT ?3)",
               NULL, NULL, err, "tii", template_id, (int64_t)BUILD_BUILDING,
               (int64_t)CATALOG_UNTAGGED);
}

int catalog_add(struct registry *registry, const char *tenant, const char *name,
                struct catalog_build *build, struct cay_error *err)
{
    int64_t now_ms = clock_since_1970_ms();

    if ((!*build->template.id && !draw_id(build->template.id)) || !draw_uuid(build->id))
        return cay_fail_errno(err, errno, op, "getrandom");
    TRY(run(registry,
            "INSERT INTO templates VALUES (?1, ?2, ?3, ?4, ?4, 0, 0) "
            "ON CONFLICT (tenant, name) DO UPDATE SET updated_ms = ?4",
            NULL, NULL, err, "ttti", build->template.id, tenant, name, now_ms));
    TRY(catalog_find_template(registry, tenant, name, &build->template, err));
    TRY(forget_old(registry, build->template.id, err));
    build->state = BUILD_WAITING;
    build->created_ms = build->updated_ms = now_ms;
    return run(registry,
               "INSERT INTO builds VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, 0, '', '', ?7, "
               "'', '')",
               NULL, NULL, err, "ttiiiit", build->id, build->template.id,
               (int64_t)build->state, build->cpus, build->memory_mb, now_ms,
               build->tags.len ? build->tags.data : "");
}

/* --- Finding --- */

static bool take_row(const struct catalog_build *row, void *cookie)
{
    struct catalog_build *build = cookie;
    struct buf tags = build->tags, start = build->start, ready = build->ready;

    *build = *row;
    tags.len = start.len = ready.len = 0;
    (void)buf_append(&tags, row->tags.data, row->tags.len);
    (void)buf_append(&start, row->start.data, row->start.len);
    (void)buf_append(&ready, row->ready.data, row->ready.len);
    build->tags = tags;
    build->start = start;
    build->ready = ready;
    return false;
}

int catalog_find_template(struct registry *registry, const char *tenant, const char *text,
                          struct catalog_template *ret_template, struct cay_error *err)
{
    AUTO_CATALOG_BUILD row = CATALOG_BUILD_INIT;
    char name[CATALOG_NAME_MAX], tag[CATALOG_TAG_MAX];

    if (catalog_parse(tenant, text, name, tag, NULL) != CAY_OK)
        return fail_unknown(err);
    TRY(run(registry,
            "SELECT '', 0, 0, 0, 0, 0, 0, '', '', '', '', '', t.id, t.name, "
            "t.created_ms, t.updated_ms, t.spawned_ms, t.spawns, (SELECT count(*) FROM "
            "builds WHERE template = t.id) FROM templates t WHERE tenant = ?1 AND "
            "(name = ?2 OR id = ?2)",
            take_row, &row, err, "tt", tenant, name));
    *ret_template = row.template;
    return *row.template.id ? CAY_OK : fail_unknown(err);
}

int catalog_find_tagged(struct registry *registry, const char *tenant, const char *text,
                        struct catalog_build *ret_build, struct cay_error *err)
{
    char name[CATALOG_NAME_MAX], tag[CATALOG_TAG_MAX];

    if (catalog_parse(tenant, text, name, tag, NULL) != CAY_OK)
        return fail_unknown(err);
    ret_build->id[0] = '\0';
    TRY(run(registry,
            "SELECT " COLUMNS FROM_BOTH "JOIN tags g ON g.build = b.id "
            "WHERE tenant = ?1 AND (t.name = ?2 OR t.id = ?2) AND g.template = t.id AND "
            "g.tag = ?3",
            take_row, ret_build, err, "ttt", tenant, name, *tag ? tag : CATALOG_DEFAULT));
    return *ret_build->id ? CAY_OK : fail_unknown(err);
}

int catalog_find_build(struct registry *registry, const char *tenant, const char *text,
                       const char *id, struct catalog_build *ret_build,
                       struct cay_error *err)
{
    struct catalog_template template;

    TRY(catalog_find_template(registry, tenant, text, &template, err));
    ret_build->id[0] = '\0';
    TRY(run(registry, "SELECT " COLUMNS FROM_BOTH "WHERE t.id = ?1 AND b.id = ?2",
            take_row, ret_build, err, "tt", template.id, id));
    return *ret_build->id ? CAY_OK
                          : cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL, "build not found",
                                     "use the ids of the reply to POST /v3/templates");
}

/* --- Changes --- */

int catalog_set_tag(struct registry *registry, const char *template_id, const char *tag,
                    const char *build, int64_t created_ms, struct cay_error *err)
{
    return run(registry, "INSERT OR REPLACE INTO tags VALUES (?, ?, ?, ?)", NULL, NULL,
               err, "ttti", template_id, tag, build, created_ms);
}

int catalog_update(struct registry *registry, const struct catalog_build *build,
                   struct cay_error *err)
{
    char tag[CATALOG_TAG_MAX];

    TRY(run(registry,
            "UPDATE builds SET state = ?2, updated_ms = ?3, finished_ms = ?4, step = ?5, "
            "reason = ?6, start = ?7, ready = ?8 WHERE id = ?1",
            NULL, NULL, err, "tiiitttt", build->id, (int64_t)build->state,
            build->updated_ms, build->finished_ms, build->step, build->reason,
            build->start.len ? build->start.data : "",
            build->ready.len ? build->ready.data : ""));
    for (const char *at = build->tags.len ? build->tags.data : "";
         build->state == BUILD_READY && *at;) {
        size_t len = strcspn(at, " ");
        snprintf(tag, sizeof tag, "%.*s", (int)len, at);
        TRY(catalog_set_tag(registry, build->template.id, tag, build->id,
                            build->finished_ms, err));
        at += len + (at[len] == ' ');
    }
    return CAY_OK;
}

int catalog_count_spawn(struct registry *registry, const char *template_id,
                        struct cay_error *err)
{
    return run(registry,
               "UPDATE templates SET spawns = spawns + 1, spawned_ms = ?2 WHERE id = ?1",
               NULL, NULL, err, "ti", template_id, clock_since_1970_ms());
}

int catalog_remove_tag(struct registry *registry, const char *template_id,
                       const char *tag, struct cay_error *err)
{
    TRY(run(registry, "DELETE FROM tags WHERE template = ?1 AND tag = ?2", NULL, NULL,
            err, "tt", template_id, tag));
    return sqlite3_changes(registry_db(registry))
               ? CAY_OK
               : cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL,
                          "the template does not have this tag",
                          "GET /templates/{id}/tags lists them");
}

int catalog_remove(struct registry *registry, const char *template_id,
                   struct cay_error *err)
{
    static const char *const texts[] = {"DELETE FROM tags WHERE template = ?",
                                        "DELETE FROM builds WHERE template = ?",
                                        "DELETE FROM templates WHERE id = ?"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        TRY(run(registry, texts[i], NULL, NULL, err, "t", template_id));
    return CAY_OK;
}

/* --- What other nodes have --- */

int catalog_put_build(struct registry *registry, const char *tenant,
                      struct catalog_build *build, struct cay_error *err)
{
    struct catalog_template *template = &build->template;

    TRY(run(registry,
            "INSERT INTO templates VALUES (?1, ?2, ?3, ?4, ?5, 0, 0) "
            "ON CONFLICT (tenant, name) DO UPDATE SET "
            "created_ms = min(created_ms, ?4), updated_ms = max(updated_ms, ?5)",
            NULL, NULL, err, "tttii", template->id, tenant, template->name,
            build->created_ms, build->finished_ms));
    TRY(catalog_find_template(registry, tenant, template->name, template, err));
    return run(registry,
               "INSERT OR REPLACE INTO builds VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, "
               "'', '', ?8, ?9, ?10)",
               NULL, NULL, err, "ttiiiiittt", build->id, template->id,
               (int64_t)BUILD_READY, build->cpus, build->memory_mb, build->created_ms,
               build->finished_ms, build->tags.len ? build->tags.data : "",
               build->start.len ? build->start.data : "",
               build->ready.len ? build->ready.data : "");
}

int catalog_put_tag(struct registry *registry, const char *template_id, const char *tag,
                    const char *build, int64_t created_ms, struct cay_error *err)
{
    return run(registry,
               "INSERT INTO tags VALUES (?, ?, ?, ?) ON CONFLICT (template, tag) DO "
               "UPDATE SET build = excluded.build, created_ms = excluded.created_ms "
               "WHERE (excluded.created_ms, excluded.build) > "
               "(tags.created_ms, tags.build)",
               NULL, NULL, err, "ttti", template_id, tag, build, created_ms);
}

int catalog_drop_tag(struct registry *registry, const char *template_id, const char *tag,
                     int64_t created_ms, struct cay_error *err)
{
    return run(registry,
               "DELETE FROM tags WHERE template = ?1 AND tag = ?2 AND created_ms = ?3",
               NULL, NULL, err, "tti", template_id, tag, created_ms);
}

int catalog_find_tag(struct registry *registry, const char *template_id, const char *tag,
                     struct catalog_build *ret_build, struct cay_error *err)
{
    ret_build->created_ms = 0;
    return run(registry,
               "SELECT build, 0, 0, 0, created_ms, 0, 0, '', '', tag, '', '', '', '', 0, "
               "0, 0, 0, 0 FROM tags WHERE template = ?1 AND tag = ?2",
               take_row, ret_build, err, "tt", template_id, tag);
}

int catalog_lists_tag(struct registry *registry, const char *template_id, const char *tag,
                      bool *ret_lists, struct cay_error *err)
{
    AUTO_CATALOG_BUILD row = CATALOG_BUILD_INIT;

    TRY(run(registry,
            "SELECT '', 0, count(*), 0, 0, 0, 0, '', '', '', '', '', '', '', 0, 0, 0, 0, "
            "0 FROM builds WHERE template = ?1 AND "
            "instr(' ' || tags || ' ', ' ' || ?2 || ' ') > 0",
            take_row, &row, err, "tt", template_id, tag));
    *ret_lists = row.cpus > 0;
    return CAY_OK;
}

int catalog_find_commands(struct registry *registry, const char *id,
                          struct catalog_build *ret_build, struct cay_error *err)
{
    ret_build->id[0] = '\0';
    return run(registry, "SELECT " NO_TEMPLATE "FROM builds b WHERE b.id = ?1", take_row,
               ret_build, err, "t", id);
}

int catalog_bury(struct registry *registry, const char *id, struct cay_error *err)
{
    static const char *const texts[] = {
        "DELETE FROM tags WHERE build = ?1",
        "DELETE FROM templates WHERE id = (SELECT template FROM builds WHERE id = ?1) "
        "AND NOT EXISTS (SELECT 1 FROM builds b WHERE b.template = templates.id AND "
        "b.id <> ?1 AND b.state IN (2, 3))",
        "DELETE FROM builds WHERE id <> ?1 AND template <> '' AND "
        "template = (SELECT template FROM builds WHERE id = ?1) AND "
        "template NOT IN (SELECT id FROM templates)",
        "UPDATE builds SET template = '' WHERE id = ?1"};

    static_assert(BUILD_BUILDING == 2 && BUILD_READY == 3, "as above");

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        TRY(run(registry, texts[i], NULL, NULL, err, "t", id));
    return CAY_OK;
}

int catalog_forget_buried(struct registry *registry, const char *id,
                          struct cay_error *err)
{
    return run(registry, "DELETE FROM builds WHERE id = ?1 AND template = ''", NULL, NULL,
               err, "t", id);
}

int catalog_visit_buried(struct registry *registry, catalog_visit *visit, void *cookie,
                         struct cay_error *err)
{
    return run(registry, "SELECT " NO_TEMPLATE "FROM builds b WHERE b.template = ''",
               visit, cookie, err, "");
}

/* --- Lists --- */

int catalog_visit_templates(struct registry *registry, const char *tenant,
                            const char *after, catalog_visit *visit, void *cookie,
                            struct cay_error *err)
{
    return run(registry,
               "SELECT " COLUMNS FROM_BOTH "WHERE t.tenant = ?1 AND b.id = coalesce("
               "(SELECT g.build FROM tags g JOIN builds d ON d.id = g.build WHERE "
               "g.template = t.id AND d.template = t.id AND g.tag = 'default'), "
               "(SELECT id FROM builds WHERE template = t.id ORDER BY created_ms DESC, "
               "id LIMIT 1)) AND (?2 = '' OR (t.created_ms, t.id) < "
               "(SELECT created_ms, id FROM templates WHERE id = ?2)) "
               "ORDER BY t.created_ms DESC, t.id DESC",
               visit, cookie, err, "tt", tenant, after);
}

int catalog_visit_builds(struct registry *registry, const char *template_id,
                         catalog_visit *visit, void *cookie, struct cay_error *err)
{
    return run(registry,
               "SELECT " COLUMNS FROM_BOTH
               "WHERE t.id = ?1 ORDER BY b.created_ms DESC, b.id LIMIT 1000",
               visit, cookie, err, "t", template_id);
}

int catalog_visit_tags(struct registry *registry, const char *template_id,
                       catalog_visit *visit, void *cookie, struct cay_error *err)
{
    return run(registry,
               "SELECT g.build, 0, 0, 0, g.created_ms, 0, 0, '', '', g.tag, '', '', '', "
               "'', 0, 0, 0, 0, 0 FROM tags g WHERE g.template = ?1 AND "
               "g.build IN (SELECT id FROM builds) ORDER BY g.tag",
               visit, cookie, err, "t", template_id);
}

int catalog_count_tags(struct registry *registry, const char *template_id,
                       int64_t *ret_tags, struct cay_error *err)
{
    AUTO_CATALOG_BUILD row = CATALOG_BUILD_INIT;

    TRY(run(registry,
            "SELECT '', 0, (SELECT count(*) FROM tags WHERE template = ?1 AND "
            "build <> ''), 0, 0, 0, 0, "
            "'', '', '', '', '', '', '', 0, 0, 0, 0, 0",
            take_row, &row, err, "t", template_id));
    *ret_tags = row.cpus;
    return CAY_OK;
}

int catalog_count(struct registry *registry, const char *tenant, int64_t *ret_templates,
                  int64_t *ret_builds, struct cay_error *err)
{
    AUTO_CATALOG_BUILD row = CATALOG_BUILD_INIT;

    TRY(run(registry,
            "SELECT '', 0, (SELECT count(*) FROM templates WHERE tenant = ?1), "
            "(SELECT count(*) " FROM_BOTH "WHERE t.tenant = ?1 AND b.state = ?2), "
            "0, 0, 0, '', '', '', '', '', '', '', 0, 0, 0, 0, 0",
            take_row, &row, err, "ti", tenant, (int64_t)BUILD_BUILDING));
    *ret_templates = row.cpus;
    *ret_builds = row.memory_mb;
    return CAY_OK;
}
