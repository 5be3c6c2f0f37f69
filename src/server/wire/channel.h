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
    POOL_NAME_MAX = 32,
    MCP_KEPT_MAX = 33 /* the name of a kept sandbox of MCP clients */
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
    /* Strings to a keeper: template of Cay, start and ready command, to run again. */   \
    X(RESUME, KEY, 0, 3)                                                                 \
    X(REFRESH, KEY, 0, 0)                                                                \
    X(FORK, KEY, 0, 5000)   /* strings: as of CREATE; none to a keeper */                \
    X(SNAPSHOT, KEY, 1, 1)  /* strings: a name, or ""; to a keeper: that of Cay */       \
    X(SNAPSHOTS, KEY, 3, 3) /* strings: sandbox, name, last id of the previous page */   \
    /* Strings: the source; enum shared_string if its record is to be removed as well.   \
     */                                                                                  \
    X(SNAPSHOT_REMOVE, BROKER, 1, 4)                                                     \
    X(CHECKPOINTS, KEY, 0, 0)                                                            \
    X(CHECKPOINT, KEY, 1, 1)  /* strings: a name, or "" */                               \
    X(ROLLBACK, KEY, 1, 1)    /* strings: a number or a name */                          \
    X(DIFF, KEY, 2, 2)        /* strings: two of them; the second may be "": now */      \
    X(SESSION_NEW, KEY, 0, 0) /* replies of these two: enum session_number */            \
    X(SESSION, KEY, 0, 0)                                                                \
    X(SESSION_END, KEY, 0, 0)                                                            \
    X(CHECK, KEY, 0, 0)                                                                  \
    X(STATS, KEY, 0, 0)                                                                  \
    X(TEMPLATE, KEY, 1, 1) /* strings of these: a name or an id */                       \
    X(TEMPLATES, KEY, 1, 1)                                                              \
    X(TEMPLATE_INFO, KEY, 1, 1)                                                          \
    X(TEMPLATE_NEW, KEY, 1, 256) /* and tags */                                          \
    X(TEMPLATE_REMOVE, KEY, 1, 1000)                                                     \
    X(TAGS, KEY, 1, 1)                                                                   \
    X(TAGS_SET, KEY, 2, 256)                                                             \
    X(TAGS_REMOVE, KEY, 2, 256)                                                          \
    X(BUILD, KEY, 2, 65536) /* strings: enum build_string */                             \
    X(BUILD_STATUS, KEY, 2, 2)                                                           \
    X(UPLOAD_LINK, KEY, 2, 2)  /* strings: template, hash */                             \
    X(UPLOAD, UPLOAD, 2, 3)    /* the same */                                            \
    X(USAGE, KEY, 0, 0)        /* numbers: USAGE_FROM and USAGE_TO */                    \
    X(LOGS, KEY, 1, 1)         /* string: what the message contains, or "" */            \
    X(SAMPLES, KEY, 1, 100)    /* strings: sandboxes */                                  \
    X(NETWORK, KEY, 1, 2048)   /* strings: RECORD_EGRESS, rules, headers */              \
    X(SECRETS, KEY, 1, 1)      /* strings: the last name of the previous page */         \
    X(SECRET, KEY, 1, 1)       /* strings of these: a name or an id */                   \
    X(SECRET_SET, KEY, 2, 128) /* and the value, metadata */                             \
    X(SECRET_REMOVE, KEY, 1, 1)                                                          \
    /* The last string of these is a tenant, or "": the own one. */                      \
    X(KEYS, KEY, 1, 1)                                                                   \
    X(KEY_NEW, KEY, 2, 2)    /* and a name */                                            \
    X(KEY_NAME, KEY, 3, 3)   /* and an id, a name */                                     \
    X(KEY_REMOVE, KEY, 2, 2) /* and an id */                                             \
    X(TENANTS, KEY, 0, 0)                                                                \
    X(VOLUMES, KEY, 0, 1)                                                                \
    X(VOLUME, KEY, 1, 1) /* strings of these: a name */                                  \
    X(VOLUME_CREATE, KEY, 1, 1)                                                          \
    X(VOLUME_REMOVE, KEY, 1, 1)                                                          \
    /* Strings of these: to a keeper the tenant first. */                                \
    X(APPROVALS, KEY, 0, 1)                                                              \
    X(APPROVAL, KEY, 1, 2)        /* an id */                                            \
    X(APPROVAL_DECIDE, KEY, 3, 4) /* an id, the verdict, a note */                       \
    X(APPROVAL_RULES, KEY, 0, 1)                                                         \
    X(APPROVAL_RULE_REMOVE, KEY, 1, 2) /* an id */                                       \
    X(MCP, KEY, 0, 1)           /* starts a session: REPLY_SOCKET; a kept sandbox */     \
    X(MCP_REMOVE, KEY, 1, 1)    /* removes that one */                                   \
    X(CONFIRM, BROKER, 1, 8192) /* strings: recovery.h */                                \
    /* The shared directory.  Strings: its id, the tenant, and the known names; replies  \
     * with the lines of new records after their names, and "-" before those that are    \
     * gone.  The two others: enum shared_string. */                                     \
    X(SHARED_SYNC, BROKER, 2, 1000000)                                                   \
    X(SHARED_PUT, BROKER, 10, 10)                                                        \
    X(SHARED_GET, BROKER, 5, 5)                                                          \
    /* Strings: the id, the tenant, SHARED_NEW records to write, each a name and its     \
     * lines, SHARED_SOURCES templates of Cay to remove, and the names of records to     \
     * remove, with their archives. */                                                   \
    X(SHARED_RECORDS, BROKER, 2, 65536)                                                  \
    X(HEALTH, NONE, 0, 0)                                                                \
    X(READY, NONE, 0, 0) /* to the broker itself */                                      \
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
    X(CONTEXTS, PORT, 0, 0)                                                              \
    X(CONTENT_STAT, VOLUME, 2, 2) /* strings of these: the id of the volume, a path */   \
    X(CONTENT_CHANGE, VOLUME, 2, 2)                                                      \
    X(CONTENT_REMOVE, VOLUME, 2, 2)                                                      \
    X(CONTENT_LIST, VOLUME, 2, 2)                                                        \
    X(CONTENT_MAKE_DIR, VOLUME, 2, 2)                                                    \
    X(CONTENT_READ, VOLUME, 2, 2)                                                        \
    X(CONTENT_WRITE, VOLUME, 2, 2)

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
    CREDENTIAL_PORT = 4,   /* none, or the traffic token if the sandbox requires it */
    CREDENTIAL_BROKER = 5, /* only the broker sends it; refused from the front */
    CREDENTIAL_VOLUME = 6, /* a volume's own token */
    CREDENTIAL_UPLOAD = 7  /* the token of a link to upload the files of a build */
};

