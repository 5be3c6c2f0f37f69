/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_STORE_H
#define SERVER_WIRE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Messages between the broker and cay-store, the process that alone knows PostgreSQL and
 * its password: one SOCK_SEQPACKET packet each, a struct store_message and its strings,
 * each with its NUL.
 *
 * A request has a number, which its replies repeat: any number of STORE_ROW, then one
 * STORE_DONE with the code.  Requests are answered in any order.  If cay-store ends, the
 * broker takes all open requests for failed.  Messages with the number 0 have no reply.
 *
 * The receiver treats the bytes of its peer as hostile: an invalid packet ends the
 * socket. */

enum {
    STORE_VERSION = 1,
    STORE_PACKET = 64 << 10,
    STORE_NUMBERS = 8,
    STORE_WINDOW = 64, /* open requests of the broker, at most */
    STORE_STRINGS = 4096,
    STORE_NAME_MAX = 256, /* of a name or a digest, with its NUL */
    STORE_PAGE = 256,     /* rows of OWN_ROWS and SESSIONS */
    STORE_LEASE_S = 30,   /* a node that was not seen for so long is lost */
    STORE_BEAT_MS = 5000,
    /* Descriptors of cay-store: the socket, and a file with its strings, each with its
     * NUL: the URL, the path of the password's file or "", the name of the node or "" for
     * requests about keys alone, and the identity of its store. */
    STORE_SOCKET = 3,
    STORE_PLAN = 4,
    STORE_PLAN_MAX = 16 << 10
};

/* The strings of STORE_PLAN. */
enum store_plan { PLAN_URL, PLAN_PASSWORD_FILE, PLAN_NODE, PLAN_INSTANCE, PLAN_STRINGS };

/* Columns: name, least and greatest number of strings. */
#define STORE_KINDS(X)                                                                   \
    /* Requests.  The row of a sandbox: strings: id, tenant, template, reason, then      \
     * metadata (key, value, ...). */                                                    \
    X(PUT, 4, STORE_STRINGS)                                                             \
    /* Strings: tenant, template or "", id of the last row of the previous page, then    \
     * wanted metadata.  Rows: as PUT. */                                                \
    X(LIST, 3, STORE_STRINGS)                                                            \
    /* String: id of the last row of the previous page, or "".  Rows of this node's      \
     * sandboxes that have not ended, as PUT: at most STORE_PAGE. */                     \
    X(OWN_ROWS, 1, 1)                                                                    \
    X(KEY, 1, 1)     /* string: SHA-256 as hexadecimal digits; row: tenant */            \
    X(KEY_ADD, 3, 3) /* strings: hash, tenant, shown */                                  \
    X(KEY_REMOVE, 0, 0)                                                                  \
    X(KEYS, 0, 0)       /* rows: tenant, shown */                                        \
    X(TENANT_SET, 1, 1) /* string: name */                                               \
    X(TENANTS, 0, 0)    /* rows: name */                                                 \
    /* A place for new sandboxes of a tenant with a limit.  CAY_E_LIMIT: there is none.  \
     * String: tenant; row: STORE_CLAIM. */                                              \
    X(ADMIT, 1, 1)                                                                       \
    X(RELEASE, 0, 0)                                                                     \
    X(BEAT, 0, 0)                                                                        \
    /* Kills a sandbox of a lost node when that comes back.  Strings: id, tenant.        \
     * CAY_E_NOT_FOUND: it has none. */                                                  \
    X(KILL_LOST, 2, 2)                                                                   \
    X(KILLED, 1, 1) /* string: id; it needs no kill any more */                          \
    X(EVENT, 3, 3)  /* strings: tenant, sandbox, what */                                 \
    /* A browser has logged out.  String: the session's id, without its signature. */    \
    X(SESSION_END, 1, 1)                                                                 \
    /* String: the last id of the previous page, or "".  Rows: ids of sessions that      \
     * ended early: at most STORE_PAGE. */                                               \
    X(SESSIONS, 1, 1)                                                                    \
    /* Replies. */                                                                       \
    X(ROW, 0, STORE_STRINGS)                                                             \
    X(DONE, 0, 1) /* string: why it failed */                                            \
    /* From cay-store, with the number 0. */                                             \
    X(UP, 0, 0)   /* connected, and the node's name is claimed */                        \
    X(DOWN, 1, 1) /* string: why */                                                      \
    X(TAKEN, 0, 0)                                                                       \
    X(NODES, 0, STORE_STRINGS) /* after each BEAT: "naaa+", "naab-": lost */             \
    X(KILL, 1, STORE_STRINGS)  /* sandboxes of this node that clients have killed */     \
    X(KEYS_CHANGED, 1, 1)      /* hash of the key, or "": limits */                      \
    X(SESSION_ENDED, 1, 1)     /* id: a browser has logged out */

