/* SPDX-License-Identifier: Apache-2.0 */

/* What several servers share (--shared), for a keeper without a sandbox, which exits
 * after the reply: the broker must not wait for a disk of another machine, or for a
 * store.
 *
 * A record comes after its archive and goes before it.  The archive counts only if its
 * SHA-256 is that of the record. */
#include <errno.h>
#include <fcntl.h>
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/snapshot.h"
#include "server/keeper/keeper.h"
#include "server/keeper/shared-store.h"
#include "server/wire/bucket.h"
#include "sys/io.h"

static const char op[] = "server.shared";

enum { PIECE = 128 << 10, HEX = 2 * SHA256_DIGEST_SIZE };

int shared_fail(const char *what, int error, const char *words, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNAVAILABLE, error, op, NULL, what,
                    "try again later; the operator finds the cause in the log: %s",
                    words);
}

static inline void close_store(struct shared_store **store)
{
    if (*store)
        (*store)->calls->close(*store);
}
#define AUTO_STORE __attribute__((cleanup(close_store))) struct shared_store *

/* Strings: the id of the store, and the tenant. */
static int open_store(const struct keeper *keeper, const char *const *strings, bool make,
                      struct shared_store **ret_store, struct cay_error *err)
{
    if (bucket_is(keeper->options->shared))
        return shared_s3_open(keeper, strings[0], strings[1], ret_store, err);
    return shared_directory_open(keeper, strings[0], strings[1], make, ret_store, err);
}

bool shared_is_name(const char *name)
{
    size_t len = strlen(name);

    return len > 2 && len < SHARED_NAME_ROOM / 2 && name[1] == '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == len;
}

/* --- Reading records --- */

static int by_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Cuts the lines up; false unless there are exactly SHARED_RECORD_LINES. */
static bool cut_record(char *text, const char **ret_lines)
{
    for (int i = 0; i < SHARED_RECORD_LINES; i++) {
        char *end = strchr(text, '\n');
        if (!end)
            return false;
        *end = '\0';
        ret_lines[i] = text;
        text = end + 1;
    }
    return !*text;
}

struct sync {
    struct shared_store *store;
    const char **known; /* sorted */
    bool *is_there;     /* for each of them */
    size_t count;
    struct buf *strings;
    uint32_t string_count;
    bool is_full;
    struct cay_error *err;
};

/* Adds it to the reply.  What is no record is passed over. */
static int add_record(struct sync *sync, const char *name)
{
    const char *lines[SHARED_RECORD_LINES];
    char text[SHARED_RECORD_MAX];
    size_t len;

    TRY(sync->store->calls->read_record(sync->store, name, text, &len, sync->err));
    if (len == 0 || len == sizeof text || memchr(text, '\0', len))
        return CAY_OK;
    text[len] = '\0';
    if (!cut_record(text, lines))
        return CAY_OK;
    if (sync->strings->len + len + SHARED_NAME_ROOM > CHANNEL_PACKET) {
        sync->is_full = true;
        return CAY_OK;
    }
    strings_add(sync->strings, name);
    for (int i = 0; i < SHARED_RECORD_LINES; i++)
        strings_add(sync->strings, lines[i]);
    sync->string_count += 1 + SHARED_RECORD_LINES;
    return CAY_OK;
}

static int note_record(void *cookie, const char *name)
{
    struct sync *sync = cookie;
    const char **found = sync->count ? bsearch(&name, sync->known, sync->count,
                                               sizeof *sync->known, by_text)
                                     : NULL;

    if (found)
        sync->is_there[found - sync->known] = true;
    return found || sync->is_full ? CAY_OK : add_record(sync, name);
}

/* The known ones that are gone: their name alone, after "-". */
static bool add_removed(const char **known, const bool *is_there, size_t count,
                        struct buf *strings, uint32_t *ret_count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_there[i])
            continue;
        if (strings->len + 2 * SHARED_NAME_ROOM > CHANNEL_PACKET)
            return false;
        strings_add(strings, "-");
        strings_add(strings, known[i]);
        *ret_count += 2;
    }
    return true;
}

static int sync_records(struct keeper *keeper, struct keeper_request *request,
                        struct cay_error *err)
{
    const char **known = request->strings + 2;
    size_t count = request->head.count - 2;
    AUTO_STORE store = NULL;
    AUTO_FREE bool *is_there = calloc(count + 1, sizeof *is_there);
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct reply reply = {.kind = REPLY_TEXT};

    if (!is_there)
        return cay_fail_memory(err, op);
    TRY(open_store(keeper, request->strings, false, &store, err));
    qsort(known, count, sizeof *known, by_text);
    struct sync sync = {.store = store,
                        .known = known,
                        .is_there = is_there,
                        .count = count,
                        .strings = &strings,
                        .err = err};
    TRY(store->calls->list(store, note_record, &sync, err));
    reply.count = sync.string_count;
    bool fits = !sync.is_full;
    if (fits)
        fits = add_removed(known, is_there, count, &strings, &reply.count);
    reply.numbers[SHARED_HAS_MORE] = !fits;
    (void)reply_send(request->channel, &reply, &strings, -1);
    return CAY_OK;
}

/* --- Archives --- */

static void end_hash(struct sha256_ctx *hash, char ret_hex[HEX + 1])
{
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_digest(hash, sizeof digest, digest);
    base16_encode_update(ret_hex, sizeof digest, digest);
    ret_hex[HEX] = '\0';
}

