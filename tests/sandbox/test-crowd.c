/* SPDX-License-Identifier: Apache-2.0 */

/* Many at a time, and some of them hostile. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "init/packet.h"
#include "native/native.h"
#include "processes.h"
#include "sandbox/backend.h"

/* --- Many --- */

static void *run_ten(void *cookie)
{
    const char *id = cookie;
    cay_sandbox *sandbox = NULL;
    struct cay_error error;
    intptr_t right = 0;

    if (cay_sandbox_open(id, &sandbox, &error) != CAY_OK)
        return (void *)right;
    for (int i = 0; i < 10; i++) {
        const char *const argv[] = {"sh", "-c", "cat; echo error >&2; exit 3", NULL};
        const struct cay_exec_options options = {
            .size = sizeof options, .argv = argv, .input = &i, .input_len = sizeof i};
        struct cay_exec_result one = {0};
        int code = cay_sandbox_exec(sandbox, &options, &one, &error);
        right += code == CAY_OK && one.exit_code == 3 && one.out_len == sizeof i &&
                 memcmp(one.out, &i, sizeof i) == 0 && strcmp(one.error, "error\n") == 0;
        cay_exec_done(&one);
    }
    cay_sandbox_free(sandbox);
    return (void *)right;
}

TEST(two_hundred_commands_over_twenty_handles_at_a_time)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    pthread_t threads[20];
    void *right;

    for (int i = 0; i < 20; i++)
        ASSERT_INT(pthread_create(&threads[i], NULL, run_ten,
                                  (void *)(uintptr_t)cay_sandbox_id(sandbox)),
                   0);
    for (int i = 0; i < 20; i++) {
        ASSERT_INT(pthread_join(threads[i], &right), 0);
        ASSERT_INT((intptr_t)right, 10);
    }
}

static void *make_ten(void *cookie)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};
    struct cay_error error;
    intptr_t right = 0;

    (void)cookie;
    for (int i = 0; i < 10; i++) {
        cay_sandbox *sandbox = NULL;
        right += cay_sandbox_create(&options, &sandbox, &error) == CAY_OK &&
                 cay_sandbox_kill(sandbox, &error) == CAY_OK;
        cay_sandbox_free(sandbox);
    }
    return (void *)right;
}

/* What makes files for other users takes that away for a moment. */
TEST(makers_at_a_time_leave_the_program_as_dumpable_as_it_was)
{
    for (int dumpable = 1; dumpable >= 0; dumpable--) {
        pthread_t threads[4];
        void *right;

        ASSERT_INT(prctl(PR_SET_DUMPABLE, dumpable), 0);
        for (int i = 0; i < 4; i++)
            ASSERT_INT(pthread_create(&threads[i], NULL, make_ten, NULL), 0);
        for (int i = 0; i < 4; i++) {
            ASSERT_INT(pthread_join(threads[i], &right), 0);
            ASSERT_INT((intptr_t)right, 10);
        }
        ASSERT_INT(prctl(PR_GET_DUMPABLE), dumpable);
    }
    ASSERT_INT(prctl(PR_SET_DUMPABLE, 1), 0);
}

/* A leaf is a cgroup of one command; the last ones are kept for the next commands. */
static size_t count_leaves(const cay_sandbox *sandbox)
{
    const struct native *native = sandbox->cookie;
    char work[PATH_MAX];
    size_t count = 0;

    snprintf(work, sizeof work, "%s/work", native->record.cgroup.unified);
    DIR *directory = opendir(work);
    ASSERT(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_type == DT_DIR && entry->d_name[0] == 'e';
    closedir(directory);
    return count;
}

TEST(leaves_of_commands_that_left_something_behind_are_cleaned_up)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    enum { COMMANDS = 60, KEPT = 9 };

    for (int i = 0; i < COMMANDS; i++)
        run(sandbox, "sleep 1000 &");
    ASSERT(count_leaves(sandbox) > KEPT);
    run(sandbox, "pkill sleep");
    for (int i = 0; i < PATIENCE_MS / 20 && count_leaves(sandbox) > KEPT; i++) {
        rest_ms(20);
        run(sandbox, "true");
    }
    ASSERT(count_leaves(sandbox) <= KEPT);
    cay_exec_done(&result);
}

