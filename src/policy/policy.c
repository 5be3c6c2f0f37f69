/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "policy/tidy.h"

static const char op[] = "policy.new";

/* Each costs an open descriptor later, and a path is compared with all of them. */
#define MOUNTS_MAX 1024

static void mount_done(struct mount *mount)
{
    free(mount->name);
    free(mount->point);
    free(mount->host);
    free(mount->host_was);
    free(mount->origin);
    for (size_t i = 0; i < mount->suffix_count; i++)
        free(mount->suffixes[i]);
    free(mount->suffixes);
}

void cay_policy_free(cay_policy *policy)
{
    if (!policy)
        return;
    for (size_t i = 0; i < policy->mount_count; i++)
        mount_done(&policy->mounts[i]);
    free(policy->mounts);
    free(policy->by_length);
    free(policy->base);
    network_rules_free(policy->network);
    network_groups_done(&policy->groups);
    grant_done(&policy->read);
    grant_done(&policy->write);
    free(policy);
}

static void auto_cay_policy(cay_policy **policy)
{
    cay_policy_free(*policy);
}

static cay_policy *allocate(enum cay_style style, size_t room)
{
    AUTO(cay_policy) policy = calloc(1, sizeof *policy);

    if (!policy)
        return NULL;
    policy->style = style;
    policy->mounts = calloc(room + 1, sizeof *policy->mounts);
    policy->by_length = calloc(room + 1, sizeof *policy->by_length);
    return policy->mounts && policy->by_length ? TAKE_PTR(policy) : NULL;
}

static int fail_mount(const struct cay_mount *mount, const char *message,
                      const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, mount->name ? mount->name : "root",
                    message, "%s", hint);
}

static bool has_control(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return true;
    return false;
}

