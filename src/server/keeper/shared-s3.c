/* SPDX-License-Identifier: Apache-2.0 */

/* --shared s3://BUCKET/PREFIX.  A PUT is complete before it is visible, and seen by each
 * request after it; stores that do not promise this are not for Cay. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/s3.h"
#include "server/keeper/shared-store.h"

static const char op[] = "server.shared";

enum {
    PAGES_MAX = 1000, /* of 1000 names each */
    TOKEN_MAX = 2048,
    QUERY_MAX = 8 << 10,
    KEY_ROOM = TENANT_MAX + 32 + SHARED_NAME_ROOM
};

struct bucket_store {
    struct shared_store store;
    struct s3 s3;
    char home[PATH_MAX];
    char tenant[TENANT_MAX];
    int archive; /* new_archive(); -1: none */
};

static struct bucket_store *of(struct shared_store *store)
{
    return (struct bucket_store *)store;
}

/* The cause is for the operator. */
static int fail_away(const struct cay_error *why, struct cay_error *err)
{
    char words[sizeof why->message + sizeof why->hint + 2];

    if (why->code != CAY_E_UNAVAILABLE && why->code != CAY_E_INVALID &&
        why->code != CAY_E_DENIED && why->code != CAY_E_NOT_FOUND)
        return cay_fail_as(err, why->code, why);
    snprintf(words, sizeof words, "%s: %s", why->message, why->hint);
    return shared_fail("the shared S3 store cannot be used", why->sys_errno, words, err);
}

static int call(struct bucket_store *bucket, const struct s3_request *request,
                struct cay_error *err)
{
    struct cay_error why = {0};
    int code = s3_call(&bucket->s3, request, &why);

    if (code == CAY_E_NOT_FOUND || code == CAY_E_EXISTS)
        return cay_fail_as(err, code, &why);
    return code ? fail_away(&why, err) : CAY_OK;
}

static void fill_key(const struct bucket_store *bucket, const char *folder,
                     const char *name, char ret_key[KEY_ROOM])
{
    snprintf(ret_key, KEY_ROOM, "tenant-%s/%s/%s", bucket->tenant, folder, name);
}

/* --- Lists --- */

struct page {
    const char *prefix;    /* of the keys */
    char token[TOKEN_MAX]; /* of the next page; "": none */
    bool is_list;          /* it says whether there is more */
    bool has_more, has_key;
    char name[SHARED_NAME_ROOM]; /* of the last key; "": it is none of ours */
    /* `changed`: the time, or NULL if that has not come yet. */
    int (*note)(void *cookie, const char *name, const char *changed);
    void *cookie;
    int code; /* of note() */
};

static bool note_key(struct page *page, const char *key)
{
    size_t len = strlen(page->prefix);
    bool is_ours = strncmp(key, page->prefix, len) == 0 &&
                   strlen(key + len) < SHARED_NAME_ROOM && shared_is_name(key + len);

    page->has_key = true;
    cay_copy_text(page->name, sizeof page->name, is_ours ? key + len : "");
    if (is_ours)
        page->code = page->note(page->cookie, page->name, NULL);
    return page->code == CAY_OK;
}

static bool note_time(struct page *page, const char *time)
{
    bool is_first = page->has_key;

    page->has_key = false;
    if (is_first && *page->name)
        page->code = page->note(page->cookie, page->name, time);
    return is_first && page->code == CAY_OK;
}

static bool note_element(void *cookie, const char *path, const char *value)
{
    struct page *page = cookie;

    if (strcmp(path, "ListBucketResult/Contents/Key") == 0)
        return note_key(page, value);
    if (strcmp(path, "ListBucketResult/Contents/LastModified") == 0)
        return note_time(page, value);
    if (strcmp(path, "ListBucketResult/IsTruncated") == 0) {
        page->has_more = strcmp(value, "true") == 0;
        page->is_list = page->has_more || strcmp(value, "false") == 0;
        return page->is_list;
    }
    if (strcmp(path, "ListBucketResult/NextContinuationToken") == 0)
        cay_copy_text(page->token, sizeof page->token, value);
    return strlen(value) < sizeof page->token;
}

