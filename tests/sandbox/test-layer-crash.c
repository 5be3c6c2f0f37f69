/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints, rollbacks and forks whose process is killed at each of its system calls.
 */
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#include "native/make/layer.h"
#include "native/make/visit.h"
#include "native/native.h"
#include "native/record/storage.h"
#include "sandbox/backend.h"
#include "templates.h"

/* Checkpoints need Linux 6.15. */
static void need_store(void)
{
    need_root();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    AUTO_FD namespace = visit_open(native->record.init);
    AUTO_FD store = visit_open_store(namespace, VISIT_OWN_STORE);
    if (store == -ENOENT)
        SKIP("this kernel cannot mount parts of a detached tmpfs");
}

static cay_sandbox *box;

/* --- Processes that die --- */

enum victim {
    CALLER, /* the process that calls the library; its clone inside goes on */
    CLONE,  /* the clone that has joined the mount namespace */
    BOTH,
    VICTIMS
};

enum { CLONES_MAX = 4 };

struct trace {
    enum victim victim;
    pid_t caller, clones[CLONES_MAX]; /* those that have not ended, or 0 */
    pid_t inside;                     /* it is in a system call */
    int calls;                        /* system calls of victims that have returned */
    bool has_died;
};

static pid_t *find_clone(struct trace *trace, pid_t pid)
{
    for (size_t i = 0; i < CLONES_MAX; i++)
        if (trace->clones[i] == pid)
            return &trace->clones[i];
    return NULL;
}

/* A clone may stop before or after its caller reports it. */
static void add_clone(struct trace *trace, pid_t pid)
{
    pid_t *place = find_clone(trace, pid) ? NULL : find_clone(trace, 0);

    if (place)
        *place = pid;
}

static pid_t cloned_by(pid_t pid)
{
    unsigned long clone = 0;

    ASSERT(ptrace(PTRACE_GETEVENTMSG, pid, NULL, &clone) == 0);
    return (pid_t)clone;
}

/* Whether the victims die now: after a system call of one of them. */
static bool is_due(struct trace *trace, pid_t pid, int status, int limit)
{
    if (WSTOPSIG(status) != (SIGTRAP | 0x80) ||
        (trace->victim == CLONE && pid == trace->caller))
        return false;
    trace->inside = trace->inside == pid ? 0 : pid;
    return !trace->inside && ++trace->calls == limit;
}

static void strike(struct trace *trace)
{
    trace->has_died = true;
    if (trace->victim != CLONE)
        ASSERT(kill(trace->caller, SIGKILL) == 0);
    for (size_t i = 0; trace->victim != CALLER && i < CLONES_MAX; i++)
        if (trace->clones[i])
            (void)kill(trace->clones[i], SIGKILL);
}

static void act_fork(void);

static void begin_trace(struct trace *trace, void (*act)(void))
{
    int status, clones = PTRACE_O_TRACECLONE | PTRACE_O_TRACEVFORK;

    if (act == act_fork) /* the new sandbox is a clone, too */
        clones = 0;

    fflush(stdout);
    trace->caller = fork();
    ASSERT(trace->caller >= 0);
    if (trace->caller == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0)
            _exit(1);
        act();
        _exit(0);
    }
    ASSERT(waitpid(trace->caller, &status, 0) == trace->caller && WIFSTOPPED(status));
    ASSERT(ptrace(PTRACE_SETOPTIONS, trace->caller, NULL,
                  PTRACE_O_TRACESYSGOOD | clones | PTRACE_O_EXITKILL) == 0);
    ASSERT(ptrace(PTRACE_SYSCALL, trace->caller, NULL, NULL) == 0);
}

/* A stopped process goes on; a clone without a caller is not traced any more. */
static void resume(struct trace *trace, pid_t pid, int status)
{
    int signal = WSTOPSIG(status) & 0x7F;

    if (signal == SIGTRAP || signal == SIGSTOP)
        signal = 0;
    if (trace->has_died && trace->victim == CALLER && pid != trace->caller) {
        (void)ptrace(PTRACE_DETACH, pid, NULL, (void *)(intptr_t)signal);
        *find_clone(trace, pid) = 0;
    } else {
        (void)ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal);
    }
}

static bool is_alive(const struct trace *trace)
{
    for (size_t i = 0; i < CLONES_MAX; i++)
        if (trace->clones[i])
            return true;
    return trace->caller != 0;
}

/* Runs `act` in a process, with the clones that it makes, and kills the victims after so
 * many of their system calls; false if they have ended before. */