TEST(init_tells_what_runs)
{
    const struct cay_sandbox_options timed = {.size = sizeof timed, .ttl_ms = 3600000};
    AUTO(cay_sandbox) sandbox = make_sandbox(&timed);
    AUTO(cay_process) near = start(sandbox, 0, "sleep 1000");
    AUTO(cay_process) far = start(sandbox, CAY_EXEC_BACKGROUND, "sleep 1000");
    AUTO(cay_process) over = start(sandbox, CAY_EXEC_BACKGROUND, "true");
    struct heard words = {0};
    struct state state;

    hear_all(over, &words);
    ASSERT(cay_process_pid(near) != cay_process_pid(far));
    ASSERT_OK(native_init_state(sandbox->cookie, &state, &err));
    ASSERT_INT(state.foreground, 1);
    ASSERT_INT(state.background, 1);
    ASSERT_INT(state.ended, 1);
    ASSERT_INT(state.peers, 4);
    ASSERT(state.ttl_left_ms > 3500000 && state.ttl_left_ms <= 3600000);
    ASSERT_INT(state.is_paused, 0);
    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
    ASSERT_OK(cay_sandbox_set_ttl(sandbox, 0, &err));
    ASSERT_OK(native_init_state(sandbox->cookie, &state, &err));
    ASSERT_INT(state.is_paused, 1);
    ASSERT(state.ttl_left_ms == UINT64_MAX);
}

/* --- Hostile peers --- */

static int dial(const cay_sandbox *sandbox)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "/run/cay/%s.control",
             cay_sandbox_id(sandbox));
    ASSERT(fd >= 0);
    ASSERT_INT(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* The next message; 0 if the connection was closed. */
static int hear_message(int fd, struct packet *packet)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};

    ASSERT_INT(poll(&waiting, 1, PATIENCE_MS), 1);
    int got = packet_poll(fd, packet);
    if (got == 1)
        packet_close_fds(packet);
    return got;
}

static struct packet heard;

/* Whether init hangs up, at the latest after a word of failure. */
static void assert_closed(int fd)
{
    int got = hear_message(fd, &heard);

    if (got == 1) {
        ASSERT_INT(heard.head.kind, MESSAGE_FAILED);
        got = hear_message(fd, &heard);
    }
    ASSERT_INT(got, 0);
    (void)close(fd);
}

struct attack {
    struct message head;
    const void *payload;
    size_t len; /* that is really sent, with the head */
    int fds;    /* that are really sent */
};

static void send_attack(int socket, const struct attack *attack)
{
    static char bytes[sizeof(struct message) + MESSAGE_MAX + 4096];
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(32 * sizeof(int))];
    } control = {0};
    struct iovec part = {bytes, attack->len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int fds[32];

    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, &attack->head, sizeof attack->head);
    if (attack->payload && attack->len > sizeof attack->head)
        memcpy(bytes + sizeof attack->head, attack->payload,
               attack->len - sizeof attack->head);
    if (attack->fds) {
        for (int i = 0; i < attack->fds; i++)
            fds[i] = 0;
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE((size_t)attack->fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN((size_t)attack->fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, (size_t)attack->fds * sizeof(int));
    }
    ASSERT_INT(sendmsg(socket, &message, MSG_NOSIGNAL), (ssize_t)attack->len);
}

#define HEAD sizeof(struct message)

/* Nothing of this is a message. */
static const struct attack malformed[] = {
    {{0, MESSAGE_PING, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION + 1, MESSAGE_PING, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_PING, 0, 0}, NULL, 3, 0},
    {{PROTOCOL_VERSION, MESSAGE_PING, 5, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_PING, 0xFFFFFFFF, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_PING, MESSAGE_MAX + 100, 0},
     NULL,
     HEAD + MESSAGE_MAX + 100,
     0},
    {{PROTOCOL_VERSION, MESSAGE_PING, 0, 1}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_PING, 0, 0}, NULL, HEAD, 1},
    {{PROTOCOL_VERSION, MESSAGE_PING, 0, 1}, NULL, HEAD, 1},
    {{PROTOCOL_VERSION, MESSAGE_EXEC, 0, 30}, NULL, HEAD, 30},
    {{PROTOCOL_VERSION, 0, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, 99, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_STARTED, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, 0xFFFFFFFF, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_EXEC, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_EXEC, 8, 3}, NULL, HEAD + 8, 3},
    {{PROTOCOL_VERSION, MESSAGE_KILL, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_ATTACH, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_ATTACH, 64, 0}, NULL, HEAD + 64, 0},
    {{PROTOCOL_VERSION, MESSAGE_ATTACH, 3, 0}, "a\0b", HEAD + 3, 0},
    {{PROTOCOL_VERSION, MESSAGE_READ, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_WRITE, 1, 0}, "x", HEAD + 1, 0},
    {{PROTOCOL_VERSION, MESSAGE_CLOSE_INPUT, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_RESIZE, 4, 0}, "1234", HEAD + 4, 0},
    {{PROTOCOL_VERSION, MESSAGE_SIGNAL, 4, 0}, "\x09\0\0", HEAD + 4, 0},
    {{PROTOCOL_VERSION, MESSAGE_FORGET, 0, 0}, NULL, HEAD, 0},
    {{PROTOCOL_VERSION, MESSAGE_LIST, 3, 0}, "123", HEAD + 3, 0},
    {{PROTOCOL_VERSION, MESSAGE_TTL, 4, 0}, "1234", HEAD + 4, 0},
};

