/* SPDX-License-Identifier: Apache-2.0 */

/* Trees of processes and limits of ordinary users: without cgroups, and with those that
 * were delegated to them. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <time.h>

#include "ladder.h"

/* --- The end of trees --- */

static void kill_trees(void)
{
    AUTO(cay_sandbox) sandbox = make_on(level_here);
    size_t before = count_others();

    run_late(sandbox, NULL,
             "trap '' TERM INT HUP; setsid sleep 1000 & "
             "(setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' &); "
             "setsid setsid sh -c 'setsid sleep 1000 & exit 0'; echo up; sleep 1000");
    ASSERT_STR(result.out, "up\n");
    ASSERT_INT(count_others(), before);
    /* What a command leaves behind when it ends by itself lives on. */
    run(sandbox, "setsid sleep 1000 & (sleep 1000 &); exit 0");
    ASSERT_INT(result.exit_code, 0);
    size_t with = count_others();
    ASSERT(with >= before + 2);
    /* And the end of another command is not theirs. */
    run_as(sandbox, NULL, "sleep 1000 & sleep 1000", 300);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_INT(count_others(), with);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(count_others(), 0);
    cay_exec_done(&result);
}

TEST(a_tree_dies_whole_on_the_level_range)
{
    on_level(CAY_LEVEL_RANGE, kill_trees);
}

TEST(a_tree_dies_whole_on_the_level_single)
{
    on_level(CAY_LEVEL_SINGLE, kill_trees);
}

TEST(a_tree_dies_whole_on_the_level_landlock)
{
    on_level(CAY_LEVEL_LANDLOCK, kill_trees);
}

enum { CROWD = 900 }; /* more than one page of /proc/1/task/1/children has room for */

static cay_sandbox *make_crowded(void)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .level = level_here, .pids = 4 * CROWD};
    cay_sandbox *sandbox = make_sandbox(&options);

    for (int i = 0; i < CROWD; i++)
        run(sandbox, "sleep 1000 &");
    ASSERT_INT(result.exit_code, 0);
    return sandbox;
}

static void kill_a_crowd(void)
{
    AUTO(cay_sandbox) sandbox = make_crowded();

    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(count_others(), 0);
    cay_exec_done(&result);
}

TEST(a_sandbox_ends_however_many_are_held_in_it)
{
    on_level(CAY_LEVEL_SINGLE, kill_a_crowd);
}

static void kill_a_tree_behind_a_crowd(void)
{
    AUTO(cay_sandbox) sandbox = make_crowded();
    size_t before = count_others();

    run_late(sandbox, NULL, "setsid sleep 1000 & (sleep 1000 &); echo up; sleep 1000");
    ASSERT_STR(result.out, "up\n");
    ASSERT_INT(count_others(), before);
    cay_exec_done(&result);
}

TEST(a_tree_dies_whole_however_many_others_are_held)
{
    on_level(CAY_LEVEL_SINGLE, kill_a_tree_behind_a_crowd);
}

/* Never the same process for long, and never where its parent was. */
static void kill_hoppers(void)
{
    static const char hopper[] = "import os, sys\n"
                                 "sys.stdout.write('up\\n'); sys.stdout.flush()\n"
                                 "for i in range(3):\n"
                                 "    if os.fork() == 0: break\n"
                                 "while True:\n"
                                 "    if os.fork(): os._exit(0)\n"
                                 "    os.setsid()\n";
    AUTO(cay_sandbox) sandbox = make_on(level_here);
    const char *const argv[] = {"python3", "-c", hopper, NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .flags = CAY_EXEC_BACKGROUND};

    for (int i = 0; i < 5; i++) {
        const struct timespec moment = {.tv_nsec = 50000000};
        size_t before = count_others();
        cay_process *process = NULL;
        ASSERT_OK(cay_process_start(sandbox, &options, &process, &err));
        nanosleep(&moment, NULL);
        ASSERT_OK(cay_process_kill(process, &err));
        ASSERT_INT(count_others(), before);
        cay_process_free(process);
    }
}

TEST(processes_that_run_away_from_their_parents_are_caught)
{
    on_every_level(kill_hoppers);
}

