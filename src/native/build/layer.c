/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <nettle/base16.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "files/walk.h"
#include "init/build.h"
#include "init/layers.h"
#include "native/build/build.h"
#include "native/make/overlay.h"
#include "native/record/state.h"
#include "native/record/userns.h"
#include "sys/fs.h"
#include "sys/path.h"

/* --- Keys --- */

/* With its NUL, so that texts do not run into each other. */
void build_key_add(struct sha256_ctx *hash, const char *text)
{
    sha256_update(hash, strlen(text) + 1, (const uint8_t *)text);
}

void build_key_end(struct sha256_ctx *hash, char ret_key[TEMPLATE_KEY + 1])
{
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_digest(hash, sizeof digest, digest);
    base16_encode_update(ret_key, sizeof digest, digest);
    ret_key[TEMPLATE_KEY] = '\0';
}

/* --- Chains --- */

int build_chain_copy(struct build_chain *chain, const struct build_chain *from,
                     struct cay_error *err)
{
    *chain = (struct build_chain){.bytes = from->bytes};
    memcpy(chain->base, from->base, sizeof chain->base);
    memcpy(chain->identity, from->identity, sizeof chain->identity);
    for (size_t i = 0; i < from->layers.count; i++)
        if (!build_texts_add(&chain->layers, from->layers.list[i], TEMPLATE_KEY))
            return cay_fail_memory(err, BUILD_OP);
    return CAY_OK;
}

int build_chain_add(struct build_chain *chain, const char *key, uint64_t bytes,
                    struct cay_error *err)
{
    struct build_texts *layers = &chain->layers;

    if (!build_texts_add(layers, key, TEMPLATE_KEY))
        return cay_fail_memory(err, BUILD_OP);
    char *added = layers->list[layers->count - 1];
    memmove(layers->list + 1, layers->list, (layers->count - 1) * sizeof *layers->list);
    layers->list[0] = added;
    cay_copy_text(chain->identity, sizeof chain->identity, key);
    chain->bytes += bytes;
    return CAY_OK;
}

void build_chain_done(struct build_chain *chain)
{
    build_texts_done(&chain->layers);
}

const char *build_chain_name(const struct build_chain *chain,
                             char ret_name[TEMPLATE_KEY + 2])
{
    if (!chain->layers.count)
        return chain->base;
    snprintf(ret_name, TEMPLATE_KEY + 2, "@%s", chain->layers.list[0]);
    return ret_name;
}

int build_chain_open(const struct build_chain *chain, struct template *ret_template,
                     struct cay_error *err)
{
    char name[TEMPLATE_KEY + 2];

    *ret_template = (struct template)TEMPLATE_NONE;
    return *build_chain_name(chain, name)
               ? template_open(build_chain_name(chain, name), false, ret_template, err)
               : CAY_OK;
}

/* --- Views --- */

/* As an ordinary user, in the user namespace: PID 1 of its sandboxes does the same. */
static int mount_as_user(const int *lowers, size_t count, int top)
{
    int mounts[LAYERS_MAX];
    size_t used = 0;
    char path[PATH_MAX];
    int fd = unshare(CLONE_NEWNS) == 0 &&
                     mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
                 ? 0
                 : -errno;

    for (; fd >= 0 && used < count && used < LAYERS_MAX; used++) {
        fd = path_name(lowers[used], path);
        if (fd >= 0)
            fd = build_bind(path, 0);
        mounts[used] = fd;
    }
    if (fd >= 0)
        fd = path_name(top, path);
    AUTO_FD above = fd < 0 ? fd : build_bind(path, PLAN_WITH_WRITING);
    fd = above < 0 ? above : layers_overlay(mounts, used, above, 0);
    for (size_t i = 0; i < used; i++)
        auto_close(&mounts[i]);
    return fd;
}

static int make_directory(int dir, const char *name)
{
    return mkdirat(dir, name, 0755) == 0 && fchmodat(dir, name, 0755, 0) == 0 ? 0
                                                                              : -errno;
}

