/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_RUNTIME_H
#define NATIVE_RECORD_RUNTIME_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

#include "cay/sandbox.h"
#include "native/record/cgroup.h"

/* What is known about a sandbox while it lives, in the runtime directory, 0700: one
 * record by its id, and the control socket beside it.  The record is written before
 * anything else exists and removed last, so that after a crash somebody can finish.  They
 * have no directory of their own: on a disk those take a block each, and freeing it can
 * mean waiting for the disk. */
struct record {
    uint32_t version, size; /* RECORD_VERSION, and how many bytes its writer wrote */
    char id[CAY_ID_MAX];
    uint32_t id_base, id_count; /* outside; id_base is inside 0, or `user` if it is one */
    pid_t init;                 /* 0 until it runs */
    uint64_t pid_namespace;     /* where that number means it */
    uint64_t init_start; /* its start time in clock ticks: tells a reused pid apart */
    uint32_t layers;
    uint32_t has_range; /* id_base is in a range that is reserved for it */
    uint32_t rung, network, storage, ephemeral;
    uint32_t landlock_abi; /* that is in force; 0: none */
    uint32_t calls;        /* how many system calls the filter allows */
    uint32_t pids_by_rlimit;
    int64_t created_ms;                /* since 1970 */
    uint64_t memory_bytes, disk_bytes; /* as asked for, kept or not */
    uint32_t pids, cpu_percent;
    char template_name[256], user[64], workdir[256];
    uint64_t template_dev, template_ino; /* of its root; 0 for the host's */
    struct cgroup cgroup;
    /* Version 4 ends here.  Nothing above may move: a sandbox outlives an upgrade of cay.
     * New fields are appended; a reader takes those it knows, and those that the writer
     * did not know are 0. */
    uint64_t checksum;       /* of the whole record, with 0 in this place */
    char home[1024];         /* the state directory of one on disk; "" if unknown */
    char name[CAY_NAME_MAX]; /* "" if it has none */
};

enum { RUNTIME_IDS = 65536, RECORD_VERSION = 5, RECORD_VERSION_MIN = 4 };
enum { RECORD_MAX = 4096 }; /* of any version */

/* "/run/cay"; for others than root below $XDG_RUNTIME_DIR, or one in /tmp.
 * CAY_E_NOT_FOUND: it is not there; CAY_E_UNAVAILABLE: it is not ours alone. */
int runtime_directory(char ret_path[PATH_MAX], struct cay_error *err);

/* Makes it if it is not there. */
int runtime_create(struct cay_error *err);

/* A descriptor (O_PATH) of the directory `below` in it, made if it is not there, or a
 * code.
 */
int runtime_open_dir(const char *below, struct cay_error *err);

/* Whether it is nobody else's, or could be made. */
int runtime_check(char ret_path[PATH_MAX], struct cay_error *err);

bool runtime_is_id(const char *text);

/* Draws an id unless there is one, reserves a range of user ids that no other sandbox on
 * this machine has, if it is to have one, and makes its file.  CAY_E_BUSY: that id has
 * one already. */
int runtime_reserve(const char *id, bool with_range, struct record *ret_record,
                    struct cay_error *err);
int runtime_save(const struct record *record, struct cay_error *err);
/* CAY_E_INTERNAL: the record is damaged, or of a version that this one cannot read; see
 * recover.h.  CAY_E_NOT_FOUND: there is none, or an unfinished one without processes. */
int runtime_load(const char *id, struct record *ret_record, struct cay_error *err);
void runtime_release(const struct record *record);

/* Whether the record has not been written to for so long that its maker has died. */
bool runtime_is_old(const char *id);

/* Held by whoever makes or removes the sandbox: a descriptor, or -1 with EWOULDBLOCK if
 * somebody else has it, with ENOENT if there is none, or with another errno.  A record
 * without its lock held and without a living init is left over from a crash. */
int runtime_lock(const char *id);

/* The same, but waits a little: who collects looks at every record there is. */
int runtime_wait_lock(const char *id);

/* When somebody last looked at all of them is kept as the directory's access time. */
void runtime_mark_collected(void);
bool runtime_was_collected(int64_t within_ms);

/* Calls `visit` for each record. */
int runtime_visit(void (*visit)(const char *id, void *cookie), void *cookie,
                  struct cay_error *err);

/* A system call on something in the runtime directory has failed.  If for want of space,
 * that of another disk would be looked at otherwise. */
int runtime_fail(int error, const char *subject, struct cay_error *err);

/* Where its init listens: "RUNTIME/ID.control". */
int runtime_address(const char *id, struct sockaddr_un *ret_address,
                    struct cay_error *err);

/* Made by the backend "local". */
static inline bool runtime_is_local(const struct record *record)
{
    return record->rung == CAY_RUNG_NONE;
}

/* If it has none, the end of its init is not the end of all. */
static inline bool runtime_has_namespaces(const struct record *record)
{
    return record->rung != CAY_RUNG_LANDLOCK && record->rung != CAY_RUNG_NONE;
}

/* The uid range that is reserved for `id`, into the record if there is one.  Negative if
 * too few files or too little memory are left to look. */
int runtime_find_range(const char *id, struct record *record);

/* When its record was last written, in milliseconds since 1970; 0 if there is none. */
int64_t runtime_changed_ms(const char *id);

/* The caller's. */
uint64_t runtime_pid_namespace(void);

/* Whether a process listens at the control socket of `id`: 1 or 0, or negative: too few
 * files or too little memory are left to look. */
int runtime_check_listening(const char *id);

/* 0 if no such process lives.  Negative: too few files or too little memory are left to
 * look. */
int runtime_start_time(pid_t pid, uint64_t *ret_start);

/* Whether its init runs: 1 or 0, or negative as above. */
int runtime_check_alive(const struct record *record);

/* The same, for those who only leave alone what lives: who cannot look says yes. */
static inline bool runtime_is_alive(const struct record *record)
{
    return runtime_check_alive(record) != 0;
}

#endif
