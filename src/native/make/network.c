/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/network.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "native/make/join.h"
#include "native/make/program.h"
#include "native/make/trust.h"
#include "native/process/wire.h"
#include "native/record/storage.h"
#include "policy/policy.h"
#include "relay/relay.h"
#include "relay/tls.h"
#include "sys/clone.h"
#include "sys/io.h"
#include "sys/raw.h"
#include "sys/rights.h"
#include "tls/secret.h"

static const char op[] = "sandbox.network";

enum { STACK_SIZE = 16 << 10, HIGH_FD = 16, START_MS = 10000 };

_Static_assert((int)RELAY_FD == (int)CLONE_SOCKET, "as clone_execute() places it");
_Static_assert((int)RELAY_FD == (int)TLS_FD, "both programs start alike");

/* As in launch.c: two clones share this memory, and the first waits until the second has
 * executed. */
struct starter {
    char name[16];
    int socket, program, group;
    pid_t first;
    long pid;
    int error;
    char stacks[2][STACK_SIZE] __attribute__((aligned(16)));
};

/* --- In the clones --- */

IN_CLONE static void become_relay(void *cookie)
{
    struct starter *starter = cookie;
    char *argv[] = {starter->name, NULL}, *env[] = {NULL};

    (void)raw_call(SYS_setsid, 0, 0, 0, 0, 0);
    starter->error = (int)-clone_execute(starter->socket, starter->program, argv, env);
    for (;;)
        (void)raw_call(SYS_exit_group, 1, 0, 0, 0, 0);
}

IN_CLONE static void run_first_clone(void *cookie)
{
    struct starter *starter = cookie;
    const struct clone_args args = {
        .flags = (__u64)(CLONE_VM | CLONE_VFORK) | CLONE_CLEAR_SIGHAND |
                 (starter->group >= 0 ? CLONE_INTO_CGROUP : 0),
        .stack = (__u64)(uintptr_t)starter->stacks[1],
        .stack_size = STACK_SIZE,
        .cgroup = starter->group >= 0 ? (__u64)starter->group : 0,
    };

    starter->pid = clone_run(&args, become_relay, starter);
    for (;;)
        (void)raw_call(SYS_exit_group, 0, 0, 0, 0, 0);
}

/* --- In the caller --- */

static const char *const names[] = {
    [PROGRAM_NET] = "cay-net", [PROGRAM_TLS] = "cay-net-tls"};

static int fail_start(enum program which, int error, struct cay_error *err)
{
    if (cay_errno_is_shortage(error))
        return cay_fail_errno(err, error, op, names[which]);
    if (which == PROGRAM_TLS)
        return cay_fail(err, CAY_E_UNAVAILABLE, error, op, names[which],
                        "cannot start the process that reads the sandbox's requests",
                        "install GnuTLS (libgnutls30), or leave out secrets and network "
                        "rules with methods and paths");
    return cay_fail(err, CAY_E_UNAVAILABLE, error, op, names[which],
                    "cannot start the process that relays the sandbox's network",
                    "run cay doctor to see what this machine lacks");
}

static long start_first_clone(struct starter *starter)
{
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_FILES,
        .stack = (__u64)(uintptr_t)starter->stacks[0],
        .stack_size = STACK_SIZE,
    };
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long first = clone_run(&args, run_first_clone, starter);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return first;
}

static void free_starter(struct starter *starter)
{
    auto_close(&starter->socket);
    auto_close(&starter->program);
    free(starter);
}

static int start(enum program which, int group, bool has_own_user,
                 struct starter **ret_starter, int *ret_socket, struct cay_error *err)
{
    AUTO_FD program = program_open(which, has_own_user, HIGH_FD, err);
    int ends[2] = {-1, -1};

    if (program < 0)
        return program;
    struct starter *starter = malloc(sizeof *starter);
    if (!starter)
        return cay_fail_memory(err, op);
    *starter =
        (struct starter){.socket = -1, .program = TAKE_FD(program), .group = group};
    cay_copy_text(starter->name, sizeof starter->name, names[which]);
    int error =
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : errno;
    if (!error) {
        starter->socket = fcntl(ends[1], F_DUPFD_CLOEXEC, HIGH_FD);
        error = starter->socket >= 0 ? 0 : errno == EINVAL ? EMFILE : errno;
        (void)close(ends[1]);
    }
    long first = error ? -error : start_first_clone(starter);
    if (first < 0) {
        auto_close(&ends[0]);
        free_starter(starter);
        return fail_start(which, (int)-first, err);
    }
    starter->first = (pid_t)first;
    *ret_starter = starter;
    *ret_socket = ends[0];
    return CAY_OK;
}

