/* SPDX-License-Identifier: Apache-2.0 */

/* Somebody has taken over the half that speaks HTTP: what can he do?
 *
 * Nothing with the system, which the first tests show in a process that is confined as
 * the front is; and of the broker he can ask only what somebody has the credentials for,
 * which the others show by speaking to a real broker in the front's place. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "base/auto.h"
#include "base/error.h"
#include "cay/sandbox.h"
#include "server/broker/broker.h"
#include "server/front/front.h"
#include "sys/rights.h"

enum { PATIENCE_MS = 60000 };

/* --- The system --- */

static int secret_fd = -1;
static char secret_path[PATH_MAX];
static long landlock_version;
static struct sockaddr_un abstract = {.sun_family = AF_UNIX};
static socklen_t abstract_len = sizeof abstract;

static int try_open(void)
{
    return open(secret_path, O_RDONLY | O_CLOEXEC);
}

static int try_openat(void)
{
    return openat(AT_FDCWD, "/", O_RDONLY | O_CLOEXEC);
}

static int try_stat(void)
{
    struct stat st;

    return stat("/etc/passwd", &st);
}

static int try_socket(void)
{
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int try_unix(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

static int try_other_pair(void)
{
    int ends[2];

    return socketpair(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
}

static int try_fork(void)
{
    return (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static int try_exec(void)
{
    char *const none[] = {NULL};

    return execve("/bin/true", none, none);
}

static int try_kill(void)
{
    return kill(getppid(), 0);
}

static int try_trace(void)
{
    return (int)ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

static int try_user(void)
{
    return setuid(0);
}

static int try_unlink(void)
{
    return unlink(secret_path);
}

static int try_code(void)
{
    void *memory = (void *)syscall(SYS_mmap, NULL, 4096, 7 /* with PROT_EXEC */,
                                   0x22 /* private, anonymous */, -1, 0);

    return memory == (void *)-1 ? -1 : 0;
}

/* Of somebody on the host, with no file; the front may send and make pairs of sockets. */
static int try_abstract(void)
{
    enum { SCOPES = 6 }; /* the version of landlock that has them */
    int ends[2];

    if (landlock_version < SCOPES)
        return -1;
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    return (int)sendto(ends[0], "x", 1, 0, (const struct sockaddr *)&abstract,
                       abstract_len);
}

static const struct attempt {
    const char *name;
    int (*act)(void);
} attempts[] = {
    {"open", try_open},
    {"openat", try_openat},
    {"stat", try_stat},
    {"inet", try_socket},
    {"unix", try_unix},
    {"pair", try_other_pair},
    {"fork", try_fork},
    {"exec", try_exec},
    {"kill", try_kill},
    {"trace", try_trace},
    {"become root again", try_user},
    {"unlink", try_unlink},
    {"new code", try_code},
    {"abstract socket", try_abstract},
};

/* The number of the first attempt that succeeded, from 1; 0: none. */
static int attempt_all(bool confined)
{
    int status = 0;
    pid_t child = fork();

    ASSERT(child >= 0);
    if (child == 0) {
        struct cay_error error;
        if (confined && confine(&error) != CAY_OK)
            _exit(100);
        for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++)
            if (attempts[i].act() >= 0)
                _exit((int)i + 1);
        _exit(0);
    }
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The kernel chooses a name that nobody has. */
static int listen_abstract(void)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    ASSERT(fd >= 0);
    ASSERT(bind(fd, (const struct sockaddr *)&abstract, sizeof(sa_family_t)) == 0);
    ASSERT(getsockname(fd, (struct sockaddr *)&abstract, &abstract_len) == 0);
    return fd;
}

TEST(a_front_can_do_nothing_with_the_system)
{
    snprintf(secret_path, sizeof secret_path, "%s/serve.key", scratch());
    secret_fd = open(secret_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT(secret_fd >= 0);
    close(secret_fd);
    landlock_version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1u);
    int others = listen_abstract();
    ASSERT_INT(attempt_all(true), 0);
    ASSERT(attempt_all(false) > 0); /* it is the confinement that forbids it */
    close(others);
}

TEST(a_front_creates_its_loop_without_an_io_uring)
{
    int status = 0;
    pid_t child = fork();

    ASSERT(child >= 0);
    if (child == 0) {
        struct cay_error error;
        if (confine_deny_rings(&error) != CAY_OK)
            _exit(1);
        /* Without the filter, NULL is EFAULT. */
        _exit(syscall(SYS_io_uring_setup, 1, NULL) == -1 && errno == ENOSYS ? 0 : 2);
    }
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT(WIFEXITED(status));
    ASSERT_INT(WEXITSTATUS(status), 0);
}

/* A port of a sandbox's, as its first process may hand it out: full, and told to wait at
 * its end until all of that was read.  It is the child's alone when that closes it. */
static int connect_lingering(struct sockaddr_in *address, int *ret_other)
{
    const struct linger lingers = {.l_onoff = 1, .l_linger = 600};
    socklen_t len = sizeof *address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static char data[65536];

    ASSERT(bind(listener, (struct sockaddr *)address, len) == 0 &&
           listen(listener, 4) == 0 &&
           getsockname(listener, (struct sockaddr *)address, &len) == 0 &&
           connect(fd, (struct sockaddr *)address, len) == 0);
    while (send(fd, data, sizeof data, MSG_DONTWAIT) > 0)
        continue;
    ASSERT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &lingers, sizeof lingers) == 0);
    *ret_other = listener;
    return fd;
}

TEST(a_front_ends_connections_at_once_and_begins_none)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener, status = 0, gate[2];
    int fd = connect_lingering(&address, &listener);

    ASSERT(pipe2(gate, O_CLOEXEC) == 0);
    pid_t child = fork();
    ASSERT(child >= 0);
    if (child == 0) {
        struct cay_error error;
        int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        close(gate[1]);
        alarm(PATIENCE_MS / 1000);
        if (confine(&error) != CAY_OK || read(gate[0], &status, 1) != 0)
            _exit(100);
        if (connect(other, (struct sockaddr *)&address, sizeof address) == 0)
            _exit(1);
        rights_dismiss(fd);
        _exit(0);
    }
    close(fd);
    close(gate[0]);
    close(gate[1]);
    ASSERT_INT(waitpid(child, &status, 0), child);
    close(listener);
    ASSERT(WIFEXITED(status));
    ASSERT_INT(WEXITSTATUS(status), 0);
}

/* --- The broker --- */

static struct {
    int socket;
    pid_t pid;
    char key[2][API_KEY_MAX];
} world;

static _Noreturn void be_broker(int socket, const char *directory)
{
    static struct broker broker;
    static struct serve_options options;
    struct cay_error error;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/serve.db", directory);
    options = (struct serve_options){
        .memory_bytes = 256 << 20, .disk_bytes = 64 << 20, .max_timeout_s = 3600};
    broker.options = &options;
    broker.domain = "localhost";
    broker.front = socket;
    if (registry_open(path, &broker.registry, &error) != CAY_OK ||
        secrets_open(directory, &broker.secrets, &error) != CAY_OK ||
        broker_open(&broker, &error) != CAY_OK)
        _exit(1);
    broker_run(&broker, NULL);
    registry_close(broker.registry);
    _exit(0);
}

static void start_broker(void)
{
    const char *directory = scratch();
    struct registry *registry = NULL;
    char path[PATH_MAX];
    int ends[2];

    snprintf(path, sizeof path, "%s/serve.db", directory);
    ASSERT_OK(registry_open(path, &registry, &err));
    ASSERT_OK(secrets_new_key(registry, "first", world.key[0], &err));
    ASSERT_OK(secrets_new_key(registry, "second", world.key[1], &err));
    registry_close(registry);
    ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) ==
           0);
    world.socket = ends[0];
    world.pid = fork();
    ASSERT(world.pid >= 0);
    if (world.pid == 0) {
        close(ends[0]);
        be_broker(ends[1], directory);
    }
    close(ends[1]);
}

