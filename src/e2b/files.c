/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/api.h"
#include "e2b/envd.h"
#include "e2b/reply.h"
#include "e2b/script.h"
#include "json/json.h"

enum {
    LISTING_MAX = 256 << 20,
    DEPTH_MAX = 4096,
    BODY_MAX = 64 << 10,
    TARGET_MAX = 64 << 10,
    TAR_OUTPUT_MAX = 256 << 20
};

/* --- Stat and links --- */

static int look_up(struct e2b *e2b, const char *op, const char *user, const char *path,
                   char **ret_whole, struct e2b_entry *ret_entry, struct cay_error *err)
{
    int code = e2b_path(e2b, op, path, ret_whole, err);

    e2b_api_keep_alive(e2b, UINT64_MAX);
    return code ? code : e2b_envd_stat(e2b, op, user, *ret_whole, path, ret_entry, err);
}

static int stat_file(void *cookie, const char *user, const char *path, bool no_follow,
                     struct cay_stat *ret_stat, struct cay_error *err)
{
    static const char op[] = "files.stat";
    AUTO_FREE char *whole = NULL;
    struct e2b_entry entry;

    int code = look_up(cookie, op, user, path, &whole, &entry, err);
    if (code)
        return code;
    if (no_follow && (entry.is_link || !entry.stat.type)) {
        entry.stat.type = CAY_TYPE_LINK;
        entry.stat.mode = 0777;
    }
    if (!entry.stat.type)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, path,
                        "the target of the symbolic link does not exist",
                        "create the target, or stat the link itself");
    *ret_stat = entry.stat;
    return CAY_OK;
}

static int fail_not_link(const char *op, const char *path, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, path, "not a symbolic link",
                    "stat shows the type of the file");
}

/* envd reports the file at the end of a chain of links; readlink(1) inside prints what
 * the link itself contains. */
static int read_link(void *cookie, const char *user, const char *path, char **ret_target,
                     struct cay_error *err)
{
    static const char op[] = "files.read-link";
    AUTO_FREE char *whole = NULL;
    struct e2b_entry entry;
    int exit_code = 0;
    AUTO_BUF out = {0};

    int code = look_up(cookie, op, user, path, &whole, &entry, err);
    if (!code && !entry.is_link && entry.stat.type)
        code = fail_not_link(op, path, err);
    if (code)
        return code;
    const char *const argv[] = {"readlink", "-n", "--", whole, NULL};
    buf_init(&out, TARGET_MAX);
    code = e2b_script_run(cookie, &(struct e2b_script){.argv = argv, .user = user}, op,
                          &out, &exit_code, err);
    if (code)
        return code;
    if (exit_code || !out.len)
        return fail_not_link(op, path, err);
    *ret_target = buf_take(&out);
    return *ret_target ? CAY_OK : cay_fail_memory(err, op);
}

/* CAY_OK if the parent of the path is a directory. */
static int check_parent(struct e2b *e2b, const char *op, const char *user,
                        const char *whole, const char *path, struct cay_error *err)
{
    AUTO_FREE char *parent = strdup(whole);
    struct e2b_entry entry = {0};

    if (!parent)
        return cay_fail_memory(err, op);
    char *slash = strrchr(parent, '/');
    slash[slash == parent] = '\0';
    int code = e2b_envd_stat(e2b, op, user, parent, path, &entry, err);
    if (!code && entry.stat.type != CAY_TYPE_DIRECTORY)
        code = cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, op, path,
                        "the parent is not a directory", "choose another path");
    return code;
}

static int check_absent(struct e2b *e2b, const char *op, const char *user,
                        const char *whole, const char *path, struct cay_error *err)
{
    struct e2b_entry entry = {0};
    struct cay_error error;

    int code = e2b_envd_stat(e2b, op, user, whole, path, &entry, &error);
    if (code == CAY_OK)
        return cay_fail(err, CAY_E_EXISTS, 0, op, path, "the path exists already",
                        "choose another path, or remove the existing file");
    if (code == CAY_E_NOT_FOUND)
        return CAY_OK;
    if (err)
        *err = error;
    return code;
}

/* --- Mkdir, remove, move --- */

