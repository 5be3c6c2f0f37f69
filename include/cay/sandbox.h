/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_SANDBOX_H
#define CAY_SANDBOX_H

#include "cay/files.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sandbox is an isolated environment on this machine in which commands run.
 *
 * It has its own processes, files, users, network and limits.  It lives until it is
 * killed or its time to live is over; no daemon is needed.  The process that created it
 * may end: any later process of the same user reaches the sandbox by its id.  Handles are
 * cheap.  Each handle belongs to one thread; the number of handles is not limited.
 *
 * Input structs start with `size`, as in files.h. */
typedef struct cay_sandbox cay_sandbox;

#define CAY_ID_MAX       32  /* including the NUL: "sb-" and 16 letters and digits */
#define CAY_NAME_MAX     64  /* including the NUL */
#define CAY_VOLUMES_MAX  256 /* of all names of volumes together, including the NUL */
#define CAY_NETWORKS_MAX 256 /* of all names in networks together, including the NUL */

/* Isolation layers.  A layer in `require` that is missing is an error. */
enum cay_layer {
    CAY_LAYER_USER = 1 << 0,    /* own user namespace; host root has no uid inside */
    CAY_LAYER_PID = 1 << 1,     /* sees and signals only its own processes */
    CAY_LAYER_MOUNT = 1 << 2,   /* own root; of the host only what is mounted */
    CAY_LAYER_NETWORK = 1 << 3, /* own network with only a loopback */
    CAY_LAYER_IPC = 1 << 4,
    CAY_LAYER_UTS = 1 << 5,
    CAY_LAYER_CGROUP = 1 << 6,
    CAY_LAYER_SECCOMP = 1 << 7,
    CAY_LAYER_LANDLOCK = 1 << 8,
    CAY_LAYER_MEMORY = 1 << 9, /* a memory limit enforced by the kernel */
    CAY_LAYER_PIDS = 1 << 10,
    CAY_LAYER_CPU = 1 << 11,
    CAY_LAYER_DISK = 1 << 12
};

/* A host directory or file shown inside; or a volume (cay/volume.h), if the source has no
 * "/" and is neither "." nor "..".  The owner of a host directory or file on the host is
 * mapped to the default user inside if that is `user`, root, a number or a name of the
 * template's /etc/passwd, else to `user`; that user has the rights of the owner.  Files
 * of other owners appear as owned by nobody, and other users inside cannot create files
 * there (EOVERFLOW).  If a bind is writable, no command of the sandbox can set
 * set-user-id bits.  But such a bit that a file already has survives writes through a
 * memory mapping: do not show files of root as writable without need.  File systems
 * mounted below the source are not shown. */
struct cay_bind {
    const char *source; /* a path, or the name of a volume */
    const char *target; /* absolute, inside; created if missing */
    bool writable;
    /* A directory of the host that takes what is written inside, so that the source never
     * changes (cay/try.h); NULL: the source takes it. */
    const char *changes;
};

/* Where files written inside are stored. */
enum cay_storage {
    CAY_STORAGE_MEMORY =
        0, /* removed with the sandbox; the kernel enforces the size limit */
    CAY_STORAGE_DISK = 1 /* survives a kill; a start restores it */
};

/* Isolation levels, best first. cay_sandbox_inspect() reports the level of a sandbox;
 * cay_doctor() reports why a better one is not available. */
enum cay_level {
    CAY_LEVEL_BEST = 0,     /* as an option: the best this host allows */
    CAY_LEVEL_ROOT = 1,     /* created by root: a range of user ids for each sandbox */
    CAY_LEVEL_RANGE = 2,    /* an ordinary user with a range in /etc/subuid */
    CAY_LEVEL_SINGLE = 3,   /* an ordinary user without a range: one user id inside */
    CAY_LEVEL_LANDLOCK = 4, /* no user namespaces: landlock and seccomp only */
    CAY_LEVEL_NONE = 5      /* backend "local": no isolation; not valid as an option */
};

/* A value that programs inside can use and never read.  Inside, the variable `name` has a
 * placeholder, which is replaced outside in requests to these hosts, over verified TLS.
 * TLS to them is opened for that: cay-policy(5) describes how. */
struct cay_secret {
    const char *name;  /* of the variable */
    const char *value; /* 8 to 4096 bytes without control characters */
    /* "HOST" or "HOST:WAY[,WAY]...": bearer and basic (the header Authorization; both are
     * the default), query, header=NAME.  The network rules must allow the host. */
    const char *const *hosts;
    size_t host_count;
};

#define CAY_MEMORY_DEFAULT (1ull << 30)
#define CAY_DISK_DEFAULT   (512ull << 20)
#define CAY_PIDS_DEFAULT   512u

