/* SPDX-License-Identifier: Apache-2.0 */

/* TPROXY needs a packet that is on its way to a local process, hence the route that makes
 * every address local (AnyIP).  The rules only collect: a process inside with
 * CAP_NET_ADMIN could change them, and would cut itself off. */
#include "relay/collect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "sys/clone.h"
#include "sys/raw.h"

enum {
    LOOPBACK = 1, /* the index of lo in every namespace */
    BACKLOG = 256,
    PRIORITY_MANGLE = -150,
    HEADER_BYTES = 64, /* of a refused packet */
    REPLY_ROOM = 512
};

/* --- Netlink messages --- */

struct bytes {
    char *data;
    uint32_t room, len;
};

/* Aligned to 4; a message that does not fit is a programming error that the test of the
 * kernel's reply finds. */
static void *add(struct bytes *bytes, const void *data, uint32_t len)
{
    uint32_t padded = NLMSG_ALIGN(len);
    char *at = bytes->data + bytes->len;

    if (bytes->len + padded > bytes->room)
        return bytes->data;
    memset(at, 0, padded);
    if (data)
        memcpy(at, data, len);
    bytes->len += padded;
    return at;
}

static void *begin_message(struct bytes *bytes, unsigned type, unsigned flags,
                           const void *head, uint32_t head_len)
{
    const struct nlmsghdr header = {.nlmsg_type = (uint16_t)type,
                                    .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags)};
    void *message = add(bytes, &header, sizeof header);

    add(bytes, head, head_len);
    return message;
}

static void end_message(struct bytes *bytes, void *message)
{
    struct nlmsghdr *header = message;

    header->nlmsg_len = (uint32_t)(bytes->data + bytes->len - (char *)message);
}

static void add_attribute(struct bytes *bytes, unsigned type, const void *data,
                          uint32_t len)
{
    const struct nlattr head = {.nla_len = (uint16_t)(sizeof head + len),
                                .nla_type = (uint16_t)type};

    add(bytes, &head, sizeof head);
    add(bytes, data, len);
}

static void add_number(struct bytes *bytes, unsigned type, uint32_t number)
{
    uint32_t value = htonl(number);

    add_attribute(bytes, type, &value, sizeof value);
}

static void add_short(struct bytes *bytes, unsigned type, uint16_t number)
{
    uint16_t value = htons(number);

    add_attribute(bytes, type, &value, sizeof value);
}

static void add_text(struct bytes *bytes, unsigned type, const char *text)
{
    add_attribute(bytes, type, text, (uint32_t)strlen(text) + 1);
}

static void *begin_nest(struct bytes *bytes, unsigned type)
{
    const struct nlattr head = {.nla_type = (uint16_t)(type | NLA_F_NESTED)};

    return add(bytes, &head, sizeof head);
}

static void end_nest(struct bytes *bytes, void *nest)
{
    struct nlattr *head = nest;

    head->nla_len = (uint16_t)(bytes->data + bytes->len - (char *)nest);
}

/* --- Routes --- */

static const uint8_t own6[16] = {0xFD, 0, 0x0C, 0xA1, [15] = 2};

/* Without a source address of its own, a connection to 1.2.3.4 would come from 1.2.3.4.
 * getaddrinfo() with AI_ADDRCONFIG needs an address beside 127.0.0.1. */
