/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "server/wire/bucket.h"
#include "server/wire/channel.h"
#include "sys/state-home.h"

static const char op[] = "serve.options";

/* --- State directory --- */

int options_home(struct serve_options *options, bool make, struct cay_error *err)
{
    int code = state_home_path(options->home, err);

    /* File names below it must fit as well. */
    if (!code && strlen(options->home) + 32 >= PATH_MAX)
        code = cay_fail_errno(err, ENAMETOOLONG, op, "CAY_HOME");
    AUTO_FD home = code ? code : state_home_open(make, err);
    return home < 0 ? home : CAY_OK;
}

static bool is_in_memory(const char *store)
{
    return store && (strcmp(store, ":memory:") == 0 || strcmp(store, "memory:") == 0 ||
                     strcmp(store, "sqlite::memory:") == 0);
}

/* No other user may create files next to the database. */
static int check_directory(const char *path, struct cay_error *err)
{
    char parent[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    struct stat st;

    if (slash)
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path + 1), path);
    if (stat(parent, &st) != 0)
        return cay_fail_errno(err, errno, op, "--store");
    if (st.st_uid != geteuid() || st.st_mode & 022)
        return cay_fail(err, CAY_E_DENIED, 0, op, "--store",
                        "the directory is writable for other users",
                        "choose a file in a directory that only you can write to");
    return CAY_OK;
}

/* "/path", "sqlite:/path", "sqlite:///path" */
int options_store(const struct serve_options *options, char ret_path[PATH_MAX],
                  struct cay_error *err)
{
    const char *path = options->store;

    if (!path) {
        snprintf(ret_path, PATH_MAX, "%.*s/serve.db", PATH_MAX - 16, options->home);
        return CAY_OK;
    }
    if (is_in_memory(path)) {
        snprintf(ret_path, PATH_MAX, ":memory:");
        return CAY_OK;
    }
    if (strncmp(path, "sqlite:", 7) == 0)
        path += strncmp(path, "sqlite:///", 10) == 0 ? 9 : 7;
    else if (strstr(path, "://"))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "--store",
                        "unsupported kind of store",
                        "give a path, sqlite:PATH, or memory:");
    if (!*path || strlen(path) >= PATH_MAX || strncmp(path, "//", 2) == 0 ||
        path[strlen(path) - 1] == '/')
        return cay_fail(err, CAY_E_INVALID, 0, op, "--store", "invalid path of a store",
                        "give a path, sqlite:PATH, or memory:");
    snprintf(ret_path, PATH_MAX, "%s", path);
    return check_directory(ret_path, err);
}

/* --- The options --- */

enum kind {
    FLAG,
    TEXT,
    LISTEN,
    INTERNET,
    NETWORK_LIMIT,
    SIZE,
    SIZE_OR_ZERO,
    COUNT,
    WORD,
    STORE,
    NODE
};

