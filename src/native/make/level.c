/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/level.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "init/plan.h"
#include "native/make/probe.h"
#include "native/record/idmap.h"
#include "native/record/volume.h"
#include "sys/caps.h"
#include "sys/landlock.h"

static const char op[] = "sandbox.create";

enum { OLDEST_LANDLOCK = 3 /* older ABIs do not restrict truncate(2) */ };

/* --- Choosing a level --- */

static bool is_there(enum cay_level level)
{
    struct subids users, groups;

    switch (level) {
    case CAY_LEVEL_ROOT: /* root of a container often may not mount */
        return idmap_is_root() && caps_has(CAP_SYS_ADMIN);
    case CAY_LEVEL_RANGE:
        return geteuid() != 0 && subids_find(&users, &groups);
    /* Host root is never mapped, and mapping another id needs the same privilege as
     * mounting. */
    case CAY_LEVEL_SINGLE:
        return idmap_is_root() ? caps_has(CAP_SYS_ADMIN) : !idmap_is_host_root();
    case CAY_LEVEL_LANDLOCK:
        return idmap_is_root() || !idmap_is_host_root();
    case CAY_LEVEL_NONE: /* never chosen automatically */
    case CAY_LEVEL_BEST:
        break;
    }
    return false;
}

enum cay_level level_from(enum cay_level limit)
{
    int first = limit > CAY_LEVEL_BEST ? (int)limit : CAY_LEVEL_ROOT;

    for (int level = first; level <= CAY_LEVEL_LANDLOCK; level++)
        if (is_there((enum cay_level)level))
            return (enum cay_level)level;
    return CAY_LEVEL_BEST;
}

int level_fail_none(struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "level",
                    "the only user id in this user namespace is the host's root, which "
                    "is never mapped into a sandbox",
                    "map more ids into the namespace, run cay outside it, or run cay as "
                    "an ordinary user");
}

/* Errors by which the kernel or its administrator refuse namespaces: of the clone, of the
 * map, and of the first privileged operations. */
bool level_may_fall(const struct cay_error *error)
{
    static const char *const steps[] = {"sandbox.launch", "init.namespaces",
                                        "init.user",      "init.network",
                                        "init.mount",     "init.nesting"};
    static const int refusals[] = {EPERM, EACCES, ENOSPC, EUSERS, ENOSYS, EINVAL};
    bool step = false, refusal = false;

    if (error->code != CAY_E_UNAVAILABLE)
        return false;
    if (strcmp(error->op, "sandbox.map") == 0)
        return true;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        step |= strcmp(error->op, steps[i]) == 0;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        refusal |= error->sys_errno == refusals[i];
    return step && refusal;
}

/* --- Ids --- */

int level_identify(enum cay_level level, struct record *record, struct idmap *ret_map,
                   uint32_t *ret_owner, struct cay_error *err)
{
    struct subids users, groups;
    bool reserved = record->has_range;
    uint32_t uid = reserved ? record->id_base + PLAN_USER : geteuid();
    uint32_t gid = reserved ? record->id_base + PLAN_USER : getegid();

    record->level = level;
    memset(ret_map, 0, sizeof *ret_map);
    switch (level) {
    case CAY_LEVEL_ROOT:
        idmap_for_root(ret_map, record->id_base);
        *ret_owner = record->id_base;
        return CAY_OK;
    case CAY_LEVEL_RANGE:
        if (!subids_find(&users, &groups))
            return cay_fail(err, CAY_E_UNAVAILABLE, ENOENT, "sandbox.map", SUBIDS_USERS,
                            "this user has no range of subordinate ids in /etc/subuid "
                            "and /etc/subgid",
                            "sudo $(which cay) setup adds one");
        idmap_for_range(ret_map, users.first, groups.first);
        record->id_base = *ret_owner = users.first;
        record->id_count = IDMAP_COUNT;
        return CAY_OK;
    case CAY_LEVEL_SINGLE:
        idmap_for_single(ret_map, uid, gid, !reserved);
        break;
    case CAY_LEVEL_BEST:
    case CAY_LEVEL_LANDLOCK:
    case CAY_LEVEL_NONE:
        break;
    }
    record->id_base = *ret_owner = uid;
    record->id_count = 1;
    return CAY_OK;
}

/* --- Unsupported options --- */

static int fail_option(const char *what, const char *level, const char *why,
                       const char *hint, struct cay_error *err)
{
    char message[256];

    snprintf(message, sizeof message, "a sandbox at isolation level \"%s\" %s", level,
             why);
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, what, message, "%s", hint);
}

static const char range_hint[] = "give this user 65536 ids in /etc/subuid and "
                                 "/etc/subgid: sudo $(which cay) setup adds them";
static const char namespaces_hint[] =
    "allow user namespaces: cay doctor prints the command";

