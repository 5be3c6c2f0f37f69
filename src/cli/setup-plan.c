/* SPDX-License-Identifier: Apache-2.0 */
/* What is missing on a system, for ordinary users: see docs/design/setup.md. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "base/hash.h"
#include "cli/setup.h"

enum { FILE_MAX = 1 << 20 };

/* --- Lists --- */

static void free_change(struct setup_change *change)
{
    free(change->path);
    free(change->text);
    free(change->before);
}

void setup_list_done(struct setup_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free_change(&list->items[i]);
    free(list->items);
    *list = (struct setup_list){0};
}

static bool is_created(const struct setup_list *list, enum setup_kind kind,
                       const char *path)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].kind == kind && strcmp(list->items[i].path, path) == 0)
            return kind == SETUP_DIRECTORY || kind == SETUP_EMPTY;
    return false;
}

int setup_list_add(struct setup_list *list, enum setup_kind kind, const char *path,
                   const char *text, const char *before, struct cay_error *err)
{
    struct setup_change change = {.kind = kind,
                                  .path = strdup(path),
                                  .text = text ? strdup(text) : NULL,
                                  .before = before ? strdup(before) : NULL};

    if (is_created(list, kind, path)) {
        free_change(&change);
        return CAY_OK;
    }
    if (!change.path || (text && !change.text) || (before && !change.before) ||
        !array_reserve(&list->items, &list->room, list->count + 1, sizeof change)) {
        free_change(&change);
        return cay_fail_memory(err, "setup");
    }
    if (text)
        change.hash = hash_stable(HASH_STABLE, text, strlen(text));
    list->items[list->count++] = change;
    return CAY_OK;
}

int setup_note(struct setup *setup, struct cay_error *err, const char *format, ...)
{
    struct setup_text_list *notes = &setup->notes;
    char text[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (!array_reserve(&notes->items, &notes->room, notes->count + 1, sizeof(char *)) ||
        !(notes->items[notes->count] = strdup(text)))
        return cay_fail_memory(err, "setup");
    notes->count++;
    return CAY_OK;
}

/* --- Files of setup --- */

static bool is_recorded(const struct setup *setup, const char *path, uint64_t hash)
{
    for (size_t i = 0; i < setup->recorded.count; i++) {
        const struct setup_change *change = &setup->recorded.items[i];
        if (change->kind == SETUP_FILE && strcmp(change->path, path) == 0 &&
            change->hash == hash)
            return true;
    }
    return false;
}

/* Directories of the path that are missing. */
static int plan_parents(struct setup *setup, const char *path, struct cay_error *err)
{
    char parent[PATH_MAX];

    for (const char *at = strchr(path, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(parent, sizeof parent, "%.*s", (int)(at - path), path);
        if (!setup_exists(setup->root, parent))
            TRY(setup_list_add(&setup->changes, SETUP_DIRECTORY, parent, NULL, NULL,
                               err));
    }
    return CAY_OK;
}

/* A file with other content is replaced only if setup has written that. */
static int plan_file(struct setup *setup, const char *path, const char *content,
                     struct cay_error *err)
{
    AUTO_BUF text;

    buf_init(&text, FILE_MAX);
    int error = setup_read(setup->root, path, &text);
    if (error && error != -ENOENT)
        return setup_fail(error, path, err);
    if (!error && strcmp(text.data, content) == 0)
        return CAY_OK;
    if (!error &&
        !is_recorded(setup, path, hash_stable(HASH_STABLE, text.data, text.len)))
        return setup_note(setup, err,
                          "/%s exists and cay setup did not write it: it stays as it is",
                          path);
    TRY(plan_parents(setup, path, err));
    return setup_list_add(&setup->changes, SETUP_FILE, path, content,
                          error ? NULL : text.data, err);
}

/* --- User namespaces --- */

static int plan_sysctls(struct setup *setup, struct cay_error *err)
{
    static const struct {
        const char *path, *file, *line, *value;
    } switches[] = {
        {SETUP_CLONE, SETUP_CLONE_FILE,
         "# Written by cay setup.\nkernel.unprivileged_userns_clone = 1\n", "1"},
        {SETUP_CLONE_MAX, SETUP_CLONE_MAX_FILE,
         "# Written by cay setup.\nuser.max_user_namespaces = 15000\n", "15000"},
    };

    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (setup_number(setup->root, switches[i].path) != 0)
            continue;
        TRY(plan_file(setup, switches[i].file, switches[i].line, err));
        TRY(setup_list_add(&setup->changes, SETUP_SYSCTL, switches[i].path,
                           switches[i].value, "0", err));
    }
    return CAY_OK;
}

void setup_own_path(char *path, size_t room)
{
    char own[PATH_MAX], beside[PATH_MAX + 32];
    static const char *const places[] = {"cay", "../../bin/cay"};
    ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);

    own[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(own, '/');
    snprintf(path, room, "%s", own);
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(beside, sizeof beside, "%.*s%s", (int)(slash + 1 - own), own, places[i]);
        AUTO_FREE char *real = realpath(beside, NULL);
        if (real && strlen(real) < room) {
            snprintf(path, room, "%s", real);
            return;
        }
    }
}

