/* SPDX-License-Identifier: Apache-2.0 */
#include "front.h"

#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/files.h"
#include "sys/rights.h"

enum { ROUNDS_MAX = 4000, IDLE_ROUNDS = 3, HEARD_MAX = 16 << 20, PORTS_MAX = 8 };

static struct {
    struct front front;
    struct front_options options;
    int broker; /* our end */
    bool is_open;
    struct talk *talk;
    const char *says;
    size_t says_len;
    int file; /* the first that is written */
    int ports[PORTS_MAX];
    size_t port_count;
} world;

unsigned char talk_byte(size_t at)
{
    return (unsigned char)(at * 7 + at / 251);
}

/* --- The broker and keeper of the test --- */

static int new_file(bool is_full)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    CHECK(fd >= 0);
    for (size_t i = 0; is_full && i < TALK_FILE; i++) {
        unsigned char byte = talk_byte(i);
        CHECK(pwrite(fd, &byte, 1, (off_t)i) == 1);
    }
    return fd;
}

static void reply(int channel, struct reply *reply, const char *const *strings, int fd)
{
    AUTO_BUF text = {0};

    buf_init(&text, 4096);
    for (; strings && *strings; strings++, reply->count++)
        strings_add(&text, *strings);
    (void)reply_send(channel, reply, &text, fd);
}

static void tell_sandbox(int channel)
{
    static const char *const strings[] = {"abc",       "base", "token", "",
                                          "localhost", "key",  "value", NULL};
    struct reply sandbox = {.kind = REPLY_SANDBOX};

    sandbox.numbers[SANDBOX_STATE] = RECORD_RUNNING;
    reply(channel, &sandbox, strings, -1);
}

static void tell_entry(int channel)
{
    static const char *const strings[] = {"a", "/a", "user", "user", "", NULL};
    struct reply entry = {.kind = REPLY_ENTRY};

    entry.numbers[ENTRY_TYPE] = CAY_TYPE_FILE;
    reply(channel, &entry, strings, -1);
}

static void tell_run(int channel)
{
    static const char *const status[] = {"exit status 0", NULL};
    struct reply started = {.kind = REPLY_STARTED, .numbers = {[STARTED_PID] = 2}};
    struct reply output = {.kind = REPLY_OUTPUT, .numbers = {[OUTPUT_STREAM] = 1}};
    struct reply ended = {.kind = REPLY_ENDED, .numbers = {[END_EXITED] = 1}};

    reply(channel, &started, NULL, -1);
    (void)reply_send(channel, &output, &(struct buf){.data = (char[]){"out"}, .len = 3},
                     -1);
    reply(channel, &ended, status, -1);
}

static void tell_file(int channel, bool reads)
{
    static const char *const strings[] = {"/home/user/x", NULL};
    struct reply file = {.kind = REPLY_FILE,
                         .numbers = {[FILE_SIZE] = TALK_FILE,
                                     [FILE_MTIME] = 1700000000,
                                     [FILE_RESERVED] = INT64_MAX}};
    int fd = new_file(reads);

    if (!reads && world.talk->files++ == 0)
        world.file = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    reply(channel, &file, strings, fd);
    (void)close(fd);
}

int (*talk_gift)(void);

static void send_gift(int port)
{
    const struct iovec part = {(void *)(uintptr_t)world.says, world.says_len};
    int gift = talk_gift();

    CHECK(rights_send(port, &part, 1, &gift, 1, 0) == 0 && close(gift) == 0);
}

static void tell_port(int channel)
{
    struct reply socket = {.kind = REPLY_SOCKET};
    int ends[2];

    if (world.port_count == PORTS_MAX)
        return;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    if (talk_gift)
        send_gift(ends[1]);
    else
        (void)send(ends[1], world.says, world.says_len, MSG_NOSIGNAL);
    (void)shutdown(ends[1], SHUT_WR);
    world.ports[world.port_count++] = ends[1];
    reply(channel, &socket, NULL, ends[0]);
    (void)close(ends[0]);
}

/* The words of an ask are as many as its numbers say. */
static void check_ask(const struct request *head)
{
    const int64_t *numbers = head->numbers;

    CHECK(head->op > OP_NONE && head->op < OP_COUNT);
    if (head->op == OP_CREATE) {
        CHECK(numbers[CREATE_METADATA] >= 0 && numbers[CREATE_ENV] >= 0);
        CHECK(1 + 2 * numbers[CREATE_METADATA] + numbers[CREATE_ENV] == head->count);
        CHECK(numbers[CREATE_TIMEOUT] >= -1 && numbers[CREATE_TIMEOUT] <= INT32_MAX);
    }
    if (head->op == OP_LIST) {
        CHECK(numbers[LIST_LIMIT] >= 1 && numbers[LIST_LIMIT] <= 100);
        CHECK(2 + 2 * numbers[LIST_METADATA] == head->count);
        CHECK(head->flags & (LIST_RUNNING | LIST_PAUSED));
    }
    if (head->op == OP_START)
        CHECK(2 + numbers[START_ARGS] + numbers[START_ENV] == head->count);
    if (head->op == OP_DIAL)
        CHECK(numbers[DIAL_PORT] >= 1 && numbers[DIAL_PORT] <= UINT16_MAX);
    if (head->op == OP_WRITE_FILE)
        CHECK(2 + 2 * numbers[FILE_METADATA] == head->count);
}

