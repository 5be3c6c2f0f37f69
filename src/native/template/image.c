/* SPDX-License-Identifier: Apache-2.0 */

/* Creates a template from an image: either the output of `docker save` (manifest.json and
 * layers) or an OCI layout (index.json and blobs), as a directory or in a tar file.
 *
 * A tar file is unpacked into the draft first, so that both are directories from then on.
 * A blob that an index or a manifest refers to is used only if its bytes match its
 * SHA-256.  A given directory may change at any time: a blob is copied from it while it
 * is hashed, and the copy is used. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/tar.h"
#include "files/walk.h"
#include "native/template/template.h"
#include "sys/fs.h"
#include "sys/io.h"
#include "sys/path.h"

/* --- Digests --- */

/* With nettle, which libarchive needs anyway. */

enum { PIECE = 256 << 10, DIGEST_HEX = 64 };

_Static_assert((int)DIGEST_HEX == 2 * SHA256_DIGEST_SIZE, "two digits a byte");

static const char *digest_hex(const char *digest)
{
    static const char prefix[] = "sha256:";

    if (strncmp(digest, prefix, strlen(prefix)) != 0)
        return NULL;
    digest += strlen(prefix);
    return strlen(digest) == DIGEST_HEX &&
                   strspn(digest, "0123456789abcdef") == DIGEST_HEX
               ? digest
               : NULL;
}

static void digest_end(struct sha256_ctx *hash, char ret_hex[DIGEST_HEX + 1])
{
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_digest(hash, sizeof digest, digest);
    base16_encode_update(ret_hex, sizeof digest, digest);
    ret_hex[DIGEST_HEX] = '\0';
}

static int digest_stream(int from, int to, uint64_t max, char ret_hex[DIGEST_HEX + 1])
{
    struct sha256_ctx context;
    AUTO_FREE uint8_t *piece = malloc(PIECE);

    if (!piece)
        return -ENOMEM;
    sha256_init(&context);
    for (;;) {
        ssize_t len = read(from, piece, PIECE);
        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return -errno;
        if (len == 0)
            break;
        if ((uint64_t)len > max)
            return -EFBIG;
        max -= (uint64_t)len;
        sha256_update(&context, (size_t)len, piece);
        int error = to < 0 ? 0 : io_write(to, piece, (size_t)len);
        if (error)
            return error;
    }
    digest_end(&context, ret_hex);
    return 0;
}

static const char op[] = TEMPLATE_OP;

enum { JSON_MAX = 8 << 20, INDEX_DEPTH = 4, LAYERS_MAX = 1024, ENV_MAX = 512 };

/* A layer may have large files of zeros, but few: more is a decompression bomb. */
enum { RATIO_FREE = 256 << 20, RATIO_MAX = 200 };

struct image_layer {
    char path[256], hex[DIGEST_HEX + 1], diff_id[DIGEST_HEX + 1];
};

struct image {
    struct template_draft *draft;
    int dir;      /* of its files */
    bool is_ours; /* a private copy that cannot change */
    const char *architecture;
    struct image_layer *layers; /* LAYERS_MAX of them */
    size_t count;
};

static inline void auto_json_t(json_t **json)
{
    json_decref(*json);
}

static int fail_format(const char *subject, const char *message, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, subject, message,
                    "use the output of `docker save NAME`, or an OCI image layout");
}

const char *template_architecture(void)
{
    static struct utsname name;

    if (uname(&name) != 0)
        return "unknown";
    return strcmp(name.machine, "x86_64") == 0    ? "amd64"
           : strcmp(name.machine, "aarch64") == 0 ? "arm64"
                                                  : name.machine;
}

/* --- Blobs --- */

