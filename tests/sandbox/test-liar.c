/* SPDX-License-Identifier: Apache-2.0 */

/* A first process that was taken over, and what the library makes of what it says about
 * commands.  Of files it is tests/sandbox/test-files-liar.c. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/auto.h"
#include "base/clock.h"
#include "init/packet.h"
#include "ledger.h"
#include "native/doctor/inspect.h"
#include "native/process/files.h"
#include "native/process/process.h"
#include "native/process/wire.h"
#include "sys/rights.h"

/* --- An init that says what a test wants it to --- */

struct liar {
    int socket;
    /* Answers one question; false to hear no more of them. */
    bool (*answer)(const struct liar *liar, const struct packet *question);
    int which; /* for tests that go through many lies */
    pthread_t thread;
};

static void *lie(void *cookie)
{
    const struct liar *liar = cookie;
    AUTO_FREE struct packet *packet = malloc(sizeof *packet);
    bool goes_on = true;

    while (goes_on && packet && packet_receive(liar->socket, packet) == 1) {
        packet_close_fds(packet);
        goes_on = liar->answer(liar, packet);
    }
    return NULL;
}

static struct native *meet(struct liar *liar)
{
    struct native *native = native_new();
    int ends[2];

    ASSERT(native != NULL);
    ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    liar->socket = ends[0];
    native->socket = ends[1];
    ASSERT(pthread_create(&liar->thread, NULL, lie, liar) == 0);
    return native;
}

static void part(struct liar *liar, struct native *native)
{
    native_free(native);
    (void)shutdown(liar->socket, SHUT_RDWR);
    ASSERT(pthread_join(liar->thread, NULL) == 0);
    close(liar->socket);
}

/* --- Lists --- */

static void tell_list(const struct liar *liar, const struct list_entry *entry)
{
    struct {
        struct list_head head;
        struct list_entry entry;
    } page = {.head.count = entry != NULL};
    size_t len = entry ? sizeof page : sizeof page.head;

    if (entry)
        page.entry = *entry;
    (void)packet_send(liar->socket, MESSAGE_LISTED, &page, len, NULL, 0);
}

enum { CAUSE_LARGE, CAUSE_NONE, NOBODY, NEGATIVE, IMPOSSIBLE };

static bool list_impossible(const struct liar *liar, const struct packet *question)
{
    struct list_entry entry = {.number = 1,
                               .pid = 7,
                               .flags = LIST_BACKGROUND | LIST_ENDED,
                               .cause = CAY_CAUSE_EXITED};
    uint64_t after;

    memcpy(&after, question->payload, sizeof after);
    switch (liar->which) {
    case CAUSE_LARGE:
        entry.cause = 0x12345678;
        break;
    case CAUSE_NONE:
        entry.cause = 0;
        break;
    case NOBODY:
        entry.pid = 0;
        break;
    default:
        entry.pid = -1;
    }
    tell_list(liar, after == 0 ? &entry : NULL);
    return true;
}

TEST(a_list_of_what_cannot_be_is_refused)
{
    for (int which = 0; which < IMPOSSIBLE; which++) {
        struct liar liar = {.answer = list_impossible, .which = which};
        struct native *native = meet(&liar);
        struct cay_process_info *infos = NULL;
        size_t count = 0;

        ASSERT_INT(native_processes.list(native, &infos, &count, &err), CAY_E_PROTOCOL);
        part(&liar, native);
    }
}

static bool list_odd(const struct liar *liar, const struct packet *question)
{
    struct list_entry entry = {.number = 1,
                               .pid = 7,
                               .flags = LIST_BACKGROUND | LIST_ENDED,
                               .cause = CAY_CAUSE_EXITED,
                               .started_ms = INT64_MIN};
    uint64_t after;

    memcpy(&after, question->payload, sizeof after);
    memset(entry.tag, 'a', sizeof entry.tag);
    memcpy(entry.tag, "\033[2J\xc2\x9b\xff", 7);
    memset(entry.words, '\b', sizeof entry.words);
    tell_list(liar, after == 0 ? &entry : NULL);
    return true;
}

