/* SPDX-License-Identifier: Apache-2.0 */

/* Creates native sandboxes from a configuration: its fields, and the options they stand
 * for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/approval.h"
#include "cay/volume.h"
#include "native/config-secrets.h"
#include "native/make/preflight.h"
#include "native/native.h"
#include "sandbox/backend.h"

static const char op[] = "sandbox.create";

#define TTL_MAX_S 1e12

static const char *const networks[] = {"none", "host", "rules", "open", NULL};
static const char *const storages[] = {"memory", "disk", NULL};
static const char *const levels[] = {"best", "root", "range", "single", "landlock", NULL};

const struct cay_field native_fields[NATIVE_FIELDS] = {
    {"work_dir", "_work_dir", CAY_FIELD_TEXT, "/home/user",
     "working directory of commands and base of relative paths, created if missing"},
    {"template", NULL, CAY_FIELD_TEXT, "host",
     "root file system: the name of a template, or the absolute path of a root "
     "directory"},
    {"limits.memory", NULL, CAY_FIELD_BYTES, "1 GiB",
     "memory limit for all processes together", .least = 1, .most = INT64_MAX},
    {"limits.disk", NULL, CAY_FIELD_BYTES, NULL,
     "size limit of what the sandbox writes (default: in memory 512 MiB, or the memory "
     "limit if that is smaller; on disk none); on disk the space is reserved, and needs "
     "root",
     .least = 1, .most = INT64_MAX},
    {"limits.pids", NULL, CAY_FIELD_INTEGER, "512", "maximum number of processes",
     .least = 1, .most = UINT32_MAX},
    {"limits.cpu", NULL, CAY_FIELD_INTEGER, NULL,
     "CPU limit in percent of one CPU: 150 is one and a half CPUs", .least = 1,
     .most = 10000000},
    {"network", NULL, CAY_FIELD_CHOICE, "none",
     "none: a loopback interface only; host: the network of this machine; rules: what "
     "allow, or the policy, allows; open: every public address",
     networks},
    {"allow", NULL, CAY_FIELD_TEXTS, NULL,
     "network rules: groups (pypi), hosts (api.example.com:443, *.example.com) and "
     "addresses (192.0.2.0/24:5432); see cay-policy(5)"},
    {"deny", NULL, CAY_FIELD_TEXTS, NULL,
     "network rules for what must not be reached, before all rules that allow"},
    {"network_groups", NULL, CAY_FIELD_MAP, NULL,
     "hosts added to groups of network rules, with blanks between them: a mirror of a "
     "package registry"},
    {"networks", NULL, CAY_FIELD_TEXTS, NULL,
     "named networks to join, as NETWORK or NETWORK:NAME: their sandboxes reach each "
     "other's TCP ports by name"},
    {"secrets", NULL, CAY_FIELD_MAP, NULL,
     "values that programs inside use and never read, by the names of their variables: "
     "env:VARIABLE or file:/PATH, never the value itself"},
    {"secrets_for", NULL, CAY_FIELD_TEXTS, NULL,
     "hosts that the secrets are sent to, as NAME=HOST or NAME=HOST:WAY; see "
     "--secret-for "
     "in cay-run(1)"},
    {"storage", NULL, CAY_FIELD_CHOICE, "memory",
     "where the sandbox's files are stored; on disk it can be stopped and started again",
     storages},
    {"user", NULL, CAY_FIELD_TEXT, "user",
     "default user of commands: a name in the sandbox's /etc/passwd or a number, "
     "optionally with :GROUP"},
    {"hostname", NULL, CAY_FIELD_TEXT, NULL,
     "host name inside the sandbox: letters, digits and \"-\" (default: the id)"},
    {"ttl", "timeout", CAY_FIELD_NUMBER, NULL,
     "time to live of the sandbox in seconds (default: unlimited)"},
    {"mounts", NULL, CAY_FIELD_TEXTS, NULL,
     "mounts of host paths or of volumes by name: SRC:DST, SRC:DST:ro"},
    {"policy", NULL, CAY_FIELD_POLICY, NULL,
     "a policy; its paths are mounted inside as /NAME"},
    {"require", NULL, CAY_FIELD_TEXTS, NULL,
     "isolation layers that must be active, or creation fails: seccomp, memory, ..."},
    {"level", NULL, CAY_FIELD_CHOICE, "best", "highest isolation level to use", levels},
    {"ephemeral", NULL, CAY_FIELD_BOOLEAN, "false",
     "whether the sandbox ends with the process that creates it"},
    {"checkpoint_each", NULL, CAY_FIELD_BOOLEAN, "false",
     "whether each command begins with a checkpoint: see cay-checkpoint(1)"},
    {"approve", NULL, CAY_FIELD_TEXTS, NULL,
     "patterns of commands that wait for approval before they start: see cay-approve(1)"},
    {"approve_timeout", NULL, CAY_FIELD_NUMBER, NULL,
     "seconds after which the answer is no (default: 600)"},
    {"approve_egress", NULL, CAY_FIELD_BOOLEAN, "false",
     "whether connections to hosts that no network rule names wait for approval; cay run "
     "and cay create request it, other programs need cay approve watch"},
};

/* The options, which must be the first member, and the memory they point to. */
struct config_options {
    struct cay_sandbox_options options;
    struct cay_bind *binds;
    char **mounts; /* text that the binds point into; NULL-terminated like env */
    char **env;
    char **rules, **groups; /* of the network; NULL-terminated */
    char **joined;          /* named networks, the same */
    char **approve;         /* the same */
    cay_policy *policy;     /* with these rules */
    struct config_secrets secrets;
};

