/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PROTOCOL_H
#define INIT_PROTOCOL_H

#include <stdint.h>

#include "cay/error.h"

/* The protocol between the library and cay-init.
 *
 * One message is one SOCK_SEQPACKET packet: a struct message, then `len` bytes of
 * payload, with descriptors (SCM_RIGHTS).  Each side treats the other's bytes as hostile:
 * a packet of the wrong size, an unknown kind or the wrong number of descriptors ends the
 * connection.
 *
 *   library -> init                          init -> library
 *   EXEC      exec_request, strings; fds     STARTED  exec_started; fds: the terminal,
 *             as its flags say                        for the foreground
 *                                            ENDED    exec_end (a foreground command)
 *   ATTACH    number or tag                  STARTED
 *   READ      (a background command)         OUTPUT   output_head, bytes; or ENDED: as
 *                                                     soon as there is one
 *   WRITE     bytes for its input            WRITTEN  uint32_t: how many it took
 *   CLOSE_INPUT                              DONE
 *   RESIZE    resize_request                 DONE
 *   SKIP      (the output kept so far)       DONE
 *   SIGNAL    int32_t                        DONE
 *   KILL      uint32_t: 1 for a reply        DONE     once the whole tree is dead
 *   FORGET    (its result is not needed)
 *   LIST      uint64_t: after this one       LISTED   list_head, list_entry...; fds, from
 *                                                     the start only: /proc inside
 *   STATUS                                   STATE    struct state
 *   TTL       uint64_t milliseconds          DONE
 *   PAUSE, RESUME                            DONE
 *   HOLD      (PID 1 does nothing until      DONE
 *             the next message, the end of
 *             the connection, or HOLD_MS)
 *   FILES     user, "" for the default       FILES_READY  the directory to start from,
 *             (the user of all later FILE               the user
 *             messages)
 *   FILE      file_request, two strings;     FILE_DONE  file_reply, text; fds: the
 *             fds: see enum file_op                     file, its directory
 *   DIAL      uint16_t: a port on loopback   DIALLED  the socket
 *   DIAL_ONLY (from then on relay_dial of    none
 *             relay.h and nothing else, for
 *             another sandbox)
 *   OWNERS_ONLY (the same of                 none
 *             relay_owner_request, for the
 *             sandbox's cay-net)
 *   CODE      user, "" for the default       DIALLED  a socket to the user's code service
 *                                                     (code.h), started if there is none
 *   CLAIM     plan_defaults, environment;    none
 *             fds: the leash of an ephemeral
 *             sandbox
 *   PING                                     PONG
 *
 * The reply to any of them but READ, FORGET and KILL without a reply may be FAILED with a
 * struct cay_error.  Replies come in order, except that of READ, which may come at any
 * time after it; one READ at a time.
 *
 * A connection runs one command at a time, or is attached to one, and may run another
 * after ENDED.  Closing it while a foreground command runs kills that command and its
 * tree.  A background command belongs to the sandbox; PID 1 keeps the last OUTPUT_KEPT
 * bytes of each stream, and each connection reads at its own pace and gets the number of
 * bytes it lost.  An EXEC_PIPED command loses nothing while connections read: it waits
 * for the slowest of them, and ends when its output does.
 *
 * A pause has two steps: PAUSE makes PID 1 start no more commands, then the library
 * freezes the cgroup of the commands; a resume does the reverse.
 *
 * While PID 1 is held, the library may mount another root, and freeze the commands: PID 1
 * thaws them when the hold ends, unless the sandbox is paused.
 *
 * A spare of a pool serves only CLAIM, PING and STATUS until it is claimed, once.  Then
 * it ends with the creator instead of the pool, if it has a leash, or lives on.
 *
 * Strings end with NUL. */

enum {
    PROTOCOL_VERSION = 2,
    CLAIM_VERSION = 2, /* of CLAIM: 1 had a reply */
    MESSAGE_MAX = 64 << 10,
    MESSAGE_FDS_MAX = 4,
    OUTPUT_KEPT = 1 << 20,
    TAG_MAX = 64,         /* with NUL */
    WORDS_MAX = 512,      /* of a command line in lists; with NUL */
    BACKGROUND_MAX = 512, /* background commands that run at a time */
    RESULTS_MAX = 64,     /* kept results of ended background commands */
    ENV_MAX = 128 << 10,  /* bytes of the sandbox's own environment */
    ENV_COUNT_MAX = 1024,
    HOLD_MS = 10000
};

