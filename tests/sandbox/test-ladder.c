/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes of ordinary users, rung by rung.  What a rung cannot do it refuses, what it
 * does not keep it does not claim.  Most tests run in a process that is such a user; the
 * one it comes from is root. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

#include "ledger.h"
#include "ordinary.h"

static const struct ordinary *user_of(enum cay_rung rung)
{
    return ordinary_user(rung == CAY_RUNG_RANGE);
}

static cay_sandbox *make_on(enum cay_rung rung)
{
    const struct cay_sandbox_options options = {.size = sizeof options, .rung = rung};

    return make_sandbox(&options);
}

static struct cay_sandbox_info info;

static void look(cay_sandbox *sandbox)
{
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
}

/* "landlock ABI 7" for CAY_LAYER_LANDLOCK; "" if it is not enforced. */
static const char *by(unsigned layer)
{
    const char *found = "";

    for (size_t i = 0; i < info.enforced_count; i++)
        if (info.enforced[i].layer == layer)
            found = info.enforced[i].by;
    ASSERT_INT((info.layers & layer) != 0, *found != '\0');
    return found;
}

/* --- The ordinary tests, on each rung --- */

static void print_as_comment(int fd)
{
    FILE *lines = fdopen(fd, "re");
    char line[1024];

    ASSERT(lines);
    while (fgets(line, sizeof line, lines))
        if (strncmp(line, "ok ", 3) != 0)
            printf("# %s", line);
    fclose(lines);
}

static void execute_as(const struct ordinary *user, const char *program, int output)
{
    char path[PATH_MAX], *argv[] = {path, NULL};
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 32);

    if (len < 0)
        _exit(3);
    path[len] = '\0';
    snprintf(strrchr(path, '/') + 1, 32, "%s", program);
    /* By descriptor: the user need not be able to go where it lies. */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || dup2(output, 1) < 0)
        _exit(4);
    become_ordinary(user);
    unsetenv("TMPDIR");
    (void)fexecve(fd, argv, environ);
    _exit(5);
}

/* Left out are tests of what the rung does not have; this file has others for that. */
static void run_program(const char *program, enum cay_rung rung, const char *left_out)
{
    const struct ordinary *user = user_of(rung);
    int ends[2], status;

    ASSERT(pipe2(ends, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        setenv("CAY_TEST_RUNG", cay_rung_slug(rung), 1);
        setenv("CAY_LEAVE_OUT", left_out, 1);
        execute_as(user, program, ends[1]);
    }
    (void)close(ends[1]);
    print_as_comment(ends[0]);
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT_INT(status, 0);
}

TEST(commands_run_on_the_rung_range)
{
    run_program("test-sandbox", CAY_RUNG_RANGE, "the_memory_limit_*");
}

TEST(commands_run_on_the_rung_single)
{
    run_program("test-sandbox", CAY_RUNG_SINGLE,
                "the_memory_limit_* users_* the_working_directory_*");
}

TEST(commands_run_on_the_rung_landlock)
{
    run_program("test-sandbox", CAY_RUNG_LANDLOCK,
                "a_command_runs_as_user_* a_program_that_cannot_* a_command_ends_with_* "
                "the_memory_limit_* the_limit_on_processes_* the_disk_* users_* "
                "the_working_directory_* the_environment_*");
}

/* --- What is enforced, and by what --- */

TEST(root_is_told_exactly_what_is_enforced)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .cpu_percent = 150, .pids = 77, .ttl_ms = 60000};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    char ids[64];

    run(sandbox, "head -c 3000000 /dev/zero > file; sleep 100 & exit 0");
    look(sandbox);
    ASSERT_STR(info.id, cay_sandbox_id(sandbox));
    ASSERT_INT(info.state, CAY_STATE_RUNNING);
    ASSERT_INT(info.rung, CAY_RUNG_ROOT);
    ASSERT_INT(info.layers, cay_sandbox_layers(sandbox));
    snprintf(ids, sizeof ids, "user ids 0x%x+65536", info.id_base);
    ASSERT_STR(by(CAY_LAYER_USER), ids);
    ASSERT_STR(by(CAY_LAYER_NETWORK), "network namespace, loopback only");
    ASSERT_HAS(by(CAY_LAYER_MEMORY), "cgroup v");
    ASSERT_HAS(by(CAY_LAYER_PIDS), "cgroup v");
    ASSERT_HAS(by(CAY_LAYER_CPU), "cgroup v");
    ASSERT_HAS(by(CAY_LAYER_SECCOMP), " calls allowed");
    ASSERT_STR(by(CAY_LAYER_DISK), "tmpfs size");
    ASSERT_INT(info.pids, 77);
    ASSERT_INT(info.cpu_percent, 150);
    ASSERT_INT(info.memory_bytes, CAY_MEMORY_DEFAULT);
    ASSERT_STR(info.template_name, "host");
    ASSERT_STR(info.user, "user");
    ASSERT(info.ephemeral);
    ASSERT(info.ttl_left_ms > 0 && info.ttl_left_ms <= 60000);
    ASSERT(info.disk_used >= 3000000 && info.disk_used < 6000000);
    ASSERT(info.memory_used > 0 && info.cpu_us > 0);
    ASSERT(info.pids_used >= 2);
    ASSERT(kill(info.init_pid, 0) == 0);
    ASSERT(info.created_ms / 1000 > time(NULL) - 60);
    cay_exec_done(&result);
}

