/* SPDX-License-Identifier: Apache-2.0 */

/* Keeps the layers of an image apart, as layers of builds are, so that images with the
 * same lowest layers share them.  Each is unpacked into an overlay over those below it:
 * the kernel writes what a whiteout of the image comes to.
 *
 * Ordinary users' images, and those of CAY_TEMPLATE_OCI, go into one root. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "native/build/build.h"
#include "native/record/state.h"
#include "native/snapshot/snapshot.h"
#include "sys/fs.h"
#include "sys/path.h"

struct image_layers {
    struct template_layers calls;
    struct build build; /* for its store */
    struct build_chain chain;
    struct build_texts made; /* the layers that were not there */
};

static struct image_layers *own(struct template_layers *layers)
{
    return (struct image_layers *)(void *)layers;
}

struct filling {
    int (*fill)(void *cookie, int root, struct cay_error *err);
    void *cookie;
};

static int fill_layer(void *cookie, struct build_layer *layer, struct cay_error *err)
{
    const struct filling *filling = cookie;

    return filling->fill(filling->cookie, layer->root, err);
}

static int add(struct template_layers *layers, const char *key, const char *text,
               int (*fill)(void *cookie, int root, struct cay_error *err), void *cookie,
               uint64_t *ret_bytes, struct cay_error *err)
{
    struct image_layers *image = own(layers);
    struct filling filling = {fill, cookie};
    uint64_t bytes = 0;
    bool is_there = build_layer_exists(&image->build, key, &bytes);

    if (!is_there)
        TRY(build_layer_make(&image->build, &image->chain, text, key, true, fill_layer,
                             &filling, &bytes, err));
    if (!is_there && !build_texts_add(&image->made, key, TEMPLATE_KEY))
        return cay_fail_memory(err, TEMPLATE_OP);
    *ret_bytes = is_there ? bytes : 0;
    return build_chain_add(&image->chain, key, bytes, err);
}

static int open_root(struct template_layers *layers, struct template_draft *draft,
                     struct cay_error *err)
{
    struct image_layers *image = own(layers);
    const struct build_layer top = {.build = &image->build, .dir = draft->dir};
    struct template template;

    TRY(build_chain_open(&image->chain, &template, err));
    int root = build_view(&top, &template, "view", err);
    template_done(&template);
    if (root < 0)
        return root;
    auto_close(&draft->root);
    draft->root = root;
    return CAY_OK;
}

static int close_root(struct template_layers *layers, struct template_draft *draft,
                      struct cay_error *err)
{
    struct build_texts *list = &own(layers)->chain.layers;

    auto_close(&draft->root);
    draft->root = -1;
    if (unlinkat(draft->dir, "root", AT_REMOVEDIR) != 0 ||
        renameat(draft->dir, "view/upper", draft->dir, "root") != 0)
        return cay_fail_errno(err, errno, TEMPLATE_OP, "root");
    draft->info.layers = list->list; /* ends with NULL */
    *list = (struct build_texts){0};
    return tree_remove(&fs_direct, TEMPLATE_OP, draft->dir, "view", "view", err);
}

static int create_apart(const struct cay_template_options *options, struct cay_error *err)
{
    struct image_layers image = {.calls = {add, open_root, close_root},
                                 .build = {.context = -1}};

    image.build.store = state_open(TEMPLATE_LAYERS, true, err);
    if (image.build.store < 0)
        return image.build.store;
    /* Until the template lists its layers, this lock keeps them. */
    int code = flock(image.build.store, LOCK_SH) == 0
                   ? template_create(options, &image.calls, err)
                   : cay_fail_errno(err, errno, TEMPLATE_OP, TEMPLATE_LAYERS);
    build_chain_done(&image.chain);
    auto_close(&image.build.store);
    if (code) /* nothing stays of an image that failed */
        template_drop_layers((const char *const *)image.made.list, image.made.count);
    build_texts_done(&image.made);
    return code;
}

/* --- Archives of snapshots --- */

static const char import_op[] = "snapshot.import";