enum message_kind {
    MESSAGE_EXEC = 1,
    MESSAGE_KILL = 2,
    MESSAGE_PING = 4,
    MESSAGE_FILES = 5,
    MESSAGE_FILE = 6,
    MESSAGE_ATTACH = 20,
    MESSAGE_READ = 21,
    MESSAGE_WRITE = 22,
    MESSAGE_CLOSE_INPUT = 23,
    MESSAGE_RESIZE = 24,
    MESSAGE_SIGNAL = 25,
    MESSAGE_FORGET = 26,
    MESSAGE_LIST = 27,
    MESSAGE_STATUS = 28,
    MESSAGE_TTL = 29,
    MESSAGE_PAUSE = 30,
    MESSAGE_RESUME = 31,
    MESSAGE_SKIP = 32,
    MESSAGE_DIAL = 33,
    MESSAGE_CLAIM = 34,
    MESSAGE_CODE = 35,
    MESSAGE_DIAL_ONLY = 36,
    MESSAGE_HOLD = 37,
    MESSAGE_OWNERS_ONLY = 38,
    MESSAGE_STARTED = 101,
    MESSAGE_ENDED = 102,
    MESSAGE_FAILED = 103,
    MESSAGE_PONG = 105,
    MESSAGE_FILES_READY = 106,
    MESSAGE_FILE_DONE = 107,
    MESSAGE_OUTPUT = 120,
    MESSAGE_WRITTEN = 121,
    MESSAGE_DONE = 122,
    MESSAGE_LISTED = 123,
    MESSAGE_STATE = 124,
    MESSAGE_DIALLED = 125
};

struct message {
    uint32_t version; /* PROTOCOL_VERSION */
    uint32_t kind;
    uint32_t len; /* of the payload in this packet */
    uint32_t fd_count;
};

enum exec_flag {
    EXEC_QUIET = 1 << 0,        /* no STARTED, only ENDED */
    EXEC_BACKGROUND = 1 << 1,   /* PID 1 keeps the output */
    EXEC_TTY = 1 << 2,          /* on a terminal that PID 1 opens */
    EXEC_INPUT = 1 << 3,        /* fds: stdin; without it /dev/null */
    EXEC_KEEP_INPUT = 1 << 4,   /* fds: the other end of stdin, for WRITE */
    EXEC_IN_MEMFD = 1 << 5,     /* fds: a memfd with the strings */
    EXEC_DEFAULT_USER = 1 << 6, /* ignore the request's user */
    EXEC_PIPED = 1 << 7,        /* background: writers wait for readers */
    EXEC_LAST = 1 << 8,         /* if it exits with 0, the sandbox ends */
    EXEC_FLAGS = (1 << 9) - 1
};

/* Followed by strings, each with its NUL: cwd ("": the default), user, tag ("": none),
 * argv, env.  If they do not fit the packet, they are in a memfd: strings_len bytes from
 * its start.
 *
 * Descriptors, in this order: stdin (EXEC_INPUT), stdout and stderr (neither
 * EXEC_BACKGROUND nor EXEC_TTY), the write end of stdin (EXEC_KEEP_INPUT), the memfd
 * (EXEC_IN_MEMFD). */
struct exec_request {
    uint32_t argc, envc;
    uint32_t strings_len;
    uint32_t flags; /* enum exec_flag */
    uint64_t timeout_ms;
    uint64_t mark; /* opaque, returned in exec_end */
    uint16_t rows, columns;
    uint32_t padding;
};

enum { EXEC_STRINGS_MAX = 4 << 20, EXEC_COUNT_MAX = 65536 };

struct exec_started {
    int32_t pid;    /* inside */
    uint32_t flags; /* EXEC_BACKGROUND, EXEC_TTY, EXEC_KEEP_INPUT */
};

struct exec_end {
    uint32_t cause;  /* enum cay_cause */
    int32_t status;  /* as wait(2) reports it */
    uint32_t killed; /* 1: by KILL or because its caller is gone */
    uint32_t padding;
    uint64_t user_us, system_us, wall_us, peak_memory;
    uint64_t mark;
};

struct output_head {
    uint32_t stream; /* 1 or 2 */
    uint32_t padding;
    uint64_t dropped; /* bytes of the stream lost before these */
};