TEST(a_sandbox_on_the_hosts_network_does_not_claim_one_of_its_own)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .network = CAY_NETWORK_HOST};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);

    look(sandbox);
    ASSERT_STR(by(CAY_LAYER_NETWORK), "");
    ASSERT_INT(info.network, CAY_NETWORK_HOST);
}

static void expect_range(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_RUNG_RANGE);

    look(sandbox);
    ASSERT_HAS(by(CAY_LAYER_USER), " of /etc/subuid");
    ASSERT_INT(info.id_count, 65536);
    ASSERT_STR(by(CAY_LAYER_PIDS), "rlimit nproc, for each user inside");
    ASSERT_STR(by(CAY_LAYER_MEMORY), "");
    ASSERT_STR(by(CAY_LAYER_CGROUP), "");
    ASSERT_STR(by(CAY_LAYER_DISK), "tmpfs size");
    run(sandbox, "awk '{print $1, $3}' /proc/self/uid_map; id -u; exit 0");
    ASSERT_STR(result.out, "0 1000\n1000 1\n1001 64535\n1000\n");
    run_as(sandbox, "root", "id -u; touch /root/x && stat -c %u /root/x", 20000);
    ASSERT_STR(result.out, "0\n0\n");
    cay_exec_done(&result);
}

TEST(a_user_with_subordinate_ids_has_all_users_inside)
{
    as_ordinary(ordinary_user(true), expect_range);
}

static void expect_single(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_RUNG_SINGLE);
    char ids[64];

    look(sandbox);
    snprintf(ids, sizeof ids, "user namespace with user id %u only", (unsigned)getuid());
    ASSERT_STR(by(CAY_LAYER_USER), ids);
    ASSERT_INT(info.id_base, getuid());
    ASSERT_INT(info.id_count, 1);
    ASSERT_STR(by(CAY_LAYER_PIDS), "rlimit nproc, for each user inside");
    ASSERT_STR(by(CAY_LAYER_CGROUP), "");
    run(sandbox, "id -u; cat /proc/self/uid_map | wc -l; "
                 "grep CapEff /proc/self/status | cut -f2");
    ASSERT_STR(result.out, "1000\n1\n0000000000000000\n");
    cay_exec_done(&result);
}

TEST(a_user_without_is_alone_inside)
{
    as_ordinary(ordinary_user(false), expect_single);
}

static void expect_landlock(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_RUNG_LANDLOCK);
    char script[128];

    look(sandbox);
    ASSERT_INT(info.layers, CAY_LAYER_SECCOMP | CAY_LAYER_LANDLOCK | CAY_LAYER_NETWORK);
    ASSERT_HAS(by(CAY_LAYER_LANDLOCK), "landlock ABI ");
    ASSERT_STR(by(CAY_LAYER_NETWORK), "seccomp: no sockets");
    ASSERT_INT(info.id_base, getuid());
    snprintf(script, sizeof script, "[ $(id -u) = %u ] && echo it is us", getuid());
    run(sandbox, script);
    ASSERT_STR(result.out, "it is us\n");
    cay_exec_done(&result);
}

TEST(without_user_namespaces_there_is_landlock_and_seccomp_and_no_more)
{
    as_ordinary(ordinary_user(false), expect_landlock);
}

/* Root's programs do not run as root even where nothing is mapped. */
TEST(root_lends_a_user_id_of_its_own_to_the_lower_rungs)
{
    static const enum cay_rung rungs[] = {CAY_RUNG_SINGLE, CAY_RUNG_LANDLOCK};

    for (size_t i = 0; i < 2; i++) {
        cay_sandbox *sandbox = make_on(rungs[i]);
        look(sandbox);
        ASSERT(info.id_base >= 0x70000000);
        ASSERT_INT(info.id_base & 0xFFFF, 1000);
        ASSERT_INT(info.id_count, 1);
        run(sandbox, "id -u; id -G; cat /etc/shadow 2>/dev/null | grep -c '^root:[$]'");
        ASSERT(strncmp(result.out, "0\n", 2) != 0);
        ASSERT_HAS(result.out, "\n0\n"); /* no line of the host's shadow */
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        cay_sandbox_free(sandbox);
    }
    cay_exec_done(&result);
}

