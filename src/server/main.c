/* SPDX-License-Identifier: Apache-2.0 */

/* cay-serve: runs `cay serve`, `cay key`, `cay secret`, `cay audit` and `cay env`.  A
 * program of its own, so that loading the libraries of the server does not slow down the
 * start of other commands. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "code/warm.h"
#include "mcp/mcp.h"
#include "server/broker/broker.h"
#include "server/broker/hooks.h"
#include "server/broker/keys.h"
#include "server/broker/recovery.h"
#include "server/commands.h"
#include "server/front/front.h"
#include "server/wire/bucket.h"
#include "server/wire/notify.h"
#include "server/wire/warn.h"

/* The same format as src/cli/output.c. */
static int fail(const struct cay_error *err, bool as_json)
{
    struct json json;

    if (as_json) {
        json_to_file(&json, stderr);
        json_put_object(&json);
        json_put_key(&json, "error");
        json_put_object(&json);
        json_set_int(&json, "code", err->code);
        json_set_text(&json, "slug", cay_code_slug(err->code));
        json_set_int(&json, "errno", err->sys_errno);
        json_set_text(&json, "op", err->op);
        json_set_text(&json, "subject", err->subject);
        json_set_text(&json, "message", err->message);
        json_set_text(&json, "hint", err->hint);
        json_put_end(&json);
        json_put_end(&json);
        fputc('\n', stderr);
    } else {
        fprintf(stderr, "cay: %s: %s%s%s (%s)\n", cay_code_slug(err->code), err->subject,
                *err->subject ? ": " : "", err->message, err->hint);
    }
    return cay_code_exit(err->code);
}

/* Adds a key created elsewhere, for example one shared by several servers. */
static int add_key_file(struct state *state, struct cay_error *err)
{
    const char *path = state->options.api_key_file;
    char key[API_KEY_MAX + 1] = "";

    if (!path)
        return CAY_OK;
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, key, sizeof key - 1);
    if (len < 0)
        return cay_fail_errno(err, errno, "serve.key", path);
    key[strcspn(key, "\r\n")] = '\0';
    return secrets_add_key(state->registry, "default", key, err);
}

/* --- The listening socket --- */

enum { FIRST_PASSED = 3, BACKLOG = 1024 };

static const char listen_op[] = "serve.listen";

/* See sd_listen_fds(3): LISTEN_PID is this process, and one descriptor is passed. */
static int passed_socket(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    int is_listening = 0;
    socklen_t len = sizeof is_listening;

    if (!pid || !count || strtol(pid, NULL, 10) != (long)getpid() ||
        strcmp(count, "1") != 0)
        return -1;
    if (getsockopt(FIRST_PASSED, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) != 0 ||
        !is_listening || fcntl(FIRST_PASSED, F_SETFD, FD_CLOEXEC) != 0)
        return -1;
    return FIRST_PASSED;
}

static void read_address(struct serve_options *options, int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;

    if (getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        return;
    const struct sockaddr_in *four = (const struct sockaddr_in *)&address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address;
    bool is_four = address.ss_family == AF_INET;
    if (!is_four && address.ss_family != AF_INET6)
        return;
    options->port = ntohs(is_four ? four->sin_port : six->sin6_port);
    (void)inet_ntop(address.ss_family,
                    is_four ? (const void *)&four->sin_addr : &six->sin6_addr,
                    options->address, sizeof options->address);
}

static bool fill_address(const struct serve_options *options,
                         struct sockaddr_storage *address, socklen_t *ret_len)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;

    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, options->address, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(options->port);
        *ret_len = sizeof *four;
        return true;
    }
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(options->port);
    *ret_len = sizeof *six;
    return inet_pton(AF_INET6, options->address, &six->sin6_addr) == 1;
}

/* The listening socket: passed by systemd, or a new one.  Stores its address in the
 * options. */
static int listen_open(struct serve_options *options, int *ret_socket,
                       struct cay_error *err)
{
    struct sockaddr_storage address;
    socklen_t len;
    const int yes = 1;
    AUTO_FD fd = passed_socket();

    if (fd < 0 && !fill_address(options, &address, &len))
        return cay_fail_errno(err, EINVAL, listen_op, options->address);
    if (fd < 0) {
        fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0)
            return cay_fail_errno(err, errno, listen_op, options->address);
        if (bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, BACKLOG) != 0)
            return errno == EADDRINUSE
                       ? cay_fail(err, CAY_E_BUSY, errno, listen_op, options->address,
                                  "the port is in use",
                                  "stop the other server, or choose a port with --listen")
                       : cay_fail_errno(err, errno, listen_op, options->address);
    }
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    read_address(options, fd);
    *ret_socket = TAKE_FD(fd);
    return CAY_OK;
}

