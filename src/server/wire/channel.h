/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_CHANNEL_H
#define SERVER_WIRE_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cay/error.h"

/* What the processes of the server say to each other.
 *
 *     clients -HTTP-> front -asks-> broker -the same ask-> keeper of one sandbox
 *                       ^--------- answers, on the ask's own channel ---------'
 *
 * The front parses what clients send and has no rights at all.  The broker knows the keys
 * and the records, judges each ask, and hands what concerns one sandbox on to the keeper
 * of that sandbox, which it starts when it is first needed.
 *
 * One ask is one SOCK_SEQPACKET packet: a struct request and its strings, and beside it a
 * descriptor, the channel: one end of a socket pair of which the front keeps the other.
 * Answers come on the channel until it is closed, and whoever closes it early has lost
 * interest: there are no numbers to match, nothing to cancel, and a slow reader makes the
 * writer wait.  Strings that do not fit a packet come in a memfd, the second descriptor.
 *
 * Every receiver takes the other's bytes for hostile; what is not exactly a packet of
 * ours ends the channel. */

enum {
    CHANNEL_VERSION = 1,
    CHANNEL_PACKET = 64 << 10, /* bytes after the head */
    CHANNEL_STRINGS = 8 << 20, /* bytes of strings, in a memfd */
    CHANNEL_FDS = 2,
    CREDENTIAL_MAX = 128, /* these with their NUL */
    SANDBOX_ID_MAX = 32,
    USER_MAX = 64
};

/* The enumerated table of what can be asked.  Columns: name, the credential it takes, and
 * how many strings it has at least and at most. */
#define OPS(X)                                                                           \
    X(CREATE, KEY, 1, 4099)                                                              \
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
    X(CONFIRM, BROKER, 1, 8192) /* strings: note.h */                                    \
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
    X(DIAL, PORT, 0, 0)

enum op {
    OP_NONE = 0,
#define X(name, credential, least, most) OP_##name,
    OPS(X)
#undef X
        OP_COUNT
};

/* What shows that the client may ask this. */
enum credential {
    CREDENTIAL_NONE = 0,
    CREDENTIAL_KEY = 1,   /* an API key: whatever is its tenant's */
    CREDENTIAL_TOKEN = 2, /* a sandbox's own token */
    /* A token, or a signature made with it over path, operation, user and time. */
    CREDENTIAL_FILE = 3,
    CREDENTIAL_PORT =
        4, /* nothing, or the token for traffic if the sandbox asks for it */
    CREDENTIAL_BROKER = 5 /* only the broker sends it; refused from the front */
};

/* In struct request.numbers, by op. */
enum {
    CREATE_TIMEOUT = 0, /* seconds; -1: the default of the version */
    CREATE_METADATA = 1,
    CREATE_ENV = 2,
    CREATE_ENV_AT = 3, /* to a keeper: its source, template and tenant come first */

    TIMEOUT_SECONDS = 0, /* CONNECT, TIMEOUT, RESUME, REFRESH, CONFIRM; -1: not given */

    LIST_LIMIT = 0,
    LIST_METADATA = 1,
    LIST_AFTER_MS = 2,         /* the last of the page before */
    LIST_STARTED_AFTER_MS = 3, /* or at that time; 0: any */

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
    FILE_EXPIRES = 0, /* of a signature; -1: never */
    FILE_METADATA = 1,
    FILE_LENGTH = 2, /* of what is written; 0: unknown */
    FILE_BOUND = 3,  /* it is no longer than this; 0: unknown */
    DIAL_PORT = 0,
    REQUEST_NUMBERS = 6
};

enum request_flag {
    CREATE_AUTO_PAUSE = 1 << 0,
    CREATE_AUTO_RESUME = 1 << 1,
    CREATE_PRIVATE_TRAFFIC = 1 << 2, /* ports only with the token for traffic */
    CREATE_LONG = 1 << 3,            /* version 2: another default timeout */
    CREATE_INTERNET = 1 << 4,
    CREATE_INTERNET_EXPLICIT = 1 << 5, /* by the client, not by the default of its SDK */

    LIST_RUNNING = 1 << 0,
    LIST_PAUSED = 1 << 1,
    LIST_OLDEST_FIRST = 1 << 2,

    START_PTY = 1 << 0,
    START_INPUT = 1 << 1,

    WATCH_RECURSIVE = 1 << 0,
    WATCH_ENTRIES = 1 << 1,

    FILE_SIGNED = 1 << 0, /* the credential is a signature */
    REQUEST_FLAGS = (1 << 6) - 1
};

struct request {
    uint32_t version; /* CHANNEL_VERSION */
    uint32_t op;
    uint32_t count;       /* of the strings, each with its NUL */
    uint32_t strings_len; /* in this packet, or in the memfd */
    uint32_t flags;
    uint32_t padding;
    int64_t numbers[REQUEST_NUMBERS];
    char credential[CREDENTIAL_MAX];
    char sandbox[SANDBOX_ID_MAX];
    char user[USER_MAX]; /* "": the default */
};