/* --- The end of trees --- */

/* Processes of a user; those that are dead do not count. */
static size_t count_processes(uid_t uid)
{
    DIR *directory = opendir("/proc");
    size_t count = 0;

    ASSERT(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[300], line[256], state = 0;
        long owner = -1;
        snprintf(path, sizeof path, "/proc/%s/status", entry->d_name);
        FILE *status =
            entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        while (status && fgets(line, sizeof line, status))
            if (strncmp(line, "State:", 6) == 0)
                state = line[7];
            else if (strncmp(line, "Uid:", 4) == 0)
                owner = strtol(line + 4, NULL, 10);
        if (status)
            fclose(status);
        count += owner == (long)uid && state != 'Z' && state != 'X';
    }
    closedir(directory);
    return count;
}

/* What this user has running besides us: init and whatever is inside. */
static size_t count_others(void)
{
    return count_processes(getuid()) - 1;
}

static enum cay_rung rung_here;

static void kill_trees(void)
{
    AUTO(cay_sandbox) sandbox = make_on(rung_here);
    size_t before = count_others();

    run_as(sandbox, NULL,
           "trap '' TERM INT HUP; echo before; setsid sleep 1000 & "
           "(setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' &); "
           "setsid setsid sh -c 'setsid sleep 1000 & exit 0'; sleep 1000",
           700);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_STR(result.out, "before\n");
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

static void kill_trees_on(enum cay_rung rung)
{
    rung_here = rung;
    as_ordinary(user_of(rung), kill_trees);
}

TEST(a_tree_dies_whole_on_the_rung_range)
{
    kill_trees_on(CAY_RUNG_RANGE);
}

TEST(a_tree_dies_whole_on_the_rung_single)
{
    kill_trees_on(CAY_RUNG_SINGLE);
}

TEST(a_tree_dies_whole_on_the_rung_landlock)
{
    kill_trees_on(CAY_RUNG_LANDLOCK);
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
    AUTO(cay_sandbox) sandbox = make_on(rung_here);
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
    static const enum cay_rung rungs[] = {CAY_RUNG_RANGE, CAY_RUNG_SINGLE,
                                          CAY_RUNG_LANDLOCK};

    for (size_t i = 0; i < 3; i++) {
        rung_here = rungs[i];
        as_ordinary(user_of(rung_here), kill_hoppers);
    }
}

/* Whoever holds a command may be of the same user, and is still not for it to kill. */
static void attack_holders(void)
{
    AUTO(cay_sandbox) sandbox = make_on(rung_here);

    run(sandbox, "kill -9 $PPID 2>/dev/null && echo ESCAPE; "
                 "kill -STOP $PPID 2>/dev/null && echo ESCAPE; "
                 "kill -9 -1; echo still");
    ASSERT(!strstr(result.out, "ESCAPE"));
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    cay_exec_done(&result);
}

TEST(a_command_cannot_signal_those_that_hold_it)
{
    static const enum cay_rung rungs[] = {CAY_RUNG_RANGE, CAY_RUNG_SINGLE,
                                          CAY_RUNG_LANDLOCK};

    for (size_t i = 0; i < 3; i++) {
        rung_here = rungs[i];
        as_ordinary(user_of(rung_here), attack_holders);
    }
}

/* On older kernels it could; what it held then dies. */
static void kill_the_holder_from_outside(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_RUNG_LANDLOCK);
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
    as_ordinary(ordinary_user(false), kill_the_holder_from_outside);
}

/* Nobody is there to be told, so all of it must go by itself. */
static void kill_init_from_outside(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_RUNG_LANDLOCK);
    const struct timespec moment = {.tv_nsec = 10000000};

    run(sandbox, "setsid sleep 1000 & (setsid sleep 1000 &); exit 0");
    look(sandbox);
    ASSERT(count_others() >= 3);
    ASSERT(kill(info.init_pid, SIGKILL) == 0);
    for (int i = 0; i < 500 && count_others() > 0; i++)
        nanosleep(&moment, NULL);
    ASSERT_INT(count_others(), 0);
    cay_exec_done(&result);
}

TEST(the_death_of_init_is_the_death_of_all_also_without_a_pid_namespace)
{
    as_ordinary(ordinary_user(false), kill_init_from_outside);
}

/* --- Limits --- */

static void fill_processes(void)
{
    const struct cay_sandbox_options few = {
        .size = sizeof few, .rung = rung_here, .pids = 20};
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
    rung_here = CAY_RUNG_SINGLE;
    as_ordinary(ordinary_user(false), fill_processes);
    rung_here = CAY_RUNG_RANGE;
    as_ordinary(ordinary_user(true), fill_processes);
}

