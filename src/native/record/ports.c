/* SPDX-License-Identifier: Apache-2.0 */

/* The ports of a sandbox: those on which programs inside listen, by the tables of its
 * network namespace, and those that processes of this machine publish. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/sandbox.h"
#include "native/record/runtime.h"
#include "relay/collect.h"

static const char op[] = "sandbox.ports";

enum {
    PORTS_MAX = 1024, /* of one sandbox, of each kind */
    TCP_LISTENING = 0x0A
};

/* --- Published ports --- */

/* A port of this machine that the process `pid` relays to the sandbox; the sandbox's file
 * is an array of them. */
struct published {
    uint64_t start; /* of the process: detects a reused pid */
    int pid;
    struct cay_port port;
};

static bool is_living(const struct published *port)
{
    uint64_t start;

    return runtime_start_time(port->pid, &start) == 0 && start == port->start;
}

/* Those whose process lives, with room for PORTS_MAX; free the array. */
static int load_published(const char *id, struct published **ret_ports, size_t *ret_count,
                          struct cay_error *err)
{
    AUTO_FREE struct published *ports = calloc(PORTS_MAX, sizeof *ports);
    size_t len = 0, living = 0;

    if (!ports)
        return cay_fail_memory(err, op);
    TRY(runtime_load_ports(id, ports, PORTS_MAX * sizeof *ports, &len, err));
    for (size_t i = 0; i < len / sizeof *ports; i++)
        if (is_living(&ports[i]))
            ports[living++] = ports[i];
    *ret_ports = TAKE_PTR(ports);
    *ret_count = living;
    return CAY_OK;
}

int cay_sandbox_add_ports(const char *id, int pid, const struct cay_port *ports,
                          size_t count, struct cay_error *err)
{
    AUTO_FREE struct published *all = NULL;
    struct record record;
    uint64_t start;
    size_t before = 0;

    TRY(runtime_load(id, &record, err));
    if (runtime_start_time(pid, &start) != 0 || !start)
        return cay_fail(err, CAY_E_NOT_FOUND, ESRCH, op, id, "there is no such process",
                        "give the process that relays the ports");
    AUTO_FD lock = runtime_wait_lock(id);
    if (lock < 0)
        return cay_fail_errno(err, errno, op, id);
    TRY(load_published(id, &all, &before, err));
    if (count > PORTS_MAX - before)
        return cay_fail(err, CAY_E_LIMIT, 0, op, id, "too many published ports",
                        "the limit of a sandbox is %d", PORTS_MAX);
    for (size_t i = 0; i < count; i++)
        all[before + i] =
            (struct published){.start = start, .pid = pid, .port = ports[i]};
    return runtime_save_ports(id, all, (before + count) * sizeof *all, err);
}

/* --- Listening sockets --- */

/* "0100007F", or four of that, and a colon: the kernel writes each 32 bits of an address
 * as one number of its own byte order. */
static bool parse_address(const char *hex, size_t len, char ret_text[INET6_ADDRSTRLEN])
{
    uint32_t words[4] = {0};
    char word[9] = "";

    if (len != 8 && len != 32)
        return false;
    for (size_t i = 0; i < len / 8; i++) {
        memcpy(word, hex + 8 * i, 8);
        words[i] = (uint32_t)strtoul(word, NULL, 16);
    }
    return inet_ntop(len == 8 ? AF_INET : AF_INET6, words, ret_text, INET6_ADDRSTRLEN);
}

