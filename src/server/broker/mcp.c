/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions of MCP over HTTP.  Each has a process, which may have as many sandboxes as
 * --mcp-sandboxes says and one more; the front has the other end of its socket.
 *
 * A sandbox that outlives its sessions (--mcp-keep) has a name that is made of this
 * server, the tenant and the client's name for it, so that no other tenant has it, and
 * that a broker which starts later finds again. */
#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/journal.h"

enum { SESSIONS_MAX = 32 /* of a tenant */, HOME_BYTES = 4, TENANT_BYTES = 8 };

#define KEPT_PREFIX "mcp-"
_Static_assert(sizeof KEPT_PREFIX + 2 * (HOME_BYTES + TENANT_BYTES) + MCP_KEPT_MAX <
                   CAY_NAME_MAX,
               "a name of a kept sandbox has room for all of it");

/* --- Kept sandboxes --- */

/* Adds the first bytes of a hash of both texts. */
static void add_hash(char name[CAY_NAME_MAX], const char *one, const char *other,
                     int count)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx ctx;

    sha256_init(&ctx);
    sha256_update(&ctx, strlen(one) + 1, (const uint8_t *)one);
    sha256_update(&ctx, strlen(other), (const uint8_t *)other);
    sha256_digest(&ctx, sizeof digest, digest);
    size_t len = strlen(name);
    for (int i = 0; i < count; i++, len += 2)
        snprintf(name + len, CAY_NAME_MAX - len, "%02x", digest[i]);
}

/* The beginning of the names of this server and tenant; tenant NULL: of all of them. */
static void owner_of(const struct broker *broker, const char *tenant,
                     char ret_owner[CAY_NAME_MAX])
{
    const char *home = broker->options->home;

    cay_copy_text(ret_owner, CAY_NAME_MAX, KEPT_PREFIX);
    add_hash(ret_owner, home, "", HOME_BYTES);
    if (!tenant)
        return;
    add_hash(ret_owner, home, tenant, TENANT_BYTES);
    cay_copy_text(ret_owner + strlen(ret_owner), 2, "-");
}

void broker_read_kept(struct broker *broker)
{
    struct mcp_kept *kept = &broker->mcp_kept;
    struct cay_sandbox_info *infos = NULL;
    char owner[CAY_NAME_MAX];
    size_t count = 0;

    owner_of(broker, NULL, owner);
    if (!broker->options->mcp_keep ||
        cay_sandbox_list_brief(&infos, &count, NULL) != CAY_OK)
        return;
    free(kept->names);
    kept->count = 0;
    kept->names = calloc(count + 1, sizeof *kept->names);
    for (size_t i = 0; i < count && kept->names; i++)
        if (strncmp(infos[i].name, owner, strlen(owner)) == 0)
            cay_copy_text(kept->names[kept->count++], CAY_NAME_MAX, infos[i].name);
    cay_free(infos);
}

static const struct mcp_process *find_user(const struct broker *broker, const char *name)
{
    const struct mcp_process *one = broker->mcp;

    while (one && strcmp(one->spec.kept, name) != 0)
        one = one->next;
    return one;
}

static bool is_kept(const struct broker *broker, const char *name)
{
    bool found = false;

    for (size_t i = 0; i < broker->mcp_kept.count; i++)
        found = found || strcmp(broker->mcp_kept.names[i], name) == 0;
    return found;
}

/* Of this owner, or all of them (""): those that exist, and those of sessions, which may
 * create theirs at any time. */
static unsigned count_kept(const struct broker *broker, const char *owner)
{
    const struct mcp_kept *kept = &broker->mcp_kept;
    unsigned count = 0;

    for (size_t i = 0; i < kept->count; i++)
        count += strncmp(kept->names[i], owner, strlen(owner)) == 0;
    for (const struct mcp_process *one = broker->mcp; one; one = one->next) {
        const char *name = one->spec.kept;
        if (*name && strncmp(name, owner, strlen(owner)) == 0 && !is_kept(broker, name) &&
            find_user(broker, name) == one)
            count++;
    }
    return count;
}