/* Whether only root can replace the program. */
static bool is_roots(const char *program)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof path, "%s", program);
    for (;;) {
        if (stat(*path ? path : "/", &st) != 0 || st.st_uid != 0 || st.st_mode & 022)
            return false;
        char *slash = strrchr(path, '/');
        if (!slash || !*path)
            return *path == '\0';
        *slash = '\0';
    }
}

/* Ubuntu denies capabilities in user namespaces to programs without a profile.  The
 * profile names this program only, and adds nothing but the namespaces. */
static int plan_profile(struct setup *setup, struct cay_error *err)
{
    char own[PATH_MAX], text[2 * PATH_MAX];

    if (setup_number(setup->root,
                     "proc/sys/kernel/apparmor_restrict_unprivileged_userns") != 1)
        return CAY_OK;
    setup_own_path(own, sizeof own);
    if (!setup_exists(setup->root, "etc/apparmor.d/abi/4.0"))
        return setup_note(
            setup, err,
            "AppArmor restricts user namespaces, and /etc/apparmor.d/abi/4.0 "
            "is missing: install the package apparmor, version 4 or newer");
    if (!*own || strpbrk(own, "*?[]{}^\"\\@\n") || !is_roots(own))
        return setup_note(
            setup, err,
            "AppArmor restricts user namespaces, and %.512s can be replaced "
            "by ordinary users: install cay as root, for example in "
            "/usr/local, and run that cay setup",
            own);
    snprintf(text, sizeof text,
             "# Written by cay setup: lets this program create user namespaces.\n"
             "abi <abi/4.0>,\n"
             "include <tunables/global>\n"
             "\n"
             "profile cay \"%s\" flags=(unconfined) {\n"
             "  userns,\n"
             "\n"
             "  include if exists <local/cay>\n"
             "}\n",
             own);
    return plan_file(setup, SETUP_PROFILE, text, err);
}

/* --- Helpers --- */

static bool has_program(int root, const char *name)
{
    static const char *const places[] = {"usr/bin", "usr/local/bin", "run/wrappers/bin"};
    char path[64];

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s", places[i], name);
        if (setup_exists(root, path))
            return true;
    }
    return false;
}

static int check_helpers(struct setup *setup, struct cay_error *err)
{
    if (has_program(setup->root, "newuidmap") && has_program(setup->root, "newgidmap"))
        return CAY_OK;
    return setup_note(setup, err,
                      "the programs newuidmap and newgidmap are missing, and the ranges "
                      "are of no use without them: install the package uidmap or "
                      "shadow-utils (apt-get install uidmap)");
}

/* --- cgroups --- */

enum { CPU = 1, MEMORY = 2, PIDS = 4, NEEDED = 7 };

