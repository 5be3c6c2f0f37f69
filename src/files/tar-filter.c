/* SPDX-License-Identifier: Apache-2.0 */
#include "files/tar.h"

#include <string.h>

#include "base/error.h"

static int fail_protocol(const char *op, struct cay_error *err)
{
    return cay_fail(err, CAY_E_PROTOCOL, 0, op, NULL,
                    "the process that reads the archive sent an invalid message",
                    "do not trust this archive: it may have attacked the reader");
}

static int fail_broken(const struct tar_filter *filter, const char *op, uint32_t defect,
                       struct cay_error *err)
{
    const char *formats = filter->is_root ? "gzip, bzip2, xz or zstd" : "gzip";

    switch ((enum tar_defect)defect) {
    case TAR_NOT_TAR:
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "this is not a tar archive",
                        "send a tar stream, plain or compressed with %s", formats);
    case TAR_DAMAGED:
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL,
                        "the archive is damaged or ends too early",
                        "create it again and send all of it");
    case TAR_COMPRESSED_TWICE:
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL,
                        "the archive is compressed more than once",
                        "send a tar stream, plain or compressed with %s once", formats);
    case TAR_UNREADABLE:
        return cay_fail(err, CAY_E_IO, 0, op, NULL, "the archive cannot be read",
                        "pass a descriptor that is open for reading");
    case TAR_NO_MEMORY:
        return cay_fail_memory(err, op);
    }
    return fail_protocol(op, err);
}

static int fail_limit(const struct tar_filter *filter, const char *op, const char *what,
                      uint64_t limit, struct cay_error *err)
{
    return cay_fail(err, CAY_E_LIMIT, 0, op, filter->name, what, "the limit is %llu",
                    (unsigned long long)limit);
}

static int fail_outside(const struct tar_filter *filter, const char *op,
                        struct cay_error *err)
{
    return cay_fail(err, CAY_E_OUTSIDE, 0, op, filter->name,
                    "an entry of the archive is absolute or climbs out of the directory",
                    "names in the archive must be relative and free of \"..\"");
}

static int fail_name(const struct tar_filter *filter, const char *op,
                     struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, filter->name,
                    "an entry of the archive has a name that is empty or too long",
                    "a name may have 255 bytes and a whole path 4,095");
}

static bool is(const char *name, size_t len, const char *text)
{
    return strlen(text) == len && memcmp(name, text, len) == 0;
}

/* Normalizes a name; its depth, or a code.  `out` has room for all of it. */
static int make_plain(const struct tar_filter *filter, const char *op, const char *name,
                      char *out, struct cay_error *err)
{
    int depth = 0;
    size_t used = 0;

    if (*name == '/')
        return fail_outside(filter, op, err);
    for (const char *next = name; *next;) {
        size_t len = strcspn(next, "/");
        const char *part = next;
        next += len + (next[len] == '/');
        if (len == 0 || is(part, len, "."))
            continue;
        if (is(part, len, ".."))
            return fail_outside(filter, op, err);
        if (len > NAME_MAX)
            return fail_name(filter, op, err);
        if (used)
            out[used++] = '/';
        memcpy(out + used, part, len);
        used += len;
        depth++;
    }
    out[used] = '\0';
    return depth;
}

bool tar_link_stays(const char *target, uint32_t depth)
{
    bool has_name = false;

    if (*target == '/' || *target == '\0')
        return false;
    for (const char *next = target; *next;) {
        size_t len = strcspn(next, "/");
        if (is(next, len, "..")) {
            if (has_name || depth == 0)
                return false;
            depth--;
        } else if (len && !is(next, len, ".")) {
            has_name = true;
        }
        next += len + (next[len] == '/');
    }
    return true;
}

/* Copies text that must have no NUL in it. */
static bool copy_text(char *out, const char *text, size_t len)
{
    if (len > TAR_PATH_MAX || memchr(text, '\0', len))
        return false;
    memcpy(out, text, len);
    out[len] = '\0';
    return true;
}

static int take_file(struct tar_filter *filter, const char *op,
                     const struct tar_frame *frame, struct cay_error *err)
{
    if (frame->size > filter->max_bytes - filter->bytes)
        return fail_limit(filter, op, "the archive has more bytes than allowed",
                          filter->max_bytes, err);
    filter->bytes += frame->size;
    filter->is_in_file = true;
    filter->file_size = frame->size;
    filter->file_at = 0;
    return CAY_OK;
}

static int take_link(struct tar_filter *filter, const char *op, uint32_t depth,
                     struct tar_item *item, struct cay_error *err)
{
    char target[TAR_PATH_MAX + 1];

