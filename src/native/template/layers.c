/* SPDX-License-Identifier: Apache-2.0 */

/* Removes a template together with the layers that only it needs.
 *
 * The templates themselves are the reference counts: each one lists all layers below its
 * root and the template below these.  So a crash can leave a layer too many, which the
 * next build uses or the next removal removes, but never one too few. */
#include <dirent.h>
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/state.h"
#include "native/template/template.h"
#include "sys/path.h"

struct release {
    const char *name;             /* the template */
    struct template_info info;    /* its own */
    void *used;                   /* a tree of the layers of other templates */
    char user[TEMPLATE_NAME_MAX]; /* another template that was built from it, or "" */
    bool is_out_of_memory;
};

static int by_name(const void *left, const void *right)
{
    return strcmp(left, right);
}

static bool is_in(char *const *list, const char *key)
{
    for (; list && *list; list++)
        if (strcmp(*list, key) == 0)
            return true;
    return false;
}

static void add_used(struct release *release, const char *layer)
{
    if (tfind(layer, &release->used, by_name))
        return;
    char *key = strdup(layer);
    release->is_out_of_memory |= !key || !tsearch(key, &release->used, by_name);
}

typedef void visit_info(struct release *release, int store, const char *name,
                        const struct template_info *info);

static void visit_all(struct release *release, int store, visit_info *visit)
{
    AUTO_DIR list = path_list(store);

    for (struct dirent *entry; (entry = path_next(list));) {
        struct template_info info;
        AUTO_FD dir =
            path_open(store, entry->d_name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (entry->d_name[0] == '.' || dir < 0 ||
            template_info_load(dir, &info, NULL) != CAY_OK)
            continue;
        visit(release, store, entry->d_name, &info);
        template_info_done(&info);
    }
}

static void note_use(struct release *release, int store, const char *name,
                     const struct template_info *info)
{
    (void)store;
    if (strcmp(name, release->name) == 0)
        return;
    for (char **layer = info->layers; layer && *layer; layer++)
        add_used(release, *layer);
    if (info->layers && strcmp(info->base, release->name) == 0)
        cay_copy_text(release->user, sizeof release->user, name);
}

/* A layer that stands on one that goes, or on the template itself, is of no use. */
static void drop_layer(struct release *release, int store, const char *name,
                       const struct template_info *info)
{
    bool goes =
        is_in(release->info.layers, name) || strcmp(info->base, release->name) == 0;

    for (char **layer = info->layers; !goes && layer && *layer; layer++)
        goes = is_in(release->info.layers, *layer) &&
               !tfind(*layer, &release->used, by_name);
    if (goes && !tfind(name, &release->used, by_name))
        (void)state_remove(store, name, "template.remove", NULL);
}

static int remove_with_layers(struct release *release, int store, struct cay_error *err)
{
    struct cay_error none;
    AUTO_FD layers = state_open(TEMPLATE_LAYERS, false, &none);

    visit_all(release, store, note_use);
    if (release->is_out_of_memory)
        return cay_fail_memory(err, "template.remove");
    if (*release->user)
        return cay_fail(err, CAY_E_BUSY, 0, "template.remove", release->name,
                        "another template was built from it", "remove that first: %s",
                        release->user);
    /* A build holds a shared lock from before its first lookup of a template. */
    if (layers >= 0 && flock(layers, LOCK_EX | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, "template.remove", release->name,
                        "a build is running, and may use this template",
                        "try again when it has ended");
    TRY(state_remove(store, release->name, "template.remove", err));
    if (layers >= 0)
        visit_all(release, layers, drop_layer);
    return CAY_OK;
}

int template_remove(int store, int dir, const char *name, struct cay_error *err)
{
    struct release release = {.name = name};

    if (template_info_load(dir, &release.info, NULL) != CAY_OK) /* damaged */
        release.info = (struct template_info){0};
    int code = remove_with_layers(&release, store, err);
    tdestroy(release.used, free);
    template_info_done(&release.info);
    return code;
}