/* Two sandboxes of a user do not count for each other. */
static void fill_two(void)
{
    const struct cay_sandbox_options few = {
        .size = sizeof few, .rung = CAY_RUNG_SINGLE, .pids = 20};
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
    struct cay_sandbox_options wish = {.size = sizeof wish, .rung = rung_here};
    cay_sandbox *sandbox = NULL;

    wish.memory_bytes = 600 << 20;
    ASSERT_CODE(cay_sandbox_create(&wish, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.message, "cannot keep a limit");
    ASSERT_HAS(err.hint, "missing: memory; no cgroup is delegated");
    ASSERT_HAS(err.hint, "systemd-run --user --scope -p Delegate=yes");
    wish.memory_bytes = 0;
    wish.cpu_percent = 50;
    ASSERT_CODE(cay_sandbox_create(&wish, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "missing: cpu");
    wish.cpu_percent = 0;
    if (rung_here != CAY_RUNG_LANDLOCK)
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
    static const enum cay_rung rungs[] = {CAY_RUNG_RANGE, CAY_RUNG_SINGLE,
                                          CAY_RUNG_LANDLOCK};

    for (size_t i = 0; i < 3; i++) {
        rung_here = rungs[i];
        as_ordinary(user_of(rung_here), refuse_limits);
    }
}

static void exceed_memory(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_RUNG_SINGLE);

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

static void name_delegated(char *path, size_t room, size_t i, const char *below)
{
    snprintf(path, room, "%s/cay-test-%d%s", hierarchies[i], (int)getpid(), below);
}

static void remove_delegated(void)
{
    char path[128];

    for (size_t i = 0; i < 4; i++) {
        name_delegated(path, sizeof path, i, "");
        (void)rmdir(path);
    }
}

/* As systemd does for a scope with Delegate=yes. */
static void delegate(const struct ordinary *user)
{
    static const char *const given[] = {"", "/cgroup.procs", "/tasks",
                                        "/cgroup.subtree_control"};
    char path[128];

    for (size_t i = 0; i < 4; i++) {
        name_delegated(path, sizeof path, i, "");
        if (mkdir(path, 0755) != 0) {
            remove_delegated();
            SKIP("the cgroups of this machine are elsewhere");
        }
        for (size_t k = 0; k < 4; k++) {
            name_delegated(path, sizeof path, i, given[k]);
            (void)!chown(path, user->uid, user->gid);
        }
    }
}

static void enter_delegated(pid_t of)
{
    char path[128];

    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/cay-test-%d/cgroup.procs", hierarchies[i],
                 (int)of);
        FILE *file = fopen(path, "we");
        if (!file || fputs("0", file) < 0 || fclose(file) != 0)
            _exit(6);
    }
}

static void use_delegated(void)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .rung = rung_here,
                                                .memory_bytes = 64 << 20,
                                                .pids = 30,
                                                .cpu_percent = 100,
                                                .require = CAY_LAYER_CGROUP};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);

    look(sandbox);
    ASSERT_HAS(by(CAY_LAYER_MEMORY), "cgroup v1 memory");
    ASSERT_HAS(by(CAY_LAYER_PIDS), "cgroup v1 pids");
    ASSERT_HAS(by(CAY_LAYER_CPU), "cgroup v1 cpu");
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

static void use_delegated_on(enum cay_rung rung)
{
    const struct ordinary *user = user_of(rung);
    int status;

    rung_here = rung;
    delegate(user);
    fflush(stdout);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        enter_delegated(parent);
        become_ordinary(user);
        use_delegated();
        _exit(0);
    }
    pid_t got = waitpid(pid, &status, 0);
    char path[128];
    name_delegated(path, sizeof path, 0, "");
    size_t left = count_names(path, "cay-");
    remove_delegated();
    ASSERT_INT(got, pid);
    ASSERT_INT(status, 0);
    ASSERT_INT(left, 0);
}

TEST(delegated_cgroups_keep_limits_on_the_rung_range)
{
    use_delegated_on(CAY_RUNG_RANGE);
}

TEST(delegated_cgroups_keep_limits_on_the_rung_single)
{
    use_delegated_on(CAY_RUNG_SINGLE);
}

TEST(delegated_cgroups_keep_limits_on_the_rung_landlock)
{
    use_delegated_on(CAY_RUNG_LANDLOCK);
}

/* --- Refusals --- */

static void refuse_users(void)
{
    static const char *const others[] = {"root", "0", "1001", "nobody", "nonexistent"};
    AUTO(cay_sandbox) sandbox = make_on(rung_here);
    struct cay_sandbox_options wish = {
        .size = sizeof wish, .rung = rung_here, .user = "root"};
    const char *const argv[] = {"id", NULL};
    struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    cay_sandbox *none = NULL;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        options.user = others[i];
        ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err),
                    CAY_E_UNSUPPORTED);
        ASSERT_HAS(err.hint, "newuidmap");
        ASSERT_HAS(err.hint, "/etc/subuid");
    }
    options.user = "1000";
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_CODE(cay_sandbox_create(&wish, &none, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "newuidmap");
    cay_exec_done(&result);
}