/* Opens a file of the image; links must stay inside the image. */
static int open_file(const struct image *image, const char *path, struct cay_error *err)
{
    struct stat st;
    AUTO_FD held =
        path_open(image->dir, path, O_PATH, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);

    if (held < 0)
        return held == -ENOENT || held == -EXDEV || held == -ELOOP
                   ? cay_fail(
                         err, CAY_E_INVALID, -held, op, path,
                         "a part of the image is missing",
                         "save it again; shallow or partial copies are not supported")
                   : cay_fail_errno(err, -held, op, path);
    if (fstat(held, &st) != 0 || !S_ISREG(st.st_mode))
        return fail_format(path, "a part of the image is not a regular file", err);
    int fd = path_reopen(held, O_RDONLY);
    return fd < 0 ? cay_fail_errno(err, -fd, op, path) : fd;
}

/* The verified contents, from the start; `hex` is the expected SHA-256. */
static int open_verified(const struct image *image, const char *path, const char *hex,
                         struct cay_error *err)
{
    char found[DIGEST_HEX + 1];
    AUTO_FD copy = -1;
    AUTO_FD fd = open_file(image, path, err);

    if (fd < 0)
        return fd;
    if (!image->is_ours) {
        copy = openat(image->draft->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (copy < 0)
            return cay_fail_errno(err, errno, op, path);
    }
    int error = digest_stream(fd, copy, TEMPLATE_BYTES_MAX, found);
    if (error)
        return cay_fail_errno(err, -error, op, path);
    if (strcmp(found, hex) != 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, path,
                        "a part of the image does not match its digest",
                        "the file is damaged or was modified: download it again");
    int *used = copy >= 0 ? &copy : &fd;
    if (lseek(*used, 0, SEEK_SET) != 0)
        return cay_fail_errno(err, errno, op, path);
    return TAKE_FD(*used);
}

static int parse(int fd, const char *path, json_t **ret_json, struct cay_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return cay_fail_errno(err, errno, op, path);
    if (st.st_size > JSON_MAX)
        return fail_format(path, "a JSON document in the image is too large", err);
    AUTO_FREE char *text = malloc((size_t)st.st_size + 1);
    if (!text)
        return cay_fail_memory(err, op);
    ssize_t len = io_pread(fd, text, (size_t)st.st_size, 0);
    if (len < 0)
        return cay_fail_errno(err, (int)-len, op, path);
    *ret_json = json_loadb(text, (size_t)len, JSON_REJECT_DUPLICATES, NULL);
    return *ret_json
               ? CAY_OK
               : fail_format(path, "a document in the image is not valid JSON", err);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* "blobs/sha256/HEX" of a descriptor; false if its digest is invalid. */
static bool blob_path(const json_t *descriptor, char path[128], const char **ret_hex)
{
    const char *hex = digest_hex(text_of(descriptor, "digest"));

    if (!hex)
        return false;
    snprintf(path, 128, "blobs/sha256/%s", hex);
    *ret_hex = path + strlen("blobs/sha256/");
    return true;
}

static int parse_blob(const struct image *image, const json_t *descriptor,
                      json_t **ret_json, struct cay_error *err)
{
    char path[128];
    const char *hex;

    if (!blob_path(descriptor, path, &hex))
        return fail_format("digest",
                           "the image refers to a part without a SHA-256 digest", err);
    AUTO_FD fd = open_verified(image, path, hex, err);
    return fd < 0 ? fd : parse(fd, path, ret_json, err);
}

/* --- Configuration --- */

static int take_env(struct template_info *info, const json_t *env, struct cay_error *err)
{
    size_t count = json_array_size(env), kept = 0;

    if (count > ENV_MAX)
        return fail_format("Env", "the image sets too many environment variables", err);
    info->env = calloc(count + 1, sizeof *info->env);
    for (size_t i = 0; info->env && i < count; i++) {
        const char *text = json_string_value(json_array_get(env, i));
        const char *equals = text ? strchr(text, '=') : NULL;
        if (!equals || equals == text)
            continue;
        info->env[kept] = strdup(text);
        if (!info->env[kept++])
            return cay_fail_memory(err, op);
    }
    return info->env ? CAY_OK : cay_fail_memory(err, op);
}

/* A label with a name of the kind that templates have, or "". */
static void take_name(const json_t *labels, const char *label, char *field, size_t room)
{
    const char *name = text_of(labels, label);
    bool is_built_in = strcmp(name, "host") == 0 || strcmp(name, "base") == 0;

    if (is_built_in || template_check_name(name, op, NULL) == CAY_OK)
        cay_copy_text(field, room, name);
}

/* What the labels of a snapshot say, without which the image is another one's. */
static int take_labels(const struct image *image, json_t *inner, struct cay_error *err)
{
    static const char *const ours[] = {TEMPLATE_LABEL_ORIGIN, TEMPLATE_LABEL_SANDBOX,
                                       TEMPLATE_LABEL_BASE};
    struct template_archive *archive = image->draft->archive;
    json_t *labels = json_object_get(inner, "Labels");
    const char *base = text_of(labels, TEMPLATE_LABEL_BASE);
    bool is_part = strcmp(base, "host") == 0 || strcmp(base, "base") == 0;

    if (!archive && *base)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, base,
                        "the archive has only the files of a snapshot that differ from "
                        "its template",
                        "use cay snapshot import");
    if (!archive)
        return CAY_OK;
    if (!json_object_get(labels, TEMPLATE_LABEL_ORIGIN) || (*base && !is_part))
        return cay_fail(err, CAY_E_INVALID, 0, op, "Labels",
                        "the archive has no snapshot",
                        "create a template from an image: cay template create NAME "
                        "--from oci-archive:FILE");
    cay_copy_text(archive->base, sizeof archive->base, base);
    take_name(labels, TEMPLATE_LABEL_ORIGIN, archive->origin, sizeof archive->origin);
    take_name(labels, TEMPLATE_LABEL_SANDBOX, archive->sandbox, sizeof archive->sandbox);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        (void)json_object_del(labels, ours[i]);
    return CAY_OK;
}

static int take_config(const struct image *image, const json_t *config,
                       struct cay_error *err)
{
    struct template_info *info = &image->draft->info;
    json_t *inner = json_object_get(config, "config");
    const char *architecture = text_of(config, "architecture");
    const char *os = text_of(config, "os");

