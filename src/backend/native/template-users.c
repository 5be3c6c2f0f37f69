/* SPDX-License-Identifier: Apache-2.0 */

/* Every root has a `user`: who runs commands by default.  The files that say so belong to
 * the template, so they are read with caps and through no link, and a name or number that
 * is there already is left as it is. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/native/state.h"
#include "backend/native/template.h"
#include "base/auto.h"
#include "base/error.h"
#include "sys/io.h"
#include "sys/path.h"

static const char op[] = "template.user";

enum { USER = 1000, FILE_MAX = 1 << 20 };

static int fail(int sys_errno, const char *path, struct cay_error *err)
{
    if (sys_errno == ELOOP || sys_errno == ENOTDIR || sys_errno == EFBIG)
        return cay_fail(err, CAY_E_INVALID, sys_errno, op, path,
                        "the template's users cannot be read: this is a link, or is "
                        "not what it is on other systems",
                        "use a template in which /etc is a directory and this a file");
    return cay_fail_errno(err, sys_errno, op, path);
}

static bool has_name(const char *text, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) == 0 && line[len] == ':')
            return true;
        if (!*line)
            break;
    }
    return false;
}

/* Puts `line` at the end of etc/NAME unless that has an entry called `user`. */
static int add_line(int etc, uint32_t id_base, const char *name, mode_t mode,
                    const char *others, const char *line, struct cay_error *err)
{
    size_t len = 0;
    AUTO_FREE char *text = state_read(etc, name, FILE_MAX, &len);

    if (!text && errno != ENOENT)
        return fail(errno, name, err);
    if (text && has_name(text, "user"))
        return CAY_OK;
    bool is_new = !text;
    AUTO_FD fd = path_open(etc, name, O_WRONLY | O_CREAT | O_APPEND, 0600, PATH_PLAIN);
    int error = fd < 0 ? fd : 0;
    if (!error && is_new)
        error = io_write(fd, others, strlen(others));
    if (!error && len && text[len - 1] != '\n')
        error = io_write(fd, "\n", 1);
    if (!error)
        error = io_write(fd, line, strlen(line));
    if (!error && is_new && (fchown(fd, id_base, id_base) != 0 || fchmod(fd, mode) != 0))
        error = -errno;
    return error ? fail(-error, name, err) : CAY_OK;
}

/* A directory, made if it is not there; a descriptor. */
static int need_directory(int root, uint32_t id_base, const char *path, unsigned owner,
                          struct cay_error *err)
{
    bool is_new = mkdirat(root, path, 0755) == 0;

    if (!is_new && errno != EEXIST)
        return fail(errno, path, err);
    AUTO_FD fd = path_open(root, path, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (fd < 0)
        return fail(-fd, path, err);
    if (is_new &&
        (fchown(fd, id_base + owner, id_base + owner) != 0 || fchmod(fd, 0755) != 0))
        return fail(errno, path, err);
    return TAKE_FD(fd);
}

static const char *find_shell(int root)
{
    AUTO_FD bash = path_open(root, "bin/bash", O_PATH, 0, RESOLVE_IN_ROOT);

    return bash >= 0 ? "/bin/bash" : "/bin/sh";
}

static int add_home(int root, uint32_t id_base, struct cay_error *err)
{
    AUTO_FD home = need_directory(root, id_base, "home", 0, err);

    if (home < 0)
        return home;
    AUTO_FD own = need_directory(home, id_base, "user", USER, err);
    return own < 0 ? own : CAY_OK;
}

int template_add_user(int root, uint32_t id_base, struct cay_error *err)
{
    char line[128];
    const char *shell = find_shell(root);
    AUTO_FD etc = need_directory(root, id_base, "etc", 0, err);

    if (etc < 0)
        return etc;
    snprintf(line, sizeof line, "user:x:%d:%d:user:/home/user:%s\n", USER, USER, shell);
    int code = add_line(etc, id_base, "passwd", 0644, "root:x:0:0:root:/root:/bin/sh\n",
                        line, err);
    snprintf(line, sizeof line, "user:x:%d:\n", USER);
    if (!code)
        code = add_line(etc, id_base, "group", 0644, "root:x:0:\n", line, err);
    if (!code)
        code = add_line(etc, id_base, "shadow", 0640, "root:*:19000:0:99999:7:::\n",
                        "user:*:19000:0:99999:7:::\n", err);
    return code ? code : add_home(root, id_base, err);
}
