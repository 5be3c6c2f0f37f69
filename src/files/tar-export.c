/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/handle.h"
#include "files/libarchive.h"
#include "files/tar.h"
#include "files/tree.h"
#include "files/walk.h"

#define OP "files.export"

enum { PIECE = 256 << 10, BLOCK = 64 << 10 };

int tar_take_options(const struct cay_tar_options *given, const char *op,
                     uint32_t allowed, struct cay_tar_options *ret_options,
                     struct cay_error *err)
{
    int code = cay_take_struct(ret_options, sizeof *ret_options, given, op, err);

    if (!ret_options->max_entries)
        ret_options->max_entries = 1000000;
    if (!ret_options->max_bytes)
        ret_options->max_bytes = (uint64_t)16 << 30;
    if (!ret_options->max_depth)
        ret_options->max_depth = 256;
    if (!code && ret_options->flags & ~allowed)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unsupported flags",
                        "CAY_TAR_WHOLE is for exports from a sandbox");
    return code;
}

locale_t tar_locale_new(void)
{
    return newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

void tar_locale_done(locale_t *locale)
{
    if (*locale)
        freelocale(*locale);
}

struct export
{
    cay_files *files;
    const struct target *start;
    struct archive *archive;
    struct archive_entry *entry;
    int fd;
    bool is_whole;   /* CAY_TAR_WHOLE */
    bool is_over;    /* write no more to fd */
    int write_error; /* errno of a failed write */
    char *piece;
    const char *label; /* of the current entry */
    uint64_t file_count;
};

/* --- The stream -----------------------------------------------------------------------
 */

/* Reports success to libarchive always: on an error it leaks its buffer.  After a failure
 * nothing more is written, so that the stream does not look complete. */
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
    if (export->write_error && export->write_error != EPIPE)
        return cay_fail_errno(err, export->write_error, OP, "the archive");
    if (export->write_error)
        return cay_fail(err, CAY_E_IO, export->write_error, OP, "the archive",
                        cay_errno_words(export->write_error),
                        "keep the reading end of the stream open until it ends");
    if (libarchive.archive_errno(export->archive) == ENOMEM)
        return cay_fail_memory(err, OP);
    return cay_fail(err, CAY_E_INTERNAL, 0, OP, export->label,
                    "the tar format cannot store this entry",
                    "export the directories beside it instead");
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
    libarchive.archive_entry_free(export->entry);
    export->is_over = true;
    if (export->archive)
        libarchive.archive_write_free(export->archive);
    free(export->piece);
}

/* --- Entries --------------------------------------------------------------------------
 */