struct cay_sandbox_options {
    size_t size;
    /* NULL or "host": this machine's programs, read-only.  Otherwise the name of a
     * template of cay_template_create(), or the absolute path of a directory with the
     * files of a whole system, whose owners 0 to 65535 are the owners inside.  Neither is
     * changed. */
    const char *template_name;
    uint64_t memory_bytes; /* 0: CAY_MEMORY_DEFAULT; both sizes: at least 1 MiB */
    /* 0: CAY_DISK_DEFAULT in memory, no limit on disk.  A limit on disk needs root, loop
     * devices and mkfs.ext4(8); it is 16 MiB or more, reserved at once, and includes
     * checkpoints and what the file system uses itself. */
    uint64_t disk_bytes;
    uint32_t pids;        /* 0: CAY_PIDS_DEFAULT */
    uint32_t cpu_percent; /* of one CPU: 150 is one and a half; 0: no limit */
    /* CAY_NETWORK_NONE: what the policy says, which is none if it says nothing.
     * CAY_NETWORK_HOST cannot be combined with a policy that has network rules. */
    enum cay_network network;
    const struct cay_bind *binds;
    size_t bind_count;
    /* "NAME=value", NULL-terminated, for every command inside.  If a name occurs twice,
     * the last value counts, here and in exec. */
    const char *const *env;
    const char *hostname; /* letters, digits and "-", up to 63; NULL: the id */
    unsigned require;     /* enum cay_layer */
    bool ephemeral;       /* ends with its creator, and its files on disk are removed */
    /* Its directories appear inside at /NAME, a single root at /workspace.  They are
     * read-only if the policy has rules for approval, suffixes or sizes, unless it sets
     * exec: rw. */
    const cay_policy *policy;
    uint64_t ttl_ms;     /* ends after this time; 0: never */
    const char *user;    /* default user of commands; NULL: the image's, or "user" */
    const char *workdir; /* where commands start; NULL: the image's, or the user's home */
    enum cay_storage storage;
    enum cay_level level; /* best level to use; CAY_LEVEL_BEST: any */
    bool make_workdir;    /* if missing; it then belongs to the user */
    /* A name for cay_sandbox_open(), or NULL: a letter or a digit, then up to 62 letters,
     * digits, "_", "." and "-"; not "sb-...".  CAY_E_EXISTS while another sandbox of this
     * user has the name, running or stopped. */
    const char *name;
    /* The name of a pool whose spare is used, if one fits; "": a pool of this user that
     * is open to all programs; NULL: none.  See cay/pool.h. */
    const char *pool;
    /* Named networks, NULL-terminated: "NETWORK" or "NETWORK:NAME", or NULL.  Sandboxes
     * of this user in the same network reach each other's TCP ports by name: NAME, else
     * the sandbox's name, else its id.  They reach servers that listen on all addresses,
     * not those on 127.0.0.1 alone.  CAY_E_EXISTS while another sandbox has the name
     * there.  With storage on disk it leaves them when it ends and joins them again when
     * it starts. */
    const char *const *networks;
    const struct cay_secret *secrets; /* only with a network of rules, not on disk */
    size_t secret_count;
    const struct cay_header *headers; /* as secrets; the hosts need not be allowed */
    size_t header_count;
    /* "ID" or "ID:CHECKPOINT", by ids, names or numbers: a fork, which begins with the
     * files of that sandbox, now or at a checkpoint.  See cay_sandbox_fork(). */
    const char *from;
    /* A checkpoint before each command, with the cause "command".  If it fails, the
     * command does not start.  CAY_E_UNSUPPORTED: see cay_sandbox_checkpoint(). */
    bool checkpoint_each;
    /* What ids begin with after "sb-": up to 8 of the letters a-z and 2-7, so that the
     * ids of several machines differ; NULL: nothing. */
    const char *id_prefix;
    /* Patterns of command lines, NULL-terminated, or NULL; "*" takes any characters.
     * Commands that match one wait for approval: cay/approval.h.  A line is compared as
     * it was given, with the last part of the program's path alone, and for "sh -c" and
     * other shells each argument after "-c".  Programs inside start others without a
     * request, and so does code of cay/code.h: this does not isolate. */
    const char *const *approve;
    const char *approve_scope;   /* of rules that are remembered; NULL: the name or the id
                                  */
    uint64_t approve_timeout_ms; /* then the answer is no; 0: CAY_PENDING_TIMEOUT_MS */
};

/* The limits of `approve`. */
enum {
    CAY_APPROVE_MAX = 256,       /* patterns */
    CAY_APPROVE_BYTES = 32 << 10 /* of all of them, with NUL */
};

/* The caller owns the handle.  Freeing it does not end the sandbox, unless that is
 * ephemeral. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_create(const struct cay_sandbox_options *options,
                                             cay_sandbox **ret_sandbox,
                                             struct cay_error *err);

/* Reaches an existing sandbox by its id or name.  CAY_E_NOT_FOUND if there is none. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_open(const char *id, cay_sandbox **ret_sandbox,
                                           struct cay_error *err);
CAY_PUBLIC void
cay_sandbox_free(cay_sandbox *sandbox); /* frees the handle; NULL is allowed */

CAY_PUBLIC const char *cay_sandbox_id(const cay_sandbox *sandbox);
CAY_PUBLIC unsigned
cay_sandbox_layers(const cay_sandbox *sandbox); /* the active layers */

/* "seccomp" for CAY_LAYER_SECCOMP; NULL unless `layer` is exactly one layer. */
CAY_PUBLIC const char *cay_layer_slug(unsigned layer);
CAY_PUBLIC const char *cay_level_slug(enum cay_level level); /* "root", "single", ... */

/* --- Inspecting sandboxes -----------------------------------------------------------
 */

enum cay_state {
    CAY_STATE_RUNNING = 1,
    CAY_STATE_PAUSED = 2,
    CAY_STATE_STOPPED = 3,
    /* The sandbox may run, but its record is unreadable: it can only be killed or
     * removed. */
    CAY_STATE_DAMAGED = 4,
    CAY_STATE_SPARE = 5 /* of a pool, not in use yet: see cay/pool.h */
};