/* A subreaper may run as the same user; its command still must not kill it. */
static void attack_holders(void)
{
    AUTO(cay_sandbox) sandbox = make_on(level_here);

    run(sandbox, "kill -9 $PPID 2>/dev/null && echo ESCAPE; "
                 "kill -STOP $PPID 2>/dev/null && echo ESCAPE; "
                 "kill -9 -1; echo still");
    /* Before that the kernel takes such a signal, and PID 1 does not. */
    ASSERT(!has_landlock_abi(6) || !strstr(result.out, "ESCAPE"));
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    cay_exec_done(&result);
}

TEST(a_command_cannot_signal_those_that_hold_it)
{
    on_every_level(attack_holders);
}

/* On older kernels it could; what it held then dies. */
static void kill_the_holder_from_outside(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_LANDLOCK);
    const char *const argv[] = {"sh", "-c", "setsid sleep 1000 & sleep 1000", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .flags = CAY_EXEC_BACKGROUND};
    const struct timespec moment = {.tv_nsec = 200000000};
    struct cay_exec_result end = {0};
    cay_process *process = NULL;
    char path[64], text[256];

    size_t before = count_others();
    ASSERT_OK(cay_process_start(sandbox, &options, &process, &err));
    nanosleep(&moment, NULL);
    snprintf(path, sizeof path, "/proc/%d/stat", cay_process_pid(process));
    FILE *stat = fopen(path, "re");
    ASSERT(stat && fgets(text, sizeof text, stat));
    fclose(stat);
    pid_t holder = (pid_t)strtol(strrchr(text, ')') + 4, NULL, 10);
    ASSERT(kill(holder, SIGKILL) == 0);
    ASSERT_OK(cay_process_wait(process, 10000, &end, &err));
    ASSERT_INT(end.signal, SIGKILL);
    ASSERT_INT(count_others(), before);
    cay_exec_done(&end);
    cay_process_free(process);
}

TEST(the_death_of_a_holder_is_the_death_of_what_it_held)
{
    need_landlock();
    as_ordinary(ordinary_user(false), kill_the_holder_from_outside);
}

/* No process is left to kill the descendants, so they must end by themselves. */
static void kill_init_from_outside(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_LANDLOCK);
    const struct timespec moment = {.tv_nsec = 10000000};

    run(sandbox, "setsid sleep 1000 & (setsid sleep 1000 &); exit 0");
    look(sandbox);
    ASSERT(count_others() >= 3);
    ASSERT(kill(info.init_pid, SIGKILL) == 0);
    for (int i = 0; i < PATIENCE_MS / 10 && count_others() > 0; i++)
        nanosleep(&moment, NULL);
    ASSERT_INT(count_others(), 0);
    cay_exec_done(&result);
}

TEST(the_death_of_init_is_the_death_of_all_also_without_a_pid_namespace)
{
    need_landlock();
    as_ordinary(ordinary_user(false), kill_init_from_outside);
}

/* --- Limits --- */

static void fill_processes(void)
{
    const struct cay_sandbox_options few = {
        .size = sizeof few, .level = level_here, .pids = 20};
    AUTO(cay_sandbox) sandbox = make_sandbox(&few);

    run(sandbox, "i=0; while [ $i -lt 100 ]; do sleep 100 & i=$((i+1)); done 2>&1");
    look(sandbox);
    ASSERT(info.pids_used > 10 && info.pids_used <= 20);
    run(sandbox, "exec echo one more");
    ASSERT_STR(result.out, "one more\n");
    cay_exec_done(&result);
}

TEST(the_number_of_processes_is_kept_by_an_rlimit)
{
    on_level(CAY_LEVEL_SINGLE, fill_processes);
    on_level(CAY_LEVEL_RANGE, fill_processes);
}

static void make_below_a_lower_limit(void)
{
    struct rlimit most = {60, 60};

    ASSERT_INT(setrlimit(RLIMIT_NPROC, &most), 0);
    AUTO(cay_sandbox) sandbox = make_on(level_here);
    run(sandbox, "echo runs; ulimit -p 2> /dev/null || ulimit -u");
    ASSERT_STR(result.out, "runs\n60\n");
    cay_exec_done(&result);
}

TEST(a_user_who_may_have_fewer_processes_than_a_sandbox_has_sandboxes)
{
    on_level(CAY_LEVEL_SINGLE, make_below_a_lower_limit);
    on_level(CAY_LEVEL_RANGE, make_below_a_lower_limit);
}

