/* SPDX-License-Identifier: Apache-2.0 */
/* Changes, and taking them back.  The record has one change on each line:
 *     range etc/subuid alice:100000:65536
 *     file etc/apparmor.d/cay 0f3c... (the hash of its content)
 *     sysctl proc/sys/user/max_user_namespaces 0 15000 (before, after)
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/join.h"
#include "base/passwd.h"
#include "cli/setup.h"

enum { TEXT_MAX = 16 << 20 };

static const char *const kinds[SETUP_KINDS] = {
    [SETUP_DIRECTORY] = "directory", [SETUP_EMPTY] = "empty",   [SETUP_RANGE] = "range",
    [SETUP_FILE] = "file",           [SETUP_SYSCTL] = "sysctl",
};

/* --- The record --- */

/* Cuts a word off the line. */
static char *take_word(char **line)
{
    char *word = *line;
    size_t len = strcspn(word, " ");

    *line = word + len + (word[len] != '\0');
    word[len] = '\0';
    return word;
}

/* Whether a plan can have this change.  A record may be that of a hostile image, below
 * which the proc of the host may be mounted. */
static bool is_known(enum setup_kind kind, const char *path)
{
    static const struct {
        enum setup_kind kind;
        const char *path;
    } known[] = {
        {SETUP_EMPTY, SETUP_SUBUID},    {SETUP_EMPTY, SETUP_SUBGID},
        {SETUP_RANGE, SETUP_SUBUID},    {SETUP_RANGE, SETUP_SUBGID},
        {SETUP_SYSCTL, SETUP_CLONE},    {SETUP_SYSCTL, SETUP_CLONE_MAX},
        {SETUP_FILE, SETUP_CLONE_FILE}, {SETUP_FILE, SETUP_CLONE_MAX_FILE},
        {SETUP_FILE, SETUP_PROFILE},    {SETUP_FILE, SETUP_DROP_IN},
    };
    size_t len = strlen(path);

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool is_parent = kind == SETUP_DIRECTORY && known[i].kind == SETUP_FILE &&
                         strncmp(known[i].path, path, len) == 0 &&
                         known[i].path[len] == '/';
        if (is_parent || (known[i].kind == kind && strcmp(known[i].path, path) == 0))
            return true;
    }
    return false;
}

static bool is_number(const char *text)
{
    uint32_t value;

    return passwd_parse_id(text, strlen(text), INT32_MAX, &value);
}

static int parse_line(char *line, struct setup_list *list, struct cay_error *err)
{
    const char *word = take_word(&line), *path = take_word(&line);
    int kind = 0;

    while (kind < SETUP_KINDS && strcmp(word, kinds[kind]) != 0)
        kind++;
    const char *before = kind == SETUP_SYSCTL ? take_word(&line) : NULL;
    if (kind == SETUP_KINDS || !is_known((enum setup_kind)kind, path) ||
        (before && !(is_number(before) && is_number(line))))
        return cay_fail(err, CAY_E_PROTOCOL, 0, "setup", "/" SETUP_RECORD,
                        "the record of earlier changes has an invalid line",
                        "undo the changes that it lists by hand, then remove it");
    TRY(setup_list_add(list, (enum setup_kind)kind, path,
                       kind == SETUP_RANGE || kind == SETUP_SYSCTL ? line : NULL, before,
                       err));
    if (kind == SETUP_FILE)
        list->items[list->count - 1].hash = strtoull(line, NULL, 16);
    return CAY_OK;
}

int setup_read_record(struct setup *setup, struct cay_error *err)
{
    AUTO_BUF text;

    buf_init(&text, TEXT_MAX);
    setup_list_done(&setup->recorded);
    int error = setup_read(setup->root, SETUP_RECORD, &text);
    /* An ordinary user may not read it, and changes nothing. */
    if (error == -ENOENT || (error == -EACCES && geteuid() != 0))
        return CAY_OK;
    if (error)
        return setup_fail(error, SETUP_RECORD, err);
    for (char *line = text.data, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = '\0';
        if (*line && *line != '#')
            TRY(parse_line(line, &setup->recorded, err));
    }
    return CAY_OK;
}

static bool is_same(const struct setup_change *one, const struct setup_change *other)
{
    return one->kind == other->kind && strcmp(one->path, other->path) == 0 &&
           (one->kind != SETUP_RANGE || strcmp(one->text, other->text) == 0) &&
           (one->kind != SETUP_FILE || one->hash == other->hash);
}

