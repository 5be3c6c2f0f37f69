/* SPDX-License-Identifier: Apache-2.0 */

/* Writes a snapshot as an OCI image layout in a tar archive: the layers of its template,
 * the lowest first, then its own, and one more for usr above "base".  Whiteouts have the
 * form of OCI.
 *
 * The name of a blob is its digest, and the name comes before the data.  So each layer is
 * created twice: the first time its bytes are only hashed, the second time they are
 * written. Nothing is stored in between, and the files of templates do not change.  The
 * bytes depend on nothing but the snapshot: names are sorted, and the archive's own
 * entries have no time. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "files/libarchive.h"
#include "files/tar.h"
#include "native/snapshot/snapshot.h"
#include "sys/path.h"
#include "sys/sigpipe.h"

static const char op[] = "snapshot.export";

#define OCI "application/vnd.oci.image."

enum { PIECE = 256 << 10, BLOCK = 64 << 10, HEX = 2 * SHA256_DIGEST_SIZE };

struct blob {
    char hex[HEX + 1];
    uint64_t size;
};

/* A directory that becomes a layer; its paths begin with `top`. */
struct part {
    int fd;
    const char *top;
    struct blob blob;
};

struct exporting {
    const char *name;
    const struct template *template;
    struct part parts[TEMPLATE_LAYERS_MAX + 3];
    size_t count;
    int fd;
    int write_error;         /* of a failed write to fd */
    struct archive *archive; /* the whole */
    struct archive_entry *entry;
    char piece[PIECE];
    char path[PATH_MAX]; /* of the current entry of a layer */
};

static inline void auto_json_t(json_t **json)
{
    json_decref(*json);
}

/* --- Writing --- */

/* Reports success to libarchive always: on an error it leaks its buffer. */
static la_ssize_t put(struct archive *archive, void *cookie, const void *data, size_t len)
{
    struct exporting *exporting = cookie;
    struct pollfd output = {.fd = exporting->fd, .events = POLLOUT};

    (void)archive;
    while (!exporting->write_error) {
        ssize_t written = write(exporting->fd, data, len);
        if (written >= 0)
            return written;
        if (errno == EAGAIN)
            (void)poll(&output, 1, -1);
        else if (errno != EINTR)
            exporting->write_error = errno;
    }
    return (la_ssize_t)len;
}

static int fail_write(const struct exporting *exporting, struct archive *archive,
                      struct cay_error *err)
{
    if (exporting->write_error)
        return cay_fail_errno(err, exporting->write_error, op, "the archive");
    if (libarchive.archive_errno(archive) == ENOMEM)
        return cay_fail_memory(err, op);
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op,
                    *exporting->path ? exporting->path : exporting->name,
                    "a tar archive cannot have this entry",
                    "remove or rename it, and create the snapshot again");
}

static int open_archive(struct archive **archive, archive_write_callback *write,
                        void *cookie)
{
    *archive = libarchive.archive_write_new();
    return *archive &&
                   libarchive.archive_write_set_format_pax_restricted(*archive) ==
                       ARCHIVE_OK &&
                   libarchive.archive_write_set_bytes_per_block(*archive, BLOCK) ==
                       ARCHIVE_OK &&
                   libarchive.archive_write_set_bytes_in_last_block(*archive, 512) ==
                       ARCHIVE_OK &&
                   libarchive.archive_write_open(*archive, cookie, NULL, write, NULL) ==
                       ARCHIVE_OK
               ? CAY_OK
               : CAY_E_NO_MEMORY;
}