/* --- cay serve --- */

struct server {
    struct broker broker;
    struct front_options front;
    struct restarts restarts; /* of the front */
};

static struct server server;
static struct warn notes; /* lines of the start */

/* The front keeps its socket to the broker, the listening socket and the log.  All other
 * descriptors of the broker, some of which lead to sandboxes, are closed: first the kept
 * ones move out of the way, then to the lowest numbers. */
static void close_others(int *const fds[], size_t count)
{
    int place = STDERR_FILENO + 1;

    for (size_t i = 0; i < count; i++)
        if (*fds[i] >= 0 && (*fds[i] = fcntl(*fds[i], F_DUPFD_CLOEXEC,
                                             STDERR_FILENO + 1 + (int)count)) < 0)
            _exit(1);
    for (size_t i = 0; i < count; i++)
        if (*fds[i] >= 0 && (*fds[i] = dup3(*fds[i], place++, O_CLOEXEC)) < 0)
            _exit(1);
    if (syscall(SYS_close_range, place, ~0u, 0) != 0)
        _exit(1);
}

static _Noreturn void become_front(int socket)
{
    struct front_options *front = &server.front;
    int *const fds[] = {&front->broker, &front->listener, &front->log};
    sigset_t none;

    explicit_bzero(&server.broker.secrets, sizeof server.broker.secrets);
    explicit_bzero(&server.broker.request, sizeof server.broker.request);
    bucket_drop_access();
    front->broker = socket;
    close_others(fds, sizeof fds / sizeof *fds);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigaction(SIGINT, &ignore, NULL); /* the broker handles these two */
    (void)sigaction(SIGTERM, &ignore, NULL);
    (void)sigaction(SIGUSR1, &ignore, NULL);
    (void)sigaction(SIGUSR2, &ignore, NULL);
    (void)prctl(PR_SET_NAME, "cay-front");
    front_run(front);
}

static int start_front(struct broker *broker)
{
    static struct warn warn;
    bool was_stuck = broker->is_front_replaced;
    int ends[2];

    if (server.restarts.count > 0)
        warn_line(&warn, "the front exited (%s %d); starting another",
                  WIFSIGNALED(broker->front_status) ? "signal" : "status",
                  WIFSIGNALED(broker->front_status) ? WTERMSIG(broker->front_status)
                                                    : WEXITSTATUS(broker->front_status));
    broker->is_front_replaced = false;
    /* Clients can slow down a front; a replaced one must not count towards the restart
     * limit. */
    if ((!was_stuck && !restarts_allowed(&server.restarts, (int64_t)clock_ms())) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -1;
    pid_t pid = fork(); /* allow: fork the front; there are no threads */
    if (pid == 0)
        become_front(ends[1]);
    (void)close(ends[1]);
    if (pid < 0) {
        (void)close(ends[0]);
        return -1;
    }
    broker->front_pid = pid;
    return ends[0];
}

static void log_error(const char *about, const struct cay_error *error)
{
    static struct warn warn;

    warn_line(&warn, "%s: %s (%s)", about, error->message, error->hint);
}

/* CLOCK_BOOTTIME continues between two servers with the same boot id. */
static int set_clock(struct registry *registry, struct cay_error *err)
{
    char boot_id[64] = "";
    int64_t offset_ms = server_clock_offset();
    AUTO_FD fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)!read(fd, boot_id, sizeof boot_id - 1);
    boot_id[strcspn(boot_id, "\n")] = '\0';
    int code = registry_find_clock(registry, boot_id, &offset_ms, err);
    server_clock_set(offset_ms);
    return code;
}

/* A store on a full disk can be read, and written to once there is space. */
static int allow_full(const struct registry *registry, int code,
                      const struct cay_error *error)
{
    if (code != CAY_E_NO_SPACE)
        return code;
    log_error("store", error);
    if (registry_is_exclusive(registry))
        warn_line(&notes, "store: read-only; creating a sandbox fails with 507 until "
                          "there is space");
    return CAY_OK;
}

/* The files of the dashboard: beside this program in a build directory, else those that
 * were installed with it.  Another user's folder must not be served. */
