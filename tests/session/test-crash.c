/* SPDX-License-Identifier: Apache-2.0 */

/* A process that starts, pauses, resumes or stops a session is killed before each of its
 * system calls in turn.  Whatever it had acknowledged by then must be so, the session
 * must have its one sandbox with its files for whoever comes next, and in the end nothing
 * may be left: no process, no record, no user ids, no cgroup, no file. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

#include "../sandbox/cgroups.h"
#include "cay/pool.h"
#include "session/manager.h"
#include "sessions.h"
#include "steps.h"

enum { PATIENCE_MS = 60000, STEPS_MAX = 100000 };

/* What is done to the session; the child says so over the pipe when it was done. */
struct deed {
    const char *config;
    bool begins; /* without a sandbox; else with a running or a paused one */
    bool from_pause;
    bool is_pooled;
    int (*run)(cay_manager *manager, struct cay_error *error);
    enum cay_state then; /* what an acknowledged one has come to; 0: no sandbox */
};

static char before[CAY_ID_MAX]; /* the sandbox that the session had */

/* --- A pool with a spare that fits --- */

static cay_pool *pool;

static void start_pool(void)
{
    const struct cay_sandbox_options sandbox = {.size = sizeof sandbox,
                                                .memory_bytes = 128 << 20};
    const struct cay_pool_options options = {
        .size = sizeof options, .sandbox = &sandbox, .count = 1};

    ASSERT_OK(cay_pool_create(&options, &pool, &err));
    pool_of_sessions = cay_pool_name(pool);
}

static void end_pool(void)
{
    pool_of_sessions = NULL;
    cay_pool_free(pool);
    pool = NULL;
}

/* --- The world before and after --- */

static void prepare(const struct deed *deed)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = config_of(deed->config);
    AUTO(cay_manager) manager = manage(store, "s", config);

    before[0] = '\0';
    if (deed->is_pooled)
        start_pool();
    if (deed->begins)
        return;
    snprintf(before, sizeof before, "%s", cay_sandbox_id(sandbox_of(manager)));
    (void)told(sandbox_of(manager),
               "echo kept > file; sync; setsid sleep 100000 >/dev/null 2>&1 </dev/null & "
               "until pgrep -x sleep; do :; done");
    if (deed->from_pause)
        ASSERT_OK(cay_manager_pause(manager, &err));
}

static void assert_acknowledged(const struct deed *deed)
{
    AUTO(cay_store) store = open_store();
    const struct cay_session *stored = get_session(store, "ann", "s");

    ASSERT_INT(stored->state, deed->then);
    if (before[0] && deed->then)
        ASSERT_STR(stored->sandbox_id, before);
    if (deed->then)
        ASSERT_INT(state_of(stored->sandbox_id), deed->then);
    else
        ASSERT_STR(stored->sandbox_id, "");
}

/* The next program gets the session's sandbox; it is the one there was unless that was
 * to be stopped. */
static void assert_usable(const struct deed *deed)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = config_of(deed->config);
    AUTO(cay_manager) manager = manage(store, "s", config);
    cay_sandbox *sandbox = sandbox_of(manager);
    bool is_same = strcmp(cay_sandbox_id(sandbox), before) == 0;

    if (before[0] && deed->then)
        ASSERT(is_same);
    if (is_same && !strstr(deed->config, "disk"))
        ASSERT_STR(told(sandbox, "cat file; pgrep -c sleep"), "kept\n1");
    else if (is_same)
        ASSERT_STR(told(sandbox, "cat file"), "kept");
    else
        ASSERT_STR(told(sandbox, "ls -A; echo up"), "up");
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id, cay_sandbox_id(sandbox));
    ASSERT_INT(count_sandboxes(), 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
}

/* Somebody who comes much later: a maker may take some time to its record. */
static void age_everything(void)
{
    const struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    DIR *directory = opendir("/run/cay");

    ASSERT(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strncmp(entry->d_name, "sb-", 3) == 0)
            (void)!utimensat(dirfd(directory), entry->d_name, long_ago, 0);
    closedir(directory);
}

/* We are the parent of all that has lost its own. */
static void assert_no_process_left(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    for (int i = 0; i < PATIENCE_MS; i++) {
        pid_t pid = waitpid(-1, NULL, WNOHANG | __WALL);
        if (pid < 0 && errno == ECHILD)
            return;
        if (pid == 0)
            nanosleep(&moment, NULL);
    }
    harness_fail(__FILE__, __LINE__, "a process is left");
}

static void assert_nothing_left(char ids[2][CAY_ID_MAX])
{
    AUTO(cay_store) store = open_store();
    size_t count;

    ASSERT_OK(cay_store_collect(store, &count, &err));
    ASSERT_INT(count, 0); /* the next process has collected it */
    age_everything();
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    assert_empty_world();
    for (int i = 0; i < 2; i++)
        if (ids[i][0])
            ASSERT_INT(count_groups(ids[i]), 0);
    assert_no_process_left();
}

static void note_mark(const struct begun *begun, void *cookie)
{
    snprintf(cookie, CAY_ID_MAX, "sb-%.16s", begun->mark);
}