/* In the order of --help. */
static const struct option {
    const char *name, *value; /* value: NULL for a flag */
    const char *help;
    enum kind kind;
    size_t field;
    size_t given;   /* SIZE: a bool that is set; 0: none */
    unsigned most;  /* COUNT */
    unsigned scale; /* COUNT: the field has this many units */
    struct {
        const char *word;
        int number;
    } words[2]; /* WORD: what is accepted, and what it becomes */
} table[] = {
#define AT(name) offsetof(struct serve_options, name)
    {"--listen", "ADDR:PORT", "address to listen on (127.0.0.1:3000; port 0: any)",
     LISTEN},
    {"--domain", "NAME", "sandboxes are at PORT-ID.NAME (localhost:PORT)", TEXT,
     AT(domain)},
    {"--tls-cert", "FILE", "certificate for TLS (PEM)", TEXT, AT(tls_cert)},
    {"--tls-key", "FILE", "private key for TLS (PEM)", TEXT, AT(tls_key)},
    {"--store", "STORE",
     "sandboxes and keys: PATH, sqlite:PATH or memory:\n"
     "                         ($CAY_HOME/serve.db); postgresql://USER@HOST/DATABASE:\n"
     "                         the index of several servers ($CAY_STORE)",
     STORE},
    {"--store-password-file", "FILE", "password of that database", TEXT,
     AT(store_password_file)},
    {"--api-key-file", "FILE", "accept the API key in this file as well", TEXT,
     AT(api_key_file)},
    {"--pool", "N", "keep N sandboxes ready (0)", COUNT, AT(pool), .most = 256,
     .scale = 1},
    {"--memory", "SIZE", "memory limit of each sandbox (1G)", SIZE, AT(memory_bytes),
     AT(has_memory)},
    {"--disk", "SIZE", "disk limit of each sandbox (512M in memory)", SIZE,
     AT(disk_bytes), AT(has_disk)},
    {"--storage", "memory|disk", "where sandboxes store files (memory)", WORD,
     AT(storage), .words = {{"memory", CAY_STORAGE_MEMORY}, {"disk", CAY_STORAGE_DISK}}},
    {"--internet", "NETWORK",
     "what sandboxes reach: none, open, rules like pypi,github,\n"
     "                         or host: this machine's network (none)",
     INTERNET},
    {"--network-limit", "LIMITS",
     "of each sandbox: connections=64,bytes=1G,rate=10M,\n"
     "                         or some of them (no limits)",
     NETWORK_LIMIT},
    {"--mcp", NULL, "serve MCP clients at /mcp", FLAG, AT(mcp)},
    {"--mcp-tools", "POLICY",
     "which tools there are: read-only or NAME,... or all\n"
     "                         (all); of one tenant: ...;TENANT=read-only",
     TEXT, AT(mcp_tools)},
    {"--mcp-approve", "PATTERN,...", "commands there that wait for approval", TEXT,
     AT(mcp_approve)},
    {"--mcp-approve-writes", "FILES", "the same for patterns of files that tools write",
     TEXT, AT(mcp_approve_writes)},
    {"--mcp-sandboxes", "N", "that an MCP session may create besides its own (0)", COUNT,
     AT(mcp_sandboxes), .most = 63, .scale = 1},
    {"--mcp-idle", "SECONDS", "after which an unused MCP session ends (1800)", COUNT,
     AT(mcp_idle_s), .most = 7 * 24 * 3600, .scale = 1},
    {"--mcp-keep", "N", "named sandboxes of a tenant that outlive sessions (0)", COUNT,
     AT(mcp_keep), .most = 1000, .scale = 1},
    {"--no-ui", NULL, "do not serve the dashboard at /ui", FLAG, AT(no_ui)},
    {"--reserve", "SIZE", "memory to leave free (256M)", SIZE_OR_ZERO, AT(reserve_bytes)},
    {"--max-hours", "N", "longest timeout of a sandbox (24)", COUNT, AT(max_timeout_s),
     .most = 24 * 365, .scale = 3600},
    {"--on-exit", "leave|kill", "leave sandboxes running at exit, or kill them (leave)",
     WORD, AT(on_exit), .words = {{"leave", ON_EXIT_LEAVE}, {"kill", ON_EXIT_KILL}}},
    {"--drain", "SECONDS", "time for open requests at SIGTERM (10)", COUNT, AT(drain_s),
     .most = 3600, .scale = 1},
    {"--access-log", "FILE", "log requests as JSON lines (-: standard error)", TEXT,
     AT(access_log)},
    {"--log-format", "json|text", "of that log (json), and of warnings (text)", WORD,
     AT(log_format), .words = {{"text", LOG_FORMAT_TEXT}, {"json", LOG_FORMAT_JSON}}},
    {"--audit-days", "N", "how long the audit record is kept (90; 0: none)", COUNT,
     AT(audit_days), .most = 36500, .scale = 1},
    {"--webhook", "URL", "post what happens to sandboxes, and refusals, to this URL",
     TEXT, AT(webhook)},
    {"--webhook-secret-file", "FILE", "secret of its signatures (whsec_BASE64)", TEXT,
     AT(webhook_secret_file)},
    {"--check", NULL, "check the configuration, and exit", FLAG, AT(checks)},
    {"--check-store", NULL, "check the store, and exit", FLAG, AT(checks_store)},
    {"--rebuild-store", NULL, "recreate rows from running sandboxes, and exit", FLAG,
     AT(rebuilds_store)},
    {"--quiet", NULL, "do not print the exports", FLAG, AT(is_quiet)},
    {"--node", "NAME", "one of several servers: 4 letters, which ids begin with", NODE},
    {"--max-sandboxes", "N", "running at a time (0: as memory allows)", COUNT,
     AT(max_sandboxes), .most = 1000000, .scale = 1},
    {"--agent", "PORT", "report the load of this server to HAProxy on this port", COUNT,
     AT(agent_port), .most = UINT16_MAX, .scale = 1},
    {"--server-key-file", "FILE", "key of tokens, which all servers share", TEXT,
     AT(server_key_file)},
    {"--shared", "WHERE", "snapshots of all servers: DIRECTORY or s3://BUCKET/PREFIX",
     TEXT, AT(shared)},
    {"--shared-endpoint", "URL", "of the S3 store (that of Amazon)", TEXT,
     AT(shared_endpoint)},
    {"--shared-region", "NAME", "of the bucket (us-east-1)", TEXT, AT(shared_region)},
    {"--shared-credentials-file", "FILE", "of the S3 store ($AWS_ACCESS_KEY_ID, ...)",
     TEXT, AT(shared_credentials_file)},
    {"--require-level", "LEVEL", "do not start with less isolation (cay doctor)", TEXT,
     AT(require_level)},
    {"--haproxy", "NODE=ADDR...", "print HAProxy's configuration for these, and exit",
     FLAG, AT(prints_haproxy)},
#undef AT
};