/* An entry of the whole archive. */
static int put_head(struct exporting *exporting, const char *name, mode_t type,
                    uint64_t size, struct cay_error *err)
{
    struct archive_entry *entry = exporting->entry;

    libarchive.archive_entry_clear(entry);
    libarchive.archive_entry_set_pathname(entry, name);
    libarchive.archive_entry_set_filetype(entry, type);
    libarchive.archive_entry_set_perm(entry, type == S_IFDIR ? 0755 : 0644);
    libarchive.archive_entry_set_mtime(entry, 0, 0);
    libarchive.archive_entry_set_size(entry, (la_int64_t)size);
    return libarchive.archive_write_header(exporting->archive, entry) == ARCHIVE_OK &&
                   !exporting->write_error
               ? CAY_OK
               : fail_write(exporting, exporting->archive, err);
}

static const char *blob_name(const struct blob *blob, char ret_name[HEX + 16])
{
    snprintf(ret_name, HEX + 16, "blobs/sha256/%s", blob->hex);
    return ret_name;
}

static void end_hash(struct sha256_ctx *hash, struct blob *blob)
{
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_digest(hash, sizeof digest, digest);
    base16_encode_update(blob->hex, sizeof digest, digest);
    blob->hex[HEX] = '\0';
}

static int put_text(struct exporting *exporting, const char *name, const char *text,
                    struct cay_error *err)
{
    size_t len = strlen(text);

    TRY(put_head(exporting, name, S_IFREG, len, err));
    return libarchive.archive_write_data(exporting->archive, text, len) ==
                       (la_ssize_t)len &&
                   !exporting->write_error
               ? CAY_OK
               : fail_write(exporting, exporting->archive, err);
}

/* --- A layer --- */

struct layer {
    struct exporting *exporting;
    struct archive *archive;
    struct sha256_ctx hash;
    uint64_t size;
    bool is_written; /* into the whole archive; else only hashed */
    bool has_failed; /* there */
    void *originals; /* files with several links: a tree of tsearch(3) */
};

/* A file with several links, and its first path. */
struct original {
    dev_t dev;
    ino_t ino;
    char path[];
};

static int by_file(const void *left, const void *right)
{
    const struct original *a = left, *b = right;

    return a->ino != b->ino ? (a->ino < b->ino ? -1 : 1)
                            : (a->dev > b->dev) - (a->dev < b->dev);
}

static la_ssize_t take(struct archive *archive, void *cookie, const void *data,
                       size_t len)
{
    struct layer *layer = cookie;
    struct exporting *exporting = layer->exporting;

    (void)archive;
    sha256_update(&layer->hash, len, data);
    layer->size += len;
    if (layer->is_written && !layer->has_failed)
        layer->has_failed = libarchive.archive_write_data(exporting->archive, data,
                                                          len) != (la_ssize_t)len ||
                            exporting->write_error;
    return (la_ssize_t)len;
}

static int fail_at(const struct layer *layer, int sys_errno, struct cay_error *err)
{
    return cay_fail_errno(err, sys_errno, op, layer->exporting->path);
}

static int fail_changed(const struct layer *layer, struct cay_error *err)
{
    return cay_fail(err, CAY_E_CHANGED, 0, op, layer->exporting->path,
                    "a file of the snapshot changed while it was read",
                    "the files below $CAY_HOME belong to cay: create the snapshot again");
}