static int read_page(struct bucket_store *bucket, struct page *page, bool is_first,
                     struct buf *body, struct cay_error *err)
{
    AUTO_BUF query = {.max = QUERY_MAX};
    const struct s3_request request = {
        .method = "GET", .query = "", .from = -1, .body = body, .to = -1};
    struct s3_request list = request;

    if (!is_first) {
        (void)buf_text(&query, "continuation-token=");
        s3_encode(&query, page->token);
        (void)buf_text(&query, "&");
    }
    (void)buf_text(&query, "list-type=2&prefix=");
    s3_encode(&query, page->prefix);
    if (query.failed)
        return cay_fail_memory(err, op);
    list.query = query.data;
    TRY(call(bucket, &list, err));
    page->is_list = page->has_more = page->has_key = false;
    page->token[0] = '\0';
    if (s3_read_xml(body->data ? body->data : "", body->len, note_element, page) &&
        page->is_list && (!page->has_more || *page->token))
        return CAY_OK;
    if (page->code)
        return cay_fail_memory(err, op);
    return shared_fail("the shared S3 store cannot be used", EPROTO,
                       "its list is malformed: check --shared-endpoint", err);
}

/* Calls `note` with the names in a folder of the tenant. */
static int list_folder(struct bucket_store *bucket, const char *folder,
                       int (*note)(void *cookie, const char *name, const char *changed),
                       void *cookie, struct cay_error *err)
{
    char key[KEY_ROOM], prefix[sizeof bucket->s3.bucket.prefix + KEY_ROOM];
    AUTO_BUF body = {.max = S3_LIST_MAX};
    struct page page = {.prefix = prefix, .note = note, .cookie = cookie};
    int code = CAY_OK;

    fill_key(bucket, folder, "", key);
    snprintf(prefix, sizeof prefix, "%s%s", bucket->s3.bucket.prefix, key);
    for (int i = 0; !code && (i == 0 || page.has_more); i++)
        code = i < PAGES_MAX ? read_page(bucket, &page, i == 0, &body, err)
                             : shared_fail("the shared S3 store cannot be used", EPROTO,
                                           "its list has no end", err);
    return code;
}

/* --- Records --- */

struct name_list {
    int (*note)(void *cookie, const char *name);
    void *cookie;
};

static int note_name(void *cookie, const char *name, const char *changed)
{
    const struct name_list *names = cookie;

    return changed ? CAY_OK : names->note(names->cookie, name);
}

/* `note` reads records, and so must not come in the middle of a reply. */
static int add_name(void *cookie, const char *name)
{
    return buf_append(cookie, name, strlen(name) + 1) ? CAY_OK : CAY_E_NO_MEMORY;
}

static int list_records(struct shared_store *store,
                        int (*note)(void *cookie, const char *name), void *cookie,
                        struct cay_error *err)
{
    AUTO_BUF found = {.max = PAGES_MAX * 1000 * (size_t)SHARED_NAME_ROOM};
    struct name_list names = {add_name, &found};

    TRY(list_folder(of(store), "records", note_name, &names, err));
    for (size_t at = 0; at < found.len; at += strlen(found.data + at) + 1)
        TRY(note(cookie, found.data + at));
    return CAY_OK;
}

static int read_text(struct bucket_store *bucket, const char *key, struct buf *text,
                     struct cay_error *err)
{
    const struct s3_request request = {
        .method = "GET", .key = key, .from = -1, .body = text, .to = -1};

    return call(bucket, &request, err);
}

static int read_record(struct shared_store *store, const char *name, char *text,
                       size_t *ret_len, struct cay_error *err)
{
    AUTO_BUF body = {.max = SHARED_RECORD_MAX};
    struct cay_error error = {0};
    char key[KEY_ROOM];

    fill_key(of(store), "records", name, key);
    *ret_len = 0;
    int code = read_text(of(store), key, &body, &error);
    if (code && code != CAY_E_NOT_FOUND && !body.failed) /* else it was just removed */
        return cay_fail_as(err, code, &error);
    if (!code && body.len)
        memcpy(text, body.data, body.len);
    *ret_len = code ? 0 : body.len;
    return CAY_OK;
}