enum { OPTIONS = sizeof table / sizeof *table };

void options_help(struct buf *text)
{
    char left[32];

    buf_text(text,
             "Usage: cay serve [OPTION]...\nServe sandboxes to programs that use the "
             "E2B SDKs.\n\n");
    for (size_t i = 0; i < OPTIONS; i++) {
        snprintf(left, sizeof left, "%s %s", table[i].name,
                 table[i].value ? table[i].value : "");
        buf_format(text, "  %-22s %s\n", left, table[i].help);
    }
    buf_text(text, "\ncay env prints the exports; cay key manages API keys.  See "
                   "cay-serve(1).\n");
}

static int fail_value(const char *name, const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, name, "invalid value", "%s", hint);
}

/* "127.0.0.1:3000", "[::1]:0", ":3000" */
static int set_listen(struct serve_options *options, const char *value,
                      struct cay_error *err)
{
    static const char hint[] = "give an address and a port: 127.0.0.1:3000, [::1]:3000";
    const char *colon = strrchr(value, ':');
    char *end;

    if (!colon || !colon[1])
        return fail_value("--listen", hint, err);
    unsigned long port = strtoul(colon + 1, &end, 10);
    size_t len = (size_t)(colon - value);
    bool bracketed = *value == '[' && len >= 2 && colon[-1] == ']';
    if (bracketed) {
        value++;
        len -= 2;
    }
    if (*end || port > UINT16_MAX || len >= sizeof options->address)
        return fail_value("--listen", hint, err);
    options->port = (uint16_t)port;
    options->has_listen = true;
    if (len > 0)
        snprintf(options->address, sizeof options->address, "%.*s", (int)len, value);
    struct in6_addr address;
    if (inet_pton(bracketed ? AF_INET6 : AF_INET, options->address, &address) != 1)
        return fail_value("--listen", hint, err);
    return CAY_OK;
}