static bool has_same(const struct setup_list *list, const struct setup_change *change)
{
    for (size_t i = 0; i < list->count; i++)
        if (is_same(&list->items[i], change))
            return true;
    return false;
}

static void put_line(struct buf *text, const struct setup_change *change)
{
    buf_format(text, "%s %s", kinds[change->kind], change->path);
    if (change->kind == SETUP_RANGE)
        buf_format(text, " %s", change->text);
    else if (change->kind == SETUP_SYSCTL)
        buf_format(text, " %s %s", change->before, change->text);
    else if (change->kind == SETUP_FILE)
        buf_format(text, " %016" PRIx64, change->hash);
    buf_text(text, "\n");
}

/* The changes of earlier calls, and these.  A file that is replaced is in it twice, since
 * a crash may leave the old content. */
static int write_record(const struct setup *setup, const struct setup_list *more,
                        struct cay_error *err)
{
    AUTO_BUF text;

    buf_init(&text, TEXT_MAX);
    buf_text(&text, "# What cay setup has changed; cay setup --undo takes it back.\n");
    for (size_t i = 0; i < setup->recorded.count; i++)
        put_line(&text, &setup->recorded.items[i]);
    for (size_t i = 0; i < more->count; i++)
        if (!has_same(&setup->recorded, &more->items[i]))
            put_line(&text, &more->items[i]);
    if (text.failed)
        return cay_fail_memory(err, "setup");
    int error = setup_write(setup->root, SETUP_RECORD, text.data, text.len);
    return error ? setup_fail(error, SETUP_RECORD, err) : CAY_OK;
}

static int remove_record(const struct setup *setup, struct cay_error *err)
{
    int error = setup_remove(setup->root, SETUP_RECORD, false);

    setup_sweep(setup->root, SETUP_RECORD);
    (void)setup_remove(setup->root, "var/lib/cay", true);
    return error ? setup_fail(error, SETUP_RECORD, err) : CAY_OK;
}

/* One setup at a time: the directory of the record is locked until it is closed. */
static int lock_record(int root, bool make, int *ret_fd, struct cay_error *err)
{
    static const char *const parents[] = {"var", "var/lib", "var/lib/cay"};
    int error = 0;

    for (size_t i = 0; make && !error && i < 3; i++)
        if (!setup_exists(root, parents[i])) {
            char path[32];
            snprintf(path, sizeof path, "./%s", parents[i]);
            error = setup_make(root, path, S_IFDIR | (i == 2 ? 0700 : 0755));
        }
    if (!error) {
        *ret_fd = setup_open(root, "var/lib/cay", O_RDONLY | O_DIRECTORY);
        error = *ret_fd < 0 ? *ret_fd : 0;
    }
    if (!error && flock(*ret_fd, LOCK_EX | LOCK_NB) != 0)
        error = -errno;
    if (error == -EWOULDBLOCK)
        return cay_fail(err, CAY_E_BUSY, EBUSY, "setup", "/var/lib/cay",
                        "another cay setup runs", "wait until it has ended");
    return error ? setup_fail(error, SETUP_RECORD, err) : CAY_OK;
}

/* --- Single changes --- */

/* The line in the text, or NULL. */
static char *find_line(char *text, const char *line)
{
    size_t len = strlen(line);

    for (char *at = text; at && *at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, line, len) == 0 && (at[len] == '\n' || !at[len]))
            return at;
    }
    return NULL;
}

static int add_line(int root, const char *path, const char *line)
{
    AUTO_BUF text;

    buf_init(&text, TEXT_MAX);
    int error = setup_read(root, path, &text);
    if (error)
        return error;
    if (text.len > 0 && text.data[text.len - 1] != '\n')
        buf_text(&text, "\n");
    buf_format(&text, "%s\n", line);
    return text.failed ? -ENOMEM : setup_write(root, path, text.data, text.len);
}

static int remove_line(int root, const char *path, const char *line)
{
    AUTO_BUF text;

    buf_init(&text, TEXT_MAX);
    int error = setup_read(root, path, &text);
    char *at = error ? NULL : find_line(text.data, line);
    if (!at)
        return error == -ENOENT ? 0 : error;
    const char *next = at + strlen(line), *end = text.data + text.len;
    next += *next == '\n';
    memmove(at, next, (size_t)(end - next));
    return setup_write(root, path, text.data, text.len - (size_t)(next - at));
}

