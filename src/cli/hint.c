/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/hint.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"

enum { LINE_MAX_LEN = 256 };

/* --- Inside --- */

/* What is there, and what of it the command's user can reach: nobody but root can enter
 * /root.  The same where there is only one user. */
struct view {
    cay_files *all, *own;
};

static void view_open(const struct hint *hint, struct view *ret_view)
{
    *ret_view = (struct view){NULL, NULL};
    if (cay_sandbox_files(hint->sandbox, hint->exec->user, &ret_view->own, NULL))
        ret_view->own = NULL;
    if (cay_sandbox_files(hint->sandbox, "root", &ret_view->all, NULL))
        ret_view->all = NULL;
}

static void view_close(struct view *view)
{
    cay_files_free(view->all);
    cay_files_free(view->own);
}

/* A path as the command means it: below its directory unless absolute. */
static void place_inside(const struct hint *hint, const char *path, char *room,
                         size_t size)
{
    const char *cwd = hint->exec->cwd;

    if (*path == '/' || !cwd)
        snprintf(room, size, "%s", path);
    else
        snprintf(room, size, "%s/%s", cwd, path);
}

/* 1, 0, or -1 if it cannot be told. */
static int exists(const struct hint *hint, cay_files *files, const char *path)
{
    char inside[PATH_MAX];
    int got;

    if (!files)
        return -1;
    place_inside(hint, path, inside, sizeof inside);
    got = cay_files_exists(files, inside, NULL);
    return got < 0 ? -1 : got;
}

/* Who sees what there is; but relative paths start at the home of whoever asks. */
static cay_files *files_for(const struct hint *hint, const struct view *view,
                            const char *path)
{
    return view->all && (*path == '/' || hint->exec->cwd) ? view->all : view->own;
}

static int is_inside(const struct hint *hint, const struct view *view, const char *path)
{
    return exists(hint, files_for(hint, view, path), path);
}

static bool can_reach(const struct hint *hint, const struct view *view, const char *path)
{
    return exists(hint, view->own, path) == 1;
}

/* What follows "#!" in a file inside, up to a blank; false if it does not start so. */
static bool read_interpreter(const struct hint *hint, cay_files *files, const char *path,
                             char ret_name[LINE_MAX_LEN])
{
    struct cay_read_options start = {.size = sizeof start, .max = LINE_MAX_LEN - 1};
    struct cay_page page;
    char inside[PATH_MAX];
    bool found;

    place_inside(hint, path, inside, sizeof inside);
    if (cay_files_read_bytes(files, inside, &start, &page, NULL))
        return false;
    found = page.len > 3 && memcmp(page.text, "#!", 2) == 0;
    if (found) {
        const char *name = page.text + 2 + strspn(page.text + 2, " \t");
        size_t len = strcspn(name, " \t\r\n");
        memcpy(ret_name, name, len);
        ret_name[len] = '\0';
    }
    cay_page_done(&page);
    return found;
}

/* --- On this machine --- */

/* The program as the shell that started us would find it; NULL if there is none. */
static char *find_program(const char *name)
{
    const char *path = getenv("PATH");
    char candidate[PATH_MAX];

    if (!*name)
        return NULL;
    if (strchr(name, '/'))
        return access(name, F_OK) == 0 ? strdup(name) : NULL;
    while (path && *path) {
        size_t len = strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s/%s", (int)len, path, name);
        if (len && access(candidate, X_OK) == 0)
            return strdup(candidate);
        path += len + (path[len] == ':');
    }
    return NULL;
}

/* `path` without `top` and the slash after it; NULL if it is not below. */
static const char *below(const char *path, const char *top)
{
    size_t len = strlen(top);

    if (len <= 1 || strncmp(path, top, len) != 0 || path[len] != '/')
        return NULL;
    return path + len + 1;
}

/* The length of the home directory that a path is in, 0 if it is in none. */
static size_t home_of(const char *path)
{
    const char *home = getenv("HOME");
    const char *rest = below(path, "/home");

    if (home && below(path, home))
        return strlen(home);
    if (below(path, "/root"))
        return strlen("/root");
    rest = rest ? strchr(rest, '/') : NULL;
    return rest ? (size_t)(rest - path) : 0;
}

/* How much of a path to show inside: what holds a program together (~/.pyenv, /opt/go),
 * but neither a whole home nor a whole top directory. */
static int share_of(const char *path)
{
    size_t start = home_of(path);

    if (!start)
        start = 1 + strcspn(path + 1, "/");
    size_t len = path[start] ? 1 + strcspn(path + start + 1, "/") : 0;
    return path[start + len] ? (int)(start + len) : (int)strlen(path);
}

