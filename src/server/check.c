/* SPDX-License-Identifier: Apache-2.0 */

/* cay serve --check: what would keep a server with these options from starting, or from
 * working as its operator expects. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/sandbox.h"
#include "server/broker/hooks.h"
#include "server/broker/shared.h"
#include "server/commands.h"
#include "server/wire/bucket.h"

static unsigned errors, warnings;

static void report(const char *kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void report(const char *kind, const char *format, ...)
{
    va_list arguments;

    fprintf(stdout, "%-8s ", kind);
    va_start(arguments, format);
    (void)vfprintf(stdout, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stdout);
    errors += strcmp(kind, "error") == 0;
    warnings += strcmp(kind, "warning") == 0;
}

static void report_error(const char *option, const struct cay_error *error)
{
    bool is_named = strcmp(option, error->subject) == 0 || !*error->subject;

    report("error", "%s: %s%s%s (%s)", option, is_named ? "" : error->subject,
           is_named ? "" : ": ", error->message, error->hint);
}

/* --- Address --- */

/* An address that another server uses is only a warning: it may be this one. */
static void check_port(const struct serve_options *options)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[8];
    const int yes = 1;

    snprintf(port, sizeof port, "%u", options->port);
    if (getaddrinfo(options->address, port, &hints, &found) != 0 || !found) {
        report("error", "--listen: %s is not an address", options->address);
        return;
    }
    AUTO_FD fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_free = fd >= 0 &&
                   setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                   bind(fd, found->ai_addr, found->ai_addrlen) == 0;
    int error = errno;
    freeaddrinfo(found);
    if (is_free)
        report("ok", "--listen: %s port %u is free", options->address, options->port);
    else if (error == EADDRINUSE)
        report("warning", "--listen: %s port %u is in use, perhaps by this service",
               options->address, options->port);
    else
        report("error", "--listen: %s port %u: %s", options->address, options->port,
               cay_errno_words(error));
}

static void check_tls(const struct serve_options *options)
{
    AUTO_FREE char *cert = NULL;
    AUTO_FREE char *key = NULL;
    struct cay_error error;

    if (!options->tls_cert) {
        if (commands_is_public(options))
            report(
                "warning",
                "TLS: API keys, files and output can be read on the network (use "
                "--tls-cert and --tls-key, or listen on 127.0.0.1 behind a TLS proxy)");
        return;
    }
    int code = server_tls_load(options, &cert, &key, &error);
    const char *doubt = code ? NULL : server_tls_doubt(cert, options->domain);
    if (key)
        explicit_bzero(key, strlen(key));
    if (code)
        report_error("TLS", &error);
    else if (doubt)
        report("warning", "TLS: %s", doubt);
    else
        report("ok", "TLS: the certificate and the key match");
}

/* --- Files --- */

static bool exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

static void check_store(struct state *state)
{
    struct cay_error error = {0};
    int code = options_home(&state->options, false, &error);

    if (code && error.sys_errno == ENOENT) {
        report("ok", "home: %s will be created", state->options.home);
        return;
    }
    if (!code)
        code = options_store(&state->options, state->store, &error);
    if (code) {
        report_error("home", &error);
        return;
    }
    report("ok", "home: %s", state->options.home);
    if (strcmp(state->store, ":memory:") == 0 || !exists(state->store)) {
        report("ok", "--store: %s will be created", state->store);
        return;
    }
    code = registry_open(state->store, &state->registry, &error);
    if (!code)
        code = registry_check(state->registry, false, NULL, &error);
    registry_close(state->registry);
    state->registry = NULL;
    if (code)
        report_error("--store", &error);
    else
        report("ok", "--store: %s", state->store);
}

static void check_readable(const char *option, const char *path)
{
    AUTO_FD fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;

    if (fd >= 0)
        report("ok", "%s: %s", option, path);
    else if (path)
        report("error", "%s: %s: %s", option, path, cay_errno_words(errno));
}

static void check_shared(const struct serve_options *options)
{
    struct cay_error error;
    struct bucket bucket;
    bool is_new = false;

    if (!bucket_is(options->shared)) {
        check_readable("--shared", options->shared);
        return;
    }
    int code = bucket_parse(options, &bucket, &error);
    if (!code)
        code = shared_check_bucket(options, &is_new, &error);
    if (code)
        report_error("--shared", &error);
    else
        report("ok", "--shared: %s at %s%s", options->shared, bucket.endpoint,
               is_new ? " is empty" : "");
    if (!code && bucket.is_plain && bucket.is_remote)
        report("warning", "--shared-endpoint: without TLS, snapshots can be read and "
                          "replaced on the network (use https://)");
}

static void check_log(const char *path)
{
    AUTO_FREE char *folder = path ? strdup(path) : NULL;

    if (!folder || strcmp(path, "-") == 0)
        return;
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    if (access(exists(path) ? path : slash ? folder : ".", W_OK) == 0)
        report("ok", "--access-log: %s", path);
    else
        report("error", "--access-log: %s: %s", path, cay_errno_words(errno));
}

static void check_webhook(const struct serve_options *options)
{
    struct cay_error error;
    const char *store = options->store ? options->store : "";

    if (!options->webhook)
        return;
    if (hooks_check(options, strstr(store, "memory:") ? ":memory:" : store, &error))
        report_error("--webhook", &error);
    else
        report("ok", "--webhook: %s", options->webhook);
}

/* --- Sandboxes --- */

static void check_sandboxes(void)
{
    struct cay_check *checks = NULL;
    size_t count = 0;
    struct cay_error error;

    if (cay_doctor(&checks, &count, &error) != CAY_OK) {
        report_error("sandboxes", &error);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (checks[i].finding == CAY_FINDING_MISSING)
            report("warning", "sandboxes: %s: %s (see cay doctor)", checks[i].facility,
                   checks[i].detail);
    cay_free(checks);
}

int server_check(struct state *state, struct cay_error *err)
{
    const struct serve_options *options = &state->options;

    check_port(options);
    check_tls(options);
    check_store(state);
    check_readable("--api-key-file", options->api_key_file);
    check_shared(options);
    check_log(options->access_log);
    check_webhook(options);
    check_sandboxes();
    fprintf(stdout, "%u errors, %u warnings\n", errors, warnings);
    if (!errors)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "serve.check", "configuration",
                    "the server would not start", "see the errors above");
}
