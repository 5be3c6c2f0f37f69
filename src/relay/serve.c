/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "relay/member.h"

enum { PACKETS = 64 /* at a time */, EVENTS = 32 };

/* --- DNS --- */

static void report_name(struct server *server, const struct dns_question *question,
                        const struct network_answer *answer,
                        const struct owner_flow *flow)
{
    struct relay_event event = {.kind = RELAY_EVENT_NAME,
                                .verdict = NETWORK_DENY,
                                .protocol = IPPROTO_UDP,
                                .port = 53};

    cay_copy_text(event.name, sizeof event.name, question->name);
    cay_copy_text(event.rule, sizeof event.rule, answer->rule);
    server->counts.refused++;
    events_write(server, &event, owner_ask(server, flow));
}

static struct dns_answer answer_pointer(const struct server *server, const char *name)
{
    const struct named *named = hosts_find(&server->hosts, dns_reverse_address(name));

    return (struct dns_answer){.code = named ? DNS_OK : DNS_NO_NAME,
                               .name = named ? named->name : NULL};
}

/* Nothing is looked up for a question: a name that is allowed has an address at once, and
 * no other type has records, so no byte of a question leaves the host. */
static struct dns_answer answer_question(struct server *server,
                                         const struct dns_question *question,
                                         const struct owner_flow *flow)
{
    char name[NETWORK_NAME_MAX];
    struct network_answer answer;
    struct dns_answer by_member;

    if (!question->is_internet)
        return (struct dns_answer){.code = DNS_UNSUPPORTED};
    if (question->type == DNS_TYPE_PTR)
        return answer_pointer(server, question->name);
    if (member_answer(server, question, &by_member))
        return by_member;
    network_check_name(server->rules, question->name, 0, &answer);
    if ((answer.verdict == NETWORK_DENY && !answer.may_ask) ||
        network_name_clean(question->name, strlen(question->name), name)) {
        report_name(server, question, &answer, flow);
        return (struct dns_answer){.code = DNS_NO_NAME, .is_forbidden = true};
    }
    if (question->type != DNS_TYPE_A)
        return (struct dns_answer){.code = DNS_OK};
    uint32_t address = hosts_address(&server->hosts, name);
    server->counts.names = (uint32_t)server->hosts.count;
    return (struct dns_answer){.code = address ? DNS_OK : DNS_FAILED, .address = address};
}

size_t server_answer(struct server *server, const uint8_t *message, size_t len,
                     const struct owner_flow *flow, uint8_t ret_reply[DNS_MESSAGE_MAX])
{
    struct dns_question question;

    if (!dns_read_question(message, len, &question))
        return 0;
    struct dns_answer answer = answer_question(server, &question, flow);
    return dns_write_reply(message, &question, &answer, ret_reply);
}

/* The address that the client asked, from which a reply with this message comes; or
 * NULL. */
static struct in_pktinfo *take_info(struct msghdr *message)
{
    struct cmsghdr *head = CMSG_FIRSTHDR(message);

    if (!head || head->cmsg_level != SOL_IP || head->cmsg_type != IP_PKTINFO)
        return NULL;
    struct in_pktinfo *info = (struct in_pktinfo *)CMSG_DATA(head);
    info->ipi_spec_dst = info->ipi_addr;
    info->ipi_ifindex = 0;
    return info;
}

static void fill_end(struct owner_end *end, const struct in_addr *address, uint16_t port)
{
    *end = (struct owner_end){.address.len = 4, .port = port};
    memcpy(end->address.bytes, address, 4);
}