static const char *find_ui(void)
{
    static char path[PATH_MAX];
    static const char *const places[] = {"ui", "../../share/cay/ui"};
    char own[PATH_MAX];
    struct stat program, st;
    ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);

    own[len > 0 ? len : 0] = '\0';
    const char *slash = stat("/proc/self/exe", &program) == 0 ? strrchr(own, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        int size =
            snprintf(path, sizeof path, "%.*s%s", (int)(slash + 1 - own), own, places[i]);
        if (size < PATH_MAX && stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
            (st.st_uid == 0 || st.st_uid == program.st_uid))
            return path;
    }
    return "";
}

static int open_log(const struct serve_options *options, int *ret_log,
                    struct cay_error *err)
{
    const char *path = options->access_log;

    if (!path)
        return CAY_OK;
    *ret_log = strcmp(path, "-") == 0
                   ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)
                   : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return *ret_log < 0 ? cay_fail_errno(err, errno, "serve.log", path) : CAY_OK;
}

static int prepare(struct state *state, char *domain, size_t domain_room,
                   struct cay_error *err)
{
    struct serve_options *options = &state->options;
    struct front_options *front = &server.front;
    struct warm_key key; /* keepers read its variables */
    int code = warm_key_init(&key, "", NULL, NULL, err);

    front->log = -1;
    if (!code)
        code = server_state_open(state, false, err);
    if (!code)
        code = hooks_check(options, state->store, err);
    if (!code)
        code = registry_check(state->registry, false, NULL, err);
    if (!code)
        code = allow_full(state->registry, set_clock(state->registry, err), err);
    if (!code)
        code = add_key_file(state, err);
    if (!code)
        code = secrets_open(options->home, &server.broker.secrets, err);
    if (!code && options->server_key_file)
        code = secrets_read_keys(options->server_key_file, &server.broker.secrets, err);
    if (!code && options->require_level)
        code = node_check_level(options, err);
    if (!code)
        code = listen_open(options, &front->listener, err);
    if (!code) {
        server.broker.registry = state->registry;
        code = index_prepare(&server.broker, options, err);
    }
    if (!code)
        code = bucket_take_access(options, err);
    if (!code)
        code = open_log(options, &front->log, err);
    if (!code && options->tls_cert)
        code = server_tls_load(options, &front->tls_cert, &front->tls_key, err);
    if (!code)
        code = allow_full(
            state->registry,
            registry_add_listener(state->registry, options->port, options->tls_cert, err),
            err);
    if (code)
        return code;
    if (options->domain)
        snprintf(domain, domain_room, "%s", options->domain);
    else
        snprintf(domain, domain_room, "localhost:%u", options->port);
    front->domain = domain;
    front->ui = find_ui();
    front->has_ui = !options->no_ui;
    front->mcp_idle_ms = options->mcp ? options->mcp_idle_s * UINT64_C(1000) : 0;
    front->log_is_text = options->log_format == LOG_FORMAT_TEXT;
    server.broker.options = options;
    server.broker.registry = state->registry;
    server.broker.domain = domain;
    server.broker.log_error = log_error;
    return CAY_OK;
}

/* --check-store, --rebuild-store */
static int check_or_rebuild(struct state *state, struct cay_error *err)
{
    char old[PATH_MAX];
    bool rebuilds = state->options.rebuilds_store;
    int code = options_home(&state->options, rebuilds, err);

    if (!code)
        code = options_store(&state->options, state->store, err);
    if (code || !rebuilds)
        return code ? code : recovery_check_store(state->store, err);
    code = recovery_set_aside(state->store, old, err);
    if (!code)
        code = server_state_open(state, false, err);
    if (!code)
        code = set_clock(state->registry, err);
    if (!code)
        code = recovery_rebuild_store(state->registry, old, state->options.max_timeout_s,
                                      err);
    registry_close(state->registry);
    return code;
}

/* If the default key was removed, the server runs without printing one. */
static int find_key(const struct state *state, char ret_key[API_KEY_MAX],
                    struct cay_error *err)
{
    int code = secrets_default_key(state->registry, state->options.home, ret_key, err);

    if (code != CAY_E_NOT_FOUND)
        return code;
    warn_line(&notes, "the default API key was removed and is not exported (create one "
                      "with cay key new)");
    ret_key[0] = '\0';
    return CAY_OK;
}

