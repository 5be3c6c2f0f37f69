/* SPDX-License-Identifier: Apache-2.0 */

/* cay forward: ports of this machine that lead to ports of a sandbox; cay port lists
 * them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "cli/output.h"
#include "json/json.h"

static const char op[] = "cli.forward";

enum {
    LINKS_MAX = 256, /* more wait in the queues of the sockets */
    PIECE = 16 << 10,
    PORTS_MAX = 64,
    CLIENT = 0,
    INSIDE = 1
};

/* --- Ports --- */

struct port {
    int fd;
    uint16_t outside, inside;
    char host[INET6_ADDRSTRLEN];
};

static int fail_port(const char *text, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, text, "invalid port",
                    "write PORT, PORT:INSIDE, ADDRESS:PORT or ADDRESS:PORT:INSIDE, like "
                    "8080:80 or 0.0.0.0:8080:80; port 0 of this machine is any free one");
}

static bool parse_number(const char *text, unsigned least, uint16_t *ret_number)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || number > UINT16_MAX || number < least)
        return false;
    *ret_number = (uint16_t)number;
    return true;
}

/* `text` is a copy that is cut: "8080", "8080:80", "0.0.0.0:8080:80", "[::1]:8080". */
static bool parse_port(char *text, struct port *ret_port)
{
    char *host = NULL, *rest = text;

    if (*text == '[') {
        char *end = strchr(text, ']');
        if (!end || end[1] != ':')
            return false;
        *end = '\0';
        host = text + 1;
        rest = end + 2;
    } else if (strcspn(text, ".") < strcspn(text, ":")) {
        rest = strchr(text, ':');
        if (!rest)
            return false;
        *rest++ = '\0';
        host = text;
    }
    char *inside = strchr(rest, ':');
    if (inside)
        *inside++ = '\0';
    cay_copy_text(ret_port->host, sizeof ret_port->host, host ? host : "127.0.0.1");
    return parse_number(rest, inside ? 0 : 1, &ret_port->outside) &&
           parse_number(inside ? inside : rest, 1, &ret_port->inside);
}

static socklen_t make_address(const struct port *port, struct sockaddr_storage *address)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;

    *address = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, port->host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port->outside);
        return sizeof *four;
    }
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port->outside);
    return inet_pton(AF_INET6, port->host, &six->sin6_addr) == 1 ? sizeof *six : 0;
}

static int listen_at(const char *text, struct port *port, struct cay_error *err)
{
    struct sockaddr_storage address;
    socklen_t len = make_address(port, &address), got = sizeof address;
    const int on = 1;

    if (!len)
        return fail_port(text, err);
    AUTO_FD fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (const struct sockaddr *)&address, len) != 0 || listen(fd, 128) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &got) != 0)
        return cay_fail_errno(err, errno, op, text);
    /* Both families have the port at the same place. */
    port->outside = ntohs(((struct sockaddr_in *)&address)->sin_port);
    port->fd = TAKE_FD(fd);
    return CAY_OK;
}

static int open_port(const char *text, struct port *port, struct cay_error *err)
{
    AUTO_FREE char *copy = strdup(text);

    if (!copy)
        return cay_fail_memory(err, op);
    if (!parse_port(copy, port))
        return fail_port(text, err);
    return listen_at(text, port, err);
}

/* --- Connections --- */

/* One direction: from its end to the other one. */
struct flow {
    size_t at, len;
    bool has_ended, is_shut;
    char data[PIECE];
};

struct link {
    int fds[2];
    struct flow flows[2];
};

struct forward {
    cay_sandbox *sandbox;
    int life; /* a pidfd of PID 1 */
    struct port ports[PORTS_MAX];
    size_t port_count;
    struct link *links[LINKS_MAX];
    size_t link_count;
};

static void close_link(struct forward *forward, size_t index)
{
    struct link *link = forward->links[index];

    (void)close(link->fds[CLIENT]);
    (void)close(link->fds[INSIDE]);
    free(link);
    forward->links[index] = forward->links[--forward->link_count];
}

