/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "sys/state-home.h"

enum {
    DEFAULT_PORT = 3000,
    DEFAULT_MAX_HOURS = 24,
    DEFAULT_DRAIN_S = 10,
    DRAIN_MAX_S = 3600,
    POOL_MAX = 256
};

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

/* --- Values --- */

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

/* The same syntax as `cay run`. */
static int set_bytes(const char *name, const char *value, uint64_t *bytes,
                     struct cay_error *err)
{
    return quantity_parse_size(value, bytes)
               ? CAY_OK
               : fail_value(name, "give a size, for example 512M or 2G", err);
}

static int set_count(const char *name, const char *value, unsigned most,
                     unsigned *ret_count, struct cay_error *err)
{
    char *end;
    unsigned long number = strtoul(value, &end, 10);

    if (end == value || *value == '-' || *end || number > most)
        return fail_value(name, "give a number within the limits", err);
    *ret_count = (unsigned)number;
    return CAY_OK;
}

static int set_word(const char *name, const char *value, const char *first,
                    const char *second, bool *ret_second, struct cay_error *err)
{
    *ret_second = strcmp(value, second) == 0;
    if (*ret_second || strcmp(value, first) == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, name, "invalid value", "give %s or %s",
                    first, second);
}

static bool takes_value(const char *name)
{
    static const char *const names[] = {
        "--listen",       "--domain",     "--tls-cert", "--tls-key",
        "--api-key-file", "--access-log", "--pool",     "--max-hours",
        "--memory",       "--disk",       "--reserve",  "--storage",
        "--internet",     "--on-exit",    "--store",    "--drain"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static int set(struct serve_options *options, const char *name, const char *value,
               struct cay_error *err)
{
    unsigned hours = 0;
    bool second;
    int code = CAY_OK;

    if (strcmp(name, "--listen") == 0) {
        code = set_listen(options, value, err);
    } else if (strcmp(name, "--domain") == 0) {
        options->domain = value;
    } else if (strcmp(name, "--tls-cert") == 0) {
        options->tls_cert = value;
    } else if (strcmp(name, "--tls-key") == 0) {
        options->tls_key = value;
    } else if (strcmp(name, "--api-key-file") == 0) {
        options->api_key_file = value;
    } else if (strcmp(name, "--access-log") == 0) {
        options->access_log = value;
    } else if (strcmp(name, "--pool") == 0) {
        code = set_count(name, value, POOL_MAX, &options->pool, err);
    } else if (strcmp(name, "--max-hours") == 0) {
        code = set_count(name, value, 24 * 365, &hours, err);
        options->max_timeout_s = hours * 3600;
    } else if (strcmp(name, "--drain") == 0) {
        code = set_count(name, value, DRAIN_MAX_S, &options->drain_s, err);
    } else if (strcmp(name, "--memory") == 0) {
        code = set_bytes(name, value, &options->memory_bytes, err);
        options->has_memory = true;
    } else if (strcmp(name, "--disk") == 0) {
        code = set_bytes(name, value, &options->disk_bytes, err);
        options->has_disk = true;
    } else if (strcmp(name, "--reserve") == 0) {
        options->reserve_bytes = 0; /* quantity_parse_size() rejects 0 */
        if (strcmp(value, "0") != 0)
            code = set_bytes(name, value, &options->reserve_bytes, err);
    } else if (strcmp(name, "--storage") == 0) {
        code = set_word(name, value, "memory", "disk", &second, err);
        options->storage = second ? CAY_STORAGE_DISK : CAY_STORAGE_MEMORY;
    } else if (strcmp(name, "--internet") == 0) {
        code = set_word(name, value, "none", "host", &second, err);
        options->internet = second ? CAY_NETWORK_HOST : CAY_NETWORK_NONE;
    } else if (strcmp(name, "--on-exit") == 0) {
        code = set_word(name, value, "leave", "kill", &options->kills_at_exit, err);
        options->leaves_at_exit = !options->kills_at_exit;
    } else { /* --store */
        options->store = value;
    }
    return code;
}

static void set_defaults(struct serve_options *options)
{
    *options = (struct serve_options){.address = "127.0.0.1",
                                      .port = DEFAULT_PORT,
                                      .memory_bytes = CAY_MEMORY_DEFAULT,
                                      .reserve_bytes = 256ull << 20,
                                      .max_timeout_s = DEFAULT_MAX_HOURS * 3600,
                                      .drain_s = DEFAULT_DRAIN_S};
}

/* Files in memory count towards the memory limit. */
static int check_disk(struct serve_options *options, struct cay_error *err)
{
    uint64_t memory = options->memory_bytes;

    if (!options->disk_bytes)
        options->disk_bytes = memory < CAY_DISK_DEFAULT ? memory : CAY_DISK_DEFAULT;
    if (options->disk_bytes <= memory || options->storage == CAY_STORAGE_DISK)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, "--disk",
                    "the disk is in memory and larger than --memory",
                    "give a larger --memory, a smaller --disk, or --storage disk");
}

static int check(struct serve_options *options, struct cay_error *err)
{
    if (!options->tls_cert != !options->tls_key)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--tls-cert",
                        "--tls-cert and --tls-key must be given together", "give both");
    if (is_in_memory(options->store) && options->leaves_at_exit)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--on-exit",
                        "sandboxes in a store in memory cannot outlive the server",
                        "give --store PATH, or --on-exit kill");
    options->kills_at_exit |= is_in_memory(options->store);
    return check_disk(options, err);
}

static bool set_flag(struct serve_options *options, const char *name)
{
    bool *flag = strcmp(name, "--quiet") == 0           ? &options->is_quiet
                 : strcmp(name, "--check-store") == 0   ? &options->checks_store
                 : strcmp(name, "--rebuild-store") == 0 ? &options->rebuilds_store
                                                        : NULL;

    if (flag)
        *flag = true;
    return flag;
}

int options_parse(char *const *argv, struct serve_options *ret_options,
                  struct cay_error *err)
{
    char name[32];

    set_defaults(ret_options);
    for (; *argv; argv++) {
        const char *equals = strchr(*argv, '=');
        if (strcmp(*argv, "--help") == 0)
            return 1;
        if (set_flag(ret_options, *argv))
            continue;
        if (strncmp(*argv, "--", 2) != 0)
            return cay_fail(err, CAY_E_INVALID, 0, op, *argv, "unexpected argument",
                            "cay serve takes only options");
        size_t len = equals ? (size_t)(equals - *argv) : strlen(*argv);
        snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : 0), *argv);
        const char *value = equals ? equals + 1 : argv[1];
        if (!takes_value(name))
            return cay_fail(err, CAY_E_INVALID, 0, op, *name ? name : *argv,
                            "unknown option", "see cay serve --help");
        if (!value)
            return cay_fail(err, CAY_E_INVALID, 0, op, name, "the option needs a value",
                            "see cay serve --help");
        int code = set(ret_options, name, value, err);
        if (code)
            return code;
        argv += !equals;
    }
    return check(ret_options, err);
}
