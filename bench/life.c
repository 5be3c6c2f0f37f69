/* SPDX-License-Identifier: Apache-2.0 */

/* bench-life PORT KEY ROUNDS SPARES: the life of a sandbox (create, run /bin/true, kill)
 * by the C API, and over HTTP by the server at 127.0.0.1:PORT, in turns.  SPARES: both
 * have a pool of so many; 0: none.  Prints the times in microseconds as one line of JSON:
 * {"c": [[create, run, kill], ...], "http": [...]}. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cay/pool.h"
#include "cay/sandbox.h"

enum { ROOM = 64 << 10, POOL_MS = 60000, PATIENCE_MS = 20 };

struct life {
    double create, run, kill;
};

static int client;
static char answer[ROOM];
static const char *key;
static cay_pool *pool;

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "bench-life: %s: %s\n", what, why);
    exit(1);
}

static void check(int code, const struct cay_error *err, const char *what)
{
    if (code)
        die(what, err->message);
}

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* --- By the C API --- */

static const char *const env[] = {"E2B_SANDBOX=true", NULL};

static struct cay_sandbox_options options_of_one(void)
{
    return (struct cay_sandbox_options){.size = sizeof(struct cay_sandbox_options),
                                        .template_name = "base",
                                        .env = env,
                                        .ttl_ms = 300000,
                                        .pool = pool ? cay_pool_name(pool) : NULL};
}

static struct life live_in_c(void)
{
    static const char *const argv[] = {"/bin/true", NULL};
    const struct cay_exec_options exec = {.size = sizeof exec, .argv = argv};
    const struct cay_sandbox_options options = options_of_one();
    struct cay_exec_result result;
    struct cay_error err;
    cay_sandbox *sandbox;
    double start = now_us();

    check(cay_sandbox_create(&options, &sandbox, &err), &err, "create");
    double created = now_us();
    check(cay_sandbox_exec(sandbox, &exec, &result, &err), &err, "exec");
    double ran = now_us();
    cay_exec_done(&result);
    check(cay_sandbox_remove(sandbox, &err), &err, "remove");
    cay_sandbox_free(sandbox);
    return (struct life){created - start, ran - created, now_us() - ran};
}

/* --- Over HTTP --- */

static void open_client(const char *port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port =
                                            htons((uint16_t)strtoul(port, NULL, 10)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int yes = 1;

    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client < 0 ||
        connect(client, (const struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0)
        die("connect", port);
}

/* Whether the answer is complete: by its length, or by the last chunk. */
static bool is_whole(size_t len)
{
    const char *body = strstr(answer, "\r\n\r\n");
    const char *length = strcasestr(answer, "\r\nContent-Length:");

    if (!body)
        return false;
    if (length && length < body)
        return len >= (size_t)(body + 4 - answer) + strtoul(length + 17, NULL, 10);
    if (!strcasestr(answer, "chunked")) /* 204 */
        return true;
    return len >= 5 && memcmp(answer + len - 5, "0\r\n\r\n", 5) == 0;
}

static void ask(const char *request, size_t size)
{
    size_t len = 0;

    if (send(client, request, size, MSG_NOSIGNAL) != (ssize_t)size)
        die("send", "the server has closed");
    answer[0] = '\0';
    while (!is_whole(len)) {
        ssize_t got = recv(client, answer + len, ROOM - 1 - len, 0);
        if (got <= 0)
            die("recv", "the server has closed");
        len += (size_t)got;
        answer[len] = '\0';
    }
    if (memcmp(answer, "HTTP/1.1 20", 11) != 0)
        die("HTTP", answer);
}

static void find(const char *name, char *text, size_t room)
{
    const char *at = strstr(answer, name);
    size_t len = 0;

    if (!at)
        die(name, answer);
    for (at += strlen(name); at[len] && at[len] != '"' && len + 1 < room; len++)
        text[len] = at[len];
    text[len] = '\0';
}

static struct life live_by_server(void)
{
    static const char body[] = "{\"templateID\":\"base\"}";
    static const char command[] = "{\"process\":{\"cmd\":\"/bin/true\"},\"stdin\":false}";
    char request[2048], id[64], token[256];
    double start = now_us();

    int len = snprintf(request, sizeof request,
                       "POST /v2/sandboxes HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-KEY: "
                       "%s\r\nContent-Length: %zu\r\n\r\n%s",
                       key, sizeof body - 1, body);
    ask(request, (size_t)len);
    double created = now_us();
    find("\"sandboxID\":\"", id, sizeof id);
    find("\"envdAccessToken\":\"", token, sizeof token);
    len = snprintf(request, sizeof request,
                   "POST /process.Process/Start HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                   "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: "
                   "%s\r\nContent-Type: application/connect+json\r\nContent-Length: "
                   "%zu\r\n\r\n",
                   id, token, sizeof command - 1 + 5);
    const unsigned char envelope[5] = {0, 0, 0, 0, sizeof command - 1};
    memcpy(request + len, envelope, 5);
    memcpy(request + len + 5, command, sizeof command - 1);
    ask(request, (size_t)len + 5 + sizeof command - 1);
    double ran = now_us();
    len = snprintf(request, sizeof request,
                   "DELETE /sandboxes/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-KEY: "
                   "%s\r\n\r\n",
                   id, key);
    ask(request, (size_t)len);
    return (struct life){created - start, ran - created, now_us() - ran};
}

/* --- Both --- */

static void print(const char *name, const struct life *lives, size_t count)
{
    printf("\"%s\": [", name);
    for (size_t i = 0; i < count; i++)
        printf("%s[%.1f, %.1f, %.1f]", i ? ", " : "", lives[i].create, lives[i].run,
               lives[i].kill);
    printf("]");
}

static void open_pool(uint32_t spares)
{
    struct cay_sandbox_options sandbox = options_of_one();
    const struct cay_pool_options options = {
        .size = sizeof options, .sandbox = &sandbox, .count = spares};
    struct cay_error err;

    if (spares)
        check(cay_pool_create(&options, &pool, &err), &err, "pool");
}

/* A pool refills beside what is measured: give both the same time to. */
static void settle(uint32_t spares)
{
    const struct timespec moment = {.tv_nsec = PATIENCE_MS * 1000000};
    struct cay_error err;

    if (!spares)
        return;
    check(cay_pool_wait(pool, spares, POOL_MS, &err), &err, "pool");
    (void)nanosleep(&moment, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: bench-life PORT KEY ROUNDS SPARES\n");
        return 2;
    }
    size_t rounds = strtoul(argv[3], NULL, 10);
    uint32_t spares = (uint32_t)strtoul(argv[4], NULL, 10);
    struct life *c = calloc(rounds + 1, sizeof *c);
    struct life *http = calloc(rounds + 1, sizeof *http);

    key = argv[2];
    if (!c || !http)
        die("memory", "exhausted");
    open_client(argv[1]);
    open_pool(spares);
    for (size_t i = 0; i < rounds; i++) {
        settle(spares);
        c[i] = live_in_c();
        settle(spares);
        http[i] = live_by_server();
    }
    cay_pool_free(pool);
    printf("{");
    print("c", c, rounds);
    printf(", ");
    print("http", http, rounds);
    printf("}\n");
    return 0;
}
