/* SPDX-License-Identifier: Apache-2.0 */

/* What hostile code inside can do with what the host asks for: a command's user, its
 * directory, its program, and PID 1 that carries it out. */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "world.h"

/* --- E02: the directory a command starts in --- */

static int run_in(cay_sandbox *sandbox, const char *user, const char *cwd)
{
    const char *const argv[] = {"sh", "-c", "/bin/pwd; ls -a; ls -a ../../../../../..",
                                NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .user = user,
                                             .cwd = cwd,
                                             .timeout_ms = 60000};

    cay_exec_done(&result);
    memset(&result, 0, sizeof result);
    return cay_sandbox_exec(sandbox, &options, &result, &err);
}

/* Either it is refused, or it is a directory of the sandbox's own. */
static void must_stay_inside(cay_sandbox *sandbox, const char *user, const char *cwd)
{
    int code = run_in(sandbox, user, cwd);
    const char *out = result.out ? result.out : "";

    printf("# probe E02_cwd %s as %s: %s\n", cwd ? cwd : "home", user,
           code || result.cause == CAY_CAUSE_NOT_STARTED ? "BLOCKED" : "VIRTUALISED");
    if (code || result.cause == CAY_CAUSE_NOT_STARTED)
        return;
    if (*out != '/' || strstr(out, "cgroup.") || strstr(out, "unreachable"))
        harness_fail(__FILE__, __LINE__, "%s as %s is outside:\n%s%s", cwd, user, out,
                     result.error);
}

TEST(E02_no_directory_of_pid_1_becomes_that_of_a_command)
{
    char cwd[64];

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    for (int fd = 0; fd < 24; fd++) {
        static const char *const places[] = {"/proc/1/fd", "/proc/self/fd", "/dev/fd"};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            snprintf(cwd, sizeof cwd, "%s/%d", places[i], fd);
            must_stay_inside(sandbox, "root", cwd);
            must_stay_inside(sandbox, "user", cwd);
        }
    }
    must_stay_inside(sandbox, "root", "/proc/1/cwd");
    must_stay_inside(sandbox, "root", "/proc/1/root");
    must_stay_inside(sandbox, "root", "/proc/thread-self/root/proc/1/root");
    world_end();
}

/* Root inside writes /etc/passwd, and so chooses every home. */
TEST(E02_a_home_in_proc_leads_nowhere)
{
    static const char *const homes[] = {"/proc/1/fd/6", "/proc/1/fd/6/..",
                                        "/proc/1/cwd/../.."};
    char script[128];

    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
        world_begin();
        cay_sandbox *sandbox = world_sandbox(NULL);
        snprintf(script, sizeof script, "echo 'root:x:0:0:root:%s:/bin/sh' > /etc/passwd",
                 homes[i]);
        world_run(sandbox, "root", script);
        must_stay_inside(sandbox, "root", NULL);
        world_end();
    }
}

/* --- E01: the program of PID 1 --- */

/* Asks for PID 1's own program to be executed, over and over. */
static int execute_it(void *cookie)
{
    static const char *const programs[] = {"/proc/self/exe", "/proc/1/exe"};
    cay_sandbox *sandbox;

    if (cay_sandbox_open(cookie, &sandbox, NULL) != CAY_OK)
        return 1;
    for (int i = 0; i < 200; i++) {
        const char *const argv[] = {programs[i % 2], NULL};
        const struct cay_exec_options options = {
            .size = sizeof options, .argv = argv, .timeout_ms = 20000};
        struct cay_exec_result ignored = {0};
        if (cay_sandbox_exec(sandbox, &options, &ignored, NULL) != CAY_OK)
            return 1;
        cay_exec_done(&ignored);
    }
    cay_sandbox_free(sandbox);
    return 0;
}

TEST(E01_the_program_of_pid_1_cannot_be_written_from_inside)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    char id[CAY_ID_MAX];
    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    pid_t other = world_fork(execute_it, id);
    world_probe_as(sandbox, NULL, "exe");
    printf("# probe E01_program as user: %s", result.out);
    ASSERT(strncmp(result.out, "BLOCKED", 7) == 0);
    world_join(other);
    world_probe_as(sandbox, NULL, "own-exe");
    printf("# control E01_program without seals: %s", result.out);
    ASSERT(strncmp(result.out, "ESCAPE", 6) == 0);
    world_run(sandbox, NULL, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    world_end();
}

