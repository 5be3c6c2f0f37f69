/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_BROKER_H
#define SERVER_BROKER_BROKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "server/broker/catalog.h"
#include "server/broker/index.h"
#include "server/broker/secrets.h"
#include "server/broker/snapshot.h"
#include "server/keeper/keeper.h"
#include "server/wire/channel.h"
#include "server/wire/options.h"

/* Detects a stuck process.  It increments a counter in shared memory while it makes
 * progress; the broker reads it every HEARTBEAT_MS.  A process without progress is stuck
 * after 20 seconds, or after 100 seconds if it uses CPU time (a long request at a low CPU
 * share).
 *
 * Checks are counted, not time: if the whole machine was suspended, the process missed at
 * most one. */

enum {
    HEARTBEAT_MS = 2000,
    HEARTBEAT_IDLE = 5,   /* weight of a check without progress and without CPU time */
    HEARTBEAT_MISSED = 50 /* sum of the weights at which a process is stuck */
};

struct heartbeat {
    uint64_t beats, cpu_ns, checked_ms; /* at the previous check */
    unsigned missed;
};

/* One check.  Returns true if the process is stuck, and resets the state. */
bool heartbeat_check(struct heartbeat *heartbeat, uint64_t beats, uint64_t cpu_ns);

/* CPU time of a process; 0 if it does not exist. */
uint64_t heartbeat_cpu_ns(pid_t pid);

/* Limits how often the front is restarted: it may exit now and then for years, but the
 * server gives up on one that exits again and again. */

enum {
    RESTARTS_MAX = 100, /* within RESTARTS_MS */
    RESTARTS_MS = 3600 * 1000,
    DEATHS_MAX = 5, /* consecutive exits, each before the front was ALIVE_MS old */
    ALIVE_MS = 1000
};

struct restarts {
    int64_t started_ms[RESTARTS_MAX]; /* of the latest starts: a ring */
    uint64_t count;                   /* of all starts */
    unsigned deaths;
};

/* Call before each start, with a monotonic clock.  Returns false if there were too many.
 */
bool restarts_allowed(struct restarts *restarts, int64_t now_ms);

struct broker;

/* An event source of the loop: the first member of the struct that owns the descriptor.
 */
struct source {
    void (*ready)(struct broker *broker, struct source *source);
};

/* Counters for GET /metrics: stats.c. */
enum { STATS_FAILURES = 10, STATS_ENDS = 5, STATS_TEMPLATES = 20 };
struct broker_stats {
    uint64_t started_s;
    uint64_t creates, create_failures[STATS_FAILURES], ends[STATS_ENDS];
    uint64_t front_restarts, keeper_failures, pool_restarts;
    char templates[STATS_TEMPLATES][TEMPLATE_MAX]; /* of this machine */
    unsigned template_count;
};
void stats_count_failure(struct broker_stats *stats, int status);
void stats_count_end(struct broker_stats *stats, const char *reason);
/* STATS_TEMPLATES: not among them. */
unsigned stats_find_template(const struct broker_stats *stats, const char *name);
void stats_note_template(struct broker_stats *stats, const char *name);