/* Checks the rules, which the keepers use. */
static int set_internet(struct serve_options *options, const char *value,
                        struct cay_error *err)
{
    static const char *const words[] = {[CAY_NETWORK_NONE] = "none",
                                        [CAY_NETWORK_HOST] = "host",
                                        [CAY_NETWORK_RULES] = "rules",
                                        [CAY_NETWORK_OPEN] = "open"};
    cay_policy *policy = NULL;
    AUTO_FREE char *copy = strdup(value);
    int code = copy ? CAY_OK : cay_fail_memory(err, op);

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (i != CAY_NETWORK_RULES && strcmp(value, words[i]) == 0) {
            options->internet = (enum cay_network)i;
            return CAY_OK;
        }
    options->internet = CAY_NETWORK_RULES;
    options->internet_rules = value;
    if (!*value)
        return fail_value("--internet", "give none, open, host, or rules: pypi,github",
                          err);
    char *at = copy;
    for (const char *rule; !code && (rule = strsep(&at, ","));) {
        const struct cay_network_config config = {
            .size = sizeof config, .rules = &rule, .rule_count = 1};
        code = cay_policy_add_network(NULL, &config, &policy, err);
        cay_policy_free(policy);
        policy = NULL;
    }
    return code;
}

/* Checks the limits, which the keepers use. */
static int set_network_limit(struct serve_options *options, const char *value,
                             struct cay_error *err)
{
    const struct cay_network_config config = {.size = sizeof config, .limits = value};
    cay_policy *policy = NULL;

    options->network_limit = value;
    TRY(cay_policy_add_network(NULL, &config, &policy, err));
    cay_policy_free(policy);
    return CAY_OK;
}

bool options_is_node(const char *text)
{
    return strlen(text) == NODE_LEN && strspn(text, NODE_LETTERS) == NODE_LEN;
}

bool options_is_tenant(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

    return *name && strlen(name) < TENANT_MAX && strspn(name, letters) == strlen(name);
}

static int set_node(struct serve_options *options, const char *value,
                    struct cay_error *err)
{
    if (!options_is_node(value))
        return fail_value("--node", "give 4 of the letters a-z and 2-7: naaa", err);
    memcpy(options->node, value, NODE_LEN + 1);
    return CAY_OK;
}

static bool is_database(const char *text)
{
    return strncmp(text, "postgresql://", strlen("postgresql://")) == 0 ||
           strncmp(text, "postgres://", strlen("postgres://")) == 0;
}

/* "postgresql://user:password@host", or a parameter with one. */
static bool has_password(const char *url)
{
    const char *authority = strstr(url, "://") + 3;
    size_t len = strcspn(authority, "/?#");
    const char *at = memchr(authority, '@', len), *colon = memchr(authority, ':', len);

    return (at && colon && colon < at) || strstr(url, "password=");
}

static int set_store(struct serve_options *options, const char *value,
                     struct cay_error *err)
{
    if (!is_database(value)) {
        options->store = value;
        return CAY_OK;
    }
    if (has_password(value))
        return cay_fail(err, CAY_E_INVALID, 0, op, "--store",
                        "the password would be visible to all users of this machine",
                        "give it with --store-password-file, or the URL in the variable "
                        "CAY_STORE");
    options->store_url = value;
    return CAY_OK;
}

/* The variable is for a URL that has a password. */
static int add_environment(struct serve_options *options, struct cay_error *err)
{
    const char *value = getenv("CAY_STORE");

    if (!value || !*value || options->store_url)
        return CAY_OK;
    if (!is_database(value))
        return cay_fail(err, CAY_E_INVALID, 0, op, "CAY_STORE", "invalid URL",
                        "give postgresql://USER:PASSWORD@HOST/DATABASE; --store takes a "
                        "path");
    options->store_url = value;
    return CAY_OK;
}

void options_hide_store(struct serve_options *options)
{
    char *value = getenv("CAY_STORE");

    if (!value)
        return;
    if (options->store_url == value)
        options->store_url = "postgresql://";
    explicit_bzero(value, strlen(value));
    (void)unsetenv("CAY_STORE");
}