static int make_directory(void *cookie, const char *user, const char *path,
                          unsigned flags, struct cay_error *err)
{
    static const char op[] = "files.mkdir";
    const struct e2b_call call = {.op = op,
                                  .subject = path,
                                  .method = "filesystem.Filesystem/MakeDir",
                                  .user = user,
                                  .fallback = CAY_E_IO};
    struct e2b_entry entry = {0};
    struct e2b *e2b = cookie;
    struct cay_error error;
    AUTO_FREE char *whole = NULL;

    if (flags & ~(unsigned)(CAY_NAME_NO_PARENTS | CAY_NAME_EXIST_OK))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unknown flags",
                        "mkdir supports CAY_NAME_NO_PARENTS and CAY_NAME_EXIST_OK");
    int code = e2b_path(e2b, op, path, &whole, err);
    e2b_api_keep_alive(e2b, UINT64_MAX);
    if (!code && flags & CAY_NAME_NO_PARENTS)
        code = check_parent(e2b, op, user, whole, path, err);
    if (code)
        return code;
    code = e2b_call_texts(e2b, &call, (const char *const[]){"path", whole, NULL}, NULL,
                          &error);
    /* The existing file may be of another type. */
    if (code == CAY_E_EXISTS && flags & CAY_NAME_EXIST_OK &&
        e2b_envd_stat(e2b, op, user, whole, path, &entry, NULL) == CAY_OK &&
        entry.stat.type == CAY_TYPE_DIRECTORY)
        return CAY_OK;
    if (code == CAY_E_INVALID && check_absent(e2b, op, user, whole, path, err))
        return CAY_E_EXISTS;
    if (code && err)
        *err = error;
    return code;
}

static int remove_path(void *cookie, const char *user, const char *path, unsigned flags,
                       struct cay_error *err)
{
    static const char op[] = "files.delete";
    const struct e2b_call call = {.op = op,
                                  .subject = path,
                                  .method = "filesystem.Filesystem/Remove",
                                  .user = user,
                                  .fallback = CAY_E_IO};
    AUTO_FREE char *whole = NULL;
    struct e2b_entry entry;

    if (flags & ~(unsigned)CAY_NAME_RECURSIVE)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unknown flags",
                        "remove supports CAY_NAME_RECURSIVE");
    /* envd removes a file of any type, and reports success if there is none. */
    int code = look_up(cookie, op, user, path, &whole, &entry, err);
    if (code)
        return code;
    if (strcmp(whole, "/") == 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, path,
                        "the root directory cannot be removed", "name a path below it");
    if (!(flags & CAY_NAME_RECURSIVE) && !entry.is_link &&
        entry.stat.type == CAY_TYPE_DIRECTORY)
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, path, "is a directory",
                        "remove it recursively");
    return e2b_call_texts(cookie, &call, (const char *const[]){"path", whole, NULL}, NULL,
                          err);
}

static int move_path(void *cookie, const char *user, const char *source,
                     const char *destination, struct cay_error *err)
{
    static const char op[] = "files.move";
    const struct e2b_call call = {.op = op,
                                  .subject = source,
                                  .method = "filesystem.Filesystem/Move",
                                  .user = user,
                                  .fallback = CAY_E_IO};
    AUTO_FREE char *from = NULL;
    AUTO_FREE char *to = NULL;
    struct e2b_entry entry;

    int code = look_up(cookie, op, user, source, &from, &entry, err);
    if (!code)
        code = e2b_path(cookie, op, destination, &to, err);
    if (!code)
        code = check_absent(cookie, op, user, to, destination, err);
    if (code)
        return code;
    return e2b_call_texts(cookie, &call,
                          (const char *const[]){"source", from, "destination", to, NULL},
                          NULL, err);
}

/* --- List --- */

/* True if the path is below the directory.  The server is not trusted: in a download the
 * names of entries become names on the host. */
static bool is_below(const char *path, const char *directory)
{
    size_t len = strlen(directory);

    if (len == 1)
        len = 0;
    if (strncmp(path, directory, len) != 0 || path[len] != '/' || !path[len + 1])
        return false;
    for (const char *at = path + len; *at; at += strcspn(at + 1, "/") + 1) {
        size_t name = strcspn(at + 1, "/");
        if (name == 0 || (name <= 2 && strncmp(at + 1, "..", name) == 0))
            return false;
    }
    return true;
}

/* The listed directory: the caller's spelling, and the absolute path. */
struct top {
    const char *spelled, *whole;
};

/* The path of an entry in the caller's spelling, if that is absolute. */
static char *spell(const struct top *top, const char *path)
{
    const char *rest = path + (top->whole[1] ? strlen(top->whole) : 0);
    size_t len = strlen(top->spelled);

    if (*top->spelled != '/')
        return strdup(path);
    while (len && top->spelled[len - 1] == '/')
        len--;
    char *spelled = malloc(len + strlen(rest) + 1);
    if (spelled) {
        memcpy(spelled, top->spelled, len);
        memcpy(spelled + len, rest, strlen(rest) + 1);
    }
    return spelled;
}