struct broker {
    const struct serve_options *options;
    struct broker_stats stats;
    struct usage *usage;     /* usage.c; NULL: no memory for it */
    struct journal *journal; /* journal.c; the same */
    struct index *index;     /* index.c, and the two others; NULL: no PostgreSQL */
    struct index_rows *index_rows;
    struct index_keys *index_keys;
    struct index_sessions *index_sessions;
    uint64_t held_count; /* requests that have waited for PostgreSQL */
    int64_t claim;    /* of the present request, until a request of the broker takes it */
    bool is_admitted; /* the limit of its tenant was checked */
    struct registry *registry;
    struct secrets secrets;
    const char *domain;
    struct keeper_handle *keepers, *dropped;
    struct keeper_handle *next_keeper; /* started for the next sandbox, or NULL */
    uint64_t next_keeper_ms;           /* by clock_ms(): not before, after a failure */
    struct broker_request *pending;
    struct unwritten *unwritten; /* rows that could not be written yet: records.c */
    int epoll, timer, signals;
    int front; /* socket on which requests arrive */
    struct source front_source, timer_source, signal_source;
    pid_t front_pid;
    int front_status; /* exit status of the last one */
    _Atomic uint64_t
        *front_beats;           /* counter that the front increments; NULL: not checked */
    struct heartbeat heartbeat; /* of the front */
    bool is_front_replaced;     /* it was stuck, and the broker killed it */
    int64_t next_end_ms;        /* when the timer fires */
    /* Logs for the operator; NULL: nothing is logged. */
    void (*log_error)(const char *about, const struct cay_error *error);
    bool is_over;
    bool is_keeper_lost; /* one failed whose sandbox may need it: broker_watch_egress() */
    struct node {
        struct source agent_source;
        int agent;            /* listening socket of --agent; -1: none */
        bool is_agent_paused; /* out of descriptors */
        int64_t leave_ms;     /* by clock_ms(): no new sandboxes, and the deadline of
                                 the others; 0: it stays */
        int64_t checked_ms;
    } node;
    struct mcp_process {
        struct source source; /* of `notes` */
        struct mcp_process *next;
        pid_t pid;
        int notes;           /* struct mcp_note; -1: none */
        uint64_t request_id; /* of the request that started it */
        struct keeper_mcp spec;
        struct request_packet *request; /* of a removal: refused or done at its end */
    } * mcp;                            /* sessions */
    struct mcp_kept {
        char (*names)[CAY_NAME_MAX]; /* sandboxes that sessions have left */
        size_t count;
    } mcp_kept;
    int64_t drain_end_ms; /* by clock_ms(): deadline for open requests; 0: not draining */
    struct hooks_process {
        struct source source;
        pid_t pid;  /* 0: none */
        int socket; /* -1: none */
    } hooks;
    struct pool_process {
        struct source source;
        pid_t pid;                /* 0: none */
        int socket;               /* -1: none */
        char name[POOL_NAME_MAX]; /* "": not known yet */
    } pool;
    struct shared {
        char id[KEEPER_SHARED_ID + 1]; /* of the directory; "": no --shared */
        /* While a request is handled again: what this node knows of the directory. */
        enum shared_state { SHARED_UNREAD, SHARED_READ, SHARED_AWAY } state;
        unsigned held;
        uint64_t fetches, fetched_bytes, failures;
    } shared;
    struct request_packet request; /* the one that is being handled */
    struct epoll_event *events;    /* of the present round */
    int event_count;
};

/* From here on SIGTERM and SIGINT are blocked; broker_run() handles them. */
int broker_open(struct broker *broker, struct cay_error *err);

/* Handles requests from `front` until SIGTERM or SIGINT, or until `front` is closed.  The
 * first signal drains: the front refuses new requests and exits when the open ones are
 * finished, at most --drain seconds later; the second signal ends the loop at once.
 * `restart_front` returns the socket of a new front after the old one exited; NULL: the
 * loop ends instead. */
void broker_run(struct broker *broker, int (*restart_front)(struct broker *broker));

bool broker_poll_add(struct broker *broker, int fd, struct source *source);
void broker_poll_remove(struct broker *broker, int fd);
/* Before a source is freed in a round of events, of which one may be its own. */
void broker_forget_source(struct broker *broker, const struct source *source);

/* Sets the timer to fire at this time, unless it fires earlier. */
void broker_wake_at(struct broker *broker, int64_t end_ms);

/* Handles a request with the credential of a sandbox. */
void broker_handle_data(struct broker *broker, struct request_packet *request);
/* Handles a request whose API key is of this tenant. */
void broker_handle_as(struct broker *broker, struct request_packet *request,
                      const char *tenant);
/* Refuses a request whose API key is unknown. */
void broker_refuse_key(struct request_packet *request);

/* --- Keepers, and requests to them: keepers.c --- */

/* The broker's handle of a keeper: a process that serves one sandbox.  If the sandbox
 * blocks it, no other sandbox has to wait.  A keeper that has nothing to do exits; the
 * handle then has its state, and a pidfd of the sandbox's PID 1, until the next request.
 */