static void send_result(const struct request_packet *request)
{
    static const char *const text[] = {"A=b", NULL};
    static const char *const process[] = {"", "/", "/bin/true", NULL};
    struct reply texts = {.kind = REPLY_TEXT};
    struct reply one = {.kind = REPLY_PROCESS,
                        .numbers = {[PROCESS_PID] = 2, [PROCESS_ARGS] = 1}};
    int channel = request->channel;

    switch (request->head.op) {
    case OP_CREATE:
    case OP_CONNECT:
    case OP_RESUME:
    case OP_INFO:
        tell_sandbox(channel);
        return;
    case OP_LIST:
        tell_sandbox(channel);
        break;
    case OP_ENVS:
    case OP_WATCHER_NEW:
        reply(channel, &texts, text, -1);
        break;
    case OP_START:
    case OP_ATTACH:
        tell_run(channel);
        return;
    case OP_PROCESSES:
        reply(channel, &one, process, -1);
        break;
    case OP_STAT:
    case OP_MAKE_DIR:
    case OP_MOVE:
    case OP_LIST_DIR:
        tell_entry(channel);
        break;
    case OP_READ_FILE:
    case OP_WRITE_FILE:
        tell_file(channel, request->head.op == OP_READ_FILE);
        return;
    case OP_DIAL:
    case OP_EXECUTE:
    case OP_CONTEXTS:
        tell_port(channel);
        return;
    default:
        break;
    }
    (void)reply_send_done(channel);
}

static bool answer_all(void)
{
    static struct request_packet request;
    bool any = false;
    int got;

    while ((got = request_receive(world.broker, &request)) == 1) {
        AUTO_FREE char *room = NULL;
        AUTO_FREE const char **strings = request_strings(&request, &room);
        CHECK(strings);
        check_ask(&request.head);
        world.talk->request[request.head.op]++;
        world.talk->last = request.head;
        send_result(&request);
        request_packet_done(&request);
        any = true;
    }
    CHECK(got == -EAGAIN);
    return any;
}

/* --- The connection --- */

static void open_world(void)
{
    int ends[2];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    CHECK(listener >= 0 &&
          bind(listener, (struct sockaddr *)&name, sizeof name.sun_family) == 0 &&
          listen(listener, 1) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) ==
          0);
    world.broker = ends[0];
    world.options = (struct front_options){
        .listener = listener, .broker = ends[1], .log = -1, .domain = "localhost:3000"};
    CHECK(front_open(&world.front, &world.options));
    world.is_open = true;
}

