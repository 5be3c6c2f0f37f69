/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RUNTIME_H
#define NATIVE_RUNTIME_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/native/groups.h"
#include "cay/sandbox.h"

/* What is known about a sandbox while it lives, in a directory of its own below the
 * runtime directory, 0700: the control socket and one record.  The record is written
 * before anything else exists and removed last, so that after a crash somebody can
 * finish. */
struct record {
    char id[CAY_ID_MAX];
    uint32_t id_base;
    pid_t init;          /* 0 until it runs */
    uint64_t init_start; /* its start time in clock ticks: tells a reused pid apart */
    unsigned layers;
    uint32_t storage;                    /* enum cay_storage */
    uint64_t template_dev, template_ino; /* of its root; 0 for the host's */
    struct groups groups;
};

enum { RUNTIME_IDS = 65536 };

/* "/run/cay", or below $XDG_RUNTIME_DIR for others than root. */
int runtime_directory(char ret_path[PATH_MAX], struct cay_error *err);

bool runtime_is_id(const char *text);

/* Draws an id unless there is one, reserves a range of user ids that no other sandbox on
 * this machine has, and makes the directory.  CAY_E_BUSY: that id has one already. */
int runtime_reserve(const char *id, struct record *ret_record, struct cay_error *err);
int runtime_save(const struct record *record, struct cay_error *err);
int runtime_load(const char *id, struct record *ret_record, struct cay_error *err);
void runtime_release(const struct record *record);

/* Of one whose maker died before it could write a record, some time ago: false if it is
 * not that.  Call it with the lock held. */
bool runtime_forget(const char *id);

/* Held by whoever makes or removes the sandbox: a descriptor, or -1 if somebody else has
 * it. A record without its lock held and without a living init is left over from a crash.
 */
int runtime_lock(const char *id);

/* Calls `visit` for each record. */
int runtime_visit(void (*visit)(const char *id, void *cookie), void *cookie,
                  struct cay_error *err);

/* "RUNTIME/ID/control" */
int runtime_socket(const struct record *record, char ret_path[PATH_MAX],
                   struct cay_error *err);

uint64_t runtime_start_time(pid_t pid); /* 0 if no such process lives */

#endif