struct keeper_handle {
    struct source source;
    struct keeper_handle *next;
    char id[SANDBOX_ID_MAX];   /* "": none yet */
    char volume[CAY_NAME_MAX]; /* whose files it serves; "": none, it has a sandbox */
    pid_t pid;                 /* 0: no process */
    int socket;                /* -1: no process, or one that is about to exit */
    uint64_t sent;             /* requests */
    int life;                  /* the pidfd; -1 while there is a keeper */
    char *state;               /* struct keeper_spec */
    size_t state_len;
};

/* Starts a keeper, for an existing sandbox if `id` is not "". */
struct keeper_handle *keepers_start(struct broker *broker, const char *id);

/* The keeper of a sandbox, started if necessary; NULL on failure. */
struct keeper_handle *keepers_find(struct broker *broker, const char *id);
/* The same for the files of a volume. */
struct keeper_handle *keepers_find_volume(struct broker *broker, const char *volume);

/* Closes its socket; the keeper then exits and closes its channels.  The handle is freed
 * by keepers_free_dropped(), since events that were already received may point to it. */
void keepers_drop(struct broker *broker, struct keeper_handle *keeper);
void keepers_free_dropped(struct broker *broker);

/* Sends a request to a keeper and counts it.  0 or a negative errno. */
int keepers_forward(struct keeper_handle *keeper, const struct request_packet *request);

struct keeper_handle *keepers_by_pid(const struct broker *broker, pid_t pid);

/* The keeper does not read requests any more: kills it, and records what its exit status
 * says about the sandbox before another one is started. */
void keepers_lost(struct broker *broker, struct keeper_handle *keeper);

/* A process exited with this status of wait(2). */
void keepers_reaped(struct broker *broker, pid_t pid, int status);

/* Starts a keeper for the next sandbox that is created, so that its client does not wait
 * for a fork.  For a moment without requests: KEEPERS_QUIET_MS. */
enum { KEEPERS_QUIET_MS = 5 };
bool keepers_want_next(const struct broker *broker);
void keepers_start_next(struct broker *broker);

/* Starts the process of an MCP session on this socket, with one for struct mcp_note: its
 * pid, or -1. */
pid_t keepers_start_mcp(struct broker *broker, int socket, int notes,
                        const struct keeper_mcp *spec);

/* Starts the process with the pool of --pool, unless there is one. */
void keepers_start_pool(struct broker *broker);

/* In a new process: closes and erases everything of the broker but this socket, which
 * becomes KEPT_FD. */
enum { KEPT_FD = 3 };
void keepers_leave_broker(struct broker *broker, int socket, const char *name);

/* --- What sandboxes use: usage.c --- */

void usage_open(struct broker *broker);
void usage_close(struct broker *broker);
/* NULL: none. */
struct history;
struct history *usage_history(const struct broker *broker);
/* Starts the sampler, unless there is one. */
void usage_start(struct broker *broker);
void usage_reaped(struct broker *broker, pid_t pid);
/* OP_USAGE: the stored samples; the keeper adds what is used now. */
void usage_send_history(struct broker *broker, const struct request_packet *request,
                        const char *id);
/* OP_SAMPLES */
void usage_send_latest(struct broker *broker, struct request_packet *request,
                       const char *tenant);
/* For GET /metrics. */
struct samples;
void usage_put(struct samples *out, const struct broker *broker);

/* A request of the broker's own, which a keeper has to finish before a row changes.  Has
 * its own channel, and the channel of the client that waits for the result, if there is
 * one. */
