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

int cay_template_create(const struct cay_template_options *options, struct cay_error *err)
{
    bool is_image = options && options->source == CAY_TEMPLATE_IMAGE;

    if (options && options->source == CAY_TEMPLATE_SANDBOX)
        return snapshot_template(options, err);
    return is_image && geteuid() == 0 ? create_apart(options, err)
                                      : template_create(options, NULL, err);
}
