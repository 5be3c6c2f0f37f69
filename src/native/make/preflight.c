/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/preflight.h"

#include <string.h>

#include "base/error.h"
#include "files/handle.h"
#include "init/plan.h"
#include "native/make/join.h"
#include "native/make/level.h"
#include "native/make/root-plan.h"
#include "native/record/image.h"
#include "native/record/names.h"
#include "sys/landlock.h"

static const char op[] = "sandbox.create";

/* Space for the sandbox's own files and PID 1, and some for a command. */
#define LEAST_BYTES (1ull << 20)

static int check_least(const char *what, uint64_t bytes, struct cay_error *err)
{
    if (bytes >= LEAST_BYTES)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, what,
                    "the limit is too small for a sandbox", "use at least 1 MiB");
}

static int check_disk(const struct cay_sandbox_options *options, struct cay_error *err)
{
    if (options->storage != CAY_STORAGE_MEMORY ||
        options->disk_bytes <= options->memory_bytes)
        return CAY_OK;
    return cay_fail(
        err, CAY_E_INVALID, 0, op, "disk",
        "the disk limit is larger than the memory limit, and the disk is in memory",
        "raise the memory limit to at least the disk limit, or lower the disk limit");
}

/* Storage on disk has no limit unless one is given, since its space is reserved. */
static int complete_disk(struct cay_sandbox_options *options, unsigned given,
                         struct cay_error *err)
{
    if (options->storage == CAY_STORAGE_DISK)
        return options->disk_bytes ? image_check(options->disk_bytes, op, "disk", err)
                                   : CAY_OK;
    if (options->storage != CAY_STORAGE_MEMORY)
        return cay_fail(err, CAY_E_INVALID, 0, op, "storage", "unknown kind of storage",
                        "use one of enum cay_storage");
    if (!options->disk_bytes)
        options->disk_bytes = options->memory_bytes < CAY_DISK_DEFAULT
                                  ? options->memory_bytes
                                  : CAY_DISK_DEFAULT;
    int code = given & CAY_LAYER_MEMORY ? check_disk(options, err) : CAY_OK;
    return code ? code : check_least("disk", options->disk_bytes, err);
}

/* Also a line of /etc/hosts inside. */
static int check_hostname(const char *name, struct cay_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-";
    size_t len = name ? strlen(name) : 0;

    if (!name || (len > 0 && len < 64 && strspn(name, letters) == len && *name != '-' &&
                  name[len - 1] != '-'))
        return CAY_OK;
    return cay_fail(
        err, CAY_E_INVALID, 0, op, "hostname", "invalid host name",
        "use up to 63 letters, digits and \"-\", with \"-\" neither first nor last");
}

static int complete_join(struct cay_sandbox_options *options, struct cay_error *err)
{
    char text[CAY_NETWORKS_MAX];

    TRY(join_plan(options->networks, options->name ? options->name : "sb", text, err));
    if (options->network == CAY_NETWORK_HOST)
        return cay_fail(err, CAY_E_INVALID, 0, op, "networks",
                        "a sandbox with the network of the host joins no network",
                        "leave the network out, or use rules or open");
    if (options->network == CAY_NETWORK_NONE)
        options->network = CAY_NETWORK_RULES; /* none: members only */
    return CAY_OK;
}

/* The network is that of the policy, if it has one. */
static int complete_network(struct cay_sandbox_options *options, struct cay_error *err)
{
    enum cay_network by_policy =
        options->policy ? cay_policy_network(options->policy) : CAY_NETWORK_NONE;

    if ((unsigned)options->network > CAY_NETWORK_OPEN)
        return cay_fail(err, CAY_E_INVALID, 0, op, "network", "unknown network",
                        "use one of enum cay_network");
    if (by_policy && options->network && options->network != by_policy)
        return cay_fail(err, CAY_E_INVALID, 0, op, "network",
                        "the policy has network rules, which this network does not apply",
                        "leave the network out, or the network rules");
    if (by_policy)
        options->network = by_policy;
    if (options->networks && options->networks[0])
        TRY(complete_join(options, err));
    if ((options->secret_count || options->header_count) &&
        (options->network <= CAY_NETWORK_HOST || options->storage == CAY_STORAGE_DISK))
        return cay_fail(err, CAY_E_INVALID, 0, op, "secrets",
                        "secrets need a network with rules, and storage in memory",
                        "allow the hosts of the secrets, for example with --allow HOST");
    return CAY_OK;
}

