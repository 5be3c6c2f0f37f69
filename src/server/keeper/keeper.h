/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_KEEPER_KEEPER_H
#define SERVER_KEEPER_KEEPER_H

#include <stdbool.h>

#include "cay/sandbox.h"
#include "server/wire/options.h"
#include "server/wire/record.h"

enum {
    KEEPER_SANDBOX_GONE = 3, /* exit status: the sandbox has ended by itself */
    KEEPER_OUT_OF_MEMORY = 4 /* and the kernel had killed in it for its memory */
};

/* PID 1 ends a sandbox so long after its time, if there is no broker to do it. */
enum { KEEPER_GRACE_MS = 3000 };

/* The sandbox that a keeper is started for; "": it will create one. */
struct keeper_spec {
    char id[SANDBOX_ID_MAX], template_name[TEMPLATE_MAX], tenant[TENANT_MAX];
};

/* What a keeper does all its life (keeper.c). */
_Noreturn void keeper_run(int socket, const struct keeper_spec *spec,
                          const struct serve_options *options);

/* Inside a keeper: one sandbox, and whoever asks about it.  One loop; what the library
 * does for us takes as long as the sandbox's init takes to answer. */

struct keeper;

/* What the loop waits for: a member of whatever owns the descriptor. */
struct keeper_source {
    void (*ready)(struct keeper *keeper, struct keeper_source *source, unsigned events);
};

/* Something that goes on after its ask was taken: a stream of output, of changes, input
 * that does not fit yet.  Freed after the events of a round, which may point to it. */
struct task {
    struct task *next;
    int channel;
    bool is_over;
    void (*done)(struct task *task);                        /* frees it */
    void (*tick)(struct keeper *keeper, struct task *task); /* every TICK_MS, or NULL */
};

enum { TICK_MS = 10, KEEPER_USERS = 4 };

struct keeper {
    int socket, epoll;
    const struct serve_options *options;
    cay_sandbox *sandbox;
    bool is_pooled;
    bool is_pending; /* the sandbox has no row in the store yet */
    int life;        /* readable when the sandbox has ended; 0: not watched yet */
    struct keeper_source life_source;
    struct task *tasks;
    struct command *commands;    /* keep-process.c */
    struct watch_set *watch_set; /* keep-watch.c */
    struct {
        char user[USER_MAX];
        cay_files *files;
    } users[KEEPER_USERS];
    unsigned next_user;
    struct {
        int64_t at_ms; /* 0: never */
        uint64_t cpu_us;
        int64_t permille; /* of one processor, until then; -1: not known */
    } sampled;
    struct {
        char sandbox[64], template_name[96], team[96]; /* "E2B_SANDBOX_ID=..." */
    } identity;
    struct request_packet request;
};

/* An ask that is being answered: the channel is closed after, unless it was taken. */
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
int64_t keeper_now_ms(void); /* of the clock that only goes on */

/* Until the channel takes another packet.  It is the front that reads, which waits for
 * nobody; so this is short, or for nothing. */
int keeper_wait_writable(int channel, struct cay_error *err);

/* The sandbox has ended: all channels are cut, and so are we. */
_Noreturn void keeper_exit(void);

/* True if the failure means that there is no sandbox any more. */
bool keeper_sandbox_is_gone(struct keeper *keeper, int code);

/* Files with the rights of a user; NULL if that fails, with `err`. */
cay_files *keeper_files(struct keeper *keeper, const char *user, struct cay_error *err);

typedef int keeper_op(struct keeper *keeper, struct keeper_request *request,
                      struct cay_error *err);

/* Each answers itself and returns CAY_OK, or fails. */
keeper_op keeper_op_start, keeper_op_attach, keeper_op_processes, keeper_op_input,
    keeper_op_close_input, keeper_op_signal, keeper_op_resize;
keeper_op keeper_op_stat, keeper_op_make_dir, keeper_op_move, keeper_op_list_dir,
    keeper_op_remove, keeper_op_read_file, keeper_op_write_file;
keeper_op keeper_op_watch_dir, keeper_op_watcher_new, keeper_op_watcher_events,
    keeper_op_watcher_remove;

/* --- What a sandbox knows of itself: keep-identity.c --- */

#define IDENTITY_ENV(keeper)                                                             \
    "E2B_SANDBOX=true", (keeper)->identity.sandbox, (keeper)->identity.template_name,    \
        (keeper)->identity.team

/* The environment of a command, NULL at its end, to be freed: of what the client gives,
 * what would hide the identity is left out. */
const char **keeper_identity_env(const struct keeper *keeper, const char *const *given);

/* Replies with an open file; `room` is what is reserved for writing to it. */
int keeper_send_file(struct keeper *keeper, const struct keeper_request *request, int fd,
                     const char *path, uint64_t room, struct cay_error *err);

/* --- Paths and entries: keep-entry.c --- */

/* The absolute path that a client means: "~", relative to the home, ".." as text. */
int entry_path(struct keeper *keeper, const char *user, const char *path,
               char ret_path[PATH_MAX], struct cay_error *err);

/* Names of users and groups inside, as of now; good until they are read again. */
struct names {
    const char *users, *groups;
};
void names_read(cay_files *files, struct names *ret_names);
/* Nothing of the sandbox is held open for them any more. */
void names_close(void);

struct entry {
    const char *path, *shown;
    const struct cay_stat *stat; /* of itself, if that is known; or NULL */
};

/* What an entry is: the numbers of enum entry_number and the strings; how many of them is
 * added to *count. */
int entry_describe(cay_files *files, const struct names *names, const struct entry *entry,
                   int64_t *numbers, struct buf *strings, uint32_t *count,
                   struct cay_error *err);

/* Tells it. */
int entry_send(cay_files *files, const struct names *names, const struct entry *entry,
               int channel, struct cay_error *err);

#endif