    if (!json_is_object(config))
        return fail_format("config", "the image has no configuration", err);
    if ((*os && strcmp(os, "linux") != 0) ||
        (*architecture && strcmp(architecture, image->architecture) != 0))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, architecture,
                        "the image is for another architecture",
                        "pull it for linux/%s: docker pull --platform linux/%s NAME",
                        image->architecture, image->architecture);
    const char *user = text_of(inner, "User"), *workdir = text_of(inner, "WorkingDir");
    if (strlen(user) >= sizeof info->shown.user ||
        strlen(workdir) + 1 >= sizeof info->shown.workdir)
        return fail_format("config", "the image's User or WorkingDir is too long", err);
    TRY(take_labels(image, inner, err));
    cay_copy_text(info->shown.user, sizeof info->shown.user, user);
    /* A relative path starts at the root. */
    snprintf(info->shown.workdir, sizeof info->shown.workdir, "%s%s",
             *workdir && *workdir != '/' ? "/" : "", workdir);
    info->config = inner ? json_dumps(inner, JSON_COMPACT) : NULL;
    if (inner && !info->config)
        return cay_fail_memory(err, op);
    const json_t *hidden =
        image->draft->archive ? json_object_get(inner, TEMPLATE_IMAGE_ENV) : NULL;
    return take_env(info, hidden ? hidden : json_object_get(inner, "Env"), err);
}

/* Containers expect it to exist. */
static int make_workdir(const struct image *image, struct cay_error *err)
{
    const char *path = image->draft->info.shown.workdir;
    AUTO_FD dir = template_make_path(image->draft->root, path, 0, 0);

    return dir < 0
               ? cay_fail(err, CAY_E_INVALID, -dir, op, path,
                          "cannot create the image's working directory",
                          "its path exists and is not a directory: correct the image's "
                          "WorkingDir")
               : CAY_OK;
}