/* --- E08: who runs it --- */

static void run_as_whom(cay_sandbox *sandbox, const char *user, int *ret_code)
{
    const char *const argv[] = {"sh", "-c", "id -u; id -g; id -G", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .user = user, .timeout_ms = 60000};

    cay_exec_done(&result);
    memset(&result, 0, sizeof result);
    *ret_code = cay_sandbox_exec(sandbox, &options, &result, &err);
}

TEST(E08_a_user_is_exactly_who_was_asked_for_or_nobody)
{
    static const struct {
        const char *user, *ids; /* NULL: refused */
    } cases[] = {
        {"root", "0\n0\n0\n"},
        {"0", "0\n0\n0\n"},
        {"user", "1000\n1000\n1000\n"},
        {"1000", "1000\n1000\n1000\n"},
        {"65534", "65534\n65534\n65534\n"},
        {"4711", "4711\n4711\n4711\n"},
        {"00", NULL},
        {"01000", NULL},
        {"1000:", NULL},
        {":0", NULL},
        {"1000:0", "1000\n0\n0\n"},
        {"1000:user", "1000\n1000\n1000\n"},
        {"user:4711", "1000\n4711\n4711\n"},
        {"1000:65536", NULL},
        {"1000:nosuchgroup", NULL},
        {"nosuchuser:0", NULL},
        {"1000:1000:0", NULL},
        {"4294967295", NULL},
        {"4294967296", NULL},
        {"65536", NULL},
        {"-1", NULL},
        {"+0", NULL},
        {" 0", NULL},
        {"0 ", NULL},
        {"1e3", NULL},
        {"0x0", NULL},
        {"root\n", NULL},
        {"root:x:0", NULL},
        {"nosuchuser", NULL},
        {"../root", NULL},
        {"\xd9\xa0", NULL}, /* an Arabic zero */
    };
    int code;

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_as_whom(sandbox, cases[i].user, &code);
        const char *ids = code ? NULL : result.out;
        printf("# probe E08_user \"%.20s\" as user: %s\n", cases[i].user,
               ids ? "VIRTUALISED" : "BLOCKED");
        ASSERT_STR(ids, cases[i].ids);
    }
    world_end();
}

/* What root inside writes into /etc/passwd gives nobody a number outside the range, or
 * more than the bounded part of it. */
TEST(E08_a_hostile_passwd_gives_nothing)
{
    static const char *const lines[] = {"evil:x:4294967295:0::/:/bin/sh",
                                        "evil:x:65536:65536::/:/bin/sh",
                                        "evil:x:-1:0::/:/bin/sh",
                                        "evil:x:0x0:0::/:/bin/sh",
                                        "evil:x:00:00::/:/bin/sh",
                                        "evil:x::::",
                                        "evil",
                                        "evil:x:1.5:0::/:/bin/sh"};
    char script[256];
    int code;

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(script, sizeof script, "printf '%%s\\n' '%s' > /etc/passwd", lines[i]);
        world_run(sandbox, "0", script);
        run_as_whom(sandbox, "evil", &code);
        ASSERT_INT(code, CAY_E_NOT_FOUND);
    }
    world_run(sandbox, "0", "rm /etc/passwd; mkfifo /etc/passwd; chmod 644 /etc/passwd");
    run_as_whom(sandbox, "user", &code);
    ASSERT_INT(code, CAY_E_NOT_FOUND); /* and it did not wait for a writer */
    world_run(sandbox, "0", "rm /etc/passwd; ln -s /dev/zero /etc/passwd");
    run_as_whom(sandbox, "user", &code);
    ASSERT_INT(code, CAY_E_NOT_FOUND);
    world_run(sandbox, "0", "rm /etc/passwd; truncate -s 1T /etc/passwd");
    run_as_whom(sandbox, "user", &code);
    ASSERT_INT(code, CAY_E_NOT_FOUND);
    world_end();
}

/* PID 1 may follow links that lead through its own descriptors, to the host's /etc. */
TEST(E08_passwd_is_the_sandboxs_own_whatever_etc_has_become)
{
    int code;

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    world_run(sandbox, "0",
              "mv /etc /old && ln -s /proc/self/fd/6/../../../../../etc /etc");
    ASSERT_INT(result.exit_code, 0);
    run_as_whom(sandbox, "games", &code); /* every host has it, the sandbox has not */
    ASSERT_INT(code, CAY_E_NOT_FOUND);
    world_end();
}

