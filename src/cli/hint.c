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
static int is_inside(const struct hint *hint, cay_files *files, const char *path)
{
    char inside[PATH_MAX];
    int got;

    place_inside(hint, path, inside, sizeof inside);
    got = cay_files_exists(files, inside, NULL);
    return got < 0 ? -1 : got;
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

/* --- Words --- */

static void advise_here(const struct hint *hint, const char *rest, const char *given,
                        char room[HINT_ROOM])
{
    if (!hint->is_fresh)
        snprintf(room, HINT_ROOM,
                 "it is on this machine; copy it in: cay cp %s %s:", rest,
                 cay_sandbox_id(hint->sandbox));
    else if (*given == '/')
        snprintf(room, HINT_ROOM,
                 "it is on this machine, not inside; add -v .:/src -w /src and name it "
                 "/src/%s",
                 rest);
    else
        snprintf(room, HINT_ROOM,
                 "it is on this machine, not inside; add -v .:/src -w /src");
}

/* For something that is at `host` on this machine, however it was named. */
static void advise(const struct hint *hint, const char *host, const char *given,
                   char room[HINT_ROOM])
{
    AUTO_FREE char *full = realpath(host, NULL);
    AUTO_FREE char *cwd = getcwd(NULL, 0);
    const char *rest = full && cwd ? below(full, cwd) : NULL;
    const char *home = getenv("HOME");

    if (rest && !(home && strcmp(cwd, home) == 0)) { /* not the whole home */
        advise_here(hint, rest, given, room);
        return;
    }
    if (*host != '/') /* ../tools/x */
        host = full ? full : host;
    int share = share_of(host);
    if (is_in_template(host))
        snprintf(room, HINT_ROOM,
                 "it is on this machine, but not in this template; leave --template out "
                 "to have this machine's programs");
    else if (!hint->is_fresh)
        snprintf(room, HINT_ROOM,
                 "it is on this machine, at %s; make the sandbox with -v %.*s:%.*s:ro, "
                 "or with a template that has it (cay template create NAME --from-dir "
                 "ROOT)",
                 host, share, host, share, host);
    else if (home_of(host))
        snprintf(
            room, HINT_ROOM,
            "it is in a home directory, which is not inside; add -v %.*s:%.*s:ro and "
            "name it %s, or make a template that has it (cay template create NAME "
            "--from-dir ROOT)",
            share, host, share, host, host);
    else
        snprintf(room, HINT_ROOM,
                 "it is on this machine, not inside; add -v %.*s:%.*s:ro and name it %s",
                 share, host, share, host, host);
}

static const char *explain_missing(const struct hint *hint, cay_files *files,
                                   char room[HINT_ROOM])
{
    const char *name = hint->exec->argv[0];
    char interpreter[LINE_MAX_LEN], words[HINT_ROOM];
    AUTO_FREE char *host = NULL;

    if (files && strchr(name, '/') && is_inside(hint, files, name) == 1 &&
        read_interpreter(hint, files, name, interpreter)) {
        host = find_program(interpreter);
        if (host)
            advise(hint, host, interpreter, words);
        else
            snprintf(words, sizeof words, "write another one in its first line");
        snprintf(room, HINT_ROOM, "its interpreter %.200s is not inside: %.700s",
                 interpreter, words);
        return room;
    }
    host = find_program(name);
    if (host)
        advise(hint, host, name, room);
    else
        snprintf(room, HINT_ROOM, "it is neither inside nor on this machine");
    return room;
}

const char *hint_program(const struct hint *hint, int exec_errno, char room[HINT_ROOM])
{
    cay_files *files = NULL;

    switch (exec_errno) {
    case ENOENT:
    case ENOTDIR:
        if (cay_sandbox_files(hint->sandbox, hint->exec->user, &files, NULL))
            files = NULL;
        explain_missing(hint, files, room);
        cay_files_free(files);
        break;
    case EACCES:
    case EPERM:
        snprintf(room, HINT_ROOM,
                 "it may not be executed; chmod +x it, or name its interpreter first: "
                 "sh FILE");
        break;
    case ENOEXEC:
        snprintf(room, HINT_ROOM,
                 "it is no program of this machine's kind; a script starts with a line "
                 "like #!/bin/sh");
        break;
    default:
        snprintf(room, HINT_ROOM, "cay inspect and cay doctor tell more");
    }
    return room;
}

const char *hint_argument(const struct hint *hint, char room[HINT_ROOM])
{
    const char *const *argv = hint->exec->argv;
    cay_files *files = NULL;
    const char *found = NULL;
    struct stat st;

    if (!argv[0])
        return NULL;
    for (argv++; *argv && !found; argv++) {
        if (**argv == '-' || !**argv || stat(*argv, &st) != 0)
            continue;
        if (!files && cay_sandbox_files(hint->sandbox, hint->exec->user, &files, NULL))
            return NULL;
        if (is_inside(hint, files, *argv) == 0)
            found = *argv;
    }
    cay_files_free(files);
    if (found)
        advise(hint, found, found, room);
    return found;
}
