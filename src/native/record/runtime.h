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
#include "native/record/volume.h"

/* The record of a running sandbox, in the runtime directory (0700): one file named after
 * its id, with the control socket beside it.  The record is written before any other
 * resource exists and removed last, so that a later process can clean up after a crash.
 * Sandboxes have no directory of their own: on a disk each would take a block, and
 * freeing it can wait for the disk. */
struct record {
    uint32_t version, size; /* RECORD_VERSION, and the number of bytes written */
    char id[CAY_ID_MAX];
    uint32_t id_base,
        id_count; /* host ids; id_base is 0 inside, or `user` if there is one id */
    pid_t init;   /* pid; 0 until it runs */
    uint64_t pid_namespace; /* the PID namespace of that pid */
    uint64_t init_start;    /* its start time in clock ticks: detects a reused pid */
    uint32_t layers;
    uint32_t has_range; /* id_base is in a range reserved for this sandbox */
    uint32_t level, network, storage, ephemeral;
    uint32_t landlock_abi; /* the ABI in force; 0: none */
    uint32_t calls;        /* number of system calls that the filter allows */
    uint32_t pids_by_rlimit;
    int64_t created_ms;                /* since 1970 */
    uint64_t memory_bytes, disk_bytes; /* as requested, enforced or not */
    uint32_t pids, cpu_percent;
    char template_name[256], user[64], workdir[256];
    uint64_t template_dev, template_ino; /* of the template's root; 0 for the host */
    struct cgroup cgroup;
    /* Version 4 ends here.  Nothing above may move, because sandboxes outlive an upgrade
     * of cay. New fields are appended; fields that the writer did not know are 0. */
    uint64_t checksum;       /* of the whole record, computed with 0 here */
    char home[1024];         /* the state directory of a sandbox on disk; "" if unknown */
    char name[CAY_NAME_MAX]; /* "" if it has none */
    uint32_t is_spare;       /* of a pool, and not claimed */
    uint32_t protocol;       /* PROTOCOL_VERSION of PID 1; 0: see runtime_protocol() */
    char mark[CAY_ID_MAX]; /* the id that was requested when the spare was claimed, or ""
                            */
    char pool[24]; /* the id of the pool that made it; "" if it was not made ahead */
    uint32_t is_relayed;             /* its network is that of a cay-net */
    pid_t relay;                     /* the pid of that; 0 until it runs */
    uint64_t relay_start;            /* as init_start */
    char networks[CAY_NETWORKS_MAX]; /* "NETWORK:NAME NETWORK:NAME": see members.h */
    char volumes[VOLUME_NAMES];      /* the names of its volumes: see volume.h */
    char below[CAY_ID_MAX]; /* the sandbox on disk whose files this fork in memory shares,
                               or "" */
    uint32_t checkpoint_each; /* a checkpoint before each command */
    uint32_t approves;        /* commands need approval: see runtime_load_approve() */
};

enum { RUNTIME_IDS = 65536, RECORD_VERSION = 5, RECORD_VERSION_MIN = 4 };
enum { RECORD_MAX = 4096 }; /* of any version */

/* "/run/cay" for root; otherwise below $XDG_RUNTIME_DIR, or in /tmp. CAY_E_NOT_FOUND: it
 * does not exist; CAY_E_UNAVAILABLE: it does not belong to this user alone. */
int runtime_directory(char ret_path[PATH_MAX], struct cay_error *err);

/* An O_PATH descriptor of it ("") or of its directory `below`, created if missing, or a
 * code. */
int runtime_open_dir(const char *below, struct cay_error *err);

/* Whether it belongs to this user alone, or can be created. */
int runtime_check(char ret_path[PATH_MAX], struct cay_error *err);

bool runtime_is_id(const char *text);

/* Draws an id, which begins with the prefix if that is not NULL, unless one is given;
 * reserves a range of user ids if requested, and creates the record's file.  CAY_E_BUSY:
 * there is a record with that id. */
int runtime_reserve(const char *id, const char *prefix, bool with_range,
                    struct record *ret_record, struct cay_error *err);
int runtime_save(const struct record *record, struct cay_error *err);
/* CAY_E_INTERNAL: the record is damaged or of an unsupported version; see remove.h.
 * CAY_E_NOT_FOUND: there is none, or an unfinished one without processes. */
int runtime_load(const char *id, struct record *ret_record, struct cay_error *err);
/* The same by the descriptor of the caller's lock. */
int runtime_load_locked(int fd, const char *id, struct record *ret_record,
                        struct cay_error *err);
void runtime_release(const struct record *record);

