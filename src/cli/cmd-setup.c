/* SPDX-License-Identifier: Apache-2.0 */
/* cay setup: prints what is missing for ordinary users, and changes it with root's
 * consent; --undo takes it back. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/passwd.h"
#include "cli/cli.h"
#include "cli/setup.h"

static const char op[] = "cli.setup";

static call_runner run_setup;

static const struct subcommand subcommands[] = {
    {"setup", "", "Give ordinary users what sandboxes need", 0, 0, run_setup},
};

#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"user", 'u', OPTION_LIST, 1, FIELD(users), "NAME",
     "for this user (default: the caller of sudo)"},
    {"dry-run", 'n', OPTION_FLAG, 1, FIELD(dry_run), NULL,
     "print the changes, and make none"},
    {"yes", 'y', OPTION_FLAG, 1, FIELD(yes), NULL, "do not prompt"},
    {"undo", 0, OPTION_FLAG, 1, FIELD(undo), NULL, "take back what setup has changed"},
    {"root", 0, OPTION_TEXT, 1, FIELD(root), "DIR",
     "change the system in this directory (default: /)"},
    OPTIONS_HELP("show this help"),
};

const struct grammar setup_grammar = {
    .program = "cay",
    .usage = "setup [OPTION]...",
    .manual = "Manual: cay-setup(1).",
    .subcommands = subcommands,
    .subcommand_count = 1,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

/* --- Users --- */

static int fail_user(const char *name, int code, const char *message, const char *hint,
                     struct cay_error *err)
{
    return cay_fail(err, code, 0, op, name, message, "%s", hint);
}

/* The host's users may come from any source, those of an image are in its file. */
static int look_up(const struct setup *setup, const char *name, uint32_t *ret_uid)
{
    struct passwd_line line;
    AUTO_BUF text;

    buf_init(&text, PASSWD_MAX);
    if (setup->is_host) {
        const struct passwd *entry = getpwnam(name);
        if (entry)
            *ret_uid = entry->pw_uid;
        return entry ? 0 : -ENOENT;
    }
    int error = setup_read(setup->root, "etc/passwd", &text);
    if (error)
        return error;
    return passwd_find(text.data, name, strlen(name), &line) &&
                   passwd_id(&line, 2, UINT32_MAX - 1, ret_uid)
               ? 0
               : -ENOENT;
}

static int add_user(const struct setup *setup, const char *name,
                    struct setup_user *ret_user, struct cay_error *err)
{
    uint32_t uid = 0;

    if (!*name || strlen(name) >= sizeof ret_user->name || strpbrk(name, ":\n") ||
        look_up(setup, name, &uid) != 0)
        return fail_user(name, CAY_E_NOT_FOUND, "no such user",
                         "pass --user with a name of /etc/passwd", err);
    if (uid == 0)
        return fail_user(name, CAY_E_INVALID, "root has all of it already",
                         "pass --user with the name of an ordinary user", err);
    if (name[strspn(name, "0123456789")] == '\0')
        return fail_user(name, CAY_E_INVALID, "the name of the user is a number",
                         "newuidmap takes it for a user id: rename the user, or add a "
                         "line with the user id to /etc/subuid and /etc/subgid",
                         err);
    snprintf(ret_user->name, sizeof ret_user->name, "%s", name);
    ret_user->uid = uid;
    return CAY_OK;
}

/* Without --user: the caller of sudo, or the ordinary user who calls. */
static int default_user(const struct setup *setup, struct setup_user *ret_user,
                        struct cay_error *err)
{
    const char *sudo = getenv("SUDO_UID");
    uint32_t uid = geteuid();

    if (uid == 0 && (!sudo || !passwd_parse_id(sudo, strlen(sudo), UINT32_MAX - 1, &uid)))
        uid = 0;
    const struct passwd *entry = uid && setup->is_host ? getpwuid(uid) : NULL;
    if (!entry)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--user", "no user given",
                        "pass --user NAME, once for each user; only with sudo the "
                        "default is the user who called it");
    return add_user(setup, entry->pw_name, ret_user, err);
}

