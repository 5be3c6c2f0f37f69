/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/base16.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/journal.h"
#include "server/wire/bucket.h"
#include "server/wire/samples.h"
#include "server/wire/warn.h"
#include "sys/io.h"
#include "sys/state-home.h"

static const char op[] = "serve.shared";

enum {
    HELD_MAX = 256, /* requests that wait for the directory */
    ROUNDS = 1000   /* of one request for records: 64 KiB each */
};

bool shared_is_on(const struct broker *broker)
{
    return *broker->shared.id;
}

bool shared_is_away(const struct broker *broker)
{
    return broker->shared.state == SHARED_AWAY;
}

static void fill_name(const char *id, char ret_name[SHARED_NAME_MAX])
{
    snprintf(ret_name, SHARED_NAME_MAX, "s.%.*s", SNAPSHOT_ID_MAX, id);
}

/* --- Rows --- */

sqlite3_stmt *shared_prepare(struct broker *broker, const char *text, const char *one,
                             const char *two, const char *three, struct cay_error *err)
{
    sqlite3 *db = registry_db(broker->registry);
    sqlite3_stmt *statement = NULL;
    const char *const texts[] = {one, two, three};

    if (!db || sqlite3_prepare_v2(db, text, -1, &statement, NULL) != SQLITE_OK) {
        (void)registry_fail(broker->registry, "the shared directory", err);
        return NULL;
    }
    for (int i = 0; i < 3 && texts[i]; i++)
        sqlite3_bind_text(statement, i + 1, texts[i], -1, SQLITE_TRANSIENT);
    return statement;
}

int shared_run(struct broker *broker, const char *text, const char *one, const char *two,
               const char *three, struct cay_error *err)
{
    sqlite3_stmt *statement = shared_prepare(broker, text, one, two, three, err);

    if (!statement)
        return CAY_E_IO;
    int code = sqlite3_step(statement) == SQLITE_DONE
                   ? CAY_OK
                   : registry_fail(broker->registry, "the shared directory", err);
    sqlite3_finalize(statement);
    return code;
}

int shared_note(struct broker *broker, const char *name, const char *tenant,
                const char *digest, int64_t flags, bool is_here, struct cay_error *err)
{
    char text[128];

    snprintf(text, sizeof text, "INSERT OR %s INTO shared VALUES (?1, ?2, ?3, %d, %lld)",
             is_here ? "REPLACE" : "IGNORE", is_here, (long long)flags);
    return shared_run(broker, text, name, tenant, digest, err);
}

int shared_note_snapshot(struct broker *broker, const struct snapshot_row *row,
                         const char *digest, bool is_here, struct cay_error *err)
{
    char name[SHARED_NAME_MAX];

    fill_name(row->id, name);
    return shared_note(broker, name, row->tenant, digest, row->flags, is_here, err);
}

void shared_forget(struct broker *broker, const char *name)
{
    (void)!shared_run(broker, "DELETE FROM shared WHERE name = ?1", name, NULL, NULL,
                      NULL);
}

void shared_forget_snapshot(struct broker *broker, const char *id)
{
    char name[SHARED_NAME_MAX];

    fill_name(id, name);
    shared_forget(broker, name);
}

/* The digest of an archive in the directory; "": it is not there. */
static void find_digest(struct broker *broker, const char *name, bool *ret_is_here,
                        char ret_digest[STORE_NAME_MAX])
{
    sqlite3_stmt *statement =
        shared_prepare(broker, "SELECT digest, is_here FROM shared WHERE name = ?1", name,
                       NULL, NULL, NULL);
    *ret_digest = '\0';
    if (statement && sqlite3_step(statement) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(statement, 0);
        cay_copy_text(ret_digest, STORE_NAME_MAX, text ? text : "");
        *ret_is_here = sqlite3_column_int(statement, 1) != 0;
    }
    (void)sqlite3_finalize(statement);
}

bool shared_lost(struct broker *broker, const char *id)
{
    char name[SHARED_NAME_MAX], digest[STORE_NAME_MAX];
    bool is_here;

    fill_name(id, name);
    find_digest(broker, name, &is_here, digest);
    return *digest && shared_run(broker, "UPDATE shared SET is_here = 0 WHERE name = ?1",
                                 name, NULL, NULL, NULL) == CAY_OK;
}

/* --- The directory, at the start --- */

