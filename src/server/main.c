/* SPDX-License-Identifier: Apache-2.0 */

/* cay-serve: what `cay serve`, `cay key` and `cay env` become, so that the libraries of a
 * server do not slow down the start of everything else. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker.h"
#include "server/front.h"
#include "server/listen.h"
#include "server/restarts.h"
#include "server/tls.h"

static const char help[] =
    "Usage: cay serve [OPTION]...\n"
    "Serve sandboxes to programs that use the E2B SDKs.\n\n"
    "  --listen ADDR:PORT     where (127.0.0.1:3000; port 0: any)\n"
    "  --domain NAME          sandboxes are at PORT-ID.NAME (localhost:PORT)\n"
    "  --tls-cert FILE        speak TLS with this certificate (PEM)\n"
    "  --tls-key FILE         and its key\n"
    "  --store WHERE          records and keys: PATH, sqlite:PATH or memory:\n"
    "                         ($CAY_HOME/serve.db)\n"
    "  --api-key-file FILE    a key that is valid besides those of `cay key`\n"
    "  --pool N               keep N sandboxes ready (0)\n"
    "  --memory SIZE          of each sandbox (1G)\n"
    "  --disk SIZE            of each sandbox in memory (512M)\n"
    "  --storage memory|disk  where sandboxes keep their files (memory)\n"
    "  --internet none|host   network of sandboxes that ask for the internet (none)\n"
    "  --reserve SIZE         memory that stays free (256M)\n"
    "  --max-hours N          longest time to live (24)\n"
    "  --on-exit leave|kill   what becomes of the sandboxes (leave)\n"
    "  --access-log FILE      one line of JSON for each request (-: standard error)\n"
    "  --quiet                do not print what to export\n\n"
    "cay env prints what to export; cay key manages keys.  See cay-serve(1).\n";

static int fail(const struct cay_error *err)
{
    fprintf(stderr, "cay: %s%s%s (%s)\n", err->subject, *err->subject ? ": " : "",
            err->message, err->hint);
    return cay_code_exit(err->code);
}

/* --- What every command needs --- */

struct state {
    struct serve_options options;
    struct registry *registry;
};

static int open_state(struct state *state, struct cay_error *err)
{
    char path[PATH_MAX];
    int code = options_home(&state->options, err);

    if (!code)
        code = options_store(&state->options, path, err);
    if (!code)
        code = registry_open(path, &state->registry, err);
    if (!code && registry_is_new(state->registry))
        code = api_key_adopt(state->registry, state->options.home, err);
    return code;
}

/* What was printed so far. */
static int finish_output(struct cay_error *err)
{
    bool was_lost = ferror(stdout);

    errno = EIO;
    if (fflush(stdout) == 0 && !was_lost)
        return CAY_OK;
    return cay_fail_errno(err, errno, "cli.output", "standard output");
}

static void print_exports(const struct serve_options *options, bool has_tls,
                          const char *key)
{
    const char *scheme = has_tls ? "https" : "http";
    bool any = strcmp(options->address, "0.0.0.0") == 0;
    bool six = strchr(options->address, ':') != NULL;
    const char *host = any                                   ? "127.0.0.1"
                       : strcmp(options->address, "::") == 0 ? "::1"
                                                             : options->address;

    for (int i = 0; i < 2; i++)
        printf("export %s=%s://%s%s%s:%u\n", i ? "E2B_SANDBOX_URL" : "E2B_API_URL",
               scheme, six ? "[" : "", host, six ? "]" : "", options->port);
    if (*key)
        printf("export E2B_API_KEY=%s\n", key);
}

/* A key that somebody else has made, for who deploys many servers with the same. */
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
    return api_key_add(state->registry, "default", key, err);
}

/* --- cay env --- */

static int cmd_env(char *const *argv, struct cay_error *err)
{
    struct state state = {0};
    char key[API_KEY_MAX];
    bool has_tls = false;
    int code = options_parse(argv, &state.options, err);

    if (code == 1) {
        fputs("Usage: eval \"$(cay env [--listen ADDR:PORT] [--store WHERE] "
              "[--tls-cert FILE --tls-key FILE])\"\n"
              "Print what to export to use the E2B SDKs with `cay serve`.\n",
              stdout);
        return CAY_OK;
    }
    if (!code)
        code = open_state(&state, err);
    if (!code)
        code = api_key_default(state.registry, state.options.home, key, err);
    if (!code)
        code = registry_find_listener(state.registry, state.options.port, &has_tls, err);
    if (!code)
        print_exports(&state.options, has_tls || state.options.tls_cert, key);
    registry_close(state.registry);
    return code;
}

/* --- cay key --- */

static void print_key(const struct key_row *row, void *cookie)
{
    time_t made = (time_t)(row->created_ms / 1000);
    struct tm tm;
    char day[32];

    (void)cookie;
    gmtime_r(&made, &tm);
    strftime(day, sizeof day, "%Y-%m-%d %H:%M", &tm);
    printf("%lld\t%s\t%s\t%s\n", (long long)row->number, row->tenant, row->shown, day);
}

