/* SPDX-License-Identifier: Apache-2.0 */

/* Removes a template together with the layers that only it needs, and layers that no
 * template needs.
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
#include "base/clock.h"
#include "base/error.h"
#include "native/record/runtime.h"
#include "native/record/state.h"
#include "native/record/storage.h"
#include "native/template/template.h"
#include "sys/path.h"

enum { LOCK_MS = 1000 };

struct release {
    const char *name;             /* the template */
    struct template_info info;    /* its own */
    void *used;                   /* a tree of the layers of other templates */
    char user[TEMPLATE_NAME_MAX]; /* another template that was built from it, or "" */
    bool is_out_of_memory;
    char damaged[TEMPLATE_NAME_MAX]; /* a template whose layers are unknown, or "" */
    size_t count;                    /* layers removed... */
    uint64_t bytes;                  /* ...and their size */
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

    if (!list) /* what is not seen must not be taken for unused */
        cay_copy_text(release->damaged, sizeof release->damaged, "templates");
    for (struct dirent *entry; (entry = path_next(list));) {
        struct template_info info;
        if (entry->d_name[0] == '.')
            continue;
        AUTO_FD dir =
            path_open(store, entry->d_name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (dir == -ENOENT || dir == -ENOTDIR)
            continue;
        if (dir < 0 || template_info_load(dir, &info, NULL) != CAY_OK) {
            if (strcmp(entry->d_name, release->name) != 0)
                cay_copy_text(release->damaged, sizeof release->damaged, entry->d_name);
            continue;
        }
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

static void drop_unused(struct release *release, int store, const char *name,
                        const struct template_info *info)
{
    if (tfind(name, &release->used, by_name) ||
        state_remove(store, name, "template.remove", NULL) != CAY_OK)
        return;
    release->count++;
    release->bytes += info->shown.bytes;
}

/* A build holds the lock as long as it runs, another removal or a snapshot only for a
 * moment. */
static bool lock_layers(int layers)
{
    uint64_t end = clock_ms() + LOCK_MS;

    while (flock(layers, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK || clock_ms() >= end)
            return false;
        clock_sleep_ms(1);
    }
    return true;
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
    if (goes)
        drop_unused(release, store, name, info);
}

static int remove_with_layers(struct release *release, int store, struct cay_error *err)
{
    struct cay_error none;
    AUTO_FD layers = state_open(TEMPLATE_LAYERS, false, &none);

    /* A build holds a shared lock from before its first lookup of a template until its
     * own template lists the layers, so none is missed. */
    if (layers >= 0 && !lock_layers(layers))
        return cay_fail(err, CAY_E_BUSY, 0, "template.remove", release->name,
                        "a build is running, and may use this template",
                        "try again when it has ended");
    visit_all(release, store, note_use);
    if (release->is_out_of_memory)
        return cay_fail_memory(err, "template.remove");
    if (*release->user)
        return cay_fail(err, CAY_E_BUSY, 0, "template.remove", release->name,
                        "another template was built from it", "remove that first: %s",
                        release->user);
    TRY(state_remove(store, release->name, "template.remove", err));
    if (layers >= 0 && !*release->damaged)
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

/* --- Sandboxes of builds --- */

static bool is_gone(const char *id)
{
    struct record record;
    int code = runtime_load(id, &record, NULL);

    return code == CAY_E_NOT_FOUND || (!code && !runtime_is_alive(&record));
}

size_t template_sweep_runs(int layers)
{
    AUTO_DIR list = path_list(layers);
    size_t count = 0;

    for (struct dirent *entry; (entry = path_next(list));) {
        const char *id = entry->d_name + strlen(TEMPLATE_RUN);
        if (strncmp(entry->d_name, TEMPLATE_RUN, strlen(TEMPLATE_RUN)) != 0 ||
            !runtime_is_id(id))
            continue;
        AUTO_FD dir =
            path_open(layers, entry->d_name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (dir < 0 || flock(dir, LOCK_EX | LOCK_NB) != 0 || !is_gone(id))
            continue;
        int code = storage_remove(id, NULL);
        if (!code || code == CAY_E_NOT_FOUND)
            count += unlinkat(layers, entry->d_name, AT_REMOVEDIR) == 0;
    }
    return count;
}

/* --- Layers without a template --- */

void template_drop_layers(const char *const *keys, size_t count)
{
    struct release release = {.name = ""};
    struct cay_error none;
    AUTO_FD layers = state_open(TEMPLATE_LAYERS, false, &none);
    AUTO_FD store = state_open("templates", false, &none);

    if (layers < 0 || store < 0 || !lock_layers(layers))
        return;
    visit_all(&release, store, note_use);
    bool is_known = !release.is_out_of_memory && !*release.damaged;
    for (size_t i = 0; is_known && i < count; i++)
        if (!tfind(keys[i], &release.used, by_name))
            (void)state_remove(layers, keys[i], "template.remove", NULL);
    tdestroy(release.used, free);
}

static int prune(struct release *release, int layers, struct cay_error *err)
{
    AUTO_FD store = state_open("templates", false, err);

    if (store < 0 && store != CAY_E_NOT_FOUND)
        return store;
    if (store >= 0)
        visit_all(release, store, note_use);
    if (release->is_out_of_memory)
        return cay_fail_memory(err, "template.prune");
    if (*release->damaged)
        return cay_fail(err, CAY_E_IO, 0, "template.prune", release->damaged,
                        "the template is damaged, and the layers that it needs are "
                        "unknown",
                        "remove it first");
    visit_all(release, layers, drop_unused);
    return CAY_OK;
}

int cay_template_prune(size_t *ret_count, uint64_t *ret_bytes, struct cay_error *err)
{
    struct release release = {.name = ""};
    struct cay_error none;
    AUTO_FD layers = state_open(TEMPLATE_LAYERS, false, &none);

    *ret_count = 0;
    *ret_bytes = 0;
    if (layers == CAY_E_NOT_FOUND)
        return CAY_OK;
    if (layers < 0)
        return cay_fail_as(err, layers, &none);
    if (!lock_layers(layers))
        return cay_fail(err, CAY_E_BUSY, 0, "template.prune", TEMPLATE_LAYERS,
                        "a build is running, and uses layers",
                        "try again when it has ended");
    int code = prune(&release, layers, err);
    tdestroy(release.used, free);
    *ret_count = release.count;
    *ret_bytes = release.bytes;
    return code;
}