/* --- Layers --- */

/* Compressed layers have two digests: of the blob, and in "diff_ids" of its contents.  A
 * layer is decompressed to a file once, so that the bytes that match are those that are
 * unpacked. */
struct expansion {
    struct template_draft *draft;
    const char *path;
    int to;
    uint64_t from_bytes, bytes;
    struct sha256_ctx hash;
};

static int fail_size(const struct expansion *expansion, const char *limit,
                     struct cay_error *err)
{
    return cay_fail(err, CAY_E_LIMIT, 0, op, expansion->path,
                    "a layer of the image is too large when decompressed",
                    "the limit is %s", limit);
}

static int take_bytes(void *cookie, const void *data, size_t len, struct cay_error *err)
{
    struct expansion *expansion = cookie;

    expansion->bytes += len;
    if (expansion->bytes > TEMPLATE_BYTES_MAX - expansion->draft->bytes)
        return fail_size(expansion, "64 GiB for all layers of a template", err);
    if (expansion->bytes > RATIO_FREE &&
        expansion->bytes / RATIO_MAX > expansion->from_bytes)
        return fail_size(expansion, "200 times its compressed size, above 256 MiB", err);
    sha256_update(&expansion->hash, len, data);
    int error = io_write(expansion->to, data, len);
    return error ? cay_fail_errno(err, -error, op, expansion->path)
                 : template_report(expansion->draft, "decompressing", err);
}