/* It ends when nobody is at the other end of its socket any more. */
static void end_broker(void)
{
    int status = 1;

    close(world.socket);
    ASSERT_INT(waitpid(world.pid, &status, 0), world.pid);
    ASSERT_INT(status, 0);
}

static struct reply_packet reply;

/* The answer to an ask; 0 if the channel was closed without one. */
static int request(enum op op, const char *credential, const char *id, const char *string,
                   int64_t number)
{
    struct request head = {.version = CHANNEL_VERSION, .op = (uint32_t)op};
    struct pollfd waiting = {.events = POLLIN};
    AUTO_BUF strings = {0};
    int ends[2];

    buf_init(&strings, 4096);
    if (string) {
        strings_add(&strings, string);
        head.count = 1;
    }
    head.strings_len = (uint32_t)strings.len;
    head.numbers[0] = number;
    cay_copy_text(head.credential, sizeof head.credential, credential);
    cay_copy_text(head.sandbox, sizeof head.sandbox, id);
    ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) ==
           0);
    ASSERT_INT(request_send(world.socket, &head, &strings, ends[1]), 0);
    close(ends[1]);
    waiting.fd = ends[0];
    ASSERT_INT(poll(&waiting, 1, PATIENCE_MS), 1);
    int got = reply_receive(ends[0], &reply);
    close(ends[0]);
    return got == 1 ? (int)reply.head.kind : 0;
}