/* --- Calls --- */

static void stop_listening(struct broker *broker, struct mcp_process *process)
{
    if (process->notes < 0)
        return;
    broker_poll_remove(broker, process->notes);
    (void)close(process->notes);
    process->notes = -1;
}

/* Writes a call to the audit record, with the request that began the session.  1, 0 at
 * the end or -EAGAIN. */
static int take_note(struct broker *broker, struct mcp_process *process)
{
    struct mcp_note note;
    ssize_t len = recv(process->notes, &note, sizeof note, MSG_DONTWAIT | MSG_TRUNC);

    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (len != (ssize_t)sizeof note || note.version != CHANNEL_VERSION)
        return 0;
    note.tool[sizeof note.tool - 1] = note.key[sizeof note.key - 1] =
        note.subject[sizeof note.subject - 1] = '\0';
    const char *const details[] = {"tool", note.tool, *note.key ? note.key : NULL,
                                   note.subject, NULL};
    journal_write(broker, &(struct journal_entry){.action = "mcp.call",
                                                  .tenant = process->spec.tenant,
                                                  .request = process->request_id,
                                                  .details = details});
    return 1;
}

static void on_note(struct broker *broker, struct source *source)
{
    struct mcp_process *process = (struct mcp_process *)source;

    if (take_note(broker, process) == 0)
        stop_listening(broker, process);
}

/* --- Sessions --- */

static unsigned count_sessions(const struct broker *broker, const char *tenant)
{
    unsigned count = 0;

    for (const struct mcp_process *one = broker->mcp; one; one = one->next)
        count += !tenant || strcmp(one->spec.tenant, tenant) == 0;
    return count;
}

/* A session with a kept sandbox has that one instead of its own. */
uint64_t broker_count_mcp(const struct broker *broker)
{
    uint64_t count = count_kept(broker, "");

    for (const struct mcp_process *one = broker->mcp; one; one = one->next)
        count += (one->spec.removes ? 0 : (uint64_t)broker->options->mcp_sandboxes) +
                 !*one->spec.kept;
    return count;
}

static void refuse_overloaded(struct request_packet *request)
{
    broker_refuse(request, 503, CAY_E_BUSY, "the server is overloaded",
                  "try again in a moment");
}

/* -1: refused. */
static pid_t fork_process(struct broker *broker, struct mcp_process *process, int socket)
{
    int notes[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, notes) != 0)
        return -1;
    process->source.ready = on_note;
    process->notes = notes[0];
    pid_t pid = broker_poll_add(broker, notes[0], &process->source)
                    ? keepers_start_mcp(broker, socket, notes[1], &process->spec)
                    : -1;
    (void)close(notes[1]);
    if (pid < 0)
        stop_listening(broker, process);
    return pid;
}

/* The request of a removal is answered when the process has ended. */
static void start(struct broker *broker, struct request_packet *request,
                  const struct keeper_mcp *spec)
{
    AUTO_FREE struct mcp_process *process = calloc(1, sizeof *process);
    AUTO_FREE struct request_packet *held = spec->removes ? malloc(sizeof *held) : NULL;
    struct reply reply = {.kind = REPLY_SOCKET};
    int ends[2];

    if (!process || (spec->removes && !held) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        refuse_overloaded(request);
        return;
    }
    process->spec = *spec;
    process->request_id = request->head.id;
    process->pid = fork_process(broker, process, ends[1]);
    (void)close(ends[1]);
    if (process->pid < 0) {
        (void)close(ends[0]);
        refuse_overloaded(request);
        return;
    }
    if (held) {
        memcpy(held, request, sizeof *held);
        request->channel = request->memfd = -1;
    } else {
        (void)reply_send(request->channel, &reply, NULL, ends[0]);
        request_packet_done(request);
    }
    (void)close(ends[0]);
    process->request = TAKE_PTR(held);
    process->next = broker->mcp;
    broker->mcp = TAKE_PTR(process);
}

