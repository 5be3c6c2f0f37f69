/* SPDX-License-Identifier: Apache-2.0 */

/* A command ends when its first process exits; if it was killed, when its whole exec
 * cgroup is empty, so that no process of it is left when the caller gets the result.
 * Orphans become children of PID 1, so every exit inside raises SIGCHLD, and the cgroups
 * are checked again. */
#include "init/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "init/prefork.h"
#include "init/serve.h"
#include "init/subreaper.h"

enum {
    LOOKS = 16,         /* cgroups of ended commands checked per round */
    EXEC_CHECK_MS = 20, /* between checks whether a command has executed */
    STUCK_MS = 5000,    /* a child that has not executed by then is stuck */
    EMPTY_CHECK_MS = 1, /* between checks whether a killed cgroup is empty */
    FIRST_IDLE_MS = 1   /* after the first command, before a child is preforked */
};

/* enum cay_cause of sandbox.h; its numbers are the wire's. */
enum { CAUSE_EXITED = 1, CAUSE_SIGNALLED = 2, CAUSE_TIMEOUT = 3 };

bool process_is_paused;

static struct process *processes;
static uint64_t numbers, finished_numbers;
static uint64_t looked_at; /* number of the last ended command whose cgroup was checked */

void process_prepare(const struct plan *plan)
{
    control_prepare_terminals(!plan->no_namespaces);
    exec_cgroup_prepare(plan->has_cgroup);
    child_prepare(plan);
    user_prepare(plan);
}

struct process *process_first(void)
{
    return processes;
}

/* --- Exec cgroups --- */

/* A killed cgroup kills every process that joins it later, so it is not reused.  A cgroup
 * that still has background children stays. */
static void release_cgroup(struct process *process)
{
    if (process->cgroup.fd < 0 || !exec_cgroup_is_empty(&process->cgroup))
        return;
    if (process->killed || process->cgroup.has_subreaper)
        exec_cgroup_close(&process->cgroup);
    else
        prefork_keep_cgroup(&process->cgroup);
    process->cgroup = (struct exec_cgroup)EXEC_CGROUP_NONE;
}

/* --- The table --- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static struct process *add(void)
{
    struct process *process = calloc(1, sizeof *process);

    if (!process)
        return NULL;
    process->cgroup = (struct exec_cgroup)EXEC_CGROUP_NONE;
    process->input = process->terminal = -1;
    process->outputs[0].fd = process->outputs[1].fd = -1;
    process->number = ++numbers;
    struct process **end = &processes;
    while (*end)
        end = &(*end)->next;
    *end = process;
    return process;
}

static void drop(struct process *process)
{
    struct process **link = &processes;

    while (*link != process)
        link = &(*link)->next;
    *link = process->next;
    for (int i = 0; i < 2; i++) {
        output_close(&process->outputs[i]);
        ring_empty(&process->outputs[i].ring);
    }
    close_fd(&process->input);
    close_fd(&process->terminal);
    child_free(process->child);
    free(process);
}

/* Whether no request can refer to it any more. */
static bool is_forgotten(const struct process *process)
{
    return process->finished && !process->peers && process->cgroup.fd < 0 &&
           (!(process->flags & EXEC_BACKGROUND) || process->fetched);
}

void process_attach(struct process *process, struct peer *peer)
{
    peer->process = process;
    peer->next = process->peers;
    process->peers = peer;
    peer->at[0] = peer->at[1] = 0;
    peer->turn = 0;
}

void process_detach(struct peer *peer)
{
    struct process *process = peer->process;

    if (!process)
        return;
    struct peer **link = &process->peers;
    while (*link != peer)
        link = &(*link)->next;
    *link = peer->next;
    peer->process = NULL;
    peer->wants_output = peer->wants_kill_reply = peer->reads = false;
    output_resume(process);
    if (!(process->flags & EXEC_BACKGROUND) && !process->ended)
        process_kill(process);
}

void process_kill(struct process *process)
{
    if (process->cgroup.fd >= 0 && !process->killed) {
        process->killed = true;
        exec_cgroup_kill(&process->cgroup);
    }
}

/* --- The start --- */

static int admit(const struct request *request, struct cay_error *err)
{
    unsigned background = 0;

    for (const struct process *process = processes; process; process = process->next) {
        if (process->ended)
            continue;
        background += process->flags & EXEC_BACKGROUND ? 1 : 0;
        if (*request->tag && strcmp(process->tag, request->tag) == 0)
            return cay_fail(err, CAY_E_EXISTS, 0, "exec.tag", request->tag,
                            "a running command already has this tag",
                            "choose another tag, or kill process %d", (int)process->pid);
    }
    if (request->flags & EXEC_BACKGROUND && background >= BACKGROUND_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, "exec.background", request->argv[0],
                        "too many background commands are running in this sandbox",
                        "the limit is %d; wait for one to end, or kill one",
                        BACKGROUND_MAX);
    return CAY_OK;
}