/* --- What a library must leave alone --- */

static void describe_us(char *text, size_t room)
{
    char line[256], cwd[PATH_MAX];
    FILE *status = fopen("/proc/self/status", "re");
    size_t len = (size_t)snprintf(text, room, "dumpable %d, in %s\n",
                                  prctl(PR_GET_DUMPABLE), getcwd(cwd, sizeof cwd));

    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "Uid", 3) == 0 || strncmp(line, "Gid", 3) == 0 ||
            strncmp(line, "Umask", 5) == 0 ||
            (strncmp(line, "Sig", 3) == 0 && line[3] != 'Q') || /* SigQ is of the user */
            strncmp(line, "Cap", 3) == 0 || strncmp(line, "Threads", 7) == 0 ||
            strncmp(line, "NoNewPrivs", 10) == 0 || strncmp(line, "Seccomp:", 8) == 0)
            len += (size_t)snprintf(text + len, room - len, "%s", line);
    if (status)
        fclose(status);
}

TEST(E14_a_program_that_makes_a_sandbox_is_the_same_after_it)
{
    char before[4096], after[4096];

    world_begin();
    describe_us(before, sizeof before);
    cay_sandbox *sandbox = world_sandbox(NULL);
    world_run(sandbox, NULL, "echo x");
    describe_us(after, sizeof after);
    ASSERT_STR(after, before);
    world_end();
}

/* Where the program of its PID 1 begins. */
static unsigned long long program_of(const cay_sandbox *sandbox)
{
    unsigned long long first = 0;
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/maps", (int)world_init(sandbox));
    FILE *maps = fopen(path, "re");
    ASSERT(maps && fscanf(maps, "%llx-", &first) == 1);
    fclose(maps);
    return first;
}

/* Finding S6. */
TEST(E14_the_program_of_init_is_elsewhere_in_each_sandbox)
{
    unsigned long long first[3];

    world_begin();
    for (size_t i = 0; i < 3; i++)
        first[i] = geteuid() == 0 ? program_of(world_sandbox(NULL)) : i;
    printf("# init at 0x%llx, 0x%llx, 0x%llx\n", first[0], first[1], first[2]);
    ASSERT(first[0] != first[1] || first[1] != first[2]);
    world_end();
}

/* --- B14: those who clean up --- */

static int collect(void *cookie)
{
    double until = world_now() + 1.0;
    size_t count;

    (void)cookie;
    while (world_now() < until)
        if (cay_sandbox_collect(&count, NULL) != CAY_OK)
            return 1;
    return 0;
}

/* Every command does it, while others make sandboxes. */
TEST(B14_collecting_does_not_get_in_the_way_of_making)
{
    world_begin();
    pid_t other = world_fork(collect, NULL);
    for (int i = 0; i < 60; i++) {
        const struct cay_sandbox_options options = {
            .size = sizeof options, .ephemeral = true, .level = world_level()};
        cay_sandbox *sandbox = NULL;
        ASSERT_OK(cay_sandbox_create(&options, &sandbox, &err));
        int code = cay_sandbox_kill(sandbox, &err);
        cay_sandbox_free(sandbox);
        ASSERT_INT(code, CAY_OK);
    }
    world_join(other);
    world_end();
}

/* --- W: where the host and a sandbox could meet --- */

static int free_port(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT(fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 &&
           getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    *ret_port = ntohs(address.sin_port);
    return fd; /* bound and not listening: whoever connects is refused, unless by inside
                */
}

TEST(W09_what_listens_inside_is_not_reached_from_outside)
{
    char script[512];
    int port;

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    int held = free_port(&port);
    snprintf(script, sizeof script,
             "python3 -c 'import socket\n"
             "s=socket.socket(); s.bind((\"0.0.0.0\",%d)); s.listen()\n"
             "open(\"/tmp/ready\",\"w\")\n"
             "while True: s.accept()' >/dev/null 2>&1 & "
             "while [ ! -e /tmp/ready ]; do sleep 0.01; done\n"
             "python3 -c 'import socket; "
             "socket.create_connection((\"127.0.0.1\",%d)); print(\"inside\")'",
             port, port);
    world_run(sandbox, NULL, script);
    ASSERT_STR(result.out, "inside\n");
    printf("# control W09_listen without the boundary: ESCAPE reached from inside\n");
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0);
    ASSERT_INT(errno, ECONNREFUSED);
    printf("# probe W09_listen as user: BLOCKED(ECONNREFUSED) from outside\n");
    close(fd);
    close(held);
    world_end();
}