static int find_users(const struct setup *setup, const struct option_list *names,
                      struct setup_user **ret_users, size_t *ret_count,
                      struct cay_error *err)
{
    size_t count = names->count ? names->count : 1;
    AUTO_FREE struct setup_user *users = calloc(count, sizeof *users);
    size_t used = 0;

    if (!users)
        return cay_fail_memory(err, op);
    if (!names->count)
        TRY(default_user(setup, &users[used++], err));
    for (size_t i = 0; i < names->count; i++) {
        bool again = false;
        TRY(add_user(setup, names->items[i], &users[used], err));
        for (size_t k = 0; k < used; k++)
            again |= strcmp(users[k].name, users[used].name) == 0;
        used += !again;
    }
    *ret_users = TAKE_PTR(users);
    *ret_count = used;
    return CAY_OK;
}

/* --- What is printed --- */

static void print_content(FILE *file, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        fprintf(file, "      %.*s\n", (int)len, text);
        text += len + (text[len] == '\n');
    }
}

/* "kernel.unprivileged_userns_clone" */
static void print_key(FILE *file, const char *path)
{
    for (path += strlen("proc/sys/"); *path; path++)
        fputc(*path == '/' ? '.' : *path, file);
}

static void print_change(FILE *file, const struct setup_change *change)
{
    switch (change->kind) {
    case SETUP_DIRECTORY:
        fprintf(file, "  create the directory /%s\n", change->path);
        break;
    case SETUP_EMPTY:
        fprintf(file, "  create the file /%s\n", change->path);
        break;
    case SETUP_RANGE:
        fprintf(file, "  add to /%s: ", change->path);
        show_name(file, change->text);
        fputc('\n', file);
        break;
    case SETUP_FILE:
        fprintf(file, "  %s /%s:\n", change->before ? "replace" : "create", change->path);
        print_content(file, change->text);
        break;
    case SETUP_SYSCTL:
        fputs("  set ", file);
        print_key(file, change->path);
        fprintf(file, " = %s (it is %s)\n", change->text, change->before);
        break;
    case SETUP_KINDS:
        break;
    }
}

static void print_undo(FILE *file, const struct setup *setup,
                       const struct setup_change *change)
{
    enum setup_state state = setup_state(setup, change);

    if (state == SETUP_GONE)
        return;
    if (state == SETUP_CHANGED) {
        fprintf(file, "  leave /%s: it was changed since\n", change->path);
        return;
    }
    switch (change->kind) {
    case SETUP_DIRECTORY:
    case SETUP_EMPTY:
        fprintf(file, "  remove /%s if it is empty\n", change->path);
        break;
    case SETUP_RANGE:
        fprintf(file, "  remove from /%s: ", change->path);
        show_name(file, change->text);
        fputc('\n', file);
        break;
    case SETUP_FILE:
        fprintf(file, "  remove /%s\n", change->path);
        break;
    case SETUP_SYSCTL:
        fputs("  set ", file);
        print_key(file, change->path);
        fprintf(file, " = %s\n", change->before);
        break;
    case SETUP_KINDS:
        break;
    }
}

static void print_notes(FILE *file, const struct setup *setup)
{
    if (setup->notes.count)
        fputs("cay setup cannot provide:\n", file);
    for (size_t i = 0; i < setup->notes.count; i++) {
        fputs("  ", file);
        show_name(file, setup->notes.items[i]);
        fputc('\n', file);
    }
}

static void print_plan(FILE *file, const struct setup *setup)
{
    if (setup->changes.count)
        fputs("cay setup changes:\n", file);
    else
        fputs("cay setup has nothing to change.\n", file);
    for (size_t i = 0; i < setup->changes.count; i++)
        print_change(file, &setup->changes.items[i]);
    print_notes(file, setup);
}