/* Cuts the line after the word. */
static char *next_word(char **line)
{
    char *word = *line + strspn(*line, " ");
    char *end = word + strcspn(word, " ");

    *line = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

/* "   0: 0100007F:1F40 00000000:0000 0A ..."; the first line has headings. */
static bool parse_listener(char *line, struct cay_port *ret_port)
{
    (void)next_word(&line);
    char *local = next_word(&line), *port = strchr(local, ':');
    (void)next_word(&line);
    bool listens = strtoul(next_word(&line), NULL, 16) == TCP_LISTENING;

    *ret_port = (struct cay_port){0};
    if (!listens || !port)
        return false;
    ret_port->inside = (uint16_t)strtoul(port + 1, NULL, 16);
    return parse_address(local, (size_t)(port - local), ret_port->listens);
}

/* The sockets of cay-net are in the namespace of the sandbox, too. */
static bool is_collector(const struct cay_port *port)
{
    return port->inside == COLLECT_PORT &&
           (strcmp(port->listens, "127.0.0.1") == 0 || strcmp(port->listens, "::1") == 0);
}

static int read_table(const struct record *record, const char *table,
                      struct cay_port *ports, size_t *count, struct cay_error *err)
{
    char path[64], line[256];

    snprintf(path, sizeof path, "/proc/%d/net/%s", record->init, table);
    FILE *file = fopen(path, "re");
    if (!file) /* without IPv6 there is no tcp6 */
        return errno == ENOENT ? CAY_OK : cay_fail_errno(err, errno, op, record->id);
    while (*count < PORTS_MAX && fgets(line, sizeof line, file))
        if (parse_listener(line, &ports[*count]) &&
            !(record->is_relayed && is_collector(&ports[*count])))
            ++*count;
    (void)fclose(file);
    return CAY_OK;
}

static int load_listeners(const struct record *record, struct cay_port **ret_ports,
                          size_t *ret_count, struct cay_error *err)
{
    AUTO_FREE struct cay_port *ports = calloc(PORTS_MAX, sizeof *ports);
    size_t count = 0;

    if (!ports)
        return cay_fail_memory(err, op);
    TRY(read_table(record, "tcp", ports, &count, err));
    TRY(read_table(record, "tcp6", ports, &count, err));
    /* After the tables are open: now the pid was that of PID 1 when they were. */
    if (!runtime_is_alive(record))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, record->id, "the sandbox has ended",
                        "cay ls lists the sandboxes that run");
    *ret_ports = TAKE_PTR(ports);
    *ret_count = count;
    return CAY_OK;
}

/* --- Both --- */

static int check_own(const struct record *record, struct cay_error *err)
{
    if (!(record->layers & CAY_LAYER_NETWORK))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, record->id,
                        "the sandbox uses the network of this machine",
                        "ss -ltn lists the ports of this machine");
    if (record->pid_namespace != runtime_pid_namespace())
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, record->id,
                        "the sandbox was created in another PID namespace",
                        "list its ports from that PID namespace");
    return CAY_OK;
}

static int by_port(const void *one, const void *other)
{
    const struct cay_port *a = one, *b = other;

    if (a->inside != b->inside)
        return a->inside < b->inside ? -1 : 1;
    int order = strcmp(a->listens, b->listens);
    if (!order)
        order = strcmp(a->address, b->address);
    return order ? order : a->port - b->port;
}

/* A row for each listener and each port of this machine that leads to it; a port to which
 * nothing listens has a row of its own. */
static size_t join(const struct published *outside, size_t outside_count,
                   const struct cay_port *inside, size_t inside_count,
                   struct cay_port *rows)
{
    size_t count = 0;

    for (size_t i = 0; i < inside_count; i++) {
        size_t before = count;
        for (size_t j = 0; count < PORTS_MAX && j < outside_count; j++)
            if (outside[j].port.inside == inside[i].inside) {
                rows[count] = outside[j].port;
                memcpy(rows[count++].listens, inside[i].listens,
                       sizeof inside[i].listens);
            }
        if (count == before && count < PORTS_MAX)
            rows[count++] = inside[i];
    }
    for (size_t j = 0; j < outside_count; j++) {
        size_t i = 0;
        while (i < inside_count && inside[i].inside != outside[j].port.inside)
            i++;
        if (i == inside_count && count < PORTS_MAX)
            rows[count++] = outside[j].port;
    }
    return count;
}

int cay_sandbox_list_ports(const char *id, struct cay_port **ret_ports, size_t *ret_count,
                           struct cay_error *err)
{
    AUTO_FREE struct cay_port *inside = NULL, *rows = calloc(PORTS_MAX, sizeof *rows);
    AUTO_FREE struct published *outside = NULL;
    size_t inside_count = 0, outside_count = 0;
    struct record record;

    if (!rows)
        return cay_fail_memory(err, op);
    TRY(runtime_load(id, &record, err));
    TRY(check_own(&record, err));
    TRY(load_published(id, &outside, &outside_count, err));
    TRY(load_listeners(&record, &inside, &inside_count, err));
    *ret_count = join(outside, outside_count, inside, inside_count, rows);
    qsort(rows, *ret_count, sizeof *rows, by_port);
    *ret_ports = TAKE_PTR(rows);
    return CAY_OK;
}