static int put_header(struct export *export, const struct tree_entry *from,
                      const char *link, struct cay_error *err)
{
    struct archive_entry *entry = export->entry;
    const struct stat *st = &from->target->st;

    libarchive.archive_entry_clear(entry);
    libarchive.archive_entry_set_pathname(entry, from->rel);
    libarchive.archive_entry_set_filetype(entry, st->st_mode & S_IFMT);
    libarchive.archive_entry_set_perm(entry,
                                      st->st_mode & (export->is_whole ? 07777 : 0777));
    if (export->is_whole) {
        libarchive.archive_entry_set_uid(entry, st->st_uid);
        libarchive.archive_entry_set_gid(entry, st->st_gid);
    }
    libarchive.archive_entry_set_mtime(entry, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
    if (S_ISREG(st->st_mode))
        libarchive.archive_entry_set_size(entry, st->st_size);
    if (link)
        libarchive.archive_entry_set_symlink(entry, link);
    /* A warning means that the name is not UTF-8; it is stored as bytes. */
    int result = libarchive.archive_write_header(export->archive, entry);
    if ((result != ARCHIVE_OK && result != ARCHIVE_WARN) || export->write_error)
        return fail_stream(export, err);
    return 1;
}

static int put_file(struct export *export, const struct tree_entry *from,
                    struct cay_error *err)
{
    uint64_t left = (uint64_t)from->target->st.st_size;
    int taken = put_header(export, from, NULL, err);

    while (left && taken > 0) {
        ssize_t got = read(from->fd, export->piece, left < PIECE ? (size_t)left : PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return target_fail(from->target, errno, err);
        if (got == 0)
            return cay_fail(err, CAY_E_CHANGED, 0, OP, export->label,
                            "the file became shorter while it was read",
                            "export again when no process writes to it");
        if (libarchive.archive_write_data(export->archive, export->piece, (size_t)got) !=
                got ||
            export->write_error)
            return fail_stream(export, err);
        left -= (uint64_t)got;
    }
    return taken;
}

/* Skips a link whose text could name a host path, and one that leads out. */
static int put_link(struct export *export, const struct tree_entry *from,
                    struct cay_error *err)
{
    const struct target *target = from->target;
    const struct mount *mount = target_mount(export->files, target);
    const struct fs *fs = target->fs;
    char text[PATH_MAX], place[PATH_MAX];
    struct fs_found found = {.fd = -1, .dir = -1};

    ssize_t len = fs->read_link(fs, target->fd, text, sizeof text);
    if (len < 0)
        return target_fail(target, (int)-len, err);
    if (export->is_whole && len > 0 && (size_t)len < sizeof text) {
        text[len] = '\0';
        return put_header(export, from, text, err);
    }
    int error = fs->find(fs, export->files->roots[target->mount], mount->host,
                         target->rel, 0, place, &found);
    if (found.fd >= 0)
        (void)close(found.fd);
    if (!walk_may_skip(-error))
        return target_fail(target, -error, err);
    if (error || len == 0 || (size_t)len >= sizeof text || *text == '/')
        return 0;
    text[len] = '\0';
    if (!export->files->policy->base && target_link_shows_host(target, text))
        return 0;
    return put_header(export, from, text, err);
}

static int put_entry(void *cookie, const struct tree_entry *from, struct cay_error *err)
{
    struct export *export = cookie;
    mode_t mode = from->target->st.st_mode;

    export->label = from->target->path;
    export->file_count += S_ISREG(mode);
    return S_ISREG(mode)   ? put_file(export, from, err)
           : S_ISLNK(mode) ? put_link(export, from, err)
                           : put_header(export, from, NULL, err);
}

static int export_to(cay_files *files, const struct target *start, int fd,
                     const struct cay_tar_options *options,
                     struct cay_tar_result *ret_result, struct cay_error *err)
{
    struct export export = {.files = files,
                            .start = start,
                            .fd = fd,
                            .label = start->path,
                            .is_whole = options->flags & CAY_TAR_WHOLE};
    struct tree_read tree = {.op = OP,
                             .files = files,
                             .start = start,
                             .options = options,
                             .take = put_entry,
                             .cookie = &export};

    int code = open_stream(&export, err);
    if (!code)
        code = tree_read(&tree, err);
    export.label = start->path;
    if (!code && (libarchive.archive_write_close(export.archive) != ARCHIVE_OK ||
                  export.write_error))
        code = fail_stream(&export, err);
    if (!code)
        code = tree_check_denied(&tree, err);
    export_done(&export);
    *ret_result = (struct cay_tar_result){tree.entries, tree.bytes, tree.skipped,
                                          export.file_count};
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
    TRY(tar_take_options(options, OP, files->policy->base ? CAY_TAR_WHOLE : 0, &known,
                         err));
    TRY(libarchive_load(OP, err));
    TRY(files_check_descriptor(fd, O_WRONLY, OP, err));
    TRY(target_find(files, OP, path, CAY_ACCESS_READ, TARGET_FOLLOW, &target, err));
    TRY(target_must_be_directory(&target, err));
    TRY(approve(files, &shown, &target, CAY_ACCESS_READ, NULL, 0, err));
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    int code = export_to(files, &target, fd, &known, ret_result, err);
    if (utf8)
        uselocale(before);
    return code;
}