static int set(struct serve_options *options, const struct option *option,
               const char *value, struct cay_error *err)
{
    char *field = (char *)options + option->field, *end;
    unsigned long number;

    switch (option->kind) {
    case FLAG:
        *(bool *)field = true;
        return CAY_OK;
    case TEXT:
        *(const char **)(void *)field = value;
        return CAY_OK;
    case LISTEN:
        return set_listen(options, value, err);
    case INTERNET:
        return set_internet(options, value, err);
    case NETWORK_LIMIT:
        return set_network_limit(options, value, err);
    case STORE:
        return set_store(options, value, err);
    case NODE:
        return set_node(options, value, err);
    case SIZE:
    case SIZE_OR_ZERO: /* the syntax of `cay run`; quantity_parse_size() rejects 0 */
        if (option->kind == SIZE_OR_ZERO && strcmp(value, "0") == 0)
            *(uint64_t *)(void *)field = 0;
        else if (!quantity_parse_size(value, (uint64_t *)(void *)field))
            return fail_value(option->name, "give a size, for example 512M or 2G", err);
        if (option->given)
            *(bool *)((char *)options + option->given) = true;
        return CAY_OK;
    case COUNT:
        number = strtoul(value, &end, 10);
        if (end == value || *value == '-' || *end || number > option->most)
            return cay_fail(err, CAY_E_INVALID, 0, op, option->name, "invalid value",
                            "give a whole number from 0 to %u", option->most);
        *(unsigned *)(void *)field = (unsigned)number * option->scale;
        return CAY_OK;
    case WORD:
        for (int i = 0; i < 2; i++)
            if (strcmp(value, option->words[i].word) == 0) {
                memcpy(field, &option->words[i].number, sizeof option->words[i].number);
                return CAY_OK;
            }
        break;
    }
    return cay_fail(err, CAY_E_INVALID, 0, op, option->name, "invalid value",
                    "give %s or %s", option->words[0].word, option->words[1].word);
}

static int check_shared(const struct serve_options *options, struct cay_error *err)
{
    struct bucket bucket;
    const char *more = options->shared_endpoint           ? "--shared-endpoint"
                       : options->shared_region           ? "--shared-region"
                       : options->shared_credentials_file ? "--shared-credentials-file"
                                                          : NULL;

    if (options->shared && !*options->node)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--shared",
                        "it is of use to several servers only", "add --node NAME");
    if (bucket_is(options->shared))
        return bucket_parse(options, &bucket, err);
    return more ? cay_fail(err, CAY_E_INVALID, 0, op, more, "there is no S3 store",
                           "add --shared s3://BUCKET")
                : CAY_OK;
}

static int check_node(const struct serve_options *options, struct cay_error *err)
{
    if (options->store_password_file && !options->store_url)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--store-password-file",
                        "there is no database", "add --store postgresql://HOST/DATABASE");
    TRY(check_shared(options, err));
    if (options->prints_haproxy || *options->node || !options->agent_port)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, "--agent",
                    "the load is of use to a proxy with several servers only",
                    "add --node NAME");
}

bool options_next_tools(char **at, const char **ret_tenant, const char **ret_list)
{
    char *part = strsep(at, ";"), *equals = part ? strchr(part, '=') : NULL;

    if (!part)
        return false;
    if (equals)
        *equals = '\0';
    *ret_tenant = equals ? part + strspn(part, " ") : "";
    *ret_list = equals ? equals + 1 : part;
    return true;
}

static int check_mcp(const struct serve_options *options, struct cay_error *err)
{
    if (!options->mcp_idle_s)
        return fail_value("--mcp-idle", "give a whole number of seconds from 1", err);
    if ((options->mcp_tools || options->mcp_keep) && !options->mcp)
        return cay_fail(err, CAY_E_INVALID, 0, op,
                        options->mcp_tools ? "--mcp-tools" : "--mcp-keep",
                        "the server has no MCP clients", "add --mcp");
    if (options->mcp_keep && options->on_exit == ON_EXIT_KILL)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--mcp-keep",
                        "the sandboxes of this server end with it",
                        "leave out --mcp-keep, or --on-exit kill and --store memory:");
    return CAY_OK;
}