/* On a terminal of its own, and not on ours. */
TEST(W11_nothing_is_pushed_into_a_terminal)
{
    const char *const argv[] = {
        "python3", "-c",
        "import fcntl, os, termios\n"
        "print(os.ttyname(0).startswith('/dev/pts/'), os.getsid(0) == os.getpid())\n"
        "try:\n"
        "  fcntl.ioctl(0, termios.TIOCSTI, b'x'); print('ESCAPE')\n"
        "except OSError as e: print(e.errno)\n",
        NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .flags = CAY_EXEC_TTY, .argv = argv, .timeout_ms = 60000};

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_STR(result.out, "True True\r\n1\r\n");
    printf("# probe W11_terminal as user: BLOCKED(EPERM) on its own\n");
    world_end();
}

/* --- E20, B14: PID 1 --- */

TEST(E20_killing_everything_inside_kills_only_that)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL), *other = world_sandbox(NULL);
    world_run(other, NULL, "sleep 3600 >/dev/null 2>&1 &");
    size_t before = world_processes(other);
    ASSERT(before >= 1);
    world_probe_as(sandbox, "root", "E19_host_process");
    ASSERT(strncmp(result.out, "BLOCKED", 7) == 0); /* else the next line is not fair */
    world_run(sandbox, "root", "sleep 3600 & kill -9 -1; echo still here");
    world_run(sandbox, "root", "kill -9 1; kill -STOP 1; kill -SEGV 1; echo alive");
    ASSERT_STR(result.out, "alive\n");
    for (int tries = 0; world_processes(sandbox) > 0 && tries < 1000; tries++)
        usleep(10000);
    ASSERT_INT(world_processes(sandbox), 0);
    ASSERT_INT(world_processes(other), before);
    printf("# probe E20_kill_all as root: VIRTUALISED only its own\n");
    world_end();
}

/* Whatever root inside does to PID 1, the caller gets an answer, and gets rid of it. */
TEST(B14_a_crippled_pid_1_does_not_hang_its_caller)
{
    static const char *const tricks[] = {
        "prlimit --pid 1 --nofile=3:3",
        "prlimit --pid 1 --as=4096:4096",
        "prlimit --pid 1 --cpu=1:1",
        "prlimit --pid 1 --fsize=0:0 --data=0:0 --stack=0:0",
        "chrt -i -p 0 1; renice 19 1; ionice -c 3 -p 1",
        "taskset -p 1 1",
        "rm -rf /etc /var /home /opt /bin /lib64 /dev/null",
        "chmod 0 /; chmod 0 /dev /proc /home"};

    for (size_t i = 0; i < sizeof tricks / sizeof *tricks; i++) {
        world_begin();
        cay_sandbox *sandbox = world_sandbox(NULL);
        world_run(sandbox, "root", tricks[i]);
        alarm(60); /* a hang ends this program, and so fails */
        for (int again = 0; again < 3; again++) {
            const char *const argv[] = {"/bin/true", NULL};
            const struct cay_exec_options options = {
                .size = sizeof options, .argv = argv, .timeout_ms = 2000};
            cay_exec_done(&result);
            memset(&result, 0, sizeof result);
            int code = cay_sandbox_exec(sandbox, &options, &result, &err);
            if (again == 2)
                printf("# probe B14_init %s as root: LIMITED %s\n", tricks[i],
                       code ? cay_code_slug(code) : "still answers");
        }
        alarm(0);
        world_end();
    }
}

TEST(B14_a_killed_pid_1_is_noticed_and_leaves_nothing)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    world_run(sandbox, NULL, "sleep 3600 >/dev/null 2>&1 &");
    pid_t init = world_init(sandbox);
    ASSERT(init > 1 && kill(init, SIGKILL) == 0);
    const char *const argv[] = {"/bin/true", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 20000};
    cay_exec_done(&result);
    memset(&result, 0, sizeof result);
    int code = cay_sandbox_exec(sandbox, &options, &result, &err);
    ASSERT(code != CAY_OK || result.cause == CAY_CAUSE_GONE);
    printf("# probe B14_killed as root: LIMITED %s\n",
           code ? cay_code_slug(code) : "gone");
    world_end();
}