/* Indexes of struct request.numbers, by request. */
enum {
    CREATE_TIMEOUT = 0, /* seconds; -1: the default of the API version */
    CREATE_METADATA = 1,
    CREATE_ENV = 2,
    CREATE_RULES = 3,    /* of the network, after the environment */
    FORK_COUNT = 4,      /* of sandboxes */
    CREATE_HEADERS = 5,  /* strings after the rules: host, name and value of each; to a
                            keeper, its secret parts as well, a line for each */
    NETWORK_HEADERS = 0, /* the same */
    NETWORK_ASK_MS = 1, /* to a keeper: other destinations wait so long; 0: they do not */
    CREATE_VOLUMES = 6, /* strings after the headers: name and path of each */
    /* To a keeper: source, template, tenant, pool, "from" of struct cay_sandbox_options,
     * start and ready command, and the value of RECORD_APPROVE or "" come first. */
    CREATE_FROM = 4,
    CREATE_START = 5,
    CREATE_READY = 6,
    CREATE_APPROVE = 7,
    CREATE_ENV_AT = 8,

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

    CHECKPOINT_STOPS = 0, /* kills the processes inside first */
    DIFF_FORMAT = 0,      /* enum cay_diff_format */

    LIST_DIR_DEPTH = 0,
    FILE_EXPIRES = 0, /* expiry of a signature; -1: never */
    FILE_METADATA = 1,
    FILE_LENGTH = 2, /* of the uploaded file; 0: unknown */
    FILE_BOUND = 3,  /* upper bound of the length; 0: unknown */
    DIAL_PORT = 0,
    CONTENT_MODE = 4, /* CONTENT_CHANGE, MAKE_DIR and WRITE; -1: not given */
    CONTENT_UID = 5,
    CONTENT_GID = 6,

