/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "not-under-valgrind.h"
#include "sys/landlock.h"

/* It knows no pidfds either. */
NOT_UNDER_VALGRIND("valgrind cannot live below a seccomp filter")

/* What the child tells: the errno of each thing it tried, 0 for success. */
enum {
    OPEN_READ,
    OPEN_WRITE,
    SOCKET,
    FORK,
    EXEC,
    KILL_PARENT,
    EXECUTABLE_MEMORY,
    DUPLICATE,
    CHDIR,
    READ_INPUT,
    PROBES
};

struct probe {
    char path[256];
    pid_t parent;
};

static int outcome(long result)
{
    return result < 0 ? errno : 0;
}

/* Each of these works for any process that is not confined: the negative control runs the
 * same function. */
static void probe_all(const struct probe *probe, int input, int results[PROBES])
{
    char byte;
    char *const argv[] = {(char[]){"true"}, NULL};

    results[OPEN_READ] = outcome(syscall(SYS_openat, AT_FDCWD, probe->path, O_RDONLY, 0));
    results[OPEN_WRITE] =
        outcome(syscall(SYS_openat, AT_FDCWD, probe->path, O_WRONLY, 0));
    results[SOCKET] = outcome(socket(AF_UNIX, SOCK_STREAM, 0));
    results[KILL_PARENT] = outcome(kill(probe->parent, 0));
    /* Not mmap(): musl's turns EPERM into ENOMEM. */
    results[EXECUTABLE_MEMORY] = outcome(syscall(
        SYS_mmap, NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    results[DUPLICATE] = outcome(dup(input));
    results[CHDIR] = outcome(chdir("/"));
    results[READ_INPUT] = outcome(read(input, &byte, 1));
    long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        syscall(SYS_exit_group, 0);
    results[FORK] = outcome(pid);
    results[EXEC] = outcome(syscall(SYS_execve, "/nonexistent", argv, NULL));
}

static void probe_in_child(void *cookie)
{
    int results[PROBES];

    probe_all(cookie, WORKER_INPUT, results);
    (void)!write(WORKER_CHANNEL, results, sizeof results);
}

static int open_input(void)
{
    put_file("input", "bytes for the child");
    int fd = open(scratch_path("input"), O_RDONLY | O_CLOEXEC);
    ASSERT(fd >= 0);
    return fd;
}

static struct worker_job job_of(void (*run)(void *), void *cookie, int input)
{
    return (struct worker_job){.run = run,
                               .cookie = cookie,
                               .input = input,
                               .memory = 64 << 20,
                               .cpu_seconds = 60};
}

TEST(a_confined_child_can_use_its_two_descriptors_and_nothing_else)
{
    struct probe probe = {.parent = getpid()};
    AUTO_FD input = open_input();
    struct worker_job job = job_of(probe_in_child, &probe, input);
    AUTO_WORKER worker = WORKER_NONE;
    int results[PROBES];

    put_file("secret", "secret");
    snprintf(probe.path, sizeof probe.path, "%s", scratch_path("secret"));
    ASSERT_OK(worker_start("test", &job, &worker, &err));
    ASSERT_INT(read(worker.channel, results, sizeof results), sizeof results);
    ASSERT_INT(results[READ_INPUT], 0);
    for (int i = 0; i < READ_INPUT; i++)
        ASSERT_INT(results[i], EPERM);
}

/* The negative control: without the confinement every one of these works. */
TEST(the_same_calls_work_in_a_child_that_is_not_confined)
{
    struct probe probe = {.parent = getpid()};
    AUTO_FD input = open_input();
    int pipes[2], results[PROBES];

    put_file("secret", "secret");
    snprintf(probe.path, sizeof probe.path, "%s", scratch_path("secret"));
    ASSERT(pipe(pipes) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        probe_all(&probe, input, results);
        (void)!write(pipes[1], results, sizeof results);
        _exit(0);
    }
    ASSERT_INT(read(pipes[0], results, sizeof results), sizeof results);
    ASSERT_INT(waitpid(pid, NULL, 0), pid);
    close(pipes[0]);
    close(pipes[1]);
    for (int i = 0; i < PROBES; i++)
        ASSERT_INT(results[i], i == EXEC ? ENOENT : 0);
}

static void open_after_landlock(const char *path, int channel)
{
    int results[2] = {-1, -1};

    results[0] = outcome(open(path, O_RDONLY | O_CLOEXEC));
    results[1] = -landlock_deny_all();
    if (results[1] == 0)
        results[1] = outcome(open(path, O_RDONLY | O_CLOEXEC));
    (void)!write(channel, results, sizeof results);
    _exit(0);
}

TEST(landlock_alone_stops_the_open_too)
{
    int pipes[2], results[2];

    put_file("secret", "secret");
    ASSERT(pipe(pipes) == 0);
    const char *path = scratch_path("secret");
    pid_t pid = fork();
    if (pid == 0) {
        if (syscall(SYS_prctl, 38 /* PR_SET_NO_NEW_PRIVS */, 1, 0, 0, 0) == 0)
            open_after_landlock(path, pipes[1]);
        _exit(1);
    }
    ASSERT_INT(read(pipes[0], results, sizeof results), sizeof results);
    ASSERT_INT(waitpid(pid, NULL, 0), pid);
    close(pipes[0]);
    close(pipes[1]);
    ASSERT_INT(results[0], 0);
    if (results[1] == ENOSYS || results[1] == EOPNOTSUPP)
        SKIP("this kernel has no landlock");
    ASSERT_INT(results[1], EACCES);
}

/* The code that worker_start() returns to a program that may not make the call. */
static int start_without(int call)
{
    AUTO_FD input = open_input();
    struct worker_job job = job_of(probe_in_child, &(struct probe){0}, input);
    struct cay_error error = {0};
    int status;

    pid_t pid = fork();
    if (pid == 0) {
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
        struct worker worker;
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), call, 0);
        /* What libseccomp falls back to. */
        if (call == SCMP_SYS(seccomp))
            seccomp_rule_add(filter, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(prctl), 1,
                             SCMP_A0(SCMP_CMP_EQ, PR_SET_SECCOMP));
        if (!filter || seccomp_load(filter) != 0)
            _exit(100);
        int code = worker_start("test", &job, &worker, &error);
        if (code == CAY_OK)
            worker_end(&worker);
        _exit(-code);
    }
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT(WIFEXITED(status) && WEXITSTATUS(status) != 100);
    return -WEXITSTATUS(status);
}