TEST(what_a_list_tells_is_text_and_in_the_past)
{
    struct liar liar = {.answer = list_odd};
    struct native *native = meet(&liar);
    struct cay_process_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(native_processes.list(native, &infos, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT(strncmp(infos[0].tag, "?[2J???aaa", 10) == 0);
    ASSERT(strncmp(infos[0].command, "????", 4) == 0);
    ASSERT(infos[0].started_ms > 0);
    free(infos);
    part(&liar, native);
}

/* --- Failures --- */

static bool fail_oddly(const struct liar *liar, const struct packet *question)
{
    struct cay_error error = {.code = CAY_E_BUSY};

    (void)question;
    memset(error.message, '\033', sizeof error.message);
    memcpy(error.hint, "\r\nall is well", 14);
    (void)packet_send(liar->socket, MESSAGE_FAILED, &error, sizeof error, NULL, 0);
    return true;
}

TEST(what_a_failure_says_is_text)
{
    struct liar liar = {.answer = fail_oddly};
    struct native *native = meet(&liar);
    struct state state;

    ASSERT_INT(native_init_state(native, &state, &err), CAY_E_BUSY);
    ASSERT(strncmp(err.message, "????", 4) == 0);
    ASSERT_INT(strlen(err.message), sizeof err.message - 1);
    ASSERT_STR(err.hint, "??all is well");
    part(&liar, native);
}

/* --- Descriptors that take long to close --- */

/* Its other end is full and nobody reads there; the end of ours waits for that. */
static int make_lingering(int *ret_other)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct linger lingers = {.l_onoff = 1, .l_linger = 600};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static char data[65536];

    ASSERT(bind(listener, (struct sockaddr *)&address, len) == 0 &&
           listen(listener, 1) == 0 &&
           getsockname(listener, (struct sockaddr *)&address, &len) == 0 &&
           connect(fd, (struct sockaddr *)&address, len) == 0);
    *ret_other = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ASSERT(*ret_other >= 0);
    close(listener);
    while (send(fd, data, sizeof data, MSG_DONTWAIT) > 0)
        continue;
    ASSERT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &lingers, sizeof lingers) == 0);
    return fd;
}

/* The kernel holds what is under way, so that ours can go. */
static void send_lingering(int socket, size_t count, int *others)
{
    const struct state state = {0};
    const struct message head = {PROTOCOL_VERSION, MESSAGE_STATE, sizeof state,
                                 (uint32_t)count};
    const struct iovec parts[] = {{(void *)(uintptr_t)&head, sizeof head},
                                  {(void *)(uintptr_t)&state, sizeof state}};
    int fds[RIGHTS_MAX];

    for (size_t i = 0; i < count; i++)
        fds[i] = make_lingering(&others[i]);
    ASSERT_INT(rights_send(socket, parts, 2, fds, count, 0), 0);
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

static bool be_silent(const struct liar *liar, const struct packet *question)
{
    (void)liar;
    (void)question;
    return true;
}

/* One that was not asked for, more than there may be, and one that is never looked at. */
TEST(no_descriptor_of_its_keeps_us_from_closing_it)
{
    for (size_t count = 1; count <= MESSAGE_FDS_MAX + 2; count += MESSAGE_FDS_MAX + 1) {
        struct liar liar = {.answer = be_silent};
        struct native *native = meet(&liar);
        int others[MESSAGE_FDS_MAX + 3];
        struct state state;

        send_lingering(liar.socket, count, others);
        ASSERT_INT(send(liar.socket, "", 0, 0), 0); /* an empty one is not the end */
        send_lingering(liar.socket, 1, others + count);
        uint64_t begin = clock_ms();
        ASSERT(native_init_state(native, &state, &err) != CAY_OK);
        ASSERT(clock_ms() - begin < 300000);
        for (size_t i = 0; i <= count; i++)
            close(others[i]);
        part(&liar, native);
    }
}

static bool open_files(const struct liar *liar, const struct packet *question)
{
    if (question->head.kind == MESSAGE_FILES)
        (void)packet_send(liar->socket, MESSAGE_FILES_READY, "/\0user", 7, NULL, 0);
    return true;
}

TEST(no_descriptor_of_its_keeps_a_handle_from_being_freed)
{
    struct liar liar = {.answer = open_files};
    int others[3];

    struct native *native = meet(&liar);
    send_lingering(liar.socket, 1, others + 2);
    part(&liar, native);

    native = meet(&liar);
    const struct files_target sandbox = {.socket = TAKE_FD(native->socket),
                                         .user = "user"};
    cay_files *files;
    ASSERT_OK(files_open_sandbox(&sandbox, &files, &err));
    send_lingering(liar.socket, 1, others);
    uint64_t begin = clock_ms();
    cay_files_free(files);
    part(&liar, native);

    native = meet(&liar);
    struct process *process = calloc(1, sizeof *process);
    ASSERT(process != NULL);
    command_init(&process->command, TAKE_FD(native->socket), "id", 0, &process->packet);
    process->events.memory = process->events.pids = process->epoll = process->ready = -1;
    send_lingering(liar.socket, 1, others + 1);
    process_free(process);
    ASSERT(clock_ms() - begin < 300000);
    part(&liar, native);
    for (size_t i = 0; i < 3; i++)
        close(others[i]);
}

/* --- Its time --- */

static bool answer_the_second(const struct liar *liar, const struct packet *question)
{
    const uint32_t put = 5;

    if (question->head.kind != MESSAGE_WRITE)
        return true;
    (void)packet_send(liar->socket, MESSAGE_PONG, NULL, 0, NULL, 0);
    (void)packet_send(liar->socket, MESSAGE_WRITTEN, &put, sizeof put, NULL, 0);
    return true;
}

TEST(an_answer_that_comes_too_late_is_not_taken_for_another)
{
    struct liar liar = {.answer = answer_the_second};
    struct native *native = meet(&liar);
    AUTO_FREE struct packet *packet = malloc(sizeof *packet);
    struct command command;
    uint32_t put = 0;

    command_init(&command, native->socket, "id", 50, packet);
    ASSERT_CODE(command_request(&command, "test", MESSAGE_PING, NULL, 0, MESSAGE_PONG,
                                NULL, 0, &err),
                CAY_E_TIMEOUT);
    command.reply_ms = PATIENCE_MS;
    ASSERT_OK(command_request(&command, "test", MESSAGE_WRITE, "12345", 5,
                              MESSAGE_WRITTEN, &put, sizeof put, &err));
    ASSERT_INT(put, 5);
    ASSERT(!command.gone);
    part(&liar, native);
}

/* --- A real one that has turned --- */

/* The socket at which it accepts us, as it has it itself. */
static int listener_of(cay_sandbox *sandbox)
{
    struct cay_sandbox_info info;

    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    AUTO_FD pidfd = (int)syscall(SYS_pidfd_open, info.init_pid, 0);
    for (int i = 0; i < 64; i++) {
        int fd = (int)syscall(SYS_pidfd_getfd, pidfd, i, 0);
        int listens = 0;
        socklen_t len = sizeof listens;
        if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 &&
            listens)
            return fd;
        if (fd >= 0)
            close(fd);
    }
    SKIP("no pidfd_getfd(2) here");
    return -1;
}