    LOGS_FROM_MS = 0, /* inclusive */
    LOGS_LIMIT = 1,
    LOGS_LEVEL = 2, /* the least: enum log_level, or 0 */

    USAGE_FROM = 0, /* seconds since 1970, both inclusive */
    USAGE_TO = 1,

    TEMPLATE_CPUS = 0,
    TEMPLATE_MEMORY_MB = 1,
    UPLOAD_EXPIRES = 0, /* seconds since 1970 */
    UPLOAD_LENGTH = 1,  /* bytes */
    REQUEST_NUMBERS = 7
};

enum request_flag {
    CREATE_AUTO_PAUSE = 1 << 0,
    CREATE_AUTO_RESUME = 1 << 1,
    CREATE_PRIVATE_TRAFFIC = 1 << 2, /* ports need the traffic token */
    CREATE_LONG = 1 << 3,            /* version 2 of the API: longer default timeout */
    CREATE_INTERNET = 1 << 4,
    CREATE_INTERNET_EXPLICIT = 1 << 5, /* set by the client, not a default of its SDK */

    CREATE_PAUSE_COLD = 1 << 6, /* with CREATE_AUTO_PAUSE: without its memory */
    RECORD_COLD = 1 << 7, /* only in rows: paused without its memory, or about to be */

    PAUSE_COLD = 1 << 0, /* PAUSE, CONNECT, RESUME: drop the processes */

    LIST_RUNNING = 1 << 0,
    LIST_PAUSED = 1 << 1,
    LIST_OLDEST_FIRST = 1 << 2,

    LOGS_BACKWARD = 1 << 0, /* LOGS: the newest first, from that time back */

    SECRET_NEW = 1 << 0,      /* otherwise it exists */
    SECRET_METADATA = 1 << 1, /* otherwise it stays */

    START_PTY = 1 << 0,
    START_INPUT = 1 << 1,

    WATCH_RECURSIVE = 1 << 0,
    WATCH_ENTRIES = 1 << 1,

    FILE_SIGNED = 1 << 0, /* the credential is a signature */

    CONTENT_FORCE = 1 << 0, /* MAKE_DIR: parents too, and it may exist; WRITE: the last */
    STATS_OPEN = 1 << 0,    /* STATS: as OpenMetrics */
    BUILD_FORCED = 1 << 0,  /* no step is taken from the cache */
    BUILD_FROM_TEMPLATE = 1 << 1, /* not an image */
    BUILD_IS_OWN = 1 << 2,        /* to a keeper: of this tenant, made by a build */

    /* EXECUTE, CONTEXTS: no connection, only REPLY_DONE */
    CODE_IMAGE = 1 << 0,  /* and a descriptor of the saved interpreter if there is one */
    CODE_MISFIT = 1 << 1, /* the interpreter in the sandbox is not a copy of it */

    CREATE_APPROVE_EGRESS = 1 << 8, /* other destinations wait for approval */
    REQUEST_FLAGS = (1 << 9) - 1
};