struct cay_enforced {
    unsigned layer; /* one of enum cay_layer */
    char by[64];    /* the mechanism: "cgroup v1 memory", "landlock ABI 6" */
};

#define CAY_LAYERS_MAX 16

struct cay_sandbox_info {
    char id[CAY_ID_MAX];
    enum cay_state state;
    enum cay_level level;
    enum cay_network network;
    enum cay_storage storage;
    bool ephemeral;
    char template_name[256];
    char user[64], workdir[256];
    int64_t created_ms;   /* since 1970 */
    uint64_t ttl_left_ms; /* 0: no time to live */
    uint64_t memory_bytes, disk_bytes;
    uint32_t pids, cpu_percent;
    uint64_t memory_used;
    uint64_t disk_used; /* 0 if not counted: without CAY_LAYER_DISK */
    uint64_t cpu_us;
    uint32_t pids_used;
    int init_pid; /* on the host; 0 if stopped */
    uint32_t id_base, id_count;
    unsigned layers;
    struct cay_enforced enforced[CAY_LAYERS_MAX];
    size_t enforced_count;
    char type[32];           /* its backend: "native", "local" */
    uint64_t memory_kills;   /* processes killed by the kernel for the memory limit */
    char name[CAY_NAME_MAX]; /* "" if there is none */
    char networks[CAY_NETWORKS_MAX]; /* "NETWORK:NAME NETWORK:NAME", or "" */
    char volumes[CAY_VOLUMES_MAX];   /* "NAME NAME", or "" */
};

CAY_PUBLIC CAY_NODISC int cay_sandbox_inspect(cay_sandbox *sandbox,
                                              struct cay_sandbox_info *ret_info,
                                              struct cay_error *err);

/* Every sandbox of this user, oldest first.  Free the array with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_sandbox_list(struct cay_sandbox_info **ret_infos,
                                           size_t *ret_count, struct cay_error *err);

/* The same without a request to any sandbox.  A running or paused sandbox is
 * CAY_STATE_RUNNING; its entry has the options of its creation, but no usage, no time to
 * live and no layers. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_list_brief(struct cay_sandbox_info **ret_infos,
                                                 size_t *ret_count,
                                                 struct cay_error *err);

/* --- Life cycle ---------------------------------------------------------------------
 */

/* pause freezes every process inside, resume thaws them.  The time to live does not run
 * while the sandbox is paused.  A paused sandbox can be inspected and killed, but runs no
 * commands: CAY_E_BUSY.  Both calls are CAY_E_BUSY for a stopped sandbox. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_pause(cay_sandbox *sandbox, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_sandbox_resume(cay_sandbox *sandbox, struct cay_error *err);

/* Kills the processes inside, keeps the files on disk and frees the memory; the sandbox
 * is then stopped, and cay_sandbox_resume() starts it afresh under the same id.
 * CAY_E_UNSUPPORTED: its storage is in memory, or it is ephemeral. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_pause_disk(cay_sandbox *sandbox,
                                                 struct cay_error *err);

/* --- Checkpoints --------------------------------------------------------------------
 */

/* The state of a sandbox's files at one moment.  Directories of the host (binds),
 * /dev/shm and processes are not part of it.  Checkpoints are a tree: each has the one
 * below it as its parent.  They end with the sandbox, and with storage on disk when it is
 * removed. */
struct cay_checkpoint {
    uint32_t id;        /* a number in this sandbox, from 1 */
    uint32_t parent;    /* 0: none */
    bool is_current;    /* the sandbox's files are this one's and what changed since */
    int64_t created_ms; /* since 1970 */
    uint64_t bytes,
        files; /* that differ from the parent; only of cay_sandbox_checkpoints() */
    char name[CAY_NAME_MAX]; /* "" if there is none */
    /* "checkpoint"; "fork": the files that were forked; "rollback": what it has undone;
     * "recovered": the process that made it died; "command": see checkpoint_each */
    char cause[16];
    uint32_t processes; /* that ran inside, and were frozen while the files were copied */
    uint32_t below, flags; /* for the library */
};

enum cay_checkpoint_mode {
    /* If a process runs inside, or a file is open for writing, all processes are frozen
     * and what has changed since the last checkpoint is copied. */
    CAY_CHECKPOINT_AUTO = 0,
    CAY_CHECKPOINT_STOP = 1, /* kills the processes inside first */
    CAY_CHECKPOINT_IDLE = 2  /* copies nothing: CAY_E_BUSY if a process runs inside */
};

struct cay_checkpoint_options {
    size_t size;      /* sizeof(struct cay_checkpoint_options) */
    const char *name; /* letters, digits, "_", ".", "-"; NULL: none */
    enum cay_checkpoint_mode mode;
    const char *cause; /* at most 15 letters, digits, "_", ".", "-"; NULL: "checkpoint" */
};

/* Without processes inside, the time does not depend on the number of files, and nothing
 * is copied.  With processes, they are frozen while the files are copied; they keep their
 * open files, working directories and mappings, and notice nothing but the time.  A file
 * that is being uploaded is in the checkpoint as far as it is there.  The copies count
 * against the disk limit: CAY_E_NO_SPACE.  CAY_E_TIMEOUT: it would take more than 8
 * seconds, or a process cannot be frozen; then nothing has changed.
 *
 * A checkpoint of a sandbox in which nothing has changed since the last one is that one.
 * CAY_E_BUSY: see the modes.  CAY_E_UNSUPPORTED: a sandbox that root has not created, or
 * Linux before 6.15.  `options` may be NULL. */
