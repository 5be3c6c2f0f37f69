/* SPDX-License-Identifier: Apache-2.0 */

/* How a session comes to have a running sandbox, and background processes that do it: see
 * manager.h. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "sandbox/backend.h"
#include "session/manager.h"

/* --- Background processes --- */

/* As in sys/worker.c: fork(3) gives the child a working allocator, the child waits for a
 * byte until the parent has its pidfd, and the outcome is sent over the channel, not as
 * the exit status, so that a host program that reaps every child does no harm. */

enum { LIFE_S = 600 };

static _Noreturn void be_the_child(void (*run)(void *cookie, struct away_outcome *),
                                   void *cookie, const int ends[2])
{
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    struct away_outcome outcome;
    int channel = ends[1];
    sigset_t only;
    char go;

    (void)close(ends[0]); /* otherwise the death of the parent goes unnoticed */
    (void)setpgid(0, 0);  /* SIGINT is for the parent */
    /* Another thread may have held a lock during the fork: the alarm ends a child that
     * waits for it.  A signal handler of the host program must not run here. */
    (void)sigaction(SIGALRM, &by_default, NULL); /* allow: sigaction (in our own child) */
    sigemptyset(&only);
    sigaddset(&only, SIGALRM);
    (void)alarm(LIFE_S);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    if (read(channel, &go, 1) != 1)
        _exit(1);
    memset(&outcome, 0, sizeof outcome);
    run(cookie, &outcome);
    (void)!send(channel, &outcome, sizeof outcome, MSG_NOSIGNAL);
    _exit(0);
}

int away_start(const char *op,
               void (*run)(void *cookie, struct away_outcome *ret_outcome), void *cookie,
               struct away *ret_away, struct cay_error *err)
{
    sigset_t all, before;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return cay_fail_errno(err, errno, op, NULL);
    AUTO_FD ours = ends[0];
    AUTO_FD theirs = ends[1];
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork(); /* allow: fork (the child runs on without its parent) */
    if (pid == 0)
        be_the_child(run, cookie, ends);
    AUTO_FD pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pidfd < 0) {
        if (pid > 0) { /* it reads the end of the channel and exits */
            (void)close(TAKE_FD(ours));
            (void)close(TAKE_FD(theirs));
            (void)waitpid(pid, NULL, 0);
        }
        return cay_fail(err, CAY_E_UNAVAILABLE, error, op, NULL,
                        "cannot start a background process",
                        "raise the limit on processes (ulimit -u), or end some");
    }
    (void)!send(ours, "", 1, MSG_NOSIGNAL);
    *ret_away = (struct away){pid, TAKE_FD(pidfd), TAKE_FD(ours)};
    return CAY_OK;
}

bool away_has_ended(const struct away *away)
{
    struct pollfd news = {.fd = away->channel, .events = POLLIN};

    return poll(&news, 1, 0) > 0;
}

void away_wait(struct away *away, const char *op, struct away_outcome *ret_outcome)
{
    siginfo_t info;
    ssize_t len;

    do
        len = read(away->channel, ret_outcome, sizeof *ret_outcome);
    while (len < 0 && errno == EINTR);
    if (len != sizeof *ret_outcome) {
        memset(ret_outcome, 0, sizeof *ret_outcome);
        cay_fail(&ret_outcome->error, CAY_E_KILLED, 0, op, NULL,
                 "the background process was killed",
                 "check the kernel log for the cause, then try again");
    }
    while (waitid(P_PIDFD, (id_t)away->pidfd, &info, WEXITED) != 0 && errno == EINTR)
        continue;
    (void)close(away->pidfd);
    (void)close(away->channel);
    *away = (struct away)AWAY_NONE;
}

/* --- Starts --- */

static const char op[] = "manager.start";

/* One start on its way. */
struct start {
    cay_manager *manager;
    struct cay_session *stored; /* or NULL */
    const char *id;             /* of the sandbox to be reached, or NULL: a new one */
    bool is_configured;         /* the sandbox must be that one */
    char mark[MARK_MAX];        /* that the ledger has, or "" */
};

