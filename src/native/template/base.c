/* SPDX-License-Identifier: Apache-2.0 */

/* The template "base": a system that root inside can change, with the host's programs.
 *
 * Its root is an overlay like that of any template.  What lies below is made from the
 * host's /etc and package database the first time it is needed, in the store of templates
 * as ".base-VERSION".  The version is a hash of what it was made from and of the boot: a
 * machine that lost power may have lost files that were not written yet, so none is used
 * after a restart.  /usr is not copied: overlay.c shows the host's, with the layer "usr"
 * above it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "native/record/idmap.h"
#include "native/record/state.h"
#include "native/template/base-files.h"
#include "native/template/template.h"
#include "sys/fs.h"
#include "sys/path.h"
#include "sys/shift.h"

static const char op[] = "template.base";
static const char prefix[] = ".base-";

enum { TRIES = 3 };

static void name_version(char ret_name[NAME_MAX + 1])
{
    snprintf(ret_name, NAME_MAX + 1, "%s%016llx", prefix,
             (unsigned long long)base_version());
}

/* --- Whether this machine can have it --- */

static bool can_shift(int fd, int map)
{
    AUTO_FD mount = shift_mount(fd, map, MOUNT_ATTR_RDONLY);

    return mount >= 0;
}

/* File systems differ in whether they show files with other owners; nothing but trying
 * finds out. */
static bool can_be_shown(int draft)
{
    AUTO_FD map = shift_map("0 1879048192 65536\n", "0 1879048192 65536\n");
    AUTO_FD usr = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);

    return map >= 0 && usr >= 0 && can_shift(draft, map) && can_shift(usr, map);
}

/* The programs must all be in /usr. */
static bool is_merged(void)
{
    struct stat st;

    return lstat("/bin", &st) == 0 && S_ISLNK(st.st_mode);
}

/* --- Making it --- */

static int fill(int draft, struct cay_error *err)
{
    static const char *const names[] = {"root", "usr"};
    int error = 0;

    for (size_t i = 0; !error && i < 2; i++)
        error =
            mkdirat(draft, names[i], 0755) == 0 && fchmodat(draft, names[i], 0755, 0) == 0
                ? 0
                : -errno;
    AUTO_FD root = error ? -1 : path_open(draft, "root", O_RDONLY, 0, PATH_PLAIN);
    AUTO_FD usr = error ? -1 : path_open(draft, "usr", O_RDONLY, 0, PATH_PLAIN);
    if (!error)
        error = base_fill(root, usr);
    return error ? cay_fail_errno(err, -error, op, "base") : CAY_OK;
}

/* 1: it is there now; 0: this machine cannot have it; or a code.  One caller at a time
 * makes it, and the others find it afterwards. */
static int make(int store, const char *name, struct cay_error *err)
{
    char draft_name[NAME_MAX + 1];
    struct stat st;
    AUTO_FD turn = path_open(store, ".base", O_RDWR | O_CREAT, 0600, PATH_PLAIN);

    if (turn < 0 || flock(turn, LOCK_EX) != 0)
        return cay_fail_errno(err, turn < 0 ? -turn : errno, op, "base");
    if (fstatat(store, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    AUTO_FD draft = state_draft(store, ".new-", draft_name, err);
    if (draft < 0)
        return TAKE_FD(draft);
    bool is_fit = can_be_shown(draft);
    int code = is_fit ? fill(draft, err) : CAY_OK;
    if (is_fit && !code && renameat(store, draft_name, store, name) != 0)
        code = cay_fail_errno(err, errno, op, "base");
    if (is_fit && !code)
        return 1;
    (void)tree_remove(&fs_direct, op, store, draft_name, draft_name, NULL);
    return code;
}

/* --- Using it --- */

/* 0, or a negative errno: -ENOENT if it is not there, or was removed meanwhile. */
static int open_version(int store, const char *name, struct template *template)
{
    struct stat st;
    AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (dir < 0)
        return TAKE_FD(dir);
    if (flock(dir, LOCK_SH) != 0)
        return -errno;
    AUTO_FD root = path_open(dir, "root", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_FD usr = path_open(dir, "usr", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (root < 0 || usr < 0 || fstat(root, &st) != 0)
        return -ENOENT;
    template->dev = st.st_dev;
    template->ino = st.st_ino;
    template->dir = TAKE_FD(dir);
    template->root = TAKE_FD(root);
    template->usr = TAKE_FD(usr);
    return 0;
}

static int open_or_make(int store, struct template *template, struct cay_error *err)
{
    char name[NAME_MAX + 1];
    int error = -ENOENT;

    for (int tries = 0; error == -ENOENT && tries < TRIES; tries++) {
        name_version(name);
        error = open_version(store, name, template);
        int made = error == -ENOENT ? make(store, name, err) : 1;
        if (made <= 0)
            return made;
        if (error == -ENOENT)
            error = open_version(store, name, template);
    }
    return error ? cay_fail_errno(err, -error, op, "base") : CAY_OK;
}

/* Set for every command.  Without a network each retry would only take time. */
static int set_env(bool is_offline, struct template *template, struct cay_error *err)
{
    static const struct {
        const char *text;
        bool is_of_root, is_offline;
    } all[] = {
        {"PATH=/home/user/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"
         "/sbin:/bin",
         true, false},
        {"PIP_BREAK_SYSTEM_PACKAGES=1", false, false},
        {"PIP_RETRIES=0", false, true},
        {"UV_HTTP_RETRIES=0", false, true},
        {"npm_config_fetch_retries=0", false, true},
        {"APT_CONFIG=" BASE_APT_OFFLINE, true, true},
    };
    enum { ALL = sizeof all / sizeof *all };
    char **env = template->info.env = calloc(ALL + 1, sizeof *env);
    size_t used = 0;

    if (!env)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < ALL; i++) {
        if ((all[i].is_of_root && template->root < 0) ||
            (all[i].is_offline && !is_offline))
            continue;
        env[used] = strdup(all[i].text);
        if (!env[used++])
            return cay_fail_memory(err, op);
    }
    return CAY_OK;
}

int template_base_open(bool is_offline, struct template *ret_template,
                       struct cay_error *err)
{
    int code = CAY_OK;

    *ret_template = (struct template)TEMPLATE_NONE;
    cay_copy_text(ret_template->info.shown.name, sizeof ret_template->info.shown.name,
                  "base");
    if (idmap_is_root() && is_merged()) {
        AUTO_FD store = state_open("templates", true, err);
        code = store < 0 ? store : open_or_make(store, ret_template, err);
    }
    return code ? code : set_env(is_offline, ret_template, err);
}

size_t template_base_sweep(int store)
{
    DIR *list = path_list(store);
    char current[NAME_MAX + 1];
    size_t count = 0;

    name_version(current);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        const char *name = entry->d_name;
        if (strncmp(name, prefix, sizeof prefix - 1) != 0 || strcmp(name, current) == 0)
            continue;
        AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (dir >= 0 && template_check_unused(dir, op, name, NULL) == CAY_OK)
            count += state_bury(store, name, op, NULL) == CAY_OK;
    }
    if (list)
        closedir(list);
    return count;
}