/* Two sandboxes of a user do not count for each other. */
static void fill_two(void)
{
    const struct cay_sandbox_options few = {
        .size = sizeof few, .level = CAY_LEVEL_SINGLE, .pids = 20};
    AUTO(cay_sandbox) one = make_sandbox(&few);
    AUTO(cay_sandbox) other = make_sandbox(&few);

    run(one, "i=0; while [ $i -lt 100 ]; do sleep 100 & i=$((i+1)); done 2>&1");
    run(other, "for i in 1 2 3 4 5 6 7 8; do sleep 100 & done; echo enough room");
    ASSERT_STR(result.out, "enough room\n");
    cay_exec_done(&result);
}

TEST(each_sandbox_of_a_user_has_processes_of_its_own)
{
    as_ordinary(ordinary_user(false), fill_two);
}

static void refuse_limits(void)
{
    struct cay_sandbox_options wish = {.size = sizeof wish, .level = level_here};
    cay_sandbox *sandbox = NULL;

    wish.memory_bytes = 600 << 20;
    ASSERT_CODE(cay_sandbox_create(&wish, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.message, "cannot enforce a requested limit");
    ASSERT_HAS(err.hint, "missing: memory; no cgroup is delegated");
    ASSERT_HAS(err.hint, "systemd-run --user --scope -p Delegate=yes");
    wish.memory_bytes = 0;
    wish.cpu_percent = 50;
    ASSERT_CODE(cay_sandbox_create(&wish, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "missing: cpu");
    wish.cpu_percent = 0;
    if (level_here != CAY_LEVEL_LANDLOCK)
        return;
    wish.pids = 100;
    ASSERT_CODE(cay_sandbox_create(&wish, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "missing: pids");
    wish.pids = 0;
    wish.disk_bytes = 100 << 20;
    ASSERT_CODE(cay_sandbox_create(&wish, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "missing: disk");
}

TEST(a_limit_that_cannot_be_kept_is_an_error)
{
    on_every_level(refuse_limits);
}

static void exceed_memory(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_SINGLE);

    run(sandbox, "python3 -c 'x = bytearray(1 << 31)' 2>&1 | tail -1");
    ASSERT_STR(result.out, "MemoryError\n");
    cay_exec_done(&result);
}

TEST(where_no_cgroup_keeps_memory_each_process_has_an_rlimit)
{
    as_ordinary(ordinary_user(false), exceed_memory);
}

/* --- Delegated cgroups --- */

static const char *const hierarchies[] = {"/sys/fs/cgroup/unified",
                                          "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids",
                                          "/sys/fs/cgroup/cpu"};
static const char cgroup2[] = "/sys/fs/cgroup"; /* where there are no others */
static pid_t delegator;

static bool has_only_cgroup2(void)
{
    return access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
}

static size_t count_hierarchies(void)
{
    return has_only_cgroup2() ? 1 : 4;
}

static void name_delegated(char *path, size_t room, size_t i, const char *below)
{
    snprintf(path, room, "%s/cay-test-%d%s",
             has_only_cgroup2() ? cgroup2 : hierarchies[i], (int)delegator, below);
}

static void remove_delegated(void)
{
    char path[128];

    for (size_t i = 0; i < count_hierarchies(); i++) {
        name_delegated(path, sizeof path, i, "/scope");
        (void)rmdir(path);
        name_delegated(path, sizeof path, i, "/cay");
        (void)rmdir(path);
        name_delegated(path, sizeof path, i, "");
        (void)rmdir(path);
    }
}

static void give(size_t i, const char *below, const struct ordinary *user)
{
    static const char *const given[] = {"", "/cgroup.procs", "/tasks",
                                        "/cgroup.subtree_control"};
    char directory[128], path[160];

    name_delegated(directory, sizeof directory, i, below);
    if (mkdir(directory, 0755) != 0) {
        remove_delegated();
        SKIP("the cgroups of this machine are elsewhere");
    }
    for (size_t k = 0; k < 4; k++) {
        snprintf(path, sizeof path, "%s%s", directory, given[k]);
        (void)!chown(path, user->uid, user->gid);
    }
}

static bool hand_on(const char *directory, const char *order)
{
    char path[160];

    snprintf(path, sizeof path, "%s/cgroup.subtree_control", directory);
    FILE *file = fopen(path, "we");
    ASSERT(file && fputs(order, file) >= 0);
    return fclose(file) == 0;
}

/* As systemd does for a scope with Delegate=yes; with cgroup2 alone that is in the user's
 * own manager, which owns what is above it and hands on what its units use. */
static void delegate(const struct ordinary *user)
{
    char path[128];

    delegator = getpid();
    for (size_t i = 0; i < count_hierarchies(); i++)
        give(i, "", user);
    if (!has_only_cgroup2())
        return;
    name_delegated(path, sizeof path, 0, "");
    ASSERT(hand_on(cgroup2, "+memory +pids +cpu"));
    ASSERT(hand_on(path, "+memory +pids"));
    give(0, "/scope", user);
}

static void enter_delegated(void)
{
    char path[128];

    for (size_t i = 0; i < count_hierarchies(); i++) {
        name_delegated(path, sizeof path, i,
                       has_only_cgroup2() ? "/scope/cgroup.procs" : "/cgroup.procs");
        FILE *file = fopen(path, "we");
        if (!file || fputs("0", file) < 0 || fclose(file) != 0)
            _exit(6);
    }
}

static void expect_kept(unsigned layer, const char *controller)
{
    char expected[64];

    snprintf(expected, sizeof expected, "cgroup %s %s", has_only_cgroup2() ? "v2" : "v1",
             controller);
    ASSERT_HAS(by(layer), expected);
}

static void use_delegated(void)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .level = level_here,
                                                .memory_bytes = 64 << 20,
                                                .pids = 30,
                                                .cpu_percent = 100,
                                                .require = CAY_LAYER_CGROUP};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);

    /* As the manager does when no unit of its own uses them any more. */
    if (has_only_cgroup2()) {
        char path[128];
        name_delegated(path, sizeof path, 0, "");
        ASSERT(!hand_on(path, "-memory -pids -cpu"));
    }
    look(sandbox);
    expect_kept(CAY_LAYER_MEMORY, "memory");
    expect_kept(CAY_LAYER_PIDS, "pids");
    expect_kept(CAY_LAYER_CPU, "cpu");
    ASSERT_HAS(by(CAY_LAYER_CGROUP), "cgroup v2");
    run(sandbox, "exec tail /dev/zero");
    ASSERT_INT(result.cause, CAY_CAUSE_MEMORY);
    run_as(sandbox, NULL, "setsid sleep 1000 & sleep 1000", 300);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
    look(sandbox);
    ASSERT_INT(info.state, CAY_STATE_PAUSED);
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    run(sandbox, "setsid sleep 1000 & echo on");
    ASSERT_STR(result.out, "on\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(count_others(), 0);
    cay_exec_done(&result);
}

static void use_delegated_on(enum cay_level level)
{
    const struct ordinary *user = ordinary_user(level == CAY_LEVEL_RANGE);
    int status;

    if (level == CAY_LEVEL_LANDLOCK)
        need_landlock();
    level_here = level;
    delegate(user);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        enter_delegated();
        become_ordinary(user);
        use_delegated();
        _exit(0);
    }
    pid_t got = waitpid(pid, &status, 0);
    char path[128];
    name_delegated(path, sizeof path, 0, has_only_cgroup2() ? "/cay" : "");
    size_t left = count_names(path, "cay-");
    remove_delegated();
    ASSERT_INT(got, pid);
    ASSERT_INT(status, 0);
    ASSERT_INT(left, 0);
}

