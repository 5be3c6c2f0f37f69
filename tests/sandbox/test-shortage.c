/* SPDX-License-Identifier: Apache-2.0 */

/* When this process, or the sandbox, has no more descriptors to spare: that is told as
 * what it is, nothing that lives is taken for dead, and nothing is left behind.  When all
 * processors are taken, who ends commands in time is not behind them. */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "native/native.h"
#include "native/record/remove.h"
#include "processes.h"
#include "sandbox/backend.h"

/* Until the end of the scope, as many more files as `spare` can be opened. */
struct few {
    struct rlimit before;
};

static void few_done(const struct few *few)
{
    ASSERT_INT(setrlimit(RLIMIT_NOFILE, &few->before), 0);
}

#define AUTO_FEW __attribute__((cleanup(few_done), unused)) struct few

static struct few leave(int spare)
{
    struct few few;
    int next = dup(0); /* the lowest that is free; those below are all taken */

    ASSERT(next >= 0);
    (void)close(next);
    ASSERT_INT(getrlimit(RLIMIT_NOFILE, &few.before), 0);
    struct rlimit now = few.before;
    now.rlim_cur = (rlim_t)next + (rlim_t)spare;
    ASSERT_INT(setrlimit(RLIMIT_NOFILE, &now), 0);
    return few;
}

static size_t count_of(const char *id)
{
    return count_names(runtime_path(), id) + count_names("/sys/fs/cgroup/memory", id) +
           count_names("/sys/fs/cgroup/pids", id) +
           count_names("/sys/fs/cgroup/unified", id) +
           count_names("/sys/fs/cgroup/cay", id);
}

static void expect_files(int code)
{
    ASSERT_INT(code, CAY_E_UNAVAILABLE);
    ASSERT_INT(err.sys_errno, EMFILE);
    ASSERT_HAS(err.message, "too many files open");
    ASSERT_HAS(err.hint, "ulimit -n");
}

/* With a handle that was opened, as by another program. */
static int kill_with(const char *id, int spare)
{
    cay_sandbox *sandbox = NULL;
    AUTO_FEW few = leave(spare);
    int code = cay_sandbox_open(id, &sandbox, &err);

    if (!code)
        code = cay_sandbox_kill(sandbox, &err);
    cay_sandbox_free(sandbox);
    return code;
}

TEST(a_kill_that_lacks_descriptors_says_so_and_the_sandbox_lives)
{
    char id[CAY_ID_MAX];
    int refused = 0, code = CAY_E_UNAVAILABLE;

    for (int spare = 0; code; spare++) {
        AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
        snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
        run(sandbox, "true");
        code = kill_with(id, spare);
        if (code) {
            expect_files(code);
            run(sandbox, "echo alive");
            ASSERT_STR(result.out, "alive\n");
            refused++;
        } else {
            ASSERT_INT(count_of(id), 0);
        }
        ASSERT(spare < 40);
    }
    ASSERT(refused > 2);
    cay_exec_done(&result);
}

TEST(a_liveness_check_without_descriptors_does_not_report_death)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    struct record dead = native->record;
    size_t count;

    dead.init_start++;
    ASSERT_INT(runtime_check_alive(&native->record), 1);
    ASSERT_INT(runtime_check_alive(&dead), 0);
    {
        AUTO_FEW few = leave(0);
        ASSERT_INT(runtime_check_alive(&native->record), -EMFILE);
        ASSERT(runtime_is_alive(&native->record));
        expect_files(cay_sandbox_collect(&count, &err));
        expect_files(record_remove(&native->record, -1, &err));
    }
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    cay_exec_done(&result);
}

/* A range that nobody has would be taken for ever. */
TEST(what_is_dead_is_removed_whole_or_stays_on_record)
{
    char id[CAY_ID_MAX];
    size_t count;

    for (int spare = 0; spare < 12; spare++) {
        AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
        const struct native *native = sandbox->cookie;
        snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
        run(sandbox, "true");
        ASSERT_INT(kill(native->record.init, SIGKILL), 0);
        while (runtime_is_alive(&native->record))
            rest_ms(1);
        {
            AUTO_FEW few = leave(spare);
            (void)!cay_sandbox_collect(&count, NULL);
        }
        ASSERT(count_of(id) == 0 || count_names(runtime_path(), id) > 0);
        ASSERT_OK(cay_sandbox_collect(&count, &err));
        ASSERT_INT(count_of(id), 0);
        (void)!cay_sandbox_kill(sandbox, NULL);
    }
    cay_exec_done(&result);
}