void native_free_texts(char **texts)
{
    for (size_t i = 0; texts && texts[i]; i++)
        free(texts[i]);
    free(texts);
}

void cay_sandbox_options_free(struct cay_sandbox_options *options)
{
    struct config_options *config_options = (struct config_options *)options;

    if (!config_options)
        return;
    free(config_options->binds);
    native_free_texts(config_options->mounts);
    native_free_texts(config_options->env);
    native_free_texts(config_options->rules);
    native_free_texts(config_options->groups);
    native_free_texts(config_options->joined);
    native_free_texts(config_options->approve);
    config_secrets_done(&config_options->secrets);
    cay_policy_free(config_options->policy);
    free(config_options);
}

static void auto_options(struct cay_sandbox_options **options)
{
    cay_sandbox_options_free(*options);
}

/* --- Lists --- */

int native_take_env(const cay_config *config, char ***ret_env, struct cay_error *err)
{
    size_t count = cay_config_count(config, "envs");
    const char *name, *value;
    char **env = *ret_env = calloc(count + 1, sizeof *env);

    if (!env)
        return cay_fail_memory(err, op);
    for (size_t i = 0; cay_config_item(config, "envs", i, &name, &value); i++)
        if (asprintf(&env[i], "%s=%s", name, value) < 0) {
            env[i] = NULL;
            return cay_fail_memory(err, op);
        }
    return CAY_OK;
}

/* Splits `text` at its colons. */
static int take_mount(char *text, const char *given, struct cay_bind *ret_bind,
                      struct cay_error *err)
{
    char *target = strchr(text, ':');
    char *mode = target ? strchr(target + 1, ':') : NULL;

    if (target)
        *target++ = '\0';
    if (mode)
        *mode++ = '\0';
    bool is_read_only = mode && strcmp(mode, "ro") == 0;
    if (!target || (text[0] != '/' && !cay_volume_is_source(text)) || target[0] != '/' ||
        (mode && !is_read_only && strcmp(mode, "rw") != 0))
        return cay_fail(err, CAY_E_INVALID, 0, op, given, "invalid mount",
                        "use /SRC:/DST, /SRC:/DST:ro or /SRC:/DST:rw, or the name of a "
                        "volume as SRC; ${this_file_dir} is the directory of the "
                        "configuration file");
    *ret_bind = (struct cay_bind){text, target, !is_read_only};
    return CAY_OK;
}

static int take_mounts(const cay_config *config, struct config_options *config_options,
                       struct cay_error *err)
{
    size_t count = cay_config_count(config, "mounts");
    const char *key, *given;
    int code = CAY_OK;