/* Until the clones no longer use this memory. */
static int finish_start(enum program which, struct starter *starter,
                        struct cay_error *err)
{
    while (starter->first && waitpid(starter->first, NULL, (int)__WCLONE) < 0 &&
           errno == EINTR)
        continue;
    starter->first = 0;
    auto_close(&starter->socket);
    starter->socket = -1;
    if (starter->pid < 0 || starter->error)
        return fail_start(which, starter->pid < 0 ? (int)-starter->pid : starter->error,
                          err);
    return CAY_OK;
}

/* --- What it needs --- */

/* Of a sandbox on disk that is started again. */
static int load_stored(const char *id, struct network *network, struct cay_error *err)
{
    AUTO_FREE char *text = NULL;
    size_t len;

    TRY(storage_load_rules(id, &text, &len, err));
    TRY(network_rules_read(text, len, &network->own, err));
    network->rules = network->own;
    return CAY_OK;
}

static int make_own(const struct cay_sandbox_options *options, struct network *network,
                    struct cay_error *err)
{
    TRY(network_rules_new(options->network == CAY_NETWORK_OPEN ? NETWORK_OPEN
                                                               : NETWORK_RULES,
                          NULL, 0, NULL, &network->own, err));
    network->rules = network->own;
    return CAY_OK;
}

static bool has_inspected(const struct network_rules *rules)
{
    const char *name;
    size_t count;

    return !network_rules_inspected(rules, &name, 1, &count) || count;
}

/* --- Secrets --- */

static bool is_one_line(const char *text)
{
    return text && !strpbrk(text, "\t\n");
}

/* The form of tls/secret.h is lines; its reader checks the rest. */
static int check_lines(const struct cay_secret *secret, struct cay_error *err)
{
    bool is_valid = is_one_line(secret->name) && is_one_line(secret->value);

    for (size_t i = 0; i < secret->host_count; i++)
        is_valid &= is_one_line(secret->hosts[i]);
    if (is_valid)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, secret->name ? secret->name : "secret",
                    "a part of the secret is missing or has several lines",
                    "use 8 to 4096 bytes without control characters for the value");
}

/* In the form of tls/secret.h, with new placeholders. */
static int write_secrets(const struct cay_sandbox_options *options, struct buf *text,
                         struct cay_error *err)
{
    for (size_t i = 0; i < options->secret_count; i++) {
        const struct cay_secret *secret = &options->secrets[i];
        uint64_t random[2];
        TRY(check_lines(secret, err));
        if (getrandom(random, sizeof random, 0) != sizeof random)
            return cay_fail_errno(err, errno, op, "getrandom");
        buf_format(text, "%s\tCAY_PLACEHOLDER_%016llx%016llx\t%s\n", secret->name,
                   (unsigned long long)random[0], (unsigned long long)random[1],
                   secret->value);
        for (size_t j = 0; j < secret->host_count; j++)
            buf_format(text, "\t%s\n", secret->hosts[j]);
    }
    return text->failed ? cay_fail(err, CAY_E_LIMIT, 0, op, "secrets",
                                   "the secrets are too large", "the limit is 64 KiB")
                        : CAY_OK;
}

/* A rule must allow each host: a secret opens none. */
static int check_hosts(const struct network *network, const struct secrets *secrets,
                       struct cay_error *err)
{
    struct network_answer answer;

    for (size_t i = 0; i < secrets->use_count; i++) {
        network_check_name(network->rules, secrets->uses[i].host, 0, &answer);
        if (answer.verdict == NETWORK_DENY)
            return cay_fail(err, CAY_E_INVALID, 0, op, secrets->uses[i].host,
                            "a secret is for this host, which no network rule allows",
                            "add --allow %s", secrets->uses[i].host);
    }
    return CAY_OK;
}

static int keep_secrets(struct network *network, const struct secrets *secrets,
                        struct cay_error *err)
{
    AUTO_BUF hosts;
    AUTO_BUF variables;