TEST(a_create_that_lacks_descriptors_says_so_and_is_never_weaker)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};
    int code = CAY_E_UNAVAILABLE;

    need_root();
    AUTO(cay_sandbox) usual = make_sandbox(NULL);
    for (int spare = 0; code; spare++) {
        AUTO(cay_sandbox) sandbox = NULL;
        {
            AUTO_FEW few = leave(spare);
            code = cay_sandbox_create(&options, &sandbox, &err);
        }
        if (code)
            expect_files(code);
        else
            ASSERT_INT(cay_sandbox_layers(sandbox), cay_sandbox_layers(usual));
        ASSERT(spare < 60);
    }
}

TEST(a_sandbox_that_cannot_be_called_for_lack_of_descriptors_has_not_ended)
{
    AUTO(cay_sandbox) made = make_sandbox(NULL);
    const struct native *native = made->cookie;
    int socket = -1;
    AUTO_FEW few = leave(0);

    expect_files(native_connect_init(&native->record, 1000, &socket, &err));
    ASSERT_INT(socket, -1);
}

/* --- Inside --- */

static int start_one(cay_sandbox *sandbox, const char *user)
{
    AUTO(cay_process) process = NULL;

    return start_script(
        sandbox, "exec sleep 1000",
        (struct cay_exec_options){.flags = CAY_EXEC_BACKGROUND, .user = user}, &process);
}

/* By another process, since not everybody can have the limit back. */
static void make_with_few(char ret_id[CAY_ID_MAX])
{
    const struct cay_sandbox_options options = {.size = sizeof options, .ttl_ms = 600000};
    const struct rlimit few = {64, 64};
    cay_sandbox *sandbox = NULL;
    int ends[2], status;

    ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        if (setrlimit(RLIMIT_NOFILE, &few) != 0 ||
            cay_sandbox_create(&options, &sandbox, NULL) != CAY_OK)
            _exit(1);
        _exit(write(ends[1], cay_sandbox_id(sandbox), CAY_ID_MAX) != CAY_ID_MAX);
    }
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT_INT(status, 0);
    ASSERT_INT(read(ends[0], ret_id, CAY_ID_MAX), CAY_ID_MAX);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* Its maker's limit is its own.  The user was looked up in a file that could not be
 * opened, and was said not to be there. */
TEST(a_sandbox_that_has_no_more_descriptors_says_so)
{
    const char *const users[] = {NULL, "user", "root", "1234", "user:1000"};
    int count = 0, code = CAY_OK;
    char id[CAY_ID_MAX];

    need_root();
    make_with_few(id);
    AUTO(cay_sandbox) sandbox = NULL;
    ASSERT_OK(cay_sandbox_open(id, &sandbox, &err));
    AUTO(cay_process) first = start(sandbox, CAY_EXEC_BACKGROUND, "exec sleep 1000");
    AUTO(cay_process) second = start(sandbox, CAY_EXEC_BACKGROUND, "exec sleep 1000");
    while (!code && count++ < 64)
        code = start_one(sandbox, NULL);
    expect_files(code);
    ASSERT_HAS(err.message, "PID 1 of the sandbox");
    for (int i = 0; i < 20; i++) { /* up to the very last one */
        code = start_one(sandbox, users[i % 5]);
        if (code)
            expect_files(code);
    }
    ASSERT_OK(cay_process_kill(first, &err));
    ASSERT_OK(cay_process_kill(second, &err));
    run_as(sandbox, "1000", "id -un; id -gn; echo $HOME", PATIENCE_MS);
    ASSERT_STR(result.out, "user\nuser\n/home/user\n");
    cay_exec_done(&result);
}

/* --- Processors --- */

static void expect_nice(cay_sandbox *sandbox, const char *user, int nice)
{
    char told[16];

    snprintf(told, sizeof told, "%d\n", nice);
    run_as(sandbox, user, "nice; nice -n -1 nice 2> /dev/null | grep -v -x -- $(nice)",
           PATIENCE_MS);
    ASSERT_STR(result.out, told);
}

/* With as many processes as it may have, all busy, it would wait for its turn for seconds
 * when the time of a command is over. */
TEST(the_first_process_goes_before_commands_which_have_the_makers_priority)
{
    for (int nice = 0; nice <= 3; nice += 3) {
        ASSERT_INT(setpriority(PRIO_PROCESS, 0, nice), 0);
        AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
        const struct native *native = sandbox->cookie;
        ASSERT_INT(getpriority(PRIO_PROCESS, 0), nice);
        ASSERT_INT(getpriority(PRIO_PROCESS, (id_t)native->record.init), nice - 5);
        expect_nice(sandbox, NULL, nice);
        expect_nice(sandbox, "root", nice);
    }
    cay_exec_done(&result);
}