static void create(char id[SANDBOX_ID_MAX], char token[TOKEN_MAX])
{
    ASSERT_INT(request(OP_CREATE, world.key[0], "", "base", 60), REPLY_SANDBOX);
    const char *text = reply_next(&reply, NULL);
    cay_copy_text(id, SANDBOX_ID_MAX, text);
    text = reply_next(&reply, reply_next(&reply, text));
    cay_copy_text(token, TOKEN_MAX, text);
}

TEST(another_tenants_sandbox_is_out_of_reach)
{
    static const enum op ops[] = {OP_INFO,  OP_KILL,   OP_CONNECT, OP_TIMEOUT,
                                  OP_PAUSE, OP_RESUME, OP_REFRESH, OP_USAGE};
    char id[SANDBOX_ID_MAX], token[TOKEN_MAX];

    start_broker();
    create(id, token);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        ASSERT_INT(request(ops[i], world.key[1], id, NULL, 10), REPLY_FAILED);
        ASSERT_INT(reply.head.status, 404);
        ASSERT_INT(request(ops[i], "", id, NULL, 10), REPLY_FAILED);
        ASSERT_INT(reply.head.status, 401);
        ASSERT_INT(request(ops[i], token, id, NULL, 10), REPLY_FAILED);
        ASSERT_INT(reply.head.status, 401);
    }
    ASSERT_INT(request(OP_INFO, world.key[0], id, NULL, 0), REPLY_SANDBOX);
    ASSERT_INT(request(OP_KILL, world.key[0], id, NULL, 0), REPLY_DONE);
    end_broker();
}

/* R1: it raises the time to live, which is for the broker to do once there is a row. */
TEST(the_broker_takes_no_confirmation_from_the_front)
{
    char id[SANDBOX_ID_MAX], token[TOKEN_MAX];

    start_broker();
    create(id, token);
    ASSERT_INT(request(OP_CONFIRM, world.key[0], id, "x", 10), REPLY_FAILED);
    ASSERT_INT(reply.head.status, 400);
    ASSERT_INT(request(OP_CONFIRM, token, id, "x", 10), REPLY_FAILED);
    ASSERT_INT(reply.head.status, 400);
    ASSERT_INT(request(OP_KILL, world.key[0], id, NULL, 0), REPLY_DONE);
    end_broker();
}