CAY_PUBLIC CAY_NODISC int
cay_sandbox_checkpoint(cay_sandbox *sandbox, const struct cay_checkpoint_options *options,
                       struct cay_checkpoint *ret_checkpoint, struct cay_error *err);

/* Kills the processes inside and restores the files of a checkpoint, given by number or
 * name (the newest with that name).  What had changed since the last checkpoint becomes
 * one, *ret_undone, so that a rollback can be undone; its id is 0 if nothing had.
 * CAY_E_NOT_FOUND: there is no such checkpoint. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_rollback(cay_sandbox *sandbox, const char *which,
                                               struct cay_checkpoint *ret_undone,
                                               struct cay_error *err);

/* A process that a rollback has killed. */
struct cay_ended {
    int pid; /* inside */
    char command[256];
};

struct cay_rollback {
    struct cay_checkpoint undone; /* as above */
    struct cay_ended *ended;      /* the caller frees the list with cay_free() */
    size_t ended_count, kept_count;
};

struct cay_rollback_options {
    size_t size; /* sizeof(struct cay_rollback_options) */
    /* Keeps the processes that have no file, program or directory that the rollback
     * replaces or removes.  All are frozen meanwhile.  The files are replaced one by one,
     * so if it fails a part has changed, and `undone` has what was there before.
     * CAY_E_UNSUPPORTED: the template is "base". */
    bool keep;
};

/* The same with a report of the processes.  `options` may be NULL. */
CAY_PUBLIC CAY_NODISC int
cay_sandbox_rollback_with(cay_sandbox *sandbox, const char *which,
                          const struct cay_rollback_options *options,
                          struct cay_rollback *ret_rollback, struct cay_error *err);

/* Removes a checkpoint, given by number or name.  Checkpoints that were created from it
 * stay: their parent is then the one before it.  Its space is given back, unless the
 * sandbox's files, another checkpoint or a fork are on it; then when the last of these
 * checkpoints is removed.  *ret_freed is what was given back, in bytes; it may be NULL.
 */
CAY_PUBLIC CAY_NODISC int cay_sandbox_remove_checkpoint(cay_sandbox *sandbox,
                                                        const char *which,
                                                        uint64_t *ret_freed,
                                                        struct cay_error *err);

/* All of them, in the order of their creation.  The caller frees the list with
 * cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_sandbox_checkpoints(cay_sandbox *sandbox,
                                                  struct cay_checkpoint **ret_list,
                                                  size_t *ret_count,
                                                  struct cay_error *err);

/* Creates `count` sandboxes that begin with the files of this one: those of a checkpoint,
 * given by number or name, or as they are now (NULL), which makes a checkpoint unless
 * nothing has changed since the last one, also while processes run.  The files are shared
 * until one of the sandboxes changes them, so the time does not depend on their size.
 * Processes, environment, mounts, network and checkpoints do not come along; the
 * variables of code contexts do with cay_contexts_save() of code.h.  Template, user,
 * working directory and limits are this sandbox's, unless `options` has others; it may be
 * NULL.  Forks live on when this sandbox ends, or is removed.  A fork on disk has links
 * to the files of a sandbox on disk, and copies of those in memory, so its time depends
 * on them.  Several are created by several threads.
 *
 * ret_errors NULL: all are created or none.  Otherwise it has room for `count` entries:
 * the code of each is CAY_OK, or the reason why ret_sandboxes has NULL there.  Returns
 * the first such code, or CAY_OK. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_fork(cay_sandbox *sandbox, const char *checkpoint,
                                           const struct cay_sandbox_options *options,
                                           size_t count, cay_sandbox **ret_sandboxes,
                                           struct cay_error *ret_errors,
                                           struct cay_error *err);

/* Sets the time to live from now on; 0 removes it. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_set_ttl(cay_sandbox *sandbox, uint64_t ttl_ms,
                                              struct cay_error *err);

/* kill ends every process inside.  A sandbox in memory is then gone completely.  With
 * CAY_STORAGE_DISK the sandbox is stopped, and cay_sandbox_start() starts it again with
 * the options of its creation. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_kill(cay_sandbox *sandbox, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_sandbox_start(cay_sandbox *sandbox, struct cay_error *err);

/* Kills `count` sandboxes by their ids, concurrently and much faster than one after the
 * other. ret_errors has room for `count` entries: the code of each is CAY_OK, or the
 * reason why that sandbox could not be killed.  Returns the first such code, or
 * CAY_OK. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_kill_many(const char *const *ids, size_t count,
                                                struct cay_error *ret_errors);

/* Kills the sandbox and removes its files on disk. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_remove(cay_sandbox *sandbox, struct cay_error *err);

/* Releases the user ids, cgroups and records of sandboxes that ended by themselves and of
 * creators that crashed.  *ret_count is the number of sandboxes cleaned up. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_collect(size_t *ret_count, struct cay_error *err);
/* The same for one sandbox with storage in memory that has ended by itself.  *ret_info is
 * what inspect would have reported just before: CAY_STATE_STOPPED, and the memory kills.
 * CAY_E_NOT_FOUND: nothing is left of it; CAY_E_BUSY: it has not ended. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_collect_one(const char *id,
                                                  struct cay_sandbox_info *ret_info,
                                                  struct cay_error *err);
/* Rate-limited collect: does nothing if this user collected within the last second, and
 * checks only some of many sandboxes. */