static void start_done(struct start *start)
{
    free(start->stored);
}

#define AUTO_START __attribute__((cleanup(start_done))) struct start

/* --- What to do --- */

static int plan(struct start *start, struct cay_error *err)
{
    cay_manager *manager = start->manager;
    cay_sandbox *other = NULL;
    struct cay_error own;
    int code = manager_read(manager, &start->stored, err);

    if (!code)
        code = manager_configure(manager, start->stored, err);
    if (code)
        return code;
    manager_sweep(manager);
    start->id = manager_configured_id(manager);
    start->is_configured = start->id != NULL;
    if (start->is_configured)
        return CAY_OK;
    if (!start->stored || !*start->stored->sandbox_id) {
        if (manager->sandbox)
            start->id = cay_sandbox_id(manager->sandbox);
        return CAY_OK;
    }
    const struct cay_session *stored = start->stored;
    if (strcmp(stored->backend, cay_config_type(manager->config)) == 0) {
        start->id = stored->sandbox_id;
        return CAY_OK;
    }
    /* The session's old sandbox must be gone before a new one replaces its record;
     * otherwise it would leak. */
    code = manager_connect(manager, stored, &other, &own);
    cay_sandbox_free(other);
    if (code)
        return code == CAY_E_NOT_FOUND ? CAY_OK : manager_report(&own, err);
    return cay_fail(err, CAY_E_EXISTS, 0, op, stored->session_id,
                    "the session already has another sandbox",
                    "stop the session first; its sandbox is %.64s (%.64s)",
                    stored->sandbox_id, stored->backend);
}

/* --- A sandbox --- */

static int write_mark(struct start *start, struct cay_error *err)
{
    cay_manager *manager = start->manager;
    char *config = NULL;

    if (!manager->store)
        return CAY_OK;
    int code = cay_config_json(manager->config, &config, err);
    if (!code) {
        ledger_draw_mark(start->mark);
        code = ledger_begin(manager->store, manager->user_id, manager->session_id,
                            start->mark, config, err);
    }
    cay_free(config);
    return code;
}

/* By the caller's handle if there is one, since other code may use it.  CAY_OK and no
 * sandbox: a new one is wanted. */
static int reach_known(const struct start *start, cay_sandbox **ret_sandbox,
                       struct cay_error *err)
{
    cay_sandbox *handle = start->manager->sandbox;
    enum cay_state state;
    struct cay_error own;
    int code;

    if (!start->id)
        return CAY_OK;
    if (handle && strcmp(cay_sandbox_id(handle), start->id) == 0) {
        code = cay_sandbox_state(handle, &state, &own);
        if (!code && state == CAY_STATE_PAUSED)
            code = cay_sandbox_resume(handle, &own);
        else if (!code && state == CAY_STATE_STOPPED)
            code = cay_sandbox_start(handle, &own);
        if (!code)
            *ret_sandbox = handle;
    } else {
        code = cay_backend_connect(start->manager->config, start->id, ret_sandbox, &own);
    }
    if (code == CAY_E_NOT_FOUND && !start->is_configured)
        return CAY_OK;
    return code ? manager_report(&own, err) : CAY_OK;
}

static int create(const struct start *start, cay_sandbox **ret_sandbox,
                  struct cay_error *err)
{
    const cay_manager *manager = start->manager;

    return sandbox_create_marked(manager->config, start->mark[0] ? start->mark : NULL,
                                 manager->pool, ret_sandbox, err);
}

/* --- Its record --- */