/* The decompressed bytes of a verified blob, from the start. */
static int expand(struct template_draft *draft, const char *path, int blob,
                  const char *diff_id, struct cay_error *err)
{
    struct expansion expansion = {.draft = draft, .path = path};
    char found[DIGEST_HEX + 1];
    struct stat st;
    AUTO_FD to = openat(draft->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (to < 0 || fstat(blob, &st) != 0)
        return cay_fail_errno(err, errno, op, path);
    expansion.to = to;
    expansion.from_bytes = (uint64_t)st.st_size;
    sha256_init(&expansion.hash);
    TRY(tar_expand(op, blob, take_bytes, &expansion, err));
    digest_end(&expansion.hash, found);
    if (strcmp(found, diff_id) != 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, path,
                        "a layer of the image does not match its diff_id",
                        "the image's configuration is of another image, or was modified: "
                        "create the image again");
    if (lseek(to, 0, SEEK_SET) != 0)
        return cay_fail_errno(err, errno, op, path);
    return TAKE_FD(to);
}

/* The plain archive of a layer.  Its blob has the digest `hex`. */
static int open_layer(const struct image *image, const char *path, const char *hex,
                      const char *diff_id, struct cay_error *err)
{
    AUTO_FD blob = open_verified(image, path, hex, err);

    if (blob < 0 || strcmp(hex, diff_id) == 0)
        return TAKE_FD(blob);
    return expand(image->draft, path, blob, diff_id, err);
}

static int add_layer(const struct image *image, int root, size_t index,
                     struct cay_error *err)
{
    struct template_draft *draft = image->draft;
    const struct image_layer *layer = &image->layers[index];
    int code = CAY_OK;

    AUTO_FD fd = open_layer(image, layer->path, layer->hex, layer->diff_id, err);
    if (fd < 0)
        return fd;
    if (index > 0) { /* the first layer has nothing below it */
        code = template_unpack(draft, root, fd, TEMPLATE_WHITEOUTS, err);
        if (!code && lseek(fd, 0, SEEK_SET) != 0)
            code = cay_fail_errno(err, errno, op, layer->path);
    }
    return code ? code : template_unpack(draft, root, fd, TEMPLATE_LAYER, err);
}

struct layer_range {
    const struct image *image;
    size_t first, end;
};

static int add_range(void *cookie, int root, struct cay_error *err)
{
    const struct layer_range *range = cookie;

    for (size_t i = range->first; i < range->end; i++)
        TRY(add_layer(range->image, root, i, err));
    return CAY_OK;
}

/* An archive that is damaged is refused also where its files are not needed. */
static int check_range(const struct layer_range *range, struct cay_error *err)
{
    for (size_t i = range->first; i < range->end; i++) {
        const struct image_layer *layer = &range->image->layers[i];
        AUTO_FD fd = open_verified(range->image, layer->path, layer->hex, err);
        if (fd < 0)
            return TAKE_FD(fd);
    }
    return CAY_OK;
}

/* A layer stands on those below it, so its key is of all diff_ids up to its own. */
static void next_key(char key[DIGEST_HEX + 1], const char *diff_id)
{
    struct sha256_ctx hash;
    char text[2 * DIGEST_HEX + 16];
    int len = snprintf(text, sizeof text, "image 1 %s %s", key, diff_id);

    sha256_init(&hash);
    sha256_update(&hash, (size_t)len, (const uint8_t *)text);
    digest_end(&hash, key);
}

/* The lowest `count` layers.  If they are too many, the lowest of them become one. */
static int keep_layers(const struct image *image, size_t count, struct cay_error *err)
{
    enum { MOST = TEMPLATE_LAYERS_MAX - 1 };
    struct template_layers *layers = image->draft->layers;
    struct layer_range range = {.image = image};
    char key[DIGEST_HEX + 1] = "", text[DIGEST_HEX + 8];

    for (; range.end < count; range.first = range.end) {
        uint64_t bytes;
        bool is_long = range.first == 0 && count > MOST;
        range.end = is_long ? count - MOST + 1 : range.first + 1;
        for (size_t i = range.first; i < range.end; i++)
            next_key(key, image->layers[i].diff_id);
        snprintf(text, sizeof text, "sha256:%s", image->layers[range.end - 1].diff_id);
        TRY(layers->add(layers, key, text, add_range, &range, &bytes, err));
        image->draft->bytes += bytes;
        if (bytes && image->draft->archive) /* it was there, and not read */
            TRY(check_range(&range, err));
    }
    return CAY_OK;
}

/* Unpacks the own layer of a snapshot, with an overlay's marks for what it hides. */
static int add_own(const struct image *image, int root, size_t index,
                   struct cay_error *err)
{
    struct template_draft *draft = image->draft;
    const struct image_layer *layer = &image->layers[index];
    AUTO_FD fd = open_layer(image, layer->path, layer->hex, layer->diff_id, err);

    if (fd < 0)
        return TAKE_FD(fd);
    TRY(template_unpack(draft, root, fd, TEMPLATE_LAYER, err));
    return lseek(fd, 0, SEEK_SET) == 0
               ? template_unpack(draft, root, fd, TEMPLATE_MARKS, err)
               : cay_fail_errno(err, errno, op, layer->path);
}

/* The last layer of a snapshot above "base" has only usr, which becomes a directory
 * beside the root. */
static int add_usr(const struct image *image, size_t index, struct cay_error *err)
{
    static const char part[] = "part";
    int dir = image->draft->dir;

    if (mkdirat(dir, part, 0755) != 0)
        return cay_fail_errno(err, errno, op, part);
    AUTO_FD to = path_open(dir, part, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (to < 0)
        return cay_fail_errno(err, -to, op, part);
    TRY(add_own(image, to, index, err));
    AUTO_FD usr = path_open(to, "usr", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (usr < 0 || renameat(to, "usr", dir, "usr") != 0)
        return fail_format("layers",
                           "the last layer of the snapshot has no directory usr", err);
    return tree_remove(&fs_direct, op, dir, part, part, err);
}

static int add_snapshot(const struct image *image, struct cay_error *err)
{
    struct template_draft *draft = image->draft;
    const char *base = draft->archive->base;
    bool has_usr = strcmp(base, "base") == 0;
    size_t own = has_usr ? 2 : 1;

    if (image->count < own || (*base && image->count != own))
        return fail_format("layers", "the snapshot has too few or too many layers", err);
    TRY(keep_layers(image, image->count - own, err));
    draft->bytes = 0; /* its own */
    TRY(add_own(image, draft->root, image->count - own, err));
    return has_usr ? add_usr(image, image->count - 1, err) : CAY_OK;
}

static int add_layers(const struct image *image, struct cay_error *err)
{
    struct layer_range all = {image, 0, image->count};
    struct template_layers *layers = image->draft->layers;

    if (image->draft->archive)
        return add_snapshot(image, err);
    if (!layers)
        return add_range(&all, image->draft->root, err);
    TRY(keep_layers(image, image->count, err));
    return layers->open_root(layers, image->draft, err);
}

static int check_layers(const json_t *layers, struct cay_error *err)
{
    size_t count = json_array_size(layers);

    return count > 0 && count <= LAYERS_MAX
               ? CAY_OK
               : fail_format("layers", "the image has no layers, or too many", err);
}

/* Each layer has its diff_id in the configuration. */
static int take_diff_ids(const json_t *config, const json_t *layers,
                         const json_t **ret_ids, struct cay_error *err)
{
    const json_t *ids = json_object_get(json_object_get(config, "rootfs"), "diff_ids");

    if (json_array_size(ids) != json_array_size(layers))
        return fail_format("diff_ids",
                           "the image's layers do not match its configuration", err);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const char *id = json_string_value(json_array_get(ids, i));
        if (!id || !digest_hex(id))
            return fail_format("diff_ids", "a layer of the image has no SHA-256 digest",
                               err);
    }
    *ret_ids = ids;
    return CAY_OK;
}

static const char *diff_id(const json_t *ids, size_t index)
{
    return digest_hex(json_string_value(json_array_get(ids, index)));
}

static int take_layer(struct image *image, const char *path, const char *hex,
                      const char *diff_id, struct cay_error *err)
{
    struct image_layer *layer = &image->layers[image->count++];

    if (strlen(path) >= sizeof layer->path)
        return fail_format("layers", "the path of a layer is too long", err);
    cay_copy_text(layer->path, sizeof layer->path, path);
    cay_copy_text(layer->hex, sizeof layer->hex, hex);
    cay_copy_text(layer->diff_id, sizeof layer->diff_id, diff_id);
    return CAY_OK;
}

static int use_manifest(struct image *image, const json_t *manifest,
                        struct cay_error *err)
{
    AUTO(json_t) config = NULL;
    const json_t *layers = json_object_get(manifest, "layers"), *ids = NULL;
    char path[128];
    const char *hex;

    int code = check_layers(layers, err);
    if (!code)
        code = parse_blob(image, json_object_get(manifest, "config"), &config, err);
    if (!code)
        code = take_config(image, config, err);
    if (!code)
        code = take_diff_ids(config, layers, &ids, err);
    for (size_t i = 0; !code && i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        const char *type = text_of(layer, "mediaType");
        if (*type && !strstr(type, "tar"))
            return fail_format(type, "a layer of the image has an unknown media type",
                               err);
        if (!blob_path(layer, path, &hex))
            return fail_format(
                "layers", "the image refers to a part without a SHA-256 digest", err);
        code = take_layer(image, path, hex, diff_id(ids, i), err);
    }
    return code ? code : add_layers(image, err);
}

/* --- OCI layouts --- */

static bool fits(const struct image *image, const json_t *descriptor)
{
    const json_t *platform = json_object_get(descriptor, "platform");

    return !platform ||
           (strcmp(text_of(platform, "os"), "linux") == 0 &&
            strcmp(text_of(platform, "architecture"), image->architecture) == 0);
}

/* The one entry of an index for this architecture. */
static bool has_tag(const json_t *entry, const char *tag)
{
    const json_t *notes = json_object_get(entry, "annotations");

    return strcmp(text_of(notes, "org.opencontainers.image.ref.name"), tag) == 0;
}

static int choose(const struct image *image, const json_t *index, const char *tag,
                  const json_t **ret_entry, struct cay_error *err)
{
    const json_t *entries = json_object_get(index, "manifests");
    size_t count = 0;

    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        /* An image with several names is listed once for each of them. */
        bool is_known =
            count && strcmp(text_of(entry, "digest"), text_of(*ret_entry, "digest")) == 0;
        if (fits(image, entry) && (!*tag || has_tag(entry, tag)) && !is_known &&
            count++ == 0)
            *ret_entry = entry;
    }
    if (count == 0 && *tag)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, tag,
                        "the layout has no image with this tag",
                        "use a tag of its index.json, or none if it has one image");
    if (count == 0 && json_array_size(entries) > 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, image->architecture,
                        "the image is for other architectures", "pull it for linux/%s",
                        image->architecture);
    if (count != 1)
        return cay_fail(err, CAY_E_INVALID, 0, op, "index.json",
                        "the file must contain exactly one image for this architecture",
                        "it contains %zu; save one image by its name", count);
    return CAY_OK;
}