static const char *read_entry(struct e2b *e2b, const json_t *json, const struct top *top,
                              struct cay_entry *ret_entry)
{
    struct e2b_entry entry;
    const char *wrong = e2b_entry_read(e2b, json, &entry);

    if (wrong)
        return wrong;
    if (!is_below(entry.path, top->whole))
        return "an entry is outside of the listed directory";
    if (entry.is_link || !entry.stat.type)
        entry.stat.type = CAY_TYPE_LINK;
    *ret_entry = (struct cay_entry){.path = spell(top, entry.path), .stat = entry.stat};
    return ret_entry->path ? NULL : "out of memory";
}

static int compare_entries(const void *left, const void *right)
{
    return strcmp(((const struct cay_entry *)left)->path,
                  ((const struct cay_entry *)right)->path);
}

static int read_listing(struct e2b *e2b, const json_t *list, const struct top *top,
                        struct cay_listing *ret_listing, struct cay_error *err)
{
    static const char op[] = "files.list";
    struct cay_listing listing = {0};
    const char *wrong =
        list && !json_is_array(list) ? "the entries are not an array" : NULL;
    size_t count = json_array_size(list);

    listing.entries = calloc(count + 1, sizeof *listing.entries);
    if (!listing.entries)
        return cay_fail_memory(err, op);
    for (; !wrong && listing.count < count; listing.count += !wrong)
        wrong = read_entry(e2b, json_array_get(list, listing.count), top,
                           &listing.entries[listing.count]);
    if (wrong) {
        cay_listing_done(&listing);
        return e2b_reply_malformed(op, top->spelled, wrong, err);
    }
    qsort(listing.entries, listing.count, sizeof *listing.entries, compare_entries);
    *ret_listing = listing;
    return CAY_OK;
}

static int fail_list(int code, const struct cay_error *error, const char *path,
                     struct cay_error *err)
{
    static const char op[] = "files.list";

    if (code == CAY_E_INVALID)
        return cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, op, path, "not a directory",
                        "list the directory that contains it");
    /* One name that is not UTF-8 makes envd fail to encode the whole listing.  (Cay's own
     * server replaces such bytes by U+FFFD.) */
    if (code == CAY_E_IO && strcasestr(error->message, "UTF-8"))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, path,
                        "the directory contains a file name that is not UTF-8",
                        "rename that file in the sandbox, for example with mv");
    if (err)
        *err = *error;
    return code;
}

static int list_directory(void *cookie, const char *user, const char *path,
                          uint32_t depth, struct cay_listing *ret_listing,
                          struct cay_error *err)
{
    static const char op[] = "files.list";
    const struct e2b_call call = {.op = op,
                                  .subject = path,
                                  .method = "filesystem.Filesystem/ListDir",
                                  .user = user,
                                  .repeatable = true,
                                  .fallback = CAY_E_IO,
                                  .reply_max = LISTING_MAX};
    AUTO_FREE char *whole = NULL;
    AUTO_JSON reply = NULL;
    struct cay_error error;
    struct json json;
    AUTO_BUF body = {0};

    int code = e2b_path(cookie, op, path, &whole, err);
    if (code)
        return code;
    e2b_api_keep_alive(cookie, UINT64_MAX);
    buf_init(&body, BODY_MAX);
    json_to_buf(&json, &body);
    json_put_object(&json);
    json_set_text(&json, "path", whole);
    json_set_uint(&json, "depth", depth == 0 || depth > DEPTH_MAX ? DEPTH_MAX : depth);
    json_put_end(&json);
    code = e2b_call(cookie, &call, &body, &reply, &error);
    if (code)
        return fail_list(code, &error, path, err);
    return read_listing(cookie, json_object_get(reply, "entries"),
                        &(const struct top){path, whole}, ret_listing, err);
}

/* --- Content --- */

/* Waits if the caller's descriptor is non-blocking. */
static bool try_again(int fd, short events)
{
    struct pollfd one = {.fd = fd, .events = events};

    return errno == EINTR || (errno == EAGAIN && poll(&one, 1, -1) >= 0);
}

/* Sends the request and checks the reply.  `error` points to the errno of the local
 * descriptor. */
static int transfer(struct e2b *e2b, struct e2b_request *request, const int *error,
                    const char *user, const char *whole, const char *path,
                    struct cay_error *err)
{
    struct e2b_entry entry;