struct broker_request {
    struct source source;
    struct broker_request *next;
    enum op op;
    uint64_t id;        /* of the client's request; 0: none */
    int channel;        /* to the keeper */
    int client;         /* channel of the waiting client, or -1 */
    bool is_cold;       /* OP_PAUSE, OP_RESUME: PAUSE_COLD */
    bool is_of_machine; /* OP_CREATE: the template is not a tenant's */
    bool is_new;        /* OP_CONFIRM: the sandbox was just created */
    bool has_no_reply;  /* its channel was closed without a reply */
    bool is_lost;       /* its keeper exited */
    int64_t timeout_s;
    int64_t number; /* of broker_request_send() */
    int64_t claim;  /* a place within the limit of the tenant; 0: none */
    int64_t claim_count;
    int64_t force_ms; /* when to kill a keeper that has not read it; 0: never */
    pid_t keeper;
    char volume[CAY_NAME_MAX]; /* for the keeper of this volume */
    struct record_row row;
    struct request_packet *held; /* forwarded after a resume */
    struct buf env;              /* of a new sandbox: each variable with its NUL */
    struct forks *forks;         /* it is one of several that a client waits for */
    struct snapshot_row *snapshot;
    char record[SHARED_NAME_MAX]; /* of the shared directory: OP_SHARED_GET */
    char
        returns[SANDBOX_ID_MAX]; /* OP_CREATE: the lost sandbox that it replaces, or "" */
    struct fork_plan *plan;      /* OP_FORK: what the new sandboxes get */
    char template_id[CATALOG_ID_MAX], build[CATALOG_BUILD_MAX]; /* of builds.c */
    /* Called once if the keeper exits without a reply; NULL: fail. */
    void (*retry)(struct broker *broker, struct broker_request *pending);
    /* Called when it is done; an error is sent to the client. */
    int (*done)(struct broker *broker, struct broker_request *pending,
                const struct reply_packet *reply, struct cay_error *err);
    /* Called if it failed, whether or not there is a client; may be NULL. */
    void (*failed)(struct broker *broker, struct broker_request *pending,
                   const struct cay_error *error);
    struct broker *broker;
};

/* Copies the row, and takes the channel of the client's request; both may be NULL.
 * Returns NULL if memory is exhausted; the client's request is closed in any case. */
struct broker_request *broker_request_new(struct broker *broker, enum op op,
                                          const struct record_row *row,
                                          struct request_packet *request);
void broker_request_free(struct broker *broker, struct broker_request *pending);

/* Sends an error to the client. */
void broker_request_fail(struct broker_request *pending, int status,
                         const struct cay_error *error);

/* Sends it to the keeper of the sandbox, or to a new one if the row has no id.  If the
 * keeper exited, another one gets it.  On failure the client gets an error. */
void broker_request_send_to(struct broker *broker, struct broker_request *pending,
                            struct request *request, const struct buf *strings);

/* The same with only a number. */
void broker_request_send(struct broker *broker, struct broker_request *pending,
                         int64_t number);

/* Sends the same request once more: a value for pending->retry. */
void broker_request_resend(struct broker *broker, struct broker_request *pending);

/* Whether a request that changes the state of this sandbox is pending. */
bool broker_request_is_pending(const struct broker *broker, const char *id);
/* The pending request of this kind, or NULL. */
const struct broker_request *broker_request_find(const struct broker *broker, enum op op,
                                                 const char *id);

/* Kills keepers that have not read a kill request in time; a new keeper repeats it. */
void broker_request_force_late(struct broker *broker);

/* A keeper exited: retries its requests, or sends errors to the waiting clients. */
void broker_request_keeper_ended(struct broker *broker, pid_t keeper);

/* --- Records: records.c --- */

/* Finds the row of a sandbox, including changes that are not written yet.
 * CAY_E_NOT_FOUND: there is none. */
int broker_find_record(struct broker *broker, const char *id, struct record_row *ret_row,
                       struct cay_error *err);
/* Applies changes that are not written yet to a row that was just read. */
void broker_apply_unwritten(struct broker *broker, struct record_row *row);

/* The value of a key of metadata, or NULL. */
const char *broker_find_metadata(const struct record_row *row, const char *key);

/* "was killed", ...: why the sandbox ended or is about to end; NULL: it has not. */
const char *broker_end_reason(const struct broker *broker, const struct record_row *row);

/* Writes a row.  If that fails, the broker keeps it in memory and writes it later: what
 * happened to the sandbox cannot be undone. */
void broker_write_record(struct broker *broker, const struct record_row *row);
void broker_retry_writes(struct broker *broker);
uint64_t broker_count_unwritten(const struct broker *broker);

/* --- The control plane: control.c --- */