struct request {
    uint32_t version; /* CHANNEL_VERSION */
    uint32_t op;
    uint32_t count;       /* of strings, each with its NUL */
    uint32_t strings_len; /* in this packet, or in the memfd */
    uint32_t flags;
    uint32_t padding;
    uint64_t id; /* of the client's request, for logs; 0: the broker's own */
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
    REPLY_SECRET = 14,   /* numbers: enum secret_number; strings: id, name, metadata */
    REPLY_CONTENT = 15,  /* numbers: enum content_number; strings: path, link target */
    /* One of several results; numbers: HTTP status; strings: message. */
    REPLY_REFUSED = 16,
    REPLY_CHECKPOINT = 17, /* numbers: enum checkpoint_number; strings: name, cause */
    /* Numbers: enum snapshot_number; strings: id for clients, name ("": none), id. */
    REPLY_SNAPSHOT = 18,
    /* Numbers: enum build_number; strings: template, build, name, step, reason, and tags.
     * BUILD_STATUS: with a descriptor of the log, if there is one. */
    REPLY_BUILD = 19,
    REPLY_SAMPLE = 20,  /* numbers: enum usage_number, USAGE_AT_MS; string: the sandbox */
    REPLY_LOG = 22,     /* numbers: enum log_number; strings: message, fields as JSON */
    REPLY_SAMPLES = 21, /* raw bytes: struct usage_record, oldest first */
    /* Numbers: enum approval_number; strings: id, kind, scope, subject, summary.
     * APPROVAL: with a descriptor of the content. */
    REPLY_APPROVAL = 23,
    REPLY_RULE = 24,    /* numbers: enum rule_number; strings: id, kind, scope, subject */
    REPLY_WAITING = 25, /* START: it waits for approval; string: the id of its request */
    /* Numbers: enum key_number; strings: id, name, first characters, and of KEY_NEW the
     * key. */
    REPLY_KEY = 26,
    REPLY_TENANT = 27 /* numbers: enum tenant_number; string: its name */
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
    char tenant[TENANT_MAX]; /* whose request it is, for logs; "": unknown */
};

/* The tenant of the replies that this process sends from here on. */
void reply_set_tenant(const char *tenant);

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
enum content_number {
    CONTENT_TYPE, /* enum cay_type */
    CONTENT_SIZE,
    CONTENT_PERMISSIONS,
    CONTENT_OWNER,
    CONTENT_GROUP,
    CONTENT_ATIME_NS,
    CONTENT_MTIME_NS,
    CONTENT_CTIME_NS
};
enum refused_number { REFUSED_STATUS };
enum checkpoint_number {
    CHECKPOINT_ID, /* also REPLY_DONE of a keeper to FORK */
    CHECKPOINT_PARENT,
    CHECKPOINT_IS_CURRENT,
    CHECKPOINT_CREATED_MS,
    CHECKPOINT_BYTES,
    CHECKPOINT_FILES
};
/* REPLY_TEXT of SESSION_NEW and SESSION.  Strings: the tenant, and of a new session its
 * text. */
enum session_number { SESSION_EXPIRES_S, SESSION_IS_ADMIN };
enum key_number { KEY_CREATED_MS, KEY_IS_ADMIN };
enum tenant_number { TENANT_KEYS, TENANT_RUNNING, TENANT_PAUSED };
enum snapshot_number { SNAPSHOT_CREATED_MS };
enum approval_number {
    APPROVAL_CREATED_MS,
    APPROVAL_EXPIRES_MS,
    APPROVAL_BYTES,
    APPROVAL_IS_DECIDED
};
enum rule_number { RULE_ALLOWS };
enum secret_number { SECRET_VERSION, SECRET_CREATED_MS, SECRET_UPDATED_MS };
enum reserved_number { RESERVED_END /* the file may be written up to this offset */ };

enum build_number {
    BUILD_STATE,
    BUILD_CPUS,
    BUILD_MEMORY_MB,
    BUILD_CREATED_MS,
    BUILD_UPDATED_MS,
    BUILD_FINISHED_MS, /* 0: not finished */
    BUILD_TEMPLATE_CREATED_MS,
    BUILD_TEMPLATE_UPDATED_MS,
    BUILD_SPAWNED_MS, /* 0: never */
    BUILD_SPAWNS,
    BUILD_COUNT /* of the template's builds */
};
enum build_state {
    BUILD_WAITING = 1,
    BUILD_BUILDING = 2,
    BUILD_READY = 3,
    BUILD_ERROR = 4
};
/* Strings of BUILD: these, then type, force ("1"), hash of files and number of arguments
 * of each step, and its arguments.  To a keeper the template is that of Cay to create,
 * and the source one of Cay or an image; the tenant's directory of uploads comes last. */
enum build_string {
    BUILD_TEMPLATE,
    BUILD_ID,
    BUILD_SOURCE,
    BUILD_START,
    BUILD_READY_COMMAND,
    BUILD_STEPS
};
/* The state that a build leaves: REPLY_DONE, and REPLY_TEXT with step and message. */
enum upload_number { UPLOAD_PRESENT, UPLOAD_LINK_EXPIRES };

