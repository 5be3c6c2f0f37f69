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
static int open_socket(const struct network_address *nameserver, int type)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(DNS_PORT)};
    struct sockaddr_in6 name6 = {.sin6_family = AF_INET6, .sin6_port = htons(DNS_PORT)};
    bool is_new = nameserver->len == 16;

    memcpy(&name.sin_addr, nameserver->bytes, 4);
    memcpy(&name6.sin6_addr, nameserver->bytes, 16);
    AUTO_FD fd =
        socket(is_new ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 ||
        (connect(fd, is_new ? (struct sockaddr *)&name6 : (struct sockaddr *)&name,
                 is_new ? sizeof name6 : sizeof name) != 0 &&
         errno != EINPROGRESS))
        return -errno;
    return TAKE_FD(fd);
}

/* False if the nameserver cannot be reached. */
static bool send_question(struct lookup *lookup, int fd)
{
    uint8_t bytes[2 + DNS_MESSAGE_MAX] = {(uint8_t)(lookup->len >> 8),
                                          (uint8_t)lookup->len};
    size_t skipped = lookup->is_stream ? 0 : 2, len = 2 + lookup->len - skipped;

    if (lookup->is_sent)
        return true;
    memcpy(bytes + 2, lookup->question, lookup->len);
    ssize_t sent = send(fd, bytes + skipped, len, MSG_NOSIGNAL);
    lookup->is_sent = sent == (ssize_t)len;
    return lookup->is_sent ||
           (sent < 0 && lookup->is_stream && (errno == EAGAIN || errno == ENOTCONN));
}

int lookup_ask(struct lookup *lookup, const struct network_address *nameservers,
               size_t count, const char *name)
{
    uint16_t id;

    while (lookup->asked < count * TRIES) {
        const struct network_address *nameserver = &nameservers[lookup->asked++ % count];
        (void)!getrandom(&id, sizeof id, 0);
        lookup->len =
            dns_write_question(id, name, lookup->is_second ? DNS_TYPE_AAAA : DNS_TYPE_A,
                               !lookup->is_plain, lookup->question);
        lookup->is_sent = false;
        lookup->got = 0;
        AUTO_FD fd =
            open_socket(nameserver, lookup->is_stream ? SOCK_STREAM : SOCK_DGRAM);
        if (fd >= 0 && send_question(lookup, fd))
            return TAKE_FD(fd);
        lookup->is_stream = false;
    }
    return -EHOSTUNREACH;
}

void lookup_time_out(struct lookup *lookup)
{
    lookup->is_over = true;
}

/* Packets that are no reply are dropped. */
static int receive_packet(const struct lookup *lookup, int fd,
                          struct dns_addresses *ret_addresses)
{
    uint8_t message[DNS_MESSAGE_MAX];
    ssize_t got;

    do
        got = recv(fd, message, sizeof message, 0);
    while (got >= 0 && !dns_read_reply(message, (size_t)got, lookup->question,
                                       lookup->len, ret_addresses));
    return got < 0 ? -errno : 0;
}

static size_t stream_need(const struct lookup *lookup)
{
    size_t need =
        lookup->got < 2 ? 2 : 2 + ((size_t)lookup->stream[0] << 8 | lookup->stream[1]);

    return need < sizeof lookup->stream ? need : sizeof lookup->stream;
}

/* Of a reply that is longer, the first records. */
static int receive_stream(struct lookup *lookup, int fd,
                          struct dns_addresses *ret_addresses)
{
    while (lookup->got < stream_need(lookup)) {
        ssize_t got =
            recv(fd, lookup->stream + lookup->got, stream_need(lookup) - lookup->got, 0);
        if (got <= 0)
            return got < 0 ? -errno : -EPROTO;
        lookup->got += (size_t)got;
    }
    return dns_read_reply(lookup->stream + 2, lookup->got - 2, lookup->question,
                          lookup->len, ret_addresses)
               ? 0
               : -EPROTO;
}

/* The same nameserver in another way, if it needs one. */
static bool ask_otherwise(struct lookup *lookup, const struct dns_addresses *addresses)
{
    bool is_refused =
        addresses->code == DNS_MALFORMED || addresses->code == DNS_UNSUPPORTED;

    if (is_refused && !lookup->is_plain)
        lookup->is_plain = true;
    else if (addresses->is_truncated && !addresses->count && !lookup->is_stream)
        lookup->is_stream = true;
    else
        return false;
    lookup->asked--;
    return true;
}

enum lookup_result lookup_continue(struct lookup *lookup, int fd,
                                   struct dns_addresses *ret_addresses)
{
    if (fd < 0 || lookup->is_over) {
        lookup->is_over = lookup->is_stream = false;
        return LOOKUP_AGAIN;
    }
    int error = !send_question(lookup, fd) ? -EPIPE
                : lookup->is_stream        ? receive_stream(lookup, fd, ret_addresses)
                                           : receive_packet(lookup, fd, ret_addresses);
    if (error == -EAGAIN || error == -ENOTCONN)
        return LOOKUP_PENDING;
    if (!error && ask_otherwise(lookup, ret_addresses))
        return LOOKUP_AGAIN;
    lookup->is_stream = false;
    if (error || (ret_addresses->code != DNS_OK && ret_addresses->code != DNS_NO_NAME))
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