/* The controllers of "Delegate=cpu memory", added to those of earlier lines. */
static unsigned read_delegate(const char *value, unsigned known)
{
    static const struct {
        const char *word;
        unsigned set;
    } words[] = {{"cpu", CPU},     {"memory", MEMORY}, {"pids", PIDS}, {"yes", NEEDED},
                 {"true", NEEDED}, {"on", NEEDED},     {"1", NEEDED}};
    size_t len = strcspn(value, "\n");
    bool is_empty = strspn(value, " \t") >= len;

    if (is_empty || strncmp(value, "no\n", 3) == 0 || strncmp(value, "false\n", 6) == 0)
        return 0;
    while (*value && *value != '\n') {
        len = strcspn(value, " \t\n");
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strlen(words[i].word) == len && memcmp(value, words[i].word, len) == 0)
                known |= words[i].set;
        value += len;
        value += strspn(value, " \t");
    }
    return known;
}

static unsigned read_unit(int root, const char *path, unsigned known)
{
    static const char key[] = "Delegate=";
    AUTO_BUF text;

    buf_init(&text, FILE_MAX);
    if (setup_read(root, path, &text) != 0)
        return known;
    for (const char *line = text.data; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, sizeof key - 1) == 0)
            known = read_delegate(line + sizeof key - 1, known);
    }
    return known;
}

static unsigned read_drop_ins(int root, const char *directory, unsigned known)
{
    char path[PATH_MAX];
    AUTO_FD fd = setup_open(root, directory, O_RDONLY | O_DIRECTORY);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);

    if (!list)
        return known;
    (void)TAKE_FD(fd);
    for (struct dirent *entry; (entry = readdir(list));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".conf") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        known = read_unit(root, path, known);
    }
    (void)closedir(list);
    return known;
}

/* The controllers that systemd delegates to the managers of users. */
static unsigned find_delegated(int root)
{
    static const char *const places[] = {"usr/lib/systemd/system", "lib/systemd/system",
                                         "run/systemd/system", "etc/systemd/system"};
    enum { PLACES = sizeof places / sizeof *places };
    char path[64];
    unsigned known = 0;

    for (size_t i = PLACES; i-- > 0;) {
        snprintf(path, sizeof path, "%s/user@.service", places[i]);
        if (setup_exists(root, path)) {
            known = read_unit(root, path, known);
            break;
        }
    }
    for (size_t i = 0; i < PLACES; i++) {
        snprintf(path, sizeof path, "%s/user@.service.d", places[i]);
        known = read_drop_ins(root, path, known);
    }
    return known;
}

/* In an image systemd is installed, on a host it runs. */
static bool has_systemd(const struct setup *setup)
{
    return setup->is_host ? setup_exists(setup->root, "run/systemd/system")
                          : setup_exists(setup->root, "lib/systemd/systemd") ||
                                setup_exists(setup->root, "usr/lib/systemd/systemd");
}

static int plan_delegation(struct setup *setup, struct cay_error *err)
{
    if (!has_systemd(setup))
        return setup_note(setup, err,
                          "limits of memory, CPU time and processes, and pauses: systemd "
                          "%s, and nothing else delegates cgroups to users",
                          setup->is_host ? "does not run here" : "is not installed here");
    if (setup->is_host && !setup_exists(setup->root, "sys/fs/cgroup/cgroup.controllers"))
        return setup_note(
            setup, err,
            "limits of memory, CPU time and processes, and pauses: this host "
            "uses cgroup v1; boot it with the kernel parameter "
            "systemd.unified_cgroup_hierarchy=1");
    if (find_delegated(setup->root) == NEEDED)
        return CAY_OK;
    return plan_file(setup, SETUP_DROP_IN,
                     "# Written by cay setup: limits for the sandboxes of users.\n"
                     "[Service]\n"
                     "Delegate=cpu memory pids\n",
                     err);
}

int setup_plan(struct setup *setup, const struct setup_user *users, size_t count,
               struct cay_error *err)
{
    TRY(plan_sysctls(setup, err));
    TRY(plan_profile(setup, err));
    for (size_t i = 0; i < count; i++)
        TRY(setup_plan_ranges(setup, &users[i], err));
    TRY(check_helpers(setup, err));
    return plan_delegation(setup, err);
}
