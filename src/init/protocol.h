/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PROTOCOL_H
#define INIT_PROTOCOL_H

#include <stdint.h>

#include "cay/error.h"

/* What the library and cay-init say to each other.
 *
 * One message is one SOCK_SEQPACKET packet: a struct message, then `len` bytes of
 * payload, with descriptors beside it.  Each side takes the other's bytes for hostile: a
 * packet of the wrong size, an unknown kind or the wrong number of descriptors ends the
 * connection.
 *
 *   library -> init                          init -> library
 *   EXEC      exec_request, strings; fds     STARTED  exec_started; fds: the terminal,
 *             as its flags say                        if it is the caller's
 *                                            ENDED    exec_end (a foreground command)
 *   ATTACH    number or tag                  STARTED
 *   READ      (a background command)         OUTPUT   output_head, bytes; or ENDED: as
 *                                                     soon as there is one of them
 *   WRITE     bytes for its input            WRITTEN  uint32_t: how many it took
 *   CLOSE_INPUT                              DONE
 *   RESIZE    resize_request                 DONE
 *   SKIP      (what was kept until now)      DONE
 *   SIGNAL    int32_t                        DONE
 *   KILL      uint32_t: 1 for an answer      DONE     once the whole tree is dead
 *   FORGET    (its result is not needed)
 *   LIST      uint64_t: after this one       LISTED   list_head, list_entry...; fds, from
 *                                                     the start only: /proc inside
 *   STATUS                                   STATE    struct state
 *   TTL       uint64_t milliseconds          DONE
 *   PAUSE, RESUME                            DONE
 *   FILES     user, "" for the default       FILES_READY  the directory to start from,
 *             (whose rights FILE has from               the user
 *             here on)
 *   FILE      file_request, two strings;     FILE_DONE  file_reply, text; fds: the
 *             fds: see enum file_op                     file, its directory
 *   DIAL      uint16_t: a port on loopback   DIALLED  the socket
 *   PING                                     PONG
 *
 * Any of them but READ, FORGET and KILL without an answer may be answered by FAILED with
 * a struct cay_error.  Answers come in order, but for READ's, which may come at any time
 * after it; one READ at a time.
 *
 * A connection runs one command at a time, or is attached to one, and may run another
 * after ENDED.  If it is closed while a foreground command runs, that command and its
 * tree are killed: its caller is gone.  A background command is the sandbox's; it keeps
 * the last OUTPUT_KEPT bytes of each stream, and each connection reads at its own pace
 * and is told what it lost.  An EXEC_PIPED one loses nothing while connections read: it
 * waits for the slowest of them, and ends when its output does.
 *
 * A pause has two halves: PAUSE makes init start nothing more, and the library then
 * freezes the cgroup of the commands; the other way round to go on.
 *
 * Strings end with NUL. */

enum {
    PROTOCOL_VERSION = 2,
    MESSAGE_MAX = 64 << 10,
    MESSAGE_FDS_MAX = 4,
    OUTPUT_KEPT = 1 << 20,
    TAG_MAX = 64,         /* with its NUL */
    WORDS_MAX = 512,      /* of a command's words, for lists; with its NUL */
    BACKGROUND_MAX = 512, /* that run at a time */
    RESULTS_MAX = 64,     /* of ended ones */
    ENV_MAX = 128 << 10,  /* of the sandbox's own environment */
    ENV_COUNT_MAX = 1024
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
    EXEC_QUIET = 1 << 0,        /* no STARTED, only the end */
    EXEC_BACKGROUND = 1 << 1,   /* init keeps the output */
    EXEC_TTY = 1 << 2,          /* on a terminal, which init opens */
    EXEC_INPUT = 1 << 3,        /* fds: stdin; without it /dev/null */
    EXEC_KEEP_INPUT = 1 << 4,   /* fds: the other end of stdin, for WRITE */
    EXEC_IN_MEMFD = 1 << 5,     /* fds: a memfd with the strings */
    EXEC_DEFAULT_USER = 1 << 6, /* whatever the request's user is */
    EXEC_PIPED = 1 << 7,        /* background: who writes waits for who reads */
    EXEC_LAST = 1 << 8,         /* exiting with 0 it is the end of the sandbox */
    EXEC_FLAGS = (1 << 9) - 1
};