    config_options->binds = calloc(count + 1, sizeof *config_options->binds);
    config_options->mounts = calloc(count + 1, sizeof *config_options->mounts);
    if (!config_options->binds || !config_options->mounts)
        return cay_fail_memory(err, op);
    for (size_t i = 0; !code && cay_config_item(config, "mounts", i, &key, &given); i++) {
        config_options->mounts[i] = strdup(given);
        code = config_options->mounts[i] ? take_mount(config_options->mounts[i], given,
                                                      &config_options->binds[i], err)
                                         : cay_fail_memory(err, op);
    }
    config_options->options.binds = config_options->binds;
    config_options->options.bind_count = count;
    return code;
}

/* --- Network --- */

static int take_rules(const cay_config *config, const char *field, const char *prefix,
                      char **rules, size_t *count, struct cay_error *err)
{
    const char *key, *rule;

    for (size_t i = 0; cay_config_item(config, field, i, &key, &rule); i++) {
        if (asprintf(&rules[*count], "%s%s", prefix, rule) < 0) {
            rules[*count] = NULL;
            return cay_fail_memory(err, op);
        }
        ++*count;
    }
    return CAY_OK;
}

/* "pypi: a.test b.test" is "pypi=a.test" and "pypi=b.test". */
static int take_groups(const cay_config *config, char ***groups, size_t *count,
                       struct cay_error *err)
{
    const char *name, *hosts;

    for (size_t i = 0; cay_config_item(config, "network_groups", i, &name, &hosts); i++) {
        for (hosts += strspn(hosts, " "); *hosts; hosts += strspn(hosts, " ")) {
            int len = (int)strcspn(hosts, " ");
            char **grown = reallocarray(*groups, *count + 2, sizeof *grown);
            if (!grown)
                return cay_fail_memory(err, op);
            *groups = grown;
            grown[*count + 1] = NULL;
            if (asprintf(&grown[*count], "%s=%.*s", name, len, hosts) < 0) {
                grown[*count] = NULL;
                return cay_fail_memory(err, op);
            }
            ++*count;
            hosts += len;
        }
    }
    return CAY_OK;
}

enum { APPROVE_TIMEOUT_MAX_S = 7 * 24 * 3600 };

static int take_approve_timeout(const cay_config *config, uint64_t *ret_ms,
                                struct cay_error *err)
{
    double seconds = cay_config_number(config, "approve_timeout");

    if (!(seconds >= 0 && seconds <= APPROVE_TIMEOUT_MAX_S))
        return cay_fail(err, CAY_E_INVALID, 0, op, "approve_timeout",
                        "invalid timeout of approvals",
                        "use a number of seconds up to 604800, which is a week");
    *ret_ms = (uint64_t)(seconds * 1000);
    return CAY_OK;
}

/* How long other connections wait; 0: they do not. */
static int take_approve_egress(const cay_config *config, enum cay_network network,
                               uint64_t *ret_ms, struct cay_error *err)
{
    if (!cay_config_boolean(config, "approve_egress"))
        return CAY_OK;
    if (network == CAY_NETWORK_HOST || network == CAY_NETWORK_OPEN)
        return cay_fail(err, CAY_E_INVALID, 0, op, "approve_egress",
                        "this network has no hosts that wait for approval",
                        "leave out network, or write network: rules");
    TRY(take_approve_timeout(config, ret_ms, err));
    if (!*ret_ms)
        *ret_ms = CAY_PENDING_TIMEOUT_MS;
    return CAY_OK;
}

/* The policy with the rules beside it. */
static int take_network(const cay_config *config, struct config_options *config_options,
                        struct cay_error *err)
{
    struct cay_sandbox_options *options = &config_options->options;
    size_t most = cay_config_count(config, "allow") + cay_config_count(config, "deny");
    struct cay_network_config network = {.size = sizeof network};
    char **rules = config_options->rules = calloc(most + 1, sizeof *rules);

    if (!rules)
        return cay_fail_memory(err, op);
    TRY(take_rules(config, "allow", "", rules, &network.rule_count, err));
    TRY(take_rules(config, "deny", "!", rules, &network.rule_count, err));
    TRY(take_groups(config, &config_options->groups, &network.group_count, err));
    TRY(take_approve_egress(config, options->network, &network.approve_ms, err));
    bool by_rules = options->network > CAY_NETWORK_HOST;
    if (!by_rules && !network.rule_count && !network.group_count && !network.approve_ms)
        return CAY_OK;
    network.network = by_rules ? options->network : CAY_NETWORK_NONE;
    network.rules = (const char *const *)rules;
    network.groups = (const char *const *)config_options->groups;
    TRY(cay_policy_add_network(options->policy, &network, &config_options->policy, err));
    options->policy = config_options->policy;
    return CAY_OK;
}