TEST(a_malformed_packet_closes_its_connection_and_no_other)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) other = start(sandbox, CAY_EXEC_INPUT, "cat");
    struct heard echoed = {0};
    size_t put;

    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        int fd = dial(sandbox);
        send_attack(fd, &malformed[i]);
        assert_closed(fd);
    }
    run(sandbox, "ls /proc/1/fd 2>/dev/null | wc -l; echo alive");
    ASSERT_HAS(result.out, "alive\n");
    ASSERT_OK(cay_process_write(other, "alive\n", 6, &put, &err));
    hear_until(other, &echoed, 1, "alive\n");
    cay_exec_done(&result);
}

/* An EXEC that is right but for what `spoil` does to it. */
struct demand {
    struct exec_request head;
    char strings[64];
};

static struct demand right_demand(void)
{
    static const char strings[] = "\0user\0\0true\0A=1";
    struct demand demand = {
        .head = {.argc = 1, .envc = 1, .strings_len = sizeof strings}};

    memcpy(demand.strings, strings, sizeof strings);
    return demand;
}

static int send_demand(int fd, const struct demand *demand, int fds)
{
    const int given[] = {0, 0, 0, 0};

    return packet_send(fd, MESSAGE_EXEC, demand,
                       sizeof demand->head + demand->head.strings_len, given,
                       (size_t)fds);
}

static void spoil_argc(struct demand *demand)
{
    demand->head.argc = 0;
}
static void spoil_many(struct demand *demand)
{
    demand->head.argc = EXEC_COUNT_MAX + 1;
}
static void spoil_env(struct demand *demand)
{
    demand->head.envc = 0xFFFFFFFF;
}
static void spoil_more(struct demand *demand)
{
    demand->head.envc = 2;
}
static void spoil_fewer(struct demand *demand)
{
    demand->head.envc = 0;
}
static void spoil_end(struct demand *demand)
{
    demand->strings[demand->head.strings_len - 1] = 'x';
}
static void spoil_flags(struct demand *demand)
{
    demand->head.flags = 1u << 31;
}
static void spoil_quiet(struct demand *demand)
{
    demand->head.flags = EXEC_QUIET | EXEC_BACKGROUND;
}
static void spoil_keep(struct demand *demand)
{
    demand->head.flags = EXEC_KEEP_INPUT;
}
static void spoil_tty(struct demand *demand)
{
    demand->head.flags = EXEC_TTY | EXEC_INPUT;
}
static void spoil_memfd(struct demand *demand)
{
    demand->head.flags = EXEC_IN_MEMFD;
}

TEST(a_command_is_taken_only_if_every_part_of_it_fits)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static void (*const spoil[])(struct demand *) = {
        spoil_argc,  spoil_many,  spoil_env,  spoil_more, spoil_fewer, spoil_end,
        spoil_flags, spoil_quiet, spoil_keep, spoil_tty,  spoil_memfd};
    struct demand demand = right_demand();
    int fd = dial(sandbox);

    ASSERT_INT(send_demand(fd, &demand, 2), 0); /* the control: it is right */
    ASSERT_INT(hear_message(fd, &heard), 1);
    ASSERT_INT(heard.head.kind, MESSAGE_STARTED);
    ASSERT_INT(hear_message(fd, &heard), 1);
    ASSERT_INT(heard.head.kind, MESSAGE_ENDED);
    (void)close(fd);
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++)
        for (int fds = 0; fds <= 4; fds++) {
            demand = right_demand();
            spoil[i](&demand);
            fd = dial(sandbox);
            ASSERT_INT(send_demand(fd, &demand, fds), 0);
            assert_closed(fd);
        }
    for (int fds = 0; fds <= 4; fds++)
        if (fds != 2) {
            demand = right_demand();
            fd = dial(sandbox);
            ASSERT_INT(send_demand(fd, &demand, fds), 0);
            assert_closed(fd);
        }
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    cay_exec_done(&result);
}