/* Followed by strings, each with its NUL: cwd ("": the default), user, tag ("": none),
 * argv, env.  Longer ones than fit a packet come in a memfd instead: strings_len bytes
 * from its start.
 *
 * Descriptors, in this order: stdin (EXEC_INPUT), stdout and stderr (neither
 * EXEC_BACKGROUND nor EXEC_TTY), the end to write stdin at (EXEC_KEEP_INPUT), the memfd
 * (EXEC_IN_MEMFD). */
struct exec_request {
    uint32_t argc, envc;
    uint32_t strings_len;
    uint32_t flags; /* enum exec_flag */
    uint64_t timeout_ms;
    uint64_t mark; /* the library's own; comes back in exec_end */
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
    int32_t status;  /* as wait(2) tells it */
    uint32_t killed; /* 1: by KILL or the loss of its caller */
    uint32_t padding;
    uint64_t user_us, system_us, wall_us, peak_memory;
    uint64_t mark;
};

struct output_head {
    uint32_t stream; /* 1 or 2 */
    uint32_t padding;
    uint64_t dropped; /* bytes of it lost before these */
};

struct resize_request {
    uint16_t rows, columns;
};

struct list_head {
    uint32_t count;  /* of the entries that follow; 0: that was all */
    int32_t prefork; /* pid of a child that waits for a command, or 0 */
};

enum list_flag { LIST_BACKGROUND = 1 << 0, LIST_ENDED = 1 << 1, LIST_TERMINAL = 1 << 2 };

struct list_entry {
    uint64_t number; /* in the order they were started */
    int32_t pid;
    uint32_t uid;
    uint32_t flags; /* enum list_flag */
    int32_t status; /* as wait(2) tells it, if it has ended */
    uint32_t cause; /* the same */
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
    uint64_t disk_used; /* bytes of its own root */
};

/* The functions of struct fs (sys/fs.h), of the same names.  In brackets the descriptors
 * that go with each; a directory may be left out for the root, as `at_root` tells. */
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
    FILE_TAKE_ROOM = 18      /* [file] flags: where, resolve: how many bytes */
};

struct file_request {
    uint32_t op;
    uint32_t at_root;     /* bit i: the i-th descriptor is the root and was left out */
    uint64_t flags, mode; /* of FILE_COMMIT: whether to replace */
    uint64_t resolve;
    int64_t times[4]; /* access and change: seconds, nanoseconds */
};

enum file_reply_flag {
    FILE_HAS_FD = 1 << 0,
    FILE_HAS_DIR = 1 << 1,
    FILE_IS_OPEN = 1 << 2, /* FILE_FIND: what was found is open for reading... */
    FILE_IS_COPY = 1 << 3, /* ...or a copy of it is, as of FILE_REOPEN */
    FILE_HAS_TEXT = 1 << 4 /* the place, the link, the temporary name */
};

struct file_reply {
    int32_t error; /* 0 or a negative errno */
    uint32_t flags;
    int32_t write_error; /* 1: not looked at */
    uint32_t text_len;   /* without its NUL */
};

/* What an answer to FILE_LOOK has for each name, in their order, instead of a text. */
struct file_look {
    int32_t error;
    uint32_t mode, uid, gid;
    uint32_t links, mtime_nanoseconds;
    uint64_t bytes;
    int64_t mtime;
};
enum { FILE_LOOKS_MAX = 64 };

enum { FILE_COPY_MAX = 1 << 20, FILE_ROOM_MAX = 1 << 20 };

/* Before the name of a FILES message's user: with the rights of root, and only what is
 * made is the user's.  No name has a colon in it. */
#define FILES_AS_ROOT "root:"
enum { FILES_USER_MAX = 64 + sizeof FILES_AS_ROOT - 1 };

#endif
