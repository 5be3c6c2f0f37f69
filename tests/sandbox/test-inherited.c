/* SPDX-License-Identifier: Apache-2.0 */

/* What a process has from who started it (limits, priorities, the umask), and what of
 * that comes into a sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "ladder.h"

/* --- The umask --- */

static void forbid_it_oneself(void)
{
    static const mode_t masks[] = {0777, 0277, 0077};

    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        cay_sandbox *again = NULL;
        umask(masks[i]);
        AUTO(cay_sandbox) sandbox = make_on(level_here);
        ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &again, &err));
        run(again, "umask; stat -c %a /tmp .");
        ASSERT_STR(result.out, "0022\n1777\n755\n");
        cay_sandbox_free(again);
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        char path[200];
        snprintf(path, sizeof path, "%s/cay/ranges", getenv("XDG_RUNTIME_DIR"));
        (void)rmdir(path);
        *strrchr(path, '/') = '\0';
        ASSERT_INT(rmdir(path), 0); /* so that the next one makes it again */
    }
    cay_exec_done(&result);
}

TEST(a_sandbox_does_not_depend_on_the_umask_of_its_creator)
{
    on_level(CAY_LEVEL_RANGE, forbid_it_oneself);
    on_level(CAY_LEVEL_SINGLE, forbid_it_oneself);
}

/* --- The environment --- */

static void have_no_home(void)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;

    unsetenv("HOME");
    AUTO(cay_sandbox) sandbox = make_on(level_here);
    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    ASSERT_INT(count, 1);
    cay_free(infos);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
}

TEST(a_user_without_home_can_list_sandboxes)
{
    on_level(CAY_LEVEL_SINGLE, have_no_home);
}

/* --- Limits --- */

static void limit_oneself(void)
{
    const struct rlimit cpu = {7, RLIM_INFINITY}, size = {1 << 20, RLIM_INFINITY};

    ASSERT(setrlimit(RLIMIT_CPU, &cpu) == 0 && setrlimit(RLIMIT_FSIZE, &size) == 0);
    AUTO(cay_sandbox) sandbox = make_on(level_here);
    run(sandbox, "ulimit -t; ulimit -f; ulimit -H -t");
    ASSERT_STR(result.out, "7\n2048\nunlimited\n");
    /* Which may outlive its maker, and works for all its commands. */
    run(sandbox, "awk '/^Max (cpu time|file size)/ {print $4}' /proc/1/limits");
    ASSERT_STR(result.out, "unlimited\nunlimited\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_exec_done(&result);
}

TEST(limits_that_would_end_pid_1_are_for_commands_only)
{
    need_root();
    level_here = CAY_LEVEL_ROOT;
    in_own_process(limit_oneself);
}

/* --- Real time --- */

static void go_before_all(void)
{
    const struct sched_param first = {.sched_priority = 10};

    if (syscall(SYS_sched_setscheduler, 0, SCHED_RR, &first) != 0) {
        harness_remark("left out: there is no real time here");
        return;
    }
    ASSERT(syscall(SYS_ioprio_set, 1, 0, 1 << 13) == 0);
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_ROOT);
    run(sandbox, "cut -d' ' -f41 /proc/self/stat /proc/1/stat; ionice -p $$");
    ASSERT_STR(result.out, "0\n0\nnone: prio 0\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_exec_done(&result);
}

TEST(real_time_is_not_passed_on)
{
    need_root();
    in_own_process(go_before_all);
}

/* --- CPUs --- */

/* As many processes as there are CPUs, and one more. */
static void be_busy(pid_t hogs[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hogs[i] = fork();
        if (hogs[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                continue;
        }
    }
}

static void have_no_idle_cpu(void)
{
    enum { HOGS_MAX = 256 };
    pid_t hogs[HOGS_MAX];
    cpu_set_t before, after;
    char expected[8192], line[8192] = "";
    size_t count = (size_t)sysconf(_SC_NPROCESSORS_ONLN) + 1;

    ASSERT(sched_getaffinity(0, sizeof before, &before) == 0);
    FILE *status = fopen("/proc/self/status", "re");
    while (fgets(line, sizeof line, status) && strncmp(line, "Cpus_allowed:", 13) != 0)
        continue;
    fclose(status);
    snprintf(expected, sizeof expected, "%s", line);
    count = count < HOGS_MAX ? count : HOGS_MAX;
    be_busy(hogs, count);
    AUTO(cay_sandbox) sandbox = make_on(level_here);
    run(sandbox, "grep Cpus_allowed: /proc/self/status");
    for (size_t i = 0; i < count; i++) {
        (void)kill(hogs[i], SIGKILL);
        (void)waitpid(hogs[i], NULL, 0);
    }
    ASSERT_STR(result.out, expected);
    cay_exec_done(&result);
    ASSERT(sched_getaffinity(0, sizeof after, &after) == 0);
    ASSERT(CPU_EQUAL(&before, &after));
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
}

TEST(a_sandbox_that_is_created_on_a_busy_machine_may_use_every_cpu)
{
    need_root();
    level_here = CAY_LEVEL_ROOT;
    in_own_process(have_no_idle_cpu);
    on_level(CAY_LEVEL_SINGLE, have_no_idle_cpu);
}

/* --- The OOM score --- */

static void have_a_score(void)
{
    AUTO(cay_sandbox) sandbox = make_on(level_here);

    run(sandbox, "cat /proc/self/oom_score_adj");
    long inside = strtol(result.out, NULL, 10);
    FILE *file = fopen("/proc/self/oom_score_adj", "re");
    long own;
    ASSERT(file && fscanf(file, "%ld", &own) == 1);
    fclose(file);
    ASSERT_INT(inside, own < 500 ? own + 500 : 1000);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_exec_done(&result);
}

/* Finding R12. */
TEST(the_kernel_ends_processes_of_a_sandbox_before_its_maker)
{
    on_level(CAY_LEVEL_RANGE, have_a_score);
    on_level(CAY_LEVEL_SINGLE, have_a_score);
}

/* --- A listener of system calls --- */

/* Prints the errno of a filter that cannot be read. */
static const char install_filter[] = "python3 -c 'import ctypes\n"
                                     "libc = ctypes.CDLL(None, use_errno=True)\n"
                                     "libc.prctl(38, 1, 0, 0, 0)\n"
                                     "libc.prctl(22, 2, 4096, 0, 0)\n"
                                     "print(ctypes.get_errno())'";

static void have_a_listener(void)
{
    struct sock_filter code = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {.len = 1, .filter = &code};

    AUTO(cay_sandbox) before = make_on(level_here);
    run(before, install_filter);
    ASSERT_INT(strtol(result.out, NULL, 10), EFAULT);
    ASSERT_OK(cay_sandbox_kill(before, &err));
    ASSERT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    ASSERT(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                   &program) >= 0);
    AUTO(cay_sandbox) sandbox = make_on(level_here);
    run(sandbox, install_filter);
    ASSERT_INT(strtol(result.out, NULL, 10), ENOSYS);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_exec_done(&result);
}

/* Finding S3: there can be one listener, so PID 1 has none and cannot count filters. */
TEST(programs_install_no_filter_where_an_outer_sandbox_listens)
{
    on_level(CAY_LEVEL_SINGLE, have_a_listener);
    if (has_landlock())
        on_level(CAY_LEVEL_LANDLOCK, have_a_listener);
}
