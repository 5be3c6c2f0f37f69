/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "cay/pool.h"
#include "host-ledger.h"

enum { SANDBOXES_MAX = 4, FACTS_MAX = 16, OTHERS_MAX = 4 };

char world_token[33];
int world_canary_fd = -1, world_probe_fd = -1;
const char *world_probe;
struct cay_exec_result result;
size_t world_probe_len;

static struct {
    cay_sandbox *handle;
    struct host_mark mark;
} sandboxes[SANDBOXES_MAX];
static size_t sandbox_count;
static struct host_ledger before;
static int tcp = -1, udp = -1, abstract = -1, path = -1, datagrams = -1;
static pid_t bystander, others[OTHERS_MAX];
static char *facts[FACTS_MAX];
static size_t fact_count;

static void add_fact(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add_fact(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    ASSERT(fact_count < FACTS_MAX - 1);
    ASSERT(vasprintf(&facts[fact_count++], format, args) > 0);
    va_end(args);
    facts[fact_count] = NULL;
}

/* --- What would be found --- */

static int listen_on(int family, int type, const void *address, socklen_t len)
{
    int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    ASSERT(fd >= 0 && bind(fd, address, len) == 0);
    ASSERT(type == SOCK_DGRAM || listen(fd, 16) == 0);
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t len = sizeof address;

    ASSERT(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    return ntohs(address.sin_port);
}

static int listen_at(const char *place, int type)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    ASSERT(strlen(place) < sizeof name.sun_path);
    (void)unlink(place);
    memcpy(name.sun_path, place, strlen(place));
    int fd = listen_on(AF_UNIX, type, &name, sizeof name);
    ASSERT(chmod(place, 0666) == 0);
    return fd;
}

static void open_sockets(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = INADDR_ANY};
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    tcp = listen_on(AF_INET, SOCK_STREAM, &any, sizeof any);
    udp = listen_on(AF_INET, SOCK_DGRAM, &any, sizeof any);
    int len =
        snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "cay-%s", world_token);
    abstract = listen_on(AF_UNIX, SOCK_STREAM, &name,
                         (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)len));
    path = listen_at(scratch_path("host/socket"), SOCK_STREAM);
    datagrams = listen_at(scratch_path("host/datagrams"), SOCK_DGRAM);
    add_fact("TCP_PORT=%d", port_of(tcp));
    add_fact("UDP_PORT=%d", port_of(udp));
    add_fact("ABSTRACT=cay-%s", world_token);
    add_fact("UNIX_PATH=%s", scratch_path("host/socket"));
    add_fact("DATAGRAM_PATH=%s", scratch_path("host/datagrams"));
}

