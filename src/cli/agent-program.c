/* SPDX-License-Identifier: Apache-2.0 */
/* Where a program is installed.  Shown is the directory that a package manager has filled
 * with it: a version of node, an environment of Python, a folder of versions; never the
 * home directory or ~/.local, which have secrets. */
#include "cli/agent-program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

static const char op[] = "cli.agent";

enum { LINKS_MAX = 16, SCRIPTS_MAX = 4, LINE_MAX_LEN = 512 };

static bool is_below(const char *path, const char *directory)
{
    size_t len = strlen(directory);

    return strncmp(path, directory, len) == 0 && (path[len] == '/' || !path[len]);
}

/* The template "host" has these. */
static bool is_visible(const char *path)
{
    static const char *const places[] = {"/usr", "/bin",   "/sbin",
                                         "/lib", "/lib64", "/lib32"};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (is_below(path, places[i]))
            return true;
    return false;
}

/* Has more than one program's files. */
static bool is_broad(const char *directory)
{
    static const char *const below_home[] = {"", "/bin", "/.local", "/.local/bin"};
    const char *home = getenv("HOME");
    char path[PATH_MAX];

    if (!*directory || strcmp(directory, "/opt") == 0)
        return true;
    for (size_t i = 0; home && i < sizeof below_home / sizeof *below_home; i++) {
        int len = snprintf(path, sizeof path, "%s%s", home, below_home[i]);
        if (len > 0 && (size_t)len < sizeof path && strcmp(directory, path) == 0)
            return true;
    }
    return home && is_below(home, directory);
}

static bool exists(const char *directory, const char *name)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/%s", directory, name);

    return len > 0 && (size_t)len < sizeof path && access(path, F_OK) == 0;
}

/* Cuts `path`, of a file, down to what is shown for it. */
static void cut_to_package(char *path)
{
    static const char modules[] = "/node_modules/";
    char *at = strstr(path, modules), *end = strrchr(path, '/');

    if (at) { /* PREFIX/lib/node_modules/NAME/... */
        at[sizeof modules - 2] = '\0';
        if (at - path > 4 && strncmp(at - 4, "/lib", 4) == 0) {
            at[-4] = '\0';
            if (is_broad(path))
                at[-4] = '/';
        }
        return;
    }
    *end = '\0';
    char *last = strrchr(path, '/');
    if (last && strcmp(last, "/bin") == 0) { /* PREFIX/bin/NAME */
        *last = '\0';
        if (!is_broad(path) && exists(path, "lib"))
            return;
        *last = '/';
    }
    if (is_broad(path))
        *end = '/';
}

static int show(struct program *program, const char *path, struct cay_error *err)
{
    char target[PATH_MAX];

    if (is_visible(path))
        return CAY_OK;
    snprintf(target, sizeof target, "%s", path);
    cut_to_package(target);
    for (size_t i = 0; i < program->shown_count; i++)
        if (is_below(target, program->shown[i].target))
            return CAY_OK;
    if (program->shown_count == PROGRAM_SHOWN_MAX)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, path,
                        "the program is spread over too many directories",
                        "name its real file with an absolute path in the profile");
    struct program_shown *shown = &program->shown[program->shown_count];
    shown->source = realpath(target, NULL);
    if (!shown->source)
        return cay_fail_errno(err, errno, op, path);
    shown->target = strdup(target);
    if (!shown->target) {
        free(TAKE_PTR(shown->source));
        return cay_fail_memory(err, op);
    }
    program->shown_count++;
    program->needs_root |= is_below(target, "/root");
    return CAY_OK;
}

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* The first directory of PATH with it; false if there is none. */
static bool look_up(const char *name, char ret_path[PATH_MAX])
{
    const char *at = getenv("PATH");

    for (; at; at = strchr(at, ':')) {
        at += *at == ':';
        size_t len = strcspn(at, ":");
        if (*at != '/' || len + strlen(name) + 2 > PATH_MAX)
            continue;
        snprintf(ret_path, PATH_MAX, "%.*s/%s", (int)len, at, name);
        if (is_program(ret_path))
            return true;
    }
    return false;
}