static int new_key(struct registry *registry, const char *tenant, struct cay_error *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    char key[API_KEY_MAX];

    if (!*tenant || strlen(tenant) >= TENANT_MAX ||
        strspn(tenant, letters) != strlen(tenant))
        return cay_fail(err, CAY_E_INVALID, 0, "key.new", tenant, "no such name can be",
                        "use letters, digits, \"-\", \"_\" and \".\"");
    int code = api_key_new(registry, tenant, key, err);
    if (code)
        return code;
    printf("%s\n", key);
    code = finish_output(err);
    if (code && err)
        cay_copy_text(err->hint, sizeof err->hint,
                      "nobody knows the key that was made: take it away with cay key rm");
    return code;
}

static int remove_key(struct registry *registry, const char *text, struct cay_error *err)
{
    char *end;
    long long number = strtoll(text, &end, 10);

    if (end == text || *end)
        return cay_fail(err, CAY_E_INVALID, 0, "key.rm", text, "this is no number",
                        "cay key ls shows the number of each key");
    return registry_remove_key(registry, number, err);
}

/* "--store WHERE" or "--store=WHERE", before the command. */
static int take_store(char *const **argv, struct serve_options *options,
                      struct cay_error *err)
{
    const char *first = **argv ? **argv : "";
    size_t count = strcmp(first, "--store") == 0        ? 2
                   : strncmp(first, "--store=", 8) == 0 ? 1
                                                        : 0;
    char *own[3] = {NULL};

    for (size_t i = 0; i < count && (*argv)[i]; i++)
        own[i] = (*argv)[i];
    int code = options_parse(own, options, err);
    if (code)
        return code;
    if (options->store && strstr(options->store, "memory:"))
        return cay_fail(err, CAY_E_INVALID, 0, "key", "--store",
                        "keys in memory are the server's own",
                        "give --api-key-file to it");
    *argv += count;
    return CAY_OK;
}

static int cmd_key(char *const *argv, struct cay_error *err)
{
    static const char usage[] = "Usage: cay key [--store WHERE] new [TENANT] | ls | "
                                "rm NUMBER\n"
                                "Keys of one tenant see the same sandboxes, keys of "
                                "others do not.\n";
    struct state state = {0};
    int code = take_store(&argv, &state.options, err);

    if (code)
        return code;
    if (!argv[0] || strcmp(argv[0], "--help") == 0) {
        fputs(usage, stdout);
        return CAY_OK;
    }
    code = open_state(&state, err);
    if (code)
        return code;
    bool has_word = argv[1] != NULL, has_more = has_word && argv[2];
    if (strcmp(argv[0], "new") == 0 && !has_more)
        code = new_key(state.registry, argv[1] ? argv[1] : "default", err);
    else if (strcmp(argv[0], "ls") == 0 && !has_word)
        code = registry_visit_keys(state.registry, print_key, NULL, err);
    else if (strcmp(argv[0], "rm") == 0 && has_word && !has_more)
        code = remove_key(state.registry, argv[1], err);
    else
        code = cay_fail(err, CAY_E_INVALID, 0, "key", argv[0],
                        "there is no such command, or not with these words",
                        "cay key new [TENANT], cay key ls, cay key rm NUMBER");
    registry_close(state.registry);
    return code;
}

/* --- cay serve --- */

struct server {
    struct broker broker;
    struct front_options front;
    struct serve_options *options;
    struct restarts restarts; /* of the front */
};

static struct server server;

/* A front has the listening socket, its own to the broker, the log and what it needs to
 * speak; nothing else comes along.  First out of the way, then to their places: of the
 * broker's, which lead to every sandbox, any number may be open. */
static void keep_only(int *const kept[], size_t count)
{
    int place = STDERR_FILENO + 1;

    for (size_t i = 0; i < count; i++)
        if (*kept[i] >= 0 && (*kept[i] = fcntl(*kept[i], F_DUPFD_CLOEXEC,
                                               STDERR_FILENO + 1 + (int)count)) < 0)
            _exit(1);
    for (size_t i = 0; i < count; i++)
        if (*kept[i] >= 0 && (*kept[i] = dup3(*kept[i], place++, O_CLOEXEC)) < 0)
            _exit(1);
    if (close_range((unsigned)place, ~0u, 0) != 0)
        _exit(1);
}

static _Noreturn void become_front(int socket)
{
    struct front_options *front = &server.front;
    int *const kept[] = {&front->broker, &front->listener, &front->log};
    sigset_t none;

    explicit_bzero(&server.broker.secrets, sizeof server.broker.secrets);
    explicit_bzero(&server.broker.asked, sizeof server.broker.asked);
    front->broker = socket;
    keep_only(kept, sizeof kept / sizeof *kept);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigaction(SIGINT, &ignore, NULL); /* ^C is for the broker */
    (void)prctl(PR_SET_NAME, "cay-front");
    front_run(front);
}

