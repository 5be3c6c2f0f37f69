/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_CHANNEL_H
#define SERVER_WIRE_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "cay/error.h"

/* The protocol between the processes of the server.
 *
 *     clients -HTTP-> front -request-> broker -the same request-> keeper of one sandbox
 *                       ^---------- replies, on the channel of the request ----------'
 *
 * The front parses what clients send and has no rights.  The broker holds the keys and
 * the records, checks the credential of each request, and forwards requests about one
 * sandbox to the keeper of that sandbox, which it starts on first use.
 *
 * A request is one SOCK_SEQPACKET packet: a struct request, its strings, and a
 * descriptor, the channel: one end of a socket pair whose other end the front holds.
 * Replies arrive on the channel until it is closed.  Closing the channel early cancels
 * the request, so there are no request numbers, and a slow reader blocks the writer.
 * Strings that do not fit into a packet are in a memfd, the second descriptor.
 *
 * Every receiver treats the bytes of its peer as hostile: an invalid packet ends the
 * channel. */

enum {
    CHANNEL_VERSION = 1,
    CHANNEL_PACKET = 64 << 10, /* bytes after the head */
    CHANNEL_STRINGS = 8 << 20, /* bytes of strings, in a memfd */
    CHANNEL_FDS = 2,
    CREDENTIAL_MAX = 128, /* these include the NUL */
    SANDBOX_ID_MAX = 32,
    USER_MAX = 64,
    TENANT_MAX = 64,
    TEMPLATE_MAX = 64,
    POOL_NAME_MAX = 32
};

/* All requests.  Columns: name, credential, and the least and greatest number of strings.
 */
#define OPS(X)                                                                           \
    X(CREATE, KEY, 1, 5000)                                                              \
    X(CONNECT, KEY, 0, 0)                                                                \
    X(LIST, KEY, 2, 258)                                                                 \
    X(INFO, KEY, 0, 0)                                                                   \
    X(KILL, KEY, 0, 0)                                                                   \
    X(TIMEOUT, KEY, 0, 0)                                                                \
    X(PAUSE, KEY, 0, 0)                                                                  \
    X(RESUME, KEY, 0, 0)                                                                 \
    X(REFRESH, KEY, 0, 0)                                                                \
    X(CHECK, KEY, 0, 0)                                                                  \
    X(TEMPLATE, KEY, 1, 1)                                                               \
    X(USAGE, KEY, 0, 0)                                                                  \
    X(NETWORK, KEY, 1, 2048)   /* strings: RECORD_EGRESS, rules, headers */              \
    X(SECRETS, KEY, 1, 1)      /* strings: the last name of the previous page */         \
    X(SECRET, KEY, 1, 1)       /* strings of these: a name or an id */                   \
    X(SECRET_SET, KEY, 2, 128) /* and the value, metadata */                             \
    X(SECRET_REMOVE, KEY, 1, 1)                                                          \
    X(CONFIRM, BROKER, 1, 8192) /* strings: recovery.h */                                \
    X(HEALTH, NONE, 0, 0)                                                                \
    X(METRICS, TOKEN, 0, 0)                                                              \
    X(ENVS, TOKEN, 0, 0)                                                                 \
    X(START, TOKEN, 3, 65536)                                                            \
    X(ATTACH, TOKEN, 1, 1)                                                               \
    X(PROCESSES, TOKEN, 0, 0)                                                            \
    X(INPUT, TOKEN, 2, 2)                                                                \
    X(CLOSE_INPUT, TOKEN, 1, 1)                                                          \
    X(SIGNAL, TOKEN, 1, 1)                                                               \
    X(RESIZE, TOKEN, 1, 1)                                                               \
    X(STAT, TOKEN, 1, 1)                                                                 \
    X(MAKE_DIR, TOKEN, 1, 1)                                                             \
    X(MOVE, TOKEN, 2, 2)                                                                 \
    X(LIST_DIR, TOKEN, 1, 1)                                                             \
    X(REMOVE, TOKEN, 1, 1)                                                               \
    X(WATCH, TOKEN, 1, 1)                                                                \
    X(WATCHER_NEW, TOKEN, 1, 1)                                                          \
    X(WATCHER_EVENTS, TOKEN, 1, 1)                                                       \
    X(WATCHER_REMOVE, TOKEN, 1, 1)                                                       \
    X(READ_FILE, FILE, 1, 1)                                                             \
    X(WRITE_FILE, FILE, 2, 130)                                                          \
    X(DIAL, PORT, 0, 1) /* string: RECORD_MASK; of the reply, too */                     \
    X(EXECUTE, TOKEN, 0, 0)                                                              \
    X(CONTEXTS, PORT, 0, 0)