TEST(other_users_are_refused_where_there_is_one)
{
    rung_here = CAY_RUNG_SINGLE;
    as_ordinary(ordinary_user(false), refuse_users);
    rung_here = CAY_RUNG_LANDLOCK;
    as_ordinary(ordinary_user(false), refuse_users);
}

static void refuse_pause(void)
{
    AUTO(cay_sandbox) sandbox = make_on(rung_here);

    ASSERT_CODE(cay_sandbox_pause(sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "delegated cgroup");
    run(sandbox, "echo goes on");
    ASSERT_STR(result.out, "goes on\n");
    cay_exec_done(&result);
}

TEST(a_pause_is_refused_where_no_cgroup_can_be_frozen)
{
    static const enum cay_rung rungs[] = {CAY_RUNG_RANGE, CAY_RUNG_SINGLE,
                                          CAY_RUNG_LANDLOCK};

    for (size_t i = 0; i < 3; i++) {
        rung_here = rungs[i];
        as_ordinary(user_of(rung_here), refuse_pause);
    }
}

static void refuse_wish(const struct cay_sandbox_options *wish, const char *subject)
{
    struct cay_sandbox_options own = *wish;
    cay_sandbox *sandbox = NULL;

    own.size = sizeof own;
    own.rung = CAY_RUNG_LANDLOCK;
    ASSERT_CODE(cay_sandbox_create(&own, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, subject);
}

static void refuse_wishes(void)
{
    const struct cay_bind elsewhere = {"/usr", "/data", false};

    refuse_wish(&(struct cay_sandbox_options){.hostname = "x"}, "hostname");
    refuse_wish(&(struct cay_sandbox_options){.storage = CAY_STORAGE_DISK}, "storage");
    refuse_wish(&(struct cay_sandbox_options){.binds = &elsewhere, .bind_count = 1},
                "bind");
}

TEST(what_needs_a_root_of_its_own_is_refused_on_the_rung_landlock)
{
    as_ordinary(ordinary_user(false), refuse_wishes);
}

/* --- The walls of the rung landlock --- */

static void must_fail(cay_sandbox *sandbox, const char *script)
{
    run(sandbox, script);
    if (strstr(result.out, "ESCAPE") || result.cause != CAY_CAUSE_EXITED)
        harness_fail(__FILE__, __LINE__, "%s\n# out: %s\n# err: %s", script, result.out,
                     result.error);
}

static void climb_the_walls(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_RUNG_LANDLOCK);
    char script[512], file[128];

    /* Something of the same user's, outside. */
    snprintf(file, sizeof file, "%s/secret", getenv("XDG_RUNTIME_DIR"));
    FILE *secret = fopen(file, "we");
    ASSERT(secret && fputs("secret", secret) >= 0 && fclose(secret) == 0);
    pid_t victim = fork();
    ASSERT(victim >= 0);
    if (victim == 0) {
        pause();
        _exit(0);
    }
    snprintf(script, sizeof script,
             "cat %s && echo ESCAPE; echo x > %s && echo ESCAPE; "
             ": > %s && echo ESCAPE; rm %s && echo ESCAPE; mv %s $HOME && echo ESCAPE; "
             "ln %s $HOME/l && echo ESCAPE; ls $XDG_RUNTIME_DIR/.. && true",
             file, file, file, file, file, file);
    must_fail(sandbox, script);
    must_fail(sandbox, "echo x > /tmp/x$$ && echo ESCAPE; ls /home && echo ESCAPE; "
                       "cat /etc/hostname && echo ESCAPE; ls /tmp && echo ESCAPE; "
                       "cat /proc/self/environ && echo ESCAPE; ls /proc && echo ESCAPE; "
                       "ls /sys && echo ESCAPE; ls /run && echo ESCAPE; true");
    snprintf(script, sizeof script,
             "kill -9 %d && echo ESCAPE; kill -STOP %d && echo ESCAPE; "
             "renice -n 5 -p %d && echo ESCAPE; "
             "prlimit --pid %d --nofile=1:1 && echo ESCAPE; "
             "cat /proc/%d/environ && echo ESCAPE; true",
             victim, victim, victim, victim, victim);
    must_fail(sandbox, script);
    ASSERT(kill(victim, SIGKILL) == 0);
    ASSERT_INT(waitpid(victim, NULL, 0), victim);
    FILE *after = fopen(file, "re");
    char text[16] = "";
    ASSERT(after && fgets(text, sizeof text, after));
    fclose(after);
    ASSERT_STR(text, "secret");
    ASSERT(unlink(file) == 0);
    /* Its own directory is its own. */
    run(sandbox, "cd && mkdir d && echo 1 > d/f && mv d e && cat e/f && rm -r e && "
                 "mktemp > /dev/null && echo fine");
    ASSERT_STR(result.out, "1\nfine\n");
    cay_exec_done(&result);
}

TEST(landlock_alone_keeps_files_and_processes_of_the_same_user_out_of_reach)
{
    as_ordinary(ordinary_user(false), climb_the_walls);
}

static void try_calls(void)
{
    static const char program[] =
        "import ctypes, os, platform, socket\n"
        "for family in (1, 2, 10, 16, 17, 38):\n"
        "    try:\n"
        "        socket.socket(family, socket.SOCK_DGRAM); print('ESCAPE', family)\n"
        "    except OSError: pass\n"
        "a, b = socket.socketpair(); a.send(b'pairs work'); print(b.recv(99).decode())\n"
        "c = ctypes.CDLL(None, use_errno=True)\n"
        "x = platform.machine() == 'x86_64'\n"
        "n = dict(ptrace=101, process_vm_readv=310, shmget=29, msgget=68, semget=64,"
        " kcmp=312) if x else dict(ptrace=117, process_vm_readv=270, shmget=194,"
        " msgget=186, semget=190, kcmp=272)\n"
        "for name in n:\n"
        "    r = c.syscall(n[name], 0, 0, 0, 0, 0, 0)\n"
        "    if r != -1 or ctypes.get_errno() != 1: print('ESCAPE', name, r)\n";
    AUTO(cay_sandbox) sandbox = make_on(CAY_RUNG_LANDLOCK);
    const char *const argv[] = {"python3", "-c", program, NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};

    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_STR(result.error, "");
    ASSERT_STR(result.out, "pairs work\n");
    cay_exec_done(&result);
}

TEST(sockets_and_the_memory_of_others_are_refused_on_the_rung_landlock)
{
    as_ordinary(ordinary_user(false), try_calls);
}

static void list_own(void)
{
    AUTO(cay_sandbox) sandbox = make_on(rung_here);
    struct cay_process_info *processes = NULL;
    size_t count = 0;

    run(sandbox, "sleep 1000 & (setsid sleep 1001 &); "
                 "while ! mkdir /tmp/none 2>/dev/null; do i=$((i+1)); "
                 "[ $i -gt 200 ] && break; done; exit 0");
    ASSERT_OK(cay_process_list(sandbox, &processes, &count, &err));
    ASSERT_INT(count, 2);
    for (size_t i = 0; i < count; i++)
        ASSERT_HAS(processes[i].command, "sleep 100");
    cay_free(processes);
    cay_exec_done(&result);
}

TEST(a_list_has_what_runs_inside_and_nothing_else)
{
    static const enum cay_rung rungs[] = {CAY_RUNG_RANGE, CAY_RUNG_SINGLE,
                                          CAY_RUNG_LANDLOCK};

    for (size_t i = 0; i < 3; i++) {
        rung_here = rungs[i];
        as_ordinary(user_of(rung_here), list_own);
    }
}

/* --- Falling, and not falling --- */

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    ASSERT(file);
    ASSERT(fputs(text, file) >= 0);
    ASSERT(fclose(file) == 0);
}