static int take_joined(const cay_config *config, struct config_options *config_options,
                       struct cay_error *err)
{
    size_t count = cay_config_count(config, "networks"), taken = 0;

    if (!count)
        return CAY_OK;
    config_options->joined = calloc(count + 1, sizeof(char *));
    if (!config_options->joined)
        return cay_fail_memory(err, op);
    config_options->options.networks = (const char *const *)config_options->joined;
    return take_rules(config, "networks", "", config_options->joined, &taken, err);
}

static int take_approve(const cay_config *config, struct config_options *config_options,
                        struct cay_error *err)
{
    size_t count = cay_config_count(config, "approve"), taken = 0;

    TRY(take_approve_timeout(config, &config_options->options.approve_timeout_ms, err));
    if (!count)
        return CAY_OK;
    config_options->approve = calloc(count + 1, sizeof(char *));
    if (!config_options->approve)
        return cay_fail_memory(err, op);
    config_options->options.approve = (const char *const *)config_options->approve;
    return take_rules(config, "approve", "", config_options->approve, &taken, err);
}

static unsigned layer_of(const char *slug)
{
    unsigned layer = 1;

    while (cay_layer_slug(layer) && strcmp(cay_layer_slug(layer), slug) != 0)
        layer <<= 1;
    return cay_layer_slug(layer) ? layer : 0;
}

static int take_layers(const cay_config *config, struct config_options *config_options,
                       struct cay_error *err)
{
    const char *key, *slug;

    for (size_t i = 0; cay_config_item(config, "require", i, &key, &slug); i++) {
        unsigned layer = layer_of(slug);
        if (!layer)
            return cay_fail(err, CAY_E_INVALID, 0, op, slug, "unknown isolation layer",
                            "use one of user, pid, mount, network, ipc, uts, cgroup, "
                            "seccomp, landlock, memory, pids, cpu, disk");
        config_options->options.require |= layer;
    }
    return CAY_OK;
}

/* --- Options --- */

int native_take_ttl(const cay_config *config, uint64_t *ret_ms, struct cay_error *err)
{
    double seconds = cay_config_number(config, "ttl");

    if (!(seconds >= 0 && seconds <= TTL_MAX_S) ||
        (seconds == 0 && cay_config_has(config, "ttl")))
        return cay_fail(
            err, CAY_E_INVALID, 0, op, "ttl", "invalid time to live",
            "use a number of seconds greater than 0, or leave it out for no limit");
    *ret_ms = (uint64_t)(seconds * 1000);
    if (seconds > 0 && !*ret_ms)
        *ret_ms = 1;
    return CAY_OK;
}

static int index_of(const char *const *choices, const char *choice)
{
    for (int i = 0; choices[i]; i++)
        if (strcmp(choices[i], choice) == 0)
            return i;
    return 0;
}

/* A limit that is not configured gets the default, which may not be enforced on every
 * host; a configured one is enforced or refused. */
static int64_t limit_of(const cay_config *config, const char *field)
{
    return cay_config_has(config, field) ? cay_config_integer(config, field) : 0;
}

/* With neither a user nor a work_dir, commands start in the home of `user`, which need
 * not be /home/user. */
static const char *workdir_of(const cay_config *config, const char *user)
{
    if (!cay_config_has(config, "work_dir") && strcmp(user, "user") == 0)
        return NULL;
    return cay_config_text(config, "work_dir");
}

static int take_options(const cay_config *config, struct config_options *config_options,
                        struct cay_error *err)
{
    const char *template = cay_config_text(config, "template");
    const char *user = cay_config_text(config, "user");