static int apply_one(int root, const struct setup_change *change)
{
    switch (change->kind) {
    case SETUP_DIRECTORY:
        return setup_make(root, change->path, S_IFDIR | 0755);
    case SETUP_EMPTY:
        return setup_make(root, change->path, S_IFREG | 0644);
    case SETUP_RANGE:
        return add_line(root, change->path, change->text);
    case SETUP_FILE:
        return setup_write(root, change->path, change->text, strlen(change->text));
    case SETUP_SYSCTL:
        return setup_put(root, change->path, change->text);
    case SETUP_KINDS:
        break;
    }
    return -EINVAL;
}

static bool is_listed(const struct setup *setup, const char *path, uint64_t hash)
{
    const struct setup_change file = {
        .kind = SETUP_FILE, .path = (char *)(uintptr_t)path, .hash = hash};

    return has_same(&setup->recorded, &file);
}

enum setup_state setup_state(const struct setup *setup, const struct setup_change *change)
{
    AUTO_BUF text;
    uint64_t hash;

    buf_init(&text, TEXT_MAX);
    if (change->kind == SETUP_DIRECTORY)
        return setup_exists(setup->root, change->path) ? SETUP_AS_MADE : SETUP_GONE;
    int error = setup_read(setup->root, change->path, &text);
    if (error)
        return error == -ENOENT ? SETUP_GONE : SETUP_CHANGED;
    switch (change->kind) {
    case SETUP_EMPTY:
        return SETUP_AS_MADE;
    case SETUP_RANGE:
        return find_line(text.data, change->text) ? SETUP_AS_MADE : SETUP_GONE;
    case SETUP_FILE:
        hash = hash_stable(HASH_STABLE, text.data, text.len);
        return hash == change->hash                   ? SETUP_AS_MADE
               : is_listed(setup, change->path, hash) ? SETUP_GONE
                                                      : SETUP_CHANGED;
    case SETUP_SYSCTL:
        return strtol(text.data, NULL, 10) == strtol(change->text, NULL, 10)
                   ? SETUP_AS_MADE
                   : SETUP_CHANGED;
    case SETUP_DIRECTORY:
    case SETUP_KINDS:
        break;
    }
    return SETUP_GONE;
}

static int remove_if_empty(int root, const char *path)
{
    AUTO_BUF text;

    buf_init(&text, TEXT_MAX);
    int error = setup_read(root, path, &text);
    if (error || text.len > 0)
        return error == -ENOENT ? 0 : error;
    return setup_remove(root, path, false);
}

static int undo_one(const struct setup *setup, const struct setup_change *change)
{
    int root = setup->root;

    setup_sweep(root, change->path);
    if (setup_state(setup, change) != SETUP_AS_MADE)
        return 0;
    switch (change->kind) {
    case SETUP_DIRECTORY:
        return setup_remove(root, change->path, true);
    case SETUP_EMPTY:
        return remove_if_empty(root, change->path);
    case SETUP_RANGE:
        return remove_line(root, change->path, change->text);
    case SETUP_FILE:
        return change->before ? setup_write(root, change->path, change->before,
                                            strlen(change->before))
                              : setup_remove(root, change->path, false);
    case SETUP_SYSCTL:
        return setup_put(root, change->path, change->before);
    case SETUP_KINDS:
        break;
    }
    return -EINVAL;
}

/* --- Programs that read the changes --- */

/* Not with the PATH of the caller, which su leaves as the user had set it. */
static bool find_program(const char *name, char *path, size_t room)
{
    static const char *const places[] = {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (JOIN(path, room, places[i], name) && access(path, X_OK) == 0)
            return true;
    return false;
}

static int run(const char *program, const char *option, const char *argument)
{
    char *const env[] = {(char[]){"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, NULL};
    char *const argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)option,
                          (char *)(uintptr_t)argument, NULL};
    posix_spawn_file_actions_t actions;
    char path[64];
    int status = 0;
    pid_t pid;

    if (!find_program(program, path, sizeof path))
        return -ENOENT;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    int error = posix_spawn(&pid, path, &actions, NULL, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return -error;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return status ? -ECHILD : 0;
}

static bool has_file(const struct setup_list *list, const char *path)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].kind == SETUP_FILE && strcmp(list->items[i].path, path) == 0)
            return true;
    return false;
}