static bool dies_after(void (*act)(void), enum victim victim, int limit)
{
    struct trace trace = {.victim = victim};
    int status;

    begin_trace(&trace, act);
    while (is_alive(&trace)) {
        pid_t pid = waitpid(-1, &status, __WALL);
        ASSERT(pid > 0);
        if (pid != trace.caller)
            add_clone(&trace, pid);
        else if (WIFSTOPPED(status) && status >> 16) /* PTRACE_EVENT_CLONE or _VFORK */
            add_clone(&trace, cloned_by(pid));
        if (!WIFSTOPPED(status)) {
            ASSERT(trace.has_died || pid != trace.caller || status == 0);
            *(pid == trace.caller ? &trace.caller : find_clone(&trace, pid)) = 0;
            continue;
        }
        if (!trace.has_died && is_due(&trace, pid, status, limit))
            strike(&trace);
        resume(&trace, pid, status);
    }
    return trace.has_died;
}

/* --- What must be true --- */

static const char *say(const char *script)
{
    run_as(box, "root", script, PATIENCE_MS);
    ASSERT_STR(result.error, "");
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT_INT(result.exit_code, 0);
    return result.out;
}

/* The checkpoints, and the number of the last one. */
static size_t count_checkpoints(char ret_last[16])
{
    struct cay_checkpoint *list = NULL;
    size_t count = 0;

    int code;
    for (int i = 0;
         (code = cay_sandbox_checkpoints(box, &list, &count, &err)) == CAY_E_BUSY; i++) {
        ASSERT(i < PATIENCE_MS);
        usleep(1000);
    }
    ASSERT_OK(code);
    snprintf(ret_last, 16, "%u", count ? list[count - 1].id : 0);
    cay_free(list);
    return count;
}

static void back(const char *which)
{
    struct cay_checkpoint undone;

    ASSERT_OK(cay_sandbox_rollback(box, which, &undone, &err));
}

static void seal_start(void)
{
    const struct cay_checkpoint_options options = {.size = sizeof options,
                                                   .name = "start"};
    struct cay_checkpoint checkpoint;

    (void)say("mkdir -p /w/d; echo base > /w/base; echo x > /w/d/x");
    ASSERT_OK(cay_sandbox_checkpoint(box, &options, &checkpoint, &err));
}

static void change(int number)
{
    char script[128];

    snprintf(script, sizeof script,
             "echo %d > /w/n; rm -r /w/d; mkdir /w/d; echo %d > /w/d/new", number,
             number);
    (void)say(script);
}

/* Everything as after the change, or as in the checkpoint "start". */
static bool is_changed(int number)
{
    char changed[64];

    snprintf(changed, sizeof changed, "%d\nbase\n%d\n", number, number);
    const char *text = say("cat /w/n /w/base /w/d/* 2>/dev/null; true");
    if (strcmp(text, "base\nx\n") == 0)
        return false;
    ASSERT_STR(text, changed);
    return true;
}

static size_t count_mounts(void)
{
    return (size_t)strtoul(say("wc -l < /proc/self/mountinfo"), NULL, 10);
}

/* Layers in the store: those of checkpoints, and the live one.  Layer 1 is the store. */
static size_t count_layers(void)
{
    const struct native *native = box->cookie;
    size_t count = 0;

    if (native->record.storage == CAY_STORAGE_DISK) {
        char path[128];
        snprintf(path, sizeof path, "home/sandboxes/%s/disk/layers", cay_sandbox_id(box));
        return count_names(scratch_path(path), "") - 2 + 1;
    }
    AUTO_FD namespace = visit_open(native->record.init);
    AUTO_FD store = visit_open_store(namespace, VISIT_OWN_STORE);
    AUTO_FD layers = openat(store, "layers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fdopendir(dup(layers));
    ASSERT(list);
    while (readdir(list))
        count++;
    closedir(list);
    return count - 2 + 1;
}

/* A clone that has lost its caller still has the lock of the disk. */
static void restart(void)
{
    int code;

    ASSERT_OK(cay_sandbox_kill(box, &err));
    for (int i = 0; (code = cay_sandbox_start(box, &err)) == CAY_E_BUSY; i++) {
        ASSERT(i < PATIENCE_MS);
        usleep(1000);
    }
    ASSERT_OK(code);
}

/* After the next change that is not killed nothing is left over. */
static void assert_clean(size_t mounts)
{
    char last[16];

    back("start");
    ASSERT(!is_changed(0));
    ASSERT_INT(count_layers(), count_checkpoints(last) + 1);
    ASSERT_INT(count_mounts(), mounts);
}

/* --- Checkpoint --- */

/* A handle of its own: the connection to PID 1 cannot be shared. */
static cay_sandbox *open_own(void)
{
    cay_sandbox *own = NULL;

    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(box), &own, &err));
    return own;
}