static int check_landlock(const struct cay_sandbox_options *options,
                          struct cay_error *err)
{
    const char *level = cay_level_slug(CAY_LEVEL_LANDLOCK);

    if (landlock_abi() < OLDEST_LANDLOCK)
        return cay_fail(
            err, CAY_E_UNAVAILABLE, 0, "sandbox.create", "landlock",
            "a sandbox without user namespaces needs landlock, ABI 3 or newer",
            "use Linux 6.2 or newer with lsm=landlock, or allow user "
            "namespaces");
    if (options->hostname)
        return fail_option("hostname", level, "cannot have its own host name",
                           namespaces_hint, err);
    if (options->network > CAY_NETWORK_HOST)
        return fail_option(
            "network", level,
            "has no network namespace, so network rules cannot be enforced",
            namespaces_hint, err);
    if (options->policy)
        return fail_option("policy", level,
                           "cannot mount a policy's directories as /NAME",
                           namespaces_hint, err);
    for (size_t i = 0; i < options->bind_count; i++)
        if (strcmp(options->binds[i].source, options->binds[i].target) != 0)
            return fail_option("bind", level,
                               "can mount a directory only at its path on the host",
                               "use the same path inside and outside, or allow user "
                               "namespaces",
                               err);
    return CAY_OK;
}

/* A template has files of several users; a directory used as a template has owners of
 * the host, which only root can shift. */
static int check_root(enum cay_level level, const struct cay_sandbox_options *options,
                      struct cay_error *err)
{
    const char *template = options->template_name, *name = cay_level_slug(level);
    bool is_host =
        !template || strcmp(template, "host") == 0 || strcmp(template, "base") == 0;

    if (!is_host && *template == '/')
        return fail_option(
            "template", name, "cannot use a directory as a template",
            "create a template from it (cay template create NAME --from-dir "
            "DIR), or create the sandbox as root",
            err);
    if (!is_host && level != CAY_LEVEL_RANGE)
        return fail_option("template", name, "supports only the template \"host\"",
                           level == CAY_LEVEL_SINGLE ? range_hint : namespaces_hint, err);
    if (options->storage != CAY_STORAGE_MEMORY && level == CAY_LEVEL_LANDLOCK)
        return fail_option("storage", name, "supports only storage in memory",
                           namespaces_hint, err);
    return CAY_OK;
}

/* The volumes of host root have the owners of inside, which an idmapped mount shifts. */
static int check_volumes(enum cay_level level, const struct cay_sandbox_options *options,
                         struct cay_error *err)
{
    bool is_landlock = level == CAY_LEVEL_LANDLOCK;

    for (size_t i = 0; i < options->bind_count; i++)
        if (cay_volume_is_source(options->binds[i].source) &&
            (is_landlock || idmap_is_root()))
            return fail_option("volume", cay_level_slug(level), "cannot have volumes",
                               is_landlock ? namespaces_hint
                                           : "create it at isolation level \"root\"",
                               err);
    return CAY_OK;
}

/* A saved sandbox would start again with changes that may have been applied meanwhile. */
static int check_changes(enum cay_level level, const struct cay_sandbox_options *options,
                         struct cay_error *err)
{
    const char *name = cay_level_slug(level);

    for (size_t i = 0; i < options->bind_count; i++) {
        if (options->binds[i].changes && level == CAY_LEVEL_LANDLOCK)
            return fail_option("bind", name, "cannot show a directory copy-on-write",
                               namespaces_hint, err);
        if (options->binds[i].changes && options->storage != CAY_STORAGE_MEMORY)
            return fail_option("storage", name,
                               "cannot show a directory copy-on-write and be on disk",
                               "use storage in memory: the changes are kept anyway", err);
    }
    return CAY_OK;
}

static int check_options(enum cay_level level, const struct cay_sandbox_options *options,
                         struct cay_error *err)
{
    const char *user = options->user, *name = cay_level_slug(level);

    TRY(check_changes(level, options, err));
    if (level == CAY_LEVEL_ROOT || level == CAY_LEVEL_NONE)
        return CAY_OK;
    if (options->from)
        return fail_option("from", name, "cannot be a fork", "create it as root", err);
    if (options->checkpoint_each)
        return fail_option("checkpoint_each", name, "has no checkpoints",
                           "create it as root", err);
    TRY(check_root(level, options, err));
    TRY(check_volumes(level, options, err));
    if (level < CAY_LEVEL_SINGLE)
        return CAY_OK;
    if (user && strcmp(user, "user") != 0 && strcmp(user, "1000") != 0)
        return fail_option("user", name, "has only one user, \"user\"",
                           level == CAY_LEVEL_LANDLOCK ? namespaces_hint : range_hint,
                           err);
    return level == CAY_LEVEL_LANDLOCK ? check_landlock(options, err) : CAY_OK;
}

/* Options refused here would also be refused at lower levels; only here it is known which
 * fix helps.  A disk is created before the sandbox: not for a level that is not
 * available. */