/* The front has checked the name, and may be in the hands of an attacker. */
static bool take_kept(const struct broker *broker, struct request_packet *request,
                      struct keeper_mcp *spec)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    const char *name = strings && request->head.count ? strings[0] : NULL;

    spec->removes = request->head.op == OP_MCP_REMOVE;
    if (!name)
        return !request->head.count && !spec->removes;
    if (!*name || strlen(name) >= MCP_KEPT_MAX || strspn(name, letters) != strlen(name))
        return false;
    owner_of(broker, spec->tenant, spec->kept);
    size_t len = strlen(spec->kept);
    cay_copy_text(spec->kept + len, sizeof spec->kept - len, name);
    return true;
}

static bool may_keep(struct broker *broker, struct request_packet *request,
                     const struct keeper_mcp *spec)
{
    const struct mcp_process *user = find_user(broker, spec->kept);
    char owner[CAY_NAME_MAX];

    broker_read_kept(broker);
    owner_of(broker, spec->tenant, owner);
    bool is_new = !user && !is_kept(broker, spec->kept);
    if (!broker->options->mcp_keep)
        broker_refuse(request, 403, CAY_E_DENIED,
                      "this server keeps no sandboxes: it has no --mcp-keep",
                      "leave out Cay-Sandbox, or start the server with --mcp-keep");
    else if (user && (spec->removes || user->spec.removes))
        broker_refuse(request, 409, CAY_E_BUSY, "the sandbox is in use",
                      "end its sessions with DELETE, then try again");
    else if (spec->removes && is_new)
        broker_refuse(request, 404, CAY_E_NOT_FOUND, "no such sandbox",
                      "a session with Cay-Sandbox creates it at the first call");
    else if (is_new && count_kept(broker, owner) >= broker->options->mcp_keep)
        broker_refuse(request, 429, CAY_E_LIMIT,
                      "too many kept sandboxes: remove one with DELETE",
                      "remove one: DELETE /mcp with its name as Cay-Sandbox");
    else
        return true;
    return false;
}

void broker_start_mcp(struct broker *broker, struct request_packet *request,
                      const char *tenant)
{
    struct keeper_mcp spec = {.removes = false};

    cay_copy_text(spec.tenant, sizeof spec.tenant, tenant);
    if (!broker->options->mcp)
        broker_refuse(request, 404, CAY_E_NOT_FOUND, "no MCP here",
                      "start the server with --mcp");
    else if (!take_kept(broker, request, &spec))
        broker_refuse(request, 400, CAY_E_INVALID, "invalid name of a sandbox",
                      "use up to 32 letters, digits, \".\", \"_\" and \"-\"");
    else if (count_sessions(broker, tenant) >= SESSIONS_MAX)
        broker_refuse(request, 429, CAY_E_LIMIT, "too many MCP sessions",
                      "end one with DELETE, or wait until one was idle for long enough");
    else if (*spec.kept && !may_keep(broker, request, &spec))
        return;
    else if (spec.removes || is_kept(broker, spec.kept) ||
             create_has_room(broker, request, 429))
        start(broker, request, &spec);
}

void broker_mcp_reaped(struct broker *broker, pid_t pid, int status)
{
    struct mcp_process **link = &broker->mcp;

    while (*link && (*link)->pid != pid)
        link = &(*link)->next;
    struct mcp_process *process = *link;
    if (!process)
        return;
    *link = process->next;
    while (process->notes >= 0 && take_note(broker, process) == 1)
        ; /* what it sent before its end */
    stop_listening(broker, process);
    if (*process->spec.kept)
        broker_read_kept(broker);
    if (process->request) {
        reply_set_tenant(process->spec.tenant);
        if (status == 0)
            broker_reply_done(process->request);
        else
            broker_refuse(process->request, 500, CAY_E_IO,
                          "the sandbox could not be removed", "try again");
    }
    free(process->request);
    broker_forget_source(broker, &process->source);
    free(process);
}
