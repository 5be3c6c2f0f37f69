/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_LOCK_H
#define SESSION_LOCK_H

#include <stdint.h>

#include "session/store.h"

/* OFD locks on single bytes of one file: byte 0 for opening the store, and one byte for
 * each session, by its hash.  They belong to an open file description, so they also
 * exclude threads, and end with its last descriptor. */

/* The file; `name` lies in `dir`, or -1 for one of this process only. */
int lock_open_file(int dir, const char *name, struct cay_error *err);

/* A descriptor that has locked the byte, or CAY_E_TIMEOUT. */
int lock_byte(const cay_store *store, const char *op, const char *subject, uint64_t byte,
              uint64_t timeout_ms, struct cay_error *err);
void lock_release(int fd, uint64_t byte);

struct cay_session_lock {
    int fd;
    uint64_t byte;
    pid_t owner;
};

/* Hands the lock over to a child that was forked meanwhile and has a copy of it; NULL is
 * fine. */
void lock_leave_to_child(cay_session_lock *lock);

#endif
