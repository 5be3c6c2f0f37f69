/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/find.h"
#include "files/handle.h"
#include "files/libarchive.h"
#include "files/tar-options.h"
#include "files/walk.h"

#define OP "files.export"

enum { PIECE = 256 << 10, BLOCK = 64 << 10 };

struct export
{
    cay_files *files;
    const struct target *start;
    const struct cay_tar_options *options;
    struct cay_tar_result *result;
    struct archive *archive;
    struct archive_entry *entry;
    int fd;
    bool is_over;    /* nothing more goes to fd */
    int write_error; /* errno of what went wrong with it */
    char *piece;
    struct target target;     /* the current entry... */
    char label[2 * PATH_MAX]; /* ...and its path as the policy spells it */
};

/* --- The stream ----------------------------------------------------------------------
 */

/* Never fails in libarchive's eyes: that would make it leak its buffer.  After a failure
 * of any kind nothing more is written, so that the stream does not look complete. */
static la_ssize_t put(struct archive *archive, void *cookie, const void *data, size_t len)
{
    struct export *export = cookie;
    struct pollfd output = {.fd = export->fd, .events = POLLOUT};

    (void)archive;
    while (!export->is_over) {
        ssize_t written = write(export->fd, data, len);
        if (written >= 0)
            return written;
        int error = errno;
        if (error == EAGAIN) {
            (void)poll(&output, 1, -1);
        } else if (error != EINTR) {
            export->write_error = error;
            export->is_over = true;
        }
    }
    return (la_ssize_t)len;
}

static int fail_stream(const struct export *export, struct cay_error *err)
{
    if (export->write_error)
        return cay_fail(err, CAY_E_IO, export->write_error, OP, export->start->path,
                        strerrordesc_np(export->write_error),
                        "keep the reading end of the stream open until it ends");
    if (libarchive.archive_errno(export->archive) == ENOMEM)
        return cay_fail_memory(err, OP);
    return cay_fail(err, CAY_E_INTERNAL, 0, OP, export->label,
                    "the archive cannot hold this entry",
                    "leave it out by exporting the directories beside it");
}

static int open_stream(struct export *export, struct cay_error *err)
{
    export->archive = libarchive.archive_write_new();
    export->entry = libarchive.archive_entry_new();
    export->piece = malloc(PIECE);
    if (!export->archive || !export->entry || !export->piece)
        return cay_fail_memory(err, OP);
    if (libarchive.archive_write_set_format_pax_restricted(export->archive) !=
            ARCHIVE_OK ||
        libarchive.archive_write_set_bytes_per_block(export->archive, BLOCK) !=
            ARCHIVE_OK ||
        libarchive.archive_write_set_bytes_in_last_block(export->archive, 512) !=
            ARCHIVE_OK ||
        libarchive.archive_write_open(export->archive, export, NULL, put, NULL) !=
            ARCHIVE_OK)
        return fail_stream(export, err);
    return CAY_OK;
}

static void export_done(struct export *export)
{
    target_done(&export->target);
    libarchive.archive_entry_free(export->entry);
    export->is_over = true;
    if (export->archive)
        libarchive.archive_write_free(export->archive);
    free(export->piece);
}

/* --- Entries -------------------------------------------------------------------------
 */

static int put_header(struct export *export, const char *rel, const char *link,
                      struct cay_error *err)
{
    struct archive_entry *entry = export->entry;
    const struct stat *st = &export->target.st;

