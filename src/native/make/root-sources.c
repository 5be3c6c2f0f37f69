/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/root-sources.h"

#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"

static const char op[] = "sandbox.create";

static int add_env(struct parts *parts, const char *const *env, struct cay_error *err)
{
    const char *const *image = (const char *const *)parts->template.info.env;
    size_t used = 0, more = env_count(image);

    parts->env = calloc(env_count(env) + more + 1, sizeof *parts->env);
    if (!parts->env)
        return cay_fail_memory(err, op);
    for (; env && *env; env++)
        if (!env_sets(env + 1, *env)) /* the last of a name is what counts */
            parts->env[used++] = *env;
    for (size_t i = 0; i < more; i++)
        if (!env_sets(parts->env, image[i]))
            parts->env[used++] = image[i];
    return CAY_OK;
}

static void take_defaults(const struct cay_template_info *image,
                          struct cay_sandbox_options *options)
{
    if (!options->user && *image->user)
        options->user = image->user;
    if (!options->workdir && *image->workdir == '/')
        options->workdir = image->workdir;
}

int parts_open(struct cay_sandbox_options *options, const char *start,
               struct parts *ret_parts, struct cay_error *err)
{
    const char *name = options->template_name;
    int code = CAY_OK;

    *ret_parts = (struct parts){
        .template = TEMPLATE_NONE, .storage = STORAGE_NONE, .is_start = start != NULL};
    if (name && strcmp(name, "base") == 0)
        code = template_base_open(options->network == CAY_NETWORK_NONE,
                                  &ret_parts->template, err);
    else if (name && strcmp(name, "host") != 0)
        code = template_open(name, start != NULL, &ret_parts->template, err);
    if (!code)
        take_defaults(&ret_parts->template.info.shown, options);
    if (!code)
        code = binds_open(options, start != NULL, ret_parts->template.root,
                          &ret_parts->binds, err);
    if (!code && start)
        code = storage_hold(start, &ret_parts->storage, err);
    if (!code)
        code = add_env(ret_parts, options->env, err);
    return code;
}

void parts_close(struct parts *parts)
{
    storage_done(&parts->storage);
    binds_done(&parts->binds);
    template_done(&parts->template);
    free(parts->env);
    parts->env = NULL;
}

int parts_draw(const struct parts *parts, const struct cay_sandbox_options *options,
               struct blueprint *blueprint, struct cay_error *err)
{
    uint64_t size = options->disk_bytes;
    int code = CAY_OK;

    if (options->storage == CAY_STORAGE_DISK) /* what is left is memory others share */
        size = options->memory_bytes < CAY_DISK_DEFAULT ? options->memory_bytes
                                                        : CAY_DISK_DEFAULT;
    blueprint->overlay.disk = parts->storage.disk;
    blueprint->keeps_root = parts->is_start;
    /* "base" is an overlay only where the library can make one. */
    if (parts->template.root < 0 ||
        (parts->template.usr >= 0 && !blueprint->head.prepared))
        blueprint_host(blueprint, size);
    else
        code = blueprint_template(blueprint, &parts->template, size, err);
    blueprint_binds(blueprint, &parts->binds);
    return code;
}