static int put_header(const struct layer *layer, const char *path, const struct stat *st,
                      const char *link, const char *hard, struct cay_error *err)
{
    struct archive_entry *entry = layer->exporting->entry;

    libarchive.archive_entry_clear(entry);
    libarchive.archive_entry_set_pathname(entry, path);
    libarchive.archive_entry_set_filetype(entry, st->st_mode & S_IFMT);
    libarchive.archive_entry_set_perm(entry, st->st_mode & 07777);
    libarchive.archive_entry_set_uid(entry, st->st_uid);
    libarchive.archive_entry_set_gid(entry, st->st_gid);
    libarchive.archive_entry_set_mtime(entry, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
    libarchive.archive_entry_set_size(entry,
                                      S_ISREG(st->st_mode) && !hard ? st->st_size : 0);
    if (link)
        libarchive.archive_entry_set_symlink(entry, link);
    if (hard)
        libarchive.archive_entry_set_hardlink(entry, hard);
    /* A warning means that the name is not UTF-8; it is stored as bytes. */
    int result = libarchive.archive_write_header(layer->archive, entry);
    return (result == ARCHIVE_OK || result == ARCHIVE_WARN) && !layer->has_failed
               ? CAY_OK
               : fail_write(layer->exporting, layer->archive, err);
}

/* An empty file .wh.NAME beside the current path, which is that of NAME. */
static int put_whiteout(const struct layer *layer, const char *name,
                        struct cay_error *err)
{
    const char *path = layer->exporting->path, *slash = strrchr(path, '/');
    const struct stat st = {.st_mode = S_IFREG};
    char text[PATH_MAX + 8];

    snprintf(text, sizeof text, "%.*s.wh.%s", slash ? (int)(slash - path) + 1 : 0, path,
             name);
    return put_header(layer, text, &st, NULL, NULL, err);
}

static int put_data(const struct layer *layer, int fd, const struct stat *st,
                    struct cay_error *err)
{
    char *piece = layer->exporting->piece;
    uint64_t left = (uint64_t)st->st_size;

    while (left) {
        ssize_t got = read(fd, piece, left < PIECE ? (size_t)left : PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_at(layer, errno, err);
        if (got == 0)
            return fail_changed(layer, err);
        if (libarchive.archive_write_data(layer->archive, piece, (size_t)got) != got ||
            layer->has_failed)
            return fail_write(layer->exporting, layer->archive, err);
        left -= (uint64_t)got;
    }
    return CAY_OK;
}

/* The first path of a file whose other links come later; NULL for this one itself. */
static int find_original(struct layer *layer, const struct stat *st,
                         const char **ret_path, struct cay_error *err)
{
    const struct original wanted = {st->st_dev, st->st_ino};
    const char *path = layer->exporting->path;
    struct original **known =
        st->st_nlink > 1 ? tfind(&wanted, &layer->originals, by_file) : NULL;

    *ret_path = known ? (*known)->path : NULL;
    if (known || st->st_nlink <= 1)
        return CAY_OK;
    AUTO_FREE struct original *original = malloc(sizeof *original + strlen(path) + 1);
    if (!original)
        return cay_fail_memory(err, op);
    *original = wanted;
    memcpy(original->path, path, strlen(path) + 1);
    if (!tsearch(original, &layer->originals, by_file))
        return cay_fail_memory(err, op);
    (void)TAKE_PTR(original);
    return CAY_OK;
}

static int put_file(struct layer *layer, int dir, const char *name, const struct stat *st,
                    struct cay_error *err)
{
    const char *hard;

    TRY(find_original(layer, st, &hard, err));
    if (hard)
        return put_header(layer, layer->exporting->path, st, NULL, hard, err);
    AUTO_FD fd = path_open(dir, name, O_RDONLY | O_NOFOLLOW, 0, PATH_PLAIN);
    if (fd < 0)
        return fail_at(layer, -fd, err);
    TRY(put_header(layer, layer->exporting->path, st, NULL, NULL, err));
    return put_data(layer, fd, st, err);
}

static int put_link(const struct layer *layer, int dir, const char *name,
                    const struct stat *st, struct cay_error *err)
{
    char target[PATH_MAX];
    ssize_t len = readlinkat(dir, name, target, sizeof target);

    if (len <= 0 || (size_t)len >= sizeof target)
        return fail_at(layer, len < 0 ? errno : ENAMETOOLONG, err);
    target[len] = '\0';
    return put_header(layer, layer->exporting->path, st, target, NULL, err);
}

static int put_directory(struct layer *layer, int dir, const struct stat *st,
                         unsigned depth, struct cay_error *err);

static int put_entry(struct layer *layer, int dir, const char *name, unsigned depth,
                     struct cay_error *err)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_at(layer, errno, err);
    if (S_ISCHR(st.st_mode) && st.st_rdev == 0)
        return put_whiteout(layer, name, err);
    if (strncmp(name, ".wh.", 4) == 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, layer->exporting->path,
                        "an OCI archive cannot have a file whose name begins with "
                        "\".wh.\"",
                        "rename the file, and create the snapshot again");
    if (S_ISREG(st.st_mode))
        return put_file(layer, dir, name, &st, err);
    if (S_ISLNK(st.st_mode))
        return put_link(layer, dir, name, &st, err);
    if (!S_ISDIR(st.st_mode))
        return CAY_OK; /* a FIFO, a socket or a device */
    AUTO_FD fd = path_open(dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    return fd < 0 ? fail_at(layer, -fd, err)
                  : put_directory(layer, fd, &st, depth + 1, err);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

struct names {
    char **list;
    size_t count, room;
};

static void names_done(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
}

static int read_names(const struct layer *layer, int dir, struct names *names,
                      struct cay_error *err)
{
    AUTO_DIR list = path_list(dir);

    if (!list)
        return fail_at(layer, errno, err);
    for (struct dirent *entry; (entry = path_next(list)); names->count++)
        if (!array_reserve(&names->list, &names->room, names->count + 1,
                           sizeof *names->list) ||
            !(names->list[names->count] = strdup(entry->d_name)))
            return cay_fail_memory(err, op);
    if (names->count)
        qsort(names->list, names->count, sizeof *names->list, by_name);
    return CAY_OK;
}

/* Everything in a directory, whose path is the current one. */
static int put_entries(struct layer *layer, int dir, const struct names *names,
                       unsigned depth, struct cay_error *err)
{
    char *path = layer->exporting->path;
    size_t len = strlen(path);
    int code = CAY_OK;

    for (size_t i = 0; !code && i < names->count; i++) {
        size_t name_len = strlen(names->list[i]);
        if (len + 1 + name_len >= PATH_MAX)
            return fail_at(layer, ENAMETOOLONG, err);
        char *at = path + len;
        if (len)
            *at++ = '/';
        memcpy(at, names->list[i], name_len + 1);
        code = put_entry(layer, dir, names->list[i], depth, err);
        if (!code) /* an error shows the path */
            path[len] = '\0';
    }
    return code;
}

static int put_opaque(struct layer *layer, int dir, struct cay_error *err)
{
    const struct stat mark = {.st_mode = S_IFREG};
    char value[2], text[PATH_MAX + 16];
    ssize_t len = fgetxattr(dir, "trusted.overlay.opaque", value, sizeof value);

    if (len < 0)
        return errno == ENODATA || errno == EOPNOTSUPP ? CAY_OK
                                                       : fail_at(layer, errno, err);
    if (len != 1 || value[0] != 'y')
        return CAY_OK;
    snprintf(text, sizeof text, "%s/.wh..wh..opq", layer->exporting->path);
    return put_header(layer, text, &mark, NULL, NULL, err);
}

static int put_directory(struct layer *layer, int dir, const struct stat *st,
                         unsigned depth, struct cay_error *err)
{
    const char *path = layer->exporting->path;
    struct names names = {.list = NULL};

    if (depth > TEMPLATE_DEPTH_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, path,
                        "the directories of the snapshot are nested too deeply",
                        "the limit is %d", TEMPLATE_DEPTH_MAX);
    TRY(put_header(layer, *path ? path : "./", st, NULL, NULL, err));
    if (*path)
        TRY(put_opaque(layer, dir, err));
    int code = read_names(layer, dir, &names, err);
    if (!code)
        code = put_entries(layer, dir, &names, depth, err);
    names_done(&names);
    return code;
}

/* Makes the layer; the blob that came out, which is the same each time. */
static int put_layer(struct exporting *exporting, const struct part *part,
                     bool is_written, struct blob *ret_blob, struct cay_error *err)
{
    struct layer layer = {.exporting = exporting, .is_written = is_written};
    struct stat st;

    cay_copy_text(exporting->path, sizeof exporting->path, part->top);
    sha256_init(&layer.hash);
    int code = open_archive(&layer.archive, take, &layer) == CAY_OK
                   ? CAY_OK
                   : cay_fail_memory(err, op);
    if (!code && fstat(part->fd, &st) != 0)
        code = fail_at(&layer, errno, err);
    if (!code)
        code = put_directory(&layer, part->fd, &st, 0, err);
    if (!code &&
        (libarchive.archive_write_close(layer.archive) != ARCHIVE_OK || layer.has_failed))
        code = fail_write(exporting, layer.archive, err);
    if (!code)
        exporting->path[0] = '\0';
    libarchive.archive_write_free(layer.archive);
    tdestroy(layer.originals, free);
    end_hash(&layer.hash, ret_blob);
    ret_blob->size = layer.size;
    return code;
}

static int write_layer(struct exporting *exporting, const struct part *part,
                       struct cay_error *err)
{
    char name[HEX + 16];
    struct blob blob;

    /* Layers with the same files are one blob. */
    for (const struct part *other = exporting->parts; other < part; other++)
        if (strcmp(other->blob.hex, part->blob.hex) == 0)
            return CAY_OK;
    TRY(put_head(exporting, blob_name(&part->blob, name), S_IFREG, part->blob.size, err));
    TRY(put_layer(exporting, part, true, &blob, err));
    if (strcmp(blob.hex, part->blob.hex) == 0 && blob.size == part->blob.size)
        return CAY_OK;
    return cay_fail(err, CAY_E_CHANGED, 0, op, exporting->name,
                    "the files of the snapshot changed while they were read",
                    "the files below $CAY_HOME belong to cay: create the snapshot again");
}

/* --- Documents --- */

static json_t *describe(const char *type, const struct blob *blob)
{
    char digest[HEX + 8];

    snprintf(digest, sizeof digest, "sha256:%s", blob->hex);
    return json_pack("{s:s, s:s, s:I}", "mediaType", type, "digest", digest, "size",
                     (json_int_t)blob->size);
}

/* The configuration of the template's image, with what sandboxes of the snapshot have. */
static json_t *inner_config(const struct template_info *info)
{
    json_t *inner =
        info->config ? json_loads(info->config, JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_t *env = json_array();

    if (!json_is_object(inner)) {
        json_decref(inner);
        inner = json_object();
    }
    for (char **each = info->env; each && *each; each++)
        (void)json_array_append_new(env, json_string(*each));
    if (!json_is_object(json_object_get(inner, "Labels")))
        (void)json_object_set_new(inner, "Labels", json_object());
    json_t *labels = json_object_get(inner, "Labels");
    (void)json_object_set_new(labels, TEMPLATE_LABEL_ORIGIN, json_string(info->origin));
    (void)json_object_set_new(labels, TEMPLATE_LABEL_SANDBOX,
                              json_string(info->shown.from));
    if (strcmp(info->base, "host") == 0 || strcmp(info->base, "base") == 0)
        (void)json_object_set_new(labels, TEMPLATE_LABEL_BASE, json_string(info->base));
    else /* LABEL of a build can set it, too */
        (void)json_object_del(labels, TEMPLATE_LABEL_BASE);
    if (json_object_get(inner, TEMPLATE_IMAGE_ENV)) { /* sandboxes have these, not Env */
        (void)json_object_set_new(inner, TEMPLATE_IMAGE_ENV, env);
    } else {
        (void)json_object_set_new(inner, "Env", env);
    }
    (void)json_object_set_new(inner, "User", json_string(info->shown.user));
    (void)json_object_set_new(inner, "WorkingDir", json_string(info->shown.workdir));
    return inner;
}

static char *config_text(const struct exporting *exporting)
{
    const struct template_info *info = &exporting->template->info;
    AUTO(json_t) ids = json_array();
    time_t seconds = (time_t)(info->shown.created_ms / 1000);
    char created[32], id[HEX + 8];
    struct tm tm;

    if (!gmtime_r(&seconds, &tm) ||
        !strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &tm))
        return NULL;
    for (size_t i = 0; i < exporting->count; i++) {
        snprintf(id, sizeof id, "sha256:%s", exporting->parts[i].blob.hex);
        (void)json_array_append_new(ids, json_string(id));
    }
    AUTO(json_t)
    config =
        json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:O}}", "architecture",
                  template_architecture(), "os", "linux", "created", created, "config",
                  inner_config(info), "rootfs", "type", "layers", "diff_ids", ids);
    return json_dumps(config, JSON_COMPACT | JSON_SORT_KEYS);
}