/* The sandboxes there may be: the recorded one, and the one that was being made. */
static void note_ids(char ids[2][CAY_ID_MAX])
{
    AUTO(cay_store) store = open_store();
    struct cay_session *stored = NULL;

    memset(ids, 0, 2 * sizeof *ids);
    if (cay_store_get(store, "ann", "s", &stored, NULL) == CAY_OK)
        snprintf(ids[0], sizeof ids[0], "%s", stored->sandbox_id);
    cay_free(stored);
    ASSERT_OK(ledger_visit(store, NULL, NULL, note_mark, ids[1], &err));
}

/* --- The victim --- */

static void be_victim(const struct deed *deed, int pipe)
{
    cay_store *store = NULL;
    cay_manager *manager = NULL;

    be_stepped();
    store = open_store();
    manager = manage(store, "s", config_of(deed->config));
    ASSERT_OK(deed->run(manager, &err));
    ASSERT_INT(write(pipe, "", 1), 1);
    cay_manager_free(manager);
    cay_store_free(store);
    _exit(0);
}

static unsigned now_at; /* the step of the current try */

static void say_where(void)
{
    printf("# it was killed before its system call %u\n", now_at + 1);
    end_pool();
    kill_all();
}

/* A spare that was taken and not claimed ends a second after its pool, and is then
 * collected like any sandbox that has ended by itself. */
static void await_orphans(void)
{
    size_t count;

    for (int i = 0; i < PATIENCE_MS / 10 && count_in("/run/cay", "sb-") > 0; i++) {
        (void)usleep(10000);
        ASSERT_OK(cay_sandbox_collect(&count, &err));
    }
}

/* True if the deed was done before it could be killed. */
static bool kill_after(const struct deed *deed, unsigned steps)
{
    char ids[2][CAY_ID_MAX], told_so;
    int ends[2];

    prepare(deed);
    ASSERT_INT(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        be_victim(deed, ends[1]);
    bool is_over = run_for(pid, steps);
    note_ids(ids);
    if (read(ends[0], &told_so, 1) == 1)
        assert_acknowledged(deed);
    else
        ASSERT(!is_over);
    (void)close(ends[0]);
    (void)close(ends[1]);
    assert_usable(deed);
    end_pool();
    if (deed->is_pooled)
        await_orphans();
    assert_nothing_left(ids);
    return is_over;
}

static void survive(const struct deed *deed)
{
    unsigned step = step_width(), tries = 0, steps = (unsigned)getpid() % step;

    need_own_world();
    harness_at_end(say_where);
    ASSERT_INT(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    do {
        steps += step;
        tries++;
        now_at = steps;
        ASSERT(steps < STEPS_MAX);
    } while (!kill_after(deed, steps));
    harness_at_end(kill_all);
    ASSERT_INT(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    printf("# killed %u times, up to its system call %u\n", tries - 1, steps);
}

static const char in_memory[] = "{limits: {memory: 128M}}";
static const char on_disk[] = "{storage: disk}";

static int start_and_wait(cay_manager *manager, struct cay_error *error)
{
    int code = cay_manager_start_no_wait(manager, error);

    return code ? code : cay_manager_wait(manager, error);
}

TEST(a_start_can_be_killed_at_any_point)
{
    const struct deed deed = {in_memory, .begins = true, .run = cay_manager_start,
                              .then = CAY_STATE_RUNNING};

    survive(&deed);
}

/* The pool is there meanwhile, and when the next program looks. */
TEST(a_start_from_a_pool_can_be_killed_at_any_point)
{
    const struct deed deed = {in_memory, .begins = true, .is_pooled = true,
                              .run = cay_manager_start, .then = CAY_STATE_RUNNING};

    survive(&deed);
}

TEST(a_stop_of_a_claimed_sandbox_can_be_killed_at_any_point)
{
    const struct deed deed = {in_memory, .is_pooled = true, .run = cay_manager_stop};

    survive(&deed);
}

TEST(a_start_on_disk_can_be_killed_at_any_point)
{
    const struct deed deed = {on_disk, .begins = true, .run = cay_manager_start,
                              .then = CAY_STATE_RUNNING};

    survive(&deed);
}

TEST(a_start_on_the_host_can_be_killed_at_any_point)
{
    const struct deed deed = {"{type: local}", .begins = true, .run = cay_manager_start,
                              .then = CAY_STATE_RUNNING};

    need_own_world();
    ASSERT_INT(setenv("SANDBOX_WORK_DIR", scratch_path("work"), 1), 0);
    survive(&deed);
    ASSERT_INT(unsetenv("SANDBOX_WORK_DIR"), 0);
}

TEST(a_start_without_waiting_can_be_killed_at_any_point)
{
    const struct deed deed = {in_memory, .begins = true, .run = start_and_wait,
                              .then = CAY_STATE_RUNNING};

    survive(&deed);
}

TEST(a_pause_can_be_killed_at_any_point)
{
    const struct deed deed = {in_memory, .run = cay_manager_pause,
                              .then = CAY_STATE_PAUSED};

    survive(&deed);
}

TEST(a_resume_can_be_killed_at_any_point)
{
    const struct deed deed = {in_memory, .from_pause = true, .run = cay_manager_start,
                              .then = CAY_STATE_RUNNING};

    survive(&deed);
}

TEST(a_stop_can_be_killed_at_any_point)
{
    const struct deed deed = {in_memory, .run = cay_manager_stop};

    survive(&deed);
}

TEST(a_stop_on_disk_can_be_killed_at_any_point)
{
    const struct deed deed = {on_disk, .run = cay_manager_stop};

    survive(&deed);
}
