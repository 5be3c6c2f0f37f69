/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/hint.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"

/* --- The sandbox's file system --- */

enum { SCRIPT_LINE_MAX = 256 };

/* What follows "#!", as the kernel takes it: only a blank or the end of the line ends the
 * name.  `sought` is the program that env(1) has to find, or empty. */
struct script {
    char interpreter[SCRIPT_LINE_MAX], sought[SCRIPT_LINE_MAX];
};

/* The files inside, as root (`all`) and as the command's user (`own`) see them.  Without
 * `all` there is only one user.  Relative paths start where the command does. */
struct view {
    const struct hint *hint;
    cay_files *all, *own;
    bool is_in_place; /* no root of its own: the host's names are seen, few can be read */
};

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

static bool script_parse(const char *line, struct script *ret_script)
{
    if (strncmp(line, "#!", 2) != 0)
        return false;
    const char *name = skip_blanks(line + 2);
    int len = (int)strcspn(name, " \t\n");
    snprintf(ret_script->interpreter, SCRIPT_LINE_MAX, "%.*s", len, name);
    ret_script->sought[0] = '\0';
    const char *last = strrchr(ret_script->interpreter, '/');
    if (!last || strcmp(last, "/env") != 0)
        return true;
    name = skip_blanks(name + len);
    if (strncmp(name, "-S", 2) == 0)
        name = skip_blanks(name + 2);
    len = (int)strcspn(name, " \t\n");
    if (*name != '-' && !memchr(name, '=', (size_t)len) &&
        !memchr(name, '/', (size_t)len))
        snprintf(ret_script->sought, SCRIPT_LINE_MAX, "%.*s", len, name);
    return true;
}

static void view_open(const struct hint *hint, struct view *ret_view)
{
    *ret_view = (struct view){.hint = hint};
    if (cay_sandbox_files(hint->sandbox, hint->exec->user, &ret_view->own, NULL))
        ret_view->own = NULL;
    if (cay_sandbox_files(hint->sandbox, "root", &ret_view->all, NULL))
        ret_view->all = NULL;
    ret_view->is_in_place = !(cay_sandbox_layers(hint->sandbox) & CAY_LAYER_MOUNT);
}

static void view_close(struct view *view)
{
    cay_files_free(view->all);
    cay_files_free(view->own);
}

/* A path as the command means it: below its directory unless absolute.  False if it is
 * too long: then no file has it. */
static bool view_place(const struct view *view, const char *path, char room[PATH_MAX])
{
    const char *cwd = *path == '/' ? NULL : view->hint->exec->cwd;

    return snprintf(room, PATH_MAX, "%s%s%s", cwd ? cwd : "", cwd ? "/" : "", path) <
           PATH_MAX;
}

static bool is_readable(cay_files *files, const char *inside)
{
    struct cay_read_options start = {.size = sizeof start, .max = 1};
    struct cay_page page;
    int code = cay_files_read_bytes(files, inside, &start, &page, NULL);

    if (code == CAY_OK)
        cay_page_done(&page);
    return code != CAY_E_DENIED;
}

/* 1, 0, or -1 if unknown. */
static int exists(const struct view *view, cay_files *files, const char *path)
{
    char inside[PATH_MAX];

    if (!files)
        return -1;
    if (!view_place(view, path, inside))
        return 0;
    int got = cay_files_exists(files, inside, NULL);
    if (got == 1 && view->is_in_place)
        return is_readable(files, inside);
    return got < 0 ? -1 : got;
}

/* root sees all files, but relative paths start at the home of the command's user. */
static cay_files *files_for(const struct view *view, const char *path)
{
    return view->all && (*path == '/' || view->hint->exec->cwd) ? view->all : view->own;
}

static int view_has(const struct view *view, const char *path)
{
    return exists(view, files_for(view, path), path);
}

static bool view_reaches(const struct view *view, const char *path)
{
    return exists(view, view->own, path) == 1;
}

/* Also a link that leads nowhere. */
static bool view_is_taken(const struct view *view, const char *path)
{
    cay_files *files = files_for(view, path);
    char inside[PATH_MAX];
    struct cay_stat st;

    if (view->is_in_place)
        return view_has(view, path) == 1;
    return files && view_place(view, path, inside) &&
           cay_files_stat(files, inside, true, &st, NULL) == CAY_OK;
}

static bool view_script(const struct view *view, const char *path,
                        struct script *ret_script)
{
    struct cay_read_options start = {.size = sizeof start, .max = SCRIPT_LINE_MAX - 1};
    cay_files *files = files_for(view, path);
    struct cay_page page;
    char inside[PATH_MAX];