CAY_PUBLIC void cay_sandbox_tidy(void);

/* Bytes that the user attaches to a running sandbox for later processes of the same user.
 * They are not visible inside, and are removed with the sandbox.  A new note replaces the
 * old one.  CAY_E_NOT_FOUND: there is no such sandbox, or it has no note.  Free the
 * result with cay_free(); a NUL follows it. */
#define CAY_SANDBOX_NOTE_MAX (64 << 10)
CAY_PUBLIC CAY_NODISC int cay_sandbox_set_note(const char *id, const void *data,
                                               size_t len, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_sandbox_get_note(const char *id, void **ret_data,
                                               size_t *ret_len, struct cay_error *err);

/* --- Files --------------------------------------------------------------------------
 */

/* The sandbox's whole file system for the functions of files.h, with the rights of `user`
 * (NULL: the default user; also names and numbers, as in exec).  Paths are those inside;
 * relative ones start at the working directory.  Every byte of a path is literal, and
 * links and ".." are resolved as for a program inside.  An operation that the user may
 * not do is CAY_E_DENIED.  "root:NAME" has the rights of root on behalf of NAME: new
 * files belong to NAME, and relative paths start at NAME's working directory.  Files of
 * /proc are read up to 1 MiB and never written.  After the sandbox has ended every
 * operation is CAY_E_UNAVAILABLE.  The handle is independent of the sandbox's handle. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_files(cay_sandbox *sandbox, const char *user,
                                            cay_files **ret_files, struct cay_error *err);

/* --- Network ------------------------------------------------------------------------
 */

/* A stream socket connected to a port on the sandbox's own loopback.  It is non-blocking
 * and may still be connecting.  CAY_E_NOT_FOUND: nothing listens on the port.
 * CAY_E_UNSUPPORTED: the sandbox has no network of its own. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_dial(cay_sandbox *sandbox, uint16_t port,
                                           int *ret_fd, struct cay_error *err);

/* A port inside on which a program listens, or which a process of this machine relays
 * (publishes). */
struct cay_port {
    uint16_t inside;  /* the port of the sandbox */
    uint16_t port;    /* of this machine; 0: not published */
    char address[48]; /* of this machine, "127.0.0.1"; "" if it is not published */
    char listens[48]; /* the address inside, "0.0.0.0"; "" if nothing listens */
};

/* The TCP ports of a running sandbox, at most 1,024, by their numbers.  Free the array
 * with cay_free().  CAY_E_UNSUPPORTED: the sandbox has no network of its own. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_list_ports(const char *id,
                                                 struct cay_port **ret_ports,
                                                 size_t *ret_count,
                                                 struct cay_error *err);

/* Records that the process `pid` relays these ports of this machine to the sandbox, for
 * cay_sandbox_list_ports(), as long as the process and the sandbox live.  `listens` is
 * not used. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_add_ports(const char *id, int pid,
                                                const struct cay_port *ports,
                                                size_t count, struct cay_error *err);

/* The rules of a sandbox with a relayed network, as a policy without mounts, which the
 * caller frees.  cay_policy_network() is CAY_NETWORK_NONE for a sandbox without a
 * network; CAY_E_UNSUPPORTED: it uses the network of the host. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_get_network(cay_sandbox *sandbox,
                                                  cay_policy **ret_policy,
                                                  struct cay_error *err);

/* Adds rules to those of a running sandbox, or replaces all of them; config->network
 * CAY_NETWORK_NONE leaves RULES or OPEN as it is.  New connections are decided by the new
 * rules before the call returns, and existing ones that they do not allow are cut.  If a
 * rule is invalid nothing changes.  CAY_E_UNSUPPORTED: the sandbox was created without
 * rules. */
CAY_PUBLIC CAY_NODISC int
cay_sandbox_change_network(cay_sandbox *sandbox, const struct cay_network_config *config,
                           bool replace, struct cay_error *err);

struct cay_network_counts {
    uint64_t allowed;              /* connections */
    uint64_t refused;              /* connections, lookups and packets */
    uint64_t up_bytes, down_bytes; /* of the allowed connections */
    uint64_t events;               /* reported */
    uint64_t events_lost;          /* that were too many to be reported */
    uint32_t connections;          /* open now */
    uint32_t names;                /* with an address inside */
};
CAY_PUBLIC CAY_NODISC int cay_sandbox_count_network(cay_sandbox *sandbox,
                                                    struct cay_network_counts *ret_counts,
                                                    struct cay_error *err);

enum cay_event_kind {
    CAY_EVENT_LOOKUP = 1,  /* a question of DNS that was refused */
    CAY_EVENT_CONNECT = 2, /* a connection that was allowed or refused */
    CAY_EVENT_CLOSE = 3,   /* the end of one that was allowed */
    CAY_EVENT_PACKET = 4,  /* neither TCP nor DNS: refused */
    CAY_EVENT_REQUEST = 5  /* a request of HTTP that was refused, or got a secret */
};

struct cay_network_event {
    uint64_t number; /* from 1 */
    int64_t time_ms; /* since 1970 */
    enum cay_event_kind kind;
    enum cay_reach verdict;
    char name[256];   /* "" if a program used an address */
    char address[48]; /* "" if none was looked up */
    uint16_t port;
    uint8_t protocol;                           /* IPPROTO_... */
    char rule[192];                             /* the rule that decided, or "default" */
    uint64_t up_bytes, down_bytes, duration_ms; /* of CAY_EVENT_CLOSE */
    uint64_t lost; /* events before this one that were too many to be reported */
    /* The process, as it is inside; 0 if it was not found in time.  It chooses its name,
     * and may be one of several that have the socket. */
    uint32_t pid, uid;
    char program[16];
};

/* The last events of a relayed network, up to 1,024, whose number is above `after`,
 * oldest first.  Free the array with cay_free().  At most 32 a second are reported, after
 * a burst of 256.  CAY_E_NOT_FOUND: the sandbox has ended, and this handle has returned
 * all of them. */
CAY_PUBLIC CAY_NODISC int
cay_sandbox_network_events(cay_sandbox *sandbox, uint64_t after,
                           struct cay_network_event **ret_events, size_t *ret_count,
                           struct cay_error *err);

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
    /* Kill the command at the output limit instead of keeping the tail. */
    CAY_EXEC_FAIL_ON_LIMIT = 1 << 0,
    /* Run on a new terminal inside.  All output is then stream 1, and the end of the
     * input is ^D. */
    CAY_EXEC_TTY = 1 << 1,
    /* cay_process_start() only: the command outlives its caller, which may attach again.
     * The last MiB of each stream is kept for that. */
    CAY_EXEC_BACKGROUND = 1 << 2,
    /* cay_process_start() only: stdin stays open for cay_process_write(). */
    CAY_EXEC_INPUT = 1 << 3,
    /* With CAY_EXEC_BACKGROUND: the output behaves like a pipe.  While a handle reads it,
     * nothing is lost, and the command waits for the slowest reader.  The command ends
     * when no process can write to the output any more, background children included,
     * unless it was sent SIGTERM or SIGKILL. */
    CAY_EXEC_PIPED = 1 << 4,
    /* The last command: if it exits with 0 the sandbox ends at once, which is faster than
     * a kill.  Otherwise the sandbox stays, for inspection. */
    CAY_EXEC_LAST = 1 << 5
};