TEST(one_that_accepts_nobody_is_found_and_killed)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO_FD listener = listener_of(sandbox);
    cay_sandbox *other = NULL;
    struct cay_process_info *infos = NULL;
    size_t count = 0;

    ASSERT(shutdown(listener, SHUT_RDWR) == 0);
    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &other, &err));
    ASSERT_INT(cay_process_list(other, &infos, &count, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_sandbox_kill(other, &err));
    cay_sandbox_free(other);
    ASSERT_INT(cay_sandbox_open(cay_sandbox_id(sandbox), &other, &err), CAY_E_NOT_FOUND);
}

/* A stopped one does not see that its maker is gone: somebody else has to end it then. */
static pid_t guard(pid_t init, int *ret_leash)
{
    int ends[2], pidfd = (int)syscall(SYS_pidfd_open, init, 0);

    ASSERT(pidfd >= 0 && pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        char byte;
        close(ends[1]);
        setsid();
        (void)!read(ends[0], &byte, 1);
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        _exit(0);
    }
    close(ends[0]);
    close(pidfd);
    *ret_leash = ends[1];
    return pid;
}

/* It is stopped, and its queue is full: who calls would wait for ever. */
TEST(one_that_lets_us_wait_does_not_hold_us)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO_FD listener = listener_of(sandbox);
    struct cay_sandbox_info info;
    cay_sandbox *others[3] = {NULL};
    int leash;

    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    pid_t pid = guard(info.init_pid, &leash);
    ASSERT(kill(info.init_pid, SIGSTOP) == 0 && listen(listener, 0) == 0);
    for (size_t i = 0; i < 3; i++)
        ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &others[i], &err));
    ASSERT_OK(cay_sandbox_kill(others[2], &err));
    for (size_t i = 0; i < 3; i++)
        cay_sandbox_free(others[i]);
    close(leash);
    ASSERT(waitpid(pid, NULL, 0) == pid);
}
