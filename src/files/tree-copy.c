/* SPDX-License-Identifier: Apache-2.0 */

/* A directory from one handle to another, without a stream between them: what
 * tree-read.c finds is put where tar-unpack.c puts what comes out of an archive. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/copy-into.h"
#include "files/tar-options.h"
#include "files/tar-unpack.h"
#include "files/tree-read.h"

#define OP "files.copy_tree"

struct tree_copy {
    struct unpack unpack;
    struct cay_tree_result *result;
};

static int put(struct tree_copy *copy, enum tar_kind kind, const struct tree_entry *entry,
               const char *link, uint64_t size, struct cay_error *err)
{
    const struct stat *st = &entry->target->st;
    const struct tar_item item = {.kind = kind,
                                  .path = entry->rel,
                                  .link = link,
                                  .mode = st->st_mode & 0777,
                                  .size = size,
                                  .mtime = st->st_mtim};

    return unpack_item(&copy->unpack, &item, err);
}

static int put_file(struct tree_copy *copy, const struct tree_entry *entry,
                    struct cay_error *err)
{
    uint64_t size = (uint64_t)entry->target->st.st_size, copied = 0;

    int code = put(copy, TAR_FILE, entry, NULL, size, err);
    if (code)
        return code;
    int error = copy_into(copy->unpack.files->fs, entry->fd, copy->unpack.draft.fd, size,
                          &copied);
    if (error)
        return fs_fail(copy->unpack.files->fs, -error, OP, entry->target->path, err);
    if (copied < size)
        return cay_fail(err, CAY_E_CHANGED, 0, OP, entry->target->path,
                        "the file became shorter while it was read",
                        "copy again when nobody writes to it");
    code = put(copy, TAR_FILE_END, entry, NULL, size, err);
    if (code)
        return code;
    copy->result->files++;
    copy->result->bytes += size;
    return 1;
}

/* Whether a link `depth` names below the top can lead only to what is below it, whatever
 * other links that leads through: it climbs at its beginning or not at all. */
static bool stays_below(const char *text, uint32_t depth)
{
    uint32_t climbed = 0;
    bool descends = false;

    if (*text == '/' || !*text)
        return false;
    while (*text) {
        size_t len = strcspn(text, "/");
        bool climbs = len == 2 && memcmp(text, "..", 2) == 0;
        if (climbs && (descends || ++climbed >= depth))
            return false;
        descends = descends || (!climbs && len > 0 && !(len == 1 && *text == '.'));
        text += len + (text[len] == '/');
    }
    return true;
}

static int put_link(struct tree_copy *copy, const struct tree_entry *entry,
                    struct cay_error *err)
{
    const struct target *target = entry->target;
    char text[PATH_MAX];

    ssize_t len = target->fs->read_link(target->fs, target->fd, text, sizeof text);
    if (len < 0)
        return target_fail(target, (int)-len, err);
    text[(size_t)len < sizeof text ? (size_t)len : 0] = '\0';
    if (!stays_below(text, entry->depth))
        return 0;
    int code = put(copy, TAR_LINK, entry, text, 0, err);
    if (code)
        return code;
    copy->result->links++;
    return 1;
}

static int fail_into_itself(const struct target *from, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, OP, from->path,
                    "a directory cannot be copied into itself",
                    "name a destination that is not below the source");
}

/* Known before anything is copied; where they are seen through two handles it turns out
 * on the way. */
static bool is_below(const struct target *from, const struct target *to)
{
    size_t len = strlen(from->rel);

    return from->mount == to->mount && strncmp(from->rel, to->rel, len) == 0 &&
           (len == 0 || to->rel[len] == '/' || to->rel[len] == '\0');
}

/* One that would grow while it is copied. */
static int check_apart(const struct target *from, const struct target *to,
                       struct cay_error *err)
{
    bool same = from->st.st_dev == to->st.st_dev && from->st.st_ino == to->st.st_ino;

    return same ? fail_into_itself(from, err) : CAY_OK;
}

static int put_directory(struct tree_copy *copy, const struct tree_entry *entry,
                         struct cay_error *err)
{
    int code = check_apart(entry->target, copy->unpack.target, err);

    if (!code)
        code = put(copy, TAR_DIRECTORY, entry, NULL, 0, err);
    if (code)
        return code;
    copy->result->directories++;
    return 1;
}

static int put_entry(void *cookie, const struct tree_entry *entry, struct cay_error *err)
{
    struct tree_copy *copy = cookie;
    mode_t mode = entry->target->st.st_mode;

    return S_ISREG(mode)   ? put_file(copy, entry, err)
           : S_ISLNK(mode) ? put_link(copy, entry, err)
                           : put_directory(copy, entry, err);
}

static int copy_all(cay_files *files, const struct target *from, const cay_files *other,
                    const struct target *to, const struct cay_tar_options *options,
                    struct cay_tree_result *ret_result, struct cay_error *err)
{
    AUTO_FREE struct tree_copy *copy = malloc(sizeof *copy);
    struct tree_read tree = {.op = OP,
                             .files = files,
                             .start = from,
                             .options = options,
                             .take = put_entry,
                             .cookie = copy};

    if (!copy)
        return cay_fail_memory(err, OP);
    copy->result = ret_result;
    unpack_init(&copy->unpack, other, to, options->max_entries);
    copy->unpack.exact = true;
    int code = tree_read(&tree, err);
    if (!code)
        code = tree_check_denied(&tree, err);
    unpack_done(&copy->unpack);
    ret_result->skipped = tree.skipped;
    return code;
}

int cay_files_copy_tree(cay_files *files, const char *source, cay_files *other,
                        const char *destination, const struct cay_tar_options *options,
                        struct cay_tree_result *ret_result, struct cay_error *err)
{
    struct cay_tar_options known;
    struct cay_approval out = {.op = CAY_OP_EXPORT}, in = {.op = CAY_OP_IMPORT};
    AUTO_TARGET from = TARGET_NONE, to = TARGET_NONE;
    AUTO_PARENT parent = PARENT_NONE;

    *ret_result = (struct cay_tree_result){0};
    int code = tar_take_options(options, OP, 0, &known, err);
    if (!code)
        code = target_find(files, OP, source, CAY_ACCESS_READ, TARGET_FOLLOW, &from, err);
    if (!code)
        code = target_must_be_directory(&from, err);
    if (!code)
        code = target_find(other, OP, destination, CAY_ACCESS_WRITE, TARGET_FOLLOW, &to,
                           err);
    if (!code && to.fd >= 0)
        code = target_must_be_directory(&to, err);
    if (!code && files == other && is_below(&from, &to))
        code = fail_into_itself(&from, err);
    if (!code)
        code = unpack_check_directory(other, &to, err);
    if (!code)
        code = approve(files, &out, &from, CAY_ACCESS_READ, NULL, 0, err);
    if (!code)
        code = approve(other, &in, &to, CAY_ACCESS_WRITE, NULL, 0, err);
    if (!code)
        code = unpack_open_directory(other, &to, &parent, err);
    if (code)
        return code;
    code = check_apart(&from, &to, err);
    if (!code)
        code = copy_all(files, &from, other, &to, &known, ret_result, err);
    if (code && !(ret_result->files | ret_result->directories | ret_result->links))
        parent_undo(&parent);
    return code;
}