/* The argv as one line for `cay ps`; it may contain any bytes. */
static void save_words(struct process *process, char *const *argv)
{
    size_t used = 0;

    for (; *argv && used < sizeof process->words - 1; argv++) {
        if (used > 0)
            process->words[used++] = ' ';
        size_t room = sizeof process->words - 1 - used, len = strnlen(*argv, room);
        memcpy(process->words + used, *argv, len);
        used += len;
    }
}

/* PID 1's ends of a background command's pipes. */
static int open_outputs(struct process *process, struct request *request)
{
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0)
            return -errno;
        request->stdio[1 + i] = ends[1];
        (void)fchmod(ends[0], 0666); /* so that its user can open /dev/stderr */
        int error = output_open(&process->outputs[i], process, ends[0]);
        if (error)
            return error;
    }
    process->input = TAKE_FD(request->keep_input);
    return 0;
}

static int open_terminal(struct process *process, struct request *request)
{
    int master = -1;
    int error = control_open_terminal(process->uid, request->rows, request->columns,
                                      &master, &request->stdio[0]);

    if (error)
        return error;
    if (process->flags & EXEC_BACKGROUND)
        return output_open(&process->outputs[0], process, master);
    process->terminal = master;
    return 0;
}

static int open_stdio(struct process *process, struct request *request)
{
    if (process->flags & EXEC_TTY)
        return open_terminal(process, request);
    return process->flags & EXEC_BACKGROUND ? open_outputs(process, request) : 0;
}

static void set_deadline(struct process *process, uint64_t timeout_ms)
{
    process->started_ms = clock_since_1970_ms();
    process->started_ns = clock_ns();
    if (timeout_ms && timeout_ms < (UINT64_MAX - process->started_ns) / 1000000)
        process->deadline_ns = process->started_ns + timeout_ms * 1000000;
}

/* Uses the preforked child if there is one. */
static int start_child(struct process *process, struct child *child)
{
    if (child == prefork_child()) {
        process->pid = prefork_take(&process->cgroup);
        return 0;
    }
    int error = prefork_take_cgroup(&process->cgroup);
    if (error)
        return error;
    child_release(child);
    process->pid = child_start(child, &process->cgroup);
    return process->pid < 0 ? process->pid : 0;
}

static int fail_start(int error, const char *name, struct cay_error *err)
{
    if (error == -EAGAIN)
        return cay_fail(err, CAY_E_LIMIT, EAGAIN, "exec.clone", name,
                        "the sandbox has reached its process limit",
                        "end some processes, or create a sandbox with a higher limit");
    return cay_fail_errno(err, -error, "exec.start", name);
}

static int begin(struct process *process, struct child *child, struct cay_error *err)
{
    struct request *request = &child->request;

    process->flags = request->flags;
    process->uid = request->user.uid;
    process->end.mark = request->mark;
    cay_copy_text(process->tag, sizeof process->tag, request->tag);
    if (process->flags & EXEC_BACKGROUND)
        save_words(process, request->argv);
    set_deadline(process, request->timeout_ms);
    int error = open_stdio(process, request);
    if (!error)
        error = start_child(process, child);
    return error ? fail_start(error, request->argv[0], err) : CAY_OK;
}

/* Once the child has executed, returns its request and stack, to be freed. */
static struct child *finish_start(struct process *process)
{
    struct child *child = process->child;

    if (!child || !child_is_done(child) || child->error || process->stuck ||
        !(child->running || process->killed))
        return NULL;
    process->child = NULL;
    if (process->flags & EXEC_QUIET)
        return child;
    const struct exec_started started = {process->pid, process->flags};
    for (struct peer *peer = process->peers; peer; peer = peer->next)
        peer_send(peer, MESSAGE_STARTED, &started, sizeof started, process->terminal);
    close_fd(&process->terminal);
    return child;
}

static int fail_paused(struct cay_error *err)
{
    return cay_fail(err, CAY_E_BUSY, 0, "exec.start", NULL, "the sandbox is paused",
                    "resume it first");
}

/* The process was never started; a preforked child stays ready for the next request. */
static bool refuse(struct peer *peer, struct process *process, struct child *child,
                   const struct cay_error *error)
{
    if (child && child == prefork_child())
        request_done(&child->request);
    else
        child_free(child);
    if (process) {
        release_cgroup(process);
        drop(process);
    }
    peer_fail(peer, error);
    return error->code != CAY_E_PROTOCOL;
}

