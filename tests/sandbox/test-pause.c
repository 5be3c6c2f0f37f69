/* SPDX-License-Identifier: Apache-2.0 */

/* Pause, resume, the time to live, and the one that does not answer. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "native/native.h"
#include "processes.h"
#include "sandbox/backend.h"

/* How far a counter inside has got. */
static long count_of(cay_process *process)
{
    static struct heard heard;
    long last = 0;

    for (;;) {
        char *end;
        memset(&heard, 0, sizeof heard);
        hear_once(process, &heard);
        if (heard.len[0] == 0)
            return last;
        for (char *at = heard.text[0]; *at; at = end + (*end == '\n')) {
            long value = strtol(at, &end, 10);
            if (end == at)
                break;
            last = value > last ? value : last;
        }
    }
}

static const char counter[] = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done";

TEST(a_pause_stops_everything_and_resuming_lets_it_go_on)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) process = start(sandbox, 0, counter);

    while (count_of(process) < 3)
        rest_ms(5);
    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
    rest_ms(50);
    (void)count_of(process); /* what was on its way */
    rest_ms(200);
    ASSERT_INT(count_of(process), 0);
    ASSERT_OK(cay_sandbox_pause(sandbox, &err)); /* again is fine */
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    for (int i = 0; i < PATIENCE_MS / 5 && count_of(process) == 0; i++)
        rest_ms(5);
    while (count_of(process) == 0)
        rest_ms(5);
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    run(sandbox, "echo goes on");
    ASSERT_STR(result.out, "goes on\n");
    cay_exec_done(&result);
}

/* As who is in the middle of pausing or resuming it. */
static int hold_turn(const cay_sandbox *sandbox)
{
    const struct native *native = sandbox->cookie;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/work/cgroup.freeze", native->record.cgroup.unified);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ASSERT(fd >= 0 && flock(fd, LOCK_EX) == 0);
    return fd;
}

/* Ends with the code of its pause, as a positive number; it is about to begin. */
static pid_t start_to_pause(const char *id, int turn)
{
    int ends[2];
    char byte;

    ASSERT(pipe2(ends, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0) {
        cay_sandbox *sandbox = NULL;
        (void)close(turn);
        int code = cay_sandbox_open(id, &sandbox, NULL);
        (void)!write(ends[1], "", 1);
        _exit(code ? 99 : -cay_sandbox_pause(sandbox, NULL));
    }
    (void)close(ends[1]);
    ASSERT(child > 0);
    ASSERT(read(ends[0], &byte, 1) == 1);
    (void)close(ends[0]);
    return child;
}

static int code_of(pid_t child)
{
    int status;

    ASSERT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return -WEXITSTATUS(status);
}

/* Else a pause could freeze what init was just told to let go on. */
TEST(a_pause_waits_for_a_pending_resume)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct cay_sandbox_info info;
    int status;

    int turn = hold_turn(sandbox);
    pid_t child = start_to_pause(cay_sandbox_id(sandbox), turn);
    rest_ms(200);
    ASSERT_INT(waitpid(child, &status, WNOHANG), 0);
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_INT(info.state, CAY_STATE_RUNNING);
    (void)close(turn);
    ASSERT_INT(code_of(child), CAY_OK);
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_INT(info.state, CAY_STATE_PAUSED);
}

TEST(a_pause_of_a_sandbox_that_ends_meanwhile_returns_not_found)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    int turn = hold_turn(sandbox);
    pid_t child = start_to_pause(cay_sandbox_id(sandbox), turn);
    rest_ms(200);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(code_of(child), CAY_E_NOT_FOUND);
    (void)close(turn);
}

TEST(commands_on_a_paused_sandbox_are_refused_at_once)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"true", NULL};
    struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    AUTO(cay_process) held = start(sandbox, CAY_EXEC_BACKGROUND, counter);
    cay_process *process = NULL;
    struct cay_process_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err), CAY_E_BUSY);
    ASSERT_HAS(err.hint, "resume");
    ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err), CAY_E_BUSY);
    options.flags = CAY_EXEC_BACKGROUND;
    ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err), CAY_E_BUSY);
    /* Looking and killing are not. */
    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    ASSERT(count >= 1);
    cay_free(infos);
    ASSERT_OK(cay_process_kill(held, &err));
    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    ASSERT(count == 1 && infos[0].has_ended);
    cay_free(infos);
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    options.flags = 0;
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    cay_exec_done(&result);
}

static bool has_sleep(cay_sandbox *sandbox)
{
    AUTO_FREE struct cay_process_info *infos = NULL;
    size_t count = 0, found = 0;

    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        found += strcmp(infos[i].command, "sleep 1000") == 0;
    return found > 0;
}

/* Once its command has come so far. */
static void pause_it(const char *id)
{
    cay_sandbox *sandbox = open_sandbox(id);

    for (int i = 0; i < PATIENCE_MS / 5 && !has_sleep(sandbox); i++)
        rest_ms(5);
    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
}