    if (export->result->entries == export->options->max_entries)
        return cay_fail(err, CAY_E_LIMIT, 0, OP, export->label,
                        "the directory has more entries than allowed",
                        "the limit is %llu",
                        (unsigned long long)export->options->max_entries);
    libarchive.archive_entry_clear(entry);
    libarchive.archive_entry_set_pathname(entry, rel);
    libarchive.archive_entry_set_filetype(entry, st->st_mode & S_IFMT);
    libarchive.archive_entry_set_perm(entry, st->st_mode & 0777);
    libarchive.archive_entry_set_mtime(entry, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
    if (S_ISREG(st->st_mode))
        libarchive.archive_entry_set_size(entry, st->st_size);
    if (link)
        libarchive.archive_entry_set_symlink(entry, link);
    /* A warning says that the name is not UTF-8; it is stored byte by byte then. */
    int result = libarchive.archive_write_header(export->archive, entry);
    if ((result != ARCHIVE_OK && result != ARCHIVE_WARN) || export->write_error)
        return fail_stream(export, err);
    export->result->entries++;
    return CAY_OK;
}

static int put_content(struct export *export, int fd, struct cay_error *err)
{
    uint64_t left = (uint64_t) export->target.st.st_size;

    while (left) {
        ssize_t got = read(fd, export->piece, left < PIECE ? (size_t)left : PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return target_fail(&export->target, errno, err);
        if (got == 0)
            return cay_fail(err, CAY_E_CHANGED, 0, OP, export->label,
                            "the file became shorter while it was read",
                            "export again when nobody writes to it");
        if (libarchive.archive_write_data(export->archive, export->piece, (size_t)got) !=
                got ||
            export->write_error)
            return fail_stream(export, err);
        left -= (uint64_t)got;
        export->result->bytes += (uint64_t)got;
    }
    return CAY_OK;
}

static bool is_allowed(const struct export *export)
{
    const struct target *target = &export->target;

    return target_check_suffix(export->files, target, NULL) == CAY_OK &&
           target_check_size(export->files, target, (uint64_t)target->st.st_size, NULL) ==
               CAY_OK;
}

/* What breaks a rule or cannot be read is left out and counted. */
static int put_file(struct export *export, const char *rel, struct cay_error *err)
{
    AUTO_FD fd = -1;

    struct cay_error why;
    int code = is_allowed(export) ? target_open(&export->target, O_RDONLY, &fd, &why)
                                  : CAY_E_SUFFIX;

    if (find_is_serious(code)) {
        if (err)
            *err = why;
        return code;
    }
    if (!code && fstat(fd, &export->target.st) != 0)
        return target_fail(&export->target, errno, err);
    if (code || !is_allowed(export)) {
        export->result->skipped++;
        return CAY_OK;
    }
    if ((uint64_t) export->target.st.st_size >
        export->options->max_bytes - export->result->bytes)
        return cay_fail(err, CAY_E_LIMIT, 0, OP, export->label,
                        "the directory has more bytes than allowed", "the limit is %llu",
                        (unsigned long long)export->options->max_bytes);
    code = put_header(export, rel, NULL, err);
    return code ? code : put_content(export, fd, err);
}

/* An absolute link would tell a host path, so it is left out like one that leads out. */
static int put_link(struct export *export, const char *rel, struct cay_error *err)
{
    const struct target *target = &export->target;
    const struct mount *mount = target_mount(export->files, target);
    const struct fs *fs = target->fs;
    char text[PATH_MAX], place[PATH_MAX];
    struct fs_found found = {.fd = -1, .dir = -1};

    ssize_t len = fs->read_link(fs, target->fd, text, sizeof text);
    if (len < 0)
        return target_fail(target, (int)-len, err);
    int error = fs->find(fs, export->files->roots[target->mount], mount->host,
                         target->rel, 0, place, &found);
    if (found.fd >= 0)
        (void)close(found.fd);
    if (!walk_may_skip(-error))
        return target_fail(target, -error, err);
    if (error || len == 0 || (size_t)len >= sizeof text || *text == '/') {
        export->result->skipped++;
        return CAY_OK;
    }
    text[len] = '\0';
    return put_header(export, rel, text, err);
}

/* --- The walk ------------------------------------------------------------------------
 */

/* Whether the step is at a place this policy shows; fills in the target but for fd. */
static bool locate(struct export *export, const struct walk_step *step)
{
    const cay_policy *policy = export->files->policy;
    size_t mount = export->start->mount;

    return walk_join(export->target.rel, export->start->rel, step->rel) &&
           policy_label(policy, mount, export->target.rel, export->label,
                        sizeof export->label) &&
           !policy_is_hidden(policy, mount, export->target.rel) &&
           policy_access(policy, mount, export->target.rel) & CAY_ACCESS_READ;
}

static int put_name(struct export *export, const struct walk_step *step,
                    struct cay_error *err)
{
    struct target *target = &export->target;
    struct fs_found found = {.fd = -1, .dir = -1};
    char name[PATH_MAX];

    target_done(target);
    int error = target->fs->find(target->fs, step->dir, NULL, step->name,
                                 FS_NO_FOLLOW | FS_AND_READ, name, &found);
    if (error || found.fd < 0)
        return walk_may_skip(-error) ? CAY_OK : target_fail(target, -error, err);
    target->fd = found.fd;
    target->st = found.st;
    target->is_open = found.is_open;
    if (S_ISREG(target->st.st_mode))
        return put_file(export, step->rel, err);
    if (S_ISLNK(target->st.st_mode))
        return put_link(export, step->rel, err);
    if (S_ISDIR(target->st.st_mode))
        return put_header(export, step->rel, NULL, err);
    export->result->skipped++;
    return CAY_OK;
}

static int go_below(const struct export *export, struct walk *walk,
                    const struct walk_step *step, struct cay_error *err)
{
    if (step->type != DT_DIR)
        return CAY_OK;
    if (step->depth >= export->options->max_depth)
        return cay_fail(err, CAY_E_LIMIT, 0, OP, export->label,
                        "the directory is nested deeper than allowed", "the limit is %u",
                        export->options->max_depth);
    return walk_enter(walk, 0, err);
}

static int put_all(struct export *export, struct cay_error *err)
{
    const struct target *start = export->start;
    struct walk_options options = {.fs = export->files->fs,
                                   .root = export->files->roots[start->mount],
                                   .real = start->rel,
                                   .max_depth = UINT32_MAX};
    struct walk *walk = NULL;
    struct walk_step step;

    int code = walk_new(OP, start->fd, &options, &walk, err);
    while (!code) {
        code = walk_next(walk, &step, err);
        if (code <= 0)
            break;
        code = !locate(export, &step)    ? CAY_OK
               : step.event == WALK_NAME ? put_name(export, &step, err)
                                         : go_below(export, walk, &step, err);
    }
    walk_free(walk);
    if (!code && (libarchive.archive_write_close(export->archive) != ARCHIVE_OK ||
                  export->write_error))
        code = fail_stream(export, err);
    return code;
}

static int export_to(cay_files *files, const struct target *start, int fd,
                     const struct cay_tar_options *options,
                     struct cay_tar_result *ret_result, struct cay_error *err)
{
    AUTO_FREE struct export *export = calloc(1, sizeof *export);

    if (!export)
        return cay_fail_memory(err, OP);
    export->files = files;
    export->start = start;
    export->options = options;
    export->result = ret_result;
    export->fd = fd;
    export->target = (struct target)TARGET_NONE;
    export->target.fs = files->fs;
    export->target.op = OP;
    export->target.path = export->label;
    export->target.mount = start->mount;
    int code = open_stream(export, err);
    if (!code)
        code = put_all(export, err);
    export_done(export);
    return code;
}

int cay_files_export(cay_files *files, const char *path, int fd,
                     const struct cay_tar_options *options,
                     struct cay_tar_result *ret_result, struct cay_error *err)
{
    struct cay_tar_options known;
    struct cay_approval shown = {.op = CAY_OP_EXPORT};
    AUTO_TARGET target = TARGET_NONE;
    AUTO_LOCALE utf8 = tar_locale_new();

    *ret_result = (struct cay_tar_result){0};
    int code = tar_take_options(options, OP, &known, err);
    if (!code)
        code = libarchive_load(OP, err);
    if (!code)
        code = tar_check_descriptor(fd, O_WRONLY, OP, err);
    if (!code)
        code = target_find(files, OP, path, CAY_ACCESS_READ, TARGET_FOLLOW, &target, err);
    if (!code)
        code = target_must_be_directory(&target, err);
    if (!code)
        code = approve(files, &shown, &target, CAY_ACCESS_READ, NULL, 0, err);
    if (code)
        return code;
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    code = export_to(files, &target, fd, &known, ret_result, err);
    if (utf8)
        uselocale(before);
    return code;
}