    int code = e2b_http_send(&e2b->http, request, e2b->settings.retries, UINT64_MAX, err);
    if (*error)
        return cay_fail_errno(err, *error, request->op, path);
    if (!code)
        code = e2b_envd_check(e2b, request, path, CAY_E_IO, err);
    /* envd's error for a directory is no more specific than a bad request. */
    if (code == CAY_E_INVALID &&
        e2b_envd_stat(e2b, request->op, user, whole, path, &entry, NULL) == CAY_OK &&
        entry.stat.type != CAY_TYPE_FILE)
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, request->op, path, "not a file",
                        "list the directory to see its files");
    return code;
}

struct target {
    int fd;
    int error;
};

static enum e2b_verdict write_to_fd(void *cookie, const char *data, size_t len)
{
    struct target *target = cookie;

    while (len > 0) {
        ssize_t done = write(target->fd, data, len);
        if (done < 0 && !try_again(target->fd, POLLOUT)) {
            target->error = errno;
            return E2B_ABORT;
        }
        data += done > 0 ? done : 0;
        len -= done > 0 ? (size_t)done : 0;
    }
    return E2B_ACCEPT;
}

static int read_file(void *cookie, const char *user, const char *path, int fd,
                     struct cay_error *err)
{
    static const char op[] = "files.read";
    struct e2b *e2b = cookie;
    struct target target = {.fd = fd};
    AUTO_FREE char *whole = NULL;
    E2B_REQUEST request = {0};

    int code = e2b_path(e2b, op, path, &whole, err);
    if (code)
        return code;
    e2b_api_keep_alive(e2b, UINT64_MAX);
    e2b_envd_file_request(e2b, &request, op, "GET", e2b_envd_user(e2b, user), whole);
    request.on_body = write_to_fd;
    request.cookie = &target;
    request.repeatable = true;
    return transfer(e2b, &request, &target.error, user, whole, path, err);
}

/* The head and the tail enclose the content in a multipart form, for old versions. */
struct source {
    int fd;
    int64_t left; /* -1: until the end */
    int error;
    char head[256], tail[64];
    size_t head_at, tail_at;
};

static size_t copy_some(const char *text, size_t *at, char *data, size_t room)
{
    size_t len = strlen(text + *at);

    if (len > room)
        len = room;
    memcpy(data, text + *at, len);
    *at += len;
    return len;
}

static ssize_t read_from_fd(struct source *source, char *data, size_t room)
{
    if (source->left >= 0 && (uint64_t)source->left < room)
        room = (size_t)source->left;
    for (;;) {
        ssize_t got = room ? read(source->fd, data, room) : 0;
        if (got < 0 && try_again(source->fd, POLLIN))
            continue;
        if (got < 0 || (got == 0 && source->left > 0)) {
            source->error = got < 0 ? errno : ESTALE; /* the file was truncated */
            return -1;
        }
        source->left -= source->left >= 0 ? got : 0;
        return got;
    }
}

static ssize_t read_source(void *cookie, char *data, size_t room)
{
    struct source *source = cookie;
    size_t len = copy_some(source->head, &source->head_at, data, room);

    if (len)
        return (ssize_t)len;
    ssize_t got = read_from_fd(source, data, room);
    return got ? got : (ssize_t)copy_some(source->tail, &source->tail_at, data, room);
}