    buf_init(&hosts, RELAY_OPENED_MAX);
    buf_init(&variables, SECRETS_TEXT_MAX);
    for (size_t i = 0; i < secrets->use_count; i++)
        buf_format(&hosts, "%s\n", secrets->uses[i].host);
    for (size_t i = 0; i < secrets->count; i++) {
        buf_format(&variables, "%s=%s", secrets->at[i].name, secrets->at[i].placeholder);
        buf_append(&variables, "", 1);
    }
    network->opened = buf_take(&hosts);
    network->variables = buf_take(&variables);
    return network->opened && network->variables ? CAY_OK : cay_fail_memory(err, op);
}

static int take_secrets(const struct cay_sandbox_options *options,
                        struct network *network, struct cay_error *err)
{
    struct secrets *secrets = NULL;
    AUTO_BUF text;

    buf_init(&text, SECRETS_TEXT_MAX);
    if (!options->secret_count)
        return CAY_OK;
    int code = write_secrets(options, &text, err);
    if (!code)
        code = secrets_read(text.data, text.len, &secrets, err);
    if (!code)
        code = check_hosts(network, secrets, err);
    if (!code)
        code = keep_secrets(network, secrets, err);
    secrets_free(secrets);
    if (text.data)
        network->secrets = code ? NULL : strdup(text.data);
    if (text.data)
        explicit_bzero(text.data, text.len);
    return code || network->secrets ? code : cay_fail_memory(err, op);
}

/* The caller's, the places of certificates, and the placeholders, which come last. */
static int make_env(const struct cay_sandbox_options *options, struct network *network,
                    struct cay_error *err)
{
    size_t count = options->secret_count;

    TRY(trust_env(options->env, count, &network->env, err));
    const char **last = network->env + env_count(network->env);
    const char *variable = network->variables;
    for (size_t i = 0; i < count; i++, variable += strlen(variable) + 1)
        *last++ = variable;
    return CAY_OK;
}

int network_take_rules(const struct cay_sandbox_options *options, const char *start,
                       struct network *network, struct cay_error *err)
{
    if (options->network <= CAY_NETWORK_HOST)
        return CAY_OK;
    if (start)
        TRY(load_stored(start, network, err));
    else if (options->policy && options->policy->network)
        network->rules = options->policy->network;
    else
        TRY(make_own(options, network, err));
    TRY(take_secrets(options, network, err));
    network->has_headers = options->header_count > 0;
    network->is_inspected =
        network->secrets || network->has_headers || has_inspected(network->rules);
    return network->is_inspected ? make_env(options, network, err) : CAY_OK;
}

enum cay_network network_kind(const struct network_rules *rules)
{
    return network_rules_mode(rules) == NETWORK_RULES ? CAY_NETWORK_RULES
                                                      : CAY_NETWORK_OPEN;
}

void network_drop_rules(struct network *network)
{
    network_rules_free(TAKE_PTR(network->own));
    free(TAKE_PTR(network->env));
    free(TAKE_PTR(network->variables));
    free(TAKE_PTR(network->opened));
    if (network->secrets)
        explicit_bzero(network->secrets, strlen(network->secrets));
    free(TAKE_PTR(network->secrets));
    network->rules = NULL;
}

static void note_nameserver(void *cookie, char *line)
{
    static const char word[] = "nameserver";
    struct relay_start *start = cookie;
    size_t len = sizeof word - 1;

    if (strncmp(line, word, len) != 0 || (line[len] != ' ' && line[len] != '\t') ||
        start->nameserver_count == RELAY_NAMESERVERS_MAX)
        return;
    char *address = line + len + strspn(line + len, " \t");
    address[strcspn(address, " \t#;%")] = '\0';
    if (network_address_parse(address, &start->nameservers[start->nameserver_count]))
        start->nameserver_count++;
}

/* As the C library does: without one, the local one. */
static void find_nameservers(struct relay_start *start)
{
    (void)io_each_line("/etc/resolv.conf", note_nameserver, start);
    if (!start->nameserver_count &&
        network_address_parse("127.0.0.1", &start->nameservers[0]))
        start->nameserver_count = 1;
}

static int open_control(const struct record *record, struct cay_error *err)
{
    struct sockaddr_un address;

    TRY(runtime_relay_address(record->id, &address, err));
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        fchmodat(AT_FDCWD, address.sun_path, 0600, 0) != 0 ||
        listen(fd, RELAY_MEMBERS_MAX) != 0)
        return runtime_fail(errno, record->id, err);
    return TAKE_FD(fd);
}

