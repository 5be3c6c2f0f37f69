/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_COLLECT_H
#define RELAY_COLLECT_H

#include <stdint.h>

/* Collects what a network namespace sends.  Every address becomes local there; each TCP
 * connection lands on one listening socket (of IPv6, on another), each DNS question on a
 * third, and every other packet is refused at once and reported on a fourth.  The process
 * that holds the sockets decides what becomes of them; nothing in the namespace leads
 * out.  Without IPv6 in the kernel the rest works alone. */

#define COLLECT_OWN_ADDRESS        "100.64.0.2" /* the sandbox's own address */
#define COLLECT_OWN_ADDRESS6       "fd00:ca1::2"
#define COLLECT_NAMESERVER_ADDRESS "100.64.0.1" /* for /etc/resolv.conf */

enum {
    COLLECT_OWN = 0x64400002, /* the two as numbers */
    COLLECT_NAMESERVER = 0x64400001,
    COLLECT_PORT = 1,     /* of the listening sockets, on 127.0.0.1 and ::1 */
    COLLECT_LOG_GROUP = 7 /* of the third socket */
};

enum collect_socket {
    COLLECT_TCP,  /* getsockname(2) of an accepted connection is its destination */
    COLLECT_DNS,  /* IP_PKTINFO has the address of the nameserver that was asked */
    COLLECT_LOG,  /* NFLOG: the headers of refused packets */
    COLLECT_TCP6, /* not listening (SO_ACCEPTCONN) where there is no IPv6 */
    COLLECT_DIAG, /* sock_diag(7): which socket a client has; or one that fails */
    COLLECT_SOCKETS
};

/* The messages to the kernel.  They are built ahead, since the process that sends them
 * may be a clone that shares the memory of another. */
struct collect {
    uint32_t routes_len, rules_len, routes6_len, rules6_len;
    char routes[256], rules[3072], routes6[256], rules6[3072];
};

void collect_build(struct collect *ret_collect);

/* The step that failed, for an error message and for cay doctor. */
enum collect_step {
    COLLECT_STEP_ROUTES,
    COLLECT_STEP_RULES,
    COLLECT_STEP_TCP,
    COLLECT_STEP_DNS,
    COLLECT_STEP_LOG,
    COLLECT_STEP_TCP6,
    COLLECT_STEP_DIAG
};

const char *collect_step_text(enum collect_step step);

/* Configures the calling process's network namespace; needs CAP_NET_ADMIN over it.  Only
 * raw system calls.  0 and the sockets, or a negative errno and the step. */
int collect_start(const struct collect *collect, int ret_sockets[COLLECT_SOCKETS],
                  enum collect_step *ret_step);

#endif