static int start_processes(struct cay_error *err)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max; /* a stream needs two in each process */
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    /* The heartbeat counter, in memory that the front shares with the broker. */
    void *beats = mmap(NULL, sizeof *server.front.beats, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    server.front.beats = server.broker.front_beats = beats;
    server.broker.front = beats != MAP_FAILED ? start_front(&server.broker) : -1;
    if (server.broker.front < 0)
        return cay_fail_errno(err, errno, "serve.start", "front");
    return CAY_OK;
}

/* Of each part of --mcp-tools. */
static int check_tools(const struct serve_options *options, struct cay_error *err)
{
    AUTO_FREE char *policy = strdup(options->mcp_tools ? options->mcp_tools : "all");
    const char *tenant, *list;

    for (char *at = policy; options_next_tools(&at, &tenant, &list);) {
        const struct mcp_options wanted = {.tools = list};
        if (*tenant && !options_is_tenant(tenant))
            return cay_fail(err, CAY_E_INVALID, 0, "serve.mcp", tenant,
                            "invalid tenant name in --mcp-tools",
                            "give TENANT=read-only, or names; \";\" separates tenants");
        if (strcmp(list, "read-only") != 0 && strcmp(list, "all") != 0)
            TRY(mcp_check(&wanted, err));
    }
    return policy ? CAY_OK : cay_fail_memory(err, "serve.mcp");
}

static int check_shared(const struct serve_options *options, struct cay_error *err)
{
    if (!options->store_url || *options->node)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "serve.store", "--store",
                    "servers that share a database need names", "add --node NAME");
}

static int cmd_serve(char *const *argv, struct cay_error *err)
{
    struct state state = {0};
    char key[API_KEY_MAX], domain[256];
    int code = options_parse(argv, &state.options, err);

    if (code == 1) {
        AUTO_BUF help = {.max = 8192};
        options_help(&help);
        fputs(help.data, stdout);
        return commands_finish_output(err);
    }
    if (!code)
        code = check_tools(&state.options, err);
    if (!code && state.options.prints_haproxy)
        return haproxy_print(&state.options, err);
    if (!code)
        code = check_shared(&state.options, err);
    if (!code && (state.options.checks_store || state.options.rebuilds_store)) {
        code = check_or_rebuild(&state, err);
        return code ? code : commands_finish_output(err);
    }
    if (!code && state.options.checks) {
        code = server_check(&state, err);
        return code ? code : commands_finish_output(err);
    }
    if (!code) {
        notify_open();
        warn_set_json(state.options.log_format == LOG_FORMAT_JSON);
        code = prepare(&state, domain, sizeof domain, err);
    }
    if (!code)
        code = find_key(&state, key, err);
    if (code)
        return code;
    code = start_processes(err);
    if (code)
        return code;
    code = broker_open(&server.broker, err);
    if (code)
        return code;
    live_write(&state.options, state.store);
    if (!state.options.is_quiet) {
        commands_print_exports(&state.options, key);
        (void)fflush(stdout);
        if (state.options.internet == CAY_NETWORK_NONE)
            warn_line(&notes, "sandboxes have no internet access (use --internet open)");
    }
    commands_warn(&state.options);
    explicit_bzero(key, sizeof key);
    broker_run(&server.broker, start_front);
    if (state.options.on_exit == ON_EXIT_KILL)
        broker_kill_all(&server.broker);
    live_remove();
    registry_close(state.registry);
    if (server.broker.is_over)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, "serve.run", "serve",
                    "the front keeps exiting", "see the log lines above");
}

int main(int argc, char **argv)
{
    struct cay_error err = {0};
    bool as_json = false;
    char *const *rest = argv + (argc > 1 ? 2 : 1);
    const char *command = argc > 1 ? argv[1] : "serve";
    int code;

    if (strcmp(command, "serve") == 0)
        code = cmd_serve(rest, &err);
    else if (strcmp(command, "key") == 0)
        code = key_command(rest, &as_json, &err);
    else if (strcmp(command, "secret") == 0)
        code = secret_command(rest, &as_json, &err);
    else if (strcmp(command, "audit") == 0)
        code = audit_command(rest, &as_json, &err);
    else if (strcmp(command, "env") == 0)
        code = commands_env(rest, &err);
    else
        code = cay_fail(&err, CAY_E_INVALID, 0, "serve", command, "unknown command",
                        "use cay serve, cay key, cay secret, cay audit or cay env");
    if (!code && strcmp(command, "serve") != 0)
        code = commands_finish_output(&err);
    return code < 0 ? fail(&err, as_json) : 0;
}