TEST(a_timeout_counts_on_while_it_is_paused)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    pid_t child = fork();

    ASSERT(child >= 0);
    if (child == 0) {
        pause_it(cay_sandbox_id(sandbox));
        _exit(0);
    }
    uint64_t before = now_ms();
    run_as(sandbox, NULL, "trap '' TERM; echo before; (setsid sleep 1000 &); sleep 1000",
           3000);
    ASSERT(now_ms() - before < PATIENCE_MS);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_STR(result.out, "before\n");
    ASSERT_INT(waitpid(child, NULL, 0), child);
    struct cay_process_info *infos = NULL;
    size_t count = 1;
    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    ASSERT_INT(count, 0);
    cay_free(infos);
    cay_exec_done(&result);
}

TEST(a_paused_sandbox_can_be_killed)
{
    cay_sandbox *sandbox = make_sandbox(NULL);
    char id[CAY_ID_MAX];

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    run(sandbox, "for i in 1 2 3 4 5; do setsid sleep 1000 & done");
    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(count_names("/run/cay", id), 0);
    ASSERT_CODE(cay_sandbox_pause(sandbox, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_sandbox_resume(sandbox, &err), CAY_E_NOT_FOUND);
    cay_sandbox_free(sandbox);
    cay_exec_done(&result);
}

static bool is_alive(const char *id)
{
    cay_sandbox *sandbox = NULL;

    if (cay_sandbox_open(id, &sandbox, NULL) != CAY_OK)
        return false;
    cay_sandbox_free(sandbox);
    return true;
}

TEST(a_sandbox_ends_when_its_time_is_over)
{
    const struct cay_sandbox_options brief = {.size = sizeof brief, .ttl_ms = 2000};
    uint64_t before = now_ms();
    AUTO(cay_sandbox) sandbox = make_sandbox(&brief);
    AUTO(cay_process) process = start(sandbox, 0, counter);

    wait_for(process);
    ASSERT_INT(result.cause, CAY_CAUSE_GONE);
    ASSERT(now_ms() - before >= 2000);
    for (int i = 0; i < PATIENCE_MS / 5 && is_alive(cay_sandbox_id(sandbox)); i++)
        rest_ms(5);
    ASSERT(!is_alive(cay_sandbox_id(sandbox)));
    cay_exec_done(&result);
}

/* R10 */
TEST(the_time_to_live_does_not_run_while_it_is_paused)
{
    const struct cay_sandbox_options brief = {.size = sizeof brief, .ttl_ms = 4000};
    AUTO(cay_sandbox) sandbox = make_sandbox(&brief);
    const char *id = cay_sandbox_id(sandbox);
    struct cay_sandbox_info info, later;

    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT(info.ttl_left_ms > 0 && info.ttl_left_ms <= 4000);
    rest_ms(4200);
    ASSERT(is_alive(id));
    ASSERT_OK(cay_sandbox_inspect(sandbox, &later, &err));
    ASSERT(later.ttl_left_ms == info.ttl_left_ms);
    ASSERT_OK(cay_sandbox_set_ttl(sandbox, 2000, &err)); /* from the resume on */
    rest_ms(2200);
    ASSERT(is_alive(id));
    uint64_t before = now_ms();
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    for (int i = 0; i < PATIENCE_MS / 5 && is_alive(id); i++)
        rest_ms(5);
    ASSERT(!is_alive(id));
    ASSERT(now_ms() - before >= 1900);
}

TEST(the_time_to_live_can_be_changed_and_taken_away)
{
    const struct cay_sandbox_options brief = {.size = sizeof brief, .ttl_ms = 2000};
    AUTO(cay_sandbox) sandbox = make_sandbox(&brief);
    const char *id = cay_sandbox_id(sandbox);

    ASSERT_OK(cay_sandbox_set_ttl(sandbox, 3600000, &err));
    rest_ms(2200);
    ASSERT(is_alive(id));
    ASSERT_OK(cay_sandbox_set_ttl(sandbox, 0, &err));
    ASSERT(is_alive(id));
    ASSERT_OK(cay_sandbox_set_ttl(sandbox, UINT64_MAX, &err));
    ASSERT(is_alive(id));
    ASSERT_OK(cay_sandbox_set_ttl(sandbox, 1, &err));
    for (int i = 0; i < PATIENCE_MS / 5 && is_alive(id); i++)
        rest_ms(5);
    ASSERT(!is_alive(id));
    ASSERT_CODE(cay_sandbox_set_ttl(sandbox, 1, &err), CAY_E_NOT_FOUND);
}

TEST(the_defaults_hold_for_whoever_opens_it)
{
    static const char *const env[] = {"A=sandbox", "PATH=/usr/bin:/bin", NULL};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .user = "root", .workdir = "/srv", .env = env};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    static const char *const own[] = {"A=command", NULL};
    const char *const argv[] = {"sh", "-c", "echo $A", NULL};

    cay_sandbox *again = open_sandbox(cay_sandbox_id(sandbox));
    run(again, "id -un; pwd; echo $A $PATH $HOME; mkdir sub");
    ASSERT_STR(result.out, "root\n/srv\nsandbox /usr/bin:/bin /root\n");
    const struct cay_exec_options more = {.size = sizeof more, .argv = argv, .env = own};
    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(again, &more, &result, &err));
    ASSERT_STR(result.out, "command\n");
    const char *const env_argv[] = {"env", NULL};
    const struct cay_exec_options once = {
        .size = sizeof once, .argv = env_argv, .env = own, .cwd = "sub", .user = "user"};
    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(again, &once, &result, &err));
    ASSERT_HAS(result.out, "A=command\n");
    ASSERT(!strstr(result.out, "A=sandbox")); /* each name once */
    cay_sandbox_free(again);
    cay_exec_done(&result);
}