enum reply_kind {
    REPLY_DONE = 1,    /* the last; the numbers are the answer's, if it has some */
    REPLY_FAILED = 2,  /* the last; strings: message, hint */
    REPLY_SANDBOX = 3, /* numbers: enum sandbox_number; strings: see record.h */
    REPLY_STARTED = 4,
    REPLY_OUTPUT = 5,   /* the bytes follow */
    REPLY_ENDED = 6,    /* the last; strings: the status */
    REPLY_PROCESS = 7,  /* strings: tag, cwd, argv, env */
    REPLY_ENTRY = 8,    /* numbers: enum entry_number; strings: see entry.h */
    REPLY_CHANGE = 9,   /* strings: name; an entry may follow it */
    REPLY_FILE = 10,    /* the last; a descriptor; strings: path, id */
    REPLY_SOCKET = 11,  /* the last; a descriptor */
    REPLY_TEXT = 12,    /* strings */
    REPLY_RESERVED = 13 /* of an upload: struct upload_step */
};

enum { REPLY_NUMBERS = 12 };

struct reply {
    uint32_t version; /* CHANNEL_VERSION */
    uint32_t kind;
    int32_t status; /* REPLY_FAILED: as HTTP has it; 0: judge by the code */
    int32_t code;   /* REPLY_FAILED: enum cay_code */
    uint32_t count; /* of strings; 0: the payload is bytes */
    uint32_t len;   /* of the payload */
    int64_t numbers[REPLY_NUMBERS];
};

/* In struct reply.numbers, by kind. */
enum started_number { STARTED_PID, STARTED_HAS_PTY };
enum output_number { OUTPUT_STREAM, OUTPUT_DROPPED };
enum end_number { END_EXIT_CODE, END_EXITED, END_CAUSE };
enum process_number { PROCESS_PID, PROCESS_ARGS, PROCESS_ENV };
enum change_number { CHANGE_WHAT, CHANGE_ENTRY /* from here on those of an entry */ };
enum file_number {
    FILE_SIZE,
    FILE_MTIME,
    FILE_RESERVED /* of an upload: reserved bytes */
};
enum reserved_number { RESERVED_END /* the file may be written up to here */ };

/* Those of REPLY_DONE: to LIST, and to USAGE and METRICS. */
enum listed_number { LISTED_HAS_MORE, LISTED_RUNNING };
enum usage_number {
    USAGE_CPUS,
    USAGE_CPU_PERMILLE, /* of one processor, since the last time */
    USAGE_MEMORY,
    USAGE_MEMORY_MAX,
    USAGE_DISK,
    USAGE_DISK_MAX
};

/* From the front, on the channel of WRITE_FILE after REPLY_FILE.  The reply to a request
 * for space is REPLY_RESERVED or REPLY_FAILED; the channel stays open after
 * REPLY_RESERVED. */
struct upload_step {
    uint64_t offset; /* written so far */
    uint64_t bytes;  /* to be written next, at most UPLOAD_STEP; 0: the file is whole */
};
enum { UPLOAD_STEP = 8 << 20 };

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

/* 0, or a negative errno; -EAGAIN if it does not fit now, -EPIPE if nobody is there. */
int request_send(int socket, const struct request *request, const struct buf *strings,
                 int channel);

/* An ask as it came.  The descriptors are the receiver's. */
struct request_packet {
    struct request head;
    int channel, memfd; /* -1 if there is none */
    char strings[CHANNEL_PACKET];
};

/* 1, 0 if the other side is gone, -EAGAIN, -EMFILE if this process has too many files
 * open, or -EPROTO; then nothing is to be closed. */
int request_receive(int socket, struct request_packet *ret_request);
void request_packet_done(struct request_packet *request);

/* Hands it on, descriptors and all; they stay the caller's. */
int request_forward(int socket, const struct request_packet *request);

/* All strings of an ask, wherever they came, checked to be as many as it says.  They live
 * in `room`, which is to be freed.  NULL if they are not what they should be. */
const char **request_strings(const struct request_packet *request, char **ret_room);

enum credential request_credential(enum op op);

/* For small answers on a channel that is empty: it takes them at once, or nobody reads.
 * `strings` may be NULL, `fd` is -1 for none.  0 or a negative errno. */
int reply_send(int channel, struct reply *reply, const struct buf *strings, int fd);
int reply_send_done(int channel);
int reply_send_error(int channel, int status, const struct cay_error *err);
int reply_send_bytes(int channel, struct reply *reply, const void *data, size_t len);

struct reply_packet {
    struct reply head;
    int fd;
    char payload[CHANNEL_PACKET + 1]; /* with a NUL behind it */
};

/* 1, 0 at the end, -EAGAIN, or -EPROTO. */
int reply_receive(int channel, struct reply_packet *ret_reply);

/* The next string of an answer, and where the one after it begins; NULL after the last.
 * Start with NULL. */
const char *reply_next(const struct reply_packet *reply, const char *before);

void strings_add(struct buf *strings, const char *text);

#endif