bool process_execute(struct peer *peer, struct packet *packet)
{
    struct cay_error error = {0};

    if (peer->process &&
        !(peer->process->finished && !(peer->process->flags & EXEC_BACKGROUND)))
        return false;
    process_detach(peer);
    struct child *child = prefork_child();
    if (!child)
        child = child_new();
    struct process *process = child ? add() : NULL;
    int code = process ? request_parse(packet, &child->request, &error)
                       : cay_fail_memory(&error, "exec.start");
    if (!code && process_is_paused)
        code = fail_paused(&error);
    if (!code && peer->is_inside)
        child->request.tag = ""; /* tags are for callers outside */
    if (!code)
        code = admit(&child->request, &error);
    if (!code)
        code = begin(process, child, &error);
    if (code)
        return refuse(peer, process, child, &error);
    process->child = child;
    process_attach(process, peer);
    peer->reads = process->flags & EXEC_PIPED; /* from the first byte on */
    if (!(process->flags & EXEC_QUIET)) {
        child_wait(child);
        child_free(finish_start(process));
    }
    return true;
}

int process_start_own(const char *user, const char *name, int input,
                      struct cay_error *err)
{
    struct child *child = child_new();
    struct process *process = child ? add() : NULL;

    if (!process) {
        child_free(child);
        (void)close(input);
        return cay_fail_memory(err, "exec.start");
    }
    child->request.stdio[0] = input;
    int code = request_make_own(&child->request, user, name, err);
    if (!code) {
        process->flags = child->request.flags;
        process->uid = child->request.user.uid;
        process->fetched = process->is_own = true;
        set_deadline(process, 0);
        int error = start_child(process, child);
        code = error ? fail_start(error, name, err) : CAY_OK;
    }
    if (code) {
        child_free(child);
        release_cgroup(process);
        drop(process);
        return code;
    }
    process->child = child;
    return CAY_OK;
}

bool process_all_executed(void)
{
    for (struct process *process = processes; process; process = process->next)
        if (process->child) {
            child_wait(process->child);
            if (!child_is_done(process->child))
                return false;
        }
    return true;
}

/* Not while a foreground command runs: it may need every process that the limit allows.
 * Its end requests a child again; until then the loop must block, not ask again. */
void process_prefork(void)
{
    for (const struct process *process = processes; process; process = process->next)
        if (!process->finished && !(process->flags & EXEC_BACKGROUND)) {
            prefork_cancel();
            return;
        }
    prefork_make();
}

/* --- The end --- */

/* The child did not execute: report FAILED instead of STARTED and ENDED. */
static void report_failed_start(struct process *process)
{
    struct cay_error error = {0};

    if (process->stuck)
        cay_fail(
            &error, CAY_E_BUSY, 0, "exec.start", process->child->request.argv[0],
            "a process inside the sandbox keeps the command from starting",
            "check that no process inside stops new processes (SIGSTOP), then try again");
    else if (process->pid < 0)
        fail_start(process->pid, process->child->request.argv[0], &error);
    else
        child_error(process->child, &error);
    while (process->peers) {
        struct peer *peer = process->peers;
        process_detach(peer);
        peer_fail(peer, &error);
    }
    process->finished = process->fetched = true;
    release_cgroup(process);
}

static uint64_t microseconds(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec;
}

static struct process *find_running(pid_t pid)
{
    struct process *process = processes;

    while (process && (process->pid != pid || process->ended))
        process = process->next;
    return process;
}

void process_lost(pid_t pid)
{
    struct process *process = find_running(pid);

    if (process)
        process->killed = true;
}

void process_reaped(pid_t pid, int status, const struct rusage *used)
{
    struct process *process = find_running(pid);

    if (!process)
        return;
    process->ended = true;
    process->end.status = status;
    process->end.user_us = microseconds(used->ru_utime);
    process->end.system_us = microseconds(used->ru_stime);
    process->end.peak_memory = (uint64_t)used->ru_maxrss * 1024;
}

void process_stopped(pid_t pid)
{
    const struct process *process = find_running(pid);

    if (pid == prefork_pid() || (process && process->child))
        (void)kill(pid, SIGCONT);
}

/* Keeps the newest RESULTS_MAX results of background commands. */
static void forget_oldest(void)
{
    struct process *oldest = NULL;
    unsigned count = 0;

    for (struct process *process = processes; process; process = process->next)
        if (process->finished && process->flags & EXEC_BACKGROUND && !process->fetched) {
            count++;
            if (!oldest || process->finished_number < oldest->finished_number)
                oldest = process;
        }
    if (count > RESULTS_MAX)
        oldest->fetched = true;
}