static int record(const struct start *start, const char *id, struct cay_error *err)
{
    const cay_manager *manager = start->manager;
    const struct cay_session *stored = start->stored;
    const char *backend = cay_config_type(manager->config);
    bool is_known = stored && strcmp(stored->sandbox_id, id) == 0 &&
                    strcmp(stored->backend, backend) == 0;
    char *config = NULL;

    if (!manager->store || (is_known && !start->mark[0]))
        return manager->store && stored->state != CAY_STATE_RUNNING
                   ? ledger_set_state(manager->store, manager->user_id,
                                      manager->session_id, id, CAY_STATE_RUNNING, err)
                   : CAY_OK;
    int code = is_known ? CAY_OK : cay_config_json(manager->config, &config, err);
    const struct cay_session session = {.size = sizeof session,
                                        .user_id = manager->user_id,
                                        .session_id = manager->session_id,
                                        .backend = backend,
                                        .sandbox_id = id,
                                        .state = CAY_STATE_RUNNING,
                                        .config = config};
    if (!code)
        code = ledger_complete(manager->store, &session, start->mark, err);
    cay_free(config);
    return code;
}

/* A new sandbox that cannot be recorded is removed: the caller never got it. */
static int keep(const struct start *start, cay_sandbox *sandbox, bool is_new,
                struct cay_error *err)
{
    cay_manager *manager = start->manager;
    int code = record(start, cay_sandbox_id(sandbox), err);

    if (!code) {
        if (manager->sandbox != sandbox)
            manager_drop(manager);
        manager->sandbox = sandbox;
        return CAY_OK;
    }
    if (is_new && cay_sandbox_remove(sandbox, NULL) == CAY_OK)
        (void)ledger_abandon(manager->store, start->mark, NULL);
    if (manager->sandbox != sandbox)
        cay_sandbox_free(sandbox);
    return code;
}

int manager_start(cay_manager *manager, struct cay_error *err)
{
    AUTO_START start = {.manager = manager};
    cay_sandbox *sandbox = NULL;

    int code = plan(&start, err);
    if (!code)
        code = reach_known(&start, &sandbox, err);
    bool is_new = !code && !sandbox;
    if (is_new)
        code = manager_complete(manager, err);
    if (is_new && !code)
        code = write_mark(&start, err);
    if (is_new && !code) {
        code = create(&start, &sandbox, err);
        if (code)
            manager_sweep(manager);
    }
    if (!code)
        code = keep(&start, sandbox, is_new, err);
    return code ? code : manager_supply(manager, err);
}

/* --- By a child --- */

static void start_away(void *cookie, struct away_outcome *ret_outcome)
{
    const struct start *start = cookie;
    cay_manager *manager = start->manager;
    struct cay_error *err = &ret_outcome->error;
    cay_sandbox *sandbox = NULL;

    manager->sandbox = NULL; /* the connection belongs to the parent */
    int code = reach_known(start, &sandbox, err);
    bool is_new = !code && !sandbox;
    if (is_new)
        code = manager_complete(manager, err);
    if (is_new && !code)
        code = create(start, &sandbox, err);
    if (!code)
        code = manager_upload(manager, sandbox, err);
    if (!code && strlen(cay_sandbox_id(sandbox)) < sizeof ret_outcome->id)
        cay_copy_text(ret_outcome->id, sizeof ret_outcome->id, cay_sandbox_id(sandbox));
    else if (!code)
        cay_fail(err, CAY_E_PROTOCOL, 0, op, manager->session_id,
                 "the sandbox's id is too long", "sandbox ids may have up to 256 bytes");
}

int manager_send_start(cay_manager *manager, cay_session_lock *lock,
                       struct cay_error *err)
{
    AUTO_START start = {.manager = manager};

    int code = plan(&start, err);
    if (!code && !start.id)
        code = manager_complete(manager, err);
    if (!code && !start.is_configured)
        code = write_mark(&start, err);
    if (code) {
        cay_session_lock_free(lock);
        return code;
    }
    code = away_start(op, start_away, &start, &manager->away, err);
    if (code) {
        if (start.mark[0])
            manager_sweep(manager);
        cay_session_lock_free(lock);
        return code;
    }
    session_lock_leave_to_child(lock);
    manager->pending = AWAY_START;
    memcpy(manager->away_mark, start.mark, sizeof start.mark);
    return CAY_OK;
}

int manager_finish_start(cay_manager *manager, const struct away_outcome *outcome,
                         struct cay_error *err)
{
    AUTO_START start = {.manager = manager};
    cay_sandbox *sandbox = NULL;
    struct cay_error own;