/* Releases the name, the note and the list of ports only: the rest of an ended sandbox is
 * not visible. */
void runtime_hide(const struct record *record);

/* Whether the record was last written so long ago that its creator must have died. */
bool runtime_is_old(const char *id);

/* Held while a process creates or removes the sandbox: a descriptor, or -1 with
 * EWOULDBLOCK if another process holds it, ENOENT if there is no record, or another
 * errno. A record without a held lock and without a running init is left from a crash. */
int runtime_lock(const char *id);

/* The same, but waits a little: a collect locks every record for a moment. */
int runtime_wait_lock(const char *id);

/* The time of the last collect is stored as the access time of the directory. */
void runtime_mark_collected(void);
bool runtime_was_collected(int64_t within_ms);

/* Calls `visit` for each record. */
int runtime_visit(void (*visit)(const char *id, void *cookie), void *cookie,
                  struct cay_error *err);

/* Removes notes (cay_sandbox_set_note()), lists of ports and files of a relayed network
 * that have no record; returns how many. */
size_t runtime_sweep(void);

/* Reports a failed system call on the runtime directory.  For ENOSPC, the error names
 * this directory instead of the state directory. */
int runtime_fail(int error, const char *subject, struct cay_error *err);

/* The address of the control socket: "RUNTIME/ID.control". */
int runtime_address(const char *id, struct sockaddr_un *ret_address,
                    struct cay_error *err);

/* The same for the control socket of cay-net, "RUNTIME/ID.net". */
int runtime_relay_address(const char *id, struct sockaddr_un *ret_address,
                          struct cay_error *err);

/* A new file for events of the network, "RUNTIME/ID.events": a descriptor, or a code. */
int runtime_create_events(const char *id, struct cay_error *err);
int runtime_open_events(const char *id, struct cay_error *err);

/* The rules of a relayed network as text, "RUNTIME/ID.rules".  A process that saves them
 * holds the record's lock. */
int runtime_save_rules(const char *id, const char *text, size_t len,
                       struct cay_error *err);
int runtime_load_rules(const char *id, char *text, size_t room, size_t *ret_len,
                       struct cay_error *err);

/* What approve_pack() wrote, "RUNTIME/ID.approve": for a record that says so. */
int runtime_save_approve(const char *id, const char *text, size_t len,
                         struct cay_error *err);
int runtime_load_approve(const char *id, char *text, size_t room, size_t *ret_len,
                         struct cay_error *err);

/* The published ports, "RUNTIME/ID.ports": empty if there is no such file.  A process
 * that saves them holds the record's lock. */
int runtime_save_ports(const char *id, const void *ports, size_t len,
                       struct cay_error *err);
int runtime_load_ports(const char *id, void *ports, size_t room, size_t *ret_len,
                       struct cay_error *err);

/* The version of the protocol that PID 1 of the sandbox speaks. */
static inline uint32_t runtime_protocol(const struct record *record)
{
    enum { UNRECORDED = 2 }; /* of cay 0.1.0, which left the field 0 */

    return record->protocol ? record->protocol : UNRECORDED;
}

/* Created by the backend "local". */
static inline bool runtime_is_local(const struct record *record)
{
    return record->level == CAY_LEVEL_NONE;
}

/* Without namespaces the sandbox's processes do not end with init. */
static inline bool runtime_has_namespaces(const struct record *record)
{
    return record->level != CAY_LEVEL_LANDLOCK && record->level != CAY_LEVEL_NONE;
}

/* Finds the uid range reserved for `id` and stores it in the record, if one is given.
 * Negative if there are too few descriptors or too little memory to search. */
int runtime_find_range(const char *id, struct record *record);

/* Whether it certainly runs, by the first bytes of the record: faster than
 * runtime_load(). */
bool runtime_is_running(const char *id);

/* When the record was last written, in milliseconds since 1970; 0 if there is none. */
int64_t runtime_changed_ms(const char *id);

/* The PID namespace of this process. */
uint64_t runtime_pid_namespace(void);

/* Whether a process listens at the control socket of `id`: 1 or 0, or negative if there
 * are too few descriptors or too little memory. */
int runtime_check_listening(const char *id);

/* 0 if there is no such process.  Negative if there are too few descriptors or too little
 * memory. */
int runtime_start_time(pid_t pid, uint64_t *ret_start);

/* Whether its init runs: 1 or 0, or negative as above. */
int runtime_check_alive(const struct record *record);

/* The same for callers that must leave a running sandbox alone: unknown counts as
 * alive. */
static inline bool runtime_is_alive(const struct record *record)
{
    return runtime_check_alive(record) != 0;
}

#endif