static char *copy_suffix(const char *text)
{
    char *copy = strdup(text);

    for (char *p = copy; p && *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    return copy;
}

static int take_suffixes(struct mount *mount, const char *const *suffixes, size_t count,
                         struct cay_error *err)
{
    mount->suffixes = calloc(count + 1, sizeof *mount->suffixes);
    if (!mount->suffixes)
        return cay_fail_memory(err, op);
    for (; mount->suffix_count < count; mount->suffix_count++) {
        char *copy = copy_suffix(suffixes[mount->suffix_count]);
        if (!copy)
            return cay_fail_memory(err, op);
        mount->suffixes[mount->suffix_count] = copy;
    }
    return CAY_OK;
}

static int check_rules(const struct cay_mount *given, struct cay_error *err)
{
    if (given->max_file_bytes < CAY_NO_LIMIT)
        return fail_mount(given, "the size limit is negative",
                          "set max_file_bytes to 0 or more, or to CAY_NO_LIMIT", err);
    if (given->exec > CAY_EXEC_RW)
        return fail_mount(given, "invalid exec mode",
                          "use CAY_EXEC_DEFAULT, CAY_EXEC_RO or CAY_EXEC_RW", err);
    if (given->suffix_count > 0 && (!given->limit_suffixes || !given->suffixes))
        return fail_mount(given, "suffixes are set but limit_suffixes is not",
                          "set suffixes, suffix_count and limit_suffixes together", err);
    for (size_t i = 0; i < given->suffix_count; i++)
        if (!given->suffixes[i])
            return fail_mount(given, "a suffix is NULL",
                              "write each suffix with its dot: \".txt\"", err);
    return CAY_OK;
}

static int take_path_name(const struct cay_mount *given, char out[PATH_MAX],
                          struct cay_error *err)
{
    size_t len = strlen(given->name);
    struct tidy tidy = tidy_path(given->name, len, 0, out);

    if (len > 0 && tidy.fits && !tidy.has_up && strcmp(out, given->name) == 0)
        return CAY_OK;
    return fail_mount(given, "invalid path name",
                      "a name starts and ends without a slash and has no empty, \".\", "
                      "\"..\" or over-long part",
                      err);
}

static int take_mount_point(const struct cay_mount *given, char out[PATH_MAX],
                            struct cay_error *err)
{
    size_t len;
    const char *text = tidy_strip(given->name, &len);

    if (len > 0 && *text != '/' && *text != '\\')
        return fail_mount(given, "the mount point does not start with \"/\"",
                          "mount points are absolute: \"/data\"", err);
    if (!tidy_path(text, len, TIDY_BACKSLASH, out).fits)
        return cay_fail_errno(err, ENAMETOOLONG, op, given->name);
    return CAY_OK;
}

static int take_name(enum cay_style style, const struct cay_mount *given,
                     struct mount *mount, struct cay_error *err)
{
    char point[PATH_MAX + 1] = "/";
    int code = CAY_OK;

    if (style == CAY_STYLE_ROOT) {
        if (given->name && strcmp(given->name, "/") != 0)
            return fail_mount(given, "a root has no name", "set the name to NULL", err);
    } else if (!given->name) {
        return fail_mount(given, "the name is missing", "give every mount a name", err);
    } else if (style == CAY_STYLE_PATHS) {
        code = take_path_name(given, point + 1, err);
    } else {
        code = take_mount_point(given, point + 1, err);
    }
    if (code)
        return code;
    if (has_control(point))
        return fail_mount(given, "the name contains control characters",
                          "use printable characters", err);
    mount->point = strdup(point);
    mount->name = strdup(style == CAY_STYLE_PATHS ? point + 1 : point);
    return mount->point && mount->name ? CAY_OK : cay_fail_memory(err, op);
}

/* ".." stays: it is resolved when the directory is opened, following links. */
static int take_host(const struct cay_mount *given, const char *base, struct mount *mount,
                     struct cay_error *err)
{
    const char *host = given->host ? given->host : "";
    AUTO_FREE char *cwd = NULL;
    char plain[PATH_MAX + 1] = "/";
    AUTO_BUF joined = {.max = 4 * PATH_MAX};

    if (!*host)
        return fail_mount(given, "the host directory is missing",
                          "name the host directory; \".\" is the base directory", err);
    base = base ? base : "";
    if (strlen(host) >= PATH_MAX || strlen(base) >= PATH_MAX)
        return cay_fail_errno(err, ENAMETOOLONG, op, given->name);
    if (*host != '/' && *base != '/') {
        cwd = getcwd(NULL, 0);
        if (!cwd)
            return cay_fail_errno(err, errno, op, "current directory");
        buf_text(&joined, cwd);
    }
    if (*host != '/')
        buf_format(&joined, "/%s/", base);
    if (!buf_text(&joined, host))
        return cay_fail_memory(err, op);
    if (!tidy_path(joined.data, joined.len, TIDY_KEEP_UP, plain + 1).fits)
        return cay_fail_errno(err, ENAMETOOLONG, op, given->name);
    mount->host = strdup(plain);
    mount->host_was = strdup(plain);
    return mount->host && mount->host_was ? CAY_OK : cay_fail_memory(err, op);
}

static int take_mount(const struct cay_policy_config *config,
                      const struct cay_mount *given, struct mount *mount,
                      struct cay_error *err)
{
    *mount = (struct mount){
        .max_file_bytes = given->max_file_bytes,
        .limit_suffixes = given->limit_suffixes,
        .writable = given->writable,
        .write_approval = given->write_approval,
        .read_approval = given->read_approval,
        .exec = given->exec,
    };
    int code = check_rules(given, err);
    if (!code)
        code = take_name(config->style, given, mount, err);
    if (!code)
        code = take_host(given, config->base, mount, err);
    if (!code)
        code = take_suffixes(mount, given->suffixes, given->suffix_count, err);
    if (!code && given->origin) {
        mount->origin = strdup(given->origin);
        code = mount->origin ? CAY_OK : cay_fail_memory(err, op);
    }
    return code;
}

static int check_config(const struct cay_policy_config *config, struct cay_error *err)
{
    size_t least = config->style == CAY_STYLE_PATHS ? 0 : 1;
    size_t most = config->style == CAY_STYLE_ROOT ? 1 : MOUNTS_MAX;

    if (config->style < CAY_STYLE_ROOT || config->style > CAY_STYLE_MOUNTS)
        return cay_fail(err, CAY_E_INVALID, 0, op, "style", "invalid style",
                        "use CAY_STYLE_ROOT, CAY_STYLE_PATHS or CAY_STYLE_MOUNTS");
    if (config->mount_count < least || config->mount_count > most)
        return cay_fail(err, CAY_E_INVALID, 0, op, "mounts",
                        config->mount_count < least ? "there are too few mounts"
                                                    : "there are too many mounts",
                        "this style takes %zu to %zu mounts", least, most);
    if (config->mount_count > 0 && !config->mounts)
        return cay_fail(err, CAY_E_INVALID, 0, op, "mounts", "mounts is NULL",
                        "point it at mount_count mounts");
    return CAY_OK;
}

static void sort_by_length(cay_policy *policy)
{
    for (size_t i = 0; i < policy->mount_count; i++) {
        size_t len = strlen(policy->mounts[i].point), at = i;

        for (; at > 0; at--) {
            size_t before = policy->by_length[at - 1];
            if (strlen(policy->mounts[before].point) >= len)
                break;
            policy->by_length[at] = before;
        }
        policy->by_length[at] = i;
    }
}

static int take_mounts(cay_policy *policy, const struct cay_policy_config *config,
                       struct policy_fault *ret_fault, struct cay_error *err)
{
    /* The caller's struct may be of another version and size. */
    size_t stride = config->mount_count > 0 ? config->mounts->size : 0;

    for (size_t i = 0; i < config->mount_count; i++) {
        const void *given = (const char *)config->mounts + i * stride;
        struct cay_mount known;

        TRY(cay_take_struct(&known, sizeof known, given, op, err));
        if (known.size != stride || stride % _Alignof(struct cay_mount) != 0)
            return cay_fail(err, CAY_E_INVALID, 0, op, "size",
                            "the mounts differ in their size",
                            "set the first member of each to its sizeof");
        struct mount *mount = &policy->mounts[policy->mount_count++];
        int code = take_mount(config, &known, mount, err);
        *ret_fault = (struct policy_fault){i + 1, code && mount->name};
        if (code)
            return code;
        for (size_t j = 0; j < i; j++)
            if (strcmp(policy->mounts[j].point, mount->point) == 0)
                return fail_mount(&known,
                                  config->style == CAY_STYLE_MOUNTS
                                      ? "the mount point is used twice"
                                      : "the name is used twice",
                                  "give every directory a unique path", err);
    }
    return CAY_OK;
}

int policy_build(const struct cay_policy_config *config, cay_policy **ret_policy,
                 struct policy_fault *ret_fault, struct cay_error *err)
{
    struct cay_policy_config known;

    *ret_fault = (struct policy_fault){0};
    TRY(cay_take_struct(&known, sizeof known, config, op, err));
    TRY(check_config(&known, err));
    AUTO(cay_policy) policy = allocate(known.style, known.mount_count);
    if (!policy)
        return cay_fail_memory(err, op);
    TRY(take_mounts(policy, &known, ret_fault, err));
    sort_by_length(policy);
    policy->read.all = policy->write.all = true;
    *ret_policy = TAKE_PTR(policy);
    return CAY_OK;
}

int cay_policy_new(const struct cay_policy_config *config, cay_policy **ret_policy,
                   struct cay_error *err)
{
    struct policy_fault fault;

    return policy_build(config, ret_policy, &fault, err);
}

int policy_inside(const char *base, cay_policy **ret_policy, struct cay_error *err)
{
    const struct cay_mount mount = {.size = sizeof mount,
                                    .host = "/",
                                    .writable = true,
                                    .max_file_bytes = CAY_NO_LIMIT};
    const struct cay_policy_config config = {.size = sizeof config,
                                             .style = CAY_STYLE_ROOT,
                                             .mounts = &mount,
                                             .mount_count = 1};
    AUTO(cay_policy) policy = NULL;

    TRY(cay_policy_new(&config, &policy, err));
    policy->base = strdup(base);
    if (!policy->base)
        return cay_fail_memory(err, op);
    *ret_policy = TAKE_PTR(policy);
    return CAY_OK;
}

enum cay_style cay_policy_style(const cay_policy *policy)
{
    return policy->style;
}

size_t cay_policy_mount_count(const cay_policy *policy)
{
    return policy->mount_count;
}

static struct cay_mount show(const struct mount *mount)
{
    return (struct cay_mount){
        .size = sizeof(struct cay_mount),
        .name = mount->name,
        .host = mount->host,
        .writable = mount->writable,
        .write_approval = mount->write_approval,
        .read_approval = mount->read_approval,
        .limit_suffixes = mount->limit_suffixes,
        .suffixes = (const char *const *)mount->suffixes,
        .suffix_count = mount->suffix_count,
        .max_file_bytes = mount->max_file_bytes,
        .exec = mount->exec,
        .origin = mount->origin,
    };
}

bool cay_policy_mount(const cay_policy *policy, size_t index, struct cay_mount *ret_mount)
{
    size_t size = ret_mount->size;

    if (index >= policy->mount_count || size < sizeof size)
        return false;
    struct cay_mount shown = show(&policy->mounts[index]);
    memset(ret_mount, 0, size);
    memcpy(ret_mount, &shown, size < sizeof shown ? size : sizeof shown);
    ret_mount->size = size;
    return true;
}

static int copy_mount(const struct mount *from, struct mount *to, struct cay_error *err)
{
    *to = *from;
    to->suffixes = NULL;
    to->suffix_count = 0;
    to->name = strdup(from->name);
    to->point = strdup(from->point);
    to->host = strdup(from->host);
    to->host_was = strdup(from->host_was);
    to->origin = from->origin ? strdup(from->origin) : NULL;
    if (!to->name || !to->point || !to->host || !to->host_was ||
        (from->origin && !to->origin))
        return cay_fail_memory(err, op);
    return take_suffixes(to, (const char *const *)from->suffixes, from->suffix_count,
                         err);
}

int policy_copy(const cay_policy *policy, cay_policy **ret_copy, struct cay_error *err)
{
    AUTO(cay_policy) copy = allocate(policy->style, policy->mount_count);
    int code = copy ? CAY_OK : cay_fail_memory(err, op);

    while (!code && copy->mount_count < policy->mount_count) {
        size_t i = copy->mount_count++;
        copy->by_length[i] = policy->by_length[i];
        code = copy_mount(&policy->mounts[i], &copy->mounts[i], err);
    }
    if (!code && policy->base) {
        copy->base = strdup(policy->base);
        code = copy->base ? CAY_OK : cay_fail_memory(err, op);
    }
    if (!code)
        code = network_groups_copy(&policy->groups, &copy->groups, err);
    if (!code && policy->network)
        code = network_rules_copy(policy->network, &copy->network, err);
    if (!code && (!grant_copy(&policy->read, &copy->read) ||
                  !grant_copy(&policy->write, &copy->write)))
        code = cay_fail_memory(err, op);
    if (!code)
        *ret_copy = TAKE_PTR(copy);
    return code;
}

int policy_set_host(cay_policy *policy, size_t mount, const char *host,
                    struct cay_error *err)
{
    char *copy = strdup(host);

    if (!copy)
        return cay_fail_memory(err, op);
    free(policy->mounts[mount].host);
    policy->mounts[mount].host = copy;
    return CAY_OK;
}