    if (!files || !view_place(view, path, inside) ||
        cay_files_read_bytes(files, inside, &start, &page, NULL))
        return false;
    bool is_script = script_parse(page.text, ret_script);
    cay_page_done(&page);
    return is_script;
}

static const char *find_path(const char *const *env, const char *otherwise)
{
    for (; env && *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            otherwise = *env + 5;
    return otherwise;
}

static const char *view_path(const struct view *view)
{
    const struct cay_sandbox_options *made = view->hint->made;
    const char *path =
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"; /* request.c */

    path = find_path(made ? made->env : NULL, path);
    return find_path(view->hint->exec->env, path);
}

/* A program by its name, as it is found inside; false if it is not. */
static bool view_find(const struct view *view, const char *name, char room[PATH_MAX])
{
    snprintf(room, PATH_MAX, "%s", name);
    if (strchr(name, '/'))
        return view_reaches(view, name);
    for (const char *path = view_path(view); *path;) {
        int len = (int)strcspn(path, ":");
        snprintf(room, PATH_MAX, "%.*s/%s", len, path, name);
        if (len && view_reaches(view, room))
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

enum { STATUS_NOT_FOUND = 127 };

/* --- On the host --- */

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

/* A file of the current directory that was named as if it were in PATH. */
static char *find_here(const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof path, "./%s", name);
    return stat(name, &st) == 0 && S_ISREG(st.st_mode) ? strdup(path) : NULL;
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

static bool read_host_script(const char *path, struct script *ret_script)
{
    char line[SCRIPT_LINE_MAX] = "";
    struct stat st;
    FILE *file;

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || !(file = fopen(path, "re")))
        return false;
    bool is_script = fgets(line, sizeof line, file) && script_parse(line, ret_script);
    (void)fclose(file);
    return is_script;
}

/* With only one user inside, files that root makes visible must be world-readable. */
static bool is_for_user(const struct view *view, const char *full)
{
    char path[PATH_MAX];
    struct stat st;

    if (geteuid() != 0 || view->all)
        return true;
    for (size_t len = 1; len < PATH_MAX; len++) {
        if (full[len] && full[len] != '/')
            continue;
        snprintf(path, sizeof path, "%.*s", (int)len, full);
        if (stat(path, &st) != 0 || (S_ISDIR(st.st_mode) && !(st.st_mode & S_IXOTH)))
            return false;
        if (!full[len])
            return st.st_mode & S_IROTH;
    }
    return false;
}

/* What a shell takes for one word, and -v for one path. */
static bool is_word(const char *path)
{
    for (; *path; path++)
        if ((unsigned char)*path < 0x80 && !isalnum((unsigned char)*path) &&
            !strchr("/._-+@%,=", *path))
            return false;
    return true;
}

/* --- Options to add --- */

struct advice {
    char options[HINT_ROOM / 2]; /* each with a blank before it */
    size_t used;
    bool is_for_root;
    bool is_impossible; /* no option can make it work */
};

static void add_option(struct advice *advice, const char *option)
{
    size_t left = sizeof advice->options - advice->used, len = strlen(option);

    if (strstr(advice->options, option))
        return;
    if (len >= left) {
        advice->is_impossible = true;
        return;
    }
    memcpy(advice->options + advice->used, option, len + 1);
    advice->used += len;
}

/* Shows a file of this machine where it is, with as much around it as is not inside. */
static void add_share(const struct view *view, const char *path, struct advice *advice)
{
    char share[PATH_MAX], option[2 * PATH_MAX + 16];
    int len = share_of(path);

    advice->is_for_root |= below(path, "/root") != NULL;
    if (view_is_taken(view, path))
        return;
    snprintf(share, sizeof share, "%.*s", len, path);
    while (path[len] && !view->is_in_place && view_is_taken(view, share)) {
        len += 1 + (int)strcspn(path + len + 1, "/");
        snprintf(share, sizeof share, "%.*s", len, path);
    }
    advice->is_impossible |= *path != '/' || is_in_template(path) || !is_word(share) ||
                             !is_for_user(view, path);
    snprintf(option, sizeof option, " -v %s:%s:ro", share, share);
    add_option(advice, option);
}

/* A program of this machine and where it really is. */
static void add_program(const struct view *view, const char *path, struct advice *advice)
{
    AUTO_FREE char *real = realpath(path, NULL);

    add_share(view, path, advice);
    if (real)
        add_share(view, real, advice);
}

/* The program that env(1) has to find. */
static void add_sought(const struct view *view, const char *name, struct advice *advice)
{
    char inside[PATH_MAX], option[PATH_MAX];
    AUTO_FREE char *host = find_program(name);

    if (!host || view_find(view, name, inside))
        return;
    add_program(view, host, advice);
    snprintf(option, sizeof option, " -e PATH=%.*s:%s", (int)(strrchr(host, '/') - host),
             host, view_path(view));
    advice->is_impossible |= *host != '/' || !is_word(host);
    add_option(advice, option);
}

/* Where it really is, and what executes it. */
static void add_what_it_needs(const struct view *view, const char *full,
                              const char *shown, struct advice *advice)
{
    struct script script;

    if (!shown || !below(full, shown))
        add_share(view, full, advice);
    if (!read_host_script(full, &script))
        return;
    if (access(script.interpreter, X_OK) == 0 && !view_reaches(view, script.interpreter))
        add_program(view, script.interpreter, advice);
    if (script.sought[0])
        add_sought(view, script.sought, advice);
}

/* False if there is nothing to add, or that would not do. */
static bool finish(const struct view *view, struct advice *advice)
{
    const char *user = view->hint->exec->user;

    if (advice->is_for_root && view->all && !(user && strcmp(user, "root") == 0))
        add_option(advice, " -u root");
    return advice->used && !advice->is_impossible;
}

/* --- Advice --- */

static const char *how_to_add(const struct view *view)
{
    return view->hint->made ? "add" : "create the sandbox with";
}

/* A path below the current directory, as seen from there; NULL if it is not. */
static const char *from_here(const char *path, const char *cwd)
{
    const char *home = getenv("HOME");

    if (!cwd || strcmp(cwd, "/") == 0 ||
        (home && (strcmp(cwd, home) == 0 || below(home, cwd)))) /* not the whole home */
        return NULL;
    if (*path == '/')
        return below(path, cwd);
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    return strstr(path, "..") ? NULL : path;
}

/* A copy where the command looks for it, if its user can put something there. */
static bool advise_copy(const struct view *view, const char *source, const char *rest,
                        bool is_renamed, char room[HINT_ROOM])
{
    const struct cay_exec_options *exec = view->hint->exec;
    char target[PATH_MAX];

    if (!view->own) /* there is no such user any more */
        return false;
    int access = cay_files_access(view->own, exec->cwd ? exec->cwd : ".", NULL);
    if (access < 0 || !(access & CAY_ACCESS_WRITE) || !view_place(view, rest, target) ||
        !is_word(source) || !is_word(target))
        return false;
    int len =
        snprintf(room, HINT_ROOM, "the host has it; copy it in: cay cp%s%s %s %s:%s%s%s",
                 exec->user ? " -u " : "", exec->user ? exec->user : "", source,
                 cay_sandbox_id(view->hint->sandbox), target,
                 is_renamed ? " and name it ./" : "", is_renamed ? rest : "");
    return len < HINT_ROOM;
}

/* Shows the current directory; as /src, unless that is something else already. */
static bool advise_directory(const struct view *view, const char *cwd, const char *full,
                             const char *rest, const char *given, struct advice *advice,
                             char room[HINT_ROOM])
{
    bool is_moved = !view->is_in_place && !view_is_taken(view, "/src");
    const char *target = is_moved ? "/src" : cwd;
    char name[PATH_MAX], option[3 * PATH_MAX];

    snprintf(name, sizeof name, "%s/%s", target, rest);
    snprintf(option, sizeof option, " -v %s:%s -w %s", is_moved ? "." : cwd, target,
             target);
    add_option(advice, option);
    bool is_renamed = given && strcmp(given, name) != 0;
    advice->is_impossible |=
        !is_word(is_renamed ? name : target) ||
        (!is_moved && !view->is_in_place && view_is_taken(view, cwd)) ||
        !is_for_user(view, full);
    if (!finish(view, advice))
        return false;
    int len = snprintf(room, HINT_ROOM, "the host has it, the sandbox does not; %s%s%s%s",
                       how_to_add(view), advice->options,
                       is_renamed ? " and name it " : "", is_renamed ? name : "");
    return len < HINT_ROOM;
}

static bool advise_here(const struct view *view, const char *host, const char *given,
                        const char *cwd, const char *full, char room[HINT_ROOM])
{
    const char *rest = from_here(host, cwd), *real = below(full, cwd);
    bool is_relative = *host != '/' && strcmp(host, given) == 0;
    struct advice advice = {.used = 0};

    add_what_it_needs(view, full, cwd, &advice);
    if (!view->hint->made && !advice.used && !advice.is_impossible)
        return advise_copy(view, real ? real : full, rest, !is_relative, room);
    return advise_directory(view, cwd, full, rest, is_relative ? NULL : given, &advice,
                            room);
}

/* Only root may make templates, and start from them. */
static const char *or_a_template(const struct view *view, const char *host)
{
    return geteuid() == 0 && view->all && home_of(host)
               ? ", or create a template that has it (cay template create NAME "
                 "--from-dir "
                 "ROOT)"
               : "";
}

static bool advise_in_place(const struct view *view, const char *host, const char *full,
                            bool is_renamed, char room[HINT_ROOM])
{
    struct advice advice = {.used = 0};

    add_share(view, host, &advice);
    add_what_it_needs(view, full, NULL, &advice);
    if (!finish(view, &advice))
        return false;
    bool is_shown = !strstr(advice.options, " -v ");
    int len =
        snprintf(room, HINT_ROOM, "it is %s; %s%s%s%s%s",
                 is_shown ? "accessible to root only" : "on the host, not in the sandbox",
                 is_shown ? "add" : how_to_add(view), advice.options,
                 is_renamed ? " and name it " : "", is_renamed ? host : "",
                 is_shown ? "" : or_a_template(view, host));
    return len < HINT_ROOM;
}

static bool has_template(const struct view *view)
{
    const struct cay_sandbox_options *made = view->hint->made;
    struct cay_sandbox_info info;
    const char *name = made ? made->template_name : NULL;

    if (!made && cay_sandbox_inspect(view->hint->sandbox, &info, NULL) == CAY_OK)
        name = info.template_name;
    return name && strcmp(name, "host") != 0;
}

/* Shows it where it is. */
static bool advise_place(const struct view *view, const char *host, const char *full,
                         bool is_renamed, char room[HINT_ROOM])
{
    if (!is_in_template(host))
        return advise_in_place(view, host, full, is_renamed, room);
    if (!has_template(view))
        return false;
    snprintf(room, HINT_ROOM,
             "the host has it, but this template does not; %s --template host to use "
             "the host's programs",
             how_to_add(view));
    return true;
}

/* What a volume shows has another name inside. */
static bool advise_name(const struct view *view, const char *full, char room[HINT_ROOM])
{
    const struct cay_sandbox_options *made = view->hint->made;
    char name[PATH_MAX];

    for (size_t i = 0; made && i < made->bind_count; i++) {
        const char *source = made->binds[i].source, *rest = below(full, source);
        if (!rest && strcmp(full, source) != 0)
            continue;
        snprintf(name, sizeof name, "%s%s%s", made->binds[i].target, rest ? "/" : "",
                 rest ? rest : "");
        if (view_reaches(view, name))
            return snprintf(room, HINT_ROOM, "inside the sandbox it is %s; use that path",
                            name) < HINT_ROOM;
    }
    return false;
}

/* For something that is at `host` on this machine, and `given` as that; false if nothing
 * of this kind helps. */
static bool advise(const struct view *view, const char *host, const char *given,
                   char room[HINT_ROOM])
{
    AUTO_FREE char *full = realpath(host, NULL);
    AUTO_FREE char *cwd = getcwd(NULL, 0);
    bool is_taken = view_is_taken(view, given);

    if (!full || !cwd || access(full, R_OK) != 0)
        return false;
    if (advise_name(view, full, room))
        return true;
    if (!is_taken && from_here(host, cwd))
        return advise_here(view, host, given, cwd, full, room);
    if (*host != '/') /* ../tools/x */
        host = full;
    return advise_place(view, host, full, !is_taken && strcmp(host, given) != 0, room);
}

/* --- Causes --- */

static void explain_interpreter(const struct view *view, const char *interpreter,
                                char room[HINT_ROOM])
{
    AUTO_FREE char *full = *interpreter == '/' ? realpath(interpreter, NULL) : NULL;
    size_t len = strlen(interpreter);
    char words[HINT_ROOM];

    if (len && interpreter[len - 1] == '\r')
        snprintf(words, sizeof words, "remove the carriage returns from the file");
    else if (!full || access(full, X_OK) != 0 || /* the sandbox chose the name */
             !advise_place(view, interpreter, full, false, words))
        snprintf(words, sizeof words, "write another interpreter in its first line");
    snprintf(room, HINT_ROOM, "its interpreter %s is %s: %.700s", interpreter,
             view_is_taken(view, interpreter) ? "not accessible inside"
                                              : "missing inside",
             words);
}

/* The file is inside, and the command's user can reach it. */
static const char *explain_there(const struct view *view, const char *path,
                                 int exec_errno)
{
    char inside[PATH_MAX];
    struct cay_stat st;

    if (exec_errno != EACCES && exec_errno != EPERM)
        return "the file exists, but its interpreter or loader does not";
    if (view_place(view, path, inside) &&
        cay_files_stat(view->own, inside, false, &st, NULL) == CAY_OK) {
        if (st.type == CAY_TYPE_DIRECTORY)
            return "it is a directory; pass a program";
        if (!(st.mode & 0111))
            return "it is not executable; run chmod +x, or pass its interpreter first, "
                   "like sh or python3";
    }
    return "this user has no permission to execute it, or its interpreter";
}

/* It is not where the command looks for it. */
static const char *explain_absent(const struct view *view, const char *host,
                                  int exec_errno)
{
    const char *name = view->hint->exec->argv[0];

    if (exec_errno == EACCES || exec_errno == EPERM)
        return "this user has no permission to reach it";
    if (strchr(name, '/') && view_has(view, name) != 0)
        return "the sandbox has neither it nor its interpreter";
    if (host)
        return "the host has it, the sandbox does not";
    return strchr(name, '/') ? "neither the sandbox nor the host has it"
                             : "not in PATH, neither in the sandbox nor on the host";
}

static void explain_missing(const struct view *view, int exec_errno, char room[HINT_ROOM])
{
    const char *name = view->hint->exec->argv[0];
    AUTO_FREE char *host = find_program(name);
    char path[PATH_MAX];
    struct script script;
    bool is_found = view_find(view, name, path);
    bool is_bare = !strchr(name, '/');

    if (!host && is_bare)
        host = find_here(name);
    if (is_found && view_script(view, path, &script) &&
        !view_reaches(view, script.interpreter))
        explain_interpreter(view, script.interpreter, room);
    else if (is_found)
        snprintf(room, HINT_ROOM, "%s", explain_there(view, path, exec_errno));
    else if (is_bare && host && view_reaches(view, host))
        snprintf(room, HINT_ROOM,
                 "the sandbox has %.500s, which is not in PATH; use that path", host);
    else if (!host || !advise(view, host, name, room))
        snprintf(room, HINT_ROOM, "%s", explain_absent(view, host, exec_errno));
}

const char *hint_program(const struct hint *hint, int exec_errno, char room[HINT_ROOM])
{
    struct view view;

    view_open(hint, &view);
    if (exec_errno == ENOEXEC)
        snprintf(room, HINT_ROOM,
                 "not a program for this machine; a script starts with a line "
                 "like #!/bin/sh");
    else if (view.own && (exec_errno == ENOENT || exec_errno == ENOTDIR ||
                          exec_errno == EACCES || exec_errno == EPERM))
        explain_missing(&view, exec_errno, room);
    else
        snprintf(room, HINT_ROOM, "execve(2) lists the possible causes");
    view_close(&view);
    return room;
}

/* env(1) ran, but did not find the program in the command's first line. */
static bool explain_sought(const struct view *view, char room[HINT_ROOM])
{
    struct advice advice = {.used = 0};
    struct script script;
    char path[PATH_MAX];

    if (!view_find(view, view->hint->exec->argv[0], path) ||
        !view_script(view, path, &script) || !script.sought[0])
        return false;
    add_sought(view, script.sought, &advice);
    return finish(view, &advice) &&
           snprintf(room, HINT_ROOM, "it needs %s, which is on the host; %s%s",
                    script.sought, how_to_add(view), advice.options) < HINT_ROOM;
}

/* A file of this machine that the command's user does not find inside. */
static bool is_missing(const struct view *view, const char *word)
{
    return *word != '-' && *word && access(word, R_OK) == 0 &&
           (view_has(view, word) == 0 ||
            (below(word, "/root") && !view_reaches(view, word)));
}

const char *hint_failure(const struct hint *hint, int exit_code, char room[HINT_ROOM])
{
    const char *const *argv = hint->exec->argv;
    const char *found = NULL;
    struct view view;

    view_open(hint, &view);
    if (exit_code == STATUS_NOT_FOUND && explain_sought(&view, room))
        found = argv[0];
    for (argv++; *argv && !found; argv++)
        if (is_missing(&view, *argv) && advise(&view, *argv, *argv, room))
            found = *argv;
    view_close(&view);
    return found;
}

/* --- The isolation level --- */

void hint_level(const cay_sandbox *sandbox, unsigned require)
{
    if (require || cay_sandbox_layers(sandbox) & CAY_LAYER_USER)
        return;
    fprintf(stderr,
            "cay: note: isolation level %s: this sandbox has no namespaces (cay doctor "
            "shows how to allow them; --quiet hides this note, --require user makes it "
            "an error)\n",
            cay_level_slug(CAY_LEVEL_LANDLOCK));
}