static int check(struct serve_options *options, struct cay_error *err)
{
    uint64_t memory = options->memory_bytes;

    TRY(check_node(options, err));
    if (!options->tls_cert != !options->tls_key && !options->prints_haproxy)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--tls-cert",
                        "--tls-cert and --tls-key must be given together", "give both");
    if (options->network_limit && options->internet <= CAY_NETWORK_HOST)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--network-limit",
                        "sandboxes have no network that could be limited",
                        "add --internet open, or rules: --internet pypi,github");
    if (is_in_memory(options->store) && options->on_exit == ON_EXIT_LEAVE)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--on-exit",
                        "sandboxes in a store in memory cannot outlive the server",
                        "give --store PATH, or --on-exit kill");
    if (is_in_memory(options->store))
        options->on_exit = ON_EXIT_KILL;
    TRY(check_mcp(options, err));
    if (options->pool && options->storage == CAY_STORAGE_DISK)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--pool",
                        "sandboxes with storage on disk cannot be kept ready",
                        "omit --pool, or --storage disk");
    if (!options->disk_bytes && options->storage == CAY_STORAGE_MEMORY)
        options->disk_bytes = memory < CAY_DISK_DEFAULT ? memory : CAY_DISK_DEFAULT;
    /* Files in memory count towards the memory limit. */
    if (options->disk_bytes <= memory || options->storage == CAY_STORAGE_DISK)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, "--disk",
                    "the disk is in memory and larger than --memory",
                    "give a larger --memory, a smaller --disk, or --storage disk");
}

static const struct option *find_option(const char *name)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

/* The option of one argument; *ret_words are those that it takes. */
static int take_option(char *const *argv, struct serve_options *options,
                       size_t *ret_words, struct cay_error *err)
{
    char name[32];
    const char *equals = strchr(*argv, '=');
    const char *value = equals ? equals + 1 : argv[1];
    size_t len = equals ? (size_t)(equals - *argv) : strlen(*argv);

    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : 0), *argv);
    const struct option *option = find_option(name);
    if (!option || ((!option->value || option->kind == FLAG) && equals))
        return cay_fail(err, CAY_E_INVALID, 0, op, *name ? name : *argv, "unknown option",
                        "see cay serve --help");
    bool takes = option->value && option->kind != FLAG;
    if (takes && !value)
        return cay_fail(err, CAY_E_INVALID, 0, op, name, "the option needs a value",
                        "see cay serve --help");
    *ret_words = takes && !equals ? 2 : 1;
    return set(options, option, value, err);
}

int options_parse(char *const *argv, struct serve_options *ret_options,
                  struct cay_error *err)
{
    size_t words = 1;

    *ret_options = (struct serve_options){.address = "127.0.0.1",
                                          .port = 3000,
                                          .memory_bytes = CAY_MEMORY_DEFAULT,
                                          .reserve_bytes = 256ull << 20,
                                          .max_timeout_s = 24 * 3600,
                                          .audit_days = 90,
                                          .mcp_idle_s = 1800,
                                          .drain_s = 10};
    for (; *argv; argv += words) {
        if (strcmp(*argv, "--help") == 0)
            return 1;
        if (strncmp(*argv, "--", 2) != 0 && ret_options->prints_haproxy) {
            ret_options->nodes = argv;
            break;
        }
        if (strncmp(*argv, "--", 2) != 0)
            return cay_fail(err, CAY_E_INVALID, 0, op, *argv, "unexpected argument",
                            "cay serve takes only options");
        TRY(take_option(argv, ret_options, &words, err));
    }
    TRY(add_environment(ret_options, err));
    return check(ret_options, err);
}
