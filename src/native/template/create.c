/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "files/walk.h"
#include "native/record/state.h"
#include "native/record/users.h"
#include "native/template/template.h"
#include "sys/fs.h"
#include "sys/path.h"

static const char op[] = TEMPLATE_OP;

enum { TELL_NS = 100000000 };

int template_tell(struct template_making *making, const char *step, struct cay_error *err)
{
    const struct cay_template_options *options = making->options;

    if (!options->on_progress)
        return CAY_OK;
    uint64_t now = clock_ns();
    if (now - making->told_ns < TELL_NS)
        return CAY_OK;
    making->told_ns = now;
    if (options->on_progress(options->cookie, step, making->bytes) == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_CANCELLED, 0, op, options->name,
                    "the template was not made, as asked", "nothing is left of it");
}

static int from_tar(struct template_making *making, struct cay_error *err)
{
    const char *path = making->options->from;
    struct stat st;
    AUTO_FD held = open(path, O_PATH | O_CLOEXEC);

    if (held < 0 || fstat(held, &st) != 0)
        return cay_fail_errno(err, errno, op, path);
    if (!S_ISREG(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, path, "this is not a file",
                        "name a tar file, plain or compressed");
    AUTO_FD fd = path_reopen(held, O_RDONLY);
    if (fd < 0)
        return cay_fail_errno(err, -fd, op, path);
    return template_unpack(making, making->root, fd, TEMPLATE_WHOLE, err);
}

static int fill(struct template_making *making, struct cay_error *err)
{
    static const char *const names[] = {"", "dir", "tar", "oci", "debootstrap"};
    enum cay_template_source source = making->options->source;
    int code = CAY_E_INVALID;

    switch (source) {
    case CAY_TEMPLATE_DIR:
        code = template_from_directory(making, err);
        break;
    case CAY_TEMPLATE_TAR:
        code = from_tar(making, err);
        break;
    case CAY_TEMPLATE_OCI:
        code = template_from_image(making, err);
        break;
    case CAY_TEMPLATE_DEBOOTSTRAP:
        code = template_from_debootstrap(making, err);
        break;
    }
    if (!code)
        cay_copy_text(making->info.shown.source, sizeof making->info.shown.source,
                      names[source]);
    else if (err && !*err->subject) /* an archive does not know its name */
        cay_copy_text(err->subject, sizeof err->subject, making->options->from);
    return code;
}

/* What has none of these is no root of a system, and no command would ever start in it.
 */
static int check_whole(int root, const char *from, struct cay_error *err)
{
    struct stat st;

    if (fstatat(root, "bin", &st, AT_SYMLINK_NOFOLLOW) == 0 ||
        fstatat(root, "usr", &st, AT_SYMLINK_NOFOLLOW) == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, from, "it has neither bin nor usr",
                    "give the whole root of a system");
}

/* Whole and on the disk before it gets its name. */
static int finish(struct template_making *making, int store, const char *draft,
                  struct cay_error *err)
{
    struct cay_template_info *shown = &making->info.shown;
    const char *name = making->options->name;

    int code = users_add(making->root, err);
    if (code)
        return code;
    shown->created_ms = clock_since_1970_ms();
    shown->bytes = making->bytes;
    cay_copy_text(shown->from, sizeof shown->from, making->options->from);
    code = template_info_save(making->dir, &making->info, err);
    if (code)
        return code;
    if (syncfs(making->dir) != 0)
        return cay_fail_errno(err, errno, op, name);
    /* From now on it may be used, but not be swept away. */
    (void)flock(making->dir, LOCK_SH);
    if (renameat2(store, draft, store, name, RENAME_NOREPLACE) == 0)
        return CAY_OK;
    return errno == EEXIST ? cay_fail(err, CAY_E_EXISTS, 0, op, name,
                                      "there is a template of that name",
                                      "remove it first, or use another name")
                           : cay_fail_errno(err, errno, op, name);
}

static int make(struct template_making *making, int store, const char *draft,
                struct cay_error *err)
{
    /* Whatever the caller's umask is. */
    if (mkdirat(making->dir, "root", 0755) != 0)
        return cay_fail_errno(err, errno, op, "root");
    making->root = path_open(making->dir, "root", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (making->root < 0 || fchmod(making->root, 0755) != 0)
        return cay_fail_errno(err, making->root < 0 ? -making->root : errno, op, "root");
    int code = fill(making, err);
    if (!code)
        code = check_whole(making->root, making->options->from, err);
    return code ? code : finish(making, store, draft, err);
}

static int check(const struct cay_template_options *options, int store,
                 struct cay_error *err)
{
    struct stat st;

    if (options->source < CAY_TEMPLATE_DIR || options->source > CAY_TEMPLATE_DEBOOTSTRAP)
        return cay_fail(err, CAY_E_INVALID, 0, op, options->name,
                        "there is no such kind of source",
                        "use one of enum cay_template_source");
    if (!options->from || !*options->from)
        return cay_fail(err, CAY_E_INVALID, 0, op, options->name,
                        "nothing is said to make the template from",
                        "name a directory, a tar file, an image or a suite");
    if (fstatat(store, options->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return cay_fail(err, CAY_E_EXISTS, 0, op, options->name,
                        "there is a template of that name",
                        "remove it first, or use another name");
    return CAY_OK;
}

int cay_template_create(const struct cay_template_options *options, struct cay_error *err)
{
    struct cay_template_options known;
    char draft[NAME_MAX + 1];

    int code = cay_take_struct(&known, sizeof known, options, op, err);
    if (!code)
        code = template_check_name(known.name, op, err);
    if (code)
        return code;
    if (geteuid() != 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, known.name,
                        "only root can make templates: their files have many owners",
                        "use sudo, or the template \"host\"");
    AUTO_FD store = state_open("templates", true, err);
    if (store < 0)
        return store;
    code = check(&known, store, err);
    if (code)
        return code;
    (void)template_sweep();
    struct template_making making = {.options = &known, .root = -1};
    making.dir = state_draft(store, ".new-", draft, err);
    if (making.dir < 0)
        return making.dir;
    code = make(&making, store, draft, err);
    if (code)
        (void)tree_remove(&fs_direct, op, store, draft, draft, NULL);
    (void)close(making.dir);
    if (making.root >= 0)
        (void)close(making.root);
    template_info_done(&making.info);
    return code;
}
