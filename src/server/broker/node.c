/* SPDX-License-Identifier: Apache-2.0 */

/* One of several servers behind a proxy (docs/design/scale.md).  The proxy finds the
 * server of a sandbox by the first letters of its id; nothing here trusts that. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "sys/io.h"

enum { ID_LEN = 16, ID_LETTERS = 12, CHECK_MS = 1000, AGENTS_AT_A_TIME = 16 };

static const char op[] = "serve.node";

/* --- Sandboxes of other nodes --- */

bool node_is_foreign(const struct broker *broker, const char *id)
{
    const char *node = broker->options->node;

    return *node && strlen(id) == ID_LEN && strspn(id, NODE_LETTERS) == ID_LEN &&
           strncmp(id, node, NODE_LEN) != 0;
}

void node_refuse(struct broker *broker, struct request_packet *request, int status,
                 const char *message, const char *hint)
{
    char text[160];

    if (!node_is_foreign(broker, request->head.sandbox)) {
        broker_refuse(request, status, CAY_E_NOT_FOUND, message, hint);
        return;
    }
    if (index_is_lost(broker, request->head.sandbox)) {
        snprintf(text, sizeof text, "sandbox \"%.16s\" is lost: its machine was lost",
                 request->head.sandbox);
        broker_refuse(request, status, CAY_E_NOT_FOUND, text, "create another one");
        return;
    }
    /* Not "does not exist": the client would give up a sandbox that lives. */
    snprintf(text, sizeof text, "sandbox \"%.16s\" is on another node, which is away",
             request->head.sandbox);
    broker_refuse(request, 503, CAY_E_UNAVAILABLE, text, "try again in a moment");
}

/* --- Load --- */

struct node_memory node_memory(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    struct node_memory memory = {UINT64_MAX, UINT64_MAX};

    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "MemAvailable:", 13) == 0)
            memory.available = strtoull(line + 13, NULL, 10) << 10;
        else if (strncmp(line, "MemTotal:", 9) == 0)
            memory.total = strtoull(line + 9, NULL, 10) << 10;
    }
    if (file)
        (void)fclose(file);
    return memory;
}

/* Running sandboxes, and those that are being created. */
static uint64_t count_running(const struct broker *broker)
{
    int64_t count = 0;

    (void)!registry_count(broker->registry, NULL, RECORD_RUNNING, &count, NULL);
    for (const struct broker_request *pending = broker->pending; pending;
         pending = pending->next)
        count += pending->op == OP_CREATE;
    return (uint64_t)count + broker_count_mcp(broker);
}

static unsigned percent(uint64_t part, uint64_t whole)
{
    double share = whole ? 100.0 * (double)part / (double)whole : 100.0;

    return share < 100 ? (unsigned)share : 100;
}

/* How much of this machine is free, in percent: 0: it is full. */
static unsigned free_percent(const struct broker *broker)
{
    const struct serve_options *options = broker->options;
    struct node_memory memory = node_memory();
    uint64_t most = options->max_sandboxes, running = most ? count_running(broker) : 0;

    if (memory.available < options->reserve_bytes || (most && running >= most) ||
        registry_is_exclusive(broker->registry))
        return 0;
    unsigned free = percent(memory.available - options->reserve_bytes, memory.total);
    unsigned left = most ? percent(most - running, most) : 100;
    if (left < free)
        free = left;
    return free ? free : 1;
}

bool node_has_room(struct broker *broker, struct request_packet *request, int status)
{
    unsigned most = broker->options->max_sandboxes;

    if (most && broker->options->mcp_keep && count_running(broker) >= most)
        broker_read_kept(broker); /* some may have ended */
    if (index_is_taken(broker))
        broker_refuse(request, 503, CAY_E_UNAVAILABLE,
                      "another server has the name of this node",
                      "stop it, or give this one another name: --node");
    else if (broker->node.leave_ms)
        broker_refuse(request, 503, CAY_E_UNAVAILABLE,
                      "the server is draining: it creates no sandboxes",
                      "create it on another server");
    else if (most && count_running(broker) >= most)
        broker_refuse(request, status, CAY_E_LIMIT, "the server is full",
                      "kill some sandboxes, or try again later");
    else
        return true;
    return false;
}

struct node_load node_load(const struct broker *broker)
{
    unsigned free = free_percent(broker);

    return (struct node_load){.running = count_running(broker),
                              .free = free,
                              .state = index_is_taken(broker)  ? READY_CLAIMED
                                       : broker->node.leave_ms ? READY_DRAINING
                                       : free                  ? READY_YES
                                                               : READY_FULL};
}

void node_handle_ready(struct broker *broker, struct request_packet *request)
{
    struct reply reply = {.kind = REPLY_DONE};
    struct node_load load = node_load(broker);

    reply.numbers[READY_STATE] = load.state;
    reply.numbers[READY_FREE] = load.free;
    (void)reply_send(request->channel, &reply, NULL, -1);
    request_packet_done(request);
}

/* --- The port that HAProxy asks --- */