static int use_index(struct image *image, const json_t *index, int depth,
                     struct cay_error *err)
{
    AUTO(json_t) next = NULL;
    const json_t *entry = NULL;

    if (depth > INDEX_DEPTH)
        return fail_format("index.json", "the image's indexes are nested too deeply",
                           err);
    int code = choose(image, index, depth == 1 ? image->draft->tag : "", &entry, err);
    if (!code && depth == 1 && image->draft->archive)
        take_name(json_object_get(entry, "annotations"), TEMPLATE_REF_NAME,
                  image->draft->archive->name, sizeof image->draft->archive->name);
    if (!code)
        code = parse_blob(image, entry, &next, err);
    if (code)
        return code;
    return json_object_get(next, "manifests") ? use_index(image, next, depth + 1, err)
                                              : use_manifest(image, next, err);
}

/* --- docker save --- */

/* The digest in a name: "blobs/sha256/HEX" or "HEX.json". */
static bool hex_of_name(const char *name, char hex[DIGEST_HEX + 1])
{
    static const char blobs[] = "blobs/sha256/";

    if (strncmp(name, blobs, strlen(blobs)) == 0)
        name += strlen(blobs);
    if (strspn(name, "0123456789abcdef") != DIGEST_HEX)
        return false;
    memcpy(hex, name, DIGEST_HEX);
    hex[DIGEST_HEX] = '\0';
    return name[DIGEST_HEX] == '\0' || strcmp(name + DIGEST_HEX, ".json") == 0;
}