static void finish(struct process *process)
{
    struct exec_end *end = &process->end;

    end->cause = process->timed_out         ? CAUSE_TIMEOUT
                 : WIFSIGNALED(end->status) ? CAUSE_SIGNALLED
                                            : CAUSE_EXITED;
    end->killed = process->killed && !process->timed_out;
    end->wall_us = (clock_ns() - process->started_ns) / 1000;
    process->finished = true;
    process->finished_number = ++finished_numbers;
    if (process->flags & EXEC_BACKGROUND) {
        release_cgroup(process);
        output_finish(&process->outputs[0]);
        output_finish(&process->outputs[1]);
        close_fd(&process->input);
        output_reply(process);
        forget_oldest();
        return;
    }
    for (struct peer *peer = process->peers; peer; peer = peer->next)
        peer_reply(peer, MESSAGE_ENDED, end, sizeof *end);
    if (process->flags & EXEC_LAST && end->status == 0)
        serve_end();
    if (!process->cgroup.has_subreaper)
        prefork_want(process->number == 1 ? FIRST_IDLE_MS : 0);
    release_cgroup(process);
    if (process->flags & EXEC_QUIET && process->peers)
        process_detach(process->peers);
}

static void reply_to_kills(struct process *process)
{
    for (struct peer *peer = process->peers; peer; peer = peer->next)
        if (peer->wants_kill_reply && process->finished && process->cgroup.fd < 0) {
            peer->wants_kill_reply = false;
            peer_reply(peer, MESSAGE_DONE, NULL, 0);
        }
}

/* Whether the timeout still applies: until the first process ends or, for EXEC_PIPED,
 * until every writer has closed the output. */
static bool is_timed(const struct process *process)
{
    bool is_over = process->flags & EXEC_PIPED ? process->finished : process->ended;

    return process->deadline_ns && !is_over && !process->killed;
}

/* The first process has ended.  An EXEC_PIPED command is over only when no process can
 * write to its output any more, unless it was killed or asked to end. */
static bool is_over(const struct process *process)
{
    if (!process->ended || (process->killed && !exec_cgroup_is_empty(&process->cgroup)))
        return false;
    if (!(process->flags & EXEC_PIPED))
        return true;
    bool silent = process->outputs[0].fd < 0 && process->outputs[1].fd < 0;
    return silent ||
           (!output_is_held(process) &&
            (process->flags & EXEC_TTY || process->killed || process->end_requested));
}

/* A process inside killed the preforked child before it read its request. */
static bool restart(struct process *process)
{
    process->pid = child_start(process->child, &process->cgroup);
    process->ended = process->pid < 0;
    return !process->ended;
}

/* A command that has ended already is reported before PID 1 closes its own copies of the
 * pipes: each of them would wake the client up. */
static void update(struct process *process, uint64_t now, unsigned *looks)
{
    struct child *child = finish_start(process);

    if (process->child && !process->ended && !process_is_paused &&
        now - process->started_ns > STUCK_MS * 1000000ull) {
        process->stuck = true;
        process_kill(process);
    }
    if (is_timed(process) && process->deadline_ns <= now) {
        process->timed_out = true;
        process_kill(process);
    }
    if (process->ended && process->child) {
        if (process->child->running || process->killed || !restart(process))
            report_failed_start(process);
    } else if (process->ended && !process->finished) {
        if (is_over(process))
            finish(process);
    } else if (process->finished && process->cgroup.fd >= 0 &&
               (process->killed || (process->number > looked_at && ++*looks <= LOOKS))) {
        looked_at = process->killed ? looked_at : process->number;
        release_cgroup(process);
    }
    reply_to_kills(process);
    child_free(child);
}

void process_update(void)
{
    subreaper_update();
    uint64_t now = processes ? clock_ns() : 0;
    unsigned looks = 0;
    struct process *next;

    for (struct process *process = processes; process; process = next) {
        update(process, now, &looks);
        next = process->next;
        if (is_forgotten(process))
            drop(process);
    }
    if (looks < LOOKS)
        looked_at = 0;
    prefork_update();
}

/* When to check this command even without an event. */
static uint64_t next_ns(const struct process *process, uint64_t now)
{
    uint64_t at = is_timed(process) ? process->deadline_ns : UINT64_MAX;

    if (process->child && !process->ended && at > now + EXEC_CHECK_MS * 1000000ull)
        at = now + EXEC_CHECK_MS * 1000000ull;
    /* A process may be reaped a moment before it has left its cgroup. */
    if (process->killed && process->ended && process->cgroup.fd >= 0)
        at = now + EMPTY_CHECK_MS * 1000000ull;
    return at;
}

uint64_t process_next_ns(void)
{
    uint64_t now = processes ? clock_ns() : 0;
    uint64_t soonest = prefork_end_ns();

    if (!process_is_paused && prefork_due_ns() < soonest)
        soonest = prefork_due_ns();

    /* PID 1 inherits orphans without any event. */
    if (subreaper_is_busy())
        return clock_ns() + EMPTY_CHECK_MS * 1000000ull;
    for (const struct process *process = processes; process; process = process->next) {
        uint64_t at = next_ns(process, now);
        if (at < soonest)
            soonest = at;
    }
    return soonest;
}