int level_check(enum cay_level level, const struct cay_sandbox_options *options,
                struct cay_error *err)
{
    int code = check_options(level, options, err);
    bool is_between = level == CAY_LEVEL_RANGE || level == CAY_LEVEL_SINGLE;

    if ((code || options->storage != CAY_STORAGE_MEMORY) && is_between &&
        !probe_own_root())
        return check_options(CAY_LEVEL_LANDLOCK, options, err);
    return code;
}

/* --- Layers --- */

static const unsigned by_namespaces = CAY_LAYER_USER | CAY_LAYER_PID | CAY_LAYER_MOUNT |
                                      CAY_LAYER_IPC | CAY_LAYER_UTS | CAY_LAYER_DISK;
static const unsigned by_cgroup =
    CAY_LAYER_CGROUP | CAY_LAYER_MEMORY | CAY_LAYER_PIDS | CAY_LAYER_CPU;

unsigned level_layers(const struct record *record, unsigned limits)
{
    unsigned layers = limits | CAY_LAYER_SECCOMP;

    if (record->level == CAY_LEVEL_NONE)
        return 0;
    if (record->level != CAY_LEVEL_LANDLOCK)
        layers |= by_namespaces;
    if (record->storage == CAY_STORAGE_DISK &&
        (!record->disk_bytes || record->level != CAY_LEVEL_ROOT))
        layers &= ~(unsigned)CAY_LAYER_DISK;
    if (record->landlock_abi)
        layers |= CAY_LAYER_LANDLOCK;
    if (record->network != CAY_NETWORK_HOST)
        layers |= CAY_LAYER_NETWORK;
    if (record->cgroup.unified[0])
        layers |= CAY_LAYER_CGROUP;
    /* The kernel counts processes per user and user namespace, and a user created for the
     * sandbox has no other processes. */
    if (record->level != CAY_LEVEL_LANDLOCK || record->has_range)
        layers |= CAY_LAYER_PIDS;
    return layers;
}

static void name_layers(unsigned layers, char *text, size_t room)
{
    size_t used = 0;

    text[0] = '\0';
    for (unsigned layer = 1; layer && layer <= layers && used < room; layer <<= 1)
        if (layers & layer)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? ", " : "",
                                     cay_layer_slug(layer));
}

/* The missing layers that the options disable, whatever the host supports. */
static unsigned left_out(const struct record *record, unsigned missing, unsigned given)
{
    unsigned layers = CAY_LAYER_NETWORK | (given & CAY_LAYER_CPU ? 0u : CAY_LAYER_CPU);

    if (record->storage == CAY_STORAGE_DISK && !record->disk_bytes)
        layers |= CAY_LAYER_DISK;
    return missing & layers;
}

/* What would make the missing layers available. */
static void explain(const struct record *record, unsigned missing, unsigned without,
                    char *text, size_t room)
{
    bool lacks_disk = missing & CAY_LAYER_DISK && record->storage == CAY_STORAGE_DISK;
    unsigned lacking = missing & ~without & ~(lacks_disk ? CAY_LAYER_DISK : 0u);
    const char *network = without & CAY_LAYER_NETWORK ? "; network is set to host" : "";
    const char *cpu = without & CAY_LAYER_CPU ? "; no CPU limit is set" : "";
    const char *disk = !lacks_disk                ? ""
                       : without & CAY_LAYER_DISK ? "; storage on disk has no size limit"
                                                  : "; only the isolation level of root "
                                                    "can limit storage on disk";
    const char *landlock = lacking & CAY_LAYER_LANDLOCK
                               ? "; landlock is not in the kernel parameter lsm="
                               : "";
    const char *namespaces = lacking & by_namespaces
                                 ? "; user namespaces are not available: run cay doctor"
                                 : "";
    const char *groups = !(lacking & by_cgroup) ? ""
                         : record->has_range || geteuid() == 0
                             ? "; no writable cgroup has these controllers"
                             : "; no cgroup is delegated to this user: use systemd-run "
                               "--user --scope -p Delegate=yes";

    snprintf(text, room, "%s%s%s%s%s%s", groups, namespaces, landlock, network, cpu,
             disk);
}

int level_demand(const struct record *record, unsigned layers, unsigned given,
                 unsigned require, struct cay_error *err)
{
    unsigned missing = (given | require) & ~layers;
    unsigned without = left_out(record, missing, given);
    char names[160], why[400];

    if (!missing)
        return CAY_OK;
    name_layers(missing, names, sizeof names);
    explain(record, missing, without, why, sizeof why);
    return cay_fail(
        err, CAY_E_UNSUPPORTED, 0, op, missing & require ? "require" : "limits",
        missing == without  ? "another option disables a required isolation layer"
        : missing & require ? "this host cannot enforce a required isolation layer"
                            : "this host cannot enforce a requested limit",
        "missing: %s%s", names, why);
}