static char *manifest_text(const struct exporting *exporting, const struct blob *config)
{
    AUTO(json_t) layers = json_array();

    for (size_t i = 0; i < exporting->count; i++)
        (void)json_array_append_new(
            layers, describe(OCI "layer.v1.tar", &exporting->parts[i].blob));
    AUTO(json_t)
    manifest = json_pack("{s:i, s:s, s:o, s:O}", "schemaVersion", 2, "mediaType",
                         OCI "manifest.v1+json", "config",
                         describe(OCI "config.v1+json", config), "layers", layers);
    return json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS);
}

static char *index_text(const struct exporting *exporting, const struct blob *manifest)
{
    AUTO(json_t) entry = describe(OCI "manifest.v1+json", manifest);
    json_t *platform =
        json_pack("{s:s, s:s}", "os", "linux", "architecture", template_architecture());
    json_t *notes = json_pack("{s:s}", TEMPLATE_REF_NAME, exporting->name);

    if (json_object_set_new(entry, "platform", platform) != 0 ||
        json_object_set_new(entry, "annotations", notes) != 0)
        return NULL;
    AUTO(json_t)
    index = json_pack("{s:i, s:s, s:[O]}", "schemaVersion", 2, "mediaType",
                      OCI "index.v1+json", "manifests", entry);
    return json_dumps(index, JSON_COMPACT | JSON_SORT_KEYS);
}