/* If nothing listens inside, the client sees that the connection is closed. */
static void accept_link(struct forward *forward, const struct port *port)
{
    AUTO_FD client = accept4(port->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    AUTO_FD inside = -1;
    struct link *link = client < 0 ? NULL : calloc(1, sizeof *link);

    if (!link || cay_sandbox_dial(forward->sandbox, port->inside, &inside, NULL) != 0) {
        free(link);
        return;
    }
    link->fds[CLIENT] = TAKE_FD(client);
    link->fds[INSIDE] = TAKE_FD(inside);
    forward->links[forward->link_count++] = link;
}

/* Moves what it can from one end to the other; false if the connection has failed. */
static bool move(struct link *link, int from)
{
    struct flow *flow = &link->flows[from];
    int source = link->fds[from], target = link->fds[!from];

    if (!flow->len && !flow->has_ended) {
        ssize_t got = recv(source, flow->data, sizeof flow->data, MSG_DONTWAIT);
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        flow->has_ended = got == 0;
        flow->len = got > 0 ? (size_t)got : 0;
        flow->at = 0;
    }
    while (flow->at < flow->len) {
        ssize_t put = send(target, flow->data + flow->at, flow->len - flow->at,
                           MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0)
            return errno == EAGAIN || errno == EINTR;
        flow->at += (size_t)put;
    }
    flow->len = 0;
    if (flow->has_ended && !flow->is_shut) {
        flow->is_shut = true;
        (void)shutdown(target, SHUT_WR);
    }
    return true;
}

static struct pollfd watch_end(const struct link *link, int end)
{
    const struct flow *from = &link->flows[end], *to = &link->flows[!end];
    short events =
        (short)((from->len || from->has_ended ? 0 : POLLIN) | (to->len ? POLLOUT : 0));

    /* poll(2) reports a hangup also if nothing is requested. */
    return (struct pollfd){.fd = events ? link->fds[end] : -1, .events = events};
}

/* --- The loop --- */

static void serve_links(struct forward *forward, const struct pollfd *fds)
{
    /* From the last one: close_link() moves the last one to the place of another. */
    for (size_t i = forward->link_count; i-- > 0;) {
        struct link *link = forward->links[i];
        bool is_ready = fds[2 * i].revents || fds[2 * i + 1].revents;
        if (!is_ready)
            continue;
        if (!move(link, CLIENT) || !move(link, INSIDE) ||
            (link->flows[CLIENT].is_shut && link->flows[INSIDE].is_shut))
            close_link(forward, i);
    }
}

/* Until the sandbox ends. */
static int serve(struct forward *forward, struct cay_error *err)
{
    AUTO_FREE struct pollfd *fds =
        calloc(1 + PORTS_MAX + 2 * (size_t)LINKS_MAX, sizeof *fds);

    if (!fds)
        return cay_fail_memory(err, op);
    for (;;) {
        size_t ports = forward->port_count, links = forward->link_count;
        struct pollfd *at_ports = fds + 1, *at_links = at_ports + ports;
        fds[0] = (struct pollfd){.fd = forward->life, .events = POLLIN};
        for (size_t i = 0; i < ports; i++)
            at_ports[i] = (struct pollfd){
                .fd = links < LINKS_MAX ? forward->ports[i].fd : -1, .events = POLLIN};
        for (size_t i = 0; i < links; i++) {
            at_links[2 * i] = watch_end(forward->links[i], CLIENT);
            at_links[2 * i + 1] = watch_end(forward->links[i], INSIDE);
        }
        if (poll(fds, 1 + ports + 2 * links, -1) < 0)
            continue; /* a signal */
        if (fds[0].revents)
            return CAY_OK;
        serve_links(forward, at_links);
        for (size_t i = 0; i < ports; i++)
            if (at_ports[i].revents && forward->link_count < LINKS_MAX)
                accept_link(forward, &forward->ports[i]);
    }
}

/* --- Opening --- */

static int watch_life(struct forward *forward, struct cay_error *err)
{
    struct cay_sandbox_info info;

    TRY(cay_sandbox_inspect(forward->sandbox, &info, err));
    if (!info.init_pid)
        return cay_fail(err, CAY_E_BUSY, 0, op, info.id, "the sandbox is stopped",
                        "start it first");
    if (!(info.layers & CAY_LAYER_NETWORK))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, info.id,
                        "the sandbox uses the network of this machine",
                        "connect to its ports on this machine");
    forward->life = (int)syscall(SYS_pidfd_open, info.init_pid, 0);
    return forward->life < 0 ? cay_fail_errno(err, errno, op, info.id) : CAY_OK;
}