    if (outcome->error.code) {
        manager_sweep(manager);
        return manager_report(&outcome->error, err);
    }
    /* Another process had the lock meanwhile and removed the sandbox as that of a crashed
     * start. */
    if (manager->away_mark[0] &&
        ledger_has(manager->store, manager->away_mark, NULL) == 0)
        return manager_start(manager, err);
    memcpy(start.mark, manager->away_mark, sizeof start.mark);
    int code = manager_read(manager, &start.stored, err);
    if (code)
        return code;
    if (manager->sandbox && strcmp(cay_sandbox_id(manager->sandbox), outcome->id) == 0)
        sandbox = manager->sandbox;
    else
        code = cay_backend_connect(manager->config, outcome->id, &sandbox, &own);
    if (code == CAY_E_NOT_FOUND) /* it has not lived long */
        return manager_start(manager, err);
    if (code)
        return manager_report(&own, err);
    bool is_new = start.mark[0] &&
                  (!start.stored || strcmp(start.stored->sandbox_id, outcome->id) != 0);
    code = keep(&start, sandbox, is_new, err);
    if (!code)
        manager->lacks_assets = false;
    return code;
}

/* --- Left by starts that crashed --- */

static void auto_cay_config(cay_config **config)
{
    cay_config_free(*config);
}

struct sweep {
    cay_store *store;
    size_t count;
    const cay_config *config; /* the configuration that `json` was made from; or NULL */
    char *json;
};

/* True if nothing is left of it.  If the backend cannot find marks, the mark is dropped;
 * if it is unreachable now, the next sweep tries again. */
static bool remove_marked(const struct sweep *sweep, const struct begun *begun)
{
    const cay_config *config = sweep->config;
    AUTO(cay_config) restored = NULL;
    cay_sandbox *sandbox = NULL;

    if (!sweep->json || strcmp(sweep->json, begun->config) != 0) {
        if (cay_config_restore(begun->config, &restored, NULL) != CAY_OK)
            return false;
        config = restored;
    }
    int code = sandbox_find_marked(config, begun->mark, &sandbox, NULL);
    if (code == CAY_E_NOT_FOUND) { /* gone for good once it cannot appear any more */
        const struct cay_backend *backend = cay_backend_find(cay_config_type(config));
        int64_t age = clock_since_1970_ms() - begun->begun_ms;
        return !backend || !backend->late_ms || age < 0 ||
               (uint64_t)age >= backend->late_ms;
    }
    if (code)
        return code == CAY_E_UNSUPPORTED;
    code = cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
    return code == CAY_OK;
}

static void sweep_one(const struct begun *begun, void *cookie)
{
    struct sweep *sweep = cookie;

    if (remove_marked(sweep, begun) &&
        ledger_abandon(sweep->store, begun->mark, NULL) == CAY_OK)
        sweep->count++;
}

void manager_sweep(const cay_manager *manager)
{
    struct sweep sweep = {.store = manager->store, .config = manager->config};

    if (!manager->store)
        return;
    if (manager->config && cay_config_json(manager->config, &sweep.json, NULL) != CAY_OK)
        sweep.json = NULL;
    (void)ledger_visit(manager->store, manager->user_id, manager->session_id, sweep_one,
                       &sweep, NULL);
    cay_free(sweep.json);
}

/* Unless it is under way at this moment. */
static void sweep_crashed(const struct begun *begun, void *cookie)
{
    struct sweep *sweep = cookie;
    AUTO_LOCK lock = NULL;

    if (cay_session_lock_take(sweep->store, begun->user_id, begun->session_id, 0, &lock,
                              NULL) != CAY_OK)
        return;
    if (ledger_has(sweep->store, begun->mark, NULL) == 1)
        sweep_one(begun, sweep);
}

int cay_store_collect(cay_store *store, size_t *ret_count, struct cay_error *err)
{
    struct sweep sweep = {.store = store};
    int code = ledger_visit(store, NULL, NULL, sweep_crashed, &sweep, err);

    if (!code)
        *ret_count = sweep.count;
    return code;
}