static int start_front(struct broker *broker)
{
    int ends[2];

    if (server.restarts.count > 0)
        fprintf(stderr,
                "cay: the half that speaks HTTP has ended (%s %d); "
                "starting another\n",
                WIFSIGNALED(broker->front_status) ? "signal" : "status",
                WIFSIGNALED(broker->front_status) ? WTERMSIG(broker->front_status)
                                                  : WEXITSTATUS(broker->front_status));
    if (!restarts_note(&server.restarts, (int64_t)clock_ms()) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -1;
    pid_t pid = fork(); /* allow: fork the half that speaks HTTP; there are no threads */
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

static int open_log(const struct serve_options *options, int *ret_fd,
                    struct cay_error *err)
{
    const char *path = options->access_log;

    *ret_fd = -1;
    if (!path)
        return CAY_OK;
    *ret_fd = strcmp(path, "-") == 0
                  ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)
                  : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return *ret_fd < 0 ? cay_fail_errno(err, errno, "serve.log", path) : CAY_OK;
}

static void complain(const char *about, const struct cay_error *error)
{
    fprintf(stderr, "cay: %s: %s (%s)\n", about, error->message, error->hint);
}

static int prepare(struct state *state, char *domain, size_t domain_room,
                   struct cay_error *err)
{
    struct serve_options *options = &state->options;
    struct front_options *front = &server.front;
    int code = open_state(state, err);

    if (!code)
        code = add_key_file(state, err);
    if (!code)
        code = secrets_open(options->home, &server.broker.secrets, err);
    if (!code)
        code = listen_open(options, &front->listener, err);
    if (!code)
        code = open_log(options, &front->log, err);
    if (!code && options->tls_cert)
        code = tls_read(options->tls_cert, options->tls_key, &front->tls_cert,
                        &front->tls_key, err);
    if (!code)
        code = registry_note_listener(state->registry, options->port, options->tls_cert,
                                      err);
    if (code)
        return code;
    if (options->domain)
        snprintf(domain, domain_room, "%s", options->domain);
    else
        snprintf(domain, domain_room, "localhost:%u", options->port);
    front->domain = front->host = domain;
    server.options = options;
    server.broker.options = options;
    server.broker.registry = state->registry;
    server.broker.domain = domain;
    server.broker.complain = complain;
    return CAY_OK;
}

/* Who has removed the default key has others, or will make them: the server needs none.
 */
static int find_key(const struct state *state, char ret_key[API_KEY_MAX],
                    struct cay_error *err)
{
    int code = api_key_default(state->registry, state->options.home, ret_key, err);

    if (code != CAY_E_NOT_FOUND)
        return code;
    fprintf(stderr, "cay: the default API key was removed, and is not among the exports "
                    "(cay key new makes another)\n");
    ret_key[0] = '\0';
    return CAY_OK;
}

/* A stream takes a descriptor or two in each of the processes. */
static void raise_files(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

static int cmd_serve(char *const *argv, struct cay_error *err)
{
    struct state state = {0};
    char key[API_KEY_MAX], domain[256];
    int code = options_parse(argv, &state.options, err);

    if (code == 1) {
        fputs(help, stdout);
        return finish_output(err);
    }
    if (!code)
        code = prepare(&state, domain, sizeof domain, err);
    if (!code)
        code = find_key(&state, key, err);
    if (code)
        return code;
    raise_files();
    server.broker.front = start_front(&server.broker);
    if (server.broker.front < 0)
        return cay_fail_errno(err, errno, "serve.start", "front");
    code = broker_open(&server.broker, err);
    if (code)
        return code;
    if (!state.options.is_quiet) {
        print_exports(&state.options, state.options.tls_cert, key);
        (void)fflush(stdout);
        if (state.options.internet == CAY_NETWORK_NONE)
            fputs("cay: sandboxes have no internet access; --internet host gives it\n",
                  stderr);
    }
    explicit_bzero(key, sizeof key);
    broker_run(&server.broker, start_front);
    if (state.options.kills_at_exit)
        broker_end_all(&server.broker);
    registry_close(state.registry);
    if (server.broker.is_over)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, "serve.run", "serve",
                    "the half that speaks HTTP does not stay alive",
                    "see what the lines before this one say of its end");
}

int main(int argc, char **argv)
{
    struct cay_error err = {0};
    char *const *rest = argv + (argc > 1 ? 2 : 1);
    const char *command = argc > 1 ? argv[1] : "serve";
    int code;

    if (strcmp(command, "serve") == 0)
        code = cmd_serve(rest, &err);
    else if (strcmp(command, "key") == 0)
        code = cmd_key(rest, &err);
    else if (strcmp(command, "env") == 0)
        code = cmd_env(rest, &err);
    else
        code = cay_fail(&err, CAY_E_INVALID, 0, "serve", command,
                        "there is no such command", "cay serve, cay key, cay env");
    if (!code && strcmp(command, "serve") != 0)
        code = finish_output(&err);
    return code < 0 ? fail(&err) : 0;
}