static bool is_in_template(const char *path)
{
    static const char *const tops[] = {"/usr", "/bin", "/sbin", "/lib", "/lib64", NULL};

    for (size_t i = 0; tops[i]; i++)
        if (below(path, tops[i]))
            return true;
    return false;
}

/* What follows "#!" in a file of this machine. */
static bool read_host_interpreter(const char *path, char ret_name[LINE_MAX_LEN])
{
    char line[LINE_MAX_LEN] = "";
    FILE *file = fopen(path, "re");

    if (!file)
        return false;
    bool found = fgets(line, sizeof line, file) && strncmp(line, "#!", 2) == 0;
    (void)fclose(file);
    const char *name = line + 2 + (found ? strspn(line + 2, " \t") : 0);
    snprintf(ret_name, LINE_MAX_LEN, "%.*s", (int)strcspn(name, " \t\r\n"), name);
    return found;
}

/* --- What to add --- */

struct advice {
    char options[HINT_ROOM / 2]; /* each with a blank before it */
    size_t used;
    bool is_for_root;
};

static void add_option(struct advice *advice, const char *option)
{
    size_t left = sizeof advice->options - advice->used, len = strlen(option);

    if (len >= left || strstr(advice->options, option))
        return;
    memcpy(advice->options + advice->used, option, len + 1);
    advice->used += len;
}

/* Shows a file of this machine where it is. */
static void add_share(const struct hint *hint, const struct view *view, const char *path,
                      struct advice *advice)
{
    char share[PATH_MAX], option[2 * PATH_MAX + 16];

    if (*path != '/' || is_in_template(path))
        return;
    advice->is_for_root |= below(path, "/root") != NULL;
    snprintf(share, sizeof share, "%.*s", share_of(path), path);
    snprintf(option, sizeof option, " -v %s:%s:ro", share, share);
    if (is_inside(hint, view, share) != 1)
        add_option(advice, option);
}

/* Where it really is, and what executes it. */
static void add_what_it_needs(const struct hint *hint, const struct view *view,
                              const char *full, const char *shown, struct advice *advice)
{
    char interpreter[LINE_MAX_LEN];

    if (!full)
        return;
    if (!shown || !below(full, shown))
        add_share(hint, view, full, advice);
    if (!read_host_interpreter(full, interpreter))
        return;
    AUTO_FREE char *real = realpath(interpreter, NULL);
    if (real) {
        add_share(hint, view, interpreter, advice);
        add_share(hint, view, real, advice);
    }
}

static void finish(const struct hint *hint, struct advice *advice)
{
    const char *user = hint->exec->user;

    if (advice->is_for_root && !(user && strcmp(user, "root") == 0))
        add_option(advice, " -u root");
}

/* --- Words --- */

/* A path below the current directory, as seen from there; NULL if it is not. */
static const char *from_here(const char *path, const char *cwd)
{
    const char *home = getenv("HOME");

    if (!cwd || (home && strcmp(cwd, home) == 0)) /* not the whole home */
        return NULL;
    if (*path == '/')
        return below(path, cwd);
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    return strncmp(path, "../", 3) == 0 ? NULL : path;
}

static bool advise_here(const struct hint *hint, const struct view *view,
                        const char *full, const char *cwd, const char *rest,
                        const char *given, char room[HINT_ROOM])
{
    struct advice advice = {.used = 0};
    char name[PATH_MAX + 32] = "";

    add_what_it_needs(hint, view, full, cwd, &advice);
    finish(hint, &advice);
    if (*given == '/')
        snprintf(name, sizeof name, " and name it /src/%s", rest);
    if (hint->is_fresh)
        snprintf(room, HINT_ROOM,
                 "it is on this machine, not inside; add -v .:/src -w /src%s%.400s",
                 advice.options, name);
    else
        snprintf(room, HINT_ROOM,
                 "it is on this machine; copy it in: cay cp %.400s %s:", rest,
                 cay_sandbox_id(hint->sandbox));
    return true;
}

/* Only root may make templates. */
static const char *or_a_template(const char *host)
{
    return geteuid() == 0 && home_of(host)
               ? ", or make a template that has it (cay template create NAME --from-dir "
                 "ROOT)"
               : "";
}

