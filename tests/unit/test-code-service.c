/* SPDX-License-Identifier: Apache-2.0 */

/* The library against a code service that a program inside has replaced. */
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cay/code.h"
#include "code/client.h"
#include "code/execution.h"
#include "harness.h"
#include "init/code.h"
#include "sandbox/backend.h"
#include "sys/rights.h"

enum { SERVICES_MAX = 8 };

/* Each connection gets a thread that plays the service. */
static struct {
    void (*serve)(int fd);
    pthread_t threads[SERVICES_MAX];
    size_t count;
} services;

static struct cay_code_execution done;

static void *serve(void *cookie)
{
    int fd = (int)(intptr_t)cookie;

    services.serve(fd);
    (void)close(fd);
    return NULL;
}

static int dial(void *cookie, const char *user, int *ret_fd, uint64_t *ret_memory_kills,
                const char **ret_template, struct cay_error *error)
{
    int ends[2];

    (void)cookie;
    (void)user;
    (void)error;
    ASSERT(services.count < SERVICES_MAX);
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    ASSERT(pthread_create(&services.threads[services.count], NULL, serve,
                          (void *)(intptr_t)ends[1]) == 0);
    services.count++;
    *ret_memory_kills = 0;
    *ret_template = NULL;
    *ret_fd = ends[0];
    return CAY_OK;
}

static struct buf line; /* what a service sends */

static void clean(void)
{
    cay_code_execution_done(&done);
    buf_done(&line);
}

static const struct cay_backend backend = {
    .size = sizeof backend, .name = "test", .code = dial};
static cay_sandbox sandbox = {&backend, NULL};

static void play(void (*service)(int fd))
{
    harness_at_end(clean);
    services.serve = service;
}