TEST(without_seccomp_nothing_is_run)
{
    ASSERT_INT(start_without(SCMP_SYS(seccomp)), CAY_E_UNAVAILABLE);
}

TEST(without_landlock_there_is_still_seccomp)
{
    ASSERT_INT(start_without(SCMP_SYS(landlock_create_ruleset)), CAY_OK);
}

static void list_descriptors(void *cookie)
{
    bool open[64] = {false};
    char byte;

    (void)cookie;
    for (int fd = 0; fd < 64; fd++)
        open[fd] = read(fd, &byte, 0) == 0 || errno != EBADF;
    (void)!write(WORKER_CHANNEL, open, sizeof open);
}

TEST(no_descriptor_of_the_parent_reaches_the_child)
{
    AUTO_FD input = open_input();
    AUTO_FD other = dup(input); /* not even close-on-exec */
    AUTO_FD high = fcntl(input, F_DUPFD, 40);
    struct worker_job job = job_of(list_descriptors, NULL, input);
    AUTO_WORKER worker = WORKER_NONE;
    bool open[64];

    ASSERT(other >= 0 && high >= 40);
    ASSERT_OK(worker_start("test", &job, &worker, &err));
    ASSERT_INT(read(worker.channel, open, sizeof open), sizeof open);
    for (int fd = 0; fd < 64; fd++)
        ASSERT_INT(open[fd], fd == WORKER_CHANNEL || fd == WORKER_INPUT);
}

static void echo_input(void *cookie)
{
    char data[64];
    ssize_t len = read(WORKER_INPUT, data, sizeof data);

    (void)cookie;
    (void)!write(WORKER_CHANNEL, data, (size_t)len);
}

TEST(the_input_may_have_any_number_in_the_parent)
{
    for (int number = 3; number < 8; number++) {
        AUTO_FD input = open_input();
        AUTO_FD moved = fcntl(input, F_DUPFD_CLOEXEC, number);
        struct worker_job job = job_of(echo_input, NULL, moved);
        AUTO_WORKER worker = WORKER_NONE;
        char data[64];

        ASSERT_OK(worker_start("test", &job, &worker, &err));
        ssize_t len = read(worker.channel, data, sizeof data);
        ASSERT_MEM(data, (size_t)len, "bytes for the child", 19);
    }
}

static void run_for_ever(void *cookie)
{
    volatile unsigned count = 0;

    (void)cookie;
    for (;;)
        count = count + 1;
}