/* If root creates the sandbox, an id of its own, above the ranges of all sandboxes: root
 * inside can become every user of its range. */
static uint32_t user_of(const struct record *record)
{
    return record->has_range ? IDMAP_PROBE + record->id_base / RUNTIME_IDS : 0;
}

static int send_start(const struct network *network, const struct record *record,
                      const int *fds, size_t count, struct cay_error *err)
{
    struct relay_start start = {.version = RELAY_VERSION, .uid = user_of(record)};
    AUTO_BUF text;

    buf_init(&text, NETWORK_TEXT_MAX);
    if (!network_rules_write(network->rules, &text))
        return cay_fail_memory(err, op);
    TRY(runtime_save_rules(record->id, text.data, text.len, err));
    start.rules_len = (uint32_t)text.len;
    start.has_opener = network->opener != NULL;
    start.has_owners = network->has_owners;
    find_nameservers(&start);
    start.opened_len = network->opened ? (uint32_t)strlen(network->opened) : 0;
    const struct iovec parts[] = {{&start, sizeof start},
                                  {text.data, text.len},
                                  {network->opened, start.opened_len}};
    int error = rights_send(network->socket, parts, 3, fds, count, MSG_NOSIGNAL);
    return error ? fail_start(PROGRAM_NET, -error, err) : CAY_OK;
}

/* With the cgroups of v1: the memory and the time of both processes are the sandbox's.
 * cay-net joins them itself; cay-net-tls started before they existed. */
static int send_with_cgroups(const struct network *network, const struct record *record,
                             int fds[RELAY_FDS + RELAY_TASKS_MAX], struct cay_error *err)
{
    _Static_assert((int)RELAY_TASKS_MAX == (int)CGROUP_V1, "one for each");
    size_t count = RELAY_FDS;
    char pid[32];
    int code = cgroup_open_tasks(&record->cgroup, fds + RELAY_FDS, err);

    snprintf(pid, sizeof pid, "%ld", network->opener ? network->opener->pid : 0);
    for (; count < RELAY_FDS + RELAY_TASKS_MAX && fds[count] >= 0; count++)
        if (!code && network->opener &&
            write(fds[count], pid, strlen(pid)) != (ssize_t)strlen(pid))
            code = fail_start(PROGRAM_TLS, errno, err);
    if (!code)
        code = send_start(network, record, fds, count, err);
    while (count > RELAY_FDS)
        (void)close(fds[--count]);
    return code;
}

int network_send(struct network *network, const struct launch *launch,
                 struct record *record, struct cay_error *err)
{
    int fds[RELAY_FDS + RELAY_TASKS_MAX];

    TRY(finish_start(PROGRAM_NET, network->starter, err));
    record->relay = (pid_t)network->starter->pid;
    if (runtime_start_time(record->relay, &record->relay_start) != 0)
        return fail_start(PROGRAM_NET, ESRCH, err);
    TRY(launch_sockets(launch, fds, err));
    AUTO_FD tcp = fds[COLLECT_TCP], dns = fds[COLLECT_DNS], log = fds[COLLECT_LOG],
            tcp6 = fds[COLLECT_TCP6], diag = fds[COLLECT_DIAG];
    (void)diag;
    (void)tcp;
    (void)tcp6;
    (void)dns;
    (void)log;
    AUTO_FD control = open_control(record, err);
    if (control < 0)
        return control;
    AUTO_FD events = runtime_create_events(record->id, err);
    if (events < 0)
        return events;
    fds[RELAY_CONTROL] = control;
    fds[RELAY_EVENTS] = events;
    fds[RELAY_INIT] = launch->pidfd;
    fds[RELAY_OPENER] = network->opener ? network->links : launch->pidfd;
    /* Before PID 1 accepts connections; without one, events do not name processes. */
    AUTO_FD owners = join_connect(record->id, MESSAGE_OWNERS_ONLY);
    network->has_owners = owners >= 0;
    fds[RELAY_OWNERS] = owners >= 0 ? owners : launch->pidfd;
    return send_with_cgroups(network, record, fds, err);
}

static int wait_for_reply(int socket)
{
    struct pollfd waiting = {.fd = socket, .events = POLLIN};
    int ready;

    do
        ready = poll(&waiting, 1, START_MS);
    while (ready < 0 && errno == EINTR);
    return ready;
}

