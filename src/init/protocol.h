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
 *   OPEN      open_request, path             OPENED   fds: the file
 *   PING                                     PONG
 *
 * A connection runs one command at a time and may be used again after ENDED.  If it is
 * closed while a foreground command runs, that command and its tree are killed: its
 * caller is gone. */

enum { PROTOCOL_VERSION = 1, MESSAGE_MAX = 64 << 10, MESSAGE_FDS_MAX = 4 };

enum message_kind {
    MESSAGE_EXEC = 1,
    MESSAGE_KILL = 2,
    MESSAGE_OPEN = 3,
    MESSAGE_PING = 4,
    MESSAGE_STARTED = 101,
    MESSAGE_ENDED = 102,
    MESSAGE_FAILED = 103,
    MESSAGE_OPENED = 104,
    MESSAGE_PONG = 105
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

struct open_request {
    uint32_t flags; /* O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_EXCL, O_APPEND */
    uint32_t mode;
};

#endif