static int check_id_prefix(const char *prefix, struct cay_error *err)
{
    size_t len = prefix ? strspn(prefix, "abcdefghijklmnopqrstuvwxyz234567") : 0;

    if (!prefix || (len <= 8 && !prefix[len]))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, "id_prefix", "invalid prefix of ids",
                    "use at most 8 of the letters a-z and 2-7");
}

int preflight_options(struct cay_sandbox_options *options, unsigned *ret_given,
                      struct cay_error *err)
{
    *ret_given = (options->memory_bytes ? CAY_LAYER_MEMORY : 0u) |
                 (options->disk_bytes ? CAY_LAYER_DISK : 0u) |
                 (options->pids ? CAY_LAYER_PIDS : 0u) |
                 (options->cpu_percent ? CAY_LAYER_CPU : 0u);
    if (!options->memory_bytes)
        options->memory_bytes = CAY_MEMORY_DEFAULT;
    if (!options->pids)
        options->pids = CAY_PIDS_DEFAULT;
    if ((unsigned)options->level > CAY_LEVEL_LANDLOCK)
        return cay_fail(err, CAY_E_INVALID, 0, op, "level", "unknown isolation level",
                        "use one of enum cay_level");
    if ((options->user &&
         strlen(options->user) >= sizeof((struct plan_defaults *)0)->user) ||
        (options->workdir &&
         (strlen(options->workdir) >= sizeof((struct plan_defaults *)0)->workdir ||
          options->workdir[0] != '/')))
        return cay_fail(err, CAY_E_INVALID, 0, op,
                        options->workdir ? options->workdir : options->user,
                        "invalid default user or working directory",
                        "a user name has at most 63 bytes; a working directory is "
                        "absolute and has at most 1023 bytes");
    int code = check_id_prefix(options->id_prefix, err);
    if (!code)
        code = check_hostname(options->hostname, err);
    if (!code)
        code = complete_network(options, err);
    if (!code && options->name && !names_is_valid(options->name))
        code = cay_fail(err, CAY_E_INVALID, 0, op, options->name, "invalid sandbox name",
                        "use up to 63 letters, digits, \"_\", \".\" and \"-\", starting "
                        "with a letter or a digit, but not with sb- like an id");
    if (!code)
        code = check_least("memory", options->memory_bytes, err);
    return code ? code : complete_disk(options, *ret_given, err);
}

int preflight_disk(const struct cay_sandbox_options *options, unsigned layers,
                   struct cay_error *err)
{
    return layers & CAY_LAYER_MEMORY ? check_disk(options, err) : CAY_OK;
}

struct cgroup_limits preflight_limits(const struct cay_sandbox_options *options)
{
    return (struct cgroup_limits){options->memory_bytes, options->pids,
                                  options->cpu_percent};
}

int preflight_layers(const struct record *record,
                     const struct cay_sandbox_options *options, unsigned given,
                     struct cay_error *err)
{
    const struct cgroup_limits limits = preflight_limits(options);

    if (!(given | options->require))
        return CAY_OK;
    unsigned promise = cgroup_preview_layers(&record->cgroup, &limits);
    unsigned layers = level_layers(record, promise);
    int code = level_demand(record, layers, given, options->require, err);
    return code ? code : preflight_disk(options, layers, err);
}

static int check_host(const struct cay_sandbox_options *options, unsigned given,
                      struct cay_error *err)
{
    const struct cgroup_limits limits = preflight_limits(options);
    struct record record = {.level = level_from(options->level),
                            .network = options->network,
                            .storage = options->storage,
                            .disk_bytes = options->disk_bytes,
                            .landlock_abi = landlock_abi(),
                            .has_range = idmap_is_root()};

    if (record.level == CAY_LEVEL_BEST)
        return level_fail_none(err);
    int code = level_check(record.level, options, err);
    if (!code)
        code = cgroup_name("sb-foreseen", &limits, &record.cgroup, err);
    return code ? code : preflight_layers(&record, options, given, err);
}

int preflight(const struct cay_sandbox_options *options, struct cay_error *err)
{
    struct cay_sandbox_options known = *options;
    struct root_sources parts;
    unsigned given;
    int code = preflight_options(&known, &given, err);

    if (code)
        return code;
    struct cay_sandbox_options shown = known;
    if (known.policy) /* its directories are created with the sandbox */
        code = files_try(known.policy, err);
    shown.policy = NULL;
    if (code)
        return code;
    code = root_sources_open(&shown, NULL, &parts, err);
    root_sources_close(&parts);
    return code ? code : check_host(&known, given, err);
}