static void close_forward(struct forward *forward)
{
    while (forward->link_count)
        close_link(forward, 0);
    while (forward->port_count)
        (void)close(forward->ports[--forward->port_count].fd);
    if (forward->life >= 0)
        (void)close(forward->life);
    free(forward);
}

static int open_forward(cay_sandbox *sandbox, const char *const *texts, size_t count,
                        struct forward **ret_forward, struct cay_error *err)
{
    struct forward *forward = calloc(1, sizeof *forward);

    if (!forward)
        return cay_fail_memory(err, op);
    forward->sandbox = sandbox;
    forward->life = -1;
    int code = count <= PORTS_MAX
                   ? watch_life(forward, err)
                   : cay_fail(err, CAY_E_LIMIT, 0, op, "ports", "too many ports",
                              "give at most %d", PORTS_MAX);
    for (size_t i = 0; !code && i < count; i++) {
        code = open_port(texts[i], &forward->ports[i], err);
        forward->port_count += !code;
    }
    if (code)
        close_forward(forward);
    else
        *ret_forward = forward;
    return code;
}

/* For cay port. */
static int record_ports(const struct forward *forward, pid_t pid, struct cay_error *err)
{
    struct cay_port ports[PORTS_MAX] = {0};

    for (size_t i = 0; i < forward->port_count; i++) {
        ports[i].inside = forward->ports[i].inside;
        ports[i].port = forward->ports[i].outside;
        cay_copy_text(ports[i].address, sizeof ports[i].address, forward->ports[i].host);
    }
    return cay_sandbox_add_ports(cay_sandbox_id(forward->sandbox), pid, ports,
                                 forward->port_count, err);
}

/* --- In the background --- */

/* Closes all descriptors but those of the ports and of PID 1: an ephemeral sandbox ends
 * when its leash is closed, which this process must not hold. */
static void close_others(const struct forward *forward)
{
    for (int at = 0; at >= 0;) {
        int next = forward->life >= at ? forward->life : -1;
        for (size_t i = 0; i < forward->port_count; i++) {
            int fd = forward->ports[i].fd;
            if (fd >= at && (next < 0 || fd < next))
                next = fd;
        }
        if (next != at)
            (void)syscall(SYS_close_range, at, next < 0 ? ~0u : (unsigned)next - 1, 0);
        at = next < 0 ? -1 : next + 1;
    }
}

/* A handle does not survive fork(2): the child opens its own. */
static _Noreturn void serve_alone(struct forward *forward, const char *id)
{
    sigset_t none;

    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setsid();
    close_others(forward);
    while (open("/dev/null", O_RDWR | O_CLOEXEC) < STDERR_FILENO)
        continue;
    (void)!chdir("/");
    (void)prctl(PR_SET_NAME, "cay-forward");
    if (cay_sandbox_open(id, &forward->sandbox, NULL) == CAY_OK)
        (void)!serve(forward, NULL);
    _exit(0);
}

static int detach(struct forward *forward, struct cay_error *err)
{
    pid_t pid = fork(); /* allow: fork one thread; the child only relays */

    if (pid == 0)
        serve_alone(forward, cay_sandbox_id(forward->sandbox));
    if (pid < 0)
        return cay_fail_errno(err, errno, op, "fork");
    int code = record_ports(forward, pid, err);
    if (code)
        (void)kill(pid, SIGKILL);
    return code;
}

