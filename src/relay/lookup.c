/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/lookup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"

enum {
    TRIES = 2 /* of each nameserver */,
    KEEP_MIN_S = 1,
    KEEP_MAX_S = 300,
    DNS_PORT = 53
};

/* A connected socket takes replies from this nameserver only, and its port is random. */
static int open_socket(const struct network_address *nameserver)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(DNS_PORT)};
    struct sockaddr_in6 name6 = {.sin6_family = AF_INET6, .sin6_port = htons(DNS_PORT)};
    bool is_new = nameserver->len == 16;

    memcpy(&name.sin_addr, nameserver->bytes, 4);
    memcpy(&name6.sin6_addr, nameserver->bytes, 16);
    AUTO_FD fd =
        socket(is_new ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 ||
        connect(fd, is_new ? (struct sockaddr *)&name6 : (struct sockaddr *)&name,
                is_new ? sizeof name6 : sizeof name) != 0)
        return -errno;
    return TAKE_FD(fd);
}

int lookup_ask(struct lookup *lookup, const struct network_address *nameservers,
               size_t count, const char *name)
{
    uint16_t id;

    while (lookup->asked < count * TRIES) {
        const struct network_address *nameserver = &nameservers[lookup->asked++ % count];
        (void)!getrandom(&id, sizeof id, 0);
        lookup->len = dns_write_question(
            id, name, lookup->is_second ? DNS_TYPE_AAAA : DNS_TYPE_A, lookup->question);
        AUTO_FD fd = open_socket(nameserver);
        if (fd >= 0 &&
            send(fd, lookup->question, lookup->len, MSG_NOSIGNAL) == (ssize_t)lookup->len)
            return TAKE_FD(fd);
    }
    return -EHOSTUNREACH;
}

void lookup_time_out(struct lookup *lookup)
{
    lookup->is_over = true;
}

/* Packets that are no reply are dropped. */
static ssize_t receive_reply(const struct lookup *lookup, int fd,
                             struct dns_addresses *ret_addresses)
{
    uint8_t message[DNS_MESSAGE_MAX];
    ssize_t got;

    do
        got = recv(fd, message, sizeof message, 0);
    while (got >= 0 && !dns_read_reply(message, (size_t)got, lookup->question,
                                       lookup->len, ret_addresses));
    return got < 0 ? -errno : got;
}

enum lookup_result lookup_continue(struct lookup *lookup, int fd,
                                   struct dns_addresses *ret_addresses)
{
    if (fd < 0 || lookup->is_over) {
        lookup->is_over = false;
        return LOOKUP_AGAIN;
    }
    ssize_t got = receive_reply(lookup, fd, ret_addresses);
    if (got == -EAGAIN)
        return LOOKUP_PENDING;
    if (got < 0 || (ret_addresses->code != DNS_OK && ret_addresses->code != DNS_NO_NAME))
        return LOOKUP_AGAIN; /* the next nameserver */
    if (ret_addresses->code == DNS_OK && !ret_addresses->count && !lookup->is_second) {
        lookup->is_second = true;
        lookup->asked = 0;
        return LOOKUP_AGAIN;
    }
    return LOOKUP_DONE;
}

uint64_t lookup_keep_ms(const struct dns_addresses *addresses)
{
    uint64_t seconds = !addresses->count               ? KEEP_MIN_S
                       : addresses->ttl_s < KEEP_MIN_S ? KEEP_MIN_S
                       : addresses->ttl_s > KEEP_MAX_S ? KEEP_MAX_S
                                                       : addresses->ttl_s;

    return seconds * 1000;
}
