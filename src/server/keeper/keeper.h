/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_KEEPER_KEEPER_H
#define SERVER_KEEPER_KEEPER_H

#include <stdbool.h>

#include "cay/sandbox.h"
#include "server/wire/channel.h"
#include "server/wire/options.h"

enum {
    KEEPER_SANDBOX_GONE = 3, /* exit status: the sandbox ended by itself */
    KEEPER_OUT_OF_MEMORY =
        4 /* and the kernel had killed processes in it for its memory limit */
};

/* PID 1 ends a sandbox this long after its time, in case no broker does. */
enum { KEEPER_GRACE_MS = 3000 };

/* The sandbox that a keeper serves; id "": it will create one. */
struct keeper_spec {
    char id[SANDBOX_ID_MAX], template_name[TEMPLATE_MAX], tenant[TENANT_MAX];
    const char *state; /* of the sandbox's previous keeper: struct idle_notice */
    size_t state_len;
    bool may_be_stopped; /* paused without memory, see RECORD_COLD */
    bool approves;       /* something of it waits for approval: RECORD_APPROVE */
    bool asks_egress;    /* CREATE_APPROVE_EGRESS */
};

enum {
    KEEPER_IDLE_MS = 3000, /* without a request or a task: the keeper is not needed */
    KEEPER_STATE_MAX = 16 << 10 /* bytes that the broker stores for the next one */
};

#define KEEPER_NAME "cay-keeper" /* of the process, once it has a sandbox */

/* The main function of a keeper process. */
_Noreturn void keeper_run(int socket, const struct keeper_spec *spec,
                          const struct serve_options *options);

/* The main function of the process that has the pool of --pool.  It sends the name of the
 * pool with its NUL as one packet, and exits when the broker closes the socket. */
_Noreturn void pool_run(int socket, const struct serve_options *options);

/* The main function of the sampler, which sends struct usage_packet, and exits when the
 * broker closes the socket.  `since_ms`: the last round of the sampler before it; 0:
 * none.
 */
_Noreturn void sampler_run(int socket, int64_t since_ms);

/* An MCP session. */
struct keeper_mcp {
    char tenant[TENANT_MAX];
    char kept[CAY_NAME_MAX]; /* the name of the sandbox that outlives it; "": none */
    bool removes;            /* no session: only that sandbox is removed */
};

/* What it sends to the broker before each call that changes something, as a packet. */
struct mcp_note {
    uint32_t version; /* CHANNEL_VERSION */
    char tool[60], key[16], subject[512];
};

/* The main function of the process of an MCP session; `notes` is a socket to the broker.
 */
_Noreturn void keeper_serve_mcp(int socket, int notes, const struct keeper_mcp *spec,
                                const struct serve_options *options);

/* In the state directory: the logs of builds, and the files for them, in a directory for
 * each tenant. */
#define KEEPER_BUILDS  "builds"
#define KEEPER_UPLOADS "uploads"
/* The same for requests for approval: "tenant-NAME/approvals". */
#define KEEPER_QUEUES "queues"

/* --shared: a file in the directory or bucket with its id, random hexadecimal digits. */
#define KEEPER_SHARED_MARK "cay-shared"
enum { KEEPER_SHARED_ID = 32 };
/* Reads that of a bucket; CAY_E_NOT_FOUND: there is none.  With `new_id` it becomes that,
 * unless another server is faster.  Waits for the store: not for the broker. */
int keeper_shared_mark(const struct serve_options *options, const char *new_id,
                       char ret_id[KEEPER_SHARED_ID + 1], struct cay_error *err);

/* Options of every sandbox: those of the server. */
#define KEEPER_TEMPLATE "base"
struct cay_sandbox_options keeper_sandbox_options(const struct serve_options *options);

/* The state of a keeper: a process with one loop that serves one sandbox.  Calls into the
 * library block until PID 1 of the sandbox replies. */

struct keeper;

/* An event source of the loop: a member of the struct that owns the descriptor. */
struct keeper_source {
    void (*ready)(struct keeper *keeper, struct keeper_source *source, unsigned events);
};

/* Work that continues after its request: a stream of output or events, or input that the
 * process has not read.  Freed at the end of a round of events, which may point to it. */
struct task {
    struct task *next;
    int channel;
    bool is_over;
    void (*done)(struct task *task);                        /* frees it */
    void (*tick)(struct keeper *keeper, struct task *task); /* every TICK_MS, or NULL */
    int64_t due_ms; /* by keeper_now_ms(): no tick before */
};

/* KEEPER_BUSY_TRIES: with TICK_MS between them, for a command that starts or ends. */
enum { TICK_MS = 10, KEEPER_USERS = 4, KEEPER_BUSY_TRIES = 50 };