TEST(a_memfd_that_is_too_short_or_no_file_is_no_command)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct exec_request head = {.argc = 1, .strings_len = 100000, .flags = EXEC_IN_MEMFD};
    AUTO_FD memfd = memfd_create("test", MFD_CLOEXEC);
    int ends[2];

    ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
    ASSERT_INT(write(memfd, "short", 5), 5);
    const int files[] = {memfd, ends[0]};
    for (int i = 0; i < 2; i++) {
        const int fds[] = {0, 0, files[i]};
        int fd = dial(sandbox);
        ASSERT_INT(packet_send(fd, MESSAGE_EXEC, &head, sizeof head, fds, 3), 0);
        assert_closed(fd);
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
}

TEST(a_connection_runs_one_command_at_a_time)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct demand demand = right_demand();
    static const char strings[] = "\0user\0\0sleep\0"
                                  "1000";
    int fd = dial(sandbox);

    memcpy(demand.strings, strings, sizeof strings);
    demand.head.argc = 2;
    demand.head.envc = 0;
    demand.head.strings_len = sizeof strings;
    ASSERT_INT(send_demand(fd, &demand, 2), 0);
    ASSERT_INT(hear_message(fd, &heard), 1);
    ASSERT_INT(heard.head.kind, MESSAGE_STARTED);
    ASSERT_INT(send_demand(fd, &demand, 2), 0);
    assert_closed(fd);
    for (int i = 0; i < PATIENCE_MS / 20; i++) { /* and what it ran is gone with it */
        run(sandbox, "ps -eo comm | grep -c sleep");
        if (strcmp(result.out, "0\n") == 0)
            break;
        rest_ms(10);
    }
    ASSERT_STR(result.out, "0\n");
    cay_exec_done(&result);
}

TEST(a_client_that_reads_no_replies_is_disconnected)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    int fd = dial(sandbox);
    uint64_t after = 0;
    int sent = 0;

    while (sent < 100000 && packet_send(fd, MESSAGE_LIST, &after, 8, NULL, 0) == 0)
        sent++;
    ASSERT(sent < 100000);
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    (void)close(fd);
    cay_exec_done(&result);
}

TEST(so_many_connections_and_no_more)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) first = start(sandbox, 0, "sleep 1000"); /* on the maker's own */
    enum { MOST = 1024 };
    static int fds[MOST];
    struct rlimit before, more;

    ASSERT(cay_process_pid(first) > 0);
    ASSERT_INT(getrlimit(RLIMIT_NOFILE, &before), 0);
    more = before;
    more.rlim_cur = 2 * MOST < before.rlim_max ? 2 * MOST : before.rlim_max;
    ASSERT_INT(setrlimit(RLIMIT_NOFILE, &more), 0);
    for (int i = 0; i < MOST; i++)
        fds[i] = dial(sandbox);
    const char *const argv[] = {"true", NULL};
    struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err), CAY_E_BUSY);
    ASSERT_HAS(err.hint, "1024");
    for (int i = 0; i < MOST; i++)
        (void)close(fds[i]);
    int code = CAY_E_BUSY;
    for (int i = 0; i < PATIENCE_MS / 20 && code == CAY_E_BUSY; i++)
        code = cay_sandbox_exec(sandbox, &options, &result, NULL);
    ASSERT_INT(code, CAY_OK);
    ASSERT_INT(setrlimit(RLIMIT_NOFILE, &before), 0);
    cay_exec_done(&result);
}

