/* SPDX-License-Identifier: Apache-2.0 */

/* `cay env`, options that commands share, and the exports that `cay serve` prints. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/commands.h"
#include "server/wire/warn.h"
#include "json/json.h"

/* The value of "--store STORE" and "--store=STORE"; NULL: another word.  *argv moves to
 * the last word of it. */
static const char *take_value(const char *name, char *const **argv)
{
    size_t len = strlen(name);
    const char *word = **argv;

    if (strncmp(word, name, len) != 0 || (word[len] && word[len] != '='))
        return NULL;
    if (word[len])
        return word + len + 1;
    if (!(*argv)[1])
        return "";
    (*argv)++;
    return **argv;
}

static int take_output(const char *format, bool *ret_json, struct cay_error *err)
{
    *ret_json = strcmp(format, "json") == 0;
    if (*ret_json || strcmp(format, "text") == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "key", "--output", "invalid output format",
                    "give text or json");
}

int commands_take_options(char *const *argv, char *ret_words[COMMAND_WORDS + 1],
                          bool *ret_json, const char **ret_tenant,
                          struct serve_options *options, struct cay_error *err)
{
    char option[] = "--store", file_option[] = "--store-password-file";
    char *store[5] = {NULL};
    size_t count = 0, at = 0;

    for (; *argv; argv++) {
        const char *value;
        bool is_file = strncmp(*argv, file_option, strlen(file_option)) == 0;
        if ((value = take_value(is_file ? file_option : option, &argv))) {
            at = at < 4 ? at : 2; /* the last one counts */
            store[at++] = is_file ? file_option : option;
            store[at++] = *value ? (char *)(uintptr_t)value : NULL;
        } else if (ret_tenant && (value = take_value("--tenant", &argv))) {
            *ret_tenant = value;
        } else if ((value = take_value("--output", &argv)) ||
                   (value = take_value("-o", &argv))) {
            TRY(take_output(value, ret_json, err));
        } else if (count < COMMAND_WORDS) {
            ret_words[count++] = *argv;
        }
    }
    int code = options_parse(store, options, err);
    if (!code && options->store && strstr(options->store, "memory:"))
        code = cay_fail(err, CAY_E_INVALID, 0, "key", "--store",
                        "a store in memory belongs to the server process",
                        "start the server with --api-key-file");
    return code;
}

int commands_finish_output(struct cay_error *err)
{
    bool was_lost = ferror(stdout);

    errno = EIO;
    if (fflush(stdout) == 0 && !was_lost)
        return CAY_OK;
    return cay_fail_errno(err, errno, "cli.output", "standard output");
}

/* --- Running servers --- */

enum { LINE = PATH_MAX + 512 };

static char live_path[PATH_MAX + 32];
static int held = -1;

void live_write(const struct serve_options *options, const char *store)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char line[LINE];

    snprintf(live_path, sizeof live_path, "%s/serve-%u.live", options->home,
             options->port);
    held = open(live_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (held < 0)
        return;
    if (fcntl(held, F_OFD_SETLK, &lock) != 0) { /* another server has the same port */
        (void)close(held);
        held = -1;
        return;
    }
    int len = snprintf(line, sizeof line, "%s %u %d %s\n%s\n", options->address,
                       options->port, options->tls_cert != NULL,
                       options->domain ? options->domain : "-", store);
    if (ftruncate(held, 0) != 0 || pwrite(held, line, (size_t)len, 0) != len)
        (void)!ftruncate(held, 0);
}

void live_remove(void)
{
    if (held < 0)
        return;
    (void)unlink(live_path);
    (void)close(held);
    held = -1;
}