static int use_saved(struct image *image, const json_t *saved, struct cay_error *err)
{
    AUTO(json_t) config = NULL;
    const json_t *layers = json_object_get(saved, "Layers"), *ids = NULL;
    const char *name = text_of(saved, "Config");
    char hex[DIGEST_HEX + 1];

    int code = check_layers(layers, err);
    if (!code && !hex_of_name(name, hex))
        code = fail_format("manifest.json",
                           "the image configuration has no SHA-256 digest", err);
    if (code)
        return code;
    AUTO_FD fd = open_verified(image, name, hex, err);
    if (fd < 0)
        return fd;
    code = parse(fd, name, &config, err);
    if (!code)
        code = take_config(image, config, err);
    if (!code)
        code = take_diff_ids(config, layers, &ids, err);
    for (size_t i = 0; !code && i < json_array_size(layers); i++) {
        const char *path = json_string_value(json_array_get(layers, i));
        const char *id = diff_id(ids, i);
        if (!path)
            return fail_format("manifest.json", "a layer of the image has no path", err);
        /* A compressed blob is named after its own digest. */
        code = take_layer(image, path, hex_of_name(path, hex) ? hex : id, id, err);
    }
    return code ? code : add_layers(image, err);
}

/* --- The image --- */

static bool has(const struct image *image, const char *name)
{
    AUTO_FD fd = path_open(image->dir, name, O_PATH, 0, PATH_PLAIN);

    return fd >= 0;
}