static void hash_text(const char *text, struct blob *ret_blob)
{
    struct sha256_ctx hash;

    sha256_init(&hash);
    ret_blob->size = strlen(text);
    sha256_update(&hash, ret_blob->size, (const uint8_t *)text);
    end_hash(&hash, ret_blob);
}

/* --- The archive --- */

static void add_part(struct exporting *exporting, int fd, const char *top)
{
    exporting->parts[exporting->count++] = (struct part){.fd = fd, .top = top};
}

/* The layers, the lowest first.  Those of "host" and "base" are this machine's. */
static int add_parts(struct exporting *exporting, struct cay_error *err)
{
    const struct template *template = exporting->template;
    bool is_part = template->is_host || template->usr >= 0;

    if (is_part && template->info.layers && *template->info.layers)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, exporting->name,
                        "the snapshot stands on a template that was built from "
                        "\"base\" or \"host\"",
                        "create a snapshot of a sandbox of another template");
    for (size_t i = is_part ? 0 : template->below_count; i > 0; i--)
        add_part(exporting, template->below[i - 1], "");
    add_part(exporting, template->root, "");
    if (template->usr_above >= 0)
        add_part(exporting, template->usr_above, "usr");
    return CAY_OK;
}

static int write_all(struct exporting *exporting, const char *config,
                     const char *manifest, const char *index, const struct blob blobs[2],
                     struct cay_error *err)
{
    char name[HEX + 16];