enum op {
    OP_NONE = 0,
#define X(name, credential, least, most) OP_##name,
    OPS(X)
#undef X
        OP_COUNT
};

/* The credential that a request needs. */
enum credential {
    CREDENTIAL_NONE = 0,
    CREDENTIAL_KEY = 1,   /* an API key, for everything of its tenant */
    CREDENTIAL_TOKEN = 2, /* a sandbox's own token */
    /* A token, or a signature made with it over path, operation, user and time. */
    CREDENTIAL_FILE = 3,
    CREDENTIAL_PORT = 4,  /* none, or the traffic token if the sandbox requires it */
    CREDENTIAL_BROKER = 5 /* only the broker sends it; refused from the front */
};

/* Indexes of struct request.numbers, by request. */
enum {
    CREATE_TIMEOUT = 0, /* seconds; -1: the default of the API version */
    CREATE_METADATA = 1,
    CREATE_ENV = 2,
    CREATE_RULES = 3,    /* of the network, after the environment */
    CREATE_HEADERS = 5,  /* strings after the rules: host, name and value of each; to a
                            keeper, its secret parts as well, a line for each */
    NETWORK_HEADERS = 0, /* the same */
    CREATE_ENV_AT = 4,   /* to a keeper: source, template, tenant and pool come first */

    TIMEOUT_SECONDS = 0, /* CONNECT, TIMEOUT, RESUME, REFRESH, CONFIRM; -1: not given */

    LIST_LIMIT = 0,
    LIST_METADATA = 1,
    LIST_AFTER_MS = 2,         /* the last row of the previous page */
    LIST_STARTED_AFTER_MS = 3, /* inclusive; 0: any */

    START_ARGS = 0,
    START_ENV = 1,
    START_ROWS = 2,
    START_COLUMNS = 3,
    START_TIMEOUT_MS = 4,

    SIGNAL_NUMBER = 0,
    RESIZE_ROWS = 0,
    RESIZE_COLUMNS = 1,
    INPUT_IS_PTY = 0,

    LIST_DIR_DEPTH = 0,
    FILE_EXPIRES = 0, /* expiry of a signature; -1: never */
    FILE_METADATA = 1,
    FILE_LENGTH = 2, /* of the uploaded file; 0: unknown */
    FILE_BOUND = 3,  /* upper bound of the length; 0: unknown */
    DIAL_PORT = 0,
    REQUEST_NUMBERS = 6
};

enum request_flag {
    CREATE_AUTO_PAUSE = 1 << 0,
    CREATE_AUTO_RESUME = 1 << 1,
    CREATE_PRIVATE_TRAFFIC = 1 << 2, /* ports need the traffic token */
    CREATE_LONG = 1 << 3,            /* version 2 of the API: longer default timeout */
    CREATE_INTERNET = 1 << 4,
    CREATE_INTERNET_EXPLICIT = 1 << 5, /* set by the client, not a default of its SDK */

    LIST_RUNNING = 1 << 0,
    LIST_PAUSED = 1 << 1,
    LIST_OLDEST_FIRST = 1 << 2,

    SECRET_NEW = 1 << 0,      /* otherwise it exists */
    SECRET_METADATA = 1 << 1, /* otherwise it stays */

    START_PTY = 1 << 0,
    START_INPUT = 1 << 1,

    WATCH_RECURSIVE = 1 << 0,
    WATCH_ENTRIES = 1 << 1,

    FILE_SIGNED = 1 << 0, /* the credential is a signature */

