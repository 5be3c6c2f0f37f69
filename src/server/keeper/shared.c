/* SPDX-License-Identifier: Apache-2.0 */

/* The directory that several servers share (--shared), for a keeper without a sandbox,
 * which exits after the reply: the broker must not wait for a disk of another machine.
 *
 *     cay-shared              its id, so that an empty mount point is no empty directory
 *     tenant-NAME/records/ID  what there is: lines of text, at most RECORD_MAX bytes
 *     tenant-NAME/files/ID    the archive of cay_snapshot_export()
 *
 * Both are complete before they get their names, and never change afterwards.  A record
 * comes after its archive and goes before it.  The archive counts only if its SHA-256 is
 * that of the record. */
#include <errno.h>
#include <fcntl.h>
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/snapshot.h"
#include "server/keeper/keeper.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/state-home.h"

static const char op[] = "server.shared";

enum {
    RECORD_MAX = 2048,
    PIECE = 128 << 10,
    HEX = 2 * SHA256_DIGEST_SIZE,
    NAME_ROOM = 80,
    STALE_S = 24 * 3600 /* of what a killed process left */
};

static int fail_away(int error, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNAVAILABLE, error, op, NULL,
                    "the shared directory cannot be used",
                    "try again later; the operator finds the cause in the log: %s",
                    cay_errno_words(error));
}

/* --- The directory --- */

static int open_directory(int parent, const char *name, bool make, int *ret_fd,
                          struct cay_error *err)
{
    int made = make ? state_home_make(parent, name) : 0;

