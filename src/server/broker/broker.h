/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_BROKER_H
#define SERVER_BROKER_BROKER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "server/broker/api-key.h"
#include "server/broker/keepers.h"
#include "server/broker/secrets.h"

/* Whether a process is stuck: it counts beats up in shared memory while it advances, and
 * is looked at every HEARTBEAT_MS.  A process without a beat is stuck after 20 seconds,
 * or, if it uses CPU time (a long request at a low CPU share), after 100 seconds.
 *
 * Looks are counted, not time: if the whole machine stood still, the process missed at
 * most one. */

enum {
    HEARTBEAT_MS = 2000,
    HEARTBEAT_IDLE = 5,   /* what a look without a beat and without CPU time counts */
    HEARTBEAT_MISSED = 50 /* stuck */
};

struct heartbeat {
    uint64_t beats, cpu_ns, checked_ms; /* at the last look */
    unsigned missed;
};

/* One look.  Returns true if the process is stuck, and starts anew. */
bool heartbeat_check(struct heartbeat *heartbeat, uint64_t beats, uint64_t cpu_ns);

/* The CPU time of a process, 0 if there is none. */
uint64_t heartbeat_cpu_ns(pid_t pid);

/* How often a process may be started again: one that ends now and then may do so for
 * years, one that ends again and again would never serve anybody. */

enum {
    RESTARTS_MAX = 100, /* of them within RESTARTS_MS */
    RESTARTS_MS = 3600 * 1000,
    DEATHS_MAX = 5, /* in a row, each before it was ALIVE_MS old */
    ALIVE_MS = 1000
};

struct restarts {
    int64_t started_ms[RESTARTS_MAX]; /* the last of them, around the end */
    uint64_t count;                   /* of all */
    unsigned deaths;
};

/* It is to be started, now by a clock that only goes on: false if that was too often. */
bool restarts_allowed(struct restarts *restarts, int64_t now_ms);

/* What the loop waits for: the first member of whatever owns the descriptor. */
struct source {
    void (*ready)(struct broker *broker, struct source *source);
};

struct broker {
    const struct serve_options *options;
    struct registry *registry;
    struct secrets secrets;
    const char *domain;
    struct keeper_handle *keepers;
    struct broker_request *pending;
    struct unwritten *unwritten; /* records that the disk did not take: records.c */
    int epoll, timer, signals;
    int front; /* where asks come from */
    struct source front_source, timer_source, signal_source;
    pid_t front_pid;
    int front_status;              /* of the last that ended */
    _Atomic uint64_t *front_beats; /* which the front counts up; NULL: not looked at */
    struct heartbeat heartbeat;    /* of the front */
    bool is_front_replaced;        /* it was stuck, and the broker has killed it */
    int64_t next_end_ms;           /* the timer goes off then */
    /* Tells who runs the server; NULL: nobody. */
    void (*log_error)(const char *about, const struct cay_error *error);
    bool is_over;
    int64_t
        drain_end_ms; /* of clock_ms(): requests in flight have until then; 0: serving */
    unsigned pool_starting;
    struct request_packet request; /* the one that is being judged */
};

/* From here on SIGTERM and SIGINT drain and end it, as soon as it runs. */
int broker_open(struct broker *broker, struct cay_error *err);

/* Answers asks from `front` until SIGTERM or SIGINT, or until `front` is closed.  The
 * first such signal drains: the front refuses new requests and ends when those in flight
 * are finished, at most --drain seconds later; the second signal ends it at once.
 * `restart_front` is called when the process at its other end dies, and gives a new
 * socket; NULL: then it is over. */
void broker_run(struct broker *broker, int (*restart_front)(struct broker *broker));

bool broker_poll_add(struct broker *broker, int fd, struct source *source);
void broker_poll_remove(struct broker *broker, int fd);

/* The clock of a sandbox was set. */
void broker_wake_at(struct broker *broker, int64_t end_ms);

/* --- Records: records.c --- */

/* A record as it is, whether written or not.  CAY_E_NOT_FOUND: there never was one. */
int broker_find_record(struct broker *broker, const char *id, struct record_row *ret_row,
                       struct cay_error *err);
/* The same for one that was just read. */
void broker_apply_unwritten(struct broker *broker, struct record_row *row);

/* "was killed", ...: why the sandbox is gone, or will be in a moment; NULL: it is not. */
const char *broker_end_reason(const struct broker *broker, const struct record_row *row);

/* What has happened to a sandbox is so, whether it can be written or not; if not it is
 * remembered, and tried again. */
void broker_write_record(struct broker *broker, const struct record_row *row);
void broker_retry_writes(struct broker *broker);

/* --- The control plane: control.c --- */

enum {
    DEFAULT_TIMEOUT_S = 15,      /* of the first version of the API */
    DEFAULT_LONG_TIMEOUT_S = 300 /* of the second */
};

/* Answers an ask whose key is `tenant`'s. */
void control_handle(struct broker *broker, struct request_packet *request,
                    const char *tenant);

/* Ends, or pauses, those whose time is over, and sets the timer for the next. */
void broker_expire(struct broker *broker);

/* Sandboxes may have ended while no server was there to see it. */
void broker_reconcile(struct broker *broker);

/* Kills every sandbox that has a record; without keepers. */
void broker_kill_all(struct broker *broker);

/* The sandbox of a keeper has ended by itself. */
void broker_sandbox_ended(struct broker *broker, const char *id, bool had_memory_kills);

/* Or is only just being paused: whoever comes now comes after that. */
bool control_is_paused(const struct broker *broker, const struct record_row *row);

/* Wakes a paused sandbox, and then hands the ask on. */
void control_resume_for(struct broker *broker, struct request_packet *request,
                        const struct record_row *row);

/* Has its keeper do something about a sandbox, and its record changed then; `reason` is
 * why it is gone, if it is to go, and `seconds` its new time to live. */
void control_start(struct broker *broker, enum op op, struct record_row *row,
                   struct request_packet *request, const char *reason, int64_t seconds);

/* Tells who asked, if not. */
bool control_check_timeout(struct broker *broker, struct request_packet *request,
                           int64_t seconds);

/* Its time begins now. */
void control_set_end(struct broker *broker, struct record_row *row, int64_t seconds);

/* --- Making sandboxes: create.c --- */

enum { POOL_AGAIN_MS = 1000 }; /* before a pool that could not be filled is again */

void broker_create(struct broker *broker, struct request_packet *request,
                   const char *tenant);

/* A server that ended in between had written the row, and no more. */
void broker_confirm(struct broker *broker, const struct record_row *row);

/* Tells whether sandboxes can be made of a template. */
void broker_find_template(struct request_packet *request);

/* Keeps as many sandboxes ready as was asked for. */
void broker_fill_pool(struct broker *broker);

/* --- Telling of them: listing.c --- */

int broker_reply_sandbox(struct broker *broker, int channel, const struct record_row *row,
                         bool resumed);
void broker_list(struct broker *broker, struct request_packet *request,
                 const char *tenant);

/* Hands an ask to the keeper of a sandbox, and closes it here. */
void broker_forward(struct broker *broker, struct request_packet *request,
                    const char *id);

void broker_refuse(struct request_packet *request, int status, int code,
                   const char *message, const char *hint);

#endif