static int put_text(struct bucket_store *bucket, const char *key, const char *text,
                    size_t len, bool is_new, struct cay_error *err)
{
    const struct s3_request request = {.method = "PUT",
                                       .key = key,
                                       .is_new = is_new,
                                       .data = text,
                                       .from = -1,
                                       .len = len,
                                       .to = -1};

    return call(bucket, &request, err);
}

static int put_record(struct shared_store *store, const char *name,
                      const struct buf *text, struct cay_error *err)
{
    char key[KEY_ROOM];

    fill_key(of(store), "records", name, key);
    return put_text(of(store), key, text->data, text->len, false, err);
}

/* --- Archives --- */

static int new_archive(struct shared_store *store, int *ret_fd, struct cay_error *err)
{
    struct bucket_store *bucket = of(store);

    bucket->archive = open(bucket->home, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    *ret_fd = bucket->archive;
    return bucket->archive < 0 ? cay_fail_errno(err, errno, op, "the copy of the archive")
                               : CAY_OK;
}

static int remove_key(struct bucket_store *bucket, const char *folder, const char *name,
                      struct cay_error *err)
{
    char key[KEY_ROOM];
    const struct s3_request request = {
        .method = "DELETE", .key = key, .from = -1, .to = -1};

    fill_key(bucket, folder, name, key);
    int code = call(bucket, &request, err);
    return code == CAY_E_NOT_FOUND ? CAY_OK : code;
}

struct sweep {
    char before[32]; /* "2026-01-31T12:00:00" */
    struct buf records, left;
};

static int note_record(void *cookie, const char *name, const char *changed)
{
    return changed ? CAY_OK : add_name(&((struct sweep *)cookie)->records, name);
}

static bool has_name(const struct buf *names, const char *name)
{
    for (size_t at = 0; at < names->len; at += strlen(names->data + at) + 1)
        if (strcmp(names->data + at, name) == 0)
            return true;
    return false;
}

static int note_old(void *cookie, const char *name, const char *changed)
{
    struct sweep *sweep = cookie;
    size_t len = strlen(sweep->before);

    if (!changed || strlen(changed) <= len || changed[len - 9] != 'T' ||
        strncmp(changed, sweep->before, len) >= 0)
        return CAY_OK;
    return add_name(&sweep->left, name);
}

/* Archives that killed servers left.  A record is written after its archive, and this
 * reads them after the archives, so an archive that is older than a day without one has
 * none. */
static void sweep_archives(struct bucket_store *bucket)
{
    const size_t max = PAGES_MAX * 1000 * (size_t)SHARED_NAME_ROOM;
    struct sweep sweep = {.records = {.max = max}, .left = {.max = max}};
    time_t day_ago = time(NULL) - SHARED_STALE_S;
    struct tm parts;

    (void)strftime(sweep.before, sizeof sweep.before, "%Y-%m-%dT%H:%M:%S",
                   gmtime_r(&day_ago, &parts));
    if (list_folder(bucket, "files", note_old, &sweep, NULL) == CAY_OK &&
        sweep.left.len &&
        list_folder(bucket, "records", note_record, &sweep, NULL) == CAY_OK)
        for (size_t at = 0; at < sweep.left.len; at += strlen(sweep.left.data + at) + 1)
            if (!has_name(&sweep.records, sweep.left.data + at))
                (void)!remove_key(bucket, "files", sweep.left.data + at, NULL);
    buf_done(&sweep.records);
    buf_done(&sweep.left);
}

static int put_archive(struct shared_store *store, const char *name, const char *digest,
                       uint64_t bytes, struct cay_error *err)
{
    struct bucket_store *bucket = of(store);
    char key[KEY_ROOM];
    const struct s3_request request = {.method = "PUT",
                                       .key = key,
                                       .from = bucket->archive,
                                       .len = bytes,
                                       .digest = digest,
                                       .to = -1};

    fill_key(bucket, "files", name, key);
    TRY(call(bucket, &request, err));
    sweep_archives(bucket);
    return CAY_OK;
}

static int fetch(struct shared_store *store, const char *name, int to,
                 struct cay_error *err)
{
    char key[KEY_ROOM];
    const struct s3_request request = {.method = "GET", .key = key, .from = -1, .to = to};

    fill_key(of(store), "files", name, key);
    int code = call(of(store), &request, err);
    return code == CAY_E_NOT_FOUND
               ? cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL,
                          "it was removed from what the servers share",
                          "list the templates and snapshots")
               : code;
}

