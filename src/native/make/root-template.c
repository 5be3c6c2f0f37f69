/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/make/root-plan.h"
#include "native/record/users.h"
#include "sys/io.h"

static const char op[] = "sandbox.template";

enum { RESOLVER_MAX = 64 << 10 };

char *root_plan_resolver(size_t *ret_len)
{
    struct stat st;
    AUTO_FD fd = open("/etc/resolv.conf", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        st.st_size > RESOLVER_MAX)
        return NULL;
    char *text = malloc((size_t)st.st_size + 1);
    ssize_t len = text ? io_pread(fd, text, (size_t)st.st_size, 0) : -1;
    if (len < 0) {
        free(text);
        return NULL;
    }
    *ret_len = (size_t)len;
    return text;
}

/* These are mount points: a link there could redirect the mounts. */
static int check_paths(int root, struct cay_error *err)
{
    static const char *const places[] = {"dev", "proc", "sys", "etc"};
    struct stat st;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (fstatat(root, places[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            !S_ISDIR(st.st_mode))
            return cay_fail(err, CAY_E_INVALID, 0, op, places[i],
                            "not a directory in this template",
                            "use a template in which dev, proc, sys and etc are "
                            "directories, not links");
    return CAY_OK;
}

static void add_names(struct root_plan *root_plan)
{
    const char *hostname = root_plan->head.hostname;
    char text[256];

    int len =
        snprintf(text, sizeof text, "127.0.0.1 localhost %s\n::1 localhost\n", hostname);
    root_plan_replace(root_plan, "etc/hosts", 0644, text, (size_t)len);
    len = snprintf(text, sizeof text, "%s\n", hostname);
    root_plan_replace(root_plan, "etc/hostname", 0644, text, (size_t)len);
    if (!root_plan->head.own_network) {
        size_t resolver_len = 0;
        AUTO_FREE char *resolver = root_plan_resolver(&resolver_len);
        if (resolver)
            root_plan_replace(root_plan, "etc/resolv.conf", 0644, resolver, resolver_len);
    }
}

/* A directory used as a template may not have a `user`. */
static int add_user(struct root_plan *root_plan, int root, struct cay_error *err)
{
    struct users users;
    int code = users_read(root, &users, err);

    if (code)
        return code;
    for (size_t i = 0; i < USERS_FILES; i++)
        if (users.files[i].text) {
            char path[32];
            snprintf(path, sizeof path, "etc/%s", users.files[i].name);
            root_plan_replace(root_plan, path, users.files[i].mode, users.files[i].text,
                              strlen(users.files[i].text));
        }
    users_done(&users);
    root_plan_need(root_plan, "home/user", 0755, PLAN_USER);
    return CAY_OK;
}

int root_plan_template(struct root_plan *root_plan, const struct template *template,
                       uint64_t disk_bytes, struct cay_error *err)
{
    static const struct {
        const char *path;
        unsigned mode;
    } needed[] = {{"dev", 0755},  {"proc", 0555}, {"sys", 0555}, {"etc", 0755},
                  {"tmp", 01777}, {"run", 0755},  {"var", 0755}, {"var/tmp", 01777},
                  {"root", 0700}, {"home", 0755}};

    int code = check_paths(template->root, err);
    if (code)
        return code;
    root_plan->overlay.lower = template->root;
    root_plan->overlay.usr = template->usr;
    root_plan->overlay.size = disk_bytes;
    root_plan_step(root_plan, PLAN_ROOT, "");
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        root_plan_need(root_plan, needed[i].path, needed[i].mode, 0);
    add_names(root_plan);
    if (template->usr >= 0)
        root_plan_bind(root_plan, "usr", "/usr", PLAN_WITH_WRITING | PLAN_WITH_LAYER);
    root_plan->head.has_sudo = template->usr >= 0;
    if (template->dir < 0)
        code = add_user(root_plan, template->root, err);
    root_plan_kernel(root_plan, disk_bytes);
    return code;
}