/* Strings of SHARED_PUT and SHARED_GET: these, then the lines of the record but the last,
 * the digest, which is in the reply; or the digest. */
enum shared_string { SHARED_ID, SHARED_TENANT, SHARED_NAME, SHARED_SOURCE, SHARED_LINES };
enum shared_number { SHARED_HAS_MORE = 0, SHARED_BYTES = 0 };
/* The lines of a record; the room for its name. */
enum { SHARED_DIGEST = 6, SHARED_RECORD_LINES = 7, SHARED_NAME_MAX = 40 };
/* Numbers of SHARED_RECORDS. */
enum shared_records { SHARED_NEW, SHARED_SOURCES };

/* For REPLY_DONE of LIST, and of USAGE and METRICS. */
enum listed_number { LISTED_HAS_MORE, LISTED_RUNNING };
/* REPLY_DONE of READY. */
enum ready_number { READY_STATE, READY_FREE /* percent */ };
enum ready_state {
    READY_YES = 1,
    READY_FULL = 2,
    READY_DRAINING = 3,
    READY_CLAIMED = 4 /* another server has the name of this node */
};
enum log_number { LOG_AT_MS, LOG_LEVEL };
enum log_level {
    LOG_LEVEL_DEBUG = 1,
    LOG_LEVEL_INFO = 2,
    LOG_LEVEL_WARN = 3,
    LOG_LEVEL_ERROR = 4
};
enum { LOGS_MOST = 1000 };
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
    USAGE_DOWN,
    USAGE_NUMBERS,
    USAGE_AT_MS = USAGE_NUMBERS /* of REPLY_SAMPLE */
};

/* From the front, on the channel of WRITE_FILE after REPLY_FILE.  The reply to a request
 * for space is REPLY_RESERVED or REPLY_FAILED; the channel stays open after
 * REPLY_RESERVED. */
struct upload_step {
    uint64_t offset; /* written so far */
    uint64_t bytes; /* to be written next, at most UPLOAD_STEP; 0: the file is complete */
};
enum { UPLOAD_STEP = 8 << 20 };
#define UPLOAD_MAX ((int64_t)4 << 30) /* bytes of the files of a build */

enum record_state { RECORD_RUNNING = 1, RECORD_PAUSED = 2, RECORD_GONE = 3 };

/* Keys of metadata that clients do not see, and cannot set. */
#define RECORD_HIDDEN  '\001'
#define RECORD_EGRESS  "\001egress"  /* allowOut and denyOut as JSON */
#define RECORD_MASK    "\001mask"    /* maskRequestHost */
#define RECORD_VOLUMES "\001volumes" /* of each volume a line: name, tab, path */
#define RECORD_BUILD   "\001build"   /* of the template, if it has a start command */
/* Lines: milliseconds until the answer is no or 0, scope or "", and the patterns of
 * commands that wait for approval. */
#define RECORD_APPROVE "\001approve"

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
    int refusal; /* the status with which the broker has refused it; 0: it has not */
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
/* `status` 0: that of the code. */
int reply_send_error(int channel, int status, const struct cay_error *err);
int reply_status_of(int code);

struct reply_packet {
    struct reply head;
    int fd;
    char payload[CHANNEL_PACKET + 1]; /* and a NUL */
};

/* Returns 1, 0 at the end, -EAGAIN or -EPROTO. */
int reply_receive(int channel, struct reply_packet *ret_reply);

/* The string after `before` (NULL: the first), or NULL after the last. */
const char *reply_next(const struct reply_packet *reply, const char *before);

/* "req_0123456789abcdef", as clients see it. */
enum { REQUEST_NAME = 24 };
void request_name(uint64_t id, char ret_name[REQUEST_NAME]);

void strings_add(struct buf *strings, const char *text);

/* "[a-z0-9]{1,28}": other ids are not looked up. */
static inline bool record_is_id(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789");

    return len > 0 && len < SANDBOX_ID_MAX - 3 && text[len] == '\0';
}

#endif
