/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_RELAY_H
#define RELAY_RELAY_H

#include <stddef.h>
#include <stdint.h>

#include "network/rules.h"
#include "relay/collect.h"

/* Between the library and cay-net, the process that relays the connections of one
 * sandbox.  It starts with RELAY_FD, a SOCK_SEQPACKET socket, receives one relay_start
 * with its descriptors and replies when it is confined and serves.  After that it accepts
 * requests on its control socket. */

enum {
    RELAY_VERSION = 1,
    RELAY_FD = 3,
    RELAY_NAMESERVERS_MAX = 3,
    RELAY_LINKS_MAX = NETWORK_CONNECTIONS_MAX, /* at a time; the next ones wait */
    RELAY_LINK_FDS = 7,                        /* descriptors of one */
    RELAY_MEMBERS_MAX = 256, /* names in the sandbox's networks, its own ones included */
    RELAY_ID_MAX = 32,       /* of a member's texts, with NUL */
    RELAY_NETWORK_MAX = 64,
    RELAY_MEMBER_NAME_MAX = 128,
    RELAY_OPENED_MAX = 64 << 10 /* the names of hosts that have secrets */
};

/* The descriptors of relay_start, after those of enum collect_socket. */
enum {
    RELAY_CONTROL = COLLECT_SOCKETS, /* the listening control socket */
    RELAY_EVENTS,                    /* a file of RELAY_EVENTS_BYTES, see below */
    RELAY_INIT,                      /* a pidfd of PID 1: cay-net ends with it */
    RELAY_OPENER,                    /* a socket to cay-net-tls (tls.h), if has_opener */
    RELAY_OWNERS, /* to PID 1, after MESSAGE_OWNERS_ONLY, if has_owners */
    RELAY_FDS,
    RELAY_TASKS_MAX = 3 /* may follow: "tasks" files of v1 cgroups, which it joins */
};

/* Followed by the rules as network_rules_write() writes them, and by the names of hosts
 * that have secrets, a line for each: connections to them go to cay-net-tls, too. */
struct relay_start {
    uint32_t version;
    uint32_t uid; /* that cay-net runs as, and its gid; 0: unchanged */
    uint32_t nameserver_count;
    uint32_t rules_len, opened_len;
    uint32_t has_opener, has_owners;
    struct network_address nameservers[RELAY_NAMESERVERS_MAX];
};

enum relay_order {
    RELAY_RULES = 1, /* followed by new rules; connections that they do not allow are cut
                        before the reply */
    RELAY_COUNT = 2, /* counts only */
    RELAY_ASKED =
        3, /* the destinations that wait for approval; the reply is relay_asked */
    RELAY_ANSWER = 4,   /* followed by relay_answer */
    RELAY_HEADERS = 16, /* for cay-net-tls: a descriptor as of TLS_ORDER_HEADERS, and
                           their hosts, a line for each */
    RELAY_JOIN = 8      /* followed by relay_join, see below */
};

struct relay_request {
    uint32_t version;
    uint32_t order;
};

/* A name in a named network.  With a descriptor it is another sandbox's: a connection to
 * its PID 1 after MESSAGE_DIAL_ONLY (init/protocol.h).  Without one it is a name of this
 * sandbox, which comes before the members of that network. */
struct relay_join {
    char id[RELAY_ID_MAX];
    char network[RELAY_NETWORK_MAX];
    char name[RELAY_MEMBER_NAME_MAX];
};

/* On that connection: a request for a TCP port on the sandbox's own address, and the
 * reply, with a socket that may still be connecting unless there is an error. */
struct relay_dial {
    uint32_t port;
};

struct relay_dialled {
    int32_t error; /* 0 or a negative errno */
};

/* On the connection to the sandbox's own PID 1: which process inside has this socket?
 * Replies come in order. */
struct relay_owner_request {
    uint64_t inode;
};

struct relay_owner {
    uint32_t pid, uid; /* as they are inside; pid 0: unknown */
    char program[16];  /* the process's name for itself, with NUL */
};

struct relay_counts {
    uint64_t allowed; /* connections */
    uint64_t refused; /* connections, names and packets */
    uint64_t up_bytes, down_bytes;
    uint64_t events, events_lost; /* written, and too many to be written */
    uint32_t links;               /* open now */
    uint32_t names;
};

struct relay_reply {
    uint32_t version;
    int32_t code; /* CAY_... */
    struct relay_counts counts;
    char message[256]; /* of an error */
};

/* --- Approval --- */

/* A destination that connections wait for. */
struct relay_destination {
    char name[NETWORK_NAME_MAX];    /* "": it is the address */
    struct network_address address; /* else len 0 */
    uint16_t port;
    uint8_t is_asked; /* there is a request for approval: RELAY_ANSWER_ASKED */
    uint32_t left_ms; /* until the last connection is refused */
};

enum {
    RELAY_ASKED_MAX = 32,      /* destinations at a time; others are refused */
    RELAY_ASKED_LINKS_MAX = 64 /* connections that wait */
};

struct relay_asked {
    struct relay_reply reply;
    uint32_t count;
    struct relay_destination at[RELAY_ASKED_MAX];
};

enum relay_answer_kind {
    RELAY_ANSWER_ASKED = 0,
    RELAY_ANSWER_YES = 1, /* for the connections that wait now */
    RELAY_ANSWER_NO = 2
};

struct relay_answer {
    uint32_t kind;
    struct relay_destination to;
};

/* --- Events --- */

/* The file of events is a ring of slots.  The event with number N, counted from 1, is in
 * slot N % RELAY_EVENTS_MAX; a slot with another number has been overwritten, or not been
 * written yet. */

enum {
    RELAY_EVENTS_MAX = 1024,
    RELAY_EVENT_BYTES = 512,
    RELAY_EVENT_OWNER = 484, /* the offset of relay_event.owner */
    RELAY_OWNER_MS = 200     /* how long a reader waits for it */
};
#define RELAY_OWNER_PENDING UINT32_MAX /* as pid: it is being looked up */

enum relay_event_kind {
    RELAY_EVENT_NAME = 1,   /* a question of DNS that was refused */
    RELAY_EVENT_OPEN = 2,   /* a connection that was allowed or refused */
    RELAY_EVENT_END = 3,    /* the end of one that was allowed */
    RELAY_EVENT_PACKET = 4, /* a packet that is neither TCP nor DNS, refused */
    RELAY_EVENT_REQUEST = 5 /* a request of HTTP that was refused */
};

struct relay_event {
    uint64_t number;
    int64_t time_ms; /* since 1970 */
    uint64_t up_bytes, down_bytes;
    uint32_t duration_ms;
    uint32_t lost; /* events before this one that were too many to be written */
    uint16_t port;
    uint8_t kind, verdict;          /* enum network_verdict */
    uint8_t protocol;               /* IPPROTO_... */
    struct network_address address; /* where it led, or was to lead; len 0: unknown */
    char name[NETWORK_NAME_MAX];    /* "": none */
    char rule[168];
    struct relay_owner owner;
} __attribute__((aligned(RELAY_EVENT_BYTES)));

_Static_assert(sizeof(struct relay_event) == RELAY_EVENT_BYTES, "one slot");
_Static_assert(offsetof(struct relay_event, owner) == RELAY_EVENT_OWNER,
               "written alone, later");

#endif