#define CAY_OUTPUT_DEFAULT (10ull << 20)

struct cay_exec_options {
    size_t size;
    unsigned flags;          /* enum cay_exec_flag */
    const char *const *argv; /* NULL-terminated; no shell; looked up in PATH inside */
    const char *const *env;  /* added to the sandbox's env; NULL-terminated or NULL */
    const char *cwd;         /* NULL: the working directory; relative: below it */
    const char *user;  /* NULL: the default; a name of /etc/passwd inside, or a number */
    const void *input; /* NULL: /dev/null; else these bytes, then end of file */
    size_t input_len;
    uint64_t timeout_ms;   /* 0: no timeout */
    uint64_t output_limit; /* bytes kept of each stream; 0: CAY_OUTPUT_DEFAULT */
    /* If set, called with each piece of output (stream 1 or 2); the result then contains
     * no output.  A return value other than 0 ends the command. */
    int (*on_output)(void *cookie, int stream, const void *data, size_t len);
    void *cookie;
    /* A name for cay_process_attach(): a letter, then up to 62 letters, digits, "-", "_"
     * and ".".  Unique among running commands. */
    const char *tag;
    uint16_t rows, columns; /* size of the terminal; 0: 24 and 80 */
    const char *const
        *approve; /* more patterns as cay_sandbox_options.approve; or NULL */
};

/* Free with cay_exec_done(). */
struct cay_exec_result {
    enum cay_cause cause;
    int exit_code;  /* the program's; 128 + N for signal N; 124 on timeout; 126 or 127 */
    int signal;     /* the signal that ended it, or 0 */
    int exec_errno; /* why the program was not started, or 0 */
    char *out, *error;
    size_t out_len, error_len;
    uint64_t out_dropped, error_dropped; /* bytes lost before the kept tail */
    uint64_t user_us, system_us, wall_us;
    uint64_t peak_memory; /* bytes, of the largest process */
    /* During the command, in the whole sandbox: processes that the kernel killed for the
     * memory limit, and forks that it refused for the process limit. */
    uint64_t memory_kills, refused_forks;
};
CAY_PUBLIC void cay_exec_done(struct cay_exec_result *result);

/* Runs the command and returns when its first process ends, even if a descendant still
 * has the pipe open.  Background children keep running.  After a timeout, a memory kill
 * or an output limit the whole tree is dead when this returns.  A program that fails, or
 * cannot be started, is a result and not an error. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_exec(cay_sandbox *sandbox,
                                           const struct cay_exec_options *options,
                                           struct cay_exec_result *ret_result,
                                           struct cay_error *err);

/* --- Processes: commands without a waiting caller --------------------------------------
 *
 * A foreground process belongs to its handle: freeing the handle kills the process and
 * its tree.  A background process (CAY_EXEC_BACKGROUND) belongs to the sandbox and is
 * independent of handles. */

typedef struct cay_process cay_process;

/* As cay_sandbox_exec(), but returns when the command has started; CAY_E_EXEC_FAILED if
 * it cannot be started.  `input` is written first; then stdin is closed, unless
 * CAY_EXEC_INPUT is set.  `on_output` must be NULL.  At most 512 background processes run
 * at a time. */
CAY_PUBLIC CAY_NODISC int cay_process_start(cay_sandbox *sandbox,
                                            const struct cay_exec_options *options,
                                            cay_process **ret_process,
                                            struct cay_error *err);