static int use_image(struct image *image, struct cay_error *err)
{
    AUTO(json_t) top = NULL;
    bool is_layout = has(image, "index.json") && has(image, "blobs");
    const char *name = is_layout ? "index.json" : "manifest.json";

    if (!has(image, name))
        return fail_format(image->draft->options->from, "not a container image", err);
    AUTO_FD fd = open_file(image, name, err);
    int code = fd < 0 ? TAKE_FD(fd) : parse(fd, name, &top, err);
    if (code)
        return code;
    if (is_layout)
        return use_index(image, top, 1, err);
    if (json_array_size(top) != 1)
        return cay_fail(
            err, CAY_E_INVALID, 0, op, name, "the file must contain exactly one image",
            "it contains %zu; save one image by its name", json_array_size(top));
    return use_saved(image, json_array_get(top, 0), err);
}

/* Unpacks the archive into the draft's directory "image". */
static int unpack_image(struct image *image, int fd, struct cay_error *err)
{
    struct template_draft *draft = image->draft;
    struct template_draft outer = {.options = draft->options, .dir = draft->dir};

    if (mkdirat(draft->dir, "image", 0700) != 0)
        return cay_fail_errno(err, errno, op, draft->options->from);
    image->dir = path_open(draft->dir, "image", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (image->dir < 0)
        return cay_fail_errno(err, -image->dir, op, draft->options->from);
    image->is_ours = true;
    /* Not counted, because it is removed afterwards. */
    int code = template_unpack(&outer, image->dir, fd, TEMPLATE_WHOLE, err);
    draft->reported_ns = outer.reported_ns;
    return code;
}

static int unpack_file(struct image *image, int held, struct cay_error *err)
{
    AUTO_FD fd = path_reopen(held, O_RDONLY);

    return fd < 0 ? cay_fail_errno(err, -fd, op, image->draft->options->from)
                  : unpack_image(image, fd, err);
}

int template_import(struct template_draft *draft, int fd, struct cay_error *err)
{
    AUTO_FREE struct image_layer *layers = calloc(LAYERS_MAX, sizeof *layers);
    struct image image = {.draft = draft,
                          .dir = -1,
                          .architecture = template_architecture(),
                          .layers = layers};

    if (!layers)
        return cay_fail_memory(err, op);
    int code = unpack_image(&image, fd, err);
    if (!code)
        code = use_image(&image, err);
    auto_close(&image.dir);
    return code ? code : tree_remove(&fs_direct, op, draft->dir, "image", "image", err);
}

int template_from_image(struct template_draft *draft, struct cay_error *err)
{
    bool is_named = draft->options->source == CAY_TEMPLATE_IMAGE;
    const char *path = is_named && *draft->image ? draft->image : draft->options->from;
    AUTO_FREE struct image_layer *layers = calloc(LAYERS_MAX, sizeof *layers);
    struct image image = {.draft = draft,
                          .dir = -1,
                          .architecture = template_architecture(),
                          .layers = layers};
    struct stat st;
    bool is_downloaded = is_named && !*draft->image;
    AUTO_FD held = is_downloaded ? openat(draft->dir, "image", O_PATH | O_CLOEXEC)
                                 : open(path, O_PATH | O_CLOEXEC);
    int code = CAY_OK;

    if (held < 0 || fstat(held, &st) != 0)
        return cay_fail_errno(err, errno, op, path);
    if (!layers)
        return cay_fail_memory(err, op);
    image.is_ours = is_downloaded;
    if (S_ISDIR(st.st_mode))
        image.dir = fcntl(held, F_DUPFD_CLOEXEC, 3);
    else if (S_ISREG(st.st_mode))
        code = unpack_file(&image, held, err);
    else
        return fail_format(path, "neither a file nor a directory", err);
    if (!code)
        code = use_image(&image, err);
    if (!code)
        code = make_workdir(&image, err);
    auto_close(&image.dir);
    if (!code && image.is_ours)
        code = tree_remove(&fs_direct, op, draft->dir, "image", path, err);
    return code;
}
