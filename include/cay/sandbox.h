/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_SANDBOX_H
#define CAY_SANDBOX_H

#include "cay/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sandbox: a place of its own on this machine in which commands run.
 *
 * It has its own processes, files, users, network and limits, and lives until it is
 * killed or its time is over; no daemon is needed.  The process that made it may end: any
 * later process of the same user reaches the sandbox by its id.  Handles are cheap and
 * private to one thread; the sandbox does not care how many there are.
 *
 * Input structs start with `size`, as in files.h. */
typedef struct cay_sandbox cay_sandbox;

#define CAY_ID_MAX 32 /* with its NUL: "sb-" and 16 letters and digits */

/* What keeps a sandbox in.  `require` makes a missing one an error. */
enum cay_layer {
    CAY_LAYER_USER = 1 << 0,    /* own user namespace, no host user inside */
    CAY_LAYER_PID = 1 << 1,     /* sees and signals only its own processes */
    CAY_LAYER_MOUNT = 1 << 2,   /* own root, nothing of the host but what is shown */
    CAY_LAYER_NETWORK = 1 << 3, /* own network with only a loopback */
    CAY_LAYER_IPC = 1 << 4,
    CAY_LAYER_UTS = 1 << 5,
    CAY_LAYER_CGROUP = 1 << 6,
    CAY_LAYER_SECCOMP = 1 << 7,
    CAY_LAYER_LANDLOCK = 1 << 8,
    CAY_LAYER_MEMORY = 1 << 9, /* a memory limit that the kernel keeps */
    CAY_LAYER_PIDS = 1 << 10,
    CAY_LAYER_CPU = 1 << 11,
    CAY_LAYER_DISK = 1 << 12
};

enum cay_network {
    CAY_NETWORK_NONE = 0, /* own network namespace, loopback up */
    CAY_NETWORK_HOST = 1
};

/* A host directory or file shown inside. */
struct cay_bind {
    const char *source;
    const char *target; /* absolute, inside */
    bool writable;
};

#define CAY_MEMORY_DEFAULT (1ull << 30)
#define CAY_DISK_DEFAULT   (512ull << 20)
#define CAY_PIDS_DEFAULT   512u

struct cay_sandbox_options {
    size_t size;
    const char *template_name; /* NULL: "host", this machine's programs, read-only */
    uint64_t memory_bytes;     /* 0: CAY_MEMORY_DEFAULT */
    uint64_t disk_bytes;       /* 0: CAY_DISK_DEFAULT */
    uint32_t pids;             /* 0: CAY_PIDS_DEFAULT */
    uint32_t cpu_percent;      /* of one CPU: 150 is one and a half; 0: no limit */
    enum cay_network network;
    const struct cay_bind *binds;
    size_t bind_count;
    const char *const *env; /* "NAME=value", NULL-terminated; for every command inside */
    const char *hostname;   /* NULL: the id */
    unsigned require;       /* enum cay_layer */
    bool ephemeral;         /* dies with the process that makes it */
};

CAY_PUBLIC CAY_NODISC int cay_sandbox_create(const struct cay_sandbox_options *options,
                                             cay_sandbox **ret_sandbox,
                                             struct cay_error *err);

/* Reaches a sandbox that exists.  CAY_E_NOT_FOUND if there is none of that id. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_open(const char *id, cay_sandbox **ret_sandbox,
                                           struct cay_error *err);
CAY_PUBLIC void cay_sandbox_free(cay_sandbox *sandbox); /* the handle; NULL is fine */

CAY_PUBLIC const char *cay_sandbox_id(const cay_sandbox *sandbox);
CAY_PUBLIC unsigned cay_sandbox_layers(const cay_sandbox *sandbox); /* what is enforced */

/* Ends every process inside and leaves nothing behind. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_kill(cay_sandbox *sandbox, struct cay_error *err);

/* Cleans up after sandboxes that ended by themselves and makers that crashed: their user
 * ids, cgroups and records.  *ret_count tells how many there were. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_collect(size_t *ret_count, struct cay_error *err);

/* --- Running commands ----------------------------------------------------------------
 */

enum cay_cause {
    CAY_CAUSE_EXITED = 1,
    CAY_CAUSE_SIGNALLED = 2,
    CAY_CAUSE_TIMEOUT = 3,
    CAY_CAUSE_MEMORY = 4, /* killed by the kernel for the memory limit */
    CAY_CAUSE_OUTPUT_LIMIT = 5,
    CAY_CAUSE_GONE = 6,       /* the sandbox itself ended */
    CAY_CAUSE_NOT_STARTED = 7 /* the program could not be executed: see exec_errno */
};

enum cay_exec_flag {
    CAY_EXEC_FAIL_ON_LIMIT =
        1 << 0 /* kill at the output limit rather than keep the tail */
};

#define CAY_OUTPUT_DEFAULT (10ull << 20)

struct cay_exec_options {
    size_t size;
    unsigned flags;          /* enum cay_exec_flag */
    const char *const *argv; /* NULL-terminated; no shell; looked up in PATH inside */
    const char *const *env;  /* added to the sandbox's own; NULL-terminated or NULL */
    const char *cwd;         /* NULL: the user's home; relative: below it */
    const char *user;        /* NULL: "user"; a name of its /etc/passwd, or a number */
    const void *input;       /* NULL: /dev/null; else these bytes, then the end */
    size_t input_len;
    uint64_t timeout_ms;   /* 0: none */
    uint64_t output_limit; /* bytes kept of each stream; 0: CAY_OUTPUT_DEFAULT */
    /* Called as output comes, if set (stream 1 or 2); then nothing is kept in the result.
     * A return other than 0 ends the command. */
    int (*on_output)(void *cookie, int stream, const void *data, size_t len);
    void *cookie;
};

/* cay_exec_done() frees it. */
struct cay_exec_result {
    enum cay_cause cause;
    int exit_code;  /* the program's; 128 + N for signal N; 124 on timeout; 126 or 127 */
    int signal;     /* that ended it, or 0 */
    int exec_errno; /* why it could not be started, or 0 */
    char *out, *error;
    size_t out_len, error_len;
    uint64_t out_dropped, error_dropped; /* bytes before what is kept */
    uint64_t user_us, system_us, wall_us;
    uint64_t peak_memory; /* bytes, of the largest process */
};
CAY_PUBLIC void cay_exec_done(struct cay_exec_result *result);

/* Runs the command and returns when it ends: when its first process does, not when the
 * last descendant closes the pipe.  Background children live on; after a timeout, a
 * memory kill or an output limit the whole tree is dead when this returns.  A program
 * that fails, or cannot be started, is a result and not an error. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_exec(cay_sandbox *sandbox,
                                           const struct cay_exec_options *options,
                                           struct cay_exec_result *ret_result,
                                           struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