/* Shows it where it is. */
static bool advise_in_place(const struct hint *hint, const struct view *view,
                            const char *host, const char *full, const char *given,
                            char room[HINT_ROOM])
{
    struct advice advice = {.used = 0};
    char name[PATH_MAX + 16] = "";

    add_share(hint, view, host, &advice);
    add_what_it_needs(hint, view, full, NULL, &advice);
    finish(hint, &advice);
    if (!advice.used)
        return false;
    bool is_shown = !strstr(advice.options, " -v ");
    if (strcmp(given, host) != 0)
        snprintf(name, sizeof name, " and name it %s", host);
    if (!hint->is_fresh)
        snprintf(room, HINT_ROOM,
                 "it is on this machine, at %.300s; make the sandbox with%s%s", host,
                 advice.options, or_a_template(host));
    else
        snprintf(room, HINT_ROOM, "it is %s; add%s%.300s%s",
                 is_shown        ? "only for root inside"
                 : home_of(host) ? "in a home directory, which is not inside"
                                 : "on this machine, not inside",
                 advice.options, name, is_shown ? "" : or_a_template(host));
    return true;
}

/* For something that is at `host` on this machine, and `given` as that; false if nothing
 * of this kind helps. */
static bool advise(const struct hint *hint, const struct view *view, const char *host,
                   const char *given, char room[HINT_ROOM])
{
    AUTO_FREE char *full = realpath(host, NULL);
    AUTO_FREE char *cwd = getcwd(NULL, 0);
    const char *rest = from_here(host, cwd);

    if (rest)
        return advise_here(hint, view, full, cwd, rest, given, room);
    if (*host != '/') /* ../tools/x */
        host = full ? full : host;
    if (!is_in_template(host))
        return advise_in_place(hint, view, host, full, given, room);
    snprintf(room, HINT_ROOM,
             "it is on this machine, but not in this template; leave --template out to "
             "have this machine's programs");
    return true;
}

/* --- What is wrong --- */

static bool explain_interpreter(const struct hint *hint, const struct view *view,
                                const char *interpreter, char room[HINT_ROOM])
{
    AUTO_FREE char *host = find_program(interpreter);
    AUTO_FREE char *full = host ? realpath(host, NULL) : NULL;
    char words[HINT_ROOM] = "write another one in its first line";

    if (host && is_in_template(host))
        (void)advise(hint, view, host, interpreter, words);
    else if (host)
        (void)advise_in_place(hint, view, host, full, interpreter, words);
    snprintf(room, HINT_ROOM, "its interpreter %.200s is not inside: %.700s", interpreter,
             words);
    return true;
}

static bool explain_missing(const struct hint *hint, const struct view *view,
                            char room[HINT_ROOM])
{
    const char *name = hint->exec->argv[0];
    cay_files *files = files_for(hint, view, name);
    char interpreter[LINE_MAX_LEN];

    if (strchr(name, '/') && is_inside(hint, view, name) == 1 &&
        read_interpreter(hint, files, name, interpreter) &&
        !can_reach(hint, view, interpreter))
        return explain_interpreter(hint, view, interpreter, room);
    AUTO_FREE char *host = find_program(name);
    return host && !can_reach(hint, view, host) && advise(hint, view, host, name, room);
}

static const char *explain(int exec_errno)
{
    switch (exec_errno) {
    case ENOENT:
    case ENOTDIR:
        return "it is neither inside nor on this machine";
    case EACCES:
    case EPERM:
        return "it may not be executed; chmod +x it, or name its interpreter first: sh "
               "FILE";
    case ENOEXEC:
        return "it is no program of this machine's kind; a script starts with a line "
               "like #!/bin/sh";
    default:
        return "cay inspect and cay doctor tell more";
    }
}

const char *hint_program(const struct hint *hint, int exec_errno, char room[HINT_ROOM])
{
    struct view view;
    bool is_out_of_reach = exec_errno == ENOENT || exec_errno == ENOTDIR ||
                           exec_errno == EACCES || exec_errno == EPERM;

    view_open(hint, &view);
    if (!is_out_of_reach || !explain_missing(hint, &view, room))
        snprintf(room, HINT_ROOM, "%s", explain(exec_errno));
    view_close(&view);
    return room;
}

/* A file of this machine that the command's user does not find inside. */
static bool is_missing(const struct hint *hint, struct view *view, const char *word)
{
    struct stat st;

    if (*word == '-' || !*word || stat(word, &st) != 0)
        return false;
    if (!view->own)
        view_open(hint, view);
    return is_inside(hint, view, word) == 0 ||
           (below(word, "/root") && !can_reach(hint, view, word));
}

const char *hint_argument(const struct hint *hint, char room[HINT_ROOM])
{
    const char *const *argv = hint->exec->argv;
    const char *found = NULL;
    struct view view = {NULL, NULL};

    if (!argv[0])
        return NULL;
    for (argv++; *argv && !found; argv++)
        if (is_missing(hint, &view, *argv))
            found = *argv;
    if (found && !advise(hint, &view, found, found, room))
        found = NULL;
    view_close(&view);
    return found;
}