    /* EXECUTE, CONTEXTS: no connection, only REPLY_DONE */
    CODE_IMAGE = 1 << 0,  /* and a descriptor of the saved interpreter if there is one */
    CODE_MISFIT = 1 << 1, /* the interpreter in the sandbox is not a copy of it */
    REQUEST_FLAGS = (1 << 6) - 1
};

struct request {
    uint32_t version; /* CHANNEL_VERSION */
    uint32_t op;
    uint32_t count;       /* of strings, each with its NUL */
    uint32_t strings_len; /* in this packet, or in the memfd */
    uint32_t flags;
    uint32_t padding;
    int64_t numbers[REQUEST_NUMBERS];
    char credential[CREDENTIAL_MAX];
    char sandbox[SANDBOX_ID_MAX];
    char user[USER_MAX]; /* "": the default */
};

enum reply_kind {
    REPLY_DONE = 1,    /* last; numbers and descriptor depend on the request */
    REPLY_FAILED = 2,  /* last; strings: message, hint */
    REPLY_SANDBOX = 3, /* numbers: enum sandbox_number; strings: see there */
    REPLY_STARTED = 4,
    REPLY_OUTPUT = 5,    /* the bytes follow */
    REPLY_ENDED = 6,     /* last; strings: the exit status as text */
    REPLY_PROCESS = 7,   /* strings: tag, cwd, argv, env */
    REPLY_ENTRY = 8,     /* numbers: enum entry_number */
    REPLY_CHANGE = 9,    /* strings: name; an entry may follow it */
    REPLY_FILE = 10,     /* last; with a descriptor; strings: path, sandbox id */
    REPLY_SOCKET = 11,   /* last; with a descriptor; strings: see the request */
    REPLY_TEXT = 12,     /* strings */
    REPLY_RESERVED = 13, /* of an upload: struct upload_step */
    REPLY_SECRET = 14    /* numbers: enum secret_number; strings: id, name, metadata */
};

enum { REPLY_NUMBERS = 12 };

struct reply {
    uint32_t version; /* CHANNEL_VERSION */
    uint32_t kind;
    int32_t status; /* REPLY_FAILED: HTTP status; 0: derived from the code */
    int32_t code;   /* REPLY_FAILED: enum cay_code */
    uint32_t count; /* of strings; 0: the payload is raw bytes */
    uint32_t len;   /* of the payload */
    int64_t numbers[REPLY_NUMBERS];
};

/* Indexes of struct reply.numbers, by kind. */
enum started_number { STARTED_PID, STARTED_HAS_PTY };
enum output_number { OUTPUT_STREAM };
enum end_number { END_EXIT_CODE, END_EXITED };
enum process_number { PROCESS_PID, PROCESS_ARGS, PROCESS_ENV };
enum change_number { CHANGE_WHAT, CHANGE_ENTRY /* followed by those of an entry */ };
enum file_number {
    FILE_SIZE,
    FILE_MTIME,
    FILE_RESERVED /* of an upload: reserved bytes */
};
enum socket_number {
    SOCKET_MEMORY_KILLS /* EXECUTE, CONTEXTS: of the kernel, in this sandbox */
};
enum secret_number { SECRET_VERSION, SECRET_CREATED_MS, SECRET_UPDATED_MS };
enum reserved_number { RESERVED_END /* the file may be written up to this offset */ };

/* For REPLY_DONE of LIST, and of USAGE and METRICS. */
enum listed_number { LISTED_HAS_MORE, LISTED_RUNNING };
enum usage_number {
    USAGE_CPUS,
    USAGE_CPU_PERMILLE, /* of one CPU, since the previous sample */
    USAGE_MEMORY,
    USAGE_MEMORY_MAX,
    USAGE_DISK,
    USAGE_DISK_MAX,
    USAGE_CONNECTIONS, /* that were allowed; 0 without a network */
    USAGE_REFUSED,
    USAGE_UP,
    USAGE_DOWN
};

/* From the front, on the channel of WRITE_FILE after REPLY_FILE.  The reply to a request
 * for space is REPLY_RESERVED or REPLY_FAILED; the channel stays open after
 * REPLY_RESERVED. */
struct upload_step {
    uint64_t offset; /* written so far */
    uint64_t bytes; /* to be written next, at most UPLOAD_STEP; 0: the file is complete */
};
enum { UPLOAD_STEP = 8 << 20 };