/* Without the parser, and without systemd, the files count from the next boot on. */
static int load(const struct setup *setup, const struct setup_list *list,
                struct cay_error *err)
{
    if (!setup->is_host)
        return CAY_OK;
    if (has_file(list, SETUP_PROFILE) && setup_exists(setup->root, SETUP_PROFILE) &&
        run("apparmor_parser", "-r", "/" SETUP_PROFILE) == -ECHILD)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "setup", "/" SETUP_PROFILE,
                        "apparmor_parser cannot load the profile",
                        "its message is above; nothing was changed");
    if (has_file(list, SETUP_DROP_IN))
        (void)run("systemctl", "daemon-reload", NULL);
    return CAY_OK;
}

static void unload_profile(const struct setup *setup)
{
    if (setup->is_host && has_file(&setup->recorded, SETUP_PROFILE) &&
        setup_exists(setup->root, SETUP_PROFILE))
        (void)run("apparmor_parser", "-R", "/" SETUP_PROFILE);
}

/* --- All changes --- */

static bool has_kind(const struct setup_list *list, enum setup_kind kind)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].kind == kind)
            return true;
    return false;
}

static bool is_same_plan(const struct setup_list *one, const struct setup_list *other)
{
    bool is_same_plan = one->count == other->count;

    for (size_t i = 0; is_same_plan && i < one->count; i++)
        is_same_plan = is_same(&one->items[i], &other->items[i]);
    return is_same_plan;
}

/* Plans again, now that nothing else changes these files. */
static int check_plan(struct setup *setup, const struct setup_user *users, size_t count,
                      struct cay_error *err)
{
    struct setup_list shown = setup->changes;

    setup->changes = (struct setup_list){0};
    int code = setup_read_record(setup, err);
    if (!code)
        code = setup_plan(setup, users, count, err);
    if (!code && !is_same_plan(&shown, &setup->changes))
        code = cay_fail(err, CAY_E_CHANGED, 0, "setup", "plan",
                        "another program has changed these files meanwhile",
                        "run cay setup again: it prints the new changes");
    setup_list_done(&shown);
    return code;
}

static int apply_all(struct setup *setup, struct cay_error *err)
{
    const struct setup_list none = {0};
    size_t done = 0;
    int code = write_record(setup, &setup->changes, err);

    if (code)
        return code;
    for (; !code && done < setup->changes.count; done++) {
        const struct setup_change *change = &setup->changes.items[done];
        int error = apply_one(setup->root, change);
        if (error)
            code = setup_fail(error, change->path, err);
    }
    if (!code)
        code = load(setup, &setup->changes, err);
    if (!code)
        return CAY_OK;
    int left = 0;
    while (done-- > 0)
        left |= undo_one(setup, &setup->changes.items[done]);
    if (left) /* the record stays, for --undo */
        return code;
    if (setup->recorded.count)
        (void)write_record(setup, &none, NULL);
    else
        (void)remove_record(setup, NULL);
    return code;
}

int setup_apply(struct setup *setup, const struct setup_user *users, size_t count,
                struct cay_error *err)
{
    struct setup_lock lock = {.directory = -1, .file = -1};
    AUTO_FD record = -1;
    int code = lock_record(setup->root, true, &record, err);

    if (!code && has_kind(&setup->changes, SETUP_RANGE))
        code = setup_lock(setup->root, &lock, err);
    if (!code)
        code = check_plan(setup, users, count, err);
    if (!code)
        code = apply_all(setup, err);
    setup_unlock(&lock);
    if (code) /* unless it has something */
        (void)setup_remove(setup->root, "var/lib/cay", true);
    return code;
}

int setup_undo(struct setup *setup, struct cay_error *err)
{
    struct setup_lock lock = {.directory = -1, .file = -1};
    AUTO_FD record = -1;
    int code = lock_record(setup->root, false, &record, err);

    if (!code)
        code = setup_read_record(setup, err);
    if (!code && has_kind(&setup->recorded, SETUP_RANGE))
        code = setup_lock(setup->root, &lock, err);
    if (!code)
        unload_profile(setup);
    for (size_t i = setup->recorded.count; !code && i-- > 0;) {
        const struct setup_change *change = &setup->recorded.items[i];
        int error = undo_one(setup, change);
        if (error)
            code = setup_fail(error, change->path, err);
    }
    setup_unlock(&lock);
    if (!code)
        code = remove_record(setup, err);
    if (!code)
        code = load(setup, &setup->recorded, err);
    return code;
}