    config_options->options = (struct cay_sandbox_options){
        .size = sizeof config_options->options,
        .template_name = template,
        .memory_bytes = (uint64_t)limit_of(config, "limits.memory"),
        .disk_bytes = (uint64_t)limit_of(config, "limits.disk"),
        .pids = (uint32_t)limit_of(config, "limits.pids"),
        .cpu_percent = (uint32_t)limit_of(config, "limits.cpu"),
        .network =
            (enum cay_network)index_of(networks, cay_config_text(config, "network")),
        .storage =
            (enum cay_storage)index_of(storages, cay_config_text(config, "storage")),
        .level = (enum cay_level)index_of(levels, cay_config_text(config, "level")),
        .hostname = cay_config_text(config, "hostname"),
        .user = cay_config_has(config, "user") ? user : NULL,
        .workdir = workdir_of(config, user),
        .make_workdir = true,
        .policy = cay_config_policy(config, "policy"),
        .ephemeral = cay_config_boolean(config, "ephemeral"),
        .checkpoint_each = cay_config_boolean(config, "checkpoint_each"),
    };
    int code = native_take_ttl(config, &config_options->options.ttl_ms, err);
    if (!code)
        code = take_layers(config, config_options, err);
    if (!code)
        code = take_mounts(config, config_options, err);
    if (!code)
        code = take_network(config, config_options, err);
    if (!code)
        code = take_joined(config, config_options, err);
    if (!code)
        code = take_approve(config, config_options, err);
    if (!code)
        code = config_secrets_init(config, &config_options->secrets, err);
    config_options->options.secrets = config_options->secrets.list;
    config_options->options.secret_count = config_options->secrets.count;
    if (!code)
        code = native_take_env(config, &config_options->env, err);
    config_options->options.env = (const char *const *)config_options->env;
    return code;
}

int cay_sandbox_options_new(const cay_config *config,
                            struct cay_sandbox_options **ret_options,
                            struct cay_error *err)
{
    if (strcmp(cay_config_type(config), backend_native.name) != 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, cay_config_type(config),
                        "the configuration is not of type native",
                        "use cay_backend_create(), which creates a sandbox of any type");
    struct config_options *config_options = calloc(1, sizeof *config_options);
    if (!config_options)
        return cay_fail_memory(err, op);
    int code = take_options(config, config_options, err);
    if (code)
        cay_sandbox_options_free(&config_options->options);
    else
        *ret_options = &config_options->options;
    return code;
}

int native_check_config(void *data, const cay_config *config, struct cay_error *err)
{
    struct cay_sandbox_options *options __attribute__((cleanup(auto_options))) = NULL;

    (void)data;
    int code = cay_sandbox_options_new(config, &options, err);
    return code ? code : preflight(options, err);
}

/* The mark is the id, unless a spare is used: then the record has both. */
int native_create_pooled(void *data, const cay_config *config, const char *mark,
                         const char *pool, void **ret_cookie, struct cay_error *err)
{
    struct cay_sandbox_options *options __attribute__((cleanup(auto_options))) = NULL;
    char id[CAY_ID_MAX];

    (void)data;
    if (mark)
        TRY(native_mark_id(mark, id, err));
    TRY(cay_sandbox_options_new(config, &options, err));
    options->pool = pool;
    return native_create(options, mark ? id : NULL, ret_cookie, err);
}

int native_create_marked(void *data, const cay_config *config, const char *mark,
                         void **ret_cookie, struct cay_error *err)
{
    return native_create_pooled(data, config, mark, NULL, ret_cookie, err);
}

int native_create_config(void *data, const cay_config *config, void **ret_cookie,
                         struct cay_error *err)
{
    return native_create_pooled(data, config, NULL, NULL, ret_cookie, err);
}

/* --- Existing sandboxes --- */

int native_connect_config(void *data, const cay_config *config, const char *id,
                          void **ret_cookie, struct cay_error *err)
{
    enum cay_state state = CAY_STATE_RUNNING;
    void *cookie = NULL;

    (void)data;
    (void)config;
    int code = native_open(id, false, &cookie, err);
    if (!code)
        code = native_get_state(cookie, &state, err);
    if (!code && state == CAY_STATE_STOPPED)
        code = native_restart(cookie, err);
    else if (!code && state == CAY_STATE_PAUSED)
        code = native_resume(cookie, err);
    if (code)
        native_free(cookie);
    else
        *ret_cookie = cookie;
    return code;
}