struct resize_request {
    uint16_t rows, columns;
};

struct list_head {
    uint32_t count;  /* of the entries that follow; 0: no more */
    int32_t prefork; /* pid of the preforked child, or 0 */
};

enum list_flag { LIST_BACKGROUND = 1 << 0, LIST_ENDED = 1 << 1, LIST_TERMINAL = 1 << 2 };

struct list_entry {
    uint64_t number; /* in the order of their start */
    int32_t pid;
    uint32_t uid;
    uint32_t flags; /* enum list_flag */
    int32_t status; /* as wait(2) reports it, if it has ended */
    uint32_t cause; /* if it has ended */
    uint32_t killed;
    uint64_t mark;
    int64_t started_ms; /* since 1970 */
    char tag[TAG_MAX];
    char words[WORDS_MAX]; /* of background commands */
};

struct state {
    uint64_t ttl_left_ms; /* UINT64_MAX: no time to live */
    uint32_t is_paused;
    uint32_t foreground, background, ended; /* commands */
    uint32_t peers;
    uint32_t padding;
    uint64_t disk_used; /* bytes used on the root file system */
};

/* The functions of struct fs (sys/fs.h), by the same names.  In brackets the descriptors
 * that each takes; a directory that is the root may be left out (`at_root`). */
enum file_op {
    FILE_FIND = 1,           /* [dir] path */
    FILE_OPEN = 2,           /* [dir] path */
    FILE_REOPEN = 3,         /* [file] */
    FILE_MAY_WRITE = 4,      /* [file] */
    FILE_READ_LINK = 5,      /* [link] */
    FILE_MAKE_DIRECTORY = 6, /* [dir] name */
    FILE_MAKE_LINK = 7,      /* [dir] name, text */
    FILE_LINK = 8,           /* [file, dir] name */
    FILE_RENAME = 9,         /* [from, to] name, name */
    FILE_REMOVE = 10,        /* [dir] name */
    FILE_SET_TIMES = 11,     /* [file] name or "" */
    FILE_SET_MODE = 12,      /* [file] */
    FILE_DRAFT = 13,         /* [dir] resolve: bytes to allocate, or 0 */
    FILE_DRAFT_LIKE = 14,    /* [dir, model] the same */
    FILE_LIKE = 15,          /* [file, model] */
    FILE_COMMIT = 16,        /* [file, dir] name, temporary name or "" */
    FILE_LOOK = 17,          /* [dir] names with slashes between them */
    FILE_TAKE_ROOM = 18,     /* [file] flags: where, resolve: how many bytes */
    FILE_SET_OWNER = 19      /* [file] flags: uid, resolve: gid; UINT32_MAX: unchanged */
};

struct file_request {
    uint32_t op;
    uint32_t at_root;     /* bit i: descriptor i is the root and was left out */
    uint64_t flags, mode; /* of FILE_COMMIT: whether to replace */
    uint64_t resolve;
    int64_t times[4]; /* access and change: seconds, nanoseconds */
};

enum file_reply_flag {
    FILE_HAS_FD = 1 << 0,
    FILE_HAS_DIR = 1 << 1,
    FILE_IS_OPEN = 1 << 2, /* FILE_FIND: the file is open for reading... */
    FILE_IS_COPY = 1 << 3, /* ...or a copy of it, as with FILE_REOPEN */
    FILE_HAS_TEXT = 1 << 4 /* the resolved path, the link, the temporary name */
};

struct file_reply {
    int32_t error; /* 0 or a negative errno */
    uint32_t flags;
    int32_t write_error; /* 1: not checked */
    uint32_t text_len;   /* without its NUL */
};

/* The reply to FILE_LOOK has one of these for each name, in order, instead of a text. */
struct file_look {
    int32_t error;
    uint32_t mode, uid, gid;
    uint32_t links, mtime_nanoseconds;
    uint64_t bytes;
    int64_t mtime;
};
enum { FILE_LOOKS_MAX = 64 };

enum { FILE_COPY_MAX = 1 << 20, FILE_ROOM_MAX = 1 << 20 };

/* Prefix of the user of a FILES message: operations have root's rights, and new files
 * belong to the user.  No user name contains a colon. */
#define FILES_AS_ROOT "root:"
enum { FILES_USER_MAX = 64 + sizeof FILES_AS_ROOT - 1, CODE_USER_MAX = 64 };

#endif