static void act_checkpoint(void)
{
    struct cay_checkpoint checkpoint;

    (void)!cay_sandbox_checkpoint(open_own(), NULL, &checkpoint, NULL);
}

static void act_rollback(void)
{
    struct cay_checkpoint undone;

    (void)!cay_sandbox_rollback(open_own(), "start", &undone, NULL);
}

/* Set once: forks are those with this limit, which no other test has. */
static uint64_t own_memory;

static void act_fork(void)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .from = cay_sandbox_id(box),
                                                .memory_bytes = own_memory,
                                                .ephemeral = true};
    cay_sandbox *made = NULL;

    ASSERT_OK(cay_sandbox_create(&options, &made, &err));
}

static size_t count_forks(void)
{
    struct cay_sandbox_info *list = NULL;
    size_t count, own = 0;

    ASSERT_OK(cay_sandbox_list_brief(&list, &count, &err));
    for (size_t i = 0; i < count; i++)
        own += own_memory && list[i].memory_bytes == own_memory;
    cay_free(list);
    return own;
}

/* What a killed creator began ends without it. */
static void assert_no_fork(void)
{
    size_t removed;

    for (int i = 0; count_forks() > 0 && i < PATIENCE_MS / 10; i++) {
        ASSERT_OK(cay_sandbox_collect(&removed, &err));
        usleep(10000);
    }
    ASSERT_INT(count_forks(), 0);
}

/* One of so many system calls is tried, from a random one on; all with
 * CAY_EVERY_CALL=1. */
static int stride(void)
{
    return getenv("CAY_EVERY_CALL") ? 1 : 17;
}

static int first_call(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1 + (int)(now.tv_nsec / 1000 % stride());
}

/* In a new sandbox, so that the number of system calls stays the same. */
static bool die_once(void (*act)(void), const struct cay_sandbox_options *options,
                     enum victim victim, int calls)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(options);
    char last[16];

    box = sandbox;
    seal_start();
    size_t mounts = count_mounts();
    change(calls);
    bool has_died = dies_after(act, victim, calls);
    if (options->storage == CAY_STORAGE_DISK && calls % 2)
        restart();
    assert_no_fork();
    size_t count = count_checkpoints(last);
    ASSERT(count == 1 || count == 2);
    bool is_new = is_changed(calls);
    ASSERT(is_new || act == act_rollback);
    ASSERT(is_new || count == 2); /* what a rollback has undone */
    if (count == 2) {
        back(last);
        ASSERT(is_changed(calls));
    }
    assert_clean(mounts);
    ASSERT_OK(cay_sandbox_remove(box, &err));
    return has_died;
}

static void die_in(void (*act)(void), const struct cay_sandbox_options *options,
                   enum victim victim)
{
    int calls = first_call(), tries = 1;

    for (; die_once(act, options, victim, calls); calls += stride())
        tries++;
    printf("# killed at %d of %d system calls\n", tries - 1, calls);
    ASSERT(tries > 3);
}

static void die_everywhere(void (*act)(void))
{
    const struct cay_sandbox_options memory = {.size = sizeof memory};
    const struct cay_sandbox_options disk = {
        .size = sizeof disk, .storage = CAY_STORAGE_DISK, .ephemeral = true};

    need_store();
    use_own_home();
    for (enum victim victim = CALLER; victim < VICTIMS; victim++) {
        die_in(act, &memory, victim);
        die_in(act, &disk, victim);
    }
}

TEST(a_checkpoint_killed_at_any_system_call_loses_and_leaks_nothing)
{
    die_everywhere(act_checkpoint);
}

TEST(a_rollback_killed_at_any_system_call_loses_and_leaks_nothing)
{
    die_everywhere(act_rollback);
}

TEST(a_fork_killed_at_any_system_call_leaves_no_sandbox)
{
    const struct cay_sandbox_options memory = {.size = sizeof memory};

    need_store();
    own_memory = (512u << 20) + (uint64_t)getpid() * 4096;
    die_in(act_fork, &memory, CALLER);
}