    TRY(put_text(exporting, "oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}", err));
    TRY(put_text(exporting, "index.json", index, err));
    TRY(put_head(exporting, "blobs/", S_IFDIR, 0, err));
    TRY(put_head(exporting, "blobs/sha256/", S_IFDIR, 0, err));
    TRY(put_text(exporting, blob_name(&blobs[0], name), config, err));
    TRY(put_text(exporting, blob_name(&blobs[1], name), manifest, err));
    for (size_t i = 0; i < exporting->count; i++)
        TRY(write_layer(exporting, &exporting->parts[i], err));
    return libarchive.archive_write_close(exporting->archive) == ARCHIVE_OK &&
                   !exporting->write_error
               ? CAY_OK
               : fail_write(exporting, exporting->archive, err);
}

static int export_to(struct exporting *exporting, struct cay_error *err)
{
    struct blob blobs[2];

    exporting->entry = libarchive.archive_entry_new();
    if (!exporting->entry || open_archive(&exporting->archive, put, exporting) != CAY_OK)
        return cay_fail_memory(err, op);
    TRY(add_parts(exporting, err));
    for (size_t i = 0; i < exporting->count; i++)
        TRY(put_layer(exporting, &exporting->parts[i], false, &exporting->parts[i].blob,
                      err));
    AUTO_FREE char *config = config_text(exporting);
    if (config)
        hash_text(config, &blobs[0]);
    AUTO_FREE char *manifest = config ? manifest_text(exporting, &blobs[0]) : NULL;
    if (manifest)
        hash_text(manifest, &blobs[1]);
    AUTO_FREE char *index = manifest ? index_text(exporting, &blobs[1]) : NULL;
    if (!index)
        return cay_fail_memory(err, op);
    return write_all(exporting, config, manifest, index, blobs, err);
}

