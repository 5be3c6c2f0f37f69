/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PLAN_H
#define INIT_PLAN_H

#include <stdint.h>

/* Everything that is to happen between the start of cay-init and its first command,
 * worked out beforehand by the library: flat, without pointers, in a sealed memfd.
 * cay-init carries it out and decides nothing. */

/* Descriptors cay-init is started with. */
enum {
    PLAN_FD = 3,   /* the plan */
    STATUS_FD = 4, /* SOCK_SEQPACKET: reports to the library */
    LISTEN_FD = 5, /* the control socket, listening */
    CGROUP_FD = 6  /* O_PATH of the sandbox's cgroup2 directory, if has_cgroup */
};

enum plan_kind {
    PLAN_DIRECTORY = 1, /* path, mode, uid, gid */
    PLAN_FILE = 2,      /* the same; data is the content */
    PLAN_LINK = 3,      /* path; data is what it points to */
    PLAN_BIND = 4,      /* path exists in the new root; data is the host path */
    PLAN_TMPFS = 5,     /* path, mode; number is the size in bytes */
    PLAN_PROC = 6,
    PLAN_DEVPTS = 7,
    PLAN_MASK = 8,      /* path inside /proc: nothing to be seen there */
    PLAN_READ_ONLY = 9, /* path inside /proc */
    PLAN_WRITABLE = 10  /* path below which landlock allows writing */
};

enum plan_bind_flag {
    PLAN_BIND_WRITABLE = 1 << 0,
    PLAN_BIND_SHIFTED = 1 << 1, /* idmapped: the source's owner is `user` inside */
    PLAN_BIND_DEVICE = 1 << 2,
    PLAN_BIND_OPTIONAL = 1 << 3
};

struct plan_step {
    uint32_t kind;
    uint32_t mode; /* or enum plan_bind_flag */
    uint32_t uid, gid;
    uint32_t path; /* offsets of NUL-terminated text in the plan's bytes */
    uint32_t data, data_len;
    uint32_t padding;
    uint64_t number;
};

enum {
    PLAN_VERSION = 2,
    PLAN_STEPS_MAX = 256,
    PLAN_FILTER_MAX = 4096,
    PLAN_GROUPS_MAX = 4,
    PLAN_BYTES_MAX = 1 << 20
};

struct plan_filter {
    uint16_t code;
    uint8_t jt, jf;
    uint32_t k;
};

struct plan {
    uint32_t version, size; /* size of this struct with its bytes */
    char hostname[65];
    char groups[PLAN_GROUPS_MAX][256]; /* cgroup.procs files of v1 controllers to join */
    uint32_t id_base, id_count;        /* inside 0 is id_base outside */
    uint32_t own_network;              /* 0: the host's */
    uint32_t has_cgroup;
    uint32_t ephemeral;
    uint64_t disk_bytes, disk_inodes;
    uint64_t max_files;    /* RLIMIT_NOFILE */
    uint64_t ttl_ms;       /* 0: none */
    uint64_t kept_bytes;   /* of background commands' output, all together; 0: enough */
    char user[64];         /* who runs commands; "": "user" */
    char workdir[1024];    /* where they start; "": at home */
    uint32_t env, env_len; /* offset of NUL-terminated NAME=value in the bytes, and all
                              their length */
    uint32_t filter_len;
    uint32_t step_count;
    struct plan_filter filter[PLAN_FILTER_MAX];
    struct plan_step steps[PLAN_STEPS_MAX];
    uint32_t bytes_len;
    char bytes[]; /* text the steps point into, and the environment */
};

#endif