static int enter(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int ends[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    CHECK(MHD_add_connection(world.front.daemon, ends[1], (struct sockaddr *)&name,
                             sizeof name.sun_family) == MHD_YES);
    return ends[0];
}

/* What there is to be heard; whether there was any. */
static bool hear(int fd, struct buf *heard)
{
    bool any = false;

    for (;;) {
        char piece[8192];
        ssize_t got = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
        if (got <= 0)
            return any;
        CHECK(buf_append(heard, piece, (size_t)got));
        any = true;
    }
}

/* One round of everybody; whether anything happened. */
static bool go_round(int client)
{
    bool any = false;

    world.front.has_resumed = true; /* it is run, whether it hears of somebody or not */
    (void)uv_run(&world.front.loop, UV_RUN_NOWAIT);
    any |= answer_all();
    for (size_t i = 0; i < world.port_count; i++)
        any |= hear(world.ports[i], &world.talk->upstream);
    if (client >= 0)
        any |= hear(client, &world.talk->response);
    return any;
}

/* Those who left are noticed once a second: that is now. */
static void sweep_now(void)
{
    uv_timer_t *timer = &world.front.sweep_timer;

    (void)uv_timer_start(timer, timer->timer_cb, 0, 1000);
}

static void leave(int client)
{
    (void)shutdown(client, SHUT_WR);
    for (int idle = 0, rounds = 0; idle < IDLE_ROUNDS; rounds++) {
        idle = go_round(client) ? 0 : idle + 1;
        CHECK(rounds < ROUNDS_MAX);
    }
    (void)close(client);
    for (int i = 0; world.front.connections > 0 || world.front.exchanges; i++) {
        CHECK(i < ROUNDS_MAX);
        sweep_now();
        (void)go_round(-1);
    }
}

static int lowest_free_descriptor(void)
{
    int fd = fcntl(world.broker, F_DUPFD_CLOEXEC, 0);

    CHECK(fd >= 0 && close(fd) == 0);
    return fd;
}

static void read_file(struct talk *talk)
{
    char piece[8192];
    ssize_t got;
    off_t at = 0;

    while (world.file >= 0 && (got = pread(world.file, piece, sizeof piece, at)) > 0) {
        CHECK(buf_append(&talk->file, piece, (size_t)got));
        at += got;
    }
    if (world.file >= 0)
        (void)close(world.file);
}

void talk(const void *data, size_t len, const void *says, size_t says_len,
          struct talk *ret_talk)
{
    static const char harmless[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    size_t sent = 0;

    if (!world.is_open) {
        open_world();
        (void)uv_run(&world.front.loop, UV_RUN_NOWAIT);
    }
    *ret_talk = (struct talk){0};
    buf_init(&ret_talk->response, HEARD_MAX);
    buf_init(&ret_talk->upstream, HEARD_MAX);
    buf_init(&ret_talk->file, HEARD_MAX);
    world.talk = ret_talk;
    world.file = -1;
    world.port_count = 0;
    world.says = says ? says : harmless;
    world.says_len = says ? says_len : sizeof harmless - 1;
    int lowest = lowest_free_descriptor(), client = enter();
    for (int idle = 0, rounds = 0; idle < IDLE_ROUNDS; rounds++) {
        ssize_t put = send(client, (const char *)data + sent, len - sent, MSG_NOSIGNAL);
        sent += put > 0 ? (size_t)put : 0;
        idle = go_round(client) || (put > 0 && len > 0) ? 0 : idle + 1;
        CHECK(rounds < ROUNDS_MAX);
    }
    leave(client);
    for (size_t i = 0; i < world.port_count; i++)
        (void)close(world.ports[i]);
    read_file(ret_talk);
    CHECK(lowest_free_descriptor() == lowest);
}

void talk_done(struct talk *talk)
{
    buf_done(&talk->response);
    buf_done(&talk->upstream);
    buf_done(&talk->file);
}

/* --- Replies --- */

bool response_has(const struct response *response, const char *line)
{
    size_t len = strlen(line);

    for (const char *at = strstr(response->head, "\r\n"); at; at = strstr(at + 2, "\r\n"))
        if (strncasecmp(at + 2, line, len) == 0)
            return true;
    return false;
}

static const char *value_of(const struct response *response, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = strstr(response->head, "\r\n"); at; at = strstr(at + 2, "\r\n"))
        if (strncasecmp(at + 2, name, len) == 0)
            return at + 2 + len;
    return NULL;
}

/* Where the last chunk ends, or NULL if it has not come. */
static const char *take_chunks(const char *at, const char *end, struct buf *body)
{
    for (;;) {
        char *digits;
        unsigned long len = strtoul(at, &digits, 16); /* the text has a NUL behind it */
        if (digits == at || digits + 2 > end)
            return NULL;
        CHECK(strncmp(digits, "\r\n", 2) == 0);
        at = digits + 2;
        if (len > (size_t)(end - at) || (size_t)(end - at) - len < 2)
            return NULL;
        CHECK(strncmp(at + len, "\r\n", 2) == 0);
        CHECK(buf_append(body, at, len));
        at += len + 2;
        if (len == 0)
            return at;
    }
}

const char *response_parse(const char *data, size_t len, struct response *ret_response)
{
    const char *end = data + len;

    *ret_response = (struct response){0};
    buf_init(&ret_response->body, HEARD_MAX);
    if (!data || len == 0)
        return NULL;
    const char *body = memmem(data, len, "\r\n\r\n", 4);
    CHECK(body && strncmp(data, "HTTP/1.1 ", 9) == 0);
    ret_response->head = strndup(data, (size_t)(body - data));
    CHECK(ret_response->head && strlen(ret_response->head) == (size_t)(body - data));
    ret_response->status = (unsigned)strtoul(data + 9, NULL, 10);
    CHECK(ret_response->status >= 100 && ret_response->status < 600);
    body += 4;
    const char *length = value_of(ret_response, "Content-Length: ");
    if (value_of(ret_response, "Transfer-Encoding: ")) {
        const char *next = take_chunks(body, end, &ret_response->body);
        ret_response->is_whole = next != NULL;
        return next ? next : end;
    }
    size_t want = length ? strtoul(length, NULL, 10) : 0;
    ret_response->is_whole = want <= (size_t)(end - body);
    size_t have = ret_response->is_whole ? want : (size_t)(end - body);
    CHECK(buf_append(&ret_response->body, body, have));
    return body + have;
}

void response_done(struct response *response)
{
    free((void *)(uintptr_t)response->head);
    buf_done(&response->body);
}