int network_wait(struct network *network, struct cay_error *err)
{
    struct relay_reply reply = {.code = -ECHILD};

    if (network->is_serving)
        return CAY_OK;
    int ready = wait_for_reply(network->socket);

    if (ready > 0 &&
        recv(network->socket, &reply, sizeof reply, MSG_DONTWAIT) == sizeof reply &&
        reply.code == 0) {
        network->is_serving = true;
        return CAY_OK;
    }
    return fail_start(PROGRAM_NET, ready == 0 ? ETIMEDOUT : -reply.code, err);
}

/* --- cay-net-tls --- */

static int send_opener_start(struct network *network, const struct record *record,
                             int links, struct cay_error *err)
{
    struct tls_start start = {.version = TLS_VERSION, .uid = user_of(record)};
    AUTO_FD roots = trust_open_host();
    AUTO_BUF text;

    buf_init(&text, NETWORK_TEXT_MAX);
    if (roots < 0)
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, names[PROGRAM_TLS],
                        "this machine has no certificates to verify servers with",
                        "install the package ca-certificates");
    if (!network_rules_write(network->rules, &text))
        return cay_fail_memory(err, op);
    start.rules_len = (uint32_t)text.len;
    start.opens_any = network->has_headers;
    start.secrets_len = network->secrets ? (uint32_t)strlen(network->secrets) : 0;
    const struct iovec parts[] = {{&start, sizeof start},
                                  {text.data, text.len},
                                  {network->secrets, start.secrets_len}};
    const int fds[TLS_FDS] = {[TLS_LINKS] = links, [TLS_ROOTS] = roots};
    int error = rights_send(network->opener_socket, parts, 3, fds, TLS_FDS, MSG_NOSIGNAL);
    return error ? fail_start(PROGRAM_TLS, -error, err) : CAY_OK;
}

static int start_opener(int group, const struct record *record, struct network *network,
                        struct cay_error *err)
{
    int ends[2];

    TRY(start(PROGRAM_TLS, group, record->has_range, &network->opener,
              &network->opener_socket, err));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return cay_fail_errno(err, errno, op, names[PROGRAM_TLS]);
    network->links = ends[0];
    AUTO_FD far = ends[1];
    return send_opener_start(network, record, far, err);
}

int network_start(int group, const struct record *record, struct network *network,
                  struct cay_error *err)
{
    network->links = -1;
    network->is_serving = false;
    TRY(start(PROGRAM_NET, group, record->has_range, &network->starter, &network->socket,
              err));
    return network->is_inspected ? start_opener(group, record, network, err) : CAY_OK;
}

int network_wait_authority(struct network *network, struct cay_error *err)
{
    struct tls_reply reply = {.code = -ECHILD};

    if (!network->opener)
        return CAY_OK;
    TRY(finish_start(PROGRAM_TLS, network->opener, err));
    int ready = wait_for_reply(network->opener_socket);
    if (ready <= 0 ||
        recv(network->opener_socket, &reply, sizeof reply, MSG_DONTWAIT) !=
            sizeof reply ||
        reply.code)
        return fail_start(PROGRAM_TLS, ready == 0 ? ETIMEDOUT : -reply.code, err);
    network->authority = strndup(reply.authority, sizeof reply.authority);
    return network->authority ? CAY_OK : cay_fail_memory(err, op);
}

static void finish_program(enum program which, struct starter *starter, int socket)
{
    if (!starter)
        return;
    (void)!finish_start(which, starter, NULL);
    auto_close(&socket);
    free_starter(starter);
}

void network_done(struct network *network)
{
    if (!network->starter)
        return;
    finish_program(PROGRAM_NET, TAKE_PTR(network->starter), network->socket);
    finish_program(PROGRAM_TLS, TAKE_PTR(network->opener), network->opener_socket);
    auto_close(&network->links);
    network->links = -1;
    free(TAKE_PTR(network->authority));
}

/* --- Changes --- */

int network_store(const struct network_rules *rules, const char *id,
                  struct cay_error *err)
{
    AUTO_BUF text;

    buf_init(&text, NETWORK_TEXT_MAX);
    if (!network_rules_write(rules, &text))
        return cay_fail_memory(err, op);
    return storage_save_rules(id, text.data, text.len, err);
}

static int fail_relay(const char *id, int error, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNAVAILABLE, error, op, id,
                    "the process that relays the sandbox's network does not reply",
                    "resume the sandbox if it is paused; otherwise it has no network "
                    "until it is started again");
}