static int remove_both(struct shared_store *store, const char *name,
                       struct cay_error *err)
{
    TRY(remove_key(of(store), "records", name, err));
    (void)!remove_key(of(store), "files", name, NULL); /* else the sweep removes it */
    return CAY_OK;
}

/* --- Opening --- */

static void close_bucket(struct shared_store *store)
{
    struct bucket_store *bucket = of(store);

    s3_close(&bucket->s3);
    auto_close(&bucket->archive);
    free(bucket);
}

static const struct shared_calls calls = {.list = list_records,
                                          .read_record = read_record,
                                          .put_record = put_record,
                                          .new_archive = new_archive,
                                          .put_archive = put_archive,
                                          .fetch = fetch,
                                          .remove = remove_both,
                                          .close = close_bucket};

static int new_bucket(const struct serve_options *options,
                      struct bucket_store **ret_bucket, struct cay_error *err)
{
    struct cay_error why = {0};
    struct bucket_store *bucket = malloc(sizeof *bucket);

    if (!bucket)
        return cay_fail_memory(err, op);
    *bucket = (struct bucket_store){.store = {&calls}, .archive = -1};
    cay_copy_text(bucket->home, sizeof bucket->home, options->home);
    *ret_bucket = bucket;
    int code = s3_open(options, &bucket->s3, &why);
    return code ? fail_away(&why, err) : CAY_OK;
}

/* CAY_E_NOT_FOUND: there is none. */
static int read_mark(struct bucket_store *bucket, char ret_id[KEEPER_SHARED_ID + 1],
                     struct cay_error *err)
{
    AUTO_BUF text = {.max = SHARED_RECORD_MAX};

    TRY(read_text(bucket, KEEPER_SHARED_MARK, &text, err));
    cay_copy_text(ret_id, KEEPER_SHARED_ID + 1,
                  text.len == KEEPER_SHARED_ID ? text.data : "");
    return CAY_OK;
}

int shared_s3_open(const struct keeper *keeper, const char *id, const char *tenant,
                   struct shared_store **ret_store, struct cay_error *err)
{
    struct bucket_store *bucket = NULL;
    char mark[KEEPER_SHARED_ID + 1] = "";
    int code = new_bucket(keeper->options, &bucket, err);

    if (bucket)
        cay_copy_text(bucket->tenant, sizeof bucket->tenant, tenant);
    if (!code)
        code = read_mark(bucket, mark, err);
    if (code == CAY_E_NOT_FOUND || (!code && strcmp(mark, id) != 0))
        code = shared_fail("the shared S3 store cannot be used", ENOENT,
                           "the bucket is not the one that this server had before", err);
    if (!code)
        *ret_store = &bucket->store;
    else if (bucket)
        close_bucket(&bucket->store);
    return code;
}

/* A store without conditional writes ignores or refuses them; then two servers must not
 * be the first at the same time. */
static int make_mark(struct bucket_store *bucket, const char *id, struct cay_error *err)
{
    struct cay_error why = {0};
    int code = put_text(bucket, KEEPER_SHARED_MARK, id, KEEPER_SHARED_ID, true, &why);

    if (code && why.sys_errno == ENOSYS)
        code = put_text(bucket, KEEPER_SHARED_MARK, id, KEEPER_SHARED_ID, false, &why);
    return code && code != CAY_E_EXISTS ? cay_fail_as(err, code, &why) : CAY_OK;
}

int keeper_shared_mark(const struct serve_options *options, const char *new_id,
                       char ret_id[KEEPER_SHARED_ID + 1], struct cay_error *err)
{
    struct bucket_store *bucket = NULL;
    int code = new_bucket(options, &bucket, err);

    if (!code)
        code = read_mark(bucket, ret_id, err);
    if (code == CAY_E_NOT_FOUND && new_id) {
        code = make_mark(bucket, new_id, err);
        if (!code)
            code = read_mark(bucket, ret_id, err);
    }
    if (bucket)
        close_bucket(&bucket->store);
    return code;
}
