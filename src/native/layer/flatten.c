/* SPDX-License-Identifier: Apache-2.0 */

/* A sandbox on disk may be started again after all others have ended, so its fork depends
 * on no other one.  The files of the other disk are linked; they do not change, since
 * they are in sealed layers of both. */
#include "native/layer/flatten.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/layer/squash.h"
#include "native/make/layer.h"
#include "native/template/template.h"
#include "sys/path.h"

static int copy(const struct inherited *inherited, const struct overlay *overlay)
{
    struct template template = TEMPLATE_NONE;
    int below[OVERLAY_BELOW_MAX];
    struct inherited own;
    int error = inherited_shift(inherited, INHERIT_INSIDE, &own);

    template.root = overlay->lower;
    template.usr = overlay->usr;
    template.below = below;
    template.below_count = overlay->below_count;
    for (size_t i = 0; i < overlay->below_count; i++)
        below[i] = overlay->below[i];
    /* A new disk has it. */
    if (!error && unlinkat(overlay->disk, "upper", AT_REMOVEDIR) != 0)
        error = -errno;
    if (!error)
        error = squash_copy(&own, &template, overlay->disk);
    inherited_done(&own);
    return error;
}

static int record(int store, bool has_usr, struct cay_error *err)
{
    struct layer_tree first = {.live = LAYER_FIRST};
    struct cay_checkpoint checkpoint;

    TRY(layer_seal(store, LAYER_FIRST, &first, NULL, "fork", &checkpoint, err));
    int live = layer_create(store, &first, LAYER_FIRST, has_usr, err);
    if (live < 0)
        return live;
    const struct layer_tree tree = {
        .live = (uint32_t)live, .parent = LAYER_FIRST, .last = first.last};
    return layer_tree_save(store, &tree, true, err);
}

int flatten_inherited(const struct inherited *inherited, const struct overlay *overlay,
                      uint32_t id_base)
{
    struct cay_error err = {0};
    int error = copy(inherited, overlay);

    if (error)
        return error;
    AUTO_FD mount = overlay_open_disk(overlay->disk, id_base);
    if (mount < 0)
        return TAKE_FD(mount);
    AUTO_FD store = path_open(mount, ".", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (store < 0)
        return TAKE_FD(store);
    if (record(store, overlay->usr >= 0, &err) == CAY_OK)
        return 0;
    return err.sys_errno ? -err.sys_errno : -EIO;
}
