/* SPDX-License-Identifier: Apache-2.0 */

/* The process of an MCP session over HTTP: `cay mcp` with the options of the server, on a
 * socket to the front.  It ends when the front closes the socket.  Another one removes a
 * sandbox that a session has left. */
#include "mcp/mcp.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"

static int no_signal(void)
{
    return 0;
}

/* The broker writes it to the audit record. */
static void send_note(void *cookie, const char *tool, const char *key,
                      const char *subject)
{
    const int *notes = cookie;
    struct mcp_note note = {.version = CHANNEL_VERSION};

    cay_copy_text(note.tool, sizeof note.tool, tool);
    cay_copy_text(note.key, sizeof note.key, key);
    cay_copy_text(note.subject, sizeof note.subject, subject);
    while (send(*notes, &note, sizeof note, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

/* The patterns as a list, which points into a copy. */
static const char **split(char *patterns)
{
    const char **list = calloc(strlen(patterns) + 2, sizeof *list);
    size_t count = 0;

    for (char *word; list && (word = strsep(&patterns, ","));)
        if (*word)
            list[count++] = word;
    return list;
}

/* The tools of the tenant, or those of all others: sets tools or read_only.  `policy` is
 * cut up, and has to live as long as *ret. */
static void set_tools(char *policy, const char *tenant, struct mcp_options *ret)
{
    const char *of, *list, *found = NULL, *fallback = NULL;

    while (policy && options_next_tools(&policy, &of, &list)) {
        if (strcmp(of, tenant) == 0)
            found = list;
        else if (!*of)
            fallback = list;
    }
    found = found ? found : fallback;
    ret->read_only = found && strcmp(found, "read-only") == 0;
    if (found && !ret->read_only && strcmp(found, "all") != 0)
        ret->tools = found;
}

/* A sandbox that no session uses for the longest timeout of the server ends. */
static void set_keep(const struct keeper_mcp *spec, const struct serve_options *options,
                     struct mcp_options *ret)
{
    uint64_t least_s = UINT64_C(2) * options->mcp_idle_s;

    if (!*spec->kept)
        return;
    ret->keep = true;
    ret->sandbox.name = spec->kept;
    ret->keep_ms =
        (options->max_timeout_s > least_s ? options->max_timeout_s : least_s) * 1000;
    ret->sandbox.ttl_ms = ret->keep_ms;
}

static int serve(int socket, int notes, const struct keeper_mcp *spec,
                 const struct serve_options *options, struct cay_error *err)
{
    struct mcp_options wanted = {.sandbox = keeper_sandbox_options(options),
                                 .sandboxes = options->mcp_sandboxes,
                                 .called = send_note,
                                 .cookie = &notes,
                                 .take_signal = no_signal};
    struct keeper_network network = {0};
    cay_policy *policy = NULL;
    int signal, code = CAY_OK;
    AUTO_FREE char *patterns = strdup(options->mcp_approve ? options->mcp_approve : "");
    AUTO_FREE const char **approve = patterns ? split(patterns) : NULL;
    AUTO_FREE char *files =
        strdup(options->mcp_approve_writes ? options->mcp_approve_writes : "");
    AUTO_FREE const char **writes = files ? split(files) : NULL;

    AUTO_FREE char *tools = strdup(options->mcp_tools ? options->mcp_tools : "all");

    if (!approve || !writes || !tools)
        return cay_fail_memory(err, "server.mcp");
    if (*approve)
        wanted.sandbox.approve = approve;
    if (*writes)
        wanted.approve_writes = writes;
    if (*approve || *writes)
        TRY(keeper_use_queue(options, spec->tenant, err));
    set_tools(tools, spec->tenant, &wanted);
    set_keep(spec, options, &wanted);
    wanted.sandbox.network = options->internet; /* or that of the policy */
    if (options->internet > CAY_NETWORK_HOST) {
        wanted.sandbox.network = CAY_NETWORK_NONE;
        code = keeper_network_init(options, true, 0, NULL, 0, &network, err);
        if (!code)
            code = cay_policy_add_network(NULL, &network.config, &policy, err);
        wanted.sandbox.policy = policy;
    }
    if (!code)
        code = mcp_serve(&wanted, socket, socket, &signal, err);
    cay_policy_free(policy);
    keeper_network_done(&network);
    return code;
}

/* One that is gone needs no removal. */
static int remove_kept(const char *name, struct cay_error *err)
{
    cay_sandbox *sandbox = NULL;
    int code = cay_sandbox_open(name, &sandbox, err);

    if (!code)
        code = cay_sandbox_remove(sandbox, err);
    cay_sandbox_free(sandbox);
    return code == CAY_E_NOT_FOUND ? CAY_OK : code;
}

_Noreturn void keeper_serve_mcp(int socket, int notes, const struct keeper_mcp *spec,
                                const struct serve_options *options)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct cay_error error;

    (void)sigaction(SIGPIPE, &ignore, NULL); /* allow: sigaction a process of its own */
    int code = spec->removes ? remove_kept(spec->kept, &error)
                             : serve(socket, notes, spec, options, &error);
    _exit(code == CAY_OK ? 0 : 1);
}