static int fail_directory(const char *path, int error, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, error, op, "--shared",
                    "the directory cannot be used", "%s: %s", path,
                    cay_errno_words(error));
}

static int make_id(char ret_id[KEEPER_SHARED_ID + 1], struct cay_error *err)
{
    unsigned char bytes[KEEPER_SHARED_ID / 2];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return cay_fail_errno(err, errno, op, "getrandom");
    base16_encode_update(ret_id, sizeof bytes, bytes);
    ret_id[KEEPER_SHARED_ID] = '\0';
    return CAY_OK;
}

/* Two nodes may begin with an empty directory at the same time: one of the ids stays. */
static int make_mark(int dir, const char *path, struct cay_error *err)
{
    char id[KEEPER_SHARED_ID + 1], temporary[KEEPER_SHARED_ID + 8];

    TRY(make_id(id, err));
    snprintf(temporary, sizeof temporary, ".new-%s", id);
    AUTO_FD fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_directory(path, errno, err);
    int error = -io_write(fd, id, KEEPER_SHARED_ID);
    if (!error && fsync(fd) != 0)
        error = errno;
    if (!error && linkat(dir, temporary, dir, KEEPER_SHARED_MARK, 0) != 0 &&
        errno != EEXIST)
        error = errno;
    (void)unlinkat(dir, temporary, 0);
    return error ? fail_directory(path, error, err) : CAY_OK;
}

static int read_mark(const char *path, bool make, char ret_id[KEEPER_SHARED_ID + 1],
                     struct cay_error *err)
{
    AUTO_FD dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (dir < 0 || fstat(dir, &st) != 0)
        return fail_directory(path, errno, err);
    if (st.st_uid != geteuid() || st.st_mode & 022)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--shared",
                        "the directory does not belong to this user, or others can write "
                        "to it",
                        "set its owner to the user of the server and its mode to 0700: "
                        "%s",
                        path);
    ssize_t len = io_read_text(dir, KEEPER_SHARED_MARK, ret_id, KEEPER_SHARED_ID + 1);
    if (len == -ENOENT && make) {
        TRY(make_mark(dir, path, err));
        len = io_read_text(dir, KEEPER_SHARED_MARK, ret_id, KEEPER_SHARED_ID + 1);
    }
    if (len == KEEPER_SHARED_ID && strspn(ret_id, "0123456789abcdef") == KEEPER_SHARED_ID)
        return CAY_OK;
    return len < 0 && len != -ENOENT
               ? fail_directory(path, (int)-len, err)
               : cay_fail(err, CAY_E_INVALID, 0, op, "--shared",
                          "the directory is not the one that this server had before",
                          "mount it: %s; to give it up, start the server once without "
                          "--shared",
                          path);
}

/* --- The bucket, at the start --- */

struct mark {
    int code; /* of keeper_shared_mark() */
    struct cay_error error;
    char id[KEEPER_SHARED_ID + 1];
};

/* In a child: libcurl keeps threads, descriptors and memory, of which the broker and what
 * it forks have no use. */
static int read_apart(const struct serve_options *options, const char *new_id,
                      struct mark *ret_mark, struct cay_error *err)
{
    int ends[2];

    *ret_mark = (struct mark){.code = CAY_E_INTERNAL};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return cay_fail_errno(err, errno, op, "pipe");
    pid_t pid = fork(); /* allow: fork a child that reads a bucket; no threads here */
    if (pid == 0) {
        ret_mark->code =
            keeper_shared_mark(options, new_id, ret_mark->id, &ret_mark->error);
        (void)io_write(ends[1], ret_mark, sizeof *ret_mark);
        _exit(0);
    }
    (void)close(ends[1]);
    bool is_known =
        pid > 0 && read(ends[0], ret_mark, sizeof *ret_mark) == sizeof *ret_mark;
    (void)close(ends[0]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    return is_known ? CAY_OK : cay_fail_errno(err, pid < 0 ? errno : EPIPE, op, "fork");
}

/* What the keeper has for clients, for the operator. */
static int fail_bucket(const struct serve_options *options, const struct mark *mark,
                       struct cay_error *err)
{
    const char *cause = strstr(mark->error.hint, "log: ");