/* A host whose administrator does not want user namespaces.  In it we are called root,
 * and are still nobody special. */
static void forbid_namespaces(void)
{
    char users[64], groups[64];

    snprintf(users, sizeof users, "0 %u 1", (unsigned)getuid());
    snprintf(groups, sizeof groups, "0 %u 1", (unsigned)getgid());
    ASSERT(unshare(CLONE_NEWUSER) == 0);
    write_text("/proc/self/setgroups", "deny");
    write_text("/proc/self/uid_map", users);
    write_text("/proc/self/gid_map", groups);
    write_text("/proc/sys/user/max_user_namespaces", "0");
}

static void fall_to_landlock(void)
{
    const struct cay_sandbox_options best = {.size = sizeof best, .ephemeral = true};
    struct cay_sandbox_options demand = best;
    cay_sandbox *sandbox = NULL;

    forbid_namespaces();
    ASSERT_OK(cay_sandbox_create(&best, &sandbox, &err));
    look(sandbox);
    ASSERT_INT(info.rung, CAY_RUNG_LANDLOCK);
    run(sandbox, "echo it runs");
    ASSERT_STR(result.out, "it runs\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
    demand.require = CAY_LAYER_PID | CAY_LAYER_MOUNT;
    ASSERT_CODE(cay_sandbox_create(&demand, &sandbox, &err), CAY_E_UNAVAILABLE);
    ASSERT_HAS(err.hint, "cay doctor");
    cay_exec_done(&result);
}

TEST(a_host_without_user_namespaces_gives_the_rung_landlock)
{
    as_ordinary(ordinary_user(false), fall_to_landlock);
}

static void require_layers(void)
{
    struct cay_sandbox_options demand = {.size = sizeof demand, .ephemeral = true};
    cay_sandbox *sandbox = NULL;

    demand.require = CAY_LAYER_MEMORY | CAY_LAYER_CPU | CAY_LAYER_SECCOMP;
    ASSERT_CODE(cay_sandbox_create(&demand, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, "require");
    ASSERT_HAS(err.hint, "missing: memory, cpu; no cgroup is delegated");
    demand.rung = CAY_RUNG_LANDLOCK;
    demand.require = CAY_LAYER_PID | CAY_LAYER_USER;
    ASSERT_CODE(cay_sandbox_create(&demand, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "missing: user, pid; no user namespaces: see cay doctor");
    ASSERT_INT(count_names(runtime_path(), "sb-"), 0);
    demand.rung = CAY_RUNG_BEST;
    demand.require = CAY_LAYER_PID | CAY_LAYER_USER | CAY_LAYER_PIDS | CAY_LAYER_DISK |
                     CAY_LAYER_SECCOMP | CAY_LAYER_LANDLOCK;
    ASSERT_OK(cay_sandbox_create(&demand, &sandbox, &err));
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
}

TEST(a_required_layer_that_is_missing_is_an_error_that_names_it)
{
    struct cay_sandbox_options demand = {
        .size = sizeof demand, .network = CAY_NETWORK_HOST, .require = CAY_LAYER_NETWORK};
    cay_sandbox *sandbox = NULL;

    need_root();
    ASSERT_CODE(cay_sandbox_create(&demand, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "missing: network; the network was asked to be the host's");
    as_ordinary(ordinary_user(false), require_layers);
}

/* --- Looking at all of them --- */

TEST(a_list_of_sandboxes_is_by_age_and_has_only_the_living)
{
    const struct timespec moment = {.tv_nsec = 3000000};
    cay_sandbox *sandboxes[3];
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0, found = 0;

    for (size_t i = 0; i < 3; i++) {
        sandboxes[i] = make_sandbox(NULL);
        nanosleep(&moment, NULL);
    }
    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        if (found < 3 && strcmp(infos[i].id, cay_sandbox_id(sandboxes[found])) == 0)
            found++;
    ASSERT_INT(found, 3);
    cay_free(infos);
    ASSERT_OK(cay_sandbox_kill(sandboxes[1], &err));
    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        ASSERT(strcmp(infos[i].id, cay_sandbox_id(sandboxes[1])) != 0);
    cay_free(infos);
    ASSERT_CODE(cay_sandbox_inspect(sandboxes[1], &info, &err), CAY_E_NOT_FOUND);
    for (size_t i = 0; i < 3; i++) {
        ASSERT_OK(cay_sandbox_kill(sandboxes[i], &err));
        cay_sandbox_free(sandboxes[i]);
    }
}

static void list_nobody_elses(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_RUNG_SINGLE);
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_STR(infos[0].id, cay_sandbox_id(sandbox));
    cay_free(infos);
}

TEST(a_user_sees_its_own_sandboxes_only)
{
    AUTO(cay_sandbox) roots = make_sandbox(NULL);

    as_ordinary(ordinary_user(false), list_nobody_elses);
}

TEST(a_record_that_is_not_sound_is_not_believed)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char path[PATH_MAX];
    cay_sandbox *again = NULL;
    uint32_t version = 0;

    snprintf(path, sizeof path, "%s/%s/record", runtime_path(), cay_sandbox_id(sandbox));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ASSERT(fd >= 0);
    ASSERT(pread(fd, &version, sizeof version, 0) == sizeof version);
    uint32_t other = version + 1;
    ASSERT(pwrite(fd, &other, sizeof other, 0) == sizeof other);
    ASSERT_CODE(cay_sandbox_open(cay_sandbox_id(sandbox), &again, &err), CAY_E_INTERNAL);
    ASSERT_HAS(err.message, "version");
    ASSERT(pwrite(fd, &version, sizeof version, 0) == sizeof version);
    (void)close(fd);
    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &again, &err));
    cay_sandbox_free(again);
}

