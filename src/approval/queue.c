/* SPDX-License-Identifier: Apache-2.0 */
/* The queue is the directory STATE/approvals, which is locked for each change:
 *
 *   ID         a request: lines of its texts, an empty line, its content
 *   ID.reply   "yes" or "no", and in the next line a note
 *   rules      see rules.h
 *
 * ID is the SHA-256 of kind, scope, subject, summary and content.  A reply is valid only
 * beside its request, and both are removed by the program that uses it, or when the
 * request expires. */
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approval/rules.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/state-home.h"

static const char op[] = "approval";

#define DIRECTORY "approvals"
#define NEW       ".new"

enum {
    ID_LEN = CAY_PENDING_ID_MAX - 1,
    HEAD_MAX = 8 * CAY_PENDING_TEXT_MAX + 256, /* of a file: all but the content */
    FILE_MAX = CAY_PENDING_CONTENT_MAX + HEAD_MAX,
    WAIT_STEP_MS = 1000,
    NAME_ROOM = CAY_PENDING_ID_MAX + 8
};
#define TIMEOUT_MAX_MS (UINT64_C(7) * 24 * 3600 * 1000)

/* --- Files --- */

/* Of cay_pending_use(); "": the one of the state directory. */
static char other[PATH_MAX];

static int open_usual(struct cay_error *err)
{
    int home = state_home_open(true, err);

    if (home < 0)
        return home;
    AUTO_FD parent = home;
    int error = -state_home_make(parent, DIRECTORY);
    if (error && error != EEXIST)
        return cay_fail_errno(err, error, op, DIRECTORY);
    int dir = openat(parent, DIRECTORY, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return dir < 0 ? cay_fail_errno(err, errno, op, DIRECTORY) : dir;
}

static int open_unlocked(struct cay_error *err)
{
    if (!*other)
        return open_usual(err);
    if (mkdir(other, 0700) != 0 && errno != EEXIST)
        return cay_fail_errno(err, errno, op, other);
    int dir = open(other, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return dir < 0 ? cay_fail_errno(err, errno, op, other) : dir;
}

int cay_pending_use(const char *path, struct cay_error *err)
{
    if (path && (*path != '/' || strlen(path) + sizeof "/rules" > sizeof other))
        return cay_fail(err, CAY_E_INVALID, 0, op, path, "invalid directory of a queue",
                        "use an absolute path");
    cay_copy_text(other, sizeof other, path ? path : "");
    return CAY_OK;
}

static int open_queue(struct cay_error *err)
{
    int opened = open_unlocked(err);

    if (opened < 0)
        return opened;
    AUTO_FD dir = opened;
    int code = state_home_check(dir, DIRECTORY, 0077, err);
    while (!code && flock(dir, LOCK_EX) != 0)
        if (errno != EINTR)
            return cay_fail_errno(err, errno, op, DIRECTORY);
    return code ? code : TAKE_FD(dir);
}

/* The file, of at most `max` bytes, or its first `room` bytes.  NULL and errno; 0: too
 * large.  A NUL follows the bytes. */
static char *read_first(int dir, const char *name, size_t max, size_t room,
                        size_t *ret_len, size_t *ret_size)
{
    AUTO_FD fd = path_open(dir, name, O_RDONLY | O_NONBLOCK, 0, PATH_PLAIN);
    struct stat st;

    if (fd < 0) {
        errno = -fd;
        return NULL;
    }
    if (fstat(fd, &st) != 0)
        return NULL;
    errno = 0;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > max)
        return NULL;
    size_t wanted = (size_t)st.st_size < room ? (size_t)st.st_size : room;
    char *text = malloc(wanted + 1);
    ssize_t len = text ? io_pread(fd, text, wanted, 0) : -1;
    if (len < 0) {
        free(text);
        return NULL;
    }
    text[len] = '\0';
    *ret_len = (size_t)len;
    *ret_size = (size_t)st.st_size;
    return text;
}

static char *read_file(int dir, const char *name, size_t max, size_t *ret_len)
{
    size_t size;

    return read_first(dir, name, max, max, ret_len, &size);
}

/* All of it or nothing, also after a power cut. */
static int write_file(int dir, const char *name, const void *data, size_t len,
                      struct cay_error *err)
{
    AUTO_FD fd =
        openat(dir, NEW, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : -io_write(fd, data, len);

    if (!error &&
        (fsync(fd) != 0 || renameat(dir, NEW, dir, name) != 0 || fsync(dir) != 0))
        error = errno;
    return error ? cay_fail_errno(err, error, op, "request") : CAY_OK;
}

static void reply_name(const char *id, char ret_name[NAME_ROOM])
{
    snprintf(ret_name, NAME_ROOM, "%.*s.reply", ID_LEN, id);
}

static void drop(int dir, const char *id)
{
    char reply[NAME_ROOM];

    reply_name(id, reply);
    (void)unlinkat(dir, reply, 0);
    (void)unlinkat(dir, id, 0);
}

static bool is_id(const char *name)
{
    return strlen(name) == ID_LEN && strspn(name, "0123456789abcdef") == ID_LEN;
}

/* --- Requests --- */

static bool take_text(char **at, const char *key, char *ret_text, size_t room)
{
    size_t len = strlen(key);
    char *line = *at, *end = strchr(line, '\n');

    if (!end || strncmp(line, key, len) != 0 || line[len] != ' ')
        return false;
    *end = '\0';
    *at = end + 1;
    rules_unescape(line + len + 1);
    int used = snprintf(ret_text, room, "%s", line + len + 1);
    return used >= 0 && (size_t)used < room;
}

/* `size` is that of the file; `ret_at` is where the content begins in `text`. */
static bool parse(char *text, size_t size, const char *id,
                  struct cay_pending *ret_pending, char **ret_at)
{
    char created[24], expires[24], *at = text;
    struct cay_pending *pending = ret_pending;

    memset(pending, 0, sizeof *pending);
    if (!take_text(&at, "created", created, sizeof created) ||
        !take_text(&at, "expires", expires, sizeof expires) ||
        !take_text(&at, "kind", pending->kind, sizeof pending->kind) ||
        !take_text(&at, "scope", pending->scope, sizeof pending->scope) ||
        !take_text(&at, "subject", pending->subject, sizeof pending->subject) ||
        !take_text(&at, "summary", pending->summary, sizeof pending->summary) ||
        *at != '\n')
        return false;
    at++;
    memcpy(pending->id, id, CAY_PENDING_ID_MAX);
    pending->created_ms = strtoll(created, NULL, 10);
    pending->expires_ms = strtoll(expires, NULL, 10);
    pending->content_len = size - (size_t)(at - text);
    *ret_at = at;
    return true;
}

/* CAY_E_NOT_FOUND: there is none, or it has expired and is removed now.  `ret_content`
 * may be NULL: then the content is not read, which may be 256 MiB in all. */
static int load(int dir, const char *id, struct cay_pending *ret_pending,
                char **ret_content, struct cay_error *err)
{
    size_t len = 0, size = 0;
    char reply[NAME_ROOM], *at = NULL;
    AUTO_FREE char *text =
        read_first(dir, id, FILE_MAX, ret_content ? FILE_MAX : HEAD_MAX, &len, &size);

    if (!text && errno == ENOMEM)
        return cay_fail_memory(err, op);
    if (!text || (ret_content && len != size) ||
        !parse(text, size, id, ret_pending, &at) ||
        ret_pending->expires_ms <= clock_since_1970_ms()) {
        drop(dir, id);
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "no request has this id",
                        "cay approve list lists them");
    }
    reply_name(id, reply);
    ret_pending->is_decided = faccessat(dir, reply, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (ret_content) {
        *ret_content = malloc(ret_pending->content_len + 1);
        if (!*ret_content)
            return cay_fail_memory(err, op);
        memcpy(*ret_content, at, ret_pending->content_len + 1);
    }
    return CAY_OK;
}

static int compare(const void *a, const void *b)
{
    const struct cay_pending *one = a, *two = b;

    if (one->created_ms != two->created_ms)
        return one->created_ms < two->created_ms ? -1 : 1;
    return strcmp(one->id, two->id);
}

/* Those that have expired are removed. */
static int load_all(int dir, struct cay_pending **ret_list, size_t *ret_count,
                    struct cay_error *err)
{
    AUTO_DIR list = path_list(dir);
    AUTO_FREE struct cay_pending *all = calloc(CAY_PENDING_MAX, sizeof *all);
    size_t count = 0;

    if (!list || !all)
        return all ? cay_fail_errno(err, errno, op, DIRECTORY) : cay_fail_memory(err, op);
    for (struct dirent *entry; count < CAY_PENDING_MAX && (entry = path_next(list));)
        if (is_id(entry->d_name)) {
            int code = load(dir, entry->d_name, &all[count], NULL, NULL);
            if (code == CAY_E_NO_MEMORY)
                return cay_fail_memory(err, op);
            count += !code;
        }
    qsort(all, count, sizeof *all, compare);
    *ret_list = TAKE_PTR(all);
    *ret_count = count;
    return CAY_OK;
}

int cay_pending_list(struct cay_pending **ret_list, size_t *ret_count,
                     struct cay_error *err)
{
    AUTO_FD dir = open_queue(err);

    return dir < 0 ? dir : load_all(dir, ret_list, ret_count, err);
}

int cay_pending_find(const char *id, struct cay_pending *ret_pending, char **ret_content,
                     struct cay_error *err)
{
    AUTO_FD dir = open_queue(err);
    AUTO_FREE struct cay_pending *all = NULL;
    size_t count = 0, found = 0, matching = 0, len = strlen(id);

    if (dir < 0)
        return dir;
    TRY(load_all(dir, &all, &count, err));
    for (size_t i = 0; i < count; i++)
        if (len && strncmp(all[i].id, id, len) == 0) {
            found = i;
            matching++;
        }
    if (matching > 1)
        return cay_fail(err, CAY_E_INVALID, 0, op, id, "several requests begin so",
                        "give more letters of one");
    if (!matching)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "no request has this id",
                        "cay approve list lists them");
    return load(dir, all[found].id, ret_pending, ret_content, err);
}

/* --- Asking --- */

static void hash_text(struct sha256_ctx *hash, const char *text)
{
    sha256_update(hash, strlen(text) + 1, (const uint8_t *)text);
}

static void name_request(const struct cay_request *ask, const char *scope,
                         const char *summary, char ret_id[CAY_PENDING_ID_MAX])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx hash;

    sha256_init(&hash);
    hash_text(&hash, ask->kind);
    hash_text(&hash, scope);
    hash_text(&hash, ask->subject);
    hash_text(&hash, summary);
    if (ask->content_len)
        sha256_update(&hash, ask->content_len, ask->content);
    sha256_digest(&hash, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(ret_id + 2 * i, 3, "%02x", digest[i]);
}

static bool is_kind(const char *kind)
{
    size_t len = strlen(kind);

    return len && len < sizeof((struct cay_pending *)NULL)->kind &&
           strspn(kind, "abcdefghijklmnopqrstuvwxyz-") == len;
}

static int check(const struct cay_request *ask, const char *scope, const char *summary,
                 struct cay_error *err)
{
    if (!is_kind(ask->kind))
        return cay_fail(err, CAY_E_INVALID, 0, op, ask->kind, "invalid kind of a request",
                        "write up to 31 letters a-z and \"-\"");
    if (!*ask->subject)
        return cay_fail(err, CAY_E_INVALID, 0, op, ask->kind, "the subject is empty",
                        "name what is to be approved");
    if (strlen(scope) >= CAY_PENDING_TEXT_MAX ||
        strlen(ask->subject) >= CAY_PENDING_TEXT_MAX ||
        strlen(summary) >= CAY_PENDING_TEXT_MAX ||
        ask->content_len > CAY_PENDING_CONTENT_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, ask->kind,
                        "the request is too large to be shown",
                        "the limits are 4095 bytes of text and 1 MiB of content");
    if (ask->timeout_ms > TIMEOUT_MAX_MS)
        return cay_fail(err, CAY_E_INVALID, 0, op, "timeout", "the timeout is too long",
                        "the limit is 7 days");
    return CAY_OK;
}

/* Unreadable rules must not allow anything, nor hide a denial. */
static int apply_rules(int dir, const struct cay_request *ask, const char *scope,
                       enum cay_decision *ret_decision, struct cay_error *err)
{
    size_t len = 0;
    AUTO_FREE char *rules = read_file(dir, "rules", RULES_MAX, &len);

    *ret_decision = CAY_DECISION_NONE;
    if (!rules && errno != ENOENT)
        return errno ? cay_fail_errno(err, errno, op, "rules")
                     : cay_fail(err, CAY_E_LIMIT, 0, op, "rules",
                                "the file of rules is too large", "the limit is 1 MiB");
    if (rules)
        *ret_decision = rules_decide(rules, ask->kind, scope, ask->subject);
    return CAY_OK;
}

static int save(int dir, const char *id, const struct cay_request *ask, const char *scope,
                const char *summary, struct cay_error *err)
{
    AUTO_BUF text = {.max = FILE_MAX + 2 * CAY_PENDING_TEXT_MAX};
    uint64_t timeout = ask->timeout_ms ? ask->timeout_ms : CAY_PENDING_TIMEOUT_MS;
    int64_t now = clock_since_1970_ms(), expires = now + (int64_t)timeout;

    bool fits = buf_format(&text, "created %lld\nexpires %lld\nkind %s\nscope ",
                           (long long)now, (long long)expires, ask->kind) &&
                rules_put(&text, scope, false) && buf_text(&text, "\nsubject ") &&
                rules_put(&text, ask->subject, false) && buf_text(&text, "\nsummary ") &&
                rules_put(&text, summary, false) && buf_text(&text, "\n\n") &&
                buf_append(&text, ask->content, ask->content_len);
    return fits ? write_file(dir, id, text.data, text.len, err)
                : cay_fail_memory(err, op);
}

/* A descriptor of the locked queue; the summary is the caller's to free. */
static int begin(const struct cay_request *ask, char ret_id[CAY_PENDING_ID_MAX],
                 char **ret_summary, enum cay_decision *ret_decision,
                 struct cay_error *err)
{
    const char *scope = ask->scope ? ask->scope : "";

    if (ask->summary ? !(*ret_summary = strdup(ask->summary))
                     : asprintf(ret_summary, "%s: %s", ask->kind, ask->subject) < 0) {
        *ret_summary = NULL;
        return cay_fail_memory(err, op);
    }
    TRY(check(ask, scope, *ret_summary, err));
    name_request(ask, scope, *ret_summary, ret_id);
    int opened = open_queue(err);
    if (opened < 0)
        return opened;
    AUTO_FD dir = opened;
    TRY(apply_rules(dir, ask, scope, ret_decision, err));
    return TAKE_FD(dir);
}

int cay_pending_check(const struct cay_request *ask, char ret_id[CAY_PENDING_ID_MAX],
                      enum cay_decision *ret_decision, struct cay_error *err)
{
    char own[CAY_PENDING_ID_MAX];
    AUTO_FREE char *summary = NULL;
    AUTO_FD dir = begin(ask, ret_id ? ret_id : own, &summary, ret_decision, err);

    return dir < 0 ? dir : CAY_OK;
}

/* A program that requests ever more must leave room for those of other scopes. */
static int check_room(int dir, const char *kind, const char *scope, struct cay_error *err)
{
    AUTO_FREE struct cay_pending *all = NULL;
    size_t count = 0, own = 0;

    TRY(load_all(dir, &all, &count, err));
    for (size_t i = 0; i < count && *scope; i++)
        own += strcmp(all[i].scope, scope) == 0;
    if (count < CAY_PENDING_MAX && own < CAY_PENDING_SCOPE_MAX)
        return CAY_OK;
    return cay_fail(err, CAY_E_LIMIT, 0, op, kind, "too many requests wait for approval",
                    "the limits are %d, and %d of a scope; cay approve list lists them",
                    CAY_PENDING_MAX, CAY_PENDING_SCOPE_MAX);
}

int cay_pending_submit(const struct cay_request *ask, char ret_id[CAY_PENDING_ID_MAX],
                       enum cay_decision *ret_decision, struct cay_error *err)
{
    const char *scope = ask->scope ? ask->scope : "";
    AUTO_FREE char *summary = NULL;
    struct cay_pending same = {.is_decided = false};
    AUTO_FD dir = begin(ask, ret_id, &summary, ret_decision, err);

    if (dir < 0)
        return dir;
    if (*ret_decision != CAY_DECISION_NONE)
        return CAY_OK;
    int code = load(dir, ret_id, &same, NULL, NULL);
    if (code == CAY_E_NO_MEMORY)
        return cay_fail_memory(err, op);
    if (!code && same.is_decided)
        return CAY_OK;
    if (code)
        TRY(check_room(dir, ask->kind, scope, err));
    return save(dir, ret_id, ask, scope, summary, err);
}

/* --- Replies --- */

/* The reply, which is used up; NONE: there is none yet. */
static int take_reply(int dir, const char *id, enum cay_decision *ret_decision,
                      char note[CAY_NOTE_MAX], struct cay_error *err)
{
    struct cay_pending pending;
    char name[NAME_ROOM];
    size_t len = 0;

    *ret_decision = CAY_DECISION_NO;
    cay_copy_text(note, CAY_NOTE_MAX, "no reply in time");
    int code = load(dir, id, &pending, NULL, NULL);
    if (code)
        return code == CAY_E_NOT_FOUND ? CAY_OK : cay_fail_memory(err, op);
    reply_name(id, name);
    AUTO_FREE char *text = read_file(dir, name, 2 * CAY_NOTE_MAX, &len);
    if (!text) {
        *ret_decision = CAY_DECISION_NONE;
        *note = '\0';
        return CAY_OK;
    }
    char *line = strchr(text, '\n');
    cay_copy_text(note, CAY_NOTE_MAX, line ? line + 1 : "");
    if (strncmp(text, "yes\n", 4) == 0)
        *ret_decision = CAY_DECISION_YES;
    /* A reply that could be used twice must not be used at all. */
    if (unlinkat(dir, name, 0) != 0)
        return cay_fail_errno(err, errno, op, "reply");
    drop(dir, id);
    return CAY_OK;
}

static int look(const char *id, enum cay_decision *ret_decision, char note[CAY_NOTE_MAX],
                struct cay_error *err)
{
    AUTO_FD dir = open_queue(err);

    return dir < 0 ? dir : take_reply(dir, id, ret_decision, note, err);
}

/* A descriptor that is readable after a change of the queue; -1: there is only time. */
static int watch(void)
{
    char path[64];
    AUTO_FD dir = open_unlocked(NULL);
    AUTO_FD fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

    if (dir < 0 || fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d/.", dir);
    return inotify_add_watch(fd, path, IN_MOVED_TO | IN_DELETE | IN_ONLYDIR) < 0
               ? -1
               : TAKE_FD(fd);
}

int cay_pending_wait(const char *id, uint64_t wait_ms, enum cay_decision *ret_decision,
                     char note[CAY_NOTE_MAX], struct cay_error *err)
{
    char own[CAY_NOTE_MAX], events[4096];
    uint64_t start = clock_ms();
    AUTO_FD changes = wait_ms ? watch() : -1;

    if (!is_id(id))
        return cay_fail(err, CAY_E_INVALID, 0, op, id, "invalid id of a request",
                        "an id has 64 hexadecimal digits");
    for (;;) {
        TRY(look(id, ret_decision, note ? note : own, err));
        uint64_t passed = clock_ms() - start;
        if (*ret_decision != CAY_DECISION_NONE || passed >= wait_ms)
            return CAY_OK;
        uint64_t step = wait_ms - passed < WAIT_STEP_MS ? wait_ms - passed : WAIT_STEP_MS;
        struct pollfd poller = {.fd = changes, .events = POLLIN};
        if (poll(&poller, 1, (int)step) > 0)
            while (read(changes, events, sizeof events) > 0)
                continue;
    }
}

static int remember(int dir, const struct cay_pending *pending, struct cay_error *err)
{
    AUTO_BUF line = {.max = RULES_MAX};
    size_t len = 0;
    AUTO_FREE char *rules = read_file(dir, "rules", RULES_MAX, &len);

    if (!rules && errno != ENOENT)
        return cay_fail(err, CAY_E_LIMIT, errno, op, "rules",
                        "the file of rules cannot be read, or is too large",
                        "cay approve rules prints its path; the limit is 1 MiB");
    bool fits = !rules || !len ||
                (buf_append(&line, rules, len) &&
                 (rules[len - 1] == '\n' || buf_text(&line, "\n")));
    fits = fits && buf_format(&line, "allow\t%s\t", pending->kind) &&
           rules_put(&line, pending->scope, true) && buf_text(&line, "\t") &&
           rules_put(&line, pending->subject, true) && buf_text(&line, "\n");
    return fits ? write_file(dir, "rules", line.data, line.len, err)
                : cay_fail(err, CAY_E_LIMIT, 0, op, "rules", "the file of rules is full",
                           "remove some: cay approve rules prints its path");
}

int cay_pending_decide(const char *id, enum cay_verdict verdict, const char *note,
                       struct cay_error *err)
{
    AUTO_FD dir = open_queue(err);
    char name[NAME_ROOM], text[CAY_NOTE_MAX + 8];
    struct cay_pending pending;

    if (dir < 0)
        return dir;
    if (!is_id(id))
        return cay_fail(err, CAY_E_INVALID, 0, op, id, "invalid id of a request",
                        "an id has 64 hexadecimal digits");
    TRY(load(dir, id, &pending, NULL, err));
    if (pending.is_decided)
        return cay_fail(err, CAY_E_EXISTS, 0, op, id, "the request has a reply already",
                        "the next program with the same request uses it");
    if (verdict == CAY_VERDICT_REMEMBER)
        TRY(remember(dir, &pending, err));
    int len = snprintf(text, sizeof text, "%s\n%.*s",
                       verdict == CAY_VERDICT_DENY ? "no" : "yes", CAY_NOTE_MAX - 1,
                       note ? note : "");
    reply_name(id, name);
    return write_file(dir, name, text,
                      len < (int)sizeof text ? (size_t)len : sizeof text - 1, err);
}

int cay_pending_rules(char ret_path[4096], struct cay_error *err)
{
    char home[PATH_MAX];
    int len;

    if (!*other)
        TRY(state_home_path(home, err));
    if (*other)
        len = snprintf(ret_path, 4096, "%s/rules", other);
    else
        len = snprintf(ret_path, 4096, "%s/" DIRECTORY "/rules", home);
    return len < 4096 ? CAY_OK : cay_fail_errno(err, ENAMETOOLONG, op, "CAY_HOME");
}

/* --- The list of rules --- */

static void name_line(const struct rules_line *line, char ret_id[CAY_PENDING_ID_MAX])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx hash;

    sha256_init(&hash);
    sha256_update(&hash, (size_t)(line->end - line->text), (const uint8_t *)line->text);
    sha256_digest(&hash, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(ret_id + 2 * i, 3, "%02x", digest[i]);
}

/* Without a file: "". */
static int load_rules(int dir, char **ret_rules, size_t *ret_len, struct cay_error *err)
{
    *ret_len = 0;
    *ret_rules = read_file(dir, "rules", RULES_MAX, ret_len);
    if (!*ret_rules && errno == ENOENT)
        *ret_rules = calloc(1, 1);
    else if (!*ret_rules)
        return cay_fail(err, CAY_E_LIMIT, errno, op, "rules",
                        "the file of rules cannot be read, or is too large",
                        "cay approve rules prints its path; the limit is 1 MiB");
    return *ret_rules ? CAY_OK : cay_fail_memory(err, op);
}

int cay_pending_list_rules(struct cay_pending_rule **ret_list, size_t *ret_count,
                           struct cay_error *err)
{
    AUTO_FD dir = open_queue(err);
    AUTO_FREE char *rules = NULL;
    struct rules_line line;
    size_t len, count = 0;

    if (dir < 0)
        return dir;
    TRY(load_rules(dir, &rules, &len, err));
    for (const char *at = rules; rules_next(&at, &line);)
        count++;
    struct cay_pending_rule *list = malloc(count * sizeof *list + len + 1);
    if (!list)
        return cay_fail_memory(err, op);
    char *copy = (char *)(list + count); /* whose tabs and line ends become NULs */
    memcpy(copy, rules, len + 1);
    count = 0;
    for (const char *at = rules; rules_next(&at, &line);) {
        struct cay_pending_rule *rule = &list[count++];
        const char **const texts[] = {&rule->kind, &rule->scope, &rule->subject};
        *rule = (struct cay_pending_rule){.allows = line.allows};
        name_line(&line, rule->id);
        for (size_t i = 0; i < 3; i++) {
            *texts[i] = copy + (line.fields[i] - rules);
            copy[line.ends[i] - rules] = '\0';
        }
    }
    *ret_list = list;
    *ret_count = count;
    return CAY_OK;
}

int cay_pending_remove_rule(const char *id, struct cay_error *err)
{
    AUTO_FD dir = open_queue(err);
    AUTO_FREE char *rules = NULL;
    AUTO_BUF left = {.max = RULES_MAX};
    struct rules_line line;
    const char *kept;
    bool is_found = false;
    char own[CAY_PENDING_ID_MAX];
    size_t len;

    if (dir < 0)
        return dir;
    TRY(load_rules(dir, &rules, &len, err));
    kept = rules;
    for (const char *at = rules; rules_next(&at, &line);) {
        name_line(&line, own);
        if (strcmp(own, id) != 0)
            continue;
        is_found = true;
        (void)buf_append(&left, kept, (size_t)(line.text - kept));
        kept = at;
    }
    if (!is_found)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "no rule has this id",
                        "list the rules");
    return buf_text(&left, kept) ? write_file(dir, "rules", left.data, left.len, err)
                                 : cay_fail_memory(err, op);
}

static int ask_and_wait(const struct cay_request *ask,
                        void (*waits)(const char *id, const char *summary),
                        enum cay_verdict *ret_verdict, char note[CAY_NOTE_MAX],
                        struct cay_error *err)
{
    uint64_t timeout = ask->timeout_ms ? ask->timeout_ms : CAY_PENDING_TIMEOUT_MS;
    char id[CAY_PENDING_ID_MAX];
    enum cay_decision decision = CAY_DECISION_NONE;

    *ret_verdict = CAY_VERDICT_DENY;
    TRY(cay_pending_submit(ask, id, &decision, err));
    if (decision == CAY_DECISION_NO)
        cay_copy_text(note, CAY_NOTE_MAX, "a rule of cay approve denies it");
    if (decision == CAY_DECISION_NONE && waits)
        waits(id, ask->summary ? ask->summary : ask->subject);
    if (decision == CAY_DECISION_NONE)
        TRY(cay_pending_wait(id, timeout, &decision, note, err));
    if (decision == CAY_DECISION_NONE)
        cay_copy_text(note, CAY_NOTE_MAX, "no reply in time");
    if (decision == CAY_DECISION_YES)
        *ret_verdict = CAY_VERDICT_APPROVE;
    return CAY_OK;
}

int cay_pending_request(const struct cay_request *ask, enum cay_verdict *ret_verdict,
                        char note[CAY_NOTE_MAX], struct cay_error *err)
{
    char own[CAY_NOTE_MAX];

    return ask_and_wait(ask, NULL, ret_verdict, note ? note : own, err);
}

/* --- File operations --- */

static const char *kind_of(enum cay_op what)
{
    switch (what) {
    case CAY_OP_READ:
    case CAY_OP_LIST:
    case CAY_OP_SEARCH:
    case CAY_OP_EXPORT:
        return "read";
    case CAY_OP_DELETE:
        return "delete";
    case CAY_OP_MOVE:
        return "move";
    case CAY_OP_COPY:
        return "copy";
    case CAY_OP_WRITE:
    case CAY_OP_EDIT:
    case CAY_OP_MKDIR:
    case CAY_OP_APPEND:
    case CAY_OP_IMPORT:
        return "write";
    }
    return "write";
}

/* What is shown: the old content of an edit and the new one. */
static bool put_content(struct buf *buf, const struct cay_approval *request)
{
    bool fits = true;

    if (request->before) /* the lengths make it unambiguous */
        fits = buf_format(buf, "--- before: %zu bytes\n", request->before_len) &&
               buf_append(buf, request->before, request->before_len) &&
               buf_format(buf, "\n--- after: %zu bytes\n", request->after_len);
    if (fits && request->after)
        fits = buf_append(buf, request->after, request->after_len);
    return fits;
}

enum cay_verdict cay_pending_approve(void *cookie, const struct cay_approval *request,
                                     char note[CAY_NOTE_MAX])
{
    const struct cay_pending_files *how = cookie;
    AUTO_BUF content = {.max = CAY_PENDING_CONTENT_MAX};
    AUTO_FREE char *subject = NULL;
    enum cay_verdict verdict = CAY_VERDICT_DENY;
    struct cay_error err;

    if (request->other ? asprintf(&subject, "%s -> %s", request->path, request->other) < 0
                       : !(subject = strdup(request->path)))
        return CAY_VERDICT_DENY;
    bool changes = strcmp(kind_of(request->op), "write") == 0;
    if (!put_content(&content, request) ||
        (changes && !request->after && request->op != CAY_OP_MKDIR)) {
        cay_copy_text(note, CAY_NOTE_MAX,
                      "the change is too large to be shown for approval");
        return CAY_VERDICT_DENY;
    }
    const struct cay_request ask = {.size = sizeof ask,
                                    .kind = kind_of(request->op),
                                    .scope = how->scope,
                                    .subject = subject,
                                    .summary = request->summary,
                                    .content = content.data,
                                    .content_len = content.len,
                                    .timeout_ms = how->timeout_ms};
    if (ask_and_wait(&ask, how->waits, &verdict, note, &err) != CAY_OK) {
        cay_copy_text(note, CAY_NOTE_MAX, err.message);
        return CAY_VERDICT_DENY;
    }
    return verdict;
}
