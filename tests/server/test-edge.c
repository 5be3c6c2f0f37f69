/* SPDX-License-Identifier: Apache-2.0 */

/* Parts of the server by themselves: what names and times are, how secrets are compared,
 * and how a front is confined where nobody is root. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "server/broker/secrets.h"
#include "server/front/front.h"

/* --- Names --- */

TEST(a_host_is_ours_a_sandboxs_or_nobodys)
{
    static const struct {
        const char *host, *domain;
        enum host_kind kind;
        uint16_t port;
    } cases[] = {
        {"localhost", "localhost:3000", HOST_SERVER, 0},
        {"LOCALHOST:1", "localhost:3000", HOST_SERVER, 0},
        {"127.0.0.1:3000", "localhost:3000", HOST_SERVER, 0},
        {"[::1]:3000", "localhost:3000", HOST_SERVER, 0},
        {"[::1]", "localhost:3000", HOST_SERVER, 0},
        {"api.localhost", "localhost:3000", HOST_SERVER, 0},
        {"49983-abc.localhost:3000", "localhost:3000", HOST_SANDBOX, 49983},
        {"1-a.box.example", "box.example", HOST_SANDBOX, 1},
        {"1-a.x.localhost", "x.localhost", HOST_SANDBOX, 1},
        {"1-a.localhost", "x.localhost", HOST_SANDBOX, 1},
        {"1-a.y.localhost", "x.localhost", HOST_MALFORMED, 0},
        {"0-a.localhost", "localhost", HOST_MALFORMED, 0},
        {"01-a.localhost", "localhost", HOST_MALFORMED, 0},
        {"65536-a.localhost", "localhost", HOST_MALFORMED, 0},
        {"1-.localhost", "localhost", HOST_MALFORMED, 0},
        {"-a.localhost", "localhost", HOST_MALFORMED, 0},
        {"x.localhost", "localhost", HOST_MALFORMED, 0},
        {"1-a_b.localhost", "localhost", HOST_MALFORMED, 0},
        {"1-a..localhost", "localhost", HOST_MALFORMED, 0},
        {".localhost", "localhost", HOST_MALFORMED, 0},
        {"localhost.", "localhost", HOST_FOREIGN, 0},
        {"xlocalhost", "localhost", HOST_FOREIGN, 0},
        {"localhost:", "localhost", HOST_FOREIGN, 0},
        {"localhost:1x", "localhost", HOST_FOREIGN, 0},
        {"localhost@evil", "localhost", HOST_FOREIGN, 0},
        {"[::1", "localhost", HOST_FOREIGN, 0},
        {"[::1]x", "localhost", HOST_FOREIGN, 0},
        {"", "localhost", HOST_FOREIGN, 0},
        {"evil.example", "box.example", HOST_FOREIGN, 0},
        {"", "", HOST_FOREIGN, 0},
        {"example", "", HOST_FOREIGN, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct route route = {0};
        ASSERT_INT(route_host(cases[i].host, cases[i].domain, &route), cases[i].kind);
        ASSERT_INT(route.port, cases[i].port);
        ASSERT_INT(*route.sandbox != '\0', cases[i].kind == HOST_SANDBOX);
    }
}

TEST(times_are_read_as_they_are_written)
{
    static const struct {
        const char *text;
        int64_t ms; /* -1: it is none */
    } cases[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01t00:00:01.5z", 1500},
        {"1970-01-01T01:00:00+01:00", 0},
        {"1970-01-01T01:00:00 01:00", 0},
        {"1969-12-31 23:00:00-01:00", 0},
        {"2026-11-15T18:00:00.123456+00:00", INT64_C(1794765600124)},
        {"2026-11-15T18:00:00.123000+00:00", INT64_C(1794765600123)},
        {"2026-11-15T18:00:00.999001+00:00", INT64_C(1794765601000)},
        {"2024-02-29T00:00:00Z", INT64_C(1709164800000)},
        {"2023-02-29T00:00:00Z", -1},
        {"2026-00-01T00:00:00Z", -1},
        {"2026-01-00T00:00:00Z", -1},
        {"2026-01-01T00:60:00Z", -1},
        {"2026-01-01T00:00:60Z", -1},
        {"2026-01-01T00:00:00", -1},
        {"2026-01-01T00:00:00.", -1},
        {"2026-01-01T00:00:00.Z", -1},
        {"2026-01-01T00:00:00+1:00", -1},
        {"2026-01-01T00:00:00+24:00", -1},
        {"2026-01-01T00:00:00Z ", -1},
        {"26-01-01T00:00:00Z", -1},
        {"", -1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ms = -1;
        ASSERT_INT(front_parse_time(cases[i].text, &ms), cases[i].ms >= 0);
        ASSERT_INT(ms, cases[i].ms);
    }
}

/* --- Secrets --- */

/* What is equal in all but its bytes: strlen(3) takes steps for where a text begins. */
static _Alignas(4096) char right[4096], wrong_first[4096], wrong_last[4096];

/* What a comparison is not to be. */
static bool compare_hastily(const char *given, const char *wanted)
{
    for (size_t i = 0; given[i] || wanted[i]; i++)
        if (given[i] != wanted[i])
            return false;
    return true;
}

static _Noreturn void compare_all(bool (*compare)(const char *given, const char *wanted))
{
    const char *const given[] = {right, wrong_first, wrong_last, right};
    volatile bool result = false;

    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(77);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        raise(SIGSTOP);
        result = compare(given[i], right);
    }
    _exit(result ? 0 : 1);
}

/* The number of instructions from one stop to the next. */
static long count_steps(pid_t child)
{
    long steps = 0;
    int status = 0;

    do {
        ASSERT_INT(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        ASSERT_INT(waitpid(child, &status, 0), child);
        ASSERT(WIFSTOPPED(status));
        steps++;
    } while (WSTOPSIG(status) == SIGTRAP);
    return steps;
}

/* For one that is wrong at its beginning, and one at its end. */
static bool count_comparisons(bool (*compare)(const char *given, const char *wanted),
                              long steps[2])
{
    pid_t child = fork();
    int status = 0;

    ASSERT(child >= 0);
    if (child == 0)
        compare_all(compare);
    ASSERT_INT(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        return false;
    (void)count_steps(child); /* this one binds what is called */
    for (int i = 0; i < 2; i++)
        steps[i] = count_steps(child);
    ASSERT_INT(kill(child, SIGKILL), 0);
    ASSERT_INT(waitpid(child, &status, 0), child);
    return true;
}

TEST(a_wrong_secret_takes_as_many_steps_wherever_it_is_wrong)
{
    struct secrets secrets = {0};
    long steps[2];

    secrets_token(&secrets, TOKEN_ENVD, "abc", 1, right);
    memcpy(wrong_first, right, TOKEN_MAX);
    memcpy(wrong_last, right, TOKEN_MAX);
    wrong_first[0] = wrong_first[0] == '0' ? '1' : '0';
    wrong_last[TOKEN_MAX - 2] = wrong_last[TOKEN_MAX - 2] == '0' ? '1' : '0';
    ASSERT(secrets_are_equal(right, right));
    ASSERT(!secrets_are_equal(wrong_first, right));
    ASSERT(!secrets_are_equal(wrong_last, right));
    if (!count_comparisons(compare_hastily, steps))
        SKIP("a process cannot be traced here");
    ASSERT(steps[0] < steps[1]); /* one that stops early is seen to */
    ASSERT(count_comparisons(secrets_are_equal, steps));
    ASSERT_INT(steps[0], steps[1]);
}

/* --- A front where nobody is root --- */

static int stat_by_name(void)
{
    struct stat st;

    return fstatat(AT_FDCWD, "/etc/passwd", &st, AT_EMPTY_PATH);
}

static int stat_by_root(void)
{
    struct stat st;

    return (int)syscall(SYS_newfstatat, AT_FDCWD, "/", &st,
                        AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
}

static int stat_by_statx(void)
{
    struct statx st;

    return (int)syscall(SYS_statx, AT_FDCWD, "/etc/passwd", AT_EMPTY_PATH, STATX_ALL,
                        &st);
}

static int try_access(void)
{
    return access("/etc/passwd", F_OK);
}

static int try_readlink(void)
{
    char text[64];

    return (int)readlink("/proc/self/exe", text, sizeof text);
}

static int (*const looks[])(void) = {stat_by_name, stat_by_root, stat_by_statx,
                                     try_access, try_readlink};

TEST(a_front_without_a_root_of_its_own_sees_no_file)
{
    pid_t child = fork();
    int status = 0;

    ASSERT(child >= 0);
    if (child == 0) {
        struct cay_error error;
        if (geteuid() == 0 &&
            (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0))
            _exit(100);
        for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
            if (looks[i]() < 0)
                _exit(50 + (int)i); /* it is the confinement that forbids it */
        if (confine(&error) != CAY_OK)
            _exit(101);
        for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
            if (looks[i]() >= 0)
                _exit((int)i + 1);
        _exit(0);
    }
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT(WIFEXITED(status));
    ASSERT_INT(WEXITSTATUS(status), 0);
}