/* --- Ids --- */

TEST(two_homes_never_share_a_range)
{
    enum { EACH = 8 };
    cay_sandbox *sandboxes[2 * EACH];
    uint32_t bases[2 * EACH];

    need_root();
    for (size_t i = 0; i < 2 * EACH; i++) {
        setenv("CAY_HOME", scratch_path(i % 2 ? "one" : "other"), 1);
        sandboxes[i] = make_sandbox(NULL);
        look(sandboxes[i]);
        bases[i] = info.id_base;
        ASSERT(bases[i] >= 0x70000000 && bases[i] < 0x7FFF0000);
        ASSERT_INT(bases[i] % 65536, 0);
        for (size_t k = 0; k < i; k++)
            ASSERT(bases[k] != bases[i]);
    }
    unsetenv("CAY_HOME");
    for (size_t i = 0; i < 2 * EACH; i++) {
        ASSERT_OK(cay_sandbox_kill(sandboxes[i], &err));
        cay_sandbox_free(sandboxes[i]);
    }
}

static void share_own_files(void)
{
    char source[128], file[160];
    snprintf(source, sizeof source, "%s/shared", getenv("XDG_RUNTIME_DIR"));
    ASSERT(mkdir(source, 0700) == 0);
    const struct cay_bind bind = {source, "/mnt", true};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .rung = rung_here, .binds = &bind, .bind_count = 1};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    struct stat st;

    run(sandbox, "echo text > /mnt/file && stat -c %U /mnt/file");
    ASSERT_STR(result.out, "user\n");
    snprintf(file, sizeof file, "%s/file", source);
    ASSERT(stat(file, &st) == 0);
    ASSERT_INT(st.st_uid, getuid());
    ASSERT(unlink(file) == 0 && rmdir(source) == 0);
    cay_exec_done(&result);
}