enum record_state { RECORD_RUNNING = 1, RECORD_PAUSED = 2, RECORD_GONE = 3 };

/* Keys of metadata that clients do not see, and cannot set. */
#define RECORD_HIDDEN '\001'
#define RECORD_EGRESS "\001egress" /* allowOut and denyOut as JSON */
#define RECORD_MASK   "\001mask"   /* maskRequestHost */

/* REPLY_SANDBOX.  Strings: id, template, token, traffic token ("": none), domain, then
 * metadata. */
enum sandbox_number {
    SANDBOX_STATE,
    SANDBOX_STARTED_MS,
    SANDBOX_END_MS,
    SANDBOX_FLAGS,
    SANDBOX_CPUS,
    SANDBOX_MEMORY_MB,
    SANDBOX_DISK_MB,
    SANDBOX_RESUMED /* CONNECT: it was paused */
};

/* REPLY_ENTRY.  Strings: name, path, owner, group, link target ("": none), then metadata.
 */
enum entry_number { ENTRY_TYPE, ENTRY_SIZE, ENTRY_MODE, ENTRY_MTIME_NS, ENTRY_IS_LINK };

enum change {
    CHANGE_CREATE = 1,
    CHANGE_WRITE = 2,
    CHANGE_REMOVE = 3,
    CHANGE_RENAME = 4,
    CHANGE_CHMOD = 5
};

/* --- Sending and receiving --- */

/* 0 or a negative errno: -EAGAIN if the socket buffer is full, -EPIPE if the peer is
 * gone. */
int request_send(int socket, const struct request *request, const struct buf *strings,
                 int channel);

/* For a request without strings. */
#define NO_STRINGS (&(const struct buf){0})

/* A received request.  The receiver owns the descriptors. */
struct request_packet {
    struct request head;
    int channel, memfd; /* -1: none */
    char strings[CHANNEL_PACKET];
};

/* Returns 1; 0 if the peer is gone; -EAGAIN, -EMFILE (too many open files) or -EPROTO.
 * There is nothing to close unless it returns 1. */
int request_receive(int socket, struct request_packet *ret_request);
void request_packet_done(struct request_packet *request);

/* Forwards a request with its descriptors, which stay the caller's. */
int request_forward(int socket, const struct request_packet *request);

/* The strings of a request, from the packet or the memfd, checked against its count.
 * They point into *ret_room; free both.  NULL if they are invalid. */
const char **request_strings(const struct request_packet *request, char **ret_room);

enum credential request_credential(enum op op);

/* From a keeper to the broker, on the socket on which it receives requests: it has had
 * nothing to do for a while.  With it come a pidfd of the sandbox's PID 1 and the state
 * for the next keeper of the sandbox, which the broker does not read.  If no request is
 * on its way, the broker closes the socket, and the keeper exits. */
struct idle_notice {
    uint32_t version; /* CHANNEL_VERSION */
    uint32_t padding;
    uint64_t received; /* requests so far */
};

/* For small replies on an empty channel, which accepts them at once unless the reader is
 * gone.  `strings`, which are raw bytes if reply->count is 0, may be NULL; `fd` -1: none.
 * Returns 0 or a negative errno. */
int reply_send(int channel, struct reply *reply, const struct buf *strings, int fd);
int reply_send_done(int channel);
int reply_send_error(int channel, int status, const struct cay_error *err);

struct reply_packet {
    struct reply head;
    int fd;
    char payload[CHANNEL_PACKET + 1]; /* and a NUL */
};

/* Returns 1, 0 at the end, -EAGAIN or -EPROTO. */
int reply_receive(int channel, struct reply_packet *ret_reply);

/* The string after `before` (NULL: the first), or NULL after the last. */
const char *reply_next(const struct reply_packet *reply, const char *before);

void strings_add(struct buf *strings, const char *text);

/* "[a-z0-9]{1,28}": other ids are not looked up. */
static inline bool record_is_id(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789");

    return len > 0 && len < SANDBOX_ID_MAX - 3 && text[len] == '\0';
}

#endif
