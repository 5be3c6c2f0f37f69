/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PLAN_H
#define INIT_PLAN_H

#include <stdint.h>
#include <sys/resource.h>

#include "sys/rights.h"

/* For a buffer of many pages: the linker sorts by alignment, so that such buffers come
 * first, and small variables share few pages after them.  An idle PID 1 has only the
 * pages that it has written to. */
#define LARGE _Alignas(4096)

/* Everything between the start of cay-init and its first command, computed by the library
 * in advance: flat, without pointers, in a sealed memfd. cay-init applies it and decides
 * nothing. */

/* Descriptors of cay-init.  It starts with the first and receives the others with
 * `begin`.
 */
enum {
    STATUS_FD = 3, /* SOCK_SEQPACKET: messages from and to the library */
    PLAN_FD = 4,
    LISTEN_FD = 5, /* the listening control socket */
    CGROUP_FD = 6, /* O_PATH of the cgroup2 directory for exec cgroups, if there is one */
    FIRST_FREE_FD = 7
};

/* The first message: the uid map is written and the limits are set.  It carries, in this
 * order, the plan, the control socket, the cgroup, and the files to write "0" to (cgroup
 * v1).  PID 1 now prepares what needs nothing else. */
struct plan_begin {
    uint32_t version; /* PLAN_VERSION */
    uint32_t cgroup;  /* 0 or 1 */
    uint32_t tasks;
};

/* The second and last message: the library is done.  It carries the mounts. */
struct plan_go {
    uint32_t version; /* PLAN_VERSION */
    uint32_t mounts;
};

/* From PID 1, before `begin`, if its network is relayed: the sockets of collect.h. */
struct plan_sockets {
    uint32_t version; /* PLAN_VERSION */
};

/* Steps are applied in order.  A TREE starts a new file system; the directories, files,
 * links and nodes that follow are created in it, by paths relative to its top.  All other
 * paths are relative to the new root. */
enum plan_kind {
    PLAN_TREE = 1,      /* a tmpfs at path; mode, uid, gid of its top; number: its size */
    PLAN_DIRECTORY = 2, /* path, mode, uid, gid */
    PLAN_FILE = 3,      /* the same; data is the content */
    PLAN_LINK = 4,      /* path; data is what it points to */
    PLAN_NODE = 5,      /* path, mode; number is the device */
    PLAN_BIND = 6,      /* path exists; data is the host path */
    PLAN_PROC = 7,
    PLAN_DEVPTS = 8,
    PLAN_MASK = 9,       /* path inside /proc: hidden */
    PLAN_READ_ONLY = 10, /* path inside /proc */
    PLAN_WRITABLE = 11,  /* absolute path below which landlock allows writing */
    PLAN_ROOT = 12,      /* the root itself, from the library or of the next two kinds;
                            path ""; number: its size in memory */
    PLAN_NEED = 13,      /* a directory, created if missing: path, mode, uid, gid */
    PLAN_REPLACE = 14,   /* a file that replaces what is at path: mode, data */
    PLAN_LOWER = 15,  /* a layer below the root, the highest first: data is its host path,
                         number its inode */
    PLAN_DISK = 16,   /* the directory with the root's "upper" and "work": data and
                         number as above; mode: of a new root, 0: it has its files */
    PLAN_BOTTOM = 17, /* the tmpfs that the root is mounted on, from the library */
    PLAN_BOOT_ID = 18, /* path inside /proc: covered by a file with a new UUID */
    PLAN_CHANGES = 19, /* the directory with "upper" and "work" that takes the changes of
                          the BIND before it: data and number as above */
    PLAN_READABLE = 30 /* like WRITABLE, for reading; only without namespaces */
};

/* The directory of a PLAN_BOTTOM that the root is mounted on. */
#define PLAN_BOTTOM_ROOT "root"

/* Flags of trees and binds. */
enum plan_flag {
    PLAN_WITH_WRITING = 1 << 0, /* without it a bind is read-only */
    PLAN_WITH_DEVICES = 1 << 1, /* device nodes work there; noexec */
    PLAN_ON_DIRECTORY = 1 << 2, /* a bind's path is created if it does not exist */
    PLAN_ON_FILE = 1 << 3,      /* and may go through links that stay inside */
    PLAN_IF_IT_CAN = 1 << 4,    /* skipped if the root has no place for it */
    PLAN_WITH_LAYER = 1 << 5,   /* the library's writable overlay of it */
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
    PLAN_VERSION = 13,
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

/* What commands start with, and how long the sandbox lives.  A spare gets it when it is
 * claimed: see MESSAGE_CLAIM. */
struct plan_defaults {
    uint64_t ttl_ms;     /* 0: none */
    uint64_t kept_bytes; /* budget of all background output; 0: the default */
    uint32_t env_len;    /* bytes of NAME=value strings, each with its NUL */
    uint32_t padding;
    char user[64];      /* default user of commands; "": "user" */
    char workdir[1024]; /* default working directory; "": the user's home */
};

/* Followed by the filter, the steps and the bytes. */
struct plan {
    uint32_t version, size; /* of everything */
    uint32_t filter_len, step_count, bytes_len;
    uint32_t filter_pass_at; /* this instruction and the next but one compare the halves
                                of a fourth argument by which seccomp(2) is not counted */
    uint32_t own_network;    /* 0: the host's */
    uint32_t is_relayed;     /* the own network has a nameserver: see collect.h */
    uint32_t has_cgroup;
    uint32_t ephemeral;
    uint32_t spare;         /* ephemeral, and serves no request before MESSAGE_CLAIM */
    uint32_t prepared;      /* the library makes the mounts and sends them */
    uint32_t no_namespaces; /* isolated by landlock and seccomp only */
    uint32_t unconfined;    /* not isolated: commands have the caller's rights */
    uint32_t no_set_ids;    /* install the suid filter */
    uint32_t has_sudo;      /* `user` may run commands as root: see sudo.h */
    uint32_t one_user;      /* commands run with the uid of cay-init only */
    uint32_t uid, gid;      /* that cay-init switches to */
    uint32_t max_processes; /* RLIMIT_NPROC; 0: unchanged */
    uint32_t env;           /* offset of the environment in the bytes */
    int32_t nice;           /* of commands */
    struct rlimit cpu_time, file_size; /* of commands */
    uint64_t max_files;                /* RLIMIT_NOFILE */
    uint64_t max_data;                 /* RLIMIT_DATA; 0: unchanged */
    char hostname[72];
    char home[128]; /* home of the one user, if not in /etc/passwd */
    struct plan_defaults defaults;
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
