/* SPDX-License-Identifier: Apache-2.0 */

/* bench-load PORT CLIENTS REQUESTS: sends what stands in standard input as a request to
 * 127.0.0.1:PORT, REQUESTS times in all, over CLIENTS connections at a time that are used
 * again.  Prints how long it took, and p50, p95 and p99 of a request in microseconds, as
 * one line of JSON.  One thread and no more of HTTP than is needed, so that the server is
 * what is measured. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 8 << 10, PIECE = 256 << 10, CLIENTS_MAX = 1024 };

enum place { HEAD, BODY, CHUNK_SIZE, CHUNK, CHUNK_END, LAST_LINE };

struct client {
    int fd;
    size_t sent;
    enum place place;
    char head[HEAD_MAX];
    size_t head_len;
    uint64_t left; /* of the body, or of a chunk */
    double began;
};

static struct {
    const char *request;
    size_t request_len;
    uint16_t port;
    size_t wanted, begun, done, failed;
    uint64_t bytes;
    double *took;
    int epoll;
} load;

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* --- What comes --- */

static bool finish(struct client *client)
{
    load.took[load.done++] = now_us() - client->began;
    return false;
}

static bool take_head(struct client *client)
{
    client->head[client->head_len] = '\0';
    int status = client->head_len > 12 ? (int)strtol(client->head + 9, NULL, 10) : 0;
    const char *length = strcasestr(client->head, "\r\nContent-Length:");
    bool is_chunked = strcasestr(client->head, "\r\nTransfer-Encoding: chunked");

    load.failed += status < 200 || status > 299;
    client->left = length ? strtoull(length + 17, NULL, 10) : 0;
    client->place = is_chunked ? CHUNK_SIZE : BODY;
    client->head_len = 0;
    return is_chunked || client->left > 0 ? true : finish(client);
}

/* Lines of the head, or the size of a chunk, or what stands behind it. */
static bool take_line_byte(struct client *client, char byte)
{
    if (client->head_len + 1 >= HEAD_MAX)
        die("a line that is too long");
    client->head[client->head_len++] = byte;
    if (client->place == HEAD)
        return client->head_len < 4 ||
                       memcmp(client->head + client->head_len - 4, "\r\n\r\n", 4) != 0
                   ? true
                   : take_head(client);
    if (byte != '\n')
        return true;
    client->head[client->head_len] = '\0';
    client->head_len = 0;
    if (client->place == LAST_LINE)
        return finish(client);
    if (client->place == CHUNK_END) {
        client->place = CHUNK_SIZE;
        return true;
    }
    client->left = strtoull(client->head, NULL, 16);
    client->place = client->left ? CHUNK : LAST_LINE;
    return true;
}

/* False when the answer is complete. */
static bool take(struct client *client, const char *data, size_t len)
{
    load.bytes += len;
    while (len > 0) {
        size_t part = 1;
        if (client->place == BODY || client->place == CHUNK) {
            part = len < client->left ? len : (size_t)client->left;
            client->left -= part;
            if (!client->left && client->place == BODY)
                return finish(client);
            if (!client->left)
                client->place = CHUNK_END;
        } else if (!take_line_byte(client, *data)) {
            return false;
        }
        data += part;
        len -= part;
    }
    return true;
}

/* --- What goes --- */

static void wait_for(struct client *client, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = client};

    if (epoll_ctl(load.epoll, EPOLL_CTL_MOD, client->fd, &event) != 0)
        die("epoll_ctl");
}

static void send_some(struct client *client)
{
    while (client->sent < load.request_len) {
        ssize_t sent = send(client->fd, load.request + client->sent,
                            load.request_len - client->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN) {
            wait_for(client, EPOLLIN | EPOLLOUT);
            return;
        }
        if (sent < 0)
            die("send");
        client->sent += (size_t)sent;
    }
    wait_for(client, EPOLLIN);
}

static void begin(struct client *client)
{
    if (load.begun == load.wanted)
        return;
    load.begun++;
    client->sent = 0;
    client->place = HEAD;
    client->began = now_us();
    send_some(client);
}

static void open_client(struct client *client)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(load.port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    const int yes = 1;

    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd < 0 ||
        connect(client->fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0 ||
        epoll_ctl(load.epoll, EPOLL_CTL_ADD, client->fd, &event) != 0)
        die("connect");
}

static void receive_some(struct client *client)
{
    static char piece[PIECE];
    ssize_t got = recv(client->fd, piece, sizeof piece, MSG_DONTWAIT);

    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        errno = got ? errno : ECONNRESET;
        die("the server has closed");
    }
    if (!take(client, piece, (size_t)got))
        begin(client);
}

/* --- The whole --- */

static char *read_request(size_t *ret_len)
{
    size_t room = 1 << 20, len = 0, got;
    char *text = malloc(room);

    while (text && (got = fread(text + len, 1, room - len, stdin)) > 0) {
        len += got;
        if (len == room)
            text = realloc(text, room *= 2);
    }
    if (!text)
        die("the request");
    *ret_len = len;
    return text;
}

static int compare(const void *a, const void *b)
{
    const double *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

static double percentile(unsigned percent)
{
    size_t rank = (load.done * percent + 99) / 100;

    return load.took[rank > 0 ? rank - 1 : 0];
}

static size_t number(const char *text, size_t most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*end || value == 0 || value > most) {
        fprintf(stderr, "usage: bench-load PORT CLIENTS REQUESTS < REQUEST\n");
        exit(2);
    }
    return value;
}

static void run(struct client *clients, size_t count)
{
    struct epoll_event events[64];

    for (size_t i = 0; i < count; i++)
        begin(&clients[i]);
    while (load.done < load.wanted) {
        int ready = epoll_wait(load.epoll, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            struct client *client = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                send_some(client);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                receive_some(client);
        }
    }
}

int main(int argc, char **argv)
{
    static struct client clients[CLIENTS_MAX];
    size_t count = argc == 4 ? number(argv[2], CLIENTS_MAX) : number("", 0);

    load.port = (uint16_t)number(argv[1], UINT16_MAX);
    load.wanted = number(argv[3], 100000000);
    load.request = read_request(&load.request_len);
    load.took = calloc(load.wanted, sizeof *load.took);
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!load.took || load.epoll < 0)
        die("start");
    for (size_t i = 0; i < count; i++)
        open_client(&clients[i]);
    double start = now_us();
    run(clients, count);
    double took = now_us() - start;
    qsort(load.took, load.done, sizeof *load.took, compare);
    printf("{\"requests\": %zu, \"failed\": %zu, \"seconds\": %.6f, \"bytes\": %llu, "
           "\"us\": [%.2f, %.2f, %.2f]}\n",
           load.done, load.failed, took / 1e6, (unsigned long long)load.bytes,
           percentile(50), percentile(95), percentile(99));
    return 0;
}