    return cay_fail(err, CAY_E_INVALID, mark->error.sys_errno, op, "--shared",
                    "the S3 store cannot be used", "%s: %s", options->shared,
                    cause ? cause + 5 : mark->error.hint);
}

static int read_bucket(const struct serve_options *options, const char *known,
                       char ret_id[KEEPER_SHARED_ID + 1], struct cay_error *err)
{
    static struct warn warn;
    char new_id[KEEPER_SHARED_ID + 1];
    struct mark mark;
    struct bucket bucket;

    TRY(make_id(new_id, err));
    TRY(bucket_parse(options, &bucket, err));
    if (bucket.is_plain && bucket.is_remote)
        warn_line(&warn, "warning: --shared-endpoint: without TLS, snapshots can be read "
                         "and replaced on the network (use https://)");
    TRY(read_apart(options, *known ? NULL : new_id, &mark, err));
    if (!mark.code)
        memcpy(ret_id, mark.id, sizeof mark.id);
    if (*known && mark.code == CAY_E_UNAVAILABLE &&
        (mark.error.sys_errno == EHOSTUNREACH || mark.error.sys_errno == EAGAIN)) {
        warn_line(&warn, "--shared: %s: %s", mark.error.message, mark.error.hint);
        memcpy(ret_id, known, KEEPER_SHARED_ID + 1);
        return CAY_OK;
    }
    if (mark.code && mark.code != CAY_E_NOT_FOUND)
        return fail_bucket(options, &mark, err);
    if (!mark.code && strlen(ret_id) == KEEPER_SHARED_ID &&
        strspn(ret_id, "0123456789abcdef") == KEEPER_SHARED_ID)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, "--shared",
                    "the bucket is not the one that this server had before",
                    "correct the bucket, its prefix or --shared-endpoint; to give it up, "
                    "start the server once without --shared");
}

int shared_check_bucket(const struct serve_options *options, bool *ret_is_new,
                        struct cay_error *err)
{
    struct mark mark;

    TRY(read_apart(options, NULL, &mark, err));
    *ret_is_new = mark.code == CAY_E_NOT_FOUND;
    return mark.code && !*ret_is_new ? fail_bucket(options, &mark, err) : CAY_OK;
}

static void forget_all(struct broker *broker)
{
    static const char not_here[] = "DELETE FROM snapshots WHERE 's.' || id IN "
                                   "(SELECT name FROM shared WHERE is_here = 0)";
    static const char *const texts[] = {not_here,
                                        "DELETE FROM builds WHERE " SHARED_BUILD_RECORD
                                        " IN (SELECT name FROM shared WHERE is_here = 0)",
                                        "DELETE FROM tags WHERE build NOT IN "
                                        "(SELECT id FROM builds)",
                                        "DELETE FROM templates WHERE id NOT IN "
                                        "(SELECT template FROM builds)",
                                        "DELETE FROM shared",
                                        "DELETE FROM shared_directory"};

    if (catalog_open(broker->registry, NULL) != CAY_OK)
        return;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (shared_run(broker, texts[i], NULL, NULL, NULL, NULL) != CAY_OK)
            return; /* the next start does it */
}