struct keeper {
    int socket, epoll;
    const struct serve_options *options;
    cay_sandbox *sandbox;
    bool is_volume;     /* the sandbox only shows the files of a volume: content.c */
    bool is_pending;    /* the store has no row for it yet */
    bool asks_egress;   /* connections of the sandbox wait for approval */
    bool is_stopped;    /* the sandbox was paused without memory */
    uint64_t received;  /* requests */
    int64_t busy_ms;    /* when there was the last request, task or idle notice */
    int life;           /* pidfd of the sandbox's PID 1; 0: none yet */
    int64_t life_at_ms; /* when to open it */
    struct keeper_source life_source;
    struct task *tasks;
    struct command *commands; /* process.c */
    struct {
        char user[USER_MAX];
        cay_files *files;
    } users[KEEPER_USERS];
    unsigned next_user;
    struct {
        int64_t at_ms; /* 0: never */
        uint64_t cpu_us;
        int64_t permille; /* of one CPU, before that sample; -1: unknown */
    } sampled;
    struct {
        char sandbox[64], template_name[96], team[96]; /* "E2B_SANDBOX_ID=..." */
        bool is_unwritten;                             /* to the files inside */
    } identity;
    struct request_packet request;
};

/* A request that is being handled.  The channel is closed afterwards, unless a task took
 * it. */
struct keeper_request {
    struct request head;
    int channel;
    const char **strings;
};

bool keeper_poll_add(struct keeper *keeper, int fd, unsigned events,
                     struct keeper_source *source);
void keeper_poll_modify(struct keeper *keeper, int fd, unsigned events,
                        struct keeper_source *source);
void keeper_poll_remove(struct keeper *keeper, int fd);
void keeper_add_task(struct keeper *keeper, struct task *task);
int64_t keeper_now_ms(void); /* monotonic */

/* Waits until the channel accepts another packet: a short time, since the front reads
 * without blocking. */
int keeper_wait_writable(int channel, struct cay_error *err);

/* The sandbox has ended: exits, which closes all channels. */
_Noreturn void keeper_exit(void);

/* True if this error means that the sandbox has ended. */
bool keeper_sandbox_is_gone(struct keeper *keeper, int code);

/* File access as this user; NULL on failure, with `err`. */
cay_files *keeper_files(struct keeper *keeper, const char *user, struct cay_error *err);

typedef int keeper_op(struct keeper *keeper, struct keeper_request *request,
                      struct cay_error *err);

/* Each sends its replies and returns CAY_OK or, to have REPLY_DONE sent, KEEPER_DONE; or
 * it fails. */
enum { KEEPER_DONE = 1 };
/* The rules of --internet with those of a client; to be freed also on failure. */
struct keeper_network {
    struct cay_network_config config;
    const char **rules;
    char *words;
};
/* `ask_ms`: other destinations wait so long for approval; 0: they do not. */
int keeper_network_init(const struct serve_options *options, bool has_internet,
                        uint64_t ask_ms, const char *const *rules, size_t count,
                        struct keeper_network *ret_network, struct cay_error *err);
void keeper_network_done(struct keeper_network *network);

/* Headers of requests: host, name, value and secret parts of each. */
struct keeper_headers {
    struct cay_header *list;
    size_t count;
    const char **parts;
    char *text;
};
int keeper_headers_init(const char *const *strings, size_t count,
                        struct keeper_headers *ret_headers, struct cay_error *err);
void keeper_headers_done(struct keeper_headers *headers);

/* --- Approvals: approval.c --- */

/* From here on this process uses the queue of the tenant. */
int keeper_use_queue(const struct serve_options *options, const char *tenant,
                     struct cay_error *err);

/* The value of RECORD_APPROVE; to be freed also on failure. */
struct keeper_approvals {
    uint64_t timeout_ms;
    const char *scope; /* NULL: the sandbox */
    const char **patterns;
    char *text;
};
int keeper_approvals_init(const char *text, struct keeper_approvals *ret_approvals,
                          struct cay_error *err);
void keeper_approvals_done(struct keeper_approvals *approvals);

/* Approves a command of the server itself, such as the start command of a template, which
 * may match a pattern: nobody could reply while the keeper waits. */
int keeper_allow_own(cay_sandbox *sandbox, const struct cay_exec_options *exec,
                     struct cay_error *err);

/* Requests approval of the sandbox's connections until it is paused or ends, if it has
 * keeper->asks_egress.  The keeper is not idle meanwhile. */
void keeper_watch_egress(struct keeper *keeper);