/* --- Consent --- */

static int confirm(struct call *call, struct cay_error *err)
{
    char line[64] = "";

    TRY(output_finish(&call->output, err));
    if (call->options.yes)
        return CAY_OK;
    if (!isatty(STDIN_FILENO))
        return cay_fail(err, CAY_E_NOT_APPROVED, 0, op, "setup",
                        "nothing was changed: there is no terminal to prompt",
                        "pass --yes to make these changes");
    fputs("Make these changes? [y/N] ", stderr);
    fflush(stderr);
    if (fgets(line, sizeof line, stdin) &&
        (strcasecmp(line, "y\n") == 0 || strcasecmp(line, "yes\n") == 0))
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_APPROVED, 0, op, "setup", "nothing was changed",
                    "answer y, or pass --yes, to make these changes");
}

/* Ordinary users see what is missing, and what root has to type. */
static int check_root(const struct setup *setup, const char *option,
                      struct cay_error *err)
{
    char own[PATH_MAX];

    if (geteuid() == 0 || !setup->is_host)
        return CAY_OK;
    setup_own_path(own, sizeof own);
    return cay_fail(err, CAY_E_DENIED, EPERM, op, "setup", "only root can do this",
                    "sudo %s setup%s", strcmp(own, "/usr/bin/cay") == 0 ? "cay" : own,
                    option);
}

/* --- Running --- */

static bool changes_file(const struct setup_list *list, const char *path)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].path, path) == 0)
            return true;
    return false;
}

static int change(struct call *call, struct setup *setup, struct cay_error *err)
{
    AUTO_FREE struct setup_user *users = NULL;
    FILE *file = call->output.file;
    size_t count = 0;

    TRY(find_users(setup, &call->options.users, &users, &count, err));
    TRY(setup_plan(setup, users, count, err));
    print_plan(file, setup);
    if (!setup->changes.count || call->options.dry_run)
        return CAY_OK;
    TRY(output_finish(&call->output, err));
    TRY(check_root(setup, "", err));
    TRY(confirm(call, err));
    TRY(setup_apply(setup, users, count, err));
    fputs("Done; cay setup --undo takes it back.\n", file);
    if (setup->is_host && changes_file(&setup->changes, SETUP_DROP_IN))
        fputs("The limits work after the next login.\n", file);
    return CAY_OK;
}

static int undo(struct call *call, struct setup *setup, struct cay_error *err)
{
    FILE *file = call->output.file;

    if (call->options.users.count)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--user",
                        "--undo takes back the changes for all users",
                        "leave --user out");
    TRY(check_root(setup, " --undo", err));
    if (!setup->recorded.count) {
        fputs("cay setup has changed nothing here.\n", file);
        return CAY_OK;
    }
    fputs("cay setup --undo changes:\n", file);
    for (size_t i = setup->recorded.count; i-- > 0;)
        print_undo(file, setup, &setup->recorded.items[i]);
    if (call->options.dry_run)
        return CAY_OK;
    TRY(confirm(call, err));
    return setup_undo(setup, err);
}

static int run_setup(struct call *call, struct cay_error *err)
{
    const char *root = call->options.root ? call->options.root : "/";
    AUTO_FD fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct setup setup = {.root = fd};
    struct stat own, host;

    if (fd < 0 || fstat(fd, &own) != 0 || stat("/", &host) != 0)
        return cay_fail_errno(err, errno, op, root);
    setup.is_host = own.st_dev == host.st_dev && own.st_ino == host.st_ino;
    (void)umask(022);
    int code = setup_read_record(&setup, err);
    if (!code)
        code = call->options.undo ? undo(call, &setup, err) : change(call, &setup, err);
    setup_list_done(&setup.recorded);
    setup_list_done(&setup.changes);
    for (size_t i = 0; i < setup.notes.count; i++)
        free(setup.notes.items[i]);
    free(setup.notes.items);
    return code;
}
