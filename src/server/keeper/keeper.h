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
struct keeper_of_whom {
    char id[SANDBOX_ID_MAX], template_name[TEMPLATE_MAX], tenant[TENANT_MAX];
};

/* What a keeper does all its life (keeper.c). */
_Noreturn void keeper_run(int socket, const struct keeper_of_whom *whom,
                          const struct serve_options *options);

/* Inside a keeper: one sandbox, and whoever asks about it.  One loop; what the library
 * does for us takes as long as the sandbox's init takes to answer. */

struct keep;

/* What the loop waits for: a member of whatever owns the descriptor. */
struct keep_source {
    void (*ready)(struct keep *keep, struct keep_source *source, unsigned events);
};

/* Something that goes on after its ask was taken: a stream of output, of changes, input
 * that does not fit yet.  Freed after the events of a round, which may point to it. */
struct task {
    struct task *next;
    int channel;
    bool is_over;
    void (*done)(struct task *task);                    /* frees it */
    void (*tick)(struct keep *keep, struct task *task); /* every TICK_MS, or NULL */
};

enum { TICK_MS = 10, KEEP_USERS = 4 };

struct keep {
    int socket, epoll;
    const struct serve_options *options;
    cay_sandbox *sandbox;
    bool is_spare;
    bool is_pending; /* the sandbox has no row in the store yet */
    int life;        /* readable when the sandbox has ended; 0: not watched yet */
    struct keep_source life_source;
    struct task *tasks;
    struct started *started;   /* keep-process.c */
    struct watching *watching; /* keep-watch.c */
    struct {
        char user[USER_MAX];
        cay_files *files;
    } users[KEEP_USERS];
    unsigned next_user;
    struct {
        int64_t at_ms; /* 0: never */
        uint64_t cpu_us;
        int64_t permille; /* of one processor, until then; -1: not known */
    } sampled;
    struct {
        char sandbox[64], template_name[96], team[96]; /* "E2B_SANDBOX_ID=..." */
    } identity;
    struct asked asked;
};

/* An ask that is being answered: the channel is closed after, unless it was taken. */
struct question {
    struct ask head;
    int channel;
    const char **strings;
};

bool keep_watch(struct keep *keep, int fd, unsigned events, struct keep_source *source);
void keep_change(struct keep *keep, int fd, unsigned events, struct keep_source *source);
void keep_forget(struct keep *keep, int fd);
void keep_add(struct keep *keep, struct task *task);
int64_t keep_now_ms(void); /* of the clock that only goes on */

/* Until the channel takes another packet.  It is the front that reads, which waits for
 * nobody; so this is short, or for nothing. */
int keep_wait(int channel, struct cay_error *err);

/* The sandbox has ended: all channels are cut, and so are we. */
_Noreturn void keep_end(void);

/* True if the failure means that there is no sandbox any more. */
bool keep_is_gone(struct keep *keep, int code);

/* Files with the rights of a user; NULL if that fails, with `err`. */
cay_files *keep_files(struct keep *keep, const char *user, struct cay_error *err);

typedef int keep_answer(struct keep *keep, struct question *question,
                        struct cay_error *err);

/* Each answers itself and returns CAY_OK, or fails. */
keep_answer keep_start, keep_attach, keep_processes, keep_input, keep_close_input,
    keep_signal, keep_resize;
keep_answer keep_stat, keep_make_dir, keep_move, keep_list_dir, keep_remove,
    keep_read_file, keep_write_file;
keep_answer keep_watch_dir, keep_watcher_new, keep_watcher_events, keep_watcher_remove;

/* --- What a sandbox knows of itself: keep-identity.c --- */

#define IDENTITY_ENV(keep)                                                               \
    "E2B_SANDBOX=true", (keep)->identity.sandbox, (keep)->identity.template_name,        \
        (keep)->identity.team

/* The environment of a command, NULL at its end, to be freed: of what the client gives,
 * what would hide the identity is left out. */
const char **keep_identity_env(const struct keep *keep, const char *const *given);

/* Replies with an open file; `room` is what is reserved for writing to it. */
int keep_send_file(struct keep *keep, const struct question *question, int fd,
                   const char *path, uint64_t room, struct cay_error *err);

/* --- Paths and entries: keep-entry.c --- */

/* The absolute path that a client means: "~", relative to the home, ".." as text. */
int entry_path(struct keep *keep, const char *user, const char *path,
               char ret_path[PATH_MAX], struct cay_error *err);

/* Names of users and groups inside, as of now; good until they are read again. */
struct names {
    const char *users, *groups;
};
void names_read(cay_files *files, struct names *ret_names);
/* Nothing of the sandbox is held open for them any more. */
void names_forget(void);

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
int entry_tell(cay_files *files, const struct names *names, const struct entry *entry,
               int channel, struct cay_error *err);

#endif