TEST(what_a_user_shows_inside_belongs_to_user_there)
{
    rung_here = CAY_RUNG_RANGE;
    as_ordinary(ordinary_user(true), share_own_files);
    rung_here = CAY_RUNG_SINGLE;
    as_ordinary(ordinary_user(false), share_own_files);
}

/* --- What stays outside --- */

static void find_in(pid_t pid, const char *what)
{
    char path[64], link[320], target[256];

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    ASSERT(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        snprintf(link, sizeof link, "%s/%s", path, entry->d_name);
        ssize_t len = readlink(link, target, sizeof target - 1);
        target[len > 0 ? len : 0] = '\0';
        if (strstr(target, what))
            harness_fail(__FILE__, __LINE__, "%d has %s", (int)pid, target);
    }
    closedir(directory);
}

/* Init, and without a PID namespace the command by its number too. */
TEST(the_callers_terminal_and_log_file_do_not_go_inside)
{
    static const enum cay_rung rungs[] = {CAY_RUNG_ROOT, CAY_RUNG_SINGLE,
                                          CAY_RUNG_LANDLOCK};
    int log = open(scratch_path("the.log"), O_RDWR | O_CREAT | O_APPEND, 0600);
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    const char *const argv[] = {"sleep", "1000", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .flags = CAY_EXEC_BACKGROUND};

    need_root();
    ASSERT(log >= 0 && terminal >= 0);
    for (size_t i = 0; i < 3; i++) {
        cay_process *process = NULL;
        cay_sandbox *sandbox = make_on(rungs[i]);
        ASSERT_OK(cay_process_start(sandbox, &options, &process, &err));
        look(sandbox);
        find_in(info.init_pid, "the.log");
        find_in(info.init_pid, "/dev/ptmx");
        if (rungs[i] == CAY_RUNG_LANDLOCK) {
            find_in(cay_process_pid(process), "the.log");
            find_in(cay_process_pid(process), "ptmx");
        }
        ASSERT(getsid(info.init_pid) != getsid(0));
        cay_process_free(process);
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        cay_sandbox_free(sandbox);
    }
    (void)close(log);
    (void)close(terminal);
    ASSERT_STR(get_file("the.log"), "");
}

/* --- The runtime directory --- */

static void use_fallback(void)
{
    char path[64];
    struct stat st;

    unsetenv("XDG_RUNTIME_DIR");
    snprintf(path, sizeof path, "/tmp/cay-%u", (unsigned)getuid());
    cay_sandbox *sandbox = make_on(CAY_RUNG_SINGLE);
    ASSERT(lstat(path, &st) == 0 && S_ISDIR(st.st_mode));
    ASSERT_INT(st.st_mode & 0777, 0700);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
    ASSERT(rmdir(path) == 0);
    /* Not what somebody else has put there. */
    ASSERT(symlink(scratch(), path) == 0);
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .rung = CAY_RUNG_SINGLE};
    int code = cay_sandbox_create(&options, &sandbox, &err);
    ASSERT(unlink(path) == 0);
    ASSERT(rmdir(scratch()) == 0);
    ASSERT_INT(code, CAY_E_UNAVAILABLE);
    ASSERT_HAS(err.message, "not this user's own");
}

TEST(without_a_runtime_directory_there_is_a_private_one)
{
    as_ordinary(ordinary_user(false), use_fallback);
}