TEST(of_a_variable_that_is_given_twice_the_last_counts)
{
    static const char *const env[] = {"A=1", "B=1", "A=2", NULL};
    static const char *const own[] = {"B=2", "C=1", "B=3", NULL};
    const struct cay_sandbox_options options = {.size = sizeof options, .env = env};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    const char *const argv[] = {"sh", "-c", "env | grep -x '[ABC]=.' | sort", NULL};
    const struct cay_exec_options more = {.size = sizeof more, .argv = argv, .env = own};

    run(sandbox, "env | grep -x '[ABC]=.' | sort");
    ASSERT_STR(result.out, "A=2\nB=1\n");
    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(sandbox, &more, &result, &err));
    ASSERT_STR(result.out, "A=2\nB=3\nC=1\n");
    cay_exec_done(&result);
}

TEST(wrong_defaults_are_refused)
{
    static const char *const wrong[] = {"NOVALUE", NULL}, *const empty[] = {"=x", NULL};
    cay_sandbox *sandbox = NULL;
    struct cay_sandbox_options options = {.size = sizeof options, .env = wrong};
    char name[128];
    static char names[1999][12];
    static const char *many[2000];

    need_root();
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
    options.env = empty;
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
    for (int i = 0; i < 1999; i++) {
        snprintf(names[i], sizeof names[i], "A%d=1", i % 10000);
        many[i] = names[i];
    }
    options.env = many;
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_LIMIT);
    memset(name, 'u', sizeof name);
    name[sizeof name - 1] = '\0';
    options.env = NULL;
    options.user = name;
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
    options.user = NULL;
    static const char *const hosts[] = {"", "-x", "x-", "x\n1.2.3.4 evil", "a b", NULL};
    for (size_t i = 0; hosts[i]; i++) {
        options.hostname = hosts[i];
        ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
        ASSERT_STR(err.subject, "hostname");
    }
    options.hostname = name; /* of 127 letters */
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
    options.hostname = NULL;
    options.user = "nosuch";
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "nosuch");
    options.workdir = "/nosuch";
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "nosuch");
    options.user = NULL;
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "/nosuch");
    options.workdir = "/etc/passwd";
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
    options.workdir = "relative";
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
}

/* --- One that does not answer --- */

/* As many connections as its init may have waiting. */
static size_t fill_queue(const struct record *record, int *sockets, size_t room)
{
    struct sockaddr_un address;
    size_t count = 0;

    ASSERT_OK(runtime_address(record->id, &address, &err));
    for (; count < room; count++) {
        sockets[count] =
            socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connect(sockets[count], (const struct sockaddr *)&address, sizeof address) !=
            0)
            break;
    }
    ASSERT(count < room && errno == EAGAIN);
    return count + 1;
}

static void *list_all(void *cookie)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;

    *(int *)cookie = cay_sandbox_list(&infos, &count, NULL) ? 0 : (int)count;
    cay_free(infos);
    return NULL;
}

TEST(one_that_takes_no_connection_is_listed_and_killed_all_the_same)
{
    AUTO(cay_sandbox) other = make_sandbox(NULL);
    AUTO(cay_sandbox) silent = make_sandbox(NULL);
    const struct native *native = silent->cookie;
    static int sockets[5000];
    pthread_t lister;
    int listed = 0;

    ASSERT_INT(kill(native->record.init, SIGSTOP), 0);
    size_t count = fill_queue(&native->record, sockets, 5000);
    ASSERT(pthread_create(&lister, NULL, list_all, &listed) == 0);
    cay_sandbox *again = NULL;
    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(silent), &again, &err));
    ASSERT(pthread_join(lister, NULL) == 0);
    ASSERT(listed >= 2);
    ASSERT_OK(cay_sandbox_kill(again, &err));
    cay_sandbox_free(again);
    for (size_t i = 0; i < count; i++)
        close(sockets[i]);
    ASSERT_CODE(cay_sandbox_open(cay_sandbox_id(silent), &again, &err), CAY_E_NOT_FOUND);
    run(other, "echo answers");
    ASSERT_STR(result.out, "answers\n");
    cay_exec_done(&result);
}