TEST(a_child_that_does_not_end_is_killed_and_reaped)
{
    AUTO_FD input = open_input();
    struct worker_job job = job_of(run_for_ever, NULL, input);
    struct worker worker;

    ASSERT_OK(worker_start("test", &job, &worker, &err));
    pid_t pid = worker.pid;
    ASSERT(kill(pid, 0) == 0);
    worker_end(&worker);
    ASSERT(kill(pid, 0) == -1 && errno == ESRCH);
    worker_end(&worker);
}

/* The address sanitizer needs more memory than any limit would leave it. */
#if defined(__SANITIZE_ADDRESS__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#ifndef HAS_SANITIZER
static void take_memory(void *cookie)
{
    size_t taken = 0;

    (void)cookie;
    while (taken < (1u << 30) && mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        taken += 1 << 20;
    (void)!write(WORKER_CHANNEL, &taken, sizeof taken);
}

TEST(a_child_gets_the_memory_of_its_job_and_no_more)
{
    AUTO_FD input = open_input();
    struct worker_job job = job_of(take_memory, NULL, input);
    AUTO_WORKER worker = WORKER_NONE;
    size_t taken;

    ASSERT_OK(worker_start("test", &job, &worker, &err));
    ASSERT_INT(read(worker.channel, &taken, sizeof taken), sizeof taken);
    ASSERT(taken >= 32u << 20);
    ASSERT(taken <= 64u << 20);
}
#endif

TEST(a_child_dies_with_its_time)
{
    AUTO_FD input = open_input();
    struct worker_job job = job_of(run_for_ever, NULL, input);
    AUTO_WORKER worker = WORKER_NONE;
    char byte;

    job.cpu_seconds = 1;
    ASSERT_OK(worker_start("test", &job, &worker, &err));
    ASSERT_INT(read(worker.channel, &byte, 1), 0);
}

/* gcc 12's address sanitizer does not give its own allocator's locks free at a fork, so
 * there the child may wait for ever, whatever we do. */
#ifndef __SANITIZE_ADDRESS__
static void write_back(void *cookie)
{
    char text[64];

    (void)cookie;
    for (int i = 0; i < 100; i++) {
        char *memory = malloc(100000);
        snprintf(text, sizeof text, "%d %d", i, memory != NULL);
        free(memory);
    }
    (void)!write(WORKER_CHANNEL, text, strlen(text) + 1);
}

static atomic_bool stop_allocating;

static void *allocate(void *argument)
{
    while (!atomic_load(&stop_allocating))
        free(malloc(1 + (size_t)(rand() % 100000)));
    return argument;
}

/* At the moment of the fork one of the threads holds the allocator's lock, more often
 * than not; with a bare clone(2) the child would then wait for it for ever. */
TEST(a_child_of_a_program_with_threads_can_allocate)
{
    pthread_t threads[3];
    char text[64];

    atomic_store(&stop_allocating, false);
    for (int i = 0; i < 3; i++)
        ASSERT(pthread_create(&threads[i], NULL, allocate, NULL) == 0);
    for (int i = 0; i < 50; i++) {
        AUTO_FD input = open_input();
        struct worker_job job = job_of(write_back, NULL, input);
        AUTO_WORKER worker = WORKER_NONE;
        ASSERT_OK(worker_start("test", &job, &worker, &err));
        ASSERT(read(worker.channel, text, sizeof text) > 0);
        ASSERT_STR(text, "99 1");
    }
    atomic_store(&stop_allocating, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}
#endif

static void reap_everything(int signal)
{
    int before = errno;

    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    errno = before;
}

static void check_with_handler(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler}, before;
    AUTO_FD input = open_input();
    struct worker_job job = job_of(echo_input, NULL, input);
    struct worker worker;
    char data[64];

    ASSERT(sigaction(SIGCHLD, &action, &before) == 0);
    ASSERT_OK(worker_start("test", &job, &worker, &err));
    ASSERT(read(worker.channel, data, sizeof data) == 19);
    ASSERT_INT(read(worker.channel, data, sizeof data), 0);
    worker_end(&worker);
    ASSERT(sigaction(SIGCHLD, &before, NULL) == 0);
}

TEST(a_program_that_reaps_or_ignores_every_child_does_not_disturb)
{
    check_with_handler(reap_everything);
    check_with_handler(SIG_IGN);
}

TEST(the_signal_mask_of_the_caller_is_as_it_was)
{
    AUTO_FD input = open_input();
    struct worker_job job = job_of(echo_input, NULL, input);
    AUTO_WORKER worker = WORKER_NONE;
    sigset_t before, after;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    ASSERT_OK(worker_start("test", &job, &worker, &err));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int signal = 1; signal < 32; signal++)
        ASSERT_INT(sigismember(&after, signal), sigismember(&before, signal));
}
