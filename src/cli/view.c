/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/view.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

bool script_parse(const char *line, struct script *ret_script)
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

void view_open(const struct hint *hint, struct view *ret_view)
{
    *ret_view = (struct view){.hint = hint};
    if (cay_sandbox_files(hint->sandbox, hint->exec->user, &ret_view->own, NULL))
        ret_view->own = NULL;
    if (cay_sandbox_files(hint->sandbox, "root", &ret_view->all, NULL))
        ret_view->all = NULL;
    ret_view->is_in_place = !(cay_sandbox_layers(hint->sandbox) & CAY_LAYER_MOUNT);
}

void view_close(struct view *view)
{
    cay_files_free(view->all);
    cay_files_free(view->own);
}

/* A path as the command means it: below its directory unless absolute. */
void view_place(const struct view *view, const char *path, char room[PATH_MAX])
{
    const char *cwd = view->hint->exec->cwd;

    if (*path == '/' || !cwd)
        snprintf(room, PATH_MAX, "%s", path);
    else
        snprintf(room, PATH_MAX, "%s/%s", cwd, path);
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

/* 1, 0, or -1 if it cannot be told. */
static int exists(const struct view *view, cay_files *files, const char *path)
{
    char inside[PATH_MAX];
    int got;

    if (!files)
        return -1;
    view_place(view, path, inside);
    got = cay_files_exists(files, inside, NULL);
    if (got == 1 && view->is_in_place)
        return is_readable(files, inside);
    return got < 0 ? -1 : got;
}

/* Who sees what there is; but relative paths start at the home of whoever asks. */
static cay_files *files_for(const struct view *view, const char *path)
{
    return view->all && (*path == '/' || view->hint->exec->cwd) ? view->all : view->own;
}

int view_has(const struct view *view, const char *path)
{
    return exists(view, files_for(view, path), path);
}

bool view_reaches(const struct view *view, const char *path)
{
    return exists(view, view->own, path) == 1;
}

/* Also a link that leads nowhere. */
bool view_is_taken(const struct view *view, const char *path)
{
    cay_files *files = files_for(view, path);
    char inside[PATH_MAX];
    struct cay_stat st;

    if (view->is_in_place)
        return view_has(view, path) == 1;
    view_place(view, path, inside);
    return files && cay_files_stat(files, inside, true, &st, NULL) == CAY_OK;
}

bool view_script(const struct view *view, const char *path, struct script *ret_script)
{
    struct cay_read_options start = {.size = sizeof start, .max = SCRIPT_LINE_MAX - 1};
    cay_files *files = files_for(view, path);
    struct cay_page page;
    char inside[PATH_MAX];

    view_place(view, path, inside);
    if (!files || cay_files_read_bytes(files, inside, &start, &page, NULL))
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

const char *view_path(const struct view *view)
{
    const struct cay_sandbox_options *made = view->hint->made;
    const char *path =
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"; /* request.c */

    path = find_path(made ? made->env : NULL, path);
    return find_path(view->hint->exec->env, path);
}

/* A program by its name, as it is found inside; false if it is not. */
bool view_find(const struct view *view, const char *name, char room[PATH_MAX])
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