enum {
    DEFAULT_TIMEOUT_S = 15,      /* in version 1 of the API */
    DEFAULT_LONG_TIMEOUT_S = 300 /* in version 2 */
};

/* Handles a request with an API key of `tenant`. */
void control_handle(struct broker *broker, struct request_packet *request,
                    const char *tenant);

/* Kills or pauses sandboxes whose time is over, and sets the timer for the next one. */
void broker_expire(struct broker *broker);

/* Updates rows of sandboxes that ended while no server was running. */
void broker_reconcile(struct broker *broker);

/* Kills every sandbox that has a row, without keepers. */
void broker_kill_all(struct broker *broker);

/* A sandbox ended without a request of the broker. */
void broker_sandbox_ended(struct broker *broker, const char *id, bool had_memory_kills);

/* Also true while a pause is pending: later requests are handled after it. */
bool control_is_paused(const struct broker *broker, const struct record_row *row);

/* Whether it was paused without its memory, or is about to be. */
bool control_is_cold(const struct broker *broker, const struct record_row *row);

/* A pause without memory has failed: the sandbox runs. */
void control_pause_failed(struct broker *broker, const char *id);

/* Resumes a paused sandbox, then forwards the request. */
void control_resume_for(struct broker *broker, struct request_packet *request,
                        const struct record_row *row);

/* Pauses a sandbox; without its memory if `cold`.  `request` may be NULL. */
void control_pause(struct broker *broker, struct record_row *row,
                   struct request_packet *request, bool cold);

/* Sends a request to the keeper of a sandbox, and updates the row when it is done.
 * `reason` is the end reason for OP_KILL, `seconds` the new timeout. */
void control_start(struct broker *broker, enum op op, struct record_row *row,
                   struct request_packet *request, const char *reason, int64_t seconds);

/* Replies with an error and returns false if the timeout is invalid. */
bool control_check_timeout(struct broker *broker, struct request_packet *request,
                           int64_t seconds);

/* The same if --internet does not leave these network rules to clients. */
bool control_check_rules(struct broker *broker, struct request_packet *request,
                         const char *const *rules, int64_t count);

/* Sets the end of a sandbox, counted from now. */
void control_set_end(struct broker *broker, struct record_row *row, int64_t seconds);

/* --- Creation: create.c --- */

void broker_create(struct broker *broker, struct request_packet *request,
                   const char *tenant);

/* Creates sandboxes that begin with the files of another one, and have everything else of
 * it: fork.c. */
void broker_fork(struct broker *broker, struct request_packet *request,
                 const struct record_row *row);

/* Reports one of the sandboxes to the waiting client: as created, or an error.  After the
 * last one the client has its reply. */
void fork_report_created(struct broker *broker, struct forks *forks,
                         const struct record_row *row);
void fork_report_failed(struct forks *forks, int status, const char *message);
void fork_plan_free(struct fork_plan *plan);

struct broker_template {
    char shown[TEMPLATE_MAX];  /* to clients: an id, or a name */
    char source[TEMPLATE_MAX]; /* the template of Cay */
    bool is_own;               /* the tenant's; then it has a build */
    bool is_of_machine;        /* neither a tenant's nor a snapshot */
    struct catalog_build build;
};
static inline void broker_template_done(struct broker_template *template)
{
    catalog_build_done(&template->build);
}
#define BROKER_TEMPLATE_INIT                                                             \
    {                                                                                    \
        .build = CATALOG_BUILD_INIT                                                      \
    }
#define AUTO_BROKER_TEMPLATE                                                             \
    __attribute__((cleanup(broker_template_done))) struct broker_template

/* Sends OP_CREATE to a keeper, for a row that is complete except for its id and times,
 * which the keeper returns.  `strings` are those of CREATE_RULES, CREATE_HEADERS and
 * CREATE_VOLUMES; `from` may be "". */
void create_send(struct broker *broker, struct broker_request *pending,
                 const struct broker_template *template, const int64_t *numbers,
                 const struct buf *strings, const char *from);

/* A request for a sandbox with this row, which may be NULL. */
struct broker_request *create_new(struct broker *broker, const struct record_row *row,
                                  struct request_packet *request);

