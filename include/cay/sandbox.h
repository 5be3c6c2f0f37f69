/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_SANDBOX_H
#define CAY_SANDBOX_H

#include "cay/files.h"

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

#define CAY_ID_MAX   32 /* with its NUL: "sb-" and 16 letters and digits */
#define CAY_NAME_MAX 64 /* with its NUL */

/* What keeps a sandbox in.  `require` makes a missing one an error. */
enum cay_layer {
    CAY_LAYER_USER = 1 << 0,    /* own user namespace; host root is nobody inside */
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

/* A host directory or file shown inside.  Its owner on the host is the default user
 * inside, if that is `user`, root, a number or one of the template's /etc/passwd, else
 * `user`, who may do there what the owner may; what others own is nobody's, and nobody
 * else inside can make anything there (EOVERFLOW).  Where something is writable no
 * command can set set-user-id bits; but one that a file has already stays, whatever is
 * written to it by way of memory: think before you show what root owns for writing. Other
 * file systems mounted below are not shown.
 */
struct cay_bind {
    const char *source;
    const char *target; /* absolute, inside; made if it is not there */
    bool writable;
};

/* Where what is written inside is kept. */
enum cay_storage {
    CAY_STORAGE_MEMORY = 0, /* gone with the sandbox; the kernel keeps its size limit */
    CAY_STORAGE_DISK = 1    /* survives a kill, and a start brings it back */
};

/* How much of the kernel's help there was to be had, best first; cay_sandbox_inspect()
 * tells which, and cay_doctor() why it is not a better one. */
enum cay_rung {
    CAY_RUNG_BEST = 0,     /* as an option: the best this host allows */
    CAY_RUNG_ROOT = 1,     /* root outside: a range of user ids for each sandbox */
    CAY_RUNG_RANGE = 2,    /* an ordinary user with a range in /etc/subuid */
    CAY_RUNG_SINGLE = 3,   /* an ordinary user without: one user id inside */
    CAY_RUNG_LANDLOCK = 4, /* no user namespaces: landlock and seccomp only */
    CAY_RUNG_NONE = 5 /* the backend "local": nothing keeps it in; not for an option */
};

#define CAY_MEMORY_DEFAULT (1ull << 30)
#define CAY_DISK_DEFAULT   (512ull << 20)
#define CAY_PIDS_DEFAULT   512u

struct cay_sandbox_options {
    size_t size;
    /* NULL or "host": this machine's programs, read-only.  A name that
     * cay_template_create() made, or the absolute path of a directory with the files of
     * a whole system, whose owners 0 to 65535 are those inside.  Either stays as it is.
     */
    const char *template_name;
    uint64_t memory_bytes; /* 0: CAY_MEMORY_DEFAULT; this and the next: at least 1 MiB */
    uint64_t disk_bytes;   /* 0: CAY_DISK_DEFAULT; on disk: must be 0, nothing keeps it */
    uint32_t pids;         /* 0: CAY_PIDS_DEFAULT */
    uint32_t cpu_percent;  /* of one CPU: 150 is one and a half; 0: no limit */
    enum cay_network network;
    const struct cay_bind *binds;
    size_t bind_count;
    /* "NAME=value", NULL-terminated; for every command inside.  Of two of the same name
     * the last one counts, here and in exec. */
    const char *const *env;
    const char *hostname; /* letters, digits and "-", up to 63; NULL: the id */
    unsigned require;     /* enum cay_layer */
    bool ephemeral;       /* dies with who makes it, and so does what it has on disk */
    /* Its directories appear inside at /NAME, a single root at /workspace; read-only
     * where it asks for approvals, suffixes or sizes, unless it says exec: rw. */
    const cay_policy *policy;
    uint64_t ttl_ms;     /* ends by itself after this time; 0: never */
    const char *user;    /* who runs commands by default; NULL: the image's, or "user" */
    const char *workdir; /* where they start; NULL: the image's, or that user's home */
    enum cay_storage storage;
    enum cay_rung rung; /* not a better one than this; CAY_RUNG_BEST: any */
    bool make_workdir;  /* if it is not there; it is then the user's */
    /* A name for cay_sandbox_open(), or NULL: a letter or a digit, then up to 62 letters,
     * digits, "_", "." and "-"; not "sb-...".  CAY_E_EXISTS while another sandbox of this
     * user has it, running or stopped. */
    const char *name;
};

/* The caller owns the handle; without it the sandbox lives on, unless it is ephemeral. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_create(const struct cay_sandbox_options *options,
                                             cay_sandbox **ret_sandbox,
                                             struct cay_error *err);

/* Reaches a sandbox that exists, by its id or its name.  CAY_E_NOT_FOUND if there is
 * none.
 */
CAY_PUBLIC CAY_NODISC int cay_sandbox_open(const char *id, cay_sandbox **ret_sandbox,
                                           struct cay_error *err);
CAY_PUBLIC void cay_sandbox_free(cay_sandbox *sandbox); /* the handle; NULL is fine */

CAY_PUBLIC const char *cay_sandbox_id(const cay_sandbox *sandbox);
CAY_PUBLIC unsigned cay_sandbox_layers(const cay_sandbox *sandbox); /* what is enforced */

/* "seccomp" for CAY_LAYER_SECCOMP, NULL for what is no single layer. */
CAY_PUBLIC const char *cay_layer_slug(unsigned layer);
CAY_PUBLIC const char *cay_rung_slug(enum cay_rung rung); /* "root", "single", ... */

/* --- Looking at sandboxes -----------------------------------------------------------
 */

enum cay_state {
    CAY_STATE_RUNNING = 1,
    CAY_STATE_PAUSED = 2,
    CAY_STATE_STOPPED = 3,
    /* It may run, but its record cannot be read: it can only be killed or removed. */
    CAY_STATE_DAMAGED = 4
};

struct cay_enforced {
    unsigned layer; /* one of enum cay_layer */
    char by[64];    /* what does it: "cgroup v1 memory", "landlock ABI 6" */
};

#define CAY_LAYERS_MAX 16

struct cay_sandbox_info {
    char id[CAY_ID_MAX];
    enum cay_state state;
    enum cay_rung rung;
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
    uint64_t disk_used; /* 0 where nothing counts it: without CAY_LAYER_DISK */
    uint64_t cpu_us;
    uint32_t pids_used;
    int init_pid; /* outside; 0 if stopped */
    uint32_t id_base, id_count;
    unsigned layers;
    struct cay_enforced enforced[CAY_LAYERS_MAX];
    size_t enforced_count;
    char type[32];         /* its backend: "native", "local" */
    uint64_t memory_kills; /* processes that the kernel has killed for the memory limit */
    char name[CAY_NAME_MAX]; /* "" if it has none */
};

CAY_PUBLIC CAY_NODISC int cay_sandbox_inspect(cay_sandbox *sandbox,
                                              struct cay_sandbox_info *ret_info,
                                              struct cay_error *err);

/* Every sandbox of this user, oldest first; cay_free() the array. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_list(struct cay_sandbox_info **ret_infos,
                                           size_t *ret_count, struct cay_error *err);

/* The same without a request to any of them: of one that runs or is paused, which both
 * are CAY_STATE_RUNNING here, there is what it was made with, but nothing that it uses,
 * no time to live and no layers. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_list_brief(struct cay_sandbox_info **ret_infos,
                                                 size_t *ret_count,
                                                 struct cay_error *err);

/* --- Its life -----------------------------------------------------------------------
 */

/* Freezes everything inside, and thaws it.  The time to live does not run meanwhile.  A
 * paused sandbox can be inspected and killed, but runs no commands: CAY_E_BUSY.  So are
 * both calls for one that is stopped. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_pause(cay_sandbox *sandbox, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_sandbox_resume(cay_sandbox *sandbox, struct cay_error *err);

/* From now on; 0 takes the time to live away. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_set_ttl(cay_sandbox *sandbox, uint64_t ttl_ms,
                                              struct cay_error *err);

/* Ends every process inside.  What lies in memory is gone with it and nothing is left;
 * with CAY_STORAGE_DISK the sandbox is stopped, and cay_sandbox_start() brings it back
 * with the options it was made with. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_kill(cay_sandbox *sandbox, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_sandbox_start(cay_sandbox *sandbox, struct cay_error *err);

/* Kills `count` sandboxes by their ids; they end side by side, in much less time than one
 * after another.  ret_errors has room for `count`: the code of each is CAY_OK, or says
 * why that one could not be killed.  The first such code, or CAY_OK. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_kill_many(const char *const *ids, size_t count,
                                                struct cay_error *ret_errors);

/* Kills it, and removes what it has on disk. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_remove(cay_sandbox *sandbox, struct cay_error *err);

/* Cleans up after sandboxes that ended by themselves and makers that crashed: their user
 * ids, cgroups and records.  *ret_count tells how many there were. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_collect(size_t *ret_count, struct cay_error *err);
/* The same in passing, for who starts often: does nothing if anybody of this user has
 * collected within the last second. */
CAY_PUBLIC void cay_sandbox_tidy(void);

/* Bytes that its user attaches to a sandbox that runs, for later processes of the same
 * user; nothing inside sees them, and they are gone with it.  The next one replaces them.
 * CAY_E_NOT_FOUND: there is no such sandbox, or it has no note.  cay_free() what was
 * read; a NUL follows it. */
#define CAY_SANDBOX_NOTE_MAX (64 << 10)
CAY_PUBLIC CAY_NODISC int cay_sandbox_set_note(const char *id, const void *data,
                                               size_t len, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_sandbox_get_note(const char *id, void **ret_data,
                                               size_t *ret_len, struct cay_error *err);

/* --- Its files ----------------------------------------------------------------------
 */

/* The sandbox's whole file system for the functions of files.h, with the rights of
 * `user` (NULL: the default one; also names and numbers, as in exec).  Paths are those
 * inside; relative ones start at the working directory.  Every byte of a path means
 * itself, and links and ".." mean what they mean to a program inside.  What the user may
 * not do there is CAY_E_DENIED.  "root:NAME" has the rights of root for NAME: what it
 * makes is NAME's, and relative paths start where NAME's do.  Files of /proc are read up
 * to 1 MiB and never written. Once the sandbox has ended everything is CAY_E_UNAVAILABLE;
 * the handle is independent of that of the sandbox. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_files(cay_sandbox *sandbox, const char *user,
                                            cay_files **ret_files, struct cay_error *err);

/* --- Its network --------------------------------------------------------------------
 */

/* A stream socket connected to a port on the sandbox's own loopback; it does not block,
 * and may still be connecting.  CAY_E_NOT_FOUND: nothing listens there.
 * CAY_E_UNSUPPORTED: it has no network of its own. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_dial(cay_sandbox *sandbox, uint16_t port,
                                           int *ret_fd, struct cay_error *err);

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
    /* Kill at the output limit rather than keep the tail. */
    CAY_EXEC_FAIL_ON_LIMIT = 1 << 0,
    /* On a terminal of its own, inside; all output is then stream 1, and the end of the
     * input is ^D. */
    CAY_EXEC_TTY = 1 << 1,
    /* cay_process_start() only: it outlives its starter, which may attach again.  The
     * last MiB of each stream is kept for that. */
    CAY_EXEC_BACKGROUND = 1 << 2,
    /* cay_process_start() only: stdin stays open for cay_process_write(). */
    CAY_EXEC_INPUT = 1 << 3,
    /* With CAY_EXEC_BACKGROUND: its output is like a pipe.  While a handle reads it,
     * nothing is lost, and the command waits for the slowest that does; and its end is
     * when nobody can write any more, children in the background included, unless it was
     * sent SIGTERM or SIGKILL. */
    CAY_EXEC_PIPED = 1 << 4,
    /* Nothing comes after it: if it exits with 0 the sandbox ends at once, which is
     * quicker than to be killed.  Otherwise it stays, to be looked at. */
    CAY_EXEC_LAST = 1 << 5
};

#define CAY_OUTPUT_DEFAULT (10ull << 20)

struct cay_exec_options {
    size_t size;
    unsigned flags;          /* enum cay_exec_flag */
    const char *const *argv; /* NULL-terminated; no shell; looked up in PATH inside */
    const char *const *env;  /* added to the sandbox's own; NULL-terminated or NULL */
    const char *cwd;         /* NULL: the working directory; relative: below it */
    const char *user;  /* NULL: the default; a name of its /etc/passwd, or a number */
    const void *input; /* NULL: /dev/null; else these bytes, then the end */
    size_t input_len;
    uint64_t timeout_ms;   /* 0: none */
    uint64_t output_limit; /* bytes kept of each stream; 0: CAY_OUTPUT_DEFAULT */
    /* Called as output comes, if set (stream 1 or 2); then nothing is kept in the result.
     * A return other than 0 ends the command. */
    int (*on_output)(void *cookie, int stream, const void *data, size_t len);
    void *cookie;
    /* A name for cay_process_attach(): a letter, then up to 62 letters, digits, "-", "_"
     * and ".".  No two that run share one. */
    const char *tag;
    uint16_t rows, columns; /* of the terminal; 0: 24 and 80 */
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
    /* While it ran, in the whole sandbox: processes that the kernel killed for the memory
     * limit, and attempts to start one that it refused for that of processes. */
    uint64_t memory_kills, refused_forks;
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

/* --- Processes: commands that are not waited for -------------------------------------
 *
 * A foreground process belongs to its handle: freeing that kills it and its tree.  A
 * background one (CAY_EXEC_BACKGROUND) belongs to the sandbox; handles come and go. */

typedef struct cay_process cay_process;

/* As cay_sandbox_exec(), but returns when it has started; CAY_E_EXEC_FAILED if it cannot
 * be.  `input` is written first; then stdin ends, unless CAY_EXEC_INPUT.  `on_output`
 * must be NULL.  At most 512 background processes run at a time. */
CAY_PUBLIC CAY_NODISC int cay_process_start(cay_sandbox *sandbox,
                                            const struct cay_exec_options *options,
                                            cay_process **ret_process,
                                            struct cay_error *err);

/* cay_sandbox_create() and cay_process_start() at once, in less time.  If the sandbox is
 * there and only the command cannot be started, *ret_sandbox is set nevertheless. */
CAY_PUBLIC CAY_NODISC int cay_sandbox_run(const struct cay_sandbox_options *options,
                                          const struct cay_exec_options *exec,
                                          cay_sandbox **ret_sandbox,
                                          cay_process **ret_process,
                                          struct cay_error *err);

/* A background process by its number inside or its tag, running or not long ended: until
 * its result was fetched by cay_process_wait() and nothing runs any more that it started,
 * or 64 others have ended after it.  The first read has its kept output, whole. */
CAY_PUBLIC CAY_NODISC int cay_process_attach(cay_sandbox *sandbox, const char *which,
                                             cay_process **ret_process,
                                             struct cay_error *err);
CAY_PUBLIC void cay_process_free(cay_process *process); /* NULL is fine */

CAY_PUBLIC int cay_process_pid(const cay_process *process); /* inside */

/* For poll(2): readable when cay_process_read() or cay_process_wait() has news.  Output
 * that a wait has taken in is such news until it is read. */
CAY_PUBLIC int cay_process_fd(const cay_process *process);

/* What there is, without waiting: at most `room` bytes of one stream (1 or 2).  Stream 0
 * and no bytes: nothing now.  Stream -1: it has ended, and all output was read.
 * *ret_dropped (may be NULL): bytes of that stream lost before these, because nobody read
 * them in time. */
CAY_PUBLIC CAY_NODISC int cay_process_read(cay_process *process, int *ret_stream,
                                           void *data, size_t room, size_t *ret_len,
                                           uint64_t *ret_dropped, struct cay_error *err);

/* What was kept until now is not read: the next read gives what comes after this call. */
CAY_PUBLIC CAY_NODISC int cay_process_skip(cay_process *process, struct cay_error *err);

/* Writes what fits now; poll again after a moment if that is less than all. */
CAY_PUBLIC CAY_NODISC int cay_process_write(cay_process *process, const void *data,
                                            size_t len, size_t *ret_written,
                                            struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_process_close_input(cay_process *process,
                                                  struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_process_resize(cay_process *process, uint16_t rows,
                                             uint16_t columns, struct cay_error *err);

/* To its first process. */
CAY_PUBLIC CAY_NODISC int cay_process_signal(cay_process *process, int signal,
                                             struct cay_error *err);
/* The whole tree; it is dead when this returns. */
CAY_PUBLIC CAY_NODISC int cay_process_kill(cay_process *process, struct cay_error *err);

/* Waits for its end, at most `timeout_ms` (UINT64_MAX: for ever); CAY_E_TIMEOUT if it
 * still runs.  Output that was not read is in the result, up to the limit. */
CAY_PUBLIC CAY_NODISC int cay_process_wait(cay_process *process, uint64_t timeout_ms,
                                           struct cay_exec_result *ret_result,
                                           struct cay_error *err);

struct cay_process_info {
    int pid, parent; /* inside; parent 0: started from outside */
    uint32_t uid;    /* inside */
    bool is_command; /* started by exec or start, rather than by another process */
    bool is_background;
    bool has_ended;    /* a background command whose result was not fetched yet */
    bool has_terminal; /* a command that was started on one */
    int exit_code;     /* if has_ended */
    char state;        /* as ps(1) shows it: R, S, D, T, Z */
    char tag[64];
    char command[512];  /* its words, cut */
    int64_t started_ms; /* since 1970 */
    uint64_t cpu_us, memory_bytes;
    enum cay_cause cause; /* if has_ended; 0 where the backend does not tell */
};

/* Everything that runs inside, by pid; cay_free() the array. */
CAY_PUBLIC CAY_NODISC int cay_process_list(cay_sandbox *sandbox,
                                           struct cay_process_info **ret_infos,
                                           size_t *ret_count, struct cay_error *err);

/* --- Templates ----------------------------------------------------------------------
 *
 * A template is the read-only root a sandbox starts from.  They are kept below $CAY_HOME,
 * else /var/lib/cay.  Each gets a user called `user`, 1000, unless it has one. */

enum cay_template_source {
    CAY_TEMPLATE_DIR = 1,        /* a directory, copied */
    CAY_TEMPLATE_TAR = 2,        /* a tar file, compressed or not */
    CAY_TEMPLATE_OCI = 3,        /* what `docker save` wrote, or an OCI layout */
    CAY_TEMPLATE_DEBOOTSTRAP = 4 /* a suite: "bookworm" */
};

struct cay_template_options {
    size_t size;
    const char *name; /* letters, digits, "-", "_", "."; not "host" */
    enum cay_template_source source;
    const char *from; /* the directory, file or suite */
    /* Called now and then with what is being done; other than 0 cancels. */
    int (*on_progress)(void *cookie, const char *step, uint64_t bytes);
    void *cookie;
};

struct cay_template_info {
    char name[64];
    char source[32]; /* "dir", "tar", "oci", "debootstrap", "builtin" */
    char from[256];
    int64_t created_ms;
    uint64_t bytes;
    /* What an image says about itself; "" or 0 where it does not. */
    char user[64], workdir[256];
};

/* Archives are read in a confined process and images checked against their digests.  What
 * is no file, directory or link is left out.  Whatever fails leaves nothing. */
CAY_PUBLIC CAY_NODISC int cay_template_create(const struct cay_template_options *options,
                                              struct cay_error *err);
/* "host" first; cay_free() the array. */
CAY_PUBLIC CAY_NODISC int cay_template_list(struct cay_template_info **ret_infos,
                                            size_t *ret_count, struct cay_error *err);
/* CAY_E_BUSY while a sandbox uses it, running or stopped. */
CAY_PUBLIC CAY_NODISC int cay_template_remove(const char *name, struct cay_error *err);

/* --- The host -----------------------------------------------------------------------
 */

enum cay_finding { CAY_FINDING_OK = 1, CAY_FINDING_WEAKER = 2, CAY_FINDING_MISSING = 3 };

struct cay_check {
    enum cay_finding finding;
    char facility[48]; /* "user namespaces" */
    char detail[256];  /* what was found */
    char fix[256];     /* the command that helps, or "" */
};

/* What this machine offers sandboxes, one line for each facility; cay_free() the array.
 */
CAY_PUBLIC CAY_NODISC int cay_doctor(struct cay_check **ret_checks, size_t *ret_count,
                                     struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