enum store_kind {
    STORE_NONE = 0,
#define X(name, least, most) STORE_##name,
    STORE_KINDS(X)
#undef X
        STORE_KIND_COUNT
};

/* Indexes of struct store_message.numbers, by kind. */
enum {
    STORE_ROW_VERSION = 0, /* PUT: a greater one replaces the row */
    STORE_ROW_STATE = 1,   /* enum record_state */
    STORE_ROW_STARTED_MS = 2,
    STORE_ROW_END_MS = 3, /* both since 1970, by the clock of the node */
    STORE_ROW_FLAGS = 4,
    STORE_ROW_TOKEN = 5,
    STORE_ROW_CLAIM = 6, /* of ADMIT; 0: none */

    STORE_LIST_LIMIT = 0,
    STORE_LIST_STATES = 1, /* bits: 1 << enum record_state */
    STORE_LIST_OLDEST_FIRST = 2,
    STORE_LIST_AFTER_MS = 3, /* 0: the first page */
    STORE_LIST_STARTED_AFTER_MS = 4,
    STORE_LIST_RUNNING = 0, /* DONE: of the tenant */

    STORE_KEY_NUMBER = 0, /* KEY_REMOVE, rows of KEYS, DONE of KEY_ADD */
    STORE_KEY_CREATED_MS = 1,
    STORE_MAX_RUNNING = 2, /* of the tenant; 0: no limit; TENANT_SET, TENANTS, KEY */
    STORE_RUNNING = 3,     /* TENANTS */

    STORE_CLAIM = 0, /* RELEASE, row of ADMIT */
    STORE_COUNT = 1, /* of sandboxes; ADMIT, RELEASE */

    STORE_BEAT_RUNNING = 0,
    STORE_BEAT_FREE = 1,  /* percent */
    STORE_BEAT_STATE = 2, /* enum ready_state */

    STORE_UP_EPOCH = 0,
    STORE_UP_VERSION = 1, /* greatest of this node's rows */
    STORE_NODES_MORE = 0, /* NODES: another packet follows */

    STORE_EVENT_AT_MS = 0,

    STORE_SESSION_EXPIRES_S = 0 /* SESSION_END; since 1970 */
};

struct store_message {
    uint32_t version; /* STORE_VERSION */
    uint32_t kind;
    uint64_t number;
    int32_t code;   /* DONE: CAY_OK or enum cay_code */
    uint32_t count; /* of strings */
    uint32_t len;   /* of strings, in bytes */
    uint32_t padding;
    int64_t numbers[STORE_NUMBERS];
};

struct store_packet {
    struct store_message head;
    char strings[STORE_PACKET];
};

/* 0 or a negative errno: -EAGAIN if the socket buffer is full.  Sets version, count and
 * len; `strings` may be NULL. */
int store_send(int socket, struct store_message *message, const struct buf *strings);

/* 1; 0 at the end; -EAGAIN, or -EPROTO for an invalid packet. */
int store_receive(int socket, struct store_packet *ret_packet);

/* The string after `before` (NULL: the first), or NULL after the last. */
const char *store_next(const struct store_packet *packet, const char *before);
/* Fills `ret_strings` with the first ones; false if there are fewer. */
bool store_strings(const struct store_packet *packet, const char **ret_strings,
                   size_t count);

#endif
