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
 *   EXEC      exec_request, strings; fds:    STARTED  fds: pidfd
 *             stdin, stdout, stderr[,        ENDED    exec_end
 *             memfd with the strings]        FAILED   struct cay_error
 *   KILL      (the command of this           FAILED
 *             connection and its tree)
 *   FILES     user                           FILES_READY  the directory to start from
 *             (whose rights FILE has from      FAILED
 *             here on)
 *   FILE      file_request, two strings;     FILE_DONE  file_answer, text; fds: the
 *             fds: see enum file_op                     file, its directory
 *   PING                                     PONG
 *
 * A connection runs one command at a time and may be used again after ENDED.  If it is
 * closed while a foreground command runs, that command and its tree are killed: its
 * caller is gone.  Strings end with NUL. */

enum { PROTOCOL_VERSION = 1, MESSAGE_MAX = 64 << 10, MESSAGE_FDS_MAX = 4 };

enum message_kind {
    MESSAGE_EXEC = 1,
    MESSAGE_KILL = 2,
    MESSAGE_PING = 4,
    MESSAGE_FILES = 5,
    MESSAGE_FILE = 6,
    MESSAGE_STARTED = 101,
    MESSAGE_ENDED = 102,
    MESSAGE_FAILED = 103,
    MESSAGE_PONG = 105,
    MESSAGE_FILES_READY = 106,
    MESSAGE_FILE_DONE = 107
};

struct message {
    uint32_t version; /* PROTOCOL_VERSION */
    uint32_t kind;
    uint32_t len; /* of the payload in this packet */
    uint32_t fd_count;
};

/* Followed by strings, each with its NUL: cwd ("" for the home), user, argv, env.  Longer
 * ones than fit a packet come in a memfd instead: strings_len bytes from its start. */
struct exec_request {
    uint32_t argc, envc;
    uint32_t strings_len;
    uint32_t in_memfd; /* 0 or 1 */
    uint64_t timeout_ms;
};

enum { EXEC_STRINGS_MAX = 4 << 20, EXEC_COUNT_MAX = 65536 };

struct exec_end {
    uint32_t cause; /* enum cay_cause */
    int32_t status; /* as wait(2) tells it */
    int32_t exec_errno;
    uint32_t padding;
    uint64_t user_us, system_us, wall_us, peak_memory;
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
    FILE_DRAFT = 13,         /* [dir] */
    FILE_DRAFT_LIKE = 14,    /* [dir, model] */
    FILE_LIKE = 15,          /* [file, model] */
    FILE_COMMIT = 16         /* [file, dir] name, temporary name or "" */
};

struct file_request {
    uint32_t op;
    uint32_t at_root;     /* bit i: the i-th descriptor is the root and was left out */
    uint64_t flags, mode; /* of FILE_COMMIT: whether to replace */
    uint64_t resolve;
    int64_t times[4]; /* access and change: seconds, nanoseconds */
};

enum file_answer_flag {
    FILE_HAS_FD = 1 << 0,
    FILE_HAS_DIR = 1 << 1,
    FILE_IS_OPEN = 1 << 2, /* FILE_FIND: what was found is open for reading... */
    FILE_IS_COPY = 1 << 3, /* ...or a copy of it is, as of FILE_REOPEN */
    FILE_HAS_TEXT = 1 << 4 /* the place, the link, the temporary name */
};

struct file_answer {
    int32_t error; /* 0 or a negative errno */
    uint32_t flags;
    int32_t write_error; /* 1: not looked at */
    uint32_t text_len;   /* without its NUL */
};

enum { FILE_COPY_MAX = 1 << 20 };

#endif