static void build_routes(struct bytes *bytes)
{
    const struct ifinfomsg link = {
        .ifi_index = LOOPBACK, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    const struct ifaddrmsg address = {
        .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = LOOPBACK};
    const struct rtmsg route = {.rtm_family = AF_INET,
                                .rtm_table = RT_TABLE_MAIN,
                                .rtm_protocol = RTPROT_STATIC,
                                .rtm_scope = RT_SCOPE_HOST,
                                .rtm_type = RTN_LOCAL};
    const uint32_t index = LOOPBACK;

    void *message = begin_message(bytes, RTM_NEWLINK, 0, &link, sizeof link);
    end_message(bytes, message);
    message = begin_message(bytes, RTM_NEWADDR, NLM_F_CREATE, &address, sizeof address);
    add_number(bytes, IFA_LOCAL, COLLECT_OWN);
    end_message(bytes, message);
    message = begin_message(bytes, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_ACK, &route,
                            sizeof route);
    add_attribute(bytes, RTA_OIF, &index, sizeof index);
    add_number(bytes, RTA_PREFSRC, COLLECT_OWN);
    end_message(bytes, message);
}

static void build_routes6(struct bytes *bytes)
{
    const struct ifaddrmsg address = {.ifa_family = AF_INET6,
                                      .ifa_prefixlen = 128,
                                      .ifa_flags = IFA_F_NODAD,
                                      .ifa_index = LOOPBACK};
    const struct rtmsg route = {.rtm_family = AF_INET6,
                                .rtm_table = RT_TABLE_MAIN,
                                .rtm_protocol = RTPROT_STATIC,
                                .rtm_type = RTN_LOCAL};
    const uint32_t index = LOOPBACK;

    void *message =
        begin_message(bytes, RTM_NEWADDR, NLM_F_CREATE, &address, sizeof address);
    add_attribute(bytes, IFA_LOCAL, own6, sizeof own6);
    end_message(bytes, message);
    message = begin_message(bytes, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_ACK, &route,
                            sizeof route);
    add_attribute(bytes, RTA_OIF, &index, sizeof index);
    add_attribute(bytes, RTA_PREFSRC, own6, sizeof own6);
    end_message(bytes, message);
}

/* --- Rules --- */

/* A table for each family: a kernel may lack the second. */
struct family {
    uint8_t protocol, len;
    uint16_t destination; /* its offset in the header */
    const char *table;
    const uint8_t *loopback, *own, *loopback_mask;
};

static const uint8_t loopback4[] = {127, 0, 0, 0}, loopback_mask4[] = {255, 0, 0, 0},
                     listener4[] = {127, 0, 0, 1}, own4[] = {100, 64, 0, 2},
                     loopback6[16] = {[15] = 1},
                     every_bit[16] = {255, 255, 255, 255, 255, 255, 255, 255,
                                      255, 255, 255, 255, 255, 255, 255, 255};

static const struct family four = {NFPROTO_IPV4,  4, 16, "cay", loopback4, own4,
                                   loopback_mask4},
                           six = {NFPROTO_IPV6, 16,   24,       "cay6",
                                  loopback6,    own6, every_bit};

static const char chain[] = "prerouting";

static void *begin_nft(struct bytes *bytes, unsigned type, unsigned flags)
{
    const struct nfgenmsg head = {.nfgen_family = NFPROTO_INET};

    return begin_message(bytes, NFNL_SUBSYS_NFTABLES << 8 | type, flags, &head,
                         sizeof head);
}

/* An expression is { name, data { attributes } }, in a list of elements. */
struct expression {
    void *element, *data;
};

static struct expression begin_expression(struct bytes *bytes, const char *name)
{
    struct expression expression = {.element = begin_nest(bytes, NFTA_LIST_ELEM)};

    add_text(bytes, NFTA_EXPR_NAME, name);
    expression.data = begin_nest(bytes, NFTA_EXPR_DATA);
    return expression;
}

static void end_expression(struct bytes *bytes, struct expression expression)
{
    end_nest(bytes, expression.data);
    end_nest(bytes, expression.element);
}

static void add_data(struct bytes *bytes, unsigned type, const void *data, uint32_t len)
{
    void *nest = begin_nest(bytes, type);

    add_attribute(bytes, NFTA_DATA_VALUE, data, len);
    end_nest(bytes, nest);
}

static void load_meta(struct bytes *bytes, uint32_t key)
{
    struct expression meta = begin_expression(bytes, "meta");

    add_number(bytes, NFTA_META_KEY, key);
    add_number(bytes, NFTA_META_DREG, NFT_REG_1);
    end_expression(bytes, meta);
}

static void load_payload(struct bytes *bytes, uint32_t base, uint32_t offset,
                         uint32_t len)
{
    struct expression payload = begin_expression(bytes, "payload");

    add_number(bytes, NFTA_PAYLOAD_DREG, NFT_REG_1);
    add_number(bytes, NFTA_PAYLOAD_BASE, base);
    add_number(bytes, NFTA_PAYLOAD_OFFSET, offset);
    add_number(bytes, NFTA_PAYLOAD_LEN, len);
    end_expression(bytes, payload);
}

static void mask(struct bytes *bytes, const void *bits, uint32_t len)
{
    static const char zeros[16];
    struct expression bitwise = begin_expression(bytes, "bitwise");

    add_number(bytes, NFTA_BITWISE_SREG, NFT_REG_1);
    add_number(bytes, NFTA_BITWISE_DREG, NFT_REG_1);
    add_number(bytes, NFTA_BITWISE_LEN, len);
    add_data(bytes, NFTA_BITWISE_MASK, bits, len);
    add_data(bytes, NFTA_BITWISE_XOR, zeros, len);
    end_expression(bytes, bitwise);
}

static void compare(struct bytes *bytes, const void *value, uint32_t len)
{
    struct expression compare = begin_expression(bytes, "cmp");

    add_number(bytes, NFTA_CMP_SREG, NFT_REG_1);
    add_number(bytes, NFTA_CMP_OP, NFT_CMP_EQ);
    add_data(bytes, NFTA_CMP_DATA, value, len);
    end_expression(bytes, compare);
}

static void match_meta(struct bytes *bytes, uint32_t key, uint8_t value)
{
    load_meta(bytes, key);
    compare(bytes, &value, sizeof value);
}

static void set_register(struct bytes *bytes, uint32_t number, const void *data,
                         uint32_t len)
{
    struct expression immediate = begin_expression(bytes, "immediate");

    add_number(bytes, NFTA_IMMEDIATE_DREG, number);
    add_data(bytes, NFTA_IMMEDIATE_DATA, data, len);
    end_expression(bytes, immediate);
}

static void accept_packet(struct bytes *bytes)
{
    struct expression immediate = begin_expression(bytes, "immediate");

    add_number(bytes, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    void *data = begin_nest(bytes, NFTA_IMMEDIATE_DATA);
    void *verdict = begin_nest(bytes, NFTA_DATA_VERDICT);
    add_number(bytes, NFTA_VERDICT_CODE, NF_ACCEPT);
    end_nest(bytes, verdict);
    end_nest(bytes, data);
    end_expression(bytes, immediate);
}

static void refuse_packet(struct bytes *bytes, uint8_t why)
{
    struct expression reject = begin_expression(bytes, "reject");

    add_number(bytes, NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH);
    add_attribute(bytes, NFTA_REJECT_ICMP_CODE, &why, sizeof why);
    end_expression(bytes, reject);
}

static void log_packet(struct bytes *bytes)
{
    struct expression log = begin_expression(bytes, "log");

    add_short(bytes, NFTA_LOG_GROUP, COLLECT_LOG_GROUP);
    end_expression(bytes, log);
}

/* "tproxy to :1" would take the interface's first address. */
static void hand_to_listener(struct bytes *bytes, const struct family *family)
{
    const uint16_t port = htons(COLLECT_PORT);

    set_register(bytes, NFT_REG_1, family->len == 4 ? listener4 : loopback6, family->len);
    set_register(bytes, NFT_REG_2, &port, sizeof port);
    struct expression tproxy = begin_expression(bytes, "tproxy");
    add_number(bytes, NFTA_TPROXY_FAMILY, family->protocol);
    add_number(bytes, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
    add_number(bytes, NFTA_TPROXY_REG_PORT, NFT_REG_2);
    end_expression(bytes, tproxy);
    accept_packet(bytes);
}

struct rule {
    void *message, *list;
};

static struct rule begin_rule(struct bytes *bytes, const struct family *family,
                              unsigned flags)
{
    struct rule rule = {.message = begin_nft(bytes, NFT_MSG_NEWRULE,
                                             NLM_F_CREATE | NLM_F_APPEND | flags)};

    add_text(bytes, NFTA_RULE_TABLE, family->table);
    add_text(bytes, NFTA_RULE_CHAIN, chain);
    rule.list = begin_nest(bytes, NFTA_RULE_EXPRESSIONS);
    match_meta(bytes, NFT_META_NFPROTO, family->protocol);
    return rule;
}

static void end_rule(struct bytes *bytes, struct rule rule)
{
    end_nest(bytes, rule.list);
    end_message(bytes, rule.message);
}

/* Packets to the sandbox's own addresses, replies included. */
static void accept_address(struct bytes *bytes, const struct family *family,
                           const uint8_t *address, const uint8_t *netmask)
{
    struct rule rule = begin_rule(bytes, family, 0);

    load_payload(bytes, NFT_PAYLOAD_NETWORK_HEADER, family->destination, family->len);
    mask(bytes, netmask, family->len);
    compare(bytes, address, family->len);
    accept_packet(bytes);
    end_rule(bytes, rule);
}

static void build_chain(struct bytes *bytes, const struct family *family)
{
    void *message = begin_nft(bytes, NFT_MSG_NEWTABLE, NLM_F_CREATE);

    add_text(bytes, NFTA_TABLE_NAME, family->table);
    end_message(bytes, message);
    message = begin_nft(bytes, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    add_text(bytes, NFTA_CHAIN_TABLE, family->table);
    add_text(bytes, NFTA_CHAIN_NAME, chain);
    void *hook = begin_nest(bytes, NFTA_CHAIN_HOOK);
    add_number(bytes, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
    add_number(bytes, NFTA_HOOK_PRIORITY, (uint32_t)PRIORITY_MANGLE);
    end_nest(bytes, hook);
    add_text(bytes, NFTA_CHAIN_TYPE, "filter");
    end_message(bytes, message);
}

static void accept_dns(struct bytes *bytes, const struct family *family)
{
    const uint16_t dns = htons(53);
    struct rule rule = begin_rule(bytes, family, 0);

    match_meta(bytes, NFT_META_L4PROTO, IPPROTO_UDP);
    load_payload(bytes, NFT_PAYLOAD_TRANSPORT_HEADER, 2, sizeof dns);
    compare(bytes, &dns, sizeof dns);
    accept_packet(bytes);
    end_rule(bytes, rule);
}

static void build_protocols(struct bytes *bytes, const struct family *family)
{
    struct rule rule = begin_rule(bytes, family, 0);

    match_meta(bytes, NFT_META_L4PROTO, IPPROTO_TCP);
    hand_to_listener(bytes, family);
    end_rule(bytes, rule);
    if (family == &four) /* the nameserver inside has no other address */
        accept_dns(bytes, family);
    rule = begin_rule(bytes, family, 0);
    log_packet(bytes);
    end_rule(bytes, rule);
    rule = begin_rule(bytes, family, 0);
    match_meta(bytes, NFT_META_L4PROTO, IPPROTO_UDP);
    refuse_packet(bytes, NFT_REJECT_ICMPX_PORT_UNREACH);
    end_rule(bytes, rule);
    rule = begin_rule(bytes, family, NLM_F_ACK);
    refuse_packet(bytes, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
    end_rule(bytes, rule);
}

/* The batch carries no generation id, so that the same bytes fit every namespace. */
static void build_rules(struct bytes *bytes, const struct family *family)
{
    const struct nfgenmsg head = {.res_id = htons(NFNL_SUBSYS_NFTABLES)};

    void *message = begin_message(bytes, NFNL_MSG_BATCH_BEGIN, 0, &head, sizeof head);
    end_message(bytes, message);
    build_chain(bytes, family);
    accept_address(bytes, family, family->loopback, family->loopback_mask);
    accept_address(bytes, family, family->own, every_bit);
    build_protocols(bytes, family);
    message = begin_message(bytes, NFNL_MSG_BATCH_END, 0, &head, sizeof head);
    end_message(bytes, message);
}

void collect_build(struct collect *ret_collect)
{
    struct bytes routes = {.data = ret_collect->routes,
                           .room = sizeof ret_collect->routes},
                 rules = {.data = ret_collect->rules, .room = sizeof ret_collect->rules},
                 routes6 = {.data = ret_collect->routes6,
                            .room = sizeof ret_collect->routes6},
                 rules6 = {.data = ret_collect->rules6,
                           .room = sizeof ret_collect->rules6};

    build_routes(&routes);
    build_rules(&rules, &four);
    build_routes6(&routes6);
    build_rules(&rules6, &six);
    ret_collect->routes_len = routes.len;
    ret_collect->rules_len = rules.len;
    ret_collect->routes6_len = routes6.len;
    ret_collect->rules6_len = rules6.len;
}

const char *collect_step_text(enum collect_step step)
{
    static const char *const texts[] = {[COLLECT_STEP_ROUTES] = "local routes",
                                        [COLLECT_STEP_RULES] =
                                            "nf_tables rules with tproxy, reject and log",
                                        [COLLECT_STEP_TCP] = "a transparent TCP socket",
                                        [COLLECT_STEP_DNS] = "a UDP socket on port 53",
                                        [COLLECT_STEP_LOG] = "an NFLOG socket",
                                        [COLLECT_STEP_TCP6] = "a socket",
                                        [COLLECT_STEP_DIAG] = "a socket"};

    return texts[step];
}

/* --- In the namespace: raw calls only --- */

IN_CLONE static long open_netlink(int protocol)
{
    return raw_call(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol, 0, 0);
}

/* The kernel replies before send(2) returns: with an error for each message that fails,
 * and with 0 for one that asks for a reply. */
IN_CLONE static long exchange(long fd, const void *bytes, uint32_t len)
{
    char reply[REPLY_ROOM] __attribute__((aligned(4))) = {0};
    long sent = raw_call6(SYS_sendto, fd, (long)bytes, len, 0, 0, 0);

    if (sent < 0)
        return sent;
    long got = raw_call6(SYS_recvfrom, fd, (long)reply, sizeof reply, MSG_DONTWAIT, 0, 0);
    if (got < 0)
        return got;
    for (long at = 0; at + (long)NLMSG_HDRLEN <= got;) {
        struct nlmsghdr *header = (struct nlmsghdr *)(reply + at);
        if (header->nlmsg_type != NLMSG_ERROR || header->nlmsg_len < NLMSG_HDRLEN + 4)
            return -EPROTO;
        int error = *(const int *)NLMSG_DATA(header);
        if (error)
            return error;
        at += NLMSG_ALIGN(header->nlmsg_len);
    }
    return 0;
}

IN_CLONE static long send_batch(int protocol, const void *bytes, uint32_t len)
{
    long fd = open_netlink(protocol);

    if (fd < 0)
        return fd;
    long error = exchange(fd, bytes, len);
    (void)raw_call(SYS_close, fd, 0, 0, 0, 0);
    return error;
}

IN_CLONE static long bind_to(long fd, uint32_t address, uint16_t port)
{
    const struct sockaddr_in name = {.sin_family = AF_INET,
                                     .sin_port = (in_port_t)htons(port),
                                     .sin_addr.s_addr = htonl(address)};

    return raw_call(SYS_bind, fd, (long)&name, sizeof name, 0, 0);
}

IN_CLONE static long set_option(long fd, int level, int option)
{
    const int on = 1;

    return raw_call(SYS_setsockopt, fd, level, option, (long)&on, sizeof on);
}

IN_CLONE static long start_tcp(long fd)
{
    long error = set_option(fd, SOL_IP, IP_TRANSPARENT);

    if (!error)
        error = bind_to(fd, INADDR_LOOPBACK, COLLECT_PORT);
    return error ? error : raw_call(SYS_listen, fd, BACKLOG, 0, 0, 0);
}

/* If it fails, the socket stays one that does not listen. */
IN_CLONE static long start_tcp6(const struct collect *collect, long fd)
{
    const struct sockaddr_in6 name = {.sin6_family = AF_INET6,
                                      .sin6_port = (in_port_t)htons(COLLECT_PORT),
                                      .sin6_addr.s6_addr = {[15] = 1}};
    long error = set_option(fd, SOL_IPV6, IPV6_TRANSPARENT);

    if (!error)
        error = set_option(fd, SOL_IPV6, IPV6_V6ONLY);
    if (!error)
        error = raw_call(SYS_bind, fd, (long)&name, sizeof name, 0, 0);
    if (!error)
        error = send_batch(NETLINK_NETFILTER, collect->rules6, collect->rules6_len);
    if (!error)
        error = send_batch(NETLINK_ROUTE, collect->routes6, collect->routes6_len);
    if (!error)
        (void)raw_call(SYS_listen, fd, BACKLOG, 0, 0, 0);
    return 0;
}

IN_CLONE static long start_dns(long fd)
{
    long error = set_option(fd, SOL_IP, IP_PKTINFO);

    return error ? error : bind_to(fd, INADDR_ANY, 53);
}

/* Without a threshold of 1 the kernel reports packets a second late. */
IN_CLONE static long start_log(long fd)
{
    struct {
        struct nlmsghdr header;
        struct nfgenmsg head;
        struct nlattr bind_head;
        struct nfulnl_msg_config_cmd bind;
        char bind_padding[3];
        struct nlattr mode_head;
        struct nfulnl_msg_config_mode mode;
        char mode_padding[2];
        struct nlattr threshold_head;
        uint32_t threshold;
    } message = {
        .header = {.nlmsg_len = sizeof message,
                   .nlmsg_type = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .head = {.nfgen_family = AF_UNSPEC, .res_id = htons(COLLECT_LOG_GROUP)},
        .bind_head = {sizeof(struct nlattr) + sizeof message.bind, NFULA_CFG_CMD},
        .bind = {NFULNL_CFG_CMD_BIND},
        .mode_head = {sizeof(struct nlattr) + sizeof message.mode, NFULA_CFG_MODE},
        .mode = {.copy_range = htonl(HEADER_BYTES), .copy_mode = NFULNL_COPY_PACKET},
        .threshold_head = {sizeof(struct nlattr) + sizeof message.threshold,
                           NFULA_CFG_QTHRESH},
        .threshold = htonl(1),
    };

    return exchange(fd, &message, sizeof message);
}

IN_CLONE static long start_socket(const struct collect *collect,
                                  enum collect_socket which, long fd)
{
    return which == COLLECT_TCP    ? start_tcp(fd)
           : which == COLLECT_TCP6 ? start_tcp6(collect, fd)
           : which == COLLECT_DNS  ? start_dns(fd)
           : which == COLLECT_LOG  ? start_log(fd)
                                   : 0;
}

IN_CLONE static long open_ip(int family, int type)
{
    return raw_call(SYS_socket, family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0, 0);
}

IN_CLONE static long open_socket(const struct collect *collect, enum collect_socket which)
{
    long fd = which == COLLECT_LOG    ? open_netlink(NETLINK_NETFILTER)
              : which == COLLECT_DIAG ? open_netlink(NETLINK_SOCK_DIAG)
              : which == COLLECT_TCP6 ? open_ip(AF_INET6, SOCK_STREAM)
              : which == COLLECT_TCP  ? open_ip(AF_INET, SOCK_STREAM)
                                      : open_ip(AF_INET, SOCK_DGRAM);
    if (fd < 0 && (which == COLLECT_TCP6 || which == COLLECT_DIAG))
        return open_ip(AF_INET, SOCK_STREAM);
    long error = fd < 0 ? fd : start_socket(collect, which, fd);

    if (error && fd >= 0)
        (void)raw_call(SYS_close, fd, 0, 0, 0, 0);
    return error ? error : fd;
}

IN_CLONE int collect_start(const struct collect *collect,
                           int ret_sockets[COLLECT_SOCKETS], enum collect_step *ret_step)
{
    *ret_step = COLLECT_STEP_ROUTES;
    long error = send_batch(NETLINK_ROUTE, collect->routes, collect->routes_len);
    if (!error) {
        *ret_step = COLLECT_STEP_RULES;
        error = send_batch(NETLINK_NETFILTER, collect->rules, collect->rules_len);
    }
    for (int i = 0; i < COLLECT_SOCKETS; i++)
        ret_sockets[i] = -1;
    for (int i = 0; i < COLLECT_SOCKETS && error >= 0; i++) {
        *ret_step = (enum collect_step)(COLLECT_STEP_TCP + i);
        error = open_socket(collect, (enum collect_socket)i);
        ret_sockets[i] = error < 0 ? -1 : (int)error;
    }
    for (int i = 0; i < COLLECT_SOCKETS && error < 0; i++) {
        if (ret_sockets[i] >= 0)
            (void)raw_call(SYS_close, ret_sockets[i], 0, 0, 0, 0);
        ret_sockets[i] = -1;
    }
    return error < 0 ? (int)error : 0;
}