int world_visits(void)
{
    char byte;
    int visits = 0;
    const int listening[] = {tcp, abstract, path};

    for (size_t i = 0; i < sizeof listening / sizeof *listening; i++)
        for (int fd; (fd = accept4(listening[i], NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
            visits++;
            close(fd);
        }
    while (recv(udp, &byte, 1, 0) >= 0)
        visits++;
    while (recv(datagrams, &byte, 1, 0) >= 0)
        visits++;
    return visits;
}

static void start_bystander(void)
{
    bystander = fork();
    if (bystander == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    ASSERT(bystander > 0);
    add_fact("HOST_PID=%d", (int)bystander);
    add_fact("HOST_START=%llu", host_start_time(bystander));
}

/* Those that sandboxes without a root of their own write to, and the controls. */
static void add_devices(void)
{
    const char *const places[] = {"/", "/tmp", "/run", getenv("XDG_RUNTIME_DIR")};
    char text[160];
    size_t len = 0;
    struct stat st;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i] && stat(places[i], &st) == 0)
            len += (size_t)snprintf(text + len, sizeof text - len, " %lu",
                                    (unsigned long)st.st_dev);
    add_fact("HOST_DEVICES=%s ", text);
}

static void load_probe(void)
{
    struct stat st;

    if (world_probe)
        return;
    int fd = open(world_probe_path(), O_RDONLY | O_CLOEXEC);
    ASSERT(fd >= 0 && fstat(fd, &st) == 0);
    char *bytes = malloc((size_t)st.st_size);
    ASSERT(bytes && read(fd, bytes, (size_t)st.st_size) == st.st_size);
    close(fd);
    world_probe = bytes;
    world_probe_len = (size_t)st.st_size;
}

const char *world_probe_path(void)
{
    const char *given = getenv("CAY_PROBE");

    if (!given)
        harness_fail(__FILE__, __LINE__, "CAY_PROBE must be the path of the probe");
    return given;
}

/* Also after a test that failed half-way. */
static void take_down(void)
{
    for (size_t i = 0; i < sandbox_count; i++) {
        (void)!cay_sandbox_kill(sandboxes[i].handle, NULL);
        cay_sandbox_free(sandboxes[i].handle);
    }
    sandbox_count = 0;
    const int fds[] = {tcp,           udp, abstract, path, datagrams, world_canary_fd,
                       world_probe_fd};

    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    tcp = udp = abstract = path = datagrams = world_canary_fd = world_probe_fd = -1;
    if (bystander > 0) {
        kill(bystander, SIGKILL);
        (void)waitpid(bystander, NULL, 0);
    }
    bystander = 0;
    for (size_t i = 0; i < OTHERS_MAX; i++)
        if (others[i] > 0) {
            kill(others[i], SIGKILL);
            (void)waitpid(others[i], NULL, 0);
            others[i] = 0;
        }
    while (fact_count > 0)
        free(facts[--fact_count]);
    cay_exec_done(&result);
    memset(&result, 0, sizeof result);
}

void world_begin(void)
{
    unsigned char random[16];
    struct stat root;

    harness_at_end(take_down);
    ASSERT(getrandom(random, sizeof random, 0) == sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(world_token + 2 * i, 3, "%02x", random[i]);
    put_file("host/canary", world_token);
    put_bytes("host/probe", "", 0);
    load_probe();
    put_bytes("host/probe", world_probe, world_probe_len);
    ASSERT(chmod(scratch(), 0755) == 0 && chmod(scratch_path("host"), 0755) == 0 &&
           chmod(scratch_path("host/probe"), 0755) == 0);
    add_fact("CANARY=%s", scratch_path("host/canary"));
    add_fact("LINK=%s", scratch_path("link"));
    add_fact("CANARY_DIR=%s", scratch_path("host"));
    ASSERT(stat("/", &root) == 0);
    add_fact("HOST_ROOT=%lu", (unsigned long)root.st_dev);
    world_canary_fd = open(scratch_path("host"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    world_probe_fd = open(scratch_path("host/probe"), O_RDONLY | O_CLOEXEC);
    ASSERT(world_canary_fd >= 0 && world_probe_fd >= 0);
    add_devices();
    open_sockets();
    start_bystander();
    host_ledger_take(&before, world_canary_fd);
}

void world_end(void)
{
    for (size_t i = 0; i < sandbox_count; i++)
        ASSERT_OK(cay_sandbox_kill(sandboxes[i].handle, &err));
    for (size_t i = 0; i < sandbox_count; i++)
        host_ledger_nothing_left(&sandboxes[i].mark);
    ASSERT(bystander > 0 && waitpid(bystander, NULL, WNOHANG) == 0);
    host_ledger_same(&before, world_canary_fd);
    harness_at_end(NULL);
    take_down();
}

char *const *world_facts(void)
{
    return facts;
}

/* --- Sandboxes --- */

enum cay_level world_level(void)
{
    static const char *const names[] = {"", "root", "range", "single", "landlock"};
    const char *wanted = getenv("CAY_ESCAPE_LEVEL");

    for (size_t i = 1; wanted && i < sizeof names / sizeof *names; i++)
        if (strcmp(wanted, names[i]) == 0)
            return (enum cay_level)i;
    return CAY_LEVEL_BEST;
}

static void execute(cay_sandbox *sandbox, struct cay_exec_options *options)
{
    options->size = sizeof *options;
    options->env = (const char *const *)facts;
    cay_exec_done(&result);
    memset(&result, 0, sizeof result);
    ASSERT_OK(cay_sandbox_exec(sandbox, options, &result, &err));
    ASSERT(!result.out_len || !memmem(result.out, result.out_len, world_token, 32));
    ASSERT(!result.error_len || !memmem(result.error, result.error_len, world_token, 32));
}

static bool is_pooled(void)
{
    return getenv("CAY_ESCAPE_POOL");
}

const char *world_level_name(void)
{
    static char name[32];

    if (world_level() == CAY_LEVEL_BEST && !is_pooled())
        return "";
    snprintf(name, sizeof name, " on %s%s", is_pooled() ? "pooled " : "",
             cay_level_slug(world_level()));
    return name;
}

/* Where the probe is inside; without a root of its own a sandbox has a home only. */
const char *world_inside(void)
{
    return world_level() == CAY_LEVEL_LANDLOCK ? "./probe" : "/tmp/probe";
}

/* Claimed from a pool that is gone again when the probes start.  The pool knows only the
 * options that decide whether its spare fits; the claim must bring in all others. */
static int claim_sandbox(const struct cay_sandbox_options *options,
                         cay_sandbox **ret_sandbox)
{
    struct cay_sandbox_options own = *options;
    const struct cay_sandbox_options shape = {.size = sizeof shape,
                                              .level = own.level,
                                              .template_name = own.template_name,
                                              .network = own.network,
                                              .hostname = own.hostname,
                                              .binds = own.binds,
                                              .bind_count = own.bind_count,
                                              .disk_bytes = own.disk_bytes,
                                              /* an rlimit of PID 1 without cgroups */
                                              .pids = geteuid() ? own.pids : 0,
                                              .cpu_percent = own.cpu_percent};
    const struct cay_pool_options pool_options = {
        .size = sizeof pool_options, .sandbox = &shape, .count = 1};
    struct cay_pool_stats stats = {0};
    cay_pool *pool = NULL;

    int code = cay_pool_create(&pool_options, &pool, &err);
    if (code) /* the sandbox cannot be created either */
        return cay_sandbox_create(&own, ret_sandbox, &err);
    own.pool = cay_pool_name(pool);
    code = cay_sandbox_create(&own, ret_sandbox, &err);
    for (double end = world_now() + 60; !code && !stats.claimed && world_now() < end;) {
        (void)usleep(1000);
        cay_pool_get_stats(pool, &stats);
    }
    cay_pool_free(pool);
    ASSERT(code || stats.claimed == 1);
    return code;
}

int world_bare_sandbox(const struct cay_sandbox_options *options,
                       cay_sandbox **ret_sandbox)
{
    struct cay_sandbox_options own = {.size = sizeof own};
    struct cay_sandbox_info info;

    ASSERT(sandbox_count < SANDBOXES_MAX);
    if (options)
        own = *options;
    own.level = world_level();
    own.ephemeral = true;
    cay_sandbox **handle = &sandboxes[sandbox_count].handle;
    int code = is_pooled() ? claim_sandbox(&own, handle)
                           : cay_sandbox_create(&own, handle, &err);
    if (code)
        return code;
    sandbox_count++;
    ASSERT_OK(cay_sandbox_inspect(*handle, &info, &err));
    if (world_level() != CAY_LEVEL_BEST)
        ASSERT_INT(info.level, world_level());
    sandboxes[sandbox_count - 1].mark =
        (struct host_mark){.init = info.init_pid,
                           .first = info.level == CAY_LEVEL_ROOT ? info.id_base : 0,
                           .count = info.id_count};
    snprintf(sandboxes[sandbox_count - 1].mark.id, CAY_ID_MAX, "%s", info.id);
    *ret_sandbox = *handle;
    return CAY_OK;
}

cay_sandbox *world_sandbox(const struct cay_sandbox_options *options)
{
    cay_sandbox *sandbox = NULL;
    char script[256];
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct cay_exec_options bring = {.argv = argv,
                                     .user = "root",
                                     .input = world_probe,
                                     .input_len = world_probe_len,
                                     .timeout_ms = 60000};

    snprintf(script, sizeof script,
             "cat >%s && chmod 755 %s; [ $(id -u) != 0 ] || { "
             "cp /tmp/probe /opt/probe-setuid; chmod 6755 /opt/probe-setuid; }",
             world_inside(), world_inside());
    ASSERT_OK(world_bare_sandbox(options, &sandbox));
    if (world_level() >= CAY_LEVEL_SINGLE)
        bring.user = NULL;
    execute(sandbox, &bring);
    ASSERT_INT(result.exit_code, 0);
    return sandbox;
}

size_t world_processes(const cay_sandbox *sandbox)
{
    for (size_t i = 0; i < sandbox_count; i++)
        if (sandboxes[i].handle == sandbox)
            return host_commands(&sandboxes[i].mark);
    return 0;
}

size_t world_outside_cgroup(const cay_sandbox *sandbox)
{
    for (size_t i = 0; i < sandbox_count; i++)
        if (sandboxes[i].handle == sandbox)
            return host_outside_cgroup(&sandboxes[i].mark);
    return 0;
}

pid_t world_init(const cay_sandbox *sandbox)
{
    for (size_t i = 0; i < sandbox_count; i++)
        if (sandboxes[i].handle == sandbox)
            return sandboxes[i].mark.init;
    return -1;
}

void world_run(cay_sandbox *sandbox, const char *user, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct cay_exec_options options = {.argv = argv, .user = user, .timeout_ms = 60000};

    execute(sandbox, &options);
}

void world_probe_as(cay_sandbox *sandbox, const char *user, const char *name)
{
    const char *const argv[] = {world_inside(), name, NULL};
    struct cay_exec_options options = {.argv = argv, .user = user, .timeout_ms = 60000};

    execute(sandbox, &options);
}

void world_load(cay_sandbox *sandbox, const char *kind, long amount, uint64_t timeout_ms)
{
    world_load_as(sandbox, NULL, kind, amount, timeout_ms);
}

void world_load_as(cay_sandbox *sandbox, const char *user, const char *kind, long amount,
                   uint64_t timeout_ms)
{
    char number[32];
    const char *const argv[] = {world_inside(), "load", kind, number, NULL};
    struct cay_exec_options options = {
        .argv = argv, .user = user, .timeout_ms = timeout_ms};

    snprintf(number, sizeof number, "%ld", amount);
    execute(sandbox, &options);
}

long world_made(void)
{
    const char *made = result.out ? strstr(result.out, "made ") : NULL;

    return made ? strtol(made + 5, NULL, 10) : -1;
}

int world_errno(void)
{
    const char *error = result.out ? strstr(result.out, " errno ") : NULL;

    return error ? (int)strtol(error + 7, NULL, 10) : -1;
}

/* --- At the same time --- */

pid_t world_fork(int (*what)(void *cookie), void *cookie)
{
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(what(cookie));
    }
    ASSERT(child > 0);
    for (size_t i = 0; i < OTHERS_MAX; i++)
        if (!others[i]) {
            others[i] = child;
            break;
        }
    return child;
}

void world_join(pid_t child)
{
    int status = -1;

    for (size_t i = 0; i < OTHERS_MAX; i++)
        if (others[i] == child)
            others[i] = 0;
    ASSERT(waitpid(child, &status, 0) == child);
    ASSERT_INT(status, 0);
}

double world_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}