/* What the archive says is the snapshot's; its name may be given instead. */
static int take_archive(struct template_archive *archive, struct template_draft *from,
                        struct build_texts *layers, struct snapshot_draft *draft,
                        struct cay_error *err)
{
    static const struct build_texts nothing = {0};
    struct template_info *info = &draft->info;

    if (!draft->name && !*archive->name)
        return cay_fail(err, CAY_E_INVALID, 0, import_op, "the archive",
                        "the archive has no name for the snapshot",
                        "pass a name for the snapshot");
    if (!draft->name)
        draft->name = template_plain_name(archive->name, archive->plain);
    TRY(template_check_name(draft->name, import_op, err));
    draft->info = from->info;
    from->info = (struct template_info){0};
    cay_copy_text(info->shown.source, sizeof info->shown.source, TEMPLATE_SNAPSHOT);
    cay_copy_text(info->shown.from, sizeof info->shown.from, archive->sandbox);
    memcpy(info->origin, archive->origin, sizeof info->origin);
    memcpy(info->base, archive->base, sizeof info->base);
    info->shown.bytes = from->bytes;
    info->layers = layers->list ? layers->list : calloc(1, sizeof *info->layers);
    *layers = nothing;
    return info->layers ? CAY_OK : cay_fail_memory(err, import_op);
}

static int import_into(struct image_layers *image, struct snapshot_draft *draft, int fd,
                       struct template_archive *archive, struct cay_error *err)
{
    const struct cay_template_options options = {
        .size = sizeof options, .name = "", .from = "the archive"};
    struct template_draft from = {.options = &options,
                                  .layers = &image->calls,
                                  .dir = draft->dir,
                                  .archive = archive};

    from.root = snapshot_mkdir(draft, "root", err);
    if (from.root < 0)
        return from.root;
    int code = template_import(&from, fd, err);
    if (!code)
        code = take_archive(archive, &from, &image->chain.layers, draft, err);
    if (!code)
        code = snapshot_clean(draft, err);
    auto_close(&from.root);
    template_info_done(&from.info);
    if (code && err && !*err->subject) /* the archive reader does not know its name */
        cay_copy_text(err->subject, sizeof err->subject, options.from);
    return code ? code : snapshot_publish(draft, err);
}

int cay_snapshot_import(int fd, const char *name, struct cay_snapshot_info *ret_info,
                        struct cay_error *err)
{
    struct image_layers image = {.calls = {add, open_root, close_root},
                                 .build = {.context = -1}};
    struct template_archive archive = {.name = ""};
    struct snapshot_draft draft;
    char plain[TEMPLATE_NAME_MAX];
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY)
        return cay_fail(err, CAY_E_INVALID, flags < 0 ? errno : 0, import_op, "fd",
                        "the descriptor is not open for reading",
                        "open the file of the archive for reading");
    if (geteuid() != 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, import_op, "snapshot",
                        "only sandboxes of root have snapshots", "run it with sudo");
    if (name)
        TRY(template_check_name(name, import_op, err));
    name = name ? template_plain_name(name, plain) : NULL;
    int code = snapshot_begin(import_op, name ? name : "", false, &draft, err);
    draft.name = name;
    image.build.store = draft.layers;
    if (!code)
        code = import_into(&image, &draft, fd, &archive, err);
    name = draft.name;
    build_chain_done(&image.chain);
    snapshot_end(&draft);
    if (code) /* nothing stays of an archive that failed */
        template_drop_layers((const char *const *)image.made.list, image.made.count);
    build_texts_done(&image.made);
    return code || !ret_info ? code : cay_snapshot_inspect(name, ret_info, err);
}

int cay_template_create(const struct cay_template_options *options, struct cay_error *err)
{
    bool is_image = options && options->source == CAY_TEMPLATE_IMAGE;

    if (options && options->source == CAY_TEMPLATE_SANDBOX)
        return snapshot_template(options, err);
    return is_image && geteuid() == 0 ? create_apart(options, err)
                                      : template_create(options, NULL, err);
}
