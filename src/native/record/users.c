/* SPDX-License-Identifier: Apache-2.0 */

/* The files belong to the template and are untrusted: they are read with a size limit and
 * without following links, and existing names and numbers are left as they are. */
#include "native/record/users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/passwd.h"
#include "init/plan.h"
#include "native/record/runtime.h"
#include "native/record/state.h"
#include "sys/io.h"
#include "sys/path.h"

static const char op[] = "template.user";

static int fail(int sys_errno, const char *path, struct cay_error *err)
{
    if (sys_errno == ELOOP || sys_errno == ENOTDIR || sys_errno == EFBIG)
        return cay_fail(
            err, CAY_E_INVALID, sys_errno, op, path,
            "cannot read the template's users: this is a symbolic link or has an "
            "unexpected type",
            "use a template in which /etc is a directory and this is a regular file");
    return cay_fail_errno(err, sys_errno, op, path);
}

static char *read_etc(int root, const char *name)
{
    size_t size;
    AUTO_FD etc = path_open(root, "etc", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);

    return etc < 0 ? NULL : state_read(etc, name, PASSWD_MAX, &size);
}

bool users_find_group(int root, const char *name, uint32_t *ret_gid)
{
    struct passwd_line line;
    AUTO_FREE char *text = read_etc(root, "group");

    return text && passwd_find(text, name, strlen(name), &line) &&
           passwd_id(&line, 2, RUNTIME_IDS - 1, ret_gid);
}

bool users_find(int root, const char *name, size_t len, uint32_t *ret_uid,
                uint32_t *ret_gid)
{
    uint32_t uid;
    struct passwd_line line;
    AUTO_FREE char *text = read_etc(root, "passwd");

    if (!text || !passwd_find(text, name, len, &line) ||
        !passwd_id(&line, 2, RUNTIME_IDS - 1, &uid) ||
        !passwd_id(&line, 3, RUNTIME_IDS - 1, ret_gid))
        return false;
    *ret_uid = uid;
    return true;
}

/* Reads the file and appends `line`, unless it has an entry for `user`. */
static int read_one(int etc, struct users_file *file, const char *others,
                    const char *line, struct cay_error *err)
{
    size_t len = 0;
    struct passwd_line present;
    AUTO_FREE char *text = etc < 0 ? NULL : state_read(etc, file->name, PASSWD_MAX, &len);

    if (!text && etc >= 0 && errno != ENOENT)
        return fail(errno, file->name, err);
    if (text && passwd_find(text, "user", strlen("user"), &present))
        return CAY_OK;
    file->is_new = !text;
    const char *before = text ? text : others;
    size_t before_len = strlen(before);
    const char *end = before_len && before[before_len - 1] != '\n' ? "\n" : "";
    if (asprintf(&file->text, "%s%s%s", before, end, line) < 0) {
        file->text = NULL;
        return cay_fail_memory(err, op);
    }
    return CAY_OK;
}

static const char *find_shell(int root)
{
    AUTO_FD bash = path_open(root, "bin/bash", O_PATH, 0, RESOLVE_IN_ROOT);

    return bash >= 0 ? "/bin/bash" : "/bin/sh";
}

int users_read(int root, struct users *ret_users, struct cay_error *err)
{
    char line[128];
    AUTO_FD etc = path_open(root, "etc", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);

    *ret_users = (struct users){.files = {{.name = "passwd", .mode = 0644},
                                          {.name = "group", .mode = 0644},
                                          {.name = "shadow", .mode = 0640}}};
    if (etc < 0 && etc != -ENOENT)
        return fail(-etc, "etc", err);
    snprintf(line, sizeof line, "user:x:%d:%d:user:/home/user:%s\n", PLAN_USER, PLAN_USER,
             find_shell(root));
    int code =
        read_one(etc, &ret_users->files[0], "root:x:0:0:root:/root:/bin/sh\n", line, err);
    snprintf(line, sizeof line, "user:x:%d:\n", PLAN_USER);
    if (!code)
        code = read_one(etc, &ret_users->files[1], "root:x:0:\n", line, err);
    if (!code)
        code = read_one(etc, &ret_users->files[2], "root:*:19000:0:99999:7:::\n",
                        "user:*:19000:0:99999:7:::\n", err);
    if (code)
        users_done(ret_users);
    return code;
}

void users_done(struct users *users)
{
    for (size_t i = 0; i < USERS_FILES; i++)
        free(users->files[i].text);
    *users = (struct users){0};
}

/* Opens a directory, created if missing; a descriptor. */
static int need_directory(int dir, const char *name, unsigned owner,
                          struct cay_error *err)
{
    bool is_new = mkdirat(dir, name, 0755) == 0;

    if (!is_new && errno != EEXIST)
        return fail(errno, name, err);
    AUTO_FD fd = path_open(dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (fd < 0)
        return fail(-fd, name, err);
    if (is_new && (fchown(fd, owner, owner) != 0 || fchmod(fd, 0755) != 0))
        return fail(errno, name, err);
    return TAKE_FD(fd);
}

static int write_one(int etc, const struct users_file *file, struct cay_error *err)
{
    AUTO_FD fd =
        path_open(etc, file->name, O_WRONLY | O_CREAT | O_TRUNC, 0600, PATH_PLAIN);
    int error = fd < 0 ? fd : io_write(fd, file->text, strlen(file->text));

    if (!error && file->is_new && fchmod(fd, file->mode) != 0)
        error = -errno;
    return error ? fail(-error, file->name, err) : CAY_OK;
}

/* If /home is a link, the template has its own layout. */
static int add_home(int root, struct cay_error *err)
{
    struct stat st;

    if (fstatat(root, "home", &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
        return CAY_OK;
    AUTO_FD home = need_directory(root, "home", 0, err);
    if (home < 0)
        return home;
    AUTO_FD own = need_directory(home, "user", PLAN_USER, err);
    return own < 0 ? own : CAY_OK;
}

int users_add(int root, struct cay_error *err)
{
    struct users users;
    AUTO_FD etc = need_directory(root, "etc", 0, err);
    int code = etc < 0 ? etc : users_read(root, &users, err);

    if (code)
        return code;
    for (size_t i = 0; !code && i < USERS_FILES; i++)
        if (users.files[i].text)
            code = write_one(etc, &users.files[i], err);
    users_done(&users);
    return code ? code : add_home(root, err);
}