/* The file: "127.0.0.1 3000 0 boxes.example.com\nSTORE\n" */
static bool read_live(int dir, const char *name, const char *store, struct live *ret_live)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    AUTO_FD fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char line[LINE] = "", *rest = line, *end;

    if (fd < 0 || fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK ||
        read(fd, line, sizeof line - 1) <= 0)
        return false;
    const char *address = strsep(&rest, " "), *port = strsep(&rest, " ");
    const char *tls = strsep(&rest, " "), *domain = strsep(&rest, "\n");
    const char *path_of_store = strsep(&rest, "\n");
    if (!path_of_store || !rest || strcmp(path_of_store, store) != 0)
        return false;
    ret_live->port = (unsigned)strtoul(port, &end, 10);
    ret_live->has_tls = strcmp(tls, "1") == 0;
    cay_copy_text(ret_live->address, sizeof ret_live->address, address);
    cay_copy_text(ret_live->domain, sizeof ret_live->domain,
                  strcmp(domain, "-") == 0 ? "" : domain);
    return *end == '\0' && ret_live->port > 0 && ret_live->port <= UINT16_MAX;
}

unsigned live_find(const char *home, const char *store, struct live *ret_live)
{
    const struct dirent *entry;
    unsigned count = 0;
    DIR *dir = opendir(home);

    while (dir && (entry = readdir(dir))) {
        struct live live;
        if (fnmatch("serve-*.live", entry->d_name, 0) == 0 &&
            read_live(dirfd(dir), entry->d_name, store, &live)) {
            *ret_live = live;
            count++;
        }
    }
    if (dir)
        (void)closedir(dir);
    return count;
}

/* --- The exports --- */

enum { START_MS = 3000, STEP_MS = 50 };

static bool is_any(const char *address)
{
    return strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
}

/* An address of this machine that other machines can reach, if there is one. */
static void find_address(char address[64])
{
    struct ifaddrs *all = NULL;
    const char *found = NULL;

    if (getifaddrs(&all) == 0)
        for (struct ifaddrs *at = all; at && !found; at = at->ifa_next)
            if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET &&
                at->ifa_flags & IFF_UP && !(at->ifa_flags & IFF_LOOPBACK))
                found = inet_ntop(AF_INET,
                                  &((const struct sockaddr_in *)at->ifa_addr)->sin_addr,
                                  address, 64);
    if (!found)
        snprintf(address, 64, strcmp(address, "::") == 0 ? "::1" : "127.0.0.1");
    freeifaddrs(all);
}

/* "http://127.0.0.1:3000".  A server on all addresses is named by its domain, or by an
 * address that other machines can reach. */
static void put_url(const struct serve_options *options, char *url, size_t room)
{
    const char *scheme = options->tls_cert ? "https" : "http";
    const char *domain = options->domain;
    char address[64];

    snprintf(address, sizeof address, "%s", options->address);
    if (is_any(address) && domain) {
        int len = snprintf(url, room, "%s://%s", scheme, domain);
        if (!strchr(domain, ':') && len > 0 && (size_t)len < room)
            snprintf(url + len, room - (size_t)len, ":%u", options->port);
        return;
    }
    if (is_any(address))
        find_address(address);
    bool six = strchr(address, ':') != NULL;
    snprintf(url, room, "%s://%s%s%s:%u", scheme, six ? "[" : "", address, six ? "]" : "",
             options->port);
}

void commands_print_exports(const struct serve_options *options, const char *key)
{
    char url[512];

    put_url(options, url, sizeof url);
    printf("export E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\n", url, url);
    printf("export E2B_VOLUME_API_URL=%s\n", url);
    if (*key)
        printf("export E2B_API_KEY=%s\n", key);
}

bool commands_is_public(const struct serve_options *options)
{
    return strncmp(options->address, "127.", 4) != 0 &&
           strcmp(options->address, "::1") != 0;
}

void commands_warn(const struct serve_options *options)
{
    static struct warn warn;

    if (!commands_is_public(options))
        return;
    if (!options->tls_cert)
        warn_line(&warn,
                  "warning: %s:%u is served without TLS: API keys, files and output can "
                  "be read on the network (use --tls-cert and --tls-key, or listen on "
                  "127.0.0.1 behind a TLS proxy)",
                  options->address, options->port);
    if (!options->domain)
        warn_line(&warn, "other machines reach this server by its address; use --domain "
                         "NAME for a host name");
}

