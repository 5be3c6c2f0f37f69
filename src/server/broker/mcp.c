/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions of MCP over HTTP.  Each has a process, which may have as many sandboxes as
 * --mcp-sandboxes says and one more; the front has the other end of its socket. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"

enum { SESSIONS_MAX = 32 /* of a tenant */ };

static unsigned count_sessions(const struct broker *broker, const char *tenant)
{
    unsigned count = 0;

    for (const struct mcp_process *one = broker->mcp; one; one = one->next)
        count += !tenant || strcmp(one->tenant, tenant) == 0;
    return count;
}

uint64_t broker_count_mcp(const struct broker *broker)
{
    return count_sessions(broker, NULL) * (1 + (uint64_t)broker->options->mcp_sandboxes);
}

static void start(struct broker *broker, struct request_packet *request,
                  const char *tenant)
{
    AUTO_FREE struct mcp_process *process = calloc(1, sizeof *process);
    struct reply reply = {.kind = REPLY_SOCKET};
    int ends[2];

    if (!process ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        broker_refuse(request, 503, CAY_E_BUSY, "the server is overloaded",
                      "try again in a moment");
        return;
    }
    process->pid = keepers_start_mcp(broker, ends[1]);
    (void)close(ends[1]);
    if (process->pid < 0) {
        (void)close(ends[0]);
        broker_refuse(request, 503, CAY_E_BUSY, "the server is overloaded",
                      "try again in a moment");
        return;
    }
    cay_copy_text(process->tenant, sizeof process->tenant, tenant);
    process->next = broker->mcp;
    broker->mcp = TAKE_PTR(process);
    (void)reply_send(request->channel, &reply, NULL, ends[0]);
    (void)close(ends[0]);
    request_packet_done(request);
}

void broker_start_mcp(struct broker *broker, struct request_packet *request,
                      const char *tenant)
{
    if (!broker->options->mcp)
        broker_refuse(request, 404, CAY_E_NOT_FOUND, "no MCP here",
                      "start the server with --mcp");
    else if (count_sessions(broker, tenant) >= SESSIONS_MAX)
        broker_refuse(request, 429, CAY_E_LIMIT, "too many MCP sessions",
                      "end one with DELETE, or wait until one was idle for long enough");
    else if (create_has_room(broker, request, 429))
        start(broker, request, tenant);
}

void broker_mcp_reaped(struct broker *broker, pid_t pid)
{
    struct mcp_process **link = &broker->mcp;

    while (*link && (*link)->pid != pid)
        link = &(*link)->next;
    struct mcp_process *process = *link;
    if (process)
        *link = process->next;
    free(process);
}
