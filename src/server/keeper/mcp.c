/* SPDX-License-Identifier: Apache-2.0 */

/* The process of an MCP session over HTTP: `cay mcp` with the options of the server, on a
 * socket to the front.  It ends when the front closes the socket. */
#include "mcp/mcp.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"

static int no_signal(void)
{
    return 0;
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

static int serve(int socket, const struct serve_options *options, struct cay_error *err)
{
    struct mcp_options wanted = {.sandbox = keeper_sandbox_options(options),
                                 .sandboxes = options->mcp_sandboxes,
                                 .take_signal = no_signal};
    struct keeper_network network = {0};
    cay_policy *policy = NULL;
    int signal, code = CAY_OK;
    AUTO_FREE char *patterns = strdup(options->mcp_approve ? options->mcp_approve : "");
    AUTO_FREE const char **approve = patterns ? split(patterns) : NULL;

    if (!approve)
        return cay_fail_memory(err, "server.mcp");
    if (*approve)
        wanted.sandbox.approve = approve;

    if (options->mcp_tools && strcmp(options->mcp_tools, "read-only") == 0)
        wanted.read_only = true;
    else
        wanted.tools = options->mcp_tools;
    wanted.sandbox.network = options->internet; /* or that of the policy */
    if (options->internet > CAY_NETWORK_HOST) {
        wanted.sandbox.network = CAY_NETWORK_NONE;
        code = keeper_network_init(options, true, NULL, 0, &network, err);
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

_Noreturn void keeper_serve_mcp(int socket, const struct serve_options *options)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct cay_error error;

    (void)sigaction(SIGPIPE, &ignore, NULL); /* allow: sigaction a process of its own */
    _exit(serve(socket, options, &error) == CAY_OK ? 0 : 1);
}