/* --- cay env --- */

static int find_key(struct state *state, char ret_key[API_KEY_MAX], struct cay_error *err)
{
    int code = state->registry ? CAY_OK : server_state_open(state, true, err);

    return code ? code
                : secrets_find_key(state->registry, state->options.home, ret_key, err);
}

/* Finds the address of the server unless --listen is given. */
static int find_server(struct serve_options *options, const char *store,
                       struct live *live, struct cay_error *err)
{
    unsigned count = live_find(options->home, store, live);

    if (count > 1)
        return cay_fail(err, CAY_E_INVALID, 0, "serve.env", "--listen",
                        "several servers of this user are running",
                        "choose one with --listen ADDR:PORT");
    if (count == 0) {
        fprintf(stderr,
                "cay: no server of this user is running; the exports are for %s:%u\n",
                options->address, options->port);
        return CAY_OK;
    }
    snprintf(options->address, sizeof options->address, "%s", live->address);
    options->port = (uint16_t)live->port;
    options->domain = *live->domain ? live->domain : NULL;
    if (live->has_tls)
        options->tls_cert = "";
    return CAY_OK;
}

int commands_env(char *const *argv, struct cay_error *err)
{
    struct state state = {0};
    struct live live;
    char key[API_KEY_MAX];
    bool has_tls = false;
    int code = options_parse(argv, &state.options, err);

    if (code == 1) {
        fputs("Usage: eval \"$(cay env [--listen ADDR:PORT] [--store STORE] [--tls-cert "
              "FILE --tls-key FILE])\"\nPrint the variables that make the E2B SDKs use "
              "the running server.\n",
              stdout);
        return CAY_OK;
    }
    struct serve_options *options = &state.options;
    if (!code)
        code = find_key(&state, key, err);
    /* For `cay serve & eval "$(cay env)"`: wait for the first start to create the key. */
    bool is_first = code == CAY_E_NOT_FOUND && !state.registry;
    for (int i = 0; i < START_MS / STEP_MS && is_first && code == CAY_E_NOT_FOUND; i++) {
        (void)poll(NULL, 0, STEP_MS);
        code = find_key(&state, key, err);
    }
    if (!code && !options->has_listen)
        code = find_server(options, state.store, &live, err);
    if (!code && !options->tls_cert)
        code = registry_find_listener(state.registry, options->port, &has_tls, err);
    if (!code && has_tls)
        options->tls_cert = "";
    if (!code)
        commands_print_exports(options, key);
    registry_close(state.registry);
    return code;
}

static int fail_store(int error, struct cay_error *err)
{
    static const char hint[] = "start one with cay serve; if another user runs it, that "
                               "user can run cay env or cay key new";

    if (error == ENOENT)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "serve.env", "store",
                        "this user has not started a server", "%s", hint);
    return cay_fail(err, CAY_E_DENIED, error, "serve.env", "store",
                    "the store of the server belongs to another user", "%s", hint);
}

int server_state_open(struct state *state, bool only_existing, struct cay_error *err)
{
    struct serve_options *options = &state->options;
    int code = options_home(options, !only_existing, err);

    if (code && only_existing && (err->sys_errno == ENOENT || err->sys_errno == EACCES))
        return fail_store(err->sys_errno, err);
    if (!code)
        code = options_store(options, state->store, err);
    if (!code && only_existing && strcmp(state->store, ":memory:") != 0 &&
        access(state->store, R_OK) != 0)
        code = fail_store(errno, err);
    if (!code)
        code = registry_open(state->store, &state->registry, err);
    if (!code && registry_is_new(state->registry))
        code = secrets_adopt_key(state->registry, options->home, err);
    return code;
}