/* After a time-out no reply is wanted: cay-net gets EPIPE if it serves the request later,
 * and changes nothing.  A reply that came before is here. */
static ssize_t receive_reply(int fd, void *ret_reply, size_t size)
{
    ssize_t got;

    do
        got = recv(fd, ret_reply, size, 0);
    while (got < 0 && errno == EINTR);
    if (got >= 0 || errno != EAGAIN)
        return got;
    (void)shutdown(fd, SHUT_RDWR);
    got = recv(fd, ret_reply, size, MSG_DONTWAIT);
    if (got <= 0)
        errno = ETIMEDOUT;
    return got > 0 ? got : -1;
}

/* Sends an order with `len` bytes of text after it.  The process is confined, but it
 * reads what the sandbox sends: nothing in its reply is trusted.  A reply begins with
 * relay_reply. */
static int exchange(const char *id, enum relay_order order, const char *text, size_t len,
                    struct relay_reply *ret_reply, size_t size, struct cay_error *err)
{
    struct relay_request head = {RELAY_VERSION, order};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)(uintptr_t)text, len}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    const struct timeval limit = {NATIVE_REPLY_MS / 1000, 0};
    struct sockaddr_un address;

    TRY(runtime_relay_address(id, &address, err));
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
        return cay_fail_errno(err, errno, op, id);
    ssize_t got = -1;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
        sendmsg(fd, &message, MSG_NOSIGNAL) >= 0)
        got = receive_reply(fd, ret_reply, size);
    if (got != (ssize_t)size || ret_reply->version != RELAY_VERSION)
        return fail_relay(id, got < 0 ? errno : EPROTO, err);
    if (ret_reply->code == CAY_OK)
        return CAY_OK;
    ret_reply->message[sizeof ret_reply->message - 1] = '\0';
    wire_make_text(ret_reply->message, strlen(ret_reply->message));
    return cay_fail(err, CAY_E_PROTOCOL, 0, op, id,
                    "the process that relays the sandbox's network refuses the rules",
                    "it reports: %s", ret_reply->message);
}

int network_request(const char *id, enum relay_order order, const char *text, size_t len,
                    struct relay_reply *ret_reply, struct cay_error *err)
{
    return exchange(id, order, text, len, ret_reply, sizeof *ret_reply, err);
}

int network_list_asked(const char *id, struct relay_asked *ret_asked,
                       struct cay_error *err)
{
    TRY(exchange(id, RELAY_ASKED, NULL, 0, &ret_asked->reply, sizeof *ret_asked, err));
    return ret_asked->count <= RELAY_ASKED_MAX ? CAY_OK : fail_relay(id, EPROTO, err);
}

static int save_rules(const struct record *record, const char *text, size_t len,
                      struct cay_error *err)
{
    if (record->storage == CAY_STORAGE_DISK)
        TRY(storage_save_rules(record->id, text, len, err));
    return runtime_save_rules(record->id, text, len, err);
}

/* The files first: after a crash the rules in force may be the old ones, and the same
 * change again repairs that.  A request that fails has changed nothing. */
static int change_rules(const struct record *record, const struct buf *text,
                        struct cay_error *err)
{
    struct relay_reply reply;
    size_t len = 0;
    AUTO_FREE char *old = malloc(NETWORK_TEXT_MAX);

    if (!old)
        return cay_fail_memory(err, op);
    TRY(runtime_load_rules(record->id, old, NETWORK_TEXT_MAX, &len, err));
    TRY(save_rules(record, text->data, text->len, err));
    int code =
        network_request(record->id, RELAY_RULES, text->data, text->len, &reply, err);
    if (code)
        (void)!save_rules(record, old, len, NULL);
    return code;
}

int network_change(struct record *record, const struct network_rules *rules,
                   struct cay_error *err)
{
    enum cay_network network = network_kind(rules);
    AUTO_BUF text;

    buf_init(&text, NETWORK_TEXT_MAX);
    if (!network_rules_write(rules, &text))
        return cay_fail(err, CAY_E_LIMIT, 0, op, record->id, "too many network rules",
                        "they may have %d KiB", NETWORK_TEXT_MAX >> 10);
    TRY(change_rules(record, &text, err));
    if (record->network == network)
        return CAY_OK;
    record->network = network;
    return runtime_save(record, err);
}