    if (made < 0 && made != -EEXIST)
        return fail_away(-made, err);
    *ret_fd = path_open(parent, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    return *ret_fd >= 0 || (*ret_fd == -ENOENT && !make) ? CAY_OK
                                                         : fail_away(-*ret_fd, err);
}

struct place {
    int records, files; /* -1: the tenant has none yet */
};

static inline void place_done(struct place *place)
{
    auto_close(&place->records);
    auto_close(&place->files);
}
#define AUTO_PLACE __attribute__((cleanup(place_done))) struct place

/* Strings: the id of the directory, and the tenant. */
static int open_place(const struct keeper *keeper, const char *const *strings, bool make,
                      struct place *ret_place, struct cay_error *err)
{
    char id[KEEPER_SHARED_ID + 1], name[TENANT_MAX + 8];
    AUTO_FD root = open(keeper->options->shared, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD tenant = -1;

    if (root < 0)
        return fail_away(errno, err);
    if (io_read_text(root, KEEPER_SHARED_MARK, id, sizeof id) != KEEPER_SHARED_ID ||
        strcmp(id, strings[0]) != 0)
        return fail_away(ENOENT, err); /* it is not mounted */
    snprintf(name, sizeof name, "tenant-%s", strings[1]);
    TRY(open_directory(root, name, make, &tenant, err));
    if (tenant < 0)
        return CAY_OK;
    TRY(open_directory(tenant, "records", make, &ret_place->records, err));
    return open_directory(tenant, "files", make, &ret_place->files, err);
}

/* "s.ID": other names are no records. */
static bool is_name(const char *name)
{
    size_t len = strlen(name);

    return len > 2 && len < NAME_ROOM / 2 && name[1] == '.' &&
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

/* Adds it to the reply: false if that is full.  What is no record is passed over. */
static bool add_record(int records, const char *name, struct buf *strings,
                       uint32_t *count)
{
    const char *lines[SHARED_RECORD_LINES];
    char text[RECORD_MAX];
    AUTO_FD fd = path_open(records, name, O_RDONLY | O_NONBLOCK, 0, PATH_PLAIN);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return true; /* it was just removed */
    ssize_t len = io_pread(fd, text, sizeof text - 1, 0);
    if (len <= 0 || memchr(text, '\0', (size_t)len))
        return true;
    text[len] = '\0';
    if (!cut_record(text, lines))
        return true;
    if (strings->len + (size_t)len + NAME_ROOM > CHANNEL_PACKET)
        return false;
    strings_add(strings, name);
    for (int i = 0; i < SHARED_RECORD_LINES; i++)
        strings_add(strings, lines[i]);
    *count += 1 + SHARED_RECORD_LINES;
    return true;
}

/* The known ones that are gone: their name alone, after "-". */
static bool add_removed(const char **known, const bool *is_there, size_t count,
                        struct buf *strings, uint32_t *ret_count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_there[i])
            continue;
        if (strings->len + 2 * NAME_ROOM > CHANNEL_PACKET)
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
    AUTO_PLACE place = {-1, -1};
    AUTO_FREE bool *is_there = calloc(count + 1, sizeof *is_there);
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct reply reply = {.kind = REPLY_TEXT};

    if (!is_there)
        return cay_fail_memory(err, op);
    TRY(open_place(keeper, request->strings, false, &place, err));
    qsort(known, count, sizeof *known, by_text);
    AUTO_DIR list = place.records >= 0 ? path_list(place.records) : NULL;
    if (!list && place.records >= 0)
        return fail_away(errno, err);
    bool fits = true;
    errno = 0;
    for (struct dirent *entry; (entry = path_next(list)); errno = 0) {
        const char *name = entry->d_name;
        const char **found =
            count ? bsearch(&name, known, count, sizeof *known, by_text) : NULL;
        if (found)
            is_there[found - known] = true;
        else if (fits && is_name(name))
            fits = add_record(place.records, name, &strings, &reply.count);
    }
    if (errno)
        return fail_away(errno, err);
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

/* The digest of a file, which is also written to `to` unless that is -1. */
static int copy_hashed(int from, int to, char ret_hex[HEX + 1], uint64_t *ret_bytes,
                       struct cay_error *err)
{
    AUTO_FREE char *piece = malloc(PIECE);
    struct sha256_ctx hash;

    if (!piece)
        return cay_fail_memory(err, op);
    sha256_init(&hash);
    for (*ret_bytes = 0;;) {
        ssize_t got = io_pread(from, piece, PIECE, *ret_bytes);
        if (got < 0)
            return fail_away((int)-got, err);
        if (got == 0)
            break;
        sha256_update(&hash, (size_t)got, (const uint8_t *)piece);
        int error = to >= 0 ? io_write(to, piece, (size_t)got) : 0;
        if (error)
            return cay_fail_errno(err, -error, op, "the copy of the archive");
        *ret_bytes += (uint64_t)got;
    }
    end_hash(&hash, ret_hex);
    return CAY_OK;
}

/* A new file without its name yet; the temporary one is in `ret_name`. */
static int make_file(int dir, char ret_name[NAME_ROOM], int *ret_fd,
                     struct cay_error *err)
{
    unsigned long long number;

    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return cay_fail_errno(err, errno, op, "getrandom");
    snprintf(ret_name, NAME_ROOM, ".new-%016llx", number);
    *ret_fd = path_open(dir, ret_name, O_RDWR | O_CREAT | O_EXCL, 0600, PATH_PLAIN);
    return *ret_fd < 0 ? fail_away(-*ret_fd, err) : CAY_OK;
}

/* On the disk, and then under its name. */
static int publish(int dir, int fd, const char *temporary, const char *name,
                   struct cay_error *err)
{
    int error = fsync(fd) != 0 ? errno : 0;

    if (!error)
        error = -path_rename(dir, temporary, dir, name, 0);
    if (!error && fsync(dir) != 0)
        error = errno;
    return error ? fail_away(error, err) : CAY_OK;
}

/* What killed processes left, by the clock of the directory itself. */
static void sweep(const struct place *place, int fd)
{
    AUTO_DIR list = path_list(place->files);
    struct stat now, st;

    if (fstat(fd, &now) != 0)
        return;
    for (struct dirent *entry; (entry = path_next(list));) {
        const char *name = entry->d_name;
        bool is_left = strncmp(name, ".new-", 5) == 0 ||
                       (is_name(name) && faccessat(place->records, name, F_OK, 0) != 0 &&
                        errno == ENOENT);
        if (is_left && fstatat(place->files, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && now.st_mtime - st.st_mtime > STALE_S)
            (void)unlinkat(place->files, name, 0);
    }
}

static int put_archive(const struct place *place, const char *name, const char *source,
                       char ret_hex[HEX + 1], uint64_t *ret_bytes, struct cay_error *err)
{
    char temporary[NAME_ROOM];
    int fd;

    TRY(make_file(place->files, temporary, &fd, err));
    int code = cay_snapshot_export(source, fd, err);
    if (!code)
        code = copy_hashed(fd, -1, ret_hex, ret_bytes, err);
    if (!code)
        code = publish(place->files, fd, temporary, name, err);
    if (code)
        (void)unlinkat(place->files, temporary, 0);
    else
        sweep(place, fd);
    (void)close(fd);
    return code;
}

static int put_record(const struct place *place, const char *name, const struct buf *text,
                      struct cay_error *err)
{
    char temporary[NAME_ROOM];
    int fd;

    TRY(make_file(place->records, temporary, &fd, err));
    int error = io_write(fd, text->data, text->len);
    int code = error ? fail_away(-error, err)
                     : publish(place->records, fd, temporary, name, err);
    if (code)
        (void)unlinkat(place->records, temporary, 0);
    (void)close(fd);
    return code;
}

/* Strings: enum shared_string, then the first lines of the record. */
static int put(struct keeper *keeper, struct keeper_request *request,
               struct cay_error *err)
{
    const char *const *strings = request->strings;
    AUTO_PLACE place = {-1, -1};
    AUTO_BUF text = {.max = RECORD_MAX - 1}, strings_out = {.max = HEX + 1};
    struct reply reply = {.kind = REPLY_TEXT, .count = 1};
    char hex[HEX + 1];
    uint64_t bytes;

    if (request->head.count != SHARED_LINES + SHARED_RECORD_LINES - 1)
        return cay_fail(err, CAY_E_PROTOCOL, 0, op, NULL, "the request is malformed",
                        "restart the server; report a bug if it happens again");
    TRY(open_place(keeper, strings, true, &place, err));
    TRY(put_archive(&place, strings[SHARED_NAME], strings[SHARED_SOURCE], hex, &bytes,
                    err));
    for (int i = 0; i < SHARED_RECORD_LINES - 1; i++)
        (void)buf_format(&text, "%s\n", strings[SHARED_LINES + i]);
    (void)buf_format(&text, "%s\n", hex);
    if (text.failed)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL, "the record is too large",
                        "use shorter names");
    TRY(put_record(&place, strings[SHARED_NAME], &text, err));
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
    AUTO_PLACE place = {-1, -1};
    struct reply reply = {.kind = REPLY_DONE};
    char hex[HEX + 1];
    uint64_t bytes;

    TRY(open_place(keeper, strings, false, &place, err));
    AUTO_FD from = place.files < 0 ? -ENOENT
                                   : path_open(place.files, strings[SHARED_NAME],
                                               O_RDONLY | O_NONBLOCK, 0, PATH_PLAIN);
    if (from == -ENOENT)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL, "there is no such snapshot",
                        "list the snapshots");
    if (from < 0)
        return fail_away(-from, err);
    AUTO_FD copy = open(keeper->options->home, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (copy < 0)
        return cay_fail_errno(err, errno, op, "the copy of the archive");
    TRY(copy_hashed(from, copy, hex, &bytes, err));
    if (strcmp(hex, strings[SHARED_LINES]) != 0)
        return cay_fail(err, CAY_E_IO, 0, op, NULL,
                        "the archive of the snapshot does not match its digest",
                        "create the snapshot again; the shared directory has a damaged "
                        "file: %s",
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
    AUTO_PLACE place = {-1, -1};
    const char *name = strings[SHARED_NAME];

    TRY(open_place(keeper, strings, false, &place, err));
    if (!removes)
        return CAY_OK;
    if (place.records >= 0 && unlinkat(place.records, name, 0) != 0 && errno != ENOENT)
        return fail_away(errno, err);
    if (place.records >= 0 && fsync(place.records) != 0)
        return fail_away(errno, err);
    if (place.files >= 0) /* else the sweep removes it */
        (void)unlinkat(place.files, name, 0);
    return CAY_OK;
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