/* Whether the numbers of the request match its strings. */
bool create_has_counts(const struct request_packet *request);
/* Whether the server allows the rules and headers of the request; it replies if not. */
bool create_check_network(struct broker *broker, struct request_packet *request,
                          const char *const *rules);

/* Adds rules, headers and volumes of a client as a keeper gets them; replies with an
 * error and returns false if one is invalid.  The caller wipes the strings. */
bool create_add_parts(struct broker *broker, struct request_packet *request,
                      const char *tenant, const char *const *rules, struct buf *strings);

/* Whether this machine and the store have room for another sandbox; replies if not, with
 * this status if memory is short. */
bool create_has_room(struct broker *broker, struct request_packet *request, int status);

/* Appends the environment of a sandbox, each variable with its NUL; the caller wipes it.
 */
enum { CREATE_SEAL_MAX = 64 }; /* more bytes of a sealed one */
int create_find_env(struct broker *broker, const char *id, struct buf *ret_env,
                    struct cay_error *err);

/* Repeats OP_CONFIRM for a server that exited after it wrote the row. */
void broker_confirm(struct broker *broker, const struct record_row *row);

/* Whether the memory that --reserve leaves free is available; else replies. */
bool broker_check_memory(const struct broker *broker, struct request_packet *request,
                         int status);

/* --- Templates of tenants: templates.c, builds.c --- */

/* The template of Cay that a build starts from if its client names E2B's base. */
#define BROKER_BASE "e2b-base"

/* A tenant's own template, or one of this machine.  CAY_E_NOT_FOUND also for those of
 * other tenants. */
int broker_resolve_template(struct broker *broker, const char *tenant, const char *text,
                            struct broker_template *ret_template, struct cay_error *err);

/* Adds the strings of OP_RESUME for a sandbox that was paused without its memory, and
 * returns their number: 0 if its template has no start command. */
uint32_t broker_add_start(struct broker *broker, const struct record_row *row,
                          struct buf *strings);

/* OP_TEMPLATE..., OP_TAGS..., OP_BUILD... */
void broker_handle_template(struct broker *broker, struct request_packet *request,
                            const char *tenant);
/* Those of builds.c; replies unless it fails. */
int broker_handle_build(struct broker *broker, struct request_packet *request,
                        const char *tenant, const char *const *strings,
                        struct cay_error *err);
int broker_reply_build(int channel, const struct catalog_build *build, int log);

/* OP_UPLOAD, which needs no key. */
void broker_upload(struct broker *broker, struct request_packet *request);

/* --- API keys and tenants: key-requests.c --- */

/* OP_KEYS to OP_TENANTS. */
void broker_handle_keys(struct broker *broker, struct request_packet *request,
                        const char *tenant);

/* Whether the credential of a request is an admin key, or a session of one: broker.c. */
bool broker_is_admin(struct broker *broker, const struct request_packet *request);

/* --- Stored secrets: secret-requests.c --- */

/* OP_SECRETS and OP_SECRET...: never with a value. */
void broker_handle_secret(struct broker *broker, struct request_packet *request,
                          const char *tenant);

/* Adds headers of clients (host, name, value) as a keeper gets them, with the values of
 * the tenant's secrets; replies with an error and returns false if one is missing.  The
 * caller wipes the strings. */
bool broker_add_headers(struct broker *broker, struct request_packet *request,
                        const char *tenant, const char *const *headers, int64_t count,
                        struct buf *strings);

/* --- Snapshots: snapshot-requests.c --- */

void broker_create_snapshot(struct broker *broker, struct request_packet *request,
                            const struct record_row *row);
void broker_list_snapshots(struct broker *broker, struct request_packet *request,
                           const char *tenant);
/* By name or id; replies unless it fails.  CAY_E_NOT_FOUND. */
int broker_remove_snapshot(struct broker *broker, struct request_packet *request,
                           const char *tenant, const char *text, struct cay_error *err);
/* Removes the files of one that has no row any more, or when the server starts again if
 * a sandbox uses them. */