int build_view(const struct build_layer *layer, const struct template *template,
               const char *top, struct cay_error *err)
{
    int lowers[TEMPLATE_LAYERS_MAX + 1];
    size_t count = 0;

    int error = make_directory(layer->dir, top);
    AUTO_FD above =
        error ? error : path_open(layer->dir, top, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (above >= 0)
        error = make_directory(above, "upper");
    if (above >= 0 && !error)
        error = make_directory(above, "work");
    if (above < 0 || error)
        return cay_fail_errno(err, above < 0 ? -above : -error, BUILD_OP, top);
    if (template->root >= 0)
        lowers[count++] = template->root;
    for (size_t i = 0; i < template->below_count; i++)
        lowers[count++] = template->below[i];
    int fd = !count ? path_open(above, "upper", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN)
             : layer->build->is_user ? mount_as_user(lowers, count, above)
                                     : overlay_mount_plain(lowers, count, above);
    return fd < 0 ? cay_fail_errno(err, -fd, BUILD_OP, "overlay") : fd;
}

/* --- Layers --- */

bool build_layer_exists(const struct build *build, const char *key, uint64_t *ret_bytes)
{
    struct template_info info;
    AUTO_FD dir = path_open(build->store, key, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (dir < 0 || template_info_load(dir, &info, NULL) != CAY_OK)
        return false;
    *ret_bytes = info.shown.bytes;
    template_info_done(&info);
    return true;
}

struct filling {
    struct build_layer *layer;
    bool has_root;
    build_fill *fill;
    void *cookie;
    uint64_t bytes;
};

/* The overlay is no longer mounted when its upper directory becomes the layer. */
static int fill_layer(void *cookie, struct cay_error *err)
{
    struct filling *filling = cookie;
    struct build_layer *layer = filling->layer;
    int code = CAY_OK;

    if (filling->has_root) {
        layer->root = build_view(layer, &layer->below, "view", err);
        if (layer->root < 0)
            return layer->root;
    }
    code = filling->fill(filling->cookie, layer, err);
    auto_close(&layer->root);
    layer->root = -1;
    if (!code && filling->has_root &&
        renameat(layer->dir, "view/upper", layer->dir, "root") != 0)
        code = cay_fail_errno(err, errno, BUILD_OP, "root");
    static const char *const tops[] = {"view", "from"};
    for (size_t i = 0; !code && i < 2; i++)
        if (faccessat(layer->dir, tops[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            code = tree_remove(&fs_direct, BUILD_OP, layer->dir, tops[i], tops[i], err);
    AUTO_FD root =
        code ? -1 : path_open(layer->dir, "root", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (!code && root < 0)
        code = cay_fail_errno(err, -root, BUILD_OP, "root");
    return code ? code : template_count_bytes(BUILD_OP, root, &filling->bytes, err);
}

static int save_info(const struct build_layer *layer, uint64_t bytes,
                     struct cay_error *err)
{
    static char *none[] = {NULL};
    const struct build_chain *chain = layer->chain;
    struct template_info info = {
        .shown = {.source = "layer", .created_ms = clock_since_1970_ms(), .bytes = bytes},
        .layers = chain->layers.count ? chain->layers.list : none};

    cay_copy_text(info.shown.from, sizeof info.shown.from, layer->text);
    memcpy(info.base, chain->base, sizeof info.base);
    if (layer->build->is_user)
        (void)template_own_map(info.map);
    return template_info_save(layer->dir, &info, err);
}

/* Another build may have finished the same layer meanwhile. */
static int finish(const struct build_layer *layer, const char *key, struct cay_error *err)
{
    if (syncfs(layer->dir) != 0)
        return cay_fail_errno(err, errno, BUILD_OP, key);
    int error = path_rename(layer->build->store, layer->name, layer->build->store, key,
                            RENAME_NOREPLACE);
    if (error == -EEXIST)
        return state_remove_tree(layer->build->store, layer->name, BUILD_OP, key, err);
    return error ? cay_fail_errno(err, -error, BUILD_OP, key) : CAY_OK;
}

int build_layer_make(struct build *build, const struct build_chain *chain,
                     const char *text, const char *key, bool has_root, build_fill *fill,
                     void *cookie, uint64_t *ret_bytes, struct cay_error *err)
{
    struct build_layer layer = {.build = build, .chain = chain, .text = text, .root = -1};
    struct filling filling = {&layer, has_root, fill, cookie, 0};

    TRY(build_chain_open(chain, &layer.below, err));
    layer.dir = state_draft(build->store, ".new-", layer.name, err);
    if (layer.dir < 0) {
        template_done(&layer.below);
        return layer.dir;
    }
    int code = build->is_user ? userns_run(fill_layer, &filling, err)
                              : fill_layer(&filling, err);
    if (!code)
        code = save_info(&layer, filling.bytes, err);
    if (!code)
        code = finish(&layer, key, err);
    if (code)
        (void)state_remove_tree(build->store, layer.name, BUILD_OP, layer.name, NULL);
    (void)close(layer.dir);
    template_done(&layer.below);
    *ret_bytes = filling.bytes;
    return code;
}

/* --- Squashing --- */

/* Of a template that is open: an ordinary user's state directory cannot be opened in the
 * user namespace. */
static int copy_chain(void *cookie, struct build_layer *layer, struct cay_error *err)
{
    const struct cay_template_options none = {.size = sizeof none, .from = "layers"};
    struct template_draft draft = {
        .options = &none, .dir = layer->dir, .root = layer->root};
    AUTO_FD from = build_view(layer, cookie, "from", err);

    return from < 0 ? TAKE_FD(from) : template_copy(&draft, from, err);
}

static int make_squashed(struct build *build, const struct build_chain *chain,
                         const char *key, uint64_t *ret_bytes, struct cay_error *err)
{
    static const struct build_chain nothing = {.bytes = 0};
    struct template template;

    TRY(build_chain_open(chain, &template, err));
    int code = build_layer_make(build, &nothing, "squash", key, true, copy_chain,
                                &template, ret_bytes, err);
    template_done(&template);
    return code;
}

/* The key of the highest layer stays the chain's identity, so that later steps have the
 * same keys whether or not layers were squashed below them. */
int build_chain_squash(struct build *build, struct build_chain *chain,
                       struct cay_error *err)
{
    char key[TEMPLATE_KEY + 1];
    struct sha256_ctx hash;
    uint64_t bytes = 0;

    if (chain->layers.count + 1 < TEMPLATE_LAYERS_MAX)
        return CAY_OK;
    sha256_init(&hash);
    build_key_add(&hash, "squash");
    build_key_add(&hash, chain->layers.list[0]);
    build_key_end(&hash, key);
    if (!build_layer_exists(build, key, &bytes))
        TRY(make_squashed(build, chain, key, &bytes, err));
    struct build_chain squashed = {.bytes = 0};
    memcpy(squashed.identity, chain->identity, sizeof squashed.identity);
    if (!build_texts_add(&squashed.layers, key, TEMPLATE_KEY))
        return cay_fail_memory(err, BUILD_OP);
    squashed.bytes = bytes;
    build_chain_done(chain);
    *chain = squashed;
    return CAY_OK;
}