static void on_agent(struct broker *broker, struct source *source)
{
    struct node *node = (struct node *)source;
    char line[32] = "drain\n";

    if (!node->leave_ms && !index_is_taken(broker))
        snprintf(line, sizeof line, "ready up %u%%\n", free_percent(broker));
    for (int i = 0; i < AGENTS_AT_A_TIME; i++) {
        AUTO_FD fd = accept4(node->agent, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && cay_errno_is_shortage(errno)) {
            broker_poll_remove(broker, node->agent);
            node->is_agent_paused = true;
        }
        if (fd < 0)
            return;
        (void)send(fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void fill_agent(const struct serve_options *options,
                       struct sockaddr_storage *address, socklen_t *ret_len)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    bool is_four = inet_pton(AF_INET, options->address, &four->sin_addr) == 1;
    in_port_t port = htons((uint16_t)options->agent_port);

    address->ss_family = is_four ? AF_INET : AF_INET6;
    *ret_len = is_four ? sizeof *four : sizeof *six;
    if (is_four)
        four->sin_port = port;
    else
        six->sin6_port = port;
    if (!is_four)
        (void)inet_pton(AF_INET6, options->address, &six->sin6_addr);
}

int node_open(struct broker *broker, struct cay_error *err)
{
    const struct serve_options *options = broker->options;
    struct sockaddr_storage address = {0};
    const int yes = 1;
    socklen_t len;

    broker->node.agent = -1;
    if (!options || !options->agent_port)
        return CAY_OK;
    fill_agent(options, &address, &len);
    AUTO_FD fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, SOMAXCONN) != 0)
        return cay_fail_errno(err, errno, op, "--agent");
    broker->node.agent_source.ready = on_agent;
    if (!broker_poll_add(broker, fd, &broker->node.agent_source))
        return cay_fail_errno(err, errno, op, "--agent");
    broker->node.agent = TAKE_FD(fd);
    return CAY_OK;
}

/* --- Leaving --- */

void node_leave(struct broker *broker)
{
    int64_t most_ms = broker->options->max_timeout_s * INT64_C(1000);

    if (!broker->node.leave_ms)
        broker->node.leave_ms = (int64_t)clock_ms() + most_ms;
}

void node_stay(struct broker *broker)
{
    broker->node.leave_ms = 0;
}

bool node_is_empty(struct broker *broker)
{
    struct node *node = &broker->node;
    int64_t now_ms = (int64_t)clock_ms(), paused = 0;

    if (now_ms - node->checked_ms < CHECK_MS)
        return false;
    node->checked_ms = now_ms;
    if (node->is_agent_paused)
        node->is_agent_paused =
            !broker_poll_add(broker, node->agent, &node->agent_source);
    return node->leave_ms && (now_ms >= node->leave_ms ||
                              (!count_running(broker) &&
                               registry_count(broker->registry, NULL, RECORD_PAUSED,
                                              &paused, NULL) == CAY_OK &&
                               !paused));
}

/* --- The isolation level --- */

struct found_level {
    int code;
    enum cay_level level;
    struct cay_error error;
};

static void find_level(const struct serve_options *options, struct found_level *found)
{
    struct cay_sandbox_options wanted = keeper_sandbox_options(options);
    cay_sandbox *sandbox = NULL;
    struct cay_sandbox_info info = {.level = CAY_LEVEL_BEST};

    wanted.ephemeral = true;
    found->code = cay_sandbox_create(&wanted, &sandbox, &found->error);
    if (!found->code)
        found->code = cay_sandbox_inspect(sandbox, &info, &found->error);
    if (!found->code)
        found->level = info.level;
    if (sandbox)
        (void)!cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
}

static enum cay_level parse_level(const char *text)
{
    enum cay_level level = CAY_LEVEL_LANDLOCK;

    while (level != CAY_LEVEL_BEST && strcmp(cay_level_slug(level), text) != 0)
        level = (enum cay_level)((unsigned)level - 1);
    return level;
}

/* In a child, since the library may keep descriptors and threads. */
int node_check_level(const struct serve_options *options, struct cay_error *err)
{
    enum cay_level wanted = parse_level(options->require_level);
    struct found_level found = {.code = CAY_E_INTERNAL};
    int ends[2];

    if (wanted == CAY_LEVEL_BEST)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--require-level", "invalid value",
                        "give root, range, single or landlock");
    if (pipe2(ends, O_CLOEXEC) != 0)
        return cay_fail_errno(err, errno, op, "pipe");
    pid_t pid =
        fork(); /* allow: fork a child that creates one sandbox; no threads here */
    if (pid == 0) {
        find_level(options, &found);
        (void)io_write(ends[1], &found, sizeof found);
        _exit(0);
    }
    (void)close(ends[1]);
    bool is_known = pid > 0 && read(ends[0], &found, sizeof found) == sizeof found;
    (void)close(ends[0]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    if (is_known && found.code) {
        if (err)
            *err = found.error;
        return found.code;
    }
    if (is_known && found.level <= wanted)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "--require-level",
                    "this machine isolates sandboxes less than required",
                    "it has the level %s, not %s; cay doctor reports why",
                    is_known ? cay_level_slug(found.level) : "none",
                    options->require_level);
}