/* The rest of a regular file; -1 for a pipe. */
static int64_t length_of(int fd)
{
    struct stat st;
    off_t at = lseek(fd, 0, SEEK_CUR);

    if (at < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return -1;
    return st.st_size > at ? st.st_size - at : 0;
}

static void set_body(const struct e2b *e2b, struct e2b_request *request,
                     struct source *source)
{
    uint64_t number = 0;
    char type[128];

    request->read_body = read_source;
    request->cookie = source;
    request->read_body_len = source->left;
    if (e2b->version >= E2B_HAS_PLAIN_UPLOAD) {
        e2b_request_header(request, "Content-Type", "application/octet-stream");
        return;
    }
    (void)!getrandom(&number, sizeof number, 0);
    snprintf(type, sizeof type, "multipart/form-data; boundary=cay-%016llx",
             (unsigned long long)number);
    e2b_request_header(request, "Content-Type", type);
    snprintf(source->head, sizeof source->head,
             "--cay-%016llx\r\nContent-Disposition: form-data; name=\"file\"; "
             "filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\n",
             (unsigned long long)number);
    snprintf(source->tail, sizeof source->tail, "\r\n--cay-%016llx--\r\n",
             (unsigned long long)number);
    if (source->left >= 0)
        request->read_body_len += (int64_t)(strlen(source->head) + strlen(source->tail));
}

static int write_file(void *cookie, const char *user, const char *path, int fd,
                      unsigned flags, struct cay_error *err)
{
    static const char op[] = "files.write";
    const unsigned known = CAY_WRITE_IN_PLACE | CAY_WRITE_NEW | CAY_WRITE_NO_PARENTS;
    struct e2b *e2b = cookie;
    struct source source = {.fd = fd, .left = length_of(fd)};
    AUTO_FREE char *whole = NULL;
    E2B_REQUEST request = {0};

    int code = e2b_path(e2b, op, path, &whole, err);
    if (!code && flags & ~known)
        code = cay_fail(err, CAY_E_UNSUPPORTED, 0, op, path,
                        "the E2B protocol supports neither appending nor durable writes",
                        "write the whole file");
    if (!code && flags & CAY_WRITE_NEW)
        code = check_absent(e2b, op, user, whole, path, err);
    if (!code && flags & CAY_WRITE_NO_PARENTS)
        code = check_parent(e2b, op, user, whole, path, err);
    if (code)
        return code;
    e2b_api_keep_alive(e2b, UINT64_MAX);
    e2b_envd_file_request(e2b, &request, op, "POST", e2b_envd_user(e2b, user), whole);
    set_body(e2b, &request, &source);
    return transfer(e2b, &request, &source.error, user, whole, path, err);
}

/* --- Upload of a directory --- */

/* Counts a line of `tar -vv`: "-rw-r--r-- user/group 123 2026-01-31 10:00 name". */
static void count_line(const char *line, struct cay_tar_result *result)
{
    bool is_file = *line == '-';

    if (!is_file && *line != 'l' && *line != 'h')
        return;
    result->entries++;
    result->files += *line != 'l';
    for (int field = 0; field < 2; field++) {
        line += strcspn(line, " \n");
        line += strspn(line, " ");
    }
    if (is_file && isdigit((unsigned char)*line))
        result->bytes += strtoull(line, NULL, 10);
}

static int unpack(struct e2b *e2b, const char *user, const char *archive,
                  const char *directory, struct cay_tar_result *result,
                  struct cay_error *err)
{
    static const char op[] = "files.import";
    const char *const argv[] = {"tar", "-x",    "-p", "-vv",     "--no-same-owner",
                                "-f",  archive, "-C", directory, NULL};
    const struct e2b_script script = {
        .argv = argv, .user = user, .timeout_ms = E2B_FILES_MS};
    int exit_code = 0;
    AUTO_BUF out;

    buf_init(&out, TAR_OUTPUT_MAX);
    int code = e2b_script_run(e2b, &script, op, &out, &exit_code, err);
    if (code)
        return code;
    if (exit_code == 126 || exit_code == 127)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, e2b->id,
                        "the sandbox has no tar program", "copy the files one by one");
    if (exit_code)
        return cay_fail(err, CAY_E_IO, 0, op, directory, "tar failed in the sandbox",
                        "check the free space and the permissions of the directory");
    for (const char *line = out.data; line && *line;) {
        count_line(line, result);
        line = strchr(line, '\n');
        line += line != NULL;
    }
    return CAY_OK;
}

/* Uploads a tar archive and unpacks it inside: one upload and one command instead of a
 * request for each file, including modes and links.  Directories are not counted. */
static int import_tar(void *cookie, const char *user, const char *path, int fd,
                      struct cay_tar_result *ret_result, struct cay_error *err)
{
    static const char op[] = "files.import";
    struct e2b *e2b = cookie;
    struct cay_tar_result result = {0};
    AUTO_FREE char *whole = NULL;
    uint64_t number[2];
    char archive[64];

    if (getrandom(number, sizeof number, 0) != sizeof number)
        return cay_fail_errno(err, errno, op, "getrandom");
    snprintf(archive, sizeof archive, "/tmp/.cay-%016llx%016llx.tar",
             (unsigned long long)number[0], (unsigned long long)number[1]);
    int code = e2b_path(e2b, op, path, &whole, err);
    if (!code)
        code = make_directory(e2b, user, whole, CAY_NAME_EXIST_OK, err);
    if (code)
        return code;
    code = write_file(e2b, user, archive, fd, CAY_WRITE_NEW, err);
    if (!code)
        code = unpack(e2b, user, archive, whole, &result, err);
    (void)remove_path(e2b, user, archive, 0, NULL);
    if (!code)
        *ret_result = result;
    return code;
}

const struct cay_file_backend e2b_files = {
    .size = sizeof e2b_files,
    .stat = stat_file,
    .read = read_file,
    .write = write_file,
    .list = list_directory,
    .mkdir = make_directory,
    .remove = remove_path,
    .move = move_path,
    .import_tar = import_tar,
    .read_link = read_link,
};
