/* SPDX-License-Identifier: Apache-2.0 */

/* `cay env`, and the exports that `cay serve` prints. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "server/commands.h"
#include "server/live.h"

enum { START_MS = 3000, STEP_MS = 50 };

static bool is_any(const char *address)
{
    return strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
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

void exports_print(const struct serve_options *options, const char *key)
{
    char url[512];

    put_url(options, url, sizeof url);
    printf("export E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\n", url, url);
    if (*key)
        printf("export E2B_API_KEY=%s\n", key);
}

void exports_warn(const struct serve_options *options)
{
    if (is_loopback(options->address))
        return;
    if (!options->tls_cert)
        fprintf(stderr,
                "cay: warning: %s:%u is served without TLS: API keys, files and output "
                "can be read on the network (use --tls-cert and --tls-key, or listen on "
                "127.0.0.1 behind a TLS proxy)\n",
                options->address, options->port);
    if (!options->domain)
        fputs("cay: other machines reach this server by its address; use --domain NAME "
              "for a host name\n",
              stderr);
}

/* --- cay env --- */

static bool is_there(const char *store)
{
    return strcmp(store, ":memory:") == 0 || access(store, R_OK) == 0;
}

static int find_key(struct state *state, char ret_key[API_KEY_MAX], struct cay_error *err)
{
    int code = state->registry ? CAY_OK : server_state_open(state, true, err);

    return code ? code : api_key_find(state->registry, state->options.home, ret_key, err);
}

/* For `cay serve & eval "$(cay env)"`: waits for the first start to create the key. */
static int wait_for_key(struct state *state, char ret_key[API_KEY_MAX],
                        struct cay_error *err)
{
    int code = find_key(state, ret_key, err);
    bool is_first = code == CAY_E_NOT_FOUND && !state->registry;

    for (int i = 0; i < START_MS / STEP_MS && is_first && code == CAY_E_NOT_FOUND; i++) {
        (void)poll(NULL, 0, STEP_MS);
        code = find_key(state, ret_key, err);
    }
    return code;
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

int exports_command(char *const *argv, struct cay_error *err)
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
        code = wait_for_key(&state, key, err);
    if (!code && !options->has_listen)
        code = find_server(options, state.store, &live, err);
    if (!code && !options->tls_cert)
        code = registry_find_listener(state.registry, options->port, &has_tls, err);
    if (!code && has_tls)
        options->tls_cert = "";
    if (!code)
        exports_print(options, key);
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
    if (!code && only_existing && !is_there(state->store))
        code = fail_store(errno, err);
    if (!code)
        code = registry_open(state->store, &state->registry, err);
    if (!code && registry_is_new(state->registry))
        code = api_key_adopt(state->registry, options->home, err);
    return code;
}