static void show_port(FILE *file, const struct port *port)
{
    bool is_6 = strchr(port->host, ':');

    fprintf(file, "%s%s%s:%u -> %u\n", is_6 ? "[" : "", port->host, is_6 ? "]" : "",
            port->outside, port->inside);
}

int forward_publish(cay_sandbox *sandbox, const struct option_list *ports,
                    struct cay_error *err)
{
    struct forward *forward = NULL;

    if (!ports->count)
        return CAY_OK;
    TRY(open_forward(sandbox, ports->items, ports->count, &forward, err));
    int code = detach(forward, err);
    for (size_t i = 0; !code && i < forward->port_count; i++) {
        fputs("cay: ", stderr);
        show_port(stderr, &forward->ports[i]);
    }
    close_forward(forward);
    return code;
}

/* --- The command --- */

static void put_ports(struct json *json, const struct forward *forward)
{
    for (size_t i = 0; i < forward->port_count; i++) {
        json_put_object(json);
        json_set_text(json, "address", forward->ports[i].host);
        json_set_uint(json, "port", forward->ports[i].outside);
        json_set_uint(json, "inside", forward->ports[i].inside);
        json_put_end(json);
    }
}

static int print_ports(struct call *call, const struct forward *forward,
                       struct cay_error *err)
{
    if (call->options.as_json)
        put_ports(output_list(&call->output, "ports"), forward);
    else
        for (size_t i = 0; i < forward->port_count; i++)
            show_port(call->output.file, &forward->ports[i]);
    return output_finish(&call->output, err);
}

int cmd_forward(struct call *call, struct cay_error *err)
{
    AUTO(cay_sandbox) sandbox = NULL;
    struct forward *forward = NULL;

    TRY(find_sandbox(call->line.arguments[0], &sandbox, err));
    TRY(open_forward(sandbox, call->line.arguments + 1, call->line.count - 1, &forward,
                     err));
    bool is_detached = call->options.detach;
    int code = is_detached ? CAY_OK : record_ports(forward, getpid(), err);
    if (!code)
        code = print_ports(call, forward, err);
    if (!code)
        code = is_detached ? detach(forward, err) : serve(forward, err);
    close_forward(forward);
    return code;
}

/* --- cay port --- */

static void put_port(struct json *json, const void *item)
{
    const struct cay_port *port = item;

    json_set_uint(json, "inside", port->inside);
    json_set_text(json, "listens", *port->listens ? port->listens : NULL);
    json_set_text(json, "address", *port->address ? port->address : NULL);
    json_put_key(json, "port");
    if (port->port)
        json_put_uint(json, port->port);
    else
        json_put_null(json);
}

static void add_port_row(struct table *table, const void *item)
{
    const struct cay_port *port = item;
    bool is_6 = strchr(port->address, ':');

    table_cell(table, "%u", port->inside);
    table_cell(table, "%s", *port->listens ? port->listens : "-");
    if (port->port)
        table_cell(table, "%s%s%s:%u", is_6 ? "[" : "", port->address, is_6 ? "]" : "",
                   port->port);
    else
        table_cell(table, "-");
}

int cmd_port(struct call *call, struct cay_error *err)
{
    static const struct call_list list = {"ports",
                                          "PORT|LISTENS ON|PUBLISHED AT",
                                          sizeof(struct cay_port),
                                          put_port,
                                          add_port_row,
                                          NULL};
    AUTO(cay_sandbox) sandbox = NULL;
    AUTO_FREE struct cay_port *ports = NULL;
    size_t count = 0;

    TRY(find_sandbox(call->line.arguments[0], &sandbox, err));
    TRY(cay_sandbox_list_ports(cay_sandbox_id(sandbox), &ports, &count, err));
    return call_list(call, &list, ports, count, err);
}
