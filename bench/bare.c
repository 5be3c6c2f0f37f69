/* SPDX-License-Identifier: Apache-2.0 */

/* bench-bare [PREFIX FILE]...: the least that a server can be.  Listens on a port of
 * 127.0.0.1, which it prints, and answers each request that begins with PREFIX by what
 * stands in FILE, to the byte.  For a PREFIX that is written as "!PREFIX" it runs
 * /bin/true first.  It ends with its standard input. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUEST_MAX = 64 << 10, ANSWERS_MAX = 16 };

struct answer {
    const char *prefix;
    bool runs;
    char *text;
    size_t len;
};

struct client {
    int fd, pidfd; /* pidfd: of the program that is to end first, or -1 */
    const struct answer *answer;
    size_t len;
    char request[REQUEST_MAX + 1];
};

static struct answer answers[ANSWERS_MAX];
static size_t answer_count;
static int epoll;
static const int yes = 1;

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

static void watch(int fd, void *owner)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = owner};

    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        die("epoll_ctl");
}

static void read_answer(struct answer *answer, const char *prefix, const char *path)
{
    FILE *file = fopen(path, "rb");

    answer->runs = *prefix == '!';
    answer->prefix = prefix + answer->runs;
    answer->text = malloc(1 << 20);
    if (!file || !answer->text)
        die(path);
    answer->len = fread(answer->text, 1, 1 << 20, file);
    fclose(file);
}

static void run(struct client *client)
{
    char *const argv[] = {(char[]){"/bin/true"}, NULL};
    pid_t pid;

    if (posix_spawn(&pid, argv[0], NULL, NULL, argv, NULL) != 0)
        die("posix_spawn");
    client->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (client->pidfd < 0)
        die("pidfd_open");
    watch(client->pidfd, client);
}

/* Small answers always fit a socket's buffer. */
static void reply(struct client *client)
{
    if (send(client->fd, client->answer->text, client->answer->len, MSG_NOSIGNAL) !=
        (ssize_t)client->answer->len)
        die("send");
}

static const struct answer *find_answer(const char *request)
{
    for (size_t i = 0; i < answer_count; i++)
        if (strncmp(request, answers[i].prefix, strlen(answers[i].prefix)) == 0)
            return &answers[i];
    fprintf(stderr, "bench-bare: %.*s?\n", (int)strcspn(request, "\r\n"), request);
    exit(1);
}

static bool is_complete(const struct client *client)
{
    const char *end = strstr(client->request, "\r\n\r\n");
    const char *length = strcasestr(client->request, "\r\nContent-Length:");

    if (!end)
        return false;
    if (strcasestr(client->request, "\r\nTransfer-Encoding: chunked"))
        return memcmp(client->request + client->len - 5, "0\r\n\r\n", 5) == 0;
    size_t body = client->len - (size_t)(end + 4 - client->request);
    return !length || body >= strtoull(length + 17, NULL, 10);
}

/* The requests of a client come one at a time. */
static void take(struct client *client, size_t got)
{
    client->len += got;
    client->request[client->len] = '\0';
    if (!is_complete(client))
        return;
    client->answer = find_answer(client->request);
    client->len = 0;
    if (client->answer->runs)
        run(client);
    else
        reply(client);
}

static void serve(struct client *client)
{
    if (client->pidfd >= 0) {
        siginfo_t info;
        if (waitid(P_PIDFD, (id_t)client->pidfd, &info, WEXITED) != 0)
            die("waitid");
        /* A program that is just being started may still hold it open. */
        epoll_ctl(epoll, EPOLL_CTL_DEL, client->pidfd, NULL);
        close(client->pidfd);
        client->pidfd = -1;
        reply(client);
        return;
    }
    ssize_t got =
        recv(client->fd, client->request + client->len, REQUEST_MAX - client->len, 0);
    if (got <= 0) {
        close(client->fd);
        free(client);
    } else {
        take(client, (size_t)got);
    }
}

static void accept_one(int listener)
{
    struct client *client = malloc(sizeof *client);

    if (!client)
        die("malloc");
    client->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    client->pidfd = -1;
    client->answer = NULL;
    client->len = 0;
    if (client->fd < 0 ||
        setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0)
        die("accept");
    watch(client->fd, client);
}

static int open_listener(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) != 0 ||
        listen(fd, 1024) != 0 || getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        die("listen");
    printf("%u\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv)
{
    static char listening, ending; /* what the loop knows these two by */
    struct epoll_event events[64];

    for (int i = 1; i + 1 < argc && answer_count < ANSWERS_MAX; i += 2)
        read_answer(&answers[answer_count++], argv[i], argv[i + 1]);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    int listener = open_listener();
    watch(listener, &listening);
    watch(STDIN_FILENO, &ending);
    for (;;) {
        int ready = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr == &ending)
                return 0;
            if (events[i].data.ptr == &listening)
                accept_one(listener);
            else
                serve(events[i].data.ptr);
        }
    }
}