/* cay_sandbox_create() and cay_process_start() in one call, in less time.  If the sandbox
 * was created but the command cannot be started, *ret_sandbox is set nevertheless. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_run(const struct cay_sandbox_options *options,
                                          const struct cay_exec_options *exec,
                                          cay_sandbox **ret_sandbox,
                                          cay_process **ret_process,
                                          struct cay_error *err);

/* A background process by its pid inside or its tag, running or recently ended.  An ended
 * process is found until its result was fetched by cay_process_wait() and none of its
 * descendants runs, or until 64 others have ended after it.  The first reads return all
 * the kept output. */
CAY_PUBLIC CAY_NODISC int cay_process_attach(cay_sandbox *sandbox, const char *which,
                                             cay_process **ret_process,
                                             struct cay_error *err);
CAY_PUBLIC void cay_process_free(cay_process *process); /* NULL is allowed */

CAY_PUBLIC int cay_process_pid(const cay_process *process); /* inside */

/* A descriptor for poll(2): readable when cay_process_read() or cay_process_wait() has
 * something new. Output that a wait has buffered keeps the descriptor readable until it
 * is read. */
CAY_PUBLIC int cay_process_fd(const cay_process *process);

/* Returns available output without waiting: at most `room` bytes of one stream (1 or 2).
 * Stream 0 and no bytes: nothing available now.  Stream -1: the command has ended, and
 * all output was read.  *ret_dropped (may be NULL): bytes of that stream lost before
 * these, because they were not read in time. */
CAY_PUBLIC CAY_NODISC int cay_process_read(cay_process *process, int *ret_stream,
                                           void *data, size_t room, size_t *ret_len,
                                           uint64_t *ret_dropped, struct cay_error *err);

/* Skips the output kept so far: the next read returns output written after this call. */
CAY_PUBLIC CAY_NODISC int cay_process_skip(cay_process *process, struct cay_error *err);