TEST(a_process_inside_cannot_stall_pid_1_by_stopping_its_children)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_process *stopper = NULL;
    const struct cay_exec_options as_root = {.user = "root"};
    const char *const argv[] = {"true", NULL};
    struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 300};

    ASSERT_OK(start_script(sandbox,
                           "exec python3 -c 'import os, signal\nprint(\"up\", flush=True)"
                           "\nwhile True:\n  try: os.kill(-1, signal.SIGSTOP)\n"
                           "  except ProcessLookupError: pass'",
                           as_root, &stopper));
    struct heard words = {0};
    hear_until(stopper, &words, 1, "up\n");
    for (int i = 0; i < 5; i++) {
        struct cay_process_info *infos = NULL;
        size_t count;
        uint64_t before = now_ms();
        int code = cay_sandbox_exec(sandbox, &options, &result, &err);
        ASSERT(code == CAY_OK || code == CAY_E_BUSY);
        cay_exec_done(&result);
        ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
        cay_free(infos);
        ASSERT(now_ms() - before < PATIENCE_MS);
    }
    ASSERT_OK(cay_process_kill(stopper, &err));
    cay_process_free(stopper);
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    cay_exec_done(&result);
}

/* Beside PID 1, a child of it may wait for the next command; sends it a signal. */
static const char at_the_spare[] =
    "read go; for i in $(seq 500); do for p in /proc/[0-9]*; do "
    "if [ $p != /proc/1 ] && [ \"$(cat $p/comm 2>/dev/null)\" = cay-init ]; then "
    "kill -%s ${p#/proc/}; echo sent; exit; fi; done; sleep 0.01; done; echo none";

TEST(whatever_happens_to_a_waiting_child_the_next_command_runs)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static const char *const signals[] = {"KILL", "STOP"};

    for (int i = 0; i < 6; i++) {
        const struct cay_exec_options as_root = {
            .user = "root", .flags = CAY_EXEC_BACKGROUND | CAY_EXEC_INPUT};
        size_t put;
        AUTO(cay_process) hitter = NULL;
        char script[512];
        snprintf(script, sizeof script, at_the_spare, signals[i % 2]);
        ASSERT_OK(start_script(sandbox, script, as_root, &hitter));
        run(sandbox, "echo before");
        ASSERT_OK(cay_process_write(hitter, "\n", 1, &put, &err));
        wait_for(hitter);
        ASSERT_STR(result.out, "sent\n");
        uint64_t before = now_ms();
        run(sandbox, "echo after");
        ASSERT_STR(result.out, "after\n");
        ASSERT(now_ms() - before < 4000);
    }
    cay_exec_done(&result);
}

TEST(an_init_that_does_not_answer_is_not_waited_for)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    const char *const argv[] = {"true", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 1};

    run(sandbox, "true");
    ASSERT_INT(kill(native->record.init, SIGSTOP), 0);
    int code = cay_sandbox_exec(sandbox, &options, &result, &err);
    ASSERT_INT(kill(native->record.init, SIGCONT), 0);
    ASSERT_INT(code, CAY_E_TIMEOUT);
    run(sandbox, "echo again");
    ASSERT_STR(result.out, "again\n");
    cay_exec_done(&result);
}

TEST(an_idle_sandbox_has_only_init)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    char path[128];
    const char *children = "";

    run(sandbox, "true");
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)native->record.init,
             (int)native->record.init);
    if (access(path, R_OK) != 0)
        SKIP("this kernel does not list children");
    struct cay_process_info *infos = NULL;
    size_t count = 1;
    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    ASSERT_INT(count, 0); /* it is not shown */
    cay_free(infos);
    for (int i = 0; i < PATIENCE_MS / 20; i++) {
        static char text[64];
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t len = read(fd, text, sizeof text - 1);
        (void)close(fd);
        text[len > 0 ? len : 0] = '\0';
        children = text;
        if (!*text)
            break;
        rest_ms(10);
    }
    ASSERT_STR(children, "");
    cay_exec_done(&result);
}

TEST(a_sandbox_with_another_protocol_is_reported_as_such_and_can_be_killed)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_sandbox *other = NULL;
    const char *const argv[] = {"true", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    struct record record;

    ASSERT_OK(runtime_load(cay_sandbox_id(sandbox), &record, &err));
    ASSERT_INT(record.protocol, PROTOCOL_VERSION);
    record.protocol = PROTOCOL_VERSION + 1; /* as if a later version had created it */
    ASSERT_OK(runtime_save(&record, &err));
    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &other, &err));
    ASSERT_INT(cay_sandbox_exec(other, &options, &result, &err), CAY_E_UNSUPPORTED);
    ASSERT(strstr(err.message, "another protocol"));
    ASSERT(runtime_is_alive(&record));
    ASSERT_OK(cay_sandbox_kill(other, &err));
    ASSERT(!runtime_is_alive(&record));
    cay_sandbox_free(other);
}
