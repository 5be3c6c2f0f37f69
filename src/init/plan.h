/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PLAN_H
#define INIT_PLAN_H

#include <stdint.h>
#include <sys/resource.h>

#include "sys/rights.h"

/* Everything that is to happen between the start of cay-init and its first command,
 * worked out beforehand by the library: flat, without pointers, in a sealed memfd.
 * cay-init carries it out and decides nothing. */

/* Descriptors of cay-init.  It is started with the first and gets the others by `begin`.
 */
enum {
    STATUS_FD = 3, /* SOCK_SEQPACKET: orders from the library, reports to it */
    PLAN_FD = 4,
    LISTEN_FD = 5, /* the control socket, listening */
    CGROUP_FD = 6, /* O_PATH of the cgroup2 directory for commands, if there is one */
    FIRST_FREE_FD = 7
};

/* The first order: its users are mapped, its limits are set.  With it come, in this
 * order, the plan, the control socket, the cgroup, and files to write "0" to (cgroup v1).
 * It may make ready what needs nothing else. */
struct plan_begin {
    uint32_t version; /* PLAN_VERSION */
    uint32_t cgroup;  /* 0 or 1 */
    uint32_t tasks;
};

/* The second, and last: everything is prepared.  With it come the mounts. */
struct plan_go {
    uint32_t version; /* PLAN_VERSION */
    uint32_t mounts;
};

/* Steps are taken in order.  A TREE starts a new file system; the directories, files,
 * links and nodes that follow are made in it, by paths below its top.  Everything else
 * has a path below the new root. */
enum plan_kind {
    PLAN_TREE = 1,      /* a tmpfs at path; mode, uid, gid of its top; number: its size */
    PLAN_DIRECTORY = 2, /* path, mode, uid, gid */
    PLAN_FILE = 3,      /* the same; data is the content */
    PLAN_LINK = 4,      /* path; data is what it points to */
    PLAN_NODE = 5,      /* path, mode; number is the device */
    PLAN_BIND = 6,      /* path exists; data is the host path */
    PLAN_PROC = 7,
    PLAN_DEVPTS = 8,
    PLAN_MASK = 9,       /* path inside /proc: nothing to be seen there */
    PLAN_READ_ONLY = 10, /* path inside /proc */
    PLAN_WRITABLE = 11,  /* absolute path below which landlock allows writing */
    PLAN_ROOT = 12,      /* the root itself, which only the library can make; path "" */
    PLAN_NEED = 13,      /* a directory: path, mode, uid, gid if it is not there */
    PLAN_REPLACE = 14,   /* a file in place of what has its path: mode, data */
    PLAN_READABLE = 30   /* the same as WRITABLE for reading; only without namespaces */
};

/* Of trees and binds. */
enum plan_flag {
    PLAN_WITH_WRITING = 1 << 0, /* a bind is read-only without */
    PLAN_WITH_DEVICES = 1 << 1, /* device nodes work there, but nothing is executed */
    PLAN_ON_DIRECTORY = 1 << 2, /* a bind's path need not exist: it is made, */
    PLAN_ON_FILE = 1 << 3,      /* and may lead through links that stay inside */
    PLAN_IF_IT_CAN = 1 << 4,    /* left out if the root has no place for it */
    PLAN_WITH_LAYER = 1 << 5,   /* the library's overlay of it, which can be written to */
};

struct plan_step {
    uint32_t kind;
    uint32_t mode;
    uint32_t uid, gid; /* inside */
    uint32_t path;     /* offsets of NUL-terminated text in the plan's bytes */
    uint32_t data, data_len;
    uint32_t flags; /* enum plan_flag */
    uint64_t number;
};

enum {
    PLAN_VERSION = 8,
    PLAN_USER = 1000, /* `user` inside */
    PLAN_STEPS_MAX = 512,
    PLAN_FILTER_MAX = 4096,
    PLAN_MOUNTS_MAX = RIGHTS_MAX, /* TREE and BIND steps together */
    PLAN_TASKS_MAX = 4,
    PLAN_BEGIN_FDS_MAX = 3 + PLAN_TASKS_MAX,
    PLAN_BYTES_MAX = 1 << 20
};

/* struct sock_filter of the kernel */
struct plan_filter {
    uint16_t code;
    uint8_t jt, jf;
    uint32_t k;
};

/* Followed by the filter, the steps and the bytes. */
struct plan {
    uint32_t version, size; /* of everything */
    uint32_t filter_len, step_count, bytes_len;
    uint32_t filter_pass_at; /* this instruction, and the next but one, compare the halves
                                of a fourth argument by which seccomp(2) is not counted */
    uint32_t own_network;    /* 0: the host's */
    uint32_t has_cgroup;
    uint32_t ephemeral;
    uint32_t prepared;      /* the library makes the mounts and hands them over */
    uint32_t no_namespaces; /* landlock and seccomp are all there is */
    uint32_t unconfined;    /* not even these: commands are the caller's own */
    uint32_t no_set_ids;    /* no file can be given set-user-id or set-group-id bits */
    uint32_t has_sudo;      /* `user` may run commands as root: see sudo.h */
    uint32_t one_user;      /* commands run as whoever cay-init is, and nobody else */
    uint32_t uid, gid;      /* that it becomes */
    uint32_t max_processes; /* RLIMIT_NPROC; 0: as it is */
    int32_t nice;           /* of commands */
    struct rlimit cpu_time, file_size; /* of commands */
    uint64_t max_files;                /* RLIMIT_NOFILE */
    uint64_t max_data;                 /* RLIMIT_DATA; 0: as it is */
    uint64_t ttl_ms;                   /* 0: none */
    uint64_t kept_bytes;   /* of background commands' output, all together; 0: enough */
    uint32_t env, env_len; /* offset of NUL-terminated NAME=value in the bytes, and the
                              length of all of them */
    char hostname[72];
    char user[64];      /* who runs commands; "": "user" */
    char workdir[1024]; /* where they start; "": at home */
    char home[128];     /* of the one user, if /etc/passwd does not know */
};

static inline const struct plan_filter *plan_filters(const struct plan *plan)
{
    return (const struct plan_filter *)(plan + 1);
}

static inline const struct plan_step *plan_steps(const struct plan *plan)
{
    return (const struct plan_step *)(plan_filters(plan) + plan->filter_len);
}

static inline const char *plan_bytes(const struct plan *plan)
{
    return (const char *)(plan_steps(plan) + plan->step_count);
}

#endif