static int export_opened(const char *name, const struct template *template, int fd,
                         struct cay_error *err)
{
    AUTO_FREE struct exporting *exporting = calloc(1, sizeof *exporting);
    AUTO_LOCALE utf8 = tar_locale_new();
    sigset_t before;

    if (!exporting)
        return cay_fail_memory(err, op);
    exporting->name = name;
    exporting->template = template;
    exporting->fd = fd;
    locale_t former = utf8 ? uselocale(utf8) : (locale_t)0;
    sigpipe_block(&before);
    int code = export_to(exporting, err);
    /* Writes nothing more. */
    exporting->write_error = exporting->write_error ? exporting->write_error : EPIPE;
    libarchive.archive_write_free(exporting->archive);
    libarchive.archive_entry_free(exporting->entry);
    sigpipe_restore(&before);
    if (utf8)
        uselocale(former);
    return code;
}

/* A template that was built has the same kinds of layers. */
static int open_exported(const char *name, struct template *ret_template,
                         struct cay_error *err)
{
    struct cay_error why;
    int code = template_open(name, false, ret_template, &why);

    if (code == CAY_E_NOT_FOUND)
        return snapshot_check(op, name, err);
    if (code)
        return cay_fail_as(err, code, &why);
    const struct template_info *info = &ret_template->info;
    if (strcmp(info->shown.source, TEMPLATE_SNAPSHOT) == 0)
        return CAY_OK;
    bool is_build = strcmp(info->shown.source, TEMPLATE_BUILD) == 0;
    if (is_build && !*info->map)
        return CAY_OK;
    template_done(ret_template);
    if (!is_build)
        return snapshot_check(op, name, err);
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, name,
                    "only templates that root has built can be exported",
                    "build it with sudo");
}

int cay_snapshot_export(const char *name, int fd, struct cay_error *err)
{
    struct template template;
    char plain[TEMPLATE_NAME_MAX];
    int flags = fcntl(fd, F_GETFL);

    TRY(template_check_name(name, op, err));
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return cay_fail(err, CAY_E_INVALID, flags < 0 ? errno : 0, op, "fd",
                        "the descriptor is not open for writing",
                        "open the file of the archive for writing");
    TRY(libarchive_load(op, err));
    name = template_plain_name(name, plain);
    TRY(open_exported(name, &template, err));
    int code = export_opened(name, &template, fd, err);
    template_done(&template);
    return code;
}