TEST(delegated_cgroups_keep_limits_on_the_level_range)
{
    use_delegated_on(CAY_LEVEL_RANGE);
}

TEST(delegated_cgroups_keep_limits_on_the_level_single)
{
    use_delegated_on(CAY_LEVEL_SINGLE);
}

TEST(delegated_cgroups_keep_limits_on_the_level_landlock)
{
    use_delegated_on(CAY_LEVEL_LANDLOCK);
}

/* --- Some cgroups and not others --- */

static void list_uncounted(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_BEST);
    struct cay_sandbox_info *infos;
    size_t count;

    look(sandbox);
    ASSERT_HAS(by(CAY_LAYER_MEMORY), "cgroup v1 memory");
    ASSERT_HAS(by(CAY_LAYER_PIDS), "RLIMIT");
    size_t before = count_names("/proc/self/fd", "");
    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    ASSERT(count >= 1);
    cay_free(infos);
    ASSERT_INT(count_names("/proc/self/fd", ""), before);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
}

TEST(a_list_leaves_nothing_open_where_it_counts_processes_itself)
{
    int status;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) != 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            umount2("/sys/fs/cgroup/pids", MNT_DETACH) != 0)
            _exit(77);
        list_uncounted();
        _exit(0);
    }
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("the cgroups of this machine are elsewhere");
    ASSERT_INT(status, 0);
}