    if (item->kind == TAR_LINK) {
        if (filter->is_root
                ? !*filter->link
                : !tar_link_stays(filter->link, filter->base_depth + depth - 1))
            item->kind = TAR_SPECIAL;
        return CAY_OK;
    }
    memcpy(target, filter->link, sizeof target);
    /* Hard links of a root file system may start with a slash; images have such links. */
    size_t slashes = filter->is_root ? strspn(target, "/") : 0;
    int result = make_plain(filter, op, target + slashes, filter->link, err);
    return result > 0 ? CAY_OK : result < 0 ? result : fail_name(filter, op, err);
}

static int take_entry(struct tar_filter *filter, const char *op,
                      const struct tar_frame *frame, const char *payload,
                      struct tar_item *item, struct cay_error *err)
{
    bool is_link = item->kind == TAR_LINK || item->kind == TAR_HARD_LINK;

    if ((!is_link && frame->link_len) || frame->mtime_ns > 999999999 ||
        !copy_text(filter->name, payload, frame->path_len) ||
        !copy_text(filter->link, payload + frame->path_len, frame->link_len))
        return fail_protocol(op, err);
    if (filter->entries == filter->max_entries)
        return fail_limit(filter, op, "the archive has more entries than allowed",
                          filter->max_entries, err);
    filter->entries++;
    if (item->kind == TAR_SPECIAL)
        return CAY_OK;
    int depth = make_plain(filter, op, filter->name, filter->path, err);
    if (depth < 0)
        return depth;
    if (depth == 0 && item->kind != TAR_DIRECTORY)
        return fail_name(filter, op, err);
    if ((uint32_t)depth > filter->max_depth)
        return fail_limit(filter, op, "the archive is nested deeper than allowed",
                          filter->max_depth, err);
    item->path = filter->path;
    item->link = filter->link;
    item->mode = frame->detail & (filter->is_root ? 07777 : 0777);
    item->uid = frame->uid;
    item->gid = frame->gid;
    item->size = frame->size;
    item->mtime = (struct timespec){.tv_sec = frame->mtime, .tv_nsec = frame->mtime_ns};
    if (item->kind == TAR_FILE)
        return take_file(filter, op, frame, err);
    return is_link ? take_link(filter, op, (uint32_t)depth, item, err) : CAY_OK;
}

static int take_data(struct tar_filter *filter, const char *op,
                     const struct tar_frame *frame, const char *payload, size_t len,
                     struct tar_item *item, struct cay_error *err)
{
    if (!filter->is_in_file || frame->size < filter->file_at ||
        frame->size > filter->file_size || len > filter->file_size - frame->size)
        return fail_protocol(op, err);
    filter->file_at = frame->size + len;
    item->size = frame->size;
    item->data = payload;
    item->len = len;
    return CAY_OK;
}

int tar_filter_take(struct tar_filter *filter, const char *op, const void *message,
                    size_t len, struct tar_item *ret_item, struct cay_error *err)
{
    struct tar_frame frame;
    const char *payload = (const char *)message + sizeof frame;

    if (len < sizeof frame || len > TAR_MESSAGE_MAX)
        return fail_protocol(op, err);
    memcpy(&frame, message, sizeof frame);
    len -= sizeof frame;
    *ret_item = (struct tar_item){.kind = (enum tar_kind)frame.kind};
    bool is_data = frame.kind == TAR_DATA;
    if (filter->is_in_file && !is_data && frame.kind != TAR_FILE_END &&
        frame.kind != TAR_BROKEN)
        return fail_protocol(op, err);
    if (is_data ? frame.path_len || frame.link_len
                : frame.path_len > len || frame.link_len != len - frame.path_len)
        return fail_protocol(op, err);

    switch (ret_item->kind) {
    case TAR_FILE:
    case TAR_DIRECTORY:
    case TAR_LINK:
    case TAR_HARD_LINK:
    case TAR_SPECIAL:
        return take_entry(filter, op, &frame, payload, ret_item, err);
    case TAR_DATA:
        return take_data(filter, op, &frame, payload, len, ret_item, err);
    case TAR_FILE_END:
        if (!filter->is_in_file)
            return fail_protocol(op, err);
        filter->is_in_file = false;
        ret_item->size = filter->file_size;
        return CAY_OK;
    case TAR_END:
        return CAY_OK;
    case TAR_BROKEN:
        return fail_broken(filter, op, frame.detail, err);
    }
    return fail_protocol(op, err);
}