/* Writes as much as fits now.  If that is less than all, poll again after a moment. */
CAY_PUBLIC CAY_NODISC int cay_process_write(cay_process *process, const void *data,
                                            size_t len, size_t *ret_written,
                                            struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_process_close_input(cay_process *process,
                                                  struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_process_resize(cay_process *process, uint16_t rows,
                                             uint16_t columns, struct cay_error *err);

/* Sends the signal to the first process only. */
CAY_PUBLIC CAY_NODISC int cay_process_signal(cay_process *process, int signal,
                                             struct cay_error *err);
/* Kills the whole tree, which is dead when this returns. */
CAY_PUBLIC CAY_NODISC int cay_process_kill(cay_process *process, struct cay_error *err);

/* Waits for the end, at most `timeout_ms` (UINT64_MAX: for ever); CAY_E_TIMEOUT if the
 * command still runs.  Output that was not read is in the result, up to the limit. */
CAY_PUBLIC CAY_NODISC int cay_process_wait(cay_process *process, uint64_t timeout_ms,
                                           struct cay_exec_result *ret_result,
                                           struct cay_error *err);

struct cay_process_info {
    int pid, parent; /* inside; parent 0: started from outside */
    uint32_t uid;    /* inside */
    bool is_command; /* started by exec or start, not by another process */
    bool is_background;
    bool has_ended;    /* a background command whose result was not fetched yet */
    bool has_terminal; /* a command with a terminal of its own */
    int exit_code;     /* if has_ended */
    char state;        /* as ps(1) shows it: R, S, D, T, Z */
    char tag[64];
    char command[512];  /* its arguments, cut */
    int64_t started_ms; /* since 1970 */
    uint64_t cpu_us, memory_bytes;
    enum cay_cause cause; /* if has_ended; 0 if the backend does not report it */
};

/* Every process inside, ordered by pid.  Free the array with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_process_list(cay_sandbox *sandbox,
                                           struct cay_process_info **ret_infos,
                                           size_t *ret_count, struct cay_error *err);

/* --- Templates ------------------------------------------------------------------------
 *
 * A template is the read-only root that a sandbox starts from.  Templates are stored
 * below $CAY_HOME, else /var/lib/cay for root and $XDG_STATE_HOME/cay for other users,
 * who need a range of subordinate ids.  Each template gets a user called `user`, uid
 * 1000, unless it has one. */

enum cay_template_source {
    CAY_TEMPLATE_DIR = 1,         /* a directory, copied */
    CAY_TEMPLATE_TAR = 2,         /* a tar file, compressed or not */
    CAY_TEMPLATE_OCI = 3,         /* output of `docker save`, or an OCI layout */
    CAY_TEMPLATE_DEBOOTSTRAP = 4, /* a suite: "bookworm" */
    /* "oci:DIR[:TAG]", "oci-archive:FILE", "docker-archive:FILE", or an image of a
     * registry, "docker://NAME[:TAG]" or the name alone, which skopeo(1) downloads. */
    CAY_TEMPLATE_IMAGE = 5,
    /* "ID" or "ID:CHECKPOINT" of a sandbox, as `from` of struct cay_sandbox_options, or
     * the name of a snapshot.  All files are in the template, unless some are those of
     * "host" or "base". */
    CAY_TEMPLATE_SANDBOX = 6
};

struct cay_template_options {
    size_t size;
    const char *name; /* letters, digits, "-", "_", "."; not "host" */
    enum cay_template_source source;
    const char *from; /* the directory, file or suite */
    /* Called now and then with the current step.  A return value other than 0 cancels.
     * For an ordinary user it is called in another process, which shares the memory, the
     * descriptors and the thread-local storage of the calling thread, while that waits.
     */
    int (*on_progress)(void *cookie, const char *step, uint64_t bytes);
    void *cookie;
    /* CAY_TEMPLATE_DEBOOTSTRAP: packages to install, with commas between them.  A
     * template called "code" needs neither these nor a source: it gets Python with numpy,
     * pandas, matplotlib, requests and pip, and Node.js. */
    const char *packages;
};

struct cay_template_info {
    char name[64];
    char source[32]; /* "dir", "tar", "oci", "debootstrap", "builtin" */
    char from[256];
    int64_t created_ms;
    uint64_t bytes;
    /* From the image's own configuration; "" or 0 if it has none. */
    char user[64], workdir[256];
};

/* Archives are read in a confined process, and images are checked against their digests.
 * Only files, directories and links are unpacked.  A failure leaves nothing behind. */
CAY_PUBLIC CAY_NODISC int cay_template_create(const struct cay_template_options *options,
                                              struct cay_error *err);
/* "host" first.  Free the array with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_template_list(struct cay_template_info **ret_infos,
                                            size_t *ret_count, struct cay_error *err);
/* *ret_config is the configuration of its image, "config" of an OCI image, as JSON: "{}"
 * if it has none.  Free it with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_template_inspect(const char *name,
                                               struct cay_template_info *ret_info,
                                               char **ret_config, struct cay_error *err);
/* CAY_E_BUSY while a sandbox uses it, running or stopped, or a template that was built
 * from it.  Layers that no other template has are removed, too. */
CAY_PUBLIC CAY_NODISC int cay_template_remove(const char *name, struct cay_error *err);
/* Removes layers that no template has: of builds without a name, that failed, or whose
 * template was replaced.  CAY_E_BUSY while a build runs. */
CAY_PUBLIC CAY_NODISC int cay_template_prune(size_t *ret_count, uint64_t *ret_bytes,
                                             struct cay_error *err);

/* --- Builds -------------------------------------------------------------------------
 *
 * A build makes a template by the instructions of a Dockerfile: see cay-build(1).  Each
 * step that changes files is a layer, which later builds use again if nothing that the
 * step depends on has changed. */

enum cay_build_event {
    CAY_BUILD_STEP = 1,   /* a step begins; text is its instruction */
    CAY_BUILD_CACHED = 2, /* its layer exists */
    CAY_BUILD_OUTPUT = 3  /* text is output of the command of RUN */
};

struct cay_build_progress {
    enum cay_build_event event;
    unsigned step, step_count; /* those that change files; from 1 */
    const char *text;
    size_t len;
};

struct cay_build_options {
    size_t size;
    const char *dir; /* the sources of COPY and ADD */
    const char
        *file; /* the Dockerfile; NULL: "Dockerfile" in dir.  Without "/": in dir */
    const char *name;        /* NAME or NAME:TAG of the template; NULL: only the layers */
    const char *const *args; /* "NAME=value" of ARG, NULL-terminated, or NULL */
    const char *target;      /* a stage by its name or number; NULL: the last one */
    const cay_policy *policy; /* the network rules of RUN; NULL: no network */
    uint64_t memory_bytes;    /* of each RUN; 0: CAY_MEMORY_DEFAULT */
    bool no_cache;            /* run every step */
    /* A return value other than 0 cancels. */
    int (*on_progress)(void *cookie, const struct cay_build_progress *progress);
    void *cookie;
    /* Images of FROM and --from that are not templates are downloaded from their
     * registries, as by CAY_TEMPLATE_IMAGE, and stay as templates. */
    bool pull;
    /* ENV is for the steps alone: sandboxes of the template get the variables that those
     * of the image have.  The template's configuration has all of them. */
    bool hides_env;
};

/* Replaces a template of the same name, unless a sandbox uses it: CAY_E_BUSY.
 * CAY_E_EXEC_FAILED: a command of RUN failed.  Errors name the line. */
CAY_PUBLIC CAY_NODISC int cay_build(const struct cay_build_options *options,
                                    struct cay_error *err);

struct cay_install_options {
    size_t size;
    const char *name; /* of the new template */
    const char *from; /* a template with apt-get(8) */
    /* Names of Debian's packages, each several with commas between them;
     * NULL-terminated. */
    const char *const *packages;
    const cay_policy *policy; /* the network rules of apt-get; NULL: no network */
    uint64_t memory_bytes;    /* 0: CAY_MEMORY_DEFAULT */
    int (*on_progress)(void *cookie, const struct cay_build_progress *progress);
    void *cookie;
};

/* A template with more packages: apt-get installs them in a sandbox of its own, and what
 * it changes is a layer above `from`.  CAY_E_UNSUPPORTED if that has no apt-get. */
CAY_PUBLIC CAY_NODISC int cay_template_install(const struct cay_install_options *options,
                                               struct cay_error *err);

/* --- The host -----------------------------------------------------------------------
 */

enum cay_finding { CAY_FINDING_OK = 1, CAY_FINDING_WEAKER = 2, CAY_FINDING_MISSING = 3 };

struct cay_check {
    enum cay_finding finding;
    char facility[48]; /* "user namespaces" */
    char detail[256];  /* what was found */
    char fix[256];     /* a command that fixes it, or "" */
};

/* The support of this machine for sandboxes, one entry for each facility.  Free the array
 * with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_doctor(struct cay_check **ret_checks, size_t *ret_count,
                                     struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