/* Without a sandbox. */
keeper_op keeper_op_approval;

keeper_op keeper_op_network;
keeper_op keeper_op_snapshot;
keeper_op keeper_op_fork, keeper_op_checkpoints, keeper_op_checkpoint, keeper_op_rollback,
    keeper_op_diff;

/* Pauses the sandbox without its memory: only its files are left. */
int keeper_stop(struct keeper *keeper, struct cay_error *err);
/* Starts it again. */
int keeper_start(struct keeper *keeper, struct cay_error *err);
keeper_op keeper_op_content;
/* Ends the sandbox with the volume; the next request starts another one. */
void keeper_content_close(struct keeper *keeper);
/* Without a sandbox. */
keeper_op keeper_op_volume, keeper_op_snapshot_remove, keeper_op_shared,
    keeper_op_shared_records, keeper_op_build, keeper_op_remove_template,
    keeper_op_upload;
/* Strings: enum shared_string.  Removes a record and its archive; without `removes` it
 * only checks that the store can be used. */
int keeper_remove_shared(const struct keeper *keeper, const char *const *strings,
                         bool removes, struct cay_error *err);
/* The same strings: writes a record without an archive. */
int keeper_put_record(const struct keeper *keeper, const char *const *strings,
                      const struct buf *text, struct cay_error *err);
/* Removes templates of Cay that exist. */
int keeper_remove_templates(const char *const *names, size_t count,
                            struct cay_error *err);
keeper_op keeper_op_start, keeper_op_attach, keeper_op_processes, keeper_op_input,
    keeper_op_close_input, keeper_op_signal, keeper_op_resize;
keeper_op keeper_op_stat, keeper_op_make_dir, keeper_op_move, keeper_op_list_dir,
    keeper_op_remove, keeper_op_read_file, keeper_op_write_file;
keeper_op keeper_op_watch_dir, keeper_op_watcher_new, keeper_op_watcher_events,
    keeper_op_watcher_remove;

/* Starts the start command of a template in the background, with the variables of its
 * configuration, and repeats the ready command until it succeeds, for ten minutes.
 * "": none.  Without a ready command it waits 20 seconds.  `is_cancelled` may be NULL. */
int keeper_start_command(cay_sandbox *sandbox, const char *template_name,
                         const char *start, const char *ready,
                         bool (*is_cancelled)(void *cookie), void *cookie,
                         struct cay_error *err);

/* --- State for the next keeper --- */

/* Appends the commands that clients may request later: process.c. */
void keeper_save_commands(struct keeper *keeper, struct buf *state);
/* They have ended with the sandbox's PID 1. */
void keeper_forget_commands(struct keeper *keeper);
/* Takes them from `state`; returns the number of bytes, 0 if it is malformed. */
size_t keeper_restore_commands(struct keeper *keeper, const char *state, size_t len);

/* Ids of watchers are unique among the keepers of a sandbox: watch.c.  A keeper with
 * watchers stays, since they collect events. */
struct watcher_ids {
    int32_t owner; /* process that created the first watcher; 0: none */
    uint32_t numbers;
};
struct watcher_ids *keeper_watcher_ids(void);
bool keeper_has_watchers(void);

/* --- Identity --- */

#define IDENTITY_ENV(keeper)                                                             \
    "E2B_SANDBOX=true", (keeper)->identity.sandbox, (keeper)->identity.template_name,    \
        (keeper)->identity.team

/* The environment of a command, NULL-terminated, to be freed: the client's variables
 * except those that would override the identity. */
const char **keeper_identity_env(const struct keeper *keeper, const char *const *given);

/* --- Paths and entries: entry.c --- */

/* The absolute path for a client's path: "~" and relative paths start at the home
 * directory; ".." is resolved as text. */
int entry_path(struct keeper *keeper, const char *user, const char *path,
               char ret_path[PATH_MAX], struct cay_error *err);

/* /etc/passwd and /etc/group of the sandbox; valid until the next call. */
struct names {
    const char *users, *groups;
};
void names_read(cay_files *files, struct names *ret_names);
/* Closes the descriptor of /etc. */
void names_close(void);

struct entry {
    const char *path, *shown;
    const struct cay_stat *stat; /* lstat result, or NULL */
};

/* Describes an entry: the numbers of enum entry_number, and its strings, whose number is
 * added to *count. */
int entry_describe(cay_files *files, const struct names *names, const struct entry *entry,
                   int64_t *numbers, struct buf *strings, uint32_t *count,
                   struct cay_error *err);

/* Describes an entry and sends it. */
int entry_send(cay_files *files, const struct names *names, const struct entry *entry,
               int channel, struct cay_error *err);

#endif