static int add_directory(struct program *program, const char *path, struct cay_error *err)
{
    size_t used = strlen(program->directories), len = (size_t)(strrchr(path, '/') - path);

    if (is_visible(path))
        return CAY_OK;
    if (used + len + 2 > sizeof program->directories)
        return cay_fail_errno(err, ENAMETOOLONG, op, path);
    snprintf(program->directories + used, sizeof program->directories - used, "%s%.*s",
             used ? ":" : "", (int)len, path);
    return CAY_OK;
}

/* Shows an interpreter as the kernel finds it: link by link. */
static int show_links(struct program *program, const char *path, struct cay_error *err)
{
    char at[PATH_MAX], next[PATH_MAX], full[2 * PATH_MAX];

    snprintf(at, sizeof at, "%s", path);
    for (size_t i = 0; i < LINKS_MAX; i++) {
        TRY(show(program, at, err));
        ssize_t len = readlink(at, next, sizeof next - 1);
        if (len < 0)
            return CAY_OK; /* the file itself */
        next[len] = '\0';
        char *slash = strrchr(at, '/');
        int all =
            snprintf(full, sizeof full, "%.*s/%s", *next == '/' ? 0 : (int)(slash - at),
                     at, *next == '/' ? next + 1 : next);
        if (all < 0 || all >= PATH_MAX)
            return cay_fail_errno(err, ENAMETOOLONG, op, path);
        memcpy(at, full, (size_t)all + 1);
    }
    return cay_fail_errno(err, ELOOP, op, path);
}

/* The interpreter that the first line of a script names: an absolute path, or a name for
 * env(1).  false: it is no script. */
static bool read_interpreter(const char *path, char ret_word[LINE_MAX_LEN])
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char line[LINE_MAX_LEN], *rest = line + 2;
    ssize_t len = fd < 0 ? -1 : read(fd, line, sizeof line - 1);

    if (len < 3 || line[0] != '#' || line[1] != '!')
        return false;
    line[len] = '\0';
    line[strcspn(line, "\n")] = '\0';
    for (char *word; (word = strsep(&rest, " \t"));) {
        const char *slash = strrchr(word, '/');
        if (!*word || *word == '-' || strchr(word, '=') ||
            strcmp(slash ? slash + 1 : word, "env") == 0)
            continue; /* env -S NAME=value node */
        snprintf(ret_word, LINE_MAX_LEN, "%s", word);
        return true;
    }
    return false;
}

static int show_interpreters(struct program *program, struct cay_error *err)
{
    char script[PATH_MAX], path[PATH_MAX], word[LINE_MAX_LEN];

    snprintf(script, sizeof script, "%s", program->path);
    for (size_t i = 0; i < SCRIPTS_MAX && read_interpreter(script, word); i++) {
        if (*word == '/')
            snprintf(path, sizeof path, "%s", word);
        else if (!look_up(word, path))
            return cay_fail(err, CAY_E_NOT_FOUND, ENOENT, op, word,
                            "the interpreter of the agent is not installed",
                            "install it, or add its directory to PATH");
        TRY(show_links(program, path, err));
        TRY(add_directory(program, path, err));
        snprintf(script, sizeof script, "%s", path);
    }
    return CAY_OK;
}

int program_find(const char *name, struct program *ret_program, struct cay_error *err)
{
    char path[PATH_MAX];

    *ret_program = (struct program){.path = NULL};
    bool is_found = strchr(name, '/') ? is_program(name) : look_up(name, path);
    if (!is_found)
        return cay_fail(err, CAY_E_NOT_FOUND, ENOENT, op, name, "no such program in PATH",
                        "install it, or add its directory to "
                        "PATH");
    ret_program->path = realpath(strchr(name, '/') ? name : path, NULL);
    if (!ret_program->path)
        return cay_fail_errno(err, errno, op, name);
    TRY(show(ret_program, ret_program->path, err));
    return show_interpreters(ret_program, err);
}

void program_done(struct program *program)
{
    for (size_t i = 0; i < program->shown_count; i++) {
        free(program->shown[i].source);
        free(program->shown[i].target);
    }
    free(program->path);
    *program = (struct program){.path = NULL};
}