static void on_dns(struct server *server, struct source *source, uint32_t events)
{
    uint8_t bytes[DNS_MESSAGE_MAX], reply[DNS_MESSAGE_MAX];
    char control[CMSG_SPACE(sizeof(struct in_pktinfo))];
    struct sockaddr_in from;

    (void)events;
    for (int i = 0; i < PACKETS; i++) {
        struct iovec part = {bytes, sizeof bytes};
        struct msghdr message = {.msg_name = &from,
                                 .msg_namelen = sizeof from,
                                 .msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof control};
        ssize_t got = recvmsg(source->fd, &message, MSG_DONTWAIT);
        if (got < 0)
            return;
        struct in_pktinfo *info = take_info(&message);
        if (message.msg_flags & MSG_TRUNC || !info)
            continue;
        struct owner_flow flow = {.protocol = IPPROTO_UDP};
        fill_end(&flow.client, &from.sin_addr, ntohs(from.sin_port));
        fill_end(&flow.peer, &info->ipi_addr, 53);
        size_t len = server_answer(server, bytes, (size_t)got, &flow, reply);
        part = (struct iovec){reply, len};
        if (len)
            (void)!sendmsg(source->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* --- Refused packets --- */

static void report_packet(struct server *server, const uint8_t *bytes, size_t len)
{
    struct relay_event event = {.kind = RELAY_EVENT_PACKET, .verdict = NETWORK_DENY};
    enum { HEAD4 = 20, HEAD6 = 40 };

    bool is_six = len >= HEAD6 && bytes[0] >> 4 == 6;
    if (len < HEAD4 || (!is_six && bytes[0] >> 4 != 4))
        return;
    size_t at = is_six ? HEAD6 : (bytes[0] & 0xF) * 4u;
    uint8_t size = is_six ? 16 : 4;
    struct owner_flow flow = {.protocol = bytes[is_six ? 6 : 9],
                              .client.address.len = size,
                              .peer.address.len = size};
    bool has_ports = flow.protocol == IPPROTO_UDP && at >= HEAD4 && at + 4 <= len;
    memcpy(flow.client.address.bytes, bytes + (is_six ? 8 : 12), size);
    memcpy(flow.peer.address.bytes, bytes + (is_six ? 24 : 16), size);
    if (has_ports) {
        flow.client.port = (uint16_t)(bytes[at] << 8 | bytes[at + 1]);
        flow.peer.port = (uint16_t)(bytes[at + 2] << 8 | bytes[at + 3]);
    }
    event.protocol = (uint8_t)flow.protocol;
    event.address = flow.peer.address;
    event.port = flow.peer.port;
    cay_copy_text(event.rule, sizeof event.rule, "default");
    server->counts.refused++;
    events_write(server, &event, has_ports ? owner_ask(server, &flow) : 0);
}

/* A message of the kernel. */
static void read_log(struct server *server, const uint8_t *bytes, size_t len)
{
    struct nlmsghdr head;
    struct nlattr attribute;

    if (len < sizeof head)
        return;
    memcpy(&head, bytes, sizeof head);
    if (head.nlmsg_type != (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET) ||
        head.nlmsg_len > len)
        return;
    for (size_t at = sizeof head + sizeof(struct nfgenmsg);
         at + sizeof attribute <= head.nlmsg_len;
         at += (size_t)NLA_ALIGN(attribute.nla_len)) {
        memcpy(&attribute, bytes + at, sizeof attribute);
        if (attribute.nla_len < sizeof attribute ||
            attribute.nla_len > head.nlmsg_len - at)
            return;
        if ((attribute.nla_type & NLA_TYPE_MASK) == NFULA_PAYLOAD)
            report_packet(server, bytes + at + sizeof attribute,
                          attribute.nla_len - sizeof attribute);
    }
}

static void on_log(struct server *server, struct source *source, uint32_t events)
{
    uint8_t bytes[1024];

    (void)events;
    for (int i = 0; i < PACKETS; i++) {
        struct sockaddr_nl from = {0};
        socklen_t len = sizeof from;
        ssize_t got = recvfrom(source->fd, bytes, sizeof bytes, MSG_DONTWAIT,
                               (struct sockaddr *)&from, &len);
        if (got < 0)
            return;           /* ENOBUFS: some were lost */
        if (from.nl_pid == 0) /* from the kernel */
            read_log(server, bytes, (size_t)got);
    }
}

/* --- The loop --- */

static void on_init(struct server *server, struct source *source, uint32_t events)
{
    (void)server;
    (void)source;
    (void)events;
    _exit(0); /* PID 1 has ended, and the sandbox with it */
}

int server_watch(struct server *server, struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    return epoll_ctl(server->epoll, EPOLL_CTL_ADD, source->fd, &event) == 0 ? 0 : -errno;
}

/* Each connection outside occupies a port of the host for a minute after its end: a
 * burst, and then so many a second. */
bool server_may_accept(struct server *server)
{
    enum { BURST = 1000, PER_SECOND = 200, SECOND_MS = 1000 };
    uint64_t now = clock_ms(), passed = now - server->accept_refilled_ms;

    if (passed >= SECOND_MS / PER_SECOND) {
        uint64_t tokens = server->accept_refilled_ms
                              ? server->accept_tokens + passed * PER_SECOND / SECOND_MS
                              : BURST;
        server->accept_tokens = (uint32_t)(tokens < BURST ? tokens : BURST);
        server->accept_refilled_ms = now;
    }
    if (!server->accept_tokens)
        server->accept_at_ms = now + SECOND_MS / PER_SECOND;
    return server->accept_tokens && server->accept_at_ms <= now &&
           server->counts.links < server->links_max;
}

/* Otherwise new connections wait in the socket's queue. */
void server_accept_again(struct server *server)
{
    bool may_accept = server_may_accept(server);

    if (may_accept == server->is_accepting)
        return;
    server->is_accepting = may_accept;
    struct source *const listeners[] = {&server->tcp, &server->tcp6};
    for (size_t i = 0; i < sizeof listeners / sizeof *listeners; i++)
        if (listeners[i]->fd >= 0 && may_accept)
            (void)server_watch(server, listeners[i], EPOLLIN);
        else if (listeners[i]->fd >= 0)
            (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, listeners[i]->fd, NULL);
}

static bool is_listening(int fd)
{
    int is_listening = 0;
    socklen_t len = sizeof is_listening;

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) == 0 &&
           is_listening;
}

/* As many as there are descriptors for: two sockets and two pipes each, and a lookup. */
static int set_links_max(struct server *server)
{
    enum { OTHERS = 128 };
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return -errno;
    if (files.rlim_max < OTHERS + RELAY_LINK_FDS)
        return -EMFILE;
    rlim_t most = (files.rlim_max - OTHERS) / RELAY_LINK_FDS;
    server->links_max = most < RELAY_LINKS_MAX ? (uint32_t)most : RELAY_LINKS_MAX;
    return 0;
}

int server_init(struct server *server, const int fds[RELAY_FDS],
                const struct relay_start *start)
{
    server->tcp = (struct source){link_accept, fds[COLLECT_TCP]};
    server->tcp6 = (struct source){
        link_accept, is_listening(fds[COLLECT_TCP6]) ? fds[COLLECT_TCP6] : -1};
    server->dns = (struct source){on_dns, fds[COLLECT_DNS]};
    server->log = (struct source){on_log, fds[COLLECT_LOG]};
    server->control = (struct source){control_accept, fds[RELAY_CONTROL]};
    server->init = (struct source){on_init, fds[RELAY_INIT]};
    server->opener =
        (struct source){hand_over_events, start->has_opener ? fds[RELAY_OPENER] : -1};
    server->owners =
        (struct source){owner_replies, start->has_owners ? fds[RELAY_OWNERS] : -1};
    server->diag = fds[COLLECT_DIAG];
    server->events_file = fds[RELAY_EVENTS];
    server->next_deadline_ms = UINT64_MAX;
    server->is_accepting = true;
    int error = set_links_max(server);
    if (error)
        return error;
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll < 0)
        return -errno;
    struct source *const sources[] = {&server->tcp,    &server->dns,     &server->log,
                                      &server->tcp6,   &server->control, &server->init,
                                      &server->opener, &server->owners};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        error = sources[i]->fd >= 0 ? server_watch(server, sources[i], EPOLLIN) : 0;
        if (error)
            return error;
    }
    return 0;
}

static int timeout_of(const struct server *server)
{
    uint64_t now = clock_ms(), next = server->next_deadline_ms;

    if (!server->is_accepting && server->accept_at_ms > now &&
        server->accept_at_ms < next)
        next = server->accept_at_ms;
    if (server->has_waiting) {
        if (server->limiter.open_at_ms <= now)
            return 0;
        if (server->limiter.open_at_ms < next)
            next = server->limiter.open_at_ms;
    }
    if (next <= now)
        return 0;
    if (next == UINT64_MAX)
        return -1;
    uint64_t left = next - now;
    return left < INT32_MAX ? (int)left + 1 : INT32_MAX;
}

_Noreturn void server_run(struct server *server)
{
    struct epoll_event events[EVENTS];

    for (;;) {
        int count = epoll_wait(server->epoll, events, EVENTS, timeout_of(server));
        if (count < 0 && errno != EINTR)
            _exit(1);
        for (int i = 0; i < count; i++) {
            struct source *source = events[i].data.ptr;
            source->ready(server, source, events[i].events);
        }
        if (server->has_waiting)
            link_relay_waiting(server);
        link_check_deadlines(server, clock_ms());
        if (server->has_dead)
            link_free_dead(server);
        server_accept_again(server);
    }
}