int shared_open(struct broker *broker, struct cay_error *err)
{
    char known[KEEPER_SHARED_ID + 1] = "", id[KEEPER_SHARED_ID + 1];
    const char *path = broker->options ? broker->options->shared : NULL;

    if (!path) {
        if (broker->registry)
            forget_all(broker);
        return CAY_OK;
    }
    sqlite3_stmt *statement =
        shared_prepare(broker, "SELECT id FROM shared_directory", NULL, NULL, NULL, err);
    if (!statement)
        return CAY_E_IO;
    if (sqlite3_step(statement) == SQLITE_ROW)
        cay_copy_text(known, sizeof known,
                      (const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    if (bucket_is(path))
        TRY(read_bucket(broker->options, known, id, err));
    else
        TRY(read_mark(path, !*known, id, err));
    if (*known && strcmp(known, id) != 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--shared",
                        "it is not the store that this server had before",
                        "give or mount that one, not this: %s; to give it up, start the "
                        "server once without --shared",
                        path);
    if (!*known)
        TRY(shared_run(broker, "INSERT INTO shared_directory VALUES (?1)", id, NULL, NULL,
                       err));
    memcpy(broker->shared.id, id, sizeof id);
    return CAY_OK;
}

/* --- Requests that wait --- */

/* A request of the broker's own that has the client's; NULL: it was refused. */
static struct broker_request *hold(struct broker *broker, enum op which,
                                   struct request_packet *request, const char *tenant)
{
    struct broker_request *pending = broker->shared.held < HELD_MAX
                                         ? broker_request_new(broker, which, NULL, NULL)
                                         : NULL;

    if (pending)
        pending->held = malloc(sizeof *pending->held);
    if (!pending || !pending->held) {
        if (pending)
            broker_request_free(broker, pending);
        broker_refuse(request, 503, CAY_E_UNAVAILABLE,
                      "too many requests wait for the shared store",
                      "try again in a moment");
        return NULL;
    }
    memcpy(pending->held, request, sizeof *request);
    request->channel = request->memfd = -1;
    cay_copy_text(pending->row.tenant, TENANT_MAX, tenant);
    pending->claim = broker->claim;
    pending->claim_count = 1;
    broker->claim = 0;
    broker->shared.held++;
    broker->held_count++;
    return pending;
}

/* The request goes on, as broker.c began it. */
static void go_on(struct broker *broker, struct broker_request *pending,
                  enum shared_state state)
{
    struct request_packet *held = TAKE_PTR(pending->held);
    char tenant[TENANT_MAX];
    uint64_t count = broker->held_count;

    if (!held)
        return;
    memcpy(tenant, pending->row.tenant, sizeof tenant);
    broker->shared.held--;
    broker->claim = pending->claim;
    pending->claim = 0;
    broker->shared.state = state;
    journal_begin(broker, held);
    broker_handle_as(broker, held, tenant);
    if (broker->held_count == count) /* else it waits once more */
        journal_end(broker, held);
    broker->shared.state = SHARED_UNREAD;
    if (broker->claim)
        index_release(broker, broker->claim, 1);
    broker->claim = 0;
    request_packet_done(held);
    explicit_bzero(held, sizeof *held);
    free(held);
}

static void note_failure(struct broker *broker, const struct cay_error *error)
{
    static struct warn warn;

    broker->shared.failures++;
    warn_line(&warn, "--shared: %s: %s", error->message, error->hint);
}

/* --- Records --- */

bool shared_is_hex(const char *text, size_t len)
{
    return strlen(text) == len && strspn(text, "0123456789abcdef") == len;
}

/* Copies the lines into a row if they are what this server could have written. */
static bool read_record(const char *tenant, const char *name, const char *const *lines,
                        struct snapshot_row *row)
{
    struct snapshot_row parsed = {0};
    char shown[2 * SNAPSHOT_NAME_MAX];
    char *end;

    *row = (struct snapshot_row){0};
    if (strncmp(name, "s.", 2) != 0 || strlen(name + 2) != SNAPSHOT_ID_MAX - 4 ||
        strspn(name + 2, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(name + 2) ||
        strcmp(lines[0], SHARED_FORMAT) != 0 || strlen(lines[1]) >= SNAPSHOT_NAME_MAX ||
        strlen(lines[2]) >= SNAPSHOT_NAME_MAX || !record_is_id(lines[3]) ||
        !shared_is_hex(lines[SHARED_DIGEST], 64))
        return false;
    snprintf(shown, sizeof shown, "%s:%s", *lines[1] ? lines[1] : "x", lines[2]);
    if (snapshot_parse(tenant, shown, &parsed, NULL) != CAY_OK || !*parsed.tag)
        return false;
    row->created_ms = strtoll(lines[4], &end, 10);
    if (*end || row->created_ms <= 0)
        return false;
    row->flags = strtoll(lines[5], &end, 10);
    if (*end || row->flags < -1 || row->flags > REQUEST_FLAGS)
        return false;
    cay_copy_text(row->id, sizeof row->id, name + 2);
    cay_copy_text(row->tenant, sizeof row->tenant, tenant);
    cay_copy_text(row->name, sizeof row->name, *lines[1] ? parsed.name : "");
    cay_copy_text(row->tag, sizeof row->tag, parsed.tag);
    cay_copy_text(row->sandbox, sizeof row->sandbox, lines[3]);
    return true;
}

static bool take_newest(const struct snapshot_row *row, void *cookie)
{
    *(struct snapshot_row *)cookie = *row;
    return false;
}

/* Whether a newer snapshot has its name: two nodes may give it at the same time. */
static bool is_replaced(struct broker *broker, const struct snapshot_row *row)
{
    const struct snapshot_filter same = {.tenant = row->tenant,
                                         .sandbox = "",
                                         .name = row->name,
                                         .tag = row->tag,
                                         .after_id = ""};
    struct snapshot_row other = {0};

    return *row->name &&
           snapshot_visit(broker->registry, &same, take_newest, &other, NULL) == CAY_OK &&
           strcmp(other.name, row->name) == 0 &&
           (other.created_ms > row->created_ms ||
            (other.created_ms == row->created_ms && strcmp(other.id, row->id) > 0));
}

static bool add_snapshot(struct broker *broker, const char *tenant, const char *name,
                         const char *const *lines)
{
    char old[SNAPSHOT_ID_MAX];
    struct snapshot_row row;

    if (!read_record(tenant, name, lines, &row))
        return false;
    if (shared_note_snapshot(broker, &row, lines[SHARED_DIGEST], false, NULL) == CAY_OK &&
        !is_replaced(broker, &row))
        (void)!snapshot_add(broker->registry, &row, old, NULL);
    return true;
}

static void add_record(struct broker *broker, const char *tenant, const char *name,
                       const char *const *lines)
{
    static struct warn warn;
    bool is_valid = *name == 't'   ? shared_add_build(broker, tenant, name, lines)
                    : *name == 'g' ? shared_add_tag(broker, tenant, name, lines)
                                   : add_snapshot(broker, tenant, name, lines);

    if (!is_valid)
        warn_line(&warn, "--shared: the record %s of the tenant %s is invalid", name,
                  tenant);
}

/* Another node has removed it. */
static void drop_record(struct broker *broker, const char *name)
{
    struct snapshot_row row = {0};

    if (*name == 't')
        shared_drop_build(broker, name);
    else if (*name == 'g')
        shared_drop_tag(broker, name);
    if (strncmp(name, "s.", 2) != 0)
        return;
    cay_copy_text(row.id, sizeof row.id, name + 2);
    if (snapshot_remove(broker->registry, row.id, NULL) != CAY_OK)
        return;
    shared_forget_snapshot(broker, row.id);
    broker_drop_snapshot(broker, &row);
}

static void apply(struct broker *broker, const char *tenant,
                  const struct reply_packet *reply)
{
    const char *lines[SHARED_RECORD_LINES];

    for (const char *name = NULL; (name = reply_next(reply, name));) {
        if (strcmp(name, "-") == 0) {
            name = reply_next(reply, name);
            if (!name)
                return;
            drop_record(broker, name);
            continue;
        }
        const char *at = name;
        for (int i = 0; i < SHARED_RECORD_LINES; i++) {
            at = reply_next(reply, at);
            if (!at)
                return;
            lines[i] = at;
        }
        add_record(broker, tenant, name, lines);
        name = at;
    }
}

/* --- Reading what there is --- */

/* Of what another node may have made or changed. */
static bool is_about_shared(const struct broker *broker,
                            const struct request_packet *request)
{
    enum op which = (enum op)request->head.op;

    if (which == OP_CONNECT)
        return index_is_lost(broker, request->head.sandbox);

    if (which == OP_CREATE) /* most are from "base", which no snapshot can be */
        return request->memfd >= 0 || strcmp(request->strings, KEEPER_TEMPLATE) != 0;
    if (which == OP_BUILD)
        return request->head.flags & BUILD_FROM_TEMPLATE;
    /* The end of a build removes those without a tag, and other nodes set tags, too. */
    return which == OP_SNAPSHOT || which == OP_SNAPSHOTS || which == OP_BUILD_STATUS ||
           (which >= OP_TEMPLATE && which <= OP_TAGS_REMOVE);
}

static void send_sync(struct broker *broker, struct broker_request *pending);

static int synced(struct broker *broker, struct broker_request *pending,
                  const struct reply_packet *reply, struct cay_error *err)
{
    (void)err;
    apply(broker, pending->row.tenant, reply);
    if (!reply->head.numbers[SHARED_HAS_MORE] || pending->number >= ROUNDS) {
        go_on(broker, pending, SHARED_READ);
        return CAY_OK;
    }
    struct broker_request *next = broker_request_new(broker, OP_SHARED_SYNC, NULL, NULL);
    if (!next) {
        go_on(broker, pending, SHARED_AWAY);
        return CAY_OK;
    }
    next->held = TAKE_PTR(pending->held);
    next->claim = pending->claim;
    next->claim_count = 1;
    pending->claim = 0;
    next->number = pending->number + 1;
    cay_copy_text(next->row.tenant, TENANT_MAX, pending->row.tenant);
    send_sync(broker, next);
    return CAY_OK;
}

/* What this node has is better than nothing. */
static void sync_failed(struct broker *broker, struct broker_request *pending,
                        const struct cay_error *error)
{
    note_failure(broker, error);
    go_on(broker, pending, SHARED_AWAY);
}

static void send_sync(struct broker *broker, struct broker_request *pending)
{
    struct request request = {.count = 2};
    AUTO_BUF strings = {.max = CHANNEL_STRINGS};
    sqlite3_stmt *statement =
        shared_prepare(broker, "SELECT name FROM shared WHERE tenant = ?1",
                       pending->row.tenant, NULL, NULL, NULL);

    strings_add(&strings, broker->shared.id);
    strings_add(&strings, pending->row.tenant);
    while (statement && sqlite3_step(statement) == SQLITE_ROW) {
        strings_add(&strings, (const char *)sqlite3_column_text(statement, 0));
        request.count++;
    }
    (void)sqlite3_finalize(statement);
    pending->done = synced;
    pending->failed = sync_failed;
    broker_request_send_to(broker, pending, &request, &strings);
}

bool shared_sync(struct broker *broker, struct request_packet *request,
                 const char *tenant)
{
    if (!shared_is_on(broker) || broker->shared.state != SHARED_UNREAD ||
        !is_about_shared(broker, request))
        return false;
    struct broker_request *pending = hold(broker, OP_SHARED_SYNC, request, tenant);
    if (pending)
        send_sync(broker, pending);
    return true;
}

/* --- Fetching --- */

/* Those that wait for the same archive, one after the other: each changes the list. */
static struct broker_request *find_waiting(const struct broker *broker, const char *name)
{
    struct broker_request *pending = broker->pending;

    while (pending && !(pending->op == OP_SHARED_GET && !pending->done &&
                        strcmp(pending->record, name) == 0))
        pending = pending->next;
    return pending;
}

/* Its record was removed while it came: nothing names the files any more. */
static void drop_fetched(struct broker *broker, const struct broker_request *pending)
{
    struct snapshot_row row = {0};

    if (pending->record[0] == 't') {
        shared_drop_files(broker, pending->record);
        return;
    }
    cay_copy_text(row.id, sizeof row.id, pending->record + 2);
    broker_drop_snapshot(broker, &row);
}

static int fetched(struct broker *broker, struct broker_request *pending,
                   const struct reply_packet *reply, struct cay_error *err)
{
    struct broker_request *other;

    broker->shared.fetches++;
    broker->shared.fetched_bytes += (uint64_t)reply->head.numbers[SHARED_BYTES];
    TRY(shared_run(broker, "UPDATE shared SET is_here = 1 WHERE name = ?1",
                   pending->record, NULL, NULL, err));
    if (!sqlite3_changes(registry_db(broker->registry)))
        drop_fetched(broker, pending);
    while ((other = find_waiting(broker, pending->record))) {
        other->op = OP_NONE;
        go_on(broker, other, SHARED_READ);
        broker_request_free(broker, other);
    }
    go_on(broker, pending, SHARED_READ);
    return CAY_OK;
}

static void refuse_held(struct broker *broker, struct broker_request *pending,
                        const struct cay_error *error)
{
    bool is_removed = error->code == CAY_E_NOT_FOUND;
    struct request_packet *held = TAKE_PTR(pending->held);

    if (!held)
        return;
    broker->shared.held--;
    journal_begin(broker, held);
    journal_set_tenant(broker, pending->row.tenant);
    broker_refuse(held, is_removed ? 404 : 503, error->code, error->message, error->hint);
    stats_count_failure(&broker->stats, held->refusal);
    journal_end(broker, held);
    explicit_bzero(held, sizeof *held);
    free(held);
}

static void fetch_failed(struct broker *broker, struct broker_request *pending,
                         const struct cay_error *error)
{
    struct broker_request *other;

    if (error->code != CAY_E_NOT_FOUND) /* else another node has just removed it */
        note_failure(broker, error);
    while ((other = find_waiting(broker, pending->record))) {
        other->op = OP_NONE;
        refuse_held(broker, other, error);
        broker_request_free(broker, other);
    }
    refuse_held(broker, pending, error);
}

bool shared_fetch(struct broker *broker, struct request_packet *request,
                  const char *tenant, const char *name, const char *source)
{
    char digest[STORE_NAME_MAX];
    struct request get = {.count = SHARED_LINES + 1};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    bool is_here = true, is_first = true;

    if (!shared_is_on(broker))
        return false;
    find_digest(broker, name, &is_here, digest);
    if (is_here)
        return false;
    for (struct broker_request *at = broker->pending; at; at = at->next)
        is_first &=
            !(at->op == OP_SHARED_GET && at->done && strcmp(at->record, name) == 0);
    struct broker_request *pending = hold(broker, OP_SHARED_GET, request, tenant);
    if (!pending)
        return true;
    cay_copy_text(pending->record, sizeof pending->record, name);
    if (!is_first)
        return true;
    pending->done = fetched;
    pending->failed = fetch_failed;
    strings_add(&strings, broker->shared.id);
    strings_add(&strings, tenant);
    strings_add(&strings, name);
    strings_add(&strings, source);
    strings_add(&strings, digest);
    broker_request_send_to(broker, pending, &get, &strings);
    return true;
}

bool shared_fetch_snapshot(struct broker *broker, struct request_packet *request,
                           const struct snapshot_row *row)
{
    char name[SHARED_NAME_MAX], source[SNAPSHOT_SOURCE_MAX];

    fill_name(row->id, name);
    snapshot_source(broker->registry, row->id, source);
    return shared_fetch(broker, request, row->tenant, name, source);
}

/* --- Publishing --- */

uint32_t shared_add_record(const struct broker *broker, const struct snapshot_row *row,
                           struct buf *strings)
{
    char name[SHARED_NAME_MAX];

    if (!shared_is_on(broker) || !*row->tenant)
        return 0;
    fill_name(row->id, name);
    strings_add(strings, broker->shared.id);
    strings_add(strings, row->tenant);
    strings_add(strings, name);
    return SHARED_SOURCE;
}

int shared_publish(struct broker *broker, struct broker_request *pending,
                   int (*done)(struct broker *broker, struct broker_request *pending,
                               const struct reply_packet *reply, struct cay_error *err),
                   void (*failed)(struct broker *broker, struct broker_request *pending,
                                  const struct cay_error *error),
                   struct cay_error *err)
{
    struct broker_request *next = broker_request_new(broker, OP_SHARED_PUT, NULL, NULL);
    struct request put = {.count = SHARED_LINES + SHARED_RECORD_LINES - 1};
    const struct snapshot_row *row = pending->snapshot;
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    char source[SNAPSHOT_SOURCE_MAX], created[32], flags[32];

    if (!next)
        return cay_fail_memory(err, op);
    snapshot_source(broker->registry, row->id, source);
    snprintf(created, sizeof created, "%lld", (long long)row->created_ms);
    snprintf(flags, sizeof flags, "%lld", (long long)row->flags);
    (void)shared_add_record(broker, row, &strings);
    strings_add(&strings, source);
    strings_add(&strings, SHARED_FORMAT);
    strings_add(&strings, row->name);
    strings_add(&strings, row->tag);
    strings_add(&strings, row->sandbox);
    strings_add(&strings, created);
    strings_add(&strings, flags);
    next->done = done;
    next->failed = failed;
    next->id = pending->id;
    next->client = TAKE_FD(pending->client);
    cay_copy_text(next->row.tenant, TENANT_MAX, row->tenant);
    next->snapshot = TAKE_PTR(pending->snapshot);
    broker_request_send_to(broker, next, &put, &strings);
    return CAY_OK;
}

void shared_put(struct samples *out, const struct broker *broker)
{
    const struct shared *shared = &broker->shared;

    if (!shared_is_on(broker))
        return;
    samples_one(out, "cay_shared_fetches_total", "counter",
                "Archives that were fetched from the shared store", shared->fetches);
    samples_one(out, "cay_shared_fetched_bytes_total", "counter",
                "Bytes that were fetched from the shared store", shared->fetched_bytes);
    samples_one(out, "cay_shared_failures_total", "counter",
                "Uses of the shared store that failed", shared->failures);
}