void broker_drop_snapshot(struct broker *broker, const struct snapshot_row *row);
/* Removes snapshots without a row, and rows without a snapshot. */
void broker_reconcile_snapshots(struct broker *broker);

/* --- Volumes: volumes.c --- */

/* OP_VOLUMES and OP_VOLUME... */
void broker_handle_volume(struct broker *broker, struct request_packet *request,
                          const char *tenant);

/* OP_CONTENT_...: checks the token of the volume, and forwards the request. */
void broker_handle_content(struct broker *broker, struct request_packet *request);

/* Adds the volumes of a new sandbox (name, path) as a keeper gets them; replies with an
 * error and returns false if a name is invalid. */
bool broker_add_volumes(struct request_packet *request, const char *tenant,
                        const char *const *mounts, int64_t count, struct buf *strings);

/* --- Approvals: approvals.c --- */

/* OP_APPROVALS and OP_APPROVAL... */
void broker_handle_approval(struct broker *broker, struct request_packet *request,
                            const char *tenant);

/* The value of RECORD_APPROVE, or "". */
const char *broker_find_approvals(const struct record_row *row);

/* How long connections of the sandbox to other destinations wait for approval; 0: they do
 * not. */
int64_t broker_ask_ms(const struct record_row *row);

/* Starts the keepers of sandboxes whose connections wait for approval, if the server has
 * just started or a keeper failed. */
void broker_watch_egress(struct broker *broker);

/* --- MCP over HTTP: mcp.c --- */

/* OP_MCP, OP_MCP_REMOVE */
void broker_start_mcp(struct broker *broker, struct request_packet *request,
                      const char *tenant);
void broker_mcp_reaped(struct broker *broker, pid_t pid, int status);
/* Reads again which sandboxes sessions have left. */
void broker_read_kept(struct broker *broker);
/* The most sandboxes that the sessions may have. */
uint64_t broker_count_mcp(const struct broker *broker);

/* --- One of several servers: node.c --- */

/* Opens the port of --agent. */
int node_open(struct broker *broker, struct cay_error *err);
/* Creates a sandbox to see its isolation level.  CAY_E_UNSUPPORTED: it is worse than
 * --require-level. */
int node_check_level(const struct serve_options *options, struct cay_error *err);
/* No new sandboxes from now on; the server ends after the last one. */
void node_leave(struct broker *broker);
void node_stay(struct broker *broker);
/* Call from time to time.  True when a server that leaves has nothing left. */
bool node_is_empty(struct broker *broker);
/* Whether a sandbox with this id is on another node, as far as its letters say. */
bool node_is_foreign(const struct broker *broker, const char *id);
/* Replies about a sandbox that is not here; `status` and message if its node is not
 * known: as without nodes. */
void node_refuse(struct broker *broker, struct request_packet *request, int status,
                 const char *message, const char *hint);
/* Whether another sandbox may be created; replies if not. */
bool node_has_room(struct broker *broker, struct request_packet *request, int status);
/* What the kernel could give to a new program without swapping, and all. */
struct node_memory {
    uint64_t available, total;
};
struct node_memory node_memory(void);
struct node_load {
    uint64_t running;
    unsigned free; /* percent */
    enum ready_state state;
};
struct node_load node_load(const struct broker *broker);
/* OP_READY */
void node_handle_ready(struct broker *broker, struct request_packet *request);

/* --- Replies --- */

/* These also close the request. */
void broker_reply_done(struct request_packet *request);
void broker_refuse(struct request_packet *request, int status, int code,
                   const char *message, const char *hint);
/* `status` 0: that of the error's code. */
void broker_refuse_with(struct request_packet *request, int status,
                        const struct cay_error *error);

int broker_reply_sandbox(struct broker *broker, int channel, const struct record_row *row,
                         bool resumed);
void broker_list(struct broker *broker, struct request_packet *request,
                 const char *tenant);

/* OP_STATS: the broker's part of GET /metrics (stats.c). */
void broker_send_stats(struct broker *broker, struct request_packet *request);

/* Forwards a request to the keeper of a sandbox, and closes it here. */
void broker_forward(struct broker *broker, struct request_packet *request,
                    const char *id);

#endif