static bool send_event(int fd, enum code_event_kind kind, const void *payload, size_t len)
{
    const struct code_event event = {kind, (uint32_t)len, 0};

    return send(fd, &event, sizeof event, MSG_NOSIGNAL) == (ssize_t)sizeof event &&
           (!len || send(fd, payload, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static void send_end(int fd)
{
    const struct code_end end = {.reason = CODE_DONE};

    (void)send_event(fd, CODE_EVENT_END, &end, sizeof end);
}

static void join(void)
{
    while (services.count)
        ASSERT(pthread_join(services.threads[--services.count], NULL) == 0);
}

static void execute(const struct cay_code_options *options)
{
    int code = cay_code_execute(&sandbox, "1", 1, options, &done, &err);

    join();
    ASSERT_INT(code, CAY_OK);
}

/* --- Requests that the service would hang up on --- */

static int execute_in(const char *context, const char *variable)
{
    const struct cay_code_options options = {.size = sizeof options,
                                             .context = context,
                                             .env =
                                                 (const char *const[]){variable, NULL}};

    return cay_code_execute(&sandbox, "1", 1, &options, &done, &err);
}

TEST(invalid_names_of_contexts_are_errors_that_say_so)
{
    static const char name[] = "../a-name-that-is-longer-than-those-of-contexts";

    ASSERT_CODE(execute_in(name, NULL), CAY_E_NOT_FOUND);
    ASSERT_CODE(execute_in("", NULL), CAY_E_INVALID);
    ASSERT_CODE(cay_context_restart(&sandbox, NULL, name, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_context_remove(&sandbox, NULL, "", &err), CAY_E_INVALID);
    ASSERT_CODE(cay_context_interrupt(&sandbox, NULL, NULL, &err), CAY_E_INVALID);
}

TEST(invalid_variables_and_directories_are_errors_that_say_so)
{
    char text[2 << 20];
    const char *env[] = {text, NULL};
    struct cay_context_options options = {.size = sizeof options, .cwd = text};
    struct cay_context_info info;

    ASSERT_CODE(execute_in(NULL, "=x"), CAY_E_INVALID);
    ASSERT_CODE(execute_in(NULL, "x"), CAY_E_INVALID);
    ASSERT_CODE(execute_in(NULL, "x=\xff"), CAY_E_INVALID);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ASSERT_CODE(cay_context_create(&sandbox, &options, &info, &err), CAY_E_INVALID);
    options.cwd = NULL;
    options.env = env;
    text[1] = '=';
    play(send_end); /* it is not reached */
    int code = cay_context_create(&sandbox, &options, &info, &err);
    join();
    ASSERT_INT(code, CAY_E_LIMIT);
}

/* --- Time --- */

static void flood(int fd)
{
    static const char text[1 << 10] = "text";
    bool is_open = true;

    for (int i = 0; i < 100000 && is_open; i++)
        is_open = send_event(fd, CODE_EVENT_OUT, text, sizeof text);
    send_end(fd);
}

/* The service has always sent more by the time that this returns. */
static int read_slowly(void *cookie, int stream, const char *text, size_t len,
                       int64_t time_ns)
{
    (void)cookie;
    (void)stream;
    (void)text;
    (void)len;
    (void)time_ns;
    (void)usleep(100);
    return 0;
}

TEST(an_execution_can_be_cancelled_while_the_service_floods_the_client)
{
    int ends[2];

    ASSERT(pipe2(ends, O_CLOEXEC) == 0 && close(ends[1]) == 0);
    const struct cay_code_options options = {.size = sizeof options,
                                             .on_text = read_slowly,
                                             .output_limit = UINT64_MAX,
                                             .cancel_fd = ends[0]};
    play(flood);
    execute(&options);
    ASSERT_INT(done.status, CAY_CODE_INTERRUPTED);
    ASSERT(close(ends[0]) == 0);
}

/* Code may run for ever; everything else ends, whatever the service does. */
TEST(only_an_execution_may_wait_for_ever)
{
    for (enum code_op op = CODE_EXECUTE; op <= CODE_LIST; op++) {
        const struct code_query query = {.op = op};
        struct code_client client;
        struct code_end end;
        play(send_end);
        ASSERT_OK(code_connect(&client, &sandbox, NULL, "test", &err));
        ASSERT_OK(code_request(&client, &query, NULL, NULL, NULL, &end, &err));
        ASSERT_INT(client.deadline_ms == UINT64_MAX, op == CODE_EXECUTE);
        code_hang_up(&client);
        join();
    }
}

/* --- Descriptors --- */

enum { LINGER_S = 100 };

/* Closing the last descriptor of this connection takes LINGER_S. */
static int make_lingering(int *ret_peer)
{
    const struct linger lingers = {.l_onoff = 1, .l_linger = LINGER_S};
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT(bind(listener, (struct sockaddr *)&here, len) == 0 &&
           listen(listener, 1) == 0 &&
           getsockname(listener, (struct sockaddr *)&here, &len) == 0 &&
           connect(fd, (struct sockaddr *)&here, len) == 0);
    *ret_peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ASSERT(*ret_peer >= 0 && close(listener) == 0);
    ASSERT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &lingers, sizeof lingers) == 0);
    while (send(fd, &lingers, sizeof lingers, MSG_DONTWAIT) > 0)
        continue;
    return fd;
}

static int lingering_peer = -1;

static void send_lingering(int fd)
{
    const struct code_event event = {.kind = CODE_EVENT_OUT};
    const struct iovec part = {(void *)(uintptr_t)&event, sizeof event};
    int lingering = make_lingering(&lingering_peer);

    ASSERT(rights_send(fd, &part, 1, &lingering, 1, 0) == 0 && close(lingering) == 0);
}

static int dial_lingering(void *cookie, const char *user, int *ret_fd,
                          uint64_t *ret_memory_kills, const char **ret_template,
                          struct cay_error *error)
{
    int ends[2];

    (void)cookie;
    (void)user;
    (void)error;
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    send_lingering(ends[1]);
    ASSERT(close(ends[1]) == 0);
    *ret_memory_kills = 0;
    *ret_template = NULL;
    *ret_fd = ends[0];
    return CAY_OK;
}

TEST(a_descriptor_from_the_service_neither_blocks_nor_stays_open)
{
    static const struct cay_backend lingers = {
        .size = sizeof lingers, .name = "test", .code = dial_lingering};
    cay_sandbox other = {&lingers, NULL};
    struct cay_code_options options = {.size = sizeof options};
    int ends[2];

    uint64_t before = clock_ms();
    ASSERT_CODE(cay_code_execute(&other, "1", 1, &options, &done, &err), CAY_E_PROTOCOL);
    ASSERT(close(lingering_peer) == 0);
    /* The same without a read. */
    ASSERT(pipe2(ends, O_CLOEXEC) == 0 && close(ends[1]) == 0);
    options.cancel_fd = ends[0];
    ASSERT_OK(cay_code_execute(&other, "1", 1, &options, &done, &err));
    ASSERT_INT(done.status, CAY_CODE_INTERRUPTED);
    ASSERT(close(ends[0]) == 0 && close(lingering_peer) == 0);
    cay_code_execution_done(&done);
    ASSERT(clock_ms() - before < LINGER_S * 1000);
}

/* --- Memory --- */

static void send_line(int fd)
{
    for (size_t at = 0, part; at < line.len; at += part) {
        part = line.len - at < CODE_PIECE ? line.len - at : CODE_PIECE;
        if (!send_event(fd, CODE_EVENT_LINES, line.data + at, part))
            return;
    }
    send_end(fd);
}

TEST(a_value_has_few_types_with_short_names)
{
    const struct cay_code_options options = {.size = sizeof options};

    buf_init(&line, CODE_LINE_MAX);
    buf_text(&line, "{\"type\":\"result\",\"data\":{\"text/plain\":\"\"");
    for (int i = 0; i < 1000; i++)
        buf_format(&line, ",\"x/%d\":\"\"", i);
    buf_text(&line, "}}\n{\"type\":\"result\",\"data\":{\"text/plain\":\"1\",\"x/");
    for (int i = 0; i < 1000; i++)
        buf_text(&line, "long");
    buf_text(&line, "\":\"\"}}\n");
    ASSERT(!line.failed);
    play(send_line);
    execute(&options);
    ASSERT_INT(done.values_dropped, 1);
    ASSERT_INT(done.value_count, 1);
    ASSERT_INT(done.values[0].part_count, 1);
    ASSERT_STR(done.values[0].parts[0].data, "1");
}

static int count_value(void *cookie, const struct cay_code_value *value)
{
    (void)value;
    ++*(unsigned *)cookie;
    return 0;
}

TEST(the_limit_of_values_holds_for_a_callback)
{
    unsigned count = 0;
    const struct cay_code_options options = {
        .size = sizeof options, .on_value = count_value, .cookie = &count};

    buf_init(&line, CODE_LINE_MAX);
    for (int i = 0; i < CODE_VALUES_MAX + 5; i++)
        buf_text(&line, "{\"type\":\"result\",\"data\":{\"text/plain\":\"\"}}\n");
    ASSERT(!line.failed);
    play(send_line);
    execute(&options);
    ASSERT_INT(count, CODE_VALUES_MAX);
    ASSERT_INT(done.values_dropped, 5);
}

static long peak_mib(void)
{
    struct rusage usage;

    ASSERT(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_maxrss >> 10;
}

static void add_levels(int levels)
{
    buf_text(&line, "{\"type\":\"result\",\"data\":{\"text/plain\":\"1\",\"x/json\":");
    for (int i = 0; i < levels; i++)
        buf_text(&line, i % 2 ? "[" : "{\"a\":");
    buf_text(&line, "1");
    while (levels-- > 0)
        buf_text(&line, levels % 2 ? "]" : "}");
    buf_text(&line, "}}\n");
}

/* Python's json.loads() fails beyond 1000. */
TEST(a_part_with_very_many_levels_is_left_out)
{
    const struct cay_code_options options = {.size = sizeof options};

    buf_init(&line, CODE_LINE_MAX);
    add_levels(200);
    add_levels(1500);
    ASSERT(!line.failed);
    play(send_line);
    execute(&options);
    ASSERT_INT(done.value_count, 2);
    ASSERT_INT(done.values[0].part_count, 2);
    ASSERT_INT(done.values[1].part_count, 1);
    ASSERT_STR(done.values[1].parts[0].mime, "text/plain");
}

/* 30 MiB of objects would be 2 GiB in memory. */
TEST(a_line_that_would_need_much_memory_is_dropped)
{
    const struct cay_code_options options = {.size = sizeof options};

    buf_init(&line, CODE_LINE_MAX);
    buf_text(&line, "{\"type\":\"result\",\"data\":{\"application/json\":[{}");
    while (line.len < 30 << 20)
        buf_text(&line, ",{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}");
    buf_text(&line,
             "]}}\n{\"type\":\"result\",\"data\":{\"text/plain\":\"[[[{{{,,,\"}}\n");
    ASSERT(!line.failed);
    play(send_line);
    long before = peak_mib();
    execute(&options);
    ASSERT_INT(done.values_dropped, 1);
    ASSERT_INT(done.value_count, 1);
    ASSERT(peak_mib() - before < 256);
}

/* A list of a million numbers is not unusual. */
TEST(a_large_list_is_a_value)
{
    const struct cay_code_options options = {.size = sizeof options};

    buf_init(&line, CODE_LINE_MAX);
    buf_text(&line, "{\"type\":\"result\",\"data\":{\"application/json\":[0");
    for (int i = 0; i < 1 << 20; i++)
        buf_text(&line, ",12");
    buf_text(&line, "]}}\n");
    ASSERT(!line.failed);
    play(send_line);
    execute(&options);
    ASSERT_INT(done.value_count, 1);
    ASSERT_INT(done.values[0].parts[0].len, 3 + 3 * (1 << 20));
}