static int digest_file(int fd, char ret_hex[HEX + 1], uint64_t *ret_bytes,
                       struct cay_error *err)
{
    AUTO_FREE char *piece = malloc(PIECE);
    struct sha256_ctx hash;

    if (!piece)
        return cay_fail_memory(err, op);
    sha256_init(&hash);
    for (*ret_bytes = 0;;) {
        ssize_t got = io_pread(fd, piece, PIECE, *ret_bytes);
        if (got < 0)
            return cay_fail_errno(err, (int)-got, op, "the archive");
        if (got == 0)
            break;
        sha256_update(&hash, (size_t)got, (const uint8_t *)piece);
        *ret_bytes += (uint64_t)got;
    }
    end_hash(&hash, ret_hex);
    return CAY_OK;
}

static int put_archive(struct shared_store *store, const char *const *strings,
                       char ret_hex[HEX + 1], uint64_t *ret_bytes, struct cay_error *err)
{
    int fd;

    TRY(store->calls->new_archive(store, &fd, err));
    TRY(cay_snapshot_export(strings[SHARED_SOURCE], fd, err));
    TRY(digest_file(fd, ret_hex, ret_bytes, err));
    return store->calls->put_archive(store, strings[SHARED_NAME], ret_hex, *ret_bytes,
                                     err);
}

/* Strings: enum shared_string, then the first lines of the record. */
static int put(struct keeper *keeper, struct keeper_request *request,
               struct cay_error *err)
{
    const char *const *strings = request->strings;
    AUTO_STORE store = NULL;
    AUTO_BUF text = {.max = SHARED_RECORD_MAX - 1}, strings_out = {.max = HEX + 1};
    struct reply reply = {.kind = REPLY_TEXT, .count = 1};
    char hex[HEX + 1];
    uint64_t bytes;

    if (request->head.count != SHARED_LINES + SHARED_RECORD_LINES - 1)
        return cay_fail(err, CAY_E_PROTOCOL, 0, op, NULL, "the request is malformed",
                        "restart the server; report a bug if it happens again");
    TRY(open_store(keeper, strings, true, &store, err));
    TRY(put_archive(store, strings, hex, &bytes, err));
    for (int i = 0; i < SHARED_RECORD_LINES - 1; i++)
        (void)buf_format(&text, "%s\n", strings[SHARED_LINES + i]);
    (void)buf_format(&text, "%s\n", hex);
    if (text.failed)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL, "the record is too large",
                        "use shorter names");
    int code = store->calls->put_record(store, strings[SHARED_NAME], &text, err);
    if (code) { /* it may be there all the same: only the reply was lost */
        (void)!store->calls->remove(store, strings[SHARED_NAME], NULL);
        return code;
    }
    strings_add(&strings_out, hex);
    reply.numbers[SHARED_BYTES] = (int64_t)bytes;
    (void)reply_send(request->channel, &reply, &strings_out, -1);
    return CAY_OK;
}

/* The archive is copied and checked as a whole before anything in it is read. */
static int get(struct keeper *keeper, struct keeper_request *request,
               struct cay_error *err)
{
    const char *const *strings = request->strings;
    AUTO_STORE store = NULL;
    struct reply reply = {.kind = REPLY_DONE};
    char hex[HEX + 1];
    uint64_t bytes;

    TRY(open_store(keeper, strings, false, &store, err));
    AUTO_FD copy = open(keeper->options->home, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (copy < 0)
        return cay_fail_errno(err, errno, op, "the copy of the archive");
    TRY(store->calls->fetch(store, strings[SHARED_NAME], copy, err));
    /* The process that reads the archive is a copy of this one. */
    close_store(&store);
    store = NULL;
    bucket_drop_access();
    TRY(digest_file(copy, hex, &bytes, err));
    if (strcmp(hex, strings[SHARED_LINES]) != 0)
        return cay_fail(err, CAY_E_IO, 0, op, NULL,
                        "the archive of the template does not match its digest",
                        "create it again; what the servers share has a damaged file: %s",
                        strings[SHARED_NAME]);
    if (lseek(copy, 0, SEEK_SET) != 0)
        return cay_fail_errno(err, errno, op, "the copy of the archive");
    int code = cay_snapshot_import(copy, strings[SHARED_SOURCE], NULL, err);
    if (code && code != CAY_E_EXISTS)
        return code;
    reply.numbers[SHARED_BYTES] = (int64_t)bytes;
    (void)reply_send(request->channel, &reply, NULL, -1);
    return CAY_OK;
}

int keeper_remove_shared(const struct keeper *keeper, const char *const *strings,
                         bool removes, struct cay_error *err)
{
    AUTO_STORE store = NULL;

    TRY(open_store(keeper, strings, false, &store, err));
    return removes ? store->calls->remove(store, strings[SHARED_NAME], err) : CAY_OK;
}

int keeper_put_record(const struct keeper *keeper, const char *const *strings,
                      const struct buf *text, struct cay_error *err)
{
    AUTO_STORE store = NULL;

    TRY(open_store(keeper, strings, true, &store, err));
    return store->calls->put_record(store, strings[SHARED_NAME], text, err);
}

int keeper_op_shared(struct keeper *keeper, struct keeper_request *request,
                     struct cay_error *err)
{
    enum op which = (enum op)request->head.op;
    int code = which == OP_SHARED_SYNC  ? sync_records(keeper, request, err)
               : which == OP_SHARED_PUT ? put(keeper, request, err)
                                        : get(keeper, request, err);

    if (code)
        (void)reply_send_error(request->channel, 0, err);
    _exit(0);
}