TEST(a_sandbox_answers_only_to_its_own_token)
{
    char id[2][SANDBOX_ID_MAX], token[2][TOKEN_MAX];

    start_broker();
    create(id[0], token[0]);
    create(id[1], token[1]);
    for (int op = OP_METRICS; op < OP_COUNT; op++) {
        const char *string =
            op == OP_METRICS || op == OP_ENVS || op == OP_PROCESSES || op == OP_EXECUTE
                ? NULL
                : "/";
        if (op == OP_START || op == OP_INPUT || op == OP_MOVE || op == OP_WRITE_FILE ||
            op == OP_DIAL || op == OP_CONTEXTS ||
            request_credential((enum op)op) == CREDENTIAL_VOLUME)
            continue; /* those have more strings, or need no token */
        const char *const wrong[] = {"", token[1], world.key[0]};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            ASSERT_INT(request((enum op)op, wrong[i], id[0], string, 0), REPLY_FAILED);
            ASSERT_INT(reply.head.status, 401);
        }
    }
    ASSERT_INT(request(OP_STAT, token[0], id[0], "/", 0), REPLY_ENTRY);
    ASSERT_INT(request(OP_KILL, world.key[0], id[0], NULL, 0), REPLY_DONE);
    ASSERT_INT(request(OP_KILL, world.key[0], id[1], NULL, 0), REPLY_DONE);
    end_broker();
}

TEST(names_that_are_no_sandboxes_lead_nowhere)
{
    static const char *const names[] = {"", "..", "../x", "/", "A", "sb-x", "a b"};

    start_broker();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ASSERT_INT(request(OP_INFO, world.key[0], names[i], NULL, 0), REPLY_FAILED);
        ASSERT_INT(reply.head.status, 404);
        ASSERT_INT(request(OP_STAT, "x", names[i], "/", 0), REPLY_FAILED);
        ASSERT_INT(reply.head.status, 502);
    }
    ASSERT_INT(request(OP_CREATE, world.key[0], "", "/etc", 60), REPLY_FAILED);
    ASSERT_INT(reply.head.status, 404);
    ASSERT_INT(request(OP_CREATE, world.key[0], "", "../../etc", 60), REPLY_FAILED);
    ASSERT_INT(request(OP_CREATE, world.key[0], "", "base", 1 << 30), REPLY_FAILED);
    ASSERT_INT(reply.head.status, 400);
    end_broker();
}

/* What is not exactly an ask ends the connection, and with it this broker, which nobody
 * starts anew. */
static void send_wrong(void (*spoil)(struct request *head), size_t len, bool with_channel)
{
    struct request head = {.version = CHANNEL_VERSION, .op = OP_CHECK};
    int ends[2], status = 1;

    start_broker();
    cay_copy_text(head.credential, sizeof head.credential, world.key[0]);
    if (spoil)
        spoil(&head);
    ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.head), &ends[1], sizeof(int));
    struct iovec part = {&head, len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = with_channel ? &control : NULL,
                             .msg_controllen = with_channel ? sizeof control : 0};
    ASSERT(sendmsg(world.socket, &message, MSG_NOSIGNAL) >= 0);
    close(ends[0]);
    close(ends[1]);
    ASSERT_INT(waitpid(world.pid, &status, 0), world.pid);
    ASSERT_INT(status, 0);
    close(world.socket);
}

static void spoil_version(struct request *head)
{
    head->version = 2;
}

static void spoil_op(struct request *head)
{
    head->op = OP_COUNT;
}

static void spoil_count(struct request *head)
{
    head->count = 1;
}

static void spoil_length(struct request *head)
{
    head->strings_len = 1;
}

static void spoil_flags(struct request *head)
{
    head->flags = 1u << 31;
}

static void spoil_text(struct request *head)
{
    memset(head->credential, 'x', sizeof head->credential);
}

TEST(what_is_no_ask_ends_the_connection)
{
    static void (*const spoilers[])(struct request * head) = {
        spoil_version, spoil_op, spoil_count, spoil_length, spoil_flags, spoil_text};

    for (size_t i = 0; i < sizeof spoilers / sizeof *spoilers; i++)
        send_wrong(spoilers[i], sizeof(struct request), true);
    send_wrong(NULL, sizeof(struct request), false);
    send_wrong(NULL, sizeof(struct request) - 1, true);
    send_wrong(NULL, 1, true);
}
