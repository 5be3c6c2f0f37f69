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

int template_report(struct template_draft *draft, const char *step, struct cay_error *err)
{
    const struct cay_template_options *options = draft->options;

    if (!options->on_progress)
        return CAY_OK;
    uint64_t now = clock_ns();
    if (now - draft->reported_ns < TELL_NS)
        return CAY_OK;
    draft->reported_ns = now;
    if (options->on_progress(options->cookie, step, draft->bytes) == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_CANCELLED, 0, op, options->name,
                    "creating the template was cancelled", "nothing of it is left");
}

static int from_tar(struct template_draft *draft, struct cay_error *err)
{
    const char *path = draft->options->from;
    struct stat st;
    AUTO_FD held = open(path, O_PATH | O_CLOEXEC);

    if (held < 0 || fstat(held, &st) != 0)
        return cay_fail_errno(err, errno, op, path);
    if (!S_ISREG(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, path, "not a regular file",
                        "use a tar file, plain or compressed");
    AUTO_FD fd = path_reopen(held, O_RDONLY);
    if (fd < 0)
        return cay_fail_errno(err, -fd, op, path);
    return template_unpack(draft, draft->root, fd, TEMPLATE_WHOLE, err);
}

static int fill(struct template_draft *draft, struct cay_error *err)
{
    static const char *const names[] = {"", "dir", "tar", "oci", "debootstrap"};
    enum cay_template_source source = draft->options->source;
    int code = CAY_E_INVALID;

    switch (source) {
    case CAY_TEMPLATE_DIR:
        code = template_from_directory(draft, err);
        break;
    case CAY_TEMPLATE_TAR:
        code = from_tar(draft, err);
        break;
    case CAY_TEMPLATE_OCI:
        code = template_from_image(draft, err);
        break;
    case CAY_TEMPLATE_DEBOOTSTRAP:
        code = template_from_debootstrap(draft, err);
        break;
    }
    if (!code)
        cay_copy_text(draft->info.shown.source, sizeof draft->info.shown.source,
                      names[source]);
    else if (err && !*err->subject) /* the archive reader does not know its name */
        cay_copy_text(err->subject, sizeof err->subject, draft->options->from);
    return code;
}

/* Without these it is not a root file system, and no command would ever start in it. */
static int check_whole(int root, const char *from, struct cay_error *err)
{
    struct stat st;

    if (fstatat(root, "bin", &st, AT_SYMLINK_NOFOLLOW) == 0 ||
        fstatat(root, "usr", &st, AT_SYMLINK_NOFOLLOW) == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, from, "the source has neither bin nor usr",
                    "use the complete root file system of a system");
}

/* Complete and synced to disk before it gets its name. */
static int finish(struct template_draft *draft, int store, const char *draft_name,
                  struct cay_error *err)
{
    struct cay_template_info *shown = &draft->info.shown;
    const char *name = draft->options->name;

    int code = users_add(draft->root, err);
    if (code)
        return code;
    shown->created_ms = clock_since_1970_ms();
    shown->bytes = draft->bytes;
    cay_copy_text(shown->from, sizeof shown->from, draft->options->from);
    code = template_info_save(draft->dir, &draft->info, err);
    if (code)
        return code;
    if (syncfs(draft->dir) != 0)
        return cay_fail_errno(err, errno, op, name);
    /* From now on it may be used, but not be swept. */
    (void)flock(draft->dir, LOCK_SH);
    if (renameat2(store, draft_name, store, name, RENAME_NOREPLACE) == 0)
        return CAY_OK;
    return errno == EEXIST ? cay_fail(err, CAY_E_EXISTS, 0, op, name,
                                      "a template with this name exists",
                                      "remove it first, or use another name")
                           : cay_fail_errno(err, errno, op, name);
}

static int make(struct template_draft *draft, int store, const char *draft_name,
                struct cay_error *err)
{
    /* Independent of the caller's umask. */
    if (mkdirat(draft->dir, "root", 0755) != 0)
        return cay_fail_errno(err, errno, op, "root");
    draft->root = path_open(draft->dir, "root", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (draft->root < 0 || fchmod(draft->root, 0755) != 0)
        return cay_fail_errno(err, draft->root < 0 ? -draft->root : errno, op, "root");
    int code = fill(draft, err);
    if (!code)
        code = check_whole(draft->root, draft->options->from, err);
    return code ? code : finish(draft, store, draft_name, err);
}

static int check(const struct cay_template_options *options, int store,
                 struct cay_error *err)
{
    struct stat st;

    if (options->source < CAY_TEMPLATE_DIR || options->source > CAY_TEMPLATE_DEBOOTSTRAP)
        return cay_fail(err, CAY_E_INVALID, 0, op, options->name,
                        "unknown kind of template source",
                        "use one of enum cay_template_source");
    if (!options->from || !*options->from)
        return cay_fail(err, CAY_E_INVALID, 0, op, options->name,
                        "no template source given",
                        "pass a directory, a tar file, an image or a suite");
    if (fstatat(store, options->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return cay_fail(err, CAY_E_EXISTS, 0, op, options->name,
                        "a template with this name exists",
                        "remove it first, or use another name");
    return CAY_OK;
}

int cay_template_create(const struct cay_template_options *options, struct cay_error *err)
{
    struct cay_template_options known;
    char draft_name[NAME_MAX + 1];

    int code = cay_take_struct(&known, sizeof known, options, op, err);
    if (!code)
        code = template_check_name(known.name, op, err);
    if (code)
        return code;
    if (geteuid() != 0)
        return cay_fail(
            err, CAY_E_UNSUPPORTED, 0, op, known.name,
            "only root can create templates, since their files have several owners",
            "use sudo, or the template \"host\"");
    AUTO_FD store = state_open("templates", true, err);
    if (store < 0)
        return store;
    code = check(&known, store, err);
    if (code)
        return code;
    (void)template_sweep();
    struct template_draft draft = {.options = &known, .root = -1};
    draft.dir = state_draft(store, ".new-", draft_name, err);
    if (draft.dir < 0)
        return draft.dir;
    code = make(&draft, store, draft_name, err);
    if (code)
        (void)tree_remove(&fs_direct, op, store, draft_name, draft_name, NULL);
    (void)close(draft.dir);
    auto_close(&draft.root);
    template_info_done(&draft.info);
    return code;
}
